"""Transformers for private pipelines: what they do follows from their parameters, never from the data.

A scaler that reads its range from the records is a release that nobody charged. These take declared bounds: ``fit``
notes the number and the names of the columns and nothing else, and every row is mapped by itself, so that one
record changes one row and the guarantee of the classifier behind them holds for the records in front of them.
"""

from __future__ import annotations

import reprlib
from collections.abc import Callable
from fractions import Fraction
from math import hypot, inf, nextafter
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from sklearn.base import BaseEstimator, OneToOneFeatureMixin, TransformerMixin
from sklearn.utils import assert_all_finite
from sklearn.utils.validation import check_is_fitted, validate_data

from dpskl.rows import row_scales
from dpskl.validation import check_positive, validate_rows

__all__ = ["PublicScaler", "RowNormClipper"]

Array = np.ndarray[Any, Any]

_SMALLEST, _LARGEST = 1e-100, 1e100  # products and quotients of such numbers neither overflow nor vanish
_BLOCK_SIZE = 1 << 17


class _PublicTransformer(OneToOneFeatureMixin, TransformerMixin, BaseEstimator):
    """``fit`` and ``transform``; subclasses say how parameters are checked and rows are mapped."""

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags

    def fit(self, X, y=None):
        """Check the parameters, and note the number and the names of the columns.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
            Finite numbers.
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
        self._prepare(validate_data(self, X, accept_sparse="csr", dtype=[np.float64, np.float32]))
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

    def _validate(self, X: Any) -> Any:
        check_is_fitted(self)
        X = validate_rows(self, X)
        if sp.issparse(X):
            assert_all_finite(X)  # sums of entries that were stored twice may not be
        return X


class RowNormClipper(_PublicTransformer):
    """Scale rows that are longer than a declared norm down to it.

    Parameters
    ----------
    norm : float, default=1.0
        Largest Euclidean norm of a row of the output, in the units of ``X``, from 1e-100 to 1e100; a classifier
        behind takes it as ``data_norm``. It must be known without looking at the data.

    Attributes
    ----------
    n_features_in_ : int
    feature_names_in_ : ndarray of shape (n_features,), where ``X`` has column names

    Notes
    -----
    The exact norm of a row of the output never exceeds ``norm``: norms are taken in float64, with the slack that
    the classifiers use, and float32 is rounded towards zero. Rows whose squared norm exceeds the largest double
    become zero. ``transform`` works without ``fit``.

    Examples
    --------
    >>> from dpskl.preprocessing import RowNormClipper
    >>> RowNormClipper(norm=5.0).fit_transform([[3.0, 0.0], [30.0, 40.0]]).round(6)
    array([[3., 0.],
           [3., 4.]])
    """

    def __init__(self, norm=1.0):
        self.norm = norm

    @classmethod
    def from_bounds(cls, low, high):
        """Return the clipper to ``sqrt(sum_j max(|low_j|, |high_j|)^2)``, rounded up.

        Parameters
        ----------
        low, high : array-like of shape (n_features,)
            Bounds of each column, known without the data; one of the two may be a number for all columns.

        Returns
        -------
        RowNormClipper

        Raises
        ------
        ValueError
            If a bound is not finite, a lower one is above its upper one, the lengths differ, or all bounds are 0.

        Examples
        --------
        >>> RowNormClipper.from_bounds(low=[0, -4], high=[3, 1])
        RowNormClipper(norm=5.0)
        """
        lows, highs = _check_bounds(low, high)
        if np.ndim(low) + np.ndim(high) == 0:
            raise _error("low", low, f"a list of one bound for each column, or high={high!r} must")
        if not (lows.any() or highs.any()):
            raise _error("low", low, f"other than 0 in some column, or high={reprlib.repr(high)} must")
        return cls(_norm(np.maximum(np.abs(lows), np.abs(highs))))

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.requires_fit = False
        return tags

    def _prepare(self, X: Any) -> None:
        check_positive("norm", self.norm)
        if not _SMALLEST <= self.norm <= _LARGEST:
            raise _error("norm", self.norm, "from 1e-100 to 1e100: choose other units for X")

    def _map(self, X: Any) -> Any:
        self._prepare(X)
        scales = row_scales(X, self.norm)
        return _by_blocks(X, lambda values, rows, columns: values * scales[rows])


class PublicScaler(_PublicTransformer):
    """Map each column from declared bounds to a common range.

    Parameters
    ----------
    low, high : float, array-like of shape (n_features,) or None, default=None
        Bounds of the columns, ``low <= high``, known without looking at the data: from the questionnaire, the
        instrument, the law. A number holds for all columns, ``None`` stands for that end of ``feature_range``.
    feature_range : tuple (float, float), default=(0, 1)
        The lower and the upper end. ``(-1, 1)`` is twice as wide as ``(0, 1)`` at the same norm, hence has twice
        the signal at the same noise. A column with ``low == high`` is mapped to the lower end.
    clip : bool, default=True
        Whether values beyond the bounds are moved to them. Otherwise they leave the range, and no norm is public.

    Attributes
    ----------
    low_, high_ : ndarray of shape (n_features,)
    data_norm_ : float
        What no row of the output exceeds, to pass on as ``data_norm``: ``sqrt(sum_j max(|a_j|, |b_j|)^2)`` over the
        columns' ranges ``[a_j, b_j]``, rounded up; infinite with ``clip=False``.
    n_features_in_ : int
    feature_names_in_ : ndarray of shape (n_features,), where ``X`` has column names

    Notes
    -----
    Sparse input stays sparse, and is accepted only where 0 is mapped to 0: for instance with ``low=0`` and
    ``feature_range=(0, 1)``, or with ``low=-high`` and ``feature_range=(-1, 1)``.

    Examples
    --------
    >>> from dpskl.preprocessing import PublicScaler
    >>> scaler = PublicScaler(low=[18, 0], high=[98, 1000], feature_range=(-1, 1))
    >>> scaler.fit_transform([[38, 250], [18, 2000]])
    array([[-0.5, -0.5],
           [-1. ,  1. ]])
    >>> scaler.data_norm_
    1.4142135623730951
    """

    def __init__(self, low=None, high=None, feature_range=(0, 1), clip=True):
        self.low = low
        self.high = high
        self.feature_range = feature_range
        self.clip = clip

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        try:
            tags.input_tags.sparse = not self._declared().moves_zero(_Columns.forward).any()
        except Exception:  # tags are asked of any parameters; fit says what is wrong with them
            tags.input_tags.sparse = False
        return tags

    def inverse_transform(self, X):
        """Return values in the units that ``transform`` takes; what was clipped stays clipped.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
            Finite numbers.

        Returns
        -------
        ndarray or CSR of shape (n_samples, n_features)
            As from ``transform``; a column with ``low == high`` gets that value.

        Raises
        ------
        ValueError
            If the columns are not those of ``fit``, or ``X`` is sparse and 0 is not mapped to 0.
        """
        X = self._validate(X)
        return self._columns.apply(_Columns.backward, X)

    def _declared(self, n_features: int | None = None) -> _Columns:
        ends = self.feature_range
        if not isinstance(ends, (tuple, list, np.ndarray)) or len(ends) != 2 or np.ndim(ends[0]) or np.ndim(ends[1]):
            raise _error("feature_range", ends, "a pair of numbers, the smaller first")
        (a,), (b,) = _check_bounds(ends[0], ends[1], names=("feature_range[0]", "feature_range[1]"))
        if a == b:
            raise _error("feature_range", ends, "a pair of different numbers, the smaller first")
        if not isinstance(self.clip, (bool, np.bool_)):
            raise _error("clip", self.clip, "True or False")
        bounds = a if self.low is None else self.low, b if self.high is None else self.high
        return _Columns(*_check_bounds(*bounds, n_features=n_features), float(a), float(b), bool(self.clip))

    def _prepare(self, X: Any) -> None:
        columns = self._declared(X.shape[1])
        columns.check_format(_Columns.forward, X)
        self._columns, self.low_, self.high_, self.data_norm_ = columns, columns.low, columns.high, columns.norm()

    def _map(self, X: Any) -> Any:
        return self._columns.apply(_Columns.forward, X)


class _Columns(NamedTuple):
    """The map from ``[low, high]``, a vector each, to ``[a, b]``, on float64 values and an index of their columns."""

    low: Array
    high: Array
    a: float
    b: float
    clip: bool

    def _parts(self, columns: Any) -> tuple[Array, Array, Array, Array]:
        low, high = self.low[columns], self.high[columns]
        # where 0 is mapped to 0 both offsets are 0, so that rounding cannot move it
        keeps_zero = (self.a * high == self.b * low) & (low < high)
        return low, high, np.where(keeps_zero, 0, low), np.where(keeps_zero, 0, self.a)

    def forward(self, values: Array, columns: Any) -> Array:
        low, high, origin, image = self._parts(columns)
        values = (np.clip(values, low, high) if self.clip else values) - origin
        values = np.divide(values, high - low, out=np.zeros_like(values), where=low < high) * (self.b - self.a) + image
        return np.clip(values, self.a, self.b) if self.clip else values

    def backward(self, values: Array, columns: Any) -> Array:
        low, high, origin, image = self._parts(columns)
        return (values - image) / (self.b - self.a) * (high - low) + origin

    def moves_zero(self, direction: Callable[..., Array]) -> Array:
        return direction(self, np.zeros(len(self.low)), slice(None)) != 0

    def check_format(self, direction: Callable[..., Array], X: Any) -> None:
        if sp.issparse(X) and (moved := self.moves_zero(direction).sum()):
            raise ValueError(
                f"X is sparse, but 0 is not mapped to 0 in {moved} of its columns, so that the result would be dense: "
                "choose low=0 with feature_range=(0, 1) or low=-high with feature_range=(-1, 1), or pass X.toarray()"
            )

    def apply(self, direction: Callable[..., Array], X: Any) -> Any:
        self.check_format(direction, X)
        return _by_blocks(X, lambda values, rows, columns: direction(self, values, columns))

    def norm(self) -> float:
        largest = np.where(self.low < self.high, max(abs(self.a), abs(self.b)), abs(self.a))
        return _norm(largest) if self.clip else inf


def _by_blocks(X: Any, function: Callable[[Array, Any, Any], Array]) -> Any:
    """Return ``function(float64 values, rows, columns)`` in the format and type of ``X``.

    ``vector[rows]`` and ``vector[columns]`` take the shape of the values, for a vector over rows or columns.
    """
    out = X.copy() if sp.issparse(X) else np.empty_like(X, subok=False)
    source, target = (X.data, out.data) if sp.issparse(X) else (X, out)
    row_of = np.repeat(np.arange(X.shape[0]), np.diff(X.indptr)) if sp.issparse(X) else None
    height = max(1, _BLOCK_SIZE // (1 if sp.issparse(X) else X.shape[1]))
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


def _norm(vector: Array) -> float:
    """Return the Euclidean norm, rounded up."""
    sizes, counts = np.unique(vector, return_counts=True)
    exact = sum(count * Fraction(size) ** 2 for size, count in zip(sizes.tolist(), counts.tolist(), strict=True))
    norm = hypot(*vector)
    while Fraction(norm) ** 2 < exact:
        norm = nextafter(norm, inf)
    return norm


def _error(name: str, value: Any, rule: str) -> ValueError:
    return ValueError(f"{name}={reprlib.repr(value)}, but it must be {rule}")


def _check_bounds(
    low: Any, high: Any, names: tuple[str, str] = ("low", "high"), n_features: int | None = None
) -> tuple[Array, Array]:
    """Return bounds as float64 vectors of one length, ``n_features`` where it is given."""
    bounds = []
    for name, value in zip(names, (low, high), strict=True):
        array = np.asarray(value)
        if array.dtype.kind not in "iuf" or array.ndim > 1 or array.size == 0:
            raise _error(name, value, "a number, or a list with one number for each column")
        sizes = np.abs(array.astype(np.float64))
        if not np.all((sizes == 0) | ((sizes >= _SMALLEST) & (sizes <= _LARGEST))):
            raise _error(name, value, "finite, and 0 or from 1e-100 to 1e100 in size: declare what is known without X")
        if n_features and array.ndim and len(array) != n_features:
            raise _error(name, value, f"one number, or {n_features}, one for each column of X; it has {len(array)}")
        bounds.append(array.astype(np.float64))
    if bounds[0].ndim and bounds[1].ndim and len(bounds[0]) != len(bounds[1]):
        lengths = f"{len(bounds[0])} and {len(bounds[1])}"
        raise _error(
            names[0], low, f"as long as {names[1]}={reprlib.repr(high)}, one number for each column: {lengths}"
        )
    shape = np.broadcast_shapes(bounds[0].shape, bounds[1].shape, (n_features or 1,))
    lows, highs = (np.broadcast_to(array, shape).copy() for array in bounds)
    if (wrong := np.flatnonzero(lows > highs)).size:
        where = f", which column {wrong[0]} exceeds" if len(lows) > 1 else ""
        rule = f"at most {names[1]}={reprlib.repr(high)}{where}: swap or correct the two"
        raise _error(names[0], low, rule)
    return lows, highs
