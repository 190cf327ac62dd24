"""Checks of arguments and the root search that the numeric modules share."""

from __future__ import annotations

import math
from collections.abc import Callable

# Budgets of fits and of what is calibrated numerically. Below, Renyi orders and privacy losses run into rounding, and
# noise drowns the sum of a million records.
SMALLEST_EPSILON = 1e-6
AIM = 5e-4  # relative distance from the target at which the search for a noise scale aims
# Guesses are right to a factor of a few, of thousands where other costs leave next to nothing. Beyond e^20 of one what
# is left is rounding, such as deltas that a profile cannot tell from 0.
_FARTHEST = 20.0


def check_range(
    name: str,
    value: float,
    low: float,
    high: float = math.inf,
    *,
    open_low: bool = False,
    open_high: bool = False,
) -> float:
    """Return ``value`` as a float if it lies in the interval from ``low`` to ``high``, else raise.

    Parameters
    ----------
    name : str
        How the message calls the value.
    value : float
        The value.
    low, high : float
        Ends of the interval, allowed values themselves unless the flags below say otherwise.
    open_low, open_high : bool, default=False
        Whether the end is excluded.

    Returns
    -------
    float
        The value.

    Raises
    ------
    ValueError
        If the value is outside, or not a number.

    Examples
    --------
    >>> check_range("delta", 1e-6, 0.0, 1.0)
    1e-06
    """
    value = float(value)
    above = value > low if open_low else value >= low
    below = value < high if open_high else value <= high
    if not (above and below):  # NaN fails both comparisons
        left, right = ("(" if open_low else "["), (")" if open_high else "]")
        raise ValueError(f"{name} must lie in {left}{low:g}, {high:g}{right}, got {value!r}.")
    return value


def smallest_true(condition: Callable[[float], bool], low: float, high: float, rtol: float = 1e-15) -> float:
    """Smallest point at which a monotone condition holds, from above: the condition holds at the result.

    Parameters
    ----------
    condition : callable
        False below some point and true above it.
    low, high : float
        Bracket; the condition is taken to be true at ``high`` and false at ``low`` (neither is evaluated).
    rtol : float, default=1e-15
        Width of the final bracket relative to its upper end.

    Returns
    -------
    float
        Upper end of the final bracket.

    Examples
    --------
    >>> round(smallest_true(lambda x: x * x >= 2, 0.0, 2.0), 12)
    1.414213562373
    """
    for _ in range(2200):  # enough to walk through every binary exponent
        middle = low + (high - low) / 2.0
        if high - low <= rtol * abs(high) or middle in (low, high):
            break
        if condition(middle):
            high = middle
        else:
            low = middle
    return high


def safe_log_noise(reached: Callable[[float], float], epsilon: float, guess: float, floor: float) -> float:
    """Log noise at which a decreasing epsilon lies in [(1 - 1e-3) target, target], by the Illinois method.

    Raises
    ------
    ValueError
        If no noise near the guess is seen to be enough.
    """
    answer: float | None = None

    def excess(log_sigma: float) -> float:
        nonlocal answer
        value = reached(log_sigma)
        if epsilon * (1.0 - 2.0 * AIM) <= value <= epsilon:
            answer = log_sigma
        if not value >= 0.0:
            return 2.0  # no number is no promise
        # bounded, or an epsilon of 0 or infinity would rule the secant
        return min(2.0, max(-2.0, math.log(value) - math.log(epsilon * (1.0 - AIM)))) if value > 0.0 else -2.0

    low = high = guess
    at_low = at_high = excess(guess)
    step = 0.25
    while at_high > 0.0 and answer is None:
        if high + step > guess + _FARTHEST:
            raise ValueError(
                f"A budget of {epsilon:g} is too small: no noise was seen to keep within it, rounding included; raise "
                "epsilon or delta."
            )
        low, at_low, high, step = high, at_high, high + step, 1.5 * step
        at_high = excess(high)
    while at_low <= 0.0 and answer is None:
        if low <= floor:
            return low
        high, at_high, low, step = low, at_low, max(low - step, floor), 1.5 * step
        at_low = excess(low)
    previous = 0.0
    while answer is None and high - low > 1e-12 * max(1.0, abs(high)):
        middle = (low * at_high - high * at_low) / (at_high - at_low)
        value = excess(middle)
        if value > 0.0:
            low, at_low = middle, value
            at_high /= 2.0 if previous > 0.0 else 1.0
        else:
            high, at_high = middle, value
            at_low /= 2.0 if previous < 0.0 else 1.0
        previous = 1.0 if value > 0.0 else -1.0
    return high if answer is None else answer
