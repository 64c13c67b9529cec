"""Opening a store that did not end well: what is cut, what is kept aside, and what is refused and left as it is.

Crashes at random places are in test_crash.py; here each kind of damage by itself. Most of it is about a directory
without a redo log, as MariaDB's own are to us: its end is what can be seen. With a redo log the end is known, torn
pages are made anew (redo/test_replay.py), and damage to anything else is refused.
"""

from __future__ import annotations

import contextlib
import logging
from collections import Counter
from collections.abc import Callable, Sequence

import pytest
from binlog_protocol.gtid import Gtid, SlavePosition
from binlog_storage.binlog.planned_pages import PlannedPages
from binlog_storage.binlog.store import IbbEngine
from binlog_storage.errors import CorruptBinlog, CorruptRedo
from binlog_storage.ibb.file_header import FileHeader
from binlog_storage.ibb.page import PAGE_END, PAGE_SIZE, seal
from binlog_storage.log.groups import OfflineBinlog
from binlog_storage.log.pages import OfflinePages
from binlog_storage.log.publication import PUBLICATION_NAME
from binlog_storage.log.summary import summarize
from binlog_storage.redo.format import REDO_NAME
from binlog_storage.testing.memory_disk import MemoryDisk

from tests.storage.groups import (
    GTID_EVENT_BYTES,
    Group,
    append_all,
    beginning,
    group,
    gtid_event,
    payloads,
    read_all,
    read_from,
    simple,
    state_after,
)
from tests.storage.sizes import small
from tests.storage.vectors import file_bytes, write_file

PAGES = 8
SMALL = small(PAGES)
FIRST, SECOND, THIRD = "binlog-000000.ibb", "binlog-000001.ibb", "binlog-000002.ibb"


def stored(groups: Sequence[Group], disk: MemoryDisk | None = None) -> MemoryDisk:
    """A disk with a closed store that holds these, without its redo log."""
    return bare(with_redo(groups, disk))


def with_redo(groups: Sequence[Group], disk: MemoryDisk | None = None) -> MemoryDisk:
    """A disk with a closed store that holds these."""
    disk = disk or MemoryDisk()
    engine = IbbEngine(disk, SMALL)
    append_all(engine, groups)
    engine.close()
    return disk


def bare(disk: MemoryDisk) -> MemoryDisk:
    """The .ibb files stay, with the copies of earlier repairs and what is not ours."""
    for name in {REDO_NAME, PUBLICATION_NAME} & set(disk.names()):
        disk.unlink(name)
    disk.fsync_dir()
    return disk


def images(disk: MemoryDisk) -> dict[str, bytes]:
    return {name: file_bytes(disk, name) for name in disk.names()}


def change(disk: MemoryDisk, name: str, edit: Callable[[bytearray], None]) -> None:
    """Edit the bytes of a file behind the store's back."""
    data = bytearray(file_bytes(disk, name))
    edit(data)
    disk.unlink(name)
    write_file(disk, name, bytes(data))


def page_of(data: bytes | bytearray, page_no: int) -> bytearray:
    return bytearray(data[page_no * PAGE_SIZE : (page_no + 1) * PAGE_SIZE])


def empty_page(page_no: int) -> Callable[[bytearray], None]:
    def edit(data: bytearray) -> None:
        data[page_no * PAGE_SIZE : (page_no + 1) * PAGE_SIZE] = bytes(PAGE_SIZE)

    return edit


def flip(offset: int) -> Callable[[bytearray], None]:
    def edit(data: bytearray) -> None:
        data[offset] ^= 0x10

    return edit


def goes_on(disk: MemoryDisk, groups: Sequence[Group]) -> None:
    """The store opens with exactly `groups`, takes more, and opens again with all of it."""
    engine = IbbEngine(disk, SMALL)
    assert read_all(engine) == payloads(groups)
    assert engine.binlog_state() == state_after(groups)
    more = [*simple(2, domain=77), group(Gtid(77, 1, 3), 2 * PAGES * PAGE_SIZE)]
    append_all(engine, more)
    engine.sync()
    assert read_all(engine) == payloads([*groups, *more])
    at = SlavePosition([*state_after(groups).position(), Gtid(77, 1, 2)])
    start = engine.find_start(at)
    assert read_from(engine, start.position)[-1] == more[-1].payload
    engine.close()
    again = IbbEngine(disk, SMALL)
    assert read_all(again) == payloads([*groups, *more])
    assert again.binlog_state() == state_after([*groups, *more])
    again.close()


