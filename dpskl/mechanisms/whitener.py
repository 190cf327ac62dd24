"""Changes of variables under which a released second moment of the rows is nearly the identity."""

from __future__ import annotations

from math import sqrt
from typing import Any

import numpy as np
from scipy import linalg

from dpskl.records.scaling import ShortenedScaling

__all__ = ["MOST_DIRECTIONS", "ScalingWhitener", "Whitener", "whitener_condition"]

Array = np.ndarray[Any, Any]
_Direction = tuple[float, Array]  # an eigenvalue and its vector

# What bounds on rounding are made for; more than so many never stood out of the noise.
MOST_DIRECTIONS = 32


def whitener_condition(ridge: float, top: float) -> float:
    """Return a bound on the condition of any :class:`Whitener` of this ridge and largest eigenvalue."""
    return sqrt((top + ridge) / ridge)


class Whitener:
    r"""The change of variables ``w = W v`` that makes a second moment ``M`` nearly the identity.

    ``W = U diag(s + ridge)^(-1/2)`` with ``M = U diag(s) U^T`` and ``s`` clipped to ``[0, top]``, where the second
    moment of any data set has its eigenvalues. A diagonal ``M`` has ``U = I``. Rows become ``W^T x``, gradients
    ``W^T g``.

    Parameters
    ----------
    moment : ndarray of shape (D, D) or (D,)
        Symmetric, or the diagonal of a diagonal matrix: public or released.
    ridge : float
        Positive.
    top : float
        Largest possible eigenvalue.

    Attributes
    ----------
    matrix : ndarray of shape (D, D) or (D,)
        ``W``, read-only.
    scales : ndarray of shape (D,)
        ``(s + ridge)^(-1/2)``: ``||W v|| = ||scales * v||``.
    condition : float
        Bound on the largest singular value of ``W`` over the smallest: :func:`whitener_condition`.
    shortest : float
        1: no direction is shortened, see :class:`ScalingWhitener`.
    effective_dimension : float
        ``sum s / (s + ridge)``: the mean square of ``||W^T x||`` where ``M`` is the second moment.

    Examples
    --------
    >>> whitener = Whitener(np.diag([0.75, 0.0]), ridge=0.25, top=1.0)
    >>> whitener.scales.tolist(), whitener.effective_dimension
    ([2.0, 1.0], 0.75)
    """

    shortest = 1.0

    def __init__(self, moment: Array, ridge: float, top: float) -> None:
        if moment.ndim == 1:
            values, basis = moment, None
        else:
            values, basis = np.linalg.eigh(moment)
        values = np.clip(values, 0, top)
        self.scales = 1 / np.sqrt(values + ridge)
        self.matrix = self.scales if basis is None else basis * self.scales
        self.matrix.flags.writeable = False
        self.condition = whitener_condition(ridge, top)
        self._shares = values / (values + ridge)
        self.effective_dimension = float(np.sum(self._shares))

    @property
    def transform(self) -> Array:
        """The map of rows, as problems take it."""
        return self.matrix

    def to_weights(self, v: Array) -> Array:
        """Return ``W v`` for ``v`` of shape (D,) or (D, n_outputs)."""
        return self.matrix @ v if self.matrix.ndim == 2 else (self.matrix * v.T).T

    def to_whitened(self, gradient: Array) -> Array:
        """Return ``W^T g`` for a gradient of shape (D,) or (D, n_outputs)."""
        return self.matrix.T @ gradient if self.matrix.ndim == 2 else (self.matrix * gradient.T).T

    def mean_square(self, v: Array) -> float:
        """Return about the mean square of the scores of rows at ``W v``, ``v`` of shape (D,)."""
        return float(np.sum(self._shares * v**2))

    def shrunk(self, v: Array, penalty: float) -> Array:
        """Return ``(I + penalty W^T W)^(-1) v``: the least ``||x - v||^2 + penalty ||W x||^2``."""
        with np.errstate(over="ignore"):  # what an infinite penalty leaves is nothing
            return (v.T / (1 + penalty * self.scales**2)).T


