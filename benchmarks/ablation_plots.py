"""What other values of a rule would change: a panel a rule, each with its own scale, the default shaded."""

from __future__ import annotations

import textwrap
from typing import Any

from ablation_tables import changes, label
from common import read_results
from plotting import EPSILON_COLOURS, GREY, grid, legend_below, save

SYMBOLS = ("o", "s", "^", "D")


def draw() -> None:
    """Write a picture for each ablation result, under its name."""
    for document in read_results("ablation"):
        has_searches = any(rule["solver"].startswith("bl") for rule in document["rules"])
        _rules(document, "ablation-line-search" if has_searches else "ablation")


def _rules(document: dict[str, Any], name: str) -> None:
    rules, cells = document["rules"], document["cells"]
    epsilons, columns = sorted({cell["epsilon"] for cell in cells}), 3 if len(document["rules"]) % 3 == 0 else 4
    figure, axes = grid(-(-len(rules) // columns), columns, 3.2, 2.1)
    for axis, rule in zip(axes.flat, rules, strict=False):
        values = [entry["value"] for entry in rule["values"]]
        order = sorted(range(len(values)), key=lambda i, values=values: _sort_key(values[i]))
        ticks = [label(values[i]) for i in order]
        default = next(label(entry["value"]) for entry in rule["values"] if entry["is_default"])
        for number, epsilon in enumerate(epsilons):
            found = [change for change in changes(rule, cells, epsilon) if change]
            shift = 0.12 * (number - (len(epsilons) - 1) / 2)
            axis.errorbar(
                [ticks.index(change.value) + shift for change in found],
                [change.mean for change in found],
                [change.error for change in found],
                color=EPSILON_COLOURS[number],
                marker=SYMBOLS[number],
                markersize=4,
                capsize=2,
                linestyle="none",
                label=f"epsilon = {epsilon:g}",
            )
        axis.axhline(0, color=GREY, linewidth=1)
        axis.axvspan(ticks.index(default) - 0.35, ticks.index(default) + 0.35, color="#e8e8e8", label="default")
        axis.set_xticks(range(len(ticks)), [tick.replace(" to ", "\nto ") for tick in ticks])
        axis.set_xlim(-0.5, len(ticks) - 0.5)
        axis.set_title("\n".join(textwrap.wrap(f"{rule['title']} ({rule['solver']})", 38)), fontsize=8.5)
    for axis in axes.flat[len(rules) :]:
        axis.set_visible(False)
    figure.supylabel("accuracy minus that of the default, points", fontsize=9)
    legend_below(figure, axes[0, 0], len(epsilons) + 1)
    save(figure, name)


def _sort_key(value: Any) -> tuple[int, Any]:
    """Numbers and pairs in order, words as they were given, which a stable sort keeps."""
    if isinstance(value, list):
        return 1, tuple(value)
    return (1, (value,)) if isinstance(value, int | float) else (0, ())
