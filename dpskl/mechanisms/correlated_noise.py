r"""Correlated noise for prefix sums: factorisations of the matrix of ones below the diagonal.

The prefix sums ``A G`` of steps ``G`` (``A`` is 1 on and below the diagonal) are released as ``A G + B Z`` with
``A = B C`` and independent ``Z``. That is ``B (C G + Z)``: a Gaussian mechanism on ``C G``, and then arithmetic. What a
record costs is decided by the columns of ``C`` at the steps it takes part in, what a prefix sum suffers by its row of
``B``. No matrix is formed: each factorisation knows its column norms, its row norms and how to draw ``B Z`` row by row.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from math import sqrt
from typing import Any

import numpy as np
from scipy.signal import lfilter

__all__ = ["BinaryTree", "Factorisation", "Restarted", "SquareRoot", "best_square_root"]

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Factorisation(ABC):
    """A pair ``A = B C`` for ``n_steps`` steps; ``C`` has no negative entry and row ``t`` needs steps up to ``t``.

    Parameters
    ----------
    n_steps : int
    """

    n_steps: int

    @abstractmethod
    def participation_norm(self, period: int) -> float:
        r"""Return the largest norm of ``C G`` over steps ``G`` of norm 1 at ``j, j + period, j + 2 period, ...``.

        Since no entry of ``C`` is negative, no two columns have a negative product, and the largest norm is
        reached by steps that all point the same way: it is ``max_j || sum_i C[:, j + i period] ||``, exactly.
        """

    @abstractmethod
    def variances(self) -> Array:
        """Return the variance of a coordinate of each row of ``B Z``, for ``Z`` of variance 1; shape (n_steps,)."""

    @abstractmethod
    def rows(self, draw: Callable[[int], Array]) -> Iterator[Array]:
        """Yield the rows of ``B Z``; ``draw(count)`` returns so many fresh rows of ``Z``."""

    def error(self, period: int) -> float:
        """Return the root mean square of the noise in a prefix sum, in units of the step's norm and of ``1 / mu``."""
        return self.participation_norm(period) * sqrt(float(self.variances().mean()))


@dataclass(frozen=True)
class SquareRoot(Factorisation):
    r"""The square root of ``A``, cut to a band: ``C[t, s] = binom(2 k, k) / 4^k`` for ``k = t - s < band``, else 0.

    Parameters
    ----------
    n_steps : int
    band : int
        From 1, which is independent noise in every step, to ``n_steps``, the whole root.

    Notes
    -----
    The whole root has ``B = C`` and is optimal for one pass up to terms of lower order, with an error of about
    ``1 + log(n_steps) / pi`` (Fichtenberger, Henzinger & Upadhyay 2023; Henzinger, Upadhyay & Upadhyay 2023). The band
    is for several passes: columns that are a band apart are orthogonal (Kalinin & Lampert 2024). ``B = A C^{-1}`` is
    never formed: ``x_t = z_t - sum_k C[t, t - k] x_{t-k}`` is row ``t`` of ``C^{-1} Z`` and the noise is the sum of
    the ``x``, so that the last ``band - 1`` of them are all that is kept.

    Examples
    --------
    >>> round(SquareRoot(100, band=100).error(period=100), 3)
    2.371
    >>> round(SquareRoot(100, band=1).error(period=100), 3)  # independent noise
    7.106
    """

    band: int

    def _coefficients(self) -> Array:
        k = np.arange(1, self.band)
        return np.cumprod(np.r_[1.0, (k - 0.5) / k])

    def participation_norm(self, period: int) -> float:
        # later patterns are the first one, moved down and cut
        column, total = self._coefficients(), np.zeros(self.n_steps + self.band)
        for start in range(0, self.n_steps, period):
            total[start : start + self.band] += column
        return float(np.linalg.norm(total[: self.n_steps]))

    def variances(self) -> Array:
        first = np.zeros(self.n_steps)
        first[0] = 1.0
        return np.cumsum(np.cumsum(lfilter([1.0], self._coefficients(), first)) ** 2)

    def rows(self, draw: Callable[[int], Array]) -> Iterator[Array]:
        kept, column = self.band - 1, self._coefficients()[1:]
        places = np.arange(kept)
        past = total = None
        for t in range(self.n_steps):
            x = draw(1)[0]
            if past is None:
                past, total = np.zeros((kept, *x.shape)), np.zeros_like(x)
            if kept:
                # x_s lies at s mod (band - 1), until x_{s + band - 1} takes its place
                x = x - np.tensordot(column[(t - 1 - places) % kept], past, axes=1)
                past[t % kept] = x
            total = total + x
            yield total


