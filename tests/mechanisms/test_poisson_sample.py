"""Poisson samples: the law of the indices, the cost of an answer on them, and what is kept apart from what."""

from math import exp, inf, log, log1p

import numpy as np
import pytest
import scipy.sparse as sp
from conftest import RecordingNoise
from scipy.stats import binom, chi2, norm

from dpskl.accounting import GaussianCost, SampledGaussianCost, SampledPureCost, compose
from dpskl.curator import Curator
from dpskl.mechanisms.above_threshold import BacktrackingSearch
from dpskl.mechanisms.gradient import GaussianGradient
from dpskl.mechanisms.noise import NoiseSource, SeededNoise, SystemNoise
from dpskl.mechanisms.poisson_sample import PoissonSample
from dpskl.mechanisms.step_selection import StepSelection
from dpskl.records.losses import Hinge, Logistic, Softmax
from dpskl.records.problem import Problem

N = 40


def make_problem(X=None, loss=None, n_classes=2, intercept=0.3):
    rng = np.random.default_rng(2)
    X = rng.normal(size=(N, 3)) if X is None else X
    loss = Logistic() if loss is None else loss
    codes = rng.integers(0, n_classes, N)
    n_outputs = 1 if n_classes == 2 else n_classes
    return Problem(X, loss.encode(codes, n_classes), loss, data_norm=1.0, intercept=intercept, n_outputs=n_outputs)


def make_gradient(mu=0.5, neighbours="add_remove"):
    return GaussianGradient(0.8, mu, neighbours, N, 3)


def make_search(scales=(4.0, 4.0), law="laplace", neighbours="add_remove"):
    return BacktrackingSearch(law, *scales, 6, 1.0, 1.0, 1.1, neighbours, N, 3)


def memberships(source, n, rate, count):
    drawn = np.zeros((count, n), dtype=bool)
    for row in drawn:
        row[source.poisson_sample(n, rate)] = True
    return drawn


# -- the law -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rate", [0.02, 0.3, 0.9])
@pytest.mark.parametrize("source", [SeededNoise(11), SystemNoise()], ids=["seeded", "system"])
def test_every_index_enters_on_its_own_with_the_rate(source, rate):
    """Counts of each index, sizes of samples and pairs of neighbours; six tests, false alarms 1e-9 each."""
    n, count, alarm = 60, 3000, 1e-9
    drawn = memberships(source, n, rate, count)
    # each index
    counts = drawn.sum(axis=0)
    assert binom.cdf(counts.min(), count, rate) > alarm / n
    assert binom.sf(counts.max() - 1, count, rate) > alarm / n
    # their spread is binomial: neither equal nor too different
    spread = ((counts - count * rate) ** 2 / (count * rate * (1 - rate))).sum()
    assert chi2.ppf(alarm, n) < spread < chi2.isf(alarm, n)
    # the size: mean and variance of Binomial(n, rate), which a sample of fixed size has not
    sizes = drawn.sum(axis=1)
    variance = n * rate * (1 - rate)
    assert abs(sizes.mean() - n * rate) < norm.isf(alarm) * np.sqrt(variance / count)
    kurtosis = (1 - 6 * rate * (1 - rate)) / variance
    assert abs(sizes.var() / variance - 1) < norm.isf(alarm) * np.sqrt((2 + kurtosis) / count)
    # the whole law of the size
    levels = np.unique(binom.ppf([0.1, 0.3, 0.5, 0.7, 0.9], n, rate))
    observed = np.bincount(np.searchsorted(levels, sizes), minlength=len(levels) + 1)
    expected = count * np.diff(np.r_[0, binom.cdf(levels, n, rate), 1])
    assert ((observed - expected) ** 2 / expected).sum() < chi2.isf(alarm, len(levels))
    # neighbours, and those two apart
    for apart in (1, 2):
        together = (drawn[:, apart:] & drawn[:, :-apart]).sum()
        # overlapping pairs share an index: the variance of their number is at most (1 + 2 rate) times that of free ones
        free = (n - apart) * count * rate**2 * (1 - rate**2)
        assert abs(together - (n - apart) * count * rate**2) < norm.isf(alarm) * np.sqrt(free * (1 + 2 * rate))


