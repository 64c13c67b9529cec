"""SQL types as `information_schema.columns.COLUMN_TYPE` prints them.

Both ways: the layout of values that a column of a type has, and which columns of a log may be of a type.
"""

from __future__ import annotations

import re
from typing import Final

from binlog_protocol.compiled_later import compiled_later
from binlog_protocol.dataclass import dataclass
from binlog_protocol.events.charsets import BINARY_COLLATION, character_bytes_max, charset_of
from binlog_protocol.events.column_type import INTEGER_SIZES, ColumnLayout, ColumnType
from binlog_protocol.events.table_map import ColumnKind, Label, TableColumn

T = ColumnType
_TYPE: Final = compiled_later(r"\s*([a-z]\w*)\s*(?:\((.*)\))?([^()]*)$", re.DOTALL | re.IGNORECASE)
_COMMENT: Final = compiled_later(r"/\*[^*']*\*/\s*$")  # COMPRESSED; a label may look like one
_LABEL: Final = compiled_later(r"'((?:[^'\\]|\\.|'')*)'", re.DOTALL)
_ESCAPE: Final = compiled_later(r"\\(.)|''", re.DOTALL)
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
_GEOMETRIES: Final = (  # by the number that the optional metadata have
    "geometry", "point", "linestring", "polygon", "multipoint", "multilinestring", "multipolygon",
    "geometrycollection",
)  # fmt: skip
GEOMETRIES: Final = frozenset(_GEOMETRIES)
_KINDS: Final = {
    "uuid": ColumnKind.UUID,
    "inet4": ColumnKind.INET4,
    "inet6": ColumnKind.INET6,
    "vector": ColumnKind.VECTOR,
}
_FIXED_SIZES: Final = {"uuid": 16, "inet4": 4, "inet6": 16}
_WITHOUT_NUMBERS: Final = {
    "float": ColumnLayout(T.FLOAT, 4),
    "double": ColumnLayout(T.DOUBLE, 8),
    "year": ColumnLayout(T.YEAR, 1),
    "date": ColumnLayout(T.DATE, 3),
    **{name: ColumnLayout(T.STRING, size) for name, size in _FIXED_SIZES.items()},
}
_TEMPORAL: Final = (T.TIME2, T.DATETIME2, T.TIMESTAMP2)
_OLD_TEMPORAL: Final = (T.TIME, T.DATETIME, T.TIMESTAMP)
_BINARY: Final = ("binary", "varbinary", "tinyblob", "blob", "mediumblob", "longblob")
_VECTOR_ELEMENT: Final = 4
_NO_TEXT: Final = "?"
_TEXTS: Final = frozenset((
    "char", "varchar", "tinytext", "text", "mediumtext", "longtext", "enum", "set",
))  # fmt: skip
_SET_SIZES: Final = (1, 2, 3, 4, 8)
_PRINTED: Final = str.maketrans({"\\": "\\\\", "'": "''", "\0": "\\0", "\n": "\\n", "\r": "\\r"})
_COMPRESSED: Final = " /*M!100301 COMPRESSED*/"


