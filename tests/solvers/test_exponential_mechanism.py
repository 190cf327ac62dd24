"""The exponential mechanism: limits without noise, forms of data, what is told and what is refused."""

import warnings
from math import inf, sqrt

import numpy as np
import pytest
import scipy.sparse as sp
from exponential_cases import LANGEVIN, MALA, NEIGHBOURS, PROXIMAL, REJECTION, SAMPLERS, facts, problem, question
from scipy.optimize import minimize

from dpskl import DPHuberSVC, DPLinearSVC, DPLogisticRegression, PrivacyAccountant
from dpskl.accounting import GaussianCost
from dpskl.curator import Curator
from dpskl.mechanisms.noise import SeededNoise
from dpskl.model_selection import PrivateSearchCV
from dpskl.records.losses import Logistic, Softmax
from dpskl.records.problem import Problem
from dpskl.solvers import ExponentialMechanism

# -- limits -----------------------------------------------------------------------------------------------


def data_for_fit(n=200, d=3, n_classes=2, seed=0):
    rng = np.random.default_rng(seed)
    y = rng.integers(0, n_classes, n)
    y[:n_classes] = np.arange(n_classes)
    centres = rng.normal(size=(n_classes, d))
    return 0.3 * rng.normal(size=(n, d)) + centres[y] / np.linalg.norm(centres[y], axis=1, keepdims=True), y


def quiet(cls, parameters, n_classes=2, seed=0, **changes):
    settings = {"data_norm": 1.5, "classes": list(range(n_classes)), "random_state": seed}
    return cls(solver=ExponentialMechanism(**parameters), **{**settings, **changes})


def fitted(model, X, y):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return model.fit(X, y)


@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("cls", [DPLogisticRegression, DPHuberSVC])
@pytest.mark.parametrize("parameters", [{"max_iter": 4000}, PROXIMAL, REJECTION, MALA], ids=str)
def test_without_noise_it_is_the_ridge_minimiser(parameters, cls, n_classes):
    X, y = data_for_fit(n_classes=n_classes)
    model = fitted(quiet(cls, parameters, n_classes, epsilon=inf, C=0.1), X, y)
    assert model.privacy_guarantee_ is None
    loss = model.solver_.problem_loss(facts(loss=cls()._loss(), n_classes=n_classes))
    n_outputs = 1 if n_classes == 2 else 3
    rows = model.solver_.rows
    data = Problem(X, loss.encode(y, n_classes), loss, data_norm=1.5, intercept=0.45, n_outputs=n_outputs, rows=rows)
    shape = data.zeros().shape

    def energy(flat):
        w = flat.reshape(shape)
        gradient = data.gradient_sum(w) + w / model.effective_C_
        return data.losses(data.scores(w)).sum() + (w**2).sum() / 2 / model.effective_C_, gradient.ravel()

    best = minimize(energy, np.zeros(shape).ravel(), jac=True, method="BFGS", options={"gtol": 1e-7}).x.reshape(shape)
    got = np.vstack([model.coef_.T, model.intercept_ / 0.45]).reshape(shape)
    np.testing.assert_allclose(got, best, atol=1e-4)


@pytest.mark.parametrize("parameters", [{"max_iter": 1000}, MALA], ids=str)
def test_a_huge_budget_comes_close_to_no_noise(parameters):
    X, y = data_for_fit()
    parameters = {**parameters, "ridge": 10.0}
    noisy, free = (fitted(quiet(DPLogisticRegression, parameters, epsilon=e), X, y) for e in (1e6, inf))
    np.testing.assert_allclose(noisy.coef_, free.coef_, atol=2e-2)


# -- forms of data, and what is told ----------------------------------------------------------------------


