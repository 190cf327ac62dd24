"""One step of the solvers on Poisson batches against its floor: gather a batch of that size, two products with it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import cycle
from typing import Any

import numpy as np
from fits import DELTA, constant
from speed_iterations import DATA_NORM, layouts
from timing import comparison, interleave

from dpskl.curator import Curator
from dpskl.mechanisms.noise import make_noise
from dpskl.records.losses import Logistic
from dpskl.records.problem import Problem
from dpskl.solvers import SGD, Adam, DelayedPreconditioner, PublicFacts, RMSProp
from dpskl.solvers._batches import BatchDescent

Array = np.ndarray[Any, Any]

TARGET, TARGET_2 = 1.5, 2.0
SIZES = (256, 4096)


def _step(solver: BatchDescent, facts: PublicFacts, problem: Problem) -> Callable[[], Array]:
    """Return a step as ``run`` takes it: sample, gradient, noise, charge, move."""
    plan = solver.plan(facts, 1.0, DELTA)
    step = solver.stepper(Curator(problem, plan.open_budget(), make_noise(None)), plan)
    weights = problem.zeros()
    return lambda: step(weights)


def _solvers(size: int, n_samples: int, n_steps: int) -> dict[str, tuple[BatchDescent, float]]:
    """Return solvers and the targets of their steps; all but a few of dp2 are adaptive ones."""
    shared = {"batch_size": size, "max_iter": n_steps}
    plain = {cls.name: (cls(**shared), TARGET) for cls in (SGD, Adam, RMSProp)}
    short, long = (DelayedPreconditioner(s1=1, s2=s2, **shared) for s2 in (n_samples // size, n_steps))
    return {**plain, "dp2, norms of each batch,": (short, TARGET_2), "dp2, norms kept,": (long, TARGET_2)}


def _floor(X: Any, size: int) -> Callable[[], Array]:
    """Return the gathering of a batch and the two products of a gradient with it."""
    rng = np.random.default_rng(0)
    batches = cycle([np.flatnonzero(rng.random(X.shape[0]) < size / X.shape[0]) for _ in range(50)])
    w = rng.normal(size=X.shape[1]).astype(X.dtype)

    def products() -> Array:
        rows = X[next(batches)]
        product: Array = rows.T @ (rows @ w)
        return product

    return products


def batches(repetitions: int, has_adult: bool) -> Iterator[dict[str, Any]]:
    """Yield the comparisons of steps; there are many steps to one iteration."""
    repetitions *= 4
    for name, X, y, target in layouts(has_adult):
        if target is None:
            continue
        intercept = constant("dpskl.base._INTERCEPT_RATIO") * DATA_NORM
        facts = PublicFacts(*X.shape, 2, DATA_NORM, intercept, Logistic(), "add_remove", 1.0)
        problem = Problem(X, y.astype(float), facts.loss, data_norm=DATA_NORM, intercept=intercept, rows="fill")
        for size in SIZES:
            solvers = _solvers(size, X.shape[0], repetitions + 3)
            tasks = {label: _step(solver, facts, problem) for label, (solver, _) in solvers.items()}
            seconds = interleave({**tasks, "floor": _floor(X, size)}, repetitions, warm_ups=3)
            for label, (_, target) in solvers.items():
                what, floor = f"{label} step, batch {size}, {name}", "gather, X_b @ w, X_b.T @ r"
                yield comparison(what, seconds[label], seconds["floor"], floor, at_most=target)
