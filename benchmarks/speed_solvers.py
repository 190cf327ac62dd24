"""One fit with every solver and every method of it on Adult, dense and CSR, in turn with scikit-learn's."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import scipy.sparse as sp
from common import load
from fits import CLASSES, DELTA
from sklearn.linear_model import LogisticRegression
from timing import comparison, interleave

from dpskl import DPLogisticRegression
from dpskl.solvers import ExponentialMechanism, OutputPerturbation, PrivGene, WhitenedGD, solver_names

EPSILON = 1.0
SLOWEST = 60.0  # seconds of one fit
METHODS = {  # without sampler="proximal" and "rejection", which refuse this size: they would take too long
    "output_perturbation, gd": OutputPerturbation(method="gd"),
    "output_perturbation, psgd": OutputPerturbation(method="psgd"),
    "exponential_mechanism, mala": ExponentialMechanism(sampler="mala", certified=False),
    "privgene, population of 200": PrivGene(population=200),
    "whitened_gd, full": WhitenedGD(whitening="full"),
    "whitened_gd, diagonal": WhitenedGD(whitening="diagonal"),
}
PURE = ("objective_perturbation", "output_perturbation", "privgene")
# of whitened_gd against scikit-learn on the same rows
TARGETS = {("dense", "full"): 1.0, ("CSR", "diagonal"): 0.5}


def solvers(repetitions: int, has_adult: bool) -> Iterator[dict[str, Any]]:
    """Yield a line for each solver and layout, a third of ``repetitions`` each: some take many seconds."""
    if not has_adult:
        print("solvers: skipped, they need Adult")
        return
    X, y = load("adult")
    for layout, rows in _layouts(X):
        yield from _in_turn(layout, rows, y, max(1, repetitions // 3))


def whitened(repetitions: int, has_adult: bool) -> Iterator[dict[str, Any]]:
    """Yield ``whitened_gd`` with both second moments, dense and CSR, against scikit-learn on the same rows."""
    if not has_adult:
        print("whitened: skipped, it needs Adult")
        return
    X, y = load("adult")
    for layout, rows in _layouts(X):
        baseline = f"LogisticRegression(C=1), {layout}"
        tasks: dict[str, Callable[[], Any]] = {baseline: lambda rows=rows: LogisticRegression(C=1.0).fit(rows, y)}
        tasks |= {kind: _private(WhitenedGD(whitening=kind), DELTA, rows, y) for kind in ("full", "diagonal")}
        seconds = interleave(tasks, repetitions)
        for kind in ("full", "diagonal"):
            what, at_most = f"whitened_gd, {kind}, {layout}", TARGETS.get((layout, kind))
            yield comparison(what, seconds[kind], seconds[baseline], baseline, at_most=at_most)


def _layouts(X: Any) -> tuple[tuple[str, Any], ...]:
    return ("dense", np.ascontiguousarray(X)), ("CSR", sp.csr_array(X))


def _private(solver: Any, delta: float, X: Any, y: Any) -> Callable[[], Any]:
    return lambda: DPLogisticRegression(EPSILON, delta, solver=solver, classes=CLASSES).fit(X, y)


def _in_turn(layout: str, X: Any, y: Any, repetitions: int) -> Iterator[dict[str, Any]]:
    baseline = f"LogisticRegression(C=1), {layout}"
    tasks: dict[str, Callable[[], Any]] = {baseline: lambda: LogisticRegression(C=1.0).fit(X, y)}
    tasks |= {name: _private(name, DELTA, X, y) for name in solver_names()}
    tasks |= {name: _private(solver, DELTA, X, y) for name, solver in METHODS.items()}
    tasks |= {f"{name}, delta = 0": _private(name, 0.0, X, y) for name in PURE}
    seconds = interleave(tasks, repetitions, warm_ups=0)
    for name in tasks:
        if name != baseline:
            slowest = max(seconds[name])
            verdict = "" if slowest <= SLOWEST else f" (above {SLOWEST:g} s)"
            yield comparison(f"{name}, {layout}{verdict}", seconds[name], seconds[baseline], baseline)
