"""Plans beside the ledgers of real fits, and what the guarantees of searches say."""

import warnings
from inspect import signature
from pathlib import Path

import numpy as np
import pytest
from plan_cases import FOLDS, data, declared, fitted_model, model, plan
from sklearn import model_selection
from sklearn.base import RegressorMixin
from sklearn.calibration import CalibratedClassifierCV
from sklearn.ensemble import BaggingClassifier, StackingClassifier, VotingClassifier
from sklearn.experimental import enable_halving_search_cv  # noqa: F401
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import (
    FixedThresholdClassifier,
    GridSearchCV,
    RepeatedStratifiedKFold,
    ShuffleSplit,
    StratifiedKFold,
    StratifiedShuffleSplit,
    TunedThresholdClassifierCV,
)
from sklearn.multiclass import OneVsOneClassifier, OneVsRestClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils import all_estimators

from dpskl import DPLinearSVC, PrivacyAccountant, SeededNoiseWarning
from dpskl.accounting import compose
from dpskl.accounting.words import at
from dpskl.model_selection import BudgetedSearchCV, PrivateSearchCV
from dpskl.model_selection.splits import position_splitter, training_sizes
from dpskl.preprocessing import RowNormClipper

# -- plans agree with fits ----------------------------------------------------------------------------------


def stacked(accountant, final=None, **changes):
    estimators = [("a", model(accountant, 3)), ("b", model(accountant, 3, epsilon=0.5)), ("c", "drop")]
    return StackingClassifier(estimators, final, **{"cv": FOLDS, **changes})


def ensembles(name, accountant):
    """An object and the number of its fits, on 120 rows with 3 columns and 3 classes (2 for thresholds)."""
    three, two = model(accountant, 3), model(accountant)
    svc = DPLinearSVC(solver="gd", classes=range(3), accountant=accountant)
    objects = {
        "voting": (VotingClassifier([("a", three), ("b", svc), ("c", "drop")]), 2),
        "stacking": (stacked(accountant), 8),
        "private stacking": (stacked(accountant, model(accountant, 3)), 9),
        "stacking with columns": (stacked(accountant, model(accountant, 3), passthrough=True), 9),
        "stacking of labels": (stacked(accountant, model(accountant, 3), stack_method="predict"), 9),
        "stacking of scores": (StackingClassifier([("s", svc)], model(accountant, 3), cv=FOLDS), 5),
        "fixed threshold": (FixedThresholdClassifier(two), 1),
        "tuned threshold": (TunedThresholdClassifierCV(two, cv=FOLDS), 4),
        "one tuned split": (TunedThresholdClassifierCV(two, cv=ShuffleSplit(1, test_size=30), refit=False), 2),
        "share tuned": (TunedThresholdClassifierCV(two, cv=0.25), 2),
        "searched voting": (GridSearchCV(VotingClassifier([("a", three)]), {"a__C": [0.5, 1.0]}, cv=FOLDS), 7),
    }
    return objects[name] if name else list(objects)


@pytest.mark.parametrize("name", ensembles(None, None))
def test_plans_of_ensembles_agree_with_the_ledger(name):
    n_classes = 2 if "t" == name[-1] or "threshold" in name or "tuned" in name else 3
    X, y = data(n_classes=n_classes)
    accountant = PrivacyAccountant()
    estimator, n_fits = ensembles(name, accountant)
    found = plan(estimator, n_classes=n_classes)
    estimator.fit(X, y)
    entries = accountant.entries()
    assert len(entries) == found.n_fits == n_fits
    lines = [f"1 x {entry.estimator} on {entry.n_samples} rows" for entry in entries]
    planned = [line.split(",")[0].replace(" (costliest candidate)", "").split(" x ") for line in found.lines]
    assert lines == [f"1 x {rest}" for count, rest in planned for _ in range(int(count))]
    assert compose(entry.cost for entry in entries) == found.cost
    if name != "share tuned":
        assert found.holds


