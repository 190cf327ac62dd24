"""The private search: what it charges, what it leaves behind, and what it refuses."""

import pickle
import re
import warnings
from math import inf

import numpy as np
import pytest
import scipy.sparse as sp
from plan_cases import data, model
from scipy import stats
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import Pipeline
from sklearn.utils.estimator_checks import parametrize_with_checks

import dpskl.model_selection.private as private_search
from dpskl import (
    BudgetExceededError,
    DPHuberSVC,
    DPLogisticRegression,
    NoPrivacyWarning,
    PrivacyAccountant,
    PrivacyLeakWarning,
    SeededNoiseWarning,
    WeakPrivacyWarning,
)
from dpskl.accounting import GaussianCost, PureCost, SelectionCost, WorstCost, compose, cost_from_dict, gaussian_mu
from dpskl.mechanisms.noise import SystemNoise, make_noise
from dpskl.mechanisms.noisy_count import NoisyHistogram
from dpskl.model_selection import PrivateSearchCV, plan_cost
from dpskl.model_selection.trials import draw_rows
from dpskl.solvers import GradientDescent


def held_out(n_samples, seed):
    """The validation part of a seeded search with the default share."""
    return draw_rows(n_samples, round(n_samples / 5), make_noise(seed))


@pytest.fixture
def _ignore_seeds():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SeededNoiseWarning)
        yield


@pytest.mark.filterwarnings("ignore")
@parametrize_with_checks([PrivateSearchCV(DPLogisticRegression(), {"C": [0.1, 1.0]})])
def test_scikit_learn_check(estimator, check):
    check(estimator)


@pytest.mark.parametrize("eta", [0, 1])
@pytest.mark.parametrize(
    ("changes", "base"),
    [
        ({}, GaussianCost),
        ({"delta": 0, "solver": "objective_perturbation"}, PureCost),
        ({"solver": "objective_perturbation"}, WorstCost),
        ({"neighbours": "replace_one"}, GaussianCost),
    ],
)
def test_one_entry_is_charged_and_it_is_the_selection_of_a_trial(eta, changes, base):
    X, y = data()
    accountant = PrivacyAccountant()
    delta = changes.get("delta", 1e-6)
    grid = {"C": [0.1, 1.0], "data_norm": [1.0, 2.0]}
    search = PrivateSearchCV(model(**changes), grid, delta=delta, eta=eta, mean_trials=5, accountant=accountant)
    plan = plan_cost(search, 120, 3)
    search.fit(X, y)
    (entry,) = accountant.entries()
    assert isinstance(entry.cost, SelectionCost)
    assert isinstance(entry.cost.base, base)
    assert (entry.cost.eta, entry.cost.mean, entry.n_samples) == (eta, 5.0, 120)
    assert entry.cost == search.privacy_guarantee_.cost == plan.cost
    assert 0.999 <= entry.cost.epsilon(delta) <= 1.0
    best = search.best_estimator_
    trial = best.plan(96, 3).cost  # the training part has 96 rows
    assert trial.epsilon(delta) == pytest.approx(best.epsilon)
    for order in (2.0, 8.0, 30.0):
        assert trial.rdp(order) <= entry.cost.base.rdp(order) * (1 + 1e-12)
    if base is GaussianCost:
        assert entry.cost.base.mu == pytest.approx(gaussian_mu(best.epsilon, delta), rel=1e-6)
    assert best.accountant is None
    assert best.privacy_guarantee_ is search.privacy_guarantee_
    assert "Papernot" in str(search.privacy_guarantee_)
    assert set(search.best_params_) == {"C", "data_norm"}


def test_a_single_trial_costs_a_single_fit():
    X, y = data()
    search = PrivateSearchCV(model(), {"C": [0.1, 1.0]}, mean_trials=1).fit(X, y)
    assert search.best_estimator_.epsilon == pytest.approx(1.0, rel=1e-3)


