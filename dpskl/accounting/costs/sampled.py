"""Costs of mechanisms that run on a Poisson sample of the records."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

from dpskl.accounting._numeric import check_range
from dpskl.accounting._renyi import sampled_gaussian_rdp, sampled_pure_losses, sampled_pure_rdp
from dpskl.accounting.conversion import gaussian_delta
from dpskl.accounting.costs.base import Cost, set_fields
from dpskl.accounting.costs.pure import response_delta


def sampled_deltas(sampling_rate: float, profile: Callable[[float], float], epsilon: float) -> tuple[float, float]:
    """Removal and addition of a sampled pair, from the profile of a symmetric pair at every real epsilon.

    With g = e^epsilon, removal is q E_{1 + (g-1)/q}(P, Q), and addition (1 - g (1-q)) E_h(Q, P) with
    h = g q / (1 - g (1-q)) where that factor is positive, and 0 elsewhere.
    """
    q = sampling_rate
    if q in (0.0, 1.0):
        return (profile(epsilon), profile(epsilon)) if q else (0.0, 0.0)
    # log(1 + (g-1)/q), with g possibly beyond the range of floating point
    if epsilon < 30.0:
        threshold = math.log1p(math.expm1(epsilon) / q)
    else:
        threshold = epsilon - math.log(q) + math.log1p(-(1.0 - q) * math.exp(-epsilon))
    removal = q * profile(threshold)
    factor = q - (1.0 - q) * math.expm1(epsilon) if epsilon < -math.log1p(-q) else 0.0
    if factor <= 0.0:
        return removal, 0.0
    return removal, factor * profile(epsilon + math.log(q / factor))


@dataclass(frozen=True, repr=False)
class SampledGaussianCost(Cost):
    """Gaussian mechanism on a Poisson sample.

    Parameters
    ----------
    sampling_rate : float
        Probability with which each record enters, independently, in [0, 1].
    noise_multiplier : float
        Noise standard deviation over sensitivity, in [0, inf]; 0 means no noise.

    Notes
    -----
    The profile of one step is exact in both directions (Balle, Barthe & Gaboardi 2018, with the duality of
    the directions); compositions use privacy loss distributions. The Renyi curve is that of Mironov, Talwar
    & Zhang (2019), exact at integer orders.

    Examples
    --------
    >>> round(SampledGaussianCost(0.1, 1.0).delta(0.5), 9)
    0.002032537
    """

    kind: ClassVar[str] = "sampled_gaussian"
    has_pair: ClassVar[bool] = True
    sampling_rate: float
    noise_multiplier: float

    def __post_init__(self) -> None:
        sigma = check_range("noise_multiplier", self.noise_multiplier, 0.0)
        rate = check_range("sampling_rate", self.sampling_rate, 0.0, 1.0)
        set_fields(self, sampling_rate=rate, noise_multiplier=sigma)

    @property
    def mu(self) -> float:
        """Sensitivity over noise standard deviation."""
        return 1.0 / self.noise_multiplier if self.noise_multiplier > 0.0 else math.inf

    def rdp(self, alpha: float) -> float:
        return sampled_gaussian_rdp(self.sampling_rate, self.noise_multiplier, alpha)

    def _profile(self, epsilon: float) -> float:
        if self.mu == math.inf:  # no sampling makes a release without noise private at any finite epsilon
            return 1.0 if self.sampling_rate > 0.0 else 0.0
        return max(sampled_deltas(self.sampling_rate, lambda value: gaussian_delta(self.mu, value), epsilon))


@dataclass(frozen=True, init=False, repr=False)
class SampledPureCost(Cost):
    """Pure mechanism on a Poisson sample.

    Parameters
    ----------
    sampling_rate : float
        Probability with which each record enters, independently, in [0, 1].
    epsilon : float
        Guarantee of the mechanism on the sample, in [0, inf].

    Notes
    -----
    Pure guarantee log(1 + q (e^epsilon - 1)). The profile is that of sampled randomised response, which
    dominates every such mechanism in both directions.

    Examples
    --------
    >>> round(SampledPureCost(0.1, 1.0).epsilon(0.0), 9)
    0.158565079
    >>> round(SampledPureCost(0.1, 1.0).delta(0.1), 9)
    0.0179269
    """

    kind: ClassVar[str] = "sampled_pure"
    has_pair: ClassVar[bool] = True
    sampling_rate: float
    stated_epsilon: float

    def __init__(self, sampling_rate: float, epsilon: float) -> None:
        rate = check_range("sampling_rate", sampling_rate, 0.0, 1.0)
        set_fields(self, sampling_rate=rate, stated_epsilon=check_range("epsilon", epsilon, 0.0))

    @property
    def pure_epsilon(self) -> float:
        """Pure guarantee of the sampled mechanism."""
        if self.sampling_rate == 0.0 or math.isinf(self.stated_epsilon):
            return 0.0 if self.sampling_rate == 0.0 else math.inf
        return sampled_pure_losses(self.sampling_rate, self.stated_epsilon)[0]

    def rdp(self, alpha: float) -> float:
        return sampled_pure_rdp(self.sampling_rate, self.stated_epsilon, alpha)

    def _profile(self, epsilon: float) -> float:
        if math.isinf(self.stated_epsilon):
            return 1.0 if self.sampling_rate > 0.0 else 0.0
        if epsilon >= self.pure_epsilon:
            return 0.0
        pure = self.stated_epsilon
        return max(sampled_deltas(self.sampling_rate, lambda value: response_delta(pure, value), epsilon))
