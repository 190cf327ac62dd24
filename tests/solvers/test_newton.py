"""Newton's method: the limit without noise, the plan, whole fits, and what is refused."""

import tracemalloc
import warnings
from math import inf, sqrt

import numpy as np
import pytest
import scipy.sparse as sp
from conftest import RecordingNoise
from problem_cases import LAYOUTS
from scipy.special import expit
from solver_cases import facts
from whitened_cases import each_relation, on_sphere

from dpskl import DPHuberSVC, DPLinearSVC, DPLogisticRegression, PrivacyAccountant
from dpskl.accounting import GaussianCost, gaussian_delta, gaussian_mu
from dpskl.curator import Curator
from dpskl.mechanisms.noise import SeededNoise
from dpskl.records.losses import HuberHinge, Logistic, Softmax
from dpskl.records.problem import Problem
from dpskl.solvers import Newton, make_solver

pytestmark = pytest.mark.filterwarnings("ignore::dpskl.SeededNoiseWarning")
HESSIANS = ("majorant", "exact", "bound")
each_hessian = pytest.mark.parametrize("hessian", HESSIANS)


def fitted(cls, solver, X, y, epsilon=inf, **settings):
    settings = {"classes": np.unique(y), "data_norm": 3.0, "C": 0.5, "random_state": 0, **settings}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return cls(epsilon, 1e-6, solver=solver, **settings).fit(X, y)


def weights_of(model, intercept=0.9):
    return np.vstack([model.coef_.T, model.intercept_ / intercept]) if model.fit_intercept else model.coef_.T


def data(n=300, d=4, n_classes=2, seed=0):
    rng = np.random.default_rng(seed)
    codes = rng.integers(0, n_classes, n)
    codes[:n_classes] = np.arange(n_classes)
    return rng.normal(size=(n_classes, d))[codes] + rng.normal(size=(n, d)), codes


# -- the limit without noise --------------------------------------------------------------------------------


def newton_iterates(design, signs, curvature, slope, ridge, floor, n_steps, is_mean):
    """Newton's method for one output: eigenvalues, of the mean of the Hessians so far, are at least ``floor``."""
    D = design.shape[1]
    w, total, iterates = np.zeros(D), 0, []
    for t in range(n_steps):
        margins = signs * (design @ w)
        present = design.T @ (curvature(margins)[:, None] * design)
        total = total + present
        values, basis = np.linalg.eigh(total / (t + 1) if is_mean else present)
        H = (basis * np.maximum(values, floor)) @ basis.T
        w = w - np.linalg.solve(H + ridge * np.eye(D), design.T @ (signs * slope(margins)) + ridge * w)
        iterates.append(w)
    return iterates


CURVATURES = {
    "exact": lambda z: expit(z) * expit(-z),
    "majorant": lambda z: np.tanh(z / 2) / (2 * np.where(z == 0, 1, z)) + 0.25 * (z == 0),
    "bound": lambda z: np.full(len(z), 0.25),
}


@pytest.mark.parametrize("fit_intercept", [True, False])
@pytest.mark.parametrize("epsilon", [inf, 1e6])
@pytest.mark.parametrize("n_classes", [2, 3])
@each_hessian
def test_without_noise_it_is_its_plain_reference(hessian, n_classes, epsilon, fit_intercept):
    X, y = data(n_classes=n_classes)
    if n_classes == 3 and hessian == "bound":
        pytest.skip("a softmax, see below")
    X[:, 1] = 0  # rank deficient, so that the least damping matters
    D = 4 + fit_intercept
    solver = Newton(hessian, max_iter=6, clip=30.0, rows="sphere")  # which no gradient reaches
    model = fitted(DPLogisticRegression, solver, X, y, epsilon, fit_intercept=fit_intercept)
    assert model.effective_C_ == pytest.approx(0.5 * D)
    design = on_sphere(X, 3.0, 0.9 * fit_intercept)
    for k, column in enumerate(weights_of(model).T):
        signs = np.where(y == (1 if n_classes == 2 else k), 1.0, -1.0)
        iterates = newton_iterates(
            design, signs, CURVATURES[hessian], lambda z: -expit(-z), 2 / D, 1e-6 * 9 / D * 300 * 0.25, 6, epsilon < inf
        )
        tolerance = {inf: 1e-8, 1e6: 0.02}[epsilon]
        np.testing.assert_allclose(column, np.mean(iterates[3:], axis=0), atol=tolerance)


