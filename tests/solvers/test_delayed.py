"""DP^2: runs against a few lines of numpy on the same draws, limits, phases, rules and refusals."""

from math import floor, inf, log2, sqrt

import numpy as np
import pytest
import scipy.sparse as sp
from conftest import Tape
from public_cases import clipped_sum, gradients, private_records, run, zeros
from scipy.optimize import minimize
from solver_cases import facts, problem_for

from dpskl import DPHuberSVC, DPLinearSVC, DPLogisticRegression, PrivacyAccountant
from dpskl.accounting import SampledGaussianCost, compose
from dpskl.curator import Curator
from dpskl.mechanisms.poisson_sample import PoissonSample
from dpskl.mechanisms.scaled_gradient import GradientPair, ScaledGradient
from dpskl.solvers import SGD, DelayedPreconditioner

quiet = pytest.mark.filterwarnings(
    *(f"ignore::dpskl.{name}" for name in ("NoPrivacyWarning", "SeededNoiseWarning", "WeakPrivacyWarning"))
)
VARIANTS = ("precondition_then_noise", "noise_then_precondition", "extra_noise")
each_variant = pytest.mark.parametrize("variant", VARIANTS)
SHORT = {"s1": 2, "s2": 3, "max_iter": 9, "step_size": 0.3, "clip_norm": 0.4}
GIVEN = {"step_size_2": 0.05, "clip_norm_2": 1.5, "stability": 0.02}


# -- the same run in plain numpy -------------------------------------------------------------------------------


