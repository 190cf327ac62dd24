"""What bounds leave for: sums of float64, minima that are nearly found, and rows that no bound is for.

As in privacy_by_force, every check raises AssertionError where dpskl promises too much, or pays twice.
"""

from dataclasses import replace
from math import fsum, inf, log, sqrt

import numpy as np
import pytest
from conftest import Tape
from privacy_by_force import NEIGHBOURS
from scipy.stats import chi, gamma

from dpskl.mechanisms.correlated_noise import SquareRoot
from dpskl.mechanisms.gradient import GaussianGradient
from dpskl.mechanisms.hessian import GaussianHessian
from dpskl.mechanisms.hidden_descent import HiddenDescent
from dpskl.mechanisms.perturbed_objective import calibrate_perturbed_objective
from dpskl.mechanisms.prefix_sums import PrefixSums
from dpskl.mechanisms.scaled_gradient import GradientPair, ScaledGradient
from dpskl.mechanisms.second_moment import SecondMoment
from dpskl.mechanisms.selection import selection_spread
from dpskl.mechanisms.stable_training import ExactMinimum
from dpskl.mechanisms.whitened_gradient import WhitenedGradient
from dpskl.mechanisms.whitener import ScalingWhitener, Whitener, whitener_condition
from dpskl.records.losses import Logistic, Softmax
from dpskl.records.problem import Problem
from dpskl.solvers import ExponentialMechanism, OutputPerturbation, PublicFacts

# -- rounding ----------------------------------------------------------------------------------------------------


