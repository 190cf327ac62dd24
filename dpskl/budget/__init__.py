"""State: who may spend, and what was spent."""

from dpskl.budget.accountant import PrivacyAccountant
from dpskl.budget.curve_filter import CurveFilter
from dpskl.budget.filters import BasicFilter, Filter, FilterRefusal, GDPFilter, RDPFilter
from dpskl.budget.partition import Partition
from dpskl.budget.report import Entry, PrivacyReport
from dpskl.budget.tally import Spent
from dpskl.budget.token_pool import TokenPool, UnplannedQuestionError

__all__ = [
    "BasicFilter",
    "CurveFilter",
    "Entry",
    "Filter",
    "FilterRefusal",
    "GDPFilter",
    "Partition",
    "PrivacyAccountant",
    "PrivacyReport",
    "RDPFilter",
    "Spent",
    "TokenPool",
    "UnplannedQuestionError",
]
