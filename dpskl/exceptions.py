"""Errors and warnings that a user of dpskl can meet."""

from __future__ import annotations

__all__ = [
    "BudgetExceededError",
    "LedgerFormatError",
    "LedgerNotFoundError",
    "NoPrivacyWarning",
    "PrivacyLeakWarning",
    "SeededNoiseWarning",
    "WeakPrivacyWarning",
    "WeakSignalWarning",
]


class BudgetExceededError(ValueError):
    """A spend was refused: the ceiling of the accountant does not allow it.

    Raised before the data are used, so that nothing was learnt and nothing was charged.
    """


class LedgerNotFoundError(LookupError):
    """The ledger behind a :class:`~dpskl.PrivacyAccountant` cannot be reached.

    A handle can be printed anywhere, but it spends only where its file is: it fails closed instead of starting
    a second, empty ledger.
    """


class LedgerFormatError(ValueError):
    """What is at the path of a ledger is none, or one that this version cannot read."""


class PrivacyLeakWarning(UserWarning):
    """Something was read from the data that the guarantee takes to be public."""


class SeededNoiseWarning(UserWarning):
    """The noise can be reproduced from a seed, so the fit is for tests and not for release."""


class NoPrivacyWarning(UserWarning):
    """The fit makes no privacy claim at all (``epsilon=inf``)."""


class WeakPrivacyWarning(UserWarning):
    """The requested budget is legal but protects little."""


class WeakSignalWarning(UserWarning):
    """The budget is so small for the size of the data that noise outweighs what could be learnt."""
