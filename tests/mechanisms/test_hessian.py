"""The noisy Hessian: what one record moves in all outputs together, and that nothing but noise is added."""

from math import inf, sqrt

import numpy as np
import pytest
from conftest import RecordingNoise
from problem_cases import LAYOUTS
from whitened_cases import NEIGHBOURS, make, on_sphere

from dpskl.mechanisms.hessian import GaussianHessian
from dpskl.mechanisms.sensitivity import contributions
from dpskl.records.losses import Hinge, HuberHinge, Logistic, Softmax
from dpskl.records.problem import Problem


def problem_of(X, targets, loss, n_outputs, rows="sphere"):
    return Problem(X, targets, loss, data_norm=1.5, intercept=0.4, n_outputs=n_outputs, rows=rows)


@pytest.mark.parametrize("is_majorant", [True, False])
@pytest.mark.parametrize("n_outputs", [1, 3])
@pytest.mark.parametrize("loss", [Logistic(), HuberHinge(0.2)], ids=repr)
def test_one_record_moves_the_matrices_by_at_most_the_sensitivity(loss, n_outputs, is_majorant):
    rng = np.random.default_rng(3)
    worst = dict.fromkeys(NEIGHBOURS, 0.0)
    for trial in range(150):
        n, d = int(rng.integers(2, 5)), 3
        X = rng.normal(size=(n + 1, d)) * 10.0 ** rng.uniform(-1, 2, size=(n + 1, 1))
        targets = rng.choice([-1.0, 1.0], size=(n + 1, n_outputs))
        weights = rng.normal(size=(d + 1, n_outputs)) * 10.0 ** rng.uniform(-2, 2)
        if trial % 3 == 0:  # rows on two axes, where the loss bends most in all outputs
            X[0], X[-1] = [1e9, 0, 0], [0, 1e9, 0]
            targets[:] = 1.0
            weights = np.zeros((d + 1, n_outputs))
            weights[:2] = 0.0 if isinstance(loss, Logistic) else 1 / 1.5
        if n_outputs == 1:
            targets, weights = targets[:, 0], weights[:, 0]

        def released(rows, X=X, targets=targets, weights=weights, n=n):
            mechanism = GaussianHessian(1.5, inf, is_majorant, n_outputs, "add_remove", n, 3)
            return mechanism.release(problem_of(X[rows], targets[rows], loss, n_outputs), weights, RecordingNoise())

        rest, first, last = (released(rows) for rows in (np.arange(1, n), np.arange(n), np.arange(1, n + 1)))
        worst["add_remove"] = max(worst["add_remove"], np.linalg.norm(first - rest))
        worst["replace_one"] = max(worst["replace_one"], np.linalg.norm(last - first))
    for neighbours, distance in worst.items():
        stated = GaussianHessian(1.5, 1.0, is_majorant, n_outputs, neighbours, 5, 3).sensitivity
        assert stated == pytest.approx(1.5**2 * sqrt(n_outputs * contributions(neighbours)), rel=1e-9)
        assert 0.999 * stated <= distance <= stated


@pytest.mark.parametrize("case", ["logistic", "huber", "one-vs-rest"])
@pytest.mark.parametrize("intercept", [0.0, 0.5])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_without_noise_it_is_the_sum_of_the_hessians_of_the_records(layout, intercept, case):
    problem, design, weights, _ = make(layout, case, intercept, n=200)
    signs = problem.targets.reshape(len(design), -1)
    margins = signs * (design @ weights).reshape(len(design), -1)
    for is_majorant in (True, False):
        mechanism = GaussianHessian(1.5, inf, is_majorant, problem.n_outputs, "add_remove", 200, 9)
        released = mechanism.release(problem, weights, RecordingNoise())
        curvature = (problem.loss.majorant if is_majorant else problem.loss.curvature)(margins)
        expected = np.einsum("nk,np,nq->kpq", curvature / problem.loss.curvature_bound, design, design)
        np.testing.assert_allclose(released, expected, rtol=1e-6, atol=1e-6)


def test_matrices_are_symmetric_and_every_entry_has_noise():
    X = np.random.default_rng(0).normal(size=(20, 3))
    targets = np.ones((20, 2))
    mechanism = GaussianHessian(1.5, 0.5, False, 2, "add_remove", 20, 3)

    class Counting(RecordingNoise):
        def normal(self, size, scale):
            super().normal(size, scale)
            return np.arange(1.0, 1 + np.prod(size)).reshape(size) * 10.0 ** len(self.draws)

    noise = Counting()
    problem = problem_of(X, targets, Logistic(), 2)
    moved = mechanism.release(problem, problem.zeros(), noise)
    moved = moved - mechanism.release(problem, problem.zeros(), RecordingNoise())
    np.testing.assert_array_equal(moved, moved.transpose(0, 2, 1))
    np.testing.assert_allclose(np.diag(moved[0]), [10, 20, 30, 40], atol=1e-4)
    assert (np.abs(moved[1]) > 9 * np.abs(moved[0])).all()
    assert noise.draws == [("normal", mechanism.noise_scale)] * 2


def test_a_rounded_curvature_above_its_bound_is_cut():
    class Rounded(Logistic):
        def curvature(self, margins):
            return np.full(margins.shape, 0.2500001)

    X = np.eye(2)
    problem = Problem(X, np.ones(2), Rounded(), data_norm=1.0, rows="sphere")
    mechanism = GaussianHessian(1.0, inf, False, 1, "add_remove", 2, 2)
    (released,) = mechanism.release(problem, np.zeros(2), RecordingNoise())
    np.testing.assert_allclose(released, np.eye(2), atol=1e-9)


@pytest.mark.parametrize(
    ("row_norm", "n_outputs", "loss", "message"),
    [
        (1.49, 1, Logistic(), r"row_norm=1\.49 is for shorter rows"),
        (1.5, 3, Logistic(), "Hessians of 3 outputs were planned, not of 1"),
        (1.5, 1, Hinge(), r"smooth margin loss, and Hinge\(\)"),
        (1.5, 1, Softmax(), r"smooth margin loss, and Softmax\(\)"),
    ],
)
def test_what_the_sensitivity_is_not_for_is_refused_before_noise_is_drawn(row_norm, n_outputs, loss, message):
    noise = RecordingNoise()
    problem = problem_of(np.eye(3), np.ones(3), loss, 1)
    with pytest.raises(ValueError, match=message):
        GaussianHessian(row_norm, 1.0, True, n_outputs, "add_remove", 3, 3).release(problem, np.zeros(4), noise)
    assert noise.draws == []


def test_the_frobenius_norm_of_exchanged_rows_is_what_the_docstring_says():
    rng = np.random.default_rng(1)
    for _ in range(200):
        x, z = on_sphere(rng.normal(size=(2, 4)), 1.5, 0.0) * rng.uniform(0, 1, (2, 1))
        a, b = rng.uniform(0, 1, 2)
        moved = np.linalg.norm(a * np.outer(x, x) - b * np.outer(z, z))
        assert moved**2 == pytest.approx(a**2 * (x @ x) ** 2 + b**2 * (z @ z) ** 2 - 2 * a * b * (x @ z) ** 2)
        assert moved <= sqrt(2) * 1.5**2
