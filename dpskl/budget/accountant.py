"""The accountant: a handle on a ledger of spends that says (epsilon, delta) and refuses what exceeds its ceiling."""

from __future__ import annotations

import copy
import os
import threading
import time
import warnings
import weakref
from collections.abc import Iterable
from math import inf
from numbers import Real
from pathlib import Path
from typing import Any

from dpskl._version import __version__
from dpskl.accounting.costs import Cost
from dpskl.budget.book import NEIGHBOURS, Book, checked_facts, temporary_path
from dpskl.budget.filters import FilterRefusal
from dpskl.budget.ledger import Ledger
from dpskl.budget.partition import Partition
from dpskl.budget.reader import LedgerReader, PathLike
from dpskl.budget.refusal import explain
from dpskl.budget.report import Entry
from dpskl.budget.tally import Cell
from dpskl.exceptions import BudgetExceededError, LedgerNotFoundError, PrivacyLeakWarning

__all__ = ["PrivacyAccountant"]

# One book for each ledger and one handle for each view of it, as long as somebody holds them.
_BOOKS: weakref.WeakValueDictionary[tuple[str, str], Book] = weakref.WeakValueDictionary()
_HANDLES: weakref.WeakValueDictionary[tuple[Any, ...], PrivacyAccountant] = weakref.WeakValueDictionary()
_EVERY_HANDLE: weakref.WeakSet[PrivacyAccountant] = weakref.WeakSet()  # two may have one view, made apart
_REGISTRY_LOCK = threading.RLock()


def _after_fork_in_child() -> None:
    global _REGISTRY_LOCK
    _REGISTRY_LOCK = threading.RLock()  # another thread of the parent may have held it
    _BOOKS.clear()  # or may have been about to write in one
    for handle in list(_EVERY_HANDLE):
        handle._book = None


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)


def _reopen(path: str, facts: dict[str, Any], cell: Cell | None = None, label: str | None = None) -> PrivacyAccountant:
    """Return the handle that a pickle describes. It looks for the file when it is used, and never makes one."""
    with _REGISTRY_LOCK:
        handle = _HANDLES.get((facts["id"], path, cell, label))  # a copied file is another ledger
        if handle is None:
            handle = object.__new__(PrivacyAccountant)
            handle._fill(path, facts, cell, label)
        return handle


