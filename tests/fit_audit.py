"""Audit of a fit: what its questions cost, from the draws they really made and from public numbers alone.

No sensitivity, noise scale, cost or smoothness of a plan is read. Of a question only its public parameters are (clip
norms, steps, rates, ridge), and how far a record can move its answer is worked out here.
"""

from contextlib import ExitStack
from dataclasses import dataclass
from math import exp, hypot, log, log1p, sqrt
from typing import Any
from unittest.mock import patch

import numpy as np
from conftest import Tape
from prefix_sums_by_force import largest_move, strategy
from sklearn.base import clone

from dpskl import DPHuberSVC, DPLinearSVC, DPLogisticRegression
from dpskl.accounting import (
    AboveThresholdCost,
    ApproximateCost,
    BoundedRangeCost,
    GaussianCost,
    PureCost,
    SampledGaussianCost,
    SampledPureCost,
    compose,
    gaussian_delta,
)
from dpskl.curator import Curator
from dpskl.solvers import (
    FTRL,
    SGD,
    AdaDPS,
    AdaGrad,
    Adam,
    AdaptiveGD,
    BacktrackingGD,
    BacktrackingSGD,
    DelayedPreconditioner,
    ExponentialMechanism,
    FrankWolfe,
    GradientDescent,
    Newton,
    ObjectivePerturbation,
    OutputPerturbation,
    PrivGene,
    PublicMirrorDescent,
    RMSProp,
    Solver,
    WhitenedGD,
)

N, D, NORM = 60, 3, 1.5
P = D + 1
ROWS = {
    "clip": NORM * sqrt(1 + 0.3**2),
    "fill": NORM,
    "sphere": NORM,
}  # the longest row, with the intercept of 0.3 data_norm
EPSILON, DELTA = 2.0, 1e-5
RNG = np.random.default_rng(12)
X, Y = RNG.normal(size=(N, D)), RNG.permutation(np.arange(N) % 3)
PUBLIC = RNG.normal(size=(30, D)), np.arange(30) % 2
ESTIMATORS = {"logistic": DPLogisticRegression, "hinge": DPLinearSVC, "huber": DPHuberSVC}


@dataclass
class Question:
    mechanism: Any
    arguments: tuple[Any, ...]
    draws: list[Any]


@dataclass
class Fit:
    """A fitted model, the tape of its noise, and its questions with the draws that each of them made."""

    model: Any
    tape: Tape
    questions: list[Question]
    loss: str
    K: int
    changed: int  # records that differ between neighbours
    delta: float

    @property
    def ridge(self):
        return 1 / self.model.effective_C_

    @property
    def row(self):
        """Norm of the longest row that there can be."""
        return ROWS[self.model.solver_.rows]

    @property
    def joint_slope(self):
        """Largest gradient of a record's loss in its scores: softmax, or a sum over the outputs."""
        return sqrt(2) if self.loss == "logistic" and self.K > 1 else sqrt(self.K)

    @property
    def joint_curvature(self):
        if self.loss == "logistic":
            return 1 / 4 if self.K == 1 else 1 / 2
        return {"huber": 1.0, "hinge": 50.0}[self.loss]  # h = 1/2, and 1/100 in place of the kink

    @property
    def one_curvature(self):
        return {"logistic": 1 / 4, "huber": 1.0}[self.loss]


def fitted(solver, loss, K, neighbours="add_remove", delta=DELTA, C=1.0, changes=None):
    """Fit with noise from a tape; every question to the curator is noted."""
    classes = [0, 1] if K == 1 else [0, 1, 2]
    model = ESTIMATORS[loss](EPSILON, delta, solver=solver, C=C, classes=classes, neighbours=neighbours, data_norm=NORM)
    tape, questions, ask = Tape(3, changes), [], Curator.ask

    def noted(self, mechanism, *arguments):
        first = len(tape.draws)
        answer = ask(self, mechanism, *arguments)
        questions.append(Question(mechanism, arguments, tape.draws[first:]))
        return answer

    with ExitStack() as stack:
        stack.enter_context(patch("dpskl.base.make_noise", lambda state: tape))
        stack.enter_context(patch.object(Curator, "ask", noted))
        model.fit(X, Y % 2 if K == 1 else Y)
    assert sum(len(question.draws) for question in questions) == len(tape.draws)  # no noise outside of questions
    return Fit(model, tape, questions, loss, K, 1 if neighbours == "add_remove" else 2, delta)


# -- the cost of each kind of question, by hand -------------------------------------------------------------


