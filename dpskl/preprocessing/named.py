"""Bounds that are given by name: brought into the order of the columns, never used by position."""

from __future__ import annotations

import reprlib
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

__all__ = ["by_column", "in_order", "is_named"]


def _named(bound: Any) -> dict[Any, Any] | None:
    """Return the values by name of a mapping or a pandas Series, or None for what has no names."""
    if isinstance(bound, Mapping):
        return dict(bound)
    index = getattr(bound, "index", None)
    if index is None or callable(index):
        return None
    names = list(index)
    if names == list(range(len(names))):
        return None  # places, not names
    if len(set(names)) < len(names):
        raise ValueError(f"{reprlib.repr(bound)} names a column twice")
    return dict(zip(names, bound, strict=True))


def is_named(bound: Any) -> bool:
    """Whether a bound is given by name."""
    return _named(bound) is not None


def _differing(name: str, given: Iterable[Any], wanted: Iterable[Any], whose: str) -> str | None:
    missing, unknown = sorted(set(wanted) - set(given), key=str), sorted(set(given) - set(wanted), key=str)
    if not (missing or unknown):
        return None
    parts = [f"lacks {missing}"] * bool(missing) + [f"has {unknown}, which are not there"] * bool(unknown)
    return f"{name} is given by name and {' and '.join(parts)}: {whose}"


def in_order(bounds: tuple[Any, Any], labels: tuple[str, str], columns: Iterable[str] | None) -> tuple[Any, Any]:
    """Return two bounds by position.

    Parameters
    ----------
    bounds : tuple of (number, array-like, mapping or Series)
    labels : tuple of (str, str)
        What the bounds are called in messages.
    columns : iterable of str or None
        Names of the columns where they are known: what is named is brought into their order. Without them the second
        bound is brought into the order of the first.

    Raises
    ------
    ValueError
        If the names of a bound are not those of the columns, or not those of the other bound.
    """
    named = [_named(bound) for bound in bounds]
    order = None if columns is None else list(columns)
    if order is None:
        first = next((values for values in named if values is not None), None)
        order = None if first is None else list(first)
        whose = "the other bound has other names"
    else:
        whose = f"the columns of X are {order}"
    made = []
    for label, bound, values in zip(labels, bounds, named, strict=True):
        if values is None or order is None:
            made.append(bound)
            continue
        problem = _differing(label, values, order, whose)
        if problem:
            raise ValueError(problem)
        made.append(np.asarray([values[name] for name in order]))
    return made[0], made[1]


def by_column(label: str, given: Any, columns: Iterable[str], default: Any) -> list[Any]:
    """Return what is given by name for some of the columns, in the order of all, and ``default`` for the others.

    Raises
    ------
    ValueError
        If a name is not that of a column.
    """
    order, values = list(columns), _named(given) or {}
    if unknown := sorted(set(values) - set(order), key=str):
        raise ValueError(
            f"{label} is given by name and has {unknown}, which are not there: the columns of X are {order}"
        )
    return [values.get(name, default) for name in order]
