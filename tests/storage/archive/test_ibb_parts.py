"""Parts of `.ibb` pages: what they are when they are unpacked, and what is not believed of one."""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from binlog_pipeline.sources.archive import ArchiveSource
from binlog_protocol.gtid import BinlogState, Gtid
from binlog_storage.archive.archive import Archive
from binlog_storage.archive.archiver import StoreArchiver
from binlog_storage.archive.errors import ArchiveDamaged, NotAnArchive
from binlog_storage.archive.ibb_frames import (
    COMMIT,
    FOOTER,
    FOOTER_MAGIC,
    GROUPS,
    PIECE,
    Frame,
)
from binlog_storage.archive.manifest import (
    MANIFEST_NAME,
    ArchiveManifest,
    ArchivePart,
    PartFormName,
    form_of,
    part_name,
)
from binlog_storage.archive.merging import Merger
from binlog_storage.archive.part_reader import PartReader
from binlog_storage.archive.placed_groups import PlacedGroups, part_writer
from binlog_storage.binlog.store import IbbEngine
from binlog_storage.engine import LargeGroup
from binlog_storage.ibb.chunk import Position
from binlog_storage.ibb.file_names import file_name
from binlog_storage.ibb.page import PAGE_END, PAGE_SIZE, seal
from binlog_storage.log.groups import OfflineBinlog
from binlog_storage.testing.memory_disk import MemoryDisk

from tests.pipeline.archives import log_of, stored
from tests.storage.archive.ibb_parts import put_together, taken_apart
from tests.storage.archive.memory_objects import MemoryObjects
from tests.storage.groups import Group, append_all, group, marker
from tests.storage.sizes import small

BEFORE = BinlogState([Gtid(0, 1, 6), Gtid(5, 9, 100)])
NAME = part_name(1, "ibb")
LARGE = group(Gtid(0, 1, 9), 3_000_000)


def placed(groups: list[Group], markers: dict[int, bytes], begin: int) -> PlacedGroups:
    found = [(one.payload, Position(4, begin + 1000 * n)) for n, one in enumerate(groups)]
    return PlacedGroups(found, list(markers.items()))


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, ArchivePart, list[bytes]]:
    """Groups, start markers, a large group, a group that fills pages to the byte, groups."""
    first = [group(Gtid(0, 1, n), 200) for n in (7, 8)]
    last = [group(Gtid(0, 1, 10), 40_000), group(Gtid(3, 2, 1), 200)]
    start = marker(1).payload
    large = LargeGroup(LARGE.payload[:64], Position(5, 77), lambda: _pieces(LARGE.payload))
    stream = [
        placed(first, {0: start, 1: start}, 100),
        PlacedGroups([(LARGE.payload[:64], large.end)], [], large),
        placed(last, {2: start}, 5000),
        placed([], {0: start}, 0),
    ]
    folder = tmp_path_factory.mktemp("ibb")
    facts = part_writer()(folder / NAME, stream, 1, None, BEFORE)
    assert facts is not None
    log = [start, first[0].payload, start, first[1].payload, LARGE.payload]
    log += [last[0].payload, last[1].payload, start, start]
    return folder, facts.part(folder / NAME), log


def _pieces(payload: bytes) -> Any:
    return (payload[at : at + 70_001] for at in range(0, len(payload), 70_001))


def test_what_is_unpacked_is_a_binlog_file(
    made: tuple[Path, ArchivePart, list[bytes]], tmp_path: Path
) -> None:
    """By any program that knows zstd. Readers of binlogs follow the links of the large group, too."""
    folder, _, log = made
    with pa.CompressedInputStream(pa.OSFile(str(folder / NAME)), "zstd") as file:
        (tmp_path / file_name(0)).write_bytes(file.read())
    assert stored(tmp_path) == log
    binlog = OfflineBinlog.of_paths([tmp_path])
    assert binlog.base_state(0) == BEFORE
    binlog.close()


