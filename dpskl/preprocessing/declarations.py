"""What a person declares of one column of a table: a range, a list of values, or that it is left out."""

from __future__ import annotations

import numbers
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import KW_ONLY, dataclass, fields
from math import isfinite
from typing import Any

import numpy as np

from dpskl.preprocessing.blocks import Block, OneHot, Plain
from dpskl.preprocessing.knots import MISSING, SPACINGS, declared_axes
from dpskl.preprocessing.public import parameter_error

__all__ = [
    "Categories",
    "Declaration",
    "Drop",
    "Numeric",
    "aliases",
    "as_declaration",
    "from_json_object",
    "kind_of",
    "to_json_object",
]


@dataclass(frozen=True)
class Numeric:
    """A column of numbers between declared bounds.

    Parameters
    ----------
    low, high : float
        Bounds, ``low < high``, known without looking at the records. Values beyond them are moved to them.
    spacing : {"linear", "log"}, default="linear"
        The axis on which knots are equally spaced, as in :class:`PublicSplineTransformer`; ``"log"`` suits counts and
        amounts.
    n_knots : int, "auto" or None, default="auto"
        How many hat functions the column becomes; ``"auto"`` is 9, or what :meth:`Schema.with_knots` puts in its place.
        ``None`` is one plain column that runs from -1 at ``low`` to 1 at ``high``: a line, at the same norm.
    knots : sequence of float or None, default=None
        Knots in the units of the column, none beyond the bounds, instead of equally spaced ones.
    missing : {"indicator", "zeros", "error"}, default="indicator"
        Whether missing values have an entry of their own, are all zeros, or are refused. The weight of an entry that
        no record fills is noise alone, so ``"error"`` is for columns that cannot have gaps.

    Examples
    --------
    >>> from dpskl.preprocessing import Numeric
    >>> Numeric(0, 10**6, spacing="log", missing="error")
    Numeric(0.0, 1000000.0, spacing='log', missing='error')
    """

    low: float
    high: float
    _: KW_ONLY
    spacing: str = "linear"
    n_knots: Any = "auto"
    knots: Any = None
    missing: str = "indicator"

    def __post_init__(self):
        for name in ("low", "high"):
            _set(self, name, _number(name, getattr(self, name)))
        if self.knots is not None:
            if isinstance(self.knots, str) or not isinstance(self.knots, Iterable):
                raise parameter_error("knots", self.knots, "a list of at least two numbers")
            _set(self, "knots", tuple(_number("knots", knot) for knot in self.knots))
            if self.n_knots is None:
                raise ValueError("n_knots=None asks for a plain column, which has no knots: leave one of the two out")
        if isinstance(self.n_knots, np.integer):
            _set(self, "n_knots", int(self.n_knots))
        is_word = isinstance(self.n_knots, str) and self.n_knots == "auto"
        if not (self.n_knots is None or is_word or (type(self.n_knots) is int and self.n_knots >= 2)):
            raise parameter_error("n_knots", self.n_knots, "'auto', a whole number of at least 2, or None")
        _check_word("spacing", self.spacing, SPACINGS)
        _check_word("missing", self.missing, MISSING)

    def __repr__(self):
        return _call(self, (self.low, self.high))

    def block(self, name: str) -> Block:
        """Return what the column becomes; raise ValueError with its name where the declaration is unusable."""
        plain = self.n_knots is None
        knots = None if self.knots is None else [np.array(self.knots)]
        # lists, for a name that is not a word would be taken for no name
        given = ([self.low], [self.high], 2 if plain else self.n_knots, [self.spacing], knots, [self.missing])
        (axis,) = declared_axes(*given, 1, [name])
        return Plain(axis) if plain else axis

    def words(self) -> str:
        """Say in one line what is declared."""
        knots = f"n_knots={self.n_knots!r}" if self.knots is None else f"{len(self.knots)} own knots"
        return f"{self.low:g} to {self.high:g}, {self.spacing}, {knots}, missing: {self.missing}"


