"""Bounds that are given by name belong to the columns of these names, in whatever order."""

import numpy as np
import pandas as pd
import pytest
from sklearn.impute import SimpleImputer
from sklearn.pipeline import make_pipeline

from dpskl.preprocessing import PublicScaler, RowNormClipper

PEOPLE = pd.DataFrame({"age": [18.0, 58.0, 98.0], "income": [0.0, 500.0, 1000.0]})
LOW, HIGH = {"income": 0, "age": 18}, {"income": 1000, "age": 98}
EXPECTED = [[0, 0], [0.5, 0.5], [1, 1]]


@pytest.mark.parametrize("kind", [dict, pd.Series, lambda values: pd.Series(values)[["age", "income"]]])
@pytest.mark.parametrize("other", [dict, pd.Series])
def test_names_decide_and_not_places(kind, other):
    scaler = PublicScaler(low=kind(LOW), high=other(HIGH)).fit(PEOPLE)
    np.testing.assert_allclose(scaler.transform(PEOPLE), EXPECTED)
    assert scaler.low_.tolist() == [18, 0]
    # the columns in another order: the bounds go along
    swapped = PEOPLE[["income", "age"]]
    np.testing.assert_allclose(PublicScaler(low=kind(LOW), high=other(HIGH)).fit_transform(swapped), EXPECTED)


def test_one_bound_by_name_and_one_for_all():
    frame = PEOPLE / 1000
    scaled = PublicScaler(low=0, high=pd.Series({"income": 1.0, "age": 0.5})).fit(frame)
    assert scaled.high_.tolist() == [0.5, 1.0]


@pytest.mark.parametrize("kind", [dict, pd.Series])
@pytest.mark.parametrize(
    ("names", "message"),
    [
        ({"income": 1000}, r"lacks \['age'\]"),
        ({"income": 1000, "Age": 98}, r"lacks \['age'\] and has \['Age'\]"),
        ({"income": 1000, "age": 98, "weight": 200}, r"has \['weight'\], which are not there"),
    ],
)
def test_names_that_differ_are_refused(kind, names, message):
    with pytest.raises(ValueError, match=f"high is given by name and {message}"):
        PublicScaler(low=0, high=kind(names)).fit(PEOPLE)


@pytest.mark.parametrize("kind", [dict, pd.Series])
def test_names_without_names_of_columns_are_refused(kind):
    rows = PEOPLE.to_numpy()
    for low, high in ((kind(LOW), kind(HIGH)), (0, kind(HIGH)), (kind(LOW), 1e3)):
        with pytest.raises(ValueError, match=r"(?s)(low|high)=.*X has no column names; .*set_output"):
            PublicScaler(low=low, high=high).fit(rows)


def test_names_that_a_pipeline_loses_are_not_replaced_by_places():
    fill = SimpleImputer(strategy="constant", fill_value=0, keep_empty_features=True)
    scaler = PublicScaler(low=pd.Series(LOW), high=pd.Series(HIGH))
    with pytest.raises(ValueError, match="X has no column names"):
        make_pipeline(fill, scaler).fit(PEOPLE)
    kept = make_pipeline(fill, scaler).set_output(transform="pandas").fit_transform(PEOPLE)
    np.testing.assert_allclose(kept, EXPECTED)


def test_places_are_no_names():
    bounds = pd.Series([18, 0]), pd.Series([98, 1000])
    np.testing.assert_allclose(PublicScaler(*bounds).fit_transform(PEOPLE), EXPECTED)


def test_a_column_that_is_named_twice_is_refused():
    twice = pd.Series([18, 0, 3], index=["age", "income", "age"])
    with pytest.raises(ValueError, match="names a column twice"):
        PublicScaler(low=twice, high=1e3).fit(PEOPLE)


@pytest.mark.parametrize("kind", [dict, pd.Series])
def test_norms_from_bounds_match_names(kind):
    low, high = {"a": -3, "b": 0}, {"b": 4, "a": 1}
    assert RowNormClipper.from_bounds(kind(low), kind(high)).norm == 5.0
    with pytest.raises(ValueError, match="high is given by name"):
        RowNormClipper.from_bounds(kind(low), kind({"b": 4, "c": 1}))
    assert RowNormClipper.from_bounds(low=0, high=kind({"b": 4, "a": 3})).norm == 5.0
