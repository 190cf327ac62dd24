"""Disjoint parts of the records, each with a handle on the same ledger."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dpskl.budget.accountant import PrivacyAccountant

__all__ = ["Partition"]


class Partition:
    """Cells of a partition of the records: ``partition[name]`` is an accountant for the records of that cell."""

    def __init__(self, accountant: PrivacyAccountant, label: str) -> None:
        self.accountant, self.label = accountant, label

    def __getitem__(self, name: Any) -> PrivacyAccountant:
        return self.accountant._on_cell((self.label, str(name)))

    def __enter__(self) -> Partition:
        return self

    def __exit__(self, *details: object) -> None:
        """Nothing is held open."""
