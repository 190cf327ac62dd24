r"""Losses of linear classifiers: values, slopes, curvatures and the constants that proofs need.

A *margin loss* is a function ``phi`` of the margin ``z = y * score`` with ``y`` in {-1, +1}. All of ours are
convex and non-increasing with ``-1 <= phi'(z) <= 0``: the derivative has one sign, which is what the shifted
Gaussian profile of objective perturbation asks for. With several outputs (one-vs-rest) the loss of a
record is the sum over its outputs. :class:`Softmax` couples the outputs of a record instead.

Nothing here knows of ``X``, budgets or noise. The forms keep the dtype of their input and avoid
``np.logaddexp``, which has no SIMD path. ``log(1 + e)`` stands for ``log1p(e)``: their difference is below
one unit in the last place of 1, and only sums of many such terms are ever used.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from math import exp, inf, sqrt
from numbers import Real
from typing import Any

import numpy as np
from scipy.special import softmax

__all__ = ["Hinge", "HuberHinge", "Logistic", "Loss", "MarginLoss", "Softmax"]

Array = np.ndarray[Any, Any]

# Factors 1 + e^-z of at most e^cap whose product float64 holds: 128 * 5 = 640 < 709.
_GROUP = 128
_LARGEST_PRODUCT_CAP = 5.0
# Half-widths of the Huber hinge. Below, hardly a float32 lies on the parabola: it is the hinge, and Newton's method
# walks from kink to kink. Far above, losses of about h / 4 round in float32 by more than a line search allows for.
_WIDTHS = (1e-6, 10.0)


def _rounded_down(value: float, dtype: np.dtype[Any]) -> Any:
    """Return the largest number of a float dtype that does not exceed ``value``."""
    nearest = dtype.type(value)
    return nearest if float(nearest) <= value else np.nextafter(nearest, dtype.type(-inf))


class Loss(ABC):
    """A convex loss of the scores of one record, with the constants that a proof may use.

    Attributes
    ----------
    curvature_bound : float
        Largest eigenvalue of the Hessian in the scores, over all scores; ``inf`` where the loss has kinks.
    """

    curvature_bound: float

    @abstractmethod
    def gradient_bound(self, n_outputs: int) -> float:
        """Return the largest Euclidean norm of the gradient in the ``n_outputs`` scores of a record."""

    @abstractmethod
    def encode(self, codes: Array, n_classes: int) -> Array:
        """Return the targets for class indices ``codes`` of shape (n,), as the other methods expect them."""

    @abstractmethod
    def values(self, scores: Array, targets: Array) -> Array:
        """Return the loss of each record, shape (n,)."""

    def clipped_sum(self, scores: Array, targets: Array, cap: float) -> float:
        """Return ``sum_i min(loss_i, cap)``, the losses in the dtype of the scores and their sum in float64.

        The cap is rounded down to that dtype, so that no record adds more than ``cap``.
        """
        losses = self.values(scores, targets)
        return float(np.minimum(losses, _rounded_down(cap, losses.dtype), out=losses).sum(dtype=np.float64))

    @abstractmethod
    def residuals(self, scores: Array, targets: Array) -> Array:
        """Return the gradient in the scores, of the shape of ``scores``."""

    @abstractmethod
    def changes(self, scores: Array, targets: Array) -> Callable[..., Array]:
        """Return a function of moves of *one* output: how the loss of each record changes.

        Parameters
        ----------
        scores : ndarray of shape (n,) or (n, n_outputs)
        targets : ndarray

        Returns
        -------
        callable
            ``change(output, moves, rows=slice(None))`` is the loss with ``moves``, of shape (..., n), added to the
            scores of one output, minus the loss without. ``rows`` repeats or leaves out records.
        """

    @property
    def is_smooth(self) -> bool:
        """Whether the gradient is Lipschitz continuous."""
        return self.curvature_bound < inf


class MarginLoss(Loss):
    """A convex, non-increasing loss of the margin, with slopes in [-1, 0].

    Attributes
    ----------
    slope_bound : float
        Largest absolute slope, 1 for every margin loss of this module.
    """

    slope_bound: float = 1.0

    @abstractmethod
    def value(self, margins: Array) -> Array:
        """Return ``phi(z)``."""

    @abstractmethod
    def slope(self, margins: Array) -> Array:
        """Return ``phi'(z)``, in [-1, 0]."""

    @abstractmethod
    def curvature(self, margins: Array) -> Array:
        """Return ``phi''(z)``, in [0, curvature_bound]; at a kink of ``phi'`` the right derivative."""

    def majorant(self, margins: Array) -> Array:
        """Return the curvature of the least parabola through ``phi(z)`` with slope ``phi'(z)`` that is nowhere below.

        It lies in ``(0, curvature_bound]`` and is no less than ``phi''(z)``.
        """
        raise NotImplementedError(f"no parabola above {self!r} is known")

    def multiclass(self) -> Loss:
        """Return the loss for more than two classes: the sum of one-vs-rest losses unless overridden."""
        return self

    def gradient_bound(self, n_outputs: int) -> float:
        return self.slope_bound * sqrt(n_outputs)

    def encode(self, codes: Array, n_classes: int) -> Array:
        """Return signs: shape (n,) for two classes (the second is +1), else (n, n_classes)."""
        if n_classes == 2:
            return np.where(codes == 1, 1.0, -1.0)
        return np.where(codes[:, None] == np.arange(n_classes), 1.0, -1.0)

    def values(self, scores: Array, targets: Array) -> Array:
        each = self.value(targets * scores)
        return each if each.ndim == 1 else each.sum(axis=1, dtype=np.float64)

    def residuals(self, scores: Array, targets: Array) -> Array:
        slopes = self.slope(targets * scores)
        slopes *= targets
        return slopes

    def changes(self, scores: Array, targets: Array) -> Callable[..., Array]:
        margins = np.atleast_2d((targets * scores).T)
        before, signs = self.value(margins), np.atleast_2d(targets.T)

        def change(output: int, moves: Array, rows: Any = slice(None)) -> Array:
            moved = margins[output, rows] + signs[output, rows] * moves
            return self.value(moved) - before[output, rows]

        return change


