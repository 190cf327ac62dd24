"""Numbers of records that tell counts of labels: warned of where rows are chosen by label, and not for usual splits."""

import warnings

import numpy as np
import pytest
from sklearn.ensemble import BaggingClassifier
from sklearn.model_selection import (
    GridSearchCV,
    KFold,
    LeaveOneOut,
    RepeatedKFold,
    ShuffleSplit,
    StratifiedKFold,
    StratifiedShuffleSplit,
    TimeSeriesSplit,
    cross_val_score,
    learning_curve,
)
from sklearn.multiclass import OneVsOneClassifier, OneVsRestClassifier

from dpskl import DPLogisticRegression, PrivacyAccountant, PrivacyLeakWarning
from dpskl.accounting import PureCost
from dpskl.budget.sizes import is_explained
from dpskl.solvers import GradientDescent

pytestmark = pytest.mark.filterwarnings("ignore::dpskl.SeededNoiseWarning")
FITS = GradientDescent(max_iter=1)


def data(n, counts=None):
    rng = np.random.default_rng(0)
    y = np.arange(n) % 2 if counts is None else np.repeat(np.arange(len(counts)), counts)
    return rng.normal(size=(len(y), 2)) / 3, rng.permutation(y)


def model(accountant):
    return DPLogisticRegression(epsilon=1.0, solver=FITS, classes=[0, 1], accountant=accountant)


def one_against_one(accountant, counts):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        warnings.simplefilter("error", PrivacyLeakWarning)
        estimator = model(accountant).set_params(classes=[0, 1])
        OneVsOneClassifier(estimator).fit(*data(0, counts))


def test_one_against_one_is_noticed_once_in_each_ledger():
    counts = (311, 420, 198)
    accountant = PrivacyAccountant()
    with pytest.raises(PrivacyLeakWarning) as leak:
        one_against_one(accountant, counts)
    for words in ("509, 618, 731 records", "one against one", "n_samples=", "labelled(name)", "partition(name)"):
        assert words in str(leak.value)
    one_against_one(accountant, counts)  # once
    with pytest.raises(PrivacyLeakWarning):
        one_against_one(PrivacyAccountant(), counts)


def test_a_charge_that_was_warned_of_stays_charged():
    accountant = PrivacyAccountant()
    for n in (509, 618):
        accountant.spend(PureCost(0.1), n_samples=n, estimator="e", solver="s")
    with pytest.warns(PrivacyLeakWarning, match="sizes that no usual split"):
        accountant.spend(PureCost(0.1), n_samples=731, estimator="e", solver="s")
    assert len(accountant) == 3


def test_labels_partitions_and_several_kinds_of_fits_are_left_alone():
    accountant = PrivacyAccountant()
    site = accountant.partition("site")
    for number, n in enumerate((509, 618, 731)):
        accountant.labelled("tables").spend(PureCost(0.1), n_samples=n)
        accountant.spend(PureCost(0.1), n_samples=n, label="tables")
        site[number].spend(PureCost(0.1), n_samples=n)
        accountant.spend(PureCost(0.1), n_samples=n, estimator=str(number))
        accountant.spend(PureCost(0.1))


SPLITS = {
    "folds": KFold(5),
    "many folds": KFold(17),
    "stratified": StratifiedKFold(7),
    "repeated": RepeatedKFold(n_splits=3, n_repeats=2),
    "shuffled": ShuffleSplit(4, test_size=0.25),
    "stratified and shuffled": StratifiedShuffleSplit(4, test_size=0.3),
    "time": TimeSeriesSplit(5),
    "little time": TimeSeriesSplit(2),
    "much time": TimeSeriesSplit(9),
}


@pytest.mark.parametrize("n", [203, 997])
@pytest.mark.parametrize("name", SPLITS)
def test_searches_and_scores_on_usual_splits_are_left_alone(name, n):
    accountant = PrivacyAccountant()
    X, y = data(n)
    cv = SPLITS[name]
    cross_val_score(model(accountant), X, y, cv=cv)
    search = GridSearchCV(model(accountant), {"C": [1.0, 2.0]}, cv=cv)
    search.fit(X, y)
    model(accountant).fit(X, y)


@pytest.mark.parametrize("n", [203, 997])
def test_nested_searches_and_what_people_do_around_them_are_left_alone(n):
    accountant = PrivacyAccountant()
    X, y = data(n)
    inner = GridSearchCV(model(accountant), {"C": [1.0]}, cv=3)
    cross_val_score(inner, X, y, cv=5)
    GridSearchCV(inner, {"cv": [2, 4]}, cv=5).fit(X, y)
    cross_val_score(model(accountant), X, y, cv=10)
    OneVsRestClassifier(model(accountant)).fit(X, y)


@pytest.mark.parametrize("n", [203, 997])
def test_two_scores_without_a_fit_on_the_whole_are_left_alone(n):
    accountant = PrivacyAccountant()
    X, y = data(n)
    for folds in (2, 3, 5, 10):
        cross_val_score(model(accountant), X, y, cv=folds)


@pytest.mark.parametrize(
    "use",
    [
        lambda m, X, y: learning_curve(m, X, y, train_sizes=[0.1, 0.325, 0.55, 0.775, 1.0], cv=3),
        lambda m, X, y: BaggingClassifier(m, n_estimators=2, max_samples=0.4, bootstrap=False).fit(X, y),
        lambda m, X, y: cross_val_score(m, X[:90], y[:90], cv=LeaveOneOut()),
    ],
    ids=["learning curve", "bagging", "leave one out"],
)
def test_other_designs_are_left_alone(use):
    use(model(PrivacyAccountant()), *data(997))


def test_most_tables_of_three_or_more_labels_are_noticed():
    """How often, for class counts drawn at random: what is missed is missed by chance."""
    rng = np.random.default_rng(0)
    for labels, least in ((3, 0.6), (4, 0.9), (6, 0.95)):
        noticed = 0
        for _ in range(300):
            counts = rng.multinomial(3000, rng.dirichlet(np.full(labels, 2.0)))
            pairs = [int(counts[i] + counts[j]) for i in range(labels) for j in range(i)]
            noticed += not is_explained(pairs)
        assert noticed >= least * 300


def test_splits_of_every_size_are_explained():
    for n in range(50, 3000, 37):
        for k in (2, 3, 4, 5, 7, 10, 20, 100):
            folds = [len(train) for train, _ in KFold(min(k, n)).split(np.zeros(n))]
            assert is_explained(folds)
            assert is_explained([n, *folds])
            nested = [size - size // 3 for size in folds] + [size - size // 3 - 1 for size in folds if size % 3 == 0]
            assert is_explained([n, *folds, *nested])
        for k in (2, 3, 5, 8):
            growing = [len(train) for train, _ in TimeSeriesSplit(k).split(np.zeros(n))]
            for end in range(1, k + 1):
                assert is_explained(growing[:end])
            assert is_explained([*growing, n])


def test_who_makes_errors_of_warnings_is_told_before_the_charge():
    accountant = PrivacyAccountant()
    with warnings.catch_warnings():
        warnings.simplefilter("error", PrivacyLeakWarning)
        for n in (731, 480):
            accountant.spend(PureCost(0.1), estimator="a", solver="b", n_samples=n)
        with pytest.raises(PrivacyLeakWarning, match="480, 609, 731"):
            accountant.spend(PureCost(0.1), estimator="a", solver="b", n_samples=609)
    assert len(accountant) == 2
