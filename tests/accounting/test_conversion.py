"""Conversions against independently computed values, quadrature and limits."""

import math

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.stats import norm

from dpskl.accounting.conversion import (
    bounded_range_rdp,
    gaussian_delta,
    gaussian_epsilon,
    gaussian_rdp,
    laplace_rdp,
    pure_rdp,
    pure_to_gdp,
    rdp_delta,
    rdp_epsilon,
    sampled_gaussian_rdp,
    sampled_pure_losses,
    sampled_pure_rdp,
)


@pytest.mark.parametrize(
    ("mu", "epsilon", "delta"),
    [
        (1, 1, 0.126936738),
        (0.5, 0.1, 0.159260507),
        (0.2, 1, 1.75463333e-8),
        (2, 3, 0.183813077),
        (0.1, 0, 0.0398776117),
        (0.3, -0.2, 0.222035016),
        (0.2, 1.5, 1.7339516675e-15),
        (0.1, 0.9, 1.91849120689e-21),
        (1, 8, 3.65082168742e-15),
    ],
)
def test_gaussian_delta_reproduces_reference_values(mu, epsilon, delta):
    assert gaussian_delta(mu, epsilon) == pytest.approx(delta, rel=5e-9)


@pytest.mark.parametrize("mu", [1e-3, 0.05, 0.7, 3.0, 11.0, 40.0])
def test_gaussian_delta_agrees_with_direct_evaluation_and_is_continuous(mu):
    for position in (-1.0, -0.3, 0.0, 0.2, 1.0, 3.0):
        epsilon = mu * mu / 2 + position * mu
        direct = norm.cdf(mu / 2 - epsilon / mu) - math.exp(epsilon + norm.logcdf(-mu / 2 - epsilon / mu))
        assert gaussian_delta(mu, epsilon) == pytest.approx(direct, rel=1e-9, abs=1e-13)
    edge = mu * mu / 2 - 5.0 * mu  # the two formulas meet here
    if edge > 0:
        assert gaussian_delta(mu, edge * (1 - 1e-9)) == pytest.approx(gaussian_delta(mu, edge * (1 + 1e-9)), rel=1e-6)


def test_gaussian_delta_for_tiny_mu_agrees_with_the_general_formula():
    for mu in (0.99e-5, 1.01e-5):
        for ratio in (0.5, 2.0, 5.0):
            expected = mu * (norm.pdf(ratio) - ratio * norm.sf(ratio))
            assert gaussian_delta(mu, ratio * mu) == pytest.approx(expected, rel=3e-5)


def test_gaussian_delta_limits():
    assert gaussian_delta(0.0, 0.5) == 0.0
    assert gaussian_delta(0.0, -0.5) == pytest.approx(1 - math.exp(-0.5))
    assert gaussian_delta(math.inf, 3.0) == 1.0
    assert gaussian_delta(1e5, 1e8) == pytest.approx(1.0)
    assert gaussian_delta(1.0, 1e8) == 0.0
    assert 0.0 < gaussian_delta(1.4142e4, 1e8) < 1.0
    assert gaussian_delta(1.0, -1e8) == 1.0
    with pytest.raises(ValueError, match="mu must lie in"):
        gaussian_delta(-1.0, 1.0)
    with pytest.raises(ValueError, match="epsilon"):
        gaussian_delta(1.0, math.nan)


@pytest.mark.parametrize(
    ("mu", "delta", "epsilon"),
    [
        (0.2, 1e-5, 0.725521751),
        (0.2, 1e-6, 0.834117549),
        (0.003, 1e-7, 0.010921357),
        (math.sqrt(5) / 2, 1e-6, 5.55085987),
    ],
)
def test_gaussian_epsilon_reproduces_reference_values(mu, delta, epsilon):
    assert gaussian_epsilon(mu, delta) == pytest.approx(epsilon, abs=6e-9)


@pytest.mark.parametrize("mu", [1e-6, 0.01, 1.0, 30.0, 1e4])
@pytest.mark.parametrize("delta", [0.3, 1e-5, 1e-15, 1e-100])
def test_gaussian_epsilon_is_on_the_safe_side_and_tight(mu, delta):
    epsilon = gaussian_epsilon(mu, delta)
    assert gaussian_delta(mu, epsilon) <= delta
    if epsilon > 0:
        assert gaussian_delta(mu, epsilon * (1 - 1e-6)) > delta


