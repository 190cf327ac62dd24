"""Costs whose profile is that of a Gaussian mechanism."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from dpskl.accounting._numeric import check_range
from dpskl.accounting.conversion import gaussian_delta, gaussian_epsilon, gaussian_rdp
from dpskl.accounting.costs.base import Cost, set_fields


@dataclass(frozen=True, repr=False)
class GaussianCost(Cost):
    """Gaussian differential privacy with a shifted profile: delta(epsilon) = H(mu, epsilon - shift).

    Parameters
    ----------
    mu : float
        Sensitivity over noise standard deviation, in [0, inf]; ``inf`` means no noise.
    shift : float, default=0.0
        Bound on the log-determinant term of objective perturbation, sum of log(1 + smoothness / ridge) over
        its problems, in [0, inf). A plain Gaussian release has none.

    Notes
    -----
    The Gaussian mechanism has exactly this profile with shift 0 (Balle & Wang 2018). Objective perturbation
    of a convex linear model whose loss has a derivative of one sign is dominated, at every threshold, by the
    pair of measures (N(mu, 1), exp(-shift) N(0, 1)), hence the shifted profile for every real epsilon and
    the Renyi curve shift + alpha mu^2 / 2. Products of such pairs are again of this form: mu adds in
    squares, shifts add.

    Examples
    --------
    >>> round(GaussianCost(0.2, shift=0.025).delta(1.0), 12)
    3.3624e-08
    >>> round(GaussianCost(0.2).epsilon(1e-5), 6)
    0.725522
    """

    kind: ClassVar[str] = "gaussian"
    has_pair: ClassVar[bool] = True
    mu: float
    shift: float = 0.0

    def __post_init__(self) -> None:
        shift = check_range("shift", self.shift, 0.0, open_high=True)
        set_fields(self, mu=check_range("mu", self.mu, 0.0), shift=shift)

    def delta(self, epsilon: float) -> float:
        return gaussian_delta(self.mu, float(epsilon) - self.shift)

    def _profile(self, epsilon: float) -> float:
        return self.delta(epsilon)

    def _smallest_epsilon(self, delta: float) -> float:
        if self.shift == 0.0:
            return gaussian_epsilon(self.mu, delta)
        unshifted = gaussian_epsilon(self.mu, delta, lowest=-self.shift)
        # the sum may round down, which would fall short of the guarantee
        return 0.0 if unshifted == -self.shift else math.nextafter(unshifted + self.shift, math.inf)

    def rdp(self, alpha: float) -> float:
        return self.shift + gaussian_rdp(self.mu, alpha)


@dataclass(frozen=True, repr=False)
class ReplaceOneObjectiveCost(Cost):
    """Objective perturbation with Gaussian noise when one record is *replaced*.

    Parameters
    ----------
    mu : float
        Bound on the gradient of one record over the standard deviation of the noise, in [0, inf].
    shift : float
        log(1 + smoothness / ridge), in [0, inf).
    output_mu : float, default=0.0
        The same ratio for the noise on the released minimum, which covers its distance to the exact one.

    Notes
    -----
    With e = epsilon - shift >= 0, m = mu, o = output_mu the profile is the smaller of

    * H(o, e) + 2 H(sqrt(m^2 + o^2), e) + H(sqrt(4 m^2 + o^2), e): the log density ratio of the noise is convex
      in both gradient coefficients, hence largest at one of four corners, and the output noise composes with
      each of them;
    * exp(shift) H(2 sqrt(m^2 + o^2), e): group privacy of the whole through the data without the record.

    Below ``shift`` there is no guarantee (delta is 1). Neither a Renyi curve nor a dominating pair is proved, so
    a composition uses this cost through one point (epsilon, delta) of its profile.

    Examples
    --------
    >>> round(ReplaceOneObjectiveCost(0.2, math.log(1.025)).delta(1.0), 9)
    0.001552282
    """

    kind: ClassVar[str] = "replace_one_objective"
    has_rdp: ClassVar[bool] = False
    mu: float
    shift: float
    output_mu: float = 0.0

    def __post_init__(self) -> None:
        shift = check_range("shift", self.shift, 0.0, open_high=True)
        output_mu = check_range("output_mu", self.output_mu, 0.0)
        set_fields(self, mu=check_range("mu", self.mu, 0.0), shift=shift, output_mu=output_mu)

    @property
    def pure_epsilon(self) -> float:
        """Pure guarantee, which exists without a private gradient only."""
        return self.shift if self.mu == self.output_mu == 0.0 else math.inf

    def rdp(self, alpha: float) -> float:
        check_range("alpha", alpha, 1.0, open_low=True)
        return math.inf

    def delta(self, epsilon: float) -> float:
        return 1.0 if epsilon < self.shift else super().delta(epsilon)

    def _profile(self, epsilon: float) -> float:
        left = epsilon - self.shift
        if left < 0.0:
            return 1.0
        one, two = math.hypot(self.mu, self.output_mu), math.hypot(2.0 * self.mu, self.output_mu)
        corners = [gaussian_delta(mu, left) for mu in (self.output_mu, one, one, two)]
        group = math.exp(min(self.shift, 700.0)) * gaussian_delta(2.0 * one, left)
        return min(1.0, math.fsum(corners), group)
