"""The cost of AboveThreshold: its curve, what filters and ledgers make of it, and calibration."""

import json
import math
import time

import numpy as np
import pytest

from dpskl.accounting import (
    AboveThresholdCost,
    BasicFilter,
    FilterRefusal,
    GaussianCost,
    GDPFilter,
    PrivacyAccountant,
    PureCost,
    RDPFilter,
    calibrate_above_threshold,
    compose,
    cost_from_dict,
    laplace_rdp,
    log_stopping_value,
    pure_rdp,
    rdp_epsilon,
)
from dpskl.accounting.stopping_game import smallest_query_scale

# --- the cost ---


@pytest.mark.parametrize("law", ["gaussian", "laplace"])
def test_the_curve_is_the_smallest_bound(law):
    cost = AboveThresholdCost(law, 3.0, 5.0, 12)
    for alpha in (1.3, 4.0, 17.0):
        bounds = []
        for theta in (0.0, 0.1, 0.2, 0.3, 0.4, 0.5):
            shift = (1 - theta) / 3.0
            threshold = alpha * shift**2 / 2 if law == "gaussian" else laplace_rdp(shift, alpha)
            bounds.append(threshold + log_stopping_value(law, 12, alpha, 0.2, theta) / (alpha - 1))
        if law == "laplace":
            bounds.append(pure_rdp(1 / 3 + 1 / 5, alpha))
        assert cost.rdp(alpha) == pytest.approx(min(bounds), rel=1e-14)
    assert pure_rdp(1.0, 8.0) == pytest.approx(0.955248374, abs=1e-9)
    assert pure_rdp(0.1, 22.0) == pytest.approx(0.0699562224, abs=1e-10)
    assert laplace_rdp(0.5, 8.0) == pytest.approx(0.410267882, abs=1e-9)


@pytest.mark.parametrize("law", ["gaussian", "laplace"])
def test_the_cost_grows_with_count_and_order_and_falls_with_noise(law):
    for alpha in (1.5, 8.0, 50.0):
        for scale in (0.5, 4.0, 60.0):
            costs = [AboveThresholdCost(law, scale, 1.4 * scale, count).rdp(alpha) for count in (1, 5, 30)]
            assert costs == sorted(costs)
        costs = [AboveThresholdCost(law, scale, scale, 10).rdp(alpha) for scale in (60.0, 20.0, 5.0, 1.0, 0.3)]
        assert costs == sorted(costs)
    for scale in (0.5, 4.0, 60.0):
        curve = np.array(
            [AboveThresholdCost(law, scale, scale, 10).rdp(a) for a in (1.01, 1.5, 3.0, 10.0, 40.0, 130.0)]
        )
        assert (curve[1:] >= curve[:-1] * (1 - 5e-4)).all()  # the margin need not be monotone


@pytest.mark.parametrize("cost", [AboveThresholdCost("gaussian", 4.0, 6.0, 30), AboveThresholdCost("laplace", 4, 4, 9)])
def test_costs_are_values_and_survive_json(cost):
    twin = cost_from_dict(json.loads(json.dumps(cost.to_dict(), allow_nan=False)))
    assert twin == cost
    assert hash(twin) == hash(cost)
    assert eval(repr(cost)) == cost
    composed = compose([(cost, 3), GaussianCost(0.1)])
    assert cost_from_dict(json.loads(json.dumps(composed.to_dict()))) == composed
    silent = AboveThresholdCost(cost.law, math.inf, 0.0, 3)
    assert cost_from_dict(json.loads(json.dumps(silent.to_dict(), allow_nan=False))) == silent
    with pytest.raises(ValueError, match="do not describe a cost of kind 'above_threshold'"):
        cost_from_dict({"kind": "above_threshold", "count": 3})


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("normal", 1.0, 1.0, 3), "law must be 'gaussian' or 'laplace', got 'normal'"),
        (("inf", 1.0, 1.0, 3), "law must be"),
        (("gaussian", -1.0, 1.0, 3), "threshold_scale must lie in"),
        (("gaussian", 1.0, math.nan, 3), "query_scale must lie in"),
        (("laplace", 1.0, 1.0, 0), "count must lie in"),
        (("laplace", 1.0, 1.0, math.inf), "count must lie in"),
        (("laplace", 1.0, 1.0, 2.5), "count must be an integer of at least 1, got 2.5"),
    ],
)
def test_bad_parameters_are_refused_in_words(arguments, words):
    with pytest.raises(ValueError, match=words):
        AboveThresholdCost(*arguments)


