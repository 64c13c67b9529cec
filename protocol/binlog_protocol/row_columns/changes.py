"""Row changes of one shape, gathered as bytes, and what they become: one Arrow batch an image.

Of one shape: one table as it is described at one time, one kind of change, the same columns present.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from binlog_protocol.dataclass import dataclass
from binlog_protocol.errors import ProtocolError
from binlog_protocol.events.rows import ChangeKind, RowsEvent
from binlog_protocol.events.table_map import TableMap
from binlog_protocol.row_columns.arrays import joined_ranges
from binlog_protocol.row_columns.column import ArrowColumn, arrow_column
from binlog_protocol.row_columns.image import RowLayout
from binlog_protocol.row_columns.options import ColumnOptions
from binlog_protocol.row_columns.row_bytes import Damaged, DamagedGroup, Field, Integers, RowBytes
from binlog_protocol.row_columns.texts import storable


@dataclass(frozen=True, slots=True)
class Changes:
    """Rows of one shape, in the order of the log.

    Element i of `group`, `event` and `row` is where row i comes from: number of the group as it was given, of the
    event in the group, of the row in the event, the last two from 0. An INSERT has no `before`, a DELETE no `after`;
    both have all columns of the table, and null in those that were not logged: `before_present`, `after_present` are
    the numbers of those that were. Hidden columns (`TableMap.visible`) are in none of them.
    """

    table: TableMap
    kind: ChangeKind
    group: NDArray[np.int64]
    event: NDArray[np.int32]
    row: NDArray[np.int32]
    before: pa.RecordBatch | None
    after: pa.RecordBatch | None
    before_present: tuple[int, ...]
    after_present: tuple[int, ...]

    def __len__(self) -> int:
        return len(self.row)


@dataclass(frozen=True, slots=True)
class RowCounts:
    """The numbers of rows in the row events of one shape; an element an event, in the order of the log.

    `group` and `event` are as of `Changes`. `size` is in bytes, of the images alone and uncompressed.
    """

    table: TableMap
    kind: ChangeKind
    group: NDArray[np.int64]
    event: NDArray[np.int32]
    rows: NDArray[np.int64]
    size: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.rows)


def column_names(table: TableMap) -> list[str]:
    """@1, @2, ... where no names were logged; U+FFFD for what is no UTF-8 in them."""
    return [storable(column.name or f"@{i}") for i, column in enumerate(table.columns, 1)]


def arrow_schema(table: TableMap, options: ColumnOptions) -> pa.Schema:
    """The Arrow schema of a table's row images."""
    made = arrow_columns(table, options)
    return pa.schema([pa.field(column.name, column.type) for column in made])


def arrow_columns(table: TableMap, options: ColumnOptions) -> list[ArrowColumn]:
    prefix = f"{table.database}.{table.table}."
    return [
        arrow_column(column, prefix + name, options)._replace(name=name)
        for column, name in zip(table.columns, column_names(table), strict=True)
    ]


class _Image:
    """The columns of a table that are present in one image."""

    def __init__(self, table: TableMap, columns: Sequence[ArrowColumn], bitmap: int) -> None:
        self.present: Final = tuple(i for i in range(len(columns)) if bitmap >> i & 1)
        self.of: Final = [table.columns[i] for i in self.present]
        self.readings: Final = [columns[i].reading for i in self.present]
        self._columns = columns[: table.visible_count]

    @property
    def visible(self) -> tuple[int, ...]:
        """The numbers of those that are not hidden."""
        return tuple(i for i in self.present if i < len(self._columns))

    def batch(self, fields: Sequence[Field], count: int) -> pa.RecordBatch:
        found = dict(zip(self.present, fields, strict=True))
        arrays = [
            column.values(found[i]) if i in found else pa.nulls(count, column.type)
            for i, column in enumerate(self._columns)
        ]
        names = [column.name for column in self._columns]
        return pa.RecordBatch.from_arrays(arrays, names=names)


