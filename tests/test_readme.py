"""What the README says is true: its code runs, its commands are there, and what it names exists."""

import contextlib
import doctest
import io
import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
import sklearn.model_selection
import sklearn.preprocessing

import dpskl
import dpskl.model_selection
import dpskl.preprocessing
import dpskl.solvers
from dpskl.solvers import make_solver, solver_names

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)
ROWS = [
    [cell.strip() for cell in line.strip("|").split("|")] for line in README.splitlines() if line.startswith('| `"')
]
ESTIMATORS = ("DPLogisticRegression", "DPHuberSVC", "DPLinearSVC")


def test_python_block_prints_what_the_readme_shows():
    (code,) = [text for language, text in BLOCKS if language == "python"]
    (shown,) = [text for language, text in BLOCKS if language == "text"]
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(code, "README.md", "exec"), {"__name__": "readme"})
    flags = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
    assert doctest.OutputChecker().check_output(shown, printed.getvalue(), flags), printed.getvalue()


@pytest.mark.parametrize(("name", "ending"), [("quickstart", "examples/quickstart.py"), ("tests", "-m pytest")])
def test_marked_command_is_single_and_is_what_the_gate_runs(name, ending):
    (command,) = re.findall(rf"<!-- command: {name} -->\n```bash\n(.*?)```", README, re.DOTALL)
    assert command.count("\n") == 1
    assert command.strip().endswith(ending)
    if shutil.which("bash") is None:
        pytest.skip("no bash here")
    shown = subprocess.run(
        ["bash", str(ROOT / ".ci" / "run"), "--show", name], capture_output=True, text=True, check=True
    )
    assert shown.stdout == command


def test_readme_has_exactly_two_commands():
    assert re.findall(r"<!-- command: (.*?) -->", README) == ["quickstart", "tests"]
    assert [language for language, _ in BLOCKS if language == "bash"] == ["bash", "bash"]


def test_names_in_the_readme_exist():
    homes = [
        dpskl,
        dpskl.model_selection,
        dpskl.preprocessing,
        dpskl.solvers,
        sklearn.preprocessing,
        sklearn.model_selection,
    ]
    prose = re.sub(r"^```.*?^```$", "", README, flags=re.MULTILINE | re.DOTALL)
    names = set(re.findall(r"`([A-Z][a-z]*[A-Z]\w+)", prose))  # CamelCase in code quotes
    assert set(ESTIMATORS) < names
    assert [name for name in sorted(names) if not any(hasattr(home, name) for home in homes)] == []


def test_linked_files_exist():
    links = re.findall(r"\]\((?!https?:)([^)#]+)\)", README)
    assert links
    assert [link for link in links if not (ROOT / link).exists()] == []


def test_table_lists_every_solver():
    assert sorted(row[0] for row in ROWS) == [f'`"{name}"`' for name in solver_names()]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0])
def test_table_of_solvers_tells_the_truth(row):
    solver = row[0].strip('`"')
    y = np.tile([0, 1], 50)
    X = np.column_stack([y, 1 - y]).astype(float)

    def is_possible(estimator, **parameters):
        accountant = dpskl.PrivacyAccountant()
        model = getattr(dpskl, estimator)(classes=[0, 1], accountant=accountant, **parameters)
        try:
            model.fit(X, y)
        except ValueError:
            assert len(accountant) == 0
            return False
        return True

    for estimator, cell in zip(ESTIMATORS, row[1:4], strict=True):
        assert is_possible(estimator, solver=solver) == cell.startswith("yes"), estimator
        chosen = make_solver("auto", getattr(dpskl, estimator)()._loss()).name
        assert (chosen == solver) == ("(auto)" in cell), estimator
        if cell.startswith("yes"):
            assert is_possible(estimator, solver=solver, delta=0) == (row[4] == "yes"), estimator
