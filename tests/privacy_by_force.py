"""Privacy measured: what neighbouring data sets do to a release, against what the release says that it costs.

Every check passes on dpskl as it is and raises AssertionError where it promises too much, or pays twice. Shifts are
measured under common random numbers; laws of one weight are the subject of laws_by_quadrature.
"""

from itertools import product
from math import exp, inf, sqrt

import numpy as np
import pytest
import scipy.sparse as sp
from conftest import Tape
from scipy.stats import norm

from dpskl.mechanisms.gradient import GaussianGradient
from dpskl.mechanisms.hessian import GaussianHessian
from dpskl.mechanisms.hidden_descent import HiddenDescent
from dpskl.mechanisms.noisy_count import NoisyHistogram
from dpskl.mechanisms.noisy_score import NoisyScore
from dpskl.mechanisms.perturbed_output import PerturbedOutput
from dpskl.mechanisms.second_moment import SecondMoment
from dpskl.mechanisms.stable_training import ExactMinimum, FullGradientDescent, PermutedSGD
from dpskl.mechanisms.whitened_gradient import WhitenedGradient
from dpskl.mechanisms.whitener import ScalingWhitener, Whitener, whitener_condition
from dpskl.records.design import Design
from dpskl.records.entries import ClippedEntries
from dpskl.records.losses import Hinge, HuberHinge, Logistic, Softmax
from dpskl.records.problem import Problem
from dpskl.records.row_maps import ROW_MAPS
from dpskl.solvers import ExponentialMechanism, GradientDescent, PublicFacts

NEIGHBOURS = ("add_remove", "replace_one")
# Below 1 - h the Huber hinge is a straight line: weights that stay small see a linear loss, whose laws are exact.
STRAIGHT = HuberHinge(0.5)


def problem_of(X, codes, loss, K, intercept=0.3, rows="clip"):
    targets = loss.encode(np.asarray(codes), max(K, 2))
    X = X if sp.issparse(X) else np.asarray(X, float)
    return Problem(X, targets, loss, data_norm=1.0, intercept=intercept, n_outputs=K, rows=rows)


# -- Gaussian releases: the shift in units of the noise ---------------------------------------------------------


def record_pairs(K, trials=60):
    """Rows, labels and weights of four records; the first is absent, or exchanged for the last, often for the worst."""
    rng = np.random.default_rng(2)
    for trial in range(trials):
        X, codes = rng.normal(size=(4, 2)) * 10.0 ** rng.uniform(-1, 2, size=(4, 1)), rng.integers(0, max(K, 2), 4)
        w = rng.normal(size=(3, K)) * 10.0 ** rng.uniform(-1, 1)
        if trial % 3 == 0:  # almost one row twice, with two labels, both of them wrong
            X[0], X[3] = [1e-2, 50.0], [-1e-2, 50.0]
            codes[0], codes[3] = 0, 1
            w[:] = 0
            w[0] = 1e6 if K == 1 else [-1e6, 1e6, 0]
            if K == 1:
                codes[0], codes[3] = (0, 1)
        if trial % 3 == 1:  # rows on different axes
            X[0], X[3] = [7.0, 0.0], [0.0, 7.0]
        yield X, codes, w


def kept(neighbours):
    """Indices of the records of two neighbouring data sets."""
    return (slice(0, 3), slice(1, 3)) if neighbours == "add_remove" else (slice(0, 3), slice(1, 4))


def measure(question, pairs, mu, least=0.9):
    """``question(pair)`` returns two releases and the scale of their noise."""
    worst = 0.0
    for pair in pairs:
        first, second, scale = question(pair)
        worst = max(worst, float(np.linalg.norm((first - second) / scale)))
    assert worst <= mu * (1 + 1e-5)  # of which the grid of releases takes a part
    assert worst >= least * mu


def both(mechanism, problems, arguments=()):
    """Two releases with the same noise, and its scale."""
    tapes = [Tape(1), Tape(1)]
    first, second = (mechanism.release(p, *arguments, tape) for p, tape in zip(problems, tapes, strict=True))
    assert [d.scale for d in tapes[0].draws] == [d.scale for d in tapes[1].draws]  # data do not choose the noise
    return first, second, tapes[0].draws[-1].scale


