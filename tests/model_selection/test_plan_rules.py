"""What a plan refuses, what it says is not covered, and when it says that it does not hold."""

import warnings
from inspect import signature
from math import sqrt
from pathlib import Path

import numpy as np
import pytest
from sklearn import model_selection
from sklearn.base import RegressorMixin
from sklearn.calibration import CalibratedClassifierCV
from sklearn.ensemble import AdaBoostClassifier, BaggingClassifier, StackingClassifier, VotingClassifier
from sklearn.experimental import enable_halving_search_cv  # noqa: F401
from sklearn.feature_selection import SelectFromModel
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import (
    FixedThresholdClassifier,
    GridSearchCV,
    KFold,
    LeaveOneOut,
    PredefinedSplit,
    RandomizedSearchCV,
    RepeatedKFold,
    RepeatedStratifiedKFold,
    ShuffleSplit,
    StratifiedKFold,
    StratifiedShuffleSplit,
    TimeSeriesSplit,
    TunedThresholdClassifierCV,
)
from sklearn.multiclass import OneVsOneClassifier, OneVsRestClassifier
from sklearn.multioutput import ClassifierChain, MultiOutputClassifier
from sklearn.pipeline import FeatureUnion, Pipeline, make_pipeline
from sklearn.preprocessing import FunctionTransformer, OneHotEncoder, StandardScaler
from sklearn.semi_supervised import SelfTrainingClassifier
from sklearn.utils import all_estimators

from dpskl import DPLinearSVC, DPLogisticRegression, PrivacyAccountant, SeededNoiseWarning
from dpskl.accounting import GaussianCost, compose, gaussian_mu
from dpskl.accounting.words import at
from dpskl.model_selection import BudgetedSearchCV, PrivateSearchCV, plan_cost
from dpskl.model_selection.splits import position_splitter, stratified, training_sizes
from dpskl.preprocessing import PublicScaler, RowNormClipper

FOLDS = KFold(3, shuffle=True)


def data(n=120, d=3, n_classes=2, seed=0):
    rng = np.random.default_rng(seed)
    y = np.arange(n) % n_classes
    centres = 2 * np.eye(n_classes, d) - 1 / d
    return centres[y] + 0.3 * rng.normal(size=(n, d)), y


def model(accountant=None, n_classes=2, **changes):
    settings = {"solver": "gd", "classes": range(n_classes), "data_norm": 2.0, "accountant": accountant, **changes}
    return DPLogisticRegression(**settings)


def declared(n_samples=1000, **changes):
    """A classifier whose number of records is declared, whichever rows it gets."""
    classifier = model(**changes)
    classifier.n_samples = n_samples
    return classifier


def plan(estimator, **changes):
    return plan_cost(estimator, **{"n_samples": 120, "n_features": 3, **changes})


# -- records that are repeated, made up or left out ---------------------------------------------------------


class RandomOverSampler:
    """Stands for the samplers of imbalanced-learn, which repeat or leave out rows by looking at all labels."""

    def fit_resample(self, X, y):
        return np.repeat(X, 2, axis=0), np.repeat(y, 2)


class ImblearnPipeline(Pipeline):
    """Stands for ``imblearn.pipeline.Pipeline``."""


class BalancedBaggingClassifier(BaggingClassifier):
    """Stands for imbalanced-learn's."""


class StepwiseSearchCV(GridSearchCV):
    """A subclass that may fit otherwise."""


class OwnRegression(DPLogisticRegression):
    """A subclass that may fit otherwise."""


class OwnSearch(PrivateSearchCV):
    """A subclass that may fit otherwise."""


class OwnBoosting(AdaBoostClassifier):
    """A subclass of what is refused."""


def oversampled(classifier=None, cls=ImblearnPipeline):
    return cls([("sampler", RandomOverSampler()), ("model", model() if classifier is None else classifier)])


