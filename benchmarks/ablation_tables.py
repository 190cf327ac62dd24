"""Tables of an ablation result: one for each rule, with the difference that a value makes."""

from __future__ import annotations

from typing import Any

import numpy as np
from common import TITLES, markdown
from fits import figures_of


def report(*documents: dict[str, Any]) -> str:
    """Return the tables of all rules of all results as Markdown."""
    return "\n\n".join(_one_result(document) for document in documents)


def _one_result(document: dict[str, Any]) -> str:
    p, cells = document["protocol"], document["cells"]
    epsilons = " / ".join(f"{epsilon:g}" for epsilon in dict.fromkeys(cell["epsilon"] for cell in cells))
    parts = [
        f"Test accuracy in percent at epsilon {epsilons}, delta = {p['delta']:g}, {p['folds']} folds x "
        f"{p['repeats']} split(s). The last column is the mean difference to the default on the same folds, "
        "with its standard error; the noise of any two fits is independent.",
        *(_rule_table(rule, cells) for rule in document["rules"]),
    ]
    failed = [f"* cell {number}: {cell['error']}" for number, cell in enumerate(cells) if "error" in cell]
    if failed:
        parts.append("### Cells that failed\n\n" + "\n".join(failed))
    return "\n\n".join(parts)


def _label(value: Any) -> str:
    if isinstance(value, list | tuple):
        return " to ".join(map(_label, value))
    return f"{value:.4g}" if isinstance(value, int | float) else str(value)


def _rule_table(rule: dict[str, Any], cells: list[dict[str, Any]]) -> str:
    default = next([cells[i] for i in entry["cells"]] for entry in rule["values"] if entry["is_default"])
    models = dict.fromkeys(cell["model"] for cell in default)
    sets = dict.fromkeys(cell["data"] for cell in default)
    rows = []
    for entry in rule["values"]:
        here = [cells[i] for i in entry["cells"]]
        for model in models:
            mine = [cell for cell in here if cell["model"] == model]
            theirs = [cell for cell in default if cell["model"] == model]
            by_set = [_means([cell for cell in mine if cell["data"] == data]) for data in sets]
            overall = _means([{"fits": [fit for cell in mine for fit in cell["fits"]]}])
            label = _label(entry["value"]) + (" (default)" if entry["is_default"] else "")
            difference = "" if entry["is_default"] else _difference(mine, theirs)
            rows.append([label, model, *by_set, overall, difference])
    header = ["value", "model", *(TITLES[data] for data in sets), "mean", "minus default"]
    return f"### {rule['title']} ({rule['solver']})\n\n{markdown(header, rows)}"


def _means(cells: list[dict[str, Any]]) -> str:
    return " / ".join(f"{np.mean(figures_of(cell)):.2f}" if cell["fits"] else "failed" for cell in cells)


def _difference(mine: list[dict[str, Any]], theirs: list[dict[str, Any]]) -> str:
    """Return the mean over cells of the paired differences, and its standard error."""
    pairs = [
        np.subtract(figures_of(a), figures_of(b)) for a, b in zip(mine, theirs, strict=True) if a["fits"] and b["fits"]
    ]
    if not pairs:
        return "failed"
    mean = np.mean([pair.mean() for pair in pairs])
    errors = [pair.std(ddof=1) / np.sqrt(len(pair)) for pair in pairs if len(pair) > 1]
    if len(errors) < len(pairs):
        return f"{mean:+.2f}"
    return f"{mean:+.2f} ({np.linalg.norm(errors) / len(errors):.2f})"