@pytest.mark.parametrize("rate", [1e-9, 1e-3, 0.5, 1 - 1e-9, 1])
@pytest.mark.parametrize("n", [0, 1, 2, 500])
def test_samples_are_sorted_distinct_indices(n, rate):
    source = SeededNoise(0)
    for _ in range(20):
        rows = source.poisson_sample(n, rate)
        assert rows.dtype.kind == "i"
        assert (np.diff(rows) > 0).all()
        assert len(rows) == 0 or (rows[0] >= 0 and rows[-1] < n)
        if rate == 1:
            np.testing.assert_array_equal(rows, np.arange(n))
        if rate == 1e-9:
            assert len(rows) == 0


class Scripted(NoiseSource):
    """A source whose variables that decide on samples are given."""

    is_secure = False

    def __init__(self, value):
        self.value, self.helpings = value, 0

    def sampling_exponential(self, size):
        self.helpings += 1
        return np.full(size, self.value)

    standard_normal = standard_exponential = sampling_exponential


def test_gaps_are_floors_of_scaled_exponentials():
    """P(gap >= k) = P(E >= -k log(1 - rate)) = (1 - rate)^k, exactly at the edges of the floor."""
    unit = -log(1 - 0.25)
    for k in (0, 1, 4):
        rows = Scripted((k + 1e-9) * unit).poisson_sample(50, 0.25)
        np.testing.assert_array_equal(rows, np.arange(k, 50, k + 1))
    np.testing.assert_array_equal(Scripted(1e300).poisson_sample(50, 0.25), [])


def test_a_second_helping_goes_on_where_the_first_ended():
    """With no gaps at all, more members than one helping holds: none is lost or doubled."""
    source = Scripted(0.0)
    np.testing.assert_array_equal(source.poisson_sample(1000, 0.1), np.arange(1000))
    assert source.helpings > 1


# -- cost --------------------------------------------------------------------------------------------------------------


def test_costs_are_those_of_the_sampled_pair():
    for rate in (0.05, 1.0):
        question = PoissonSample(make_gradient(0.4), rate)
        assert question.cost == SampledGaussianCost(rate, 2.5)
        # one step by hand, from the density ratio: 1 - q + q exp(x mu - mu^2 / 2)
        x = np.linspace(-12, 14, 400_001)
        absent, present = norm.pdf(x), (1 - rate) * norm.pdf(x) + rate * norm.pdf(x, loc=0.4)
        for first, second in ((present, absent), (absent, present)):
            delta = np.maximum(first - exp(0.03) * second, 0).sum() * (x[1] - x[0])
            assert question.cost.delta(0.03) >= delta * (1 - 1e-6)
        assert PoissonSample(make_search(), rate).cost == SampledPureCost(rate, 0.5)
        assert PoissonSample(make_search(), rate).cost.epsilon(0) == pytest.approx(log1p(rate * (exp(0.5) - 1)))
    selection = StepSelection(0.3, 1.0, 1.0, 1.1, "add_remove", N, 3)
    assert PoissonSample(selection, 0.2).cost == SampledPureCost(0.2, 0.3)
    # without a pure bound there is none for the sample either
    assert PoissonSample(make_search(law="gaussian"), 0.1).cost.epsilon(1e-6) == inf
    assert PoissonSample(make_gradient(inf), 0.1).cost.epsilon(1e-6) == inf


def test_the_sampled_gradient_is_what_the_sampled_pair_describes():
    """Half the noise, or a rate that is left out, would move delta by far more than the tolerance here."""
    question = PoissonSample(make_gradient(0.5), 0.1)
    noise = RecordingNoise()
    question.release(make_problem(), np.zeros(4), noise)
    ((kind, scale),) = noise.draws
    assert kind == "normal"
    assert scale == pytest.approx(0.8 / 0.5, rel=1e-9)
    assert question.sensitivity / scale == pytest.approx(1 / question.cost.noise_multiplier, rel=1e-12)
    assert question.noise_scale == scale
    assert compose([(question.cost, 100)]).epsilon(1e-6) < compose([(GaussianCost(0.5), 100)]).epsilon(1e-6) / 3


@pytest.mark.parametrize("mechanism", [make_gradient(neighbours="replace_one"), make_search(neighbours="replace_one")])
def test_replace_one_has_no_bound_here(mechanism):
    with pytest.raises(ValueError, match=r"neighbours='replace_one'.*'add_remove'"):
        PoissonSample(mechanism, 0.1)


@pytest.mark.parametrize("rate", [0, -0.1, 1.1, float("nan")])
def test_a_rate_is_a_probability(rate):
    with pytest.raises(ValueError, match="rate="):
        PoissonSample(make_gradient(), rate)


