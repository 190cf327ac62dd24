"""NoisyScore: its sensitivity by brute force, the law of its noise, and an audit that half the noise fails."""

from itertools import product
from math import inf

import numpy as np
import pytest
from scipy import stats

from dpskl.accounting import gaussian_epsilon, gaussian_mu
from dpskl.mechanisms.noise import NoiseSource, SeededNoise, SystemNoise
from dpskl.mechanisms.noisy_score import NoisyScore

each_relation = pytest.mark.parametrize("neighbours", ["add_remove", "replace_one"])
each_law = pytest.mark.parametrize("delta", [0.0, 1e-6])


def clipped_sum(mechanism, scores, quiet):
    return NoisyScore(inf, mechanism.delta, mechanism.bound, mechanism.neighbours, mechanism.n_samples).release(
        np.array(scores), quiet
    )


@each_relation
@pytest.mark.parametrize("bound", [0.5, 1.04, 25.0])
def test_sum_moves_by_at_most_its_sensitivity_and_reaches_it(neighbours, bound, recording_noise):
    """Every data set of three records out of six values, scores beyond the bound and no numbers among them."""
    mechanism, worst = NoisyScore(1.0, 0.0, bound, neighbours, 3), 0.0
    values = [-bound, bound, 0.3 * bound, -1e9, inf, np.nan]
    for records in product(values, repeat=3):
        before = clipped_sum(mechanism, records, recording_noise)
        assert np.isfinite(before)
        others = [records[1:]] if neighbours == "add_remove" else [(value, *records[1:]) for value in values]
        for other in others:
            worst = max(worst, abs(before - clipped_sum(mechanism, other, recording_noise)))
    assert worst <= mechanism.sensitivity
    assert worst >= mechanism.sensitivity * (1 - 1e-9)
    assert mechanism.sensitivity == pytest.approx(bound * (1 if neighbours == "add_remove" else 2))


def test_the_float_sum_of_many_scores_stays_within_the_stated_rounding(recording_noise):
    """Terms that are lost below the last place of a large sum, and one record that shifts every rounding."""
    n = 2**17
    scores = np.full(n, 3 / 8 * 2.0**-36)
    scores[: n // 2] = 1.0
    mechanism = NoisyScore(inf, 0.0, 1.0, "add_remove", n)
    moved = mechanism.release(scores, recording_noise) - mechanism.release(scores[1:], recording_noise)
    assert 1.0 < mechanism.sensitivity < 1 + 1e-4
    assert moved <= mechanism.sensitivity


@each_relation
@each_law
def test_noise_cost_and_budget_agree(neighbours, delta, recording_noise):
    for epsilon, bound in product((1e-3, 0.5, 4.0), (0.5, 7.0)):
        recording_noise.draws.clear()
        mechanism = NoisyScore(epsilon, delta, bound, neighbours, 10)
        assert mechanism.release(np.full(10, bound / 4), recording_noise) == pytest.approx(
            2.5 * bound, abs=1e-5 * mechanism.noise_scale
        )
        ((law, scale),) = recording_noise.draws
        assert scale == mechanism.noise_scale
        assert law == ("normal" if delta else "laplace")
        multiplier = 1 / gaussian_mu(epsilon, delta) if delta else 1 / epsilon
        assert scale / mechanism.sensitivity == pytest.approx(multiplier)
        assert epsilon * (1 - 1e-6) <= mechanism.cost.epsilon(delta) <= epsilon
        # the cost is there before the bound is
        assert mechanism.cost == NoisyScore(epsilon, delta, 1.0, neighbours, 10).cost


@each_law
def test_law_of_the_noise(delta):
    """Kolmogorov-Smirnov with 5,000 draws: wrong once in 100,000 runs; a factor of two of the scale is seen."""
    mechanism, noise = NoisyScore(0.5, delta, 0.5, "replace_one", 4), SystemNoise()
    scores = np.array([0.5, -0.5, 0.5, 0.5])
    drawn = [mechanism.release(scores, noise) for _ in range(5000)]
    law = stats.norm if delta else stats.laplace
    assert stats.kstest(drawn, law(1.0, mechanism.noise_scale).cdf).pvalue > 1e-5
    for factor in (0.5, 2.0):
        assert stats.kstest(drawn, law(1.0, factor * mechanism.noise_scale).cdf).pvalue < 1e-20


def audited(neighbours, runs=5000):
    """Return the Gaussian mu between two neighbours, one of them the farthest there is, as the releases show it."""
    mechanism, noise = NoisyScore(2.0, 1e-6, 0.5, neighbours, 3), SeededNoise(5)
    full, other = np.array([0.5, 0.5, 0.5]), np.array([0.5, 0.5, -0.5])[: 2 if neighbours == "add_remove" else 3]
    with_record, without = ([mechanism.release(s, noise) for _ in range(runs)] for s in (full, other))
    deviation = np.sqrt((np.var(with_record) + np.var(without)) / 2)
    return (np.mean(with_record) - np.mean(without)) / deviation


@each_relation
def test_audit_meets_the_claim_and_half_the_noise_fails_it(neighbours, monkeypatch):
    """The seed is fixed: the estimate of mu lies within 4 of its standard errors, sqrt(2 / runs)."""
    mu = gaussian_mu(2.0, 1e-6)
    assert audited(neighbours) == pytest.approx(mu, abs=4 * np.sqrt(2 / 5000))
    honest = NoiseSource.normal
    monkeypatch.setattr(NoiseSource, "normal", lambda self, size, scale: honest(self, size, scale / 2))
    assert gaussian_epsilon(audited(neighbours), 1e-6) > 1.8 * 2.0


def test_more_scores_than_were_planned_are_refused(recording_noise):
    with pytest.raises(ValueError, match="n_samples=3"):
        NoisyScore(1.0, 0, 1.0, "add_remove", 3).release(np.zeros(4), recording_noise)
    with pytest.raises(ValueError, match=r"shape \(2, 1\)"):
        NoisyScore(1.0, 0, 1.0, "add_remove", 3).release(np.zeros((2, 1)), recording_noise)
