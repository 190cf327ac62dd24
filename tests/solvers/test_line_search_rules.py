"""Solvers that ask the data for their steps: when a level rises or a range shrinks, and what is averaged."""

from math import sqrt

import numpy as np
import pytest
from line_search_cases import EXPECTED_WARNINGS, FEW, facts, fitted, problem_for, records
from scipy.stats import chi2

from dpskl.curator import Curator
from dpskl.mechanisms.gradient import GaussianGradient
from dpskl.mechanisms.noise import SeededNoise
from dpskl.mechanisms.poisson_sample import PoissonSample
from dpskl.records.losses import Hinge, HuberHinge, Logistic
from dpskl.records.path import Path
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

pytestmark = EXPECTED_WARNINGS


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
