"""Tables of ``ftrl.py``: noise in prefix sums, and what it leaves of accuracy."""

from __future__ import annotations

from itertools import product
from math import hypot
from typing import Any

import numpy as np
from common import TITLES, in_order, markdown, mean_and_error
from fits import failures, figures_of

FIGURES = {  # besides accuracy: title and digits
    "auc": ("Area under the curve in percent", 2),
    "log_loss": ("Log loss of the probabilities", 3),
    "seconds": ("Seconds of a fit", 2),
}
PAIRS = (("square_root", "independent"), ("sampled_momentum", "independent"), ("square_root", "sampled_momentum"))

Cells = dict[tuple[int, int, float, str, str], dict[str, Any]]


def report(*documents: dict[str, Any]) -> str:
    """Return the tables of one or several results as Markdown; a later one replaces the cells of an earlier one."""
    made = [cell for document in documents for cell in document["cells"]]
    cells = {_key(cell): cell for cell in made if cell["fits"]}
    counts = sorted({len(cell["fits"]) for cell in cells.values()})
    parts = [
        "### Noise in a prefix sum\n\n"
        "Root mean square over the steps at `mu = 1`, in units of the clip norm, computed from the factorisations; in "
        "brackets the seconds that making one and computing this took. *square_root* is the default of `ftrl`, which "
        "searches for a band.\n\n" + _step_errors(documents[-1]["step_errors"]),
        f"The same at equal epsilon, delta = {documents[0]['protocol']['delta']:g}. *independent* is fresh noise in "
        "every step for batches that a record is in once a pass (`ftrl` with `band=1`: DP-SGD without amplification); "
        "*sampled* is DP-SGD on Poisson batches of the same expected size, as many steps. What the drawing of batches "
        "adds is not in it.\n\n" + _budget_errors([row for document in documents for row in document["budget_errors"]]),
        "### DP-FTRL beside DP-SGD, with and without amplification\n\n"
        f"DPLogisticRegression, {' or '.join(map(str, counts))} fits a cell on stratified folds; all methods make "
        "the same number of steps. *sampled* is `sgd` with its default momentum of 0.95, *sampled_momentum* with that "
        "of `ftrl`, and left out where that is 0.95. Means over the sets; the errors are of the "
        "noise and folds, not of the choice of sets.",
        _accuracies(cells),
        _differences(cells),
        *(_averages(cells, figure) for figure in FIGURES),
        _by_set(cells),
        *failures(made),
    ]
    return "\n\n".join(part for part in parts if part)


def _key(cell: dict[str, Any]) -> tuple[int, int, float, str, str]:
    """Return steps in a pass, passes, epsilon, data and method."""
    method, _, shape = cell["label"].partition(", ")
    passes, steps = map(int, shape.split(" x "))
    return steps, passes, cell["epsilon"], cell["data"], method


def _figures(cells: Cells, shape: tuple[int, int, float], data: str, method: str, figure: str) -> list[float]:
    cell = cells.get((*shape, data, method))
    return figures_of(cell, figure) if cell else []


def _shape_title(steps: int, passes: int) -> str:
    return f"{passes} pass{'es' if passes > 1 else ''} of {steps} steps"


# -- noise --------------------------------------------------------------------------------------------


