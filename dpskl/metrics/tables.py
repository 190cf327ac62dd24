"""Released tables of counts: estimates of them, with and without negative counts, and the noise in their sums."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property, lru_cache
from math import inf, nan, sqrt
from typing import Any

import numpy as np
from scipy.optimize import nnls

from dpskl.mechanisms.score_histogram import circle, circle_powers
from dpskl.metrics.figures import Figure
from dpskl.metrics.sums import area_form, merge_pairs, ratio

__all__ = ["CircleTable", "FlatTable", "Table"]

Array = np.ndarray[Any, Any]


class Table:
    """Counts whose sum is public, of which noisy ones were released.

    Parameters
    ----------
    released : ndarray
        Noisy sums, in units of counts.
    scale : float
        Standard deviation of the noise of each.
    n_samples : int
        The sum of the counts.

    Attributes
    ----------
    plain : ndarray of shape (n_cells,)
        Counts without bias, which may be negative.
    fitted : ndarray of shape (n_cells,)
        The most likely counts that are not negative. Both have the public sum.
    """

    plain: Array
    fitted: Array

    def __init__(self, released: Array, scale: float, n_samples: int) -> None:
        self.released, self.scale, self.n_samples = released, scale, n_samples

    def noise_products(self, weights: Array) -> Array:
        """Return the covariances of the noise between sums of plain counts with these weights, (k, n_cells)."""
        raise NotImplementedError

    def _covariance(self, weights: Array) -> Array:
        """Return the covariances of weighted sums, of noise and of records that are a sample."""
        weighted = weights * self.fitted
        sums = weighted.sum(axis=1)
        covariance: Array = self.noise_products(weights) + weighted @ weights.T
        return covariance - np.outer(sums, sums) / self.n_samples

    def ratio_of(self, above: Array, below: Array | None = None, binning: float = 0.0, top: float = 1.0) -> Figure:
        """Return the figure ``above . counts / below . counts``; ``below=None`` divides by the number of records.

        ``binning`` is the standard deviation of what cells hide, ``top`` the end of the range, which begins at 0.
        """
        weights = np.stack([above, np.ones(len(above)) if below is None else below])
        covariance = self._covariance(weights)
        a, b = weights @ self.plain
        fit_a, fit_b = weights @ self.fitted
        v0, v1, v2 = covariance[0, 0] + (binning * fit_b) ** 2, -2 * covariance[0, 1], covariance[1, 1]
        if not fit_b > 1e-9:
            return Figure.unknown((0.0, top))
        value = float(min(max(fit_a / fit_b, 0.0), top))
        error = sqrt(max(v0 + v1 * value + v2 * value**2, 0.0)) / fit_b
        return Figure(value, float(error), tuple(map(float, (a, b, v0, v1, v2))), (0.0, top))  # type: ignore[arg-type]

    def smooth(
        self, function: Callable[[Array], Array], groups: Array, value: float | None = None, binning: float = 0.0
    ) -> Figure:
        """Return a figure in [0, 1] by the delta method.

        ``function`` takes counts with leading axes, also complex ones. ``groups`` are weights of sums that it divides
        by: where one is less than twice its noise, nothing is known.
        """
        n_cells, step = len(self.fitted), 1e-20 * self.n_samples
        found = float(np.real(function(self.fitted))) if value is None else value
        found = min(max(found, 0.0), 1.0)
        noise = np.sqrt(np.maximum(self.noise_products(groups).diagonal(), 0))
        if not (groups @ self.fitted > np.maximum(2 * noise, 1e-9)).all():
            return Figure(found, inf, (nan, nan, inf, 0.0, 0.0))
        gradient = np.imag(function(self.fitted + 1j * step * np.eye(n_cells))) / step
        return Figure(found, sqrt(max(float(self._covariance(gradient[None])[0, 0]), 0.0) + binning**2))


class FlatTable(Table):
    """Counts with independent noise."""

    def __init__(self, released: Array, scale: float, n_samples: int) -> None:
        super().__init__(released, scale, n_samples)
        self.plain = released + (n_samples - released.sum()) / len(released)

    @cached_property
    def fitted(self) -> Array:  # type: ignore[override]
        # the nearest point of the simplex: a constant is taken off, and what falls below 0 is 0
        ordered = np.sort(self.released)[::-1]
        excess = (np.cumsum(ordered) - self.n_samples) / np.arange(1, len(ordered) + 1)
        level = excess[np.flatnonzero(ordered > excess)[-1]]
        return np.rint(self.plain) if self.scale == 0 else np.maximum(self.released - level, 0)

    def noise_products(self, weights: Array) -> Array:
        centred = weights - weights.mean(axis=1, keepdims=True)
        return self.scale**2 * (centred @ centred.T)


class CircleTable(Table):
    """Counts by class and interval, of which frequencies were released.

    Parameters
    ----------
    released, scale, n_samples
        See :class:`Table`.
    edges : ndarray of shape (n_bins + 1,)
        Ends of the intervals.
    """

    def __init__(self, released: Array, scale: float, n_samples: int, edges: Array) -> None:
        super().__init__(released, scale, n_samples)
        self.edges, powers = edges, circle_powers(len(released))
        self._inverse = np.zeros(len(powers))
        self._inverse[1:] = 1 / powers[1:]
        spectrum = np.fft.fft(released) * np.sqrt(self._inverse)
        self.plain = np.fft.ifft(spectrum).real + n_samples / len(released)

    @cached_property
    def fitted(self) -> Array:  # type: ignore[override]
        if self.scale == 0:
            return np.rint(self.plain)
        n_cells = len(self.released)
        # beside the released sums one that is known: it weighs so much that it holds
        design = np.vstack([circle(n_cells), np.full(n_cells, 10.0)])
        try:
            counts = nnls(design, np.append(self.released, 10.0 * self.n_samples))[0]
        except RuntimeError:  # no convergence
            counts = np.maximum(self.plain, 0)
        return counts * (self.n_samples / counts.sum())

    @property
    def n_bins(self) -> int:
        """Number of intervals."""
        return len(self.edges) - 1

    def by_class(self) -> Array:
        """Return the fitted counts, (2, n_bins)."""
        return self.fitted.reshape(2, -1)

    def noise_products(self, weights: Array) -> Array:
        spectrum = np.fft.fft(weights, axis=1)
        products: Array = np.real((spectrum * self._inverse) @ spectrum.conj().T) / weights.shape[1]
        return self.scale**2 * products

    # -- thresholds -------------------------------------------------------------------------------------------

    def above(self, threshold: float) -> tuple[Array, Array | None]:
        """Return the share of each interval that lies at or above a threshold, and another where this is a guess.

        Inside an interval records are taken to be spread evenly; the other answer is off by a standard deviation of
        what could be the case.
        """
        low, high = self.edges[0], self.edges[-1]
        place = (float(threshold) - low) / (high - low) * self.n_bins
        if abs(place - round(place)) < 1e-9:
            place = float(round(place))
        share = np.clip(np.arange(1, self.n_bins + 1) - place, 0, 1)
        if place == round(place) or not 0 < place < self.n_bins:
            return share, None
        moved = share.copy()
        moved[int(place)] += 12**-0.5
        return share, moved

    def at_threshold(self, make: Callable[[Array], tuple[Array, Array | None]], threshold: float) -> Figure:
        """Return a ratio of counts at a threshold; ``make`` has weights of the cells from shares of the intervals."""
        share, moved = self.above(threshold)
        binning = 0.0
        if moved is not None:
            one, other = (self._value(*make(entry)) for entry in (share, moved))
            binning = abs(one - other)
        return self.ratio_of(*make(share), binning=binning)

    def _value(self, above: Array, below: Array | None) -> float:
        denominator = self.n_samples if below is None else below @ self.fitted
        return float(ratio(np.asarray(above @ self.fitted), np.asarray(denominator)))

    # -- figures of the whole curve -----------------------------------------------------------------------------

    def mean_of(self, weights: Callable[[Array], Array], top: float) -> Figure:
        """Return the mean over the records of weights that are a function of class and interval."""
        exact = weights(self.edges)
        wide = merge_pairs(exact, self.edges)[1]
        spread = np.repeat(weights(wide), 2, axis=1)[:, : self.n_bins]
        # a third of what intervals of twice the length would change is added, and half of that is taken for its error
        better = (exact + (exact - spread) / 3).ravel()
        binning = abs(float((exact - spread).ravel() @ self.fitted)) / 6 / self.n_samples
        return self.ratio_of(better, binning=binning, top=top)

    def area(self) -> Figure:
        """Return the area under the ROC curve."""
        table = self.by_class()
        pairs = float(table[0].sum() * table[1].sum())
        areas = [
            float(entry[1] @ (np.cumsum(entry[0]) - entry[0] / 2))
            for entry in (table, merge_pairs(table, self.edges)[0])
        ]
        # half of the correction for pairs within an interval
        return self._mean_over_pairs(area_form(self.n_bins), abs(areas[0] - areas[1]) / 6 / pairs if pairs > 0 else 0.0)

    def balanced(self, threshold: float) -> Figure:
        """Return the balanced accuracy at a threshold, which is the area under a curve of one corner."""
        share, moved = self.above(threshold)

        def halves(above: Array) -> Array:
            result: Array = (above[:, None] + 1 - above) / 2
            return result

        binning = 0.0
        if moved is not None:
            hidden = (self.by_class() * (moved - share)).sum(axis=1)
            totals = self.by_class().sum(axis=1)
            binning = abs(float(np.diff(ratio(hidden, totals))[0])) / 2
        return self._mean_over_pairs(halves(share), binning)

    def _mean_over_pairs(self, pairs_form: Array, binning: float) -> Figure:
        """Return the mean over all pairs of a function of the second class's interval and the first's."""
        h, u, variance = self.fitted, self.plain, self.scale**2
        Q, R, traces, products = _pair_forms(self.n_bins, pairs_form.tobytes())
        pairs = float(h @ R @ h)
        if not pairs > 1e-9:
            return Figure.unknown()
        # both without the bias of squared noise
        a, b = float(u @ Q @ u - variance * traces[0]), float(u @ R @ u - variance * traces[1])
        covariance = self._covariance(2 * np.stack([Q @ h, R @ h])) + 2 * variance**2 * products
        v0, v1, v2 = covariance[0, 0] + (binning * pairs) ** 2, -2 * covariance[0, 1], covariance[1, 1]
        value = min(max(float(h @ Q @ h) / pairs, 0.0), 1.0)
        error = sqrt(max(v0 + v1 * value + v2 * value**2, 0.0)) / pairs
        return Figure(value, float(error), tuple(map(float, (a, b, v0, v1, v2))))  # type: ignore[arg-type]

    def extrapolated(self, function: Callable[[Array, Array], Array]) -> Figure:
        """Return a smooth figure of table and edges, with the error of the cells extrapolated away."""
        table = self.by_class()
        fine, wide = (float(function(*entry)) for entry in ((table, self.edges), merge_pairs(table, self.edges)))
        correction = (fine - wide) / 3

        def of(counts: Array) -> Array:
            return function(counts.reshape(*counts.shape[:-1], 2, self.n_bins), self.edges)

        return self.smooth(of, np.repeat(np.eye(2), self.n_bins, axis=1), fine + correction, abs(correction) / 2)


@lru_cache(maxsize=32)
def _pair_forms(n_bins: int, entries: bytes) -> tuple[Array, Array, Array, Array]:
    """Return quadratic forms of the counts, and what they make of noise of scale 1.

    The first form sums a function over all pairs of records, the second counts the pairs. Then come their means for
    noise alone, and half of the covariances of both.
    """
    m = n_bins
    Q, R = forms = np.zeros((2, 2 * m, 2 * m))
    for form, pairs in ((Q, np.frombuffer(entries).reshape(m, m)), (R, np.ones((m, m)))):
        form[m:, :m], form[:m, m:] = pairs / 2, pairs.T / 2
    inverse = np.zeros(2 * m)
    inverse[1:] = 1 / circle_powers(2 * m)[1:]
    places = np.arange(2 * m)
    covariance = np.fft.ifft(inverse).real[(places[:, None] - places) % (2 * m)]
    moved = forms @ covariance
    products = np.einsum("aij,bji->ab", moved, moved)
    return Q, R, np.trace(moved, axis1=1, axis2=2), products
