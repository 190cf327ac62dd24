"""Columns of a table, wherever they come from: pandas, polars, Arrow, a dictionary, or an array without names.

The three libraries are not imported: a frame of one of them can be there only if its user has imported it.
"""

from __future__ import annotations

import datetime
import numbers
import sys
from collections.abc import Callable, Mapping
from itertools import repeat
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

__all__ = ["Column", "Table", "as_numbers", "as_places", "refused", "table_of"]

Array = np.ndarray[Any, Any]

_DATES = (datetime.date, datetime.time, datetime.timedelta, np.datetime64, np.timedelta64)
_DATE_REMEDY = (
    "make numbers of them that are public, such as years or the days since a fixed day, or declare the column 'drop'"
)
UNKNOWN, GAP = -1, -2


class Column(NamedTuple):
    """Values of one column, or different values and a place among them for each row.

    ``values`` is of numbers, bools or objects; a value is missing where it is NaN, None or the like, where
    ``missing`` is true, and where a place is -1.
    """

    values: Array
    missing: Array | None = None
    places: Array | None = None

    def spread(self, read: Array, gap: Any) -> Array:
        """Return for each row what was read from ``values``, and ``gap`` where it is missing."""
        if self.missing is not None:
            read[self.missing] = gap
        return read if self.places is None else np.append(read, np.array([gap], dtype=read.dtype))[self.places]


class Table(NamedTuple):
    """Names of columns, where there are some, the number of rows, and a function from places to columns."""

    names: list[Any] | None
    n_columns: int
    n_rows: int
    raw: Callable[[int], Any]

    def column(self, place: int, name: Any) -> Column:
        """Return a column by its place; ``name`` is for errors."""
        column = _column(self.raw(place), name)
        if len(column.values if column.places is None else column.places) != self.n_rows:
            raise refused(name, f"has another number of rows than the first one, which has {self.n_rows}", "correct it")
        return column


def refused(name: Any, what: str, remedy: str) -> ValueError:
    return ValueError(f"the column {name!r} {what}: {remedy}")


def _library(name: str) -> Any:
    """Return a library that was imported, or None."""
    return sys.modules.get(name)


def _is_a(value: Any, library: str, *classes: str) -> bool:
    """Whether a value is an instance of classes of a library that need not be there."""
    module = _library(library)
    return module is not None and isinstance(value, tuple(getattr(module, name) for name in classes))


def table_of(X: Any) -> Table:
    """Return a table by its columns.

    Parameters
    ----------
    X : pandas or polars DataFrame, Arrow Table or RecordBatch, mapping of columns, or array-like of two dimensions

    Raises
    ------
    TypeError
        If it is something else.
    ValueError
        If an array has another number of dimensions, or there are no rows.
    """
    if _is_a(X, "polars", "LazyFrame"):
        raise TypeError("X is a polars LazyFrame, which has no rows yet: pass X.collect()")
    if sp.issparse(X):
        raise TypeError("Sparse data was passed, and a table has words and gaps: pass a frame or X.toarray()")
    if _is_a(X, "pandas", "DataFrame"):
        table = Table(list(X.columns), X.shape[1], len(X), lambda place: X.iloc[:, place])
    elif _is_a(X, "polars", "DataFrame"):
        table = Table(list(X.columns), X.width, X.height, lambda place: X.to_series(place))
    elif _is_a(X, "pyarrow", "Table", "RecordBatch"):
        table = Table(list(X.schema.names), X.num_columns, X.num_rows, X.column)
    elif isinstance(X, Mapping):
        columns = list(X.values())
        table = Table(list(X), len(columns), _length(X), columns.__getitem__)
    elif any(hasattr(X, name) for name in ("columns", "column_names", "__dataframe__")):
        # as an array it would lose its names, and columns would go by an order that nobody checks
        kind = f"{type(X).__module__}.{type(X).__name__}"
        raise TypeError(f"X is a table of a kind that is not known, {kind}: convert it to pandas, polars or Arrow")
    else:
        rows = X if isinstance(X, np.ndarray) else np.asarray(X, dtype=object)
        if rows.ndim != 2:
            raise ValueError(
                f"Expected 2D array, got {rows.ndim}D instead: X must be a frame, a dict of columns, or rows of equal "
                "length. Reshape your data, for one record as X.iloc[[0]] of a frame or as [record]"
            )
        if rows.dtype.kind == "c":
            raise ValueError("Complex data not supported: pass words, numbers or bools")
        table = Table(None, rows.shape[1], len(rows), lambda place: rows[:, place])
    for count, what in ((table.n_columns, "feature(s)"), (table.n_rows, "sample(s)")):
        if count == 0:
            shape = f"(shape=({table.n_rows}, {table.n_columns}))"
            raise ValueError(f"Found array with 0 {what} {shape} while a minimum of 1 is required.")
    return table


