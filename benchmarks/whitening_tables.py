"""Tables of the studies of ``whitening.py``."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise
from math import hypot, sqrt
from typing import Any, NamedTuple

import numpy as np
from accuracy_tables import YARDSTICKS
from common import TITLES, in_order, markdown, mean_and_error
from fits import failures, figures_of
from whitening_variants import VARIANTS

from dpskl.accounting import gaussian_mu
from dpskl.solvers import whitened_gd

Cells = dict[tuple[str, str, float, str], dict[str, Any]]
# The rule when the study was run: a fifth of mu^2 for the full moment, taken while a quarter of its noise, the ridge of
# the whitener, was at most the mean eigenvalue, and D at most 1000.
_SHARE_FULL, LARGEST_NOISE, _LARGEST_DIMENSION = 0.20, 4.0, 1000
_NOISE_EDGES = (0.0, 0.5, 1.0, 2.0, 4.0, 10.0, 20.0, 50.0, np.inf)
_SIGNAL_EDGES = (0.0, 3.0, 12.0, 48.0, 200.0, 1000.0, np.inf)


def merged(documents: Iterable[dict[str, Any]]) -> Cells:
    """Return the cells by data, model, epsilon and variant; a later document replaces those of an earlier one."""
    return {
        (cell["data"], cell["model"], cell["epsilon"], cell["label"]): cell
        for document in documents
        for cell in document["cells"]
    }


def report(*documents: dict[str, Any]) -> str:
    """Return the tables of all studies as Markdown; a later result replaces the cells of an earlier one."""
    parts = []
    for study, tables in (
        ("ingredients", _ingredients),
        ("constants", lambda cells: f"{_threshold(cells)}\n\n{_growth(cells)}"),
    ):
        chosen = [document for document in documents if document["study"] == study]
        if chosen:
            cells = merged(chosen)
            fits = sorted({len(cell["fits"]) for cell in cells.values()})
            delta = chosen[0]["protocol"]["delta"]
            counts = " or ".join(map(str, fits))
            parts.append(f"delta = {delta:g}; {counts} fits a cell on stratified folds.\n\n{tables(cells)}")
            parts.extend(failures(cells.values()))
    return "\n\n".join(parts)


# -- one idea less ------------------------------------------------------------------------------------


def _ingredients(cells: Cells) -> str:
    prototype = YARDSTICKS["whitening_prototype"]
    sets, (model, *_) = in_order(data for data, *_ in cells), in_order(model for _, model, *_ in cells)
    epsilons = sorted({key[2] for key in cells})
    rows, gaps = [], []
    for label in in_order(key[3] for key in cells):
        ours = [[mean_and_error(figures_of(cells[data, model, e, label])) for e in epsilons] for data in sets]
        rows.append([VARIANTS[label].title, *(_joined(f"{mean:.2f}" for mean, _ in entry) for entry in ours)])
        published = prototype["accuracy"].get(label)
        if published and epsilons == [0.05, 0.2, 0.8]:
            gaps += [
                (mean - value, error)
                for data, entry in zip(sets, ours, strict=True)
                for (mean, error), value in zip(entry, published[data], strict=True)
            ]
    errors = [mean_and_error(figures_of(cell))[1] for cell in cells.values()]
    beside = ""
    if gaps:  # the fits of the other implementation are taken to scatter as ours do
        beyond = sum(abs(gap) > 2 * sqrt(2) * error for gap, error in gaps)
        differences = [gap for gap, _ in gaps]
        beside = (
            f" An independent implementation that is not in this repository ({prototype['protocol']}) differs by "
            f"{min(differences):+.2f} to {max(differences):+.2f} from ours in the {len(gaps)} cells that it has, in "
            f"{beyond} of them by more than two standard errors."
        )
    return (
        "### What an ingredient is worth\n\n"
        f"Test accuracy in percent, {model} loss, at epsilon {_joined(f'{e:g}' for e in epsilons)}; standard errors up "
        f"to {max(errors):.2f}.{beside}\n\n" + markdown(["variant", *(TITLES[data] for data in sets)], rows)
    )


def _joined(entries: Any) -> str:
    return " / ".join(entries)


# -- two constants ------------------------------------------------------------------------------------


def _sizes(cell: dict[str, Any], delta: float) -> tuple[float, float]:
    """Return ``q = mu n / D`` and the noise of the full second moment over its mean eigenvalue."""
    n, dimension = cell["planned"]["n_samples"], cell["planned"]["n_features"] + 1
    mu = gaussian_mu(cell["epsilon"], delta)
    return mu * n / dimension, sqrt(2 / _SHARE_FULL) * dimension**1.5 / (mu * n)


def paired_difference(a: dict[str, Any], b: dict[str, Any], figure: str) -> tuple[float, float] | None:
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


def _constants(cells: Cells) -> str:
    return f"{_threshold(cells)}\n\n{_growth(cells)}"


class Contrast(NamedTuple):
    """What a change does to one cell, beside the number that the rule looks at."""

    size: float
    data: str
    gaps: dict[str, list[tuple[float, float] | None]]


def full_or_diagonal(cells: Cells) -> list[Contrast]:
    """Return full minus diagonal by the noise of the full second moment, up to the D that the rule allows it at."""
    found = []
    for data, model, epsilon, label in cells:
        full, diagonal = (cells.get((data, model, epsilon, name)) for name in ("full", "diagonal"))
        if label != "diagonal" or not full or not diagonal or not full["fits"] or not diagonal["fits"]:
            continue
        if full["planned"]["n_features"] + 1 <= _LARGEST_DIMENSION:
            gaps = {figure: [paired_difference(full, diagonal, figure)] for figure in ("accuracy", "auc")}
            found.append(Contrast(_sizes(full, full["delta"])[1], data, gaps))
    return found


def growth(cells: Cells) -> list[Contrast]:
    """Return the other rules for the growth of the clip minus the default, by ``q = mu n / D``."""
    found = []
    for data, model, epsilon, label in cells:
        default = cells[data, model, epsilon, "default"]
        if label == "default" and default["fits"]:
            others = [cells[data, model, epsilon, other] for other in growth_labels(cells)]
            gaps = {
                figure: [paired_difference(other, default, figure) for other in others]
                for figure in ("accuracy", "auc", "log_loss")
            }
            found.append(Contrast(_sizes(default, default["delta"])[0], data, gaps))
    return found


def growth_labels(cells: Cells) -> list[str]:
    """Return the variants of the growth that were run."""
    run = {label for *_, label in cells}
    return [label for label in ("fixed_clip", "growth_from_48", "growth_from_3") if label in run]


def _summary(found: list[Contrast], edges: tuple[float, ...], figures: tuple[str, ...]) -> Any:
    """Yield for each interval of sizes its name, sets, cells and mean gaps, and the contrasts themselves."""
    for low, high in pairwise(edges):
        inside = [entry for entry in found if low < entry.size <= high]
        if inside:
            means = [
                _shown(_average([entry.gaps[figure][i] for entry in inside]), 3 if figure == "log_loss" else 2)
                for figure in figures
                for i in range(len(inside[0].gaps[figure]))
            ]
            yield [f"{low:g} to {high:g}", len({entry.data for entry in inside}), len(inside), *means], inside


def _threshold(cells: Cells) -> str:
    rows = []
    for row, inside in _summary(full_or_diagonal(cells), _NOISE_EDGES, ("accuracy", "auc")):
        areas = [gap[0] for entry in inside if (gap := entry.gaps["auc"][0])]
        rows.append([*row, f"{min(areas):+.2f} to {max(areas):+.2f}" if areas else ""])
    return (
        "### Full or diagonal second moment\n\n"
        "Full minus diagonal in percentage points, paired over folds, with standard errors. *Noise* is the spectral "
        "norm of the noise in the full second moment over its mean eigenvalue: the rule then took the full one up to "
        f"{LARGEST_NOISE:g}, and up to D = {_LARGEST_DIMENSION} (larger D are left out).\n\n"
        + markdown(["noise", "sets", "cells", "accuracy", "area under the curve", "range of the latter"], rows)
    )


def _growth(cells: Cells) -> str:
    titles = {"accuracy": "accuracy", "auc": "area", "log_loss": "log loss"}
    rows = [row for row, _ in _summary(growth(cells), _SIGNAL_EDGES, tuple(titles))]
    header = [f"{title}: {VARIANTS[label].title}" for title in titles.values() for label in growth_labels(cells)]
    return (
        "### Growth of the clip\n\n"
        f"Differences to the default, whose clip grows with the root of q / {whitened_gd._GROWTH_FROM:g}, "
        "q = mu n / D; accuracy and area under the curve in percentage points. Below zero the default is better, for "
        "the log loss above zero.\n\n" + markdown(["mu n / D", "sets", "cells", *header], rows)
    )