@pytest.mark.usefixtures("_ignore_seeds")
def test_nothing_depends_on_the_number_of_trials(monkeypatch, capsys):
    """Everything but the declared releases, the ledger, the warnings and the output are the same."""
    X, y = data()
    seen = []
    for count in (1, 2, 9):
        accountant = PrivacyAccountant()
        monkeypatch.setattr(private_search, "draw_trials", lambda eta, gamma, noise, count=count: count)
        search = PrivateSearchCV(
            model(verbose=1, classes=None, epsilon=500.0), {"C": [0.1, 1.0]}, accountant=accountant, random_state=3
        )
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            search.fit(X, y)
        releases = {"best_estimator_", "best_params_", "best_score_"}
        attributes = {name: repr(value) for name, value in vars(search).items() if name not in releases}
        model_facts = {k: repr(v) for k, v in vars(search.best_estimator_).items() if k not in ("coef_", "intercept_")}
        model_facts = {k: v for k, v in model_facts.items() if k not in ("C", "effective_C_")}
        (entry,) = accountant.entries()
        fields = {k: v for k, v in entry.to_dict().items() if k != "time"}
        attributes.pop("accountant")
        seen.append((attributes, model_facts, fields, [str(w.message) for w in caught], capsys.readouterr().out))
    assert seen[0] == seen[1] == seen[2]
    assert seen[0][-1] == ""
    names = {name for name in seen[0][0] if name.endswith("_")}
    assert names == {"class_shares_", "classes_", "n_features_in_", "privacy_guarantee_"}


@pytest.mark.usefixtures("_ignore_seeds")
def test_model_and_score_come_from_disjoint_parts():
    X, y = data()
    rows = held_out(120, seed=1)
    assert rows.sum() == 24
    moved = np.where(rows[:, None], -X, X)
    fits = [PrivateSearchCV(model(), {"C": [1.0]}, random_state=1, mean_trials=1).fit(given, y) for given in (X, moved)]
    np.testing.assert_array_equal(fits[0].best_estimator_.coef_, fits[1].best_estimator_.coef_)
    assert fits[0].best_score_ > fits[1].best_score_ + 0.1  # with the same noise


def test_the_validation_part_is_drawn_without_the_data_and_has_a_fixed_size():
    """Each of the 10 pairs out of 5 rows is as likely: chi-square over 4,000 draws, wrong once in 100,000 runs."""
    noise, counts = SystemNoise(), np.zeros((5, 5))
    for _ in range(4000):
        first, second = np.flatnonzero(draw_rows(5, 2, noise))
        counts[first, second] += 1
    assert stats.chisquare(counts[np.triu_indices(5, 1)]).pvalue > 1e-5
    for n in (3, 5, 10, 299, 300):
        for share in (0.01, 0.2, 0.5, 0.9):
            count = PrivateSearchCV(model(), {"C": [1.0]}, validation_share=share)._budget(n).n_validation
            assert count == max(1, int(n * share + 0.5)) == draw_rows(n, count, noise).sum()


def test_no_class_is_left_out_because_of_the_order_of_the_rows():
    """Labels 0 to 9 in turn: every fifth row for validation would have left two classes without training."""
    rng = np.random.default_rng(2)
    y = np.arange(2000) % 10
    X = 3 * np.eye(10)[y] + 0.1 * rng.normal(size=(2000, 10))
    search = PrivateSearchCV(model(n_classes=10, data_norm=4.0), {"C": [1.0]}, epsilon=200.0, mean_trials=1, delta=1e-6)
    with pytest.warns(WeakPrivacyWarning):
        search.fit(X, y)
    assert min(np.mean(search.predict(X[y == label]) == label) for label in range(10)) > 0.9


@pytest.mark.usefixtures("_ignore_seeds")
def test_without_noise_the_best_candidate_wins_with_its_accuracy():
    X, y = data(200)
    accountant = PrivacyAccountant()
    grid = {"solver": [GradientDescent(max_iter=1, step_size=1e-9, iterate="last"), GradientDescent(max_iter=50)]}
    search = PrivateSearchCV(
        model(classes=None), grid, epsilon=inf, mean_trials=50, eta=1, random_state=0, accountant=accountant
    )
    with pytest.warns(NoPrivacyWarning), pytest.warns(PrivacyLeakWarning, match="classes"):
        search.fit(X, y)
    rows = held_out(200, seed=0)
    assert search.best_score_ == search.score(X[rows], y[rows]) > 0.9
    assert search.privacy_guarantee_ is None
    assert search.best_estimator_.privacy_guarantee_ is None
    assert accountant.entries()[0].cost == GaussianCost(inf)


