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
from dpskl.mechanisms.whitener import MOST_DIRECTIONS, ScalingWhitener, Whitener
from dpskl.records.problem import Problem

__all__ = ["WhitenedGradient"]

Array = np.ndarray[Any, Any]


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
    shortest : float, default=1
        Lower bound on the factors by which a whitener shortens directions: 1 where it shortens none.

    Notes
    -----
    A linear model has ``g_i = x_i r_i^T`` (``r_i`` a number for one output), so ``||W^T g_i|| = ||W^T x_i|| ||r_i||``
    and clipping is one factor for each record. What a record adds depends on its own row and label, on ``W``, ``c`` and
    the weights, all public or released before, and its norm is at most 1. Removing it moves the sum by at most 1,
    exchanging it by at most 2. So the release is mu-GDP (Dong, Roth & Su 2022, theorem 1; exact profile in Balle & Wang
    2018), whatever the loss.

    Rounding: sums are taken before ``W^T`` is applied, which can stretch their error by the condition of ``W`` relative
    to the clip norm, and ``W^T`` adds its own. The norms that clip are taken to be longer than computed, by a bound for
    one row. Where directions are shortened, the square of a norm is a difference, of at least ``shortest^2`` times what
    it is taken from: with ``k`` directions it is off by at most ``(2 sqrt(k) + 10) (D + 8) 2^-53 / shortest^2``, of
    which a norm has half, and a sum after ``W^T`` by ``16 (D + 8) 2^-53 / shortest`` for each record.
    """

    mu: float
    condition: float
    neighbours: str
    n_samples: int
    n_features: int
    shortest: float = 1.0

    name = "Gaussian noise on the gradient sum, clipped in the whitened norm"
    theorem = "Gaussian mechanism, mu = sensitivity / noise (Dong, Roth & Su 2022; Balle & Wang 2018)"

    @property
    def _unit(self) -> float:
        return (self.n_features + 9) * 2.0**-53

    @property
    def _stretch(self) -> float:
        """Bound on the relative error of ``||W^T x||`` computed in float64."""
        if self.shortest == 1:
            return sqrt(self.n_features + 1) * self.condition * self._unit
        return (sqrt(MOST_DIRECTIONS) + 5) * self._unit / self.shortest**2

    @property
    def _stretch_of_sums(self) -> float:
        """Bound on the error of ``W^T`` times a sum of records, for each record and in units of the clip norm."""
        return self._stretch if self.shortest == 1 else 16 * self._unit / self.shortest

    @property
    def sensitivity(self) -> float:
        rounding = self.condition * rounding_allowance(self.n_samples, self.n_features)
        return contributions(self.neighbours) + rounding + 2 * self.n_samples * self._stretch_of_sums

    @property
    def noise_scale(self) -> float:
        return self.sensitivity / self.mu

    @property
    def cost(self) -> GaussianCost:
        return GaussianCost(self.mu)

    def release(
        self, problem: Problem, whitener: Whitener | ScalingWhitener, clip_norm: float, v: Array, noise: NoiseSource
    ) -> Array:
        """Return the noisy sum at the weights ``W v``, of the shape of ``v``: one pass over the data."""
        is_other = (whitener.shortest < 1) != (self.shortest < 1)
        if whitener.condition > self.condition or whitener.shortest < self.shortest or is_other:
            raise ValueError(
                f"the rounding is bounded for a condition of {self.condition} and directions shortened to "
                f"{self.shortest}, not for {whitener.condition} and {whitener.shortest}"
            )
        clipped = problem.gradient_sum(whitener.to_weights(v), clip_norm / (1 + 2 * self._stretch), whitener.transform)
        return noise.add_normal(whitener.to_whitened(clipped) / clip_norm, self.noise_scale)