@pytest.mark.parametrize("fit_intercept", [True, False])
@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("parameters", SAMPLERS, ids=str)
def test_dense_sparse_and_read_only_agree(parameters, n_classes, fit_intercept):
    X, y = data_for_fit(60, n_classes=n_classes)
    X[:, 1] = 0.5  # a constant column
    X = X.astype(np.float32).astype(np.float64)
    frozen = X.copy()
    frozen.flags.writeable = False
    results = []
    for form in (frozen, np.asfortranarray(X), sp.csr_matrix(X), X.astype(np.float32)):
        model = quiet(DPLogisticRegression, {**parameters, "ridge": 20.0}, n_classes, fit_intercept=fit_intercept)
        results.append(fitted(model, form, y).coef_)
    assert np.isfinite(results[0]).all()
    assert results[0].shape == ((1, 3) if n_classes == 2 else (3, 3))
    for other in results[1:]:
        np.testing.assert_allclose(other, results[0], atol=1e-5)


@pytest.mark.parametrize("parameters", SAMPLERS, ids=str)
@pytest.mark.parametrize("neighbours", NEIGHBOURS)
def test_two_rows_and_one_class(parameters, neighbours):
    X = np.array([[0.0, 0.0], [0.0, 0.0]])
    model = quiet(DPHuberSVC, parameters, neighbours=neighbours, epsilon=0.5)
    assert np.isfinite(fitted(model, X, [1, 1]).coef_).all()
    assert model.privacy_guarantee_.epsilon_at(1e-6) <= 0.5


@pytest.mark.parametrize("parameters", SAMPLERS, ids=str)
@pytest.mark.parametrize("scale", [1e-30, 1e30])
def test_plans_scale_with_the_rows(parameters, scale):
    """Rows and their bound scaled together give weights scaled back; only the penalty 1/C has a scale of its own."""
    weak = {"C": 1e300, "data_norm": 1.0}
    plain = question(parameters, **weak)
    scaled = question(parameters, **{**weak, "data_norm": scale})
    assert scaled.ridge == pytest.approx(scale**2 * plain.ridge, rel=1e-5)
    if hasattr(plain, "inverse_temperature"):
        assert scaled.inverse_temperature == pytest.approx(plain.inverse_temperature, rel=1e-5)


def test_pure_privacy_by_rejection_only():
    X, y = data_for_fit()
    model = fitted(quiet(DPLogisticRegression, REJECTION, delta=0), X, y)
    guarantee = model.privacy_guarantee_
    assert guarantee.delta == 0
    assert guarantee.epsilon_at(0) == pytest.approx(1.0, rel=1e-9)
    assert "keeps 0.02" in str(guarantee)
    accountant = PrivacyAccountant(1.0, delta=0)
    fitted(quiet(DPLogisticRegression, REJECTION, delta=0, accountant=accountant), X, y)
    assert accountant.spent().epsilon == pytest.approx(1.0)
    for parameters in (LANGEVIN, PROXIMAL, MALA):
        with pytest.raises(ValueError, match=r"delta=0.*sampler='rejection'.*objective_perturbation"):
            fitted(quiet(DPLogisticRegression, parameters, delta=0), X, y)


def test_mala_is_conditional_in_guarantee_and_ledger():
    X, y = data_for_fit()
    accountant = PrivacyAccountant()
    for parameters in (MALA, LANGEVIN):
        model = fitted(quiet(DPLogisticRegression, parameters, accountant=accountant), X, y)
        is_conditional = parameters is MALA
        assert ("NOT PROVED, conditional on exact sampling" in str(model.privacy_guarantee_)) == is_conditional
        assert ("conditional on exact sampling" in model.privacy_guarantee_.to_dict()["conditions"]) == is_conditional
        assert ("conditional on exact sampling" in accountant.entries()[-1].solver) == is_conditional
    assert "conditional on exact sampling" in str(accountant.report())


