"""The exponential mechanism: the samplers' laws by quadrature, their certificates and their rates."""

import dataclasses
from math import exp, inf, log, sqrt

import numpy as np
import pytest
from conftest import RecordingNoise
from exponential_cases import (
    LANGEVIN,
    MALA,
    NEIGHBOURS,
    PROXIMAL,
    REJECTION,
    SAMPLERS,
    UncertifiedRejection,
    colder,
    many_draws,
    problem,
    question,
)
from scipy.optimize import minimize
from scipy.stats import chisquare

from dpskl.accounting import ApproximateCost, gaussian_delta, gaussian_epsilon
from dpskl.mechanisms.exponential_chains import MetropolisSampling, ProximalSampling
from dpskl.mechanisms.exponential_sampling import RejectionSampling, rejection_log_rate
from dpskl.mechanisms.hidden_descent import HiddenDescent
from dpskl.mechanisms.noise import NoiseSource, SeededNoise
from dpskl.records.losses import HuberHinge, Logistic, Softmax
from dpskl.records.problem import Problem

# -- laws of the samplers ---------------------------------------------------------------------------------


def cells(data, beta, ridge, radius=inf, bins=6):
    """Edges of a grid of cells in two dimensions and their probabilities, by quadrature."""
    mode = minimize(lambda v: data.losses(data.scores(v)).sum() + ridge / 2 * v @ v, np.zeros(2)).x
    reach = 7 / sqrt(beta * ridge)
    axes = [np.linspace(m - reach, m + reach, 481) for m in mode]
    points = np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, 2)
    losses = np.concatenate([value(data, part) for part in np.array_split(points, 60)])
    energy = beta * (losses + ridge / 2 * (points**2).sum(axis=1))
    law = np.exp(-(energy - energy.min())) * (np.hypot(*points.T) <= radius)
    law = (law / law.sum()).reshape(481, 481)
    edges = []
    for marginal in (law.sum(axis=1), law.sum(axis=0)):
        cuts = np.searchsorted(np.cumsum(marginal), np.arange(1, bins) / bins)
        edges.append(np.r_[0, cuts, 481])
    chance = np.add.reduceat(np.add.reduceat(law, edges[0][:-1], axis=0), edges[1][:-1], axis=1)
    width = [axis[1] - axis[0] for axis in axes]
    borders = [np.r_[-inf, axis[e[1:-1]] - h / 2, inf] for axis, e, h in zip(axes, edges, width, strict=True)]
    return borders, chance


def value(data, points):
    """Sum of the losses at each of several weight vectors."""
    margins = (points @ data.X.T) * (data._scale * data.targets)
    return data.loss.value(margins).sum(axis=1)


def fit_of_draws(mechanism, data, n_draws, seed, law=None):
    """Chi-square probability of draws on 36 cells, and their distance from ``law`` in total variation there."""
    law = law or mechanism
    borders, chance = cells(data, law.inverse_temperature, law.ridge, getattr(law, "radius", inf))
    noise = SeededNoise(seed)
    draws = many_draws(mechanism, data, n_draws, noise)
    counts = np.histogram2d(*draws.T, bins=borders)[0]
    return chisquare(counts.ravel(), n_draws * chance.ravel()).pvalue, abs(counts / n_draws - chance).sum() / 2


RIDGE = 4.0


@pytest.mark.slow
@pytest.mark.parametrize("loss", [Logistic(), HuberHinge(0.5)], ids=repr)
def test_rejection_draws_follow_the_density_on_the_ball(loss):
    """The ball cuts a good part off. Fails by chance once in 10,000; a wrong temperature is found."""
    mechanism = question({**REJECTION, "ridge": RIDGE, "radius": 6.0}, epsilon=20.0, loss=loss)
    mechanism = dataclasses.replace(mechanism, radius=1.2)  # less than the mode needs for its certificate
    mechanism = UncertifiedRejection(**{f.name: getattr(mechanism, f.name) for f in dataclasses.fields(mechanism)})
    data = problem(loss=loss)
    probability, distance = fit_of_draws(mechanism, data, 2000, seed=1)
    assert probability > 1e-4
    assert distance < 0.1
    for factor in (0.5, 2):
        assert fit_of_draws(colder(mechanism, factor), data, 1000, seed=2, law=mechanism)[0] < 1e-4


@pytest.mark.slow
@pytest.mark.parametrize("loss", [Logistic(), HuberHinge(0.5)], ids=repr)
def test_proximal_draws_follow_the_density(loss):
    """Fails by chance once in 10,000; a wrong temperature is found."""
    mechanism = question({**PROXIMAL, "ridge": RIDGE}, epsilon=3.0, loss=loss)
    data = problem(loss=loss)
    probability, distance = fit_of_draws(mechanism, data, 400, seed=3)
    assert probability > 1e-4
    assert distance < 0.2
    for factor in (0.4, 2.5):
        assert fit_of_draws(colder(mechanism, factor), data, 250, seed=4, law=mechanism)[0] < 1e-4


