"""Privacy loss distributions: every rule of the module docstring has a test that breaking it would fail."""

import math
import time
from itertools import pairwise

import numpy as np
import pytest

from dpskl.accounting import gaussian_delta, gaussian_epsilon
from dpskl.accounting._laws import LaplaceLaw, SampledGaussianLaw, TwoPointLaw
from dpskl.accounting._planning import compose_laws
from dpskl.accounting.privacy_loss import (
    Composition,
    PrivacyLoss,
    PrivacyLossPair,
    compose,
    discretise,
    laplace,
    sampled_gaussian,
    two_point,
)

G, R, L = SampledGaussianLaw, TwoPointLaw, LaplaceLaw


# --- reference values, computed independently ---


@pytest.mark.parametrize(
    ("law", "epsilon", "removal", "addition"),
    [
        (G(0.1, 1.0), 0.05, 0.0261436630, 0.0105725814),
        (G(0.1, 1.0), 0.1, 0.0184719307, 7.52674501e-6),
        (G(0.1, 1.0), 0.5, 0.00203253692, 0.0),
        (R(1.0, 0.1), 0.05, 0.0324227942, 0.0110988662),
        (R(1.0, 0.1), 0.1, 0.0179268995, 0.0),
    ],
)
def test_one_step_is_exact_at_grid_points(law, epsilon, removal, addition):
    for interval in (0.05, 0.05 / 7):  # the rule is exact at grid points, however coarse
        pair = (
            sampled_gaussian(law.sampling_rate, law.noise_multiplier, interval)
            if isinstance(law, SampledGaussianLaw)
            else two_point(law.epsilon, interval, law.sampling_rate)
        )
        found = compose([(pair, 1)]).deltas(epsilon)
        assert found[0] == pytest.approx(removal, rel=5e-9)
        assert found[1] == pytest.approx(addition, rel=5e-8, abs=1e-15)


@pytest.mark.parametrize(
    ("laws", "delta", "removal", "addition"),
    [
        ([(G(0.1, 3.3), 50)], 1e-6, 1.001047, 0.836678),
        ([(G(0.1, 6.0), 300)], 1e-6, 1.271329, 1.220746),
        ([(G(0.01, 1.0), 1000)], 1e-5, 1.828237, 1.416662),
        ([(G(0.1, 3.52), 50), (R(0.1, 0.1), 50)], 1e-6, 0.972915, 0.844057),
        ([(G(0.1, 6.0), 300), (R(0.2, 0.1), 100)], 1e-6, 1.557958, 1.514168),
        ([(G(0.1, 1.0), 1)], 1e-5, 1.684544, 0.099609),
        ([(G(0.1, 3.3), 50)], 1e-8, 1.24602, None),
        ([(G(0.1, 3.3), 50)], 1e-10, 1.46350, None),
        ([(G(0.1, 3.3), 50)], 1e-12, 1.662544, None),
        ([(G(0.1, 3.3), 50)], 1e-15, 1.93702, None),
        # a query and a pure answer, each on a sample of its own; on a common sample it would be 12.39, 3.643, 0.5089
        ([(G(0.1, 1.0), 50), (R(1.0, 0.1), 50)], 1e-8, 8.6710, None),
        ([(G(0.1, 2.0), 50), (R(0.5, 0.1), 50)], 1e-8, 3.06255, None),
        ([(G(0.1, 10.0), 50), (R(0.1, 0.1), 50)], 1e-8, 0.49649, None),
    ],
)
def test_epsilon_reproduces_reference_values(laws, delta, removal, addition):
    interval = 1e-4
    fine = Composition([(_pair(law, interval), count) for law, count in laws]).epsilons(delta)
    assert fine[0] == pytest.approx(removal, abs=1.5e-5, rel=1e-5)
    if addition is not None:
        assert fine[1] == pytest.approx(addition, abs=1.5e-5)
    # with the automatic grid, the answer is above the fine one and within the tolerance
    found = compose_laws(laws, delta=delta).epsilon(delta)
    assert fine[0] - 2e-6 <= found <= fine[0] * (1 + 1e-4)


