"""Public transformers: exact bounds on rows, every format kept, nothing learned from the data."""

import pickle
import tracemalloc
from fractions import Fraction

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from sklearn.base import clone
from sklearn.compose import ColumnTransformer
from sklearn.exceptions import NotFittedError
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MinMaxScaler, OneHotEncoder
from sklearn.utils.estimator_checks import parametrize_with_checks

from dpskl import DPLogisticRegression
from dpskl.preprocessing import PublicScaler, RowNormClipper
from dpskl.records.design import Design
from dpskl.records.rows import row_norms, row_scales

FORMATS = {
    "C": np.ascontiguousarray,
    "F": np.asfortranarray,
    "strided": lambda X: np.repeat(X, 2, axis=1)[:, ::2],
    "csr_matrix": sp.csr_matrix,
    "csr_array": sp.csr_array,
}
TRANSFORMERS = [RowNormClipper(2.0), PublicScaler(low=-3, high=[1, 2, 5], feature_range=(-1, 1)), PublicScaler()]


def dense(X):
    return X.toarray() if sp.issparse(X) else np.asarray(X)


def exact_norms(X):
    return np.sqrt((dense(X).astype(np.longdouble) ** 2).sum(axis=1))


@parametrize_with_checks(
    [
        RowNormClipper(),
        RowNormClipper(0.1),
        PublicScaler(),
        PublicScaler(low=-5, high=5, feature_range=(-1, 1)),  # keeps sparse input
        PublicScaler(low=-5, high=7, feature_range=(2, 3)),  # refuses it
        PublicScaler(low=0, high=7, clip=False),
    ]
)
def test_scikit_learn_check(estimator, check):
    check(estimator)


# -- RowNormClipper -----------------------------------------------------------------------------------


def long_rows(dtype, d=40):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(600, d)) * 10.0 ** rng.integers(-3, 6, size=(600, 1))
    X[rng.random(X.shape) < 0.4] = 0
    X[3] = 0
    return X.astype(dtype)


@pytest.mark.parametrize("norm", [1e-41, 1e-3, 0.7, 1.0, 1e30])  # float32 has few digits at 1e-41
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("layout", FORMATS)
def test_no_row_exceeds_the_norm_and_short_rows_stay(layout, dtype, norm):
    base = long_rows(dtype)
    X = FORMATS[layout](base)
    out = RowNormClipper(norm).fit_transform(X)
    assert type(out) is type(X)
    assert out.dtype == dtype
    assert exact_norms(out).max() <= norm
    short = exact_norms(base) < norm * (1 - 1e-9)
    np.testing.assert_array_equal(dense(out)[short], base[short])
    if norm > 1e-30:
        np.testing.assert_allclose(exact_norms(out)[~short], norm, rtol=1e-6 if dtype == np.float32 else 1e-11)
    np.testing.assert_array_equal(dense(X), base)  # the input is as it was
    values, given = (out.data, X.data) if sp.issparse(X) else (out, X)
    assert not np.shares_memory(values, given)


def test_clipper_and_classifier_share_one_row_map():
    X = long_rows(np.float64)
    out = RowNormClipper(0.9).transform(X)
    problem = Design(X, data_norm=0.9)
    np.testing.assert_array_equal(out, np.column_stack([problem.column(j) for j in range(X.shape[1])]))
    np.testing.assert_array_equal(row_scales(X, 0.9), row_scales(X, 0.9, row_norms(X)))


def test_rows_are_mapped_by_themselves():
    X = long_rows(np.float32)
    for transformer in (RowNormClipper(0.5), PublicScaler(-1, 2)):
        out = transformer.fit_transform(X)
        np.testing.assert_allclose(transformer.transform(X[7:9]), out[7:9], rtol=1e-6)
        np.testing.assert_allclose(transformer.transform(X[::-1]), out[::-1], rtol=1e-6)


def test_clipper_accepts_what_is_hard_to_square():
    X = np.array([[1e200, 1e200], [1e-200, 0], [3.0, 4.0]])
    np.testing.assert_allclose(RowNormClipper(1.0).transform(X), [[0, 0], [1e-200, 0], [0.6, 0.8]])
    twice = sp.csr_array((np.array([3.0, 3.0, 1.0]), np.array([0, 0, 1]), np.array([0, 3])), shape=(1, 2))
    assert exact_norms(RowNormClipper(1.0).transform(twice)).max() <= 1  # an entry that is stored twice
    assert twice.nnz == 3
    huge = sp.csr_array((np.array([1e308, 1e308]), np.array([0, 0]), np.array([0, 2])), shape=(1, 1))
    with pytest.raises(ValueError, match="infinity"), np.errstate(over="ignore"):
        RowNormClipper(1.0).transform(huge)


