"""What a guarantee for one record is worth to somebody with several of them."""

from __future__ import annotations

import math
from itertools import accumulate
from numbers import Integral

from scipy.special import log_ndtr, logsumexp, ndtri_exp

from dpskl.accounting._numeric import check_range, smallest_true
from dpskl.accounting.conversion import _mills
from dpskl.accounting.costs import ApproximateCost, ComposedCost, Cost, GaussianCost, PureCost, ZCDPCost, compose
from dpskl.accounting.costs.composed import exact

__all__ = ["group_epsilon"]

_ROUNDING = 1e-9  # relative, of a delta whose logarithm was computed
_SMALLEST_DELTA = 1e-300  # a profile that returns less may have run into the end of floating point
_LARGEST_EPSILON = 1e6


def group_epsilon(cost: Cost, k: int, delta: float) -> float:
    """Smallest proved epsilon for neighbours that differ in ``k`` records.

    Parameters
    ----------
    cost : Cost
        For one record: present or absent, or exchanged.
    k : int
        Number of records, at least 1: present or absent together, or all exchanged.
    delta : float
        In [0, 1].

    Returns
    -------
    float
        At least 0; ``inf`` where nothing is proved.

    Notes
    -----
    Data sets that differ in k records are the ends of a chain whose links are neighbours. Let P_0, ..., P_k be the laws
    of the outcome along it. Every link has P_i(S) <= e^(x_i) P_(i-1)(S) + delta(x_i) for every real x_i, and so

        P_k(S) <= e^(x_1 + ... + x_k) P_0(S) + sum_i delta(x_i) e^(x_(i+1) + ... + x_k).

    * With equal x: (k x, delta(x) (e^(k x) - 1) / (e^x - 1)), for every cost.
    * The best x_i are the slopes of the trade-off map G(p) = min_x e^x p + delta(x) along p, G(p), G(G(p)), ...
      For objective perturbation, whose profile is H(t, x - a), the map is p -> Phi(Phi^-1(min(1, e^a p)) + t), and its
      slopes have logarithm a - z t - t^2/2 at z = Phi^-1(e^a p). The pair (k t, k a) would be too small.
    * A pure guarantee E gives k E (one term, delta(E) = 0). A Gaussian mechanism gives mu k: the map with a = 0,
      iterated (Dong, Roth & Su 2022, theorem 2.14). rho-zCDP gives k^2 rho (Bun & Steinke 2016, proposition 1.9).
      Each release of a composition may be taken by its own group guarantee, and these be composed.

    Epsilon grows faster than k unless the guarantee is pure.

    Examples
    --------
    >>> one = GaussianCost(0.236704381)  # epsilon = 1 at delta = 1e-6
    >>> [round(group_epsilon(one, k, 1e-6), 2) for k in (1, 2, 5, 20)]
    [1.0, 2.12, 5.93, 33.02]
    >>> group_epsilon(PureCost(0.1), 3, 0.0)
    0.3
    """
    if not isinstance(k, Integral) or isinstance(k, bool) or k < 1:
        raise ValueError(f"k={k!r} must be a whole number of records, at least 1")
    k, delta = int(k), check_range("delta", delta, 0.0, 1.0)
    if k == 1 or delta == 1.0:
        return cost.epsilon(delta)
    whole = _grouped(cost, k)
    bounds = [math.inf if whole is None else whole.epsilon(delta)]
    is_exact = isinstance(cost, PureCost) or (isinstance(cost, GaussianCost) and cost.shift == 0.0)
    if delta > 0.0 and not is_exact:
        bounds.append(_equal_links(cost, k, delta))
        if isinstance(cost, GaussianCost) and 0.0 < cost.mu < math.inf:
            bounds.append(_best_links(cost.mu, cost.shift, k, delta))
    return min(bounds)


def _grouped(cost: Cost, k: int) -> Cost | None:
    """Return a cost that covers k records, where one has a closed form."""
    if isinstance(cost, GaussianCost) and cost.shift == 0.0:
        return GaussianCost(k * cost.mu)
    if isinstance(cost, ZCDPCost):
        return ZCDPCost(k * k * cost.rho)
    if isinstance(cost, ComposedCost):
        parts = [(_grouped(part, k), count) for part, count in cost.parts]
        known = [(part, count) for part, count in parts if part is not None]
        return compose(known) if len(known) == len(parts) else None
    return PureCost(float(k * exact(cost.pure_epsilon))) if cost.pure_epsilon < math.inf else None


def _equal_links(cost: Cost, k: int, delta: float) -> float:
    """Smallest k x with delta(x) (e^(k x) - 1) / (e^x - 1) <= delta."""

    def holds(x: float) -> bool:
        own = cost.delta(x)
        if own == 0.0 and cost.pure_epsilon <= x:
            return True
        # log((e^(kx) - 1) / (e^x - 1)); k where x is 0
        terms = (k - 1) * x + math.log(math.expm1(-k * x) / math.expm1(-x)) if x > 0.0 else math.log(k)
        return math.log(max(own, _SMALLEST_DELTA)) + terms + _ROUNDING <= math.log(delta)

    low = cost.epsilon(delta)  # below, one link alone exceeds delta
    # a cost that is known at one point is used there
    points = [cost.stated_epsilon] if isinstance(cost, ApproximateCost) else []
    for x in (low, *points):
        if x == math.inf or holds(x):
            return k * x
    high = 1.1 * low + 1e-3
    while not holds(high):
        low, high = high, 1.1 * high
        if k * high > _LARGEST_EPSILON:
            return math.inf
    return k * smallest_true(holds, low, high, rtol=1e-6)


def _best_links(t: float, shift: float, k: int, delta: float) -> float:
    """The bound through the slopes of the trade-off map, for a profile H(t, x - shift)."""

    def chain(log_p: float) -> tuple[float, float]:
        """Sum of the x and logarithm of the delta, for the slopes along the path that begins at p."""
        slopes, losses = [], []
        for _ in range(k):
            if log_p + shift >= 0.0:
                return 0.0, math.inf
            z = float(ndtri_exp(log_p + shift))
            slopes.append(shift - z * t - t * t / 2.0)
            losses.append(_log_intercept(t, z))
            log_p = float(log_ndtr(z + t))
        *behind, total = accumulate(
            reversed(slopes), initial=0.0
        )  # sums of the slopes after each link, last link first
        terms = [loss + slope for loss, slope in zip(reversed(losses), behind, strict=True)]
        return total, float(logsumexp(terms)) + _ROUNDING

    goal, step = math.log(delta), 1.0
    while chain(-shift - step)[1] > goal:
        step *= 2.0
        if step > 1e12:
            return math.inf
    best = smallest_true(lambda value: chain(-shift - value)[1] <= goal, step / 2.0, step, rtol=1e-12)
    epsilon = chain(-shift - best)[0]
    return max(0.0, epsilon + 1e-12 * abs(epsilon))


def _log_intercept(t: float, z: float) -> float:
    """log(Phi(z + t) - e^(-z t - t^2/2) Phi(z)), which is log H(t, -z t - t^2/2), far below the smallest float too."""
    x = -z - t
    if x < -8.0:
        return 0.0  # at most 1
    # H = phi(x) (M(x) - M(x + t)); M is convex, so its slope bounds what cancellation would spoil
    difference = _mills(x) - _mills(x + t) if t > 1e-5 else t * (1.0 - x * _mills(x))
    if not difference > 0.0:
        return math.inf
    return -x * x / 2.0 - math.log(2.0 * math.pi) / 2.0 + math.log(difference)