@dataclass(frozen=True)
class Logistic(MarginLoss):
    """``phi(z) = log(1 + exp(-z))``, with ``|phi'| <= 1`` and ``phi'' <= 1/4``.

    Examples
    --------
    >>> import numpy as np
    >>> Logistic().value(np.array([0.0, 100.0, -1000.0])).round(4).tolist()
    [0.6931, 0.0, 1000.0]
    """

    curvature_bound = 0.25

    def value(self, margins: Array) -> Array:
        tail = np.abs(margins)
        np.negative(tail, out=tail)
        np.exp(tail, out=tail)
        tail += 1
        np.log(tail, out=tail)
        tail -= np.minimum(margins, 0)
        return tail

    def clipped_sum(self, scores: Array, targets: Array, cap: float) -> float:
        if scores.ndim > 1 or cap > _LARGEST_PRODUCT_CAP:
            return super().clipped_sum(scores, targets, cap)
        # a logarithm costs as much as all the rest: take one of the product of the factors 1 + e^-z of a group, in
        # float64, so that rounding mixes records no more than it does in a sum
        factors = scores * -targets
        with np.errstate(over="ignore"):
            np.exp(factors, out=factors)
        factors += 1
        largest = np.maximum(_rounded_down(exp(cap), factors.dtype), factors.dtype.type(1))  # no factor is below 1
        np.minimum(factors, largest, out=factors)
        whole = len(factors) // _GROUP * _GROUP
        products = np.multiply.reduce(factors[:whole].reshape(_GROUP, -1), axis=0, dtype=np.float64)
        # the rest in float64 too: which records belong to a group may change with the number of records
        return float(np.log(products).sum() + np.log(factors[whole:], dtype=np.float64).sum())

    def slope(self, margins: Array) -> Array:
        # -1 / (1 + e^z): the exponential has a SIMD path and scipy's expit has none
        with np.errstate(over="ignore"):  # at an infinite exponential the slope is 0, as it should be
            slopes = np.exp(margins)
        slopes += 1
        return np.divide(-1, slopes, out=slopes)

    def curvature(self, margins: Array) -> Array:
        tail = np.exp(-np.abs(margins))
        return tail / np.square(1 + tail)

    def majorant(self, margins: Array) -> Array:
        # phi + z/2 is a concave function of z^2 (Jaakkola & Jordan 2000)
        half = np.maximum(np.abs(margins) / 2, 1e-8)  # at 0 the quotient is 1 to the last place
        return np.tanh(half) / (4 * half)

    def multiclass(self) -> Loss:
        return Softmax()


