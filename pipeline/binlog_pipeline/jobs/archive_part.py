"""Writing a part of an archive, a slice as a Parquet file. Columns: `binlog_storage.archive.part_reader`."""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from binlog_storage.archive.part_reader import PartReader
from binlog_storage.archive.publisher import STAGED_PREFIX, StagedPart
from binlog_storage.ibb.chunk import Position
from numpy.typing import NDArray

from binlog_pipeline.groups import Groups, Integers, chosen
from binlog_pipeline.jobs.archive_facts import PartFacts, marker_time
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
    columns = [
        groups.domain,
        groups.server,
        groups.seq,
        groups.file,
        groups.offset,
        groups.timestamp,
    ]
    mask = None  # of the markers
    if groups.markers:
        payloads, columns, mask = _with_markers(groups, columns)
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
    groups: Groups, columns: list[Integers]
) -> tuple[list[bytes], list[Integers], NDArray[np.bool_]]:
    """Payloads and columns with the markers among them, and which these are. The last column is the time."""
    payloads = list(groups.payloads)
    # What stands in front of group 0 comes before what stands in front of group 1; so the last is put in first.
    for at, marker in reversed(groups.markers):
        payloads.insert(at, marker)
    at_marker = [at for at, _ in groups.markers]
    found = [np.insert(column, at_marker, 0) for column in columns[:-1]]
    found.append(np.insert(columns[-1], at_marker, [marker_time(m) for _, m in groups.markers]))
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