@pytest.mark.slow
@pytest.mark.parametrize("loss", [Logistic(), HuberHinge(0.5)], ids=repr)
def test_metropolis_draws_follow_the_density(loss):
    """Fails by chance once in 10,000; a wrong temperature is found."""
    mechanism = question({**MALA, "ridge": RIDGE, "max_iter": 20}, epsilon=3.0, loss=loss)
    data = problem(loss=loss)
    probability, distance = fit_of_draws(mechanism, data, 500, seed=5)
    assert probability > 1e-4
    assert distance < 0.17
    for factor in (0.4, 2.5):
        assert fit_of_draws(colder(mechanism, factor), data, 250, seed=6, law=mechanism)[0] < 1e-4


@pytest.mark.slow
def test_langevin_iterates_settle_at_the_density():
    """The stationary law has inverse temperature 2 / (step noise^2), up to a bias of the order of the step."""
    data = problem()
    made = question({**LANGEVIN, "ridge": RIDGE, "max_iter": 120}, epsilon=3.0)
    mechanism = dataclasses.replace(made, step=0.03 / RIDGE)
    beta = 2 / (mechanism.step * mechanism.noise_scale**2)
    # the exponential mechanism's own mu at this temperature, the last-iterate bound's as the step falls
    assert beta == pytest.approx((mechanism.mu / 1.0) ** 2 * RIDGE, rel=0.1)
    law = dataclasses.replace(question({**MALA, "ridge": RIDGE}), inverse_temperature=beta)
    probability, distance = fit_of_draws(mechanism, data, 500, seed=7, law=law)
    assert probability > 1e-4
    assert distance < 0.17
    assert fit_of_draws(mechanism, data, 200, seed=8, law=colder(law, 2.5))[0] < 1e-4


# -- the certificate of the proximal sampler --------------------------------------------------------------


def test_the_certificate_exceeds_the_exact_distance_for_a_linear_loss():
    """Where the loss is linear the chain is Gaussian in each coordinate, and its law is known at every step."""
    mechanism = question({**PROXIMAL, "ridge": RIDGE}, epsilon=1.0)
    beta, ridge = mechanism.inverse_temperature, mechanism.ridge
    m, h = beta * ridge, 3 / (beta * mechanism.smoothness)
    variance = 1 / (1.01 * beta * (ridge + mechanism.smoothness))
    for steps in range(1, 40):
        variance = (variance + h) / (1 + m * h) ** 2 + h / (1 + m * h)
        ratio = variance * m
        divergence = mechanism.n_weights / 2 * (ratio - 1 - log(ratio))
        stated = dataclasses.replace(mechanism, n_steps=steps).log_total_variation
        assert log(max(divergence, 1e-300)) / 2 - log(2) / 2 <= stated


