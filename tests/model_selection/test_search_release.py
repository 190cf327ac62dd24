"""A search that is over, in the hands of others; and what it tells while it runs."""

import pickle

import numpy as np
import pytest
from sklearn.pipeline import make_pipeline

from dpskl import DPLogisticRegression, PrivacyAccountant
from dpskl.model_selection import PrivateSearchCV, plan_cost
from dpskl.model_selection.planned import Size
from dpskl.preprocessing import PublicScaler, RowNormClipper

rng = np.random.default_rng(3)
X = rng.uniform(0, 10, size=(300, 3))
y = (X[:, 0] > 5).astype(int)


def search(*steps, **changes):
    model = DPLogisticRegression(classes=[0, 1])
    estimator = make_pipeline(*steps, model) if steps else model
    grid = {("dplogisticregression__C" if steps else "C"): [0.1, 1.0]}
    return PrivateSearchCV(estimator, grid, epsilon=4.0, accountant=PrivacyAccountant(), **changes)


@pytest.mark.parametrize(
    "steps",
    [(), (PublicScaler(0, 10),), (PublicScaler(0, 10), make_pipeline(RowNormClipper(1.0), RowNormClipper(0.9)))],
)
def test_the_model_of_a_search_is_released_with_the_guarantee_of_the_search(steps):
    made = search(*steps).fit(X, y)
    released = pickle.loads(pickle.dumps(made.release()))
    np.testing.assert_array_equal(released.predict(X), made.predict(X))
    last = released.steps[-1][1] if steps else released
    assert last.privacy_guarantee_ == made.privacy_guarantee_
    assert last.privacy_guarantee_.fit.estimator == "PrivateSearchCV"
    assert last.privacy_guarantee_.fit.n_samples == 300
    assert last.accountant is None
    assert made.best_estimator_ is not released


def test_a_plan_lists_what_a_search_would_release():
    assert plan_cost(search(), 300, 3).epsilon <= 4.0
    (fit,) = search()._plan_fits(Size(300, 3, 2))
    assert len(fit.parts) == 1
    assert fit.parts[0].cost == fit.cost


def test_callbacks_learn_that_a_search_begins_and_ends_and_not_how_many_trials_there_are():
    pytest.importorskip("sklearn.callback", reason="scikit-learn has no callbacks before 1.9")

    class Witness:
        def __init__(self):
            self.told = []

        def setup(self, estimator, context): ...

        def teardown(self, estimator, context): ...

        def on_fit_task_begin(self, estimator, context):
            self.told.append((context.task_name, context.max_subtasks))

        def on_fit_task_end(self, estimator, context):
            self.told.append(context.task_name)

    for _ in range(5):
        outer, inner = Witness(), Witness()
        made = search(mean_trials=20)
        made.estimator.set_callbacks(inner)
        made.set_callbacks(outer).fit(X, y)
        assert outer.told == [("fit", 1), ("question", 0), "question", "fit"]
        assert inner.told == []
