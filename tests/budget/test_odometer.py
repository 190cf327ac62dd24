"""Totals where results decide what comes next, or that nothing does: exact games against the figures printed."""

import math

import numpy as np
import pytest
from scipy.stats import norm

from dpskl import PrivacyAccountant
from dpskl.accounting import (
    ApproximateCost,
    GaussianCost,
    PureCost,
    ReplaceOneObjectiveCost,
    SampledGaussianCost,
    compose,
    gaussian_mu,
)
from dpskl.budget.odometer import odometer

DELTA = 1e-6
ONE = GaussianCost(gaussian_mu(1.0, DELTA))


def stopping_game(mu, printed, step=2e-3):
    """Largest P(S) - E_Q[e^printed 1_S] of who stops whenever it suits, over sets S of final transcripts.

    Each release moves the log ratio by N(mu^2/2, mu^2) under P. Who stops after k releases with a log ratio x has
    max(0, 1 - e^(printed[k] - x)), and going on is worth the mean of what comes; solved backwards on a grid.
    """
    top = 9.0 * mu * math.sqrt(len(printed)) + printed[-1] + 2.0
    grid = np.arange(-top, top, step)
    wide = int(9 * mu / step) + 1
    moves = np.arange(-wide, wide + 1) * step + round(mu * mu / 2 / step) * step
    law = norm.pdf(moves, mu * mu / 2, mu)
    law /= law.sum()
    drift = round(mu * mu / 2 / step)

    def stop(epsilon):
        return -np.expm1(np.minimum(0.0, epsilon - grid))

    value = stop(printed[-1])
    for epsilon in [*reversed(printed[:-1]), math.inf]:  # before the first release there is nothing to stop at
        padded = np.concatenate([np.full(wide, value[0]), value, np.full(wide + drift, value[-1])])
        mean = np.convolve(padded, law[::-1], mode="valid")[drift : drift + len(grid)]
        value = mean if epsilon == math.inf else np.maximum(stop(epsilon), mean)
    return float(np.interp(0.0, grid, value))


def test_the_game_of_one_release_is_its_delta():
    assert stopping_game(ONE.mu, [1.0]) == pytest.approx(DELTA, rel=2e-2)
    assert stopping_game(0.5, [0.8]) == pytest.approx(GaussianCost(0.5).delta(0.8), rel=1e-3)


def test_optimal_stopping_breaks_the_total_and_not_the_odometer():
    fits = 10
    accountant, spent, holds = PrivacyAccountant(), [], []
    for _ in range(fits):
        accountant.spend(ONE)
        spent.append(accountant.spent().epsilon)
        holds.append(accountant.odometer().epsilon)
    assert stopping_game(ONE.mu, spent) == pytest.approx(5.8e-6, rel=0.03)
    assert stopping_game(ONE.mu, holds) <= DELTA
    assert all(a < b < 1.4 * a for a, b in zip(spent, holds, strict=True))
    # the figure that is printed at the end, for all stops, is that of the whole series
    assert stopping_game(ONE.mu, [spent[-1]] * fits) == pytest.approx(DELTA, rel=0.05)


@pytest.mark.parametrize(("mu", "fits"), [(0.05, 30), (0.6, 6), (0.02, 60)])
def test_the_odometer_holds_in_other_games(mu, fits):
    printed = [odometer([GaussianCost(mu * math.sqrt(k))], 1e-4) for k in range(1, fits + 1)]
    assert stopping_game(mu, printed, step=2e-3 if mu > 0.1 else 5e-4) <= 1e-4


def test_coins_of_a_pure_ledger_add_up_along_every_path():
    """Randomised response, continued at will: log ratios never exceed the sum written down, with no delta."""
    epsilon = 0.3
    assert odometer([compose([(PureCost(epsilon), 7)])], 0.0) == pytest.approx(7 * epsilon, rel=1e-15)
    assert odometer([compose([(PureCost(epsilon), 7)])], 1e-6) <= 7 * epsilon