@pytest.mark.parametrize("neighbours", NEIGHBOURS)
@pytest.mark.parametrize("n_classes", [2, 3])
def test_the_proximal_cost_counts_everything(n_classes, neighbours):
    epsilon, delta, ridge = 0.7, 1e-5, 8.0
    changes = {"n_classes": n_classes, "neighbours": neighbours, "intercept": 0.5}
    mechanism = question({**PROXIMAL, "ridge": ridge}, epsilon, delta, **changes)
    K, p, row = (1 if n_classes == 2 else 3), 3, np.hypot(1, 0.5)
    beta, B = mechanism.inverse_temperature, row**2 / 4
    mu = (1 if neighbours == "add_remove" else 2) * row * sqrt(K * beta / ridge)
    kappa = 1 + 40 * B / ridge
    tau = sqrt(p / 4 * log(1.01 * kappa)) * (1 + 3 * ridge / (40 * B)) ** -mechanism.n_steps
    assert (1 + exp(epsilon)) * K * tau < 0.01 * delta
    assert 0 < mechanism.rounding < 1e-6
    total = gaussian_delta(mu, epsilon) + (1 + exp(epsilon)) * K * tau
    assert total == pytest.approx(delta, rel=0.01)
    assert isinstance(mechanism.cost, ApproximateCost)
    assert mechanism.cost.epsilon(delta) <= epsilon
    assert mechanism.cost.epsilon(0.98 * delta) == inf
    # half the noise, half the steps: the cost tells
    assert colder(mechanism, 4).cost.delta(epsilon) > 10 * delta
    hasty = dataclasses.replace(mechanism, n_steps=mechanism.n_steps // 2)
    assert hasty.cost.delta(epsilon) > 10 * delta


class KeepingNoise(RecordingNoise):
    """Recorded normal draws that are zero, and proposals that are always kept."""

    def standard_exponential(self, size):
        return np.full(size, 50.0)


@pytest.mark.parametrize("n_classes", [2, 3])
def test_every_normal_draw_has_the_scale_that_the_law_needs(n_classes):
    K = 1 if n_classes == 2 else 3
    rng = np.random.default_rng(0)
    X, codes = rng.normal(size=(40, 2)), rng.integers(0, n_classes, 40)
    for parameters in SAMPLERS:
        mechanism = question({**parameters, "ridge": 8.0}, n_classes=n_classes)
        loss = Softmax() if n_classes > 2 and parameters == LANGEVIN else Logistic()
        data = Problem(X, loss.encode(codes, n_classes), loss, data_norm=1.0, n_outputs=K)
        noise = KeepingNoise()
        assert mechanism.release(data, noise).shape == ((2,) if K == 1 else (2, 3))
        assert {kind for kind, _ in noise.draws} == {"normal"}
        scales = [scale for _, scale in noise.draws]
        if isinstance(mechanism, HiddenDescent):
            L, T, step = (1.0 if K == 1 else sqrt(2)), mechanism.n_steps, mechanism.step
            c = max(abs(1 - step * 8), abs(1 - step * (8 + mechanism.smoothness)))
            assert mechanism.smoothness == 40 * loss.curvature_bound
            assert scales == [scales[0]] * T
            mu = L / scales[0] * sqrt((1 - c**T) / (1 + c**T) * (1 + c) / (1 - c))
            assert gaussian_epsilon(mu, 1e-2) == pytest.approx(1.0, rel=1e-6)
            continue
        beta = mechanism.inverse_temperature
        if isinstance(mechanism, RejectionSampling):
            assert 5 * K * beta == pytest.approx(1.0)
            np.testing.assert_allclose(scales, [1 / sqrt(8 * beta)] * K)
        else:
            assert gaussian_epsilon(sqrt(K * beta / 8), 1e-2) == pytest.approx(1.0, rel=0.02)
        if isinstance(mechanism, ProximalSampling):
            h = 3 / (beta * 40 / 4)
            step = [sqrt(h), 1 / sqrt(8 * beta + 1 / h)] * mechanism.n_steps
            np.testing.assert_allclose(scales, ([1 / sqrt(1.01 * beta * (8 + 10)), *step]) * K)
        if isinstance(mechanism, MetropolisSampling):
            assert scales == [1.0] * (K * (mechanism.n_steps + 1))


class CountingNoise(NoiseSource):
    """Seeded noise that counts proposals."""

    is_secure = False

    def __init__(self, seed):
        self.inner, self.count = SeededNoise(seed), 0

    def standard_normal(self, size):
        self.count += 1
        return self.inner.standard_normal(size)

    def standard_exponential(self, size):
        return self.inner.standard_exponential(size)


@pytest.mark.parametrize("kind", ["random", "one direction", "separated", "contradicting"])
def test_kept_proposals_are_no_fewer_than_stated(kind):
    """Both rates hold on every data set: the mean of 300 counts, 4 deviations (fails by chance once in 30,000)."""
    rng = np.random.default_rng(8)
    X = rng.normal(size=(40, 2)) if kind == "random" else np.tile([1.0, 0.0], (40, 1))
    y = np.ones(40) if kind == "separated" else rng.choice([-1.0, 1.0], 40)
    data = problem(X=X, y=y)
    mechanism = question(REJECTION, epsilon=5.0)
    assert mechanism.log_rate == pytest.approx(log(0.02), abs=1e-3)
    noise = CountingNoise(9)
    for _ in range(300):
        mechanism.release(data, noise)
    rate = exp(mechanism.log_rate)
    assert noise.count / 300 <= 1 / rate + 4 * sqrt((1 - rate) / rate**2 / 300)
    chain = question({**PROXIMAL, "ridge": 4.0}, epsilon=5.0)
    noise = CountingNoise(10)
    chain.release(data, noise)
    assert (noise.count - 1) / chain.n_steps - 1 <= exp(2.35)


def test_the_rate_does_not_fall_with_the_dimension():
    rates = [rejection_log_rate(1.0, 10.0, 20.0, room=1e3, n_weights=p) for p in (1, 10, 1000, 10**6)]
    assert rates == sorted(rates, reverse=True)
    assert rates[-1] >= -20.0 / 20 - 0.151
    # the worst spectrum is the flat one
    rng = np.random.default_rng(0)
    for _ in range(100):
        spectrum = 20 * rng.dirichlet(np.ones(10))
        assert -0.5 * np.log1p(spectrum / 10).sum() >= rates[1] + 0.15 - 1e-9
    assert rejection_log_rate(1.0, 10.0, 10.0, room=-1.0, n_weights=2) == -inf
