"""Rows in the redo log, in a backup: those of its point, while transactions change them; what was open is undone."""

from __future__ import annotations

import random

import pytest
from binlog_storage.binlog import backup as backup_module
from binlog_storage.binlog.store import IbbEngine
from binlog_storage.engine.backup import BackupRequest
from binlog_storage.ibb.page import PAGE_SIZE
from binlog_storage.testing.memory_disk import MemoryDisk

from tests.storage.backup.copying import copy, make_ready
from tests.storage.crash.history import OPTIONS
from tests.storage.crash.tables import (
    KEYS,
    TableHistory,
    begun,
    look,
    open_engine,
    step,
    step_of,
)

STEPS = 40
OWN = b"a key that no other transaction has"


def some_step(history: TableHistory, rng: random.Random) -> None:
    """One that no backup refuses."""
    if len(history.open) < 3:
        history.begin()
    if rng.random() < 0.1:
        history.snapshot(lambda: None)
    else:
        step_of(history, rng.choice(history.open), rng)


def undone(engine: object) -> None:
    assert isinstance(engine, IbbEngine)
    while engine.rows_to_undo:
        engine._rows.undoer.step()


@pytest.mark.parametrize("skip_binlog", [False, True])
def test_of_a_point(skip_binlog: bool, rng: random.Random, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the binlog what is prepared is rolled back, too, and leaves no lock."""
    monkeypatch.setattr(backup_module, "PIECE_BYTES", PAGE_SIZE)
    history = TableHistory(OPTIONS, None)
    begun(history)
    for _ in range(STEPS):
        step(history, rng)
    one = history.begin()
    assert history.change(one, 1, OWN, b"prepared")
    history.prepare(one)
    history.sync()
    rows, seq_no, prepared = look(history.engine)
    assert prepared
    target = MemoryDisk()
    copy(
        history.engine,
        target,
        BackupRequest(skip_binlog=skip_binlog),
        between=lambda: some_step(history, rng),
    )
    make_ready(target, OPTIONS, skip_binlog=skip_binlog)
    engine = open_engine(target, OPTIONS)
    found = look(engine)
    assert found[0] == rows
    if skip_binlog:
        assert not found[2]
    else:
        assert found == (rows, seq_no, prepared)
    undone(engine)
    assert look(engine) == found
    if skip_binlog:
        t = engine.tables.begin()
        t.lock_wait_s = 0.0
        for key in (OWN, *KEYS):
            t.put(1, key, b"free")
        t.commit()
    # The store that was backed up is none the worse.
    last = history.stands[-1]
    assert look(history.engine) == (last.rows, last.seq_no, frozenset(last.prepared))
