"""Tables of an ablation result: for each rule the default and what other values would change."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from common import in_order, markdown
from fits import failures, figures_of


class Change(NamedTuple):
    """Mean difference that a value makes to the default on the same folds, and its standard error."""

    value: str
    mean: float
    error: float

    def __str__(self) -> str:
        return f"{self.mean:+.2f} ({self.error:.2f})"


def report(*documents: dict[str, Any]) -> str:
    """Return the tables of all results as Markdown."""
    return "\n\n".join(_one_result(document) for document in documents)


def _one_result(document: dict[str, Any]) -> str:
    p, cells = document["protocol"], document["cells"]
    epsilons = in_order(cell["epsilon"] for cell in cells)
    sets, models = in_order(cell["data"] for cell in cells), in_order(cell["model"] for cell in cells)
    rows = []
    for rule in document["rules"]:
        default = next(label(entry["value"]) for entry in rule["values"] if entry["is_default"])
        means = [change for change in changes(rule, cells, None) if change]
        shown = [f"{change.value}: {change}" for change in sorted(means, key=lambda change: -change.mean)]
        rows.append([rule["title"], rule["solver"], default, "; ".join(shown)])
    parts = [
        f"Mean over {len(sets)} set(s), {' and '.join(models)} and epsilon {', '.join(f'{e:g}' for e in epsilons)}, in "
        f"points of accuracy, of the difference to the default on the same folds; delta = {p['delta']:g}, {p['folds']} "
        f"folds x {p['repeats']} split(s). The noise of any two fits is independent.",
        markdown(["rule", "solver", "default", "other values, the best first"], rows),
        *failures(cells),
    ]
    return "\n\n".join(parts)


def label(value: Any) -> str:
    """Return a value as tables and pictures print it."""
    if isinstance(value, list | tuple):
        return " to ".join(map(label, value))
    return f"{value:.4g}" if isinstance(value, int | float) else str(value)


def changes(rule: dict[str, Any], cells: list[dict[str, Any]], epsilon: float | None) -> Iterator[Change | None]:
    """Yield for each value but the default what it changes at one budget, or at all; None where all fits failed."""
    default = next(entry["cells"] for entry in rule["values"] if entry["is_default"])
    for entry in rule["values"]:
        if not entry["is_default"]:
            yield _change(
                label(entry["value"]), [cells[i] for i in entry["cells"]], [cells[i] for i in default], epsilon
            )


def _change(
    value: str, mine: list[dict[str, Any]], theirs: list[dict[str, Any]], epsilon: float | None
) -> Change | None:
    pairs = [
        np.subtract(figures_of(a), figures_of(b))
        for a, b in zip(mine, theirs, strict=True)
        if a["fits"] and b["fits"] and epsilon in (None, a["epsilon"])
    ]
    if not pairs:
        return None
    errors = [pair.std(ddof=1) / np.sqrt(len(pair)) if len(pair) > 1 else np.nan for pair in pairs]
    return Change(value, float(np.mean([pair.mean() for pair in pairs])), float(np.linalg.norm(errors) / len(errors)))
