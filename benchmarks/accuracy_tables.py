"""Tables of an accuracy result: our solvers beside each other, beside no privacy, and beside published figures."""

from __future__ import annotations

import json
from collections import Counter
from math import hypot, isnan, sqrt
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from common import TITLES, in_order, markdown, mean_and_error
from fits import BASELINES, MODELS, failures, figures_of

DEFAULT = "whitened_gd"  # what solver="auto" takes
NO_PRIVACY = ("no_noise", "lbfgs")
SHOWN = 0.2  # the budget of the tables of all solvers, where it was run
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


class Result:
    """The finished cells by place and solver."""

    def __init__(self, documents: list[dict[str, Any]]) -> None:
        self.delta = documents[0]["protocol"]["delta"]
        self.cells = {
            (Place(cell["data"], cell["model"], cell["epsilon"]), cell.get("label") or cell["solver"]): cell
            for document in documents
            for cell in document["cells"]
        }
        self.solvers = in_order(solver for _, solver in self.cells)
        self.rows = in_order(place[:2] for place, _ in self.cells)
        self.epsilons = sorted({place.epsilon for place, _ in self.cells})
        self.sets, self.models = (in_order(names) for names in zip(*self.rows, strict=True))

    def ours(self, place: Place, solver: str) -> Ours | None:
        """Return what a solver reached, or None where it failed or was not run."""
        cell = self.cells.get((place, solver))
        values = figures_of(cell) if cell else []
        return Ours(*mean_and_error(values), len(values), solver) if values else None

    def best(self, place: Place, pure: bool = False) -> Ours | None:
        """Return what our best solver reached with this delta, or with ``delta=0``."""
        reached = (self.ours(place, solver) for solver in self.solvers if solver not in BASELINES)
        same_delta = (ours for ours in reached if ours and self.is_pure(place, ours.solver) == pure)
        return max(same_delta, key=lambda ours: ours.mean, default=None)

    def is_pure(self, place: Place, solver: str) -> bool:
        """Return whether the cell was fitted with ``delta=0``."""
        return self.cells[place, solver].get("delta", self.delta) == 0

    def group(self, place: Place, solver: str) -> int:
        """Return 0 for our solvers with this delta, 1 for those with ``delta=0``, 2 for what they are compared with."""
        return 2 if solver in BASELINES else int(self.is_pure(place, solver))

    def run_at(self, model: str, solver: str, epsilon: float) -> list[Place]:
        """Return the places of all sets at which the solver finished."""
        places = (Place(data, model, epsilon) for data in self.sets)
        return [place for place in places if self.ours(place, solver)]


def report(*documents: dict[str, Any]) -> str:
    """Return the tables of one or several results as Markdown; a later one replaces the cells of an earlier one."""
    result = Result(list(documents))
    fits = sorted({len(cell["fits"]) for cell in result.cells.values() if cell["fits"]})
    parts = [
        f"Test accuracy in percent, untuned defaults, delta = {result.delta:g}; {' or '.join(map(str, fits))} fits a "
        "cell, on stratified folds. Standard errors take fits as independent although they share "
        "records. *pure* is delta = 0; *no_noise* is our minimum with C = 1, *lbfgs* that of scikit-learn on rows as "
        "they are.",
        _best_table(result),
        _averages(result),
        _all_solvers(result),
        _beside_references(result),
        _beside_peers(result),
        *failures(result.cells.values()),
    ]
    return "\n\n".join(part for part in parts if part)


def _line(result: Result, row: tuple[str, str], entry: Any) -> list[str]:
    return [entry(Place(*row, epsilon)) for epsilon in result.epsilons]


# -- our solvers --------------------------------------------------------------------------------------


def _best_table(result: Result) -> str:
    """Return the best solver of each cell beside the better of the two fits without privacy."""
    rows, errors = [], [0.0]
    for row in result.rows:
        known = [ours for name in NO_PRIVACY if (ours := _without_noise(result, row, name))]
        free = max(known, key=lambda ours: ours.mean, default=None)

        def entry(place: Place, free: Ours | None = free) -> str:
            best = result.best(place)
            if best is None:
                return ""
            errors.append(best.error)
            name = "" if best.solver == DEFAULT else f" {best.solver}"
            return f"{best.mean:.2f}{name}" + (f" ({best.mean - free.mean:+.2f})" if free else "")

        shown = f"{free.mean:.2f} {free.solver}" if free else ""
        rows.append([Place(*row, 0).title, shown, *_line(result, row, entry)])
    header = ["data, model", "no privacy", *(f"{epsilon:g}" for epsilon in result.epsilons)]
    return (
        "### The best solver at each epsilon, and what privacy costs\n\n"
        f"The most accurate solver is `{DEFAULT}`, the default, unless another is named; choosing it in each cell is a "
        "little optimistic. In brackets the points to the better of the two fits without privacy. Standard errors up "
        f"to {np.nanmax(errors):.2f}.\n\n{markdown(header, rows)}"
    )


def _without_noise(result: Result, row: tuple[str, str], solver: str) -> Ours | None:
    """Return a fit without privacy, which is the same at every epsilon at which it was run."""
    found = (result.ours(Place(*row, epsilon), solver) for epsilon in result.epsilons)
    return next((ours for ours in found if ours), None)


