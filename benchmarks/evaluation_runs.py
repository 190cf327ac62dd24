"""Repetitions of ``evaluation.py``: records whose figures are known, and what evaluations say of them."""

from __future__ import annotations

import warnings
from itertools import product
from math import log
from typing import Any

import numpy as np
from scipy.special import expit
from scipy.stats import norm
from threadpoolctl import threadpool_limits

from dpskl.accounting import gaussian_mu
from dpskl.metrics import evaluate

__all__ = ["DELTA", "DISTANCE", "EPSILONS", "FIGURES", "N_BINS", "RELATIONS", "SETS", "SIZES", "chunk", "truth"]

SETS = {"even": 0.5, "rare": 0.1}  # shares of the second class
DISTANCE = 1.5  # between the means of the classes, in standard deviations
SIZES = (1_000, 10_000, 100_000)
EPSILONS = (0.05, 0.1, 1.0)
RELATIONS = ("add_remove", "replace_one")
DELTA = 1e-6
N_BINS = 64
FIGURES = ("accuracy", "roc_auc", "balanced_accuracy", "f1", "brier", "log_loss")


def _probability(x: Any, share: float) -> Any:
    return expit(DISTANCE * x - DISTANCE**2 / 2 + log(share / (1 - share)))


def truth(share: float) -> dict[str, float]:
    """Return the figures of the population, by sums over a fine grid of its normal variable."""
    x = np.linspace(-9, 9 + DISTANCE, 2_000_001)
    p, width = _probability(x, share), x[1] - x[0]
    first, second = (1 - share) * norm.pdf(x) * width, share * norm.pdf(x - DISTANCE) * width
    above = p >= 0.5
    found, false = second[above].sum() / share, first[above].sum() / (1 - share)
    right = share * found + (1 - share) * (1 - false)
    precision = share * found / (share * found + (1 - share) * false)
    return {
        "accuracy": right,
        "roc_auc": float(norm.cdf(DISTANCE / 2**0.5)),
        "balanced_accuracy": (found + 1 - false) / 2,
        "f1": 2 * precision * found / (precision + found),
        "brier": float((second * (1 - p) ** 2 + first * p**2).sum()),
        "log_loss": float(-(second * np.log(p) + first * np.log1p(-p)).sum()),
    }


def _flat_area(counts: Any, scale: float, rng: np.random.Generator) -> float:
    """Return the area from counts with independent noise, 0.5 where there is none."""
    first, second = counts + scale * rng.normal(size=counts.shape)
    pairs = first.sum() * second.sum()
    area = second @ (np.cumsum(first) - first / 2) / pairs if pairs > 0 else 0.5
    return float(min(max(area, 0.0), 1.0))


def repetition(data: str, n: int, epsilons: tuple[float, ...], seed: int) -> list[dict[str, Any]]:
    """Return value, error and interval of every figure for each budget and relation, on the same records."""
    rng, share = np.random.default_rng([n, seed]), SETS[data]
    labels = (rng.random(n) < share).astype(int)
    scores = _probability(rng.normal(size=n) + DISTANCE * labels, share)
    counts = np.bincount(labels * N_BINS + np.minimum((scores * N_BINS).astype(int), N_BINS - 1), minlength=2 * N_BINS)
    rows = []
    for epsilon, neighbours in product(epsilons, RELATIONS):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of the seed
            evaluation = evaluate(
                labels, scores, epsilon=epsilon, delta=DELTA, classes=[0, 1], n_bins=N_BINS, neighbours=neighbours,
                random_state=rng,
            )  # fmt: skip
        figures = {name: getattr(evaluation, name) for name in FIGURES}
        figures = {name: figure() if callable(figure) else figure for name, figure in figures.items()}
        sensitivity = 1 if neighbours == "add_remove" else 2**0.5
        row = {name: (float(f), f.standard_error, *f.interval(0.95)) for name, f in figures.items()}
        scale = sensitivity / gaussian_mu(epsilon, DELTA)
        rows.append({"figures": row, "flat": _flat_area(counts.reshape(2, -1), scale, rng)})
    return rows


def chunk(data: str, n: int, epsilons: tuple[float, ...], seeds: range, threads: int) -> list[list[dict[str, Any]]]:
    """Return some repetitions, in a process with its own limit of threads."""
    with threadpool_limits(threads):
        return [repetition(data, n, epsilons, seed) for seed in seeds]
