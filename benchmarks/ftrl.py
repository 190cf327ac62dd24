"""Correlated noise beside sampling: DP-FTRL against DP-SGD with and without amplification, at equal epsilon.

    OPENBLAS_NUM_THREADS=1 python benchmarks/ftrl.py

Every method makes the same number of steps with batches of the same (expected) size:

* *square_root*, *tree*, *honaker*: ``ftrl``, fixed batches that every record is in once a pass;
* *independent*: ``ftrl`` with ``band=1``. The factorisation is then ``C = I``, ``B = A``: fresh noise in every step,
  calibrated for one record in one step of each pass. Its iterates are those of stochastic gradient descent with
  heavy-ball momentum. This is DP-SGD on fixed batches, without amplification;
* *sampled*: ``sgd`` on Poisson batches of rate ``1 / steps``, whose noise amplification by sampling makes smaller;
* *sampled_momentum*: the same with the momentum of ``ftrl``, ``1 - 5 / T``, where that is not the default of ``sgd``.

All else is at the defaults. The result also holds the noise in prefix sums, computed from the factorisations.
"""

from __future__ import annotations

import argparse
from itertools import product
from math import ceil
from typing import Any

from common import SETS, TITLES, add_common_options, load, write_result
from fits import DELTA, Cell, add_protocol_options, begin, run_cells
from ftrl_tables import report
from prefix_errors import budget_errors, step_errors

NAME = "ftrl"
METHODS: dict[str, dict[str, Any]] = {
    "square_root": {},
    "tree": {"factorisation": "tree"},
    "honaker": {"factorisation": "honaker"},
    "independent": {"band": 1},
    "sampled": {},
    "sampled_momentum": {},
}
SHAPES = ((1, 5), (5, 5), (20, 5), (1, 20), (5, 20), (20, 20), (1, 100))  # passes, and the steps of one; ftrl has 5
SGD_MOMENTUM = 0.95
MEMORY = 5  # of the momentum of ftrl, which is 1 - 5 / T


def shape(text: str) -> tuple[int, int]:
    """Return passes and the steps of one."""
    passes, steps = text.split("x")
    return int(passes), int(steps)


def parse() -> argparse.Namespace:
    """Return the options."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--data", nargs="+", choices=tuple(TITLES), default=SETS)
    parser.add_argument("--methods", nargs="+", choices=tuple(METHODS), default=tuple(METHODS))
    parser.add_argument("--epsilons", nargs="+", type=float, default=(0.05, 0.2, 0.8))
    parser.add_argument("--shapes", nargs="+", type=shape, default=SHAPES, help="as PASSESxSTEPS, steps of a pass")
    parser.add_argument("--counts", nargs="+", type=int, default=(100, 1000, 10_000), help="of the noise at mu = 1")
    add_protocol_options(parser, folds=5, repeats=1)
    add_common_options(parser, NAME)
    options = parser.parse_args()
    if options.quick:
        options.data, options.epsilons, options.shapes = ["bank"], [0.2], SHAPES[:2]
        options.folds, options.repeats, options.counts = 2, 1, [100]
    return options


def cell(method: str, data: str, epsilon: float, passes: int, steps: int, n_train: int) -> Cell | None:
    """Return the cell of a method, or None where it would be that of ``sampled`` once more."""
    total = passes * steps
    label = f"{method}, {passes} x {steps}"
    if not method.startswith("sampled"):
        parameters = {"max_iter": passes, "batch_size": ceil(n_train / steps), **METHODS[method]}
        return Cell(data, "logistic", "ftrl", epsilon, tuple(parameters.items()), label=label)
    parameters = {"max_iter": total, "rate": 1 / steps}
    if method == "sampled_momentum":
        parameters["momentum"] = max(0.0, 1 - MEMORY / total)
        if parameters["momentum"] >= SGD_MOMENTUM:
            return None
    return Cell(data, "logistic", "sgd", epsilon, tuple(parameters.items()), label=label)


def main() -> None:
    """Run the cells, write the result and print its tables."""
    options = parse()
    names, protocol, document = begin(options)
    if not names:
        return
    document["step_errors"] = step_errors(options.counts, (1, 10))
    document["budget_errors"] = budget_errors(options.epsilons, DELTA, options.shapes)
    cells = []
    for data in names:
        n_train = ceil(load(data)[0].shape[0] * (1 - 1 / protocol.folds))
        for (passes, steps), epsilon, method in product(options.shapes, options.epsilons, options.methods):
            made = cell(method, data, epsilon, passes, steps, n_train)
            cells += [made] if made else []
    document["cells"] = run_cells(cells, protocol, options.jobs, document["run"])
    write_result(options.name, options.quick, document)
    print(report(document))


if __name__ == "__main__":
    main()
