"""The durable end, published for other processes."""

from __future__ import annotations

import threading
from contextlib import closing
from pathlib import Path

import pytest
from binlog_protocol.gtid import BinlogState, Gtid
from binlog_storage.binlog.store import IbbEngine
from binlog_storage.disk.disk import OsDisk
from binlog_storage.errors import CorruptRedo
from binlog_storage.ibb.chunk import Position, RecordType
from binlog_storage.ibb.records import RecordReader
from binlog_storage.log.pages import OfflinePages
from binlog_storage.log.publication import PUBLICATION_NAME, Publication, Published, read_published
from binlog_storage.testing.memory_disk import MemoryDisk
from hypothesis import given
from hypothesis import strategies as st

from tests.storage.groups import append_all, run_dry, simple
from tests.storage.sizes import small

UUID = bytes(range(16))
OPTIONS = small(8)


def published(disk: MemoryDisk) -> Published:
    found = read_published(disk)
    assert found is not None
    return found


def groups_in_files(disk: MemoryDisk, end: Position) -> int:
    """As another process counts them: in the files alone, up to what was published."""
    pages = OfflinePages(disk)
    reader = RecordReader(pages, Position(pages.numbers[0], 16384), end)
    count = 0
    while (record := reader.next()) is not None:
        count += record.type == RecordType.COMMIT
    assert reader.position == end
    return count


def test_the_bytes() -> None:
    slot = Published(7, UUID, 3, Position(2, 0x4321), "0-1-5").build()
    assert slot[:-4] == (
        b"ibb-end\x01"
        + (7).to_bytes(8, "little")
        + UUID
        + (3).to_bytes(8, "little")
        + (2).to_bytes(8, "little")
        + (0x4321).to_bytes(8, "little")
        + (5).to_bytes(4, "little")
        + b"0-1-5"
    )
    assert Published.parse(slot + bytes(100)) == Published(7, UUID, 3, Position(2, 0x4321), "0-1-5")


@given(st.integers(0, 64), st.integers(1, 255))
def test_a_damaged_slot_is_none(at: int, flip: int) -> None:
    slot = bytearray(Published(7, UUID, 3, Position(2, 4), "0-1-5").build())
    slot[at] ^= flip
    assert Published.parse(bytes(slot)) is None


@given(st.binary(max_size=200))
def test_any_bytes_are_taken(data: bytes) -> None:
    assert Published.parse(data) is None
    assert Published.parse(b"ibb-end\x01" + data) is None


def test_a_slot_half_written_leaves_the_other() -> None:
    disk = MemoryDisk()
    publication = Publication(disk, UUID)
    for number in (1, 2, 3):
        publication.publish(1, Position(0, 100 * number), BinlogState([Gtid(0, 1, number)]))
    assert published(disk).end == Position(0, 300)
    file = disk.open(PUBLICATION_NAME)
    half = file.size() // 2
    file.pwrite(b"torn", half + 20)  # odd numbers lie in the second slot
    assert published(disk).end == Position(0, 200)
    publication.publish(1, Position(0, 400), BinlogState())
    assert published(disk).end == Position(0, 400)


def test_a_state_of_any_size() -> None:
    disk = MemoryDisk()
    publication = Publication(disk, UUID)
    for domains in (1, 300, 3, 9000):
        state = BinlogState(Gtid(domain, 1, 1) for domain in range(domains))
        publication.publish(1, Position(domains, 0), state)
        assert published(disk).state == str(state)
        assert published(disk).end == Position(domains, 0)


def test_it_tells_what_is_durable_and_in_the_files() -> None:
    disk = MemoryDisk()
    engine = IbbEngine(disk, OPTIONS)
    run_dry(engine)
    assert published(disk).end == engine.durable_end
    append_all(engine, simple(100, size=900))
    engine.sync()
    append_all(engine, simple(7, first=101, size=900))
    run_dry(engine)
    assert published(disk).end <= engine.durable_end, "what is not durable is not told"
    engine.sync()
    run_dry(engine)
    there = published(disk)
    assert there.end == engine.durable_end
    assert there.state == "0-1-107"
    assert groups_in_files(disk, there.end) == 107
    engine.close()


def test_the_end_of_a_run_is_told_too() -> None:
    disk = MemoryDisk()
    engine = IbbEngine(disk, OPTIONS)
    append_all(engine, simple(30, size=900))
    end = engine.written_end
    engine.close()
    there = published(disk)
    assert (there.end, there.state) == (end, "0-1-30")
    assert groups_in_files(disk, end) == 30


def test_another_epoch_after_a_restart_and_after_reset() -> None:
    disk = MemoryDisk()
    epochs = []
    for _ in range(2):
        engine = IbbEngine(disk, OPTIONS)
        append_all(engine, simple(3))
        engine.sync()
        run_dry(engine)
        epochs.append(published(disk).epoch)
        engine.reset()
        run_dry(engine)
        there = published(disk)
        epochs.append(there.epoch)
        assert there.state == ""
        assert there.end == engine.durable_end
        disk.kill()
    assert sorted(set(epochs)) == epochs
    assert len({published(disk).uuid}) == 1


def test_a_log_that_lacks_what_was_published_is_refused() -> None:
    disk = MemoryDisk()
    engine = IbbEngine(disk, OPTIONS)
    append_all(engine, simple(3))
    engine.sync()
    run_dry(engine)
    there = published(disk)
    disk.kill()
    publication = Publication(disk, there.uuid)
    publication.publish(
        there.epoch, Position(there.end.file_no, there.end.offset + 1), BinlogState()
    )
    with pytest.raises(CorruptRedo, match="was durable: the log is an older copy"):
        IbbEngine(disk, OPTIONS)


@pytest.mark.long
def test_readers_of_another_process_beside_a_writer(tmp_path: Path) -> None:
    """Whatever is published can be read from the files, then and there."""
    engine = IbbEngine(OsDisk(tmp_path), OPTIONS, background=True)
    done = threading.Event()
    seen: list[int] = []
    failures: list[str] = []

    def look() -> None:
        disk = OsDisk(tmp_path)
        while not done.is_set():
            there = read_published(disk)
            if there is None or there.end.offset <= 16384:
                continue
            last = int(there.state.rpartition("-")[2] or 0)
            try:
                with closing(OfflinePages(disk)) as pages:
                    reader = RecordReader(pages, Position(pages.numbers[0], 16384), there.end)
                    count = 0
                    while (record := reader.next()) is not None:
                        count += record.type == RecordType.COMMIT
            except Exception as error:  # noqa: BLE001 - told by the test
                if "checksum" not in str(
                    error
                ):  # the last page, being written again: read it again
                    failures.append(repr(error))
                continue
            if count != last:
                failures.append(f"{count} groups in the files, {last} published")
            seen.append(last)

    thread = threading.Thread(target=look)
    thread.start()
    for number in range(1, 2000):
        engine.append(*simple(1, first=number, size=300)[0])
        if number % 5 == 0:
            engine.sync()
    engine.sync()
    done.set()
    thread.join()
    engine.close()
    assert not failures
    assert seen == sorted(seen)


def test_a_store_that_is_closed_tells_all_of_it() -> None:
    """Also if something was about to be told when more came."""
    disk = MemoryDisk()
    engine = IbbEngine(disk, OPTIONS)
    append_all(engine, simple(50, size=900))
    engine._flusher.publish()  # waits for this to be durable ...
    append_all(engine, simple(50, first=51, size=900))
    end = engine.written_end
    engine.close()
    assert published(disk).end == end
