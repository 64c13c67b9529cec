"""How row changes are laid out in columns: struct, flat, cdf, debezium."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final, Protocol

import pyarrow as pa
import pyarrow.compute as pc
from binlog_protocol.dataclass import dataclass

from binlog_pipeline.errors import BadOption, SourceError
from binlog_pipeline.groups import Integers
from binlog_pipeline.schemas.row_effects import RowEffect
from binlog_pipeline.telling import readable
from binlog_pipeline.views.changes_gathering import Heads
from binlog_pipeline.views.changes_order import PLACE_FIELDS, Places
from binlog_pipeline.views.changes_rows import Rows
from binlog_pipeline.views.view import TIME

Part = tuple[pa.RecordBatch, Places]
OP: Final = pa.field("_op", pa.string())
_VERSION_BITS: Final = 63
_OFFSET_BITS: Final = 40
_SOURCE: Final = pa.struct(
    [
        pa.field("connector", pa.string()),
        pa.field("db", pa.string()),
        pa.field("table", pa.string()),
        pa.field("ts_ms", pa.int64()),
        pa.field("server_id", pa.int64()),
        pa.field("gtid", pa.string()),
        pa.field("file", pa.string()),
        pa.field("pos", pa.int64()),
        pa.field("event", pa.int32()),
        pa.field("row", pa.int32()),
    ]
)


_NAMES: Final = pa.list_(pa.field("element", pa.string()))
STATEMENT: Final = pa.struct(
    [
        pa.field("sql", pa.string()),
        pa.field("doubt", pa.string()),
        pa.field("definition", pa.string()),
        pa.field("computed", _NAMES),
        pa.field("defaulted", _NAMES),
        pa.field("is_own", pa.bool_()),
        pa.field("prepares", pa.string()),
        pa.field("ends", pa.string()),
        pa.field("charset", pa.string()),
        pa.field("taken", _NAMES),
        pa.field("sources", pa.list_(pa.field("element", _NAMES))),
    ]
)
"""The effect of a statement, with the fields of `RowEffect`."""
STATEMENT_FIELDS: Final = [
    pa.field("_before_present", pa.binary()),
    pa.field("_statement", STATEMENT),
]


class ChangesLayout(Protocol):
    """A layout of row changes in columns. Picklable."""

    @property
    def schema(self) -> pa.Schema: ...

    def parts(self, rows: Rows) -> Iterator[Part]:
        """Batches of the schema, and where their rows stand."""


@dataclass(frozen=True, slots=True)
class StructLayout:
    """See `changes.py`. `key` has no fields where the table has no primary key that is known.

    has_statements: rows may be statements, with ops=x.
    """

    fields: tuple[pa.Field, ...]
    key: tuple[pa.Field, ...]
    has_statements: bool = False

    @property
    def schema(self) -> pa.Schema:
        image = pa.struct(self.fields)
        return pa.schema(
            [
                OP,
                *PLACE_FIELDS,
                pa.field("_schema_id", pa.int64()),
                *([pa.field("_key", pa.struct(self.key))] if self.key else []),
                pa.field("_present", pa.binary()),
                pa.field("before", image),
                pa.field("after", image),
                *(STATEMENT_FIELDS if self.has_statements else []),
            ]
        )

    def parts(self, rows: Rows) -> Iterator[Part]:
        count = len(rows)
        arrays = [
            repeated(rows.op, pa.string(), count),
            *rows.places.columns(),
            repeated(rows.schema_id, pa.int64(), count),
            *([_struct(self.key, rows.key, count)] if self.key else []),
            repeated(rows.present, pa.binary(), count),
            _struct(self.fields, rows.before, count),
            _struct(self.fields, rows.after, count),
        ]
        if self.has_statements:
            arrays += [
                repeated(rows.before_present, pa.binary(), count),
                repeated(said(rows.effect), STATEMENT, count),
            ]
        yield pa.RecordBatch.from_arrays(arrays, schema=self.schema), rows.places


@dataclass(frozen=True, slots=True)
class FlatLayout:
    """`_op` to `_order_key`, then the columns as they are now; of a DELETE as they were."""

    fields: tuple[pa.Field, ...]

    @property
    def schema(self) -> pa.Schema:
        return pa.schema([OP, *PLACE_FIELDS, *self.fields])

    def parts(self, rows: Rows) -> Iterator[Part]:
        count = len(rows)
        image = rows.before if rows.after is None else rows.after
        arrays = [
            repeated(rows.op, pa.string(), count),
            *rows.places.columns(),
            *([pa.nulls(count, field.type) for field in self.fields] if image is None else image),
        ]
        yield pa.RecordBatch.from_arrays(arrays, schema=self.schema), rows.places


@dataclass(frozen=True, slots=True)
class CdfLayout:
    """The change feed of Spark and Delta; an UPDATE is two rows. `_commit_version` ascends from group to group."""

    fields: tuple[pa.Field, ...]

    @property
    def schema(self) -> pa.Schema:
        return pa.schema(
            [
                pa.field("_change_type", pa.string()),
                pa.field("_commit_version", pa.int64()),
                pa.field("_commit_timestamp", TIME),
                *self.fields,
            ]
        )

    def parts(self, rows: Rows) -> Iterator[Part]:
        of_update = rows.op == "u"
        if rows.before is not None:
            yield self._part("update_preimage" if of_update else "delete", rows, rows.before)
        if rows.after is not None:
            yield self._part("update_postimage" if of_update else "insert", rows, rows.after)

    def _part(self, change_type: str, rows: Rows, image: list[pa.Array]) -> Part:
        places = rows.places
        arrays = [
            repeated(change_type, pa.string(), len(rows)),
            pa.array(_versions(places.heads)[places.group]),
            places.times(),
            *image,
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema), places


def _versions(heads: Heads) -> Integers:
    """Raises `SourceError` for places that one number has no room for."""
    if (
        int(heads.file.max()) >> _VERSION_BITS - _OFFSET_BITS
        or int(heads.offset.max()) >> _OFFSET_BITS
    ):
        raise SourceError(
            f"layout=cdf has no number for {heads.gtid(0)} and what follows it: the source says file "
            f"{heads.file.max()}, offset {heads.offset.max()}; layout=struct has both"
        )
    versions: Integers = (heads.file << _OFFSET_BITS) + heads.offset
    return versions


@dataclass(frozen=True, slots=True)
class DebeziumLayout:
    """The envelope of Debezium's events. `ts_ms` is of the statement, here too."""

    database: str
    table: str
    fields: tuple[pa.Field, ...]

    @property
    def schema(self) -> pa.Schema:
        return debezium_schema(pa.struct(self.fields))

    def parts(self, rows: Rows) -> Iterator[Part]:
        count = len(rows)
        images = [_struct(self.fields, image, count) for image in (rows.before, rows.after)]
        arrays = [*images, *debezium_columns(rows, self.database, self.table)]
        yield pa.RecordBatch.from_arrays(arrays, schema=self.schema), rows.places


