"""Do the intervals of ``dpskl.metrics.evaluate`` hold what they say, and how large are the errors of its figures?

python benchmarks/evaluation.py

The records are made: two normal classes with equal spread, and the probabilities that are true of them. So all figures
of the population are known by quadrature. Every repetition draws records anew and evaluates them once with each budget.
Besides, the area is computed from counts with independent noise at the same budget, as without the mechanism.
"""

from __future__ import annotations

import argparse
import time
from itertools import pairwise, product
from typing import Any

import numpy as np
from common import add_common_options, describe_run, write_result
from evaluation_runs import DELTA, DISTANCE, EPSILONS, FIGURES, N_BINS, RELATIONS, SETS, SIZES, chunk, truth
from evaluation_tables import report
from joblib import Parallel, delayed
from threadpoolctl import threadpool_limits

NAME = "evaluation"


def summary(name: str, rows: list[Any], true: float) -> dict[str, Any]:
    """Return coverage, errors and the stated standard error of one figure in one cell."""
    value, error, low, high = np.array([row["figures"][name] for row in rows], dtype=float).T
    wrong = np.where(np.isnan(value), 0.5, value) - true
    told = np.isfinite(error)
    entry = {
        "covered": int(((low <= true) & (true <= high)).sum()),
        "rmse": round(float(np.sqrt((wrong**2).mean())), 6),
        "bias": round(float(wrong.mean()), 6),
        "standard_error": round(float(np.median(error[told])), 6) if told.any() else None,
        "width": round(float((high - low).mean()), 6),
        "unknown": int((~told).sum()),
    }
    if name in ("accuracy", "roc_auc"):
        entry["errors"] = [round(float(e), 4) for e in wrong]
    return entry


def main() -> None:
    """Simulate, write the result and print its table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--repetitions", type=int, default=1000)
    parser.add_argument("--data", nargs="+", choices=SETS, default=list(SETS))
    parser.add_argument("--jobs", type=int, default=2)
    add_common_options(parser, NAME)
    options = parser.parse_args()
    repetitions, sizes, epsilons = options.repetitions, SIZES, EPSILONS
    if options.quick:
        repetitions, sizes, epsilons = 8, SIZES[:2], EPSILONS[1:2]
    with threadpool_limits(options.threads):
        run = describe_run()
    cells, start = [], time.perf_counter()
    for data, n in product(options.data, sizes):
        true = truth(SETS[data])
        edges = np.linspace(0, repetitions, 2 * options.jobs + 1).astype(int)
        parts = Parallel(options.jobs)(
            delayed(chunk)(data, n, epsilons, range(a, b), options.threads) for a, b in pairwise(edges)
        )
        rows = [row for part in parts for row in part]
        for place, (epsilon, neighbours) in enumerate(product(epsilons, RELATIONS)):
            here = [row[place] for row in rows]
            flat = np.array([row["flat"] for row in here]) - true["roc_auc"]
            cells.append(
                {
                    "data": data,
                    "n_samples": n,
                    "epsilon": epsilon,
                    "neighbours": neighbours,
                    "repetitions": len(here),
                    "flat_area_rmse": round(float(np.sqrt((flat**2).mean())), 6),
                    "figures": {name: summary(name, here, true[name]) for name in FIGURES},
                }
            )
        print(f"{data}, {n}: {time.perf_counter() - start:.0f} s so far", flush=True)
    document = {
        "run": run,
        "protocol": {
            "repetitions": repetitions,
            "delta": DELTA,
            "n_bins": N_BINS,
            "level": 0.95,
            "distance": DISTANCE,
            "shares": SETS,
            "truth": {data: truth(share) for data, share in SETS.items()},
            "seconds": round(time.perf_counter() - start),
        },
        "cells": cells,
    }
    write_result(options.name, options.quick, document)
    print(report(document))


if __name__ == "__main__":
    main()