def _length(columns: Mapping[Any, Any]) -> int:
    for name, first in columns.items():
        if isinstance(first, str) or not hasattr(first, "__len__"):
            raise refused(name, f"is {type(first).__name__}", "pass a list or an array, for one record a list of one")
        return len(first)
    return 0


def _column(raw: Any, name: Any) -> Column:
    """Return a column of any library in one form."""
    if _is_a(raw, "pandas", "Series", "Index", "Categorical"):
        return _from_pandas(raw, name)
    if _is_a(raw, "polars", "Series"):
        return _from_polars(raw, name)
    if _is_a(raw, "pyarrow", "Array", "ChunkedArray"):
        return _from_arrow(raw, name)
    if isinstance(raw, str) or not hasattr(raw, "__len__"):
        raise refused(name, f"is {type(raw).__name__}", "pass a list or an array, for one record a list of one")
    missing = None
    if isinstance(raw, np.ma.MaskedArray):
        raw, missing = raw.data, np.ma.getmaskarray(raw)
    values = raw if isinstance(raw, np.ndarray) else np.asarray(raw, dtype=object)
    if values.ndim != 1:
        raise refused(name, f"has {values.ndim} dimensions", "pass one value for each row")
    if values.dtype.kind in "mM":
        raise refused(name, "has dates or durations", _DATE_REMEDY)
    if values.dtype.kind not in "iufbUO":
        raise refused(name, f"has values of type {values.dtype}", "pass words, numbers or bools")
    return Column(values.astype(object) if values.dtype.kind == "U" else values, missing)


def _from_pandas(raw: Any, name: Any) -> Column:
    pandas = _library("pandas")
    raw = pandas.Series(raw)
    kind = raw.dtype.kind
    if isinstance(raw.dtype, pandas.CategoricalDtype):
        categories = _column(raw.cat.categories, name)
        return Column(categories.values, categories.missing, raw.cat.codes.to_numpy())
    if kind in "mM":
        raise refused(name, "has dates or durations", _DATE_REMEDY)
    if isinstance(raw.dtype, pandas.SparseDtype):
        raw = raw.sparse.to_dense()
    if isinstance(raw.dtype, np.dtype) or kind not in "iufb":
        return _column(raw.to_numpy(dtype=None if isinstance(raw.dtype, np.dtype) else object), name)
    # whole numbers beside missing ones stay whole; a nullable float may have NaN beside its gaps
    missing = raw.isna().to_numpy(dtype=bool)
    dtype = np.dtype({"i": "i8", "u": "u8", "f": "f8", "b": "?"}[kind])
    return Column(raw.array.to_numpy(dtype=dtype, na_value=dtype.type(0).item()), missing)


def _from_polars(raw: Any, name: Any) -> Column:
    polars = _library("polars")
    dtype = raw.dtype
    if dtype.is_temporal():
        raise refused(name, "has dates or durations", _DATE_REMEDY)
    if dtype.is_decimal():
        raw = raw.cast(polars.Float64)
    elif dtype in (polars.Categorical, polars.Enum):
        raw = raw.cast(polars.String)
    elif dtype.is_numeric() or dtype == polars.Boolean:
        return Column(raw.fill_null(False if dtype == polars.Boolean else 0).to_numpy(), raw.is_null().to_numpy())
    return _column(raw.to_list(), name)