def debezium_schema(image: pa.DataType) -> pa.Schema:
    """The schema of the envelope, with images of this type."""
    return pa.schema(
        [
            pa.field("before", image),
            pa.field("after", image),
            pa.field("op", pa.string()),
            pa.field("ts_ms", pa.int64()),
            pa.field("source", _SOURCE),
        ]
    )


def debezium_columns(rows: Rows, database: str, table: str | None) -> list[pa.Array]:
    """The columns of the envelope behind the images: op, ts_ms, source."""
    places = rows.places
    heads, group, count = places.heads, places.group, len(places)
    parts = [pa.array(c).cast(pa.string()) for c in (heads.domain, heads.server, heads.seq)]
    times = pa.array(heads.timestamp[group] * 1000)
    arrays = [
        repeated("mariadb", pa.string(), count),
        repeated(database, pa.string(), count),
        repeated(table, pa.string(), count),
        times,
        pa.array(heads.server[group]),
        pc.binary_join_element_wise(*parts, "-").take(pa.array(group)),
        pa.array(heads.file).cast(pa.string()).take(pa.array(group)),
        pa.array(heads.offset[group]),
        pa.array(places.event),
        pa.array(places.row),
    ]
    source = pa.StructArray.from_arrays(arrays, fields=list(_SOURCE))
    return [repeated(rows.op, pa.string(), count), times, source]


def repeated(value: object, type_: pa.DataType, count: int) -> pa.Array:
    """A column with one value, or null."""
    return pa.repeat(pa.scalar(value, type_), count)


def said(effect: RowEffect | None) -> dict[str, Any] | None:
    """The value of `_statement`."""
    if effect is None:
        return None
    values = {field.name: getattr(effect, field.name) for field in STATEMENT}
    return {**values, "sql": readable(effect.sql)}


def _struct(fields: Sequence[pa.Field], image: list[pa.Array] | None, count: int) -> pa.Array:
    if image is None:
        return pa.nulls(count, pa.struct(fields))
    return pa.StructArray.from_arrays(image, fields=list(fields))


def layout_named(
    name: str,
    database: str,
    table: str,
    fields: tuple[pa.Field, ...],
    key: tuple[pa.Field, ...],
    *,
    has_statements: bool = False,
) -> ChangesLayout:
    """The layout of that name for one table. Raises `BadOption` for columns whose names the layout has itself."""
    layouts: dict[str, ChangesLayout] = {
        "struct": StructLayout(fields, key, has_statements),
        "flat": FlatLayout(fields),
        "cdf": CdfLayout(fields),
        "debezium": DebeziumLayout(database, table, fields),
    }
    layout = layouts[name]
    names = [column.lower() for column in layout.schema.names]
    twice = sorted({column for column in names if names.count(column) > 1})
    if twice:
        raise BadOption(
            f"layout={name} has a column {', '.join(twice)} itself; layout=struct keeps the columns of the table apart"
        )
    return layout