class PrivacyAccountant(LedgerReader):
    """A handle on a ledger of privacy spends, with an optional ceiling.

    Copies, clones, pickles and workers all reach the same file, so that one total stays right through ``clone``,
    pipelines, ``GridSearchCV(n_jobs=2)``, crashes and separate processes. A spend is on disk before the data are used:
    a crash can charge too much, never too little.

    Parameters
    ----------
    epsilon : float, default=inf
        Ceiling, positive. ``inf`` records and never refuses.
    delta : float, default=1e-6
        Delta of the ceiling, in [0, 1). 0 admits pure costs only and implies ``composition="basic"``.
    path : path-like or None, default=None
        File of the ledger. An existing one is continued, if it was made with the same ceiling. ``None`` makes a
        temporary one, which is removed when this process ends.
    composition : {"rdp", "basic", "gdp"}, default="rdp"
        How spends count against the ceiling. Each rule is valid although later costs may be chosen after
        seeing earlier results: Renyi divergence at one order that is fixed here, sums of epsilon and delta,
        or Gaussian differential privacy (Gaussian costs only). Into an empty ledger a cost whose own exact
        (epsilon, delta) is within the ceiling is always granted.
    neighbours : {"add_remove", "replace_one"} or None, default=None
        The relation that all spends must have. ``None``: that of the first one.

    Raises
    ------
    ValueError
        If a parameter is out of range, or an existing ledger has another ceiling.
    LedgerFormatError
        If there is something else at ``path``.

    Examples
    --------
    >>> from dpskl import PrivacyAccountant
    >>> from dpskl.accounting import PureCost
    >>> accountant = PrivacyAccountant(epsilon=1.0, delta=0)
    >>> for _ in range(10):
    ...     accountant.spend(PureCost(0.1))
    >>> accountant.spent(), accountant.remaining()
    (Spent(epsilon=1.0, delta=0), Spent(epsilon=0.0, delta=0.0))
    """

    def __init__(
        self,
        epsilon: float = inf,
        delta: float = 1e-6,
        path: PathLike | None = None,
        composition: str = "rdp",
        *,
        neighbours: str | None = None,
    ) -> None:
        facts = checked_facts(epsilon, delta, composition, neighbours)
        target = temporary_path() if path is None else Path(path)
        if path is not None and target.exists():
            existing = Ledger.open(target).facts()
            for name in ("epsilon", "delta", "composition", "neighbours"):
                if existing[name] != facts[name]:
                    raise ValueError(
                        f"{name}={facts[name]!r}, but the ledger at {target} was made with {existing[name]!r}; "
                        "a ceiling is fixed for good, PrivacyAccountant.open(path) takes it from the file"
                    )
            facts = existing
        else:
            Ledger.create(target, facts)
        self._fill(str(target.resolve()), facts, None, None)

    @classmethod
    def create(
        cls,
        path: PathLike,
        epsilon: float = inf,
        delta: float = 1e-6,
        composition: str = "rdp",
        *,
        neighbours: str | None = None,
    ) -> PrivacyAccountant:
        """Make a ledger at ``path``; FileExistsError if there is something already."""
        facts = checked_facts(epsilon, delta, composition, neighbours)
        return _reopen(Ledger.create(path, facts).path, facts)

    @classmethod
    def open(cls, path: PathLike) -> PrivacyAccountant:
        """Open the ledger at ``path``, with the ceiling it was made with; LedgerNotFoundError if there is none."""
        ledger = Ledger.open(path)
        return _reopen(ledger.path, ledger.facts())

    def _fill(self, path: str, facts: dict[str, Any], cell: Cell | None, label: str | None) -> None:
        self.path, self._facts, self._cell, self._label = path, facts, cell, label
        self._book: Book | None = None
        with _REGISTRY_LOCK:
            _HANDLES[facts["id"], path, cell, label] = self
            _EVERY_HANDLE.add(self)

    # -- a handle: whatever copies it, there is one ledger ----------------------------------------------

    def __copy__(self) -> PrivacyAccountant:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> PrivacyAccountant:
        return self

    def __sklearn_clone__(self) -> PrivacyAccountant:
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        return _reopen, (self.path, self._facts, self._cell, self._label)

    def __repr__(self) -> str:
        # constant under spends: joblib hashes and scikit-learn compares parameters by what they print
        cell = f", {self._cell[0]}={self._cell[1]!r}" if self._cell else ""
        cell += f", label={self._label!r}" if self._label else ""
        return (
            f"PrivacyAccountant(epsilon={self.epsilon!r}, delta={self._facts['delta']!r}, "
            f"composition={self.composition!r}{cell})"
        )

    def __bool__(self) -> bool:
        return True

    @property
    def cell(self) -> Cell | None:
        """The partition and the cell of it that this handle spends on, None for all records."""
        return self._cell

    def _open_book(self) -> Book:
        with _REGISTRY_LOCK:
            if self._book is None:
                self._book = _BOOKS.get((self._facts["id"], self.path)) or self._find_book()
            book = self._book
        return book

    def _find_book(self) -> Book:
        ledger = Ledger.open(self.path)
        facts = ledger.facts()
        if facts["id"] != self._facts["id"]:
            raise LedgerNotFoundError(
                f"the ledger at {self.path} is another one than this accountant was made for; "
                "PrivacyAccountant.open(path) gives a handle on the new one"
            )
        book = _BOOKS[facts["id"], self.path] = Book(ledger)
        return book

    # -- spending -----------------------------------------------------------------------------------------

    def spend(
        self,
        cost: Cost,
        *,
        neighbours: str = "add_remove",
        label: str | None = None,
        solver: str | None = None,
        estimator: str | None = None,
        n_samples: int | None = None,
        is_seeded: bool = False,
        delta: float | None = None,
    ) -> None:
        """Charge a cost, before the data are used.

        Parameters
        ----------
        cost : Cost
        neighbours : {"add_remove", "replace_one"}
            The first spend fixes the relation of the ledger.
        label, solver, estimator : str, optional
            Kept in the entry. Nothing that is kept may come from the data.
        n_samples : int, optional
            Public number of records.
        is_seeded : bool, default=False
            Marks the entry as void.
        delta : float, optional
            Where ``"basic"`` composition charges a cost that is neither pure nor approximate: it counts
            ``(cost.epsilon(delta), delta)``, which every cost has at every delta. The default is the whole delta of
            the ceiling, for one such cost and no more. The other rules do not use it.

        Raises
        ------
        BudgetExceededError
            If the ceiling does not allow it; nothing is charged then.
        LedgerNotFoundError
            If the file of the ledger is gone.
        LedgerFormatError
            If entries of the file are missing or were changed.
        OSError
            If the file cannot be written, or is a backup; nothing is granted then.
        ValueError
            If the neighbour relation is not that of the ledger.

        Warns
        -----
        PrivacyLeakWarning
            Once, if numbers of records that were charged may tell how many records have which label.
        """
        if not isinstance(cost, Cost):
            raise ValueError(f"cost={cost!r} must be a Cost of dpskl.accounting, such as PureCost(0.1)")
        if neighbours not in NEIGHBOURS:
            raise ValueError(f"neighbours={neighbours!r} must be one of {', '.join(map(repr, NEIGHBOURS))}")
        if self._cell is not None and neighbours == "replace_one":
            raise ValueError("a replaced record may change its cell: partitions are for neighbours='add_remove' only")
        entry = Entry(
            cost=cost,
            neighbours=neighbours,
            solver=solver,
            estimator=estimator,
            label=self._label if label is None else label,
            partition=self._cell,
            n_samples=n_samples,
            is_seeded=is_seeded,
            time=time.time(),
            process=os.getpid(),
            version=__version__,
            delta=_checked_delta(delta),
        )
        book = self._open_book()
        with book.lock:
            words = book.sizes.note(entry)
        if words is not None:  # before the charge: who makes errors of warnings loses nothing
            warnings.warn(words, PrivacyLeakWarning, stacklevel=2)
        try:
            book.spend(entry)
        except FilterRefusal as refusal:
            raise BudgetExceededError(explain(entry, refusal, book.facts, self.entries())) from refusal

    def would_grant(self, costs: Iterable[Any]) -> int:
        """Return how many of these costs, spent in this order, would be granted now. Nothing is charged.

        Parameters
        ----------
        costs : iterable
            Each a Cost, a pair of a Cost and the ``delta`` that its spend will name, or an object with attributes
            ``cost`` and ``delta`` such as a planned fit.

        Examples
        --------
        >>> from dpskl.accounting import PureCost
        >>> PrivacyAccountant(epsilon=1.0, delta=0).would_grant([PureCost(0.4)] * 3)
        2
        """
        book = self._current()
        with book.lock:
            tally = copy.deepcopy(book.tally)
        granted = 0
        for item in costs:
            cost, delta = _cost_and_delta(item)
            try:
                tally.check(cost, self._cell, delta)
            except FilterRefusal:
                break
            tally.record(cost, self._cell, delta)
            granted += 1
        return granted

    def labelled(self, label: str) -> PrivacyAccountant:
        """Return a handle on the same ledger that writes ``label`` into its entries, so that fits can be told apart.

        Examples
        --------
        >>> from dpskl import DPLogisticRegression
        >>> accountant = PrivacyAccountant()
        >>> model = DPLogisticRegression(accountant=accountant.labelled("pilot"), classes=[0, 1], random_state=None)
        >>> _ = model.fit([[0.0], [1.0]], [0, 1])
        >>> accountant.entries()[0].label
        'pilot'
        """
        return _reopen(self.path, self._facts, self._cell, str(label))

    def _on_cell(self, cell: Cell) -> PrivacyAccountant:
        return _reopen(self.path, self._facts, cell, self._label)

    def partition(self, label: str) -> Partition:
        """Return handles for disjoint parts of the records, whose spends do not add up.

        Parameters
        ----------
        label : str
            Name of what divides the records, such as ``"site"``. That the parts are disjoint, and that no record
            moves between them, is declared by the user and not checked. The number of records of each cell becomes
            public: it is in its entries and guarantees. Divide by what may be known of everybody, such as a site or a
            year, and not by a diagnosis or a label, whose counts are a release that nothing here covers.

        Examples
        --------
        >>> from dpskl.accounting import PureCost
        >>> accountant = PrivacyAccountant(epsilon=1.0, delta=0)
        >>> with accountant.partition("site") as site:
        ...     site["north"].spend(PureCost(1.0))
        ...     site["south"].spend(PureCost(1.0))
        >>> accountant.spent()
        Spent(epsilon=1.0, delta=0)
        """
        if self._cell is not None:
            raise ValueError("a cell of a partition cannot be divided further; use one partition with finer cells")
        return Partition(self, label)


def _checked_delta(delta: float | None) -> float | None:
    if delta is None:
        return None
    if not isinstance(delta, Real) or isinstance(delta, bool) or not 0 <= delta < 1:
        raise ValueError(f"delta={delta!r} must lie in [0, 1), or be None for the delta of the ceiling")
    return float(delta)


def _cost_and_delta(item: Any) -> tuple[Cost, float | None]:
    cost, delta = (
        (item, None) if isinstance(item, Cost) else item if isinstance(item, tuple) else (item.cost, item.delta)
    )
    return cost, _checked_delta(delta)
