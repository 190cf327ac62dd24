"""What other values of the constants behind the defaults would do, one rule at a time.

    OPENBLAS_NUM_THREADS=1 python benchmarks/ablation.py --jobs 2

Solver parameters are set; module-level constants are replaced for the fit alone. Every other rule stays at its
default, and the default of each rule is fitted once and shown in every table that has it. The protocol is
that of ``accuracy.py`` with 3 folds and one split.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from itertools import product
from typing import Any

from ablation_tables import report
from common import SETS, TITLES, add_common_options, write_result
from fits import MODELS, Cell, add_protocol_options, begin, constant, run_cells

from dpskl.records.losses import Logistic
from dpskl.solvers import make_solver

NAME = "ablation"
EPSILONS = (0.05, 0.2, 0.8)
_GD = "dpskl.solvers.gradient_descent"
_OBJECTIVE = "dpskl.solvers.objective_perturbation"
_WHITENED = "dpskl.solvers.whitened_gd"


@dataclass(frozen=True)
class Rule:
    """One rule: a solver parameter, or the dotted name of a constant."""

    title: str
    solver: str
    values: tuple[Any, ...]
    constant: str | None = None
    parameter: str | None = None

    @property
    def default(self) -> Any:
        """The value in force."""
        if self.constant is None:
            return make_solver(self.solver, Logistic()).get_params()[str(self.parameter)]
        return constant(self.constant)

    def cell(self, data: str, model: str, epsilon: float, value: Any) -> Cell:
        """Return the cell of a value; all rules of a solver share that of their defaults."""
        if value == self.default:
            return Cell(data, model, self.solver, epsilon)
        if self.constant is None:
            return Cell(data, model, self.solver, epsilon, parameters=((str(self.parameter), value),))
        return Cell(data, model, self.solver, epsilon, constants=((self.constant, value),))


_RATIO = {"values": (0.1, 0.3, 0.5, 1.0), "constant": "dpskl.base._INTERCEPT_RATIO"}
RULES = {
    "clip_share": Rule(
        "Smallest clip norm as a share of the largest gradient norm",
        "gd",
        (1 / 4, 1 / 3, 0.45, 1.0),
        constant=f"{_GD}._CLIP_SHARE",
    ),
    "clip_signal": Rule(
        "mu n / p at which nothing is clipped", "gd", (20.0, 40.0, 80.0), constant=f"{_GD}._CLIP_SIGNAL"
    ),
    "time": Rule("Constant of the total time", "gd", (175.0, 350.0, 700.0, 1400.0), constant=f"{_GD}._TIME"),
    "momentum": Rule("Momentum", "gd", (0.0, 0.9, 0.95), constant=f"{_GD}._MOMENTUM"),
    "steps": Rule(
        "Fewest and most steps",
        "gd",
        ((25, 150), (50, 150), (100, 150), (150, 150), (250, 250)),
        constant=f"{_GD}._STEPS",
    ),
    "ridge_share": Rule(
        "Share of epsilon for the ridge (None: the rule)",
        "objective_perturbation",
        (None, 0.05, 0.1, 0.2, 0.3),
        parameter="ridge_share",
    ),
    "ridge_rule": Rule(
        "Factor of the rule for that share",
        "objective_perturbation",
        (1 / 40, 1 / 20, 1 / 10),
        constant=f"{_OBJECTIVE}._SHARE",
    ),
    "moment_share": Rule(
        "Share of mu^2 for the second moment",
        "whitened_gd",
        (0.05, 0.1, 0.2, 0.4),
        constant=f"{_WHITENED}._SHARE",
    ),
    "whitener_ridge": Rule(
        "Ridge of the whitener over the norm of its noise",
        "whitened_gd",
        (0.1, 0.25, 0.5),
        constant=f"{_WHITENED}._NOISE_SHARE",
    ),
    "whitened_momentum": Rule(
        "Largest momentum in whitened coordinates",
        "whitened_gd",
        (0.0, 0.5, 0.75),
        constant=f"{_WHITENED}._LARGEST_MOMENTUM",
    ),
    "intercept_gd": Rule("Constant column as a multiple of data_norm", "gd", **_RATIO),
    "intercept_objective": Rule("Constant column as a multiple of data_norm", "objective_perturbation", **_RATIO),
}
# What Chen & Lee (2020) vary in their figure 1, and what is ours; for --rules line_search.
LINE_SEARCH = {
    "alpha": Rule("alpha", "blgd", (0.1, 0.3, 0.5, 0.7, 0.9), parameter="alpha"),
    "beta": Rule("beta", "blgd", (0.5, 0.7, 0.8, 0.9), parameter="beta"),
    "noise": Rule("noise", "blgd", ("gaussian", "laplace"), parameter="noise"),
    "budget_rule": Rule("budget_rule", "blgd", ("never", "adaptive", "always"), parameter="budget_rule"),
    "line_momentum": Rule("momentum", "blgd", (0.0, 0.5, 0.9), parameter="momentum"),
    "line_clip": Rule("clip_norm", "blgd", (None, 3.0), parameter="clip_norm"),
    "q": Rule("q", "blsgd", (0.02, 0.05, 0.1, 0.2), parameter="q"),
    "sampled_rule": Rule("budget_rule", "blsgd", ("never", "adaptive", "always"), parameter="budget_rule"),
    "zeta": Rule("threshold_decay", "blsgd", (0.0, 0.02, 0.05, 0.1), parameter="threshold_decay"),
}


def parse() -> argparse.Namespace:
    """Return the options."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    choices = ("line_search", *RULES, *LINE_SEARCH)
    parser.add_argument("--rules", nargs="+", choices=choices, default=tuple(RULES))
    parser.add_argument("--data", nargs="+", choices=tuple(TITLES), default=SETS)
    parser.add_argument("--models", nargs="+", choices=tuple(MODELS), default=("logistic", "svm"))
    parser.add_argument("--epsilons", nargs="+", type=float, default=EPSILONS)
    add_protocol_options(parser, folds=3, repeats=1)
    add_common_options(parser, NAME)
    options = parser.parse_args()
    if "line_search" in options.rules:
        options.rules = list(LINE_SEARCH)
    if options.quick:
        smallest = [name for name in options.data if name == "bank"]
        options.data, options.epsilons = smallest or options.data[:1], [0.2]
        options.models, options.folds = options.models[:1], 2
    return options


