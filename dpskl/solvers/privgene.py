"""PrivGene: move one weight at a time, each move chosen by a private selection."""

from __future__ import annotations

from dataclasses import dataclass
from math import isinf, sqrt
from typing import Any

import numpy as np

from dpskl.accounting import bounded_range_epsilon
from dpskl.curator import Curator
from dpskl.mechanisms.coordinate_selection import CoordinateSelection
from dpskl.mechanisms.population_selection import PopulationSelection
from dpskl.records.row_maps import ROW_MAPS
from dpskl.solvers._checks import check_choice, check_count, check_number
from dpskl.solvers._selections import capacity_for, rounds_for, selection_capacity
from dpskl.solvers.base import Outcome, Plan, PublicFacts, Solver

__all__ = ["PrivGene"]

Array = np.ndarray[Any, Any]

# The constants of the default rules.
_STEPS = (2.0, 0.5)  # first and last step, in units of 1 / data_norm
_MOST_ROUNDS = 200
_CLIP_SHARE = 1 / 5
_FEWEST_GENERATIONS = 8
_LARGEST_MOVE = 500.0  # of a score by one step; beyond, exponentials overflow


@dataclass(frozen=True)
class _Schedule:
    """What ``run`` needs besides the questions."""

    steps: tuple[float, ...]
    population: int  # 0 for none


