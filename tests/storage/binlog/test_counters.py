"""What the store tells of itself: for SHOW STATUS and for metrics."""

from __future__ import annotations

from collections.abc import Mapping

from binlog_storage.binlog.store import IbbEngine
from binlog_storage.ibb.page import PAGE_SIZE
from binlog_storage.testing.memory_disk import MemoryDisk

from tests.storage.groups import append_all, read_all, simple
from tests.storage.sizes import small

GROUPS = simple(60, size=2000)
RAW_BYTES = sum(len(payload) for payload, _ in GROUPS)


def test_bytes_written() -> None:
    disk = MemoryDisk()
    engine = IbbEngine(disk, small())
    empty = engine.counters()["Binlog_bytes_written"]
    assert empty < PAGE_SIZE
    append_all(engine, GROUPS)
    written = engine.counters()["Binlog_bytes_written"] - empty
    assert RAW_BYTES < written < RAW_BYTES + 0.2 * RAW_BYTES, (
        "several files, and no more than frames"
    )
    engine.reset()
    assert engine.counters()["Binlog_bytes_written"] >= written + empty, "a counter never goes back"
    engine.close()
    engine = IbbEngine(disk, small())
    assert engine.counters()["Binlog_bytes_written"] == 0, "since the start"
    engine.close()


def missed(before: Mapping[str, int], after: Mapping[str, int]) -> int:
    """Pages read from files meanwhile."""
    name = "Innodb_buffer_pool_reads"
    assert after["Innodb_buffer_pool_read_requests"] > before["Innodb_buffer_pool_read_requests"]
    return after[name] - before[name]


def test_page_cache() -> None:
    engine = IbbEngine(MemoryDisk(), small())
    append_all(engine, GROUPS)
    engine.checkpoint()
    assert len(read_all(engine)) == len(GROUPS)
    warm = engine.counters()
    assert len(read_all(engine)) == len(GROUPS)
    again = engine.counters()
    in_memory = missed(warm, again)
    for file_no in engine._pages.files.numbers():
        engine._pages.forget(file_no)
    assert engine.counters()["Innodb_buffer_pool_pages_data"] == 0
    assert len(read_all(engine)) == len(GROUPS)
    cold = engine.counters()
    # What lies behind the end is asked for each time, and is in no cache.
    assert missed(again, cold) > in_memory
    assert 0 < cold["Innodb_buffer_pool_pages_data"] <= cold["Innodb_buffer_pool_pages_total"]
    engine.close()


def test_purged() -> None:
    engine = IbbEngine(MemoryDisk(), small(slave_connections_needed_for_purge=0))
    append_all(engine, GROUPS)
    engine.checkpoint()
    files = dict(engine.files())
    plan = engine.purge_to(engine.written_end.file_no)
    assert len(plan.delete) > 1
    gone = files.keys() - dict(engine.files()).keys()
    counters = engine.counters()
    assert counters["Binlog_purged_files"] == len(plan.delete) == len(gone)
    assert counters["Binlog_purged_bytes"] == sum(files[name] for name in gone)
    engine.close()


def test_fsyncs() -> None:
    engine = IbbEngine(MemoryDisk(), small())
    before = engine.counters()
    append_all(engine, GROUPS[:1])
    engine.sync()
    engine.sync()  # nothing to do
    after, times = engine.counters(), engine.fsync_times()
    assert after["Innodb_os_log_fsyncs"] - before["Innodb_os_log_fsyncs"] == 1
    assert times["redo"].count == after["Innodb_os_log_fsyncs"]
    assert times["redo"].count + times["binlog"].count == after["Innodb_data_fsyncs"]
    engine.checkpoint()
    assert engine.fsync_times()["binlog"].count == times["binlog"].count > 0
    engine.close()
