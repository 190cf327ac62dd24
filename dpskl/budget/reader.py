"""What a handle can say of its ledger without changing it."""

from __future__ import annotations

import os
import time
from typing import Any

from dpskl.accounting.costs import worst_cost
from dpskl.accounting.group import group_epsilon
from dpskl.budget.book import Book
from dpskl.budget.odometer import odometer
from dpskl.budget.report import Entry, PrivacyReport
from dpskl.budget.tally import Spent

__all__ = ["LedgerReader", "PathLike"]

PathLike = str | os.PathLike[str]


class LedgerReader:
    """The half of an accountant that an auditor needs: it works where the file can be read only."""

    path: str
    _facts: dict[str, Any]

    def _open_book(self) -> Book:
        raise NotImplementedError

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

    def __len__(self) -> int:
        return len(self.entries())

    def _current(self) -> Book:
        book = self._open_book()
        book.catch_up()
        return book

    def entries(self) -> tuple[Entry, ...]:
        """Return all spends of the ledger in their order."""
        return tuple(self._current().entries)

    def spent(self, delta: float | None = None) -> Spent:
        """Return the composition of all spends, as tight as their costs allow.

        It presumes that the costs *and the number* of the spends were fixed in advance. Where a result decided what
        came next, or that nothing came, it is too small, also if all costs are equal: use :meth:`odometer`. The
        ceiling makes no such assumption.

        Parameters
        ----------
        delta : float, optional
            Where to state epsilon; default the delta of the ceiling.
        """
        book = self._current()
        with book.lock:
            return book.tally.spent(self._facts["delta"] if delta is None else delta)

    def odometer(self, delta: float | None = None) -> Spent:
        """Return what all spends cost, valid whatever decided on them and on when they ended.

        For every set of outcomes at which the epsilon returned is at most ``e``, ``P(S) <= exp(e) P'(S) + delta``. It
        needs no ceiling, is some 30 % above :meth:`spent` at a delta of 1e-6, and ``inf`` beyond an epsilon of 94;
        ``dpskl.budget.odometer`` has the proof.

        Parameters
        ----------
        delta : float, optional
            Where to state epsilon; default the delta of the ceiling.

        Examples
        --------
        >>> from dpskl import PrivacyAccountant
        >>> from dpskl.accounting import GaussianCost
        >>> accountant = PrivacyAccountant()
        >>> for _ in range(10):
        ...     accountant.spend(GaussianCost(0.05))
        >>> round(accountant.spent().epsilon, 3), round(accountant.odometer().epsilon, 3)
        (0.648, 0.882)
        """
        book = self._current()
        delta = self._facts["delta"] if delta is None else delta
        with book.lock:
            return Spent(odometer(book.tally.totals(), delta), delta)

    def for_group(self, k: int, delta: float | None = None) -> Spent:
        """Return what all spends cost somebody with ``k`` records; with Gaussian noise much more than ``k`` times.

        Parameters
        ----------
        k : int
            Number of records of one person, at least 1.
        delta : float, optional
            Where to state epsilon; default the delta of the ceiling.

        Notes
        -----
        :func:`dpskl.accounting.group_epsilon` of the total. With partitions the records may lie in several cells, so
        each is taken to be where most was spent: every link of the chain costs the largest of the totals, at every
        epsilon.
        Like :meth:`spent` it presumes that the spends were fixed in advance.

        Examples
        --------
        >>> from dpskl import PrivacyAccountant
        >>> from dpskl.accounting import GaussianCost
        >>> accountant = PrivacyAccountant()
        >>> accountant.spend(GaussianCost(0.236704381))
        >>> [round(accountant.for_group(k).epsilon, 2) for k in (1, 5, 20)]
        [1.0, 5.93, 33.02]
        """
        book = self._current()
        delta = self._facts["delta"] if delta is None else delta
        with book.lock:
            return Spent(group_epsilon(worst_cost(book.tally.totals()), k, delta), delta)

    def remaining(self) -> Spent:
        """Return what can still be spent.

        With ``"basic"`` the difference of sums. Otherwise the epsilon, at the ledger's delta, of the largest
        single Gaussian release that would be granted now, such as a fit with ``solver="gd"``. Objective perturbation
        costs more in these measures than its epsilon tells, and may be granted less.
        """
        book = self._current()
        with book.lock:
            return book.tally.remaining()

    def report(self) -> PrivacyReport:
        """Return spends, total and ceiling: to be printed, shown in a notebook, or turned into JSON by ``to_dict``."""
        book, delta = self._current(), self._facts["delta"]
        with book.lock:  # one moment for all figures
            tally = book.tally
            return PrivacyReport(
                spent=tally.spent(delta),
                remaining=tally.remaining(),
                ceiling=Spent(self.epsilon, delta),
                composition=self.composition,
                neighbours=book.neighbours,
                entries=tuple(book.entries),
                path=self.path,
                adaptive=tally.adaptive() or Spent(odometer(tally.totals(), delta), delta),
                is_verified=self.verify(),
                id=self._facts["id"],
                time=time.time(),
            )

    def verify(self) -> bool:
        """Return whether no entry of the ledger was changed or removed since it was written."""
        return self._open_book().ledger.verify()

    def backup(self, path: PathLike) -> None:
        """Write a whole, verified copy of the ledger to ``path``, at any time, while others spend.

        It is for reading: ``open``, ``entries``, ``report`` and ``verify`` work, and a spend raises PermissionError.
        It has the same id as the original, and two ledgers that go on from one another forget each other's
        spends. Should the original be lost, move the backup to its place: there it goes on, and what was spent since
        the backup was made is forgotten. A copy made by other tools is whole too, but not told from the
        original: never spend on both.

        Parameters
        ----------
        path : path-like
            Never overwritten.

        Raises
        ------
        FileExistsError
            If there is something at ``path``.
        LedgerFormatError
            If this ledger does not verify. Nothing is written then.
        """
        self._open_book().ledger.backup(path)
