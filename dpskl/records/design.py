r"""The bounded design: rows of ``X`` under a public *row map*, multiplied and never formed.

The map is made of ``data_norm``, the value ``c`` of the intercept column and one of three kinds
(:mod:`dpskl.records.row_maps`): row ``i`` of the design is ``(scale_i x_i, constant_i)``.

Factors and constants are folded into the products, weights carry the intercept in their last row. ``X`` is read in
blocks that fit the cache (:mod:`dpskl.records.rows`); a float32 block is cast into one small buffer, since no stated
sensitivity covers a sum in float32. All sums are float64.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import Any

import numpy as np
import scipy.sparse as sp

from dpskl.records.row_maps import ROW_MAPS, row_bound
from dpskl.records.rows import (
    GRAM_HEIGHT,
    Block,
    Rows,
    compressed,
    row_norms,
    row_scales,
    sphere_scales,
    squared,
    squares_of_rows,
)
from dpskl.records.scaling import ShortenedScaling

__all__ = ["Design"]

Array = np.ndarray[Any, Any]


class Design:
    """Rows under a public map that bounds them: what prediction needs, and a problem adds targets and a loss to.

    Parameters
    ----------
    X : ndarray or CSR of shape (n, d)
        float64 or float32, finite. Used in place, never written to.
    data_norm : float
        What the row map brings rows down to, or to.
    intercept : float, default=0
        Value of the constant column; 0 for none.
    rows : {"clip", "sphere", "fill"}, default="clip"
        The row map: scale down what is longer than ``data_norm``, bring every row *with* its constant to norm
        ``data_norm``, or the one after the other.

    Attributes
    ----------
    n_samples, n_features : int
    row_norms : ndarray of shape (n,)
        Norms of the rows of the design, intercept included.
    row_bound : float
        What none of them exceeds, on any data set.
    """

    def __init__(self, X: Any, *, data_norm: float, intercept: float = 0.0, rows: str = "clip") -> None:
        self.X = X
        self.intercept = float(intercept)
        self.n_samples, self.n_features = X.shape
        self._rows = Rows(X)
        if rows not in ROW_MAPS:
            raise ValueError(f"rows={rows!r} must be one of {', '.join(map(repr, ROW_MAPS))}")
        norms = row_norms(X)
        self.row_bound = row_bound(data_norm, self.intercept, rows)
        self._scale = np.ones(len(norms))
        if rows != "sphere":
            self._scale = row_scales(X, data_norm, norms)
            # A scaled row is no longer than `data_norm`; one whose norm overflowed is scaled to nothing.
            norms = np.where(self._scale == 0, 0.0, np.minimum(norms, data_norm))
        if rows == "clip":
            self._constants = np.broadcast_to(self.intercept, norms.shape)
            self.row_norms = np.hypot(norms, self.intercept)
        else:
            is_empty = (norms == 0) & (rows == "fill")
            lengths = np.where(is_empty, data_norm, norms)
            stretch, factors = sphere_scales(lengths, data_norm, self.intercept, self.n_features)
            self._scale *= stretch
            self._constants = self.intercept * factors
            self.row_norms = np.where(factors > 0, self.row_bound, 0.0)
            self.row_norms[is_empty] = self._constants[is_empty]
        self._has_lost_rows = bool((self._scale == 0).any())

    @property
    def n_weights(self) -> int:
        """Number of rows of a weight vector or matrix: features, and one for the intercept column."""
        return self.n_features + (self.intercept > 0)

    @property
    def row_map(self) -> tuple[Array, Array]:
        """The factor of the features of each row, and its constant, shape (n,) each."""
        return self._scale, self._constants

    def _raw_scores(self, block: Block, weights: Array) -> Array:
        """Return the products with rows as they are, except that rows that are scaled to nothing give 0."""
        # such a row is finite and its squared norm is not: its product may be inf or nan, which 0 would not mend
        with np.errstate(over="ignore", invalid="ignore"):
            scores = block.X @ weights[: self.n_features]
        if self._has_lost_rows:
            scores[self._scale[block.rows] == 0] = 0
        return scores

    def _block_scores(self, block: Block, weights: Array) -> Array:
        scale = self._scale[block.rows]
        scores = self._raw_scores(block, weights)
        scores *= scale if scores.ndim == 1 else scale[:, None]
        if self.intercept:
            scores += np.multiply.outer(self._constants[block.rows], weights[-1])
        return scores

    def _add_adjoint(self, block: Block, values: Array, out: Array) -> None:
        """Add the block's part of ``design^T values`` to ``out``; ``values`` is overwritten."""
        if self.intercept:
            out[-1] += self._constants[block.rows] @ values
        scale = self._scale[block.rows]
        values *= scale if values.ndim == 1 else scale[:, None]
        out[: self.n_features] += block.XT @ values

    def scores(self, weights: Array) -> Array:
        """Return design @ weights, shape (n,) or (n, n_outputs): one pass."""
        scores = np.empty((self.n_samples, *weights.shape[1:]))
        for block in self._rows:
            scores[block.rows] = self._block_scores(block, weights)
        return scores

    def adjoint(self, values: Array) -> Array:
        """Return design^T @ values for values of shape (n,) or (n, k): one pass."""
        out = np.zeros((self.n_weights, *values.shape[1:]))
        for block in self._rows:
            self._add_adjoint(block, values[block.rows].astype(np.float64), out)
        return out

    # -- moments of the rows --------------------------------------------------------------------------

    def weighted_gram(self, weights: Array) -> Array:
        """Return design^T diag(weights) design for non-negative record weights of shape (n,): one pass."""
        gram = np.zeros((self.n_weights, self.n_weights))
        # where rows are long the matrix is larger than a block, and adding to it costs more than reading rows
        for block in Rows(self.X, least_height=GRAM_HEIGHT):
            self._add_gram(block, weights[block.rows], gram)
        return gram

    def _add_gram(self, block: Block, weights: Array, out: Array) -> None:
        root = np.sqrt(weights)
        scaled = root * self._scale[block.rows]
        root *= self._constants[block.rows]
        d = self.n_features
        for start in range(0, len(root), GRAM_HEIGHT):  # small parts: a sparse block is made dense here
            part = slice(start, start + GRAM_HEIGHT)
            rows = block.X[part].toarray() if sp.issparse(block.X) else block.X[part]
            rows = rows * scaled[part, None]
            out[:d, :d] += rows.T @ rows
            if self.intercept:
                cross = rows.T @ root[part]
                out[:d, d] += cross
                out[d, :d] += cross
        if self.intercept:
            out[d, d] += root @ root

    def _bounded_blocks(self, height: int = 2 * GRAM_HEIGHT) -> Iterator[tuple[slice, Any]]:
        """Yield the bounded features, without the constant column: copies of at most ``height`` rows."""
        # scaled before anything is squared: the squares of what is as long as it may be do not overflow
        for block in Rows(self.X, to_square=True):
            first, last = block.rows.start, block.rows.stop
            for start in range(first, last, height):
                rows = slice(start, min(start + height, last))
                X, scale = block.X[start - first : rows.stop - first], self._scale[rows]
                if sp.issparse(X):
                    scaled = X.data * np.repeat(scale, np.diff(X.indptr))
                    yield rows, compressed(sp.csr_array, X.shape, (scaled, X.indices, X.indptr))
                else:
                    yield rows, X * scale[:, None]

    def squared_column_norms(self) -> Array:
        """Return the sum of squares of each column of the bounded design, shape (n_weights,): one pass."""
        out = np.zeros(self.n_weights)
        for rows, X in self._bounded_blocks():
            out[: self.n_features] += squared(X).sum(axis=0)
            if self.intercept:
                out[-1] += self._constants[rows] @ self._constants[rows]
        return out

    def transformed_row_norms(self, transform: Array | ShortenedScaling) -> Array:
        """Return the norms of the rows of the bounded design after a linear map: one pass, or two.

        Parameters
        ----------
        transform : ndarray of shape (n_weights,) or (n_weights, k), or ShortenedScaling
            A vector multiplies column ``j`` by its entry ``j``; a matrix multiplies each row from the right.

        Returns
        -------
        ndarray of shape (n,)
        """
        if isinstance(transform, ShortenedScaling):
            return self._shortened_row_norms(transform)
        norms = np.empty(self.n_samples)
        features, last = transform[: self.n_features], transform[-1]
        is_matrix = transform.ndim == 2
        # the product of a sparse block with a matrix is dense
        for rows, X in self._bounded_blocks(GRAM_HEIGHT if is_matrix else 2 * GRAM_HEIGHT):
            if is_matrix:
                X = X @ features
                if self.intercept:
                    X += np.multiply.outer(self._constants[rows], last)
            elif sp.issparse(X):
                norms[rows] = squares_of_rows(X.data * features[X.indices], X.indptr)
                continue
            else:
                X *= features
            norms[rows] = np.einsum("ij,ij->i", X, X)
        if self.intercept and not is_matrix:
            norms += np.square(self._constants * last)
        return np.sqrt(norms, out=norms)

    def _shortened_row_norms(self, transform: ShortenedScaling) -> Array:
        # ||B y||^2 = ||y||^2 - sum_k (1 - factor_k^2) (u_k . y)^2, which is at least the least factor^2 times ||y||^2
        whole = np.square(self.transformed_row_norms(transform.scales))
        if not len(transform.factors):
            return np.sqrt(whole, out=whole)
        turned = transform.scales[:, None] * transform.directions
        lost, least = 1 - transform.factors**2, transform.factors.min() ** 2
        for block in self._rows:
            part = whole[block.rows]
            part[:] = np.maximum(part - np.square(self._block_scores(block, turned)) @ lost, least * part)
        return np.sqrt(whole, out=whole)

    def products_of_squares(self, factors: Array) -> Array:
        """Return ``(design * design) @ factors`` for factors of shape (n_weights, k), none negative: one pass.

        Returns
        -------
        ndarray of shape (n, k)
        """
        out = np.empty((self.n_samples, factors.shape[1]))
        for rows, X in self._bounded_blocks():
            out[rows] = squared(X) @ factors[: self.n_features]
        if self.intercept:
            out += np.multiply.outer(np.square(self._constants), factors[-1])
        return out

    def column(self, j: int) -> Array:
        """Return column ``j`` of the bounded design, shape (n,), float64."""
        if j == self.n_features and self.intercept:
            return self._constants.copy()
        if not sp.issparse(self.X):
            return self.X[:, j] * self._scale
        column = np.zeros(self.n_samples)
        stored = np.flatnonzero(self.X.indices == j)  # faster than a slice
        column[np.searchsorted(self.X.indptr, stored, side="right") - 1] = self.X.data[stored]
        return column * self._scale

    @cached_property
    def binary_columns(self) -> Array:
        """Whether a column of ``X`` holds zeros and ones only, shape (n_features,): one pass, once."""
        binary = np.ones(self.n_features, dtype=bool)
        for block in self._rows:
            if sp.issparse(block.X):
                binary[block.X.indices[(block.X.data != 0) & (block.X.data != 1)]] = False
            else:
                binary &= ((block.X == 0) | (block.X == 1)).all(axis=0)
        return binary
