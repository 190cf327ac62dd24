"""Renyi divergences of the basic mechanisms, each the larger of both directions."""

from __future__ import annotations

import math

import numpy as np
from scipy.special import gammaln, logsumexp, xlog1py

from dpskl.accounting._numeric import check_range

_LARGEST_SAMPLED_ORDER = 4096


def _log_cosh(x: float) -> float:
    x = abs(x)
    if x < 1.0:
        return math.log1p(2.0 * math.sinh(x / 2.0) ** 2)
    return x + math.log1p(math.exp(-2.0 * x)) - math.log(2.0)


def _log_sinhc(x: float) -> float:
    """log(sinh(x) / x) without cancellation."""
    if x < 0.05:
        square = x * x
        return square * (1.0 / 6.0 - square * (1.0 / 180.0 - square * (1.0 / 2835.0 - square / 37800.0)))
    return x + math.log(-math.expm1(-2.0 * x) / (2.0 * x))


def gaussian_rdp(mu: float, alpha: float) -> float:
    """Renyi divergence of a Gaussian mechanism, alpha mu^2 / 2 (Mironov 2017, Proposition 7).

    Parameters
    ----------
    mu : float
        Sensitivity over noise standard deviation, in [0, inf].
    alpha : float
        Order, above 1.

    Returns
    -------
    float
        The divergence.

    Examples
    --------
    >>> gaussian_rdp(0.5, 4.0)
    0.5
    """
    mu, alpha = check_range("mu", mu, 0.0), check_range("alpha", alpha, 1.0, open_low=True)
    return 0.0 if mu == 0.0 else alpha * mu * mu / 2.0


def pure_rdp(epsilon: float, alpha: float) -> float:
    """Largest Renyi divergence of an epsilon-differentially private mechanism: that of randomised response.

    Parameters
    ----------
    epsilon : float
        Pure guarantee, in [0, inf].
    alpha : float
        Order, above 1.

    Returns
    -------
    float
        R_RR(alpha; epsilon), at most ``epsilon``.

    Notes
    -----
    Randomised response dominates every epsilon-differentially private mechanism (Kairouz, Oh & Viswanath
    2015). The expression is [log cosh((alpha - 1/2) epsilon) - log cosh(epsilon / 2)] / (alpha - 1).

    Examples
    --------
    >>> round(pure_rdp(1.0, 8.0), 9)
    0.955248374
    """
    epsilon, alpha = check_range("epsilon", epsilon, 0.0), check_range("alpha", alpha, 1.0, open_low=True)
    if math.isinf(alpha) or math.isinf(epsilon) or alpha * epsilon > 1e15:
        return epsilon
    return min(epsilon, (_log_cosh((alpha - 0.5) * epsilon) - _log_cosh(epsilon / 2.0)) / (alpha - 1.0))


def laplace_rdp(epsilon: float, alpha: float) -> float:
    """Renyi divergence of a Laplace mechanism with noise scale sensitivity / epsilon.

    Parameters
    ----------
    epsilon : float
        Sensitivity over noise scale, in [0, inf].
    alpha : float
        Order, above 1.

    Returns
    -------
    float
        R_Lap(alpha; epsilon), at most ``epsilon`` (Mironov 2017, Proposition 6).

    Examples
    --------
    >>> round(laplace_rdp(0.5, 8.0), 9)
    0.410267882
    """
    epsilon, alpha = check_range("epsilon", epsilon, 0.0), check_range("alpha", alpha, 1.0, open_low=True)
    if math.isinf(alpha) or math.isinf(epsilon) or alpha * epsilon > 1e15:
        return epsilon
    up, down = (alpha - 1.0) * epsilon, alpha * epsilon
    weight = alpha / (2.0 * alpha - 1.0)
    if up < 1.0:
        log_moment = math.log1p(weight * math.expm1(up) + (1.0 - weight) * math.expm1(-down))
    else:
        log_moment = up + math.log(weight + (1.0 - weight) * math.exp(-up - down))
    return min(epsilon, max(0.0, log_moment / (alpha - 1.0)))


def bounded_range_rdp(epsilon: float, alpha: float) -> float:
    """Largest Renyi divergence of a mechanism whose privacy loss has range at most ``epsilon``.

    Parameters
    ----------
    epsilon : float
        Length of the interval that holds the privacy loss (the exponential mechanism), in [0, inf].
    alpha : float
        Order, above 1.

    Returns
    -------
    float
        The divergence, below min(epsilon, alpha epsilon^2 / 8).

    Notes
    -----
    Two-point laws with losses t and t - epsilon are extremal (Dong, Durfee & Rogers 2020). The moment is
    u^(alpha-1) (A - B u) in u = e^t, so the best t is explicit and, with S(x) = log(sinh(x)/x), the supremum
    is [alpha S(alpha epsilon/2) - (alpha-1) S((alpha-1) epsilon/2) - S(epsilon/2)] / (alpha - 1).

    Examples
    --------
    >>> round(bounded_range_rdp(1.0, 8.0), 9)
    0.635459399
    """
    epsilon, alpha = check_range("epsilon", epsilon, 0.0), check_range("alpha", alpha, 1.0, open_low=True)
    if math.isinf(alpha) or math.isinf(epsilon) or alpha * epsilon > 1e6:
        return epsilon  # larger than the supremum by less than 1e-5 of it, and free of cancellation
    below = alpha - 1.0
    terms = alpha * _log_sinhc(alpha * epsilon / 2.0) - below * _log_sinhc(below * epsilon / 2.0)
    return min(epsilon, max(0.0, (terms - _log_sinhc(epsilon / 2.0)) / below))