def _averages(result: Result) -> str:
    """Return means over the sets and over the budgets at which all solvers were run, and how many cells each won."""
    rows = []
    solvers = [solver for solver in result.solvers if solver not in BASELINES]
    epsilons = [e for e in result.epsilons if all(any(result.run_at(m, s, e) for m in result.models) for s in solvers)]
    for solver in solvers:
        entries, group = [], 0
        for model in result.models:
            places = [place for epsilon in epsilons for place in result.run_at(model, solver, epsilon)]
            means, won = [], 0
            for place in places:
                ours, group = result.ours(place, solver), result.group(place, solver)
                best = result.best(place, pure=group == 1)
                means += [ours.mean] if ours else []
                won += best is not None and best.solver == solver
            entries.append((float(np.mean(means)), won, len(means)) if means else None)
        rows.append((group, -max((entry[0] for entry in entries if entry), default=0.0), solver, entries))
    shown = [
        [solver, *(f"{entry[0]:.2f}, {entry[1]} of {entry[2]}" if entry else "" for entry in entries)]
        for *_, solver, entries in sorted(rows, key=lambda row: row[:2])
    ]
    return (
        "### Averages over the sets\n\n"
        f"Mean accuracy at epsilon {', '.join(f'{epsilon:g}' for epsilon in epsilons)}, where all were run, and in how "
        "many of these cells the solver is the most accurate of those with the same delta.\n\n"
        + markdown(["solver", *result.models], shown)
        if epsilons
        else ""
    )


def _all_solvers(result: Result) -> str:
    epsilon = SHOWN if SHOWN in result.epsilons else result.epsilons[len(result.epsilons) // 2]
    rows, errors = [], [0.0]
    for solver in result.solvers:
        places = [Place(data, model, epsilon) for model in result.models for data in result.sets]
        run = [place for place in places if (place, solver) in result.cells]
        if run:
            reached = [ours for place in run if (ours := result.ours(place, solver))]
            errors += [ours.error for ours in reached]
            # by the mean of the first model that the solver takes
            first = [ours.mean for place in run if place.model == run[0].model and (ours := result.ours(place, solver))]
            order = result.group(run[0], solver), -float(np.mean(first)) if first else 0.0
            shown = [_joined_models(result, data, epsilon, solver) for data in result.sets]
            rows.append((order, [solver, *shown]))
    lines = [line for _, line in sorted(rows, key=lambda row: row[0])]
    names = " / ".join(f"{MODELS[model][0].__name__} ({model})" for model in result.models)
    return (
        f"### All solvers at epsilon {epsilon:g}\n\n"
        f"{names}; a dash where a solver refuses the loss. The best in bold, and the best of those with delta = 0. "
        f"Standard errors up to {np.nanmax(errors):.2f}.\n\n"
        + markdown(["solver", *(TITLES[data] for data in result.sets)], lines)
    )


def _joined_models(result: Result, data: str, epsilon: float, solver: str) -> str:
    return " / ".join(_bold_if_best(result, Place(data, model, epsilon), solver) for model in result.models)


def _bold_if_best(result: Result, place: Place, solver: str) -> str:
    if (place, solver) not in result.cells:
        return "-"
    ours, best = result.ours(place, solver), result.best(place, result.is_pure(place, solver))
    text = f"{ours.mean:.2f}" if ours else "failed"
    return f"**{text}**" if ours and best and ours.solver == best.solver else text


# -- published figures --------------------------------------------------------------------------------


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


def _beside_references(result: Result) -> str:
    rows = []
    for solver, reference in YARDSTICKS["references"].items():
        verdicts: Counter[str] = Counter()
        gaps = []
        for place, name in result.cells:
            value, ours = place.published(reference["accuracy"]), result.ours(place, solver)
            if name == solver and value is not None and ours is not None:
                verdicts[_verdict(ours.mean - value, _combined_error(ours, reference))] += 1
                gaps.append(ours.mean - value)
        if gaps:
            counts = [verdicts[word] for word in ("better", "within", "worse")]
            spread = f"{min(gaps):+.2f} to {max(gaps):+.2f}"
            rows.append([solver, reference["name"], len(gaps), *counts, f"{np.mean(gaps):+.2f}", spread])
    header = ["solver", "reference", "cells", "better", "within", "worse", "mean difference", "range"]
    protocols = "; ".join(f"{entry['name']}: {entry['protocol']}" for entry in YARDSTICKS["references"].values())
    return (
        "### Beside the same algorithm with hand-set constants\n\n"
        "In how many cells ours is better or worse by more than two standard errors of the difference, the reference's "
        f"fits taken to scatter as ours do ({protocols}).\n\n{markdown(header, rows)}"
        if rows
        else ""
    )


def _beside_peers(result: Result) -> str:
    rows = []
    for solver in result.solvers:
        gaps, behind, left = [], 0, []
        for place, name in result.cells:
            peer, ours, best = place.published(YARDSTICKS["peers"]), result.ours(place, solver), result.best(place)
            if name == solver and solver not in BASELINES and peer is not None and ours and best:
                gaps.append(ours.mean - peer[0])
                behind += gaps[-1] < -LARGE_GAP
                if best.mean - peer[0] < -LARGE_GAP:
                    left.append(f"{place.title} {place.epsilon:g}")
        if gaps:
            range_ = f"{min(gaps):+.2f} to {max(gaps):+.2f}"
            rows.append([solver, len(gaps), f"{np.mean(gaps):+.2f}", range_, behind, ", ".join(left) or "none"])
    rows.sort(key=lambda row: -float(row[2]))
    header = ["solver", "cells", "mean difference", "range", f"behind by more than {LARGE_GAP:g}", "and so is our best"]
    return (
        "### Beside the best tuned peer\n\n"
        "Ours minus theirs in points. The peers were tuned on held-out folds without paying for it, so their figures "
        "are optimistic; *pure* has delta = 0 and the peers have not.\n\n" + markdown(header, rows)
        if rows
        else ""
    )
