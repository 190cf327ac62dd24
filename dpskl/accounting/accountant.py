"""The accountant: a handle on a ledger of spends that says (epsilon, delta) and refuses what exceeds its ceiling."""

from __future__ import annotations

import os
import threading
import time
import uuid
from dataclasses import dataclass, field
from itertools import groupby
from math import inf, isnan, sqrt
from typing import Any, NamedTuple

from dpskl._version import __version__
from dpskl.accounting.conversion import gaussian_epsilon
from dpskl.accounting.costs import Cost, compose
from dpskl.accounting.filters import BasicFilter, Filter, FilterRefusal, GDPFilter, RDPFilter
from dpskl.exceptions import BudgetExceededError, LedgerNotFoundError

__all__ = ["Entry", "PrivacyAccountant", "PrivacyReport", "Spent"]

_FILTERS: dict[str, type[Filter]] = {"rdp": RDPFilter, "basic": BasicFilter, "gdp": GDPFilter}


class Spent(NamedTuple):
    """An (epsilon, delta) pair."""

    epsilon: float
    delta: float


@dataclass(frozen=True)
class Entry:
    """One spend, as it was charged.

    Attributes
    ----------
    index : int
        Position in the ledger, from 0.
    cost : Cost
    neighbours : str
    solver, estimator, label : str or None
    n_samples : int or None
        Public number of records.
    is_seeded : bool
        Whether the noise came from a seed; the guarantee of such an entry is void.
    time : float
        Seconds since the epoch.
    process : int
    version : str
        Of dpskl.
    """

    index: int
    cost: Cost
    neighbours: str
    solver: str | None
    estimator: str | None
    label: str | None
    n_samples: int | None
    is_seeded: bool
    time: float
    process: int
    version: str

    def to_dict(self) -> dict[str, Any]:
        """Return a dictionary that ``json.dumps`` takes."""
        return {**self.__dict__, "cost": self.cost.to_dict()}


@dataclass(frozen=True)
class PrivacyReport:
    """What a ledger says of itself; ``print`` shows the text.

    Attributes
    ----------
    spent : Spent
        Composition of the entries, as tight as their costs allow.
    ceiling : Spent
    composition, neighbours : str
    entries : tuple of Entry
    """

    spent: Spent
    ceiling: Spent
    composition: str
    neighbours: str | None
    entries: tuple[Entry, ...]

    def to_dict(self) -> dict[str, Any]:
        """Return a dictionary that ``json.dumps`` takes (an infinite epsilon becomes the string ``"inf"``)."""
        return {
            "epsilon": _plain(self.spent.epsilon),
            "delta": self.spent.delta,
            "ceiling": {"epsilon": _plain(self.ceiling.epsilon), "delta": self.ceiling.delta},
            "composition": self.composition,
            "neighbours": self.neighbours,
            "holds": not any(entry.is_seeded for entry in self.entries),
            "entries": [entry.to_dict() for entry in self.entries],
        }

    def __str__(self) -> str:
        count = len(self.entries)
        ceiling = f"a ceiling of {_at(*self.ceiling)} by {self.composition!r} composition"
        lines = [
            f"{count} {'spend' if count == 1 else 'spends'}, together {_at(*self.spent)}",
            f"{ceiling if self.ceiling.epsilon < inf else 'no ceiling'}, "
            f"neighbours {self.neighbours or 'not fixed yet'}",
        ]
        if len({entry.cost for entry in self.entries}) > 1:
            lines.append("(the total holds if every cost was fixed before the first result was seen)")
        if any(entry.is_seeded for entry in self.entries):
            lines.append("NO GUARANTEE HOLDS for entries marked 'seeded': their noise can be reproduced")
        for line, alike in groupby(self.entries, self._line):
            lines.append(f"  {len(list(alike))} x {line}")
        return "\n".join(lines)

    def _line(self, entry: Entry) -> str:
        words = [entry.label, entry.estimator, entry.solver, f"n={entry.n_samples}" if entry.n_samples else None]
        words.append("seeded" if entry.is_seeded else None)
        facts = ", ".join(word for word in words if word)
        own = _at(entry.cost.epsilon(self.spent.delta), self.spent.delta)
        return f"{own} by {facts}" if facts else own

    __repr__ = __str__


