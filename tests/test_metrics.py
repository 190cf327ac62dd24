"""Evaluation by one release: exact without noise, honest errors with it, charged like a fit, and refused by name."""

import json
import pickle
from itertools import product
from math import inf

import numpy as np
import pytest
from scipy.special import expit
from scipy.stats import norm
from sklearn import metrics as sm
from sklearn.calibration import calibration_curve

from dpskl import (
    BudgetExceededError,
    NoPrivacyWarning,
    PrivacyAccountant,
    PrivacyGuarantee,
    PrivacyLeakWarning,
    SeededNoiseWarning,
    WeakPrivacyWarning,
)
from dpskl.mechanisms.score_histogram import ScoreHistogram
from dpskl.metrics import Figure, evaluate

BINARY = (
    "accuracy", "balanced_accuracy", "recall", "specificity", "precision", "f1", "roc_auc", "average_precision",
    "brier", "log_loss", "base_rate",
)  # fmt: skip
each_relation = pytest.mark.parametrize("neighbours", ["add_remove", "replace_one"])


def binary(n=4000, share=0.5, seed=0):
    """Labels, and the probabilities that are true of them."""
    rng = np.random.default_rng(seed)
    y = (rng.random(n) < share).astype(int)
    x = rng.normal(size=n) + 1.5 * y
    return y, expit(1.5 * x - 1.5**2 / 2 + np.log(share / (1 - share)))


def several(n=3000, seed=0):
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 3, n)
    scores = np.exp(rng.normal(size=(n, 3)) + 2 * np.eye(3)[y])
    return y, scores / scores.sum(axis=1, keepdims=True)


@pytest.fixture(scope="module")
def exact():
    y, p = binary()
    with pytest.warns(NoPrivacyWarning):
        return y, p, evaluate(y, p, epsilon=inf, classes=[0, 1])


@pytest.fixture(scope="module")
def noisy():
    return evaluate(*binary(), epsilon=1.0, classes=[0, 1])


# -- without noise ---------------------------------------------------------------------------------------------------


def test_figures_at_a_threshold_are_exact_without_noise(exact):
    y, p, evaluation = exact
    for threshold in (0.25, 0.5, 0.75):
        said = p >= threshold
        for name, score in (
            ("accuracy", sm.accuracy_score),
            ("balanced_accuracy", sm.balanced_accuracy_score),
            ("recall", sm.recall_score),
            ("precision", sm.precision_score),
            ("f1", sm.f1_score),
        ):
            assert getattr(evaluation, name)(threshold) == pytest.approx(score(y, said), abs=1e-9), name
        assert evaluation.specificity(threshold) == pytest.approx(sm.recall_score(1 - y, ~said), abs=1e-9)
        np.testing.assert_allclose(
            evaluation.confusion_matrix(threshold).counts, sm.confusion_matrix(y, said), atol=1e-6
        )
    assert evaluation.base_rate == pytest.approx(y.mean())
    assert evaluation.class_shares[0] == pytest.approx(1 - y.mean())


def test_figures_of_all_thresholds_are_off_by_little_and_say_so(exact):
    y, p, evaluation = exact
    for name, value in (
        ("roc_auc", sm.roc_auc_score(y, p)),
        ("average_precision", sm.average_precision_score(y, p)),
        ("brier", sm.brier_score_loss(y, p)),
        ("log_loss", sm.log_loss(y, p)),
    ):
        figure = getattr(evaluation, name)
        assert figure == pytest.approx(value, abs=0.003), name
        assert abs(figure - value) < figure.standard_error


def test_curves_pass_through_exact_points_without_noise(exact):
    y, p, evaluation = exact
    curve = evaluation.roc_curve()
    assert (curve.fpr[0], curve.tpr[0], curve.thresholds[0]) == (0, 0, inf)
    assert (curve.fpr[-1], curve.tpr[-1]) == (1, 1)
    for place in (7, 30, 52):
        said = p >= curve.thresholds[place]
        assert curve.tpr[place] == pytest.approx(said[y == 1].mean(), abs=1e-9)
        assert curve.fpr[place] == pytest.approx(said[y == 0].mean(), abs=1e-9)
    pr = evaluation.precision_recall_curve()
    assert len(pr.precision) == len(pr.thresholds) + 1
    assert (pr.precision[-1], pr.recall[-1], pr.recall[0]) == (1, 0, 1)
    assert pr.precision[32] == pytest.approx(y[p >= pr.thresholds[32]].mean(), abs=1e-9)
    calibration = evaluation.calibration_curve(8)
    true, said = calibration_curve(y, p, n_bins=8)
    np.testing.assert_allclose(calibration.prob_true, true, atol=1e-9)
    np.testing.assert_allclose(calibration.prob_pred, said, atol=0.01)
    np.testing.assert_allclose(calibration.counts, np.histogram(p, 8, (0, 1))[0], atol=1e-6)


