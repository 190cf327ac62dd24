"""The estimators: what they refuse, before anything is spent, and what they warn of."""

import re
import warnings

import numpy as np
import pytest
import scipy.sparse as sp
from linear_model_cases import data, quiet
from sklearn.exceptions import NotFittedError

from dpskl import (
    BudgetExceededError,
    DPHuberSVC,
    DPLinearSVC,
    DPLogisticRegression,
    PrivacyAccountant,
    PrivacyLeakWarning,
    SeededNoiseWarning,
    WeakPrivacyWarning,
    WeakSignalWarning,
)
from dpskl.accounting import gaussian_epsilon
from dpskl.records.losses import HuberHinge
from dpskl.solvers import GradientDescent, ObjectivePerturbation, OutputPerturbation, solver_names

pytestmark = pytest.mark.filterwarnings("ignore::dpskl.SeededNoiseWarning")


# -- refusals -------------------------------------------------------------------------------------------

BAD_PARAMETERS = [
    ({"epsilon": 0}, "epsilon=0"),
    ({"epsilon": -1.0}, "epsilon=-1.0"),
    ({"epsilon": 1e-300}, "epsilon=1e-300, but it must be a number of at least 1e-06"),
    ({"epsilon": 9.9e-7}, "epsilon=9.9e-07, but it must be a number of at least 1e-06"),
    ({"epsilon": float("nan")}, "epsilon=nan"),
    ({"epsilon": "1"}, "epsilon='1'"),
    ({"epsilon": True}, "epsilon=True"),
    ({"delta": -1e-9}, "delta=-1e-09"),
    ({"delta": 1.0}, "delta=1.0"),
    ({"delta": None}, "delta=None"),
    ({"C": 0}, "C=0"),
    ({"C": float("inf")}, "C=inf.*a large one"),
    ({"fit_intercept": "yes"}, "fit_intercept='yes'"),
    ({"verbose": "x"}, "verbose='x'"),
    ({"data_norm": 0}, "data_norm=0"),
    ({"data_norm": -2}, "data_norm=-2"),
    ({"data_norm": float("inf")}, "data_norm=inf"),
    ({"data_norm": "auto"}, "data_norm='auto'"),
    ({"neighbours": "swap"}, "'add_remove', 'replace_one'"),
    ({"neighbours": ["add_remove"]}, "neighbours"),
    ({"classes": [0]}, "at least two different labels"),
    ({"classes": [0, 1, 1]}, "each once"),
    ({"classes": [0, 2]}, r"labels \[1\] that classes="),
    ({"solver": "no such"}, "one of .*'gd', 'objective_perturbation'"),
    ({"solver": None}, "solver=None does not exist"),
    ({"solver": GradientDescent}, "pass an instance"),
    ({"accountant": 1.0}, "accountant=1.0"),
    ({"random_state": -1}, "random_state=-1"),
    ({"solver": GradientDescent(), "delta": 0}, "pure differential privacy"),
    ({"solver": GradientDescent(max_iter=0)}, "max_iter=0"),
    ({"solver": GradientDescent(max_iter=2.5)}, "max_iter=2.5"),
    ({"solver": GradientDescent(step_size=-1)}, "step_size=-1"),
    ({"solver": GradientDescent(clip_norm=0)}, "clip_norm=0"),
    ({"solver": GradientDescent(momentum=1)}, "momentum=1"),
    ({"solver": GradientDescent(iterate="best")}, "iterate='best'"),
    ({"solver": GradientDescent(projection_radius=0)}, "projection_radius=0"),
    ({"solver": ObjectivePerturbation(ridge_share=1)}, "ridge_share=1"),
    ({"solver": OutputPerturbation("newton")}, "method='newton'"),
    ({"solver": OutputPerturbation(min_ridge=-1)}, "min_ridge=-1"),
    ({"solver": OutputPerturbation("gd", max_iter=0)}, "max_iter=0"),
    ({"solver": OutputPerturbation("psgd", batch_size=1.5)}, "batch_size=1.5"),
    ({"solver": OutputPerturbation("gd", step_size=0)}, "step_size=0"),
    ({"solver": OutputPerturbation("gd", step_size=99.0)}, "step_size=99 must be at most"),
    ({"solver": OutputPerturbation("gd", batch_size=5)}, "batch_size=5 has no meaning"),
    ({"solver": GradientDescent(step_size=1e6)}, "step_size=1e"),
    ({"solver": GradientDescent(step_size=1e308), "C": 1e307}, "must not exceed"),
]