def test_the_losses_of_a_sampled_response():
    upper, lower = 0.158565079, -0.0652983360
    pair = discretise(R(1.0, 0.1), 1e-6, 1e-12)
    for loss, ends in ((pair.removal, (lower, upper)), (pair.addition, (-upper, -lower))):
        found = loss.losses[loss.masses > 0]
        assert found[[0, -1]] == pytest.approx(ends, abs=1e-6)
        assert loss.infinity == 0.0


def test_both_directions_of_two_different_steps_by_quadrature():
    q, sigma, epsilon_0 = 0.1, 1.0, 0.7
    x = np.linspace(-14.0, 14.0, 400_001)
    without = np.exp(-x * x / 2) / math.sqrt(2 * math.pi) * (x[1] - x[0])
    with_record = (1 - q) * without + q * without * np.exp(x / sigma - 1 / (2 * sigma**2))
    truth, lie = 1 / (1 + math.exp(-epsilon_0)), 1 / (1 + math.exp(epsilon_0))
    answers = [((1 - q) * p + q * (1 - p), p) for p in (lie, truth)]  # with the record, and without
    pool = Composition([(sampled_gaussian(q, sigma, 1e-3), 1), (two_point(epsilon_0, 1e-3, q), 1)])
    for epsilon in (0.0, 0.02, 0.1, 0.3, 1.0):
        g = math.exp(epsilon)
        removal = sum(np.maximum(a * with_record - g * b * without, 0).sum() for a, b in answers)
        addition = sum(np.maximum(b * without - g * a * with_record, 0).sum() for a, b in answers)
        assert pool.deltas(epsilon) == pytest.approx((removal, addition), rel=1e-4, abs=1e-12)
        assert pool.deltas(epsilon)[0] >= removal * (1 - 1e-9)


def _pair(law, interval):
    if isinstance(law, SampledGaussianLaw):
        return sampled_gaussian(law.sampling_rate, law.noise_multiplier, interval)
    if isinstance(law, LaplaceLaw):
        return laplace(law.noise_multiplier, interval)
    return two_point(law.epsilon, interval, law.sampling_rate, law.delta)


# --- rule 1: directions ---


def test_directions_are_composed_separately_and_the_maximum_comes_last():
    pool = Composition([(sampled_gaussian(0.1, 3.3, 1e-3), 50), (two_point(0.1, 1e-3, 0.1), 50)])
    removal, addition = pool.epsilons(1e-6)
    assert removal > addition + 0.05
    assert pool.epsilon(1e-6) == removal
    # the addition direction is not the mirror image of removal
    assert not sampled_gaussian(0.1, 3.3, 1e-3).symmetric
    for pair in (sampled_gaussian(1.0, 3.3, 1e-3), two_point(0.1, 1e-3), laplace(2.0, 1e-3)):
        assert pair.symmetric
    # an addition that dominates must win, too
    step = sampled_gaussian(0.1, 3.3, 1e-3)
    swapped = Composition([(PrivacyLossPair(step.addition, step.removal), 50)])
    assert swapped.epsilon(1e-6) == pytest.approx(Composition([(step, 50)]).epsilon(1e-6))


def test_negative_epsilon_uses_the_dual_direction():
    step = Composition([(sampled_gaussian(0.2, 1.0, 1e-3), 1)])
    for epsilon in (0.05, 0.2):
        removal, addition = step.deltas(-epsilon)
        assert removal == pytest.approx(1 - math.exp(-epsilon) * (1 - step.deltas(epsilon)[1]))
        assert addition == pytest.approx(1 - math.exp(-epsilon) * (1 - step.deltas(epsilon)[0]))
    plain = Composition([(sampled_gaussian(1.0, 2.0, 1e-3), 1)])
    assert plain.delta(-0.3) == pytest.approx(gaussian_delta(0.5, -0.3), rel=1e-5)


# --- rules 2 to 5: discretisation ---


ALL_LAWS = [
    G(1.0, 1.0),
    G(1.0, 0.3),
    G(0.1, 1.0),
    G(1e-6, 0.5),
    G(0.5, 50.0),
    G(0.1, 0.004),
    L(2.0),
    L(0.05),
    R(1.0),
    R(3.0, 0.1),
    R(0.5, 0.3, 1e-3),
]


