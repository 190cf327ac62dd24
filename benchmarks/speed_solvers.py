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
# against scikit-learn on the same rows
TARGETS = {("dense", "whitened_gd"): 1.0, ("CSR", "whitened_gd, diagonal"): 0.5}


def solvers(repetitions: int, has_adult: bool) -> Iterator[dict[str, Any]]:
    """Yield a line for each solver and layout, a third of ``repetitions`` each: some take many seconds."""
    if not has_adult:
        print("solvers: skipped, they need Adult")
        return
    X, y = load("adult")
    for layout, rows in (("dense", np.ascontiguousarray(X)), ("CSR", sp.csr_array(X))):
        yield from _in_turn(layout, rows, y, max(1, repetitions // 3))


def _in_turn(layout: str, X: Any, y: Any, repetitions: int) -> Iterator[dict[str, Any]]:
    def private(solver: Any, delta: float) -> Callable[[], Any]:
        return lambda: DPLogisticRegression(EPSILON, delta, solver=solver, classes=CLASSES).fit(X, y)

    baseline = f"LogisticRegression(C=1), {layout}"
    tasks: dict[str, Callable[[], Any]] = {baseline: lambda: LogisticRegression(C=1.0).fit(X, y)}
    tasks |= {name: private(name, DELTA) for name in solver_names()}
    tasks |= {name: private(solver, DELTA) for name, solver in METHODS.items()}
    tasks |= {f"{name}, delta = 0": private(name, 0.0) for name in PURE}
    seconds = interleave(tasks, repetitions, warm_ups=0)
    for name in tasks:
        if name != baseline:
            slowest = max(seconds[name])
            verdict = "" if slowest <= SLOWEST else f" (above {SLOWEST:g} s)"
            at_most = TARGETS.get((layout, name))
            yield comparison(f"{name}, {layout}{verdict}", seconds[name], seconds[baseline], baseline, at_most=at_most)
