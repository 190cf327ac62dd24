"""PrivGene: what one record moves, draws, budgets and limits."""

import warnings
from math import inf, sqrt

import numpy as np
import pytest
import scipy.sparse as sp
from conftest import RecordingNoise
from privgene_cases import CASES, make_problem, mixed_records
from scipy.optimize import minimize
from scipy.special import log_softmax
from solver_cases import facts, problem_for

from dpskl import DPHuberSVC, DPLinearSVC, DPLogisticRegression
from dpskl.accounting import BoundedRangeCost, PureCost, UnplannedQuestionError, compose
from dpskl.curator import Curator
from dpskl.mechanisms import coordinate_selection
from dpskl.mechanisms.coordinate_selection import CoordinateSelection
from dpskl.mechanisms.population_selection import PopulationSelection
from dpskl.records.loss_changes import coordinate_changes, population_changes
from dpskl.records.losses import Hinge, HuberHinge, Logistic, Softmax
from dpskl.records.problem import Problem
from dpskl.solvers import PrivGene

pytestmark = pytest.mark.filterwarnings("ignore::dpskl.SeededNoiseWarning")


# -- what one record can move -----------------------------------------------------------------------------


@pytest.mark.parametrize("clip", [0.3, 1.0])
@pytest.mark.parametrize("case", CASES)
def test_differences_of_scores_move_by_at_most_the_sensitivity(case, clip):
    """Brute force over neighbours; a step of 3, so the sensitivity is 3 times that for a step of 1."""
    rng, step, n_classes = np.random.default_rng(8), 3.0, CASES[case][1]
    worst = {"add_remove": 0.0, "replace_one": 0.0}
    for trial in range(75):
        n = int(rng.integers(2, 6))
        X, codes = mixed_records(rng, n + 1, n_classes)
        X *= 10.0 ** rng.uniform(-1, 2, size=(n + 1, 1))
        weights = rng.normal(size=make_problem(X, codes, case).zeros().shape) * 10.0 ** rng.uniform(-2, 1)
        if trial % 3 == 0:  # one column holds all of two rows, and both records are utterly wrong in opposite ways
            X[0], X[-1] = np.eye(8)[3], -np.eye(8)[3]
            codes[0] = codes[-1] = 1
            weights[:] = 0
            weights[-1] = -60.0 if n_classes == 2 else [60.0, -60.0, 0.0]
        rest, first, last = np.arange(1, n), np.arange(n), np.r_[1:n, n]
        scores = [
            np.append(coordinate_changes(make_problem(X[rows], codes[rows], case), weights, step, step * clip), 0)
            for rows in (rest, first, last)
        ]
        worst["add_remove"] = max(worst["add_remove"], np.ptp(scores[1] - scores[0]))
        worst["replace_one"] = max(worst["replace_one"], np.ptp(scores[2] - scores[1]))
    for neighbours, distance in worst.items():
        stated = step * CoordinateSelection(clip, 1.0, "gumbel", neighbours, 6, 8).sensitivity
        assert distance <= stated
        assert distance >= 0.97 * stated


@pytest.mark.parametrize("case", ["logistic", "one-vs-rest"])
def test_differences_within_a_population_move_by_at_most_the_sensitivity(case):
    rng, n_classes = np.random.default_rng(9), CASES[case][1]
    worst, clip = {"add_remove": 0.0, "replace_one": 0.0}, 0.5
    for _ in range(60):
        n = int(rng.integers(2, 6))
        X, codes = mixed_records(rng, n + 1, n_classes)
        X[0], X[-1], codes[0], codes[-1] = np.eye(8)[3], -np.eye(8)[3], 1, 1
        shape = (9, 1 if n_classes == 2 else n_classes)
        centre = np.zeros(shape)
        centre[-1] = -60.0 if n_classes == 2 else 0.0
        offset = np.zeros(shape)
        offset[3, -1] = rng.uniform(0.5, 3)
        population = np.stack([centre + offset, centre - offset, centre + offset / 2, centre - offset / 2])
        radius = np.linalg.norm(offset)
        rest, first, last = np.arange(1, n), np.arange(n), np.r_[1:n, n]
        scores = [
            population_changes(make_problem(X[rows], codes[rows], case), population, centre, radius * clip) / radius
            for rows in (rest, first, last)
        ]
        worst["add_remove"] = max(worst["add_remove"], np.ptp(scores[1] - scores[0]))
        worst["replace_one"] = max(worst["replace_one"], np.ptp(scores[2] - scores[1]))
    for neighbours, distance in worst.items():
        stated = PopulationSelection(clip, 1, 1.0, "gumbel", neighbours, 6, 8).sensitivity
        assert 0.97 * stated <= distance <= stated


