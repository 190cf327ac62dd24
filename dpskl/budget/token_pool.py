"""A fixed pool of noisy questions, to be asked in any order."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from dpskl.accounting.costs import Cost, compose

__all__ = ["TokenPool", "UnplannedQuestionError"]


class UnplannedQuestionError(RuntimeError):
    """A solver asked a question that its plan does not hold, or more often than planned: a bug, not a choice."""


class TokenPool:
    """The questions that a plan has paid for: fixed numbers of identical releases.

    A pool that is fixed before the data are seen costs the ordinary composition of all its tokens, in whatever
    order they are spent, even when order and stopping depend on earlier answers: by backward induction, one
    step and the best continuation never exceed the product (accounting of Smith & Thakurta 2022, here for
    arbitrary dominating pairs).

    Parameters
    ----------
    tokens : iterable of (Cost, int)

    Examples
    --------
    >>> from dpskl.accounting import GaussianCost
    >>> pool = TokenPool([(GaussianCost(0.1), 2)])
    >>> pool.take(GaussianCost(0.1)); pool.take(GaussianCost(0.1))
    >>> pool.remaining(GaussianCost(0.1))
    0
    """

    def __init__(self, tokens: Iterable[tuple[Cost, int]]) -> None:
        self._left: Counter[Cost] = Counter()
        for cost, count in tokens:
            self._left[cost] += count
        self.cost = compose(self._left.items())

    def remaining(self, cost: Cost) -> int:
        """Return how many tokens of this cost are left."""
        return self._left[cost]

    def take(self, cost: Cost) -> None:
        """Take one token out, before its noise is drawn.

        Raises
        ------
        UnplannedQuestionError
            If there is none; nothing is taken.
        """
        if self._left[cost] <= 0:
            raise UnplannedQuestionError(f"no token of {cost!r} is left in the plan")
        self._left[cost] -= 1