def test_the_columns_of_the_final_estimator_are_counted():
    for changes, columns in (
        ({}, 6),
        ({"passthrough": True}, 9),
        ({"stack_method": "predict"}, 2),
    ):
        final = model(None, 3)
        stack = stacked(None, final, **changes)
        seen = []
        final.plan = lambda n, d, k=None, seen=seen, final=final: seen.append(d) or type(final).plan(final, n, d, k)
        plan(stack, n_classes=3)
        stack.final_estimator = model(None, 3)
        assert seen == [columns] == [stack.fit(*data(n_classes=3)).final_estimator_.n_features_in_]
    two = StackingClassifier([("a", model())], model(), cv=FOLDS)
    assert two.fit(*data()).final_estimator_.n_features_in_ == 1
    with pytest.raises(ValueError, match="a column for each class: pass n_classes"):
        plan(StackingClassifier([("a", FrozenEstimator(fitted_model()))], model(), cv=FOLDS))


@pytest.mark.parametrize(
    ("estimator", "remedy"),
    [
        (OneVsRestClassifier(model(n_classes=3)), r"labels \[0, 1\].*\[0, 1, 2\]; declare classes=\[0, 1\] here"),
        (OneVsRestClassifier(model(classes=["a", "b", "c"])), r"declare classes=\[0, 1\] here"),
        (OneVsRestClassifier(model(classes=[1, 2])), r"declare classes=\[0, 1\] here"),
        (OneVsOneClassifier(declared(classes=["a", "b", "c"])), r"declare classes=\[0, 1\] here"),
        (OneVsRestClassifier(make_pipeline(RowNormClipper(), model(n_classes=3))), r"declare classes=\[0, 1\] here"),
        (OneVsRestClassifier(PrivateSearchCV(model(n_classes=3), {"C": [1]})), r"declare classes=\[0, 1\] here"),
        (VotingClassifier([("a", model(classes=[1, 2, 5]))]), r"declare classes=\[0, 1, 2\] here"),
        (StackingClassifier([("a", model(classes=[1.0, 2.0]))], cv=FOLDS), r"declare classes=\[0, 1\] here"),
        (StackingClassifier([("a", model())], model(classes=[3, 4]), cv=FOLDS), r"declare classes=\[0, 1\] here"),
        (BaggingClassifier(model(classes=[1, 2]), bootstrap=False), r"declare classes=\[0, 1\] here"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_declared_classes_that_a_tool_encodes_away_are_refused(estimator, remedy):
    with pytest.raises(ValueError, match=remedy):
        plan(estimator, n_classes=3)


@pytest.mark.parametrize("classes", [[0, 1, 2], ["a", "b", "c"], None])
def test_classes_that_survive_encoding_are_planned(classes):
    inner = model(classes=classes)
    for estimator in (VotingClassifier([("a", inner)]), BaggingClassifier(inner, 1, bootstrap=False)):
        assert plan(estimator, n_classes=3).n_fits == 1
    binary = model(classes=classes and classes[:2])
    assert plan(OneVsRestClassifier(binary), n_classes=3).n_fits == 3


def test_a_search_of_this_package_draws_its_folds():
    X, y = np.arange(60.0).reshape(30, 2) / 60, np.repeat([0, 1], 15)
    search = BudgetedSearchCV(model(), {"C": [1.0]}, cv=3, refit=False)
    seen = []
    scoring = lambda estimator, X, y: seen.append(tuple(X[:, 0])) or 0.0  # noqa: E731
    for _ in range(2):
        search.set_params(scoring=scoring).fit(X, y)
        assert search.cv == 3
        assert plan(search, n_samples=30).holds
    assert sorted(np.concatenate(seen[:3])) == sorted(np.concatenate(seen[3:])) == sorted(X[:, 0])
    assert set(seen[:3]) != set(seen[3:])  # equal once in 3e12
    assert training_sizes(None, 30) == [24] * 5
    assert position_splitter(None).n_splits == 5


def test_a_search_of_this_package_refuses_folds_by_label():
    X, y = data()
    accountant = PrivacyAccountant()
    for cv in (StratifiedKFold(5), RepeatedStratifiedKFold(n_splits=5), StratifiedShuffleSplit(5)):
        search = BudgetedSearchCV(model(accountant), {"C": [1.0]}, cv=cv)
        for ask in (lambda search=search: search.fit(X, y), lambda search=search: plan(search)):
            with pytest.raises(ValueError, match=r"splits by all labels.*set cv=.*5"):
                ask()
    nested = BudgetedSearchCV(CalibratedClassifierCV(model(accountant), cv=4), {"estimator__C": [1.0]})
    with pytest.raises(ValueError, match=r"would not be kept: CalibratedClassifierCV.*KFold\(4, shuffle=True\)"):
        nested.fit(X, y)
    assert len(accountant) == 0


def test_a_failed_search_keeps_its_parameter():
    search = BudgetedSearchCV(model(solver="none"), {"C": [1.0]}, cv=3)
    with pytest.raises(ValueError, match="solver"):
        search.fit(*data())
    assert search.cv == 3


# -- what the winner of a search says -----------------------------------------------------------------------


@pytest.mark.parametrize("inside", ["alone", "pipeline", "voting", "calibrated", "private"])
def test_neither_guarantee_of_a_search_reads_as_if_the_other_fits_were_not(inside):
    X, y = data()
    accountant = PrivacyAccountant()
    estimator, name = {
        "alone": (model(accountant), "C"),
        "pipeline": (make_pipeline(StandardScaler(), model(accountant)), "dplogisticregression__C"),
        "voting": (VotingClassifier([("a", model(accountant)), ("b", model(accountant))]), "a__C"),
        "calibrated": (CalibratedClassifierCV(model(accountant), cv=FOLDS), "estimator__C"),
        "private": (PrivateSearchCV(model(accountant), {"C": [1.0]}), "eta"),
    }[inside]
    search = BudgetedSearchCV(estimator, {name: [0, 1] if name == "eta" else [0.5, 1.0]}, cv=FOLDS).fit(X, y)
    whole, best = search.privacy_guarantee_, search.best_estimator_
    winners = {
        "alone": lambda: [best],
        "pipeline": lambda: [best[-1]],
        "voting": lambda: best.estimators_,
        "calibrated": lambda: [pair.estimator for pair in best.calibrated_classifiers_],
        "private": lambda: [best, best.best_estimator_],
    }[inside]()
    spent = compose(entry.cost for entry in accountant.entries()).epsilon(1e-6)
    assert whole.epsilon == search.plan_.epsilon
    assert whole.epsilon == pytest.approx(spent, rel=1e-6) or (inside == "private" and whole.epsilon >= spent)
    assert whole.epsilon > 2 * winners[0].privacy_guarantee_.epsilon
    assert whole.epsilon_at(1e-6) == whole.epsilon
    printed = f"together have {at(whole.epsilon, 1e-6)}"
    for winner in winners:
        assert printed in str(winner.privacy_guarantee_)
        assert str(winner.privacy_guarantee_).count("the other fits on these records") == 1
        assert f"it is for 1 of {search.plan_.n_fits}" in str(winner.privacy_guarantee_)
    assert str(whole).startswith(f"({whole.epsilon:.6g}"[:5])
    assert "scores of held-out rows, and the choice by them, in BudgetedSearchCV" in str(whole)
    assert ("StandardScaler reads" in str(whole)) == (inside == "pipeline")
    assert "the other fits" not in str(whole)
    if inside != "private":
        of_one = sum(part.count for part in winners[0].privacy_guarantee_.parts)
        assert sum(part.count for part in whole.parts) == of_one * search.plan_.n_fits
        assert compose(part.cost for part in whole.parts for _ in range(part.count)).epsilon(1e-6) <= whole.epsilon
    assert whole.to_dict()["epsilon"] == whole.epsilon


def test_the_models_of_a_user_are_left_alone():
    X, y = data()
    mine = model().fit(X, y)
    before = mine.privacy_guarantee_
    stack = VotingClassifier([("old", FrozenEstimator(mine)), ("new", model())])
    search = BudgetedSearchCV(stack, {"new__C": [1.0]}, cv=FOLDS).fit(X, y)
    assert mine.privacy_guarantee_ is before
    assert "the other fits" in str(search.best_estimator_.estimators_[1].privacy_guarantee_)


def test_a_search_without_a_model_or_a_claim_promises_nothing():
    X, y = data()
    assert BudgetedSearchCV(model(), {"C": [1.0]}, cv=FOLDS, refit=False).fit(X, y).privacy_guarantee_ is None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for classifier in (model(epsilon=np.inf), model(data_norm=None)):
            assert BudgetedSearchCV(classifier, {"C": [1.0]}, cv=FOLDS).fit(X, y).privacy_guarantee_ is None
    with pytest.warns(SeededNoiseWarning):
        seeded = BudgetedSearchCV(model(random_state=0), {"C": [1.0]}, cv=FOLDS).fit(X, y)
    assert seeded.privacy_guarantee_.is_seeded
    assert not seeded.plan_.holds
    assert "SEEDED" in str(seeded.privacy_guarantee_)
    assert "the other fits on these records" in str(seeded.best_estimator_.privacy_guarantee_)


def test_a_search_over_other_models_too():
    """A final estimator of scikit-learn is fitted without noise, which the plan and the guarantee say."""
    found = plan(stacked(None, LogisticRegression()), n_classes=3)
    assert "the final estimator LogisticRegression of StackingClassifier, fitted without noise" in found.not_covered
    with pytest.raises(TypeError, match="LogisticRegression"):
        plan(VotingClassifier([("a", model()), ("b", LogisticRegression())]))


# -- the documentation --------------------------------------------------------------------------------------


def stratifying_tools():
    """Names of the tools of scikit-learn that ask for stratified folds, given a classifier and no ``cv``."""
    X, y = data(60)
    X, few = np.abs(X), {"C": [1.0]}
    forest = LogisticRegression()
    arguments = {"estimator": forest, "estimators": [("a", forest)], "param_grid": few, "param_distributions": few}
    arguments |= {
        "param_name": "C",
        "param_range": [1.0],
        "l1_ratios": (0.0,),
        "use_legacy_attributes": False,
        "n_iter": 1,
    }
    tools = {name: cls for name, cls in all_estimators() if "cv" in signature(cls).parameters}
    tools |= {name: getattr(model_selection, name) for name in model_selection.__all__}
    for name, tool in sorted(tools.items()):
        wanted = signature(tool).parameters
        is_regressor = isinstance(tool, type) and issubclass(tool, RegressorMixin)
        if "cv" not in wanted or is_regressor or name in ("ClassifierChain", "check_cv"):  # no folds of their own
            continue
        given = {key: value for key, value in arguments.items() if key in wanted}
        with warnings.catch_warnings(), pytest.MonkeyPatch.context() as patch:
            warnings.simplefilter("ignore")
            seen = []
            split = StratifiedKFold.split

            def spy(*args, split=split, seen=seen, **groups):
                seen.append(1)
                return split(*args, **groups)

            patch.setattr(StratifiedKFold, "split", spy)
            if not isinstance(tool, type):
                tool(**given, X=X, y=y)
            elif hasattr(tool(**given), "fit_transform"):
                tool(**given).fit_transform(X, y)
            else:
                tool(**given).fit(X, y)
        if seen:
            yield name


def test_the_pitfalls_name_all_tools_that_stratify():
    text = (Path(__file__).parents[2] / "docs" / "pitfalls.md").read_text(encoding="utf-8")
    section = text.split("## Stratified splits")[1].split("\n## ")[0]
    found = set(stratifying_tools())
    assert len(found) >= 17
    assert not [name for name in found if f"`{name}`" not in section]


# -- folds that are given as lists, and data that some fit would refuse ------------------------------------------


@pytest.mark.parametrize("repeated", [np.zeros(50, int), np.array([0, 1, 1]), np.array([-1, 119]), [3, 3]])
@pytest.mark.parametrize(
    "tool",
    [
        lambda cv: GridSearchCV(model(), {"C": [1.0]}, cv=cv),
        lambda cv: BudgetedSearchCV(model(), {"C": [1.0]}, cv=cv),
        lambda cv: CalibratedClassifierCV(model(), cv=cv),
        lambda cv: StackingClassifier([("a", model())], cv=cv),
    ],
)
def test_folds_that_repeat_a_row_are_refused(tool, repeated):
    with pytest.raises(ValueError, match=r"fold 1 of cv= has a row several times.*list each row once"):
        plan(tool([(np.arange(60), np.arange(60, 120)), (repeated, np.arange(60, 120))]))


@pytest.mark.parametrize("wrap", [lambda m: m, lambda m: make_pipeline(RowNormClipper(), m)])
def test_a_search_refuses_data_before_its_first_fit(wrap):
    accountant = PrivacyAccountant()
    X, y = data()
    missing, unknown = y.astype(float), y.copy()
    missing[7], unknown[7] = np.nan, 5
    prefix = "dplogisticregression__" if hasattr(wrap(model()), "steps") else ""
    search = BudgetedSearchCV(wrap(model(accountant)), {f"{prefix}C": [0.1, 1.0]}, cv=3)
    for labels, message in ((missing, "y contains NaN"), (unknown, r"labels \[5\]")):
        with pytest.raises(ValueError, match=message):
            search.fit(X, labels)
    if not prefix:
        X[5, 1] = np.nan
        with pytest.raises(ValueError, match="X contains NaN"):
            search.fit(X, y)
    assert accountant.entries() == ()


def test_a_budgeted_search_can_be_released():
    accountant = PrivacyAccountant()
    X, y = data()
    search = BudgetedSearchCV(make_pipeline(RowNormClipper(), model(accountant)), {}, cv=3).fit(X, y)
    released = search.release()
    assert released.steps[-1][1].accountant is None
    assert search.best_estimator_.steps[-1][1].accountant is accountant
    np.testing.assert_array_equal(released.predict(X), search.predict(X))


def test_a_plan_that_charges_nothing_and_reads_records_does_not_hold():
    prefit = plan(CalibratedClassifierCV(FrozenEstimator(fitted_model())))
    assert not prefit.holds
    assert str(prefit).startswith("nothing is fitted with noise, and nothing is charged")
    assert plan(FrozenEstimator(fitted_model())).holds


@pytest.mark.parametrize(
    "tool",
    [
        lambda m: GridSearchCV(m, {"C": [1.0]}, cv=FOLDS),
        lambda m: BudgetedSearchCV(m, {"C": [1.0]}, cv=3),
        lambda m: BudgetedSearchCV(make_pipeline(RowNormClipper(), m), {}, cv=3),
        lambda m: CalibratedClassifierCV(m, cv=FOLDS),
        lambda m: StackingClassifier([("a", m)], cv=FOLDS),
        lambda m: OneVsOneClassifier(BudgetedSearchCV(m, {"C": [1.0]}, cv=3)),
    ],
)
def test_folds_and_a_declared_number_of_records_exclude_each_other(tool):
    """With n secret a record that is left out moves others between folds; sizes of folds tell n besides."""
    with pytest.raises(ValueError, match=r"splits the rows, and DPLogisticRegression declares n_samples"):
        plan(tool(declared()), n_classes=2)
    accountant = PrivacyAccountant()
    if isinstance(tool(model()), BudgetedSearchCV):
        with pytest.raises(ValueError, match="leave n_samples=None inside of it"):
            tool(declared(accountant=accountant)).fit(*data())
        assert accountant.entries() == ()
