"""What a linear classifier on hat functions or encoded tables has learnt of each column: one function of its values.

Post-processing of released weights: no records are read, and nothing is charged.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from sklearn.compose import ColumnTransformer
from sklearn.pipeline import FeatureUnion, Pipeline
from sklearn.utils.validation import check_is_fitted

from dpskl.preprocessing.blocks import Block, OneHot, Plain, starts_of
from dpskl.preprocessing.clipper import RowNormClipper
from dpskl.preprocessing.knots import to_axis
from dpskl.preprocessing.splines import PublicSplineTransformer
from dpskl.preprocessing.table_encoder import TableEncoder

__all__ = ["CategoryHeights", "ShapeFunction", "shape_functions"]

Array = np.ndarray[Any, Any]


class ShapeFunction(NamedTuple):
    """The part of the score that one column adds, up to a constant.

    Attributes
    ----------
    knots : ndarray of shape (n_knots,)
        In the units of the column.
    values : ndarray of shape (n_knots,) or (n_knots, n_classes)
        Heights at the knots, with mean 0; straight lines between them on the axis of the column.
    missing : float, ndarray of shape (n_classes,) or None
        Height where the value is missing, less the same mean; ``None`` without an indicator.
    spacing : {"linear", "log"}
        The axis of the column.
    """

    knots: Array
    values: Array
    missing: Any
    spacing: str

    def at(self, values):
        """Return the heights at some values, clipped to the knots.

        Parameters
        ----------
        values : array-like of shape (n,)
            Finite numbers.

        Returns
        -------
        ndarray of shape (n,) or (n, n_classes)
        """
        places = to_axis(np.asarray(values, dtype=np.float64), self.spacing)
        knots = to_axis(self.knots, self.spacing)
        heights = self.values.reshape(len(knots), -1)
        parts = [np.interp(places, knots, column) for column in heights.T]
        return np.column_stack(parts) if self.values.ndim == 2 else parts[0]


class CategoryHeights(NamedTuple):
    """The part of the score that one column of categories adds, up to a constant.

    Attributes
    ----------
    categories : tuple
        The declared values.
    values : ndarray of shape (n_categories,) or (n_categories, n_classes)
        Their heights, with mean 0.
    other, missing : float, ndarray of shape (n_classes,) or None
        Heights where the value is unknown or missing, less the same mean; ``None`` where they have no entry.
    """

    categories: tuple[Any, ...]
    values: Array
    other: Any
    missing: Any


def shape_functions(model, transformer=None, *, names=None):
    """Return the function of each column that a linear classifier has learnt on hat functions or an encoded table.

    Parameters
    ----------
    model : fitted classifier or Pipeline
        With ``coef_``. Of a pipeline, its last step.
    transformer : PublicSplineTransformer, TableEncoder or None, default=None
        The fitted transformer in front of it. ``None`` looks for the only one in the pipeline, where it may be a part
        of a ``ColumnTransformer``.
    names : array-like of str or None, default=None
        Names of the columns of ``coef_``, for a transformer that made only some of them: what
        ``get_feature_names_out()`` of the whole preprocessing says. Prefixes such as ``"numbers__"`` are ignored.
        ``None`` asks the pipeline, or takes the names of the transformer.

    Returns
    -------
    dict of str to ShapeFunction or CategoryHeights
        By name of the original column, in their order. For numbers: tuples of ``knots`` in the units of the column,
        ``values`` at the knots of shape (n_knots,) or (n_knots, n_classes), the height where the value is ``missing``
        or ``None``, and ``spacing``; their method ``at(values)`` reads the function. For categories: tuples of
        ``categories``, their ``values``, and the heights of ``other`` and ``missing`` ones or ``None``.

    Raises
    ------
    ValueError
        If there is not exactly one transformer, a step behind it changes its columns, or ``coef_`` has other columns.

    Notes
    -----
    Constants are free, since the entries of a column sum to 1: the mean over the knots or the declared categories is
    subtracted, a public convention. A plain column of an encoded table has two knots, its bounds.
    Heights are released with noise, which is largest at knots that few records are near; what is drawn there, and the
    height of missing values in a column that has none, says little.

    Solvers that bring all rows to one norm multiply all parts of the score of one row by one positive factor, between
    0.95 and ``sqrt(2)`` where all columns are hats and no value is missing; ``score_parts`` says what a row got.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.pipeline import make_pipeline
    >>> from dpskl import DPLogisticRegression
    >>> from dpskl.preprocessing import PublicSplineTransformer, shape_functions
    >>> age = np.linspace(18, 98, 20_000)[:, None]
    >>> is_middle_aged = (abs(age[:, 0] - 58) < 20).astype(int)
    >>> model = make_pipeline(
    ...     PublicSplineTransformer(low=18, high=98, n_knots=5), DPLogisticRegression(classes=[0, 1])
    ... ).fit(age, is_middle_aged)
    >>> shape = shape_functions(model)["x0"]
    >>> shape.knots.tolist(), int(shape.values.argmax())
    ([18.0, 38.0, 58.0, 78.0, 98.0], 2)
    """
    found, transformer, names = _parts(model, transformer, names)
    coef = np.atleast_2d(np.asarray(found.coef_))
    own = list(transformer.get_feature_names_out())
    names = own if names is None else [str(name) for name in names]
    if len(names) != coef.shape[1]:
        raise ValueError(f"coef_ has {coef.shape[1]} columns and names= has {len(names)}: give one for each of them")
    # with no names around them, a name such as "a__b" is not one with a prefix
    places = np.arange(len(own)) if own == list(names) else np.array([_place_of(name, names) for name in own])
    blocks = _blocks_of(transformer)
    starts = starts_of(list(blocks.values()))
    shapes: dict[str, ShapeFunction | CategoryHeights] = {}
    for (name, block), start in zip(blocks.items(), starts, strict=False):
        weights = coef[:, places[start : start + block.width]].T
        shapes[name] = _shape(block, weights[:, 0] if len(coef) == 1 else weights)
    return shapes


def _blocks_of(transformer: PublicSplineTransformer | TableEncoder) -> dict[str, Block]:
    """Return the block of each original column, by its name."""
    if isinstance(transformer, TableEncoder):
        return transformer.schema_.blocks()
    columns = getattr(transformer, "feature_names_in_", [axis.name for axis in transformer._axes])
    return dict(zip(columns, transformer._axes, strict=True))


def _shape(block: Any, weights: Array) -> ShapeFunction | CategoryHeights:
    """Return what the weights of one block say."""
    if isinstance(block, OneHot):
        heights = weights - weights[: len(block.values)].mean(axis=0)
        other, missing = (None if place < 0 else heights[place] for place in (block.other, block.missing))
        return CategoryHeights(block.values, heights[: len(block.values)], other, missing)
    if isinstance(block, Plain):
        axis, weights = block.axis, np.concatenate([-weights[:1], weights])
    else:
        axis = block
    count = len(axis.knots)
    centre = weights[:count].mean(axis=0)
    missing = weights[count] - centre if len(weights) > count else None
    return ShapeFunction(axis.knots, weights[:count] - centre, missing, axis.spacing)


def _parts(model: Any, transformer: Any, names: Any) -> tuple[Any, Any, Any]:
    """Return the classifier, the transformer, and the names of the columns in between where a pipeline knows them."""
    final = model
    if isinstance(model, Pipeline):
        check_is_fitted(model)
        final, front = model[-1], model[:-1]
        if transformer is None:
            found = list(_readable(front))
            if len(found) != 1:
                raise ValueError(
                    f"the pipeline has {len(found)} PublicSplineTransformer or TableEncoder: give one as transformer="
                )
            transformer = found[0]
        if names is None:
            try:
                names = front.get_feature_names_out()
            except (AttributeError, ValueError) as error:
                raise ValueError(f"the pipeline cannot name its columns, {error}; give them as names=") from error
    if not isinstance(transformer, (PublicSplineTransformer, TableEncoder)):
        raise ValueError(
            f"transformer={transformer!r}, but it must be a PublicSplineTransformer or TableEncoder, "
            "or model= a pipeline that has one"
        )
    check_is_fitted(transformer)
    if isinstance(final, Pipeline):
        raise ValueError("the last step of the pipeline is a pipeline: give its classifier, transformer= and names=")
    if not hasattr(final, "coef_"):
        raise ValueError(f"{type(final).__name__} has no coef_: give a fitted linear classifier, or best_estimator_")
    return final, transformer, names


def _readable(part: Any) -> Iterator[PublicSplineTransformer | TableEncoder]:
    """Yield the transformers in a fitted part of a pipeline."""
    if isinstance(part, (PublicSplineTransformer, TableEncoder)):
        yield part
    elif isinstance(part, FeatureUnion):
        for _, inner in part.transformer_list:
            yield from _readable(inner)
    elif isinstance(part, ColumnTransformer):
        for _, inner, _ in part.transformers_:
            yield from _readable(inner)
    elif isinstance(part, Pipeline):
        found: list[PublicSplineTransformer | TableEncoder] = []
        for name, step in part.steps:
            if found and not (step is None or isinstance(step, RowNormClipper) or _is_passthrough(step)):
                raise ValueError(
                    f"the step {name!r} stands behind the splines and may change their columns: shapes cannot be read "
                    "from the weights, unless you give transformer= and names= and know that it keeps them"
                )
            found.extend(_readable(step))
        yield from found


def _is_passthrough(step: Any) -> bool:
    return isinstance(step, str) and step == "passthrough"


def _place_of(name: str, names: list[str]) -> int:
    places = [j for j, other in enumerate(names) if other == name or other.endswith("__" + name)]
    if len(places) != 1:
        raise ValueError(f"{len(places)} columns of coef_ are named {name!r}, with any prefix: give names= with one")
    return places[0]
