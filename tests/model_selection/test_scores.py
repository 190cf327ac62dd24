"""What a trial is judged by: the bounds of the scores, by brute force, and what cannot be a score."""

from itertools import product

import numpy as np
import pytest
from sklearn.metrics import balanced_accuracy_score

from dpskl.mechanisms.noise import SystemNoise
from dpskl.mechanisms.noisy_score import NoisyScore
from dpskl.model_selection.scores import check_scoring, declared_shares, make_scoring

CASES = {
    "accuracy": ("accuracy", None, None),
    "balanced": ("balanced_accuracy", None, np.array([0.02, 0.28, 0.7])),
    "log loss": ("neg_log_loss", None, None),
    "log loss, clipped low": ("neg_log_loss", 0.5, None),
}


class Probabilities:
    """A model that was fitted before: rows are the probabilities of three classes."""

    classes_ = np.array(["a", "b", "c"])

    def predict(self, X):
        return self.classes_[X.argmax(axis=1)]

    def predict_log_proba(self, X):
        with np.errstate(divide="ignore"):
            return np.log(X)


def scoring_of(case):
    name, clip, shares = CASES[case]
    return make_scoring(name, 3, clip, shares)


@pytest.mark.parametrize("neighbours", ["add_remove", "replace_one"])
@pytest.mark.parametrize("case", CASES)
def test_one_record_moves_the_sum_by_at_most_the_sensitivity_and_may_move_it_by_that(case, neighbours):
    """All records: every label, sure of it, sure of another, and undecided."""
    scoring, rng, worst = scoring_of(case), np.random.default_rng(0), 0.0
    records = [(row, label) for row in (*np.eye(3), np.full(3, 1 / 3)) for label in range(3)]
    rest, rest_codes = rng.dirichlet(np.ones(3), size=5), rng.integers(0, 3, 5)
    stated = NoisyScore(1.0, 0, scoring.bound, neighbours, 6).sensitivity
    exact = NoisyScore(np.inf, 0, scoring.bound, neighbours, 6)

    def total(*more):
        X = np.vstack([rest, *(row for row, _ in more)])
        codes = np.array([*rest_codes, *(label for _, label in more)])
        scores = scoring.centred(Probabilities(), X, codes)
        assert np.abs(scores).max() <= scoring.bound
        return exact.release(scores, SystemNoise())

    if neighbours == "add_remove":
        worst = max(abs(total(record) - total()) for record in records)
    else:
        worst = max(abs(total(one) - total(other)) for one, other in product(records, repeat=2))
    assert worst <= stated
    assert worst >= stated * (1 - 1e-9)


def test_scores_are_what_their_names_say():
    rng = np.random.default_rng(1)
    X, codes = rng.dirichlet(np.ones(3), size=400), rng.choice(3, size=400, p=[0.1, 0.3, 0.6])
    labels = Probabilities.classes_[codes]
    shares = np.bincount(codes) / 400
    accuracy, balanced, loss = (
        make_scoring("accuracy", 3, None, None),
        make_scoring("balanced_accuracy", 3, None, shares),
        make_scoring("neg_log_loss", 3, 900.0, None),
    )
    mean = {s: s.centre + s.centred(Probabilities(), X, codes).mean() for s in (accuracy, balanced, loss)}
    assert mean[accuracy] == pytest.approx(np.mean(Probabilities().predict(X) == labels))
    # with the true shares it is the balanced accuracy
    assert mean[balanced] == pytest.approx(balanced_accuracy_score(labels, Probabilities().predict(X)))
    assert mean[loss] == pytest.approx(np.log(X[np.arange(400), codes]).mean())
    assert make_scoring("neg_log_loss", 3, None, None).clip == pytest.approx(3 * np.log(3))
    assert make_scoring("neg_log_loss", 3, 2, None).bound == 1.0


def test_shares_follow_the_classes_and_not_the_dictionary():
    classes = np.array([3, 5, 9])
    np.testing.assert_array_equal(declared_shares({9: 0.7, 3: 0.1, 5: 0.2}, classes), [0.1, 0.2, 0.7])
    for wrong in ({3: 0.1, 5: 0.9}, {3: 0.1, 5: 0.2, 7: 0.7}, {3: 0.1, 5: 0.2, 9: 0.6, 7: 0.1}):
        with pytest.raises(ValueError, match=r"each of the labels \[3, 5, 9\]"):
            declared_shares(wrong, classes)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("roc_auc", None, None), "scoring='roc_auc'.*compares each record with all others"),
        ((len, None, None), "scoring=<built-in function len>.*no bound"),
        (("f1", None, None), "scoring='f1'.*'accuracy', 'balanced_accuracy', 'neg_log_loss'"),
        ((None, None, None), "scoring=None"),
        (("accuracy", 2.0, None), "score_clip=2.0 is for scoring='neg_log_loss'"),
        (("neg_log_loss", 0, None), "score_clip=0,"),
        (("neg_log_loss", True, None), "score_clip=True"),
        (("neg_log_loss", np.inf, None), "score_clip=inf"),
        (("neg_log_loss", "2", None), "score_clip='2'"),
        (("neg_log_loss", None, {0: 0.5, 1: 0.5}), "class_shares are for scoring='balanced_accuracy'"),
        (("balanced_accuracy", None, [0.5, 0.5]), "dictionary from each label"),
        (("balanced_accuracy", None, {0: 1.0, 1: 0.0}), "dictionary from each label"),
        (("balanced_accuracy", None, {0: 0.5, 1: np.nan}), "dictionary from each label"),
        (("balanced_accuracy", None, {0: 0.5, 1: 0.1}), "add up to 0.6"),
    ],
)
def test_what_is_no_score_is_named(arguments, message):
    with pytest.raises(ValueError, match=message):
        check_scoring(*arguments)


@pytest.mark.parametrize("share", [1e-307, 1e-7, 0.0])
def test_shares_whose_inverse_could_overflow_a_sum_are_refused(share):
    with pytest.raises(ValueError, match=r"class_shares=.*from 1e-06 to 1"):
        check_scoring("balanced_accuracy", None, {0: 1 - share, 1: share})
