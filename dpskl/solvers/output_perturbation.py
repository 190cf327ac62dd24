"""Output perturbation (Chaudhuri, Monteleoni & Sarwate 2011; Wu et al. 2017; Zhang et al. 2017)."""

from __future__ import annotations

from math import ceil, isinf, log, sqrt

import numpy as np

from dpskl.accounting import gaussian_mu
from dpskl.curator import Curator
from dpskl.mechanisms.perturbed_output import PerturbedOutput
from dpskl.mechanisms.sensitivity import contributions
from dpskl.mechanisms.stable_training import ExactMinimum, FullGradientDescent, PermutedSGD, StableTraining
from dpskl.records.losses import HuberHinge, Loss, MarginLoss
from dpskl.records.row_maps import ROW_MAPS
from dpskl.solvers._checks import check_choice, check_count, check_number
from dpskl.solvers.base import Outcome, Plan, PublicFacts, Solver

__all__ = ["OutputPerturbation"]

# The rule for the ridge; flat around it on three data sets: 0.01 and 0.3 lose up to 2 points of accuracy somewhere.
_RIDGE = 0.1
# As a share of the largest curvature of the sum: below it a Hessian could fail to factor, which would tell of the data.
_NUMERIC_RIDGE = 1e-10
_MOST_STEPS = 1000
_PASSES = 5
_MOST_PLACES = 10**8  # in an order of records, which is held in memory
# Half-width of the parabola that takes the place of the hinge's kink. A narrower one costs rounding allowance.
_HINGE_WIDTH = 1e-2
# A budget far from rounding.
_SAFE = 1 - 1e-12


