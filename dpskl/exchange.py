"""A fitted model in the hands of others: the copy that leaves the house, and its JSON form."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Mapping
from datetime import datetime, timezone
from math import isfinite
from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from dpskl._version import __version__
from dpskl.exceptions import NoPrivacyWarning, SeededNoiseWarning
from dpskl.guarantee import FitFacts, PrivacyGuarantee
from dpskl.records.row_maps import ROW_MAPS
from dpskl.solvers import Solver

__all__ = ["fit_facts", "from_record", "released_copy", "to_record"]

_FORMAT = 1
# Parameters that lead back to the house: a ledger, and the seed of noise that was meant for tests.
_KEPT_BACK = ("accountant", "random_state")
_ARRAYS = ("coef_", "intercept_", "classes_", "feature_names_in_", "class_prior_")
_PLAIN = (
    "n_features_in_",
    "n_iter_",
    "history_",
    "effective_C_",
    "data_norm_",
    "_constant",
    "_rows",
    "_clipped_length",
)


def fit_facts(
    estimator: Any, solver: str, n_samples: int, n_features: int | None, classes: Any, data_norm: float | None = None
) -> FitFacts:
    """Return what is public about a fit that begins now."""
    return FitFacts(
        estimator=type(estimator).__name__,
        solver=solver,
        n_samples=n_samples,
        n_features=n_features,
        data_norm=data_norm,
        classes=tuple(np.asarray(classes).tolist()),
        time=datetime.now(timezone.utc).isoformat(timespec="seconds"),
        version=__version__,
    )


def released_copy(model: Any) -> Any:
    """Return a fitted copy without accountant, seed and callbacks."""
    check_is_fitted(model)
    guarantee = model.privacy_guarantee_
    if guarantee is None:
        message = "this model has no privacy guarantee: what it tells of its records has no bound"
        warnings.warn(message, NoPrivacyWarning, stacklevel=3)
    elif guarantee.is_seeded:
        message = "the noise of this model was seeded: who guesses the seed can remove it"
        warnings.warn(message, SeededNoiseWarning, stacklevel=3)
    released = copy.copy(model)
    for name in _KEPT_BACK:
        setattr(released, name, None)
    for name in [name for name in vars(released) if "callback" in name]:
        delattr(released, name)
    return copy.deepcopy(released)


def _solver_record(solver: Any) -> Any:
    if not isinstance(solver, Solver):
        return solver
    # public records may be many, and prediction does not need them
    parameters = {name: None if name == "public_data" else value for name, value in solver.get_params().items()}
    return {"name": solver.name, "parameters": parameters}


def _solver_from(record: Any) -> Any:
    if not isinstance(record, Mapping):
        return record
    name = record["name"]
    if name not in Solver._registry:
        raise ValueError(f"the solver {name!r} of this record is not one of {', '.join(sorted(Solver._registry))}")
    return Solver._registry[name](**record["parameters"])


def _plain(value: Any) -> Any:
    """Return a value as ``json`` takes it: infinities in words, arrays and NumPy numbers as Python's own."""
    if isinstance(value, np.ndarray | np.generic):
        return _plain(value.tolist())
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, float) and value in (np.inf, -np.inf):
        return {"float": repr(value)}
    if isinstance(value, set | frozenset | range):
        return sorted(value)
    return value


def _from_plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return float(value["float"]) if set(value) == {"float"} else {k: _from_plain(v) for k, v in value.items()}
    return [_from_plain(item) for item in value] if isinstance(value, list) else value


def to_record(model: Any) -> dict[str, Any]:
    """Return a released model as numbers, words, lists and dictionaries."""
    released = released_copy(model)
    guarantee: PrivacyGuarantee | None = released.privacy_guarantee_
    parameters = {name: value for name, value in released.get_params(deep=False).items() if name not in _KEPT_BACK}
    if "solver" in parameters:
        parameters["solver"] = _solver_record(parameters["solver"])
    fitted = {name: getattr(released, name) for name in (*_ARRAYS, *_PLAIN) if hasattr(released, name)}
    if hasattr(released, "solver_"):
        fitted["solver_"] = _solver_record(released.solver_)
    return {
        "format": _FORMAT,
        "estimator": type(released).__name__,
        "version": __version__,
        "parameters": _plain(parameters),
        "fitted": _plain(fitted),
        "privacy_guarantee": None if guarantee is None else _plain(guarantee.to_dict()),
    }


