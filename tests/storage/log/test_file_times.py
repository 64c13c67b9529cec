"""The place of a time in an open store, on each engine: times that go back, files that are passed over, purge."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from binlog_protocol.gtid import Gtid
from binlog_storage.binlog.store import IbbEngine
from binlog_storage.classic.options import ClassicOptions
from binlog_storage.classic.store import ClassicEngine
from binlog_storage.engine import BinlogEngine, PlacedBatch, Position
from binlog_storage.errors import WaitGivenUp
from binlog_storage.log.file_times import FileTimes, TimePlace
from binlog_storage.testing.memory_disk import MemoryDisk
from binlog_storage.testing.memory_engine import MemoryEngine

from tests.protocol.statement_groups import transaction_group
from tests.storage.groups import marker
from tests.storage.sizes import small

T0 = 1_700_000_000


@pytest.fixture(
    params=[
        MemoryEngine,
        lambda: IbbEngine(MemoryDisk(), small(16, slave_connections_needed_for_purge=0)),
        lambda: ClassicEngine(MemoryDisk(), ClassicOptions(slave_connections_needed_for_purge=0)),
    ],
    ids=["memory", "ibb", "classic"],
)
def engine(request: pytest.FixtureRequest) -> Iterator[BinlogEngine]:
    made: BinlogEngine = request.param()
    made.large_group_bytes = 1 << 15
    yield made
    made.close()


def add(engine: BinlogEngine, *times: int, size: int = 10) -> None:
    """A group for each time, in seconds behind T0, numbered from 0-1-1 on."""
    last = engine.binlog_state().last(0)
    for seq_no, time in enumerate(times, 1 if last is None else last.seq_no + 1):
        gtid = Gtid(0, 1, seq_no)
        text = "INSERT " + "x" * size
        engine.append(transaction_group(gtid, [text], xid=seq_no, timestamp=T0 + time), gtid)
    engine.sync()


def shown(found: TimePlace) -> tuple[str, bool, bool]:
    return (str(found.before.position()), found.reached, found.is_certain)


def test_first_that_is_late_enough(engine: BinlogEngine) -> None:
    """Also behind one that is too late, and of several of one second the first."""
    engine.append(marker()[0], None)
    add(engine, 0, 10, 10, 5, 30)
    add(engine, 20, 40, size=40_000)
    add(engine, 50)
    times = FileTimes()
    found = {at: shown(times.find(engine, T0 + at)) for at in (-1, 0, 1, 10, 10.5, 31, 50, 51)}
    assert found == {
        -1: ("", True, True),
        0: ("", True, True),
        1: ("0-1-1", True, True),
        10: ("0-1-1", True, True),
        10.5: ("0-1-4", True, True),
        31: ("0-1-6", True, True),
        50: ("0-1-7", True, True),
        51: ("0-1-8", False, True),
    }


def test_files_are_read_once(engine: BinlogEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    for first in (0, 100, 50, 200):
        add(engine, *range(first, first + 20), size=200)
        engine.flush()
    add(engine, 300)
    times, read = FileTimes(), set[int]()
    whole = engine.read_placed

    def counted(start: Position) -> PlacedBatch:
        read.add(start.file_no)
        return whole(start)

    assert shown(times.find(engine, T0 + 299)) == ("0-1-80", True, True)
    monkeypatch.setattr(engine, "read_placed", counted)
    assert shown(times.find(engine, T0 + 299)) == ("0-1-80", True, True)
    (newest,) = read
    assert shown(times.find(engine, T0 + 119)) == ("0-1-39", True, True)  # not in the third file
    if not engine.purge_to(newest).delete:  # of one file, in memory
        return
    assert shown(times.find(engine, T0 + 299))[2] is False  # nothing earlier is left
    assert shown(times.find(engine, T0 + 301)) == ("0-1-81", False, True)


def test_behind_a_reset(engine: BinlogEngine) -> None:
    add(engine, 0, 100)
    engine.flush()
    add(engine, 200)
    times = FileTimes()
    times.find(engine, T0 + 150)
    engine.reset()
    add(engine, 300, 400)
    engine.flush()
    assert shown(times.find(engine, T0 + 350)) == ("0-1-1", True, True)


def test_given_up(engine: BinlogEngine) -> None:
    add(engine, 0)
    with pytest.raises(WaitGivenUp):
        FileTimes().find(engine, T0 + 1, lambda: True)
    engine.flush()
    engine.purge_to(max(dict(engine.files())))  # its hold has gone
