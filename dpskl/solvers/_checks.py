"""Checks of the solvers' own parameters, with one wording."""

from __future__ import annotations

from math import inf
from numbers import Integral, Real
from typing import Any

__all__ = ["check_choice", "check_count", "check_number", "check_sampling", "check_step"]

# epsilon and delta below which grids of privacy losses outgrow memory or drown in rounding
_SMALLEST_SAMPLED = (1e-4, 1e-15)
_LARGEST_STEP = 1e50  # beyond, weights could overflow


def check_number(
    name: str,
    value: Any,
    low: float = 0.0,
    high: float = inf,
    *,
    closed: bool = False,
    closed_high: bool = False,
    optional: bool = False,
) -> None:
    """Raise unless ``value`` is a finite number between ``low`` and ``high``; the ends count where they are closed."""
    if optional and value is None:
        return
    is_number = isinstance(value, Real) and not isinstance(value, bool)
    at_an_end = (closed and value == low) or (closed_high and value == high)
    if not (is_number and (low < value < high or at_an_end)):
        if high < inf:
            wanted = f"a number in {'[' if closed else '('}{low:g}, {high:g}{']' if closed_high else ')'}"
        elif closed:
            wanted = f"a finite number of at least {low:g}"
        else:
            wanted = "a positive finite number" if low == 0 else f"a finite number above {low:g}"
        raise ValueError(f"{name}={value!r} must be {'None or ' if optional else ''}{wanted}")


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
        listed = " or ".join(map(repr, choices)) if len(choices) < 3 else f"one of {', '.join(map(repr, choices))}"
        raise ValueError(f"{name}={value!r} must be {listed}")


def check_sampling(name: str, neighbours: str, epsilon: float, delta: float, instead: str) -> None:
    """Raise where Poisson samples have no bound, or one that cannot be computed; ``instead`` reads all records."""
    if neighbours != "add_remove":
        raise ValueError(
            f"neighbours={neighbours!r} has no proved bound for the samples of solver={name!r}; "
            f"choose 'add_remove', or {instead}, which reads all records"
        )
    for word, value, smallest in zip(("epsilon", "delta"), (epsilon, delta), _SMALLEST_SAMPLED, strict=True):
        if value < smallest:
            raise ValueError(
                f"{word}={value:g} is too small to account for samples; take at least {smallest:g}, or "
                f"{instead}, which reads all records"
            )


def check_step(step: float, row_norm: float, power: int = 2, name: str = "step_size") -> None:
    """Raise where steps are so long that scores could overflow; ``power`` is that of the row norm in their unit."""
    if step * row_norm**power > _LARGEST_STEP:
        unit = "squared row norm" if power == 2 else "row norm"
        raise ValueError(f"{name}={step:g} times the {unit} must not exceed {_LARGEST_STEP:g}")
