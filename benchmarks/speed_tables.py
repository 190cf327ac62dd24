"""Tables of a speed result: what has a target, and whole fits with every solver."""

from __future__ import annotations

from typing import Any

from common import in_order, markdown

Line = dict[str, Any]
SOLVER_PARTS = ("solvers", "whitened")
LAYOUTS = ("dense", "CSR")


def lines(documents: tuple[dict[str, Any], ...]) -> list[Line]:
    """Return all comparisons once each; of one that was run twice the run with more repetitions."""
    kept: dict[tuple[str, str], Line] = {}
    for document in documents:
        for line in document["comparisons"]:
            key = line["what"], line["baseline"]
            if key not in kept or len(line["seconds"]["ours"]) >= len(kept[key]["seconds"]["ours"]):
                kept[key] = line
    return list(kept.values())


def report(*documents: dict[str, Any]) -> str:
    """Return the tables of one or several results as Markdown."""
    found = lines(documents)
    threads = sorted({document["protocol"]["threads"] for document in documents})
    parts = [
        f"Medians of interleaved repetitions, {' or '.join(map(str, threads))} BLAS thread(s). The ratio is that of "
        "the medians; in brackets the quartiles of the ratios of neighbouring repetitions, which need not enclose it "
        f"where these are few.{_superseded(documents, found)}",
        _targets([line for line in found if line["target"] is not None]),
        _solvers([line for line in found if line.get("part") in SOLVER_PARTS]),
        _iterations([line for line in found if _is_iteration(line)]),
        _others([line for line in found if line["target"] is None and not _is_tabled(line)]),
    ]
    return "\n\n".join(part for part in parts if part)


def _superseded(documents: tuple[dict[str, Any], ...], found: list[Line]) -> str:
    """Return what a run with more repetitions took the place of."""
    kept = {(line["what"], line["baseline"]): line for line in found}
    old = [
        f"{line['what']} ({line['ratio']:.2f} in {len(line['seconds']['ours'])} repetitions)"
        for document in documents
        for line in document["comparisons"]
        if kept[line["what"], line["baseline"]] is not line
    ]
    return f" Measured again with more repetitions, which are shown instead: {'; '.join(old)}." if old else ""


def split_layout(line: Line) -> tuple[str, str]:
    """Return the solver and the layout of a whole fit with it."""
    solver, _, layout = line["what"].rpartition(", ")
    return solver, layout.split(" (")[0]


def _milliseconds(line: Line, name: str) -> str:
    value = 1e3 * line["median_seconds"][name]
    return f"{value:.3g}" if value < 1000 else f"{value:,.0f}"


def _ratio(line: Line) -> str:
    low, high = line["ratio_quartiles"]
    return f"{line['ratio']:.2f} ({low:.2f}-{high:.2f})"


def _targets(found: list[Line]) -> str:
    rows = []
    for line in found:
        ours_first = line["meaning"] == "ours / baseline"
        verdict = "pass" if line["passed"] else "**FAIL**"
        target = f"{'<=' if ours_first else '>='} {line['target']:g}"
        repetitions = len(line["seconds"]["ours"])
        figures = [repetitions, _milliseconds(line, "ours"), line["meaning"], _ratio(line), target, verdict]
        rows.append([line["what"], line["baseline"], *figures])
    header = ["ours", "baseline", "repetitions", "ours, ms", "ratio of", "ratio (quartiles)", "target", ""]
    passed = sum(line["passed"] for line in found)
    return f"### Targets: {passed} of {len(found)} met\n\n{markdown(header, rows)}" if rows else ""


def _solvers(found: list[Line]) -> str:
    by_place = {split_layout(line): line for line in found}
    rows = []
    for solver in sorted({solver for solver, _ in by_place}, key=lambda name: _fastest(by_place, name)):
        row = [solver]
        for layout in LAYOUTS:
            line = by_place.get((solver, layout))
            row += [_milliseconds(line, "ours"), _ratio(line)] if line else ["", ""]
        rows.append(row)
    header = ["solver", *(f"{layout}: {figure}" for layout in LAYOUTS for figure in ("ms", "ratio"))]
    return (
        "### One fit on Adult with each solver\n\n"
        "DPLogisticRegression at epsilon 1, over scikit-learn's LogisticRegression(C=1) on the same rows.\n\n"
        + markdown(header, rows)
        if rows
        else ""
    )


def _fastest(by_place: dict[tuple[str, str], Line], solver: str) -> float:
    return min(line["median_seconds"]["ours"] for (name, _), line in by_place.items() if name == solver)


def _iterations(found: list[Line]) -> str:
    """Return the ratios of iterations and updates, a row a layout and a column for what is timed."""
    columns = in_order((line["what"].partition(", ")[0], line["baseline"]) for line in found)
    by_place = {(*_split_matrix(line), line["baseline"]): line for line in found}
    matrices = in_order(_split_matrix(line)[1] for line in found)
    rows = []
    for matrix in matrices:
        here = [by_place.get((what, matrix, baseline)) for what, baseline in columns]
        rows.append([matrix, *(_ratio(line) if line else "" for line in here)])
    header = ["X", *(f"{what} over {baseline}" for what, baseline in columns)]
    return f"### One iteration or update\n\n{markdown(header, rows)}" if rows else ""


def _is_iteration(line: Line) -> bool:
    """Return whether a line compares on one layout of X, all of which the table of iterations has."""
    return line.get("part") in ("iteration", "update") and line["meaning"] == "ours / baseline"


def _is_tabled(line: Line) -> bool:
    return _is_iteration(line) or line.get("part") in SOLVER_PARTS


def _others(found: list[Line]) -> str:
    """Return what has neither a target nor a table of its own, a sentence for each baseline."""
    sentences = []
    for baseline, meaning in in_order((line["baseline"], line["meaning"]) for line in found):
        here = [line for line in found if (line["baseline"], line["meaning"]) == (baseline, meaning)]
        ratios = "; ".join(f"{line['what']}: {_ratio(line)}" for line in here)
        sentences.append(f"* {meaning.replace('baseline', f'`{baseline}`')} - {ratios}.")
    return "### Without a target\n\n" + "\n".join(sentences) if sentences else ""


def _split_matrix(line: Line) -> tuple[str, str]:
    what, _, matrix = line["what"].partition(", ")
    return what, matrix
