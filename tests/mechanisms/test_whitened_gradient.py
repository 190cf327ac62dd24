"""The whitened gradient: what one record moves, its rounding, and the whitener."""

from fractions import Fraction
from math import inf, sqrt

import numpy as np
import pytest
import scipy.sparse as sp
from bounds_by_force import crowded_whitener
from conftest import RecordingNoise
from whitened_cases import NEIGHBOURS, GivenNoise, matrix_of, part_of, sphere_problem

from dpskl.mechanisms.sensitivity import contributions
from dpskl.mechanisms.whitened_gradient import WhitenedGradient
from dpskl.mechanisms.whitener import ScalingWhitener, Whitener, whitener_condition
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


LEVEL = 0.3  # so low that a few columns have directions to shorten
SHORTENED = {"common": "full", "constant": "arrow"}


def random_whitener(rng, D, whitening, ridge):
    values = 10.0 ** rng.uniform(-3, 0, D)
    basis = np.linalg.qr(rng.normal(size=(D, D)))[0]
    moment = (basis * values) @ basis.T
    if part := SHORTENED.get(whitening):
        whitener = ScalingWhitener(part_of(part, moment), part, ridge, 1.0, LEVEL, 0.0, has_constant=True)
        assert len(whitener.transform.factors) > 0
        return whitener
    return Whitener(values if whitening == "diagonal" else moment, ridge, 1.0)


@pytest.mark.parametrize(
    ("whitening", "layout", "trials"),
    [
        ("diagonal", np.asarray, 150),
        ("full", np.asarray, 150),
        ("common", np.asarray, 150),
        ("common", sp.csr_array, 45),
        ("constant", np.asarray, 150),
    ],
)
@pytest.mark.parametrize("clip_norm", [0.3, 2.0])
@pytest.mark.parametrize("case", LOSSES)
def test_whitened_gradient_moves_by_at_most_its_sensitivity(case, clip_norm, whitening, layout, trials):
    loss, n_outputs = LOSSES[case]
    rng = np.random.default_rng(11)
    ridge = 1e-3
    shortest = ScalingWhitener.shortest_of(LEVEL, 4) if whitening in SHORTENED else 1.0
    condition = whitener_condition(ridge, 1.0) / shortest
    worst = dict.fromkeys(NEIGHBOURS, 0.0)
    raw = 0.0
    for trial in range(trials):
        n, d = int(rng.integers(1, 6)), int(rng.integers(2, 4))
        X = rng.normal(size=(n + 1, d)) * 10.0 ** rng.uniform(-1, 2, size=(n + 1, 1))
        codes = rng.integers(0, max(n_outputs, 2), n + 1)
        whitener = random_whitener(rng, d + 1, whitening, ridge)
        v = rng.normal(size=(d + 1,) if n_outputs == 1 else (d + 1, n_outputs)) * 10.0 ** rng.uniform(-2, 2)
        if trial % 3 == 0:  # almost the same row, and both records utterly wrong about two outputs
            X[0] = X[-1] = np.eye(d)[1]
            X[0, 0], X[-1, 0] = 1e-5, -1e-5
            codes[0], codes[-1] = (0, 1) if n_outputs == 1 else (1, 0)
            w = np.zeros_like(v)
            w[0] = 1e9 if n_outputs == 1 else [1e9, -1e9, 0]
            if n_outputs > 1:
                w[-1, 2] = -1e3
            v = np.linalg.solve(matrix_of(whitener.transform), w)

        def released(rows, relation="add_remove", X=X, codes=codes, v=v, whitener=whitener):
            mechanism = WhitenedGradient(inf, condition, relation, len(rows), X.shape[1], shortest)
            problem = sphere_problem(layout(X[rows]), codes[rows], loss, n_outputs)
            return mechanism.release(problem, whitener, clip_norm, v, RecordingNoise())

        rest, first, last = np.arange(1, n), np.arange(n), np.r_[1:n, n]
        sums = [released(rows) for rows in (rest, first, last)]
        worst["add_remove"] = max(worst["add_remove"], np.linalg.norm(sums[1] - sums[0]))
        worst["replace_one"] = max(worst["replace_one"], np.linalg.norm(sums[2] - sums[1]))
        one = sphere_problem(X[:1], codes[:1], loss, n_outputs).gradient_sum(whitener.to_weights(v), clip_norm)
        raw = max(raw, np.linalg.norm(whitener.to_whitened(one)) / clip_norm)
    for neighbours, distance in worst.items():
        stated = WhitenedGradient(1.0, condition, neighbours, 6, 3, shortest).sensitivity
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