@pytest.mark.parametrize("neighbours", ["add_remove", "replace_one"])
def test_exact_probabilities_of_neighbours_differ_by_at_most_epsilon(neighbours, monkeypatch):
    """The law of a whole release, from the scores and the spread that it hands to the selection."""
    epsilon, laws, worst = 0.8, [], 0.0

    def law_of(scores, spread, epsilon, noise, law):
        laws.append(log_softmax(-epsilon / spread * scores))
        return 0

    monkeypatch.setattr(coordinate_selection, "select_smallest", law_of)
    question = CoordinateSelection(0.5, epsilon, "gumbel", neighbours, 3, 8)
    rng = np.random.default_rng(11)
    for _ in range(100):
        X, codes = mixed_records(rng, 3, 2)
        X[0], X[-1], codes[0], codes[-1] = np.eye(8)[3], -np.eye(8)[3], 1, 1
        weights = np.append(np.zeros(8), rng.uniform(-60, 0))
        both = ([0, 1], [1]) if neighbours == "add_remove" else ([0, 1], [2, 1])
        for rows in both:
            question.release(make_problem(X[rows], codes[rows], "logistic"), weights, 1.5, 30.0, RecordingNoise())
        losses = laws[-1] - laws[-2]
        worst = max(worst, np.abs(losses).max(), np.ptp(losses))
    assert 0.99 * epsilon < worst <= epsilon * (1 + 1e-9)


# -- draws and budgets --------------------------------------------------------------------------------------


class GumbelRecorder(RecordingNoise):
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
    solver = PrivGene(max_iter=9, step_size=2.0, final_step_size=0.5, clip=0.25)
    plan = solver.plan(public, 1.0, delta)
    noise = GumbelRecorder()
    problem = problem_for(public, solver)
    weights = solver.run(Curator(problem, plan.open_budget(), noise), plan).weights
    assert weights.shape == ((5,) if n_classes == 2 else (5, 3))
    laws, sizes, scales = zip(*noise.draws, strict=True)
    assert set(sizes) == {2 * weights.size + 1}
    assert len(laws) == 9
    if delta == 0:
        assert set(laws) == {"exponential"}
        assert plan.cost.pure_epsilon == pytest.approx(1.0, rel=1e-9)
        assert plan.cost.pure_epsilon <= 1.0
    else:
        steps = 2.0 * 0.25 ** (np.arange(9) / 8)
        spread = steps * 2 * 0.25 * (1 if neighbours == "add_remove" else 2)
        each = spread / np.array(scales)
        assert set(laws) == {"gumbel"}
        np.testing.assert_allclose(each, each[0], rtol=1e-9)
        reached = compose([(BoundedRangeCost(each[0]), 9)]).epsilon(delta)
        assert reached == pytest.approx(1.0, rel=2e-3)
        assert plan.cost.epsilon(delta) <= 1.0


def test_permute_and_flip_takes_exponential_noise_of_the_stated_scale():
    """The recorder sees standard variables; here they decide between two scores whose distance is known."""

    class First(RecordingNoise):
        def standard_exponential(self, size):
            return np.eye(size)[1]

    public = facts(n_samples=2, n_features=1, intercept=0.0)
    problem = Problem(np.ones((2, 1)), np.array([-1.0, -1.0]), Hinge(), data_norm=1.0)
    # moving up costs 2 on two records of hinge loss, moving down saves 2: the noise, 2 / epsilon, must exceed 4
    for epsilon, wins in ((0.499, True), (0.501, False)):
        question = CoordinateSelection(1.0, epsilon, "exponential", public.neighbours, 2, 1)
        moved = question.release(problem, np.array([1.0]), 1.0, 0.0, First())
        assert question.cost == PureCost(epsilon)
        assert moved[0] == (2.0 if wins else 0.0)


def test_a_large_penalty_is_allowed_for_where_it_rounds():
    public, noise = facts(), GumbelRecorder()
    question = CoordinateSelection(0.25, 1.0, "gumbel", "add_remove", 500, 4)
    question.release(problem_for(public, PrivGene()), np.zeros(5), 2.0, 1e15, noise)
    ((_, _, scale),) = noise.draws
    assert scale == pytest.approx(2 * 0.5 + 2e15 * 2.0**-50)  # 1e15 * 2^2 / 2 is the penalty of a move


