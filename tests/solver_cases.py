"""Public facts of a small problem, and a problem to go with them."""

import numpy as np

from dpskl.records.losses import Logistic
from dpskl.records.problem import Problem
from dpskl.solvers import PublicFacts


def facts(**changes):
    settings = {
        "n_samples": 500,
        "n_features": 4,
        "n_classes": 2,
        "data_norm": 1.0,
        "intercept": 0.3,
        "loss": Logistic(),
        "neighbours": "add_remove",
        "C": 1.0,
    }
    return PublicFacts(**{**settings, **changes})


def problem_for(public, solver, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(public.n_samples, public.n_features))
    codes = rng.integers(0, public.n_classes, public.n_samples)
    loss = solver.problem_loss(public)
    return Problem(
        X,
        loss.encode(codes, public.n_classes),
        loss,
        data_norm=public.data_norm,
        intercept=public.intercept,
        n_outputs=public.n_outputs,
    )
