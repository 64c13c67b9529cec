"""The tables of information_schema, performance_schema and mysql as a MariaDB 11.8 declares them, and ours.

`data/*.json` has what was recorded from a real server; it is read when a question needs it. A table's rows come from
outside (`sql.little_tables`).

A file of a schema ::

    {"types": [[COLUMN_TYPE, collation, size], ...],       what does not matter is left out
     "tables": {name: [TABLE_TYPE, ENGINE, [[column, number of its type, nullable, default, key, extra], ...]]}}
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from decimal import Decimal
from functools import cache, cached_property
from pathlib import Path
from typing import Any, Final

from binlog_protocol.compiled_later import compiled_later
from binlog_protocol.dataclass import dataclass
from binlog_protocol.events.column_type import ColumnType
from binlog_protocol.tables.sql_type import SqlType
from binlog_protocol.wire.results import (
    CHARSET_BINARY,
    CHARSET_UTF8,
    FLAG_BINARY,
    FLAG_NO_DEFAULT,
    FLAG_NOT_NULL,
    FLAG_UNSIGNED,
    FLAG_ZEROFILL,
    Column,
)

from binlog_server.queries import types
from binlog_server.queries.types import Type

INFORMATION_SCHEMA: Final = "information_schema"
PERFORMANCE_SCHEMA: Final = "performance_schema"
MYSQL: Final = "mysql"
SCHEMAS: Final = (INFORMATION_SCHEMA, PERFORMANCE_SCHEMA, MYSQL)
_COLLATION: Final = "utf8mb3_general_ci"
_DATA: Final = Path(__file__).with_name("data")

_FLAG_PRIMARY, _FLAG_UNIQUE, _FLAG_PART, _FLAG_MULTIPLE = 2, 4, 16384, 8
_KEY_FLAGS: Final = {
    "PRI": _FLAG_PRIMARY | _FLAG_PART,
    "UNI": _FLAG_UNIQUE | _FLAG_PART,
    "MUL": _FLAG_MULTIPLE | _FLAG_PART,
    "PART": _FLAG_PART,
}
_FLAG_BLOB, _FLAG_ENUM, _FLAG_SET, _FLAG_INCREMENT = 16, 256, 2048, 512
_FLAG_TIMESTAMP, _FLAG_ON_UPDATE = 1024, 8192
_UTF8_BYTES: Final = 3
_COLUMN_TYPE: Final = compiled_later(
    r"([a-z]+[46]?)(?:\((.*)\))?( unsigned)?( zerofill)?", re.DOTALL
)
_INTEGERS: Final = {
    "tinyint": (ColumnType.TINY, 3),
    "smallint": (ColumnType.SHORT, 5),
    "mediumint": (ColumnType.INT24, 7),
    "int": (ColumnType.LONG, 10),
    "bigint": (ColumnType.LONGLONG, 19),
}
_OTHER_NUMBERS: Final = ("decimal", "double", "float", "year", "bit")
_UNSIGNED: Final = (ColumnType.TIMESTAMP, ColumnType.YEAR, ColumnType.BIT)
_BLOB_BYTES: Final = {
    "tinyblob": 255,
    "blob": 65_535,
    "mediumblob": 2**24 - 1,
    "longblob": 2**32 - 1,
    "tinytext": 255,
    "text": 65_535,
    "mediumtext": 2**24 - 1,
    "longtext": 2**32 - 1,
}
_NATIVE_CHARS: Final = {"uuid": 36, "inet4": 15, "inet6": 39}
_TIMES: Final = {
    "date": (ColumnType.DATE, 10),
    "time": (ColumnType.TIME, 10),
    "datetime": (ColumnType.DATETIME, 19),
    "timestamp": (ColumnType.TIMESTAMP, 19),
}


@dataclass(frozen=True)
class ColumnDefinition:
    """A column as it is declared. `default` is as information_schema.COLUMNS shows it.

    `size` is what the type does not say: bytes of a longtext on the wire, characters of an ENUM, digits of a DOUBLE.
    `in_keys`: that it is a part of a key (PART), and the first one of some that is not what `key` says (MUL).
    `expression`: of a generated column.
    """

    name: str
    column_type: str
    collation: str = ""
    may_be_null: bool = True
    default: str | None = None
    key: str = ""
    extra: str = ""
    size: int | None = None
    in_keys: frozenset[str] = frozenset()
    comment: str = ""
    expression: str | None = None

    @cached_property
    def data_type(self) -> str:
        """The type's name."""
        return self._parts[0]

    @cached_property
    def _parts(self) -> tuple[str, str, bool, bool]:
        found = _COLUMN_TYPE.match(self.column_type)
        assert found is not None, self.column_type
        return found[1], found[2] or "", bool(found[3]), bool(found[4])

    @cached_property
    def sizes(self) -> tuple[int, ...]:
        """The numbers in its parentheses."""
        if self.data_type in ("enum", "set"):
            return ()
        return tuple(int(n) for n in self._parts[1].split(",") if n.strip().isdigit())

    @property
    def character_set(self) -> str | None:
        """The character set of a text."""
        return self.collation.partition("_")[0] or None

    @cached_property
    def characters(self) -> int | None:
        """CHARACTER_MAXIMUM_LENGTH."""
        if self.data_type in _BLOB_BYTES:
            return _BLOB_BYTES[self.data_type]
        if self.data_type in ("enum", "set"):
            labels = self._labels
            if self.size is not None:
                return self.size
            return max(labels) if self.data_type == "enum" else sum(labels) + len(labels) - 1
        if self.data_type in ("char", "varchar", "binary", "varbinary"):
            return self.sizes[0] if self.sizes else 1
        return None

    @property
    def _labels(self) -> list[int]:
        return [len(label) for label in SqlType.parse(self.column_type).labels or ()]

    @cached_property
    def octets(self) -> int | None:
        """CHARACTER_OCTET_LENGTH."""
        if self.characters is None or self.data_type in _BLOB_BYTES:
            return self.characters
        if self.size is not None:
            return max(self._labels)
        widest = {"utf8mb3": 3, "utf8mb4": 4}.get(self.character_set or "", 1)
        return self.characters * widest

    @cached_property
    def precision(self) -> tuple[int | None, int | None]:
        """NUMERIC_PRECISION and NUMERIC_SCALE."""
        kind = self.data_type
        if kind in _INTEGERS:
            digits = _INTEGERS[kind][1]
            return digits + (kind == "bigint" and self._parts[2]), 0
        if kind == "decimal":
            return self.sizes[0], self.sizes[1]
        if kind in ("double", "float"):
            return (self.sizes[0], self.sizes[1]) if self.sizes else (self._digits, None)
        return (self.sizes[0], None) if kind == "bit" else (None, None)

    @property
    def _digits(self) -> int:
        return self.size or (22 if self.data_type == "double" else 12)

    @property
    def datetime_precision(self) -> int | None:
        """DATETIME_PRECISION."""
        if self.data_type not in ("time", "datetime", "timestamp"):
            return None
        return self.sizes[0] if self.sizes else 0

    @property
    def is_exact(self) -> bool:
        """Whether texts are compared with their case."""
        return self.collation.endswith("_bin")

    def wire(self, schema: str, table: str) -> Column:
        """As it is sent."""
        code, charset, length, decimals = self._wire_type()
        return Column(
            self.name,
            code,
            charset,
            length,
            self._flags(code, charset),
            decimals,
            table,
            schema,
            table,
            self.name,
        )

    def _wire_type(self) -> tuple[int, int, int, int]:
        kind, sizes = self.data_type, self.sizes
        if kind in _INTEGERS:
            return _INTEGERS[kind][0], CHARSET_BINARY, sizes[0] if sizes else 11, 0
        if kind == "decimal":
            digits, scale = sizes
            return (
                ColumnType.NEWDECIMAL,
                CHARSET_BINARY,
                digits + (scale > 0) + (not self._parts[2]),
                scale,
            )
        if kind in ("double", "float"):
            code = ColumnType.DOUBLE if kind == "double" else ColumnType.FLOAT
            length, decimals = sizes or (self._digits, 31)
            return code, CHARSET_BINARY, length, decimals
        if kind in _TIMES:
            code, length = _TIMES[kind]
            decimals = sizes[0] if sizes else 0
            return code, CHARSET_BINARY, length + (1 + decimals if decimals else 0), decimals
        if kind in ("year", "bit"):
            code = ColumnType.YEAR if kind == "year" else ColumnType.BIT
            return code, CHARSET_BINARY, sizes[0], 0
        if kind in _NATIVE_CHARS:
            return ColumnType.STRING, CHARSET_UTF8, _NATIVE_CHARS[kind] * _UTF8_BYTES, 0
        charset = CHARSET_UTF8 if self.collation else CHARSET_BINARY
        code = ColumnType.VAR_STRING if kind in ("varchar", "varbinary") else ColumnType.STRING
        if kind in _BLOB_BYTES:
            # Of a text, as many characters as it has bytes.
            octets = _BLOB_BYTES[kind] * (_UTF8_BYTES if self.collation else 1)
            return ColumnType.BLOB, charset, self.size or min(octets, 2**32 - 1), 0
        characters = self.characters or 0
        return code, charset, characters * (_UTF8_BYTES if self.collation else 1), 0

    def _flags(self, code: int, charset: int) -> int:
        flags = 0 if self.may_be_null else FLAG_NOT_NULL
        flags |= FLAG_NO_DEFAULT if self.default is None and not self.extra else 0
        is_native = self.data_type in _NATIVE_CHARS
        if self._parts[2] or code in _UNSIGNED or is_native:
            flags |= FLAG_UNSIGNED
        flags |= FLAG_ZEROFILL if self._parts[3] or code == ColumnType.YEAR else 0
        is_number = self.data_type in _INTEGERS or self.data_type in _OTHER_NUMBERS
        if (charset == CHARSET_BINARY and not is_number) or self.is_exact or is_native:
            flags |= FLAG_BINARY
        flags |= _FLAG_BLOB if code == ColumnType.BLOB else 0
        flags |= {"enum": _FLAG_ENUM, "set": _FLAG_SET}.get(self.data_type, 0)
        for word in {self.key, *self.in_keys}:
            flags |= _KEY_FLAGS.get(word, 0)
        flags |= _FLAG_INCREMENT if "auto_increment" in self.extra else 0
        if "current_timestamp" in self.extra:
            flags |= _FLAG_TIMESTAMP | _FLAG_ON_UPDATE | FLAG_NO_DEFAULT
        return flags

    def created(self, is_temporary: bool) -> str:
        """Its line of CREATE TABLE. A temporary table's has no default."""
        parts = [f"`{self.name}`", self.column_type]
        if self.collation not in ("", _COLLATION):
            parts.append(f"CHARACTER SET {self.character_set} COLLATE {self.collation}")
        if not self.may_be_null:
            parts.append("NOT NULL")
        elif self.data_type == "timestamp":
            parts.append("NULL")
        if not is_temporary and self.default is not None:
            parts.append(f"DEFAULT {self.default}")
        if "on update" in self.extra:
            parts.append(self.extra.replace("on update", "ON UPDATE"))
        return " ".join(parts)

    @cached_property
    def nothing(self) -> Any:
        """The value of a row that says nothing of this column."""
        if self.may_be_null:
            return None
        return self.held(0) if self.precision[0] is not None else ""

    def held(self, value: Any) -> Any:
        """A value as rows of this column have it: a number may be given as its text."""
        if value is not None and self.data_type == "decimal":
            return Decimal(value)
        return int(value) if isinstance(value, str) and self.data_type in _INTEGERS else value


