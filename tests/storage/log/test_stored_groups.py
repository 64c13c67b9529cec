"""The groups of an open store, and the one with a certain GTID, on each engine."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator

import pytest
from binlog_protocol.gtid import Gtid, SlavePosition
from binlog_storage.binlog.store import IbbEngine
from binlog_storage.engine import BinlogEngine
from binlog_storage.errors import CorruptBinlog
from binlog_storage.log.stored_groups import digest, find_group, groups_from, look_for
from binlog_storage.testing.memory_disk import MemoryDisk
from binlog_storage.testing.memory_engine import MemoryEngine

from tests.storage.groups import Group, append_all, group, marker
from tests.storage.sizes import small

LARGE = 40_000


@pytest.fixture(
    params=[MemoryEngine, lambda: IbbEngine(MemoryDisk(), small(16))], ids=["memory", "ibb"]
)
def engine(request: pytest.FixtureRequest) -> Iterator[BinlogEngine]:
    made: BinlogEngine = request.param()
    made.large_group_bytes = 1 << 15
    yield made
    made.close()


def filled(engine: BinlogEngine, gtids: str) -> list[Group]:
    stored = [group(Gtid.parse(text)) for text in gtids.split(",")]
    append_all(engine, stored)
    engine.sync()
    return stored


def test_groups_in_their_order(engine: BinlogEngine) -> None:
    """Small ones, large ones, start markers; their bytes as often as they are asked for."""
    stored = [
        marker(),
        group(Gtid(0, 1, 1)),
        group(Gtid(0, 1, 2), LARGE),
        group(Gtid(7, 1, 1), LARGE),
        marker(1),
        group(Gtid(0, 1, 3)),
    ]
    append_all(engine, stored)
    engine.sync()
    start = engine.find_start(SlavePosition()).position
    found = list(groups_from(engine, start))
    assert [one.gtid for one in found] == [one.gtid for one in stored]
    for _ in range(2):
        assert [b"".join(one.pieces()) for one in found] == [one.payload for one in stored]
    assert [digest(one.pieces()) for one in found] == [
        hashlib.sha256(one.payload).digest() for one in stored
    ]
    assert list(groups_from(engine, engine.durable_end)) == []


@pytest.mark.parametrize(
    ("stored", "wanted", "there", "before", "passed"),
    [
        ("0-1-1", "0-1-1", True, None, False),
        ("0-1-1,7-7-7,0-1-2,7-7-8", "0-1-2", True, "0-1-1", False),
        ("0-1-1,0-2-2,0-1-3", "0-1-3", True, "0-2-2", False),
        ("0-2-1,0-2-2,0-1-1", "0-1-1", True, "0-2-2", False),
        ("0-1-1,0-1-2,0-1-5,0-1-6", "0-1-4", False, "0-1-2", True),
        ("0-1-1,0-2-5", "0-1-4", False, "0-2-5", False),
        ("0-1-1,7-7-7", "3-1-4", False, None, False),
        ("0-1-5,0-1-3", "0-1-3", False, None, True),
    ],
)
def test_the_group_with_this_gtid(
    engine: BinlogEngine, stored: str, wanted: str, there: bool, before: str | None, passed: bool
) -> None:
    filled(engine, stored)
    gtid = Gtid.parse(wanted)
    found = find_group(engine, gtid, engine.binlog_state().position())
    assert found.before == (None if before is None else Gtid.parse(before))
    assert found.passed == passed
    if there:
        assert found.group is not None
        assert b"".join(found.group.pieces()) == group(gtid).payload
    else:
        assert found.group is None


def test_one_that_went_back(engine: BinlogEngine) -> None:
    """As with `gtid_strict_mode` off: whoever must have it reads on behind a higher number."""
    filled(engine, "0-1-1,0-1-5,0-1-3,0-1-4")
    found = find_group(engine, Gtid(0, 1, 3), engine.binlog_state().position(), ascending=False)
    assert found.group is not None
    assert found.before == Gtid(0, 1, 5)


def test_a_stored_group_that_is_none_is_damage(engine: BinlogEngine) -> None:
    start = engine.find_start(SlavePosition())
    engine.append(b"?" * 40, None)
    engine.sync()
    with pytest.raises(CorruptBinlog, match="neither a GTID nor a format description"):
        look_for(engine, Gtid(0, 1, 1), start)