def test_several_classes_are_exact_without_noise():
    y, scores = several()
    with pytest.warns(NoPrivacyWarning):
        evaluation = evaluate(y, scores, epsilon=inf, classes=[0, 1, 2])
    said = scores.argmax(axis=1)
    np.testing.assert_allclose(evaluation.confusion_matrix().counts, sm.confusion_matrix(y, said), atol=1e-6)
    assert evaluation.accuracy() == pytest.approx(np.mean(said == y))
    assert evaluation.balanced_accuracy() == pytest.approx(sm.balanced_accuracy_score(y, said))
    assert evaluation.f1() == pytest.approx(sm.f1_score(y, said, average="macro"))
    np.testing.assert_allclose(evaluation.class_shares, np.bincount(y) / len(y))
    curve = evaluation.calibration_curve(4)
    top = scores.max(axis=1)
    np.testing.assert_allclose(curve.prob_true[-1], np.mean((said == y)[top >= 0.75]), atol=1e-9)
    with pytest.raises(ValueError, match="roc_auc is for two classes, and this evaluation has 3"):
        _ = evaluation.roc_auc
    with pytest.raises(ValueError, match=r"threshold=0\.5 is for two classes"):
        evaluation.accuracy(0.5)
    assert set(evaluation.figures()) == {"accuracy", "balanced_accuracy", "f1"}


def test_scores_of_a_decision_function_are_clipped_to_their_range():
    y, p = binary()
    z = np.log(p / (1 - p))
    with pytest.warns(NoPrivacyWarning):
        evaluation = evaluate(y, z, epsilon=inf, classes=[0, 1], score_range=(-4, 4))
    assert evaluation.accuracy() == pytest.approx(np.mean((z >= 0) == y))
    assert evaluation.roc_auc == pytest.approx(sm.roc_auc_score(y, z), abs=0.003)
    for what in ("brier", "log_loss"):
        with pytest.raises(ValueError, match=f"{what} is for probabilities"):
            getattr(evaluation, what)
    with pytest.raises(ValueError, match="calibration_curve is for probabilities"):
        evaluation.calibration_curve()


def test_a_threshold_inside_an_interval_is_a_guess_with_an_error_of_its_own(exact):
    y, p, evaluation = exact
    at, inside = evaluation.recall(0.5), evaluation.recall(0.5 + 1 / 128)
    assert inside.standard_error > at.standard_error
    assert abs(inside - p[y == 1].__ge__(0.5 + 1 / 128).mean()) < 3 * inside.standard_error
    assert evaluation.balanced_accuracy(0.5 + 1 / 128).standard_error > 0
    assert evaluation.accuracy(-3) == pytest.approx(y.mean())
    assert evaluation.accuracy(3) == pytest.approx(1 - y.mean())


def test_words_are_labels_and_two_columns_are_those_of_predict_proba():
    y, p = binary(500)
    labels = np.array(["no", "yes"])[y]
    with pytest.warns(NoPrivacyWarning):
        one, two = (evaluate(labels, s, epsilon=inf, classes=["yes", "no"]) for s in (p, np.column_stack([1 - p, p])))
    assert one.classes_.tolist() == ["no", "yes"]
    assert one.roc_auc == two.roc_auc
    np.testing.assert_allclose(one.noisy_counts_.sum(axis=1), np.bincount(y))


# -- with noise -------------------------------------------------------------------------------------------------------


@each_relation
def test_figures_are_near_what_they_would_be_without_noise(neighbours):
    """Eleven figures at five standard errors: fails by chance less than once in 10,000 runs."""
    y, p = binary(20_000)
    evaluation = evaluate(y, p, epsilon=1.0, classes=[0, 1], neighbours=neighbours)
    with pytest.warns(NoPrivacyWarning):
        plain = evaluate(y, p, epsilon=inf, classes=[0, 1])
    for name, figure in evaluation.figures().items():
        assert abs(figure - plain.figures()[name]) < 5 * figure.standard_error, name
        # noise makes errors larger, and how much of it there is depends on the relation
        assert figure.standard_error > 0.99 * plain.figures()[name].standard_error


