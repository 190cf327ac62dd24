"""The ledger through scikit-learn's copies, workers, races, crashes and bad files."""

import json
import multiprocessing
import os
import pickle
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
import warnings
from pathlib import Path

import joblib
import numpy as np
import pytest
from joblib import Parallel, delayed
from sklearn.calibration import CalibratedClassifierCV
from sklearn.ensemble import BaggingClassifier, StackingClassifier
from sklearn.model_selection import GridSearchCV, cross_val_predict, cross_val_score
from sklearn.multiclass import OneVsRestClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MaxAbsScaler

from dpskl import (
    BudgetExceededError,
    DPLogisticRegression,
    LedgerFormatError,
    LedgerNotFoundError,
    PrivacyAccountant,
)
from dpskl.accounting import GaussianCost, PureCost
from dpskl.solvers import GradientDescent

pytestmark = pytest.mark.filterwarnings("ignore::dpskl.SeededNoiseWarning")


def data(n=120, n_classes=2):
    rng = np.random.default_rng(0)
    y = np.arange(n) % n_classes
    return rng.normal(size=(n, 3)) + 2 * np.eye(3)[y], y


def model(accountant, n_classes=2, **changes):
    settings = {"solver": GradientDescent(max_iter=3), "classes": range(n_classes), "accountant": accountant, **changes}
    return DPLogisticRegression(**settings)


# -- one total through scikit-learn -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("n_jobs", "backend"), [(1, "loky"), (2, "loky"), (2, "threading"), (2, "multiprocessing")], ids=str
)
def test_every_fit_of_a_search_in_a_pipeline_is_counted(n_jobs, backend):
    accountant = PrivacyAccountant(epsilon=100.0)
    accountant.spend(PureCost(0.1), label="before")
    search = GridSearchCV(
        make_pipeline(MaxAbsScaler(), model(accountant)),
        {"dplogisticregression__epsilon": [0.5, 1.0, 2.0]},
        cv=3,
        n_jobs=n_jobs,
        error_score="raise",
    )
    with joblib.parallel_backend(backend):
        search.fit(*data())
    assert len(accountant) == 1 + 10
    assert search.best_estimator_[-1].accountant is accountant
    assert accountant.verify()
    processes = {entry.process for entry in accountant.entries()}
    assert (len(processes) > 1) == (n_jobs > 1 and backend != "threading")


META = {
    "calibrated": (lambda m: CalibratedClassifierCV(m, cv=3, n_jobs=2), 3),
    "bagging": (lambda m: BaggingClassifier(m, n_estimators=5, n_jobs=2, random_state=0), 5),
    "one against the rest": (lambda m: OneVsRestClassifier(m, n_jobs=2), 3),
    "stacking": (lambda m: StackingClassifier([("a", m)], final_estimator=m, cv=2, n_jobs=2), 1 + 2 + 1),
    "nested search": (
        lambda m: GridSearchCV(GridSearchCV(m, {"C": [1.0, 2.0]}, cv=2), {"cv": [2]}, cv=2, n_jobs=2),
        15,
    ),
}


@pytest.mark.parametrize("name", META)
def test_meta_estimators_are_counted(name):
    build, fits = META[name]
    accountant = PrivacyAccountant()
    n_classes = 3 if name in ("one against the rest", "stacking") else 2
    inner = model(accountant, n_classes)
    if name == "one against the rest":
        inner.set_params(classes=[0, 1])
    if name == "stacking":
        inner.set_params(classes=[0, 1, 2])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        build(inner).fit(*data(n_classes=n_classes))
    assert len(accountant) == fits


def test_cross_validation_is_counted():
    accountant = PrivacyAccountant()
    X, y = data()
    cross_val_predict(model(accountant), X, y, cv=4, n_jobs=2)
    assert len(accountant) == 4
    cross_val_score(model(accountant), X, y, cv=4, n_jobs=2)
    assert len(accountant) == 8


# -- races and crashes ----------------------------------------------------------------------------------


def _try(accountant, times):
    granted = 0
    for _ in range(times):
        try:
            accountant.spend(PureCost(0.1))
        except BudgetExceededError:
            continue
        granted += 1
    return granted


