"""One cell of an accuracy table: a data set, a model, a solver and a budget, fitted on every fold."""

from __future__ import annotations

import argparse
import json
import sys
import time
import warnings
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from importlib import import_module
from math import inf
from typing import Any
from unittest import mock

import joblib
import numpy as np
import scipy.sparse as sp
import threadpoolctl
from common import TITLES, KeptCells, available, describe_run, load, mean_and_error
from sklearn.dummy import DummyClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss, roc_auc_score
from sklearn.model_selection import StratifiedKFold
from whitening_variants import variant

from dpskl import DPHuberSVC, DPLinearSVC, DPLogisticRegression, NoPrivacyWarning
from dpskl.dummy import PrivateMajority
from dpskl.records.losses import Hinge, HuberHinge, Logistic
from dpskl.solvers import AdaDPS, PublicMirrorDescent, make_solver

DELTA = 1e-8
MODELS = {
    "logistic": (DPLogisticRegression, Logistic()),
    "svm": (DPHuberSVC, HuberHinge()),
    "hinge": (DPLinearSVC, Hinge()),
}
CLASSES = (-1, 1)
# The commonest class, exact and by noisy counts; scikit-learn's L-BFGS on raw rows; our own minimiser without noise.
BASELINES = ("majority", "private_majority", "lbfgs", "no_noise")
# One training row in so many is public, and no longer private, for those that learn from public records as well.
WITH_PUBLIC = {"adadps": AdaDPS, "pda_dpmd": PublicMirrorDescent}
PUBLIC_PART = 100


@dataclass(frozen=True)
class Cell:
    """What is fitted; ``parameters`` are the solver's, ``constants`` are module-level names to replace.

    ``label`` is what tables call the solver where it is not the name, ``variant`` a name in ``whitening_variants.py``.
    """

    data: str
    model: str
    solver: str
    epsilon: float
    parameters: tuple[tuple[str, Any], ...] = ()
    constants: tuple[tuple[str, Any], ...] = ()
    label: str = ""
    delta: float = DELTA
    variant: str = ""
    data_norm: float = 1.0


@dataclass(frozen=True)
class Protocol:
    """Stratified folds, split anew in each repeat; the split is seeded and the noise is not."""

    folds: int
    repeats: int
    seed: int = 0
    threads: int = 1


def add_protocol_options(parser: argparse.ArgumentParser, folds: int, repeats: int) -> None:
    """Add ``--folds``, ``--repeats``, ``--seed`` and ``--jobs``."""
    parser.add_argument("--folds", type=int, default=folds)
    parser.add_argument("--repeats", type=int, default=repeats)
    parser.add_argument("--seed", type=int, default=0, help="seed of the first split; the noise has none")
    parser.add_argument("--jobs", type=int, default=1, help="processes, each with --threads BLAS threads")


def begin(options: argparse.Namespace) -> tuple[list[str], Protocol, dict[str, Any]]:
    """Return the sets that can be read, the protocol, and a result file's ``run`` and ``protocol``."""
    names = available(options.data)
    with threadpoolctl.threadpool_limits(options.threads, user_api="blas"):
        run = describe_run()
    protocol = Protocol(options.folds, options.repeats, options.seed, options.threads)
    return names, protocol, {"run": run, "protocol": {"delta": DELTA, **vars(protocol), "jobs": options.jobs}}


def constant(name: str) -> Any:
    """Return the present value of a module-level constant, given its dotted name."""
    module, _, attribute = name.rpartition(".")
    return getattr(import_module(module), attribute)


def run_cell(cell: Cell, protocol: Protocol) -> dict[str, Any]:
    """Return the cell with all its fits: accuracy in percent, seconds, and what was planned."""
    with ExitStack() as stack:
        stack.enter_context(threadpoolctl.threadpool_limits(protocol.threads, user_api="blas"))
        stack.enter_context(warnings.catch_warnings())
        warnings.simplefilter("ignore", NoPrivacyWarning)  # of the fit without noise
        for name, value in (*cell.constants, *variant(cell.variant)):
            stack.enter_context(mock.patch(name, value))
        try:
            results = [_fit(cell, *split) for split in _splits(cell.data, protocol)]
        except Exception as error:  # one cell must not cost the run: its table shows the gap
            return {**asdict(cell), "error": f"{type(error).__name__}: {error}", "fits": []}
    return {**asdict(cell), "planned": results[-1][1], "fits": [fit for fit, _ in results]}


def _splits(data: str, protocol: Protocol) -> Iterable[tuple[int, int, Any, Any]]:
    X, y = load(data)
    for repeat in range(protocol.repeats):
        folds = StratifiedKFold(protocol.folds, shuffle=True, random_state=protocol.seed + repeat)
        for fold, (train, test) in enumerate(folds.split(X, y)):
            yield repeat, fold, train, test


