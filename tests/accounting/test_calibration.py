"""Calibration: reference values, the safe side, and its tightness."""

import math
import re

import numpy as np
import pytest

from dpskl import DPLogisticRegression
from dpskl.accounting import (
    BoundedRangeCost,
    GaussianCost,
    RDPCost,
    SampledGaussianCost,
    bounded_range_epsilon,
    compose,
    gaussian_delta,
    gaussian_epsilon,
    gaussian_mu,
    rdp_order,
    sampled_noise_multiplier,
)
from dpskl.accounting._numeric import safe_log_noise


@pytest.mark.parametrize(
    ("epsilon", "delta", "mu"),
    [
        (1, 1e-6, 0.236704381),
        (1, 1e-5, 0.268051123),
        (1, 1e-8, 0.196066560),
        (1, 1e-12, 0.152489651),
        (3, 1e-6, 0.647726531),
        (0.1, 1e-5, 0.0325207841),
        (8, 1e-5, 1.66603060),
    ],
)
def test_gaussian_mu_reproduces_reference_values(epsilon, delta, mu):
    assert gaussian_mu(epsilon, delta) == pytest.approx(mu, rel=4e-9)


@pytest.mark.parametrize(
    ("epsilon", "ridge", "deviation"),
    [(1, 0.5, 6.85460226), (1, 10, 4.32384083), (3, 0.5, 1.76019821), (3, 10, 1.55539642)],
)
def test_noise_of_objective_perturbation_reproduces_reference_values(epsilon, ridge, deviation):
    mu = gaussian_mu(epsilon, 1e-6, shift=math.log1p(0.25 / ridge))
    assert 1 / mu == pytest.approx(deviation, rel=4e-9)


@pytest.mark.parametrize("epsilon", [1e-12, 1e-6, 0.1, 1.0, 50.0, 1e4, 1e8])
@pytest.mark.parametrize("delta", [0.9, 0.1, 1e-6, 1e-15, 1e-200])
def test_gaussian_mu_is_safe_and_tight(epsilon, delta):
    mu = gaussian_mu(epsilon, delta)
    assert gaussian_delta(mu, epsilon) <= delta
    assert gaussian_delta(mu * (1 + 1e-6), epsilon) > delta
    assert gaussian_epsilon(mu, delta) <= epsilon
    # splitting into steps must not exceed the budget by rounding
    assert compose([(GaussianCost(mu / math.sqrt(77)), 77)]).epsilon(delta) <= epsilon


def test_gaussian_mu_for_shifts_and_ends():
    assert gaussian_mu(math.inf, 1e-6) == math.inf
    mu = gaussian_mu(1.0, 1e-6, shift=0.4)
    assert mu == gaussian_mu(0.6, 1e-6)
    assert GaussianCost(mu, 0.4).epsilon(1e-6) <= 1.0
    assert GaussianCost(mu, 0.4).epsilon(1e-6) >= 1.0 - 1e-6


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((0.0, 1e-6), "epsilon must lie in"),
        ((-1.0, 1e-6), "epsilon must lie in"),
        ((math.nan, 1e-6), "epsilon must lie in"),
        ((1.0, 0.0), "delta must lie in"),
        ((1.0, 1.0), "delta must lie in"),
        ((1.0, 1e-6, -0.1), "shift must lie in"),
        ((1.0, 1e-6, 1.0), "shift=1 uses up the whole budget"),
        ((1.0, 0.9, 2.0), "shift=2 uses up the whole budget"),
    ],
)
def test_gaussian_mu_refuses_in_words(arguments, words):
    with pytest.raises(ValueError, match=words):
        gaussian_mu(*arguments)


@pytest.mark.parametrize(
    ("epsilon", "delta", "rho", "alpha", "budget"),
    [
        (1, 1e-6, 0.0243559704, 21.9845, 0.535455),
        (0.3, 1e-6, 0.00253964252, 62.7274, 0.159305),
        (1, 1e-8, 0.0172053180, 30.5286, 0.525255),
        (0.1, 1e-6, 3.21e-4, 166, 0.0532),
        (3, 1e-8, 0.1366, 11.8, 1.61),
    ],
)
def test_rdp_order_reproduces_reference_values(epsilon, delta, rho, alpha, budget):
    order = rdp_order(epsilon, delta)
    digits = 5e-9 if rho in (0.0243559704, 0.00253964252, 0.0172053180) else 3e-3
    assert order.rho == pytest.approx(rho, rel=digits)
    assert order.alpha == pytest.approx(alpha, rel=max(digits, 3e-6))
    assert order.budget == pytest.approx(budget, rel=max(digits, 2e-6))


@pytest.mark.parametrize("epsilon", [1e-5, 1.0, 1e8])
@pytest.mark.parametrize("delta", [0.5, 1e-6, 1e-15])
def test_rdp_order_meets_its_target_and_is_the_best(epsilon, delta):
    order = rdp_order(epsilon, delta)
    for alpha in order.alpha + (order.alpha - 1) * np.array([-0.5, -0.01, 0.0, 0.01, 0.5]):
        reached = alpha * order.rho + math.log1p(-1 / alpha) - math.log(delta * alpha) / (alpha - 1)
        assert reached >= epsilon * (1 - 1e-9)
        if alpha == order.alpha:
            assert reached == pytest.approx(epsilon, rel=1e-9)
    assert rdp_order(math.inf, delta).budget == math.inf
    with pytest.raises(ValueError, match="delta must lie in"):
        rdp_order(1.0, 0.0)


