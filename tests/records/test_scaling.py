"""Columns scaled and then shortened along directions: the map beside its matrix."""

import numpy as np
import pytest
from problem_cases import LAYOUTS
from whitened_cases import make, matrix_of, shortened_scaling

from dpskl.records.design import Design
from dpskl.records.scaling import ShortenedScaling


@pytest.mark.parametrize("k", [0, 1, 3, 10])
def test_shorten_and_lengthen_are_inverse_and_equal_their_matrix(k):
    transform = shortened_scaling(10, k)
    U, factors = transform.directions, transform.factors
    B = U @ np.diag(factors) @ U.T + np.eye(10) - U @ U.T
    for shape in ((10,), (10, 4)):
        v = np.random.default_rng(4).normal(size=shape)
        np.testing.assert_allclose(transform.shorten(v), B @ v, rtol=1e-12, atol=1e-13)
        np.testing.assert_allclose(transform.lengthen(v), np.linalg.solve(B, v), rtol=1e-10, atol=1e-11)
        np.testing.assert_allclose(transform.lengthen(transform.shorten(v)), v, rtol=1e-12, atol=1e-13)
        np.testing.assert_allclose(transform.shorten(transform.lengthen(v)), v, rtol=1e-12, atol=1e-13)
        # no direction becomes longer
        assert np.linalg.norm(transform.shorten(v)) <= np.linalg.norm(v) * (1 + 1e-15)


@pytest.mark.parametrize("intercept", [0.0, 0.5])
@pytest.mark.parametrize("case", ["logistic", "softmax"])
@pytest.mark.parametrize("k", [0, 1, 4])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_norms_and_clipped_sums_equal_those_of_explicit_rows(layout, k, case, intercept):
    problem, design, weights, _ = make(layout, case, intercept)
    D = design.shape[1]
    transform = shortened_scaling(D, k)
    W = matrix_of(transform)
    norms = np.linalg.norm(design @ W, axis=1)
    np.testing.assert_allclose(problem.transformed_row_norms(transform), norms, rtol=1e-9, atol=1e-9)
    residuals = problem.loss.residuals(design @ weights, problem.targets)
    gradients = design[:, :, None] * residuals.reshape(len(design), 1, -1)
    sizes = np.linalg.norm(np.einsum("jk,ijm->ikm", W, gradients).reshape(len(design), -1), axis=1)
    bound = np.median(sizes[sizes > 0])
    factors = np.minimum(1, bound / np.maximum(sizes, 1e-300))
    expected = (gradients * factors[:, None, None]).sum(axis=0).reshape(weights.shape)
    for _ in range(2):  # the second time with the norms that were kept
        np.testing.assert_allclose(problem.gradient_sum(weights, bound, transform), expected, rtol=1e-9, atol=1e-9)
    batch = problem.batch(np.arange(40, 80))
    np.testing.assert_allclose(batch._transformed_norms(transform), norms[40:80], rtol=1e-9, atol=1e-9)
    # another map with the same scales is another map
    other = shortened_scaling(D, 5)
    assert not np.allclose(problem.gradient_sum(weights, bound, other), expected, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("layout", ["C64", "csr64"])
def test_rows_along_what_is_shortened_keep_their_digits(layout):
    """Norms are differences of squares: at a factor of 1e-3 off by 1e6 roundings, at 1e-9 not below the factor."""
    rng = np.random.default_rng(6)
    directions = np.linalg.qr(rng.normal(size=(9, 2)))[0]
    X = LAYOUTS[layout](rng.normal(size=(1500, 2)) @ directions.T)
    design = Design(X, data_norm=1.0, rows="sphere")
    for factor in (1e-3, 1e-9):
        norms = design.transformed_row_norms(ShortenedScaling(np.ones(9), directions, np.array([factor, factor])))
        assert norms.min() >= factor * (1 - 1e-11)
        if factor == 1e-3:
            np.testing.assert_allclose(norms, factor, rtol=1e6 * 20 * 2.0**-53)


def test_directions_must_be_orthonormal_and_arrays_become_read_only():
    good = np.linalg.qr(np.random.default_rng(0).normal(size=(6, 2)))[0]
    for bad in (2 * good, good + 1e-9, good[:, [0, 0]], good * (1 + 1e-12)):
        with pytest.raises(ValueError, match="directions must be orthonormal"):
            ShortenedScaling(np.ones(6), bad, np.array([0.5, 0.5]))
    transform = ShortenedScaling(np.ones(6), good, np.array([0.5, 0.5]))
    for array in (transform.scales, transform.directions, transform.factors):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 2.0


@pytest.mark.parametrize("layout", ["C64", "F64", "C32", "F32", "csr64", "csr32"])
@pytest.mark.parametrize("intercept", [0.0, 0.5])
def test_the_moment_of_long_rows_is_the_plain_product(layout, intercept):
    """Rows of 300 entries: blocks are higher than what fits the cache, and the last of them is not full."""
    problem, design, _, rng = make(layout, "logistic", intercept, n=3000, d=300)
    weights = rng.uniform(size=3000)
    weights[::7] = 0
    gram = problem.weighted_gram(weights)
    np.testing.assert_array_equal(gram, gram.T)
    np.testing.assert_allclose(gram, (design.T * weights) @ design, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(problem.weighted_gram(np.ones(3000)), design.T @ design, rtol=1e-9, atol=1e-9)
