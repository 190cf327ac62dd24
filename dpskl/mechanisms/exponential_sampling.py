r"""The exponential mechanism on the weights: exact draws from ``exp(-beta J(w))``, and what one costs on a ball.

``J(w) = sum_i l_i(w) + ridge ||w||^2 / 2``, one independent density for each output. Rows are within their norm, so
``||grad l_i|| <= L``, and ``B`` bounds a record's curvature.

*The sampler.* To draw from ``exp(-beta sum_i l_i(w) - ||w - a||^2 / (2 v))``, put the tangent of ``beta sum_i l_i``
at some point ``x`` in its place: what is left is a normal law, the tangent lies below, and a proposal is kept with
probability ``exp(-(gap to the tangent))``. That is exact for every ``x``. Near the minimum the gap is on average at
most ``v beta n B / 2``, *in any dimension*, since ``sum_i row_i row_i^T`` has a trace of at most ``n row_norm^2``.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from functools import partial
from math import ceil, exp, inf, log, log1p, sqrt
from typing import Any

import numpy as np
from scipy.special import chdtr

from dpskl.accounting import BoundedRangeCost, Cost, GaussianCost
from dpskl.mechanisms.base import Mechanism
from dpskl.mechanisms.minimiser import certified_minimum, rounding_bound
from dpskl.mechanisms.noise import NoiseSource, round_to_grid
from dpskl.mechanisms.sensitivity import contributions
from dpskl.records.losses import MarginLoss
from dpskl.records.problem import Problem

__all__ = ["ExponentialSampling", "RejectionSampling", "calibrate_rejection", "loss_range", "rejection_log_rate"]

Array = np.ndarray[Any, Any]

_UNIT = 2.0**-53
# Squared residual of a tangent point times the variance: the gap is on average at most (1 + this) v beta n B / 2.
RESIDUAL = 0.5
# No proposal is kept with a probability of at most exp(-_PATIENCE), which a double cannot tell from 0.
_PATIENCE = 1000.0


def loss_range(loss: MarginLoss, margin: float) -> float:
    """Return ``phi(-margin) - phi(margin)``, the range of a non-increasing loss over margins in [-margin, margin].

    Examples
    --------
    >>> from dpskl.records.losses import Logistic
    >>> round(loss_range(Logistic(), 5.0), 9)
    5.0
    """
    worst, best = loss.value(np.array([-margin, margin]))
    return float(worst - best) * (1 + 1e-12)


@dataclass(frozen=True)
class ExponentialSampling(Mechanism):
    """A draw from the density proportional to ``exp(-inverse_temperature J(w))``: what its samplers share.

    Parameters
    ----------
    inverse_temperature : float
        ``beta``, positive; ``inf`` releases the minimiser of ``J``.
    ridge : float
        Positive, in sum form, on every weight; a public constant.
    gradient_bound, curvature_bound : float
        ``L`` and ``B`` of one record and one output, rows within their norm, intercept included.
    loss_at_zero : float
        ``phi(0)``, which bounds the minimum of ``J``.
    n_outputs : int
        1 for two classes, otherwise one independent density for each class.
    neighbours : {"add_remove", "replace_one"}
    n_samples, n_features, n_weights : int
        ``n_weights`` are those of one output.
    """

    inverse_temperature: float
    ridge: float
    gradient_bound: float
    curvature_bound: float
    loss_at_zero: float
    n_outputs: int
    neighbours: str
    n_samples: int
    n_features: int
    n_weights: int

    @property
    def smoothness(self) -> float:
        """Bound on the curvature of the sum of losses, on every data set."""
        return self.n_samples * self.curvature_bound

    @property
    def mode_norm(self) -> float:
        """Bound on the norm of the minimiser of ``J`` on every data set, by ``J(w) <= J(0)`` and by its gradient."""
        n = self.n_samples
        return min(sqrt(2 * n * self.loss_at_zero / self.ridge), n * self.gradient_bound / self.ridge)

    @property
    def tolerance(self) -> float:
        """Certified norm of the gradient of ``J`` at the computed minimiser: far above what rounding can cause."""
        L, beta = self.gradient_bound, self.inverse_temperature
        rounding = self._gradient_rounding(2 * self.mode_norm, self.ridge)
        # small next to the noise, or where there is none on the scale of one record's gradient and the penalty's
        small = 1e-9 * max(L, self.ridge / L) if beta == inf else 1e-3 * sqrt(self.ridge / beta)
        return max(small, 10 * rounding)

    def keep_rounding(self, weight_norm: float) -> float:
        """Return a bound on the rounding error of the gap that decides whether a proposal is kept.

        It covers margins, losses, their pairwise sum and the product with the gradient, all points within
        ``weight_norm`` of 0. The probability to keep a proposal is then off by a factor within ``e^(+-b)``, the law
        of what is kept within ``e^(+-2b)``: rounding is paid for in epsilon.
        """
        L, d = self.gradient_bound, self.n_features
        values = 2 * L * (d + 9) * weight_norm + 16 * (1 + self.loss_at_zero + L * weight_norm)
        sums = 2 * L * weight_norm * (64 + d + 3)
        return self.inverse_temperature * self.n_samples * _UNIT * (values + sums)

    def slack(self, weight_norm: float) -> float:
        """Return a bound by which rounding can take the computed gap below 0; it is added to every gap."""
        bend = 2 * weight_norm * self.inverse_temperature * self._gradient_rounding(weight_norm, 0.0)
        return bend + self.keep_rounding(weight_norm)

    def is_resolved(self, weight_norm: float) -> bool:
        """Whether rounding is negligible: in the keep probabilities, and in the computed mode next to the noise."""
        is_mode_close = self.tolerance <= 2e-3 * sqrt(self.ridge / self.inverse_temperature)
        return is_mode_close and self.slack(weight_norm) <= 0.1

    def _gradient_rounding(self, weight_norm: float, ridge: float) -> float:
        n, L = self.n_samples, self.gradient_bound
        return rounding_bound(n, self.n_features, n * L, self.smoothness, ridge, weight_norm, 0.0)

    def release(self, problem: Problem, noise: NoiseSource) -> Array:
        """Return one draw, of the shape of ``problem.zeros()``."""
        assert isinstance(problem.loss, MarginLoss)
        if problem.loss.slope_bound * problem.row_bound > self.gradient_bound * (1 + 1e-12):
            raise ValueError(
                f"gradient_bound={self.gradient_bound:g} is below that of rows of norm {problem.row_bound:g}, "
                "intercept included"
            )
        columns = [self._release_output(problem.output(k), noise) for k in range(self.n_outputs)]
        return columns[0] if self.n_outputs == 1 else np.stack(columns, axis=1)

    def _release_output(self, problem: Problem, noise: NoiseSource) -> Array:
        allowance = partial(self._gradient_rounding, ridge=self.ridge)
        mode = certified_minimum(problem, self.ridge, problem.zeros(), self.tolerance, allowance)
        if self.inverse_temperature == inf:
            return mode
        narrowest = 1 / sqrt(self.inverse_temperature * (self.ridge + self.smoothness))
        return round_to_grid(self._draw(problem, mode, noise), narrowest)

    @abstractmethod
    def _draw(self, problem: Problem, mode: Array, noise: NoiseSource) -> Array:
        """Return one draw of one output; ``mode`` is the minimiser of its ``J``."""

    def above_tangent(
        self,
        problem: Problem,
        centre: Array,
        variance: float,
        start: Array,
        noise: NoiseSource,
        *,
        slack: float,
        log_rate: float,
        radius: float = inf,
    ) -> tuple[Array, Array]:
        r"""Draw from ``exp(-beta sum_i l_i(w) - ||w - centre||^2 / (2 variance))`` on a ball.

        Parameters
        ----------
        problem : Problem
            One output.
        centre, start : ndarray of shape (n_weights,)
            ``start`` is where the search for the tangent point begins; it affects the running time only.
        variance : float
        slack : float
            See :meth:`slack`. It lowers the probability to keep a proposal by one factor for all.
        log_rate : float
            Logarithm of a bound on the share of proposals that are kept.
        radius : float, default=inf
            Proposals outside are dropped.

        Returns
        -------
        weights, gradient : ndarray of shape (n_weights,)
            The draw, and ``beta`` times the gradient of the losses at the tangent point.
        """
        beta = self.inverse_temperature
        step = 2 / (2 / variance + beta * self.smoothness)
        point = start
        while True:  # these steps contract by a public factor, and rounding lies far below the residual that ends them
            gradient = beta * problem.gradient_sum(point)
            residual = gradient + (point - centre) / variance
            if variance * float(residual @ residual) <= RESIDUAL:
                break
            point = point - step * residual
        losses = problem.losses(problem.scores(point))
        mean, scale = centre - variance * gradient, sqrt(variance)
        for _ in range(ceil(_PATIENCE * exp(-log_rate))):
            weights = mean + noise.normal(mean.shape, scale)
            if float(np.linalg.norm(weights)) > radius:
                continue
            gap = beta * float((problem.losses(problem.scores(weights)) - losses).sum())
            gap -= float(gradient @ (weights - point))
            if noise.standard_exponential(1)[0] >= gap + slack:
                return weights, gradient
        raise AssertionError("no proposal was kept, which has probability below e^-1000: this is a bug in dpskl")


# -- one exact draw on a ball: pure differential privacy ------------------------------------------------


def rejection_log_rate(
    inverse_temperature: float, ridge: float, smoothness: float, room: float, n_weights: int
) -> float:
    r"""Return the logarithm of a share of kept proposals that no data set falls below.

    ``log P(chi^2_p <= beta ridge room^2) - (p / 2) log(1 + smoothness / (p ridge)) - 0.15``, where ``room`` is the
    distance from the mode to the sphere and 0.15 covers slack and the computed mode. The second term is never below
    ``-smoothness / (2 ridge)``: the product of ``(1 + lambda_j / ridge)^(-1/2)`` over the ``p`` eigenvalues of ``B /
    row_norm^2 sum_i row_i row_i^T``, whose sum is at most ``smoothness``, is smallest where they are equal.

    Examples
    --------
    >>> round(rejection_log_rate(1.0, 10.0, 10.0, room=4.0, n_weights=4), 4)
    -0.5963
    """
    # the computed mode is within 0.002 standard deviations of the penalty's normal law
    reach = sqrt(inverse_temperature * ridge) * room - 0.01
    inside = float(chdtr(n_weights, reach * reach)) if reach > 0 else 0.0
    if inside == 0:
        return -inf
    return log(inside) - n_weights / 2 * log1p(smoothness / (n_weights * ridge)) - 0.15


@dataclass(frozen=True)
class RejectionSampling(ExponentialSampling):
    r"""One exact draw from ``exp(-beta J(w))`` on the ball ``||w|| <= radius`` of each output.

    Parameters
    ----------
    inverse_temperature, ridge, gradient_bound, curvature_bound, loss_at_zero, n_outputs, neighbours, n_samples, \
    n_features, n_weights
        As in :class:`ExponentialSampling`.
    radius : float
        Of the ball; the intercept weight counts.
    record_range : float
        ``phi(-m) - phi(m)`` at ``m = row_norm radius``: on the ball every margin lies in ``[-m, m]``.

    Notes
    -----
    One record changes the log density by ``beta`` times its loss and a constant; the penalty is the same
    on all data sets. So the privacy loss lies in an interval of length ``c K beta record_range`` (``c = 1``
    contribution for add_remove, 2 for replace_one, ``K`` outputs): the draw is bounded-range and pure DP with this
    epsilon (McSherry & Talwar 2007; Dong, Durfee & Rogers 2020), four times the inverse temperature of the usual
    ``epsilon / (2 L diameter)``. Rounding of the keep probabilities adds ``8 b`` for each output, see
    :meth:`keep_rounding`.

    Preconditions: rows bounded, intercept included; radius, ridge and ``beta`` public. The *running time* is random
    and its law depends on the data; on every data set at least ``exp(log_rate)`` of the proposals are kept. A proposal
    whose gap exceeds 44 is never kept, since no exponential variable is larger: like the tails of other noise, with
    a probability below 1e-19 for each proposal, this is not part of what is proved.
    """

    radius: float
    record_range: float

    theorem = "range of the loss over the ball (McSherry & Talwar 2007; bounded range: Dong, Durfee & Rogers 2020)"

    @property
    def name(self) -> str:  # type: ignore[override]
        return f"exponential mechanism, exact draw by rejection (keeps {exp(self.log_rate):.2g} of proposals or more)"

    @property
    def log_rate(self) -> float:
        """Logarithm of the share of proposals that are kept at least, on every data set."""
        room = self.radius - self.mode_norm
        return rejection_log_rate(self.inverse_temperature, self.ridge, self.smoothness, room, self.n_weights)

    @property
    def sensitivity(self) -> float:
        """Range over the ball of the change of ``J``, all outputs together."""
        return contributions(self.neighbours) * self.n_outputs * self.record_range

    @property
    def noise_scale(self) -> float:
        """The temperature."""
        return 1 / self.inverse_temperature

    @property
    def cost(self) -> Cost:
        if self.inverse_temperature == inf:
            return GaussianCost(inf)
        rounding = 8 * self.n_outputs * self.keep_rounding(self.radius)
        return BoundedRangeCost(self.sensitivity * self.inverse_temperature + rounding)

    def _draw(self, problem: Problem, mode: Array, noise: NoiseSource) -> Array:
        variance = 1 / (self.inverse_temperature * self.ridge)
        slack = self.slack(self.radius)
        weights, _ = self.above_tangent(
            problem,
            problem.zeros(),
            variance,
            mode,
            noise,
            slack=slack,
            log_rate=self.log_rate,
            radius=self.radius,
        )
        return weights


def calibrate_rejection(
    loss: MarginLoss, row_norm: float, radius: float, epsilon: float, **facts: Any
) -> RejectionSampling:
    """Return the exact draw that costs a pure ``epsilon``, rounding included.

    Parameters
    ----------
    loss : MarginLoss
    row_norm : float
        Bound on the norm of a row, intercept included.
    radius : float
        Of the ball of one output.
    epsilon : float
        Positive; ``inf`` for no noise.
    **facts
        The parameters of :class:`ExponentialSampling` but ``inverse_temperature``.
    """
    record_range = loss_range(loss, row_norm * radius)
    unit = RejectionSampling(inverse_temperature=1.0, radius=radius, record_range=record_range, **facts)
    # range and rounding are both proportional to beta
    beta = epsilon * (1 - 1e-12) / (unit.sensitivity + 8 * unit.n_outputs * unit.keep_rounding(radius))
    return RejectionSampling(inverse_temperature=beta, radius=radius, record_range=record_range, **facts)
