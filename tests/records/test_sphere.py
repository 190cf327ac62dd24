"""Rows mapped to a sphere: the kernels against explicit rows, and bounded norms."""

import numpy as np
import pytest
import scipy.sparse as sp
from problem_cases import CASES, LAYOUTS
from whitened_cases import make

from dpskl.records.design import Design

pytestmark = pytest.mark.filterwarnings("ignore::dpskl.SeededNoiseWarning")


@pytest.mark.parametrize("intercept", [0.0, 0.5])
@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_kernels_on_the_sphere_equal_per_record_sums(layout, case, intercept):
    problem, design, weights, rng = make(layout, case, intercept)
    close = {"rtol": 1e-9, "atol": 1e-9}
    np.testing.assert_allclose(problem.scores(weights), design @ weights, **close)
    np.testing.assert_allclose(problem.row_norms, np.linalg.norm(design, axis=1), **close)
    np.testing.assert_allclose(problem.weighted_gram(np.ones(len(design))), design.T @ design, **close)
    np.testing.assert_allclose(problem.squared_column_norms(), (design**2).sum(axis=0), **close)
    for j in range(design.shape[1]):
        np.testing.assert_allclose(problem.column(j), design[:, j], **close)
    batch = problem.batch(np.arange(40, 80))
    np.testing.assert_allclose(batch.scores(weights), design[40:80] @ weights, **close)

    residuals = problem.loss.residuals(design @ weights, problem.targets)
    gradients = design[:, :, None] * residuals.reshape(len(design), 1, -1)
    D = design.shape[1]
    vector, matrix = rng.uniform(0, 2, D), rng.normal(size=(D, D))
    for transform, linear in ((None, np.eye(D)), (vector, np.diag(vector)), (matrix, matrix)):
        if transform is not None:
            transform.flags.writeable = False
            norms = np.linalg.norm(design @ linear, axis=1)
            np.testing.assert_allclose(problem.transformed_row_norms(transform), norms, **close)
        sizes = np.linalg.norm(np.einsum("jk,ijm->ikm", linear, gradients).reshape(len(design), -1), axis=1)
        bound = np.median(sizes[sizes > 0])
        factors = np.minimum(1, bound / np.maximum(sizes, 1e-300))
        expected = (gradients * factors[:, None, None]).sum(axis=0).reshape(weights.shape)
        for _ in range(2):  # the second time with the norms that were kept
            np.testing.assert_allclose(problem.gradient_sum(weights, bound, transform), expected, **close)


def test_norms_that_are_kept_belong_to_an_array_that_cannot_change():
    problem, design, weights, _ = make("C64", "logistic", 0.5)
    with pytest.raises(AssertionError, match="must not change"):
        problem.gradient_sum(weights, 1.0, np.ones(design.shape[1]))
    with pytest.raises(ValueError, match="rows='cube'"):
        Design(design, data_norm=1.0, rows="cube")


@pytest.mark.parametrize("data_norm", [1e-100, 1.0, 1e100])
@pytest.mark.parametrize("ratio", [0.0, 0.3])
@pytest.mark.parametrize("layout", [np.ascontiguousarray, np.asfortranarray, sp.csr_array])
def test_no_row_exceeds_the_sphere_whatever_its_size(layout, ratio, data_norm):
    """Rows whose squares overflow or vanish among them: they have no direction in float64, and count as zeros."""
    rng = np.random.default_rng(2)
    X = rng.normal(size=(900, 5)) * 10.0 ** rng.integers(-170, 155, size=(900, 1))
    X[0], X[1], X[2] = 1e200, 0, 1e-170
    problem = Design(layout(X), data_norm=data_norm, intercept=ratio * data_norm, rows="sphere")
    columns = np.stack([problem.column(j) for j in range(5 + (ratio > 0))]) / data_norm
    norms = np.sqrt((columns.astype(np.longdouble) ** 2).sum(axis=0))
    assert norms.max() <= 1
    assert norms.max() >= 1 - 1e-11
    if ratio:
        assert norms.min() >= 1 - 1e-9
        np.testing.assert_allclose(columns[-1, [0, 1]], 1, rtol=1e-11)
    else:
        np.testing.assert_array_equal(columns[:, :3], 0)
    assert np.isfinite(problem.scores(np.full(problem.n_weights, 1 / data_norm))).all()
    for transform in (np.full(problem.n_weights, 1 / data_norm), np.eye(problem.n_weights) / data_norm):
        np.testing.assert_allclose(problem.transformed_row_norms(transform), norms.astype(float), rtol=1e-9)
    assert (problem.squared_column_norms() / data_norm / data_norm).sum() == pytest.approx(float((norms**2).sum()))
