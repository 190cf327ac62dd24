"""Pictures of released functions; matplotlib is imported when one is drawn."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from sklearn.pipeline import Pipeline

from dpskl.preprocessing.knots import from_axis, to_axis
from dpskl.preprocessing.shapes import CategoryHeights, ShapeFunction, shape_functions

__all__ = ["plot_shape"]

_ACROSS = 3  # panels side by side in a new figure
_LETTERS = 30  # of the labels of categories side by side
_FINENESS = 200  # points of a curve
_BAR_FROM, _BAR_WIDTH = 1.02, 0.05  # right of the axes, as parts of their width


def plot_shape(model, transformer=None, columns=None, ax=None, *, names=None):
    """Draw what a linear classifier on hat functions or an encoded table has learnt of each column.

    Needs matplotlib, which the extra ``plots`` installs. Only released weights are drawn, so it costs nothing.

    Parameters
    ----------
    model, transformer, names
        As in :func:`shape_functions`.
    columns : str, list of str or None, default=None
        Which of the original columns to draw; ``None`` is all.
    ax : matplotlib Axes, array of Axes or None, default=None
        One for each column to draw; ``None`` makes a new figure.

    Returns
    -------
    ndarray of matplotlib Axes
        One for each column; ``axes[0].figure`` is the figure. Dots are knots, the axis is that of the column's spacing,
        and the bar at the right is the height where the value is missing. Categories are bars, hatched for unknown and
        missing values.

    Raises
    ------
    ImportError
        If matplotlib is not installed.
    ValueError
        As :func:`shape_functions`, or if a column is not there or ``ax`` has another number of axes.
    """
    shapes = shape_functions(model, transformer, names=names)
    chosen = list(shapes) if columns is None else [columns] if isinstance(columns, str) else list(columns)
    if unknown := [name for name in chosen if name not in shapes]:
        raise ValueError(f"columns={unknown!r} are not there: the transformer has {list(shapes)!r}")
    if not chosen:
        raise ValueError("columns=[] leaves nothing to draw: name some, or leave it out for all")
    panels = _new_panels(len(chosen)) if ax is None else np.atleast_1d(np.asarray(ax, dtype=object)).ravel()
    if len(panels) != len(chosen):
        raise ValueError(f"ax has {len(panels)} axes for {len(chosen)} columns: give one for each, or choose columns=")
    classes = getattr(model[-1] if isinstance(model, Pipeline) else model, "classes_", None)
    for k, (panel, name) in enumerate(zip(panels, chosen, strict=True)):
        draw = _draw_categories if isinstance(shapes[name], CategoryHeights) else _draw
        draw(panel, name, shapes[name], classes)
        if ax is not None or k % _ACROSS == 0:  # the others share their axis with these
            panel.set_ylabel("part of the score")
    return panels


def _new_panels(count: int) -> Any:
    try:
        import matplotlib.pyplot as plt
    except ImportError as error:
        raise ImportError("plot_shape needs matplotlib: pip install 'dpskl[plots]'") from error
    across = min(_ACROSS, count)
    down = -(-count // across)
    size = (4 * across, 3 * down)
    figure, grid = plt.subplots(down, across, figsize=size, sharey=True, squeeze=False, layout="constrained")
    for spare in grid.ravel()[count:]:
        figure.delaxes(spare)
    return grid.ravel()[:count]


def _draw(panel: Any, name: str, shape: ShapeFunction, classes: Sequence[Any] | None) -> None:
    knots = to_axis(shape.knots, shape.spacing)
    places = np.union1d(np.linspace(float(knots[0]), float(knots[-1]), _FINENESS), knots)
    # rounding on the way back must not leave the range
    across = np.clip(from_axis(places, shape.spacing), shape.knots[0], shape.knots[-1])
    curves, dots = shape.at(across).reshape(len(across), -1), shape.values.reshape(len(knots), -1)
    labels = [None] if classes is None or curves.shape[1] == 1 else [str(label) for label in classes]
    lines = [panel.plot(across, curve, label=label)[0] for curve, label in zip(curves.T, labels, strict=True)]
    for line, heights in zip(lines, dots.T, strict=True):
        panel.plot(shape.knots, heights, ".", color=line.get_color())
    panel.axhline(0, color="0.8", linewidth=0.8, zorder=0)
    if shape.missing is not None:
        _draw_bars(panel, np.atleast_1d(shape.missing), [line.get_color() for line in lines])
    if shape.spacing == "log" and shape.knots[0] > 0:
        panel.set_xscale("log")
    elif shape.spacing == "log":
        panel.set_xscale("symlog", linthresh=1)
    if shape.spacing == "log":  # margins were made for a linear axis
        panel.set_xlim(shape.knots[0], shape.knots[-1])
    panel.set_xlabel(name)
    if len(lines) > 1:
        panel.legend(frameon=False)


def _draw_categories(panel: Any, name: str, shape: CategoryHeights, classes: Sequence[Any] | None) -> None:
    beside = [(label, getattr(shape, label)) for label in ("other", "missing") if label not in shape.categories]
    special = {label: height for label, height in beside if height is not None}
    labels = [*map(str, shape.categories), *special]
    heights = np.concatenate([shape.values, *([height] for height in special.values())]).reshape(len(labels), -1)
    count = heights.shape[1]
    places, width = np.arange(len(labels)), 0.8 / count
    for k, column in enumerate(heights.T):
        label = None if classes is None or count == 1 else str(classes[k])
        bars = panel.bar(places + (k + 0.5) * width - 0.4, column, width, label=label, color=f"C{k}")
        for bar in bars[len(shape.categories) :]:
            bar.set(hatch="///", alpha=0.6)
    panel.axhline(0, color="0.8", linewidth=0.8, zorder=0)
    crowded = sum(map(len, labels)) > _LETTERS
    panel.set_xticks(places, labels, rotation=90 if crowded else 0, fontsize="small" if crowded else None)
    panel.set_xlabel(name)
    if count > 1:
        panel.legend(frameon=False)


def _draw_bars(panel: Any, heights: Any, colors: list[Any]) -> None:
    from matplotlib.patches import Rectangle

    # across in parts of the axes and up in units of the score: beside the axis, whatever its scale
    mixed, width = panel.get_yaxis_transform(), _BAR_WIDTH / len(heights)
    for k, (height, color) in enumerate(zip(heights, colors, strict=True)):
        corner = (_BAR_FROM + k * width, 0)
        panel.add_patch(Rectangle(corner, width, height, transform=mixed, color=color, clip_on=False, gid="missing"))
    panel.autoscale_view(scalex=False)
    right = _BAR_FROM + _BAR_WIDTH + 0.01
    panel.text(right, 0.5, "missing", transform=panel.transAxes, rotation=90, va="center", fontsize="small")