@dataclass(frozen=True)
class Categories:
    """A column of values from a declared list.

    Parameters
    ----------
    values : sequence of (str, number or bool)
        All values that have an entry of their own, from the questionnaire or the law and not from the records.
    other : bool, default=True
        Whether values that are not in the list have an entry, or are all zeros.
    missing : {"indicator", "zeros", "error"}, default="indicator"
        Whether missing values have an entry of their own, are all zeros, or are refused.

    Notes
    -----
    Values are the same that a file would write alike: the number 1 is met by ``1``, ``1.0``, ``"1"`` and ``True``. For
    a single record with a gap or a word turns all numbers of a column that is read from a file into numbers with a
    point, or into words, and it must not change the rows of others. Two values that are alike are refused. A value
    ``"other"`` or ``"missing"`` that is declared *is* the entry of unknown or missing values.

    Examples
    --------
    >>> from dpskl.preprocessing import Categories
    >>> Categories(["north", "south"], other=False)
    Categories(['north', 'south'], other=False)
    """

    values: Any
    _: KW_ONLY
    other: bool = True
    missing: str = "indicator"

    def __post_init__(self):
        if isinstance(self.values, (str, bytes, Mapping)) or not isinstance(self.values, Iterable):
            raise parameter_error("values", self.values, "a list of words, numbers or bools")
        given = self.values.tolist() if isinstance(self.values, np.ndarray) else self.values
        values = tuple(map(_category, given))
        _set(self, "values", values)
        if not values:
            raise parameter_error("values", given, "a list of at least one value; 'drop' leaves the column out")
        by_label, by_value = Counter(map(str, values)), Counter(values)
        alike = [value for value in values if by_label[str(value)] > 1 or by_value[value] > 1]
        if alike:
            raise ValueError(f"values has {alike[:4]}, which are equal or written alike: leave all but one out")
        if not isinstance(self.other, (bool, np.bool_)):
            raise parameter_error("other", self.other, "True or False")
        _set(self, "other", bool(self.other))
        _check_word("missing", self.missing, MISSING)

    def __repr__(self):
        return _call(self, (list(self.values),))

    def block(self, name: str) -> Block:
        """Return what the column becomes."""
        labels = [str(value) for value in self.values]
        places = []
        for label, wanted in (("other", self.other), ("missing", self.missing == "indicator")):
            if wanted and label not in labels:
                labels.append(label)
            places.append(labels.index(label) if wanted else -1)
        return OneHot(self.values, tuple(labels), *places)

    def words(self) -> str:
        """Say in one line what is declared."""
        shown = ", ".join(map(repr, self.values[:6])) + (f", ... {len(self.values)} in all" * (len(self.values) > 6))
        return f"{shown}, other: {'indicator' if self.other else 'zeros'}, missing: {self.missing}"


@dataclass(frozen=True)
class Drop:
    """A column that may be there and is not used.

    Examples
    --------
    >>> from dpskl.preprocessing import Drop
    >>> Drop()
    Drop()
    """

    def words(self) -> str:
        """Say in one line what is declared."""
        return "not used"


Declaration = Numeric | Categories | Drop
_KINDS: dict[str, Any] = {"numeric": Numeric, "categories": Categories, "drop": Drop}


def kind_of(declaration: Declaration) -> str:
    """Return ``"numeric"``, ``"categories"`` or ``"drop"``."""
    return next(kind for kind, cls in _KINDS.items() if type(declaration) is cls)


