"""kill -9 at each step of a commit in a SQLite file and in the binlog: both agree behind the next start."""

from __future__ import annotations

import json
import os
import shutil
import signal
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest
from binlog_protocol.gtid import Gtid
from binlog_storage.binlog.store import IbbEngine
from binlog_storage.engine import Xid
from binlog_storage.errors import DiskError
from binlog_storage.tables.sqlite_rows import SQLITE_NAME, SqliteRows

from tests.kit.fixtures import MakeThinDisk
from tests.storage.groups import gtid_event
from tests.storage.tables.test_sqlite_rows import HERE, THERE, Kind, Store

STEPS = 20


def tell(what: str, number: int) -> None:
    os.write(1, json.dumps([what, number]).encode() + b"\n")


def killed_at(path: Path, kill_at: int) -> Store:
    """A store that kills its process at such a step of it."""
    left = [kill_at]

    def before(step: str) -> None:
        left[0] -= 1
        if left[0] == 0:
            os.kill(os.getpid(), signal.SIGKILL)

    store = Store(path, SqliteRows(path / SQLITE_NAME, before))
    syncing = store.engine._durability if isinstance(store.engine, IbbEngine) else store.engine._log
    name = "sync_log" if isinstance(store.engine, IbbEngine) else "sync_once"
    sync = getattr(syncing, name)

    def sync_log(*given: object) -> object:
        before("sync: begin")
        found = sync(*given)
        before("sync: done")
        return found

    setattr(syncing, name, sync_log)
    if not store.engine.tables.tables():
        store.make_tables()
    return store


def life(path: Path, kill_at: int) -> None:
    """What the killed process does: it tells each transaction that it begins, and each whose commit has returned."""
    store = killed_at(path, kill_at)
    for number in range(1, 3):
        tell("begins", number)
        value = b"%d" % number
        changes: dict[tuple[int, bytes], bytes | None] = {
            (HERE, b"same"): value,
            (THERE, b"same"): value,
            (THERE, value): value,
            (THERE, b"%d" % (number - 1)): None,
        }
        store.put(number, changes)
        tell("done", number)
    tell("end", 0)


def start(path: Path, kill_at: int) -> None:
    """A start alone."""
    killed_at(path, kill_at)
    tell("end", 0)


def xa_life(path: Path, kill_at: int) -> None:
    """XA: the first transaction is committed, the second one rolled back."""
    store = killed_at(path, kill_at)
    for number in range(1, 3):
        xid, value = Xid(1, b"q"), b"%d" % number
        tell("prepares", number)
        store.prepare(xid, {(HERE, value): value, (THERE, value): value})
        store.engine.sync()
        tell("prepared", number)
        tell("ends", number)
        if number == 1:
            gtid = Gtid(0, 1, 1)
            store.engine.commit_prepared(xid, gtid_event(gtid), gtid)
        else:
            store.engine.rollback_prepared(xid)
        store.engine.sync()
        tell("ended", number)
    tell("end", 0)


