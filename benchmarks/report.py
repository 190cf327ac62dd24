"""Render the result files into ``benchmarks/RESULTS.md``.

python benchmarks/report.py            # benchmarks/results/*.json -> benchmarks/RESULTS.md
python benchmarks/report.py --quick    # print what smoke runs left behind, and write nothing

The pictures are drawn by ``plots.py``; one that is not there is left out.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any, NamedTuple

import ablation_tables
import accuracy_tables
import delays_tables
import evaluation_tables
import ftrl_tables
import other_tables
import sparse_tables
import speed_tables
import whitening_tables
from common import RESULTS, ROOT, in_order, markdown, read_results

TARGET = ROOT / "benchmarks" / "RESULTS.md"


class Section(NamedTuple):
    """A part of the report: title, tables, pictures with what they show, and other results that it reads as well."""

    title: str
    report: Callable[..., str]
    pictures: tuple[tuple[str, str], ...] = ()
    also: tuple[str, ...] = ()


BARS = "Bars are standard errors."
SECTIONS = {
    "accuracy": Section(
        "Accuracy",
        accuracy_tables.report,
        (
            ("accuracy", f"Test accuracy against epsilon, a column a data set and a row a loss. {BARS}"),
            ("accuracy-pure", f"The same with delta = 0. {BARS}"),
        ),
    ),
    "other_sets": Section(
        "Other data sets",
        other_tables.report,
        (
            ("other_sets-accuracy", f"Test accuracy of DPLogisticRegression, a panel a data set. {BARS}"),
            ("other_sets-auc", f"Area under the curve. {BARS}"),
            ("other_sets-log_loss", f"Log loss of the probabilities, lower is better. {BARS}"),
        ),
    ),
    "sparse": Section("Frank-Wolfe on many sparse columns", sparse_tables.report, also=("needles",)),
    "ftrl": Section("Correlated noise and amplification by sampling", ftrl_tables.report),
    "delays": Section("Delayed preconditioners on words", delays_tables.report),
    "speed": Section(
        "Speed",
        speed_tables.report,
        (("speed", "Ratios of medians; bars are quartiles. Left of 1 ours is faster."),),
        also=("privgene_speed",),
    ),
    "whitening": Section(
        "Whitening: ingredients and constants",
        whitening_tables.report,
        (
            ("whitening-ingredients", f"What is lost where an idea is taken away. {BARS}"),
            ("whitening-constants", f"Each cell against the number that the rule looks at. {BARS}"),
        ),
    ),
    "evaluation": Section("Private evaluation: errors and intervals", evaluation_tables.report),
    "ablation": Section(
        "Ablation of the rules behind the defaults",
        ablation_tables.report,
        (
            ("ablation", f"Differences to the default, which is shaded; each panel has its own scale. {BARS}"),
            ("ablation-line-search", f"The same for the line searches. {BARS}"),
        ),
    ),
}


def origins(documents: list[dict[str, Any]]) -> str:
    """Return where all figures come from: one line a result file, and each machine with its versions once."""
    runs = [document["run"] for document in documents]
    settings = in_order(map(_setting, runs))
    rows = [
        [
            f"`{run['command'].removeprefix('python benchmarks/')}`",
            run["date"][:16].replace("T", " "),
            run["git_revision"][:7] + (" and changes" if run["git_changed_files"] else ""),
            _load(run["machine"]),
            settings.index(_setting(run)) + 1,
            run.get("note", ""),
        ]
        for run in runs
    ]
    header = ["command", "date, UTC", "revision", "load", "setting", "note"]
    described = "\n".join(f"{number}. {setting}" for number, setting in enumerate(settings, 1))
    return (
        "## Where the figures come from\n\n"
        "Commands are run as `python benchmarks/...`; *load* is the load average when a run began and when it ended. "
        f"The settings are:\n\n{described}\n\n{markdown(header, rows)}"
    )


def _setting(run: dict[str, Any]) -> str:
    machine, versions = run["machine"], run["versions"]
    blas = sorted({f"{pool['prefix']} {pool['version']} ({pool['architecture']})" for pool in run["blas"]})
    threads = sorted({pool["num_threads"] for pool in run["blas"]})
    return (
        f"{machine['cpu']}, {machine['cores']} cores, {machine['system']}; "
        f"{', '.join(f'{name} {version}' for name, version in versions.items())}; "
        f"{', '.join(blas)}; BLAS threads {', '.join(map(str, threads))}"
    )


def _load(machine: dict[str, Any]) -> str:
    known = [load[0] for load in (machine["load_average_at_start"], machine["load_average_at_end"]) if load]
    return " to ".join(f"{load:g}" for load in known) or "unknown"


def main() -> None:
    """Write the report."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="print the smoke runs instead")
    options = parser.parse_args()
    parts = [
        "# Results",
        "Written by `python benchmarks/report.py` from `benchmarks/results/`; do not edit. The JSON files there keep "
        "every fit of every cell.",
    ]
    seen = []
    for name, section in SECTIONS.items():
        documents = [document for read in (name, *section.also) for document in read_results(read, options.quick)]
        seen += documents
        parts.append(f"## {section.title}")
        if not options.quick:
            pictures = [entry for entry in section.pictures if (RESULTS / f"{entry[0]}.png").exists()]
            parts += [f"![{text}](results/{file}.png)\n*{text}*" for file, text in pictures]
        parts.append(section.report(*documents) if documents else f"Not measured yet: `python benchmarks/{name}.py`.")
    if seen:
        parts.append(origins(seen))
    text = "\n\n".join(parts) + "\n"
    if options.quick:
        print("These are smoke runs: the figures mean nothing.\n")
        print(text)
    else:
        TARGET.write_text(text)
        print(f"written: {TARGET.relative_to(ROOT)} ({text.count(chr(10))} lines)")


if __name__ == "__main__":
    main()