def test_a_search_with_a_conditional_candidate_says_so():
    X, y = data_for_fit()
    for candidates in ([ExponentialMechanism()], [ExponentialMechanism(), ExponentialMechanism(**MALA)]):
        accountant = PrivacyAccountant()
        search = PrivateSearchCV(
            quiet(DPLogisticRegression, {}, accountant=accountant, seed=None),
            {"solver": candidates},
            mean_trials=2,
            epsilon=2.0,
        )
        fitted(search, X, y)
        is_conditional = len(candidates) == 2
        assert ("conditional on exact sampling" in search.privacy_guarantee_.conditions) == is_conditional
        assert ("conditional on exact sampling" in str(accountant.report())) == is_conditional


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"sampler": "gibbs"}, "sampler='gibbs'.*'langevin', 'proximal', 'rejection', 'mala'"),
        ({"sampler": "mala"}, "certified=True with sampler='mala'.*certified=False"),
        ({"certified": False}, "certified=False with sampler='langevin'.*leave certified=True"),
        ({"certified": 0}, "certified=0 must be True or False"),
        ({"radius": -1.0}, "radius=-1.0 must be None or a positive"),
        ({"ridge": inf}, "ridge=inf must be None or a positive"),
        ({"max_iter": 0}, "max_iter=0 must be None or a whole number"),
        ({"max_iter": 2.5}, "max_iter=2.5 must be None or a whole number"),
        ({**PROXIMAL, "radius": 1.0}, "radius=1.0.*has no ball.*leave radius=None"),
        ({**MALA, "radius": 1.0}, "radius=1.0.*has no ball"),
        ({**REJECTION, "max_iter": 5}, "max_iter=5.*leave max_iter=None"),
        ({**PROXIMAL, "max_iter": 5}, "needs .* steps.*max_iter=5 allows fewer.*sampler='langevin'"),
        ({**REJECTION, "ridge": 1.0}, "ridge=1 and radius=5 promise that .* of the proposals.*raise ridge"),
    ],
)
def test_refusals_name_parameter_value_and_remedy(parameters, message):
    X, y = data_for_fit(400)
    accountant = PrivacyAccountant()
    with pytest.raises(ValueError, match=message):
        fitted(quiet(DPLogisticRegression, parameters, data_norm=1.0, accountant=accountant), X, y)
    assert len(accountant) == 0


def test_budgets_that_rounding_would_blur_are_refused():
    for parameters in (REJECTION, {**PROXIMAL, "max_iter": 10**14}):
        with pytest.raises(ValueError, match=r"epsilon=1e\+13.*rounding.*smaller epsilon"):
            question(parameters, epsilon=1e13)
    with pytest.raises(ValueError, match=r"Hessian of 3000 rows.*langevin"):
        question(MALA, n_features=3000)


def test_the_hinge_is_refused_in_words():
    with pytest.raises(ValueError, match=r"kink.*choose solver='whitened_gd' or 'gd'"):
        DPLinearSVC(solver="exponential_mechanism").fit([[0.0], [1.0]], [0, 1])


def test_a_plan_for_other_data_is_refused():
    mechanism = question(REJECTION)
    plan = ExponentialMechanism("rejection").plan(facts(), 1.0, 0.0)
    with pytest.raises(RuntimeError, match="size"):
        Curator(problem(41), plan.open_budget(), SeededNoise(0)).ask(mechanism)


def test_zero_temperature_costs_everything():
    for parameters in SAMPLERS:
        mechanism = question(parameters, epsilon=inf)
        assert mechanism.cost == GaussianCost(inf)
        assert mechanism.describe(1).noise == 0


def test_langevin_takes_the_joint_loss_and_never_clips():
    solver = ExponentialMechanism()
    assert isinstance(solver.problem_loss(facts(n_classes=3)), Softmax)
    mechanism = question(LANGEVIN, n_classes=3)
    assert mechanism.clip_norm == pytest.approx(sqrt(2))
    assert isinstance(ExponentialMechanism("rejection").problem_loss(facts(n_classes=3)), Logistic)
    confined = question({"radius": 0.1})
    assert np.linalg.norm(confined.release(problem(), SeededNoise(0))) <= 0.1 * (1 + 1e-5)