@pytest.mark.parametrize(("changes", "message"), BAD_PARAMETERS, ids=[message for _, message in BAD_PARAMETERS])
def test_bad_parameters_are_named_before_anything_is_spent(changes, message):
    X, y = data()
    accountant = PrivacyAccountant()
    with pytest.raises(ValueError, match=message):
        quiet(DPLogisticRegression, **{"solver": "gd", "accountant": accountant, **changes}).fit(X, y)
    assert len(accountant) == 0


@pytest.mark.parametrize("h", [0, -1.0, 1e-46, 9e-7, 11, 1e20, float("inf"), "wide", None])
def test_half_width_is_checked(h):
    accountant = PrivacyAccountant()
    with pytest.raises(ValueError, match=re.escape(f"h={h!r} must be a number from 1e-06 to 10")):
        quiet(DPHuberSVC, "gd", h=h, accountant=accountant).fit(*data())
    assert len(accountant) == 0


@pytest.mark.parametrize("h", [1e-6, 10.0])
@pytest.mark.parametrize("solver", solver_names(HuberHinge()))
def test_both_ends_of_the_half_width_fit_in_both_precisions(solver, h):
    X, y = data()
    for dtype in (np.float64, np.float32):
        model = quiet(DPHuberSVC, solver, h=h, epsilon=8.0).fit(X.astype(dtype), y)
        assert np.isfinite(model.coef_).all()


BAD_DATA = {
    "nan": (lambda X, y: (np.where(np.arange(len(X))[:, None] == 3, np.nan, X), y), "NaN"),
    "inf": (lambda X, y: (np.where(np.arange(len(X))[:, None] == 3, np.inf, X), y), "infinity"),
    "sparse nan": (lambda X, y: (sp.csr_array(np.where(X == X[0, 0], np.nan, X)), y), "NaN"),
    "complex": (lambda X, y: (X + 0j, y), "Complex"),
    "words": (lambda X, y: (np.full(X.shape, "a", dtype=object), y), "could not convert"),
    "one row": (lambda X, y: (X[:1], y[:1]), "1 sample"),
    "one dimension": (lambda X, y: (X[:, 0], y), "2D"),
    "lengths": (lambda X, y: (X, y[:-1]), "inconsistent"),
    "real labels": (lambda X, y: (X, y + 0.5 * np.arange(len(y))), "Unknown label type"),
    "nan label": (lambda X, y: (X, np.where(y == 1, np.nan, y)), "NaN"),
}


@pytest.mark.parametrize("case", BAD_DATA)
def test_bad_data_is_refused_before_anything_is_spent(case):
    spoil, message = BAD_DATA[case]
    accountant = PrivacyAccountant()
    with pytest.raises(ValueError, match=message):
        quiet(DPLogisticRegression, "gd", accountant=accountant).fit(*spoil(*data()))
    assert len(accountant) == 0


def test_one_class_without_declared_classes_is_refused():
    X, y = data()
    accountant = PrivacyAccountant()
    with pytest.raises(ValueError, match=r"one class only.*classes="):
        DPLogisticRegression(accountant=accountant).fit(X, np.ones(len(y)))
    assert len(accountant) == 0


def test_hinge_is_refused_by_objective_perturbation_with_a_remedy():
    accountant = PrivacyAccountant()
    with pytest.raises(ValueError, match=r"kink.*DPHuberSVC.*choose solver='whitened_gd' or 'gd'"):
        quiet(DPLinearSVC, "objective_perturbation", accountant=accountant).fit(*data())
    assert len(accountant) == 0


def test_weights_and_unknown_parameters_are_refused_by_python():
    X, y = data()
    with pytest.raises(TypeError, match="sample_weight"):
        DPLogisticRegression().fit(X, y, sample_weight=np.ones(len(y)))
    with pytest.raises(TypeError, match="penalty"):
        DPLogisticRegression(penalty="l1")
    with pytest.raises(TypeError):
        DPLogisticRegression(1.0, 1e-6, "gd")


