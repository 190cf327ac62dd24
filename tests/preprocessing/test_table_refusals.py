"""What a table encoder refuses, by the name of the column and with a remedy."""

import datetime

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
import sklearn
from sklearn.base import clone
from table_cases import FORMS, NAN, PEOPLE, SCHEMA, dense, polars

from dpskl.preprocessing import Categories, Numeric, TableEncoder

DATES = {
    "datetime64": pd.Series(pd.to_datetime(["2020-01-01"] * 5)),
    "with a zone": pd.Series(pd.to_datetime(["2020-01-01"] * 5, utc=True)),
    "timedelta": pd.Series(pd.to_timedelta([1] * 5)),
    "objects": pd.Series([None, *[datetime.date(2020, 1, 1)] * 4], dtype=object),
    "times": pd.Series([datetime.time(3)] * 5, dtype=object),
    "arrays": np.array(["2020-01-01"] * 5, dtype="M8[D]"),
    "categories": pd.Categorical(pd.to_datetime(["2020-01-01"] * 5)),
    "lists": [datetime.datetime(2020, 1, 1)] * 5,
}


@pytest.mark.parametrize("kind", DATES)
@pytest.mark.parametrize("name", ["age", "job"])
def test_dates_are_refused_with_a_remedy(kind, name):
    encoder = dense().fit(PEOPLE)
    with pytest.raises(ValueError, match=f"the column '{name}' has dates or durations: make numbers .* 'drop'"):
        encoder.transform(PEOPLE | {name: DATES[kind]})
    encoder.transform(PEOPLE | {"id": DATES[kind]})  # not looked at


@pytest.mark.parametrize("library", ["polars", "pyarrow"])
def test_dates_of_other_libraries(library):
    pytest.importorskip(library, reason=f"{library} is not installed")
    table = FORMS["polars" if library == "polars" else "arrow"](PEOPLE | {"job": [datetime.date(2020, 1, 1)] * 5})
    with pytest.raises(ValueError, match="the column 'job' has dates or durations"):
        dense().fit_transform(table)


def test_lazy_frames_are_asked_to_be_collected():
    with pytest.raises(TypeError, match=r"LazyFrame.*collect\(\)"):
        dense().fit(polars(PEOPLE).lazy())


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"hours": [1] * 5}, r"X has the columns \['hours'\], which the schema does not name: .* 'drop'"),
        ({"age": [1, 2, "3", 4, 5]}, "'age' is declared as numbers and has values of type str"),
        ({"age": np.array(["1"] * 5)}, "'age' is declared as numbers and has values of type str"),
        ({"age": [1, 2, 3j, 4, 5]}, "'age' is declared as numbers and has values of type complex"),
        ({"age": np.array([1j] * 5)}, "'age' has values of type complex128"),
        ({"age": [1, 10**400, 3, 4, 5]}, "'age' has a value that is no float"),
        ({"age": [[1, 2]] * 5}, "'age' has 2 dimensions"),
        ({"age": [1, 2, np.inf, 4, 5]}, "infinity in the column 'age'"),
        ({"income": pd.Series([1, -np.inf, None, 4, 5], dtype="Float64")}, "infinity in the column 'income'"),
        ({"age": [1, 2]}, "'age' has another number of rows|'income' has another number of rows"),
        ({"job": "clerk"}, "'job' is str: pass a list"),
        ({"job": None}, "'job' is NoneType: pass a list"),
        ({"job": [b"clerk"] * 5}, "'job' has values of type bytes: pass words"),
        ({"job": [("a",), *"bcde"]}, "'job' has values of type tuple"),
        ({"job": [{"a"}, *"bcde"]}, "'job' has a value that is no category"),
    ],
)
def test_what_does_not_fit_the_schema_is_named(change, message):
    with pytest.raises(ValueError, match=message), sklearn.config_context(assume_finite=True):
        dense().fit_transform(PEOPLE | change)


@pytest.mark.parametrize("declared", [Numeric(0, 9, missing="error"), Numeric(0, 9, n_knots=None, missing="error")])
def test_gaps_are_refused_where_the_schema_says_so(declared):
    with pytest.raises(ValueError, match="NaN in the column 'a': missing='indicator'"):
        dense({"a": declared}).fit_transform({"a": [1, None]})
    with pytest.raises(ValueError, match="the column 'a' has missing values: missing='indicator'"):
        dense({"a": Categories(["x"], missing="error")}).fit_transform({"a": ["x", NAN]})


def test_columns_that_are_not_there_or_there_twice():
    frame = pd.DataFrame(PEOPLE)
    encoder = dense().fit(frame)
    for call in (encoder.transform, clone(encoder).fit):
        with pytest.raises(ValueError, match=r"X lacks the columns \['income', 'job'\]"):
            call(frame[["age", "code", "flag"]])
        with pytest.raises(ValueError, match=r"X has more than one column named \['age'\]: rename"):
            call(pd.concat([frame, frame[["age"]]], axis=1))
        with pytest.raises(ValueError, match=r"X has 4 features, but TableEncoder is expecting 6 features"):
            call(frame.to_numpy()[:, :4])
        with pytest.raises(ValueError, match=r"X has the columns \[0\]"):
            call(frame.rename(columns={"age": 0}))
        with pytest.raises(ValueError, match=r"0 sample"):
            call(frame[:0])
        with pytest.raises(ValueError, match="Expected 2D array, got 1D"):
            call(frame.iloc[0])
        with pytest.raises(TypeError, match="Sparse data"):
            call(sp.csr_array(np.eye(6)))


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"schema": None}, "columns=None.*mapping"),
        ({"schema": {"age": (90, 18)}}, "low=90.0 is not below"),
        ({"sparse_output": "no"}, "sparse_output='no'"),
    ],
)
def test_unusable_parameters_are_named(parameters, message):
    with pytest.raises(ValueError, match=message):
        TableEncoder(SCHEMA).set_params(**parameters).fit(PEOPLE)
