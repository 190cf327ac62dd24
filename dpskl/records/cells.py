"""How many values of each column fall in each of its cells; what the cells are is public."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import numpy as np

__all__ = ["ColumnCells"]

Array = np.ndarray[Any, Any]

_BLOCK = 1 << 16  # values whose places stay in the cache


class ColumnCells:
    """Numeric columns, and the public cells of each of them.

    A value ``v`` falls in the cell ``j`` with ``edges[j] <= v < edges[j + 1]``, one beyond the outermost edges in the
    cell next to it, infinite ones included, and NaN in none. Nothing but comparisons of floats decides, so that values
    at an edge are where this says. So a record falls in at most one cell of each column, whatever the others hold.

    Parameters
    ----------
    columns : sequence of array-like of shape (n,)
        Numbers; NaN where they are missing.
    edges : sequence of array-like
        Finite and increasing, at least two for each column.

    Raises
    ------
    ValueError
        If a column is not numeric, the columns are not of one length, or edges are unusable.

    Examples
    --------
    >>> ages = ColumnCells([[17.0, 18.0, 64.5, np.nan, 99.0]], [[0, 18, 65]])
    >>> ages.counts()[0].tolist()
    [1, 3]
    """

    def __init__(self, columns: Sequence[Any], edges: Sequence[Any]) -> None:
        self._columns = [_numbers(column) for column in columns]
        self.edges = [np.asarray(one, dtype=np.float64) for one in edges]
        if len(self._columns) != len(self.edges):
            raise ValueError(f"edges of {len(self.edges)} columns are not for {len(self._columns)} columns")
        if len({column.shape for column in self._columns}) > 1 or any(column.ndim != 1 for column in self._columns):
            raise ValueError("columns must be vectors of one length: a record has one value in each")
        for own in self.edges:
            if own.ndim != 1 or len(own) < 2 or not np.isfinite(own).all() or not (np.diff(own) > 0).all():
                raise ValueError("edges must be finite and increasing, at least two for each column")

    @property
    def n_columns(self) -> int:
        """How many cells one record can be in."""
        return len(self.edges)

    def counts(self) -> list[Array]:
        """Return whole numbers of values, one array for each column and one entry for each cell."""
        return [_counts(column, own) for column, own in zip(self._columns, self.edges, strict=True)]


def _numbers(column: Any) -> Array:
    """Return a column as an array of real numbers; what it holds instead is not told."""
    array = np.asarray(column)
    if array.dtype.kind == "O":
        with suppress(TypeError, ValueError, OverflowError):
            array = array.astype(np.float64)
    if array.dtype.kind not in "biuf":
        raise ValueError("columns must be real numbers, and NaN where they are missing")
    return array


def _counts(column: Array, edges: Array) -> Array:
    total = np.zeros(len(edges) - 1, dtype=np.int64)
    for start in range(0, len(column), _BLOCK):
        values = column[start : start + _BLOCK].astype(np.float64)
        places = np.searchsorted(edges[1:-1], values[~np.isnan(values)], side="right")
        total += np.bincount(places, minlength=len(total))
    return total
