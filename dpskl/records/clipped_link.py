"""The link of a loss with clipped gradients: from where a descent settles to the probabilities it settled for."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.special import logsumexp

__all__ = ["unclipped_log_probabilities"]

Array = np.ndarray[Any, Any]

# Share of the raw logarithm of a probability, so that what the link makes equal stays in the order of its scores.
_RAW = 0.2


def unclipped_log_probabilities(log_p: Array, length: float) -> Array:
    r"""Return the logarithms of the probabilities at which the clipped gradients of a record are zero on average.

    A record with label ``k`` pulls with its gradient ``p - e_k`` (times its row), shortened by
    ``f_k = min(1, 1 / (length ||p - e_k||))``. Where labels occur with probabilities ``q``, the pulls cancel at the
    ``p`` with ``sum_k q_k f_k (p - e_k) = 0``, that is ``q_k`` proportional to ``p_k / f_k``.

    Parameters
    ----------
    log_p : ndarray of shape (n, n_classes)
        Logarithms of the probabilities that belong to the scores; two columns for one score, whose gradient is a
        single number, and ``||p - e_k||`` the probability of the other label.
    length : float
        Norm of a typical row, transformed as it was where gradients were clipped, in units of the clip norm. It is one
        number for all rows, so that probabilities are in the order of the scores.

    Returns
    -------
    ndarray of shape (n, n_classes)
        ``0.8 log q + 0.2 log p``, normalised. Where both labels are clipped ``q`` does not depend on the score; the
        second part keeps the order of the scores. ``q`` itself never turns it round (docs/theory.md).
    """
    p = np.exp(log_p)
    if p.shape[1] == 2:
        distances = p[:, ::-1]
    else:
        others = np.square(p).sum(axis=1, keepdims=True) - np.square(p)
        distances = np.sqrt(np.square(1 - p) + np.maximum(others, 0))
    log_q = log_p + np.log(np.maximum(1, distances * length))
    log_q -= logsumexp(log_q, axis=1, keepdims=True)
    mixed = (1 - _RAW) * log_q + _RAW * log_p
    result: Array = mixed - logsumexp(mixed, axis=1, keepdims=True)
    return result