def plain_run(solver, public, tape, rate):
    """The paper's algorithm 1, with momentum and a penalty, and its ablations, on given draws."""
    n, draws, clip, step = public.n_samples, iter(tape.draws), solver.clip_norm, solver.step_size
    (rows, codes), shape = private_records(public), zeros(public).shape
    size, ridge = rate * n, 1 / public.C / n
    w, last, v, a, means, renewals, iterates = np.zeros(shape), 0, 0, np.ones(shape), [], 0, []

    def members():
        if rate == 1:
            return np.arange(n)
        drawn = np.cumsum(np.floor(next(draws).unit / -np.log1p(-rate)) + 1).astype(int) - 1
        return drawn[drawn < n]

    def noisy(sums):
        draw = next(draws)
        released = np.stack(sums) + draw.scale * draw.unit.reshape(len(sums), *shape)
        grid = 2.0 ** (floor(log2(draw.scale)) - 20)
        return np.round(released / grid) * grid, draw.scale

    for t in range(solver.max_iter):
        place = t % (solver.s1 + solver.s2)
        rms = sqrt(np.mean(a**2))
        clip_2 = solver.clip_norm_2 or clip * rms
        step_2 = solver.step_size_2 or step * clip / clip_2
        drawn = members()
        g = gradients(rows[drawn], codes[drawn], w)
        direction, length, metric = None, step_2, a
        if solver.variant == "extra_noise":
            (first, second), scale = noisy([clipped_sum(g, clip) / clip, clipped_sum(a * g, clip_2) / clip_2])
            means.append(clip * first / size)
            noise, direction, renew = clip * scale / size, clip_2 * second / size, (t + 1) % solver.s1 == 0
        elif place < solver.s1:
            (first,), scale = noisy([clipped_sum(g, clip)])
            means.append(first / size)
            noise, direction, length, metric = scale / size, means[-1], step, 1.0
            renew = place == solver.s1 - 1
        elif solver.variant == "noise_then_precondition":
            (first,), _ = noisy([clipped_sum(g, clip)])
            direction, renew = a * first / size, False
        else:
            (first,), _ = noisy([clipped_sum(a * g, clip_2) / clip_2])
            direction, renew = clip_2 * first / size, False
        w, last = (w + solver.momentum * (w - last) - length * direction) / (1 + length * metric * ridge), w
        iterates.append(w)
        if renew:
            G, s = np.mean(means, axis=0), noise / sqrt(len(means))
            means, renewals = [], renewals + 1
            if solver.rule == "adagrad":
                v, expected = v + G**2, renewals * s**2
            else:
                beta = 0.9 if solver.rule == "rmsprop" else 0.999
                v, expected = beta * v + (1 - beta) * G**2, (1 - beta**renewals) * s**2
            square = np.maximum(v - expected, 0.2 * expected) if solver.subtract_noise else v
            if solver.rule == "adam":
                square, expected = square / (1 - 0.999**renewals), expected / (1 - 0.999**renewals)
            stability = sqrt(expected) if solver.stability is None else solver.stability * clip
            a = 1 / (np.sqrt(square) + stability)
    assert next(draws, None) is None
    return w if solver.iterate == "last" else np.mean(iterates[solver.max_iter // 2 :], axis=0)


@pytest.mark.parametrize("rate", [0.3, 1])
@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("given", [{}, GIVEN], ids=["rules", "given"])
@pytest.mark.parametrize("rule", ["rmsprop", "adagrad", "adam"])
@each_variant
def test_a_run_is_what_its_draws_and_the_paper_make_of_it(variant, rule, given, n_classes, rate):
    public = facts(n_samples=80, C=0.05, n_classes=n_classes)
    subtract = rule != "adagrad"
    solver = DelayedPreconditioner(rule, variant=variant, rate=rate, subtract_noise=subtract, **SHORT, **given)
    _, tape, weights = run(solver, public)
    expected = plain_run(solver, public, tape, rate)
    np.testing.assert_allclose(weights, expected, rtol=1e-5, atol=1e-5 * np.abs(expected).max())


@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("rate", [0.2, 1])
def test_without_adaptive_phases_it_is_sgd(n_classes, rate):
    public = facts(n_classes=n_classes)
    for changes in ({"s1": 150}, {"s1": 10**6, "s2": 1}):
        plan, _, ours = run(DelayedPreconditioner(rate=rate, **changes), public)
        sgd, _, theirs = run(SGD(rate=rate), public)
        assert plan.questions == sgd.questions
        np.testing.assert_array_equal(ours, theirs)


@pytest.mark.parametrize("n_classes", [2, 3])
@each_variant
def test_equal_scales_make_it_sgd_whatever_their_size(variant, n_classes):
    """So the rules for the second step and clip norm are in the right units. A large stability makes scales equal."""
    public = facts(n_classes=n_classes, C=1e9)
    shared = {"rate": 1, "max_iter": 40, "clip_norm": 0.3}
    for stability in (1e6, 1e9):
        solver = DelayedPreconditioner(s1=2, s2=3, stability=stability, variant=variant, **shared)
        _, _, ours = run(solver, public, inf)
        _, _, theirs = run(SGD(**shared), public, inf)
        np.testing.assert_allclose(ours, theirs, rtol=1e-4)


@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("rule", ["rmsprop", "adagrad", "adam"])
def test_without_noise_the_minimum_of_the_regularised_losses_is_found(rule, n_classes):
    public = facts(n_samples=200, C=0.1, n_classes=n_classes)
    solver = DelayedPreconditioner(rule, 3, 5, rate=1, max_iter=3000, momentum=0.5, stability=0.05)
    _, _, weights = run(solver, public, inf)
    problem = problem_for(public, solver)

    def objective(flat):
        w = flat.reshape(problem.zeros().shape)
        return problem.losses(problem.scores(w)).sum() + flat @ flat / (2 * public.C)

    best = minimize(objective, np.zeros(problem.zeros().size), tol=1e-12)
    np.testing.assert_allclose(weights.ravel(), best.x, atol=3e-3)
    assert np.abs(best.x).max() > 0.05


# -- phases and what they cost -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("parameters", "plain", "scaled"),
    [({}, 75, 75), ({"s1": 10, "s2": 50}, 30, 120), ({"s1": 7, "max_iter": 10}, 7, 3), ({"max_iter": 1}, 1, 0)],
)
def test_phases_share_the_steps(parameters, plain, scaled):
    plan = DelayedPreconditioner(rate=0.1, **parameters).plan(facts(n_samples=5000), 1.0, 1e-6)
    assert [count for _, count in plan.questions] == ([plain, scaled] if scaled else [plain])
    assert len({question.cost for question, _ in plan.questions}) == 1


@each_variant
@pytest.mark.parametrize("rate", [0.05, 1])
def test_the_budget_is_used_and_not_exceeded(variant, rate):
    solver = DelayedPreconditioner(variant=variant, rate=rate, max_iter=60)
    plan = solver.plan(facts(), 1.0, 1e-6)
    by_hand = plan.cost
    if rate < 1:
        question = plan.questions[-1][0]
        per_clip = {"noise_then_precondition": plan.settings.clip_norm, "extra_noise": sqrt(2)}.get(variant, 1.0)
        by_hand = compose([(SampledGaussianCost(rate, question.noise_scale / per_clip), 60)])
    assert 0.998 <= by_hand.epsilon(1e-6) <= 1.0
    assert plan.cost.epsilon(1e-6) <= 1.0


def test_the_ablation_with_two_gradients_pays_for_both():
    """Noise of each of the two sums is sqrt(2) times that of the one of SGD."""
    public = facts(n_samples=5000)
    ours = DelayedPreconditioner(variant="extra_noise", rate=0.1).plan(public, 1.0, 1e-6)
    sgd = SGD(rate=0.1).plan(public, 1.0, 1e-6)
    (pair,), (one,) = ([question for question, _ in plan.questions] for plan in (ours, sgd))
    assert isinstance(pair.mechanism, GradientPair)
    assert pair.cost == one.cost
    assert pair.noise_scale == pytest.approx(sqrt(2) * one.noise_scale / sgd.settings.clip_norm, rel=1e-6)


@pytest.mark.parametrize(("s2", "keeps"), [(5, False), (15, True)])
@pytest.mark.parametrize("n_classes", [2, 3])
def test_norms_are_found_where_less_is_read(n_classes, s2, keeps, monkeypatch):
    """Once for all records where the batches of a phase have more of them, else for each batch."""
    solver = DelayedPreconditioner(s1=5, s2=s2, rate=0.1, max_iter=20, step_size=0.1)
    public = facts(n_samples=500, n_classes=n_classes)
    plan = solver.plan(public, 1.0, 1e-6)
    scaled = plan.questions[1][0]
    assert isinstance(scaled, PoissonSample)
    assert isinstance(scaled.mechanism, ScaledGradient)
    assert scaled.mechanism.keeps_norms is keeps
    problem, sizes = problem_for(public, solver), []
    name = "transformed_row_norms" if n_classes == 2 else "products_of_squares"
    found = getattr(type(problem), name)
    monkeypatch.setattr(type(problem), name, lambda part, scales: sizes.append(part.n_samples) or found(part, scales))
    solver.run(Curator(problem, plan.open_budget(), Tape(1)), plan)
    assert (max(sizes) == 500) is keeps
    assert len(sizes) == (1 if keeps else 10)


# -- refusals ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"rule": "newton"}, "rule='newton' must be one of 'rmsprop', 'adam', 'adagrad'"),
        ({"variant": "both"}, "variant='both' must be one of"),
        ({"s1": 0}, "s1=0 must be None or a whole number of at least 1"),
        ({"s2": 1.5}, r"s2=1\.5 must be None or a whole number"),
        ({"step_size_2": 0}, "step_size_2=0 must be None or a positive"),
        ({"clip_norm_2": -1}, "clip_norm_2=-1 must be None or a positive"),
        ({"step_size_2": 1e60}, r"step_size_2 clip_norm_2=1e\+72 times the row norm must not exceed"),
        ({"beta": 1}, r"beta=1 must be None or a number in \[0, 1\)"),
        ({"rule": "adagrad", "beta": 0.5}, r"beta=0\.5 has no meaning for rule='adagrad'"),
        ({"stability": 1e-13}, "stability=1e-13 must be None or a number in"),
        ({"subtract_noise": 1}, "subtract_noise=1 must be True or False"),
        ({"floor": 0}, "floor=0"),
        ({"momentum": 1}, "momentum=1"),
        ({"rate": 2}, "rate=2"),
    ],
)
def test_bad_parameters_are_refused_by_name(parameters, message):
    _refused(DelayedPreconditioner(**parameters), message)