def check_row_norms():
    """No row under any map is longer than what is said of it, nor that than what is said of all."""
    rng = np.random.default_rng(11)
    X = rng.normal(size=(400, 3)) * 10.0 ** rng.uniform(-6, 6, (400, 1))
    X[0], X[1] = 0, 1e140
    for rows, intercept in product(ROW_MAPS, (0.0, 0.3, 5.0)):
        design = Design(X, data_norm=1.5, intercept=intercept, rows=rows)
        norms = np.sqrt(sum(np.square(design.column(j)) for j in range(design.n_weights)))
        assert (norms <= design.row_norms * (1 + 1e-12)).all()
        assert (design.row_norms <= design.row_bound * (1 + 1e-12)).all()
        assert norms.max() >= design.row_bound * (1 - 1e-9)  # some row is as long as that


def check_gradients():
    for K, neighbours, clip in product((1, 3), NEIGHBOURS, (0.3, inf)):
        loss = Logistic() if K == 1 else Softmax()
        bound = min(clip, sqrt(1.09) * (1 if K == 1 else sqrt(2)))
        mechanism = GaussianGradient(bound, 0.8, neighbours, 3, 2)

        def question(pair, mechanism=mechanism, K=K, loss=loss, neighbours=neighbours):
            X, codes, w = pair
            problems = [problem_of(X[rows], codes[rows], loss, K) for rows in kept(neighbours)]
            return both(mechanism, problems, (w[:, 0] if K == 1 else w,))

        measure(question, record_pairs(K), mechanism.cost.mu, 0.85)


def check_clipped_entries():
    """No record moves an entry of the sum by more than the clip, and some record moves one by that."""
    columns = {"numbers": lambda X: X, "indicators": lambda X: (X > 1).astype(float)}
    for K, neighbours, kind, column in product((1, 3), NEIGHBOURS, (np.asarray, sp.csr_array), columns):
        loss, clip, worst = Hinge() if K == 1 else Softmax(), 0.2, 0.0
        for X, codes, w in record_pairs(K):
            X = columns[column](X)
            weights = w[:, 0] if K == 1 else w
            sums = []
            for rows in kept(neighbours):
                problem = problem_of(kind(X[rows]), codes[rows], loss, K)
                sums.append(ClippedEntries(problem, clip).gradient_sum_at(problem.scores(weights)))
            worst = max(worst, np.abs(sums[0] - sums[1]).max())
        bound = clip * (1 if neighbours == "add_remove" else 2)
        assert worst <= bound * (1 + 1e-12)
        assert worst >= 0.9 * clip  # indicators have one sign: no exchange reaches twice the clip in every case


def whitener_of(whitening):
    """A whitener and its matrix."""
    turn = np.linalg.qr(np.random.default_rng(0).normal(size=(3, 3)))[0]
    moment = turn @ np.diag([0.5, 0.1, 1e-3]) @ turn.T
    if whitening == "full":
        whitener = Whitener(moment, 1e-2, 1.0)
        return whitener, whitener.matrix
    if whitening == "diagonal":
        whitener = Whitener(np.diag(moment).copy(), 1e-2, 1.0)
        return whitener, np.diag(whitener.matrix)
    part, given = {"common": ("full", moment), "arrow": ("arrow", np.stack([np.diag(moment), moment[:, -1]]))}[
        whitening
    ]
    whitener = ScalingWhitener(given, part, 1e-2, 1.0, 0.4, 0.0, has_constant=True)
    U, factors = whitener.transform.directions, whitener.transform.factors
    assert len(factors) > 0
    return whitener, whitener.transform.scales[:, None] * (np.eye(3) - U @ np.diag(1 - factors) @ U.T)


def check_whitened_gradients():
    for K, neighbours, whitening in product((1, 3), NEIGHBOURS, ("full", "common", "arrow", "diagonal")):
        loss = Hinge() if K == 1 else Softmax()
        whitener, W = whitener_of(whitening)
        shortest = whitener.shortest
        mechanism = WhitenedGradient(0.8, whitener_condition(1e-2, 1.0) / shortest, neighbours, 3, 2, shortest)

        def question(pair, mechanism=mechanism, K=K, loss=loss, neighbours=neighbours, whitener=whitener, W=W):
            X, codes, w = pair
            problems = [problem_of(X[rows], codes[rows], loss, K, rows="sphere") for rows in kept(neighbours)]
            v = np.linalg.solve(W, w)
            return both(mechanism, problems, (whitener, 0.5, v[:, 0] if K == 1 else v))

        measure(question, record_pairs(K), mechanism.cost.mu, 0.8)


