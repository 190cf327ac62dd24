"""What a curator may hold: anything that answers the questions that solvers know."""

from __future__ import annotations

from math import inf
from typing import Any, Protocol

import numpy as np

__all__ = ["Trainable"]

Array = np.ndarray[Any, Any]


class Trainable(Protocol):
    """Units of data with a loss, behind the four questions of every gradient and line-search solver.

    A unit is what neighbouring data sets differ by: a record of a linear problem, or all records of one person.
    Whatever keeps this protocol (a linear problem, one in parts, a network) can be trained by these solvers and is
    charged to the same ledger. The answers are exact: mechanisms add the noise, and nobody else may call these methods.

    Attributes
    ----------
    n_samples, n_features : int
        Number of units, and of features of one.

    Notes
    -----
    Sensitivities rest on what each method promises:

    * *Bounds per unit.* A sum is a sum over units of terms that depend on that unit and on the arguments alone, and
      no term exceeds its stated bound on any data, whatever the arguments.
    * *Float64.* Terms may be computed in another precision, within an error that the mechanism's allowance names; they
      are added in float64, in no deeper order than :func:`~dpskl.records.rows.summation_depth` counts.
    * *Nothing else.* No method keeps, prints or raises what depends on the data; the order and the number of units that
      are read at a time are public.

    Mechanisms that need rows (second moments, objective perturbation, coordinate moves) ask for a
    :class:`~dpskl.records.problem.Problem` by type.
    """

    @property
    def n_samples(self) -> int: ...

    @property
    def n_features(self) -> int: ...

    def zeros(self) -> Array:
        """Return the weights that a descent starts from; they are public."""

    def gradient_sum(self, weights: Array, clip_norm: float = inf) -> Array:
        """Return the sum over units of their gradients, each scaled to a Euclidean norm of at most ``clip_norm``."""

    def losses_along(self, weights: Array, direction: Array, steps: Array, cap: float = inf) -> Array:
        """Return ``sum_i min(loss_i, cap)`` at ``weights - t direction`` for each step ``t``; no loss is negative."""

    def batch(self, indices: Array) -> Trainable:
        """Return the units ``indices`` and nothing else, as a problem of their own."""
