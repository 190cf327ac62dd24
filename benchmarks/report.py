"""Render the result files into ``benchmarks/RESULTS.md``.

python benchmarks/report.py            # benchmarks/results/*.json -> benchmarks/RESULTS.md
python benchmarks/report.py --quick    # print what smoke runs left behind, and write nothing
"""

from __future__ import annotations

import argparse
from typing import Any

import ablation_tables
import accuracy_tables
import other_tables
import speed
import whitening_tables
from common import ROOT, read_results

SECTIONS = {
    "accuracy": ("Accuracy", accuracy_tables.report),
    "speed": ("Speed", speed.report),
    "privgene_speed": ("Speed of PrivGene", speed.report),
    "other_sets": ("Other data sets", other_tables.report),
    "whitening": ("Whitening: ingredients and constants", whitening_tables.report),
    "ablation": ("Ablation of the rules behind the defaults", ablation_tables.report),
}
TARGET = ROOT / "benchmarks" / "RESULTS.md"


def origin(run: dict[str, Any]) -> str:
    """Return where figures come from: command, code, machine and versions."""
    machine, versions = run["machine"], run["versions"]
    changed = ", with uncommitted changes" if run["git_changed_files"] else ""
    load = machine["load_average_at_start"], machine["load_average_at_end"]
    busy = " to ".join(f"{value[0]:g}" for value in load if value)
    blas = {f"{pool['prefix']} {pool['version']} ({pool['architecture']})" for pool in run["blas"]}
    lines = [
        f"`{run['command']}`",
        f"Date: {run['date']}; revision {run['git_revision'][:12]}{changed}.",
        f"Machine: {machine['cpu']}, {machine['cores']} cores, {machine['system']}; load average {busy or 'unknown'}.",
        f"Versions: {', '.join(f'{name} {version}' for name, version in versions.items())}.",
        f"BLAS: {', '.join(sorted(blas))}; threads {sorted({pool['num_threads'] for pool in run['blas']})}.",
    ]
    if "note" in run:
        lines.append(f"Note: {run['note']}.")
    return "\n".join(f"* {line}" for line in lines)


def main() -> None:
    """Write the report."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="print the smoke runs instead")
    options = parser.parse_args()
    parts = ["# Results", "Written by `python benchmarks/report.py` from `benchmarks/results/`; do not edit."]
    for name, (title, report) in SECTIONS.items():
        documents = read_results(name, options.quick)
        if documents:
            origins = "\n\n".join(origin(document["run"]) for document in documents)
            parts.append(f"## {title}\n\n{origins}\n\n{report(*documents)}")
        else:
            parts.append(f"## {title}\n\nNot measured yet: `python benchmarks/{name}.py`.")
    text = "\n\n".join(parts) + "\n"
    if options.quick:
        print("These are smoke runs: the figures mean nothing.\n")
        print(text)
    else:
        TARGET.write_text(text)
        print(f"written: {TARGET.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
