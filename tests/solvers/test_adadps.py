"""AdaDPS: both kinds of scales against plain numpy on the same draws, limits, rules and refusals."""

from dataclasses import replace
from math import ceil, inf

import numpy as np
import pytest
import scipy.sparse as sp
from public_cases import clipped_sum, design, gradients, noisy_sums, records, run, with_public, zeros
from scipy.optimize import minimize
from solver_cases import facts, problem_for

from dpskl import DPHuberSVC, DPLinearSVC, DPLogisticRegression, PrivacyAccountant
from dpskl.accounting import SampledGaussianCost, compose
from dpskl.mechanisms.poisson_sample import PoissonSample
from dpskl.mechanisms.scaled_gradient import ScaledGradient
from dpskl.solvers import SGD, AdaDPS

quiet = pytest.mark.filterwarnings(
    *(f"ignore::dpskl.{name}" for name in ("NoPrivacyWarning", "SeededNoiseWarning", "WeakPrivacyWarning"))
)
RECORDS = (np.eye(3), [0, 1, 1])
SHORT = {"max_iter": 9, "step_size": 0.3, "clip_norm": 0.4}
GIVEN = [0.2, 1.0, 5.0, 30.0]


# -- the same run in plain numpy -------------------------------------------------------------------------------


def plain_scales(solver, public, w, moment):
    """Return scales and second moment at some weights, and the factor that clip norm and step are exchanged by."""
    if solver.feature_scales is not None:
        a = np.append(GIVEN, [min(GIVEN)])[: public.n_weights]
        a = a if w.ndim == 1 else np.tile(a[:, None], w.shape[1])
        return a, None, np.sqrt(np.mean(a**2))
    X, codes = records(public, 45, 5)
    rows = design(public, X)
    order = np.random.default_rng(0).permutation(45)
    parts = np.array_split(order, ceil(45 / solver.public_batch_size))
    new = np.mean([gradients(rows[part], codes[part], w).mean(axis=0) ** 2 for part in parts], axis=0)
    moment = new if moment is None else solver.beta * moment + (1 - solver.beta) * new
    a = 1 / (np.sqrt(moment) + solver.stability * np.sqrt(moment.mean()))
    stretched = rows * (a if w.ndim == 1 else np.sqrt((a**2).mean(axis=1)))
    return a, moment, np.sqrt((stretched**2).sum() / (rows**2).sum())


def plain_run(solver, public, draws, rate, refresh):
    """With the scales as they are, C2 = C1 factor, step2 = step1 C1 / C2 and the noise in units of C2."""
    ask, left = noisy_sums(public, draws, rate)
    n, ridge = public.n_samples, 1 / public.C / public.n_samples
    w, last, moment, iterates = zeros(public), zeros(public), None, []
    for t in range(9):
        if t % refresh == 0:
            a, moment, factor = plain_scales(solver, public, w, moment)
        clip, step = 0.4 * factor, 0.3 / factor
        g = clip * ask(w, lambda each, a=a, clip=clip: clipped_sum(a * each, clip) / clip) / (rate * n)
        w, last = (w + solver.momentum * (w - last) - step * g) / (1 + step * a * ridge), w
        iterates.append(w)
    assert next(left, None) is None
    return w if solver.iterate == "last" else np.mean(iterates[4:], axis=0)


@pytest.mark.parametrize("rate", [0.3, 1])
@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("epsilon", [1.0, inf])
@pytest.mark.parametrize("intercept", [0.3, 0.0])
@pytest.mark.parametrize(
    ("parameters", "refresh"),
    [
        ({"public_data": RECORDS, "stability": 0.4}, None),
        ({"public_data": RECORDS, "beta": 0.7, "refresh": 2, "public_batch_size": 7, "momentum": 0.5}, 2),
        ({"public_data": RECORDS, "refresh": 99, "public_batch_size": 10_000, "iterate": "last"}, 99),
        ({"feature_scales": GIVEN}, 99),
    ],
)
def test_a_run_is_what_its_draws_and_the_formulas_make_of_it(parameters, refresh, intercept, epsilon, n_classes, rate):
    solver = AdaDPS(**SHORT, **parameters, rate=rate)
    public = facts(n_samples=80, C=0.05, n_classes=n_classes, intercept=intercept)
    public = public if solver.public_data is None else with_public(public, solver)
    _, tape, weights = run(solver, public, epsilon)
    expected = plain_run(solver, public, tape.draws, rate, refresh or ceil(1 / rate))
    np.testing.assert_allclose(weights, expected, rtol=1e-6, atol=1e-9)
    assert np.abs(weights).max() > 1e-3


