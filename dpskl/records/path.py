"""A problem that remembers where a descent stands, so that a line search does not read ``X`` for each step.

A descent asks for a gradient at ``w``, then for the losses at ``w - t p`` for many steps ``t``, then for a gradient at
the step it took. The scores there are ``X w - t X p``. A :class:`Path` keeps both products: the losses along the ray
read no row, and the next gradient reads ``X`` once, for ``X^T r``. An update costs two passes, however many steps it
tries. A gradient that is asked for again at the same weights (a second measurement) costs none.

Where a step shrinks all weights and moves one of them, as those of Frank and Wolfe do, the scores follow it by one
column of ``X``.
"""

from __future__ import annotations

from math import inf
from typing import Any

import numpy as np

from dpskl.records.entries import ClippedEntries
from dpskl.records.problem import Problem
from dpskl.records.trainable import Trainable

__all__ = ["Path", "along_path"]

Array = np.ndarray[Any, Any]


class Path:
    """Gradients and losses of a problem along the path of a descent.

    Every method may be asked about any weights; those on the path are answered with fewer passes. Scores are
    updated along the path, so they differ from fresh ones by rounding, record by record: no record's rounding
    depends on another record.

    Parameters
    ----------
    problem : Problem
    """

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self._weights = problem.zeros()
        self._scores = np.zeros((problem.n_samples, *self._weights.shape[1:]))
        self._direction: Array | None = None
        self._direction_scores = self._scores
        self._steps: Array = np.zeros(0)
        self._gradient: tuple[float, Array] | None = None
        self._mixed: tuple[Array, float, int, float] | None = None
        self._entries: ClippedEntries | None = None

    @property
    def n_samples(self) -> int:
        """Number of records."""
        return self.problem.n_samples

    @property
    def n_features(self) -> int:
        """Number of features."""
        return self.problem.n_features

    def zeros(self) -> Array:
        """Return zero weights of the right shape."""
        return self.problem.zeros()

    def gradient_sum(self, weights: Array, clip_norm: float = inf) -> Array:
        """Return the sum of clipped gradients, see :meth:`Problem.gradient_sum`: one pass on the path, or none."""
        self._move(weights)
        if self._gradient is None or self._gradient[0] != clip_norm:
            self._gradient = clip_norm, self.problem.gradient_sum_at(self._scores, clip_norm)
        return self._gradient[1].copy()

    def losses_along(self, weights: Array, direction: Array, steps: Array, cap: float = inf) -> Array:
        """Return ``sum_i min(loss_i, cap)`` at ``weights - t direction`` for each step ``t``.

        Parameters
        ----------
        weights, direction : ndarray of shape (n_weights,) or (n_weights, n_outputs)
        steps : ndarray of shape (m,)
        cap : float, default=inf
            Each record's loss is clipped to it.

        Returns
        -------
        ndarray of shape (m,)
            One pass for a new direction, none for one that was asked for at the same weights before.
        """
        self._move(weights)
        if self._direction is None or not np.array_equal(direction, self._direction):
            self._direction = direction.copy()
            self._direction_scores = self.problem.scores(direction)
            self._steps = np.zeros(0)
        self._steps = np.union1d(self._steps, steps)
        return self.problem.ray_losses(self._scores, self._direction_scores, steps, cap)

    def clipped_entries_gradient(self, weights: Array, clip: float) -> Array:
        """Return the gradient sum with entries of rows clipped, see :class:`ClippedEntries`: one pass on the path."""
        self._move(weights)
        if self._entries is None or self._entries.clip != clip:
            self._entries = ClippedEntries(self.problem, clip)
        return self._entries.gradient_sum_at(self._scores)

    def mixed(self, weights: Array, keep: float, place: int, amount: float) -> Array:
        """Return ``keep * weights`` with ``amount`` added to entry ``place``, counted in C order.

        The path follows to these weights by one column.
        """
        self._move(weights)
        moved = keep * weights
        moved.flat[place] += amount
        self._mixed = moved.copy(), keep, place, amount
        return moved

    def batch(self, indices: Array) -> Problem:
        """Return the problem of the rows ``indices``, which begins a path of its own."""
        return self.problem.batch(indices)

    def _move(self, weights: Array) -> None:
        if np.array_equal(weights, self._weights):
            return
        step = self._step_to(weights)
        if self._mixed is not None and np.array_equal(weights, self._mixed[0]):
            self._mix(*self._mixed[1:])
        elif step is None:
            self._scores = self.problem.scores(weights)
        else:
            self._scores = self._scores - step * self._direction_scores
        self._weights = weights.copy()
        self._direction = self._gradient = self._mixed = None

    def _mix(self, keep: float, place: int, amount: float) -> None:
        row, output = divmod(place, self.problem.n_outputs)
        self._scores = keep * self._scores
        scores = self._scores if self._scores.ndim == 1 else self._scores[:, output]
        scores += amount * self.problem.column(row)

    def _step_to(self, weights: Array) -> float | None:
        """Return the step that leads to ``weights`` exactly, among those that were asked about."""
        if self._direction is None:
            return None
        for step in self._steps:
            if np.array_equal(weights, self._weights - step * self._direction):
                return float(step)
        return None


def along_path(problem: Trainable) -> Trainable:
    """Return what answers as ``problem`` does and reads a linear problem's rows once for a whole search."""
    return Path(problem) if isinstance(problem, Problem) else problem
