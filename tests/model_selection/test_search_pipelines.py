"""Private searches over pipelines: which are taken, what reaches the classifier, and what is left behind."""

import warnings

import numpy as np
import pandas as pd
import pytest
from sklearn import config_context
from sklearn.compose import make_column_transformer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import (
    FunctionTransformer,
    MinMaxScaler,
    Normalizer,
    OneHotEncoder,
    PolynomialFeatures,
    StandardScaler,
)
from sklearn.utils.estimator_checks import parametrize_with_checks

import dpskl.model_selection.private as private_search
from dpskl import DPHuberSVC, DPLogisticRegression, PrivacyAccountant, SeededNoiseWarning
from dpskl.model_selection import PrivateSearchCV, plan_cost
from dpskl.model_selection.trials import Candidate
from dpskl.preprocessing import PublicScaler, RowNormClipper


def frame(n=600, seed=0):
    rng = np.random.default_rng(seed)
    X = pd.DataFrame(
        {"age": rng.uniform(0, 100, n), "hours": rng.uniform(0, 50, n), "region": rng.choice(["north", "south"], n)}
    )
    return X, np.where(X["age"] / 100 + (X["region"] == "north") > 0.9, "yes", "no")


def classifier(**changes):
    return DPLogisticRegression(**{"solver": "gd", "classes": ["no", "yes"], "data_norm": 3**0.5, **changes})


def tabular(**changes):
    columns = make_column_transformer(
        (PublicScaler(low=[0, 0], high=[100, 50]), ["age", "hours"]),
        (OneHotEncoder(categories=[["north", "south"]]), ["region"]),
    )
    return Pipeline([("columns", columns), ("clf", classifier(**changes))])


GRID = {"columns__publicscaler__high": [[100, 50], [200, 100]], "clf__C": [0.1, 1.0, 10.0]}


@pytest.fixture
def _ignore_seeds():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SeededNoiseWarning)
        yield


@pytest.mark.filterwarnings("ignore")
@parametrize_with_checks(
    [PrivateSearchCV(make_pipeline(RowNormClipper(), DPLogisticRegression()), {"dplogisticregression__C": [0.1, 1.0]})]
)
def test_scikit_learn_check(estimator, check):
    check(estimator)


def test_a_pipeline_is_searched_and_predicts_from_raw_rows():
    X, y = frame(3000)
    accountant = PrivacyAccountant()
    search = PrivateSearchCV(tabular(), GRID, epsilon=5.0, accountant=accountant)
    plan = plan_cost(search, 3000, 4)
    search.fit(X, y)
    assert search.score(X, y) > 0.75
    best = search.best_estimator_
    assert search.feature_names_in_.tolist() == ["age", "hours", "region"]
    assert best[-1].n_features_in_ == 4  # two scaled columns and two categories
    assert best[-1].privacy_guarantee_ is search.privacy_guarantee_
    assert best.get_params()["clf__C"] == best[-1].C == search.best_params_["clf__C"]
    assert best["columns"].transformers_[0][1].high_.tolist() == search.best_params_["columns__publicscaler__high"]
    np.testing.assert_array_equal(search.predict(X), best.predict(X))
    np.testing.assert_array_equal(search.predict_proba(X), best.predict_proba(X))
    np.testing.assert_array_equal(search.decision_function(X), best[-1].decision_function(best[:-1].transform(X)))
    (entry,) = accountant.entries()
    assert entry.cost == plan.cost == search.privacy_guarantee_.cost
    with pytest.raises(ValueError, match="columns are missing"):
        search.predict(X.rename(columns={"age": "years"}))


def test_the_model_is_that_of_the_pipeline_fitted_to_the_training_part():
    """Without noise, so that the whole pipeline and the last step on transformed rows can be compared."""
    X, y = frame()
    rows = np.arange(600) % 5 == 0
    with warnings.catch_warnings(), pytest.MonkeyPatch.context() as patch:
        warnings.simplefilter("ignore")
        patch.setattr(private_search, "draw_rows", lambda n, count, noise: rows)
        search = PrivateSearchCV(tabular(), {"clf__C": [0.3]}, epsilon=np.inf, mean_trials=1).fit(X, y)
        alone = tabular(C=0.3, epsilon=np.inf).fit(X[~rows], y[~rows])
    np.testing.assert_allclose(search.best_estimator_[-1].coef_, alone[-1].coef_, rtol=1e-9)
    assert search.best_score_ == alone.score(X[rows], y[rows])


