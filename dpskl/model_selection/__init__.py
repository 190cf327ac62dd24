"""Searches over hyper-parameters: what they cost before they run, and how they keep a budget.

``GridSearchCV`` works with the classifiers of this package, and every one of its fits is charged.
:func:`plan_cost` says in advance what that adds up to, :class:`BudgetedSearchCV` refuses to begin what the ledger
would not let it finish, and :class:`PrivateSearchCV` charges one release for a whole search.
"""

from dpskl.model_selection.budgeted import BudgetedSearchCV
from dpskl.model_selection.plan import SearchPlan, plan_cost
from dpskl.model_selection.private import PrivateSearchCV

__all__ = ["BudgetedSearchCV", "PrivateSearchCV", "SearchPlan", "plan_cost"]
