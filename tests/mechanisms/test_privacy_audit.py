"""A statistical audit of whole fits: a lower bound on epsilon, at a claim of epsilon = 4.

A halved noise scale must exceed the claim, else the audit would have no power.
"""

import warnings

import numpy as np
import pytest
from epsilon_audit import DELTA, EPSILON, RUNS, WITH, WITHOUT, audited_epsilon

from dpskl import DPHuberSVC, DPLinearSVC, DPLogisticRegression, SeededNoiseWarning
from dpskl.accounting import gaussian_mu
from dpskl.mechanisms.noise import NoiseSource
from dpskl.solvers import GradientDescent, ObjectivePerturbation

LABELS = [1, 1]
# clipping is active at every step: the canary's gradient has norm 1/2 at the start
CLIPPED = GradientDescent(max_iter=5, step_size=0.05, clip_norm=0.2)
HIDDEN = GradientDescent(max_iter=5, step_size=0.05, clip_norm=0.2, iterate="last")
CASES = {
    "gd": (DPLogisticRegression, CLIPPED, "add_remove"),
    "gd last iterate": (DPLogisticRegression, HIDDEN, "add_remove"),
    "gd hinge": (DPLinearSVC, CLIPPED, "add_remove"),
    # the whole linear part of the Huber hinge: every unit of noise is needed
    "objective perturbation": (DPHuberSVC, ObjectivePerturbation(), "add_remove"),
    "objective perturbation, replace": (DPHuberSVC, ObjectivePerturbation(), "replace_one"),
}

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore::dpskl.SeededNoiseWarning")]


def canary_scores(case, seed):
    cls, solver, neighbours = CASES[case]
    state = np.random.RandomState(seed)
    model = cls(
        EPSILON,
        DELTA,
        solver=solver,
        classes=[0, 1],
        fit_intercept=False,
        neighbours=neighbours,
        random_state=state,
    )
    other = (WITHOUT, LABELS) if neighbours == "add_remove" else (WITH, [1, 0])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SeededNoiseWarning)
        return [np.array([model.fit(*sample).coef_[0, 1] for _ in range(RUNS)]) for sample in ((WITH, LABELS), other)]


@pytest.mark.parametrize("case", CASES)
def test_audit_stays_below_the_claim_and_near_it(case):
    bound = audited_epsilon(*canary_scores(case, seed=1))
    print(f"{case}: audited epsilon >= {bound:.2f}, claimed {EPSILON}")
    assert bound <= EPSILON
    assert bound >= 1.5  # more noise than was paid for would fail here


@pytest.mark.parametrize("case", CASES)
def test_half_the_noise_is_caught(case, monkeypatch):
    honest = NoiseSource.normal
    monkeypatch.setattr(NoiseSource, "normal", lambda self, size, scale: honest(self, size, scale / 2))
    bound = audited_epsilon(*canary_scores(case, seed=2))
    print(f"{case}: audited epsilon >= {bound:.2f} with half the noise, claimed {EPSILON}")
    assert bound > EPSILON


def test_mean_shift_over_deviation_is_what_the_steps_keep_of_mu():
    """The coefficient is exactly Gaussian here, so 20 % more or less noise shows: fails by chance once in 10,000."""
    with_canary, without = canary_scores("gd", seed=3)
    deviation = np.sqrt((with_canary.var() + without.var()) / 2)
    shift = (with_canary.mean() - without.mean()) / deviation
    # the weight of each of the five kicks in the average of the last three iterates, at momentum 0.95
    weight = [sum((1 - 0.95 ** (t - s + 1)) / 0.05 for t in (2, 3, 4) if t >= s) for s in range(5)]
    kept = np.sum(weight) / np.sqrt(5 * np.sum(np.square(weight)))
    mu = gaussian_mu(EPSILON, DELTA)
    assert shift == pytest.approx(kept * mu, abs=3.9 * np.sqrt(2 / RUNS * (1 + mu * mu / 8)))
