"""Noise on a number of records."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dpskl.accounting import Cost, GaussianCost, LaplaceCost, gaussian_mu
from dpskl.mechanisms.base import Mechanism
from dpskl.mechanisms.noise import NoiseSource, round_to_grid

__all__ = ["NoisyCount"]


@dataclass(frozen=True)
class NoisyCount(Mechanism):
    """Release how many records have a property, plus noise.

    Parameters
    ----------
    epsilon : float
        Budget of one release, positive; ``inf`` for no noise.
    delta : float
        In [0, 1). 0 draws Laplace noise, anything else normal noise.

    Notes
    -----
    A record counts 0 or 1, and a record that is absent 0, so the count changes by at most 1 under both neighbour
    relations. Laplace mechanism (Dwork, McSherry, Nissim & Smith 2006); Gaussian mechanism (Balle & Wang 2018, theorem
    8). The count is a whole number, free of rounding.

    Examples
    --------
    >>> NoisyCount(epsilon=0.5, delta=0).noise_scale
    2.0
    """

    epsilon: float
    delta: float

    name = "noise on a count of records"
    theorem = "Laplace mechanism (Dwork et al. 2006) for delta = 0, else Gaussian mechanism (Balle & Wang 2018)"

    @property
    def sensitivity(self) -> float:
        return 1.0

    @property
    def noise_scale(self) -> float:
        return 1 / self.epsilon if self.delta == 0 else 1 / gaussian_mu(self.epsilon, self.delta)

    @property
    def cost(self) -> Cost:
        return LaplaceCost(self.noise_scale) if self.delta == 0 else GaussianCost(1 / self.noise_scale)

    def release(self, count: int, noise: NoiseSource) -> float:
        """Return the noisy count, which may be negative or broken."""
        scale = self.noise_scale
        added = noise.laplace((1,), scale) if self.delta == 0 else noise.normal((1,), scale)
        return float(round_to_grid(np.array([float(count)]) + added, scale)[0])
