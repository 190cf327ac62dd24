"""The random number of trials of which only the best is released."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any, Protocol

import numpy as np

from dpskl.accounting._numeric import check_range, smallest_true

__all__ = ["draw_trials", "trial_gamma"]


class _Exponentials(Protocol):
    """A source of noise, as far as it is needed here."""

    def standard_exponential(self, size: int) -> np.ndarray[Any, Any]: ...


def check_eta(eta: int) -> int:
    if isinstance(eta, bool) or eta not in (0, 1):
        raise ValueError(f"eta={eta!r} must be 0 (logarithmic law) or 1 (geometric law).")
    return int(eta)


@lru_cache(maxsize=1024)
def log_inverse_gamma(eta: int, mean: float) -> float:
    """log(1 / gamma) for a mean, never below the exact value: the cost grows with it."""
    if eta == 1:
        return math.log(mean)
    if mean == 1.0:
        return 0.0
    # with x = log(1 / gamma) the mean is (e^x - 1) / x
    return smallest_true(lambda x: math.expm1(x) >= mean * x, 0.0, min(2.0 * math.log(mean) + 2.0, 709.0))


def trial_gamma(eta: int, mean: float) -> float:
    """Return the parameter of the truncated negative binomial law that has a given mean.

    Parameters
    ----------
    eta : {0, 1}
        0 for the logarithmic law, 1 for the geometric one.
    mean : float
        Mean number of trials, in [1, inf).

    Returns
    -------
    float
        gamma in (0, 1]; 1 is the law of a single trial. With eta = 1 it is 1 / mean, with eta = 0 the root of
        (1 / gamma - 1) / log(1 / gamma) = mean.

    Raises
    ------
    ValueError
        If an argument is outside its range.

    Examples
    --------
    >>> trial_gamma(1, 10.0)
    0.1
    >>> round(trial_gamma(0, 3.90865034), 9)
    0.1
    """
    eta, mean = check_eta(eta), check_range("mean", mean, 1.0, open_high=True)
    return 1.0 / mean if eta == 1 else math.exp(-log_inverse_gamma(eta, mean))


def draw_trials(eta: int, gamma: float, noise: _Exponentials) -> int:
    """Draw the number of trials from the truncated negative binomial law.

    Parameters
    ----------
    eta : {0, 1}
        0: P(K = k) = (1 - gamma)^k / (k log(1 / gamma)); 1: P(K = k) = gamma (1 - gamma)^(k - 1); k >= 1.
    gamma : float
        In (0, 1]; 1 gives a single trial.
    noise : NoiseSource
        Two exponential variables are drawn from it, whatever the law.

    Returns
    -------
    int
        At least 1. It must not be released, and neither must anything that tells it, such as the running time.

    Raises
    ------
    ValueError
        If an argument is outside its range.

    Notes
    -----
    Exact, with no series to cut off: 1 + floor(E / -log q) is geometric with ratio q for an exponential E, and the
    logarithmic law is the mixture of geometric laws with ratios q = 1 - gamma^U, U uniform (Kemp 1981).

    Examples
    --------
    >>> from dpskl.mechanisms.noise import SystemNoise
    >>> draw_trials(0, 0.05, SystemNoise()) >= 1
    True
    """
    eta, gamma = check_eta(eta), check_range("gamma", gamma, 0.0, 1.0, open_low=True)
    first, second = (float(value) for value in noise.standard_exponential(2))
    ratio = -math.expm1(math.log(gamma) * (1.0 if eta == 1 else math.exp(-second)))
    if ratio <= 0.0:
        return 1
    return 1 + math.floor(first / -math.log(ratio))
