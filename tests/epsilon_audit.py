"""A lower bound on epsilon from 2 x 2,000 runs with a record and without it, at a claim of epsilon = 4.

The canary is a record with a feature of its own, and the score is the coefficient of that feature. "Without" is
the same data with a row of zeros in its place: with no intercept its terms do not depend on the weights. Half
of the runs choose the threshold, the other half bound the error rates (Clopper-Pearson, each wrong once
in 20,000 runs, so that the audit of a correct solver fails once in 10,000); Gaussian privacy turns these
into epsilon (Nasr et al. 2023).
"""

import numpy as np
from scipy.stats import beta, norm

from dpskl.accounting import gaussian_epsilon

EPSILON, DELTA, RUNS, ERROR = 4.0, 1e-5, 2000, 5e-5
WITH, WITHOUT = np.array([[1.0, 0.0], [0.0, 1.0]]), np.array([[1.0, 0.0], [0.0, 0.0]])


def upper(errors, runs):
    return 1.0 if errors == runs else beta.isf(ERROR, errors + 1, runs - errors)


def audited_epsilon(with_canary, without):
    """A lower bound on epsilon at DELTA."""
    half = RUNS // 2
    candidates = np.quantile(np.concatenate([with_canary[:half], without[:half]]), np.linspace(0.02, 0.98, 97))
    bounds = []
    for threshold in candidates:
        misses, alarms = (with_canary[:half] <= threshold).sum(), (without[:half] > threshold).sum()
        bounds.append(-norm.ppf(upper(misses, half)) - norm.ppf(upper(alarms, half)))
    threshold = candidates[int(np.argmax(bounds))]
    misses, alarms = (with_canary[half:] <= threshold).sum(), (without[half:] > threshold).sum()
    mu = -norm.ppf(upper(misses, half)) - norm.ppf(upper(alarms, half))
    return gaussian_epsilon(max(mu, 0.0), DELTA)
