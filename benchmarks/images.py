"""Images without a setting: the untuned default on scattering features and on pixels, wherever zero is.

    OPENBLAS_NUM_THREADS=2 python benchmarks/images.py --cache FOLDER

At (3, 1e-5), add/remove, ``DPLogisticRegression(3.0, 1e-5, data_norm=..., classes=range(10))`` and no other parameter.
The bounds are public: 63 for features, the root of 784 for pixels in [0, 1], in [-1, 1] and in [0, 1] minus the mean
image, which is not private and stands for any public one. A run that was stopped goes on where it came to.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import threadpoolctl
from common import KeptCells, add_common_options, describe_run, load_images, mean_and_error, write_result
from scattering import SETS, load_scattering
from sklearn.metrics import log_loss

from dpskl import DPLogisticRegression

NAME = "images"
KINDS = ("scattering", "[0, 1]", "[-1, 1]", "centred")
EPSILON, DELTA = 3.0, 1e-5

Array = np.ndarray[Any, Any]


def features(name: str, kind: str, cache: Path) -> tuple[Array, Array, Array, Array, float]:
    """Return training and test rows with their labels, and the public bound on a row's norm."""
    if kind == "scattering":
        return *load_scattering(name, cache), 63.0
    images, y, test_images, y_test = load_images(name)
    X, X_test = (part.reshape(len(part), -1) / 255 for part in (images, test_images))
    if kind == "[-1, 1]":
        X, X_test = 2 * X - 1, 2 * X_test - 1
    elif kind == "centred":
        X, X_test = X - X.mean(axis=0), X_test - X.mean(axis=0)
    return np.asfortranarray(X), y, X_test, y_test, 28.0


def fit(name: str, kind: str, cache: Path) -> dict[str, Any]:
    """Return the figures of one fit."""
    X, y, X_test, y_test, data_norm = features(name, kind, cache)
    model = DPLogisticRegression(EPSILON, DELTA, data_norm=data_norm, classes=range(10))
    begin = time.perf_counter()
    model.fit(X, y)
    seconds = time.perf_counter() - begin
    parts = model.privacy_guarantee_.parts
    return {
        "accuracy": round(100 * float(model.score(X_test, y_test)), 2),
        "log_loss": round(float(log_loss(y_test, model.predict_proba(X_test))), 4),
        "seconds": round(seconds, 1),
        "released": [f"{part.count} x {part.mechanism}" for part in parts],
    }


def report(document: dict[str, Any]) -> str:
    """Return the table: means with standard errors."""
    lines = ["| images | features | accuracy | log loss | seconds |", "|---|---|---|---|---|"]
    for cell in document["cells"]:
        fits = cell["fits"]
        accuracy, spread = mean_and_error([run["accuracy"] for run in fits])
        loss, loss_spread = mean_and_error([run["log_loss"] for run in fits])
        seconds = np.mean([run["seconds"] for run in fits])
        lines.append(
            f"| {cell['data']} | {cell['kind']} | {accuracy:.2f} ({spread:.2f}) | {loss:.4f} ({loss_spread:.4f}) "
            f"| {seconds:.0f} |"
        )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_common_options(parser, NAME)
    default = Path(tempfile.gettempdir()) / "scattering"
    parser.add_argument("--cache", type=Path, default=default, help=f"the folder of the features ({default})")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=KINDS)
    options = parser.parse_args()
    runs = 1 if options.quick else options.runs
    kinds = ("[0, 1]",) if options.quick else options.kinds
    with threadpoolctl.threadpool_limits(options.threads, user_api="blas"):
        run = describe_run()
        kept = KeptCells(run)
        for name, kind, repeat in product(SETS, kinds, range(runs)):
            key = f"{name}, {kind}, {repeat}"
            if key not in kept.done:
                kept.keep(key, fit(name, kind, options.cache))
                print(f"{key}: {kept.done[key]}", flush=True)
    cells = [
        {"data": name, "kind": kind, "fits": [kept.done[f"{name}, {kind}, {repeat}"] for repeat in range(runs)]}
        for name, kind in product(SETS, kinds)
    ]
    document = {"run": run, "protocol": {"epsilon": EPSILON, "delta": DELTA, "runs": runs}, "cells": cells}
    write_result(options.name, options.quick, document)
    print(report(document))


if __name__ == "__main__":
    main()
