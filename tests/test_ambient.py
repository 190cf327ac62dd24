"""Proofs do not rest on what others have set: scikit-learn, NumPy, SciPy, warnings, the interpreter."""

import decimal
import subprocess
import sys
import warnings

import numpy as np
import pytest
import scipy.sparse as sp
import sklearn
from scipy import special

import dpskl
from dpskl import DPHuberSVC, DPLinearSVC, DPLogisticRegression, PrivacyAccountant
from dpskl.dummy import PrivateMajority
from dpskl.model_selection import PrivateSearchCV
from dpskl.preprocessing import PublicScaler, RowNormClipper
from dpskl.solvers import solver_names

y = np.arange(40) % 2
X = np.linspace(-1, 1, 80).reshape(40, 2)
BAD = (np.nan, np.inf, -np.inf)


def spoilt(value, layout, dtype):
    rows = X.astype(dtype)
    rows[17, 1] = value
    return {"C": rows, "F": np.asfortranarray(rows), "csr": sp.csr_array(rows), "csr_matrix": sp.csr_matrix(rows)}[
        layout
    ]


@pytest.fixture
def assume_finite():
    with sklearn.config_context(assume_finite=True):
        yield


@pytest.mark.parametrize("value", BAD)
@pytest.mark.parametrize("layout", ["C", "F", "csr", "csr_matrix"])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_numbers_that_are_not_finite_are_found_by_our_own_check(assume_finite, value, layout, dtype):
    accountant = PrivacyAccountant()
    bad = spoilt(value, layout, dtype)
    models = [
        DPLogisticRegression(classes=[0, 1], accountant=accountant),
        PrivateMajority(classes=[0, 1], accountant=accountant),
        PrivateSearchCV(DPLogisticRegression(classes=[0, 1]), {"C": [1.0]}, epsilon=3.0, accountant=accountant),
    ]
    for model in models:
        with pytest.raises(ValueError, match=r"X contains (NaN|infinity)"):
            model.fit(bad, y)
    assert accountant.entries() == ()
    fitted = models[0].fit(X, y)
    for method in (fitted.predict, fitted.decision_function, fitted.score_parts):
        with pytest.raises(ValueError, match="X contains"):
            method(bad)
    for transformer in (RowNormClipper(), PublicScaler(low=-1, high=1, feature_range=(-1, 1))):
        with pytest.raises(ValueError, match="X contains"):
            transformer.fit(X).transform(bad)


def test_large_finite_numbers_whose_sum_overflows_are_finite():
    rows = np.full((40, 2), 1.7e308)
    rows[::2] *= -1
    for layout in (rows, sp.csr_array(rows), np.full((40, 2), 3e38, dtype=np.float32)):
        DPLogisticRegression(classes=[0, 1]).fit(layout, y)
    rows[3, 1] = np.nan
    with pytest.raises(ValueError, match="X contains NaN"):
        DPLogisticRegression(classes=[0, 1]).fit(rows, y)


@pytest.mark.parametrize("labels", [np.where(y, 1.0, np.nan), np.where(y, 1.0, np.inf), np.array([0, None] * 20)])
def test_labels_that_are_missing_are_found(assume_finite, labels):
    accountant = PrivacyAccountant()
    for classes in (None, [0, 1]):
        with pytest.raises(ValueError, match=r"y contains NaN or infinity|label type"):
            DPLogisticRegression(classes=classes, accountant=accountant).fit(X, labels)
    assert accountant.entries() == ()


def hostile_rows():
    """Rows whose squares, exponentials and sums overflow and underflow."""
    rows = X * 10.0 ** np.linspace(-320, 300, 40)[:, None]
    rows[0], rows[1] = 0, 1e308
    return rows


def pairs():
    return [
        (estimator, solver)
        for estimator in (DPLogisticRegression, DPHuberSVC, DPLinearSVC)
        for solver in solver_names(estimator()._loss())
    ]


@pytest.mark.parametrize(("estimator", "solver"), pairs(), ids=str)
def test_no_error_and_no_warning_between_charge_and_release(estimator, solver):
    # every floating-point event raises where somebody has set NumPy and SciPy so; warnings are errors in these tests
    accountant = PrivacyAccountant()
    model = estimator(epsilon=2.0, solver=solver, classes=[0, 1], accountant=accountant)
    rows = hostile_rows()
    with np.errstate(all="raise"), special.errstate(all="raise"):
        model.fit(rows, y)
    assert len(accountant.entries()) == 1
    assert np.isfinite(model.coef_).all()


@pytest.mark.parametrize("scoring", ["accuracy", "balanced_accuracy", "neg_log_loss"])
def test_no_error_and_no_warning_in_a_private_search_either(scoring):
    accountant, rows = PrivacyAccountant(), hostile_rows()
    model = DPLogisticRegression(classes=[0, 1])
    search = PrivateSearchCV(model, {"C": [0.1, 1.0]}, epsilon=10.0, scoring=scoring, accountant=accountant)
    with np.errstate(all="raise"), special.errstate(all="raise"):
        search.fit(rows, y)
    assert len(accountant.entries()) == 1


def test_labels_give_no_warning_whatever_they_are():
    # scikit-learn warns where more than half of the labels differ, which a fit with declared classes can tell
    labels = np.arange(40) % 25
    model = DPLogisticRegression(epsilon=1.0, classes=list(range(25)))
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        model.fit(X, labels)
        model.fit(X, np.zeros(40, dtype=int))
    assert {str(warning.category.__name__) for warning in told} <= {"WeakSignalWarning"}


def test_decimal_contexts_do_not_change_what_is_printed_or_charged():
    cost = DPLogisticRegression(epsilon=1 / 3, delta=0, classes=[0, 1]).plan(1000, 3).cost
    told = str(cost)
    accountant = PrivacyAccountant(epsilon=1.0, delta=0)
    with decimal.localcontext() as context:
        context.prec = 2
        context.rounding = decimal.ROUND_DOWN
        assert str(cost) == told
        assert accountant.would_grant([cost] * 4) == 3


def test_checks_of_proofs_survive_an_optimised_interpreter():
    program = """
import numpy as np
from dpskl.records.losses import Logistic
from dpskl.records.problem import Problem
problem = Problem(np.ones((4, 2)), np.ones(4), Logistic(), data_norm=1.0)
try:
    problem.gradient_sum(np.zeros(2), 1.0, np.ones(2))
except AssertionError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-O", "-c", program], capture_output=True, text=True, check=True)
    assert "must not change" in done.stdout


def test_configuration_of_scikit_learn_leaves_a_fit_alone():
    told = DPLogisticRegression(classes=[0, 1], random_state=3)
    with pytest.warns(dpskl.SeededNoiseWarning):
        expected = told.fit(X, y).coef_
    for setting in ({"enable_metadata_routing": True}, {"transform_output": "pandas"}, {"working_memory": 1}):
        with sklearn.config_context(**setting), pytest.warns(dpskl.SeededNoiseWarning):
            np.testing.assert_array_equal(told.fit(X, y).coef_, expected)
