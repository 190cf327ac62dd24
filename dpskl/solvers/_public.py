"""What the solvers that learn from public records beside the private ones share."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator

__all__ = ["ShortRepr", "brief", "directions", "shuffled"]

Array = np.ndarray[Any, Any]

_MOST_ROWS = 500  # of which all products with each other are made
_BLOCK = 10**7  # numbers of them that are held at a time
_LONGEST = 6  # numbers that are shown one by one


class _Words:
    """Words that are their own representation."""

    def __init__(self, words: str) -> None:
        self.words = words

    def __repr__(self) -> str:
        return self.words


def brief(value: Any) -> str:
    """Return a parameter in few words: what is large by its type and shape.

    Examples
    --------
    >>> import numpy as np
    >>> brief((np.zeros((300, 4)), [0, 1] * 150))
    '(ndarray of shape (300, 4), list of length 300)'
    >>> brief(0.5)
    '0.5'
    """
    if isinstance(value, tuple) and len(value) == 2:
        return f"({brief(value[0])}, {brief(value[1])})"
    if hasattr(value, "shape") and not isinstance(value, np.generic):
        return f"{type(value).__name__} of shape {tuple(value.shape)}"
    if isinstance(value, Sequence) and not isinstance(value, str) and len(value) > _LONGEST:
        return f"{type(value).__name__} of length {len(value)}"
    words = repr(value)
    return words if len(words) <= 80 else words[:77] + "..."


def shuffled(problem: Any) -> Array:
    """Return the numbers of the records in an order that has nothing to do with theirs, the same in every fit."""
    return np.random.default_rng(0).permutation(problem.n_samples)


def directions(problem: Any) -> float:
    r"""Return in how many directions rows lie: ``(tr H)^2 / tr(H^2)`` of their second moment ``H``.

    It is 1 where all are on one line, and the number of columns where they lie in all directions alike; that of rows
    where there are fewer. Many rows are judged by 500 of them.
    """
    part = problem.batch(shuffled(problem)[:_MOST_ROWS])
    unit, squares, trace = np.eye(part.n_samples), 0.0, 0.0
    width = max(1, _BLOCK // part.n_weights)
    for start in range(0, part.n_samples, width):
        products = part.scores(part.adjoint(unit[:, start : start + width]))
        squares += float(np.square(products / part.row_bound**2).sum())
        trace += float(np.trace(products[start : start + width])) / part.row_bound**2
    return trace**2 / squares if squares > 0 else 1.0


class ShortRepr(BaseEstimator):
    """A ``repr`` that names arrays by their shapes."""

    def __repr__(self, N_CHAR_MAX: int = 700) -> str:
        shown = copy.copy(self)
        for name in ("public_data", "feature_scales"):
            value = getattr(self, name, None)
            if value is not None:
                setattr(shown, name, _Words(brief(value)))
        return BaseEstimator.__repr__(shown, N_CHAR_MAX)
