"""Costs: profiles, curves, JSON form, and objective perturbation."""

import json
import math
import pickle

import numpy as np
import pytest

from dpskl.accounting import (
    ApproximateCost,
    BoundedRangeCost,
    ComposedCost,
    Cost,
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
    gaussian_delta,
    pure_rdp,
    rdp_epsilon,
)
from dpskl.accounting.costs.pure import response_delta
from dpskl.accounting.costs.sampled import sampled_deltas

COSTS = [
    PureCost(0.7),
    ApproximateCost(0.5, 1e-5),
    ZCDPCost(0.02),
    GaussianCost(0.4),
    GaussianCost(0.3, shift=0.05),
    BoundedRangeCost(0.9),
    LaplaceCost(3.0),
    RDPCost((2, 8, 32), (0.1, 0.4, 2.0)),
    SampledGaussianCost(0.1, 1.0),
    SampledPureCost(0.1, 1.0),
    ReplaceOneObjectiveCost(0.2, 0.03),
    ComposedCost(((PureCost(0.1), 3), (SampledGaussianCost(0.1, 2.0), 20))),
]


# --- values ---


@pytest.mark.parametrize("cost", COSTS, ids=repr)
def test_costs_are_values(cost):
    text = json.dumps(cost.to_dict(), allow_nan=False)
    twin = cost_from_dict(json.loads(text))
    assert twin == cost
    assert hash(twin) == hash(cost)
    assert pickle.loads(pickle.dumps(cost)) == cost
    assert "\n" not in repr(cost)
    assert repr(cost).startswith(type(cost).__name__)
    assert isinstance(cost, Cost)
    assert len({cost, twin}) == 1
    with pytest.raises(AttributeError):
        cost.mu = 3.0


def test_infinities_survive_strict_json():
    for cost in (PureCost(math.inf), GaussianCost(math.inf), RDPCost((2, math.inf), (0.5, math.inf))):
        assert cost_from_dict(json.loads(json.dumps(cost.to_dict(), allow_nan=False))) == cost


def test_unknown_records_are_refused():
    with pytest.raises(ValueError, match="Unknown kind of privacy cost 'magic'"):
        cost_from_dict({"kind": "magic"})
    with pytest.raises(ValueError, match="do not describe a cost of kind 'pure'"):
        cost_from_dict({"kind": "pure", "mu": 1.0})
    with pytest.raises(ValueError, match="epsilon must lie in"):
        cost_from_dict({"kind": "pure", "epsilon": -1.0})


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: PureCost(-1), "epsilon"),
        (lambda: PureCost(math.nan), "epsilon"),
        (lambda: ApproximateCost(1, 1.5), "delta"),
        (lambda: ZCDPCost(-1), "rho"),
        (lambda: GaussianCost(-1), "mu"),
        (lambda: GaussianCost(1, -0.1), "shift"),
        (lambda: GaussianCost(1, math.inf), "shift"),
        (lambda: LaplaceCost(-1), "noise_multiplier"),
        (lambda: RDPCost([2, 2], [1, 1]), "increase"),
        (lambda: RDPCost([1], [1]), "orders"),
        (lambda: RDPCost([2, 3], [1]), "one common length"),
        (lambda: RDPCost([], []), "one common length"),
        (lambda: SampledGaussianCost(1.5, 1), "sampling_rate"),
        (lambda: SampledPureCost(0.1, -1), "epsilon"),
        (lambda: ReplaceOneObjectiveCost(1, -1), "shift"),
        (lambda: ComposedCost(((PureCost(1), 0),)), "compose"),
        (lambda: ComposedCost(((ComposedCost(((PureCost(1), 1),)), 1),)), "compose"),
        (lambda: compose([(PureCost(1), -1)]), "counts"),
        (lambda: compose([(PureCost(1), 1.5)]), "counts"),
        (lambda: PureCost(1).epsilon(-0.1), "delta"),
        (lambda: PureCost(1).delta(math.nan), "epsilon"),
        (lambda: PureCost(1).rdp(1.0), "alpha"),
    ],
)
def test_bad_parameters_are_refused_in_words(make, words):
    with pytest.raises(ValueError, match=words):
        make()


