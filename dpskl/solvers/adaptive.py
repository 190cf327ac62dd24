"""Gradient descent that chooses among many steps and raises its budget when none helps: DP-AGD (Lee & Kifer 2018)."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf, sqrt
from typing import Any

import numpy as np

from dpskl.accounting import bounded_range_at_order, rdp_order
from dpskl.budget import FilterRefusal
from dpskl.curator import Curator
from dpskl.mechanisms.gradient import GaussianGradient
from dpskl.mechanisms.step_selection import StepSelection
from dpskl.records.losses import HuberHinge, Loss
from dpskl.records.row_maps import ROW_MAPS
from dpskl.solvers._checks import check_choice, check_count, check_number
from dpskl.solvers._descent import (
    FullBatchMeter,
    Logbook,
    Measurement,
    OutOfTokens,
    StepRange,
    budget_curve,
    check_objective_clip,
    default_objective_clip,
)
from dpskl.solvers.base import Outcome, Plan, PublicFacts, Solver, refuse_pure

__all__ = ["AdaptiveGD"]

Array = np.ndarray[Any, Any]

_MAX_MARGIN = 6.0  # by which the longest step may move a margin: the paper's 2, for rows of norm about 3
_SHRINK = 0.8  # of the grid after step 0 was chosen
_HINGE_WIDTH = 0.5  # of the parabola in place of the kink: 0.1 still stalls
_FAILURES = 60  # measurements of one gradient; without noise nothing else ends a converged descent


@dataclass(frozen=True)
class _Settings:
    max_step: float
    max_updates: int


class AdaptiveGD(Solver):
    r"""DP-AGD: each update chooses the best of a grid of steps along the normalised noisy gradient.

    The gradient sum ``g`` at ``w`` is measured with Gaussian noise. With ``u = (g + ridge w) / ||g + ridge w||``, the
    steps ``0, s, 2 s, ..., n_candidates s = max_step`` are scored by the sum of clipped losses and the penalty at ``w -
    t u``, and one with a small score is chosen privately. Where that is step 0, the grid shrinks, the gradient is
    measured again with ``gamma`` times its budget, both are averaged, and later gradients have the budget of both.

    Parameters
    ----------
    gamma : float, default=0.1
        Increase of the budget of gradients when step 0 is chosen, positive.
    n_candidates : int, default=20
        Steps beside 0.
    max_step : float or None, default=None
        Longest step, in the norm of the weights. ``None``: what moves a margin by at most 6. After every 10 updates it
        becomes 1.1 times the longest step among them, at most this.
    clip_norm : float or None, default=None
        Bound on the norm of one record's gradient. ``None``: what a row within ``data_norm`` can have, which clips
        nothing; along a clipped gradient step 0 may be the best of the grid.
    objective_clip : float or None, default=None
        Bound on one record's loss in the choice, in [1e-3, 1e6). ``None``: 3 times the loss at ``w = 0``.
    n_updates : int, default=60
        How many updates the budget is divided for.
    choice_share : float, default=0.2
        Share of the budget of one update that its choice of a step gets, in (0, 1).
    iterate : {"average", "last"}, default="average"
        Release an average of the iterates that favours the late ones (Shamir & Zhang 2013), or the last one.
    rows : {"fill", "clip", "sphere"}, default="fill"
        The row map (:mod:`dpskl.records.row_maps`). ``"clip"`` scales longer rows down to ``data_norm``, ``"sphere"``
        brings every row, its constant included, to that norm, up or down, and ``"fill"`` does the one after the other.
        Noise is for the longest row that there could be: with the last two no row is shorter.

    Notes
    -----
    *Privacy.* Gradients are Gaussian mechanisms, choices exponential mechanisms of bounded range, both spent at run
    time under a Renyi filter (:class:`~dpskl.accounting.CurveFilter`). A fit is charged the whole budget and ends when
    the filter refuses. Nothing is asked of the loss.

    *Corrected.* The published code adds exponential noise to losses and takes the smallest, which is not private as
    stated: the true loss is up to ``n_candidates`` times the claim. It takes the step before the chosen one, charges
    each accepted gradient twice, and leaves the penalty out of the scores. *Ours* are the average, the shrinking grid
    and the defaults of ``clip_norm``, ``objective_clip`` (both 3 in that code, for rows of norm about 3), ``max_step``
    and the division of the budget.

    *Hinge.* Privacy needs no smoothness, but the descent does: the best step along a subgradient ends at kinks, where
    step 0 is the best of the next, and on Adult without noise the hinge itself ends at the majority class. So the hinge
    is replaced by :class:`~dpskl.records.losses.HuberHinge` with ``h = 0.5``, for gradients and for scores.

    ``history_`` of the fitted estimator has, for each update: ``step_size``, ``largest_step``, ``gradient_level``
    (squared mu of the averaged gradient), ``gradient_norm`` and ``measurements``.

    References
    ----------
    Lee & Kifer (2018), KDD, algorithm 1.
    """

    name = "agd"
    rank = 9

    def __init__(
        self,
        gamma: float = 0.1,
        n_candidates: int = 20,
        max_step: float | None = None,
        clip_norm: float | None = None,
        objective_clip: float | None = None,
        n_updates: int = 60,
        choice_share: float = 0.2,
        iterate: str = "average",
        rows: str = "fill",
    ) -> None:
        self.gamma = gamma
        self.n_candidates = n_candidates
        self.max_step = max_step
        self.clip_norm = clip_norm
        self.objective_clip = objective_clip
        self.n_updates = n_updates
        self.choice_share = choice_share
        self.iterate = iterate
        self.rows = rows

    def problem_loss(self, facts: PublicFacts) -> Loss:
        loss = super().problem_loss(facts)
        return loss if loss.is_smooth else HuberHinge(_HINGE_WIDTH)

    def plan(self, facts: PublicFacts, epsilon: float, delta: float) -> Plan:
        self._check_parameters()
        refuse_pure(self.name, delta)
        loss = self.problem_loss(facts)
        slope_bound = loss.gradient_bound(facts.n_outputs)
        largest = slope_bound * facts.row_norm
        clip_norm = largest if self.clip_norm is None else min(self.clip_norm, largest)
        objective_clip = self.objective_clip
        if objective_clip is None:
            objective_clip = default_objective_clip(loss, facts.n_outputs)
        order = rdp_order(epsilon, delta)
        each = order.budget / self.n_updates
        mu = sqrt(2 * (1 - self.choice_share) * each / order.alpha)
        gradient = GaussianGradient(clip_norm, mu, facts.neighbours, facts.n_samples, facts.n_features)
        choice = StepSelection(
            epsilon=bounded_range_at_order(self.choice_share * each, order.alpha),
            objective_clip=objective_clip,
            slope_bound=slope_bound,
            row_norm=facts.row_norm,
            neighbours=facts.neighbours,
            n_samples=facts.n_samples,
            n_features=facts.n_features,
        )
        questions = ((gradient, self.n_updates), (choice, self.n_updates))
        max_step = _MAX_MARGIN / facts.row_norm if self.max_step is None else self.max_step
        settings = _Settings(max_step, self.n_updates if epsilon == inf else 10 * self.n_updates)
        budget = budget_curve(order, [(question.cost, count) for question, count in questions])
        return Plan(questions, 1 / facts.C, settings, budget=budget, along_path=True)

    def run(self, curator: Curator, plan: Plan) -> Outcome:
        settings: _Settings = plan.settings
        (gradient, _), (choice, _) = plan.questions
        meter = FullBatchMeter(gradient)  # type: ignore[arg-type]
        log = Logbook(curator.zeros(), self.iterate == "average")
        steps = StepRange(settings.max_step, psi=_SHRINK, tau=10, phi_max=1.1)
        try:
            while log.n_updates < settings.max_updates:
                weights = log.weights
                measured = Measurement(meter, curator, weights, meter.question.clip_norm)
                for _ in range(_FAILURES):
                    direction = measured.gradient + plan.ridge * weights
                    direction = direction / (float(np.abs(direction).max()) or 1.0)  # squares may vanish
                    direction = direction / (float(np.linalg.norm(direction)) or 1.0)
                    candidates = np.linspace(0, steps.largest, self.n_candidates + 1)
                    # relative to step 0, so that large weights cost no digits
                    along, square = float((weights * direction).sum()), float((direction**2).sum())
                    penalties = plan.ridge * (candidates**2 * square / 2 - candidates * along)
                    chosen = curator.ask(choice, weights, direction, candidates, penalties)
                    if chosen > 0:
                        break
                    steps.shrink()
                    measured.raise_level(self.gamma)
                else:
                    raise OutOfTokens
                log.add(
                    weights - float(candidates[chosen]) * direction,
                    step_size=float(candidates[chosen]),
                    largest_step=float(candidates[-1]),
                    gradient_level=float(measured.level),
                    gradient_norm=float(np.linalg.norm(measured.gradient)),
                    measurements=measured.count,
                )
                steps.accept(float(candidates[chosen]))
        except (FilterRefusal, OutOfTokens):
            pass  # the budget is spent: what was released by then is the answer
        return Outcome(log.result, log.n_updates, log.history, meter.question.clip_norm)

    def _check_parameters(self) -> None:
        check_number("gamma", self.gamma)
        check_count("n_candidates", self.n_candidates, 1, 1000)
        for name in ("max_step", "clip_norm"):
            check_number(name, getattr(self, name), optional=True)
        check_objective_clip(self.objective_clip)
        check_count("n_updates", self.n_updates)
        check_number("choice_share", self.choice_share, 0, 1)
        check_choice("iterate", self.iterate, ("average", "last"))
        check_choice("rows", self.rows, ROW_MAPS)