def test_gaussian_epsilon_ends():
    assert gaussian_epsilon(1.0, 0.0) == math.inf
    assert gaussian_epsilon(math.inf, 1e-6) == math.inf
    assert gaussian_epsilon(0.0, 0.0) == 0.0
    assert gaussian_epsilon(0.1, 0.9) == 0.0
    assert gaussian_epsilon(0.1, 0.2, lowest=-1.0) < 0.0


def test_reference_values_of_pure_and_laplace_curves():
    assert pure_rdp(1, 8) == pytest.approx(0.955248374, abs=1e-9)
    assert pure_rdp(0.1, 22) == pytest.approx(0.0699562224, abs=1e-10)
    assert laplace_rdp(0.5, 8) == pytest.approx(0.410267882, abs=1e-9)


@pytest.mark.parametrize(
    ("epsilon", "alpha", "value"),
    [(1, 8, 0.635459399), (1, 2, 0.240229014), (0.1, 22, 0.0258953088), (3, 4, 2.26735809)],
)
def test_reference_values_of_the_bounded_range_curve(epsilon, alpha, value):
    assert bounded_range_rdp(epsilon, alpha) == pytest.approx(value, rel=2e-9)


@pytest.mark.parametrize("epsilon", [1e-4, 0.3, 2.0, 20.0])
@pytest.mark.parametrize("alpha", [1.1, 3.0, 50.0])
def test_bounded_range_curve_is_the_supremum_over_two_point_laws(epsilon, alpha):
    t = np.linspace(0, epsilon, 20_003)[1:-1]
    p = np.expm1(epsilon - t) / (np.exp(epsilon - t) - np.exp(-t))
    log_moment = np.logaddexp(np.log(p) + (alpha - 1) * t, np.log1p(-p) + (alpha - 1) * (t - epsilon))
    assert bounded_range_rdp(epsilon, alpha) == pytest.approx((log_moment / (alpha - 1)).max(), rel=1e-5)
    assert bounded_range_rdp(epsilon, alpha) <= min(epsilon, alpha * epsilon**2 / 8) * (1 + 1e-9)


@pytest.mark.parametrize("curve", [pure_rdp, laplace_rdp, bounded_range_rdp])
def test_curves_of_bounded_losses_grow_to_epsilon_without_warnings(curve):
    for epsilon in (0.0, 1e-9, 1e-3, 1.0, 1e3, 1e8, math.inf):
        values = [curve(epsilon, alpha) for alpha in (1.0001, 2.0, 50.0, 1e6, 1e12, math.inf)]
        assert values == sorted(values)
        assert values[-1] == epsilon
    # second order in epsilon, which a difference of logarithms would lose
    assert pure_rdp(1e-7, 4.0) == pytest.approx(4.0 * 1e-14 / 2, rel=1e-6)
    assert laplace_rdp(1e-5, 4.0) == pytest.approx(4.0 * 1e-10 / 2, rel=1e-4)


def test_laplace_curve_against_quadrature():
    alpha, e = 3.0, 0.8
    moment = quad(
        lambda x: 0.5 * e * math.exp(-alpha * e * abs(x) + (alpha - 1) * e * abs(x - 1)),
        -40,
        40,
        points=[0, 1],
    )
    assert laplace_rdp(e, alpha) == pytest.approx(math.log(moment[0]) / (alpha - 1), rel=1e-7)


def _mixture_moment(q, sigma, alpha, removal):
    mu = 1 / sigma
    x = np.linspace(-40, 40 + alpha * mu, 400_001)
    log_ratio = np.logaddexp(np.log1p(-q), np.log(q) + mu * x - mu * mu / 2)
    power = alpha if removal else 1 - alpha
    return math.log(np.exp(power * log_ratio - x * x / 2).sum() * (x[1] - x[0]) / math.sqrt(2 * math.pi)) / (alpha - 1)


@pytest.mark.parametrize(("q", "sigma", "alpha"), [(0.01, 1.0, 8), (0.1, 3.3, 20), (0.5, 0.7, 3), (1e-3, 0.5, 2)])
def test_sampled_gaussian_curve_is_exact_and_covers_both_directions(q, sigma, alpha):
    value = sampled_gaussian_rdp(q, sigma, alpha)
    assert value == pytest.approx(_mixture_moment(q, sigma, alpha, True), rel=1e-6)
    assert value >= _mixture_moment(q, sigma, alpha, False) * (1 - 1e-9)
    assert sampled_gaussian_rdp(q, sigma, alpha - 0.5) == value


