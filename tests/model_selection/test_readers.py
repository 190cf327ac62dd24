"""Which transformers read records: what the table claims is put to the test."""

import warnings

import joblib
import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from sklearn import impute, kernel_approximation, preprocessing, random_projection
from sklearn.base import clone
from sklearn.compose import ColumnTransformer, make_column_selector, make_column_transformer
from sklearn.decomposition import PCA
from sklearn.experimental import enable_iterative_imputer  # noqa: F401
from sklearn.feature_extraction import DictVectorizer, FeatureHasher
from sklearn.feature_extraction.text import CountVectorizer, HashingVectorizer, TfidfTransformer, TfidfVectorizer
from sklearn.feature_selection import SelectKBest
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import FeatureUnion, make_pipeline, make_union
from sklearn.utils import all_estimators

import dpskl.preprocessing
from dpskl.model_selection.readers import _DEPENDS, READ_NOTHING, readings, reads_records
from dpskl.preprocessing import Numeric, PublicScaler, PublicSplineTransformer, RowNormClipper, TableEncoder

rng = np.random.default_rng(0)
NUMBERS = [rng.uniform(0.1, 2.0, (6, 3)), rng.exponential(5.0, (6, 3))]
GAPS = [np.where(np.arange(18).reshape(6, 3) % 4 == 0, np.nan, NUMBERS[0]), NUMBERS[1].copy()]
GAPS[0][:, 2] = np.nan  # a column without any value
COUNTS = [rng.poisson(1.0, (6, 3)), rng.poisson(4.0, (6, 3))]
CODES = [np.array([[0, 1]] * 5 + [[1, 2]]), np.array([[1, 0]] * 3 + [[2, 2]] * 3)]
TEXTS = [["one two", "two two", "three", "one", "two", "one"], ["four", "five", "five one", "six six", "two", "two"]]
DICTS = [[{"a": 1.0, "b": 2.0}] * 6, [{"c": 3.0, "a": 4.0}] * 6]
CATEGORIES = [[0, 1, 2], [0, 1, 2]]
WORDS = ["one", "two", "six"]

SILENT = [
    (kernel_approximation.AdditiveChi2Sampler(), NUMBERS),
    (preprocessing.Binarizer(threshold=1.0), NUMBERS),
    (FeatureHasher(8), DICTS),
    (HashingVectorizer(n_features=8), TEXTS),
    (preprocessing.Normalizer(), NUMBERS),
    (kernel_approximation.PolynomialCountSketch(n_components=5, random_state=0), NUMBERS),
    (preprocessing.PolynomialFeatures(), NUMBERS),
    (kernel_approximation.SkewedChi2Sampler(n_components=5, random_state=0), NUMBERS),
    (PublicScaler(low=0, high=3), NUMBERS),
    (RowNormClipper(2.0), NUMBERS),
    (PublicSplineTransformer(low=0, high=3, spacing="log"), NUMBERS),
    (PublicSplineTransformer(low=0, high=3, handle_missing="indicator", sparse_output=False), GAPS),
    (TableEncoder({"a": (0, 3), "b": Numeric(0, 3, n_knots=None), "c": [1, 2]}, sparse_output=False), GAPS),
    (TableEncoder({"a": ["0", "1"], "b": "drop"}), CODES),
    (preprocessing.OneHotEncoder(categories=CATEGORIES), CODES),
    (preprocessing.OneHotEncoder(categories=CATEGORIES, drop="first", handle_unknown="ignore"), CODES),
    (preprocessing.OrdinalEncoder(categories=CATEGORIES), CODES),
    (preprocessing.SplineTransformer(knots=[[0.0] * 3, [1.0] * 3, [3.0] * 3]), NUMBERS),
    (preprocessing.FunctionTransformer(), NUMBERS),
    (preprocessing.FunctionTransformer(validate=True), NUMBERS),
    (preprocessing.FunctionTransformer(np.log1p), NUMBERS),
    (impute.SimpleImputer(strategy="constant", fill_value=1.0, keep_empty_features=True), GAPS),
    (impute.MissingIndicator(features="all"), GAPS),
    (kernel_approximation.RBFSampler(gamma=0.3, n_components=5, random_state=0), NUMBERS),
    (random_projection.GaussianRandomProjection(2, random_state=0), NUMBERS),
    (random_projection.SparseRandomProjection(2, random_state=0), NUMBERS),
    (CountVectorizer(vocabulary=WORDS, min_df=2), TEXTS),
    (TfidfTransformer(use_idf=False, sublinear_tf=True), COUNTS),
    (TfidfVectorizer(vocabulary=WORDS, use_idf=False), TEXTS),
    (make_pipeline(PublicScaler(low=0, high=3), None, "passthrough", RowNormClipper()), NUMBERS),
    (make_union(PublicScaler(low=0, high=3), "passthrough", "drop"), NUMBERS),
    (make_column_transformer((RowNormClipper(), [0, 2]), ("drop", [1])), NUMBERS),
    (make_column_transformer((RowNormClipper(), [1]), remainder="passthrough"), NUMBERS),
    (FrozenEstimator(RowNormClipper().fit(NUMBERS[0])), NUMBERS),
]

