"""Public records as a parameter: what they become, how they travel, and what is refused before anything is charged."""

import json
import pickle
import warnings

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from public_cases import MadeAdaDPS, MadeMirror
from sklearn.base import clone
from sklearn.ensemble import VotingClassifier
from sklearn.model_selection import GridSearchCV
from sklearn.utils.estimator_checks import parametrize_with_checks

from dpskl import DPHuberSVC, DPLinearSVC, DPLogisticRegression, PrivacyAccountant
from dpskl.model_selection import plan_cost
from dpskl.records.problem import Problem
from dpskl.solvers import SGD, AdaDPS, PublicMirrorDescent

ESTIMATORS = [DPLogisticRegression, DPLinearSVC, DPHuberSVC]
SOLVERS = [PublicMirrorDescent, AdaDPS]
each_solver = pytest.mark.parametrize("cls", SOLVERS)
RNG = np.random.default_rng(4)
X, Y = RNG.normal(size=(90, 3)), np.arange(90) % 2
PUBLIC, LABELS = RNG.normal(size=(30, 3)) * 2, np.arange(30) % 2
quiet = pytest.mark.filterwarnings("ignore::dpskl.SeededNoiseWarning")


def model_with(solver, estimator=DPLogisticRegression, **changes):
    return estimator(**{"solver": solver, "classes": [0, 1], "random_state": 0, **changes})


def public_problem(cls, public_data, classes, monkeypatch, fit=None, estimator=DPLogisticRegression, **changes):
    """The problem that a plan gets for public records, in ``plan`` or in a ``fit``."""
    seen, plan = [], cls.plan
    with monkeypatch.context() as patch:
        patch.setattr(cls, "plan", lambda self, facts, *budget: seen.append(facts) or plan(self, facts, *budget))
        model = model_with(cls(public_data), estimator, classes=classes, **changes)
        model.plan(100, 3) if fit is None else model.fit(*fit)
    return seen[-1].public_problem


# -- what they become ------------------------------------------------------------------------------------------


@quiet
@each_solver
@pytest.mark.parametrize("estimator", ESTIMATORS)
@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("in_fit", [False, True])
@pytest.mark.parametrize("fit_intercept", [False, True])
def test_they_get_the_map_of_the_private_ones(fit_intercept, in_fit, n_classes, estimator, cls, monkeypatch):
    """A problem of the private records and one of the same records as public ones are the same."""
    codes = np.arange(90) % n_classes
    settings = {"data_norm": 1.3, "fit_intercept": fit_intercept, "estimator": estimator}
    made = []
    monkeypatch.setattr("dpskl.base.Problem", lambda *a, **k: made.append(Problem(*a, **k)) or made[-1])
    problem = public_problem(cls, (X, codes), range(n_classes), monkeypatch, (X, codes) if in_fit else None, **settings)
    if not in_fit:
        model_with(cls((X, codes)), classes=range(n_classes), **settings).fit(X, codes)
    w = np.random.default_rng(0).normal(size=problem.zeros().shape)
    np.testing.assert_array_equal(problem.gradient_sum(w, 0.4), made[0].gradient_sum(w, 0.4))
    assert (problem.row_bound, problem.intercept) == (made[0].row_bound, made[0].intercept)


@quiet
@each_solver
@pytest.mark.parametrize("given", ["words", "numbers of words", "floats", "objects", "negative"])
def test_labels_are_encoded_as_the_private_ones(given, cls, monkeypatch):
    words = np.array(["yes", "no"])  # sorted: no, yes
    classes, private, public = {
        "words": (["yes", "no"], words[Y], words[LABELS]),
        "numbers of words": (["yes", "no"], 1 - Y, words[LABELS]),  # as VotingClassifier passes them
        "floats": ([1.0, 0.0], 1 - Y, 1 - LABELS),
        "objects": (["yes", "no"], words[Y].astype(object), words[LABELS].tolist()),
        "negative": ([1, -1], 1 - 2 * Y, (1 - 2 * LABELS).astype(float)),
    }[given]
    problem = public_problem(cls, (PUBLIC, public), classes, monkeypatch, (X, private))
    np.testing.assert_array_equal(problem.targets, 1 - 2 * LABELS)


