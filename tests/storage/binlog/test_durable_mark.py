"""LSNs to places in the binlog."""

from __future__ import annotations

import threading

import pytest
from binlog_storage.binlog.durability import PENDING_MAX, DurableMark
from binlog_storage.binlog.store import IbbEngine
from binlog_storage.ibb.chunk import Position
from binlog_storage.testing.memory_disk import MemoryDisk

from tests.storage.groups import append_all, simple
from tests.storage.sizes import small


def place(number: int) -> Position:
    return Position(number // 1000, 16384 + number % 1000)


def marked(*lsns: int) -> DurableMark:
    mark = DurableMark(10, place(0))
    for lsn in lsns:
        mark.note(lsn, place(lsn))
    return mark


def test_it_moves_by_whole_records() -> None:
    mark = marked(20, 30, 40)
    for durable, end, moved in [
        (10, 0, False),
        (19, 0, False),
        (20, 20, True),
        (20, 20, False),
        (29, 20, False),
        (35, 30, True),
        (1000, 40, True),
        (1000, 40, False),
    ]:
        assert mark.advance(durable) == moved
        assert mark.end == place(end)
        assert mark.lsn <= durable


def test_it_never_goes_back() -> None:
    mark = marked(20, 30)
    assert mark.advance(30)
    assert not mark.advance(20)
    assert (mark.lsn, mark.end) == (30, place(30))


def test_two_records_of_one_lsn() -> None:
    mark = DurableMark(10, place(0))
    mark.note(20, place(20))
    mark.note(20, place(21))
    mark.note(15, place(22))  # not from `RedoLog`; it waits for those before it
    assert not mark.advance(19)
    assert mark.advance(20)
    assert mark.end == place(22)


def test_a_full_fifo_keeps_its_newest() -> None:
    mark = marked(*range(100, 100 + 3 * PENDING_MAX))
    newest = 100 + 3 * PENDING_MAX - 1
    assert len(mark._pending) == PENDING_MAX
    assert mark.advance(100 + PENDING_MAX - 2)
    assert mark.end == place(100 + PENDING_MAX - 2), "all before the newest are kept"
    assert not mark.advance(newest - 1)
    assert mark.advance(newest)
    assert mark.end == place(newest)
    mark.note(newest + 5, place(newest + 5))
    assert mark.advance(newest + 5)


def test_restart() -> None:
    mark = marked(20, 30)
    mark.advance(20)
    mark.restart(50, place(1))
    assert (mark.lsn, mark.end) == (50, place(1))
    assert not mark.advance(1000)


def test_from_two_threads() -> None:
    """One notes, one advances; the fifo is full again and again. The end rises, and is never ahead of its LSN."""
    mark = DurableMark(0, place(0))
    noted = 0
    done = threading.Event()
    wrong: list[str] = []

    def advance() -> None:
        while not done.is_set():
            before, durable = mark.end, noted
            mark.advance(durable)
            if not before <= mark.end <= place(durable):
                wrong.append(f"{before} {mark.end} {durable}")

    thread = threading.Thread(target=advance)
    thread.start()
    for lsn in range(1, 60_000):
        mark.note(lsn, place(lsn))
        noted = lsn
    done.set()
    thread.join(20)
    assert not wrong
    mark.advance(60_000)
    assert mark.end == place(59_999)


@pytest.mark.long
def test_a_sync_covers_what_was_appended_before_it_however_much_that_was() -> None:
    engine = IbbEngine(MemoryDisk(), small(64))
    for _ in range(3):
        append_all(engine, simple(2 * PENDING_MAX, size=60))
        end = engine.written_end
        engine.sync()
        assert engine.durable_end == end
    for _ in range(2 * PENDING_MAX):
        engine.append(*simple(1, size=60)[0])
        engine.write_log()
    engine.sync()
    assert engine.durable_end == engine.written_end
    engine.close()