def test_what_an_order_allows_is_within_the_target_to_the_last_digit():
    for epsilon in (1e-6, 1e-5, 1e-3, 1.0, 500.0):
        for delta in (1e-300, 1e-30, 1e-15, 1e-6, 0.9):
            order = rdp_order(epsilon, delta)
            reached = RDPCost([order.alpha], [order.budget]).epsilon(delta)
            assert epsilon * (1 - 1e-4) < reached <= epsilon


@pytest.mark.parametrize("solver", ["agd", "blgd", "ftrl", "gd", "privgene", "whitened_gd"])
@pytest.mark.parametrize("epsilon", [1e-6, 1e-5])
@pytest.mark.parametrize("delta", [1e-30, 1e-15, 1e-6])
def test_plans_of_the_smallest_budgets_stay_within_them(solver, epsilon, delta):
    plan = DPLogisticRegression(epsilon, delta, solver=solver, classes=[0, 1]).plan(1000, 10)
    assert plan.cost.epsilon(delta) <= epsilon


@pytest.mark.parametrize("epsilon", [1e-6, 1e-5])
@pytest.mark.parametrize("delta", [0.0, 1e-300, 1e-15, 1e-6, 0.5])
@pytest.mark.parametrize("count", [1, 20])
def test_bounded_ranges_of_small_budgets_are_found(epsilon, delta, count):
    each = bounded_range_epsilon(epsilon, delta, count)
    assert each >= epsilon / count * (1 - 1e-9)
    assert compose([(BoundedRangeCost(each), count)]).epsilon(delta) <= epsilon


@pytest.mark.parametrize("epsilon", [5e-324, 1e-300, 9.9e-7])
def test_smaller_budgets_are_refused_in_words(epsilon):
    """At 1e-300 the search for a range did not end, at 1e-12 and a delta of 1e-300 an order had a negative budget."""
    for calibrate in (
        lambda: rdp_order(epsilon, 1e-6),
        lambda: bounded_range_epsilon(epsilon, 1e-6, 20),
        lambda: sampled_noise_multiplier(epsilon, 1e-6, 0.1, 50),
    ):
        with pytest.raises(ValueError, match=re.escape("epsilon must lie in [1e-06, inf]")):
            calibrate()


def test_a_search_for_noise_ends_whatever_the_budget():
    """Costs that fall with the noise and jump to 0, or that numerics keep from falling."""
    assert safe_log_noise(lambda log_noise: max(0.0, 1.0 - log_noise), 1e-300, 0.0, -1.0) <= 1.0 + 1e-9
    with pytest.raises(ValueError, match=r"budget of 1 is too small.*raise epsilon or delta"):
        safe_log_noise(lambda log_noise: 2.0, 1.0, 0.0, -1.0)
    with pytest.raises(ValueError, match=r"budget of 1 is too small.*raise epsilon or delta"):
        safe_log_noise(lambda log_noise: math.nan, 1.0, 0.0, -1.0)


def test_sampled_noise_that_numerics_cannot_tell_is_refused():
    """The search for the noise used to go on until the exponential overflowed, or to find 1e30."""
    with pytest.raises(ValueError, match=r"budget of 0.001 is too small.*raise epsilon or delta"):
        sampled_noise_multiplier(1e-3, 1e-30, 0.1, 50)


@pytest.mark.parametrize(
    ("epsilon", "delta", "rate", "count"),
    [
        (1.0, 1e-6, 0.1, 50),
        (0.1, 1e-6, 0.01, 1000),
        (8.0, 1e-5, 0.05, 300),
        (1.0, 1e-12, 1e-3, 100_000),
        (0.01, 1e-8, 0.2, 30),
        (1.0, 1e-6, 0.999, 10),
        pytest.param(1000.0, 1e-6, 0.1, 50, marks=pytest.mark.slow),
        pytest.param(1e8, 1e-6, 0.1, 50, marks=pytest.mark.slow),
    ],
)
def test_sampled_noise_multiplier_is_safe_and_tight(epsilon, delta, rate, count):
    sigma = sampled_noise_multiplier(epsilon, delta, rate, count)
    reached = compose([(SampledGaussianCost(rate, sigma), count)]).epsilon(delta)
    assert epsilon * (1 - 1e-3) <= reached <= epsilon


def test_sampled_noise_multiplier_ends():
    assert sampled_noise_multiplier(1.0, 1e-6, 0.1, 50) == pytest.approx(3.30, abs=0.01)
    assert sampled_noise_multiplier(1.0, 1e-6, 1.0, 9) == pytest.approx(3 / gaussian_mu(1.0, 1e-6))
    assert sampled_noise_multiplier(math.inf, 1e-6, 0.1, 50) == 0.0
    assert sampled_noise_multiplier(1.0, 1e-3, 1e-6, 1) <= 0.03  # delta alone covers the samples
    for arguments, words in [
        ((1.0, 1e-6, 0.0, 5), "sampling_rate"),
        ((1.0, 1e-6, 1.5, 5), "sampling_rate"),
        ((1.0, 1e-6, 0.1, 0), "count"),
        ((1.0, 1e-6, 0.1, 2.5), "count"),
        ((1.0, 0.0, 0.1, 5), "delta"),
        ((0.0, 1e-6, 0.1, 5), "epsilon"),
    ]:
        with pytest.raises(ValueError, match=words):
            sampled_noise_multiplier(*arguments)
