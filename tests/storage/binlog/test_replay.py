"""Redo applied to files: which file it belongs to, no gaps, nothing behind its end, and torn pages made anew."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

import pytest
from binlog_protocol.gtid import Gtid
from binlog_storage.binlog.replay import match_first, plan_replay
from binlog_storage.binlog.store import IbbEngine
from binlog_storage.errors import CorruptBinlog, CorruptRedo
from binlog_storage.ibb import commit
from binlog_storage.ibb.chunk import CHUNK_DATA_MAX, Position, RecordType
from binlog_storage.ibb.file_header import FIELDS_BYTES, FileHeader
from binlog_storage.ibb.file_names import file_name
from binlog_storage.ibb.page import PAGE_END, PAGE_SIZE, is_sound, seal
from binlog_storage.redo import log as redo_log
from binlog_storage.redo.format import RING_AT
from binlog_storage.redo.log import FIRST_LSN
from binlog_storage.testing.memory_disk import MemoryDisk

from tests.storage.groups import (
    append_all,
    group,
    opens_with,
    payloads,
    read_all,
    simple,
    state_after,
)
from tests.storage.plain_pages import chunk
from tests.storage.redo.logs import UUID, cut, opened, unlogged, write
from tests.storage.redo.recording import Recording
from tests.storage.sizes import small
from tests.storage.vectors import file_bytes, write_file

# --- match_first: to which file the first record belongs, row by row ---

# name: (parity, page, offset, lsn) of the record, last file, start LSNs of it and of those before, the file
MATCHES: dict[str, tuple[tuple[int, int, int, int], int, list[int | None], int]] = {
    "one file, its own": ((0, 1, 0, 500), 4, [100], 4),
    "one file, the next is to be made again": ((1, 0, 0, 500), 4, [100], 5),
    "one file, the next, at its very start": ((1, 0, 0, 100), 4, [100], 5),
    "one file, other parity, older": ((1, 0, 0, 99), 4, [100], 4),
    "one file, other parity, page 1": ((1, 1, 0, 500), 4, [100], 4),
    "one file, other parity, mid-page": ((1, 0, 64, 500), 4, [100], 4),
    "two files, of the last": ((0, 3, 0, 200), 4, [200, 100], 4),
    "two files, before the last began": ((0, 3, 0, 199), 4, [200, 100], 3),
    "two files, of the one before": ((1, 3, 0, 150), 4, [200, 100], 3),
    "two files, other parity, later": ((1, 0, 0, 500), 4, [200, 100], 3),
    "the last is empty, it begins": ((0, 0, 0, 150), 4, [None, 100], 4),
    "the last is empty, begins at once": ((0, 0, 0, 100), 4, [None, 100], 4),
    "the last is empty, of the one before": ((1, 2, 0, 150), 4, [None, 100], 3),
    "the last is empty, page 1": ((0, 1, 0, 150), 4, [None, 100], 3),
    "the last is empty, mid-page": ((0, 0, 64, 150), 4, [None, 100], 3),
    "the last is empty, older": ((0, 0, 0, 99), 4, [None, 100], 3),
    "the last two are empty, the first of them begins": ((1, 0, 0, 150), 4, [None, None, 100], 3),
    "the last two are empty, of the third": ((0, 5, 0, 150), 4, [None, None, 100], 2),
    "three files, the last two count": ((0, 3, 0, 300), 4, [300, 200, 100], 4),
    "three files, the third is not asked": ((0, 3, 0, 250), 4, [300, 200, 100], 3),
}


@pytest.mark.parametrize("name", MATCHES)
def test_match_first(name: str) -> None:
    record, last, start_lsns, expected = MATCHES[name]
    assert match_first(*record, last, start_lsns) == expected


@pytest.mark.parametrize(
    ("start_lsns", "words"),
    [
        ([None], "is empty, and there is no other file"),
        ([None, None], "Last 3 binlog tablespace files are all empty"),
        ([None, None, None], "Last 3 binlog tablespace files are all empty"),
    ],
)
def test_no_file_to_match(start_lsns: Sequence[int | None], words: str) -> None:
    with pytest.raises(CorruptRedo, match=words):
        match_first(0, 0, 0, 500, 4, start_lsns)


# --- a file of four pages, of which 100 bytes of page 1 are there, and what the redo does to it ---

PAGES = 4
AT = 100
FULL = PAGE_END
OLD = b"\x41" * AT
BEGIN = Position(0, PAGE_SIZE + AT)
LSN = FIRST_LSN


def header(file_no: int, lsn: int = LSN) -> bytes:
    return FileHeader(file_no, PAGES, lsn, 2, file_no).build()


def page(data: bytes) -> bytes:
    return seal(bytearray(data.ljust(PAGE_SIZE, b"\0")))


def scene(*mtrs: bytes, files: dict[int, bytes] | None = None) -> MemoryDisk:
    """The file, and a log with a checkpoint at its end, and these mini-transactions behind it."""
    disk = MemoryDisk()
    first = (header(0, 0) + page(OLD)).ljust(PAGES * PAGE_SIZE, b"\0")
    for number, data in {0: first, **(files or {})}.items():
        write_file(disk, file_name(number), data)
    redo_log.make(disk, uuid=UUID, size=RING_AT + (1 << 20), epoch=0, lsn=LSN, end=BEGIN)
    log = opened(disk)
    log.begin(BEGIN)
    for body in mtrs:
        with log._lock:
            log.append(body)
    log.flush()
    log.close()
    return disk


def apply(disk: MemoryDisk) -> Position | None:
    log = opened(disk)
    try:
        replay = plan_replay(disk, log)
        replay.apply()
        return replay.end
    finally:
        log.close()


def whole(page_no: int, fill: bytes = b"\x42", parity: int = 0) -> bytes:
    """The redo of a page that is full."""
    return write(page_no, 0, fill * FULL, parity)


MORE = OLD + b"\x43" * 50
AGAIN = write(1, 0, MORE)  # the partial page, logged again with more in it
NEXT = write(0, 0, header(1)[:FIELDS_BYTES], 1)
STATE = write(1, 0, chunk(RecordType.GTID_STATE, b"\0" * 2), 1)


def test_nothing_to_do() -> None:
    disk = scene()
    before = disk.contents()
    assert apply(disk) == BEGIN
    assert disk.contents() == before


OOB = b"\x83" + CHUNK_DATA_MAX.to_bytes(2, "little")  # with zeros, where nobody needs what it held

# name: (mini-transactions, where the data ends, (file, page) -> what stands on it)
APPLIED: dict[str, tuple[list[bytes], Position, dict[tuple[int, int], bytes]]] = {
    "more on the page": ([AGAIN], Position(0, PAGE_SIZE + 150), {(0, 1): MORE}),
    "in two records": (
        [AGAIN + write(1, 150, b"xyz")],
        Position(0, PAGE_SIZE + 153),
        {(0, 1): MORE + b"xyz"},
    ),
    "in two mini-transactions": (
        [AGAIN, write(1, 150, b"xyz")],
        Position(0, PAGE_SIZE + 153),
        {(0, 1): MORE + b"xyz"},
    ),
    "logged whole once more": (
        [AGAIN, write(1, 150, b"xyz"), write(1, 0, MORE + b"xyz!")],
        Position(0, PAGE_SIZE + 154),
        {(0, 1): MORE + b"xyz!"},
    ),
    "the next page": (
        [whole(1) + write(2, 0, b"abc")],
        Position(0, 2 * PAGE_SIZE + 3),
        {(0, 1): b"\x42" * FULL, (0, 2): b"abc"},
    ),
    "to the end of the file": (
        [whole(1) + whole(2) + whole(3)],
        Position(0, 3 * PAGE_SIZE + FULL),
        {(0, 3): b"\x42" * FULL},
    ),
    "the next file": (
        [whole(1) + whole(2) + whole(3) + NEXT + STATE, write(1, 5, b"data", 1)],
        Position(1, PAGE_SIZE + 9),
        {(1, 0): header(1)[:FULL], (1, 1): b"\x42\x02\0\0\0data"},
    ),
    "the next file, behind pages that are not logged": (
        [whole(1) + unlogged(2, 2) + NEXT + STATE],
        Position(1, PAGE_SIZE + 5),
        {(0, 2): OOB, (0, 3): OOB, (1, 1): b"\x42\x02\0\0\0"},
    ),
    "pages that are not logged": (
        [whole(1) + unlogged(2, 1) + write(3, 0, b"end")],
        Position(0, 3 * PAGE_SIZE + 3),
        {(0, 2): OOB, (0, 3): b"end"},
    ),
    "pages that are not logged, to the end": (
        [whole(1), unlogged(2, 2)],
        Position(0, 3 * PAGE_SIZE + FULL),
        {(0, 2): OOB, (0, 3): OOB},
    ),
    "cut, and the next file": (
        [whole(1) + cut(2) + NEXT + STATE],
        Position(1, PAGE_SIZE + 5),
        {(0, 1): b"\x42" * FULL, (1, 1): b"\x42\x02\0\0\0"},
    ),
}


def check_applied(disk: MemoryDisk, name: str) -> None:
    _, end, pages = APPLIED[name]
    assert apply(disk) == end
    for (file_no, page_no), data in pages.items():
        there = file_bytes(disk, file_name(file_no))[page_no * PAGE_SIZE :][:PAGE_SIZE]
        assert is_sound(there)
        assert there[:PAGE_END].rstrip(b"\0") == data.rstrip(b"\0")
    last = file_bytes(disk, file_name(end.file_no))
    assert len(last) == PAGES * PAGE_SIZE
    assert not any(last[(end.page_no + 1) * PAGE_SIZE :])
    numbers = {n for n in disk.names() if n.endswith(".ibb")}
    assert numbers == {file_name(n) for n in range(end.file_no + 1)}
    if "cut" in name:
        assert len(file_bytes(disk, file_name(0))) == 2 * PAGE_SIZE


@pytest.mark.parametrize("name", APPLIED)
def test_applied(name: str) -> None:
    disk = scene(*APPLIED[name][0])
    for _ in range(2):
        check_applied(disk, name)
    disk.crash()
    check_applied(disk, name)


@pytest.mark.parametrize("name", [name for name in APPLIED if name != "nothing"])
@pytest.mark.parametrize("torn", ["zeros", "half", "garbage", "newer"])
def test_no_page_is_read_to_be_changed(name: str, torn: str) -> None:
    """Whatever a crash left of the pages behind the checkpoint: they come out as the redo says."""
    disk = scene(*APPLIED[name][0])
    data = bytearray(file_bytes(disk, file_name(0)))
    for page_no in range(1, PAGES):
        at = page_no * PAGE_SIZE
        if torn == "zeros":
            data[at : at + PAGE_SIZE] = bytes(PAGE_SIZE)
        elif torn == "half":
            data[at + 60 : at + 9000] = b"\x55" * 8940
        elif torn == "garbage":
            data[at : at + PAGE_SIZE] = b"\xaa" * PAGE_SIZE
        else:
            data[at : at + PAGE_SIZE] = page(b"\x41" * 9000)
    disk.unlink(file_name(0))
    write_file(disk, file_name(0), bytes(data))
    check_applied(disk, name)


@pytest.mark.parametrize("size", [0, 100, PAGE_SIZE, PAGES * PAGE_SIZE, 9 * PAGE_SIZE])
def test_the_next_file_as_a_crash_left_it(size: int) -> None:
    disk = scene(*APPLIED["the next file"][0], files={1: bytes(size)})
    check_applied(disk, "the next file")


# --- gaps ---

GAPS: dict[str, list[bytes]] = {
    "the page is not logged whole first": [write(1, AT, b"x")],
    "less than was there": [write(1, 0, OLD[:-1])],
    "bytes left out": [AGAIN, write(1, 151, b"x")],
    "bytes twice": [AGAIN, write(1, 149, b"x")],
    "the next page, this one not full": [AGAIN, write(2, 0, b"x")],
    "a page left out": [whole(1), write(3, 0, b"x")],
    "not from the start of the next page": [whole(1), write(2, 1, b"x")],
    "a page behind the file": [whole(1) + whole(2) + whole(3) + write(4, 0, b"x")],
    "a page before": [whole(1) + write(2, 0, b"x"), write(1, 0, b"y" * FULL)],
    "the next file, this page not full": [AGAIN + NEXT],
    "the next file, this one not full": [whole(1) + NEXT],
    "the next file without its header": [whole(1) + whole(2) + whole(3) + STATE],
    "a header of another size": [whole(1) + whole(2) + whole(3) + write(0, 0, header(1)[:63], 1)],
    "a header in mid-page": [whole(1) + whole(2) + whole(3) + write(0, 4, header(1)[:64], 1)],
    "cut, the page not full": [AGAIN + cut(2)],
    "cut behind the page": [whole(1) + cut(3)],
    "cut before the page": [whole(1) + whole(2) + cut(2)],
    "cut of the other file": [whole(1) + cut(2, 1)],
    "nothing may follow a cut in this file": [whole(1) + cut(2) + write(2, 0, b"x")],
    "not logged, this page not full": [AGAIN + unlogged(2, 1)],
    "not logged, in a page that has begun": [unlogged(1, 1)],
    "not logged, a page left out": [whole(1) + unlogged(3, 1)],
    "not logged, more than the file has": [whole(1) + unlogged(2, 3)],
    "not logged, of the other file": [whole(1) + unlogged(2, 1, parity=1)],
}


@pytest.mark.parametrize("name", GAPS)
def test_gaps(name: str) -> None:
    disk = scene(*GAPS[name])
    with pytest.raises(CorruptRedo, match="InnoDB: Missing recovery record in file_no=0"):
        apply(disk)


def test_a_header_of_another_file() -> None:
    wrong = write(0, 0, header(3)[:FIELDS_BYTES], 1)
    disk = scene(whole(1) + whole(2) + whole(3) + wrong)
    with pytest.raises(CorruptBinlog, match="the header says file number 3"):
        apply(disk)


def test_a_record_that_none_wrote() -> None:
    disk = scene(AGAIN + b"\xef")
    with pytest.raises(CorruptRedo, match="unknown kind"):
        apply(disk)


def test_the_log_of_other_files() -> None:
    """By the headers the record belongs to the file before; the checkpoint says otherwise."""
    disk = scene(AGAIN, files={1: (header(1, 0) + page(b"x")).ljust(PAGES * PAGE_SIZE, b"\0")})
    assert apply(disk) == Position(0, PAGE_SIZE + 150)
    disk = scene(AGAIN)
    disk.unlink(file_name(0))
    write_file(disk, file_name(0), (header(0, LSN + 1) + page(OLD)).ljust(PAGES * PAGE_SIZE, b"\0"))
    disk = MemoryDisk(disk.contents())
    assert apply(disk) == Position(0, PAGE_SIZE + 150)  # one file: it is the only one
    disk.rename(file_name(0), file_name(2))
    with pytest.raises(CorruptRedo, match=r"binlog-000000.ibb is missing"):
        apply(disk)


@pytest.mark.parametrize(
    ("edit", "error", "words"),
    [
        (lambda d: b"", CorruptBinlog, "ends inside its header page"),
        (lambda d: bytes(len(d)), CorruptBinlog, "the header is empty"),
        (lambda d: bytes(4) + d[4:], CorruptBinlog, "Invalid checksum on first page"),
        (lambda d: d[: PAGE_SIZE + 50], CorruptBinlog, "crc32"),
        (lambda d: d[:PAGE_SIZE] + bytes(len(d) - PAGE_SIZE), CorruptBinlog, "an empty page"),
        (lambda d: d[: PAGE_SIZE + 9] + b"\1" + d[PAGE_SIZE + 10 :], CorruptBinlog, "crc32"),
    ],
)
def test_damage_to_the_file_of_the_checkpoint(
    edit: Callable[[bytes], bytes], error: type[Exception], words: str
) -> None:
    """Nothing was logged since: what was there then must still be there."""
    disk = scene()
    data = edit(file_bytes(disk, file_name(0)))
    disk.unlink(file_name(0))
    write_file(disk, file_name(0), data)
    before = disk.contents()
    with pytest.raises(error, match=words):
        apply(disk)
    assert disk.contents() == before


# --- what is behind the end ---

LOST = group(Gtid(3, 1, 77), 200)
LOST_CHUNK = chunk(RecordType.COMMIT, commit.encode(LOST.payload))


def with_page(disk: MemoryDisk, page_no: int, data: bytes) -> None:
    file = disk.open(file_name(0))
    file.pwrite(data, page_no * PAGE_SIZE)
    file.fdatasync()
    file.close()


def test_what_was_never_durable_is_kept_aside(caplog: pytest.LogCaptureFixture) -> None:
    disk = scene(AGAIN)
    with_page(disk, 1, page(MORE + LOST_CHUNK))
    with_page(disk, 2, page(LOST_CHUNK))
    before = file_bytes(disk, file_name(0))
    with caplog.at_level(logging.WARNING):
        assert apply(disk) == Position(0, PAGE_SIZE + 150)
    after = file_bytes(disk, file_name(0))
    assert after[PAGE_SIZE : 2 * PAGE_SIZE] == page(MORE)
    assert not any(after[2 * PAGE_SIZE :])
    assert len(after) == len(before)
    kept = file_bytes(disk, "binlog-000000.ibb.broken")
    assert kept.ljust(3 * PAGE_SIZE, b"\0") == before[PAGE_SIZE:]
    assert "3-1-77" in caplog.text
    assert "kept in binlog-000000.ibb.broken" in caplog.text
    caplog.clear()
    apply(disk)
    assert not caplog.records
    assert "binlog-000000.ibb.broken.2" not in disk.names()


def test_pages_behind_a_gap_go_too() -> None:
    disk = scene(AGAIN)
    with_page(disk, 3, page(LOST_CHUNK))
    apply(disk)
    assert not any(file_bytes(disk, file_name(0))[2 * PAGE_SIZE :])
    assert LOST.payload in file_bytes(disk, "binlog-000000.ibb.broken")


@pytest.mark.parametrize("mtrs", [[], [AGAIN]], ids=["nothing logged", "logged"])
def test_later_files(mtrs: list[bytes], caplog: pytest.LogCaptureFixture) -> None:
    """Made ahead: deleted. With something in it: by another name."""
    used = (header(1) + page(b"\x42\x02\0\0\0" + LOST_CHUNK)).ljust(PAGES * PAGE_SIZE, b"\0")
    disk = scene(*mtrs, files={1: used, 2: bytes(PAGES * PAGE_SIZE)})
    with caplog.at_level(logging.WARNING):
        apply(disk)
    names = {name for name in disk.names() if name.startswith("binlog-0")}
    assert names == {file_name(0), "binlog-000001.ibb.broken"}
    assert file_bytes(disk, "binlog-000001.ibb.broken") == used
    assert "3-1-77" in caplog.text
    disk.crash()
    assert {name for name in disk.names() if name.startswith("binlog-0")} == names


@pytest.mark.parametrize(
    ("size", "stays"),
    [
        (0, False),
        (100, False),
        (PAGE_SIZE, False),
        (2 * PAGE_SIZE + 100, False),
        (2 * PAGE_SIZE, True),
    ],
)
def test_a_file_made_ahead(size: int, stays: bool) -> None:
    """It stays if it is whole: a crash may have left a part of one."""
    disk = scene(files={1: bytes(size)})
    apply(disk)
    assert (file_name(1) in disk.names()) == stays


def test_an_empty_store_is_emptied() -> None:
    """RESET MASTER was under way."""
    disk = scene()
    log = opened(disk)
    list(log.replay())
    log.write_checkpoint(log.lsn, None)
    assert apply(disk) is None
    assert not [name for name in disk.names() if name.endswith(".ibb")]


# --- pages that are not logged ---


def with_pages(disk: MemoryDisk, *pages: bytes) -> MemoryDisk:
    """These are on pages 2 and 3 of file 0."""
    file = disk.open(file_name(0))
    for page_no, data in enumerate(pages, 2):
        file.pwrite(data, page_no * PAGE_SIZE)
    file.fdatasync()
    file.close()
    return disk


def page_of(disk: MemoryDisk, page_no: int) -> bytes:
    return file_bytes(disk, file_name(0))[page_no * PAGE_SIZE :][:PAGE_SIZE]


HELD = page(OOB + b"\x44" * CHUNK_DATA_MAX)


def test_unlogged_pages_that_are_there_stay_and_are_synced_again() -> None:
    disk = with_pages(scene(whole(1) + unlogged(2, 2)), HELD, HELD)
    recording = Recording()
    recording.disk = disk
    apply(recording)  # type: ignore[arg-type]
    written = {page_no for done in recording.done if done.what == "write" for page_no in done.pages}
    assert {2, 3} <= written
    assert page_of(disk, 2) == page_of(disk, 3) == HELD


@pytest.mark.parametrize(
    "lost",
    [
        bytes(PAGE_SIZE),
        HELD[:4096] + bytes(PAGE_SIZE - 4096),
        b"\xaa" * PAGE_SIZE,
        page(b"\x03" + HELD[1:3] + b"another record" * 9),
    ],
    ids=["never written", "torn", "garbage", "of before"],
)
def test_unlogged_pages_that_are_lost_are_passed_over(lost: bytes) -> None:
    disk = with_pages(scene(whole(1) + unlogged(2, 2)), lost, HELD)
    apply(disk)
    assert page_of(disk, 2) == page(OOB)
    assert page_of(disk, 3) == HELD


def test_unlogged_pages_that_are_safe_are_not_looked_at() -> None:
    mtrs = [whole(1) + unlogged(2, 1), unlogged(3, 1, safe=3)]
    disk = with_pages(scene(*mtrs), b"\xaa" * PAGE_SIZE, HELD)
    apply(disk)
    assert page_of(disk, 2) == b"\xaa" * PAGE_SIZE


# --- with an engine ---


@pytest.mark.parametrize("number", range(8))
def test_any_unsynced_page_may_be_garbage(number: int) -> None:
    """All that was not in the last checkpoint is overwritten: the store is what it was."""
    groups = simple(12 + 9 * number, size=2000)
    disk = MemoryDisk()
    engine = IbbEngine(disk, small(16, 2))
    append_all(engine, groups[:11])
    engine.checkpoint()
    end = engine.durable_end
    append_all(engine, groups[11:])
    engine.sync()
    while engine._flusher.step() and engine._redo.checkpoint.number < 4:
        pass
    disk.kill()
    name = file_name(end.file_no)
    file = disk.open(name)
    for page_no in range(end.page_no, file.size() // PAGE_SIZE):
        file.pwrite(b"\x99" * PAGE_SIZE, page_no * PAGE_SIZE)
    file.fdatasync()
    engine = IbbEngine(disk, small(16, 2))
    assert read_all(engine) == payloads(groups)
    assert engine.binlog_state() == state_after(groups)
    engine.close()


def test_files_that_have_gone_since_the_checkpoint_are_made_again() -> None:
    """As MariaDB's recovery_no_prealloc: later files are deleted before the start."""
    groups = simple(60, size=2000)
    disk = MemoryDisk()
    engine = IbbEngine(disk, small(8))
    append_all(engine, groups)
    engine.sync()
    while engine._pages.fifo and engine._pages.ready(engine._redo.durable_lsn, 1):
        batch = engine._pages.ready(engine._redo.durable_lsn, 4)
        engine._pages.write(batch)
        engine._pages.written(batch)
    disk.kill()
    assert file_name(1) in disk.names()
    disk.unlink(file_name(1))
    opens_with(disk, small(8), groups)