@pytest.mark.parametrize(("epsilon", "n", "n_bins"), [(1e-6, 2, 2), (1e-3, 30, 3), (0.05, 300, 96), (0.3, 1000, 17)])
def test_figures_stay_in_their_range_where_noise_decides(epsilon, n, n_bins):
    for share, seed in product((0.02, 0.5), range(3)):
        y, p = binary(n, share, seed)
        evaluation = evaluate(y, p, epsilon=epsilon, classes=[0, 1], n_bins=n_bins, delta=1e-8)
        for name, figure in evaluation.figures().items():
            low, high = figure.interval(0.9)
            top = inf if name == "log_loss" else 1
            assert 0 <= low <= high <= top, name
            assert np.isnan(figure) or 0 <= figure <= top, name
            assert figure.standard_error > 0
        curve = evaluation.roc_curve()
        assert (np.diff(np.nan_to_num(curve.tpr)) >= -1e-9).all()
        evaluation.precision_recall_curve(), evaluation.calibration_curve(2), evaluation.confusion_matrix()
        json.dumps(evaluation.to_dict(), allow_nan=False)
        repr(evaluation)
    y, scores = several(n)
    evaluation = evaluate(y, scores, epsilon=epsilon, classes=[0, 1, 2], n_bins=n_bins, delta=1e-8)
    assert (evaluation.confusion_matrix().counts >= 0).all()
    assert evaluation.confusion_matrix().counts.sum() == pytest.approx(n)
    assert all(0 <= figure <= 1 for figure in evaluation.figures().values())


@pytest.mark.filterwarnings("ignore::dpskl.SeededNoiseWarning")
@pytest.mark.slow
@each_relation
@pytest.mark.parametrize(("n", "epsilon"), [(1000, 0.05), (10_000, 0.1)])
def test_intervals_cover_the_figures_of_the_population(n, epsilon, neighbours):
    """300 seeded repetitions: with a coverage of 95 % outside of [0.9, 0.99] once in 2,000 seeds a figure."""
    true = {"accuracy": norm.cdf(0.75), "roc_auc": norm.cdf(1.5 / 2**0.5)}
    covered = dict.fromkeys(true, 0)
    for seed in range(300):
        evaluation = evaluate(
            *binary(n, seed=seed), epsilon=epsilon, classes=[0, 1], neighbours=neighbours, random_state=seed
        )
        for name, value in true.items():
            low, high = evaluation.interval(name)
            covered[name] += low <= value <= high
    for name, count in covered.items():
        assert 0.90 <= count / 300 <= 0.99, name


@pytest.mark.filterwarnings("ignore::dpskl.SeededNoiseWarning")
@pytest.mark.slow
def test_error_of_the_area_at_ten_thousand_records_and_a_tenth():
    """100 seeded repetitions; the error is 0.0080, and its estimate has a standard error of 0.0006."""
    errors = [
        evaluate(*binary(10_000, seed=seed), epsilon=0.1, classes=[0, 1], random_state=seed).roc_auc
        - norm.cdf(1.5 / 2**0.5)
        for seed in range(100)
    ]
    assert np.sqrt(np.mean(np.square(errors))) < 0.0105


def test_choosing_a_threshold(exact, noisy):
    y, p, evaluation = exact
    best = evaluation.threshold_for()
    values = [sm.balanced_accuracy_score(y, p >= t) for t in evaluation.bin_edges_[:-1]]
    assert best == evaluation.bin_edges_[int(np.argmax(values))]
    at = evaluation.threshold_for("recall", 0.9)
    assert np.mean(p[y == 1] >= at) >= 0.9 > np.mean(p[y == 1] >= at + 1 / 64)
    at = evaluation.threshold_for("precision", 0.9)
    assert y[p >= at].mean() >= 0.9 > y[p >= at - 1 / 64].mean()
    assert 0.3 < noisy.threshold_for("accuracy") < 0.7
    for arguments, message in (
        (("recall",), "needs at_least="),
        (("area",), "what='area'"),
        (("recall", 2), "at_least=2"),
        (("accuracy", 1.0), "no threshold has accuracy"),
    ):
        with pytest.raises(ValueError, match=message):
            evaluation.threshold_for(*arguments)


