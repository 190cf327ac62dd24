"""PDA-DPMD: both forms against plain numpy on the same draws, limits, rules and refusals."""

from math import cos, inf, pi, sqrt

import numpy as np
import pytest
import scipy.sparse as sp
from public_cases import clipped_sum, design, gradients, noisy_sums, records, run, with_public, zeros
from scipy.optimize import fsolve, minimize
from solver_cases import facts, problem_for

from dpskl import DPHuberSVC, DPLinearSVC, DPLogisticRegression, PrivacyAccountant
from dpskl.records.losses import Hinge, HuberHinge
from dpskl.records.problem import Problem
from dpskl.solvers import SGD, PublicMirrorDescent
from dpskl.solvers._public import directions

quiet = pytest.mark.filterwarnings(
    *(f"ignore::dpskl.{name}" for name in ("NoPrivacyWarning", "SeededNoiseWarning", "WeakPrivacyWarning"))
)
RECORDS = (np.eye(3), [0, 1, 1])
SHORT = {"max_iter": 9, "step_size": 0.3, "clip_norm": 0.4}


def solver_with(**parameters):
    return PublicMirrorDescent(RECORDS, **parameters)


# -- the same run in plain numpy -------------------------------------------------------------------------------


def plain_first_order(solver, public, plan, draws, rate):
    ask, left = noisy_sums(public, draws, rate)
    X, codes = records(public, 45, 5)
    rows, ridge = design(public, X), 1 / public.C / public.n_samples
    w, last, iterates = zeros(public), zeros(public), []
    for t in range(9):
        g = ask(w, lambda each: clipped_sum(each, 0.4)) / (rate * public.n_samples)
        h = clipped_sum(gradients(rows, codes, w), 0.4) / 45
        share = solver.mixing if solver.mixing != "cosine" else 1 - cos(pi * t / 18)
        w, last = (w + solver.momentum * (w - last) - 0.3 * ((1 - share) * g + share * h)) / (1 + 0.3 * ridge), w
        iterates.append(w)
    assert next(left, None) is None
    return w if solver.iterate == "last" else np.mean(iterates[4:], axis=0)


@pytest.mark.parametrize("rate", [0.3, 1])
@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("epsilon", [1.0, inf])
@pytest.mark.parametrize("intercept", [0.3, 0.0])
@pytest.mark.parametrize("changes", [{"mixing": 0.4}, {"mixing": "cosine", "momentum": 0.5, "iterate": "last"}])
def test_the_first_order_form_is_its_formula_on_the_same_draws(changes, intercept, epsilon, n_classes, rate):
    solver = solver_with(**SHORT, **changes, rate=rate)
    public = with_public(facts(n_samples=80, C=0.05, n_classes=n_classes, intercept=intercept), solver)
    plan, tape, weights = run(solver, public, epsilon)
    expected = plain_first_order(solver, public, plan, tape.draws, rate)
    np.testing.assert_allclose(weights, expected, rtol=1e-6, atol=1e-9)
    assert np.abs(weights).max() > 1e-3


def plain_exact(solver, public, plan, draws, rate):
    ask, left = noisy_sums(public, draws, rate)
    X, codes = records(public, 45, 5)
    rows, ridge = design(public, X), 1 / public.C / public.n_samples
    curvature = 1 / 4 if public.n_classes == 2 else 1 / 2
    strength = solver.strength or curvature * public.row_norm**2 / public.n_weights
    inverses = 1 / (curvature * np.linalg.eigvalsh(rows.T @ rows / 45) + strength)
    pace = 0.3 / sqrt(np.mean(inverses**2))

    def slope(w):
        return gradients(rows, codes, w).mean(axis=0) + strength * w

    w, last, iterates = zeros(public), zeros(public), []
    for _ in range(9):
        g = ask(w, lambda each: clipped_sum(each, 0.4)) / (rate * public.n_samples)
        goal = slope(w + solver.momentum * (w - last)) - pace * g

        def miss(flat, goal=goal):
            v = flat.reshape(goal.shape)
            return (slope(v) + pace * ridge * v - goal).ravel()

        w, last = fsolve(miss, w.ravel(), xtol=1e-13).reshape(w.shape), w
        iterates.append(w)
    assert next(left, None) is None
    return np.mean(iterates[4:], axis=0)


