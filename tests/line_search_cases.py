"""Data for solvers that ask for their steps, and curator and noise that keep what was asked."""

from functools import partial
from math import sqrt

import numpy as np
import pytest
import solver_cases
from conftest import RecordingNoise

from dpskl import DPLogisticRegression
from dpskl.curator import Curator
from dpskl.mechanisms.noise import SeededNoise
from dpskl.records.path import Path
from dpskl.records.problem import Problem
from dpskl.solvers.adaptive import AdaptiveGD
from dpskl.solvers.line_search import BacktrackingGD, BacktrackingSGD

EXPECTED_WARNINGS = [
    pytest.mark.filterwarnings("ignore::dpskl.SeededNoiseWarning"),
    pytest.mark.filterwarnings("ignore::dpskl.PrivacyLeakWarning"),
    pytest.mark.filterwarnings("ignore::dpskl.NoPrivacyWarning"),
    pytest.mark.filterwarnings("ignore::dpskl.WeakPrivacyWarning"),
]

INTERCEPT = 0.3
ROW = sqrt(1 + INTERCEPT**2)
facts = partial(solver_cases.facts, n_samples=400, n_features=3, intercept=INTERCEPT)


def records(public, seed=0):
    """Rows and labels that a linear classifier can learn."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(public.n_samples, public.n_features))
    normals = rng.normal(size=(public.n_features, public.n_classes))
    return X, (X @ normals + 0.3 * rng.normal(size=(public.n_samples, public.n_classes))).argmax(axis=1)


def problem_for(public, solver, seed=0):
    X, codes = records(public, seed)
    loss = solver.problem_loss(public)
    targets = loss.encode(codes, public.n_classes)
    return Problem(X, targets, loss, data_norm=public.data_norm, intercept=public.intercept, n_outputs=public.n_outputs)


class Watching(Curator):
    """A curator that keeps, for every question, the mechanism, the arguments, the answer and the draws."""

    def __init__(self, problem, budget, noise):
        super().__init__(problem, budget, noise)
        self.noise, self.asked = noise, []

    def ask(self, mechanism, *arguments):
        start = len(getattr(self.noise, "draws", ()))
        answer = super().ask(mechanism, *arguments)
        self.asked.append((mechanism, arguments, answer, getattr(self.noise, "draws", [])[start:]))
        return answer


def run(solver, public, epsilon=1.0, delta=1e-6, noise=None, seed=0):
    plan = solver.plan(public, epsilon, delta)
    problem = problem_for(public, solver, seed)
    data = Path(problem) if plan.along_path else problem
    curator = Watching(data, plan.open_budget(), RecordingNoise() if noise is None else noise)
    return plan, curator, solver.run(curator, plan)


class Drawing(SeededNoise):
    """Seeded noise that keeps the law and the scale of everything that was drawn."""

    def __init__(self, seed):
        super().__init__(seed)
        self.draws = []

    def normal(self, size, scale):
        self.draws.append(("normal", scale))
        return super().normal(size, scale)

    def laplace(self, size, scale):
        self.draws.append(("laplace", scale))
        return super().laplace(size, scale)

    def gumbel(self, size, scale):
        self.draws.append(("gumbel", scale))
        return super().gumbel(size, scale)


def mechanism_range(clip, slope, direction, longest):
    """The range by hand: the clip, or how far a loss can move along the ray."""
    return min(clip, slope * ROW * longest * np.linalg.norm(direction))


FEW = [BacktrackingGD(n_updates=5), BacktrackingSGD(n_updates=5, q=0.3), AdaptiveGD(n_updates=5)]


def fitted(solver, X, y, estimator=DPLogisticRegression, **changes):
    settings = {"epsilon": 1.0, "delta": 1e-6, "solver": solver, "random_state": 0, "classes": np.unique(y)}
    return estimator(**{**settings, **changes}).fit(X, y)
