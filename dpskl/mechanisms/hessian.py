"""Gaussian noise on the Hessian of the sum of losses, or on that of a parabola above each loss."""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt
from typing import Any

import numpy as np

from dpskl.accounting import GaussianCost
from dpskl.mechanisms.base import Mechanism
from dpskl.mechanisms.noise import NoiseSource
from dpskl.mechanisms.second_moment import add_symmetric_normal
from dpskl.mechanisms.sensitivity import contributions, rounding_allowance
from dpskl.records.losses import MarginLoss
from dpskl.records.problem import Problem

__all__ = ["GaussianHessian"]

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class GaussianHessian(Mechanism):
    r"""Release ``sum_i c_ik x_i x_i^T / sup phi''`` plus Gaussian noise for each output ``k``.

    ``x_i`` are the bounded rows, and ``c_ik`` is a curvature of the loss at the margin of record ``i`` in output ``k``:
    its second derivative, or the curvature of the parabola that touches the loss there and is nowhere below it
    (:meth:`~dpskl.records.losses.MarginLoss.majorant`).

    Parameters
    ----------
    row_norm : float
        Bound on the norm of a row, intercept included: ``Problem.row_bound``.
    mu : float
        Gaussian privacy parameter of the release of all outputs: sensitivity over noise scale. ``inf`` for no noise.
    is_majorant : bool
    n_outputs : int
    neighbours : {"add_remove", "replace_one"}
    n_samples, n_features : int
        Public size, for the rounding of the float64 sum.

    Notes
    -----
    With ``R = row_norm``, and each matrix as the vector of its diagonal and of ``sqrt(2)`` times its upper triangle,
    whose norm is the Frobenius norm. A record adds ``a_k x x^T`` to the matrix of output ``k``, ``a_k`` in [0, 1] since
    no curvature exceeds ``sup phi''`` (larger ones would be cut), so it moves one output by at most ``R^2`` and all
    ``K`` of them together by ``sqrt(K) R^2``. Exchanging ``x`` for ``z`` moves an output by
    ``(a^2 ||x||^4 + b^2 ||z||^4 - 2 a b (x . z)^2)^(1/2) <= sqrt(2) R^2``, all of them by ``sqrt(2 K) R^2``. Rows
    ``R e_j`` at margins of the largest curvature reach both. What a record adds depends on its own row and label and on
    the weights, which are public or released before. So the release is mu-GDP (Dong, Roth & Su 2022, theorem 1), with
    the exact profile of Balle & Wang (2018, theorem 8).

    Preconditions: a margin loss with ``sup phi'' < inf``, and rows within ``row_norm``. Convexity is not needed. The
    matrices are not made positive semi-definite here.
    """

    row_norm: float
    mu: float
    is_majorant: bool
    n_outputs: int
    neighbours: str
    n_samples: int
    n_features: int

    theorem = "Gaussian mechanism, mu = sensitivity / noise, in the Frobenius norm (Dong, Roth & Su 2022)"

    @property
    def name(self) -> str:  # type: ignore[override]
        return f"Gaussian noise on the {'quadratic upper bound' if self.is_majorant else 'Hessian'} of the loss"

    @property
    def sensitivity(self) -> float:
        exact = sqrt(self.n_outputs * contributions(self.neighbours))
        rounding = sqrt(self.n_outputs) * rounding_allowance(self.n_samples, self.n_features)
        return self.row_norm**2 * (exact + rounding)

    @property
    def noise_scale(self) -> float:
        return self.sensitivity / self.mu

    @property
    def cost(self) -> GaussianCost:
        return GaussianCost(self.mu)

    def release(self, problem: Problem, weights: Array, noise: NoiseSource) -> Array:
        """Return the noisy matrices at ``weights``, symmetric, shape (n_outputs, D, D): a pass more than outputs."""
        loss = problem.loss
        if not (isinstance(loss, MarginLoss) and loss.is_smooth):
            raise ValueError(f"a Hessian needs a smooth margin loss, and {loss!r} is none")
        if problem.row_bound > self.row_norm:
            raise ValueError(f"row_norm={self.row_norm} is for shorter rows than these, of up to {problem.row_bound}")
        if problem.n_outputs != self.n_outputs:
            raise ValueError(f"the Hessians of {self.n_outputs} outputs were planned, not of {problem.n_outputs}")
        margins = problem.scores(weights) * problem.targets
        curvature = loss.majorant if self.is_majorant else loss.curvature
        shares = np.atleast_2d((curvature(margins) / loss.curvature_bound).T)
        # rounding could lift a share above 1
        grams = (problem.weighted_gram(np.clip(share, 0, 1)) for share in shares)
        return np.stack([add_symmetric_normal(noise, gram, self.noise_scale) for gram in grams])
