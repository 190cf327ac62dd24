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
from dpskl.solvers import SGD, Adam, PublicFacts, RMSProp
from dpskl.solvers._batches import BatchDescent

Array = np.ndarray[Any, Any]

TARGET = 1.5
SIZES = (256, 4096)


def _step(solver: BatchDescent, facts: PublicFacts, problem: Problem) -> Callable[[], Array]:
    """Return a step as ``run`` takes it: sample, gradient, noise, charge, move."""
    plan = solver.plan(facts, 1.0, DELTA)
    ((question, _),) = plan.questions
    curator, move = Curator(problem, plan.open_budget(), make_noise(None)), solver.mover(plan.settings)
    weights = problem.zeros()
    return lambda: move(weights, curator.ask(question, weights) / plan.settings.size)


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
            solvers = [cls(batch_size=size, max_iter=repetitions + 3) for cls in (SGD, Adam, RMSProp)]
            tasks = {solver.name: _step(solver, facts, problem) for solver in solvers}
            seconds = interleave({**tasks, "floor": _floor(X, size)}, repetitions, warm_ups=3)
            for solver in solvers:
                what, floor = f"{solver.name} step, batch {size}, {name}", "gather, X_b @ w, X_b.T @ r"
                yield comparison(what, seconds[solver.name], seconds["floor"], floor, at_most=TARGET)