def test_one_bound_of_several_classes_goes_down_the_softmax():
    X, y = data(n_classes=3)
    model = fitted(DPLogisticRegression, Newton("bound", max_iter=150, clip=1e6, iterate="last", rows="sphere"), X, y)
    design, w = on_sphere(X, 3.0, 0.9), weights_of(model)
    scores = design @ w
    p = np.exp(scores - scores.max(axis=1, keepdims=True))
    p /= p.sum(axis=1, keepdims=True)
    gradient = design.T @ (p - np.eye(3)[y]) + 2 / 5 * w
    assert np.linalg.norm(gradient) < 1e-6 * np.linalg.norm(design.T @ (1 / 3 - np.eye(3)[y]))


def last(hessian, n_steps, X, y, cls=DPLogisticRegression, eigenvalues="clip"):
    solver = Newton(hessian, eigenvalues, max_iter=n_steps, clip=1e6, iterate="last", rows="sphere")
    return fitted(cls, solver, X, y)


@pytest.mark.parametrize("eigenvalues", ["clip", "add"])
def test_it_converges_quadratically(eigenvalues):
    """The distance from the minimum is at most a multiple of the square of the one before, down to rounding."""
    X, y = data()
    iterates = [weights_of(last("exact", t, X, y, eigenvalues=eigenvalues)) for t in range(1, 12)]
    errors = [np.linalg.norm(w - iterates[-1]) for w in iterates]
    places = [t for t in range(10) if 1e-7 < errors[t] < 0.5]
    assert len(places) >= 2
    for t in places:
        assert errors[t + 1] <= errors[t] ** 2 + 1e-5 * errors[t]  # the least damping makes the rest linear
    assert errors[-2] < 1e-9


@pytest.mark.parametrize("cls", [DPLogisticRegression, DPHuberSVC])
@pytest.mark.parametrize("hessian", ["majorant", "bound"])
def test_a_parabola_above_the_loss_never_raises_the_objective(hessian, cls):
    X, y = data()
    loss, design, signs = cls()._loss(), on_sphere(X, 3.0, 0.9), np.where(y == 1, 1.0, -1.0)

    def objective(w):
        return loss.value(signs * (design @ w)).sum() + w @ w / 5

    values = [objective(np.zeros(5))]
    values += [objective(weights_of(last(hessian, t, X, y, cls))[:, 0]) for t in range(1, 9)]
    assert (np.diff(values) < 0).all()
    assert values[-1] < 0.8 * values[0]


# -- the plan -----------------------------------------------------------------------------------------------


@each_relation
@each_hessian
@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("loss", [Logistic(), HuberHinge(1.0)], ids=repr)
def test_every_draw_is_what_was_charged(loss, n_classes, hessian, neighbours):
    public = facts(loss=loss, n_classes=n_classes, neighbours=neighbours, data_norm=2.0, intercept=0.6)
    solver = Newton(hessian, max_iter=7, hessian_share=0.4, rows="clip")
    plan = solver.plan(public, 1.0, 1e-6)
    mu, K, is_bound = gaussian_mu(1.0, 1e-6), public.n_outputs, hessian == "bound"
    assert isinstance(plan.cost, GaussianCost)
    assert 1.0 - 1e-6 < plan.cost.epsilon(1e-6) <= 1.0
    rng = np.random.default_rng(0)
    joint = solver.problem_loss(public)
    assert isinstance(joint, Softmax) == (is_bound and K > 1 and isinstance(loss, Logistic))
    targets = joint.encode(rng.integers(0, n_classes, 500), n_classes)
    X = rng.normal(size=(500, 4))
    problem = Problem(X, targets, joint, data_norm=2.0, intercept=0.6, n_outputs=K)
    noise = RecordingNoise()
    outcome = solver.run(Curator(problem, plan.open_budget(), noise), plan)
    assert outcome.weights.shape == ((5,) if K == 1 else (5, 3))
    assert outcome.n_iter == 7
    changed, squared_row = (1 if neighbours == "add_remove" else 2), 4 + 0.6**2
    scales = [scale for _, scale in noise.draws]
    if is_bound:
        matrices, gradients = scales[:1], scales[1:]
        moved = sqrt(changed) * squared_row
    else:
        steps = np.reshape(scales, (7, K + 1))  # the matrices of a step, then its gradient
        matrices, gradients = steps[:, 0].tolist(), steps[:, -1].tolist()
        assert (steps[:, :K] == steps[:, :1]).all()
        moved = sqrt(K * changed) * squared_row
    assert len(gradients) == 7
    spent = sum((moved / scale) ** 2 for scale in matrices)
    assert spent == pytest.approx(0.4 * mu**2, rel=1e-6)
    total = sqrt(spent + sum((changed / scale) ** 2 for scale in gradients))
    assert gaussian_delta(total, 1.0) == pytest.approx(1e-6, rel=1e-4)