def refused(disk: MemoryDisk, file_no: int, page_no: int, reason: str) -> CorruptBinlog:
    """The store does not open, says where, and not a byte on the disk has changed."""
    before = images(disk)
    with pytest.raises(CorruptBinlog, match=reason) as info:
        IbbEngine(disk, SMALL)
    error = info.value
    assert (error.file_no, error.page_no) == (file_no, page_no)
    assert f"binlog-{file_no:06d}.ibb, offset {error.offset}" in str(error)
    assert f"page {page_no}" in str(error)
    assert images(disk) == before
    return error


# --- the end of the data ---


def test_a_directory_with_other_things() -> None:
    disk = MemoryDisk()
    for name in ("notes.txt", "binlog-000000.ibb.broken", "binlog-7.ibb", "binlog.000001"):
        write_file(disk, name, b"not ours")
    goes_on(disk, [])
    assert file_bytes(disk, "notes.txt") == b"not ours"


def test_a_file_made_ahead() -> None:
    groups = simple(20, size=2000)
    disk = stored(groups)
    write_file(disk, SECOND, bytes(PAGES * PAGE_SIZE))
    write_file(disk, THIRD, bytes(PAGES * PAGE_SIZE))
    goes_on(disk, groups)


def test_only_a_file_made_ahead() -> None:
    disk = MemoryDisk()
    write_file(disk, FIRST, bytes(PAGES * PAGE_SIZE))
    goes_on(disk, [])


def test_readers_cross_into_a_file_that_was_made_ahead() -> None:
    """Its header was looked at, and kept, when it was still empty."""
    disk = stored(simple(3))
    write_file(disk, SECOND, bytes(PAGES * PAGE_SIZE))
    engine = IbbEngine(disk, SMALL)
    start = beginning(engine)
    groups = simple(200, first=4, size=1500)
    append_all(engine, groups)
    engine.sync()
    assert len(engine.files()) > 2
    assert read_from(engine, start)[3:] == payloads(groups)
    assert engine.find_start(SlavePosition([Gtid(0, 1, 203)])).position.file_no > 1
    engine.close()


@pytest.mark.parametrize("what", ["header alone", "torn header", "torn page 1", "short file"])
def test_a_file_that_was_just_being_made(what: str, caplog: pytest.LogCaptureFixture) -> None:
    groups = simple(20, size=2000)
    disk = stored(groups)
    header = FileHeader(1, PAGES, 0, 2, 1).build()
    page = seal(bytearray(b"\x42\x02\0\0\0".ljust(PAGE_SIZE, b"\0")))
    data = {
        "header alone": header.ljust(PAGES * PAGE_SIZE, b"\0"),
        "torn header": header[:512].ljust(PAGES * PAGE_SIZE, b"\0"),
        "torn page 1": (header + page[:512]).ljust(PAGES * PAGE_SIZE, b"\0"),
        "short file": header[:1024],
    }[what]
    write_file(disk, SECOND, data)
    with caplog.at_level(logging.WARNING):
        goes_on(disk, groups)
    assert "kept aside: binlog-000001.ibb" in caplog.text
    assert file_bytes(disk, f"{SECOND}.broken") == data


def test_page_1_torn_under_groups() -> None:
    """The limit without a redo log: what was on the page goes with it, all of it and no more."""
    groups = simple(3)
    disk = stored(groups)
    change(disk, FIRST, flip(PAGE_SIZE + 200))
    kept = file_bytes(disk, FIRST)
    goes_on(disk, [])
    assert file_bytes(disk, f"{FIRST}.broken") == kept


def test_a_torn_last_page_is_cut_and_kept(caplog: pytest.LogCaptureFixture) -> None:
    groups = simple(30, size=2000)
    disk = stored(groups)
    engine = IbbEngine(disk, SMALL)
    file_no, offset = engine.written_end
    engine.close()
    bare(disk)
    page_no = offset // PAGE_SIZE
    assert (file_no, page_no) == (0, 4)
    change(disk, FIRST, flip(page_no * PAGE_SIZE + 100))
    torn = page_of(file_bytes(disk, FIRST), page_no)
    with caplog.at_level(logging.WARNING):
        goes_on(disk, groups[:24])  # three pages of eight groups, and the one that crosses
    assert file_bytes(disk, f"{FIRST}.broken").ljust(PAGE_SIZE, b"\0")[:100] == torn[:100]
    assert "cut a torn tail" in caplog.text


