"""Objective perturbation (Chaudhuri, Monteleoni & Sarwate 2011; Kifer, Smith & Thakurta 2012)."""

from __future__ import annotations

from math import expm1, inf, sqrt
from numbers import Real

from dpskl.curator import Curator
from dpskl.mechanisms.perturbed_objective import calibrate_perturbed_objective
from dpskl.records.losses import Loss, MarginLoss
from dpskl.records.row_maps import ROW_MAPS
from dpskl.solvers._checks import check_choice
from dpskl.solvers.base import Outcome, Plan, PublicFacts, Solver

__all__ = ["ObjectivePerturbation"]

# The rule for the ridge; benchmarks/ablation.py shows what other values do.
_SHARE = 1 / 20
_LARGEST_SHARE = 1 / 4
# As a share of the largest curvature of the sum: below it a Hessian could fail to factor, which would tell of the data.
_NUMERIC_RIDGE = 1e-10


class ObjectivePerturbation(Solver):
    r"""Minimise the objective plus a random linear term; one release, exact up to a certified distance.

    ``w = argmin_w sum_i l_i(w) + ridge ||w||^2 / 2 + b . w``, with ``b`` Gaussian, or with a Gamma-distributed norm for
    ``delta=0``. The privacy is that of :class:`~dpskl.mechanisms.perturbed_objective.PerturbedObjective`.

    Parameters
    ----------
    ridge_share : float or None, default=None
        Part of epsilon, in (0, 1), that pays for the determinant of the Hessian. The ridge is
        ``max(1/C, B / (exp(ridge_share * epsilon / K) - 1), 1e-10 n B)`` with ``B`` the largest curvature of one record
        and ``K`` the number of outputs: a larger share means less ridge and more noise. ``None``:
        ``min(1/4, sup phi'' sqrt(n epsilon / (K p)) / 20)``, ``p`` the number of weights of one output. The bias of a
        ridge ``B / (share epsilon)`` balances the noise that the share costs at a share proportional to this.
    rows : {"fill", "clip", "sphere"}, default="fill"
        The row map (:mod:`dpskl.records.row_maps`). ``"clip"`` scales longer rows down to ``data_norm``, ``"sphere"``
        brings every row, its constant included, to that norm, up or down, and ``"fill"`` does the one after the other.
        Noise is for the longest row that there could be: with the last two no row is shorter.

    Notes
    -----
    Losses must be smooth: logistic and Huber. More than two classes are ``K`` independent one-vs-rest problems
    that share the budget by Gaussian composition, each paying for its own determinant.

    Solved by Newton's method to a gradient norm that is certified. It cannot fail: where Newton's method does not get
    there, gradient descent does, in a number of steps that has a public bound of the order of ``1 + n B / ridge``. How
    long a fit takes depends on the data.

    References
    ----------
    Chaudhuri, Monteleoni & Sarwate (2011), JMLR 12. Kifer, Smith & Thakurta (2012), COLT. Redberg, Koskela & Wang
    (2023), arXiv 2401.00583. The one-sided profile for slopes of one sign is proved in docs/theory.md.
    """

    name = "objective_perturbation"
    rank = 2
    is_pure = True

    def __init__(self, ridge_share: float | None = None, rows: str = "fill") -> None:
        self.ridge_share = ridge_share
        self.rows = rows

    def refusal(self, loss: MarginLoss) -> str | None:
        if loss.is_smooth:
            return None
        return (
            f"solver={self.name!r} needs a smooth loss, and the hinge has a kink, where its proof fails "
            "(DPHuberSVC has the smooth form)"
        )

    def multiclass_loss(self, loss: MarginLoss) -> Loss:
        # the proof needs gradients along a fixed direction: one-vs-rest, not softmax
        return loss

    def plan(self, facts: PublicFacts, epsilon: float, delta: float) -> Plan:
        is_share = isinstance(self.ridge_share, Real) and 0 < self.ridge_share < 1
        if not (self.ridge_share is None or is_share):
            raise ValueError(f"ridge_share={self.ridge_share!r} must be None or lie strictly between 0 and 1")
        check_choice("rows", self.rows, ROW_MAPS)
        curvature = facts.loss.curvature_bound * facts.row_norm**2
        # exp overflows at a budget where the rule asks for no ridge at all
        share = min(self._share(facts, epsilon) * epsilon / facts.n_outputs, 700.0)
        numeric = _NUMERIC_RIDGE * facts.n_samples * curvature
        proof = 0.0 if epsilon == inf else curvature / expm1(share)
        ridge = max(1 / facts.C, proof, numeric)
        mechanism = calibrate_perturbed_objective(
            facts.loss,
            row_norm=facts.row_norm,
            ridge=ridge,
            n_outputs=facts.n_outputs,
            n_samples=facts.n_samples,
            n_features=facts.n_features,
            intercept=facts.intercept > 0,
            epsilon=epsilon,
            delta=delta,
            neighbours=facts.neighbours,
        )
        return Plan(((mechanism, 1),), ridge)

    def _share(self, facts: PublicFacts, epsilon: float) -> float:
        if self.ridge_share is not None:
            return self.ridge_share
        records_per_weight = facts.n_samples * epsilon / (facts.n_outputs * facts.n_weights)
        return min(_LARGEST_SHARE, _SHARE * facts.loss.curvature_bound * sqrt(records_per_weight))

    def run(self, curator: Curator, plan: Plan) -> Outcome:
        ((mechanism, _),) = plan.questions
        return Outcome(curator.ask(mechanism), 1)
