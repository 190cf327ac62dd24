"""Tables of an accuracy result: our solvers beside the reference columns and the tuned peers."""

from __future__ import annotations

import json
from collections.abc import Iterable
from itertools import product
from math import hypot, isnan, sqrt
from pathlib import Path
from typing import Any, NamedTuple

from common import TITLES, markdown, mean_and_error
from fits import BASELINES, failures, figures_of

LARGE_GAP = 0.3
YARDSTICKS = json.loads(Path(__file__).with_name("yardsticks.json").read_text())


class Place(NamedTuple):
    """Where a figure stands in the tables."""

    data: str
    model: str
    epsilon: float

    @property
    def title(self) -> str:
        """Return the name of the row."""
        return f"{TITLES[self.data]}, {self.model}"

    def published(self, table: dict[str, Any]) -> Any:
        """Return the entry of a table of ``yardsticks.json``, or None at an epsilon that it lacks."""
        epsilons = YARDSTICKS["epsilons"]
        row = table.get(self.data, {}).get(self.model)
        return row[epsilons.index(self.epsilon)] if row and self.epsilon in epsilons else None


class Ours(NamedTuple):
    """Mean of a finished cell, its standard error, the number of fits and the solver."""

    mean: float
    error: float
    fits: int
    solver: str

    def __str__(self) -> str:
        return f"{self.mean:.2f} ({self.error:.2f})"


class Result:
    """The finished cells by place and solver."""

    def __init__(self, documents: list[dict[str, Any]]) -> None:
        self.delta = documents[0]["protocol"]["delta"]
        self.cells = {
            (Place(cell["data"], cell["model"], cell["epsilon"]), cell.get("label") or cell["solver"]): cell
            for document in documents
            for cell in document["cells"]
        }
        self.solvers = _in_order(solver for _, solver in self.cells)
        self.rows = _in_order(place[:2] for place, _ in self.cells)
        self.epsilons = sorted({place.epsilon for place, _ in self.cells})

    def ours(self, place: Place, solver: str) -> Ours | None:
        """Return what a solver reached, or None where it failed or was not run."""
        cell = self.cells.get((place, solver))
        values = figures_of(cell) if cell else []
        return Ours(*mean_and_error(values), len(values), solver) if values else None

    def train_loss(self, place: Place, solver: str) -> tuple[float, float] | None:
        """Return mean and standard error of the loss on the training rows."""
        cell = self.cells.get((place, solver))
        values = figures_of(cell, "train_loss") if cell else []
        return mean_and_error(values) if values else None

    def best(self, place: Place, pure: bool = False) -> Ours | None:
        """Return what our best solver reached with this delta, or with ``delta=0``."""
        reached = (self.ours(place, solver) for solver in self.solvers if solver not in BASELINES)
        same_delta = (ours for ours in reached if ours and self.is_pure(place, ours.solver) == pure)
        return max(same_delta, key=lambda ours: ours.mean, default=None)

    def is_pure(self, place: Place, solver: str) -> bool:
        """Return whether the cell was fitted with ``delta=0``."""
        return self.cells[place, solver].get("delta", self.delta) == 0


def report(*documents: dict[str, Any]) -> str:
    """Return all tables of one or several results as Markdown; a later one replaces the cells of an earlier one."""
    result = Result(list(documents))
    fits = sorted({len(cell["fits"]) for cell in result.cells.values() if cell["fits"]})
    parts = [
        f"Test accuracy in percent, untuned defaults, delta = {result.delta:g}; {' or '.join(map(str, fits))} fits a "
        "cell, on stratified folds. In brackets the standard error, "
        "fits taken as independent although they share records. Differences are ours minus theirs.",
        _accuracy_table(result),
        _loss_table(result),
        *(_solver_table(result, solver) for solver in result.solvers if solver in YARDSTICKS["references"]),
        _best_table(result),
        _gaps(result),
        _seconds(result),
        *failures(result.cells.values()),
    ]
    return "\n\n".join(part for part in parts if part)


def _in_order(items: Iterable[Any]) -> list[Any]:
    return list(dict.fromkeys(items))


def _combined_error(ours: Ours, reference: dict[str, Any]) -> float:
    """Return the standard error of ours minus reference.

    The reference's own error is not known cell by cell: its fits are taken to scatter as ours do, and the
    error to be at most what was stated for the whole column.
    """
    other = ours.error * sqrt(ours.fits / reference["fits"])
    return hypot(ours.error, min(other, reference["largest_error"] or other))


def _verdict(difference: float, error: float) -> str:
    if isnan(error):
        return "no error known"
    if abs(difference) <= 2 * error:
        return "within"
    return "better" if difference > 0 else "worse"


def _line(result: Result, row: tuple[str, str], entry: Any) -> list[str]:
    return [entry(Place(*row, epsilon)) for epsilon in result.epsilons]


def _accuracy_table(result: Result) -> str:
    def entry(place: Place, solver: str) -> str:
        ours, best = result.ours(place, solver), result.best(place, result.is_pure(place, solver))
        text = str(ours or "failed")
        return f"**{text}**" if ours and best and ours.solver == best.solver else text

    return (
        "### Accuracy of all solvers\n\nThe best of each cell in bold, and of those with delta = 0, whose names end "
        "in *pure*. *no_noise* is our minimum with C = 1, *lbfgs* that of scikit-learn on rows as they are."
        "\n\n" + _every_solver(result, entry)
    )


def _loss_table(result: Result) -> str:
    def entry(place: Place, solver: str) -> str:
        loss = result.train_loss(place, solver)
        return f"{loss[0]:.4f} ({loss[1]:.4f})" if loss else ""

    return "### Mean loss on the training rows, without the penalty\n\n" + _every_solver(result, entry)