@pytest.mark.parametrize("epsilon", [1e-3, 0.1, 1.0, 8.0])
@each_hessian
def test_squares_of_all_mu_sum_to_the_budget(hessian, epsilon):
    for n_steps in (1, None, 1000):
        plan = Newton(hessian, max_iter=n_steps).plan(facts(), epsilon, 1e-8)
        mu = gaussian_mu(epsilon, 1e-8)
        assert mu * (1 - 1e-11) <= sqrt(sum(count * m.cost.mu**2 for m, count in plan.questions)) <= mu


@each_relation
def test_rules_of_the_plan_written_out(neighbours):
    public = facts(n_samples=20_000, n_features=49, C=2.0, neighbours=neighbours)
    mu, changed = gaussian_mu(0.2, 1e-8), 1 if neighbours == "add_remove" else 2
    for hessian, n_steps, share, count in (("bound", 20, 0.2, 1), ("majorant", 10, 0.3, 10), ("exact", 10, 0.3, 10)):
        plan = Newton(hessian).plan(public, 0.2, 1e-8)
        assert [number for _, number in plan.questions] == [count, n_steps]
        assert plan.ridge == pytest.approx(1 / 100)
        noise = 1.09 * sqrt(changed) / (mu * sqrt(share / count))
        assert plan.settings.damping == pytest.approx(0.25 * sqrt(100) * noise / 20_000)
        signal = mu * 20_000 / 50 / changed
        assert plan.settings.clip == pytest.approx(0.5 * sqrt(signal / 12))
        for epsilon, extreme in ((0.01, 0.35), (inf, 1.0)):
            assert Newton(hessian).plan(public, epsilon, 1e-8).settings.clip == extreme
            several = facts(n_samples=20_000, n_features=49, n_classes=3)
            assert Newton(hessian).plan(several, epsilon, 1e-8).settings.clip == pytest.approx(sqrt(2) * extreme)


@pytest.mark.parametrize(
    ("solver", "delta", "message"),
    [
        (Newton("hessian"), 1e-6, "hessian='hessian' must be one of 'majorant', 'exact', 'bound'"),
        (Newton(eigenvalues="floor"), 1e-6, "eigenvalues='floor' must be 'clip' or 'add'"),
        (Newton(max_iter=0), 1e-6, "max_iter=0"),
        (Newton(hessian_share=1.0), 1e-6, "hessian_share=1.0"),
        (Newton(clip=0), 1e-6, "clip=0"),
        (Newton(iterate="first"), 1e-6, "iterate='first'"),
        (Newton(rows="cube"), 1e-6, "rows='cube'"),
        (Newton(), 0, "pure differential privacy.*objective_perturbation"),
    ],
)
def test_what_cannot_be_is_refused_before_anything_is_spent(solver, delta, message):
    accountant = PrivacyAccountant()
    model = DPLogisticRegression(1.0, delta, solver=solver, classes=[0, 1], accountant=accountant)
    with pytest.raises(ValueError, match=message):
        model.fit(np.eye(2), [0, 1])
    assert len(accountant) == 0


def test_losses_without_curvature_are_refused_by_name():
    with pytest.raises(ValueError, match=r"'newton'.*kink.*DPHuberSVC.*choose solver="):
        DPLinearSVC(solver="newton", classes=[0, 1]).fit(np.eye(2), [0, 1])
    with pytest.raises(ValueError, match=r"hessian='exact'.*w = 0.*HuberHinge.*'majorant' or 'bound', or h"):
        DPHuberSVC(solver=Newton("exact"), classes=[0, 1]).fit(np.eye(2), [0, 1])
    assert make_solver(Newton("exact"), HuberHinge(1.0)).name == "newton"


def test_many_columns_are_refused_with_a_remedy():
    assert Newton().plan(facts(n_features=999), 1.0, 1e-6).n_questions == 21
    with pytest.raises(ValueError, match=r"D=1001; choose solver='whitened_gd'"):
        Newton().plan(facts(n_features=1000), 1.0, 1e-6)