def from_record(cls: type, record: Mapping[str, Any]) -> Any:
    """Return the model that :func:`to_record` described."""
    if not isinstance(record, Mapping) or record.get("estimator") != cls.__name__:
        found = record.get("estimator") if isinstance(record, Mapping) else type(record).__name__
        raise ValueError(f"the record is of {found!r}, and {cls.__name__}.from_dict reads its own only")
    try:
        if record["format"] > _FORMAT:
            raise ValueError(f"the record has format {record['format']}, this dpskl reads up to {_FORMAT}: upgrade it")
        model = _made(cls, record)
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"the record is damaged: {type(error).__name__} {error}") from error
    _check_whole(model)
    return model


def _made(cls: type, record: Mapping[str, Any]) -> Any:
    parameters = _from_plain(record["parameters"])
    if "solver" in parameters:
        parameters["solver"] = _solver_from(parameters["solver"])
    for name in _KEPT_BACK:
        if name in parameters:
            raise ValueError(f"the record is damaged: a released model has no {name}")
    model = cls(**parameters)
    for name, value in _from_plain(record["fitted"]).items():
        if name in _ARRAYS:
            value = np.asarray(value, dtype=object if name == "feature_names_in_" else None)
        elif name == "solver_":
            value = _solver_from(value)
        elif name not in _PLAIN:
            raise ValueError(f"the record has a fitted attribute {name!r}, which no model of this package has")
        setattr(model, name, value)
    guarantee = record["privacy_guarantee"]
    model.privacy_guarantee_ = None if guarantee is None else PrivacyGuarantee.from_dict(_from_plain(guarantee))
    return model


def _check_whole(model: Any) -> None:
    """Raise ValueError where a record lacks something that prediction needs, or has it in another shape."""
    n_classes = np.size(getattr(model, "classes_", ()))
    n_outputs = 1 if n_classes == 2 else n_classes
    shapes: dict[str, tuple[Any, ...]] = {"class_prior_": (n_classes,)}
    if hasattr(model, "solver"):
        shapes = {"coef_": (n_outputs, getattr(model, "n_features_in_", None)), "intercept_": (n_outputs,)}
        for name in ("data_norm_", "_constant"):
            shapes[name] = ()
        if getattr(model, "_rows", None) not in ROW_MAPS or not hasattr(model, "solver_"):
            raise ValueError("the record is damaged: it has no solver_ or no row map")
    for name, shape in shapes.items():
        found = np.asarray(getattr(model, name, np.nan), dtype=object)
        is_finite = all(isinstance(value, float | int) and isfinite(value) for value in found.ravel())
        if found.shape != shape or n_classes < 2 or not is_finite:
            raise ValueError(f"the record is damaged: {name} must be finite and of shape {shape}")
    length = getattr(model, "_clipped_length", None)
    if length is not None and not (isinstance(length, float | int) and 0 < length < np.inf):
        raise ValueError(f"the record is damaged: _clipped_length={length!r} must be None or positive and finite")
    guarantee = model.privacy_guarantee_
    if guarantee is not None and not _is_claimed(guarantee):
        raise ValueError(f"the record is damaged: its cost is not within ({guarantee.epsilon!r}, {guarantee.delta!r})")


def _is_claimed(guarantee: PrivacyGuarantee) -> bool:
    """Whether an (epsilon, delta) is one, and what its cost says."""
    epsilon, delta = guarantee.epsilon, guarantee.delta
    is_pair = isinstance(epsilon, float | int) and epsilon > 0 and isinstance(delta, float | int) and 0 <= delta < 1
    return is_pair and guarantee.cost.epsilon(delta) <= epsilon * (1 + 1e-9)
