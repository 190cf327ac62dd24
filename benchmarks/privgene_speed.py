"""One round of PrivGene against evaluating its 2 d candidates as a dense matrix, in turn, in one process.

    OPENBLAS_NUM_THREADS=1 python benchmarks/privgene_speed.py

On the columns of Adult that hold zeros and ones, on all its columns, and on a matrix of zeros and ones of the same
shape that needs no data set. The baseline is one product of the bounded rows with the matrix of candidates, then one
call of the loss; the copy of the bounded rows is not counted. The exit code is 0 whatever the target says: run on an
idle machine.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import Any

import numpy as np
import scipy.sparse as sp
import threadpoolctl
from common import add_common_options, available, describe_run, load, write_result
from speed_tables import report
from timing import comparison, interleave

from dpskl.records.loss_changes import coordinate_changes
from dpskl.records.losses import Logistic
from dpskl.records.problem import Problem

Array = np.ndarray[Any, Any]

NAME = "privgene_speed"
SHAPE, DENSITY = (48_842, 108), 0.12
TARGET = 15.0
STEP, CAP = 1.0, 0.2


def _matrices(has_adult: bool) -> Iterator[tuple[str, Array, Array, float | None]]:
    """Yield name, dense matrix, signs and target."""
    if has_adult:
        X, y = load("adult")
        binary = ((X == 0) | (X == 1)).all(axis=0)
        yield f"Adult, {binary.sum()} columns of zeros and ones", np.ascontiguousarray(X[:, binary]), y, TARGET
        yield f"Adult, all {len(binary)} columns", np.ascontiguousarray(X), y, None
    rng = np.random.default_rng(0)
    X = (rng.random(SHAPE) < DENSITY).astype(float)
    yield "synthetic, zeros and ones", X, np.where(rng.random(SHAPE[0]) < 0.25, 1, -1), TARGET


def _dense_candidates(problem: Problem, weights: Array) -> Array:
    """Return what :func:`coordinate_changes` returns, from one dense product with all the candidates."""
    rows = np.column_stack([problem.column(j) for j in range(problem.n_weights)])
    moves = STEP * np.eye(problem.n_weights)

    def evaluate() -> Array:
        candidates = np.concatenate([weights[:, None] + moves, weights[:, None] - moves], axis=1)
        before = problem.loss.value(problem.targets * (rows @ weights))
        after = problem.loss.value(problem.targets[:, None] * (rows @ candidates))
        return np.clip(after - before[:, None], -CAP, CAP).sum(axis=0).reshape(2, -1, 1)

    return evaluate


def rounds(repetitions: int, has_adult: bool) -> Iterator[dict[str, Any]]:
    """Yield one comparison for each matrix and layout."""
    for name, X, y, target in _matrices(has_adult):
        for layout, given in (("dense C", X), ("CSR", sp.csr_array(X))):
            problem = Problem(given, y.astype(float), Logistic(), data_norm=1.0, intercept=0.3)
            weights = np.random.default_rng(1).normal(size=problem.n_weights)
            baseline = _dense_candidates(problem, weights)
            np.testing.assert_allclose(coordinate_changes(problem, weights, STEP, CAP), baseline(), atol=1e-7)
            tasks = {
                "ours": lambda p=problem, w=weights: coordinate_changes(p, w, STEP, CAP),
                "baseline": baseline,
            }
            seconds = interleave(tasks, repetitions)
            what = f"PrivGene round, {name}, {layout}"
            line = comparison(what, seconds["ours"], seconds["baseline"], "X @ candidates", at_least=target or 0.0)
            yield line if target else {**line, "target": None, "passed": None}


def main() -> None:
    """Time, write the result and print its table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--repetitions", type=int, default=15)
    add_common_options(parser, NAME)
    options = parser.parse_args()
    repetitions = 3 if options.quick else options.repetitions
    has_adult = bool(available(["adult"]))
    with threadpoolctl.threadpool_limits(options.threads, user_api="blas"):
        run = describe_run()
        comparisons = list(rounds(repetitions, has_adult))
    document = {
        "run": run,
        "protocol": {"repetitions": repetitions, "fits": 0, "threads": options.threads},
        "comparisons": comparisons,
    }
    write_result(options.name, options.quick, document)
    print(report(document))


if __name__ == "__main__":
    main()
