"""One iteration of DP-GD against its floor and against materialised gradients; the logistic loss."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import scipy.sparse as sp
from common import load
from fits import DELTA, constant
from timing import comparison, interleave

from dpskl.mechanisms.gradient import GaussianGradient
from dpskl.mechanisms.noise import make_noise
from dpskl.records.losses import Logistic
from dpskl.records.problem import Problem
from dpskl.solvers import PublicFacts, make_solver

Array = np.ndarray[Any, Any]

SHAPE = (48_842, 108)
DATA_NORM = 1.0
DENSE_TARGET, SPARSE_TARGET, PER_EXAMPLE_TARGET = 1.3, 1.6, 3.0


def layouts(has_adult: bool) -> Iterator[tuple[str, Any, Array, float | None]]:
    """Yield name, matrix, signs and target; one matrix is alive at a time."""
    rng = np.random.default_rng(0)
    if has_adult:
        X, y = load("adult")
        X = np.ascontiguousarray(X)
        yield "Adult, dense float64 C", X, y, DENSE_TARGET
        yield "Adult, dense float64 Fortran", np.asfortranarray(X), y, None
        yield "Adult, dense float32 C", X.astype(np.float32), y, None
        yield "Adult, CSR float64", sp.csr_array(X), y, SPARSE_TARGET
        yield "Adult, CSR float32", sp.csr_array(X.astype(np.float32)), y, None
    signs = np.where(rng.random(SHAPE[0]) < 0.25, 1, -1)
    yield "synthetic, dense float64 C", rng.random(SHAPE), signs, DENSE_TARGET


def _iteration(X: Any, y: Array) -> tuple[Problem, GaussianGradient, Array]:
    """Return the problem, the question that the default plan asks, and weights to ask it at."""
    ratio = constant("dpskl.base._INTERCEPT_RATIO")
    facts = PublicFacts(*X.shape, 2, DATA_NORM, ratio * DATA_NORM, Logistic(), "add_remove", 1.0)
    gradient, _ = make_solver("gd", facts.loss).plan(facts, 1.0, DELTA).questions[0]
    assert isinstance(gradient, GaussianGradient)
    problem = Problem(X, y.astype(float), facts.loss, data_norm=DATA_NORM, intercept=facts.intercept)
    weights = np.random.default_rng(1).normal(size=problem.n_weights)
    return problem, gradient, weights


def two_passes(X: Any) -> Callable[[], Array]:
    """Return the floor: both products with X, in the precision of X."""
    rng = np.random.default_rng(2)
    w, r = rng.normal(size=X.shape[1]).astype(X.dtype), rng.normal(size=X.shape[0]).astype(X.dtype)

    def passes() -> Array:
        X @ w
        return X.T @ r

    return passes


def iterations(repetitions: int, has_adult: bool) -> Iterator[dict[str, Any]]:
    """Yield one comparison for each layout."""
    for name, X, y, target in layouts(has_adult):
        problem, gradient, weights = _iteration(X, y)
        noise = make_noise(None)
        tasks = {
            "ours": lambda p=problem, g=gradient, w=weights, z=noise: g.release(p, w, z),
            "baseline": two_passes(X),
        }
        seconds = interleave(tasks, repetitions, warm_ups=3)
        what = f"DP-GD iteration, {name}"
        yield comparison(what, seconds["ours"], seconds["baseline"], "X @ w and X.T @ r", at_most=target)


def _materialised(X: Array, problem: Problem, y: Array) -> dict[str, Callable[[Array, float], Array]]:
    """Return clipped gradient sums by way of an n x d array; making the bounded design is not counted."""
    scale = np.minimum(1, DATA_NORM / np.linalg.norm(X, axis=1))
    design = np.column_stack([X * scale[:, None], np.full(len(X), problem.intercept)])
    signs, loss = y.astype(float), Logistic()

    def gradients(weights: Array) -> Array:
        return design * loss.residuals(design @ weights, signs)[:, None]

    def plain(weights: Array, clip_norm: float) -> Array:
        each = gradients(weights)
        each *= np.minimum(1, clip_norm / np.linalg.norm(each, axis=1))[:, None]
        return each.sum(axis=0)

    def lean(weights: Array, clip_norm: float) -> Array:
        each = gradients(weights)
        return np.minimum(1, clip_norm / np.sqrt(np.einsum("ij,ij->i", each, each))) @ each

    return {"n x d gradients, scaled, summed": plain, "n x d gradients, einsum and one product": lean}


def per_example(repetitions: int, has_adult: bool) -> Iterator[dict[str, Any]]:
    """Yield comparisons with materialised gradients, on dense float64 in C order."""
    name, X, y, _ = next(layouts(has_adult))
    problem, gradient, weights = _iteration(X, y)
    noise = make_noise(None)
    tasks: dict[str, Callable[[], Array]] = {"ours": lambda: gradient.release(problem, weights, noise)}
    exact = problem.gradient_sum(weights, gradient.clip_norm)
    for other, clipped_sum in _materialised(X, problem, y).items():
        np.testing.assert_allclose(clipped_sum(weights, gradient.clip_norm), exact, rtol=1e-9, atol=1e-9)
        tasks[other] = lambda clipped=clipped_sum: noise.add_normal(
            clipped(weights, gradient.clip_norm), gradient.noise_scale
        )
    seconds = interleave(tasks, max(3, repetitions // 3))
    for other in list(tasks)[1:]:
        what = f"DP-GD iteration, {name}"
        yield comparison(what, seconds["ours"], seconds[other], other, at_least=PER_EXAMPLE_TARGET)


def losses(repetitions: int, has_adult: bool) -> Iterator[dict[str, Any]]:
    """Yield the logistic loss of Adult's number of margins in two precisions; no data are needed."""
    loss = Logistic()
    for dtype in (np.float64, np.float32):
        margins = (3 * np.random.default_rng(3).normal(size=SHAPE[0])).astype(dtype)
        np.testing.assert_allclose(loss.value(margins), np.logaddexp(0, -margins), rtol=1e-5, atol=1e-6)
        tasks = {
            "ours": lambda z=margins: loss.value(z),
            "baseline": lambda z=margins: np.logaddexp(z.dtype.type(0), -z),
        }
        seconds = interleave(tasks, repetitions, warm_ups=3)
        what = f"Logistic().value, {np.dtype(dtype).name}, n = {SHAPE[0]:,}"
        yield comparison(what, seconds["ours"], seconds["baseline"], "np.logaddexp(0, -z)")
