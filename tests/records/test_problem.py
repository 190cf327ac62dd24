"""The kernels against explicit per-record arrays, for every layout of X, and their memory."""

import tracemalloc

import numpy as np
import pytest
from problem_cases import CASES, LAYOUTS

from dpskl.records.design import Design
from dpskl.records.losses import Logistic
from dpskl.records.problem import Problem
from dpskl.records.rows import row_norms, summation_depth


def make(layout, case, intercept, n=777, d=9):
    rng = np.random.default_rng(1)
    X = rng.normal(size=(n, d)) * rng.uniform(0, 2, size=(n, 1))
    X[rng.random(X.shape) < 0.3] = 0
    X[5] = 0
    X[:, 3] = 0
    X = X.astype(np.float32).astype(np.float64)  # so that every layout holds the same numbers
    loss, n_classes = CASES[case]
    targets = loss.encode(rng.integers(0, n_classes, n), n_classes)
    n_outputs = 1 if n_classes == 2 else n_classes
    problem = Problem(LAYOUTS[layout](X), targets, loss, data_norm=1.5, intercept=intercept, n_outputs=n_outputs)
    scale = np.minimum(1, 1.5 / np.maximum(np.linalg.norm(X, axis=1), 1e-300))
    design = X * scale[:, None]
    if intercept:
        design = np.column_stack([design, np.full(n, intercept)])
    shape = (design.shape[1],) if n_outputs == 1 else (design.shape[1], n_outputs)
    return problem, design, rng.normal(size=shape), rng


@pytest.mark.parametrize("intercept", [0.0, 0.5])
@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_first_order_kernels_equal_per_record_sums(layout, case, intercept):
    problem, design, weights, rng = make(layout, case, intercept)
    scores = problem.scores(weights)
    np.testing.assert_allclose(scores, design @ weights, rtol=1e-10, atol=1e-10)
    np.testing.assert_allclose(problem.row_norms, np.linalg.norm(design, axis=1), rtol=1e-10)
    values = rng.normal(size=scores.shape)
    np.testing.assert_allclose(problem.adjoint(values), design.T @ values, rtol=1e-10, atol=1e-10)

    residuals = problem.loss.residuals(design @ weights, problem.targets)
    gradients = design[:, :, None] * residuals.reshape(len(design), 1, -1)
    sizes = np.sqrt((gradients**2).sum(axis=(1, 2)))
    for clip_norm in (np.inf, 0.4):
        factor = np.minimum(1, clip_norm / np.maximum(sizes, 1e-300))
        expected = (gradients * factor[:, None, None]).sum(axis=0).reshape(weights.shape)
        np.testing.assert_allclose(problem.gradient_sum(weights, clip_norm), expected, rtol=1e-10, atol=1e-9)
    assert (sizes > 0.4).any()
    assert (sizes < 0.4).any()  # else clipping was not tested

    direction = rng.normal(size=weights.shape)
    steps = [0.0, 0.1, 1.0, 3.0]
    for cap in (np.inf, 0.8):
        direct = [np.minimum(problem.losses(design @ (weights - step * direction)), cap).sum() for step in steps]
        along = problem.ray_losses(scores, problem.scores(direction), steps, cap)
        np.testing.assert_allclose(along, direct, rtol=1e-6)  # losses along a ray are computed in float32

    scaling = rng.uniform(0, 2, design.shape[1])
    np.testing.assert_allclose(
        problem.transformed_row_norms(scaling), np.linalg.norm(design * scaling, axis=1), rtol=1e-10
    )
    for j in range(design.shape[1]):
        np.testing.assert_allclose(problem.column(j), design[:, j], rtol=1e-10, atol=1e-14)
    indices = rng.choice(len(design), 50, replace=False)
    batch = problem.batch(indices)
    np.testing.assert_allclose(batch.scores(weights), scores[indices], rtol=1e-10, atol=1e-10)
    np.testing.assert_array_equal(batch.targets, problem.targets[indices])
    assert problem.batch(indices[:0]).gradient_sum(weights, 1.0) == pytest.approx(np.zeros(weights.shape))


