"""Where the knots of a column are: declared, or equally spaced on its axis; and how many of them pay."""

from __future__ import annotations

import numbers
from typing import Any, NamedTuple

import numpy as np

from dpskl.accounting import gaussian_mu
from dpskl.mechanisms.sensitivity import NEIGHBOURS, contributions
from dpskl.preprocessing.named import by_column, is_named
from dpskl.preprocessing.public import LARGEST, check_bounds, parameter_error, refuse_names

__all__ = ["MISSING", "SPACINGS", "Axis", "declared_axes", "from_axis", "knots_for", "spaced", "to_axis"]

Array = np.ndarray[Any, Any]

SPACINGS = ("linear", "log")
MISSING = ("error", "zeros", "indicator")
# (knots, smallest mu n / D that pays for them), measured on seven tables at 39 budgets; 17 knots gained nothing.
_LADDER = ((9, 10.0), (5, 2.0))
_FEWEST = 2  # a line
_MANY = _LADDER[0][0]


def knots_for(n_samples, n_columns, epsilon, delta, *, neighbours="add_remove", n_other=0):
    """Return how many knots a column can have before noise costs more than the finer shape gains.

    Parameters
    ----------
    n_samples : int
        Public number of records.
    n_columns : int
        How many numeric columns get knots.
    epsilon : float
        Budget of the fit, positive; ``inf`` is no noise.
    delta : float
        Budget of the fit, in (0, 1), ends excluded.
    neighbours : {"add_remove", "replace_one"}, default="add_remove"
        Which data sets must be hard to tell apart.
    n_other : int, default=0
        How many other columns the classifier gets: of one-hot encoded categories, of missing indicators.

    Returns
    -------
    int
        9, 5, or 2. Two knots make a line; ``PublicScaler(feature_range=(-1, 1))`` makes the same lines of half as many
        weights.

    Raises
    ------
    ValueError
        If a number is outside its range.

    Notes
    -----
    Let ``q = mu n / D``, halved for ``"replace_one"``, where ``mu`` is the Gaussian privacy parameter of the budget and
    ``D`` the number of weights with the intercept. 9 knots; 5 where ``q`` with 9 is below 10; 2 where ``q`` with 5 is
    below 2. The thresholds were measured and are no theorem. All that enters is public, so the choice costs nothing.

    Examples
    --------
    >>> from dpskl.preprocessing import knots_for
    >>> knots_for(30_000, 6, epsilon=1.0, delta=1e-6)
    9
    >>> [knots_for(2_000, 6, epsilon, 1e-6) for epsilon in (0.1, 1.0, 4.0)]
    [2, 5, 9]
    """
    for name, value, least in (("n_samples", n_samples, 1), ("n_columns", n_columns, 1), ("n_other", n_other, 0)):
        if not _is_whole(value) or value < least:
            raise parameter_error(name, value, f"a whole number of at least {least}")
    if not isinstance(neighbours, str) or neighbours not in NEIGHBOURS:
        raise parameter_error("neighbours", neighbours, "one of " + ", ".join(map(repr, NEIGHBOURS)))
    total = gaussian_mu(epsilon, delta) * int(n_samples) / contributions(neighbours)
    for n_knots, least_signal in _LADDER:
        if total / (int(n_columns) * n_knots + int(n_other) + 1) >= least_signal:
            return n_knots
    return _FEWEST


