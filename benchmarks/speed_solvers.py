"""One fit with every solver and every method of it on Adult, dense and CSR, in turn with scikit-learn's."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np
import scipy.sparse as sp
from common import load
from fits import CLASSES, DELTA
from sklearn.linear_model import LogisticRegression
from timing import comparison, interleave

from dpskl import DPLogisticRegression
from dpskl.records.losses import Logistic
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
TARGETS = {"whitened_gd, full, dense": 1.0, "whitened_gd, diagonal, CSR": 0.5}


def solvers(repetitions: int, has_adult: bool) -> Iterator[dict[str, Any]]:
    """Yield a line for each solver and layout, a third of ``repetitions`` each: some take many seconds."""
    choices: dict[str, tuple[Any, float]] = {name: (name, DELTA) for name in solver_names(Logistic())}
    choices |= {name: (solver, DELTA) for name, solver in METHODS.items()}
    choices |= {f"{name}, delta = 0": (name, 0.0) for name in PURE}
    yield from _in_turn(choices, {}, max(1, repetitions // 3), has_adult, warm_ups=0)


def whitened(repetitions: int, has_adult: bool) -> Iterator[dict[str, Any]]:
    """Yield ``whitened_gd`` with both second moments, dense and CSR, against scikit-learn on the same rows."""
    choices = {name: (solver, DELTA) for name, solver in METHODS.items() if name.startswith("whitened_gd")}
    yield from _in_turn(choices, TARGETS, repetitions, has_adult, warm_ups=1)


def _in_turn(
    choices: dict[str, tuple[Any, float]],
    targets: dict[str, float],
    repetitions: int,
    has_adult: bool,
    warm_ups: int,
) -> Iterator[dict[str, Any]]:
    """Yield a line for each solver and delta, on dense rows and on CSR."""
    if not has_adult:
        print("solvers: skipped, they need Adult")
        return
    X, y = load("adult")
    for layout, rows in (("dense", np.ascontiguousarray(X)), ("CSR", sp.csr_array(X))):
        baseline = f"LogisticRegression(C=1), {layout}"
        models = {baseline: LogisticRegression(C=1.0)} | {
            f"{name}, {layout}": DPLogisticRegression(EPSILON, delta, solver=solver, classes=CLASSES)
            for name, (solver, delta) in choices.items()
        }
        tasks = {name: partial(model.fit, rows, y) for name, model in models.items()}
        seconds = interleave(tasks, repetitions, warm_ups)
        for name in models:
            if name != baseline:
                verdict = "" if max(seconds[name]) <= SLOWEST else f" (above {SLOWEST:g} s)"
                yield comparison(name + verdict, seconds[name], seconds[baseline], baseline, at_most=targets.get(name))
