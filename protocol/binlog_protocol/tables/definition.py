"""The definition of a table that lives here: columns, keys, and what a server refuses of them.

A definition that exists is one that MariaDB would take: making one raises a `ServerError` with the number and text of
10.11 and 11.8. What MariaDB takes and this server does not is 1235 with the reason.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import IntEnum
from typing import Final

from binlog_protocol import errors
from binlog_protocol.compiled_later import compiled_later
from binlog_protocol.dataclass import dataclass
from binlog_protocol.events.charsets import (
    BINARY_COLLATION,
    character_bytes_max,
    charset_of,
)
from binlog_protocol.events.column_type import (
    BLOB_TYPES,
    NUMERIC_TYPES,
    ColumnLayout,
    ColumnType,
)
from binlog_protocol.events.rows import value_size
from binlog_protocol.events.table_map import (
    COLUMNS_MAX,
    KeyPart,
    TableColumn,
    TableMap,
    label_bytes,
)
from binlog_protocol.tables.collation import collation_key, is_comparable
from binlog_protocol.tables.sql_type import SqlType

_NO_TEXT: Final = compiled_later(r"[\ud800-\udfff]+")
_NO_NAME: Final = compiled_later(r"[\ud800-\udfff\U00010000-\U0010ffff]")
_NOT_ASCII: Final = 0x80
_COLUMN_COMMENT_MAX: Final = 1024  # characters
_TABLE_COMMENT_MAX: Final = 2048
NAME_CHARACTERS_MAX: Final = 64
KEYS_MAX: Final = 64
KEY_PARTS_MAX: Final = 32
KEY_BYTES_MAX: Final = 3072
ROW_BYTES_MAX: Final = 65535
PRIMARY: Final = "PRIMARY"
_COLUMNS_OF_INNODB_MAX: Final = 1017
_HA_ERR_TOO_MANY_FIELDS: Final = 185
_FIXED_CHARACTERS_MAX: Final = 255  # of CHAR and BINARY
_VARIABLE_BYTES_MAX: Final = 65532  # of VARCHAR and VARBINARY
_BLOB_POINTER_SIZE: Final = 8
_DECIMAL_DIGITS_MAX: Final = 65
_DECIMAL_SCALE_MAX: Final = 38
_FRACTION_DIGITS_MAX: Final = 6
_BITS_MAX: Final = 64
_FLOAT_WIDTH_MAX: Final = 255
_FLOAT_SCALE_MAX: Final = 30
_ENUM_LABELS_MAX: Final = 65535
_SET_LABELS_MAX: Final = 64
_VECTOR_DIMENSIONS_MAX: Final = 16383
_TABLE_MAP_FLAGS: Final = 0x0001
_TRIGGERS: Final = 0x4000
_AUTO_INCREMENT_NAMES: Final = (
    "tinyint", "smallint", "mediumint", "int", "bigint", "float", "double",
)  # fmt: skip
_FIXED_NAMES: Final = ("char", "binary")
_VARIABLE_NAMES: Final = ("varchar", "varbinary")
_COMPRESSIBLE: Final = frozenset((
    "varchar", "varbinary", "tinytext", "text", "mediumtext", "longtext", "tinyblob", "blob", "mediumblob", "longblob",
))  # fmt: skip


_CONSTANT_DEFAULT: Final = compiled_later(r"NULL\Z|[bx]?'|-?[.0-9]")
_NOW: Final = compiled_later(r"current_timestamp\([0-9]?\)")
_MOMENTS: Final = ("datetime", "timestamp")


class Generation(IntEnum):
    """The kind of a generated column."""

    NONE = 0
    VIRTUAL = 1
    STORED = 2


class KeyKind(IntEnum):
    PRIMARY = 0
    UNIQUE = 1
    PLAIN = 2


@dataclass(frozen=True, slots=True)
class StoredColumn:
    """A column. `collation` is the number of its collation, BINARY_COLLATION for a type without character set.

    default, on_update: the expressions as information_schema.COLUMNS prints them (`NULL`, `'a'`,
    `current_timestamp(3)`, ``(`a` + 1)``); None for a column without such a clause.
    expression: of a generated column.
    """

    name: str
    type: SqlType
    nullable: bool = True
    collation: int = BINARY_COLLATION
    default: str | None = None
    on_update: str | None = None
    generation: Generation = Generation.NONE
    expression: str = ""
    is_invisible: bool = False
    is_auto_increment: bool = False
    comment: str = ""

    def __post_init__(self) -> None:
        if not self.name or self.name.endswith(" "):
            raise errors.WrongColumnName(self.name)
        _check_length(self.name)
        if len(self.comment) > _COLUMN_COMMENT_MAX:
            raise errors.TooLongColumnComment(self.name, _COLUMN_COMMENT_MAX)
        _check_type(self.name, self.type, self.collation)

    @property
    def layout(self) -> ColumnLayout:
        return self.type.layout(self.collation)

    @property
    def is_default_computed(self) -> bool:
        """Whether the default is an expression: no constant, and not the time alone for a column of such."""
        if self.default is None:
            return False
        is_moment = self.type.name in _MOMENTS and _NOW.fullmatch(self.default) is not None
        return not is_moment and not _CONSTANT_DEFAULT.match(self.default)

    @property
    def characters(self) -> int | None:
        """The most characters of a CHAR or VARCHAR; None for any other type."""
        is_counted = self.type.is_text and self.type.labels is None and not self.type.is_long
        return self.type.numbers[0] if is_counted else None

    def logged(self) -> TableColumn:
        """The column as table maps with full metadata say it."""
        return logged_column(self.name, self.type, self.collation, nullable=self.nullable)


def logged_column(name: str, type_: SqlType, collation: int, *, nullable: bool) -> TableColumn:
    """A column as table maps with full metadata say it; of others, which may be what no `StoredColumn` is.

    Servers have such from before, or made them without strict mode. Raises ValueError for a type that is not logged so.
    """
    layout = type_.layout(collation)
    return TableColumn(
        layout,
        nullable,
        name,
        unsigned=_logged_sign(type_, layout.type),
        collation=_logged_collation(layout.type, collation),
        labels=type_.labels_of(collation),
        geometry_type=type_.geometry_type,
        kind=type_.kind,
    )


def _logged_sign(type_: SqlType, logged: ColumnType) -> bool | None:
    if logged not in NUMERIC_TYPES:
        return None
    return type_.unsigned or logged == ColumnType.YEAR


def _logged_collation(type_: ColumnType, collation: int) -> int | None:
    return collation if type_ in _WITH_COLLATION else None


_WITH_COLLATION: Final = BLOB_TYPES | {
    ColumnType.VARCHAR,
    ColumnType.VARCHAR_COMPRESSED,
    ColumnType.STRING,
    ColumnType.GEOMETRY,
    ColumnType.ENUM,
    ColumnType.SET,
}


@dataclass(frozen=True, slots=True)
class StoredKey:
    """A key; that of a primary key is called PRIMARY. `prefix` of a part in characters, of bytes in bytes."""

    name: str
    kind: KeyKind
    parts: tuple[KeyPart, ...]

    @property
    def is_unique(self) -> bool:
        return self.kind is not KeyKind.PLAIN


@dataclass(frozen=True, slots=True)
class StoredTable:
    """A table. `collation` is the default of its columns; `engine` as it was named; `checks`: name and expression.

    A check that has the name of a column stands in the definition of that. Raises `ServerError`.
    """

    database: str
    name: str
    columns: tuple[StoredColumn, ...]
    keys: tuple[StoredKey, ...] = ()
    collation: int = 8
    engine: str = "InnoDB"
    comment: str = ""
    checks: tuple[tuple[str, str], ...] = ()

    def __post_init__(self) -> None:
        require_characters(self.database)
        require_characters(self.name)
        if not 0 < len(self.name) <= NAME_CHARACTERS_MAX or self.name.endswith(" "):
            raise errors.WrongTableName(self.name)
        _check_length(self.database)
        if len(self.comment) > _TABLE_COMMENT_MAX:
            raise errors.TooLongTableComment(self.name, _TABLE_COMMENT_MAX)
        if not self.columns:
            raise errors.NoColumns()
        if len(self.columns) > COLUMNS_MAX:
            raise errors.TooManyColumns()
        if len(self.columns) > _COLUMNS_OF_INNODB_MAX:
            raise errors.CannotCreateTable(
                self.database, self.name, _HA_ERR_TOO_MANY_FIELDS, "Too many columns"
            )
        _check_distinct((column.name for column in self.columns), errors.DuplicateColumn)
        for key in self.keys:
            self._check_key(key)
        if sum(key.kind is KeyKind.PRIMARY for key in self.keys) > 1:
            raise errors.MultiplePrimaryKeys()
        if len(self.keys) > KEYS_MAX:
            raise errors.TooManyKeys(KEYS_MAX)
        _check_distinct((key.name for key in self.keys), errors.DuplicateKeyName)
        self._check_auto_increment()
        if self.row_bytes > ROW_BYTES_MAX:
            raise errors.RowTooLarge(ROW_BYTES_MAX)

    @property
    def primary_key(self) -> StoredKey | None:
        return next((key for key in self.keys if key.kind is KeyKind.PRIMARY), None)

    @property
    def auto_increment(self) -> int | None:
        """The number of the column with AUTO_INCREMENT."""
        return next((i for i, c in enumerate(self.columns) if c.is_auto_increment), None)

    def is_json(self, column: StoredColumn) -> bool:
        """Whether a column has the CHECK of a JSON column."""
        return bool(self.checks) and json_check(column.name) in self.checks

    def check_of(self, column: StoredColumn) -> str | None:
        """The expression of the CHECK that stands in a column's definition."""
        return next((text for name, text in self.checks if name == column.name), None)

    @property
    def own_checks(self) -> list[tuple[str, str]]:
        """The CHECKs but those of JSON columns."""
        json = {json_check(column.name) for column in self.columns} if self.checks else set()
        return [check for check in self.checks if check not in json]

    @property
    def row_bytes(self) -> int:
        """Bytes of a row as MariaDB counts them for its limit: a BLOB is its length and a pointer."""
        null_bits = sum(column.nullable for column in self.columns)
        return (null_bits + 1 + 7) // 8 + sum(map(_bytes_in_row, self.columns))

    def column_number(self, name: str) -> int | None:
        """The number of a column by name, in any case."""
        lower = name.lower()
        return next((i for i, c in enumerate(self.columns) if c.name.lower() == lower), None)

    def table_map(self, table_id: int, *, has_triggers: bool = False) -> TableMap:
        """The table map of row events; `TableMap.build` makes the event of it."""
        key = self.primary_key
        return TableMap(
            table_id,
            _TABLE_MAP_FLAGS | (_TRIGGERS if has_triggers else 0),
            self.database,
            self.name,
            tuple(column.logged() for column in self.columns),
            None if key is None else key.parts,
        )

    def _check_key(self, key: StoredKey) -> None:
        is_primary = key.kind is KeyKind.PRIMARY
        if not key.name or key.name.endswith(" ") or (key.name.upper() == PRIMARY) != is_primary:
            raise errors.WrongKeyName(key.name)
        _check_length(key.name)
        if not key.parts or any(part.column >= len(self.columns) for part in key.parts):
            raise ValueError(f"key {key.name} has no columns, or none of the table's")
        if len(key.parts) > KEY_PARTS_MAX:
            raise errors.TooManyKeyParts(KEY_PARTS_MAX)
        _check_distinct(
            (self.columns[part.column].name for part in key.parts), errors.DuplicateColumn
        )
        for part in key.parts:
            column = self.columns[part.column]
            if is_primary and column.nullable:
                raise errors.NullablePrimaryKey()
            if column.type.is_text and not is_comparable(column.collation):
                raise errors.NotSupportedYet(
                    f"a key over a column with collation {column.collation}, whose order is not known here exactly"
                )
        if key_bytes(key, self.columns) > KEY_BYTES_MAX:
            raise errors.TooLongKey(KEY_BYTES_MAX)

    def _check_auto_increment(self) -> None:
        numbered = [i for i, column in enumerate(self.columns) if column.is_auto_increment]
        if not numbered:
            return
        column = self.columns[numbered[0]]
        if column.type.name not in _AUTO_INCREMENT_NAMES:
            raise errors.WrongColumnSpecifier(column.name)
        is_key = any(key.parts[0].column == numbered[0] for key in self.keys)
        if len(numbered) > 1 or not is_key:
            raise errors.WrongAutoIncrement()


