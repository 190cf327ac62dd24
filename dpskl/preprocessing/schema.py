"""The public schema of a table: what may be in its columns, written by a person and never read from records."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, TypeGuard

import numpy as np

from dpskl.preprocessing.blocks import Block
from dpskl.preprocessing.declarations import (
    Declaration,
    Drop,
    Numeric,
    as_declaration,
    from_json_object,
    kind_of,
    to_json_object,
)
from dpskl.preprocessing.draft import draft_of
from dpskl.preprocessing.knots import knots_for
from dpskl.preprocessing.public import parameter_error, rounded_up_norm

__all__ = ["Schema", "as_schema"]

_FORMAT, _VERSION = "dpskl.schema", 1


class Schema(Mapping[str, Declaration]):
    """What each column of a table may hold: an ordered mapping of names to declarations, which is public.

    It is written once, by somebody who knows the questionnaire, the instrument or the law, and must not be made from
    the records that a model is fitted to. :class:`TableEncoder` follows it.

    Parameters
    ----------
    columns : mapping of str to declaration
        :class:`Numeric`, :class:`Categories` or :class:`Drop`, or in short ``(low, high)`` for a range of numbers, a
        list of values, and ``"drop"``.

    Raises
    ------
    ValueError
        If a declaration is unusable, none is used, or two columns of the encoded table would have one name.

    See Also
    --------
    TableEncoder : Encodes a table that a schema describes.
    make_table_pipeline : An encoder and a classifier that knows its norm.

    Notes
    -----
    A schema is not changed: ``Schema({**schema, "age": (18, 100)})`` is another one.

    Examples
    --------
    >>> from dpskl.preprocessing import Numeric, Schema
    >>> schema = Schema(
    ...     {"age": (18, 90), "job": ["clerk", "nurse"], "income": Numeric(0, 1e6, spacing="log"), "id": "drop"}
    ... )
    >>> schema
    Schema of 4 columns, of which 3 are encoded as 24, data_norm = sqrt(3)
    age     numeric     18 to 90, linear, n_knots='auto', missing: indicator
    job     categories  'clerk', 'nurse', other: indicator, missing: indicator
    income  numeric     0 to 1e+06, log, n_knots='auto', missing: indicator
    id      drop        not used
    >>> schema["age"]
    Numeric(18.0, 90.0)
    >>> Schema.from_json(schema.to_json()) == schema
    True
    >>> schema.with_knots(n_samples=2000, epsilon=1.0, delta=1e-6)["age"]
    Numeric(18.0, 90.0, n_knots=9)
    """

    def __init__(self, columns):
        if not isinstance(columns, Mapping):
            raise parameter_error("columns", columns, "a mapping of names to declarations")
        declared: dict[str, Declaration] = {}
        for name, given in columns.items():
            if not isinstance(name, str):
                raise ValueError(f"the column {name!r} has a name that is not a word: rename it, in the table too")
            try:
                declared[str(name)] = as_declaration(given)
            except ValueError as error:
                raise ValueError(f"column {name!r}: {error}") from None
        self._columns = declared
        blocks = self.blocks()
        if not blocks:
            raise ValueError("the schema has no column that is used: declare at least one by bounds or values")
        names = self.output_names()
        if len(set(names)) < len(names):
            twice = next(name for name in names if names.count(name) > 1)
            raise ValueError(f"two columns of the encoded table would be named {twice!r}: rename a column of the table")

    @classmethod
    def from_frame(cls, public_example):
        """Return a draft for a person to edit, made from *public or made* records.

        Numeric columns get the smallest and the largest value, rounded outwards, and a log axis where that divides the
        values more evenly, or a plain column where there are two values only; words, bools and categories get the
        values that occur. Columns with one value or none, and columns of words that nearly all differ, as names do, are
        drafted to be dropped.

        Parameters
        ----------
        public_example : pandas or polars DataFrame, Arrow table, or dict of columns
            Records that nobody has to protect: published, synthetic, or written for the purpose. **Never the records
            that the model is for**: their extremes and rare values would become public, and no budget pays for that.

        Returns
        -------
        Schema

        Raises
        ------
        ValueError
            If the table has no names or no rows, names a column twice, or has dates.

        Warns
        -----
        PrivacyLeakWarning
            Always, since nothing can tell whether the records were public.

        Examples
        --------
        >>> import warnings
        >>> from dpskl.preprocessing import Schema
        >>> with warnings.catch_warnings():
        ...     warnings.simplefilter("ignore")
        ...     draft = Schema.from_frame({"age": [19, 44, 87], "job": ["nurse", None, "clerk"]})
        >>> dict(draft)
        {'age': Numeric(10.0, 90.0), 'job': Categories(['clerk', 'nurse'])}
        """
        return cls(draft_of(public_example))

    @property
    def data_norm(self) -> float:
        """What no encoded row exceeds: the square root of the number of columns that are used, rounded up.

        Each of them becomes a block of norm at most 1: see :class:`TableEncoder`.
        """
        return rounded_up_norm(np.ones(len(self.blocks())))

    def with_knots(self, n_samples, epsilon, delta, *, neighbours="add_remove"):
        """Return the schema with a number of knots for each ``n_knots="auto"``, by the rule of :func:`knots_for`.

        Parameters
        ----------
        n_samples : int
            Public number of records.
        epsilon, delta : float
            Budget of the fit.
        neighbours : {"add_remove", "replace_one"}, default="add_remove"
            Which data sets must be hard to tell apart.

        Returns
        -------
        Schema
            With 9 or 5 knots, or ``None``, a plain column, where lines are all that the budget can pay for. Categories,
            indicators and columns whose knots are declared count as other columns.
        """
        automatic = {name: declared for name, declared in self.items() if _is_automatic(declared)}
        if not automatic:
            return self
        n_knots = len(self.blocks()[next(iter(automatic))].knots)
        n_other = len(self.output_names()) - n_knots * len(automatic)
        found = knots_for(n_samples, len(automatic), epsilon, delta, neighbours=neighbours, n_other=n_other)
        found = None if found == 2 else found
        return Schema({**self, **{name: replace(old, n_knots=found) for name, old in automatic.items()}})

    def to_json(self):
        """Return the schema as a JSON text, from which :meth:`from_json` makes an equal one."""
        columns = [{"name": name, **to_json_object(declared)} for name, declared in self.items()]
        return json.dumps({"format": _FORMAT, "version": _VERSION, "columns": columns}, indent=1, allow_nan=False)

    @classmethod
    def from_json(cls, text):
        """Return the schema that :meth:`to_json` wrote.

        Parameters
        ----------
        text : str

        Returns
        -------
        Schema

        Raises
        ------
        ValueError
            If the text is no JSON, no schema, or one of a version that is not known.
        """
        written = json.loads(text)
        if not isinstance(written, dict) or written.get("format") != _FORMAT:
            raise ValueError(f"the text is no schema: it lacks format={_FORMAT!r}")
        if written.get("version") != _VERSION:
            raise ValueError(f"the schema has version {written.get('version')!r}, and this dpskl reads {_VERSION}")
        parts, columns = written.get("columns"), {}
        if not isinstance(parts, list) or not all(isinstance(part, dict) for part in parts):
            raise parameter_error("columns", parts, "a list with an object for each column")
        for part in parts:
            name = part.pop("name", None)
            if name in columns:
                raise ValueError(f"the schema has two columns named {name!r}")
            try:
                columns[name] = from_json_object(part)
            except ValueError as error:
                raise ValueError(f"column {name!r}: {error}") from None
        return cls(columns)

    def blocks(self) -> dict[str, Any]:
        """Return the block of each column that is used, by name."""
        used = {name: declared for name, declared in self._columns.items() if not isinstance(declared, Drop)}
        return {name: declared.block(name) for name, declared in used.items()}

    def output_names(self) -> list[str]:
        """Return a name for each column of the encoded table."""
        blocks: dict[str, Block] = self.blocks()
        return [part for name, block in blocks.items() for part in block.output_names(name)]

    def __getitem__(self, name: str) -> Declaration:
        return self._columns[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._columns)

    def __len__(self) -> int:
        return len(self._columns)

    def __eq__(self, other: object) -> bool:
        # the order is that of columns without names
        return isinstance(other, Schema) and repr(list(self.items())) == repr(list(other.items()))

    def __hash__(self) -> int:
        return hash(repr(list(self.items())))

    def __repr__(self):
        rows = [(name, kind_of(declared), declared.words()) for name, declared in self.items()]
        widths = [max(len(row[place]) for row in rows) for place in (0, 1)]
        n_used, n_out = len(self.blocks()), len(self.output_names())
        lines = [f"{name:{widths[0]}}  {kind:{widths[1]}}  {words}" for name, kind, words in rows]
        title = f"Schema of {len(rows)} columns, of which {n_used} are encoded as {n_out}, data_norm = sqrt({n_used})"
        return "\n".join([title, *lines])


def as_schema(given: Any) -> Schema:
    """Return a schema, also of a mapping in plain Python."""
    return given if isinstance(given, Schema) else Schema(given)


def _is_automatic(declared: Declaration) -> TypeGuard[Numeric]:
    return isinstance(declared, Numeric) and declared.knots is None and declared.n_knots == "auto"
