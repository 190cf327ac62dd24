"""Group privacy: bounds against exact laws of chains of neighbours, and against the trade-off map iterated by hand."""

import math

import numpy as np
import pytest
from scipy.special import log_ndtr, ndtri_exp

from dpskl.accounting import (
    ApproximateCost,
    BoundedRangeCost,
    Cost,
    GaussianCost,
    LaplaceCost,
    PureCost,
    ReplaceOneObjectiveCost,
    SampledGaussianCost,
    WorstCost,
    ZCDPCost,
    compose,
    gaussian_delta,
    group_epsilon,
)
from dpskl.accounting.group import _best_links, _equal_links, _log_intercept


def delta_between(first, second, epsilon):
    """Exact delta of a pair of laws on finitely many outcomes, the larger of both directions."""
    return max(np.maximum(p - math.exp(epsilon) * q, 0.0).sum() for p, q in ((first, second), (second, first)))


class ChainCost(Cost):
    """The exact profile of the links of a chain of laws."""

    kind = "chain of a test"

    def __init__(self, laws):
        self.laws = laws

    def rdp(self, alpha):
        ratios = [np.log(p / q) for p, q in zip(self.laws, self.laws[1:], strict=False)]
        return float(max(np.abs(ratio).max() for ratio in ratios)) if alpha == math.inf else math.inf

    def _profile(self, epsilon):
        return float(max(delta_between(p, q, epsilon) for p, q in zip(self.laws, self.laws[1:], strict=False)))


def shifted_laws(k, shift, density):
    points = np.arange(-160.0, 160.5, 0.5)
    laws = [density(points - i * shift) for i in range(k + 1)]
    return [law / law.sum() for law in laws]


def flipped_bits(k, epsilon):
    """Number of ones after randomised response, of k bits of which i are set."""
    keep = math.exp(epsilon) / (1 + math.exp(epsilon))
    laws = []
    for i in range(k + 1):
        law = np.ones(1)
        for bit in range(k):
            one = keep if bit < i else 1 - keep
            law = np.convolve(law, [1 - one, one])
        laws.append(law)
    return laws


CHAINS = {
    "discretised Gaussian": lambda k: shifted_laws(k, 1.0, lambda x: np.exp(-((x / 4.0) ** 2) / 2) + 1e-250),
    "discretised Laplace": lambda k: shifted_laws(k, 1.0, lambda x: np.exp(-np.abs(x) / 3.0)),
    "logistic": lambda k: shifted_laws(k, 1.0, lambda x: 1 / np.cosh(x / 4.0) ** 2),
    "randomised response": lambda k: flipped_bits(k, 0.4),
}


@pytest.mark.parametrize("k", [2, 3, 7])
@pytest.mark.parametrize("name", CHAINS)
def test_the_generic_bound_covers_chains_of_finite_laws(name, k):
    laws = CHAINS[name](k)
    cost = ChainCost(laws)
    for delta in (1e-1, 1e-3, 1e-6):
        for bound in (group_epsilon(cost, k, delta), _equal_links(cost, k, delta)):
            assert delta_between(laws[0], laws[-1], bound) <= delta * (1 + 1e-9)


def test_k_times_epsilon_at_the_same_delta_is_not_enough():
    laws = CHAINS["discretised Gaussian"](7)
    cost = ChainCost(laws)
    assert delta_between(laws[0], laws[-1], 7 * cost.epsilon(1e-3)) > 1.5e-3
    # nor is k epsilon with k delta
    one = GaussianCost(0.236704381)
    assert GaussianCost(5 * one.mu).epsilon(1e-6) > 5.9 > 5 * one.epsilon(1e-6)


def test_gaussian_groups_are_exact_and_pure_ones_linear():
    one = GaussianCost(0.236704381)
    assert group_epsilon(one, 5, 1e-6) == GaussianCost(5 * one.mu).epsilon(1e-6) == pytest.approx(5.926184, abs=1e-6)
    assert group_epsilon(one, 20, 1e-6) == pytest.approx(33.018685, abs=1e-6)
    both = compose([(one, 3), GaussianCost(0.1)])
    assert group_epsilon(both, 4, 1e-6) == GaussianCost(4 * both.mu).epsilon(1e-6)
    for pure in (
        PureCost(0.1),
        LaplaceCost(10.0),
        BoundedRangeCost(0.1),
        WorstCost((PureCost(0.1), LaplaceCost(20.0))),
    ):
        assert group_epsilon(pure, 3, 0.0) == pytest.approx(0.3, rel=1e-15)
    assert group_epsilon(ZCDPCost(0.01), 3, 1e-6) == ZCDPCost(0.09).epsilon(1e-6)
    mixed = compose([(one, 2), (PureCost(0.1), 2)])
    expected = compose([(GaussianCost(3 * one.mu), 2), (PureCost(0.3), 2)]).epsilon(1e-6)
    assert group_epsilon(mixed, 3, 1e-6) == pytest.approx(expected, rel=1e-12)


