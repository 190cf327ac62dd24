"""The noisy second moment: its privacy and its law by brute force."""

from math import inf, sqrt

import numpy as np
import pytest
from conftest import RecordingNoise
from problem_cases import LAYOUTS
from whitened_cases import NEIGHBOURS, GivenNoise, each_relation, entries_of, make, moment, part_of, sphere_problem

from dpskl.mechanisms.noise import SeededNoise
from dpskl.mechanisms.second_moment import PARTS, SecondMoment
from dpskl.mechanisms.sensitivity import contributions

pytestmark = pytest.mark.filterwarnings("ignore::dpskl.SeededNoiseWarning")


def covariance(mechanism, problem):
    """Covariance of the released entries, one of each symmetric pair, by the response to each unit of noise."""
    D = problem.n_weights
    n_entries = {"full": D * (D + 1) // 2, "arrow": 2 * D - 1, "diagonal": D}[mechanism.part]

    def entries(values):
        return entries_of(mechanism.part, mechanism.release(problem, GivenNoise(values)))

    still = entries(np.zeros(n_entries))
    unit = 1e6  # far above the grid that releases are rounded to
    response = np.stack([(entries(unit * row) - still) / unit for row in np.eye(n_entries)], axis=1)
    return response @ response.T


@each_relation
@pytest.mark.parametrize("part", PARTS)
def test_second_moment_is_mu_gdp_by_brute_force(part, neighbours):
    """The shift between neighbours, in standard deviations of the noise that is really added."""
    rng = np.random.default_rng(5)
    mu, worst, mixed = 0.7, 0.0, 0.0
    for data_norm, d, intercept in ((1.0, 1, 0.0), (2.5, 3, 0.0), (0.4, 3, 0.12), (1.0, 2, 0.3)):
        if part == "arrow" and intercept == 0:
            continue
        mechanism = SecondMoment(data_norm, mu, part, neighbours, 4, d)
        problem = sphere_problem(rng.normal(size=(4, d)), intercept=intercept, data_norm=data_norm)
        inverse = np.linalg.inv(covariance(mechanism, problem))
        for trial in range(150):
            X = rng.normal(size=(5, d)) * 10.0 ** rng.uniform(-2, 2, size=(5, 1))
            if trial % 3 == 0:  # orthogonal axes reach both bounds
                X[0], X[4] = 10 * np.eye(d)[0], 10 * np.eye(d)[-1]
            if is_mixed := trial % 3 == 1 and intercept > 0:  # as much constant as features, and turned about
                X[0] *= intercept / np.linalg.norm(X[0])
                X[4] = -X[0]
            first, last, rest = X[:4], X[1:], X[1:4]
            other = rest if neighbours == "add_remove" else last
            shift = moment(first, part, data_norm, intercept) - moment(other, part, data_norm, intercept)
            distance = sqrt(shift @ inverse @ shift)
            assert distance <= mu * (1 + 1e-9)
            worst = max(worst, distance)
            mixed = max(mixed, distance * is_mixed)
    assert worst >= 0.999 * mu
    # the column of the constant alone may move by all that is paid for, when a row is turned about
    assert mixed >= 0.999 * mu or part == "diagonal" or neighbours == "add_remove"


def test_noise_of_the_second_moment_is_weighted_by_its_triangle():
    problem = sphere_problem(np.ones((10, 2)))
    for neighbours in NEIGHBOURS:
        sigma = sqrt(contributions(neighbours)) / 0.5
        mechanism = SecondMoment(1.0, 0.5, "full", neighbours, 10, 2)
        assert mechanism.noise_scale == pytest.approx(sigma, rel=1e-9)
        variances = np.diag(covariance(mechanism, problem)).reshape(-1)
        expected = [1, 0.5, 0.5, 1, 0.5, 1]  # row by row of the upper triangle
        np.testing.assert_allclose(variances / sigma**2, expected, rtol=1e-5)
        arrow = SecondMoment(1.0, 0.5, "arrow", neighbours, 10, 2)
        expected = np.diag([1, 1, 1, 0.5, 0.5])  # diagonal, then its last column without the corner
        np.testing.assert_allclose(covariance(arrow, problem) / sigma**2, expected, rtol=1e-5, atol=1e-5)
        diagonal = SecondMoment(1.0, 0.5, "diagonal", neighbours, 10, 2)
        np.testing.assert_allclose(covariance(diagonal, problem) / sigma**2, np.eye(3), rtol=1e-5, atol=1e-5)
    naive = np.diag(np.full(6, 0.5))  # the smaller noise on every entry would be wrong: a row on an axis shows it
    axis = np.array([1, 0, 0, 0, 0, 0]) / sigma
    assert sqrt(axis @ np.linalg.inv(naive) @ axis) > 1.4 / sigma


@pytest.mark.parametrize("layout", LAYOUTS)
def test_second_moment_without_noise_and_its_law(layout):
    """Symmetric, of the stated scale in every layout; the mean square of 820 normals: wrong once in 10,000 runs."""
    problem, design, _, _ = make(layout, "logistic", 0.5)
    for part in PARTS:
        silent = SecondMoment(1.5, inf, part, "add_remove", 1500, 9).release(problem, SeededNoise(0))
        np.testing.assert_allclose(silent, part_of(part, design.T @ design), rtol=1e-9, atol=1e-9)
    wide = sphere_problem(np.eye(39))
    mechanism = SecondMoment(1.0, 0.2, "full", "add_remove", 39, 39)
    noise = mechanism.release(wide, SeededNoise(1)) - mechanism.release(wide, GivenNoise())
    np.testing.assert_array_equal(noise, noise.T)
    scaled = noise * 0.2 * np.where(np.eye(40), 1, sqrt(2))
    _is_standard_normal(scaled[np.triu_indices(40)])


def _is_standard_normal(drawn):
    assert np.mean(drawn**2) == pytest.approx(1, abs=3.9 * sqrt(2 / len(drawn)))
    assert abs(drawn.mean()) < 3.9 / sqrt(len(drawn))


def test_law_of_the_noise_in_diagonal_and_last_column():
    """Mean and mean square of 400 and of 399 normals, each part apart: wrong once in 5,000 runs."""
    wide = sphere_problem(np.eye(399))
    mechanism = SecondMoment(1.0, 0.2, "arrow", "add_remove", 399, 399)
    noise = mechanism.release(wide, SeededNoise(2)) - mechanism.release(wide, GivenNoise())
    assert noise[0, -1] == noise[1, -1]
    scaled = 0.2 * noise
    _is_standard_normal(scaled[0])
    _is_standard_normal(sqrt(2) * scaled[1, :-1])
    # and not one the other
    correlation = sqrt(2) * scaled[0, :-1] @ scaled[1, :-1] / 399
    assert abs(correlation) < 3.9 / sqrt(399)


def test_second_moment_refuses_longer_rows_than_it_was_calibrated_for():
    with pytest.raises(ValueError, match=r"row_norm=0\.5"):
        SecondMoment(0.5, 1.0, "diagonal", "add_remove", 3, 2).release(sphere_problem(np.eye(2)), RecordingNoise())


def test_the_column_of_the_constant_is_refused_where_there_is_none():
    noise = RecordingNoise()
    with pytest.raises(ValueError, match="part='arrow' is for rows with a constant column"):
        SecondMoment(1.0, 1.0, "arrow", "add_remove", 2, 2).release(sphere_problem(np.eye(2), intercept=0.0), noise)
    assert not noise.draws