def _fit(cell: Cell, repeat: int, fold: int, train: Any, test: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the figures of one fit, and what was planned: public numbers, the same on every fold."""
    X, y = load(cell.data)
    public = None
    if cell.solver in WITH_PUBLIC:
        parts = np.random.default_rng(repeat).permutation(train), [len(train) // PUBLIC_PART]
        records, train = np.split(*parts)
        public = X[records], y[records]
    X_train, y_train = X[train], y[train]
    if not sp.issparse(X):
        X_train = np.asfortranarray(X_train)  # the order that reads faster
    loss = MODELS[cell.model][1]
    model = _model(cell, public)
    start = time.perf_counter()
    model.fit(X_train, y_train)
    seconds = time.perf_counter() - start
    planned = {"n_samples": X_train.shape[0], "n_features": X_train.shape[1]}
    if getattr(model, "privacy_guarantee_", None) is not None:
        parts = model.privacy_guarantee_.parts
        planned |= {
            "n_iter": getattr(model, "n_iter_", None),
            "effective_C": getattr(model, "effective_C_", None),
            "noise_scales": [part.noise for part in parts],
            "sensitivities": [part.sensitivity for part in parts],
        }
    figures = {"repeat": repeat, "fold": fold, "seconds": round(seconds, 4), **_scores(model, X[test], y[test])}
    if hasattr(model, "decision_function"):
        train_loss = float(loss.values(model.decision_function(X_train), np.sign(y_train)).mean())
        figures["train_loss"] = round(train_loss, 6)
    return figures, planned


def _scores(model: Any, X: Any, y: Any) -> dict[str, float]:
    """Return accuracy and area under the curve in percent and the log loss, as far as the model has them."""
    scores = {"accuracy": round(100 * float(np.mean(model.predict(X) == y)), 4)}
    if hasattr(model, "decision_function"):
        scores["auc"] = round(100 * float(roc_auc_score(y, model.decision_function(X))), 4)
        if hasattr(model, "predict_proba"):
            scores["log_loss"] = round(float(log_loss(y, model.predict_proba(X))), 6)
    return scores


def _model(cell: Cell, public: Any) -> Any:
    """Return the unfitted model of a cell; ``BASELINES`` are not solvers."""
    kind, loss = MODELS[cell.model]
    if cell.solver == "majority":
        return DummyClassifier(strategy="most_frequent")
    if cell.solver == "private_majority":
        return PrivateMajority(cell.epsilon, cell.delta, classes=CLASSES)
    if cell.solver == "lbfgs":
        return LogisticRegression(max_iter=1000)
    if cell.solver == "no_noise":
        return kind(inf, DELTA, solver="output_perturbation", classes=CLASSES)
    given = {} if public is None else {"public_data": public}
    solver = WITH_PUBLIC.get(cell.solver, lambda **_: make_solver(cell.solver, loss))(**given)
    solver.set_params(**dict(cell.parameters))
    return kind(cell.epsilon, cell.delta, solver=solver, classes=CLASSES, data_norm=cell.data_norm)


def figures_of(cell: dict[str, Any], figure: str = "accuracy") -> list[float]:
    """Return one figure of all fits of a finished cell: ``accuracy``, ``auc``, ``log_loss`` or ``train_loss``."""
    return [fit[figure] for fit in cell["fits"] if figure in fit]


def failures(cells: Iterable[dict[str, Any]]) -> list[str]:
    """Return a section that lists the cells that failed, or nothing."""
    lines = [
        f"* {TITLES[cell['data']]}, {cell['model']}, epsilon {cell['epsilon']:g}, "
        f"{cell.get('label') or cell['solver']}: {cell['error']}"
        for cell in cells
        if "error" in cell
    ]
    return ["### Cells that failed\n\n" + "\n".join(lines)] if lines else []


def run_cells(cells: Sequence[Cell], protocol: Protocol, jobs: int, run: dict[str, Any]) -> list[dict[str, Any]]:
    """Run the cells in ``jobs`` processes, each of which reads a data set once; progress goes to stderr.

    Each finished cell is kept at once: the same command at the same revision (``run`` is what ``begin`` says of them)
    goes on where one that was stopped came to.
    """
    keys = [json.dumps([asdict(cell), asdict(protocol)]) for cell in cells]
    kept = KeptCells(run)
    left = [(key, cell) for key, cell in zip(keys, cells, strict=True) if key not in kept.done]
    if len(left) < len(keys):
        print(f"{len(keys) - len(left)} of {len(keys)} cells are kept from a run that was stopped", file=sys.stderr)
    parallel = joblib.Parallel(n_jobs=jobs, return_as="generator", batch_size=1)
    results = parallel(joblib.delayed(run_cell)(cell, protocol) for _, cell in left)
    for (key, _), result in zip(left, results, strict=True):
        kept.keep(key, result)
        print(f"[{len(kept.done)}/{len(keys)}] {_progress(result)}", file=sys.stderr, flush=True)
    return [kept.done[key] for key in keys]


def _progress(cell: dict[str, Any]) -> str:
    changes = [f"{name.rpartition('.')[2]}={value}" for name, value in cell["parameters"] + cell["constants"]]
    solver = f"{cell['solver']} {cell['variant']}".rstrip()
    what = " ".join([cell["data"], cell["model"], solver, f"epsilon={cell['epsilon']:g}", *changes])
    if "error" in cell:
        return f"{what}: {cell['error']}"
    mean, error = mean_and_error(figures_of(cell))
    return f"{what}: {mean:.2f} ({error:.2f}), {sum(fit['seconds'] for fit in cell['fits']):.1f} s"
