"""Gaussian noise on the sum of clipped gradients."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from dpskl.accounting import GaussianCost
from dpskl.mechanisms.base import Mechanism
from dpskl.mechanisms.noise import NoiseSource
from dpskl.mechanisms.sensitivity import sum_sensitivity
from dpskl.records.trainable import Trainable

__all__ = ["GaussianGradient"]


@dataclass(frozen=True)
class GaussianGradient(Mechanism):
    r"""Release ``sum_i clip(grad_i, clip_norm) + N(0, noise_scale^2 I)``.

    Parameters
    ----------
    clip_norm : float
        Largest norm of what one record adds, over all weights. Where it exceeds what rows within
        ``data_norm`` can reach, clipping does nothing and is harmless.
    mu : float
        Gaussian privacy parameter of one release: sensitivity over noise scale. ``inf`` for no noise.
    neighbours : {"add_remove", "replace_one"}
    n_samples, n_features : int
        Public size, for the rounding of the float64 sum.

    Notes
    -----
    The sum changes by at most ``sensitivity`` between neighbours, so the release is mu-GDP (Dong, Roth & Su
    2022, theorem 1), with ``delta(epsilon) = Phi(mu/2 - epsilon/mu) - e^epsilon Phi(-mu/2 - epsilon/mu)``
    exactly (Balle & Wang 2018, theorem 8). Nothing is asked of the loss. It may be asked at weights that
    depend on earlier releases.
    """

    clip_norm: float
    mu: float
    neighbours: str
    n_samples: int
    n_features: int

    name = "Gaussian noise on the clipped gradient sum"
    theorem = "Gaussian mechanism, mu = sensitivity / noise (Dong, Roth & Su 2022; Balle & Wang 2018)"

    @property
    def sensitivity(self) -> float:
        return sum_sensitivity(self.clip_norm, self.neighbours, self.n_samples, self.n_features)

    @property
    def noise_scale(self) -> float:
        return self.sensitivity / self.mu

    @property
    def cost(self) -> GaussianCost:
        return GaussianCost(self.mu)

    def release(self, problem: Trainable, weights: np.ndarray[Any, Any], noise: NoiseSource) -> np.ndarray[Any, Any]:
        """Return the noisy sum at ``weights``, of the shape of ``weights``: one pass over the data."""
        return noise.add_normal(problem.gradient_sum(weights, self.clip_norm), self.noise_scale)
