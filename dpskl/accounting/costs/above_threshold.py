"""Cost of AboveThreshold in its range form."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar

from dpskl.accounting._numeric import check_range
from dpskl.accounting.conversion import pure_rdp
from dpskl.accounting.costs.base import Cost, set_fields
from dpskl.accounting.costs.pure import response_delta, response_epsilon
from dpskl.accounting.costs.renyi import RDPCost
from dpskl.accounting.stopping_game import NOISE_RDP, check_count, check_law, log_stopping_value

__all__ = ["AboveThresholdCost"]

_THETAS = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5)
_TABLE = tuple(1.0 + 10.0 ** (step / 8.0) for step in range(-12, 33))  # orders from 1.03 to 1e4


@dataclass(frozen=True, repr=False)
class AboveThresholdCost(Cost):
    """AboveThreshold on queries that one record moves within an interval of length 1: first success, or none.

    The interval is [a - 1, a] with an unknown a in [0, 1], the same for all queries.

    Parameters
    ----------
    law : {"gaussian", "laplace"}
        Law of both noises.
    threshold_scale, query_scale : float
        Noise of the threshold and of each query, as standard deviation (Gaussian) or scale (Laplace), in units of the
        length of the interval that holds all changes of one record; in [0, inf], 0 means no noise.
    count : int
        Number of candidates, at least 1; all are charged.

    Notes
    -----
    Renyi curve by the recursion of :mod:`dpskl.accounting.stopping_game`, the smallest over six values of theta.
    Laplace noise has the pure guarantee 1/threshold_scale + 1/query_scale: shift the threshold by a, so that answers
    below it get no less likely and the accepted query moves by a - d_j in [0, 1]. (Queries that records may move both
    ways within [-1, 1] need twice the query noise.) Every question is answered by the smaller of both bounds. Epsilon
    and delta use a table of 45 orders.

    The interval must hold for add-remove and for replace-one alike: losses in [0, 1] move within an interval of length
    1 when a record comes or goes, and of length 2 when it is exchanged, which doubles the unit.

    Examples
    --------
    >>> AboveThresholdCost("laplace", 4.0, 4.0, 30).epsilon(0.0)
    0.5
    >>> round(AboveThresholdCost("gaussian", 30.0, 45.0, 30).epsilon(1e-6), 2)
    0.13
    """

    kind: ClassVar[str] = "above_threshold"
    law: str
    threshold_scale: float
    query_scale: float
    count: int

    def __post_init__(self) -> None:
        set_fields(
            self,
            law=check_law(self.law),
            threshold_scale=check_range("threshold_scale", self.threshold_scale, 0.0),
            query_scale=check_range("query_scale", self.query_scale, 0.0),
            count=check_count(self.count),
        )

    @property
    def pure_epsilon(self) -> float:
        """Pure guarantee, ``inf`` for Gaussian noise."""
        total = _inverse(self.threshold_scale) + _inverse(self.query_scale)
        return total if self.law == "laplace" or total == 0.0 else math.inf

    def rdp(self, alpha: float) -> float:
        alpha, pure = check_range("alpha", alpha, 1.0, open_low=True), self.pure_epsilon
        bound = pure_rdp(pure, alpha)
        if alpha == math.inf or self.threshold_scale == 0.0 or self.query_scale == 0.0:
            return bound
        shift, ratio = 1.0 / self.threshold_scale, 1.0 / self.query_scale
        for theta in _THETAS:
            threshold = NOISE_RDP[self.law](max(theta, 1.0 - theta) * shift, alpha)
            game = log_stopping_value(self.law, self.count, alpha, ratio, theta)
            bound = min(bound, threshold + game / (alpha - 1.0))
        return bound

    @property
    def table(self) -> RDPCost:
        """The curve at fixed orders, for conversions, which look at many orders."""
        return _table(self)

    def _profile(self, epsilon: float) -> float:
        return min(response_delta(self.pure_epsilon, epsilon), self.table.delta(epsilon))

    def _smallest_epsilon(self, delta: float) -> float:
        if delta == 0.0:
            return self.pure_epsilon
        return min(response_epsilon(self.pure_epsilon, delta), self.table.epsilon(delta))


def _inverse(scale: float) -> float:
    return 1.0 / scale if scale > 0.0 else math.inf


@lru_cache(maxsize=1024)
def _table(cost: AboveThresholdCost) -> RDPCost:
    orders = (*_TABLE, math.inf)
    return RDPCost(orders, [cost.rdp(order) for order in orders])