def test_predict_before_fit_and_with_other_columns():
    X, y = data()
    with pytest.raises(NotFittedError):
        DPLogisticRegression().predict(X)
    with pytest.raises(ValueError, match="features"):
        quiet(DPLogisticRegression, "gd").fit(X, y).predict(X[:, :2])


# -- warnings -------------------------------------------------------------------------------------------


def test_what_is_read_from_the_data_warns():
    X, y = data()
    with pytest.warns(PrivacyLeakWarning, match="classes"):
        DPLogisticRegression(random_state=0).fit(X, y)
    model = quiet(DPLogisticRegression, "gd", data_norm=None)
    with pytest.warns(PrivacyLeakWarning, match="data_norm"):
        model.fit(X, y)
    assert model.data_norm is None
    assert model.data_norm_ == pytest.approx(np.linalg.norm(X, axis=1).max())
    assert model.privacy_guarantee_ is None


@pytest.mark.parametrize("changes", [{"data_norm": None}, {"epsilon": float("inf")}])
def test_what_has_no_guarantee_has_no_finite_cost(changes):
    X, y = data()
    open_end, ceiling = PrivacyAccountant(), PrivacyAccountant(epsilon=1e6)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        quiet(DPLogisticRegression, "gd", accountant=open_end, **changes).fit(X, y)
        with pytest.raises(BudgetExceededError):
            quiet(DPLogisticRegression, "gd", accountant=ceiling, **changes).fit(X, y)
    assert open_end.spent().epsilon == float("inf")
    assert len(ceiling) == 0


def test_weak_budgets_warn():
    X, y = data()
    with pytest.warns(WeakPrivacyWarning, match="1/n"):
        quiet(DPLogisticRegression, "gd", delta=0.01).fit(X, y)
    with pytest.warns(WeakPrivacyWarning, match="protects little"):
        quiet(DPLogisticRegression, "gd", epsilon=100).fit(X, y)


def test_the_default_solver_warns_where_public_numbers_say_that_little_can_be_learnt():
    n, dimension, delta = 400, 3, 1e-6
    X = np.random.default_rng(0).normal(size=(n, dimension - 1))
    y = np.arange(n) % 2
    edge = gaussian_epsilon(2.0 * dimension / n, delta)  # where mu n / D is 2

    def fit(epsilon, **changes):
        DPLogisticRegression(**{"epsilon": epsilon, "delta": delta, "classes": [0, 1], **changes}).fit(X, y)

    with pytest.warns(WeakSignalWarning, match=r"mu n / D = 2 is below 2, with n = 400 records, D = 3 weights"):
        fit(0.999 * edge)
    with pytest.warns(WeakSignalWarning, match=r"mu n / \(2 D\) = 1 is below"):
        fit(1.001 * edge, neighbours="replace_one")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fit(1.001 * edge)
        fit(0.1 * edge, solver="whitened_gd")
        fit(0.1 * edge, delta=0.0)


def test_seeds_warn_and_mark_guarantee_and_ledger():
    X, y = data()
    accountant = PrivacyAccountant()
    with pytest.warns(SeededNoiseWarning):
        model = quiet(DPLogisticRegression, "gd", accountant=accountant).fit(X, y)
    assert model.privacy_guarantee_.is_seeded
    assert "SEEDED" in str(model.privacy_guarantee_)
    assert accountant.entries()[0].is_seeded
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = quiet(DPLogisticRegression, "gd", random_state=None, accountant=accountant).fit(X, y)
    assert not model.privacy_guarantee_.is_seeded
    assert not accountant.entries()[1].is_seeded


def test_unseeded_fits_differ_and_seeded_ones_do_not():
    X, y = data()
    first, second = (quiet(DPLogisticRegression, "gd", random_state=None).fit(X, y).coef_ for _ in range(2))
    assert (first != second).all()
    first, second = (quiet(DPLogisticRegression, "gd", random_state=5).fit(X, y).coef_ for _ in range(2))
    np.testing.assert_array_equal(first, second)
