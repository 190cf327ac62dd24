"""What every benchmark shares: where the data are, what a result file records, and how a table is printed."""

from __future__ import annotations

import argparse
import hashlib
import importlib.util
import json
import os
import platform
import shlex
import subprocess
import sys
from collections.abc import Iterable, Sequence
from datetime import datetime, timezone
from functools import lru_cache
from pathlib import Path
from typing import Any

import joblib
import numpy as np
import scipy
import sklearn
import threadpoolctl
from blind_sets import BLIND_SETS, BLIND_TITLES, MULTICLASS
from made_sets import LENGTH_SETS, MADE_SETS, MADE_TITLES, SPARSE_SETS

import dpskl

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "benchmarks" / "results"
SETS = ("adult", "bank", "ipums_br", "acs_national")  # those of the accuracy tables
TITLES = {
    "adult": "Adult",
    "bank": "Bank",
    "ipums_br": "IPUMS-BR",
    "acs_national": "ACS",
    "bank_raw": "Bank, raw",
    "spambase": "Spambase",
    "w8a": "w8a",
    "kddcup99": "KDD Cup 99",
    "imdb_2000": "IMDB, 2,000 words",
    "imdb": "IMDB, 20,000 words",
    **MADE_TITLES,
    **{name: title for name, title in BLIND_TITLES.items() if name not in MULTICLASS},  # benchmarks fit two classes
}

# -- data ---------------------------------------------------------------------------------------------


def _data_folder() -> Path:
    return Path(os.environ.get("DPSKL_DATA", ROOT.parent / "shared" / "data"))


