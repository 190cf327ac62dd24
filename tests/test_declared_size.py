"""n_samples=: a public figure in the place of the number of rows, for whom that number is private."""

import numpy as np
import pytest
from sklearn.multiclass import OneVsOneClassifier

from dpskl import DPHuberSVC, DPLinearSVC, DPLogisticRegression, PrivacyAccountant
from dpskl.dummy import PrivateMajority
from dpskl.solvers import FTRL, BacktrackingSGD, ExponentialMechanism, OutputPerturbation, solver_names

rng = np.random.default_rng(4)
X = rng.normal(size=(300, 3)) * 0.3
y = (X[:, 0] + rng.normal(size=300) * 0.1 > 0).astype(int)


def pairs():
    for estimator in (DPLogisticRegression, DPHuberSVC, DPLinearSVC):
        for solver in solver_names(estimator()._loss()):
            yield estimator, solver
    yield DPLogisticRegression, OutputPerturbation(method="psgd")
    yield DPLogisticRegression, OutputPerturbation(method="gd")
    yield DPLogisticRegression, ExponentialMechanism(sampler="mala", certified=False)
    yield DPLogisticRegression, BacktrackingSGD(q=0.3)


@pytest.mark.parametrize(("estimator", "solver"), list(pairs()), ids=str)
def test_nothing_that_is_released_but_the_weights_tells_how_many_rows_there_are(estimator, solver):
    told = []
    for n in (300, 299, 120):
        accountant = PrivacyAccountant()
        model = estimator(epsilon=3.0, solver=solver, classes=[0, 1], n_samples=500, accountant=accountant)
        model.fit(X[:n], y[:n])
        (entry,) = accountant.entries()
        guarantee = model.privacy_guarantee_.to_dict()
        guarantee["fit"].pop("time")
        told.append((guarantee, entry.cost, entry.n_samples, model.effective_C_))
        if model.history_ is None:  # else the number of updates is made of what was released
            told[-1] += (model.n_iter_,)
        assert guarantee["fit"]["n_samples"] == entry.n_samples == 500
        assert "n_samples=500 (declared" in str(model.privacy_guarantee_)
        assert "n (number of records)" not in str(model.privacy_guarantee_)
    assert told[0] == told[1] == told[2]


@pytest.mark.parametrize(("estimator", "solver"), list(pairs()), ids=str)
def test_the_declared_figure_is_what_is_planned_with(estimator, solver):
    model = estimator(epsilon=3.0, solver=solver, classes=[0, 1])
    plan = model.plan(500, 3)
    declared = estimator(epsilon=3.0, solver=solver, classes=[0, 1], n_samples=500).fit(X, y)
    assert [part.noise for part in declared.privacy_guarantee_.parts] == [part.noise for part in plan.describe()]


def test_without_noise_permuted_sgd_leaves_the_empty_places_out():
    solver = OutputPerturbation(method="psgd", batch_size=7)
    model = DPLogisticRegression(epsilon=float("inf"), solver=solver, classes=[0, 1], n_samples=1000)
    with pytest.warns(UserWarning, match="adds no noise"):
        model.fit(X, y)
    assert model.score(X, y) > 0.85


@pytest.mark.parametrize("n_samples", [0, 1, -3, 2.0, "many", True, np.nan])
@pytest.mark.parametrize("estimator", [DPLogisticRegression, PrivateMajority])
def test_other_figures_are_refused(n_samples, estimator):
    with pytest.raises(ValueError, match=r"n_samples=.*whole number of at least 2 that no data set exceeds"):
        estimator(classes=[0, 1], n_samples=n_samples).fit(X, y)


@pytest.mark.parametrize("estimator", [DPLogisticRegression, PrivateMajority])
def test_more_rows_than_declared_are_refused_before_the_charge_without_their_number(estimator):
    accountant = PrivacyAccountant()
    with pytest.raises(ValueError, match="declare a larger bound") as error:
        estimator(classes=[0, 1], n_samples=299, accountant=accountant).fit(X, y)
    assert "300" not in str(error.value)
    assert accountant.entries() == ()


def test_rows_that_are_chosen_by_label_leave_no_counts_behind():
    labels = np.array([0] * 190 + [1] * 70 + [2] * 40)
    accountant = PrivacyAccountant()
    model = DPLogisticRegression(epsilon=3.0, classes=[0, 1], n_samples=400, accountant=accountant)
    pairs = OneVsOneClassifier(model).fit(X, labels)
    assert {entry.n_samples for entry in accountant.entries()} == {400}
    assert {fit.privacy_guarantee_.fit.n_samples for fit in pairs.estimators_} == {400}
    assert not any(str(count) in str(fit.privacy_guarantee_) for fit in pairs.estimators_ for count in (260, 230, 110))


def test_row_numbers_and_a_secret_number_of_rows_exclude_each_other():
    accountant = PrivacyAccountant()
    model = DPLogisticRegression(solver=FTRL(order="rows"), classes=[0, 1], n_samples=500, accountant=accountant)
    with pytest.raises(ValueError, match=r"n_samples=500 keeps the number of rows secret.*order='random'"):
        model.fit(X, y)
    assert accountant.entries() == ()
    model.set_params(n_samples=None).fit(X, y)