@pytest.mark.parametrize("rate", [0.3, 1])
@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("epsilon", [1.0, inf])
@pytest.mark.parametrize("strength", [None, 0.2])
def test_the_exact_form_is_its_formula_on_the_same_draws(strength, epsilon, n_classes, rate):
    solver = solver_with(**SHORT, mirror="exact", strength=strength, rate=rate)
    public = with_public(facts(n_samples=80, C=0.05, n_classes=n_classes), solver)
    plan, tape, weights = run(solver, public, epsilon)
    np.testing.assert_allclose(weights, plain_exact(solver, public, plan, tape.draws, rate), rtol=1e-4, atol=1e-5)
    assert np.abs(weights).max() > 1e-2


# -- limits ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rate", [0.3, 1])
@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("parameters", [{"mixing": 0}, {"mirror": "exact", "strength": 1e9}])
def test_without_public_gradients_or_with_a_round_map_it_is_sgd(parameters, n_classes, rate):
    solver, public = solver_with(rate=rate, max_iter=30, **parameters), facts(n_classes=n_classes, C=0.1)
    plan, _, ours = run(solver, with_public(public, solver))
    sgd, _, theirs = run(SGD(rate=rate, max_iter=30), public)
    assert plan.questions == sgd.questions
    if solver.mirror == "exact":
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-5 * np.abs(theirs).max())
    else:
        np.testing.assert_array_equal(ours, theirs)


def minimum(public, solver, problem):
    def objective(flat):
        w = flat.reshape(problem.zeros().shape)
        return problem.losses(problem.scores(w)).sum() + flat @ flat / (2 * public.C)

    return minimize(objective, np.zeros(problem.zeros().size), tol=1e-12).x


@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("loss", [facts().loss, HuberHinge(0.5)], ids=["logistic", "huber"])
def test_the_exact_form_finds_the_regularised_minimum_of_the_private_losses(loss, n_classes):
    """Public records of other labels change the way and not the end."""
    solver = solver_with(rate=1, max_iter=300, mirror="exact", step_size=4.0, momentum=0.8)
    public = with_public(facts(n_samples=200, C=0.1, n_classes=n_classes, loss=loss), solver)
    best = minimum(public, solver, problem_for(public, solver))
    np.testing.assert_allclose(run(solver, public, inf)[-1].ravel(), best, atol=3e-3)
    assert np.abs(best).max() > 0.05


def test_public_records_that_are_the_private_ones_change_nothing_but_noise():
    public = facts(n_samples=200, C=0.1)
    same = {"rate": 1, "max_iter": 300, "step_size": 4.0, "momentum": 0.8, "clip_norm": 0.3}
    solver = solver_with(mixing=0.7, **same)
    given = type(public)(**{**vars(public), "public_problem": problem_for(public, solver)})
    ours, theirs = run(solver, given, inf)[-1], run(SGD(**same), public, inf)[-1]
    np.testing.assert_allclose(ours, theirs, rtol=1e-9)


# -- rules -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rate", [0.1, 1])
@pytest.mark.parametrize("n_classes", [2, 3])
def test_the_balance_is_that_of_the_variances(n_classes, rate):
    solver = solver_with(rate=rate)
    public = with_public(facts(n_samples=2000, n_classes=n_classes), solver)
    settings = solver.plan(public, 0.1, 1e-6).settings
    rows = design(public, records(public, 45, 5)[0])
    moment = rows.T @ rows
    private = settings.noise**2 / 150 * np.trace(moment) ** 2 / (moment**2).sum() * public.n_outputs
    assert settings.share == pytest.approx(private / (private + settings.clip_norm**2 / 45))
    assert 0.01 < settings.share < 0.99
    assert solver.plan(public, inf, 1e-6).settings.share == 0
    assert solver_with(mixing="cosine").plan(public, 0.1, 1e-6).settings.share is None


