"""Gaussian noise on the sum of gradients that are clipped and released in whitened coordinates."""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt
from typing import Any

import numpy as np

from dpskl.accounting import GaussianCost
from dpskl.mechanisms.base import Mechanism
from dpskl.mechanisms.noise import NoiseSource
from dpskl.mechanisms.sensitivity import contributions, rounding_allowance
from dpskl.records.problem import Problem

__all__ = ["WhitenedGradient", "Whitener", "whitener_condition"]

Array = np.ndarray[Any, Any]


def whitener_condition(ridge: float, top: float) -> float:
    """Return a bound on the condition of any :class:`Whitener` of this ridge and largest eigenvalue."""
    return sqrt((top + ridge) / ridge)


class Whitener:
    r"""The change of variables ``w = W v`` that makes a second moment ``M`` nearly the identity.

    ``W = U diag(s + ridge)^(-1/2)`` with ``M = U diag(s) U^T`` and ``s`` clipped to ``[0, top]``, where the second
    moment of any data set has its eigenvalues. A diagonal ``M`` has ``U = I``. Rows become ``W^T x``, gradients
    ``W^T g``.

    Parameters
    ----------
    moment : ndarray of shape (D, D) or (D,)
        Symmetric, or the diagonal of a diagonal matrix: public or released.
    ridge : float
        Positive.
    top : float
        Largest possible eigenvalue.

    Attributes
    ----------
    matrix : ndarray of shape (D, D) or (D,)
        ``W``, read-only.
    scales : ndarray of shape (D,)
        ``(s + ridge)^(-1/2)``: ``||W v|| = ||scales * v||``.
    condition : float
        Bound on the largest singular value of ``W`` over the smallest: :func:`whitener_condition`.
    effective_dimension : float
        ``sum s / (s + ridge)``: the mean square of ``||W^T x||`` where ``M`` is the second moment.

    Examples
    --------
    >>> whitener = Whitener(np.diag([0.75, 0.0]), ridge=0.25, top=1.0)
    >>> whitener.scales.tolist(), whitener.effective_dimension
    ([2.0, 1.0], 0.75)
    """

    def __init__(self, moment: Array, ridge: float, top: float) -> None:
        if moment.ndim == 1:
            values, basis = moment, None
        else:
            values, basis = np.linalg.eigh(moment)
        values = np.clip(values, 0, top)
        self.scales = 1 / np.sqrt(values + ridge)
        self.matrix = self.scales if basis is None else basis * self.scales
        self.matrix.flags.writeable = False
        self.condition = whitener_condition(ridge, top)
        self.effective_dimension = float(np.sum(values / (values + ridge)))

    def to_weights(self, v: Array) -> Array:
        """Return ``W v`` for ``v`` of shape (D,) or (D, n_outputs)."""
        return self.matrix @ v if self.matrix.ndim == 2 else (self.matrix * v.T).T

    def to_whitened(self, gradient: Array) -> Array:
        """Return ``W^T g`` for a gradient of shape (D,) or (D, n_outputs)."""
        return self.matrix.T @ gradient if self.matrix.ndim == 2 else (self.matrix * gradient.T).T


@dataclass(frozen=True)
class WhitenedGradient(Mechanism):
    r"""Release ``W^T sum_i g_i min(1, c / ||W^T g_i||) / c + N(0, noise_scale^2 I)``.

    Clipping and noise are in whitened coordinates, in units of the clip norm ``c``, so that ``c`` may be chosen from
    earlier releases while the sensitivity stays a number that is known beforehand.

    Parameters
    ----------
    mu : float
        Gaussian privacy parameter of one release: sensitivity over noise scale. ``inf`` for no noise.
    condition : float
        Bound on the condition of any whitener it will be asked with; it enters the rounding only.
    neighbours : {"add_remove", "replace_one"}
    n_samples, n_features : int
        Public size, for the rounding of the float64 sum.

    Notes
    -----
    A linear model has ``g_i = x_i r_i^T`` (``r_i`` a number for one output), so ``||W^T g_i|| = ||W^T x_i|| ||r_i||``
    and clipping is one factor for each record. What a record adds depends on its own row and label, on ``W``, ``c`` and
    the weights, all public or released before, and its norm is at most 1. Removing it moves the sum by at most 1,
    exchanging it by at most 2. So the release is mu-GDP (Dong, Roth & Su 2022, theorem 1; exact profile in Balle & Wang
    2018), whatever the loss.

    Rounding: sums are taken before ``W^T`` is applied, which can stretch their error by the condition of ``W`` relative
    to the clip norm, and ``W^T`` adds its own. The norms that clip are taken to be longer than computed, by the same
    bound for one row.
    """

    mu: float
    condition: float
    neighbours: str
    n_samples: int
    n_features: int

    name = "Gaussian noise on the gradient sum, clipped in the whitened norm"
    theorem = "Gaussian mechanism, mu = sensitivity / noise (Dong, Roth & Su 2022; Balle & Wang 2018)"

    @property
    def _stretch(self) -> float:
        """Bound on the relative error of ``W^T x`` computed in float64."""
        n_weights = self.n_features + 1
        return (n_weights + 8) * sqrt(n_weights) * self.condition * 2.0**-53

    @property
    def sensitivity(self) -> float:
        rounding = self.condition * rounding_allowance(self.n_samples, self.n_features)
        return contributions(self.neighbours) + rounding + 2 * self.n_samples * self._stretch

    @property
    def noise_scale(self) -> float:
        return self.sensitivity / self.mu

    @property
    def cost(self) -> GaussianCost:
        return GaussianCost(self.mu)

    def release(self, problem: Problem, whitener: Whitener, clip_norm: float, v: Array, noise: NoiseSource) -> Array:
        """Return the noisy sum at the weights ``W v``, of the shape of ``v``: one pass over the data."""
        if whitener.condition > self.condition:
            raise ValueError(f"the rounding is bounded for a condition of {self.condition}, not {whitener.condition}")
        clipped = problem.gradient_sum(whitener.to_weights(v), clip_norm / (1 + 2 * self._stretch), whitener.matrix)
        return noise.add_normal(whitener.to_whitened(clipped) / clip_norm, self.noise_scale)
