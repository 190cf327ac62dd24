"""The trusted party: it holds the data and answers the noisy questions that a plan has paid for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import numpy as np

from dpskl.accounting import Cost
from dpskl.budget import UnplannedQuestionError
from dpskl.mechanisms.base import Mechanism
from dpskl.mechanisms.noise import NoiseSource
from dpskl.records.trainable import Trainable

__all__ = ["Budget", "Curator"]

Array = np.ndarray[Any, Any]


class Budget(Protocol):
    """What a plan has paid for: a pool of tokens, or a filter."""

    def take(self, cost: Cost) -> None:
        """Charge one question, or raise."""


class Curator:
    """Answers questions with noise; each is charged before its noise is drawn.

    A solver gets a curator and nothing else of the data, so that whatever it does with the answers is
    post-processing.

    Parameters
    ----------
    problem : Trainable
        The data: a problem, one along a path, or whatever else keeps that protocol.
    budget : Budget
        The questions that were paid for.
    noise : NoiseSource
    on_answer : callable, optional
        Called without arguments after each answer, to show progress: how many answers there were, and no more.
    """

    def __init__(
        self,
        problem: Trainable,
        budget: Budget,
        noise: NoiseSource,
        on_answer: Callable[[], None] | None = None,
    ) -> None:
        self.__problem = problem
        self.__budget = budget
        self.__noise = noise
        self.__on_answer = on_answer or (lambda: None)

    def zeros(self) -> Array:
        """Return zero weights of the right shape, which is public."""
        return self.__problem.zeros()

    def ask(self, mechanism: Mechanism, *arguments: Any) -> Any:
        """Return the answer of ``mechanism.release``.

        Parameters
        ----------
        mechanism : Mechanism
            The question. What it costs is taken from the budget first.
        *arguments
            What it is asked about, such as the weights at which a gradient is wanted: public, or made of
            earlier answers.

        Raises
        ------
        UnplannedQuestionError
            If the plan does not hold the question, or is for data of another size. Nothing is drawn.
        FilterRefusal
            If the budget is a filter and too little is left. Nothing is drawn.
        """
        if not self._is_for_these_data(mechanism.data_shape):
            held = (self.__problem.n_samples, self.__problem.n_features)
            raise UnplannedQuestionError(f"the plan is for data of size {mechanism.data_shape}, and these have {held}")
        self.__budget.take(mechanism.cost)
        answer = mechanism.release(self.__problem, *arguments, self.__noise)
        self.__on_answer()
        return answer

    def _is_for_these_data(self, shape: tuple[int, int] | None) -> bool:
        # a plan for other data has another sensitivity; its costs may be the same. The number of records may be a bound
        # above theirs: every formula that takes it grows with it.
        return shape is None or (self.__problem.n_samples <= shape[0] and self.__problem.n_features == shape[1])