@pytest.mark.parametrize(
    "estimator",
    [
        oversampled(),
        oversampled(cls=Pipeline),
        Pipeline([("union", FeatureUnion([("sampler", RandomOverSampler())])), ("model", model())]),
        GridSearchCV(oversampled(), {"model__C": [1.0]}, cv=FOLDS),
        RandomizedSearchCV(oversampled(), {"model__C": [1.0]}, cv=FOLDS),
        oversampled(BaggingClassifier(model(), bootstrap=False)),
        BaggingClassifier(oversampled(), bootstrap=False),
        OneVsRestClassifier(oversampled()),
        OneVsOneClassifier(oversampled(declared())),
        VotingClassifier([("a", oversampled())]),
        StackingClassifier([("a", oversampled())], cv=FOLDS),
        CalibratedClassifierCV(oversampled(), cv=FOLDS),
        FixedThresholdClassifier(oversampled()),
        TunedThresholdClassifierCV(oversampled(), cv=FOLDS),
    ],
    ids=lambda estimator: type(estimator).__name__,
)
def test_resampling_is_refused_wherever_it_is(estimator):
    with pytest.raises(ValueError, match=r"RandomOverSampler repeats, makes up or leaves out.*leave it out"):
        plan(estimator, n_classes=2)


def test_imbalanced_learn_is_refused():
    imblearn = pytest.importorskip("imblearn")
    sampler = imblearn.over_sampling.RandomOverSampler()
    with pytest.raises(ValueError, match="RandomOverSampler repeats"):
        plan(imblearn.pipeline.make_pipeline(sampler, model()))
    with pytest.raises(TypeError, match="subclass of Pipeline"):
        plan(imblearn.pipeline.make_pipeline(model()))


