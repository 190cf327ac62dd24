"""Tables of ``evaluation.py``."""

from __future__ import annotations

from typing import Any

from common import markdown

RANGE = (0.93, 0.97)  # of the coverage that is aimed at
AREA = {"n_samples": 10_000, "epsilon": 0.1, "at_most": 0.01}
TITLES = {
    "accuracy": "accuracy",
    "roc_auc": "area",
    "balanced_accuracy": "balanced accuracy",
    "f1": "F1",
    "brier": "Brier",
    "log_loss": "log loss",
}
SETS = {"even": "equal classes", "rare": "one in ten"}


def report(*documents: dict[str, Any]) -> str:
    """Return the tables of all results as Markdown; a later one replaces the cells of an earlier one."""
    found = {_place(cell): cell for document in documents for cell in document["cells"]}
    cells = sorted(found.values(), key=lambda cell: (cell["data"], cell["n_samples"]))
    protocol = documents[-1]["protocol"]
    repetitions = min(cell["repetitions"] for cell in cells)
    return "\n\n".join(
        [
            f"Made records with known figures, delta = {protocol['delta']:g}, {protocol['n_bins']} intervals; "
            f"{repetitions} repetitions a cell or more. Coverage is that of 95 % intervals, in percent; its standard "
            f"error is at most {100 * (0.95 * 0.05 / repetitions) ** 0.5:.1f}. Errors are root mean squares over "
            "records and noise, *stated* is the median of the standard errors. *Area, plain counts* is the error of "
            "the area with independent noise on every count.",
            _targets(cells),
            f"### Accuracy and area\n\n{_main(cells)}",
            f"### Coverage of the other figures\n\n{_others(cells)}",
        ]
    )


def _coverage(cell: dict[str, Any], name: str) -> float:
    return float(cell["figures"][name]["covered"] / cell["repetitions"])


def _place(cell: dict[str, Any]) -> str:
    return f"{SETS[cell['data']]}, {cell['n_samples']:,}, {cell['epsilon']:g}, {cell['neighbours']}"


def _targets(cells: list[dict[str, Any]]) -> str:
    """Return the targets with what was seen, and every miss."""
    pairs = [(cell, name) for cell in cells for name in ("accuracy", "roc_auc")]
    missed = [(cell, name) for cell, name in pairs if not RANGE[0] <= _coverage(cell, name) <= RANGE[1]]
    lines = [
        f"* Coverage of accuracy and area between {100 * RANGE[0]:g} and {100 * RANGE[1]:g} %: "
        f"{len(pairs) - len(missed)} of {len(pairs)} cells, **{'pass' if not missed else 'FAIL'}**"
    ]
    lines += [f"    * {_place(cell)}: {TITLES[name]} {100 * _coverage(cell, name):.1f} %" for cell, name in missed]
    for cell in cells:
        if all(cell[key] == AREA[key] for key in ("n_samples", "epsilon")):
            error = cell["figures"]["roc_auc"]["rmse"]
            verdict = "pass" if error <= AREA["at_most"] else "FAIL"
            lines.append(f"* Error of the area at most {AREA['at_most']:g}, {_place(cell)}: {error:.4f}, **{verdict}**")
    return "\n".join(lines)


def _main(cells: list[dict[str, Any]]) -> str:
    header = ["classes, n, epsilon, relation"]
    header += [
        "accuracy: error",
        "stated",
        "coverage",
        "area: error",
        "bias",
        "stated",
        "coverage",
        "area, plain counts",
    ]
    rows = []
    for cell in cells:
        row = [_place(cell)]
        for name in ("accuracy", "roc_auc"):
            entry = cell["figures"][name]
            bias = [f"{entry['bias']:+.4f}"] if name == "roc_auc" else []
            stated = "" if entry["standard_error"] is None else f"{entry['standard_error']:.4f}"
            row += [f"{entry['rmse']:.4f}", *bias, stated, f"{100 * _coverage(cell, name):.1f}"]
        rows.append([*row, f"{cell['flat_area_rmse']:.4f}"])
    return markdown(header, rows)


def _others(cells: list[dict[str, Any]]) -> str:
    names = list(TITLES)[2:]
    rows = [[_place(cell), *(f"{100 * _coverage(cell, name):.1f}" for name in names)] for cell in cells]
    return markdown(["classes, n, epsilon, relation", *(TITLES[name] for name in names)], rows)
