"""AboveThreshold on queries with a common term: its bounds against exact probabilities and against false claims."""

import math
import time
from itertools import pairwise

import numpy as np
import pytest
from above_threshold_oracle import log_outcome_probabilities, log_ratio, outcome_probabilities, renyi_divergence
from scipy.special import log_ndtr, logsumexp

from dpskl.accounting import AboveThresholdCost, laplace_rdp, log_stopping_value

# --- the value of the game ---


@pytest.mark.parametrize(
    ("law", "count", "alpha", "ratio", "theta", "value"),
    [
        ("gaussian", 1, 2, 1, 0, 0.661825476),
        ("gaussian", 10, 2, 0.1, 0.5, 0.00627099518),
        ("gaussian", 30, 2, 0.1, 0.5, 0.00999399439),
        ("gaussian", 30, 8, 0.1, 0, 0.724578387),
        ("gaussian", 30, 22, 0.1, 0.5, 6.0814652),
        ("gaussian", 30, 22, 0.05, 0.5, 0.84864635),
        ("gaussian", 100, 8, 1, 0, 30.657773),
        ("gaussian", 30, 64, 0.5, 0.3, 1496.0551),
        ("gaussian", 10, 256, 0.5, 0.5, 20359.239),
        ("laplace", 1, 2, 1, 0, 0.576092261),
        ("laplace", 10, 2, 0.1, 0.5, 0.0052920647),
        ("laplace", 30, 8, 0.1, 0, 0.316333062),
        ("laplace", 30, 22, 0.1, 0.5, 11.384179),
        ("laplace", 30, 22, 0.05, 0.5, 0.68850393),
        ("laplace", 100, 8, 1, 0, 6.35089426),
    ],
)
def test_reference_values(law, count, alpha, ratio, theta, value):
    found = log_stopping_value(law, count, alpha, ratio, theta)
    assert value * (1 - 2e-5) <= found / 1.0005  # even without the margin
    assert value <= found <= value * (1 + 1e-3)


@pytest.mark.parametrize(
    ("alpha", "ratio", "divergence", "short_grid"),
    [(256, 0.2, 11.566, 11.395), (256, 0.5, 72.82, 48.80), (128, 1, 145.63, 98.14), (64, 3, 656.0, 378.4)],
)
def test_the_grid_reaches_the_maximum_of_large_orders(alpha, ratio, divergence, short_grid):
    # a grid that ends at -12 gives the last column, which is no bound
    found = AboveThresholdCost("gaussian", math.sqrt(0.5) / ratio, 1 / ratio, 10).rdp(alpha)
    assert short_grid < divergence * (1 - 1e-4) <= found <= divergence * (1 + 1e-3)


def _log_survival(law, x):
    if law == "gaussian":
        return log_ndtr(-x)
    return np.where(x > 0, -np.abs(x) - np.log(2), np.log1p(-np.exp(-np.abs(x)) / 2))


