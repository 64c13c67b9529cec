"""Reading .ibb files without a server: all groups, in order, each once, and nothing of the directory changed."""

from __future__ import annotations

import threading
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from binlog_protocol.errors import ProtocolError
from binlog_protocol.gtid import BinlogState, Gtid, SlavePosition
from binlog_storage.binlog.store import IbbEngine
from binlog_storage.disk.disk import OsDisk
from binlog_storage.disk.read_only_disk import ReadOnlyDisk
from binlog_storage.errors import CorruptBinlog, DiskError, NotAStore
from binlog_storage.ibb.page import PAGE_SIZE, seal
from binlog_storage.log.groups import OfflineBinlog
from binlog_storage.log.pages import OfflinePages
from binlog_storage.log.publication import Publication, read_published
from binlog_storage.testing.memory_disk import MemoryDisk

from tests.binlog_server.cli.command import copy_to
from tests.storage import groups, vectors
from tests.storage.sizes import small

SETS = [pytest.param(v, id=v["name"]) for v in vectors.sets()]
SMALL = small(4)


def vector(name: str) -> MemoryDisk:
    return vectors.unpack(vectors.sound_set(name))


@pytest.mark.parametrize("vector_", SETS)
def test_all_groups_in_order(vector_: dict[str, Any]) -> None:
    expected = vectors.groups_of(vector_)
    binlog = OfflineBinlog(vectors.unpack(vector_))
    found = list(binlog.groups())
    assert [(*g.place, None if g.gtid is None else str(g.gtid)) for g in found] == [
        (e.file_no, e.offset, e.gtid) for e in expected
    ]
    assert [vectors.sha(b"".join(g.pieces()))[:32] for g in found] == [e.sha for e in expected]
    again = OfflineBinlog(vectors.unpack(vector_)).groups()
    assert [sum(1 for _ in g.events()) for g in again] == [e.events for e in expected]
    assert binlog.torn_tail is None


@pytest.mark.parametrize("vector_", SETS)
def test_file_by_file_each_group_once(vector_: dict[str, Any], tmp_path: Path) -> None:
    """Records that cross into the next file, and data in earlier ones: read from beside."""
    directory = copy_to(vectors.unpack(vector_), tmp_path)
    found = []
    for path in sorted(directory.iterdir(), key=lambda path: (len(path.name), path.name)):
        binlog = OfflineBinlog.of_paths([path])
        found += [(*g.place, vectors.sha(b"".join(g.pieces()))[:32]) for g in binlog.groups()]
        binlog.close()
    assert found == [(e.file_no, e.offset, e.sha) for e in vectors.groups_of(vector_)]


def test_the_first_file_for_a_position() -> None:
    binlog = OfflineBinlog(vector("small_i2"))
    every = list(binlog.groups())
    for index in range(0, len(every), 7):
        gtid = every[index].gtid
        if gtid is None:
            continue
        first = binlog.first_file(SlavePosition([gtid]))
        assert first is not None
        behind = [g.gtid for g in every[index + 1 :] if g.gtid is not None]
        seen = [g.gtid for g in binlog.groups(first)]
        assert seen[len(seen) - len(behind) :] == behind
    assert binlog.first_file(SlavePosition()) == 0
    later = OfflineBinlog(vector("small_i8"))  # begins at file 41: what was before is purged
    assert later.first_file(None) == 41
    assert later.first_file(SlavePosition()) is None


def test_a_missing_file_is_not_passed_over() -> None:
    disk = vector("small_i2")
    disk.unlink("binlog-000001.ibb")
    with pytest.raises(CorruptBinlog) as caught:
        list(OfflineBinlog(disk).groups())
    assert caught.value.file_no in (0, 1)


