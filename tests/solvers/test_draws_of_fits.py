"""Whole fits on a tape of noise: the draws pay for the claim, by an account of their own, and every draw counts."""

import numpy as np
import pytest
from conftest import Tape
from fit_audit import DELTA, ESTIMATORS, FITS, NORM, SAMPLED, X, Y, check_fit, fitted, solver_of

import dpskl.model_selection.private as private_search
from dpskl import DPLogisticRegression
from dpskl.dummy import PrivateMajority
from dpskl.mechanisms.hidden_descent import HiddenDescent
from dpskl.model_selection import PrivateSearchCV
from dpskl.solvers import solver_names

CASES = [
    pytest.param(name, loss, K, neighbours, id=f"{name}, {loss}, {K}, {neighbours}")
    for name in FITS
    for loss, estimator in ESTIMATORS.items()
    for K in (1, 3)
    for neighbours in ("add_remove", "replace_one")
    if solver_of(name, loss, K).refusal(estimator()._loss()) is None
    if name not in SAMPLED or neighbours == "add_remove"
]


def test_every_solver_is_audited():
    assert {solver_of(name, "huber", 1).name for name in FITS} == set(solver_names())


@pytest.mark.parametrize(("name", "loss", "K", "neighbours"), CASES)
def test_the_draws_of_a_fit_pay_for_its_claim(name, loss, K, neighbours):
    check_fit(name, loss, K, neighbours)


@pytest.mark.parametrize(("name", "loss", "K", "neighbours"), CASES[::3])
def test_they_do_where_rows_fill_their_bound(name, loss, K, neighbours):
    check_fit(name, loss, K, neighbours, rows="fill")


@pytest.mark.parametrize("K", [1, 3])
@pytest.mark.parametrize("name", ["gd, last", "gd, last, long steps", "langevin"])
@pytest.mark.parametrize("loss", ["logistic", "huber"])
def test_hidden_iterates_are_among_the_audited(name, loss, K):
    fit = fitted(solver_of(name, loss, K), loss, K, C=FITS[name][2])
    ((mechanism, _),) = [(question.mechanism, question.draws) for question in fit.questions]
    assert isinstance(mechanism, HiddenDescent)


# -- every draw counts ---------------------------------------------------------------------------------------

CHANGES = {
    "normal": [lambda unit: unit + 0.5],
    "gamma": [lambda unit: 1.5 * unit],
    # one end of the list, or the other, is not what was chosen
    "gumbel": [lambda unit: unit + 1e9 * np.eye(unit.size)[0], lambda unit: unit + 1e9 * np.eye(unit.size)[-1]],
    "exponential": [lambda unit: unit + 1e9 * np.eye(unit.size)[0], lambda unit: unit + 1e9 * np.eye(unit.size)[-1]],
    "laplace": [lambda unit: unit + 1e9, lambda unit: unit - 1e9],
    "sample": [lambda unit: 0 * unit + 1e9, lambda unit: 0 * unit],  # nobody, everybody
}
CHANGES["query"] = CHANGES["laplace"]


def check_every_draw_counts(name, loss, K):
    """Change one block of the tape, and what the fit tells of its data changes."""
    solver, (_, delta, C) = solver_of(name, loss, K), FITS[name]

    def told(changes=None):
        fit = fitted(solver, loss, K, "add_remove", delta, C, changes)
        return fit, np.r_[fit.model.coef_.ravel(), fit.model.intercept_, _numbers(fit.model.history_)]

    fit, before = told()
    place = 0
    for number, question in enumerate(fit.questions):
        is_search = any(type(q).__name__ == "BacktrackingSearch" for q in (question.mechanism, _inner(question)))
        for draw in question.draws:
            place += 1
            if is_search and draw.law == "sample":
                continue  # its noise may well decide whoever is drawn
            law = "query" if is_search else draw.law
            moved = [not np.array_equal(told({place - 1: change})[1], before) for change in CHANGES[law]]
            # what a run that the budget ends asked for its last update is not used
            assert any(moved) or (solver.name in RUN_TIME and number >= _last_update(fit)), (number, draw.law)
    assert place == len(fit.tape.draws)


