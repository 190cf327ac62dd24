"""Scaled columns whose common directions are shortened: what is left of them, and what noise is not taken for."""

from math import inf, log, sqrt

import numpy as np
import pytest
from whitened_cases import matrix_of, on_sphere, part_of

from dpskl.mechanisms.whitener import MOST_DIRECTIONS, ScalingWhitener, whitener_condition

LEVEL = 2.5


def moment_of(X, intercept=0.3):
    design = on_sphere(X, 1.0, intercept)
    return design.T @ design / len(design)


def whitener_of(M, part="full", level=LEVEL, ridge=1e-6, noise_scale=0.0, has_constant=True):
    return ScalingWhitener(part_of(part, M), part, ridge, 1.0, level, noise_scale, has_constant)


def whitened(whitener, M):
    """What is left of a moment: its eigenvalues, ascending, and the matrix itself."""
    W = matrix_of(whitener.transform)
    left = W.T @ M @ W
    return np.linalg.eigvalsh(left), left


def factors_in_common(n, d, n_factors, rng):
    return rng.normal(size=(n, n_factors)) @ rng.normal(size=(n_factors, d)) + 0.3 * rng.normal(size=(n, d))


@pytest.mark.parametrize("n_factors", [1, 3])
def test_no_eigenvalue_is_left_above_the_level_where_the_moment_is_known(n_factors):
    M = moment_of(factors_in_common(3000, 40, n_factors, np.random.default_rng(0)), intercept=0.0)
    plain, _ = whitened(whitener_of(M, "diagonal"), M)
    assert plain[-1] > 5 * LEVEL or n_factors == 3
    assert np.sum(plain > LEVEL) == n_factors
    whitener = whitener_of(M, has_constant=False)
    values, left = whitened(whitener, M)
    assert len(whitener.transform.factors) == n_factors
    assert values[-1] == pytest.approx(LEVEL)
    np.testing.assert_allclose(values[: -n_factors - 1], plain[: -n_factors - 1], atol=1e-9)  # and no other changes
    assert whitener.effective_dimension == pytest.approx(np.trace(left))
    assert np.all(whitener.transform.factors >= whitener.shortest)


@pytest.mark.parametrize("part", ["full", "arrow"])
@pytest.mark.parametrize("shift", [0.0, 0.5])
def test_the_origin_of_columns_does_not_matter_where_there_is_a_constant(shift, part):
    """Columns of [0, 1], and the same about 0: their means in common are what the constant explains."""
    rng = np.random.default_rng(1)
    M = moment_of(rng.uniform(size=(5000, 50)) - shift)
    plain, _ = whitened(whitener_of(M, "diagonal"), M)
    assert (plain[-1] > 30) == (shift == 0)
    whitener = whitener_of(M, part)
    values, left = whitened(whitener, M)
    assert values[-1] <= LEVEL * 1.05
    if part == "arrow":
        assert len(whitener.transform.factors) == (shift == 0)
    assert whitener.effective_dimension == pytest.approx(np.trace(left), abs=1.0)


def test_two_columns_whole_and_in_part_are_not_confused():
    M = np.array([[0.6, 0.45], [0.45, 0.4]])
    given = {"full": M, "arrow": np.array([[0.6, 0.4], [0.45, 0.4]])}
    made = {part: ScalingWhitener(given[part], part, 1e-9, 1.0, 1.2, 0.0, has_constant=True) for part in given}
    for whitener in made.values():
        np.testing.assert_allclose(whitener.transform.scales, 1 / np.sqrt([0.6, 0.4]))
        # b = (0.45 / (0.6 * 0.4)^(1/2), 1)
        b = np.array([0.45 / sqrt(0.24), 1.0])
        np.testing.assert_allclose(whitener.transform.factors, sqrt(1.2 / (1 + b @ b)))
        np.testing.assert_allclose(np.abs(whitener.transform.directions[:, 0]), b / np.linalg.norm(b))
    swapped = ScalingWhitener(given["arrow"], "full", 1e-9, 1.0, 1.2, 0.0, has_constant=True)
    assert not np.allclose(swapped.transform.factors, made["full"].transform.factors, rtol=1e-2)


