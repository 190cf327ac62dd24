"""Choose the move of one weight that lowers the loss most, with noise."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from dpskl.mechanisms.noise import NoiseSource
from dpskl.mechanisms.selection import ClippedSelection, penalty_rounding, select_smallest
from dpskl.records.loss_changes import coordinate_changes
from dpskl.records.problem import Problem

__all__ = ["CoordinateSelection"]

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class CoordinateSelection(ClippedSelection):
    r"""Release one of the weights ``w``, ``w + step e_jk`` and ``w - step e_jk``, chosen for a small objective.

    The score of a candidate ``v`` is ``sum_i clip(l_i(v) - l_i(w)) + ridge (||v||^2 - ||w||^2) / 2``, each change
    clipped to ``[-step clip, step clip]``.

    Parameters
    ----------
    clip : float
        Largest change of a record's loss that is counted, per unit of the step. The loss moves by at most the
        absolute entry of the row, so a clip above the largest entry does nothing and is harmless.
    epsilon : float
        Budget of one selection; ``inf`` for no noise.
    law : {"gumbel", "exponential"}
        See :mod:`~dpskl.mechanisms.selection`.
    neighbours : {"add_remove", "replace_one"}
    n_samples, n_features : int
        Public size, for the rounding of the float64 sums.

    Notes
    -----
    A record adds a number in ``[-step clip, step clip]`` to each score (0 to that of ``w``), whatever the
    loss, the row and the weights are, so differences of scores move by at most ``2 step clip`` (add_remove) or ``4
    step clip`` (replace_one). ``sensitivity`` and ``noise_scale`` are stated for a step of 1. The step may depend on
    earlier releases, and so may the weights. The penalty is public.
    """

    clip: float
    epsilon: float
    law: str
    neighbours: str
    n_samples: int
    n_features: int

    name = "noisy choice of the best move of one weight, per unit of the step"

    def release(self, problem: Problem, weights: Array, step: float, ridge: float, noise: NoiseSource) -> Array:
        """Return the chosen weights, of the shape of ``weights``: one pass over the data."""
        columns = weights.reshape(len(weights), -1)
        changes = coordinate_changes(problem, columns if problem.n_outputs > 1 else weights, step, step * self.clip)
        penalties = np.stack([ridge * sign * (columns + sign / 2) for sign in (step, -step)])
        # the first candidate is to stay
        scores = np.concatenate([[0.0], (changes + penalties).ravel()])
        spread = step * self.sensitivity + penalty_rounding(penalties)
        chosen = select_smallest(scores, spread, self.epsilon, noise, self.law) - 1
        moved = columns.copy()
        if chosen >= 0:
            down, place = divmod(chosen, columns.size)
            moved.flat[place] += -step if down else step
        return moved.reshape(weights.shape)
