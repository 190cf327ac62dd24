"""Extreme parameters are refused in words, or give a finite model in finite time: a sweep, seeded, with an alarm."""

import signal
import warnings

import numpy as np
import pytest

from dpskl import DPHuberSVC, DPLinearSVC, DPLogisticRegression
from dpskl.records.losses import Logistic
from dpskl.solvers import FTRL, ExponentialMechanism, GradientDescent, OutputPerturbation, solver_names

SECONDS = 60  # the slowest of 4,900 such fits took 9 s, but for certified chains of thousands of steps
EXTREMES = {
    "C": [1e-300, 1e-270, 1e-200, 1e-30, 1e-8, 1.0, 1e8, 1e100, 1e300],
    "data_norm": [1e-15, 1e-8, 1.0, 1e8, 1e15],
    "epsilon": [1e-6, 1e-3, 1.0, 50.0, 1e6],
    "delta": [0, 1e-300, 1e-30, 1e-6, 0.5],
    "neighbours": ["add_remove", "replace_one"],
    "n_samples": [None, 10**9],
}
MORE = [
    OutputPerturbation(method="psgd"),
    OutputPerturbation(method="gd"),
    ExponentialMechanism(sampler="rejection"),
    ExponentialMechanism(sampler="mala", certified=False),
    GradientDescent(iterate="last", momentum=0.0),
    GradientDescent(rows="clip"),
    FTRL(2, 7, factorisation="honaker", momentum=0.0),
]
ESTIMATORS = [DPLogisticRegression, DPHuberSVC, DPLinearSVC]
PAIRS = [
    (estimator, solver)
    for estimator in ESTIMATORS
    for solver in [*solver_names(estimator()._loss()), *MORE]
    if isinstance(solver, str) or solver.refusal(estimator()._loss()) is None
]


def rows(kind, n, d, norm, rng):
    X = rng.normal(size=(n, d))
    return {
        "ordinary": X * norm,
        "zero": 0 * X,
        "huge": X * 1e150,
        "tiny": X * 1e-150,
        "mixed": X * norm * 10.0 ** rng.integers(-20, 20, (n, 1)),
    }[kind]


@pytest.fixture
def alarm():
    if not hasattr(signal, "SIGALRM"):
        pytest.skip("this system has no alarm to end a fit that does not return")

    def ring(*_):
        raise TimeoutError(f"no answer within {SECONDS} seconds")

    before = signal.signal(signal.SIGALRM, ring)
    yield signal.alarm
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


def fit(estimator, solver, settings, X, y, k):
    """Return whether the fit was refused; fail unless it is finite."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = estimator(solver=solver, classes=range(k), **settings)
        try:
            model.fit(X, y)
        except ValueError:
            return True
    assert np.isfinite(model.coef_).all(), settings
    assert np.isfinite(model.intercept_).all(), settings
    assert np.isfinite(model.decision_function(X)).all(), settings
    return False


@pytest.mark.slow
@pytest.mark.parametrize(("estimator", "solver"), PAIRS, ids=str)
def test_extremes(estimator, solver, alarm):
    rng = np.random.default_rng(len(str(solver)))
    refused = 0
    for _ in range(12):
        settings = {name: values[rng.integers(len(values))] for name, values in EXTREMES.items()}
        n, d, k = int(rng.choice([2, 30, 200])), int(rng.choice([1, 3, 12])), int(rng.choice([2, 3]))
        kind = rng.choice(["ordinary", "zero", "huge", "tiny", "mixed"])
        X, y = rows(kind, n, d, settings["data_norm"], rng), rng.integers(0, k, n)
        alarm(SECONDS)
        refused += fit(estimator, solver, settings, X, y, k)
        alarm(0)
    assert refused < 12


@pytest.mark.parametrize("solver", [*solver_names(Logistic()), *MORE], ids=str)
def test_a_penalty_that_leaves_nothing_is_refused_in_units_that_do_not_matter(solver, alarm):
    alarm(SECONDS)
    for C, data_norm in ((1e-300, 1e-15), (1e-280, 1e-11), (1e-299, 1e-1)):
        model = DPLogisticRegression(C=C, data_norm=data_norm, solver=solver, classes=[0, 1])
        with pytest.raises(ValueError, match=r"C \* data_norm\^2 must be at least"):
            model.fit(np.eye(4) * data_norm, [0, 1, 0, 1])
