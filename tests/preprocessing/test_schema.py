"""What a schema accepts, refuses, writes and drafts."""

import datetime
import json
import pickle

import numpy as np
import pandas as pd
import pytest

from dpskl import PrivacyLeakWarning
from dpskl.preprocessing import Categories, Drop, Numeric, Schema, knots_for

WRITTEN = Schema(
    {
        "age": (18, 90),
        "income": Numeric(0, 1e6, spacing="log", n_knots=5, missing="zeros"),
        "hours": Numeric(0, 80, n_knots=None, missing="error"),
        "rooms": Numeric(0.1, 9, knots=[0.1, 0.30000000000000004, 9]),
        "job": ["clerk", "nürse"],
        "code": Categories([1, 2.5, "1.0", "b"], other=False, missing="zeros"),
        "flag": [True, False],
        "id": "drop",
    }
)


def draft(example):
    with pytest.warns(PrivacyLeakWarning, match="must be public or made up"):
        return Schema.from_frame(example)


def test_plain_python_and_declarations_say_the_same():
    same = Schema({"age": Numeric(18.0, 90.0), "job": Categories(("a", "b")), "id": Drop()})
    short = Schema({"age": (18, 90), "job": ["a", "b"], "id": "drop"})
    assert short == same
    assert hash(short) == hash(same)
    assert Schema(same) == same
    assert same["age"] == Numeric(18, 90, spacing="linear", n_knots="auto", knots=None, missing="indicator")
    assert Schema({"job": np.array(["a", "b"])})["job"] == same["job"]
    assert Schema({"age": Numeric(np.int64(18), np.float32(90), n_knots=np.int64(4))})["age"] == Numeric(
        18, 90, n_knots=4
    )


def test_order_and_kind_matter():
    assert Schema({"a": (0, 1), "b": (0, 1)}) != Schema({"b": (0, 1), "a": (0, 1)})
    assert Schema({"a": [1, 0]}) != Schema({"a": [True, False]})
    assert Schema({"a": (0, 1)}) != {"a": Numeric(0, 1)}


def test_nothing_in_it_can_be_changed():
    with pytest.raises(AttributeError):
        WRITTEN["age"].low = 3
    with pytest.raises(TypeError):
        WRITTEN["age"] = (0, 1)
    values = ["a", "b"]
    schema = Schema({"job": values})
    values.append("c")
    assert schema["job"].values == ("a", "b")


def test_the_norm_counts_what_is_used():
    assert WRITTEN.data_norm**2 == pytest.approx(7)
    assert Schema({"a": (0, 1), "b": "drop"}).data_norm == 1
    assert len(WRITTEN.output_names()) == 10 + 5 + 1 + 4 + 4 + 4 + 4


def test_it_reads_as_a_table():
    lines = repr(WRITTEN).splitlines()
    assert lines[0] == "Schema of 8 columns, of which 7 are encoded as 32, data_norm = sqrt(7)"
    assert lines[1] == "age     numeric     18 to 90, linear, n_knots='auto', missing: indicator"
    assert lines[2] == "income  numeric     0 to 1e+06, log, n_knots=5, missing: zeros"
    assert lines[4] == "rooms   numeric     0.1 to 9, linear, 3 own knots, missing: indicator"
    assert lines[6] == "code    categories  1, 2.5, '1.0', 'b', other: zeros, missing: zeros"
    assert lines[8] == "id      drop        not used"
    assert "5, ... 90 in all" in repr(Schema({"a": list(range(90))}))


def test_declarations_read_as_they_are_written():
    for declared in WRITTEN.values():
        assert eval(repr(declared)) == declared


# -- JSON ---------------------------------------------------------------------------------------------


def test_json_there_and_back():
    for text in (WRITTEN.to_json(), json.dumps(json.loads(WRITTEN.to_json()))):
        again = Schema.from_json(text)
        assert again == WRITTEN
        assert list(again) == list(WRITTEN)
        assert [type(value) for value in again["code"].values] == [int, float, str, str]
        assert [type(value) for value in again["flag"].values] == [bool, bool]
        assert again.to_json() == WRITTEN.to_json()
    assert pickle.loads(pickle.dumps(WRITTEN)) == WRITTEN


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda d: d.update(version=2), "version 2, and this dpskl reads 1"),
        (lambda d: d.pop("version"), "version None"),
        (lambda d: d.update(format="other"), "no schema"),
        (lambda d: d.update(columns=3), "columns=3"),
        (lambda d: d.update(columns=[3]), r"columns=\[3\]"),
        (lambda d: d["columns"].append(d["columns"][0]), "two columns named 'age'"),
        (lambda d: d["columns"][0].pop("name"), "column None has a name"),
        (lambda d: d["columns"][0].update(kind="ordinal"), "column 'age': kind='ordinal'.*'numeric'"),
        (lambda d: d["columns"][0].update(kind=["numeric"]), "column 'age': kind="),
        (lambda d: d["columns"][0].update(unit="years"), "column 'age': it has the parts .*unit"),
        (lambda d: d["columns"][0].pop("high"), "column 'age': it has the parts"),
        (lambda d: d["columns"][0].update(high=3), "low=18.0 is not below high=3.0 in column 'age'"),
        (lambda d: d["columns"][0].update(high=float("nan")), "column 'age': high=nan"),
    ],
)
def test_json_that_is_no_schema(change, message):
    written = json.loads(WRITTEN.to_json())
    change(written)
    with pytest.raises(ValueError, match=message):
        Schema.from_json(json.dumps(written))
    with pytest.raises(ValueError, match=r"line 1|no schema"):
        Schema.from_json("[]" if change is None else "age,job")


