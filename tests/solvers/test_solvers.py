"""Solvers: every noise that is drawn is what was charged, plans need no data, and the hidden descent's bound."""

import dataclasses
from math import inf, log1p, sqrt

import numpy as np
import pytest
from conftest import RecordingNoise
from sklearn.base import clone
from solver_cases import facts, problem_for

from dpskl.accounting import GaussianCost, PureCost, TokenPool, UnplannedQuestionError, gaussian_delta, gaussian_mu
from dpskl.curator import Curator
from dpskl.mechanisms.gradient import GaussianGradient
from dpskl.mechanisms.hidden_descent import HiddenDescent, hidden_amplification
from dpskl.records.losses import Hinge, HuberHinge, Logistic
from dpskl.solvers import (
    ExponentialMechanism,
    GradientDescent,
    ObjectivePerturbation,
    make_solver,
    solver_names,
)

SOLVERS = [
    GradientDescent(max_iter=7),
    GradientDescent(max_iter=7, iterate="last", step_size=0.5),
    GradientDescent(max_iter=7, iterate="last", momentum=0.5, projection_radius=1.0),
    ObjectivePerturbation(),
]


@pytest.mark.parametrize("neighbours", ["add_remove", "replace_one"])
@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("delta", [0, 1e-6])
@pytest.mark.parametrize("solver", SOLVERS, ids=repr)
def test_every_draw_is_what_was_charged(solver, delta, n_classes, neighbours):
    """The ledger of draws: kind, scale and number, against sensitivities that are computed here by hand."""
    public = facts(n_classes=n_classes, neighbours=neighbours)
    if delta == 0 and solver.name == "gd":
        with pytest.raises(ValueError, match="delta=0"):
            solver.plan(public, 1.0, delta)
        return
    plan = solver.plan(public, 1.0, delta)
    noise = RecordingNoise()
    weights = solver.run(Curator(problem_for(public, solver), plan.open_budget(), noise), plan).weights
    assert weights.shape == ((5,) if n_classes == 2 else (5, 3))
    changed = 1 if neighbours == "add_remove" else 2
    row = sqrt(1 + 0.3**2)
    if solver.name == "gd":
        largest = row * (1 if n_classes == 2 else sqrt(2))
        kinds, scales = zip(*noise.draws, strict=True)
        assert set(kinds) == {"normal"}
        assert len(scales) == 7
        assert len(set(scales)) == 1
        n_weights = 5 if n_classes == 2 else 15
        share = min(1, max(1 / 3, gaussian_mu(1.0, 1e-6) * 500 / (changed * n_weights) / 40))
        mu_step = changed * largest * share / scales[0]
        ((question, count),) = plan.questions
        if isinstance(question, HiddenDescent):
            ridge, smoothness, step = 1.0, 500 * 0.25 * row**2, 0.5 / 500
            c = max(abs(1 - step * ridge), abs(1 - step * (ridge + smoothness)))
            mu = mu_step * sqrt((1 - c**7) / (1 + c**7) * (1 + c) / (1 - c))
        else:
            assert count == 7
            mu = mu_step * sqrt(7)
        assert gaussian_delta(mu, 1.0) == pytest.approx(1e-6, rel=1e-4)
        assert plan.cost.epsilon(1e-6) <= 1.0
    else:
        n_outputs = 1 if n_classes == 2 else 3
        shift = log1p(0.25 * row**2 / plan.ridge)
        assert len(noise.draws) == 2 * n_outputs
        kind = "gamma" if delta == 0 else "normal"
        assert {k for k, _ in noise.draws} == {kind}
        linear, output = noise.draws[0][1], noise.draws[1][1]
        assert noise.draws == [(kind, linear), (kind, output)] * n_outputs
        t, m = row / linear, 2 * plan.questions[0][0].tolerance / plan.ridge / output
        if delta == 0:
            assert n_outputs * (changed * t + shift + m) == pytest.approx(1.0, rel=1e-9)
        elif neighbours == "add_remove":
            mu = sqrt(n_outputs * (t * t + m * m))
            assert gaussian_delta(mu, 1.0 - n_outputs * shift) == pytest.approx(1e-6, rel=1e-4)
        else:
            e = 1.0 / n_outputs - shift
            stated = np.exp(shift) * gaussian_delta(2 * sqrt(t * t + m * m), e)
            assert stated == pytest.approx(1e-6 / n_outputs, rel=1e-4)


def test_plans_are_pure_functions_of_public_facts():
    chains = [ExponentialMechanism(sampler) for sampler in ("langevin", "proximal", "rejection")]
    for solver in [*SOLVERS, *chains, ExponentialMechanism("mala", certified=False)]:
        assert solver.plan(facts(), 1.0, 1e-6) == clone(solver).plan(facts(), 1.0, 1e-6)


