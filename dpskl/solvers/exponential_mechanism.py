"""The exponential mechanism on the weights (McSherry & Talwar 2007; Gopi, Lee & Liu 2022)."""

from __future__ import annotations

from math import ceil, exp, inf, isinf, log, sqrt
from typing import Any

import numpy as np

from dpskl.accounting import gaussian_mu
from dpskl.curator import Curator
from dpskl.mechanisms.base import Mechanism
from dpskl.mechanisms.exponential_chains import calibrate_metropolis, calibrate_proximal
from dpskl.mechanisms.exponential_sampling import RejectionSampling, calibrate_rejection
from dpskl.mechanisms.hidden_descent import HiddenDescent
from dpskl.mechanisms.sensitivity import contributions
from dpskl.records.losses import Loss, MarginLoss
from dpskl.records.row_maps import ROW_MAPS
from dpskl.solvers._checks import check_choice, check_count, check_number
from dpskl.solvers.base import Outcome, Plan, PublicFacts, Solver

__all__ = ["ExponentialMechanism"]

_SAMPLERS = ("langevin", "proximal", "rejection", "mala")

# The rules of the default ridge, radius and number of steps.
# Margins at which the penalty balances the noise: descent that stops early shrinks the weights besides.
_MARGIN = {"langevin": 30.0, "proximal": 10.0, "mala": 10.0}
_TIME = 0.3  # steps times step size times ridge
_STEPS = (50, 500)
_PROXIMAL_STEPS = 20_000
_METROPOLIS_STEPS = 300
_METROPOLIS_WEIGHTS = 2000  # a Hessian of that many rows is formed
_RADIUS = 5.0  # largest margin on the ball
_AIM = log(0.02)  # share of proposals that the default ridge is to let through
_HOPELESS = log(1e-4)
# As a share of the largest curvature of the sum: below it a Hessian could fail to factor, which would tell of the data.
_NUMERIC_RIDGE = 1e-10


