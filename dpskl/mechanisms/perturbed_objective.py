r"""Objective perturbation: the minimiser of an objective with a random linear term.

``w = argmin_w sum_i l_i(w) + ridge ||w||^2 / 2 + b . w``. The map from ``w`` to ``b`` is a bijection, so the law
of ``w`` is that of ``b`` times the determinant of the Hessian. With rows of norm at most ``R``:
``||grad l_i|| <= L = G R``, and one record multiplies the determinant by at most ``1 + B / ridge``,
``B = sup phi'' R^2``. Write ``a = log(1 + B / ridge)``.

What a computer finds is only close to the minimiser, ``||w~ - w|| <= tolerance / ridge``, so noise covers the
difference: given ``w``, the means of the two releases lie at most ``2 tolerance / ridge`` apart.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from math import exp, hypot, inf, log, log1p, sqrt
from typing import Any

import numpy as np
from scipy.special import gammainccinv

from dpskl.accounting import ApproximateCost, Cost, GaussianCost, PureCost, ReplaceOneObjectiveCost, gaussian_mu
from dpskl.mechanisms.base import Mechanism
from dpskl.mechanisms.minimiser import certified_minimum, rounding_bound
from dpskl.mechanisms.noise import NoiseSource
from dpskl.mechanisms.sensitivity import contributions
from dpskl.records.losses import MarginLoss
from dpskl.records.problem import Problem

__all__ = ["PerturbedObjective", "calibrate_perturbed_objective"]

Array = np.ndarray[Any, Any]

# Share of the budget for the noise that covers the distance to the exact minimiser: in GDP the shares are
# added as squares, so 3 % cost the linear term 0.05 % of its noise.
_OUTPUT_SHARE = 0.03
_TOLERANCE = 1e-9
# Probability with which ||b|| may exceed the figure that the tolerance is computed from.
_TAIL = 1e-20


@dataclass(frozen=True)
class PerturbedObjective(Mechanism):
    r"""Release the certified minimum of the perturbed objective, one problem for each output.

    Parameters
    ----------
    linear_scale : float
        Standard deviation of ``b``, or with ``is_pure`` the scale of its Gamma-distributed norm.
    output_scale : float
        The same for the noise that covers the distance to the exact minimiser.
    ridge : float
        ``Lam``, in sum form; a public constant. It covers the intercept too.
    gradient_bound, curvature_bound : float
        ``L`` and ``B``: bounds for one record and one output, rows within their norm.
    tolerance : float
        Certified norm of the gradient at the released point, before the output noise.
    n_outputs : int
        1 for two classes, otherwise one independent problem for each class.
    is_pure : bool
        Gamma-norm noise and pure epsilon-DP, or Gaussian noise.
    neighbours : {"add_remove", "replace_one"}
    epsilon, delta : float
        What ``calibrate_perturbed_objective`` was asked for. They state the cost where only one point of the
        privacy profile is proved (replace-one with several outputs).

    Notes
    -----
    ``t = L / linear_scale``, ``m = 2 tolerance / (ridge output_scale)``, ``K = n_outputs``.

    * Pure (Chaudhuri, Monteleoni & Sarwate 2011, with the constants of a rank-one Hessian): each output costs
      ``c L / linear_scale + a + m``, with ``c = 1`` for add_remove and 2 for replace_one; the determinant term
      is not doubled, since ``det(H + z) / det(H + z') <= 1 + B / ridge``.
    * Gaussian, add_remove: ``delta(epsilon) = H(sqrt(K (t^2 + m^2)), epsilon - K a)`` for every real epsilon,
      ``H`` the curve of the Gaussian mechanism. It needs a loss whose slope has one sign and gradients along a fixed
      direction (margin losses of linear models). The logarithm is paid once for each output.
    * Gaussian, replace_one: ``e^a H(2 sqrt(t^2 + m^2), epsilon - a)`` for ``epsilon >= a``, by group privacy
      through the data set without the record; several outputs are composed as (epsilon / K, delta / K) each.

    Preconditions: ``ridge > 0`` fixed beforehand on every coordinate; a convex loss with Lipschitz gradient; all
    scales public. The certificate cannot fail, since gradient descent reaches it where Newton's method does not
    (:mod:`dpskl.mechanisms.minimiser`): a fit that raises for lack of convergence, made visible, would void the
    guarantee. The tolerance is made for ``||b||`` below a figure that it exceeds with a probability of 1e-20.
    """

    linear_scale: float
    output_scale: float
    ridge: float
    gradient_bound: float
    curvature_bound: float
    tolerance: float
    n_outputs: int
    is_pure: bool
    neighbours: str
    epsilon: float
    delta: float

    name = "objective perturbation"

    @property
    def theorem(self) -> str:  # type: ignore[override]
        if self.is_pure:
            return "Chaudhuri, Monteleoni & Sarwate 2011, rank-one Hessian: epsilon = L/scale + log(1 + B/ridge)"
        if self.neighbours == "add_remove":
            return "shifted Gaussian profile H(t, epsilon - log(1 + B/ridge)) for slopes of one sign"
        return "shifted Gaussian profile, by group privacy through the common data set"

    @property
    def sensitivity(self) -> float:
        return self.gradient_bound * contributions(self.neighbours)

    @property
    def noise_scale(self) -> float:
        return self.linear_scale

    @property
    def shift(self) -> float:
        """Return ``a``, the part of epsilon that the determinant of one output takes."""
        return log1p(self.curvature_bound / self.ridge)

    @property
    def cost(self) -> Cost:
        if self.linear_scale == 0:
            return GaussianCost(inf)
        t, m = self.gradient_bound / self.linear_scale, 2 * self.tolerance / (self.ridge * self.output_scale)
        if self.is_pure:
            spent = self.n_outputs * (contributions(self.neighbours) * t + self.shift + m)
            # calibration stays below the budget by its rounding; the budget itself is the rounder number to add up
            return PureCost(self.epsilon if self.epsilon * (1 - 1e-9) < spent < self.epsilon else spent)
        if self.neighbours == "add_remove":
            return GaussianCost(sqrt(self.n_outputs) * hypot(t, m), shift=self.n_outputs * self.shift)
        if self.n_outputs == 1:
            return ReplaceOneObjectiveCost(t, self.shift, output_mu=m)
        return ApproximateCost(self.epsilon, self.delta)

    def release(self, problem: Problem, noise: NoiseSource) -> Array:
        """Return the noisy minimum, of the shape of ``problem.zeros()``."""
        columns = [self._release_output(problem.output(k), noise) for k in range(self.n_outputs)]
        return columns[0] if self.n_outputs == 1 else np.stack(columns, axis=1)

    def _release_output(self, problem: Problem, noise: NoiseSource) -> Array:
        size = problem.n_weights
        draw = noise.gamma_vector if self.is_pure else noise.normal
        linear = draw(size, self.linear_scale)
        allowance = partial(
            _rounding,
            problem.n_samples,
            problem.n_features,
            self.gradient_bound,
            self.curvature_bound,
            self.ridge,
            linear_norm=float(np.linalg.norm(linear)),
        )
        weights = certified_minimum(problem, self.ridge, linear, self.tolerance, allowance)
        add = noise.add_gamma_vector if self.is_pure else noise.add_normal
        return add(weights, self.output_scale)


def _rounding(
    n_samples: int, n_features: int, L: float, B: float, ridge: float, weight_norm: float, linear_norm: float
) -> float:
    return rounding_bound(n_samples, n_features, n_samples * L, n_samples * B, ridge, weight_norm, linear_norm)


def _public_tolerance(
    n_samples: int, n_features: int, L: float, B: float, ridge: float, linear_norm: float, loss_at_zero: float
) -> float:
    """Return a tolerance ten times above the rounding that any data set can cause while ``||b|| <= linear_norm``.

    Where rounding leaves room it is small on the scale of one record's gradient ``L`` and of a penalty's
    gradient ``ridge / L``, so that nothing changes when rows and ``data_norm`` are scaled together. At the
    minimiser ``J(w) <= J(0) = n phi(0)``, so ``||w|| <= sqrt(2 n phi(0) / ridge) + 2 ||b|| / ridge``.
    """
    weight_norm = sqrt(2 * n_samples * loss_at_zero / ridge) + 2 * linear_norm / ridge
    rounding = _rounding(n_samples, n_features, L, B, ridge, weight_norm, linear_norm)
    return max(_TOLERANCE * max(L, ridge / L), 10 * rounding)


def calibrate_perturbed_objective(
    loss: MarginLoss,
    *,
    row_norm: float,
    ridge: float,
    n_outputs: int,
    n_samples: int,
    n_features: int,
    intercept: bool,
    epsilon: float,
    delta: float,
    neighbours: str,
) -> PerturbedObjective:
    """Return the mechanism whose cost is (epsilon, delta), pure where ``delta`` is 0.

    Parameters
    ----------
    loss : MarginLoss
        Smooth.
    row_norm : float
        Bound on the norm of a row, intercept column included.
    ridge : float
        So large that ``n_outputs * log(1 + B / ridge) < epsilon``.
    n_outputs, n_samples, n_features : int
    intercept : bool
        Whether there is an intercept weight.
    epsilon : float
        Positive; ``inf`` for no noise.
    delta : float
        In [0, 1).
    neighbours : {"add_remove", "replace_one"}

    Raises
    ------
    ValueError
        If the determinants leave nothing of ``epsilon`` for the linear term.
    """
    L, B = loss.slope_bound * row_norm, loss.curvature_bound * row_norm**2
    size = n_features + intercept
    shift = log1p(B / ridge)
    is_pure = delta == 0
    free = epsilon / n_outputs * (1 - 1e-12) - shift
    if not free > 0:
        raise ValueError(
            f"ridge={ridge:g} uses up the whole budget epsilon={epsilon:g}: {n_outputs} log(1 + {B:g} / ridge) is "
            f"{n_outputs * shift:g}, and noise needs the rest; lower ridge_share or C"
        )
    if epsilon == inf:
        linear_scale = typical_norm = m = 0.0
    elif is_pure:
        m = _OUTPUT_SHARE * free
        linear_scale = contributions(neighbours) * L / (free - m)
        typical_norm = linear_scale * float(gammainccinv(size, _TAIL))
    else:
        mu = _gaussian_share(epsilon, delta, shift, n_outputs, neighbours) * (1 - 1e-12)
        m = _OUTPUT_SHARE * mu
        linear_scale = L / sqrt(mu * mu - m * m)
        typical_norm = linear_scale * (sqrt(size) + sqrt(-2 * log(_TAIL)))
    loss_at_zero = float(loss.value(np.zeros(1))[0])
    tolerance = _public_tolerance(n_samples, n_features, L, B, ridge, typical_norm, loss_at_zero)
    output_scale = 2 * tolerance / (ridge * m) if m else 0.0
    return PerturbedObjective(
        linear_scale=linear_scale,
        output_scale=output_scale,
        ridge=ridge,
        gradient_bound=L,
        curvature_bound=B,
        tolerance=tolerance,
        n_outputs=n_outputs,
        is_pure=is_pure,
        neighbours=neighbours,
        epsilon=epsilon,
        delta=delta,
    )


def _gaussian_share(epsilon: float, delta: float, shift: float, n_outputs: int, neighbours: str) -> float:
    """Return the largest ``sqrt(t^2 + m^2)`` of one output."""
    if neighbours == "add_remove":
        return gaussian_mu(epsilon, delta, shift=n_outputs * shift) / sqrt(n_outputs)
    # e^a H(2 mu, eps - a) <= delta, for each output at its share of (epsilon, delta)
    return gaussian_mu(epsilon / n_outputs - shift, delta / n_outputs * exp(-shift)) / 2