def _expect(draws, *blocks):
    assert [(draw.law, draw.size) for draw in draws] == list(blocks)
    return [draw.scale for draw in draws]


def _gradient(fit, question, draws, weights):
    (scale,) = _expect(draws, ("normal", P * fit.K))
    return GaussianCost(fit.changed * question.clip_norm / scale)


def _whitened(fit, question, draws, *_):
    (scale,) = _expect(draws, ("normal", P * fit.K))
    return GaussianCost(fit.changed / scale)


def _pair(fit, question, draws, *_):
    (scale,) = _expect(draws, ("normal", 2 * P * fit.K))
    return GaussianCost(sqrt(2) * fit.changed / scale)


def _moment(fit, question, draws):
    size = {"full": P * (P + 1) // 2, "arrow": 2 * P - 1, "diagonal": P}[question.part]
    (scale,) = _expect(draws, ("normal", size))
    return GaussianCost(sqrt(fit.changed) * fit.row**2 / scale)


def _hessian(fit, question, draws, *_):
    scales = _expect(draws, *[("normal", P * (P + 1) // 2)] * fit.K)
    assert len(set(scales)) == 1
    return GaussianCost(sqrt(fit.K * fit.changed) * fit.row**2 / scales[0])


def _hidden(fit, question, draws):
    scales = _expect(draws, *[("normal", P * fit.K)] * question.n_steps)
    assert len(set(scales)) == 1
    clip = question.clip_norm if fit.K == 1 else fit.joint_slope * fit.row
    c = max(abs(1 - question.step * (fit.ridge + s)) for s in (0, N * fit.joint_curvature * fit.row**2))
    assert c < 1
    steps = range(question.n_steps)
    kept = sum(c**k for k in steps) / sqrt(sum(c ** (2 * k) for k in steps))  # of a pull that never ceases
    return GaussianCost(fit.changed * clip / scales[0] * kept)


def _range(fit, question, weights, direction, steps, *_):
    moved = fit.joint_slope * fit.row * max(steps) * float(np.linalg.norm(direction))
    return fit.changed * min(question.objective_clip, moved)


def _search(fit, question, draws, *arguments):
    law = {"gaussian": "normal", "laplace": "laplace"}[question.law]
    count = len(arguments[2])
    threshold, query = _expect(draws, (law, 1), (law, count))
    unit = _range(fit, question, *arguments)
    return AboveThresholdCost(question.law, threshold / unit, query / unit, count)


def _step(fit, question, draws, *arguments):
    (scale,) = _expect(draws, ("gumbel", len(arguments[2])))
    return BoundedRangeCost(_range(fit, question, *arguments) / scale)


def _selection(fit, question, draws, n_candidates, size, count):
    """Choices whose scores a record moves by at most ``size * clip`` both ways."""
    if fit.delta == 0:  # permute-and-flip scales unit exponentials itself; see the tests of the mechanism
        _expect(draws, *[("exponential", n_candidates)] * count)
        return compose([(PureCost(question.epsilon), count)])
    (scale,) = _expect(draws, ("gumbel", n_candidates))
    return compose([(BoundedRangeCost(2 * size * question.clip * fit.changed / scale), count)])


def _coordinate(fit, question, draws, weights, step, ridge):
    return _selection(fit, question, draws, 2 * P * fit.K + 1, step, 1)


def _vertex(fit, question, draws, *_):
    return _selection(fit, question, draws, 2 * P * fit.K, 1, 1)


def _population(fit, question, draws, population, ridge):
    flat = population.reshape(len(population), -1)
    radius = np.linalg.norm(flat - flat.mean(axis=0), axis=1).max()
    return _selection(fit, question, draws, len(flat), radius, question.count)


def _objective(fit, question, draws):
    K, law = fit.K, "normal" if fit.delta else "gamma"
    scales = _expect(draws, *[(law, P)] * (2 * K))
    assert scales == scales[:2] * K
    t, m = fit.row / scales[0], 2 * question.tolerance / (fit.ridge * scales[1])
    a = log1p(fit.one_curvature * fit.row**2 / fit.ridge)
    if fit.delta == 0:
        return PureCost(K * (fit.changed * t + a + m))
    if fit.changed == 1:
        return GaussianCost(sqrt(K) * hypot(t, m), shift=K * a)
    e = EPSILON / K - a  # of one output
    through_the_common_data = exp(a) * gaussian_delta(2 * hypot(t, m), e)
    corners = sum(gaussian_delta(hypot(i * t, m), e) for i in (0, 1, 1, 2))
    return ApproximateCost(EPSILON, K * (min(corners, through_the_common_data) if K == 1 else through_the_common_data))


def _output(fit, question, draws):
    training, L, lam = question.training, fit.joint_slope * fit.row, fit.ridge / N
    kind, B = type(training).__name__, fit.joint_curvature * fit.row**2
    order = [("exponential", N)] if kind == "PermutedSGD" else []
    *_, scale = _expect(draws, *order, ("gamma" if fit.delta == 0 else "normal", P * fit.K))
    if kind == "ExactMinimum":
        distance = L / fit.ridge
    elif kind == "FullGradientDescent":
        c = max(abs(1 - training.step * (lam + s)) for s in (0, B))
        distance = training.step * L / N * sum(c**k for k in range(training.n_steps))
    else:
        b, m = training.batch_size, -(-N // training.batch_size)
        distance = L / b * min(1 / (lam * m), training.n_passes / (B + lam))
        if training.step is not None:
            c = max(abs(1 - training.step * (lam + s)) for s in (0, B))
            distance = training.step * L / b * sum(c ** (m * k) for k in range(training.n_passes))
    spent = fit.changed * distance / scale
    return PureCost(spent) if fit.delta == 0 else GaussianCost(spent)


def _rejection(fit, question, draws):
    assert {(draw.law, draw.size) for draw in draws} == {("normal", P), ("exponential", 1)}
    (scale,) = {draw.scale for draw in draws if draw.law == "normal"}
    beta, margin = 1 / (fit.ridge * scale**2), fit.row * question.radius
    span = margin if fit.loss == "logistic" else 1 + margin  # phi(-m) - phi(m)
    assert margin > 2
    return BoundedRangeCost(fit.changed * fit.K * beta * span)


def _proximal(fit, question, draws):
    S = N * fit.one_curvature * fit.row**2
    beta = 1 / (1.01 * (fit.ridge + S) * draws[0].scale ** 2)
    steps = sum(bool(np.isclose(draw.scale, sqrt(3 / (beta * S)), rtol=1e-9)) for draw in draws)
    assert steps == fit.K * question.n_steps
    assert sum(draw.scale == draws[0].scale for draw in draws) == fit.K
    tau = sqrt(P / 4 * log(1.01 * (1 + S / fit.ridge))) * (1 + 3 * fit.ridge / S) ** -question.n_steps
    mu = fit.changed * fit.row * sqrt(fit.K * beta / fit.ridge)
    return ApproximateCost(EPSILON, gaussian_delta(mu, EPSILON) + (1 + exp(EPSILON)) * fit.K * tau)


def _metropolis(fit, question, draws):
    normals = [draw for draw in draws if draw.law == "normal"]
    _expect(normals, *[("normal", P)] * (fit.K * (question.n_steps + 1)))
    return GaussianCost(fit.changed * fit.row * sqrt(fit.K * question.inverse_temperature / fit.ridge))


def _sampled(fit, question, draws, *arguments):
    size = int(N * question.rate + 10 * sqrt(N * question.rate) + 20)
    assert (draws[0].law, draws[0].size) == ("sample", size)
    assert fit.changed == 1
    inner = COSTS[type(question.mechanism).__name__](fit, question.mechanism, draws[1:], *arguments)
    if isinstance(inner, GaussianCost):
        return SampledGaussianCost(question.rate, 1 / inner.mu)
    return SampledPureCost(question.rate, 1 / inner.threshold_scale + 1 / inner.query_scale)


def _prefix_sums(fit, question, draws, *_):
    b, made = question.batch_size, question.factorisation
    order = [("exponential", N)] if question.order == "random" else []
    counts = [1] * made.n_steps
    if getattr(made, "refined", False):
        counts = [(t & -t).bit_length() for t in range(1, made.n_steps + 1)]
    scales = _expect(draws, *order, *(("normal", count * P * fit.K) for count in counts))[len(order) :]
    assert len(set(scales)) == 1
    return GaussianCost(fit.changed * question.clip_norm * largest_move(strategy(made), -(-N // b)) / scales[0])


COSTS = {
    "BacktrackingSearch": _search,
    "CoordinateSelection": _coordinate,
    "GaussianGradient": _gradient,
    "GaussianHessian": _hessian,
    "GradientPair": _pair,
    "HiddenDescent": _hidden,
    "MetropolisSampling": _metropolis,
    "PerturbedObjective": _objective,
    "PerturbedOutput": _output,
    "PoissonSample": _sampled,
    "PopulationSelection": _population,
    "PrefixSums": _prefix_sums,
    "ProximalSampling": _proximal,
    "RejectionSampling": _rejection,
    "ScaledGradient": _whitened,
    "SecondMoment": _moment,
    "StepSelection": _step,
    "VertexSelection": _vertex,
    "WhitenedGradient": _whitened,
}


def costs_by_hand(fit):
    return [COSTS[type(q.mechanism).__name__](fit, q.mechanism, q.draws, *q.arguments) for q in fit.questions]


# -- the fits ----------------------------------------------------------------------------------------------------


def long_steps(loss, K, rows):
    """Steps at which the most curved data set contracts least: 0.9 where the penalty alone would shrink more."""
    curvature = {"logistic": 0.25 if K == 1 else 0.5, "huber": 1.0, "hinge": 1.0}[loss]
    step = 1.9 / (ROWS[rows] ** 2 * curvature + 10 / N)
    return GradientDescent(max_iter=4, iterate="last", step_size=step, clip_norm=10.0)


# name: solver, delta, C
FITS = {
    "gd": (GradientDescent(max_iter=5, clip_norm=0.4), DELTA, 1.0),
    "gd, last": (GradientDescent(max_iter=5, iterate="last", step_size=0.5, clip_norm=10.0), DELTA, 0.05),
    "gd, last, long steps": (long_steps, DELTA, 0.1),
    "whitened": (WhitenedGD(4, "full"), DELTA, 1.0),
    "whitened, common": (WhitenedGD(4, "common"), DELTA, 1.0),
    "whitened, diagonal": (WhitenedGD(4, "diagonal"), DELTA, 1.0),
    "newton": (Newton(max_iter=4), DELTA, 1.0),
    "newton, majorant": (Newton("majorant", "add", max_iter=3), DELTA, 1.0),
    "newton, exact": (Newton("exact", max_iter=3), DELTA, 1.0),
    "objective": (ObjectivePerturbation(), DELTA, 1.0),
    "objective, pure": (ObjectivePerturbation(), 0, 1.0),
    "output": (OutputPerturbation(), DELTA, 1.0),
    "output, gd": (OutputPerturbation("gd", max_iter=4), DELTA, 1.0),
    "output, psgd": (OutputPerturbation("psgd", max_iter=2, batch_size=25), DELTA, 1.0),
    "output, psgd constant": (OutputPerturbation("psgd", max_iter=2, batch_size=25, step_size=0.1), DELTA, 1.0),
    "output, pure": (OutputPerturbation(), 0, 1.0),
    "langevin": (ExponentialMechanism(max_iter=5), DELTA, 1.0),
    "proximal": (ExponentialMechanism("proximal", ridge=1.5), DELTA, 1.0),
    "rejection": (ExponentialMechanism("rejection"), 0, 1.0),
    "mala": (ExponentialMechanism("mala", certified=False, max_iter=5), DELTA, 1.0),
    "privgene": (PrivGene(max_iter=4), DELTA, 1.0),
    "privgene, pure": (PrivGene(max_iter=4), 0, 1.0),
    "privgene, population": (PrivGene(max_iter=3, population=8, parents=3), DELTA, 1.0),
    "privgene, pure population": (PrivGene(max_iter=3, population=8, parents=3), 0, 1.0),
    "frank_wolfe": (FrankWolfe(max_iter=4), DELTA, 1.0),
    "frank_wolfe, pure": (FrankWolfe(max_iter=4, clip=0.2), 0, 1.0),
    "agd": (AdaptiveGD(n_updates=3, n_candidates=5), DELTA, 1.0),
    "blgd": (BacktrackingGD(n_updates=3, max_it=5, search_share=0.5), DELTA, 1.0),
    "blgd, laplace": (BacktrackingGD(n_updates=3, max_it=5, noise="laplace"), DELTA, 1.0),
    "ftrl": (FTRL(3, batch_size=17), DELTA, 1.0),
    "ftrl, whole root": (FTRL(2, batch_size=20, band=99, clip_norm=0.4), DELTA, 1.0),
    "ftrl, tree": (FTRL(3, batch_size=25, factorisation="tree", order="rows", iterate="last"), DELTA, 1.0),
    "ftrl, restarts": (FTRL(2, batch_size=17, factorisation="tree", restart=True), DELTA, 1.0),
    "ftrl, honaker": (FTRL(2, batch_size=17, factorisation="honaker"), DELTA, 1.0),
    "blsgd": (BacktrackingSGD(n_updates=3, max_it=5, q=0.4, xi=0.5), DELTA, 1.0),
    "sgd": (SGD(max_iter=4, rate=0.4), DELTA, 1.0),
    "sgd, all": (SGD(max_iter=4, rate=1), DELTA, 1.0),
    "adam": (Adam(max_iter=4, rate=0.4), DELTA, 1.0),
    "adam, noise subtracted": (Adam(max_iter=4, batch_size=20, subtract_noise=True), DELTA, 1.0),
    "adam, all": (Adam(max_iter=4, batch_size=60), DELTA, 1.0),
    "rmsprop": (RMSProp(max_iter=4, rate=0.4), DELTA, 1.0),
    "adagrad": (AdaGrad(max_iter=4, rate=0.4), DELTA, 1.0),
    "dp2": (DelayedPreconditioner(s1=2, s2=3, max_iter=7, rate=0.4), DELTA, 1.0),
    "dp2, extra": (DelayedPreconditioner(variant="extra_noise", s1=2, max_iter=5, rate=0.4), DELTA, 1.0),
    "dp2, noise first": (DelayedPreconditioner("adam", 2, 1, "noise_then_precondition", 0.4, max_iter=5), DELTA, 1.0),
    "dp2, all": (DelayedPreconditioner("adagrad", 1, 2, rate=1, max_iter=5), DELTA, 1.0),
    "dp2, extra, all": (DelayedPreconditioner(variant="extra_noise", s1=2, max_iter=5, rate=1), DELTA, 1.0),
    "adadps": (AdaDPS(PUBLIC, max_iter=4, rate=0.4), DELTA, 1.0),
    "adadps, given": (AdaDPS(feature_scales=[0.1, 1.0, 3.0], max_iter=4, batch_size=20), DELTA, 1.0),
    "adadps, all": (AdaDPS(PUBLIC, max_iter=4, rate=1, clip_norm=0.4), DELTA, 1.0),
    "pda_dpmd": (PublicMirrorDescent(PUBLIC, max_iter=4, rate=0.4), DELTA, 1.0),
    "pda_dpmd, all": (PublicMirrorDescent(PUBLIC, mixing=0.5, max_iter=4, rate=1), DELTA, 1.0),
    "pda_dpmd, exact": (PublicMirrorDescent(PUBLIC, mirror="exact", max_iter=4, rate=0.4), DELTA, 1.0),
}

# those on samples, which have no bound for replace_one
SAMPLED = (
    *("blsgd", "sgd", "adam", "adam, noise subtracted", "rmsprop", "adagrad"),
    *("dp2", "dp2, extra", "dp2, noise first"),
    *("adadps", "adadps, given", "pda_dpmd", "pda_dpmd, exact"),
)


def solver_of(name, loss, K, rows="clip"):
    solver = FITS[name][0]
    solver = clone(solver) if isinstance(solver, Solver) else solver(loss, K, rows)
    return solver.set_params(rows=rows) if "rows" in solver.get_params() else solver


def check_fit(name, loss="logistic", K=1, neighbours="add_remove", rows="clip"):
    """What the draws of a fit cost is what the plan states, within (EPSILON, delta) and not far below it."""
    _, delta, C = FITS[name]
    fit = fitted(solver_of(name, loss, K, rows), loss, K, neighbours, delta, C)
    plan = fit.model.plan(N, D)
    assert plan.cost.epsilon(delta) <= EPSILON
    costs = costs_by_hand(fit)
    if plan.budget is None:
        assert sum(count for _, count in plan.questions) >= len(costs)
        total = compose([(cost, 1) for cost in costs])
        if delta == 0:
            spent, stated, is_used = total.epsilon(0), plan.cost.epsilon(0), total.epsilon(0) > 0.99 * EPSILON
        else:
            spent, stated = total.delta(EPSILON), plan.cost.delta(EPSILON)
            is_used = spent > 0.5 * delta and total.delta(0.9 * EPSILON) > delta
        assert spent <= stated * (1 + 1e-9)
        assert stated <= (delta or EPSILON) * (1 + 1e-6)
        # a pool may have questions left
        assert is_used or fit.model.solver_.name == "blsgd"
        return
    spent = [sum(cost.rdp(order) for cost in costs) for order in plan.budget.orders]
    assert all(s <= budget * (1 + 1e-9) for s, budget in zip(spent, plan.budget.values, strict=True))
    # the order of the target is the one that ends the run; rounding is charged and not counted here
    assert max(s / budget for s, budget in zip(spent, plan.budget.values, strict=True)) > 0.6