@pytest.mark.parametrize(
    ("estimator", "message"),
    [
        (ImblearnPipeline([("model", model())]), "ImblearnPipeline .*subclass of Pipeline .*use Pipeline itself"),
        (BalancedBaggingClassifier(model(), bootstrap=False), "subclass of BaggingClassifier"),
        (StepwiseSearchCV(model(), {"C": [1.0]}), "subclass of GridSearchCV"),
        (OwnRegression(), "OwnRegression .*subclass of DPLogisticRegression"),
        (OwnSearch(model(), {"C": [1.0]}), "subclass of PrivateSearchCV"),
        (OwnBoosting(model()), "OwnBoosting .*weights the records"),
        (AdaBoostClassifier(model()), "weights the records"),
        (SelfTrainingClassifier(declared()), "SelfTrainingClassifier .*depends on the data"),
        (MultiOutputClassifier(model()), "fits=number_of_columns"),
        (ClassifierChain(model()), "one by one"),
        (make_pipeline(SelectFromModel(model()), model()), "SelectFromModel .*private classifier of its own"),
        (make_pipeline(StackingClassifier([("a", model())]), model()), "StackingClassifier .*private classifier"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_what_may_fit_otherwise_is_refused(estimator, message):
    with pytest.raises(TypeError, match=message.replace(" .*", ".*")):
        plan(estimator)


# -- rows that are chosen by label --------------------------------------------------------------------------


def test_one_against_one_needs_a_declared_number_of_records():
    for inner in (model(), make_pipeline(RowNormClipper(), model()), GridSearchCV(model(), {"C": [1.0]}, cv=FOLDS)):
        with pytest.raises(
            ValueError, match=r"OneVsOneClassifier.*how many records have each label; declare.*n_samples="
        ):
            plan(OneVsOneClassifier(inner), n_classes=3)
    with pytest.raises(ValueError, match=r"PrivateSearchCV.*classifier with a declared"):
        plan(OneVsOneClassifier(PrivateSearchCV(declared(), {"C": [1.0]})), n_classes=3)
    pairs = plan(OneVsOneClassifier(declared()), n_classes=4)
    once = model().plan(1000, 3).cost
    assert (pairs.n_fits, pairs.cost) == (6, compose([once] * 6))
    assert pairs.lines == ("6 x DPLogisticRegression on 1000 rows, epsilon = 1",)
    with pytest.raises(ValueError, match="pass n_classes"):
        plan(OneVsOneClassifier(declared()))


# -- what reads records and is not charged ------------------------------------------------------------------


def fitted_model():
    return model().fit(*data())


@pytest.mark.parametrize(
    ("estimator", "sentences"),
    [
        (model(), []),
        (model(classes=None), ["DPLogisticRegression(classes=None) reads them"]),
        (make_pipeline(PublicScaler(low=0, high=1), None, "passthrough", RowNormClipper(), model()), []),
        (make_pipeline(StandardScaler(), model()), ["StandardScaler reads means"]),
        (make_pipeline(StandardScaler(), model(), memory="/nowhere"), ["StandardScaler reads means"]),
        (make_pipeline(make_pipeline(OneHotEncoder(), StandardScaler()), model()), ["OneHotEncoder", "StandardScaler"]),
        (make_pipeline(FunctionTransformer(np.sort), model()), ["FunctionTransformer reads all rows at once by sort"]),
        (GridSearchCV(model(), {"C": [1.0]}, cv=FOLDS), ["scores of held-out rows, and the choice"]),
        (GridSearchCV(model(), {"C": [1.0]}, cv=[(range(9), range(9, 12))]), ["folds that GridSearchCV", "scores"]),
        (GridSearchCV(model(), {"C": [1.0]}, cv=PredefinedSplit([0, 1] * 60)), ["folds that", "scores"]),
        (
            GridSearchCV(Pipeline([("a", None), ("m", model())]), {"a": [StandardScaler(), OneHotEncoder()]}, cv=FOLDS),
            ["StandardScaler", "OneHotEncoder", "scores"],
        ),
        (CalibratedClassifierCV(model(), cv=FOLDS), ["CalibratedClassifierCV reads the label", "which labels occur"]),
        (CalibratedClassifierCV(FrozenEstimator(fitted_model())), ["reads the label of every record", "labels occur"]),
        (FixedThresholdClassifier(model()), []),
        (TunedThresholdClassifierCV(model(), cv=FOLDS), ["choose its threshold"]),
        (TunedThresholdClassifierCV(fitted_model(), cv="prefit", refit=False), ["choose its threshold"]),
        (VotingClassifier([("a", model())]), ["which labels occur: VotingClassifier"]),
        (StackingClassifier([("a", model())], cv=FOLDS), ["final estimator LogisticRegression", "labels occur"]),
        (StackingClassifier([("a", model())], model(), cv=FOLDS), ["labels occur"]),
        (OneVsRestClassifier(model()), ["labels occur"]),
        (PrivateSearchCV(model(), {"C": [1.0]}), []),
        (PrivateSearchCV(DPLogisticRegression(), {"C": [1.0]}), ["DPLogisticRegression(classes=None)"]),
    ],
    ids=lambda value: type(value).__name__,
)
def test_every_plan_names_what_it_does_not_cover(estimator, sentences):
    found = plan(estimator, n_classes=2)
    assert len(found.not_covered) == len(sentences)
    for sentence, part in zip(found.not_covered, sentences, strict=True):
        assert part in sentence
    assert str(found).count("\n  not covered: ") == len(sentences)
    assert found.holds
    assert "DOES NOT HOLD" not in str(found)


# -- stratified folds and seeds -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("estimator", "remedy"),
    [
        (GridSearchCV(model(), {"C": [1.0]}), "GridSearchCV with cv=None .*cv=KFold(5, shuffle=True)"),
        (GridSearchCV(model(), {"C": [1.0]}, cv=3), "cv=KFold(3, shuffle=True)"),
        (GridSearchCV(model(), {"C": [1.0]}, cv=StratifiedKFold(4)), "cv=KFold(4, shuffle=True)"),
        (GridSearchCV(model(), {"C": [1.0]}, cv=RepeatedStratifiedKFold(n_splits=2, n_repeats=3)),
         "cv=RepeatedKFold(n_splits=2, n_repeats=3)"),
        (GridSearchCV(model(), {"C": [1.0]}, cv=StratifiedShuffleSplit(3)), "cv=ShuffleSplit(3, test_size=None)"),
        (RandomizedSearchCV(model(), {"C": [1.0, 2.0]}, n_iter=1), "RandomizedSearchCV with cv=None"),
        (CalibratedClassifierCV(model()), "CalibratedClassifierCV with cv=None"),
        (StackingClassifier([("a", model())], cv=4), "StackingClassifier with cv=4"),
        (TunedThresholdClassifierCV(model()), "TunedThresholdClassifierCV with cv=None"),
        (TunedThresholdClassifierCV(model(), cv=0.25, refit=False), "ShuffleSplit(1, test_size=0.25)"),
        (make_pipeline(RowNormClipper(), CalibratedClassifierCV(model(), cv=3)), "CalibratedClassifierCV with cv=3"),
    ],
    ids=lambda value: type(value).__name__,
)  # fmt: skip
def test_stratified_folds_void_a_plan(estimator, remedy):
    found = plan(estimator)
    assert not found.holds
    lines = str(found).splitlines()
    assert lines[1].startswith("  DOES NOT HOLD: ")
    for part in remedy.split(" .*"):
        assert part in lines[1]


@pytest.mark.parametrize(
    "cv", [FOLDS, RepeatedKFold(), ShuffleSplit(), LeaveOneOut(), TimeSeriesSplit(), [([0], [1])], PredefinedSplit([0])]
)
def test_splits_by_position_are_let_be(cv):
    assert stratified("GridSearchCV", cv) == ()
    assert position_splitter(cv) is cv


def test_repeated_fits_say_that_their_scores_are_not_covered():
    (sentence,) = plan(model(), fits=5).not_covered
    assert "scores of held-out rows, and folds by labels" in sentence


def test_seeds_void_a_plan():
    for estimator, sentence in (
        (model(random_state=0), "DPLogisticRegression(random_state=0) seeds the noise"),
        (PrivateSearchCV(model(), {"C": [1.0]}, random_state=7), "PrivateSearchCV(random_state=7)"),
        (BaggingClassifier(model(), bootstrap=False), "BaggingClassifier seeds the noise of its members"),
    ):
        found = plan(estimator)
        assert not found.holds
        assert f"DOES NOT HOLD: {sentence}" in str(found)


def changed_records(splitter, y, other):
    """For each fold, how many records of the training part are not the same for the two label vectors."""
    pairs = zip(splitter.split(y, y), splitter.split(other, other), strict=True)
    (exchanged,) = np.flatnonzero(y != other)
    counts = []
    for (first, _), (second, _) in pairs:
        assert len(first) == len(second)
        counts.append(len(set(first) - set(second)) + (exchanged in first and exchanged in second))
    return counts


@pytest.mark.parametrize(("n_classes", "most", "true"), [(2, 3, 6.96), (5, 5, 10.20)])
def test_what_one_label_does_to_stratified_folds(n_classes, most, true):
    """Six models at epsilon 1 on 100 records: the sum of charges for one record, and what one label can cost."""
    y = np.arange(100) % 2 if n_classes == 2 else np.random.default_rng(0).integers(0, 5, 100)
    mu = gaussian_mu(1.0, 1e-6)
    counts = []
    for i in range(100):
        for label in set(range(n_classes)) - {y[i]}:
            other = y.copy()
            other[i] = label
            assert sorted(changed_records(KFold(5), y, other)) == [0, 1, 1, 1, 1]
            counts.append([*changed_records(StratifiedKFold(5), y, other), 1])  # the refit has all rows
    assert max(max(changed) for changed in counts) == most
    # the noise of a sum of clipped terms covers k exchanged records at k times mu, and no better
    worst = max(sum(k**2 for k in changed) for changed in counts)
    assert GaussianCost(mu * sqrt(worst)).epsilon(1e-6) == pytest.approx(true, abs=0.006)
    printed = plan(GridSearchCV(model(neighbours="replace_one"), {"C": [1.0]}), n_samples=100)
    assert printed.epsilon == pytest.approx(2.65, abs=0.006)
    assert not printed.holds


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