def _step_errors(rows: list[dict[str, Any]]) -> str:
    found = {(row["factorisation"], row["passes"], row["steps"]): row for row in rows}
    columns = in_order((row["passes"], row["steps"]) for row in rows)
    lines = []
    for name in in_order(key[0] for key in found):
        entries = [found[(name, *column)] for column in columns]
        lines.append([name, *(f"{entry['error']:.1f} ({entry['seconds']:.2g})" for entry in entries)])
    header = [_shape_title(steps // passes, passes) for passes, steps in columns]
    return markdown(["factorisation", *header], lines)


def _budget_errors(rows: list[dict[str, Any]]) -> str:
    found = {(row["steps_in_pass"], row["passes"], row["epsilon"], row["noise"]): row["error"] for row in rows}
    names, epsilons = in_order(key[3] for key in found), in_order(key[2] for key in found)
    lines = [
        [
            _shape_title(*shape),
            *(" / ".join(f"{found[(*shape, epsilon, name)]:.0f}" for epsilon in epsilons) for name in names),
        ]
        for shape in in_order(key[:2] for key in found)
    ]
    return markdown([f"epsilon {' / '.join(f'{epsilon:g}' for epsilon in epsilons)}", *names], lines)


# -- fits ---------------------------------------------------------------------------------------------


def _means(cells: Cells, shape: tuple[int, int, float], figure: str) -> dict[str, tuple[float, float]]:
    """Return mean and standard error over the sets by method, where the method was run on all of them."""
    sets, means = in_order(key[3] for key in cells), {}
    for method in in_order(key[4] for key in cells):
        each = [found for data in sets if (found := _figures(cells, shape, data, method, figure))]
        if len(each) == len(sets):
            known = np.array([mean_and_error(values) for values in each])
            means[method] = float(known[:, 0].mean()), float(np.sqrt((known[:, 1] ** 2).sum()) / len(sets))
    return means


def _accuracies(cells: Cells) -> str:
    """Return the mean accuracies with their errors, a row a shape and epsilon."""
    methods, rows = in_order(key[4] for key in cells), []
    for shape in in_order(key[:3] for key in cells):
        means = _means(cells, shape, "accuracy")
        best = max(mean for mean, _ in means.values())
        entries = []
        for method in methods:
            mean, error = means.get(method, (0.0, 0.0))
            text = f"**{mean:.2f}**" if mean == best else f"{mean:.2f}"
            entries.append(f"{text} ({error:.2f})" if method in means else "")
        rows.append([f"{_shape_title(*shape[:2])}, {shape[2]:g}", *entries])
    names = ", ".join(TITLES[data] for data in in_order(key[3] for key in cells))
    return (
        f"#### Test accuracy in percent, means over {names}\n\nThe best in bold.\n\n"
        f"{markdown(['epsilon', *methods], rows)}"
    )


def _averages(cells: Cells, figure: str) -> str:
    """Return the means of another figure, a row a shape, all epsilons in one place."""
    title, digits = FIGURES[figure]
    methods, epsilons = in_order(key[4] for key in cells), in_order(key[2] for key in cells)
    rows, errors = [], [0.0]
    for shape in in_order(key[:2] for key in cells):
        found = [_means(cells, (*shape, epsilon), figure) for epsilon in epsilons]
        errors += [error for means in found for _, error in means.values()]
        shown = [[f"{means[m][0]:.{digits}f}" if m in means else "" for means in found] for m in methods]
        rows.append([_shape_title(*shape), *(" / ".join(entries) if any(entries) else "" for entries in shown)])
    return (
        f"#### {title}, epsilon {' / '.join(f'{epsilon:g}' for epsilon in epsilons)}\n\n"
        f"Standard errors up to {max(errors):.{digits}f}.\n\n{markdown(['means over the sets', *methods], rows)}"
    )


def _differences(cells: Cells) -> str:
    """Return mean differences of accuracy over the sets, and on how many sets they are beyond two errors."""
    sets = in_order(key[3] for key in cells)
    rows = []
    for shape in in_order(key[:3] for key in cells):
        entries = []
        for pair in PAIRS:
            gaps = [_gap(cells, shape, data, *pair) for data in sets]
            known = np.array([gap for gap in gaps if gap])
            if not len(known):
                entries.append("")
                continue
            mean, error = known[:, 0].mean(), float(np.sqrt((known[:, 1] ** 2).sum()) / len(known))
            up, down = (int((sign * known[:, 0] > 2 * known[:, 1]).sum()) for sign in (1, -1))
            entries.append(f"{mean:+.2f} ({error:.2f}); {up} up, {down} down")
        rows.append([f"{_shape_title(*shape[:2])}, {shape[2]:g}", *entries])
    header = [f"{first} - {second}" for first, second in PAIRS]
    return (
        "#### Differences of accuracy in points\n\n"
        "Means over the sets with standard errors, both taken as independent although they share folds, and on how "
        "many sets the difference is beyond two of them. *sampled_momentum* is *sampled* where both are the same.\n\n"
        + markdown(["epsilon", *header], rows)
    )


def _gap(cells: Cells, shape: tuple[int, int, float], data: str, first: str, second: str) -> tuple[float, float] | None:
    """Return the difference of two means with its error, the noise of both taken as independent."""
    known = []
    for method in (first, second):
        names = (method, "sampled") if method == "sampled_momentum" else (method,)
        values = next((v for name in names if (v := _figures(cells, shape, data, name, "accuracy"))), None)
        if values is None:
            return None
        known.append(mean_and_error(values))
    return known[0][0] - known[1][0], hypot(known[0][1], known[1][1])


def _by_set(cells: Cells) -> str:
    sets, methods = in_order(key[3] for key in cells), in_order(key[4] for key in cells)
    epsilons = in_order(key[2] for key in cells)
    rows, errors = [], [0.0]
    for data, shape in product(sets, in_order(key[:2] for key in cells)):
        entries = []
        for method in methods:
            found = [_figures(cells, (*shape, epsilon), data, method, "accuracy") for epsilon in epsilons]
            known = [mean_and_error(values) if values else None for values in found]
            errors += [entry[1] for entry in known if entry]
            entries.append(" / ".join(f"{e[0]:.2f}" if e else "" for e in known) if any(known) else "")
        rows.append([f"{TITLES[data]}, {_shape_title(*shape)}", *entries])
    return (
        f"#### Test accuracy by set, epsilon {' / '.join(f'{epsilon:g}' for epsilon in epsilons)}\n\n"
        f"Standard errors up to {max(errors):.2f}.\n\n" + markdown(["data", *methods], rows)
    )
