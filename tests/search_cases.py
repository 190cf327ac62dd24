"""Searches of a step along a ray, their queries, and neighbouring data that are hard for them."""

import dataclasses

import numpy as np

from dpskl.mechanisms.above_threshold import BacktrackingSearch
from dpskl.mechanisms.step_selection import StepSelection
from dpskl.records.losses import Hinge, HuberHinge, Logistic, Softmax
from dpskl.records.path import Path
from dpskl.records.problem import Problem

INTERCEPT = 0.3
ROW = np.hypot(1, INTERCEPT)
CASES = {
    "logistic": (Logistic(), 2),
    "hinge": (Hinge(), 2),
    "huber": (HuberHinge(0.2), 2),
    "softmax": (Softmax(), 3),
    "one-vs-rest": (Hinge(), 3),
}
STEPS = 0.8 ** np.arange(12)


def n_outputs_of(n_classes):
    return 1 if n_classes == 2 else n_classes


def make_problem(X, codes, loss, n_classes, intercept=INTERCEPT):
    targets = loss.encode(np.asarray(codes), n_classes)
    X = np.asarray(X, dtype=np.float64)
    return Problem(X, targets, loss, data_norm=1.0, intercept=intercept, n_outputs=n_outputs_of(n_classes))


def make_search(loss, n_classes, clip, neighbours="add_remove", **changes):
    settings = {
        "law": "laplace",
        "threshold_scale": 3.0,
        "query_scale": 4.0,
        "max_it": len(STEPS),
        "objective_clip": clip,
        "slope_bound": loss.gradient_bound(n_outputs_of(n_classes)),
        "row_norm": ROW,
        "neighbours": neighbours,
        "n_samples": 5,
        "n_features": 2,
    }
    return BacktrackingSearch(**{**settings, **changes})


def make_selection(epsilon, search):
    fields = {field.name: getattr(search, field.name) for field in dataclasses.fields(StepSelection)[1:]}
    return StepSelection(epsilon=epsilon, **fields)


def queries(problem, weights, direction, steps, clip):
    """What a search compares, without its demands, by the code that searches."""
    (before,) = Path(problem).losses_along(weights, direction, np.zeros(1), clip)
    return before - Path(problem).losses_along(weights, direction, steps, clip)


def neighbouring_queries(rng, case, clip, length_of_ray):
    """Queries on three data sets: without a record, with it, with another one in its place."""
    loss, n_classes = CASES[case]
    n_outputs = n_outputs_of(n_classes)
    n, d = int(rng.integers(1, 5)), int(rng.integers(1, 3))
    X = rng.normal(size=(n + 1, d)) * 10.0 ** rng.uniform(-1, 2, size=(n + 1, 1))
    codes = rng.integers(0, n_classes, n + 1)
    shape = (d + 1,) if n_outputs == 1 else (d + 1, n_outputs)
    weights, direction = rng.normal(size=shape), rng.normal(size=shape)
    weights *= 10.0 ** rng.uniform(-2, 2)
    if rng.random() < 0.5:  # two records on one line with different labels, and a ray along it
        X[0] = X[-1] = 100 * np.eye(d)[0]
        codes[0], codes[-1] = 1, 0
        row = np.zeros(d + 1)
        row[0], row[-1] = 1, INTERCEPT
        pattern = 1.0 if n_outputs == 1 else np.array([-1.0, 1.0, rng.choice([-1.0, 0.0, 1.0])])
        direction = np.multiply.outer(row, pattern) * rng.choice([-1.0, 1.0])
        offset = rng.choice([0.0, 0.5 * length_of_ray, 40.0, -40.0])
        weights = direction / np.linalg.norm(direction) * offset
        if n_outputs > 1 and rng.random() < 0.5:  # one class is certain
            weights = weights + np.multiply.outer(row, [40.0, 0.0, 0.0])
    direction *= length_of_ray / np.linalg.norm(direction)
    rest, first, last = np.arange(1, n), np.arange(n), np.r_[1:n, n]
    answers = [
        queries(make_problem(X[rows], codes[rows], loss, n_classes), weights, direction, STEPS, clip)
        for rows in (rest, first, last)
    ]
    return answers, weights, direction


def hand_made():
    """Queries 2, 1 and -1 times the clip on a problem with three kinds of records."""
    X, codes = np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 0.0], [0.0, -1.0]]), np.array([1, 1, 1, 0])
    return make_problem(X, codes, Hinge(), 2, intercept=0)
