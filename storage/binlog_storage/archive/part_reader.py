"""Parts: Parquet files of groups as they are in the log. Reading one back.

    gtid     struct of domain, server, seq; of a start marker null
    file     and
    offset   where the group ended in the source; null of a start marker
    ts       time of the group
    part     number of the row within its group, from 0
    is_last  whether it is the last one of its group
    data     bytes, in normal form

The rows are in the order of the log. A group of more than 4 MiB has a row a MiB, and row groups of its own; all others
have one row. These are the columns of view `raw`. None of them has a dictionary.

An archive may be of anybody's making: its checksums say only that it is as its maker wants it. So a file is opened as
one that somebody names, a row group is read only if it fits into memory, and what the columns and the manifest say of
groups is compared with the groups.
"""

from __future__ import annotations

import hashlib
import os
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from io import BufferedReader, RawIOBase
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import google_crc32c
from binlog_protocol.groups.stored_group import (
    FORMAT_DESCRIPTION_EVENT,
    GTID_EVENT,
    HEAD_BYTES,
    HEAD_FIELDS,
)
from binlog_protocol.gtid import BinlogState, Gtid

from binlog_storage.archive.encryption import FRAME_BYTES, DecryptedBytes, PartBytes, PlainBytes
from binlog_storage.archive.errors import ArchiveDamaged, PyarrowMissing
from binlog_storage.archive.manifest import ArchivePart
from binlog_storage.archive.page_sizes import unpacked_size
from binlog_storage.archive.places import GivenUp, Place, never_given_up, open_place
from binlog_storage.engine import LargeGroup
from binlog_storage.errors import NoBinlogKey
from binlog_storage.ibb.chunk import Position

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa
    from numpy.typing import NDArray

ROW_GROUP_BYTES_MAX: Final = 64 << 20
"""The largest row group, unpacked. Those written here have 8 MiB, and at most one batch of a source more."""

_READ_BYTES: Final = 1 << 20
_HEAD_BYTES: Final = 64
_TIME_BYTES: Final = 4  # with which each event begins
_COLUMNS: Final = {
    "gtid": "struct<domain: int64, server: int64, seq: int64>",
    "file": "int64",
    "offset": "int64",
    "ts": "timestamp[us, tz=UTC]",
    "part": "int32",
    "is_last": "bool",
    "data": "binary",
}
# Under these a value takes as much room in the file, unpacked, as in memory; a dictionary says one a million times.
_ENCODINGS: Final = frozenset(
    ("PLAIN", "RLE", "BIT_PACKED", "DELTA_BINARY_PACKED", "DELTA_LENGTH_BYTE_ARRAY")
)


@dataclass(frozen=True, slots=True)
class PartRows:
    """Rows that lie one behind the other: groups, and start markers among them. Or one large group.

    data: the bytes of all.
    ends: of each row, in `data`.
    is_marker: of each row. The numbers of a marker are 0.
    """

    data: memoryview
    ends: NDArray[np.int64]
    domain: NDArray[np.int64]
    server: NDArray[np.int64]
    seq: NDArray[np.int64]
    file: NDArray[np.int64]
    offset: NDArray[np.int64]
    is_marker: NDArray[np.bool_]
    large: LargeGroup | None = None

    def gtid(self, i: int) -> Gtid:
        """The GTID of a row that is no marker."""
        seq = int(self.seq.view("<u8")[i])
        return Gtid(int(self.domain[i]), int(self.server[i]), seq)

    def payloads(self) -> list[bytes]:
        """The payload of each row."""
        ends = self.ends.tolist()
        begins = [0, *ends[:-1]]
        whole = bytes(self.data)
        return [whole[a:b] for a, b in zip(begins, ends, strict=True)]


class _SharedFile(RawIOBase):
    """A reader with a position of its own over bytes that others read, too. Closing it leaves them open."""

    def __init__(self, content: PartBytes) -> None:
        self._content = content
        self._at = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        base = {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: self._content.size}
        self._at = base[whence] + offset
        return self._at

    def readinto(self, buffer: Any) -> int:
        found = self._content.pread(len(buffer), self._at)
        buffer[: len(found)] = found
        self._at += len(found)
        return len(found)