@pytest.mark.parametrize("law", ALL_LAWS, ids=repr)
@pytest.mark.parametrize("interval", [0.5, 0.013])
def test_masses_of_both_measures_are_kept(law, interval):
    pair = _pair(law, interval)
    for loss in (pair.removal, pair.addition):
        assert (loss.masses >= 0).all()
        assert loss.masses.sum() + loss.infinity == pytest.approx(1.0, abs=1e-12)
        assert loss.second_mass() <= 1 + 1e-12
        if not (isinstance(law, TwoPointLaw) and law.delta) and getattr(law, "noise_multiplier", 1) > 0.1:
            assert loss.second_mass() == pytest.approx(1.0, abs=1e-9)  # nothing is rounded away either


@pytest.mark.parametrize("law", [G(1.0, 1.0), G(0.1, 1.0), G(0.3, 0.4), R(1.0, 0.1), R(0.7), L(1.5)], ids=repr)
def test_a_coarser_grid_is_never_below_a_finer_one(law):
    for direction in (0, 1):
        for epsilon in (0.0, 0.031, 0.2, 0.77):
            values = [Composition([(_pair(law, h), 3)]).deltas(epsilon)[direction] for h in (0.4, 0.1, 0.025, 0.00625)]
            for coarse, fine in pairwise(values):
                assert coarse >= fine * (1 - 1e-9)
            # and converges: splitting is almost unbiased, rounding up would still be far off
            assert values[2] == pytest.approx(values[3], rel=0.15, abs=3e-3)


def test_rounding_down_is_refused():
    with pytest.raises(ValueError, match="rounded down"):
        PrivacyLoss(0.1, -5, np.array([1.0]))
    with pytest.raises(ValueError, match="masses"):
        PrivacyLoss(0.1, 0, np.array([-0.1, 1.0]))
    with pytest.raises(ValueError, match="interval"):
        PrivacyLoss(0.0, 0, np.array([1.0]))
    loss = PrivacyLoss(0.1, 2, np.array([0.2, 0.5]), 0.3)
    with pytest.raises(ValueError, match="read-only"):
        loss.masses[0] = 1.0


def test_the_upper_tail_is_infinite_and_the_lower_tail_moves_up():
    tail = 1e-3
    gaussian = sampled_gaussian(1.0, 1.0, 0.01, tail_mass=tail).removal
    assert gaussian.infinity == pytest.approx(tail, rel=1e-9)
    lowest = -0.5 + (1 - 3.0902323)  # mean minus the quantile, in losses mu x - mu^2/2
    kept = gaussian.masses > 0
    assert gaussian.losses[kept][0] == pytest.approx(lowest, abs=0.011)
    assert gaussian.masses[kept][:2].sum() >= tail  # moved there, not dropped
    assert gaussian.masses.sum() == pytest.approx(1 - tail, abs=1e-12)
    # the mass at infinity composes and enters in full
    pool = Composition([(sampled_gaussian(1.0, 1.0, 0.01, tail_mass=tail), 3)])
    assert pool.delta(30.0) == pytest.approx(1 - (1 - tail) ** 3, rel=1e-9)
    assert pool.epsilon(2.9e-3) == math.inf
    assert pool.epsilon(3.1e-3) < math.inf
    assert pool.delta(1.0) > gaussian_delta(math.sqrt(3), 1.0)


def test_the_addition_loss_of_a_sampled_step_is_bounded():
    q = 0.1
    addition = sampled_gaussian(q, 0.5, 1e-3).addition
    kept = addition.masses > 0
    assert addition.losses[kept].max() <= -math.log1p(-q) + 1e-3
    assert addition.infinity == 0.0
    removal = sampled_gaussian(q, 0.5, 1e-3).removal
    assert removal.losses[removal.masses > 0].min() >= math.log1p(-q) - 1e-3


def test_failure_of_a_two_point_mechanism():
    pool = Composition([(two_point(0.5, 0.01, delta=1e-3), 4)])
    assert pool.delta(2.0 + 1e-9) == pytest.approx(1 - (1 - 1e-3) ** 4, rel=1e-9)
    sampled = Composition([(two_point(0.5, 0.01, sampling_rate=0.2, delta=1e-3), 1)])
    assert sampled.deltas(5.0)[0] == pytest.approx(0.2e-3, rel=1e-9)
    assert sampled.deltas(5.0)[1] == 0.0
    assert sampled.deltas(0.21)[1] == pytest.approx(1e-3 * max(0, 1 - math.exp(0.21 + math.log(0.8))), rel=0.3)


