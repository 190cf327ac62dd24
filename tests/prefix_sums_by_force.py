"""What a record moves of prefix sums, by force: factorisations written out, and all patterns of taking part.

The matrices here are made of definitions: which steps a row of C adds up, and with which weights. No code of dpskl is
used for them.
"""

from itertools import product
from typing import Any

import numpy as np
from conftest import Tape

from dpskl.mechanisms.correlated_noise import BinaryTree, Restarted, SquareRoot
from dpskl.mechanisms.prefix_sums import PrefixSums
from dpskl.records.losses import Logistic, Softmax
from dpskl.records.problem import Problem

NEIGHBOURS = {"add_remove": 1, "replace_one": 2}


def prefixes(T):
    return np.tril(np.ones((T, T)))


def root(T, band):
    """The square root of the matrix of prefix sums, by squaring: sum_i c_i c_{n-i} = 1."""
    c = [1.0]
    for n in range(1, T):
        c.append((1 - sum(c[i] * c[n - i] for i in range(1, n))) / 2)
    return np.array([[c[t - s] if 0 <= t - s < band else 0.0 for s in range(T)] for t in range(T)])


def tree(T, refined):
    """Nodes in the order in which they are complete, as rows that mark their steps."""
    rows = []
    for t in range(1, T + 1):
        widths = [2**level for level in range(20) if t % 2**level == 0]
        for width in widths if refined else widths[-1:]:
            rows.append([float(t - width < s <= t) for s in range(1, T + 1)])
    return np.array(rows)


def honaker(T):
    """The matrix B that goes with the refined tree: weights 1 / (2 - 2^-l) for a node, the rest for its children."""
    nodes = [(t, 2**level) for t in range(1, T + 1) for level in range(20) if t % 2**level == 0]

    def estimate(end, width):
        own = np.eye(len(nodes))[nodes.index((end, width))]
        if width == 1:
            return own
        half, weight = width // 2, 1 / (2 - 1 / width)
        return weight * own + (1 - weight) * (estimate(end - half, half) + estimate(end, half))

    rows = []
    for t in range(1, T + 1):
        row, end = 0.0, t
        while end:
            width = end & -end
            row, end = row + estimate(end, width), end - width
        rows.append(row)
    return np.stack(rows)


def strategy(factorisation):
    """The matrix C of a factorisation of dpskl, by its kind and numbers."""
    if isinstance(factorisation, Restarted):
        passes = factorisation.n_steps // factorisation.inner.n_steps
        return np.kron(np.eye(passes), strategy(factorisation.inner))
    if isinstance(factorisation, SquareRoot):
        return root(factorisation.n_steps, factorisation.band)
    return tree(factorisation.n_steps, factorisation.refined)


def largest_move(C, period):
    """Largest norm of what a record adds to C G: over its place in a pass and all signs of its unit steps."""
    worst = 0.0
    for first in range(period):
        columns = C[:, first::period]
        signs = product((1.0, -1.0), repeat=columns.shape[1]) if columns.shape[1] < 9 else [np.ones(columns.shape[1])]
        worst = max(worst, *(float(np.linalg.norm(columns @ sign)) for sign in signs))
    return worst


FACTORISATIONS = [  # with the steps of a pass
    (SquareRoot(1, 1), 1),
    (SquareRoot(12, 1), 4),
    (SquareRoot(12, 4), 4),
    (SquareRoot(12, 7), 4),
    (SquareRoot(12, 12), 3),
    (SquareRoot(9, 9), 9),
    (SquareRoot(6, 3), 1),
    *((BinaryTree(T, refined), period) for T, period in ((1, 1), (12, 4), (15, 5), (16, 16), (13, 13), (6, 1), (24, 3))
      for refined in (False, True)),
    (Restarted(12, SquareRoot(4, 4)), 4),
    (Restarted(12, SquareRoot(4, 2)), 4),
    (Restarted(15, BinaryTree(5)), 5),
    (Restarted(15, BinaryTree(5, refined=True)), 5),
]  # fmt: skip


