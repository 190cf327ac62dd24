"""Solvers that ask the data for their steps: what they draw, what they pay, what they show, what their rules do."""

from math import exp, inf, sqrt

import numpy as np
import pytest
import scipy.sparse as sp
from conftest import RecordingNoise
from scipy.optimize import minimize
from scipy.stats import chi2

from dpskl import (
    BudgetExceededError,
    DPHuberSVC,
    DPLinearSVC,
    DPLogisticRegression,
    NoPrivacyWarning,
    PrivacyAccountant,
)
from dpskl.accounting import (
    CurveFilter,
    GaussianCost,
    SampledGaussianCost,
    SampledPureCost,
    TokenPool,
    gaussian_mu,
    rdp_order,
)
from dpskl.curator import Curator
from dpskl.mechanisms.above_threshold import BacktrackingSearch
from dpskl.mechanisms.gradient import GaussianGradient
from dpskl.mechanisms.noise import SeededNoise
from dpskl.mechanisms.poisson_sample import PoissonSample
from dpskl.mechanisms.step_selection import StepSelection
from dpskl.records.losses import Hinge, HuberHinge, Logistic
from dpskl.records.path import Path
from dpskl.records.problem import Problem
from dpskl.solvers import PublicFacts
from dpskl.solvers._descent import (
    FullBatchMeter,
    Logbook,
    Measurement,
    OutOfTokens,
    SampledMeter,
    StepRange,
    angle,
    default_objective_clip,
)
from dpskl.solvers.adaptive import AdaptiveGD
from dpskl.solvers.line_search import BacktrackingGD, BacktrackingSGD

pytestmark = [
    pytest.mark.filterwarnings("ignore::dpskl.SeededNoiseWarning"),
    pytest.mark.filterwarnings("ignore::dpskl.PrivacyLeakWarning"),
    pytest.mark.filterwarnings("ignore::dpskl.NoPrivacyWarning"),
    pytest.mark.filterwarnings("ignore::dpskl.WeakPrivacyWarning"),
]

INTERCEPT = 0.3
ROW = sqrt(1 + INTERCEPT**2)


def facts(**changes):
    settings = {
        "n_samples": 400,
        "n_features": 3,
        "n_classes": 2,
        "data_norm": 1.0,
        "intercept": INTERCEPT,
        "loss": Logistic(),
        "neighbours": "add_remove",
        "C": 1.0,
    }
    return PublicFacts(**{**settings, **changes})


