"""Searches of a step along a ray: how far one record moves their queries, the law of their noise, their answers."""

from math import inf, log1p, sqrt

import numpy as np
import pytest
from above_threshold_oracle import log_outcome_probabilities, log_ratio, outcome_probabilities, renyi_divergence
from conftest import RecordingNoise
from scipy.stats import chi2
from search_cases import (
    CASES,
    ROW,
    STEPS,
    hand_made,
    make_problem,
    make_search,
    make_selection,
    n_outputs_of,
    neighbouring_queries,
    queries,
)

import dpskl.mechanisms.above_threshold as above_threshold
import dpskl.records.problem
from dpskl.mechanisms.above_threshold import loss_range
from dpskl.mechanisms.noise import SeededNoise
from dpskl.records.losses import Hinge, HuberHinge, Logistic
from dpskl.records.path import Path
from dpskl.records.problem import Problem


def length(changes):
    """Length of the shortest interval with all changes and 0."""
    return max(changes.max(), 0) - min(changes.min(), 0)


# Share of a range that two records reach together: a logistic loss has large slopes of both only at different places,
# and labels of one-vs-rest differ in two outputs only. One record alone reaches everything.
REACHED_BY_TWO = {"logistic": 0.48, "hinge": 0.97, "huber": 0.85, "softmax": 0.48, "one-vs-rest": 0.8}


@pytest.mark.parametrize("neighbours", ["add_remove", "replace_one"])
@pytest.mark.parametrize("ray", ["short", "long"])
@pytest.mark.parametrize("case", CASES)
def test_one_record_moves_the_queries_within_the_range(case, ray, neighbours):
    """Short rays: the range is the Lipschitz bound S, not 2 S. Long ones: the clip."""
    loss, n_classes = CASES[case]
    rng = np.random.default_rng(5)
    worst = 0.0
    for _ in range(120):
        length_of_ray = 0.05 if ray == "short" else 10.0 ** rng.uniform(1, 2.5)
        clip = 1e4 if ray == "short" else 1.04
        answers, weights, direction = neighbouring_queries(rng, case, clip, length_of_ray)
        changed = answers[1] - answers[0] if neighbours == "add_remove" else answers[2] - answers[1]
        search = make_search(loss, n_classes, clip, neighbours)
        unit = loss_range(search, weights, direction, STEPS[0])
        worst = max(worst, length(changed) / unit)
        if ray == "short" and np.linalg.norm(weights) < 10:
            factor = 1 if neighbours == "add_remove" else 2
            assert unit == pytest.approx(factor * search.slope_bound * ROW * length_of_ray, rel=0.02)
        if ray == "long":
            assert unit == pytest.approx(search.sensitivity, rel=1e-6)
    assert worst <= 1
    assert worst >= (REACHED_BY_TWO[case] if ray == "short" and neighbours == "replace_one" else 0.95)


def test_a_long_chain_of_records_that_differ_by_one_stays_within_the_range():
    """Groups of the fast logarithm, their rest and the blocks of a ray change when a record comes: others must not."""
    loss, clip = Logistic(), 1.04
    rng = np.random.default_rng(0)
    X = rng.normal(size=(4300, 2))
    codes = rng.integers(0, 2, 4300)
    weights, direction = rng.normal(size=3), 3 * rng.normal(size=3)
    search = make_search(loss, 2, clip, n_samples=4300)
    unit = loss_range(search, weights, direction, STEPS[0])
    exact = make_problem(X, codes, loss, 2)
    scores, moved = exact.scores(weights), exact.scores(direction)
    signs = exact.targets
    for n in (126, 127, 128, 255, 256, 4095, 4096, 4223):
        less, more = (
            queries(make_problem(X[:m], codes[:m], loss, 2), weights, direction, STEPS, clip) for m in (n, n + 1)
        )
        assert length(more - less) <= unit
        # nothing but the new record: its own loss in float32, the sums in float64
        z = (signs[n] * (scores[n] - np.r_[0, STEPS] * moved[n])).astype(np.float32)
        own = np.minimum(np.log1p(np.exp(-z.astype(np.float64))), clip)
        np.testing.assert_allclose(more - less, own[0] - own[1:], rtol=0, atol=2e-6)