def test_an_area_does_not_depend_on_the_noise_twice(noisy):
    """Figures are functions of what was released: asked again they are the same."""
    copy = pickle.loads(pickle.dumps(noisy))
    assert copy.figures() == noisy.figures()
    assert copy.roc_auc.interval(0.9) == noisy.roc_auc.interval(0.9)


def test_intervals_by_name(noisy):
    low, high = noisy.interval("roc_auc", level=0.95)
    narrow = noisy.interval("roc_auc", level=0.5)
    assert low < narrow[0] < narrow[1] < high
    assert noisy.interval("accuracy", threshold=0.25) == noisy.accuracy(0.25).interval()
    with pytest.raises(ValueError, match="what='area'"):
        noisy.interval("area")
    for level in (0, 1, True, "95"):
        with pytest.raises(ValueError, match="level="):
            noisy.interval("roc_auc", level=level)
    for threshold in (np.nan, "half", True):
        with pytest.raises(ValueError, match="threshold="):
            noisy.accuracy(threshold)
    with pytest.raises(ValueError, match="n_groups=0"):
        noisy.calibration_curve(0)


def test_an_interval_of_a_ratio_is_the_whole_range_where_its_denominator_may_be_zero():
    assert Figure(0.5, 1.0, (1.0, 1.0, 0.1, 0.0, 1.0)).interval(0.95) == (0.0, 1.0)
    low, high = Figure(0.5, 0.1, (5.0, 10.0, 1.0, 0.0, 0.0)).interval(0.95)
    assert (low, high) == pytest.approx((0.304, 0.696), abs=1e-3)
    assert repr(Figure.unknown()) == "unknown"


# -- what is charged and said ----------------------------------------------------------------------------------------


@each_relation
def test_guarantee_and_charge_are_the_budget(neighbours):
    accountant = PrivacyAccountant(epsilon=1.0, delta=1e-6)
    evaluation = evaluate(*binary(), epsilon=1.0, classes=[0, 1], neighbours=neighbours, accountant=accountant)
    guarantee = evaluation.privacy_guarantee_
    assert (guarantee.epsilon, guarantee.delta, guarantee.neighbours) == (1.0, 1e-6, neighbours)
    assert guarantee.holds
    (part,) = guarantee.parts
    assert part.count == 1
    assert 1 - 1e-6 <= guarantee.epsilon_at(1e-6) <= 1.0
    assert PrivacyGuarantee.from_dict(json.loads(json.dumps(guarantee.to_dict()))) == guarantee
    assert "n (number of records)" in guarantee.public
    (entry,) = accountant.entries()
    assert (entry.estimator, entry.solver, entry.n_samples) == ("evaluate", "score_histogram", 4000)
    assert not entry.is_seeded
    assert accountant.spent().epsilon == pytest.approx(1.0, rel=1e-6)
    record = evaluation.to_dict()
    assert record["privacy_guarantee"]["epsilon"] == 1.0
    assert set(record["figures"]) == set(BINARY)


def test_a_refusal_comes_before_the_records_are_counted(monkeypatch):
    accountant = PrivacyAccountant(epsilon=1.5, delta=2e-6)
    evaluate(*binary(), epsilon=1.0, classes=[0, 1], accountant=accountant)
    monkeypatch.setattr(ScoreHistogram, "release", lambda *arguments: pytest.fail("records were counted"))
    with pytest.raises(BudgetExceededError):
        evaluate(*binary(), epsilon=1.4, classes=[0, 1], accountant=accountant)
    assert len(accountant) == 1


def test_seeds_are_marked_and_repeat():
    accountant = PrivacyAccountant()
    with pytest.warns(SeededNoiseWarning):
        one, two = (
            evaluate(*binary(), epsilon=1.0, classes=[0, 1], random_state=3, accountant=accountant) for _ in range(2)
        )
    np.testing.assert_array_equal(one.noisy_counts_, two.noisy_counts_)
    assert one.privacy_guarantee_.is_seeded
    assert all(entry.is_seeded for entry in accountant.entries())
    assert "SEEDED" in repr(one)


def test_no_noise_is_an_infinite_cost_and_no_guarantee(exact):
    accountant = PrivacyAccountant()
    with pytest.warns(NoPrivacyWarning):
        evaluation = evaluate(*binary(), epsilon=inf, classes=[0, 1], accountant=accountant)
    assert evaluation.privacy_guarantee_ is None
    assert accountant.spent().epsilon == inf
    assert "no guarantee" in repr(evaluation)


