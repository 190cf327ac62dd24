"""Hat functions with declared knots: what they are, what they refuse, and that nothing is learned from the data."""

import pickle

import joblib
import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
import sklearn
from sklearn.base import clone
from sklearn.compose import make_column_transformer
from sklearn.exceptions import NotFittedError
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, SplineTransformer
from sklearn.utils.estimator_checks import parametrize_with_checks

from dpskl import DPLogisticRegression, PrivacyAccountant
from dpskl.accounting import gaussian_mu
from dpskl.preprocessing import PublicSplineTransformer, knots_for

PEOPLE = pd.DataFrame({"age": [18.0, 58.0, 98.0], "income": [0.0, 500.0, 2000.0]})
LOW, HIGH = {"income": 0, "age": 18}, {"income": 1000, "age": 98}
NAN = np.nan


def dense(low=0, high=1, **parameters):
    return PublicSplineTransformer(low, high, sparse_output=False, **parameters)


@parametrize_with_checks(
    [
        PublicSplineTransformer(-5, 5),
        PublicSplineTransformer(-5, 7, spacing="log", n_knots=2, sparse_output=False),
        PublicSplineTransformer(-5, 5, handle_missing="zeros"),
        PublicSplineTransformer(-5, 5, handle_missing="indicator", sparse_output=False),
    ]
)
def test_scikit_learn_check(estimator, check):
    check(estimator)


# -- what they are ------------------------------------------------------------------------------------


@pytest.mark.parametrize("n_knots", [2, 3, 9, 33])
def test_equal_to_scikit_learns_splines_of_degree_one(n_knots, rng):
    low, high = np.array([-3.0, 17.5, 0.0]), np.array([3.0, 42.0, 1e6])
    X = rng.uniform(low, high, size=(500, 3))
    knots = np.linspace(low, high, n_knots)
    expected = SplineTransformer(degree=1, knots=knots, extrapolation="constant").fit(X)
    ours = dense(low, high, n_knots=n_knots).fit(X)
    np.testing.assert_allclose(ours.transform(X), expected.transform(X), atol=1e-12)
    far = np.vstack([low - 1e9, high + 1e9])
    np.testing.assert_allclose(ours.transform(far), expected.transform(far), atol=1e-12)


def test_equal_to_scikit_learns_splines_with_uneven_knots(rng):
    knots = np.array([[0.0, -1.0], [0.1, 2.0], [0.5, 2.5], [1.0, 7.0]])
    X = rng.uniform(knots[0], knots[-1], size=(500, 2))
    expected = SplineTransformer(degree=1, knots=knots).fit_transform(X)
    np.testing.assert_allclose(dense([0, -1], [1, 7], knots=knots.T).fit_transform(X), expected, atol=1e-12)
    np.testing.assert_allclose(dense(None, None, knots=list(knots.T)).fit_transform(X), expected, atol=1e-12)


def test_knots_are_the_corners():
    hats = dense([-2, 0], [2, 5], n_knots=5, spacing=["linear", "log"]).fit([[0.0, 0.0]])
    for j, knots in enumerate(hats.knots_):
        X = np.zeros((5, 2))
        X[:, j] = knots
        np.testing.assert_allclose(hats.transform(X)[:, 5 * j : 5 * j + 5], np.eye(5), atol=1e-12)


@pytest.mark.parametrize(("low", "high"), [(0, 1e6), (-100, 1e4), (-50, -2), (3, 4)])
def test_log_spacing_for_any_sign(low, high, rng):
    def g(v):
        return np.sign(v) * np.log1p(np.abs(v))

    hats = dense(low, high, spacing="log").fit([[0.0]])
    knots = hats.knots_[0]
    assert (knots[0], knots[-1]) == (low, high)
    np.testing.assert_allclose(np.diff(g(knots)), (g(high) - g(low)) / 8, rtol=1e-9)
    X = rng.uniform(low, high, size=(300, 1))
    np.testing.assert_allclose(hats.transform(X), dense(g(low), g(high)).fit_transform(g(X)), atol=1e-10)


def test_auto_is_nine_knots_and_a_number_is_as_many():
    assert dense().fit_transform([[0.3]]).shape == (1, 9)
    assert dense(n_knots=np.int64(4)).fit_transform([[0.3]]).shape == (1, 4)


