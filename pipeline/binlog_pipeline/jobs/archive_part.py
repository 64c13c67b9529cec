"""Writing a part of an archive, a slice as a Parquet file. Columns: `binlog_storage.archive.part_reader`."""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import google_crc32c
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from binlog_storage.archive.manifest import ArchivePart
from binlog_storage.archive.part_reader import PartReader
from binlog_storage.archive.publisher import STAGED_PREFIX, StagedPart
from binlog_storage.disk.durable_files import sync_file
from binlog_storage.ibb.chunk import Position
from numpy.typing import NDArray

from binlog_pipeline.groups import Groups, Integers, chosen
from binlog_pipeline.sources.source import MarkedSlice, Slice
from binlog_pipeline.views.raw import RAW_SCHEMA, RawView
from binlog_pipeline.views.view import GTID, TIME

ROW_GROUP_BYTES: Final = 8 << 20
_READ_BYTES: Final = 1 << 20
_TIMES_PER_S: Final = 1_000_000


@dataclass(frozen=True, slots=True)
class ArchiveItem:
    """The content of a part: a slice, without the groups that end at `after` or before.

    known_markers: so many start markers in front of its first group are in the archive already.
    """

    part: Slice
    after: Position | None = None
    known_markers: int = 0

    def read(self) -> Iterator[Groups]:
        """The groups, with start markers where the source has them. Raises as `Slice.read`."""
        part, known = self.part, self.known_markers
        stream = part.read_marked() if isinstance(part, MarkedSlice) else part.read()
        for groups in stream if self.after is None else chosen(stream, self._is_behind):
            if known:
                in_front = [marker for at, marker in groups.markers if not at]
                yield groups.with_markers(groups.markers[min(known, len(in_front)) :])
                known = 0 if len(groups) else known - min(known, len(in_front))
            else:
                yield groups

    def _is_behind(self, groups: Groups) -> NDArray[np.bool_]:
        assert self.after is not None
        file_no, offset = self.after
        mask: NDArray[np.bool_] = (groups.file > file_no) | (
            (groups.file == file_no) & (groups.offset > offset)
        )
        return mask

    def __str__(self) -> str:
        return str(self.part)


@dataclass(frozen=True, slots=True)
class WrittenPart:
    """A part that waits to be published.

    first_place: where its first group ends in the source.
    """

    staged: StagedPart
    first_place: tuple[int, int]


@dataclass(frozen=True, slots=True)
class WritePart:
    """A task of a worker: writes the part of an item, under a name that nobody else uses.

    Args:
        run: what the names of this run have in common.
        level: of zstd, 1 to 22.
        is_checked: read it back, and compare.
    """

    directory: str
    run: str
    level: int = 1
    is_checked: bool = False

    def __call__(self, item: ArchiveItem) -> WrittenPart | None:
        """Write one part, and sync it; None if it would be empty. Raises as `Slice.read`, OSError."""
        name = f"{STAGED_PREFIX}{self.run}-{uuid.uuid4().hex}"
        path = Path(self.directory) / name
        facts = PartFacts()
        try:
            with pq.ParquetWriter(path, RAW_SCHEMA, **_settings(self.level)) as writer:
                _write(item, writer, facts)
            if facts.is_empty:
                path.unlink()
                return None
            part = facts.part(path)
            if self.is_checked:
                PartReader(path.parent, part).check()
        except BaseException:
            path.unlink(missing_ok=True)
            raise
        return WrittenPart(StagedPart(name, part), facts.first_place)


@dataclass(slots=True)
class PartFacts:
    """Facts of a part for the manifest: its groups are added in their order, and their bytes as well."""

    groups: int = 0
    payload_bytes: int = 0
    markers: int = 0
    markers_behind: int = 0
    crc32c: int = 0
    first: str = ""
    last: str = ""
    first_place: tuple[int, int] = (0, 0)
    last_place: tuple[int, int] = (0, 0)
    last_sha256: str = ""
    times: list[int] = field(default_factory=list)
    _last_of: dict[tuple[int, int], int] = field(default_factory=dict)

    @property
    def is_empty(self) -> bool:
        return not self.groups and not self.markers

    def add(self, groups: Groups) -> None:
        """Note GTIDs, places and times of groups; their bytes are for `add_bytes`."""
        count = len(groups)
        behind = sum(at == count for at, _ in groups.markers)
        self.markers_behind = behind if count else self.markers_behind + behind
        if not count:
            return
        if not self.groups:
            self.first, self.first_place = str(groups.gtid(0)), groups.place(0)
        self.groups += count
        self.last, self.last_place = str(groups.gtid(count - 1)), groups.place(count - 1)
        if groups.large is None:
            self.last_sha256 = hashlib.sha256(groups.payloads[-1]).hexdigest()
        self.times += [int(groups.timestamp.min()), int(groups.timestamp.max())]
        for i in _lasts(groups):
            domain, server, seq = groups.gtid(i)
            self._last_of.pop((domain, server), None)  # to the end: in the order of the log
            self._last_of[domain, server] = seq

    def add_bytes(self, data: bytes) -> None:
        """Add the bytes of groups that were added."""
        self.crc32c = google_crc32c.extend(self.crc32c, data)
        self.payload_bytes += len(data)

    def note_marker(self, marker: bytes) -> None:
        """Note a start marker that is written into the part."""
        self.markers += 1
        self.times.append(_marker_time(marker))

    def part(self, path: Path) -> ArchivePart:
        """The manifest's entry for the part in `path`, which is synced."""
        sync_file(path)
        digest = hashlib.sha256()
        with path.open("rb") as file:
            while data := file.read(_READ_BYTES):
                digest.update(data)
        return ArchivePart(
            size=path.stat().st_size,
            sha256=digest.hexdigest(),
            groups=self.groups,
            payload_bytes=self.payload_bytes,
            crc32c=self.crc32c,
            first=self.first,
            last=self.last,
            gtids=",".join(f"{d}-{s}-{seq}" for (d, s), seq in self._last_of.items()),
            last_sha256=self.last_sha256,
            ts_min=min(self.times),
            ts_max=max(self.times),
            last_place=self.last_place,
            markers_behind=self.markers_behind,
            name=path.name,
        )