def values(rule: Rule) -> list[Any]:
    """Return the values to try, the one in force among them."""
    return list(rule.values) if rule.default in rule.values else [rule.default, *rule.values]


def _describe(name: str, options: argparse.Namespace, names: list[str], places: dict[Cell, int]) -> dict[str, Any]:
    """Return a rule as the result file keeps it; ``places`` collects its cells and numbers them."""
    rule = (RULES | LINE_SEARCH)[name]
    entries = []
    for value in values(rule):
        cells = [
            rule.cell(data, model, epsilon, value)
            for data, model, epsilon in product(names, options.models, options.epsilons)
        ]
        numbers = [places.setdefault(cell, len(places)) for cell in cells]
        entries.append({"value": value, "is_default": value == rule.default, "cells": numbers})
    return {"name": name, "title": rule.title, "solver": rule.solver, "values": entries}


def main() -> None:
    """Run the cells of all rules once each, write the result and print a table for each rule."""
    options = parse()
    names, protocol, document = begin(options)
    if not names:
        return
    places: dict[Cell, int] = {}
    rules = [_describe(name, options, names, places) for name in options.rules]
    document |= {"rules": rules, "cells": run_cells(places, protocol, options.jobs, document["run"])}
    write_result(options.name, options.quick, document)
    print(report(document))


if __name__ == "__main__":
    main()