def json_check(column: str) -> tuple[str, str]:
    """The CHECK of a JSON column: its name, and its expression as SHOW CREATE TABLE prints it."""
    return column, "json_valid(`" + column.replace("`", "``") + "`)"


def require_text(text: str) -> None:
    """Bytes that are no UTF-8 stand in it as `surrogateescape` has them. Raises `InvalidCharacterString` (1300)."""
    found = _NO_TEXT.search(text)
    if found is not None:
        raise _invalid(found[0])


def require_characters(name: str) -> None:
    """Names are texts of utf8mb3 without NUL: 192 bytes at most, as table maps have one byte for their length.

    Raises `InvalidCharacterString` (1300), `SqlSyntaxError` (1064).
    """
    if "\0" in name:
        raise errors.SqlSyntaxError("`" + name.partition("\0")[0])
    if _NO_NAME.search(name):
        raise _invalid(name)


def _invalid(text: str) -> errors.ServerError:
    raw = text.encode("utf-8", "surrogateescape")
    shown = "".join(chr(byte) if byte < _NOT_ASCII else f"\\x{byte:02X}" for byte in raw)
    return errors.InvalidCharacterString("utf8mb4", shown)


def _check_length(name: str) -> None:
    require_characters(name)
    if len(name) > NAME_CHARACTERS_MAX:
        raise errors.TooLongIdentifier(name)


