"""Losses and records for the selections of PrivGene."""

import numpy as np

from dpskl.records.losses import Hinge, HuberHinge, Logistic, Softmax
from dpskl.records.problem import Problem

CASES = {
    "logistic": (Logistic(), 2),
    "hinge": (Hinge(), 2),
    "huber": (HuberHinge(0.2), 2),
    "softmax": (Softmax(), 3),
    "one-vs-rest": (Hinge(), 3),
}


def make_problem(X, codes, case, intercept=0.3):
    loss, n_classes = CASES[case]
    n_outputs = 1 if n_classes == 2 else n_classes
    targets = loss.encode(codes, n_classes)
    return Problem(X, targets, loss, data_norm=1.0, intercept=intercept, n_outputs=n_outputs)


def mixed_records(rng, n, n_classes):
    """Three columns of zeros and ones, one of zeros, four of numbers, all exact in float32."""
    X = rng.normal(size=(n, 8)).astype(np.float32).astype(float)
    X[:, :3] = rng.random((n, 3)) < 0.4
    X[rng.random(X.shape) < 0.3] = 0
    X[:, 5] = 0
    X[min(7, n - 1)] = 0
    return X, rng.integers(0, n_classes, n)
