"""Minima of strongly convex objectives, certified by the norm of their gradient.

Objective and output perturbation reason about *the* minimiser. What a computer finds is close to it, and how
close is certified: by strong convexity ``||w - w*|| <= ||grad J(w)|| / ridge``. Whether the certificate was reached
is itself a function of the data, so it must be reached on every data set: the tolerance is set from public numbers to
lie far above rounding, and where Newton's method does not meet it, gradient descent does, by a theorem. Only the
running time depends on the data.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from math import sqrt
from typing import Any

import numpy as np
from scipy.linalg import cho_factor, cho_solve

from dpskl.records.losses import MarginLoss
from dpskl.records.problem import Problem
from dpskl.records.rows import summation_depth

__all__ = ["certified_minimum", "rounding_bound"]

Array = np.ndarray[Any, Any]

# Forming the Hessian costs d products with a vector; conjugate gradients need about as many when it is hard.
_DIRECT_FEATURES = 512
# Most that was seen is 2,632 (Huber hinge, h = 1e-5, condition number 1e10); usual is below 30.
_NEWTON_STEPS = 100_000
# How often a direction may be taken whole although no part of it was seen to decrease the objective: rounding may hide
# what is won near the minimum. It was never needed in 138,000 searches.
_BLIND_STEPS = 50
_UNIT = 2.0**-53


def rounding_bound(
    n_samples: int,
    n_features: int,
    slopes: float,
    curvatures: float,
    ridge: float,
    weight_norm: float,
    linear_norm: float,
) -> float:
    """Return a bound on the rounding error of a computed gradient of ``J`` (Euclidean norm).

    Parameters
    ----------
    n_samples, n_features : int
    slopes : float
        Bound on the sum over records of ``|l_i'| ||row_i||``, such as ``n L``.
    curvatures : float
        Bound on ``n B``; ``sum l_i''`` at computed margins would not do, since at a kink of the slope the
        computed margin may lie on the other side.
    ridge, weight_norm, linear_norm : float
        ``Lam``, ``||w||`` and ``||b||``.
    """
    depth = summation_depth(n_samples, n_features)
    return _UNIT * (
        depth * slopes + (n_features + 9) * curvatures * weight_norm + 8 * (ridge * weight_norm + linear_norm)
    )


def certified_minimum(
    problem: Problem, ridge: float, linear: Array, tolerance: float, allowance: Callable[[float], float]
) -> Array:
    r"""Return ``w`` with ``||grad J(w)|| <= tolerance``, ``J(w) = sum_i l_i(w) + ridge ||w||^2 / 2 + linear . w``.

    Parameters
    ----------
    problem : Problem
        One output with a smooth margin loss, or the softmax.
    ridge : float
        Positive.
    linear : ndarray of shape (n_weights,) or (n_weights, n_outputs)
    tolerance : float
        Bound on the norm of the exact gradient at the returned point, at least ten times ``allowance`` at every ``w``
        with ``J(w) <= J(0)`` and ``||w|| <= (sum_i sup ||grad l_i|| + ||linear||) / ridge``.
    allowance : callable
        Bound on the rounding error of the computed gradient, given ``||w||``.

    Notes
    -----
    Safeguarded Newton: a Newton direction (Cholesky up to 512 features, conjugate gradients beyond and for the
    softmax), then halving steps. The objective is strongly convex with a Lipschitz gradient, piecewise
    smooth at worst, so it converges from everywhere and in the end superlinearly (Pang & Qi 1995).

    How many steps that takes has no useful bound. After 100,000, or after 50 that rounding left without a step that
    decreases ``J``, gradient descent starts at zero, whose number of steps has one: see :func:`_descend`. Nothing is
    ever raised.
    """
    weights = problem.zeros()
    is_margin = isinstance(problem.loss, MarginLoss)
    direct = is_margin and problem.n_weights <= _DIRECT_FEATURES
    blind_steps = 0
    for _ in range(_NEWTON_STEPS):
        if direct:
            gradient, hessian = problem.gradient_hessian(weights)
        elif is_margin:
            gradient, curvature = problem.gradient_curvature(weights)
            product = partial(problem.gram_product, curvature)
        else:
            gradient, probabilities = problem.gradient_probabilities(weights)
            product = partial(problem.softmax_product, probabilities)
        gradient += ridge * weights + linear
        norm = float(np.linalg.norm(gradient))
        if norm + allowance(float(np.linalg.norm(weights))) <= tolerance:
            return weights
        if direct:
            hessian[np.diag_indices_from(hessian)] += ridge
            direction = -cho_solve(cho_factor(hessian, overwrite_a=True, check_finite=False), gradient)
        else:
            accuracy = max(min(0.5, sqrt(norm / max(1.0, problem.n_samples))) * norm, 0.1 * tolerance)
            direction = -_conjugate_gradients(product, ridge, gradient, accuracy)
        step = _line_search(problem, weights, direction, ridge, linear, float(np.vdot(gradient, direction)))
        if not step:
            blind_steps, step = blind_steps + 1, 1.0
            if blind_steps > _BLIND_STEPS:
                break
        weights = weights + step * direction
    return _descend(problem, ridge, linear, tolerance, allowance)


def _descend(
    problem: Problem, ridge: float, linear: Array, tolerance: float, allowance: Callable[[float], float]
) -> Array:
    r"""Return a point as :func:`certified_minimum` promises it, by gradient descent from zero.

    Notes
    -----
    Steps of ``1 / S``, ``S = ridge + n B`` a bound on the Hessian. With an error of norm ``e`` in the gradient ``g`` a
    step lowers ``J`` by at least ``(||g||^2 - e^2) / (2 S)``. Short of the certificate ``||g||`` is at least
    ``tolerance - 2 allowance``, and the rounding of the gradient and of the step is at most ``1.4 allowance``, so with
    ``tolerance >= 10 allowance`` that is at least ``0.97 ||g||^2 / (2 S) >= 0.97 (ridge / S) (J - min J)``. Hence ``J``
    falls, ``||w||`` stays in the set for which the tolerance is made, and ``J - min J`` reaches
    ``(tolerance - 2 allowance)^2 / (2 S)``, which implies the certificate, after at most
    ``1.04 (S / ridge) log(4 S (J(0) - min J) / tolerance^2)`` steps (Polyak 1963, with errors).
    """
    smoothness = ridge + problem.n_samples * problem.loss.curvature_bound * problem.row_bound**2 * (1 + 1e-9)
    weights = problem.zeros()
    while True:  # ends by the theorem
        gradient = problem.gradient_sum(weights) + (ridge * weights + linear)
        if float(np.linalg.norm(gradient)) + allowance(float(np.linalg.norm(weights))) <= tolerance:
            return weights
        weights = weights - gradient / smoothness


def _conjugate_gradients(product: Callable[[Array], Array], ridge: float, target: Array, accuracy: float) -> Array:
    """Solve ``product(x) + ridge x = target`` to a residual norm of ``accuracy``."""
    solution = np.zeros_like(target)
    residual = target.copy()
    search = residual.copy()
    size = float(np.vdot(residual, residual))
    for _ in range(20 * target.size):
        image = product(search) + ridge * search
        length = size / float(np.vdot(search, image))
        solution += length * search
        residual -= length * image
        previous, size = size, float(np.vdot(residual, residual))
        if size <= accuracy * accuracy:
            break
        search = residual + (size / previous) * search
    return solution


def _line_search(
    problem: Problem,
    weights: Array,
    direction: Array,
    ridge: float,
    linear: Array,
    slope: float,
) -> float:
    """Return the first of 1, 1/2, 1/4, ... that decreases the objective enough, or 0: two passes, whatever the trials.

    Enough is Armijo's rule, or, where the decrease drowns in rounding, Hager & Zhang's (2005, eq. 4.1)
    approximate Wolfe rule, which looks at the slope instead of the value.
    """
    scores, change = problem.scores(weights), problem.scores(direction)
    cross = ridge * float(np.vdot(weights, direction)) + float(np.vdot(linear, direction))
    square = ridge * float(np.vdot(direction, direction))
    start = problem.losses(scores)
    noise = 1e-14 * (float(start.sum()) + abs(cross))
    step = 1.0
    while step > 1e-12:
        moved = scores + step * change
        # differences record by record keep the digits that a difference of sums loses
        decrease = float((problem.losses(moved) - start).sum()) + step * cross + 0.5 * step * step * square
        if decrease <= 1e-4 * step * slope:
            return step
        if decrease <= noise:
            new_slope = float(np.vdot(problem.loss.residuals(moved, problem.targets), change)) + cross + step * square
            if new_slope <= -0.8 * slope:
                return step
        step /= 2
    return 0.0
