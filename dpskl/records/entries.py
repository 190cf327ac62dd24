"""The bounded design with every entry clipped, for sums whose single entries must be bounded.

A record adds ``x_j r_k`` to entry ``(j, k)`` of the gradient sum: its row times its residual. Residuals lie in [-1, 1],
so with entries clipped to ``[-clip, clip]`` no record adds more than ``clip`` to any entry of the sum, and all entries
together are still one product. The residuals are those of the rows as they are.

Clipped values of CSR are kept, 8 bytes for each stored value, and share the indices of ``X``; dense blocks are clipped
one at a time, in a buffer of the size of a block.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import scipy.sparse as sp

from dpskl.records.problem import Problem
from dpskl.records.rows import compressed

__all__ = ["ClippedEntries"]

Array = np.ndarray[Any, Any]


class ClippedEntries:
    """Gradient sums with the entries of rows clipped.

    Parameters
    ----------
    problem : Problem
    clip : float
        Positive.
    """

    def __init__(self, problem: Problem, clip: float) -> None:
        self.problem, self.clip = problem, clip
        self._kept = list(self._sparse_blocks()) if sp.issparse(problem.X) else None

    def gradient_sum_at(self, scores: Array) -> Array:
        """Return ``sum_i clip(x_i) r_i`` for the residuals at ``scores``, of the shape of the weights: one pass.

        No record adds more than ``clip`` in absolute value to any entry.
        """
        problem = self.problem
        out = np.zeros((problem.n_weights, *scores.shape[1:]))
        constants = np.minimum(problem.row_map[1], self.clip)
        for rows, XT in self._dense_blocks() if self._kept is None else self._kept:
            residuals = problem.loss.residuals(scores[rows], problem.targets[rows])
            if problem.intercept:
                out[-1] += constants[rows] @ residuals
            out[: problem.n_features] += XT @ residuals
        return out

    def _sparse_blocks(self) -> Iterator[tuple[slice, Any]]:
        scale = self.problem.row_map[0]
        for block in self.problem._rows:
            values = block.X.data * np.repeat(scale[block.rows], np.diff(block.X.indptr))
            np.clip(values, -self.clip, self.clip, out=values)
            arrays = (values, block.X.indices, block.X.indptr)
            yield block.rows, compressed(sp.csc_array, block.XT.shape, arrays)

    def _dense_blocks(self) -> Iterator[tuple[slice, Array]]:
        scale, buffer = self.problem.row_map[0], None
        for block in self.problem._rows:
            if buffer is None or buffer.shape != block.X.shape:
                buffer = np.empty_like(block.X)  # in the order of X, which is the one that reads faster
            np.multiply(block.X, scale[block.rows, None], out=buffer)
            np.clip(buffer, -self.clip, self.clip, out=buffer)
            yield block.rows, buffer.T
