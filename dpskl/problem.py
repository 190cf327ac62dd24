r"""The passes over the data: rows, labels and loss.

A :class:`Problem` holds ``X`` (dense in C or Fortran order, or CSR), the targets, the loss and a public *row map*,
made of ``data_norm``, the value ``c`` of the intercept column and one of two kinds. Row ``i`` of the *bounded design*
is

* ``(s_i x_i, c)`` with ``s_i = min(1, data_norm / ||x_i||)`` (``"clip"``: longer rows are scaled down), or
* ``s_i (x_i, c)`` with ``s_i = data_norm / ||(x_i, c)||`` (``"sphere"``: all rows get norm ``data_norm``, the constant
  included).

It is never formed: factors and constants are folded into the products, weights carry the intercept in their last row.

``X`` is read in blocks that fit the cache (:mod:`dpskl.rows`). A block serves the product ``X_b w``, the residuals and
``X_b^T r`` before the next is fetched, so a gradient costs about one pass over memory; a float32 block is cast
into one small buffer, since no stated sensitivity covers a sum in float32. All sums are float64.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cached_property
from math import inf
from typing import Any

import numpy as np
import scipy.sparse as sp

from dpskl.losses import Loss, MarginLoss, Softmax
from dpskl.rows import (
    GRAM_HEIGHT,
    RAY_HEIGHT,
    Block,
    Rows,
    compressed,
    row_norms,
    row_scales,
    sphere_scales,
    squared,
)

__all__ = ["Problem"]

Array = np.ndarray[Any, Any]


class Problem:
    """Bounded rows, targets and loss of one classification problem.

    Parameters
    ----------
    X : ndarray or CSR of shape (n, d)
        float64 or float32, finite. Used in place, never written to.
    targets : ndarray or None
        As ``loss.encode`` returns them; ``None`` where only scores are wanted.
    loss : Loss or None
    data_norm : float
        Rows longer than this are scaled down to it.
    intercept : float, default=0
        Value of the constant column; 0 for none.
    n_outputs : int, default=1
    rows : {"clip", "sphere"}, default="clip"
        The row map: scale down what is longer than ``data_norm``, or bring every row *with* its constant to norm
        ``data_norm``.

    Attributes
    ----------
    n_samples, n_features, n_outputs : int
        ``n_outputs`` is 1 for weight vectors and the number of columns for weight matrices.
    row_norms : ndarray of shape (n,)
        Norms of the rows of the bounded design, intercept included.
    row_bound : float
        What none of them exceeds, on any data set.
    """

    def __init__(
        self,
        X: Any,
        targets: Array | None,
        loss: Loss | None,
        *,
        data_norm: float,
        intercept: float = 0.0,
        n_outputs: int = 1,
        rows: str = "clip",
    ) -> None:
        self.X, self.targets, self.loss = X, targets, loss
        self.intercept = float(intercept)
        self.n_samples, self.n_features = X.shape
        self.n_outputs = n_outputs
        self._rows = Rows(X)
        self._lowest: tuple[float, Array | None, Array] | None = None
        self._signed: tuple[Array, Array] | None = None
        norms = row_norms(X)
        if rows == "clip":
            self.row_bound = float(np.hypot(data_norm, self.intercept))
            self._scale = row_scales(X, data_norm, norms)
            self._constants = np.broadcast_to(self.intercept, norms.shape)
            # A scaled row is no longer than `data_norm`; one whose norm overflowed is scaled to nothing.
            bounded = np.where(self._scale == 0, 0.0, np.minimum(norms, data_norm))
            self.row_norms = np.hypot(bounded, self.intercept)
        elif rows == "sphere":
            self.row_bound = float(data_norm)
            self._scale, factors = sphere_scales(norms, data_norm, self.intercept, self.n_features)
            self._constants = self.intercept * factors
            self.row_norms = np.where(factors > 0, self.row_bound, 0.0)
        else:
            raise ValueError(f"rows={rows!r} must be 'clip' or 'sphere'")
        self._has_lost_rows = bool((self._scale == 0).any())

    @property
    def n_weights(self) -> int:
        """Number of rows of a weight vector or matrix: features, and one for the intercept column."""
        return self.n_features + (self.intercept > 0)

    def _weight_shape(self) -> tuple[int, ...]:
        return (self.n_weights,) if self.n_outputs == 1 else (self.n_weights, self.n_outputs)

    def zeros(self) -> Array:
        """Return zero weights of the right shape."""
        return np.zeros(self._weight_shape())

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

    # Labels of one margin-loss output are signs; folded into the factors of a row they cost nothing.

    def _block_margins(self, block: Block, weights: Array) -> Array:
        scale, constants = self._signed_map()
        margins = self._raw_scores(block, weights)
        margins *= scale[block.rows]
        if self.intercept:
            margins += weights[-1] * constants[block.rows]
        return margins

    def _add_slopes(self, block: Block, slopes: Array, out: Array) -> None:
        """Add the block's part of the gradient to ``out``; ``slopes`` is overwritten."""
        scale, constants = self._signed_map()
        if self.intercept:
            out[-1] += constants[block.rows] @ slopes
        slopes *= scale[block.rows]
        out[: self.n_features] += block.XT @ slopes

    def _signed_map(self) -> tuple[Array, Array]:
        if self._signed is None:
            assert self.targets is not None, "scores only: this problem has no targets"
            self._signed = self._scale * self.targets, self._constants * self.targets
        return self._signed

    def _block_targets(self, block: Block) -> Array:
        assert self.targets is not None, "scores only: this problem has no targets"
        return self.targets[block.rows]

    # -- first-order passes ---------------------------------------------------------------------------

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

    def losses(self, scores: Array) -> Array:
        """Return the loss of each record at given scores, shape (n,): no pass."""
        assert self.loss is not None
        assert self.targets is not None
        return self.loss.values(scores, self.targets)

    def gradient_sum(self, weights: Array, clip_norm: float = inf, transform: Array | None = None) -> Array:
        r"""Return the sum over records of their loss gradients, each clipped to norm ``clip_norm``.

        The gradient of record ``i`` is its row times its residual, so its norm is ``||r_i|| ||row_i||``
        and clipping needs no per-record gradient: ``design^T clip(r, k)`` with ``k_i = clip_norm / ||row_i||``.

        Parameters
        ----------
        weights : ndarray of shape (n_weights,) or (n_weights, n_outputs)
        clip_norm : float, default=inf
            Bound on the Euclidean norm (over all weights) of what one record adds to the sum.
        transform : ndarray of shape (n_weights,) or (n_weights, k), optional
            Read-only. The norm that is clipped is that of the gradient *after* this map, as in
            :meth:`transformed_row_norms`; what is added up is the gradient before it. The norms are kept for
            the next call with the same array.
        """
        assert self.loss is not None
        out = np.zeros(weights.shape)
        lowest = self._lowest_residuals(clip_norm, transform)
        for block in self._rows:
            if isinstance(self.loss, MarginLoss) and self.n_outputs == 1:
                self._add_margin_gradients(block, self._block_margins(block, weights), lowest, out)
            else:
                self._add_gradients(block, self._block_scores(block, weights), lowest, out)
        return out

    def gradient_sum_at(self, scores: Array, clip_norm: float = inf) -> Array:
        """Return the same sum at given scores, of shape (n,) or (n, n_outputs): one pass."""
        assert self.loss is not None
        out = np.zeros((self.n_weights, *scores.shape[1:]))
        lowest = self._lowest_residuals(clip_norm, None)
        for block in self._rows:
            if isinstance(self.loss, MarginLoss) and self.n_outputs == 1:
                margins = scores[block.rows] * self._block_targets(block)
                self._add_margin_gradients(block, margins, lowest, out)
            else:
                self._add_gradients(block, scores[block.rows], lowest, out)
        return out

    def _add_margin_gradients(self, block: Block, margins: Array, lowest: Array, out: Array) -> None:
        assert isinstance(self.loss, MarginLoss)
        slopes = self.loss.slope(margins)
        np.maximum(slopes, lowest[block.rows], out=slopes)  # slopes are not positive
        self._add_slopes(block, slopes, out)

    def _add_gradients(self, block: Block, scores: Array, lowest: Array, out: Array) -> None:
        assert self.loss is not None
        residuals = self.loss.residuals(scores, self._block_targets(block))
        norms = np.sqrt(np.einsum("ik,ik->i", residuals, residuals))
        with np.errstate(divide="ignore", invalid="ignore"):
            residuals *= np.fmin(1, lowest[block.rows] / -norms)[:, None]
        self._add_adjoint(block, residuals, out)

    def _lowest_residuals(self, clip_norm: float, transform: Array | None) -> Array:
        """Return ``-clip_norm / ||row_i||``, kept from the last call: an iteration asks for the same again."""
        if self._lowest is None or self._lowest[0] != clip_norm or self._lowest[1] is not transform:
            assert transform is None or not transform.flags.writeable, "kept by identity, so it must not change"
            norms = self.row_norms if transform is None else self.transformed_row_norms(transform)
            with np.errstate(divide="ignore"):
                self._lowest = clip_norm, transform, -clip_norm * (1 - 1e-12) / norms  # -inf for rows of zeros
        return self._lowest[2]

    # -- along a ray ----------------------------------------------------------------------------------

    def losses_along(self, scores: Array, direction: Array, steps: Array, cap: float = inf) -> Array:
        """Return ``sum_i min(loss_i, cap)`` at ``scores - t * direction`` for each step ``t``: no pass.

        Losses are computed in float32, whose exponential and logarithm are several times faster, and added in
        float64: a record's loss is off by about 1e-7 of the larger of 1 and its scores.

        Parameters
        ----------
        scores, direction : ndarray of shape (n,) or (n, n_outputs)
            Scores of the current weights and of the search direction.
        steps : array-like of shape (m,)
        cap : float, default=inf
            Each record's loss is clipped to it.

        Returns
        -------
        ndarray of shape (m,)
        """
        assert self.loss is not None
        assert self.targets is not None
        totals = np.zeros(len(steps))
        # what is rounded to float32 must be no larger than what is reached
        longest = float(np.max(steps, initial=0.0))
        shares = np.divide(steps, longest or 1.0).astype(np.float32)
        for start in range(0, self.n_samples, RAY_HEIGHT):
            rows = slice(start, start + RAY_HEIGHT)
            start_at, slope, targets = scores[rows], longest * direction[rows], self.targets[rows]
            if isinstance(self.loss, MarginLoss):  # margins: their own targets are all +1
                start_at, slope, targets = start_at * targets, slope * targets, np.float32(1)
            start_at, slope = start_at.astype(np.float32), slope.astype(np.float32)
            for j, share in enumerate(shares):
                totals[j] += self.loss.clipped_sum(start_at - share * slope, targets, cap)
        return totals

    # -- second-order passes (margin losses, one output) ----------------------------------------------

    def gradient_hessian(self, weights: Array) -> tuple[Array, Array]:
        """Return the sums of gradients and Hessians of one margin-loss output: one pass."""
        hessian = np.zeros((self.n_weights, self.n_weights))

        def add(block: Block, curvature: Array) -> None:
            self._add_gram(block, curvature, hessian)

        return self._second_order(weights, add), hessian

    def gradient_curvature(self, weights: Array) -> tuple[Array, Array]:
        """Return the sum of gradients and each record's curvature of one margin-loss output: one pass."""
        curvatures = np.empty(self.n_samples)

        def keep(block: Block, curvature: Array) -> None:
            curvatures[block.rows] = curvature

        return self._second_order(weights, keep), curvatures

    def _second_order(self, weights: Array, use: Callable[[Block, Array], None]) -> Array:
        assert isinstance(self.loss, MarginLoss), "second-order passes are for margin losses"
        gradient = np.zeros(self.n_weights)
        for block in self._rows:
            margins = self._block_margins(block, weights)
            use(block, self.loss.curvature(margins))
            self._add_slopes(block, self.loss.slope(margins), gradient)
        return gradient

    def weighted_gram(self, weights: Array) -> Array:
        """Return design^T diag(weights) design for non-negative record weights of shape (n,): one pass."""
        gram = np.zeros((self.n_weights, self.n_weights))
        for block in self._rows:
            self._add_gram(block, weights[block.rows], gram)
        return gram

    def gram_product(self, weights: Array, vector: Array) -> Array:
        """Return design^T diag(weights) design @ vector, weights of shape (n,): one pass."""
        out = np.zeros(vector.shape)
        for block in self._rows:
            self._add_adjoint(block, weights[block.rows] * self._block_scores(block, vector), out)
        return out

    # -- second-order passes (softmax) ----------------------------------------------------------------

    def gradient_probabilities(self, weights: Array) -> tuple[Array, Array]:
        """Return the sum of the gradients of the softmax loss and the class probabilities, (n, K): one pass."""
        assert isinstance(self.loss, Softmax)
        gradient, probabilities = np.zeros(weights.shape), np.empty((self.n_samples, self.n_outputs))
        for block in self._rows:
            targets = self._block_targets(block)
            residuals = self.loss.residuals(self._block_scores(block, weights), targets)
            probabilities[block.rows] = residuals
            probabilities[block.rows][np.arange(len(targets)), targets] += 1
            self._add_adjoint(block, residuals, gradient)
        return gradient, probabilities

    def softmax_product(self, probabilities: Array, vector: Array) -> Array:
        """Return the product of the softmax loss's Hessian with ``vector``, (n_weights, K): one pass."""
        out = np.zeros(vector.shape)
        for block in self._rows:
            p = probabilities[block.rows]
            change = p * self._block_scores(block, vector)
            change -= p * change.sum(axis=1, keepdims=True)
            self._add_adjoint(block, change, out)
        return out

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

    # -- parts of the data ----------------------------------------------------------------------------

    def output(self, k: int) -> Problem:
        """Return the binary problem of output ``k`` of a one-vs-rest problem; rows are shared."""
        if self.n_outputs == 1:
            return self
        assert self.targets is not None
        part = object.__new__(Problem)
        part.__dict__.update(self.__dict__)
        part.targets = np.ascontiguousarray(self.targets[:, k])
        part.n_outputs = 1
        part._signed = None
        return part

    def batch(self, indices: Array) -> Problem:
        """Return the problem of the rows ``indices``: a copy of these rows and nothing else."""
        part = object.__new__(Problem)
        part.__dict__.update(self.__dict__)
        part.X = self.X[indices]
        part._rows = Rows(part.X)
        part.n_samples = len(indices)
        part._scale, part._constants = self._scale[indices], self._constants[indices]
        part.row_norms = self.row_norms[indices]
        part._lowest = part._signed = None
        part.targets = None if self.targets is None else self.targets[indices]
        return part

    # -- moments of the rows --------------------------------------------------------------------------

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

    def transformed_row_norms(self, transform: Array) -> Array:
        """Return the norms of the rows of the bounded design after a linear map: one pass.

        Parameters
        ----------
        transform : ndarray of shape (n_weights,) or (n_weights, k)
            A vector multiplies column ``j`` by its entry ``j``; a matrix multiplies each row from the right.

        Returns
        -------
        ndarray of shape (n,)
        """
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
                X.data *= features[X.indices]
            else:
                X *= features
            norms[rows] = squared(X).sum(axis=1) if sp.issparse(X) else np.einsum("ij,ij->i", X, X)
        if self.intercept and not is_matrix:
            norms += np.square(self._constants * last)
        return np.sqrt(norms, out=norms)

    def column(self, j: int) -> Array:
        """Return column ``j`` of the bounded design, shape (n,), float64."""
        if j == self.n_features and self.intercept:
            return self._constants.copy()
        column = self.X[:, [j]].toarray().ravel() if sp.issparse(self.X) else self.X[:, j]
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
