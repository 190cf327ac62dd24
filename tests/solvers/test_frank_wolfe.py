"""Frank-Wolfe: what one record moves, draws, budgets and limits."""

import warnings
from itertools import pairwise
from math import inf, sqrt

import numpy as np
import pytest
import scipy.sparse as sp
from conftest import RecordingNoise
from privgene_cases import CASES, make_problem, mixed_records
from scipy.special import expit, log_softmax, softmax
from solver_cases import facts, problem_for

from dpskl import DPHuberSVC, DPLinearSVC, DPLogisticRegression
from dpskl.accounting import BoundedRangeCost, PureCost, UnplannedQuestionError, compose
from dpskl.curator import Curator
from dpskl.mechanisms import vertex_selection
from dpskl.mechanisms.vertex_selection import VertexSelection
from dpskl.records.losses import Hinge, Logistic
from dpskl.records.path import Path
from dpskl.records.problem import Problem
from dpskl.solvers import FrankWolfe

pytestmark = pytest.mark.filterwarnings("ignore::dpskl.SeededNoiseWarning")


# -- what one record can move -----------------------------------------------------------------------------


def worst_records(rng, n, case):
    """Records of which the first is on an axis and utterly wrong, the last so in the opposite way, and weights."""
    n_classes = CASES[case][1]
    X, codes = mixed_records(rng, n + 1, n_classes)
    X *= 10.0 ** rng.uniform(-1, 2, size=(n + 1, 1))
    X[0], X[-1] = np.eye(8)[3], -np.eye(8)[3]
    codes[0] = codes[-1] = 1
    weights = np.zeros(make_problem(X, codes, case).zeros().shape)
    weights[-1] = -60.0 if n_classes == 2 else [60.0, -60.0, 0.0]
    return X, codes, weights


def handed_scores(monkeypatch):
    """Make selections note their scores, and take the first candidate."""
    noted = []

    def first(scores, spread, epsilon, noise, law):
        noted.append((scores, spread, epsilon))
        return 0

    monkeypatch.setattr(vertex_selection, "select_smallest", first)
    return noted


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("clip", [0.1, 1.0])
@pytest.mark.parametrize("case", CASES)
def test_differences_of_scores_move_by_at_most_the_sensitivity(case, clip, sparse, monkeypatch):
    """Brute force over neighbours: the bound holds, and records that are made to be the worst reach it."""
    rng, noted = np.random.default_rng(8), handed_scores(monkeypatch)
    worst = {"add_remove": 0.0, "replace_one": 0.0}
    for trial in range(60):
        n = int(rng.integers(2, 6))
        X, codes, weights = worst_records(rng, n, case)
        if trial % 3:
            X, codes = mixed_records(rng, n + 1, CASES[case][1])
            X *= 10.0 ** rng.uniform(-1, 2, size=(n + 1, 1))
            weights = rng.normal(size=weights.shape) * 10.0 ** rng.uniform(-2, 1)
        for rows in (np.arange(1, n), np.arange(n), np.r_[1:n, n]):
            problem = make_problem(sp.csr_array(X[rows]) if sparse else X[rows], codes[rows], case)
            VertexSelection(clip, 1.0, "gumbel", "add_remove", 6, 8).release(
                problem, weights, 0.5, 7.0, 3.0, RecordingNoise()
            )
        without, with_it, exchanged = (scores for scores, _, _ in noted[-3:])
        worst["add_remove"] = max(worst["add_remove"], np.ptp(with_it - without))
        worst["replace_one"] = max(worst["replace_one"], np.ptp(exchanged - with_it))
    for neighbours, distance in worst.items():
        stated = VertexSelection(clip, 1.0, "gumbel", neighbours, 6, 8).sensitivity
        assert 0.97 * stated <= distance <= stated


@pytest.mark.parametrize("neighbours", ["add_remove", "replace_one"])
def test_exact_probabilities_of_neighbours_differ_by_at_most_epsilon(neighbours, monkeypatch):
    """The law of a whole release, from the scores and the spread that it hands to the selection."""
    epsilon, worst, noted = 0.8, 0.0, handed_scores(monkeypatch)
    question = VertexSelection(0.3, epsilon, "gumbel", neighbours, 3, 8)
    rng = np.random.default_rng(11)
    for _ in range(100):
        X, codes, weights = worst_records(rng, 2, "logistic")
        weights[-1] = rng.uniform(-60, 0)
        for rows in ([0, 1], [1]) if neighbours == "add_remove" else ([0, 1], [2, 1]):
            problem = make_problem(X[rows], codes[rows], "logistic")
            question.release(problem, weights, 0.5, 7.0, 30.0, RecordingNoise())
        first, second = (log_softmax(-epsilon / spread * scores) for scores, spread, _ in noted[-2:])
        assert noted[-1][1] == noted[-2][1]  # data do not choose the noise
        worst = max(worst, np.abs(first - second).max(), np.ptp(first - second))
    assert 0.99 * epsilon < worst <= epsilon * (1 + 1e-9)


