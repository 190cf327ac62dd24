"""Changes of the loss, by coordinate and in a population, against direct evaluation."""

from math import inf

import numpy as np
import pytest
import scipy.sparse as sp
from privgene_cases import CASES, make_problem, mixed_records

from dpskl.records.loss_changes import coordinate_changes, population_changes

LAYOUTS = {
    "C": np.ascontiguousarray,
    "Fortran": np.asfortranarray,
    "float32": lambda X: X.astype(np.float32),
    "csr": sp.csr_array,
    "csr float32": lambda X: sp.csr_array(X.astype(np.float32)),
}


def direct_losses(problem, weights):
    """Losses of all records at a matrix of weights, by the rows of the bounded design one column after another."""
    design = np.column_stack([problem.column(j) for j in range(problem.n_weights)])
    scores = design @ weights
    return problem.loss.values(scores if problem.n_outputs > 1 else scores[:, 0], problem.targets)


def direct_changes(problem, weights, step, cap):
    matrix = weights.reshape(problem.n_weights, -1)
    before, out = direct_losses(problem, matrix), np.empty((2, *matrix.shape))
    for s, j, k in np.ndindex(out.shape):
        moved = matrix.copy()
        moved[j, k] += -step if s else step
        out[s, j, k] = np.clip(direct_losses(problem, moved) - before, -cap, cap).sum()
    return out


@pytest.mark.parametrize("intercept", [0.0, 0.3])
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("case", CASES)
def test_coordinate_changes_equal_direct_evaluation(case, layout, intercept):
    rng = np.random.default_rng(5)
    X, codes = mixed_records(rng, 300, CASES[case][1])
    X[8, 3] = 2.0**70 if "float32" in layout else 1e200  # the latter row is scaled to nothing
    given = LAYOUTS[layout](X)
    for array in (given.data, given.indices, given.indptr) if sp.issparse(given) else (given,):
        array.flags.writeable = False
    problem = make_problem(given, codes, case, intercept)
    assert problem.binary_columns.tolist() == [True, True, True, False, False, True, False, False]
    for weights in (problem.zeros(), rng.normal(size=problem.zeros().shape) * 3):
        for step, cap in ((0.4, inf), (2.0, 0.3)):
            got = coordinate_changes(problem, weights, step, cap)
            np.testing.assert_allclose(got, direct_changes(problem, weights, step, cap), atol=1e-10)


@pytest.mark.parametrize("columns", [slice(0, 3), slice(3, 5)], ids=["only binary", "no binary"])
@pytest.mark.parametrize("layout", ["C", "csr"])
def test_coordinate_changes_of_one_kind_of_column(layout, columns):
    rng = np.random.default_rng(6)
    X, codes = mixed_records(rng, 9000, 2)  # more than one part of a sparse block
    problem = make_problem(LAYOUTS[layout](X[:, columns]), codes, "logistic")
    weights = rng.normal(size=problem.n_weights)
    got = coordinate_changes(problem, weights, 0.5, 0.2)
    np.testing.assert_allclose(got, direct_changes(problem, weights, 0.5, 0.2), atol=1e-9)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("case", CASES)
def test_population_changes_equal_direct_evaluation(case, layout):
    rng = np.random.default_rng(7)
    X, codes = mixed_records(rng, 200, CASES[case][1])
    problem = make_problem(LAYOUTS[layout](X), codes, case)
    shape = (problem.n_weights, problem.n_outputs)
    population, start = rng.normal(size=(40, *shape)), rng.normal(size=shape)
    before = direct_losses(problem, start)
    for cap in (inf, 0.2):
        direct = [np.clip(direct_losses(problem, w) - before, -cap, cap).sum() for w in population]
        np.testing.assert_allclose(population_changes(problem, population, start, cap), direct, atol=1e-10)


def test_far_scores_give_finite_changes():
    for case in CASES:
        loss, n_classes = CASES[case]
        targets = loss.encode(np.arange(2 * n_classes) % n_classes, n_classes)
        scores = np.zeros((2 * n_classes, n_classes))
        scores[:n_classes, 0], scores[n_classes:, 0] = 800.0, -800.0
        change = loss.changes(scores if n_classes > 2 else scores[:, 0], targets)
        for moves in (np.full(2 * n_classes, 500.0), np.full(2 * n_classes, -500.0)):
            values = change(0, moves)
            assert np.isfinite(values).all()
            assert np.abs(values).max() <= 500.0 * (1 + 1e-12)