class Axis(NamedTuple):
    """The knots of one column, and what becomes of missing values.

    ``knots`` are in the units of the column, ``at`` are their places on the axis where pieces are straight lines.
    """

    name: str
    spacing: str
    missing: str
    knots: Array
    at: Array

    @property
    def width(self) -> int:
        """How many columns of the output are made of this one."""
        return len(self.knots) + (self.missing == "indicator")

    @property
    def labels(self) -> list[str]:
        """One for each column of the output: knots in few digits, or in all where few do not tell them apart."""
        labels = [repr(float(f"{knot:.6g}")) for knot in self.knots]
        if len(set(labels)) < len(labels):
            labels = [repr(float(knot)) for knot in self.knots]
        return labels + ["missing"] * (self.missing == "indicator")

    @property
    def n_entries(self) -> int:
        """How many columns of the output a value can fill."""
        return 2

    def output_names(self, name: str) -> list[str]:
        """Return names such as ``"age[38.0]"`` of the columns of the output."""
        return [f"{name}[{label}]" for label in self.labels]

    def entries(self, values: Array) -> tuple[Array, Array]:
        """Return two weights for each value, and the columns of the block they stand in.

        *The bound holds in floats.* Let ``a`` be the weight in [0, 1] of the lower knot; the other one is
        ``b = fl(1 - a)``, and that is exactly ``1 - a``. Differences of floats within a factor of 2 are floats
        (Sterbenz), which settles ``a >= 1/2``. For ``a < 1/2``: it is ``fl(1 - c)`` of a float ``c`` in [1/2, 1],
        since smaller ``c`` give at least 1/2; so it is exactly ``1 - c``, and ``1 - a = c`` is a float. Then
        ``a^2 + b^2 = (a + b)^2 - 2 a b = 1 - 2 a b <= 1`` in real arithmetic, whatever rounding did to ``a``. To take
        ``c`` for the other weight would not do: with ``c = 2^-60``, ``a`` is 1.
        """
        values = values.astype(np.float64)
        missing = np.isnan(values)
        values[missing] = self.knots[0]
        place, lower = self.lower_weights(values)
        weights, places = np.column_stack([lower, 1 - lower]), np.column_stack([place, place + 1])
        weights[missing] = 0
        if self.missing == "indicator":
            places[missing, 1] = len(self.knots)
            weights[missing, 1] = 1
        return weights, places

    def lower_weights(self, values: Array) -> tuple[Array, Array]:
        """Return the place of the knot at or below each value, and the weight of its hat; the next one has the rest.

        Values beyond the knots are moved to the first or the last one.

        Weights are in [0, 1]. Let ``x`` be the place of a value: ``at[j] <= x <= at[j + 1]``, since it is clipped and
        then sorted in. Rounding is monotone, so ``0 <= fl(x - at[j]) <= fl(at[j + 1] - at[j])``, and their quotient
        ``b`` and the weight ``a = fl(1 - b)`` are in [0, 1] as well.
        """
        at = self.at
        x = np.clip(to_axis(np.clip(values, self.knots[0], self.knots[-1]), self.spacing), at[0], at[-1])
        place = np.searchsorted(at[1:-1], x, side="right")
        return place, 1 - (x - at[place]) / (at[place + 1] - at[place])


def to_axis(values: Array, spacing: str) -> Array:
    """Return ``v``, or ``sign(v) log(1 + |v|)``."""
    return values if spacing == "linear" else np.copysign(np.log1p(np.abs(values)), values)


def from_axis(places: Array, spacing: str) -> Array:
    """Return the values that :func:`to_axis` maps to ``places``."""
    return places if spacing == "linear" else np.copysign(np.expm1(np.abs(places)), places)