def test_which_records_share_a_logarithm_does_not_matter():
    """With one more record, 127 others move from the rest into a group: their losses must not change."""
    loss, targets = Logistic(), np.float32(1)
    scores = np.random.default_rng(1).normal(size=128).astype(np.float32)
    alone = [loss.clipped_sum(scores[i : i + 1], targets, 1.04) for i in range(128)]
    for n in (1, 127, 128):
        assert loss.clipped_sum(scores[:n], targets, 1.04) == pytest.approx(sum(alone[:n]), abs=1e-12)


@pytest.mark.parametrize("clip", [1e-6, 1e-4, 1e-2, 0.1, 0.5, 1.0397, 1.1, 2.0794, 3.1, 4.9, 7.3, 1e3])
@pytest.mark.parametrize("loss", [Logistic(), Hinge(), HuberHinge(0.3)], ids=repr)
def test_no_loss_exceeds_its_clip_although_float32_rounds(loss, clip):
    """Clips that float32 rounds up, or whose exponential it rounds up, would pass the range by 1e-7 or, small, more."""
    problem = make_problem([[1.0]], [1], loss, 2, intercept=0)
    weights, direction = np.array([-2e3]), np.array([-4e3])
    changed = queries(problem, weights, direction, STEPS[:1], clip)
    unit = loss_range(make_search(loss, 2, clip, n_samples=1), weights, direction, 1.0)
    assert abs(changed).max() <= unit
    assert abs(changed).max() <= clip * (1 + 1e-12) + 1e-15
    assert abs(changed).max() >= 0.93 * clip


@pytest.mark.parametrize("n_classes", [2, 3, 40, 1000])
@pytest.mark.parametrize("loss", [Logistic(), Hinge()], ids=repr)
def test_the_rounding_of_float32_is_allowed_for(loss, n_classes):
    """Losses along a ray against float64 ones, for small and very large scores and for many outputs."""
    loss = loss if n_classes == 2 else loss.multiclass()
    rng = np.random.default_rng(n_classes)
    n_outputs = n_outputs_of(n_classes)
    worst = 0.0
    for size in 10.0 ** np.arange(-6, 7, 1.5):
        for _ in range(6):
            problem = make_problem([[1.0]], [rng.integers(n_classes)], loss, n_classes, intercept=0)
            shape = (1,) if n_outputs == 1 else (1, n_outputs)
            weights, direction = size * rng.normal(size=shape), size * rng.normal(size=shape)
            along = problem.ray_losses(problem.scores(weights), problem.scores(direction), STEPS)
            exact = [float(problem.losses(problem.scores(weights - step * direction))[0]) for step in STEPS]
            search = make_search(loss, n_classes, 1e12, row_norm=1.0, n_samples=1)
            slope = search.slope_bound
            reach = np.linalg.norm(weights) + np.linalg.norm(direction)
            # what the range adds to the Lipschitz bound, and what two losses are off by
            allowance = loss_range(search, weights, direction, STEPS[0]) - slope * np.linalg.norm(direction)
            assert allowance >= 2.0**-17 * slope * (slope + reach) * 0.999
            worst = max(worst, 2 * abs(along - exact).max() / (2.0**-17 * slope * (slope + reach)))
    assert worst <= 0.5