def test_a_file_cut_in_mid_page() -> None:
    groups = simple(30, size=2000)
    disk = stored(groups)

    def edit(data: bytearray) -> None:
        del data[4 * PAGE_SIZE + 3000 :]

    change(disk, FIRST, edit)
    goes_on(disk, groups[:24])
    assert len(file_bytes(disk, FIRST)) == PAGES * PAGE_SIZE


def test_a_file_shorter_than_its_header_says() -> None:
    groups = simple(10, size=2000)
    disk = stored(groups)

    def edit(data: bytearray) -> None:
        del data[3 * PAGE_SIZE :]

    change(disk, FIRST, edit)
    goes_on(disk, groups)
    assert len(file_bytes(disk, FIRST)) == PAGES * PAGE_SIZE


def test_repairs_do_not_overwrite_earlier_copies() -> None:
    disk = MemoryDisk()
    write_file(disk, f"{FIRST}.broken", b"of last year")
    groups = simple(30, size=2000)
    stored(groups, disk)
    change(disk, FIRST, flip(4 * PAGE_SIZE + 100))
    goes_on(disk, groups[:24])
    assert file_bytes(disk, f"{FIRST}.broken") == b"of last year"
    assert f"{FIRST}.broken.2" in disk.names()


# --- groups that were never finished ---