def check_participation_norms():
    """The norm that is stated is the largest over patterns; no more, no less."""
    for factorisation, period in FACTORISATIONS:
        worst = largest_move(strategy(factorisation), period)
        assert np.isclose(factorisation.participation_norm(period), worst, rtol=1e-12), (factorisation, period)


def noise_matrix(factorisation):
    """B, read off by drawing the columns of the identity."""
    counts = []
    for _ in factorisation.rows(lambda count: counts.append(count) or np.zeros((count, 1))):
        pass
    units, place = np.eye(sum(counts)), 0

    def draw(count):
        nonlocal place
        place += count
        return units[place - count : place]

    return np.stack(list(factorisation.rows(draw))), counts


def check_factorisations():
    """B C is the matrix of prefix sums, rows have the stated variance, and step t uses nothing of later steps."""
    for factorisation, _ in FACTORISATIONS:
        C, (B, counts) = strategy(factorisation), noise_matrix(factorisation)
        if isinstance(factorisation, BinaryTree) and factorisation.refined:
            np.testing.assert_allclose(B, honaker(factorisation.n_steps), atol=1e-12)
        np.testing.assert_allclose(B @ C, prefixes(factorisation.n_steps), atol=1e-12)
        np.testing.assert_allclose(factorisation.variances(), np.square(B).sum(axis=1), rtol=1e-12)
        last = np.cumsum(counts)
        for t in range(factorisation.n_steps):
            assert not B[t, last[t] :].any()
            assert not C[: last[t], t + 1 :].any()
        assert (C >= 0).all()


def check_prefix_sums():
    """What one record moves of C G in a run of the mechanism, in units of the noise it drew: mu at most, and nearly."""
    mu, n, clip = 0.8, 7, 0.3
    kinds = [(SquareRoot(9, 3), 3), (SquareRoot(9, 9), 3), (BinaryTree(9), 3), (BinaryTree(9, True), 3),
             (Restarted(9, BinaryTree(3)), 3)]  # fmt: skip
    for (factorisation, period), K, (neighbours, changed) in product(kinds, (1, 3), NEIGHBOURS.items()):
        mechanism = PrefixSums(clip, mu, factorisation, 3, "rows", neighbours, n, 2)
        assert mechanism.steps_in_pass == period
        C, worst = strategy(factorisation), 0.0
        for place in range(n):
            X = np.tile([0.0, 1.0], (n, 1))
            first, scale = _prefix_sums(mechanism, X, K)
            X[place, 1] = -1.0  # at zero weights the gradient is turned round, and longer than the clip
            second, same = _prefix_sums(mechanism, X, K, place if changed == 1 else None)
            assert scale == same  # data do not choose the noise
            steps = np.diff(first - second, axis=0, prepend=0)
            worst = max(worst, float(np.linalg.norm(np.tensordot(C, steps, axes=1))) / scale)
        assert worst <= mu * (1 + 1e-4), (factorisation, K, neighbours, worst)
        assert worst >= 0.99 * mu, (factorisation, K, neighbours, worst)


class _WithGap(Problem):
    """A problem one of whose records is absent, and leaves its place empty."""

    absent: Any = None

    def batch(self, indices):
        return super().batch(indices[indices != self.absent])


def _prefix_sums(mechanism, X, K, absent=None):
    """All prefix sums at zero weights, shape (T, 2, K), and the scale of the noise."""
    loss = Logistic() if K == 1 else Softmax()
    problem = _WithGap(X, loss.encode(np.ones(len(X), dtype=int), max(K, 2)), loss, data_norm=1.0, n_outputs=K)
    problem.absent = absent
    tape, sums = Tape(1), []

    def respond(prefix):
        sums.append(prefix)
        return problem.zeros()

    mechanism.release(problem, respond, tape)
    (scale,) = {draw.scale for draw in tape.draws}
    return np.stack(sums).reshape(len(sums), 2, K), scale