def test_many_outputs_on_a_tiny_ray_stay_within_the_range():
    """A sum over ten thousand outputs is rounded to thousandths in float32: more than a tiny ray moves it."""
    rng = np.random.default_rng(0)
    K = 10_000
    search = make_search(Hinge(), K, 1.5 * K, row_norm=1.0)
    problem = make_problem([[1.0]], [1], Hinge(), K, intercept=0)
    for _ in range(20):
        weights, direction = 1e-4 * rng.normal(size=(1, K)), 1e-7 * rng.normal(size=(1, K))
        changed = queries(problem, weights, direction, STEPS, 1.5 * K)
        assert length(changed) <= loss_range(search, weights, direction, 1.0)


def test_scores_beyond_float32_are_refused():
    """There a row of zeros has loss nan, and one record decides whether any step can pass."""
    problem = make_problem([[1.0], [0.0]], [1, 1], Hinge(), 2, intercept=0)
    search = make_search(Hinge(), 2, 1.0)
    noise = RecordingNoise()
    for weights, direction in (([0.0], [-1e39]), ([1e39], [1.0]), ([np.nan], [1.0])):
        with pytest.raises(ValueError, match="lower initial_step or max_step"):
            search.release(problem, np.array(weights), np.array(direction), STEPS, 0 * STEPS, noise)
        with pytest.raises(ValueError, match="lower initial_step or max_step"):
            make_selection(1.0, search).release(
                problem, np.array(weights), np.array(direction), STEPS, 0 * STEPS, noise
            )
    assert noise.draws == []


@pytest.mark.parametrize("neighbours", ["add_remove", "replace_one"])
@pytest.mark.parametrize("law", ["laplace", "gaussian"])
def test_exact_laws_on_neighbouring_data_stay_within_the_cost(law, neighbours):
    """Quadrature of the released law: log ratio and Renyi divergence against what is charged."""
    rng = np.random.default_rng(17)
    scales = (0.9, 1.1) if law == "laplace" else (1.5, 2.1)
    orders = (1.5, 4.0, 16.0)
    worst_ratio, worst = 0.0, dict.fromkeys(orders, 0.0)
    cost = make_search(Logistic(), 2, 1.0, law=law, threshold_scale=scales[0], query_scale=scales[1]).cost
    bounds = {order: cost.rdp(order) for order in orders}
    for trial in range(30):
        case = list(CASES)[trial % len(CASES)]
        loss, n_classes = CASES[case]
        clip = 1.04
        answers, weights, direction = neighbouring_queries(rng, case, clip, 10.0 ** rng.uniform(-1.5, 2))
        search = make_search(
            loss, n_classes, clip, neighbours, law=law, threshold_scale=scales[0], query_scale=scales[1]
        )
        assert search.cost == cost
        unit = loss_range(search, weights, direction, STEPS[0])
        pair = answers[:2] if neighbours == "add_remove" else answers[1:]
        # demands near what the queries are, so that every outcome has a chance; some so that only the last has
        demands = pair[0] + unit * (rng.uniform(-1, 2, len(STEPS)) if trial % 2 else np.r_[np.full(11, 3.0), -1.0])
        laws = [log_outcome_probabilities((answer - demands) / unit, law, *scales) for answer in pair]
        worst_ratio = max(worst_ratio, log_ratio(*laws))
        for order in orders:
            worst[order] = max(worst[order], renyi_divergence(*laws, order))
    assert worst_ratio <= cost.pure_epsilon * (1 + 1e-9)
    for order in orders:
        assert worst[order] <= bounds[order]
    if law == "laplace":
        assert worst_ratio >= 0.35 * cost.pure_epsilon


