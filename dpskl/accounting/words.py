"""Numbers of a guarantee as people read them: an upper bound is rounded up, a lower bound down."""

from __future__ import annotations

from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal
from math import isfinite

__all__ = ["at", "at_least", "at_most"]


def _rounded(value: float, digits: int, rounding: str) -> str:
    if not isfinite(value):
        return f"{value:g}"
    # the shortest decimal of a float stands for it: 0.1 is to print as 0.1
    exact = Decimal(repr(float(value)))
    return f"{float(Context(prec=digits, rounding=rounding, traps=[]).plus(exact)):.{digits}g}"


def at_most(value: float, digits: int = 6) -> str:
    """Return a decimal of a few digits that is not below ``value``: an epsilon, a delta, a sensitivity.

    Examples
    --------
    >>> at_most(1.0000049), at_most(0.5), at_most(1e-6), at_most(7.902431234)
    ('1.00001', '0.5', '1e-06', '7.90244')
    """
    return _rounded(value, digits, ROUND_CEILING)


def at_least(value: float, digits: int = 6) -> str:
    """Return a decimal of a few digits that is not above ``value``: a scale of noise, what is left of a budget.

    Examples
    --------
    >>> at_least(0.99999999), at_least(2.0)
    ('0.999999', '2')
    """
    return _rounded(value, digits, ROUND_FLOOR)


def at(epsilon: float, delta: float) -> str:
    """Return the words for an (epsilon, delta) pair that bounds from above.

    Examples
    --------
    >>> at(1.0000049, 1e-6)
    'epsilon = 1.00001 at delta = 1e-06'
    """
    return f"epsilon = {at_most(epsilon)} at delta = {at_most(delta)}"
