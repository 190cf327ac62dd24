"""A ledger with a few spends."""

from dpskl import PrivacyAccountant
from dpskl.accounting import PureCost

ONE = PureCost(0.1)


def ledger(path, spends=3, **ceiling):
    accountant = PrivacyAccountant.create(path, **ceiling)
    for _ in range(spends):
        accountant.spend(ONE)
    return accountant