def test_racing_workers_are_granted_exactly_the_ceiling():
    accountant = PrivacyAccountant(epsilon=5.0, delta=0)
    granted = Parallel(n_jobs=4)(delayed(_try)(accountant, 10) for _ in range(40))
    assert sum(granted) == len(accountant) == 50
    assert accountant.remaining().epsilon == 0
    assert accountant.verify()


def _fit_forever(path, pipe):
    accountant = PrivacyAccountant.open(path)
    X, y = data(20)
    estimator = model(accountant)
    while True:
        estimator.fit(X, y)
        os.write(pipe, b".")  # the coefficients exist


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_kills_at_random_moments_lose_nothing(tmp_path):
    """200 rounds of SIGKILL: every fit that finished is in the ledger, the ledger is whole and takes the next spend."""
    if not hasattr(os, "fork"):
        pytest.skip("this platform does not fork")
    path = tmp_path / "ledger"
    accountant = PrivacyAccountant.create(path)
    rng = np.random.default_rng(0)
    finished = 0
    for _ in range(200):
        before = len(accountant)
        reader, writer = os.pipe()
        child = multiprocessing.get_context("fork").Process(target=_fit_forever, args=(path, writer))
        child.start()
        os.close(writer)
        done = len(os.read(reader, 1))  # how long the first fit takes depends on the load
        time.sleep(rng.uniform(0.0, 0.08))
        os.kill(child.pid, signal.SIGKILL)
        child.join()
        while chunk := os.read(reader, 4096):
            done += len(chunk)
        os.close(reader)
        assert done <= len(accountant) - before <= done + 1  # at most one was charged and not finished
        finished += done
    assert finished > 250
    assert accountant.verify()
    assert len(PrivacyAccountant.open(shutil.copy(path, tmp_path / "copy"))) == len(accountant)


# -- files ------------------------------------------------------------------------------------------------


def test_a_ledger_lasts_and_its_ceiling_is_fixed(tmp_path):
    path = tmp_path / "ledger"
    accountant = PrivacyAccountant(2.0, 1e-6, path)
    accountant.spend(GaussianCost(0.1), label="first run")
    for again in (PrivacyAccountant(2.0, 1e-6, path), PrivacyAccountant.open(path)):
        assert [entry.label for entry in again.entries()] == ["first run"]
        assert again.spent() == accountant.spent()
    for changes in ({"epsilon": 1.0}, {"delta": 1e-5}, {"composition": "gdp"}):
        (name,) = changes
        with pytest.raises(ValueError, match=f"{name}=.*fixed for good"):
            PrivacyAccountant(**{"epsilon": 2.0, "delta": 1e-6, "path": path, **changes})
    with pytest.raises(FileExistsError, match="exists; open it"):
        PrivacyAccountant.create(path)
    assert len(PrivacyAccountant.open(path)) == 1


def test_a_temporary_ledger_is_private_and_removed(tmp_path):
    code = (
        "import os, stat; from dpskl import PrivacyAccountant; a = PrivacyAccountant();"
        "print(a.path, oct(stat.S_IMODE(os.stat(os.path.dirname(a.path)).st_mode)))"
    )
    printed = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, text=True).stdout.split()
    assert printed[1] == "0o700"
    assert not Path(printed[0]).parent.exists()


def test_open_never_makes_and_create_needs_a_folder(tmp_path):
    with pytest.raises(LedgerNotFoundError):
        PrivacyAccountant.open(tmp_path / "none")
    for make in (PrivacyAccountant.create, lambda path: PrivacyAccountant(path=path)):
        with pytest.raises(FileNotFoundError, match="does not exist"):
            make(tmp_path / "no folder" / "ledger")
    assert list(tmp_path.iterdir()) == []


def test_what_is_not_a_ledger_is_left_alone(tmp_path):
    text, other, empty = tmp_path / "text", tmp_path / "other", tmp_path / "empty"
    text.write_text("not a database, but long enough to have a header" * 10)
    with sqlite3.connect(other) as connection:
        connection.execute("CREATE TABLE t (x)")
    connection.close()
    empty.touch()
    for path in (text, other, empty):
        before = path.read_bytes()
        for use in (PrivacyAccountant.open, lambda path: PrivacyAccountant(path=path)):
            with pytest.raises(LedgerFormatError, match="is not a ledger"):
                use(path)
        assert path.read_bytes() == before


