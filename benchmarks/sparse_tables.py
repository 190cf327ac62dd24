"""Tables of Frank-Wolfe beside others on sets of many sparse columns."""

from __future__ import annotations

from typing import Any

from common import TITLES, in_order, markdown
from fits import failures
from other_tables import FIGURES, MODEL, Cells, merged, reached

SHOWN = {**FIGURES, "seconds": ("Seconds of a fit", 1, min)}
BASELINE = "majority"  # the commonest class; it has an accuracy only


def report(*documents: dict[str, Any]) -> str:
    """Return the tables of one or several results as Markdown; a later one replaces the cells of an earlier one."""
    cells = merged(documents)
    sizes = {}
    for (data, *_), cell in cells.items():
        if "planned" in cell:
            rows, columns = cell["planned"]["n_samples"], cell["planned"]["n_features"]
            sizes[data] = f"{TITLES[data]}: {rows:,} x {columns:,}, {len(cell['fits'])} fits a cell"
    parts = [
        f"delta = {documents[0]['protocol']['delta']:g}, DPLogisticRegression, untuned defaults, stratified folds; "
        f"training rows and columns of {'; '.join(sizes.values())}. *{BASELINE}* always says the commonest class. "
        "Standard errors in brackets, the best in bold; an empty place was not run. Fits without privacy on the same "
        "folds are among the other data sets.",
        *(_table(cells, figure) for figure in SHOWN),
        *failures(cells.values()),
    ]
    return "\n\n".join(parts)


def _table(cells: Cells, figure: str) -> str:
    title, digits, better = SHOWN[figure]
    solvers = [s for s in in_order(key[2] for key in cells) if s != BASELINE or figure == "accuracy"]
    rows = []
    for data, epsilon in in_order((key[0], key[3]) for key in cells):
        known = {s: found for s in solvers if (found := reached(cells, figure, data, MODEL, s, epsilon))}
        best = better(mean for mean, _ in known.values())
        entries = []
        for solver in solvers:
            mean, error = known.get(solver, (0.0, 0.0))
            text = f"**{mean:.{digits}f}**" if mean == best else f"{mean:.{digits}f}"
            entries.append(f"{text} ({error:.{digits}f})" if solver in known else "")
        rows.append([f"{TITLES[data]}, {epsilon:g}", *entries])
    return f"### {title}\n\n{markdown(['data, epsilon', *solvers], rows)}"
