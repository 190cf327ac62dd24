"""What it costs to declare the true bound on the rows, under both row maps, beside ``data_norm=1``.

    OPENBLAS_NUM_THREADS=1 python benchmarks/data_norm.py

For each set three norms are declared: 1, which is below most rows of most sets; *tight*, what follows from the bounds
of the columns, ``sqrt(sum_j max(|low_j|, |high_j|)^2)``, where the indicators of one categorical column count once; and
*loose*, four times that. Cells are written as they are done; the same command again makes those that are missing.
Other solvers get a ``--name`` of their own that begins with ``data_norm-``; the tables are of all of them.
"""

from __future__ import annotations

import argparse
import json
from itertools import product
from math import sqrt

from common import add_common_options, read_results, result_path, write_result
from data_norm_tables import report
from fits import Cell, add_protocol_options, begin, run_cell

NAME = "data_norm"
DELTA = 1e-6
# Sums of squares of the columns' bounds: categorical columns and numeric ones, all within [-1, 1].
SQUARES = {
    "bank": 16,
    "ipums_br": 20,
    "spambase": 57,
    "breast_cancer": 30,
    "few": 20,
    "rare_positives": 20,
    "blobs": 2,
    "ray": 4,
    "adult": 14,
    "acs_national": 17,
    "w8a": 300,
    "label_noise": 30,
}
# Looked at to choose the map; w8a is the one that decided what becomes of rows of zeros.
CHOSEN_ON = ("bank", "ipums_br", "spambase", "breast_cancer", "few", "rare_positives", "blobs", "ray", "w8a")
NORMS = ("1", "tight", "loose")
MAPS = ("clip", "fill")


def declared(data: str, norm: str) -> float:
    """Return the norm that is declared for a set."""
    return 1.0 if norm == "1" else round(sqrt(SQUARES[data]) * (4 if norm == "loose" else 1), 4)


def parse() -> argparse.Namespace:
    """Return the options."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--data", nargs="+", choices=tuple(SQUARES), default=tuple(SQUARES))
    parser.add_argument("--solvers", nargs="+", default=("objective_perturbation",))
    parser.add_argument("--epsilons", nargs="+", type=float, default=(0.1, 0.5, 1.0))
    parser.add_argument("--norms", nargs="+", choices=NORMS, default=NORMS)
    add_protocol_options(parser, folds=5, repeats=2)
    add_common_options(parser, NAME)
    options = parser.parse_args()
    if options.quick:
        options.data, options.solvers = ["blobs", "ray"], ["objective_perturbation"]
        options.epsilons, options.folds, options.repeats = [0.5], 2, 1
    return options


def cells_of(options: argparse.Namespace, names: list[str]) -> list[Cell]:
    """Return the cells; solvers that know one row map have one row of them."""
    found = []
    for solver, data, epsilon, norm, rows in product(options.solvers, names, options.epsilons, options.norms, MAPS):
        if solver == "whitened_gd" and rows != "fill":
            continue
        parameters = () if solver == "whitened_gd" else (("rows", rows),)
        label = "sphere" if solver == "whitened_gd" else rows
        found.append(
            Cell(
                data,
                "logistic",
                solver,
                epsilon,
                parameters,
                label=f"{label}, {norm}",
                delta=DELTA,
                data_norm=declared(data, norm),
            )
        )
    return found


def main() -> None:
    """Run the cells that are missing, write each, and print the tables."""
    options = parse()
    names, protocol, document = begin(options)
    if not names:
        return
    document["protocol"] |= {"delta": DELTA}
    document["chosen_on"] = CHOSEN_ON
    path = result_path(options.name, options.quick)
    if path.exists() and not options.quick:
        earlier = json.loads(path.read_text())
        if earlier["protocol"] != document["protocol"]:
            raise SystemExit(f"{path.name} was made with other options: give this run a --name of its own")
        document = earlier
    done = document.setdefault("cells", [])
    seen = {(cell["data"], cell["solver"], cell["epsilon"], cell["label"]) for cell in done}
    for cell in cells_of(options, names):
        if (cell.data, cell.solver, cell.epsilon, cell.label) not in seen:
            done.append(run_cell(cell, protocol))
            write_result(options.name, options.quick, document)
    print(report(*read_results(NAME, options.quick)))


if __name__ == "__main__":
    main()
