"""Which transformers read records: what they learn is a release that no fit of a classifier pays for.

A table of scikit-learn's transformers and those of this package, by exact type. Whatever is not in it, a subclass
for one, is taken to read the records.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from sklearn import decomposition, feature_selection, impute, preprocessing, random_projection
from sklearn.compose import ColumnTransformer, make_column_selector
from sklearn.feature_extraction import DictVectorizer, FeatureHasher
from sklearn.feature_extraction.text import CountVectorizer, HashingVectorizer, TfidfTransformer, TfidfVectorizer
from sklearn.frozen import FrozenEstimator
from sklearn.kernel_approximation import (
    AdditiveChi2Sampler,
    Nystroem,
    PolynomialCountSketch,
    RBFSampler,
    SkewedChi2Sampler,
)
from sklearn.pipeline import FeatureUnion, Pipeline

import dpskl.preprocessing
from dpskl.preprocessing.public import PublicTransformer

__all__ = ["READ_NOTHING", "formats", "readings", "reads_records"]

_OWN = [getattr(dpskl.preprocessing, name) for name in dpskl.preprocessing.__all__]

# Each row is mapped by itself; fit notes the number and the names of the columns, and draws at random if at all.
READ_NOTHING: tuple[type, ...] = (
    *(cls for cls in _OWN if isinstance(cls, type) and issubclass(cls, PublicTransformer)),
    AdditiveChi2Sampler,
    preprocessing.Binarizer,
    FeatureHasher,
    HashingVectorizer,
    preprocessing.Normalizer,
    PolynomialCountSketch,
    preprocessing.PolynomialFeatures,
    SkewedChi2Sampler,
)

# What the others learn from the records, where it can be said in a few words.
_READ: dict[type, str] = {
    preprocessing.StandardScaler: "means and variances of the columns; PublicScaler takes declared bounds",
    preprocessing.MinMaxScaler: "the smallest and largest values; PublicScaler takes declared bounds",
    preprocessing.MaxAbsScaler: "the largest absolute values; PublicScaler takes declared bounds",
    preprocessing.RobustScaler: "quantiles of the columns; PublicScaler takes declared bounds",
    preprocessing.QuantileTransformer: "quantiles of the columns",
    preprocessing.PowerTransformer: "an exponent for each column",
    preprocessing.KBinsDiscretizer: "the edges of its bins",
    preprocessing.TargetEncoder: "means of the labels",
    preprocessing.LabelBinarizer: "which labels occur",
    preprocessing.LabelEncoder: "which labels occur",
    preprocessing.KernelCenterer: "means of the kernel",
    decomposition.PCA: "the directions of largest variance",
    decomposition.IncrementalPCA: "the directions of largest variance",
    decomposition.TruncatedSVD: "singular vectors",
    feature_selection.VarianceThreshold: "variances, and drops columns by them",
    feature_selection.SelectKBest: "scores, and drops columns by them",
    feature_selection.SelectPercentile: "scores, and drops columns by them",
    feature_selection.SelectFromModel: "the weights of a model, and drops columns by them",
    feature_selection.RFE: "the weights of models, and drops columns by them",
    feature_selection.RFECV: "the weights and scores of models, and drops columns by them",
    feature_selection.SequentialFeatureSelector: "scores of models, and drops columns by them",
    impute.KNNImputer: "the records nearest to an incomplete one",
    Nystroem: "some records, which it keeps",
    DictVectorizer: "which keys and values occur; FeatureHasher learns none",
}


def _one_hot_encoder(encoder: Any) -> str | None:
    if isinstance(encoder.categories, str):
        return "which categories occur; declare them by categories="
    if encoder.min_frequency is not None or encoder.max_categories is not None:
        return "how frequent the categories are; leave min_frequency= and max_categories= out"
    return None


def _simple_imputer(imputer: Any) -> str | None:
    if imputer.strategy != "constant":
        return "what it fills in; strategy='constant' takes a declared fill_value="
    if imputer.add_indicator:
        return "which columns have missing values; MissingIndicator(features='all') marks all of them"
    if not imputer.keep_empty_features:
        return "which columns have no value at all, and drops them; set keep_empty_features=True"
    return None


def _missing_indicator(indicator: Any) -> str | None:
    return None if indicator.features == "all" else "which columns have missing values; set features='all'"


def _rbf_sampler(sampler: Any) -> str | None:
    return "the variance of X, for gamma='scale'; give a number" if isinstance(sampler.gamma, str) else None


def _spline_transformer(splines: Any) -> str | None:
    return "where to put its knots; declare them by an array knots=" if isinstance(splines.knots, str) else None


def _random_projection(projection: Any) -> str | None:
    # a function of the number of records, which is not always public
    automatic = isinstance(projection.n_components, str)
    return "how many records there are, for n_components='auto'; give a number" if automatic else None


def _count_vectorizer(vectorizer: Any) -> str | None:
    return "its vocabulary; declare it by vocabulary=" if vectorizer.vocabulary is None else None


def _tfidf(transformer: Any) -> str | None:
    return "in how many records each word occurs; set use_idf=False" if transformer.use_idf else None


def _function_transformer(transformer: Any) -> str | None:
    function, settings = transformer.func, transformer.kw_args
    is_of_entries = isinstance(function, np.ufunc) and function.signature is None and not settings
    if function is None or is_of_entries:
        return None
    name = getattr(function, "__name__", type(function).__name__)
    return f"all rows at once by {name}, which is not covered unless that maps each row by itself"


_DEPENDS: dict[type, Callable[[Any], str | None]] = {
    preprocessing.OneHotEncoder: _one_hot_encoder,
    preprocessing.OrdinalEncoder: _one_hot_encoder,
    preprocessing.SplineTransformer: _spline_transformer,
    preprocessing.FunctionTransformer: _function_transformer,
    impute.SimpleImputer: _simple_imputer,
    impute.MissingIndicator: _missing_indicator,
    RBFSampler: _rbf_sampler,
    random_projection.GaussianRandomProjection: _random_projection,
    random_projection.SparseRandomProjection: _random_projection,
    CountVectorizer: _count_vectorizer,
    TfidfTransformer: _tfidf,
    TfidfVectorizer: lambda vectorizer: _count_vectorizer(vectorizer) or _tfidf(vectorizer),
}


def reads_records(transformer: Any) -> str | None:
    """Say what a transformer learns from the records that it is fitted to.

    Parameters
    ----------
    transformer : estimator, "passthrough", "drop" or None
        A transformer, or a ``Pipeline``, ``FeatureUnion`` or ``ColumnTransformer`` of transformers.

    Returns
    -------
    str or None
        ``None`` where the transformer maps each row by itself, in a way that its parameters and the number and names
        of the columns fix: then one record changes one row of the output, and the guarantee of a classifier behind it
        holds for the records in front of it. Else a sentence that says what it reads. Types that are not known, and
        subclasses of known ones, are taken to read the records.

    Examples
    --------
    >>> from sklearn.pipeline import make_pipeline
    >>> from sklearn.preprocessing import Normalizer, OneHotEncoder
    >>> from dpskl.model_selection.readers import reads_records
    >>> reads_records(make_pipeline(OneHotEncoder(), Normalizer()))
    'OneHotEncoder reads which categories occur; declare them by categories='
    >>> reads_records(make_pipeline(OneHotEncoder(categories=[["north", "south"]]), Normalizer())) is None
    True
    """
    return ". ".join(readings(transformer)) or None


def readings(transformer: Any) -> Iterator[str]:
    """Yield a sentence for each part of a transformer that reads records; see :func:`reads_records`."""
    cls = type(transformer)
    if transformer is None or (isinstance(transformer, str) and transformer in ("passthrough", "drop")):
        return
    if cls is Pipeline:
        for _, step in transformer.steps:
            yield from readings(step)
    elif cls is FeatureUnion:
        for _, part in transformer.transformer_list:
            yield from readings(part)
    elif cls is ColumnTransformer:
        for _, part, columns in transformer.transformers:
            yield from readings(part)
            if callable(columns) and not _goes_by_name(columns):
                yield f"ColumnTransformer reads which columns to take, by {_name(columns)}; name them"
        yield from readings(transformer.remainder)
    elif cls is FrozenEstimator:
        if any(readings(transformer.estimator)):
            yield f"{_name(transformer.estimator)} was fitted and frozen before: not covered if these records were used"
    elif cls not in READ_NOTHING:
        what = _DEPENDS[cls](transformer) if cls in _DEPENDS else _READ.get(cls, "")
        if what == "":
            yield (
                f"{_name(transformer)} is not known to map each row by itself and from its parameters alone, "
                "and is taken to read the records"
            )
        elif what is not None:
            yield f"{cls.__name__} reads {what}"


def _goes_by_name(columns: Any) -> bool:
    """Whether a selector looks at names alone; one missing value makes another type of a whole column."""
    if type(columns) is not make_column_selector:
        return False
    return columns.dtype_include is None and columns.dtype_exclude is None


_STORES_FEW = (CountVectorizer, TfidfVectorizer, HashingVectorizer, FeatureHasher, TfidfTransformer)


def formats(transformer: Any) -> Iterator[str]:
    """Yield a sentence where the number of entries that are stored for all records chooses the format of the output."""
    cls = type(transformer)
    if cls is Pipeline:
        for _, step in transformer.steps:
            yield from formats(step)
    elif cls is FeatureUnion:
        for _, part in transformer.transformer_list:
            yield from formats(part)
    elif cls is ColumnTransformer:
        parts = [part for _, part, _ in transformer.transformers]
        if transformer.sparse_threshold > 0 and any(map(_is_sparse, parts)):
            yield "ColumnTransformer reads how many entries are stored, to choose its format; set sparse_threshold=0"
        for part in parts:
            yield from formats(part)


def _is_sparse(part: Any) -> bool:
    """Whether a transformer may give sparse rows for dense ones."""
    if isinstance(part, Pipeline):
        return any(_is_sparse(step) for _, step in part.steps)
    return isinstance(part, _STORES_FEW) or bool(
        getattr(part, "sparse_output", False) or getattr(part, "sparse", False)
    )


def _name(thing: Any) -> str:
    name: str = getattr(thing, "__name__", type(thing).__name__)
    return name
