"""Checks of the solvers' own parameters, with one wording."""

from __future__ import annotations

from math import inf
from numbers import Integral, Real
from typing import Any

__all__ = ["check_choice", "check_count", "check_number"]


def check_number(
    name: str, value: Any, low: float = 0.0, high: float = inf, *, closed: bool = False, optional: bool = False
) -> None:
    """Raise unless ``value`` is a finite number strictly between ``low`` and ``high`` (or equal to ``low``: closed)."""
    if optional and value is None:
        return
    is_number = isinstance(value, Real) and not isinstance(value, bool)
    if not (is_number and (low < value < high or (closed and value == low))):
        limits = f"{'at least' if closed else 'above'} {low:g}" + (f" and below {high:g}" if high < inf else "")
        raise ValueError(f"{name}={value!r} must be {'None or ' if optional else ''}a finite number {limits}")


def check_count(name: str, value: Any, low: int = 1, high: int | None = None, *, optional: bool = False) -> None:
    """Raise unless ``value`` is a whole number from ``low`` to ``high``."""
    if optional and value is None:
        return
    is_count = isinstance(value, Integral) and not isinstance(value, bool)
    if not (is_count and value >= low and (high is None or value <= high)):
        limits = f"of at least {low}" if high is None else f"from {low} to {high}"
        raise ValueError(f"{name}={value!r} must be {'None or ' if optional else ''}a whole number {limits}")


def check_choice(name: str, value: Any, choices: tuple[str, ...]) -> None:
    """Raise unless ``value`` is one of the words."""
    if not (isinstance(value, str) and value in choices):
        raise ValueError(f"{name}={value!r} must be {' or '.join(map(repr, choices))}")
