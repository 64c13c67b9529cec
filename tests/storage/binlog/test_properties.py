"""Properties of the whole store: what went in comes out, a search equals a walk, damage is told or does no harm."""

from __future__ import annotations

import contextlib
import itertools
import random
import time
from collections.abc import Sequence

import pytest
from binlog_protocol.gtid import Gtid, SlavePosition
from binlog_storage.binlog.options import StoreOptions
from binlog_storage.binlog.page_store import PageStore
from binlog_storage.binlog.store import IbbEngine
from binlog_storage.engine import BinlogEngine, Xid
from binlog_storage.errors import CorruptBinlog, CorruptRedo
from binlog_storage.ibb.chunk import Position, RecordType
from binlog_storage.ibb.file_names import file_name
from binlog_storage.ibb.page import PAGE_SIZE
from binlog_storage.ibb.records import RecordReader
from binlog_storage.log.batch_reader import WINDOW_BYTES
from binlog_storage.log.publication import PUBLICATION_NAME
from binlog_storage.redo.format import REDO_NAME
from binlog_storage.testing.memory_disk import MemoryDisk
from binlog_storage.testing.memory_engine import MemoryEngine, MemoryHistory
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.storage.groups import (
    GROUP_BYTES_MIN,
    Group,
    beginning,
    events,
    group,
    gtid_event,
    history,
    marker,
    payloads,
    read_all,
    read_from,
    state_after,
    wanted,
)
from tests.storage.sizes import small
from tests.storage.vectors import file_bytes, walk, write_file

QUICK = settings(max_examples=60, suppress_health_check=[HealthCheck.too_slow])
MANY = settings(QUICK, max_examples=1500)
FUZZ_SECONDS = (
    3.0  # of the processor, for one damaged store of a few hundred KB; it takes some milliseconds
)

near_page_ends = st.integers(-80, 80).map(lambda delta: PAGE_SIZE + delta)
sizes = st.one_of(
    st.integers(GROUP_BYTES_MIN, 400),
    near_page_ends,
    st.integers(GROUP_BYTES_MIN, 150_000),
)
all_options = st.builds(
    lambda pages, interval, cache: small(pages, 1 << interval, page_cache_bytes=cache * PAGE_SIZE),
    st.integers(4, 20),
    st.integers(1, 3),
    st.sampled_from([1, 40, 2000]),
)
# What is done to a store: append a group of that size in that domain, spill one, prepare one, flush, reopen ..
steps = st.lists(
    st.one_of(
        st.tuples(st.just("group"), st.integers(0, 2), sizes),
        st.tuples(st.just("group"), st.integers(0, 2), sizes),
        st.tuples(st.just("spill"), st.integers(0, 2), sizes),
        st.tuples(st.just("lost"), st.just(0), sizes),
        st.tuples(st.sampled_from(["xa", "xa waits"]), st.integers(0, 2), sizes),
        st.tuples(st.sampled_from(["marker", "sync", "flush", "reopen"]), st.just(0), st.just(0)),
    ),
    max_size=40,
)


