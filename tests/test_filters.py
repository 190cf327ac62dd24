"""Filters: what they accept, what they refuse, and that a refusal changes nothing."""

import math

import pytest

from dpskl.accounting import (
    ApproximateCost,
    BasicFilter,
    BoundedRangeCost,
    FilterRefusal,
    GaussianCost,
    GDPFilter,
    PureCost,
    RDPFilter,
    ReplaceOneObjectiveCost,
    SampledGaussianCost,
    ZCDPCost,
    compose,
    gaussian_mu,
    rdp_order,
)


def test_gdp_filter_spends_squares_up_to_the_exact_mechanism():
    steps = GDPFilter(1.0, 1e-6)
    mu = gaussian_mu(1.0, 1e-6)
    for _ in range(49):
        steps.spend(GaussianCost(mu / 7))
    assert steps.remaining == pytest.approx(0.0, abs=1e-15)
    assert steps.spent == pytest.approx(mu**2, rel=1e-12)
    assert GaussianCost(math.sqrt(steps.spent)).epsilon(1e-6) <= 1.0
    with pytest.raises(FilterRefusal, match="squared mu") as refusal:
        steps.spend(GaussianCost(mu / 1000))
    assert refusal.value.charged == pytest.approx((mu / 1000) ** 2)
    assert refusal.value.remaining == steps.remaining


def test_gdp_filter_keeps_shifts_in_their_own_budget():
    steps = GDPFilter(1.0, 1e-6, max_shift=0.2)
    assert steps.mu == gaussian_mu(1.0, 1e-6, shift=0.2)
    steps.spend(GaussianCost(steps.mu / 2, shift=0.15))
    assert not steps.can_spend(GaussianCost(steps.mu / 2, shift=0.15))
    assert steps.can_spend(GaussianCost(steps.mu / 2, shift=0.05))
    assert steps.shift_spent == 0.15
    assert not GDPFilter(1.0, 1e-6).can_spend(GaussianCost(0.01, shift=1e-9))


def test_gdp_filter_takes_gaussian_costs_only():
    steps = GDPFilter(5.0, 1e-6)
    assert steps.charge(compose([(GaussianCost(0.1), 4)])) == pytest.approx(0.04)
    assert steps.can_spend(PureCost(0.0))
    for other in (PureCost(1e-3), ZCDPCost(1e-6), SampledGaussianCost(0.1, 50.0)):
        assert steps.charge(other) == math.inf
        with pytest.raises(FilterRefusal, match="no finite squared mu"):
            steps.spend(other)
    assert steps.spent == 0.0


def test_rdp_filter_works_at_one_order_fixed_in_advance():
    steps = RDPFilter(1.0, 1e-6)
    order = rdp_order(1.0, 1e-6)
    assert steps.order == order
    costs = [
        GaussianCost(0.1),
        PureCost(0.1),
        BoundedRangeCost(0.2),
        ZCDPCost(1e-3),
        SampledGaussianCost(0.1, 3.0),
    ]
    for cost in costs:
        assert steps.charge(cost) == cost.rdp(order.alpha)
        steps.spend(cost)
    assert steps.spent == pytest.approx(sum(cost.rdp(order.alpha) for cost in costs))
    assert steps.remaining == pytest.approx(order.budget - steps.spent)
    rest = GaussianCost(math.sqrt(2 * steps.remaining / order.alpha))
    steps.spend(rest)
    assert not steps.can_spend(GaussianCost(1e-4))
    # the whole run stays below the target by its own curve
    assert compose([*costs, rest]).epsilon(1e-6) <= 1.0


def test_rdp_filter_refuses_costs_without_a_curve():
    steps = RDPFilter(1.0, 1e-6)
    for cost in (ApproximateCost(1e-3, 1e-9), ReplaceOneObjectiveCost(0.01, 0.0), GaussianCost(math.inf)):
        with pytest.raises(FilterRefusal, match="no finite Renyi divergence"):
            steps.spend(cost)
    assert steps.spent == 0.0