@pytest.mark.by_turns(2)
@pytest.mark.long
@pytest.mark.parametrize("is_ibb", [True, False], ids=["ibb", "traditional"])
def test_a_kill_at_each_step(tmp_path: Path, is_ibb: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two transactions, killed at each step of the first process; the next one is killed, too, while it starts."""
    monkeypatch.setattr(Kind, "is_ibb", is_ibb)
    ended = False
    for step in range(1, 99):
        path = tmp_path / str(step)
        path.mkdir()
        told = run(path, step)
        ended = ("end", 0) in told
        begun = max((n for what, n in told if what == "begins"), default=0)
        done = max((n for what, n in told if what == "done"), default=0)
        if not ended and begun:
            run(path, 1)  # killed again, at the first thing that the start does to the file
        store = Store(path)
        if store.engine.tables.tables():
            last = max((gtid.seq_no for gtid in store.engine.binlog_state().entries()), default=0)
            assert done <= last <= begun
            value = b"%d" % last
            assert store.rows() == (
                {HERE: {b"same": value}, THERE: {b"same": value, value: value}}
                if last
                else {HERE: {}, THERE: {}}
            )
            assert store.keeper.recover() == []
        store.close()
        shutil.rmtree(path)
        if ended:
            assert step > STEPS, "each of them was met"
            return
    raise AssertionError("it never ended")


@pytest.mark.by_turns(2)
@pytest.mark.long
@pytest.mark.parametrize("is_ibb", [True, False], ids=["ibb", "traditional"])
def test_a_kill_at_each_step_of_xa(
    tmp_path: Path, is_ibb: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was prepared waits, in both or in none; and ends in both."""
    monkeypatch.setattr(Kind, "is_ibb", is_ibb)
    for step in range(1, 99):
        path = tmp_path / str(step)
        path.mkdir()
        told = run(path, step, xa_life)
        if told and told[-1][0] != "end":
            run(path, 1, start)
        store = Store(path)
        if store.engine.tables.tables():
            what, number = told[-1] if told else ("", 0)
            last = max((gtid.seq_no for gtid in store.engine.binlog_state().entries()), default=0)
            committed = {b"1": b"1"} if last else {}
            assert store.rows() == {HERE: committed, THERE: committed}
            assert not (what in ("", "prepares") and number < 2 and last)
            waiting = store.engine.prepared()
            assert len(waiting) == len(store.keeper.recover()) <= 1
            assert len(waiting) == 1 or what != "prepared"
            assert not waiting or what in ("prepares", "prepared", "ends")
            gtid = Gtid(0, 1, 9)
            for xid in waiting:
                store.engine.commit_prepared(xid, gtid_event(gtid), gtid)
            rows = store.rows()
            assert rows[HERE] == rows[THERE]
            assert len(rows[HERE]) == len(committed) + len(waiting)
            assert store.keeper.recover() == []
        store.close()
        shutil.rmtree(path)
        if told and told[-1][0] == "end":
            assert step > STEPS, "each of them was met"
            return
    raise AssertionError("it never ended")


@pytest.mark.parametrize("is_same", [True, False], ids=["the same process", "another process"])
def test_a_sync_that_failed_and_a_power_cut(thin_disk: MakeThinDisk, *, is_same: bool) -> None:
    """The kernel shows what it has given up: what is built on it may not go with the power."""
    disk = thin_disk()
    path = disk.path / "data"
    path.mkdir()

    def lives(numbers: Iterable[int]) -> Callable[[Path, int], None]:
        def live(path: Path, kill_at: int) -> None:
            store = killed_at(path, 0)
            for number in numbers:
                value = b"%d" % number
                if number == 2:
                    disk.fail()
                elif number == 3:
                    disk.heal()
                try:
                    store.put(number, {(HERE, value): value, (THERE, value): bytes(200_000)})
                except DiskError:
                    tell("failed", number)
            tell("end", 0)

        return live

    if is_same:
        assert run(path, 0, lives((1, 2, 3))) == [("failed", 2), ("failed", 3), ("end", 0)]
    else:
        assert run(path, 0, lives((1, 2))) == [("failed", 2), ("end", 0)]
        disk.heal()
        assert run(path, 0, lives((3, 4))) == [("end", 0)]
    disk.restart()
    store = Store(path)
    there = [b"1"] if is_same else [b"1", b"3", b"4"]
    assert {number: sorted(rows) for number, rows in store.rows().items()} == {
        HERE: there,
        THERE: there,
    }
    store.close()


def run(
    path: Path, kill_at: int, lives: Callable[[Path, int], None] = life
) -> list[tuple[str, int]]:
    """A child lives; what it has told. A fork has all that is imported already."""
    said, saying = os.pipe()
    child = os.fork()
    if not child:
        try:
            os.dup2(saying, 1)
            lives(path, kill_at)
        finally:
            os._exit(0)
    os.close(saying)
    with os.fdopen(said) as output:
        lines = output.read().splitlines()
    _, status = os.waitpid(child, 0)
    assert os.WIFSIGNALED(status) or (lines and "end" in lines[-1]), lines
    return [tuple(json.loads(line)) for line in lines]
