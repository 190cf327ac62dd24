"""Composition of costs."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from functools import lru_cache
from typing import Any, ClassVar

from dpskl.accounting._laws import LaplaceLaw, Law, SampledGaussianLaw, TwoPointLaw
from dpskl.accounting._planning import compose_laws
from dpskl.accounting.conversion import rdp_delta, rdp_epsilon
from dpskl.accounting.costs.above_threshold import AboveThresholdCost
from dpskl.accounting.costs.base import Cost, cost_from_dict, set_fields
from dpskl.accounting.costs.gaussian import GaussianCost, ReplaceOneObjectiveCost
from dpskl.accounting.costs.pure import ApproximateCost, BoundedRangeCost, LaplaceCost, PureCost
from dpskl.accounting.costs.renyi import RDPCost, ZCDPCost
from dpskl.accounting.costs.sampled import SampledGaussianCost, SampledPureCost

Parts = tuple[tuple[Cost, int], ...]

_POINT_SHARES = (0.5, 0.1, 0.9)  # of delta, tried for parts that compose through one point only


def exact(value: float) -> Fraction:
    """The number that the shortest decimal form of a float denotes: 0.1 is one tenth."""
    return Fraction(Decimal(repr(value)))


@dataclass(frozen=True, repr=False)
class ComposedCost(Cost):
    """Adaptive composition of costs with counts; usually made by :func:`compose`.

    Parameters
    ----------
    parts : tuple of (Cost, int)
        Costs, none of them composed, and how often each occurs, at least once.

    Notes
    -----
    Each question is answered by the smallest of several valid bounds:

    * privacy loss distributions, where every part has a dominating pair. Shifts of Gaussian profiles are
    taken out
      and added to epsilon: the pair (N(mu, 1), exp(-shift) N(0, 1)) composes with any other that way;
    * the sum of the Renyi curves, converted (Canonne, Kamath & Steinke 2020), where some part lacks a pair or
      has a curve below that of its pair (bounded range, AboveThreshold);
    * the sum of the pure guarantees, exact in decimals, where all are pure.

    Approximate parts are failures with probability delta, else randomised response; failures compose as
    1 - prod(1 - delta) and are taken out first. Parts with neither curve nor pair are replaced by one point
    of their profile at a share of the delta. An unbounded part (no noise) makes epsilon infinite and delta
    1.

    Examples
    --------
    >>> ComposedCost(((PureCost(0.1), 10),)).epsilon(0.0)
    1.0
    >>> round(ComposedCost(((SampledGaussianCost(0.1, 3.3), 50),)).epsilon(1e-6), 3)
    1.001
    """

    kind: ClassVar[str] = "composed"
    parts: Parts

    def __post_init__(self) -> None:
        parts = tuple((cost, int(count)) for cost, count in self.parts)
        for (cost, count), (_, given) in zip(parts, self.parts, strict=True):
            if not isinstance(cost, Cost) or isinstance(cost, ComposedCost) or count < 1 or count != given:
                raise ValueError(
                    f"parts must hold costs that are not composed, with integer counts of at least 1, got "
                    f"({cost!r}, {given!r}): build compositions with compose()."
                )
        set_fields(self, parts=parts)

    def rdp(self, alpha: float) -> float:
        return math.fsum(count * cost.rdp(alpha) for cost, count in self.parts)

    @property
    def pure_epsilon(self) -> float:
        """Sum of the pure guarantees, rounded once."""
        if any(math.isinf(cost.pure_epsilon) for cost, _ in self.parts):
            return math.inf
        return float(sum((count * exact(cost.pure_epsilon) for cost, count in self.parts), Fraction(0)))

    def delta(self, epsilon: float) -> float:
        shift = math.fsum(count * cost.shift for cost, count in self.parts if isinstance(cost, GaussianCost))
        epsilon = float(epsilon)
        if shift == 0.0 or not epsilon < math.inf:
            return super().delta(epsilon)
        plain = tuple((_unshifted(cost), count) for cost, count in self.parts)
        return min(1.0, ComposedCost(plain).delta(epsilon - shift))

    def _profile(self, epsilon: float) -> float:
        return _composed_delta(self.parts, epsilon)

    def _smallest_epsilon(self, delta: float) -> float:
        return self.pure_epsilon if delta == 0.0 else _composed_epsilon(self.parts, delta)

    def to_dict(self) -> dict[str, Any]:
        """JSON form, see :meth:`Cost.to_dict`."""
        return {"kind": self.kind, "parts": [[cost.to_dict(), count] for cost, count in self.parts]}

    @classmethod
    def _from_values(cls, values: Mapping[str, Any]) -> ComposedCost:
        return cls(tuple((cost_from_dict(record), count) for record, count in values["parts"]))

    def __repr__(self) -> str:
        return f"ComposedCost({' + '.join(f'{count} x {cost!r}' for cost, count in self.parts)})"


def compose(costs: Iterable[Cost | tuple[Cost, int]]) -> Cost:
    """Adaptive composition of costs, in closed form where one is exact.

    Parameters
    ----------
    costs : iterable of Cost or of (Cost, int)
        Costs, composed ones included, with how often each occurs (once if not said; 0 drops it).

    Returns
    -------
    Cost
        ``PureCost(0)`` for nothing, the cost itself for a single one, a ``GaussianCost`` (mu in squares,
        shifts in sums) or ``ZCDPCost`` where all are such, else a ``ComposedCost`` whose parts are distinct
        and in an order that does not depend on that of the argument.

    Raises
    ------
    ValueError
        If a count is not an integer of at least 0.

    Examples
    --------
    >>> compose([(GaussianCost(0.3), 16), GaussianCost(0.5, shift=0.1)])
    GaussianCost(mu=1.3, shift=0.1)
    >>> compose([PureCost(0.1), (PureCost(0.1), 9)])
    ComposedCost(10 x PureCost(epsilon=0.1))
    """
    counts: Counter[Cost] = Counter()
    for item in costs:
        cost, count = item if isinstance(item, tuple) else (item, 1)
        if count != int(count) or count < 0:
            raise ValueError(f"counts must be integers of at least 0, got {count!r} for {cost!r}.")
        for part, inner in cost.parts if isinstance(cost, ComposedCost) else ((cost, 1),):
            counts[part] += inner * int(count)
    parts = [(cost, count) for cost, count in counts.items() if count and not _is_free(cost)]
    if not parts:
        return PureCost(0.0)
    if len(parts) == 1 and parts[0][1] == 1:
        return parts[0][0]
    gaussian = [(cost, count) for cost, count in parts if isinstance(cost, GaussianCost)]
    if len(gaussian) == len(parts):
        return _gaussian_total(gaussian)
    concentrated = [count * cost.rho for cost, count in parts if isinstance(cost, ZCDPCost)]
    if len(concentrated) == len(parts):
        return ZCDPCost(math.fsum(concentrated))
    return ComposedCost(tuple(sorted(parts, key=lambda part: json.dumps(part[0].to_dict()))))


def _is_free(cost: Cost) -> bool:
    return cost.pure_epsilon == 0.0


def _gaussian_total(parts: Sequence[tuple[GaussianCost, int]]) -> GaussianCost:
    mu = math.sqrt(math.fsum(count * cost.mu**2 for cost, count in parts))
    return GaussianCost(mu, math.fsum(count * cost.shift for cost, count in parts))


def _unshifted(cost: Cost) -> Cost:
    return GaussianCost(cost.mu) if isinstance(cost, GaussianCost) else cost


def _law(cost: Cost) -> Law | None:
    """Dominating pair of a cost, ``None`` where there is none or its losses are too large for a grid."""
    law: Law
    if isinstance(cost, SampledGaussianCost):
        law = SampledGaussianLaw(cost.sampling_rate, cost.noise_multiplier)
    elif isinstance(cost, GaussianCost):
        law = SampledGaussianLaw(1.0, 1.0 / max(cost.mu, 1e-100))
    elif isinstance(cost, LaplaceCost):
        law = LaplaceLaw(cost.noise_multiplier)
    elif isinstance(cost, SampledPureCost):
        law = TwoPointLaw(cost.stated_epsilon, cost.sampling_rate)
    elif isinstance(cost, PureCost | BoundedRangeCost):
        law = TwoPointLaw(cost.stated_epsilon)
    elif isinstance(cost, AboveThresholdCost) and cost.pure_epsilon < math.inf:
        law = TwoPointLaw(cost.pure_epsilon)
    else:
        return None
    return law if law.affordable else None


class _Plan:
    """Parts rearranged for the bounds: failures and shifts taken out, Gaussian parts merged."""

    def __init__(self, parts: Parts) -> None:
        log_success = 0.0
        self.shift = 0.0
        gaussian: list[tuple[GaussianCost, int]] = []
        self.others: list[tuple[Cost, int]] = []
        for cost, count in parts:
            if isinstance(cost, ApproximateCost):
                log_success += count * (math.log1p(-cost.stated_delta) if cost.stated_delta < 1.0 else -math.inf)
                cost = PureCost(cost.stated_epsilon)
            if isinstance(cost, GaussianCost):
                gaussian.append((cost, count))
            elif not _is_free(cost):
                self.others.append((cost, count))
        self.failure = -math.expm1(log_success)
        if gaussian:
            total = _gaussian_total(gaussian)
            self.shift = total.shift
            if total.mu > 0.0:
                self.others.append((GaussianCost(total.mu), 1))
        # a conversion looks at hundreds of orders
        curves = [(cost.table if isinstance(cost, AboveThresholdCost) else cost, count) for cost, count in self.others]
        self.orders = sorted({order for cost, _ in curves if isinstance(cost, RDPCost) for order in cost.orders})
        self.curves: list[tuple[Cost, int]] = curves
        self.pure = ComposedCost(tuple(self.others)).pure_epsilon

    def rdp(self, alpha: float) -> float:
        return math.fsum(count * cost.rdp(alpha) for cost, count in self.curves)

    def laws(self) -> list[tuple[Law, int]]:
        """Dominating pairs of all parts, empty if one has none."""
        laws = [(_law(cost), count) for cost, count in self.others]
        found = [(law, count) for law, count in laws if law is not None]
        return found if len(found) == len(laws) else []

    @property
    def tight(self) -> bool:
        """Whether the dominating pairs are those of the mechanisms, so that no Renyi curve can do better."""
        return not any(isinstance(cost, BoundedRangeCost | AboveThresholdCost) for cost, _ in self.others)

    @property
    def unbounded(self) -> bool:
        """Whether a part gives no protection at all (no part here is without a Renyi curve otherwise)."""
        return self.failure >= 1.0 or any(math.isinf(cost.rdp(1.0 + 1e-9)) for cost, _ in self.curves)


def _through_points(parts: Parts, delta: float) -> Parts:
    """Replace parts without curve or pair by the point of their profile at an equal share of delta."""
    number = sum(count for cost, count in parts if isinstance(cost, ReplaceOneObjectiveCost))
    if number == 0:
        return parts
    share = delta / number
    return tuple(
        (ApproximateCost(cost.epsilon(share), share), count)
        if isinstance(cost, ReplaceOneObjectiveCost)
        else (cost, count)
        for cost, count in parts
    )


@lru_cache(maxsize=1024)
def _composed_epsilon(parts: Parts, delta: float) -> float:
    if any(isinstance(cost, ReplaceOneObjectiveCost) for cost, _ in parts):
        shares = _POINT_SHARES if len(parts) > 1 else (1.0,)
        return min(_composed_epsilon(_through_points(parts, share * delta), delta) for share in shares)
    plan = _Plan(parts)
    if plan.unbounded or plan.failure > delta * (1.0 + 1e-15):
        return math.inf
    left = max(0.0, (delta - plan.failure) / (1.0 - plan.failure))
    bounds = [plan.pure]
    if left > 0.0 and plan.others:
        if len(plan.others) == 1 and plan.others[0][1] == 1:
            bounds.append(plan.others[0][0].epsilon(left))
        else:
            if laws := plan.laws():
                bounds.append(compose_laws(laws, delta=left).epsilon(left))
            if not laws or not plan.tight or math.isinf(bounds[-1]):
                bounds.append(rdp_epsilon(plan.rdp, left, plan.orders))
    epsilon = min(bounds)
    if epsilon == 0.0 < plan.shift:
        # below 0, by duality: delta(e) <= 1 - exp(e) (1 - delta(0))
        at_zero = _composed_delta(tuple((_unshifted(cost), count) for cost, count in parts), 0.0)
        epsilon = math.log1p(-delta) - math.log1p(-min(at_zero, delta))
    return max(0.0, epsilon + plan.shift)


@lru_cache(maxsize=1024)
def _composed_delta(parts: Parts, epsilon: float) -> float:
    if any(isinstance(cost, ReplaceOneObjectiveCost) for cost, _ in parts):
        return _delta_through_points(parts, epsilon)
    plan = _Plan(parts)
    if plan.unbounded:
        return 1.0
    bounds = [1.0 if plan.pure > epsilon else 0.0]
    if plan.pure > epsilon:
        if len(plan.others) == 1 and plan.others[0][1] == 1:
            bounds.append(plan.others[0][0].delta(epsilon))
        else:
            if laws := plan.laws():
                bounds.append(compose_laws(laws, epsilon=epsilon).delta(epsilon))
            if not laws or not plan.tight or bounds[-1] >= 1.0:
                bounds.append(rdp_delta(plan.rdp, epsilon, plan.orders))
    return plan.failure + (1.0 - plan.failure) * min(bounds)


def _delta_through_points(parts: Parts, epsilon: float) -> float:
    """Inverse of the epsilon of such a composition, to a factor of 1 + 1e-6 on the safe side."""
    low, high = -660.0, 0.0
    for _ in range(30):
        middle = (low + high) / 2.0
        if _composed_epsilon(parts, math.exp(middle)) <= epsilon:
            high = middle
        else:
            low = middle
    return math.exp(high)
