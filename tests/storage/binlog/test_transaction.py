"""Transactions in bounded memory: sizes around the caches, savepoints around spills, against a plain list."""

from __future__ import annotations

import random
from contextlib import nullcontext

import pytest
from binlog_protocol.gtid import Gtid
from binlog_storage.binlog.store import IbbEngine
from binlog_storage.binlog.transaction import Savepoint, Transaction
from binlog_storage.engine import BinlogEngine, Xid
from binlog_storage.ibb import commit
from binlog_storage.ibb.chunk import Position, RecordType
from binlog_storage.ibb.file_header import FileHeader
from binlog_storage.ibb.file_names import file_name
from binlog_storage.ibb.page import PAGE_SIZE
from binlog_storage.ibb.records import RecordReader
from binlog_storage.testing.memory_disk import MemoryDisk
from binlog_storage.testing.memory_engine import MemoryEngine
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.storage.groups import (
    GTID_EVENT_BYTES,
    append_all,
    events,
    filler,
    group,
    gtid_event,
    read_all,
    simple,
)
from tests.storage.sizes import small
from tests.storage.vectors import file_bytes

SMALL = small()
CACHE, STATEMENT_CACHE = 200, 120
ONE = Gtid(0, 1, 1)


def transaction(engine: BinlogEngine) -> Transaction:
    return Transaction(engine, binlog_cache_size=CACHE, binlog_stmt_cache_size=STATEMENT_CACHE)


def commit_lists(engine: IbbEngine) -> list[list[int]]:
    """Numbers of nodes of the out-of-band lists of each commit record."""
    reader = RecordReader(engine._pages, Position(0, PAGE_SIZE), engine.written_end)
    found = []
    while (record := reader.next()) is not None:
        if record.type == RecordType.COMMIT:
            found.append([entry.nodes for entry in commit.decode(record.data).lists])
    return found


@pytest.mark.parametrize("size", [0, 1, CACHE - GTID_EVENT_BYTES - 1, CACHE - GTID_EVENT_BYTES])
def test_what_fits_is_one_record(size: int) -> None:
    engine = IbbEngine(MemoryDisk(), SMALL)
    one = transaction(engine)
    one.write(filler(size, "x"))
    assert one.memory_bytes == size
    one.commit(gtid_event(ONE), ONE)
    assert commit_lists(engine) == [[]]
    engine.sync()
    assert read_all(engine) == [gtid_event(ONE) + filler(size, "x")]


