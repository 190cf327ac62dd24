"""Row maps: rows that fill the bound, what that makes of sensitivities, and the parameter of the solvers."""

import warnings
from math import hypot

import numpy as np
import pytest
import scipy.sparse as sp

from dpskl import DPLogisticRegression, PrivacyAccountant, SeededNoiseWarning
from dpskl.records.design import Design
from dpskl.records.loss_changes import coordinate_changes
from dpskl.records.losses import Logistic
from dpskl.records.problem import Problem
from dpskl.records.row_maps import ROW_MAPS, row_bound
from dpskl.solvers import (
    FTRL,
    SGD,
    AdaDPS,
    AdaGrad,
    Adam,
    AdaptiveGD,
    BacktrackingGD,
    BacktrackingSGD,
    DelayedPreconditioner,
    ExponentialMechanism,
    FrankWolfe,
    GradientDescent,
    Newton,
    ObjectivePerturbation,
    OutputPerturbation,
    PrivGene,
    PublicFacts,
    PublicMirrorDescent,
    RMSProp,
)

SOLVERS = [
    GradientDescent(max_iter=5),
    GradientDescent(max_iter=5, iterate="last", step_size=0.1),
    Newton(max_iter=5),
    Newton("majorant", max_iter=5),
    ObjectivePerturbation(),
    OutputPerturbation(),
    BacktrackingGD(n_updates=5),
    BacktrackingSGD(n_updates=5),
    AdaptiveGD(n_updates=5),
    PrivGene(max_iter=5),
    FrankWolfe(max_iter=5),
    ExponentialMechanism(max_iter=5),
    FTRL(max_iter=5),
    *(cls(max_iter=5, rate=0.2) for cls in (SGD, Adam, RMSProp, AdaGrad, DelayedPreconditioner)),
    AdaDPS(feature_scales=2.0, max_iter=5),
    PublicMirrorDescent((np.eye(4), [0, 1, 0, 1]), mixing=0.5, max_iter=5),
]
each_solver = pytest.mark.parametrize("solver", SOLVERS, ids=repr)
LAYOUTS = [np.ascontiguousarray, np.asfortranarray, sp.csr_array]


def with_rows(solver, rows):
    return type(solver)(**{**solver.get_params(), "rows": rows})


def facts(**changes):
    settings = {
        "n_samples": 1000,
        "n_features": 4,
        "n_classes": 2,
        "data_norm": 2.0,
        "intercept": 0.6,
        "loss": Logistic(),
        "neighbours": "add_remove",
        "C": 1.0,
        **changes,
    }
    return PublicFacts(**settings)


def mapped(X, norm, intercept, rows):
    """The definitions, row by row; rows of zeros have no direction, and fill nothing."""
    out = np.column_stack([X, np.full(len(X), intercept)])
    for row in out:
        if rows != "sphere" and np.linalg.norm(row[:-1]) > norm:
            row[:-1] *= norm / np.linalg.norm(row[:-1])
        if rows == "fill" and not row[:-1].any():
            row *= norm / hypot(norm, intercept)
        elif rows != "clip" and row.any():
            row *= norm / np.linalg.norm(row)
    return out if intercept else out[:, :-1]


def uneven_rows(rng, n=60, d=4):
    """Rows of very different lengths, one of them of zeros."""
    X = rng.normal(size=(n, d)) * 10.0 ** rng.uniform(-3, 3, size=(n, 1))
    X[rng.random(X.shape) < 0.3] = 0
    X[0] = 0
    return X