@each_variant
def test_requests_without_a_bound_are_refused_in_words(variant):
    solver = DelayedPreconditioner(variant=variant)
    _refused(solver, "delta=0.*dp2", delta=0)
    _refused(solver, "'replace_one' has no proved bound .*'dp2'.*rate=1", neighbours="replace_one")
    solver.set_params(rate=1)
    DPLogisticRegression(1.0, 1e-6, solver=solver, classes=[0, 1], neighbours="replace_one").plan(100, 3)


def _refused(solver, message, **settings):
    accountant = PrivacyAccountant()
    model = DPLogisticRegression(**{"solver": solver, "classes": [0, 1], "accountant": accountant, **settings})
    with pytest.raises(ValueError, match=message):
        model.fit(np.eye(60, 3), np.arange(60) % 2)
    assert accountant.entries() == ()


# -- fits --------------------------------------------------------------------------------------------------------


@quiet
@each_variant
@pytest.mark.parametrize("n_classes", [2, 3])
def test_layouts_and_precisions_agree(variant, n_classes):
    rng = np.random.default_rng(0)
    X = (rng.integers(0, 3, size=(400, 6)) / 2).astype(np.float32)
    y = rng.integers(0, n_classes, 400)
    for s2 in (2, 9):  # norms of batches, and of all records
        solver, fits = DelayedPreconditioner(s1=2, s2=s2, variant=variant, rate=0.2, max_iter=12), []
        for rows in (X, np.asfortranarray(X), X.astype(float), sp.csr_array(X), sp.csr_array(X.astype(float))):
            fits.append(DPLogisticRegression(1.0, solver=solver, classes=range(n_classes), random_state=0).fit(rows, y))
        for fit in fits[1:]:
            np.testing.assert_allclose(fit.coef_, fits[0].coef_, rtol=1e-4, atol=1e-5)


