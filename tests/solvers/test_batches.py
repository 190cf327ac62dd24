"""Solvers on noisy batches: each run against a few lines of numpy on the same draws, limits, rules and refusals."""

from math import ceil, floor, inf, log2, sqrt

import numpy as np
import pytest
import scipy.sparse as sp
from conftest import Tape
from scipy.optimize import minimize
from scipy.special import expit, softmax
from solver_cases import facts, problem_for

from dpskl import DPHuberSVC, DPLinearSVC, DPLogisticRegression, NoPrivacyWarning, PrivacyAccountant
from dpskl.accounting import SampledGaussianCost, compose, gaussian_mu
from dpskl.curator import Curator
from dpskl.mechanisms.gradient import GaussianGradient
from dpskl.mechanisms.poisson_sample import PoissonSample
from dpskl.records.losses import HuberHinge
from dpskl.solvers import SGD, AdaGrad, Adam, GradientDescent, RMSProp

quiet = pytest.mark.filterwarnings(
    *(f"ignore::dpskl.{name}" for name in ("NoPrivacyWarning", "SeededNoiseWarning", "WeakPrivacyWarning"))
)
CLASSES = [SGD, Adam, RMSProp, AdaGrad]
each_class = pytest.mark.parametrize("cls", CLASSES)
SHORT = {"max_iter": 9, "step_size": 0.3, "clip_norm": 0.4}


def run(solver, public, epsilon=1.0, noise=None):
    plan = solver.plan(public, epsilon, 1e-6)
    noise = noise or Tape(1)
    return plan, noise, solver.run(Curator(problem_for(public, solver), plan.open_budget(), noise), plan).weights


# -- the same run in plain numpy -------------------------------------------------------------------------------


