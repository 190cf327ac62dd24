"""Private selection: exact probabilities instead of audits, the spread of sums, and the calibration of budgets."""

from itertools import combinations, pairwise, product
from math import exp, inf, log

import numpy as np
import pytest
from scipy import integrate, stats

from dpskl.accounting import (
    BoundedRangeCost,
    PureCost,
    bounded_range_at_order,
    bounded_range_epsilon,
    bounded_range_rdp,
    compose,
)
from dpskl.mechanisms import noise as noise_module
from dpskl.mechanisms.noise import SeededNoise, SystemNoise, make_noise
from dpskl.mechanisms.selection import (
    SELECTION_LAWS,
    select_smallest,
    select_smallest_few,
    selection_cost,
    selection_spread,
)


def gumbel_law(scores, rate):
    weights = np.exp(-rate * (scores - scores.min()))
    return weights / weights.sum()


def exponential_law(scores, rate):
    """Winner of ``-rate s + Exp(1)``: the integral of a product of survival functions, expanded over subsets."""
    q, law = -rate * np.asarray(scores), []
    for j in range(len(q)):
        others = [k for k in range(len(q)) if k != j]
        start, total = max(0.0, q.max() - q[j]), 0.0
        for size in range(len(others) + 1):
            for subset in combinations(others, size):
                exponent = sum(q[j] - q[k] for k in subset) + (1 + size) * start
                total += (-1) ** size * exp(-exponent) / (1 + size)
        law.append(total)
    return np.array(law)


def wrong_sided_law(scores, rate):
    """Smallest of ``rate s + Exp(1)``."""
    s = rate * np.asarray(scores)

    def density(x, j):
        return exp(-x - sum(max(0.0, x + s[j] - s[k]) for k in range(len(s)) if k != j))

    breaks = [sorted({max(0.0, s[k] - s[j]) for k in range(len(s))} | {0.0}) for j in range(len(s))]
    law = []
    for j in range(len(s)):
        ends = [*breaks[j], breaks[j][-1] + 60.0]
        law.append(sum(integrate.quad(density, a, b, args=(j,))[0] for a, b in pairwise(ends)))
    return np.array(law)


LAWS = {"gumbel": gumbel_law, "exponential": exponential_law}


@pytest.mark.parametrize("law", SELECTION_LAWS)
def test_counts_follow_the_stated_law(law):
    """Chi-square with 30,000 draws, fails by chance once in 1e5; half or twice the noise is out of the question."""
    scores, spread, epsilon, draws = np.array([2.0, 0.0, 1.0, 5.0]), 4.0, 3.0, 30_000
    noise = SystemNoise()
    counts = np.bincount(
        [select_smallest(scores, spread, epsilon, noise, law) for _ in range(draws)], minlength=len(scores)
    )
    exact = LAWS[law](scores, epsilon / spread)
    assert exact.sum() == pytest.approx(1)
    assert stats.chisquare(counts, draws * exact).pvalue > 1e-5
    for factor in (0.5, 2.0):
        wrong = LAWS[law](scores, factor * epsilon / spread)
        assert stats.chisquare(counts, draws * wrong / wrong.sum()).pvalue < 1e-50


@pytest.mark.parametrize("law", SELECTION_LAWS)
def test_log_ratio_never_exceeds_epsilon_and_reaches_it(law):
    """Adversarial pairs: each score moves by 0 or the spread, up to a common shift, over five candidates."""
    rng, spread = np.random.default_rng(1), 2.0
    worst = 0.0
    for epsilon, trial in product((0.1, 1.0, 3.0), range(40)):
        scores = rng.choice([0.0, rng.normal(), 9.0 / epsilon], size=5) * rng.choice([0.0, 1.0, 3.0])
        if trial == 0:
            scores = np.array([20.0 / epsilon, 0.0, 0.0, 0.0, 0.0])
        p = LAWS[law](scores, epsilon / spread)
        for moved in product((0.0, spread), repeat=5):
            q = LAWS[law](scores + moved + rng.normal(), epsilon / spread)
            seen = np.minimum(p, q) > 1e-9  # below, the alternating sum is rounding
            losses = np.log(p[seen] / q[seen])
            assert np.abs(losses).max() <= epsilon * (1 + 1e-6)
            if law == "gumbel":  # the loss lies in an interval of that length
                assert np.ptp(losses) <= epsilon * (1 + 1e-6)
            worst = max(worst, np.abs(losses).max() / epsilon)
    assert worst > 0.99


