"""What an ingredient of ``whitened_gd`` is worth, and where its two least settled constants matter."""

from __future__ import annotations

from typing import Any

import numpy as np
from common import TITLES, in_order, read_results
from plotting import EPSILON_COLOURS, GREY, grid, legend_below, save
from whitening_tables import (
    LARGEST_NOISE,
    Cells,
    Contrast,
    full_or_diagonal,
    growth,
    growth_labels,
    merged,
    paired_difference,
)
from whitening_variants import VARIANTS

from dpskl.solvers import whitened_gd

SYMBOLS = ("o", "s", "^", "D")
AREA = "area under the curve, points"
LOG_LOSS = "log loss"


def draw() -> None:
    """Write the pictures of both studies."""
    documents = read_results("whitening")
    for study, picture in (("ingredients", _ingredients), ("constants", _constants)):
        chosen = [document for document in documents if document["study"] == study]
        if chosen:
            picture(merged(chosen))


def _ingredients(cells: Cells) -> None:
    """Draw each variant minus the default, paired over folds: a panel a set, a colour a budget."""
    sets, (model, *_) = in_order(data for data, *_ in cells), in_order(model for _, model, *_ in cells)
    epsilons = sorted({key[2] for key in cells})
    labels = [label for label in in_order(key[3] for key in cells) if label != "default"]
    figure, axes = grid(1, len(sets), 3.1, 3.6, sharey=True)
    for axis, data in zip(axes[0], sets, strict=True):
        for number, epsilon in enumerate(epsilons):
            default = cells[data, model, epsilon, "default"]
            gaps = [paired_difference(cells[data, model, epsilon, label], default, "accuracy") for label in labels]
            heights = np.arange(len(labels)) + 0.2 * (number - (len(epsilons) - 1) / 2)
            known = [(gap, height) for gap, height in zip(gaps, heights, strict=True) if gap]
            axis.errorbar(
                [gap[0] for gap, _ in known],
                [height for _, height in known],
                xerr=[gap[1] for gap, _ in known],
                color=EPSILON_COLOURS[number],
                marker=SYMBOLS[number],
                markersize=4,
                linestyle="none",
                label=f"epsilon = {epsilon:g}",
            )
        axis.axvline(0, color=GREY, linewidth=1)
        axis.set_title(TITLES[data], fontsize=10)
        axis.set_xlabel("accuracy minus default, points", fontsize=8)
    titles = [VARIANTS[label].title.replace(" coordinates, ", " coordinates,\n") for label in labels]
    axes[0, 0].set_yticks(range(len(labels)), titles)
    axes[0, 0].invert_yaxis()
    legend_below(figure, axes[0, 0], len(epsilons))
    save(figure, "whitening-ingredients")


def _constants(cells: Cells) -> None:
    """Draw every cell against the number that the rule looks at."""
    figure, axes = grid(1, 3, 3.5, 3.0)
    left, middle, right = axes[0]
    _scatter(left, full_or_diagonal(cells), "auc", 0, "#0072b2", "o", "full minus diagonal")
    left.axvline(LARGEST_NOISE, color=GREY, linestyle="--", linewidth=1.2, label="where the rule changes over")
    left.set_xlabel("noise over mean eigenvalue", fontsize=9)
    left.set_ylabel(AREA, fontsize=9)
    contrasts = growth(cells)
    for number, variant in enumerate(growth_labels(cells)):
        for axis, figure_name in ((middle, "auc"), (right, "log_loss")):
            label = f"{VARIANTS[variant].title}, minus default"
            _scatter(axis, contrasts, figure_name, number, EPSILON_COLOURS[number + 1], SYMBOLS[number + 1], label)
    for axis, label in ((middle, AREA), (right, LOG_LOSS)):
        axis.axvline(whitened_gd._GROWTH_FROM, color=GREY, linestyle="--", linewidth=1.2)
        axis.set_xlabel("mu n / D", fontsize=9)
        axis.set_ylabel(label, fontsize=9)
    for axis in axes[0]:
        axis.axhline(0, color=GREY, linewidth=1)
        axis.set_xscale("log")
    for axis in (left, middle):
        axis.set_yscale("symlog", linthresh=1)
        axis.set_yticks([-10, -1, 0, 1, 10], ["-10", "-1", "0", "1", "10"])
    handles = [pair for axis in (left, middle) for pair in zip(*axis.get_legend_handles_labels(), strict=True)]
    figure.legend(*zip(*handles, strict=True), loc="outside lower center", ncols=3, frameon=False, fontsize=8)
    save(figure, "whitening-constants")


def _scatter(axis: Any, found: list[Contrast], figure: str, index: int, colour: str, marker: str, label: str) -> None:
    points = [(entry.size, gap) for entry in found if (gap := entry.gaps[figure][index])]
    axis.errorbar(
        [size for size, _ in points],
        [gap[0] for _, gap in points],
        [gap[1] for _, gap in points],
        color=colour,
        marker=marker,
        markersize=3,
        linestyle="none",
        elinewidth=0.6,
        label=label,
    )