def test_explicit_knots_of_some_columns():
    hats = dense(LOW, HIGH, n_knots=2, knots={"income": [100, 200, 900]}).fit(PEOPLE)
    assert [knots.tolist() for knots in hats.knots_] == [[18, 98], [100, 200, 900]]
    # beyond the outermost knots the function is constant
    np.testing.assert_array_equal(hats.transform(PEOPLE)[[0, 2], 2:], [[1, 0, 0], [0, 0, 1]])
    by_place = dense([18, 0], [98, 1000], n_knots=2, knots=[None, [100, 200, 900]]).fit(PEOPLE)
    np.testing.assert_array_equal(by_place.transform(PEOPLE), hats.transform(PEOPLE))
    alone = PublicSplineTransformer(knots={"age": [18, 98], "income": [0, 1000]}).fit(PEOPLE)
    assert [knots.tolist() for knots in alone.knots_] == [[18, 98], [0, 1000]]


@pytest.mark.parametrize("kind", [dict, pd.Series])
def test_names_decide_and_not_places(kind):
    hats = dense(kind(LOW), kind(HIGH), spacing=kind({"income": "log"}), n_knots=3).fit(PEOPLE)
    assert hats.knots_[0].tolist() == [18, 58, 98]
    assert hats.knots_[1][1] == pytest.approx(np.expm1(np.log1p(1000) / 2))
    swapped = clone(hats).fit_transform(PEOPLE[["income", "age"]])
    np.testing.assert_array_equal(np.roll(swapped, 3, axis=1), hats.transform(PEOPLE))


# -- missing and infinite values ----------------------------------------------------------------------


def test_missing_values_by_each_way():
    X = [[0.5, NAN], [NAN, 1.0], [NAN, NAN]]
    zeros = dense(n_knots=2, handle_missing="zeros").fit_transform(X)
    np.testing.assert_array_equal(zeros, [[0.5, 0.5, 0, 0], [0, 0, 0, 1], [0, 0, 0, 0]])
    marked = dense(n_knots=2, handle_missing="indicator").fit_transform(X)
    np.testing.assert_array_equal(marked, [[0.5, 0.5, 0, 0, 0, 1], [0, 0, 1, 0, 1, 0], [0, 0, 1, 0, 0, 1]])


def test_missing_values_column_by_column():
    hats = dense(LOW, HIGH, n_knots=2, handle_missing={"income": "indicator"}).fit(PEOPLE)
    assert hats.__sklearn_tags__().input_tags.allow_nan
    out = hats.transform(PEOPLE.replace(500.0, NAN))
    np.testing.assert_array_equal(out, [[1, 0, 1, 0, 0], [0.5, 0.5, 0, 0, 1], [0, 1, 0, 1, 0]])
    assert list(hats.get_feature_names_out())[2:] == ["income[0.0]", "income[1000.0]", "income[missing]"]
    with pytest.raises(ValueError, match="NaN in the column 'age'"):
        hats.transform(PEOPLE.replace(58.0, NAN))
    by_place = dense(0, 1, n_knots=2, handle_missing=["zeros", "indicator"])
    np.testing.assert_array_equal(by_place.fit_transform([[NAN, NAN]]), [[0, 0, 0, 0, 1]])


@pytest.mark.parametrize("frame", [pd.DataFrame, lambda rows: pd.DataFrame(rows).astype("Float64")])
def test_missing_values_of_frames(frame):
    rows = {"age": [18.0, None, 98.0], "income": [None, 500.0, 1000.0]}
    hats = dense(LOW, HIGH, n_knots=2, handle_missing="indicator").fit(frame(rows))
    np.testing.assert_array_equal(
        hats.transform(frame(rows)), [[1, 0, 0, 0, 0, 1], [0, 0, 1, 0.5, 0.5, 0], [0, 1, 0, 0, 1, 0]]
    )
    with pytest.raises(ValueError, match=r"NaN in the column 'age': handle_missing='indicator'"):
        dense(LOW, HIGH).fit(frame(rows))


@pytest.mark.parametrize("value", [np.inf, -np.inf])
@pytest.mark.parametrize("handle_missing", ["error", "zeros", "indicator"])
def test_infinite_values_are_refused_by_the_name_of_the_column(handle_missing, value):
    bad = PEOPLE.replace(500.0, value)
    hats = PublicSplineTransformer(LOW, HIGH, handle_missing=handle_missing)
    with sklearn.config_context(assume_finite=True):
        for call in (hats.fit, clone(hats).fit(PEOPLE).transform):
            with pytest.raises(ValueError, match="X contains infinity in the column 'income'"):
                call(bad)
        with pytest.raises(ValueError, match="infinity in the column 1"):
            PublicSplineTransformer(0, 1, handle_missing=handle_missing).fit([[0, value]])