# --- profiles ---


@pytest.mark.parametrize("cost", COSTS, ids=repr)
def test_profiles_are_profiles(cost):
    points = np.linspace(-1.5, 3.0, 19)
    deltas = np.array([cost.delta(point) for point in points])
    assert ((deltas >= 0) & (deltas <= 1)).all()
    assert (np.diff(deltas) <= 1e-12).all()
    assert (deltas >= 1 - np.exp(points) - 1e-12).all()
    for delta in (0.2, 1e-4, 1e-8):
        epsilon = cost.epsilon(delta)
        assert epsilon >= 0
        if math.isfinite(epsilon):
            assert cost.delta(epsilon) <= delta * (1 + 1e-6)
            if epsilon > 1e-3:
                assert cost.delta(epsilon * 0.98) > delta
    assert cost.epsilon(1.0) == 0.0
    assert cost.delta(math.inf) in (0.0, getattr(cost, "stated_delta", 0.0))


@pytest.mark.parametrize("cost", [cost for cost in COSTS if math.isfinite(cost.rdp(2.0))], ids=repr)
def test_curves_are_consistent_with_the_profiles(cost):
    values = [cost.rdp(alpha) for alpha in (1.5, 2.0, 4.0, 8.0, 32.0)]
    assert values == sorted(values)
    for delta in (1e-3, 1e-6):
        assert cost.epsilon(delta) <= rdp_epsilon(cost.rdp, delta) * (1 + 1e-9)
    # the divergence from the profile: E_Q (dP/dQ)^alpha = 1 + ..., by the layer-cake formula, order 2
    grid = np.linspace(0.0, 40.0, 4001)
    if not isinstance(cost, ZCDPCost | RDPCost | ComposedCost):
        delta = np.array([cost.delta(point) for point in grid])
        upper = 2 * np.trapezoid(np.exp(grid) * delta, grid) if hasattr(np, "trapezoid") else None
        if upper is not None and cost.rdp(2.0) < 3:
            lower_half = 2 * np.trapezoid(np.exp(-2 * grid) * delta, grid)
            assert math.log1p(upper + lower_half) <= cost.rdp(2.0) * 1.4 + 1e-3


def test_single_profiles_have_their_closed_forms():
    for epsilon in (0.0, 0.3, 0.69):
        assert PureCost(0.7).delta(epsilon) == pytest.approx((math.exp(0.7) - math.exp(epsilon)) / (1 + math.exp(0.7)))
        assert LaplaceCost(2.0).delta(epsilon / 2) == pytest.approx(1 - math.exp((epsilon / 2 - 0.5) / 2))
    assert PureCost(0.7).delta(0.7) == 0.0
    assert PureCost(0.7).epsilon(0.0) == 0.7
    assert LaplaceCost(2.0).epsilon(0.0) == 0.5
    assert BoundedRangeCost(1.0).epsilon(0.0) == 1.0
    assert SampledPureCost(0.1, 1.0).epsilon(0.0) == pytest.approx(0.158565079, abs=5e-10)
    assert GaussianCost(0.1).epsilon(0.0) == math.inf
    assert ZCDPCost(0.1).epsilon(0.0) == math.inf
    assert ApproximateCost(1.0, 1e-6).epsilon(1e-6) == 1.0
    assert ApproximateCost(1.0, 1e-6).epsilon(0.99e-6) == math.inf
    assert ApproximateCost(1.0, 1e-6).rdp(2.0) == math.inf
    assert ApproximateCost(1.0, 0.0).rdp(2.0) == pure_rdp(1.0, 2.0)


