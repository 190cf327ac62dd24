r"""Draws from ``exp(-beta J(w))`` without a ball, by Markov chains: one certified, one conditional on exact sampling.

``J`` is as in :mod:`~dpskl.mechanisms.exponential_sampling`. An exact draw of all ``K`` outputs is mu-GDP with
``mu = c L sqrt(K beta / ridge)``, ``c = 1`` for add_remove and 2 for replace_one (Gopi, Lee & Liu 2022).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import ceil, exp, inf, log, log1p, sqrt
from typing import Any

import numpy as np
from scipy.linalg import cho_factor, cho_solve, solve_triangular

from dpskl.accounting import ApproximateCost, Cost, GaussianCost, gaussian_delta, gaussian_mu
from dpskl.mechanisms.exponential_sampling import RESIDUAL, ExponentialSampling
from dpskl.mechanisms.noise import NoiseSource
from dpskl.mechanisms.sensitivity import contributions
from dpskl.records.problem import Problem

__all__ = ["MetropolisSampling", "ProximalSampling", "calibrate_metropolis", "calibrate_proximal"]

Array = np.ndarray[Any, Any]

# Variance of a proximal step times the curvature bound of the losses: longer steps mean fewer of them and more
# proposals for each, exp(2.35) on average at worst.
_REACH = 3.0
_LOG_RATE = -(1 + RESIDUAL) * _REACH / 2 - 0.1
# Precision of the start in units of M: above 1, its density stays bounded although the mode is a computed one.
_START = 1.01
# Share of delta for the distance of the chain's law from the exact one: a smaller share costs a few steps more.
_CHAIN_SHARE = 0.01
# Share of epsilon that rounding may take.
_ROUNDING_SHARE = 0.05


@dataclass(frozen=True)
class _GaussianDraw(ExponentialSampling):
    """A draw from ``exp(-beta J(w))`` whose privacy comes from the strong convexity of ``J``."""

    @property
    def sensitivity(self) -> float:
        """Lipschitz constant of the change of ``J``, all outputs together."""
        return contributions(self.neighbours) * self.gradient_bound * sqrt(self.n_outputs)

    @property
    def noise_scale(self) -> float:
        """``sqrt(ridge / beta)``: the Gaussian mechanism with this noise costs the same."""
        return sqrt(self.ridge / self.inverse_temperature)

    @property
    def mu(self) -> float:
        """Gaussian privacy parameter of an exact draw of all outputs."""
        return inf if self.inverse_temperature == inf else self.sensitivity / self.noise_scale


def _at_mu(mechanism: Any, mu: float) -> Any:
    """Return the mechanism with the inverse temperature whose exact draw is mu-GDP."""
    return replace(mechanism, inverse_temperature=(mu / mechanism.sensitivity) ** 2 * mechanism.ridge)


@dataclass(frozen=True)
class ProximalSampling(_GaussianDraw):
    r"""The proximal sampler, with a proved bound on its distance from ``exp(-beta J(w))``.

    ``y = w + N(0, h I)``, then ``w`` drawn exactly from ``exp(-beta J(w) - ||w - y||^2 / (2 h))``, ``h = 3 / (beta n
    B)``.

    Parameters
    ----------
    inverse_temperature, ridge, gradient_bound, curvature_bound, loss_at_zero, n_outputs, neighbours, n_samples, \
    n_features, n_weights
        As in :class:`~dpskl.mechanisms.exponential_sampling.ExponentialSampling`.
    n_steps : int
        For each output.
    epsilon : float
        Where the cost is stated.
    rounding : float
        What rounding of all keep probabilities adds to epsilon, all outputs together.

    Notes
    -----
    Each step contracts the Kullback-Leibler divergence from ``pi``, proportional to ``exp(-beta J)``, by
    ``(1 + m h)^-2`` with ``m = beta ridge`` (Lee, Shen & Tian 2021; Chen, Chewi, Salim & Wibisono 2022, theorem 3);
    ``m`` holds on every data set because the ridge is part of ``J``. The start ``N(x, I / (1.01 M))``, ``M = beta (n
    B + ridge)`` and ``x`` within ``e`` of the mode, has a divergence of at most ``(p / 2) log(1.01 M / m) + 51 M
    e^2``, which bounds the logarithm of its density relative to ``pi`` too; there is no ball, so the mode is
    interior. By Pinsker the total variation of one output is at most ``tau = sqrt(KL / 2)``, and

        ``delta = e^(r / 2) (H(mu, epsilon - r) + (1 + e^epsilon) K tau)``

    with ``r`` the rounding and ``H`` the curve of the Gaussian mechanism. The event that a point lies outside the
    ball for which ``r`` is computed is counted as 1 % of ``tau``; that a step keeps no proposal at all has a
    probability below ``e^-1000`` for each step. One point of the privacy profile is proved, so the cost is that
    point.
    """

    n_steps: int
    epsilon: float
    rounding: float

    theorem = (
        "mu-GDP of the regularised exponential mechanism (Gopi, Lee & Liu 2022) and the total variation of the "
        "proximal sampler (Chen, Chewi, Salim & Wibisono 2022)"
    )

    @property
    def name(self) -> str:  # type: ignore[override]
        return f"exponential mechanism, {self.n_steps} proximal steps"

    @property
    def log_contraction(self) -> float:
        """Logarithm of ``1 + m h``, the same at every temperature."""
        return log1p(_REACH * self.ridge / self.smoothness)

    @property
    def start_divergence(self) -> float:
        """Bound on the divergence of the start from the exact law, and on the logarithm of their densities' ratio."""
        kappa, beta = 1 + self.smoothness / self.ridge, self.inverse_temperature
        # at zero temperature nothing is drawn
        shift = 0.0 if beta == inf else beta * self.ridge * kappa * (self.tolerance / self.ridge) ** 2
        return self.n_weights / 2 * log(_START * kappa) + 51 * shift

    @property
    def log_total_variation(self) -> float:
        """Logarithm of a bound on the total variation of one output."""
        return 0.5 * log(self.start_divergence / 2) - self.n_steps * self.log_contraction + log(1 / 0.99)

    @property
    def cost(self) -> Cost:
        if self.inverse_temperature == inf:
            return GaussianCost(inf)
        chain = self.n_outputs * exp(float(np.logaddexp(0.0, self.epsilon)) + self.log_total_variation)
        delta = exp(self.rounding / 2) * (gaussian_delta(self.mu, self.epsilon - self.rounding) + chain)
        return ApproximateCost(self.epsilon, min(1.0, delta))

    @property
    def weight_norm(self) -> float:
        r"""Norm that no point of any step exceeds, but for a probability of 1 % of the total variation.

        The density of every ``w`` relative to ``pi`` stays below that of the start, and under ``pi`` the distance
        from the mode is stochastically at most that under ``N(0, I / m)`` (on each ray their ratio decreases).
        ``P(chi^2_p > p + 2 sqrt(p x) + 2 x) <= e^-x`` (Laurent & Massart 2000) then bounds every ``w``, every ``y``
        and every proposal.
        """
        p, m = self.n_weights, self.inverse_temperature * self.ridge
        h = _REACH / (self.inverse_temperature * self.smoothness)
        proposals = self.n_steps * 1000 * exp(-_LOG_RATE)
        x = self.start_divergence + log(3 * proposals) - self.log_total_variation + 5
        reach = sqrt(p + 2 * sqrt(p * x) + 2 * x)
        return self.mode_norm + reach / sqrt(m) + (2 * reach + 1) * sqrt(h)

    def _draw(self, problem: Problem, mode: Array, noise: NoiseSource) -> Array:
        beta, m = self.inverse_temperature, self.inverse_temperature * self.ridge
        h = _REACH / (beta * self.smoothness)
        variance = 1 / (m + 1 / h)
        slack = self.slack(self.weight_norm)
        weights = mode + noise.normal(mode.shape, 1 / sqrt(_START * beta * (self.ridge + self.smoothness)))
        gradient = -m * mode
        for _ in range(self.n_steps):
            centre = (weights + noise.normal(mode.shape, sqrt(h))) * (variance / h)
            # where the gradient has changed little, this is the tangent point already
            start = centre - variance * gradient
            weights, gradient = self.above_tangent(
                problem, centre, variance, start, noise, slack=slack, log_rate=_LOG_RATE
            )
        return weights