@quiet
@each_variant
@pytest.mark.parametrize("estimator", [DPLogisticRegression, DPHuberSVC, DPLinearSVC])
@pytest.mark.parametrize("fit_intercept", [True, False])
def test_small_and_constant_data(variant, estimator, fit_intercept):
    for X, y in ((np.ones((2, 1)), [0, 1]), (np.zeros((30, 2)), np.arange(30) % 2), (np.eye(2), [0, 1])):
        for rate in (None, 0.01):
            for epsilon in (1.0, inf):
                solver = DelayedPreconditioner(variant=variant, rate=rate)
                model = estimator(epsilon, 1e-6, solver=solver, classes=[0, 1], fit_intercept=fit_intercept)
                assert np.isfinite(model.fit(X, y).decision_function(X)).all()
                assert model.n_iter_ == 150


@quiet
@each_variant
def test_they_learn(variant):
    rng = np.random.default_rng(0)
    y = rng.integers(0, 3, 6000)
    X = np.eye(5)[y] + 0.4 * rng.normal(size=(6000, 5))
    solver = DelayedPreconditioner(variant=variant)
    model = DPLogisticRegression(1.0, 1e-6, solver=solver, classes=range(3), data_norm=2.0, random_state=0)
    assert model.fit(X, y).score(X, y) > 0.8