@pytest.mark.parametrize("law", ["laplace", "gaussian"])
def test_outcomes_have_the_law_that_the_cost_is_for(law):
    """Chi-squared over all outcomes of 2,000 searches; seeded, false alarms 1e-6. Half the noise is seen at once."""
    search = make_search(
        Hinge(), 2, 1.5, law=law, threshold_scale=0.8, query_scale=1.3, max_it=4, n_samples=4, row_norm=1.0
    )
    problem, weights, direction, steps = hand_made(), np.zeros(2), np.array([-0.4, 0.9]), STEPS[:4]
    unit = loss_range(search, weights, direction, 1.0)
    demands = queries(problem, weights, direction, steps, 1.5) + np.array([0.9, 0.6, 0.2, -0.3]) * unit
    expected = outcome_probabilities((queries(problem, weights, direction, steps, 1.5) - demands) / unit, law, 0.8, 1.3)
    noise, path = SeededNoise(3), Path(problem)
    found = [search.release(path, weights, direction, steps, demands, noise) for _ in range(2000)]
    counts = np.bincount([4 if index is None else index for index in found], minlength=5)

    def distance(probabilities):
        return ((counts - 2000 * probabilities) ** 2 / (2000 * probabilities)).sum()

    limit = chi2.isf(1e-6, 4)
    assert distance(expected) < limit
    half = outcome_probabilities((queries(problem, weights, direction, steps, 1.5) - demands) / unit, law, 0.8, 0.65)
    assert distance(half) > limit


@pytest.mark.parametrize("neighbours", ["add_remove", "replace_one"])
@pytest.mark.parametrize("law", ["laplace", "gaussian"])
@pytest.mark.parametrize("ray", [0.01, 50.0])
def test_noise_is_drawn_in_units_of_the_range(law, neighbours, ray):
    """The scales drawn against a range made by hand: changed records times min(clip, slope row_norm t_1 ||p||)."""
    search = make_search(Hinge(), 2, 1.5, neighbours, law=law)
    noise = RecordingNoise()
    rows = np.array([[1.0, 0.0], [0.0, 1.0]])
    problem = make_problem(rows, [0, 1], Hinge(), 2)
    direction = np.array([0.6, 0.0, -0.8])  # the intercept counts
    search.release(problem, np.zeros(3), ray * direction, STEPS, 0 * STEPS, noise)
    unit = (1 if neighbours == "add_remove" else 2) * min(1.5, ROW * ray)
    kinds, scales = zip(*noise.draws, strict=True)
    assert kinds == (("normal" if law == "gaussian" else "laplace"),) * 2
    assert scales == pytest.approx((3.0 * unit, 4.0 * unit), rel=2e-3)
    assert min(scales[0] / 3, scales[1] / 4) >= unit
    # and the cost is that of these scales
    assert (search.cost.law, search.cost.threshold_scale, search.cost.query_scale) == (law, 3.0, 4.0)
    assert search.cost.count == len(STEPS)
    if law == "laplace":
        assert search.cost.pure_epsilon == pytest.approx(unit / scales[0] + unit / scales[1], rel=2e-3)
    assert search.noise_scale == 4.0 * 1.5 * (1 if neighbours == "add_remove" else 2)


def test_the_longest_step_counts_and_not_the_one_that_is_taken():
    search = make_search(Hinge(), 2, 1e3)
    noise = RecordingNoise()
    problem = make_problem([[1.0]], [1], Hinge(), 2)
    for factor in (1.0, 0.5):
        demands = np.r_[np.full(11, inf), 0.0]
        search.release(problem, np.zeros(2), np.array([-0.1, 0]), factor * STEPS, demands, noise)
    scales = [scale for _, scale in noise.draws]
    assert scales[2] == pytest.approx(scales[0] / 2, rel=1e-3)


@pytest.mark.parametrize("law", ["laplace", "gaussian"])
def test_answers_do_not_depend_on_chunks_or_blocks(law, monkeypatch, rng):
    X, codes = rng.normal(size=(301, 2)), rng.integers(0, 2, 301)
    problem = make_problem(X, codes, Logistic(), 2)
    search = make_search(Logistic(), 2, 1.04, law=law, n_samples=301)
    weights, direction = rng.normal(size=3), rng.normal(size=3)
    demands = queries(problem, weights, direction, STEPS, 1.04) + rng.uniform(0, 8, len(STEPS))
    answers = []
    for chunk, height in ((4, 4096), (1, 4096), (5, 7), (100, 64)):
        monkeypatch.setattr(above_threshold, "_CHUNK", chunk)
        monkeypatch.setattr(dpskl.records.problem, "RAY_HEIGHT", height)
        noise = SeededNoise(8)
        answers.append([search.release(problem, weights, direction, STEPS, demands, noise) for _ in range(25)])
    assert answers[1:] == answers[:1] * 3
    assert len(set(answers[0])) > 3


