"""Tables of the studies of ``whitening.py``."""

from __future__ import annotations

from itertools import pairwise
from math import hypot, sqrt
from typing import Any

import numpy as np
from accuracy_tables import YARDSTICKS
from common import TITLES, markdown, mean_and_error
from fits import failures, figures_of
from whitening_variants import VARIANTS

from dpskl.accounting import gaussian_mu
from dpskl.solvers import whitened_gd

Cells = dict[tuple[str, str, float, str], dict[str, Any]]
_NOISE_EDGES = (0.0, 0.5, 1.0, 2.0, 4.0, 10.0, 20.0, 50.0, np.inf)
_SIGNAL_EDGES = (0.0, 3.0, 12.0, 48.0, 200.0, 1000.0, np.inf)


def report(*documents: dict[str, Any]) -> str:
    """Return the tables of all studies as Markdown; a later result replaces the cells of an earlier one."""
    parts = []
    for study, tables in (("ingredients", _ingredients), ("constants", _constants)):
        chosen = [document for document in documents if document["study"] == study]
        if chosen:
            cells = {
                (cell["data"], cell["model"], cell["epsilon"], cell["label"]): cell
                for document in chosen
                for cell in document["cells"]
            }
            fits = sorted({len(cell["fits"]) for cell in cells.values()})
            delta = chosen[0]["protocol"]["delta"]
            counts = " or ".join(map(str, fits))
            parts.append(f"delta = {delta:g}; {counts} fits a cell on stratified folds.\n\n{tables(cells)}")
            parts.extend(failures(cells.values()))
    return "\n\n".join(parts)


# -- one idea less ------------------------------------------------------------------------------------


def _ingredients(cells: Cells) -> str:
    prototype = YARDSTICKS["whitening_prototype"]
    sets = list(dict.fromkeys(data for data, *_ in cells))
    model = next(iter(cells))[1]
    epsilons = sorted({key[2] for key in cells})
    rows, differences = [], []
    for label in dict.fromkeys(key[3] for key in cells):
        ours = [[mean_and_error(figures_of(cells[data, model, e, label])) for e in epsilons] for data in sets]
        rows.append([VARIANTS[label].title, *(_joined(f"{mean:.2f}" for mean, _ in entry) for entry in ours)])
        published = prototype["accuracy"].get(label)
        if not published or epsilons != [0.05, 0.2, 0.8]:
            continue
        rows.append(["independent", *(_joined(f"{value:.2f}" for value in published[data]) for data in sets)])
        gaps = [
            [_marked(mean - value, error) for (mean, error), value in zip(entry, published[data], strict=True)]
            for data, entry in zip(sets, ours, strict=True)
        ]
        differences += [gap for entry in gaps for gap in entry]
        rows.append(["difference", *map(_joined, gaps)])
    errors = [mean_and_error(figures_of(cell))[1] for cell in cells.values()]
    beyond = sum(gap.endswith("*") for gap in differences)
    return (
        "### What an ingredient is worth\n\n"
        f"Test accuracy in percent, {model} loss, at epsilon {_joined(f'{e:g}' for e in epsilons)}; standard errors up "
        f"to {max(errors):.2f}. *independent* is an implementation that is not in this repository "
        f"({prototype['protocol']}); the star marks a difference of more than two standard errors, its fits taken to "
        f"scatter as ours do: {beyond} of {len(differences)}.\n\n"
        + markdown(["variant", *(TITLES[data] for data in sets)], rows)
    )


def _joined(entries: Any) -> str:
    return " / ".join(entries)


def _marked(difference: float, error: float) -> str:
    return f"{difference:+.2f}" + ("*" if abs(difference) > 2 * sqrt(2) * error else "")


# -- two constants ------------------------------------------------------------------------------------


def _sizes(cell: dict[str, Any], delta: float) -> tuple[float, float]:
    """Return ``q = mu n / D`` and the noise of the full second moment over its mean eigenvalue."""
    n, dimension = cell["planned"]["n_samples"], cell["planned"]["n_features"] + 1
    mu = gaussian_mu(cell["epsilon"], delta)
    return mu * n / dimension, sqrt(2 / whitened_gd._SHARE_FULL) * dimension**1.5 / (mu * n)


def _constants(cells: Cells) -> str:
    return f"{_threshold(cells)}\n\n{_growth(cells)}"


def _difference(a: dict[str, Any], b: dict[str, Any], figure: str) -> tuple[float, float] | None:
    """Return the mean paired difference of two cells, same folds, and its standard error."""
    first, second = figures_of(a, figure), figures_of(b, figure)
    return mean_and_error(np.subtract(first, second).tolist()) if first and len(first) == len(second) else None