@pytest.mark.by_turns(4)
@pytest.mark.parametrize(
    "size", [*range(CACHE - 40, CACHE + 3), *range(2 * CACHE - 1, 2 * CACHE + 2), 1000, 1001]
)
@pytest.mark.parametrize("pieces", [1, 7])
def test_sizes_around_the_cache(size: int, pieces: int) -> None:
    """Too large with its GTID event, or for the cache itself: out of band, and only the GTID event in the record.

    What comes at once behind a full cache is one piece, but for a rest that the cache takes.
    """
    engine = IbbEngine(MemoryDisk(), SMALL)
    data = filler(size, "x")
    one = transaction(engine)
    for number in range(pieces):
        one.write(data[size * number // pieces : size * (number + 1) // pieces])
        assert one.memory_bytes <= CACHE
    one.commit(gtid_event(ONE), ONE)
    fits = size + GTID_EVENT_BYTES <= CACHE
    nodes = -(-size // CACHE)
    assert commit_lists(engine) == ([[]] if fits else [[nodes if pieces > 1 else min(nodes, 3)]])
    engine.sync()
    assert read_all(engine) == [gtid_event(ONE) + data]


class Counted:
    """Temporary space with a limit."""

    def __init__(self, limit: int) -> None:
        self.limit, self.used = limit, 0

    def take(self, size: int, *, is_limited: bool) -> None:
        if is_limited and self.used + size > self.limit:
            raise OverflowError("too much")
        self.used += size

    def give_back(self, size: int) -> None:
        self.used -= size


@pytest.mark.parametrize("size", [CACHE + 1, 2 * CACHE, 2 * CACHE + 1, 7 * CACHE, 7 * CACHE + 1])
@pytest.mark.parametrize("transactional", [True, False])
def test_temporary_space_is_of_what_the_cache_does_not_take(size: int, transactional: bool) -> None:
    """However it comes: at once or in pieces the same bytes are spilled, and the limit is met at the same one."""
    cache = CACHE if transactional else STATEMENT_CACHE
    spilled = (size - 1) // cache * cache
    for limit in (spilled, spilled - 1):
        for piece in (size, 7):
            engine, space = IbbEngine(MemoryDisk(), SMALL), Counted(limit)
            one = Transaction(
                engine, binlog_cache_size=CACHE, binlog_stmt_cache_size=STATEMENT_CACHE, space=space
            )
            data = memoryview(filler(size, "x"))
            with pytest.raises(OverflowError) if limit < spilled else nullcontext():
                for at in range(0, size, piece):
                    one.write(bytes(data[at : at + piece]), transactional=transactional)
                assert space.used == spilled
            one.rollback()
            assert space.used == 0


@pytest.mark.parametrize("statement", [0, 50, STATEMENT_CACHE, STATEMENT_CACHE + 1, 500])
@pytest.mark.parametrize("transactional", [0, 50, CACHE, CACHE + 1, 900])
def test_both_caches(statement: int, transactional: int) -> None:
    engine = IbbEngine(MemoryDisk(), SMALL)
    one = transaction(engine)
    one.write(filler(transactional, "t"))
    one.write(filler(statement, "s"), transactional=False)
    assert one.memory_bytes <= CACHE + STATEMENT_CACHE
    one.commit(gtid_event(ONE), ONE)
    lists = commit_lists(engine)[0]
    too_much = statement + transactional + GTID_EVENT_BYTES > CACHE
    spilled = too_much or statement > STATEMENT_CACHE
    assert len(lists) == (bool(statement) + bool(transactional) if spilled else 0)
    engine.sync()
    expected = gtid_event(ONE) + filler(statement, "s") + filler(transactional, "t")
    assert read_all(engine) == [expected]


@pytest.mark.by_turns(3)
@pytest.mark.parametrize("before", [0, 1, CACHE - 1, CACHE, CACHE + 1, 2 * CACHE, 3 * CACHE + 7])
@pytest.mark.parametrize("after", [0, 1, CACHE - 1, CACHE, CACHE + 1, 3 * CACHE])
def test_a_savepoint_at_every_place(before: int, after: int) -> None:
    engine = IbbEngine(MemoryDisk(), SMALL)
    one = transaction(engine)
    one.write(filler(before, "kept"))
    savepoint = one.savepoint()
    for turn in range(3):  # the savepoint stays, and may be gone back to again
        one.write(filler(after, f"lost {turn}"))
        one.write(b"s%d" % turn, transactional=False)
        one.rollback_to(savepoint)
    one.write(b"end")
    one.commit(gtid_event(ONE), ONE)
    engine.sync()
    assert read_all(engine) == [gtid_event(ONE) + b"s0s1s2" + filler(before, "kept") + b"end"]


def test_savepoints_in_each_other() -> None:
    engine = IbbEngine(MemoryDisk(), SMALL)
    one = transaction(engine)
    one.write(b"a")
    outer = one.savepoint()
    one.write(b"b" * 150)
    inner = one.savepoint()
    one.write(b"c" * 150)  # spilled: cut at both
    one.rollback_to(inner)
    one.write(b"d")
    one.rollback_to(outer)
    with pytest.raises(ValueError, match="not in list"):
        one.rollback_to(inner)
    one.write(b"e")
    one.commit(gtid_event(ONE), ONE)
    engine.sync()
    assert read_all(engine) == [gtid_event(ONE) + b"ae"]


def test_a_released_savepoint_is_forgotten_and_cuts_no_piece() -> None:
    engine = IbbEngine(MemoryDisk(), SMALL)
    one = transaction(engine)
    kept = one.savepoint()
    for number in range(20):
        inner = one.savepoint()
        one.write(filler(60, f"{number}"))
        one.release(inner)
        assert one._savepoints == [kept]
        with pytest.raises(ValueError, match="not in list"):
            one.rollback_to(inner)
    later = one.savepoint()
    one.write(b"x" * 150)
    one.release(kept)  # one that is spilled, in front of others
    one.write(b"y" * 150)
    one.rollback_to(later)
    one.write(b"end")
    one.commit(gtid_event(ONE), ONE)
    engine.sync()
    wanted = b"".join(filler(60, f"{number}") for number in range(20)) + b"end"
    assert read_all(engine) == [gtid_event(ONE) + wanted]


def test_a_group_that_was_spilled_and_taken_back_is_plain() -> None:
    engine = IbbEngine(MemoryDisk(), SMALL)
    one = transaction(engine)
    savepoint = one.savepoint()
    one.write(filler(900, "lost"))
    one.rollback_to(savepoint)
    one.write(b"small")
    one.commit(gtid_event(ONE), ONE)
    assert commit_lists(engine) == [[]]
    engine.sync()
    assert read_all(engine) == [gtid_event(ONE) + b"small"]


def test_rollback_leaves_garbage_that_nobody_reaches() -> None:
    engine = IbbEngine(MemoryDisk(), SMALL)
    for number in range(20):
        lost = transaction(engine)
        lost.write(filler(5000, f"lost {number}"))
        lost.rollback()
        assert lost.memory_bytes == 0
        engine.append(*group(Gtid(0, 1, number + 1)))
    engine.close()
    engine = IbbEngine(engine._disk, SMALL)
    assert read_all(engine) == [g.payload for g in simple(20, size=57)]


def test_two_transactions_interleaved(rng: random.Random) -> None:
    engine = IbbEngine(MemoryDisk(), SMALL)
    open_ = [(Gtid(domain, 1, 1), transaction(engine)) for domain in range(3)]
    data = [b"", b"", b""]
    for turn in range(60):
        at = rng.randrange(3)
        piece = events(rng.choice((19, 150, 3000)), f"{turn}")
        data[at] += piece
        open_[at][1].write(piece)
    for gtid, one in reversed(open_):
        one.commit(gtid_event(gtid), gtid)
    engine.sync()
    expected = [gtid_event(gtid) + data[gtid.domain_id] for gtid, _ in reversed(open_)]
    assert read_all(engine) == expected


def test_prepared_out_of_the_caches() -> None:
    engine = IbbEngine(MemoryDisk(), SMALL)
    one = transaction(engine)
    one.write(b"small")
    one.prepare(Xid(1, b"x"))
    engine.commit_prepared(Xid(1, b"x"), gtid_event(ONE), ONE)
    engine.sync()
    assert read_all(engine) == [gtid_event(ONE) + b"small"]


# --- the first file of an open group ---


def oob_refs(disk: MemoryDisk, engine: IbbEngine) -> list[int]:
    engine.sync()
    found = []
    for number in range(sum(file_name(file.number) in disk.names() for file in engine.files())):
        header = FileHeader.parse(file_bytes(disk, file_name(number))[:PAGE_SIZE], number)
        assert header is not None
        found.append(header.oob_ref)
    return found


def test_the_first_file_is_held_from_before_node_0() -> None:
    """Node 0 itself crosses into file 1: its header says 0 already. Small transactions in memory hold nothing."""
    disk = MemoryDisk()
    engine = IbbEngine(disk, SMALL)
    one = Transaction(engine, binlog_cache_size=16_000)
    idle = transaction(engine)
    idle.write(b"in memory only")
    append_all(engine, simple(3, size=16_000))
    one.write(filler(17_000, "node 0"))  # of 16000 bytes, with some 1000 left in file 0
    assert engine.written_end.file_no == 1
    append_all(engine, simple(4, first=4, size=30_000))
    one.rollback()
    append_all(engine, simple(6, first=8, size=30_000))
    refs = oob_refs(disk, engine)
    assert refs[:3] == [0, 0, 0]
    assert refs[-2:] == [len(refs) - 2, len(refs) - 1]
    idle.rollback()


def test_savepoints_do_not_let_go_of_the_first_file() -> None:
    disk = MemoryDisk()
    engine = IbbEngine(disk, SMALL)
    one = transaction(engine)
    savepoint = one.savepoint()
    one.write(filler(500, "lost"))
    one.rollback_to(savepoint)
    engine.flush()
    one.write(filler(500, "kept"))
    engine.flush()
    assert oob_refs(disk, engine) == [0, 0, 0]
    one.commit(gtid_event(ONE), ONE)
    engine.flush()
    assert oob_refs(disk, engine) == [0, 0, 0, 3]


# --- against a plain list ---

steps = st.lists(
    st.one_of(
        st.tuples(st.sampled_from(["write", "write", "statement"]), st.integers(19, 500)),
        st.tuples(st.sampled_from(["savepoint", "back", "release"]), st.integers(0, 10)),
    ),
    max_size=40,
)
caches = st.sampled_from([1, 50, 200, 4096])
QUICK = settings(max_examples=100, suppress_health_check=[HealthCheck.too_slow])


def check_model(todo: list[tuple[str, int]], cache: int, statement_cache: int) -> None:
    engines: list[BinlogEngine] = [IbbEngine(MemoryDisk(), SMALL), MemoryEngine()]
    both = [
        Transaction(e, binlog_cache_size=cache, binlog_stmt_cache_size=statement_cache)
        for e in engines
    ]
    statement, data = b"", b""
    savepoints: list[tuple[list[Savepoint], bytes]] = []
    for number, (what, size) in enumerate(todo):
        piece = events(max(size, 19), f"{number}")
        if what == "savepoint":
            savepoints.append(([one.savepoint() for one in both], data))
        elif what == "back" and savepoints:
            at = size % len(savepoints)
            del savepoints[at + 1 :]
            marks, data = savepoints[at]
            for one, mark in zip(both, marks, strict=True):
                one.rollback_to(mark)
        elif what == "release" and savepoints:
            marks, _ = savepoints.pop(size % len(savepoints))
            for one, mark in zip(both, marks, strict=True):
                one.release(mark)
        elif what == "write":
            data += piece
            for one in both:
                one.write(piece)
        elif what == "statement":
            statement += piece
            for one in both:
                one.write(piece, transactional=False)
        for one in both:
            assert one.memory_bytes <= cache + statement_cache
    for engine, one in zip(engines, both, strict=True):
        one.commit(gtid_event(ONE), ONE)
        engine.sync()
        assert read_all(engine) == [gtid_event(ONE) + statement + data]


@pytest.mark.long
@QUICK
@given(steps, caches, caches)
def test_any_steps(todo: list[tuple[str, int]], cache: int, statement_cache: int) -> None:
    check_model(todo, cache, statement_cache)


@pytest.mark.slow
@pytest.mark.timeout(900)
@settings(QUICK, max_examples=3000)
@given(steps, caches, caches)
def test_any_steps_often(todo: list[tuple[str, int]], cache: int, statement_cache: int) -> None:
    check_model(todo, cache, statement_cache)
