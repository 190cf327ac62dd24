"""Conversions between notions of differential privacy: pure functions of numbers.

Every function returns a *valid upper bound* on the privacy loss it names, or its exact value; root searches
return the end of their bracket at which the guarantee holds. Natural logarithms throughout.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
from scipy.optimize import minimize_scalar
from scipy.special import erfcx, erfinv, ndtr, ndtri, ndtri_exp

from dpskl.accounting._numeric import check_range, smallest_true
from dpskl.accounting._renyi import (
    bounded_range_rdp,
    gaussian_rdp,
    laplace_rdp,
    pure_rdp,
    sampled_gaussian_rdp,
    sampled_pure_losses,
    sampled_pure_rdp,
)

__all__ = [
    "bounded_range_rdp",
    "gaussian_delta",
    "gaussian_epsilon",
    "gaussian_rdp",
    "laplace_rdp",
    "pure_rdp",
    "pure_to_gdp",
    "rdp_delta",
    "rdp_epsilon",
    "sampled_gaussian_rdp",
    "sampled_pure_losses",
    "sampled_pure_rdp",
]

_SQRT2 = math.sqrt(2.0)


def _mills(x: float) -> float:
    """Mills ratio Phi(-x) / phi(x), accurate for x above -35."""
    return math.sqrt(math.pi / 2.0) * float(erfcx(x / _SQRT2))


def gaussian_delta(mu: float, epsilon: float) -> float:
    """Exact privacy profile of a Gaussian mechanism (of mu-Gaussian differential privacy).

    Parameters
    ----------
    mu : float
        Sensitivity divided by the standard deviation of the noise, in [0, inf].
    epsilon : float
        Privacy loss threshold, any real number.

    Returns
    -------
    float
        H(mu, epsilon) = Phi(mu/2 - epsilon/mu) - exp(epsilon) Phi(-mu/2 - epsilon/mu), in [0, 1].

    Notes
    -----
    Theorem 8 of Balle & Wang (2018); Corollary 1 of Dong, Roth & Su (2022). With x = epsilon/mu - mu/2 the
    two terms are phi(x) M(x) and phi(x) M(x + mu), M the Mills ratio: their difference keeps its relative
    precision where both are far smaller than the rounding unit, and nothing overflows.

    Examples
    --------
    >>> round(gaussian_delta(1.0, 1.0), 9)
    0.126936738
    >>> f"{gaussian_delta(0.1, 0.9):.11e}"
    '1.91849120689e-21'
    """
    mu = check_range("mu", mu, 0.0)
    epsilon = float(epsilon)
    if math.isnan(epsilon):
        raise ValueError("epsilon must be a number, got nan.")
    if epsilon == math.inf:
        return 0.0 if mu < math.inf else 1.0
    if mu == math.inf:
        return 1.0
    if epsilon < 0.0:  # duality of the two directions
        return -math.expm1(epsilon) + math.exp(epsilon) * gaussian_delta(mu, -epsilon)
    if mu == 0.0:
        return 0.0
    if epsilon == 0.0:
        return math.erf(mu / (2.0 * _SQRT2))
    ratio = epsilon / mu
    x, y = ratio - mu / 2.0, ratio + mu / 2.0
    density = math.exp(-x * x / 2.0) / math.sqrt(2.0 * math.pi) if abs(x) < 40.0 else 0.0
    if x < -5.0:
        return float(ndtr(-x)) - density * _mills(y)
    if density == 0.0:
        return 0.0
    if mu < 1e-5:  # the Mills ratio has derivative r M(r) - 1; the next term is below 1e-11 of this one
        return max(0.0, density * mu * (1.0 - ratio * _mills(ratio)))
    return max(0.0, density * (_mills(x) - _mills(y)))


def gaussian_epsilon(mu: float, delta: float, lowest: float = 0.0) -> float:
    """Smallest epsilon at which a Gaussian mechanism is (epsilon, delta)-differentially private.

    Parameters
    ----------
    mu : float
        Sensitivity over noise standard deviation, in [0, inf].
    delta : float
        In [0, 1].
    lowest : float, default=0.0
        The search does not go below this value, which may be negative.

    Returns
    -------
    float
        An epsilon with ``gaussian_delta(mu, epsilon) <= delta``, at most 1e-15 (relative) too large; ``inf``
        where there is none.

    Examples
    --------
    >>> round(gaussian_epsilon(0.2, 1e-5), 9)
    0.725521751
    """
    mu, delta = check_range("mu", mu, 0.0), check_range("delta", delta, 0.0, 1.0)
    if gaussian_delta(mu, lowest) <= delta:
        return lowest
    if mu == math.inf or delta == 0.0:
        return max(0.0, lowest) if mu == 0.0 else math.inf
    # Phi(mu/2 - epsilon/mu) alone already equals delta here
    high = max(mu * (mu / 2.0 - float(ndtri(delta))), 0.0) * (1.0 + 1e-12) + 1e-300
    if high <= lowest:  # only by rounding, lowest having just failed
        high = max(2.0 * lowest, math.nextafter(lowest, math.inf))
    return smallest_true(lambda epsilon: gaussian_delta(mu, epsilon) <= delta, lowest, high)


def _orders() -> list[float]:
    small_and_large = [1.0 + 10.0 ** (step / 8.0) for step in range(-48, 73)]
    # each order once: the refinement looks between the neighbours of the best
    return sorted({*small_and_large, *(float(order) for order in range(2, 65))})


_ORDERS = _orders()


def _best_order(objective: Callable[[float], float], extra: Sequence[float]) -> float:
    """Smallest value of an objective over orders: a grid first, then its best cell refined.

    Every order gives a valid bound, so an imperfect search is loose and never wrong.
    """
    values = [objective(order) for order in _ORDERS]
    index = int(np.argmin(values))
    best = min([values[index], *(objective(order) for order in extra if order < math.inf)])
    if math.isfinite(best):
        low, high = _ORDERS[max(index - 1, 0)], _ORDERS[min(index + 1, len(_ORDERS) - 1)]
        bounds = (math.log(low - 1.0), math.log(high - 1.0))
        # the parabolic steps of the search take no infinities
        found = minimize_scalar(lambda u: min(1e100, objective(1.0 + math.exp(u))), bounds=bounds, method="bounded")
        best = min(best, float(found.fun))
    return best


def rdp_epsilon(rdp: Callable[[float], float], delta: float, orders: Sequence[float] = ()) -> float:
    """Smallest epsilon that a curve of Renyi divergences certifies at a given delta.

    Parameters
    ----------
    rdp : callable
        Divergence (the larger of both directions) as a function of the order above 1, ``inf`` included.
    delta : float
        In [0, 1].
    orders : sequence of float, optional
        Orders to try beside the usual grid, those at which a tabulated curve is exact.

    Returns
    -------
    float
        The minimum over orders of R(alpha) + log(1 - 1/alpha) - log(delta alpha)/(alpha - 1), not below 0.

    Notes
    -----
    Proposition 12 of Canonne, Kamath & Steinke (2020). Order ``inf`` is the pure guarantee. The value is 0
    where delta^2 >= 1 - exp(-R): the Bretagnolle-Huber inequality bounds the total variation distance so.

    Examples
    --------
    >>> round(rdp_epsilon(lambda alpha: alpha * 0.0243559704, 1e-6), 6)
    1.0
    """
    delta = check_range("delta", delta, 0.0, 1.0)
    pure = rdp(math.inf)
    if delta == 0.0 or pure == 0.0:
        return pure
    smallest = rdp(_ORDERS[0])
    if smallest == 0.0 or delta * delta >= -math.expm1(-smallest):
        return 0.0

    def epsilon(alpha: float) -> float:
        return rdp(alpha) - math.log1p(1.0 / (alpha - 1.0)) - (math.log(delta) + math.log(alpha)) / (alpha - 1.0)

    return max(0.0, min(pure, _best_order(epsilon, orders)))


def rdp_delta(rdp: Callable[[float], float], epsilon: float, orders: Sequence[float] = ()) -> float:
    """Smallest delta that a curve of Renyi divergences certifies at a given epsilon.

    Parameters
    ----------
    rdp : callable
        Divergence (the larger of both directions) as a function of the order above 1, ``inf`` included.
    epsilon : float
        Any real number; a negative one is answered through the duality of the two directions.
    orders : sequence of float, optional
        Orders to try beside the usual grid, those at which a tabulated curve is exact.

    Returns
    -------
    float
        The minimum over orders of exp((alpha-1)(R - epsilon)) (1 - 1/alpha)^(alpha-1) / alpha, in [0, 1].

    Notes
    -----
    Inverse of :func:`rdp_epsilon`, same sources.

    Examples
    --------
    >>> f"{rdp_delta(lambda alpha: alpha * 0.0243559704, 1.0):.4e}"
    '1.0000e-06'
    """
    if epsilon < 0.0:
        return min(1.0, -math.expm1(epsilon) + math.exp(epsilon) * rdp_delta(rdp, -epsilon, orders))
    if epsilon == math.inf or rdp(math.inf) <= epsilon:
        return 0.0

    def log_delta(alpha: float) -> float:
        excess = rdp(alpha) - epsilon - math.log1p(1.0 / (alpha - 1.0))
        return (alpha - 1.0) * excess - math.log(alpha)

    total_variation = math.sqrt(-math.expm1(-rdp(_ORDERS[0])))
    return min(1.0, total_variation, math.exp(min(0.0, _best_order(log_delta, orders))))


def pure_to_gdp(epsilon: float) -> float:
    """Smallest mu such that every epsilon-differentially private mechanism is mu-Gaussian private.

    Parameters
    ----------
    epsilon : float
        Pure guarantee, in [0, inf].

    Returns
    -------
    float
        2 Phi^-1(e^epsilon / (1 + e^epsilon)) (Liu, Sun, Pensia & Zhang 2022; tight at the threshold 0).

    Examples
    --------
    >>> round(pure_to_gdp(0.1), 6)
    0.125309
    """
    epsilon = check_range("epsilon", epsilon, 0.0)
    if epsilon < 1.0:
        return 2.0 * _SQRT2 * float(erfinv(math.tanh(epsilon / 2.0)))
    if epsilon == math.inf:
        return math.inf
    return -2.0 * float(ndtri_exp(-epsilon - math.log1p(math.exp(-epsilon))))
