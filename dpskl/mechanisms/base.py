"""What every mechanism tells about itself: a frozen value that knows its cost before it sees any data."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from dpskl.accounting import Cost, cost_from_dict
from dpskl.accounting.words import at_least, at_most

__all__ = ["Mechanism", "ReleasePart"]


@dataclass(frozen=True)
class ReleasePart:
    """One line of a privacy guarantee: what was released, how often, and why that is private.

    Attributes
    ----------
    mechanism : str
        Name of the mechanism.
    count : int
        How many times it is used in the fit.
    sensitivity : float
        Largest change between neighbours of the quantity under the noise.
    noise : float
        Scale of the noise: standard deviation, or the scale of a Gamma-norm or Laplace law.
    cost : Cost
        Cost of one use.
    theorem : str
        Why ``cost`` holds, with its source.
    """

    mechanism: str
    count: int
    sensitivity: float
    noise: float
    cost: Cost
    theorem: str

    def to_dict(self) -> dict[str, Any]:
        """Return a dictionary that ``json.dumps`` takes."""
        return {**asdict(self), "cost": self.cost.to_dict()}

    @classmethod
    def from_dict(cls, record: Mapping[str, Any]) -> ReleasePart:
        """Return the part that ``to_dict`` described."""
        return cls(**{**record, "cost": cost_from_dict(record["cost"])})

    def in_numbers(self) -> str:
        """Return sensitivity, noise and cost, each rounded to the side that promises less."""
        sensitivity, noise = at_most(self.sensitivity), at_least(self.noise)
        return f"sensitivity {sensitivity}, noise of scale {noise}, cost {self.cost}"


class Mechanism(ABC):
    """A noisy question about the data, calibrated and not yet asked.

    Attributes
    ----------
    name, theorem : str
        For the guarantee: what it is called and why its cost holds.
    """

    name: str
    theorem: str

    @property
    def data_shape(self) -> tuple[int, int] | None:
        """The (n_samples, n_features) that the sensitivity is for; None where it holds for any."""
        shape = getattr(self, "n_samples", None), getattr(self, "n_features", None)
        return None if None in shape else shape  # type: ignore[return-value]

    @property
    @abstractmethod
    def sensitivity(self) -> float:
        """Largest change between neighbours of the quantity under the noise."""

    @property
    @abstractmethod
    def noise_scale(self) -> float:
        """Scale of the noise."""

    @property
    @abstractmethod
    def cost(self) -> Cost:
        """Cost of one use."""

    def prepare(self, *arguments: Any) -> None:  # noqa: B027
        """Find what a sample can use and is found once for all records; the data come first, there is no noise."""

    @abstractmethod
    def release(self, *arguments: Any) -> Any:
        """Return the noisy answer; the data come first, the source of noise last."""

    def describe(self, count: int) -> ReleasePart:
        """Return the line of the guarantee for ``count`` uses."""
        return ReleasePart(self.name, count, self.sensitivity, self.noise_scale, self.cost, self.theorem)
