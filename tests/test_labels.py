"""Declared classes: what may be declared, what meta-estimators pass in their place, and what a refusal says."""

import numpy as np
import pandas as pd
import pytest
from sklearn.ensemble import BaggingClassifier, StackingClassifier, VotingClassifier
from sklearn.multiclass import OneVsOneClassifier, OneVsRestClassifier

from dpskl import DPHuberSVC, DPLogisticRegression, PrivacyAccountant
from dpskl.dummy import PrivateMajority
from dpskl.validation import declared_classes, encode_labels

rng = np.random.default_rng(8)
CODES = np.arange(600) % 3
X = rng.normal(size=(600, 3)) * 0.2 + np.eye(3)[CODES]
WORDS = np.array(["high", "low", "mid"])
THREE, TWO = WORDS[CODES], WORDS[CODES % 2]


@pytest.mark.parametrize(
    ("declared", "expected"),
    [
        ({1, 0}, [0, 1]),
        (frozenset({"b", "a"}), ["a", "b"]),
        (range(3), [0, 1, 2]),
        (pd.Series(["x", "w"]), ["w", "x"]),
        (pd.Index([3, 1]), [1, 3]),
        (np.array(["b", "a"], dtype=object), ["a", "b"]),
        ((True, False), [False, True]),
        ([0.0, 1.0], [0.0, 1.0]),
    ],
)
def test_any_collection_of_labels_may_be_declared(declared, expected):
    assert declared_classes(declared).tolist() == expected


@pytest.mark.parametrize(
    ("declared", "rule"),
    [
        ("ab", "list the labels, such as"),
        (2, "list the labels, such as"),
        ([0, "a"], "one kind"),
        ([0, None], "one kind"),
        ([0, np.nan], "one kind"),
        ([[0, 1], [2, 3]], "one dimension"),
        ([0, 0], "each once"),
        ([0], "at least two different labels"),
        ({1}, "at least two different labels"),
        ([], "at least two different labels"),
    ],
)
@pytest.mark.parametrize("estimator", [DPLogisticRegression, PrivateMajority])
def test_what_cannot_be_declared_is_refused_before_the_charge(declared, rule, estimator):
    accountant = PrivacyAccountant()
    with pytest.raises(ValueError, match=f"(?s)classes=.*{rule}"):
        estimator(classes=declared, accountant=accountant).fit(X, CODES)
    assert accountant.entries() == ()


def test_numbers_in_the_place_of_words_are_places():
    classes, codes = encode_labels(np.array([2, 0, 1, 0]), ["low", "high", "mid"])
    assert classes.tolist() == [0, 1, 2]
    assert codes.tolist() == [2, 0, 1, 0]
    # a class that no record has does not matter, as long as it is clear what the others are
    assert encode_labels(np.array([2, 0, 0]), ["low", "high", "mid"])[0].tolist() == [0, 1, 2]
    assert encode_labels(np.array([0.0, 1.0]), ["no", "yes"])[0].tolist() == [0, 1]


@pytest.mark.parametrize("labels", [[0, 1, 0], [0, 0, 0], [1, 1, 1]])
def test_zero_and_one_in_the_place_of_three_words_are_ambiguous(labels):
    with pytest.raises(ValueError, match=r"OneVsRestClassifier.*declare classes=\[0, 1\]"):
        encode_labels(np.array(labels), WORDS)


@pytest.mark.parametrize("declared", [[1, 2], [-1, 1], [10, 20, 30]])
def test_numbers_in_the_place_of_other_numbers_are_refused_with_the_remedy(declared):
    codes = np.arange(len(declared))
    with pytest.raises(ValueError, match=r"inside them declare classes=\[0, 1"):
        encode_labels(codes, declared)


@pytest.mark.parametrize("labels", [np.array(["0", "1"]), np.array(["a", "b"], dtype=object), np.array([3, 4])])
def test_labels_of_another_kind_are_unknown(labels):
    with pytest.raises(ValueError, match="declare them too, or leave out"):
        encode_labels(labels, [0, 1] if labels.dtype.kind in "UO" else ["a", "b"])


def model(**changes):
    return DPLogisticRegression(**{"epsilon": 5.0, "data_norm": 2.0, "classes": WORDS, **changes})


META = {
    "voting": lambda: VotingClassifier([("a", model()), ("b", model())]),
    "soft voting": lambda: VotingClassifier([("a", model()), ("b", model())], voting="soft"),
    "stacking": lambda: StackingClassifier([("a", model())], final_estimator=DPHuberSVC(epsilon=5.0, classes=WORDS)),
    # bagging seeds its members, which is said elsewhere
    "one versus rest": lambda: OneVsRestClassifier(model(classes=[0, 1])),
    "one versus one": lambda: OneVsOneClassifier(model(classes=[0, 1], n_samples=500)),
}


@pytest.mark.parametrize("name", META)
def test_meta_estimators_that_number_the_labels_work(name):
    fitted = META[name]().fit(X, THREE)
    assert set(fitted.predict(X)) <= set(WORDS.tolist())
    assert fitted.score(X, THREE) > 0.8


@pytest.mark.parametrize("make", [lambda m: VotingClassifier([("a", m)]), OneVsRestClassifier])
def test_two_words_work_in_meta_estimators(make):
    fitted = make(model(classes=WORDS[:2])).fit(X, TWO)
    assert set(fitted.predict(X)) <= set(WORDS[:2].tolist())


def test_bagging_numbers_the_labels_and_seeds_the_noise():
    bag = BaggingClassifier(model(), n_estimators=2, bootstrap=False)
    with pytest.warns(UserWarning, match="random_state is set"):
        assert bag.fit(X, THREE).score(X, THREE) > 0.8


def test_one_versus_rest_of_declared_words_says_what_to_declare():
    accountant = PrivacyAccountant()
    with pytest.raises(ValueError, match=r"declare classes=\[0, 1\] in the classifier inside them"):
        OneVsRestClassifier(model(accountant=accountant)).fit(X, THREE)
    assert accountant.entries() == ()
