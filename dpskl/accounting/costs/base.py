"""The contract of a privacy cost, and its JSON form."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any, ClassVar

from dpskl.accounting._numeric import check_range, smallest_true
from dpskl.accounting.words import at_least, at_most

_KINDS: dict[str, type[Cost]] = {}
# Scales of noise: of all other parameters more is dearer.
_LESS_IS_DEARER = {"noise_multiplier", "threshold_scale", "query_scale"}


class Cost(ABC):
    """What one release, or a composition of releases, costs in privacy.

    A cost is a frozen value: it can be hashed, compared, used as a key of a cache and written as JSON. It
    bounds the larger of both directions (record present or absent) of every pair of neighbouring data sets.

    Attributes
    ----------
    kind : str
        Name of the class of costs in the JSON form.
    has_rdp : bool
        Whether a finite curve of Renyi divergences can exist.
    has_pair : bool
        Whether a dominating pair of laws is known, so that privacy loss distributions compose it tightly.
    """

    kind: ClassVar[str]
    has_rdp: ClassVar[bool] = True
    has_pair: ClassVar[bool] = False

    def __init_subclass__(cls, **keywords: Any) -> None:
        super().__init_subclass__(**keywords)
        if "kind" in cls.__dict__:
            _KINDS[cls.kind] = cls

    def delta(self, epsilon: float) -> float:
        """Smallest delta certified at ``epsilon``.

        Parameters
        ----------
        epsilon : float
            Any real number, ``inf`` included. A negative one is answered by the duality of the directions.

        Returns
        -------
        float
            A valid delta, in [0, 1].
        """
        epsilon = float(epsilon)
        if math.isnan(epsilon):
            raise ValueError("epsilon must be a number, got nan.")
        if epsilon < 0.0:
            return min(1.0, -math.expm1(epsilon) + math.exp(epsilon) * self.delta(-epsilon))
        return min(1.0, max(0.0, self._profile(epsilon)))

    def epsilon(self, delta: float) -> float:
        """Smallest epsilon certified at ``delta``.

        Parameters
        ----------
        delta : float
            In [0, 1]; 0 asks for a pure guarantee.

        Returns
        -------
        float
            A valid epsilon, at least 0; ``inf`` where there is none.
        """
        delta = check_range("delta", delta, 0.0, 1.0)
        return 0.0 if delta == 1.0 else self._smallest_epsilon(delta)

    @abstractmethod
    def rdp(self, alpha: float) -> float:
        """Renyi divergence of order ``alpha``, the larger of both directions.

        Parameters
        ----------
        alpha : float
            Order, above 1; ``inf`` asks for the pure guarantee.

        Returns
        -------
        float
            A valid bound; ``inf`` where none exists.
        """

    @property
    def pure_epsilon(self) -> float:
        """Pure guarantee (delta = 0), ``inf`` where there is none."""
        return self.rdp(math.inf)

    @abstractmethod
    def _profile(self, epsilon: float) -> float:
        """Delta at an epsilon of at least 0."""

    def _smallest_epsilon(self, delta: float) -> float:
        """Epsilon at a delta below 1: a bisection of the profile, for costs without an explicit inverse."""
        pure = self.pure_epsilon
        if delta == 0.0 or self._profile(0.0) <= delta:
            return pure if delta == 0.0 else 0.0
        high = 1.0
        while high < pure and self._profile(high) > delta:
            high *= 2.0
        if high >= pure:
            high = pure
        if math.isinf(high):
            return math.inf
        return smallest_true(lambda epsilon: self._profile(epsilon) <= delta, 0.0, high)

    def to_dict(self) -> dict[str, Any]:
        """JSON form: the kind and the fields, infinities written as strings.

        Returns
        -------
        dict
            Strings, numbers, lists and dictionaries only; :func:`cost_from_dict` restores the cost.
        """
        return {"kind": self.kind, **{name: _encode(value) for name, value in self._parameters().items()}}

    @classmethod
    def _from_values(cls, values: Mapping[str, Any]) -> Cost:
        return cls(**{name: _decode(value) for name, value in values.items()})

    def _parameters(self) -> dict[str, Any]:
        """Constructor parameters; ``stated_epsilon`` is called ``epsilon`` there, which is a method here."""
        assert is_dataclass(self)
        return {field.name.removeprefix("stated_"): getattr(self, field.name) for field in fields(self)}

    def __repr__(self) -> str:
        listed = ", ".join(f"{name}={value!r}" for name, value in self._parameters().items())
        return f"{type(self).__name__}({listed})"

    def __str__(self) -> str:
        listed = ", ".join(f"{name}={_safe_words(name, value)}" for name, value in self._parameters().items())
        return f"{type(self).__name__}({listed})"


def _safe_words(name: str, value: Any) -> str:
    """Return a parameter in few digits, rounded so that the cost that is read is not below the one that is meant."""
    if not isinstance(value, float):
        return str(value)
    return at_least(value) if name in _LESS_IS_DEARER else at_most(value)


def set_fields(cost: Cost, **values: object) -> None:
    """Write checked values into a frozen dataclass, from its constructor only."""
    for name, value in values.items():
        object.__setattr__(cost, name, value)


def _encode(value: Any) -> Any:
    if isinstance(value, tuple):
        return [_encode(item) for item in value]
    return repr(value) if isinstance(value, float) and math.isinf(value) else value


def _decode(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return tuple(_decode(item) for item in value)
    return float(value) if value in ("inf", "-inf") else value  # other strings are names


def cost_from_dict(record: Mapping[str, Any]) -> Cost:
    """Restore a cost from its JSON form.

    Parameters
    ----------
    record : mapping
        What :meth:`Cost.to_dict` returned.

    Returns
    -------
    Cost
        An equal cost.

    Raises
    ------
    ValueError
        If the kind is unknown or a field is missing, unknown or out of range.

    Examples
    --------
    >>> from dpskl.accounting import PureCost
    >>> cost_from_dict(PureCost(0.5).to_dict())
    PureCost(epsilon=0.5)
    """
    values = dict(record)
    kind = values.pop("kind", None)
    if kind not in _KINDS:
        known = ", ".join(sorted(_KINDS))
        raise ValueError(f"Unknown kind of privacy cost {kind!r}: it must be one of {known}.")
    try:
        return _KINDS[kind]._from_values(values)
    except (TypeError, KeyError) as error:
        raise ValueError(f"The fields {sorted(values)} do not describe a cost of kind {kind!r}.") from error
