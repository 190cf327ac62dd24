"""Solvers that ask the data for their steps: without noise they are the methods of the textbooks."""

from math import inf

import numpy as np
import pytest
from line_search_cases import EXPECTED_WARNINGS, facts, problem_for, run
from scipy.optimize import minimize

from dpskl import DPLinearSVC, NoPrivacyWarning
from dpskl.mechanisms.gradient import GaussianGradient
from dpskl.mechanisms.noise import SeededNoise
from dpskl.mechanisms.step_selection import StepSelection
from dpskl.solvers.adaptive import AdaptiveGD
from dpskl.solvers.line_search import BacktrackingGD, BacktrackingSGD

pytestmark = EXPECTED_WARNINGS


def objective(problem, ridge, weights, cap=inf):
    return np.minimum(problem.losses(problem.scores(weights)), cap).sum() + ridge / 2 * (weights**2).sum()


def test_without_noise_blgd_is_plain_backtracking():
    """The method of a textbook, with its steps, on data where clipping does nothing."""
    alpha, beta, max_it, tau, psi, phi_max = 0.3, 0.7, 15, 3, 0.8, 1.5
    solver = BacktrackingGD(
        alpha=alpha, beta=beta, max_it=max_it, initial_step=40.0, clip_norm=1e3, objective_clip=1e3, tau=tau, psi=psi,
        phi_max=phi_max, momentum=0.0, n_updates=40, iterate="last",
    )  # fmt: skip
    public = facts(C=0.05)
    _, _, outcome = run(solver, public, inf)
    problem = problem_for(public, solver)
    weights, largest, window, steps = np.zeros(4), 40.0, [], []
    while len(steps) < 40:
        total = problem.gradient_sum(weights) + weights / 0.05
        direction = total / 400
        for power in range(max_it):
            step = largest * beta**power
            decrease = objective(problem, 20, weights) - objective(problem, 20, weights - step * direction)
            if decrease >= alpha * step * direction @ total:
                break
        else:
            largest *= psi
            continue
        weights = weights - step * direction
        steps.append(step)
        window.append(step)
        if len(window) == tau:
            largest, window = min(phi_max * max(window), 40.0), []
        if np.linalg.norm(direction) < 1e-4:
            break  # from here on float32 decides
    assert len(steps) >= 6
    assert outcome.history["step_size"][: len(steps)] == pytest.approx(steps, rel=1e-12)
    _, _, short = run(solver.set_params(n_updates=len(steps)), public, inf)
    np.testing.assert_allclose(short.weights, weights, rtol=0, atol=1e-6)


@pytest.mark.parametrize("momentum", [0.0, 0.9])
@pytest.mark.parametrize("n_classes", [2, 3])
def test_without_noise_armijo_holds_at_every_step_and_at_no_longer_one(n_classes, momentum):
    solver = BacktrackingGD(n_updates=25, momentum=momentum, alpha=0.4)
    public = facts(n_classes=n_classes)
    plan, curator, outcome = run(solver, public, inf)
    problem = problem_for(public, solver)
    search, slack = plan.questions[1][0], 400 * 4e-6  # of float32
    clip = search.objective_clip
    gradient, found, passed = None, 0, 0
    for mechanism, arguments, answer, _ in curator.asked:
        if isinstance(mechanism, GaussianGradient):
            gradient = answer + plan.ridge * arguments[0]
            continue
        weights, direction, steps, _ = arguments
        wanted = 0.4 * steps * (direction * gradient).sum()
        before = objective(problem, plan.ridge, weights, clip)
        brought = [before - objective(problem, plan.ridge, weights - step * direction, clip) for step in steps]
        good = brought - wanted
        if answer is not None:
            assert good[answer] >= -slack
            assert outcome.history["step_size"][found] == steps[answer]
            found += 1
        assert (good[:answer] < slack).all()
        passed += answer is not None
    assert passed == outcome.n_iter > 3


