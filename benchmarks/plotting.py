"""What every picture shares: colours that the colour-blind can tell apart, one mark a solver, and how it is kept."""

from __future__ import annotations

from io import BytesIO
from pathlib import Path
from typing import Any

import matplotlib
from common import RESULTS, ROOT
from PIL import Image

matplotlib.use("Agg")
import matplotlib.pyplot as plt

# Okabe & Ito's palette; the mark repeats what the colour says.
MARKS = {
    "whitened_gd": ("#0072b2", "o"),
    "gd": ("#e69f00", "s"),
    "objective_perturbation": ("#009e73", "^"),
    "blgd": ("#cc79a7", "D"),
    "exponential_mechanism": ("#56b4e9", "v"),
    "privgene": ("#000000", "x"),
    "output_perturbation": ("#d55e00", "P"),
    "frank_wolfe": ("#666666", "*"),
}
EPSILON_COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7")
GREY = "#666666"
LARGEST = 150_000  # bytes of a picture


def mark(solver: str) -> dict[str, Any]:
    """Return colour and marker of a solver; one with delta = 0 looks like the same solver with delta."""
    names = {"objective_pure": "objective_perturbation", "output_pure": "output_perturbation"}
    colour, marker = MARKS[names.get(solver, solver.removesuffix("_pure"))]
    return {"color": colour, "marker": marker, "markersize": 4, "linewidth": 1.2}


def grid(rows: int, columns: int, width: float, height: float, **options: Any) -> tuple[Any, Any]:
    """Return a figure of panels, each of the given size in inches, as ``(figure, axes)`` with two-dimensional axes."""
    figure, axes = plt.subplots(
        rows, columns, figsize=(columns * width, rows * height), squeeze=False, layout="constrained", **options
    )
    for axis in axes.flat:
        axis.spines[["top", "right"]].set_visible(False)
        axis.grid(color="#dddddd", linewidth=0.6)
        axis.set_axisbelow(True)
        axis.tick_params(labelsize=8)
    return figure, axes


def epsilon_axis(axis: Any, epsilons: list[float]) -> None:
    """Make the axis of budgets logarithmic with the budgets as its ticks."""
    axis.set_xscale("log")
    axis.set_xticks(epsilons, [f"{epsilon:g}" for epsilon in epsilons])
    axis.minorticks_off()


def legend_below(figure: Any, axis: Any, columns: int) -> None:
    """Put one legend for all panels under them, from what was drawn in one of them."""
    handles, labels = axis.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=columns, frameon=False, fontsize=9)


def save(figure: Any, name: str) -> Path:
    """Write ``results/NAME.png`` in few colours, so that it stays small, and return where it is."""
    path = RESULTS / f"{name}.png"
    drawn = BytesIO()
    figure.savefig(drawn, dpi=110)
    plt.close(figure)
    Image.open(drawn).convert("RGB").quantize(64, dither=Image.Dither.NONE).save(path, optimize=True)
    size = path.stat().st_size
    print(f"written: {path.relative_to(ROOT)} ({size / 1000:.0f} kB)")
    if size > LARGEST:
        raise ValueError(f"{path.name} has {size} bytes, more than {LARGEST}: draw less in it")
    return path