def test_descriptions_name_both():
    part = PoissonSample(make_gradient(), 0.125).describe(7)
    assert part.mechanism == "Gaussian noise on the clipped gradient sum, on a Poisson sample of rate 0.125"
    assert part.count == 7
    assert "fresh sample" in part.theorem
    assert PoissonSample(make_gradient(), 0.125).data_shape == (N, 3)


# -- answers -----------------------------------------------------------------------------------------------------------


class Empty(SeededNoise):
    def poisson_sample(self, n, rate):
        return np.zeros(0, dtype=np.int64)


@pytest.mark.parametrize("kind", [np.asarray, np.asfortranarray, sp.csr_array])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("case", [(Logistic(), 2), (Softmax(), 3), (Hinge(), 3)], ids=str)
def test_empty_samples_give_noise_alone(case, dtype, kind):
    loss, n_classes = case
    X = kind(np.random.default_rng(0).normal(size=(N, 3)).astype(dtype))
    problem = make_problem(X, loss, n_classes)
    shape = problem.zeros().shape
    answer = PoissonSample(make_gradient(), 0.01).release(problem, np.ones(shape), Empty(5))
    scale = make_gradient().noise_scale
    np.testing.assert_array_equal(answer, SeededNoise(5).add_normal(np.zeros(shape), scale))
    assert answer.any()
    # a search answers too: by its noise and its demands
    steps, direction = 0.8 ** np.arange(6), np.ones(shape)
    never = PoissonSample(make_search(), 0.01).release(problem, direction, direction, steps, steps + 1e9, Empty(5))
    always = PoissonSample(make_search(), 0.01).release(problem, direction, direction, steps, steps - 1e9, Empty(5))
    assert (never, always) == (None, 0)
    selection = StepSelection(0.3, 1.0, 1.0, 1.1, "add_remove", N, 3)
    assert PoissonSample(selection, 0.01).release(problem, direction, direction, steps, 0 * steps, Empty(5)) in range(6)


@pytest.mark.parametrize("kind", [np.asarray, sp.csr_array])
def test_answers_are_sums_over_the_sample(kind):
    problem = make_problem(kind(np.random.default_rng(0).normal(size=(N, 3))))
    weights = np.random.default_rng(1).normal(size=4)
    question = PoissonSample(make_gradient(inf), 0.3)
    noise, same = SeededNoise(9), SeededNoise(9)
    for _ in range(5):
        rows = same.poisson_sample(N, 0.3)
        expected = sum(problem.batch(rows[i : i + 1]).gradient_sum(weights, 0.8) for i in range(len(rows)))
        np.testing.assert_allclose(question.release(problem, weights, noise), expected, rtol=1e-9, atol=1e-12)


def test_noise_is_the_same_whatever_the_samples():
    """Two streams: how many variables a sample takes does not shift the noise."""
    numbers = []
    for draw in ([], [(1000, 0.5)], [(10, 0.1)] * 7):
        source = SeededNoise(3)
        for n, rate in draw:
            source.poisson_sample(n, rate)
        numbers.append(np.r_[source.standard_normal(4), source.laplace(4, 1.0), source.gumbel(3, 1.0)])
    np.testing.assert_array_equal(numbers[0], numbers[1])
    np.testing.assert_array_equal(numbers[0], numbers[2])
    # and the other way round
    first, second = SeededNoise(3), SeededNoise(3)
    second.standard_normal(100)
    np.testing.assert_array_equal(first.poisson_sample(500, 0.2), second.poisson_sample(500, 0.2))
    # the streams differ: who is sampled does not follow from the noise
    assert (
        abs(np.corrcoef(SeededNoise(3).standard_exponential(2000), SeededNoise(3).sampling_exponential(2000))[0, 1])
        < 0.12
    )


def test_each_question_draws_its_own_sample():
    seen = []

    class Watching(SeededNoise):
        def poisson_sample(self, n, rate):
            rows = super().poisson_sample(n, rate)
            seen.append(tuple(rows))
            return rows

    question = PoissonSample(make_gradient(), 0.5)

    class Free:
        def take(self, cost):
            assert cost == question.cost

    curator = Curator(make_problem(), Free(), Watching(1))
    for _ in range(50):
        curator.ask(question, np.zeros(4))
    assert len(seen) == 50
    assert len(set(seen)) == 50