def pairs_of_rows():
    """Records as above, and such that have a constant as long as their features."""
    yield from record_pairs(1, 12)
    for X, codes, w in record_pairs(1, 6):
        X[0] *= 1e-3 / np.linalg.norm(X[0])
        X[3] = -X[0]
        yield X, codes, w


def check_moments_of_rows():
    # where a released matrix, or its parts, hold what is drawn for
    entries = {
        "full": np.triu_indices(3),
        "arrow": (np.array([0, 0, 0, 1, 1]), np.array([0, 1, 2, 0, 1])),
        "diagonal": (np.arange(3),),
    }
    for neighbours, (part, drawn) in product(NEIGHBOURS, entries.items()):
        mechanism = SecondMoment(1.0, 0.8, part, neighbours, 3, 2)

        def question(pair, mechanism=mechanism, neighbours=neighbours, part=part, drawn=drawn):
            X, codes, _ = pair
            problems = [problem_of(X[rows], codes[rows], Hinge(), 1, 1e-3, "sphere") for rows in kept(neighbours)]
            first, second, _ = both(mechanism, problems)
            # the noise of each entry, by changing one number at a time
            size = len(drawn[0])
            silent = mechanism.release(problems[0], Tape(1, {0: lambda unit: 0 * unit}))
            response = [
                mechanism.release(problems[0], Tape(1, {0: lambda unit, j=j: 1e3 * np.eye(size)[j]})) - silent
                for j in range(size)
            ]
            if part == "full":
                assert all(np.array_equal(entry, entry.T) for entry in response)
            if part == "arrow":
                assert all(entry[0, -1] == entry[1, -1] for entry in response)
            spread = np.stack([entry[drawn] for entry in response], axis=1) / 1e3
            return np.linalg.solve(spread, (first - second)[drawn]), 0.0, 1.0

        measure(question, pairs_of_rows(), mechanism.cost.mu, 0.95)


def check_hessians():
    """Rows on axes at margin 0, where the logistic loss bends most, move the matrices of all outputs."""
    for K, neighbours, is_majorant in product((1, 3), NEIGHBOURS, (True, False)):
        mechanism = GaussianHessian(1.0, 0.8, is_majorant, K, neighbours, 3, 2)

        def question(pair, mechanism=mechanism, K=K, neighbours=neighbours):
            X, codes, w = pair
            problems = [problem_of(X[rows], codes[rows], Logistic(), K, 1e-3, "sphere") for rows in kept(neighbours)]
            w = 0 * w if abs(X[0, 0]) == 7 else w
            tapes = [Tape(1, dict.fromkeys(range(K), lambda unit: 0 * unit)) for _ in problems]
            first, second = (
                mechanism.release(p, w[:, 0] if K == 1 else w, tape) for p, tape in zip(problems, tapes, strict=True)
            )
            (scale,) = {draw.scale for tape in tapes for draw in tape.draws}
            assert [draw.size for draw in tapes[0].draws] == [6] * K
            return first, second, scale

        measure(question, record_pairs(K, 12), mechanism.cost.mu, 0.95)


def check_trainings():
    """Training on rows of which one may be zero, or turned round; the straight loss lets it move all the way."""
    n, ridge, B = 6, 12.0, STRAIGHT.curvature_bound
    common = (1.0, B, ridge, n, 2, 1)
    for neighbours, is_pure in product(NEIGHBOURS, (False, True)):
        for training, least in (
            (ExactMinimum(*common, loss_at_zero=1.0, n_problems=1), 0.95),
            (FullGradientDescent(*common, step=0.2, n_steps=5), 0.95),
            (FullGradientDescent(*common, step=2 / (B + ridge / n), n_steps=3), 0.2),
            (PermutedSGD(*common, batch_size=1, n_passes=2, step=None), 0.6),
            (PermutedSGD(*common, batch_size=4, n_passes=2, step=None), 0.6),
            (PermutedSGD(*common, batch_size=4, n_passes=2, step=0.1), 0.6),
        ):
            mechanism = PerturbedOutput(training, 0.8, is_pure, neighbours)

            def question(position, mechanism=mechanism, neighbours=neighbours):
                rows = np.tile([0.0, 1e-9], (n, 1))
                rows[position] = [1.0, 0.0]
                others = rows.copy()
                others[position] = 0.0 if neighbours == "add_remove" else [-1.0, 0.0]
                problems = [problem_of(data, np.ones(n, int), STRAIGHT, 1, 0.0) for data in (rows, others)]
                return both(mechanism, problems)

            stated = mechanism.cost.pure_epsilon if is_pure else mechanism.cost.mu
            measure(question, range(n), stated, least)
    check_training_of_several_outputs()


