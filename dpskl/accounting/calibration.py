"""From a privacy budget to noise, always on the safe side."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

from scipy.optimize import minimize_scalar
from scipy.special import ndtri

from dpskl.accounting._numeric import AIM, SMALLEST_EPSILON, check_range, safe_log_noise, smallest_true
from dpskl.accounting.conversion import bounded_range_rdp, gaussian_delta, sampled_pure_rdp
from dpskl.accounting.costs import AboveThresholdCost, BoundedRangeCost, Cost, SampledGaussianCost, compose
from dpskl.accounting.stopping_game import smallest_query_scale

__all__ = [
    "RDPOrder",
    "bounded_range_at_order",
    "bounded_range_epsilon",
    "calibrate_above_threshold",
    "gaussian_mu",
    "rdp_order",
    "sampled_noise_multiplier",
    "sampled_pure_at_order",
]

_MARGIN = 1e-10
_ROUNDING = 2.0**-48  # relative, of a few sums and logarithms


def gaussian_mu(epsilon: float, delta: float, shift: float = 0.0) -> float:
    """Largest mu of a Gaussian mechanism that fits an (epsilon, delta) budget.

    Parameters
    ----------
    epsilon : float
        Budget, in (0, inf]; ``inf`` asks for no noise.
    delta : float
        Budget, in (0, 1), ends excluded.
    shift : float, default=0.0
        Part of epsilon already used by a shifted profile, as the log-determinant term of objective
        perturbation, in [0, epsilon).

    Returns
    -------
    float
        A mu with ``gaussian_delta(mu, epsilon - shift) <= delta``. It is 1e-10 (relative) below the largest,
        so that a later ``gaussian_epsilon`` or a sum of squares stays inside the budget in spite of
        rounding.

    Raises
    ------
    ValueError
        If a value is outside its range, or ``shift`` leaves nothing of ``epsilon``.

    Notes
    -----
    The noise standard deviation to add is sensitivity / mu (Balle & Wang 2018, analytic Gaussian mechanism).

    Examples
    --------
    >>> round(gaussian_mu(1.0, 1e-6), 9)
    0.236704381
    """
    epsilon = check_range("epsilon", epsilon, 0.0, open_low=True)
    delta = check_range("delta", delta, 0.0, 1.0, open_low=True, open_high=True)
    shift = check_range("shift", shift, 0.0)
    if shift >= epsilon:
        raise ValueError(
            f"shift={shift:g} uses up the whole budget epsilon={epsilon:g}: raise epsilon, or lower the "
            "shift (for objective perturbation, regularise more)."
        )
    left = epsilon - shift
    if left == math.inf:
        return math.inf
    # Phi(mu/2 - left/mu) = delta at this mu, and H is smaller than that
    quantile = -float(ndtri(delta))
    root = math.hypot(quantile, math.sqrt(2.0 * left))
    low = 2.0 * left / (quantile + root) if quantile > 0.0 else root - quantile
    high = 2.0 * low
    while gaussian_delta(high, left) <= delta:
        high *= 2.0
    too_large = smallest_true(lambda mu: gaussian_delta(mu, left) > delta, low, high)
    return too_large * (1.0 - _MARGIN)


@dataclass(frozen=True)
class RDPOrder:
    """Order and budget of a filter that works at one Renyi order.

    Parameters
    ----------
    alpha : float
        Order, above 1.
    budget : float
        Largest sum of divergences of this order that the target allows.
    rho : float
        The zero-concentrated budget, ``budget / alpha``, for which this order is the best one.
    """

    alpha: float
    budget: float
    rho: float


@lru_cache(maxsize=256)
def rdp_order(epsilon: float, delta: float) -> RDPOrder:
    """Best single Renyi order for a sequence of Gaussian-like releases within an (epsilon, delta) budget.

    Parameters
    ----------
    epsilon : float
        Budget, in [1e-6, inf]; ``inf`` allows everything.
    delta : float
        Budget, in (0, 1), ends excluded.

    Returns
    -------
    RDPOrder
        The order that allows the largest rho, with its budget
        B = epsilon - log(1 - 1/alpha) + log(delta alpha)/(alpha - 1).

    Raises
    ------
    ValueError
        If a value is outside its range.

    Notes
    -----
    A sum of divergences at an order *fixed in advance* is a valid filter (Feldman & Zrnic 2021; Lecuyer
    2021). To go on while some order has budget left is not: it can exceed the target.

    Examples
    --------
    >>> order = rdp_order(1.0, 1e-6)
    >>> round(order.alpha, 2), round(order.budget, 6), round(order.rho, 8)
    (21.98, 0.535455, 0.02435597)
    """
    epsilon = check_range("epsilon", epsilon, SMALLEST_EPSILON)
    delta = check_range("delta", delta, 0.0, 1.0, open_low=True, open_high=True)
    if epsilon == math.inf:
        return RDPOrder(2.0, math.inf, math.inf)

    def budget(log_excess: float) -> float:
        excess = math.exp(log_excess)
        return epsilon + math.log1p(1.0 / excess) + (math.log(delta) + math.log1p(excess)) / excess

    def negative_rho(log_excess: float) -> float:
        return -budget(log_excess) / (1.0 + math.exp(log_excess))

    grid = [step / 4.0 for step in range(-120, 121)]
    start = min(grid, key=negative_rho)
    found = minimize_scalar(
        negative_rho, bounds=(start - 0.25, start + 0.25), method="bounded", options={"xatol": 1e-10}
    )
    alpha = 1.0 + math.exp(float(found.x))
    # the terms of the budget cancel where delta is small, and a total is converted back with the same rounding
    excess = alpha - 1.0
    terms = epsilon + math.log1p(1.0 / excess) + (math.log1p(excess) - math.log(delta)) / excess
    allowed = budget(math.log(excess)) - _ROUNDING * terms
    return RDPOrder(alpha, allowed, allowed / alpha)


@lru_cache(maxsize=256)
def sampled_noise_multiplier(
    epsilon: float, delta: float, sampling_rate: float, count: int, others: tuple[tuple[Cost, int], ...] = ()
) -> float:
    """Smallest noise of a Gaussian mechanism on Poisson samples, released a number of times.

    Parameters
    ----------
    epsilon : float
        Budget of all releases together, in [1e-6, inf]; ``inf`` asks for no noise.
    delta : float
        Budget, in (0, 1), ends excluded.
    sampling_rate : float
        Probability with which each record enters each sample, in (0, 1].
    count : int
        Number of releases, each on its own sample, at least 1.
    others : tuple of (Cost, int)
        What else the budget has to hold, with how often.

    Returns
    -------
    float
        Noise standard deviation over sensitivity. The composition computed by
        :func:`~dpskl.accounting.compose` has an epsilon in [(1 - 1e-3) epsilon, epsilon]. Where samples are
        so rare that delta alone covers them, a small multiplier (below 0.03) is returned, with an epsilon
        that may be far below the target.

    Raises
    ------
    ValueError
        If a value is outside its range, the other costs leave nothing, or delta is so small that rounding hides what
        noise does.

    Notes
    -----
    Closed form at sampling rate 1 and nothing else to hold; otherwise a bracketed secant search on the logarithms of
    epsilon and of the noise multiplier, with privacy loss distributions.

    Examples
    --------
    >>> round(sampled_noise_multiplier(1.0, 1e-6, 0.1, 50), 2)
    3.3
    """
    epsilon = check_range("epsilon", epsilon, SMALLEST_EPSILON)
    delta = check_range("delta", delta, 0.0, 1.0, open_low=True, open_high=True)
    rate = check_range("sampling_rate", sampling_rate, 0.0, 1.0, open_low=True)
    if count != int(count) or count < 1:
        raise ValueError(f"count must be an integer of at least 1, got {count!r}.")
    if epsilon == math.inf:
        return 0.0
    unsampled = math.sqrt(count) / gaussian_mu(epsilon, delta)
    if rate == 1.0 and not others:
        return unsampled
    if others and compose(others).epsilon(delta) >= epsilon * (1.0 - 2.0 * AIM):
        raise ValueError(f"the other costs alone use up epsilon={epsilon:g}: make them smaller, or raise epsilon.")

    def reached(log_sigma: float) -> float:
        return compose([(SampledGaussianCost(rate, math.exp(log_sigma)), int(count)), *others]).epsilon(delta)

    floor = math.log(min(unsampled, 0.3) / 10.0)
    return math.exp(safe_log_noise(reached, epsilon, math.log(max(rate * unsampled, 0.7)), floor))


def sampled_pure_at_order(divergence: float, sampling_rate: float, alpha: float) -> float:
    """Largest pure guarantee whose mechanism on a Poisson sample has a Renyi divergence of one order that fits.

    Parameters
    ----------
    divergence : float
        Budget of the release at the order, in [0, inf].
    sampling_rate : float
        In (0, 1].
    alpha : float
        Order, above 1.

    Returns
    -------
    float
        An epsilon with ``sampled_pure_rdp(sampling_rate, epsilon, alpha) <= divergence``.

    Examples
    --------
    >>> from dpskl.accounting import sampled_pure_rdp
    >>> epsilon = sampled_pure_at_order(0.001, 0.1, 8.0)
    >>> 0.999e-3 < sampled_pure_rdp(0.1, epsilon, 8.0) <= 1e-3
    True
    """
    return _largest_within(lambda value: sampled_pure_rdp(sampling_rate, value, alpha), divergence)


@lru_cache(maxsize=1024)
def calibrate_above_threshold(count: int, alpha: float, divergence: float, law: str = "gaussian") -> float:
    """Noise of AboveThreshold for a budget at one Renyi order.

    Parameters
    ----------
    count : int
        Number of candidates, at least 1.
    alpha : float
        Renyi order, above 1.
    divergence : float
        Budget, in (0, inf]; ``inf`` asks for no noise.
    law : {"gaussian", "laplace"}, default="gaussian"
        Law of both noises.

    Returns
    -------
    float
        A scale s, in units of the length of the interval that holds the changes of one record, such that
        ``AboveThresholdCost("gaussian", s * sqrt(1/3), s * sqrt(2/3), count).rdp(alpha)``, or
        ``AboveThresholdCost("laplace", s, s, count).rdp(alpha)``, lies in [(1 - 1e-3) divergence, divergence]. Where
        the bound is finite for larger noise only (a divergence of thousands), the smallest such scale.

    Raises
    ------
    ValueError
        If a value is outside its range.

    Notes
    -----
    Of Gaussian noise one third of the variance goes to the threshold. The divergence is about 1.1 alpha / s^2 for 30
    candidates.

    Examples
    --------
    >>> scale = calibrate_above_threshold(30, 22.0, 0.01)
    >>> cost = AboveThresholdCost("gaussian", scale * math.sqrt(1 / 3), scale * math.sqrt(2 / 3), 30)
    >>> 0.00999 <= cost.rdp(22.0) <= 0.01
    True
    """
    alpha = check_range("alpha", alpha, 1.0, open_low=True, open_high=True)
    divergence = check_range("divergence", divergence, 0.0, open_low=True)
    shares = (math.sqrt(1.0 / 3.0), math.sqrt(2.0 / 3.0)) if law == "gaussian" else (1.0, 1.0)

    def reached(log_scale: float) -> float:
        scale = math.exp(log_scale)
        return AboveThresholdCost(law, scale * shares[0], scale * shares[1], count).rdp(alpha)

    if divergence == math.inf:
        AboveThresholdCost(law, 0.0, 0.0, count)  # checks count
        return 0.0
    # with Laplace noise the pure guarantee bounds the divergence at any scale
    floor = math.log(smallest_query_scale(alpha) / shares[1] if law == "gaussian" else 1e-6 / divergence)
    guess = 0.5 * (math.log(1.1 * alpha) - math.log(divergence))
    return math.exp(safe_log_noise(reached, divergence, max(guess, floor), floor))


@lru_cache(maxsize=256)
def bounded_range_epsilon(epsilon: float, delta: float, count: int) -> float:
    """Largest range of each of a number of bounded-range releases (selections) that fits a budget.

    Parameters
    ----------
    epsilon : float
        Budget of all releases together, in [1e-6, inf]; ``inf`` asks for no noise.
    delta : float
        Budget, in [0, 1). At 0 ranges add up, as pure guarantees do.
    count : int
        Number of releases, at least 1.

    Returns
    -------
    float
        A range E for which ``compose([(BoundedRangeCost(E), count)]).epsilon(delta)`` lies in
        [(1 - 1e-3) epsilon, epsilon], or below where delta alone covers what the releases tell.

    Raises
    ------
    ValueError
        If a value is outside its range.

    Examples
    --------
    >>> each = bounded_range_epsilon(1.0, 1e-6, 20)
    >>> round(each, 2)
    0.1
    >>> 0.999 <= compose([(BoundedRangeCost(each), 20)]).epsilon(1e-6) <= 1.0
    True
    """
    epsilon = check_range("epsilon", epsilon, SMALLEST_EPSILON)
    delta = check_range("delta", delta, 0.0, 1.0, open_high=True)
    if count != int(count) or count < 1:
        raise ValueError(f"count must be an integer of at least 1, got {count!r}.")
    if epsilon == math.inf:
        return math.inf
    pure = epsilon * (1.0 - _MARGIN) / count
    if delta == 0.0:
        return pure

    def reached(log_inverse: float) -> float:
        return compose([(BoundedRangeCost(math.exp(-log_inverse)), int(count))]).epsilon(delta)

    guess = max(pure, math.sqrt(8.0 * rdp_order(epsilon, delta).rho / count))
    return math.exp(-safe_log_noise(reached, epsilon, -math.log(guess), -math.log(1e3 * guess)))


def bounded_range_at_order(divergence: float, alpha: float) -> float:
    """Largest range of a bounded-range release whose Renyi divergence of one order fits, as a filter asks.

    Parameters
    ----------
    divergence : float
        Budget of the release at the order, in [0, inf].
    alpha : float
        Order, above 1.

    Returns
    -------
    float
        A range E with ``bounded_range_rdp(E, alpha) <= divergence``.

    Examples
    --------
    >>> round(bounded_range_at_order(0.635459399, 8.0), 6)
    1.0
    """
    return _largest_within(lambda value: bounded_range_rdp(value, alpha), divergence)


def _largest_within(curve: Callable[[float], float], divergence: float) -> float:
    """Largest guarantee at which a curve that never exceeds the guarantee itself stays within a divergence."""
    divergence = check_range("divergence", divergence, 0.0)
    if divergence in (0.0, math.inf):
        return divergence
    low, high = divergence, 2.0 * divergence
    while curve(high) <= divergence:
        high *= 2.0
    return smallest_true(lambda value: curve(value) > divergence, low, high) * (1.0 - _MARGIN)