# -- the maps -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("intercept", [0.0, 0.6])
@pytest.mark.parametrize("rows", ROW_MAPS)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_design_is_what_its_map_says(layout, rows, intercept):
    rng = np.random.default_rng(0)
    X = uneven_rows(rng)
    design = Design(layout(X), data_norm=2.0, intercept=intercept, rows=rows)
    expected = mapped(X, 2.0, intercept, rows)
    got = np.column_stack([design.column(j) for j in range(expected.shape[1])])
    np.testing.assert_allclose(got, expected, rtol=1e-10, atol=1e-13)
    np.testing.assert_allclose(design.row_norms, np.linalg.norm(expected, axis=1), rtol=1e-10)
    weights = rng.normal(size=expected.shape[1])
    np.testing.assert_allclose(design.scores(weights), expected @ weights, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(design.adjoint(np.ones(len(X))), expected.sum(axis=0), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("data_norm", [1e-100, 1.0, 1e100])
@pytest.mark.parametrize("ratio", [0.0, 0.3])
@pytest.mark.parametrize("rows", ROW_MAPS)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_no_row_exceeds_its_bound_whatever_its_size(layout, rows, ratio, data_norm):
    rng = np.random.default_rng(1)
    X = rng.normal(size=(900, 5)) * 10.0 ** rng.integers(-170, 155, size=(900, 1))
    X[0], X[1], X[2] = 1e200, 0, 1e-170  # a square that overflows, nothing, a square that vanishes
    design = Design(layout(X), data_norm=data_norm, intercept=ratio * data_norm, rows=rows)
    columns = np.stack([design.column(j) for j in range(5 + (ratio > 0))]) / data_norm
    norms = np.sqrt((columns.astype(np.longdouble) ** 2).sum(axis=0))
    bound = row_bound(1.0, ratio, rows)
    assert design.row_bound == pytest.approx(bound * data_norm, rel=1e-15)
    assert bound - 1e-11 <= norms.max() <= bound
    if rows == "fill" and ratio:
        is_lost = norms < 1 - 1e-9
        assert is_lost[:3].all()
        # no row has less of a constant than the longest, whose constant vanishes on the sphere, and those without any
        # direction have the same
        least = ratio / hypot(1, ratio)
        assert columns[-1].min() >= least - 1e-9
        np.testing.assert_allclose(columns[-1, is_lost], least, rtol=1e-9)
    assert np.isfinite(design.scores(np.full(design.n_weights, 1 / data_norm))).all()


def test_filling_is_clipping_in_another_unit_where_rows_are_long_and_never_has_less_of_the_features():
    rng = np.random.default_rng(2)
    X = rng.normal(size=(200, 4))
    X *= (10.0 ** rng.uniform(-4, 1, size=200) / np.linalg.norm(X, axis=1))[:, None]
    shares = {}
    for rows in ("clip", "fill"):
        design = Design(X, data_norm=1.0, intercept=0.3, rows=rows)
        columns = np.column_stack([design.column(j) for j in range(4)]) / design.row_bound
        shares[rows] = np.linalg.norm(columns, axis=1)
    is_long = np.linalg.norm(X, axis=1) >= 1
    assert 0 < is_long.sum() < 200
    np.testing.assert_allclose(shares["fill"][is_long], shares["clip"][is_long], rtol=1e-10)
    gains = shares["fill"] / shares["clip"]
    assert gains.min() >= 1 - 1e-10
    assert gains.max() == pytest.approx(hypot(1, 0.3) / 0.3, rel=1e-3)


# -- sensitivities --------------------------------------------------------------------------------------


@pytest.mark.parametrize("rows", ROW_MAPS)
def test_the_largest_change_by_one_record_is_the_stated_bound(rows):
    """All data sets of three records with one exchanged or left out: the gradient sum moves by the bound, no more."""
    rng = np.random.default_rng(3)
    loss, weights = Logistic(), np.array([30.0, -50.0, 20.0, 5.0, 10.0])
    stated = loss.gradient_bound(1) * facts(rows=rows).row_norm
    X = uneven_rows(rng, n=300)
    X[1:100] *= 1e3  # longer than the bound, so that it is met under each map
    y = loss.encode(rng.integers(0, 2, len(X)), 2)

    def gradient(chosen):
        problem = Problem(X[chosen], y[chosen], loss, data_norm=2.0, intercept=0.6, rows=rows)
        return problem.gradient_sum(weights)

    common = [0, 1]
    shifts = [np.linalg.norm(gradient([*common, i]) - gradient(common)) for i in range(2, len(X))]
    assert max(shifts) <= stated * (1 + 1e-12)
    assert max(shifts) >= 0.999 * stated
    swaps = [np.linalg.norm(gradient([0, i]) - gradient([0, j])) for i in range(100, 160) for j in range(40)]
    assert max(swaps) <= 2 * stated * (1 + 1e-12)


@pytest.mark.parametrize(("rows", "bound"), [("clip", hypot(2.0, 0.6)), ("sphere", 2.0), ("fill", 2.0)])
@each_solver
def test_plans_state_the_bound_of_their_map(solver, rows, bound):
    solver = with_rows(solver, rows)
    public = facts(rows=rows, public_problem="of the solver that needs one")
    assert public.row_norm == bound
    plan = solver.plan(public, 1.0, 1e-6)
    question = getattr(plan.questions[0][0], "mechanism", plan.questions[0][0])  # of a sample
    if isinstance(solver, ObjectivePerturbation):
        assert plan.describe()[0].sensitivity == pytest.approx(bound, rel=1e-6)
    elif isinstance(solver, OutputPerturbation):
        assert question.training.gradient_bound == bound
    elif isinstance(solver, Newton):
        assert question.row_norm == bound
    elif isinstance(solver, ExponentialMechanism | AdaptiveGD):
        assert question.clip_norm == bound
    elif not isinstance(solver, PrivGene | FrankWolfe):  # they bound losses and entries by data_norm
        largest = with_rows(solver, rows).set_params(clip_norm=1e9).plan(public, 1.0, 1e-6)
        question = getattr(largest.questions[0][0], "mechanism", largest.questions[0][0])
        # that of scaled gradients is told when they are asked for
        assert getattr(question, "clip_norm", getattr(largest.settings, "clip_norm", None)) == bound


def test_the_bound_of_the_clip_holds_for_all_maps():
    """So facts that do not say which map there is are on the safe side."""
    assert facts().rows == "clip"
    assert all(facts().row_norm >= facts(rows=rows).row_norm for rows in ROW_MAPS)


@pytest.mark.parametrize("rows", ROW_MAPS)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_moves_of_one_weight_count_the_mapped_rows(layout, rows):
    """Indicators have a fast path of their own, which must see the same factors as other columns."""
    rng = np.random.default_rng(4)
    X = uneven_rows(rng, n=200, d=6)
    X[:, :3] = rng.random((200, 3)) < 0.4
    loss = Logistic()
    y = loss.encode(rng.integers(0, 2, 200), 2)
    problem = Problem(layout(X), y, loss, data_norm=1.5, intercept=0.45, rows=rows)
    design, weights = mapped(X, 1.5, 0.45, rows), rng.normal(size=7)
    expected = np.zeros((2, 7))
    for j in range(7):
        for row, step in enumerate((0.5, -0.5)):
            change = loss.values(design @ (weights + step * np.eye(7)[j]), y) - loss.values(design @ weights, y)
            expected[row, j] = np.clip(change, -0.2, 0.2).sum()
    got = coordinate_changes(problem, weights, 0.5, 0.2)
    np.testing.assert_allclose(got[..., 0], expected, rtol=1e-5, atol=1e-4)


# -- the parameter of the solvers -----------------------------------------------------------------------


@pytest.mark.parametrize("rows", ROW_MAPS)
@each_solver
def test_fit_and_predict_share_the_map(solver, rows):
    rng = np.random.default_rng(5)
    X = uneven_rows(rng, n=200)
    y = (X @ [1.0, -1.0, 0.5, 0.0] > 0).astype(int)
    solver = with_rows(solver, rows)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SeededNoiseWarning)
        model = DPLogisticRegression(5.0, solver=solver, data_norm=2.0, classes=[0, 1], random_state=0).fit(X, y)
    design = mapped(X, 2.0, 0.6, rows)
    expected = design[:, :-1] @ model.coef_[0] + design[:, -1] * (model.intercept_[0] / 0.6)
    np.testing.assert_allclose(model.decision_function(X), expected, rtol=1e-8, atol=1e-8)
    model.solver_.rows = "clip" if rows == "fill" else "fill"  # what was fitted is not changed by its solver
    np.testing.assert_allclose(model.decision_function(X), expected, rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("solver", [ObjectivePerturbation(), GradientDescent(), OutputPerturbation()], ids=repr)
def test_a_bound_that_rows_do_not_reach_costs_less_where_they_fill_it(solver):
    """Rows of about a quarter of the true bound, ten seeds: what was measured on public data, in small."""
    rng = np.random.default_rng(6)
    X = np.clip(rng.normal(size=(4000, 16)) / 4, -1, 1)
    y = (X @ rng.normal(size=16) > 0).astype(int)
    means = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SeededNoiseWarning)
        for rows in ("clip", "fill"):
            models = [
                DPLogisticRegression(
                    0.5, solver=with_rows(solver, rows), data_norm=8.0, classes=[0, 1], random_state=seed
                ).fit(X, y)
                for seed in range(10)
            ]
            means[rows] = np.mean([model.score(X, y) for model in models])
    print(means)
    assert means["fill"] > means["clip"] + 0.05


@each_solver
def test_a_map_that_does_not_exist_is_refused_before_anything_is_spent(solver):
    ledger = PrivacyAccountant(epsilon=10.0, delta=1e-5)
    model = DPLogisticRegression(solver=with_rows(solver, "cube"), classes=[0, 1], accountant=ledger)
    with pytest.raises(ValueError, match="rows='cube' must be one of 'clip', 'sphere', 'fill'"):
        model.fit(np.eye(4), [0, 1, 0, 1])
    assert ledger.spent().epsilon == 0
    with pytest.raises(ValueError, match="rows='cube' must be one of"):
        Design(np.eye(4), data_norm=1.0, rows="cube")


def test_filling_is_the_default_of_every_solver_that_takes_any_map():
    assert all(solver.rows == "fill" for solver in SOLVERS)