def test_norm_from_bounds():
    assert RowNormClipper.from_bounds(low=[0, -1], high=[2, 1]).norm == pytest.approx(np.sqrt(5))
    assert RowNormClipper.from_bounds(low=-3, high=[0, 4]).norm == 5
    assert RowNormClipper.from_bounds(low=[-3, 0], high=[0, -0.0]).norm == 3
    for d in range(1, 40):  # never below the exact norm
        norm = RowNormClipper.from_bounds(np.zeros(d), np.ones(d)).norm
        assert d <= Fraction(norm) ** 2
        assert norm <= np.sqrt(d) * (1 + 1e-15)


@pytest.mark.parametrize(
    ("low", "high", "message"),
    [
        ([2, 1], [1, 3], r"low=\[2, 1\].*at most high=\[1, 3\], which column 0 exceeds.*swap"),
        ([0, np.nan], [1, 1], r"low=\[0, nan\].*finite"),
        ([0, 0], [1, np.inf], r"high=\[1, inf\].*finite.*declare"),
        ([0, 0], [1, 1, 1], r"low=\[0, 0\].*as long as high=\[1, 1, 1\].*2 and 3"),
        (0, 1, "low=0.*a list of one bound for each column, or high=1 must"),
        ([0, 0], [0, 0], "other than 0 in some column"),
        (["a"], [1], r"low=\['a'\].*a number, or a list"),
        ([[0, 0]], [1, 1], "a number, or a list"),
        ([], [], "a number, or a list"),
    ],
)
def test_unusable_bounds_are_named(low, high, message):
    with pytest.raises(ValueError, match=message):
        RowNormClipper.from_bounds(low, high)


def test_clipper_works_without_fit_and_in_small_memory():
    X = np.ones((20_000, 100), dtype=np.float32)
    tracemalloc.start()
    out = RowNormClipper(1.0).transform(X)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < out.nbytes + (6 << 20)  # a float64 copy would add 16 MiB
    assert RowNormClipper(1.0).transform([[3, 4]]).dtype == np.float64


@pytest.mark.parametrize("norm", [0, -1, np.inf, np.nan, 1e-200, 1e200, "1", None, True])
def test_unusable_norms_are_named(norm):
    with pytest.raises(ValueError, match=r"norm=.*must be"):
        RowNormClipper(norm).fit([[1.0]])
    with pytest.raises(ValueError, match=r"norm=.*must be"):
        RowNormClipper(norm).transform([[1.0]])


# -- PublicScaler -------------------------------------------------------------------------------------


def uniform_rows(rng, low, high, n=400):
    X = rng.uniform(low, high, size=(n, len(low)))
    X[0], X[1] = low, high
    return X


@pytest.mark.parametrize("feature_range", [(0, 1), (-1, 1), (-0.5, 0.6), (-0.9, 0.2), (2, 3.3)])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("layout", ["C", "F", "strided"])
def test_scaler_maps_bounds_to_the_range(layout, dtype, feature_range, rng):
    low, high = np.array([-3.0, 17.5, 0.0, -2.0]), np.array([3.0, 42.0, 49.0, -1.0])
    X = FORMATS[layout](uniform_rows(rng, low, high).astype(dtype))
    before = X.copy()
    scaler = PublicScaler(low, high, feature_range).fit(X[:1])
    out = scaler.transform(X)
    expected = MinMaxScaler(feature_range).fit(np.array([low, high])).transform(X.astype(np.float64))
    tolerance = 1e-6 if dtype == np.float32 else 1e-14
    np.testing.assert_allclose(out, expected, rtol=tolerance, atol=tolerance)
    np.testing.assert_array_equal(X, before)
    assert out.dtype == dtype
    assert not np.shares_memory(out, X)
    np.testing.assert_allclose(scaler.inverse_transform(out), X, rtol=20 * tolerance, atol=20 * tolerance)
    # beyond the bounds, values are moved to them and no row exceeds the norm
    far = (before * dtype(1e5) - dtype(7)).astype(dtype)
    np.testing.assert_allclose(scaler.transform(far), scaler.transform(np.clip(far, low, high)), rtol=1e-6, atol=1e-6)
    assert exact_norms(scaler.transform(far)).max() <= scaler.data_norm_
    assert exact_norms(scaler.transform(np.array([high]))).max() <= scaler.data_norm_
    assert scaler.data_norm_ == pytest.approx(2 * max(map(abs, feature_range)), rel=1e-15)