@quiet
@each_solver
@pytest.mark.parametrize("private", [np.asarray, sp.csr_matrix, np.float32])
@pytest.mark.parametrize(
    "how", ["list", "frame", "csr", "csc", "float32", "integers", "memmap", "read-only", "fortran"]
)
def test_all_kinds_of_arrays_do(how, private, cls, tmp_path):
    rows = RNG.integers(-3, 4, size=(30, 3))
    mapped = np.memmap(tmp_path / "rows", dtype=float, mode="w+", shape=rows.shape)
    mapped[:] = rows
    mapped.flush()
    fixed = rows.astype(float)
    fixed.flags.writeable = False
    kinds = {
        "list": (rows.tolist(), LABELS.tolist()),
        "frame": (pd.DataFrame(rows), pd.Series(LABELS, index=np.arange(30) + 5)),
        "csr": (sp.csr_array(rows.astype(float)), LABELS),
        "csc": (sp.csc_matrix(rows), LABELS),
        "float32": (rows.astype(np.float32), LABELS),
        "integers": (rows, LABELS.astype(np.int8)),
        "memmap": (np.memmap(tmp_path / "rows", dtype=float, mode="r", shape=rows.shape), LABELS),
        "read-only": (fixed, LABELS),
        "fortran": (np.asfortranarray(fixed), LABELS),
    }
    fits = [
        model_with(cls(records, max_iter=5), data_norm=2.0).fit(private(X), Y)
        for records in (kinds[how], (rows.astype(float), LABELS))
    ]
    np.testing.assert_allclose(fits[0].coef_, fits[1].coef_, rtol=1e-4, atol=1e-6)
    np.testing.assert_array_equal(kinds["memmap"][0], rows)


@quiet
@each_solver
def test_a_plan_is_that_of_the_fit(cls):
    solver = cls((PUBLIC, LABELS), max_iter=5)
    fitted, plan = model_with(solver).fit(X, Y), model_with(solver).plan(90, 3)
    guarantee = fitted.privacy_guarantee_
    assert [part.cost for part in guarantee.parts] == [mechanism.cost for mechanism, _ in plan.questions]
    assert guarantee.epsilon_at(1e-6) <= 1.0
    assert plan.cost.epsilon(1e-6) == SGD(max_iter=5).plan(*_facts(), 1.0, 1e-6).cost.epsilon(1e-6)
    planned = plan_cost(model_with(solver, random_state=None), n_samples=90, n_features=3)
    assert planned.epsilon <= 1.0


def _facts():
    model = model_with(SGD())
    return (model._public_facts(90, 3, 2, model._loss(), 1.0, model.solver),)


@quiet
def test_one_public_record_of_one_class_and_two_private_ones_do():
    for cls in SOLVERS:
        for labels in ([0, 1], [1, 1]):
            model = model_with(cls(([[1.0]], [0]), max_iter=4)).fit([[1.0], [2.0]], labels)
            assert np.isfinite(model.coef_).all()


# -- how they travel -------------------------------------------------------------------------------------------


@quiet
@each_solver
def test_clones_pickles_copies_and_parameters(cls):
    model = model_with(cls((sp.csr_array(PUBLIC), LABELS), max_iter=4))
    first = clone(model).fit(X, Y)
    again = pickle.loads(pickle.dumps(clone(model.solver)))
    np.testing.assert_array_equal(model_with(again).fit(X, Y).coef_, first.coef_)
    loaded = pickle.loads(pickle.dumps(first))
    np.testing.assert_array_equal(loaded.predict(X), first.predict(X))
    assert model.get_params()["solver__public_data"] is model.solver.public_data
    other = model.set_params(solver__public_data=(PUBLIC[:9], LABELS[:9]), solver__max_iter=3)
    assert other.fit(X, Y).n_iter_ == 3
    assert len(other.solver_.public_data[1]) == 9


@quiet
@each_solver
def test_grids_over_parameters_of_the_solver(cls):
    own = {"solver__mixing": [0, "cosine"]} if cls is PublicMirrorDescent else {"solver__stability": [0.1, 10.0]}
    grid = {"solver__max_iter": [2, 4], **own}
    search = GridSearchCV(model_with(cls((PUBLIC, LABELS))), grid, cv=2, error_score="raise").fit(X, Y)
    assert search.best_params_.keys() == grid.keys()
    vote = VotingClassifier([("a", model_with(cls((PUBLIC, np.array(["a", "b"])[LABELS])), classes=["a", "b"]))])
    assert set(vote.fit(X, np.array(["a", "b"])[Y]).predict(X)) <= {"a", "b"}


@each_solver
def test_representations_are_short(cls):
    solver = cls((RNG.normal(size=(100, 9)), [0, 1] * 50))
    assert repr(solver) == f"{cls.__name__}(public_data=(ndarray of shape (100, 9), list of length 100))"
    assert len(repr(model_with(solver))) < 1200
    assert repr(cls((sp.csr_array(PUBLIC), LABELS), max_iter=3)).startswith(
        f"{cls.__name__}(max_iter=3, public_data=(csr_"
    )
    assert repr(cls()) == f"{cls.__name__}()"
    assert repr(AdaDPS(feature_scales=np.ones(40))) == "AdaDPS(feature_scales=ndarray of shape (40,))"
    assert repr(AdaDPS(feature_scales=2.0)) == "AdaDPS(feature_scales=2.0)"


@pytest.mark.filterwarnings("ignore::dpskl.SeededNoiseWarning")
@each_solver
def test_records_of_models_leave_them_out(cls):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = model_with(cls((sp.csr_array(PUBLIC), LABELS), max_iter=4)).fit(X, Y)
        record = json.loads(json.dumps(model.to_dict()))
    again = DPLogisticRegression.from_dict(record)
    np.testing.assert_array_equal(again.predict(X), model.predict(X))
    assert again.solver_.public_data is None
    assert again.solver_.max_iter == 4
    with pytest.raises(ValueError, match="needs public"):
        again.fit(X, Y)


