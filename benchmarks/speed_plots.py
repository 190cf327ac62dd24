"""Ratios of a speed result: iterations over two products with X, and whole fits over scikit-learn's."""

from __future__ import annotations

from typing import Any

from common import in_order, read_results
from plotting import GREY, grid, save
from speed_tables import LAYOUTS, SOLVER_PARTS, Line, lines, split_layout

FLOOR = "X @ w and X.T @ r"
SERIES = (("#0072b2", "o"), ("#d55e00", "s"), ("#009e73", "^"))


def draw() -> None:
    """Write the picture of all ratios."""
    documents = read_results("speed")
    if not documents:
        return
    found = lines(tuple(documents))
    figure, axes = grid(1, 2, 5.4, 4.6)
    _dots(axes[0, 0], *_iterations([line for line in found if line["baseline"] == FLOOR]))
    axes[0, 0].set_xlabel(f"time over that of {FLOOR}", fontsize=9)
    axes[0, 0].set_title("one iteration or update", fontsize=10)
    _dots(axes[0, 1], *_fits([line for line in found if line.get("part") in SOLVER_PARTS]))
    axes[0, 1].set_xlabel("time over that of LogisticRegression(C=1), same rows", fontsize=9)
    axes[0, 1].set_title("one fit on Adult, epsilon 1", fontsize=10)
    for axis, corner in zip(axes.flat, ("lower right", "lower left"), strict=True):
        axis.legend(frameon=False, fontsize=8, loc=corner)
    save(figure, "speed")


Series = dict[str, dict[str, Line]]  # series, row, line


def _iterations(found: list[Line]) -> tuple[list[str], Series]:
    series: Series = {}
    for line in found:
        what, _, matrix = line["what"].partition(", ")
        series.setdefault(what, {})[matrix] = line
    return in_order(row for entries in series.values() for row in entries), series


def _fits(found: list[Line]) -> tuple[list[str], Series]:
    series: Series = {layout: {} for layout in LAYOUTS}
    for line in found:
        solver, layout = split_layout(line)
        series[layout][solver] = line
    dense = series[LAYOUTS[0]]
    return sorted(dense, key=lambda solver: float(dense[solver]["ratio"])), series


def _dots(axis: Any, rows: list[str], series: Series) -> None:
    """Draw a dot and its quartiles for each line, a stroke where its target is, the first row on top."""
    for number, ((name, entries), (colour, marker)) in enumerate(zip(series.items(), SERIES, strict=False)):
        shift = 0.22 * (number - (len(series) - 1) / 2)
        for row, line in entries.items():
            height = rows.index(row) + shift
            axis.plot(line["ratio_quartiles"], [height, height], color=colour, linewidth=1.5)
            first = row == next(iter(entries))
            axis.plot(line["ratio"], height, marker, color=colour, markersize=5, label=name if first else None)
            if line["target"] is not None:
                axis.plot(line["target"], height, "|", color="black", markersize=9, markeredgewidth=1.8)
    axis.plot([], [], "|", color="black", markersize=9, markeredgewidth=1.8, label="target, at most")
    axis.axvline(1, color=GREY, linewidth=1)
    axis.set_xscale("log")
    low, high = axis.get_xlim()
    ticks = [tick for tick in (0.2, 0.5, 1, 2, 5, 10, 20, 50) if low <= tick <= high]
    axis.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    axis.minorticks_off()
    axis.set_yticks(range(len(rows)), rows)
    axis.invert_yaxis()