# -- whole fits -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("cls", [DPLogisticRegression, DPHuberSVC])
@pytest.mark.parametrize("eigenvalues", ["clip", "add"])
@each_hessian
def test_odd_data_give_finite_weights(hessian, eigenvalues, cls):
    rng = np.random.default_rng(4)
    solver = Newton(hessian, eigenvalues)
    if solver.refusal(cls()._loss()) is not None:
        pytest.skip("refused, see above")
    cases = {
        "two rows": (rng.normal(size=(2, 3)), np.array([0, 1])),
        "constant columns": (np.ones((50, 3)), rng.integers(0, 2, 50)),
        "zeros": (np.zeros((50, 2)), rng.integers(0, 2, 50)),
        "one class": (rng.normal(size=(50, 3)), np.zeros(50, dtype=int)),
        "one column": (rng.normal(size=(50, 1)), rng.integers(0, 2, 50)),
        "one-hot": (np.eye(5)[rng.integers(0, 5, 50)], rng.integers(0, 2, 50)),
        "three classes": (rng.normal(size=(50, 2)), rng.integers(0, 3, 50)),
    }
    for name, (X, y) in cases.items():
        X.flags.writeable = False
        classes = range(3 if name == "three classes" else 2)
        for epsilon, fit_intercept in ((1.0, True), (1.0, False), (inf, True), (inf, False)):
            for C in (1.0, 1e-200, 1e200):
                model = fitted(cls, solver, X, y, epsilon, classes=classes, fit_intercept=fit_intercept, C=C)
                assert np.isfinite(model.coef_).all(), name
                assert np.isfinite(model.decision_function(X)).all(), name
                if C == 1e-200:
                    assert np.abs(model.coef_).max() < 1e-150


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("n_classes", [2, 3])
@each_hessian
def test_layouts_of_X_give_the_same_weights(hessian, n_classes, layout):
    X, y = data(n=400, n_classes=n_classes)
    X = X.astype(np.float32).astype(np.float64)
    X[np.abs(X) < 0.3] = 0
    plain = fitted(DPLogisticRegression, Newton(hessian), X, y, 2.0)
    other = fitted(DPLogisticRegression, Newton(hessian), LAYOUTS[layout](X), y, 2.0)
    np.testing.assert_allclose(other.coef_, plain.coef_, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("eigenvalues", ["clip", "add"])
@each_hessian
def test_it_learns_with_noise(hessian, eigenvalues, n_classes):
    X, y = data(n=6000, n_classes=n_classes)
    exact = fitted(DPLogisticRegression, Newton(hessian, clip=1e3), X, y, C=10.0).score(X, y)
    model = fitted(DPLogisticRegression, Newton(hessian, eigenvalues), X, y, 1.0)
    assert model.n_iter_ == (20 if hessian == "bound" else 10)
    assert model.score(X, y) > exact - 0.03


def test_C_is_never_without_effect():
    X, y = data(400)
    for hessian in HESSIANS:
        norms = [
            np.linalg.norm(fitted(DPLogisticRegression, Newton(hessian), X, y, 5.0, C=C).coef_)
            for C in (1e-200, 1e-4, 1e-2, 1.0)
        ]
        assert norms == sorted(norms)
        assert norms[1] < 0.1 * norms[3]


@pytest.mark.parametrize("layout", ["C64", "F64", "C32", "csr64", "csr32"])
@each_hessian
def test_no_copy_of_X(layout, hessian):
    rng = np.random.default_rng(3)
    n, d = 100_000, 60
    X = rng.normal(size=(n, d))
    X[rng.random(X.shape) < 0.5] = 0
    X = LAYOUTS[layout](X)
    public = facts(n_samples=n, n_features=d)
    targets = Logistic().encode(rng.integers(0, 2, n), 2)
    solver = Newton(hessian, max_iter=2)
    plan = solver.plan(public, 1.0, 1e-6)
    assert sp.issparse(X) == layout.startswith("csr")
    tracemalloc.start()
    problem = Problem(X, targets, Logistic(), data_norm=1.0, intercept=0.3, rows="fill")
    solver.run(Curator(problem, plan.open_budget(), SeededNoise(0)), plan)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    allowed = 12 * 8 * n + (6 << 20)
    assert peak < allowed, f"{peak / 2**20:.1f} MiB"
    assert allowed < 8 * n * d / 3
