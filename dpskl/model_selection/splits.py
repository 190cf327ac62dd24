"""Splits of the rows: how many of them are trained on, and whether one record can move others."""

from __future__ import annotations

import copy
import secrets
from numbers import Integral
from typing import Any

import numpy as np
from sklearn.model_selection import (
    KFold,
    LeaveOneOut,
    LeavePOut,
    PredefinedSplit,
    RepeatedKFold,
    RepeatedStratifiedKFold,
    ShuffleSplit,
    StratifiedKFold,
    StratifiedShuffleSplit,
    TimeSeriesSplit,
    check_cv,
)

__all__ = ["hand_made", "position_splitter", "stratified", "training_sizes"]

_BY_POSITION = (KFold, LeaveOneOut, LeavePOut, PredefinedSplit, RepeatedKFold, ShuffleSplit, TimeSeriesSplit)
_BY_LABEL = (RepeatedStratifiedKFold, StratifiedKFold, StratifiedShuffleSplit)
_DEFAULT_FOLDS = 5


def _is_number(cv: Any) -> bool:
    return cv is None or isinstance(cv, Integral)


def training_sizes(cv: Any, n_samples: int) -> list[int]:
    """Return the sizes of the training parts, which are the same whether or not the split looks at labels."""
    if isinstance(cv, list | tuple):
        rows = np.arange(n_samples)
        trained = [rows[np.asarray(train)] for train, _ in cv]
        for number, part in enumerate(trained):
            if len(np.unique(part)) < len(part):
                raise ValueError(
                    f"the training part of fold {number} of cv= has a row several times: one record would enter a fit "
                    "several times, which the cost of that fit does not cover; list each row once"
                )
        return [len(part) for part in trained]
    if not (_is_number(cv) or type(cv) in _BY_POSITION + _BY_LABEL):
        raise TypeError(
            f"the sizes of the folds of cv={type(cv).__name__} are not known in advance; give a splitter that looks at "
            "neither labels nor groups, such as KFold(5, shuffle=True), or a list of (train, test) pairs that were "
            "chosen without looking at the records"
        )
    splitter = copy.deepcopy(check_cv(cv))  # a splitter with a RandomState would be advanced
    return [len(train) for train, _ in splitter.split(np.zeros((n_samples, 1)), np.zeros(n_samples, dtype=int))]


def stratified(tool: str, cv: Any) -> tuple[str, ...]:
    """Say so, and what to do, where a tool of scikit-learn would split a classifier's records by their labels."""
    if not (_is_number(cv) or type(cv) in _BY_LABEL):
        return ()
    return (
        f"{tool} with cv={_in_one_line(cv)} stratifies: it splits by all labels, so that one record moves others in "
        f"and out of fits, which are charged for one; set cv={_remedy(cv)}",
    )


def hand_made(tool: str, cv: Any) -> tuple[str, ...]:
    """Say what a list of folds rests on."""
    if isinstance(cv, list | tuple | PredefinedSplit):
        return (f"the folds that {tool} is given by cv=, where they were chosen by looking at the records",)
    return ()


def _in_one_line(cv: Any) -> str:
    return " ".join(repr(cv).split())


def _remedy(cv: Any) -> str:
    if isinstance(cv, StratifiedShuffleSplit):
        return f"ShuffleSplit({cv.n_splits}, test_size={cv.test_size!r})"
    if isinstance(cv, RepeatedStratifiedKFold):
        return f"RepeatedKFold(n_splits={cv.cvargs['n_splits']}, n_repeats={cv.n_repeats})"
    n_splits = cv.n_splits if isinstance(cv, StratifiedKFold) else _DEFAULT_FOLDS if cv is None else int(cv)
    return f"KFold({n_splits}, shuffle=True)"


def position_splitter(cv: Any) -> Any:
    """Return a splitter that looks at positions only: for a number, folds that are drawn anew.

    The draw comes from the operating system, is public, and has nothing to do with the noise of the fits.
    """
    if type(cv) in _BY_LABEL:
        raise ValueError(
            f"cv={_in_one_line(cv)} splits by all labels, so that one record would move others in and out of fits, "
            f"which are charged for one; set cv={_remedy(cv)}"
        )
    if _is_number(cv):
        n_splits = _DEFAULT_FOLDS if cv is None else int(cv)
        return KFold(n_splits, shuffle=True, random_state=secrets.randbelow(2**32))
    return cv