def _plain_recursion(law, count, alpha, ratio, theta, points=120_001):
    """The recursion as it is written, on a grid twice as long on both sides and far denser."""
    ends = -2 * (12 + 3 * alpha * theta * ratio), 2 * (12 + 3 * alpha * (1 - theta) * ratio)
    x = np.concatenate([np.linspace(*ends, points), np.linspace(-3 * ratio, 3 * ratio, points // 10)])
    x = np.concatenate([x, [0.0, theta * ratio, -(1 - theta) * ratio]])
    steps = []
    for t in (-theta * ratio, (1 - theta) * ratio):
        success = alpha * _log_survival(law, x) + (1 - alpha) * _log_survival(law, x + t)
        failure = alpha * _log_survival(law, -x) + (1 - alpha) * _log_survival(law, -x - t)
        steps.append((success, failure))
    value = 0.0
    for _ in range(count):
        value = max(value, *(float(np.logaddexp(success, failure + value).max()) for success, failure in steps))
    return value


CASES = [
    (law, count, alpha, ratio, theta)
    for law in ("gaussian", "laplace")
    for count, alpha, ratio in [(1, 1.05, 2.0), (7, 3.7, 0.03), (5, 60.0, 0.02), (3, 20.0, 14.0), (5, 600.0, 0.3)]
    for theta in (0.0, 0.2, 0.5, 0.9)
]


@pytest.mark.parametrize(("law", "count", "alpha", "ratio", "theta"), CASES)
def test_a_longer_and_denser_grid_finds_nothing_more(law, count, alpha, ratio, theta):
    exact = _plain_recursion(law, count, alpha, ratio, theta)
    found = log_stopping_value(law, count, alpha, ratio, theta)
    assert exact <= found <= exact * (1 + 1e-3)
    # the margin is five times what the grid misses, unless all answers with their noise are the smaller bound
    noise = laplace_rdp if law == "laplace" else lambda shift, order: order * shift**2 / 2
    composed = count * (alpha - 1) * noise(max(theta, 1 - theta) * ratio, alpha)
    assert found >= min(composed * (1 - 1e-12), 1.0004 * exact)


@pytest.mark.parametrize("law", ["gaussian", "laplace"])
def test_one_candidate_is_one_noisy_answer(law):
    # a single coin is at most the query with its noise, and close to it for the best level of a few
    noise = laplace_rdp(0.4, 3.0) if law == "laplace" else 3.0 * 0.4**2 / 2
    value = log_stopping_value(law, 1, 3.0, 0.4, 0.0) / 2.0
    assert 0.5 * noise < value <= noise
    # where rounding would rule, all answers with their noise are the bound
    far = log_stopping_value(law, 200, 3.0, 1e-9, 0.0) / 2.0
    assert far == pytest.approx(200 * (laplace_rdp(1e-9, 3.0) if law == "laplace" else 1.5e-18), rel=1e-12)


@pytest.mark.parametrize("law", ["gaussian", "laplace"])
def test_more_candidates_larger_orders_and_less_noise_cost_more(law):
    def value(count=10, alpha=6.0, ratio=0.2, theta=0.3):
        return log_stopping_value(law, count, alpha, ratio, theta) / (alpha - 1.0)

    for name, values in [
        ("count", (1, 2, 10, 30, 100)),
        ("alpha", (1.001, 1.5, 2, 4, 6, 20, 100, 700)),
        ("ratio", (0.0, 1e-9, 1e-4, 0.01, 0.2, 1.0, 10.0, 50.0)),
    ]:
        found = [value(**{name: argument}) for argument in values]
        assert all(first < second for first, second in pairwise(found)), (name, found)
    assert log_stopping_value(law, 5, 3.0, 0.0, 0.5) == 0.0
    assert log_stopping_value(law, 5, 3.0, 100.01, 0.5) == math.inf
    assert log_stopping_value(law, 5, math.inf, 0.1, 0.5) == math.inf
    assert math.isfinite(log_stopping_value(law, 5, 3.0, 100.0, 0.5))


def test_a_value_takes_milliseconds():
    start = time.process_time()
    for order in range(20):
        log_stopping_value("gaussian", 30, 21.987 + order / 64, 0.0123, 0.5)
    assert time.process_time() - start < 20 * 0.02  # about 4 ms each


# --- against exact probabilities ---

SCALES = [(1 / 0.7, 1 / 0.9), (8.0, 11.3), (0.5, 0.7)]
ORDERS = (1.5, 2.0, 4.0, 8.0, 16.0, 32.0)


def test_oracle_reference_values():
    found = outcome_probabilities([0.0, -1.0], "laplace", 1 / 0.7, 1 / 0.9)
    assert found == pytest.approx([0.5, 0.0708388147, 0.429161185], abs=5e-10)
    for law in ("gaussian", "laplace"):
        assert outcome_probabilities([0.3, -2.0, 5.0, 1.0], law, 0.5, 1.7).sum() == pytest.approx(1.0, abs=1e-10)
    # one Gaussian query: its noise and that of the threshold add
    found = outcome_probabilities([0.4], "gaussian", 1.5, 2.0)[0]
    assert found == pytest.approx(math.exp(log_ndtr(0.4 / 2.5)), abs=1e-12)
    # and against simulation, which a factor of 2 in a scale would not survive (a standard error is 0.0016)
    rng = np.random.default_rng(3)
    z, noise = rng.laplace(scale=1.5, size=100_000), rng.laplace(scale=0.7, size=(100_000, 2))
    first = (noise[:, 0] + 0.3 >= z).mean()
    second = ((noise[:, 0] + 0.3 < z) & (noise[:, 1] - 0.5 >= z)).mean()
    assert outcome_probabilities([0.3, -0.5], "laplace", 1.5, 0.7)[:2] == pytest.approx([first, second], abs=0.008)


def _sequences(rng, number, spread):
    """Queries without and changes with the record: any, extreme, and two blocks that move against each other."""
    for i in range(number):
        count, a = int(rng.choice([1, 3, 10, 30])), rng.uniform()
        if i % 3 < 2:
            queries = rng.normal(scale=spread, size=count)
            changes = rng.uniform(a - 1, a, count) if i % 3 else rng.choice([a - 1, a], count)
        else:
            a = float(rng.choice([0.0, 0.5, 1.0]))
            first = np.arange(count) < rng.integers(0, count + 1)
            queries = np.where(first, *rng.normal(scale=spread, size=2))
            changes = np.where(first, a, a - 1)
            changes = changes if rng.uniform() < 0.5 else 2 * a - 1 - changes
        yield queries, changes


def _outcomes(queries, changes, *parameters):
    return tuple(log_outcome_probabilities(values, *parameters) for values in (queries, queries + changes))


@pytest.mark.parametrize(("law", "seed"), [("laplace", 0), ("gaussian", 1)])
def test_no_sequence_exceeds_the_bounds(law, seed):
    rng = np.random.default_rng(seed)
    largest_loss = largest = 0.0
    for threshold_scale, query_scale in SCALES:
        costs = {k: AboveThresholdCost(law, threshold_scale, query_scale, k) for k in (1, 3, 10, 30)}
        for queries, changes in _sequences(rng, 50, 3 * threshold_scale):
            pair = _outcomes(queries, changes, law, threshold_scale, query_scale)
            cost = costs[len(queries)]
            if law == "laplace":
                loss = log_ratio(*pair) / cost.pure_epsilon
                assert loss <= 1 + 1e-8
                largest_loss = max(largest_loss, loss)
            for alpha in ORDERS:
                ratio = renyi_divergence(*pair, alpha) / cost.rdp(alpha)
                assert ratio <= 1 + 1e-9
                largest = max(largest, ratio)
    assert largest > 0.7  # 0.95 (Laplace) and 0.86 (Gaussian)
    assert law == "gaussian" or largest_loss > 0.99


# thirty answers below a high level make the threshold large, the last query is far below it
ADVERSARY = np.append(np.full(29, 20.0), -20.0), np.append(np.ones(29), 0.0)


def test_the_pure_bound_is_reached_and_needs_all_its_noise():
    threshold_scale, query_scale = 1 / 0.7, 1 / 0.9
    assert log_ratio(*_outcomes(*ADVERSARY, "laplace", threshold_scale, query_scale)) == pytest.approx(1.6, rel=1e-6)
    cost = AboveThresholdCost("laplace", threshold_scale, query_scale, 30)
    assert cost.pure_epsilon == pytest.approx(1.6)
    # half the noise of the queries, or of the threshold
    assert log_ratio(*_outcomes(*ADVERSARY, "laplace", threshold_scale, query_scale / 2)) > 1.5 * cost.pure_epsilon
    assert log_ratio(*_outcomes(*ADVERSARY, "laplace", threshold_scale / 2, query_scale)) > 1.4 * cost.pure_epsilon
    # queries without a common term, which a record moves both ways
    queries, _ = ADVERSARY
    generic = log_ratio(*_outcomes(queries, np.append(np.ones(29), -1.0), "laplace", threshold_scale, query_scale))
    assert generic == pytest.approx(2.5, rel=1e-6)


def _largest_ratio(cost, threshold_scale, query_scale, alpha):
    """Largest exact divergence over bound, for two blocks of queries at a few levels."""
    found = 0.0
    for first in (5, 9):
        for levels in ((0.0, 0.0), (6.0, -2.0), (6.0, -4.0)):
            queries = np.repeat(levels, (first, 10 - first)) * query_scale
            for change in (1.0, -1.0):
                changes = np.repeat([change, 0.0], (first, 10 - first))
                pair = _outcomes(queries, changes, cost.law, threshold_scale, query_scale)
                found = max(found, renyi_divergence(*pair, alpha) / cost.rdp(alpha))
    return found


@pytest.mark.parametrize("law", ["gaussian", "laplace"])
def test_the_renyi_bound_needs_all_its_noise(law):
    cost = AboveThresholdCost(law, 1.0, 1.4, 10)
    assert 0.85 < _largest_ratio(cost, 1.0, 1.4, 16.0) <= 1.0  # 0.88 (Gaussian) and 0.86 (Laplace)
    assert _largest_ratio(cost, 1.0, 0.7, 16.0) > 1.3
    assert _largest_ratio(cost, 0.5, 1.4, 16.0) > 1.4
    # moves by 1 in both directions are an interval of length 2
    queries = np.full(10, -8.5)
    worst = max(
        renyi_divergence(*_outcomes(queries, np.where(np.arange(10) < first, 1.0, -1.0), law, 6.0, 8.5), 4.0)
        for first in (1, 5, 9)
    )
    assert worst <= AboveThresholdCost(law, 3.0, 4.25, 10).rdp(4.0)


def test_a_bound_without_the_number_of_queries_is_false():
    # generic queries, threshold variance 3 / (2 rho) and query variance 3 / rho, do not have divergence alpha rho at
    # every number of queries: five hundred go down, then five hundred go up
    rho, alpha = 1.0, 4.0
    queries = np.repeat([-1.29577589, -4.82116589], 500)
    changes = np.repeat([-1.0, 1.0], 500)
    scales = math.sqrt(1.5 / rho), math.sqrt(3 / rho)
    first, last = (
        _merge(log_outcome_probabilities(values, "gaussian", *scales)) for values in (queries, queries + changes)
    )
    assert renyi_divergence(first, last, alpha) > 1.07 * alpha * rho
    # the recursion, with an interval of length 2, covers it
    cost = AboveThresholdCost("gaussian", scales[0] / 2, scales[1] / 2, 1000)
    assert renyi_divergence(first, last, alpha) < cost.rdp(alpha)


def _merge(outcomes):
    """Log probabilities of a success in the first half, in the second half, and of none: less than what is released."""
    half = (len(outcomes) - 1) // 2
    return np.array([logsumexp(outcomes[:half]), logsumexp(outcomes[half:-1]), outcomes[-1]])