OTHERS = ("proximal", "rejection", "mala", "privgene, population", "privgene, pure population")
RUN_TIME = ("agd", "blgd", "blsgd")


def _inner(question):
    return getattr(question.mechanism, "mechanism", None)


def _numbers(history):
    return np.concatenate([np.asarray(values, dtype=float) for values in (history or {"": []}).values()])


def _last_update(fit):
    """Return how many questions led to updates; an answer that brought none is followed by others or by the end."""
    history, solver = fit.model.history_, fit.model.solver_
    searches = history.get("searches", history["measurements"])  # agd makes a choice for each measurement
    parts = round(1 / solver.xi) if solver.name == "blsgd" else 1
    levels = sum(history["measurements"]) if parts == 1 else sum(history["gradient_level"])
    return int(levels + sum(searches))


@pytest.mark.parametrize("K", [1, 3])
@pytest.mark.parametrize("name", [name for name in FITS if name not in OTHERS])
def test_every_draw_counts(name, K):
    """Samplers that keep or drop proposals, and parents of a population, are the subject of test_noise_decides."""
    check_every_draw_counts(name, "huber" if name == "objective" else "logistic", K)


@pytest.mark.parametrize("K", [1, 3])
def test_means_over_samples_divide_by_public_numbers(K):
    """Nobody is sampled, so the first gradient is noise over the expected share of the records."""
    nobody = {place: lambda unit: 0 * unit + 1e9 for place in (0, 2)}  # two parts, each a sample and its noise
    fit = fitted(FITS["blsgd"][0], "logistic", K, changes=nobody)
    first, second = fit.questions[:2]
    assert [draw.law for draw in first.draws + second.draws] == ["sample", "normal"] * 2
    noise = sum(question.draws[1].scale * question.draws[1].unit for question in (first, second))
    expected = np.linalg.norm(noise) / (2 * first.mechanism.rate)
    assert fit.model.history_["gradient_norm"][0] == pytest.approx(expected, rel=1e-5)


# -- fits that are no solver's ---------------------------------------------------------------------------------


@pytest.mark.parametrize("neighbours", ["add_remove", "replace_one"])
def test_every_class_of_the_majority_has_noise_of_its_own(neighbours, monkeypatch):
    def shares(changes=None):
        tape = Tape(2, changes)
        monkeypatch.setattr("dpskl.dummy.make_noise", lambda state: tape)
        model = PrivateMajority(0.5, classes=[0, 1, 2], neighbours=neighbours).fit(X, Y)
        assert [(draw.law, draw.size) for draw in tape.draws] == [("laplace", 3)]
        assert tape.draws[0].scale == pytest.approx(2 if neighbours == "add_remove" else 4)
        return model.class_prior_

    for k in range(3):
        np.testing.assert_allclose(shares({0: lambda unit, k=k: unit + 1e9 * np.eye(3)[k]}), np.eye(3)[k], atol=1e-6)


def test_every_trial_of_a_private_search_has_noise_of_its_own(monkeypatch):
    """Four trials: whichever count is lifted by its own noise is the one that is kept."""
    monkeypatch.setattr(private_search, "draw_trials", lambda eta, gamma, noise: 4)

    def score(changes=None):
        tape = Tape(2, changes)
        monkeypatch.setattr(private_search, "make_noise", lambda state: tape)
        estimator = DPLogisticRegression(solver="gd", classes=[0, 1, 2], data_norm=NORM)
        search = PrivateSearchCV(estimator, {"C": [0.1, 1.0]}, epsilon=3.0, delta=DELTA).fit(X, Y)
        split, *draws = tape.draws
        assert (split.law, split.size) == ("sample", len(X))
        assert [(draw.law, draw.size) for draw in draws] == [("exponential", 1), ("normal", 1)] * 4
        (part,) = search.privacy_guarantee_.parts
        assert {draw.scale for draw in tape.draws if draw.law == "normal"} == {part.noise}
        return search.best_score_

    assert score() < 1e3
    for trial in range(4):
        assert score({2 * trial + 2: lambda unit: unit + 1e9}) > 1e6