def test_agd_without_noise_takes_the_best_of_its_grid():
    solver = AdaptiveGD(n_updates=12, n_candidates=15, max_step=2.0, iterate="last")
    public = facts()
    plan, curator, outcome = run(solver, public, inf)
    problem = problem_for(public, solver)
    clip, moved = plan.questions[1][0].objective_clip, 0
    for mechanism, arguments, answer, _ in curator.asked:
        if isinstance(mechanism, StepSelection):
            weights, direction, steps, _ = arguments
            assert np.linalg.norm(direction) == pytest.approx(1)
            np.testing.assert_allclose(steps, np.linspace(0, steps[-1], 16), rtol=1e-12)
            totals = [objective(problem, plan.ridge, weights - step * direction, clip) for step in steps]
            assert totals[answer] <= min(totals) + 400 * 2e-6
            if answer > 0:
                assert outcome.history["step_size"][moved] == steps[answer]
                last = weights - steps[answer] * direction
                moved += 1
    assert moved == outcome.n_iter > 3
    np.testing.assert_array_equal(outcome.weights, last)


def test_agd_does_not_stall_at_the_kinks_of_the_hinge():
    """On rare positives among indicators, descent along subgradients stalls 11 % above the least hinge loss."""
    rng = np.random.default_rng(0)
    levels = rng.choice(8, size=(2000, 4), p=np.array([8, 4, 2, 2, 1, 1, 1, 1]) / 20)
    X = np.eye(8)[levels].reshape(2000, 32)
    scores = 1.5 * X @ rng.normal(size=32) - 3
    y = (rng.random(2000) < 1 / (1 + np.exp(-scores))).astype(int)

    def mean_loss(solver):
        model = DPLinearSVC(inf, 1e-6, solver=solver, C=10, classes=[0, 1])
        with pytest.warns(NoPrivacyWarning):
            model.fit(X, y)
        return np.maximum(0, 1 - (2 * y - 1) * model.decision_function(X)).mean()

    assert mean_loss("agd") < 1.05 * mean_loss("output_perturbation")


@pytest.mark.parametrize("epsilon", [1e8, inf])
@pytest.mark.parametrize(
    ("make", "slack"),
    [
        (lambda: BacktrackingGD(n_updates=150, clip_norm=10.0, objective_clip=50.0, iterate="last"), 0.002),
        (lambda: AdaptiveGD(n_updates=80, clip_norm=10.0, objective_clip=50.0, max_step=0.5), 0.02),
        (lambda: BacktrackingSGD(n_updates=60, q=1, clip_norm=10.0, objective_clip=50.0), 0.02),
    ],
    ids=["blgd", "agd", "blsgd"],
)
def test_large_epsilons_lead_to_the_answer_without_noise(make, slack, epsilon):
    public, solver = facts(C=0.1), make()
    problem = problem_for(public, solver)
    best = minimize(lambda w: objective(problem, 10, w), np.zeros(4), tol=1e-10).fun
    start = objective(problem, 10, np.zeros(4))
    _, _, outcome = run(solver, public, epsilon, noise=SeededNoise(0))
    assert objective(problem, 10, outcome.weights) <= best + slack * (start - best)


@pytest.mark.parametrize("solver", [BacktrackingGD(n_updates=30), AdaptiveGD(n_updates=30)], ids=repr)
def test_levels_without_noise_stay_infinite_and_gradients_finite(solver):
    """A second measurement without noise is the first one again; its weights are infinite."""
    _, curator, outcome = run(solver, facts(C=1e-3), inf)
    repeated = sum(isinstance(question, GaussianGradient) for question, *_ in curator.asked)
    assert repeated > outcome.n_iter  # some searches failed
    assert np.isfinite(outcome.weights).all()
    for _, arguments, _, _ in curator.asked:
        assert all(np.isfinite(argument).all() for argument in arguments)
