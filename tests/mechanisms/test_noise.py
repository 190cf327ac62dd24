"""The noise: laws by Kolmogorov-Smirnov, hardening, seeding. Each KS test fails by chance once in 1e5 runs."""

import warnings

import numpy as np
import pytest
from scipy import stats

from dpskl.exceptions import SeededNoiseWarning
from dpskl.mechanisms import noise as noise_module
from dpskl.mechanisms.noise import SeededNoise, SystemNoise, make_noise, round_to_grid

ALARM = 1e-5
SOURCES = [SystemNoise(), SeededNoise(7)]
IDS = ["system", "seeded"]


@pytest.mark.parametrize("source", SOURCES, ids=IDS)
def test_laws(source):
    n = 100_000
    assert stats.kstest(source.standard_normal(n), stats.norm.cdf).pvalue > ALARM
    assert stats.kstest(source.standard_exponential(n), stats.expon.cdf).pvalue > ALARM
    assert stats.kstest(source.laplace(n, 0.5), stats.laplace(scale=0.5).cdf).pvalue > ALARM
    assert stats.kstest(source.gumbel(n, 3.0), stats.gumbel_r(scale=3.0).cdf).pvalue > ALARM


@pytest.mark.parametrize("source", SOURCES, ids=IDS)
def test_scale_of_a_release_would_show_a_factor_of_two(source):
    released = source.add_normal(np.full(50_000, 3.0), 0.7)
    assert stats.kstest(released, stats.norm(3.0, 0.7).cdf).pvalue > ALARM
    assert stats.kstest(released, stats.norm(3.0, 1.4).cdf).pvalue < 1e-100


@pytest.mark.parametrize("source", SOURCES, ids=IDS)
def test_gamma_vector_has_gamma_norm_and_uniform_direction(source):
    vectors = np.array([source.gamma_vector(3, 2.0) for _ in range(4000)])
    norms = np.linalg.norm(vectors, axis=1)
    assert stats.kstest(norms, stats.gamma(3, scale=2.0).cdf).pvalue > ALARM
    # one coordinate of a uniform direction in three dimensions is uniform on [-1, 1]
    assert stats.kstest(vectors[:, 1] / norms, stats.uniform(-1, 2).cdf).pvalue > ALARM


def test_no_noise_leaves_values_alone():
    value = np.array([0.1, 1 / 3])
    for source in SOURCES:
        np.testing.assert_array_equal(source.add_normal(value, 0.0), value)
        np.testing.assert_array_equal(source.add_gamma_vector(value, 0.0), value)
        np.testing.assert_array_equal(source.gamma_vector(2, 0.0), 0)


@pytest.mark.parametrize("scale", [1e-12, 0.3, 1.0, 7e9])
def test_releases_lie_on_the_public_grid(scale):
    grid = 2.0 ** (np.floor(np.log2(scale)) - 20)
    assert scale * 2**-21 < grid <= scale * 2**-20
    for released in (
        SystemNoise().add_normal(np.full(1000, np.pi) * scale, scale),
        SystemNoise().add_gamma_vector(np.full(20, np.pi) * scale, scale),
        round_to_grid(np.full(3, np.e) * scale, scale),
    ):
        np.testing.assert_array_equal(released / grid, np.round(released / grid))


def test_normal_is_symmetric_and_keeps_its_tail(monkeypatch):
    """The words 0 and 1 are the two ends of one half-normal; the largest words are its middle."""
    words = np.array([0, 1, 2**64 - 2, 2**64 - 1], dtype=np.uint64)
    monkeypatch.setattr(noise_module.os, "urandom", lambda count: np.resize(words, count // 8).tobytes())
    z = SystemNoise()._one_normal((4,))
    assert z[1] == -z[0] == pytest.approx(9.1549, abs=1e-3)
    np.testing.assert_allclose(z[2:], 0, atol=1e-15)
    # two draws are averaged: with both equal the sum over sqrt(2) is sqrt(2) times one
    np.testing.assert_allclose(SystemNoise().standard_normal(4)[:2], np.sqrt(2) * z[:2])


def test_random_state_none_is_silent_and_system():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert make_noise(None).is_secure


@pytest.mark.parametrize(
    "state", [lambda: 3, lambda: np.int64(3), lambda: np.random.RandomState(3), lambda: np.random.default_rng(3)]
)
def test_seeds_warn_and_reproduce(state):
    with pytest.warns(SeededNoiseWarning, match="protects nobody"):
        first = make_noise(state())
    with pytest.warns(SeededNoiseWarning):
        second = make_noise(state())
    assert not first.is_secure
    np.testing.assert_array_equal(first.standard_normal(5), second.standard_normal(5))


def test_a_generator_is_advanced():
    state = np.random.RandomState(0)
    with pytest.warns(SeededNoiseWarning):
        first, second = make_noise(state), make_noise(state)
    assert (first.standard_normal(5) != second.standard_normal(5)).all()


@pytest.mark.parametrize("state", ["seed", -1, 0.5, True, [1]])
def test_other_states_are_refused(state):
    with pytest.raises(ValueError, match="random_state"):
        make_noise(state)
