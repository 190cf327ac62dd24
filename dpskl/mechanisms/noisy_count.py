"""Noise on numbers of records."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from dpskl.accounting import Cost, LaplaceCost, compose
from dpskl.mechanisms.base import Mechanism
from dpskl.mechanisms.noise import NoiseSource, round_to_grid
from dpskl.mechanisms.sensitivity import contributions

__all__ = ["SAFE_INVERSE", "NoisyHistogram"]


# A factor of noise: the inverse of a rounded inverse may exceed epsilon.
SAFE_INVERSE = 1 + 1e-12


@dataclass(frozen=True)
class NoisyHistogram(Mechanism):
    """Release how many records each of several disjoint groups has, all with Laplace noise.

    Parameters
    ----------
    epsilon : float
        Budget of one release, positive; ``inf`` for no noise.
    neighbours : {"add_remove", "replace_one"}

    Notes
    -----
    A record is in one group. Present or absent it moves one count by 1; exchanged, it moves two by 1 each. With noise
    of scale ``sensitivity / epsilon`` on every count, ``sensitivity`` being their L1 distance, the release is
    epsilon-DP for any number of groups (Dwork, McSherry, Nissim & Smith 2006). Its cost is that of one or two Laplace
    mechanisms, since the other counts have the same law under both data sets. The counts are whole numbers, free of
    rounding. To take the largest of them, as report noisy max does, is post-processing.

    Examples
    --------
    >>> round(NoisyHistogram(0.5, "replace_one").noise_scale, 6)
    4.0
    """

    epsilon: float
    neighbours: str

    name = "noise on the counts of disjoint groups"
    theorem = "Laplace mechanism on a histogram (Dwork et al. 2006)"

    @property
    def sensitivity(self) -> float:
        return float(contributions(self.neighbours))

    @property
    def noise_scale(self) -> float:
        return SAFE_INVERSE * self.sensitivity / self.epsilon

    @property
    def cost(self) -> Cost:
        return compose([(LaplaceCost(self.noise_scale), contributions(self.neighbours))])

    def release(self, counts: np.ndarray[Any, Any], noise: NoiseSource) -> np.ndarray[Any, Any]:
        """Return noisy counts, float64, of the shape of ``counts``; they may be negative or broken."""
        scale = self.noise_scale
        return round_to_grid(counts + noise.laplace(counts.shape, scale), scale)
