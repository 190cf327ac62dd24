"""How often each value occurs in each of several columns, whatever values there are."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np

__all__ = ["LONGEST", "ColumnValues", "cell_of"]

Value = str | int | float

LONGEST = 200  # characters of a value that can be released
_LARGEST_BITS = 1024  # of whole numbers, as many as the largest float has
_MISSING_TYPES = ("NAType", "NaTType")  # of pandas, which need not be there


def cell_of(value: Any) -> Value | None:
    """Return the value that stands for all that are equal to this one, or None where it is in no cell.

    It depends on the value alone and on no other record: the first of several equal values must not lend all of them
    its type. ``True``, ``1`` and ``1.0`` are 1, ``-0.0`` is 0, numbers and strings of NumPy are those of Python, and
    two floats are one cell where they are equal. Missing values are in no cell (None, NaN, pandas' NA and NaT), nor
    are strings of more than 200 characters, or whole numbers beyond the floats: what is released is written
    down in full.

    Raises
    ------
    ValueError
        If the value is neither a string nor a real number.

    Examples
    --------
    >>> [cell_of(value) for value in (True, np.int8(1), 1.0, "1", 2.5, float("nan"), None)]
    [1, 1, 1, '1', 2.5, None, None]
    """
    if isinstance(value, str):
        return str.__str__(value) if len(value) <= LONGEST else None
    if isinstance(value, float | np.floating):
        number = float(value)
        if number != number:
            return None
        return int(number) if number.is_integer() else number
    if isinstance(value, bool | int | np.bool_ | np.integer):
        whole = int(value)
        return whole if whole.bit_length() <= _LARGEST_BITS else None
    if value is None or type(value).__name__ in _MISSING_TYPES:
        return None
    raise ValueError(f"values of type {type(value).__name__} have no cell: make strings or numbers of them")


def _by_kind(item: tuple[Value, int]) -> tuple[bool, Value]:
    """Numbers first, then strings; each in their order, in which no two cells are equal."""
    return isinstance(item[0], str), item[0]


class ColumnValues:
    """Columns of categories, counted.

    A record has at most one value in each column, so it is in at most one cell of each, whatever the others hold.

    Parameters
    ----------
    columns : sequence of array-like of shape (n,)
        Strings, numbers, booleans, and what is missing; see :func:`cell_of`.

    Raises
    ------
    ValueError
        If the columns are not of one length, or a value is of another type.

    Examples
    --------
    >>> ColumnValues([["b", "a", "b", None], [True, 1.0, 7, 1]]).counts()
    [{'a': 1, 'b': 2}, {1: 3, 7: 1}]
    """

    def __init__(self, columns: Sequence[Any]) -> None:
        if len({len(column) for column in columns}) > 1:
            raise ValueError("columns must be of one length: a record has one value in each")
        self._counts = [Counter(map(cell_of, column)) for column in columns]

    @property
    def n_columns(self) -> int:
        """How many cells one record can be in."""
        return len(self._counts)

    def counts(self) -> list[dict[Value, int]]:
        """Return how often each value occurs, for each column; their order is that of the values, not of the rows."""
        present = ({value: n for value, n in own.items() if value is not None} for own in self._counts)
        return [dict(sorted(own.items(), key=_by_kind)) for own in present]