def test_nested_pipelines_and_exchanged_steps():
    X, y = frame()
    inner = Pipeline([("clip", RowNormClipper(2.0)), ("skip", "passthrough"), ("clf", classifier())])
    outer = Pipeline([("columns", tabular()["columns"]), ("rest", inner)])
    grid = {"rest__clip": [RowNormClipper(0.5), Normalizer(), None], "rest__clf": [classifier(), classifier(C=9.0)]}
    search = PrivateSearchCV(outer, grid, epsilon=5.0).fit(X, y)
    best = search.best_estimator_
    assert best["rest"]["clf"].privacy_guarantee_ is search.privacy_guarantee_
    assert type(best["rest"]["clip"]) is type(search.best_params_["rest__clip"])
    assert best["rest"]["clf"].C == search.best_params_["rest__clf"].C
    assert search.predict(X).shape == (600,)


def test_each_candidate_is_planned_with_the_columns_that_reach_it(monkeypatch):
    X = np.random.default_rng(0).uniform(size=(200, 3))
    y = np.where(X[:, 0] > 0.5, "yes", "no")
    seen, plan = set(), DPLogisticRegression.plan

    def watched(self, n_samples, n_features, n_classes=None):
        seen.add((self.C, n_samples, n_features))
        return plan(self, n_samples, n_features, n_classes)

    monkeypatch.setattr(DPLogisticRegression, "plan", watched)
    pipeline = Pipeline([("poly", PolynomialFeatures(1)), ("clf", classifier())])
    grid = [{"poly__degree": [1], "clf__C": [1.0]}, {"poly__degree": [2], "clf__C": [2.0]}]
    PrivateSearchCV(pipeline, grid, epsilon=2.0).fit(X, y)
    assert seen == {(1.0, 160, 4), (2.0, 160, 10)}


def test_steps_are_fitted_once_for_each_setting_and_before_anything_is_charged(monkeypatch):
    X, y = frame()
    accountant, lengths, fit_steps = PrivacyAccountant(), [], Candidate.fit_steps
    monkeypatch.setattr(Candidate, "fit_steps", lambda self, X: lengths.append(len(accountant)) or fit_steps(self, X))
    PrivateSearchCV(tabular(), GRID, accountant=accountant, mean_trials=20, eta=1).fit(X, y)
    assert lengths == [0, 0]


def test_rows_that_a_step_or_the_classifier_cannot_take_are_found_before_the_charge():
    X, y = frame()
    accountant = PrivacyAccountant()
    search = PrivateSearchCV(tabular(), GRID, accountant=accountant)
    with pytest.raises(ValueError, match="unknown categories"):
        search.fit(X.replace("south", "east"), y)
    with pytest.raises(ValueError, match="NaN"):
        search.fit(X.replace(X["age"].max(), np.nan), y)
    with pytest.raises(ValueError, match="labels"):
        search.fit(X, np.where(y == "no", "never", y))
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        search.fit(X, y[:-1])
    assert len(accountant) == 0


@pytest.mark.usefixtures("_ignore_seeds")
def test_the_format_of_the_rows_does_not_follow_the_records():
    """A ColumnTransformer makes sparse rows where few entries are stored, and keeps that decision."""
    encoder = OneHotEncoder(categories=[["north", "south", "east"]], handle_unknown="ignore")
    columns = make_column_transformer((encoder, ["region"]))
    kept = {"alone": [], "in a search": []}
    for region in ("north", "nowhere"):
        X, y = frame()
        X["region"] = region
        kept["alone"].append(columns.fit(X).sparse_output_)
        search = PrivateSearchCV(make_pipeline(columns, classifier()), {}, random_state=0).fit(X, y)
        kept["in a search"].append(search.best_estimator_[0].sparse_output_)
    assert kept == {"alone": [False, True], "in a search": [False, False]}