def test_a_large_penalty_is_allowed_for_where_it_rounds(monkeypatch):
    noted = handed_scores(monkeypatch)
    question = VertexSelection(0.25, 1.0, "gumbel", "add_remove", 500, 4)
    weights = np.array([0, 2.0, 0, 0, -1.0])
    question.release(problem_for(facts(), FrankWolfe()), weights, 0.5, 7.0, 1e15, RecordingNoise())
    assert noted[0][1] == pytest.approx(2 * 0.25 + 2e15 * 2.0**-50)


# -- draws and budgets --------------------------------------------------------------------------------------


class SizedRecorder(RecordingNoise):
    def gumbel(self, size, scale):
        self.draws.append(("gumbel", size, scale))
        return np.zeros(size)

    def standard_exponential(self, size):
        self.draws.append(("exponential", size, 1.0))
        return np.zeros(size)


@pytest.mark.parametrize("neighbours", ["add_remove", "replace_one"])
@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("delta", [0, 1e-6])
def test_every_draw_is_what_was_charged(delta, n_classes, neighbours):
    """Number, law and scale of the draws against numbers computed here by hand."""
    public = facts(n_classes=n_classes, neighbours=neighbours)
    solver = FrankWolfe(max_iter=9, radius=5.0, clip=0.25)
    plan = solver.plan(public, 1.0, delta)
    noise = SizedRecorder()
    curator = Curator(Path(problem_for(public, solver)), plan.open_budget(), noise)
    weights = solver.run(curator, plan).weights
    assert weights.shape == ((5,) if n_classes == 2 else (5, 3))
    assert 0 < np.count_nonzero(weights) <= 9
    assert np.abs(weights).sum() <= 5.0 * (1 + 1e-12)
    laws, sizes, scales = zip(*noise.draws, strict=True)
    assert set(sizes) == {2 * weights.size}
    assert len(laws) == 9
    if delta == 0:
        assert set(laws) == {"exponential"}
        assert plan.cost.pure_epsilon == pytest.approx(1.0, rel=1e-9)
        assert plan.cost.pure_epsilon <= 1.0
    else:
        each = 2 * 0.25 * (1 if neighbours == "add_remove" else 2) / np.array(scales)
        assert set(laws) == {"gumbel"}
        np.testing.assert_allclose(each, each[0], rtol=1e-9)
        assert compose([(BoundedRangeCost(each[0]), 9)]).epsilon(delta) == pytest.approx(1.0, rel=2e-3)
        assert plan.cost.epsilon(delta) <= 1.0
    with pytest.raises(UnplannedQuestionError):
        curator.ask(plan.questions[0][0], weights, 0.1, 5.0, 1.0)


def test_permute_and_flip_takes_exponential_noise_of_the_stated_scale():
    """The recorder sees standard variables; here they decide between two vertices whose distance is known."""

    class Second(RecordingNoise):
        def standard_exponential(self, size):
            return np.eye(size)[1]

    problem = Problem(np.ones((2, 1)), np.array([1.0, 1.0]), Hinge(), data_norm=1.0)
    # slopes are -2 and 2 on two records of hinge loss: the noise, 2 clip / epsilon, must exceed 4
    for epsilon, wins in ((0.499, True), (0.501, False)):
        question = VertexSelection(1.0, epsilon, "exponential", "add_remove", 2, 1)
        moved = question.release(problem, np.zeros(1), 1.0, 3.0, 0.0, Second())
        assert question.cost == PureCost(epsilon)
        assert moved[0] == (-3.0 if wins else 3.0)


@pytest.mark.parametrize("solver", [FrankWolfe(), FrankWolfe(max_iter=5), FrankWolfe(clip=0.01, radius=50.0)], ids=repr)
@pytest.mark.parametrize("epsilon", [1e-4, 0.1, 3.0, 1e4, 1e8])
@pytest.mark.parametrize("delta", [0, 1e-9, 1e-3])
def test_plans_stay_within_their_budget(solver, epsilon, delta):
    for changes in ({}, {"neighbours": "replace_one", "n_classes": 4}, {"n_samples": 10**6, "n_features": 300}):
        plan = solver.plan(facts(**changes), epsilon, delta)
        assert plan == solver.plan(facts(**changes), epsilon, delta)
        assert 0.998 * epsilon <= plan.cost.epsilon(delta) <= epsilon


