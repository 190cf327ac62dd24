"""Differentially private linear classifiers for scikit-learn.

An estimator declares public facts, a solver plans a cost from them, the accountant grants it, a curator answers the
solver's noisy questions about the data, and the answers become coefficients.
"""

from dpskl._version import __version__
from dpskl.budget import PrivacyAccountant
from dpskl.exceptions import (
    BudgetExceededError,
    LedgerFormatError,
    LedgerNotFoundError,
    NoPrivacyWarning,
    PrivacyLeakWarning,
    SeededNoiseWarning,
    WeakPrivacyWarning,
    WeakSignalWarning,
)
from dpskl.guarantee import PrivacyGuarantee
from dpskl.linear_model import DPHuberSVC, DPLinearSVC, DPLogisticRegression

__all__ = [
    "BudgetExceededError",
    "DPHuberSVC",
    "DPLinearSVC",
    "DPLogisticRegression",
    "LedgerFormatError",
    "LedgerNotFoundError",
    "NoPrivacyWarning",
    "PrivacyAccountant",
    "PrivacyGuarantee",
    "PrivacyLeakWarning",
    "SeededNoiseWarning",
    "WeakPrivacyWarning",
    "WeakSignalWarning",
    "__version__",
]
