"""Values that occur often enough, whatever values there are: Gaussian noise and a threshold."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, expm1, floor, inf, log1p, log2

import numpy as np
from scipy.special import ndtri

from dpskl.accounting import ApproximateCost, Cost, GaussianCost, compose, gaussian_mu
from dpskl.mechanisms.base import Mechanism
from dpskl.mechanisms.column_histograms import counts_sensitivity
from dpskl.mechanisms.noise import NoiseSource
from dpskl.mechanisms.noisy_count import SAFE_INVERSE
from dpskl.records.values import ColumnValues, Value

__all__ = ["StableHistogram", "calibrate_stable_histogram"]

_LARGEST_MU = 1e6  # above, the grid of releases is as fine as the floats at 1


@dataclass(frozen=True)
class StableHistogram(Mechanism):
    r"""Release the values of several columns whose noisy number of records exceeds a threshold, with these numbers.

    Parameters
    ----------
    mu : float
        Gaussian privacy parameter of the counts: sensitivity over noise scale, at most 1e6; ``inf`` for no noise, and
        then every value that occurs is released.
    delta : float
        Bound on the probability that any value comes out which only one of two neighbouring data sets has, in (0, 1).
    n_columns : int
        Number of columns, at least 1.
    neighbours : {"add_remove", "replace_one"}

    Notes
    -----
    With ``m = n_columns``, ``s = noise_scale`` and a threshold ``t``: each pair of a column and a value that occurs in
    it has a count ``c >= 1``, and comes out with ``c + N(0, s^2)`` where that exceeds ``t``. Pairs that do not occur
    are not looked at. What pair a record belongs to depends on the record alone
    (:func:`~dpskl.records.values.cell_of`), so it belongs to at most ``m``, one in each column.

    *Values that both have.* Take neighbours ``D`` and ``D'`` and the pairs that occur in both. Their counts are one
    vector on either side, of the same length, which moves by at most ``sqrt(m)``, or by ``sqrt(2 m)`` where a record is
    exchanged (:class:`~dpskl.mechanisms.column_histograms.ColumnHistograms`). With their noise they are mu-GDP, and to
    drop those below ``t`` is post-processing. Call this part of the output ``P0`` and ``Q0``.

    *Values that one has.* A pair that occurs in ``D`` and not in ``D'`` is one of the record that ``D`` has and ``D'``
    has not, and of no other record: there are ``k <= m`` of them, and their counts are 1. Each exceeds ``t`` with
    the probability ``q = Phi(-(t - 1) / s)``, independently, so some of them do with ``a = 1 - (1 - q)^k``. The same
    holds for ``D'``, with ``b = 1 - (1 - q)^l``, ``l <= m``. When a record comes or goes one of ``k`` and ``l`` is 0;
    when one is exchanged, a value can vanish and another appear in each column, and ``k = l = m`` is possible.

    *Both.* Where no such pair comes out the output is ``P0`` or ``Q0``, since noise is independent. So it is
    ``(1 - a) P0 + a P1`` under ``D`` and ``(1 - b) Q0 + b Q1`` under ``D'`` with some laws ``P1`` and ``Q1``. Let
    ``delta = 1 - (1 - q)^m``, which is at least ``a`` and ``b``. Then the two can be written as
    ``(1 - delta) P0 + delta P2`` and ``(1 - delta) Q0 + delta Q2``, where ``P2`` mixes ``P0`` and ``P1``: both are made
    from a coin that fails with probability ``delta`` and, if it does not, from the mu-GDP release. That is the
    composition of ``ApproximateCost(0, delta)`` and ``GaussianCost(mu)``,

        ``delta(epsilon) = delta + (1 - delta) H(mu, epsilon)``,

    for both relations with the same ``delta``: exchanges need noise for ``2 m`` counts but no higher quantile. As laws
    of a pair of outcomes it composes with anything, chosen adaptively or not, and ``delta`` adds up.

    The bound is within ``min(delta, (1 - delta) H)`` of the best: ``k = m`` reaches ``delta`` alone, ``k = 0`` the
    Gaussian part but for what the threshold hides.

    *Rounding.* Releases are multiples of a grid, and so is ``t``, rounded up: one that exceeds ``t`` is at least a step
    above it, so the noise was at least half a step above ``t - 1``. This covers the rounding of ``1 + noise`` and of
    the quantile. ``q`` is what it is for the ideal noise; see :mod:`~dpskl.mechanisms.noise` for its tails.

    The order of the output is that of the values, and noise is drawn in this order: neither tells the order of the
    records. A value that comes out is known to occur; one that does not may occur less than ``t`` times, or a little
    more often.

    References
    ----------
    Korolova, Kenthapadi, Mishra & Ntoulas (2009), with Laplace noise; Wilkins, Kifer, Zhang & Karrer (2024), with
    Gaussian noise and add-remove neighbours.

    Examples
    --------
    >>> towns = StableHistogram(0.5, 1e-6, 1, "add_remove")
    >>> towns.noise_scale, round(towns.threshold, 2)
    (2.000000000002, 10.51)
    >>> f"{towns.cost.delta(2.5):.2e}"
    '1.09e-06'
    """

    mu: float
    delta: float
    n_columns: int
    neighbours: str

    def __post_init__(self) -> None:
        if not (0 < self.mu <= _LARGEST_MU or self.mu == inf):
            raise ValueError(f"mu={self.mu!r} must be positive and at most {_LARGEST_MU:g}, or infinite")
        if not 0 < self.delta < 1:
            raise ValueError(f"delta={self.delta!r} must lie between 0 and 1, ends excluded")
        if self.n_columns < 1:
            raise ValueError(f"n_columns={self.n_columns!r} must be at least 1")

    name = "values whose noisy count exceeds a threshold"
    theorem = (
        "Gaussian mechanism on the counts of values that both data sets have, and with probability delta at most a "
        "value that only one has (stability-based histogram, Korolova et al. 2009)"
    )

    @property
    def sensitivity(self) -> float:
        return counts_sensitivity(self.n_columns, self.neighbours)

    @property
    def noise_scale(self) -> float:
        return SAFE_INVERSE * self.sensitivity / self.mu

    @property
    def threshold(self) -> float:
        """What a noisy count must exceed to come out; 0 without noise, where nothing is hidden."""
        scale = self.noise_scale
        if scale == 0:
            return 0.0
        each = -expm1(log1p(-self.delta) / self.n_columns)
        grid = 2.0 ** (floor(log2(scale)) - 20)  # that of releases
        return ceil((1 - scale * float(ndtri(each))) / grid) * grid

    @property
    def cost(self) -> Cost:
        return compose([GaussianCost(self.mu), ApproximateCost(0.0, self.delta)])

    def release(self, values: ColumnValues, noise: NoiseSource) -> list[dict[Value, float]]:
        """Return the noisy counts of values that come out, for each column, in the order of the values."""
        if values.n_columns > self.n_columns:
            raise ValueError(f"n_columns={self.n_columns} is for fewer columns than these {values.n_columns}")
        counts = values.counts()
        exact = np.array([count for own in counts for count in own.values()], dtype=np.float64)
        noisy = iter(noise.add_normal(exact, self.noise_scale).tolist())
        drawn = [{value: next(noisy) for value in own} for own in counts]
        return [{value: count for value, count in own.items() if count > self.threshold} for own in drawn]


def calibrate_stable_histogram(
    epsilon: float, delta: float, n_columns: int, neighbours: str, share: float = 0.5
) -> StableHistogram:
    """Return the mechanism that is (epsilon, delta)-differentially private.

    Parameters
    ----------
    epsilon : float
        Positive; ``inf`` for no noise.
    delta : float
        In (0, 1).
    n_columns : int
    neighbours : {"add_remove", "replace_one"}
    share : float, default=0.5
        Which part of delta is for values that only one data set has, between 0 and 1. The threshold depends little on
        it: over epsilon from 0.1 to 4, delta from 1e-10 to 1e-5 and up to 30 columns, a half is within 1 % of the
        lowest one.

    Examples
    --------
    >>> towns = calibrate_stable_histogram(1.0, 1e-6, 1, "add_remove")
    >>> round(towns.noise_scale, 2), round(towns.threshold, 1), f"{towns.cost.delta(1.0):.3e}"
    (4.37, 22.4, '1.000e-06')
    """
    if not 0 < share < 1:
        raise ValueError(f"share={share!r} must lie between 0 and 1, ends excluded")
    unseen = share * delta
    left = (delta - unseen) / (1 - unseen) * (1 - 1e-12)
    return StableHistogram(gaussian_mu(epsilon, left), unseen, n_columns, neighbours)
