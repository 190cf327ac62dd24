"""ScoreHistogram: sensitivity by brute force, exact without noise, the law of its noise, and an audit."""

from math import inf, sqrt

import numpy as np
import pytest
from conftest import RecordingNoise
from scipy import stats
from scores_by_force import RELATIONS, check_score_histogram, check_score_noise, check_score_rounding, released

from dpskl.accounting import gaussian_epsilon, gaussian_mu
from dpskl.mechanisms.noise import NoiseSource, SeededNoise, SystemNoise
from dpskl.mechanisms.score_histogram import ScoreHistogram, circle, circle_powers

each_relation = pytest.mark.parametrize("neighbours", RELATIONS)
each_number_of_classes = pytest.mark.parametrize("n_classes", [2, 4])


def make(mu=0.5, n_bins=8, n_classes=2, neighbours="add_remove", n_samples=100):
    return ScoreHistogram(mu, n_bins, (0.0, 1.0), n_classes, neighbours, n_samples)


def test_neighbours_are_within_the_stated_distance_by_brute_force():
    check_score_histogram()


def test_release_is_what_its_draws_make_of_it():
    check_score_noise()


def test_sensitivity_contains_rounding():
    check_score_rounding()


@pytest.mark.parametrize("n_bins", [2, 3, 64, 256])
def test_columns_have_norm_one_and_their_distances_are_bounded(n_bins):
    matrix = circle(2 * n_bins)
    np.testing.assert_allclose(np.linalg.norm(matrix, axis=0), 1, rtol=1e-12)
    np.testing.assert_allclose(matrix, matrix.T, atol=1e-15)
    np.testing.assert_allclose(matrix.sum(axis=0), 0, atol=1e-12)  # the total is not asked for
    farthest = max(np.linalg.norm(matrix[:, :1] - matrix, axis=0))
    stated = make(n_bins=n_bins, neighbours="replace_one", n_samples=2).sensitivity
    assert farthest <= stated <= farthest * (1 + 1e-11)
    assert sqrt(2) < stated < 2


@each_number_of_classes
def test_without_noise_counts_are_exact(n_classes):
    """Frequencies and the total give the counts back, scores out of range in the cells at the ends."""
    rng, mechanism = np.random.default_rng(1), make(inf, n_classes=n_classes)
    codes = rng.integers(0, n_classes, 100)
    scores = rng.normal(0.5, 1.0, size=100 if n_classes == 2 else (100, n_classes))
    table, sums = mechanism.release(codes, scores, RecordingNoise())
    top = scores if n_classes == 2 else scores.max(axis=1)
    side = codes if n_classes == 2 else scores.argmax(axis=1) == codes
    expected = np.array([np.histogram(np.clip(top[side == s], 0, 1), 8, (0, 1))[0] for s in (0, 1)]).ravel()
    spectrum = np.fft.fft(sums) / mechanism.weights[1]
    powers = circle_powers(16)
    spectrum[1:] /= np.sqrt(powers[1:])
    spectrum[0] = 100
    np.testing.assert_allclose(np.fft.ifft(spectrum).real, expected, atol=1e-9)
    if n_classes > 2:
        joint = np.zeros((n_classes, n_classes))
        np.add.at(joint, (codes, scores.argmax(axis=1)), 1)
        np.testing.assert_allclose(table / mechanism.weights[0], joint, atol=1e-12)


@each_relation
@each_number_of_classes
def test_noise_cost_and_budget_agree(neighbours, n_classes):
    for epsilon in (1e-3, 0.5, 4.0):
        mechanism = make(gaussian_mu(epsilon, 1e-6), n_classes=n_classes, neighbours=neighbours)
        assert mechanism.noise_scale == mechanism.sensitivity / mechanism.mu
        assert epsilon * (1 - 1e-6) <= mechanism.cost.epsilon(1e-6) <= epsilon
        part = mechanism.describe(1)
        assert (part.sensitivity, part.noise) == (mechanism.sensitivity, mechanism.noise_scale)


@each_number_of_classes
def test_law_of_the_noise(n_classes):
    """Kolmogorov-Smirnov with over 6,000 draws: wrong once in 100,000 runs; a factor of two of the scale is seen."""
    mechanism, noise = make(0.3, 16, n_classes), SystemNoise()
    record = [(0, 0.5 if n_classes == 2 else np.full(n_classes, 0.5))]
    exact = released(make(inf, 16, n_classes), record, RecordingNoise())
    drawn = np.concatenate([released(mechanism, record, noise) - exact for _ in range(200)])
    assert stats.kstest(drawn, stats.norm(0, mechanism.noise_scale).cdf).pvalue > 1e-5
    for factor in (0.5, 2.0):
        assert stats.kstest(drawn, stats.norm(0, factor * mechanism.noise_scale).cdf).pvalue < 1e-20


def audited(neighbours, runs=5000):
    """Return the Gaussian mu between two neighbours that are as far apart as there are, as the releases show it."""
    mechanism, noise = make(gaussian_mu(2.0, 1e-6), 4, neighbours=neighbours), SeededNoise(5)
    common = [(0, 0.1), (1, 0.7)]
    one, other = [*common, (0, 0.1)], common if neighbours == "add_remove" else [*common, (1, 0.1)]
    exact = [released(make(inf, 4), records, RecordingNoise()) for records in (one, other)]
    direction = (exact[0] - exact[1]) / np.linalg.norm(exact[0] - exact[1])
    seen = [[released(mechanism, records, noise) @ direction for _ in range(runs)] for records in (one, other)]
    return (np.mean(seen[0]) - np.mean(seen[1])) / np.sqrt((np.var(seen[0]) + np.var(seen[1])) / 2)


@each_relation
def test_audit_meets_the_claim_and_half_the_noise_fails_it(neighbours, monkeypatch):
    """The seed is fixed: the estimate of mu lies within 4 of its standard errors, sqrt(2 / runs)."""
    mu = gaussian_mu(2.0, 1e-6)
    assert audited(neighbours) == pytest.approx(mu, abs=4 * np.sqrt(2 / 5000))
    honest = NoiseSource.normal
    monkeypatch.setattr(NoiseSource, "normal", lambda self, size, scale: honest(self, size, scale / 2))
    assert gaussian_epsilon(audited(neighbours), 1e-6) > 1.8 * 2.0


def test_more_records_or_other_shapes_than_were_planned_are_refused():
    with pytest.raises(ValueError, match="n_samples=1 "):
        make(n_samples=1).release(np.zeros(2, dtype=int), np.zeros(2), RecordingNoise())
    with pytest.raises(ValueError, match=r"shape \(2, 2\)"):
        make().release(np.zeros(2, dtype=int), np.zeros((2, 2)), RecordingNoise())
    with pytest.raises(ValueError, match="n_classes=4"):
        make(n_classes=4).release(np.zeros(2, dtype=int), np.zeros((2, 3)), RecordingNoise())
