"""Rows and binlog of a backup are of one point: transactions that are open or prepared there are undone or kept."""

from __future__ import annotations

import random

import pytest
from binlog_storage.binlog import backup as backup_module
from binlog_storage.classic import backup as classic_backup
from binlog_storage.ibb.page import PAGE_SIZE
from binlog_storage.testing.memory_disk import MemoryDisk

from tests.storage.backup.copying import copy, make_ready
from tests.storage.crash.check import quiet
from tests.storage.crash.history import OPTIONS
from tests.storage.crash.tables import (
    CLASSIC,
    Options,
    TableChecker,
    TableHistory,
    begun,
    step,
    step_of,
)


@pytest.mark.by_turns(4)
@pytest.mark.parametrize("options", [OPTIONS, CLASSIC], ids=["ibb", "traditional"])
@pytest.mark.parametrize("number", range(4))
def test_in_the_middle_of_transactions(
    number: int, options: Options, rng: random.Random, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Several backups in one history; each is held against the model of its point."""
    monkeypatch.setattr(backup_module, "PIECE_BYTES", PAGE_SIZE)
    history = TableHistory(options, None)
    begun(history)
    with quiet():
        for _ in range(6):
            for _ in range(25):
                step(history, rng)
            history.sync()
            if rng.random() < 0.5:
                for module in (backup_module, classic_backup):
                    monkeypatch.setattr(module, "LOG_BYTES", rng.choice([0, 1 << 20]))
            point = len(history.stands) - 1
            disk = MemoryDisk()
            copy(history.engine, disk, between=lambda: goes_on(history, rng))
            make_ready(disk, options)
            checker = TableChecker(history, rng)
            checker._require(checker._open(disk.contents()), point, point, "the backup")


def goes_on(history: TableHistory, rng: random.Random) -> None:
    """Transactions go on, where there is room without waiting."""
    if history.engine.wait_for_room(0):
        running = rng.choice(history.open) if history.open else history.begin()
        step_of(history, running, rng)
        if rng.random() < 0.3:
            history.sync()
            history.engine.step()