class PartReader:
    """One part. That it is as it was written is looked at first.

    One descriptor is open as long as this lives: what was looked at is what is read, whatever gets the name meanwhile.
    What is written into the file itself meanwhile is `ArchiveDamaged` at the end.

    Args:
        place: of the archive, or the directory of it.
        given_up: asked while it is brought here: nobody wants it any more.
    """

    def __init__(
        self, place: Place | Path, part: ArchivePart, given_up: GivenUp = never_given_up
    ) -> None:
        """Raises `ArchiveDamaged`, `NoBinlogKey`, `PyarrowMissing`, and as `Place.open`, but for OSError."""
        self.part: Final = part
        place = open_place(place) if isinstance(place, Path) else place
        self.path: Final = f"{place.where}/{part.name}"
        self._parquet = _parquet()
        with self._said_by_system(), place.open(part.name, part.size, given_up) as file:
            self._fd = os.dup(file.fileno())
        weakref.finalize(self, os.close, self._fd)
        self._changed_ns = 0
        self._check_file("its bytes are not those that were written (sha256)")
        self._content: PartBytes = PlainBytes(self._fd)
        if part.key_id:
            with self._said_by_system():
                self._content = DecryptedBytes(self._fd, part.key_id, place.keys, self.path)

    def _check_file(self, otherwise: str) -> None:
        part, digest = self.part, hashlib.sha256()
        with self._file(PlainBytes(self._fd)) as file:
            found = os.fstat(self._fd)
            if found.st_size != part.size:
                raise self._damaged(f"it has {found.st_size} bytes, not {part.size}")
            while data := file.read(_READ_BYTES):
                digest.update(data)
        if digest.hexdigest() != part.sha256:
            raise self._damaged(otherwise)
        self._changed_ns = found.st_ctime_ns

    def _require_unchanged(self) -> None:
        """Check behind a read that the bytes did not change; another name, or other rights, are no change of them."""
        if os.fstat(self._fd).st_ctime_ns != self._changed_ns:
            self._check_file("its bytes were changed while it was read (sha256)")

    @contextmanager
    def _file(self, content: PartBytes) -> Iterator[BufferedReader[_SharedFile]]:
        with (
            self._said_by_system(),
            BufferedReader(_SharedFile(content), FRAME_BYTES) as file,
        ):
            yield file

    @contextmanager
    def _said_by_system(self) -> Iterator[None]:
        try:
            yield
        except FileNotFoundError:
            raise self._damaged(
                "it is missing (if this began hours ago, small parts may have become one since: start it again)"
            ) from None
        except OSError as error:
            raise self._damaged(f"it cannot be read: {error.strerror or error}") from error

    def rows(self) -> Iterator[PartRows]:
        """All rows, a few MiB at a time. Raises `ArchiveDamaged`, at the end too, if more or less was to come."""
        told = _Told()
        with self._open() as file:
            number = 0
            while (found := self._next_rows(file, number)) is not None:
                rows, number = found
                told.add(rows)
                yield rows
        self._compare(told)
        self._require_unchanged()

    def rows_from(self, number: int) -> tuple[PartRows, int] | None:
        """The rows of a row group, and the number of the next one; None behind the last. Any thread.

        They are not compared with the manifest: `rows` does that. Raises `ArchiveDamaged`.
        """
        with self._open() as file:
            found = self._next_rows(file, number)
        self._require_unchanged()
        return found

    def _next_rows(self, file: Any, number: int) -> tuple[PartRows, int] | None:
        while number < file.num_row_groups:
            table, begin = self._row_group(file, number), number
            number += 1
            if not len(table):
                continue
            if not table.column("is_last")[0].as_py():
                while not self._ends_group(file, number - 1):
                    number += 1
                return self._large(table.slice(0, 1), begin, number), number
            if not all(table.column("is_last").to_pylist()):
                raise self._damaged("a group of several rows is not alone in its row group")
            return self._plain(table), number
        return None

    def _compare(self, told: _Told) -> None:
        """The manifest, with all that was read."""
        part = self.part
        if told.groups != part.groups:
            raise self._damaged(f"it has {told.groups} groups, and the manifest says {part.groups}")
        if (told.first, told.last) != (part.first, part.last):
            raise self._damaged(f"it has the groups {told.first} to {told.last}")
        if told.state != BinlogState.parse(part.gtids):
            raise self._damaged(f"it ends at '{told.state}', and the manifest says '{part.gtids}'")
        if told.groups and told.last_place != part.last_place:
            raise self._damaged(
                f"its last group ends at {told.last_place}, and the manifest says {part.last_place}"
            )
        times = min(told.times, default=0), max(told.times, default=0)
        if times != (part.ts_min, part.ts_max):  # by these a query for times leaves parts out
            raise self._damaged(
                f"its groups are of the times {times[0]} to {times[1]}, and the manifest says {part.ts_min} to "
                f"{part.ts_max}"
            )

    def check(self) -> None:
        """Whether the groups are those that were read at the source. Raises `ArchiveDamaged`."""
        crc = 0
        for rows in self.rows():
            if rows.large is not None:
                for piece in rows.large.pieces():
                    crc = google_crc32c.extend(crc, piece)
                continue
            begin = 0
            for marker, end in zip(rows.is_marker.tolist(), rows.ends.tolist(), strict=True):
                if not marker:
                    crc = google_crc32c.extend(crc, bytes(rows.data[begin:end]))
                begin = end
        if crc != self.part.crc32c:
            raise self._damaged(f"CRC-32C of its groups is {crc}, not {self.part.crc32c}")

    def _plain(self, table: pa.Table) -> PartRows:
        import numpy as np

        (batch,) = table.combine_chunks().to_batches()
        gtid = batch.column("gtid")
        is_marker = np.asarray(gtid.is_null())
        domain, server, seq = (_integers(gtid.field(i)) for i in range(3))
        data = batch.column("data")
        _, offsets, values = data.buffers()
        begins = np.frombuffer(offsets, np.int32, len(data) + 1, data.offset * 4).astype(np.int64)
        whole = memoryview(values or b"")[int(begins[0]) : int(begins[-1])]
        file, offset = _integers(batch.column("file")), _integers(batch.column("offset"))
        file = file + np.where(is_marker, 0, self.part.file_base)
        begins -= begins[0]
        rows = PartRows(whole, begins[1:], domain, server, seq, file, offset, is_marker)
        self._check_heads(rows, begins[:-1])
        return rows

    def _check_heads(self, rows: PartRows, begins: NDArray[np.int64]) -> None:
        """Whether each group has the GTID that its columns have."""
        import numpy as np

        if (rows.ends - begins < HEAD_BYTES).any():
            raise self._damaged(f"a group of less than {HEAD_BYTES} bytes")
        octets = np.frombuffer(rows.data, np.uint8)
        at = begins[:, None] + np.arange(HEAD_BYTES)
        heads = np.ascontiguousarray(octets[at]).view(np.dtype(HEAD_FIELDS)).reshape(-1)
        is_group = ~rows.is_marker
        differs = heads["type"] != np.where(is_group, GTID_EVENT, FORMAT_DESCRIPTION_EVENT)
        for name, column in (("domain", rows.domain), ("server", rows.server), ("seq", rows.seq)):
            differs |= is_group & (heads[name] != column.view("<u8"))
        if differs.any():
            i = int(differs.argmax())
            said = "a start marker" if rows.is_marker[i] else f"group {rows.gtid(i)}"
            found = Gtid(*(int(heads[name][i]) for name in ("domain", "server", "seq")))
            if heads["type"][i] == GTID_EVENT:
                raise self._damaged(f"what its columns call {said} is group {found} by its bytes")
            raise self._damaged(
                f"what its columns call {said} begins with an event of type {heads['type'][i]}"
            )

    def _large(self, first: pa.Table, number: int, end: int) -> PartRows:
        rows = self._plain(first)
        place = Position(int(rows.file[0]), int(rows.offset[0]))
        large = LargeGroup(
            bytes(rows.data[:_HEAD_BYTES]), place, partial(self._pieces, number, end)
        )
        return replace(rows, large=large)

    def _pieces(self, number: int, end: int) -> Iterator[bytes]:
        with self._open() as file:
            for row_group in range(number, end):
                table = self._row_group(file, row_group, ["data"])
                for piece in table.column(0):
                    yield piece.as_py()
        self._require_unchanged()

    @contextmanager
    def _open(self) -> Iterator[Any]:
        with self._file(self._content) as opened:
            file = self._said_by_pyarrow(lambda: self._parquet.ParquetFile(opened))
            columns = self._said_by_pyarrow(
                lambda: {field.name: str(field.type) for field in file.schema_arrow}
            )
            if columns != _COLUMNS:
                raise self._damaged(f"its columns are {columns}, not {_COLUMNS}")
            yield file

    def _row_group(self, file: Any, number: int, columns: list[str] | None = None) -> pa.Table:
        """A row group, checked: no nulls where there must be none, and not larger than the limit."""
        self._said_by_pyarrow(lambda: self._check_size(file.metadata.row_group(number)))
        table = self._said_by_pyarrow(lambda: file.read_row_group(number, columns=columns))
        for name in {"part", "is_last", "data"} & set(table.column_names):
            if table.column(name).null_count:
                raise self._damaged(f"a row has no {name}")
        if "gtid" in table.column_names:
            for gtid in table.column("gtid").chunks:
                if any(part.null_count > 0 for part in gtid.drop_null().flatten()):
                    raise self._damaged("a GTID is not whole")
        return table

    def _check_size(self, group: Any) -> None:
        """Check the size of a row group before it is read."""
        columns = [group.column(i) for i in range(group.num_columns)]
        # The file says it twice, and what stands in front of each page is what reading it goes by.
        size = sum(
            max(column.total_uncompressed_size, self._unpacked(column)) for column in columns
        )
        foreign = {encoding for column in columns for encoding in column.encodings} - _ENCODINGS
        if foreign:
            raise self._damaged(f"its columns are written as {', '.join(sorted(foreign))}")
        # All rows but the last of a large group are at least the head of a group.
        if size > ROW_GROUP_BYTES_MAX or group.num_rows > 1 + size // HEAD_BYTES:
            raise self._damaged(
                f"a row group has {size} bytes and {group.num_rows} rows; those of an archive have at most "
                f"{ROW_GROUP_BYTES_MAX} bytes, and rows of {HEAD_BYTES} bytes at least"
            )

    def _unpacked(self, column: Any) -> int:
        begin = column.data_page_offset
        if column.has_dictionary_page:
            begin = min(begin, column.dictionary_page_offset)
        return unpacked_size(self._content.pread, begin, column.total_compressed_size)

    def _ends_group(self, file: Any, number: int) -> bool:
        """Whether a large group ends with this row group."""
        if number >= file.num_row_groups:
            raise self._damaged("it ends in the middle of a group")
        is_last = self._row_group(file, number, ["is_last"]).column(0).to_pylist()
        if any(is_last[:-1]):
            raise self._damaged("a group of several rows is not alone in its row groups")
        return bool(is_last and is_last[-1])

    def _said_by_pyarrow(self, call: Callable[[], Any]) -> Any:
        try:
            return call()
        except (ArchiveDamaged, NoBinlogKey):
            raise
        except Exception as error:  # whatever pyarrow says of it
            raise self._damaged(str(error)) from error

    def _damaged(self, what: str) -> ArchiveDamaged:
        first, last = self.part.first, self.part.last
        return ArchiveDamaged(
            f"{self.path} (groups {first} to {last}): {what}; restore it from a copy of the archive"
        )


