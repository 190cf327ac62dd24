"""Output perturbation: noise on trained weights, as much as the weights can move when one record changes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from dpskl.accounting import Cost, GaussianCost, PureCost
from dpskl.mechanisms.base import Mechanism
from dpskl.mechanisms.noise import NoiseSource
from dpskl.mechanisms.stable_training import StableTraining
from dpskl.records.problem import Problem

__all__ = ["PerturbedOutput"]


@dataclass(frozen=True)
class PerturbedOutput(Mechanism):
    r"""Release ``train(data) + noise``.

    Parameters
    ----------
    training : StableTraining
        How the weights are found, and how far they can move.
    budget : float
        Gaussian privacy parameter ``mu``, or ``epsilon`` with ``is_pure``; ``inf`` for no noise.
    is_pure : bool
        Noise with density proportional to ``exp(-||b|| / noise_scale)`` over all weights together and pure
        ``budget``-DP; or Gaussian noise and ``budget``-GDP.
    neighbours : {"add_remove", "replace_one"}

    Notes
    -----
    ``noise_scale = sensitivity / budget``. Gaussian: mu-GDP (Dong, Roth & Su 2022, theorem 1). Pure: the log density
    of the noise changes by at most ``sensitivity / noise_scale`` (Chaudhuri, Monteleoni & Sarwate 2011, algorithm 1).

    Preconditions: those of the training, which are convex losses, rows within their norm, and ridge, steps and sizes
    that are public; and that training cannot fail. The gradient methods do a fixed amount of work; a minimum
    is certified to a tolerance ten times above what rounding allows for on any data set, and always found
    (:mod:`dpskl.mechanisms.minimiser`). How long that takes depends on the data.
    """

    training: StableTraining
    budget: float
    is_pure: bool
    neighbours: str

    name = "output perturbation"

    @property
    def theorem(self) -> str:  # type: ignore[override]
        law = "Gamma-norm mechanism" if self.is_pure else "Gaussian mechanism, mu = sensitivity / noise"
        return f"{law}; {self.training.theorem}"

    @property
    def data_shape(self) -> tuple[int, int]:
        return self.training.n_samples, self.training.n_features

    @property
    def sensitivity(self) -> float:
        return self.training.distance(self.neighbours)

    @property
    def noise_scale(self) -> float:
        return self.sensitivity / self.budget

    @property
    def cost(self) -> Cost:
        return PureCost(self.budget) if self.is_pure else GaussianCost(self.budget)

    def release(self, problem: Problem, noise: NoiseSource) -> np.ndarray[Any, Any]:
        """Return the noisy weights, of the shape of ``problem.zeros()``."""
        weights = self.training.train(problem, noise)
        add = noise.add_gamma_vector if self.is_pure else noise.add_normal
        return add(weights.ravel(), self.noise_scale).reshape(weights.shape)