def test_a_curator_answers_planned_questions_only():
    question = GaussianGradient(1.0, 0.5, "add_remove", 500, 4)
    noise = RecordingNoise()
    curator = Curator(problem_for(facts(), SOLVERS[0]), TokenPool([(question.cost, 2)]), noise)
    for _ in range(2):
        curator.ask(question, np.zeros(5))
    with pytest.raises(UnplannedQuestionError):
        curator.ask(question, np.zeros(5))
    dearer = GaussianGradient(1.0, 0.6, "add_remove", 500, 4)
    with pytest.raises(UnplannedQuestionError):
        curator.ask(dearer, np.zeros(5))
    assert len(noise.draws) == 2  # a refused question draws nothing
    assert not [name for name in vars(curator) if not name.startswith("_Curator__")]


def test_a_curator_refuses_a_plan_for_other_data():
    noise = RecordingNoise()
    for size in ((499, 4), (500, 3)):
        question = GaussianGradient(1.0, 0.5, "add_remove", *size)
        curator = Curator(problem_for(facts(), SOLVERS[0]), TokenPool([(question.cost, 1)]), noise)
        with pytest.raises(UnplannedQuestionError, match="size"):
            curator.ask(question, np.zeros(5))
    assert noise.draws == []


def test_hidden_descent_refuses_to_clip_several_outputs():
    public = facts(n_classes=3, C=0.01)
    solver = GradientDescent(max_iter=5, iterate="last", step_size=0.5, clip_norm=10.0)
    ((question, _),) = solver.plan(public, 1.0, 1e-6).questions
    with pytest.raises(ValueError, match="joint gradient"):
        dataclasses.replace(question, clip_norm=0.1).release(problem_for(public, solver), RecordingNoise())


def test_token_pools_compose_like_their_tokens():
    pool = TokenPool([(GaussianCost(0.3), 4), (GaussianCost(0.8), 1)])
    assert pool.cost.mu == pytest.approx(1.0)
    assert pool.remaining(PureCost(1.0)) == 0


# -- the last iterate ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("L", "sigma", "step", "ridge", "smoothness", "T", "expected"),
    [
        (1, 10, 0.001, 45, 1000, 100, 0.652560318),
        (1, 10, 0.001, 45, 1000, 10**6, 0.659123998),
        (1, 5, 0.01, 1, 100, 50, 1.39963053),
        (1, 20, 0.1, 2, 15, 30, 0.149814424),
    ],
)
def test_hidden_amplification_reference_values(L, sigma, step, ridge, smoothness, T, expected):
    assert L / sigma * hidden_amplification(step, ridge, smoothness, T) == pytest.approx(expected, rel=1e-8)


def test_hidden_amplification_edges():
    assert hidden_amplification(0.1, 0.0, 1.0, 10) == inf  # no ridge, no contraction
    assert hidden_amplification(2.0, 0.5, 1.0, 10) == inf  # c >= 1: the steps are too long
    assert hidden_amplification(1.0, 1.0, 0.0, 10) == 1.0  # c = 0: the last step forgets all others
    assert hidden_amplification(1e-9, 1e-3, 1.0, 100) == pytest.approx(10, rel=1e-6)
    for T in (1, 2, 50):
        assert hidden_amplification(0.01, 3.0, 10.0, T) <= sqrt(T) * (1 + 1e-12)


def last_iterate_law(x, loss, ridge, step, sigma, T, grid):
    """Law of the last of T noisy steps in one dimension, by repeated quadrature on a grid."""
    mean = grid - step * (ridge * grid + (x * loss.slope(np.multiply.outer(grid, x))).sum(axis=1))
    width, sd = grid[1] - grid[0], step * sigma
    kernel = np.exp(-0.5 * ((grid[:, None] - mean[None, :]) / sd) ** 2) * width / (sd * sqrt(2 * np.pi))
    start = -step * (x * loss.slope(np.zeros(len(x)))).sum()
    law = np.exp(-0.5 * ((grid - start) / sd) ** 2) * width / (sd * sqrt(2 * np.pi))
    for _ in range(T - 1):
        law = kernel @ law
    return law


@pytest.mark.parametrize("loss", [Logistic(), HuberHinge(0.5)], ids=repr)
def test_exact_last_iterate_stays_below_the_bound(loss):
    """T = 12 steps, random data sets, one record more; where curvature is small the bound is nearly reached."""
    rng = np.random.default_rng(4)
    worst, T = 0.0, 12
    for trial in range(8):
        rest = rng.uniform(-1, 1, 6) if trial % 2 else np.full(6, -1.0) * 1e-3
        record = 1.0 if trial % 2 == 0 else rng.choice([-1, 1])
        ridge, sigma = 2.0, 2.5
        step = 0.12
        grid = np.linspace(-6, 6, 1500) * step * sigma * 2.5
        p = last_iterate_law(np.append(rest, record), loss, ridge, step, sigma, T, grid)
        q = last_iterate_law(rest, loss, ridge, step, sigma, T, grid)
        assert p.sum() == pytest.approx(1, abs=1e-6)
        mu = hidden_amplification(step, ridge, 7 * loss.curvature_bound, T) / sigma
        for epsilon in (0.0, 0.3, 1.0, 2.0):
            for a, b in ((p, q), (q, p)):
                exact = np.maximum(a - np.exp(epsilon) * b, 0).sum()
                bound = gaussian_delta(mu, epsilon)
                assert exact <= bound + 1e-6
                if bound > 1e-4:
                    worst = max(worst, exact / bound)
    assert worst > 0.3


