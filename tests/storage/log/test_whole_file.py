"""Files that are shorter than their headers say: cut by FLUSH, left by a crash in it, or robbed of groups."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from binlog_protocol.gtid import Gtid
from binlog_storage.binlog.store import IbbEngine
from binlog_storage.errors import CorruptBinlog
from binlog_storage.ibb.chunk import CHUNK_HEADER
from binlog_storage.ibb.file_names import file_name
from binlog_storage.ibb.page import PAGE_END, PAGE_SIZE
from binlog_storage.log.groups import OfflineBinlog
from binlog_storage.log.log_pages import LogPages
from binlog_storage.log.partitions import batches_from, plan
from binlog_storage.testing.memory_disk import MemoryDisk

from tests.storage.groups import GROUP_BYTES_MIN, Group, append_all, group, payloads, read_all
from tests.storage.sizes import small

PAGES = 8
ONE_STATE = small(PAGES, PAGES)  # in each file


def page_long(engine: IbbEngine, count: int) -> list[Group]:
    """So many groups, each to the end of its page, wherever that can be."""
    made = []
    for number in range(1, count + 1):
        room = PAGE_END - engine.written_end.in_page - CHUNK_HEADER - 1
        made.append(group(Gtid(0, 1, number), max(room, GROUP_BYTES_MIN)))
        append_all(engine, made[-1:])
    return made


def stored(count: int = 40) -> tuple[MemoryDisk, list[Group]]:
    disk = MemoryDisk()
    engine = IbbEngine(disk, ONE_STATE)
    groups = page_long(engine, count)
    engine.close()
    return disk, groups


def cut(disk: MemoryDisk, file_no: int, pages: int) -> None:
    file = disk.open(file_name(file_no))
    file.truncate(pages * PAGE_SIZE)
    file.fdatasync()
    file.close()


def by_engine(disk: MemoryDisk) -> list[bytes]:
    engine = IbbEngine(disk, ONE_STATE)
    try:
        return read_all(engine)
    finally:
        engine.close()


def offline(disk: MemoryDisk) -> list[bytes]:
    return [b"".join(group.pieces()) for group in OfflineBinlog(disk).groups()]


def planned(disk: MemoryDisk) -> list[bytes]:
    with LogPages(disk) as pages:
        parts = plan(pages, pages.files())
        return [
            payload
            for part in parts
            for batch in batches_from(pages, part.begin, part.end)
            for payload in batch.groups
        ]


READERS = [by_engine, offline, planned]


@pytest.mark.parametrize("read", READERS)
@pytest.mark.parametrize(
    ("file_no", "pages"), [(0, 2), (0, 3), (0, PAGES - 1), (1, 3), (1, 5), (1, PAGES - 1)]
)
def test_robbed_of_its_last_groups(
    read: Callable[[MemoryDisk], list[bytes]], file_no: int, pages: int
) -> None:
    """Between two records, so that nothing that is left looks wrong."""
    disk, _ = stored()
    cut(disk, file_no, pages)
    with pytest.raises(CorruptBinlog) as info:
        read(disk)
    assert info.value.file_no == file_no
    assert f"{pages} of its {PAGES} pages are left" in str(info.value)


@pytest.mark.parametrize("read", READERS)
def test_nothing_but_its_header(read: Callable[[MemoryDisk], list[bytes]]) -> None:
    disk, _ = stored()
    cut(disk, 1, 1)
    with pytest.raises(CorruptBinlog) as info:
        read(disk)
    assert info.value.file_no in (0, 1)


@pytest.mark.parametrize("read", READERS)
@pytest.mark.parametrize("crashed", [False, True])
def test_cut_by_flush(read: Callable[[MemoryDisk], list[bytes]], crashed: bool) -> None:
    """At the beginning of a page FLUSH fills one by itself; a crash just before it leaves a file that lacks nothing."""
    disk = MemoryDisk()
    engine = IbbEngine(disk, ONE_STATE)
    groups = page_long(engine, 3)
    assert engine.written_end.in_page == 0
    pages = engine.written_end.page_no
    engine.flush()
    more = [group(Gtid(0, 1, number), 500) for number in range(4, 9)]
    append_all(engine, more)
    engine.close()
    assert disk.size(file_name(0)) == (pages + 1) * PAGE_SIZE
    if crashed:
        cut(disk, 0, pages)
    assert read(disk) == payloads([*groups, *more])
