"""Public records beside the private ones: checked, and put under the same public map."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from dpskl.records.problem import Problem
from dpskl.solvers import PublicFacts, Solver
from dpskl.solvers._public import brief
from dpskl.validation import encode_labels, validate_records

__all__ = ["with_public_problem"]

Array = np.ndarray[Any, Any]


def with_public_problem(facts: PublicFacts, solver: Solver, classes: Any, names: Any = None) -> PublicFacts:
    """Return the facts with the public records of a solver that has ``public_data``.

    They get the row map, the intercept column and the encoding of labels of the private ones: all of them public.

    Parameters
    ----------
    facts : PublicFacts
    solver : Solver
    classes : array-like or None
        As declared.
    names : array-like of str or None, default=None
        Names of the columns of the private records, where they have any.

    Raises
    ------
    ValueError
        If the records cannot be used, or the labels were not declared: were they read from the private ones, an error
        about a label that is public and not private would tell of the private ones.
    """
    records = getattr(solver, "public_data", None)
    if records is None:
        return facts
    if classes is None:
        raise ValueError(
            f"public_data={brief(records)} needs declared labels: classes=None reads them from the private y, and what "
            "is said of public labels beside them would tell of it; declare all that can occur by classes="
        )
    if not isinstance(records, tuple | list) or len(records) != 2:
        raise ValueError(f"public_data={brief(records)} must be a pair (X, y) of public rows and their labels")
    try:
        X, y = validate_records(*records)
        _check_columns(records[0], X.shape[1], facts.n_features, names)
        _, codes = encode_labels(y, classes)
    except (ValueError, TypeError) as error:
        raise ValueError(f"public_data={brief(tuple(records))} cannot be used: {error}") from error
    loss = solver.problem_loss(facts)
    with np.errstate(all="ignore"):  # rows too long to be squared are for the row map
        problem = Problem(
            X,
            loss.encode(codes, facts.n_classes),
            loss,
            data_norm=facts.data_norm,
            intercept=facts.intercept,
            n_outputs=facts.n_outputs,
            rows=facts.rows,
        )
    return replace(facts, public_problem=problem)


def _check_columns(X: Any, width: int, n_features: int, names: Any) -> None:
    if width != n_features:
        raise ValueError(f"its X has {width} columns where fit gets {n_features}; give both the same ones")
    columns = getattr(X, "columns", None)
    if names is None or columns is None or not all(isinstance(name, str) for name in columns):
        return
    if list(columns) != list(names):
        j = next(j for j, (here, there) in enumerate(zip(columns, names, strict=True)) if here != there)
        raise ValueError(
            f"its column {j} is {columns[j]!r} where that of fit is {names[j]!r}; give both the same columns in the "
            "same order"
        )