def calibrate_proximal(epsilon: float, delta: float, max_steps: int, **facts: Any) -> ProximalSampling:
    """Return the chain that costs (epsilon, delta), its distance from the exact law and rounding included.

    Parameters
    ----------
    epsilon, delta : float
        ``delta`` positive; ``epsilon=inf`` for no noise.
    max_steps : int
        Refuse where more are needed.
    **facts
        The parameters of :class:`~dpskl.mechanisms.exponential_sampling.ExponentialSampling` but
        ``inverse_temperature``.
    """
    made = ProximalSampling(inverse_temperature=inf, n_steps=0, epsilon=epsilon, rounding=0.0, **facts)
    if epsilon == inf:
        return made
    made = _at_mu(made, gaussian_mu(epsilon, delta))
    target = log(_CHAIN_SHARE * delta / made.n_outputs) - float(np.logaddexp(0.0, epsilon))
    steps = max((made.log_total_variation - target) / made.log_contraction + 2, 1.0)
    if not steps <= max_steps:
        raise ValueError(
            f"sampler='proximal' needs {steps:.0f} steps, each of about seven passes over the data, to certify its "
            f"law at epsilon={epsilon:g}, delta={delta:g}, and max_iter={max_steps} allows fewer; raise max_iter or "
            "ridge, or take sampler='langevin', which needs no certificate"
        )
    made = replace(made, n_steps=ceil(steps))
    # a tenth more than at this temperature: the one that is taken below differs a little
    rounding = 4.4 * made.n_outputs * made.n_steps * made.keep_rounding(made.weight_norm)
    if rounding > _ROUNDING_SHARE * epsilon or not made.is_resolved(made.weight_norm):
        raise ValueError(
            f"epsilon={epsilon:g} with n_samples={made.n_samples}: sampler='proximal' cannot tell its keep "
            "probabilities from rounding; take sampler='langevin', or a smaller epsilon"
        )
    exact = delta * exp(-rounding / 2) - _CHAIN_SHARE * delta
    made = replace(_at_mu(made, gaussian_mu(epsilon - rounding, exact) * (1 - 1e-12)), rounding=rounding)
    if made.rounding < 4 * made.n_outputs * made.n_steps * made.keep_rounding(made.weight_norm):
        raise AssertionError("the rounding that was paid for is too small: this is a bug in dpskl")
    return made


