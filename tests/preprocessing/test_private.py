"""Bounds, axes, knots and categories from released counts, on counts of known laws."""

import numpy as np
import pytest

from dpskl.mechanisms.column_histograms import ColumnHistograms
from dpskl.mechanisms.noise import SeededNoise
from dpskl.preprocessing import PublicSplineTransformer
from dpskl.preprocessing.private import (
    bounds_of_counts,
    categories_of_counts,
    equal_cells,
    knots_of_counts,
    magnitude_cells,
    noise_threshold,
    suits_log_axis,
)
from dpskl.records.cells import ColumnCells

EDGES = magnitude_cells()


def counts_of(values, edges=EDGES, mu=np.inf, seed=0):
    mechanism = ColumnHistograms(mu, 1, "add_remove")
    return mechanism.release(ColumnCells([values], [edges]), SeededNoise(seed))[0], mechanism.noise_scale


def test_magnitude_cells_are_powers():
    assert EDGES.tolist() == sorted([sign * 2.0**k for k in range(-10, 41) for sign in (-1, 1)])
    for base, exponents in ((10.0, range(-3, 7)), (3.0, range(-20, 20)), (2.0, range(-100, 100))):
        for k in exponents:
            edges = magnitude_cells(base**k, base ** (k + 2), base)
            np.testing.assert_array_equal(edges[3:], [base**k, base ** (k + 1), base ** (k + 2)])
            wide = magnitude_cells(base**k * 0.999, base ** (k + 2) * 1.001, base)
            np.testing.assert_array_equal(wide[5:], [base ** (k + step) for step in range(-1, 4)])
    for wrong in ((0.0, 1.0, 2.0), (2.0, 1.0, 2.0), (1.0, np.inf, 2.0), (1.0, 2.0, 1.0), (np.nan, 1.0, 2.0)):
        with pytest.raises(ValueError, match="smallest"):
            magnitude_cells(*wrong)


@pytest.mark.parametrize(
    ("values", "low", "high"),
    [
        (np.linspace(17, 90, 1000), 16, 128),
        (np.linspace(-3, 5, 1000), -4, 8),
        (np.linspace(-5, -3, 1000), -8, -2),
        (np.r_[np.zeros(500), np.linspace(100, 1000, 500)], 0, 1024),
        (np.r_[np.zeros(500), np.linspace(-1000, -100, 500)], -1024, 0),
        (np.zeros(500), -(2.0**-10), 2.0**-10),
        (np.full(500, 1e30), 2.0**39, 2.0**40),
        (np.full(500, 4.0), 4, 8),
    ],
)
def test_bounds_hold_what_stands_above_the_noise(values, low, high):
    counts, scale = counts_of(values, mu=0.5)
    assert bounds_of_counts(counts, EDGES, noise_threshold(scale, len(counts), 1e-6)) == (low, high)


def test_columns_without_records_have_no_bounds_but_for_false_alarms():
    """2,000 columns of noise alone at a false alarm of 5 %: wrong once in 10,000 runs."""
    noise = SeededNoise(3).normal((2000, len(EDGES) - 1), 7.0)
    threshold = noise_threshold(7.0, noise.shape[1], 0.05)
    alarms = sum(bounds_of_counts(counts, EDGES, threshold) is not None for counts in noise)
    assert alarms == pytest.approx(100, abs=3.9 * np.sqrt(2000 * 0.05 * 0.95))
    assert not suits_log_axis(np.zeros(len(EDGES) - 1), EDGES, threshold)


def test_skewed_columns_get_a_log_axis(rng):
    for values, answer in (
        (rng.uniform(18, 98, 5000), False),
        (rng.normal(size=5000), False),
        (rng.normal(1000, 1, size=5000), False),
        (np.exp(3 * rng.normal(size=5000)), True),
        (-np.exp(3 * rng.normal(size=5000)), True),
        (rng.exponential(3000.0, 5000) * (rng.random(5000) < 0.1), True),
    ):
        counts, scale = counts_of(values, mu=0.5)
        assert suits_log_axis(counts, EDGES, noise_threshold(scale, len(counts))) == answer


