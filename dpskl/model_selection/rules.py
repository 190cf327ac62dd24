"""How many fits an object makes, on how many rows: one rule for each type that is known.

Rules go by exact type. A subclass may fit otherwise, several times or to rows of its own choice, and a plan that
took it for its base class would promise too little.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable
from dataclasses import replace
from itertools import zip_longest
from math import inf
from numbers import Integral, Real
from typing import Any

import numpy as np
from sklearn.base import clone
from sklearn.calibration import CalibratedClassifierCV
from sklearn.ensemble import AdaBoostClassifier, BaggingClassifier, StackingClassifier, VotingClassifier
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import (
    FixedThresholdClassifier,
    GridSearchCV,
    ParameterGrid,
    ParameterSampler,
    RandomizedSearchCV,
    StratifiedShuffleSplit,
    TunedThresholdClassifierCV,
)
from sklearn.multiclass import OneVsOneClassifier, OneVsRestClassifier
from sklearn.multioutput import ClassifierChain, MultiOutputClassifier
from sklearn.pipeline import Pipeline
from sklearn.semi_supervised import SelfTrainingClassifier

from dpskl.accounting import GaussianCost, worst_cost
from dpskl.base import PrivateLinearClassifier
from dpskl.classifier import PrivateClassifier
from dpskl.dummy import PrivateMajority
from dpskl.model_selection.planned import Planned, PlannedFit, Size, components
from dpskl.model_selection.readers import formats, readings
from dpskl.model_selection.splits import hand_made, stratified, training_sizes
from dpskl.validation import check_budget, declared_classes, number_of_records

__all__ = ["planned", "planned_search"]


def planned(estimator: Any, size: Size) -> Planned:
    """Return what ``estimator.fit`` would charge, on data of a public size."""
    rule = _RULES.get(type(estimator))
    if rule is not None:
        return rule(estimator, size)
    if _is_ours(estimator):
        if isinstance(estimator, PrivateLinearClassifier):
            return _one_fit(estimator, size)
        if hasattr(estimator, "_plan_fits"):
            plan = estimator._plan_fits(size)
            return plan if isinstance(plan, Planned) else Planned(tuple(plan)) + _notes(estimator)
    raise _refusal(estimator)


def _is_ours(thing: Any) -> bool:
    return type(thing).__module__.split(".")[0] == "dpskl"


# -- what is refused ----------------------------------------------------------------------------------------

_REASONS: dict[type, str] = {
    SelfTrainingClassifier: "how often it fits, and to how many records, depends on the data; leave it out",
    AdaBoostClassifier: "it weights the records by what earlier fits made of them; take VotingClassifier",
    MultiOutputClassifier: "it fits once for each column of y; plan_cost(classifier, ..., fits=number_of_columns)",
    ClassifierChain: "each of its fits takes the labels before it as further columns; plan them one by one",
}


def _refusal(estimator: Any) -> Exception:
    """Return the error for what has no rule."""
    name = estimator.__name__ if isinstance(estimator, type) else type(estimator).__name__
    for part in components(estimator):
        if hasattr(part, "fit_resample"):
            return _resampling(part)
    remedy = "plan one fit of its classifier by plan_cost(classifier, n_samples, n_features, fits=number_of_fits)"
    if isinstance(estimator, type):
        remedy = f"pass an instance, {name}()"
    elif type(estimator) in _REASONS:
        remedy = _REASONS[type(estimator)]
    elif name.startswith("Halving"):
        remedy = "which candidates it fits again depends on the data; use GridSearchCV or PrivateSearchCV"
    else:
        for base in type(estimator).__mro__[1:]:
            if base in _RULES or base in _REASONS or _defines_fits(base):
                name = f"{type(estimator).__module__}.{type(estimator).__qualname__}"
                otherwise = f"it is a subclass of {base.__name__} that may fit otherwise; use {base.__name__} itself"
                remedy = _REASONS.get(base, otherwise)
                break
    return TypeError(f"the fits of {name} cannot be counted in advance: {remedy}")


def _defines_fits(base: type) -> bool:
    is_ours = base.__module__.split(".")[0] == "dpskl"
    return is_ours and (issubclass(base, PrivateLinearClassifier) or hasattr(base, "_plan_fits"))


def _resampling(sampler: Any) -> ValueError:
    return ValueError(
        f"{type(sampler).__name__} repeats, makes up or leaves out records by looking at all of them: one record can "
        "enter a fit many times or move others, which the cost of that fit does not cover, and the number of rows is "
        "no longer public; leave it out"
    )


# -- one fit ------------------------------------------------------------------------------------------------


def _one_fit(estimator: PrivateLinearClassifier, size: Size) -> Planned:
    size = size._replace(n_samples=number_of_records(estimator, size.n_samples))
    name, delta = type(estimator).__name__, float(estimator.delta)
    # a norm that is read from the data leaves the fit without a guarantee, whatever the plan
    plan = None if estimator.data_norm is None else estimator.plan(*size)
    cost, parts = (GaussianCost(inf), ()) if plan is None else (estimator._cost(plan), plan.describe())
    fit = PlannedFit(name, size.n_samples, cost, delta, estimator.neighbours, estimator.accountant, parts)
    return Planned((fit,)) + _notes(estimator)


def _majority(estimator: PrivateMajority, size: Size) -> Planned:
    check_budget(estimator)
    n_samples, mechanism = number_of_records(estimator, size.n_samples), estimator.mechanism()
    fit = PlannedFit(
        type(estimator).__name__,
        n_samples,
        estimator._cost(mechanism),
        float(estimator.delta),
        estimator.neighbours,
        estimator.accountant,
        (mechanism.describe(1),),
    )
    return Planned((fit,)) + _notes(estimator)


def _notes(estimator: Any) -> Planned:
    """Say where labels are read, where noise is seeded, and what is not proved."""
    name, seed = type(estimator).__name__, getattr(estimator, "random_state", None)
    undeclared = {
        f"which labels occur: {type(part).__name__}(classes=None) reads them from y": None
        for part in components(estimator)
        if isinstance(part, PrivateClassifier) and part.classes is None
    }
    seeded = f"{name}(random_state={seed!r}) seeds the noise, which who knows the seed can take away; leave it out"
    condition = estimator._condition() if isinstance(estimator, PrivateLinearClassifier) else None
    return Planned(
        not_covered=tuple(undeclared),
        seeded=() if seed is None else (seeded,),
        conditional=() if condition is None else (f"the cost of {name} is not proved: {condition}",),
    )


def _frozen(estimator: FrozenEstimator, size: Size) -> Planned:
    return Planned()


def _pipeline(pipeline: Pipeline, size: Size) -> Planned:
    steps = [step for _, step in pipeline.steps]
    for step in steps:
        for part in components(step):
            if hasattr(part, "fit_resample"):
                raise _resampling(part)
    for step in steps[:-1]:
        if any(_is_charged(part) for part in components(step)):
            raise TypeError(
                f"the fits of {type(step).__name__} cannot be counted in advance: it is a step before the classifier "
                "and fits a private classifier of its own; plan both by plan_cost and add up what they cost"
            )
    findings = tuple(sentence for step in steps[:-1] for find in (readings, formats) for sentence in find(step))
    return planned(steps[-1], size) + Planned(not_covered=findings)


def _is_charged(part: Any) -> bool:
    return isinstance(part, PrivateClassifier) or hasattr(part, "_plan_fits")


# -- searches -----------------------------------------------------------------------------------------------


def _with(estimator: Any, parameters: dict[str, Any]) -> Any:
    return clone(estimator).set_params(**clone(parameters, safe=False))


def planned_search(search: GridSearchCV, size: Size) -> Planned:
    """Return the fits of a grid search, whatever chooses its folds."""
    candidates = [_with(search.estimator, parameters) for parameters in ParameterGrid(search.param_grid)]
    return _search(candidates, search, size)


def _grid_search(search: GridSearchCV, size: Size) -> Planned:
    return planned_search(search, size) + _folds_of(search)


def _randomized_search(search: RandomizedSearchCV, size: Size) -> Planned:
    given = search.param_distributions
    spaces = [given] if isinstance(given, dict) else list(given)
    open_ended = sorted({name for space in spaces for name, values in space.items() if hasattr(values, "rvs")})
    n_iter, grid = search.n_iter, None if open_ended else ParameterGrid(spaces)
    if grid is not None:
        n_iter = min(n_iter, len(grid))
    if isinstance(search.random_state, Integral):
        drawn: Iterable[Any] = ParameterSampler(copy.deepcopy(given), n_iter, random_state=search.random_state)
    elif grid is None:
        raise TypeError(
            f"{type(search).__name__} draws {', '.join(open_ended)} from a distribution, whose largest cost is not "
            "known; give lists of values, or a whole number as its random_state (which seeds the draws, not the noise)"
        )
    elif n_iter == len(grid):
        drawn = grid
    else:
        costliest = [_with(search.estimator, parameters) for parameters in grid]
        rows = _fold_sizes(search, costliest, search.cv, size.n_samples)
        folds = Planned.together(_worst(costliest, size, n) for n in rows).times(n_iter)
        return folds + _refit(costliest, search, size) + _folds_of(search)
    candidates = [_with(search.estimator, parameters) for parameters in drawn]
    return _search(candidates, search, size) + _folds_of(search)


def _fold_sizes(tool: Any, estimators: Any, cv: Any, n_samples: int) -> list[int]:
    """Return the sizes of the training parts, which must be public: a split follows the number of rows."""
    for part in components(estimators):
        if getattr(part, "n_samples", None) is not None and _is_charged(part):
            raise ValueError(
                f"{type(tool).__name__} splits the rows, and {type(part).__name__} declares n_samples="
                f"{part.n_samples}: who is in which fold follows from the number of rows, so that one record moves "
                "others, and the fits tell that number; leave n_samples=None inside of it, or fit without folds"
            )
    return training_sizes(cv, n_samples)


def _search(candidates: list[Any], search: Any, size: Size) -> Planned:
    rows = _fold_sizes(search, candidates, search.cv, size.n_samples)
    folds = (planned(candidate, size._replace(n_samples=n)) for candidate in candidates for n in rows)
    return Planned.together(folds) + _refit(candidates, search, size)


def _refit(candidates: list[Any], search: Any, size: Size) -> Planned:
    refit = _worst(candidates, size, size.n_samples) if search.refit else Planned()
    name = type(search).__name__
    choice = f"the scores of held-out rows, and the choice by them, in {name}"
    return refit + Planned(not_covered=(*hand_made(name, search.cv), choice))


def _folds_of(search: Any) -> Planned:
    return Planned(moved=stratified(type(search).__name__, search.cv))


_COSTLIEST = " (costliest candidate)"


def _worst(candidates: list[Any], size: Size, n_samples: int) -> Planned:
    """Charges of one candidate, whichever: the largest in each place, for each ledger."""
    plans = [planned(candidate, size._replace(n_samples=n_samples)) for candidate in candidates]
    if len(plans) == 1:
        return plans[0]
    worst = []
    ledgers = {id(fit.accountant): fit.accountant for plan in plans for fit in plan.fits}
    for ledger in ledgers.values():
        of_ledger = [[fit for fit in plan.fits if fit.accountant is ledger] for plan in plans]
        for place in zip_longest(*of_ledger):
            fits = [fit for fit in place if fit is not None]
            name = fits[0].name.removesuffix(_COSTLIEST) + _COSTLIEST
            delta = max(fit.delta for fit in fits)
            cost = worst_cost(fit.cost for fit in fits)
            dearest = max(fits, key=lambda fit: fit.cost.epsilon(fit.delta))
            worst.append(replace(fits[0], name=name, cost=cost, delta=delta, parts=dearest.parts))
    return replace(Planned.together(plans), fits=tuple(worst))


# -- ensembles ----------------------------------------------------------------------------------------------


def _labels_of(tool: Any) -> tuple[str, ...]:
    return (f"which labels occur: {type(tool).__name__} reads them from y",)


def _check_encoded(tool: Any, estimators: Any, binary: bool = False) -> None:
    """Raise ValueError where declared classes are not what a classifier finds in labels that a tool has encoded."""
    for part in components(estimators):
        if not isinstance(part, PrivateClassifier) or part.classes is None:
            continue
        labels = declared_classes(part.classes)
        count = 2 if binary else len(labels)
        is_number = labels.dtype.kind in "biuf"
        if len(labels) != count or (is_number and not np.array_equal(labels, np.arange(count))):
            encoded = list(range(count))
            raise ValueError(
                f"{type(tool).__name__} gives its classifiers the labels {encoded}, and {type(part).__name__} declares "
                f"classes={labels.tolist()!r}; declare classes={encoded} here"
            )


def _bagging(ensemble: BaggingClassifier, size: Size) -> Planned:
    name = type(ensemble).__name__
    if ensemble.bootstrap:
        raise ValueError(
            f"{name}(bootstrap=True) draws records with replacement: one record can enter a fit "
            "several times, which the cost of that fit does not cover; set bootstrap=False"
        )
    _check_encoded(ensemble, ensemble.estimator)

    def part(share: Any, whole: int) -> int:
        return whole if share is None else int(share) if isinstance(share, Integral) else max(int(share * whole), 1)

    n_samples = part(ensemble.max_samples, size.n_samples)
    n_features = part(ensemble.max_features, size.n_features)
    once = planned(ensemble.estimator, size._replace(n_samples=n_samples, n_features=n_features))
    fits = tuple(replace(fit, name=f"{fit.name} (noise seeded by the ensemble)") for fit in once.fits)
    seeded = f"{name} seeds the noise of its members, also without a random_state of its own; leave it out"
    notes = Planned(not_covered=_labels_of(ensemble), seeded=(seeded,) if fits else ())
    return replace(once, fits=fits).times(ensemble.n_estimators) + notes


def _one_vs_rest(ensemble: OneVsRestClassifier, size: Size) -> Planned:
    n_classes = _count_of_classes(ensemble, size)
    _check_encoded(ensemble, ensemble.estimator, binary=True)
    once = planned(ensemble.estimator, size._replace(n_classes=2))
    return once.times(1 if n_classes == 2 else n_classes) + Planned(not_covered=_labels_of(ensemble))


def _one_vs_one(ensemble: OneVsOneClassifier, size: Size) -> Planned:
    """A changed record enters at most all pairs; that many fits are charged, and their rows are not counted."""
    n_classes = _count_of_classes(ensemble, size)
    for part in components(ensemble.estimator):
        # BudgetedSearchCV charges nothing but its classifiers
        if _is_charged(part) and not isinstance(part, GridSearchCV) and getattr(part, "n_samples", None) is None:
            name = type(part).__name__
            remedy = f"declare a public number by n_samples= on {name}"
            if not isinstance(part, PrivateClassifier):
                remedy = "put a classifier with a declared n_samples= in its place"
            raise ValueError(
                f"{type(ensemble).__name__} fits to the records of two labels at a time, and {name} would take their "
                f"exact number to be public, which tells how many records have each label; {remedy}"
            )
    _check_encoded(ensemble, ensemble.estimator, binary=True)
    once = planned(ensemble.estimator, size._replace(n_classes=2))
    return once.times(n_classes * (n_classes - 1) // 2) + Planned(not_covered=_labels_of(ensemble))


def _count_of_classes(ensemble: Any, size: Size) -> int:
    if size.n_classes is None:
        raise ValueError(f"{type(ensemble).__name__} fits once for each class or pair of classes: pass n_classes")
    return size.n_classes


def _voting(ensemble: VotingClassifier, size: Size) -> Planned:
    _check_encoded(ensemble, ensemble.estimators)
    plans = [planned(estimator, size) for _, estimator in _kept(ensemble)]
    return Planned.together(plans) + Planned(not_covered=_labels_of(ensemble))


def _kept(ensemble: Any) -> list[tuple[str, Any]]:
    return [(name, estimator) for name, estimator in ensemble.estimators if not isinstance(estimator, str)]


def _stacking(ensemble: StackingClassifier, size: Size) -> Planned:
    """Each estimator is fitted to all rows, then to the training part of each fold, and the last one to predictions.

    Given the models, which are released, the prediction for a record depends on that record alone.
    """
    name, final = type(ensemble).__name__, ensemble.final_estimator
    _check_encoded(ensemble, [ensemble.estimators, final])
    plans = []
    if not (isinstance(ensemble.cv, str) and ensemble.cv == "prefit"):
        plans += [planned(estimator, size) for _, estimator in _kept(ensemble)]
        rows = _fold_sizes(ensemble, ensemble.estimators, ensemble.cv, size.n_samples)
        folds = Planned.together(
            planned(estimator, size._replace(n_samples=n)) for _, estimator in _kept(ensemble) for n in rows
        )
        moved = stratified(name, ensemble.cv) if folds.fits else ()
        plans += [folds, Planned(not_covered=hand_made(name, ensemble.cv), moved=moved)]
    if final is not None and any(_is_charged(part) for part in components(final)):
        columns = sum(_n_columns(ensemble.stack_method, estimator, size) for _, estimator in _kept(ensemble))
        columns += size.n_features if ensemble.passthrough else 0
        plans.append(planned(final, size._replace(n_features=columns)))
    else:
        last = type(LogisticRegression() if final is None else final).__name__
        plans.append(Planned(not_covered=(f"the final estimator {last} of {name}, fitted without noise",)))
    return Planned.together(plans) + Planned(not_covered=_labels_of(ensemble))


def _n_columns(method: str, estimator: Any, size: Size) -> int:
    methods = ("predict_proba", "decision_function", "predict") if method == "auto" else (method,)
    if next((method for method in methods if hasattr(estimator, method)), "predict") == "predict":
        return 1
    declared = [getattr(part, "classes", None) for part in components(estimator)]
    n_classes = max([size.n_classes or 0, *(len(declared_classes(known)) for known in declared if known is not None)])
    if n_classes < 2:
        raise ValueError("StackingClassifier gives the final estimator a column for each class: pass n_classes")
    return 1 if n_classes == 2 else n_classes


# -- what is done to scores ---------------------------------------------------------------------------------


def _calibrated(calibrated: CalibratedClassifierCV, size: Size) -> Planned:
    name, cv, ensemble = type(calibrated).__name__, calibrated.cv, calibrated.ensemble
    notes = Planned(not_covered=(f"{name} reads the label of every record to calibrate", *_labels_of(calibrated)))
    if isinstance(cv, str):  # "prefit", until scikit-learn 1.8
        return notes
    if ensemble == "auto":
        ensemble = not isinstance(calibrated.estimator, FrozenEstimator)
    rows = _fold_sizes(calibrated, calibrated.estimator, cv, size.n_samples)
    sizes = rows if ensemble else [*rows, size.n_samples]
    plan = Planned.together(planned(calibrated.estimator, size._replace(n_samples=n)) for n in sizes)
    moved = stratified(name, cv) if plan.fits else ()
    return plan + notes + Planned(not_covered=hand_made(name, cv), moved=moved)


def _fixed_threshold(classifier: FixedThresholdClassifier, size: Size) -> Planned:
    return planned(classifier.estimator, size)


def _tuned_threshold(tuned: TunedThresholdClassifierCV, size: Size) -> Planned:
    """The model that is kept comes first: of all rows, or of the only training part, which is then fitted again."""
    name, cv = type(tuned).__name__, tuned.cv
    reads = Planned(not_covered=(f"{name} reads held-out labels to choose its threshold",))
    if isinstance(cv, str):
        return reads
    if isinstance(cv, Real) and not isinstance(cv, Integral):
        cv = StratifiedShuffleSplit(1, test_size=cv)
    rows = _fold_sizes(tuned, tuned.estimator, cv, size.n_samples)
    sizes = [size.n_samples if tuned.refit else rows[0], *rows]
    plan = Planned.together(planned(tuned.estimator, size._replace(n_samples=n)) for n in sizes)
    moved = stratified(name, cv) if plan.fits else ()
    return plan + reads + Planned(not_covered=hand_made(name, cv), moved=moved)


_RULES: dict[type, Callable[[Any, Size], Planned]] = {
    PrivateMajority: _majority,
    Pipeline: _pipeline,
    FrozenEstimator: _frozen,
    GridSearchCV: _grid_search,
    RandomizedSearchCV: _randomized_search,
    BaggingClassifier: _bagging,
    OneVsRestClassifier: _one_vs_rest,
    OneVsOneClassifier: _one_vs_one,
    VotingClassifier: _voting,
    StackingClassifier: _stacking,
    CalibratedClassifierCV: _calibrated,
    FixedThresholdClassifier: _fixed_threshold,
    TunedThresholdClassifierCV: _tuned_threshold,
}
