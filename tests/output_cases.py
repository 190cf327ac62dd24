"""Methods of output perturbation, small data, and their releases."""

from functools import partial
from math import inf

import numpy as np
import pytest
import solver_cases
from conftest import RecordingNoise

from dpskl.curator import Curator
from dpskl.records.problem import Problem
from dpskl.solvers import OutputPerturbation

METHODS = {
    "exact": OutputPerturbation(),
    "gd": OutputPerturbation("gd"),
    "psgd": OutputPerturbation("psgd"),
    "psgd constant step": OutputPerturbation("psgd", step_size=0.5),
}
each_method = pytest.mark.parametrize("method", METHODS)
each_relation = pytest.mark.parametrize("neighbours", ["add_remove", "replace_one"])
facts = partial(solver_cases.facts, n_samples=60, n_features=3)


def problem_for(public, solver, X, codes):
    loss = solver.problem_loss(public)
    targets = loss.encode(codes, public.n_classes)
    return Problem(X, targets, loss, data_norm=public.data_norm, intercept=public.intercept, n_outputs=public.n_outputs)


def random_data(public, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(public.n_samples, public.n_features))
    return X, rng.integers(0, public.n_classes, public.n_samples)


def release(public, solver, X, codes, epsilon=inf, delta=1e-6, noise=None):
    plan = solver.plan(public, epsilon, delta)
    curator = Curator(problem_for(public, solver, X, codes), plan.open_budget(), noise or RecordingNoise())
    return solver.run(curator, plan).weights
