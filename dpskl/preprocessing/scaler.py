"""Columns brought from declared bounds to a common range."""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from dpskl.preprocessing.public import (
    PublicTransformer,
    by_blocks,
    check_bounds,
    parameter_error,
    refuse_names,
    rounded_up_norm,
)

__all__ = ["PublicScaler"]

Array = np.ndarray[Any, Any]


class PublicScaler(PublicTransformer):
    """Map each column from declared bounds to a common range.

    Parameters
    ----------
    low, high : float, array-like of shape (n_features,), mapping or None, default=None
        Bounds of the columns, ``low <= high``, known without looking at the data: from the questionnaire, the
        instrument, the law. A number holds for all columns, ``None`` stands for that end of ``feature_range``. A
        mapping or a Series with names is matched with the column names of ``X``, whatever their order, and refused
        where ``X`` has none.
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

    By name, in any order:

    >>> import pandas as pd
    >>> people = pd.DataFrame({"age": [38, 18], "income": [250, 2000]})
    >>> PublicScaler(low={"income": 0, "age": 18}, high={"income": 1000, "age": 98}).fit_transform(people)
    array([[0.25, 0.25],
           [0.  , 1.  ]])
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

    def _declared(self, n_features: int | None = None, columns: Any = None) -> _Columns:
        ends = self.feature_range
        if not isinstance(ends, (tuple, list, np.ndarray)) or len(ends) != 2 or np.ndim(ends[0]) or np.ndim(ends[1]):
            raise parameter_error("feature_range", ends, "a pair of numbers, the smaller first")
        (a,), (b,) = check_bounds(ends[0], ends[1], names=("feature_range[0]", "feature_range[1]"))
        if a == b:
            raise parameter_error("feature_range", ends, "a pair of different numbers, the smaller first")
        if not isinstance(self.clip, (bool, np.bool_)):
            raise parameter_error("clip", self.clip, "True or False")
        bounds = a if self.low is None else self.low, b if self.high is None else self.high
        return _Columns(
            *check_bounds(*bounds, n_features=n_features, columns=columns), float(a), float(b), bool(self.clip)
        )

    def _prepare(self, X: Any) -> None:
        names = getattr(self, "feature_names_in_", None)
        refuse_names(names, low=self.low, high=self.high)
        columns = self._declared(X.shape[1], names)
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
        return by_blocks(X, lambda values, rows, columns: direction(self, values, columns))

    def norm(self) -> float:
        largest = np.where(self.low < self.high, max(abs(self.a), abs(self.b)), abs(self.a))
        return rounded_up_norm(largest) if self.clip else inf
