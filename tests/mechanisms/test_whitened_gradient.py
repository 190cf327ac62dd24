"""The whitened gradient: what one record moves, its rounding, and the whitener."""

from math import inf, sqrt

import numpy as np
import pytest
from conftest import RecordingNoise
from whitened_cases import NEIGHBOURS, GivenNoise, sphere_problem

from dpskl.mechanisms.sensitivity import contributions
from dpskl.mechanisms.whitened_gradient import WhitenedGradient, Whitener, whitener_condition
from dpskl.records.losses import Hinge, HuberHinge, Logistic, Softmax
from dpskl.records.rows import summation_depth

pytestmark = pytest.mark.filterwarnings("ignore::dpskl.SeededNoiseWarning")


LOSSES = {
    "logistic": (Logistic(), 1),
    "huber": (HuberHinge(0.2), 1),
    "hinge": (Hinge(), 1),
    "softmax": (Softmax(), 3),
    "one-vs-rest": (Hinge(), 3),
}


def random_whitener(rng, D, is_diagonal, ridge):
    values = 10.0 ** rng.uniform(-3, 0, D)
    basis = np.linalg.qr(rng.normal(size=(D, D)))[0]
    return Whitener(values if is_diagonal else (basis * values) @ basis.T, ridge, 1.0)


@pytest.mark.parametrize("is_diagonal", [True, False])
@pytest.mark.parametrize("clip_norm", [0.3, 2.0])
@pytest.mark.parametrize("case", LOSSES)
def test_whitened_gradient_moves_by_at_most_its_sensitivity(case, clip_norm, is_diagonal):
    loss, n_outputs = LOSSES[case]
    rng = np.random.default_rng(11)
    ridge = 1e-3
    condition = whitener_condition(ridge, 1.0)
    worst = dict.fromkeys(NEIGHBOURS, 0.0)
    raw = 0.0
    for trial in range(150):
        n, d = int(rng.integers(1, 6)), int(rng.integers(2, 4))
        X = rng.normal(size=(n + 1, d)) * 10.0 ** rng.uniform(-1, 2, size=(n + 1, 1))
        codes = rng.integers(0, max(n_outputs, 2), n + 1)
        whitener = random_whitener(rng, d + 1, is_diagonal, ridge)
        v = rng.normal(size=(d + 1,) if n_outputs == 1 else (d + 1, n_outputs)) * 10.0 ** rng.uniform(-2, 2)
        if trial % 3 == 0:  # almost the same row, and both records utterly wrong about two outputs
            X[0] = X[-1] = np.eye(d)[1]
            X[0, 0], X[-1, 0] = 1e-5, -1e-5
            codes[0], codes[-1] = (0, 1) if n_outputs == 1 else (1, 0)
            w = np.zeros_like(v)
            w[0] = 1e9 if n_outputs == 1 else [1e9, -1e9, 0]
            if n_outputs > 1:
                w[-1, 2] = -1e3
            v = (w.T / whitener.matrix).T if is_diagonal else np.linalg.solve(whitener.matrix, w)

        def released(rows, relation="add_remove", X=X, codes=codes, v=v, whitener=whitener):
            mechanism = WhitenedGradient(inf, condition, relation, len(rows), X.shape[1])
            problem = sphere_problem(X[rows], codes[rows], loss, n_outputs)
            return mechanism.release(problem, whitener, clip_norm, v, RecordingNoise())

        rest, first, last = np.arange(1, n), np.arange(n), np.r_[1:n, n]
        sums = [released(rows) for rows in (rest, first, last)]
        worst["add_remove"] = max(worst["add_remove"], np.linalg.norm(sums[1] - sums[0]))
        worst["replace_one"] = max(worst["replace_one"], np.linalg.norm(sums[2] - sums[1]))
        one = sphere_problem(X[:1], codes[:1], loss, n_outputs).gradient_sum(whitener.to_weights(v), clip_norm)
        raw = max(raw, np.linalg.norm(whitener.to_whitened(one)) / clip_norm)
    for neighbours, distance in worst.items():
        stated = WhitenedGradient(1.0, condition, neighbours, 6, 3).sensitivity
        assert stated == pytest.approx(contributions(neighbours), rel=1e-9)
        assert distance <= stated
        assert distance >= 0.97 * stated
    assert raw > 3  # clipping in the norm of the gradient itself would break the bound


def test_the_rounding_of_the_whitened_gradient_is_covered():
    """Sums in another order, at the worst condition: the difference is seen, and below what is stated."""
    rng = np.random.default_rng(8)
    n, d, ridge = 4000, 6, 1e-7
    X = rng.normal(size=(n, d)) * 10.0 ** rng.uniform(-3, 0, d)
    codes = rng.integers(0, 2, n)
    condition = whitener_condition(ridge, 1.0)
    mechanism = WhitenedGradient(inf, condition, "add_remove", n, d)  # no noise, so no grid that hides it
    gram = sphere_problem(X).weighted_gram(np.ones(n)) / n
    whitener = Whitener(gram, ridge, 1.0)
    assert np.linalg.cond(whitener.matrix) <= condition
    results = []
    for order in (np.arange(n), rng.permutation(n)):
        problem = sphere_problem(X[order], codes[order], Logistic())
        results.append(mechanism.release(problem, whitener, 1.0, np.zeros(d + 1), GivenNoise()))
    stated = mechanism.sensitivity - 1
    assert 0 < np.linalg.norm(results[0] - results[1]) <= stated
    assert stated >= 2 * n * condition * summation_depth(n, d) * 2.0**-53
    assert stated < 1e-2
    with pytest.raises(ValueError, match="condition"):
        mechanism.release(problem, Whitener(gram, ridge / 2, 1.0), 1.0, np.zeros(d + 1), GivenNoise())


def test_whitener_inverts_the_second_moment():
    rng = np.random.default_rng(9)
    A = rng.normal(size=(5, 5))
    M = A @ A.T / 50
    whitener = Whitener(M, 0.1, 10.0)
    W = whitener.matrix
    np.testing.assert_allclose(W @ W.T, np.linalg.inv(M + 0.1 * np.eye(5)), rtol=1e-9)
    v, g = rng.normal(size=(5, 3)), rng.normal(size=(5, 3))
    np.testing.assert_allclose(whitener.to_weights(v), W @ v)
    np.testing.assert_allclose(whitener.to_whitened(g), W.T @ g)
    np.testing.assert_allclose(np.linalg.norm(whitener.scales[:, None] * v), np.linalg.norm(W @ v))
    assert whitener.effective_dimension == pytest.approx(np.trace(M @ np.linalg.inv(M + 0.1 * np.eye(5))))
    diagonal = Whitener(np.diag(M).copy(), 0.1, 10.0)
    full = Whitener(np.diag(np.diag(M)), 0.1, 10.0)
    assert diagonal.effective_dimension == pytest.approx(full.effective_dimension)
    np.testing.assert_allclose(diagonal.to_weights(g[:, 0]), (diagonal.matrix * g[:, 0]))
    # noise may push eigenvalues out of the range that any data set has
    clipped = Whitener(np.array([-5.0, 30.0]), 0.1, 10.0)
    np.testing.assert_allclose(clipped.scales, [1 / sqrt(0.1), 1 / sqrt(10.1)])
    assert clipped.scales.max() / clipped.scales.min() <= clipped.condition * (1 + 1e-12)