def test_missing_values_are_refused_before_anything_is_charged():
    accountant = PrivacyAccountant()
    model = make_pipeline(PublicSplineTransformer(0, 1), DPLogisticRegression(classes=[0, 1], accountant=accountant))
    with pytest.raises(ValueError, match="NaN in the column 0"), sklearn.config_context(assume_finite=True):
        model.fit([[NAN], [1.0]], [0, 1])
    assert accountant.entries() == ()


# -- formats ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("handle_missing", ["zeros", "indicator"])
def test_sparse_and_dense_are_equal_and_sparse_is_canonical(handle_missing, rng):
    X = rng.uniform(-0.2, 1.2, size=(30_000, 7))  # more than one block
    X[rng.random(X.shape) < 0.1] = NAN
    X[rng.random(X.shape) < 0.1] = 0.25
    hats = PublicSplineTransformer(0, 1, n_knots=5, handle_missing=handle_missing).fit(X[:1])
    out = hats.transform(X)
    assert isinstance(out, sp.csr_matrix)
    fresh = sp.csr_array((out.data, out.indices, out.indptr), shape=out.shape)
    fresh.check_format(full_check=True)
    assert fresh.has_canonical_format
    assert (out.data != 0).all()
    assert np.diff(out.indptr).max() <= 14
    np.testing.assert_array_equal(out.toarray(), hats.set_params(sparse_output=False).transform(X))
    np.testing.assert_array_equal(hats.transform(X[29_000:29_003]), out[29_000:29_003].toarray())


@pytest.mark.skipif("sparse_interface" not in sklearn.get_config(), reason="scikit-learn before 1.9")
def test_sparse_arrays_where_scikit_learn_is_set_so():
    with sklearn.config_context(sparse_interface="sparray"):
        assert isinstance(PublicSplineTransformer(0, 1).fit_transform([[0.3]]), sp.csr_array)


@pytest.mark.parametrize("layout", [np.ascontiguousarray, np.asfortranarray, lambda X: np.repeat(X, 2, axis=1)[:, ::2]])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_layouts_types_and_locked_input(layout, dtype, rng, tmp_path):
    X = layout(rng.uniform(-1, 2, size=(50, 3)).astype(dtype))
    before = X.copy()
    hats = dense().fit(X)
    expected = hats.transform(np.ascontiguousarray(X, dtype=np.float64))
    X.flags.writeable = False
    out = hats.transform(X)
    assert out.dtype == np.float64
    np.testing.assert_array_equal(out, expected)
    np.testing.assert_array_equal(X, before)
    joblib.dump(np.array(X), tmp_path / "rows")
    mapped = joblib.load(tmp_path / "rows", mmap_mode="r")
    np.testing.assert_array_equal(hats.transform(mapped), expected)


def test_whole_numbers_words_and_sparse_rows():
    np.testing.assert_array_equal(dense(0, 2, n_knots=3).fit_transform([[0], [1], [2]]), np.eye(3))
    with pytest.raises(ValueError, match="could not convert string"):
        dense().fit([["north"]])
    with pytest.raises(TypeError, match="Sparse data"):
        dense().fit(sp.csr_array([[1.0]]))


def test_pandas_in_and_out():
    frame = PEOPLE.set_index(pd.Index([7, 8, 9]))
    hats = dense(LOW, HIGH, n_knots=2, handle_missing="indicator").set_output(transform="pandas").fit(frame)
    out = hats.transform(frame)
    names = ["age[18.0]", "age[98.0]", "age[missing]", "income[0.0]", "income[1000.0]", "income[missing]"]
    assert list(out.columns) == list(hats.get_feature_names_out()) == names
    assert list(out.index) == [7, 8, 9]
    with pytest.raises(ValueError, match="sparse"):
        PublicSplineTransformer(LOW, HIGH).set_output(transform="pandas").fit_transform(frame)