class PrivGene(Solver):
    r"""Start from zero weights and take, in each round, the best of all moves of one weight, chosen with noise.

    Candidates of a round are ``w`` and ``w + step e`` and ``w - step e`` for every weight. The step shrinks
    geometrically. Each choice is one private selection, whose noise is in proportion to the step.

    Parameters
    ----------
    max_iter : int or None, default=None
        Number of rounds. ``None``: ``0.7 (q / clip)^(2/3)``, between 1 and 200, where ``clip`` is in units of
        ``data_norm`` and ``q = n sqrt(8 rho) / (2 c log m)``: ``m`` the number of candidates, ``c`` 1 for add_remove
        and 2 for replace_one, ``rho`` the zero-concentrated budget. ``q / clip`` is how many noise levels of a single
        selection with the whole budget the records add up to. The noise of a round grows with the square root of the
        number of rounds and the distance that is left shrinks with it, which this balances. With ``delta=0`` noise
        grows with the number of rounds itself: ``sqrt(q / clip)`` with ``q = n epsilon / (2 c log m)``. A population
        has that number over ``parents``, but at least 8.
    step_size : float or None, default=None
        First step. ``None``: ``2 / data_norm``.
    final_step_size : float or None, default=None
        Last step. ``None``: a quarter of the first.
    clip : float or None, default=None
        Largest change of a record's loss that is counted, for a step of 1 (for a population: a radius of 1). An entry
        of a row that is larger in absolute value is counted as this. ``None``: ``data_norm`` times the largest of
        1/5, ``1/sqrt(d)`` and what the budget allows at 200 rounds, so that without noise nothing is clipped; for a
        population, a fifth of the largest gradient norm. Larger values than any record can reach are replaced.
    population : int or None, default=None
        ``None``: moves of one weight. A number keeps a population of that size instead, as the paper does: parents are
        chosen privately, offspring mix the weights of two parents and move one of them by the step. Every parent of
        every generation is paid for, so this needs far more budget.
    parents : int, default=10
        Parents of each generation, at most ``population``; used with a population only.
    rows : {"fill", "clip", "sphere"}, default="fill"
        The row map (:mod:`dpskl.records.row_maps`). ``"clip"`` scales longer rows down to ``data_norm``, ``"sphere"``
        brings every row, its constant included, to that norm, up or down, and ``"fill"`` does the one after the other.
        Noise is for the longest row that there could be: with the last two no row is shorter.

    Notes
    -----
    ``delta > 0``: exponential mechanism by Gumbel noise, bounded range, composed by Renyi divergences. ``delta=0``:
    permute-and-flip, whose epsilons add up. Nothing is asked of the loss, so the hinge works: a record counts by the
    loss that a candidate saves it, within the clip. To stay is a candidate too.

    More than two classes share one matrix of weights, of which one entry moves in each round.

    Offspring are made by a fixed public generator; nothing about them has to be secret.

    References
    ----------
    Zhang, Xiao, Yang, Zhang & Winslett (2013), SIGMOD (PrivGene, with a population). The form with moves of one
    weight is that of the code of Lee & Kifer (2018), KDD. Dong, Durfee & Rogers (2020), ICML, prove the bounded
    range, which costs a quarter of the ``rho`` that this code charges.
    """

    name = "privgene"
    rank = 5
    is_pure = True

    def __init__(
        self,
        max_iter: int | None = None,
        step_size: float | None = None,
        final_step_size: float | None = None,
        clip: float | None = None,
        population: int | None = None,
        parents: int = 10,
        rows: str = "fill",
    ) -> None:
        self.max_iter = max_iter
        self.step_size = step_size
        self.final_step_size = final_step_size
        self.clip = clip
        self.population = population
        self.parents = parents
        self.rows = rows

    def plan(self, facts: PublicFacts, epsilon: float, delta: float) -> Plan:
        self._check_parameters()
        capacity = selection_capacity(facts, epsilon, delta, 2 * facts.n_weights * facts.n_outputs + 1)
        clip = self._clip(facts, capacity, delta)
        rounds = self._rounds(capacity * facts.data_norm / clip, delta)
        schedule = _Schedule(self._steps(facts, rounds), self.population or 0)
        law = "exponential" if delta == 0 else "gumbel"
        size = (facts.neighbours, facts.n_samples, facts.n_features)
        if self.population is None:
            each = bounded_range_epsilon(epsilon, delta, rounds)
            return Plan(((CoordinateSelection(clip, each, law, *size), rounds),), 1 / facts.C, schedule)
        each = bounded_range_epsilon(epsilon, delta, (rounds - 1) * self.parents + 1)
        choose = PopulationSelection(clip, self.parents, each, law, *size)
        last = PopulationSelection(clip, 1, each, law, *size)
        return Plan(((choose, rounds - 1), (last, 1)), 1 / facts.C, schedule)

    def _clip(self, facts: PublicFacts, capacity: float, delta: float) -> float:
        if self.population is None:
            largest = max(facts.data_norm, facts.intercept)
            # what is left of the budget beyond the largest number of rounds pays for less clipping
            affordable = capacity / capacity_for(_MOST_ROUNDS, delta)
            default = facts.data_norm * max(_CLIP_SHARE, 1 / sqrt(facts.n_features), affordable)
        else:
            largest = self.problem_loss(facts).gradient_bound(facts.n_outputs) * facts.row_norm
            default = _CLIP_SHARE * largest
        return min(default if self.clip is None else float(self.clip), largest)

    def _rounds(self, capacity: float, delta: float) -> int:
        if self.max_iter is not None:
            return self.max_iter
        if isinf(capacity):
            return _MOST_ROUNDS
        rounds, fewest = rounds_for(capacity, delta), 1
        if self.population is not None:
            rounds, fewest = rounds / self.parents, _FEWEST_GENERATIONS
        return round(min(max(rounds, fewest), _MOST_ROUNDS))

    def _steps(self, facts: PublicFacts, rounds: int) -> tuple[float, ...]:
        first = _STEPS[0] / facts.data_norm if self.step_size is None else float(self.step_size)
        last = first * _STEPS[1] / _STEPS[0] if self.final_step_size is None else float(self.final_step_size)
        largest = max(facts.data_norm, facts.intercept)
        for name, step in (("step_size", first), ("final_step_size", last)):
            if step * largest > _LARGEST_MOVE:
                raise ValueError(
                    f"{name}={step:g} moves a score by up to {step * largest:g}; with data_norm="
                    f"{facts.data_norm:g} it must not exceed {_LARGEST_MOVE / largest:g}"
                )
        return tuple(float(step) for step in np.geomspace(first, last, rounds))

    def run(self, curator: Curator, plan: Plan) -> Outcome:
        schedule: _Schedule = plan.settings
        if schedule.population:
            return self._evolve(curator, plan, schedule)
        ((question, _),) = plan.questions
        weights = curator.zeros()
        for step in schedule.steps:
            weights = curator.ask(question, weights, step, plan.ridge)
        return Outcome(weights, len(schedule.steps))

    def _evolve(self, curator: Curator, plan: Plan, schedule: _Schedule) -> Outcome:
        (choose, _), (last, _) = plan.questions
        public = np.random.default_rng(0)
        zeros = curator.zeros()
        parents = zeros.reshape(1, len(zeros), -1)
        for step in schedule.steps[:-1]:
            population = _offspring(parents, schedule.population, step, public)
            parents = population[curator.ask(choose, population, plan.ridge)]
        population = _offspring(parents, schedule.population, schedule.steps[-1], public)
        (best,) = curator.ask(last, population, plan.ridge)
        return Outcome(population[best].reshape(zeros.shape), len(schedule.steps))

    def _check_parameters(self) -> None:
        check_count("max_iter", self.max_iter, optional=True)
        for name in ("step_size", "final_step_size", "clip"):
            check_number(name, getattr(self, name), optional=True)
        check_choice("rows", self.rows, ROW_MAPS)
        check_count("population", self.population, 2, optional=True)
        if self.population is None:
            return
        check_count("parents", self.parents)
        if self.parents > self.population:
            raise ValueError(f"parents={self.parents} exceeds population={self.population}; lower it")
        if self.max_iter == 1:
            raise ValueError("max_iter=1 leaves a population without parents; choose at least 2")


def _offspring(parents: Array, count: int, step: float, public: np.random.Generator) -> Array:
    """Return ``count`` mixtures of two parents each, with one weight moved; shape (count, n_weights, n_outputs)."""
    mothers, fathers = (parents[public.integers(len(parents), size=count)] for _ in range(2))
    offspring = np.where(public.random(mothers.shape) < 0.5, mothers, fathers)
    flat = offspring.reshape(count, -1)
    moved = public.integers(flat.shape[1], size=count)
    flat[np.arange(count), moved] += step * public.choice([-1.0, 1.0], size=count)
    return offspring
