"""The best step of a list, by private selection (the search of DP-AGD)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from dpskl.accounting import Cost
from dpskl.mechanisms.above_threshold import RaySearch, loss_range
from dpskl.mechanisms.noise import NoiseSource
from dpskl.mechanisms.selection import penalty_rounding, select_smallest, selection_cost
from dpskl.records.path import along_path
from dpskl.records.trainable import Trainable

__all__ = ["StepSelection"]

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class StepSelection(RaySearch):
    """Release the index of a step with a small sum of clipped losses.

    Parameters
    ----------
    epsilon : float
        Budget of the selection; ``inf`` for no noise.
    objective_clip : float
        Positive and finite; each record's loss is clipped to it.
    slope_bound : float
        Largest norm of the gradient of a record's loss in its scores.
    row_norm : float
        Bound on the norm of a row with its intercept.
    neighbours : {"add_remove", "replace_one"}
    n_samples, n_features : int
        Public size, for the rounding of the sums.

    Notes
    -----
    Exponential mechanism by Gumbel noise on the scores ``sum_i min(loss_i(w - t_j p), objective_clip) + penalty_j``;
    see :mod:`dpskl.mechanisms.selection`. One record adds to the scores numbers that lie in one interval, no longer
    than the clip nor than its loss can change along the ray (:func:`~dpskl.mechanisms.above_threshold.loss_range`), so
    differences of scores move by at most that length: the selection has epsilon-bounded range. Nothing is asked of
    the loss. The published code of DP-AGD adds exponential noise to losses and takes the smallest, which loses up to
    (number of steps - 1) times the epsilon that it states.
    """

    epsilon: float
    objective_clip: float
    slope_bound: float
    row_norm: float
    neighbours: str
    n_samples: int
    n_features: int

    name = "choice of a step by clipped losses"
    theorem = "exponential mechanism of bounded range (Dong, Durfee & Rogers 2020)"

    @property
    def noise_scale(self) -> float:
        """Scale of the Gumbel noise along a long ray; along short ones it is smaller."""
        return self.sensitivity / self.epsilon

    @property
    def cost(self) -> Cost:
        return selection_cost(self.epsilon)

    def release(
        self,
        problem: Trainable,
        weights: Array,
        direction: Array,
        steps: Array,
        penalties: Array,
        noise: NoiseSource,
    ) -> int:
        """Return the index of the chosen step.

        Parameters
        ----------
        problem : Trainable
        weights, direction : ndarray of shape (n_weights,) or (n_weights, n_outputs)
            Made of earlier answers.
        steps, penalties : ndarray of shape (m,)
            Steps of at least 0, and what is added to the sum of losses at each.
        noise : NoiseSource
        """
        path = along_path(problem)
        spread = loss_range(self, weights, direction, float(max(steps)))
        spread += penalty_rounding(penalties)
        scores = path.losses_along(weights, direction, steps, self.objective_clip) + penalties
        return select_smallest(scores, spread, self.epsilon, noise)