def _every_solver(result: Result, entry: Any) -> str:
    rows = []
    for row in result.rows:
        for solver in result.solvers:
            places = [Place(*row, epsilon) for epsilon in result.epsilons]
            if any((place, solver) in result.cells for place in places):  # else the solver refuses this loss
                shown = [entry(place, solver) if (place, solver) in result.cells else "" for place in places]
                rows.append([places[0].title, solver, *shown])
    return markdown(["data, model", "solver", *(f"{epsilon:g}" for epsilon in result.epsilons)], rows)


def _solver_table(result: Result, solver: str) -> str:
    reference = YARDSTICKS["references"].get(solver)
    rows, verdicts = [], []

    def ours(place: Place) -> str:
        return str(result.ours(place, solver) or "failed")

    def theirs(place: Place) -> str:
        value = place.published(reference["accuracy"])
        return "" if value is None else f"{value:.2f}"

    def difference(place: Place) -> str:
        value, mine = place.published(reference["accuracy"]), result.ours(place, solver)
        if value is None or mine is None:
            return ""
        verdicts.append(_verdict(mine.mean - value, _combined_error(mine, reference)))
        return f"{mine.mean - value:+.2f} {verdicts[-1]}"

    def peer(place: Place) -> str:
        value = place.published(YARDSTICKS["peers"])
        return "" if value is None else f"{value[0]:.1f} {value[1]}"

    def gap(place: Place) -> str:
        value, mine = place.published(YARDSTICKS["peers"]), result.ours(place, solver)
        return "" if value is None or mine is None else f"{mine.mean - value[0]:+.2f}"

    for row in result.rows:
        if all((Place(*row, epsilon), solver) not in result.cells for epsilon in result.epsilons):
            continue  # the solver refuses this loss
        if Place(*row, result.epsilons[0]).published(YARDSTICKS["peers"]) is None:
            continue
        rows.append([Place(*row, 0).title, solver, *_line(result, row, ours)])
        if reference:
            rows.append(["", reference["name"], *_line(result, row, theirs)])
            rows.append(["", "difference", *_line(result, row, difference)])
        rows.append(["", "tuned peer", *_line(result, row, peer)])
        rows.append(["", "difference", *_line(result, row, gap)])
    parts = [
        f"### {solver}",
        markdown(["data, model", "", *(f"{epsilon:g}" for epsilon in result.epsilons)], rows),
    ]
    if reference:
        counts = ", ".join(f"{verdicts.count(word)} {word}" for word in _in_order(sorted(verdicts)))
        parts.append(
            f"Reference {reference['name']}: {reference['protocol']}. Within means within two standard errors "
            "of the difference, the reference's fits taken to scatter as ours do. "
            f"Of {len(verdicts)} cells: {counts}."
        )
    return "\n\n".join(parts)


def _best_table(result: Result) -> str:
    def entry(place: Place) -> str:
        best, peer = result.best(place), place.published(YARDSTICKS["peers"])
        if best is None:
            return "failed"
        beside = "" if peer is None else f", {best.mean - peer[0]:+.2f}"
        return f"{best} {best.solver}{beside}"

    rows = [
        [Place(*row, 0).title, YARDSTICKS["non_private"].get(row[0], {}).get(row[1], ""), *_line(result, row, entry)]
        for row in result.rows
    ]
    header = ["data, model", "non-private", *(f"{epsilon:g}" for epsilon in result.epsilons)]
    return (
        "### The best of these solvers, and its difference to the best tuned peer\n\n"
        "The peers were tuned on held-out folds without paying for it, so their cells are optimistic; choosing "
        f"our best solver in each cell is optimistic too.\n\n{markdown(header, rows)}"
    )


def _gaps(result: Result) -> str:
    rows = []
    solvers = [solver for solver in result.solvers if solver not in BASELINES]
    for row, epsilon, solver in product(result.rows, result.epsilons, solvers):
        place = Place(*row, epsilon)
        ours, best = result.ours(place, solver), result.best(place)
        if ours is None or best is None:
            continue
        for name, accuracy in _rivals(place, solver):
            if accuracy - ours.mean > LARGE_GAP:
                closed = "yes" if accuracy - best.mean <= LARGE_GAP else "no"
                gap = f"{accuracy - ours.mean:.2f}"
                rows.append([place.title, f"{epsilon:g}", solver, ours, f"{name} {accuracy:.2f}", gap, closed])
    header = ["data, model", "epsilon", "solver", "ours", "behind", "gap", "closed by another solver"]
    title = f"### Gaps above {LARGE_GAP} points"
    return f"{title}\n\n{markdown(header, rows) if rows else 'None.'}"


def _rivals(place: Place, solver: str) -> Iterable[tuple[str, float]]:
    reference = YARDSTICKS["references"].get(solver)
    if reference and (accuracy := place.published(reference["accuracy"])) is not None:
        yield f"reference {reference['name']}", accuracy
    if (peer := place.published(YARDSTICKS["peers"])) is not None:
        yield f"peer {peer[1]}", peer[0]


def _seconds(result: Result) -> str:
    rows = []
    for data, solver in product(_in_order(data for data, _ in result.rows), result.solvers):
        cells = [cell for (place, name), cell in result.cells.items() if place.data == data and name == solver]
        times = sorted(fit["seconds"] for cell in cells for fit in cell["fits"])
        if times:
            spread = (times[len(times) // 2], times[0], times[-1])
            rows.append([TITLES[data], solver, *(f"{value:.2f}" for value in spread)])
    title = "### Seconds of one fit (jobs ran side by side: speed.py is the timing benchmark)"
    return f"{title}\n\n{markdown(['data', 'solver', 'median', 'fastest', 'slowest'], rows)}"
