"""A released figure: its value, its standard error, and intervals that contain noise, sampling and binning."""

from __future__ import annotations

from math import inf, isfinite, isnan, nan, sqrt
from typing import Any

from scipy.special import ndtri

__all__ = ["Figure", "check_level"]


def check_level(level: Any) -> float:
    """Return the level of an interval, a number strictly between 0 and 1."""
    if isinstance(level, bool) or not isinstance(level, int | float) or not 0 < level < 1:
        raise ValueError(f"level={level!r} must be strictly between 0 and 1, such as 0.95")
    return float(level)


class Figure(float):
    """A number that was computed from a release, with what is known about its error.

    Attributes
    ----------
    standard_error : float
        Of the noise, of the records as a sample, and of the cells; ``inf`` where the release says nothing.

    Notes
    -----
    A figure is a ratio ``a / b`` of two sums with noise. The interval has all ratios ``r`` at which ``a - r b`` lies
    within ``z`` standard deviations of 0 (Fieller 1954), cut to the range of the figure. It is not symmetric where
    ``b`` is uncertain, and its middle is not the value: the value comes from a table without negative counts.

    Examples
    --------
    >>> Figure(0.8, 0.01)
    0.8000 +- 0.0100
    >>> [round(end, 3) for end in Figure(0.8, 0.01).interval(0.95)]
    [0.78, 0.82]
    """

    standard_error: float

    def __new__(
        cls,
        value: float,
        standard_error: float,
        ratio: tuple[float, float, float, float, float] | None = None,
        bounds: tuple[float, float] = (0.0, 1.0),
    ) -> Figure:
        figure = super().__new__(cls, value)
        figure.standard_error = standard_error
        # a, b, and the variance of a - r b as v0 + v1 r + v2 r^2
        figure._ratio = ratio or (value, 1.0, standard_error**2, 0.0, 0.0)  # type: ignore[attr-defined]
        figure._bounds = bounds  # type: ignore[attr-defined]
        return figure

    def __getnewargs__(self) -> tuple[Any, ...]:
        return float(self), self.standard_error, self._ratio, self._bounds  # type: ignore[attr-defined]

    @classmethod
    def unknown(cls, bounds: tuple[float, float] = (0.0, 1.0)) -> Figure:
        """Return a figure of which the release says nothing."""
        return cls(nan, inf, (nan, nan, inf, 0.0, 0.0), bounds)

    def interval(self, level: float = 0.95) -> tuple[float, float]:
        """Return the ends of an interval that contains the true figure with about this probability.

        Parameters
        ----------
        level : float, default=0.95

        Returns
        -------
        low, high : float
        """
        z = -float(ndtri((1 - check_level(level)) / 2))
        a, b, v0, v1, v2 = self._ratio  # type: ignore[attr-defined]
        low, high = self._bounds  # type: ignore[attr-defined]
        curvature, slope, constant = b * b - z * z * v2, -2 * a * b - z * z * v1, a * a - z * z * v0
        if isnan(curvature) or curvature <= 0 or b <= 0 or not isfinite(constant):
            return low, high  # the denominator may be 0
        root = sqrt(max(slope * slope - 4 * curvature * constant, 0.0))
        ends = (-slope - root) / (2 * curvature), (-slope + root) / (2 * curvature)
        return min(max(ends[0], low), high), min(max(ends[1], low), high)

    def __repr__(self) -> str:
        if isnan(self):
            return "unknown"
        return f"{float(self):.4f} +- {self.standard_error:.4f}"

    __str__ = __repr__
