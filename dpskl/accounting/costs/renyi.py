"""Costs that are Renyi curves: concentrated, or tabulated at some orders."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import ClassVar

from dpskl.accounting._numeric import check_range
from dpskl.accounting.conversion import rdp_delta, rdp_epsilon
from dpskl.accounting.costs.base import Cost, set_fields


@dataclass(frozen=True, repr=False)
class ZCDPCost(Cost):
    """Zero-concentrated differential privacy: Renyi divergence at most rho alpha at every order.

    Parameters
    ----------
    rho : float
        In [0, inf].

    Notes
    -----
    Bun & Steinke (2016), converted by the bound of Canonne, Kamath & Steinke (2020) over all real orders.

    Examples
    --------
    >>> round(ZCDPCost(0.0243559704).epsilon(1e-6), 6)
    1.0
    """

    kind: ClassVar[str] = "zcdp"
    rho: float

    def __post_init__(self) -> None:
        set_fields(self, rho=check_range("rho", self.rho, 0.0))

    def rdp(self, alpha: float) -> float:
        alpha = check_range("alpha", alpha, 1.0, open_low=True)
        return 0.0 if self.rho == 0.0 else self.rho * alpha

    def _profile(self, epsilon: float) -> float:
        return rdp_delta(self.rdp, epsilon)

    def _smallest_epsilon(self, delta: float) -> float:
        return rdp_epsilon(self.rdp, delta)


@dataclass(frozen=True, init=False, repr=False)
class RDPCost(Cost):
    """Renyi curve given by a table, for mechanisms whose curve is computed once.

    Parameters
    ----------
    orders : sequence of float
        Orders above 1, increasing; ``inf`` may be the last.
    values : sequence of float
        Divergence at each order, in [0, inf].

    Notes
    -----
    Between two orders of the table the bound is the chord of ``(order - 1) divergence``, which is convex in the
    order (van Erven & Harremoes 2014), or the value at the order above where that is smaller. Below the first order
    its value holds; above the last there is no bound.

    Examples
    --------
    >>> round(RDPCost([2, 8, 32], [0.1, 0.4, 1.6]).rdp(5), 6)
    0.3625
    """

    kind: ClassVar[str] = "rdp"
    orders: tuple[float, ...]
    values: tuple[float, ...]

    def __init__(self, orders: Sequence[float], values: Sequence[float]) -> None:
        checked = tuple(check_range("orders", order, 1.0, open_low=True) for order in orders)
        if not checked or len(checked) != len(values):
            raise ValueError(
                f"orders and values must have one common length of at least 1, got {len(checked)} and "
                f"{len(values)}: give one value for each order."
            )
        if any(second <= first for first, second in pairwise(checked)):
            raise ValueError("orders must increase: sort the table by order and drop repeated orders.")
        set_fields(self, orders=checked, values=tuple(check_range("values", value, 0.0) for value in values))

    def rdp(self, alpha: float) -> float:
        alpha = check_range("alpha", alpha, 1.0, open_low=True)
        position = bisect_left(self.orders, alpha)
        if position == len(self.orders):
            return math.inf
        above, value = self.orders[position], self.values[position]
        if position == 0 or math.isinf(above) or math.isinf(value) or above == alpha:
            return value
        below, smaller = self.orders[position - 1], self.values[position - 1]
        share = (alpha - below) / (above - below)
        chord = (1.0 - share) * (below - 1.0) * smaller + share * (above - 1.0) * value
        return min(value, chord / (alpha - 1.0) * (1.0 + 1e-14))

    def _profile(self, epsilon: float) -> float:
        return rdp_delta(self.rdp, epsilon, self.orders)

    def _smallest_epsilon(self, delta: float) -> float:
        return rdp_epsilon(self.rdp, delta, self.orders)

    def __repr__(self) -> str:
        first, last = self.orders[0], self.orders[-1]
        return f"RDPCost(<{len(self.orders)} orders from {first:g} to {last:g}>)"
