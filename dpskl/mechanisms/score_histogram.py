"""Gaussian noise on the histogram of scores by class, put where cumulative counts feel little of it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from math import sqrt
from typing import Any

import numpy as np

from dpskl.accounting import GaussianCost
from dpskl.mechanisms.base import Mechanism
from dpskl.mechanisms.noise import NoiseSource
from dpskl.mechanisms.sensitivity import contributions

__all__ = ["ScoreHistogram", "circle", "circle_powers"]

Array = np.ndarray[Any, Any]

# Of the squared norm of a record in several classes, what the table of classes gets; the rest is for the scores.
CONFUSION_SHARE = 0.5


@lru_cache(maxsize=8)
def circle_powers(n_cells: int) -> Array:
    """Return the power that each frequency gets on a circle of cells: 0 for the total, else one over the frequency.

    Their mean is 1, so that every column of :func:`circle` has norm 1.
    """
    places = np.arange(n_cells)
    frequencies = np.minimum(places, n_cells - places)
    powers = np.where(frequencies > 0, 1 / np.maximum(frequencies, 1), 0.0)
    return powers * (n_cells / powers.sum())


@lru_cache(maxsize=8)
def circle(n_cells: int) -> Array:
    """Return the symmetric matrix, constant along circular diagonals, whose squared eigenvalues are the powers."""
    first = np.fft.ifft(np.sqrt(circle_powers(n_cells))).real
    places = np.arange(n_cells)
    matrix: Array = first[(places[:, None] - places) % n_cells]
    matrix.flags.writeable = False
    return matrix


@dataclass(frozen=True)
class ScoreHistogram(Mechanism):
    r"""Release how many records of each class have a score in each of several intervals, by one Gaussian mechanism.

    Parameters
    ----------
    mu : float
        Gaussian privacy parameter of the release: sensitivity over noise scale. ``inf`` for no noise.
    n_bins : int
        Number of intervals of equal length.
    score_range : tuple of float
        Ends of the range of the scores, public; what lies outside counts as the nearer end.
    n_classes : int
        Two: a record has one score. More: a record has one for each class, and what is counted are its class with the
        predicted one, and its largest score with whether the prediction is right.
    neighbours : {"add_remove", "replace_one"}
    n_samples : int
        Largest number of records, public, for the rounding of the float64 sums.

    Notes
    -----
    *Two classes.* Cells lie on a circle: the ``m`` intervals of the first class from low to high, then those of
    the second class from low to high. With ``h`` the counts and ``C`` the matrix of :func:`circle` the release is
    ``C h`` plus independent noise, so a record adds one column of ``C``. All columns have norm 1, since ``C^T C`` has
    the constant diagonal ``r(0) = 1``; its entry for cells ``d`` apart is ``r(d)``. One record present or absent moves
    ``C h`` by 1. One exchanged moves it by ``||c_i - c_j|| = sqrt(2 - 2 r(d))``, at most
    ``sqrt(2 - 2 min_d r(d))``, 1.51 for 64 intervals. Both are reached.

    Why not the counts themselves: what is wanted are sums over arcs of the circle. The records that a threshold
    gets wrong are the upper part of the first class and the lower part of the second, ``m`` cells in a row, and the
    weights of the area under a ROC curve fall along the first class and rise along the second. Such sums consist of low
    frequencies, with amplitudes like one over the frequency, and the noise of a sum with amplitudes ``a_k`` has the
    variance ``sum_k |a_k|^2 / p_k`` for powers ``p_k``. Among all powers of the same sum it is least where ``p_k`` goes
    with ``|a_k|``. The total is not asked for, as the number of records is public.

    *Several classes.* The release is ``(sqrt(s) T, sqrt(1 - s) C h)`` plus independent noise, ``s = 1/2``: ``T`` are
    counts by class and predicted class, and ``h`` those of two classes, prediction wrong and right, by largest
    score. A record adds ``(sqrt(s) e_i, sqrt(1 - s) c_j)``, of norm 1. Exchanged it moves the release by at most
    ``sqrt(2 s + (1 - s) (2 - 2 min_d r(d)))``, which is reached where all cells can be.

    So the release is mu-GDP (Dong, Roth & Su 2022, theorem 1), with the exact profile of Balle & Wang (2018, theorem
    8). Counts are whole numbers. Their products with the matrix are off by at most ``n 2^-53`` times the number of
    cells on each of two data sets, which is added to the sensitivity. Whatever is asked of scores happens here: each is
    clipped and put into a cell by itself, and what is not a number goes into the lowest.

    Examples
    --------
    >>> histogram = ScoreHistogram(0.1, 64, (0.0, 1.0), 2, "add_remove", 10_000)
    >>> round(histogram.sensitivity, 6), round(histogram.noise_scale, 6)
    (1.0, 10.0)
    """

    mu: float
    n_bins: int
    score_range: tuple[float, float]
    n_classes: int
    neighbours: str
    n_samples: int

    name = "Gaussian noise on frequencies of the histogram of scores by class"
    theorem = "Gaussian mechanism, mu = sensitivity / noise, in the Euclidean norm (Dong, Roth & Su 2022)"

    @property
    def n_cells(self) -> int:
        """Number of cells on the circle."""
        return 2 * self.n_bins

    @property
    def _shares(self) -> tuple[float, float]:
        """Of the squared norm of a record, the parts of the table of classes and of the circle."""
        return (0.0, 1.0) if self.n_classes == 2 else (CONFUSION_SHARE, 1 - CONFUSION_SHARE)

    @property
    def weights(self) -> tuple[float, float]:
        """The factors of the table of classes and of the circle in the release."""
        confusion, scores = self._shares
        return sqrt(confusion), sqrt(scores)

    @property
    def sensitivity(self) -> float:
        confusion, scores = self._shares
        exact = 1.0
        if contributions(self.neighbours) == 2:
            products = np.fft.ifft(circle_powers(self.n_cells)).real
            exact = sqrt(2 * confusion + scores * (2 - 2 * float(products.min())))
        # 1e-12 for the entries of the matrix, which are themselves rounded
        return exact * (1 + 1e-12) + 2 * self.n_samples * self.n_cells * 2.0**-53

    @property
    def noise_scale(self) -> float:
        return self.sensitivity / self.mu

    @property
    def cost(self) -> GaussianCost:
        return GaussianCost(self.mu)

    def _bins(self, scores: Array) -> Array:
        low, high = self.score_range
        bounded = np.clip(np.where(np.isnan(scores), low, scores), low, high)
        places = ((bounded - low) / (high - low) * self.n_bins).astype(np.int64)
        return np.clip(places, 0, self.n_bins - 1)

    def release(self, codes: Array, scores: Array, noise: NoiseSource) -> tuple[Array | None, Array]:
        """Return the noisy table of classes, (K, K) with a row for each class, and the noisy sums of the circle.

        Both are in units of the release, that is, times ``weights``. With two classes there is no table.

        Parameters
        ----------
        codes : ndarray of shape (n,)
            Places of the records' classes, 0 to ``n_classes - 1``.
        scores : ndarray of shape (n,) or (n, n_classes)
        noise : NoiseSource
        """
        codes, scores = np.asarray(codes), np.asarray(scores, dtype=np.float64)
        K, n = self.n_classes, len(codes)
        if n > self.n_samples or scores.shape != ((n,) if K == 2 else (n, K)):
            raise ValueError(
                f"n_samples={self.n_samples} and n_classes={K} are not for {n} classes with scores of shape "
                f"{scores.shape}"
            )
        weight, scale = self.weights, self.noise_scale
        if K == 2:
            side, score = codes, scores
        else:
            predicted = scores.argmax(axis=1)
            side, score = (predicted == codes).astype(np.int64), scores.max(axis=1)
        counts = np.bincount(side * self.n_bins + self._bins(score), minlength=self.n_cells)
        sums = weight[1] * (circle(self.n_cells) @ counts.astype(np.float64))
        if K == 2:
            return None, noise.add_normal(sums, scale)
        table = weight[0] * np.bincount(codes * K + predicted, minlength=K * K)
        noisy = noise.add_normal(np.concatenate([table, sums]), scale)
        return noisy[: K * K].reshape(K, K), noisy[K * K :]
