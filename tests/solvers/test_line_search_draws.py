"""Solvers that ask the data for their steps: what they draw is what they pay."""

from math import exp, inf, sqrt

import numpy as np
import pytest
from line_search_cases import EXPECTED_WARNINGS, ROW, Drawing, facts, mechanism_range, run

from dpskl.accounting import CurveFilter, SampledGaussianCost, SampledPureCost, TokenPool, gaussian_mu, rdp_order
from dpskl.mechanisms.above_threshold import BacktrackingSearch
from dpskl.mechanisms.gradient import GaussianGradient
from dpskl.mechanisms.noise import SeededNoise
from dpskl.mechanisms.poisson_sample import PoissonSample
from dpskl.mechanisms.step_selection import StepSelection
from dpskl.records.problem import Problem
from dpskl.solvers._descent import OutOfTokens, SampledMeter
from dpskl.solvers.adaptive import AdaptiveGD
from dpskl.solvers.line_search import BacktrackingGD, BacktrackingSGD

pytestmark = EXPECTED_WARNINGS


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
