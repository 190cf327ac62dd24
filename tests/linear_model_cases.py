"""Every estimator with every solver that it takes, small data for them, and models of few questions."""

import numpy as np
import pytest

from dpskl import DPHuberSVC, DPLinearSVC, DPLogisticRegression
from dpskl.solvers import AdaptiveGD, BacktrackingGD, BacktrackingSGD, OutputPerturbation, solver_names

ESTIMATORS = (DPLogisticRegression, DPLinearSVC, DPHuberSVC)
PAIRS = [(cls, name) for cls in ESTIMATORS for name in solver_names(cls()._loss())]
PAIRS += [(DPLogisticRegression, OutputPerturbation(method)) for method in ("gd", "psgd")]
each_pair = pytest.mark.parametrize(("cls", "solver"), PAIRS)


def data(n=200, d=4, n_classes=2, seed=0):
    rng = np.random.default_rng(seed)
    centres = rng.normal(size=(n_classes, d)) * 1.5
    codes = rng.integers(0, n_classes, n)
    codes[:n_classes] = np.arange(n_classes)
    return centres[codes] + rng.normal(size=(n, d)) * 0.3, codes


# Fewer questions than by default, where what is tested does not depend on their number.
SHORT = {"agd": AdaptiveGD(n_updates=20), "blgd": BacktrackingGD(n_updates=30), "blsgd": BacktrackingSGD(n_updates=30)}


def quiet(cls, solver, n_classes=2, **changes):
    solver = SHORT.get(solver, solver) if isinstance(solver, str) else solver
    settings = {"solver": solver, "classes": range(n_classes), "data_norm": 3.0, "random_state": 0, **changes}
    return cls(**settings)
