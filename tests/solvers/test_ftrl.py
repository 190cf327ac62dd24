"""FTRL: it is stochastic gradient descent where nothing is added, and its rules are made of public facts."""

from math import ceil, inf, sqrt

import numpy as np
import pytest
import scipy.sparse as sp
from conftest import RecordingNoise, Tape
from scipy.special import expit, softmax
from solver_cases import facts, problem_for

from dpskl import DPHuberSVC, DPLinearSVC, DPLogisticRegression, PrivacyAccountant
from dpskl.accounting import GaussianCost, gaussian_mu
from dpskl.curator import Curator
from dpskl.mechanisms.correlated_noise import BinaryTree, Restarted, SquareRoot, best_square_root
from dpskl.mechanisms.noise import SeededNoise
from dpskl.records.losses import Softmax
from dpskl.records.problem import Problem
from dpskl.solvers import FTRL, GradientDescent
from dpskl.solvers.gradient_descent import balanced_time, effective_clip

RNG = np.random.default_rng(8)
X, CODES = RNG.normal(size=(23, 3)), RNG.permutation(np.arange(23) % 3)


# -- limits: the same algorithm, written out ------------------------------------------------------------------


def gradient(design, codes, w, clip):
    """Sum of clipped gradients of logistic losses (one column of w) or softmax losses."""
    residuals = softmax(design @ w, axis=1) - np.eye(3)[codes] if w.shape[1] > 1 else None
    if residuals is None:
        sign = np.where(codes == 1, 1.0, -1.0)[:, None]
        residuals = -sign * expit(-sign * (design @ w))
    gradients = design[:, :, None] * residuals[:, None, :]
    norms = np.sqrt(np.square(gradients).sum(axis=(1, 2), keepdims=True))
    return (gradients * np.minimum(1, clip / norms)).sum(axis=0)


