"""Gaussian noise on the sum of gradients that are scaled entry by entry, then clipped (precondition, clip, noise)."""

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

__all__ = ["GradientPair", "ScaledGradient"]

Array = np.ndarray[Any, Any]

# Scales beyond these, or further apart, would square to infinity or to nothing.
_SCALES = 1e-100, 1e100
_ULP = 2.0**-53


@dataclass(frozen=True)
class ScaledGradient(Mechanism):
    r"""Release ``a * sum_i g_i min(1, c / ||a * g_i||) / c + N(0, noise_scale^2 I)``, products entry by entry.

    Clipping and noise are in scaled coordinates, in units of the clip norm ``c``, so that scales and clip norm may be
    chosen from earlier releases while the sensitivity stays a number that is known beforehand.

    Parameters
    ----------
    mu : float
        Gaussian privacy parameter of one release: sensitivity over noise scale. ``inf`` for no noise.
    neighbours : {"add_remove", "replace_one"}
    n_samples, n_features, n_outputs : int
        Public size, for the rounding of the float64 sum.
    keeps_norms : bool, default=False
        Whether the norms of all scaled rows are found once for each array of scales, or those of a batch each time:
        whichever reads less is chosen by who knows how often the scales will be asked with.

    Notes
    -----
    What a record adds depends on its own row and label, on ``a``, ``c`` and the weights, all public or released before,
    and its norm is at most 1. Removing it moves the sum by at most 1, exchanging it by at most 2. So the release is
    mu-GDP (Dong, Roth & Su 2022, theorem 1; exact profile in Balle & Wang 2018), whatever the loss. This is option 2 of
    Li et al. (2023, algorithm 1) and the step of Li et al. (2022): the noise comes after the scales and is the same
    in every entry.

    Rounding: sums are taken before they are scaled. Both the rounding of a sum and its scales act entry by entry, so
    that its error after scaling still is a share of what the scaled terms can sum to. The norms that clip are taken to
    be longer than computed, by a bound for one row.
    """

    mu: float
    neighbours: str
    n_samples: int
    n_features: int
    n_outputs: int = 1
    keeps_norms: bool = False

    name = "Gaussian noise on the gradient sum, scaled entry by entry and clipped"
    theorem = "Gaussian mechanism, mu = sensitivity / noise (Dong, Roth & Su 2022; Balle & Wang 2018)"

    @property
    def _stretch(self) -> float:
        """Bound on the relative error of a norm, and of what scaling and clipping do to a term."""
        return ((self.n_features + 1) * self.n_outputs + 16) * _ULP

    @property
    def sensitivity(self) -> float:
        rounding = rounding_allowance(self.n_samples, self.n_features) + 2 * self.n_samples * 8 * _ULP
        return contributions(self.neighbours) + rounding

    @property
    def noise_scale(self) -> float:
        return self.sensitivity / self.mu

    @property
    def cost(self) -> GaussianCost:
        return GaussianCost(self.mu)

    def prepare(self, problem: Problem, scales: Array, *_: Any) -> None:
        if self.keeps_norms:
            problem.keep_scaled_norms(scales)

    def sum(self, problem: Problem, scales: Array, clip_norm: float, weights: Array) -> Array:
        """Return what the noise is added to: one pass, and one more for the norms where they are not kept."""
        low, high = _SCALES
        if not (scales.min() >= low and scales.max() <= high):
            raise ValueError(f"scales must lie between {low:g} and {high:g}, not {scales.min():g} and {scales.max():g}")
        clipped = problem.scaled_gradient_sum(weights, clip_norm / (1 + 2 * self._stretch), scales)
        return clipped * (scales / clip_norm)

    def release(self, problem: Problem, scales: Array, clip_norm: float, weights: Array, noise: NoiseSource) -> Array:
        """Return the noisy sum at ``weights``; ``scales`` has their shape and is read-only."""
        return noise.add_normal(self.sum(problem, scales, clip_norm, weights), self.noise_scale)


@dataclass(frozen=True)
class GradientPair(Mechanism):
    r"""Release a clipped gradient sum and a scaled one of the same records, at the same weights.

    The plain sum is of ``min(1, c_1 / ||g_i||) g_i / c_1``, the scaled one that of :class:`ScaledGradient`.

    Parameters
    ----------
    mu : float
        Gaussian privacy parameter of the pair.
    clip_norm : float
        ``c_1``.
    neighbours : {"add_remove", "replace_one"}
    n_samples, n_features, n_outputs : int

    Notes
    -----
    A record is in both sums and adds a vector of norm at most ``sqrt(1 + 1)`` to them together: the pair is one
    Gaussian mechanism of sensitivity ``sqrt(2)`` (twice that for an exchange), and on a Poisson sample it is one
    sampled one. Two sums from one sample are *not* two sampled mechanisms: these would need samples of their own.
    """

    mu: float
    clip_norm: float
    neighbours: str
    n_samples: int
    n_features: int
    n_outputs: int = 1

    name = "Gaussian noise on two gradient sums of the same records, one clipped, one scaled and clipped"
    theorem = ScaledGradient.theorem

    @property
    def _scaled(self) -> ScaledGradient:
        return ScaledGradient(self.mu, self.neighbours, self.n_samples, self.n_features, self.n_outputs)

    @property
    def sensitivity(self) -> float:
        return sqrt(2) * self._scaled.sensitivity

    @property
    def noise_scale(self) -> float:
        return self.sensitivity / self.mu

    @property
    def cost(self) -> GaussianCost:
        return GaussianCost(self.mu)

    def release(
        self, problem: Problem, scales: Array, clip_norm: float, weights: Array, noise: NoiseSource
    ) -> tuple[Array, Array]:
        """Return both noisy sums at ``weights``, in units of their clip norms."""
        plain = problem.gradient_sum(weights, self.clip_norm) / self.clip_norm
        scaled = self._scaled.sum(problem, scales, clip_norm, weights)
        both = noise.add_normal(np.stack([plain, scaled]), self.noise_scale)
        return both[0], both[1]
