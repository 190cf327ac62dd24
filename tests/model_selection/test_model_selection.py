"""What searches would spend, did spend, and leave behind."""

import pickle
import warnings
from math import inf, nan

import numpy as np
import pytest
from plan_cases import data, model
from scipy.stats import uniform
from sklearn.base import clone
from sklearn.calibration import CalibratedClassifierCV
from sklearn.ensemble import BaggingClassifier, RandomForestClassifier
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import (
    GridSearchCV,
    GroupKFold,
    KFold,
    RandomizedSearchCV,
    RepeatedStratifiedKFold,
    ShuffleSplit,
    StratifiedKFold,
    StratifiedShuffleSplit,
    TimeSeriesSplit,
    cross_val_score,
)
from sklearn.multiclass import OneVsRestClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer

import dpskl.model_selection.budgeted as budgeted
from dpskl import (
    BudgetExceededError,
    DPHuberSVC,
    DPLinearSVC,
    DPLogisticRegression,
    LedgerNotFoundError,
    PrivacyAccountant,
    SeededNoiseWarning,
)
from dpskl.accounting import GaussianCost, PureCost, compose, gaussian_mu
from dpskl.model_selection import BudgetedSearchCV, PrivateSearchCV, SearchPlan, plan_cost
from dpskl.model_selection.splits import training_sizes
from dpskl.solvers import GradientDescent

# -- plans ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("cls", [DPLogisticRegression, DPLinearSVC, DPHuberSVC])
@pytest.mark.parametrize("changes", [{}, {"solver": "gd"}, {"neighbours": "replace_one"}, {"fit_intercept": False}])
@pytest.mark.parametrize("n_classes", [2, 3])
def test_the_plan_of_an_estimator_is_what_its_fit_charges(cls, changes, n_classes):
    X, y = data(n_classes=n_classes)
    accountant = PrivacyAccountant()
    estimator = cls(classes=range(n_classes), accountant=accountant, epsilon=0.7, **changes)
    plan = plan_cost(estimator, 120, 3)
    assert plan.cost == estimator.plan(120, 3).cost
    estimator.fit(X, y)
    assert [entry.cost for entry in accountant.entries()] == [plan.cost]
    assert (plan.n_fits, plan.delta) == (1, 1e-6)
    assert 0.69 <= plan.epsilon <= 0.7


def test_what_has_no_guarantee_is_planned_as_infinite():
    assert plan_cost(model(epsilon=inf), 100, 3).cost == GaussianCost(inf)
    assert plan_cost(model(data_norm=None), 100, 3).epsilon == inf


def fitted(name, accountant):
    """An object and the number of fits that it makes, on 120 rows with 3 columns and 3 classes."""
    three = model(accountant, 3)
    binary = model(accountant)
    grid = {"epsilon": [0.5, 1.0], "solver": [GradientDescent(max_iter=3), GradientDescent(max_iter=5)]}
    pipeline = make_pipeline(FunctionTransformer(), three)
    nested = GridSearchCV(three, {"epsilon": [0.3, 0.4]}, cv=2)
    objects = {
        "pipeline": (pipeline, 1),
        "grid": (GridSearchCV(three, grid, cv=3), 13),
        "no refit": (GridSearchCV(three, grid, cv=KFold(4), refit=False), 16),
        "list of folds": (GridSearchCV(three, {"C": [1.0]}, cv=[(range(50), range(50, 60))] * 2), 3),
        "pipeline in a grid": (GridSearchCV(pipeline, {"dplogisticregression__epsilon": [0.2, 0.4]}), 11),
        "nested": (GridSearchCV(nested, {"cv": [2, 3]}, cv=2), (5 + 7) * 2 + 7),
        "seeded draws": (RandomizedSearchCV(three, {"epsilon": uniform(0.1, 1)}, n_iter=3, cv=2, random_state=0), 7),
        "drawn lists": (RandomizedSearchCV(three, {"epsilon": [0.1, 0.2, 0.3]}, n_iter=2, cv=2), 5),
        "whole list": (RandomizedSearchCV(three, [{"epsilon": [0.1]}, {"epsilon": [0.3]}], n_iter=2, cv=2), 5),
        "bagging": (BaggingClassifier(three, 4, bootstrap=False, max_samples=0.33, max_features=2), 4),
        "one vs rest": (OneVsRestClassifier(binary), 3),
        "calibrated": (CalibratedClassifierCV(three, cv=3), 3),
        "calibrated jointly": (CalibratedClassifierCV(three, cv=3, ensemble=False), 4),
        "private": (PrivateSearchCV(three, {"C": [0.1, 1.0]}), 1),
        "private in a grid": (BudgetedSearchCV(PrivateSearchCV(three, {"C": [0.1, 1.0]}), {"eta": [0, 1]}, cv=2), 5),
    }
    return objects[name] if name else list(objects)


