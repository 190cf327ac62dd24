"""Gaussian noise on the histograms of several columns, in public cells."""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt
from typing import Any

import numpy as np

from dpskl.accounting import GaussianCost
from dpskl.mechanisms.base import Mechanism
from dpskl.mechanisms.noise import NoiseSource
from dpskl.mechanisms.noisy_count import SAFE_INVERSE
from dpskl.mechanisms.sensitivity import contributions
from dpskl.records.cells import ColumnCells

__all__ = ["ColumnHistograms", "counts_sensitivity"]

Array = np.ndarray[Any, Any]


def counts_sensitivity(n_columns: int, neighbours: str) -> float:
    """Return how far one record moves the counts of all columns together, in the Euclidean norm.

    Examples
    --------
    >>> counts_sensitivity(9, "add_remove"), counts_sensitivity(8, "replace_one")
    (3.0, 4.0)
    """
    return sqrt(n_columns * contributions(neighbours))


@dataclass(frozen=True)
class ColumnHistograms(Mechanism):
    r"""Release how many records lie in each cell of each of several columns, all with Gaussian noise.

    Parameters
    ----------
    mu : float
        Gaussian privacy parameter of the release: sensitivity over noise scale. ``inf`` for no noise.
    n_columns : int
        Number of columns, at least 1.
    neighbours : {"add_remove", "replace_one"}

    Notes
    -----
    Let ``h`` be the counts of all cells of all ``m = n_columns`` columns, in one vector. A value falls in at most one
    cell of its column, one that depends on the value and on public edges only.

    * *One record present or absent.* It adds a vector of zeros and ones with at most one 1 in each column, of squared
      norm at most ``m``. Its values may be missing: then it is shorter.
    * *One record exchanged.* In each column the counts move by ``e_a - e_b``, by ``e_a``, by ``-e_b`` or not at all, by
      at most 2 in the squared norm, so by ``sqrt(2 m)`` in all.

    Both bounds are reached, by a record whose values are all present, and by an exchange that moves each of them to
    another cell. The counts are whole numbers below ``2^53``, so their floats are exact. Noise
    ``N(0, (sensitivity / mu)^2)`` on each makes the release mu-GDP (Dong, Roth & Su 2022, theorem 1), with the exact
    profile of Balle & Wang (2018, theorem 8), whatever the cells are and however many, as long as they were fixed
    without these records, or from what is released of them. What is made of the counts is post-processing.

    Examples
    --------
    >>> ColumnHistograms(0.5, 4, "add_remove").sensitivity
    2.0
    """

    mu: float
    n_columns: int
    neighbours: str

    def __post_init__(self) -> None:
        if not self.mu > 0:
            raise ValueError(f"mu={self.mu!r} must be positive")
        if self.n_columns < 1:
            raise ValueError(f"n_columns={self.n_columns!r} must be at least 1")

    name = "Gaussian noise on the histograms of columns in public cells"
    theorem = "Gaussian mechanism, mu = sensitivity / noise, on all counts together (Dong, Roth & Su 2022)"

    @property
    def sensitivity(self) -> float:
        return counts_sensitivity(self.n_columns, self.neighbours)

    @property
    def noise_scale(self) -> float:
        return SAFE_INVERSE * self.sensitivity / self.mu

    @property
    def cost(self) -> GaussianCost:
        return GaussianCost(self.mu)

    def release(self, cells: ColumnCells, noise: NoiseSource) -> list[Array]:
        """Return noisy counts, one array for each column and one entry for each cell; they may be negative or broken.

        One pass over the data.
        """
        if cells.n_columns > self.n_columns:
            raise ValueError(f"n_columns={self.n_columns} is for fewer columns than these {cells.n_columns}")
        counts = cells.counts()
        noisy = noise.add_normal(np.concatenate(counts).astype(np.float64), self.noise_scale)
        return np.split(noisy, np.cumsum([len(own) for own in counts])[:-1])