@pytest.mark.parametrize("layout", [np.asarray, sp.csr_array])
def test_directions_in_which_rows_lie(layout, monkeypatch):
    def count(X, intercept=0.0):
        problem = Problem(layout(X), None, None, data_norm=1.0, intercept=intercept, rows="fill")
        several = directions(problem)
        with monkeypatch.context() as patch:
            patch.setattr("dpskl.solvers._public._BLOCK", 1)  # products of one row at a time
            assert directions(problem) == pytest.approx(several)
        return several

    rng = np.random.default_rng(0)
    assert count(np.outer(rng.normal(size=20), [1, 2.0, 3])) == pytest.approx(1)
    assert count(np.repeat(np.eye(6), 4, axis=0)) == pytest.approx(6)
    assert count(np.zeros((4, 3))) == 1  # nothing but rows that are lost
    assert count(np.zeros((4, 3)), 0.3) == pytest.approx(1)
    wide, tall = rng.normal(size=(8, 5000)), rng.normal(size=(3000, 4))
    assert count(wide) == pytest.approx(8, rel=0.1)
    assert count(tall) == pytest.approx(4, rel=0.1)  # by 500 of them
    assert count(1 + 0.01 * tall) == pytest.approx(1, rel=0.01)


@pytest.mark.parametrize("mirror", ["first_order", "exact"])
def test_runs_follow_the_units_of_the_rows(mirror):
    """Rows and data_norm times 100: weights divided by 100."""
    solver = solver_with(mirror=mirror, rate=1, max_iter=20)
    small, large = (
        with_public(facts(C=C, data_norm=norm, intercept=0.3 * norm), solver) for C, norm in ((1.0, 1.0), (1e-4, 100.0))
    )
    one, other = (solver.plan(public, 1.0, 1e-6).settings for public in (small, large))
    assert other.step * 1e4 == pytest.approx(one.step)
    assert other.share == pytest.approx(one.share) if mirror == "first_order" else True
    assert other.strength == pytest.approx(1e4 * one.strength)
    assert other.stretch == pytest.approx(1e4 * one.stretch if mirror == "exact" else one.stretch)


# -- refusals --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"mixing": "sine"}, "mixing='sine' must be 'balanced' or 'cosine'"),
        ({"mixing": 1}, r"mixing=1 must be a number in \[0, 1\)"),
        ({"mixing": -0.1}, r"mixing=-0\.1"),
        ({"mixing": True}, "mixing=True"),
        ({"mixing": None}, "mixing=None"),
        ({"mirror": "both"}, "mirror='both' must be 'first_order' or 'exact'"),
        ({"strength": 1.0}, r"strength=1\.0 is for mirror='exact'"),
        ({"mirror": "exact", "strength": 0}, "strength=0 must be None or a positive finite number"),
        ({"mirror": "exact", "mixing": 0.5}, r"mixing=0\.5 is for mirror='first_order'"),
        ({"momentum": 1}, "momentum=1"),
        ({"rate": 2}, "rate=2"),
    ],
)
def test_bad_parameters_are_refused_before_anything_is_charged(parameters, message):
    _refused(solver_with(**parameters), message)


def test_without_public_records_it_is_refused_by_name():
    for solver in ("pda_dpmd", PublicMirrorDescent()):
        _refused(solver, r"solver='pda_dpmd' needs public records: pass PublicMirrorDescent\(public_data=\(X, y\)\)")
    with pytest.raises(ValueError, match="needs public records in the facts of its plan"):
        solver_with().plan(facts(), 1.0, 1e-6)


def test_the_exact_form_refuses_the_hinge_and_many_weights():
    solver = solver_with(mirror="exact")
    assert "take mirror='first_order'" in solver.refusal(Hinge())
    assert solver_with().refusal(Hinge()) is None
    _refused(solver, "mirror='exact'.*kink.*choose solver='whitened_gd'", estimator=DPLinearSVC)
    wide = np.zeros((60, 700))
    message = "mirror='exact' solves for 2103 weights at every step, and at most 2000 are possible"
    _refused(PublicMirrorDescent((wide, [0] * 60), mirror="exact"), message, wide, classes=range(3))
    _refused(solver_with(), "'replace_one' has no proved bound .*'pda_dpmd'.*rate=1", neighbours="replace_one")
    _refused(solver_with(), "delta=0.*pda_dpmd", delta=0)


