"""The trusted party: it holds the data and answers the noisy questions that a plan has paid for."""

from __future__ import annotations

from typing import Any

import numpy as np

from dpskl.accounting import TokenPool, UnplannedQuestionError
from dpskl.mechanisms.gradient import GaussianGradient
from dpskl.mechanisms.hidden_descent import HiddenDescent
from dpskl.mechanisms.noise import NoiseSource
from dpskl.mechanisms.perturbed_objective import PerturbedObjective
from dpskl.problem import Problem

__all__ = ["Curator"]

Array = np.ndarray[Any, Any]


class Curator:
    """Answers questions with noise; each is charged before its noise is drawn.

    A solver gets a curator and nothing else of the data, so that whatever it does with the answers is
    post-processing.

    Parameters
    ----------
    problem : Problem
    pool : TokenPool
        The questions that were paid for.
    noise : NoiseSource
    """

    def __init__(self, problem: Problem, pool: TokenPool, noise: NoiseSource) -> None:
        self.__problem = problem
        self.__pool = pool
        self.__noise = noise

    def zeros(self) -> Array:
        """Return zero weights of the right shape, which is public."""
        return self.__problem.zeros()

    def __check_size(self, mechanism: GaussianGradient | HiddenDescent) -> None:
        """A plan for other data has another sensitivity; its costs may be the same."""
        planned, held = (
            (mechanism.n_samples, mechanism.n_features),
            (self.__problem.n_samples, self.__problem.n_features),
        )
        if planned != held:
            raise UnplannedQuestionError(f"the plan is for data of size {planned}, and these have {held}")

    def noisy_gradient(self, mechanism: GaussianGradient, weights: Array) -> Array:
        """Return the noisy sum of clipped gradients at ``weights``."""
        self.__check_size(mechanism)
        self.__pool.take(mechanism.cost)
        return mechanism.release(self.__problem, weights, self.__noise)

    def hidden_descent(self, mechanism: HiddenDescent) -> Array:
        """Return the last iterate of noisy gradient descent."""
        self.__check_size(mechanism)
        self.__pool.take(mechanism.cost)
        return mechanism.release(self.__problem, self.__noise)

    def perturbed_minimum(self, mechanism: PerturbedObjective) -> Array:
        """Return the certified minimum of the perturbed objective."""
        self.__pool.take(mechanism.cost)
        return mechanism.release(self.__problem, self.__noise)
