"""What a plan refuses, what it says is not covered, and when it says that it does not hold."""

from math import sqrt

import numpy as np
import pytest
from plan_cases import FOLDS, declared, fitted_model, model, plan
from sklearn.calibration import CalibratedClassifierCV
from sklearn.ensemble import AdaBoostClassifier, BaggingClassifier, StackingClassifier, VotingClassifier
from sklearn.experimental import enable_halving_search_cv  # noqa: F401
from sklearn.feature_selection import SelectFromModel
from sklearn.frozen import FrozenEstimator
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

from dpskl import DPLogisticRegression
from dpskl.accounting import GaussianCost, compose, gaussian_mu
from dpskl.model_selection import PrivateSearchCV
from dpskl.model_selection.splits import position_splitter, stratified
from dpskl.preprocessing import PublicScaler, RowNormClipper

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
    assert found.holds == (found.n_fits > 0 or not sentences)
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