@dataclass(frozen=True)
class TableDefinition:
    """A table as it is declared. `kind` is its TABLE_TYPE."""

    schema: str
    name: str
    kind: str
    engine: str | None
    definitions: Sequence[ColumnDefinition]

    @cached_property
    def columns(self) -> Sequence[Type]:
        """The types of its columns."""
        return [
            types.of_column(d.wire(self.schema, self.name), is_exact=d.is_exact)
            for d in self.definitions
        ]

    @cached_property
    def places(self) -> Mapping[str, int]:
        """Where each column is, by its name in upper case."""
        return {d.name.upper(): at for at, d in enumerate(self.definitions)}

    @property
    def created(self) -> str:
        """The CREATE TABLE that SHOW prints, without keys and comments."""
        is_temporary = self.schema == INFORMATION_SCHEMA
        lines = ",\n".join(f"  {one.created(is_temporary)}" for one in self.definitions)
        options = f"ENGINE={self.engine} DEFAULT CHARSET=utf8mb3 COLLATE={_COLLATION}"
        options += " PAGE_CHECKSUM=0" if self.engine == "Aria" else ""
        return f"CREATE {'TEMPORARY ' * is_temporary}TABLE `{self.name}` (\n{lines}\n) {options}"

    def row(self, **known: Any) -> tuple[Any, ...]:
        """A row, from the values that are known."""
        found = [d.nothing for d in self.definitions]
        for name, value in known.items():
            place = self.places[name.upper()]
            found[place] = self.definitions[place].held(value)
        return tuple(found)


