"""Accuracy, ranking and probabilities on sets without published figures to compare with."""

from __future__ import annotations

from typing import Any

from common import TITLES, in_order, markdown, mean_and_error
from fits import failures, figures_of

FIGURES = {  # title, digits, and the better end
    "accuracy": ("Test accuracy in percent", 2, max),
    "auc": ("Area under the curve in percent", 2, max),
    "log_loss": ("Log loss of the probabilities on the test rows", 3, min),
}
BASELINE = "lbfgs"  # does not depend on epsilon
MODEL = "logistic"  # the one of the tables by set
SHOWN = (0.2, 0.8)

Cells = dict[tuple[str, str, str, float], dict[str, Any]]


def merged(documents: tuple[dict[str, Any], ...]) -> Cells:
    """Return the cells by data, model, solver and epsilon; a later document replaces those of an earlier one."""
    return {
        (cell["data"], cell["model"], cell["solver"], cell["epsilon"]): cell
        for document in documents
        for cell in document["cells"]
    }


def report(*documents: dict[str, Any]) -> str:
    """Return the tables of one or several results as Markdown."""
    cells = merged(documents)
    counts = sorted({len(cell["fits"]) for cell in cells.values() if cell["fits"]})
    parts = [
        f"delta = {documents[0]['protocol']['delta']:g}, untuned defaults, {' or '.join(map(str, counts))} fits a cell "
        "on stratified folds. *no privacy* is scikit-learn's LogisticRegression(C=1) on the same folds.",
        _wins(cells),
        *(_table(cells, figure) for figure in FIGURES),
        *failures(cells.values()),
    ]
    return "\n\n".join(part for part in parts if part)


def reached(cells: Cells, figure: str, *key: Any) -> tuple[float, float] | None:
    """Return mean and standard error of a cell, or None where it failed, was not run or has no such figure."""
    cell = cells.get((key[0], key[1], key[2], key[3]))
    values = figures_of(cell, figure) if cell else []
    return mean_and_error(values) if values else None


def _wins(cells: Cells) -> str:
    """Return in how many cells each solver is ahead, among those that were run on every set."""
    sets, solvers = in_order(key[0] for key in cells), in_order(key[2] for key in cells)
    everywhere = [
        solver
        for solver in solvers
        if solver != BASELINE and all(any(key[0] == data and key[2] == solver for key in cells) for data in sets)
    ]
    if len(everywhere) < 2:
        return ""
    rows = []
    for figure, (title, _, better) in FIGURES.items():
        winners = []
        for data, model, epsilon in in_order((key[0], key[1], key[3]) for key in cells):
            means = {s: found[0] for s in everywhere if (found := reached(cells, figure, data, model, s, epsilon))}
            if len(means) == len(everywhere):
                winners.append(better(means, key=lambda solver, means=means: means[solver]))
        rows.append([title, len(winners), *(winners.count(solver) for solver in everywhere)])
    return (
        "### Who is ahead, and where\n\n"
        f"Cells of {len(sets)} sets, {len({key[1] for key in cells})} model(s) and {len({key[3] for key in cells})} "
        "budget(s) that each solver won.\n\n" + markdown(["figure", "cells", *everywhere], rows)
    )


def _table(cells: Cells, figure: str) -> str:
    title, digits, better = FIGURES[figure]
    run = sorted({key[3] for key in cells})
    epsilons = [epsilon for epsilon in SHOWN if epsilon in run] or run[:1]
    solvers = [solver for solver in in_order(key[2] for key in cells if key[1] == MODEL) if solver != BASELINE]
    rows, errors = [], [0.0]
    for data in in_order(key[0] for key in cells):
        found = {
            (solver, epsilon): value
            for solver in solvers
            for epsilon in epsilons
            if (value := reached(cells, figure, data, MODEL, solver, epsilon))
        }
        if not found:
            continue
        errors += [error for _, error in found.values()]
        means = {key: mean for key, (mean, _) in found.items()}
        best = {e: better(value for (_, at), value in means.items() if at == e) for e in {at for _, at in means}}

        def entry(solver: str, means: Any = means, best: Any = best) -> str:
            shown = []
            for epsilon in epsilons:
                value = means.get((solver, epsilon))
                text = "" if value is None else f"{value:.{digits}f}"
                shown.append(f"**{text}**" if text and value == best[epsilon] else text)
            return " / ".join(shown) if any(shown) else ""

        planned = next(cell for key, cell in cells.items() if key[0] == data and "planned" in cell)["planned"]
        size = f"{planned['n_samples']:,} x {planned['n_features']:,}"
        free = next((value for e in run if (value := reached(cells, figure, data, MODEL, BASELINE, e))), None)
        rows.append([TITLES[data], size, f"{free[0]:.{digits}f}" if free else "", *map(entry, solvers)])
    shown = " / ".join(f"{epsilon:g}" for epsilon in epsilons)
    return (
        f"### {title}\n\nAt epsilon {shown}, DPLogisticRegression, the best of each row in bold; "
        f"standard errors up to {max(errors):.{digits}f}.\n\n"
        + markdown(["data", "training rows", "no privacy", *solvers], rows)
        if rows
        else ""
    )
