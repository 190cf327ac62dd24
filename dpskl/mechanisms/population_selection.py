"""Choose a few weights of a population that have a small loss, with noise."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from dpskl.accounting import Cost
from dpskl.mechanisms.noise import NoiseSource
from dpskl.mechanisms.selection import ClippedSelection, penalty_rounding, select_smallest_few, selection_cost
from dpskl.records.loss_changes import population_changes
from dpskl.records.problem import Problem

__all__ = ["PopulationSelection"]

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class PopulationSelection(ClippedSelection):
    r"""Release ``count`` of the given weights, chosen one after the other for a small objective.

    With ``c`` the centre of the population and ``r`` its radius, the largest ``||w_a - c||``, the score of candidate
    ``a`` is ``sum_i clip(l_i(w_a) - l_i(c)) + ridge ||w_a||^2 / 2``, each change clipped to ``[-r clip, r clip]``.

    Parameters
    ----------
    clip : float
        Largest change of a record's loss that is counted, per unit of the radius. The loss moves by at most the norm
        of the row times the largest slope, so a clip above that does nothing and is harmless.
    count : int
        How many are chosen.
    epsilon : float
        Budget of each of the ``count`` choices; ``inf`` for no noise.
    law : {"gumbel", "exponential"}
        See :mod:`~dpskl.mechanisms.selection`.
    neighbours : {"add_remove", "replace_one"}
    n_samples, n_features : int
        Public size, for the rounding of the float64 sums.

    Notes
    -----
    The population is made of earlier releases and public numbers, so its centre and radius are public. A
    record adds a number in ``[-r clip, r clip]`` to each score, so differences of scores move by at most ``2 r clip``
    (add_remove) or ``4 r clip`` (replace_one): the "enhanced" exponential mechanism of Zhang, Xiao, Yang, Zhang &
    Winslett (2013), whose sensitivity shrinks with the population. ``sensitivity`` and ``noise_scale`` are stated for
    a radius of 1.
    """

    clip: float
    count: int
    epsilon: float
    law: str
    neighbours: str
    n_samples: int
    n_features: int

    name = "noisy choice of the best of a population of weights, per unit of its radius"
    theorem = "exponential mechanism (Gumbel noise) or permute-and-flip (exponential noise), one for each choice"

    @property
    def cost(self) -> Cost:
        return selection_cost(self.epsilon, self.law, self.count)

    def release(self, problem: Problem, population: Array, ridge: float, noise: NoiseSource) -> list[int]:
        """Return the indices of the chosen candidates; ``population`` has shape (m, n_weights, n_outputs)."""
        flat = population.reshape(len(population), -1)
        centre = flat.mean(axis=0)
        radius = float(np.sqrt(np.square(flat - centre).sum(axis=1).max()))
        losses = population_changes(problem, population, centre.reshape(population.shape[1:]), radius * self.clip)
        penalties = ridge / 2 * np.square(flat).sum(axis=1)
        spread = radius * self.sensitivity + penalty_rounding(penalties)
        return select_smallest_few(losses + penalties, self.count, spread, self.epsilon, noise, self.law)
