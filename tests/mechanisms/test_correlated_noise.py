"""Factorisations of prefix sums: what they are, what a record moves of them, and how much noise they leave."""

from math import floor, log, log2, pi, sqrt

import numpy as np
import pytest
from prefix_sums_by_force import (
    check_factorisations,
    check_participation_norms,
    check_prefix_sums,
    largest_move,
    root,
    strategy,
)
from scipy.optimize import minimize
from scipy.stats import kstest, norm

from dpskl.accounting import gaussian_delta
from dpskl.mechanisms.correlated_noise import BinaryTree, Restarted, SquareRoot, best_square_root
from dpskl.mechanisms.noise import SeededNoise
from dpskl.mechanisms.prefix_sums import PrefixSums


def test_every_factorisation_is_one():
    check_factorisations()


def test_participation_norms_are_those_of_the_worst_pattern():
    check_participation_norms()


def test_a_run_moves_by_what_its_noise_is_for():
    check_prefix_sums()


@pytest.mark.parametrize("T", [1, 2, 3, 7, 8, 100, 1024])
def test_a_record_of_one_pass_is_in_as_many_nodes_as_the_tree_is_high(T):
    for refined in (False, True):
        assert BinaryTree(T, refined).participation_norm(T) == pytest.approx(sqrt(floor(log2(T)) + 1))


def test_steps_of_any_direction_move_less_than_steps_of_one():
    """Columns of C have no negative products, so that vectors need not be tried beside signs: here are some."""
    rng = np.random.default_rng(0)
    C = root(12, 6)
    for first in range(3):
        for _ in range(50):
            u = rng.normal(size=(4, 3))
            u /= np.linalg.norm(u, axis=1, keepdims=True)
            assert np.linalg.norm(C[:, first::3] @ u) <= SquareRoot(12, 6).participation_norm(3) * (1 + 1e-12)


def test_banded_columns_of_one_record_are_orthogonal():
    for period, passes in ((5, 1), (5, 4), (10, 3)):
        factorisation = SquareRoot(period * passes, period)
        column = root(period, period)[:, 0]
        assert factorisation.participation_norm(period) == pytest.approx(sqrt(passes) * np.linalg.norm(column))


# One pass of T steps and ten passes of T steps in all: tree, Honaker, best square root, independent noise.
ERRORS = {
    (100, 100): (4.725, 3.734, 2.347, 7.106),
    (1000, 1000): (7.027, 5.357, 3.086, 22.372),
    (10000, 10000): (9.511, 7.131, 3.814, 70.714),
    (100, 10): (18.39, 16.76, 9.611, 22.47),
    (1000, 100): (22.66, 20.12, 12.10, 70.75),
    (10000, 1000): (34.57, 30.43, 14.58, 223.62),
}


@pytest.mark.parametrize(("size", "errors"), ERRORS.items(), ids=str)
def test_errors_at_equal_cost(size, errors):
    T, period = size
    kinds = (BinaryTree(T), BinaryTree(T, True), best_square_root(T, period), SquareRoot(T, 1))
    np.testing.assert_allclose([kind.error(period) for kind in kinds], errors, rtol=1e-3)
    if T == period:
        assert SquareRoot(T, T).error(T) == pytest.approx(1 + log(T) / pi, rel=0.05)


@pytest.mark.parametrize(("period", "passes"), [(1, 30), (2, 20), (5, 20), (10, 10), (64, 3), (200, 1)])
def test_the_default_has_the_least_error_of_what_there_is(period, passes):
    T = period * passes
    best = best_square_root(T, period)
    others = [
        BinaryTree(T),
        BinaryTree(T, True),
        *(SquareRoot(T, band) for band in (1, period, T)),
        *(Restarted(T, inner) for inner in (BinaryTree(period), BinaryTree(period, True), SquareRoot(period, period))),
    ]
    assert best.error(period) <= min(other.error(period) for other in others) * (1 + 1e-12)
    if period == 1:
        assert best.band == 1  # every step reads all records: independent noise, as in gradient descent


@pytest.mark.parametrize(("T", "period"), [(60, 10), (40, 40)])
def test_no_other_band_of_one_pass_is_much_better(T, period):
    """A search by descent from the one that is taken, over all columns of length ``period``: less than 5 % are left."""
    best = best_square_root(T, period)

    def error(column):
        C = sum(x * np.eye(T, k=-i) for i, x in enumerate(column))
        products = np.abs(C.T @ C)  # entries may have both signs here, so that steps may too
        moved = max(products[first::period, first::period].sum() for first in range(period))
        return sqrt(moved / T) * np.linalg.norm(np.linalg.solve(C.T, np.tri(T).T))

    start = root(T, best.band)[:period, 0]
    assert error(start) == pytest.approx(best.error(period))
    found = minimize(error, start, method="L-BFGS-B", options={"maxiter": 8})
    assert 0.95 * best.error(period) < found.fun < best.error(period)


def test_restarts_know_one_pass_only():
    with pytest.raises(ValueError, match="4 steps a pass was asked for a pass of 3"):
        Restarted(12, SquareRoot(4, 4)).participation_norm(3)
    assert largest_move(np.eye(3), 3) == 1


class _OneRecord:
    """A single record whose gradient is as long as it may be and points where its weight does; it may be absent."""

    n_samples, n_features = 1, 1

    def __init__(self, is_there):
        self.is_there = is_there

    def zeros(self):
        return np.ones(1)

    def batch(self, indices):
        return self

    def gradient_sum(self, weights, clip_norm):
        return self.is_there * clip_norm * np.sign(weights)


@pytest.mark.parametrize("is_there", [False, True])
@pytest.mark.parametrize("follows", [False, True])
def test_questions_that_follow_the_answers_tell_no_more(follows, is_there):
    """Log ratios of densities of 3,000 runs: those of one Gaussian release, or less where steps change direction."""
    T, mu = 6, 1.3
    made = SquareRoot(T, 4)
    mechanism = PrefixSums(1.0, mu, made, 1, "rows", "add_remove", 1, 1)
    C, noise, ratios = strategy(made), SeededNoise(11 + is_there), []
    for _ in range(3000):
        sums, steps = [], [1.0]

        def respond(prefix, sums=sums, steps=steps):
            sums.append(prefix)
            steps.append(np.sign(prefix[0] - len(sums) / 2) if follows else 1.0)
            return np.array([steps[-1]])

        mechanism.release(_OneRecord(is_there), respond, noise)
        y = C @ np.diff(np.concatenate(sums), prepend=0) / mechanism.noise_scale
        means = C @ np.array(steps[:T]) / mechanism.noise_scale
        ratios.append((y @ y - (y - means) @ (y - means)) / 2)
    ratios = np.array(ratios) * (1 if is_there else -1)  # of the law that was drawn from
    if not follows:
        assert kstest(ratios, norm(mu**2 / 2, mu).cdf).pvalue > 1e-4
    for epsilon in (0.0, 0.5, 1.0, 2.0):
        excess = np.maximum(0, 1 - np.exp(epsilon - ratios))  # its mean is delta
        error = excess.std() / sqrt(len(excess))
        assert excess.mean() <= gaussian_delta(mu, epsilon) + 4 * error
        if not follows:
            assert excess.mean() >= gaussian_delta(mu, epsilon) - 4 * error