class ScalingWhitener:
    r"""Columns scaled to mean square one, and the directions that many of them share shortened.

    ``W = diag(scales) B``, ``scales = (s + ridge)^(-1/2)`` with the diagonal ``s`` of a second moment ``M``. Scaled one
    by one, columns leave eigenvalues of up to ``D``: of what they have in common, their means among it. ``B`` shortens
    such directions until their eigenvalue is ``level``, as far as they stand out of the noise.

    Directions are looked for in what is given, in this order. The column of the constant, if ``M`` has it: ``b`` with
    ``b b^T / M_cc <= M``, the part of ``M`` that the constant explains, hence the means of the columns. Then the
    eigenvectors of the rest of the scaled ``M``, if ``M`` is the whole moment, with eigenvalues above ``level`` and
    above what noise of the expected norm makes of the mean eigenvalue, one.

    Parameters
    ----------
    moment : ndarray of shape (D, D), (2, D) or (D,)
        Public or released, as :class:`~dpskl.mechanisms.second_moment.SecondMoment` returns it.
    part : {"full", "arrow", "diagonal"}
        What ``moment`` is: the whole, its diagonal and its last column, or its diagonal.
    ridge : float
        Positive.
    top : float
        Square of the largest norm of a row, hence the largest possible entry of the diagonal.
    level : float
        What eigenvalues are brought down to, positive.
    noise_scale : float
        Standard deviation of the noise in an entry of the diagonal; ``sqrt(2)`` times that of the others.
    has_constant : bool
        Whether the last column of rows is the constant.

    Attributes
    ----------
    transform : ShortenedScaling
        The map of rows, as problems take it.
    condition : float
        Bound on the largest singular value of ``W`` over the smallest.
    shortest : float
        Lower bound on the factors of ``B``: :meth:`shortest_of`.
    effective_dimension : float
        The mean square of ``||W^T x||``, as far as ``M`` says.

    Examples
    --------
    >>> arrow = np.array([[0.25, 0.25, 0.5], [0.25, 0.2, 0.5]])  # the diagonal, and products with the constant
    >>> whitener = ScalingWhitener(arrow, "arrow", 1e-9, 1.0, level=1.5, noise_scale=0.0, has_constant=True)
    >>> (whitener.transform.factors**2).round(3).tolist()  # of an eigenvalue of 2.82
    [0.532]
    """

    def __init__(
        self, moment: Array, part: str, ridge: float, top: float, level: float, noise_scale: float, has_constant: bool
    ) -> None:
        diagonal = moment.diagonal() if part == "full" else moment[0] if part == "arrow" else moment
        values = np.clip(diagonal, 0, top)
        scales = 1 / np.sqrt(values + ridge)
        found: list[_Direction] = []
        if has_constant and part != "diagonal":
            column = moment[:, -1] if part == "full" else moment[1]
            found += _explained_by_the_constant(column, values, scales, noise_scale)
        if part == "full":
            found += _common(moment * np.outer(scales, scales), found, max(level, 1 + _noise_norm(scales, noise_scale)))
        most = len(values) + 1  # and no data have more
        found = sorted(((min(value, most), vector) for value, vector in found), key=lambda pair: -pair[0])
        found = [(value, vector) for value, vector in found[:MOST_DIRECTIONS] if value > level]
        eigenvalues = np.array([value for value, _ in found])
        vectors = [np.empty((len(values), 0)), *(vector[:, None] for _, vector in found)]
        directions = np.linalg.qr(np.concatenate(vectors, axis=1))[0]
        factors = np.sqrt(level / eigenvalues)
        self.transform = ShortenedScaling(scales, directions, factors)
        self.shortest = self.shortest_of(level, len(values))
        self.condition = whitener_condition(ridge, top) / self.shortest
        self._shares, self._level = values / (values + ridge), level
        removed = float(np.sum((1 - factors**2) * eigenvalues))
        # rows are no longer than the root of top, whatever noise has made of the diagonal
        size = min(float(np.sum(self._shares)), top * float(scales.max()) ** 2)
        self.effective_dimension = max(size - removed, 1.0)

    @staticmethod
    def shortest_of(level: float, dimension: int) -> float:
        """Return the least factor of any whitener of this level and dimension."""
        return min(1.0, sqrt(level / (dimension + 1)))

    def to_weights(self, v: Array) -> Array:
        """Return ``W v`` for ``v`` of shape (D,) or (D, n_outputs)."""
        return (self.transform.scales * self.transform.shorten(v).T).T

    def to_whitened(self, gradient: Array) -> Array:
        """Return ``W^T g`` for a gradient of shape (D,) or (D, n_outputs)."""
        return self.transform.shorten((self.transform.scales * gradient.T).T)

    def mean_square(self, v: Array) -> float:
        """Return about the mean square of the scores of rows at ``W v``, ``v`` of shape (D,)."""
        along = self.transform.directions.T @ v
        rest = v - self.transform.directions @ along
        return float(self._level * np.sum(along**2) + np.sum(self._shares * rest**2))

    def shrunk(self, v: Array, penalty: float) -> Array:
        """Return ``(I + penalty W^T W)^(-1) v``: the least ``||x - v||^2 + penalty ||W x||^2``."""
        # I + penalty B S^2 B = B (E + U H U^T) B with E = I + penalty S^2, diagonal, and H = 1 / factors^2 - 1
        U, factors = self.transform.directions, self.transform.factors
        with np.errstate(over="ignore"):  # what an infinite penalty leaves is nothing
            shares = 1 / (1 + penalty * self.transform.scales**2)
        x = (shares * self.transform.lengthen(v).T).T
        gain = 1 / factors**2 - 1
        inner = np.eye(len(gain)) + gain[:, None] * (U.T @ (shares[:, None] * U))
        x = x - (shares * (U @ np.linalg.solve(inner, (gain * (U.T @ x).T).T)).T).T
        return self.transform.lengthen(x)