# -- knots --------------------------------------------------------------------------------------------


def test_knots_by_the_rule():
    schema = Schema({"a": (0, 1), "b": Numeric(0, 1, missing="error"), "c": Numeric(0, 1, n_knots=4), "d": ["x", "y"]})
    n_other = 1 + 0 + 5 + 4
    met = set()
    for n in (50, 200, 1000, 3000, 10_000):
        for neighbours in ("add_remove", "replace_one"):
            expected = knots_for(n, 2, 1.0, 1e-6, neighbours=neighbours, n_other=n_other)
            found = schema.with_knots(n, 1.0, 1e-6, neighbours=neighbours)
            expected = None if expected == 2 else expected
            assert [found["a"].n_knots, found["b"].n_knots, found["c"].n_knots] == [expected, expected, 4]
            assert found["d"] == schema["d"]
            assert found.data_norm == schema.data_norm
            met.add(expected)
    assert met == {None, 5, 9}
    assert schema["a"].n_knots == "auto"
    own = Schema({"a": Numeric(0, 1, knots=[0, 1]), "d": ["x"]})
    assert own.with_knots(10, 1.0, 1e-6) is own
    with pytest.raises(ValueError, match="n_samples=0"):
        schema.with_knots(0, 1.0, 1e-6)


# -- refusals -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        (["age"], "columns=.*mapping"),
        ({}, "no column that is used"),
        ({"id": "drop"}, "no column that is used"),
        ({3: (0, 1)}, "column 3 has a name that is not a word"),
        ({"age": (90, 18)}, "low=90.0 is not below high=18.0 in column 'age'"),
        ({"age": (18, np.inf)}, "column 'age': high=inf.*finite"),
        ({"age": (18, 90, 3)}, "column 'age': .*no range"),
        ({"age": (True, False)}, "column 'age': .*write a list"),
        ({"age": "number"}, "column 'age': 'number', but it must be a range"),
        ({"age": None}, "column 'age': None, but"),
        ({"age": Numeric}, "column 'age': "),
        ({"age": Numeric(0, 1, knots=[0, 2])}, r"knots=\[0.0, 2.0\] of column 'age' leave its bounds"),
        ({"age": Numeric(0, 1, knots=[1, 0])}, "increasing for column 'age'"),
        ({"job": []}, "column 'job': values=.*at least one"),
        ({"job": ["a", "a"]}, r"column 'job': values has \['a', 'a'\]"),
        ({"job": [1, "1"]}, r"column 'job': values has \[1, '1'\], which are equal or written alike"),
        ({"job": [1, 1.0]}, "equal or written alike"),
        ({"job": [1, True]}, "equal or written alike"),
        ({"job": ["a", None]}, "column 'job': values has None.*missing="),
        ({"job": ["a", np.nan]}, "column 'job': values has nan"),
        ({"job": [datetime.date(2020, 1, 1)]}, "column 'job': values has datetime"),
        ({"a": ["b=c"], "a=b": ["c"]}, "would be named 'a=b=c'"),
        ({"a": (0, 1), "a[0.0]": Numeric(0, 1, n_knots=None)}, r"would be named 'a\[0.0\]'"),
    ],
)
def test_what_is_no_schema_is_named(columns, message):
    with pytest.raises(ValueError, match=message):
        Schema(columns)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Numeric("a", 1), "low='a'.*finite number"),
        (lambda: Numeric(0, True), "high=True"),
        (lambda: Numeric(0, 1, knots="ab"), "knots='ab'"),
        (lambda: Numeric(0, 1, knots=3), "knots=3"),
        (lambda: Numeric(0, 1, n_knots=None, knots=[0, 1]), "n_knots=None asks for a plain column"),
        (lambda: Numeric(0, 1, spacing="cubic"), "spacing='cubic'.*'linear', 'log'"),
        (lambda: Numeric(0, 1, missing="drop"), "^missing='drop'.*'error', 'zeros', 'indicator'"),
        (lambda: Numeric(0, 1, n_knots=1), "n_knots=1.*at least 2, or None"),
        (lambda: Numeric(0, 1, n_knots=True), "n_knots=True"),
        (lambda: Numeric(0, 1, n_knots="many"), "n_knots='many'"),
        (lambda: Categories("ab"), "values='ab'.*list"),
        (lambda: Categories(3), "values=3"),
        (lambda: Categories(["a"], other="zeros"), "other='zeros'.*True or False"),
        (lambda: Categories(["a"], missing="drop"), "missing='drop'.*'error', 'zeros', 'indicator'"),
    ],
)
def test_what_is_no_declaration_is_named(make, message):
    with pytest.raises(ValueError, match=message):
        make()


