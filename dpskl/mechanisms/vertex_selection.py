"""Choose the vertex of an L1 ball towards which the objective falls most, with noise."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from dpskl.mechanisms.noise import NoiseSource
from dpskl.mechanisms.selection import ClippedSelection, penalty_rounding, select_smallest
from dpskl.records.path import Path
from dpskl.records.problem import Problem

__all__ = ["VertexSelection"]

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class VertexSelection(ClippedSelection):
    r"""Release ``(1 - share) w + share v`` for the vertex ``v = +-radius e_jk`` with a small linearised objective.

    The score of ``+-e_jk`` is ``+-(sum_i clip(x_ij) r_ik + ridge w_jk)``: the gradient of the objective along it, with
    the entries of rows clipped to ``[-clip, clip]`` and ``r_i`` the residuals of record ``i``, its loss's gradient in
    its scores.

    Parameters
    ----------
    clip : float
        Largest absolute entry of a row that is counted. A clip above the largest entry that a row can have does nothing
        and is harmless.
    epsilon : float
        Budget of one selection; ``inf`` for no noise.
    law : {"gumbel", "exponential"}
        See :mod:`~dpskl.mechanisms.selection`.
    neighbours : {"add_remove", "replace_one"}
    n_samples, n_features : int
        Public size, for the rounding of the float64 sums.

    Notes
    -----
    *Sensitivity.* Losses have slopes of at most 1 in every score (one-vs-rest and softmax too), so a record adds a
    number in ``[-clip, clip]`` to each score, whatever the row and the weights are, and differences of scores move by
    at most ``2 clip`` (add_remove) or ``4 clip`` (replace_one). Both are reached, by a row on an axis: its vertex and
    the opposite one move by ``clip`` each.

    *Free.* The penalty is public. Weights, ``share`` and ``radius`` may depend on earlier releases; of these only the
    weights have a part in the scores. Released is the vertex: the rest is made of it and of public numbers.
    """

    clip: float
    epsilon: float
    law: str
    neighbours: str
    n_samples: int
    n_features: int

    name = "noisy choice of the vertex of the L1 ball towards which the objective falls most"

    def release(
        self, problem: Problem | Path, weights: Array, share: float, radius: float, ridge: float, noise: NoiseSource
    ) -> Array:
        """Return the moved weights, of the shape of ``weights``: one pass and one column on a path, else two passes."""
        path = problem if isinstance(problem, Path) else Path(problem)
        penalties = ridge * weights.ravel()
        slopes = path.clipped_entries_gradient(weights, self.clip).ravel() + penalties
        spread = self.sensitivity + penalty_rounding(penalties)
        chosen = select_smallest(np.concatenate([slopes, -slopes]), spread, self.epsilon, noise, self.law)
        is_negative, place = divmod(chosen, len(slopes))
        return path.mixed(weights, 1 - share, place, -share * radius if is_negative else share * radius)
