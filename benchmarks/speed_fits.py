"""Whole fits on Adult against scikit-learn's logistic regression, all in turn."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from common import load
from fits import CLASSES, DELTA
from sklearn.linear_model import LogisticRegression
from timing import comparison, interleave

from dpskl import DPHuberSVC, DPLogisticRegression

EPSILONS = (0.1, 1.0, 10.0)
TARGET = 2.0
BASELINE = "LogisticRegression(C=1), lbfgs"


def fits(repetitions: int, has_adult: bool) -> Iterator[dict[str, Any]]:
    """Yield fits of both models and both solvers; the target is for private logistic regression."""
    if not has_adult:
        print("fit: skipped, it needs Adult")
        return
    X, y = load("adult")
    X = np.ascontiguousarray(X)

    def private(kind: Any, solver: str, epsilon: float) -> Callable[[], Any]:
        return lambda: kind(epsilon, DELTA, solver=solver, classes=CLASSES).fit(X, y)

    solvers = (("objective_perturbation", EPSILONS), ("gd", EPSILONS[:2]), ("whitened_gd", EPSILONS[:2]))
    private_fits = {
        f"{kind.__name__}, {solver}, epsilon {epsilon:g}": private(kind, solver, epsilon)
        for kind in (DPLogisticRegression, DPHuberSVC)
        for solver, epsilons in solvers
        for epsilon in epsilons
    }
    # the private fits see rows scaled to norm 1, and on those lbfgs needs fewer iterations than on raw rows
    bounded = X / np.maximum(1, np.linalg.norm(X, axis=1))[:, None]
    plain = {
        BASELINE: lambda: LogisticRegression(C=1.0).fit(X, y),
        f"{BASELINE}, rows of norm 1": lambda: LogisticRegression(C=1.0).fit(bounded, y),
    }
    seconds = interleave({**plain, **private_fits}, repetitions)
    for name in private_fits:
        target = TARGET if name.startswith("DPLogisticRegression, objective") else None
        yield comparison(name, seconds[name], seconds[BASELINE], BASELINE, at_most=target)
    other = f"{BASELINE}, rows of norm 1"
    yield comparison(other, seconds[other], seconds[BASELINE], BASELINE)
