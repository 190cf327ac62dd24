"""Cells of numbers and of values: what is refused, and what kinds of columns are read."""

from fractions import Fraction

import numpy as np
import pandas as pd
import pytest

from dpskl.records.cells import ColumnCells
from dpskl.records.values import ColumnValues, cell_of


def test_numbers_of_all_types_have_cells():
    edges = [[0.0, 1.0, 2.0, 3.0]]
    for dtype in (np.float64, np.float32, np.float16, np.int64, np.uint8):
        (counts,) = ColumnCells([np.array([0, 1, 1, 2], dtype)], edges).counts()
        assert counts.tolist() == [1, 2, 1]
    (counts,) = ColumnCells([np.array([False, True])], edges).counts()
    assert counts.tolist() == [1, 1, 0]
    (counts,) = ColumnCells([pd.Series([0.5, None, 2.5])], edges).counts()
    assert counts.tolist() == [1, 0, 1]


@pytest.mark.parametrize(
    ("columns", "edges", "words"),
    [
        ([[1.0]], [[0, 1], [0, 1]], "edges of 2 columns"),
        ([[1.0], [1.0, 2.0]], [[0, 1], [0, 1]], "one length"),
        ([[[1.0]]], [[0, 1]], "one length"),
        ([[1.0]], [[0]], "at least two"),
        ([[1.0]], [[0, 0]], "increasing"),
        ([[1.0]], [[0, np.inf]], "finite"),
    ],
)
def test_unusable_cells_are_refused(columns, edges, words):
    with pytest.raises(ValueError, match=words):
        ColumnCells(columns, edges)


OTHERS = [["secret", 1.0], [1j], [10**400], [pd.NA, 1.0]]


@pytest.mark.parametrize(
    "column",
    [np.array(["1"]), np.array([1j]), np.array(["2020-01-01"], "M8[D]"), *(np.array(c, object) for c in OTHERS)],
)
def test_what_is_no_number_is_refused_before_it_is_counted_and_not_told(column):
    with pytest.raises(ValueError, match="columns must be real numbers") as caught:
        ColumnCells([column], [[0, 1]])
    assert "secret" not in repr(caught.value)
    assert caught.value.__context__ is None


def test_objects_are_read_as_numbers():
    assert ColumnCells([np.array([0, None, 1.5], object)], [[0, 1, 2]]).counts()[0].tolist() == [1, 1]


def test_values_of_all_kinds_of_columns():
    expected = [{"a": 2, "b": 1}]
    words = ["a", "b", None, "a"]
    for column in (words, np.array(words, object), pd.Series(words), pd.Series(words, dtype="category")):
        assert ColumnValues([column]).counts() == expected
    assert ColumnValues([pd.Series(words, dtype="string")]).counts() == expected
    assert ColumnValues([np.array(["a", "b", "a"])]).counts() == expected
    assert ColumnValues([pd.Series([1, None, 1], dtype="Int64")]).counts() == [{1: 2}]
    assert ColumnValues([pd.Series([True, False, True])]).counts() == [{0: 1, 1: 2}]
    assert ColumnValues([]).n_columns == 0


def test_cells_of_values():
    assert cell_of("x" * 200) == "x" * 200
    assert cell_of("x" * 201) is None
    assert cell_of(2**53 + 1) != cell_of(2.0**53)
    assert cell_of(1e300) == cell_of(int(1e300))
    assert cell_of(2**1024) is None
    assert cell_of(np.inf) == np.inf
    assert cell_of(np.float32(0.1)) != cell_of(0.1)
    assert cell_of(pd.NaT) is None
    assert [type(cell_of(value)) for value in (np.str_("a"), np.float32(0.5), np.bool_(True))] == [str, float, int]


@pytest.mark.parametrize("value", [b"a", Fraction(1), 1 + 0j, ("a",), ["a"], np.datetime64("2020-01-01")])
def test_other_values_are_refused_by_their_type(value):
    with pytest.raises(ValueError, match=type(value).__name__):
        ColumnValues([[value]])


def test_columns_of_values_have_one_length():
    with pytest.raises(ValueError, match="one length"):
        ColumnValues([["a"], ["a", "b"]])