def exactly(transform, g):
    """``B (scales * g)`` in fractions, of the numbers in float64 that the map is made of."""
    y = [Fraction(a) * Fraction(b) for a, b in zip(transform.scales, g, strict=True)]
    moved = list(y)
    for u, factor in zip(transform.directions.T, transform.factors, strict=True):
        u = [Fraction(entry) for entry in u]
        product = (Fraction(factor) - 1) * sum(a * b for a, b in zip(u, y, strict=True))
        moved = [m + product * entry for m, entry in zip(moved, u, strict=True)]
    return moved


@pytest.mark.parametrize("is_sparse", [False, True])
def test_the_rounding_of_shortened_gradients_is_covered(is_sparse):
    """32 directions of 200 shortened by as much as may be: every record within the clip, and their sum near its own."""
    rng = np.random.default_rng(10)
    D, n, clip = 200, 8, 0.01
    whitener = crowded_whitener(D)
    transform, U = whitener.transform, whitener.transform.directions
    mechanism = WhitenedGradient(inf, whitener.condition, "add_remove", n, D - 1, whitener.shortest)
    # rows along what is shortened, together or one by one, and a little across
    y = np.tile(U.sum(axis=1), (n, 1)) + 1e-3 * rng.normal(size=(n, D))
    y[4:] = U[:, :4].T
    X = y / transform.scales
    X *= np.sign(X[:, -1:])
    intercept = 0.03
    X *= intercept / X[:, -1:]  # the constant of a row before it is brought to the sphere
    data = [sp.csr_array(X[:, :-1]) if is_sparse else X[:, :-1], np.ones(n, dtype=int)]
    v = np.zeros(D)

    def problem(rows):
        return sphere_problem(data[0][rows], data[1][rows], Logistic(), intercept=intercept)

    total, longest = [Fraction(0)] * D, 0.0
    for i in range(n):
        g = problem([i]).gradient_sum(v, clip / (1 + 2 * mechanism._stretch), transform)
        exact = exactly(transform, g)
        square = sum(entry * entry for entry in exact) / Fraction(clip) ** 2
        assert square <= 1
        longest = max(longest, float(square))
        total = [a + b / Fraction(clip) for a, b in zip(total, exact, strict=True)]
    assert longest >= 1 - 1e-9
    released = mechanism.release(problem(np.arange(n)), whitener, clip, v, GivenNoise())
    error = sqrt(sum(float(Fraction(a) - b) ** 2 for a, b in zip(released, total, strict=True)))
    stated = (mechanism.sensitivity - 1) / 2  # of one of two data sets
    print(f"error {error:.2e}, stated {stated:.2e}, of shortening {n * mechanism._stretch_of_sums:.2e}")
    assert 0 < error <= n * mechanism._stretch_of_sums < stated < 1e-5


def test_a_whitener_that_shortens_by_more_is_refused():
    whitener = ScalingWhitener(np.ones(3), "diagonal", 0.1, 1.0, 0.4, 0.0, has_constant=False)
    problem = sphere_problem(np.eye(2), np.array([0, 1]), Logistic())
    for share, is_refused in ((1 + 1e-12, True), (1.0, False)):
        mechanism = WhitenedGradient(inf, whitener.condition, "add_remove", 2, 2, whitener.shortest * share)
        noise = GivenNoise()
        if is_refused:
            with pytest.raises(ValueError, match="directions shortened to"):
                mechanism.release(problem, whitener, 1.0, np.zeros(3), noise)
            assert noise.size == 0
        else:
            assert mechanism.release(problem, whitener, 1.0, np.zeros(3), noise).shape == (3,)


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