def test_permute_and_flip_is_not_bounded_range_and_gumbel_is():
    """Why the two laws have two costs: two candidates, and one that was level falls behind by the spread."""
    epsilon, level, behind = 0.05, np.zeros(2), np.array([1.0, 0.0])
    width = {law: np.ptp(np.log(LAWS[law](level, epsilon) / LAWS[law](behind, epsilon))) for law in SELECTION_LAWS}
    assert width["gumbel"] == pytest.approx(epsilon)
    assert 1.9 * epsilon < width["exponential"] < 2 * epsilon


@pytest.mark.parametrize("n_candidates", [5, 6])
def test_noise_on_the_wrong_side_loses_several_times_epsilon(n_candidates):
    """argmin(score + Exp): equal scores, one raised by the spread. The ratio is (m - 1) epsilon."""
    epsilon, spread = 0.5, 1.0
    equal, raised = np.zeros(n_candidates), np.eye(n_candidates)[0] * spread
    p, q = (wrong_sided_law(scores, epsilon / spread) for scores in (equal, raised))
    assert log(p[0] / q[0]) == pytest.approx((n_candidates - 1) * epsilon, rel=1e-6)
    for law in SELECTION_LAWS:
        right = [LAWS[law](scores, epsilon / spread)[0] for scores in (equal, raised)]
        assert log(right[0] / right[1]) <= epsilon


def test_permute_and_flip_chooses_better_than_gumbel_noise():
    for gap in (0.5, 2.0, 5.0):
        scores = np.array([0.0, gap, gap, gap])
        excess = {law: LAWS[law](scores, 1.0) @ scores for law in SELECTION_LAWS}
        assert 0.5 * excess["gumbel"] <= excess["exponential"] <= excess["gumbel"] <= log(4)


@pytest.mark.parametrize("law", SELECTION_LAWS)
def test_several_at_once_have_the_law_of_selections_in_turn(law):
    scores, rate, draws = np.array([0.0, 1.0, 2.0]), 1.5, 20_000
    noise = SeededNoise(3)
    pairs = [tuple(select_smallest_few(scores, 2, 1.0, rate, noise, law)) for _ in range(draws)]
    orders = [(i, j) for i in range(3) for j in range(3) if i != j]
    exact = []
    for i, j in orders:
        left = [k for k in range(3) if k != i]
        exact.append(LAWS[law](scores, rate)[i] * LAWS[law](scores[left], rate)[left.index(j)])
    counts = [pairs.count(order) for order in orders]
    assert stats.chisquare(counts, draws * np.array(exact) / np.sum(exact)).pvalue > 1e-5


def test_without_noise_the_smallest_score_wins_and_ties_go_to_the_lowest_index(recording_noise):
    scores = np.array([3.0, 1.0, 2.0, 1.0])
    scores.flags.writeable = False
    for law in SELECTION_LAWS:
        assert select_smallest(scores, 5.0, inf, recording_noise, law) == 1
        assert select_smallest(scores, 0.0, 0.1, recording_noise, law) == 1
        assert select_smallest_few(scores, 3, 5.0, inf, recording_noise, law) == [1, 3, 2]
        assert select_smallest(scores, 1.0, 1e8, SystemNoise(), law) in (1, 3)
        assert select_smallest(np.array([7.0]), 1.0, 0.1, SystemNoise(), law) == 0
    assert recording_noise.draws == []


def test_costs():
    assert selection_cost(0.3) == BoundedRangeCost(0.3)
    assert selection_cost(0.3, "exponential") == PureCost(0.3)
    assert selection_cost(0.3, count=4) == compose([(BoundedRangeCost(0.3), 4)])
    assert selection_cost(inf).pure_epsilon == inf


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"scores": np.empty(0)}, "count"),
        ({"scores": np.zeros((2, 2))}, "count"),
        ({"count": 0}, "count"),
        ({"count": 4}, "count"),
        ({"spread": -1.0}, "spread"),
        ({"spread": inf}, "spread"),
        ({"spread": np.nan}, "spread"),
        ({"epsilon": 0.0}, "epsilon"),
        ({"epsilon": np.nan}, "epsilon"),
        ({"law": "laplace"}, "law"),
    ],
)
def test_bad_arguments_are_named(changes, message, recording_noise):
    arguments = {"scores": np.zeros(3), "count": 1, "spread": 1.0, "epsilon": 1.0, "law": "gumbel", **changes}
    with pytest.raises(ValueError, match=message):
        select_smallest_few(noise=recording_noise, **arguments)
    with pytest.raises(ValueError, match="law"):
        selection_cost(1.0, "laplace")
    with pytest.raises(ValueError, match="low"):
        selection_spread(1.0, 0.0, "add_remove", 10, 2)


