"""kill -9 at each step of a commit in a SQLite file and in the binlog: both agree behind the next start."""

from __future__ import annotations

import json
import os
import shutil
import signal
from pathlib import Path

import pytest
from binlog_storage.binlog.store import IbbEngine
from binlog_storage.tables.sqlite_rows import SQLITE_NAME, SqliteRows

from tests.storage.tables.test_sqlite_rows import HERE, THERE, Kind, Store

STEPS = 20


def tell(what: str, number: int) -> None:
    os.write(1, json.dumps([what, number]).encode() + b"\n")


def life(path: Path, kill_at: int) -> None:
    """What the killed process does: it tells each transaction that it begins, and each whose commit has returned."""
    left = [kill_at]

    def before(step: str) -> None:
        left[0] -= 1
        if left[0] == 0:
            os.kill(os.getpid(), signal.SIGKILL)

    store = Store(path, SqliteRows(path / SQLITE_NAME, before))
    syncing = store.engine._durability if isinstance(store.engine, IbbEngine) else store.engine
    name = "sync_log" if isinstance(store.engine, IbbEngine) else "sync"
    sync = getattr(syncing, name)

    def sync_log() -> None:
        before("sync: begin")
        sync()
        before("sync: done")

    setattr(syncing, name, sync_log)
    if not store.engine.tables.tables():
        store.make_tables()
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


def run(path: Path, kill_at: int) -> list[tuple[str, int]]:
    """A child lives; what it has told. A fork has all that is imported already."""
    said, saying = os.pipe()
    child = os.fork()
    if not child:
        try:
            os.dup2(saying, 1)
            life(path, kill_at)
        finally:
            os._exit(0)
    os.close(saying)
    with os.fdopen(said) as output:
        lines = output.read().splitlines()
    _, status = os.waitpid(child, 0)
    assert os.WIFSIGNALED(status) or ("end" in lines[-1]), lines
    return [tuple(json.loads(line)) for line in lines]