def _noise_norm(scales: Array, noise_scale: float) -> float:
    """Return about what norm symmetric noise has after scaling; of noise alone it is rarely larger."""
    # 2 max_i (sum_j var_ij)^(1/2), with the variance noise_scale^2 scales_i^2 scales_j^2 / 2
    weights = scales**2
    return sqrt(2) * noise_scale * sqrt(weights.max() * weights.sum())


def _explained_by_the_constant(column: Array, values: Array, scales: Array, noise_scale: float) -> list[_Direction]:
    """Return the direction that the constant column has in common with the others, with its eigenvalue."""
    if values[-1] == 0:
        return []
    bound = np.sqrt(values * values[-1])  # by Cauchy and Schwarz, on any data
    shared = scales * np.clip(column, -bound, bound) / sqrt(values[-1])
    length = float(np.linalg.norm(shared))
    noise = noise_scale**2 / 2 * float(np.sum(scales[:-1] ** 2)) / values[-1]
    # what the constant does not explain counts as one, the mean
    return [(1 + length**2 - noise, shared / length)] if length > 0 else []


def _common(scaled: Array, known: list[_Direction], least: float) -> list[_Direction]:
    """Return the eigenvectors that stand out, of what is left of a scaled moment across the known directions."""
    for _, vector in known:
        image = scaled @ vector
        crossing = np.outer(vector, image - (vector @ image) / 2 * vector)
        scaled -= crossing + crossing.T
    eigenvalues, vectors = linalg.eigh(scaled, subset_by_value=(least, np.inf), overwrite_a=True)
    return list(zip(eigenvalues.tolist(), vectors.T, strict=True))