def test_torn_tail_of_the_newest_file_is_left_out() -> None:
    """The last page that holds data is lost, as by a crash, in the middle of a record."""
    disk = vector("big_commit")
    newest = "binlog-000006.ibb"
    file = disk.open(newest)
    last = max(
        n for n in range(1, file.size() // PAGE_SIZE) if file.pread(1, n * PAGE_SIZE) != b"\0"
    )
    whole = [g.place for g in OfflineBinlog(vector("big_commit")).groups()]
    for page_no in range(last, 0, -1):
        file.pwrite(bytes(PAGE_SIZE), page_no * PAGE_SIZE)
        binlog = OfflineBinlog(disk)
        found = [g.place for g in binlog.groups()]
        assert found == whole[: len(found)]
        if binlog.torn_tail is not None:
            assert binlog.torn_tail.file_no <= 6
            return
    pytest.fail("no page of the file lies inside a record")


def test_damage_is_named() -> None:
    entry = next(v for v in vectors.corrupt_sets() if v["name"] == "corrupt_flip_data")
    groups_ = OfflineBinlog(vectors.unpack(entry)).groups()
    with pytest.raises(CorruptBinlog, match=r"page 2 .*binlog-000000.ibb, offset 32768"):
        list(groups_)


def test_paths_that_cannot_be_read(tmp_path: Path) -> None:
    one = copy_to(vector("last_mid"), tmp_path / "one")
    two = copy_to(vector("last_0"), tmp_path / "two")
    with pytest.raises(NotAStore, match="one directory"):
        OfflineBinlog.of_paths([one / "binlog-000000.ibb", two / "binlog-000000.ibb"])
    (one / "other.ibb").write_bytes(b"")
    with pytest.raises(NotAStore, match="not named"):
        OfflineBinlog.of_paths([one / "other.ibb"])
    with (
        closing(OfflineBinlog.of_paths([one / "binlog-000009.ibb"])) as binlog,
        pytest.raises(NotAStore, match="there is no binlog-000009"),
    ):
        list(binlog.groups())
    with pytest.raises(DiskError):
        ReadOnlyDisk(tmp_path / "none").names()
    with pytest.raises(DiskError):
        ReadOnlyDisk(tmp_path).open("none")


def all_groups(directory: Path) -> list[bytes]:
    with closing(OfflineBinlog.of_paths([directory])) as binlog:
        return [b"".join(group.pieces()) for group in binlog.groups()]


def test_beside_a_writer(tmp_path: Path) -> None:
    """Every reading is a beginning of what was appended, and none meets a page half written."""
    engine = IbbEngine(OsDisk(tmp_path), SMALL)
    history = groups.simple(4000, size=700)
    done = threading.Event()

    def write() -> None:
        for number, (payload, gtid) in enumerate(history):
            engine.append(payload, gtid)
            if number % 3 == 0:
                engine.sync()
        engine.sync()
        done.set()

    writer = threading.Thread(target=write)
    writer.start()
    readings = 0
    try:
        while not done.is_set() or readings < 3:
            found = all_groups(tmp_path)
            assert found == groups.payloads(history[: len(found)])
            readings += 1
    finally:
        writer.join()
        engine.close()
    assert all_groups(tmp_path) == groups.payloads(history)


def test_the_end_is_lost_while_the_server_publishes_on(tmp_path: Path) -> None:
    """What it publishes meanwhile does not mend what was durable before. With another epoch it is another binlog."""
    disk = OsDisk(tmp_path)
    engine = IbbEngine(disk, SMALL)
    groups.append_all(engine, groups.simple(40, size=1000))
    engine.close()
    told = read_published(disk)
    assert told is not None
    with (tmp_path / "binlog-000000.ibb").open("r+b") as file:
        size = file.seek(0, 2)
        file.truncate(2 * PAGE_SIZE)
        file.truncate(size)
    publication = Publication(disk, told.uuid)
    for epoch, is_lost in ((told.epoch, True), (told.epoch + 1, False)):
        with closing(OfflineBinlog.of_directory(tmp_path)) as binlog:
            publication.publish(epoch, told.end._replace(offset=told.end.offset + 1), BinlogState())
            if is_lost:
                with pytest.raises(CorruptBinlog, match="were durable"):
                    list(binlog.groups())
            else:
                assert list(binlog.groups())
    publication.close()


def test_memory_does_not_grow_with_a_group(tmp_path: Path) -> None:
    """A group of many pieces is given piece by piece."""
    engine = IbbEngine(OsDisk(tmp_path), SMALL)
    large = groups.group(Gtid(0, 1, 1), 3 << 20)
    engine.append(*large)
    engine.close()
    with closing(OfflineBinlog.of_paths([tmp_path])) as binlog:
        (group,) = binlog.groups()
        sizes = [len(piece) for piece in group.pieces()]
    assert sum(sizes) == 3 << 20
    assert max(sizes) <= SMALL.piece_bytes


def test_a_group_that_is_none() -> None:
    disk = vector("last_mid")
    file = disk.open("binlog-000000.ibb")
    page = bytearray(file.pread(PAGE_SIZE, PAGE_SIZE))
    page[page.index(b"\xa2", 30)] = 99  # the type of the first GTID event
    file.pwrite(seal(page), PAGE_SIZE)
    with pytest.raises((CorruptBinlog, ProtocolError), match="neither a GTID"):
        list(OfflineBinlog(disk).groups())


def test_empty_files_are_told_apart() -> None:
    pages = OfflinePages(vector("only_state"))
    assert pages.numbers == [12, 13]
    assert pages.newest == 12
    assert (pages.is_empty(12), pages.is_empty(13)) == (False, True)
    assert pages.header(13) is None
    assert list(OfflineBinlog(vector("only_state")).groups()) == []
