"""Raw tables by their schema: what rows are, whatever library the columns come from, and that each is its own."""

import pickle
from fractions import Fraction

import joblib
import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
import sklearn
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.utils.estimator_checks import parametrize_with_checks
from table_cases import FORMS, NAMES, NAN, PEOPLE, ROWS, SCHEMA, dense, encoded

from dpskl.preprocessing import Categories, Numeric, PublicScaler, PublicSplineTransformer, Schema, TableEncoder
from dpskl.preprocessing.frames import table_of


class AnyNumbers(TableEncoder):
    """As many numeric columns as the checks of scikit-learn pass."""

    def __init__(self, n_knots="auto", sparse_output=True):
        self.n_knots = n_knots
        super().__init__(None, sparse_output=sparse_output)

    def _first_look(self, X):
        table = table_of(X)
        names = table.names or [f"x{j}" for j in range(table.n_columns)]
        return Schema({str(name): Numeric(-5, 5, n_knots=self.n_knots) for name in names})


@parametrize_with_checks([AnyNumbers(), AnyNumbers(n_knots=None, sparse_output=False)])
def test_scikit_learn_check(estimator, check):
    check(estimator)


# -- what rows are ------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", FORMS)
def test_rows_of_each_kind_of_table(form):
    table = FORMS[form](PEOPLE)
    encoder = dense().fit(table)
    np.testing.assert_array_equal(encoder.transform(table), ROWS)
    assert list(encoder.get_feature_names_out()) == NAMES
    out = TableEncoder(SCHEMA).fit_transform(table)
    assert isinstance(out, sp.csr_matrix)
    np.testing.assert_array_equal(out.toarray(), ROWS)
    # fitted to one kind, it maps another
    np.testing.assert_array_equal(dense().fit(pd.DataFrame(PEOPLE)).transform(table), ROWS)


@pytest.mark.parametrize("form", FORMS)
def test_a_row_alone_is_what_it_is_among_others(form):
    encoder = dense().fit(pd.DataFrame(PEOPLE))
    for j, row in enumerate(ROWS):
        alone = {name: values[j : j + 1] for name, values in PEOPLE.items()}
        try:
            table = FORMS[form](alone)
        except AssertionError:  # no type can be found for a column of one gap
            table = pd.DataFrame(alone)
        np.testing.assert_array_equal(encoder.transform(table), [row])


@pytest.mark.parametrize("form", ["pandas", "nullable", "dict", "polars", "arrow"])
def test_columns_are_found_by_name_in_any_order_and_those_to_drop_need_not_be_there(form):
    encoder = dense().fit(FORMS[form]({name: PEOPLE[name] for name in reversed(PEOPLE)}))
    np.testing.assert_array_equal(encoder.transform(FORMS[form](PEOPLE)), ROWS)
    less = {name: PEOPLE[name] for name in PEOPLE if name != "id"}
    np.testing.assert_array_equal(encoder.transform(FORMS[form](less)), ROWS)


def test_numeric_columns_are_those_of_the_public_transformers(rng):
    frame = pd.DataFrame({"a": rng.uniform(-2, 12, 500), "b": rng.lognormal(3, 2, 500)})
    frame[rng.random(frame.shape) < 0.1] = NAN
    low, high = {"a": 0, "b": 0}, {"a": 10, "b": 1e4}
    spacing = {"b": "log"}
    hats = PublicSplineTransformer(low, high, n_knots=7, spacing=spacing, handle_missing="indicator").fit(frame)
    table = TableEncoder(
        {"a": Numeric(0, 10, n_knots=7), "b": Numeric(0, 1e4, n_knots=7, spacing="log")},
    ).fit(frame)
    assert (table.transform(frame) != hats.transform(frame)).nnz == 0
    assert list(table.get_feature_names_out()) == list(hats.get_feature_names_out())
    assert table.data_norm_ == hats.data_norm_
    lines = dense({name: Numeric(low[name], high[name], n_knots=None, missing="zeros") for name in "ab"})
    whole = frame.dropna()
    expected = PublicScaler(low, high, feature_range=(-1, 1)).fit_transform(whole)
    np.testing.assert_allclose(lines.fit_transform(whole), expected, atol=1e-14)
    bent = dense({"b": Numeric(0, 1e4, n_knots=None, spacing="log", missing="error")}).fit_transform(whole[["b"]])
    expected = PublicScaler(0, np.log1p(1e4), (-1, 1)).fit_transform(np.log1p(whole[["b"]].to_numpy()))
    np.testing.assert_allclose(bent, expected, atol=1e-14)


