"""SQL types as `information_schema.columns.COLUMN_TYPE` prints them, and which columns of a log may have them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from binlog_protocol.events.charsets import BINARY_COLLATION
from binlog_protocol.events.column_type import ColumnType
from binlog_protocol.events.table_map import Column, Kind, Label

T = ColumnType
_TYPE: Final = re.compile(r"\s*([a-z]\w*)\s*(?:\((.*)\))?([^()]*)$", re.DOTALL | re.IGNORECASE)
_COMMENT: Final = re.compile(r"/\*[^*']*\*/\s*$")  # COMPRESSED; a label may look like one
_LABEL: Final = re.compile(r"'((?:[^'\\]|\\.|'')*)'", re.DOTALL)
_ESCAPE: Final = re.compile(r"\\(.)|''", re.DOTALL)
_ESCAPED: Final = {"0": "\0", "n": "\n", "r": "\r", "t": "\t", "Z": "\x1a"}
_VARIABLE: Final = (T.VARCHAR, T.VAR_STRING, T.VARCHAR_COMPRESSED)
_TYPES: Final[dict[str, tuple[ColumnType, ...]]] = {
    "tinyint": (T.TINY,),
    "smallint": (T.SHORT,),
    "mediumint": (T.INT24,),
    "int": (T.LONG,),
    "bigint": (T.LONGLONG,),
    "float": (T.FLOAT,),
    "double": (T.DOUBLE,),
    "decimal": (T.NEWDECIMAL,),
    "bit": (T.BIT,),
    "year": (T.YEAR,),
    "date": (T.DATE, T.NEWDATE),
    "time": (T.TIME, T.TIME2),
    "datetime": (T.DATETIME, T.DATETIME2),
    "timestamp": (T.TIMESTAMP, T.TIMESTAMP2),
    "char": (T.STRING,),
    "binary": (T.STRING,),
    "varchar": _VARIABLE,
    "varbinary": _VARIABLE,
    "vector": _VARIABLE,
    "enum": (T.ENUM,),
    "set": (T.SET,),
    "uuid": (T.STRING,),
    "inet4": (T.STRING,),
    "inet6": (T.STRING,),
}
_BLOBS: Final = {"tiny": 1, "": 2, "medium": 3, "long": 4}
_LENGTH_BYTES: Final = {
    **{f"{size}{what}": count for size, count in _BLOBS.items() for what in ("blob", "text")},
    "json": 4,
}
_GEOMETRIES: Final = frozenset((
    "geometry", "point", "linestring", "polygon", "multipoint", "multilinestring", "multipolygon",
    "geometrycollection",
))  # fmt: skip
_KINDS: Final = {
    "uuid": Kind.UUID,
    "inet4": Kind.INET4,
    "inet6": Kind.INET6,
    "vector": Kind.VECTOR,
}
_FIXED_SIZES: Final = {"uuid": 16, "inet4": 4, "inet6": 16}
_TEMPORAL: Final = (T.TIME2, T.DATETIME2, T.TIMESTAMP2)
_OLD_TEMPORAL: Final = (T.TIME, T.DATETIME, T.TIMESTAMP)
_BINARY: Final = ("binary", "varbinary", "tinyblob", "blob", "mediumblob", "longblob")
_VECTOR_ELEMENT: Final = 4
_NO_TEXT: Final = "?"


@dataclass(frozen=True, slots=True)
class SqlType:
    """`name` in small letters; `numbers` are those in brackets; `labels` of ENUM and SET, else None."""

    name: str
    numbers: tuple[int, ...] = ()
    labels: tuple[str, ...] | None = None
    unsigned: bool = False

    @classmethod
    def parse(cls, text: str) -> SqlType:
        """Raises ValueError for a type unknown here."""
        found = _TYPE.match(_COMMENT.sub("", text))
        name = found[1].lower() if found else ""
        if found is None or not (name in _TYPES or name in _LENGTH_BYTES or name in _GEOMETRIES):
            raise ValueError(f"{text!r} is no type as information_schema.columns prints it")
        inside, behind = found[2] or "", found[3].lower()
        if name in ("enum", "set"):
            return cls(name, labels=tuple(_unescaped(raw) for raw in _LABEL.findall(inside)))
        numbers = tuple(int(number) for number in inside.split(",") if number.strip())
        return cls(name, numbers, unsigned="unsigned" in behind or "zerofill" in behind)

    @property
    def kind(self) -> Kind:
        """The kind of a column, where the log does not tell it."""
        return _KINDS.get(self.name, Kind.AS_LOGGED)

    @property
    def is_binary(self) -> bool:
        """Whether it holds bytes."""
        return self.name in _BINARY or self.name in _KINDS

    def fits(self, column: Column) -> bool:
        """Whether a column of the log may be of this type."""
        layout, numbers = column.layout, self.numbers
        if self.name in _LENGTH_BYTES:
            is_blob = layout.type in (T.BLOB, T.BLOB_COMPRESSED)
            return is_blob and layout.size == _LENGTH_BYTES[self.name]
        if self.name in _GEOMETRIES:
            return layout.type == T.GEOMETRY
        if layout.type not in _TYPES[self.name]:
            return False
        if column.unsigned is not None and self.name.endswith("int"):
            return column.unsigned == self.unsigned
        match self.name:
            case "decimal":
                return numbers == (layout.digits, layout.scale)
            case "bit":
                return numbers == (layout.digits,)
            case "binary":
                return numbers == (layout.size,)
            case "vector":
                return (layout.size,) == tuple(n * _VECTOR_ELEMENT for n in numbers)
            case "enum" | "set":
                return column.labels is None or self._names(column.labels)
        if layout.type in _TEMPORAL:
            return (numbers or (0,)) == (layout.digits,)
        return layout.size == _FIXED_SIZES.get(self.name, layout.size)

    def labels_of(self, collation: int | None) -> tuple[Label, ...] | None:
        """The labels in a collation; None if their bytes are not known, or two of them cannot be told apart.

        Servers print bytes that are no text as `?` (10.11, 11.8), and those of a binary label that are UTF-8 as that,
        whatever the session that gave them meant.
        """
        labels = self.labels
        if labels is None:
            return None
        if collation == BINARY_COLLATION:
            is_known = all(label.isascii() and _NO_TEXT not in label for label in labels)
            return tuple(label.encode() for label in labels) if is_known else None
        repeated = {label for label in labels if labels.count(label) > 1 and _NO_TEXT in label}
        return None if repeated else labels

    def _names(self, logged: tuple[Label, ...]) -> bool:
        """Whether a server may print the labels so."""
        said = self.labels or ()
        return len(said) == len(logged) and all(
            not isinstance(label, str) or label == text
            for label, text in zip(logged, said, strict=True)
        )

    def fraction_digits(self, column: Column) -> int | None:
        """The digits of fractions of seconds: from the type for old temporal columns, which do not log them."""
        digits = self.numbers[0] if self.numbers else 0
        return digits if column.layout.type in _OLD_TEMPORAL else column.fraction_digits


def _unescaped(raw: str) -> str:
    return _ESCAPE.sub(lambda found: _ESCAPED.get(found[1], found[1]) if found[1] else "'", raw)
