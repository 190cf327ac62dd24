"""Test accuracy of the untuned defaults beside published reference columns and tuned peers.

    OPENBLAS_NUM_THREADS=1 python benchmarks/accuracy.py --jobs 2

Protocol: delta = 1e-8, stratified folds (seeded split, noise from the operating system), features one-hot
and in [0, 1], ``data_norm=1``, classes declared, every other parameter at its default. The figures to
compare with are in ``yardsticks.json``. A data set that cannot be read is skipped with its reason. A run of some
solvers is kept beside the others by a ``--name`` that begins with ``accuracy``.
"""

from __future__ import annotations

import argparse
from itertools import product

from accuracy_tables import report
from common import SETS, TITLES, add_common_options, write_result
from fits import BASELINES, DELTA, MODELS, WITH_PUBLIC, Cell, add_protocol_options, begin, run_cells

from dpskl.solvers import solver_names

NAME = "accuracy"
EPSILONS = (0.05, 0.1, 0.2, 0.4, 0.8, 1.6)
SOLVERS = (
    "objective_perturbation",
    "gd",
    "agd",
    "blgd",
    "blsgd",
    "blsgd_ac",
    "output_perturbation",
    "exponential_mechanism",
    "privgene",
    "frank_wolfe",
    "whitened_gd",
)
VARIANTS = {  # label: solver, parameters, delta
    "blsgd_ac": ("blsgd", (("threshold_decay", 0.05),), DELTA),
    "objective_pure": ("objective_perturbation", (), 0.0),
    "output_pure": ("output_perturbation", (), 0.0),
    "privgene_pure": ("privgene", (), 0.0),
}


def parse() -> argparse.Namespace:
    """Return the options."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--data", nargs="+", choices=tuple(TITLES), default=SETS)
    parser.add_argument("--models", nargs="+", choices=tuple(MODELS), default=tuple(MODELS))
    parser.add_argument("--solvers", nargs="+", choices=[*solver_names(), *VARIANTS, *BASELINES], default=SOLVERS)
    parser.add_argument("--epsilons", nargs="+", type=float, default=EPSILONS)
    add_protocol_options(parser, folds=5, repeats=2)
    add_common_options(parser, NAME)
    options = parser.parse_args()
    if options.quick:
        smallest = [name for name in options.data if name == "bank"]
        options.data, options.epsilons = smallest or options.data[:1], [0.1, 0.8]
        options.folds, options.repeats = 2, 1
    return options


def main() -> None:
    """Run the cells, write the result and print its tables."""
    options = parse()
    names, protocol, document = begin(options)
    if not names:
        return
    cells = []
    for data, label, model, epsilon in product(names, options.solvers, options.models, options.epsilons):
        solver, parameters, delta = VARIANTS.get(label, (label, (), DELTA))
        is_refused = solver not in (*solver_names(MODELS[model][1]), *BASELINES, *WITH_PUBLIC)
        if not is_refused and (solver != "lbfgs" or model == "logistic"):
            cells.append(Cell(data, model, solver, epsilon, parameters, label=label, delta=delta))
    document["cells"] = run_cells(cells, protocol, options.jobs, document["run"])
    write_result(options.name, options.quick, document)
    print(report(document))


if __name__ == "__main__":
    main()
