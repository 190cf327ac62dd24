"""Interleaved timing: A B C A B C ..., so that a machine that slows down slows all of them."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np


def interleave(tasks: Mapping[str, Callable[[], Any]], repetitions: int, warm_ups: int = 1) -> dict[str, list[float]]:
    """Return the seconds of every repetition of every task, run in turn after ``warm_ups`` rounds."""
    seconds: dict[str, list[float]] = {name: [] for name in tasks}
    for _ in range(warm_ups):
        for task in tasks.values():
            task()
    gc.collect()
    gc.disable()
    try:
        for _ in range(repetitions):
            for name, task in tasks.items():
                start = time.perf_counter()
                task()
                seconds[name].append(time.perf_counter() - start)
    finally:
        gc.enable()
    return seconds


def comparison(
    what: str,
    ours: list[float],
    baseline: list[float],
    baseline_name: str,
    *,
    at_most: float | None = None,
    at_least: float | None = None,
) -> dict[str, Any]:
    """Return one line of a speed result; the ratio is the slower-is-larger one unless ``at_least`` is given.

    ``at_most`` bounds ours / baseline, ``at_least`` bounds baseline / ours. Quartiles are those of the ratios
    of neighbouring repetitions.
    """
    top, bottom = (ours, baseline) if at_least is None else (baseline, ours)
    ratio = float(np.median(top) / np.median(bottom))
    target = at_most if at_least is None else at_least
    passed = None if target is None else bool(ratio <= target if at_least is None else ratio >= target)
    return {
        "what": what,
        "baseline": baseline_name,
        "meaning": "ours / baseline" if at_least is None else "baseline / ours",
        "ratio": ratio,
        "ratio_quartiles": np.percentile(np.divide(top, bottom), [25, 75]).tolist(),
        "target": target,
        "passed": passed,
        "median_seconds": {"ours": float(np.median(ours)), "baseline": float(np.median(baseline))},
        "seconds": {"ours": _rounded(ours), "baseline": _rounded(baseline)},
    }


def _rounded(seconds: list[float]) -> list[float]:
    return [round(value, 7) for value in seconds]
