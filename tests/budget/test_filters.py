"""Filters: what they accept, what they refuse, and that a refusal changes nothing."""

import math

import numpy as np
import pytest

from dpskl import PrivacyAccountant
from dpskl.accounting import (
    ApproximateCost,
    BasicFilter,
    BoundedRangeCost,
    CurveFilter,
    FilterRefusal,
    GaussianCost,
    GDPFilter,
    PureCost,
    RDPCost,
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


# -- several orders at once --------------------------------------------------------------------------------------------


def test_curve_filter_holds_its_budget_at_every_order():
    budget = RDPCost([1.5, 4.0, 20.0, 90.0], [0.02, 0.05, 0.2, 1.1])
    steps = CurveFilter(budget)
    rng = np.random.default_rng(0)
    taken = []
    for _ in range(300):
        scale = 10.0 ** rng.uniform(-2.5, -0.5)
        cost = [GaussianCost(scale), PureCost(scale), BoundedRangeCost(scale), ZCDPCost(scale**2)][rng.integers(4)]
        totals = [math.fsum(c.rdp(order) for c in [*taken, cost]) for order in budget.orders]
        fits = all(total <= value for total, value in zip(totals, budget.values, strict=True))
        assert steps.can_take(cost) == fits
        if fits:
            steps.take(cost)
            taken.append(cost)
        else:
            with pytest.raises(FilterRefusal):
                steps.take(cost)
        for order, value in zip(budget.orders, budget.values, strict=True):
            used = math.fsum(c.rdp(order) for c in taken)
            assert used <= value
            assert steps.remaining(order) == pytest.approx(value - used, abs=1e-12)
    assert len(taken) > 10
    # what was spent, composed, never costs more than the table
    for delta in (1e-3, 1e-6, 1e-9):
        assert compose([(cost, 1) for cost in taken]).epsilon(delta) <= budget.epsilon(delta)


def test_curve_filter_refuses_where_one_order_is_exhausted():
    steps = CurveFilter(RDPCost([2.0, 30.0], [0.1, 0.3]))
    steps.take(GaussianCost(math.sqrt(2 * 0.29 / 30)))
    small = GaussianCost(math.sqrt(2 * 0.02 / 30))
    assert steps.remaining(2.0) > 10 * small.rdp(2.0)
    left = steps.remaining(30.0)
    with pytest.raises(FilterRefusal, match=r"at order 30, and 0\.01 is left there") as refusal:
        steps.take(small)
    assert refusal.value.charged == pytest.approx(0.02)
    assert refusal.value.remaining == left == steps.remaining(30.0)


def test_curve_filter_refuses_infinite_charges_and_accepts_all_of_an_infinite_budget():
    free = CurveFilter(RDPCost([2.0, 8.0], [math.inf, math.inf]))
    for _ in range(3):
        free.take(GaussianCost(math.inf))
    half = CurveFilter(RDPCost([2.0, 8.0], [1.0, math.inf]))
    assert not half.can_take(GaussianCost(math.inf))
    half.take(RDPCost([2.0, 8.0], [0.5, math.inf]))
    assert half.remaining(2.0) == 0.5


def _pair(*outcomes):
    """Probabilities of outcomes with and without the record; from (probability, log ratio); the rest is implied."""
    first = np.array([p for p, _ in outcomes])
    second = np.array([p * math.exp(-ratio) for p, ratio in outcomes])
    return np.append(first, 1 - first.sum()), np.append(second, 1 - second.sum())


def _divergence(first, second, order):
    return max(
        math.log((p**order * q ** (1 - order)).sum()) / (order - 1) for p, q in ((first, second), (second, first))
    )


def test_going_on_while_some_order_has_budget_would_be_unsound():
    """Step A, then B after its first outcome and C after its second: each branch fits one of the orders 4 and 20."""
    epsilon, delta, orders = 3.0, 1e-3, (4, 20)
    values = [epsilon - math.log(1 - 1 / a) + math.log(delta * a) / (a - 1) for a in orders]
    budget = RDPCost(orders, values)
    assert budget.delta(epsilon) <= delta * (1 + 1e-9)
    A = _pair((0.621847, 0.526333), (0.022761, 0.923466))
    B, C = _pair((0.005188, 2.773667)), _pair((0.887741, 2.126534))
    costs = [RDPCost(orders, [_divergence(*pair, order) for order in orders]) for pair in (A, B, C)]
    branches = [[a + b for a, b in zip(costs[0].values, cost.values, strict=True)] for cost in costs[1:]]
    assert branches[0][0] == pytest.approx(1.44718, abs=1e-5)
    assert branches[1][1] == pytest.approx(2.845398, abs=3e-6)
    for branch in branches:  # some order has budget left, to the digits given
        assert any(spent <= value + 3e-6 for spent, value in zip(branch, values, strict=True))
    law = [np.concatenate([np.multiply.outer(a, b).ravel() for a, b in zip(A[s], (B[s], C[s], [1.0]), strict=True)])
           for s in (0, 1)]  # fmt: skip
    assert [part.sum() for part in law] == pytest.approx([1, 1], abs=1e-12)
    true_delta = np.maximum(law[0] - math.exp(epsilon) * law[1], 0).sum()
    assert true_delta == pytest.approx(1.8216e-3, rel=1e-3)
    # ours refuses both: all orders must have room
    for cost in costs[1:]:
        steps = CurveFilter(budget)
        steps.take(costs[0])
        assert not steps.can_take(cost)
        with pytest.raises(FilterRefusal):
            steps.take(cost)


@pytest.mark.parametrize(("epsilon", "delta"), [(0.5, 1e-5), (0.5, 1e-9), (2.0, 1e-9), (8.0, 1e-5)])
def test_curve_budgets_compose_in_a_ledger_of_another_order(epsilon, delta):
    """A table made for one order is answered at others by chords, from above."""
    own = rdp_order(epsilon, delta)
    orders = [1 + (own.alpha - 1) * 1.5**power for power in range(-8, 7)]
    mu = gaussian_mu(epsilon, delta) / 2
    table = RDPCost(orders, [GaussianCost(mu).rdp(order) for order in orders])
    accountant = PrivacyAccountant(epsilon=2 * epsilon, delta=delta, composition="rdp")
    assert rdp_order(2 * epsilon, delta).alpha != pytest.approx(own.alpha, rel=0.01)
    granted = accountant.would_grant([table] * 20)
    for _ in range(granted):
        accountant.spend(table)
    exact = compose([(GaussianCost(mu), granted)]).epsilon(delta)
    assert granted >= 8  # (2 epsilon)^2 over (epsilon / 2)^2 is 16 without the loss of conversion and chords
    assert exact <= accountant.spent().epsilon <= 2 * epsilon * (1 + 1e-9)
