"""What a plan is made of: sizes that are public, charges to come, and what they do not cover."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any, NamedTuple

from sklearn.frozen import FrozenEstimator

from dpskl.accounting import Cost
from dpskl.budget import PrivacyAccountant
from dpskl.mechanisms.base import ReleasePart

__all__ = ["Planned", "PlannedFit", "Size", "components"]


class Size(NamedTuple):
    """Public size of the data of a fit."""

    n_samples: int
    n_features: int
    n_classes: int | None


@dataclass(frozen=True)
class PlannedFit:
    """One charge to come, and the releases that it is for."""

    name: str
    n_samples: int
    cost: Cost
    delta: float
    neighbours: str
    accountant: PrivacyAccountant | None
    parts: tuple[ReleasePart, ...] = ()


@dataclass(frozen=True)
class Planned:
    """The charges of an object in their order, and sentences on what their sum leaves out.

    Attributes
    ----------
    fits : tuple of PlannedFit
    not_covered : tuple of str
        What reads records and is charged to nobody.
    moved : tuple of str
        What moves other records into or out of a fit when one changes: then the sum does not bound the cost.
    seeded : tuple of str
        What seeds the noise: then the sum holds against nobody who knows the seed.
    conditional : tuple of str
        What a cost rests on besides theorems: then the sum is not proved.
    """

    fits: tuple[PlannedFit, ...] = ()
    not_covered: tuple[str, ...] = ()
    moved: tuple[str, ...] = ()
    seeded: tuple[str, ...] = ()
    conditional: tuple[str, ...] = ()

    def __add__(self, other: Planned) -> Planned:
        return Planned.together([self, other])

    def times(self, count: int) -> Planned:
        return replace(self, fits=self.fits * count)

    @staticmethod
    def together(plans: Iterable[Planned]) -> Planned:
        """Return all fits in their order, and every sentence once."""
        plans = list(plans)

        def once(sentences: Iterable[tuple[str, ...]]) -> tuple[str, ...]:
            return tuple(dict.fromkeys(chain.from_iterable(sentences)))

        return Planned(
            tuple(chain.from_iterable(plan.fits for plan in plans)),
            once(plan.not_covered for plan in plans),
            once(plan.moved for plan in plans),
            once(plan.seeded for plan in plans),
            once(plan.conditional for plan in plans),
        )


def components(thing: Any) -> Iterator[Any]:
    """Yield an estimator and all that its parameters hold, at any depth; what is frozen is not fitted, and left out."""
    if isinstance(thing, type | FrozenEstimator):
        return
    if isinstance(thing, dict):
        parts = list(thing.values())
    elif isinstance(thing, list | tuple):
        parts = list(thing)
    else:
        yield thing
        parts = list(thing.get_params(deep=False).values()) if hasattr(thing, "get_params") else []
    for part in parts:
        yield from components(part)
