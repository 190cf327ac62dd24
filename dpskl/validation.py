"""What can be wrong with parameters and data, found and said before any budget is spent."""

from __future__ import annotations

import numbers
import warnings
from math import inf
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.utils import assert_all_finite
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import validate_data

from dpskl.accounting._numeric import SMALLEST_EPSILON
from dpskl.budget import PrivacyAccountant
from dpskl.exceptions import NoPrivacyWarning, PrivacyLeakWarning, WeakPrivacyWarning
from dpskl.mechanisms.sensitivity import NEIGHBOURS
from dpskl.records.rows import row_norms

__all__ = [
    "check_budget",
    "check_parameters",
    "check_positive",
    "encode_labels",
    "find_data_norm",
    "validate_rows",
    "validate_training_data",
    "warn_of_weak_claims",
]

Array = np.ndarray[Any, Any]

_WEAK_EPSILON = 20.0
# Fourth powers times millions of records neither overflow nor vanish, nor do single precision losses.
_NORM_RANGE = (1e-15, 1e15)
_SMALLEST_C = 1e-300


def _is_real(value: Any) -> bool:
    return isinstance(value, numbers.Real) and not isinstance(value, bool) and value == value


def _require(condition: bool, name: str, value: Any, rule: str) -> None:
    if not condition:
        raise ValueError(f"{name}={value!r}, but it must be {rule}")


def check_positive(name: str, value: Any) -> None:
    """Raise ValueError unless ``value`` is a positive finite number."""
    _require(_is_real(value) and 0 < value < inf, name, value, "a positive finite number")


def check_budget(estimator: Any) -> None:
    """Raise ValueError for a budget, relation or accountant that no fit could use, naming it and the remedy."""
    epsilon, delta = estimator.epsilon, estimator.delta
    _require(
        _is_real(epsilon) and epsilon >= SMALLEST_EPSILON,
        "epsilon",
        epsilon,
        f"a number of at least {SMALLEST_EPSILON:g}, in each trial of a search too; "
        'float("inf") asks for no noise and no guarantee',
    )
    _require(
        _is_real(delta) and 0 <= delta < 1,
        "delta",
        delta,
        "in [0, 1), and far below 1/n; 0 asks for pure differential privacy",
    )
    _require(
        isinstance(estimator.neighbours, str) and estimator.neighbours in NEIGHBOURS,
        "neighbours",
        estimator.neighbours,
        "one of " + ", ".join(map(repr, NEIGHBOURS)),
    )
    _require(
        estimator.accountant is None or isinstance(estimator.accountant, PrivacyAccountant),
        "accountant",
        estimator.accountant,
        "None or a dpskl.PrivacyAccountant",
    )


def check_parameters(estimator: Any) -> None:
    """Raise ValueError for a parameter that no fit of a linear classifier could use; see :func:`check_budget`."""
    check_budget(estimator)
    _require(
        _is_real(estimator.C) and _SMALLEST_C <= estimator.C < inf,
        "C",
        estimator.C,
        f"a finite number of at least {_SMALLEST_C:g}; a large one asks for next to no penalty",
    )
    for name in ("fit_intercept", "verbose"):
        value = getattr(estimator, name)
        _require(isinstance(value, bool | np.bool_ | numbers.Integral), name, value, "True or False")
    data_norm, (low, high) = estimator.data_norm, _NORM_RANGE
    _require(
        data_norm is None or (_is_real(data_norm) and low <= data_norm <= high),
        "data_norm",
        data_norm,
        "positive and finite: a bound on the row norms that is known without the data (longer rows are scaled)",
    )


def validate_training_data(estimator: Any, X: Any, y: Any) -> tuple[Any, Array]:
    """Return rows and labels as arrays; see :func:`validate_rows`."""
    X, y = validate_data(estimator, X, y, ensure_min_samples=2, **_row_rules(X))
    check_classification_targets(y)
    return _without_duplicates(X), y