def test_gaps_and_unknown_values_by_each_way():
    gaps = [1.0, None, 0.0]
    assert encoded(Numeric(0, 1, n_knots=2), gaps) == [[0, 1, 0], [0, 0, 1], [1, 0, 0]]
    assert encoded(Numeric(0, 1, n_knots=2, missing="zeros"), gaps) == [[0, 1], [0, 0], [1, 0]]
    assert encoded(Numeric(0, 1, n_knots=None), gaps) == [[1, 0], [0, 1], [-1, 0]]
    assert encoded(Numeric(0, 1, n_knots=None, missing="zeros"), gaps) == [[1], [0], [-1]]
    words = ["a", "z", None]
    assert encoded(["a"], words) == [[1, 0, 0], [0, 1, 0], [0, 0, 1]]
    assert encoded(Categories(["a"], other=False), words) == [[1, 0], [0, 0], [0, 1]]
    assert encoded(Categories(["a"], missing="zeros"), words) == [[1, 0], [0, 1], [0, 0]]
    assert encoded(Categories(["a"], other=False, missing="zeros"), words) == [[1], [0], [0]]


def test_values_that_are_called_other_and_missing_are_the_places_of_those():
    declared = Categories(["other", "a", "missing"])
    assert encoded(declared, ["other", "zzz", "a", "missing", None]) == np.eye(3)[[0, 0, 1, 2, 2]].tolist()


# -- the norm -----------------------------------------------------------------------------------------


def test_no_row_is_longer_than_the_norm_exactly_and_some_are_as_long(rng):
    kinds = [
        Numeric(17.3, 98.7),
        Numeric(0, 1e6, spacing="log", n_knots=5),
        Numeric(-1, 1, n_knots=None),
        Numeric(-7.1, 1e5, n_knots=None, spacing="log"),
        Numeric(0, 1, knots=[0, 2**-40, 1], missing="zeros"),
        ["a", "b"],
        Categories([1, 2], other=False, missing="zeros"),
    ]
    for count in range(1, len(kinds) + 1):
        schema = Schema({f"c{j}": kind for j, kind in enumerate(kinds[:count])})
        encoder = dense(schema)
        n = 400
        columns = {}
        for name, declared in schema.items():
            if isinstance(declared, Numeric):
                ends = np.array([declared.low, declared.high])
                values = rng.uniform(*ends, size=n)
                tiny = declared.low + (declared.high - declared.low) * 2.0 ** -rng.uniform(0, 80, n)
                values = np.where(rng.random(n) < 0.5, values, tiny)
                values[:20] = rng.choice(ends, 20)
                values[20:40] = rng.choice([-1e300, 1e300, 5e-324], 20)
                values[40:][rng.random(n - 40) < 0.2] = NAN
            else:
                values = rng.choice(np.array([*declared.values, None, "?"], dtype=object), n)
                values[:20] = declared.values[0]
            columns[name] = values
        out = encoder.fit_transform(columns)
        squares = [sum(Fraction(value) ** 2 for value in row.tolist()) for row in out]
        assert max(squares) == min(squares[:20]) == count
        assert count <= Fraction(encoder.data_norm_) ** 2 <= count * (1 + Fraction(1, 2**50))
        assert encoder.data_norm_ == schema.data_norm


