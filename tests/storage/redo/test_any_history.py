"""Any appends, flushes, checkpoints and crashes: the log gives back a prefix, and all that was durable."""

from __future__ import annotations

import random

from binlog_storage.binlog.store import IbbEngine
from binlog_storage.errors import DiskError, StoreFailed
from binlog_storage.ibb.chunk import Position
from binlog_storage.redo.format import MTR_OVERHEAD
from binlog_storage.redo.log import FIRST_LSN
from binlog_storage.testing.memory_disk import MemoryDisk
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.storage.groups import (
    Group,
    append_all,
    append_run,
    payloads,
    read_all,
    simple,
    state_after,
)
from tests.storage.redo.logs import body, new_log, opened
from tests.storage.sizes import small

MANY = settings(max_examples=150, suppress_health_check=[HealthCheck.too_slow])

log_steps = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.integers(1, 300)),
        st.tuples(st.just("append"), st.integers(1, 40)),
        st.tuples(st.just("write"), st.just(0)),
        st.tuples(st.just("flush"), st.just(0)),
        st.tuples(st.just("checkpoint"), st.integers(0, 3)),
        st.tuples(st.sampled_from(["cut", "torn", "kill"]), st.integers(0, 2**32)),
    ),
    max_size=60,
)


@MANY
@given(st.integers(500, 1500), st.integers(0, 1500), log_steps)
def test_any_history_of_a_log(capacity: int, start: int, steps: list[tuple[str, int]]) -> None:
    disk = MemoryDisk()
    log = new_log(disk, capacity, FIRST_LSN + start)
    since: list[tuple[int, bytes]] = []  # the end and the body of each since the last checkpoint
    durable = written = log.lsn
    for number, (what, value) in enumerate(steps):
        if what == "append":
            made = body(number, value)
            if log.room() >= len(made) + MTR_OVERHEAD:
                with log._lock:
                    since.append((log.append(made), made))
        elif what == "write":
            written = log.write()
        elif what == "flush":
            durable = written = log.flush()
        elif what == "checkpoint":
            durable = written = log.flush()
            kept = value if value < len(since) else 0
            lsn = since[-kept - 1][0] if kept else durable
            log.write_checkpoint(lsn, Position(0, number))
            since = since[len(since) - kept :] if kept else []
        else:
            if what == "kill":
                disk.kill()
            else:
                disk.crash(random.Random(value) if what == "torn" else None)
            log = opened(disk)
            found = [mtr.body for mtr in log.replay()]
            assert found == [made for _, made in since[: len(found)]]
            sure = written if what == "kill" else durable
            assert len(found) >= sum(end <= sure for end, _ in since)
            log.begin(Position(0, number))
            since = []
            durable = written = log.lsn


store_steps = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.integers(60, 3000)),
        st.tuples(st.just("append"), st.integers(60, 40_000)),
        st.tuples(st.just("run"), st.integers(1, 80)),
        st.tuples(
            st.sampled_from(["sync", "write", "step", "checkpoint", "flush", "close"]), st.just(0)
        ),
        st.tuples(st.sampled_from(["cut", "torn", "kill", "fail"]), st.integers(0, 2**32)),
    ),
    max_size=40,
)


@MANY
@given(store_steps)
def test_any_history_of_a_store(steps: list[tuple[str, int]]) -> None:
    options = small(6)
    disk = MemoryDisk()
    engine = IbbEngine(disk, options)
    groups: list[Group] = []
    sure = seen = 0

    def look() -> None:
        nonlocal seen
        found = read_all(engine)
        assert found == payloads(groups[: len(found)])
        assert len(found) >= max(seen, sure)
        seen = len(found)

    for what, value in steps:
        try:
            if what == "append":
                groups += simple(1, first=len(groups) + 1, size=value)
                append_all(engine, groups[-1:])
            elif what == "run":
                made = simple(value, first=len(groups) + 1, size=60 + 61 * value)
                groups += made
                append_run(engine, made)
            elif what == "sync":
                engine.sync()
                sure = len(groups)
            elif what == "write":
                engine.write_log()
            elif what == "step":
                engine.step()
            elif what in ("checkpoint", "flush"):
                (engine.checkpoint if what == "checkpoint" else engine.flush)()
                sure = len(groups)
            elif what == "close":
                engine.close()
                sure = len(groups)
                engine = IbbEngine(disk, options)
            elif what == "fail":
                disk.fail_at = disk.operations + 1 + value % 6
        except (DiskError, StoreFailed):
            look()
            what, value = "torn", value + 1
        if what in ("cut", "torn", "kill"):
            look()
            if what == "kill":
                disk.kill()
            else:
                disk.crash(random.Random(value) if what == "torn" else None)
            engine = IbbEngine(disk, options)
            look()
            del groups[seen:]
            sure = seen
            assert engine.binlog_state() == state_after(groups)
            assert engine.durable_end == engine.written_end
    disk.fail_at = None
    look()