def _at(epsilon: float, delta: float) -> str:
    return f"epsilon = {epsilon:.6g} at delta = {delta:g}"


def _plain(number: float) -> float | str:
    return "inf" if number == inf else number


def _remaining(rule: Filter) -> Spent:
    """Return what a rule still admits; for the Gaussian ones as the epsilon of one Gaussian release."""
    if isinstance(rule, BasicFilter):
        return Spent(rule.remaining, rule.delta_remaining)
    if rule.remaining == inf:
        return Spent(inf, rule.delta)
    square = 2 * rule.remaining / rule.order.alpha if isinstance(rule, RDPFilter) else rule.remaining
    return Spent(gaussian_epsilon(sqrt(square), rule.delta), rule.delta)


@dataclass
class _Ledger:
    filter: Filter
    process: int = field(default_factory=os.getpid)
    neighbours: str | None = None
    entries: list[Entry] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)


# Ledgers live as long as the process: a handle that comes back from a pickle must find its own.
_LEDGERS: dict[str, _Ledger] = {}
_HANDLES: dict[str, PrivacyAccountant] = {}


def _reopen(key: str, epsilon: float, delta: float, composition: str) -> PrivacyAccountant:
    known = _HANDLES.get(key)
    if known is not None:
        return known
    handle = object.__new__(PrivacyAccountant)
    handle._fill(key, epsilon, delta, composition)
    return handle