class Twins:
    """The same steps on an `.ibb` store and on its plain twin."""

    def __init__(self, options: StoreOptions) -> None:
        self.options = options
        self.disk = MemoryDisk()
        self.history = MemoryHistory()
        self.engines: list[BinlogEngine] = []
        self.groups: list[Group] = []
        self._seq_nos = dict.fromkeys(range(3), 0)
        self._names = 0
        self.open()
        self.do(
            "group", 0, 100
        )  # a search from nothing may jump markers that stand before all groups

    def open(self) -> None:
        self.engines = [IbbEngine(self.disk, self.options), MemoryEngine(self.history)]

    def do(self, what: str, domain: int, size: int) -> None:
        if what in ("group", "spill"):
            self._seq_nos[domain] += 1
            made = group(Gtid(domain, 1 + size % 2, self._seq_nos[domain]), size)
            self.groups.append(made)
            assert made.gtid is not None
            head = gtid_event(made.gtid)
            for engine in self.engines:
                if what == "group":
                    engine.append(*made)
                else:
                    writer = engine.begin()
                    for at in range(len(head), len(made.payload), size // 3 + 1):
                        writer.spill(made.payload[at : at + size // 3 + 1])
                    writer.commit(head, made.gtid)
        elif what == "lost":
            for engine in self.engines:
                writer = engine.begin()
                writer.spill(b"\x41" * size)
                writer.rollback()
        elif what in ("xa", "xa waits"):
            self._prepare(domain, size, complete=what == "xa")
        elif what == "flush":
            for engine in self.engines:
                engine.flush()
        elif what == "marker":
            self.groups.append(marker(len(self.groups)))
            for engine in self.engines:
                engine.append(*self.groups[-1])
        elif what == "sync":
            for engine in self.engines:
                engine.sync()
        else:
            for engine in self.engines:
                engine.close()
            self.open()

    def _prepare(self, domain: int, size: int, *, complete: bool) -> None:
        self._names += 1
        xid = Xid(domain, b"%d" % self._names)
        for engine in self.engines:
            writer = engine.begin()
            writer.spill(events(size, str(xid)))
            writer.prepare(xid)
        if complete:
            self._seq_nos[domain] += 1
            gtid = Gtid(domain, 1, self._seq_nos[domain])
            self.groups.append(Group(gtid_event(gtid) + events(size, str(xid)), gtid))
            for engine in self.engines:
                engine.commit_prepared(xid, gtid_event(gtid), gtid)


def same(twins: Twins, positions: Sequence[SlavePosition]) -> None:
    ibb, plain = twins.engines
    everything = payloads(twins.groups)
    assert read_all(plain) == everything
    assert read_all(ibb) == everything
    assert ibb.binlog_state() == plain.binlog_state() == state_after(twins.groups)
    assert ibb.last_marker == plain.last_marker
    assert ibb.prepared() == plain.prepared()
    for at in positions:
        expected = list(wanted(everything, at, state_after(())))
        for engine in twins.engines:
            start = engine.find_start(at)
            found = read_from(engine, start.position)
            assert list(wanted(found, at, start.state)) == expected


def twins_agree(options: StoreOptions, todo: list[tuple[str, int, int]], seed: int) -> None:
    twins = Twins(options)
    for step in todo:
        twins.do(*step)
    rng = random.Random(seed)
    positions = [SlavePosition()]
    for _ in range(6):
        cut = rng.randrange(len(twins.groups) + 1)
        positions.append(state_after(twins.groups[:cut]).position())
        mixed = {g.domain_id: g for _, g in rng.sample(twins.groups, cut) if g is not None}
        positions.append(SlavePosition(mixed.values()))
    twins.do("sync", 0, 0)
    same(twins, positions)
    twins.do("reopen", 0, 0)
    same(twins, positions)


@QUICK
@given(all_options, steps, st.integers(0, 2**32))
def test_the_store_equals_its_plain_twin(
    options: StoreOptions, todo: list[tuple[str, int, int]], seed: int
) -> None:
    twins_agree(options, todo, seed)


@pytest.mark.slow
@pytest.mark.timeout(900)
@MANY
@given(all_options, steps, st.integers(0, 2**32))
def test_the_store_equals_its_plain_twin_often(
    options: StoreOptions, todo: list[tuple[str, int, int]], seed: int
) -> None:
    twins_agree(options, todo, seed)


@QUICK
@given(all_options, st.lists(sizes, min_size=1, max_size=25), st.integers(0, 2**32))
def test_any_place_between_groups_is_a_start(
    options: StoreOptions, group_sizes: list[int], seed: int
) -> None:
    groups = [group(Gtid(0, 1, n), size) for n, size in enumerate(group_sizes, 1)]
    engine = IbbEngine(MemoryDisk(), options)
    ends = [engine.append(*g) for g in groups]
    engine.sync()
    assert ends[-1] == engine.durable_end
    for count in random.Random(seed).sample(range(len(ends)), min(4, len(ends))):
        assert read_from(engine, ends[count]) == payloads(groups[count + 1 :])
    engine.close()


def test_batches_are_those_of_a_plain_walk(rng: random.Random) -> None:
    """However fast `read` is: a batch ends at the first record end outside its window, once it has a group."""
    engine = IbbEngine(MemoryDisk(), StoreOptions(64 * PAGE_SIZE, 4 * PAGE_SIZE))
    groups = history(rng, 1500, size_max=40_000)
    for number, (payload, gtid) in enumerate(groups):
        engine.append(payload, gtid)
        if number % 200 == 10:
            writer = engine.begin()
            writer.spill(b"garbage" * 50_000)
            writer.rollback()
    engine.sync()
    start = beginning(engine)
    while start < engine.durable_end:
        reader = RecordReader(engine._pages, start, engine.durable_end)
        end, count = start, 0
        while (record := reader.next()) is not None:
            end = record.end
            count += record.type == RecordType.COMMIT
            here = (end.file_no, end.offset // WINDOW_BYTES)
            if count and here != (start.file_no, start.offset // WINDOW_BYTES):
                break
        batch = engine.read(start)
        assert (batch.end, len(batch.groups)) == (end, count)
        start = end
    engine.close()


# --- damage ---


def record_ends(disk: MemoryDisk) -> set[tuple[str, int]]:
    """(file, page) of all pages at whose start a record has just ended."""
    pages = PageStore(disk, 64)
    reader = RecordReader(pages, Position(0, PAGE_SIZE))
    ends = set()
    while (record := reader.next()) is not None:
        if record.type != RecordType.GTID_STATE and not record.end.in_page:
            ends.add((file_name(record.end.file_no), record.end.page_no))
    return ends


def damaged(image: dict[str, bytes], rng: random.Random) -> dict[str, bytes]:
    """One of: flipped bits, a cut, a zeroed page, a stretch of random bytes, a zeroed rest, a missing file."""
    result = dict(image)
    name = rng.choice(sorted(result))
    data = bytearray(result[name])
    kind = rng.randrange(6)
    if kind == 0:
        for _ in range(rng.choice((1, 1, 1, 8))):
            data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    elif kind == 1:
        del data[rng.randrange(len(data)) :]
    elif kind == 2:
        at = rng.randrange(-(-len(data) // PAGE_SIZE)) * PAGE_SIZE
        data[at : at + PAGE_SIZE] = bytes(PAGE_SIZE)
    elif kind == 3:
        at = rng.randrange(len(data))
        size = rng.randrange(1, 2000)
        data[at : at + size] = rng.randbytes(size)
    elif kind == 4:
        at = rng.randrange(len(data))
        data[at:] = bytes(len(data) - at)
    else:
        del result[name]
        return result
    result[name] = bytes(data)
    return result


def read_damaged(image: dict[str, bytes]) -> tuple[list[bytes], CorruptBinlog | None]:
    disk = MemoryDisk()
    for name, data in image.items():
        write_file(disk, name, data)
    started = time.thread_time()
    outcome = walk(disk)
    assert time.thread_time() - started < FUZZ_SECONDS
    return [g.payload for g in outcome.groups], outcome.error


def rich_store(rng: random.Random) -> tuple[dict[str, bytes], set[tuple[str, int]], list[bytes]]:
    """Files, the ends of records in them, the groups: with two lists, XA transactions, garbage, FLUSH."""
    disk = MemoryDisk()
    engine = IbbEngine(disk, small(rng.choice((4, 6, 9))))
    expected = []
    for number, (payload, gtid) in enumerate(history(rng, 40, size_max=60_000)):
        what = rng.random()
        if gtid is None or what < 0.5:
            engine.append(payload, gtid)
            expected.append(payload)
            continue
        head, writer = gtid_event(gtid), engine.begin()
        statement = events(rng.choice((19, 3000)), f"statement {number}") if what < 0.7 else b""
        for data, is_statement in ((payload[len(head) :], False), (statement, True)):
            for at in range(0, len(data), 5000):
                writer.spill(data[at : at + 5000], statement=is_statement)
        if what < 0.75:
            writer.commit(head, gtid)
        elif what < 0.85:
            writer.prepare(Xid(number, b"x" * rng.randrange(65)))
            engine.commit_prepared(engine.prepared()[-1], head, gtid)
        elif what < 0.9:
            writer.rollback()
            engine.flush()
            continue
        else:
            writer.prepare(Xid(number, b"waiting"))
            continue
        expected.append(head + statement + payload[len(head) :])
    engine.close()
    image = {name: file_bytes(disk, name) for name in disk.names()}
    return image, record_ends(disk), expected


def without_redo(image: dict[str, bytes]) -> dict[str, bytes]:
    return {name: data for name, data in image.items() if name.endswith(".ibb")}


def fuzz(rng: random.Random, stores: int, damages: int) -> None:
    for _ in range(stores):
        image, ends, expected = rich_store(rng)
        image = without_redo(image)
        for _ in range(damages):
            changed = damaged(image, rng)
            if not changed:
                continue
            found, error = read_damaged(changed)
            if min(changed) != min(image):
                continue  # the first file has gone: then the rest is read, as after a purge
            cut = {n: len(d) for n, d in changed.items() if len(d) < len(image[n])}
            if any((name, size // PAGE_SIZE) in ends for name, size in cut.items()):
                continue  # cut where a record ends: known to go unnoticed
            if cut and [*map(len, found)] == [*map(len, expected[: len(found)])]:
                continue  # the rest of another group of the same length: known to go unnoticed
            assert found == expected[: len(found)], "bytes that nobody wrote"
            if error is None and len(found) < len(expected):
                # Without the store's own end nobody can tell: the tail is empty, or the last file has gone.
                last = walk_end(changed)
                assert last is not None


def walk_end(image: dict[str, bytes]) -> Position | None:
    """Where the data ends; None if something is behind it, in which case an error was due."""
    numbers = sorted(int(name[7:-4]) for name in image)
    for number, following in itertools.pairwise(numbers):
        if following != number + 1:
            return Position(number, 0)
    data = image[f"binlog-{numbers[-1]:06d}.ibb"]
    for page_no in range(1, len(data) // PAGE_SIZE):
        if not data[page_no * PAGE_SIZE]:
            return Position(numbers[-1], page_no * PAGE_SIZE)
    return Position(numbers[-1], len(data))


def test_damaged_files(rng: random.Random) -> None:
    fuzz(rng, 6, 60)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_damaged_files_often(rng: random.Random) -> None:
    fuzz(rng, 150, 150)


def test_damaged_files_open_or_are_refused(rng: random.Random) -> None:
    """Opening repairs only an end that was never whole, and refuses everything else by name."""
    for number in range(6):
        options = small(6)
        image, _, _ = rich_store(rng)
        if number % 2:
            image = without_redo(image)
        for _ in range(40):
            other = MemoryDisk()
            for name, data in damaged(image, rng).items():
                write_file(other, name, data)
            started = time.thread_time()
            with contextlib.suppress(CorruptBinlog, CorruptRedo):
                IbbEngine(other, options).close()
            assert time.thread_time() - started < FUZZ_SECONDS


@pytest.mark.parametrize("name", [REDO_NAME, PUBLICATION_NAME])
def test_a_damaged_redo_log_takes_nothing_from_a_closed_store(
    name: str, rng: random.Random
) -> None:
    """All of it is in the files, so the store opens with all, or not at all."""
    opened = refused = 0
    for _ in range(4):
        image, _, expected = rich_store(rng)
        for _ in range(30):
            other = MemoryDisk()
            changed = image | damaged({name: image[name]}, rng)
            for file, data in changed.items():
                write_file(other, file, data)
            try:
                engine = IbbEngine(other, small(6))
            except CorruptRedo:
                assert name == REDO_NAME, "what is published is no part of the store"
                refused += 1
                continue
            assert read_all(engine) == expected
            engine.close()
            opened += 1
    assert opened
    assert refused or name != REDO_NAME