def check_rounding():
    """Sensitivities leave room for what float64 sums of a million terms may be off by, and for no more."""
    n, d, unit = 10**6, 10, 2.0**-53
    # each of two sums is off by n terms times one rounding for each row of a block, of which the sparse is the highest
    sums = 2 * n * 49152 * unit
    for neighbours in NEIGHBOURS:
        k = {"add_remove": 1, "replace_one": 2}[neighbours]
        D, condition = d + 1, whitener_condition(1e-4, 4.0)
        norms = 2 * n * (D + 8) * sqrt(D) * condition * unit
        for seen, exact, room in (
            (GaussianGradient(3.0, 1.0, neighbours, n, d).sensitivity, 3.0 * k, 3.0 * sums),
            (SecondMoment(2.0, 1.0, "full", neighbours, n, d).sensitivity, 4.0 * sqrt(k), 4.0 * sums),
            (
                GaussianHessian(2.0, 1.0, True, 3, neighbours, n, d).sensitivity,
                4.0 * sqrt(3 * k),
                4.0 * sqrt(3) * sums,
            ),
            (selection_spread(-1.0, 2.0, neighbours, n, d), 3.0 * k, 4.0 * sums),
            (WhitenedGradient(1.0, condition, neighbours, n, d).sensitivity, k, condition * sums + norms),
            (ScaledGradient(1.0, neighbours, n, d).sensitivity, k, sums),
            (GradientPair(1.0, 3.0, neighbours, n, d, 3).sensitivity, sqrt(2) * k, sqrt(2) * sums),
        ):
            assert room <= seen - exact <= 1.01 * room
        # prefix sums: in each of four steps a sum over a quarter, and the running sum
        made = PrefixSums(3.0, 1.0, SquareRoot(4, 1), n // 4, "rows", neighbours, n, d)
        assert made.sensitivity - 3.0 * k >= 3.0 * (sums + 2 * n * 4 * unit)
        # a minimum is certified to ten times what rounding may hide, on both data sets, in all problems
        training = ExactMinimum(3.0, 0.5, 7.0, n, d, 4, loss_at_zero=1.0, n_problems=4)
        certified = training.distance(neighbours) - 3.0 * k / 7.0
        assert certified >= 2 * sqrt(4) * 10 * unit * 49152 * n * 3.0 / 7.0


def check_wide_rows():
    """A computed norm of many entries may be short by a rounding for each, and what is clipped by it stays within."""
    d, clip, unit = 20_000, 0.1, 2.0**-53
    for K, loss in ((1, Logistic()), (3, Softmax())):
        problem = Problem(
            np.full((1, d), 0.01), loss.encode(np.array([1]), max(K, 2)), loss, data_norm=2.0, n_outputs=K
        )
        weights, scales = problem.zeros(), np.full(problem.zeros().shape, 3.0)
        scales.flags.writeable = False
        scaled = ScaledGradient(1.0, "add_remove", 1, d, K).sum(problem, scales, clip, weights)
        sums = [(scaled, K * d)]
        if K == 1:
            sums += [(problem.gradient_sum(weights, clip) / clip, d)]
        for total, count in sums:
            length = sqrt(fsum(total.ravel() ** 2))
            assert 1 - 1e-9 <= length <= 1 - (count + 8) * unit
    # what shortening adds to the error of a sum is seen where few records are long
    room = 2 * 16 * (d + 1 + 8) / 0.2 * unit
    assert room <= WhitenedGradient(1.0, 5.0, "add_remove", 1, d, 0.2).sensitivity - 1 <= 1.01 * room


def crowded_whitener(D, level=2.5):
    """As many directions as there may be, all shortened by as much as any: what noise alone can be taken for."""
    turn = np.linalg.qr(np.random.default_rng(3).normal(size=(D, D)))[0]
    moment = turn * np.where(np.arange(D) < 40, 1e3 * D, -1.0) @ turn.T
    np.fill_diagonal(moment, 1.0)
    return ScalingWhitener(moment, "full", 0.5, 1.0, level, 0.0, has_constant=True)


def check_shortened_rows():
    """A norm after shortening is a difference of two that may be alike; what is clipped by it stays within."""
    D, clip, unit = 200, 0.1, 2.0**-53
    whitener = crowded_whitener(D)
    factors, scales = whitener.transform.factors, whitener.transform.scales
    assert len(factors) == 32
    assert np.all(factors >= whitener.shortest)
    np.testing.assert_allclose(factors, sqrt(2.5 / (D + 1)))
    # a row in the span of what is shortened
    row = whitener.transform.directions.sum(axis=1) / scales
    for K, loss in ((1, Logistic()), (3, Softmax())):
        codes = loss.encode(np.array([1]), max(K, 2))
        intercept = abs(row[-1])
        X = np.sign(row[-1]) * row[None, :-1]
        problem = Problem(
            X, codes, loss, data_norm=float(np.linalg.norm(row)), intercept=intercept, n_outputs=K, rows="sphere"
        )
        assert problem.n_weights == D
        mechanism = WhitenedGradient(inf, whitener.condition, "add_remove", 1, D - 1, whitener.shortest)
        total = mechanism.release(problem, whitener, clip, problem.zeros(), Tape(0))
        length = sqrt(fsum(total.ravel() ** 2))
        # half of what its square may be off by
        assert 1 - 1e-9 <= length <= 1 - (sqrt(32) + 5) * (D + 8) * unit * (D + 1) / 2.5


def check_whitener():
    """The condition that rounding is paid for is that of the worst moment, and whitening inverts the moment."""
    for ridge in (1e-4, 1.0):
        whitener = Whitener(np.diag([4.0, 1.0, 0.0]), ridge, 4.0)
        assert np.linalg.cond(whitener.matrix) == pytest.approx(whitener.condition)
        assert whitener.condition == pytest.approx(whitener_condition(ridge, 4.0))
        square = whitener.matrix @ whitener.matrix.T
        np.testing.assert_allclose(square @ np.diag(np.array([4.0, 1.0, 0.0]) + ridge), np.eye(3), atol=1e-9)
        # noise may make the longest column, which is scaled least, the one that is shortened most
        scaling = ScalingWhitener(np.diag([1e9, 1.0, 0.0]), "full", ridge, 4.0, 1.5, 0.0, has_constant=False)
        W = np.column_stack([scaling.to_weights(unit) for unit in np.eye(3)])
        assert np.linalg.cond(W) == pytest.approx(scaling.condition)
        assert scaling.condition == pytest.approx(whitener_condition(ridge, 4.0) / sqrt(1.5 / 4))


def check_tolerances():
    """Minima are certified to ten times what rounding hides at the largest weights and linear terms that there are."""
    n, d, unit, intercept, ridge = 10**6, 50, 2.0**-53, 0.3, 90.0
    L, B, p, zero = sqrt(1.09), 1.09 / 4, d + 1, log(2)

    def needed(K, weight_norm, linear_norm):
        sums = 49152 * n * L * K + (d + 9) * n * B * weight_norm + 8 * (ridge * weight_norm + linear_norm)
        return 10 * unit * sums

    for epsilon, delta in ((1e-2, 0), (1e-2, 1e-6), (1.0, 0), (1.0, 1e-6)):
        mechanism = calibrate_perturbed_objective(
            Logistic(), row_norm=L, ridge=ridge, n_outputs=1, n_samples=n, n_features=d, intercept=True,
            epsilon=epsilon, delta=delta, neighbours="add_remove",
        )  # fmt: skip
        # the linear term is longer than this with a probability of 1e-20
        longest = mechanism.linear_scale * (gamma(p).isf(1e-20) if delta == 0 else chi(p).isf(1e-20))
        # J(w) <= J(0) at the minimum
        largest = sqrt(2 * n * zero / ridge) + 2 * longest / ridge
        assert 1 <= mechanism.tolerance / needed(1, largest, longest) <= 1.1
    facts = PublicFacts(n, d, 2, 1.0, intercept, Logistic(), "add_remove", 1 / ridge)
    largest = min(sqrt(2 * n * zero / ridge), n * L / ridge)
    ((output, _),) = OutputPerturbation(min_ridge=0).plan(facts, 1.0, 1e-6).questions
    assert 1 <= output.training.tolerance / needed(1, largest, 0.0) <= 1.1
    # so large a budget that noise, too, asks for no less
    ((draw, _),) = ExponentialMechanism("mala", certified=False, ridge=ridge).plan(facts, 1e8, 1e-6).questions
    assert 1 <= draw.tolerance / needed(1, largest, 0.0) <= 2


def refuses(mechanism, *arguments):
    try:
        mechanism.release(*arguments)
    except ValueError:
        return True
    return False


def check_guards():
    """A mechanism refuses rows or whiteners that its sensitivity is not for, a little beyond what it is for."""
    shortening = ScalingWhitener(np.ones(3), "diagonal", 0.1, 2.0, 1.0, 0.0, has_constant=True)
    assert shortening.shortest == 0.5
    X, codes, noise = np.eye(3)[:, :2], np.arange(3), Tape(0)
    problem = Problem(X, codes, Softmax(), data_norm=1.4, intercept=0.4, n_outputs=3)
    bound, ridge = sqrt(2) * np.hypot(1.4, 0.4), 2.0
    signs = Problem(X, 2 * np.eye(3) - 1, Logistic(), data_norm=1.4, intercept=0.4, n_outputs=3)
    assert refuses(GaussianHessian(2.0, 0.7, True, 1, "add_remove", 3, 2), signs, signs.zeros(), noise)
    assert refuses(GaussianHessian(2.0, 0.7, True, 3, "add_remove", 3, 2), problem, problem.zeros(), noise)
    for share, is_refused in ((0.999, True), (1.0, False)):
        for mechanism, data, arguments in (
            # clipping a joint gradient of several outputs leaves no gradient of a convex function
            (HiddenDescent(share * bound, 0.7, 0.01, ridge, 3.0, 2, inf, "add_remove", 3, 2), problem, ()),
            (SecondMoment(share * problem.row_bound, 0.7, "diagonal", "add_remove", 3, 2), problem, ()),
            (GaussianHessian(share * signs.row_bound, 0.7, True, 3, "add_remove", 3, 2), signs, (signs.zeros(),)),
            (
                WhitenedGradient(0.7, share * whitener_condition(0.1, 2.0), "add_remove", 3, 2),
                problem,
                (Whitener(np.ones(3), 0.1, 2.0), 0.5, problem.zeros()),
            ),
            (
                WhitenedGradient(0.7, 99.0, "add_remove", 3, 2, 0.5 / share),
                problem,
                (shortening, 0.5, problem.zeros()),
            ),
        ):
            assert refuses(mechanism, data, *arguments, noise) == is_refused
    for constant in (0.0, 0.4):
        data = Problem(X, codes, Softmax(), data_norm=1.4, intercept=constant, n_outputs=3)
        assert refuses(SecondMoment(9.0, 0.7, "arrow", "add_remove", 3, 2), data, noise) == (constant == 0)
    facts = PublicFacts(3, 2, 2, 1.4, 0.4, Logistic(), "add_remove", 1.0)
    ((draw, _),) = ExponentialMechanism("mala", certified=False, max_iter=1).plan(facts, 1.0, 1e-3).questions
    data = Problem(X, np.array([1.0, -1.0, 1.0]), Logistic(), data_norm=1.4, intercept=0.4)
    assert not refuses(draw, data, noise)
    assert refuses(replace(draw, gradient_bound=0.999 * draw.gradient_bound), data, noise)