def sampled_gaussian_rdp(sampling_rate: float, noise_multiplier: float, alpha: float) -> float:
    """Renyi divergence of a Gaussian mechanism on a Poisson sample, for adding or removing one record.

    Parameters
    ----------
    sampling_rate : float
        Probability with which each record enters, in [0, 1].
    noise_multiplier : float
        Noise standard deviation over sensitivity, in [0, inf].
    alpha : float
        Order, above 1. An order that is not an integer is answered at the next integer above, which bounds
        it.

    Returns
    -------
    float
        The divergence; at integer orders it is exact.

    Notes
    -----
    Mironov, Talwar & Zhang (2019): the pair is swap-symmetric, so the removal direction is the larger. The
    terms j = 0 and 1 of the binomial sum add to its 1, hence a sum of positive terms inside ``log1p``. Orders
    above 4096 are answered without amplification.

    Examples
    --------
    >>> round(sampled_gaussian_rdp(0.01, 1.0, 8), 7)
    0.0008936
    """
    q = check_range("sampling_rate", sampling_rate, 0.0, 1.0)
    sigma = check_range("noise_multiplier", noise_multiplier, 0.0)
    alpha = check_range("alpha", alpha, 1.0, open_low=True)
    if q == 0.0 or sigma == math.inf:
        return 0.0
    if sigma == 0.0:
        return math.inf
    if q == 1.0 or alpha > _LARGEST_SAMPLED_ORDER:
        return gaussian_rdp(1.0 / sigma, alpha)
    order = math.ceil(alpha)
    j = np.arange(2, order + 1, dtype=float)
    log_binomial = gammaln(order + 1.0) - gammaln(j + 1.0) - gammaln(order - j + 1.0)
    log_weight = log_binomial + j * math.log(q) + xlog1py(order - j, -q)
    exponent = j * (j - 1.0) / (2.0 * sigma * sigma)
    log_excess = float(logsumexp(log_weight + exponent + np.log(-np.expm1(-exponent))))
    return min(float(np.logaddexp(0.0, log_excess)) / (order - 1.0), gaussian_rdp(1.0 / sigma, order))


def sampled_pure_rdp(sampling_rate: float, epsilon: float, alpha: float) -> float:
    """Largest Renyi divergence of an epsilon-differentially private mechanism on a Poisson sample.

    Parameters
    ----------
    sampling_rate : float
        Probability with which each record enters, in [0, 1].
    epsilon : float
        Pure guarantee of the mechanism on the sample, in [0, inf].
    alpha : float
        Order, above 1; any real order is exact.

    Returns
    -------
    float
        The larger of the two directions (add and remove) of the sampled randomised-response pair.

    Notes
    -----
    The sampled pair has two outcomes with losses log(1 + q (e^epsilon - 1)) and log(1 + q (e^-epsilon - 1));
    it dominates the sampled mechanism because randomised response dominates the mechanism at every threshold.

    Examples
    --------
    >>> round(sampled_pure_rdp(0.1, 1.0, 8.0), 7)
    0.0470268
    """
    q = check_range("sampling_rate", sampling_rate, 0.0, 1.0)
    epsilon, alpha = check_range("epsilon", epsilon, 0.0), check_range("alpha", alpha, 1.0, open_low=True)
    if q == 0.0 or epsilon == 0.0:
        return 0.0
    if math.isinf(epsilon):
        return math.inf
    upper, lower = sampled_pure_losses(q, epsilon)
    if math.isinf(alpha):
        return upper
    low_mass = 1.0 / (1.0 + math.exp(-epsilon))  # of the lower loss, under the law without the record
    high_mass = math.exp(-epsilon) * low_mass
    removed = _two_point_log_moment(high_mass, alpha * upper, low_mass, alpha * lower)
    added = _two_point_log_moment(high_mass, (1.0 - alpha) * upper, low_mass, (1.0 - alpha) * lower)
    return min(upper, max(0.0, removed, added) / (alpha - 1.0))


def _two_point_log_moment(p: float, x: float, r: float, y: float) -> float:
    """log(p e^x + r e^y) for p + r = 1."""
    if max(abs(x), abs(y)) < 1.0:
        return math.log1p(p * math.expm1(x) + r * math.expm1(y))
    return float(np.logaddexp(math.log(p) + x if p > 0.0 else -math.inf, math.log(r) + y))


def sampled_pure_losses(sampling_rate: float, epsilon: float) -> tuple[float, float]:
    """Largest and smallest privacy loss (removal) of randomised response on a Poisson sample.

    Parameters
    ----------
    sampling_rate : float
        Probability with which each record enters, in [0, 1].
    epsilon : float
        Pure guarantee, in [0, inf).

    Returns
    -------
    tuple of float
        log(1 - q + q e^epsilon), also the pure guarantee of the sampled mechanism, and log(1 - q + q
        e^-epsilon).

    Examples
    --------
    >>> upper, lower = sampled_pure_losses(0.1, 1.0)
    >>> round(upper, 9), round(lower, 9)
    (0.158565079, -0.065298336)
    """
    q = check_range("sampling_rate", sampling_rate, 0.0, 1.0)
    epsilon = check_range("epsilon", epsilon, 0.0)
    if q in (0.0, 1.0):
        return q and epsilon, -(q and epsilon)
    if epsilon > 30.0:
        upper = epsilon + math.log(q) + math.log1p((1.0 - q) / q * math.exp(-epsilon))
    else:
        upper = math.log1p(q * math.expm1(epsilon))
    return upper, math.log1p(q * math.expm1(-epsilon))