def test_one_record_is_the_cost_itself():
    for cost in (GaussianCost(0.2, 0.1), PureCost(0.5), SampledGaussianCost(0.1, 2.0), ApproximateCost(1.0, 1e-7)):
        assert group_epsilon(cost, 1, 1e-6) == cost.epsilon(1e-6)


@pytest.mark.parametrize(("t", "shift"), [(0.2, 0.0), (0.2, 0.1), (0.05, 0.3), (1.0, 0.02)])
@pytest.mark.parametrize("k", [1, 2, 5, 20])
def test_objective_perturbation_follows_its_trade_off_map(t, shift, k):
    """sup over p of G^k(p) - e^epsilon p, with G(p) = Phi(Phi^-1(min(1, e^shift p)) + t), on a fine grid."""
    delta = 1e-6
    bound = group_epsilon(GaussianCost(t, shift), k, delta)
    log_p = np.linspace(-bound - 60.0, 0.0, 400_001)
    log_g = log_p
    for _ in range(k):
        log_g = log_ndtr(ndtri_exp(np.minimum(0.0, shift + log_g)) + t)
    # on the path to delta the difference of the two terms is small against them: compare logarithms
    excess = np.exp(log_g) - np.exp(log_p + bound)
    assert excess.max() <= delta * (1 + 1e-6)
    assert excess.max() >= delta * (1 - 1e-2)  # tight
    if shift > 0 and k > 1:
        assert bound > GaussianCost(k * t, k * shift).epsilon(delta)  # which would be too small
        assert bound < _equal_links(GaussianCost(t, shift), k, delta)


def test_intercepts_far_below_the_smallest_float():
    for t, z in [(0.3, -1.0), (0.3, -5.0), (1.5, -20.0), (1e-7, -2.0), (4.0, 1.0)]:
        assert _log_intercept(t, z) == pytest.approx(math.log(gaussian_delta(t, -z * t - t * t / 2)), abs=1e-5)
    assert _log_intercept(0.3, -300.0) == pytest.approx(-(299.7**2) / 2, rel=1e-3)


def test_large_groups_do_not_underflow():
    one = GaussianCost(0.236704381)
    for k in (50, 300, 2000):
        exact = GaussianCost(k * one.mu).epsilon(1e-6)
        assert _best_links(one.mu, 0.0, k, 1e-6) == pytest.approx(exact, rel=1e-9)
        assert _best_links(one.mu, 0.0, k, 1e-6) >= exact
        assert _equal_links(one, k, 1e-6) >= exact
    last = 0.0
    for k in (1, 2, 4, 8, 16, 32, 64):
        for cost in (SampledGaussianCost(0.1, 2.0), ReplaceOneObjectiveCost(0.1, 0.02)):
            assert group_epsilon(cost, k, 1e-6) >= k * cost.epsilon(1e-6) * (1 - 1e-9)
        assert group_epsilon(GaussianCost(0.1, 0.05), k, 1e-6) > last
        last = group_epsilon(GaussianCost(0.1, 0.05), k, 1e-6)


def test_nothing_is_claimed_where_nothing_is_proved():
    assert group_epsilon(GaussianCost(math.inf), 2, 1e-6) == math.inf
    assert group_epsilon(GaussianCost(0.1), 2, 0.0) == math.inf
    assert group_epsilon(GaussianCost(0.1, 0.1), 2, 0.0) == math.inf
    point = ApproximateCost(1.0, 1e-8)  # five links add up to 8.6e-7, six to 2.3e-6
    assert group_epsilon(point, 5, 1e-6) == 5.0
    assert group_epsilon(point, 6, 1e-6) == math.inf
    assert group_epsilon(point, 6, 1.0) == 0.0


@pytest.mark.parametrize("k", [0, -1, 1.5, True, "2"])
def test_bad_groups_are_named(k):
    with pytest.raises(ValueError, match=r"k=.* must be a whole number"):
        group_epsilon(PureCost(0.1), k, 1e-6)