@pytest.mark.parametrize("intercept", [0.0, 0.5])
@pytest.mark.parametrize("case", ["logistic", "huber", "one-vs-rest"])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_second_order_kernels_equal_per_record_sums(layout, case, intercept):
    problem, design, weights, rng = make(layout, case, intercept)
    column = 0 if problem.n_outputs > 1 else None
    part = problem.output(0)
    w = weights if column is None else weights[:, column]
    loss, signs = part.loss, part.targets
    margins = signs * (design @ w)
    gradient, hessian = part.gradient_hessian(w)
    np.testing.assert_allclose(gradient, design.T @ (signs * loss.slope(margins)), rtol=1e-9, atol=1e-9)
    expected = design.T @ (loss.curvature(margins)[:, None] * design)
    np.testing.assert_allclose(hessian, expected, rtol=1e-9, atol=1e-9)
    gradient_again, curvature = part.gradient_curvature(w)
    np.testing.assert_allclose(gradient_again, gradient)
    np.testing.assert_allclose(curvature, loss.curvature(margins), rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(part.weighted_gram(curvature), expected, rtol=1e-9, atol=1e-9)
    v = rng.normal(size=w.shape)
    np.testing.assert_allclose(part.gram_product(curvature, v), expected @ v, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_rows_never_exceed_the_declared_norm(layout):
    rng = np.random.default_rng(2)
    X = rng.normal(size=(500, 40)) * 10.0 ** rng.integers(-3, 6, size=(500, 1))
    problem = Design(LAYOUTS[layout](X), data_norm=1.0)
    # the bounded rows, one coordinate at a time, summed in extended precision
    columns = np.stack([problem.column(j) for j in range(40)]).astype(np.longdouble)
    assert np.sqrt((columns**2).sum(axis=0)).max() <= 1


def test_rows_beyond_the_largest_square_are_scaled_to_nothing():
    X = np.array([[1e200, 1e200], [3.0, 4.0]])
    problem = Design(X, data_norm=1.0, intercept=1.0)
    assert np.isfinite(problem.scores(np.ones(3))).all()
    assert problem.row_norms.max() <= np.sqrt(2)
    np.testing.assert_array_equal(problem.scores(np.array([1e200, -1e200, 2.0]))[0], 2.0)
    np.testing.assert_array_equal(problem.transformed_row_norms(np.array([1e150, 1.0, 3.0]))[0], 3.0)


@pytest.mark.parametrize("layout", ["C64", "F64", "C32", "F32", "csr64", "csr32"])
def test_no_copy_of_X_and_no_temporary_of_its_size(layout):
    rng = np.random.default_rng(3)
    n, d = 150_000, 60
    X = rng.normal(size=(n, d))
    X[rng.random(X.shape) < 0.5] = 0
    X = LAYOUTS[layout](X)
    size = X.nbytes if isinstance(X, np.ndarray) else X.data.nbytes
    loss = Logistic()
    targets = loss.encode(rng.integers(0, 2, n), 2)
    weights = rng.normal(size=d + 1)
    tracemalloc.start()
    problem = Problem(X, targets, loss, data_norm=1.0, intercept=0.5)
    problem.gradient_sum(weights, 0.5)
    problem.gradient_hessian(weights)
    scores = problem.scores(weights)
    problem.ray_losses(scores, scores, [0.5, 1.0])
    problem.transformed_row_norms(np.ones(d + 1))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    vectors = 8 * 8 * n  # a handful of vectors of length n are allowed
    block = 6 << 20
    assert peak < vectors + block, f"{peak / 2**20:.1f} MiB at a data size of {size / 2**20:.1f} MiB"
    assert vectors + block < 8 * n * d / 3  # the bound would notice a float64 copy


def test_float32_input_is_summed_in_float64():
    # in float32 the running sum would stop growing at 2^24
    n = 2**17
    X = np.full((n, 1), 2.0**12, dtype=np.float32)
    X[::2] += 1
    problem = Problem(X, np.ones(n), Logistic(), data_norm=1e6)
    total = problem.adjoint(np.ones(n))[0]
    assert total == n * 2.0**12 + n / 2


def test_row_norms_are_float64():
    X = np.full((3, 4), 1e30, dtype=np.float32)
    np.testing.assert_allclose(row_norms(X), 2e30, rtol=1e-6)


def test_summation_depth_covers_both_layouts():
    assert summation_depth(10, 5) >= 10
    assert summation_depth(10**6, 100) < 5 * 10**4  # far below n, which one long sum would need
    for n, d in [(10**5, 3), (10**5, 1000)]:
        problem = Design(np.zeros((10, d)), data_norm=1.0)
        height = problem._rows.height
        assert summation_depth(n, d) >= min(n, height) + n // height
