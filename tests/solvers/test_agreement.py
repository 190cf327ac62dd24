"""Steps that follow whether released gradients agree: on quadratics, on noise alone, and what it must not depend on."""

import numpy as np
import pytest

from dpskl.solvers import _agreement
from dpskl.solvers._agreement import Agreement


def descend(step, noise_scale=1.0, n_steps=120, begin=10, seed=0, shape=(20,), unit=1.0, signal=30.0):
    """The factors of noisy gradient descent on ``||v||^2 / 2``, and the gradients that were released."""
    rng = np.random.default_rng(seed)
    agreement = Agreement(noise_scale * unit, begin)
    v, factors, gradients = np.full(shape, signal), [], []
    for _ in range(n_steps):
        gradients.append(unit * (v + noise_scale * rng.normal(size=shape)))
        factors.append(agreement.observe(gradients[-1]))
        v = v - step * factors[-1] * gradients[-1] / unit
    assert agreement.factor == factors[-1]
    return factors, gradients


@pytest.mark.parametrize("shape", [(20,), (7, 3)])
@pytest.mark.parametrize("noise_scale", [0.0, 1.0])
def test_steps_far_too_short_are_doubled_up_to_eight_times(noise_scale, shape):
    factors, _ = descend(1e-3, noise_scale, shape=shape)
    assert factors[:10] == [1.0] * 10
    assert factors[10:13] == [2.0, 4.0, 8.0]  # what is so clear needs one product
    assert set(factors[13:]) == {8.0}


@pytest.mark.parametrize("shape", [(20,), (7, 3)])
@pytest.mark.parametrize("noise_scale", [0.0, 1.0])
def test_what_was_doubled_too_often_is_taken_back(noise_scale, shape):
    """A step of 1 is right: 0.9 is doubled once, and at 1.8 each gradient is 0.8 times the last, the other way."""
    factors, _ = descend(0.9, noise_scale, begin=3, shape=shape, n_steps=8, signal=1e6)
    assert factors[:6] == [1.0, 1.0, 1.0, 2.0, 1.0, 2.0]


def test_the_planned_step_is_the_least():
    factors, _ = descend(1e3, 1.0, begin=3, n_steps=20)
    assert set(factors) == {1.0}


def test_noise_weighs_against_long_steps():
    """At the minimum only noise is left, which a step of 1/2 carries on: one gradient disagrees with the next."""
    agreement = Agreement(1.0, 0)
    agreement.factor = 8.0
    rng = np.random.default_rng(0)
    v = np.zeros(200)
    for _ in range(400):
        g = v + rng.normal(size=200)
        agreement.observe(g)
        v = v - 0.5 * g
    assert agreement.factor == 1
    # and where all noise is, a short step is not taken for one
    factors, _ = descend(1e-3, n_steps=400, signal=0.0, shape=(200,))
    assert max(factors) == 1


def alarms(n_steps, dimension, runs, seed):
    """Share of runs in which gradients of noise alone change the step."""
    rng = np.random.default_rng(seed)
    changed = 0
    for _ in range(runs):
        agreement = Agreement(2.0, n_steps // 4)
        changed += any(agreement.observe(2.0 * rng.normal(size=dimension)) != 1 for _ in range(n_steps))
    return changed / runs


@pytest.mark.parametrize(("n_steps", "dimension"), [(40, 1), (40, 100), (160, 3), (160, 100)])
def test_noise_alone_seldom_changes_the_step(n_steps, dimension, monkeypatch):
    """In at most 3 of 100 fits by what was simulated: more than 7 of 100 are seen once in 100,000 runs of 500."""
    assert alarms(n_steps, dimension, 500, seed=1) <= 0.07
    monkeypatch.setattr(_agreement, "_CLEAR", 1.0)
    assert alarms(n_steps, dimension, 500, seed=1) > 0.3


def test_it_waits_and_does_not_look_at_what_it_waited_for():
    one = np.ones(3)
    for begin in range(4):
        agreement = Agreement(0.0, begin)
        # the first gradient has none before it
        factors = [agreement.observe(one) for _ in range(6)]
        waited = max(begin, 1)
        assert factors == [1.0] * waited + [2.0, 4.0, 8.0, 8.0, 8.0, 8.0][: 6 - waited]
    # gradients that agree by far, all of them in the time that it waits
    agreement = Agreement(1.0, 50)
    assert [agreement.observe(1e6 * one) for _ in range(50)] == [1.0] * 50
    rng = np.random.default_rng(2)
    assert [agreement.observe(rng.normal(size=3)) for _ in range(20)] == [1.0] * 20


def test_products_are_added_up_until_they_are_clear_and_then_anew():
    """One product of noise 1 in 100 entries has standard deviation 10: of 9.5 each, ten make three of their errors."""
    agreement = Agreement(1.0, 0)
    rows = np.zeros((2, 100))
    rows[:, :2] = np.sqrt(9.5 / 2)  # of products of 9.5, and shorter than noise is
    factors = [agreement.observe(rows[t % 2]) for t in range(1 + 2 * 10)]
    assert factors == [1.0] * 10 + [2.0] * 10 + [4.0]


def test_nothing_depends_on_the_unit_and_a_zero_gradient_decides_nothing():
    for step in (1e-3, 0.3, 3.9):
        factors, gradients = descend(step)
        for unit in (1e-30, 7.0, 1e30):
            assert descend(step, unit=unit)[0] == factors
        # the shape of what is added up does not matter either
        agreement = Agreement(1.0, 10)
        assert [agreement.observe(g.reshape(5, 4)) for g in gradients] == factors
    silent = Agreement(0.0, 0)
    assert [silent.observe(g) for g in (np.ones(2), np.zeros(2), np.zeros(2), np.ones(2))] == [1.0] * 4
