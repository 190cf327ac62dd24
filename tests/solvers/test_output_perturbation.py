"""Output perturbation: noise and cost, limits without noise, and inputs."""

import dataclasses
import itertools
from math import inf, sqrt

import numpy as np
import pytest
import scipy.sparse as sp
from conftest import RecordingNoise
from output_cases import METHODS, each_method, each_relation, facts, problem_for, random_data, release
from scipy.optimize import minimize
from scipy.special import gammainc
from scipy.stats import kstest

from dpskl import DPHuberSVC, DPLinearSVC, DPLogisticRegression, SeededNoiseWarning
from dpskl.accounting import gaussian_delta
from dpskl.mechanisms.noise import SeededNoise
from dpskl.mechanisms.perturbed_output import PerturbedOutput
from dpskl.mechanisms.stable_training import ExactMinimum
from dpskl.records.losses import Hinge, HuberHinge, Logistic, Softmax
from dpskl.records.problem import Problem
from dpskl.solvers import OutputPerturbation

# -- noise and cost ---------------------------------------------------------------------------------------


@each_method
@each_relation
@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("loss", [Logistic(), HuberHinge(), Hinge()], ids=repr)
@pytest.mark.parametrize("delta", [0, 1e-6])
def test_every_draw_is_what_was_charged(method, neighbours, n_classes, loss, delta):
    """One draw, at the scale of sensitivities that are written out here."""
    solver = METHODS[method]
    public = facts(n_classes=n_classes, neighbours=neighbours, loss=loss)
    if solver.refusal(loss) is not None:
        assert isinstance(loss, Hinge)
        assert method != "exact"
        return
    plan = solver.plan(public, 0.7, delta)
    noise = RecordingNoise()
    weights = release(public, solver, *random_data(public), epsilon=0.7, delta=delta, noise=noise)
    assert weights.shape == ((4,) if n_classes == 2 else (4, 3))
    ((kind, scale),) = noise.draws
    changed = 1 if neighbours == "add_remove" else 2
    row = sqrt(1 + 0.3**2)
    slope = 1 if n_classes == 2 else sqrt(2) if isinstance(loss, Logistic) else sqrt(3)
    B = row**2 * {"Logistic": 0.25 if n_classes == 2 else 0.5, "HuberHinge": 1, "Hinge": 50}[type(loss).__name__]
    L, lam, n = slope * row, plan.ridge / 60, 60
    if method == "exact":
        distance = changed * L / plan.ridge
    elif method == "gd":
        step, T = 2 / (B + 2 * lam), plan.questions[0][0].training.n_steps
        distance = changed * step * L / n * sum((1 - step * lam) ** i for i in range(T))
    elif method == "psgd":
        distance = changed * L / 8 * min(1 / (lam * 8), 5 / (B + lam))  # 8 batches of 8, the last of 4
    else:
        c = max(abs(1 - 0.5 * lam), abs(1 - 0.5 * (lam + B)))
        distance = changed * 0.5 * L / 8 * sum(c ** (8 * j) for j in range(5))
    assert plan.questions[0][0].sensitivity == pytest.approx(distance, rel=1e-7)
    assert plan.questions[0][0].sensitivity > distance  # rounding is allowed for
    if delta == 0:
        assert kind == "gamma"
        assert distance / scale == pytest.approx(0.7, rel=1e-7)
        assert plan.cost.epsilon(0) <= 0.7
    else:
        assert kind == "normal"
        assert gaussian_delta(distance / scale, 0.7) == pytest.approx(1e-6, rel=1e-4)
        assert plan.cost.delta(0.7) <= 1e-6
    assert plan.cost.epsilon(delta) == pytest.approx(0.7, rel=1e-9)


def test_doubled_noise_halves_the_charge():
    public = facts()
    ((question, _),) = OutputPerturbation().plan(public, 1.0, 1e-6).questions
    cheaper = dataclasses.replace(question, budget=question.budget / 2)
    assert cheaper.noise_scale == pytest.approx(2 * question.noise_scale)
    assert cheaper.cost.mu == pytest.approx(question.cost.mu / 2)
    assert cheaper.cost.mu * cheaper.noise_scale == pytest.approx(cheaper.sensitivity)


