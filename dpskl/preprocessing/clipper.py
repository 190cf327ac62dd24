"""Rows of bounded norm."""

from __future__ import annotations

import reprlib
from typing import Any

import numpy as np

from dpskl.preprocessing.named import in_order
from dpskl.preprocessing.public import (
    LARGEST,
    SMALLEST,
    PublicTransformer,
    by_blocks,
    check_bounds,
    parameter_error,
    rounded_up_norm,
)
from dpskl.records.rows import row_scales
from dpskl.validation import check_positive

__all__ = ["RowNormClipper"]


class RowNormClipper(PublicTransformer):
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
        low, high : array-like of shape (n_features,) or mapping
            Bounds of each column, known without the data; one of the two may be a number for all columns. Mappings and
            Series with names are matched by name.

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
        low, high = in_order((low, high), ("low", "high"), None)
        lows, highs = check_bounds(low, high)
        if np.ndim(low) + np.ndim(high) == 0:
            raise parameter_error("low", low, f"a list of one bound for each column, or high={high!r} must")
        if not (lows.any() or highs.any()):
            raise parameter_error("low", low, f"other than 0 in some column, or high={reprlib.repr(high)} must")
        return cls(rounded_up_norm(np.maximum(np.abs(lows), np.abs(highs))))

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.requires_fit = False
        return tags

    def _prepare(self, X: Any) -> None:
        check_positive("norm", self.norm)
        if not SMALLEST <= self.norm <= LARGEST:
            raise parameter_error("norm", self.norm, "from 1e-100 to 1e100: choose other units for X")

    def _map(self, X: Any) -> Any:
        self._prepare(X)
        scales = row_scales(X, self.norm)
        return by_blocks(X, lambda values, rows, columns: values * scales[rows])