@dataclass(frozen=True)
class Hinge(MarginLoss):
    """``phi(z) = max(0, 1 - z)``: ``|phi'| <= 1``, not smooth (at ``z = 1`` the slope is taken to be 0)."""

    curvature_bound = inf

    def value(self, margins: Array) -> Array:
        return np.maximum(1 - margins, 0)

    def slope(self, margins: Array) -> Array:
        return np.where(margins < 1, -1, 0).astype(margins.dtype)

    def curvature(self, margins: Array) -> Array:
        raise NotImplementedError("the hinge has no curvature; use HuberHinge for second-order methods")


@dataclass(frozen=True)
class HuberHinge(MarginLoss):
    """The hinge with its kink replaced by a parabola of half-width ``h``.

    ``phi(z) = 0`` for ``z > 1 + h``, ``(1 + h - z)^2 / (4 h)`` for ``|1 - z| <= h`` and ``1 - z`` for
    ``z < 1 - h``; ``|phi'| <= 1`` and ``phi'' <= 1 / (2 h)``.

    Parameters
    ----------
    h : float, default=0.5
        Half-width of the parabola, from 1e-6 to 10, in units of the margin.

    Raises
    ------
    ValueError
        If ``h`` is anything else.

    Notes
    -----
    In float32 and margins of at most ``m`` two values are off by less than ``2^-17 (1 + m)`` together.

    Examples
    --------
    >>> import numpy as np
    >>> HuberHinge(h=0.5).value(np.array([2.0, 1.0, 0.0])).tolist()
    [0.0, 0.125, 1.0]
    """

    h: float = 0.5

    def __post_init__(self) -> None:
        low, high = _WIDTHS
        if not (isinstance(self.h, Real) and not isinstance(self.h, bool) and low <= float(self.h) <= high):
            raise ValueError(f"h={self.h!r} must be a number from {low:g} to {high:g}, in units of the margin")
        # a half precision h would make half precision constants of what the proofs use
        object.__setattr__(self, "h", float(self.h))

    @property
    def curvature_bound(self) -> float:  # type: ignore[override]
        return 1 / (2 * self.h)

    def value(self, margins: Array) -> Array:
        inside = np.clip(1 + self.h - margins, 0, 2 * self.h)
        return inside * inside / (4 * self.h) + np.maximum(1 - self.h - margins, 0)

    def slope(self, margins: Array) -> Array:
        slopes = (margins - (1 + self.h)) / (2 * self.h)
        return np.clip(slopes, -1, 0, out=slopes)

    def curvature(self, margins: Array) -> Array:
        inside = (margins >= 1 - self.h) & (margins < 1 + self.h)
        return np.where(inside, self.curvature_bound, 0).astype(margins.dtype)

    def majorant(self, margins: Array) -> Array:
        # phi - (1 - z)/2 is |u|/2 outside of the parabola, u = z - 1: concave as a function of u^2
        return 1 / np.maximum(2 * self.h, 2 * np.abs(margins - 1))


@dataclass(frozen=True)
class Softmax(Loss):
    """Multinomial logistic loss ``log sum_k exp(s_k) - s_y`` of the ``K`` scores of a record.

    The gradient ``p - e_y`` has norm below ``sqrt(2)``; the Hessian ``diag(p) - p p^T`` has eigenvalues of
    at most 1/2.
    """

    curvature_bound = 0.5

    def gradient_bound(self, n_outputs: int) -> float:
        return sqrt(2)

    def encode(self, codes: Array, n_classes: int) -> Array:
        """Return the class indices, shape (n,)."""
        return codes

    def values(self, scores: Array, targets: Array) -> Array:
        top = scores.max(axis=1)
        spread = np.exp(scores - top[:, None]).sum(axis=1, dtype=np.float64)
        return np.log(spread) + (top - scores[np.arange(len(scores)), targets])

    def residuals(self, scores: Array, targets: Array) -> Array:
        probabilities = softmax(scores, axis=1)
        probabilities[np.arange(len(scores)), targets] -= 1
        return probabilities

    def changes(self, scores: Array, targets: Array) -> Callable[..., Array]:
        probabilities = np.ascontiguousarray(softmax(scores, axis=1).T)

        def change(output: int, moves: Array, rows: Any = slice(None)) -> Array:
            # log(1 - p + p e^t) - t [y = k]
            own = probabilities[output, rows]
            growth = np.exp(moves)
            growth *= own
            growth += 1 - own
            np.log(growth, out=growth)
            growth -= np.where(targets[rows] == output, moves, 0)
            return growth

        return change