def as_declaration(given: Any) -> Declaration:
    """Return the declaration that a person wrote in plain Python.

    Parameters
    ----------
    given : Numeric, Categories, Drop, (low, high), list of values, or "drop"
        A tuple of two numbers is a range, and any list is one of values.

    Raises
    ------
    ValueError
        If it is none of these, or unusable.
    """
    if type(given) in _KINDS.values():
        declaration: Declaration = given
        return declaration
    if isinstance(given, str) and given == "drop":
        return Drop()
    if isinstance(given, tuple):
        if len(given) == 2 and all(_is_number(value) for value in given):
            return Numeric(*given)
        raise ValueError(f"{given!r} is no range (low, high) of two numbers; write a list for values")
    if isinstance(given, (list, np.ndarray)):
        return Categories(given)
    raise ValueError(f"{given!r}, but it must be a range (low, high), a list of values, 'drop', or a declaration")


def aliases(values: Sequence[Any]) -> dict[Any, int]:
    """Return the place of each declared value, and of what a file would write in the same way.

    A value itself goes before what looks like another one.
    """
    places = {value: place for place, value in enumerate(values)}
    for place, value in enumerate(values):
        for other in _alike(value):
            places.setdefault(other, place)
    return places


def _alike(value: Any) -> list[Any]:
    if isinstance(value, str):
        return [read for read in _numbers_in(value) if repr(read) == value]  # "07" is no number
    is_whole = not isinstance(value, bool) and abs(value) < 2**53 and value == int(value)
    return [str(value), *([str(int(value)), str(float(value))] if is_whole else [])]


def _numbers_in(word: str) -> Iterator[Any]:
    yield from (value for value in (True, False) if str(value) == word)
    for kind in (int, float):
        with suppress(ValueError):
            yield kind(word)


def to_json_object(declaration: Declaration) -> dict[str, Any]:
    """Return a dictionary of what JSON knows."""
    parts = {field.name: getattr(declaration, field.name) for field in fields(declaration)}
    return {"kind": kind_of(declaration)} | {
        name: list(part) if isinstance(part, tuple) else part for name, part in parts.items()
    }


def from_json_object(written: Any) -> Declaration:
    """Return the declaration that :func:`to_json_object` wrote.

    Raises
    ------
    ValueError
        If it has other parts, or is unusable.
    """
    parts = dict(written)
    kind = parts.pop("kind", None)
    cls = _KINDS.get(kind) if isinstance(kind, str) else None
    if cls is None:
        raise ValueError(f"kind={kind!r}, but it must be one of {', '.join(map(repr, _KINDS))}")
    known = [field.name for field in fields(cls)]
    if set(parts) != set(known):
        raise ValueError(f"it has the parts {sorted(parts)}, but {kind!r} has {sorted(known)}")
    declaration: Declaration = cls(**parts)
    return declaration


def _set(frozen: Any, name: str, value: Any) -> None:
    object.__setattr__(frozen, name, value)


def _check_word(name: str, given: Any, allowed: Sequence[str]) -> None:
    if not isinstance(given, str) or given not in allowed:
        raise parameter_error(name, given, "one of " + ", ".join(map(repr, allowed)))


def _is_number(value: Any) -> bool:
    return isinstance(value, numbers.Real) and not isinstance(value, (bool, np.bool_))


def _number(name: str, value: Any) -> float:
    if not _is_number(value) or not abs(value) < float("inf"):
        raise parameter_error(name, value, "a finite number")
    return float(value) + 0.0  # no negative zero


def _category(value: Any) -> Any:
    value = value.item() if isinstance(value, np.generic) else value
    kinds = (bool, int, float, str)
    if type(value) not in kinds or (isinstance(value, float) and not isfinite(value)):
        raise ValueError(
            f"values has {value!r}, but each must be a word, a finite number or a bool; missing= says what becomes of "
            "missing ones"
        )
    return value


def _call(declaration: Any, places: tuple[Any, ...]) -> str:
    """Return how a declaration is written, without what is as by default."""
    shown = [repr(value) for value in places]
    for field in fields(declaration):
        value = getattr(declaration, field.name)
        if field.kw_only and value != field.default:
            shown.append(f"{field.name}={list(value) if isinstance(value, tuple) else value!r}")
    return f"{type(declaration).__name__}({', '.join(shown)})"
