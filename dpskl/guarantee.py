"""What a fitted estimator promises, in numbers and in words."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from math import exp, inf
from typing import Any

from dpskl.accounting import Cost, cost_from_dict, group_epsilon
from dpskl.accounting.words import at_most
from dpskl.mechanisms.base import ReleasePart

__all__ = ["FitFacts", "PrivacyGuarantee"]

_RELATION = {
    "add_remove": "one record present or absent",
    "replace_one": "one record exchanged for another",
}


_CUT_OF_SUPPORT = (
    "delta = 0 is that of the ideal noise: numbers drawn from 64-bit words end where these do, which shows with a "
    "probability below 1e-18 for each number"
)
READ_CLASSES = "classes (read from y: which labels occur becomes public)"


def _factor(epsilon: float) -> str:
    return at_most(exp(epsilon), digits=3) if epsilon < 700 else f"e^{at_most(epsilon)}"


@dataclass(frozen=True)
class FitFacts:
    """What was public about a fit, for who receives its model without its maker.

    Attributes
    ----------
    estimator, solver : str or None
    n_samples : int or None
        The public number of records: that of the rows, or the declared bound above it.
    n_features : int or None
    data_norm : float or None
        Bound on the rows.
    classes : tuple or None
        The labels.
    time : str or None
        When the fit was charged, UTC.
    version : str or None
        Of dpskl.
    """

    estimator: str | None = None
    solver: str | None = None
    n_samples: int | None = None
    n_features: int | None = None
    data_norm: float | None = None
    classes: tuple[Any, ...] | None = None
    time: str | None = None
    version: str | None = None


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
    conditions : tuple of str
        What it rests on besides theorems, such as samples that a chain does not draw exactly; mostly empty.
    fit : FitFacts
        What was public about the fit.
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
    conditions: tuple[str, ...] = ()
    fit: FitFacts = FitFacts()

    @classmethod
    def caveats_at(cls, delta: float) -> tuple[str, ...]:
        """Return what no guarantee of this delta covers."""
        return cls.caveats if delta > 0 else (*cls.caveats, _CUT_OF_SUPPORT)

    @property
    def holds(self) -> bool:
        """Whether (epsilon, delta) is proved as it stands: the noise is not seeded and nothing is conditional."""
        return not self.is_seeded and not self.conditions

    def epsilon_at(self, delta: float) -> float:
        """Return the smallest proved epsilon at another delta, in [0, 1)."""
        return self.cost.epsilon(delta)

    def for_group(self, k: int, delta: float | None = None) -> float:
        """Return the epsilon that protects somebody with ``k`` records, at the delta of the guarantee or another.

        It grows faster than ``k``: with Gaussian noise at delta = 1e-6 an epsilon of 1 becomes 5.9 at ``k = 5`` and 33
        at 20. See :func:`~dpskl.accounting.group_epsilon`.

        Parameters
        ----------
        k : int
            At least 1. With ``neighbours="replace_one"``, all ``k`` exchanged.
        delta : float, optional
            In [0, 1).

        Returns
        -------
        float
            ``inf`` where nothing is proved.
        """
        delta = self.delta if delta is None else delta
        one = self.epsilon if k == 1 and delta >= self.delta else inf
        return min(one, group_epsilon(self.cost, k, delta))

    def to_dict(self) -> dict[str, Any]:
        """Return a dictionary that ``json.dumps`` takes, and :meth:`from_dict` restores."""
        return {
            "epsilon": self.epsilon,
            "delta": self.delta,
            "holds": self.holds,
            "conditions": list(self.conditions),
            "neighbours": self.neighbours,
            "fit": {**asdict(self.fit), "classes": None if self.fit.classes is None else list(self.fit.classes)},
            "parts": [part.to_dict() for part in self.parts],
            "public": list(self.public),
            "cost": self.cost.to_dict(),
            "is_seeded": self.is_seeded,
            "caveats": list(self.caveats),
        }

    @classmethod
    def from_dict(cls, record: Mapping[str, Any]) -> PrivacyGuarantee:
        """Return the guarantee that ``to_dict`` described."""
        classes = record["fit"]["classes"]
        return cls(
            epsilon=record["epsilon"],
            delta=record["delta"],
            neighbours=record["neighbours"],
            parts=tuple(ReleasePart.from_dict(part) for part in record["parts"]),
            public=tuple(record["public"]),
            cost=cost_from_dict(record["cost"]),
            is_seeded=record["is_seeded"],
            caveats=tuple(record["caveats"]),
            conditions=tuple(record["conditions"]),
            fit=FitFacts(**{**record["fit"], "classes": None if classes is None else tuple(classes)}),
        )

    def _head(self) -> list[str]:
        claim = (
            f"({at_most(self.epsilon)}, {at_most(self.delta)})-differential privacy for the whole model, released once"
        )
        if self.conditions:
            claim = f"NOT PROVED, {'; '.join(self.conditions)}: {claim}"
        seeded = ["SEEDED NOISE, FOR TESTS ONLY: who knows the seed can remove the noise"] if self.is_seeded else []
        return [*seeded, claim]

    def __str__(self) -> str:
        delta = at_most(self.delta)
        lines = self._head()
        lines += [
            f"  in words     no event is more than {_factor(self.epsilon)} times as likely, plus {delta}, on one"
            " of two neighbouring data sets as on the other",
            f"  neighbours   {self.neighbours}: {_RELATION[self.neighbours]}",
        ]
        for part in self.parts:
            lines += [f"  {part.count} x {part.mechanism}", f"      {part.in_numbers()}", f"      {part.theorem}"]
        lines.append("  public       " + "; ".join(self.public))
        lines.extend("  not covered  " + caveat for caveat in self.caveats)
        return "\n".join(lines)

    __repr__ = __str__
