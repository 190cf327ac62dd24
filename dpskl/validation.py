"""What can be wrong with parameters and data, found and said before any budget is spent."""

from __future__ import annotations

import numbers
import warnings
from collections.abc import Iterable
from math import inf
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.utils.validation import check_X_y, validate_data

from dpskl.accounting._numeric import SMALLEST_EPSILON
from dpskl.budget import PrivacyAccountant
from dpskl.exceptions import NoPrivacyWarning, PrivacyLeakWarning, WeakPrivacyWarning
from dpskl.mechanisms.sensitivity import NEIGHBOURS
from dpskl.records.rows import row_norms

__all__ = [
    "check_budget",
    "check_parameters",
    "check_penalty",
    "check_positive",
    "checked_labels",
    "declared_classes",
    "encode_labels",
    "find_data_norm",
    "number_of_records",
    "refuse_fit_parameters",
    "validate_records",
    "validate_rows",
    "validate_training_data",
    "warn_of_weak_claims",
]

Array = np.ndarray[Any, Any]

_WEAK_EPSILON = 20.0
# Fourth powers times millions of records neither overflow nor vanish, nor do single precision losses.
_NORM_RANGE = (1e-15, 1e15)
_SMALLEST_C = 1e-300
# Of C times the squared norm, which does not change when both are given in other units. Weights are at most about n
# times this, in units of 1 / data_norm, and must not vanish.
_SMALLEST_PENALTY_RATIO = 1e-300
_BLOCK_SIZE = 1 << 20  # numbers looked at one by one at a time, where their sum is not finite


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
    if estimator.classes is not None:
        declared_classes(estimator.classes)
    n_samples = estimator.n_samples
    _require(
        n_samples is None or (isinstance(n_samples, int | np.integer) and int(n_samples) >= 2),
        "n_samples",
        n_samples,
        "None, which makes the number of rows of X public, or a whole number of at least 2 that no data set exceeds",
    )


def number_of_records(estimator: Any, n_rows: int) -> int:
    """Return the public number of records: the declared one, or that of the rows.

    Raises
    ------
    ValueError
        If there are more rows than were declared.
    """
    if estimator.n_samples is None:
        return n_rows
    if n_rows > estimator.n_samples:
        # how many there are is not said: an error may be seen by others than those who may know
        raise ValueError(
            f"n_samples={estimator.n_samples!r} was declared as the number of records or a bound above it, and X has "
            "more rows; declare a larger bound, which must not be chosen by looking at the records"
        )
    return int(estimator.n_samples)


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


def check_penalty(C: float, data_norm: float) -> None:
    """Raise ValueError where the penalty leaves nothing to learn, and weights and certificates would underflow."""
    if C * data_norm**2 < _SMALLEST_PENALTY_RATIO:
        raise ValueError(
            f"C={C:g} with data_norm={data_norm:g} asks for a penalty so strong that nothing can be learnt: "
            f"C * data_norm^2 must be at least {_SMALLEST_PENALTY_RATIO:g}; raise C, or give X and data_norm in larger "
            "units"
        )


def refuse_fit_parameters(estimator: Any, given: dict[str, Any]) -> None:
    """Raise TypeError for what scikit-learn's classifiers take in ``fit`` and these do not, with the remedy."""
    if not given:
        return
    name = next(iter(given))
    remedies = {
        "sample_weight": "a weight changes what one record can do, which the guarantee does not cover; leave it out",
        "groups": "the guarantee is for a record; make one row of each person first",
    }
    reason = remedies.get(name, "it takes X and y only")
    raise TypeError(f"{type(estimator).__name__}.fit got {name}=: {reason}")


def validate_training_data(estimator: Any, X: Any, y: Any) -> tuple[Any, Array]:
    """Return rows and labels as arrays; see :func:`validate_rows`."""
    X, y = validate_data(estimator, X, y, ensure_min_samples=2, **_row_rules(X))
    return _checked_rows(X), checked_labels(y)


def validate_records(X: Any, y: Any) -> tuple[Any, Array]:
    """Return rows and labels that stand beside those of ``fit``, such as public ones; see :func:`validate_rows`."""
    X, y = check_X_y(X, y, **_row_rules(X))
    return _checked_rows(X), checked_labels(y)


def validate_rows(estimator: Any, X: Any) -> Any:
    """Return rows to predict for, as an array or CSR of float64 or float32.

    An array of these types is used as it is, in either order. Where a copy must be made anyway it is made in
    Fortran order, which is read twice as fast.
    """
    return _checked_rows(validate_data(estimator, X, reset=False, **_row_rules(X)))


def _row_rules(X: Any) -> dict[str, Any]:
    as_it_is = isinstance(X, np.ndarray) and X.dtype in (np.float32, np.float64)
    order = None if as_it_is else "F"
    # scikit-learn's check for finite numbers can be switched off from outside, and a bound on rows rests on it: ours
    return {"accept_sparse": "csr", "dtype": [np.float64, np.float32], "order": order, "ensure_all_finite": False}