def test_bad_games_are_refused_in_words():
    good = {"law": "gaussian", "count": 3, "alpha": 2.0, "ratio": 0.1, "theta": 0.5}
    for name, value in [
        ("law", "x"),
        ("count", 0),
        ("alpha", 1.0),
        ("ratio", -0.1),
        ("theta", 1.1),
        ("ratio", math.nan),
    ]:
        with pytest.raises(ValueError, match=f"{name} must"):
            log_stopping_value(**{**good, name: value})
    with pytest.raises(ValueError, match="alpha must lie in"):
        AboveThresholdCost("laplace", 1.0, 1.0, 3).rdp(1.0)
    for arguments, name in [((0, 2.0, 0.1), "count"), ((3, 1.0, 0.1), "alpha"), ((3, 2.0, 0.0), "divergence")]:
        with pytest.raises(ValueError, match=f"{name} must"):
            calibrate_above_threshold(*arguments)
    with pytest.raises(ValueError, match="count must"):
        calibrate_above_threshold(0, 2.0, math.inf)


@pytest.mark.parametrize("law", ["gaussian", "laplace"])
def test_no_noise_is_no_privacy_and_endless_noise_is_free(law):
    for scales in ((0.0, 1.0), (1.0, 0.0), (0.0, 0.0)):
        cost = AboveThresholdCost(law, *scales, 5)
        for total in (cost, compose([cost, PureCost(0.1)]), compose([(cost, 3)])):
            assert total.epsilon(0.5) == total.epsilon(0.0) == math.inf
            assert total.delta(5.0) == 1.0
            assert total.rdp(2.0) == math.inf
    free = AboveThresholdCost(law, math.inf, math.inf, 5)
    assert free.epsilon(0.0) == free.rdp(7.0) == free.delta(0.0) == 0.0
    assert compose([(free, 7)]) == PureCost(0.0)


def test_beyond_the_cap_the_pure_guarantee_is_left():
    laplace, gaussian = (AboveThresholdCost(law, 0.1, 0.1, 5) for law in ("laplace", "gaussian"))
    assert laplace.rdp(31.0) == pure_rdp(20.0, 31.0)
    assert gaussian.rdp(31.0) == math.inf > gaussian.rdp(29.9)
    assert laplace.rdp(math.inf) == laplace.pure_epsilon == 20.0
    assert gaussian.rdp(math.inf) == gaussian.pure_epsilon == math.inf
    assert AboveThresholdCost("gaussian", 0.003, 0.003, 5).epsilon(1e-6) == math.inf
    assert AboveThresholdCost("laplace", 0.003, 0.003, 5).epsilon(1e-6) < 2 / 0.003


@pytest.mark.parametrize(
    "cost", [AboveThresholdCost("gaussian", 19.0, 27.0, 30), AboveThresholdCost("laplace", 21.0, 21.0, 30)], ids=str
)
def test_conversions_agree_with_the_curve_and_are_quick(cost):
    start = time.process_time()
    epsilon = cost.epsilon(1e-6)
    assert time.process_time() - start < 2.0  # about 0.6 s
    # at many more orders, among those that can be the best
    exact = rdp_epsilon(lambda alpha: cost.rdp(alpha) if 20.0 < alpha < 300.0 else math.inf, 1e-6)
    if cost.law == "laplace":
        exact = min(exact, PureCost(cost.pure_epsilon).epsilon(1e-6))
        assert cost.epsilon(0.0) == cost.pure_epsilon
        assert cost.delta(cost.pure_epsilon) == 0.0
        assert cost.delta(0.0) <= PureCost(cost.pure_epsilon).delta(0.0)
    assert exact * (1 - 1e-9) <= epsilon <= exact * 1.02
    assert cost.delta(epsilon) <= 1e-6 * (1 + 1e-6)
    assert cost.delta(epsilon * 0.98) > 1e-6
    deltas = [cost.delta(value) for value in np.linspace(-0.2, 0.3, 11)]
    assert deltas == sorted(deltas, reverse=True)