@pytest.mark.parametrize("name", fitted(None, None))
def test_plans_agree_with_the_ledger(name):
    X, y = data(n_classes=3)
    accountant = PrivacyAccountant()
    estimator, n_fits = fitted(name, accountant)
    plan = plan_cost(estimator, 120, 3, n_classes=3)
    with warnings.catch_warnings():
        if name == "bagging":  # it seeds its members, and the ledger tells
            warnings.simplefilter("ignore", SeededNoiseWarning)
        estimator.fit(X, y)
    entries = accountant.entries()
    assert any(entry.is_seeded for entry in entries) == ("seeded by the ensemble" in str(plan))
    assert len(entries) <= plan.n_fits == n_fits
    assert len(entries) == n_fits or name == "nested"  # whose refit may choose fewer folds
    spent = compose(entry.cost for entry in entries)
    if plan.lines[-1].count("costliest") or name in ("drawn lists", "nested"):
        assert spent.epsilon(1e-6) <= plan.epsilon * (1 + 1e-9)
    else:
        assert spent == plan.cost
    assert str(plan).startswith(f"{n_fits} fit")
    assert str(plan).count("\n") <= 20


def test_fits_counts_what_cross_validation_makes():
    X, y = data()
    accountant = PrivacyAccountant()
    cross_val_score(model(accountant), X, y, cv=4)
    plan = plan_cost(model(accountant), 90, 3, fits=4)
    assert compose(entry.cost for entry in accountant.entries()) == plan.cost


def test_pure_costs_add_up_and_the_refit_is_the_worst():
    search = GridSearchCV(DPLogisticRegression(classes=[0, 1], delta=0), {"epsilon": [0.5, 1]}, cv=3)
    plan = plan_cost(search, 1000, 5)
    assert isinstance(plan, SearchPlan)
    assert plan.epsilon == 3 * 1.5 + 1.0
    assert plan_cost(search, 1000, 5, delta=0.1).epsilon < plan.epsilon


@pytest.mark.parametrize(
    "cv",
    [
        None,
        4,
        KFold(7),
        StratifiedKFold(7, shuffle=True),
        RepeatedStratifiedKFold(n_splits=3, n_repeats=2),
        ShuffleSplit(3, test_size=0.3),
        StratifiedShuffleSplit(3, test_size=17),
        TimeSeriesSplit(3),
        [(range(50, 70), range(3)), (np.arange(101) % 2 == 0, range(3))],
    ],
    ids=lambda cv: type(cv).__name__,
)
def test_sizes_of_folds_do_not_depend_on_the_labels(cv):
    y = np.repeat([0, 1, 2], [60, 30, 11])
    sizes = training_sizes(cv, 101)
    search = GridSearchCV(LogisticRegression(), {"C": [1.0]}, cv=cv)
    seen = []

    class Spy(LogisticRegression):
        def fit(self, X, y):
            seen.append(len(y))
            return super().fit(X, y)

    search.set_params(estimator=Spy(), refit=False, error_score=nan)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        search.fit(np.random.default_rng(0).normal(size=(101, 2)), y)
    assert seen == sizes


def test_planning_does_not_advance_a_splitter():
    splitter = KFold(3, shuffle=True, random_state=np.random.RandomState(0))
    before = splitter.random_state.get_state()[1].copy()
    plan_cost(GridSearchCV(model(), {"C": [1.0]}, cv=splitter), 30, 2)
    np.testing.assert_array_equal(splitter.random_state.get_state()[1], before)


class HalvingGridSearchCV:
    """Stands for scikit-learn's experimental class of this name."""