def _from_arrow(raw: Any, name: Any) -> Column:
    pyarrow = _library("pyarrow")
    types = pyarrow.types
    if types.is_dictionary(raw.type):
        raw = raw.cast(raw.type.value_type)
    if types.is_temporal(raw.type):
        raise refused(name, "has dates or durations", _DATE_REMEDY)
    if types.is_decimal(raw.type):
        raw = raw.cast(pyarrow.float64())
    if types.is_integer(raw.type) or types.is_floating(raw.type) or types.is_boolean(raw.type):
        filled = raw.fill_null(pyarrow.scalar(False if types.is_boolean(raw.type) else 0, raw.type))
        return Column(_arrow_values(filled), _arrow_values(raw.is_null()))
    return Column(np.asarray(_arrow_values(raw), dtype=object))


def _arrow_values(raw: Any) -> Array:
    chunked = isinstance(raw, _library("pyarrow").ChunkedArray)
    values: Array = raw.to_numpy() if chunked else raw.to_numpy(zero_copy_only=False)
    return values


def _gaps() -> dict[Any, int]:
    """Return the objects that stand for missing values, NaN left aside, which are many."""
    pandas = _library("pandas")
    return {None: GAP} | ({} if pandas is None else {pandas.NA: GAP, pandas.NaT: GAP})


def as_numbers(column: Column, name: Any) -> Array:
    """Return float64 numbers, NaN where they are missing.

    Raises
    ------
    ValueError
        If there are words or dates among them.
    """
    values = column.values
    if values.dtype.kind == "O":
        gaps = _gaps()
        kinds = set(map(type, values.tolist()))
        wrong = [kind for kind in kinds if not issubclass(kind, numbers.Number) and kind not in set(map(type, gaps))]
        _refuse_dates(wrong, name)
        if wrong or complex in kinds:
            shown = min(kind.__name__ for kind in [*wrong, *({complex} & kinds)])
            remedy = "convert them, a word for a gap to None, or declare the column by a list of values or 'drop'"
            raise refused(name, f"is declared as numbers and has values of type {shown}", remedy)
        if kinds & {type(gap) for gap in gaps}:
            is_gap = np.fromiter(map(gaps.__contains__, values.tolist()), dtype=bool, count=len(values))
            values = np.where(is_gap, np.nan, values)
        try:
            read = values.astype(np.float64)
        except (TypeError, ValueError, OverflowError) as error:
            raise refused(name, f"has a value that is no float ({error})", "convert it") from error
    else:
        read = values.astype(np.float64)
    return column.spread(read, np.nan)


def as_places(column: Column, places: Mapping[Any, int], name: Any) -> Array:
    """Return the place of each value in a declared list, -1 where it has none, and -2 where it is missing.

    Raises
    ------
    ValueError
        If there are values that are no words, numbers or bools.
    """
    values, known = column.values, {**places, **_gaps()}
    try:
        found = np.fromiter(map(known.get, values.tolist(), repeat(UNKNOWN)), dtype=np.intp, count=len(values))
    except TypeError as error:  # what has no hash
        raise refused(name, f"has a value that is no category ({error})", "pass words, numbers or bools") from error
    if (unknown := np.flatnonzero(found == UNKNOWN)).size:
        rest = values[unknown]
        if rest.dtype.kind == "O":
            kinds = set(map(type, rest.tolist()))
            _refuse_dates(kinds, name)
            if wrong := sorted(
                kind.__name__ for kind in kinds if not issubclass(kind, (str, numbers.Number, np.bool_))
            ):
                raise refused(name, f"has values of type {wrong[0]}", "pass words, numbers or bools")
        found[unknown[rest != rest]] = GAP  # NaN of any kind
    return column.spread(found, GAP)


def _refuse_dates(kinds: Any, name: Any) -> None:
    gaps = [type(gap) for gap in _gaps()]
    if any(issubclass(kind, _DATES) for kind in kinds if kind not in gaps):
        raise refused(name, "has dates or durations", _DATE_REMEDY)
