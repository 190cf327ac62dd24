"""The bounded design with every entry clipped, for sums whose single entries must be bounded.

A record adds ``x_j r_k`` to entry ``(j, k)`` of the gradient sum: its row times its residual. Residuals lie in [-1, 1],
so with entries clipped to ``[-clip, clip]`` no record adds more than ``clip`` to any entry of the sum, and all entries
together are still one product. The residuals are those of the rows as they are.

Clipped values of CSR are kept, 8 bytes for each stored value, and share the indices of ``X``. Of dense blocks, columns
of zeros and ones need no clipping of their own; others are clipped anew in a copy of a block that fits the cache.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import repeat
from typing import Any

import numpy as np
import scipy.sparse as sp

from dpskl.records.problem import Problem
from dpskl.records.rows import Block, compressed

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
        self._clipped = list(self._sparse_blocks()) if sp.issparse(problem.X) else None
        # a pass of its own, which must not fall into another: casts of blocks share a buffer
        self._is_binary = problem.binary_columns if self._clipped is None else np.zeros(0, dtype=bool)

    def gradient_sum_at(self, scores: Array) -> Array:
        """Return ``sum_i clip(x_i) r_i`` for the residuals at ``scores``, of the shape of the weights: one pass.

        No record adds more than ``clip`` in absolute value to any entry.
        """
        problem = self.problem
        out = np.zeros((problem.n_weights, *scores.shape[1:]))
        constants = np.minimum(problem.row_map[1], self.clip)
        for block, XT in zip(problem._rows, self._clipped or repeat(None), strict=False):
            residuals = problem.loss.residuals(scores[block.rows], problem.targets[block.rows])
            if problem.intercept:
                out[-1] += constants[block.rows] @ residuals
            out[: problem.n_features] += self._dense_product(block, residuals) if XT is None else XT @ residuals
        return out

    def _dense_product(self, block: Block, residuals: Array) -> Array:
        scale = self.problem.row_map[0][block.rows]
        is_binary = self._is_binary
        products = np.empty((self.problem.n_features, *residuals.shape[1:]))
        if is_binary.any():  # an entry is 0 or the factor of its row: the clipped factors go into the residuals
            products[:] = block.XT @ (residuals.T * np.minimum(scale, self.clip)).T
        if not is_binary.all():
            X = block.X[:, ~is_binary] if is_binary.any() else block.X
            X = X * scale[:, None]
            products[~is_binary] = np.clip(X, -self.clip, self.clip, out=X).T @ residuals
        return products

    def _sparse_blocks(self) -> Iterator[Any]:
        scale = self.problem.row_map[0]
        for block in self.problem._rows:
            values = block.X.data * np.repeat(scale[block.rows], np.diff(block.X.indptr))
            np.clip(values, -self.clip, self.clip, out=values)
            yield compressed(sp.csc_array, block.XT.shape, (values, block.X.indices, block.X.indptr))