# -- refusals, before anything is charged ----------------------------------------------------------------------


BAD = {
    "no pair": (PUBLIC, r"public_data=ndarray of shape \(30, 3\) must be a pair \(X, y\)"),
    "three": ((PUBLIC, LABELS, LABELS), "must be a pair"),
    "word": ("adult", "public_data='adult' must be a pair"),
    "number": (0, "public_data=0 must be a pair"),
    "lengths": ((PUBLIC, LABELS[:9]), r"public_data=\(ndarray of shape \(30, 3\), .*inconsistent"),
    "nobody": ((PUBLIC[:0], LABELS[:0]), r"public_data=\(ndarray of shape \(0, 3\).*0 sample"),
    "columns": ((PUBLIC[:, :2], LABELS), "public_data=.*its X has 2 columns where fit gets 3"),
    "one dimension": ((PUBLIC[:, 0], LABELS), "public_data=.*2D"),
    "nan": ((PUBLIC * np.nan, LABELS), "public_data=.*NaN"),
    "inf": ((sp.csr_array(PUBLIC + np.inf), LABELS), "public_data=.*infinity"),
    "words in X": ((np.full((30, 3), "a", dtype=object), LABELS), "public_data=.*could not convert"),
    "complex": ((PUBLIC + 0j, LABELS), "public_data=.*Complex"),
    "nothing": ((None, LABELS), "public_data=.*"),
    "no labels": ((PUBLIC, None), "public_data=.*"),
    "unknown label": ((PUBLIC, LABELS + 1), r"public_data=.*y has labels \[2\] that classes=\[0, 1\] lacks; declare"),
    "word label": ((PUBLIC, np.array(["a", "b"])[LABELS]), "public_data=.*y has labels"),
    "broken label": ((PUBLIC, LABELS / 2), "public_data=.*Unknown label type"),
    "mixed labels": ((PUBLIC, [0, "a"] * 15), "public_data=.*"),
}


@each_solver
@pytest.mark.parametrize("case", BAD)
def test_unusable_records_are_refused_before_anything_is_charged(case, cls):
    records, message = BAD[case]
    accountant = PrivacyAccountant()
    model = model_with(cls(records), accountant=accountant, random_state=None)
    with np.errstate(all="ignore"), pytest.raises(ValueError, match=message):
        model.fit(X, Y)
    with np.errstate(all="ignore"), pytest.raises(ValueError, match=message):
        model.plan(90, 3)
    assert accountant.entries() == ()


@each_solver
def test_nothing_is_said_of_public_labels_beside_private_ones(cls):
    """Where labels are read from the private records, an error would tell which of them there are."""
    accountant = PrivacyAccountant()
    messages = set()
    for labels in (LABELS, LABELS + 1, LABELS + 7):
        model = model_with(cls((PUBLIC, labels)), classes=None, accountant=accountant, random_state=None)
        with pytest.raises(ValueError, match=r"classes=None reads them from the private y.*by classes=") as error:
            model.fit(X, Y)
        messages.add(str(error.value))
        with pytest.raises(ValueError, match="declare all that can occur by classes="):
            model.plan(90, 3, n_classes=2)
    assert len(messages) == 1
    assert accountant.entries() == ()


@quiet
@each_solver
def test_columns_with_names_must_be_the_same(cls):
    private = pd.DataFrame(X, columns=["a", "b", "c"])
    public = pd.DataFrame(PUBLIC, columns=["a", "b", "c"])
    first = model_with(cls((public, LABELS), max_iter=4)).fit(private, Y)
    np.testing.assert_array_equal(model_with(cls((PUBLIC, LABELS), max_iter=4)).fit(private, Y).coef_, first.coef_)
    np.testing.assert_array_equal(model_with(cls((public, LABELS), max_iter=4)).fit(X, Y).coef_, first.coef_)
    accountant = PrivacyAccountant()
    with pytest.raises(ValueError, match=r"its column 0 is 'c' where that of fit is 'a'.*same order"):
        model_with(cls((public[["c", "b", "a"]], LABELS)), accountant=accountant).fit(private, Y)
    assert accountant.entries() == ()


# -- scikit-learn's own checks -----------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore")
@parametrize_with_checks([cls(solver=solver()) for cls in ESTIMATORS for solver in (MadeMirror, MadeAdaDPS)])
def test_scikit_learn_check(estimator, check):
    check(estimator)


@pytest.mark.filterwarnings("ignore")
@parametrize_with_checks(
    [cls(solver=MadeMirror(mirror="exact", max_iter=20)) for cls in (DPLogisticRegression, DPHuberSVC)]
)
def test_scikit_learn_check_of_the_exact_form(estimator, check):
    check(estimator)
