"""How much noise is in a prefix sum of gradients: by factorisation, and at one budget beside Poisson samples."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial
from itertools import product
from math import sqrt
from typing import Any

from dpskl.accounting import gaussian_mu, sampled_noise_multiplier
from dpskl.mechanisms.correlated_noise import BinaryTree, Factorisation, SquareRoot, best_square_root

__all__ = ["budget_errors", "factorisations", "step_errors"]


def factorisations(n_steps: int, period: int) -> dict[str, Callable[[], Factorisation]]:
    """Return what makes each factorisation of ``n_steps`` steps, ``period`` of them a pass.

    ``square_root`` is the default of ``ftrl``, which searches for a band; ``independent`` is the identity, ``B = A``.
    """
    return {
        "independent": partial(SquareRoot, n_steps, 1),
        "tree": partial(BinaryTree, n_steps),
        "honaker": partial(BinaryTree, n_steps, refined=True),
        "square_root_pass": partial(SquareRoot, n_steps, period),
        "square_root_whole": partial(SquareRoot, n_steps, n_steps),
        "square_root": partial(best_square_root.__wrapped__, n_steps, period),
    }


def step_errors(counts: Sequence[int], passes: Sequence[int]) -> list[dict[str, Any]]:
    """Return the root mean square of the noise in a prefix sum at ``mu = 1``, in units of the clip norm.

    ``seconds`` is what it took to make the factorisation and to compute this figure.
    """
    rows = []
    for n_passes, n_steps in product(passes, counts):
        period = n_steps // n_passes
        for name, make in factorisations(n_steps, period).items():
            start = time.perf_counter()
            made = make()
            error = made.error(period)
            seconds = time.perf_counter() - start
            band = {"band": made.band} if isinstance(made, SquareRoot) else {}
            row = {"factorisation": name, "passes": n_passes, "steps": n_steps, **band}
            rows.append(row | {"error": round(error, 4), "seconds": round(seconds, 5)})
    return rows


def budget_errors(epsilons: Sequence[float], delta: float, shapes: Sequence[tuple[int, int]]) -> list[dict[str, Any]]:
    """Return the same at equal epsilon, for shapes ``(passes, steps of one)``.

    ``sampled`` are Poisson batches of rate ``1 / period``, as many steps. Their noise is independent, so that a sum of
    ``t`` steps has ``t`` times the variance of one. The noise of the drawing itself is not in this figure.
    """
    rows = []
    for (n_passes, period), epsilon in product(shapes, epsilons):
        n_steps, mu = period * n_passes, gaussian_mu(epsilon, delta)
        multiplier = sampled_noise_multiplier(epsilon, delta, 1 / period, n_steps)
        row = {"epsilon": epsilon, "passes": n_passes, "steps_in_pass": period}
        rows.append(row | {"noise": "sampled", "error": round(multiplier * sqrt((n_steps + 1) / 2), 4)})
        for name, make in factorisations(n_steps, period).items():
            if not name.startswith("square_root_"):
                rows.append(row | {"noise": name, "error": round(make().error(period) / mu, 4)})
    return rows
