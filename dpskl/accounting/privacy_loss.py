"""Privacy loss distributions: exact-to-discretisation accounting of compositions.

Each rule below answers one way in which such code goes wrong.

1. *Directions.* A pair has one law for removal and one for addition. They are composed separately, and the
   maximum is taken last. Only pairs with a proven symmetry (Gaussian, Laplace, randomised response) share.
2. *Rounding.* The mass of every bin goes to both of its ends so that its masses under both measures are kept
   ("connect the dots", Doroshenko, Ghazi, Kamath, Kumar & Manurangsi 2022). The result dominates the true
   pair at every threshold; the sum of m exp(-loss) is at most 1, which is asserted.
3. *Tails.* What lies above the cut has loss infinity and enters delta in full; it composes as
   1 - prod(1 - m)^count. What lies below the cut moves up to the lowest kept loss.
4. *Cancellation.* Masses come from quadrature of the density, tails from the normal law on their own side,
   log(1 - q + q e^u) from log1p and expm1; the sampled loss keeps its bound -log(1 - q).
5. *Atoms* are split like bins. All laws of a composition share one grid with integer offsets, which are
   multiplied by the counts.
6. *Window.* The transform covers an interval outside which the tilted law has mass below 2e-15 (by Chernoff
   bounds); sums below it wrap upwards, the true mass above it is added to infinity. Its length grows like the
   standard deviation of the sum, not like the count.
7. *Noise of the transform.* Masses are multiplied by exp(theta loss) before and by its inverse after, theta
   being the Chernoff tilt of the question asked, so that rounding is small relative to the answer, down to
   delta = 1e-15 and below. A bound on that rounding is added to every point, negatives are clipped to 0 and
   nothing is renormalised.
8. *Interval.* It follows from the problem: the variance that splitting adds to the tilted sum moves epsilon
   by less than 5e-5 of itself, unless the largest grid is reached.
9. *Ends.* Only losses above epsilon count, with weight -expm1(epsilon - loss); searches return the upper end;
   epsilon is infinite if the mass at infinity reaches delta, and not below 0.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from scipy.special import logsumexp

from dpskl.accounting._laws import Array, Atoms, LaplaceLaw, Law, SampledGaussianLaw, TwoPointLaw
from dpskl.accounting._numeric import check_range
from dpskl.accounting._tilting import LARGEST_TRANSFORM, Profile, TiltedSum, make_part, profile

__all__ = [
    "Composition",
    "PrivacyLoss",
    "PrivacyLossPair",
    "compose",
    "laplace",
    "sampled_gaussian",
    "two_point",
]

_DEFAULT_TAIL = 1e-40


@dataclass(frozen=True, eq=False)
class PrivacyLoss:
    """Discretised law of the privacy loss in one direction.

    Parameters
    ----------
    interval : float
        Distance of the grid points, above 0.
    offset : int
        Index of the first grid point: the losses are ``interval * (offset + i)``.
    masses : ndarray of shape (n_points,)
        Mass of each loss under the first measure; made read-only.
    infinity : float, default=0.0
        Mass of the outcomes that the second measure excludes.

    Raises
    ------
    ValueError
        If a mass is negative, or the implied mass of the second measure is above 1.
    """

    interval: float
    offset: int
    masses: Array
    infinity: float = 0.0

    def __post_init__(self) -> None:
        check_range("interval", self.interval, 0.0, open_low=True, open_high=True)
        check_range("infinity", self.infinity, 0.0, 1.0)
        masses = np.array(self.masses, dtype=np.float64)
        if masses.ndim != 1 or not masses.size or not (masses >= 0.0).all():
            raise ValueError("masses must be a non-empty vector of numbers that are not negative.")
        masses.setflags(write=False)
        object.__setattr__(self, "masses", masses)
        if self.second_mass() > 1.0 + 1e-9:
            raise ValueError(
                f"masses imply {self.second_mass():.12g} under the second measure, which is above 1: losses "
                "were rounded down. Round them up, or split each mass over both ends of its bin."
            )

    @property
    def losses(self) -> Array:
        """Grid points."""
        return self.interval * self.indices

    @property
    def indices(self) -> Array:
        """Losses in units of the interval, whole numbers."""
        return self.offset + np.arange(self.masses.size, dtype=np.float64)

    def second_mass(self) -> float:
        """Sum of m exp(-loss), the mass of the second measure on finite losses."""
        kept = self.masses > 0.0
        if not kept.any():
            return 0.0
        return math.exp(min(700.0, float(logsumexp(np.log(self.masses[kept]) - self.losses[kept]))))


def _connect_dots(atoms: Atoms, interval: float) -> PrivacyLoss:
    """Split every atom over the grid points around it, keeping its mass under both measures."""
    indices = np.floor(atoms.losses / interval)
    excess = np.clip(atoms.losses - interval * indices, 0.0, interval)
    above = np.expm1(-excess) / math.expm1(-interval)
    # not 1 - above, whose rounding matters where the interval is long
    below = np.exp(-excess) * np.expm1(excess - interval) / math.expm1(-interval)
    offset = int(indices.min())
    positions = (indices - offset).astype(np.intp)
    size = int(positions.max()) + 2
    masses = np.bincount(positions, atoms.masses * below, minlength=size).astype(np.float64)
    masses += np.bincount(positions + 1, atoms.masses * above, minlength=size)
    return PrivacyLoss(interval, offset, masses, atoms.infinity)


@dataclass(frozen=True, eq=False)
class PrivacyLossPair:
    """Both directions of a discretised dominating pair.

    Parameters
    ----------
    removal : PrivacyLoss
        Law of log(P/Q) under P, P being the output with the record.
    addition : PrivacyLoss
        Law of log(Q/P) under Q. The same object as ``removal`` declares a symmetric pair.
    """

    removal: PrivacyLoss
    addition: PrivacyLoss

    @property
    def symmetric(self) -> bool:
        """Whether one law serves both directions."""
        return self.removal is self.addition


def discretise(law: Law, interval: float, tail_mass: float) -> PrivacyLossPair:
    interval = check_range("interval", interval, 0.0, open_low=True, open_high=True)
    tail_mass = check_range("tail_mass", tail_mass, 0.0, 0.1, open_low=True)
    removal = _connect_dots(law.atoms(True, tail_mass, interval), interval)
    if law.symmetric:
        return PrivacyLossPair(removal, removal)
    return PrivacyLossPair(removal, _connect_dots(law.atoms(False, tail_mass, interval), interval))


def sampled_gaussian(
    sampling_rate: float, noise_multiplier: float, interval: float, tail_mass: float = _DEFAULT_TAIL
) -> PrivacyLossPair:
    """Gaussian mechanism on a Poisson sample.

    Parameters
    ----------
    sampling_rate : float
        Probability with which each record enters, in (0, 1]; 1 is the Gaussian mechanism.
    noise_multiplier : float
        Noise standard deviation over sensitivity, in (0, inf).
    interval : float
        Distance of the grid points.
    tail_mass : float, default=1e-40
        Mass beyond which tails are cut (the upper one to infinity, the lower one upwards).

    Returns
    -------
    PrivacyLossPair
        Dominates the mechanism in both directions.

    Examples
    --------
    >>> step = sampled_gaussian(0.1, 1.0, interval=0.01)
    >>> f"{compose([(step, 1)]).delta(0.5):.6f}"
    '0.002033'
    """
    return discretise(SampledGaussianLaw(sampling_rate, noise_multiplier), interval, tail_mass)


def two_point(epsilon: float, interval: float, sampling_rate: float = 1.0, delta: float = 0.0) -> PrivacyLossPair:
    """Pair that dominates every (epsilon, delta)-differentially private mechanism, on a Poisson sample.

    Parameters
    ----------
    epsilon : float
        Guarantee of the mechanism on the sample, in [0, inf).
    interval : float
        Distance of the grid points.
    sampling_rate : float, default=1.0
        Probability with which each record enters, in (0, 1].
    delta : float, default=0.0
        In [0, 1].

    Returns
    -------
    PrivacyLossPair
        Randomised response that fails with probability ``delta`` (Kairouz, Oh & Viswanath 2015), sampled.

    Examples
    --------
    >>> step = two_point(1.0, interval=0.01, sampling_rate=0.1)
    >>> f"{compose([(step, 1)]).delta(0.1):.6f}"
    '0.017927'
    """
    return discretise(TwoPointLaw(epsilon, sampling_rate, delta), interval, _DEFAULT_TAIL)


def laplace(noise_multiplier: float, interval: float) -> PrivacyLossPair:
    """Laplace mechanism on one number.

    Parameters
    ----------
    noise_multiplier : float
        Noise scale over sensitivity, in (0, inf).
    interval : float
        Distance of the grid points.

    Returns
    -------
    PrivacyLossPair
        The exact pair, which is symmetric.

    Examples
    --------
    >>> f"{compose([(laplace(2.0, 0.01), 1)]).delta(0.1):.6f}"
    '0.181269'
    """
    return discretise(LaplaceLaw(noise_multiplier), interval, _DEFAULT_TAIL)


@dataclass
class _Direction:
    """One direction of a composition."""

    interval: float
    infinity: float
    total: TiltedSum
    computed: dict[float, Profile] = field(default_factory=dict)

    def _tame(self, theta: float) -> float:
        return self.total.tame(theta, self.interval * LARGEST_TRANSFORM / 4.0)

    def _profile(self, theta: float) -> Profile:
        if theta not in self.computed:
            self.computed = {theta: profile(self.total, theta, self.interval)}  # a long search keeps one
        return self.computed[theta]

    def delta(self, epsilon: float) -> float:
        if epsilon >= self.total.highest:
            return self.infinity
        found = self._profile(self._tame(self.total.tilt_for_epsilon(epsilon)[0]))
        if found.theta > 0.0 and epsilon < found.points[0]:  # sums that wrapped up have lost weight there
            found = self._profile(0.0)
        index = min(int(np.searchsorted(found.points, epsilon)), len(found.points) - 1)
        value = float(found.deltas[index])
        value += float(found.slopes[index]) * -math.expm1(min(0.0, epsilon - found.points[index]))
        if value > 0.0:
            value = math.exp(min(0.0, math.log(value) + found.log_scale))
        return min(1.0, self.infinity + value + found.outside)

    def epsilon(self, delta: float) -> float:
        if self.infinity >= delta:
            return math.inf
        theta = self._tame(self.total.tilt_for_delta(math.log(delta - self.infinity))[0])
        for _ in range(12):
            found = self._profile(theta)
            epsilon = _solve(found, delta - self.infinity - found.outside)
            middle = self.total.moments(theta)[0]
            if theta == 0.0 or epsilon >= found.bottom + 0.4 * (middle - found.bottom):
                break
            # too far below the tilted mean for the window: tilt to where the answer is, or at least nearer
            theta = min(theta / 3.0, self.total.tilt_for_epsilon(max(epsilon, found.bottom))[0])
        return max(0.0, epsilon)


def _solve(found: Profile, delta: float) -> float:
    """Epsilon at which a profile takes a value: in the bin below the first point that is small enough."""
    if delta <= 0.0:
        return math.inf
    level = math.exp(min(700.0, math.log(delta) - found.log_scale))
    index = int(np.searchsorted(-found.deltas, -level))
    if index == len(found.points):  # the last value is 0, so only for an empty profile
        return math.inf
    rise = (level - found.deltas[index]) / found.slopes[index] if found.slopes[index] > 0.0 else 0.0
    point = float(found.points[index])
    if index == 0 and found.theta > 0.0:  # sums that wrapped up have lost weight below the window
        return point
    return point + math.log1p(-rise) if rise < 1.0 else -math.inf


class Composition:
    """Adaptive composition of discretised pairs.

    Parameters
    ----------
    parts : sequence of (PrivacyLossPair, int)
        Pairs on one grid with their counts.

    Raises
    ------
    ValueError
        If there is no part, a count is below 1, or the intervals differ.

    Notes
    -----
    The total of a pool of releases whose numbers are fixed in advance is this product, whatever the order in
    which they are made and whatever the adaptive choices between them.

    Examples
    --------
    >>> pool = Composition([(sampled_gaussian(0.1, 3.3, 1e-3), 50)])
    >>> round(pool.epsilon(1e-6), 3)
    1.001
    """

    def __init__(self, parts: Sequence[tuple[PrivacyLossPair, int]]) -> None:
        parts = list(parts)
        if not parts or any(count < 1 or count != int(count) for _, count in parts):
            raise ValueError("parts must hold at least one pair, each with an integer count of at least 1.")
        if len({pair.removal.interval for pair, _ in parts} | {pair.addition.interval for pair, _ in parts}) > 1:
            raise ValueError("The pairs have different intervals: discretise all of them with one interval.")
        self.interval = parts[0][0].removal.interval
        self._directions = [_direction([(pair.removal, count) for pair, count in parts])]
        if not all(pair.symmetric for pair, _ in parts):
            self._directions.append(_direction([(pair.addition, count) for pair, count in parts]))

    def delta(self, epsilon: float) -> float:
        """Delta at ``epsilon``, the larger of both directions.

        Parameters
        ----------
        epsilon : float
            Any real number.

        Returns
        -------
        float
            An upper bound, in [0, 1].
        """
        return max(self.deltas(epsilon))

    def deltas(self, epsilon: float) -> tuple[float, float]:
        """Delta of the removal and of the addition direction."""
        first, last = self._directions[0], self._directions[-1]
        if epsilon < 0.0:  # each direction is the dual of the other
            removal, addition = self.deltas(-epsilon)
            rest = -math.expm1(epsilon)
            return rest + math.exp(epsilon) * addition, rest + math.exp(epsilon) * removal
        removal = first.delta(epsilon)
        return removal, removal if last is first else last.delta(epsilon)

    def epsilon(self, delta: float) -> float:
        """Epsilon at ``delta``, the larger of both directions.

        Parameters
        ----------
        delta : float
            In (0, 1).

        Returns
        -------
        float
            An upper bound, at least 0; ``inf`` if the mass at infinity reaches ``delta``.
        """
        return max(self.epsilons(delta))

    def epsilons(self, delta: float) -> tuple[float, float]:
        """Epsilon of the removal and of the addition direction."""
        delta = check_range("delta", delta, 0.0, 1.0, open_low=True, open_high=True)
        first, last = self._directions[0], self._directions[-1]
        removal = first.epsilon(delta)
        return removal, removal if last is first else last.epsilon(delta)


def _direction(parts: Sequence[tuple[PrivacyLoss, int]]) -> _Direction:
    log_finite = sum(count * math.log1p(-loss.infinity) if loss.infinity < 1.0 else -math.inf for loss, count in parts)
    sums = [make_part(loss.losses, loss.masses, count, loss.indices) for loss, count in parts]
    return _Direction(parts[0][0].interval, -math.expm1(log_finite), TiltedSum(sums))


compose = Composition