def test_the_default_rules_use_public_facts():
    def planned(epsilon=1.0, delta=1e-6, **changes):
        plan = FrankWolfe().plan(facts(n_features=400, **changes), epsilon, delta)
        ((question, rounds),) = plan.questions
        return question.clip, rounds, plan.settings.radius

    assert planned()[0] == 0.1
    assert planned(data_norm=4.0)[0] == pytest.approx(0.4)
    assert FrankWolfe().plan(facts(), 1.0, 1e-6).questions[0][0].clip == pytest.approx(1 / sqrt(4))
    rounds = [planned(n_samples=n)[1] for n in (500, 1000, 2000, 4000, 8000, 16_000)]
    assert rounds[:2] == [10, 10]  # of fewer a column would stand out from the noise
    assert rounds[3] == pytest.approx(4 * rounds[2], rel=0.1)  # the square of n
    assert rounds[5] == pytest.approx(2 ** (2 / 3) * rounds[4], rel=0.01)
    pure = [planned(delta=0, n_samples=n)[1] for n in (100, 500, 8000, 16_000)]
    assert pure[0] < pure[1] == 10
    assert pure[3] == pytest.approx(2 * pure[2], rel=0.1)
    clip, rounds, _ = planned(n_samples=2 * 10**5)
    assert rounds == 300
    assert 0.1 < clip < 1.0
    for delta in (0, 1e-6):
        assert planned(inf, delta) == (1.0, 300, 100.0)
    # the last step moves a weight by 2 / 3 in units of 1 / data_norm
    plan = FrankWolfe().plan(facts(data_norm=4.0), 1.0, 1e-6)
    assert plan.settings.radius * plan.settings.shares[-1] * 4.0 == pytest.approx(2 / 3, rel=0.1)
    assert plan.settings.shares[:3] == (1.0, 2 / 3, 1 / 2)
    # no weights that the penalty alone would hold back: the minimum has a norm of at most C n G
    assert planned(C=1e-5)[2] == pytest.approx(1e-5 * 500 * sqrt(1.09) * sqrt(401))
    assert planned(C=1e-5, n_classes=3)[2] == pytest.approx(1e-5 * 500 * sqrt(2 * 1.09) * sqrt(3 * 401))
    assert FrankWolfe(clip=9.0).plan(facts(), 1.0, 1e-6).questions[0][0].clip == 1.0


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"max_iter": 0}, "max_iter=0"),
        ({"max_iter": 2.5}, "max_iter=2.5"),
        ({"max_iter": True}, "max_iter=True"),
        ({"radius": -1.0}, "radius=-1"),
        ({"radius": 1e9}, "radius=1e\\+09.*must not exceed 1e\\+06"),
        ({"radius": "x"}, "radius='x'"),
        ({"clip": 0.0}, "clip=0"),
        ({"clip": inf}, "clip=inf"),
        ({"rows": "cube"}, "rows='cube'"),
    ],
)
def test_bad_parameters_are_named_before_anything_is_spent(parameters, message):
    with pytest.raises(ValueError, match=message):
        FrankWolfe(**parameters).plan(facts(), 1.0, 1e-6)


# -- limits -------------------------------------------------------------------------------------------------


def reference(design, codes, K, rounds, radius, ridge, clip=inf):
    """Frank-Wolfe in a few lines: logistic loss for one output, softmax for several."""
    w = np.zeros((design.shape[1], K))
    for t in range(rounds):
        if K == 1:
            signs = np.where(codes == 1, 1.0, -1.0)[:, None]
            residuals = -signs * expit(-signs * (design @ w))
        else:
            residuals = softmax(design @ w, axis=1) - np.eye(K)[codes]
        gradient = np.clip(design, -clip, clip).T @ residuals + ridge * w
        place = np.unravel_index(np.argmax(np.abs(gradient)), w.shape)
        w *= t / (t + 2)
        w[place] -= 2 / (t + 2) * radius * np.sign(gradient[place])
    return w


def blobs(n_classes, d=3):
    rng = np.random.default_rng(2)
    codes = rng.integers(0, n_classes, 300)
    X = rng.normal(size=(n_classes, d))[codes] + rng.normal(size=(300, d))
    return X / np.linalg.norm(X, axis=1).max(), codes


