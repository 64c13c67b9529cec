"""What a DBA asks of the files: what a purge would do, their groups one by one, other sizes and limits while open."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from types import FrameType

import pytest
from binlog_protocol.groups.stored_group import group_gtid
from binlog_protocol.gtid import Gtid
from binlog_storage.binlog.options import StoreOptions
from binlog_storage.binlog.store import IbbEngine
from binlog_storage.disk.disk import OsDisk
from binlog_storage.disk.read_only_disk import ReadOnlyDisk
from binlog_storage.engine import Position
from binlog_storage.engine.references import Reason
from binlog_storage.errors import PositionPurged, UnknownBinlog
from binlog_storage.ibb.page import PAGE_SIZE
from binlog_storage.log.publication import read_published
from binlog_storage.testing.memory_disk import MemoryDisk

from tests.storage.groups import group

SMALL = StoreOptions(max_binlog_size=1 << 16, slave_connections_needed_for_purge=0)


@pytest.fixture
def engine() -> IbbEngine:
    """Four files, of which the last is empty."""
    engine = IbbEngine(MemoryDisk(), SMALL)
    for file_no in range(3):
        for seq_no in range(1, 4):
            gtid = Gtid(0, 1, file_no * 3 + seq_no)
            engine.append(*group(gtid))
        engine.flush()
    return engine


@pytest.mark.parametrize("offset", [1 << 62, (1 << 63) - 1, 1 << 63, (1 << 64) - 1])
def test_places_that_no_disk_could_be_asked_for(offset: int, tmp_path: Path) -> None:
    engine = IbbEngine(OsDisk(tmp_path), SMALL)
    engine.append(*group(Gtid(0, 1, 1)))
    engine.sync()
    engine.flush()
    assert seq_nos(engine, 0) == [1]
    assert seq_nos(engine, 0, offset) == []
    engine.close()


def seq_nos(engine: IbbEngine, file_no: int | None = None, offset: int = 0) -> list[int]:
    found = [group_gtid(b"".join(pieces)) for pieces in engine.groups_of_file(file_no, offset)]
    return [gtid.seq_no for gtid in found if gtid is not None]


def test_groups_of_each_file(engine: IbbEngine) -> None:
    assert seq_nos(engine) == [1, 2, 3]
    assert [seq_nos(engine, n) for n in range(4)] == [
        [1, 2, 3],
        [4, 5, 6],
        [7, 8, 9],
        [],
    ]
    with pytest.raises(UnknownBinlog):
        seq_nos(engine, 9)


def test_offset_inside_a_group_starts_at_the_next(engine: IbbEngine) -> None:
    assert seq_nos(engine, 1, 4) == [4, 5, 6]
    assert seq_nos(engine, 1, PAGE_SIZE) == [4, 5, 6]
    batch = engine.read(Position(1, PAGE_SIZE))
    assert len(batch.groups) == 3
    starts = [offset for offset in range(PAGE_SIZE, PAGE_SIZE + 2000) if seq_nos(engine, 1, offset)]
    for offset in starts:
        assert seq_nos(engine, 1, offset) in ([4, 5, 6], [5, 6], [6])
    assert seq_nos(engine, 1, starts[-1]) == [6]
    assert seq_nos(engine, 1, 1 << 16) == []
    assert seq_nos(engine, 1, 1 << 40) == []


def test_file_is_held_while_its_groups_are_read(engine: IbbEngine) -> None:
    groups = engine.groups_of_file(0)
    next(groups)
    plan = engine.purge_to(2)
    assert plan.delete == []
    assert "SHOW BINLOG EVENTS" in plan.why
    groups.close()  # type: ignore[attr-defined]
    assert engine.purge_to(2).delete == [0, 1]
    with pytest.raises(PositionPurged):
        seq_nos(engine, 0)


def test_large_group_comes_in_pieces(engine: IbbEngine) -> None:
    gtid = Gtid(0, 1, 100)
    large = group(gtid, size=300_000).payload
    engine.append(large, gtid)
    engine.sync()
    pieces: list[bytes] = []
    for number in range(3, 30):
        if seq_nos(engine, number):
            for one in engine.groups_of_file(number):
                pieces = list(one)
            break
    assert b"".join(pieces) == large
    assert max(map(len, pieces)) <= engine.cache_bytes


def test_explain_says_what_purge_would_do(engine: IbbEngine) -> None:
    hold = engine.hold("me", Position(1, PAGE_SIZE))
    fates = engine.explain_purge(to=3)
    assert [(f.file_no, f.wanted, f.goes) for f in fates] == [
        (0, True, True),
        (1, True, False),
        (2, True, False),
        (3, False, False),
    ]
    assert fates[0].held_by == ()
    assert fates[1].held_by == ("it is held by me",)
    assert "the binlog file is in active use" in fates[3].held_by
    plan = engine.purge_to(3)
    assert plan.delete == [f.file_no for f in fates if f.goes]
    assert plan.kept == 1
    assert plan.why in fates[1].held_by
    hold.release()


def test_explain_knows_missing_replicas_and_limits(engine: IbbEngine) -> None:
    assert not any(f.wanted for f in engine.explain_purge())
    engine.set_option("max_binlog_total_size", 100_000)
    engine.set_option("slave_connections_needed_for_purge", 2)
    fates = engine.explain_purge()
    assert fates[0].wanted
    assert not any(f.goes for f in fates)
    assert "2 more slave connections" in fates[0].held_by[-1]
    engine.references.hold(Reason.DUMP, "r", 3)
    engine.references.hold(Reason.DUMP, "r", 3)
    assert [f.goes for f in engine.explain_purge()] == [True, True, False, False]
    assert [f.goes for f in engine.explain_purge(before=0.0)] == [False] * 4
    with pytest.raises(UnknownBinlog):
        engine.explain_purge(to=9)


def test_lower_total_size_purges(engine: IbbEngine) -> None:
    engine.set_option("max_binlog_total_size", 100_000)
    engine.step()
    assert engine.files()[0].number == 2


def test_size_of_files_made_from_now_on(engine: IbbEngine) -> None:
    engine.set_option("max_binlog_size", 1 << 17)
    engine.flush()
    sizes = dict(engine.files())
    assert sizes[4] == 1 << 17
    gtid = Gtid(0, 1, 50)
    engine.append(*group(gtid))
    engine.sync()
    assert seq_nos(engine, 4) == [50]
    with pytest.raises(ValueError, match="max_binlog_size"):
        engine.set_option("max_binlog_size", 1 << 14)
    engine.set_option("max_binlog_size", 1 << 16)
    engine.flush()
    assert dict(engine.files())[5] == 1 << 16


def test_changed_size_survives_a_crash() -> None:
    disk = MemoryDisk()
    engine = IbbEngine(disk, SMALL)
    engine.set_option("max_binlog_size", 1 << 17)
    engine.flush()
    for seq_no in range(1, 200):
        gtid = Gtid(0, 1, seq_no)
        engine.append(*group(gtid, size=2000))
        engine.sync()
    crashed = IbbEngine(disk.after_crash(), SMALL)
    assert str(crashed.binlog_state()) == "0-1-199"


class Breaker:
    """An exception at one call of a function of the store; and how many calls there were."""

    def __init__(self, at: int) -> None:
        self.calls, self._at = 0, at

    def __call__(self, frame: FrameType, event: str, _: object) -> None:
        if event == "call" and "/binlog_storage/" in frame.f_code.co_filename:
            self.calls += 1
            if self.calls == self._at:
                raise KeyboardInterrupt


def reset(disk: MemoryDisk, at: int = 0) -> int:
    """A store that is begun anew, and then closed. `at`: the call at which it is broken off. Returns how many."""
    engine = IbbEngine(disk, SMALL)
    breaker = Breaker(at)
    sys.setprofile(breaker)
    try:
        engine.reset()
    except KeyboardInterrupt:
        pass
    finally:
        sys.setprofile(None)
    engine.close()
    return breaker.calls


def test_a_reset_that_is_broken_off_anywhere() -> None:
    """As by Ctrl-C in `binlog-server seed`: the next start has the old store, or the new one, and goes on in it."""
    disk = MemoryDisk()
    engine = IbbEngine(disk, SMALL)
    engine.append(*group(Gtid(0, 1, 1)))
    engine.close()
    begin = disk.contents()
    total = reset(disk)
    assert total > 100
    for at in range(1, total + 1, 3):
        disk = MemoryDisk(begin)
        reset(disk, at)
        engine = IbbEngine(disk, SMALL)
        assert seq_nos(engine, 0) in ([1], []), at
        engine.append(*group(Gtid(0, 1, 2)))
        engine.close()


def test_other_processes_learn_of_a_flush_of_an_idle_store(tmp_path: Path) -> None:
    """Else an archive would not take the file that FLUSH BINARY LOGS has ended, until somebody writes."""
    engine = IbbEngine(OsDisk(tmp_path), SMALL)
    engine.start()
    try:
        engine.append(*group(Gtid(0, 1, 1)))
        for act in (engine.sync, engine.flush, engine.reset):
            act()
            deadline = time.monotonic() + 20
            while published_at(tmp_path) != engine.written_end or not engine._flusher._resting:
                assert time.monotonic() < deadline, act
                time.sleep(0.02)
    finally:
        engine.close()


def published_at(path: Path) -> Position | None:
    published = read_published(ReadOnlyDisk(path))
    return None if published is None else published.end