READERS = [
    (preprocessing.OneHotEncoder(handle_unknown="ignore"), CODES, "categories="),
    (preprocessing.OneHotEncoder(categories=CATEGORIES, min_frequency=2), CODES, "min_frequency="),
    (preprocessing.OneHotEncoder(categories=CATEGORIES, max_categories=2), CODES, "max_categories="),
    (preprocessing.OrdinalEncoder(handle_unknown="use_encoded_value", unknown_value=-1), CODES, "categories="),
    (preprocessing.SplineTransformer(), NUMBERS, "knots="),
    (impute.SimpleImputer(), GAPS, "fill_value="),
    (impute.SimpleImputer(strategy="constant", add_indicator=True, keep_empty_features=True), GAPS, "all"),
    (impute.SimpleImputer(strategy="constant"), GAPS, "keep_empty_features=True"),
    (impute.MissingIndicator(error_on_new=False), GAPS, "features='all'"),
    (kernel_approximation.RBFSampler(gamma="scale", n_components=5, random_state=0), NUMBERS, "number"),
    (CountVectorizer(), TEXTS, "vocabulary="),
    (TfidfTransformer(), COUNTS, "use_idf=False"),
    (TfidfVectorizer(vocabulary=WORDS), TEXTS, "use_idf=False"),
    (preprocessing.FunctionTransformer(lambda X: X - X.mean(axis=0)), NUMBERS, "unless that maps each row by itself"),
    (preprocessing.FunctionTransformer(np.clip, kw_args={"a_min": 0, "a_max": 1}), NUMBERS, "clip"),
    (preprocessing.StandardScaler(), NUMBERS, "PublicScaler"),
    (preprocessing.KBinsDiscretizer(2, quantile_method="averaged_inverted_cdf"), NUMBERS, "edges"),
    (kernel_approximation.Nystroem(n_components=3, random_state=0), NUMBERS, "keeps"),
    (PCA(2), NUMBERS, "directions"),
    (DictVectorizer(), DICTS, "FeatureHasher"),
]


def plain(output):
    return output.toarray() if sp.issparse(output) else np.asarray(output)


def name(value):
    return type(value).__name__


@pytest.mark.parametrize(("transformer", "datasets"), SILENT, ids=name)
def test_what_is_said_to_read_nothing_does_not(transformer, datasets):
    """Neither what is fitted nor what a row is mapped to depends on the rows, those to be mapped included."""
    assert reads_records(transformer) is None
    first, second = (clone(transformer) for _ in datasets)
    one, two = (
        plain(copy.fit_transform(rows) if hasattr(copy, "fit_transform") else copy.fit(rows, None).transform(rows))
        for copy, rows in zip((first, second), datasets, strict=True)
    )
    assert joblib.hash(vars(first)) == joblib.hash(vars(second))
    for rows, together in zip(datasets, (one, two), strict=True):
        for fitted in (first, second):
            alone = np.vstack([plain(fitted.transform(rows[i : i + 1])) for i in range(6)])
            np.testing.assert_allclose(alone, together, rtol=1e-12)


