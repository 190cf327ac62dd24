"""Rows of ``X`` in cache-sized blocks, their norms, and the public maps that bound them; no copy of ``X``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

__all__ = [
    "GRAM_HEIGHT",
    "RAY_HEIGHT",
    "Block",
    "Rows",
    "compressed",
    "row_norms",
    "row_scales",
    "sphere_scales",
    "squared",
    "squares_of_rows",
    "summation_depth",
]

Array = np.ndarray[Any, Any]

# A dense block should stay in the cache between its two uses, and be worth the 40 microseconds of its overhead.
_BLOCK_BYTES = 1 << 21
# Sparse blocks are views and as high as may be, since every call into scipy costs about 20 microseconds; where their
# values are cast or squared they are lower. Heights must not depend on the number of stored values, which is not
# public: they enter the bound on rounding below.
_SPARSE_HEIGHT = 49152
_SPARSE_COPY_HEIGHT = 8192
GRAM_HEIGHT = 1024
RAY_HEIGHT = 32768  # records whose scores stay in the second cache for all steps, and outweigh the calls

# Below, the squares of a row's entries lose digits, and its computed norm may be too short to divide by.
_SMALLEST_NORM = 1e-140


class Block(NamedTuple):
    rows: slice
    X: Any  # float64, dense or CSR, at most one cache-sized block
    XT: Any


def _dense_height(n_features: int) -> int:
    return max(64, _BLOCK_BYTES // (8 * max(1, n_features)))


def summation_depth(n_samples: int, n_features: int) -> int:
    """Return how many roundings, at most, a term meets on its way into a sum over all records.

    Within a block the order is BLAS's own, so each of its rows may cost one rounding; then the blocks are
    added one by one. Moments are summed in parts of blocks. The worst of these and of the dense and the sparse
    layout is returned, so that the number is public.
    """
    heights = (_dense_height(n_features), _SPARSE_HEIGHT, _SPARSE_COPY_HEIGHT, RAY_HEIGHT)
    blocks = {height: -(-n_samples // height) for height in heights}
    parts = -(-n_samples // GRAM_HEIGHT) + max(blocks.values())
    deepest = max(min(height, n_samples) + count for height, count in blocks.items())
    return max(deepest, min(GRAM_HEIGHT, n_samples) + parts) + 8


def _is_blas_ready(X: Array) -> bool:
    """Whether BLAS reads slices of ``X`` in place: float64 with one unit stride."""
    return X.dtype == np.float64 and (X.flags.c_contiguous or X.flags.f_contiguous) and X.flags.aligned


def _dense_blocks(X: Array, height: int, buffer: Array | None) -> Iterator[Block]:
    for start in range(0, X.shape[0], height):
        rows = slice(start, min(start + height, X.shape[0]))
        block = X[rows]
        if buffer is not None:
            cast = buffer[: block.shape[0]]
            np.copyto(cast, block)
            block = cast
        yield Block(rows, block, block.T)


def _sparse_blocks(X: Any, height: int) -> Iterator[Block]:
    for start in range(0, X.shape[0], height):
        rows = slice(start, min(start + height, X.shape[0]))
        first, last = X.indptr[rows.start], X.indptr[rows.stop]
        arrays = (
            X.data[first:last].astype(np.float64, copy=False),
            X.indices[first:last],
            X.indptr[rows.start : rows.stop + 1] - first,
        )
        shape = (rows.stop - rows.start, X.shape[1])
        yield Block(rows, compressed(sp.csr_array, shape, arrays), compressed(sp.csc_array, shape[::-1], arrays))


def compressed(kind: Any, shape: tuple[int, int], arrays: tuple[Array, Array, Array]) -> Any:
    """Return a CSR or CSC array on given arrays; the constructor would copy what is a view of something larger."""
    matrix = kind(shape, dtype=np.float64)
    matrix.data, matrix.indices, matrix.indptr = arrays
    return matrix


class Rows:
    """The rows of ``X`` in float64 blocks that fit the cache, or of ``least_height`` rows; no copy of ``X``."""

    def __init__(self, X: Any, *, to_square: bool = False, least_height: int = 1) -> None:
        self.X = X = X if sp.issparse(X) else np.asarray(X)  # a memory map as a plain array
        n, d = X.shape
        self._kept: list[Block] | None = None
        self._buffer: Array | None = None
        if sp.issparse(X):
            is_view = X.dtype == np.float64
            self.height = _SPARSE_HEIGHT if is_view and not to_square else _SPARSE_COPY_HEIGHT
            if is_view:
                self._kept = list(_sparse_blocks(X, self.height))
            return
        self.height = max(_dense_height(d), least_height)
        if _is_blas_ready(X):
            self._kept = list(_dense_blocks(X, self.height, None))
        else:
            order = "F" if X.flags.f_contiguous else "C"
            self._buffer = np.empty((min(self.height, n), d), order=order)  # type: ignore[call-overload]

    def __iter__(self) -> Iterator[Block]:
        if self._kept is not None:
            return iter(self._kept)
        if sp.issparse(self.X):
            return _sparse_blocks(self.X, self.height)
        return _dense_blocks(self.X, self.height, self._buffer)


def squared(block: Any) -> Any:
    if sp.issparse(block):
        return compressed(sp.csr_array, block.shape, (block.data * block.data, block.indices, block.indptr))
    return block * block


def squares_of_rows(values: Array, indptr: Array) -> Array:
    """Return the sum of the squares of ``values`` in each row of a CSR matrix with these row pointers."""
    counts = np.diff(indptr)
    squares: Array = np.bincount(np.repeat(np.arange(len(counts)), counts), values * values, len(counts))
    return squares


def row_norms(X: Any) -> Array:
    """Return the Euclidean norms of the rows of ``X``, in float64, without an n-by-d temporary.

    Parameters
    ----------
    X : ndarray or CSR of shape (n, d)
        A CSR matrix must be free of duplicate entries.

    Returns
    -------
    ndarray of shape (n,)
    """
    norms = np.empty(X.shape[0])
    # a square that overflows gives an infinite norm, and the row is then scaled to nothing
    with np.errstate(over="ignore"):
        for block in Rows(X, to_square=True):
            if sp.issparse(block.X):
                norms[block.rows] = squared(block.X).sum(axis=1)
            else:
                norms[block.rows] = np.einsum("ij,ij->i", block.X, block.X)
    return np.sqrt(norms, out=norms)


def row_scales(X: Any, data_norm: float, norms: Array | None = None) -> Array:
    """Return the factors that scale rows longer than ``data_norm`` down to it, and leave the others alone.

    Parameters
    ----------
    X : ndarray or CSR of shape (n, d)
        As for :func:`row_norms`.
    data_norm : float
        Positive; its square must neither overflow nor vanish.
    norms : ndarray of shape (n,), optional
        ``row_norms(X)`` where it is known.

    Returns
    -------
    ndarray of shape (n,)
        In [0, 1]; 0 for rows whose squared norm exceeds the largest double.
    """
    norms = row_norms(X) if norms is None else norms
    # The computed norm can be short by a relative (d + 4) 2^-53: stay inside by more than that.
    slack = max(1e-12, (X.shape[1] + 4) * 2.0**-51)
    limit = data_norm * (1 - slack)
    return np.divide(limit, norms, out=np.ones_like(norms), where=norms > limit)


def sphere_scales(norms: Array, data_norm: float, intercept: float, n_features: int) -> tuple[Array, Array]:
    """Return the factors of features and of the constant that bring rows with their constant to norm ``data_norm``.

    Rows of zeros stay zeros where there is no constant, and a row whose squared norm overflows counts as one.
    """
    slack = max(1e-12, (n_features + 5) * 2.0**-51)  # as in row_scales
    lost = ~np.isfinite(norms) if intercept else ~np.isfinite(norms) | (norms < _SMALLEST_NORM)
    lengths = np.hypot(np.where(lost, 0.0, norms), intercept)
    factors = np.divide(data_norm * (1 - slack), lengths, out=np.zeros_like(norms), where=lengths > 0)
    return np.where(lost, 0.0, factors), factors