def without_noise(solver, X, codes, epsilon=inf, **settings):
    model = DPLogisticRegression(epsilon, 1e-6, solver=solver, classes=range(codes.max() + 1), **settings)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.fit(X, codes)
    constant = [model.intercept_ / 0.3] if model.fit_intercept else []
    return np.column_stack([model.coef_, *constant]).T


@pytest.mark.parametrize("layout", [np.asarray, sp.csr_array])
@pytest.mark.parametrize("fit_intercept", [True, False])
@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("C", [1.0, 0.01])
def test_without_noise_it_is_the_method_of_frank_and_wolfe(C, n_classes, fit_intercept, layout):
    X, codes = blobs(n_classes)
    design = np.column_stack([X, np.full(300, 0.3)]) if fit_intercept else X
    K = 1 if n_classes == 2 else n_classes
    for clip in (0.2, 5.0):
        solver = FrankWolfe(max_iter=60, radius=8.0, clip=clip, rows="clip")
        got = without_noise(solver, layout(X), codes, C=C, fit_intercept=fit_intercept)
        np.testing.assert_allclose(got, reference(design, codes, K, 60, 8.0, 1 / C, clip), atol=1e-9)


@pytest.mark.parametrize("epsilon", [inf, 1e9])
@pytest.mark.parametrize("n_classes", [2, 3])
def test_it_ends_at_the_minimum_within_the_ball(n_classes, epsilon):
    """The duality gap <w - v, gradient> bounds the distance from the minimum; it falls as 1 / T."""
    X, codes = blobs(n_classes)
    solver = FrankWolfe(max_iter=3000, radius=3.0, clip=5.0, rows="clip")
    w = without_noise(solver, X, codes, epsilon)
    K = w.shape[1]
    assert np.abs(w).sum() == pytest.approx(3.0, rel=1e-3)  # the ball holds the weights back
    loss = Logistic() if K == 1 else Logistic().multiclass()
    problem = Problem(X, loss.encode(codes, n_classes), loss, data_norm=1.0, intercept=0.3, n_outputs=K)
    gradient = problem.gradient_sum(w if K > 1 else w[:, 0]).reshape(w.shape) + w
    gap = (w * gradient).sum() + 3.0 * np.abs(gradient).max()
    assert 0 <= gap < 0.2  # of a loss of 200 at the start


def test_the_penalty_has_an_effect_at_any_strength():
    X, codes = blobs(2)
    norms = [np.linalg.norm(without_noise(FrankWolfe(max_iter=100), X, codes, C=C)) for C in (1e-7, 1e-3, 0.1, 1.0)]
    assert all(2 * small < large for small, large in pairwise(norms))
    assert norms[0] < 1e-4


@pytest.mark.parametrize("cls", [DPLogisticRegression, DPLinearSVC, DPHuberSVC])
@pytest.mark.parametrize("n_classes", [2, 3])
def test_it_learns_and_survives_small_data(cls, n_classes):
    rng = np.random.default_rng(3)
    codes = rng.integers(0, n_classes, 500)
    X = 2 * rng.normal(size=(n_classes, 4))[codes] + 0.3 * rng.normal(size=(500, 4))
    settings = {"solver": "frank_wolfe", "classes": range(n_classes), "data_norm": 4.0, "random_state": 1}
    for delta in (1e-5, 0):
        for given in (X, X.astype(np.float32), sp.csr_array(X), sp.csr_array(X.astype(np.float32))):
            assert cls(20.0, delta, **settings).fit(given, codes).score(given, codes) > 0.85
    for few in (X[:2], np.zeros((2, 4)), np.ones((2, 4)), sp.csr_array((2, 4))):
        model = cls(0.5, 1e-5, **settings).fit(few, [0, 0])  # one class in y
        assert np.isfinite(model.coef_).all()
        assert model.history_ is None


def test_it_finds_a_few_columns_among_many():
    rng = np.random.default_rng(4)
    n, d, each = 4000, 50_000, 10
    others = sp.csr_array((np.ones(n * each), rng.integers(10, d, n * each), np.arange(0, n * each + 1, each)), (n, d))
    others.sum_duplicates()
    head = rng.random((n, 10)) < 0.3
    X = sp.csr_array(others + sp.hstack([sp.csr_array(head * 1.0), sp.csr_array((n, d - 10))]))
    y = (head[:, :5].sum(axis=1) > head[:, 5:].sum(axis=1)).astype(int)
    model = DPLogisticRegression(3.0, 1e-6, solver="frank_wolfe", classes=[0, 1], random_state=0).fit(X, y)
    found = np.flatnonzero(model.coef_[0])
    assert len(found) <= model.n_iter_
    assert set(range(10)) <= set(found)
    assert model.score(X, y) > 0.85
