"""One classification problem: a bounded design with targets and a loss.

A block of rows serves the product ``X_b w``, the residuals and ``X_b^T r`` before the next is fetched, so a gradient
costs about one pass over memory.
"""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from typing import Any

import numpy as np

from dpskl.records.design import Design
from dpskl.records.losses import Loss, MarginLoss, Softmax
from dpskl.records.rows import RAY_HEIGHT, Block, Rows
from dpskl.records.scaling import ShortenedScaling

__all__ = ["Problem"]

Array = np.ndarray[Any, Any]


def _refuse_writeable(transform: Array | ShortenedScaling) -> None:
    if isinstance(transform, np.ndarray) and transform.flags.writeable:
        raise AssertionError("a transform is kept by identity, so it must not change: make it read-only")


class Problem(Design):
    """Bounded rows, targets and loss of one classification problem.

    Parameters
    ----------
    X, data_norm, intercept, rows
        As in :class:`~dpskl.records.design.Design`.
    targets : ndarray
        As ``loss.encode`` returns them.
    loss : Loss
    n_outputs : int, default=1

    Attributes
    ----------
    n_outputs : int
        1 for weight vectors and the number of columns for weight matrices.
    """

    def __init__(
        self,
        X: Any,
        targets: Array,
        loss: Loss,
        *,
        data_norm: float,
        intercept: float = 0.0,
        n_outputs: int = 1,
        rows: str = "clip",
    ) -> None:
        super().__init__(X, data_norm=data_norm, intercept=intercept, rows=rows)
        self.targets, self.loss, self.n_outputs = targets, loss, n_outputs
        self._lowest: tuple[float, Array | ShortenedScaling | None, Array] | None = None
        self._signed: tuple[Array, Array] | None = None
        self._norms: tuple[Array | ShortenedScaling, Array] | None = None
        self._squares: tuple[Array, Array] | None = None

    def _weight_shape(self) -> tuple[int, ...]:
        return (self.n_weights,) if self.n_outputs == 1 else (self.n_weights, self.n_outputs)

    def zeros(self) -> Array:
        """Return zero weights of the right shape."""
        return np.zeros(self._weight_shape())

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
            self._signed = self._scale * self.targets, self._constants * self.targets
        return self._signed

    def _block_targets(self, block: Block) -> Array:
        return self.targets[block.rows]

    # -- first-order passes ---------------------------------------------------------------------------

    def losses(self, scores: Array) -> Array:
        """Return the loss of each record at given scores, shape (n,): no pass."""
        return self.loss.values(scores, self.targets)

    def gradient_sum(
        self, weights: Array, clip_norm: float = inf, transform: Array | ShortenedScaling | None = None
    ) -> Array:
        r"""Return the sum over records of their loss gradients, each clipped to norm ``clip_norm``.

        The gradient of record ``i`` is its row times its residual, so its norm is ``||r_i|| ||row_i||``
        and clipping needs no per-record gradient: ``design^T clip(r, k)`` with ``k_i = clip_norm / ||row_i||``.

        Parameters
        ----------
        weights : ndarray of shape (n_weights,) or (n_weights, n_outputs)
        clip_norm : float, default=inf
            Bound on the Euclidean norm (over all weights) of what one record adds to the sum.
        transform : ndarray of shape (n_weights,) or (n_weights, k), or ShortenedScaling, optional
            Read-only. The norm that is clipped is that of the gradient *after* this map, as in
            :meth:`transformed_row_norms`; what is added up is the gradient before it. The norms are kept for
            the next call with the same array.
        """
        out = np.zeros(weights.shape)
        lowest = self._lowest_residuals(clip_norm, transform)
        for block in self._rows:
            if isinstance(self.loss, MarginLoss) and self.n_outputs == 1:
                self._add_margin_gradients(block, self._block_margins(block, weights), lowest, out)
            else:
                self._add_gradients(block, self._block_scores(block, weights), lowest, out)
        return out

    def scaled_gradient_sum(self, weights: Array, clip_norm: float, scales: Array) -> Array:
        r"""Return the sum of gradients, each times ``min(1, clip_norm / ||scales * gradient||)``.

        With ``r_i`` the residuals of a record, ``||scales * g_i||^2 = sum_k r_ik^2 sum_j x_ij^2 scales_jk^2``, and
        no scaled copy of ``X`` is made.

        Parameters
        ----------
        weights : ndarray of shape (n_weights,) or (n_weights, n_outputs)
        clip_norm : float
        scales : ndarray of the shape of ``weights``
            Positive, read-only. The norms are kept for the next call with the same array.
        """
        if scales.ndim == 1:
            return self.gradient_sum(weights, clip_norm, scales)
        out = np.zeros(weights.shape)
        squares = self._scaled_squares(scales)
        for block in self._rows:
            residuals = self.loss.residuals(self._block_scores(block, weights), self._block_targets(block))
            norms = np.sqrt(np.einsum("ik,ik,ik->i", residuals, residuals, squares[block.rows]))
            residuals *= np.divide(clip_norm, norms, out=np.ones_like(norms), where=norms > clip_norm)[:, None]
            self._add_adjoint(block, residuals, out)
        return out

    def keep_scaled_norms(self, scales: Array) -> None:
        """Keep the norms of the scaled rows, for batches as well: one pass over all rows."""
        if scales.ndim == 1:
            self._transformed_norms(scales)
        else:
            self._scaled_squares(scales)

    def _transformed_norms(self, transform: Array | ShortenedScaling) -> Array:
        """Return the norms of the rows after a linear map, kept from the last call."""
        if self._norms is None or self._norms[0] is not transform:
            _refuse_writeable(transform)
            self._norms = transform, self.transformed_row_norms(transform)
        return self._norms[1]

    def _scaled_squares(self, scales: Array) -> Array:
        """Return ``sum_j x_ij^2 scales_jk^2`` of each record and output, kept from the last call."""
        if self._squares is None or self._squares[0] is not scales:
            _refuse_writeable(scales)
            self._squares = scales, self.products_of_squares(scales * scales)
        return self._squares[1]

    def gradient_sum_at(self, scores: Array, clip_norm: float = inf) -> Array:
        """Return the same sum at given scores, of shape (n,) or (n, n_outputs): one pass."""
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
        residuals = self.loss.residuals(scores, self._block_targets(block))
        norms = np.sqrt(np.einsum("ik,ik->i", residuals, residuals))
        with np.errstate(divide="ignore", invalid="ignore"):
            residuals *= np.fmin(1, lowest[block.rows] / -norms)[:, None]
        self._add_adjoint(block, residuals, out)

    def _lowest_residuals(self, clip_norm: float, transform: Array | ShortenedScaling | None) -> Array:
        """Return ``-clip_norm / ||row_i||``, kept from the last call: an iteration asks for the same again."""
        if self._lowest is None or self._lowest[0] != clip_norm or self._lowest[1] is not transform:
            norms = self.row_norms if transform is None else self._transformed_norms(transform)
            with np.errstate(divide="ignore"):
                slack = max(1e-12, (self.n_weights + 8) * 2.0**-51)  # computed norms may be short
                self._lowest = clip_norm, transform, -clip_norm * (1 - slack) / norms  # -inf for rows of zeros
        return self._lowest[2]

    # -- along a ray ----------------------------------------------------------------------------------

    def losses_along(self, weights: Array, direction: Array, steps: Array, cap: float = inf) -> Array:
        """Return ``sum_i min(loss_i, cap)`` at ``weights - t direction`` for each step ``t``: two passes."""
        return self.ray_losses(self.scores(weights), self.scores(direction), steps, cap)

    def ray_losses(self, scores: Array, direction: Array, steps: Array, cap: float = inf) -> Array:
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

    # -- parts of the data ----------------------------------------------------------------------------

    def output(self, k: int) -> Problem:
        """Return the binary problem of output ``k`` of a one-vs-rest problem; rows are shared."""
        if self.n_outputs == 1:
            return self
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
        part._norms = self._norms and (self._norms[0], self._norms[1][indices])
        part._squares = self._squares and (self._squares[0], self._squares[1][indices])
        part.targets = None if self.targets is None else self.targets[indices]
        return part
