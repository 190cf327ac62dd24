"""Composed costs: closed forms, and the smallest of the valid bounds."""

import math

import pytest

from dpskl.accounting import (
    ApproximateCost,
    BoundedRangeCost,
    GaussianCost,
    LaplaceCost,
    PureCost,
    RDPCost,
    ReplaceOneObjectiveCost,
    SampledGaussianCost,
    SampledPureCost,
    ZCDPCost,
    compose,
    cost_from_dict,
    gaussian_epsilon,
    gaussian_mu,
    rdp_epsilon,
)


def test_compose_gives_closed_forms_where_exact():
    assert compose([]) == PureCost(0.0)
    single = SampledGaussianCost(0.1, 1.0)
    assert compose([single]) is single
    assert compose([(GaussianCost(0.3), 16), GaussianCost(0.5, 0.1)]) == GaussianCost(math.sqrt(16 * 0.09 + 0.25), 0.1)
    assert compose([ZCDPCost(0.1), (ZCDPCost(0.2), 2)]) == ZCDPCost(0.5)
    assert compose([(PureCost(0.0), 5), single, (single, 0)]) is single
    nested = compose([compose([PureCost(0.1), single]), (compose([PureCost(0.1), ZCDPCost(0.1)]), 3)])
    assert nested == compose([(PureCost(0.1), 4), single, (ZCDPCost(0.1), 3)])
    assert nested == compose([(ZCDPCost(0.1), 3), (PureCost(0.1), 4), single])


def test_forty_one_runs():
    runs = compose([(GaussianCost(gaussian_mu(1.0, 1e-6)), 41)])
    assert runs.epsilon(1e-6) == pytest.approx(7.90239801, abs=1e-8)


def test_pure_compositions_are_exact_sums_at_delta_zero():
    assert compose([(PureCost(0.1), 10)]).epsilon(0.0) == 1.0
    assert compose([PureCost(0.1), PureCost(0.2)]).epsilon(0.0) == 0.3
    assert compose([(LaplaceCost(10.0), 10)]).epsilon(0.0) == 1.0
    mixed = compose([(PureCost(0.1), 5), (BoundedRangeCost(0.1), 5)])
    assert mixed.epsilon(0.0) == 1.0
    assert mixed.delta(1.0) == 0.0
    assert 0 < mixed.delta(0.999) < 1e-3
    assert compose([PureCost(0.1), GaussianCost(0.1)]).epsilon(0.0) == math.inf


@pytest.mark.parametrize(
    ("parts", "delta", "epsilon"),
    [
        ([(SampledGaussianCost(0.1, 3.3), 50)], 1e-6, 1.001047),
        ([(SampledGaussianCost(0.1, 6.0), 300)], 1e-6, 1.271329),
        ([(SampledGaussianCost(0.01, 1.0), 1000)], 1e-5, 1.828237),
        ([(SampledGaussianCost(0.1, 3.52), 50), (SampledPureCost(0.1, 0.1), 50)], 1e-6, 0.972915),
        ([(SampledGaussianCost(0.1, 6.0), 300), (SampledPureCost(0.1, 0.2), 100)], 1e-6, 1.557958),
        ([(SampledGaussianCost(0.1, 3.3), 50)], 1e-15, 1.93702),
        ([(LaplaceCost(20.0), 50), (GaussianCost(0.25), 1)], 1e-6, 1.8854),
    ],
)
def test_composed_epsilons(parts, delta, epsilon):
    cost = compose(parts)
    found = cost.epsilon(delta)
    assert found == pytest.approx(epsilon, rel=1e-4)
    assert found >= epsilon * (1 - 1e-5)
    assert cost.delta(found) == pytest.approx(delta, rel=5e-3)
    assert found <= rdp_epsilon(cost.rdp, delta)


@pytest.mark.parametrize(
    ("parts", "delta"),
    [
        # far losses of tiny probability, where no single tilt and no single cut of the tail serves
        ([(SampledGaussianCost(2.4e-4, 4.26), 2), (SampledPureCost(1.07e-4, 0.33), 2)], 2.7e-14),
        ([(SampledGaussianCost(0.0027, 1.38), 100)], 1.6e-8),
        ([(SampledGaussianCost(4.2e-5, 0.95), 884)], 5.4e-12),
        # losses so small that delta is far below the probability of exceeding epsilon
        ([(SampledGaussianCost(2.9e-4, 18.4), 5)], 5.2e-15),
    ],
)
def test_heavy_tails_and_tiny_losses_invert(parts, delta):
    cost = compose(parts)
    assert cost.delta(cost.epsilon(delta)) == pytest.approx(delta, rel=0.02)


@pytest.mark.parametrize("length", [25.0, 30.0, 35.0, 60.0])
def test_losses_whose_lower_end_is_a_rounding_error_of_one(length):
    for cost in (PureCost(length), BoundedRangeCost(length)):
        assert 0.9 * 3 * length < compose([(cost, 3)]).epsilon(1e-6) <= 3 * length


