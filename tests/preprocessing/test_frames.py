"""Gaps, types and words of pandas, polars, Arrow and NumPy: what a column is does not depend on who carries it."""

import decimal
from fractions import Fraction

import numpy as np
import pandas as pd
import pytest
from table_cases import NAN, PEOPLE, SCHEMA, dense, encoded

from dpskl.preprocessing import Categories, Numeric


@pytest.mark.parametrize(
    "gap", [None, NAN, float("nan"), np.float32("nan"), pd.NA, pd.NaT, decimal.Decimal("nan")], ids=repr
)
def test_everything_that_stands_for_a_gap(gap):
    assert encoded(["a"], ["a", gap]) == [[1, 0, 0], [0, 0, 1]]
    assert encoded([1], np.array([1, gap], dtype=object)) == [[1, 0, 0], [0, 0, 1]]
    assert encoded(Numeric(0, 1, n_knots=2), [1, gap]) == [[0, 1, 0], [0, 0, 1]]
    assert encoded(Numeric(0, 1, n_knots=2), [gap, gap]) == [[0, 0, 1]] * 2
    assert encoded(["a"], pd.Series([gap, gap], dtype=object)) == [[0, 0, 1]] * 2


def test_columns_without_any_value():
    nothing = [
        [None, None],
        np.full(2, NAN),
        pd.Series([None, None]),
        pd.Series([pd.NA, pd.NA], dtype="Int64"),
        pd.Series([pd.NA, pd.NA], dtype="boolean"),
        pd.Series([None, None], dtype="str"),
        pd.Categorical([None, None]),
        pd.Categorical([None, None], categories=["a"]),
        np.ma.masked_all(2),
    ]
    for values in nothing:
        assert encoded(["a"], values) == [[0, 0, 1]] * 2
        if not (isinstance(values, pd.Categorical) and len(values.categories)):
            assert encoded(Numeric(0, 1, n_knots=None), values) == [[0, 1]] * 2


def test_one_record_with_a_gap_or_a_word_does_not_change_how_others_are_read():
    codes, expected = Categories([1, 2]), np.eye(4)[[0, 1]].tolist()
    for values in (
        [1, 2, None],
        np.array([1.0, 2.0, NAN]),
        ["1", "2", "?"],
        ["1.0", "2.0", None],
        pd.Series([1, 2, None], dtype="Int8"),
        np.array(["1", "2", "x"]),
        [np.int8(1), np.float64(2), "x"],
        [True, 2, "x"],
    ):
        assert encoded(codes, values)[:2] == expected
    assert encoded(["1", "2.5", "True"], [1, 2.5, "2.5"])[0] == [1, 0, 0, 0, 0]
    assert encoded(["1", "2.5"], [1, 2.5]) == np.eye(4)[[0, 1]].tolist()
    assert encoded([True, False], ["True", "False", 1, 0.0]) == np.eye(4)[[0, 1, 0, 1]].tolist()
    assert encoded(["07"], [7, "07"]) == [[0, 1, 0], [1, 0, 0]]  # what is not written alike


def test_whole_numbers_beyond_floats_and_numbers_in_objects():
    big = 2**60 + 1
    assert encoded([big, big - 1], pd.Series([big, big - 1, None], dtype="Int64"))[:2] == np.eye(4)[[0, 1]].tolist()
    mixed = [decimal.Decimal("0.25"), Fraction(1, 2), True, np.float32(0.75), 1]
    assert encoded(Numeric(0, 1, n_knots=None), mixed) == [[-0.5, 0], [0, 0], [1, 0], [0.5, 0], [1, 0]]


def test_sparse_columns_of_pandas_and_types_of_polars_and_arrow():
    values = pd.Series(pd.arrays.SparseArray([0.0, NAN, 1.0]))
    assert encoded(Numeric(0, 1, n_knots=2), values) == [[1, 0, 0], [0, 0, 1], [0, 1, 0]]
    assert encoded([0, 1], values) == np.eye(4)[[0, 3, 1]].tolist()
    pl, pa = pytest.importorskip("polars"), pytest.importorskip("pyarrow")
    for dtype in (pl.UInt8, pl.Int64, pl.Float32, pl.Boolean, pl.Decimal(10, 2)):
        series = pl.Series([0, None, 1], dtype=pl.Int64).cast(dtype)
        assert encoded(Numeric(0, 1, n_knots=2), series) == [[1, 0, 0], [0, 0, 1], [0, 1, 0]]
        assert encoded([0, 1], series) == np.eye(4)[[0, 3, 1]].tolist()
    for dtype in (pa.uint8(), pa.int64(), pa.float32(), pa.bool_(), pa.decimal128(10, 2), pa.float16()):
        array = pa.array([0, None, 1], pa.int64()).cast(pa.float32()).cast(dtype)
        for column in (array, pa.chunked_array([array[:1], array[1:]])):
            assert encoded(Numeric(0, 1, n_knots=2), column) == [[1, 0, 0], [0, 0, 1], [0, 1, 0]]
            assert encoded([0, 1], column) == np.eye(4)[[0, 3, 1]].tolist()
    for words in (pa.array(["a", None], pa.large_string()), pl.Series(["a", None], dtype=pl.Enum(["a", "b"]))):
        assert encoded(["a"], words) == [[1, 0, 0], [0, 0, 1]]
    for nothing in (pa.nulls(2), pl.Series([None, None]), pa.nulls(2, pa.string())):
        assert encoded(["a"], nothing) == [[0, 0, 1]] * 2
        assert encoded(Numeric(0, 1, n_knots=None), nothing) == [[0, 1]] * 2
    for nested in (pa.array([["a"], ["b"]]), pl.Series([["a"], ["b"]])):
        with pytest.raises(ValueError, match=r"the column 'a' has (a value that is no category|2 dimensions)"):
            encoded(["a"], nested)


def test_tables_that_are_not_known_do_not_lose_their_names():
    class Frame:
        columns = list(SCHEMA)

        def __array__(self, *_, **__):
            return np.array([PEOPLE[name] for name in SCHEMA], dtype=object).T

    with pytest.raises(TypeError, match="Frame: convert it to pandas, polars or Arrow"):
        dense().fit(Frame())


def test_masks_of_arrays_are_gaps():
    values = np.ma.array([1.0, 0.0, 7.0], mask=[0, 0, 1])
    assert encoded(Numeric(0, 1, n_knots=2), values) == [[0, 1, 0], [1, 0, 0], [0, 0, 1]]
    assert encoded([1, 0], values) == np.eye(4)[[0, 1, 3]].tolist()
