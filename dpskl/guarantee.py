"""What a fitted estimator promises, in numbers and in words."""

from __future__ import annotations

from dataclasses import dataclass
from math import exp
from typing import Any

from dpskl.accounting import Cost
from dpskl.mechanisms.base import ReleasePart

__all__ = ["PrivacyGuarantee"]

_RELATION = {
    "add_remove": "one record present or absent",
    "replace_one": "one record exchanged for another",
}


def _factor(epsilon: float) -> str:
    return f"{exp(epsilon):.3g}" if epsilon < 700 else "e^700"


@dataclass(frozen=True)
class PrivacyGuarantee:
    """The privacy guarantee of one whole fitted model, released once.

    Attributes
    ----------
    epsilon, delta : float
        For any two data sets that are neighbours and any set of outcomes ``S``:
        ``P(S) <= exp(epsilon) P'(S) + delta``.
    neighbours : {"add_remove", "replace_one"}
        Which data sets count as neighbours.
    parts : tuple of ReleasePart
        Every noisy release of the fit with its sensitivity, noise, cost and theorem.
    public : tuple of str
        What the guarantee takes to be known to everybody.
    cost : Cost
        The composition of the parts, from which ``epsilon_at`` is computed.
    is_seeded : bool
        Whether the noise came from a seed. Then the guarantee holds against nobody who can guess the seed.
    caveats : tuple of str
        What the guarantee does not cover.
    """

    epsilon: float
    delta: float
    neighbours: str
    parts: tuple[ReleasePart, ...]
    public: tuple[str, ...]
    cost: Cost
    is_seeded: bool = False
    caveats: tuple[str, ...] = (
        "floating-point noise is hardened (OS entropy, rounding to a grid) but not proved safe; no promise on timing",
    )

    def epsilon_at(self, delta: float) -> float:
        """Return the smallest proved epsilon at another delta, in [0, 1)."""
        return self.cost.epsilon(delta)

    def to_dict(self) -> dict[str, Any]:
        """Return a dictionary that ``json.dumps`` takes."""
        return {
            "epsilon": self.epsilon,
            "delta": self.delta,
            "neighbours": self.neighbours,
            "parts": [part.to_dict() for part in self.parts],
            "public": list(self.public),
            "cost": self.cost.to_dict(),
            "is_seeded": self.is_seeded,
            "caveats": list(self.caveats),
        }

    def __str__(self) -> str:
        lines = ["SEEDED NOISE, FOR TESTS ONLY: who knows the seed can remove the noise"] if self.is_seeded else []
        lines += [
            f"({self.epsilon:.6g}, {self.delta:.6g})-differential privacy for the whole model, released once",
            f"  in words     no event is more than {_factor(self.epsilon)} times as likely, plus {self.delta:.6g}, "
            "on one of two neighbouring data sets as on the other",
            f"  neighbours   {self.neighbours}: {_RELATION[self.neighbours]}",
        ]
        for part in self.parts:
            lines.append(f"  {part.count} x {part.mechanism}")
            lines.append(f"      sensitivity {part.sensitivity:.6g}, noise of scale {part.noise:.6g}, cost {part.cost}")
            lines.append(f"      {part.theorem}")
        lines.append("  public       " + "; ".join(self.public))
        lines.extend("  not covered  " + caveat for caveat in self.caveats)
        return "\n".join(lines)

    __repr__ = __str__
