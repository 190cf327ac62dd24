"""Delayed preconditioners on the reviews of IMDB, at the settings of their paper: who is ahead, and along the way?

    OPENBLAS_NUM_THREADS=1 python benchmarks/delays.py --jobs 2

Batches of 64 of the 25,000 training reviews, 100 epochs, noise multiplier 1, delta = 1e-5; the 10,000 commonest words,
present or absent; no intercept, no penalty, last iterate; step sizes and clip norms are those that the paper's authors
found (for variants and rivals that they give none for, see ``METHODS``). The 25,000 test reviews are looked at 20 times
in each run. Noise is seeded, one seed a run: it is for research, and several times faster. Finished runs are kept, and
the same command goes on with the others.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
import warnings
from typing import Any
from unittest import mock

import joblib
import numpy as np
import threadpoolctl
from common import KeptCells, add_common_options, available, describe_run, load, write_result
from delays_tables import report

from dpskl import DPLogisticRegression
from dpskl.accounting import SampledGaussianCost, compose
from dpskl.solvers import SGD, AdaDPS, DelayedPreconditioner, PublicMirrorDescent, RMSProp, WhitenedGD

NAME = "delays"
N, WORDS, BATCH, EPOCHS, DELTA = 25_000, 10_000, 64, 100, 1e-5
PUBLIC = N // 100
HALF_EPOCH = 195
LOOKS = 20
PLAIN = {"iterate": "last", "rows": "clip"}
DP2 = {"step_size": 0.1, "step_size_2": 3.0, "clip_norm": 0.5, "clip_norm_2": 5.0, "stability": 2e-7, "momentum": 0.0}


def dp2(s: int = HALF_EPOCH, **changes: Any) -> tuple[Any, dict[str, Any]]:
    """Return DP^2 with the paper's parameters and a delay of ``s`` steps."""
    return DelayedPreconditioner, {**DP2, "s1": s, **PLAIN, **changes}


SGD_SETTINGS = {"step_size": 5.0, "clip_norm": 0.5, "momentum": 0.0, **PLAIN}
RMS_SETTINGS = {"step_size": 0.3, "clip_norm": 0.1, "stability": 1e-2, **PLAIN}
METHODS: dict[str, tuple[Any, dict[str, Any]]] = {
    "sgd": (SGD, SGD_SETTINGS),
    "rmsprop": (RMSProp, RMS_SETTINGS),
    "dp2": dp2(),
    "dp2, noise then scales": dp2(variant="noise_then_precondition"),
    "dp2, two gradients a step": dp2(variant="extra_noise"),
    "whitened_gd": (WhitenedGD, {}),
    # 1 % of the training reviews are public; step and clip of SGD, whose units both have
    "adadps": (AdaDPS, SGD_SETTINGS),
    "pda_dpmd, cosine": (PublicMirrorDescent, {**SGD_SETTINGS, "mixing": "cosine"}),
    "pda_dpmd, balanced": (PublicMirrorDescent, SGD_SETTINGS),
    **{f"dp2, s = {s}": dp2(s) for s in (20, 65, 585, 1950, 9765)},
    # the paper's steps are long for rows of this length: shorter ones, to be chosen by what the training rows say
    **{f"sgd, step {x:g}": (SGD, {**SGD_SETTINGS, "step_size": x}) for x in (0.03, 0.1, 0.3, 1.0)},
    **{f"rmsprop, step {x:g}": (RMSProp, {**RMS_SETTINGS, "step_size": x}) for x in (0.001, 0.003, 0.01, 0.03)},
    **{f"dp2, step_2 {x:g}": dp2(step_size_2=x) for x in (0.01, 0.03, 0.1, 0.3)},
}