def check_training_of_several_outputs():
    """One-vs-rest: a record pulls in all outputs, and all weights share one noise vector."""
    n, K, ridge = 4, 3, 30.0
    training = ExactMinimum(sqrt(K), 1.0, ridge, n, 2, K, loss_at_zero=1.0, n_problems=K)
    mechanism = PerturbedOutput(training, 0.8, False, "add_remove")

    def question(_):
        X = np.tile([0.0, 1e-9], (n, 1))
        X[0] = [1.0, 0.0]
        problems = [problem_of(data, np.zeros(n, int), STRAIGHT, K, 0.0) for data in (X, np.tile([0.0, 1e-9], (n, 1)))]
        return both(mechanism, problems)

    measure(question, range(1), mechanism.cost.mu, 0.95)


def check_counts():
    """Counts of neighbours differ by one, or two of them do; noise is independent, so ratios of laws multiply."""
    for neighbours in NEIGHBOURS:
        mechanism = NoisyHistogram(0.5, neighbours)
        moved = np.array([3, 5]) - np.array([2, 5] if neighbours == "add_remove" else [2, 6])
        tape = Tape(1)
        mechanism.release(np.array([3, 5]), tape)
        assert mechanism.sensitivity == np.abs(moved).sum()
        spent = mechanism.sensitivity / tape.draws[0].scale
        assert spent <= 0.5
        assert spent == pytest.approx(mechanism.cost.pure_epsilon)
        assert mechanism.noise_scale == tape.draws[0].scale
    # sums of scores that move by one: a record at the end of the range is absent, or exchanged for the other end
    neighbouring = (("add_remove", 1.0, [9.0], []), ("replace_one", 0.5, [9.0], [-9.0]))
    for delta, (neighbours, bound, one, other) in product((0, 1e-3), neighbouring):
        tape, mechanism = Tape(1), NoisyScore(0.5, delta, bound, neighbours, 4)
        moved = mechanism.release(np.array([0.1, *one]), tape) - mechanism.release(np.array([0.1, *other]), Tape(1))
        assert moved == pytest.approx(1, abs=1e-5)
        assert mechanism.sensitivity == pytest.approx(1)
        assert mechanism.noise_scale == tape.draws[0].scale
        x = np.linspace(-60, 60, 240_001)
        density = np.exp(-np.abs(x) / tape.draws[0].scale) if delta == 0 else norm.pdf(x / tape.draws[0].scale)
        density /= density.sum()
        shifted = np.roll(density, 2000)  # by one
        at = 0.5 if delta else 0.5 + 1e-6
        exact = np.maximum(shifted - exp(at) * density, 0)[2000:].sum()
        assert exact <= delta + 1e-9
        assert abs(mechanism.cost.delta(at) - exact) < 1e-6
        assert np.maximum(shifted - exp(0.45) * density, 0)[2000:].sum() > delta + 1e-5


# -- the last iterate ----------------------------------------------------------------------------------------


