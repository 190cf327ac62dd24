"""Draw the parameters of the line search: accuracy against each value, one panel a parameter.

    python benchmarks/ablation_plot.py      # results/ablation-line-search.json -> results/ablation-line-search.png

Needs matplotlib. Bars are standard errors over the fits, which share their folds.
"""

from __future__ import annotations

import json

import matplotlib
import numpy as np
from common import RESULTS, mean_and_error
from fits import figures_of

matplotlib.use("Agg")
import matplotlib.pyplot as plt

NAME = "ablation-line-search"
COLORS = ("#0072b2", "#d55e00", "#009e73")


def main() -> None:
    """Write the figure."""
    document = json.loads((RESULTS / f"{NAME}.json").read_text())
    rules, cells = document["rules"], document["cells"]
    figure, panels = plt.subplots(3, 3, figsize=(9, 8), sharey="row")
    for panel, rule in zip(panels.flat, rules, strict=False):
        labels = [str(entry["value"]) for entry in rule["values"]]
        for color, epsilon in zip(COLORS, sorted({cell["epsilon"] for cell in cells}), strict=False):
            points = []
            for entry in rule["values"]:
                fits = [cell for i in entry["cells"] if (cell := cells[i])["epsilon"] == epsilon]
                points.append(mean_and_error([value for cell in fits for value in figures_of(cell)]))
            means, errors = np.array(points).T
            panel.errorbar(labels, means, errors, color=color, marker="o", capsize=3, label=f"epsilon = {epsilon:g}")
        panel.set(title=f"{rule['title']} ({rule['solver']})")
        if panel in panels[:, 0]:
            panel.set(ylabel="test accuracy, %")
    panels[0, 0].legend(frameon=False, fontsize="small")
    figure.tight_layout()
    figure.savefig(RESULTS / f"{NAME}.png", dpi=90)


if __name__ == "__main__":
    main()
