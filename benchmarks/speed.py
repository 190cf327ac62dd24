"""Speed as ratios to baselines that run in turn with ours, in one process.

    OPENBLAS_NUM_THREADS=1 python benchmarks/speed.py

* iteration: one DP-GD iteration over two plain products with X, for each layout of Adult and for a dense
  matrix of random numbers of the same shape (which needs no data set);
* per_example: the same iteration against one that materialises the gradient of every record;
* fit: whole fits on Adult against scikit-learn's ``LogisticRegression(C=1)``;
* solvers: one fit with each solver and each of its methods, dense and CSR, against the same;
* whitened: the same for ``whitened_gd`` alone, with more repetitions;
* update: one update of the line-search solvers, all of whose 20 steps fail, over two plain products with X, and against
  code that multiplies by X for each step;
* batch: one step of ``sgd``, ``adam`` and ``rmsprop`` over gathering a batch and two products with it;
* losses: the logistic loss against ``np.logaddexp``.

The exit code is 0 whatever the targets say: read the table, and run on an idle machine.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import Any

import threadpoolctl
from common import add_common_options, available, describe_run, write_result
from speed_batches import batches
from speed_fits import fits
from speed_iterations import iterations, losses, per_example
from speed_line_search import updates
from speed_solvers import solvers, whitened
from speed_tables import report

NAME = "speed"
PARTS = {
    "iteration": iterations,
    "per_example": per_example,
    "update": updates,
    "batch": batches,
    "fit": fits,
    "solvers": solvers,
    "whitened": whitened,
    "losses": losses,
}


def parse() -> argparse.Namespace:
    """Return the options."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--parts", nargs="+", choices=tuple(PARTS), default=tuple(PARTS))
    parser.add_argument("--repetitions", type=int, default=100, help="of iterations and losses (default 100)")
    parser.add_argument("--fits", type=int, default=9, help="repetitions of whole fits (default 9)")
    add_common_options(parser, NAME)
    options = parser.parse_args()
    if options.quick:
        options.repetitions, options.fits = 7, 1
    return options


def lines(options: argparse.Namespace, has_adult: bool) -> Iterator[dict[str, Any]]:
    """Yield the comparisons of all parts that were asked for."""
    for part in options.parts:
        repetitions = options.fits if part in ("fit", "solvers", "whitened") else options.repetitions
        for line in PARTS[part](repetitions, has_adult):
            yield {"part": part, **line}


def main() -> None:
    """Time, write the result and print its table."""
    options = parse()
    has_adult = bool(available(["adult"]))
    with threadpoolctl.threadpool_limits(options.threads, user_api="blas"):
        run = describe_run()
        comparisons = list(lines(options, has_adult))
    document = {
        "run": run,
        "protocol": {"repetitions": options.repetitions, "fits": options.fits, "threads": options.threads},
        "comparisons": comparisons,
    }
    write_result(options.name, options.quick, document)
    print(report(document))


if __name__ == "__main__":
    main()