@pytest.mark.parametrize(
    ("estimator", "error", "message"),
    [
        (LogisticRegression(), TypeError, "LogisticRegression cannot be counted.*fits=number_of_fits"),
        (make_pipeline(FunctionTransformer(), RandomForestClassifier()), TypeError, "RandomForestClassifier"),
        (CalibratedClassifierCV(), TypeError, "NoneType"),
        (DPLogisticRegression, TypeError, r"pass an instance, DPLogisticRegression\(\)"),
        (HalvingGridSearchCV(), TypeError, "HalvingGridSearchCV.*depends on the data; use GridSearchCV"),
        (GridSearchCV(model(), {"C": [1]}, cv=GroupKFold(3)), TypeError, r"GroupKFold.*KFold\(5, shuffle=True\)"),
        (RandomizedSearchCV(model(), {"epsilon": uniform()}), TypeError, "draws epsilon from.*whole number"),
        (BaggingClassifier(model()), ValueError, "bootstrap=False"),
        (OneVsRestClassifier(model()), ValueError, "pass n_classes"),
        (DPLogisticRegression(), ValueError, "n_classes=None.*classes="),
        (model(epsilon=-1), ValueError, "epsilon=-1"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_what_cannot_be_counted_is_named_with_a_remedy(estimator, error, message):
    with pytest.raises(error, match=message):
        plan_cost(estimator, 100, 3)


def test_bad_sizes_are_named():
    for sizes, message in (((1, 3), "n_samples=1"), ((10, 0), "n_features=0"), ((10.5, 3), "n_samples=10.5")):
        with pytest.raises(ValueError, match=message):
            plan_cost(model(), *sizes)
    with pytest.raises(ValueError, match="fits=0"):
        plan_cost(model(), 10, 3, fits=0)
    mixed = GridSearchCV(model(), {"neighbours": ["add_remove", "replace_one"]})
    with pytest.raises(ValueError, match="no common total"):
        plan_cost(mixed, 100, 3)


def test_a_frozen_estimator_costs_nothing_again():
    X, y = data()
    plan = plan_cost(CalibratedClassifierCV(FrozenEstimator(model().fit(X, y))), 120, 3)
    assert (plan.n_fits, plan.epsilon) == (0, 0.0)


def test_a_plan_without_renyi_curves_is_finite():
    search = GridSearchCV(DPLogisticRegression(classes=[0, 1], neighbours="replace_one"), {"epsilon": [0.2, 0.3]}, cv=2)
    assert 0.3 < plan_cost(search, 1000, 3).epsilon < 5 * 0.5


# -- a grid search that keeps the budget --------------------------------------------------------------------


@pytest.mark.parametrize("error_score", ["raise", nan])
def test_a_search_beyond_the_budget_is_refused_before_its_first_fit(error_score):
    X, y = data()
    accountant = PrivacyAccountant(epsilon=3.0)
    search = BudgetedSearchCV(model(accountant), {"epsilon": [0.5, 1, 2]}, cv=3, error_score=error_score)
    with pytest.raises(BudgetExceededError, match=r"(?s)10 fits, together.*enough for \d of these fits. Nothing was"):
        search.fit(X, y)
    assert len(accountant) == 0
    assert not hasattr(search, "cv_results_")


@pytest.mark.parametrize("composition", ["rdp", "gdp", "basic"])
def test_the_plan_is_granted_exactly_when_the_ledger_would(composition):
    X, y = data()
    for before in (0, 1, 2):
        accountant = PrivacyAccountant(epsilon=3.0, delta=1e-5, composition=composition)
        for _ in range(before):
            accountant.spend(GaussianCost(gaussian_mu(1.0, 1e-6)) if composition != "basic" else PureCost(0.9))
        plain = PrivacyAccountant(epsilon=3.0, delta=1e-5, composition=composition)
        for entry in accountant.entries():
            plain.spend(entry.cost)
        changes = {"solver": "objective_perturbation", "delta": 0} if composition == "basic" else {}
        estimator, grid = model(epsilon=0.3, **changes), {"C": [0.5, 1.0]}
        try:
            GridSearchCV(clone(estimator).set_params(accountant=plain), grid, cv=3, error_score="raise").fit(X, y)
            is_granted = True
        except BudgetExceededError:
            is_granted = False
        search = BudgetedSearchCV(estimator.set_params(accountant=accountant), grid, cv=3)
        if is_granted:
            search.fit(X, y)
            assert search.plan_.n_fits == len(accountant) - before == 7
            assert search.best_params_["C"] in grid["C"]
        else:
            with pytest.raises(BudgetExceededError):
                search.fit(X, y)
            assert len(accountant) == before


@pytest.mark.parametrize("spent", [0.0, 1.9])
def test_a_refusal_in_the_middle_is_never_a_score(spent, monkeypatch):
    X, y = data()
    monkeypatch.setattr(budgeted, "_ask_ledgers", lambda fits, plan: None)
    accountant = PrivacyAccountant(epsilon=2.0)
    if spent:
        accountant.spend(GaussianCost(gaussian_mu(spent, 1e-6)))
    search = BudgetedSearchCV(model(accountant), {"epsilon": [1.0, 1.1]}, cv=3, error_score=nan, refit=False)
    with pytest.raises(BudgetExceededError, match="in the middle"):
        search.fit(X, y)


def test_a_ledger_that_is_gone_is_never_a_score(tmp_path, monkeypatch):
    X, y = data()
    path = tmp_path / "ledger.sqlite"
    gone = pickle.loads(pickle.dumps(PrivacyAccountant(epsilon=2.0, path=path)))
    for file in tmp_path.iterdir():
        file.unlink()
    search = BudgetedSearchCV(model(gone), {"epsilon": [0.1]}, error_score=nan)
    with pytest.raises(LedgerNotFoundError):
        search.fit(X, y)
    monkeypatch.setattr(budgeted, "_ask_ledgers", lambda fits, plan: None)
    with pytest.raises(LedgerNotFoundError, match="in the middle"):
        search.fit(X, y)


def test_other_failures_keep_their_score_and_their_error():
    X, y = data()
    grid = {"solver__step_size": [0.1, 1e12], "C": [1e-3]}
    estimator = model(solver=GradientDescent(max_iter=2), random_state=None)
    with pytest.raises(ValueError, match="step_size"):
        BudgetedSearchCV(estimator, grid, cv=2).fit(X, y)
    flat = BudgetedSearchCV(estimator, {"C": [1.0]}, cv=2)
    with pytest.raises(ValueError, match="2D"):
        flat.fit(X[:, 0], y)
    assert flat.fit(X, y).score(X, y) >= 0
    assert clone(flat).get_params(deep=False)["error_score"] == "raise"