def test_rows_and_places(made: tuple[Path, ArchivePart, list[bytes]]) -> None:
    folder, part, log = made
    reader = PartReader(folder, replace(part, file_base=10, last_place=(14, 6000)))
    found, places = [], []
    for rows in reader.rows():
        if rows.large is not None:
            found.append(b"".join(rows.large.pieces()))
            assert rows.large.head == LARGE.payload[: len(rows.large.head)]
            assert rows.large.end == Position(15, 77)
        else:
            found += rows.payloads()
        places += list(zip(rows.file.tolist(), rows.offset.tolist(), strict=True))
    assert found == log
    none = (0, 0)
    assert places == [
        none, (14, 100), none, (14, 1100), (15, 77), (14, 5000), (14, 6000), none, none,
    ]  # fmt: skip
    reader.check()


def test_one_archive_of_both_forms(objects: MemoryObjects) -> None:
    """Whoever adds says the form of what is new, and of what becomes one; a list of parts says what it needs."""
    engine = IbbEngine(MemoryDisk(), small(64))
    truth: list[bytes] = []
    try:
        for number, form in enumerate[PartFormName](("parquet", "ibb", "parquet", "ibb"), 1):
            append_all(engine, [one := group(Gtid(0, 1, number), 100)])
            truth.append(one.payload)
            engine.sync()
            archiver = StoreArchiver(engine, objects.where, form=form)
            archiver._merger = Merger(1 << 20, 4, form=form)  # type: ignore[misc]
            archiver.step()
            archiver.close()
            manifest = Archive.open(objects.where).manifest
            assert form_of(manifest.parts[-1].name) == form
            assert (b'"version": 3' in manifest.build()) == (number > 1)
            assert log_of(ArchiveSource(objects.where)) == truth
        assert [one.part.name.partition(".")[2] for one in Archive.open(objects.where).parts()] == [
            "ibb.zst"
        ]
    finally:
        engine.close()


# --- what is not believed ---


def changed(
    made: tuple[Path, ArchivePart, list[bytes]],
    target: Path,
    change: Callable[[list[Frame], list[bytes], list[bytes]], None],
    footer: bytes | None = None,
) -> PartReader:
    """The part with other frames, pages of frames, places of frames; its checksum is right."""
    folder, part, _ = made
    parts = taken_apart((folder / NAME).read_bytes())
    change(*parts)
    out = put_together(parts, footer)
    (target / NAME).write_bytes(out)
    return PartReader(target, replace(part, size=len(out), sha256=hashlib.sha256(out).hexdigest()))


def _read(reader: PartReader) -> None:
    for rows in reader.rows():
        if rows.large is not None:
            for _ in rows.large.pieces():
                pass


def test_a_part_that_is_written_anew_is_the_same(
    made: tuple[Path, ArchivePart, list[bytes]], tmp_path: Path
) -> None:
    """Else the cases below would show nothing."""
    reader = changed(made, tmp_path, lambda frames, pages, places: None)
    _read(reader)
    reader.check()


def _entry(number: int, **values: int) -> Callable[..., None]:
    def change(frames: list[Frame], pages: list[bytes], places: list[bytes]) -> None:
        frames[number] = frames[number]._replace(**values)

    return change


def _page(number: int, at: int, data: bytes, page_no: int = 0, *, sealed: bool = True) -> Any:
    def change(frames: list[Frame], pages: list[bytes], places: list[bytes]) -> None:
        whole = bytearray(pages[number])
        page = bytearray(whole[page_no * PAGE_SIZE : (page_no + 1) * PAGE_SIZE])
        page[at : at + len(data)] = data
        whole[page_no * PAGE_SIZE : (page_no + 1) * PAGE_SIZE] = seal(page) if sealed else page
        pages[number] = bytes(whole)

    return change


def _swapped(frames: list[Frame], pages: list[bytes], places: list[bytes]) -> None:
    """A large group whose commit comes before its pieces."""
    frames[1:3], pages[1:3], places[1:3] = frames[2:0:-1], pages[2:0:-1], places[2:0:-1]


def _dropped(number: int) -> Callable[..., None]:
    def change(*lists: list[Any]) -> None:
        for one in lists:
            del one[number]

    return change


def _placed(number: int, data: bytes) -> Callable[..., None]:
    def change(frames: list[Frame], pages: list[bytes], places: list[bytes]) -> None:
        places[number] = data

    return change


