"""Probabilities under a clip: the link against explicit clipped gradients, descents without noise, and models."""

import json
import pickle
from math import inf

import numpy as np
import pytest
from scipy.special import log_expit, log_softmax

import dpskl.records.clipped_link as clipped_link
from dpskl import DPLogisticRegression
from dpskl.records.clipped_link import unclipped_log_probabilities
from dpskl.solvers import FTRL, SGD, Adam, BacktrackingGD, GradientDescent, Newton, WhitenedGD

quiet = pytest.mark.filterwarnings(
    *(f"ignore::dpskl.{name}" for name in ("NoPrivacyWarning", "SeededNoiseWarning", "WeakPrivacyWarning"))
)
CLIPPED = [
    GradientDescent(clip_norm=0.3),
    GradientDescent(max_iter=50, iterate="last", step_size=0.3, clip_norm=0.3),
    SGD(rate=1, clip_norm=0.3),
    Adam(rate=1, clip_norm=0.3),
    FTRL(clip_norm=0.3),
    BacktrackingGD(clip_norm=0.3),
    Newton(),
    WhitenedGD(whitening="full"),
    WhitenedGD(whitening="diagonal"),
]


@pytest.fixture
def exact(monkeypatch):
    """The link alone, without the share of the raw probabilities that keeps ties apart."""
    monkeypatch.setattr(clipped_link, "_RAW", 0.0)


def random_cases(n_classes, n=300):
    rng = np.random.default_rng(n_classes)
    scores = rng.normal(size=(n, n_classes)) * 10.0 ** rng.uniform(-1, 1, (n, 1))
    return log_softmax(scores, axis=1)


each_length = pytest.mark.parametrize("length", [0.3, 1.0, 1.7, 3.0, 30.0])


@each_length
@pytest.mark.parametrize("n_classes", [2, 3, 7])
def test_clipped_gradients_cancel(exact, n_classes, length):
    log_p = random_cases(n_classes)
    log_q = unclipped_log_probabilities(log_p, length)
    np.testing.assert_allclose(np.exp(log_q).sum(axis=1), 1)
    for p, q in zip(np.exp(log_p), np.exp(log_q), strict=True):
        # one score: a number, and not the two entries of p - e_k
        pulls = np.array([[p[1]], [p[1] - 1]]) if n_classes == 2 else p - np.eye(n_classes)
        norms = length * np.linalg.norm(pulls, axis=1, keepdims=True)
        clipped = pulls * np.minimum(1, 1 / np.maximum(norms, 1e-300))
        np.testing.assert_allclose(q @ clipped, 0, atol=1e-12)


@each_length
@pytest.mark.parametrize("n_classes", [2, 3, 7])
def test_the_order_of_classes_is_that_of_the_scores(n_classes, length):
    log_p = random_cases(n_classes, 3000)
    log_q = unclipped_log_probabilities(log_p, length)
    order = np.argsort(log_p, axis=1)
    sorted_p, sorted_q = (np.take_along_axis(values, order, axis=1) for values in (log_p, log_q))
    apart = np.diff(sorted_p, axis=1) > 1e-9
    assert (np.diff(sorted_q, axis=1)[apart] > 0).all()


@pytest.mark.parametrize("n_classes", [2, 4])
def test_rows_that_no_clip_reaches_keep_their_probabilities(n_classes):
    log_p = random_cases(n_classes)
    np.testing.assert_allclose(unclipped_log_probabilities(log_p, 0.7), log_p, atol=1e-12)


@each_length
def test_records_are_in_the_order_of_their_scores(length):
    scores = np.linspace(-9, 9, 500)
    log_q = unclipped_log_probabilities(np.column_stack([log_expit(-scores), log_expit(scores)]), length)
    assert (np.diff(log_q[:, 1]) > 0).all()
    np.testing.assert_allclose(log_q, log_q[::-1, ::-1], atol=1e-12)  # no label is preferred


def test_extreme_scores_stay_finite():
    log_p = log_softmax(np.array([[800.0, 0, -800.0], [0.0, 0, 0], [1e5, 0, 0]]), axis=1)
    for length in (1e-9, 1e6):
        log_q = unclipped_log_probabilities(log_p, length)
        assert np.isfinite(log_q).all()
        assert np.allclose(np.exp(log_q).sum(axis=1), 1)


# -- models -----------------------------------------------------------------------------------------------------