def test_scaler_without_clipping_has_no_public_norm():
    scaler = PublicScaler(0, 10, clip=False).fit([[1.0]])
    np.testing.assert_allclose(scaler.transform([[-10.0], [25.0]]), [[-1], [2.5]])
    assert scaler.data_norm_ == np.inf
    with pytest.raises(ValueError, match="data_norm=inf"):
        DPLogisticRegression(data_norm=scaler.data_norm_).fit([[1.0], [2.0]], [0, 1])


def test_constant_columns_go_to_the_lower_end():
    scaler = PublicScaler([5, 0], [5, 1], feature_range=(-1, 3)).fit([[0.0, 0.0]])
    out = scaler.transform([[5.0, 1.0], [-99.0, 0.0]])
    np.testing.assert_array_equal(out, [[-1, 3], [-1, -1]])
    assert scaler.data_norm_ == pytest.approx(np.sqrt(1 + 9))
    np.testing.assert_array_equal(scaler.inverse_transform(out), [[5, 1], [5, 0]])
    np.testing.assert_array_equal(PublicScaler([5, 0], [5, 1], clip=False).fit_transform([[7.0, 2.0]]), [[0, 2]])


@pytest.mark.parametrize("kind", [sp.csr_matrix, sp.csr_array, sp.csc_array, sp.coo_matrix])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize(
    "scaler",
    [
        PublicScaler([0, 0, 0], [9, 0, 0.7]),
        PublicScaler([-3, -1, -0.7], [3, 1, 0.7], feature_range=(-1, 1)),
        PublicScaler(-0.1, 0.2, feature_range=(-3, 6)),
        PublicScaler(-9.0, 2.0, feature_range=(-0.9, 0.2)),  # rounding would move 0
        PublicScaler(0, 3, clip=False),
    ],
)
def test_sparse_stays_sparse_where_zero_stays(scaler, dtype, kind, rng):
    X = np.where(rng.random((50, 3)) < 0.5, 0, rng.normal(size=(50, 3)) * 5).astype(dtype)
    given = kind(X)
    out = scaler.fit_transform(given)
    assert type(out) is (sp.csr_matrix if kind in (sp.csr_matrix, sp.coo_matrix) else sp.csr_array)
    assert out.dtype == dtype
    np.testing.assert_array_equal(out.toarray(), scaler.transform(X))
    np.testing.assert_array_equal(given.toarray(), X)
    np.testing.assert_array_equal(scaler.inverse_transform(out).toarray(), scaler.inverse_transform(out.toarray()))


@pytest.mark.parametrize(
    "scaler",
    [
        PublicScaler(0, 1, feature_range=(-1, 1)),
        PublicScaler([0, -1], [1, 1]),
        PublicScaler(feature_range=(1, 2)),  # the line goes through 0, and clipping moves 0 to 1
        PublicScaler([0, 5], [1, 5], feature_range=(-1, 1)),
    ],
)
def test_sparse_is_refused_where_zero_moves(scaler):
    X = np.array([[0.0, 0.5], [1.0, 0.0]])
    assert not scaler.__sklearn_tags__().input_tags.sparse
    with pytest.raises(ValueError, match=r"X is sparse.*choose low=0.*or pass X.toarray"):
        scaler.fit(sp.csr_array(X))
    with pytest.raises(ValueError, match="X is sparse"):
        scaler.fit(X).transform(sp.csr_array(X))
    constant = PublicScaler([0, 5], [1, 5]).fit(X)  # 0 is mapped to 0, and not back
    with pytest.raises(ValueError, match="0 is not mapped to 0 in 1 of its columns"):
        constant.inverse_transform(constant.transform(sp.csr_array(X)))


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"low": [0, 0, 0]}, r"low=\[0, 0, 0\].*2, one for each column of X; it has 3"),
        ({"high": [1]}, r"high=\[1\].*one number, or 2.*it has 1"),
        ({"low": 2, "high": 1}, "low=2.*at most high=1.*swap"),
        ({"low": 2}, "low=2.*at most high="),
        ({"low": np.nan}, "low=nan.*finite"),
        ({"high": 1e300}, "high=1e.300.*from 1e-100 to 1e100"),
        ({"low": "0"}, "low='0'.*a number, or a list"),
        ({"feature_range": (1, 0)}, r"feature_range\[0\]=1.*at most feature_range\[1\]=0"),
        ({"feature_range": (1, 1)}, r"feature_range=\(1, 1\).*different"),
        ({"feature_range": 3}, "feature_range=3.*a pair"),
        ({"feature_range": ([0, 1], [2, 3])}, "feature_range=.*a pair of numbers"),
        ({"feature_range": (0, np.inf)}, r"feature_range\[1\]=inf.*finite"),
        ({"clip": "no"}, "clip='no'.*True or False"),
    ],
)
def test_unusable_scaler_parameters_are_named(parameters, message):
    with pytest.raises(ValueError, match=message):
        PublicScaler(**parameters).fit([[0.0, 1.0]])


