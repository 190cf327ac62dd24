"""Any mechanism, asked about a fresh Poisson sample of the records."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from dpskl.accounting import Cost, GaussianCost, SampledGaussianCost, SampledPureCost
from dpskl.mechanisms.base import Mechanism
from dpskl.records.trainable import Trainable

__all__ = ["PoissonSample"]


@dataclass(frozen=True)
class PoissonSample(Mechanism):
    """Release the answer of ``mechanism`` on a sample into which every record enters with probability ``rate``.

    Parameters
    ----------
    mechanism : Mechanism
        A Gaussian or a pure one, with the sensitivity that it has on all records; add_remove neighbours.
    rate : float
        In (0, 1].

    Notes
    -----
    One more record changes the answer only where it is drawn: the pair of laws is ``(1 - rate) Q + rate P`` against
    ``Q``, in both directions (Poisson subsampling; Zhu, Dong & Wang 2022). A Gaussian mechanism gives the sampled
    Gaussian pair; every epsilon-DP mechanism is dominated by sampled randomised response, with the pure bound
    ``log(1 + rate (e^epsilon - 1))``. Preconditions: records enter independently; each question draws its own sample,
    since two answers from one sample cost more than the sum of their sampled costs; and the size of a sample is never
    shown. Sums are to be divided by the public ``rate * n``. Under replace_one the pair is another one, and this bound
    does not hold.
    """

    mechanism: Mechanism
    rate: float

    def __post_init__(self) -> None:
        if not 0 < self.rate <= 1:
            raise ValueError(f"rate={self.rate!r} must lie in (0, 1]")
        neighbours = getattr(self.mechanism, "neighbours", "add_remove")
        if neighbours != "add_remove":
            raise ValueError(f"neighbours={neighbours!r} has no proved bound for Poisson samples; use 'add_remove'")

    theorem = "Poisson subsampling, a fresh sample for each question (Zhu, Dong & Wang 2022)"

    @property
    def name(self) -> str:  # type: ignore[override]
        return f"{self.mechanism.name}, on a Poisson sample of rate {self.rate:g}"

    @property
    def data_shape(self) -> tuple[int, int] | None:
        return self.mechanism.data_shape

    @property
    def sensitivity(self) -> float:
        return self.mechanism.sensitivity

    @property
    def noise_scale(self) -> float:
        return self.mechanism.noise_scale

    @property
    def cost(self) -> Cost:
        inner = self.mechanism.cost
        if isinstance(inner, GaussianCost) and inner.shift == 0:
            return SampledGaussianCost(self.rate, 1 / inner.mu)
        return SampledPureCost(self.rate, inner.pure_epsilon)

    def release(self, problem: Trainable, *arguments: Any) -> Any:
        """Return the answer on a fresh sample; ``arguments`` are those of the mechanism, the noise last."""
        noise = arguments[-1]
        self.mechanism.prepare(problem, *arguments[:-1])
        rows = noise.poisson_sample(problem.n_samples, self.rate)
        return self.mechanism.release(problem.batch(rows), *arguments)
