r"""How the sum of losses changes from some weights to others: to all moves of one weight, or to a population.

*Coordinates.* Moving weight ``(j, k)`` by ``t`` moves the score ``k`` of record ``i`` by ``t s_i x_ij``, where
``s_i`` is the factor that bounds row ``i``. The 2 d candidates are never formed:

* where a column holds zeros and ones, every record with a one moves by the same ``t s_i``: with ``a_i`` its change of
  loss, the sums of *all* such columns are ``X^T a``, one product for ``+t`` and one for ``-t``;
* other columns of CSR ask for one change for each stored value;
* other dense columns ask for ``n`` changes each, in blocks that fit the cache.

*Population.* Any weights at all: one product of ``X`` with the matrix of candidates, a few columns at a time.

Every record's change is clipped to ``[-cap, cap]`` before it is added. All sums are float64.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
import scipy.sparse as sp

from dpskl.records.problem import Problem

__all__ = ["coordinate_changes", "population_changes"]

Array = np.ndarray[Any, Any]

# Rows of a sparse block that are worked on at a time, so that what is held for stored values stays small. It must not
# depend on their number, which is not public; the bound on rounding knows this height already.
_PART_HEIGHT = 8192
# Columns of a matrix of candidates that are multiplied at a time.
_PRODUCT_COLUMNS = 32


def coordinate_changes(problem: Problem, weights: Array, step: float, cap: float) -> Array:
    """Return the sums over records of their clipped changes of loss, for every move of one weight by ``step``.

    Parameters
    ----------
    problem : Problem
    weights : ndarray of shape (n_weights,) or (n_weights, n_outputs)
        Where the moves start.
    step : float
        Positive; ``step`` times the bound on a row must stay below 700.
    cap : float
        Positive. Each record's change is clipped to ``[-cap, cap]``.

    Returns
    -------
    ndarray of shape (2, n_weights, n_outputs)
        First for ``+step``, then for ``-step``.
    """
    d, n_outputs = problem.n_features, problem.n_outputs
    binary = problem.binary_columns
    others = np.flatnonzero(~binary)
    add = _add_sparse if sp.issparse(problem.X) else _add_dense
    signs = np.array([[step], [-step]])
    sums = np.zeros((n_outputs, 2, problem.n_weights))
    for block in problem._rows:
        change = _clipped(problem.loss.changes(problem._block_scores(block, weights), problem.targets[block.rows]), cap)
        unit = signs * problem._scale[block.rows]
        if len(others) < d:
            # A row that has a 1 is at least that long, so its factor is no larger than the bound. Shorter rows have
            # zeros there, and their moves, which nothing bounds, must not become numbers that 0 does not cancel.
            ones = signs * np.minimum(problem._scale[block.rows], problem.row_bound)
            shared = np.concatenate([change(k, ones) for k in range(n_outputs)])
            with np.errstate(over="ignore", invalid="ignore"):  # of columns that are not binary: not used
                products = _adjoint(block.XT, shared).reshape(n_outputs, 2, d)
            sums[:, :, :d][..., binary] += products[..., binary]
        for k in range(n_outputs):
            if len(others):
                add(block.X, others, unit, partial(change, k), sums[k])
            if problem.intercept:
                sums[k, :, -1] += change(k, signs * problem._constants[block.rows]).sum(axis=-1)
    return np.ascontiguousarray(np.moveaxis(sums, 0, -1))


def _adjoint(XT: Any, vectors: Array) -> Array:
    """Return ``vectors @ X``; for a matrix of two columns BLAS is half as fast as for two vectors."""
    if len(vectors) == 2:
        return np.stack([XT @ vector for vector in vectors])
    return np.ascontiguousarray((XT @ vectors.T).T)


def _clipped(change: Callable[..., Array], cap: float) -> Callable[..., Array]:
    def clipped(*arguments: Any) -> Array:
        values = change(*arguments)
        np.clip(values, -cap, cap, out=values)
        return np.nan_to_num(values, copy=False, nan=0.0)  # no record may spoil a sum

    return clipped


def _add_dense(X: Array, others: Array, unit: Array, change: Callable[..., Array], sums: Array) -> None:
    columns = np.ascontiguousarray(X[:, others].T)
    for sign in (0, 1):
        sums[sign, others] += change(unit[sign] * columns, slice(None)).sum(axis=-1)


def _add_sparse(X: Any, others: Array, unit: Array, change: Callable[..., Array], sums: Array) -> None:
    wanted = np.zeros(X.shape[1], dtype=bool)
    wanted[others] = True
    for start in range(0, X.shape[0], _PART_HEIGHT):
        stop = min(start + _PART_HEIGHT, X.shape[0])
        stored = slice(X.indptr[start], X.indptr[stop])
        columns, values = X.indices[stored], X.data[stored]
        rows = np.repeat(np.arange(start, stop), np.diff(X.indptr[start : stop + 1]))
        if len(others) < X.shape[1]:
            kept = wanted[columns]
            columns, values, rows = columns[kept], values[kept], rows[kept]
        for sign in (0, 1):
            changes = change(unit[sign, rows] * values, rows)
            sums[sign, : X.shape[1]] += np.bincount(columns, changes, minlength=X.shape[1])


def population_changes(problem: Problem, population: Array, start: Array, cap: float) -> Array:
    """Return the sums over records of their clipped changes of loss from ``start`` to each of the candidates.

    Parameters
    ----------
    problem : Problem
    population : ndarray of shape (m, n_weights, n_outputs)
    start : ndarray of shape (n_weights, n_outputs)
    cap : float
        Not negative. Each record's change is clipped to ``[-cap, cap]``.

    Returns
    -------
    ndarray of shape (m,)
    """
    n_outputs = problem.n_outputs
    sums = np.zeros(len(population))
    group = max(1, _PRODUCT_COLUMNS // n_outputs)
    for block in problem._rows:
        targets = problem.targets[block.rows]

        def values(weights: Array, block: Any = block, targets: Array = targets) -> Iterator[Array]:
            """Yield the losses of each of a few candidates, given as columns side by side."""
            scores = np.asfortranarray(problem._block_scores(block, weights))
            for first in range(0, scores.shape[1], n_outputs):
                own = scores[:, first : first + n_outputs]
                yield problem.loss.values(own if n_outputs > 1 else own[:, 0], targets)

        (before,) = values(start)
        for first in range(0, len(population), group):
            members = population[first : first + group]
            side_by_side = np.concatenate(list(members), axis=1)
            for a, after in enumerate(values(side_by_side), start=first):
                sums[a] += np.clip(after - before, -cap, cap).sum()
    return sums