class ExponentialMechanism(Solver):
    r"""Draw the weights from a density that falls with the loss: ``exp(-beta (sum_i l_i(w) + ridge ||w||^2 / 2))``.

    Parameters
    ----------
    sampler : {"langevin", "proximal", "rejection", "mala"}, default="langevin"
        How to draw:

        * ``"langevin"``: noisy gradient descent of which the last iterate leaves. Its privacy is proved for *this
          law*, by :class:`~dpskl.mechanisms.hidden_descent.HiddenDescent`, and needs no convergence.
        * ``"proximal"``: a chain whose distance from the density is bounded and paid for out of delta, see
          :class:`~dpskl.mechanisms.exponential_chains.ProximalSampling`; exact at each step, so slower.
        * ``"rejection"``: an exact draw on a ball, with pure differential privacy, see
          :class:`~dpskl.mechanisms.exponential_sampling.RejectionSampling`. The running time depends on the data: do
          not show it. The only sampler for ``delta=0``; a positive delta is not used.
        * ``"mala"``: Metropolis-adjusted Langevin steps. The guarantee is *conditional on exact sampling*, which no
          theorem here gives; it must be asked for by ``certified=False``, and guarantee and ledger say so.
    certified : bool, default=True
        ``False`` accepts the conditional guarantee of ``"mala"``; the other samplers are certified.
    radius : float or None, default=None
        Radius of the ball of the weights of one output, intercept weight included. ``"rejection"``: ``None`` is 5
        over the row norm, so that no margin exceeds 5. ``"langevin"``: the ball, of all outputs, that iterates
        are projected to, ``None`` for none. The others have no ball.
    ridge : float or None, default=None
        Strength of the penalty in sum form; ``1/C`` where that is larger. ``None``, but for ``"rejection"``:
        ``L row_norm sqrt(p K) / (m mu)``, ``L`` the sensitivity of a gradient sum, ``p K`` the number of weights,
        ``mu`` the Gaussian privacy parameter of the budget and ``m = 30`` for ``"langevin"``, else 10. The draw costs
        about ``p K L^2 / (2 mu^2 ridge)`` of loss and the penalty ``ridge ||w||^2 / 2``: they balance at weights that
        give margins of the order of ``m``. ``"rejection"``: the smallest ridge at which 2 % of the proposals are
        certain to be kept, with the logistic loss about ``n row_norm^2 / 15``; so strong a penalty suits centred
        rows only.
    max_iter : int or None, default=None
        ``"langevin"``: number of steps; ``None``: ``0.3 / (step ridge)``, between 50 and 500, with ``step = 2 / (2
        ridge + n B)``. ``"mala"``: number of steps, ``None`` is 300. ``"proximal"``: refuse where more steps must be
        made, ``None`` is 20,000. Not for ``"rejection"``.
    rows : {"fill", "clip", "sphere"}, default="fill"
        The row map (:mod:`dpskl.records.row_maps`). ``"clip"`` scales longer rows down to ``data_norm``, ``"sphere"``
        brings every row, its constant included, to that norm, up or down, and ``"fill"`` does the one after the other.
        Noise is for the longest row that there could be: with the last two no row is shorter.

    Notes
    -----
    Losses must be smooth. More than two classes: ``"langevin"`` descends on the joint loss (softmax for the logistic
    one) without clipping, whose gradients are those of a convex function; the others make ``K`` independent
    one-vs-rest draws that share the budget.

    References
    ----------
    McSherry & Talwar (2007), FOCS. Gopi, Lee & Liu (2022), COLT, arXiv 2203.00263. Altschuler & Talwar (2022), NeurIPS,
    arXiv 2205.13710. Bok, Su & Altschuler (2024), arXiv 2403.00278. Chen, Chewi, Salim & Wibisono (2022), COLT,
    arXiv 2202.06386.
    """

    name = "exponential_mechanism"
    rank = 8

    def __init__(
        self,
        sampler: str = "langevin",
        certified: bool = True,
        radius: float | None = None,
        ridge: float | None = None,
        max_iter: int | None = None,
        rows: str = "fill",
    ) -> None:
        self.sampler = sampler
        self.certified = certified
        self.radius = radius
        self.ridge = ridge
        self.max_iter = max_iter
        self.rows = rows

    def refusal(self, loss: MarginLoss) -> str | None:
        if loss.is_smooth:
            return None
        return (
            f"solver={self.name!r} needs a smooth loss, and the hinge has a kink, where its samplers' proofs fail "
            "(DPHuberSVC has the smooth form)"
        )

    def multiclass_loss(self, loss: MarginLoss) -> Loss:
        return loss.multiclass() if self.sampler == "langevin" else loss

    @property
    def condition(self) -> str | None:
        return "conditional on exact sampling" if self.sampler == "mala" else None

    def reaches_checks(self, loss: MarginLoss, epsilon: float) -> bool:
        # measured like the default of the base class; 5 % of seeds fail at 1/2, and the penalty of rejection is strong
        return epsilon >= 1 and self.sampler != "rejection"

    def plan(self, facts: PublicFacts, epsilon: float, delta: float) -> Plan:
        self._check_parameters()
        if self.sampler == "rejection":
            return self._rejection(facts, epsilon)
        if delta == 0:
            raise ValueError(
                f"delta=0 asks for pure differential privacy, which sampler={self.sampler!r} cannot give; choose a "
                "delta far below 1/n, or sampler='rejection', or solver='objective_perturbation'"
            )
        mu = gaussian_mu(epsilon, delta)
        loss = self.problem_loss(facts)
        gradient_bound = loss.gradient_bound(facts.n_outputs) * facts.row_norm
        smoothness = facts.n_samples * loss.curvature_bound * facts.row_norm**2
        size = sqrt(facts.n_weights * facts.n_outputs)
        rule = contributions(facts.neighbours) * gradient_bound * facts.row_norm * size / (_MARGIN[self.sampler] * mu)
        ridge = self._ridge(facts, rule)
        if self.sampler == "langevin":
            return Plan(((self._langevin(facts, mu, ridge, gradient_bound, smoothness), 1),), ridge)
        shared = self._shared(facts, ridge)
        if self.sampler == "proximal":
            most = _PROXIMAL_STEPS if self.max_iter is None else int(self.max_iter)
            return Plan(((calibrate_proximal(epsilon, delta, most, **shared), 1),), ridge)
        if facts.n_weights > _METROPOLIS_WEIGHTS:
            raise ValueError(
                f"sampler='mala' forms a Hessian of {facts.n_weights} rows, and {_METROPOLIS_WEIGHTS} are the most; "
                "take sampler='langevin' or fewer features"
            )
        steps = _METROPOLIS_STEPS if self.max_iter is None else int(self.max_iter)
        return Plan(((calibrate_metropolis(epsilon, delta, steps, **shared), 1),), ridge)

    def _ridge(self, facts: PublicFacts, rule: float) -> float:
        numeric = _NUMERIC_RIDGE * facts.n_samples * facts.loss.curvature_bound * facts.row_norm**2
        return max(1 / facts.C, rule if self.ridge is None else float(self.ridge), numeric)

    def _shared(self, facts: PublicFacts, ridge: float) -> dict[str, Any]:
        return {
            "ridge": ridge,
            "gradient_bound": facts.loss.slope_bound * facts.row_norm,
            "curvature_bound": facts.loss.curvature_bound * facts.row_norm**2,
            "loss_at_zero": float(facts.loss.value(np.zeros(1))[0]),
            "n_outputs": facts.n_outputs,
            "neighbours": facts.neighbours,
            "n_samples": facts.n_samples,
            "n_features": facts.n_features,
            "n_weights": facts.n_weights,
        }

    def _langevin(
        self, facts: PublicFacts, mu: float, ridge: float, gradient_bound: float, smoothness: float
    ) -> Mechanism:
        step = 2 / (2 * ridge + smoothness)
        low, high = _STEPS
        steps = min(max(ceil(_TIME / (step * ridge)), low), high) if self.max_iter is None else int(self.max_iter)
        return HiddenDescent(
            clip_norm=gradient_bound,
            mu=mu * (1 - 1e-12),
            step=step,
            ridge=ridge,
            smoothness=smoothness,
            n_steps=steps,
            radius=inf if self.radius is None else float(self.radius),
            neighbours=facts.neighbours,
            n_samples=facts.n_samples,
            n_features=facts.n_features,
        )

    def _rejection(self, facts: PublicFacts, epsilon: float) -> Plan:
        radius = _RADIUS / facts.row_norm if self.radius is None else float(self.radius)

        def planned(rule: float) -> RejectionSampling:
            shared = self._shared(facts, self._ridge(facts, rule))
            return calibrate_rejection(facts.loss, facts.row_norm, radius, epsilon, **shared)

        # the share of kept proposals grows with the ridge
        unit = facts.n_samples * facts.row_norm**2
        low, high = 0.0, unit
        if self.ridge is None:
            while planned(high).log_rate < _AIM and not isinf(high):
                high *= 2
            while high - low > 1e-6 * max(high, 1e-6 * unit):
                middle = (low + high) / 2
                low, high = (low, middle) if planned(middle).log_rate >= _AIM else (middle, high)
        mechanism = planned(high)
        if epsilon < inf and not mechanism.is_resolved(radius):
            raise ValueError(
                f"epsilon={epsilon:g} with n_samples={facts.n_samples}: sampler='rejection' cannot tell its keep "
                "probabilities from rounding; take sampler='langevin', or a smaller epsilon"
            )
        if mechanism.log_rate < _HOPELESS:
            raise ValueError(
                f"ridge={mechanism.ridge:g} and radius={radius:g} promise that {exp(mechanism.log_rate):.3g} of the "
                "proposals of sampler='rejection' are kept, too few to wait for; raise ridge, lower radius, or "
                "leave ridge=None"
            )
        return Plan(((mechanism, 1),), mechanism.ridge)

    def run(self, curator: Curator, plan: Plan) -> Outcome:
        ((question, _),) = plan.questions
        return Outcome(curator.ask(question), 1)

    def _check_parameters(self) -> None:
        check_choice("sampler", self.sampler, _SAMPLERS)
        check_choice("rows", self.rows, ROW_MAPS)
        if not isinstance(self.certified, bool):
            raise ValueError(f"certified={self.certified!r} must be True or False")
        if self.certified == (self.sampler == "mala"):
            remedy = (
                "its guarantee is conditional on exact sampling; pass certified=False to accept that, or take "
                "sampler='langevin'"
                if self.certified
                else "this sampler is certified; leave certified=True"
            )
            raise ValueError(f"certified={self.certified} with sampler={self.sampler!r}: {remedy}")
        for name in ("radius", "ridge"):
            check_number(name, getattr(self, name), optional=True)
        check_count("max_iter", self.max_iter, optional=True)
        if self.radius is not None and self.sampler in ("proximal", "mala"):
            raise ValueError(
                f"radius={self.radius!r}: sampler={self.sampler!r} has no ball, since its proof needs the mode "
                "inside; leave radius=None, or take sampler='langevin' or 'rejection'"
            )
        if self.max_iter is not None and self.sampler == "rejection":
            raise ValueError(
                f"max_iter={self.max_iter!r}: sampler='rejection' goes on until a proposal is kept, and stopping "
                "earlier would tell of the data; leave max_iter=None"
            )
