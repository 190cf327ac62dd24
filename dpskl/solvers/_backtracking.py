r"""The descent with a noisy backtracking line search that DP-BLGD and DP-BLSGD share (Chen & Lee 2020)."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import Any

import numpy as np

from dpskl.budget import FilterRefusal
from dpskl.curator import Curator
from dpskl.mechanisms.above_threshold import BacktrackingSearch
from dpskl.mechanisms.gradient import GaussianGradient
from dpskl.records.row_maps import ROW_MAPS
from dpskl.solvers._checks import check_choice, check_count, check_number
from dpskl.solvers._descent import (
    Logbook,
    Measurement,
    Meter,
    OutOfTokens,
    StepRange,
    angle,
    check_objective_clip,
    default_objective_clip,
)
from dpskl.solvers.base import Outcome, PublicFacts, Solver
from dpskl.solvers.gradient_descent import balanced_time, effective_clip

__all__ = ["Backtracking", "Descent", "Settings"]

Array = np.ndarray[Any, Any]

_LARGEST_STEP = 5.0  # of the first search, over the smoothness of one record
_SMALLEST_THRESHOLD = 0.01  # clip norms do not decay below this share
_FAILURES = 60  # searches that may fail in one update; without noise nothing else ends a converged descent
_RULES = ("never", "always", "adaptive")


@dataclass(frozen=True)
class Settings:
    """What a descent needs besides its budget; steps are for the mean of the losses."""

    largest_step: float
    max_updates: int
    gradient: GaussianGradient
    search: BacktrackingSearch


class Backtracking(Solver):
    """Parameters and rules that both solvers share."""

    alpha: float
    beta: float
    max_it: int
    initial_step: float | None
    clip_norm: float | None
    objective_clip: float | None
    xi: float
    tau: int
    psi: float
    phi_max: float
    angle_max: float
    budget_rule: str
    momentum: float
    n_updates: int
    search_share: float
    iterate: str

    def check_shared_parameters(self) -> None:
        check_number("alpha", self.alpha, 0, 1)
        check_number("beta", self.beta, 0, 1)
        check_count("max_it", self.max_it, 1, 100)
        for name in ("initial_step", "clip_norm"):
            check_number(name, getattr(self, name), optional=True)
        check_objective_clip(self.objective_clip)
        check_number("xi", self.xi)
        check_count("tau", self.tau)
        check_number("psi", self.psi, 0, 1)
        check_number("phi_max", self.phi_max)
        check_number("angle_max", self.angle_max)
        check_choice("budget_rule", self.budget_rule, _RULES)
        check_number("momentum", self.momentum, 0, 1, closed=True)
        check_count("n_updates", self.n_updates)
        check_number("search_share", self.search_share, 0, 1)
        check_choice("iterate", self.iterate, ("average", "last"))
        check_choice("rows", self.rows, ROW_MAPS)

    def settings(
        self, facts: PublicFacts, total_mu: float, gradient_mu: float, law: str, scales: tuple[float, float]
    ) -> Settings:
        loss = self.problem_loss(facts)
        slope_bound = loss.gradient_bound(facts.n_outputs)
        clip_norm = effective_clip(self.clip_norm, slope_bound * facts.row_norm, facts, total_mu)
        objective_clip = self.objective_clip
        if objective_clip is None:
            objective_clip = default_objective_clip(loss, facts.n_outputs)
        largest_step = self.initial_step
        if largest_step is None:
            smoothness = min(loss.curvature_bound, 1.0) * facts.row_norm**2
            time = balanced_time(facts, total_mu) * (1 - self.momentum)
            largest_step = min(_LARGEST_STEP / smoothness, time / self.n_updates)
        return Settings(
            largest_step=largest_step,
            max_updates=self.n_updates if gradient_mu == inf else 10 * self.n_updates,
            gradient=GaussianGradient(clip_norm, gradient_mu, facts.neighbours, facts.n_samples, facts.n_features),
            search=BacktrackingSearch(
                law=law,
                threshold_scale=scales[0],
                query_scale=scales[1],
                max_it=self.max_it,
                objective_clip=objective_clip,
                slope_bound=slope_bound,
                row_norm=facts.row_norm,
                neighbours=facts.neighbours,
                n_samples=facts.n_samples,
                n_features=facts.n_features,
            ),
        )


class Descent:
    """One run: where it stands, and the rules by which it goes on. All that it reads was released.

    Parameters
    ----------
    solver : Backtracking
        For the parameters.
    ridge : float
    settings : Settings
    curator : Curator
    meter : Meter
        Asks for gradients.
    decay : float
        By which share clip thresholds fall after an update in which the level was raised.
    """

    def __init__(
        self, solver: Backtracking, ridge: float, settings: Settings, curator: Curator, meter: Meter, decay: float
    ) -> None:
        self.solver, self.ridge, self.settings = solver, ridge, settings
        self.curator, self.meter, self.decay = curator, meter, decay
        self.log = Logbook(curator.zeros(), solver.iterate == "average")
        self.steps = StepRange(settings.largest_step, solver.psi, solver.tau, solver.phi_max)
        self.velocity = curator.zeros()
        self.previous: Array | None = None
        self.threshold = 1.0

    def run(self) -> Outcome:
        """Make updates until the budget refuses a question; what was released by then is the answer."""
        try:
            while self.log.n_updates < self.settings.max_updates:
                self.update()
        except (FilterRefusal, OutOfTokens):
            pass
        clip_norm = self.threshold * self.settings.gradient.clip_norm
        return Outcome(self.log.result, self.log.n_updates, self.log.history, clip_norm)

    def update(self) -> None:
        """Measure the gradient, search a step, and take it (algorithm 2 of the paper, lines 3 to 13)."""
        weights = self.log.weights
        measured = Measurement(self.meter, self.curator, weights, self.threshold * self.settings.gradient.clip_norm)
        before = measured.level
        searches = 0
        while True:
            direction, slope = self.direction(measured.gradient)
            candidates = self.steps.largest * self.solver.beta ** np.arange(self.solver.max_it)
            found = self.search(direction, slope, candidates)
            searches += 1
            if found is not None:
                break
            if searches == _FAILURES:
                raise OutOfTokens
            self.steps.shrink()
            self.reconsider(measured)
        step = float(candidates[found])
        self.log.add(
            weights - step * direction,
            step_size=step,
            largest_step=float(candidates[0]),
            gradient_level=float(measured.level),
            gradient_norm=float(np.linalg.norm(measured.gradient)),
            measurements=measured.count,
            searches=searches,
        )
        self.velocity, self.previous = direction, measured.gradient
        self.steps.accept(step)
        if measured.level > before:
            self.threshold = max(self.threshold * (1 - self.decay), _SMALLEST_THRESHOLD)

    def direction(self, gradient: Array) -> tuple[Array, Array]:
        """Return the direction of the search and the gradient of the mean objective."""
        slope = (gradient + self.ridge * self.log.weights) / self.settings.gradient.n_samples
        direction = self.solver.momentum * self.velocity + slope
        # momentum that leads uphill is dropped
        return (direction if (direction * slope).sum() > 0 else slope), slope

    def search(self, direction: Array, slope: Array, steps: Array) -> int | None:
        """Ask for the first step that meets the condition of Armijo; the penalty is public and needs no question."""
        weights = self.log.weights
        penalty = self.ridge * (steps * (weights * direction).sum() - steps**2 * (direction**2).sum() / 2)
        demands = self.solver.alpha * steps * self.settings.gradient.n_samples * (direction * slope).sum() - penalty
        return self.ask_search(weights, direction, steps, demands)

    def ask_search(self, weights: Array, direction: Array, steps: Array, demands: Array) -> int | None:
        found: int | None = self.curator.ask(self.settings.search, weights, direction, steps, demands)
        return found

    def reconsider(self, measured: Measurement) -> None:
        """After a search without success: is it the gradient that is to blame? (algorithm 3 of the paper)"""
        rule = self.solver.budget_rule
        if rule == "never":
            measured.anew()
        elif rule == "always" or angle(measured.gradient, self.previous) > self.solver.angle_max:
            measured.raise_level(self.solver.xi)