def records(public, seed=0):
    """Rows and labels that a linear classifier can learn."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(public.n_samples, public.n_features))
    normals = rng.normal(size=(public.n_features, public.n_classes))
    return X, (X @ normals + 0.3 * rng.normal(size=(public.n_samples, public.n_classes))).argmax(axis=1)


def problem_for(public, solver, seed=0):
    X, codes = records(public, seed)
    loss = solver.problem_loss(public)
    targets = loss.encode(codes, public.n_classes)
    return Problem(X, targets, loss, data_norm=public.data_norm, intercept=public.intercept, n_outputs=public.n_outputs)


class Watching(Curator):
    """A curator that keeps, for every question, the mechanism, the arguments, the answer and the draws."""

    def __init__(self, problem, budget, noise):
        super().__init__(problem, budget, noise)
        self.noise, self.asked = noise, []

    def ask(self, mechanism, *arguments):
        start = len(getattr(self.noise, "draws", ()))
        answer = super().ask(mechanism, *arguments)
        self.asked.append((mechanism, arguments, answer, getattr(self.noise, "draws", [])[start:]))
        return answer


def run(solver, public, epsilon=1.0, delta=1e-6, noise=None, seed=0):
    plan = solver.plan(public, epsilon, delta)
    problem = problem_for(public, solver, seed)
    data = Path(problem) if plan.along_path else problem
    curator = Watching(data, plan.open_budget(), RecordingNoise() if noise is None else noise)
    return plan, curator, solver.run(curator, plan)


class Drawing(SeededNoise):
    """Seeded noise that keeps the law and the scale of everything that was drawn."""

    def __init__(self, seed):
        super().__init__(seed)
        self.draws = []

    def normal(self, size, scale):
        self.draws.append(("normal", scale))
        return super().normal(size, scale)

    def laplace(self, size, scale):
        self.draws.append(("laplace", scale))
        return super().laplace(size, scale)

    def gumbel(self, size, scale):
        self.draws.append(("gumbel", scale))
        return super().gumbel(size, scale)


def mechanism_range(clip, slope, direction, longest):
    """The range by hand: the clip, or how far a loss can move along the ray."""
    return min(clip, slope * ROW * longest * np.linalg.norm(direction))


# -- the ledger of draws -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("neighbours", ["add_remove", "replace_one"])
@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("noise", ["gaussian", "laplace", "agd"])
def test_draws_of_full_batch_solvers_are_what_the_filter_was_charged(noise, n_classes, neighbours, monkeypatch):
    """Every scale against sensitivities made by hand; divergences of the draws add up to no more than the budget."""
    taken, take = [], CurveFilter.take

    def watched(self, cost):
        take(self, cost)
        taken.append(cost)

    monkeypatch.setattr(CurveFilter, "take", watched)
    # steps so long, or demands so high, that none passes at first
    solver = (
        AdaptiveGD(n_updates=6, n_candidates=3, max_step=40.0)
        if noise == "agd"
        else (BacktrackingGD(n_updates=6, noise=noise, alpha=0.98, max_it=3, initial_step=300.0))
    )
    public = facts(n_classes=n_classes, neighbours=neighbours)
    epsilon, delta = 1.0, 1e-6
    source = Drawing(4)  # real noise, so that searches fail and levels are raised
    plan, curator, outcome = run(solver, public, epsilon, delta, source)
    changed = 1 if neighbours == "add_remove" else 2
    slope = 1.0 if n_classes == 2 else sqrt(2)
    clip = 3 * np.log(n_classes)  # of losses, three times that at zero
    n_outputs = 1 if n_classes == 2 else n_classes
    share = 1.0  # of the largest gradient that the default clip leaves
    if noise != "agd":
        share = min(1, max(1 / 3, gaussian_mu(epsilon, delta) * 400 / (changed * 4 * n_outputs) / 40))
    order = rdp_order(epsilon, delta)
    spent, search_cost = 0.0, plan.questions[1][0].cost.rdp(order.alpha)
    levels = set()
    assert len(curator.asked) == len(taken) > 6
    for (mechanism, arguments, _, drawn), cost in zip(curator.asked, taken, strict=True):
        if isinstance(mechanism, GaussianGradient):
            ((law, scale),) = drawn
            assert law == "normal"
            mu = changed * slope * ROW * share / scale
            assert cost.mu == pytest.approx(mu, rel=1e-9)
            spent += order.alpha * mu**2 / 2
            levels.add(round(mu, 12))
        elif isinstance(mechanism, BacktrackingSearch):
            unit = changed * mechanism_range(clip, slope, arguments[1], arguments[2][0])
            (law, threshold), (other, query) = drawn
            assert law == other == ("normal" if noise == "gaussian" else "laplace")
            ratios = threshold / unit / cost.threshold_scale, query / unit / cost.query_scale
            assert ratios == pytest.approx((1, 1), rel=0.02)
            assert min(ratios) >= 1
            assert (cost.count, cost.law) == (3, noise)
            spent += search_cost
        else:
            assert isinstance(mechanism, StepSelection)
            spread = changed * mechanism_range(clip, slope, arguments[1], max(arguments[2]))
            ((law, scale),) = drawn
            assert law == "gumbel"
            assert scale * cost.epsilon(0) / spread == pytest.approx(1, rel=0.02)
            assert scale * cost.epsilon(0) >= spread
            spent += search_cost
    assert 0.5 * order.budget < spent <= order.budget
    assert spent == pytest.approx(sum(cost.rdp(order.alpha) for cost in taken), rel=1e-6)
    assert len(levels) > 1  # levels were raised, and paid
    assert plan.budget.values[plan.budget.orders.index(order.alpha)] == order.budget
    assert plan.cost == plan.budget
    assert outcome.weights.shape == ((4,) if n_classes == 2 else (4, 3))


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 8.0])
@pytest.mark.parametrize("solver", [BacktrackingGD(), BacktrackingGD(noise="laplace"), AdaptiveGD()], ids=repr)
def test_the_charge_is_the_whole_budget_and_no_more(solver, epsilon):
    plan = solver.plan(facts(), epsilon, 1e-6)
    assert 0.99 * epsilon <= plan.cost.epsilon(1e-6) <= epsilon * (1 + 1e-9)
    # the questions as planned use the budget, at the order that decides
    order = rdp_order(epsilon, 1e-6)
    planned = sum(count * question.cost.rdp(order.alpha) for question, count in plan.questions)
    # Laplace noise is calibrated by its pure guarantee, and its Renyi curve is lower: what is over buys more updates
    assert planned >= (0.9 if "laplace" in repr(solver) else 0.99) * order.budget
    assert planned <= order.budget * (1 + 1e-9)


@pytest.mark.parametrize("epsilon", [0.5, 4.0])
@pytest.mark.parametrize("solver", [BacktrackingSGD(n_updates=20), BacktrackingSGD(n_updates=8, q=1)], ids=repr)
def test_the_pool_of_sampled_questions_costs_what_was_asked_for(solver, epsilon):
    plan = solver.plan(facts(), epsilon, 1e-6)
    assert plan.budget is None
    assert 0.98 * epsilon <= plan.cost.epsilon(1e-6) <= epsilon * (1 + 1e-6)


@pytest.mark.parametrize("rule", ["never", "always", "adaptive"])
@pytest.mark.parametrize("n_classes", [2, 3])
def test_draws_of_sampled_questions_are_those_of_the_pool(n_classes, rule, monkeypatch):
    """A token, a fresh sample and the noise of the pool for every question, and never more questions than tokens."""
    samples, batches, draw, make = [], [], SeededNoise.poisson_sample, Problem.batch

    class Source(Drawing):
        def poisson_sample(self, n, rate):
            rows = draw(self, n, rate)
            samples.append((n, rate, rows))
            return rows

    def batch(self, rows):
        batches.append((rows, make(self, rows)))
        return batches[-1][1]

    monkeypatch.setattr(Problem, "batch", batch)
    # a demand that is hard to meet, so that searches fail
    solver = BacktrackingSGD(n_updates=8, q=0.3, budget_rule=rule, alpha=0.9)
    public = facts(n_classes=n_classes)
    plan, curator, outcome = run(solver, public, 2.0, noise=Source(1))
    (gradient, n_parts), (search, n_searches) = plan.questions
    assert (n_parts, n_searches) == (27, 9)
    assert (gradient.rate, search.rate) == (0.3 / 3, 0.3)
    slope, clip = (1.0, 3 * np.log(2)) if n_classes == 2 else (sqrt(2), 3 * np.log(3))
    share = min(1, max(1 / 3, gaussian_mu(2.0, 1e-6) * 400 / (4 if n_classes == 2 else 12) / 40))
    counts = {"parts": 0, "searches": 0}
    multiplier = gradient.cost.noise_multiplier
    pure = search.cost.pure_epsilon if hasattr(search.cost, "pure_epsilon") else search.cost.epsilon(0)
    for mechanism, arguments, _, drawn in curator.asked:
        assert isinstance(mechanism, PoissonSample)
        if isinstance(mechanism.mechanism, GaussianGradient):
            counts["parts"] += 1
            assert mechanism.rate == 0.3 / 3
            ((law, scale),) = drawn
            assert law == "normal"
            assert scale == pytest.approx(multiplier * slope * ROW * share, rel=1e-9)
            assert mechanism.cost == SampledGaussianCost(0.3 / 3, multiplier)
        else:
            counts["searches"] += 1
            assert mechanism.rate == 0.3
            unit = mechanism_range(clip, slope, arguments[1], arguments[2][0])
            scales = [scale for law, scale in drawn if law == "laplace"]
            assert len(scales) == len(drawn) == 2
            inner = unit / scales[0] + unit / scales[1]
            assert np.log1p(0.3 * (exp(inner) - 1)) == pytest.approx(pure, rel=0.02)
            assert np.log1p(0.3 * (exp(inner) - 1)) <= pure
            assert isinstance(mechanism.cost, SampledPureCost)
    assert counts["parts"] <= n_parts
    assert counts["searches"] <= n_searches
    assert max(counts["parts"] / n_parts, counts["searches"] / n_searches) > 0.85
    # a sample of its own for every question, of all records, and its own copy of the rows
    assert len(samples) == len(batches) == len(curator.asked)
    assert [rate for _, rate, _ in samples] == [question.rate for question, *_ in curator.asked]
    assert {n for n, _, _ in samples} == {400}
    assert len({tuple(rows) for _, _, rows in samples}) == len(samples)
    assert len({id(part) for _, part in batches}) == len(batches)
    for (_, _, drawn), (used, _) in zip(samples, batches, strict=True):
        np.testing.assert_array_equal(drawn, used)
    assert outcome.n_iter <= 9


def test_sampled_searches_demand_their_share():
    """A sample of rate q brings q times the decrease; with the demand of all records hardly a step would pass."""
    solver = BacktrackingSGD(n_updates=8, q=0.2, clip_norm=100.0, objective_clip=100.0, momentum=0.0)
    _, curator, _ = run(solver, facts(), inf)
    gradients = [(arguments, answer) for question, arguments, answer, _ in curator.asked if question.rate < 0.2]
    searches = [arguments for question, arguments, _, _ in curator.asked if question.rate == 0.2]
    parts = np.array([answer for _, answer in gradients[:3]])
    weights, direction, steps, demands = searches[0]
    gradient = parts.mean(axis=0) / (0.2 / 3)  # each sum over its rate, and their mean
    np.testing.assert_allclose(direction, gradient / 400, rtol=1e-12)
    penalty = -(steps**2) * (direction**2).sum() / 2  # what it falls by, from weights of 0: public
    np.testing.assert_allclose(demands, 0.2 * (0.5 * steps * (direction @ gradient) - penalty), rtol=1e-9)
    assert not weights.any()


def test_an_unplanned_search_is_refused_by_the_pool():
    solver = BacktrackingSGD(n_updates=2, q=0.3)
    plan = solver.plan(facts(), 1.0, 1e-6)
    pool = plan.open_budget()
    assert isinstance(pool, TokenPool)
    (gradient, n_parts), (search, n_searches) = plan.questions
    assert (pool.remaining(gradient.cost), pool.remaining(search.cost)) == (n_parts, n_searches)
    meter = SampledMeter(gradient, 3, 2)
    with pytest.raises(OutOfTokens):  # three parts, two tokens: none is spent
        meter.ask(None, None, 3, 1.0)
    assert meter.tokens == 2


# -- without noise -----------------------------------------------------------------------------------------------------


def objective(problem, ridge, weights, cap=inf):
    return np.minimum(problem.losses(problem.scores(weights)), cap).sum() + ridge / 2 * (weights**2).sum()


def test_without_noise_blgd_is_plain_backtracking():
    """The method of a textbook, with its steps, on data where clipping does nothing."""
    alpha, beta, max_it, tau, psi, phi_max = 0.3, 0.7, 15, 3, 0.8, 1.5
    solver = BacktrackingGD(
        alpha=alpha, beta=beta, max_it=max_it, initial_step=40.0, clip_norm=1e3, objective_clip=1e3, tau=tau, psi=psi,
        phi_max=phi_max, momentum=0.0, n_updates=40, iterate="last",
    )  # fmt: skip
    public = facts(C=0.05)
    _, _, outcome = run(solver, public, inf)
    problem = problem_for(public, solver)
    weights, largest, window, steps = np.zeros(4), 40.0, [], []
    while len(steps) < 40:
        total = problem.gradient_sum(weights) + weights / 0.05
        direction = total / 400
        for power in range(max_it):
            step = largest * beta**power
            decrease = objective(problem, 20, weights) - objective(problem, 20, weights - step * direction)
            if decrease >= alpha * step * direction @ total:
                break
        else:
            largest *= psi
            continue
        weights = weights - step * direction
        steps.append(step)
        window.append(step)
        if len(window) == tau:
            largest, window = min(phi_max * max(window), 40.0), []
        if np.linalg.norm(direction) < 1e-4:
            break  # from here on float32 decides
    assert len(steps) >= 6
    assert outcome.history["step_size"][: len(steps)] == pytest.approx(steps, rel=1e-12)
    _, _, short = run(solver.set_params(n_updates=len(steps)), public, inf)
    np.testing.assert_allclose(short.weights, weights, rtol=0, atol=1e-6)


@pytest.mark.parametrize("momentum", [0.0, 0.9])
@pytest.mark.parametrize("n_classes", [2, 3])
def test_without_noise_armijo_holds_at_every_step_and_at_no_longer_one(n_classes, momentum):
    solver = BacktrackingGD(n_updates=25, momentum=momentum, alpha=0.4)
    public = facts(n_classes=n_classes)
    plan, curator, outcome = run(solver, public, inf)
    problem = problem_for(public, solver)
    search, slack = plan.questions[1][0], 400 * 4e-6  # of float32
    clip = search.objective_clip
    gradient, found, passed = None, 0, 0
    for mechanism, arguments, answer, _ in curator.asked:
        if isinstance(mechanism, GaussianGradient):
            gradient = answer + plan.ridge * arguments[0]
            continue
        weights, direction, steps, _ = arguments
        wanted = 0.4 * steps * (direction * gradient).sum()
        before = objective(problem, plan.ridge, weights, clip)
        brought = [before - objective(problem, plan.ridge, weights - step * direction, clip) for step in steps]
        good = brought - wanted
        if answer is not None:
            assert good[answer] >= -slack
            assert outcome.history["step_size"][found] == steps[answer]
            found += 1
        assert (good[:answer] < slack).all()
        passed += answer is not None
    assert passed == outcome.n_iter > 3


def test_agd_without_noise_takes_the_best_of_its_grid():
    solver = AdaptiveGD(n_updates=12, n_candidates=15, max_step=2.0, iterate="last")
    public = facts()
    plan, curator, outcome = run(solver, public, inf)
    problem = problem_for(public, solver)
    clip, moved = plan.questions[1][0].objective_clip, 0
    for mechanism, arguments, answer, _ in curator.asked:
        if isinstance(mechanism, StepSelection):
            weights, direction, steps, _ = arguments
            assert np.linalg.norm(direction) == pytest.approx(1)
            np.testing.assert_allclose(steps, np.linspace(0, steps[-1], 16), rtol=1e-12)
            totals = [objective(problem, plan.ridge, weights - step * direction, clip) for step in steps]
            assert totals[answer] <= min(totals) + 400 * 2e-6
            if answer > 0:
                assert outcome.history["step_size"][moved] == steps[answer]
                last = weights - steps[answer] * direction
                moved += 1
    assert moved == outcome.n_iter > 3
    np.testing.assert_array_equal(outcome.weights, last)


def test_agd_does_not_stall_at_the_kinks_of_the_hinge():
    """On rare positives among indicators, descent along subgradients stalls 11 % above the least hinge loss."""
    rng = np.random.default_rng(0)
    levels = rng.choice(8, size=(2000, 4), p=np.array([8, 4, 2, 2, 1, 1, 1, 1]) / 20)
    X = np.eye(8)[levels].reshape(2000, 32)
    scores = 1.5 * X @ rng.normal(size=32) - 3
    y = (rng.random(2000) < 1 / (1 + np.exp(-scores))).astype(int)

    def mean_loss(solver):
        model = DPLinearSVC(inf, 1e-6, solver=solver, C=10, classes=[0, 1])
        with pytest.warns(NoPrivacyWarning):
            model.fit(X, y)
        return np.maximum(0, 1 - (2 * y - 1) * model.decision_function(X)).mean()

    assert mean_loss("agd") < 1.05 * mean_loss("output_perturbation")


@pytest.mark.parametrize("epsilon", [1e8, inf])
@pytest.mark.parametrize(
    ("make", "slack"),
    [
        (lambda: BacktrackingGD(n_updates=150, clip_norm=10.0, objective_clip=50.0, iterate="last"), 0.002),
        (lambda: AdaptiveGD(n_updates=80, clip_norm=10.0, objective_clip=50.0, max_step=0.5), 0.02),
        (lambda: BacktrackingSGD(n_updates=60, q=1, clip_norm=10.0, objective_clip=50.0), 0.02),
    ],
    ids=["blgd", "agd", "blsgd"],
)
def test_large_epsilons_lead_to_the_answer_without_noise(make, slack, epsilon):
    public, solver = facts(C=0.1), make()
    problem = problem_for(public, solver)
    best = minimize(lambda w: objective(problem, 10, w), np.zeros(4), tol=1e-10).fun
    start = objective(problem, 10, np.zeros(4))
    _, _, outcome = run(solver, public, epsilon, noise=SeededNoise(0))
    assert objective(problem, 10, outcome.weights) <= best + slack * (start - best)


@pytest.mark.parametrize("solver", [BacktrackingGD(n_updates=30), AdaptiveGD(n_updates=30)], ids=repr)
def test_levels_without_noise_stay_infinite_and_gradients_finite(solver):
    """A second measurement without noise is the first one again; its weights are infinite."""
    _, curator, outcome = run(solver, facts(C=1e-3), inf)
    repeated = sum(isinstance(question, GaussianGradient) for question, *_ in curator.asked)
    assert repeated > outcome.n_iter  # some searches failed
    assert np.isfinite(outcome.weights).all()
    for _, arguments, _, _ in curator.asked:
        assert all(np.isfinite(argument).all() for argument in arguments)


# -- rules -------------------------------------------------------------------------------------------------------------


class Scripted:
    """A curator whose answers are given: gradients in turn, and what searches find."""

    def __init__(self, found, gradients=None, size=4):
        self.found, self.gradients, self.size = list(found), gradients, size
        self.levels, self.clips, self.searches = [], [], []

    def zeros(self):
        return np.zeros(self.size)

    def ask(self, mechanism, *arguments):
        inner = getattr(mechanism, "mechanism", mechanism)
        if isinstance(inner, GaussianGradient):
            self.levels.append(inner.mu**2)
            self.clips.append(inner.clip_norm)
            return np.ones(self.size) if self.gradients is None else next(self.gradients)
        if not self.found:
            raise OutOfTokens
        self.searches.append((getattr(inner, "objective_clip", None), arguments[2]))
        return self.found.pop(0)


@pytest.mark.parametrize("name", ["blgd", "blsgd"])
def test_always_raises_the_level_after_every_failed_search(name):
    solver = BacktrackingGD(xi=0.5) if name == "blgd" else BacktrackingSGD(xi=0.5, budget_rule="always")
    plan = solver.plan(facts(), 1.0, 1e-6)
    curator = Scripted([None, None, 0, 3, None, 1])
    history = solver.run(curator, plan).history
    if name == "blgd":
        first = plan.questions[0][0].mu ** 2
        assert history["gradient_level"] == pytest.approx([2.25 * first, 2.25 * first, 3.375 * first])
        # paid: one at the first level, half of it, half of the sum; later ones start from the sum
        expected = [1, 0.5, 0.75, 2.25, 2.25, 1.125, 3.375]
        assert curator.levels == pytest.approx([first * level for level in expected])
    else:  # parts are whole: 2, then ceil(1), then ceil(1.5)
        assert history["gradient_level"] == [5.0, 5.0, 8.0]
        assert len(curator.levels) == 2 + 1 + 2 + 5 + 5 + 3 + 8
    assert history["measurements"] == [3, 1, 2]
    assert history["searches"] == [3, 1, 2]
    assert {len(values) for values in history.values()} == {3}


def test_never_replaces_the_gradient_at_the_same_level():
    solver = BacktrackingGD(budget_rule="never", momentum=0.0)
    plan = solver.plan(facts(), 1.0, 1e-6)
    gradients = iter(np.eye(4)[[0, 1, 2, 3, 0, 1]] * 400)
    curator = Scripted([None, None, 0, 0], gradients)
    history = solver.run(curator, plan).history
    first = plan.questions[0][0].mu ** 2
    assert history["gradient_level"] == pytest.approx([first] * 2)
    assert curator.levels == pytest.approx([first] * 5)
    assert history["measurements"] == [3, 1]
    # the third one counts alone: not an average
    assert history["gradient_norm"][0] == 400


def test_adaptive_raises_where_the_gradient_has_turned_or_is_the_first():
    solver = BacktrackingGD(budget_rule="adaptive", xi=0.5, angle_max=1.1, momentum=0.0)
    plan = solver.plan(facts(), 1.0, 1e-6)
    turned = np.array([0.0, 1.0, 0.0, 0.0])
    near = np.array([1.0, 0.5, 0.0, 0.0])
    # first update: fails once, raised; second: near the first gradient, kept; third: turned by 63 degrees, raised
    gradients = iter([np.eye(4)[0], np.eye(4)[0], near, turned, turned, turned])
    curator = Scripted([None, 0, None, None, 0, None, 0], gradients)
    history = solver.run(curator, plan).history
    first = plan.questions[0][0].mu ** 2
    assert angle(near, np.eye(4)[0]) < 1.1 < angle(turned, near)
    assert history["gradient_level"] == pytest.approx([1.5 * first, 1.5 * first, 2.25 * first])
    assert history["measurements"] == [2, 1, 2]
    assert history["searches"] == [2, 3, 2]


def test_failed_searches_shrink_the_range_and_windows_follow_the_steps():
    solver = BacktrackingGD(psi=0.5, tau=2, phi_max=1.5, beta=0.5, max_it=4, initial_step=8.0, budget_rule="adaptive")
    plan = solver.plan(facts(), 1.0, 1e-6)
    curator = Scripted([None, 0, 1, 2, 3, 0])
    history = solver.run(curator, plan).history
    assert history["largest_step"] == [4, 4, 6, 6, 2.25]  # 8 halved; 1.5 * 4; 1.5 * 6/4
    assert history["step_size"] == [4, 2, 1.5, 0.75, 2.25]
    steps = [list(searched) for _, searched in curator.searches]
    assert steps[0] == [8, 4, 2, 1]
    assert all(len(searched) == 4 for searched in steps)


def test_ranges_never_exceed_the_first_nor_fall_to_nothing():
    steps = StepRange(2.0, psi=0.5, tau=1, phi_max=3.0)
    steps.accept(2.0)
    assert steps.largest == 2.0
    for _ in range(100):
        steps.shrink()
    assert steps.largest == pytest.approx(2e-4)


def test_threshold_decay_lowers_both_clips_once_per_update():
    solver = BacktrackingSGD(threshold_decay=0.5, budget_rule="always", xi=1.0)
    plan = solver.plan(facts(), 1.0, 1e-6)
    (gradient, _), (search, _) = plan.questions
    curator = Scripted([None, None, None, 0, 0, None, 0, 0])
    solver.run(curator, plan)
    losses = [clip / search.mechanism.objective_clip for clip, _ in curator.searches]
    # raised three times in the first update, not in the second, once in the third
    assert losses == [1, 1, 1, 1, 0.5, 0.5, 0.5, 0.25]
    gradients = [clip / gradient.mechanism.clip_norm for clip in curator.clips]
    # levels 1, 2, 4, 8 and then 8, 8, 16, 16, 16: one question for each part, at the clip of its update
    assert gradients == [1] * 8 + [0.5] * 8 + [0.5] * 16 + [0.25] * 16 + [0.25] * 16


def test_blgd_has_no_threshold_decay():
    curator = Scripted([None, 0, None, 0, 0])
    solver = BacktrackingGD()
    solver.run(curator, solver.plan(facts(), 1.0, 1e-6))
    assert len({clip for clip, _ in curator.searches}) == len(set(curator.clips)) == 1


class Free:
    def take(self, cost):
        pass


def test_averaged_measurements_have_the_variance_of_one_at_the_sum_of_levels():
    """2,000 averages of three measurements in 4 dimensions against chi-squared; seeded, false alarms 1e-6."""
    public, solver = facts(), BacktrackingGD()
    problem = problem_for(public, solver)
    question = GaussianGradient(0.3, 0.2, "add_remove", 400, 3)
    path, noise = Path(problem), SeededNoise(6)
    weights = np.ones(4)
    exact = problem.gradient_sum(weights, 0.3)
    curator = Curator(path, Free(), noise)
    errors = []
    for _ in range(2000):
        measured = Measurement(FullBatchMeter(question), curator, weights, 0.3)
        measured.raise_level(0.3)
        measured.raise_level(0.3)
        errors.append(measured.gradient - exact)
    assert measured.level == pytest.approx(1.3**2 * 0.04)
    assert measured.count == 3
    variance = question.sensitivity**2 / measured.level
    total = (np.array(errors) ** 2).sum() / variance
    assert chi2.ppf(5e-7, 8000) < total < chi2.isf(5e-7, 8000)
    assert abs(np.mean(errors, axis=0)).max() < 5.5 * sqrt(variance / 2000)


def test_averages_of_samples_are_unbiased():
    """Means over 1,500 measurements of the sampled meter; seeded, false alarms 1e-6."""
    public, solver = facts(n_samples=60), BacktrackingSGD()
    problem = problem_for(public, solver)
    question = PoissonSample(GaussianGradient(0.3, 5.0, "add_remove", 60, 3), 0.2)
    weights = np.ones(4)
    curator = Curator(problem, Free(), SeededNoise(6))
    answers = []
    for _ in range(1500):
        measured = Measurement(SampledMeter(question, 3, 10**9), curator, weights, 0.3)
        measured.raise_level(0.3)
        answers.append(measured.gradient)
    assert (measured.level, measured.count) == (4, 2)
    errors = np.array(answers) - problem.gradient_sum(weights, 0.3)
    # four samples and four noises, each divided by 4 * 0.2; the noise has sensitivity 0.3 over mu 5
    each = [problem.batch(np.array([i])).gradient_sum(weights, 0.3) for i in range(60)]
    variance = (0.2 * 0.8 * np.square(each).sum(axis=0) + 0.06**2) / (4 * 0.2**2)
    assert (abs(errors.mean(axis=0)) < 5.2 * np.sqrt(variance / 1500)).all()
    ratio = (errors**2).sum(axis=0) / variance / 1500
    assert (abs(ratio - 1) < 0.25).all()


def test_the_default_clip_of_losses_is_three_times_the_loss_at_zero():
    assert default_objective_clip(Logistic(), 1) == pytest.approx(3 * np.log(2))
    assert default_objective_clip(Hinge(), 1) == 3.0
    assert default_objective_clip(Logistic().multiclass(), 3) == pytest.approx(3 * np.log(3))
    assert default_objective_clip(Hinge(), 3) == 9.0
    for solver in (BacktrackingGD(), BacktrackingSGD(n_updates=3), AdaptiveGD()):
        for n_classes in (2, 3):
            question = solver.plan(facts(n_classes=n_classes), 1.0, 1e-6).questions[1][0]
            clip = getattr(question, "mechanism", question).objective_clip
            assert clip == pytest.approx(3 * np.log(n_classes))


@pytest.mark.parametrize("loss", [Logistic(), Hinge(), HuberHinge(1e-6), HuberHinge(10.0)], ids=repr)
@pytest.mark.parametrize("clip", [1e-5, 1e-3, 1.0, 9.9e5])
def test_float32_losses_resolve_the_clips_that_solvers_accept(loss, clip):
    """1e-5 is where the decay of DP-BLSGD-AC ends that starts at 1e-3; a clip of 1e-8 would make every loss 0."""
    margins = np.random.default_rng(0).normal(size=2000) * 3
    signs, exact = np.ones(len(margins)), np.minimum(loss.value(margins), clip).sum()
    narrow = loss.clipped_sum(margins.astype(np.float32), np.float32(1), clip)
    assert narrow == pytest.approx(exact, rel=0.02 * 1e-5 / clip + 1e-6)
    assert loss.clipped_sum(margins, signs, clip) == pytest.approx(exact, rel=1e-9)
    # no record adds more than the clip, whatever is rounded
    assert loss.clipped_sum(np.full(1, -1e30, np.float32), np.float32(1), clip) <= clip


@pytest.mark.parametrize("clip", [1e-3, 9.9e5])
def test_the_ends_of_the_clip_fit_in_both_precisions(clip):
    X, y = records(facts(n_samples=60))
    for solver in FEW:
        for dtype in (np.float64, np.float32):
            bounded = type(solver)(**{**solver.get_params(), "objective_clip": clip})
            assert np.isfinite(fitted(bounded, X.astype(dtype), y).coef_).all()


def test_the_released_average_favours_late_iterates():
    log, last = Logbook(np.zeros(1), True), Logbook(np.zeros(1), False)
    for t in range(1, 41):
        log.add(np.array([float(t)]))
        last.add(np.array([float(t)]))
    weights = np.arange(1, 41) * (np.arange(1, 41) + 1.0) * (np.arange(1, 41) + 2)  # exponent 3
    assert log.result[0] == pytest.approx(np.average(np.arange(1, 41), weights=weights), rel=1e-9)
    assert last.result[0] == 40


# -- estimators --------------------------------------------------------------------------------------------------------

FEW = [BacktrackingGD(n_updates=5), BacktrackingSGD(n_updates=5, q=0.3), AdaptiveGD(n_updates=5)]


def fitted(solver, X, y, estimator=DPLogisticRegression, **changes):
    settings = {"epsilon": 1.0, "delta": 1e-6, "solver": solver, "random_state": 0, "classes": np.unique(y)}
    return estimator(**{**settings, **changes}).fit(X, y)


def public_values(model):
    """All that a fitted estimator shows."""
    values = {name: value for name, value in vars(model).items() if name != "solver"}
    values["privacy_guarantee_"] = str(values["privacy_guarantee_"])
    values["solver_"] = repr(values["solver_"])
    return values


def test_no_public_attribute_depends_on_realised_batch_sizes(monkeypatch):
    """Answers are made equal while samples differ in size: everything that is shown must be equal too."""
    X, y = records(facts())
    found = [None, 0, 2, None, 1, 0, 3, 0, 0, 0, 0]
    sizes, shown = [], []
    for share in (0, 7, 250):
        left, rng = list(found), np.random.default_rng(0)
        monkeypatch.setattr(GaussianGradient, "release", lambda *_, rng=rng: rng.normal(size=4))
        monkeypatch.setattr(BacktrackingSearch, "release", lambda *_, left=left: left.pop(0))

        def sample(self, n, rate, share=share):
            sizes.append(share)
            return np.arange(share)

        monkeypatch.setattr(SeededNoise, "poisson_sample", sample)
        shown.append(public_values(fitted(BacktrackingSGD(n_updates=8, q=0.3), X, y)))
    assert set(sizes) == {0, 7, 250}
    for other in shown[1:]:
        assert other.keys() == shown[0].keys()
        for name, value in shown[0].items():
            np.testing.assert_equal(other[name], value, err_msg=name)


@pytest.mark.parametrize("solver", FEW, ids=lambda solver: solver.name)
def test_histories_hold_one_public_number_per_update(solver):
    X, y = records(facts())
    model = fitted(solver, X, y, epsilon=4.0)
    assert {len(values) for values in model.history_.values()} == {model.n_iter_}
    assert model.n_iter_ > 0
    keys = {"step_size", "largest_step", "gradient_level", "gradient_norm", "measurements", "searches"}
    assert set(model.history_) == (keys - {"searches"} if solver.name == "agd" else keys)
    for values in model.history_.values():
        assert all(isinstance(value, int | float) for value in values)
    assert all(a <= b for a, b in zip(model.history_["step_size"], model.history_["largest_step"], strict=True))


LAYOUTS = {
    "C": np.ascontiguousarray,
    "F": np.asfortranarray,
    "float32": lambda X: X.astype(np.float32),
    "csr": sp.csr_array,
    "csr float32": lambda X: sp.csr_array(X.astype(np.float32)),
}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("estimator", [DPLogisticRegression, DPLinearSVC, DPHuberSVC])
@pytest.mark.parametrize("solver", FEW, ids=lambda solver: solver.name)
def test_layouts_give_one_answer(solver, estimator, layout):
    X, y = records(facts(n_classes=3, n_samples=150))
    X = X.astype(np.float32).astype(np.float64)
    expected = fitted(solver, X, y, estimator, epsilon=4.0)
    other = LAYOUTS[layout](X)
    if isinstance(other, np.ndarray):
        other.setflags(write=False)
    model = fitted(solver, other, y, estimator, epsilon=4.0)
    np.testing.assert_allclose(model.coef_, expected.coef_, rtol=1e-4, atol=1e-6)
    assert model.coef_.shape == (3, 3)


@pytest.mark.parametrize("fit_intercept", [True, False])
@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("epsilon", [0.01, 1.0, 100.0, inf])
@pytest.mark.parametrize("solver", FEW, ids=lambda solver: solver.name)
def test_degenerate_data_are_fitted(solver, epsilon, n_classes, fit_intercept):
    """Two rows, one class, constant columns, rows of zeros: finite weights of the right shape."""
    rng = np.random.default_rng(0)
    classes, rows = np.arange(n_classes), 1 if n_classes == 2 else n_classes
    cases = [
        (rng.normal(size=(2, 2)), np.array([0, 1])),
        (rng.normal(size=(30, 2)), np.ones(30, dtype=int)),
        (np.ones((30, 2)), rng.integers(0, n_classes, 30)),
        (np.zeros((30, 2)), rng.integers(0, n_classes, 30)),
    ]
    for X, y in cases:
        model = fitted(solver, X, y, epsilon=epsilon, classes=classes, fit_intercept=fit_intercept)
        assert model.coef_.shape == (rows, 2)
        assert np.isfinite(model.coef_).all()
        assert np.isfinite(model.intercept_).all()
        assert (model.intercept_ != 0).any() <= fit_intercept


# -- refusals ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("solver", FEW, ids=lambda solver: solver.name)
def test_pure_privacy_is_refused_in_words_before_charging(solver):
    X, y = records(facts(n_samples=20))
    accountant = PrivacyAccountant(epsilon=1.0, delta=1e-6)
    with pytest.raises(ValueError, match=r"delta=0.*objective_perturbation"):
        fitted(solver, X, y, delta=0, accountant=accountant)
    assert len(accountant) == 0


def test_samples_are_refused_under_replace_one():
    X, y = records(facts(n_samples=20))
    accountant = PrivacyAccountant(epsilon=1.0, delta=1e-6)
    with pytest.raises(ValueError, match=r"neighbours='replace_one'.*'add_remove'.*blgd"):
        fitted(FEW[1], X, y, neighbours="replace_one", accountant=accountant)
    assert len(accountant) == 0


BAD = {
    "alpha": [0, 1, -0.5, "a", None, True, np.nan],
    "beta": [0, 1, 2],
    "max_it": [0, 101, 2.5],
    "initial_step": [0, -1, inf],
    "clip_norm": [0, inf, "x"],
    "objective_clip": [0, 1e-8, 9.9e-4, 1e6, 1e39, inf],
    "xi": [0, -1, inf],
    "tau": [0, 1.5],
    "psi": [0, 1],
    "phi_max": [0, inf],
    "angle_max": [0, np.nan],
    "budget_rule": ["sometimes", None],
    "momentum": [-0.1, 1],
    "n_updates": [0, 2.5],
    "search_share": [0, 1],
    "iterate": ["mean"],
    "noise": ["uniform"],
    "q": [0, 1.1, -0.5],
    "threshold_decay": [-0.1, 1],
    "gamma": [0, -1],
    "n_candidates": [0, 1001],
    "max_step": [0, inf],
    "choice_share": [0, 1],
    "rows": ["cube"],
}


def test_bad_parameters_are_named_before_anything_is_charged():
    X, y = records(facts(n_samples=20))
    accountant = PrivacyAccountant(epsilon=1.0, delta=1e-6)
    checked = set()
    for solver in FEW:
        for name in solver.get_params():
            for value in BAD[name]:
                bad = type(solver)(**{name: value})
                with pytest.raises(ValueError, match=f"{name}="):
                    fitted(bad, X, y, accountant=accountant)
            checked.add(name)
    assert checked == set(BAD)
    assert len(accountant) == 0


@pytest.mark.parametrize("solver", FEW, ids=lambda solver: solver.name)
def test_a_spent_ledger_refuses_before_data_are_used(solver, monkeypatch):
    X, y = records(facts(n_samples=40))
    accountant = PrivacyAccountant(epsilon=1.0, delta=1e-6)
    accountant.spend(GaussianCost(0.2))

    def use(*_, **__):
        raise AssertionError("the data were used")

    for name in ("scores", "gradient_sum", "gradient_sum_at", "losses_along", "batch"):
        monkeypatch.setattr(Problem, name, use)
    with pytest.raises(BudgetExceededError):
        fitted(solver, X, y, accountant=accountant)
    assert len(accountant) == 1


@pytest.mark.parametrize("solver", FEW, ids=lambda solver: solver.name)
def test_two_fits_compose_below_the_sum(solver):
    X, y = records(facts(n_samples=60))
    accountant = PrivacyAccountant(epsilon=2.0, delta=1e-6, composition="rdp")
    model = DPLogisticRegression(epsilon=1.0, delta=1e-6, solver=solver, classes=[0, 1], random_state=0)
    cost = model.plan(60, 3).cost
    assert accountant.would_grant([cost] * 9) >= 2
    model.set_params(accountant=accountant)
    model.fit(X, y)
    once = accountant.spent().epsilon
    model.fit(X, y)
    twice = accountant.spent().epsilon
    assert 0.95 <= once <= 1.35  # the order is that of the ceiling, not of one fit
    assert once < twice < 0.9 * 2.0
    while accountant.would_grant([cost]):
        model.fit(X, y)
    with pytest.raises(BudgetExceededError):
        model.fit(X, y)
    assert accountant.spent().epsilon <= 2.0