def test_repr_is_a_table(noisy):
    lines = repr(noisy).splitlines()
    assert lines[0] == "Evaluation of 4000 records: epsilon 1, delta 1e-06, one record present or absent"
    assert [line.split()[0] for line in lines[1:]] == list(BINARY)
    assert all(" +- " in line for line in lines[1:])


def test_undeclared_classes_and_weak_deltas_warn():
    y, p = binary()
    with pytest.warns(PrivacyLeakWarning, match="classes=None"):
        evaluation = evaluate(y, p, epsilon=1.0)
    assert any("read from y" in fact for fact in evaluation.privacy_guarantee_.public)
    with pytest.warns(WeakPrivacyWarning, match=r"delta=0\.1"):
        evaluate(y, p, epsilon=1.0, delta=0.1, classes=[0, 1])


Y, P = binary(60)
THREE = np.arange(60) % 3
BAD = [
    ({"epsilon": 0}, "epsilon=0"),
    ({"epsilon": -1.0}, r"epsilon=-1\.0"),
    ({"delta": 0}, "needs delta > 0"),
    ({"delta": -1e-6}, "delta=-1e-06"),
    ({"delta": 1.0}, "delta=1"),
    ({"neighbours": "swap"}, "neighbours='swap'"),
    ({"classes": [0]}, "at least two different labels"),
    ({"classes": [1, 2]}, "lacks"),
    ({"accountant": 3}, "accountant=3"),
    ({"random_state": -1}, "random_state=-1"),
    ({"n_bins": 1}, "n_bins=1"),
    ({"n_bins": True}, "n_bins=True"),
    ({"n_bins": 8.0}, r"n_bins=8\.0"),
    ({"n_bins": 1000}, "from 2 to 256"),
    ({"score_range": (1, 0)}, r"score_range=\(1, 0\)"),
    ({"score_range": 5}, "score_range=5"),
    ({"score_range": (0, inf)}, "finite numbers"),
    ({"score_range": (1.0, 1.0 + 1e-15)}, "score_range="),
    ({"y_score": P[:-1]}, "59 rows and y_true has 60"),
    ({"y_score": np.where(P > 0.5, np.nan, P)}, "y_score contains NaN"),
    ({"y_score": np.zeros((60, 3))}, "3 columns and there are two classes"),
    ({"y_score": np.zeros((60, 2, 2))}, "dim 3"),
    ({"y_true": THREE, "classes": [0, 1, 2]}, r"3 classes need \(n_samples, 3\)"),
    ({"y_true": THREE, "classes": [0, 1, 2], "y_score": np.zeros((60, 2))}, r"3 classes need \(n_samples, 3\)"),
    ({"y_true": Y + 0.5}, "continuous"),
    ({"y_true": np.zeros(60), "classes": None}, "one class only"),
    ({"y_true": Y[:1], "y_score": P[:1]}, "minimum of 2"),
]


@pytest.mark.parametrize(("changes", "message"), BAD)
def test_what_is_wrong_is_named_before_anything_is_charged(changes, message):
    accountant = PrivacyAccountant()
    settings = {"epsilon": 1.0, "classes": [0, 1], "y_true": Y, "y_score": P, "accountant": accountant, **changes}
    with pytest.raises(ValueError, match=message):
        evaluate(settings.pop("y_true"), settings.pop("y_score"), **settings)
    assert len(accountant) == 0


# -- pictures --------------------------------------------------------------------------------------------------------


def test_displays_draw_what_was_released(noisy):
    matplotlib = pytest.importorskip("matplotlib", reason="pictures need matplotlib (extra 'plots')")
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, 4)
    assert noisy.plot_roc(axes[0]).roc_auc == float(noisy.roc_auc)
    np.testing.assert_array_equal(noisy.plot_precision_recall(axes[1]).recall, noisy.precision_recall_curve().recall)
    assert noisy.plot_calibration(axes[2]).ax_ is axes[2]
    assert noisy.plot_confusion_matrix(axes[3]).confusion_matrix.sum() == pytest.approx(4000, abs=4)
    assert axes[0].get_legend_handles_labels()[1][0].startswith("epsilon = 1")
    plt.close(figure)
    y, scores = several()
    evaluation = evaluate(y, scores, epsilon=1.0, classes=[0, 1, 2])
    assert evaluation.plot_confusion_matrix().confusion_matrix.shape == (3, 3)
    evaluation.plot_calibration()
    plt.close("all")
    with pytest.raises(ValueError, match="two classes"):
        evaluation.plot_roc()
