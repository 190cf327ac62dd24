"""What the transformers of this room share: what they do follows from their parameters, never from the data.

A scaler that reads its range from the records is a release that nobody charged. These take declared bounds: ``fit``
notes the number and the names of the columns and nothing else, and every row is mapped by itself, so that one
record changes one row and the guarantee of the classifier behind them holds for the records in front of them.
"""

from __future__ import annotations

import reprlib
from collections.abc import Callable
from fractions import Fraction
from math import hypot, inf, nextafter
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.base import BaseEstimator, OneToOneFeatureMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted, validate_data

from dpskl.preprocessing.named import in_order, is_named
from dpskl.progress import CallbackSupportMixin, Progress, with_callbacks
from dpskl.validation import validate_rows

Array = np.ndarray[Any, Any]

SMALLEST, LARGEST = 1e-100, 1e100  # products and quotients of such numbers neither overflow nor vanish
BLOCK_SIZE = 1 << 17  # numbers that are mapped at a time


class PublicTransformer(CallbackSupportMixin, OneToOneFeatureMixin, TransformerMixin, BaseEstimator):
    """``fit`` and ``transform``; subclasses say how parameters are checked and rows are mapped."""

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags

    @with_callbacks
    def fit(self, X, y=None):
        """Check the parameters, and note the number and the names of the columns.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
            Such rows as ``transform`` takes.
        y : None
            Ignored.

        Returns
        -------
        self

        Raises
        ------
        ValueError
            If a parameter is unusable, or does not suit the number of columns or the format of ``X``.
        """
        progress = Progress(self, 0)
        self._prepare(self._first_look(X))
        progress.finished()
        return self

    def transform(self, X):
        """Return the mapped rows in a new array; ``X`` is never written to.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
            Finite numbers.

        Returns
        -------
        ndarray or CSR of shape (n_samples, n_features)
            float32 for float32 and float64 for all else; sparse for sparse.

        Raises
        ------
        ValueError
            As in ``fit``, or if the columns are not those of ``fit``.
        """
        return self._map(self._validate(X))

    def _first_look(self, X: Any) -> Any:
        return validate_data(self, X, accept_sparse="csr", dtype=[np.float64, np.float32])

    def _validate(self, X: Any) -> Any:
        check_is_fitted(self)
        return validate_rows(self, X)


def by_blocks(X: Any, function: Callable[[Array, Any, Any], Array]) -> Any:
    """Return ``function(float64 values, rows, columns)`` in the format and type of ``X``.

    ``vector[rows]`` and ``vector[columns]`` take the shape of the values, for a vector over rows or columns.
    """
    out = X.copy() if sp.issparse(X) else np.empty_like(X, subok=False)
    source, target = (X.data, out.data) if sp.issparse(X) else (X, out)
    row_of = np.repeat(np.arange(X.shape[0]), np.diff(X.indptr)) if sp.issparse(X) else None
    height = max(1, BLOCK_SIZE // (1 if sp.issparse(X) else X.shape[1]))
    for start in range(0, len(source), height):
        part = slice(start, start + height)
        rows, columns = ((part, None), slice(None)) if row_of is None else (row_of[part], X.indices[part])
        values = function(source[part].astype(np.float64), rows, columns)
        target[part] = values if target.dtype == np.float64 else _towards_zero(values, target.dtype)
    return out


def _towards_zero(values: Array, dtype: Any) -> Array:
    """Return float64 values in a narrower type, none larger in size: a bound on their norm remains one."""
    with np.errstate(over="ignore"):
        rounded = values.astype(dtype)
    too_large = np.abs(rounded) > np.abs(values)
    return np.nextafter(rounded, rounded.dtype.type(0), out=rounded, where=too_large)


def rounded_up_norm(vector: Array) -> float:
    """Return the Euclidean norm, rounded up."""
    sizes, counts = np.unique(vector, return_counts=True)
    exact = sum(count * Fraction(size) ** 2 for size, count in zip(sizes.tolist(), counts.tolist(), strict=True))
    norm = hypot(*vector)
    while Fraction(norm) ** 2 < exact:
        norm = nextafter(norm, inf)
    return norm


def parameter_error(name: str, value: Any, rule: str) -> ValueError:
    return ValueError(f"{name}={reprlib.repr(value)}, but it must be {rule}")


def refuse_names(columns: Any, **given: Any) -> None:
    """Raise ValueError where a parameter goes by the names of columns and ``X`` has none."""
    for label, value in given.items():
        if columns is None and is_named(value):
            rule = "a list in the order of the columns, since X has no column names"
            remedy = "; earlier steps of a pipeline keep them after set_output(transform='pandas')"
            raise parameter_error(label, value, rule + remedy)


def check_bounds(
    low: Any,
    high: Any,
    names: tuple[str, str] = ("low", "high"),
    n_features: int | None = None,
    columns: Any = None,
) -> tuple[Array, Array]:
    """Return bounds as float64 vectors of one length, in the order of ``columns`` and ``n_features`` where known."""
    low, high = in_order((low, high), names, columns)
    bounds = []
    for name, value in zip(names, (low, high), strict=True):
        array = np.asarray(value)
        if array.dtype.kind not in "iuf" or array.ndim > 1 or array.size == 0:
            raise parameter_error(name, value, "a number, or a list with one number for each column")
        sizes = np.abs(array.astype(np.float64))
        if not np.all((sizes == 0) | ((sizes >= SMALLEST) & (sizes <= LARGEST))):
            raise parameter_error(
                name, value, "finite, and 0 or from 1e-100 to 1e100 in size: declare what is known without X"
            )
        if n_features and array.ndim and len(array) != n_features:
            raise parameter_error(
                name, value, f"one number, or {n_features}, one for each column of X; it has {len(array)}"
            )
        bounds.append(array.astype(np.float64))
    if bounds[0].ndim and bounds[1].ndim and len(bounds[0]) != len(bounds[1]):
        lengths = f"{len(bounds[0])} and {len(bounds[1])}"
        raise parameter_error(
            names[0], low, f"as long as {names[1]}={reprlib.repr(high)}, one number for each column: {lengths}"
        )
    shape = np.broadcast_shapes(bounds[0].shape, bounds[1].shape, (n_features or 1,))
    lows, highs = (np.broadcast_to(array, shape).copy() for array in bounds)
    if (wrong := np.flatnonzero(lows > highs)).size:
        where = f", which column {wrong[0]} exceeds" if len(lows) > 1 else ""
        rule = f"at most {names[1]}={reprlib.repr(high)}{where}: swap or correct the two"
        raise parameter_error(names[0], low, rule)
    return lows, highs