def test_scaler_must_be_fitted():
    for method in ("transform", "inverse_transform"):
        with pytest.raises(NotFittedError):
            getattr(PublicScaler(), method)([[1.0]])


# -- both ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("transformer", TRANSFORMERS, ids=repr)
def test_nothing_is_learned_from_the_data(transformer, rng):
    X = rng.normal(size=(50, 3))
    probe = rng.normal(size=(20, 3)) * 4
    neighbours = [X[1:], np.vstack([X, [1e6, -1e6, 0]]), X * 1e9 + 3, np.zeros((1, 3)), X.astype(np.float32)]
    reference = clone(transformer).fit(X)
    for other in neighbours:
        fitted = clone(transformer).fit(other)
        assert vars(fitted).keys() == vars(reference).keys()
        for name, value in vars(reference).items():
            assert pickle.dumps(getattr(fitted, name)) == pickle.dumps(value), name
        np.testing.assert_array_equal(fitted.transform(probe), reference.transform(probe))


@pytest.mark.parametrize("transformer", TRANSFORMERS, ids=repr)
def test_clone_pickle_and_set_output(transformer, rng):
    frame = pd.DataFrame(rng.normal(size=(12, 3)), columns=["age", "income", "visits"], index=range(5, 17))
    fitted = clone(transformer).fit(frame)
    out = fitted.transform(frame)
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(fitted)).transform(frame), out)
    assert list(fitted.get_feature_names_out()) == list(frame.columns)
    named = clone(fitted).set_output(transform="pandas").fit_transform(frame)
    pd.testing.assert_frame_equal(named, pd.DataFrame(out, columns=frame.columns, index=frame.index))
    narrow = clone(fitted).set_output(transform="pandas").fit_transform(frame.astype(np.float32))
    assert set(narrow.dtypes) == {np.dtype(np.float32)}
    with pytest.raises(ValueError, match="feature names should match"):
        fitted.transform(frame[["income", "age", "visits"]])


@pytest.mark.parametrize("output", ["default", "pandas"])
def test_private_pipeline_on_a_frame(output, rng):
    n = 600
    frame = pd.DataFrame(
        {
            "age": rng.integers(18, 99, n),
            "income": rng.exponential(3e4, n),
            "region": rng.choice(["north", "south"], n),
        }
    )
    y = (frame["age"] > 55).to_numpy(int)
    columns = ColumnTransformer(
        [
            ("numbers", PublicScaler(low=[18, 0], high=[98, 1e5], feature_range=(-1, 1)), ["age", "income"]),
            ("region", OneHotEncoder(categories=[["north", "south"]], sparse_output=False), ["region"]),
        ]
    )
    norm = np.sqrt(3)  # two columns in [-1, 1] and one 1
    model = make_pipeline(
        columns, RowNormClipper(norm), DPLogisticRegression(epsilon=3, data_norm=norm, classes=[0, 1])
    ).set_output(transform=output)
    copy = pickle.loads(pickle.dumps(clone(model).fit(frame, y)))
    assert copy.score(frame, y) > 0.8
    features = copy[:-1].transform(frame)
    assert isinstance(features, pd.DataFrame) == (output == "pandas")
    assert exact_norms(features).max() <= norm
    assert list(copy[:-1].get_feature_names_out())[:2] == ["numbers__age", "numbers__income"]


def test_clipper_as_the_step_before_a_classifier(rng):
    X = 100 * rng.normal(size=(200, 2))
    model = make_pipeline(RowNormClipper(1.0), DPLogisticRegression(data_norm=1.0, classes=[0, 1]))
    model.fit(X, (X[:, 0] > 0).astype(int))
    assert np.linalg.norm(model[0].transform(X), axis=1).max() <= 1.0
