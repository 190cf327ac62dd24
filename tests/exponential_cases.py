"""Questions of each sampler of the exponential mechanism, and small problems to ask them of."""

import dataclasses
from functools import partial
from math import inf, log

import numpy as np
import solver_cases

from dpskl.mechanisms.exponential_sampling import RejectionSampling, calibrate_rejection
from dpskl.mechanisms.hidden_descent import HiddenDescent
from dpskl.records.losses import Logistic
from dpskl.records.problem import Problem
from dpskl.solvers import ExponentialMechanism

NEIGHBOURS = ("add_remove", "replace_one")
LANGEVIN = {}
PROXIMAL = {"sampler": "proximal"}
REJECTION = {"sampler": "rejection"}
MALA = {"sampler": "mala", "certified": False}
SAMPLERS = [LANGEVIN, PROXIMAL, REJECTION, MALA]
facts = partial(solver_cases.facts, n_samples=40, n_features=2, intercept=0.0)


def question(parameters, epsilon=1.0, delta=1e-2, **changes):
    ((mechanism, count),) = ExponentialMechanism(**parameters).plan(facts(**changes), epsilon, delta).questions
    assert count == 1
    return mechanism


def problem(n=40, d=2, seed=0, loss=None, intercept=0.0, X=None, y=None):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d)) if X is None else X
    y = rng.choice([-1.0, 1.0], len(X)) if y is None else np.asarray(y)
    return Problem(X, y, loss or Logistic(), data_norm=1.0, intercept=intercept)


def calibrated(loss, neighbours="add_remove", radius=5.0, row_norm=1.0, epsilon=1.0, ridge=1.0):
    return calibrate_rejection(
        loss,
        row_norm,
        radius,
        epsilon,
        ridge=ridge,
        gradient_bound=row_norm,
        curvature_bound=loss.curvature_bound * row_norm**2,
        loss_at_zero=float(loss.value(np.zeros(1))[0]),
        n_outputs=1,
        neighbours=neighbours,
        n_samples=31,
        n_features=1,
        n_weights=1,
    )


def many_draws(mechanism, data, n_draws, noise):
    """Releases; the mode, which is the same each time, is found once."""
    if isinstance(mechanism, HiddenDescent):
        return np.array([mechanism.release(data, noise) for _ in range(n_draws)])
    mode = colder(mechanism, inf).release(data, noise)
    return np.array([mechanism._draw(data, mode, noise) for _ in range(n_draws)])


def colder(mechanism, factor):
    return dataclasses.replace(mechanism, inverse_temperature=factor * mechanism.inverse_temperature)


class UncertifiedRejection(RejectionSampling):
    """On a ball that the mode is not certain to lie well inside of."""

    log_rate = log(1e-3)
