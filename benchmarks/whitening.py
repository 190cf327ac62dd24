"""What the ingredients of ``whitened_gd`` are worth, and how settled its two least settled constants are.

    OPENBLAS_NUM_THREADS=1 python benchmarks/whitening.py --study ingredients --jobs 2

* ingredients: the solver with one idea taken away, on three sets, beside the figures of an independent implementation;
* constants: full or diagonal second moment, and the growth of the clip, on sets of different shape, some of them made
  for the purpose (``made_sets.py``), with the area under the curve where one class is rare.

Each study is kept under its own name, ``whitening-STUDY`` unless ``--name`` says otherwise; a part of the sets in a run
of its own may be added with a longer name.
"""

from __future__ import annotations

import argparse
from itertools import product
from typing import Any

from common import TITLES, add_common_options, write_result
from fits import MODELS, Cell, add_protocol_options, begin, run_cells
from made_sets import MADE_SETS
from whitening_tables import report
from whitening_variants import VARIANTS

NAME = "whitening"
INGREDIENTS = (
    "default",
    "full",
    "diagonal",
    "raw_clip",
    "uniform",
    "raw",
    "clip_1",
    "largest_step",
    "no_momentum",
    "fixed_clip",
    "diagonal_fixed_clip",
    "no_momentum_fixed_clip",
)
CONSTANTS = ("default", "full", "diagonal", "fixed_clip", "growth_from_3", "growth_from_48")
STUDIES: dict[str, dict[str, Any]] = {
    "ingredients": {
        "variants": INGREDIENTS,
        "data": ("adult", "bank", "ipums_br"),
        "models": ("logistic",),
        "epsilons": (0.05, 0.2, 0.8),
    },
    "constants": {
        "variants": CONSTANTS,
        "data": ("adult", "bank", "ipums_br", "acs_national", "bank_raw", "spambase", "w8a", *MADE_SETS),
        "models": ("logistic", "svm"),
        "epsilons": (0.05, 0.2, 0.8, 3.2),
    },
}


def parse() -> argparse.Namespace:
    """Return the options; what is not given is the study's."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--study", choices=tuple(STUDIES), default="ingredients")
    parser.add_argument("--variants", nargs="+", choices=tuple(VARIANTS))
    parser.add_argument("--data", nargs="+", choices=tuple(TITLES))
    parser.add_argument("--models", nargs="+", choices=tuple(MODELS))
    parser.add_argument("--epsilons", nargs="+", type=float)
    add_protocol_options(parser, folds=5, repeats=2)
    add_common_options(parser, "")
    options = parser.parse_args()
    for name, value in STUDIES[options.study].items():
        if getattr(options, name) is None:
            setattr(options, name, value)
    options.name = options.name or f"{NAME}-{options.study}"
    if options.quick:
        small = [name for name in ("blobs", "few") if name in options.data]
        options.data, options.models = small or options.data[:1], ["logistic"]
        options.epsilons, options.folds, options.repeats = [0.8], 2, 1
    return options


def main() -> None:
    """Run the cells, write the result and print its table."""
    options = parse()
    names, protocol, document = begin(options)
    if not names:
        return
    cells = [
        Cell(data, model, "whitened_gd", epsilon, VARIANTS[label].parameters, label=label, variant=label)
        for data, model, epsilon, label in product(names, options.models, options.epsilons, options.variants)
    ]
    document |= {"study": options.study, "cells": run_cells(cells, protocol, options.jobs, document["run"])}
    write_result(options.name, options.quick, document)
    print(report(document))


if __name__ == "__main__":
    main()