# -- limits ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rate", [0.3, 1])
@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("rows", ["fill", "clip"])
@pytest.mark.parametrize("common", [{}, SHORT])
@pytest.mark.parametrize(
    "parameters",
    [{"feature_scales": 7.0}, {"feature_scales": [1e-9] * 4}, {"public_data": RECORDS, "stability": 1e13}],
)
def test_equal_scales_are_sgd(parameters, common, rows, n_classes, rate):
    public = facts(n_classes=n_classes, C=0.1, rows=rows)
    solver, sgd = AdaDPS(rate=rate, **common, **parameters), SGD(rate=rate, **common)
    plan, tape, ours = run(solver, with_public(public, solver))
    reference, other, theirs = run(sgd, public)
    np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-6 * np.abs(theirs).max())
    assert plan.cost.epsilon(1e-6) == reference.cost.epsilon(1e-6)
    # noise in units of the clip norm, rounded to another grid
    clip = plan.settings.clip_norm
    for mine, draw in zip(tape.draws, other.draws, strict=True):
        assert mine.scale * (clip if mine.law == "normal" else 1) == pytest.approx(draw.scale, rel=1e-9)


@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("parameters", [{"feature_scales": [0.3, 1, 2, 3]}, {"public_data": RECORDS, "stability": 0.5}])
def test_without_noise_the_minimum_of_the_regularised_losses_is_found(parameters, n_classes):
    solver = AdaDPS(rate=1, max_iter=600, step_size=4.0, momentum=0.8, clip_norm=1e6, **parameters)
    public = with_public(facts(n_samples=200, C=0.1, n_classes=n_classes), solver)
    problem = problem_for(public, solver)

    def objective(flat):
        w = flat.reshape(problem.zeros().shape)
        return problem.losses(problem.scores(w)).sum() + flat @ flat / (2 * public.C)

    best = minimize(objective, np.zeros(problem.zeros().size), tol=1e-12).x
    np.testing.assert_allclose(run(solver, public, inf)[-1].ravel(), best, atol=3e-3)
    assert np.abs(best).max() > 0.05


# -- rules -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rate", "refresh", "served"), [(0.3, None, 4), (1, None, 1), (0.05, None, 20), (0.3, 500, 60)]
)
def test_scales_serve_an_expected_pass(rate, refresh, served):
    solver = AdaDPS(RECORDS, rate=rate, refresh=refresh, max_iter=60)
    plan = solver.plan(with_public(facts(), solver), 1.0, 1e-6)
    assert plan.settings.refresh == served
    assert AdaDPS(feature_scales=1, rate=rate, max_iter=60).plan(facts(), 1.0, 1e-6).settings.refresh == 60
    ((question, count),) = plan.questions
    mechanism = question.mechanism if rate < 1 else question
    assert count == 60
    assert isinstance(mechanism, ScaledGradient)
    assert mechanism.keeps_norms  # as many rows in these steps as there are
    few = AdaDPS(RECORDS, rate=0.05, refresh=3).plan(with_public(facts(), solver), 1.0, 1e-6).questions[0][0]
    assert isinstance(few, PoissonSample)
    assert not few.mechanism.keeps_norms


@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("rate", [0.05, 1])
def test_the_budget_is_used_and_not_exceeded(rate, n_classes):
    plan = AdaDPS(feature_scales=GIVEN, rate=rate, max_iter=60).plan(facts(n_classes=n_classes), 1.0, 1e-6)
    ((question, _),) = plan.questions
    by_hand = plan.cost if rate == 1 else compose([(SampledGaussianCost(rate, question.noise_scale), 60)])
    assert 0.998 <= by_hand.epsilon(1e-6) <= 1.0
    assert question.noise_scale == pytest.approx(
        question.sensitivity / (question if rate == 1 else question.mechanism).mu
    )


def test_the_intercept_gets_the_smallest_scale():
    scales = AdaDPS(feature_scales=[4.0, 2.0, 8.0, 2.5]).plan(facts(), 1.0, 1e-6).settings.scales
    np.testing.assert_allclose(scales / scales.min(), [2, 1, 4, 1.25, 1])
    assert np.mean(scales**2) == pytest.approx(1)


