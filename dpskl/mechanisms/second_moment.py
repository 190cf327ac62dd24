"""Gaussian noise on the second moment of the rows, or on a part of it."""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt
from typing import Any

import numpy as np

from dpskl.accounting import GaussianCost
from dpskl.mechanisms.base import Mechanism
from dpskl.mechanisms.noise import NoiseSource
from dpskl.mechanisms.sensitivity import contributions, rounding_allowance
from dpskl.records.problem import Problem

__all__ = ["PARTS", "SecondMoment", "add_symmetric_normal"]

Array = np.ndarray[Any, Any]

PARTS = {
    "full": "second moment",
    "arrow": "diagonal and last column of the second moment",
    "diagonal": "diagonal of the second moment",
}


def add_symmetric_normal(noise: NoiseSource, gram: Array, scale: float) -> Array:
    """Return a symmetric matrix with symmetric noise that is isotropic in the Frobenius norm."""
    upper = np.triu_indices_from(gram, 1)
    weighted = np.concatenate([gram.diagonal(), sqrt(2) * gram[upper]])
    noisy = noise.add_normal(weighted, scale)
    moment = np.diag(noisy[: len(gram)])
    moment[upper] = noisy[len(gram) :] / sqrt(2)
    moment.T[upper] = moment[upper]
    return moment


@dataclass(frozen=True)
class SecondMoment(Mechanism):
    r"""Release ``sum_i x_i x_i^T``, or a part of it, plus Gaussian noise; ``x_i`` are the bounded rows.

    Parameters
    ----------
    row_norm : float
        Bound on the norm of a row, intercept included: ``Problem.row_bound``.
    mu : float
        Gaussian privacy parameter of the release: sensitivity over noise scale. ``inf`` for no noise.
    part : {"full", "arrow", "diagonal"}
        The whole matrix, its diagonal and the column of the constant, or its diagonal.
    neighbours : {"add_remove", "replace_one"}
    n_samples, n_features : int
        Public size, for the rounding of the float64 sum.

    Notes
    -----
    With ``R = row_norm`` and neighbours as in :mod:`~dpskl.mechanisms.sensitivity`:

    * *Full.* The noise is put on the vector of the diagonal and of ``sqrt(2)`` times the upper triangle, whose norm is
      the Frobenius norm of the matrix. A record adds ``x x^T``, of Frobenius norm ``||x||^2 <= R^2``. Exchanging
      ``x`` for ``z`` moves it by ``(||x||^4 + ||z||^4 - 2 (x . z)^2)^(1/2) <= sqrt(2) R^2``. The noise of an entry off
      the diagonal has the standard deviation ``noise_scale / sqrt(2)``, and both triangles carry the same.
    * *Parts.* Diagonal and last column are entries of this vector, with the same weights, and the diagonal alone as
      well. What leaves entries out moves by no more than the whole.

    All bounds are reached, by rows ``R e_j``. So the release is mu-GDP (Dong, Roth & Su 2022, theorem 1), with the
    exact profile of Balle & Wang (2018, theorem 8). The matrix is not made positive semi-definite here: that is for
    whoever uses it.
    """

    row_norm: float
    mu: float
    part: str
    neighbours: str
    n_samples: int
    n_features: int

    theorem = "Gaussian mechanism, mu = sensitivity / noise, in the Frobenius norm (Dong, Roth & Su 2022)"

    @property
    def name(self) -> str:  # type: ignore[override]
        return f"Gaussian noise on the {PARTS[self.part]} of the rows"

    @property
    def sensitivity(self) -> float:
        exact = sqrt(contributions(self.neighbours))
        return self.row_norm**2 * (exact + rounding_allowance(self.n_samples, self.n_features))

    @property
    def noise_scale(self) -> float:
        return self.sensitivity / self.mu

    @property
    def cost(self) -> GaussianCost:
        return GaussianCost(self.mu)

    def release(self, problem: Problem, noise: NoiseSource) -> Array:
        """Return the noisy matrix, symmetric, (D, D), or its diagonal and last column, (2, D), or its diagonal, (D,).

        One pass over the data, two for the arrow.
        """
        if problem.row_bound > self.row_norm:
            raise ValueError(f"row_norm={self.row_norm} is for shorter rows than these, of up to {problem.row_bound}")
        if self.part == "full":
            return add_symmetric_normal(noise, problem.weighted_gram(np.ones(problem.n_samples)), self.noise_scale)
        diagonal = problem.squared_column_norms()
        if self.part == "diagonal":
            return noise.add_normal(diagonal, self.noise_scale)
        if not problem.intercept:
            raise ValueError("part='arrow' is for rows with a constant column")
        column = problem.adjoint(problem.row_map[1])[:-1]
        noisy = noise.add_normal(np.concatenate([diagonal, sqrt(2) * column]), self.noise_scale)
        diagonal = noisy[: len(diagonal)]
        return np.stack([diagonal, np.append(noisy[len(diagonal) :] / sqrt(2), diagonal[-1])])