@pytest.mark.parametrize("part", ["full", "arrow", "diagonal"])
@pytest.mark.parametrize("D", [1, 2, 7, 60])
@pytest.mark.parametrize("noise_scale", [0.0, 1.0, 1e6, 1e150])
def test_odd_moments_give_finite_maps_within_their_bounds(noise_scale, D, part):
    rng = np.random.default_rng(2)
    noise = rng.normal(size=(D, D)) * noise_scale
    noise = np.triu(noise) + np.triu(noise, 1).T
    columns = np.ones(D)
    columns[0] = 0
    for exact in (np.zeros((D, D)), np.outer(columns, columns) / D, np.eye(D) / D):
        M = exact + noise
        ridge = max(1e-6, noise_scale / 4)
        whitener = ScalingWhitener(part_of(part, M), part, ridge, 1.0, 1.5, noise_scale, has_constant=True)
        transform = whitener.transform
        assert len(transform.factors) <= min(D, MOST_DIRECTIONS)
        for array in (transform.scales, transform.directions, transform.factors):
            assert np.isfinite(array).all()
        assert np.all(transform.factors >= whitener.shortest)
        assert np.all(transform.factors < 1)
        assert 1 <= whitener.effective_dimension <= max(D, 1)
        assert np.linalg.cond(matrix_of(transform)) <= whitener.condition * (1 + 1e-9)
        assert whitener.condition == pytest.approx(whitener_condition(ridge, 1.0) / whitener.shortest)
        for penalty in (0.0, 1e-300, 1.0, inf):
            assert np.isfinite(whitener.shrunk(np.ones(D), penalty)).all()


def test_maps_of_weights_gradients_and_the_penalty_equal_their_matrices():
    rng = np.random.default_rng(3)
    M = moment_of(factors_in_common(500, 9, 2, rng) + 1.0)
    for part in ("full", "arrow", "diagonal"):
        whitener = whitener_of(M, part, level=1.2, ridge=0.01)
        assert (len(whitener.transform.factors) > 0) == (part != "diagonal")
        W, eye = matrix_of(whitener.transform), np.eye(10)
        for v in (rng.normal(size=10), rng.normal(size=(10, 3))):
            np.testing.assert_allclose(whitener.to_weights(v), W @ v, rtol=1e-10, atol=1e-10)
            np.testing.assert_allclose(whitener.to_whitened(v), W.T @ v, rtol=1e-10, atol=1e-10)
            np.testing.assert_allclose(whitener.shrunk(v, 0.0), v, rtol=1e-12, atol=1e-12)
            for penalty in (1e-3, 1.0, 1e4):
                explicit = np.linalg.solve(eye + penalty * W.T @ W, v)
                np.testing.assert_allclose(whitener.shrunk(v, penalty), explicit, rtol=1e-8, atol=1e-10)
            np.testing.assert_array_equal(whitener.shrunk(v, inf), 0 * v)


def test_no_more_directions_than_rounding_is_bounded_for_and_the_largest_of_them():
    D = 100
    turn = np.linalg.qr(np.random.default_rng(4).normal(size=(D, D)))[0]
    M = (turn * np.where(np.arange(D) < 50, 30.0 + np.arange(D), 0.0)) @ turn.T
    np.fill_diagonal(M, 1.0)
    whitener = whitener_of(M, has_constant=False)
    values = np.linalg.eigvalsh(M / (1 + 1e-6))[::-1][:MOST_DIRECTIONS]
    assert len(whitener.transform.factors) == MOST_DIRECTIONS == 32
    np.testing.assert_allclose(whitener.transform.factors, np.sqrt(LEVEL / np.minimum(values, D + 1)))
    assert ScalingWhitener.shortest_of(LEVEL, 1) == 1.0


@pytest.mark.parametrize(("norm", "level"), [(0.5, 2.5), (1.0, 2.5), (6.0, 2.5), (20.0, 2.5), (4.0, 5.0), (8.0, 5.0)])
def test_noise_alone_seldom_stands_out(norm, level):
    """Around the identity, at norms of the noise given in mean eigenvalues: none of 300 moments was seen to.

    A rate of 1 in 100 would fail once in 1,000 runs, one of 1 in 10 always.
    """
    rng, D, count = np.random.default_rng(5), 40, 0
    noise_scale = norm / sqrt(2 * D)
    ridge = 0.25 * sqrt(2 * log(2 * D)) * noise_scale  # as the solver takes it
    for _ in range(300):
        noise = rng.normal(size=(D, D)) * noise_scale
        noise = np.diag(np.diag(noise)) + (np.triu(noise, 1) + np.triu(noise, 1).T) / sqrt(2)
        whitener = ScalingWhitener(np.eye(D) + noise, "full", ridge, D, level, noise_scale, has_constant=False)
        count += len(whitener.transform.factors) > 0
    assert count <= 9
    # and what is far above the noise does
    u = np.full(D, 1 / sqrt(D))
    signal = np.eye(D) + 20 * max(norm, 2.0) * np.outer(u, u) + noise
    whitener = ScalingWhitener(signal, "full", ridge, 99.0 * D, level, noise_scale, has_constant=False)
    assert len(whitener.transform.factors) == 1
    assert abs(whitener.transform.directions[:, 0] @ u) > 0.8
