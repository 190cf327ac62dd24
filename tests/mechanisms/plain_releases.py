"""A small data set and what solvers make of it, in numpy alone, for tests of releases that are made of known draws."""

from dataclasses import dataclass
from math import sqrt
from typing import Any

import numpy as np
from scipy.special import expit, softmax

from dpskl.records.losses import Logistic, Softmax
from dpskl.records.problem import Problem

N, D, NORM, C = 12, 3, 1.4, 0.4  # records, features, data_norm, intercept
P, ROW = D + 1, sqrt(NORM**2 + C * C)
RELATIONS = {"add_remove": 1, "replace_one": 2}
OUTPUTS = [1, 3]
GRID = 3e-6  # of what releases are rounded to, in units of their noise
RNG = np.random.default_rng(31)
X = RNG.normal(size=(N, D)) * 10.0 ** RNG.uniform(-1, 1, size=(N, 1))
CODES = RNG.permutation(np.arange(N) % 3)
WEIGHTS = RNG.normal(size=(P, 3))


def rows_of(kind):
    """The design: rows cut to length NORM with a constant, or brought to length NORM with it."""
    if kind == "clip":
        return np.column_stack([X * np.minimum(1, NORM / np.linalg.norm(X, axis=1, keepdims=True)), np.full(N, C)])
    design = np.column_stack([X, np.full(N, C)])
    return design * (NORM / np.linalg.norm(design, axis=1, keepdims=True))


def signs_of(K):
    return np.where(CODES == 1, 1.0, -1.0)[:, None] if K == 1 else np.where(CODES[:, None] == np.arange(3), 1.0, -1.0)


def record_gradients(design, w, K, kind):
    """Gradients of the records, shape (n, P, K)."""
    scores = design @ w
    if K > 1 and kind == "softmax":
        residuals = softmax(scores, axis=1) - np.eye(3)[CODES]
    else:
        residuals = -signs_of(K) * expit(-signs_of(K) * scores)
    return design[:, :, None] * residuals[:, None, :]


def clipped_sum(gradients, clip, matrix=None):
    """Sum of gradients, each cut to a norm; of whitened gradients where there is a matrix."""
    moved = gradients if matrix is None else np.einsum("pq,npk->nqk", matrix, gradients)
    norms = np.sqrt((moved**2).sum(axis=(1, 2), keepdims=True))
    return (moved * np.minimum(1, clip / norms)).sum(axis=0)


def minimum(design, K, kind, ridge, linear=0.0):
    """Newton's method with explicit Hessians, one output after the other or all of a softmax together."""
    w = np.zeros((P, K))
    for _ in range(60):
        gradient = record_gradients(design, w, K, kind).sum(axis=0) + ridge * w + linear
        scores = design @ w
        if K > 1 and kind == "softmax":
            p = softmax(scores, axis=1)
            inner = np.einsum("nk,kl->nkl", p, np.eye(K)) - np.einsum("nk,nl->nkl", p, p)
        else:
            inner = np.einsum("nk,kl->nkl", expit(scores) * expit(-scores), np.eye(K))
        hessian = np.einsum("np,nq,nkl->pkql", design, design, inner).reshape(P * K, P * K)
        w = w - np.linalg.solve(hessian + ridge * np.eye(P * K), gradient.ravel()).reshape(P, K)
    return w


def problem_of(K, kind="softmax", rows="clip"):
    loss = Softmax() if K > 1 and kind == "softmax" else Logistic()
    codes = CODES if K > 1 else CODES == 1
    return Problem(X, loss.encode(codes, max(K, 2)), loss, data_norm=NORM, intercept=C, n_outputs=K, rows=rows)


def shaped(w, K):
    return w[:, 0] if K == 1 else w


@dataclass
class Case:
    """``expected`` takes the draws in units of their scale; releases may be off by ``accuracy``."""

    release: Any
    draws: list[tuple[str, int, float]]
    expected: Any
    accuracy: float
    rounded: float  # the scale of the noise on whose grid releases lie, 0 where they do not
    mechanism: Any
    sensitivity: float