def test_names_without_names_and_knots_that_are_close():
    hats = dense([0, 1], [1, 1 + 1e-9], n_knots=4).fit([[0.0, 0.0]])
    names = list(hats.get_feature_names_out())
    assert names[:4] == ["x0[0.0]", "x0[0.333333]", "x0[0.666667]", "x0[1.0]"]
    assert len(set(names)) == 8
    assert list(hats.get_feature_names_out(["a", "b"]))[3:5] == ["a[1.0]", "b[1.0]"]


# -- scikit-learn -------------------------------------------------------------------------------------


def test_nothing_is_learned_from_the_data(rng):
    X = rng.normal(size=(50, 3))
    gaps = np.where(rng.random(X.shape) < 0.5, NAN, X)
    hats = PublicSplineTransformer([-1, -2, -3], 4, spacing="log", handle_missing="indicator")
    reference = vars(clone(hats).fit(X))
    for other in (X[1:], X * 1e9, np.zeros((1, 3)), X.astype(np.float32), gaps, np.full((2, 3), NAN)):
        assert joblib.hash(vars(clone(hats).fit(other))) == joblib.hash(reference)


def test_clone_parameters_and_pickle():
    hats = PublicSplineTransformer(LOW, HIGH, n_knots=4, spacing={"age": "log"}, handle_missing="zeros")
    again = pickle.loads(pickle.dumps(clone(hats).fit(PEOPLE)))
    assert again.get_params() == hats.get_params()
    assert (again.transform(PEOPLE) != hats.fit_transform(PEOPLE)).nnz == 0
    with pytest.raises(NotFittedError):
        clone(again).transform(PEOPLE)
    with pytest.raises(ValueError, match="feature names should match"):
        again.transform(PEOPLE[["income", "age"]])


def test_one_row_one_column_and_a_constant_column():
    assert dense().fit_transform([[0.5]]).tolist() == [[0, 0, 0, 0, 1, 0, 0, 0, 0]]
    out = dense(n_knots=3).fit_transform(np.full((4, 2), 0.25))
    np.testing.assert_array_equal(out, np.tile([0.5, 0.5, 0], (4, 2)))


def test_a_private_pipeline_learns_what_no_line_can(rng):
    n = 4000
    frame = pd.DataFrame({"age": rng.uniform(18, 98, n), "region": rng.choice(["north", "south"], n)})
    y = (abs(frame["age"] - 58) < 20).to_numpy(int)
    columns = make_column_transformer(
        (PublicSplineTransformer({"age": 18}, {"age": 98}), ["age"]),
        (OneHotEncoder(categories=[["north", "south"]]), ["region"]),
        sparse_threshold=1.0,
    )
    model = make_pipeline(columns, DPLogisticRegression(epsilon=2.0, data_norm=2**0.5, classes=[0, 1])).fit(frame, y)
    assert sp.issparse(columns.fit_transform(frame))
    assert model.score(frame, y) > 0.85


def test_no_warning_where_numpy_is_set_to_raise():
    with np.errstate(all="raise"):
        out = dense([-1e100, 0], [1e100, 3], spacing=["log", "linear"]).fit_transform(
            [[5e-324, 5e-324], [1e308, -1e308], [NAN, 1e-310]][:2]
        )
    assert np.isfinite(out).all()


