"""Public records for the tests of the solvers that learn from some, and what plain numpy makes of records."""

from dataclasses import replace
from math import floor, log2

import numpy as np
from conftest import Tape
from scipy.special import expit, softmax
from solver_cases import problem_for

from dpskl.curator import Curator
from dpskl.records.problem import Problem
from dpskl.solvers import AdaDPS, PublicMirrorDescent


def records(facts, count, seed):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(count, facts.n_features)) * facts.data_norm, rng.integers(0, facts.n_classes, count)


def with_public(facts, solver, count=45, seed=5):
    """Return the facts with public records that are made of nothing but them."""
    X, codes = records(facts, count, seed)
    loss = solver.problem_loss(facts)
    problem = Problem(
        X,
        loss.encode(codes, facts.n_classes),
        loss,
        data_norm=facts.data_norm,
        intercept=facts.intercept,
        n_outputs=facts.n_outputs,
        rows=facts.rows,
    )
    return replace(facts, public_problem=problem)


class _Made:
    """Public records are made where none are given, so that nothing needs to be known of the data beforehand."""

    def refusal(self, loss):
        return None

    def plan(self, facts, epsilon, delta):
        return super().plan(with_public(facts, self), epsilon, delta)


class MadeMirror(_Made, PublicMirrorDescent):
    pass


class MadeAdaDPS(_Made, AdaDPS):
    pass


def run(solver, facts, epsilon=1.0, noise=None):
    """Return plan, noise and weights of a run on the records of solver_cases."""
    plan = solver.plan(facts, epsilon, 1e-6)
    noise = noise or Tape(1)
    return plan, noise, solver.run(Curator(problem_for(facts, solver), plan.open_budget(), noise), plan).weights


# -- the same in plain numpy -----------------------------------------------------------------------------------


def design(facts, X):
    """Rows under the clip map."""
    X = X * np.minimum(1, facts.data_norm / np.linalg.norm(X, axis=1, keepdims=True))
    return np.column_stack([X, np.full(len(X), facts.intercept)])[:, : facts.n_weights]


def gradients(design, codes, w):
    """Return the gradient of each record, of logistic losses for one output and softmax losses for several."""
    if w.ndim == 1:
        return (expit(design @ w) - codes)[:, None] * design
    return design[:, :, None] * (softmax(design @ w, axis=1) - np.eye(w.shape[1])[codes])[:, None, :]


def clipped_sum(each, clip):
    norms = np.sqrt((each**2).reshape(len(each), -1).sum(axis=1))
    shares = np.minimum(1, clip / np.maximum(norms, 1e-300))
    return (each * shares.reshape(-1, *[1] * (each.ndim - 1))).sum(axis=0)


def private_records(facts):
    """Those of problem_for, made again."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(facts.n_samples, facts.n_features))
    return design(facts, X), rng.integers(0, facts.n_classes, facts.n_samples)


def noisy_sums(facts, draws, rate):
    """Return a function of weights, a sum of the gradients of given records, and its unit, on given draws."""
    rows, codes = private_records(facts)
    draws = iter(draws)

    def ask(w, add_up):
        members = np.arange(facts.n_samples)
        if rate < 1:
            members = np.cumsum(np.floor(next(draws).unit / -np.log1p(-rate)) + 1).astype(int) - 1
            members = members[members < facts.n_samples]
        draw = next(draws)
        noisy = add_up(gradients(rows[members], codes[members], w)) + draw.scale * draw.unit.reshape(w.shape)
        if draw.scale:
            grid = 2.0 ** (floor(log2(draw.scale)) - 20)
            noisy = np.round(noisy / grid) * grid
        return noisy

    return ask, draws


def zeros(facts):
    return np.zeros((facts.n_weights,) if facts.n_classes == 2 else (facts.n_weights, facts.n_classes))