class GatheredImages:
    """Row events of one shape. One owner.

    head_end: where in an event the images begin.
    """

    def __init__(
        self, table: TableMap, columns: Sequence[ArrowColumn], first: RowsEvent, head_end: int
    ) -> None:
        self.head_end: Final = head_end
        self._table = table
        self._first = first
        self._images = [_Image(table, columns, first.present)]
        if first.kind is ChangeKind.UPDATE:
            self._images.append(_Image(table, columns, first.present_after))
        self._layout = RowLayout(
            [image.of for image in self._images], [image.readings for image in self._images]
        )
        self._forget()

    def _forget(self) -> None:
        self.size = 0
        self._rows: list[bytes] = []  # of many events, one behind the other
        self._lengths: list[Integers] = []
        self._groups: list[Integers] = []
        self._events: list[Integers] = []

    def add(
        self, data: RowBytes, begins: Integers, ends: Integers, groups: Integers, events: Integers
    ) -> None:
        """The images of some events: where each lies, and the numbers of its group and of itself."""
        rows = joined_ranges(data, begins, ends)
        self._rows.append(rows)
        self._lengths.append(ends - begins)
        self._groups.append(groups)
        self._events.append(events)
        self.size += len(rows)

    @property
    def is_empty(self) -> bool:
        return not self._rows

    def take(self) -> Changes:
        """The gathered changes, which are then forgotten. Raises `ProtocolError`, `UnrepresentableValue`."""
        try:
            return self._decode()
        except (Damaged, ProtocolError):  # the second of types that are read value by value
            raise self._explanation() from None
        finally:
            self._forget()

    def count(self) -> RowCounts:
        """The same, as counts. Raises `ProtocolError` where rows do not end with their event."""
        try:
            data, ends = self._joined()
            counts = self._layout.counts(data, ends) if self._has_bytes(data) else self._one_each()
            return RowCounts(
                self._table,
                self._first.kind,
                np.concatenate(self._groups),
                np.concatenate(self._events).astype(np.int32),
                counts,
                np.concatenate(self._lengths),
            )
        except Damaged:
            raise self._explanation() from None
        finally:
            self._forget()

    def _joined(self) -> tuple[RowBytes, Integers]:
        """The bytes of all images, and where in them events end."""
        return RowBytes(b"".join(self._rows)), np.cumsum(np.concatenate(self._lengths))

    def _has_bytes(self, data: RowBytes) -> bool:
        """Not so an INSERT of nothing but defaults under binlog_row_image=MINIMAL. Raises `Damaged`."""
        if any(image.present for image in self._images):
            return True
        if data.size:
            raise Damaged
        return False

    def _one_each(self) -> Integers:
        """A row without bytes in each event."""
        return np.ones(sum(map(len, self._lengths)), np.int64)

    def _decode(self) -> Changes:
        data, ends = self._joined()
        fields: list[list[Field]] = [[] for _ in self._images]
        counts = self._one_each()
        if self._has_bytes(data):
            fields, counts = self._layout.fields(data, ends)
        first_rows = np.cumsum(counts) - counts
        rows = int(counts.sum())
        batches = [image.batch(of, rows) for image, of in zip(self._images, fields, strict=True)]
        kind = self._first.kind
        before = None if kind is ChangeKind.INSERT else 0
        after = None if kind is ChangeKind.DELETE else len(batches) - 1
        return Changes(
            self._table.visible,
            kind,
            np.repeat(np.concatenate(self._groups), counts),
            np.repeat(np.concatenate(self._events).astype(np.int32), counts),
            (np.arange(rows) - np.repeat(first_rows, counts)).astype(np.int32),
            None if before is None else batches[before],
            None if after is None else batches[after],
            () if before is None else self._images[before].visible,
            () if after is None else self._images[after].visible,
        )

    def _explanation(self) -> ProtocolError:
        """The error of the plain decoder for the bytes; it stops at the first that are wrong."""
        table = replace(self._table, table_id=self._first.table_id)
        name = f"{table.database}.{table.table}"
        rows, at = b"".join(self._rows), 0
        columns = (self._lengths, self._groups, self._events)
        for length, group, event in zip(
            *(np.concatenate(c).tolist() for c in columns), strict=True
        ):
            try:
                for _ in replace(self._first, body=rows[at : at + length]).rows(table):
                    pass
            except ProtocolError as error:
                return DamagedGroup(str(error), group, event)
            at += length
        return ProtocolError(f"row events of {name} are damaged")