@pytest.mark.parametrize("is_pure", [False, True])
def test_law_of_the_noise(is_pure):
    """6,000 releases of the same data; each Kolmogorov-Smirnov test fails by chance once in 10,000 seeds."""
    training = ExactMinimum(1.0, 0.25, 5.0, 20, 3, 1, loss_at_zero=np.log(2), n_problems=1)
    mechanism = PerturbedOutput(training, 0.8, is_pure, "add_remove")
    rng = np.random.default_rng(0)
    problem = Problem(rng.normal(size=(20, 3)), np.ones(20), Logistic(), data_norm=1.0)
    centre = training.train(problem, RecordingNoise())
    fixed = dataclasses.replace(mechanism, training=_Fixed(*dataclasses.astuple(training), centre=tuple(centre)))
    noise = SeededNoise(3)
    draws = np.array([fixed.release(problem, noise) - centre for _ in range(6000)]) / mechanism.noise_scale
    assert fixed.noise_scale == mechanism.noise_scale
    norms = np.linalg.norm(draws, axis=1)
    if is_pure:
        assert kstest(norms, lambda r: gammainc(3, r)).pvalue > 1e-4
        assert kstest(draws[:, 0] / norms, lambda u: (1 + u) / 2).pvalue > 1e-4  # uniform, by Archimedes
    else:
        for axis in range(3):
            assert kstest(draws[:, axis], "norm").pvalue > 1e-4


@dataclasses.dataclass(frozen=True)
class _Fixed(ExactMinimum):
    centre: tuple = ()

    def train(self, problem, noise):
        return np.array(self.centre)


def test_plans_are_pure_functions_of_public_facts():
    for solver in METHODS.values():
        assert solver.plan(facts(), 1.0, 1e-6) == solver.plan(facts(), 1.0, 1e-6)


# -- limits -----------------------------------------------------------------------------------------------


def objective_and_gradient(problem, ridge):
    shape = problem.zeros().shape

    def both(flat):
        w = flat.reshape(shape)
        value = problem.losses(problem.scores(w)).sum() + ridge * flat @ flat / 2
        return value, (problem.gradient_sum(w) + ridge * w).ravel()

    return both


@each_relation
@pytest.mark.parametrize("epsilon", [inf, 1e8])
@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("loss", [Logistic(), HuberHinge(), Hinge()], ids=repr)
def test_exact_without_noise_is_the_minimiser(loss, n_classes, epsilon, neighbours):
    public = facts(loss=loss, n_classes=n_classes, C=0.5, neighbours=neighbours)
    X, codes = random_data(public)
    solver = OutputPerturbation()
    weights = release(public, solver, X, codes, epsilon, noise=SeededNoise(0))
    problem = problem_for(public, solver, X, codes)
    both = objective_and_gradient(problem, 2.0)
    options = {"maxiter": 10_000, "ftol": 1e-15, "gtol": 1e-9}
    best = minimize(both, np.zeros(weights.size), jac=True, method="L-BFGS-B", options=options)
    np.testing.assert_allclose(weights.ravel(), best.x, atol=1e-4 if epsilon == inf else 1e-3)


@pytest.mark.parametrize("n_classes", [2, 3])
def test_hinge_minimum_has_a_small_duality_gap(n_classes):
    """Records in the smoothed zone contribute at most h/8 each to the gap of the hinge itself."""
    public = facts(loss=Hinge(), n_classes=n_classes, C=0.5, n_samples=300)
    X, codes = random_data(public)
    solver = OutputPerturbation()
    weights = release(public, solver, X, codes).reshape(4, -1)
    smooth = problem_for(public, solver, X, codes)
    signs = Hinge().encode(codes, n_classes).reshape(300, -1)
    margins = signs * smooth.scores(weights)
    alpha = -smooth.loss.slope(margins.copy())
    dual_point = smooth.adjoint(alpha * signs) / 2.0
    primal = Hinge().value(margins).sum() + (weights**2).sum()  # ridge / 2 = 1
    dual = alpha.sum() - (dual_point**2).sum()
    assert 0 <= primal - dual + 1e-6 <= 300 * signs.shape[1] * 1e-2 / 8
    assert smooth.loss == HuberHinge(1e-2)


