"""What has just been written as runs is read without its pages, and is what they hold."""

from __future__ import annotations

import random

import pytest
from binlog_protocol.gtid import Gtid
from binlog_storage.binlog.log_writer import LAST_RUNS_BYTES_MAX
from binlog_storage.binlog.store import IbbEngine
from binlog_storage.ibb.chunk import Position
from binlog_storage.log.batch_reader import read_batch
from binlog_storage.testing.memory_disk import MemoryDisk

from tests.storage.groups import append_run, append_step_by_step, payloads, pick_size, simple
from tests.storage.sizes import small


def of_pages(engine: IbbEngine, start: Position) -> list[bytes]:
    """All groups from a place to the durable end, as they lie on their pages."""
    groups: list[bytes] = []
    while start < engine.durable_end:
        batch = read_batch(engine._pages, start, engine.durable_end)
        groups += batch.groups
        start = batch.end
    return groups


def wanted_by(engine: IbbEngine, start: Position) -> tuple[list[bytes], Position, int]:
    """What a reader at a place gets, and how many pages that takes."""
    before = engine._pages.pages_wanted
    batch = engine.read(start)
    return batch.groups, batch.end, engine._pages.pages_wanted - before


def test_a_reader_at_the_tail_takes_no_page() -> None:
    engine = IbbEngine(MemoryDisk(), small(64, 8))
    place, seq_no = engine.durable_end, 1
    for counts in ((1,), (3,), (1, 1, 4)):  # runs that share a sync
        made = []
        for count in counts:
            run = simple(count, first=seq_no)
            append_run(engine, run)
            made += run
            seq_no += count
        assert engine.read(place).groups == [], "nothing of it is durable"
        engine.sync()
        if seq_no == 2:  # the first group of a server is none of a run
            place = engine.durable_end
            continue
        for _ in range(2):  # two readers
            assert wanted_by(engine, place) == (payloads(made), engine.durable_end, 0)
        place = engine.durable_end
    engine.close()


@pytest.mark.parametrize("between", ["group", "flush", "reset", "much", "large"])
def test_what_else_was_written_is_read_from_pages(between: str) -> None:
    engine = IbbEngine(MemoryDisk(), small(64, 8))
    engine.append(*simple(1)[0])
    engine.sync()
    start = engine.durable_end
    append_run(engine, simple(1, first=2))
    if between == "group":
        append_step_by_step(engine, simple(1, first=3, domain=1))
    elif between == "flush":
        engine.flush()
    elif between == "reset":
        engine.reset()
        start = engine.durable_end
        append_step_by_step(engine, simple(2, domain=1))
    elif between == "much":
        append_run(engine, simple(LAST_RUNS_BYTES_MAX // 1000 + 1, first=3, size=1000))
    else:
        engine.large_group_bytes = 30_000
        append_run(engine, simple(1, first=3, size=40_000))
    if between != "reset":
        append_run(engine, simple(1, first=900))
    engine.sync()
    groups, end, pages = wanted_by(engine, start)
    assert pages > 0
    assert groups, "small ones are in front"
    if between != "large":
        assert groups == of_pages(engine, start)[: len(groups)]
        assert end <= engine.durable_end
    else:
        assert engine.read(end).large is not None
    engine.close()


def test_the_same_places_of_another_binlog() -> None:
    """RESET MASTER, and groups of the same sizes at the same places that came by themselves."""
    engine = IbbEngine(MemoryDisk(), small(64, 8))
    engine.append(*simple(1)[0])
    engine.sync()
    start = engine.durable_end
    append_run(engine, simple(1, first=2))
    engine.sync()
    end = engine.durable_end
    engine.reset()
    others = simple(2, first=1001)
    append_step_by_step(engine, others[:1])
    engine.sync()
    assert engine.durable_end == start
    append_step_by_step(engine, others[1:])
    engine.sync()
    assert engine.durable_end == end, "the test is about the same places"
    assert engine.read(start).groups == payloads(others[1:])
    engine.close()


def test_any_history_is_what_its_pages_hold(rng: random.Random) -> None:
    engine = IbbEngine(MemoryDisk(), small(8, 2))
    seq_no, places, without_pages = 0, [engine.durable_end], 0
    for _ in range(400):
        count = rng.choice([1, 1, 1, 2, 5])
        groups = [
            simple(1, first=seq_no + 1 + i, size=pick_size(rng, 20_000))[0] for i in range(count)
        ]
        seq_no += count
        kind = rng.random()
        if kind < 0.8:
            while not engine.has_room:
                engine.step()
            append_run(engine, groups)
        else:
            append_step_by_step(engine, groups)
        if kind > 0.97:
            engine.flush()
        if rng.random() < 0.6:
            engine.sync()
            start = places[-1] if rng.random() < 0.8 else rng.choice(places[-4:])
            expected = of_pages(engine, start)
            got, end, pages = wanted_by(engine, start)
            assert got == expected[: len(got)]
            assert bool(got) == bool(expected)
            if not pages:
                assert end == engine.durable_end
            without_pages += not pages
            places.append(engine.durable_end)
        engine.step()
    assert without_pages > 20
    assert engine.binlog_state().has(Gtid(0, 1, seq_no))
    engine.close()
