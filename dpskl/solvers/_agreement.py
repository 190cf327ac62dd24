"""Steps that follow whether consecutive noisy gradients agree."""

from __future__ import annotations

from math import sqrt
from typing import Any

import numpy as np

__all__ = ["Agreement"]

Array = np.ndarray[Any, Any]

# Standard errors that a disagreement has to be beyond, for a rule that looks at each step of a fit.
_CLEAR = 3.0
# A planned step is the least: that of a hinge, whose slope jumps, disagrees at the right length as well.
_RANGE = (1.0, 8.0)


class Agreement:
    r"""A factor for the planned step: doubled while consecutive gradients agree, taken back where they disagree.

    Let ``g_t = grad L(v_t) + z_t`` be released with noise ``z_t``, and ``v_(t+1) = v_t - step g_t``. Then
    ``<g_t, g_(t+1)>`` is an unbiased estimate of minus the derivative of ``L(v_t - step g_t)`` by the step, since the
    noise of the second is independent of all before: positive as long as a longer step would have been better. What it
    weighs is the signal that is left against the curvature *and* against what noise does to the scores::

        E <g_t, g_(t+1)> = ||grad L||^2 - step (grad L^T H grad L + noise^2 tr H)

    to first order in the step. Products are added up until their sum is three standard errors from zero.

    Parameters
    ----------
    noise_scale : float
        Standard deviation of the noise in an entry of what is observed.
    begin : int
        Number of gradients to wait: at first all gradients agree, whatever the step.

    Attributes
    ----------
    factor : float
        From 1 to 8.

    Notes
    -----
    It sees released gradients and the public scale of their noise, hence is post-processing.

    References
    ----------
    The sign of such products for the length of steps: Kesten (1958), "Accelerated stochastic approximation". That they
    are the derivative by the step: Baydin et al. (2018), "Online learning rate adaptation with hypergradient descent".
    The test, whose variance is known because the noise is, is our own.
    """

    def __init__(self, noise_scale: float, begin: int) -> None:
        self.factor = 1.0
        self._variance, self._left = noise_scale**2, begin
        self._last: Array | None = None
        self._product = self._spread = 0.0

    def observe(self, gradient: Array) -> float:
        """Return the factor of the step that this gradient is for; shape (D,) or (D, n_outputs)."""
        last, self._last = self._last, gradient
        self._left -= 1
        if self._left >= 0 or last is None:
            return self.factor
        self._product += float(np.vdot(last, gradient))
        # noise times noise, and the noise of each times what is left of the other: not less than none
        noise = self._variance * gradient.size
        signals = sum(max(float(np.vdot(g, g)) - noise, 0.0) for g in (last, gradient))
        self._spread += self._variance * (noise + signals)
        if abs(self._product) > _CLEAR * sqrt(self._spread):
            low, high = _RANGE
            self.factor = min(max(self.factor * (2.0 if self._product > 0 else 0.5), low), high)
            self._product = self._spread = 0.0
        return self.factor
