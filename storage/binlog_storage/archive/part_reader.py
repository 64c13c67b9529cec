"""Parts: Parquet files of groups as they are in the log. Reading one back.

    gtid     struct of domain, server, seq; of a start marker null
    file     and
    offset   where the group ended in the source; null of a start marker
    ts       time of the group
    part     number of the row within its group, from 0
    is_last  whether it is the last one of its group
    data     bytes, in normal form

The rows are in the order of the log. A group of more than 4 MiB has a row a MiB, and row groups of its own; all others
have one row. These are the columns of view `raw`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import google_crc32c

from binlog_storage.archive.errors import ArchiveDamaged, PyarrowMissing
from binlog_storage.archive.manifest import Part
from binlog_storage.engine import LargeGroup
from binlog_storage.ibb.chunk import Position

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa
    from numpy.typing import NDArray

_READ_BYTES: Final = 1 << 20
_HEAD_BYTES: Final = 64


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

    def payloads(self) -> list[bytes]:
        """The payload of each row."""
        ends = self.ends.tolist()
        begins = [0, *ends[:-1]]
        whole = bytes(self.data)
        return [whole[a:b] for a, b in zip(begins, ends, strict=True)]


class PartReader:
    """One part. That it is as it was written is looked at first.

    Args:
        directory: of the archive.
    """

    def __init__(self, directory: Path, part: Part) -> None:
        """Raises `ArchiveDamaged`, `PyarrowMissing`."""
        self.part: Final = part
        self.path: Final = directory / part.name
        self._parquet = _parquet()
        self._check_file()

    def _check_file(self) -> None:
        part, digest = self.part, hashlib.sha256()
        try:
            size = self.path.stat().st_size
            if size != part.size:
                raise self._damaged(f"it has {size} bytes, not {part.size}")
            with self.path.open("rb") as file:
                while data := file.read(_READ_BYTES):
                    digest.update(data)
        except FileNotFoundError:
            raise self._damaged("it is missing") from None
        except OSError as error:
            raise self._damaged(f"it cannot be read: {error.strerror or error}") from error
        if digest.hexdigest() != part.sha256:
            raise self._damaged("its bytes are not those that were written (sha256)")

    def rows(self) -> Iterator[PartRows]:
        """All rows, a few MiB at a time. Raises `ArchiveDamaged`."""
        with self._open() as file:
            number = 0
            while number < file.num_row_groups:
                table, begin = file.read_row_group(number), number
                number += 1
                if table.column("is_last")[0].as_py():
                    yield self._plain(table)
                    continue
                while not _ends_group(file, number - 1):
                    number += 1
                yield self._large(table.slice(0, 1), begin, number)

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
        whole = memoryview(values)[int(begins[0]) : int(begins[-1])]
        file, offset = _integers(batch.column("file")), _integers(batch.column("offset"))
        file = file + np.where(is_marker, 0, self.part.file_base)
        ends = begins[1:] - begins[0]
        return PartRows(whole, ends, domain, server, seq, file, offset, is_marker)

    def _large(self, first: pa.Table, number: int, end: int) -> PartRows:
        rows = self._plain(first)
        place = Position(int(rows.file[0]), int(rows.offset[0]))
        large = LargeGroup(
            bytes(rows.data[:_HEAD_BYTES]), place, partial(self._pieces, number, end)
        )
        return PartRows(
            rows.data, rows.ends, rows.domain, rows.server, rows.seq, rows.file, rows.offset,
            rows.is_marker, large,
        )  # fmt: skip

    def _pieces(self, number: int, end: int) -> Iterator[bytes]:
        with self._open() as file:
            for row_group in range(number, end):
                table = file.read_row_group(row_group, columns=["data"])
                for piece in table.column(0):
                    yield piece.as_py()

    def _open(self) -> Any:
        try:
            return self._parquet.ParquetFile(self.path)
        except Exception as error:  # whatever pyarrow says of it
            raise self._damaged(str(error)) from error

    def _damaged(self, what: str) -> ArchiveDamaged:
        first, last = self.part.first, self.part.last
        return ArchiveDamaged(
            f"{self.path} (groups {first} to {last}): {what}; restore it from a copy of the archive"
        )


def _ends_group(file: Any, number: int) -> bool:
    """Whether a large group ends with this row group."""
    is_last = file.read_row_group(number, columns=["is_last"]).column(0)
    return bool(is_last[-1].as_py())


def _integers(array: pa.Array) -> NDArray[np.int64]:
    import numpy as np

    return np.asarray(array.fill_null(0), np.int64)


def _parquet() -> Any:
    try:
        import numpy as np  # noqa: F401
        import pyarrow.parquet
    except ModuleNotFoundError:
        raise PyarrowMissing(
            "archives are Parquet files: pyarrow and numpy are needed to read them; pip install 'binlog-server[jobs]'"
        ) from None
    return pyarrow.parquet