@pytest.mark.parametrize("n_classes", [2, 3])
def test_columns_that_are_rare_in_public_are_scaled_up_and_units_do_not_matter(n_classes):
    solver = AdaDPS(RECORDS, stability=0.1, rate=1, max_iter=1)
    scales = []
    for C, norm in ((1.0, 1.0), (1e-4, 100.0)):
        public = with_public(facts(n_classes=n_classes, C=C, data_norm=norm, intercept=0.3 * norm), solver)
        public.public_problem.X[:, 0] *= 0.01
        plan = solver.plan(public, 1.0, 1e-6)
        scales.append(solver._renewals(plan.settings)(np.zeros(problem_for(public, solver).zeros().shape)))
    np.testing.assert_allclose(scales[0], scales[1])
    flat = scales[0].reshape(5, -1)
    assert (flat[0] > 2 * flat[1:4]).all()


def test_public_records_without_any_gradient_leave_the_scales_equal():
    solver = AdaDPS(RECORDS, rate=1, max_iter=3)
    public = with_public(facts(intercept=0.0), solver)
    public.public_problem._scale[:] = 0
    public.public_problem.row_norms[:] = 0
    scales = solver._renewals(solver.plan(public, 1.0, 1e-6).settings)(np.zeros(4))
    np.testing.assert_allclose(scales, 1)


# -- refusals --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"feature_scales": [1, 2]}, r"feature_scales=\[1, 2\] must be one number, or one for each of 3"),
        ({"feature_scales": [1, 0, 1]}, r"feature_scales=\[1, 0, 1\] must be a positive number, or list one for each"),
        ({"feature_scales": -1.0}, r"feature_scales=-1\.0 must be a positive number"),
        ({"feature_scales": [1, inf, 1]}, "all of them finite"),
        ({"feature_scales": [1, float("nan"), 1]}, "all of them finite"),
        ({"feature_scales": "many"}, "feature_scales='many' must"),
        ({"feature_scales": True}, "feature_scales=True must"),
        ({"feature_scales": []}, r"feature_scales=\[\] must"),
        ({"feature_scales": np.ones((3, 1))}, r"feature_scales=ndarray of shape \(3, 1\) must"),
        ({"feature_scales": [1, 1e13, 1]}, r"differ by a factor of 1\.0e\+13, and at most 1e\+12"),
        ({"feature_scales": [1, 1e300, 1e-300]}, "differ by a factor of inf"),
        ({"feature_scales": 1, "public_data": RECORDS}, r"public_data=.*feature_scales=1 both say.*leave one"),
        ({"public_data": RECORDS, "beta": 1}, r"beta=1 must be a number in \[0, 1\)"),
        ({"public_data": RECORDS, "stability": 0}, "stability=0 must be a positive finite number"),
        ({"public_data": RECORDS, "refresh": 0}, "refresh=0 must be None or a whole number"),
        ({"public_data": RECORDS, "public_batch_size": 2.5}, r"public_batch_size=2\.5 must be a whole number"),
        ({"feature_scales": 1, "momentum": 1}, "momentum=1"),
    ],
)
def test_bad_parameters_are_refused_before_anything_is_charged(parameters, message):
    _refused(AdaDPS(**parameters), message)


def test_without_public_knowledge_it_is_refused_by_name():
    for solver in ("adadps", AdaDPS()):
        _refused(solver, r"solver='adadps' needs public knowledge.*AdaDPS\(public_data=\(X, y\)\) or AdaDPS\(feature_s")
    with pytest.raises(ValueError, match="needs public records in the facts of its plan"):
        AdaDPS(RECORDS).plan(facts(), 1.0, 1e-6)


def test_requests_without_a_bound_are_refused_in_words():
    _refused(AdaDPS(RECORDS), "delta=0.*adadps", delta=0)
    _refused(AdaDPS(feature_scales=1), "'replace_one' has no proved bound .*'adadps'.*rate=1", neighbours="replace_one")
    one, two = (
        AdaDPS(feature_scales=1, rate=1).plan(facts(neighbours=word), 1.0, 1e-6).questions[0][0].noise_scale
        for word in ("add_remove", "replace_one")
    )
    assert two == pytest.approx(2 * one, rel=1e-6)