def _check_distinct(names: Iterable[str], kind: errors.ErrorKind) -> None:
    seen: set[str] = set()
    for name in names:
        if name.lower() in seen:
            raise kind(name)
        seen.add(name.lower())


def _check_type(column: str, type_: SqlType, collation: int) -> None:
    """The numbers and labels of a type. Raises `ServerError`."""
    name, numbers = type_.name, type_.numbers
    first = numbers[0] if numbers else 0
    charset = charset_of(collation)
    if charset is None:
        raise errors.UnknownCollation(collation)
    if type_.is_text != (collation != BINARY_COLLATION) and type_.labels is None:
        raise ValueError(f"column {column}: {type_} with collation {collation}")
    if name in _FIXED_NAMES and first > _FIXED_CHARACTERS_MAX:
        raise errors.ColumnTooLong(column, _FIXED_CHARACTERS_MAX)
    if name in _VARIABLE_NAMES:
        most = _VARIABLE_BYTES_MAX // character_bytes_max(charset)
        if first > most:
            raise errors.ColumnTooLong(column, most)
    if name == "decimal":
        scale = numbers[1] if len(numbers) > 1 else 0
        if first > _DECIMAL_DIGITS_MAX:
            raise errors.TooBigPrecision(column, _DECIMAL_DIGITS_MAX)
        if scale > _DECIMAL_SCALE_MAX:
            raise errors.TooBigScale(column, _DECIMAL_SCALE_MAX)
        if scale > first:
            raise errors.ScaleAbovePrecision(column)
    if name in ("float", "double") and numbers:
        if numbers[1] > _FLOAT_SCALE_MAX:
            raise errors.TooBigScale(column, _FLOAT_SCALE_MAX)
        if first > _FLOAT_WIDTH_MAX:
            raise errors.DisplayWidthOutOfRange(column, _FLOAT_WIDTH_MAX)
        if numbers[1] > first:
            raise errors.ScaleAbovePrecision(column)
    if name in ("time", "datetime", "timestamp") and first > _FRACTION_DIGITS_MAX:
        raise errors.TooBigPrecision(column, _FRACTION_DIGITS_MAX)
    if name == "bit" and first > _BITS_MAX:
        raise errors.DisplayWidthOutOfRange(column, _BITS_MAX)
    if name == "vector" and not 0 < first <= _VECTOR_DIMENSIONS_MAX:
        raise errors.NotSupportedYet(f"VECTOR({first})")
    if type_.compressed and name not in _COMPRESSIBLE:
        raise errors.NotSupportedYet(f"a compressed column of type {name}")
    if type_.labels is not None:
        _check_labels(column, type_, collation)
    try:
        type_.layout(collation)
    except ValueError as error:
        raise errors.NotSupportedYet(str(error)) from None


