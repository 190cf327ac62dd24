"""Gradient sums with clipped entries, and scores that follow a move of one weight, against direct evaluation."""

import tracemalloc

import numpy as np
import pytest
import scipy.sparse as sp
from privgene_cases import CASES, make_problem, mixed_records

from dpskl.records.entries import ClippedEntries
from dpskl.records.losses import Logistic
from dpskl.records.path import Path
from dpskl.records.problem import Problem

LAYOUTS = {
    "C": np.ascontiguousarray,
    "Fortran": np.asfortranarray,
    "float32": lambda X: X.astype(np.float32),
    "csr": sp.csr_array,
    "csr float32": lambda X: sp.csr_array(X.astype(np.float32)),
}


def written_out(problem):
    """The bounded design, one column after another."""
    return np.column_stack([problem.column(j) for j in range(problem.n_weights)])


def direct_gradient(problem, weights, clip):
    design = written_out(problem)
    return np.clip(design, -clip, clip).T @ problem.loss.residuals(design @ weights, problem.targets)


@pytest.mark.parametrize("intercept", [0.0, 0.3])
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("case", CASES)
def test_the_sum_is_that_of_a_design_that_is_written_out_and_clipped(case, layout, intercept):
    rng = np.random.default_rng(5)
    X, codes = mixed_records(rng, 300, CASES[case][1])
    X[8, 3] = 2.0**70 if "float32" in layout else 1e200  # the latter row is scaled to nothing
    given = LAYOUTS[layout](X)
    for array in (given.data, given.indices, given.indptr) if sp.issparse(given) else (given,):
        array.flags.writeable = False
    problem = make_problem(given, codes, case, intercept)
    for clip in (0.05, 0.2, 5.0):
        entries = ClippedEntries(problem, clip)
        for weights in (problem.zeros(), rng.normal(size=problem.zeros().shape) * 3):
            got = entries.gradient_sum_at(problem.scores(weights))
            np.testing.assert_allclose(got, direct_gradient(problem, weights, clip), atol=1e-10)
    # where nothing is clipped it is the gradient
    np.testing.assert_allclose(got, problem.gradient_sum(weights), atol=1e-10)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_sum_over_several_blocks(layout):
    rng = np.random.default_rng(6)
    X, codes = mixed_records(rng, 100_000, 2)
    problem = make_problem(LAYOUTS[layout](X), codes, "huber")
    weights = rng.normal(size=9)
    got = ClippedEntries(problem, 0.1).gradient_sum_at(problem.scores(weights))
    np.testing.assert_allclose(got, direct_gradient(problem, weights, 0.1), atol=1e-7)


@pytest.mark.parametrize("intercept", [0.0, 0.3])
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("case", CASES)
def test_scores_follow_a_hundred_moves_by_one_column_each(case, layout, intercept, monkeypatch):
    rng = np.random.default_rng(7)
    X, codes = mixed_records(rng, 200, CASES[case][1])
    problem = make_problem(LAYOUTS[layout](X), codes, case, intercept)
    path, weights, columns, products = Path(problem), problem.zeros(), [], []
    column, scores = Problem.column, Problem.scores
    monkeypatch.setattr(Problem, "column", lambda self, j: columns.append(j) or column(self, j))
    monkeypatch.setattr(Problem, "scores", lambda self, w: products.append(1) or scores(self, w))
    for t in range(100):
        path.clipped_entries_gradient(weights, 0.2)
        weights = path.mixed(weights, t / (t + 2), int(rng.integers(weights.size)), rng.normal())
    got = path.clipped_entries_gradient(weights, 0.2)
    assert (len(columns), len(products)) == (100, 0)
    monkeypatch.undo()
    np.testing.assert_allclose(path._scores, problem.scores(weights), atol=1e-12)
    np.testing.assert_allclose(got, direct_gradient(problem, weights, 0.2), atol=1e-10)


def test_a_move_that_is_not_taken_leaves_the_path_where_it_is():
    X, codes = mixed_records(np.random.default_rng(8), 50, 2)
    problem = make_problem(X, codes, "logistic")
    path, weights = Path(problem), np.linspace(-1, 1, 9)
    moved = path.mixed(weights, 0.5, 3, 2.0)
    np.testing.assert_allclose(moved, 0.5 * weights + 2.0 * np.eye(9)[3])
    for asked in (weights, 2 * weights, moved):  # the last after the path has left the start of the move
        np.testing.assert_allclose(
            path.clipped_entries_gradient(asked, 0.3), direct_gradient(problem, asked, 0.3), atol=1e-11
        )
        np.testing.assert_allclose(path.gradient_sum(asked), problem.gradient_sum(asked), atol=1e-11)
    moved[0] = 9.0  # what callers do to arrays does not reach the path
    moved = path.mixed(weights, 0.5, 3, 2.0)
    kept = moved.copy()
    moved[0] = 9.0
    path.clipped_entries_gradient(kept, 0.3)
    np.testing.assert_allclose(path._scores, problem.scores(kept))


def test_a_million_columns_are_worked_on_in_memory_of_what_is_stored():
    n, d, each = 2000, 10**6, 30
    rng = np.random.default_rng(9)
    X = sp.csr_array((np.ones(n * each), rng.integers(0, d, n * each), np.arange(0, n * each + 1, each)), shape=(n, d))
    X.sum_duplicates()
    problem = Problem(X, rng.choice([-1.0, 1.0], n), Logistic(), data_norm=1.0, intercept=0.3)
    tracemalloc.start()
    path, weights = Path(problem), problem.zeros()
    for t in range(5):
        gradient = path.clipped_entries_gradient(weights, 0.1)
        weights = path.mixed(weights, t / (t + 2), int(np.argmax(np.abs(gradient))), 1.0)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert np.count_nonzero(weights) <= 5
    assert peak < 10 * 8 * d  # a few vectors; a dense copy of X would be 2,000