@pytest.mark.parametrize("delta", [0, 1e-6])
@pytest.mark.parametrize("n_classes", [2, 3])
def test_a_population_charges_every_parent(n_classes, delta):
    public = facts(n_classes=n_classes)
    solver = PrivGene(max_iter=4, population=12, parents=3)
    plan = solver.plan(public, 1.0, delta)
    assert [count for _, count in plan.questions] == [3, 1]
    ((choose, _), (last, _)) = plan.questions
    kind = PureCost if delta == 0 else BoundedRangeCost
    assert choose.cost == compose([(kind(choose.epsilon), 3)])
    assert plan.cost == compose([(kind(last.epsilon), 10)])
    assert 0.998 <= plan.cost.epsilon(delta) <= 1.0
    noise = GumbelRecorder()
    curator = Curator(problem_for(public, solver), plan.open_budget(), noise)
    assert solver.run(curator, plan).weights.shape == ((5,) if n_classes == 2 else (5, 3))
    assert [size for _, size, _ in noise.draws] == ([12] * 4 if delta else [12] * 10)
    with pytest.raises(UnplannedQuestionError):
        curator.ask(last, np.zeros((12, 5, public.n_outputs)), 1.0)


@pytest.mark.parametrize("solver", [PrivGene(), PrivGene(max_iter=5), PrivGene(population=20, parents=4)], ids=repr)
@pytest.mark.parametrize("epsilon", [1e-4, 0.1, 3.0, 1e4, 1e8])
@pytest.mark.parametrize("delta", [0, 1e-9, 1e-3])
def test_plans_stay_within_their_budget(solver, epsilon, delta):
    for changes in ({}, {"neighbours": "replace_one", "n_classes": 4}, {"n_samples": 10**6, "n_features": 300}):
        plan = solver.plan(facts(**changes), epsilon, delta)
        assert plan == solver.plan(facts(**changes), epsilon, delta)
        assert plan.cost.epsilon(delta) <= epsilon
        assert plan.cost.epsilon(delta) >= 0.998 * epsilon


def test_the_default_rules_use_public_facts():
    steps = PrivGene().plan(facts(data_norm=4.0), 1.0, 1e-6).settings.steps
    assert (steps[0], steps[-1]) == (0.5, pytest.approx(0.125))
    rounds = [PrivGene().plan(facts(n_samples=n), 1.0, 1e-6).n_questions for n in (500, 4000, 10**6)]
    assert rounds[1] == pytest.approx(4 * rounds[0], rel=0.1)  # the two-thirds power of n
    assert rounds[2] == 200
    assert PrivGene().plan(facts(), 1.0, 1e-6).questions[0][0].clip == pytest.approx(1 / sqrt(4))
    assert PrivGene().plan(facts(n_features=50), 1.0, 1e-6).questions[0][0].clip == pytest.approx(1 / 5)
    assert PrivGene(clip=9.0).plan(facts(), 1.0, 1e-6).questions[0][0].clip == 1.0
    rich = PrivGene().plan(facts(n_features=50, n_samples=10**5), 1.0, 1e-6)
    assert rich.n_questions == 200
    assert 0.2 < rich.questions[0][0].clip < 1.0
    for delta in (0, 1e-6):
        ((question, rounds),) = PrivGene().plan(facts(n_features=50), inf, delta).questions
        assert (question.clip, rounds) == (1.0, 200)


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"max_iter": 0}, "max_iter"),
        ({"max_iter": 2.5}, "max_iter"),
        ({"max_iter": True}, "max_iter"),
        ({"step_size": -1.0}, "step_size"),
        ({"step_size": 1e4}, "must not exceed 500"),
        ({"final_step_size": inf}, "final_step_size"),
        ({"clip": "x"}, "clip"),
        ({"population": 1}, "population"),
        ({"population": 10, "parents": 11}, "parents=11 exceeds population=10"),
        ({"population": 10, "parents": 0}, "parents=0"),
        ({"population": 10, "parents": 2, "max_iter": 1}, "at least 2"),
    ],
)
def test_bad_parameters_are_named_before_anything_is_spent(parameters, message):
    with pytest.raises(ValueError, match=message):
        PrivGene(**parameters).plan(facts(), 1.0, 1e-6)