@pytest.mark.parametrize(("transformer", "datasets", "remedy"), READERS, ids=name)
def test_what_is_said_to_read_does(transformer, datasets, remedy):
    assert remedy in reads_records(transformer)
    outputs = []
    for rows in datasets:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            mapped = clone(transformer).fit(rows).transform(datasets[0][:5])
        outputs.append(plain(mapped))
    if "by itself" in remedy:  # here it is the rows beside a row that count
        outputs = [outputs[0][:1], plain(clone(transformer).fit_transform(datasets[0][:1]))]
    if "clip" not in remedy:
        assert outputs[0].shape != outputs[1].shape or not np.allclose(outputs[0], outputs[1], equal_nan=True)


def test_the_number_of_records_is_read_too():
    wide = np.ones((6, 4000))
    for cls in (random_projection.GaussianRandomProjection, random_projection.SparseRandomProjection):
        assert "how many records" in reads_records(cls())
        widths = {cls().fit(wide[:n]).n_components_ for n in (5, 6)}
        assert len(widths) == 2


def test_every_transformer_has_its_place():
    """None is silent by default but those that were put to the test above."""
    tested = {type(transformer) for transformer, _ in SILENT}
    assert set(READ_NOTHING) | set(_DEPENDS) <= tested
    public = (getattr(dpskl.preprocessing, name) for name in dpskl.preprocessing.__all__)
    own = {thing for thing in public if hasattr(thing, "transform")}
    classes = {cls for _, cls in all_estimators(type_filter="transformer")} | own
    assert len(classes) > 80
    some = LogisticRegression()
    arguments = {"transformers": [], "transformer_list": [], "estimators": [("a", some)], "estimator": some}
    arguments["schema"] = {"a": (0, 1)}
    for cls in classes | {CountVectorizer, TfidfVectorizer}:
        needed = cls.__init__.__code__.co_varnames if hasattr(cls.__init__, "__code__") else ()
        given = {key: value for key, value in arguments.items() if key in needed}
        if cls.__name__ == "SparseCoder":
            given["dictionary"] = np.eye(3)
        if cls.__name__ == "GenericUnivariateSelect":
            given = {}
        sentence = reads_records(cls(**given))
        if sentence is None:
            assert cls in tested | {ColumnTransformer, FeatureUnion}, cls
        else:
            assert cls.__name__ in sentence
            assert "reads" in sentence or "read the records" in sentence


class OddScaler(RowNormClipper):
    """Somebody's subclass, which may do anything."""


def test_unknown_types_and_subclasses_are_taken_to_read():
    for unknown in (OddScaler(), type("Thing", (), {})(), 3, "pass", LogisticRegression()):
        assert "taken to read the records" in reads_records(unknown)


def test_parts_are_looked_into():
    odd = make_column_transformer(
        (make_pipeline(RowNormClipper(), preprocessing.StandardScaler()), [0]),
        (preprocessing.Normalizer(), lambda X: [1]),
        remainder=make_union(SelectKBest(), RowNormClipper()),
    )
    sentences = list(readings(odd))
    assert [sentence.split()[0] for sentence in sentences] == ["StandardScaler", "ColumnTransformer", "SelectKBest"]
    assert "<lambda>" in sentences[1]
    assert reads_records(odd) == ". ".join(sentences)
    frozen = FrozenEstimator(preprocessing.StandardScaler().fit(NUMBERS[0]))
    assert "frozen before" in reads_records(frozen)


def test_a_selector_of_columns_by_name_reads_nothing_and_one_by_type_reads_records():
    by_name = make_column_transformer((RowNormClipper(), make_column_selector("age|income")))
    assert reads_records(by_name) is None
    for selector in (make_column_selector(dtype_include=float), make_column_selector("a", dtype_exclude=object)):
        columns = make_column_transformer((RowNormClipper(), selector))
        assert "which columns to take, by make_column_selector; name them" in reads_records(columns)
    # why: one missing value makes floats of a column of whole numbers
    frames = pd.DataFrame({"age": [18, 20]}), pd.DataFrame({"age": [18, None]})
    columns = make_column_transformer(("passthrough", make_column_selector(dtype_include=int)))
    assert [columns.fit_transform(frame).shape[1] for frame in frames] == [1, 0]