def test_each_record_changes_its_row_only_and_nothing_is_learned(rng):
    frame = pd.concat([pd.DataFrame(PEOPLE)] * 4, ignore_index=True).astype(object)
    frame["age"] = np.where(rng.random(20) < 0.2, None, rng.uniform(0, 120, 20))
    encoder = dense().fit(frame)
    whole = encoder.transform(frame)
    np.testing.assert_array_equal(np.vstack([encoder.transform(frame.iloc[[j]]) for j in range(20)]), whole)
    changed = frame.copy()
    changed.loc[7] = {"age": -5.5, "id": 3, "income": None, "job": 3.5, "code": "?", "flag": None}
    assert np.flatnonzero((encoder.transform(changed) != whole).any(axis=1)).tolist() == [7]
    reference = joblib.hash(vars(encoder))
    for other in (frame[:1], changed, frame.iloc[:, ::-1], frame.to_numpy()[:, [0, 5, 1, 2, 3, 4]]):
        assert joblib.hash(vars(dense().fit(other))) == reference


def test_sparse_rows_are_canonical_over_many_blocks(rng):
    n = 40_000
    columns = {f"n{j}": rng.uniform(-0.2, 1.2, n) for j in range(5)}
    columns |= {f"c{j}": rng.choice(np.array(["a", "b", None, 4], dtype=object), n) for j in range(3)}
    columns["n0"][::3] = NAN
    schema = {f"n{j}": Numeric(0, 1, n_knots=None if j % 2 else 5) for j in range(5)}
    schema |= {f"c{j}": Categories(["a", "b"], other=bool(j)) for j in range(3)}
    out = TableEncoder(schema).fit_transform(columns)
    fresh = sp.csr_array((out.data, out.indices, out.indptr), shape=out.shape)
    fresh.check_format(full_check=True)
    assert fresh.has_canonical_format
    assert (out.data != 0).all()
    np.testing.assert_array_equal(out.toarray(), dense(schema).fit_transform(columns))


# -- scikit-learn -------------------------------------------------------------------------------------


def test_clone_pickle_and_names(tmp_path):
    encoder = TableEncoder(SCHEMA)
    with pytest.raises(NotFittedError):
        encoder.transform(PEOPLE)
    assert clone(encoder).get_params() == {"schema": SCHEMA, "sparse_output": True}
    encoder.fit(PEOPLE)
    again = pickle.loads(pickle.dumps(encoder))
    assert (again.transform(PEOPLE) != encoder.transform(PEOPLE)).nnz == 0
    assert encoder.n_features_in_ == 6
    assert list(encoder.feature_names_in_) == list(SCHEMA)
    assert list(encoder.get_feature_names_out(list(SCHEMA))) == NAMES
    with pytest.raises(ValueError, match="input_features"):
        encoder.get_feature_names_out(["a"] * 6)
    assert TableEncoder(dict(SCHEMA)).fit(PEOPLE).schema_ == SCHEMA


def test_pandas_out_keeps_the_index():
    frame = pd.DataFrame(PEOPLE, index=[4, 5, 6, 7, 8])
    out = dense().set_output(transform="pandas").fit_transform(frame)
    assert list(out.columns) == NAMES
    assert list(out.index) == [4, 5, 6, 7, 8]
    with pytest.raises(ValueError, match="sparse"):
        TableEncoder(SCHEMA).set_output(transform="pandas").fit_transform(frame)


@pytest.mark.skipif("sparse_interface" not in sklearn.get_config(), reason="scikit-learn before 1.9")
def test_sparse_arrays_where_scikit_learn_is_set_so():
    with sklearn.config_context(sparse_interface="sparray"):
        assert isinstance(TableEncoder(SCHEMA).fit_transform(PEOPLE), sp.csr_array)


def test_input_is_never_written_to():
    frame = pd.DataFrame(PEOPLE)
    arrays = {name: np.array(values, dtype=object) for name, values in PEOPLE.items()} | {"income": np.arange(5.0)}
    for values in arrays.values():
        values.flags.writeable = False
    before = frame.copy()
    dense().fit_transform(frame)
    dense().fit_transform(arrays)
    pd.testing.assert_frame_equal(frame, before)
