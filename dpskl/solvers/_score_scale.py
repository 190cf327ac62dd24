"""How long the scores of a descent should be, from gradients that were released anyway."""

from __future__ import annotations

from math import exp, sqrt

import numpy as np
from scipy.optimize import brentq
from scipy.special import expit

__all__ = ["score_scale"]

# Standard deviation of the logarithm of the right scale, before gradients are looked at, and its largest size.
_PRIOR = 0.5
_LARGEST = 2.0
_NODES = np.linspace(-8.0, 8.0, 1601)  # for steep scores as well, where Gauss nodes are too few
_WEIGHTS = np.exp(-(_NODES**2) / 2)
_WEIGHTS /= _WEIGHTS.sum()


def score_scale(slope: float, error: float, spread: float, penalty: float = 0.0) -> float:
    r"""Return the factor by which the weights of a binary logistic model should be longer.

    A descent that stops early, by the clock of its rules, leaves scores too short where records are few, and noise
    leaves them too long. ``<grad L(w), w>`` is the slope of the mean loss along the ray through ``w``, and its mean
    over a descent is known from released gradients: post-processing. What labels have to do with it is in that number;
    how the slope changes along the ray follows from the spread ``E s^2`` of the scores, which are taken to be normal::

        E[sigma(a s) s] - E[sigma(s) s] + slope + (a - 1) penalty = 0

    is solved for ``a``, and ``log a`` is drawn to 0 as far as the error of the slope and a normal prior of standard
    deviation 1/2 ask for.

    Parameters
    ----------
    slope : float
        Estimate of the slope at 1 of the mean loss with its penalty, ``<grad L(w) + ridge w / n, w>``.
    error : float
        Its standard deviation, not negative.
    spread : float
        Mean square of the scores, not negative.
    penalty : float, default=0
        ``ridge ||w||^2 / n``.

    Examples
    --------
    >>> round(score_scale(slope=0.0, error=0.1, spread=1.0), 6)
    1.0
    >>> score_scale(slope=-0.1, error=0.0, spread=1.0) > score_scale(slope=-0.1, error=0.1, spread=1.0) > 1
    True
    """
    if not (0 < spread < np.inf and np.isfinite(slope) and np.isfinite(penalty)):
        return 1.0
    scores = sqrt(spread) * _NODES

    def along(log_scale: float) -> float:
        scale = exp(log_scale)
        return float(_WEIGHTS @ (expit(scale * scores) * scores)) + scale * penalty

    wanted = along(0.0) - slope
    if along(-_LARGEST) >= wanted:
        best = -_LARGEST
    elif along(_LARGEST) <= wanted:
        best = _LARGEST
    else:
        best = brentq(lambda log_scale: along(log_scale) - wanted, -_LARGEST, _LARGEST)
    half = exp(best / 2) * scores
    curvature = float(_WEIGHTS @ (expit(half) * expit(-half) * scores**2)) + penalty
    return exp(best * _PRIOR**2 / (_PRIOR**2 + (error / curvature) ** 2))
