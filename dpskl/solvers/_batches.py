"""What the solvers that descend on noisy batches share: batches, noise, step rule and the average of the iterates."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from math import inf, sqrt
from typing import Any, ClassVar

import numpy as np

from dpskl.accounting import gaussian_mu, sampled_noise_multiplier
from dpskl.curator import Curator
from dpskl.mechanisms.base import Mechanism
from dpskl.mechanisms.gradient import GaussianGradient
from dpskl.mechanisms.poisson_sample import PoissonSample
from dpskl.records.row_maps import ROW_MAPS
from dpskl.solvers._checks import check_choice, check_count, check_number, check_sampling, check_step
from dpskl.solvers.base import Outcome, Plan, PublicFacts, Solver, refuse_pure
from dpskl.solvers.gradient_descent import effective_clip

__all__ = ["BatchDescent", "Batches", "Move", "Questions", "Step", "on_samples"]

Array = np.ndarray[Any, Any]
Move = Callable[[Array, Array], Array]  # of weights and a mean gradient
Step = Callable[[Array], Array]  # of weights alone: it asks what it needs
Questions = tuple[tuple[Mechanism, int], ...]

# The constants of the default rules. Accuracy is flat in all of them, see docs/solvers.md.
_STEPS = 150
_PASSES = 5.0  # over the data, in expectation
_NOISE_MULTIPLIER = 2.0  # of a batch, at least: below, sampling loses more than a few per cent of the budget
_SMALLEST_BATCH = 512  # below, a step takes no less time
# A budget far from rounding: T releases at mu / sqrt(T) must not sum to more than mu.
_SAFE = 1 - 1e-12


@dataclass(frozen=True)
class Batches:
    """What ``run`` needs besides the question.

    Attributes
    ----------
    size : float
        Expected number of records of a batch, ``rate * n``. Sums are divided by it: the real number is not public.
    noise : float
        Standard deviation of the noise of each entry of a mean gradient.
    clip_norm : float
    step : float
    penalty : float
        ``1 / (C n)``, the strength of the penalty beside the mean of the losses.
    """

    size: float
    noise: float
    clip_norm: float
    step: float
    penalty: float


def _default_rate(facts: PublicFacts, mu: float, n_steps: int) -> float:
    """Return the smallest rate at which sampling costs little beside the noise.

    Batches of ``rate * n`` add to the mean of the gradients along the path a variance of ``1 / (rate n_steps)`` times
    that which the records have anyway, as a sample from a population; and the noise multiplier of a batch is about
    ``rate sqrt(n_steps) / mu``.
    """
    enough = _PASSES / n_steps, _NOISE_MULTIPLIER * mu / sqrt(n_steps), _SMALLEST_BATCH / facts.n_samples
    return min(1.0, max(enough))


def on_samples(question: Mechanism, rate: float) -> Mechanism:
    """Return the question about a Poisson sample, or about all records for the rate 1."""
    return question if rate == 1 else PoissonSample(question, rate)


class BatchDescent(Solver):
    """A descent each step of which asks for one clipped, noisy gradient sum on a Poisson batch of its own.

    Subclasses say how long a step is and what becomes of a mean gradient; both are post-processing. Those that ask for
    other sums replace ``questions`` and ``stepper`` instead.
    """

    rate: float | None
    batch_size: int | None
    max_iter: int | None
    step_size: float | None
    clip_norm: float | None
    iterate: str
    step_power: ClassVar[int] = 2  # a step is a number over the row norm to this power

    @abstractmethod
    def step_rule(self, facts: PublicFacts, mu: float, n_steps: int, clip_norm: float) -> float:
        """Return the step where none is given.

        ``mu`` is the Gaussian privacy parameter at which gradients of all records would have as much noise.
        """

    @abstractmethod
    def mover(self, batches: Batches) -> Move:
        """Return a function from weights and a mean gradient to the next weights; it may keep a state."""

    def questions(self, gradient: GaussianGradient, facts: PublicFacts, rate: float, n_steps: int) -> Questions:
        """Return what is asked in ``n_steps`` steps, each at the cost of ``gradient`` on a sample of this rate."""
        return ((on_samples(gradient, rate), n_steps),)

    def stepper(self, curator: Curator, plan: Plan) -> Step:
        """Return a function from weights to the next weights, which asks the curator."""
        ((question, _),) = plan.questions
        batches: Batches = plan.settings
        move = self.mover(batches)
        return lambda weights: move(weights, curator.ask(question, weights) / batches.size)

    def plan(self, facts: PublicFacts, epsilon: float, delta: float) -> Plan:
        self.check_parameters()
        refuse_pure(self.name, delta)
        n_steps = _STEPS if self.max_iter is None else self.max_iter
        mu = gaussian_mu(epsilon, delta) * _SAFE
        rate = self._given_rate(facts)
        if rate is None or rate < 1:
            check_sampling(self.name, facts.neighbours, epsilon, delta, "rate=1")
        if rate is None:
            rate = _default_rate(facts, mu, n_steps)
        each = mu / sqrt(n_steps)
        if rate < 1:
            noise = sampled_noise_multiplier(epsilon, delta, rate, n_steps)
            each = inf if noise == 0 else 1 / noise
            mu = rate * sqrt(n_steps) * each
        largest = self.problem_loss(facts).gradient_bound(facts.n_outputs) * facts.row_norm
        clip_norm = effective_clip(self.clip_norm, largest, facts, mu)
        step = self.step_rule(facts, mu, n_steps, clip_norm) if self.step_size is None else self.step_size
        check_step(step, facts.row_norm, self.step_power)
        gradient = GaussianGradient(clip_norm, each, facts.neighbours, facts.n_samples, facts.n_features)
        size = rate * facts.n_samples
        batches = Batches(size, gradient.noise_scale / size, clip_norm, step, 1 / facts.C / facts.n_samples)
        return Plan(self.questions(gradient, facts, rate, n_steps), 1 / facts.C, batches)

    def _given_rate(self, facts: PublicFacts) -> float | None:
        return self.rate if self.batch_size is None else min(1.0, self.batch_size / facts.n_samples)

    def run(self, curator: Curator, plan: Plan) -> Outcome:
        n_steps = plan.n_questions
        step = self.stepper(curator, plan)
        weights = curator.zeros()
        total = np.zeros_like(weights)
        for t in range(n_steps):
            weights = step(weights)
            if t >= n_steps // 2:
                total += weights
        if self.iterate == "average":
            weights = total / (n_steps - n_steps // 2)
        return Outcome(weights, n_steps, clip_norm=plan.settings.clip_norm)

    def check_parameters(self) -> None:
        """Raise unless all parameters are in their ranges."""
        check_number("rate", self.rate, 0, 1, closed_high=True, optional=True)
        check_count("batch_size", self.batch_size, optional=True)
        if self.rate is not None and self.batch_size is not None:
            raise ValueError(
                f"rate={self.rate!r} and batch_size={self.batch_size!r} say the same thing; leave one of them at None"
            )
        check_count("max_iter", self.max_iter, optional=True)
        for name in ("step_size", "clip_norm"):
            check_number(name, getattr(self, name), optional=True)
        check_choice("iterate", self.iterate, ("average", "last"))
        check_choice("rows", self.rows, ROW_MAPS)