def check_last_iterate():
    """Where the loss is straight the last iterate is normal: its shift, and its spread from one number at a time."""
    for neighbours, T, ridge in product(NEIGHBOURS, (1, 4), (4.0, 0.5)):
        n, step = 3, 0.1
        mechanism = HiddenDescent(
            1.0, 0.7, step, ridge, n * STRAIGHT.curvature_bound, T, inf, neighbours, n, 2,
        )  # fmt: skip
        X = np.array([[1.0, 0.0], [1e-9, 0.0], [1e-9, 0.0]])
        other = X.copy()
        other[0] = 0.0 if neighbours == "add_remove" else [-1.0, 0.0]
        problems = [problem_of(data, np.ones(n, int), STRAIGHT, 1, 0.0) for data in (X, other)]
        silent = dict.fromkeys(range(T), lambda unit: 0 * unit)
        first, second = (mechanism.release(p, Tape(1, silent)) for p in problems)
        variance = 0.0
        for t in range(T):
            moved = mechanism.release(problems[1], Tape(1, {**silent, t: lambda unit: 1e-3 * np.eye(unit.size)[0]}))
            variance += ((moved - second)[0] / 1e-3) ** 2
        assert variance > 0
        measured = abs((first - second)[0]) / sqrt(variance)
        assert measured <= mechanism.cost.mu * (1 + 1e-3)  # finite differences meet the grid
        assert measured >= 0.99 * mechanism.cost.mu


def largest_curvature(loss, K, intercept, n):
    """Largest curvature of the sum of losses that n records can have, by differences of gradients at equal rows."""
    row = np.array([1.0, 0.0, intercept])[: 2 + (intercept > 0)]
    if isinstance(loss, Softmax):  # two classes as likely as each other, the third out of the question
        codes, at, along = np.arange(n) % 2, [0.0, 0.0, -60.0], [1.0, -1.0, 0.0]
    else:  # all records of one class, at the margin where the loss bends most
        codes = np.full(n, 1 if K == 1 else 0)
        margin = 0.0 if isinstance(loss, Logistic) else 1.0
        at, along = ([margin], [1.0]) if K == 1 else ([margin, -margin, -margin], [1.0, -1.0, 1.0])
    problem = problem_of(np.tile([1.0, 0.0], (n, 1)), codes, loss, K, intercept)
    start, step = np.multiply.outer(row / (row @ row), at), np.multiply.outer(row, along)
    step *= 1e-5 / np.linalg.norm(step)
    values = [problem.gradient_sum((start + sign * step).reshape(problem.zeros().shape)) for sign in (1, -1)]
    return float(np.linalg.norm(values[0] - values[1])) / 2e-5


def check_smoothness():
    """What plans count on is what the most curved data set has: intercept, all records, all outputs."""
    for loss, K, intercept in product((Logistic(), HuberHinge(0.5)), (1, 3), (0.0, 0.3)):
        n = 40
        facts = PublicFacts(n, 2, 2 if K == 1 else 3, 1.0, intercept, loss, "add_remove", 0.05)
        joint = loss if K == 1 else loss.multiclass()
        curvature = largest_curvature(joint, K, intercept, n)
        one = largest_curvature(loss, 1, intercept, n)
        descent = GradientDescent(max_iter=5, iterate="last", step_size=0.5, clip_norm=10.0)
        for solver, measured in (
            (descent, curvature),
            (ExponentialMechanism(max_iter=5), curvature),
            (ExponentialMechanism("proximal", ridge=60.0), one),
            (ExponentialMechanism("rejection"), one),
            (ExponentialMechanism("mala", certified=False), one),
        ):
            ((question, _),) = solver.plan(facts, 1.0, 1e-3).questions
            assert measured <= question.smoothness * (1 + 1e-6)
            assert measured >= 0.99 * question.smoothness
            row = sqrt(1 + intercept**2)
            if isinstance(question, HiddenDescent):
                continue
            assert question.curvature_bound * n >= measured * (1 - 1e-6)
            assert question.gradient_bound >= row * (1 - 1e-12)
            assert question.loss_at_zero == float(loss.value(np.zeros(1))[0])
            norms = [np.linalg.norm(mode) for mode in far_modes(question, loss, intercept, n)]
            assert max(norms) <= question.mode_norm


def far_modes(question, loss, intercept, n):
    """Minimisers of the regularised sum for data that agree: the largest there are."""
    for rows in (np.tile([1.0, 0.0], (n, 1)), np.eye(2)[np.arange(n) % 2]):
        problem = problem_of(rows, np.ones(n, int), loss, 1, intercept)
        w = problem.zeros()
        for _ in range(400):
            w = w - (problem.gradient_sum(w) + question.ridge * w) / (question.ridge + question.smoothness)
        yield w