def test_a_large_delta_covers_part_of_the_shift():
    shifted = compose([(GaussianCost(1e-4, 0.01), 50), (SampledGaussianCost(0.1, 50.0), 20)])
    found = shifted.epsilon(0.1)
    assert 0.0 < found < 0.5 - 0.05
    assert shifted.delta(found) <= 0.1 * (1 + 1e-9)


def test_shifts_are_taken_out_of_mixed_compositions():
    plain = compose([(GaussianCost(0.2), 3), (SampledPureCost(0.1, 0.5), 20)])
    shifted = compose([(GaussianCost(0.2, 0.02), 3), (SampledPureCost(0.1, 0.5), 20)])
    assert shifted.epsilon(1e-6) == pytest.approx(plain.epsilon(1e-6) + 0.06, rel=1e-12)
    for epsilon in (-0.2, 0.03, 1.0, 2.0):
        assert shifted.delta(epsilon) == pytest.approx(plain.delta(epsilon - 0.06), rel=1e-3)
    assert shifted.delta(1.0) > 1.05 * plain.delta(1.0)
    assert shifted.rdp(4.0) == pytest.approx(plain.rdp(4.0) + 0.06)


def test_gaussian_parts_of_a_mixture_merge():
    many = compose([(GaussianCost(0.1), 400), (PureCost(0.05), 10)])
    assert many.epsilon(1e-6) == pytest.approx(compose([GaussianCost(2.0), (PureCost(0.05), 10)]).epsilon(1e-6))
    assert many.epsilon(1e-6) >= gaussian_epsilon(2.0, 1e-6)


def test_approximate_parts_add_their_deltas():
    two = compose([(ApproximateCost(1.0, 1e-6), 2)])
    failure = 1 - (1 - 1e-6) ** 2
    assert two.epsilon(failure * (1 + 1e-9)) == pytest.approx(2.0, rel=1e-6)
    assert two.epsilon(1e-6) == math.inf
    assert two.delta(5.0) == pytest.approx(failure, rel=1e-9)
    many = compose([(ApproximateCost(0.1, 1e-8), 40)])
    assert many.epsilon(1e-6) < 4.0
    pure = compose([(PureCost(0.1), 40)])
    left = (1e-6 - (1 - (1 - 1e-8) ** 40)) / (1 - 1e-8) ** 40
    assert many.epsilon(1e-6) == pytest.approx(pure.epsilon(left), rel=1e-3)


def test_tabulated_and_concentrated_parts_use_the_curve():
    cost = compose([(ZCDPCost(0.01), 10), PureCost(0.1)])
    assert cost.epsilon(1e-6) == pytest.approx(rdp_epsilon(cost.rdp, 1e-6))
    table = compose([RDPCost([2, 8, 77], [0.1, 0.4, 3.0]), RDPCost([3, 77], [0.1, 1.0])])
    assert table.rdp(77) == 4.0
    assert table.rdp(78) == math.inf
    assert table.epsilon(1e-30) == pytest.approx(4.0 + math.log1p(-1 / 77) - math.log(77e-30) / 76, rel=1e-12)


def test_bounded_range_steps_compose_better_than_pure_steps():
    ranged, pure = compose([(BoundedRangeCost(0.1), 100)]), compose([(PureCost(0.1), 100)])
    assert ranged.epsilon(1e-6) < 0.6 * pure.epsilon(1e-6)


def test_replaced_records_compose_through_one_point():
    single = ReplaceOneObjectiveCost(0.2, 0.025)
    twice = compose([(single, 2)])
    assert single.epsilon(5e-7) < twice.epsilon(1e-6) <= 2 * single.epsilon(5e-7) * (1 + 1e-9)
    mixed = compose([single, GaussianCost(0.1)])
    epsilon = mixed.epsilon(1e-6)
    assert single.epsilon(1e-6) < epsilon < single.epsilon(1e-7) + gaussian_epsilon(0.1, 9e-7) + 0.2
    assert mixed.delta(epsilon) == pytest.approx(1e-6, rel=1e-3)
    assert mixed.rdp(2.0) == math.inf


@pytest.mark.parametrize(
    "cost",
    [
        PureCost(math.inf),
        GaussianCost(math.inf),
        ZCDPCost(math.inf),
        LaplaceCost(0.0),
        BoundedRangeCost(math.inf),
        SampledGaussianCost(0.1, 0.0),
        SampledPureCost(0.1, math.inf),
        ApproximateCost(math.inf, 0.0),
        ApproximateCost(1.0, 1.0),
        RDPCost([2], [math.inf]),
    ],
    ids=repr,
)
def test_no_noise_is_no_privacy(cost):
    for total in (cost, compose([cost, PureCost(0.1)]), compose([(cost, 3), SampledGaussianCost(0.1, 1.0)])):
        assert total.epsilon(0.5) == math.inf
        assert total.epsilon(0.0) == math.inf
        assert total.delta(5.0) == 1.0
        assert total.rdp(2.0) == math.inf


def test_expensive_answers_are_cached():
    import time

    cost = compose([(SampledGaussianCost(0.0123, 1.0), 1000)])
    first = cost.epsilon(1e-5)
    start = time.perf_counter()
    for _ in range(20):
        assert cost_from_dict(cost.to_dict()).epsilon(1e-5) == first
    assert time.perf_counter() - start < 0.05
