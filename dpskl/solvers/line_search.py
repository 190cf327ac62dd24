r"""Descent with a noisy backtracking line search: DP-BLGD, DP-BLSGD and DP-BLSGD-AC (Chen & Lee 2020)."""

from __future__ import annotations

from dataclasses import replace
from math import ceil, inf, sqrt
from typing import Any

import numpy as np

from dpskl.accounting import (
    RDPOrder,
    SampledPureCost,
    calibrate_above_threshold,
    gaussian_mu,
    rdp_order,
    sampled_noise_multiplier,
    sampled_pure_at_order,
)
from dpskl.curator import Curator
from dpskl.mechanisms.poisson_sample import PoissonSample
from dpskl.solvers._backtracking import Backtracking, Descent, Settings
from dpskl.solvers._checks import check_choice, check_number, check_sampling
from dpskl.solvers._descent import FullBatchMeter, OutOfTokens, SampledMeter, budget_curve
from dpskl.solvers.base import Outcome, Plan, PublicFacts, refuse_pure

__all__ = ["BacktrackingGD", "BacktrackingSGD"]

Array = np.ndarray[Any, Any]


class BacktrackingGD(Backtracking):
    r"""DP-BLGD: full-batch gradient descent whose steps are found by a noisy backtracking line search.

    Each update measures the gradient sum ``g`` of the clipped gradients at ``w`` with Gaussian noise, takes the
    direction ``p = momentum * (last direction) + (g + ridge w) / n`` and searches, by AboveThreshold, the first of the
    steps ``t = t_1, beta t_1, ..., beta^(max_it-1) t_1`` with

        F(w) - F(w - t p) >= alpha t <p, g + ridge w>,   F(w) = sum_i min(loss_i, objective_clip) + ridge ||w||^2 / 2.

    Where it finds none, ``t_1`` shrinks and, if the rule says so, the same gradient is measured again.

    Parameters
    ----------
    alpha : float, default=0.5
        Share of the linear decrease that a step must bring, in (0, 1).
    beta : float, default=0.8
        Ratio of successive steps, in (0, 1).
    max_it : int, default=20
        Steps that one search may try, 1 to 100.
    initial_step : float or None, default=None
        ``t_1`` of the first search, for the mean of the losses. ``None``: 5 over the smoothness of one record, or less
        where noise would outgrow the signal within ``n_updates`` (the rule of ``solver="gd"``).
    noise : {"gaussian", "laplace"}, default="gaussian"
        Law of the noise of the search.
    clip_norm : float or None, default=None
        The paper's ``C_grad``: bound on the norm of one record's gradient. Never more than what a row within
        ``data_norm`` can have; ``None``: the rule of ``solver="gd"``, between a third and all of that.
    objective_clip : float or None, default=None
        The paper's ``C_obj``: bound on one record's loss in the search, in [1e-3, 1e6). ``None``: 3 times the loss at
        ``w = 0``, which is 2.08 for the logistic loss of two classes. The paper's 1 would write off a rare class.
    xi : float, default=0.3
        Increase of the budget of gradients: the second measurement has ``xi`` times the budget of the first, both are
        averaged with their budgets as weights, and later gradients have the budget of both.
    tau : int, default=10
        After every ``tau`` updates ``t_1`` becomes ``phi_max`` times the largest step among them, at most
        ``initial_step``.
    psi : float, default=0.8
        Factor on ``t_1`` after a search without success, in (0, 1).
    phi_max : float, default=1.1
        See ``tau``.
    angle_max : float, default=1.1
        For ``budget_rule="adaptive"``: largest angle, in radians, between the gradients of this and the last update at
        which the gradient is still trusted.
    budget_rule : {"always", "adaptive", "never"}, default="always"
        After a search without success: measure again and raise the budget; do so where the angle is larger than
        ``angle_max`` or there is no last update; or replace the gradient by another one of the same budget.
    momentum : float, default=0.9
        In [0, 1). 0 is the paper's method.
    n_updates : int, default=100
        How many updates the budget is divided for. Searches without success make them fewer.
    search_share : float, default=0.1
        Share of the budget of one update that its search gets, in (0, 1).
    iterate : {"average", "last"}, default="average"
        Release an average of the iterates that favours the late ones (Shamir & Zhang 2013), or the last one.
    rows : {"fill", "clip", "sphere"}, default="fill"
        The row map (:mod:`dpskl.records.row_maps`). ``"clip"`` scales longer rows down to ``data_norm``, ``"sphere"``
        brings every row, its constant included, to that norm, up or down, and ``"fill"`` does the one after the other.
        Noise is for the longest row that there could be: with the last two no row is shorter.

    Notes
    -----
    *Privacy.* Gradients are Gaussian mechanisms, searches AboveThreshold in its range form
    (:mod:`dpskl.mechanisms.above_threshold`); the number and the noise of both are chosen at run time from what was
    released, under a Renyi filter whose orders and budgets are fixed beforehand
    (:class:`~dpskl.accounting.CurveFilter`). A fit is charged the whole budget and ends when the filter refuses. A
    second measurement costs no pass over the data. Nothing is asked of the loss.

    *Of the paper:* the search, clipping of gradients and losses, ``alpha``, ``beta``, ``xi``, averaging of measurements
    (from Lee & Kifer 2018), the three budget rules, last iterate, no momentum. *Its text does not say* what its
    constants ``tau``, ``varsigma``, ``phi_max``, ``phi_min`` and ``psi`` do; the window, the shrinking and the angle
    are our reading, and ``varsigma`` and ``phi_min`` have no part in it. *Ours:* momentum, the average, and the
    defaults of ``clip_norm`` (the paper's 3, for rows of norm about 3, hardly clips), ``initial_step`` and the division
    of the budget.
    *Not as in the paper:* its stopping rule, to go on while *some* Renyi order has budget left, is not valid.

    *Hinge.* It has kinks, at which the condition may fail for every step even without noise; the search then shrinks
    its steps. Privacy needs no smoothness. :class:`~dpskl.DPHuberSVC` avoids it.

    ``history_`` of the fitted estimator has, for each update: ``step_size``, ``largest_step``, ``gradient_level``
    (squared mu of the averaged gradient), ``gradient_norm`` (of the noisy sum), ``measurements`` and ``searches``.

    References
    ----------
    Chen & Lee (2020), arXiv:2008.07978, algorithms 1 to 3; Lee & Kifer (2018), KDD.
    """

    name = "blgd"
    rank = 6

    def __init__(
        self,
        alpha: float = 0.5,
        beta: float = 0.8,
        max_it: int = 20,
        initial_step: float | None = None,
        noise: str = "gaussian",
        clip_norm: float | None = None,
        objective_clip: float | None = None,
        xi: float = 0.3,
        tau: int = 10,
        psi: float = 0.8,
        phi_max: float = 1.1,
        angle_max: float = 1.1,
        budget_rule: str = "always",
        momentum: float = 0.9,
        n_updates: int = 100,
        search_share: float = 0.1,
        iterate: str = "average",
        rows: str = "fill",
    ) -> None:
        self.alpha = alpha
        self.beta = beta
        self.max_it = max_it
        self.initial_step = initial_step
        self.noise = noise
        self.clip_norm = clip_norm
        self.objective_clip = objective_clip
        self.xi = xi
        self.tau = tau
        self.psi = psi
        self.phi_max = phi_max
        self.angle_max = angle_max
        self.budget_rule = budget_rule
        self.momentum = momentum
        self.n_updates = n_updates
        self.search_share = search_share
        self.iterate = iterate
        self.rows = rows

    def plan(self, facts: PublicFacts, epsilon: float, delta: float) -> Plan:
        self.check_shared_parameters()
        check_choice("noise", self.noise, ("gaussian", "laplace"))
        refuse_pure(self.name, delta)
        order = rdp_order(epsilon, delta)
        each = order.budget / self.n_updates
        gradient_mu = sqrt(2 * (1 - self.search_share) * each / order.alpha)
        scales = self._search_scales(order, self.search_share * each)
        settings = self.settings(facts, gaussian_mu(epsilon, delta), gradient_mu, self.noise, scales)
        questions = ((settings.gradient, self.n_updates), (settings.search, self.n_updates))
        budget = budget_curve(order, [(question.cost, count) for question, count in questions])
        return Plan(questions, 1 / facts.C, settings, budget=budget, along_path=True)

    def _search_scales(self, order: RDPOrder, divergence: float) -> tuple[float, float]:
        """Return the scales of threshold and query noise, in units of the range, that a divergence allows."""
        scale = calibrate_above_threshold(self.max_it, order.alpha, divergence, self.noise)
        return (scale, scale) if self.noise == "laplace" else (scale * sqrt(1 / 3), scale * sqrt(2 / 3))

    def run(self, curator: Curator, plan: Plan) -> Outcome:
        settings: Settings = plan.settings
        return Descent(self, plan.ridge, settings, curator, FullBatchMeter(settings.gradient), 0.0).run()