@pytest.mark.parametrize("scoring", ["accuracy", "balanced_accuracy", "neg_log_loss"])
@pytest.mark.parametrize("neighbours", ["add_remove", "replace_one"])
def test_the_score_is_noisy_by_what_the_guarantee_says(scoring, neighbours, monkeypatch):
    """100 normal errors: mean or spread beyond 4.4 standard errors once in some 40,000 runs."""
    X, y = data()
    shares = {0: 0.25, 1: 0.75} if scoring == "balanced_accuracy" else None
    rows = np.arange(120) < 24
    monkeypatch.setattr(private_search, "draw_rows", lambda n, count, noise: rows)
    search = PrivateSearchCV(
        model(neighbours=neighbours), {"C": [1.0]}, mean_trials=1, epsilon=2.0, scoring=scoring, class_shares=shares
    )
    errors = []
    for _ in range(100):
        search.fit(X, y)
        correct = search.predict(X[rows]) == y[rows]
        log_likelihood = search.predict_log_proba(X[rows])[np.arange(24), y[rows]]
        exact = {
            "accuracy": correct.sum(),
            # weights of 2 and 2/3, around half of a mean of 1
            "balanced_accuracy": 12 + ((correct - 0.5) * np.array([2.0, 2 / 3])[y[rows]]).sum(),
            "neg_log_loss": np.maximum(log_likelihood, -3 * np.log(2)).sum(),
        }[scoring]
        errors.append(search.best_score_ * 24 - exact)
    (part,) = search.privacy_guarantee_.parts
    length = {"accuracy": 1.0, "balanced_accuracy": 2.0, "neg_log_loss": 3 * np.log(2)}[scoring]
    assert part.sensitivity == pytest.approx(length / 2 if neighbours == "add_remove" else length)
    assert part.noise == pytest.approx(part.sensitivity / gaussian_mu(search.best_estimator_.epsilon, 1e-6))
    assert abs(np.mean(errors)) < 4.4 * part.noise / np.sqrt(100)
    assert abs(np.std(errors) / part.noise - 1) < 4.4 / np.sqrt(200)
    assert scoring in part.mechanism


class Fragile(DPLogisticRegression):
    """Fails at one value of C, and knows the ledger."""

    ledger = None
    lengths: list = []

    def fit(self, X, y):
        if self.ledger is not None:
            Fragile.lengths.append(len(Fragile.ledger))
        if self.C == 7.0:
            raise ZeroDivisionError("tells of the data")
        return super().fit(X, y)


def test_a_failing_trial_is_a_trial_with_the_lowest_score(monkeypatch):
    X, y = data()
    accountant = PrivacyAccountant()
    monkeypatch.setattr(Fragile, "ledger", accountant)
    monkeypatch.setattr(private_search, "draw_trials", lambda eta, gamma, noise: 60)
    settings = {"solver": "gd", "classes": [0, 1], "data_norm": 2.0}
    search = PrivateSearchCV(Fragile(**settings), {"C": [7.0, 1.0]}, accountant=accountant).fit(X, y)
    assert search.best_params_ == {"C": 1.0}
    assert len(Fragile.lengths) == 60
    assert set(Fragile.lengths) == {1}  # charged before the first trial, and once
    lost = PrivateSearchCV(Fragile(**settings), {"C": [7.0]}, accountant=accountant)
    with pytest.raises(RuntimeError, match="charged all the same") as caught:
        lost.fit(X, y)
    assert caught.value.__cause__ is caught.value.__context__ is None
    assert len(accountant) == 2
    assert not hasattr(lost, "best_estimator_")


class Talkative(DPLogisticRegression):
    """Tells of every fit in all the ways that a caller may have left open."""

    def fit(self, X, y):
        warnings.warn("one more fit", stacklevel=1)
        np.array([1.0]) / np.array([0.0])  # as np.seterr says
        for callback in getattr(self, "_skl_callbacks", []):
            callback.append("called back")
        for callback in getattr(self.solver, "_skl_callbacks", []):
            callback.append("called back")
        return super().fit(X, y)


@pytest.mark.parametrize("count", [1, 7])
def test_what_trials_say_is_not_heard(count, monkeypatch, capfd):
    """Prints, warnings, floating-point errors by any route, callbacks that clone hands on."""
    X, y = data()
    calls, reports = [], []
    estimator = Talkative(solver=GradientDescent(max_iter=2), classes=[0, 1], data_norm=2.0, verbose=3)
    estimator._skl_callbacks = [calls]
    estimator.solver._skl_callbacks = [calls]
    assert clone(estimator)._skl_callbacks[0] is calls
    monkeypatch.setattr(private_search, "draw_trials", lambda eta, gamma, noise: count)
    pipeline = Pipeline([("skip", "passthrough"), ("clf", estimator)], verbose=True)
    for given, grid in ((estimator, {"C": [1.0, 2.0]}), (pipeline, {"clf__C": [1.0, 2.0]})):
        search = PrivateSearchCV(given, grid)
        with np.errstate(all="call", call=lambda *arguments: reports.append(arguments)):
            search.fit(X, y)  # warnings are errors here, outside the trials
        assert calls == reports == []
        best = search.best_estimator_
        last = best[-1] if given is pipeline else best
        assert not hasattr(last, "_skl_callbacks")
        assert not hasattr(last.solver, "_skl_callbacks")
        assert not hasattr(last.solver_, "_skl_callbacks")
    heard = capfd.readouterr()
    assert heard.out == heard.err == ""


