"""Grid and tails of a composition, chosen from the question asked."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from dpskl.accounting._laws import Law
from dpskl.accounting._tilting import TiltedSum, make_part, tilted
from dpskl.accounting.privacy_loss import Composition, discretise

_TOLERANCE = 5e-5  # change of epsilon by splitting, relative to epsilon
_TAIL_SHARE = 1e-7  # of delta, for all the tails together
_SMALLEST_TAIL = 1e-290
_TRIAL_TAILS = (1e-4, 1e-8, 1e-12, 1e-17, 1e-24, 1e-36, 1e-54, 1e-80, 1e-120, 1e-180, _SMALLEST_TAIL)
_LARGEST_GRID = 2**18  # points of one law
_LARGEST_TRANSFORM = 2**20
_WIDEST_SHARE = 1.0 / 64.0  # of the window


def compose_laws(
    laws: Sequence[tuple[Law, int]], *, epsilon: float | None = None, delta: float | None = None
) -> Composition:
    """Compose laws on a grid that suits one question: delta at ``epsilon``, or epsilon at ``delta``.

    Parameters
    ----------
    laws : sequence of (Law, int)
        Laws with finite losses, and how often each occurs.
    epsilon, delta : float, optional
        The question; exactly one is given.

    Returns
    -------
    Composition
        Its answers are valid at any point, and accurate near the one asked for.
    """
    releases = sum(count for _, count in laws)
    log_delta = math.log(delta) if delta is not None else _chernoff(laws, float(epsilon or 0.0))
    tail = max(_SMALLEST_TAIL, min(1e-3, math.exp(max(-660.0, log_delta)) * _TAIL_SHARE / releases))
    symmetric = all(law.symmetric for law, _ in laws)
    questions = [
        _Question(_sums(laws, removal, tail), epsilon, log_delta) for removal in (True, False)[: 2 - symmetric]
    ]
    interval = _interval(questions, epsilon is not None)
    if epsilon is not None and epsilon > interval:  # the profile is exact to second order at grid points
        interval = epsilon / math.ceil(epsilon / interval)
    return Composition([(discretise(law, interval, tail), count) for law, count in laws])


def _sums(laws: Sequence[tuple[Law, int]], removal: bool, tail: float) -> TiltedSum:
    parts = []
    for law, count in laws:
        atoms = law.atoms(removal, tail, None)
        parts.append(make_part(atoms.losses, atoms.masses, count))
    return TiltedSum(parts)


def _chernoff(laws: Sequence[tuple[Law, int]], epsilon: float) -> float:
    """Logarithm of a rough upper bound on delta at an epsilon, to place the tails.

    A cut adds its mass to delta and lowers the Chernoff bound of the rest, by much where tails are heavy: the
    best of several cuts counts.
    """
    best = 0.0
    for tail in _TRIAL_TAILS:
        cut = math.log(tail * sum(count for _, count in laws))
        rest = max(_sums(laws, removal, tail).tilt_for_epsilon(epsilon)[1] for removal in (True, False))
        best = min(best, float(np.logaddexp(cut, rest)))
        if cut < best - 3.0:  # smaller cuts only lengthen the tails
            break
    return best


class _Question:
    """One direction with the tilt of its Chernoff bound, and what splitting over a grid does to it."""

    def __init__(self, total: TiltedSum, epsilon: float | None, log_delta: float) -> None:
        if epsilon is None:
            self.theta, self.epsilon = total.tilt_for_delta(log_delta)
            self.log_delta = log_delta
        else:
            self.theta, self.log_delta = total.tilt_for_epsilon(epsilon)
            self.epsilon = epsilon
        self.parts = total.parts
        self.weights = [tilted(part, self.theta) for part in total.parts]
        self.longest = max(float(np.ptp(part.losses)) for part in total.parts)
        bottom, top, _ = total.window(self.theta)
        self.width = max(top - bottom, self.longest / 1024.0)

    def inflation(self, interval: float) -> float:
        """Variance that splitting adds: the mean of (loss - low)(high - loss), h^2/6 beyond the first bin."""
        added = 0.0
        for part, weight in zip(self.parts, self.weights, strict=True):
            size = np.abs(part.losses)
            split = np.where(size < interval, size * (interval - size), interval**2 / 6.0)
            added += part.times * float(weight @ split)
        return added


def _interval(questions: Sequence[_Question], fixed_epsilon: bool) -> float:
    """Widest interval whose splitting keeps the tolerance, within the largest grid.

    Splitting adds variance I to the sum (and I/2 to its mean), under the tilt theta: log delta grows by
    theta (theta + 1) I / 2 and epsilon by (theta + 1) I / 2. Only the larger direction decides the answer,
    so the error of the other is measured against it.
    """
    width = max(question.width for question in questions)
    smallest = max(width / _LARGEST_TRANSFORM, max(question.longest for question in questions) / _LARGEST_GRID)
    if width <= 0.0:
        return max(questions[0].epsilon, 1e-12)
    largest = max(questions, key=lambda question: (question.log_delta, question.epsilon))

    def accurate(interval: float) -> bool:
        for question in questions:
            added = (question.theta + 1.0) * question.inflation(interval) / 2.0
            if added > _TOLERANCE * max(largest.epsilon, 1e-3 * question.width):
                return False
            slack = math.exp(min(50.0, largest.log_delta - question.log_delta))
            if fixed_epsilon and added * max(question.theta, 1.0 / width) > 4.0 * _TOLERANCE * slack:
                return False
        return True

    interval = width * _WIDEST_SHARE
    while interval > smallest and not accurate(interval):
        interval *= 0.75
    return max(interval, smallest)
