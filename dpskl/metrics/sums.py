"""What is computed from a table of counts by class and interval; all may have leading axes and complex entries."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
from scipy.special import xlogy

__all__ = ["area_form", "average_precision", "brier_weights", "log_loss_weights", "merge_pairs", "ratio"]

Array = np.ndarray[Any, Any]


def merge_pairs(table: Array, edges: Array) -> tuple[Array, Array]:
    """Return the table with every two neighbouring intervals made one; of an odd number the last stays alone."""
    starts = np.arange(0, table.shape[-1], 2)
    return np.add.reduceat(table, starts, axis=-1), np.append(edges[:-1][starts], edges[-1])


def ratio(numerator: Array, denominator: Array) -> Array:
    """Return the ratio, 0 where the denominator is next to 0."""
    is_empty = np.abs(denominator) < 1e-9
    result: Array = np.where(is_empty, 0.0, numerator / np.where(is_empty, 1.0, denominator))
    return result


@lru_cache(maxsize=8)
def area_form(n_bins: int) -> Array:
    """Return what a pair of records counts in the area under the ROC curve, from the intervals of both.

    Rows are for the second class's record, columns for the first's. Pairs within an interval count half, and the error
    that this makes, which goes with the square of the length, is extrapolated away: a third of what the area gains from
    intervals of twice the length is added.
    """

    def halves(m: int) -> Array:
        form: Array = np.tri(m, m, -1) + np.eye(m) / 2
        return form

    groups = np.arange(n_bins) // 2
    fine, coarse = halves(n_bins), halves(int(groups[-1]) + 1)[np.ix_(groups, groups)]
    form: Array = fine + (fine - coarse) / 3
    form.flags.writeable = False
    return form


def average_precision(table: Array, edges: Array) -> Array:
    """Return the area under the precision-recall curve, records of one interval being in random order."""
    false, true = (np.cumsum(table[..., side, ::-1], axis=-1) for side in (0, 1))
    here = table[..., 1, ::-1]
    precision = ratio(true, true + false)
    # where a curve begins it has the precision of its first interval
    before = np.concatenate([precision[..., :1], precision[..., :-1]], axis=-1)
    before = np.where(np.abs(true + false - here - table[..., 0, ::-1]) < 1e-9, precision, before)
    return ratio((here * (precision + before) / 2).sum(axis=-1), true[..., -1])


def brier_weights(edges: Array) -> Array:
    """Return the mean of the squared error over each interval, for records of either class, shape (2, m)."""
    low, high = edges[:-1], edges[1:]
    return np.stack([(high**3 - low**3), ((1 - low) ** 3 - (1 - high) ** 3)]) / (3 * (high - low))


def log_loss_weights(edges: Array) -> Array:
    """Return the mean of minus the logarithm of the probability over each interval, shape (2, m)."""

    def mean(low: Array, high: Array) -> Array:
        return 1 - (xlogy(high, high) - xlogy(low, low)) / (high - low)

    low, high = edges[:-1], edges[1:]
    return np.stack([mean(1 - high, 1 - low), mean(low, high)])
