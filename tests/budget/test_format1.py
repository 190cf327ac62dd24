"""Ledgers of the earlier format are brought over whole, or left alone."""

import hashlib
import json
import multiprocessing
import os
import shutil
import sqlite3
import stat
import threading
import time
from pathlib import Path

import pytest
from ledger_cases import ONE, ledger

from dpskl import LedgerFormatError, PrivacyAccountant
from dpskl.budget import ledger as store


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
