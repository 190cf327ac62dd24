"""Solvers that ask the data for their steps: what they show, which data they take, and what they refuse."""

from math import inf

import numpy as np
import pytest
import scipy.sparse as sp
from line_search_cases import EXPECTED_WARNINGS, FEW, facts, fitted, records

from dpskl import BudgetExceededError, DPHuberSVC, DPLinearSVC, DPLogisticRegression, PrivacyAccountant
from dpskl.accounting import GaussianCost
from dpskl.mechanisms.above_threshold import BacktrackingSearch
from dpskl.mechanisms.gradient import GaussianGradient
from dpskl.mechanisms.noise import SeededNoise
from dpskl.records.problem import Problem
from dpskl.solvers.line_search import BacktrackingSGD

pytestmark = EXPECTED_WARNINGS


def public_values(model):
    """All that a fitted estimator shows."""
    values = {name: value for name, value in vars(model).items() if name != "solver"}
    values["privacy_guarantee_"] = str(values["privacy_guarantee_"])
    values["solver_"] = repr(values["solver_"])
    return values


def test_no_public_attribute_depends_on_realised_batch_sizes(monkeypatch):
    """Answers are made equal while samples differ in size: everything that is shown must be equal too."""
    X, y = records(facts())
    found = [None, 0, 2, None, 1, 0, 3, 0, 0, 0, 0]
    sizes, shown = [], []
    for share in (0, 7, 250):
        left, rng = list(found), np.random.default_rng(0)
        monkeypatch.setattr(GaussianGradient, "release", lambda *_, rng=rng: rng.normal(size=4))
        monkeypatch.setattr(BacktrackingSearch, "release", lambda *_, left=left: left.pop(0))

        def sample(self, n, rate, share=share):
            sizes.append(share)
            return np.arange(share)

        monkeypatch.setattr(SeededNoise, "poisson_sample", sample)
        shown.append(public_values(fitted(BacktrackingSGD(n_updates=8, q=0.3), X, y)))
    assert set(sizes) == {0, 7, 250}
    for other in shown[1:]:
        assert other.keys() == shown[0].keys()
        for name, value in shown[0].items():
            np.testing.assert_equal(other[name], value, err_msg=name)


@pytest.mark.parametrize("solver", FEW, ids=lambda solver: solver.name)
def test_histories_hold_one_public_number_per_update(solver):
    X, y = records(facts())
    model = fitted(solver, X, y, epsilon=4.0)
    assert {len(values) for values in model.history_.values()} == {model.n_iter_}
    assert model.n_iter_ > 0
    keys = {"step_size", "largest_step", "gradient_level", "gradient_norm", "measurements", "searches"}
    assert set(model.history_) == (keys - {"searches"} if solver.name == "agd" else keys)
    for values in model.history_.values():
        assert all(isinstance(value, int | float) for value in values)
    assert all(a <= b for a, b in zip(model.history_["step_size"], model.history_["largest_step"], strict=True))


LAYOUTS = {
    "C": np.ascontiguousarray,
    "F": np.asfortranarray,
    "float32": lambda X: X.astype(np.float32),
    "csr": sp.csr_array,
    "csr float32": lambda X: sp.csr_array(X.astype(np.float32)),
}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("estimator", [DPLogisticRegression, DPLinearSVC, DPHuberSVC])
@pytest.mark.parametrize("solver", FEW, ids=lambda solver: solver.name)
def test_layouts_give_one_answer(solver, estimator, layout):
    X, y = records(facts(n_classes=3, n_samples=150))
    X = X.astype(np.float32).astype(np.float64)
    expected = fitted(solver, X, y, estimator, epsilon=4.0)
    other = LAYOUTS[layout](X)
    if isinstance(other, np.ndarray):
        other.setflags(write=False)
    model = fitted(solver, other, y, estimator, epsilon=4.0)
    np.testing.assert_allclose(model.coef_, expected.coef_, rtol=1e-4, atol=1e-6)
    assert model.coef_.shape == (3, 3)


@pytest.mark.parametrize("fit_intercept", [True, False])
@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("epsilon", [0.01, 1.0, 100.0, inf])
@pytest.mark.parametrize("solver", FEW, ids=lambda solver: solver.name)
def test_degenerate_data_are_fitted(solver, epsilon, n_classes, fit_intercept):
    """Two rows, one class, constant columns, rows of zeros: finite weights of the right shape."""
    rng = np.random.default_rng(0)
    classes, rows = np.arange(n_classes), 1 if n_classes == 2 else n_classes
    cases = [
        (rng.normal(size=(2, 2)), np.array([0, 1])),
        (rng.normal(size=(30, 2)), np.ones(30, dtype=int)),
        (np.ones((30, 2)), rng.integers(0, n_classes, 30)),
        (np.zeros((30, 2)), rng.integers(0, n_classes, 30)),
    ]
    for X, y in cases:
        model = fitted(solver, X, y, epsilon=epsilon, classes=classes, fit_intercept=fit_intercept)
        assert model.coef_.shape == (rows, 2)
        assert np.isfinite(model.coef_).all()
        assert np.isfinite(model.intercept_).all()
        assert (model.intercept_ != 0).any() <= fit_intercept


