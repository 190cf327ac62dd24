"""The estimators: what they accept, what they leave behind, and their limits without noise."""

import json
import pickle
import warnings

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from linear_model_cases import PAIRS, data, each_pair, quiet
from scipy.optimize import minimize
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MaxAbsScaler

from dpskl import (
    BudgetExceededError,
    DPHuberSVC,
    DPLogisticRegression,
    NoPrivacyWarning,
    PrivacyAccountant,
    SeededNoiseWarning,
    WeakPrivacyWarning,
)
from dpskl.records.losses import HuberHinge, Logistic, Softmax
from dpskl.solvers import ExponentialMechanism, FrankWolfe, GradientDescent, PrivGene

pytestmark = pytest.mark.filterwarnings("ignore::dpskl.SeededNoiseWarning")


# -- inputs ---------------------------------------------------------------------------------------------


@each_pair
@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("fit_intercept", [True, False])
def test_layouts_agree_and_learn(cls, solver, n_classes, fit_intercept, tmp_path):
    X, y = data(400, n_classes=n_classes)
    X = X.astype(np.float32).astype(float)
    X[:, 2] = 0  # a column without values
    reference = quiet(cls, solver, n_classes, epsilon=8.0, fit_intercept=fit_intercept).fit(X, y)
    assert reference.score(X, y) > 0.8
    mapped = np.memmap(tmp_path / "X", dtype=float, mode="w+", shape=X.shape)
    mapped[:] = X
    mapped.flush()
    readonly = X.copy()
    readonly.flags.writeable = False
    inputs = {
        "Fortran": np.asfortranarray(X),
        "float32": X.astype(np.float32),
        "csr": sp.csr_array(X),
        "csr matrix": sp.csr_matrix(X),
        "csr float32": sp.csr_array(X.astype(np.float32)),
        "csc": sp.csc_array(X),
        "frame": pd.DataFrame(X),
        "list": X.tolist(),
        "object": X.astype(object),
        "strided": np.repeat(X, 2, axis=0)[::2],
        "memmap": np.memmap(tmp_path / "X", dtype=float, mode="r", shape=X.shape),
        "readonly": readonly,
    }
    for name, given in inputs.items():
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="X does not have valid feature names")
            warnings.filterwarnings("ignore", message="X has feature names")
            model = quiet(cls, solver, n_classes, epsilon=8.0, fit_intercept=fit_intercept).fit(given, y)
            np.testing.assert_allclose(model.coef_, reference.coef_, atol=1e-5, err_msg=name)
            np.testing.assert_allclose(model.intercept_, reference.intercept_, atol=1e-5, err_msg=name)
            scores = model.decision_function(given)
        np.testing.assert_allclose(scores, reference.decision_function(X), atol=1e-4, err_msg=name)
    assert reference.coef_.shape == ((1 if n_classes == 2 else 3), 4)
    assert reference.intercept_.shape == reference.coef_.shape[:1]
    assert fit_intercept or not reference.intercept_.any()


@each_pair
def test_strings_two_rows_and_an_absent_class(cls, solver):
    X, y = data()
    names = np.array(["no", "yes"])[y]
    model = quiet(cls, solver, classes=["yes", "no"], epsilon=20.0).fit(X, names)
    assert model.classes_.tolist() == ["no", "yes"]
    assert model.score(X, names) > 0.9
    two = quiet(cls, solver).fit(X[:2], y[:2])
    assert np.isfinite(two.coef_).all()
    absent = quiet(cls, solver, 3).fit(X, y)
    assert absent.coef_.shape[0] == 3
    assert absent.classes_.tolist() == [0, 1, 2]
    one = quiet(cls, solver).fit(X, np.zeros(len(X), dtype=int))  # declared, so one class in y is fine
    assert np.isfinite(one.coef_).all()


