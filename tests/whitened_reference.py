"""Whitened gradient descent once more, record by record and without noise."""

from math import exp, pi, sqrt

import numpy as np
from scipy.integrate import quad
from scipy.optimize import brentq
from whitened_cases import on_sphere

from dpskl.records.losses import Logistic, Softmax


def matrix_of(M, whitening, ridge, level, has_constant):
    """A matrix that whitens ``M``, up to a rotation; the mean square of a whitened row, and of its scores."""
    D = len(M)
    if whitening == "full":
        values, basis = np.linalg.eigh(M)
        values = np.maximum(values, 0)
        W = basis @ np.diag((values + ridge) ** -0.5) @ basis.T
        return W, np.sum(values / (values + ridge)), 0, W @ (basis * values) @ basis.T @ W
    s = np.diag(M)
    S = np.diag((s + ridge) ** -0.5)
    scaled, B, found = S @ M @ S, np.eye(D), []
    if has_constant:
        b = S @ M[:, -1] / sqrt(M[-1, -1])  # the means of the columns, in units of their roots of mean squares
        found.append((1 + b @ b, b / np.linalg.norm(b)))
        across = np.eye(D) - np.outer(found[0][1], found[0][1])
        scaled = across @ scaled @ across
    if whitening == "common":
        values, basis = np.linalg.eigh(scaled)
        found += [(value, vector) for value, vector in zip(values, basis.T, strict=True) if value > 0]
    size = min(np.sum(s / (s + ridge)), np.trace(M) * np.max(1 / (s + ridge)))
    found = [(value, u) for value, u in found if value > level]
    for value, u in found:
        assert value <= D + 1
        B = B - (1 - sqrt(level / value)) * np.outer(u, u)
        size -= (1 - level / value) * value
    along = sum((np.outer(u, u) for _, u in found), np.zeros((D, D)))
    rest = np.eye(D) - along
    return S @ B, size, len(found), level * along + rest @ np.diag(s / (s + ridge)) @ rest


def whitened_reference(
    X, targets, loss, radius, intercept, ridge, whitener_ridge, clip, step, n_steps, whitening, level
):
    """Whitened gradient descent with per-record gradients, no noise, momentum 1/2; an implicit step for the penalty.

    From a quarter of the steps on, the step is doubled at a gradient that agrees with the last, and halved again at one
    that disagrees. In the end a binary logistic model is brought to the length at which its mean slope along the ray is
    zero, as far as normal scores say.
    """
    design = on_sphere(X, radius, intercept)
    n, D = design.shape
    W, size, shortened, moment = matrix_of(design.T @ design / n, whitening, whitener_ridge, level, intercept > 0)
    c = clip * sqrt(max(size, 1))
    n_outputs = 1 if targets.ndim == 1 and not isinstance(loss, Softmax) else targets.max() + 1
    n_outputs = targets.shape[1] if targets.ndim == 2 else n_outputs
    v = previous = np.zeros((D, n_outputs))
    iterates, factors, last, slopes = [], [1.0], None, []
    for t in range(n_steps):
        scores = design @ W @ v
        residuals = loss.residuals(scores[:, 0] if n_outputs == 1 else scores, targets).reshape(n, -1)
        gradients = np.einsum("ij,ik->ijk", design @ W, residuals)
        sizes = np.linalg.norm(gradients.reshape(n, -1), axis=1)
        g = (gradients * np.minimum(1, c / np.maximum(sizes, 1e-300))[:, None, None]).sum(axis=0)
        if t >= n_steps // 4:
            factors.append(min(max(factors[-1] * 2.0 ** np.sign(np.sum(g * last)), 1.0), 8.0))
        last, now = g, step * factors[-1]
        slopes.append(np.sum(g * v) / n)
        solve = np.linalg.inv(np.eye(D) + now * ridge / n * W.T @ W)
        v, previous = solve @ (v + 0.5 * (v - previous) - now * g / n), v
        iterates.append(v)
    weights = W @ (mean := np.mean(iterates[n_steps // 2 :], axis=0))
    if isinstance(loss, Logistic) and n_outputs == 1:
        penalty = ridge / n * np.sum(weights**2)
        weights = weights * right_length(
            np.mean(slopes[n_steps // 2 :]) + penalty, np.sum(mean * (moment @ mean)), penalty
        )
    return weights, factors, shortened


def right_length(slope, spread, penalty):
    """The factor at which the slope along the ray vanishes, for normal scores, within e^2 on either side."""

    def mean(factor):
        def density(z):
            return exp(-z * z / 2) / sqrt(2 * pi) * z * sqrt(spread) / (1 + exp(-factor * z * sqrt(spread)))

        return quad(density, -9, 9, epsabs=1e-12)[0] + factor * penalty

    return brentq(lambda factor: mean(factor) - mean(1) + slope, exp(-2), exp(2), xtol=1e-13)