class OutputPerturbation(Solver):
    r"""Train without noise, then add noise to the weights; one release.

    The objective is ``sum_i l_i(w) + ridge ||w||^2 / 2``. The noise is Gaussian, or has a Gamma-distributed norm for
    ``delta=0``. The privacy is that of :class:`~dpskl.mechanisms.perturbed_output.PerturbedOutput`.

    Parameters
    ----------
    method : {"exact", "gd", "psgd"}, default="exact"
        How the weights are found: the minimiser by Newton's method, full-batch gradient descent from zero, or
        stochastic gradient descent in one random order of the records. The hinge is for ``"exact"`` only.
    min_ridge : float or None, default=None
        The ridge is ``max(1/C, min_ridge)``. ``None``: ``R^2 (0.1 n phi'' s^2)^(1/3)``, with ``R`` the bound on
        a row, ``phi''`` the smaller of 1 and the loss's largest curvature, and ``s`` the ridge times the standard
        deviation of the noise on one weight, over ``R``. The objective pays about ``n phi'' R^4 s^2 / (2 ridge^2)``
        for the noise and ``ridge ||w||^2 / 2`` for the ridge; this balances them at one norm of ``R w``, whatever the
        data. 0 leaves the ridge to ``C``.
    max_iter : int or None, default=None
        ``"gd"``: number of steps; ``None`` takes ``n / (ridge step_size)``, the time in which the ridge is felt, at
        most 1000. ``"psgd"``: number of passes; ``None`` is 5.
    step_size : float or None, default=None
        Step on the *mean* of the losses and the penalty, at most ``2 / (B + ridge / n)``, with ``B`` the largest
        curvature of one record. ``"gd"``: ``None`` takes ``2 / (B + 2 ridge / n)``. ``"psgd"``: a number is a constant
        step, and the average of the iterates is released; ``None`` takes ``1 / max(B + ridge / n, t ridge / n)`` at
        step ``t``, and the last iterate.
    batch_size : int or None, default=None
        ``"psgd"`` only; more than ``n`` means ``n``. ``None``: ``sqrt(n)``.
    rows : {"fill", "clip", "sphere"}, default="fill"
        The row map (:mod:`dpskl.records.row_maps`). ``"clip"`` scales longer rows down to ``data_norm``, ``"sphere"``
        brings every row, its constant included, to that norm, up or down, and ``"fill"`` does the one after the other.
        Noise is for the longest row that there could be: with the last two no row is shorter.

    Notes
    -----
    Sensitivities, for one record present or absent (twice that for one exchanged), with ``L`` a bound on the gradient
    of one record: ``"exact"`` ``L / ridge``; ``"gd"`` ``step L / n (1 + c + ... + c^(T-1))`` with contraction ``c``, at
    most ``T step L / n``, and at most ``L / ridge`` for the default step; ``"psgd"`` ``n L / (ridge b m)`` with ``m``
    steps of ``b`` records in a pass, and at most ``passes step L / b`` for a constant step.

    More than two classes: the softmax for the logistic loss, ``L = sqrt(2) R``; one-vs-rest for the others, ``L =
    sqrt(K) R``; all weights together get one noise vector.

    The hinge is replaced by :class:`~dpskl.records.losses.HuberHinge` with ``h = 0.01``, whose minimiser is certified
    like any other. As a solution for the hinge itself it has a duality gap of at most ``h / 8`` a record, on any data.

    Nothing can fail once the budget is charged: the gradient methods do a fixed amount of work, and a minimum is
    certified to a tolerance that rounding cannot reach, by Newton's method or, where that does not get there, by
    gradient descent, in a number of steps that has a public bound of the order of ``1 + n B / ridge``. How long
    ``"exact"`` takes depends on the data: usually below 30 Newton steps, up to thousands with ``min_ridge=0`` and a
    Huber hinge of tiny ``h``.

    References
    ----------
    Chaudhuri, Monteleoni & Sarwate (2011), JMLR 12. Wu et al. (2017), SIGMOD. Zhang, Zheng, Mou & Wang (2017), IJCAI.
    """

    name = "output_perturbation"
    rank = 4
    is_pure = True

    def __init__(
        self,
        method: str = "exact",
        min_ridge: float | None = None,
        max_iter: int | None = None,
        step_size: float | None = None,
        batch_size: int | None = None,
        rows: str = "fill",
    ) -> None:
        self.method = method
        self.min_ridge = min_ridge
        self.max_iter = max_iter
        self.step_size = step_size
        self.batch_size = batch_size
        self.rows = rows

    def refusal(self, loss: MarginLoss) -> str | None:
        if loss.is_smooth or self.method not in ("gd", "psgd"):
            return None
        return (
            f"solver={self.name!r} with method={self.method!r} needs a smooth loss, since gradient steps do not "
            "contract at the hinge's kink (method='exact' takes the hinge, and DPHuberSVC has its smooth form)"
        )

    def reaches_checks(self, loss: MarginLoss, epsilon: float) -> bool:
        # with three classes, which pay for all their weights: measured over 40 seeds, see the tests
        return epsilon >= 2

    def problem_loss(self, facts: PublicFacts) -> Loss:
        loss = super().problem_loss(facts)
        return loss if loss.is_smooth else HuberHinge(_HINGE_WIDTH)

    def plan(self, facts: PublicFacts, epsilon: float, delta: float) -> Plan:
        self._check_parameters()
        is_pure = delta == 0
        budget = epsilon if is_pure else gaussian_mu(epsilon, delta) * _SAFE
        ridge = max(1 / facts.C, self._least_ridge(facts, budget, is_pure))
        if isinf(ridge):
            raise ValueError(
                f"epsilon={epsilon:g} at data_norm={facts.data_norm:g} asks for an infinite ridge; raise it"
            )
        mechanism = PerturbedOutput(self._training(facts, ridge), budget, is_pure, facts.neighbours)
        return Plan(((mechanism, 1),), ridge)

    def run(self, curator: Curator, plan: Plan) -> Outcome:
        ((mechanism, _),) = plan.questions
        return Outcome(curator.ask(mechanism), 1)

    def _least_ridge(self, facts: PublicFacts, budget: float, is_pure: bool) -> float:
        loss, n = self.problem_loss(facts), facts.n_samples
        numeric = _NUMERIC_RIDGE * n * loss.curvature_bound
        if self.min_ridge is not None:
            return max(self.min_ridge, numeric * facts.row_norm**2)
        noise = contributions(facts.neighbours) * loss.gradient_bound(facts.n_outputs) / budget
        if is_pure:
            # the law with density exp(-||b||) has variance p + 1 along each of p axes
            noise *= sqrt(facts.n_weights * facts.n_outputs + 1)
        balanced = (_RIDGE * n * min(loss.curvature_bound, 1.0)) ** (1 / 3) * noise ** (2 / 3)
        return max(balanced, numeric) * facts.row_norm**2

    def _training(self, facts: PublicFacts, ridge: float) -> StableTraining:
        loss, n, K = self.problem_loss(facts), facts.n_samples, facts.n_outputs
        L, B, lam = loss.gradient_bound(K) * facts.row_norm, loss.curvature_bound * facts.row_norm**2, ridge / n
        common = (L, B, ridge, n, facts.n_features, K)
        if self.method == "exact":
            if isinstance(loss, MarginLoss):
                return ExactMinimum(*common, loss_at_zero=float(loss.value(np.zeros(1))[0]), n_problems=K)
            return ExactMinimum(*common, loss_at_zero=log(K), n_problems=1)
        longest = 2 / (B + lam)
        if self.step_size is not None and self.step_size > longest:
            raise ValueError(
                f"step_size={self.step_size:g} must be at most 2 / (B + ridge / n) = {longest:g}, beyond which "
                "gradient steps do not contract; lower it, or leave it at None"
            )
        if self.method == "gd":
            step = 2 / (B + 2 * lam) if self.step_size is None else self.step_size
            enough = min(ceil(1 / max(lam * step, 1 / _MOST_STEPS)), _MOST_STEPS)
            return FullGradientDescent(*common, step=step, n_steps=enough if self.max_iter is None else self.max_iter)
        if n > _MOST_PLACES:
            raise ValueError(
                f"n_samples={n} is too large for method='psgd', which draws an order of that many places, those of "
                f"records that are not there included; declare at most {_MOST_PLACES:g}, or take method='exact'"
            )
        batch_size = round(sqrt(n)) if self.batch_size is None else min(self.batch_size, n)
        passes = _PASSES if self.max_iter is None else self.max_iter
        return PermutedSGD(*common, batch_size=batch_size, n_passes=passes, step=self.step_size)

    def _check_parameters(self) -> None:
        check_choice("method", self.method, ("exact", "gd", "psgd"))
        check_choice("rows", self.rows, ROW_MAPS)
        used = {"exact": (), "gd": ("max_iter", "step_size"), "psgd": ("max_iter", "step_size", "batch_size")}
        for name in ("max_iter", "step_size", "batch_size"):
            value = getattr(self, name)
            if value is not None and name not in used[self.method]:
                raise ValueError(f"{name}={value!r} has no meaning for method={self.method!r}; leave it at None")
        for name in ("max_iter", "batch_size"):
            check_count(name, getattr(self, name), optional=True)
        check_number("step_size", self.step_size, optional=True)
        check_number("min_ridge", self.min_ridge, closed=True, optional=True)
