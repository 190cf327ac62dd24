"""Bounds, axes, knots and categories from released counts: functions of these and of public numbers alone.

Nothing here sees a record. Counts are those of :class:`~dpskl.mechanisms.column_histograms.ColumnHistograms` and of
:class:`~dpskl.mechanisms.stable_histogram.StableHistogram`; what is made of them costs nothing more.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import expm1, log, log1p
from typing import Any

import numpy as np
from scipy.special import ndtri
from sklearn.isotonic import isotonic_regression

from dpskl.preprocessing.knots import from_axis, spaced, to_axis

__all__ = [
    "bounds_of_counts",
    "categories_of_counts",
    "equal_cells",
    "knots_of_counts",
    "magnitude_cells",
    "noise_threshold",
    "suits_log_axis",
]

Array = np.ndarray[Any, Any]

_CROWDED = 8  # of a linear axis with nine knots, one piece
_CUTS = 30


def magnitude_cells(smallest: float = 2.0**-10, largest: float = 2.0**40, base: float = 2.0) -> Array:
    """Return the edges of cells for values of unknown size: powers of ``base``, of both signs, and a cell around 0.

    Parameters
    ----------
    smallest : float, default=2**-10
        Positive. Values of a size below the power at or below it count as zero.
    largest : float, default=2**40
        Above ``smallest``. Values of a size above the power at or above it are in an outermost cell.
    base : float, default=2
        Above 1. Bounds that are made of the cells are too wide by up to this factor.

    Returns
    -------
    ndarray
        An even number of edges, symmetric around 0; those of base 2 are exact.

    Examples
    --------
    >>> magnitude_cells(1, 5).tolist()
    [-8.0, -4.0, -2.0, -1.0, 1.0, 2.0, 4.0, 8.0]
    """
    if not 0 < smallest < largest < np.inf or not 1 < base < np.inf:
        raise ValueError(
            f"smallest={smallest!r} and largest={largest!r} must be positive and increasing, and base={base!r} above 1"
        )
    first, last = round(log(smallest, base)), round(log(largest, base))
    first -= base**first > smallest  # logarithms are rounded, and their whole numbers may be one off
    last += base**last < largest
    powers = np.array([float(base) ** exponent for exponent in range(first, last + 1)])
    return np.concatenate([-powers[::-1], powers])


def equal_cells(low: float, high: float, n_cells: int = 64, spacing: str = "linear") -> Array:
    """Return the edges of cells that are equally wide on the axis of a column.

    Parameters
    ----------
    low, high : float
        Bounds of the column: declared, or released.
    n_cells : int, default=64
    spacing : {"linear", "log"}, default="linear"
        The axis ``v``, or ``sign(v) log(1 + |v|)``.

    Examples
    --------
    >>> equal_cells(0, 8, 4).tolist()
    [0.0, 2.0, 4.0, 6.0, 8.0]
    """
    edges = spaced(float(low), float(high), n_cells + 1, spacing)
    if not (np.diff(edges) > 0).all():
        raise ValueError(f"n_cells={n_cells} do not fit between low={low!r} and high={high!r}: move the bounds apart")
    return edges


def noise_threshold(noise_scale: float, n_cells: int, false_alarm: float = 0.01) -> float:
    """Return what the noise of none of ``n_cells`` empty cells exceeds, but with probability ``false_alarm``.

    Parameters
    ----------
    noise_scale : float
        Standard deviation of the independent normal noise of each cell.
    n_cells : int
        How many cells are looked at, of all columns together.
    false_alarm : float, default=0.01
        In (0, 1).

    Examples
    --------
    >>> round(noise_threshold(10.0, 1, 0.025), 2), round(noise_threshold(10.0, 1000, 0.025), 2)
    (19.6, 40.53)
    """
    return noise_scale * -float(ndtri(-expm1(log1p(-false_alarm) / n_cells)))


def bounds_of_counts(counts: Array, edges: Array, threshold: float) -> tuple[float, float] | None:
    """Return the bounds of a column: the ends of the outermost cells that stand above their noise.

    Parameters
    ----------
    counts : ndarray of shape (n_cells,)
        Released.
    edges : ndarray of shape (n_cells + 1,)
        Those of :func:`magnitude_cells`.
    threshold : float
        What empty cells do not exceed, see :func:`noise_threshold`.

    Returns
    -------
    (float, float) or None
        Increasing. ``None`` where no cell stands above its noise. The cell around 0 counts as 0, where another one
        stands beside it.

    Notes
    -----
    Records in outer cells with fewer than about ``threshold`` of them are beyond the bounds, and are clipped by
    whoever uses these.

    Examples
    --------
    >>> edges = magnitude_cells(1, 8)
    >>> bounds_of_counts(np.array([1.2, -3.1, 0.4, 55.0, 3.0, 80.1, 2.2]), edges, 10.0)
    (0.0, 4.0)
    """
    standing = np.flatnonzero(counts > threshold)
    if not len(standing):
        return None
    low, high = float(edges[standing[0]]), float(edges[standing[-1] + 1])
    if len(standing) > 1:
        zero = len(edges) // 2 - 1
        low = 0.0 if standing[0] == zero else low
        high = 0.0 if standing[-1] == zero else high
    return low, high


def suits_log_axis(counts: Array, edges: Array, threshold: float) -> bool:
    """Return whether more than half of the records crowd around 0, within an eighth of the farther bound.

    On a linear axis with nine knots they would share one or two pieces. The rule is one of thumb.

    Parameters
    ----------
    counts, edges, threshold
        Those of :func:`bounds_of_counts`.

    Examples
    --------
    >>> edges = magnitude_cells(1, 64)
    >>> suits_log_axis(np.array([0, 0, 0, 0, 0, 0, 50.0, 40, 20, 20, 10, 5, 5]), edges, 2.0)
    True
    >>> suits_log_axis(np.array([0, 0, 0, 0, 0, 0, 2.0, 5, 10, 20, 40, 80, 50]), edges, 2.0)
    False
    """
    bounds = bounds_of_counts(counts, edges, threshold)
    if bounds is None:
        return False
    reach = max(abs(bound) for bound in bounds) / _CROWDED
    standing = np.where(counts > threshold, counts, 0.0)
    near = (edges[:-1] >= -reach) & (edges[1:] <= reach)
    return bool(2 * standing[near].sum() > standing.sum())


def knots_of_counts(counts: Array, edges: Array, n_knots: int, spacing: str = "linear") -> Array:
    """Return knots that are half as dense as the records and half equally spaced.

    Parameters
    ----------
    counts : ndarray of shape (n_cells,)
        Released.
    edges : ndarray of shape (n_cells + 1,)
        Those of :func:`equal_cells`; the outermost ones are the outermost knots.
    n_knots : int
        At least 2.
    spacing : {"linear", "log"}, default="linear"
        The axis on which the cells are equally wide.

    Returns
    -------
    ndarray of shape (n_knots,)
        Increasing.

    Notes
    -----
    Let ``u`` be the place on the axis, from 0 to 1, and ``F`` the isotonic regression of the cumulated counts, brought
    to ``F(0) = 0`` and ``F(1) = 1`` and linear within cells. With ``p_j = j / (n_knots - 1)`` the knot ``j`` is at
    ``u_j = (F^(-1)(p_j) + p_j) / 2``; the ends are 0 and 1. As ``F^(-1)`` does not decrease, neighbouring knots are at
    least half as far apart as equally spaced ones, whatever the noise is. Where ``F`` is flat all over, knots are
    equally spaced.

    In ``F`` no cell counts for more than one of the ``n_knots - 1`` pieces, since two knots within a cell see little
    between them. What is above is cut, again as the sum falls, or once where fewer than ``n_knots`` cells have
    records. Without the cut a column that is mostly zero has most knots there: on Adult, with a log axis for gains and
    losses, that cost 0.2 to 0.5 points of accuracy at epsilon of 0.2 and 1 against equally spaced knots, and with the
    cut nothing that showed.

    Examples
    --------
    >>> knots_of_counts(np.array([90.0, 10.0, -3.0, 3.0]), equal_cells(0, 8, 4), 3).round(3).tolist()
    [0.0, 3.0, 8.0]
    """
    if n_knots < 2:
        raise ValueError(f"n_knots={n_knots} must be at least 2: they are the bounds")
    even = np.linspace(0, 1, n_knots)
    shares = _cut(np.diff(isotonic_regression(np.concatenate([[0.0], np.cumsum(counts)]))), n_knots)
    total = np.concatenate([[0.0], np.cumsum(shares)])
    places = even
    if total[-1] > 0:
        quantiles = np.interp(even[1:-1], total / total[-1], np.linspace(0, 1, len(edges)))
        places = np.concatenate([[0.0], (quantiles + even[1:-1]) / 2, [1.0]])
    ends = to_axis(edges[[0, -1]].astype(np.float64), spacing)
    knots = from_axis(ends[0] + (ends[1] - ends[0]) * places, spacing) + 0.0
    knots[0], knots[-1] = edges[0], edges[-1]
    if not (np.diff(knots) > 0).all():
        raise ValueError(f"n_knots={n_knots} do not fit between {edges[0]!r} and {edges[-1]!r}: move the bounds apart")
    return knots


def _cut(shares: Array, n_knots: int) -> Array:
    """Return shares of which none is above the mean of ``n_knots - 1`` pieces, as far as there are cells for them."""
    highest = np.inf
    for _ in range(_CUTS if (shares > 0).sum() >= n_knots else 1):
        highest = np.minimum(shares, highest).sum() / (n_knots - 1)
    return np.minimum(shares, highest)


def categories_of_counts(counts: Mapping[Any, float], most: int | None = None) -> list[Any]:
    """Return the categories of a column, the most frequent one first.

    Parameters
    ----------
    counts : mapping of value to number
        Released.
    most : int, optional
        How many categories to keep at most. What is not among them is "other" for whoever encodes the column.

    Examples
    --------
    >>> categories_of_counts({"a": 31.2, "b": 80.9, "c": 31.3}, most=2)
    ['b', 'c']
    """
    ranked = sorted(counts, key=lambda value: -counts[value])
    return ranked[:most]