class PrivacyAccountant:
    """A handle on a ledger of privacy spends, with an optional ceiling.

    Copies, clones and pickles of a handle all reach the same ledger, so that one total stays right through
    ``clone``, pipelines and searches. The ledger lives in the process that made it: in another process, such as a
    worker of ``n_jobs=2``, a handle can be printed, and ``spend`` raises instead of counting where nobody looks.

    Parameters
    ----------
    epsilon : float, default=inf
        Ceiling, positive. ``inf`` records and never refuses.
    delta : float, default=1e-6
        Delta of the ceiling, in [0, 1). 0 admits pure costs only and implies ``composition="basic"``.
    composition : {"rdp", "basic", "gdp"}, default="rdp"
        How spends count against the ceiling. Each rule is valid although later costs may be chosen after
        seeing earlier results: Renyi divergence at one order that is fixed here, sums of epsilon and delta,
        or Gaussian differential privacy (Gaussian costs only).

    Raises
    ------
    ValueError
        If a parameter is out of range.

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

    epsilon: float
    delta: float
    composition: str

    def __init__(self, epsilon: float = inf, delta: float = 1e-6, *, composition: str = "rdp") -> None:
        if isnan(epsilon) or epsilon <= 0:
            raise ValueError(f"epsilon={epsilon!r} must be a positive number; inf records without a ceiling")
        if not 0 <= delta < 1:
            raise ValueError(f"delta={delta!r} must lie in [0, 1); 0 admits pure costs only")
        if composition not in _FILTERS:
            raise ValueError(f"composition={composition!r} must be one of {', '.join(map(repr, _FILTERS))}")
        self._fill(uuid.uuid4().hex, epsilon, delta, "basic" if delta == 0 else composition)
        _LEDGERS[self._key] = _Ledger(_FILTERS[self.composition](epsilon, delta))
        _HANDLES[self._key] = self

    def _fill(self, key: str, epsilon: float, delta: float, composition: str) -> None:
        self._key, self.epsilon, self.delta, self.composition = key, epsilon, delta, composition

    # -- a handle: whatever copies it, there is one ledger ----------------------------------------------

    def __copy__(self) -> PrivacyAccountant:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> PrivacyAccountant:
        return self

    def __sklearn_clone__(self) -> PrivacyAccountant:
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        return _reopen, (self._key, self.epsilon, self.delta, self.composition)

    def __repr__(self) -> str:
        # constant under spends: joblib hashes and scikit-learn compares parameters by what they print
        return f"PrivacyAccountant(epsilon={self.epsilon!r}, delta={self.delta!r}, composition={self.composition!r})"

    def __len__(self) -> int:
        return len(self._ledger().entries)

    def __bool__(self) -> bool:
        return True

    def _ledger(self) -> _Ledger:
        ledger = _LEDGERS.get(self._key)
        if ledger is None or ledger.process != os.getpid():
            raise LedgerNotFoundError(
                f"the ledger of {self!r} lives in the memory of the process that made it, which this is not; "
                "fit in that process (n_jobs=1, or joblib's threading backend)"
            )
        return ledger

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
            If the ledger lives in another process.
        ValueError
            If the neighbour relation is not that of the ledger.
        """
        ledger = self._ledger()
        with ledger.lock:
            if ledger.neighbours not in (None, neighbours):
                raise ValueError(
                    f"neighbours={neighbours!r}, but this ledger counts for {ledger.neighbours!r}; "
                    "costs under two relations have no common total, use one accountant for each"
                )
            self._charge(ledger, cost)
            ledger.neighbours = neighbours
            ledger.entries.append(
                Entry(
                    index=len(ledger.entries),
                    cost=cost,
                    neighbours=neighbours,
                    solver=solver,
                    estimator=estimator,
                    label=label,
                    n_samples=n_samples,
                    is_seeded=is_seeded,
                    time=time.time(),
                    process=os.getpid(),
                    version=__version__,
                )
            )

    def _charge(self, ledger: _Ledger, cost: Cost) -> None:
        # The first cost was chosen before anything was seen, so its own exact curve decides; the rule of the
        # ledger goes on counting it in its own measure.
        if not ledger.entries and cost.delta(self.epsilon) <= self.delta * (1 + 1e-9):
            ledger.filter.record(cost)
            return
        try:
            ledger.filter.spend(cost)
        except FilterRefusal as refusal:
            raise BudgetExceededError(
                f"{_at(cost.epsilon(self.delta), self.delta)} exceeds what is left of the ceiling of "
                f"{_at(self.epsilon, self.delta)}: {self._reason(refusal, ledger.filter)}. Nothing was charged and no "
                f"data were used; {'ask for delta=0' if self.delta == 0 else 'ask for a smaller epsilon'} or raise the "
                "ceiling"
            ) from refusal

    def _reason(self, refusal: FilterRefusal, rule: Filter) -> str:
        if refusal.charged == inf:
            return f"{self.composition!r} composition has no finite measure of it"
        charged, left = f"{refusal.charged:.4g}", f"{refusal.remaining:.4g}"
        return f"{self.composition!r} composition charges {charged} of {left} left ({rule.measure})"

    # -- reading --------------------------------------------------------------------------------------------

    def entries(self) -> tuple[Entry, ...]:
        """Return the spends in their order."""
        return tuple(self._ledger().entries)

    def spent(self, delta: float | None = None) -> Spent:
        """Return the composition of all spends, as tight as their costs allow.

        It presumes that the costs were fixed in advance. The ceiling makes no such assumption.

        Parameters
        ----------
        delta : float, optional
            Where to state epsilon; default the delta of the ceiling.
        """
        delta = self.delta if delta is None else delta
        return Spent(compose(entry.cost for entry in self.entries()).epsilon(delta), delta)

    def remaining(self) -> Spent:
        """Return what can still be spent.

        With ``"basic"`` the difference of sums. Otherwise the epsilon, at the ledger's delta, of the largest
        single Gaussian release that would be granted now, such as a fit with ``solver="gd"``. Objective perturbation
        costs more in these measures than its epsilon tells, and may be granted less.
        """
        ledger = self._ledger()
        if not ledger.entries:
            return Spent(self.epsilon, self.delta)
        return _remaining(ledger.filter)

    def report(self) -> PrivacyReport:
        """Return spends, total and ceiling, to be printed or turned into JSON by ``to_dict``."""
        ledger = self._ledger()
        return PrivacyReport(
            self.spent(), Spent(self.epsilon, self.delta), self.composition, ledger.neighbours, self.entries()
        )