# -- refusals ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("solver", FEW, ids=lambda solver: solver.name)
def test_pure_privacy_is_refused_in_words_before_charging(solver):
    X, y = records(facts(n_samples=20))
    accountant = PrivacyAccountant(epsilon=1.0, delta=1e-6)
    with pytest.raises(ValueError, match=r"delta=0.*objective_perturbation"):
        fitted(solver, X, y, delta=0, accountant=accountant)
    assert len(accountant) == 0


def test_samples_are_refused_under_replace_one():
    X, y = records(facts(n_samples=20))
    accountant = PrivacyAccountant(epsilon=1.0, delta=1e-6)
    with pytest.raises(ValueError, match=r"neighbours='replace_one'.*'add_remove'.*blgd"):
        fitted(FEW[1], X, y, neighbours="replace_one", accountant=accountant)
    assert len(accountant) == 0


BAD = {
    "alpha": [0, 1, -0.5, "a", None, True, np.nan],
    "beta": [0, 1, 2],
    "max_it": [0, 101, 2.5],
    "initial_step": [0, -1, inf],
    "clip_norm": [0, inf, "x"],
    "objective_clip": [0, 1e-8, 9.9e-4, 1e6, 1e39, inf],
    "xi": [0, -1, inf],
    "tau": [0, 1.5],
    "psi": [0, 1],
    "phi_max": [0, inf],
    "angle_max": [0, np.nan],
    "budget_rule": ["sometimes", None],
    "momentum": [-0.1, 1],
    "n_updates": [0, 2.5],
    "search_share": [0, 1],
    "iterate": ["mean"],
    "noise": ["uniform"],
    "q": [0, 1.1, -0.5],
    "threshold_decay": [-0.1, 1],
    "gamma": [0, -1],
    "n_candidates": [0, 1001],
    "max_step": [0, inf],
    "choice_share": [0, 1],
    "rows": ["cube"],
}


def test_bad_parameters_are_named_before_anything_is_charged():
    X, y = records(facts(n_samples=20))
    accountant = PrivacyAccountant(epsilon=1.0, delta=1e-6)
    checked = set()
    for solver in FEW:
        for name in solver.get_params():
            for value in BAD[name]:
                bad = type(solver)(**{name: value})
                with pytest.raises(ValueError, match=f"{name}="):
                    fitted(bad, X, y, accountant=accountant)
            checked.add(name)
    assert checked == set(BAD)
    assert len(accountant) == 0


@pytest.mark.parametrize("solver", FEW, ids=lambda solver: solver.name)
def test_a_spent_ledger_refuses_before_data_are_used(solver, monkeypatch):
    X, y = records(facts(n_samples=40))
    accountant = PrivacyAccountant(epsilon=1.0, delta=1e-6)
    accountant.spend(GaussianCost(0.2))

    def use(*_, **__):
        raise AssertionError("the data were used")

    for name in ("scores", "gradient_sum", "gradient_sum_at", "losses_along", "batch"):
        monkeypatch.setattr(Problem, name, use)
    with pytest.raises(BudgetExceededError):
        fitted(solver, X, y, accountant=accountant)
    assert len(accountant) == 1


@pytest.mark.parametrize("solver", FEW, ids=lambda solver: solver.name)
def test_two_fits_compose_below_the_sum(solver):
    X, y = records(facts(n_samples=60))
    accountant = PrivacyAccountant(epsilon=2.0, delta=1e-6, composition="rdp")
    model = DPLogisticRegression(epsilon=1.0, delta=1e-6, solver=solver, classes=[0, 1], random_state=0)
    cost = model.plan(60, 3).cost
    assert accountant.would_grant([cost] * 9) >= 2
    model.set_params(accountant=accountant)
    model.fit(X, y)
    once = accountant.spent().epsilon
    model.fit(X, y)
    twice = accountant.spent().epsilon
    assert 0.95 <= once <= 1.35  # the order is that of the ceiling, not of one fit
    assert once < twice < 0.9 * 2.0
    while accountant.would_grant([cost]):
        model.fit(X, y)
    with pytest.raises(BudgetExceededError):
        model.fit(X, y)
    assert accountant.spent().epsilon <= 2.0