@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("method", ["gd", "psgd", "psgd constant step"])
def test_gradient_methods_without_noise_are_their_plain_references(method, n_classes):
    public = facts(n_classes=n_classes, C=0.1)
    X, codes = random_data(public)
    solver, rows = METHODS[method], X / np.maximum(1, np.linalg.norm(X, axis=1, keepdims=True))
    got = release(public, solver, X, codes)
    loss = Logistic() if n_classes == 2 else Softmax()
    design, targets = np.column_stack([rows, np.full(60, 0.3)]), loss.encode(codes, n_classes)
    B, lam = loss.curvature_bound * 1.09, 10 / 60
    w, iterates = np.zeros(got.shape), []
    batches = [slice(0, 60)] if method == "gd" else [slice(i, i + 8) for i in range(0, 60, 8)]
    passes = solver.plan(public, inf, 1e-6).questions[0][0].training.n_steps if method == "gd" else 5
    for t, batch in enumerate(batches * passes, start=1):
        step = {"gd": 2 / (B + 2 * lam), "psgd": min(1 / (B + lam), 1 / (lam * t))}.get(method, 0.5)
        residuals = loss.residuals(design[batch] @ w, targets[batch])
        w = w - step * (design[batch].T @ residuals / (60 if method == "gd" else 8) + lam * w)
        iterates.append(w)
    expected = np.mean(iterates, axis=0) if "constant" in method else w
    np.testing.assert_allclose(got, expected, atol=1e-10)


@pytest.mark.parametrize("method", ["gd", "psgd"])
def test_gradient_methods_come_close_to_the_minimum(method):
    public = facts(n_samples=500, C=0.02)
    X, codes = random_data(public)
    solver = OutputPerturbation(method, max_iter=400)
    difference = release(public, solver, X, codes) - release(public, OutputPerturbation(), X, codes)
    assert np.linalg.norm(difference) < 2e-2


@each_method
def test_the_budget_is_met_on_both_sides_of_the_ridge_rule(method):
    for epsilon, delta, C in itertools.product((0.01, 1.0, 50.0), (0.0, 1e-8), (1e-4, 1.0, 1e8)):
        plan = METHODS[method].plan(facts(C=C, n_samples=5000), epsilon, delta)
        assert plan.ridge >= 1 / C
        assert epsilon * (1 - 1e-6) <= plan.cost.epsilon(delta) <= epsilon
    ridges = [OutputPerturbation().plan(facts(C=1e8), epsilon, 1e-6).ridge for epsilon in (0.1, 1.0, 10.0, inf)]
    assert ridges == sorted(ridges, reverse=True)
    assert ridges[-1] < 1e-6
    assert OutputPerturbation(min_ridge=7.0).plan(facts(), 1e-3, 1e-6).ridge == 7.0


# -- inputs -----------------------------------------------------------------------------------------------


@each_method
@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("intercept", [0.0, 0.3])
def test_layouts_agree(method, n_classes, intercept):
    public = facts(n_classes=n_classes, intercept=intercept)
    X, codes = random_data(public)
    X = X.astype(np.float32).astype(float)
    X[:, 1] = 0.5  # a constant column
    X.flags.writeable = False
    reference = release(public, METHODS[method], X, codes)
    for given in (np.asfortranarray(X), X.astype(np.float32), sp.csr_array(X), sp.csr_array(X.astype(np.float32))):
        np.testing.assert_allclose(release(public, METHODS[method], given, codes), reference, atol=1e-6)