@lru_cache(maxsize=1)
def _loader() -> Any:
    path = _data_folder() / "load.py"
    if not path.exists():
        raise FileNotFoundError("no load.py in the data folder")
    spec = importlib.util.spec_from_file_location("benchmark_data", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@lru_cache(maxsize=8)
def load(name: str) -> tuple[Any, Any]:
    """Return ``(X, y)`` with features in [0, 1], one-hot, and labels -1 and +1; read once in each process.

    Sets of many columns are CSR; ``imdb_2000`` has the first 2,000 of the columns of ``imdb``, the commonest words.
    What ``made_sets.py`` makes needs no file, and what ``blind_sets.py`` declares lies in packages; those of
    ``MULTICLASS`` have labels 0, 1, ...
    """
    made = MADE_SETS | LENGTH_SETS | SPARSE_SETS | BLIND_SETS
    if name in made:
        return made[name]()
    if name == "imdb_2000":
        X, y = load("imdb")
        return X[:, :2000], y
    return _loader().load_paper(name)


def load_images(name: str) -> tuple[Any, Any, Any, Any]:
    """Return ``(X_train, y_train, X_test, y_test)`` of ``mnist`` or ``fashion``, images as bytes and labels 0 to 9."""
    loader = {"mnist": "load_mnist", "fashion": "load_fashion_mnist"}[name]
    images: tuple[Any, Any, Any, Any] = getattr(_loader(), loader)()
    return images


def available(names: Iterable[str]) -> list[str]:
    """Return the sets that can be read, and say of the others why they cannot."""
    found = []
    for name in names:
        try:
            load(name)
        except (ImportError, OSError) as error:
            if name in BLIND_SETS:
                print(f"{name}: skipped, {error}")
                continue
            file = getattr(error, "filename", None)
            reason = f"no {Path(file).name}" if file else error
            where = "$DPSKL_DATA" if "DPSKL_DATA" in os.environ else "../shared/data"
            print(f"{name}: skipped, not readable from {where} ({reason})")
        else:
            found.append(name)
    if not found:
        print("no data set could be read: set DPSKL_DATA to the folder that holds load.py, or see benchmarks/README.md")
    return found


# -- records ------------------------------------------------------------------------------------------


def _git(*arguments: str) -> str:
    command = ["git", "--no-optional-locks", "-C", str(ROOT), *arguments]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        return ""


def _cpu_model() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def load_average() -> list[float] | None:
    """Return how many processes wanted a core in the last 1, 5 and 15 minutes, where the system tells."""
    return [round(value, 2) for value in os.getloadavg()] if hasattr(os, "getloadavg") else None


def describe_run() -> dict[str, Any]:
    """Return what a reader needs to judge or repeat a run; call it where the thread limit is in force."""
    script = Path(sys.argv[0]).name
    revision = _git("rev-parse", "HEAD").strip() or "unknown"
    modules = {"numpy": np, "scipy": scipy, "scikit-learn": sklearn, "joblib": joblib, "dpskl": dpskl}
    blas = [
        {key: pool[key] for key in ("prefix", "version", "architecture", "num_threads") if key in pool}
        for pool in threadpoolctl.threadpool_info()
        if pool["user_api"] == "blas"
    ]
    return {
        "command": shlex.join(["python", f"benchmarks/{script}", *sys.argv[1:]]),
        "date": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "git_revision": revision,
        "git_changed_files": [
            line[3:] for line in _git("status", "--porcelain", "--", "dpskl", "benchmarks/*.py").splitlines()
        ],
        "machine": {
            "cpu": _cpu_model(),
            "cores": os.cpu_count(),
            "system": f"{platform.system()} {platform.machine()}",
            "load_average_at_start": load_average(),
        },
        "versions": {
            "python": platform.python_version(),
            **{name: module.__version__ for name, module in modules.items()},
        },
        "blas": blas,
    }


def add_common_options(parser: argparse.ArgumentParser, name: str) -> None:
    """Add ``--name``, ``--threads`` and ``--quick``."""
    parser.add_argument("--name", default=name, help=f"results go to benchmarks/results/NAME.json ({name})")
    parser.add_argument("--threads", type=int, default=1, help="BLAS threads of each process (default 1)")
    parser.add_argument("--quick", action="store_true", help="a smoke run whose figures mean nothing")


def result_path(name: str, quick: bool) -> Path:
    """Return where ``name`` is kept; a smoke run never replaces a result."""
    return RESULTS / (f"{name}.quick.json.tmp" if quick else f"{name}.json")


def write_result(name: str, quick: bool, document: dict[str, Any]) -> Path:
    """Write the result file ``name`` and return its path."""
    document["run"]["machine"]["load_average_at_end"] = load_average()
    path = result_path(name, quick)
    path.parent.mkdir(exist_ok=True)
    draft = path.with_suffix(".draft.tmp")
    draft.write_text(_dump(document))
    draft.replace(path)
    print(f"\nwritten: {path.relative_to(ROOT)}", file=sys.stderr)
    return path


class KeptCells:
    """What a long run has found so far, in a file that is named by its command and revision.

    Parameters
    ----------
    run : dict
        As :func:`describe_run` returns it. Work on changed files is never taken up again.

    Attributes
    ----------
    done : dict of str to dict
        The results by their keys.
    """

    def __init__(self, run: dict[str, Any]) -> None:
        same = json.dumps([run["command"], run["git_revision"], run["git_changed_files"], run["versions"]])
        self._path = RESULTS / f"part-{hashlib.sha256(same.encode()).hexdigest()[:16]}.tmp"
        self.done: dict[str, Any] = {}
        if self._path.exists() and not run["git_changed_files"]:
            self.done = dict(json.loads(line) for line in self._path.read_text().splitlines() if line.endswith("]"))
        else:
            self._path.unlink(missing_ok=True)

    def keep(self, key: str, result: dict[str, Any]) -> None:
        """Keep one result, on a line of its own."""
        self.done[key] = result
        with self._path.open("a") as file:
            file.write(json.dumps([key, result]) + "\n")


def _dump(document: dict[str, Any]) -> str:
    """Return JSON with one line for each item of a list of records, so that files stay short and diff well."""
    parts = []
    for key, value in document.items():
        if isinstance(value, list):
            text = "[\n  " + ",\n  ".join(json.dumps(item) for item in value) + "\n ]"
        else:
            text = json.dumps(value, indent=1).replace("\n", "\n ")
        parts.append(f" {json.dumps(key)}: {text}")
    return "{\n" + ",\n".join(parts) + "\n}\n"


def read_results(name: str, quick: bool = False) -> list[dict[str, Any]]:
    """Return the results whose name is ``name`` or begins with ``name-``, the oldest first."""
    paths = [result_path(name, quick), *sorted(RESULTS.glob(result_path(f"{name}-*", quick).name))]
    documents = [json.loads(path.read_text()) for path in paths if path.exists()]
    return sorted(documents, key=lambda document: str(document["run"]["date"]))


# -- tables -------------------------------------------------------------------------------------------


def markdown(header: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """Return a Markdown table; the first column is text, the others are aligned right."""
    rule = ["---", *["---:"] * (len(header) - 1)]
    lines = [list(header), rule, *([str(entry) for entry in row] for row in rows)]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def in_order(items: Iterable[Any]) -> list[Any]:
    """Return each item once, the first seen first."""
    return list(dict.fromkeys(items))


def mean_and_error(values: Sequence[float]) -> tuple[float, float]:
    """Return the mean and its standard error, values taken as independent."""
    error = float(np.std(values, ddof=1) / np.sqrt(len(values))) if len(values) > 1 else float("nan")
    return float(np.mean(values)), error
