"""Copies, cuts, backups, links, read-only places and the earlier format: no copy forgets a spend that was granted."""

import contextlib
import errno
import multiprocessing
import os
import pickle
import shutil
import subprocess
import sys
import threading
import time
import warnings

import pytest
from ledger_cases import ONE, ledger

from dpskl import BudgetExceededError, DPLogisticRegression, LedgerFormatError, LedgerNotFoundError, PrivacyAccountant
from dpskl.accounting import PureCost
from dpskl.budget import ledger as store

# -- copies of the one file -----------------------------------------------------------------------------------


def test_a_copy_of_the_file_holds_every_spend_while_another_process_has_it_open(tmp_path):
    path = tmp_path / "ledger"
    code = (
        "import sys, time; from dpskl import PrivacyAccountant; from dpskl.accounting import PureCost\n"
        "accountant = PrivacyAccountant(path=sys.argv[1])\n"
        "for _ in range(3): accountant.spend(PureCost(0.1))\n"
        "print('spent', flush=True); time.sleep(60)"
    )
    with subprocess.Popen([sys.executable, "-c", code, path], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "spent\n"
        alive = PrivacyAccountant.open(shutil.copy(path, tmp_path / "alive"))
        process.kill()
    dead = PrivacyAccountant.open(shutil.copy(path, tmp_path / "dead"))
    for copied in (alive, dead):
        assert len(copied) == 3
        assert copied.verify()
    assert {file.name for file in tmp_path.iterdir()} == {"ledger", "alive", "dead"}  # nothing lies beside it


def test_every_cut_of_a_file_is_refused_or_whole(tmp_path):
    path, cut = tmp_path / "ledger", tmp_path / "cut"
    ledger(path)
    content = path.read_bytes()
    end = len(content.rstrip(b" "))
    for length in [*range(0, end, 37), end - 1]:
        cut.write_bytes(content[:length])
        with pytest.raises(LedgerFormatError, match=r"is not a ledger|of the 3 entries"):
            PrivacyAccountant.open(cut)
    cut.write_bytes(content[:end])
    assert len(PrivacyAccountant.open(cut)) == 3


@pytest.mark.parametrize("spends", [0, 3], ids=["the file grows", "spaces are written over"])
def test_a_copy_made_while_a_spend_is_written_holds_what_was_granted_before(tmp_path, spends):
    """Every state of the file between two spends: the line from its beginning, and from its end, byte by byte."""
    path = tmp_path / "ledger"
    accountant = ledger(path, spends)
    before = path.read_bytes()
    accountant.spend(ONE)
    after = path.read_bytes()
    start, end = len(before.rstrip(b" ")), len(after.rstrip(b" "))
    uncounted = before[:1024] + after[1024:]
    states = [uncounted[:length] + before[length:] for length in range(start, end)]
    states += [(before[:length] + uncounted[length:]) for length in range(start + 1, end) if len(before) >= end]
    assert len(states) > 300
    whole = 0
    for state in [before, *states, uncounted, after]:
        path.write_bytes(state)
        again = store.Ledger(path)
        with again.reading() as file:
            found = len(file.after(file.header.line))
        assert found == spends + (uncounted[start:end] in state)
        whole += found == spends + 1
        assert again.verify()
    assert whole == 2


def test_the_next_spend_writes_over_what_a_crash_left(tmp_path):
    path = tmp_path / "ledger"
    ledger(path)
    whole = path.read_bytes().rstrip(b" ")
    for rest in (b'{"hash":"', b"x" * 5000, b"\0" * 50000, b"    half an entry}\n", b" " * 80, b"a\nb\n" + b"c" * 99):
        path.write_bytes(whole + rest)
        accountant = PrivacyAccountant.open(path)
        assert len(accountant) == 3
        for length in (4, 5):
            accountant.spend(ONE)
            assert len(accountant) == len(PrivacyAccountant.open(shutil.copy(path, tmp_path / "copy"))) == length
        assert accountant.verify()
        assert path.read_bytes().count(b"\n") == 6
        path.unlink()
        del accountant
    path.write_bytes(whole.replace(b'"cost"', b'"c', 1))  # of those that were granted none may be damaged
    with pytest.raises(LedgerFormatError, match=r"entry 1 .* is damaged"):
        PrivacyAccountant.open(path)


@pytest.mark.parametrize("failure", ["full", "cut short", "sync", "interrupt"])
def test_a_spend_that_cannot_be_written_leaves_nothing(tmp_path, monkeypatch, failure):
    path = tmp_path / "ledger"
    accountant = ledger(path, epsilon=1.0, delta=0)
    before = path.read_bytes().rstrip(b" ")
    error = KeyboardInterrupt() if failure == "interrupt" else OSError(errno.ENOSPC, "No space left on device")

    def fail(file, *arguments):
        if failure == "cut short":
            file._file.write(arguments[1][:20])
            raise OSError("the disk is full")
        raise error

    if failure in ("sync", "interrupt"):
        monkeypatch.setattr(store, "sync", fail)
    else:
        monkeypatch.setattr(store.OpenLedger, "_write", fail)
    with pytest.raises(type(error), match=None if failure == "interrupt" else "nothing can be spent"):
        accountant.spend(ONE)
    assert path.read_bytes().rstrip(b" ") == before
    monkeypatch.undo()
    assert accountant.remaining().epsilon == pytest.approx(0.7)
    accountant.spend(ONE)
    assert accountant.verify()


def test_a_spend_is_on_the_disk_before_its_number_and_before_it_is_granted(tmp_path, monkeypatch):
    path = tmp_path / "ledger"
    accountant = ledger(path)
    seen = []
    sync, write = store.sync, store.OpenLedger._write
    monkeypatch.setattr(store, "sync", lambda file: (seen.append("sync"), sync(file)))
    monkeypatch.setattr(
        store.OpenLedger, "_write", lambda self, place, content: (seen.append(place), write(self, place, content))
    )
    content = path.read_bytes()
    accountant.spend(ONE)
    assert seen == [len(content.rstrip(b" ")), "sync", store._COUNT_AT]
    assert path.stat().st_size == len(content)  # it was written over spaces


def _race(path, times, granted):
    accountant = PrivacyAccountant.open(path)
    for _ in range(times):
        with contextlib.suppress(BudgetExceededError):
            accountant.spend(ONE)
            os.write(granted, b".")


def _slow_copy(path, target):
    """Read in small pieces while the file changes, so that the copy is of no one moment."""
    with open(path, "rb", buffering=0) as source, open(target, "wb") as sink:
        while piece := source.read(2000):
            sink.write(piece)
            time.sleep(1e-4)
    return target


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_copies_made_during_racing_spends_never_lack_what_was_granted(tmp_path):
    """Four processes spend, this one reads the count of grants and then copies, by shutil and piece by piece."""
    if not hasattr(os, "fork"):
        pytest.skip("this platform does not fork")
    path, times = tmp_path / "ledger", 250
    PrivacyAccountant.create(path)
    reader, writer = os.pipe()
    os.set_blocking(reader, False)
    context = multiprocessing.get_context("fork")
    children = [context.Process(target=_race, args=(path, times, writer)) for _ in range(4)]
    for child in children:
        child.start()
    granted, copies = 0, []
    while any(child.is_alive() for child in children):
        with contextlib.suppress(BlockingIOError):
            granted += len(os.read(reader, 1 << 16))
        target = tmp_path / f"copy{len(copies)}"
        (shutil.copy if len(copies) % 2 else _slow_copy)(path, target)
        copies.append((granted, target))
    assert len(copies) >= 3
    for least, target in copies:
        try:
            copied = store.Ledger.open(target)
        except LedgerFormatError:
            continue  # it says so
        with copied.reading() as file:
            found = file.after(file.header.line)
        assert len(found) >= least
        assert copied.verify()
    assert len(PrivacyAccountant.open(path)) == 4 * times


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_racing_processes_are_granted_exactly_the_ceiling(tmp_path):
    if not hasattr(os, "fork"):
        pytest.skip("this platform does not fork")
    path = tmp_path / "ledger"
    PrivacyAccountant.create(path, epsilon=5.0, delta=0)
    reader, writer = os.pipe()
    context = multiprocessing.get_context("fork")
    children = [context.Process(target=_race, args=(path, 100, writer)) for _ in range(4)]
    for child in children:
        child.start()
    for child in children:
        child.join()
    assert len(os.read(reader, 1 << 16)) == len(PrivacyAccountant.open(path)) == 50
    assert PrivacyAccountant.open(path).verify()


# -- names ------------------------------------------------------------------------------------------------------


def test_links_are_the_same_ledger_and_a_moved_file_stays_one(tmp_path):
    path = tmp_path / "ledger"
    accountant = ledger(path, epsilon=1.0, delta=0)
    os.link(path, tmp_path / "hard")
    os.symlink(path, tmp_path / "soft")
    hard, soft = PrivacyAccountant.open(tmp_path / "hard"), PrivacyAccountant.open(tmp_path / "soft")
    assert soft is accountant
    for _ in range(3):
        hard.spend(ONE)
    assert len(accountant) == 6
    accountant.spend(PureCost(0.4))
    with pytest.raises(BudgetExceededError):
        hard.spend(ONE)
    os.rename(path, tmp_path / "moved")
    with pytest.raises(LedgerNotFoundError):
        accountant.spend(ONE)
    assert len(PrivacyAccountant.open(tmp_path / "moved")) == 7


def test_a_copy_made_by_this_process_keeps_the_lock_of_a_spend(tmp_path):
    """Closing another handle on a file gives up a lock of the POSIX kind; ours must stay."""
    path = tmp_path / "ledger"
    accountant = ledger(path)
    waited = []

    def spend():
        start = time.perf_counter()
        accountant_of_another_name.spend(ONE)
        waited.append(time.perf_counter() - start)

    os.link(path, tmp_path / "hard")
    accountant_of_another_name = PrivacyAccountant.open(tmp_path / "hard")
    thread = threading.Thread(target=spend)
    with store.Ledger(path).writing():
        shutil.copy(path, tmp_path / "copy")
        thread.start()
        time.sleep(0.2)
        assert not waited
    thread.join()
    assert waited[0] > 0.15
    assert len(accountant) == 4


def test_a_spend_that_waits_goes_to_the_file_that_is_at_the_path_then(tmp_path):
    """Another file is put in its place while a spend waits: nobody would find what is written to the old one."""
    accountant = ledger(tmp_path / "ledger", 1, epsilon=1.0, delta=0)
    shutil.copy(tmp_path / "ledger", tmp_path / "copy")
    waiting = threading.Thread(target=accountant.spend, args=(PureCost(0.8),))
    with store.Ledger(tmp_path / "ledger").writing():
        waiting.start()
        time.sleep(0.3)
        os.replace(tmp_path / "copy", tmp_path / "ledger")
    waiting.join()
    assert PrivacyAccountant.open(tmp_path / "ledger").spent().epsilon == pytest.approx(0.9)


def test_two_handles_on_one_path_both_survive_a_fork(tmp_path):
    if not hasattr(os, "fork"):
        pytest.skip("this platform does not fork")
    handles = [ledger(tmp_path / "ledger", 0), PrivacyAccountant(path=tmp_path / "ledger")]
    for handle in handles:
        handle.spend(ONE)
    with handles[0]._open_book().lock, warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
        if child == 0:  # no thread of the child holds the lock
            worker = threading.Thread(target=handles[0].spend, args=(ONE,), daemon=True)
            worker.start()
            worker.join(20)
            os._exit(worker.is_alive())
    assert os.waitpid(child, 0)[1] == 0
    assert len(handles[1]) == 3


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_child_that_is_forked_during_a_spend_keeps_nothing(tmp_path, monkeypatch):
    if not hasattr(os, "fork"):
        pytest.skip("this platform does not fork")
    monkeypatch.setattr(store, "_SECONDS", 5.0)
    accountant = ledger(tmp_path / "ledger")
    accountant.spend(ONE)
    reader, writer = os.pipe()
    with store.Ledger(tmp_path / "ledger").writing() as file:
        child = os.fork()
        if child == 0:
            try:
                accountant.spend(ONE)  # waits for the parent, with an opened file of its own
                os.write(writer, b"spent" if file._file.closed else b"kept")
            finally:
                os._exit(0)
    accountant.spend(ONE)
    os.waitpid(child, 0)
    assert os.read(reader, 10) == b"spent"
    assert len(accountant) == 6


def test_who_waits_too_long_is_told(tmp_path, monkeypatch):
    accountant = ledger(tmp_path / "ledger")
    monkeypatch.setattr(store, "_SECONDS", 0.05)
    with store.Ledger(tmp_path / "ledger").writing():
        with pytest.raises(OSError, match=r"nothing can be spent.*another process has held the lock"):
            accountant.spend(ONE)
        with pytest.raises(TimeoutError, match="another process has held the lock"):
            accountant.entries()
    accountant.spend(ONE)


# -- backups ----------------------------------------------------------------------------------------------------


def test_a_backup_is_whole_for_reading_and_goes_on_in_the_place_of_the_original(tmp_path):
    path, target = tmp_path / "ledger", tmp_path / "backup"
    accountant = ledger(path, epsilon=1.0, delta=0)
    accountant.backup(target)
    accountant.spend(ONE)
    backup = PrivacyAccountant.open(target)
    assert len(backup) == 3
    assert backup.verify()
    assert backup.report().id == accountant.report().id
    assert backup.spent().epsilon == pytest.approx(0.3)
    with pytest.raises(PermissionError, match=f"backup of {path}.*forget each other"):
        backup.spend(ONE)
    assert len(backup) == 3
    for taken in (target, path):
        before = taken.read_bytes()
        with pytest.raises(FileExistsError):
            accountant.backup(taken)
        assert taken.read_bytes() == before
    again = tmp_path / "again"
    backup.backup(again)  # a backup of a backup is one of the original
    with pytest.raises(PermissionError, match=f"backup of {path}"):
        PrivacyAccountant.open(again).spend(ONE)
    os.replace(again, path)
    with pytest.raises(LedgerFormatError, match="no longer holds"):
        accountant.spend(ONE)  # this process knows of a spend that the backup lacks
    code = (
        "import sys; from dpskl import PrivacyAccountant; from dpskl.accounting import PureCost\n"
        "restored = PrivacyAccountant.open(sys.argv[1])\n"
        "restored.spend(PureCost(0.1)); assert len(restored) == 4 and restored.verify()"
    )
    subprocess.run([sys.executable, "-c", code, path], check=True)
    os.rename(path, tmp_path / "moved")  # it is the original now
    PrivacyAccountant.open(tmp_path / "moved").spend(ONE)


def test_an_open_ledger_goes_on_from_a_restored_backup_that_lacks_nothing(tmp_path):
    path, target = tmp_path / "ledger", tmp_path / "backup"
    accountant = ledger(path)
    accountant.backup(target)
    os.replace(target, path)
    accountant.spend(ONE)
    assert len(accountant) == 4


# -- where nothing can be written -------------------------------------------------------------------------------


def test_a_file_that_cannot_be_written_is_read_and_refuses_to_spend(tmp_path, monkeypatch):
    accountant = ledger(tmp_path / "ledger")

    def open_for_reading(path, mode, **others):
        if mode != "rb":
            raise OSError(errno.EROFS, "Read-only file system", path)
        return open(path, mode, **others)

    monkeypatch.setattr(store, "open", open_for_reading, raising=False)
    again = pickle.loads(pickle.dumps(accountant))
    assert (len(again), again.verify(), again.spent().epsilon) == (3, True, accountant.spent().epsilon)
    with pytest.raises(OSError, match=r"nothing can be spent.*Read-only"):
        again.spend(ONE)
    estimator = DPLogisticRegression(classes=[0, 1], accountant=again)
    with pytest.raises(OSError, match="nothing can be spent"):
        estimator.fit([[0.0], [1.0]] * 500, [0, 1] * 500)
    assert not hasattr(estimator, "coef_")
    assert len(again) == 3


def test_a_read_only_file_system(tmp_path):
    """A mount of its own; skipped where this process may not make one."""
    place, target = tmp_path / "place", tmp_path / "mount"
    place.mkdir()
    target.mkdir()
    ledger(place / "ledger")
    code = (
        "import sys; from dpskl import PrivacyAccountant; from dpskl.accounting import PureCost\n"
        "accountant = PrivacyAccountant.open(sys.argv[1])\n"
        "print(len(accountant), accountant.verify(), '3 spends' in str(accountant.report()))\n"
        "try: accountant.spend(PureCost(0.1))\n"
        "except OSError as error: print('nothing can be spent' in str(error), 'Read-only' in str(error))"
    )
    mount = f"mount --bind {place} {target} && mount -o remount,bind,ro {target}"
    shell = f'{mount} || exit 77; exec {sys.executable} -c "$0" {target}/ledger'
    try:
        run = subprocess.run(["unshare", "-m", "sh", "-c", shell, code], capture_output=True, text=True, check=False)
    except FileNotFoundError:
        pytest.skip("there is no unshare")
    if run.returncode in (1, 77) and "Error" not in run.stderr:
        pytest.skip(f"no mount could be made: {run.stderr}")
    assert run.stdout.split() == ["3", "True", "True", "True", "True"], run.stderr
