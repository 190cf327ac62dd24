r"""Noisy backtracking line search: the first step of a list that lowers the objective enough, by AboveThreshold.

The *range form*. Records enter through ``f(w) = sum_i min(loss_i(w), cap)`` only. Query ``j`` is

    q_j = f(w) - f(w - t_j p) - demand_j,

``w``, ``p``, the steps ``t_1 > ... > t_k`` and the demands being public or made of earlier answers. Released is the
first ``j`` with ``q_j + noise_j >= threshold noise``, or that there is none.

**How far one record moves the queries.** Its part is ``d_j = l(w) - l(w - t_j p)`` with ``l`` its clipped loss. All
``d_j`` lie in one interval that also holds 0 and whose length is at most

* ``cap``: ``l(w) - cap <= d_j <= l(w)``, the term ``l(w)`` being common to all of them;
* ``S = slope_bound * row_norm * t_1 ||p||``: along the ray ``l`` is Lipschitz with that constant per unit of
  ``t_j / t_1``, so the largest and the smallest value differ by at most ``S``.

The shorter one is the *range*. Under replace_one a record leaves and another comes: the parts add, and so do lengths.
Noise with scales in units of the range then costs :class:`~dpskl.accounting.AboveThresholdCost`; generic queries,
which a record moves both ways, would need twice the query noise. The range depends on released values alone, so it
may shrink as steps do.

Chen & Lee (2020), algorithm 1 (NoisyBTLS), state the mechanism without the range. Their claim for Gaussian noise does
not hold for AboveThreshold in general and holds here because of the common term; see docs/theory.md.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from dpskl.accounting import AboveThresholdCost
from dpskl.mechanisms.base import Mechanism
from dpskl.mechanisms.noise import NoiseSource
from dpskl.mechanisms.sensitivity import contributions, rounding_allowance
from dpskl.records.path import along_path
from dpskl.records.trainable import Trainable

__all__ = ["BacktrackingSearch", "RaySearch", "loss_range"]

Array = np.ndarray[Any, Any]

# Candidates whose losses are computed before the next noise is compared: most searches end in the first chunk.
_CHUNK = 4
# float32 ends at 3e38; a loss may add up the scores of many outputs.
_LARGEST_REACH = 1e30


class RaySearch(Mechanism):
    """A question about the clipped losses along a ray; subclasses are dataclasses with these fields."""

    objective_clip: float
    slope_bound: float
    row_norm: float
    neighbours: str
    n_samples: int
    n_features: int

    @property
    def sensitivity(self) -> float:
        """Largest range: that of a long ray."""
        return self.objective_clip * contributions(self.neighbours)


def loss_range(mechanism: RaySearch, weights: Array, direction: Array, longest_step: float) -> float:
    """Return the length of the interval in which one record's loss moves along a ray, times the records that differ.

    Parameters
    ----------
    mechanism : RaySearch
    weights, direction : ndarray
        Released values.
    longest_step : float

    Returns
    -------
    float
        The smaller of the clip and the Lipschitz bound, with allowances. Losses are computed in float32: scores of at
        most ``reach`` meet 5 roundings of 2^-24 and values, of at most 3.1 + reach, 3. Sums over ``slope_bound^2``
        outputs are made in float64, so that two losses are off by less than ``2^-17 (slope_bound^2 + slope_bound
        reach)``. The sums of losses are made in float64 too, where a logarithm of a product rounds as terms of size 1
        do, however small the clip.

    Raises
    ------
    ValueError
        If scores could leave float32, where one record would make a sum infinite or no number at all.
    """
    length = longest_step * float(np.linalg.norm(direction))
    reach = mechanism.row_norm * (float(np.linalg.norm(weights)) + length)
    if not reach < _LARGEST_REACH:
        raise ValueError(
            f"a step of {longest_step:g} leads to scores of up to {reach:g}, too large for float32; "
            "lower initial_step or max_step"
        )
    slope = mechanism.slope_bound
    moved = slope * mechanism.row_norm * length + 2.0**-17 * (slope * slope + slope * reach)
    bound = min(mechanism.objective_clip, moved) * contributions(mechanism.neighbours)
    rounding = max(1, mechanism.objective_clip) * rounding_allowance(mechanism.n_samples, mechanism.n_features)
    return (bound + 2 * rounding) * (1 + 1e-9)


@dataclass(frozen=True)
class BacktrackingSearch(RaySearch):
    """Release the first step that meets its demand, or ``None``.

    Parameters
    ----------
    law : {"gaussian", "laplace"}
        Law of both noises.
    threshold_scale, query_scale : float
        Noise in units of the range; 0 for none.
    max_it : int
        Number of steps in a list. All are paid for, whichever is taken.
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
    See the head of this module for the sensitivity and :class:`~dpskl.accounting.AboveThresholdCost` for the cost: pure
    for Laplace noise (eps1 + eps2, the inverse scales), a Renyi curve for both laws. Nothing is asked of the loss.
    """

    law: str
    threshold_scale: float
    query_scale: float
    max_it: int
    objective_clip: float
    slope_bound: float
    row_norm: float
    neighbours: str
    n_samples: int
    n_features: int

    name = "noisy backtracking line search on clipped losses"
    theorem = "AboveThreshold, range form: first success of queries that a record moves within one interval"

    @property
    def noise_scale(self) -> float:
        """Scale of the query noise for a long ray; for short ones it is smaller, with the range."""
        return self.query_scale * self.sensitivity

    @property
    def cost(self) -> AboveThresholdCost:
        return AboveThresholdCost(self.law, self.threshold_scale, self.query_scale, self.max_it)

    def release(
        self,
        problem: Trainable,
        weights: Array,
        direction: Array,
        steps: Array,
        demands: Array,
        noise: NoiseSource,
    ) -> int | None:
        """Return the index of the first step that passes.

        Parameters
        ----------
        problem : Trainable
        weights, direction : ndarray of shape (n_weights,) or (n_weights, n_outputs)
            Made of earlier answers.
        steps, demands : ndarray of shape (max_it,)
            Decreasing steps and the decrease of the summed losses that each has to bring.
        noise : NoiseSource
        """
        if len(steps) != self.max_it or steps[0] != max(steps) or min(steps) < 0:
            raise ValueError(f"steps must be {self.max_it} numbers of at least 0, the largest first")
        path = along_path(problem)
        unit = loss_range(self, weights, direction, steps[0])
        draw = noise.normal if self.law == "gaussian" else noise.laplace
        threshold = float(draw(1, unit * self.threshold_scale)[0])
        query_noise = draw(self.max_it, unit * self.query_scale)
        (before,) = path.losses_along(weights, direction, np.zeros(1), self.objective_clip)
        for start in range(0, self.max_it, _CHUNK):
            chunk = slice(start, start + _CHUNK)
            after = path.losses_along(weights, direction, steps[chunk], self.objective_clip)
            passed = before - after - demands[chunk] + query_noise[chunk] >= threshold
            if passed.any():
                return start + int(passed.argmax())
        return None