@pytest.mark.parametrize("length", [0.1, 1.0, 8.0])
def test_bounded_range_profile_is_the_supremum_over_two_point_laws(length):
    t = np.linspace(0, length, 40_001)[1:-1]
    p = (1 - np.exp(t - length)) / (1 - math.exp(-length))
    for epsilon in (0.0, 0.3 * length, 0.9 * length):
        expected = (p * np.maximum(0, 1 - np.exp(epsilon - t))).max()
        assert BoundedRangeCost(length).delta(epsilon) == pytest.approx(expected, rel=1e-5)
        assert BoundedRangeCost(length).epsilon(BoundedRangeCost(length).delta(epsilon)) == pytest.approx(
            epsilon, abs=1e-9
        )


@pytest.mark.parametrize(("epsilon", "removal"), [(0.05, 0.0261436630), (0.1, 0.0184719307), (0.5, 0.00203253692)])
def test_sampled_gaussian_reference_values(epsilon, removal):
    assert SampledGaussianCost(0.1, 1.0).delta(epsilon) == pytest.approx(removal, rel=5e-9)


def test_both_directions_of_sampled_steps():
    for epsilon, removal, addition in [(0.05, 0.0261436630, 0.0105725814), (0.1, 0.0184719307, 7.52674501e-6)]:
        found = sampled_deltas(0.1, lambda value: gaussian_delta(1.0, value), epsilon)
        assert found == pytest.approx((removal, addition), rel=5e-9)
    found = sampled_deltas(0.1, lambda value: response_delta(1.0, value), 0.05)
    assert found == pytest.approx((0.0324227942, 0.0110988662), rel=5e-9)
    assert sampled_deltas(0.1, lambda value: gaussian_delta(1.0, value), 0.2)[1] == 0.0


def test_sampled_pure_reference_values():
    assert SampledPureCost(0.1, 1.0).delta(0.05) == pytest.approx(0.0324227942, rel=5e-9)
    assert SampledPureCost(0.1, 1.0).delta(0.1) == pytest.approx(0.0179268995, rel=5e-9)


@pytest.mark.parametrize(("rate", "sigma"), [(0.1, 1.0), (0.7, 0.4), (1e-4, 2.0)])
def test_sampled_gaussian_profile_is_the_larger_direction_by_quadrature(rate, sigma):
    mu = 1 / sigma
    x = np.linspace(-12, 12 + mu, 200_001)
    q_density = np.exp(-x * x / 2) / math.sqrt(2 * math.pi)
    p_density = (1 - rate) * q_density + rate * np.exp(-((x - mu) ** 2) / 2) / math.sqrt(2 * math.pi)
    for epsilon in (0.0, 1e-3, 0.05, 1.0):
        step = x[1] - x[0]
        removal = np.maximum(p_density - math.exp(epsilon) * q_density, 0).sum() * step
        addition = np.maximum(q_density - math.exp(epsilon) * p_density, 0).sum() * step
        assert SampledGaussianCost(rate, sigma).delta(epsilon) == pytest.approx(
            max(removal, addition), rel=1e-4, abs=1e-12
        )


def test_sampling_ends():
    assert SampledGaussianCost(1.0, 2.0).delta(0.5) == gaussian_delta(0.5, 0.5)
    assert SampledGaussianCost(0.0, 2.0).epsilon(0.0) == 0.0
    assert SampledPureCost(1.0, 0.7).delta(0.3) == PureCost(0.7).delta(0.3)
    assert SampledPureCost(0.0, 0.7).epsilon(0.0) == 0.0
    assert SampledGaussianCost(0.1, 1.0).delta(800.0) == 0.0
    assert SampledGaussianCost(0.01, 1e-3).delta(100.0) == pytest.approx(0.01, rel=1e-9)


# --- objective perturbation ---


@pytest.mark.parametrize(
    ("t", "ratio", "epsilon", "one_sided", "replaced"),
    [(0.2, 0.025, 1.0, 3.33594021e-8, 0.00155228192), (0.5, 0.5, 1.0, 0.0378148933, 0.289955475)],
)
def test_objective_perturbation_reference_values(t, ratio, epsilon, one_sided, replaced):
    shift = math.log1p(ratio)
    assert GaussianCost(t, shift).delta(epsilon) == pytest.approx(one_sided, rel=5e-9)
    three_terms = 2 * gaussian_delta(t, epsilon - shift) + gaussian_delta(2 * t, epsilon - shift)
    group = math.exp(shift) * gaussian_delta(2 * t, epsilon - shift)
    assert three_terms == pytest.approx(replaced, rel=5e-9)
    cost = ReplaceOneObjectiveCost(t, shift)
    assert cost.delta(epsilon) == pytest.approx(min(three_terms, group), rel=1e-12)
    assert cost.delta(epsilon) <= replaced * (1 + 5e-9)


