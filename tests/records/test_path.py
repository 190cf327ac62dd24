"""A path answers what its problem answers, with as few passes over X as it promises."""

from math import inf

import numpy as np
import pytest
import scipy.sparse as sp

from dpskl.records.losses import Hinge, HuberHinge, Logistic, Softmax
from dpskl.records.path import Path
from dpskl.records.problem import Problem

CASES = {"logistic": (Logistic(), 2), "huber": (HuberHinge(0.2), 2), "softmax": (Softmax(), 4), "rest": (Hinge(), 3)}
LAYOUTS = {
    "C": np.ascontiguousarray,
    "F": np.asfortranarray,
    "float32": lambda X: X.astype(np.float32),
    "csr": sp.csr_array,
    "csr float32": lambda X: sp.csr_array(X.astype(np.float32)),
}
STEPS = 0.7 ** np.arange(8)


def make_problem(case="logistic", layout="C", n=233, d=5, intercept=0.3):
    loss, n_classes = CASES[case]
    rng = np.random.default_rng(4)
    X = rng.normal(size=(n, d)) * (rng.random((n, d)) < 0.6)
    X = LAYOUTS[layout](X)
    if isinstance(X, np.ndarray):
        X.setflags(write=False)
    codes = rng.integers(0, n_classes, n)
    n_outputs = 1 if n_classes == 2 else n_classes
    targets = loss.encode(codes, n_classes)
    return Problem(X, targets, loss, data_norm=1.5, intercept=intercept, n_outputs=n_outputs)


class Counted:
    """Counts the passes that a path makes: products with X and gradients at scores."""

    def __init__(self, monkeypatch):
        self.scores = self.gradients = 0
        self.original = Problem.scores, Problem.gradient_sum_at
        counted = self

        def scores(problem, weights):
            counted.scores += 1
            return counted.original[0](problem, weights)

        def gradient_sum_at(problem, *arguments):
            counted.gradients += 1
            return counted.original[1](problem, *arguments)

        def refuse(*_):
            raise AssertionError("a pass of its own")

        monkeypatch.setattr(Problem, "scores", scores)
        monkeypatch.setattr(Problem, "gradient_sum_at", gradient_sum_at)
        monkeypatch.setattr(Problem, "gradient_sum", refuse)

    @property
    def passes(self):
        return self.scores + self.gradients


@pytest.mark.parametrize("intercept", [0.0, 0.3])
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("case", CASES)
def test_answers_are_those_of_the_problem_on_the_path_and_off_it(case, layout, intercept):
    problem = make_problem(case, layout, intercept=intercept)
    path = Path(problem)
    assert (path.n_samples, path.n_features) == (233, 5)
    weights = path.zeros()
    assert weights.shape == problem.zeros().shape
    rng = np.random.default_rng(7)
    for update in range(12):
        clip_norm = inf if update % 3 == 0 else 0.4
        gradient = path.gradient_sum(weights, clip_norm)
        np.testing.assert_allclose(gradient, problem.gradient_sum(weights, clip_norm), rtol=1e-9, atol=1e-10)
        direction = gradient / 233 + 0.1 * rng.normal(size=gradient.shape)
        cap = 1.0 if update % 2 else inf
        losses = path.losses_along(weights, direction, STEPS, cap)
        expected = [np.minimum(problem.losses(problem.scores(weights - step * direction)), cap).sum() for step in STEPS]
        np.testing.assert_allclose(losses, expected, rtol=0, atol=233 * 2e-6)
        is_off = update % 5 == 4
        weights = rng.normal(size=weights.shape) if is_off else weights - STEPS[update % 8] * direction


def test_an_update_makes_two_passes_whatever_the_number_of_steps(monkeypatch):
    counted = Counted(monkeypatch)
    path = Path(make_problem())
    weights = path.zeros()
    for update in range(6):
        gradient = path.gradient_sum(weights, 0.5)
        for start in range(0, 8, 3):  # in chunks, and the start of the ray on its own
            path.losses_along(weights, gradient, STEPS[start : start + 3], 1.0)
            path.losses_along(weights, gradient, np.zeros(1), 1.0)
        weights = weights - STEPS[update] * gradient
        assert (counted.scores, counted.gradients) == (update + 1, update + 1)