# -- drafts -------------------------------------------------------------------------------------------


def example(n=400):
    rng = np.random.default_rng(3)
    gains = np.where(rng.random(n) < 0.9, 0, rng.lognormal(8.5, 0.8, n).clip(100, 99_999))
    gains[:3] = [0, 5000, 99_999]
    return pd.DataFrame(
        {
            "age": np.append(rng.integers(18, 90, n - 2), [17, 90]),
            "share": np.append(rng.uniform(0.2, 0.9, n - 2), [0.2, 0.9]),
            "income": rng.lognormal(8, 1, n),
            "gain": gains,
            "job": rng.choice(["nurse", "clerk"], n),
            "size": pd.Categorical(rng.choice(["S", "M"], n), categories=["S", "M", "L"]),
            "flag": rng.random(n) < 0.5,
            "mixed": pd.Series(rng.choice(np.array([1, "b", None, 2.5], dtype=object), n), dtype=object),
            "visits": pd.array(rng.choice([1, 5, 9, 14, None], n), dtype="Int64"),
            "name": [f"person {j}" for j in range(n)],
            "same": 1.0,
            "none": [None] * n,
        }
    )


def test_a_draft_of_each_kind_of_column():
    with pytest.warns(PrivacyLeakWarning, match=r"never those .*\['name', 'same', 'none'\] .* are dropped") as caught:
        found = Schema.from_frame(example())
    assert caught[0].filename == __file__
    assert found["age"] == Numeric(10, 90)
    assert found["share"] == Numeric(0.2, 0.9)
    assert found["income"].spacing == found["gain"].spacing == "log"
    assert (found["gain"].low, found["gain"].high) == (0, 100_000)
    assert found["job"] == Categories(["clerk", "nurse"])
    assert found["size"] == Categories(["M", "S"])  # that occur
    assert found["flag"] == Categories([False, True])
    assert set(found["mixed"].values) == {1, 2.5, "b"}
    assert (found["visits"].low, found["visits"].high) == (1, 14)
    assert found["name"] == found["same"] == found["none"] == Drop()
    assert Schema.from_json(found.to_json()) == found


@pytest.mark.parametrize("scale", [1e-9, 0.03, 1.0, 700.0, 1e12])
@pytest.mark.parametrize("shift", [0.0, -1.5, 1e3])
def test_drafted_bounds_hold_all_values(scale, shift):
    values = scale * (np.random.default_rng(8).normal(size=50) + shift)
    found = draft({"a": values})["a"]
    assert found.low <= values.min() < values.max() <= found.high
    assert found.high - found.low <= 3 * (values.max() - values.min())


def test_drafts_of_plain_dicts_and_of_numbers_without_skew():
    rng = np.random.default_rng(4)
    found = draft({"a": rng.normal(50, 10, 1000), "b": [1, None, 3] * 333 + [2], "c": rng.exponential(size=1000)})
    assert draft({"a": [0, 1, None, 1]})["a"] == Numeric(0, 1, n_knots=None)
    assert [found[name].spacing for name in "abc"] == ["linear", "linear", "log"]
    assert (found["b"].low, found["b"].high) == (1, 3)


@pytest.mark.parametrize(
    ("frame", "message"),
    [
        ([[1, 2], [3, 4]], "no column names"),
        (pd.DataFrame([[1, 2]], columns=["a", "a"]), "the column 'a' is there twice"),
        ({"a": pd.to_datetime(["2020-01-01", "2021-01-01"])}, "the column 'a' has dates.*make numbers"),
        ({"a": [datetime.date(2020, 1, 1)]}, "the column 'a' has dates"),
        ({"a": [np.inf, 1.0]}, "the column 'a' has infinite"),
        ({"a": [[1], [2]]}, "the column 'a'"),
        (pd.DataFrame({"a": []}), "0 sample"),
    ],
)
def test_what_cannot_be_drafted_is_named(frame, message):
    with pytest.raises(ValueError, match=message):
        Schema.from_frame(frame)
