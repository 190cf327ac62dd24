"""Tables of ``data_norm.py``."""

from __future__ import annotations

from typing import Any

import numpy as np
from common import TITLES, markdown, mean_and_error
from fits import failures, figures_of

FIGURES = {"accuracy": ("accuracy", 1), "auc": ("area under the curve", 1), "log_loss": ("log loss", 3)}


def report(*documents: dict[str, Any]) -> str:
    """Return one table a solver and figure, and a summary of all, as Markdown."""
    made = [cell for document in documents for cell in document["cells"]]
    cells = {(c["solver"], c["data"], c["epsilon"], c["label"]): c for c in made if c["fits"]}
    chosen_on = documents[-1]["chosen_on"]
    parts = [_summary(cells, chosen_on)]
    parts += [
        f"### {solver}, {title}\n\n{_table(cells, solver, figure, digits)}"
        for solver in dict.fromkeys(key[0] for key in cells)
        for figure, (title, digits) in FIGURES.items()
    ]
    return "\n\n".join([*parts, *failures(made)])


def _table(cells: dict[Any, dict[str, Any]], solver: str, figure: str, digits: int) -> str:
    """Return the means, with standard errors, of one solver: a row a set and epsilon, a column a map and norm."""
    labels = list(dict.fromkeys(key[3] for key in cells if key[0] == solver))
    rows = []
    for data, epsilon in dict.fromkeys((key[1], key[2]) for key in cells if key[0] == solver):
        entries = []
        for label in labels:
            cell = cells.get((solver, data, epsilon, label))
            mean, error = mean_and_error(figures_of(cell, figure)) if cell else (np.nan, np.nan)
            entries.append(f"{mean:.{digits}f} ({error:.{digits}f})" if cell else "")
        rows.append([f"{TITLES[data]}, {epsilon:g}", *entries])
    return markdown(["data, epsilon", *labels], rows)


def _summary(cells: dict[Any, dict[str, Any]], chosen_on: list[str]) -> str:
    """Return the mean over cells of what a declared norm costs against ``data_norm=1`` with the clip, paired."""
    rows = []
    for solver in dict.fromkeys(key[0] for key in cells):
        for title, inside in (("looked at", True), ("unseen", False)):
            keys = [k for k in dict.fromkeys(k[:3] for k in cells if k[0] == solver) if (k[1] in chosen_on) == inside]
            for label in ("fill, 1", "clip, tight", "fill, tight", "clip, loose", "fill, loose"):
                pairs = [(cells.get((*key, label)), cells.get((*key, "clip, 1"))) for key in keys]
                pairs = [(a, b) for a, b in pairs if a and b]
                if pairs:
                    rows.append([f"{solver}, {title}", label, len(pairs), *(_gap(pairs, f, d) for f, d in _DIGITS)])
    return markdown(["solver, sets", "map, norm", "cells", *(title for title, _ in FIGURES.values())], rows)


_DIGITS = [(figure, digits + 1) for figure, (_, digits) in FIGURES.items()]


def _gap(pairs: list[Any], figure: str, digits: int) -> str:
    """Return the mean of the cells' differences with its standard error, and how many are beyond two errors."""
    gaps = [
        mean_and_error(np.subtract(figures_of(a, figure), figures_of(b, figure)).tolist())
        for a, b in pairs
        if len(figures_of(a, figure)) == len(figures_of(b, figure))
    ]
    means, errors = np.array(gaps).T
    worse, better = int((means < -2 * errors).sum()), int((means > 2 * errors).sum())
    return (
        f"{means.mean():+.{digits}f} ({np.sqrt((errors**2).sum()) / len(gaps):.{digits}f}); {better} up, {worse} down"
    )