def plain_gradient(public, members, w, clip):
    """Sum of the clipped gradients of the records of solver_cases, made again here."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(public.n_samples, public.n_features))
    codes = rng.integers(0, public.n_classes, public.n_samples)
    X = X * np.minimum(1, public.data_norm / np.linalg.norm(X, axis=1, keepdims=True))
    design = np.column_stack([X, np.full(len(X), public.intercept)])[members]
    scores, codes = design @ w, codes[members]
    if public.n_classes == 2:
        gradients = (expit(scores) - codes)[:, None] * design
    else:
        gradients = design[:, :, None] * (softmax(scores, axis=1) - np.eye(public.n_classes)[codes])[:, None, :]
    norms = np.sqrt((gradients**2).reshape(len(members), -1).sum(axis=1))
    shares = np.minimum(1, clip / np.maximum(norms, 1e-300))
    return (gradients * shares.reshape(-1, *[1] * (gradients.ndim - 1))).sum(axis=0)


def plain_run(solver, public, plan, draws, rate):
    """The descent of a solver with SHORT parameters on given draws, from the papers' formulas."""
    n, n_steps, step, clip = public.n_samples, SHORT["max_iter"], SHORT["step_size"], SHORT["clip_norm"]
    shape = (public.n_weights,) if public.n_classes == 2 else (public.n_weights, public.n_classes)
    w, last, m, v, iterates = np.zeros(shape), np.zeros(shape), 0, 0, []
    draws = iter(draws)
    for t in range(1, n_steps + 1):
        members = np.arange(n)
        if rate < 1:
            gaps = np.floor(next(draws).unit / -np.log1p(-rate))
            members = np.cumsum(gaps + 1).astype(int) - 1
            members = members[members < n]
        draw = next(draws)
        noisy = plain_gradient(public, members, w, clip) + draw.scale * draw.unit.reshape(shape)
        if draw.scale:
            grid = 2.0 ** (floor(log2(draw.scale)) - 20)
            noisy = np.round(noisy / grid) * grid
        g, s, ridge = noisy / (rate * n), draw.scale / (rate * n), 1 / public.C / n
        if solver.name == "sgd":
            w, last = (w + solver.momentum * (w - last) - step * g) / (1 + step * ridge), w
        else:
            if solver.name == "adam":
                m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g**2
                direction, square, noise = m / (1 - 0.9**t), v / (1 - 0.999**t), s**2
            elif solver.name == "rmsprop":
                v = 0.9 * v + 0.1 * g**2
                direction, square, noise = g, v, s**2 * (1 - 0.9**t)
            else:
                v = v + g**2
                direction, square, noise = g, v, s**2 * t
            if solver.subtract_noise:
                square = np.maximum(square - noise, 0.2 * noise)
            root = np.sqrt(square) + 1e-8 * clip
            w = (w - step * direction / root) / (1 + step * ridge / root)
        iterates.append(w)
    assert next(draws, None) is None
    return w if solver.iterate == "last" else np.mean(iterates[n_steps // 2 :], axis=0)


@pytest.mark.parametrize("rate", [0.3, 1])
@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("epsilon", [1.0, inf])
@pytest.mark.parametrize(
    "solver",
    [SGD(**SHORT), SGD(**SHORT, momentum=0.5, iterate="last")]
    + [cls(**SHORT, subtract_noise=subtract) for cls in CLASSES[1:] for subtract in (False, True)],
    ids=repr,
)
def test_a_run_is_what_its_draws_and_the_formulas_make_of_it(solver, epsilon, n_classes, rate):
    public = facts(n_samples=80, C=0.05, n_classes=n_classes)
    solver = type(solver)(**{**solver.get_params(), "rate": rate})
    plan, tape, weights = run(solver, public, epsilon)
    (scale,) = {draw.scale for draw in tape.draws if draw.law == "normal"}
    multiplier = 0.0 if epsilon == inf else 1 / plan.questions[0][0].cost.mu if rate == 1 else _multiplier(plan)
    assert scale == pytest.approx(0.4 * multiplier, rel=1e-6)  # and an allowance for rounding
    np.testing.assert_allclose(weights, plain_run(solver, public, plan, tape.draws, rate), rtol=1e-6, atol=1e-9)


def _multiplier(plan):
    ((question, _),) = plan.questions
    return question.cost.noise_multiplier


@pytest.mark.parametrize("iterate", ["average", "last"])
@pytest.mark.parametrize("n_classes", [2, 3])
def test_all_records_and_no_noise_are_gradient_descent(n_classes, iterate):
    public = facts(C=1e15, n_classes=n_classes)  # gd has its penalty in the gradient
    shared = {"max_iter": 40, "step_size": 0.7, "clip_norm": 0.3, "momentum": 0.6, "iterate": iterate}
    _, _, ours = run(SGD(rate=1, **shared), public, inf)
    _, _, theirs = run(GradientDescent(**shared), public, inf)
    np.testing.assert_allclose(ours, theirs, rtol=1e-9, atol=1e-12)
    assert np.abs(ours).max() > 1e-3


@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize(
    "solver",
    [
        SGD(rate=1, max_iter=400, step_size=4.0, momentum=0.8),
        Adam(rate=1, max_iter=3000, step_size=0.01),
        RMSProp(rate=1, max_iter=3000, step_size=0.002),
        AdaGrad(rate=1, max_iter=3000, step_size=0.3),
    ],
    ids=lambda solver: solver.name,
)
def test_without_noise_the_minimum_of_the_regularised_losses_is_found(solver, n_classes):
    """So the decoupled penalty is that of C, whatever scales the steps."""
    public = facts(n_samples=200, C=0.1, n_classes=n_classes)
    _, _, weights = run(solver, public, inf)
    problem = problem_for(public, solver)

    def objective(flat):
        w = flat.reshape(problem.zeros().shape)
        return problem.losses(problem.scores(w)).sum() + flat @ flat / (2 * public.C)

    best = minimize(objective, np.zeros(problem.zeros().size), tol=1e-12)
    np.testing.assert_allclose(weights.ravel(), best.x, atol=3e-3)
    assert np.abs(best.x).max() > 0.05


@pytest.mark.parametrize(("subtract_noise", "length"), [(True, 1.0), (False, 2 / sqrt(5))])
def test_noise_that_is_subtracted_leaves_the_signal(subtract_noise, length):
    """Gradients of twice the noise, with noise of alternating signs: Adam's step is that of the signal alone."""
    solver = Adam(rate=1, step_size=0.1, beta_1=0.999, subtract_noise=subtract_noise)
    plan = solver.plan(facts(C=1e9), 1.0, 1e-6)
    s, move, w = plan.settings.noise, solver.mover(plan.settings), np.zeros(5)
    for t in range(401):
        before, w = w, move(w, s * np.array([3.0, 0, 1, 1, 1] if t % 2 else [1.0, 0, -1, -1, -1]))
    assert before[0] - w[0] == pytest.approx(0.1 * length, rel=0.01)


# -- rules -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("n", "epsilon", "max_iter", "rate"),
    [
        (50_000, 0.2, None, 1 / 30),  # 5 passes
        (50_000, 0.2, 1500, 512 / 50_000),  # more steps, not more passes, down to 512 records
        (50_000, 8.0, None, 2 * gaussian_mu(8.0, 1e-6) / sqrt(150)),  # a noise multiplier of 2
        (300, 0.2, None, 1),
        (50_000, inf, None, 1),
    ],
)
@each_class
def test_the_default_rate(cls, n, epsilon, max_iter, rate):
    plan = cls(max_iter=max_iter).plan(facts(n_samples=n), epsilon, 1e-6)
    ((question, count),) = plan.questions
    assert count == (max_iter or 150)
    assert getattr(question, "rate", 1) == pytest.approx(rate)
    assert isinstance(question, GaussianGradient if rate == 1 else PoissonSample)
    assert plan.settings.size == pytest.approx(rate * n)
    if rate < 1:
        assert _multiplier(plan) > 1.7


@each_class
def test_a_batch_size_is_a_rate(cls):
    public = facts(n_samples=1000)
    assert cls(batch_size=200).plan(public, 1.0, 1e-6) == cls(rate=0.2).plan(public, 1.0, 1e-6)
    assert cls(batch_size=5000).plan(public, 1.0, 1e-6) == cls(rate=1).plan(public, 1.0, 1e-6)


@each_class
@pytest.mark.parametrize("rate", [0.05, 1])
def test_the_budget_is_used_and_not_exceeded(cls, rate):
    plan = cls(rate=rate, max_iter=60).plan(facts(), 1.0, 1e-6)
    ((question, count),) = plan.questions
    by_hand = plan.cost
    if rate < 1:
        by_hand = compose([(SampledGaussianCost(rate, question.noise_scale / question.mechanism.clip_norm), 60)])
    assert count == 60
    assert 0.998 <= by_hand.epsilon(1e-6) <= 1.0
    assert by_hand.epsilon(1e-6) == pytest.approx(plan.cost.epsilon(1e-6), rel=1e-4)


@pytest.mark.parametrize("n_classes", [2, 4])
@pytest.mark.parametrize("subtract_noise", [False, True])
@pytest.mark.parametrize("cls", CLASSES[1:])
def test_where_noise_decides_the_steps_of_adaptive_rules_are_those_of_sgd(cls, subtract_noise, n_classes):
    """Total time of ``step / root`` with roots of noise alone, or of the floor, against ``step / (1 - momentum)``."""
    public = facts(n_classes=n_classes, n_samples=2000, n_features=30)
    sgd = SGD(rate=0.3).plan(public, 0.1, 1e-6)
    solver = cls(rate=0.3, subtract_noise=subtract_noise)
    plan = solver.plan(public, 0.1, 1e-6)
    assert plan.questions == sgd.questions
    t = np.arange(1, 151)
    share = {"adam": np.ones(150), "rmsprop": 1 - 0.9**t, "adagrad": t}[solver.name]
    roots = np.sqrt(share * (0.2 if subtract_noise else 1)) * plan.settings.noise
    assert (plan.settings.step / roots).sum() == pytest.approx(150 * sgd.settings.step / 0.05, rel=1e-5)


@each_class
def test_plans_follow_the_units_of_the_rows(cls):
    """Rows and data_norm times 100: weights divided by 100."""
    one = cls(rate=0.3).plan(facts(C=1.0), 1.0, 1e-6).settings
    other = cls(rate=0.3).plan(facts(C=1e-4, data_norm=100.0, intercept=30.0), 1.0, 1e-6).settings
    assert other.step * 100 ** (2 if cls is SGD else 1) == pytest.approx(one.step)
    assert other.clip_norm == pytest.approx(100 * one.clip_norm)


# -- refusals, before anything is charged ------------------------------------------------------------------------


@each_class
@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"rate": 0}, r"rate=0 must be None or a number in \(0, 1\]"),
        ({"rate": 1.5}, r"rate=1\.5 must be None or a number in \(0, 1\]"),
        ({"batch_size": 0}, "batch_size=0 must be None or a whole number of at least 1"),
        ({"batch_size": 2.5}, r"batch_size=2\.5"),
        ({"rate": 0.1, "batch_size": 10}, r"rate=0\.1 and batch_size=10 say the same thing"),
        ({"max_iter": 0}, "max_iter=0"),
        ({"step_size": -1}, "step_size=-1"),
        ({"step_size": 1e60}, "step_size=1e\\+60 times the (squared )?row norm must not exceed"),
        ({"clip_norm": 0}, "clip_norm=0"),
        ({"iterate": "best"}, "iterate='best' must be 'average' or 'last'"),
        ({"rows": "none"}, "rows='none'"),
    ],
)
def test_bad_parameters_are_refused_by_name(cls, parameters, message):
    _refused(cls(**parameters), message)