def _refused(solver, message, **settings):
    accountant = PrivacyAccountant()
    model = DPLogisticRegression(**{"solver": solver, "classes": [0, 1], "accountant": accountant, **settings})
    with pytest.raises(ValueError, match=message):
        model.fit(np.eye(60, 3), np.arange(60) % 2)
    assert accountant.entries() == ()


# -- fits ------------------------------------------------------------------------------------------------------


@quiet
@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("is_given", [False, True])
def test_layouts_and_precisions_agree(is_given, n_classes):
    rng = np.random.default_rng(0)
    X = (rng.integers(0, 3, size=(400, 6)) / 2).astype(np.float32)
    y, fits = rng.integers(0, n_classes, 400), []
    for one, other in ((np.asarray, np.asarray), (sp.csr_array, np.asfortranarray), (np.float64, sp.csr_matrix)):
        parameters = {"feature_scales": range(1, 7)} if is_given else {"public_data": (other(X[:30]), y[:30])}
        model = DPLogisticRegression(1.0, solver=AdaDPS(rate=0.2, max_iter=8, **parameters), classes=range(n_classes))
        fits.append(model.set_params(random_state=0).fit(one(X), y))
    for fit in fits[1:]:
        np.testing.assert_allclose(fit.coef_, fits[0].coef_, rtol=1e-4, atol=1e-6)


@quiet
@pytest.mark.parametrize("estimator", [DPLogisticRegression, DPHuberSVC, DPLinearSVC])
@pytest.mark.parametrize("fit_intercept", [True, False])
def test_small_and_constant_data(fit_intercept, estimator):
    for X, y in ((np.ones((2, 1)), [0, 1]), (np.zeros((30, 2)), np.arange(30) % 2), (np.eye(2), [0, 0])):
        for solver in (AdaDPS((X[:1], y[:1])), AdaDPS((X, y), beta=0.5, stability=1e-9), AdaDPS(feature_scales=1e-200)):
            for epsilon in (1.0, inf):
                model = estimator(epsilon, 1e-6, solver=solver, classes=[0, 1], fit_intercept=fit_intercept)
                assert np.isfinite(model.fit(X, y).decision_function(X)).all()
                assert model.n_iter_ == 150


@quiet
@pytest.mark.parametrize("scale", [1e-150, 1e-15, 1e15, 1e150])
@pytest.mark.parametrize("rows", ["fill", "clip"])
def test_rows_of_any_length_and_long_steps_give_finite_weights(rows, scale):
    X, y = np.random.default_rng(0).normal(size=(50, 3)) * scale, np.arange(50) % 3
    for step_size, fit_intercept in ((None, False), (1e40, False), (1e40, True)):
        solver = AdaDPS((X[:9] * [1, 1e-11, 1], y[:9]), stability=1e-15, max_iter=8, step_size=step_size, rows=rows)
        norm = min(max(scale, 1e-15), 1e3)
        model = DPLogisticRegression(1.0, solver=solver, classes=range(3), data_norm=norm, fit_intercept=fit_intercept)
        assert np.isfinite(model.fit(X, y).coef_).all()


@quiet
@pytest.mark.parametrize("is_given", [False, True])
def test_scales_help_where_columns_are_rare_and_tell_as_much_as_frequent_ones(is_given):
    """An error of 1.4 % without them, of 0.8 and 1.0 % with them."""
    rng = np.random.default_rng(0)
    frequencies = 0.9 / np.arange(1, 31)
    X = (rng.random((6000, 30)) < frequencies).astype(float)
    y = ((X - frequencies) / np.sqrt(frequencies) @ rng.choice([-1, 1], 30) > 0).astype(int)
    parameters = {"feature_scales": 1 / np.sqrt(frequencies)} if is_given else {"public_data": (X[:100], y[:100])}
    errors = [0.0, 0.0]
    for seed in range(3):
        for k, solver in enumerate((SGD(), AdaDPS(**parameters))):
            model = DPLogisticRegression(8.0, classes=[0, 1], data_norm=2.0, C=1e3, random_state=seed, solver=solver)
            errors[k] += 1 - model.fit(X[100:], y[100:]).score(X, y)
    assert errors[1] < 0.85 * errors[0]


def test_runs_without_public_problem_need_none():
    solver = AdaDPS(feature_scales=GIVEN, rate=1, max_iter=3)
    public = facts()
    assert run(solver, replace(public, public_problem="not looked at"))[-1].shape == (5,)
