"""Parts: writing one, in either form (`parquet_rows`, `ibb_frames`). It needs pyarrow: import it where it is called."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import field
from pathlib import Path
from typing import Any, Final, Protocol

import google_crc32c
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from binlog_protocol.dataclass import dataclass
from binlog_protocol.gtid import BinlogState, Gtid
from numpy.typing import NDArray

from binlog_storage.archive.encryption import ArchiveKey, EncryptingFile
from binlog_storage.archive.ibb_part_writer import IbbPartWriter
from binlog_storage.archive.manifest import ArchivePart, form_of
from binlog_storage.disk.durable_files import sync_file
from binlog_storage.engine import LargeGroup
from binlog_storage.ibb.chunk import Position

ROW_GROUP_BYTES: Final = 8 << 20
_READ_BYTES: Final = 1 << 20
_TIMES_PER_S: Final = 1_000_000
_GTID: Final = pa.struct([pa.field(name, pa.int64()) for name in ("domain", "server", "seq")])
_TIME: Final = pa.timestamp("us", tz="UTC")
PART_SCHEMA: Final = pa.schema(
    [
        pa.field("gtid", _GTID),
        pa.field("file", pa.int64()),
        pa.field("offset", pa.int64()),
        pa.field("ts", _TIME),
        pa.field("part", pa.int32()),
        pa.field("is_last", pa.bool_()),
        pa.field("data", pa.binary()),
    ]
)


class PartGroups(Protocol):
    """Consecutive groups, and start markers among them. A large group stands alone.

    payloads: in normal form. Of a large group only its beginning: `pieces` has all of it.
    markers: each with the number of the group in front of which it was logged.
    """

    @property
    def payloads(self) -> Sequence[bytes]: ...

    @property
    def markers(self) -> Sequence[tuple[int, bytes]]: ...

    @property
    def large(self) -> LargeGroup | None: ...

    @property
    def columns(self) -> tuple[NDArray[np.int64], ...]:
        """Domain, server, seq, file, offset, timestamp."""

    def __len__(self) -> int: ...

    def gtid(self, i: int) -> Gtid: ...

    def place(self, i: int) -> Position: ...

    def pieces(self, i: int) -> Iterator[bytes]: ...


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
    key_id: int = 0
    times: list[int] = field(default_factory=list)
    _last_of: dict[tuple[int, int], int] = field(default_factory=dict)

    @property
    def is_empty(self) -> bool:
        return not self.groups and not self.markers

    def add(self, groups: PartGroups) -> None:
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
        self.times += [int(groups.columns[5].min()), int(groups.columns[5].max())]
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
            key_id=self.key_id,
        )


def _lasts(groups: PartGroups) -> list[int]:
    """The last group of each domain and server, in their order."""
    domain, server = groups.columns[:2]
    key = (domain.astype(np.uint64) << np.uint64(32)) | server.astype(np.uint64)
    if (key == key[-1]).all():
        return [len(key) - 1]
    _, from_end = np.unique(key[::-1], return_index=True)
    return sorted((len(key) - 1 - from_end).tolist())


def _marker_time(marker: bytes) -> int:
    """The time of a start marker: when the server started, in seconds since 1970."""
    return int.from_bytes(marker[:4], "little")


def write_part(
    path: Path,
    stream: Iterable[PartGroups],
    level: int,
    key: ArchiveKey | None = None,
    before: BinlogState | None = None,
) -> PartFacts | None:
    """Write groups and markers into a new file; None, and no file, if there are none. `PartFacts.part` syncs it.

    Raises what `stream` raises, and OSError; there is no file then.

    Args:
        path: the form is told by its name: `manifest.form_of`.
        level: of zstd, 1 to 22.
        key: encrypts the file; None: it is in clear.
        before: the binlog state in front of it; `.ibb.zst` parts need it.
    """
    facts = PartFacts(key_id=0 if key is None else key.number)
    try:
        with _form(path, level, key, before) as form:
            _write(stream, form, facts)
    except BaseException:
        path.unlink(missing_ok=True)
        raise
    if facts.is_empty:
        path.unlink()
        return None
    return facts


@contextlib.contextmanager
def _form(
    path: Path, level: int, key: ArchiveKey | None, before: BinlogState | None
) -> Iterator[_Form]:
    if form_of(path.name) == "ibb":
        assert before is not None
        with path.open("xb") if key is None else _encrypting(path, key) as opened:
            writer = IbbPartWriter(opened, level, before, ROW_GROUP_BYTES)
            yield _IbbForm(writer)
            writer.finish()
        return
    with (
        contextlib.nullcontext(path) if key is None else _encrypting(path, key) as file,
        pq.ParquetWriter(file, PART_SCHEMA, **_settings(level)) as writer,
    ):
        yield _ParquetForm(writer)


def _encrypting(path: Path, key: ArchiveKey) -> EncryptingFile:
    return EncryptingFile(path.open("xb"), key)


class _Form(Protocol):
    """A part that is being written, in one form."""

    def rows(self, held: Sequence[PartGroups], facts: PartFacts) -> None:
        """Write a row group of groups that are not large, and of the markers among them."""

    def large(self, group: PartGroups, facts: PartFacts) -> None:
        """Write a large group, which has row groups of its own."""


def _write(stream: Iterable[PartGroups], form: _Form, facts: PartFacts) -> None:
    held: list[PartGroups] = []
    size = 0

    def write_held() -> None:
        nonlocal held, size
        if any(len(groups) or groups.markers for groups in held):
            form.rows(held, facts)
        held, size = [], 0

    for groups in stream:
        if groups.large is not None:
            write_held()
            form.large(groups, facts)
            continue
        added = sum(map(len, groups.payloads))
        if size + added > ROW_GROUP_BYTES:  # before: what is read of an archive must not grow
            write_held()
        held.append(groups)
        size += added
    write_held()


class _IbbForm:
    """See `_Form`."""

    def __init__(self, writer: IbbPartWriter) -> None:
        self._writer: Final = writer

    def rows(self, held: Sequence[PartGroups], facts: PartFacts) -> None:
        """See `_Form`."""
        rows: list[bytes] = []
        places: list[NDArray[np.int64]] = []
        for groups in held:
            facts.add(groups)
            facts.add_bytes(b"".join(groups.payloads))
            for _, marker in groups.markers:
                facts.note_marker(marker)
            payloads, columns, _ = _with_markers(groups)
            rows += payloads
            places.append(np.stack((columns[3], columns[4])))
        self._writer.groups(rows, np.concatenate(places, axis=1))

    def large(self, group: PartGroups, facts: PartFacts) -> None:
        """See `_Form`."""
        facts.add(group)
        last = hashlib.sha256()
        place = np.stack((group.columns[3], group.columns[4]))
        for data in self._writer.large(group.pieces(0), place):
            facts.add_bytes(data)
            last.update(data)
        facts.last_sha256 = last.hexdigest()


class _ParquetForm:
    """See `_Form`."""

    def __init__(self, writer: pq.ParquetWriter) -> None:
        self._writer: Final = writer

    def rows(self, held: Sequence[PartGroups], facts: PartFacts) -> None:
        """See `_Form`."""
        batches = [_batch(groups, facts) for groups in held if len(groups) or groups.markers]
        table = pa.Table.from_batches(batches, PART_SCHEMA)
        self._writer.write_table(table, row_group_size=len(table))

    def large(self, group: PartGroups, facts: PartFacts) -> None:
        """See `_Form`."""
        facts.add(group)
        held: list[pa.RecordBatch] = []
        last = hashlib.sha256()
        for batch in large_batches(group):
            data = batch.column("data")[0].as_py()
            facts.add_bytes(data)
            last.update(data)
            held.append(batch)
            if len(held) * _READ_BYTES >= ROW_GROUP_BYTES:
                self._writer.write_table(pa.Table.from_batches(held))
                held = []
        if held:
            self._writer.write_table(pa.Table.from_batches(held))
        facts.last_sha256 = last.hexdigest()


def _batch(groups: PartGroups, facts: PartFacts) -> pa.RecordBatch:
    payloads: Sequence[bytes] = groups.payloads
    data = b"".join(payloads)
    facts.add(groups)
    facts.add_bytes(data)
    columns: Sequence[NDArray[np.int64]] = groups.columns
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
            pa.StructArray.from_arrays([domain, server, seq], fields=list(_GTID), mask=is_null),
            file,
            offset,
            pa.array(columns[5] * _TIMES_PER_S, pa.int64()).view(_TIME),
            pa.array(np.zeros(len(payloads), np.int32)),
            pa.array(np.ones(len(payloads), np.bool_)),
            pa.BinaryArray.from_buffers(
                pa.binary(), len(payloads), [None, pa.py_buffer(offsets), pa.py_buffer(data)]
            ),
        ],
        schema=PART_SCHEMA,
    )


def _with_markers(
    groups: PartGroups,
) -> tuple[list[bytes], list[NDArray[np.int64]], NDArray[np.bool_]]:
    """Payloads and columns with the markers among them, and which these are."""
    payloads = list(groups.payloads)
    if not groups.markers:
        return payloads, list(groups.columns), np.zeros(len(groups), np.bool_)
    # What stands in front of group 0 comes before what stands in front of group 1; so the last is put in first.
    for at, marker in reversed(groups.markers):
        payloads.insert(at, marker)
    at_marker = [at for at, _ in groups.markers]
    *places, times = groups.columns
    found = [np.insert(column, at_marker, 0) for column in places]
    found.append(np.insert(times, at_marker, [_marker_time(m) for _, m in groups.markers]))
    return payloads, found, np.insert(np.zeros(len(groups), np.bool_), at_marker, True)


def large_batches(group: PartGroups) -> Iterator[pa.RecordBatch]:
    """Rows of one group, of a MiB each: it is not in memory as a whole."""
    held = bytearray()
    part = 0
    for piece in group.pieces(0):
        held += piece
        while len(held) > _READ_BYTES:
            yield _large_batch(group, bytes(held[:_READ_BYTES]), part, is_last=False)
            del held[:_READ_BYTES]
            part += 1
    yield _large_batch(group, bytes(held), part, is_last=True)


def _large_batch(group: PartGroups, data: bytes, part: int, *, is_last: bool) -> pa.RecordBatch:
    domain, server, seq, file, offset = (
        pa.array(column, pa.int64()) for column in group.columns[:5]
    )
    return pa.RecordBatch.from_arrays(
        [
            pa.StructArray.from_arrays([domain, server, seq], fields=list(_GTID)),
            file,
            offset,
            pa.array(group.columns[5] * _TIMES_PER_S, pa.int64()).view(_TIME),
            pa.array([part], pa.int32()),
            pa.array([is_last]),
            pa.array([data], pa.binary()),
        ],
        schema=PART_SCHEMA,
    )


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
