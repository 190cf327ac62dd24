"""Columns as hat functions: a linear model behind them is an additive model, at a norm that is exactly known."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted, validate_data

from dpskl.preprocessing.blocks import encoded_rows, refuse_values
from dpskl.preprocessing.knots import declared_axes
from dpskl.preprocessing.public import PublicTransformer, parameter_error, rounded_up_norm

__all__ = ["PublicSplineTransformer"]

Array = np.ndarray[Any, Any]


class PublicSplineTransformer(PublicTransformer):
    r"""Piecewise linear B-splines of each column with declared knots.

    A value between two knots becomes two numbers that sum to 1, one for each of the knots, and all other entries of
    its block are 0. The weights of a linear classifier behind it are then the heights of a piecewise linear function of
    the column, which :func:`plot_shape` draws.

    Parameters
    ----------
    low, high : float, array-like of shape (n_features,), mapping or None, default=None
        Bounds of the columns, ``low < high``, known without looking at the data. A number holds for all columns. A
        mapping or a Series with names is matched with the column names of ``X``, whatever their order, and refused
        where ``X`` has none. Values beyond the bounds are moved to them. ``None`` is for who declares the knots of all
        columns: the outermost ones are the bounds.
    n_knots : int or "auto", default="auto"
        How many equally spaced knots each column has, at least 2, the bounds included. ``"auto"`` is 9. What pays
        depends on the budget and the number of records, which a transformer does not know: :func:`knots_for` takes
        them.
    spacing : {"linear", "log"}, array-like of shape (n_features,) or mapping, default="linear"
        The axis on which knots are equally spaced and pieces are straight: ``v``, or ``sign(v) log(1 + |v|)``, which
        suits counts and amounts. A mapping may leave out columns, which are linear then.
    knots : list of (array-like or None), mapping or None, default=None
        Knots of single columns in their units, at least two and increasing, none beyond the bounds; one array (or
        ``None``) for each column, or some by name. Values beyond the outermost knots are moved to them.
    handle_missing : {"error", "zeros", "indicator"}, array-like of shape (n_features,) or mapping, default="error"
        What becomes of NaN: it is refused with the name of its column, or its block is zero, or its block is zero but
        for one more entry at its end, which is 1. A mapping may leave out columns, whose NaN are refused. The weight
        of an indicator that was never 1 is noise alone, so ask for one where values can be missing. Infinite values
        are refused in any case, as by ``PublicScaler``.
    sparse_output : bool, default=True
        Whether the output is CSR, with at most two entries stored for a value, or dense.

    Attributes
    ----------
    knots_ : list of ndarray
        The knots of each column in its units.
    data_norm_ : float
        What no row of the output exceeds, to pass on as ``data_norm``: ``sqrt(n_features_in_)``, rounded up. Rows
        whose values all are knots attain it.
    n_features_in_ : int
    feature_names_in_ : ndarray of shape (n_features,), where ``X`` has column names

    See Also
    --------
    knots_for : How many knots pay.
    shape_functions : What a fitted classifier has learnt of each column.
    sklearn.preprocessing.SplineTransformer : Smoother splines, with knots from the data unless they are declared.

    Notes
    -----
    With the place ``u`` of a value on its axis, between the knots ``t_j`` and ``t_{j+1}``, and
    ``b = (u - t_j) / (t_{j+1} - t_j)``, entry ``j`` is ``1 - b`` and entry ``j + 1`` is ``b``: the B-splines of degree
    1 (de Boor, *A Practical Guide to Splines*, 1978). A block has the squared norm
    ``(1 - b)^2 + b^2 = 1 - 2 b (1 - b)``, which is 1 at a knot and at least 1/2. Scores are sums of functions of single
    columns (Hastie & Tibshirani, *Generalized Additive Models*, 1990). Two knots make a line.

    The bound on the norm holds for the numbers of the output themselves, not up to rounding. These are float64, for
    float32 input too: cast to float32, a block may have a squared norm of ``1 + 2^-50``.

    Examples
    --------
    >>> from dpskl.preprocessing import PublicSplineTransformer
    >>> hats = PublicSplineTransformer(low=[18, 0], high=[98, 1000], n_knots=3, sparse_output=False)
    >>> hats.fit_transform([[38, 250], [18, 2000]])
    array([[0.5, 0.5, 0. , 0.5, 0.5, 0. ],
           [1. , 0. , 0. , 0. , 0. , 1. ]])
    >>> hats.data_norm_
    1.4142135623730951

    By name, with a place for what is missing:

    >>> import pandas as pd
    >>> people = pd.DataFrame({"age": [38.0, None], "income": [250.0, 2000.0]})
    >>> hats = PublicSplineTransformer(
    ...     low={"age": 18, "income": 0},
    ...     high={"age": 98, "income": 1000},
    ...     knots={"income": [0, 500, 1000]},
    ...     n_knots=2,
    ...     handle_missing="indicator",
    ...     sparse_output=False,
    ... ).set_output(transform="pandas")
    >>> hats.fit_transform(people).T
                        0    1
    age[18.0]        0.75  0.0
    age[98.0]        0.25  0.0
    age[missing]     0.00  1.0
    income[0.0]      0.50  0.0
    income[500.0]    0.50  0.0
    income[1000.0]   0.00  1.0
    income[missing]  0.00  0.0
    """

    def __init__(
        self,
        low=None,
        high=None,
        *,
        n_knots="auto",
        spacing="linear",
        knots=None,
        handle_missing="error",
        sparse_output=True,
    ):
        self.low = low
        self.high = high
        self.n_knots = n_knots
        self.spacing = spacing
        self.knots = knots
        self.handle_missing = handle_missing
        self.sparse_output = sparse_output

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = False
        tags.input_tags.allow_nan = not (isinstance(self.handle_missing, str) and self.handle_missing == "error")
        tags.transformer_tags.preserves_dtype = ["float64"]
        return tags

    def transform(self, X):
        """Return the hat functions of all columns, one block after the other.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Finite numbers, and NaN where ``handle_missing`` takes it.

        Returns
        -------
        ndarray or CSR of shape (n_samples, n_features_out)
            float64, with one column for each knot, and one for missing values where ``handle_missing`` is
            ``"indicator"``.

        Raises
        ------
        ValueError
            If a value is infinite, or missing and refused, or if the columns are not those of ``fit``.
        """
        return super().transform(X)

    def get_feature_names_out(self, input_features=None):
        """Return names such as ``"age[38.0]"``, for the knot at 38, and ``"age[missing]"``.

        Parameters
        ----------
        input_features : array-like of str or None, default=None
            Names of the columns; those of ``fit`` where ``X`` had some, and ``x0``, ``x1`` ... otherwise.

        Returns
        -------
        ndarray of str objects
        """
        check_is_fitted(self)
        columns = super().get_feature_names_out(input_features)
        names = [part for name, axis in zip(columns, self._axes, strict=True) for part in axis.output_names(name)]
        return np.array(names, dtype=object)

    def _first_look(self, X: Any) -> Any:
        return self._as_array(X, reset=True)

    def _validate(self, X: Any) -> Any:
        check_is_fitted(self)
        X = self._as_array(X, reset=False)
        self._refuse_values(X)
        return X

    def _as_array(self, X: Any, reset: bool) -> Array:
        # scikit-learn's check for finite numbers can be switched off, and ours cannot
        rows: Array = validate_data(self, X, reset=reset, dtype=[np.float64, np.float32], ensure_all_finite=False)
        return rows

    def _refuse_values(self, X: Array) -> None:
        names = getattr(self, "feature_names_in_", range(X.shape[1]))
        for j, (name, axis) in enumerate(zip(names, self._axes, strict=True)):
            refuse_values(name, X[:, j], axis.missing, "handle_missing")

    def _prepare(self, X: Any) -> None:
        if not isinstance(self.sparse_output, (bool, np.bool_)):
            raise parameter_error("sparse_output", self.sparse_output, "True or False")
        columns = getattr(self, "feature_names_in_", None)
        bounds, knots = (self.low, self.high), (self.n_knots, self.spacing, self.knots)
        self._axes = declared_axes(*bounds, *knots, self.handle_missing, X.shape[1], columns)
        self.knots_ = [axis.knots for axis in self._axes]
        self.data_norm_ = rounded_up_norm(np.ones(X.shape[1]))
        self._refuse_values(X)

    def _map(self, X: Any) -> Any:
        return encoded_rows(self._axes, X.T, len(X), self.sparse_output)