def _check_labels(column: str, type_: SqlType, collation: int) -> None:
    labels = type_.labels or ()
    most = _SET_LABELS_MAX if type_.name == "set" else _ENUM_LABELS_MAX
    if not labels or len(labels) > most:
        raise errors.TooManyLabels(column)
    logged = type_.labels_of(collation)
    if logged is None:
        raise errors.NotSupportedYet("labels beyond ASCII in character set binary")
    if type_.name == "set":
        for label in labels:
            if "," in label:
                raise errors.IllegalValue("set", label)
    seen: dict[str | bytes, str] = {}
    for label, said in zip(labels, logged, strict=True):
        same: str | bytes = label.lower()
        if is_comparable(collation):
            same = collation_key(label_bytes(said, collation), collation)
        if same in seen:
            raise errors.DuplicateLabel(column, seen[same], type_.name.upper())
        seen[same] = label


def _bytes_in_row(column: StoredColumn) -> int:
    layout = column.layout
    if layout.type in BLOB_TYPES or layout.type == ColumnType.GEOMETRY:
        return layout.size + _BLOB_POINTER_SIZE
    if layout.type == ColumnType.STRING:
        return layout.size
    size = value_size(column.logged())
    return size.fixed or size.length + layout.size


def key_bytes(key: StoredKey, columns: Sequence[StoredColumn]) -> int:
    """Bytes of a key, as MariaDB counts them for its limit. Raises `ServerError`."""
    return sum(_key_part_bytes(columns[part.column], part.prefix) for part in key.parts)


def _key_part_bytes(column: StoredColumn, prefix: int) -> int:
    """Bytes of a part of a key, as MariaDB counts them for its limit. Raises `ServerError`."""
    type_, layout = column.type, column.layout
    if type_.geometry_type is not None or type_.name == "vector" or type_.compressed:
        raise errors.NotSupportedYet(f"a key over a column of type {type_}")
    if type_.is_long and not prefix:
        raise errors.LongColumnInKey(column.name)
    is_string = type_.is_long or type_.name in (*_FIXED_NAMES, *_VARIABLE_NAMES)
    if not prefix:
        return layout.size if is_string else value_size(column.logged()).fixed or layout.size
    if not is_string or (not type_.is_long and prefix > type_.numbers[0]):
        raise errors.WrongKeyPrefix()
    return prefix * (
        character_bytes_max(charset_of(column.collation) or "") if type_.is_text else 1
    )
