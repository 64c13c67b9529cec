"""The search for a replica's start: equal to MariaDB's plain walk, whatever the history, and with few pages read."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Sequence
from pathlib import Path

import pytest
from binlog_protocol.gtid import BinlogState, Gtid, SlavePosition
from binlog_storage.binlog.options import StoreOptions
from binlog_storage.binlog.store import IbbEngine
from binlog_storage.disk.disk import OsDisk
from binlog_storage.disk.state import BREAKS_KEY, KNOWS_BREAKS_KEY, StateStore
from binlog_storage.errors import CorruptBinlog, DiskError, DomainInUse, PositionPurged, StoreFailed
from binlog_storage.ibb import commit, gtid_state
from binlog_storage.ibb.chunk import CHUNK_HEADER, LAST, Position, RecordType
from binlog_storage.ibb.file_header import FileHeader
from binlog_storage.ibb.file_names import file_name
from binlog_storage.ibb.page import PAGE_SIZE, seal
from binlog_storage.log import search
from binlog_storage.log.log_file import first_record, read_state
from binlog_storage.redo.format import REDO_NAME
from binlog_storage.testing.memory_disk import MemoryDisk

from tests.storage.disks import MortalDisk
from tests.storage.groups import append_all, group, pick_size, simple
from tests.storage.plain_pages import chunk
from tests.storage.sizes import small

SMALL = small(8, slave_connections_needed_for_purge=0)


# --- the plain walk ---


def page_one(engine: IbbEngine, file_no: int) -> BinlogState:
    return BinlogState(read_state(engine._pages, file_no, 1) or [])


def plain_walk(engine: IbbEngine, at: SlavePosition) -> tuple[int, int] | None:
    """(file, page) by MariaDB's words: from the newest file down, then by halves inside of it."""
    durable = engine.durable_end
    files = [n for n in engine._pages.files.numbers() if Position(n, PAGE_SIZE) < durable]
    for file_no in reversed(files):
        full = page_one(engine, file_no)
        if not full.is_before(at):
            continue
        header = engine._pages.header(file_no)
        size = engine._pages.files.size(file_no)
        assert header is not None
        assert size is not None
        interval = header.state_interval_pages
        end = (
            (durable.offset - 1) // PAGE_SIZE + 1
            if file_no == durable.file_no
            else size // PAGE_SIZE
        )
        low, high = 0, -(-end // interval) * interval
        while True:
            middle = low + (high - low) // (2 * interval) * interval
            entries = None
            while middle >= low + interval and middle > 1:
                entries = read_state(engine._pages, file_no, middle)
                if entries is not None:
                    break
                middle -= interval
            if entries is None:
                return file_no, max(low, 1)
            state = full.copy()
            state.overlay(entries)
            if state.is_before(at):
                low = middle
            else:
                high = middle
    return None


def bisected(
    engine: IbbEngine, at: SlavePosition, breaks: Sequence[int] | None
) -> tuple[Position, BinlogState] | None:
    try:
        return search.find_start(
            engine._pages.probing(),
            engine._pages.files.numbers(),
            engine._shape,
            at,
            engine.durable_end,
            breaks,
        )
    except PositionPurged:
        return None


def strange_history(rng: random.Random, engine: IbbEngine) -> list[SlavePosition]:
    """Appends; seq_nos go back, domains are deleted, files purged. Returns positions that replicas may have."""
    seq_nos: dict[int, int] = dict.fromkeys(range(3), 0)
    positions = [SlavePosition()]
    calm = rng.random() < 0.3
    for _ in range(rng.randrange(20, 250)):
        domain = rng.randrange(3)
        what = rng.random()
        if what < 0.03 and not calm:
            seq_nos[domain] = max(0, seq_nos[domain] - rng.randrange(30))
        elif what < 0.06:
            try:
                engine.flush([domain] if rng.random() < 0.5 and not calm else ())
            except DomainInUse:
                engine.flush()
        elif what < 0.075:
            engine.purge_to(
                engine.written_end.file_no if rng.random() < 0.6 else engine.files()[0].number
            )
        elif what < 0.09:
            engine.sync()
        seq_nos[domain] += 1
        gtid = Gtid(domain, 1 + rng.randrange(2), seq_nos[domain])
        engine.append(*group(gtid, pick_size(rng, 30_000)))
        if rng.random() < 0.2:
            positions.append(engine.binlog_state().position())
    for _ in range(15):
        mixed = {g.domain_id: g for q in rng.sample(positions, min(3, len(positions))) for g in q}
        positions.append(SlavePosition(mixed.values()))
        some = rng.sample(sorted(mixed.values()), rng.randrange(len(mixed) + 1))
        positions.append(SlavePosition(some))
    engine.sync()
    return positions


def same_as_the_walk(rng: random.Random, rounds: int) -> tuple[int, int]:
    """Returns how many positions were found, and how many of the stores had a break."""
    found_count, broken = 0, 0
    for _ in range(rounds):
        disk = MemoryDisk()
        facts = StateStore(disk)
        engine = IbbEngine(disk, SMALL, facts=facts)
        positions = strange_history(rng, engine)
        if rng.random() < 0.3:
            engine.close()
            engine = IbbEngine(disk, SMALL, facts=StateStore(disk))
        breaks = engine._breaks.known()
        broken += bool(breaks)
        for at in positions:
            walked = plain_walk(engine, at)
            known, unknown = bisected(engine, at, breaks), bisected(engine, at, None)
            assert known == unknown, f"{at}: breaks {breaks}"
            assert (known is None) == (walked is None), f"{at}: breaks {breaks}"
            if walked is not None and known is not None:
                found_count += 1
                file_no, page_no = walked
                # the first record behind the state record of that page, wherever that one ends
                expected = first_record(
                    engine._pages, Position(file_no, page_no * PAGE_SIZE), engine.durable_end
                )
                assert known[0] == expected, f"{at}: breaks {breaks}, walked to {walked}"
                assert known[1].is_before(at)
                start = engine.find_start(at)
                assert (start.position, start.state) == known
        engine.close()
    return found_count, broken


def test_the_search_equals_the_walk(rng: random.Random) -> None:
    found, broken = same_as_the_walk(rng, 25)
    assert found > 100
    assert broken > 5


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_the_search_equals_the_walk_often(rng: random.Random) -> None:
    same_as_the_walk(rng, 600)


# --- breaks ---


def unnoted_breaks(engine: IbbEngine, breaks: Sequence[int]) -> list[int]:
    """Files whose page-1 state is not that of the file before, grown, and of which nobody knows."""
    files = [n for n in engine._pages.files.numbers() if engine._pages.has_data(n)]
    found = []
    for number in files[1:]:
        before, after = page_one(engine, number - 1), page_one(engine, number)
        shrunk = any(
            (after.get(g.domain_id, g.server_id) or -1) < g.seq_no for g in before.entries()
        )
        if shrunk and number not in breaks:
            found.append(number)
    return found


def test_breaks_are_durable_before_their_file(rng: random.Random) -> None:
    seed = rng.randrange(1 << 30)

    def run(disk: MemoryDisk) -> int:
        with contextlib.suppress(DiskError, StoreFailed):
            engine = IbbEngine(disk, SMALL, facts=StateStore(disk))
            strange_history(random.Random(seed), engine)
            return len(engine._breaks.known() or ())
        return 0

    whole = MemoryDisk()
    while run(whole) < 2:
        seed += 1
        whole = MemoryDisk()
    for stop in range(1, whole.operations + 2, 3):
        disk = MemoryDisk()
        disk.fail_at = stop
        run(disk)
        disk.crash(rng if stop % 2 else None)
        facts = StateStore(disk)
        engine = IbbEngine(disk, SMALL, facts=facts)
        breaks = engine._breaks.known()
        assert breaks is not None
        assert unnoted_breaks(engine, breaks) == [], f"crash at {stop}, known {breaks}"
        engine.close()


def test_breaks_are_forgotten_with_their_files() -> None:
    disk = MemoryDisk()
    facts = StateStore(disk)
    engine = IbbEngine(disk, SMALL, facts=facts)
    for turn in range(4):
        append_all(engine, simple(3))  # from 1 again, each time
        engine.flush()
        assert engine._breaks.known() == list(range(2, turn + 2))
    engine.purge_to(4)
    append_all(engine, simple(1))
    engine.flush()
    assert engine._breaks.known() == [5]
    engine.reset()
    assert engine._breaks.known() == []
    engine.close()


def broken_store(disk: MemoryDisk) -> IbbEngine:
    """Files 2 to 4 are breaks."""
    engine = IbbEngine(disk, SMALL, facts=StateStore(disk))
    for _ in range(4):
        append_all(engine, simple(3))  # from 1 again, each time
        engine.flush()
    assert engine._breaks.known() == [2, 3, 4]
    return engine


def test_breaks_that_an_older_version_has_kept_become_rows(rng: random.Random) -> None:
    old = MemoryDisk()
    engine = IbbEngine(old, SMALL, facts=StateStore(old))
    for seq_no in range(4):
        append_all(engine, simple(3, first=1 + 3 * seq_no))
        engine.flush()
    engine.close()
    StateStore(old).update({KNOWS_BREAKS_KEY: None, BREAKS_KEY: [2, 3]})
    whole = MemoryDisk(old.contents())
    IbbEngine(whole, SMALL, facts=StateStore(whole)).close()
    facts = StateStore(whole)
    assert (facts.get(KNOWS_BREAKS_KEY), facts.get(BREAKS_KEY)) == (True, None)
    for stop in range(1, whole.operations + 2):
        disk = MemoryDisk(old.contents())
        disk.fail_at = stop
        with contextlib.suppress(DiskError, StoreFailed):
            IbbEngine(disk, SMALL, facts=StateStore(disk)).close()
        disk.crash(rng if stop % 2 else None)
        engine = IbbEngine(disk, SMALL, facts=StateStore(disk))
        assert engine._breaks.known() == [2, 3], f"crash at {stop}"
        engine.close()


def test_reset_forgets_breaks_with_the_first_step_of_the_new_binlog(rng: random.Random) -> None:
    old = MemoryDisk()
    broken_store(old).close()
    whole = MemoryDisk(old.contents())
    engine = IbbEngine(whole, SMALL, facts=StateStore(whole))
    engine.reset()
    engine.close()
    seen = set()
    for stop in range(1, whole.operations + 2):
        disk = MemoryDisk(old.contents())
        disk.fail_at = stop
        with contextlib.suppress(DiskError, StoreFailed):
            engine = IbbEngine(disk, SMALL, facts=StateStore(disk))
            engine.reset()
            engine.close()
        disk.crash(rng if stop % 2 else None)
        engine = IbbEngine(disk, SMALL, facts=StateStore(disk))
        known = engine._breaks.known()
        assert known in ([], [2, 3, 4]), f"crash at {stop}"
        if known:
            assert engine.facts.binlog_age == 0
        seen.add(len(known))
        assert unnoted_breaks(engine, known) == []
        engine.close()
    assert seen == {0, 3}


def test_without_their_redo_log_breaks_are_unknown() -> None:
    disk = MemoryDisk()
    broken_store(disk).close()
    disk.unlink(REDO_NAME)
    engine = IbbEngine(
        disk,
        small(8, slave_connections_needed_for_purge=0, innodb_force_recovery=6),
        facts=StateStore(disk),
    )
    assert engine._breaks.known() is None
    engine.close()
    engine = IbbEngine(disk, SMALL, facts=StateStore(disk))
    assert engine._breaks.known() is None
    engine.reset()
    assert engine._breaks.known() == []
    engine.close()


def test_a_directory_that_nobody_watched_has_unknown_breaks() -> None:
    disk = MemoryDisk()
    engine = IbbEngine(disk, SMALL)
    for _ in range(3):
        append_all(engine, simple(3))
        engine.flush()
    engine.close()
    facts = StateStore(disk)
    engine = IbbEngine(disk, SMALL, facts=facts)
    append_all(engine, simple(3))
    engine.flush()
    assert engine._breaks.known() is None, "one break that is known says nothing of the others"
    engine.close()


# --- pages read ---

LARGE_PAGES = 4096  # 64 MiB
INTERVAL = 128
FILES = 100


def make_large_store(directory: Path, files: int) -> None:
    """Sparse files: headers, page-1 states, and at each interval a state record with one group behind it."""
    seq_no = 0
    for file_no in range(files):
        last = file_no == files - 1
        header = FileHeader(file_no, LARGE_PAGES, 0, INTERVAL, file_no)
        with (directory / file_name(file_no)).open("wb") as file:
            file.truncate(LARGE_PAGES * PAGE_SIZE)
            file.write(header.build())
            full = [Gtid(0, 1, seq_no)] if seq_no else []
            for page_no in [1] if last else [1, *range(INTERVAL, LARGE_PAGES, INTERVAL)]:
                state = full if page_no == 1 else [Gtid(0, 1, seq_no)]
                seq_no += 1000
                page = bytearray(PAGE_SIZE)
                data = chunk(RecordType.GTID_STATE, gtid_state.encode(BinlogState(state)))
                payload, _ = group(Gtid(0, 1, seq_no))
                data += chunk(RecordType.COMMIT, commit.encode(payload))
                page[: len(data)] = data
                file.seek(page_no * PAGE_SIZE)
                file.write(seal(page))


def test_pages_read_by_a_search(tmp_path: Path, rng: random.Random) -> None:
    """100 files of 64 MiB: at most 40 pages, headers and all; then at most one interval is scanned."""
    assert LAST | RecordType.COMMIT == 0x41
    assert CHUNK_HEADER == 3
    make_large_store(tmp_path, FILES)
    disk = OsDisk(tmp_path)
    facts = StateStore(disk)
    facts.set(BREAKS_KEY, [])
    IbbEngine(disk, StoreOptions(LARGE_PAGES * PAGE_SIZE), facts=facts).close()
    last = (FILES - 1) * 32 * 1000 + 1000  # the newest file has its first state only
    worst = 0
    for seq_no in [0, 1, 999, 1000, last // 2, *(rng.randrange(last) for _ in range(12))]:
        disk = MortalDisk(tmp_path)
        engine = IbbEngine(disk, StoreOptions(LARGE_PAGES * PAGE_SIZE), facts=facts)
        before = engine._pages.pages_read
        start = engine.find_start(SlavePosition([Gtid(0, 1, seq_no)] if seq_no else []))
        worst = max(worst, engine._pages.pages_read - before)
        found = start.state.get(0, 1) or 0
        assert found <= seq_no < found + 1000, "more than one interval would be scanned"
        disk.die()
    assert worst <= 40
    assert worst > 5, "that cannot be all"


def test_a_lost_state_is_damage_and_not_an_empty_one() -> None:
    """An empty state comes before every position: groups would be passed over without a word."""
    disk = MemoryDisk()
    engine = IbbEngine(disk, SMALL)
    groups = simple(400, size=900)
    append_all(engine, groups)
    engine.close()
    file = disk.open(file_name(1))
    file.pwrite(bytes(PAGE_SIZE), PAGE_SIZE)
    file.close()
    engine = IbbEngine(disk, SMALL)
    early = groups[2][1]
    assert early is not None
    with pytest.raises(CorruptBinlog, match="no GTID state at the beginning"):
        engine.find_start(SlavePosition([early]))
    engine.close()