@pytest.mark.parametrize(("low", "high"), [(0.0, 1.0), (-0.5, 0.5), (0.2, 0.7)])
@pytest.mark.parametrize("neighbours", ["add_remove", "replace_one"])
def test_spread_of_sums_over_neighbouring_data(neighbours, low, high):
    rng, n, worst = np.random.default_rng(0), 7, 0.0
    stated = selection_spread(low, high, neighbours, n + 1, 3)
    for _ in range(300):
        table = rng.choice([low, high, rng.uniform(low, high)], size=(n + 1, 4))
        first = table[:n].sum(axis=0)
        second = table[1:n].sum(axis=0) if neighbours == "add_remove" else table[1:].sum(axis=0)
        worst = max(worst, np.ptp(second - first))
    assert worst <= stated
    assert worst >= 0.999 * stated


def test_spread_holds_the_rounding_of_long_sums():
    n = 10**6
    spread = selection_spread(-1.0, 1.0, "add_remove", n, 100)
    assert 2.0 < spread < 2.0001
    assert spread - 2.0 > 4 * n * 2.0**-53 * n / 100


def test_exponentials_are_fine_at_both_ends(monkeypatch):
    """The four extreme words: largest, smallest, and the two at the middle. Gumbel noise stays finite."""
    words = np.array([0, 1, 2**64 - 2, 2**64 - 1], dtype=np.uint64)
    monkeypatch.setattr(noise_module.os, "urandom", lambda count: np.resize(words, count // 8).tobytes())
    smallest, largest, *middle = SystemNoise().standard_exponential(4)
    assert smallest == pytest.approx(2.0**-65)
    assert largest == pytest.approx(65 * log(2))
    np.testing.assert_allclose(middle, log(2))
    assert np.abs(make_noise(None).gumbel(4, 1.0)).max() == pytest.approx(65 * log(2))


@pytest.mark.parametrize("delta", [1e-10, 1e-6, 0.05])
@pytest.mark.parametrize("epsilon", [1e-3, 0.2, 1.6, 30.0, 1e8])
@pytest.mark.parametrize("count", [1, 10, 1000])
def test_budgets_are_met_from_below_and_nearly_used_up(count, epsilon, delta):
    each = bounded_range_epsilon(epsilon, delta, count)
    reached = compose([(BoundedRangeCost(each), count)]).epsilon(delta)
    assert 0.999 * epsilon <= reached <= epsilon
    assert compose([(BoundedRangeCost(2 * each), count)]).epsilon(delta) > epsilon * 1.5


def test_pure_and_infinite_budgets():
    each = bounded_range_epsilon(1.0, 0.0, 7)
    assert each == pytest.approx(1 / 7, rel=1e-9)
    assert compose([(BoundedRangeCost(each), 7)]).pure_epsilon <= 1.0
    assert compose([(PureCost(each), 7)]).pure_epsilon <= 1.0
    assert bounded_range_epsilon(inf, 1e-6, 3) == inf
    # the gain over adding up: about sqrt(count) beyond a few selections
    assert bounded_range_epsilon(1.0, 1e-6, 500) > 8 * bounded_range_epsilon(1.0, 0.0, 500)
    with pytest.raises(ValueError, match="count"):
        bounded_range_epsilon(1.0, 1e-6, 0)


@pytest.mark.parametrize("alpha", [1.5, 8.0, 64.0])
@pytest.mark.parametrize("divergence", [1e-9, 1e-3, 0.5, 20.0])
def test_range_at_one_order(divergence, alpha):
    span = bounded_range_at_order(divergence, alpha)
    assert 0.999999 * divergence <= bounded_range_rdp(span, alpha) <= divergence
    assert bounded_range_at_order(0.0, alpha) == 0.0
    assert bounded_range_at_order(inf, alpha) == inf