def test_the_ledger_may_refuse_and_may_come_from_the_estimator():
    X, y = data()
    accountant = PrivacyAccountant(epsilon=1.0)
    search = PrivateSearchCV(model(accountant), {"C": [0.1, 1.0]}, epsilon=2.0)
    with pytest.raises(BudgetExceededError):
        search.fit(X, y)
    assert len(accountant) == 0
    search.set_params(epsilon=1.0).fit(X, y)
    assert len(accountant) == 1
    with pytest.raises(BudgetExceededError):
        search.fit(X, y)
    with pytest.raises(ValueError, match="differ"):
        clone(search).set_params(accountant=PrivacyAccountant()).fit(X, y)


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"epsilon": 0}, ValueError, "epsilon=0"),
        ({"epsilon": "1"}, ValueError, "epsilon='1'"),
        ({"delta": 1}, ValueError, "delta=1"),
        ({"delta": 0}, ValueError, "delta=0.*solver='gd'"),
        ({"eta": 2}, ValueError, "eta=2"),
        ({"eta": True}, ValueError, "eta=True"),
        ({"mean_trials": 0.5}, ValueError, "mean_trials=0.5"),
        ({"mean_trials": inf}, ValueError, "mean_trials=inf"),
        ({"validation_share": 1}, ValueError, "validation_share=1"),
        ({"validation_share": 0.999}, ValueError, "leaves 0 samples"),
        ({"accountant": 3}, ValueError, "accountant=3"),
        ({"param_grid": {"C": []}}, ValueError, "C"),
        ({"param_grid": []}, ValueError, "no candidate"),
        ({"param_grid": {"epsilon": [1, 2]}}, ValueError, "varies 'epsilon'"),
        ({"param_grid": {"neighbours": ["replace_one"]}}, ValueError, "varies 'neighbours'"),
        ({"param_grid": {"penalty": ["l1"]}}, ValueError, "penalty"),
        ({"param_grid": {"C": [1, -1]}}, ValueError, "C=-1"),
        ({"param_grid": {"data_norm": [None]}}, ValueError, "data_norm=None"),
        ({"estimator": LogisticRegression()}, TypeError, "LogisticRegression is not a classifier of this package"),
        ({"estimator": model(n_samples=500)}, ValueError, "n_samples=500 is declared for one fit.*n_samples=None"),
        ({"epsilon": 1e-5}, ValueError, "epsilon=1e-05 is for the whole search.*1e-06 for each.*mean_trials=10$"),
        (
            {"epsilon": 1.8e-5, "estimator": model(solver="blsgd"), "param_grid": {}},
            ValueError,
            "96 records.*n_samples=120 at validation_share=0.2.*out of epsilon=1.8e-05 for the search.*solver='blgd'",
        ),
        ({"scoring": "roc_auc"}, ValueError, "scoring='roc_auc'"),
        ({"scoring": "neg_log_loss", "score_clip": -1}, ValueError, "score_clip=-1"),
        ({"scoring": "neg_log_loss", "estimator": DPHuberSVC(classes=[0, 1])}, ValueError, "needs probabilities"),
        ({"scoring": "balanced_accuracy", "class_shares": {0: 0.5, 2: 0.5}}, ValueError, "labels .0, 1."),
        (
            {"estimator": DPHuberSVC(solver="objective_perturbation", neighbours="replace_one", classes=[0, 1])},
            ValueError,
            "Renyi curve.*solver='gd'",
        ),
    ],
)
def test_bad_input_is_named_and_nothing_is_charged(changes, error, message):
    X, y = data()
    accountant = PrivacyAccountant()
    search = PrivateSearchCV(model(), {"C": [0.1, 1.0]}, accountant=accountant).set_params(**changes)
    with pytest.raises(error, match=message):
        search.fit(X, y)
    assert len(accountant) == 0


