"""What one record does to gradient sums that are scaled entry by entry, against what they say that they cost."""

from itertools import product
from math import sqrt

import numpy as np
from conftest import Tape
from privacy_by_force import NEIGHBOURS, both, kept, measure, problem_of, record_pairs

from dpskl.mechanisms.scaled_gradient import GradientPair, ScaledGradient
from dpskl.records.losses import Hinge, Softmax

MU = 0.8
SCALES = np.array([[3.0, 1.0, 0.2], [1.0, 0.05, 1.0], [0.3, 2.0, 1.0]])


def scales_of(K):
    scales = SCALES[:, 0].copy() if K == 1 else SCALES.copy()
    scales.flags.writeable = False
    return scales


def check_scaled_gradients():
    """No record moves the sum by more than its cost says, and some record does by that."""
    for K, neighbours, keeps in product((1, 3), NEIGHBOURS, (False, True)):
        loss, scales = Hinge() if K == 1 else Softmax(), scales_of(K)
        mechanism = ScaledGradient(MU, neighbours, 3, 2, K, keeps_norms=keeps)

        def question(pair, mechanism=mechanism, K=K, loss=loss, neighbours=neighbours, scales=scales):
            X, codes, w = pair
            problems = [problem_of(X[rows], codes[rows], loss, K) for rows in kept(neighbours)]
            for problem in problems:
                mechanism.prepare(problem, scales)
            batches = [problem.batch(np.arange(problem.n_samples)) for problem in problems]
            return both(mechanism, batches, (scales, 0.25, w[:, 0] if K == 1 else w))

        measure(question, record_pairs(K), mechanism.cost.mu, 0.85)


def check_gradient_pairs():
    """Two sums of one sample, together: the distance of the pairs, in units of the noise, is within the one cost."""
    for K, neighbours in product((1, 3), NEIGHBOURS):
        loss, scales = Hinge() if K == 1 else Softmax(), scales_of(K)
        mechanism = GradientPair(MU, 0.25, neighbours, 3, 2, K)

        def question(pair, mechanism=mechanism, K=K, loss=loss, neighbours=neighbours, scales=scales):
            X, codes, w = pair
            problems = [problem_of(X[rows], codes[rows], loss, K) for rows in kept(neighbours)]
            first, second, scale = both(mechanism, problems, (scales, 0.25, w[:, 0] if K == 1 else w))
            return np.stack(first), np.stack(second), scale

        measure(question, record_pairs(K), mechanism.cost.mu, 0.85)


def check_scaled_noise():
    """Noise reaches every entry of every sum, each its own, at the scale that the cost needs."""
    rng = np.random.default_rng(5)
    X, codes = rng.normal(size=(3, 2)), np.array([0, 1, 2])
    for K, neighbours in product((1, 3), NEIGHBOURS):
        problem, scales = problem_of(X, codes % max(K, 2), Hinge() if K == 1 else Softmax(), K), scales_of(K)
        changed = 1 if neighbours == "add_remove" else 2
        weights = np.zeros(scales.shape)
        for kind, sums, sensitivity in (
            (ScaledGradient(MU, neighbours, 3, 2, K), 1, 1.0),
            (GradientPair(MU, 0.25, neighbours, 3, 2, K), 2, sqrt(2)),
        ):
            tape, silent = Tape(1), Tape(1, {0: np.zeros_like})
            noisy, exact = (np.stack([kind.release(problem, scales, 0.25, weights, noise)]) for noise in (tape, silent))
            (draw,) = tape.draws
            assert draw.size == scales.size * sums
            np.testing.assert_allclose(draw.scale, changed * sensitivity / MU, rtol=1e-6)
            np.testing.assert_allclose((noisy - exact).ravel(), draw.scale * draw.unit.ravel(), atol=1e-5)
            np.testing.assert_allclose(
                np.ravel(exact)[-scales.size :], _by_hand(problem, scales, weights, K), atol=1e-5
            )


def _by_hand(problem, scales, weights, K):
    """The sum of scaled and clipped gradients, record by record, in units of the clip norm."""
    total = np.zeros(scales.shape)
    for i in range(problem.n_samples):
        gradient = scales * problem.batch(np.array([i])).gradient_sum(weights)
        total += gradient * min(1, 0.25 / np.linalg.norm(gradient)) / 0.25
    return total.ravel()
