"""Imports point one way, so that who wants to check a claim can read the two rooms that it rests on."""

import ast
from pathlib import Path

import pytest

import dpskl

PACKAGE = Path(dpskl.__file__).parent

# What a room may import from, besides itself. A name with a dot is that module only.
LEAVES = {"exceptions", "_version"}
ALLOWED = {
    "exceptions": set(),
    "_version": set(),
    "accounting": set(),
    "records": set(),
    "budget": {"accounting"},
    "mechanisms": {"accounting", "records"},
    "curator": {"mechanisms", "records", "accounting", "budget"},
    # a solver is post-processing: of the records it knows which losses and row maps there are
    "solvers": {"curator", "mechanisms", "accounting", "budget", "records.losses", "records.row_maps"},
    "guarantee": {"mechanisms.base", "accounting"},
    "validation": {"mechanisms.sensitivity", "records", "accounting", "budget"},
    "exchange": {"guarantee", "solvers", "records.row_maps"},
    "progress": set(),
    # beside the private records: they get the same map, and a solver sees them as a public fact
    "public_data": {"solvers", "records", "validation"},
    "prediction": {"records", "validation"},
    "classifier": {"exchange", "guarantee", "mechanisms.base", "progress", "solvers", "accounting"},
    "base": {
        "classifier",
        "guarantee",
        "exchange",
        "prediction",
        "progress",
        "public_data",
        "solvers",
        "curator",
        "mechanisms",
        "records",
        "accounting",
        "validation",
    },
    "linear_model": {"base", "records.losses", "records.clipped_link"},
    "dummy": {"classifier", "exchange", "mechanisms", "progress", "validation"},
    "metrics": {"classifier", "exchange", "guarantee", "mechanisms", "accounting", "validation"},
    # how many knots pay follows from mu, n and the neighbour relation: numbers, and no records
    "preprocessing": {"progress", "records", "validation", "accounting", "mechanisms.sensitivity"},
    "model_selection": {
        "base",
        "classifier",
        "dummy",
        "mechanisms",
        "accounting",
        "budget",
        "guarantee",
        "validation",
        "preprocessing",
        "exchange",
        "progress",
    },
}
# Costs knew the accountant before it moved, and users import it from there: one name is looked up on demand.
ON_DEMAND = {("accounting/__init__.py", "budget")}


def imports(source):
    """Yield the modules of the package that a file imports, wherever in it, or names to import_module."""
    for node in ast.walk(ast.parse(source)):
        names = []
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, "absolute imports only"
            names = [f"{node.module}.{alias.name}" if node.module == "dpskl" else node.module for alias in node.names]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.Call) and getattr(node.func, "id", getattr(node.func, "attr", "")) == "import_module":
            names = [argument.value for argument in node.args if isinstance(argument, ast.Constant)]
        yield from (name.removeprefix("dpskl.") for name in names if name.split(".")[0] == "dpskl")


def run_back(room, name, place=""):
    """Whether an import of ``name`` (within the package) by a file of ``room`` goes against the arrows."""
    target = name.split(".")[0]
    if target in {room} | LEAVES or (place, target) in ON_DEMAND:
        return False
    return not any(name == allowed or name.startswith(allowed + ".") for allowed in ALLOWED[room])


@pytest.mark.parametrize("path", sorted(PACKAGE.rglob("*.py")), ids=lambda path: str(path.relative_to(PACKAGE)))
def test_imports_point_one_way(path):
    place = path.relative_to(PACKAGE)
    room = place.parts[0].removesuffix(".py")
    if room == "__init__":
        return
    assert room in ALLOWED, f"{place}: say here what the room {room!r} may import"
    wrong = [name for name in imports(path.read_text(encoding="utf-8")) if run_back(room, name, place.as_posix())]
    assert not wrong, f"{place} imports {wrong}"


def test_an_arrow_that_runs_back_is_seen():
    source = (
        "def late():\n    import dpskl.budget.ledger\nfrom dpskl.records.problem import Problem\nfrom dpskl import base"
    )
    assert set(imports(source)) == {"budget.ledger", "records.problem", "base"}
    assert run_back("accounting", "budget.ledger")
    assert run_back("solvers", "records.problem")
    assert run_back("budget", "curator")
    assert not run_back("solvers", "records.losses")
    assert list(imports("importlib.import_module('dpskl.budget')")) == ["budget"]
    assert not run_back("accounting", "budget", "accounting/__init__.py")
    assert run_back("accounting", "budget", "accounting/costs/base.py")


def test_arrows_of_the_table_make_no_circle():
    def below(room, seen=()):
        assert room not in seen, f"circle: {(*seen, room)}"
        for target in {name.split(".")[0] for name in ALLOWED[room]}:
            below(target, (*seen, room))

    for room in ALLOWED:
        below(room)


def test_public_names_are_where_users_have_them():
    from dpskl import accounting, dummy, metrics, model_selection, preprocessing, solvers

    for module in (accounting, dummy, metrics, model_selection, preprocessing, solvers):
        for name in module.__all__:
            assert getattr(module, name) is not None
    assert accounting.PrivacyAccountant is dpskl.PrivacyAccountant
    assert "PrivacyAccountant" in dir(accounting)
    with pytest.raises(AttributeError, match="no attribute 'Ledger'"):
        _ = accounting.Ledger


def test_files_are_short():
    root = Path(__file__).parents[1]
    long = {
        str(path.relative_to(root)): count
        for folder in ("dpskl", "tests", "benchmarks")
        for path in (root / folder).rglob("*.py")
        if (count := len(path.read_text(encoding="utf-8").splitlines())) > 450
    }
    assert not long, f"one idea a file, about 400 lines at most: {long}"