def stochastic_descent(X, codes, K, batch_size, passes, step, clip, momentum=0.0, penalty=None):
    """Heavy-ball steps in the order of the rows, or steps step / (1 + step penalty t) on losses with a penalty."""
    norms = np.linalg.norm(X, axis=1, keepdims=True)
    design = np.column_stack([X / np.maximum(1, norms), np.full(len(X), 0.3)])
    w = velocity = np.zeros((design.shape[1], K))
    iterates = []
    for t in range(1, passes * -(-len(X) // batch_size) + 1):
        start = (t - 1) % -(-len(X) // batch_size) * batch_size
        g = gradient(design[start : start + batch_size], codes[start : start + batch_size], w, clip) / batch_size
        if penalty is None:
            velocity = momentum * velocity - step * g
            w = w + velocity
        else:
            w = w - step / (1 + step * penalty * t) * (g + penalty * w)
        iterates.append(w)
    return iterates


def run(solver, K, C=1e12, noise=None, epsilon=inf, layout=np.asarray, X=X, codes=CODES, **changes):
    public = facts(n_samples=len(X), n_features=X.shape[1], n_classes=max(K, 2), C=C, **changes)
    plan, loss = solver.plan(public, epsilon, 1e-6), solver.problem_loss(public)
    problem = Problem(
        layout(X), loss.encode(codes if K > 1 else np.asarray(codes) == 1, max(K, 2)), loss,
        data_norm=1.0, intercept=public.intercept, n_outputs=K, rows=solver.rows,
    )  # fmt: skip
    return plan, solver.run(Curator(problem, plan.open_budget(), noise or RecordingNoise()), plan)


KINDS = [
    {},
    {"band": 1},
    {"band": 99},
    {"factorisation": "tree"},
    {"factorisation": "honaker"},
    {"factorisation": "tree", "restart": True},
    {"restart": True},
]


@pytest.mark.parametrize("K", [1, 3])
@pytest.mark.parametrize("kind", KINDS, ids=str)
@pytest.mark.parametrize("momentum", [0.0, 0.6])
def test_without_noise_it_is_sgd_in_the_same_order(kind, momentum, K):
    common = {"step_size": 0.7, "clip_norm": 0.4, "momentum": momentum, "order": "rows", "rows": "clip"}
    expected = stochastic_descent(X, CODES, K, 5, 3, 0.7, 0.4, momentum)
    last = run(FTRL(3, 5, **common, **kind, iterate="last"), K)[1]
    np.testing.assert_allclose(last.weights.reshape(-1, K), expected[-1], rtol=1e-9, atol=1e-12)
    assert last.n_iter == len(expected) == 15
    average = run(FTRL(3, 5, **common, **kind), K)[1]
    np.testing.assert_allclose(average.weights.reshape(-1, K), np.mean(expected[7:], axis=0), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("K", [1, 3])
def test_the_penalty_is_that_of_steps_that_shrink(K):
    solver = FTRL(4, 5, step_size=0.7, momentum=0.0, clip_norm=9.0, order="rows", rows="clip", iterate="last")
    plan, outcome = run(solver, K, C=0.5)
    expected = stochastic_descent(X, CODES, K, 5, 4, 0.7, 9.0, penalty=2 / 25)  # five batches of five places
    np.testing.assert_allclose(outcome.weights.reshape(-1, K), expected[-1], rtol=1e-9)
    assert plan.ridge == 2


def test_with_a_penalty_it_comes_to_the_minimum():
    """The penalty is spread over a pass so that the fixed point is that of the sum of losses, also with momentum."""
    from scipy.optimize import minimize

    solver = FTRL(400, 23, step_size=2.0, momentum=0.5, clip_norm=9.0, order="rows", rows="clip", iterate="last")
    _, outcome = run(solver, 1, C=0.5)
    design = np.column_stack([X / np.maximum(1, np.linalg.norm(X, axis=1, keepdims=True)), np.full(len(X), 0.3)])
    sign = np.where(CODES == 1, 1.0, -1.0)
    best = minimize(lambda w: np.logaddexp(0, -sign * (design @ w)).sum() + w @ w, np.zeros(4), tol=1e-10).x
    np.testing.assert_allclose(outcome.weights, best, rtol=0.02, atol=2e-3)


def test_with_one_batch_it_is_gradient_descent():
    """Steps, momentum and clip of gd on the same budget; independent noise, to which the same tape gives one scale."""
    common = {"step_size": 0.7, "clip_norm": 0.4, "momentum": 0.6, "rows": "clip"}
    full = run(FTRL(12, 23, order="rows", **common), 1)[1].weights
    gd = run(GradientDescent(12, iterate="average", **common), 1)[1].weights
    np.testing.assert_allclose(full, gd, rtol=1e-9)
    noisy_plan, noisy = run(FTRL(12, 23, order="rows", **common), 1, noise=Tape(4), epsilon=1.0)
    gd_plan, descended = run(GradientDescent(12, iterate="average", **common), 1, noise=Tape(4), epsilon=1.0)
    assert noisy_plan.questions[0][0].factorisation == SquareRoot(12, 1)
    assert noisy_plan.questions[0][0].noise_scale == pytest.approx(gd_plan.questions[0][0].noise_scale)
    np.testing.assert_allclose(noisy.weights, descended.weights, rtol=1e-4)


@pytest.mark.parametrize("K", [1, 3])
def test_layouts_and_widths_of_floats_agree(K):
    solver = FTRL(3, 5)
    runs = [
        run(solver, K, noise=Tape(2), epsilon=2.0, layout=layout)[1].weights
        for layout in (np.asarray, np.asfortranarray, sp.csr_array, lambda X: np.asarray(X, np.float32))
    ]
    for other in runs[1:3]:
        np.testing.assert_allclose(other, runs[0], rtol=1e-5)
    np.testing.assert_allclose(runs[3], runs[0], rtol=1e-4)


def test_the_order_is_drawn_without_the_data_and_once():
    orders = []

    class Seen(Problem):
        def batch(self, indices):
            orders[-1].append(indices)
            return super().batch(indices)

    loss = Softmax()
    mechanism = FTRL(3, 5).plan(facts(n_samples=23, n_features=3, n_classes=3), 1.0, 1e-6).questions[0][0]
    for sign in (1, -1):
        orders.append([])
        problem = Seen(sign * X, loss.encode(CODES, 3), loss, data_norm=1.0, intercept=0.3, n_outputs=3)
        mechanism.release(problem, lambda prefix: prefix, SeededNoise(5))
    first, second = (np.concatenate(order) for order in orders)
    np.testing.assert_array_equal(first, second)
    np.testing.assert_array_equal(first, np.tile(first[:23], 3))
    np.testing.assert_array_equal(np.sort(first[:23]), np.arange(23))
    assert not np.array_equal(first[:23], np.arange(23))
    assert [len(batch) for batch in orders[0][:5]] == [5, 5, 5, 5, 3]


# -- plans --------------------------------------------------------------------------------------------------


def test_one_question_is_charged_for_all_steps():
    plan = FTRL().plan(facts(), 1.0, 1e-6)
    ((question, count),) = plan.questions
    assert count == 1
    assert plan.cost == GaussianCost(question.mu)
    assert question.factorisation == best_square_root(100, 5)
    assert question.batch_size == 100
    assert plan.settings.n_steps == 100
    assert plan.settings.momentum == pytest.approx(0.95)
    budget = plan.open_budget()
    curator = Curator(problem_for(facts(), FTRL()), budget, SeededNoise(1))
    with pytest.raises(KeyboardInterrupt):  # whoever stops has paid
        curator.ask(question, lambda prefix: (_ for _ in ()).throw(KeyboardInterrupt))
    assert budget.remaining(plan.cost) == 0


def test_rules_follow_the_noise_of_the_factorisation():
    public, mu = facts(n_samples=10**5, n_features=50), gaussian_mu(1.0, 1e-6)
    for solver in (FTRL(), FTRL(1, 1000), FTRL(10, 10**4, factorisation="tree"), FTRL(10, 10**4, band=1)):
        ((question, _),), leader = solver.plan(public, 1.0, 1e-6).questions, solver.plan(public, 1.0, 1e-6).settings
        made, period = question.factorisation, ceil(10**5 / question.batch_size)
        noise = made.participation_norm(period) * sqrt(made.variances().mean())
        felt = mu * solver.max_iter / (sqrt(2) * noise)
        largest = public.row_norm
        assert question.clip_norm == pytest.approx(effective_clip(None, largest, public, felt))
        smoothness = public.row_norm**2 / 4
        time = min(balanced_time(public, felt), 1e9)
        limit = (1 + leader.momentum) / (smoothness + leader.penalty)
        assert leader.step == pytest.approx(min(time * (1 - leader.momentum) / made.n_steps, limit))
    assert FTRL(1, 100_000).plan(public, 1.0, 1e-6).settings.momentum == 0
    assert FTRL(1, 5000).plan(public, 1.0, 1e-6).settings.momentum == pytest.approx(0.75)


@pytest.mark.parametrize(
    ("solver", "expected"),
    [
        (FTRL(3, 100, band=4), SquareRoot(15, 4)),
        (FTRL(3, 100, band=99), SquareRoot(15, 15)),
        (FTRL(3, 100, restart=True), Restarted(15, best_square_root(5, 5))),
        (FTRL(3, 100, factorisation="tree"), BinaryTree(15)),
        (FTRL(3, 10**6, factorisation="honaker", restart=True), Restarted(3, BinaryTree(1, refined=True))),
    ],
    ids=repr,
)
def test_factorisations_by_name(solver, expected):
    assert solver.plan(facts(), 1.0, 1e-6).questions[0][0].factorisation == expected


def test_replaced_records_cost_twice_the_noise():
    one, two = (FTRL(clip_norm=0.5).plan(facts(neighbours=r), 1.0, 1e-6) for r in ("add_remove", "replace_one"))
    assert two.questions[0][0].noise_scale == pytest.approx(2 * one.questions[0][0].noise_scale)
    assert one.cost == two.cost


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"max_iter": 0}, "max_iter=0 must be a whole number of at least 1"),
        ({"max_iter": 3000}, r"max_iter=3000 passes of 5 steps are 15000 steps.*lower max_iter or raise batch_size"),
        ({"batch_size": 2.5}, "batch_size=2.5 must be None or a whole number"),
        ({"step_size": -1.0}, "step_size=-1.0 must be None or a positive finite number"),
        ({"step_size": 1e60}, "step_size=1e.60 times the squared row norm must not exceed"),
        ({"clip_norm": inf}, "clip_norm=inf must be None or a positive finite number"),
        ({"momentum": 1.0}, r"momentum=1.0 must be None or a number in \[0, 1\)"),
        ({"factorisation": "fourier"}, "factorisation='fourier' must be one of 'square_root', 'tree', 'honaker'"),
        ({"band": 0}, "band=0 must be None or a whole number"),
        ({"band": 3, "factorisation": "tree"}, "band=3 has no meaning for factorisation='tree'"),
        ({"restart": 1}, "restart=1 must be True or False"),
        ({"order": "labels"}, "order='labels' must be 'random' or 'rows'"),
        ({"iterate": "best"}, "iterate='best' must be 'average' or 'last'"),
        ({"rows": "cut"}, "rows='cut' must be one of"),
    ],
    ids=str,
)
def test_refusals_in_words_before_any_charge(parameters, message):
    accountant = PrivacyAccountant()
    model = DPLogisticRegression(1.0, solver=FTRL(**parameters), classes=[0, 1], accountant=accountant)
    with pytest.raises(ValueError, match=message):
        model.fit(X, CODES % 2)
    assert accountant.entries() == ()


