"""Numbers of records that no usual split explains: they may be counts of labels, which nobody meant to publish.

A guarantee takes the number of records of each fit to be public. That is so for the parts of a cross-validation, whose
sizes follow from the size of the whole. It is not so where rows are chosen by their label: one-against-one
classifiers and under-samplers write exact counts of the classes into ledger and guarantees.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterable
from itertools import pairwise

from dpskl.budget.report import Entry

__all__ = ["Sizes", "is_explained"]

_RECENT = 500
_FEWEST = 3  # two sizes are too few to tell
_ROUND = [step / 20 for step in range(1, 20)] + [1 / 3, 2 / 3]  # shares that people choose
_FOLDS = [(k - 1) / k for k in range(2, 101)]
_USUAL_FOLDS = (2, 3, 4, 5, 10)


def _follow(sizes: Iterable[int], shares: Iterable[float]) -> bool:
    """Whether each size is, to 1, a share of a larger one or equal to it; the first is given."""
    shares, known = tuple(shares), list[int]()
    for size in sorted(sizes, reverse=True):
        if known and not any(
            abs(size - larger) <= 1 or any(abs(size - share * larger) <= 1 for share in shares) for larger in known
        ):
            return False
        known.append(size)
    return True


def _have_equal_steps(sizes: Iterable[int]) -> bool:
    steps = [after - before for before, after in pairwise(sorted(sizes))]
    return max(steps) - min(steps) <= 1


def is_explained(sizes: Iterable[int]) -> bool:
    """Whether sizes may be those of splits of one table.

    Equal steps (a growing training set), or shares of a larger size down to the splits of splits. The size of the
    whole table need not be among them, if the folds are of a usual number.

    Examples
    --------
    >>> is_explained([1000, 800, 533, 534]), is_explained([170, 336, 502]), is_explained([731, 480, 609])
    (True, True, False)
    """
    distinct = sorted(set(sizes))
    if len(_apart(distinct)) < _FEWEST or _have_equal_steps(_apart(distinct)) or _follow(distinct, _ROUND + _FOLDS):
        return True
    wholes = {round(distinct[-1] * k / (k - 1)) + change for k in _USUAL_FOLDS for change in (-1, 0, 1)}
    return any(_follow([whole, *distinct], _ROUND) for whole in wholes)


def _apart(distinct: list[int]) -> list[int]:
    """Of sizes that differ by 1, as folds do, keep one."""
    kept = distinct[:1]
    for size in distinct[1:]:
        if size - kept[-1] > 1:
            kept.append(size)
    return kept


class Sizes:
    """The sizes of the recent fits of this process on one ledger."""

    def __init__(self) -> None:
        self._recent: defaultdict[tuple[str | None, ...], deque[int]] = defaultdict(lambda: deque(maxlen=_RECENT))
        self._has_spoken = False

    def note(self, entry: Entry) -> str | None:
        """Take a spend down, and return what there is to warn of: once, and never for a partition or a label."""
        if self._has_spoken or entry.n_samples is None or entry.partition is not None or entry.label is not None:
            return None
        sizes = self._recent[entry.estimator, entry.solver]
        is_new = entry.n_samples not in sizes
        sizes.append(entry.n_samples)
        if not is_new or is_explained(sizes):
            return None
        self._has_spoken = True
        return (
            f"fits on {', '.join(map(str, sorted(set(sizes))))} records were charged, sizes that no usual split of one "
            "table explains. If rows were chosen by their label (one against one, under-sampling), these numbers count "
            "the labels, and guarantees and ledger take them to be public: choose rows without the labels, or declare "
            "a public n_samples= on the estimator. For different tables use accountant.labelled(name), or "
            "accountant.partition(name) where their records are disjoint"
        )