def unfinished(
    groups: Sequence[Group], size: int, keep: Callable[[bytes, int], bool]
) -> MemoryDisk:
    """A store with one more group, of whose pages only those that `keep` were written: the rest is as it was."""
    disk = stored(groups)
    before = images(disk)
    stored([group(Gtid(50, 1, 1), size)], disk)
    for name, new in images(disk).items():
        old = before.get(name, bytes(len(new))).ljust(len(new), b"\0")
        kept = [
            page_of(new if keep(name.encode(), n) else old, n) for n in range(len(new) // PAGE_SIZE)
        ]
        disk.unlink(name)
        write_file(disk, name, b"".join(kept))
    return disk


@pytest.mark.parametrize(
    ("count", "size", "pages_kept"),
    [
        pytest.param(1, 20_000, 1, id="at the end"),
        pytest.param(10, 60_000, 3, id="over state pages"),
        pytest.param(10, 64_000, 4, id="in the middle of a file"),
    ],
)
def test_a_group_without_its_end(count: int, size: int, pages_kept: int) -> None:
    groups = simple(count, size=2000)
    first_page = 1 + (count * 2000) // PAGE_SIZE
    last = first_page + pages_kept - 1
    disk = unfinished(groups, size, lambda _, page_no: page_no <= last)
    goes_on(disk, groups)
    assert f"{FIRST}.broken" in disk.names()


@pytest.mark.parametrize("pages_of_second", [0, 2, 3])
def test_a_group_over_two_files_without_its_end(pages_of_second: int) -> None:
    groups = simple(55, size=2000)  # to page 7, the last one
    disk = unfinished(
        groups, 60_000, lambda name, page_no: name == FIRST.encode() or page_no < pages_of_second
    )
    goes_on(disk, groups)
    if pages_of_second:
        assert f"{SECOND}.broken" in disk.names()


def test_a_group_that_ends_with_its_last_page() -> None:
    groups = simple(10, size=2000)
    goes_on(unfinished(groups, 60_000, lambda *_: True), [*groups, group(Gtid(50, 1, 1), 60_000)])


def test_pieces_of_an_open_group_are_garbage() -> None:
    """Whole out-of-band records without a commit are no torn tail: they stay, and nobody reaches them."""
    disk = MemoryDisk()
    engine = IbbEngine(disk, SMALL)
    append_all(engine, simple(5))
    writer = engine.begin()
    writer.spill(b"never" * 40_000)
    engine.append(*simple(1, first=6)[0])
    engine.sync()
    disk.kill()
    goes_on(disk, simple(6))
    assert not [name for name in disk.names() if "broken" in name]


def test_the_state_after_large_records_that_hold_state_pages() -> None:
    groups = [
        group(Gtid(number % 3, 1 + number % 2, number), 9_000 * (1 + number % 5))
        for number in range(1, 40)
    ]
    goes_on(stored(groups), groups)


def test_a_full_state_of_several_pages_that_is_torn() -> None:
    """A new file whose page-1 state has lost its second page never was; the group that crosses into it neither."""
    options = small(16, 8)
    groups = [group(Gtid(domain, 1, 70_000), 57) for domain in range(3600)]
    disk = MemoryDisk()
    engine = IbbEngine(disk, options)
    append_all(engine, groups)
    engine.sync()
    count = len(groups)
    while engine.written_end.file_no == 0:
        count += 1
        groups.append(group(Gtid(0, 1, 70_000 + count), 3000))
        engine.append(*groups[-1])
        engine.sync()
    engine.close()
    change(disk, SECOND, empty_page(2))
    change(disk, SECOND, empty_page(3))
    again = IbbEngine(bare(disk), options)
    found = read_all(again)
    assert found == payloads(groups)[: len(found)]
    assert len(groups) - len(found) <= 1
    assert again.binlog_state() == state_after(groups[: len(found)])
    assert f"{SECOND}.broken" in disk.names()
    append_all(again, groups[len(found) :] + simple(1, domain=9999))
    again.sync()
    assert read_all(again) == payloads([*groups, *simple(1, domain=9999)])
    again.close()


# --- what is refused ---


DAMAGE = {
    "a bad page": (FIRST, flip(2 * PAGE_SIZE + 5000), 2, "crc32 checksum"),
    "an empty page": (FIRST, empty_page(2), 1, "truncated in the middle of record"),
    "page 1": (FIRST, flip(PAGE_SIZE + 100), 1, "crc32 checksum"),
    "an empty page 1": (FIRST, empty_page(1), 1, "no state record on page 1"),
    "the header": (FIRST, flip(20), 0, "checksum on first page"),
    "an empty header": (FIRST, empty_page(0), 0, "the header is empty"),
    "the last page": (FIRST, flip(4 * PAGE_SIZE + 100), 4, "crc32 checksum"),
    "an empty last page": (FIRST, empty_page(4), 4, "an empty page, but it was written"),
}


@pytest.mark.parametrize("what", DAMAGE)
def test_damage_in_a_store_with_a_redo_log(what: str) -> None:
    """All of it was durable: nothing is cut. Refused at the start, or when it is read; nothing is passed over."""
    name, edit, page_no, words = DAMAGE[what]
    groups = simple(30, size=2000)
    disk = with_redo(groups)
    change(disk, name, edit)
    before = images(disk)

    def open_and_read() -> None:
        engine = IbbEngine(disk, SMALL)
        assert engine.binlog_state() == state_after(groups)
        read_all(engine)

    with pytest.raises(CorruptBinlog, match=words) as info:
        open_and_read()
    assert info.value.page_no == page_no
    disk.kill()
    assert not [name for name in disk.names() if "broken" in name]
    assert all(data == before[name] for name, data in images(disk).items() if name == FIRST)


@pytest.mark.parametrize("name", [FIRST, SECOND, THIRD])
def test_a_missing_file_of_a_store_with_a_redo_log(name: str) -> None:
    disk = with_redo(simple(200, size=2000))
    last = max(n for n in disk.names() if n.endswith(".ibb"))
    assert last > THIRD
    disk.unlink(name)
    if name != FIRST:
        refused(disk, int(name[7:-4]), 0, "the file is missing, but later ones are there")
        return
    engine = IbbEngine(disk, SMALL)  # as if it had been purged
    assert engine.binlog_state() == state_after(simple(200, size=2000))
    engine.close()
    disk.unlink(last)
    with pytest.raises(CorruptRedo, match=f"{last} is missing"):
        IbbEngine(disk, SMALL)


def test_files_by_other_names_in_a_store_with_a_redo_log() -> None:
    disk = with_redo(simple(100, size=2000))
    disk.rename(SECOND, THIRD)
    disk.rename(FIRST, SECOND)
    refused(disk, 1, 0, "the header says file number 0, the name says 1")


def test_a_bad_page_in_front_of_good_ones() -> None:
    disk = stored(simple(30, size=2000))
    change(disk, FIRST, flip(2 * PAGE_SIZE + 5000))
    error = refused(disk, 0, 2, "invalid crc32 checksum")
    assert "restore this file from a copy" in str(error)


def test_an_empty_page_in_front_of_good_ones() -> None:
    disk = stored(simple(30, size=2000))
    change(disk, FIRST, empty_page(2))
    refused(disk, 0, 2, "an empty page, but later pages hold data")


@pytest.mark.parametrize("page_no", [0, 1])
def test_an_empty_beginning_in_front_of_good_pages(page_no: int) -> None:
    """Such a file is not one that was made ahead: it would be made anew over its pages."""
    disk = stored(simple(30, size=2000))
    change(disk, FIRST, empty_page(page_no))
    refused(disk, 0, page_no, "an empty page, but later pages hold data")


@pytest.mark.parametrize("page_no", [0, 1])
def test_a_bad_beginning_in_front_of_good_pages(page_no: int) -> None:
    disk = stored(simple(30, size=2000))
    change(disk, FIRST, flip(page_no * PAGE_SIZE + 40))
    refused(disk, 0, page_no, "invalid crc32 checksum")


def test_an_empty_header_on_a_sealed_page() -> None:
    disk = stored(simple(30, size=2000))

    def edit(data: bytearray) -> None:
        data[:PAGE_SIZE] = seal(bytearray(PAGE_SIZE))

    change(disk, FIRST, edit)
    refused(disk, 0, 0, "the header is empty, but its page is not")


def test_a_missing_file() -> None:
    disk = stored(simple(200, size=2000))
    assert THIRD in disk.names()
    disk.unlink(SECOND)
    refused(disk, 1, 0, "the file is missing, but later ones are there")


def test_a_header_of_another_file() -> None:
    disk = stored(simple(100, size=2000))
    disk.rename(SECOND, THIRD)
    disk.rename(FIRST, SECOND)
    refused(disk, 2, 0, "the header says file number 1, the name says 2")


def test_a_group_that_begins_with_no_gtid() -> None:
    disk = stored(simple(3))

    def edit(data: bytearray) -> None:
        page = page_of(data, 1)
        page[5 + 4 + 4] = 99  # the type of the first event
        data[PAGE_SIZE : 2 * PAGE_SIZE] = seal(page)

    change(disk, FIRST, edit)
    refused(disk, 0, 1, "neither a GTID nor a format description")


def test_bytes_behind_the_checksum_of_the_last_page_are_kept() -> None:
    """A page that is full to its last byte is gone on from, not into."""
    disk = MemoryDisk()
    engine = IbbEngine(disk, SMALL)
    room = PAGE_END - 5 - 4  # behind the state record, a commit record with its header
    groups = [group(Gtid(0, 1, 1), room), *simple(3, first=2)]
    engine.append(*groups[0])
    engine.close()
    goes_on(disk, groups[:1])


def test_reopening_an_unfinished_spill_does_not_take_its_numbers() -> None:
    disk = MemoryDisk()
    engine = IbbEngine(disk, SMALL)
    gtid = Gtid(0, 1, 1)
    writer = engine.begin()
    writer.spill(b"x" * 100_000)
    engine.sync()
    disk.kill()
    engine = IbbEngine(disk, SMALL)
    writer = engine.begin()
    whole = group(gtid, 100_000).payload
    writer.spill(whole[GTID_EVENT_BYTES:])
    writer.commit(gtid_event(gtid), gtid)
    engine.sync()
    assert read_all(engine) == [whole]
    engine.close()


@pytest.mark.parametrize("has_redo", [True, False])
@pytest.mark.parametrize("before", [1, 60])
def test_data_of_a_group_without_an_end_are_read_once(
    monkeypatch: pytest.MonkeyPatch, has_redo: bool, before: int
) -> None:
    """As a rollback leaves them, over several files: no state record there has a commit behind it, and from each of
    them all was read to the end. A start took minutes behind a rollback of some 100 MB, and `ls` never ended.
    """
    disk, groups = MemoryDisk(), simple(before)
    options = small(64)
    engine = IbbEngine(disk, options)
    append_all(engine, groups)
    writer = engine.begin()
    for number in range(120):
        writer.spill(bytes([number]) * PAGE_SIZE)
    writer.rollback()
    engine.close()
    if not has_redo:
        bare(disk)
    asked: Counter[tuple[int, int]] = Counter()
    page = PlannedPages.page

    def counted(self: PlannedPages, file_no: int, page_no: int) -> bytes | None:
        asked[file_no, page_no] += 1
        return page(self, file_no, page_no)

    monkeypatch.setattr(PlannedPages, "page", counted)
    engine = IbbEngine(disk, options)
    assert engine.binlog_state() == state_after(groups)
    assert len(asked) > 120
    assert max(asked.values()) < 10
    append_all(engine, [group(Gtid(0, 1, 1000))])
    engine.sync()
    assert read_all(engine) == [*payloads(groups), group(Gtid(0, 1, 1000)).payload]
    engine.close()
    monkeypatch.undo()
    reads: Counter[tuple[int, int]] = Counter()
    page_of_file = OfflinePages.page

    def read(self: OfflinePages, file_no: int, page_no: int) -> bytes | None:
        reads[file_no, page_no] += 1
        return page_of_file(self, file_no, page_no)

    monkeypatch.setattr(OfflinePages, "page", read)
    with contextlib.closing(OfflineBinlog(disk)) as offline:
        last = summarize(offline, 0).last
    assert last is not None
    assert last.gtid == groups[-1].gtid
    assert max(reads.values()) < 10