def test_what_the_odometer_takes():
    mixed = [compose([(GaussianCost(0.1, 0.01), 5), (PureCost(0.1), 2), (SampledGaussianCost(0.1, 3.0), 4)])]
    assert mixed[0].epsilon(DELTA) < odometer(mixed, DELTA) < 1.5 * mixed[0].epsilon(DELTA)
    assert odometer([PureCost(0.0)], DELTA) == 0.0
    assert odometer([GaussianCost(0.1), GaussianCost(0.3)], DELTA) == odometer([GaussianCost(0.3)], DELTA)
    for without in (GaussianCost(math.inf), ReplaceOneObjectiveCost(0.1, 0.01), ApproximateCost(1.0, 1e-9)):
        assert odometer([without], DELTA) == math.inf
    assert odometer([GaussianCost(0.1)], 0.0) == math.inf
    # more is never less, and a smaller delta never cheaper
    values = [odometer([GaussianCost(mu)], DELTA) for mu in np.geomspace(1e-3, 20, 60)]
    assert values == sorted(values)
    assert odometer([ONE], 1e-9) > odometer([ONE], 1e-6) > odometer([ONE], 1e-3)


def test_a_report_of_several_spends_says_what_its_total_presumes():
    free = PrivacyAccountant()
    free.spend(ONE)
    assert "whatever decided" not in str(free.report())
    free.spend(ONE)  # equal costs too
    report = free.report()
    holds = free.odometer()
    for text in (str(report), report._repr_html_()):
        assert "whatever decided on the spends and their number: epsilon = " in text
        assert "if number and costs of the spends were fixed before the first result was seen" in text
    record = report.to_dict()
    assert record["adaptive"] == {"epsilon": holds.epsilon, "delta": DELTA}
    assert record["epsilon"] < record["adaptive"]["epsilon"]
    assert any("fixed before" in condition for condition in record["conditions"])


@pytest.mark.parametrize("composition", ["rdp", "gdp"])
def test_with_a_ceiling_the_ceiling_holds(composition):
    accountant = PrivacyAccountant(epsilon=3.0, delta=DELTA, composition=composition)
    accountant.spend(GaussianCost(0.1))
    accountant.spend(GaussianCost(0.1))
    assert accountant.report().adaptive == (3.0, DELTA)
    assert "at delta = 1e-06 (by the ceiling)" in str(accountant.report())


def test_with_a_ceiling_on_sums_the_sums_hold():
    accountant = PrivacyAccountant(epsilon=3.0, delta=DELTA, composition="basic")
    for _ in range(2):
        accountant.spend(GaussianCost(0.1), delta=1e-7)
    assert accountant.report().adaptive == (pytest.approx(2 * GaussianCost(0.1).epsilon(1e-7)), DELTA)


def test_sums_of_a_stopped_run_with_deltas_hold_exactly():
    """Two outcomes a step, the second step chosen by the first: P(S) <= E_Q[e^sum 1_S] + delta over all S."""
    steps = {"first": (0.5, 0.05), 0: (0.2, 0.02), 1: (0.9, 0.05)}  # epsilon, delta; the deltas sum to 0.1 at most

    def pair(epsilon, delta):
        keep = math.exp(epsilon) / (1 + math.exp(epsilon))  # fails with delta, else randomised response
        return [delta, (1 - delta) * keep, (1 - delta) * (1 - keep)], [
            0.0,
            (1 - delta) * (1 - keep),
            (1 - delta) * keep,
        ]

    exceeding = 0.0  # the mass of P above e^sum Q, each transcript with its own sum
    first = pair(*steps["first"])
    for outcome in range(3):
        branch = steps[outcome % 2]
        total = steps["first"][0] + branch[0]
        for p, q in zip(*pair(*branch), strict=True):
            exceeding += max(0.0, first[0][outcome] * p - math.exp(total) * first[1][outcome] * q)
    assert 0.05 < exceeding <= 0.1


def test_a_delta_out_of_range_is_refused():
    accountant = PrivacyAccountant()
    accountant.spend(PureCost(0.1))
    for delta in (2.0, 1.0, -0.1, float("nan")):
        with pytest.raises(ValueError, match="delta"):
            accountant.odometer(delta)