class BacktrackingSGD(Backtracking):
    r"""DP-BLSGD: as :class:`BacktrackingGD`, every question asked about a fresh Poisson sample of the records.

    A gradient is the mean of ``round(1 / xi)`` noisy sums, each on a sample of its own into which a record enters with
    probability ``q / round(1 / xi)``; a search reads one sample of rate ``q``. After a search without success both the
    search and, if the rule says so, further parts of the gradient draw new samples.

    Parameters
    ----------
    q : float, default=0.1
        Expected share of the records that one gradient, or one search, reads, in (0, 1].
    threshold_decay : float, default=0.0
        The paper's ``zeta``: after an update in which the gradient's budget was raised, both clip thresholds fall by
        this share, in [0, 1). 0.05 is its DP-BLSGD-AC.
    budget_rule : {"adaptive", "always", "never"}, default="adaptive"
        As for :class:`BacktrackingGD`.
    alpha, beta, max_it, initial_step, clip_norm, objective_clip, xi, tau, psi, phi_max, angle_max
        As for :class:`BacktrackingGD`.
    momentum, search_share, iterate, rows
        As for :class:`BacktrackingGD`. With the noise of a search being pure, it has Laplace law.
    n_updates : int, default=100
        How many updates the pool of questions is for. A tenth more parts and searches are planned than these need.

    Notes
    -----
    *Privacy.* The numbers of questions of both kinds are fixed beforehand, and each is a mechanism on its own Poisson
    sample: a sampled Gaussian, and a sampled epsilon-DP search. In whatever order they are spent, the pool costs their
    ordinary composition (:class:`~dpskl.accounting.TokenPool`), computed with privacy loss distributions. The size of a
    sample is never shown. Under replace_one the sampling bound is another one: it is refused.

    *Of the paper:* what :class:`BacktrackingGD` lists, ``q`` and ``zeta``. *Not as in the paper:* it amplifies gradient
    and search separately, which is true only if they read different samples; ours do. It asks one gradient of budget
    ``rho`` and raises that to ``(1 + xi) rho``; a pool needs equal questions, so ours is a mean of parts, of which
    there may be more. Its initial budget, ``epsilon / 100`` for each update, is replaced by the division of the whole.

    ``history_`` is that of :class:`BacktrackingGD`, ``gradient_level`` being the number of parts in a gradient.

    References
    ----------
    Chen & Lee (2020), arXiv:2008.07978, algorithms 1 to 3.
    """

    name = "blsgd"
    rank = 7

    def __init__(
        self,
        alpha: float = 0.5,
        beta: float = 0.8,
        max_it: int = 20,
        initial_step: float | None = None,
        q: float = 0.1,
        clip_norm: float | None = None,
        objective_clip: float | None = None,
        xi: float = 0.3,
        tau: int = 10,
        psi: float = 0.8,
        phi_max: float = 1.1,
        angle_max: float = 1.1,
        budget_rule: str = "adaptive",
        threshold_decay: float = 0.0,
        momentum: float = 0.9,
        n_updates: int = 100,
        search_share: float = 0.1,
        iterate: str = "average",
        rows: str = "fill",
    ) -> None:
        self.alpha = alpha
        self.beta = beta
        self.max_it = max_it
        self.initial_step = initial_step
        self.q = q
        self.clip_norm = clip_norm
        self.objective_clip = objective_clip
        self.xi = xi
        self.tau = tau
        self.psi = psi
        self.phi_max = phi_max
        self.angle_max = angle_max
        self.budget_rule = budget_rule
        self.threshold_decay = threshold_decay
        self.momentum = momentum
        self.n_updates = n_updates
        self.search_share = search_share
        self.iterate = iterate
        self.rows = rows

    def plan(self, facts: PublicFacts, epsilon: float, delta: float) -> Plan:
        self.check_shared_parameters()
        check_number("q", self.q, 0, 1, closed_high=True)
        check_number("threshold_decay", self.threshold_decay, 0, 1, closed=True)
        refuse_pure(self.name, delta)
        check_sampling(self.name, facts.neighbours, epsilon, delta, "solver='blgd'")
        order = rdp_order(epsilon, delta)
        parts = max(1, round(1 / self.xi))
        n_searches = ceil(1.1 * self.n_updates)
        n_parts = parts * n_searches
        pure = sampled_pure_at_order(self.search_share * order.budget / n_searches, self.q, order.alpha)
        searches = (SampledPureCost(self.q, pure), n_searches)
        noise = sampled_noise_multiplier(epsilon, delta, self.q / parts, n_parts, (searches,))
        scale = 0.0 if epsilon == inf else 2 / pure
        mu = inf if noise == 0 else 1 / noise
        settings = self.settings(facts, gaussian_mu(epsilon, delta), mu, "laplace", (scale, scale))
        gradient = PoissonSample(settings.gradient, self.q / parts)
        search = PoissonSample(settings.search, self.q)
        return Plan(((gradient, n_parts), (search, n_searches)), 1 / facts.C, settings)

    def run(self, curator: Curator, plan: Plan) -> Outcome:
        (gradient, n_parts), (search, n_searches) = plan.questions
        assert isinstance(gradient, PoissonSample)
        assert isinstance(search, PoissonSample)
        meter = SampledMeter(gradient, n_parts // n_searches, n_parts)
        return _SampledDescent(self, plan, curator, meter, search, n_searches).run()


class _SampledDescent(Descent):
    """The same run with searches on samples, of which there are so many and no more."""

    def __init__(
        self,
        solver: BacktrackingSGD,
        plan: Plan,
        curator: Curator,
        meter: SampledMeter,
        search: PoissonSample,
        n_searches: int,
    ) -> None:
        super().__init__(solver, plan.ridge, plan.settings, curator, meter, solver.threshold_decay)
        self.sampled_search, self.left = search, n_searches

    def ask_search(self, weights: Array, direction: Array, steps: Array, demands: Array) -> int | None:
        if self.left == 0:
            raise OutOfTokens
        self.left -= 1
        search = self.settings.search
        search = replace(search, objective_clip=self.threshold * search.objective_clip)
        question = replace(self.sampled_search, mechanism=search)
        # demands are for all records, a sample has its share of the decrease
        found: int | None = self.curator.ask(question, weights, direction, steps, question.rate * demands)
        return found
