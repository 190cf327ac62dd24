"""Dominating pairs of the basic mechanisms, as atoms of privacy loss.

A law turns each direction of its pair (removal: the record is in the data, addition: it is not) into atoms:
losses with their masses under the first measure. Continuous laws are integrated by Gauss-Legendre panels
that never cross a grid point, so that any function which is smooth inside the bins is integrated to about
twelve digits.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr, ndtri

from dpskl.accounting._numeric import check_range
from dpskl.accounting._renyi import sampled_pure_losses

Array = NDArray[np.float64]

_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(4)
_WIDEST_PANEL = 0.05  # in standard deviations of the noise
_WIDEST_LOSS = 0.25  # in privacy loss
_STEEP = 200.0  # losses per standard deviation from which panels are rounded up as a whole
_STEEP_PANEL = 0.005
_LARGEST_SLOPE = 1e6


class Atoms(NamedTuple):
    """Finite losses, their masses under the first measure, and the mass at infinity."""

    losses: Array
    masses: Array
    infinity: float


class Law(Protocol):
    """A dominating pair that can be discretised."""

    @property
    def symmetric(self) -> bool:
        """Whether both directions have the same law of losses."""

    @property
    def affordable(self) -> bool:
        """Whether its losses are small enough for a grid."""

    def atoms(self, removal: bool, tail_mass: float, interval: float | None) -> Atoms:
        """One direction, cut at ``tail_mass``, with panels that end at multiples of ``interval``."""


def _panels(breaks: Array) -> tuple[Array, Array]:
    """Quadrature nodes and weights on the panels between sorted break points."""
    breaks = np.unique(breaks)
    half = np.diff(breaks) / 2.0
    middle = breaks[:-1] + half
    return (middle[:, None] + half[:, None] * _NODES).ravel(), (half[:, None] * _WEIGHTS).ravel()


def _even_breaks(low: float, high: float, slope: float) -> Array:
    width = _STEEP_PANEL if slope > _STEEP else min(_WIDEST_PANEL, _WIDEST_LOSS / slope)
    breaks: Array = np.linspace(low, high, 1 + max(1, math.ceil((high - low) / width)))
    return breaks


def _grid_points(first: float, second: float, interval: float) -> Array:
    """Multiples of the interval between two losses."""
    low, high = min(first, second), max(first, second)
    first, last = math.ceil(low / interval), math.floor(high / interval)
    return interval * np.arange(first, last + 1, dtype=np.float64)


def _density(x: Array) -> Array:
    density: Array = np.exp(-0.5 * x * x) / math.sqrt(2.0 * math.pi)
    return density


@dataclass(frozen=True)
class SampledGaussianLaw:
    """N(0, 1) against the mixture (1 - q) N(0, 1) + q N(mu, 1), mu = 1 / noise multiplier."""

    sampling_rate: float
    noise_multiplier: float

    def __post_init__(self) -> None:
        check_range("sampling_rate", self.sampling_rate, 0.0, 1.0, open_low=True)
        check_range("noise_multiplier", self.noise_multiplier, 0.0, open_low=True, open_high=True)

    @property
    def symmetric(self) -> bool:
        return self.sampling_rate == 1.0

    @property
    def affordable(self) -> bool:
        return self.noise_multiplier * _LARGEST_SLOPE >= 1.0

    def _removal_loss(self, x: Array) -> Array:
        q, mu = self.sampling_rate, 1.0 / self.noise_multiplier
        u = mu * x - mu * mu / 2.0
        if q == 1.0:
            return u
        small = np.minimum(u, 1.0)
        large = np.maximum(u, 1.0)
        return np.where(u < 1.0, np.log1p(q * np.expm1(small)), large + np.log(q + (1.0 - q) * np.exp(-large)))

    def _point(self, loss: Array) -> Array:
        """Where the removal loss takes given values above log(1 - q)."""
        q, mu = self.sampling_rate, 1.0 / self.noise_multiplier
        if q == 1.0:
            return loss / mu + mu / 2.0
        small, large = np.minimum(loss, 1.0), np.maximum(loss, 1.0)
        with np.errstate(divide="ignore"):  # the infimum itself lies at minus infinity and is clipped away
            log_ratio = np.log1p(np.maximum(np.expm1(small) / q, -1.0))
        log_ratio = np.where(loss < 1.0, log_ratio, large + np.log1p(-(1.0 - q) * np.exp(-large)) - math.log(q))
        return log_ratio / mu + mu / 2.0

    def atoms(self, removal: bool, tail_mass: float, interval: float | None) -> Atoms:
        q, mu = self.sampling_rate, 1.0 / self.noise_multiplier
        removal = removal or self.symmetric
        quantile = -float(ndtri(tail_mass))
        low, high = -quantile, quantile
        if removal:
            shifted = mu - float(ndtri(min(0.5, tail_mass / q)))
            low, high = (mu - quantile, shifted) if q == 1.0 else (low, max(high, shifted))
        sign = 1.0 if removal else -1.0
        low_loss, high_loss = sign * self._removal_loss(np.array([low, high]))
        pieces = [(low, high)]
        gap = 0.0
        if removal and q < 1.0 and mu > 2.0 * quantile:  # between both components there is next to no mass
            pieces = [(low, quantile), (mu - quantile, high)]
            gap = tail_mass
        points = np.empty(0)
        if interval is not None:
            points = self._point(sign * _grid_points(low_loss, high_loss, interval))
        panels = [
            _panels(np.append(_even_breaks(start, end, mu), points[(points > start) & (points < end)]))
            for start, end in pieces
        ]
        x, weights = (np.concatenate(column) for column in zip(*panels, strict=True))
        where = x
        if mu > _STEEP:
            # exp(-loss) is not smooth inside a panel, so the loss is taken where the panel has its largest
            last = _NODES[-1] if removal else _NODES[0]
            outer = x.reshape(-1, _NODES.size)[:, -1 if removal else 0]
            middle = x.reshape(-1, _NODES.size).mean(axis=1)
            where = np.repeat(middle + (outer - middle) / abs(last), _NODES.size)
        density = (1.0 - q) * _density(x) + q * _density(x - mu) if removal else _density(x)
        below, above = float(ndtr(low)), float(ndtr(-high))
        if removal:
            below = (1.0 - q) * below + q * float(ndtr(low - mu))
            above = (1.0 - q) * above + q * float(ndtr(mu - high))
            # the lower tail moves up to the lowest kept loss, the upper tail to infinity
            ends, infinity = [(low_loss, below)], above + gap
        else:
            # below the cut the loss grows, but never beyond -log(1 - q)
            ends, infinity = [(high_loss, above), (-math.log1p(-q), below)], 0.0
        losses = np.concatenate([sign * self._removal_loss(where), [loss for loss, _ in ends]])
        return Atoms(losses, np.concatenate([weights * density, [mass for _, mass in ends]]), infinity)


@dataclass(frozen=True)
class TwoPointLaw:
    """Failure with probability delta, randomised response otherwise, on a Poisson sample."""

    epsilon: float
    sampling_rate: float = 1.0
    delta: float = 0.0

    def __post_init__(self) -> None:
        check_range("epsilon", self.epsilon, 0.0, open_high=True)
        check_range("sampling_rate", self.sampling_rate, 0.0, 1.0, open_low=True)
        check_range("delta", self.delta, 0.0, 1.0)

    @property
    def symmetric(self) -> bool:
        return self.sampling_rate == 1.0

    @property
    def affordable(self) -> bool:
        return self.epsilon <= _LARGEST_SLOPE

    def atoms(self, removal: bool, tail_mass: float, interval: float | None) -> Atoms:
        q, rest = self.sampling_rate, 1.0 - self.delta
        upper, lower = sampled_pure_losses(q, self.epsilon)
        lost = 1.0 / (1.0 + math.exp(self.epsilon)) if self.epsilon < 700.0 else 0.0
        if removal or self.symmetric:
            # under the data with the record, the response is turned only if the record was sampled
            kept, turned = q * (1.0 - lost) + (1.0 - q) * lost, q * lost + (1.0 - q) * (1.0 - lost)
            losses, masses = [upper, lower], [rest * kept, rest * turned]  # not 1 - kept: it may be exp(-epsilon)
            infinity = q * self.delta
            if q < 1.0 and self.delta > 0.0:
                losses.append(math.log1p(-q))
                masses.append((1.0 - q) * self.delta)
        else:
            losses, masses = [-upper, -lower], [rest * lost, rest * (1.0 - lost)]
            losses.append(-math.log1p(-q))
            masses.append(self.delta)
            infinity = 0.0
        return Atoms(np.array(losses), np.array(masses), infinity)


@dataclass(frozen=True)
class LaplaceLaw:
    """Lap(0, b) against Lap(1, b), b the noise multiplier; symmetric by reflection."""

    noise_multiplier: float
    symmetric: bool = True

    def __post_init__(self) -> None:
        check_range("noise_multiplier", self.noise_multiplier, 0.0, open_low=True, open_high=True)

    @property
    def affordable(self) -> bool:
        return self.noise_multiplier * _LARGEST_SLOPE >= 1.0

    def atoms(self, removal: bool, tail_mass: float, interval: float | None) -> Atoms:
        pure = 1.0 / self.noise_multiplier
        breaks = _even_breaks(-pure, pure, 1.0)
        if interval is not None:
            breaks = np.concatenate([breaks, _grid_points(-pure, pure, interval)])
        # the loss is linear between both centres, where its density is e^((loss - pure)/2) / 4
        losses, weights = _panels(breaks)
        masses = weights * 0.25 * np.exp((losses - pure) / 2.0)
        ends = np.array([0.5, 0.5 * math.exp(-pure)])
        return Atoms(np.append(losses, [pure, -pure]), np.append(masses, ends), 0.0)
