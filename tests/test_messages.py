"""Errors name the parameter, the value and what to do; one line for each that once named something else."""

import numpy as np
import pytest
from sklearn.model_selection import GridSearchCV

from dpskl import DPHuberSVC, DPLinearSVC, DPLogisticRegression, PrivacyAccountant
from dpskl.dummy import PrivateMajority
from dpskl.solvers import BacktrackingSGD, GradientDescent, solver_names

X, y = np.zeros((60, 2)), np.arange(60) % 2
ESTIMATORS = [DPLogisticRegression, DPHuberSVC, DPLinearSVC, PrivateMajority]


@pytest.mark.parametrize("estimator", ESTIMATORS)
@pytest.mark.parametrize("name", ["sample_weight", "groups", "coef_init"])
def test_arguments_of_fit_that_are_not_taken_are_named_with_the_class_of_the_user(estimator, name):
    accountant = PrivacyAccountant()
    with pytest.raises(TypeError, match=rf"{estimator.__name__}\.fit got {name}=: ") as error:
        estimator(classes=[0, 1], accountant=accountant).fit(X, y, **{name: np.ones(60)})
    assert accountant.entries() == ()
    if name == "sample_weight":
        assert "leave it out" in str(error.value)


@pytest.mark.parametrize("solver", [*solver_names(), "auto"])
def test_parameters_of_a_solver_that_is_given_by_name(solver):
    model = DPLogisticRegression(solver=solver, classes=[0, 1])
    with pytest.raises(ValueError, match=rf"solver__max_iter=3 cannot be set, since solver='{solver}' is a name.*\(\)"):
        model.set_params(solver__max_iter=3)
    with pytest.raises(ValueError, match="is a name"):
        model.set_params(solver="gd", solver__max_iter=3)


def test_parameters_of_a_solver_that_is_given_as_an_instance():
    model = DPLogisticRegression(solver=GradientDescent(), classes=[0, 1]).set_params(solver__max_iter=3)
    assert model.solver.max_iter == 3
    assert model.set_params(solver=BacktrackingSGD(), solver__q=0.5).solver.q == 0.5
    search = GridSearchCV(model, {"solver": [GradientDescent()], "solver__max_iter": [2, 4]}, cv=2, error_score="raise")
    assert search.fit(X + np.eye(60, 2), y).best_params_["solver__max_iter"] in (2, 4)


def test_an_unknown_solver_in_set_params_is_named_in_fit():
    with pytest.raises(ValueError, match="is a name"):
        DPLogisticRegression(solver="no such").set_params(solver__max_iter=3)


@pytest.mark.parametrize("q", [1.5, 0, -1, True, "half"])
def test_the_rate_of_samples_may_be_one_and_the_message_says_so(q):
    with pytest.raises(ValueError, match=rf"q={q!r} must be a number in \(0, 1\]"):
        DPLogisticRegression(solver=BacktrackingSGD(q=q), classes=[0, 1]).plan(100, 2)
    DPLogisticRegression(solver=BacktrackingSGD(q=1), classes=[0, 1]).plan(100, 2)


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_warnings_point_at_the_line_of_the_user(estimator):
    with pytest.warns(UserWarning, match="classes=None was read from y") as told:
        estimator().fit(X, y)
    assert {warning.filename for warning in told} == {__file__}
