"""An exception that nobody has thought of, once, in each thing that the threads of a store do: they go on."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
from binlog_storage.binlog import store as store_module
from binlog_storage.binlog.store import IbbEngine
from binlog_storage.disk.state import StateStore
from binlog_storage.log.publication import read_published
from binlog_storage.testing.memory_disk import MemoryDisk

from tests.storage.groups import append_all, opens_with, payloads, read_all, simple
from tests.storage.sizes import small

GROUPS = simple(60, size=5000)


class Defect(Exception):
    """Of ours."""


def once(monkeypatch: pytest.MonkeyPatch, owner: Any, name: str) -> threading.Event:
    """The method fails the first time that it is called from now on."""
    original = getattr(owner, name)
    met = threading.Event()

    def fails(*arguments: Any, **named: Any) -> Any:
        if not met.is_set():
            met.set()
            raise Defect(name)
        return original(*arguments, **named)

    monkeypatch.setattr(owner, name, fails)
    return met


PLACES: dict[str, Callable[[IbbEngine], tuple[Any, str]]] = {
    "write pages": lambda engine: (engine._pages, "write"),
    "sync a file": lambda engine: (engine._pages, "sync_file"),
    "checkpoint": lambda engine: (engine._redo, "write_checkpoint"),
    "publish": lambda engine: (engine._flusher._publication, "publish"),
    "make a file ahead": lambda engine: (engine._pages.files, "make_ahead"),
    "purge": lambda engine: (engine.keeper, "_purge_by_limits"),
    "delete a file": lambda engine: (engine._pages.files, "remove"),
    "close a file that is deleted": lambda engine: (engine._pages.files, "forget"),
    "unlink a file": lambda engine: (engine._disk, "unlink"),
    "wake readers": lambda engine: (engine._durability, "wake"),
}


@pytest.mark.parametrize("place", PLACES)
def test_a_defect(
    place: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    disk = MemoryDisk()
    options = small(8, max_binlog_total_size=4 * 8 * 16384, slave_connections_needed_for_purge=0)
    engine = IbbEngine(disk, options, facts=StateStore(disk))
    for worker in (engine._flusher.worker, engine.keeper.caretaker):
        worker._retry_s = 0.01
    engine.start()
    append_all(engine, GROUPS[:10])
    engine.sync()
    met = once(monkeypatch, *PLACES[place](engine))
    deadline = time.monotonic() + 20
    number = 10
    while not met.is_set() or number < len(GROUPS):
        assert time.monotonic() < deadline, "nobody came by"
        more = GROUPS[number : number + 5] or simple(5, first=number + 1, size=5000)
        append_all(engine, more)
        number += 5
        try:
            engine.sync()
        except Defect:
            engine.sync()
    engine.checkpoint()
    while len(engine.files()) > 6 or engine.files()[-1].number <= engine.written_end.file_no:
        assert time.monotonic() < deadline, "purged no more, or nothing was made ahead"
        engine.keeper.caretaker.poke()
        time.sleep(0.001)
    while (told := read_published(disk)) is None or told.end != engine.durable_end:
        assert time.monotonic() < deadline, "nothing is published any more"
        time.sleep(0.001)
    assert not engine._durability.failed
    assert not engine.keeper.caretaker.failure
    engine.close()
    disk.crash()
    engine = store_module.IbbEngine(disk, options, facts=StateStore(disk))
    assert engine.written_end.file_no > 1
    engine.close()


def test_a_defect_while_the_redo_log_is_written(monkeypatch: pytest.MonkeyPatch) -> None:
    """The bytes are not lost, and go to their place the next time."""
    disk = MemoryDisk()
    engine = IbbEngine(disk, small(8))
    append_all(engine, GROUPS[:3])
    once(monkeypatch, engine._redo, "_write_ring")
    with pytest.raises(Defect):
        engine.sync()
    append_all(engine, GROUPS[3:6])
    engine.sync()
    assert read_all(engine) == payloads(GROUPS[:6])
    disk.crash()
    opens_with(disk, small(8), GROUPS[:6])
