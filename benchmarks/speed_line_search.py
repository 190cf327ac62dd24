"""One update of each line-search solver against its floor, and against code that multiplies by X for each step."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from common import load
from fits import DELTA, constant
from speed_iterations import DATA_NORM, SHAPE, layouts, two_passes
from timing import comparison, interleave

from dpskl.mechanisms.noise import make_noise
from dpskl.records.losses import Logistic
from dpskl.records.path import Path
from dpskl.records.problem import Problem
from dpskl.solvers import Plan, PublicFacts, make_solver

Array = np.ndarray[Any, Any]

UPDATE_TARGET, NAIVE_TARGET, SAMPLED_TARGET = 2.0, 5.0, 0.35
STEPS = 8.0 * 0.8 ** np.arange(20)


def _plan(solver: str, X: Any) -> tuple[PublicFacts, Plan]:
    ratio = constant("dpskl.base._INTERCEPT_RATIO")
    facts = PublicFacts(*X.shape, 2, DATA_NORM, ratio * DATA_NORM, Logistic(), "add_remove", 1.0)
    return facts, make_solver(solver, facts.loss).plan(facts, 1.0, DELTA)


def _problem(facts: PublicFacts, X: Any, y: Array) -> Problem:
    return Problem(X, y.astype(float), facts.loss, data_norm=DATA_NORM, intercept=facts.intercept)


def _full_batch(solver: str, X: Any, y: Array) -> Callable[[], None]:
    """Return an update on all records: a gradient, a direction, and the losses at 20 steps of which none passes."""
    facts, plan = _plan(solver, X)
    (gradient, _), (search, _) = plan.questions
    path, noise = Path(_problem(facts, X, y)), make_noise(None)
    state = path.zeros()
    extra = np.full(len(STEPS), np.inf) if solver == "blgd" else np.zeros(len(STEPS))

    def update() -> None:
        nonlocal state
        direction = gradient.release(path, state, noise) / len(y)
        search.release(path, state, direction, STEPS, extra, noise)
        state = state - STEPS[-1] * direction

    return update


def _sampled(X: Any, y: Array) -> Callable[[], None]:
    """Return an update on Poisson samples, as the default plan of blsgd has it."""
    facts, plan = _plan("blsgd", X)
    (gradient, n_parts), (search, n_searches) = plan.questions
    problem, noise = _problem(facts, X, y), make_noise(None)
    state, parts = problem.zeros(), n_parts // n_searches

    def update() -> None:
        nonlocal state
        total = sum(gradient.release(problem, state, noise) for _ in range(parts))
        direction = total / (parts * gradient.rate * len(y))
        search.release(problem, state, direction, STEPS, np.full(len(STEPS), np.inf), noise)
        state = state - STEPS[-1] * direction

    return update


def _naive(X: Any, y: Array) -> Callable[[], None]:
    """Return the same full-batch update with a product with X for each step."""
    facts, plan = _plan("blgd", X)
    (gradient, _), (search, _) = plan.questions
    problem, noise = _problem(facts, X, y), make_noise(None)
    state, signs = problem.zeros(), y.astype(np.float32)

    def update() -> None:
        nonlocal state
        direction = gradient.release(problem, state, noise) / len(y)
        for step in (0.0, *STEPS):
            scores = problem.scores(state - step * direction).astype(np.float32)
            facts.loss.clipped_sum(scores, signs, search.objective_clip)
        state = state - STEPS[-1] * direction

    return update


def updates(repetitions: int, has_adult: bool) -> Iterator[dict[str, Any]]:
    """Yield the comparisons of updates."""
    repetitions = max(3, repetitions // 2)
    for name, X, y, target in layouts(has_adult):
        tasks = {"blgd": _full_batch("blgd", X, y), "agd": _full_batch("agd", X, y), "blsgd": _sampled(X, y)}
        is_dense_c = target is not None and isinstance(X, np.ndarray)
        seconds = interleave({**tasks, "two passes": two_passes(X)}, repetitions, warm_ups=3)
        for solver in ("blgd", "agd"):
            goal = UPDATE_TARGET if is_dense_c else None
            what, floor = f"{solver} update, {name}", "X @ w and X.T @ r"
            yield comparison(what, seconds[solver], seconds["two passes"], floor, at_most=goal)
        goal = SAMPLED_TARGET if is_dense_c else None
        yield comparison(f"blsgd update, {name}", seconds["blsgd"], seconds["blgd"], "blgd update", at_most=goal)
    X, y = load("adult") if has_adult else (np.random.default_rng(0).random(SHAPE), np.ones(SHAPE[0]))
    X = np.ascontiguousarray(X)
    tasks = {"ours": _full_batch("blgd", X, y), "naive": _naive(X, y)}
    seconds = interleave(tasks, max(3, repetitions // 3))
    what = "blgd update, dense float64 C"
    yield comparison(what, seconds["ours"], seconds["naive"], "a product with X for each step", at_least=NAIVE_TARGET)