@lru_cache(maxsize=256)
def best_square_root(n_steps: int, period: int) -> SquareRoot:
    """Return the band of least :meth:`~Factorisation.error` among the powers of 2, the period and the whole root.

    Examples
    --------
    >>> best_square_root(100, period=10)
    SquareRoot(n_steps=100, band=10)
    """
    bands = {2**i for i in range(n_steps.bit_length()) if 2**i <= n_steps} | {min(period, n_steps), n_steps}
    return min((SquareRoot(n_steps, band) for band in sorted(bands)), key=lambda f: f.error(period))


@dataclass(frozen=True)
class BinaryTree(Factorisation):
    """Sums over the nodes of a binary tree whose leaves are the steps.

    Parameters
    ----------
    n_steps : int
    refined : bool, default=False
        Whether a node's estimate also uses those of its children, with the weights of least variance among what is
        known when the node is complete (Honaker 2015, "from below"; Kairouz et al. 2021). Right children, which a plain
        tree never looks at, then have noise too.

    Notes
    -----
    Row ``t`` of ``C`` is the sum of the ``2^l`` steps that end at ``t``, ``l`` the number of zeros that the binary
    number ``t`` ends with, or, refined, the sums of ``1, 2, ..., 2^l`` steps. A prefix adds the nodes of the ones of
    ``t``: its variance is their number, or the sum of ``1 / (2 - 2^-l)`` over their levels (Chan, Shi & Song 2011).
    """

    refined: bool = False

    def participation_norm(self, period: int) -> float:
        # per first step of a pattern, the sum over nodes of the square of how many of its steps the node has
        base, changes = 0.0, np.zeros(2 * period + 1)
        for level in range(self.n_steps.bit_length()):
            width = 2**level
            ends = np.arange(width, self.n_steps + 1, width if self.refined else 2 * width)
            whole, rest = divmod(width, period)
            base += whole**2 * len(ends)
            first = (ends - width) % period
            np.add.at(changes, first, 2 * whole + 1)
            np.add.at(changes, first + rest, -(2 * whole + 1))
        sums = np.cumsum(changes)
        return sqrt(base + float((sums[:period] + sums[period : 2 * period]).max()))

    @staticmethod
    def _variance(level: Any) -> Any:
        return 1 / (2 - 2.0**-level)

    def variances(self) -> Array:
        t, total = np.arange(1, self.n_steps + 1), np.zeros(self.n_steps)
        for level in range(self.n_steps.bit_length()):
            total += ((t >> level) & 1) * (self._variance(level) if self.refined else 1.0)
        return total

    def rows(self, draw: Callable[[int], Array]) -> Iterator[Array]:
        nodes: dict[int, Array] = {}  # by level, those of the ones of t
        for t in range(1, self.n_steps + 1):
            top = (t & -t).bit_length() - 1
            if self.refined:
                fresh = draw(top + 1)
                estimate = fresh[0]
                for level in range(1, top + 1):
                    own = self._variance(level)  # also the weight of the node's own noise, of variance 1
                    estimate = own * fresh[level] + (1 - own) * (nodes.pop(level - 1) + estimate)
            else:
                estimate = draw(1)[0]
                for level in range(top):
                    del nodes[level]
            nodes[top] = estimate
            yield np.sum(list(nodes.values()), axis=0)


@dataclass(frozen=True)
class Restarted(Factorisation):
    """The same factorisation, begun anew in each pass; sums of whole passes keep the noise of their last row.

    Parameters
    ----------
    n_steps : int
        A multiple of ``inner.n_steps``.
    inner : Factorisation
        That of one pass.
    """

    inner: Factorisation

    @property
    def n_passes(self) -> int:
        return self.n_steps // self.inner.n_steps

    def participation_norm(self, period: int) -> float:
        if period != self.inner.n_steps:
            raise ValueError(f"a factorisation of {self.inner.n_steps} steps a pass was asked for a pass of {period}")
        return sqrt(self.n_passes) * self.inner.participation_norm(period)

    def variances(self) -> Array:
        inner = self.inner.variances()
        return np.add.outer(inner[-1] * np.arange(self.n_passes), inner).ravel()

    def rows(self, draw: Callable[[int], Array]) -> Iterator[Array]:
        before: Any = 0.0
        for _ in range(self.n_passes):
            for row in self.inner.rows(draw):
                yield before + row
            before = before + row