def test_repeated_questions_make_no_pass(monkeypatch):
    counted = Counted(monkeypatch)
    path = Path(make_problem())
    weights = path.zeros()
    first = path.gradient_sum(weights, 0.5)
    assert counted.passes == 1  # scores at the start are known
    for _ in range(5):
        np.testing.assert_array_equal(path.gradient_sum(weights.copy(), 0.5), first)
    assert counted.passes == 1
    path.losses_along(weights, first, STEPS)
    path.losses_along(weights.copy(), first.copy(), 2 * STEPS, 3.0)
    assert counted.passes == 2
    path.gradient_sum(weights, 0.25)  # another clip is another sum
    assert counted.passes == 3
    path.losses_along(weights, 2 * first, STEPS)  # and another direction another product
    assert counted.passes == 4


def test_steps_that_were_not_asked_about_cost_a_fresh_product(monkeypatch):
    counted = Counted(monkeypatch)
    problem = make_problem()
    path = Path(problem)
    weights = path.zeros()
    direction = path.gradient_sum(weights)
    path.losses_along(weights, direction, STEPS)
    counted.scores = 0
    path.gradient_sum(weights - 0.123 * direction)
    assert counted.scores == 1
    # and back at the start the old direction is not used for another ray
    path.gradient_sum(weights)
    assert counted.scores == 2
    moved = path.losses_along(weights, -direction, STEPS)
    expected = problem.ray_losses(np.zeros(233), counted.original[0](problem, -direction), STEPS)
    np.testing.assert_array_equal(moved, expected)


def test_what_callers_do_to_arrays_does_not_reach_the_cache():
    problem = make_problem()
    path = Path(problem)
    weights = path.zeros()
    expected = problem.gradient_sum(weights)
    gradient = path.gradient_sum(weights)
    direction = gradient.copy()
    gradient[:] = 1e9
    np.testing.assert_allclose(path.gradient_sum(weights), expected, rtol=1e-12)
    losses = path.losses_along(weights, direction, STEPS)
    kept, was = losses.copy(), direction.copy()
    losses[:] = -1
    direction *= 5
    np.testing.assert_array_equal(path.losses_along(weights, was, STEPS), kept)
    np.testing.assert_allclose(
        path.losses_along(weights, direction, STEPS), path.losses_along(weights, was, 5 * STEPS), rtol=1e-6
    )
    weights += 1.0  # the caller's own array, changed in place
    np.testing.assert_allclose(path.gradient_sum(weights), problem.gradient_sum(weights), rtol=1e-12)
    path.zeros()[:] = 7
    assert not path.zeros().any()


def test_rounding_along_a_long_path_stays_that_of_single_records():
    """After 300 updates the scores are off by rounding, and no record's rounding depends on another record."""
    problem = make_problem(n=60)
    kept = np.arange(60) != 17
    rest = problem.batch(np.flatnonzero(kept))
    paths = Path(problem), Path(rest)
    rng = np.random.default_rng(0)
    weights = problem.zeros()
    for _ in range(300):
        direction = rng.normal(size=weights.shape)
        for path in paths:
            path.losses_along(weights, direction, STEPS)
        weights = weights - STEPS[3] * direction
        for path in paths:
            path.gradient_sum(weights)
    fresh = problem.scores(weights)
    np.testing.assert_allclose(paths[0]._scores, fresh, rtol=0, atol=1e-12)
    np.testing.assert_allclose(paths[0]._scores[kept], paths[1]._scores, rtol=0, atol=1e-13)


def test_an_empty_problem_has_empty_sums():
    path = Path(make_problem().batch(np.zeros(0, dtype=int)))
    weights = path.zeros()
    assert not path.gradient_sum(weights, 0.5).any()
    assert not path.losses_along(weights, np.ones(weights.shape), STEPS, 1.0).any()