def test_knots_are_half_quantiles_and_half_equally_spaced(rng):
    values = rng.beta(2, 8, size=40_000)
    edges = equal_cells(0, 1, 128)
    knots = knots_of_counts(counts_of(values, edges)[0], edges, 9)
    even = np.linspace(0, 1, 9)
    expected = (np.quantile(values, even) + even) / 2
    np.testing.assert_allclose(knots[1:-1], expected[1:-1], atol=1e-3)
    assert knots[0] == 0
    assert knots[-1] == 1
    noisy = knots_of_counts(counts_of(values, edges, mu=0.1, seed=1)[0], edges, 9)
    np.testing.assert_allclose(noisy, knots, atol=0.01)
    logarithmic = equal_cells(0, 1e4, 64, "log")
    skewed = np.expm1(values * np.log1p(1e4))
    found = knots_of_counts(counts_of(skewed, logarithmic)[0], logarithmic, 9, "log")
    np.testing.assert_allclose(np.log1p(found) / np.log1p(1e4), knots, atol=2e-3)


def test_knots_increase_whatever_the_counts_are(rng):
    for trial in range(300):
        spacing = ("linear", "log")[trial % 2]
        edges = equal_cells(-3.0, 1000.0, 16, spacing)
        counts = rng.normal(size=16) * 10.0 ** rng.uniform(-3, 6)
        knots = knots_of_counts(counts, edges, 9, spacing)
        assert (knots[0], knots[-1]) == (-3.0, 1000.0)
        places = knots if spacing == "linear" else np.copysign(np.log1p(np.abs(knots)), knots)
        gaps = np.diff(places) / (places[-1] - places[0])
        assert gaps.min() >= (1 - 1e-9) / 16
    for nothing in (np.zeros(16), -np.ones(16)):
        np.testing.assert_allclose(knots_of_counts(nothing, equal_cells(0, 8, 16), 5), [0, 2, 4, 6, 8])
    hats = PublicSplineTransformer(knots=[knots])
    assert hats.fit_transform([[5.0]]).sum() == pytest.approx(1)


def test_a_spike_draws_no_more_than_its_share_of_knots(rng):
    """Nine of ten records are zero: the others get their knots all the same."""
    values = np.where(rng.random(20_000) < 0.9, 0.0, rng.uniform(4, 8, 20_000))
    edges = equal_cells(0, 8, 64)
    knots = knots_of_counts(counts_of(values, edges)[0], edges, 9)
    rest = knots_of_counts(counts_of(values[values > 0], edges)[0], edges, 9)
    assert (knots[1:-1] > 0.1).all()
    np.testing.assert_allclose(knots[2:-1], rest[2:-1], atol=0.35)
    two = knots_of_counts(np.r_[900.0, np.zeros(14), 100.0], equal_cells(0, 8, 16), 5)  # fewer cells than knots
    assert (np.diff(two) >= 1).all()


def test_unusable_knots_and_cells_are_refused():
    with pytest.raises(ValueError, match="n_cells"):
        equal_cells(1.0, np.nextafter(1.0, 2), 4)
    edges = np.array([1.0, np.nextafter(1.0, 2)])
    with pytest.raises(ValueError, match="n_knots=9 do not fit"):
        knots_of_counts(np.array([1.0]), edges, 9)
    with pytest.raises(ValueError, match="n_knots=1"):
        knots_of_counts(np.array([1.0]), edges, 1)


def test_categories_come_by_their_counts():
    counts = {1: 5.0, 2: 9.0, "a": 9.0, "b": 7.0}
    assert categories_of_counts(counts) == [2, "a", "b", 1]
    assert categories_of_counts(counts, 1) == [2]
    assert categories_of_counts({}) == []
