r"""Training that moves by little when one record changes: the exact minimiser, gradient descent, permuted SGD.

Each is a deterministic map from a data set to weights (permuted SGD: given an order that is drawn without looking at
the data), and states how far its results on two neighbouring data sets can lie apart. All minimise
``sum_i l_i(w) + ridge ||w||^2 / 2``, where ``||grad l_i|| <= L`` and no Hessian of one record exceeds ``B``; the
gradient methods work on that sum over ``n``, with ``lam = ridge / n``. ``ridge`` and ``n`` are public numbers, fixed
once: a ridge that is computed anew from the realised number of records would move the weights as much again.

In the notes ``k`` is 1 for add_remove and 2 for replace_one. Every distance also covers rounding, on both sides.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import partial
from math import expm1, log1p, sqrt
from typing import Any

import numpy as np

from dpskl.mechanisms.hidden_descent import contraction_gap
from dpskl.mechanisms.minimiser import certified_minimum, rounding_bound
from dpskl.mechanisms.noise import NoiseSource
from dpskl.mechanisms.sensitivity import contributions
from dpskl.records.problem import Problem

__all__ = ["ExactMinimum", "FullGradientDescent", "PermutedSGD", "StableTraining", "contraction_sum"]

Array = np.ndarray[Any, Any]

_UNIT = 2.0**-53
# For the rounding of the distances themselves.
_UP = 1 + 1e-12
# Certified gradient norm as a share of one record's gradient, where rounding leaves room.
_TOLERANCE = 1e-9


def contraction_sum(gap: float, count: int) -> float:
    """Return ``1 + c + ... + c^(count - 1)`` for ``c = 1 - gap``, ``gap`` in [0, 1].

    Examples
    --------
    >>> contraction_sum(0.5, 3)
    1.75
    """
    if gap <= 0:
        return float(count)
    return 1.0 if gap >= 1 else expm1(count * log1p(-gap)) / -gap


@dataclass(frozen=True)
class StableTraining(ABC):
    """What the three have in common.

    Parameters
    ----------
    gradient_bound, curvature_bound : float
        ``L`` and ``B``, for one record over all its outputs, rows within their norm. The penalty is not part of them.
    ridge : float
        Positive, in sum form, on every weight.
    n_samples, n_features, n_outputs : int
    """

    gradient_bound: float
    curvature_bound: float
    ridge: float
    n_samples: int
    n_features: int
    n_outputs: int

    @property
    @abstractmethod
    def theorem(self) -> str:
        """Why :meth:`distance` holds, with its source."""

    @abstractmethod
    def distance(self, neighbours: str) -> float:
        """Return the largest Euclidean distance between the weights of two neighbouring data sets."""

    @abstractmethod
    def train(self, problem: Problem, noise: NoiseSource) -> Array:
        """Return the weights, of the shape of ``problem.zeros()``; they are not private."""

    @property
    def _lam(self) -> float:
        return self.ridge / self.n_samples

    def _gap(self, step: float) -> float:
        """Return ``1 - c``: by how much a gradient step brings any two points closer."""
        return min(contraction_gap(step * self._lam), contraction_gap(step * (self._lam + self.curvature_bound)))

    def _rounding(self, n_records: int, weight_norm: float) -> float:
        """Bound the rounding error of the computed gradient of ``n_records`` losses and their share of the penalty."""
        # a softmax sums over the outputs of a record, which costs its residuals one more rounding for each
        slopes = n_records * self.gradient_bound * self.n_outputs
        curvatures = n_records * self.curvature_bound
        share = self.ridge * n_records / self.n_samples
        return rounding_bound(n_records, self.n_features, slopes, curvatures, share, weight_norm, 0.0)


@dataclass(frozen=True)
class ExactMinimum(StableTraining):
    r"""The minimiser, up to a certified gradient norm.

    Parameters
    ----------
    loss_at_zero : float
        Loss of one record of one problem at zero weights.
    n_problems : int
        How many independent problems there are: the outputs of a one-vs-rest loss, or 1.

    Notes
    -----
    ``distance = (k L + 2 sqrt(n_problems) tolerance) / ridge`` (Chaudhuri, Monteleoni & Sarwate 2011, lemma 7, for
    sums). Two objectives that are ``ridge``-strongly convex and differ by a function of slope at most ``k L`` have
    minimisers at most ``k L / ridge`` apart, and a point with gradient norm ``g`` lies within ``g / ridge`` of its
    minimiser. Needs convex losses; smoothness only lets Newton's method find the point.
    """

    loss_at_zero: float
    n_problems: int

    theorem = "strongly convex minimisers lie within L / ridge (Chaudhuri, Monteleoni & Sarwate 2011)"

    @property
    def tolerance(self) -> float:
        """Certified norm of the gradient of each problem: ten times above the rounding that any data set can cause.

        At the minimiser ``w`` the gradient vanishes, so ``||w|| <= n L / ridge``, and the objective is not above that
        at zero, so ``||w|| <= sqrt(2 n loss_at_zero / ridge)``.
        """
        n = self.n_samples
        weight_norm = min(n * self.gradient_bound / self.ridge, sqrt(2 * n * self.loss_at_zero / self.ridge))
        return max(_TOLERANCE * self.gradient_bound, 10 * self._rounding(n, weight_norm))

    def distance(self, neighbours: str) -> float:
        certified = 2 * sqrt(self.n_problems) * self.tolerance
        return (contributions(neighbours) * self.gradient_bound + certified) / self.ridge * _UP

    def train(self, problem: Problem, noise: NoiseSource) -> Array:
        allowance = partial(self._rounding, self.n_samples)
        parts = [problem] if self.n_problems == 1 else [problem.output(k) for k in range(self.n_problems)]
        found = [certified_minimum(part, self.ridge, part.zeros(), self.tolerance, allowance) for part in parts]
        return found[0] if self.n_problems == 1 else np.stack(found, axis=1)


@dataclass(frozen=True)
class FullGradientDescent(StableTraining):
    r"""``n_steps`` full-batch steps ``w <- w - step (sum_i grad l_i(w) / n + lam w)`` from zero; the last ``w``.

    Parameters
    ----------
    step : float
        At most ``2 / (B + lam)``.
    n_steps : int

    Notes
    -----
    ``distance = k step L / n (1 + c + ... + c^(n_steps - 1))``, ``c = max(|1 - step lam|, |1 - step (lam + B)|) <= 1``:
    a step on a smooth convex function contracts by ``c``, and the records that differ add ``k step L / n`` (Hardt,
    Recht & Singer 2016; Zhang, Zheng, Mou & Wang 2017, whose constants are larger).
    """

    step: float
    n_steps: int

    theorem = "contracting gradient steps (Hardt, Recht & Singer 2016; Zhang et al. 2017)"

    def _growth(self) -> float:
        return contraction_sum(self._gap(self.step), self.n_steps)

    def distance(self, neighbours: str) -> float:
        growth = self._growth()
        weight_norm = growth * self.step * self.gradient_bound
        # each computed step is off by this much, and later steps contract it like any other difference
        off = self.step / self.n_samples * self._rounding(self.n_samples, weight_norm) + 8 * _UNIT * weight_norm
        added = contributions(neighbours) * self.step * self.gradient_bound / self.n_samples
        return growth * (added + 2 * off) * _UP

    def train(self, problem: Problem, noise: NoiseSource) -> Array:
        weights, step = problem.zeros(), self.step / self.n_samples
        for _ in range(self.n_steps):
            weights = weights - step * (problem.gradient_sum(weights) + self.ridge * weights)
        return weights


@dataclass(frozen=True)
class PermutedSGD(StableTraining):
    r"""``n_passes`` over the records in one random order, in batches of ``b``, from zero.

    Step ``t = 1, 2, ...`` is ``w <- w - eta_t (sum of gradients of the batch / b + lam w)``. A last, shorter batch is
    divided by ``b`` too: divided by its own size, its records would weigh up to ``b`` times as much.

    Parameters
    ----------
    batch_size : int
        ``b``, at most ``n``.
    n_passes : int
    step : float or None
        Constant step of at most ``2 / (B + lam)``, and the average of all iterates is the result. ``None``:
        ``eta_t = min(1 / (B + lam), 1 / (lam t))``, and the last iterate is.

    Notes
    -----
    With ``m = ceil(n / b)`` steps in a pass (Wu et al. 2017; the factor ``1/b`` that some libraries divide the second
    distance by is wrong):

    * constant step: ``distance = k step L / b (1 + c^m + ... + c^(m (n_passes - 1)))``, ``c`` as for
      :class:`FullGradientDescent`. The order is the same in each pass, so a record comes back after ``m`` steps. No
      iterate is further apart, hence no average of them.
    * decreasing steps: ``distance = k L / (lam b m)``, whatever the number of passes: what a record adds at step ``t``
      has shrunk to at most ``L / (lam b T)`` at the last step ``T = m n_passes``. Also at most
      ``k n_passes L / (b (B + lam))``, since no step is longer than ``1 / (B + lam)``. An average of these iterates
      is not covered: it can be further apart by a factor that grows with ``log m``.

    The order is drawn without the data. Of who is absent the place stays empty; where ``n_samples`` is a bound above
    the number of records, the places of the others are those of their rows, which move up when a row is left out: then
    the law of who is where is the same for neighbours only as long as the order is not shown. It is not.
    """

    batch_size: int
    n_passes: int
    step: float | None

    @property
    def theorem(self) -> str:
        steps = "decreasing steps, last iterate" if self.step is None else "constant step, averaged"
        return f"permuted SGD, {steps} (Wu et al. 2017, with b m for n)"

    @property
    def _steps_in_pass(self) -> int:
        return -(-self.n_samples // self.batch_size)

    def distance(self, neighbours: str) -> float:
        b, m, passes, lam = self.batch_size, self._steps_in_pass, self.n_passes, self._lam
        if self.step is None:
            growth = min(1 / (lam * m), passes / (self.curvature_bound + lam))
            weight_norm = self.gradient_bound / lam
            off = self._rounding(b, weight_norm) / b / lam
        else:
            gap = self._gap(self.step)
            growth = self.step * contraction_sum(-expm1(m * log1p(-gap)) if gap < 1 else 1.0, passes)
            total = self.step * contraction_sum(gap, m * passes)
            weight_norm = total * self.gradient_bound
            off = self._rounding(b, weight_norm) / b * total
        # what rounding adds in one step is not contracted here, which is crude and small
        off += 8 * _UNIT * m * passes * weight_norm
        return (contributions(neighbours) * growth * self.gradient_bound / b + 2 * off) * _UP

    def train(self, problem: Problem, noise: NoiseSource) -> Array:
        # where n_samples is a bound above the number of records, the places beyond it are empty
        order = np.argsort(noise.standard_exponential(self.n_samples), kind="stable")
        batches = [order[start : start + self.batch_size] for start in range(0, len(order), self.batch_size)]
        batches = [batch[batch < problem.n_samples] for batch in batches]
        weights, total = problem.zeros(), problem.zeros()
        for t, batch in enumerate(batches * self.n_passes, start=1):
            step = self._decreasing_step(t) if self.step is None else self.step
            gradient = problem.batch(batch).gradient_sum(weights)
            weights = (1 - step * self._lam) * weights - step / self.batch_size * gradient
            if self.step is not None:
                total += weights
        return weights if self.step is None else total / t

    def _decreasing_step(self, t: int) -> float:
        return 1 / max(self.curvature_bound + self._lam, self._lam * t)