def test_sampled_gaussian_curve_limits():
    assert sampled_gaussian_rdp(1.0, 2.0, 3.5) == gaussian_rdp(0.5, 3.5)
    assert sampled_gaussian_rdp(0.0, 2.0, 3.5) == 0.0
    assert sampled_gaussian_rdp(0.5, 0.0, 3.5) == math.inf
    assert sampled_gaussian_rdp(1e-6, 50.0, 2) == pytest.approx(1e-12 * math.expm1(1 / 2500), rel=1e-6)
    assert sampled_gaussian_rdp(0.1, 1e-3, 300) <= 300 / 2e-6 + 1e-3


@pytest.mark.parametrize(
    ("q", "epsilon", "alpha"), [(0.1, 1.0, 8.0), (0.5, 3.0, 2.5), (0.01, 0.1, 60.0), (1.0, 1.0, 8.0)]
)
def test_sampled_pure_curve_is_that_of_the_sampled_two_point_pair(q, epsilon, alpha):
    lost = 1 / (1 + math.exp(epsilon))
    without = np.array([lost, 1 - lost])
    record = (1 - q) * without + q * without[::-1]
    removed = math.log((record**alpha * without ** (1 - alpha)).sum()) / (alpha - 1)
    added = math.log((without**alpha * record ** (1 - alpha)).sum()) / (alpha - 1)
    assert sampled_pure_rdp(q, epsilon, alpha) == pytest.approx(max(removed, added), rel=1e-9)


def test_range_of_the_sampled_response_loss():
    upper, lower = sampled_pure_losses(0.1, 1.0)
    assert upper == pytest.approx(0.158565079, abs=5e-10)
    assert lower == pytest.approx(-0.0652983360, abs=5e-11)
    assert sampled_pure_losses(1.0, 2.0) == (2.0, -2.0)
    assert sampled_pure_losses(0.5, 800.0)[0] == pytest.approx(800 - math.log(2))


def test_rdp_conversion_reproduces_the_reference_budgets():
    assert rdp_epsilon(lambda a: 0.0243559704 * a, 1e-6) == pytest.approx(1.0, abs=1e-6)
    assert rdp_epsilon(lambda a: 0.00253964252 * a, 1e-6) == pytest.approx(0.3, abs=1e-6)
    assert rdp_epsilon(lambda a: 0.0172053180 * a, 1e-8) == pytest.approx(1.0, abs=1e-6)


@pytest.mark.parametrize("rho", [1e-14, 1e-8, 1e-3, 1.0, 1e4, 1e8])
@pytest.mark.parametrize("delta", [1e-2, 1e-6, 1e-15])
def test_rdp_conversion_bounds_the_gaussian_and_inverts(rho, delta):
    epsilon = rdp_epsilon(lambda a: rho * a, delta)
    exact = gaussian_epsilon(math.sqrt(2 * rho), delta)
    assert exact <= epsilon * (1 + 1e-12)
    if delta < 1e-3:
        assert epsilon <= 1.5 * exact + 1e-6
    if epsilon > 0:
        assert rdp_delta(lambda a: rho * a, epsilon) == pytest.approx(delta, rel=1e-2)


def test_rdp_conversion_ends():
    assert rdp_epsilon(lambda a: pure_rdp(1.0, a), 0.0) == 1.0
    assert rdp_epsilon(lambda a: a * 0.1, 0.0) == math.inf
    assert rdp_epsilon(lambda a: a * 1e-9, 1e-3) == 0.0
    assert rdp_delta(lambda a: pure_rdp(1.0, a), 1.0) == 0.0
    assert rdp_delta(lambda a: math.inf, 1.0) == 1.0
    assert rdp_epsilon(lambda a: math.inf, 1e-5) == math.inf
    negative = rdp_delta(lambda a: a * 0.01, -0.3)
    assert gaussian_delta(math.sqrt(0.02), -0.3) <= negative < 1.0


def test_pure_to_gdp_dominates_randomised_response_and_touches_it():
    for epsilon in (1e-6, 0.1, 0.999, 1.001, 5.0, 40.0, 1000.0):
        mu = pure_to_gdp(epsilon)
        assert gaussian_delta(mu, 0.0) == pytest.approx(math.tanh(epsilon / 2), rel=1e-9)
        for threshold in np.linspace(0, min(epsilon, 50.0), 20):
            response = -math.expm1(threshold - epsilon) / (1 + math.exp(-epsilon))
            assert gaussian_delta(mu, threshold) >= response * (1 - 1e-9)
    assert pure_to_gdp(0.1) == pytest.approx(2 * norm.ppf(1 / (1 + math.exp(-0.1))), rel=1e-9)
    assert pure_to_gdp(math.inf) == math.inf
