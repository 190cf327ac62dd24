"""Noisy gradient descent as one release: the iterates stay hidden and only the last one leaves."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf, log1p, sqrt, tanh
from typing import Any

import numpy as np

from dpskl.accounting import GaussianCost
from dpskl.mechanisms.base import Mechanism
from dpskl.mechanisms.noise import NoiseSource, round_to_grid
from dpskl.mechanisms.sensitivity import sum_sensitivity
from dpskl.records.problem import Problem

__all__ = ["HiddenDescent", "contraction_gap", "hidden_amplification", "project_to_ball"]

Array = np.ndarray[Any, Any]


def hidden_amplification(step: float, ridge: float, smoothness: float, n_steps: int) -> float:
    r"""Return ``mu * noise / sensitivity`` of the last of ``n_steps`` noisy gradient steps.

    With ``c = max(|1 - step ridge|, |1 - step (ridge + smoothness)|)`` the value is
    ``sqrt((1 - c^T)/(1 + c^T) (1 + c)/(1 - c))``: at most ``sqrt(T)``, which is what composing T released gradients
    costs, and bounded as T grows.

    Parameters
    ----------
    step : float
        Step size on the *sum* of losses plus ``ridge ||w||^2 / 2``.
    ridge : float
        Strong convexity, in sum form.
    smoothness : float
        Public bound on the largest curvature of the sum of losses, such as ``n B``.
    n_steps : int

    Returns
    -------
    float
        ``inf`` where ``c >= 1`` and nothing is proved.

    Notes
    -----
    Altschuler & Talwar (2022); Bok, Su & Altschuler (2024), shifted interpolation. Exact on a quadratic.

    Examples
    --------
    >>> round(hidden_amplification(0.001, 45, 1000, 100), 6)  # 10 with composition
    6.525603
    """
    gap = min(contraction_gap(step * ridge), contraction_gap(step * (ridge + smoothness)))
    if gap <= 0:
        return inf
    if gap >= 1:
        return 1.0
    rate = -log1p(-gap)  # c = exp(-rate)
    return sqrt(tanh(n_steps * rate / 2) / tanh(rate / 2))


def contraction_gap(x: float) -> float:
    """Return ``1 - |1 - x|`` without cancellation at small ``x``."""
    return x if x <= 1 else 2 - x


def project_to_ball(weights: Array, radius: float) -> Array:
    """Return the closest point of the Euclidean ball of the given radius."""
    norm = float(np.linalg.norm(weights))
    return weights if norm <= radius else weights * (radius / norm)


@dataclass(frozen=True)
class HiddenDescent(Mechanism):
    r"""Run ``w <- project(w - step (sum_i clip(grad_i) + ridge w + N(0, noise_scale^2 I)))``, release the last ``w``.

    Parameters
    ----------
    clip_norm, mu, neighbours, n_samples, n_features
        As in :class:`~dpskl.mechanisms.gradient.GaussianGradient`; ``mu`` is that of the whole run.
    step, ridge, smoothness : float
        In sum form, see :func:`hidden_amplification`. ``smoothness`` must hold for *every* data set: ``n``
        times the largest curvature that a row within ``data_norm`` can have.
    n_steps : int
    radius : float
        Radius of the ball that iterates are projected to; ``inf`` for none.

    Notes
    -----
    The release is mu-GDP with ``noise_scale = sensitivity * hidden_amplification(...) / mu`` (Bok, Su &
    Altschuler 2024, theorem 4.2 restated for sums). Preconditions, all checked where a solver plans: the clipped
    gradients are gradients of convex losses, ``smoothness``-smooth in sum (true for one output, where clipping
    acts on a scalar residual, and for several where clipping can never act); every coordinate carries the
    ridge; rows are bounded; step, ridge, n_steps and the start at zero are public; ``c < 1``. An average
    of the iterates is *not* covered.
    """

    clip_norm: float
    mu: float
    step: float
    ridge: float
    smoothness: float
    n_steps: int
    radius: float
    neighbours: str
    n_samples: int
    n_features: int

    name = "noisy gradient descent, last iterate only"
    theorem = "last iterate of noisy gradient descent (Altschuler & Talwar 2022; Bok, Su & Altschuler 2024)"

    @property
    def sensitivity(self) -> float:
        return sum_sensitivity(self.clip_norm, self.neighbours, self.n_samples, self.n_features)

    @property
    def noise_scale(self) -> float:
        """Standard deviation of the noise in each gradient."""
        growth = hidden_amplification(self.step, self.ridge, self.smoothness, self.n_steps)
        return self.sensitivity * growth / self.mu

    @property
    def cost(self) -> GaussianCost:
        return GaussianCost(self.mu)

    def release(self, problem: Problem, noise: NoiseSource) -> Array:
        """Return the last iterate, from a start at zero: ``n_steps`` passes over the data."""
        weights = problem.zeros()
        scale = self.noise_scale
        # with several outputs clip_norm is what no gradient exceeds, and clipping would only add rounding
        clip_norm = self.clip_norm
        if problem.n_outputs > 1:
            largest = problem.loss.gradient_bound(problem.n_outputs) * problem.row_bound
            if clip_norm < largest * (1 - 1e-12):
                raise ValueError(f"clip_norm={clip_norm} would act on the joint gradient of several outputs")
            clip_norm = inf
        for _ in range(self.n_steps):
            gradient = problem.gradient_sum(weights, clip_norm)
            gradient += noise.normal(gradient.shape, scale) + self.ridge * weights
            weights = project_to_ball(weights - self.step * gradient, self.radius)
        return round_to_grid(weights, self.step * scale)
