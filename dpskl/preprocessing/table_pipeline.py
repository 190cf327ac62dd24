"""A raw table and a classifier in one pipeline, with a norm that nobody counts by hand."""

from __future__ import annotations

from sklearn.base import clone
from sklearn.pipeline import make_pipeline

from dpskl.preprocessing.schema import as_schema
from dpskl.preprocessing.table_encoder import TableEncoder

__all__ = ["make_table_pipeline"]


def make_table_pipeline(schema, classifier):
    """Return a pipeline of a :class:`TableEncoder` and a classifier whose ``data_norm`` is that of the encoded rows.

    Parameters
    ----------
    schema : Schema or mapping
        What may be in the columns of the table. ``schema.with_knots(...)`` before suits knots to the budget.
    classifier : estimator
        With a parameter ``data_norm``. It is cloned, and the clone gets the norm of the schema, whatever it had; that
        is known before any record is read.

    Returns
    -------
    Pipeline
        Not fitted.

    Raises
    ------
    ValueError
        If the schema is unusable, or the classifier has no parameter ``data_norm``.

    Examples
    --------
    >>> from dpskl import DPLogisticRegression
    >>> from dpskl.preprocessing import make_table_pipeline
    >>> model = make_table_pipeline(
    ...     {"age": (18, 90), "job": ["clerk", "nurse"], "id": "drop"}, DPLogisticRegression(classes=[0, 1])
    ... )
    >>> model[-1].data_norm
    1.4142135623730951
    """
    schema = as_schema(schema)
    if isinstance(classifier, type) or "data_norm" not in getattr(classifier, "get_params", dict)():
        raise ValueError(
            f"{classifier!r} has no parameter data_norm: give a classifier of dpskl, and put searches and other "
            "wrappers around the pipeline"
        )
    return make_pipeline(TableEncoder(schema), clone(classifier).set_params(data_norm=schema.data_norm))