# -- limits -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("epsilon", [inf, 1e8])
@pytest.mark.parametrize(
    ("cls", "loss", "n_classes"),
    [
        (DPLogisticRegression, Logistic(), 2),
        (DPHuberSVC, HuberHinge(0.5), 2),
        (DPLogisticRegression, Softmax(), 3),
        (DPHuberSVC, HuberHinge(0.5), 3),
    ],
)
def test_without_noise_it_finds_the_minimiser(cls, loss, n_classes, epsilon):
    rng = np.random.default_rng(2)
    codes = rng.integers(0, n_classes, 300)
    X = rng.normal(size=(n_classes, 3))[codes] + rng.normal(size=(300, 3))
    X /= np.linalg.norm(X, axis=1).max()
    solver = PrivGene(max_iter=600, step_size=1.0, final_step_size=3e-3, clip=10.0)
    model = cls(epsilon, 1e-6, solver=solver, classes=range(n_classes), random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.fit(X, codes)
    n_outputs = 1 if n_classes == 2 else n_classes
    settings = {"data_norm": 1.0, "intercept": 0.3, "n_outputs": n_outputs, "rows": solver.rows}
    problem = Problem(X, loss.encode(codes, n_classes), loss, **settings)
    shape = problem.zeros().shape

    def objective(w):
        w = w.reshape(shape)
        return problem.losses(problem.scores(w)).sum() + (w * w).sum() / 2

    def gradient(w):
        return (problem.gradient_sum(w.reshape(shape)) + w.reshape(shape)).ravel()

    best = minimize(objective, np.zeros(np.prod(shape)), jac=gradient, options={"gtol": 1e-6}).x.reshape(shape)
    got = np.column_stack([model.coef_, model.intercept_ / 0.3]).T.reshape(shape)
    assert objective(got) - objective(best) < 1e-3
    np.testing.assert_allclose(got, best, atol=0.05)


def test_every_round_without_noise_takes_the_best_move():
    public = facts(loss=Hinge())
    solver = PrivGene(max_iter=12, clip=10.0)
    problem = problem_for(public, solver)
    plan = solver.plan(public, inf, 1e-6)
    got = solver.run(Curator(problem, plan.open_budget(), RecordingNoise()), plan).weights
    w = problem.zeros()
    for step in plan.settings.steps:
        moves = np.vstack([np.zeros(5), step * np.eye(5), -step * np.eye(5)])
        totals = [problem.losses(problem.scores(w + m)).sum() + ((w + m) ** 2).sum() / 2 for m in moves]
        w = w + moves[int(np.argmin(totals))]
    np.testing.assert_allclose(got, w)


@pytest.mark.parametrize("cls", [DPLogisticRegression, DPLinearSVC, DPHuberSVC])
@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("solver", [PrivGene(), PrivGene(population=60, parents=6, max_iter=40)], ids=repr)
def test_it_learns_and_survives_small_data(cls, n_classes, solver):
    rng = np.random.default_rng(3)
    codes = rng.integers(0, n_classes, 500)
    X = 2 * rng.normal(size=(n_classes, 4))[codes] + 0.3 * rng.normal(size=(500, 4))
    settings = {"solver": solver, "classes": range(n_classes), "data_norm": 4.0, "random_state": 1}
    for delta in (1e-5, 0):
        assert cls(20.0, delta, **settings).fit(X, codes).score(X, codes) > 0.85
    for few in (X[:2], np.zeros((2, 4)), np.ones((2, 4)), sp.csr_array((2, 4))):
        model = cls(0.5, 1e-5, **settings).fit(few, [0, 0])  # one class in y
        assert np.isfinite(model.coef_).all()
        assert model.history_ is None


@pytest.mark.parametrize("neighbours", ["add_remove", "replace_one"])
def test_a_short_row_moved_far_does_not_spoil_a_sum(neighbours):
    """Its entry in a 0/1 column is 0; its move there overflows an exponential that 0 must not meet."""
    X = np.zeros((40, 2))
    X[:, 0] = 0.5
    X[:20] = [1.0, 0.0]
    codes = np.arange(40) % 3
    for last in ([0.0, 0.0], [0.001, 0.0], [1.0, 1.0]):
        X[-1] = last
        problem = Problem(X, codes, Softmax(), data_norm=0.5, n_outputs=3)
        weights = np.array([[3000.0, 0.0, 0.0], [0.0, 0.0, 0.0]])
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert np.isfinite(coordinate_changes(problem, weights, 1000.0, 0.001)).all()


@pytest.mark.parametrize("neighbours", ["add_remove", "replace_one"])
def test_noise_within_a_population_is_that_of_its_radius(neighbours):
    """Each of two weights moves by 3 in opposite ways: the radius is 3, and changes are counted up to 3 clip."""
    problem = Problem(np.ones((5, 1)), np.ones(5), Logistic(), data_norm=1.0)
    noise = RecordingNoise()
    question = PopulationSelection(0.25, 1, 0.5, "gumbel", neighbours, 5, 1)
    question.release(problem, np.array([[[3.0]], [[-3.0]]]), 0.0, noise)
    changed = 1 if neighbours == "add_remove" else 2
    ((kind, scale),) = noise.draws
    assert kind == "gumbel"
    assert scale == pytest.approx(changed * 2 * 3 * 0.25 / 0.5, rel=1e-9)
