"""Exact outcome probabilities of AboveThreshold, by integration over the noisy threshold, without code of dpskl."""

import numpy as np
from scipy.special import log_ndtr

NODES, WEIGHTS = np.polynomial.legendre.leggauss(12)


def _log_upper_tail(law, x):
    """Log probability that unit noise is at least x."""
    if law == "gaussian":
        return log_ndtr(-x)
    return np.where(x > 0, -np.abs(x) - np.log(2), np.log1p(-np.exp(-np.abs(x)) / 2))


def _log_density(law, x):
    return -x * x / 2 - np.log(2 * np.pi) / 2 if law == "gaussian" else -np.abs(x) - np.log(2)


def log_outcome_probabilities(queries, law, threshold_scale, query_scale):
    """Log probabilities of first success at 1, ..., k and of no success.

    The threshold is 0 plus noise; query j succeeds where it and its own noise reach the noisy threshold. Panels end at
    the kinks of Laplace densities; between them everything is smooth on the smaller of both scales. The range is so
    wide that very unlikely outcomes keep their digits.
    """
    queries = np.asarray(queries, dtype=float)
    reach = (25.0 if law == "gaussian" else 60.0) * max(threshold_scale, query_scale)
    low = min(-reach, queries.min() - reach)
    high = max(reach, queries.max() + reach)
    width = min(threshold_scale, query_scale)
    breaks = np.concatenate([np.linspace(low, high, 2 + int((high - low) / width)), [0.0], queries])
    breaks = np.unique(np.clip(breaks, low, high))
    half = np.diff(breaks) / 2
    z = ((breaks[:-1] + half)[:, None] + half[:, None] * NODES).ravel()
    log_weights = np.log((half[:, None] * WEIGHTS).ravel())
    log_weights += _log_density(law, z / threshold_scale) - np.log(threshold_scale)
    needed = (z - queries[:, None]) / query_scale
    success, failure = _log_upper_tail(law, needed), _log_upper_tail(law, -needed)
    survived = np.vstack([np.zeros_like(z), np.cumsum(failure, axis=0)])  # failures before each, and all
    outcomes = survived + log_weights
    outcomes[:-1] += success
    top = outcomes.max(axis=1)
    return top + np.log(np.exp(outcomes - top[:, None]).sum(axis=1))


def outcome_probabilities(queries, law, threshold_scale, query_scale):
    """Probabilities of first success at 1, ..., k and of no success, an array of k + 1 numbers that add to 1."""
    return np.exp(log_outcome_probabilities(queries, law, threshold_scale, query_scale))


def log_ratio(first, second):
    """Largest privacy loss between two arrays of log probabilities, in either direction."""
    return float(np.abs(first - second).max())


def renyi_divergence(first, second, alpha):
    """Renyi divergence, the larger of both directions, from two arrays of log probabilities."""
    divergences = []
    for p, q in ((first, second), (second, first)):
        terms = q + alpha * (p - q)
        divergences.append(float(terms.max() + np.log(np.exp(terms - terms.max()).sum())) / (alpha - 1))
    return max(divergences)
