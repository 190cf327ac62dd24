"""Noise on a sum of bounded scores, one of each record."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from dpskl.accounting import Cost, GaussianCost, LaplaceCost, gaussian_mu
from dpskl.mechanisms.base import Mechanism
from dpskl.mechanisms.noise import NoiseSource, round_to_grid
from dpskl.mechanisms.noisy_count import SAFE_INVERSE
from dpskl.mechanisms.sensitivity import sum_sensitivity

__all__ = ["NoisyScore"]

_LARGEST_BOUND = 1e100  # sums of such scores do not overflow


@dataclass(frozen=True)
class NoisyScore(Mechanism):
    r"""Release ``sum_i clip(s_i, -bound, bound)`` plus noise, where ``s_i`` is a function of the record ``i`` alone.

    Parameters
    ----------
    epsilon : float
        Budget of one release, positive; ``inf`` for no noise.
    delta : float
        In [0, 1). 0 draws Laplace noise, anything else normal noise.
    bound : float
        Largest size of a score. Scores that lie in ``[a, b]`` are given with their centre ``(a + b) / 2`` taken off,
        so that ``bound = (b - a) / 2``: a number of records times the centre is public, and is added afterwards.
    neighbours : {"add_remove", "replace_one"}
    n_samples : int
        Largest number of scores, public.

    Notes
    -----
    A record that is absent adds 0, so the sum changes by at most ``bound`` for ``"add_remove"``; for
    ``"replace_one"`` one score takes the place of another, at most ``2 bound`` away. The number of correct predictions,
    of a centre of 1/2, has sensitivities 1/2 and 1. Then the Laplace mechanism (Dwork, McSherry, Nissim & Smith 2006)
    is epsilon-DP, and the Gaussian one with ``mu = sensitivity / noise_scale`` has the exact profile of Balle & Wang
    (2018, theorem 8). The scores are clipped here, and what is not a number counts as ``-bound``: nothing is asked of
    whoever computes them but that no other record enters. The float64 sum is off by at most what
    :func:`~dpskl.mechanisms.sensitivity.rounding_allowance` states. The cost depends on epsilon and delta only.

    Examples
    --------
    >>> accuracy = NoisyScore(epsilon=0.5, delta=0, bound=0.5, neighbours="add_remove", n_samples=1000)
    >>> round(accuracy.sensitivity, 6), round(accuracy.noise_scale, 6)
    (0.5, 1.0)
    """

    epsilon: float
    delta: float
    bound: float
    neighbours: str
    n_samples: int

    def __post_init__(self) -> None:
        if not 0 < self.bound <= _LARGEST_BOUND:
            raise ValueError(f"bound={self.bound!r} must be positive and at most {_LARGEST_BOUND:g}")

    name = "noise on a sum of bounded scores, one of each record"
    theorem = "Laplace mechanism (Dwork et al. 2006) for delta = 0, else Gaussian mechanism (Balle & Wang 2018)"

    @property
    def sensitivity(self) -> float:
        return sum_sensitivity(self.bound, self.neighbours, self.n_samples, 1)

    @property
    def _multiplier(self) -> float:
        """Noise scale over sensitivity."""
        return SAFE_INVERSE / self.epsilon if self.delta == 0 else 1 / gaussian_mu(self.epsilon, self.delta)

    @property
    def noise_scale(self) -> float:
        return self.sensitivity * self._multiplier

    @property
    def cost(self) -> Cost:
        if self.delta == 0:
            return LaplaceCost(self._multiplier)
        return GaussianCost(gaussian_mu(self.epsilon, self.delta))

    def release(self, scores: np.ndarray[Any, Any], noise: NoiseSource) -> float:
        """Return the noisy sum of at most ``n_samples`` scores, shape (n,)."""
        scores = np.asarray(scores, dtype=np.float64)
        if scores.ndim != 1 or len(scores) > self.n_samples:
            raise ValueError(
                f"n_samples={self.n_samples} is for one score of each record, not for shape {scores.shape}"
            )
        bounded = np.clip(np.where(np.isnan(scores), -self.bound, scores), -self.bound, self.bound)
        scale = self.noise_scale
        added = noise.laplace((1,), scale) if self.delta == 0 else noise.normal((1,), scale)
        return float(round_to_grid(bounded.sum() + added, scale)[0])