def test_a_newer_format_is_refused(tmp_path):
    path = tmp_path / "ledger"
    PrivacyAccountant.create(path)
    path.write_bytes(path.read_bytes().replace(b"           2,", b"          99,", 1))
    with pytest.raises(LedgerFormatError, match="format 99"):
        PrivacyAccountant.open(path)


def test_a_model_predicts_where_its_ledger_is_gone(tmp_path):
    accountant = PrivacyAccountant.create(tmp_path / "ledger")
    X, y = data()
    fitted = model(accountant).fit(X, y)
    for file in tmp_path.iterdir():
        file.unlink()
    again = joblib.hash(fitted), pickle.loads(pickle.dumps(fitted))
    np.testing.assert_array_equal(again[1].predict(X), fitted.predict(X))
    assert "PrivacyAccountant" in repr(again[1].accountant)
    with pytest.raises(LedgerNotFoundError):
        again[1].fit(X, y)


def test_a_ledger_that_was_exchanged_is_not_charged(tmp_path):
    path = tmp_path / "ledger"
    accountant = PrivacyAccountant.create(path)
    pickled = accountant.__reduce__()
    del accountant
    for file in tmp_path.iterdir():
        file.unlink()
    fresh = PrivacyAccountant.create(path)
    function, arguments = pickled
    stale = function(*arguments)
    with pytest.raises(LedgerNotFoundError, match="another one"):
        stale.spend(PureCost(0.1))
    assert len(fresh) == 0


def test_a_replaced_file_is_not_charged_behind_its_back(tmp_path):
    """A copy that takes the place of a ledger is used from then on, and one that lacks entries is refused."""
    path, copied = tmp_path / "ledger", tmp_path / "copy"
    accountant = PrivacyAccountant.create(path, epsilon=1.0, delta=0)
    accountant.spend(PureCost(0.25))
    shutil.copy(path, copied)
    os.replace(copied, path)
    accountant.spend(PureCost(0.25))  # the copy holds all that was read: it goes on
    assert len(PrivacyAccountant.open(path)) == 2
    shutil.copy(path, copied)
    accountant.spend(PureCost(0.25))
    os.replace(copied, path)
    for use in (lambda: accountant.spend(PureCost(0.25)), accountant.entries):
        with pytest.raises(LedgerFormatError, match="no longer holds"):
            use()


def test_a_copy_is_a_ledger_of_its_own(tmp_path):
    accountant = PrivacyAccountant.create(tmp_path / "a")
    accountant.spend(PureCost(0.5))
    other = PrivacyAccountant.open(shutil.copy(tmp_path / "a", tmp_path / "b"))
    other.spend(PureCost(0.5))
    assert (len(accountant), len(other)) == (1, 2)


@pytest.mark.parametrize("damage", ["change", "change the ceiling", "remove the last", "remove one"])
def test_tampering_is_noticed(tmp_path, damage):
    path = tmp_path / "ledger"
    accountant = PrivacyAccountant.create(path, epsilon=20.0)
    for _ in range(3):
        accountant.spend(PureCost(0.5))
    assert accountant.verify()
    header, *lines = path.read_bytes().rstrip(b" ").splitlines(keepends=True)
    if damage == "change":
        lines[1] = lines[1].replace(b"0.5", b"0.1")
    elif damage == "change the ceiling":
        header = header.replace(b"20.0", b"90.0")
    else:
        del lines[2 if damage == "remove the last" else 1]
    path.write_bytes(header + b"".join(lines))
    assert not accountant.verify()
    again = accountant
    if damage != "remove the last":  # with as many lines as the header says it opens, but takes nothing more
        path.write_bytes(path.read_bytes() + (b"" if damage.startswith("change") else lines[-1]))
        again = PrivacyAccountant.open(shutil.copy(path, tmp_path / "copy"))
        assert not again.report().holds
        assert "changed or removed" in str(again.report())
    before = path.read_bytes()
    with pytest.raises(LedgerFormatError):
        again.spend(PureCost(0.5))
    assert path.read_bytes() == before
    with pytest.raises(LedgerFormatError, match=r"does not verify|no longer holds|of the 3 entries"):
        again.backup(tmp_path / "backup")
    assert not (tmp_path / "backup").exists()


