"""Accuracy, ranking and probabilities on sets without published figures to compare with."""

from __future__ import annotations

from typing import Any

from common import TITLES, markdown, mean_and_error
from fits import failures, figures_of

FIGURES = {
    "accuracy": ("Test accuracy in percent", 2),
    "auc": ("Area under the curve in percent", 2),
    "log_loss": ("Log loss of the probabilities on the test rows", 4),
}
BASELINE = "lbfgs"  # does not depend on epsilon


def report(*documents: dict[str, Any]) -> str:
    """Return the tables of one or several results as Markdown; a later one replaces the cells of an earlier one."""
    cells = {
        (cell["data"], cell["model"], cell["solver"], cell["epsilon"]): cell
        for document in documents
        for cell in document["cells"]
    }
    counts = sorted({len(cell["fits"]) for cell in cells.values()})
    parts = [
        f"delta = {documents[0]['protocol']['delta']:g}, untuned defaults, {' or '.join(map(str, counts))} fits a cell "
        "on stratified folds; in brackets the standard error. *non-private* is scikit-learn's LogisticRegression(C=1) "
        "on the same folds.",
        *(f"### {title}\n\n{_table(cells, figure, digits)}" for figure, (title, digits) in FIGURES.items()),
        *failures(cells.values()),
    ]
    return "\n\n".join(parts)


def _table(cells: dict[tuple[str, str, str, float], dict[str, Any]], figure: str, digits: int) -> str:
    epsilons = sorted({epsilon for *_, epsilon in cells})

    def entry(data: str, model: str, solver: str, epsilon: float) -> str:
        cell = cells.get((data, model, solver, epsilon))
        values = figures_of(cell, figure) if cell else []
        if not values:
            return ""
        mean, error = mean_and_error(values)
        return f"{mean:.{digits}f} ({error:.{digits}f})"

    rows = []
    for data, model, solver in dict.fromkeys(key[:3] for key in cells):
        entries = [entry(data, model, solver, epsilon) for epsilon in epsilons]
        if solver == BASELINE or not any(entries):
            continue
        planned = next(iter(cell for key, cell in cells.items() if key[:3] == (data, model, solver)))["planned"]
        size = f"{planned['n_samples']:,} x {planned['n_features']:,}"
        rows.append([f"{TITLES[data]}, {model}", size, solver, entry(data, model, BASELINE, epsilons[0]), *entries])
    return markdown(
        ["data, model", "training rows", "solver", "non-private", *(f"{epsilon:g}" for epsilon in epsilons)], rows
    )
