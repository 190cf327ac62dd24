"""Costs that are known by a pure guarantee or by one point: pure, Laplace, bounded range, approximate."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from dpskl.accounting._numeric import check_range
from dpskl.accounting.conversion import bounded_range_rdp, laplace_rdp, pure_rdp
from dpskl.accounting.costs.base import Cost, set_fields


def response_delta(pure: float, epsilon: float) -> float:
    """Profile of randomised response with a given pure guarantee, at any real epsilon."""
    if epsilon < 0.0:
        return -math.expm1(epsilon) + math.exp(epsilon) * response_delta(pure, -epsilon)
    if math.isinf(pure):
        return 1.0
    return -math.expm1(epsilon - pure) / (1.0 + math.exp(-pure)) if epsilon < pure else 0.0


def response_epsilon(pure: float, delta: float) -> float:
    """Inverse of :func:`response_delta`, at least 0."""
    if math.isinf(pure):
        return math.inf
    spread = delta * (1.0 + math.exp(-pure))
    return 0.0 if spread >= 1.0 else max(0.0, pure + math.log1p(-spread))


@dataclass(frozen=True, init=False, repr=False)
class PureCost(Cost):
    """Pure epsilon-differential privacy.

    Parameters
    ----------
    epsilon : float
        Bound on the privacy loss, in [0, inf]. It is read back as ``pure_epsilon``.

    Notes
    -----
    Randomised response dominates every mechanism with this guarantee (Kairouz, Oh & Viswanath 2015); its
    profile is (e^E - e^epsilon) / (1 + e^E) for a guarantee E.

    Examples
    --------
    >>> PureCost(0.5).epsilon(0.0)
    0.5
    >>> round(PureCost(1.0).delta(0.5), 6)
    0.287649
    """

    kind: ClassVar[str] = "pure"
    has_pair: ClassVar[bool] = True
    stated_epsilon: float

    def __init__(self, epsilon: float) -> None:
        set_fields(self, stated_epsilon=check_range("epsilon", epsilon, 0.0))

    def rdp(self, alpha: float) -> float:
        return pure_rdp(self.stated_epsilon, alpha)

    def _profile(self, epsilon: float) -> float:
        return response_delta(self.stated_epsilon, epsilon)

    def _smallest_epsilon(self, delta: float) -> float:
        return response_epsilon(self.stated_epsilon, delta)


@dataclass(frozen=True, init=False, repr=False)
class ApproximateCost(Cost):
    """Approximate (epsilon, delta)-differential privacy known at one point only.

    Parameters
    ----------
    epsilon : float
        In [0, inf].
    delta : float
        In [0, 1].

    Notes
    -----
    Dominated by the mechanism that fails with probability delta and is randomised response otherwise
    (Kairouz, Oh & Viswanath 2015). With delta > 0 it has no Renyi curve.

    Examples
    --------
    >>> ApproximateCost(1.0, 1e-6).epsilon(1e-6)
    1.0
    >>> ApproximateCost(1.0, 1e-6).epsilon(1e-7)
    inf
    """

    kind: ClassVar[str] = "approximate"
    has_pair: ClassVar[bool] = True
    stated_epsilon: float
    stated_delta: float

    def __init__(self, epsilon: float, delta: float) -> None:
        epsilon, delta = check_range("epsilon", epsilon, 0.0), check_range("delta", delta, 0.0, 1.0)
        set_fields(self, stated_epsilon=epsilon, stated_delta=delta)

    def rdp(self, alpha: float) -> float:
        if self.stated_delta > 0.0:
            check_range("alpha", alpha, 1.0, open_low=True)
            return math.inf
        return pure_rdp(self.stated_epsilon, alpha)

    def _profile(self, epsilon: float) -> float:
        return self.stated_delta + (1.0 - self.stated_delta) * response_delta(self.stated_epsilon, epsilon)

    def _smallest_epsilon(self, delta: float) -> float:
        if delta < self.stated_delta:
            return math.inf
        return response_epsilon(self.stated_epsilon, (delta - self.stated_delta) / (1.0 - self.stated_delta))


@dataclass(frozen=True, init=False, repr=False)
class BoundedRangeCost(Cost):
    """A mechanism whose privacy loss lies in an interval of length ``epsilon``: the exponential mechanism.

    Parameters
    ----------
    epsilon : float
        Length of the interval, in [0, inf].

    Notes
    -----
    Two-point laws with losses t and t - E are extremal (Dong, Durfee & Rogers 2020). At a threshold epsilon
    the best t is (epsilon + E)/2, which gives the profile (1 - e^((epsilon - E)/2))^2 / (1 - e^-E). The best
    t depends on the threshold, so no single pair is tight for compositions: those use the Renyi curve.

    Examples
    --------
    >>> round(BoundedRangeCost(1.0).delta(0.0), 9)
    0.244918662
    """

    kind: ClassVar[str] = "bounded_range"
    has_pair: ClassVar[bool] = True
    stated_epsilon: float

    def __init__(self, epsilon: float) -> None:
        set_fields(self, stated_epsilon=check_range("epsilon", epsilon, 0.0))

    def rdp(self, alpha: float) -> float:
        return bounded_range_rdp(self.stated_epsilon, alpha)

    def _profile(self, epsilon: float) -> float:
        length = self.stated_epsilon
        if epsilon >= length:
            return 0.0
        return math.expm1((epsilon - length) / 2.0) ** 2 / -math.expm1(-length)

    def _smallest_epsilon(self, delta: float) -> float:
        length = self.stated_epsilon
        if math.isinf(length):
            return math.inf
        root = math.sqrt(delta * -math.expm1(-length))
        return max(0.0, length + 2.0 * math.log1p(-root)) if root < 1.0 else 0.0


@dataclass(frozen=True, repr=False)
class LaplaceCost(Cost):
    """Laplace mechanism on one number.

    Parameters
    ----------
    noise_multiplier : float
        Noise scale over sensitivity, in [0, inf]; 0 means no noise.

    Notes
    -----
    Pure guarantee E = 1 / noise_multiplier, exact profile 1 - e^((epsilon - E)/2).

    Examples
    --------
    >>> round(LaplaceCost(2.0).delta(0.1), 6)
    0.181269
    """

    kind: ClassVar[str] = "laplace"
    has_pair: ClassVar[bool] = True
    noise_multiplier: float

    def __post_init__(self) -> None:
        set_fields(self, noise_multiplier=check_range("noise_multiplier", self.noise_multiplier, 0.0))

    @property
    def pure_epsilon(self) -> float:
        """Pure guarantee, sensitivity over noise scale."""
        return 1.0 / self.noise_multiplier if self.noise_multiplier > 0.0 else math.inf

    def rdp(self, alpha: float) -> float:
        return laplace_rdp(self.pure_epsilon, alpha)

    def _profile(self, epsilon: float) -> float:
        return max(0.0, -math.expm1((epsilon - self.pure_epsilon) / 2.0))

    def _smallest_epsilon(self, delta: float) -> float:
        return max(0.0, self.pure_epsilon + 2.0 * math.log1p(-delta))
