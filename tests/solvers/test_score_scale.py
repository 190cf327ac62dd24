"""The length of scores from the slope along their ray: against a model whose right length is known."""

from math import exp, inf, nan

import numpy as np
import pytest
from scipy.special import expit

from dpskl import DPLogisticRegression
from dpskl.solvers._score_scale import score_scale

pytestmark = pytest.mark.filterwarnings("ignore::dpskl.SeededNoiseWarning", "ignore::dpskl.WeakSignalWarning")


@pytest.mark.parametrize("right", [0.3, 0.8, 1.0, 1.7, 4.0])
@pytest.mark.parametrize("spread", [0.01, 1.0, 25.0])
def test_the_right_length_is_found_where_scores_are_normal_and_the_slope_is_exact(right, spread):
    z = np.linspace(-9, 9, 20_001)
    s = np.sqrt(spread) * z
    weights = np.exp(-z * z / 2) / np.exp(-z * z / 2).sum()
    slope = weights @ ((expit(s) - expit(right * s)) * s)  # labels have the probabilities at `right`
    assert score_scale(slope, 0.0, spread) == pytest.approx(right, rel=1e-3)


def test_an_uncertain_slope_moves_less_and_none_nothing():
    factors = [score_scale(-0.05, error, 1.0) for error in (0.0, 0.02, 0.1, 1.0, 1e9)]
    assert factors == sorted(factors, reverse=True)
    assert factors[0] > 1.2
    assert factors[-1] == pytest.approx(1, abs=1e-9)
    assert score_scale(0.0, 0.0, 3.0) == pytest.approx(1, abs=1e-9)


def test_it_is_bounded_and_odd_numbers_leave_the_weights_alone():
    assert score_scale(-1e9, 0.0, 1.0) == pytest.approx(exp(2))
    assert score_scale(1e9, 0.0, 1.0) == pytest.approx(exp(-2))
    for slope, spread, penalty in ((nan, 1.0, 0.0), (1.0, 0.0, 0.0), (1.0, inf, 0.0), (1.0, nan, 0.0), (1.0, 1.0, inf)):
        assert score_scale(slope, 0.1, spread, penalty) == 1.0


def test_a_penalty_holds_the_length():
    free, held = (score_scale(-0.05, 0.0, 1.0, penalty) for penalty in (0.0, 1.0))
    assert 1 < held < free


def test_few_records_of_many_columns_are_told_apart_with_more_confidence():
    """Scores of a descent that stops early are too short, and the slope tells; fits with a fixed seed."""
    rng = np.random.default_rng(0)
    n, d = 4000, 600
    X = rng.normal(size=(n, d))
    y = (X[:, :20].sum(axis=1) + rng.normal(size=n) > 0).astype(int)
    losses = []
    for is_off in (True, False):
        with pytest.MonkeyPatch.context() as patch:
            if is_off:
                patch.setattr("dpskl.solvers.whitened_gd.score_scale", lambda *given: 1.0)
            model = DPLogisticRegression(2.0, data_norm=25.0, classes=[0, 1], random_state=0).fit(X, y)
        p = model.predict_proba(X)[np.arange(n), y]
        losses.append(-np.log(p).mean())
    assert losses[1] < losses[0] - 0.02