@dataclass(frozen=True)
class MetropolisSampling(_GaussianDraw):
    r"""Metropolis-adjusted Langevin steps, preconditioned by the Hessian at the mode: fast, and *not certified*.

    Parameters
    ----------
    inverse_temperature, ridge, gradient_bound, curvature_bound, loss_at_zero, n_outputs, neighbours, n_samples, \
    n_features, n_weights
        As in :class:`~dpskl.mechanisms.exponential_sampling.ExponentialSampling`.
    n_steps : int
        For each output.

    Notes
    -----
    The stationary law is that of the exact draw and costs ``mu``. After finitely many steps the law is
    only close to it, and how close is not proved: the cost is *conditional on exact sampling*, and whoever states it
    must say so.
    """

    n_steps: int

    theorem = (
        "mu-GDP of the regularised exponential mechanism (Gopi, Lee & Liu 2022), conditional on exact sampling, which "
        "Metropolis steps do not give"
    )

    @property
    def name(self) -> str:  # type: ignore[override]
        return f"exponential mechanism, {self.n_steps} Metropolis-adjusted Langevin steps"

    @property
    def cost(self) -> Cost:
        return GaussianCost(self.mu)

    def _draw(self, problem: Problem, mode: Array, noise: NoiseSource) -> Array:
        beta, p = self.inverse_temperature, self.n_weights
        _, hessian = problem.gradient_hessian(mode)
        hessian[np.diag_indices(p)] += self.ridge
        factor, _ = cho_factor(beta * hessian)
        factor = np.triu(factor)  # hessian = factor^T factor
        # 1.65^2 / p^(1/3) is the optimal scaling of Roberts & Rosenthal (1998)
        step = min(1.0, 2.72 / p ** (1 / 3))

        def look(weights: Array) -> tuple[float, Array]:
            """Return the energy and the drift of a proposal."""
            losses = problem.losses(problem.scores(weights))
            energy = beta * (float(losses.sum()) + self.ridge / 2 * float(weights @ weights))
            gradient = beta * (problem.gradient_sum(weights) + self.ridge * weights)
            return energy, -step / 2 * cho_solve((factor, False), gradient)

        def spread(size: tuple[int, ...]) -> Array:
            return np.asarray(solve_triangular(factor, noise.normal(size, 1.0)))

        def excess(move: Array) -> float:
            whitened = factor @ move
            return float(whitened @ whitened) / (2 * step)

        weights = mode + spread(mode.shape)
        energy, drift = look(weights)
        for _ in range(self.n_steps):
            proposal = weights + drift + sqrt(step) * spread(mode.shape)
            new_energy, new_drift = look(proposal)
            back, forth = excess(weights - proposal - new_drift), excess(proposal - weights - drift)
            if noise.standard_exponential(1)[0] >= new_energy - energy + back - forth:
                weights, energy, drift = proposal, new_energy, new_drift
        return weights


def calibrate_metropolis(epsilon: float, delta: float, n_steps: int, **facts: Any) -> MetropolisSampling:
    """Return the chain whose *exact* law costs (epsilon, delta), ``delta`` positive."""
    made = MetropolisSampling(inverse_temperature=inf, n_steps=n_steps, **facts)
    return made if epsilon == inf else _at_mu(made, gaussian_mu(epsilon, delta) * (1 - 1e-12))