HOSTILE = {
    "a frame at another place": (_entry(1, begin=-5), "the list of its frames says"),
    "a frame without pages": (_entry(1, pages=0), "the list of its frames says"),
    "a frame of more than fits into memory": (_entry(0, pages=4097), "the list of its frames says"),
    "a frame of a GiB, by its list": (_entry(0, pages=4096), "cannot be unpacked"),
    "a frame of fewer pages": (_entry(0, pages=1), "cannot be unpacked"),
    "more groups than there are": (_entry(0, rows=5), "the list says 5"),
    "more groups than can be": (_entry(0, rows=1 << 30), "the list of its frames says"),
    "a frame of a kind that is none": (_entry(0, kind=3), "the list of its frames says"),
    "no header": (_page(0, 0, b"\0"), "does not begin with the header"),
    "a page with another checksum": (_page(0, 50, b"x", 1, sealed=False), "crc32"),
    "a record that goes on in nothing": (_page(0, 0, b"\x01\xf9\x3f", 1), "truncated"),
    "a chunk that is too long": (_page(0, 1, b"\xff\xff", 1), "Invalid chunk length"),
    "a page that ends early": (_page(0, 0, b"\0", 1), "does not end where its records do"),
    "pieces behind their commit": (_swapped, "ends in the middle|0 pieces|not alone"),
    "a large group without its last piece": (_dropped(1), "pieces, and its commit says|stands where"),
    "a large group without its commit": (_dropped(2), "not alone in them"),
    "nothing behind a piece": (lambda *all: [one.__delitem__(slice(2, None)) for one in all], "middle"),
    "places of others": (_placed(0, bytes(16)), "cannot be unpacked"),
    "a place in front of all": (_placed(0, struct.pack("<8q", *[-1] * 8)), "ends at no place"),
}  # fmt: skip


@pytest.mark.parametrize("name", HOSTILE)
def test_what_a_hostile_part_says_is_not_believed(
    name: str, made: tuple[Path, ArchivePart, list[bytes]], tmp_path: Path
) -> None:
    change, message = HOSTILE[name]
    with pytest.raises(ArchiveDamaged, match=message):
        _read(changed(made, tmp_path, change))


@pytest.mark.parametrize(
    "footer",
    [
        b"",
        FOOTER.pack(0, FOOTER_MAGIC),
        FOOTER.pack(1 << 30, FOOTER_MAGIC),
        FOOTER.pack(2, FOOTER_MAGIC),
        FOOTER.pack(4, b"\x89BLIBB\x02\n"),
    ],
)
def test_a_list_of_frames_that_is_none(
    footer: bytes, made: tuple[Path, ArchivePart, list[bytes]], tmp_path: Path
) -> None:
    with pytest.raises(ArchiveDamaged, match="list of frames"):
        changed(made, tmp_path, lambda *all: None, footer)


def test_the_frames_of_the_part(
    made: tuple[Path, ArchivePart, list[bytes]], tmp_path: Path
) -> None:
    kinds: list[int] = []
    changed(made, tmp_path, lambda frames, *rest: kinds.extend(f.kind for f in frames))
    assert kinds == [GROUPS, PIECE, COMMIT, GROUPS]


def test_an_older_program_refuses_the_manifest(
    made: tuple[Path, ArchivePart, list[bytes]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Instead of saying that it is damaged."""
    data = ArchiveManifest("", parts=(made[1],)).build()
    monkeypatch.setattr("binlog_storage.archive.manifest.VERSION", 2)
    with pytest.raises(NotAnArchive, match="is of version 3; this program reads those up to 2"):
        ArchiveManifest.parse(data, MANIFEST_NAME)


def test_a_page_is_filled_to_its_last_byte(tmp_path: Path) -> None:
    """Groups of all sizes around a page: as many bytes are left on it as can be."""
    start = group(Gtid(0, 1, 1), 100)
    step = PAGE_END - len(start.payload) - 100
    groups = [start, *(group(Gtid(0, 1, n), step + n) for n in range(2, 130))]
    name = f"part{NAME}"
    facts = part_writer()(tmp_path / name, [placed(groups, {}, 1)], 1, None, BinlogState())
    assert facts is not None
    reader = PartReader(tmp_path, facts.part(tmp_path / name))
    found = [payload for rows in reader.rows() for payload in rows.payloads()]
    assert found == [one.payload for one in groups]