@pytest.mark.parametrize("case", CASES)
def test_without_noise_the_first_step_that_passes_is_released(case, rng):
    loss, n_classes = CASES[case]
    search = make_search(loss, n_classes, 2.0, threshold_scale=0.0, query_scale=0.0, n_samples=40)
    assert search.cost.epsilon(1e-6) == inf
    X, codes = rng.normal(size=(40, 2)), rng.integers(0, n_classes, 40)
    problem = make_problem(X, codes, loss, n_classes)
    noise = RecordingNoise()
    found = set()
    for _ in range(40):
        shape = (3,) if n_classes == 2 else (3, 3)
        weights, direction = rng.normal(size=shape), rng.normal(size=shape) * 3

        def total(at):
            return np.minimum(problem.losses(problem.scores(at)), 2.0).sum()

        decreases = np.array([total(weights) - total(weights - step * direction) for step in STEPS])
        demands = np.sort(decreases)[rng.integers(12)] + rng.normal(size=12)
        passed = np.flatnonzero(decreases >= demands)
        expected = int(passed[0]) if len(passed) else None
        assert search.release(problem, weights, direction, STEPS, demands, noise) == expected
        found.add(expected)
    assert {scale for _, scale in noise.draws} == {0.0}
    assert len(found) > 3


@pytest.mark.parametrize(
    "steps", [STEPS[:5], STEPS[::-1], -STEPS, np.r_[STEPS[:11], -0.1], np.full(12, np.nan), np.r_[STEPS, 0.0]], ids=str
)
def test_bad_steps_are_refused_before_any_noise(steps):
    noise = RecordingNoise()
    problem = make_problem([[1.0]], [1], Hinge(), 2)
    with pytest.raises(ValueError, match="steps must be 12 numbers of at least 0, the largest first"):
        make_search(Hinge(), 2, 1.0).release(problem, np.zeros(2), np.ones(2), steps, 0 * steps, noise)
    assert noise.draws == []


def test_sampled_searches_have_the_pure_cost_of_their_scales():
    """Noise 1/eps1 and 1/eps2 in units of the range, sampled: log(1 + q (e^(eps1 + eps2) - 1))."""
    from dpskl.mechanisms.poisson_sample import PoissonSample

    question = PoissonSample(make_search(Logistic(), 2, 1.0), 0.1)
    assert question.cost.epsilon(0.0) == pytest.approx(log1p(0.1 * (np.exp(1 / 3 + 1 / 4) - 1)), rel=1e-9)
    assert question.sensitivity == 1.0
    assert sqrt(question.noise_scale) == 2.0


@pytest.mark.parametrize("loss", [Logistic(), Hinge()], ids=repr)
def test_a_long_direction_with_short_steps_stays_in_float32(loss):
    """The ray itself may leave float32 although no score that is reached does; one record must not spoil the sums."""
    X = np.zeros((30, 1))
    X[0] = 1e15
    problem = Problem(X, np.ones(30), loss, data_norm=1e15)
    direction, steps = np.array([1e25]), np.array([1e-39, 5e-40, 0.0])
    with np.errstate(all="raise"):
        sums = problem.ray_losses(problem.scores(np.zeros(1)), problem.scores(direction), steps, 2.0)
    np.testing.assert_allclose(sums, [np.minimum(loss.value(np.r_[-10.0 * s / 1e-39, np.zeros(29)]), 2).sum()
                                      for s in steps], rtol=1e-5)  # fmt: skip
