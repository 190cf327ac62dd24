"""Callbacks see how many questions are planned and asked, and nothing that depends on records."""

import numpy as np
import pytest
from sklearn.pipeline import make_pipeline

from dpskl import DPHuberSVC, DPLinearSVC, DPLogisticRegression
from dpskl.dummy import PrivateMajority
from dpskl.model_selection import BudgetedSearchCV, PrivateSearchCV
from dpskl.preprocessing import PublicScaler
from dpskl.solvers import solver_names

pytest.importorskip("sklearn.callback", reason="scikit-learn has no callbacks before 1.9")

X = np.random.default_rng(2).normal(size=(150, 3))
y = np.arange(150) % 2


class Witness:
    """A callback that asks for everything there is, and keeps what it gets."""

    def __init__(self):
        self.seen = []

    def setup(self, estimator, context):
        self.seen.append(("setup",))

    def teardown(self, estimator, context):
        self.seen.append(("teardown",))

    def _note(self, event, context, X, y, metadata, fitted_estimator):
        self.seen.append((event, context.task_name, context.task_id, context.max_subtasks))
        assert X is None
        assert y is None
        assert metadata is None
        assert fitted_estimator is None
        return True  # asks to stop early

    def on_fit_task_begin(self, estimator, context, *, X=None, y=None, metadata=None, fitted_estimator=None):
        return self._note("begin", context, X, y, metadata, fitted_estimator)

    def on_fit_task_end(self, estimator, context, *, X=None, y=None, metadata=None, fitted_estimator=None):
        return self._note("end", context, X, y, metadata, fitted_estimator)


def pairs():
    for estimator in (DPLogisticRegression, DPHuberSVC, DPLinearSVC):
        for solver in solver_names(estimator()._loss()):
            yield estimator(epsilon=3.0, solver=solver, classes=[0, 1])
    yield PrivateMajority(classes=[0, 1])


@pytest.mark.parametrize("model", list(pairs()), ids=repr)
def test_each_answer_is_told_and_nothing_else(model):
    witness = Witness()
    model.set_callbacks(witness).fit(X, y)
    first, *questions, last = witness.seen[1:-1]
    assert witness.seen[0] == ("setup",)
    assert witness.seen[-1] == ("teardown",)
    assert first[:2] == ("begin", "fit")
    assert last[:2] == ("end", "fit")
    asked = [task for event, name, task, _ in questions if event == "end" and name == "question"]
    assert asked == list(range(len(questions) // 2))
    if model.privacy_guarantee_ is not None and getattr(model, "history_", None) is None:
        planned = sum(part.count for part in model.privacy_guarantee_.parts)
        assert first[3] == len(asked) == planned
    else:
        # how many are asked is decided at run time; tokens, where they were bought, are the most there can be
        assert first[3] is None or len(asked) <= first[3]
        assert len(asked) >= model.n_iter_


@pytest.mark.parametrize("solver", ["whitened_gd", "gd", "objective_perturbation", "privgene", "output_perturbation"])
def test_what_is_told_is_the_same_for_all_data(solver):
    told = []
    for rows, labels in ((X, y), (np.zeros((150, 3)), y[::-1]), (X * 1e6, np.zeros(150, dtype=int))):
        witness = Witness()
        DPLogisticRegression(solver=solver, classes=[0, 1]).set_callbacks(witness).fit(rows, labels)
        told.append(witness.seen)
    assert told[0] == told[1] == told[2]


def test_the_progress_bar_of_scikit_learn_works(capsys):
    pytest.importorskip("rich", reason="scikit-learn draws its progress bars by rich")
    from sklearn.callback import ProgressBar

    model = DPLogisticRegression(classes=[0, 1]).set_callbacks(ProgressBar())
    model.fit(X, y)
    assert "DPLogisticRegression" in capsys.readouterr().out
    assert not any("callback" in name for name in vars(model.release()))


def test_pipelines_and_searches_show_their_parts(capsys):
    pytest.importorskip("rich", reason="scikit-learn draws its progress bars by rich")
    from sklearn.callback import ProgressBar

    def pipeline():
        return make_pipeline(PublicScaler(-5, 5), DPLogisticRegression(classes=[0, 1]))

    grid = {"dplogisticregression__C": [0.1, 1.0]}
    for search in (
        pipeline(),
        BudgetedSearchCV(pipeline(), grid, cv=2),
        PrivateSearchCV(pipeline(), grid, epsilon=3.0),
    ):
        search.set_callbacks(ProgressBar()).fit(X, y)
        assert type(search).__name__ in capsys.readouterr().out


def test_scorers_that_watch_a_fit_get_nothing_to_score():
    callback = pytest.importorskip("sklearn.callback")
    monitor = callback.ScoringMonitor(scoring="accuracy")
    DPLogisticRegression(classes=[0, 1]).set_callbacks(monitor).fit(X, y)
    with pytest.raises(ValueError, match="No scores were computed"):
        monitor.get_logs()