def test_the_last_iterate_bound_is_used_where_it_holds_and_only_there():
    hidden = GradientDescent(max_iter=50, iterate="last", step_size=1.0)
    public = facts(C=1e-2)
    question = hidden.plan(public, 1.0, 1e-6).questions[0][0]
    assert isinstance(question, HiddenDescent)
    composed = GradientDescent(max_iter=50, step_size=1.0, momentum=0.0).plan(public, 1.0, 1e-6).questions[0][0]
    assert isinstance(composed, GaussianGradient)
    assert question.noise_scale < 0.8 * composed.noise_scale
    for solver, changes in [
        (GradientDescent(max_iter=50, iterate="last", step_size=1.0, momentum=0.1), {}),
        (GradientDescent(max_iter=50, step_size=1.0, momentum=0.0), {}),  # an average is not covered
        (hidden, {"loss": Hinge()}),  # not smooth
        (hidden, {"n_classes": 3}),  # clipping acts on a joint gradient
        (GradientDescent(max_iter=50, iterate="last", step_size=9.0), {}),  # no contraction
    ]:
        plan = solver.plan(facts(C=1e-2, **changes), 1.0, 1e-6)
        assert isinstance(plan.questions[0][0], GaussianGradient)
    unclipped = GradientDescent(max_iter=50, iterate="last", step_size=0.5, clip_norm=10.0)
    assert isinstance(unclipped.plan(facts(C=1e-2, n_classes=3), 1.0, 1e-6).questions[0][0], HiddenDescent)


@pytest.mark.parametrize("n_classes", [2, 3])
def test_hidden_descent_without_noise_is_gradient_descent(n_classes):
    public = facts(n_classes=n_classes, C=0.01)
    solver = GradientDescent(max_iter=40, iterate="last", step_size=0.5, clip_norm=None if n_classes == 2 else 10.0)
    plan = solver.plan(public, inf, 1e-6)
    assert isinstance(plan.questions[0][0], HiddenDescent)
    problem = problem_for(public, solver)
    got = solver.run(Curator(problem, plan.open_budget(), RecordingNoise()), plan).weights
    w, clip_norm = problem.zeros(), plan.questions[0][0].clip_norm
    for _ in range(40):
        w = w - 0.5 / 500 * (problem.gradient_sum(w, clip_norm) + 100 * w)
    np.testing.assert_allclose(got, w, atol=1e-9)


# -- registry -------------------------------------------------------------------------------------------


def test_registry():
    assert set(solver_names()) >= {"gd", "objective_perturbation"}
    smooth_only = {"exponential_mechanism", "objective_perturbation"}
    assert {"gd", "privgene"} <= set(solver_names(Hinge())) <= set(solver_names()) - smooth_only
    for name in solver_names(Logistic()):
        assert make_solver(name, Logistic()).name == name
    needy = set(solver_names()) - set(solver_names(Logistic()))
    assert needy == {"adadps", "pda_dpmd"}
    for name in needy:
        with pytest.raises(
            ValueError, match=f"solver='{name}' needs public .*public_data=.*choose solver='whitened_gd'"
        ):
            make_solver(name, Logistic())
    for loss in (Logistic(), HuberHinge(), Hinge()):
        assert make_solver("auto", loss).name == "whitened_gd"
        pure = "output_perturbation" if isinstance(loss, Hinge) else "objective_perturbation"
        assert make_solver("auto", loss, delta=0).name == pure
    configured = GradientDescent(max_iter=3)
    assert make_solver(configured, Logistic()) is configured
    with pytest.raises(ValueError, match="'gd'"):
        make_solver("gradient", Logistic())


@pytest.mark.parametrize("name", solver_names(Logistic()))
def test_the_guarantee_repeats_the_numbers_of_its_mechanisms(name):
    plan = make_solver(name, Logistic()).plan(facts(), 1.0, 1e-6)
    for (mechanism, count), part in zip(plan.questions, plan.describe(), strict=True):
        assert (part.sensitivity, part.noise) == (mechanism.sensitivity, mechanism.noise_scale)
        assert (part.cost, part.count, part.theorem) == (mechanism.cost, count, mechanism.theorem)
        assert part.mechanism.startswith(mechanism.name)
        assert ("at run time" in part.mechanism) == (plan.budget is not None)