@cache
def tables(schema: str) -> Mapping[str, TableDefinition]:
    """The tables of one of `SCHEMAS`, by name in lower case. The first call reads a file."""
    recorded = load(schema)
    kinds = recorded["types"]
    found = {}
    for name, (kind, engine, columns) in recorded["tables"].items():
        definitions = [_definition(kinds, *column) for column in columns]
        found[name.lower()] = TableDefinition(schema, name, kind, engine, definitions)
    if schema == INFORMATION_SCHEMA:
        found.update({table.name.lower(): table for table in _ours()})
    return dict(sorted(found.items()))


def _definition(
    kinds: Sequence[Any],
    name: str,
    kind: int,
    may_be_null: int,
    default: str | None = None,
    key: str = "",
    extra: str = "",
) -> ColumnDefinition:
    column_type, collation, size = (*kinds[kind], None, None)[:3]
    return ColumnDefinition(
        name, column_type, collation or "", bool(may_be_null), default, key, extra, size
    )


def load(name: str) -> Any:
    """The content of a file of `data`."""
    return json.loads(_DATA.joinpath(f"{name}.json").read_text(encoding="utf-8"))


def _ours() -> list[TableDefinition]:
    number, text, time = "bigint(20) unsigned", "varchar(512)", "varchar(32)"
    declared = {
        "BINLOG_REPLICAS": {
            "CONNECTION_ID": number,
            "SERVER_ID": number,
            "HOST": text,
            "USER": text,
            "SENT_GTID": text,
            "DURABLE_GTID": text,
            "ACKNOWLEDGED_GTID": text,
            "GAP_BYTES": number,
            "GAP_MS": number,
            "STATE": text,
        },
        "BINLOG_FILES": {"FILE_NAME": text, "FILE_SIZE": number},
        "BINLOG_LEASES": {
            "NAME": text,
            "FROM_GTID": "longtext",
            "FIRST_FILE": text,
            "CREATED": time,
            "UNTIL": time,
            "MAX_BYTES": number,
            "HELD_BYTES": number,
        },
        "BINLOG_UPSTREAMS": {
            "CONNECTION_NAME": text,
            "HOST": text,
            "PORT": number,
            "USER": text,
            "IO_RUNNING": text,
            "STATE": text,
            "LAST_ERRNO": number,
            "LAST_ERROR": "longtext",
            "GTID_IO_POS": "longtext",
        },
    }
    return [
        TableDefinition(
            INFORMATION_SCHEMA,
            name,
            "SYSTEM VIEW",
            "MEMORY",
            [
                ColumnDefinition(c, kind, "utf8mb3_general_ci" if kind[0] in "vl" else "")
                for c, kind in columns.items()
            ],
        )
        for name, columns in declared.items()
    ]
