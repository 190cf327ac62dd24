"""The quickstart: its features keep the public bounds, and a reduced run prints and draws what it should."""

import importlib.util
import sys
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("statsmodels", reason="the quickstart reads its data from statsmodels (extra 'examples')")


@pytest.fixture(scope="module")
def quickstart():
    path = Path(__file__).parent.parent / "examples" / "quickstart.py"
    spec = importlib.util.spec_from_file_location("quickstart", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("name", "n_records", "n_features", "squared_norm"), [("fair", 6366, 18, 8), ("randhie", 20190, 10, 7)]
)
def test_features_keep_bounds_and_norm(quickstart, name, n_records, n_features, squared_norm):
    X, norm, y = getattr(quickstart, f"load_{name}")()
    assert X.shape == (n_records, n_features)
    assert norm**2 == pytest.approx(squared_norm)
    assert np.abs(X).max() <= 1
    assert np.linalg.norm(X, axis=1).max() <= norm * (1 + 1e-12)
    assert set(y) == {0, 1}


@pytest.mark.parametrize("value", [-1e9, 0.0, 0.5, 1e9, np.inf])
def test_any_record_keeps_the_norm(quickstart, value):
    for bounds, categories in (
        (quickstart.FAIR_BOUNDS, quickstart.FAIR_CATEGORIES),
        (quickstart.RANDHIE_BOUNDS, quickstart.RANDHIE_CATEGORIES),
    ):
        frame = {name: np.array([value, -value]) for name in (*bounds, *categories)}
        X, norm = quickstart.encode(frame, bounds, categories)
        assert np.linalg.norm(X, axis=1).max() <= norm * (1 + 1e-12)


def test_norm_is_reached(quickstart):
    # a bound that no record reaches would hide an error of the encoding
    frame = {name: np.array([high]) for name, (_, high) in quickstart.FAIR_BOUNDS.items()}
    frame |= {name: np.array([1]) for name in quickstart.FAIR_CATEGORIES}
    X, norm = quickstart.encode(frame, quickstart.FAIR_BOUNDS, quickstart.FAIR_CATEGORIES)
    assert np.linalg.norm(X) == pytest.approx(norm)


def test_reduced_run(quickstart, tmp_path, capsys):
    pyplot = pytest.importorskip("matplotlib.pyplot", reason="the figure needs matplotlib (extra 'examples')")
    pyplot.switch_backend("Agg")
    path = tmp_path / "quickstart.png"
    quickstart.main(repeats=2, epsilons=(0.3, 1.0), path=path)
    pyplot.close("all")
    printed = capsys.readouterr().out
    assert "(1, 1e-06)-differential privacy" in printed
    assert "exp(1) = 2.72" in printed
    assert "all 4 models" in printed
    assert printed.count("private, epsilon = 0.3") == 2
    assert printed.count("epsilon = 0.3\n") == 2  # progress: one plain line for each epsilon, no carriage returns
    assert "\r" not in printed
    assert path.read_bytes().startswith(b"\x89PNG")


def test_without_matplotlib_it_says_so(quickstart, tmp_path, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", None)
    path = tmp_path / "quickstart.png"
    quickstart.main(repeats=1, epsilons=(1.0,), path=path)
    assert "matplotlib is not installed" in capsys.readouterr().out
    assert not path.exists()


def test_progress_writes_over_its_line_on_a_terminal(quickstart, capsys, monkeypatch):
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    progress = quickstart.Progress(2)
    progress.step("one")
    progress.step("two")
    progress.clear()
    printed = capsys.readouterr().out
    assert "[2/2] two" in printed
    assert "\n" not in printed
    assert printed.endswith("\r")