def parse() -> argparse.Namespace:
    """Return the options."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--methods", nargs="+", choices=tuple(METHODS), default=tuple(METHODS))
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--epochs", type=int, default=EPOCHS)
    parser.add_argument("--jobs", type=int, default=1)
    add_common_options(parser, NAME)
    options = parser.parse_args()
    if options.quick:
        options.seeds, options.epochs = 1, 1
    return options


def budget(epochs: int) -> tuple[float, int]:
    """Return the epsilon of so many epochs at noise multiplier 1, and the number of steps."""
    n_steps = epochs * N // BATCH
    return compose([(SampledGaussianCost(BATCH / N, 1.0), n_steps)]).epsilon(DELTA), n_steps


def run(method: str, seed: int, epochs: int, threads: int) -> dict[str, Any]:
    """Return test accuracy and training loss along one run, and at its end."""
    X, y = load("imdb")
    X, epsilon, n_steps = X[:, :WORDS].tocsr(), *budget(epochs)
    kind, parameters = METHODS[method]
    is_whitened = kind is WhitenedGD
    private, given = np.arange(N), {}
    if kind in (AdaDPS, PublicMirrorDescent):
        public, private = np.split(np.random.default_rng(seed).permutation(N), [PUBLIC])
        given = {"public_data": (X[public], y[public])}
    steps = {} if is_whitened else {"batch_size": BATCH, "max_iter": n_steps}
    solver = kind(**steps, **parameters, **given)
    # a row has at most 100 words' length, so that none is scaled; whitening puts all on a sphere and has its own rules
    facts = {} if is_whitened else {"data_norm": 100.0, "fit_intercept": False, "C": 1e6}
    model = DPLogisticRegression(epsilon, DELTA, solver=solver, classes=[-1, 1], random_state=seed, **facts)
    looks: list[dict[str, float]] = []

    def look(step: int, weights: Any) -> None:
        margins = [X[part] @ weights * y[part] for part in (slice(N, None), slice(N))]
        accuracy, on_training = (round(100 * float((part > 0).mean()), 3) for part in margins)
        loss = round(float(np.logaddexp(0, -margins[1]).mean()), 5)
        looks.append({"step": step, "accuracy": accuracy, "train_accuracy": on_training, "train_loss": loss})

    def watched(self: Any, curator: Any, plan: Any) -> Any:
        step, count = stepper(self, curator, plan), 0

        def next_weights(weights: Any) -> Any:
            nonlocal count
            weights, count = step(weights), count + 1
            if count % max(1, n_steps // LOOKS) == 0:
                look(count, weights)
            return weights

        return next_weights

    start = time.perf_counter()
    with warnings.catch_warnings(), threadpoolctl.threadpool_limits(threads, user_api="blas"):
        warnings.simplefilter("ignore")  # of seeds
        if is_whitened:
            model.fit(X[private], y[private])
        else:
            stepper = kind.stepper
            with mock.patch.object(kind, "stepper", watched):
                model.fit(X[private], y[private])
    seconds = time.perf_counter() - start
    part = model.privacy_guarantee_.parts[0]
    return {
        "method": method,
        "parameters": {**parameters, "solver": solver.name},
        "seed": seed,
        "epsilon": epsilon,
        "epochs": epochs,
        "n_iter": model.n_iter_,
        "noise_multiplier": part.noise / part.sensitivity,
        "accuracy": round(100 * float(model.score(X[N:], y[N:])), 3),
        "seconds": round(seconds, 1),
        "looks": looks,
    }


def main() -> None:
    """Run what is not kept yet, the first seed of all methods first; write the result and print its tables."""
    options = parse()
    if not available(["imdb"]):
        return
    document = {"run": describe_run(), "protocol": {"delta": DELTA, "batch": BATCH, "words": WORDS, "train": N}}
    kept = KeptCells({**document["run"], "command": f"{NAME} {options.epochs}"})
    wanted = [(method, seed) for seed in range(options.seeds) for method in options.methods]
    left = [pair for pair in wanted if json.dumps(pair) not in kept.done]
    parallel = joblib.Parallel(n_jobs=options.jobs, return_as="generator", batch_size=1)
    results = parallel(joblib.delayed(run)(*pair, options.epochs, options.threads) for pair in left)
    for pair, result in zip(left, results, strict=True):
        kept.keep(json.dumps(pair), result)
        print(
            f"[{len(kept.done)}] {result['method']}, seed {result['seed']}: {result['accuracy']:.2f}, "
            f"{result['seconds']:.0f} s",
            file=sys.stderr,
            flush=True,
        )
    document["runs"] = [kept.done[json.dumps(pair)] for pair in wanted]
    write_result(options.name, options.quick, document)
    print(report(document))


if __name__ == "__main__":
    main()