def test_nothing_is_said_of_rows_that_a_step_takes_with_a_warning():
    X, y = frame()
    X.loc[5, "region"] = "nowhere"
    encoder = OneHotEncoder(categories=[["north", "south"]], drop="first", handle_unknown="ignore")
    columns = make_column_transformer((encoder, ["region"]), (FunctionTransformer(np.exp), ["age", "hours"]))
    X.loc[7, "hours"] = -1e4  # underflows
    with pytest.warns(UserWarning, match="unknown categories"):
        columns.fit(X).transform(X)
    with np.errstate(all="raise"):
        PrivateSearchCV(make_pipeline(columns, classifier()), {}).fit(X, y)  # warnings are errors here


@pytest.mark.parametrize("settings", [{"transform_output": "pandas"}, {"enable_metadata_routing": True}])
def test_the_configuration_of_scikit_learn_is_heeded(settings):
    X, y = frame()
    steps = make_column_transformer((PublicScaler(low=[0, 0], high=[100, 50]), ["age", "hours"]))
    with config_context(**settings):
        search = PrivateSearchCV(make_pipeline(steps, classifier()), {}).fit(X, y)
        assert search.predict(X).shape == (600,)
        has_names = hasattr(search.best_estimator_[-1], "feature_names_in_")
    assert has_names == ("transform_output" in settings)


@pytest.mark.parametrize(
    ("estimator", "grid", "error", "message"),
    [
        (
            make_pipeline(StandardScaler(), classifier()),
            {},
            TypeError,
            "the step 'standardscaler'.*reads means.*PublicScaler",
        ),
        (
            make_pipeline(RowNormClipper(), make_pipeline(MinMaxScaler(), classifier())),
            {},
            TypeError,
            "the step 'minmaxscaler'",
        ),
        (
            make_pipeline(RowNormClipper(), LogisticRegression()),
            {},
            TypeError,
            "the last step of the pipeline, LogisticRegression is not a classifier of this package",
        ),
        (
            Pipeline([("scale", RowNormClipper()), ("clf", classifier())]),
            {"scale": [StandardScaler()]},
            TypeError,
            "the step 'scale'.*StandardScaler",
        ),
        (
            Pipeline([("scale", RowNormClipper()), ("clf", classifier())]),
            {"clf": [LogisticRegression()]},
            TypeError,
            "LogisticRegression is not a classifier of this package",
        ),
        (tabular(), {"clf__epsilon": [1, 2]}, ValueError, "varies 'clf__epsilon'"),
        (tabular(), {"clf__classes": [["no", "yes"]]}, ValueError, "varies 'clf__classes'"),
        (tabular(), {"clf__C": [1, -1]}, ValueError, "C=-1"),
        (tabular(), {"C": [1]}, ValueError, "C"),
        (
            tabular(),
            {"clf": [classifier(), classifier(neighbours="replace_one")]},
            ValueError,
            "neighbours='replace_one' and the estimator neighbours='add_remove'",
        ),
        (
            tabular(),
            {"clf": [classifier(classes=["no", "yes", "so"])]},
            ValueError,
            "classes=.*one for the whole search",
        ),
        (
            tabular(),
            {"clf": [classifier(accountant=PrivacyAccountant())]},
            ValueError,
            "accountant=.*one for the whole search",
        ),
    ],
)
def test_what_cannot_be_searched_is_named_and_nothing_is_charged(estimator, grid, error, message):
    X, y = frame()
    accountant = PrivacyAccountant()
    with pytest.raises(error, match=message):
        PrivateSearchCV(estimator, grid, accountant=accountant).fit(X, y)
    assert len(accountant) == 0


def test_probabilities_are_asked_of_classifiers_that_have_them():
    X, y = frame()
    grid = {"clf": [classifier(), DPHuberSVC(classes=["no", "yes"])]}
    with pytest.raises(ValueError, match=r"scoring='neg_log_loss' needs probabilities.*DPHuberSVC"):
        PrivateSearchCV(tabular(), grid, scoring="neg_log_loss").fit(X, y)
    search = PrivateSearchCV(tabular(), grid, scoring="balanced_accuracy", class_shares={"no": 0.6, "yes": 0.4})
    assert search.fit(X, y).class_shares_.tolist() == [0.6, 0.4]