def test_one_grid_for_all_laws():
    with pytest.raises(ValueError, match="intervals"):
        Composition([(two_point(0.1, 0.01), 1), (two_point(0.1, 0.02), 1)])
    with pytest.raises(ValueError, match="parts"):
        Composition([])
    with pytest.raises(ValueError, match="parts"):
        Composition([(two_point(0.1, 0.01), 0)])
    # offsets are multiplied by the count: the largest loss of 7 + 5 atoms
    pool = Composition([(two_point(0.1, 0.01), 7), (two_point(0.3, 0.01), 5)])
    assert pool.delta(2.2 + 1e-9) == pytest.approx(0.0, abs=1e-15)
    assert pool.delta(2.19) > 0.0


# --- rules 6 and 7: composition ---


@pytest.mark.parametrize("count", [1, 2, 17, 1000, 100_000])
@pytest.mark.parametrize("sigma", [0.3, 1.0, 50.0])
@pytest.mark.parametrize("delta", [0.3, 1e-5, 1e-15, 1e-40])
def test_gaussian_composition_agrees_with_the_closed_form(count, sigma, delta):
    mu = math.sqrt(count) / sigma
    exact = gaussian_epsilon(mu, delta)
    found = compose_laws([(G(1.0, sigma), count)], delta=delta).epsilon(delta)
    assert found >= exact * (1 - 1e-9)
    assert found <= exact * (1 + 2e-4) + 1e-3 * mu * (delta > 1e-3)
    if exact > 0:
        point = compose_laws([(G(1.0, sigma), count)], epsilon=exact).delta(exact)
        assert point >= delta * (1 - 1e-9)
        assert point <= delta * (1 + (5e-3 if count < 100_000 else 0.04))  # the largest grid binds there


def test_two_point_composition_agrees_with_the_binomial_sum():
    epsilon, count = 0.1, 40
    p = 1 / (1 + math.exp(-epsilon))
    ups = np.arange(count + 1)
    log_binomial = np.array([math.lgamma(count + 1) - math.lgamma(k + 1) - math.lgamma(count - k + 1) for k in ups])
    masses = np.exp(log_binomial + ups * math.log(p) + (count - ups) * math.log1p(-p))
    losses = (2 * ups - count) * epsilon
    pool = Composition([(two_point(epsilon, 0.1), count)])  # the atoms lie on this grid
    for target in (0.0, 0.33, 1.0, 2.5, 3.95):
        exact = (masses * np.maximum(0, -np.expm1(target - losses))).sum()
        assert pool.delta(target) == pytest.approx(exact, rel=1e-8, abs=1e-300)


def test_small_deltas_are_not_noise_of_the_transform():
    pool = Composition([(sampled_gaussian(0.1, 3.3, 5e-4, tail_mass=1e-80), 50)])
    epsilons = [pool.epsilon(10.0**-k) for k in range(6, 60, 3)]
    steps = np.diff(epsilons)
    assert (steps > 0.05).all()
    assert (np.diff(steps) < 0.05).all()  # a floor of noise would send epsilon to its end at once
    for k in (12, 15, 30):
        assert pool.delta(pool.epsilon(10.0**-k)) == pytest.approx(10.0**-k, rel=1e-6)


def test_answers_do_not_depend_on_the_tilt():
    pool = Composition([(sampled_gaussian(0.1, 3.3, 1e-3), 50)])
    direction = pool._directions[0]
    theta = direction.total.tilt_for_epsilon(1.2)[0]
    expected = pool.deltas(1.2)[0]
    from dpskl.accounting._tilting import profile

    for factor in (0.7, 0.9, 1.2):
        found = profile(direction.total, factor * theta, 1e-3)
        index = int(np.searchsorted(found.points, 1.2 - 1e-9))
        assert found.deltas[index] * math.exp(found.log_scale) == pytest.approx(expected, rel=1e-6)


