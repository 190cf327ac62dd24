"""Blocks of an encoded row: each column of a table makes one, of norm at most 1, and blocks stand side by side."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
import scipy.sparse as sp
import sklearn

from dpskl.preprocessing.knots import Axis
from dpskl.preprocessing.public import BLOCK_SIZE

__all__ = ["Block", "OneHot", "Plain", "encoded_rows", "refuse_values", "starts_of"]

Array = np.ndarray[Any, Any]


class Block(Protocol):
    """What one column becomes; see :class:`~dpskl.preprocessing.knots.Axis` for that of hat functions."""

    @property
    def width(self) -> int:
        """How many columns of the output it has."""
        ...

    @property
    def n_entries(self) -> int:
        """How many of them a row can fill."""
        ...

    def output_names(self, name: str) -> list[str]:
        """Return a name for each column of the output, of a column called ``name``."""
        ...

    def entries(self, values: Array) -> tuple[Array, Array]:
        """Return weights and the columns within the block they stand in, of shape (n, n_entries), increasing."""
        ...


class Plain(NamedTuple):
    """One column from -1 to 1, and one for missing values where they have a place.

    With the weight ``a`` in [0, 1] of the lower of two hats, the entry is ``fl(1 - 2 a)``: doubling is exact and
    rounding is monotone, so it is in [-1, 1]. Where the indicator is 1 the entry is 0: no block is longer than 1.
    """

    axis: Axis  # of two knots, the bounds

    @property
    def width(self) -> int:
        return self.axis.width - 1

    @property
    def n_entries(self) -> int:
        return self.width

    def output_names(self, name: str) -> list[str]:
        return [name, f"{name}[missing]"][: self.width]

    def entries(self, values: Array) -> tuple[Array, Array]:
        missing = np.isnan(values)
        _, lower = self.axis.lower_weights(np.where(missing, self.axis.knots[0], values))
        parts = [np.where(missing, 0, 1 - 2 * lower), missing.astype(np.float64)][: self.width]
        return np.column_stack(parts), np.tile(np.arange(self.width), (len(values), 1))


class OneHot(NamedTuple):
    """One column for each declared value, for unknown values and for missing ones where they have a place.

    It takes places, from 0 on, or -1 where all of the block is 0; a row has one entry, which is 1, or none.
    """

    values: tuple[Any, ...]
    labels: tuple[str, ...]
    other: int  # the place of unknown values, or -1
    missing: int  # and that of missing ones

    @property
    def width(self) -> int:
        return len(self.labels)

    @property
    def n_entries(self) -> int:
        return 1

    def output_names(self, name: str) -> list[str]:
        return [f"{name}={label}" for label in self.labels]

    def entries(self, values: Array) -> tuple[Array, Array]:
        return (values[:, None] >= 0).astype(np.float64), np.maximum(values, 0)[:, None]


def starts_of(blocks: Sequence[Block]) -> list[int]:
    """Return the first column of each block, and last the number of columns of the output."""
    starts: list[int] = np.cumsum([0, *(block.width for block in blocks)]).tolist()
    return starts


def refuse_values(name: Any, values: Array, missing: str, option: str) -> None:
    """Raise ValueError for infinite numbers, and for missing ones where ``missing`` is ``"error"``."""
    if np.isinf(values).any():
        remedy = "replace it by a value that is known without the data, or by NaN where it is missing"
        raise ValueError(f"Input X contains infinity in the column {name!r}: {remedy}")
    if missing == "error" and np.isnan(values).any():
        remedy = f"{option}='indicator' gives missing values a place of their own, and 'zeros' none"
        raise ValueError(f"Input X contains NaN in the column {name!r}: {remedy}")


def encoded_rows(blocks: Sequence[Block], columns: Sequence[Array], n_rows: int, sparse_output: bool) -> Any:
    """Return rows of blocks that stand side by side, as CSR in canonical form or as an array.

    The squared norm of a row is the sum over its blocks of at most 1 each, so ``sqrt(len(blocks))`` bounds the norm.
    """
    starts = starts_of(blocks)
    width, per_row = starts[-1], sum(block.n_entries for block in blocks)
    height = max(1, BLOCK_SIZE // per_row)
    parts = [slice(start, min(start + height, n_rows)) for start in range(0, n_rows, height)]
    if not sparse_output:
        out = np.zeros((n_rows, width))
        for rows in parts:
            weights, places = _entries(blocks, starts, [column[rows] for column in columns])
            np.put_along_axis(out[rows], places, weights, axis=1)
        return out
    most = per_row * n_rows
    kind = np.int32 if max(most, width) <= np.iinfo(np.int32).max else np.int64
    data, indices, indptr = np.empty(most), np.empty(most, dtype=kind), np.zeros(n_rows + 1, dtype=kind)
    end = 0
    for rows in parts:
        weights, places = _entries(blocks, starts, [column[rows] for column in columns])
        stored = weights != 0
        start, end = end, end + np.count_nonzero(stored)
        data[start:end], indices[start:end] = weights[stored], places[stored]
        indptr[rows.start + 1 : rows.stop + 1] = start + np.cumsum(stored.sum(axis=1))
    is_array = sklearn.get_config().get("sparse_interface") == "sparray"
    return (sp.csr_array if is_array else sp.csr_matrix)((data[:end], indices[:end], indptr), shape=(n_rows, width))


def _entries(blocks: Sequence[Block], starts: list[int], columns: list[Array]) -> tuple[Array, Array]:
    """Return the entries of some rows, block after block, and the columns of the output they stand in."""
    shape = (len(columns[0]), sum(block.n_entries for block in blocks))
    weights, places = np.empty(shape), np.empty(shape, dtype=np.intp)
    end = 0
    with np.errstate(all="ignore"):  # quotients may underflow, whatever NumPy is set to
        for block, start, values in zip(blocks, starts, columns, strict=False):
            part = slice(end, end := end + block.n_entries)
            weights[:, part], within = block.entries(values)
            places[:, part] = start + within
    return weights, places
