"""Copies, cuts, backups, links, read-only places and the earlier format: no copy forgets a spend that was granted."""

import contextlib
import errno
import hashlib
import json
import multiprocessing
import os
import pickle
import shutil
import sqlite3
import stat
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from dpskl import BudgetExceededError, DPLogisticRegression, LedgerFormatError, LedgerNotFoundError, PrivacyAccountant
from dpskl.accounting import PureCost
from dpskl.budget import ledger as store

ONE = PureCost(0.1)


def ledger(path, spends=3, **ceiling):
    accountant = PrivacyAccountant.create(path, **ceiling)
    for _ in range(spends):
        accountant.spend(ONE)
    return accountant


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
        while piece := source.read(200):
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
    assert len(copies) > 5
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


# -- the earlier format -----------------------------------------------------------------------------------------


def make_format1(path, spends=3):
    """Return the connection, which keeps the log beside the file."""
    accountant = ledger(path.with_suffix(".new"), spends, epsilon=1.0, delta=0)
    facts, entries = accountant._facts, [entry.to_dict() for entry in accountant.entries()]
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute(f"PRAGMA application_id = {0x64706C67}")
    connection.execute("PRAGMA user_version = 1")
    connection.execute("PRAGMA journal_mode = WAL")
    connection.executescript(
        "CREATE TABLE facts (name TEXT PRIMARY KEY, value TEXT NOT NULL);"
        "CREATE TABLE entries (id INTEGER PRIMARY KEY AUTOINCREMENT, body TEXT NOT NULL, hash TEXT NOT NULL);"
    )
    rows = [(name, json.dumps(value)) for name, value in facts.items()]
    connection.executemany("INSERT INTO facts VALUES (?, ?)", rows)
    digest = ""
    for entry in entries:
        del entry["delta"]  # the earlier format had none
        body = json.dumps(entry, sort_keys=True, separators=(",", ":"))
        digest = hashlib.sha256(f"{digest}\n{body}".encode()).hexdigest()
        connection.execute("INSERT INTO entries (body, hash) VALUES (?, ?)", (body, digest))
    return connection


def left_by_a_kill(path, connection):
    """Put the file and its log where a process that was killed would have left them."""
    killed = path.with_suffix(".killed")
    for end in ("", "-wal", "-shm"):
        shutil.copy(f"{path}{end}", f"{killed}{end}")
    connection.close()
    return killed


def test_format_1_is_brought_over_with_the_spends_in_its_log(tmp_path):
    killed = left_by_a_kill(tmp_path / "old", make_format1(tmp_path / "old"))
    killed.chmod(0o600)
    accountant = PrivacyAccountant.open(killed)
    assert (accountant.epsilon, accountant.delta, len(accountant)) == (1.0, 0.0, 3)
    assert accountant.verify()
    assert killed.read_bytes().startswith(b'{"dpskl ledger"')
    assert stat.S_IMODE(killed.stat().st_mode) == 0o600
    assert not [file for file in tmp_path.iterdir() if file.name.startswith("old.killed-")]
    accountant.spend(ONE)
    assert accountant.remaining().epsilon == pytest.approx(0.6)


def test_format_1_without_a_log_is_brought_over_with_a_warning(tmp_path):
    make_format1(tmp_path / "old").close()
    with pytest.warns(UserWarning, match="with 3 entries.*lacks its last spends"):
        accountant = PrivacyAccountant(epsilon=1.0, delta=0, path=tmp_path / "old")
    assert len(accountant) == 3


def test_format_1_in_use_or_changed_is_left_alone(tmp_path, monkeypatch):
    monkeypatch.setattr("dpskl.budget.format1._SECONDS", 0.1)
    old = tmp_path / "old"
    connection = make_format1(old)
    with pytest.raises(OSError, match=r"format 1.*close it in other programs"):
        PrivacyAccountant.open(old)
    assert connection.execute("SELECT count(*) FROM entries").fetchone() == (3,)
    connection.execute("DELETE FROM entries WHERE id = 3")
    connection.close()
    with pytest.raises(LedgerFormatError, match="do not verify"):
        PrivacyAccountant.open(old)
    again = sqlite3.connect(old)
    assert again.execute("SELECT count(*) FROM entries").fetchone() == (2,)
    again.close()


def test_an_older_program_that_waits_cannot_spend_on_the_file_that_was_replaced(tmp_path, monkeypatch):
    """It opened the file before the conversion took its lock, and is let in after."""
    make_format1(tmp_path / "old").close()
    outcome = []
    make = store._make

    def older(connection):
        try:
            connection.execute("BEGIN IMMEDIATE")
            connection.execute("INSERT INTO entries (body, hash) VALUES ('', '')")
            connection.execute("COMMIT")
            outcome.append("spent")
        except sqlite3.Error as error:
            outcome.append(str(error))
        finally:
            connection.close()

    waiting = sqlite3.connect(tmp_path / "old", isolation_level=None, timeout=30, check_same_thread=False)
    thread = threading.Thread(target=older, args=(waiting,))

    def start_it_and_make(*arguments, **settings):
        thread.start()
        time.sleep(0.2)
        make(*arguments, **settings)

    monkeypatch.setattr(store, "_make", start_it_and_make)
    with pytest.warns(UserWarning, match="lacks its last spends"):
        accountant = PrivacyAccountant.open(tmp_path / "old")
    thread.join()
    assert outcome == ["no such table: entries"]
    assert len(accountant) == 3


def _open_at_once(path, start, queue):
    import warnings

    warnings.simplefilter("ignore")
    start.wait()
    accountant = PrivacyAccountant.open(path)
    accountant.spend(ONE)
    queue.put(len(accountant))


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_many_that_bring_format_1_over_at_once_make_one_ledger(tmp_path):
    if not hasattr(os, "fork"):
        pytest.skip("this platform does not fork")
    old = tmp_path / "old"
    make_format1(old).close()
    context = multiprocessing.get_context("fork")
    start, queue = context.Barrier(4), context.Queue()
    children = [context.Process(target=_open_at_once, args=(old, start, queue)) for _ in range(4)]
    for child in children:
        child.start()
    counts = sorted(queue.get(timeout=60) for _ in children)
    for child in children:
        child.join()
    assert counts[-1] == 7
    assert len(PrivacyAccountant.open(old)) == 7


def test_what_lies_beside_a_ledger_is_nothing_to_it(tmp_path):
    """Logs and journals of others are not applied."""
    path = tmp_path / "ledger"
    accountant = ledger(path)
    make_format1(tmp_path / "other")
    for end in ("-wal", "-shm", "-journal"):
        Path(f"{path}{end}").write_bytes(Path(f"{tmp_path / 'other'}-wal").read_bytes())
    accountant.spend(ONE)
    assert len(PrivacyAccountant.open(shutil.copy(path, tmp_path / "copy"))) == 4
    assert accountant.verify()