@dataclass(frozen=True, slots=True)
class SqlType:
    """`name` in small letters; `numbers` are those in brackets; `labels` of ENUM and SET, else None.

    A ZEROFILL column is unsigned, too.
    """

    name: str
    numbers: tuple[int, ...] = ()
    labels: tuple[str, ...] | None = None
    unsigned: bool = False
    zerofill: bool = False
    compressed: bool = False

    def __str__(self) -> str:
        if self.labels is not None:
            inside = ",".join(f"'{label.translate(_PRINTED)}'" for label in self.labels)
        else:
            inside = ",".join(map(str, self.numbers))
        signs = " unsigned" * self.unsigned + " zerofill" * self.zerofill
        behind = signs + _COMPRESSED * self.compressed
        return f"{self.name}({inside}){behind}" if inside else self.name + behind

    @classmethod
    def parse(cls, text: str) -> SqlType:
        """Raises ValueError for a type unknown here."""
        found = _TYPE.match(_COMMENT.sub("", text))
        name = found[1].lower() if found else ""
        if found is None or not (name in _TYPES or name in _LENGTH_BYTES or name in GEOMETRIES):
            raise ValueError(f"{text!r} is no type as information_schema.columns prints it")
        inside, behind = found[2] or "", found[3].lower()
        if name in ("enum", "set"):
            return cls(name, labels=tuple(_unescaped(raw) for raw in _LABEL.findall(inside)))
        numbers = tuple(int(number) for number in inside.split(",") if number.strip())
        zerofill = "zerofill" in behind
        compressed = _COMMENT.search(text) is not None and "COMPRESSED" in text.upper()
        return cls(name, numbers, None, zerofill or "unsigned" in behind, zerofill, compressed)

    @classmethod
    def of(
        cls,
        name: str,
        numbers: tuple[int, ...] = (),
        labels: tuple[str, ...] | None = None,
        *,
        unsigned: bool = False,
        zerofill: bool = False,
        compressed: bool = False,
    ) -> SqlType:
        """The type of that name. Raises ValueError for an unknown one, and for labels of another type."""
        if not (name in _TYPES or name in _LENGTH_BYTES or name in GEOMETRIES):
            raise ValueError(f"{name!r} is no type as information_schema.columns prints it")
        if (labels is not None) != (name in ("enum", "set")):
            raise ValueError(f"type {name} with labels {labels}")
        return cls(name, numbers, labels, unsigned or zerofill, zerofill, compressed)

    @property
    def kind(self) -> ColumnKind:
        """The kind of a column, where the log does not tell it."""
        return _KINDS.get(self.name, ColumnKind.AS_LOGGED)

    @property
    def is_binary(self) -> bool:
        """Whether it holds bytes."""
        return self.name in _BINARY or self.name in _KINDS

    @property
    def is_text(self) -> bool:
        """Whether it has a character set."""
        return self.name in _TEXTS

    @property
    def is_long(self) -> bool:
        """Whether it is a TEXT or BLOB of some size."""
        return self.name in _LENGTH_BYTES

    @property
    def geometry_type(self) -> int | None:
        """The number of a type of geometries in the optional metadata of a table map."""
        return _GEOMETRIES.index(self.name) if self.name in GEOMETRIES else None

    def layout(self, collation: int) -> ColumnLayout:
        """The layout that a server's table map gives for a column of this type; temporal types in today's format.

        Raises ValueError for a type that lacks its numbers.
        """
        name, numbers = self.name, self.numbers
        if name in GEOMETRIES:
            return ColumnLayout(T.GEOMETRY, 4)
        if name in _LENGTH_BYTES:
            return ColumnLayout(
                T.BLOB_COMPRESSED if self.compressed else T.BLOB, _LENGTH_BYTES[name]
            )
        type_ = _TYPES[name][-1]
        first = numbers[0] if numbers else None
        if type_ in INTEGER_SIZES:
            return ColumnLayout(type_, INTEGER_SIZES[type_])
        if name in _WITHOUT_NUMBERS:
            return _WITHOUT_NUMBERS[name]
        if type_ in _TEMPORAL:
            return ColumnLayout(type_, 0, first or 0)
        if self.labels is not None:
            count = len(self.labels)
            if name == "enum":
                return ColumnLayout(T.ENUM, 1 if count <= 255 else 2)
            return ColumnLayout(T.SET, next(n for n in _SET_SIZES if count <= 8 * n))
        if first is None:
            raise ValueError(f"type {self} without numbers")
        if name == "bit":
            return ColumnLayout(T.BIT, (first + 7) // 8, first)
        if name == "decimal":
            return ColumnLayout(T.NEWDECIMAL, 0, first, numbers[1] if len(numbers) > 1 else 0)
        each = _VECTOR_ELEMENT if name == "vector" else 1
        if self.is_text:
            each = character_bytes_max(charset_of(collation) or "")
        if self.compressed:
            return ColumnLayout(T.VARCHAR_COMPRESSED, first * each + 1)
        return ColumnLayout(T.STRING if name in ("char", "binary") else T.VARCHAR, first * each)

    def fits(self, column: TableColumn) -> bool:
        """Whether a column of the log may be of this type."""
        layout, numbers = column.layout, self.numbers
        if self.name in _LENGTH_BYTES:
            is_blob = layout.type in (T.BLOB, T.BLOB_COMPRESSED)
            return is_blob and layout.size == _LENGTH_BYTES[self.name]
        if self.name in GEOMETRIES:
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
        unsure = [label for label in labels if _NO_TEXT in label]
        return None if len(set(unsure)) < len(unsure) else labels

    def _names(self, logged: tuple[Label, ...]) -> bool:
        """Whether a server may print the labels so."""
        said = self.labels or ()
        return len(said) == len(logged) and all(
            not isinstance(label, str) or label == text
            for label, text in zip(logged, said, strict=True)
        )

    def fraction_digits(self, column: TableColumn) -> int | None:
        """The digits of fractions of seconds: from the type for old temporal columns, which do not log them."""
        digits = self.numbers[0] if self.numbers else 0
        return digits if column.layout.type in _OLD_TEMPORAL else column.fraction_digits


def _unescaped(raw: str) -> str:
    return _ESCAPE.sub(lambda found: _ESCAPED.get(found[1], found[1]) if found[1] else "'", raw)
