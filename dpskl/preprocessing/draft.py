"""A first draft of a schema from public records, for a person to edit."""

from __future__ import annotations

import numbers
import warnings
from collections.abc import Callable
from math import ceil, floor, log10
from typing import Any

import numpy as np

from dpskl.exceptions import PrivacyLeakWarning
from dpskl.preprocessing.declarations import Categories, Declaration, Drop, Numeric
from dpskl.preprocessing.frames import Column, as_numbers, as_places, refused, table_of
from dpskl.preprocessing.knots import to_axis

__all__ = ["draft_of"]

Array = np.ndarray[Any, Any]

_BINS = 8
_MORE_EVEN = 0.25  # bits that a log axis must add to the entropy of equal bins
_NAMES_FROM = 50  # as many different words may be names or free text


def draft_of(public_example: Any) -> dict[str, Declaration]:
    """Return a declaration for each column; see ``Schema.from_frame``, which also says what it raises and warns of."""
    table = table_of(public_example)
    if table.names is None:
        raise ValueError("the example has no column names, which a schema goes by: pass a frame or a dict of columns")
    draft: dict[str, Declaration] = {}
    for place, name in enumerate(table.names):
        if name in draft:
            raise refused(name, "is there twice", "rename one of the two")
        draft[name] = _declaration(table.column(place, name), name)
    dropped = [name for name, declared in draft.items() if isinstance(declared, Drop)]
    unclear = f"; {dropped} have fewer than two values or hardly one twice, and are dropped" if dropped else ""
    warnings.warn(
        "the draft shows extremes and values of the records that it was made from, which must be public or made up, "
        f"and never those that a model is fitted to; edit it before use{unclear}",
        PrivacyLeakWarning,
        stacklevel=3,
    )
    return draft


def _declaration(column: Column, name: Any) -> Declaration:
    if column.places is None and column.values.dtype.kind in "iuf":
        return _range(as_numbers(column, name), name)
    as_places(column, {}, name)  # refuses dates and what is no category
    places = column.places if column.places is not None else np.arange(len(column.values))
    present = column.values[places[places >= 0]]
    if column.missing is not None:
        present = present[~column.missing[places[places >= 0]]]
    values = _different(present)
    if values and all(isinstance(value, numbers.Real) and not isinstance(value, bool) for value in values):
        if column.places is None:
            return _range(as_numbers(column, name), name)
    elif len(values) > _NAMES_FROM and 2 * len(values) > len(present):
        return Drop()
    return Categories(values) if len(values) > 1 else Drop()


def _different(present: Array) -> list[Any]:
    found = {value.item() if isinstance(value, np.generic) else value for value in set(present.tolist())}
    known = [value for value in found if isinstance(value, (str, bool, numbers.Real)) and value == value]
    by_label = {str(value): value for value in sorted(known, key=lambda value: (type(value).__name__, str(value)))}
    return sorted(by_label.values(), key=lambda value: (isinstance(value, str), value))


def _range(values: Array, name: Any) -> Declaration:
    values = values[~np.isnan(values)]
    if np.isinf(values).any():
        raise refused(name, "has infinite values", "replace them, by NaN where they stand for a gap")
    if len(values) == 0 or values.min() == values.max():
        return Drop()
    ends = float(values.min()), float(values.max())
    if np.isin(values, ends).all():  # such as 0 and 1: a line says all
        return Numeric(*ends, n_knots=None)
    straight, bent = _whole_units(*ends), _first_digits(*ends)
    gain = _evenness(values, *bent, "log") - _evenness(values, *straight, "linear")
    return Numeric(*bent, spacing="log") if gain > _MORE_EVEN else Numeric(*straight)


def _whole_units(low: float, high: float) -> tuple[float, float]:
    """Return bounds in whole units of a power of ten, of which at least two are between the values."""
    exponent = floor(log10((high - low) / 2))
    return _outwards(low, exponent, floor), _outwards(high, exponent, ceil)


def _first_digits(low: float, high: float) -> tuple[float, float]:
    """Return bounds of one digit before zeros."""
    low, high = (
        _outwards(end, floor(log10(abs(end))), way) if end else end for end, way in ((low, floor), (high, ceil))
    )
    return low, high


def _outwards(end: float, exponent: int, way: Callable[[float], int]) -> float:
    rounded = round(way(end / 10.0**exponent) * 10.0**exponent, -exponent)
    return min(rounded, end) if way is floor else max(rounded, end)


def _evenness(values: Array, low: float, high: float, spacing: str) -> float:
    """Return the entropy, in bits, of the values in equal bins on an axis."""
    ends = to_axis(np.array([low, high]), spacing)
    counts, _ = np.histogram(to_axis(values, spacing), bins=_BINS, range=(float(ends[0]), float(ends[1])))
    shares = counts[counts > 0] / len(values)
    return float(-(shares * np.log2(shares)).sum())