@pytest.mark.parametrize(
    ("solver", "message"),
    [
        (SGD(momentum=1), r"momentum=1 must be a number in \[0, 1\)"),
        (Adam(beta_1=1), r"beta_1=1 must"),
        (Adam(beta_2=-0.1), r"beta_2=-0\.1 must"),
        (RMSProp(beta=1), "beta=1 must"),
        (Adam(subtract_noise="yes"), "subtract_noise='yes' must be True or False"),
        (AdaGrad(floor=0), r"floor=0 must be a number in \(0, 1\]"),
        (RMSProp(stability=0), "stability=0 must be a positive finite number"),
    ],
)
def test_bad_parameters_of_one_solver_are_refused_by_name(solver, message):
    _refused(solver, message)


@each_class
def test_requests_without_a_bound_are_refused_in_words(cls):
    name = cls.name
    _refused(cls(), f"delta=0.*{name}", delta=0)
    for solver in (cls(), cls(rate=0.5), cls(batch_size=10)):
        _refused(solver, f"'replace_one' has no proved bound .*'{name}'.*rate=1", neighbours="replace_one")
        _refused(solver, "epsilon=1e-05 is too small to account for samples.*rate=1", epsilon=1e-5)
        _refused(solver, "delta=1e-16 is too small", delta=1e-16)
    for neighbours in ("add_remove", "replace_one"):
        DPLogisticRegression(1e-5, 1e-16, solver=cls(rate=1), classes=[0, 1], neighbours=neighbours).plan(100, 3)