@each_method
def test_two_records_and_one_class(method):
    public = facts(n_samples=2)
    X, _ = random_data(public)
    for codes in ([0, 1], [1, 1]):
        weights = release(public, METHODS[method], X, np.array(codes), epsilon=1.0, noise=SeededNoise(0))
        assert np.isfinite(weights).all()


def test_hinge_is_refused_by_gradient_methods_in_words():
    for method in ("gd", "psgd"):
        model = DPLinearSVC(solver=OutputPerturbation(method), classes=[0, 1])
        with pytest.raises(ValueError, match=rf"method='{method}'.*kink.*method='exact'"):
            model.fit([[0.0], [1.0]], [0, 1])
    with pytest.warns(SeededNoiseWarning):
        DPLinearSVC(solver="output_perturbation", delta=0, classes=[0, 1], random_state=0).fit([[0.0], [1.0]], [0, 1])


def test_the_certificate_is_always_reached():
    """Extreme sizes, ridges, row lengths and duplicated rows: 80 fits."""
    rng = np.random.default_rng(8)
    for trial in range(80):
        n, d, n_classes = int(rng.integers(2, 300)), int(rng.integers(1, 8)), int(rng.integers(2, 5))
        loss = (Logistic(), HuberHinge(1e-3), Hinge())[trial % 3]
        public = facts(
            n_samples=n, n_features=d, n_classes=n_classes, loss=loss, C=10 ** rng.uniform(-4, 6),
            data_norm=10 ** rng.uniform(-6, 6),
        )  # fmt: skip
        X = rng.normal(size=(n, d)) * public.data_norm * 10 ** rng.uniform(-3, 3)
        if trial % 4 == 0:
            X[:] = X[0]
        solver = OutputPerturbation(min_ridge=0.0 if trial % 2 else None)
        epsilon = 10 ** rng.uniform(-2, 4)
        weights = release(public, solver, X, rng.integers(0, n_classes, n), epsilon, noise=SeededNoise(trial))
        assert np.isfinite(weights).all()


def test_rounding_hardly_widens_the_distance():
    for n, d in ((2, 1), (50_000, 100), (1_000_000, 1000)):
        for loss in (Logistic(), HuberHinge(), Hinge()):
            public = facts(n_samples=n, n_features=d, loss=loss)
            for method in METHODS.values():
                if method.refusal(loss) is None:
                    ((question, _),) = method.plan(public, 1.0, 1e-8).questions
                    exact = dataclasses.replace(question.training, n_features=0).distance("add_remove")
                    assert question.sensitivity <= 1.06 * exact
                    if method.method == "exact":
                        assert question.sensitivity <= 1.06 * public.row_norm / question.training.ridge


def test_multiclass_noise_is_one_vector(recording_noise):
    public = facts(n_classes=4)
    solver = OutputPerturbation()
    weights = release(public, solver, *random_data(public), epsilon=1.0, delta=0, noise=recording_noise)
    assert weights.shape == (4, 4)
    assert [kind for kind, _ in recording_noise.draws] == ["gamma"]
    ((question, _),) = solver.plan(public, 1.0, 0).questions
    pure = [question.release(problem_for(public, solver, *random_data(public)), SeededNoise(s)) for s in range(200)]
    radius = np.mean([np.linalg.norm(p - weights) for p in pure]) / question.noise_scale
    assert radius == pytest.approx(16, abs=4 * sqrt(16 / 200))  # Gamma(16) has mean and variance 16


def test_models_with_defaults_learn():
    rng = np.random.default_rng(0)
    y = rng.integers(0, 2, 3000)
    X = rng.normal(size=(3000, 3)) + 2 * y[:, None]
    for cls, method in itertools.product((DPLogisticRegression, DPHuberSVC), ("exact", "gd", "psgd")):
        for delta in (0, 1e-6):
            model = cls(1.0, delta, solver=OutputPerturbation(method), data_norm=5.0, classes=[0, 1], random_state=0)
            with pytest.warns(SeededNoiseWarning):
                assert model.fit(X, y).score(X, y) > 0.9
