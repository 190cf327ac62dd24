"""Privacy of AboveThreshold when a record moves all queries within one interval: a stopping game.

A record changes query j by some d_j. Where all d_j of one record lie in an interval [a - 1, a] of known length (the
unit here) whose place, a in [0, 1], is unknown, the threshold can absorb the place, and the query noise has to hide the
length only once. So it is for the differences f(w) - f(w_j) of a line search on a sum of losses in [0, 1], where a is
the record's loss at w, or for changes within [-1/2, 1/2]. Queries may depend on earlier answers.

Bound of order alpha. Let z be the noisy threshold. Couple z without the record with z + a - theta with it: the
divergence of the threshold noise is paid for a shift of at most max(theta, 1 - theta), since a is in [0, 1]. *Given*
z, the answers are independent coins, tossed until the first success. A success has probability b = S(x) on one side
and b' = S(x + t) on the other, S being the survival function of the query noise, t any number in
[-theta ratio, (1 - theta) ratio] and ratio = 1 / query scale. The adversary chooses x and t of every coin, hence

    W_0 = 1,   W_j = max(W_{j-1}, max over x, t of b^alpha b'^(1-alpha) + (1-b)^alpha (1-b')^(1-alpha) W_{j-1}),
    R(alpha) <= R_threshold(alpha; max(theta, 1-theta)) + log W_k / (alpha - 1).

The bracket is convex in b', so only both ends of t matter. The moment is jointly convex in both laws, which moves the
mixture over z outside. Each theta in [0, 1] gives a bound for every pair of neighbours, so the smallest is valid. The
other direction is a -> 1 - a. Unused candidates are not refunded: k is the number of candidates, not of answers.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache

import numpy as np
from scipy.special import log_ndtr

from dpskl.accounting._laws import Array
from dpskl.accounting._numeric import check_range
from dpskl.accounting.conversion import gaussian_rdp, laplace_rdp

__all__ = ["log_stopping_value", "smallest_query_scale"]

_POINTS = 3000  # of the grid, and more where it is long
_WIDEST_STEP = 0.03
_POINTS_BETWEEN_KINKS = 800
_MARGIN = 1.0005  # the grid misses less than 1e-4 of the maximum
_LARGEST_SHIFT = 300.0  # of alpha * ratio, beyond which the grid would be too coarse


def _laplace_log_survival(x: Array) -> Array:
    tail = 0.5 * np.exp(-np.abs(x))
    return np.where(x > 0.0, -x - math.log(2.0), np.log1p(-tail))


# survival function of the unit noise, as a logarithm; both laws are symmetric
_LOG_SURVIVAL: dict[str, Callable[[Array], Array]] = {
    "gaussian": lambda x: np.asarray(log_ndtr(-x)),
    "laplace": _laplace_log_survival,
}
# divergence of one noisy number, as a function of shift / scale and the order
NOISE_RDP: dict[str, Callable[[float, float], float]] = {"gaussian": gaussian_rdp, "laplace": laplace_rdp}


def check_law(law: str) -> str:
    if law not in NOISE_RDP:
        raise ValueError(f"law must be 'gaussian' or 'laplace', got {law!r}.")
    return law


def check_count(count: int) -> int:
    checked = check_range("count", count, 1.0, open_high=True)
    if checked != int(checked):
        raise ValueError(f"count must be an integer of at least 1, got {count!r}.")
    return int(checked)


@lru_cache(maxsize=2**16)
def log_stopping_value(law: str, count: int, alpha: float, ratio: float, theta: float) -> float:
    """Logarithm of the value W_k of the stopping game, from above.

    Parameters
    ----------
    law : {"gaussian", "laplace"}
        Law of the query noise.
    count : int
        Number k of candidates, at least 1.
    alpha : float
        Renyi order, above 1.
    ratio : float
        Length of the interval of changes over the scale of the query noise, in [0, inf].
    theta : float
        Share of the interval that lies below the shift of the threshold, in [0, 1].

    Returns
    -------
    float
        An upper bound, at most 0.1 % above the value (where ``count`` differences of the query noise, composed, are
        smaller, that sum); ``inf`` where ``alpha * ratio`` exceeds 300.

    Notes
    -----
    The recursion of the module docstring on a grid. For t = -theta ratio the maximum lies near x = -(alpha - 1) theta
    ratio, which the grid must reach. Laplace noise has kinks at x = 0 and x = -t, which are points of it.

    Examples
    --------
    >>> round(log_stopping_value("gaussian", 30, 8.0, 0.1, 0.0) / 1.0005, 5)
    0.72458
    """
    law, count = check_law(law), check_count(count)
    alpha = check_range("alpha", alpha, 1.0, open_low=True)
    ratio, theta = check_range("ratio", ratio, 0.0), check_range("theta", theta, 0.0, 1.0)
    if ratio == 0.0:
        return 0.0
    if alpha * ratio > _LARGEST_SHIFT:
        return math.inf
    success, failure = _coins(law, alpha, ratio, theta)
    value = 0.0
    for _ in range(count):
        value = max(value, float(np.logaddexp(success, failure + value).max()))
    # each step is off by a few roundings of alpha times a logarithm of order 1
    bound = _MARGIN * value + 4e-15 * alpha * count
    # an answer tells less than its noisy query: the smaller bound where noise is so large that rounding rules
    return min(bound, count * (alpha - 1.0) * NOISE_RDP[law](max(theta, 1.0 - theta) * ratio, alpha))


def smallest_query_scale(alpha: float) -> float:
    """Query noise, in units of the interval, below which the game has no finite bound of an order."""
    return alpha / _LARGEST_SHIFT * (1.0 + 1e-12)


def _coins(law: str, alpha: float, ratio: float, theta: float) -> tuple[Array, Array]:
    """Log coefficients (success, failure) of the coins that can be best for some W: no other is larger in both."""
    low, high = -12.0 - 3.0 * alpha * theta * ratio, 12.0 + 3.0 * alpha * (1.0 - theta) * ratio
    shifts = {-theta * ratio, (1.0 - theta) * ratio} - {0.0}  # equal coins gain nothing
    x = np.linspace(low, high, max(_POINTS, math.ceil((high - low) / _WIDEST_STEP)))
    if law == "laplace":
        between = np.linspace(-2.0 * ratio, 2.0 * ratio, _POINTS_BETWEEN_KINKS)
        x = np.concatenate([x, between, [0.0], [-t for t in shifts]])
    log_survival = _LOG_SURVIVAL[law]
    above, below = log_survival(x), log_survival(-x)
    success, failure = [], []
    for t in shifts:
        above_moved, below_moved = log_survival(x + t), log_survival(-x - t)
        success.append(above + (alpha - 1.0) * (above - above_moved))
        failure.append(below + (alpha - 1.0) * (below - below_moved))
    first, second = np.concatenate(success), np.concatenate(failure)
    order = np.argsort(-first, kind="stable")
    first, second = first[order], second[order]
    kept = np.append(True, second[1:] > np.maximum.accumulate(second)[:-1])
    return first[kept], second[kept]
