"""The candidates of a private search: what may be searched over, the rows they are fitted to, and silence.

A candidate is a classifier of this package, or a ``Pipeline`` that ends with one and whose other steps read nothing
of the records. Such steps are the same for all data of one shape, so they are fitted once, before anything is charged:
what of the rows they cannot take is found in time, and the trials fit classifiers only.
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from math import exp, inf
from typing import Any, NamedTuple

import numpy as np
from sklearn.base import BaseEstimator, clone
from sklearn.model_selection import ParameterGrid
from sklearn.pipeline import Pipeline
from sklearn.utils import _safe_indexing

from dpskl.base import PrivateLinearClassifier
from dpskl.mechanisms.noise import NoiseSource
from dpskl.mechanisms.noisy_score import NoisyScore
from dpskl.model_selection.readers import reads_records
from dpskl.validation import validate_training_data

__all__ = ["Candidate", "best_trial", "classifier_of", "draw_rows", "list_candidates", "prepare", "with_last"]

Array = np.ndarray[Any, Any]

# Of the classifier: one for the whole search.
_SET_BY_THE_SEARCH = ("epsilon", "delta", "accountant", "classes", "neighbours", "random_state")


@dataclass(frozen=True, eq=False)
class Candidate:
    """One point of the grid.

    Attributes
    ----------
    params : dict
        As in the grid.
    estimator : estimator
        The classifier or pipeline with these parameters, not fitted.
    steps_key : tuple
        Equal for candidates that differ in the parameters of their classifier only.
    """

    params: dict[str, Any]
    estimator: Any
    steps_key: tuple[Any, ...]

    @property
    def classifier(self) -> PrivateLinearClassifier:
        return classifier_of(self.estimator)

    def trial(self, epsilon: float, delta: float, **settings: Any) -> PrivateLinearClassifier:
        """Return a classifier to fit, which prints nothing, charges nothing and calls nobody back."""
        trial = clone(self.classifier).set_params(
            **{"epsilon": epsilon, "delta": delta, "accountant": None, "verbose": 0, **settings}
        )
        for part in (trial, *trial.get_params().values()):
            if isinstance(part, BaseEstimator):
                part.__dict__.pop("_skl_callbacks", None)  # clone hands them on, and they would count the trials
        return trial

    def fit_steps(self, X: Any) -> tuple[list[Any], Any]:
        """Return the fitted steps before the classifier, from the outside in, and the rows that reach it."""
        fitted = []
        for _, _, step in _steps(self.estimator):
            if step not in (None, "passthrough"):
                step = clone(step)
                # else the format follows, and tells, how many entries were stored for all records
                formats = [name for name in step.get_params() if name.rpartition("__")[2] == "sparse_threshold"]
                X = step.set_params(**dict.fromkeys(formats, 0)).fit(X).transform(X)
            fitted.append(step)
        return fitted, X

    def assemble(self, steps: Sequence[Any], classifier: Any) -> Any:
        """Return the estimator with fitted parts in their places."""
        if not isinstance(self.estimator, Pipeline):
            return classifier
        whole = clone(self.estimator)
        for (pipeline, place, _), step in zip(list(_steps(whole)), steps, strict=True):
            pipeline.steps[place] = (pipeline.steps[place][0], step)
        *_, innermost = _pipelines(whole)
        innermost.steps[-1] = (innermost.steps[-1][0], classifier)
        return whole


def _pipelines(estimator: Any) -> Iterator[Pipeline]:
    """Yield a pipeline and those that are the last step of one, from the outside in."""
    while isinstance(estimator, Pipeline):
        yield estimator
        estimator = estimator.steps[-1][1]


def with_last(estimator: Any, change: Callable[[Any], Any]) -> Any:
    """Return a copy of an estimator, for others, whose last step, at any depth, is what ``change`` makes of it."""
    if not isinstance(estimator, Pipeline):
        return change(estimator)
    changed = copy.copy(estimator)
    changed.memory = None  # a folder of this machine
    name, last = estimator.steps[-1]
    changed.steps = [*copy.deepcopy(estimator.steps[:-1]), (name, with_last(last, change))]
    for part in (changed, *(step for _, step in changed.steps[:-1])):
        getattr(part, "__dict__", {}).pop("_skl_callbacks", None)
    return changed


def _steps(estimator: Any) -> Iterator[tuple[Pipeline, int, Any]]:
    """Yield the steps before the classifier in their order, with their pipeline and place."""
    for pipeline in _pipelines(estimator):
        for place, (_, step) in enumerate(pipeline.steps[:-1]):
            yield pipeline, place, step


def _prefix(estimator: Any) -> str:
    """Return what addresses the classifier in the parameters of ``estimator``."""
    return "".join(f"{pipeline.steps[-1][0]}__" for pipeline in _pipelines(estimator))


def classifier_of(estimator: Any) -> PrivateLinearClassifier:
    """Return the classifier that an estimator is or ends with.

    Raises
    ------
    TypeError
        If it is not one of this package, or a step before it reads the records.
    """
    last = estimator
    for pipeline in _pipelines(estimator):
        for name, step in pipeline.steps[:-1]:
            if (reading := reads_records(step)) is not None:
                raise TypeError(
                    f"the step {name!r} of the pipeline would be fitted to records, which no trial pays for: {reading}"
                )
        last = pipeline.steps[-1][1]
    if not isinstance(last, PrivateLinearClassifier):
        where = "estimator=" if last is estimator else "the last step of the pipeline, "
        raise TypeError(
            f"{where}{type(last).__name__} is not a classifier of this package with a solver, and a search knows the "
            "cost of no other; search over a classifier, or over a Pipeline that ends with one and whose other steps "
            "read nothing"
        )
    return last


def list_candidates(estimator: Any, param_grid: Any) -> list[Candidate]:
    """Return the points of a grid, each of which could be searched over as far as their types say."""
    base, prefix = classifier_of(estimator), _prefix(estimator)
    points = list(ParameterGrid(param_grid))
    if not points:
        raise ValueError(f"param_grid={param_grid!r} holds no candidate")
    candidates = []
    for params in points:
        for name in _SET_BY_THE_SEARCH:
            if prefix + name in params:
                raise ValueError(
                    f"param_grid varies {prefix + name!r}, which must be one for the whole search; set it outside"
                )
        candidate = Candidate(
            dict(params),
            clone(estimator).set_params(**clone(params, safe=False)),
            # a grid hands out the same objects again, which stay where they are as long as its points do
            tuple(sorted((key, id(value)) for key, value in params.items() if not f"{key}__".startswith(prefix))),
        )
        _refuse_other_terms(candidate, base)
        candidates.append(candidate)
    return candidates


def _refuse_other_terms(candidate: Candidate, base: PrivateLinearClassifier) -> None:
    """Raise ValueError where a grid that exchanges the classifier exchanges what is one for the search."""
    classifier = candidate.classifier
    if (declared := getattr(classifier, "n_samples", None)) is not None:
        raise ValueError(
            f"n_samples={declared!r} is declared for one fit, but a search divides the records into a training and a "
            "validation part, whose sizes it takes from X; leave n_samples=None"
        )
    for name in ("accountant", "classes", "neighbours"):
        other, one = getattr(classifier, name), getattr(base, name)
        if other is not one and not (other is not None and one is not None and np.array_equal(other, one)):
            raise ValueError(
                f"the candidate {candidate.params!r} has {name}={other!r} and the estimator {name}={one!r}, but it "
                "must be one for the whole search"
            )


class Parts(NamedTuple):
    """The steps before a classifier, fitted, and the rows that they make for training and for validation."""

    steps: list[Any]
    n_features: int
    training: Any
    held_out: Any


def prepare(candidates: Sequence[Candidate], X: Any, y: Any, held_out: Array) -> dict[tuple[Any, ...], Parts]:
    """Return the parts for each ``steps_key``; rows that a classifier cannot take raise, as they do in its ``fit``."""
    prepared: dict[tuple[Any, ...], Parts] = {}
    for candidate in candidates:
        if candidate.steps_key not in prepared:
            with _silence():
                steps, rows = candidate.fit_steps(X)
            valid, _ = validate_training_data(clone(candidate.classifier), rows, y)
            # a frame stays one: the classifier notes its names
            rows = rows if hasattr(rows, "columns") else valid
            parts = _safe_indexing(rows, ~held_out), _safe_indexing(rows, held_out)
            prepared[candidate.steps_key] = Parts(steps, valid.shape[1], *parts)
    return prepared


@contextmanager
def _silence() -> Iterator[None]:
    """Let nothing be heard of rows that a step takes with a warning, nor of how many trials there are."""
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        yield


def best_trial(
    trial: Callable[[Candidate, int | None], tuple[Any, Array]],
    candidates: Sequence[Candidate],
    count: int,
    score: NoisyScore,
    noise: NoiseSource,
) -> tuple[Candidate, Any, float]:
    """Return the candidate, the model and the noisy sum of the best of ``count`` trials, the earliest of equals.

    ``trial`` takes a candidate and a seed, and returns a fitted model and a score of each validation record. Where it
    raises, the trial has the lowest score: the model is ``None`` if all of them did.
    """
    chosen, best, best_total = candidates[0], None, -inf
    for _ in range(count):
        candidate = candidates[_draw_below(len(candidates), noise)]
        seed = None if noise.is_secure else _draw_below(2**31, noise)
        with _silence():
            try:
                model, scores = trial(candidate, seed)
            except Exception:  # whatever it is, it must not show more than a lost trial does
                continue
        total = score.release(scores, noise)
        if total > best_total:
            chosen, best, best_total = candidate, model, total
    return chosen, best, best_total


def draw_rows(n_samples: int, count: int, noise: NoiseSource) -> Array:
    """Mark ``count`` of ``n_samples`` rows, every set of them being equally likely whatever the data are."""
    chosen = np.zeros(n_samples, dtype=bool)
    chosen[np.argsort(noise.sampling_exponential(n_samples), kind="stable")[:count]] = True
    return chosen


def _draw_below(count: int, noise: NoiseSource) -> int:
    """Draw a whole number from 0 to ``count - 1``."""
    return min(int(count * exp(-float(noise.standard_exponential(1)[0]))), count - 1)
