"""Tables of ``delays.py``: accuracy at the end and along the way."""

from __future__ import annotations

from typing import Any

from common import in_order, markdown, mean_and_error

__all__ = ["report"]

_QUARTERS = (0.05, 0.25, 0.5, 0.75, 1.0)  # of a run


def report(*documents: dict[str, Any]) -> str:
    """Return the table of one or several results: a line a method, the mean of its seeds with the standard error."""
    rows = []
    found = {(run["method"], run["seed"]): run for document in documents for run in document["runs"]}
    for method in in_order(name for name, _ in found):
        runs = [run for (name, _), run in found.items() if name == method]
        mean, error = mean_and_error([run["accuracy"] for run in runs])
        along = ["" if not runs[0]["looks"] else f"{_at(runs, share):.1f}" for share in _QUARTERS]
        seconds = sum(run["seconds"] for run in runs) / len(runs)
        rows.append([method, len(runs), *along, f"{mean:.2f} ({error:.2f})", f"{seconds:.0f}"])
    first, protocol = documents[0]["runs"][0], documents[0]["protocol"]
    return (
        f"Test accuracy in percent on IMDB, {protocol['words']:,} words, at epsilon "
        f"{first['epsilon']:.2f}, delta {protocol['delta']:g}: mean of seeds, at shares of a run "
        "and at its end with the standard error.\n\n"
        + markdown(["method", "seeds", *(f"{100 * share:.0f} %" for share in _QUARTERS), "end", "seconds"], rows)
    )


def _at(runs: list[dict[str, Any]], share: float) -> float:
    """Return the mean accuracy at the look nearest to a share of the run."""
    place = max(0, round(share * len(runs[0]["looks"])) - 1)
    return sum(run["looks"][place]["accuracy"] for run in runs) / len(runs)