def _lasts(groups: Groups) -> list[int]:
    """The last group of each domain and server, in their order."""
    key = (groups.domain.astype(np.uint64) << np.uint64(32)) | groups.server.astype(np.uint64)
    if (key == key[-1]).all():
        return [len(key) - 1]
    _, from_end = np.unique(key[::-1], return_index=True)
    return sorted((len(key) - 1 - from_end).tolist())


def _marker_time(marker: bytes) -> int:
    """The time of a start marker: when the server started, in seconds since 1970."""
    return int.from_bytes(marker[:4], "little")


def _write(item: ArchiveItem, writer: pq.ParquetWriter, facts: PartFacts) -> None:
    held: list[Groups] = []
    size = 0
    for groups in item.read():
        if groups.large is not None:
            _write_rows(held, writer, facts)
            held, size = [], 0
            _write_large(groups, writer, facts)
            continue
        added = sum(map(len, groups.payloads))
        if size + added > ROW_GROUP_BYTES:  # before: what is read of an archive must not grow
            _write_rows(held, writer, facts)
            held, size = [], 0
        held.append(groups)
        size += added
    _write_rows(held, writer, facts)


def _write_rows(held: list[Groups], writer: pq.ParquetWriter, facts: PartFacts) -> None:
    """A row group of groups that are not large, and of the markers among them."""
    batches = [_batch(groups, facts) for groups in held if len(groups) or groups.markers]
    if batches:
        table = pa.Table.from_batches(batches, RAW_SCHEMA)
        writer.write_table(table, row_group_size=len(table))


def _batch(groups: Groups, facts: PartFacts) -> pa.RecordBatch:
    payloads: Sequence[bytes] = groups.payloads
    data = b"".join(payloads)
    facts.add(groups)
    facts.add_bytes(data)
    columns: Sequence[Integers] = groups.columns
    mask = None  # of the markers
    if groups.markers:
        payloads, columns, mask = _with_markers(groups)
        data = b"".join(payloads)
    for _, marker in groups.markers:
        facts.note_marker(marker)
    domain, server, seq, file, offset = (
        pa.array(column, pa.int64(), mask=mask) for column in columns[:5]
    )
    ends = np.cumsum(np.fromiter(map(len, payloads), np.int32, len(payloads)), dtype=np.int32)
    offsets = np.concatenate([np.zeros(1, np.int32), ends])
    is_null = None if mask is None else pa.array(mask)
    return pa.RecordBatch.from_arrays(
        [
            pa.StructArray.from_arrays([domain, server, seq], fields=list(GTID), mask=is_null),
            file,
            offset,
            pa.array(columns[5] * _TIMES_PER_S, pa.int64()).view(TIME),
            pa.array(np.zeros(len(payloads), np.int32)),
            pa.array(np.ones(len(payloads), np.bool_)),
            pa.BinaryArray.from_buffers(
                pa.binary(), len(payloads), [None, pa.py_buffer(offsets), pa.py_buffer(data)]
            ),
        ],
        schema=RAW_SCHEMA,
    )


def _with_markers(
    groups: Groups,
) -> tuple[list[bytes], list[Integers], NDArray[np.bool_]]:
    """Payloads and columns with the markers among them, and which these are."""
    payloads = list(groups.payloads)
    # What stands in front of group 0 comes before what stands in front of group 1; so the last is put in first.
    for at, marker in reversed(groups.markers):
        payloads.insert(at, marker)
    at_marker = [at for at, _ in groups.markers]
    *places, times = groups.columns
    found = [np.insert(column, at_marker, 0) for column in places]
    found.append(np.insert(times, at_marker, [_marker_time(m) for _, m in groups.markers]))
    return payloads, found, np.insert(np.zeros(len(groups), np.bool_), at_marker, True)


def _write_large(group: Groups, writer: pq.ParquetWriter, facts: PartFacts) -> None:
    """A large group has row groups of its own."""
    facts.add(group)
    held: list[pa.RecordBatch] = []
    last = hashlib.sha256()
    for batch in RawView().batches([group]):
        data = batch.column("data")[0].as_py()
        facts.add_bytes(data)
        last.update(data)
        held.append(batch)
        if len(held) * _READ_BYTES >= ROW_GROUP_BYTES:
            writer.write_table(pa.Table.from_batches(held))
            held = []
    if held:
        writer.write_table(pa.Table.from_batches(held))
    facts.last_sha256 = last.hexdigest()


def _settings(level: int) -> dict[str, Any]:
    return {
        "compression": "zstd",
        "compression_level": level,
        "use_dictionary": False,
        "write_statistics": ["gtid.domain", "gtid.server", "gtid.seq", "file", "offset", "ts"],
        "column_encoding": {
            "gtid.domain": "PLAIN",
            "gtid.server": "PLAIN",
            "gtid.seq": "DELTA_BINARY_PACKED",
            "file": "PLAIN",
            "offset": "DELTA_BINARY_PACKED",
            "ts": "DELTA_BINARY_PACKED",
            "part": "PLAIN",
            "is_last": "PLAIN",
            "data": "DELTA_LENGTH_BYTE_ARRAY",
        },
    }