def groups(n_classes):
    """Rows of three groups, each an axis, whose labels occur with known frequencies."""
    shares = {2: [[0.9, 0.1], [0.25, 0.75], [0.55, 0.45]], 3: [[0.8, 0.1, 0.1], [0.2, 0.5, 0.3], [0.1, 0.15, 0.75]]}
    X, y = [], []
    for group, frequencies in enumerate(shares[n_classes]):
        counts = np.round(np.array(frequencies) * 200).astype(int)
        X += [np.eye(3)[group]] * 200
        y += list(np.repeat(np.arange(n_classes), counts))
    return np.array(X), np.array(y), np.array(shares[n_classes])


@quiet
@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize(
    "solver",
    [
        GradientDescent(max_iter=3000, clip_norm=0.6, step_size=4.0, momentum=0.5),
        SGD(rate=1, max_iter=3000, clip_norm=0.6, step_size=4.0, momentum=0.5),
        WhitenedGD(max_iter=1500, whitening="diagonal"),
        WhitenedGD(max_iter=1500, whitening="full"),
    ],
    ids=["gd", "sgd", "diagonal", "full"],
)
def test_a_descent_that_has_settled_knows_the_frequencies(exact, monkeypatch, solver, n_classes):
    """One weight a group, no noise, no penalty: the clipped minimum is pointwise, and the link finds what it is of."""
    from dpskl.solvers import whitened_gd

    # a clip below half a row makes the link flat in the middle, where no score tells the frequency
    monkeypatch.setattr(whitened_gd, "_LOGISTIC", whitened_gd._LOGISTIC._replace(clip=0.6, largest_clip=0.6, time=1e9))
    X, y, frequencies = groups(n_classes)
    model = DPLogisticRegression(inf, solver=solver, classes=range(n_classes), C=1e9, fit_intercept=False).fit(X, y)
    np.testing.assert_allclose(model.predict_proba(np.eye(3)), frequencies, atol=5e-3)
    model._clipped_length = None
    raw = model.predict_proba(np.eye(3))
    assert np.abs(raw - frequencies).max() > 0.02  # the scores alone are off


@quiet
@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("solver", CLIPPED, ids=repr)
def test_labels_scores_and_probabilities_agree(solver, n_classes):
    rng = np.random.default_rng(0)
    y = rng.integers(0, n_classes, 400)
    X = np.eye(4)[y] + rng.normal(size=(400, 4))
    model = DPLogisticRegression(2.0, solver=solver, classes=range(n_classes), data_norm=2.0, random_state=0)
    p = model.fit(X, y).predict_proba(X)
    assert 0 < model._clipped_length < inf
    np.testing.assert_array_equal(p.argmax(axis=1), model.predict(X))
    np.testing.assert_allclose(np.log(p), model.predict_log_proba(X))
    np.testing.assert_allclose(p.sum(axis=1), 1)
    scores = model.decision_function(X)
    if n_classes == 2:
        np.testing.assert_array_equal(p[:, 1] > 0.5, scores > 0)
    for other in (
        pickle.loads(pickle.dumps(model)),
        model.release(),
        DPLogisticRegression.from_dict(json.loads(json.dumps(model.to_dict()))),
    ):
        np.testing.assert_array_equal(other.predict_proba(X), p)


@quiet
def test_what_does_not_clip_has_the_plain_link():
    X, y, _ = groups(2)
    model = DPLogisticRegression(1.0, solver="objective_perturbation", classes=[0, 1]).fit(X, y)
    np.testing.assert_allclose(model.predict_proba(X)[:, 1], 1 / (1 + np.exp(-model.decision_function(X))))
    del model._clipped_length  # as in a file of an earlier version
    assert model.predict_proba(X).shape == (600, 2)


@quiet
def test_rows_that_need_not_be_long_have_the_plain_link():
    X, y, _ = groups(2)
    solver = GradientDescent(clip_norm=0.3, rows="clip")
    model = DPLogisticRegression(1.0, solver=solver, classes=[0, 1], data_norm=50.0).fit(X, y)
    assert model._clipped_length is None


@quiet
@pytest.mark.parametrize("value", [-1.0, 0.0, inf, "wide", [1.0]])
def test_a_damaged_record_is_refused(value):
    X, y, _ = groups(2)
    record = DPLogisticRegression(1.0, solver=WhitenedGD(), classes=[0, 1], random_state=0).fit(X, y).to_dict()
    record["fitted"]["_clipped_length"] = value
    with pytest.raises(ValueError, match=r"_clipped_length=.* must be None or positive and finite"):
        DPLogisticRegression.from_dict(record)