def validate_rows(estimator: Any, X: Any) -> Any:
    """Return rows to predict for, as an array or CSR of float64 or float32.

    An array of these types is used as it is, in either order. Where a copy must be made anyway it is made in
    Fortran order, which is read twice as fast.
    """
    return _without_duplicates(validate_data(estimator, X, reset=False, **_row_rules(X)))


def _row_rules(X: Any) -> dict[str, Any]:
    as_it_is = isinstance(X, np.ndarray) and X.dtype in (np.float32, np.float64)
    return {"accept_sparse": "csr", "dtype": [np.float64, np.float32], "order": None if as_it_is else "F"}


def _without_duplicates(X: Any) -> Any:
    """Add up entries of a CSR matrix that are stored twice: norms of rows would miss them."""
    if sp.issparse(X) and not X.has_canonical_format:
        X = X.copy()
        X.sum_duplicates()
        assert_all_finite(X)  # finite parts may add up to infinity
    return X


def encode_labels(y: Array, declared: Any) -> tuple[Array, Array]:
    """Return the sorted labels and the index of each record's label.

    Parameters
    ----------
    y : ndarray of shape (n,)
    declared : array-like or None
        All labels that can occur; ``None`` takes those of ``y``.

    Raises
    ------
    ValueError
        If there are fewer than two labels, or ``y`` has one that was not declared.
    """
    seen = np.unique(y)
    if declared is None:
        if len(seen) < 2:
            raise ValueError(
                f"y has one class only, {seen.tolist()!r}, and a classifier needs at least two; "
                "declare all labels that can occur by classes="
            )
        return seen, np.searchsorted(seen, y)
    classes = np.unique(np.asarray(declared))
    if len(classes) != np.size(declared) or len(classes) < 2:
        raise ValueError(f"classes={declared!r}, but it must list at least two different labels, each once")
    known = np.isin(seen, classes)
    if not known.all():
        # which labels are unknown is a fact about the data: the user has them, so the user may be told
        raise ValueError(
            f"y has labels {seen[~known].tolist()!r} that classes={classes.tolist()!r} lacks; declare them too, or "
            "leave out their records"
        )
    return classes, np.searchsorted(classes, y)


def find_data_norm(X: Any, declared: float | None) -> float:
    """Return the declared norm, or the largest row norm of the data where none was declared."""
    if declared is not None:
        return float(declared)
    norm = float(row_norms(X).max())
    return norm if _NORM_RANGE[0] <= norm <= _NORM_RANGE[1] else 1.0


def warn_of_weak_claims(estimator: Any, n_samples: int) -> None:
    """Warn of what the data were asked for without noise, and of budgets that protect little."""
    epsilon, delta = estimator.epsilon, estimator.delta
    messages: list[tuple[bool, str, type[UserWarning]]] = [
        (
            getattr(estimator, "data_norm", "not asked for") is None,
            "data_norm=None was read from the data, so the fit has no privacy guarantee; declare a bound "
            "that is known without the data",
            PrivacyLeakWarning,
        ),
        (
            estimator.classes is None,
            "classes=None was read from y: which labels occur becomes public; declare them by classes=",
            PrivacyLeakWarning,
        ),
        (
            epsilon == inf,
            "epsilon=inf adds no noise: the fit has no privacy guarantee",
            NoPrivacyWarning,
        ),
        (
            _WEAK_EPSILON < epsilon < inf,
            f"epsilon={epsilon:g} protects little: an outcome may be exp(epsilon) times as likely with a record "
            "as without it",
            WeakPrivacyWarning,
        ),
        (
            delta >= 1 / n_samples,
            f"delta={delta:g} is not below 1/n = {1 / n_samples:g}: publishing one record at random would pass; "
            "choose a smaller delta",
            WeakPrivacyWarning,
        ),
    ]
    for applies, message, category in messages:
        if applies:
            warnings.warn(message, category, stacklevel=3)
