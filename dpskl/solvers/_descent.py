"""What the solvers that choose their steps by asking the data share: measurements, step ranges, budgets, a logbook."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field, replace
from math import ceil, inf, sqrt
from typing import Any

import numpy as np

from dpskl.accounting import Cost, RDPCost, RDPOrder
from dpskl.curator import Curator
from dpskl.mechanisms.gradient import GaussianGradient
from dpskl.mechanisms.poisson_sample import PoissonSample
from dpskl.records.losses import Loss
from dpskl.solvers._checks import check_number

__all__ = [
    "FullBatchMeter", "Logbook", "Measurement", "Meter", "OutOfTokens", "SampledMeter", "StepRange", "angle",
    "budget_curve", "check_objective_clip", "default_objective_clip",
]  # fmt: skip

Array = np.ndarray[Any, Any]

# Orders of the table that a run-time budget is made of, around the order that suits the target: 1 + (order - 1) r^j.
_ORDER_RATIO = 1.5
_ORDER_POWERS = range(-8, 7)
# Leeway at the other orders, so that the order of the target decides even where the mix of questions shifts.
_LEEWAY = 1.1
# Losses are float32: a clip of 1e-8 is lost next to the 1 of log(1 + e), one of 1e-3 has 8000 steps, and decay takes it
# to a hundredth. A larger clip than 1e6 pays for rounding of sums that no loss needs.
_OBJECTIVE_CLIPS = (1e-3, 1e6)
_SMALLEST_STEP = 1e-4  # shrinking stops at this share of the first largest step


def check_objective_clip(value: float | None) -> None:
    """Raise unless a clip of losses is ``None`` or one that float32 losses resolve."""
    check_number("objective_clip", value, *_OBJECTIVE_CLIPS, closed=True, optional=True)


def default_objective_clip(loss: Loss, n_outputs: int) -> float:
    """Return three times the loss at zero scores; a clip near that loss would write off a rare class."""
    targets = loss.encode(np.zeros(1, dtype=int), max(2, n_outputs))
    shape = (1,) if n_outputs == 1 else (1, n_outputs)
    return 3 * float(loss.values(np.zeros(shape), targets)[0])


def budget_curve(order: RDPOrder, questions: list[tuple[Cost, int]]) -> RDPCost:
    """Return the Renyi budget of a run that mixes questions about as listed.

    At the order of the target the budget is what the target allows. At the others it is what the listed questions would
    add up to by then, and a tenth more.
    """
    total = sum(count * cost.rdp(order.alpha) for cost, count in questions)
    orders, values = [], []
    for power in _ORDER_POWERS:
        alpha = 1 + (order.alpha - 1) * _ORDER_RATIO**power if power else order.alpha
        share = sum(count * cost.rdp(alpha) for cost, count in questions) / total if total < inf else inf
        orders.append(alpha)
        values.append(order.budget if power == 0 else _LEEWAY * order.budget * share)
    return RDPCost(orders, values)


def angle(first: Array, second: Array | None) -> float:
    """Return the angle between two gradients in radians; ``inf`` where there is no second."""
    if second is None:
        return inf
    lengths = float(np.linalg.norm(first) * np.linalg.norm(second))
    return float(np.arccos(np.clip((first * second).sum() / lengths, -1, 1))) if lengths > 0 else 0.0


class OutOfTokens(Exception):  # noqa: N818
    """The planned number of questions of one kind has been asked."""


class Meter(ABC):
    """Measures gradient sums with a noise that may be lowered as the descent goes on.

    ``level`` is proportional to the inverse variance of one measurement; measurements at the same weights are averaged
    with their levels as weights, which has the variance of one measurement at the sum of the levels.
    """

    level: float

    @abstractmethod
    def ask(self, curator: Curator, weights: Array, level: float, clip_norm: float) -> Array:
        """Return an unbiased measurement of the clipped gradient sum over all records."""

    @abstractmethod
    def extra(self, xi: float) -> float:
        """Return the level of an additional measurement of about ``xi`` times the present one."""


@dataclass
class FullBatchMeter(Meter):
    """Gaussian noise on the gradient sum over all records; ``level`` is the squared mu."""

    question: GaussianGradient

    def __post_init__(self) -> None:
        self.level = self.question.mu**2

    def ask(self, curator: Curator, weights: Array, level: float, clip_norm: float) -> Array:
        answer: Array = curator.ask(replace(self.question, mu=sqrt(level), clip_norm=clip_norm), weights)
        return answer

    def extra(self, xi: float) -> float:
        return xi * self.level


@dataclass
class SampledMeter(Meter):
    """Means of answers on fresh Poisson samples; ``level`` is their number."""

    question: PoissonSample
    parts: int
    tokens: int

    def __post_init__(self) -> None:
        self.level = self.parts

    def ask(self, curator: Curator, weights: Array, level: float, clip_norm: float) -> Array:
        if self.tokens < level:
            raise OutOfTokens
        self.tokens -= int(level)
        question = replace(self.question, mechanism=replace(self.question.mechanism, clip_norm=clip_norm))  # type: ignore[type-var]
        total = sum(curator.ask(question, weights) for _ in range(int(level)))
        return total / (level * self.question.rate)

    def extra(self, xi: float) -> float:
        return ceil(xi * self.level)


class Measurement:
    """A gradient sum, measured once or several times at the same weights."""

    def __init__(self, meter: Meter, curator: Curator, weights: Array, clip_norm: float) -> None:
        self._meter, self._curator, self._weights, self._clip_norm = meter, curator, weights, clip_norm
        self.count = 0
        self.anew()

    def anew(self) -> None:
        """Replace it by another one of the same level."""
        self.level = self._meter.level
        self.gradient = self._ask(self.level)

    def raise_level(self, xi: float) -> None:
        """Add a measurement of about ``xi`` times the level; later measurements start from the sum."""
        more = self._meter.extra(xi)
        again = self._ask(more)
        share = more / (self.level + more) if more < inf else 1.0  # without noise both are the same
        self.gradient = self.gradient + share * (again - self.gradient)
        self.level = self._meter.level = self.level + more

    def _ask(self, level: float) -> Array:
        self.count += 1
        return self._meter.ask(self._curator, self._weights, level, self._clip_norm)


@dataclass
class StepRange:
    """The largest step that the next search tries; it follows the steps that were taken.

    Shrunk by ``psi`` after a failed search, and set to ``phi_max`` times the largest of the last ``tau`` steps after
    every ``tau`` updates; never above its first value, which noise must not raise, nor below a small share of it.
    """

    first: float
    psi: float
    tau: int
    phi_max: float
    taken: list[float] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.largest = self.first

    def accept(self, step: float) -> None:
        """Note a step that was taken."""
        self.taken.append(step)
        if len(self.taken) == self.tau:
            self.largest = min(self.phi_max * max(self.taken), self.first)
            self.taken.clear()

    def shrink(self) -> None:
        """Note a search that failed."""
        self.largest = max(self.psi * self.largest, _SMALLEST_STEP * self.first)


class Logbook:
    """Released values along the way, and the weights to return.

    Parameters
    ----------
    weights : ndarray
        Where the descent starts.
    average : bool
        Whether the weights to return are a mean of the iterates that favours the late ones (Shamir & Zhang 2013,
        polynomial-decay averaging with exponent 3).
    """

    def __init__(self, weights: Array, average: bool) -> None:
        self.weights = weights
        self.history: dict[str, list[Any]] = {}
        self._mean: Array | None = weights if average else None
        self.n_updates = 0

    def add(self, weights: Array, **values: Any) -> None:
        """Note an update."""
        self.n_updates += 1
        self.weights = weights
        if self._mean is not None:
            self._mean = self._mean + (4 / (self.n_updates + 3)) * (weights - self._mean)
        for name, value in values.items():
            self.history.setdefault(name, []).append(value)

    @property
    def result(self) -> Array:
        """The weights to return."""
        return self.weights if self._mean is None else self._mean