def _checked_rows(X: Any) -> Any:
    """Return rows whose numbers are finite and, where they are sparse, stored once and inside the matrix.

    Nothing is taken from what ``X`` says of itself: ``has_canonical_format`` is remembered by SciPy and stays true when
    somebody changes ``X.indices`` in place, and then one record has a norm that nobody sees. One pass each.
    """
    if not sp.issparse(X):
        _check_finite(X)
        return X
    _check_finite(X.data)
    plain = sp.csr_array if isinstance(X, sp.sparray) else sp.csr_matrix  # no subclass
    fresh = plain((X.data, X.indices, X.indptr), shape=X.shape, copy=False)  # remembers nothing
    try:
        fresh.check_format(full_check=True)
    except ValueError as error:
        raise ValueError(f"X is a CSR matrix whose index arrays are broken ({error}); build it anew") from error
    if not fresh.has_canonical_format:
        fresh = fresh.copy()
        fresh.sum_duplicates()  # norms of rows would miss entries that are stored twice
        _check_finite(fresh.data)  # finite parts may add up to infinity
    return fresh


def _check_finite(values: Array) -> None:
    """Raise ValueError unless all numbers are finite, whatever scikit-learn and NumPy are set to."""
    with np.errstate(all="ignore"):
        # a sum shows nan and inf; where finite numbers overflow in it, each is looked at
        if np.isfinite(values.sum()):
            return
        height = max(1, _BLOCK_SIZE * len(values) // values.size)
        for start in range(0, len(values), height):
            part = values[start : start + height]
            if not np.isfinite(part).all():
                found = "NaN" if np.isnan(part).any() else "infinity"
                raise ValueError(
                    f"Input X contains {found}, and a bound on the rows asks for finite numbers: replace it by a value "
                    "that is known without the data, or leave out the rows or columns"
                )


def checked_labels(y: Array) -> Array:
    """Return labels that are words or whole numbers; no warning tells how many there are, as scikit-learn's would."""
    kind = y.dtype.kind
    if kind == "O":
        is_word = [isinstance(label, str) for label in y]
        is_number = [isinstance(label, numbers.Real) for label in y]
        if not (all(is_word) or all(is_number)):
            raise ValueError("Unknown label type: y holds neither words only nor numbers only; use one kind of label")
    if kind == "f" or (kind == "O" and all(is_number)):
        values = y.astype(np.float64)
        if not np.isfinite(values).all():
            raise ValueError("Input y contains NaN or infinity; leave out the records without a label")
        if (values != np.floor(values)).any():
            raise ValueError(
                "Unknown label type: continuous. y holds broken numbers, and a classifier needs labels: whole "
                "numbers or words"
            )
    elif kind not in "iubUSO":
        raise ValueError(f"Unknown label type: y has dtype {y.dtype}; use whole numbers or words")
    return y


def declared_classes(declared: Any) -> Array:
    """Return the labels that ``classes=`` declares, sorted.

    Raises
    ------
    ValueError
        If these are not at least two different labels of one kind.
    """

    def refuse(rule: str) -> ValueError:
        return ValueError(f"classes={declared!r}, but it must {rule}")

    if isinstance(declared, str) or not isinstance(declared, Iterable):
        raise refuse("list the labels, such as classes=[0, 1] or classes=['no', 'yes']")
    # np.asarray makes one object of a set, and words of numbers that stand beside words
    labels = declared.tolist() if isinstance(declared, np.ndarray) else list(declared)
    is_word = [isinstance(label, str) for label in labels]
    is_number = [isinstance(label, numbers.Real) and label == label for label in labels]
    if not (all(is_word) or all(is_number)):
        raise refuse("list labels of one kind in one dimension: words, or numbers")
    classes: Array = np.unique(np.asarray(labels))
    if len(classes) != len(labels):
        raise refuse("list the labels that can occur, each once")
    if len(classes) < 2:
        raise refuse("list at least two different labels: all that can occur, whichever do in these records")
    return classes


def encode_labels(y: Array, declared: Any) -> tuple[Array, Array]:
    """Return the sorted labels and the index of each record's label.

    Meta-estimators such as ``VotingClassifier`` put numbers from 0 on in the place of labels. Where the declared labels
    are words, nothing else can be meant by such numbers, and they are taken for the places of the labels.

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
    classes = declared_classes(declared)
    is_encoded = seen.dtype.kind in "iuf" and set(seen.tolist()) <= set(range(len(classes)))
    if classes.dtype.kind == "U" and is_encoded:
        if len(classes) > 2 and seen.max() <= 1:
            raise ValueError(
                f"y has the numbers 0 and 1 only where classes={classes.tolist()!r} are declared: OneVsRestClassifier "
                "and OneVsOneClassifier pass such labels, and declare classes=[0, 1] in the classifier inside them; "
                f"where they stand for the places of the labels, declare classes={list(range(len(classes)))}"
            )
        classes = np.arange(len(classes))
    # an array of words has no order with one of numbers
    is_comparable = (classes.dtype.kind == "U") == (seen.dtype.kind in "UO" and isinstance(seen[0], str))
    known = np.isin(seen, classes) if is_comparable else np.zeros(len(seen), dtype=bool)
    if not known.all():
        # which labels are unknown is a fact about the data: the user has them, so the user may be told
        remedy = "declare them too, or leave out their records"
        if is_encoded:
            remedy += (
                "; meta-estimators such as VotingClassifier, StackingClassifier and OneVsRestClassifier number the "
                f"labels from 0 on: inside them declare classes={list(range(len(classes)))}"
            )
        raise ValueError(f"y has labels {seen[~known].tolist()!r} that classes={classes.tolist()!r} lacks; {remedy}")
    codes: Array = np.searchsorted(classes, y)
    if not (codes < len(classes)).all() or not (classes[codes] == y).all():
        raise ValueError("y has labels that do not compare as words or numbers do; convert them by str or int first")
    return classes, codes


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