def test_other_refusals():
    with pytest.raises(ValueError, match=r"delta=0 asks for pure.*'ftrl'"):
        FTRL().plan(facts(), 1.0, 0.0)
    with pytest.raises(ValueError, match=r"n_samples=1000000000 is too large for solver='ftrl'.*or take solver='gd'"):
        FTRL().plan(facts(n_samples=10**9), 1.0, 1e-6)


# -- fits ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("estimator", [DPLogisticRegression, DPHuberSVC, DPLinearSVC])
@pytest.mark.parametrize("solver", [FTRL(), FTRL(1, 20, order="rows"), FTRL(5, factorisation="honaker", restart=True)])
def test_it_learns(estimator, solver):
    rng = np.random.default_rng(3)
    codes = rng.integers(0, 3, 3000)
    rows = rng.normal(size=(3000, 3)) * 0.3 + 2 * np.eye(3)[codes]
    for classes in ([0, 1], [0, 1, 2]):
        here = codes < len(classes)
        model = estimator(3.0, 1e-6, solver=solver, classes=classes, data_norm=2.5, fit_intercept=len(classes) == 2)
        assert model.fit(rows[here], codes[here]).score(rows[here], codes[here]) > 0.9
        assert model.n_iter_ == model.solver_.max_iter * ceil(here.sum() / (model.solver_.batch_size or here.sum() / 5))


@pytest.mark.parametrize("rows", [np.array([[1.0, 2.0], [0.5, -1.0]]), np.ones((2, 2)), np.zeros((2, 1))])
def test_two_records_and_constant_columns(rows):
    for n_samples in (None, 50):
        for solver in (FTRL(), FTRL(2, 7, factorisation="honaker")):
            model = DPLogisticRegression(1.0, solver=solver, classes=[0, 1], n_samples=n_samples).fit(rows, [0, 1])
            assert np.isfinite(model.coef_).all()


def test_the_guarantee_says_what_it_rests_on():
    model = DPLogisticRegression(1.0, solver="ftrl", classes=[0, 1]).fit(X, CODES % 2)
    (part,) = model.privacy_guarantee_.parts
    assert part.mechanism == "correlated Gaussian noise on the prefix sums of 100 clipped batch gradients"
    assert part.count == 1
    assert "Denisov" in part.theorem
    assert "an absent one leaves it empty" in part.theorem
    assert part.cost.epsilon(1e-6) <= 1.0