def test_the_transform_does_not_grow_with_the_count():
    lengths = []
    for count in (100, 10_000):
        pool = Composition([(sampled_gaussian(0.01, 1.0, 1e-3), count)])
        pool.epsilon(1e-6)
        lengths.append(len(next(iter(pool._directions[0].computed.values())).points))
    assert lengths[1] < 20 * lengths[0]  # the square root of 100, and a margin


def test_wrapped_sums_only_add(monkeypatch):
    import dpskl.accounting._tilting as tilting

    law = [(G(0.02, 0.7), 400)]
    full = compose_laws(law, delta=1e-7).epsilon(1e-7)
    narrow = compose_laws(law, delta=1e-7)
    monkeypatch.setattr(tilting, "LARGEST_TRANSFORM", int(4.0 / narrow.interval))
    assert full * (1 - 1e-9) <= narrow.epsilon(1e-7)


# --- rules 8 to 10: ends, speed ---


def test_epsilon_and_delta_are_inverse_and_end_well():
    pool = Composition([(sampled_gaussian(0.1, 2.0, 1e-3), 20)])
    for delta in (0.05, 1e-4, 1e-9):
        epsilon = pool.epsilon(delta)
        assert pool.delta(epsilon) <= delta * (1 + 1e-9)
        assert pool.delta(epsilon * (1 - 1e-6)) > delta
    assert pool.epsilon(0.9) == 0.0
    assert pool.delta(1e9) <= 1e-38
    with pytest.raises(ValueError, match="delta must lie in"):
        pool.epsilon(0.0)


@pytest.mark.slow
@pytest.mark.parametrize("rate", [1e-6, 1e-3, 0.1, 1.0])
@pytest.mark.parametrize("sigma", [0.3, 1.0, 50.0])
@pytest.mark.parametrize("count", [1, 300, 100_000])
@pytest.mark.parametrize("delta", [1e-5, 1e-15])
def test_every_corner_is_quick_and_bounded(rate, sigma, count, delta):
    _check_corner(rate, sigma, count, delta)


@pytest.mark.parametrize("corner", [(1e-6, 0.3, 1000, 1e-15), (1e-6, 50.0, 1, 1e-5), (0.1, 0.3, 100_000, 1e-5)])
def test_some_corners_are_quick_and_bounded(corner):
    _check_corner(*corner)


def _check_corner(rate, sigma, count, delta):
    start = time.process_time()
    epsilon = compose_laws([(G(rate, sigma), count)], delta=delta).epsilon(delta)
    assert time.process_time() - start < 5.0  # about 1 s at most
    assert 0.0 <= epsilon <= gaussian_epsilon(math.sqrt(count) / sigma, delta) * (1 + 2e-4)


@pytest.mark.parametrize(
    ("laws", "delta"),
    [
        ([(G(0.01, 1.0), 1000)], 1e-5),
        pytest.param([(G(1e-4, 1.0), 100_000)], 1e-5, marks=pytest.mark.slow),
        pytest.param([(G(1e-3, 0.5), 5000)], 1e-7, marks=pytest.mark.slow),
        ([(G(0.1, 3.52), 50), (R(0.1, 0.1), 50), (L(30.0), 20)], 1e-6),
        ([(R(0.05), 400)], 1e-6),
    ],
    ids=str,
)
def test_the_automatic_interval_is_fine_enough(laws, delta):
    pool = compose_laws(laws, delta=delta)
    epsilon = pool.epsilon(delta)
    # tails far below what delta needs would only widen the window
    tail = 1e-9 * delta / sum(count for _, count in laws)
    finer = Composition([(discretise(law, pool.interval / 3, tail), count) for law, count in laws])
    assert finer.epsilon(delta) <= epsilon * (1 + 1e-9)
    assert epsilon <= finer.epsilon(delta) * (1 + 1.5e-4)


def test_a_sampled_step_tends_to_nothing_and_to_the_gaussian():
    tiny = compose_laws([(G(1e-6, 1.0), 100)], delta=1e-9).epsilon(1e-9)
    assert 0.0 < tiny < 1e-3
    almost = compose_laws([(G(1 - 1e-9, 2.0), 10)], delta=1e-6).epsilon(1e-6)
    assert almost == pytest.approx(gaussian_epsilon(math.sqrt(10) / 2, 1e-6), rel=1e-4)