@dataclass(eq=False)
class _Told:
    """The manifest's facts about a part, gathered while it is read."""

    groups: int = 0
    first: str = ""
    last: str = ""
    last_place: tuple[int, int] = (0, 0)
    times: list[int] = field(default_factory=list)
    state: BinlogState = field(default_factory=BinlogState)

    def add(self, rows: PartRows) -> None:
        import numpy as np

        begins = np.concatenate(([0], rows.ends[:-1]))
        octets = np.frombuffer(rows.data, np.uint8)
        times = np.ascontiguousarray(octets[begins[:, None] + np.arange(_TIME_BYTES)]).view("<u4")
        self.times.extend((int(times.min()), int(times.max())))
        at = np.flatnonzero(~rows.is_marker)
        if not len(at):
            return
        self.groups += len(at)
        self.first = self.first or str(rows.gtid(int(at[0])))
        self.last = str(rows.gtid(int(at[-1])))
        self.last_place = int(rows.file[at[-1]]), int(rows.offset[at[-1]])
        # The last of each domain and server, in their order.
        keys = (rows.domain[at] << 32 | rows.server[at])[::-1]
        _, from_end = np.unique(keys, return_index=True)
        self.state.overlay(rows.gtid(int(i)) for i in at[sorted(len(at) - 1 - from_end)])


def _integers(array: pa.Array) -> NDArray[np.int64]:
    import numpy as np

    return np.asarray(array.fill_null(0), np.int64)


def _parquet() -> Any:
    try:
        import numpy as np  # noqa: F401
        import pyarrow.parquet
    except ModuleNotFoundError:
        raise PyarrowMissing(
            "archives are Parquet files: pyarrow and numpy are needed to read them; pip install '.[jobs]'"
        ) from None
    return pyarrow.parquet