def _shown(value: tuple[float, float] | None, digits: int = 2) -> str:
    return f"{value[0]:+.{digits}f} ({value[1]:.{digits}f})" if value else ""


def _average(values: list[tuple[float, float] | None]) -> tuple[float, float] | None:
    known = [value for value in values if value]
    if not known:
        return None
    return float(np.mean([mean for mean, _ in known])), hypot(*(error for _, error in known)) / len(known)


def _threshold(cells: Cells) -> str:
    found = []
    for data, model, epsilon, label in cells:
        full = cells[data, model, epsilon, "full"] if label == "diagonal" else None
        diagonal = cells[data, model, epsilon, "diagonal"]
        if full is None or not full["fits"] or not diagonal["fits"]:
            continue
        signal, noise = _sizes(full, full["delta"])
        gaps = [_difference(full, diagonal, figure) for figure in ("accuracy", "auc")]
        dimension = full["planned"]["n_features"] + 1
        found.append((noise, data, model, epsilon, dimension, signal, figures_of(full), figures_of(diagonal), gaps))
    found.sort(key=lambda entry: entry[0])
    rows = [
        [
            f"{TITLES[data]}, {model}",
            f"{epsilon:g}",
            dimension,
            f"{signal:.3g}",
            f"{noise:.2g}",
            f"{np.mean(full):.2f}",
            f"{np.mean(diagonal):.2f}",
            *map(_shown, gaps),
        ]
        for noise, data, model, epsilon, dimension, signal, full, diagonal, gaps in found
    ]
    summary = []
    for low, high in pairwise(_NOISE_EDGES):
        inside = [entry for entry in found if low < entry[0] <= high and entry[4] <= 1000]
        if inside:
            columns = [_average([entry[-1][figure] for entry in inside]) for figure in (0, 1)]
            worst, best = (pick(entry[-1][1][0] for entry in inside) for pick in (min, max))
            sets = len({entry[1] for entry in inside})
            cells_here = [f"{low:g} to {high:g}", sets, len(inside), *map(_shown, columns)]
            summary.append([*cells_here, f"{worst:+.2f} to {best:+.2f}"])
    return (
        "### Full or diagonal second moment\n\n"
        "Differences are full minus diagonal, in percentage points, paired over folds, with standard errors. *Noise* "
        "is the spectral norm of the noise in the full second moment over its mean eigenvalue: the rule takes the full "
        "one up to 4, and up to D = 1000 (the summary leaves larger D out).\n\n"
        + markdown(["noise", "sets", "cells", "accuracy", "area under the curve", "range of the latter"], summary)
        + "\n\n"
        + markdown(
            ["data, model", "epsilon", "D", "mu n / D", "noise", "full", "diagonal", "accuracy", "area under curve"],
            rows,
        )
    )


def _growth(cells: Cells) -> str:
    run = {label for *_, label in cells}
    labels = [label for label in ("fixed_clip", "growth_from_48", "growth_from_3") if label in run]
    figures = ("accuracy", "auc", "log_loss")
    rows, found = [], []
    for data, model, epsilon, label in cells:
        default = cells[data, model, epsilon, "default"]
        if label != "default" or not default["fits"]:
            continue
        signal, _ = _sizes(default, default["delta"])
        others = [cells[data, model, epsilon, other] for other in labels]
        gaps = {figure: [_difference(other, default, figure) for other in others] for figure in figures}
        found.append((signal, data, gaps))
        rows.append(
            [
                f"{TITLES[data]}, {model}",
                f"{epsilon:g}",
                f"{signal:.3g}",
                *(_shown(gap) for gap in gaps["accuracy"]),
                *(_shown(gap) for gap in gaps["auc"]),
                *(_shown(gap, 3) for gap in gaps["log_loss"]),
            ]
        )
    summary = []
    for low, high in pairwise(_SIGNAL_EDGES):
        inside = [entry for entry in found if low < entry[0] <= high]
        if inside:
            means = [
                _shown(_average([gaps[figure][i] for *_, gaps in inside]), 3 if figure == "log_loss" else 2)
                for figure in figures
                for i in range(len(labels))
            ]
            summary.append([f"{low:g} to {high:g}", len({entry[1] for entry in inside}), len(inside), *means])
    titles = ("accuracy", "area under the curve", "log loss")
    header = [f"{title}: {VARIANTS[label].title}" for title in titles for label in labels]
    return (
        "### Growth of the clip\n\n"
        "Differences to the default, whose clip grows with the root of q / 12, q = mu n / D, up to about three times; "
        "accuracy and area in percentage points. Below zero the default is better, for the log loss above zero.\n\n"
        + markdown(["mu n / D", "sets", "cells", *header], summary)
        + "\n\n"
        + markdown(["data, model", "epsilon", "mu n / D", *header], rows)
    )
