"""Parts in the form of Parquet.

    gtid     struct of domain, server, seq; of a start marker null
    file     and
    offset   where the group ended in the source; null of a start marker
    ts       time of the group
    part     number of the row within its group, from 0
    is_last  whether it is the last one of its group
    data     bytes, in normal form

The rows are in the order of the log. A group of more than 4 MiB has a row a MiB, and row groups of its own; all others
have one row. These are the columns of view `raw`. None of them has a dictionary.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from binlog_protocol.groups.stored_group import (
    FORMAT_DESCRIPTION_EVENT,
    GTID_EVENT,
    HEAD_BYTES,
    HEAD_FIELDS,
)
from binlog_protocol.gtid import Gtid

from binlog_storage.archive.errors import ArchiveDamaged, PyarrowMissing
from binlog_storage.archive.opened_part import OpenedPart
from binlog_storage.archive.page_sizes import ColumnLevels, check_footer, unpacked_size
from binlog_storage.archive.part_rows import ROW_GROUP_BYTES_MAX, PartRows
from binlog_storage.engine import LargeGroup
from binlog_storage.errors import NoBinlogKey
from binlog_storage.ibb.chunk import Position

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa
    from numpy.typing import NDArray

_HEAD_BYTES: Final = 64
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


class ParquetRows:
    """See `PartForm`."""

    def __init__(self, part: OpenedPart) -> None:
        """Raises `PyarrowMissing`."""
        self._part: Final = part
        self._parquet: Final = parquet()

    def next_rows(self, file: Any, number: int) -> tuple[PartRows, int] | None:
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
                raise self._part.damaged("a group of several rows is not alone in its row group")
            return self._plain(table), number
        return None

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
        file = file + np.where(is_marker, 0, self._part.part.file_base)
        begins -= begins[0]
        rows = PartRows(whole, begins[1:], domain, server, seq, file, offset, is_marker)
        self._check_heads(rows, begins[:-1])
        return rows

    def _check_heads(self, rows: PartRows, begins: NDArray[np.int64]) -> None:
        """Whether each group has the GTID that its columns have."""
        import numpy as np

        if (rows.ends - begins < HEAD_BYTES).any():
            raise self._part.damaged(f"a group of less than {HEAD_BYTES} bytes")
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
                raise self._part.damaged(
                    f"what its columns call {said} is group {found} by its bytes"
                )
            raise self._part.damaged(
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
        with self.open() as file:
            for row_group in range(number, end):
                table = self._row_group(file, row_group, ["data"])
                for piece in table.column(0):
                    yield piece.as_py()
        self._part.require_unchanged()

    @contextmanager
    def open(self) -> Iterator[Any]:
        with self._part.file() as opened:
            file = self._said_by_pyarrow(lambda: self._parquet.ParquetFile(opened))
            columns = self._said_by_pyarrow(
                lambda: {field.name: str(field.type) for field in file.schema_arrow}
            )
            if columns != _COLUMNS:
                raise self._part.damaged(f"its columns are {columns}, not {_COLUMNS}")
            self._said_by_pyarrow(lambda: self._check_footer(file.schema))
            yield file

    def _check_footer(self, schema: Any) -> None:
        found = [schema.column(i) for i in range(len(schema))]
        levels = [
            ColumnLevels(
                one.max_repetition_level,
                one.max_definition_level,
                one.physical_type == "BYTE_ARRAY",
            )
            for one in found
        ]
        content = self._part.content
        check_footer(content.pread, content.size, levels)

    def _row_group(self, file: Any, number: int, columns: list[str] | None = None) -> pa.Table:
        """A row group, checked: no nulls where there must be none, and not larger than the limit."""
        self._said_by_pyarrow(lambda: self._check_size(file.metadata.row_group(number)))
        table = self._said_by_pyarrow(lambda: file.read_row_group(number, columns=columns))
        for name in {"part", "is_last", "data"} & set(table.column_names):
            if table.column(name).null_count:
                raise self._part.damaged(f"a row has no {name}")
        if "gtid" in table.column_names:
            for gtid in table.column("gtid").chunks:
                if any(part.null_count > 0 for part in gtid.drop_null().flatten()):
                    raise self._part.damaged("a GTID is not whole")
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
            raise self._part.damaged(f"its columns are written as {', '.join(sorted(foreign))}")
        # All rows but the last of a large group are at least the head of a group.
        if size > ROW_GROUP_BYTES_MAX or group.num_rows > 1 + size // HEAD_BYTES:
            raise self._part.damaged(
                f"a row group has {size} bytes and {group.num_rows} rows; those of an archive have at most "
                f"{ROW_GROUP_BYTES_MAX} bytes, and rows of {HEAD_BYTES} bytes at least"
            )

    def _unpacked(self, column: Any) -> int:
        begin = column.data_page_offset
        if column.has_dictionary_page:
            begin = min(begin, column.dictionary_page_offset)
        return unpacked_size(self._part.content.pread, begin, column.total_compressed_size)

    def _ends_group(self, file: Any, number: int) -> bool:
        """Whether a large group ends with this row group."""
        if number >= file.num_row_groups:
            raise self._part.damaged("it ends in the middle of a group")
        is_last = self._row_group(file, number, ["is_last"]).column(0).to_pylist()
        if any(is_last[:-1]):
            raise self._part.damaged("a group of several rows is not alone in its row groups")
        return bool(is_last and is_last[-1])

    def _said_by_pyarrow(self, call: Callable[[], Any]) -> Any:
        try:
            return call()
        except (ArchiveDamaged, NoBinlogKey):
            raise
        except Exception as error:  # whatever pyarrow says of it
            raise self._part.damaged(str(error)) from error


def _integers(array: pa.Array) -> NDArray[np.int64]:
    import numpy as np

    return np.asarray(array.fill_null(0), np.int64)


def parquet() -> Any:
    """The library. Raises `PyarrowMissing`."""
    try:
        import numpy as np  # noqa: F401
        import pyarrow.parquet
    except ModuleNotFoundError:
        raise PyarrowMissing(
            "parts of archives: pyarrow and numpy are needed to read them; pip install '.[jobs]'"
        ) from None
    return pyarrow.parquet