def test_compositions_take_the_smaller_of_curve_and_pair():
    gaussian, laplace = AboveThresholdCost("gaussian", 200.0, 300.0, 30), AboveThresholdCost("laplace", 300, 300, 30)
    start = time.process_time()
    for cost in (gaussian, laplace):
        many = compose([(cost, 50)])
        converted = rdp_epsilon(cost.table.rdp, 1e-6)
        assert cost.epsilon(1e-6) <= converted
        exact = rdp_epsilon(lambda alpha, cost=cost: 50 * cost.table.rdp(alpha), 1e-6, cost.table.orders)
        assert many.epsilon(1e-6) == pytest.approx(exact, rel=1e-9)
        assert many.delta(many.epsilon(1e-6)) == pytest.approx(1e-6, rel=1e-3)
        assert many.rdp(9.0) == pytest.approx(50 * cost.rdp(9.0))
        mixed = compose([(cost, 50), (GaussianCost(0.01), 50)])
        assert many.epsilon(1e-6) < mixed.epsilon(1e-6) < many.epsilon(5e-7) + GaussianCost(0.0708).epsilon(5e-7)
    # the pair of the pure guarantee wins for a few coarse answers, the curve for many fine ones
    assert compose([(laplace, 50)]).epsilon(1e-6) < 0.6 * compose([(PureCost(2 / 300), 50)]).epsilon(1e-6)
    coarse = AboveThresholdCost("laplace", 0.25, 0.25, 30)
    assert compose([(coarse, 2)]).epsilon(1e-6) <= compose([(PureCost(8.0), 2)]).epsilon(1e-6) * (1 + 1e-9)
    assert compose([(coarse, 2)]).epsilon(0.0) == 16.0
    assert time.process_time() - start < 15.0


def test_filters_and_ledgers_take_the_cost(tmp_path):
    cost = AboveThresholdCost("gaussian", 30.0, 42.0, 30)
    steps = RDPFilter(1.0, 1e-6)
    charge = cost.rdp(steps.order.alpha)
    assert steps.charge(cost) == charge
    for _ in range(int(steps.remaining / charge)):
        steps.spend(cost)
    with pytest.raises(FilterRefusal):
        steps.spend(cost)
    assert not GDPFilter(1.0, 1e-6).can_spend(cost)
    pure = BasicFilter(1.0, 0.0)
    pure.spend(AboveThresholdCost("laplace", 4.0, 4.0, 30))
    assert pure.remaining == 0.5
    accountant = PrivacyAccountant.create(tmp_path / "ledger.sqlite", epsilon=1.0, delta=1e-6)
    accountant.spend(cost)
    accountant.spend(cost)
    again = PrivacyAccountant.open(tmp_path / "ledger.sqlite")
    assert again.spent(1e-6).epsilon == pytest.approx(compose([(cost, 2)]).epsilon(1e-6), rel=1e-9)
    assert again.verify()


# --- calibration ---


@pytest.mark.parametrize(
    ("count", "alpha", "divergence"),
    [
        (30, 22.0, 0.01),
        (10, 2.0, 1e-4),
        (30, 60.0, 1e-13),
        (100, 5.0, 3.0),
        (1, 22.0, 0.5),
        (30, 1.0001, 0.01),
        (30, 2000.0, 1e-3),
        (30, 22.0, 2000.0),
    ],
)
def test_calibration_meets_its_divergence(count, alpha, divergence):
    scale = calibrate_above_threshold(count, alpha, divergence)
    cost = AboveThresholdCost("gaussian", scale * math.sqrt(1 / 3), scale * math.sqrt(2 / 3), count)
    assert 0.999 * divergence <= cost.rdp(alpha) <= divergence * (1 + 1e-15)


def test_calibration_at_its_ends():
    assert calibrate_above_threshold(30, 22.0, math.inf) == 0.0
    scale = calibrate_above_threshold(30, 22.0, 1e5)  # more than the game can say
    assert scale * math.sqrt(2 / 3) == pytest.approx(smallest_query_scale(22.0), rel=1e-9)
    assert AboveThresholdCost("gaussian", scale * math.sqrt(1 / 3), scale * math.sqrt(2 / 3), 30).rdp(22.0) < 1e5


@pytest.mark.parametrize(
    ("count", "scale", "alpha", "share"),
    [
        (10, 100, 2, 0.83),
        (10, 100, 32, 0.87),
        (10, 100, 128, 1.03),
        (30, 100, 2, 1.09),
        (30, 100, 32, 1.19),
        (30, 100, 128, 1.39),
        (10, 10, 2, 0.85),
        (10, 10, 32, 1.27),
        (10, 10, 128, 1.61),
        (30, 10, 2, 1.13),
        (30, 10, 32, 1.655),
        (30, 10, 128, 1.915),
    ],
)
def test_divergence_in_units_of_the_noise(count, scale, alpha, share):
    cost = AboveThresholdCost("gaussian", scale * math.sqrt(1 / 3), scale * math.sqrt(2 / 3), count)
    assert cost.rdp(alpha) * scale**2 / alpha == pytest.approx(share, abs=0.0065)
