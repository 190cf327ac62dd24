"""Exponentially tilted compositions of privacy losses.

For independent losses with cumulant function K (the sum over releases), the law tilted by theta has density
exp(theta s - K(theta)) with respect to the true one. Everything here works with one direction of a pair.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from scipy.fft import irfft, next_fast_len, rfft
from scipy.optimize import minimize_scalar
from scipy.signal import lfilter

from dpskl.accounting._laws import Array

_OUTSIDE = 34.0  # minus the logarithm of the tilted mass left outside the window, 2e-15
LARGEST_TRANSFORM = 2**21
_SKETCH = 2048  # points that suffice to choose a tilt, since every tilt is valid
_LARGEST_EXPONENT = 600.0


class Part(NamedTuple):
    """Losses of positive mass, their log masses, a count, and indices if they are on a grid."""

    losses: Array
    log_masses: Array
    times: int
    indices: Array | None = None


def make_part(losses: Array, masses: Array, count: int, indices: Array | None = None) -> Part:
    """Drop what has no mass."""
    kept = masses > 0.0
    return Part(losses[kept], np.log(masses[kept]), count, None if indices is None else indices[kept])


def _sketch(part: Part) -> Part:
    """The same law on fewer points: the heaviest stay, blocks of the others move to their means."""
    size = part.losses.size
    if size <= 2 * _SKETCH:
        return part
    heavy = np.zeros(size, dtype=bool)
    heavy[np.argpartition(part.log_masses, size - _SKETCH)[size - _SKETCH :]] = True
    losses, logs = part.losses[~heavy], part.log_masses[~heavy]
    starts = np.arange(0, losses.size, -(-losses.size // _SKETCH))
    tops = np.maximum.reduceat(logs, starts)
    weights = np.exp(logs - np.repeat(tops, np.diff(np.append(starts, losses.size))))
    sums = np.add.reduceat(weights, starts)
    means = np.add.reduceat(weights * losses, starts) / sums
    merged = np.append(part.losses[heavy], means)
    return Part(merged, np.append(part.log_masses[heavy], tops + np.log(sums)), part.times)


def _log_weight(theta: float) -> float:
    """Logarithm of the largest value of exp(-theta x) (1 - exp(-x)): delta counts a loss by its excess."""
    return -theta * math.log1p(1.0 / theta) - math.log1p(theta)


class TiltedSum:
    """Sum of independent finite losses: cumulant function, tilts and windows."""

    def __init__(self, parts: Sequence[Part]) -> None:
        self.parts = list(parts)
        self._sketch = [_sketch(part) for part in self.parts]
        self.lowest = sum(part.times * float(part.losses.min()) for part in self.parts)
        self.highest = sum(part.times * float(part.losses.max()) for part in self.parts)
        spread = max(float(np.abs(part.losses).max()) for part in self.parts)
        # tilts beyond these ends put all the mass on the largest loss, or none of it anywhere else
        self._log_tilts = (math.log(1e-9), math.log(1e7)) if spread == 0.0 else (-20.0, 14.0 - math.log(spread))

    def cumulant(self, theta: float, rough: bool = False) -> float:
        """K(theta), below 0 at 0 by the mass at infinity."""
        total = 0.0
        for part in self._sketch if rough else self.parts:
            exponents = part.log_masses + theta * part.losses
            top = float(exponents.max())
            total += part.times * (top + math.log(float(np.exp(exponents - top).sum())))
        return total

    def moments(self, theta: float) -> tuple[float, float]:
        """Mean and variance of the tilted sum."""
        mean = variance = 0.0
        for part in self.parts:
            weights = tilted(part, theta)
            centre = float(weights @ part.losses)
            mean += part.times * centre
            variance += part.times * float(weights @ (part.losses - centre) ** 2)
        return mean, variance

    def tilt_for_delta(self, log_delta: float) -> tuple[float, float]:
        """Tilt of the best exponential bound on epsilon at a delta, and that bound."""
        return self._minimise(lambda theta: (self.cumulant(theta, rough=True) + _log_weight(theta) - log_delta) / theta)

    def tilt_for_epsilon(self, epsilon: float) -> tuple[float, float]:
        """Tilt of the best exponential bound on delta at an epsilon, and the logarithm of that bound."""
        if self.moments(0.0)[0] >= epsilon:
            return 0.0, 0.0
        return self._minimise(lambda theta: self.cumulant(theta, rough=True) + _log_weight(theta) - theta * epsilon)

    def _minimise(self, objective: Callable[[float], float]) -> tuple[float, float]:
        """Minimise over positive tilts (both objectives fall, then rise); any tilt gives valid results."""
        low, high = self._log_tilts
        grid = np.linspace(low, high, 18)
        values = [objective(math.exp(u)) for u in grid]
        best = int(np.argmin(values))
        bounds = (grid[max(best - 1, 0)], grid[min(best + 1, len(grid) - 1)])
        found = minimize_scalar(
            lambda u: objective(math.exp(u)), bounds=bounds, method="bounded", options={"xatol": 2e-3}
        )
        return math.exp(float(found.x)), float(found.fun)

    def window(self, theta: float, widest: float = math.inf) -> tuple[float, float, float]:
        """Interval outside which the tilted mass is negligible, and the log of the true mass above it.

        A window cut to half of ``widest`` on either side of the mean is valid too, since what wraps adds.
        """
        mean, variance = self.moments(theta)
        if variance <= 0.0:
            return self.lowest, self.highest, -math.inf

        def bound(step: float, rough: bool = False) -> float:
            """End of the window by the Chernoff bound with a tilt of theta + step."""
            rise = self.cumulant(theta + step, rough) - self.cumulant(theta, rough)
            return (rise + _OUTSIDE) / step

        up, _ = self._minimise(lambda step: bound(step, rough=True))
        down, _ = self._minimise(lambda step: -bound(-step, rough=True))
        bottom = max(self.lowest, bound(-down), mean - widest / 2.0)
        top = bound(up)
        tilt = theta + up
        if top > mean + widest / 2.0:
            top = mean + widest / 2.0
            tilt, _ = self.tilt_for_epsilon(top)
        if top >= self.highest:
            return bottom, self.highest, -math.inf
        return bottom, top, self.cumulant(tilt) - tilt * top

    def tame(self, theta: float, widest: float) -> float:
        """The tilt, or a smaller one if its window is too wide.

        Near the largest tilt that a heavy tail allows, the tilted sum has several far losses at once.
        """
        bottom, top, _ = self.window(theta)
        full, chosen = top - bottom, theta
        width = full
        for factor in (0.7, 0.5, 0.35, 0.25, 0.15):
            if width <= widest:
                break
            bottom, top, _ = self.window(factor * theta)
            if top - bottom < 0.7 * full:  # else the width is not that of a heavy tail
                width, chosen = top - bottom, factor * theta
        return chosen


def tilted(part: Part, theta: float) -> Array:
    """Masses of one release under the tilted law; they add to one."""
    exponents = part.log_masses + theta * part.losses
    weights = np.exp(exponents - exponents.max())
    return np.asarray(weights / weights.sum())


class Profile(NamedTuple):
    """Delta of a composed direction at grid points, in units of exp(log_scale), without the mass outside.

    ``deltas[j]`` is the value at ``points[j]`` and ``slopes[j]`` the sum of m(s) e^(point - s) over s >=
    point, so that the value at an epsilon in the bin below the point is deltas + slopes (1 - e^(epsilon -
    point)).
    """

    points: Array
    deltas: Array
    slopes: Array
    log_scale: float
    outside: float
    theta: float
    bottom: float


def profile(total: TiltedSum, theta: float, interval: float) -> Profile:
    """Profile of the sum around the mean of its law tilted by ``theta``, by fast Fourier transform.

    The window is as wide as the tilted law needs, not as all possible sums. Sums below it wrap up and only
    add; sums above it wrap too, and their true mass (a Chernoff bound) is returned as ``outside`` to be
    added in full.
    """
    bottom, top, log_outside = total.window(theta, interval * LARGEST_TRANSFORM)
    first = math.floor(bottom / interval + 1e-9)
    size = next_fast_len(math.ceil(top / interval - 1e-9) - first + 2, real=True)
    spectrum = np.ones(size // 2 + 1, dtype=complex)
    shift = 0
    for part in total.parts:
        assert part.indices is not None
        weights = tilted(part, theta)
        # centred, or the phase of the spectrum would lose digits when it is multiplied by the count
        centre = round(float(weights @ part.losses) / interval)
        shift += part.times * centre
        positions = np.mod(part.indices - centre, size).astype(np.intp)
        transform = rfft(np.bincount(positions, weights, minlength=size))
        spectrum *= np.abs(transform) ** part.times * np.exp(1j * part.times * np.angle(transform))
    # nothing is renormalised; a bound on the rounding of powers and transforms makes up for negative errors
    rounding = 2.0**-52 * (32 + 4 * sum(part.times for part in total.parts))
    wrapped = np.maximum(irfft(spectrum, size), 0.0)
    wrapped += rounding * wrapped.max()
    order = first + np.arange(size)
    masses = wrapped[np.mod(order - shift, size)]
    points = interval * order
    centre_loss = total.moments(theta)[0]
    kept = theta * (centre_loss - points) <= _LARGEST_EXPONENT
    points, masses = points[kept], masses[kept] * np.exp(theta * (centre_loss - points[kept]))
    slopes = lfilter([1.0], [1.0, -math.exp(-interval)], masses[::-1])[::-1]
    steps = -math.expm1(-interval) * slopes
    deltas = np.append(np.cumsum(steps[::-1])[::-1][1:], 0.0)
    log_scale = total.cumulant(theta) - theta * centre_loss
    outside = math.exp(min(0.0, log_outside))
    return Profile(points, deltas, slopes, log_scale, outside, theta, bottom)