def test_groups_are_refused_with_a_reason():
    X, y = data()
    accountant = PrivacyAccountant()
    with pytest.raises(ValueError, match=r"groups= is refused.*one row of each group"):
        PrivateSearchCV(model(accountant), {"C": [0.1, 1.0]}).fit(X, y, groups=np.arange(120) // 2)
    assert len(accountant) == 0


@pytest.mark.parametrize("scoring", ["accuracy", "balanced_accuracy"])
def test_the_remedy_for_a_small_epsilon_is_one(scoring):
    search = PrivateSearchCV(model(), {"C": [0.1, 1.0]}, epsilon=1e-5, scoring=scoring)
    with pytest.raises(ValueError, match="costs") as caught:
        plan_cost(search, 1000, 3)
    least = float(re.search(r"the search costs (\S+)", str(caught.value))[1])
    plan_cost(search.set_params(epsilon=1.2 * least), 1000, 3)
    plan_cost(search.set_params(epsilon=1e-5, mean_trials=1), 1000, 3)


@pytest.mark.parametrize("neighbours", ["add_remove", "replace_one"])
@pytest.mark.parametrize("delta", [0, 1e-6])
def test_counts_of_the_classes_are_released_once_and_paid_for(neighbours, delta):
    X, y = data(400)
    y[:360] = 0
    accountant = PrivacyAccountant()
    search = PrivateSearchCV(
        model(neighbours=neighbours, solver="output_perturbation"),
        {"C": [0.1, 1.0]},
        epsilon=5.0,
        delta=delta,
        scoring="balanced_accuracy",
        accountant=accountant,
    ).fit(X, y)
    counts, trials = search.privacy_guarantee_.parts
    assert counts.noise == pytest.approx((1 if neighbours == "add_remove" else 2) / 0.5)
    (entry,) = accountant.entries()
    assert entry.cost == compose([counts.cost, trials.cost]) == search.privacy_guarantee_.cost
    assert 0.99 * 5.0 <= entry.cost.epsilon(delta) <= 5.0
    assert cost_from_dict(entry.cost.to_dict()) == entry.cost
    # 20 noise scales from the truth, by chance once in e^20
    np.testing.assert_allclose(search.class_shares_, [380 / 400, 20 / 400], atol=20 * counts.noise / 400)
    weight = 1 / (2 * search.class_shares_.min())
    assert trials.sensitivity == pytest.approx(weight / 2 if neighbours == "add_remove" else weight)
    assert search.set_params(scoring="accuracy").fit(X, y).class_shares_ is None


def test_a_class_too_small_to_be_seen_counts_as_large_as_the_noise(monkeypatch):
    X, y = data()
    monkeypatch.setattr(NoisyHistogram, "release", lambda self, counts, noise: counts - [0, 1000])
    search = PrivateSearchCV(model(), {"C": [1.0]}, scoring="balanced_accuracy").fit(X, y)
    assert search.class_shares_.tolist() == [60 / 120, pytest.approx(10 / 120)]


def test_it_predicts_travels_and_takes_sparse_rows():
    X, y = data()
    names = np.array(["no", "yes"])[y]
    search = PrivateSearchCV(model(classes=["yes", "no"]), {"C": [0.1, 1.0]}, epsilon=20.0)
    search.fit(sp.csr_array(X), names)
    assert search.classes_.tolist() == ["no", "yes"]
    np.testing.assert_allclose(search.predict_proba(X).sum(axis=1), 1)
    np.testing.assert_allclose(np.exp(search.predict_log_proba(X)), search.predict_proba(X))
    np.testing.assert_allclose(search.decision_function(X), search.best_estimator_.decision_function(X))
    again = pickle.loads(pickle.dumps(search))
    np.testing.assert_array_equal(again.predict(X), search.predict(X))
    assert search.score(X, names) > 0.7
    assert not hasattr(PrivateSearchCV(DPHuberSVC(), {"C": [1.0]}), "predict_proba")
    assert search.best_estimator_.random_state is None
    with pytest.raises(ValueError, match="features"):
        search.predict(X[:, :2])


def test_the_guarantee_states_the_budget_that_was_asked_for_and_costs_no_less():
    X, y = data()
    search = PrivateSearchCV(model(), {"C": [0.1, 1.0]}, mean_trials=3, epsilon=2.0, delta=1e-6).fit(X, y)
    guarantee = search.privacy_guarantee_
    assert (guarantee.epsilon, guarantee.delta) == (2.0, 1e-6)
    assert 0.99 * guarantee.epsilon <= guarantee.cost.epsilon(guarantee.delta) <= guarantee.epsilon