def test_entries_hold_what_was_said_and_nothing_of_the_data(tmp_path):
    path = tmp_path / "ledger"
    accountant = PrivacyAccountant.create(path, epsilon=5.0)
    X, y = data()
    model(accountant).fit(X, y)
    header, line = map(json.loads, path.read_text().rstrip().splitlines())
    assert set(header) == {"dpskl ledger", "entries", "backup_of", "facts"}
    assert set(line) == {"hash", "entry"}
    record = line["entry"]
    spend = {"cost", "neighbours", "solver", "estimator", "label", "partition", "n_samples", "is_seeded", "delta"}
    assert set(record) == spend | {"time", "process", "version"}
    assert (record["solver"], record["estimator"], record["n_samples"]) == ("gd", "DPLogisticRegression", 120)
    assert len(line["hash"]) == 64


# -- partitions ---------------------------------------------------------------------------------------------


def test_disjoint_cells_cost_their_largest():
    accountant = PrivacyAccountant(epsilon=1.0, delta=1e-6)
    one = GaussianCost(0.2)
    with accountant.partition("site") as site:
        for name in ("a", "b", "c"):
            site[name].spend(one)
        assert site["a"] is site["a"]
        assert accountant.spent().epsilon == pytest.approx(one.epsilon(1e-6))
        site["a"].spend(GaussianCost(0.05))
        assert accountant.spent().epsilon == pytest.approx(GaussianCost(np.hypot(0.2, 0.05)).epsilon(1e-6))
    accountant.spend(GaussianCost(0.05))  # on all records
    expected = GaussianCost(np.sqrt(0.04 + 2 * 0.0025)).epsilon(1e-6)
    assert accountant.spent().epsilon == pytest.approx(expected)
    with pytest.raises(BudgetExceededError):
        site["a"].spend(GaussianCost(0.1))
    site["b"].spend(GaussianCost(0.05))  # less was spent there
    assert len(accountant) == 6


def test_each_cell_may_take_the_whole_ceiling_and_two_partitions_add_up():
    accountant = PrivacyAccountant(epsilon=1.0, delta=0)
    site, year = accountant.partition("site"), accountant.partition("year")
    for name in ("a", "b"):
        site[name].spend(PureCost(0.6))
    year[2026].spend(PureCost(0.4))  # records of 2026 may lie in either site
    assert accountant.spent().epsilon == 1.0
    with pytest.raises(BudgetExceededError):
        year[2026].spend(PureCost(0.1))
    year[2027].spend(PureCost(0.4))
    assert accountant.remaining().epsilon == 0.0
    X, y = data()
    fitted = model(site["c"], solver="objective_perturbation", delta=0, epsilon=0.3).fit(X, y)
    assert accountant.entries()[-1].partition == ("site", "c")
    assert fitted.privacy_guarantee_.epsilon == 0.3


def test_partitions_are_for_add_remove_and_not_nested():
    accountant = PrivacyAccountant()
    cell = accountant.partition("site")["a"]
    with pytest.raises(ValueError, match="add_remove"):
        cell.spend(PureCost(0.1), neighbours="replace_one")
    with pytest.raises(ValueError, match="divided further"):
        cell.partition("year")
    with pytest.raises(ValueError, match="must be a Cost"):
        accountant.spend(0.1)
    assert len(accountant) == 0


def test_a_refusal_names_the_composition_that_would_have_admitted_it():
    accountant = PrivacyAccountant(epsilon=1.0, delta=1e-6, composition="rdp")
    accountant.spend(GaussianCost(0.2))
    with pytest.raises(BudgetExceededError, match="'gdp' composition, chosen from the start"):
        accountant.spend(GaussianCost(0.12))