def _refused(solver, message, X=None, estimator=DPLogisticRegression, **settings):
    accountant = PrivacyAccountant()
    model = estimator(**{"solver": solver, "classes": [0, 1], "accountant": accountant, **settings})
    with pytest.raises(ValueError, match=message):
        model.fit(np.eye(60, 3) if X is None else X, np.arange(60) % 2)
    assert accountant.entries() == ()


# -- fits ------------------------------------------------------------------------------------------------------


@quiet
@pytest.mark.parametrize("mirror", ["first_order", "exact"])
@pytest.mark.parametrize("n_classes", [2, 3])
def test_layouts_and_precisions_agree(n_classes, mirror):
    rng = np.random.default_rng(0)
    X = (rng.integers(0, 3, size=(400, 6)) / 2).astype(np.float32)
    y, fits = rng.integers(0, n_classes, 400), []
    for one, other in ((np.asarray, np.asarray), (sp.csr_array, np.asfortranarray), (np.float64, sp.csr_matrix)):
        solver = PublicMirrorDescent((other(X[:30]), y[:30]), mirror=mirror, rate=0.2, max_iter=8)
        model = DPLogisticRegression(1.0, solver=solver, classes=range(n_classes), random_state=0)
        fits.append(model.fit(one(X), y))
    for fit in fits[1:]:
        np.testing.assert_allclose(fit.coef_, fits[0].coef_, rtol=1e-4, atol=1e-5)


@quiet
@pytest.mark.parametrize("estimator", [DPLogisticRegression, DPHuberSVC, DPLinearSVC])
@pytest.mark.parametrize("mirror", ["first_order", "exact"])
@pytest.mark.parametrize("fit_intercept", [True, False])
def test_small_and_constant_data(fit_intercept, mirror, estimator):
    if estimator is DPLinearSVC and mirror == "exact":
        return
    for X, y in ((np.ones((2, 1)), [0, 1]), (np.zeros((30, 2)), np.arange(30) % 2), (np.eye(2), [0, 0])):
        solver = PublicMirrorDescent((X[:1], y[:1]), mirror=mirror, max_iter=20)
        for epsilon in (1.0, inf):
            for C in (1e-200, 1.0, 1e200):
                model = estimator(epsilon, 1e-6, C=C, solver=solver, classes=[0, 1], fit_intercept=fit_intercept)
                assert np.isfinite(model.fit(X, y).decision_function(X)).all()
                assert model.n_iter_ == 20


@quiet
@pytest.mark.parametrize("scale", [1e-150, 1e-15, 1e15, 1e150])
@pytest.mark.parametrize("mirror", ["first_order", "exact"])
def test_rows_of_any_length_and_long_steps_give_finite_weights(mirror, scale):
    X, y = np.random.default_rng(0).normal(size=(50, 3)) * scale, np.arange(50) % 3
    for step_size in (None, 1e40):
        solver = PublicMirrorDescent((X[:9], y[:9]), mirror=mirror, max_iter=8, step_size=step_size)
        model = DPLogisticRegression(1.0, solver=solver, classes=range(3), data_norm=min(max(scale, 1e-15), 1e3))
        assert np.isfinite(model.fit(X, y).coef_).all()


@quiet
@pytest.mark.parametrize("parameters", [{}, {"mixing": "cosine"}, {"mixing": 0.6}])
def test_what_few_private_records_do_not_tell_public_ones_do(parameters):
    rng = np.random.default_rng(0)
    y = rng.integers(0, 3, 1000)
    X = np.eye(5)[y] + 0.4 * rng.normal(size=(1000, 5))
    scores = np.zeros(2)
    for seed in range(4):
        for k, solver in enumerate((SGD(), PublicMirrorDescent((X[:200], y[:200]), **parameters))):
            model = DPLogisticRegression(0.05, classes=range(3), data_norm=2.0, random_state=seed, solver=solver)
            scores[k] += model.fit(X[200:], y[200:]).score(X, y) / 4
    plain, ours = scores
    assert ours > plain + 0.03
