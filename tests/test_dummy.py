"""PrivateMajority: scikit-learn's checks, the law of the counts against brute force, and what is charged."""

import json
from math import exp, inf

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.base import clone
from sklearn.utils.estimator_checks import parametrize_with_checks

from dpskl import BudgetExceededError, NoPrivacyWarning, PrivacyAccountant, PrivacyLeakWarning, SeededNoiseWarning
from dpskl.dummy import PrivateMajority
from dpskl.mechanisms.noise import SeededNoise
from dpskl.mechanisms.noisy_count import NoisyHistogram

X, Y = np.zeros((1000, 2)), np.repeat(["a", "b", "c"], [600, 300, 100])
each_relation = pytest.mark.parametrize("neighbours", ["add_remove", "replace_one"])


@pytest.mark.filterwarnings("ignore")
@parametrize_with_checks([PrivateMajority(), PrivateMajority(accountant=PrivacyAccountant())])
def test_scikit_learn_check(estimator, check):
    check(estimator)


def test_majority_and_shares_at_a_large_budget():
    model = PrivateMajority(epsilon=5.0, classes=["c", "b", "a"]).fit(X, Y)
    assert model.classes_.tolist() == ["a", "b", "c"]
    np.testing.assert_allclose(model.class_prior_, [0.6, 0.3, 0.1], atol=0.02)
    assert model.predict(sp.csr_array(X[:3])).tolist() == ["a"] * 3
    np.testing.assert_array_equal(model.predict_proba(X[:2]), np.tile(model.class_prior_, (2, 1)))
    assert model.score(X, Y) == 0.6


def test_without_noise_the_shares_are_exact_and_nothing_is_promised():
    with pytest.warns(NoPrivacyWarning):
        model = PrivateMajority(epsilon=inf, classes=["a", "b", "c"]).fit(X, Y)
    np.testing.assert_allclose(model.class_prior_, [0.6, 0.3, 0.1])
    assert model.privacy_guarantee_ is None


def test_counts_that_are_all_below_zero_give_equal_shares(monkeypatch):
    monkeypatch.setattr(NoisyHistogram, "release", lambda self, counts, noise: -1.0 - counts)
    model = PrivateMajority(classes=["a", "b", "c"]).fit(X, Y)
    np.testing.assert_allclose(model.class_prior_, 1 / 3)
    assert model.predict(X[:1]).tolist() == ["a"]


@each_relation
def test_cost_is_the_budget_and_follows_the_noise(neighbours):
    for epsilon in (1e-3, 0.4, 3.0):
        mechanism = NoisyHistogram(epsilon, neighbours)
        changed = 1 if neighbours == "add_remove" else 2
        assert mechanism.noise_scale == pytest.approx(changed / epsilon)
        assert epsilon * (1 - 2e-12) <= mechanism.cost.epsilon(0) <= epsilon
        assert mechanism.cost.epsilon(0) <= epsilon * (1 + 1e-12)
        assert mechanism.cost.epsilon(1e-3) < epsilon


@each_relation
@pytest.mark.parametrize("epsilon", [0.3, 2.0])
def test_profile_of_the_counts_by_quadrature(neighbours, epsilon):
    """The changed counts' densities on a grid: the largest log ratio is epsilon, and delta is that of the cost."""
    mechanism = NoisyHistogram(epsilon, neighbours)
    scale = mechanism.noise_scale
    grid = np.linspace(-20 * scale, 20 * scale + 1, 4001)
    width = grid[1] - grid[0]

    def density(centre):
        return np.exp(-np.abs(grid - centre) / scale) / (2 * scale)

    if neighbours == "add_remove":
        p, q, cell = density(1.0), density(0.0), width
    else:
        p, q, cell = np.outer(density(1.0), density(0.0)), np.outer(density(0.0), density(1.0)), width**2
    ratio = np.abs(np.log(p) - np.log(q)).max()
    assert ratio == pytest.approx(epsilon, rel=1e-6)
    for level in (0.0, epsilon / 3, epsilon * 0.9):
        for first, second in ((p, q), (q, p)):
            exact = np.maximum(first - exp(level) * second, 0).sum() * cell
            # a composition is stated from above
            assert exact <= mechanism.cost.delta(level) * (1 + 1e-3) + 1e-6
            assert exact >= 0.9 * mechanism.cost.delta(level) - 1e-3


def test_law_of_the_noise():
    """20,000 counts; the mean absolute value of Laplace noise is its scale: fails by chance once in 15,000 seeds."""
    for neighbours, scale in (("add_remove", 2.0), ("replace_one", 4.0)):
        noisy = NoisyHistogram(0.5, neighbours).release(np.full(20_000, 7), SeededNoise(1))
        assert np.abs(noisy - 7).mean() == pytest.approx(scale, rel=4 / np.sqrt(20_000))


def test_guarantee_accountant_and_ceiling():
    accountant = PrivacyAccountant(epsilon=1.5, delta=0)
    model = PrivateMajority(epsilon=1.0, classes=["a", "b", "c"], accountant=accountant).fit(X, Y)
    guarantee = model.privacy_guarantee_
    assert (guarantee.epsilon, guarantee.delta, guarantee.neighbours) == (1.0, 0.0, "add_remove")
    assert "data_norm" not in guarantee.public
    json.dumps(guarantee.to_dict())
    assert "Laplace" in str(guarantee)
    assert accountant.spent().epsilon == pytest.approx(1.0)
    with pytest.raises(BudgetExceededError):
        clone(model).fit(X, Y)
    assert len(accountant) == 1


@each_relation
def test_the_whole_budget_fits_under_a_ceiling_of_its_size(neighbours):
    for epsilon in (0.1, 0.3, 0.7, 1.0):
        accountant = PrivacyAccountant(epsilon=epsilon, delta=0)
        PrivateMajority(
            epsilon=epsilon, classes=["a", "b", "c"], neighbours=neighbours, accountant=accountant
        ).fit(X, Y)  # fmt: skip
        assert len(accountant) == 1


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"epsilon": 0}, "epsilon=0"),
        ({"delta": 1.0}, "delta=1"),
        ({"neighbours": "swap"}, "neighbours='swap'"),
        ({"classes": ["a"]}, "at least two different labels"),
        ({"classes": ["a", "b"]}, "labels"),
        ({"accountant": 3}, "accountant=3"),
        ({"random_state": -1}, "random_state=-1"),
    ],
)
def test_bad_parameters_are_named_before_anything_is_spent(changes, message):
    accountant = PrivacyAccountant()
    settings = {"classes": ["a", "b", "c"], "accountant": accountant, **changes}
    with pytest.raises(ValueError, match=message):
        PrivateMajority(**settings).fit(X, Y)
    assert len(accountant) == 0


def test_undeclared_classes_and_seeds_warn():
    with pytest.warns(PrivacyLeakWarning, match="classes"):
        PrivateMajority().fit(X, Y)
    with pytest.warns(SeededNoiseWarning):
        first = PrivateMajority(classes=["a", "b", "c"], random_state=4).fit(X, Y)
    assert first.privacy_guarantee_.is_seeded
