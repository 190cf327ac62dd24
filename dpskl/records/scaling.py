"""Columns scaled one by one, then shortened along a few directions: a linear map of rows that is never formed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

__all__ = ["ShortenedScaling"]

Array = np.ndarray[Any, Any]


@dataclass(frozen=True, eq=False)
class ShortenedScaling:
    """The map ``x -> B (scales * x)`` with ``B = I - sum_k (1 - factors_k) u_k u_k^T``, symmetric.

    Parameters
    ----------
    scales : ndarray of shape (D,)
        Positive.
    directions : ndarray of shape (D, k)
        Orthonormal columns ``u_k``; ``k`` may be 0.
    factors : ndarray of shape (k,)
        In (0, 1].

    Raises
    ------
    ValueError
        The columns are farther from orthonormal than ``2^-50 (D + 8)``, which bounds on rounding allow.
    """

    scales: Array
    directions: Array
    factors: Array

    def __post_init__(self) -> None:
        gram = self.directions.T @ self.directions
        if np.linalg.norm(gram - np.eye(len(gram))) > (len(self.scales) + 8) * 2.0**-50:
            raise ValueError("directions must be orthonormal: take them from a QR decomposition")
        for array in (self.scales, self.directions, self.factors):
            array.flags.writeable = False  # what is computed from the map is kept by identity

    def shorten(self, v: Array) -> Array:
        """Return ``B v`` for ``v`` of shape (D,) or (D, n)."""
        return self._along(v, self.factors - 1)

    def lengthen(self, v: Array) -> Array:
        """Return ``B^(-1) v`` for ``v`` of shape (D,) or (D, n)."""
        return self._along(v, 1 / self.factors - 1)

    def _along(self, v: Array, changes: Array) -> Array:
        moved: Array = v + self.directions @ (changes * (self.directions.T @ v).T).T
        return moved
