"""The accountant: a handle on a ledger of spends that says (epsilon, delta) and refuses what exceeds its ceiling."""

from __future__ import annotations

import copy
import os
import threading
import time
import weakref
from collections.abc import Iterable
from math import inf
from pathlib import Path
from typing import Any

from dpskl._version import __version__
from dpskl.accounting.costs import Cost
from dpskl.budget.book import NEIGHBOURS, Book, checked_facts, temporary_path
from dpskl.budget.filters import FilterRefusal
from dpskl.budget.ledger import Ledger
from dpskl.budget.report import Entry, PrivacyReport, at
from dpskl.budget.tally import COMPOSITIONS, Cell, Spent, Tally
from dpskl.exceptions import BudgetExceededError, LedgerNotFoundError

__all__ = ["Partition", "PrivacyAccountant"]

PathLike = str | os.PathLike[str]


# One book for each ledger and one handle for each view of it, as long as somebody holds them.
_BOOKS: weakref.WeakValueDictionary[tuple[str, str], Book] = weakref.WeakValueDictionary()
_HANDLES: weakref.WeakValueDictionary[tuple[Any, ...], PrivacyAccountant] = weakref.WeakValueDictionary()
_REGISTRY_LOCK = threading.RLock()


def _after_fork_in_child() -> None:
    global _REGISTRY_LOCK
    _REGISTRY_LOCK = threading.RLock()  # another thread of the parent may have held it


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


class PrivacyAccountant:
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

    @property
    def epsilon(self) -> float:
        """Ceiling."""
        return float(self._facts["epsilon"])

    @property
    def delta(self) -> float:
        """Delta of the ceiling."""
        return float(self._facts["delta"])

    @property
    def composition(self) -> str:
        """How spends count against the ceiling."""
        return str(self._facts["composition"])

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

    def __len__(self) -> int:
        return len(self.entries())

    def __bool__(self) -> bool:
        return True

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
        book = _BOOKS[facts["id"], self.path] = Book(ledger, facts)
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

        Raises
        ------
        BudgetExceededError
            If the ceiling does not allow it; nothing is charged then.
        LedgerNotFoundError
            If the file of the ledger is gone.
        ValueError
            If the neighbour relation is not that of the ledger.
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
        )
        try:
            self._open_book().spend(entry)
        except FilterRefusal as refusal:
            raise BudgetExceededError(self._refused(cost, refusal)) from refusal

    def _refused(self, cost: Cost, refusal: FilterRefusal) -> str:
        if refusal.charged == inf:
            reason = f"{self.composition!r} composition has no finite measure of it"
        else:
            charged, left = f"{refusal.charged:.4g}", f"{refusal.remaining:.4g}"
            reason = f"{self.composition!r} composition charges {charged} of {left} left"
        others = [name for name in COMPOSITIONS if name != self.composition and self._would_admit(name, cost)]
        if others:
            reason += f"; {' or '.join(map(repr, others))} composition, chosen from the start, would have admitted it"
        remedy = "ask for delta=0" if self.delta == 0 else "ask for a smaller epsilon"
        return (
            f"{at(cost.epsilon(self.delta), self.delta)} exceeds what is left of the ceiling of "
            f"{at(self.epsilon, self.delta)}: {reason}. Nothing was charged and no data were used; {remedy} or raise "
            "the ceiling"
        )

    def _would_admit(self, composition: str, cost: Cost) -> bool:
        if self.delta == 0:
            return False
        tally = Tally(composition, self.epsilon, self.delta)
        try:
            for entry in self.entries():
                tally.check(entry.cost, entry.partition)
                tally.record(entry.cost, entry.partition)
            tally.check(cost, self._cell)
        except FilterRefusal:
            return False
        return True

    def would_grant(self, costs: Iterable[Cost]) -> int:
        """Return how many of these costs, spent in this order, would be granted now. Nothing is charged.

        Parameters
        ----------
        costs : iterable of Cost

        Examples
        --------
        >>> from dpskl.accounting import PureCost
        >>> PrivacyAccountant(epsilon=1.0, delta=0).would_grant([PureCost(0.4)] * 3)
        2
        """
        book = self._current()
        with book.ledger.lock:
            tally = copy.deepcopy(book.tally)
        granted = 0
        for granted, cost in enumerate(costs, start=1):
            try:
                tally.check(cost, self._cell)
            except FilterRefusal:
                return granted - 1
            tally.record(cost, self._cell)
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

    def partition(self, label: str) -> Partition:
        """Return handles for disjoint parts of the records, whose spends do not add up.

        Parameters
        ----------
        label : str
            Name of what divides the records, such as ``"site"``. That the parts are disjoint, and that no record
            moves between them, is declared by the user and not checked.

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

    # -- reading --------------------------------------------------------------------------------------------

    def _current(self) -> Book:
        book = self._open_book()
        book.catch_up()
        return book

    def entries(self) -> tuple[Entry, ...]:
        """Return all spends of the ledger in their order."""
        return tuple(self._current().entries)

    def spent(self, delta: float | None = None) -> Spent:
        """Return the composition of all spends, as tight as their costs allow.

        It presumes that the costs were fixed in advance. The ceiling makes no such assumption.

        Parameters
        ----------
        delta : float, optional
            Where to state epsilon; default the delta of the ceiling.
        """
        book = self._current()
        with book.ledger.lock:
            return book.tally.spent(self._facts["delta"] if delta is None else delta)

    def remaining(self) -> Spent:
        """Return what can still be spent.

        With ``"basic"`` the difference of sums. Otherwise the epsilon, at the ledger's delta, of the largest
        single Gaussian release that would be granted now, such as a fit with ``solver="gd"``. Objective perturbation
        costs more in these measures than its epsilon tells, and may be granted less.
        """
        book = self._current()
        with book.ledger.lock:
            return book.tally.remaining()

    def report(self) -> PrivacyReport:
        """Return spends, total and ceiling: to be printed, shown in a notebook, or turned into JSON by ``to_dict``."""
        entries = self.entries()
        return PrivacyReport(
            self.spent(),
            self.remaining(),
            Spent(self.epsilon, self.delta),
            self.composition,
            self._open_book().neighbours,
            entries,
            self.path,
        )

    def verify(self) -> bool:
        """Return whether no entry of the ledger was changed or removed since it was written."""
        return self._open_book().ledger.verify()


class Partition:
    """Cells of a partition of the records: ``partition[name]`` is an accountant for the records of that cell."""

    def __init__(self, accountant: PrivacyAccountant, label: str) -> None:
        self.accountant, self.label = accountant, label

    def __getitem__(self, name: Any) -> PrivacyAccountant:
        accountant = self.accountant
        return _reopen(accountant.path, accountant._facts, (self.label, str(name)), accountant._label)

    def __enter__(self) -> Partition:
        return self

    def __exit__(self, *details: object) -> None:
        """Nothing is held open."""