@each_pair
def test_rows_are_scaled_down_in_fit_and_predict(cls, solver):
    X, y = data()
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    # on the sphere a row is scaled together with its constant, so a longer one has less of it
    settings = {"data_norm": 1.0, "fit_intercept": solver != "whitened_gd"}
    model = quiet(cls, solver, **settings).fit(X, y)
    long = quiet(cls, solver, **settings).fit(X * 1e3, y)
    np.testing.assert_allclose(model.coef_, long.coef_, rtol=1e-6)
    np.testing.assert_allclose(model.decision_function(7 * X), model.decision_function(X), rtol=1e-6)


@each_pair
def test_scaling_X_and_data_norm_together_changes_nothing(cls, solver):
    X, y = data()
    small = quiet(cls, solver, data_norm=1.0, C=4.0).fit(X, y)
    large = quiet(cls, solver, data_norm=64.0, C=4.0 / 64**2).fit(64 * X, y)
    np.testing.assert_allclose(large.decision_function(64 * X), small.decision_function(X), rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("layout", [np.ascontiguousarray, np.asfortranarray, sp.csr_array])
@pytest.mark.parametrize(
    ("cls", "solver"), [*PAIRS, (DPLogisticRegression, GradientDescent(max_iter=5, iterate="last", step_size=0.1))]
)
def test_a_row_whose_square_overflows_tells_nothing(cls, solver, layout):
    """It is finite, so it is valid; scaled to norm 1 it is nothing, and neither nan nor a warning may show it."""
    X, y = data(100, d=2)
    X[0], X[1], X[2] = [1.7e308, 1.7e308], [-1.7e308, 1.7e308], [1e200, -1e308]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.simplefilter("ignore", SeededNoiseWarning)
        model = quiet(cls, solver, epsilon=5.0).fit(layout(X), y)
        assert np.isfinite(model.coef_).all()
        assert np.isfinite(model.decision_function(layout(X))).all()
    zeroed = X.copy()
    zeroed[:3] = 0
    np.testing.assert_allclose(model.coef_, quiet(cls, solver, epsilon=5.0).fit(layout(zeroed), y).coef_, rtol=1e-9)


def test_duplicate_entries_of_a_sparse_row_are_added_before_its_norm_is_taken():
    rows, columns = np.array([0, 0, 1, 1]), np.array([0, 0, 0, 1])
    X = sp.csr_array((np.array([3.0, 4.0, -1.0, 1.0]), columns, np.array([0, 2, 4])), shape=(2, 2))
    assert not X.has_canonical_format
    before = X.data.copy()
    model = quiet(DPLogisticRegression, "gd", data_norm=1.0).fit(X, [1, 0])
    dense = quiet(DPLogisticRegression, "gd", data_norm=1.0).fit(X.toarray(), [1, 0])
    np.testing.assert_allclose(model.coef_, dense.coef_)
    np.testing.assert_array_equal(X.data, before)
    assert len(rows) == 4


def test_duplicate_entries_that_add_up_to_infinity_are_refused_before_anything_is_spent():
    X = sp.csr_array((np.array([1.5e308, 1.5e308, 1.0]), np.array([0, 0, 1]), np.array([0, 2, 3])), shape=(2, 2))
    accountant = PrivacyAccountant()
    with pytest.raises(ValueError, match="infinity"):
        quiet(DPLogisticRegression, "gd", accountant=accountant).fit(X, [0, 1])
    assert len(accountant) == 0


# -- limits ---------------------------------------------------------------------------------------------


def bounded(X, norm, intercept):
    scale = np.minimum(1, norm / np.linalg.norm(X, axis=1))
    rows = np.column_stack([X * scale[:, None], np.full(len(X), intercept)])
    return rows * (norm / np.linalg.norm(rows, axis=1))[:, None]


def ridge_minimum(design, signs, loss, ridge):
    def objective(w):
        margins = signs * (design @ w)
        return (
            loss.value(margins).sum() + ridge * w @ w / 2,
            design.T @ (signs * loss.slope(margins)) + ridge * w,
        )

    options = {"maxiter": 10_000, "ftol": 1e-16, "gtol": 1e-9}
    return minimize(objective, np.zeros(design.shape[1]), jac=True, method="L-BFGS-B", options=options).x


@pytest.mark.parametrize("epsilon", [float("inf"), 1e8])
@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize(("cls", "loss"), [(DPLogisticRegression, Logistic()), (DPHuberSVC, HuberHinge())])
def test_without_noise_objective_perturbation_is_the_ridge_minimiser(cls, loss, n_classes, epsilon):
    X, y = data(n_classes=n_classes)
    warning = NoPrivacyWarning if epsilon == float("inf") else WeakPrivacyWarning
    with pytest.warns(warning):
        model = quiet(cls, "objective_perturbation", n_classes, epsilon=epsilon, C=0.5).fit(X, y)
    assert model.effective_C_ == 0.5
    design = bounded(X, 3.0, 0.9)
    for k in range(len(model.coef_)):
        signs = np.where(y == (1 if n_classes == 2 else k), 1.0, -1.0)
        expected = ridge_minimum(design, signs, loss, 2.0)
        np.testing.assert_allclose(model.coef_[k], expected[:-1], atol=2e-3)
        np.testing.assert_allclose(model.intercept_[k], 0.9 * expected[-1], atol=2e-3)
    assert (model.privacy_guarantee_ is None) == (epsilon == float("inf"))


@pytest.mark.parametrize("epsilon", [float("inf"), 1e8])
@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize(
    "changes", [{}, {"momentum": 0.0, "iterate": "last"}, {"projection_radius": 0.5, "clip_norm": 0.1}]
)
def test_without_noise_gradient_descent_is_its_plain_reference(changes, n_classes, epsilon):
    X, y = data(n_classes=n_classes)
    solver = GradientDescent(**{"max_iter": 30, "step_size": 0.4, "momentum": 0.5, "clip_norm": 1.0, **changes})
    with pytest.warns((NoPrivacyWarning, WeakPrivacyWarning)):
        model = quiet(DPLogisticRegression, solver, n_classes, epsilon=epsilon).fit(X, y)
    design = bounded(X, 3.0, 0.9)
    loss = Logistic() if n_classes == 2 else Softmax()
    targets = loss.encode(y, n_classes)
    w = np.zeros(design.shape[1] if n_classes == 2 else (design.shape[1], n_classes))
    velocity, iterates = np.zeros_like(w), []
    for _ in range(30):
        residuals = loss.residuals(design @ w, targets)
        gradients = np.einsum("ij,i...->ij...", design, residuals)
        norms = np.sqrt((gradients.reshape(len(X), -1) ** 2).sum(axis=1))
        factors = np.minimum(1, solver.clip_norm / norms).reshape(-1, *[1] * (gradients.ndim - 1))
        gradient = ((gradients * factors).sum(axis=0) + w / 1.0) / len(X)
        velocity = solver.momentum * velocity - solver.step_size * gradient
        w = w + velocity
        if solver.projection_radius is not None:
            w = w * min(1, solver.projection_radius / np.linalg.norm(w))
        iterates.append(w)
    expected = w if solver.iterate == "last" else np.mean(iterates[15:], axis=0)
    got = np.vstack([model.coef_.T, model.intercept_ / 0.9])
    np.testing.assert_allclose(got, expected.reshape(got.shape), atol=1e-10 if epsilon == float("inf") else 2e-3)


def test_C_acts_and_effective_C_tells_what_was_used():
    X, y = data()
    weak = quiet(DPLogisticRegression, "objective_perturbation", epsilon=20.0, C=10.0).fit(X, y)
    strong = quiet(DPLogisticRegression, "objective_perturbation", epsilon=20.0, C=1e-3).fit(X, y)
    assert weak.effective_C_ <= 10.0
    assert strong.effective_C_ == pytest.approx(1e-3)
    assert np.linalg.norm(strong.coef_) < 0.5 * np.linalg.norm(weak.coef_)
    forced = quiet(DPLogisticRegression, "objective_perturbation", epsilon=0.05, C=1e3).fit(X, y)
    assert forced.effective_C_ < 1  # the proof needs more ridge than was asked for


# -- what a fit leaves behind -------------------------------------------------------------------------


@each_pair
@pytest.mark.parametrize("C", [1e-200, 1e-4, 1e4, 1e200])
@pytest.mark.parametrize("epsilon", [1e-4, 1.0, 500.0])
def test_every_penalty_and_budget_gives_finite_weights(cls, solver, epsilon, C):
    X, y = data()
    X[:, 1] = X[:, 0]  # a singular Gram matrix
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", WeakPrivacyWarning)
        model = quiet(cls, solver, epsilon=epsilon, C=C).fit(X, y)
    assert np.isfinite(model.coef_).all()
    assert np.isfinite(model.decision_function(X)).all()


def test_probabilities():
    for n_classes in (2, 3):
        X, y = data(n_classes=n_classes)
        model = quiet(DPLogisticRegression, "gd", n_classes, epsilon=5.0).fit(X, y)
        probabilities = model.predict_proba(X)
        np.testing.assert_allclose(probabilities.sum(axis=1), 1)
        np.testing.assert_allclose(np.exp(model.predict_log_proba(X)), probabilities)
        np.testing.assert_array_equal(model.classes_[probabilities.argmax(axis=1)], model.predict(X))
        model.coef_ = model.coef_ * 1e4  # heavy noise
        assert np.isfinite(model.predict_log_proba(X)).all()
    assert not hasattr(DPHuberSVC(), "predict_proba")


def test_guarantee_tells_all():
    X, y = data()
    for solver in ("gd", "objective_perturbation", "exponential_mechanism"):
        guarantee = quiet(DPLogisticRegression, solver, random_state=None).fit(X, y).privacy_guarantee_
        assert (guarantee.epsilon, guarantee.delta, guarantee.neighbours) == (1.0, 1e-6, "add_remove")
        assert guarantee.epsilon_at(1e-6) == pytest.approx(1.0, rel=1e-6)
        assert guarantee.epsilon_at(1e-6) <= 1.0 + 1e-12
        assert guarantee.epsilon_at(1e-9) > 1.0 > guarantee.epsilon_at(1e-3)
        text = str(guarantee)
        for word in ("whole model", "add_remove", "sensitivity", "noise", "public", "floating-point"):
            assert word in text
        assert json.loads(json.dumps(guarantee.to_dict()))["epsilon"] == 1.0


# solvers on samples, and what reads all records instead
ON_SAMPLES = {"blsgd": "'blgd'", **dict.fromkeys(("sgd", "adam", "rmsprop", "adagrad", "dp2"), "rate=1")}


@each_pair
def test_replace_one_needs_more_noise(cls, solver):
    X, y = data()
    if solver == "exponential_mechanism":  # its rules for penalty and steps depend on the relation
        solver = ExponentialMechanism(ridge=10.0, max_iter=100)
    scale = {}
    # few selections do not follow the square root
    solver = {"privgene": PrivGene(20), "frank_wolfe": FrankWolfe(20)}.get(solver, solver)
    for neighbours in ("add_remove", "replace_one"):
        model = quiet(cls, solver, neighbours=neighbours)
        if neighbours == "replace_one" and solver in ON_SAMPLES:
            with pytest.raises(ValueError, match=f"'replace_one'.*'{solver}'.*'add_remove'.*{ON_SAMPLES[solver]}"):
                model.fit(X, y)
            return
        model.fit(X, y)
        assert model.privacy_guarantee_.neighbours == neighbours
        # the number of steps and the ridge may depend on the relation
        parts = model.privacy_guarantee_.parts
        if solver in ("newton", "whitened_gd"):
            parts = parts[1:]  # the second moment of an exchanged row moves by the square root of 2
        scale[neighbours] = np.array([part.noise / np.sqrt(part.count) / model.effective_C_ for part in parts])
    np.testing.assert_allclose(scale["replace_one"], 2 * scale["add_remove"], rtol=0.05)


@each_pair
def test_parameters_are_left_alone_and_models_travel(cls, solver):
    X, y = data()
    model = quiet(cls, solver, accountant=PrivacyAccountant(), data_norm=3.0)
    before = dict(model.get_params(deep=False))
    model.fit(X, y)
    assert model.get_params(deep=False) == before
    again = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(again.predict(X), model.predict(X))
    assert again.accountant is model.accountant
    assert str(again.privacy_guarantee_) == str(model.privacy_guarantee_)
    assert clone(model).accountant is model.accountant


def test_solver_parameters_can_be_searched():
    X, y = data()
    search = GridSearchCV(
        quiet(DPLogisticRegression, GradientDescent(max_iter=5)),
        {"solver__clip_norm": [0.1, 1.0], "epsilon": [1.0, 4.0]},
        cv=2,
    )
    search.fit(X, y)
    assert search.best_estimator_.solver_.clip_norm in (0.1, 1.0)
    assert search.best_estimator_.n_iter_ == 5


def test_one_accountant_counts_a_search_in_one_process():
    X, y = data()
    accountant = PrivacyAccountant(epsilon=100)
    model = make_pipeline(MaxAbsScaler(), quiet(DPLogisticRegression, "gd", accountant=accountant))
    GridSearchCV(model, {"dplogisticregression__epsilon": [0.5, 1.0]}, cv=3, n_jobs=1).fit(X, y)
    assert len(accountant) == 7
    cross_val_score(model, X, y, cv=4)
    assert len(accountant) == 11


def test_exhausted_budget_leaves_the_model_unfitted():
    X, y = data()
    accountant = PrivacyAccountant(epsilon=1.0)
    model = quiet(DPLogisticRegression, "gd", accountant=accountant, epsilon=2.0)
    with pytest.raises(BudgetExceededError, match="Nothing was charged"):
        model.fit(X, y)
    assert not hasattr(model, "coef_")
    assert len(accountant) == 0


def test_verbose_prints_public_facts_only(capsys):
    X, y = data()
    outputs = []
    for shift in (0.0, 0.5):
        quiet(DPLogisticRegression, "gd", random_state=None, verbose=1).fit(X + shift, y)
        outputs.append(capsys.readouterr().out)
    assert outputs[0] == outputs[1]
    assert "differential privacy" in outputs[0]


RELEASES = {"coef_", "intercept_"}
AT_RUN_TIME = {"agd", "blgd", "blsgd"}  # how often they ask is decided by what they released


@each_pair
@pytest.mark.parametrize("n_classes", [2, 3])
def test_nothing_but_the_declared_releases_depends_on_the_data(cls, solver, n_classes):
    """Neighbouring and far data sets: every other attribute and every warning is the same."""
    X, y = data(n_classes=n_classes)
    rng = np.random.default_rng(3)
    neighbour, far = X.copy(), rng.normal(size=X.shape) * 50
    neighbour[7] = 1e6
    releases = RELEASES | ({"n_iter_", "history_"} if solver in AT_RUN_TIME else set())
    seen = []
    for rows, labels in ((X, y), (neighbour, y), (far, np.zeros_like(y))):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            model = quiet(cls, solver, n_classes, accountant=PrivacyAccountant()).fit(rows, labels)
        attributes = {k: repr(v) for k, v in vars(model).items() if k.endswith("_") and k not in releases}
        entry = {k: v for k, v in model.accountant.entries()[0].to_dict().items() if k != "time"}
        seen.append((attributes, [str(w.message) for w in caught], entry))
    assert seen[0] == seen[1] == seen[2]
    assert set(seen[0][0]) | releases == {
        "coef_", "intercept_", "classes_", "n_iter_", "history_", "privacy_guarantee_", "effective_C_", "data_norm_",
        "solver_", "n_features_in_",
    }  # fmt: skip