# -- refusals -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"low": None}, "low=None, but column 'age' has no knots: declare low"),
        ({"high": None, "knots": {"age": [18, 98]}}, "high=None, but column 'income' has no knots"),
        ({"low": 98}, r"low=98.0 is not below high=98.0 in column 'age': swap"),
        ({"low": {"age": 18, "income": 2000}}, r"low=2000.0 is not below high=1000.0 in column 'income'"),
        ({"low": [0, NAN]}, r"low=\[0, nan\].*finite"),
        ({"high": np.inf}, "high=inf.*finite"),
        ({"low": [0, 0, 0]}, r"low=\[0, 0, 0\].*2, one for each column of X; it has 3"),
        ({"low": {"age": 18}}, r"low is given by name and lacks \['income'\]"),
        ({"low": {"age": 18, "income": 0, "hours": 0}}, r"low is given by name and has \['hours'\]"),
        ({"n_knots": 1}, "n_knots=1.*at least 2"),
        ({"n_knots": 2.5}, "n_knots=2.5.*'auto' or a whole"),
        ({"n_knots": True}, "n_knots=True"),
        ({"n_knots": "many"}, "n_knots='many'"),
        ({"spacing": "cubic"}, "spacing='cubic'.*'linear', 'log' for column 'age'"),
        ({"spacing": {"income": "cubic"}}, "spacing='cubic'.*for column 'income'"),
        ({"spacing": {"hours": "log"}}, r"spacing is given by name and has \['hours'\], which are not there"),
        ({"spacing": ["log"]}, r"spacing=\['log'\].*one entry for each of the 2 columns of X; it has 1"),
        ({"spacing": 3}, "spacing=3.*as a list"),
        ({"knots": {"hours": [0, 1]}}, r"knots is given by name and has \['hours'\]"),
        ({"knots": {"age": [20, 30, 30]}}, r"knots=\[20, 30, 30\].*increasing for column 'age': sort"),
        ({"knots": {"age": [20, 10]}}, "increasing for column 'age'"),
        ({"knots": {"age": [20]}}, "at least two numbers for column 'age'"),
        ({"knots": {"age": [20, NAN]}}, "finite.*for column 'age'"),
        ({"knots": {"age": "many"}}, "at least two numbers for column 'age'"),
        ({"knots": {"age": [17, 30]}}, r"knots=\[17.0, 30.0\] of column 'age' leave its bounds 18.0 and 98.0"),
        ({"knots": [[20, 30]]}, "one entry for each of the 2 columns"),
        ({"knots": [20, 30]}, "knots=20.*a list of at least two numbers for column 'age'"),
        ({"handle_missing": "drop"}, "handle_missing='drop'.*'error', 'zeros', 'indicator' for column 'age'"),
        ({"handle_missing": None}, "handle_missing=None"),
        ({"handle_missing": {"hours": "zeros"}}, r"handle_missing is given by name and has \['hours'\]"),
        ({"sparse_output": "no"}, "sparse_output='no'.*True or False"),
    ],
)
def test_unusable_parameters_are_named(parameters, message):
    with pytest.raises(ValueError, match=message):
        PublicSplineTransformer(**{"low": LOW, "high": HIGH} | parameters).fit(PEOPLE)


def test_bounds_that_leave_no_room_for_knots():
    with pytest.raises(ValueError, match=r"in column 0, n_knots=9 do not fit between low=1.0.*move the bounds apart"):
        PublicSplineTransformer(1, 1 + 2**-51).fit([[1.0]])
    with pytest.raises(ValueError, match=r"in column 0, knots=.*are too close together: leave some out"):
        PublicSplineTransformer(0, 1e100, knots=[[1e99, np.nextafter(1e99, 1e100)]], spacing="log").fit([[1.0]])


@pytest.mark.parametrize(
    "parameters", [{"low": LOW}, {"high": HIGH}, {"spacing": {"age": "log"}}, {"knots": {"age": [20, 30]}}]
)
def test_names_without_names_of_columns_are_refused(parameters):
    with pytest.raises(ValueError, match=r"X has no column names; .*set_output"):
        PublicSplineTransformer(**{"low": 0, "high": 1000} | parameters).fit(PEOPLE.to_numpy())


# -- how many -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("neighbours", ["add_remove", "replace_one"])
def test_the_number_of_knots_follows_the_signal(neighbours):
    mu, twice = gaussian_mu(1.0, 1e-6), 1 + (neighbours == "replace_one")
    for n_knots, fewer, signal in ((9, 5, 10), (5, 2, 2)):
        n = twice * signal * (4 * n_knots + 3 + 1) / mu
        counts = [
            knots_for(size, 4, 1.0, 1e-6, neighbours=neighbours, n_other=3)
            for size in (int(np.ceil(n * 1.001)), int(n * 0.999))
        ]
        assert counts == [n_knots, fewer]
    assert knots_for(10, 4, float("inf"), 1e-6) == 9


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"n_samples": 0}, "n_samples=0.*at least 1"),
        ({"n_samples": 1e4}, "n_samples=10000.0.*whole number"),
        ({"n_columns": 0}, "n_columns=0"),
        ({"n_other": -1}, "n_other=-1.*at least 0"),
        ({"epsilon": 0}, "epsilon"),
        ({"delta": 0}, "delta"),
        ({"neighbours": "both"}, "neighbours='both'.*'add_remove', 'replace_one'"),
    ],
)
def test_unusable_facts_are_named(given, message):
    with pytest.raises(ValueError, match=message):
        knots_for(**{"n_samples": 100, "n_columns": 3, "epsilon": 1.0, "delta": 1e-6} | given)
