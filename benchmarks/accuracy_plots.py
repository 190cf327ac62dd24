"""Figures against epsilon, a panel a data set: accuracy of all solvers, and what was measured on other sets."""

from __future__ import annotations

from typing import Any

from accuracy_tables import NO_PRIVACY, Place, Result
from common import TITLES, in_order, read_results
from fits import MODELS
from other_tables import BASELINE, FIGURES, MODEL, merged, reached
from plotting import GREY, MARKS, epsilon_axis, grid, legend_below, mark, save

PURE = ("objective_pure", "output_pure", "privgene_pure")
DOTTED = {"color": GREY, "linestyle": ":", "linewidth": 1.4}


def draw() -> None:
    """Write the pictures of the accuracy tables and of the other sets."""
    documents = read_results("accuracy")
    if documents:
        result = Result(documents)
        _solvers(result, tuple(MARKS), "accuracy")
        _solvers(result, PURE, "accuracy-pure")
    documents = read_results("other_sets")
    if documents:
        cells = merged(tuple(documents))
        for figure in FIGURES:
            _other_sets(cells, figure)


def _solvers(result: Result, solvers: tuple[str, ...], name: str) -> None:
    """Draw a row of panels for each model; dotted is the better fit without privacy."""
    epsilons = [e for e in result.epsilons if any(result.run_at(m, s, e) for m in result.models for s in solvers)]
    figure, axes = grid(len(result.models), len(result.sets), 2.7, 2.2, sharex=True, sharey="col")
    for row, model in enumerate(result.models):
        for column, data in enumerate(result.sets):
            axis = axes[row, column]
            for solver in solvers:
                found = [(e, ours) for e in epsilons if (ours := result.ours(Place(data, model, e), solver))]
                if found:
                    means, errors = [ours.mean for _, ours in found], [ours.error for _, ours in found]
                    axis.errorbar([e for e, _ in found], means, errors, capsize=2, label=solver, **mark(solver))
            free = [
                ours.mean
                for epsilon in result.epsilons
                for solver in NO_PRIVACY
                if (ours := result.ours(Place(data, model, epsilon), solver))
            ]
            if free:
                axis.axhline(max(free), label="no privacy", **DOTTED)
            epsilon_axis(axis, epsilons)
            if row == 0:
                axis.set_title(TITLES[data], fontsize=10)
            if row == len(result.models) - 1:
                axis.set_xlabel("epsilon", fontsize=9)
        axes[row, 0].set_ylabel(f"{MODELS[model][0].__name__}\ntest accuracy, %", fontsize=8)
    legend_below(figure, axes[0, 0], 4)
    save(figure, name)


def _other_sets(cells: Any, name: str) -> None:
    """Draw one figure of merit of all solvers, a panel a set."""
    sets, epsilons = in_order(key[0] for key in cells), sorted({key[3] for key in cells})
    solvers = [solver for solver in MARKS if any(key[2] == solver for key in cells)]
    columns = 4
    figure, axes = grid(-(-len(sets) // columns), columns, 2.6, 2.0, sharex=True)
    fullest = max(sets, key=lambda data: len({key[2] for key in cells if key[0] == data}))
    for axis, data in zip(axes.flat, sets, strict=False):
        for solver in solvers:
            found = [(e, value) for e in epsilons if (value := reached(cells, name, data, MODEL, solver, e))]
            if found:
                means, errors = [mean for _, (mean, _) in found], [error for _, (_, error) in found]
                axis.errorbar([e for e, _ in found], means, errors, capsize=2, label=solver, **mark(solver))
        free = next((value for e in epsilons if (value := reached(cells, name, data, MODEL, BASELINE, e))), None)
        if free:
            axis.axhline(free[0], label="no privacy", **DOTTED)
            axis.margins(y=0.1)
        epsilon_axis(axis, epsilons)
        axis.set_title(TITLES[data], fontsize=9)
        if data == fullest:
            full_axis = axis
    for axis in axes.flat[len(sets) :]:
        axis.set_visible(False)
    for axis in axes[-1]:
        axis.set_xlabel("epsilon", fontsize=9)
    figure.supylabel(FIGURES[name][0], fontsize=9)
    legend_below(figure, full_axis, 3)
    save(figure, f"other_sets-{name}")
