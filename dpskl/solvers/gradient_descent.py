"""Noisy gradient descent on the full batch (DP-GD)."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, inf, isinf, sqrt
from typing import Any

import numpy as np

from dpskl.accounting import gaussian_mu
from dpskl.curator import Curator
from dpskl.mechanisms.base import Mechanism
from dpskl.mechanisms.gradient import GaussianGradient
from dpskl.mechanisms.hidden_descent import HiddenDescent, hidden_amplification, project_to_ball
from dpskl.records.row_maps import ROW_MAPS
from dpskl.solvers._checks import check_choice, check_count, check_number, check_step
from dpskl.solvers.base import Outcome, Plan, PublicFacts, Solver, refuse_pure

__all__ = ["GradientDescent", "balanced_time", "effective_clip"]

Array = np.ndarray[Any, Any]

# The constants of the default rules; benchmarks/ablation.py shows what other values do.
_CLIP_SHARE = 1 / 3  # smallest clip norm as a share of the largest gradient norm
_CLIP_SIGNAL = 40.0  # mu n / weights at which nothing is clipped
_TIME = 700.0  # total time in units of mu n / (weights * row_norm^2)
_MOMENTUM = 0.95
_STEPS = (100, 150)
# A budget far from rounding: T releases at mu / sqrt(T) must not sum to more than mu.
_SAFE = 1 - 1e-12


def effective_clip(clip_norm: float | None, largest: float, facts: PublicFacts, mu: float) -> float:
    """Return the clip norm that is used, never above ``largest``, the largest norm that a gradient can have.

    Clipping trades noise for bias, and noise counts while ``mu n / p`` is small. Where no clip norm is given it is a
    share ``mu n / (40 p)`` of the largest, between a third and all of it.
    """
    if clip_norm is not None:
        return min(clip_norm, largest)
    return largest * min(1.0, max(_CLIP_SHARE, facts.signal(mu) / facts.n_outputs / _CLIP_SIGNAL))


def balanced_time(facts: PublicFacts, mu: float) -> float:
    """Return the total time of a descent on the mean of the losses at which noise and signal balance.

    The noise along the path grows with ``p time / (mu n)`` relative to the signal, ``p`` the number of weights.
    """
    return _TIME * facts.signal(mu) / facts.n_outputs / facts.row_norm**2


@dataclass(frozen=True)
class _Descent:
    """What ``run`` needs besides the questions; the step is for the mean of the losses."""

    n_samples: int
    n_steps: int
    step: float
    momentum: float
    radius: float
    average: bool


class GradientDescent(Solver):
    r"""Gradient descent with momentum on clipped, noisy full-batch gradients.

    ``v <- momentum v - step (noisy sum of clipped gradients + ridge w) / n``, ``w <- project(w + v)``, from ``w = 0``.

    Parameters
    ----------
    max_iter : int or None, default=None
        Number of steps. ``None``: as many as the total time below needs, between 100 and 150. More steps cost
        time and no privacy, since the noise is calibrated for all of them.
    step_size : float or None, default=None
        Step on the *mean* of the losses. ``None``: what makes the total time ``max_iter * step / (1 - momentum)``
        equal to ``700 mu n / (p row_norm^2)``, ``p`` the number of weights and ``mu`` the Gaussian privacy parameter of
        the budget (halved for replace_one), but at most ``(1 + momentum)`` over the smoothness of one record and its
        share of the penalty. Along the path the noise grows with ``p time / (mu n)`` relative to the signal, so this
        stops where they balance: early stopping is the regulariser.
    clip_norm : float or None, default=None
        Bound on the norm of one record's gradient. ``None``: the largest norm that a row within ``data_norm`` can have
        times ``mu n / (40 p)``, at least a third of it. Larger values than that norm are replaced by it.
    momentum : float or None, default=None
        In [0, 1). ``None``: 0.95, or 0 where ``iterate="last"``.
    iterate : {"average", "last"}, default="average"
        Release the average of the second half of the iterates, or the last one.
    projection_radius : float or None, default=None
        Radius of the ball around 0 that iterates are projected to; ``None`` for none.
    rows : {"fill", "clip", "sphere"}, default="fill"
        The row map (:mod:`dpskl.records.row_maps`). ``"clip"`` scales longer rows down to ``data_norm``, ``"sphere"``
        brings every row, its constant included, to that norm, up or down, and ``"fill"`` does the one after the other.
        Noise is for the longest row that there could be: with the last two no row is shorter.

    Notes
    -----
    Cost: each gradient is a Gaussian mechanism, and T of them at ``mu / sqrt(T)`` compose to ``mu`` exactly. With
    ``iterate="last"``, no momentum and a smooth loss the iterates stay hidden and the smaller bound of
    :class:`~dpskl.mechanisms.hidden_descent.HiddenDescent` holds; it is used wherever its preconditions are met.

    For a loss steeper in curvature than the Huber hinge with ``h = 1/2`` (and the hinge itself) the step rule takes
    the curvature 1; this affects accuracy only.

    References
    ----------
    Bassily, Smith & Thakurta (2014), FOCS; Song, Chaudhuri & Sarwate (2013), GlobalSIP; Dong, Roth & Su (2022), JRSS-B.
    """

    name = "gd"
    rank = 3

    def __init__(
        self,
        max_iter: int | None = None,
        step_size: float | None = None,
        clip_norm: float | None = None,
        momentum: float | None = None,
        iterate: str = "average",
        projection_radius: float | None = None,
        rows: str = "fill",
    ) -> None:
        self.max_iter = max_iter
        self.step_size = step_size
        self.clip_norm = clip_norm
        self.momentum = momentum
        self.iterate = iterate
        self.projection_radius = projection_radius
        self.rows = rows

    def plan(self, facts: PublicFacts, epsilon: float, delta: float) -> Plan:
        self._check_parameters()
        refuse_pure(self.name, delta)
        mu = gaussian_mu(epsilon, delta) * _SAFE
        loss = self.problem_loss(facts)
        largest = loss.gradient_bound(facts.n_outputs) * facts.row_norm
        clip_norm = effective_clip(self.clip_norm, largest, facts, mu)
        descent = self._descent(facts, mu, min(loss.curvature_bound, 1.0) * facts.row_norm**2)
        ridge = 1 / facts.C
        question = self._hidden(facts, mu, ridge, clip_norm, clip_norm < largest, descent)
        if question is not None:
            return Plan(((question, 1),), ridge, descent)
        gradient = GaussianGradient(
            clip_norm, mu / sqrt(descent.n_steps), facts.neighbours, facts.n_samples, facts.n_features
        )
        return Plan(((gradient, descent.n_steps),), ridge, descent)

    def _descent(self, facts: PublicFacts, mu: float, smoothness: float) -> _Descent:
        average = self.iterate == "average"
        momentum = (_MOMENTUM if average else 0.0) if self.momentum is None else self.momentum
        penalty = 1 / facts.C / facts.n_samples
        cap = (1 + momentum) / (smoothness + penalty)
        time = balanced_time(facts, mu)
        n_steps = self.max_iter
        if n_steps is None:
            low, high = _STEPS
            n_steps = high if isinf(time) else min(max(ceil(time * (1 - momentum) / cap), low), high)
        step = min(time * (1 - momentum) / n_steps, cap) if self.step_size is None else self.step_size
        check_step(step, facts.row_norm)
        if step * penalty >= 2 * (1 + momentum):
            raise ValueError(
                f"step_size={step:g} makes the penalty of C={facts.C:g} at n={facts.n_samples} diverge; "
                f"it must be below {2 * (1 + momentum) / penalty:g}, or C larger"
            )
        radius = inf if self.projection_radius is None else self.projection_radius
        return _Descent(facts.n_samples, n_steps, step, momentum, radius, average)

    def _hidden(
        self, facts: PublicFacts, mu: float, ridge: float, clip_norm: float, clips: bool, descent: _Descent
    ) -> Mechanism | None:
        """Return the mechanism that releases the last iterate only, where its preconditions hold."""
        loss = self.problem_loss(facts)
        # clipping the joint gradient of several outputs leaves no gradient of a convex function
        if descent.average or descent.momentum > 0 or not loss.is_smooth or (clips and facts.n_outputs > 1):
            return None
        step = descent.step / facts.n_samples
        smoothness = facts.n_samples * loss.curvature_bound * facts.row_norm**2
        if hidden_amplification(step, ridge, smoothness, descent.n_steps) >= sqrt(descent.n_steps):
            return None
        return HiddenDescent(
            clip_norm=clip_norm,
            mu=mu,
            step=step,
            ridge=ridge,
            smoothness=smoothness,
            n_steps=descent.n_steps,
            radius=descent.radius,
            neighbours=facts.neighbours,
            n_samples=facts.n_samples,
            n_features=facts.n_features,
        )

    def run(self, curator: Curator, plan: Plan) -> Outcome:
        ((question, _),) = plan.questions
        if isinstance(question, HiddenDescent):
            return Outcome(curator.ask(question), 1, clip_norm=question.clip_norm)
        assert isinstance(question, GaussianGradient)
        descent: _Descent = plan.settings
        weights = curator.zeros()
        velocity, total, kept = np.zeros_like(weights), np.zeros_like(weights), 0
        for t in range(descent.n_steps):
            gradient = curator.ask(question, weights) + plan.ridge * weights
            velocity = descent.momentum * velocity - (descent.step / descent.n_samples) * gradient
            weights = project_to_ball(weights + velocity, descent.radius)
            if t >= descent.n_steps // 2:
                total += weights
                kept += 1
        weights = total / kept if descent.average else weights
        return Outcome(weights, descent.n_steps, clip_norm=question.clip_norm)

    def _check_parameters(self) -> None:
        check_count("max_iter", self.max_iter, optional=True)
        for name in ("step_size", "clip_norm", "projection_radius"):
            check_number(name, getattr(self, name), optional=True)
        check_number("momentum", self.momentum, 0, 1, closed=True, optional=True)
        check_choice("iterate", self.iterate, ("average", "last"))
        check_choice("rows", self.rows, ROW_MAPS)