def test_basic_filter_is_exact_in_decimals():
    steps = BasicFilter(1.0, 0.0)
    for _ in range(10):
        steps.spend(PureCost(0.1))
    assert steps.spent == 1.0
    assert steps.remaining == 0.0
    assert not steps.can_spend(PureCost(1e-300))
    tenths = BasicFilter(0.3, 0.0)
    for _ in range(3):
        tenths.spend(PureCost(0.1))  # 0.1 + 0.1 + 0.1 > 0.3 in floating point
    assert tenths.remaining == 0.0


def test_basic_filter_charges_costs_that_are_not_pure_at_the_stated_delta():
    steps = BasicFilter(3.0, 1e-6, delta_each=2.5e-7)
    gaussian = GaussianCost(gaussian_mu(1.0, 2.5e-7))
    steps.spend(gaussian)
    assert steps.spent == pytest.approx(1.0, abs=1e-6)
    assert steps.delta_spent == 2.5e-7
    steps.spend(ApproximateCost(0.5, 5e-7))
    assert steps.delta_remaining == 2.5e-7
    steps.spend(PureCost(0.5))
    assert steps.delta_spent == 7.5e-7
    steps.spend(gaussian)
    assert steps.delta_remaining == 0.0
    assert not steps.can_spend(ApproximateCost(0.0, 1e-12))
    with pytest.raises(FilterRefusal):
        steps.spend(GaussianCost(1e-9))
    assert BasicFilter(1.0, 1e-6).charge(GaussianCost(gaussian_mu(1.0, 1e-6))) == pytest.approx(1.0, abs=1e-6)


@pytest.mark.parametrize(
    ("steps", "fits", "too_much"),
    [
        (GDPFilter(1.0, 1e-6), GaussianCost(0.1), GaussianCost(1.0)),
        (RDPFilter(1.0, 1e-6), PureCost(0.1), PureCost(1.0)),
        (BasicFilter(1.0, 1e-6), PureCost(0.6), PureCost(0.6)),
        (BasicFilter(1.0, 1e-6), ApproximateCost(0.1, 6e-7), ApproximateCost(0.1, 6e-7)),
    ],
)
def test_a_refusal_changes_nothing(steps, fits, too_much):
    steps.spend(fits)
    before = (steps.spent, steps.remaining)
    assert not steps.can_spend(too_much)
    with pytest.raises(FilterRefusal) as refusal:
        steps.spend(too_much)
    assert isinstance(refusal.value, ValueError)
    assert (refusal.value.charged, refusal.value.remaining) == (steps.charge(too_much), steps.remaining)
    assert (steps.spent, steps.remaining) == before


@pytest.mark.parametrize("kind", [GDPFilter, RDPFilter, BasicFilter])
def test_an_infinite_budget_never_refuses_but_records(kind):
    steps = kind(math.inf, 1e-6)
    steps.spend(GaussianCost(1.0))
    first = steps.spent
    assert 0 < first < math.inf
    steps.spend(GaussianCost(math.inf))
    assert steps.spent == math.inf
    assert steps.remaining == math.inf
    assert steps.can_spend(ApproximateCost(5.0, 1.0))


@pytest.mark.parametrize("kind", [GDPFilter, RDPFilter])
def test_filters_refuse_impossible_budgets(kind):
    for epsilon, delta in [(0.0, 1e-6), (-1.0, 1e-6), (1.0, 0.0), (1.0, 1.0), (math.nan, 1e-6)]:
        with pytest.raises(ValueError, match="must lie in"):
            kind(epsilon, delta)


def test_basic_filter_refuses_impossible_budgets():
    for arguments in [(0.0, 0.0), (1.0, 1.0), (1.0, 1e-6, 1e-5), (1.0, 1e-6, 0.0)]:
        with pytest.raises(ValueError, match="must lie in"):
            BasicFilter(*arguments)
