"""Problems with rows on a sphere, and noise that was chosen beforehand."""

import numpy as np
import pytest
from problem_cases import CASES, LAYOUTS

from dpskl.mechanisms.noise import NoiseSource
from dpskl.records.problem import Problem
from dpskl.records.scaling import ShortenedScaling

NEIGHBOURS = ("add_remove", "replace_one")
each_relation = pytest.mark.parametrize("neighbours", NEIGHBOURS)


def on_sphere(X, radius, intercept):
    """The bounded design, row by row."""
    design = np.column_stack([X, np.full(len(X), intercept)]) if intercept else X
    norms = np.linalg.norm(design, axis=1, keepdims=True)
    return radius * np.divide(design, norms, out=np.zeros_like(design), where=norms > 0)


def make(layout, case, intercept, n=1500, d=9):
    rng = np.random.default_rng(1)
    X = rng.normal(size=(n, d)) * 10.0 ** rng.uniform(-2, 2, size=(n, 1))
    X[rng.random(X.shape) < 0.3] = 0
    X[5] = 0
    X[:, 3] = 0
    X = X.astype(np.float32).astype(np.float64)
    loss, n_classes = CASES[case]
    n_outputs = 1 if n_classes == 2 else n_classes
    targets = loss.encode(rng.integers(0, n_classes, n), n_classes)
    given = LAYOUTS[layout](X)
    if isinstance(given, np.ndarray):
        given.flags.writeable = False
    problem = Problem(given, targets, loss, data_norm=1.5, intercept=intercept, n_outputs=n_outputs, rows="sphere")
    design = on_sphere(X, 1.5, intercept)
    shape = (design.shape[1],) if n_outputs == 1 else (design.shape[1], n_outputs)
    return problem, design, rng.normal(size=shape), rng


class GivenNoise(NoiseSource):
    """Noise that was chosen beforehand, in standard deviations."""

    is_secure = True

    def __init__(self, values=0.0):
        self.values, self.size = values, 0

    def standard_normal(self, size):
        self.size = int(np.prod(size))
        return np.full(size, self.values) if np.ndim(self.values) == 0 else np.reshape(self.values, size)

    def standard_exponential(self, size):
        raise NotImplementedError


def sphere_problem(X, codes=None, loss=None, n_outputs=1, intercept=0.3, data_norm=1.0):
    targets = None if loss is None else loss.encode(codes, max(n_outputs, 2))
    return Problem(X, targets, loss, data_norm=data_norm, intercept=intercept, n_outputs=n_outputs, rows="sphere")


def entries_of(part, released):
    """The entries of a released moment that noise was drawn for, in the order of an upper triangle, or of its rows."""
    if part == "full":
        return released[np.triu_indices_from(released)]
    return np.concatenate([released[0], released[1, :-1]]) if part == "arrow" else released


def part_of(part, gram):
    """What is released of a second moment, without noise."""
    return {"full": gram, "arrow": np.stack([np.diag(gram), gram[:, -1]]), "diagonal": np.diag(gram)}[part]


def moment(X, part, data_norm, intercept):
    design = on_sphere(X, data_norm, intercept)
    return entries_of(part, part_of(part, design.T @ design))


def shortened_scaling(D, k, seed=3):
    """A map that scales ``D`` columns and shortens ``k`` directions, by factors from 1 down to a twentieth."""
    rng = np.random.default_rng(seed)
    directions = np.linalg.qr(rng.normal(size=(D, k)))[0]
    return ShortenedScaling(10.0 ** rng.uniform(-1, 1, D), directions, np.linspace(1, 0.05, k + 2)[1:-1])


def matrix_of(transform):
    """The matrix ``W`` of a map of rows, ``x -> W^T x``."""
    if isinstance(transform, np.ndarray):
        return np.diag(transform) if transform.ndim == 1 else transform
    U = transform.directions
    return transform.scales[:, None] * (np.eye(len(U)) - (U * (1 - transform.factors)) @ U.T)
