"""Prediction: scores of rows that are bounded as they were in ``fit``."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.utils.validation import check_is_fitted

from dpskl.records.design import Design
from dpskl.validation import validate_rows

__all__ = ["LinearPredictor"]


class LinearPredictor:
    """What a fitted linear classifier does with rows; nothing here reads training records or draws noise."""

    # set by fit
    coef_: np.ndarray[Any, Any]
    intercept_: np.ndarray[Any, Any]
    classes_: np.ndarray[Any, Any]
    data_norm_: float
    _constant: float
    _rows: str
    # norm of a typical row in units of the clip norm, where gradients were clipped; models of old have none
    _clipped_length: float | None = None

    def _bounded(self, X: Any) -> tuple[Any, Design]:
        check_is_fitted(self)
        X = validate_rows(self, X)
        return X, Design(X, data_norm=self.data_norm_, intercept=self._constant, rows=self._rows)

    def decision_function(self, X):
        """Return the scores of the classes; rows are scaled as in ``fit``.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)

        Returns
        -------
        ndarray of shape (n_samples,) or (n_samples, n_classes)
            For two classes, positive scores speak for ``classes_[1]``.
        """
        _, rows = self._bounded(X)
        weights = self.coef_.T
        if self._constant:
            weights = np.vstack([weights, self.intercept_ / self._constant])
        scores = rows.scores(weights)
        return scores[:, 0] if len(self.classes_) == 2 else scores

    def score_parts(self, X):
        """Return what each feature adds to the scores of a row, and last the intercept.

        They sum to ``decision_function``, which is not ``x . coef_ + intercept_`` for rows that are scaled: the factor
        of a row depends on all of its features. A tool that reads ``coef_`` and ``intercept_`` and multiplies by rows
        as they are explains another model.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)

        Returns
        -------
        ndarray of shape (n_samples, n_features + 1) or (n_samples, n_classes, n_features + 1)

        Examples
        --------
        >>> import numpy as np
        >>> from dpskl import DPLogisticRegression
        >>> X = np.array([[3.0, 4.0], [0.0, 10.0]] * 500)
        >>> model = DPLogisticRegression(data_norm=5.0, classes=[0, 1]).fit(X, np.arange(1000) % 2)
        >>> bool(np.allclose(model.score_parts(X).sum(axis=-1), model.decision_function(X)))
        True
        """
        X, rows = self._bounded(X)
        factors, constants = rows.row_map
        X = X.toarray() if sp.issparse(X) else X
        with np.errstate(over="ignore", invalid="ignore"):  # of rows that are scaled to nothing
            parts = np.where(factors[:, None] > 0, X * factors[:, None], 0)[:, None, :] * self.coef_
        shares = constants / self._constant if self._constant else np.zeros(len(parts))
        parts = np.concatenate([parts, np.multiply.outer(shares, self.intercept_)[:, :, None]], axis=2)
        return parts[:, 0] if len(self.classes_) == 2 else parts

    def predict(self, X):
        """Return the label with the highest score.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)

        Returns
        -------
        ndarray of shape (n_samples,)
        """
        scores = self.decision_function(X)
        return self.classes_[(scores > 0).astype(int) if scores.ndim == 1 else scores.argmax(axis=1)]
