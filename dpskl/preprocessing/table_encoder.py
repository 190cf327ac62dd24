"""A raw table as rows of a norm that is exactly known, by its public schema."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from dpskl.preprocessing.blocks import OneHot, encoded_rows, refuse_values
from dpskl.preprocessing.declarations import Drop, aliases
from dpskl.preprocessing.frames import GAP, Column, Table, as_numbers, as_places, refused, table_of
from dpskl.preprocessing.public import PublicTransformer, parameter_error
from dpskl.preprocessing.schema import Schema, as_schema

__all__ = ["TableEncoder"]

Array = np.ndarray[Any, Any]


class TableEncoder(PublicTransformer):
    r"""Encode a raw table, with words, gaps and skewed numbers, by its public schema.

    Numeric columns become hat functions, as by :class:`PublicSplineTransformer`, or one plain column, and others an
    entry for each declared value. Nothing is learned from records, and each is encoded by itself.

    Parameters
    ----------
    schema : Schema or mapping
        What may be in the columns; a mapping is one in plain Python, such as ``{"age": (18, 90), "job": ["a", "b"]}``.
    sparse_output : bool, default=True
        Whether the output is CSR, or dense, as ``set_output(transform="pandas")`` needs it.

    Attributes
    ----------
    schema_ : Schema
    data_norm_ : float
        What no row of the output exceeds: the square root of the number of columns that the schema uses, rounded up;
        the same as ``schema_.data_norm``. :func:`make_table_pipeline` passes it on to a classifier.
    n_features_in_ : int
        How many columns the schema has, those to drop included.
    feature_names_in_ : ndarray of shape (n_features_in_,)
        Their names.

    See Also
    --------
    Schema : How columns are declared.
    make_table_pipeline : An encoder with a classifier behind it.
    shape_functions, plot_shape : What the classifier has learnt of each column.

    Notes
    -----
    ``fit`` looks at the names of the columns only; values are looked at, and refused, in ``transform``.

    *The norm.* Each column that is used makes one block of a row, and blocks do not overlap, so the squared norm of a
    row is the sum of those of its blocks. With hat functions a block is ``(1 - b, b)`` with ``b`` in [0, 1], of squared
    norm ``1 - 2 b (1 - b) <= 1``; a plain block is one number in [-1, 1]; a block of categories is one 1. Where a value
    is missing all entries but its indicator are 0, and the indicator is 1 or not there. So with ``m`` columns in use
    the norm is at most ``sqrt(m)``, and rows whose numbers all are knots or bounds, and whose categories are known,
    attain it. That holds for the numbers of the output, not up to rounding.

    *Names.* Where a table has names, they decide, in any order, whatever the order in ``fit`` was, and what is not
    declared or not there is refused; scikit-learn's transformers ask for one order. All else is as in its checks of
    estimators, which run on schemas of numbers; ``schema`` has no default, since nothing would be right.

    Examples
    --------
    >>> import pandas as pd
    >>> from dpskl.preprocessing import Numeric, TableEncoder
    >>> people = pd.DataFrame({"job": ["nurse", None, "pilot"], "age": [38.0, None, 120.0], "id": [7, 8, 9]})
    >>> encoder = TableEncoder(
    ...     {"id": "drop", "age": Numeric(18, 98, n_knots=3), "job": ["clerk", "nurse"]}, sparse_output=False
    ... ).set_output(transform="pandas")
    >>> encoder.fit_transform(people).T
                    0    1    2
    age[18.0]     0.5  0.0  0.0
    age[58.0]     0.5  0.0  0.0
    age[98.0]     0.0  0.0  1.0
    age[missing]  0.0  1.0  0.0
    job=clerk     0.0  0.0  0.0
    job=nurse     1.0  0.0  0.0
    job=other     0.0  0.0  1.0
    job=missing   0.0  1.0  0.0
    >>> encoder.data_norm_
    1.4142135623730951
    """

    def __init__(self, schema, *, sparse_output=True):
        self.schema = schema
        self.sparse_output = sparse_output

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = False
        tags.input_tags.allow_nan = tags.input_tags.string = tags.input_tags.categorical = True
        tags.transformer_tags.preserves_dtype = ["float64"]
        return tags

    def transform(self, X):
        """Return the encoded rows.

        Parameters
        ----------
        X : pandas or polars DataFrame, Arrow table, dict of columns, or array-like of shape (n_samples, n_features)
            Columns are found by their names, in any order. An array has none, and its columns are those of the schema
            in their order, those to drop included.

        Returns
        -------
        CSR or ndarray of shape (n_samples, n_features_out)
            float64.

        Raises
        ------
        ValueError
            If a column is not there, there twice or not declared, or if it has dates, infinite numbers, words where
            numbers are declared, or missing values where they are refused. Columns to drop are not looked at.
        """
        return super().transform(X)

    def get_feature_names_out(self, input_features=None):
        """Return names such as ``"age[38.0]"``, ``"age[missing]"``, ``"job=nurse"`` and ``"job=other"``.

        Parameters
        ----------
        input_features : array-like of str or None, default=None
            The names of the schema, or ``None``.

        Returns
        -------
        ndarray of str objects
        """
        check_is_fitted(self)
        super().get_feature_names_out(input_features)
        return np.array(self.schema_.output_names(), dtype=object)

    def _first_look(self, X: Any) -> Schema:
        if not isinstance(self.sparse_output, (bool, np.bool_)):
            raise parameter_error("sparse_output", self.sparse_output, "True or False")
        schema = as_schema(self.schema)
        self._places_in(table_of(X), schema)
        return schema

    def _prepare(self, X: Any) -> None:
        self.schema_ = X
        self._blocks = X.blocks()
        self.data_norm_ = X.data_norm
        self.n_features_in_ = len(X)
        self.feature_names_in_ = np.array(list(X), dtype=object)

    def _validate(self, X: Any) -> tuple[int, list[Array]]:
        check_is_fitted(self)
        table = table_of(X)
        places = self._places_in(table, self.schema_)
        columns = [self._read(table.column(places[name], name), name) for name in self._blocks]
        return table.n_rows, columns

    def _map(self, X: Any) -> Any:
        n_rows, columns = X
        return encoded_rows(list(self._blocks.values()), columns, n_rows, self.sparse_output)

    def _places_in(self, table: Table, schema: Schema) -> dict[str, int]:
        """Return where each column of the schema is in a table; raise ValueError where the two do not go together."""
        if table.names is None:
            if table.n_columns != len(schema):
                raise ValueError(
                    f"X has {table.n_columns} features, but {type(self).__name__} is expecting {len(schema)} features "
                    f"as input: without names they are those of the schema, in their order, {list(schema)}"
                )
            return {name: place for place, name in enumerate(schema)}
        places = {name: place for place, name in enumerate(table.names)}
        if len(places) < len(table.names):
            twice = sorted({name for name in table.names if table.names.count(name) > 1}, key=str)
            raise ValueError(f"X has more than one column named {twice}: rename or leave out the others")
        if unknown := [name for name in places if name not in schema]:
            raise ValueError(
                f"X has the columns {unknown}, which the schema does not name: declare them there, those that are not "
                "to be used as 'drop'"
            )
        if lacking := [
            name for name, declared in schema.items() if name not in places and not isinstance(declared, Drop)
        ]:
            raise ValueError(f"X lacks the columns {lacking}, which the schema declares: add them, empty if need be")
        return places

    def _read(self, column: Column, name: str) -> Array:
        """Return numbers, or places in the block of categories."""
        block, declared = self._blocks[name], self.schema_[name]
        if not isinstance(block, OneHot):
            values = as_numbers(column, name)
            refuse_values(name, values, declared.missing, "missing")
            return values
        places = as_places(column, aliases(block.values), name)
        is_gap = places == GAP
        if declared.missing == "error" and is_gap.any():
            raise refused(name, "has missing values", "missing='indicator' gives them a place of their own")
        return np.where(is_gap, block.missing, np.where(places < 0, block.other, places))