def test_objective_perturbation_below_the_shift():
    cost = GaussianCost(0.1, math.log(1.5))
    assert cost.delta(0.2) == pytest.approx(0.186391837, rel=5e-9)
    assert cost.epsilon(0.186391838) == pytest.approx(0.2, abs=1e-7)
    assert cost.epsilon(0.5) == 0.0
    replaced = ReplaceOneObjectiveCost(0.1, math.log(1.5))
    assert replaced.delta(0.2) == 1.0
    assert replaced.delta(-3.0) == 1.0
    assert replaced.epsilon(0.9) >= math.log(1.5)
    assert replaced.rdp(2.0) == math.inf


@pytest.mark.parametrize(("t", "ratio", "delta"), [(0.2, 0.025, 0.000629276049), (0.5, 0.5, 0.408470249)])
def test_three_problems_pay_three_shifts(t, ratio, delta):
    total = compose([(GaussianCost(t, math.log1p(ratio)), 3)])
    assert isinstance(total, GaussianCost)
    assert total.delta(1.0) == pytest.approx(delta, rel=2e-8)


def test_objective_perturbation_curve():
    assert GaussianCost(0.2, math.log1p(0.025)).rdp(8.0) == pytest.approx(0.184692613, abs=1e-9)


def test_huber_counterexample_exceeds_a_profile_without_the_shift():
    # all 40 + 1 records at one point; Gaussian b; exact densities of the one coefficient
    half_width, ridge, sigma = 0.01, 0.5, 3.0
    curvature = 1 / (2 * half_width)
    shift, t = math.log1p(curvature / ridge), 1 / sigma

    def density(w, weights):
        first = second = 0.0
        for x, times in weights:
            margin = x * w
            slope = np.clip((1 + half_width - margin) / (2 * half_width), 0, 1)
            first = first - times * slope * x
            second = second + times * x * x * (np.abs(margin - 1) < half_width) * curvature
        b = -(ridge * w + first)
        return np.exp(-(b**2) / (2 * sigma**2)) / (sigma * math.sqrt(2 * math.pi)) * (ridge + second)

    w = np.linspace(-60, 60, 4_000_001)
    step = w[1] - w[0]
    with_record, without = density(w, [(1.0, 1)]), density(w, [])
    cost = GaussianCost(t, shift)
    exceeded = False
    for epsilon in np.linspace(-shift - 2 * t, shift + 2.5 * t, 13):
        for p, q in ((with_record, without), (without, with_record)):
            exact = np.maximum(p - math.exp(epsilon) * q, 0).sum() * step
            assert exact <= cost.delta(epsilon) + 1e-5
            exceeded |= exact > gaussian_delta(t, epsilon) * 1.2 + 1e-4
    assert exceeded  # so the shift is needed


@pytest.mark.parametrize("cost", [GaussianCost(0.3), PureCost(1.0), BoundedRangeCost(2.0), LaplaceCost(0.8)], ids=repr)
def test_a_table_is_answered_between_its_orders_by_a_valid_chord(cost):
    orders = [1.5, 3.0, 7.0, 20.0]
    table = RDPCost(orders, [cost.rdp(order) for order in orders])
    for order in np.linspace(1.6, 19.9, 50):
        bound, above = table.rdp(order), table.values[np.searchsorted(orders, order)]
        assert cost.rdp(order) <= bound <= above
    assert all(table.rdp(order) == cost.rdp(order) for order in orders)
    assert table.rdp(4.0) < 0.97 * table.rdp(7.0)  # the value at the order above would be wasteful
