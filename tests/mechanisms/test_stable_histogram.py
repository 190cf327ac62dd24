"""Values above a threshold: everything without noise, what the threshold promises with it, and how it composes."""

from math import exp, inf, log1p, sqrt

import numpy as np
import pytest
from scipy.stats import norm

from dpskl.accounting import GaussianCost, compose, gaussian_delta
from dpskl.mechanisms.base import ReleasePart
from dpskl.mechanisms.noise import SeededNoise
from dpskl.mechanisms.stable_histogram import StableHistogram, calibrate_stable_histogram
from dpskl.records.values import ColumnValues

RELATIONS = ("add_remove", "replace_one")


@pytest.mark.parametrize("neighbours", RELATIONS)
def test_without_noise_every_value_comes_out_with_its_count(neighbours):
    for mechanism in (
        StableHistogram(inf, 1e-6, 2, neighbours),
        calibrate_stable_histogram(inf, 1e-6, 2, neighbours),
    ):
        values = ColumnValues([["b", "a", "b", None], [1, 1, 1, 1]])
        assert mechanism.release(values, SeededNoise(0)) == [{"a": 1.0, "b": 2.0}, {1: 4.0}]


def test_no_values_and_no_records():
    mechanism = StableHistogram(0.5, 1e-6, 2, "add_remove")
    assert mechanism.release(ColumnValues([[], []]), SeededNoise(0)) == [{}, {}]
    assert mechanism.release(ColumnValues([[None], [np.nan]]), SeededNoise(0)) == [{}, {}]


def test_what_comes_out_exceeds_the_threshold_and_has_normal_noise():
    """Mean and spread of 20,000 normals far from the threshold: wrong once in 10,000 runs each."""
    mechanism = StableHistogram(0.5, 1e-3, 1, "add_remove")
    columns = ColumnValues([[f"{k:03}" for k in range(200)] * 40 + ["rare"] * 3])
    noise, drawn = SeededNoise(2), []
    for _ in range(100):
        (released,) = mechanism.release(columns, noise)
        assert min(released.values()) > mechanism.threshold
        released.pop("rare", None)
        assert list(released) == [f"{k:03}" for k in range(200)]
        drawn += released.values()
    units = (np.array(drawn) - 40) / mechanism.noise_scale
    assert abs(units.mean()) < 3.9 / sqrt(len(units))
    assert np.mean(units**2) == pytest.approx(1, abs=3.9 * sqrt(2 / len(units)))


@pytest.mark.parametrize("neighbours", RELATIONS)
@pytest.mark.parametrize("n_columns", [1, 3])
def test_two_releases_cost_the_exact_delta_of_their_product(neighbours, n_columns):
    """Two worst pairs side by side: all values of both are new, or those of the first, or none of them."""
    mechanism = StableHistogram(0.5, 1e-4, n_columns, neighbours)
    total, mu = compose([(mechanism.cost, 2)]), sqrt(2) * 0.5
    tail = norm.sf((mechanism.threshold - 1) / mechanism.noise_scale)
    log_silent = n_columns * log1p(-tail)
    for epsilon in (0.1, 1.0, 2.0, 3.0, 10.0):
        products = [
            -np.expm1(2 * log_silent),
            -np.expm1(log_silent) + exp(log_silent) * gaussian_delta(0.5, epsilon - log_silent),
            gaussian_delta(mu, epsilon),
        ]
        assert max(products) <= total.delta(epsilon) * (1 + 1e-9)
        assert total.delta(epsilon) <= sum(products) * (1 + 1e-9)
    assert total.delta(50.0) == pytest.approx(products[0], rel=1e-4)
    with_a_fit = compose([mechanism.cost, GaussianCost(1.2)])
    assert with_a_fit.delta(2.0) == pytest.approx(1e-4 + (1 - 1e-4) * gaussian_delta(1.3, 2.0))
    assert with_a_fit.epsilon(0.9e-4) == inf


def test_noise_and_cost_are_known_before_the_data():
    for neighbours, changed in zip(RELATIONS, (1, 2), strict=True):
        mechanism = StableHistogram(0.5, 1e-6, 7, neighbours)
        assert mechanism.sensitivity == pytest.approx(sqrt(7 * changed))
        assert mechanism.noise_scale == pytest.approx(sqrt(7 * changed) / 0.5)
        quantile = (mechanism.threshold - 1) / mechanism.noise_scale
        assert norm.sf(quantile) == pytest.approx(1e-6 / 7, rel=1e-4)
        part = mechanism.describe(1)
        assert ReleasePart.from_dict(part.to_dict()) == part


def test_calibration_spends_what_it_is_given():
    for epsilon, delta, share in ((0.1, 1e-6, 0.5), (1.0, 1e-9, 0.2), (5.0, 1e-2, 0.9)):
        mechanism = calibrate_stable_histogram(epsilon, delta, 4, "replace_one", share)
        assert mechanism.delta == share * delta
        assert delta * (1 - 1e-6) <= mechanism.cost.delta(epsilon) <= delta
    with pytest.raises(ValueError, match="share"):
        calibrate_stable_histogram(1.0, 1e-6, 1, "add_remove", 1.0)


@pytest.mark.parametrize(
    ("parameters", "word"),
    [((0.0, 0.1, 1), "mu"), ((1e7, 0.1, 1), "mu"), ((1.0, 0.0, 1), "delta"), ((1.0, 0.1, 0), "n_columns")],
)
def test_unusable_parameters_are_refused(parameters, word):
    with pytest.raises(ValueError, match=word):
        StableHistogram(*parameters, "add_remove")