def declared_axes(
    low: Any, high: Any, n_knots: Any, spacing: Any, knots: Any, handle_missing: Any, n_features: int, columns: Any
) -> list[Axis]:
    """Return the axis of each column, from parameters alone.

    Parameters
    ----------
    low, high, n_knots, spacing, knots, handle_missing
        Those of the transformer.
    n_features : int
    columns : array of str or None
        Their names, where they have some.

    Raises
    ------
    ValueError
        If a parameter is unusable, or does not suit the columns.
    """
    refuse_names(columns, low=low, high=high, spacing=spacing, knots=knots, handle_missing=handle_missing)
    if not (isinstance(n_knots, str) and n_knots == "auto") and not (_is_whole(n_knots) and n_knots >= 2):
        raise parameter_error("n_knots", n_knots, "'auto' or a whole number of at least 2")
    names = [str(name) for name in columns] if columns is not None else [f"x{j}" for j in range(n_features)]
    where = [f"column {name!r}" if columns is not None else f"column {j}" for j, name in enumerate(names)]
    spacings = _words("spacing", spacing, SPACINGS, where, columns)
    missing = _words("handle_missing", handle_missing, MISSING, where, columns)
    given = [None] * n_features if knots is None else _for_each("knots", knots, n_features, columns, None)
    declared = [
        None if value is None else _checked_knots(value, place) for value, place in zip(given, where, strict=True)
    ]
    lows = _bound("low", low, 0, declared, where, columns)
    highs = _bound("high", high, -1, declared, where, columns)
    count = int(_MANY if isinstance(n_knots, str) else n_knots)
    axes = []
    for j, (name, place) in enumerate(zip(names, where, strict=True)):
        a, b, own = float(lows[j]), float(highs[j]), declared[j]
        if not a < b:
            raise ValueError(f"low={a!r} is not below high={b!r} in {place}: swap or correct the two, or leave it out")
        if own is None:
            own = spaced(a, b, count, spacings[j])
            remedy = f"n_knots={count} do not fit between low={a!r} and high={b!r}: move the bounds apart"
        elif own[0] < a or own[-1] > b:
            raise ValueError(f"knots={own.tolist()!r} of {place} leave its bounds {a!r} and {b!r}: correct the two")
        else:
            remedy = f"knots={own.tolist()!r} are too close together: leave some out"
        at = to_axis(own, spacings[j])
        if not (np.all(np.diff(own) > 0) and np.all(np.diff(at) > 0)):
            raise ValueError(f"in {place}, {remedy}")
        axes.append(Axis(name, spacings[j], missing[j], own, at))
    return axes


def _is_whole(value: Any) -> bool:
    return isinstance(value, numbers.Integral) and not isinstance(value, bool)


def _for_each(name: str, given: Any, n_features: int, columns: Any, default: Any) -> list[Any]:
    """Return one value a column of what is given by name for some or by position for all."""
    if is_named(given):
        return by_column(name, given, columns, default)
    try:
        values = list(given)
    except TypeError:
        raise parameter_error(name, given, "given by name or as a list, one entry for each column") from None
    if len(values) != n_features:
        raise parameter_error(name, given, f"one entry for each of the {n_features} columns of X; it has {len(values)}")
    return values


def _words(name: str, given: Any, allowed: tuple[str, ...], where: list[str], columns: Any) -> list[str]:
    """Return one of the allowed words for each column: the first one where a mapping leaves it out."""
    words = [given] * len(where) if isinstance(given, str) else _for_each(name, given, len(where), columns, allowed[0])
    for place, word in zip(where, words, strict=True):
        if not isinstance(word, str) or word not in allowed:
            raise parameter_error(name, word, f"one of {', '.join(map(repr, allowed))} for {place}")
    return words


def _checked_knots(given: Any, place: str) -> Array:
    array = np.asarray(given)
    if array.dtype.kind not in "iuf" or array.ndim != 1 or len(array) < 2:
        raise parameter_error("knots", given, f"a list of at least two numbers for {place}")
    knots = array.astype(np.float64)
    if not np.all(np.abs(knots) <= LARGEST):
        raise parameter_error("knots", given, f"finite and at most {LARGEST:g} in size for {place}")
    if not np.all(np.diff(knots) > 0):
        raise parameter_error("knots", given, f"increasing for {place}: sort them and leave out repetitions")
    return knots + 0.0  # no negative zero


def _bound(name: str, given: Any, end: int, declared: list[Array | None], where: list[str], columns: Any) -> Array:
    """Return the lower or the upper bound of each column; without one, the outermost knots are the bounds."""
    if given is not None:
        return check_bounds(given, given, (name, name), len(where), columns)[0]  # order is checked by the caller
    lacking = [place for place, own in zip(where, declared, strict=True) if own is None]
    if lacking:
        raise ValueError(f"{name}=None, but {lacking[0]} has no knots: declare {name} or knots for it")
    return np.array([own[end] for own in declared if own is not None])


def spaced(low: float, high: float, count: int, spacing: str) -> Array:
    """Return ``count`` values from ``low`` to ``high``, equally spaced on the axis."""
    ends = to_axis(np.array([low, high]), spacing)
    knots = from_axis(np.linspace(ends[0], ends[1], count), spacing) + 0.0
    knots[0], knots[-1] = low, high
    return knots