def _refused(solver, message, **settings):
    accountant = PrivacyAccountant()
    model = DPLogisticRegression(**{"solver": solver, "classes": [0, 1], "accountant": accountant, **settings})
    with pytest.raises(ValueError, match=message):
        model.fit(np.eye(60, 3), np.arange(60) % 2)
    assert accountant.entries() == ()


def test_the_relation_doubles_the_noise_of_all_records():
    one, two = (SGD(rate=1).plan(facts(neighbours=word), 1.0, 1e-6) for word in ("add_remove", "replace_one"))
    clips = [plan.questions[0][0].clip_norm for plan in (one, two)]
    scales = [plan.questions[0][0].noise_scale for plan in (one, two)]
    assert scales[1] / clips[1] == pytest.approx(2 * scales[0] / clips[0], rel=1e-6)


# -- fits --------------------------------------------------------------------------------------------------------


@quiet
@each_class
@pytest.mark.parametrize("n_classes", [2, 3])
def test_layouts_and_precisions_agree(cls, n_classes):
    rng = np.random.default_rng(0)
    X = (rng.integers(0, 3, size=(400, 6)) / 2).astype(np.float32)
    y = rng.integers(0, n_classes, 400)
    solver, fits = cls(rate=0.2, max_iter=8), []
    for rows in (X, np.asfortranarray(X), X.astype(float), sp.csr_array(X), sp.csr_array(X.astype(float))):
        fits.append(DPLogisticRegression(1.0, solver=solver, classes=range(n_classes), random_state=0).fit(rows, y))
    for fit in fits[1:]:
        np.testing.assert_allclose(fit.coef_, fits[0].coef_, rtol=1e-4, atol=1e-6)


@quiet
@each_class
@pytest.mark.parametrize("estimator", [DPLogisticRegression, DPHuberSVC, DPLinearSVC])
@pytest.mark.parametrize("fit_intercept", [True, False])
def test_small_and_constant_data(cls, estimator, fit_intercept):
    for X, y in ((np.ones((2, 1)), [0, 1]), (np.zeros((30, 2)), np.arange(30) % 2), (np.eye(2), [0, 1])):
        for solver in (cls(), cls(rate=0.01)):
            for epsilon in (1.0, inf):
                model = estimator(epsilon, 1e-6, solver=solver, classes=[0, 1], fit_intercept=fit_intercept)
                assert np.isfinite(model.fit(X, y).decision_function(X)).all()
                assert model.n_iter_ == 150


@quiet
@each_class
def test_they_learn(cls):
    rng = np.random.default_rng(0)
    y = rng.integers(0, 3, 6000)
    X = np.eye(5)[y] + 0.4 * rng.normal(size=(6000, 5))
    model = DPLogisticRegression(1.0, 1e-6, solver=cls(), classes=range(3), data_norm=2.0, random_state=0)
    assert model.plan(*X.shape).questions[0][0].rate == pytest.approx(512 / 6000)
    assert model.fit(X, y).score(X, y) > 0.8


@each_class
def test_the_huber_rules_take_its_curvature(cls):
    logistic, huber = (cls(rate=1).plan(facts(loss=loss), 1e3, 1e-6) for loss in (facts().loss, HuberHinge(0.5)))
    if cls is SGD:  # at the cap: 1/4 against 1
        assert logistic.settings.step == pytest.approx(4 * huber.settings.step)
    else:
        assert logistic.settings.step == huber.settings.step


def test_without_noise_the_fit_says_so():
    with pytest.warns(NoPrivacyWarning):
        model = DPLogisticRegression(inf, solver=SGD(rate=0.5), classes=[0, 1]).fit(np.eye(60, 3), np.arange(60) % 2)
    assert ceil(model.effective_C_) == 1
