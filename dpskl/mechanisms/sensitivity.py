"""From what one record can add to a sum to the sensitivity of that sum, for both neighbour relations.

``add_remove``: one record is present or absent while ``n`` stays a public number; equivalently, its
contribution to every sum is replaced by zero. Zeroing its *features* would not be enough: the loss of a row
of zeros is ``log 2`` and the intercept still has a gradient. ``replace_one``: one record is exchanged
for another, so a sum loses one contribution and gains one.
"""

from __future__ import annotations

from dpskl.records.rows import summation_depth

__all__ = ["NEIGHBOURS", "contributions", "rounding_allowance", "sum_sensitivity"]

NEIGHBOURS = ("add_remove", "replace_one")


def contributions(neighbours: str) -> int:
    """Return how many contributions to a sum differ between neighbours: 1 or 2."""
    return {"add_remove": 1, "replace_one": 2}[neighbours]


def rounding_allowance(n_samples: int, n_features: int) -> float:
    """Return by how much float64 rounding can move a sum on two data sets, relative to the norm of a term.

    A float sum of ``n`` terms of norm of at most ``B`` is off by at most ``depth 2^-53 n B``, on each of them.
    """
    return 2 * n_samples * summation_depth(n_samples, n_features) * 2.0**-53


def sum_sensitivity(bound: float, neighbours: str, n_samples: int, n_features: int) -> float:
    """Return the Euclidean sensitivity of a float64 sum whose terms have norm of at most ``bound``.

    The exact sums differ by ``bound`` times the number of contributions that change; see
    :func:`rounding_allowance` for the rest.

    Examples
    --------
    >>> round(sum_sensitivity(1.0, "replace_one", n_samples=50_000, n_features=100), 4)
    2.0
    """
    return bound * (contributions(neighbours) + rounding_allowance(n_samples, n_features))
