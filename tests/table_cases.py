"""One table in all the forms in which it can come, and the rows that it is."""

import numpy as np
import pandas as pd
import pytest

from dpskl.preprocessing import Categories, Numeric, Schema, TableEncoder

NAN = np.nan
SCHEMA = Schema(
    {
        "age": Numeric(18, 98, n_knots=3),
        "id": "drop",
        "income": Numeric(0, 1000, n_knots=None),
        "job": ["clerk", "nurse"],
        "code": Categories([1, 2, "x"], other=False),
        "flag": Categories([False, True], other=False, missing="zeros"),
    }
)
NAMES = [
    *("age[18.0]", "age[58.0]", "age[98.0]", "age[missing]", "income", "income[missing]"),
    *("job=clerk", "job=nurse", "job=other", "job=missing"),
    *("code=1", "code=2", "code=x", "code=missing", "flag=False", "flag=True"),
]
PEOPLE = {
    "age": [18, 38, None, 200, 98],
    "income": [0.0, 500.0, 1000.0, None, 250.0],
    "job": ["clerk", None, "pilot", "nurse", "clerk"],
    "code": ["1", "x", None, "9", "2"],
    "flag": [True, False, None, True, False],
    "id": ["p", "q", "r", "s", None],
}
ROWS = [
    [1, 0, 0, 0, -1, 0, 1, 0, 0, 0, 1, 0, 0, 0, 0, 1],
    [0.5, 0.5, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 1, 0, 1, 0],
    [0, 0, 0, 1, 1, 0, 0, 0, 1, 0, 0, 0, 0, 1, 0, 0],
    [0, 0, 1, 0, 0, 1, 0, 1, 0, 0, 0, 0, 0, 0, 0, 1],
    [0, 0, 1, 0, -0.5, 0, 1, 0, 0, 0, 0, 1, 0, 0, 1, 0],
]


def pandas_nullable(columns):
    frame = pd.DataFrame(columns, dtype=object).convert_dtypes()
    assert isinstance(frame["age"].dtype, pd.Int64Dtype)
    return frame


def pandas_categorical(columns):
    return pd.DataFrame({name: pd.Categorical(values) for name, values in columns.items()})


def polars(columns):
    return pytest.importorskip("polars", reason="polars is not installed").DataFrame(columns)


def polars_categorical(columns):
    pl = pytest.importorskip("polars", reason="polars is not installed")
    kinds = {"job": pl.Enum(["clerk", "nurse", "pilot"]), "code": pl.Categorical}
    return pl.DataFrame(columns).cast(kinds)


def arrow(columns):
    return pytest.importorskip("pyarrow", reason="pyarrow is not installed").table(columns)


def arrow_pieces(columns):
    pa = pytest.importorskip("pyarrow", reason="pyarrow is not installed")
    table = pa.table(columns)
    whole = pa.concat_tables([table.slice(0, 2), table.slice(2)])
    return whole.set_column(2, "job", whole["job"].dictionary_encode())


def arrow_batch(columns):
    return pytest.importorskip("pyarrow", reason="pyarrow is not installed").RecordBatch.from_pydict(columns)


def pandas_on_arrow(columns):
    pytest.importorskip("pyarrow", reason="pyarrow is not installed")
    return pd.DataFrame(columns, dtype=object).convert_dtypes(dtype_backend="pyarrow")


FORMS = {
    "pandas": pd.DataFrame,
    "objects": lambda columns: pd.DataFrame(columns, dtype=object),
    "nullable": pandas_nullable,
    "categorical": pandas_categorical,
    "dict": dict,
    "dict of arrays": lambda columns: {name: np.array(values, dtype=object) for name, values in columns.items()},
    "dict of series": lambda columns: {name: pd.Series(values) for name, values in columns.items()},
    "array": lambda columns: np.array([columns[name] for name in SCHEMA], dtype=object).T,
    "lists": lambda columns: [list(row) for row in zip(*(columns[name] for name in SCHEMA), strict=True)],
    "polars": polars,
    "polars categorical": polars_categorical,
    "arrow": arrow,
    "arrow in pieces": arrow_pieces,
    "arrow batch": arrow_batch,
    "pandas on arrow": pandas_on_arrow,
}


def dense(schema=SCHEMA, **parameters):
    return TableEncoder(schema, sparse_output=False, **parameters)


def encoded(declared, values):
    """Rows of one column that is given as it is."""
    return dense({"a": declared}).fit_transform({"a": values}).tolist()
