"""The best of a list of steps: exact laws on neighbouring data, its noise, and its answers."""

from math import inf

import numpy as np
import pytest
from above_threshold_oracle import log_ratio, renyi_divergence
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
    neighbouring_queries,
    queries,
)

from dpskl.mechanisms.above_threshold import loss_range
from dpskl.mechanisms.noise import SeededNoise
from dpskl.mechanisms.step_selection import StepSelection
from dpskl.records.losses import Hinge, Logistic
from dpskl.records.path import Path
from dpskl.records.problem import Problem


def selection_law(scores, spread, epsilon):
    """Log probabilities of the exponential mechanism."""
    weights = -epsilon * scores / spread
    return weights - np.logaddexp.reduce(weights)


@pytest.mark.parametrize("neighbours", ["add_remove", "replace_one"])
def test_exact_laws_of_a_choice_stay_within_its_epsilon(neighbours):
    rng = np.random.default_rng(23)
    epsilon, worst_ratio, worst = 0.7, 0.0, 0.0
    for trial in range(150):
        case = list(CASES)[trial % len(CASES)]
        loss, n_classes = CASES[case]
        clip = 1.04
        answers, weights, direction = neighbouring_queries(rng, case, clip, 10.0 ** rng.uniform(-1.5, 2))
        selection = make_selection(epsilon, make_search(loss, n_classes, clip, neighbours))
        spread = loss_range(selection, weights, direction, STEPS[0])
        pair = answers[:2] if neighbours == "add_remove" else answers[1:]
        # queries are a common term minus the scores; step 0 is a candidate of its own
        pair = [np.r_[0.0, -answer] for answer in pair]
        penalties = np.r_[0.0, rng.uniform(0, 30 * spread, 12)]
        penalties[rng.integers(1, 13)] = 0.0
        laws = [selection_law(scores + penalties, spread, epsilon) for scores in pair]
        worst_ratio = max(worst_ratio, log_ratio(*laws))
        worst = max(worst, renyi_divergence(*laws, 4.0))
    assert worst_ratio <= epsilon
    assert worst_ratio >= 0.45 * epsilon
    cost = make_selection(epsilon, make_search(Hinge(), 2, 1.0)).cost
    assert cost.epsilon(0.0) == epsilon
    assert worst <= cost.rdp(4.0)


@pytest.mark.parametrize("neighbours", ["add_remove", "replace_one"])
@pytest.mark.parametrize("ray", [0.01, 50.0])
def test_a_choice_draws_gumbel_noise_of_the_range_over_epsilon(neighbours, ray):
    selection = make_selection(0.25, make_search(Hinge(), 2, 1.5, neighbours))
    noise = RecordingNoise()
    problem = make_problem([[1.0, 0.0]], [1], Hinge(), 2)
    steps = STEPS[::-1]  # the longest step counts, wherever it stands
    selection.release(problem, np.zeros(3), ray * np.array([0.6, 0.0, -0.8]), steps, 0 * steps, noise)
    spread = (1 if neighbours == "add_remove" else 2) * min(1.5, ROW * ray)
    ((kind, scale),) = noise.draws
    assert kind == "gumbel"
    assert scale == pytest.approx(spread / 0.25, rel=2e-3)
    assert scale >= spread / 0.25
    assert selection.noise_scale == selection.sensitivity / 0.25


def test_choices_have_the_law_of_the_exponential_mechanism():
    """Chi-squared over five candidates, 2,000 choices; seeded, false alarms 1e-6. Half the noise is seen at once."""
    search = make_search(Hinge(), 2, 1.5, row_norm=1.0, n_samples=4)
    selection = make_selection(0.8, search)
    problem, weights, direction, steps = hand_made(), np.zeros(2), np.array([-0.4, 0.9]), np.r_[0.0, STEPS[3::-1]]
    penalties = np.array([0.0, 1.0, 0.3, 2.0, 0.5])
    scores = penalties - queries(problem, weights, direction, steps, 1.5)
    spread = loss_range(selection, weights, direction, 1.0)
    noise, path = SeededNoise(5), Path(problem)
    counts = np.bincount(
        [selection.release(path, weights, direction, steps, penalties, noise) for _ in range(2000)], minlength=5
    )

    def distance(epsilon):
        expected = 2000 * np.exp(selection_law(scores, spread, epsilon))
        return ((counts - expected) ** 2 / expected).sum()

    assert distance(0.8) < chi2.isf(1e-6, 4) < distance(1.6)


@pytest.mark.parametrize("case", CASES)
def test_without_noise_the_best_step_is_chosen(case, rng):
    loss, n_classes = CASES[case]
    selection = make_selection(inf, make_search(loss, n_classes, 2.0, n_samples=40))
    X, codes = rng.normal(size=(40, 2)), rng.integers(0, n_classes, 40)
    problem = make_problem(X, codes, loss, n_classes)
    chosen = set()
    for _ in range(30):
        shape = (3,) if n_classes == 2 else (3, 3)
        weights, direction = rng.normal(size=shape), rng.normal(size=shape)
        penalties = rng.uniform(0, 5, 12)
        totals = [
            np.minimum(problem.losses(problem.scores(weights - step * direction)), 2.0).sum() + penalty
            for step, penalty in zip(STEPS, penalties, strict=True)
        ]
        index = selection.release(problem, weights, direction, STEPS, penalties, RecordingNoise())
        assert index == np.argmin(totals)
        chosen.add(index)
    assert len(chosen) > 3


def test_rounding_of_large_penalties_widens_the_spread():
    problem = Problem(np.eye(2), np.ones(2), Logistic(), data_norm=1.0)
    noise = RecordingNoise()
    question = StepSelection(1.0, 2.0, 1.0, 1.0, "replace_one", 2, 2)
    scales = []
    for penalty in (0.0, 2.0**56):
        noise.draws.clear()
        question.release(problem, np.zeros(2), np.ones(2), np.array([0.0, 1.0]), np.full(2, penalty), noise)
        scales.append(noise.draws[0][1])
    assert scales[1] - scales[0] == pytest.approx(2.0**-50 * 2.0**56, rel=0.01)
