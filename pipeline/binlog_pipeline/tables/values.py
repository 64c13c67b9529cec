"""Values of a column behind a change of its type, and of a new column: as servers (10.11, 11.8) make them.

Only where that is certain: a value that a server may have cut, rounded by the sql_mode, or taken for another one raises
`NotUnderstood`, with the reason. What is null stays null.
"""

from __future__ import annotations

import datetime as dt
import functools
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from decimal import ROUND_HALF_UP, Context, Decimal
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from binlog_protocol.dataclass import dataclass
from binlog_protocol.errors import BadValue, ServerError
from binlog_protocol.events.charsets import (
    BINARY_COLLATION,
    UndecodedText,
    charset_of,
    decode_text,
    encode_text,
    is_storable,
    twice_coded,
)
from binlog_protocol.events.collation_names import default_collation
from binlog_protocol.events.column_type import INTEGER_SIZES
from binlog_protocol.events.column_type import ColumnType as T
from binlog_protocol.events.table_map import ColumnKind, Label, TableColumn, TableMap
from binlog_protocol.row_columns import ColumnOptions
from binlog_protocol.sql.token_reader import NotUnderstood
from binlog_protocol.sql.tokens import Token, TokenKind
from binlog_protocol.tables.ddl_types import (
    BINARY,
    COMPRESSED,
    DdlType,
    bytes_a_character,
    is_wide,
    unquoted,
)
from binlog_protocol.tables.definition import StoredColumn
from binlog_protocol.tables.sql_type import SqlType

from binlog_pipeline.schemas.columns import table_fields
from binlog_pipeline.schemas.ddl_columns import DdlColumn, Definition
from binlog_pipeline.schemas.lineage import PlacedDdl
from binlog_pipeline.schemas.logged_statements import EMPTY_STRING_IS_NULL, NO_BACKSLASH_ESCAPES

_FAMILIES: Final = {
    **dict.fromkeys(INTEGER_SIZES, "int"),
    T.NEWDECIMAL: "decimal",
    T.FLOAT: "float",
    T.DOUBLE: "double",
    T.YEAR: "year",
    T.DATE: "date",
    T.NEWDATE: "date",
    T.DATETIME2: "datetime",
    T.TIMESTAMP2: "timestamp",
    T.ENUM: "enum",
    T.SET: "set",
    **dict.fromkeys((T.VARCHAR, T.VARCHAR_COMPRESSED, T.STRING, T.BLOB, T.BLOB_COMPRESSED), "text"),
}
_MORE_BYTES: Final = {"tinytext": 0xFF, "text": 0xFFFF, "mediumtext": 0xFFFFFF, "longtext": 0xFFFFFFFF}  # fmt: skip
_BYTES: Final = frozenset(("binary", "varbinary", "tinyblob", "blob", "mediumblob", "longblob"))
_QUOTED: Final = frozenset(("text", "bytes", "enum", "set", "date", "datetime"))
"""Families whose defaults are read as texts alone."""
_WHOLE: Final = re.compile(r"[-+]?\d{1,20}", re.ASCII)
_EXACT: Final = re.compile(r"[-+]?(\d{1,65})(\.(\d*))?", re.ASCII)
_MOMENT: Final = re.compile(
    r"(\d{4})-(\d\d)-(\d\d)(?: (\d\d):(\d\d):(\d\d)(?:\.(\d{1,6}))?)?", re.ASCII
)
_NOW: Final = frozenset(("CURRENT_TIMESTAMP", "NOW", "LOCALTIME", "LOCALTIMESTAMP"))
_OFFSET: Final = re.compile(r"([-+])(\d\d):(\d\d)", re.ASCII)
_REPLACED: Final = "\ufffd"
_MICRO_DIGITS: Final = 6
NO_CHARSET: Final = (
    "the character set of the table is not known, and its values are bytes if that is binary; a later run may know it "
    "by rows that came"
)
_DIGITS_OF_DOUBLE: Final = 15
_ALL_DIGITS: Final = Context(prec=130, rounding=ROUND_HALF_UP)
"""A DECIMAL has up to 65 digits, and Python's own context rounds to 28."""


@dataclass(frozen=True, slots=True)
class NewColumn:
    """A column as an ALTER TABLE defines it.

    logged: as a table map would have it; its collation is that of utf8mb4 where `charset` is not known.
    type: as it is in the table's character set.
    charset: None for a type without one, and where that is the table's, which is not known: `is_open` then.
    """

    definition: Definition
    type: DdlType
    logged: TableColumn
    charset: str | None
    field: pa.Field
    is_open: bool = False

    @classmethod
    def of(cls, definition: Definition, options: ColumnOptions, charset: str | None) -> NewColumn:
        """Raises `NotUnderstood`. charset: of columns that name none; None if it is not known."""
        column = definition.column(charset)
        logged = _logged(column)
        field = _field(logged, options)
        is_open = charset is None and definition.takes_charset
        return cls(definition, column.type, logged, column.charset, field, is_open)

    @classmethod
    def recharset(
        cls, name: str, old: TableColumn, options: ColumnOptions, charset: str
    ) -> NewColumn:
        """A column that `has_charset` behind CONVERT TO CHARACTER SET. Raises `NotUnderstood`."""
        was = charset_of(old.collation or 0)
        if was is None:
            raise NotUnderstood(f"column {name}: its character set is not known")
        if old.labels is None:
            type_ = _text_type(old, was).converted(was, charset)
            made = cls.of(Definition(name, type_, charset, nullable=True), options, charset)
            logged = replace(made.logged, nullable=old.nullable)
            return replace(made, logged=logged)
        labels = _relabelled(name, old, was, charset)
        logged = replace(old, collation=default_collation(charset), labels=labels)
        type_ = DdlType("enum" if old.type == T.ENUM else "set", labels=tuple(map(str, labels)))
        definition = Definition(name, type_, charset, nullable=True)
        return cls(definition, type_, logged, charset, _field(logged, options))

    @property
    def sql_name(self) -> str:
        """The name of its type, in small letters."""
        return self.type.name

    @property
    def family(self) -> str:
        return family(self.logged)

    @property
    def digits(self) -> int:
        """Of fractions of seconds."""
        return self.logged.layout.digits

    def require_charset(self) -> None:
        """Raises `NotUnderstood` if its values may be bytes, as in a table of CHARACTER SET binary."""
        if self.is_open:
            raise self.refuse(NO_CHARSET)

    def refuse(self, why: str) -> NotUnderstood:
        """The error for values of this column."""
        return NotUnderstood(f"column {self.definition.name}: {why}")


def family(column: TableColumn) -> str:
    """What kinds of values a column has; empty for one whose values are not converted here."""
    if column.kind is not ColumnKind.AS_LOGGED:
        return ""
    found = _FAMILIES.get(column.type, "")
    is_bytes = column.collation in (None, BINARY_COLLATION)
    return "bytes" if found == "text" and is_bytes else found


def has_charset(column: TableColumn) -> bool:
    """Whether CONVERT TO CHARACTER SET reaches it: one of character set binary stays what it is."""
    is_labelled = bool(column.labels) and column.collation not in (None, BINARY_COLLATION)
    return is_labelled or family(column) == "text"


def _relabelled(name: str, column: TableColumn, was: str, charset: str) -> tuple[Label, ...]:
    """Labels behind CONVERT TO CHARACTER SET: of the bytes that they had. Raises `NotUnderstood`."""
    labels = column.labels or ()
    if any(isinstance(label, UndecodedText) for label in labels):
        raise NotUnderstood(f"column {name}: labels that are no text")
    texts = [*map(str, labels)]
    if charset == BINARY:
        return tuple(_bytes_of(text, column.collation or 0, name) for text in texts)
    is_plain = all(map(str.isascii, texts)) and not (is_wide(was) or is_wide(charset))
    is_plain = is_plain and _has_ascii(charset)
    if was != charset and not is_plain:
        raise NotUnderstood(f"column {name}: labels converted to another character set")
    return labels


def _text_type(column: TableColumn, charset: str) -> DdlType:
    """The type of a column of text that has no labels."""
    layout = column.layout
    each = bytes_a_character(charset)
    match layout.type:
        case T.STRING:
            return DdlType("char", (layout.size // each,))
        case T.VARCHAR:
            return DdlType("varchar", (layout.size // each,))
        case T.VARCHAR_COMPRESSED:
            return DdlType("varchar", ((layout.size - 1) // each,), suffix=COMPRESSED)
    suffix = COMPRESSED if layout.type == T.BLOB_COMPRESSED else ""
    return DdlType([*_MORE_BYTES][layout.size - 1], suffix=suffix)


def _field(column: TableColumn, options: ColumnOptions) -> pa.Field:
    return table_fields(TableMap(0, 0, "", "", (column,)), options)[0]


def _logged(column: DdlColumn) -> TableColumn:
    try:
        type_ = SqlType.parse(str(column.type))
        collation = BINARY_COLLATION
        if type_.is_text:
            collation = default_collation(column.charset or "utf8mb4")
        stored = StoredColumn(column.name, type_, collation=collation)
        return replace(stored.logged(), kind=ColumnKind.AS_LOGGED)
    except (ValueError, ServerError) as error:
        raise NotUnderstood(f"column {column.name}: {error}") from None


# --- values that are there ---


def converted(values: pa.ChunkedArray, old: TableColumn | None, new: NewColumn) -> pa.ChunkedArray:
    """The values of a column with its new definition. Raises `NotUnderstood`.

    Args:
        old: the column as the log had it; None if that is not known.
    """
    if old is None:
        raise new.refuse("what type it had the log does not say")
    if values.null_count == len(values):
        made = pa.chunked_array([pa.nulls(len(values), new.field.type)])
    elif _is_same(old, new):
        made = values
    else:
        new.require_charset()
        convert = _CONVERSIONS.get((family(old), new.family))
        if convert is None:
            raise new.refuse(f"its values as {new.type}")
        made = convert(values, old, new)
    is_kept = new.definition.nullable is True or (
        new.definition.nullable is None and not new.definition.is_primary and new.family != "timestamp"
    )  # fmt: skip
    if made.null_count and not is_kept:
        raise new.refuse("it has no NULL any more")
    if made.type != new.field.type:
        raise new.refuse(f"{made.type} is not {new.field.type}")
    return made


def _is_same(old: TableColumn, new: NewColumn) -> bool:
    """Whether values are the same in both."""
    logged = new.logged
    if "text" in (family(old), new.family):
        return False
    if old.layout != logged.layout or old.unsigned != logged.unsigned:
        return False
    if new.sql_name in ("uuid", "inet4", "inet6", "vector") or old.kind != logged.kind:
        return False
    if family(old) == "bytes" and _may_be_of_uuids(old):
        return False
    if old.type in (T.FLOAT, T.DOUBLE) and new.type.numbers:
        return False
    return old.labels == logged.labels


def recoded(values: pa.ChunkedArray, charset: str | None, name: str) -> pa.ChunkedArray:
    """Texts in a column of that character set. Raises `NotUnderstood`.

    None is a character set that is not known: all of them have ASCII.
    """
    is_plain = pc.all(pc.fill_null(pc.string_is_ascii(values), True)).as_py()
    if is_plain and _has_ascii(charset):
        return values
    if charset is None:
        raise NotUnderstood(f"column {name}: its character set is not known, and not all is ASCII")
    collation = default_collation(charset)
    for text in pc.unique(values).to_pylist():
        _encoded(text, collation, name)
    return values


def _encoded(text: str | None, collation: int, name: str) -> bytes | None:
    """The bytes of a text in a collation. Raises `NotUnderstood`."""
    if text is None:
        return None
    try:
        if _REPLACED in text:
            raise BadValue("bytes that were no text")
        return encode_text(text, collation)
    except BadValue as error:
        raise NotUnderstood(f"column {name}: {error}") from None


def _bytes_of(text: str, collation: int, name: str) -> bytes:
    """The bytes that a text has been in a collation. Raises `NotUnderstood`."""
    charset = charset_of(collation)
    unsure = twice_coded(charset).intersection(text)
    if unsure:
        raise NotUnderstood(f"column {name}: {min(unsure)!r} has two codes in {charset}")
    found = _encoded(text, collation, name)
    assert found is not None
    return found


@functools.cache
def _has_ascii(charset: str | None) -> bool:
    """Whether a character set has all characters of ASCII. One that is not known is taken to have them."""
    if charset is None:
        return True
    try:
        encode_text("".join(map(chr, range(128))), default_collation(charset))
    except BadValue:
        return False
    return True


def _as_text(texts: pa.ChunkedArray, new: NewColumn) -> pa.ChunkedArray:
    """Texts as values of a column of text."""
    if new.sql_name == "char":
        texts = pc.utf8_rtrim(texts, characters=" ")
    texts = recoded(texts, new.charset, new.definition.name)
    if new.sql_name in _MORE_BYTES:
        longest = pc.max(pc.binary_length(texts)).as_py() or 0
        room = _MORE_BYTES[new.sql_name]
        is_wide = charset_of(new.logged.collation or 0) in ("ucs2", "utf16", "utf16le", "utf32")
        longest *= 4 if is_wide else 1
    else:
        longest = pc.max(pc.utf8_length(texts)).as_py() or 0
        room = new.type.numbers[0]
    if longest > room:
        raise new.refuse("a text is too long for it")
    return texts


def _text_to_text(values: pa.ChunkedArray, old: TableColumn, new: NewColumn) -> pa.ChunkedArray:
    if not pa.types.is_string(values.type):
        raise new.refuse("texts as bytes")
    return _as_text(values, new)


def _text_to_bytes(values: pa.ChunkedArray, old: TableColumn, new: NewColumn) -> pa.ChunkedArray:
    """The bytes of texts. What is too long is cut: with a strict mode there would be no such statement."""
    if new.sql_name not in _BYTES:
        raise new.refuse(f"texts as {new.type}")
    made = values
    if pa.types.is_string(values.type):
        made = _in_charset(values, old.collation or 0, new.definition.name)
    if new.sql_name in ("binary", "varbinary"):
        made = pc.binary_slice(made, 0, new.type.numbers[0])
    elif (pc.max(pc.binary_length(made)).as_py() or 0) > _room_of_blob(new):
        raise new.refuse("a text is too long for it")
    if new.sql_name == "binary":
        size = new.type.numbers[0]
        found = [None if raw is None else raw.ljust(size, b"\0") for raw in made.to_pylist()]
        made = pa.chunked_array([pa.array(found, pa.binary())])
    return made


def _in_charset(texts: pa.ChunkedArray, collation: int, name: str) -> pa.ChunkedArray:
    """Texts as the bytes that they are in a collation. Raises `NotUnderstood`."""
    is_plain = pc.all(pc.fill_null(pc.string_is_ascii(texts), True)).as_py()
    charset = charset_of(collation)
    if is_plain and not is_wide(charset) and not twice_coded(charset):
        return texts.cast(pa.binary())
    made: dict[str | None, bytes | None] = {None: None}
    for text in pc.drop_null(pc.unique(texts)).to_pylist():
        made[text] = _bytes_of(text, collation, name)
    return pa.chunked_array([pa.array([made[text] for text in texts.to_pylist()], pa.binary())])


def _bytes_to_text(values: pa.ChunkedArray, old: TableColumn, new: NewColumn) -> pa.ChunkedArray:
    """Bytes as the texts that they are."""
    if not pa.types.is_binary(values.type) or _may_be_of_uuids(old):
        raise new.refuse("its bytes as texts")
    made: dict[bytes | None, str | None] = {None: None}
    for raw in pc.unique(values).to_pylist():
        if raw is not None:
            text = decode_text(raw, new.logged.collation or 0)
            if not isinstance(text, str) or not is_storable(text):
                raise new.refuse(f"{raw[:40]!r} is no text of {new.charset}")
            made[raw] = text
    texts = [made[raw] for raw in values.to_pylist()]
    return _as_text(pa.chunked_array([pa.array(texts, pa.string())]), new)


def _may_be_of_uuids(column: TableColumn) -> bool:
    """Whether it may be of UUID, INET4 or INET6, which are logged like BINARY."""
    return column.type == T.STRING and column.layout.size in (4, 16)


def _bytes_to_bytes(values: pa.ChunkedArray, old: TableColumn, new: NewColumn) -> pa.ChunkedArray:
    longest = pc.max(pc.binary_length(values)).as_py() or 0
    room = new.type.numbers[0] if new.sql_name == "varbinary" else _room_of_blob(new)
    if old.type == T.STRING or longest > room:
        raise new.refuse("its bytes in another length")
    return values


def _room_of_blob(new: NewColumn) -> int:
    return _MORE_BYTES.get(new.sql_name.replace("blob", "text"), 0)


def _whole_to_whole(values: pa.ChunkedArray, old: TableColumn, new: NewColumn) -> pa.ChunkedArray:
    return _wholes(values, new)


def _wholes(numbers: pa.ChunkedArray, new: NewColumn) -> pa.ChunkedArray:
    """Whole numbers as values of an integer column. Beyond its range a server without strict mode takes the nearest."""
    low, high = _range(new)
    bounds = pc.min_max(numbers).as_py()
    if low <= int(bounds["min"]) and int(bounds["max"]) <= high:
        return numbers.cast(new.field.type)
    return _nearest(numbers.to_pylist(), new)


def _range(new: NewColumn) -> tuple[int, int]:
    bits = 8 * INTEGER_SIZES[new.logged.type]
    return (0, (1 << bits) - 1) if new.logged.unsigned else (-(1 << bits - 1), (1 << bits - 1) - 1)


def _nearest(numbers: Sequence[Decimal | int | None], new: NewColumn) -> pa.ChunkedArray:
    """Whole numbers of any size, each as the nearest of an integer column."""
    low, high = _range(new)
    make = Decimal if pa.types.is_decimal(new.field.type) else int
    made = [None if one is None else make(min(max(int(one), low), high)) for one in numbers]
    return pa.chunked_array([pa.array(made, new.field.type)])


def _each(convert: Callable[[Any, NewColumn], Any]) -> Callable[..., pa.ChunkedArray]:
    """A conversion value by value."""

    def made(values: pa.ChunkedArray, old: TableColumn, new: NewColumn) -> pa.ChunkedArray:
        found = [None if one is None else convert(one, new) for one in values.to_pylist()]
        try:
            return pa.chunked_array([pa.array(found, new.field.type)])
        except (pa.ArrowException, OverflowError, TypeError) as error:
            raise new.refuse(str(error)) from None

    return made


def _decimal_of(number: Decimal, new: NewColumn) -> Decimal | str:
    """A number as a column of DECIMAL has it: as text, if that has more digits than Arrow's. Raises `NotUnderstood`."""
    layout = new.logged.layout
    found = number.quantize(Decimal(1).scaleb(-layout.scale), context=_ALL_DIGITS)
    if len(found.as_tuple().digits) > layout.digits:
        raise new.refuse(f"{number} is beyond its range")
    return f"{found or abs(found):f}" if pa.types.is_string(new.field.type) else found


def _number_to_decimal(value: Any, new: NewColumn) -> Decimal | str:
    return _decimal_of(Decimal(value), new)


def _decimal_to_whole(values: pa.ChunkedArray, old: TableColumn, new: NewColumn) -> pa.ChunkedArray:
    rounded = [
        None if one is None else Decimal(one).quantize(Decimal(1), context=_ALL_DIGITS)
        for one in values.to_pylist()
    ]
    return _nearest(rounded, new)


def _text_to_whole(values: pa.ChunkedArray, old: TableColumn, new: NewColumn) -> pa.ChunkedArray:
    found = []
    for text in values.to_pylist():
        if text is not None and not _WHOLE.fullmatch(text):
            raise new.refuse(f"{text[:40]!r} is no whole number")
        found.append(None if text is None else Decimal(text))
    return _wholes(pa.chunked_array([pa.array(found, pa.decimal128(38, 0))]), new)


def _text_to_decimal(value: str, new: NewColumn) -> Decimal | str:
    if not _EXACT.fullmatch(value):
        raise new.refuse(f"{value[:40]!r} is no decimal number")
    return _decimal_of(Decimal(value), new)


def _plain_float(value: Any, new: NewColumn) -> float:
    text = str(value)
    found = _EXACT.fullmatch(text)
    is_exact = found is not None and len(found[1] + (found[3] or "")) <= _DIGITS_OF_DOUBLE
    if not is_exact or new.type.numbers:
        raise new.refuse(f"{text[:40]!r} as a number with a floating point")
    return float(text)


def _whole_to_text(values: pa.ChunkedArray, old: TableColumn, new: NewColumn) -> pa.ChunkedArray:
    if old.unsigned is not False:
        raise new.refuse("whether it was ZEROFILL the log does not say")
    return _as_text(values.cast(pa.string()), new)


def _decimal_to_text(values: pa.ChunkedArray, old: TableColumn, new: NewColumn) -> pa.ChunkedArray:
    if old.unsigned is not False:
        raise new.refuse("whether it was ZEROFILL the log does not say")
    found = [None if one is None else f"{Decimal(one):f}" for one in values.to_pylist()]
    return _as_text(pa.chunked_array([pa.array(found, pa.string())]), new)


def _floats(values: pa.ChunkedArray, old: TableColumn, new: NewColumn) -> pa.ChunkedArray:
    if new.type.numbers or (old.type == T.DOUBLE and new.logged.type == T.FLOAT):
        raise new.refuse(f"its values as {new.type}")
    return values.cast(new.field.type)


def _to_enum(values: pa.ChunkedArray, old: TableColumn, new: NewColumn) -> pa.ChunkedArray:
    """Texts as labels: only those that are labels to the letter. What was no label is none still."""
    keeps_none = bool(old.labels) and not {"", b""} & {*(old.labels or ())}

    def made(value: Any, new: NewColumn) -> Any:
        if keeps_none and not value:
            return b"" if _has_bytes(new) else ""
        return _as_labels([_in_labels(value, old, new)], new)[0]

    return _each(made)(values, old, new)


def _to_set(values: pa.ChunkedArray, old: TableColumn, new: NewColumn) -> pa.ChunkedArray:
    """Texts or lists of labels as those of a SET."""
    # Servers look for the byte of a comma, in front of which such a character set has another one.
    is_split_wrong = _has_bytes(new) and is_wide(charset_of(old.collation or 0))

    def made(value: Any, new: NewColumn) -> Any:
        members = value if isinstance(value, list) else _members(value)
        if is_split_wrong and len(members) > 1:
            raise new.refuse("several labels as bytes of a character set that is not ASCII's")
        return _as_set([_in_labels(one, old, new) for one in members], new)

    return _each(made)(values, old, new)


def _set_to_text(values: pa.ChunkedArray, old: TableColumn, new: NewColumn) -> pa.ChunkedArray:
    if not pa.types.is_string(values.type):
        raise new.refuse("lists or bytes as texts")
    return _as_text(values, new)


def _has_bytes(new: NewColumn) -> bool:
    """Whether its labels are bytes."""
    return new.logged.collation == BINARY_COLLATION


def _in_labels(value: str | bytes, old: TableColumn, new: NewColumn) -> str | bytes:
    """A text as a column has it whose labels are bytes, if they are. Raises `NotUnderstood`."""
    if isinstance(value, bytes) or not _has_bytes(new):
        return value
    return _encoded(value, old.collation or 0, new.definition.name) or b""


def _members(text: str | bytes) -> Sequence[str | bytes]:
    if isinstance(text, bytes):
        return text.split(b",") if text else []
    return text.split(",") if text else []


def _as_labels(members: Sequence[str | bytes], new: NewColumn) -> list[Any]:
    """Texts or bytes as labels of a column. Raises `NotUnderstood` for what is none."""
    labels, has_bytes = new.logged.labels, _has_bytes(new)
    if labels is None:
        raise new.refuse("labels as numbers")
    found: list[str | bytes] = []
    for one in members:
        if isinstance(one, str):
            made = one.encode() if has_bytes else one
        else:
            made = one if has_bytes else one.decode("ascii", "replace")
        if made not in labels:
            raise new.refuse(f"{one[:40]!r} is no label of it")
        found.append(made)
    return found


def _as_set(members: Sequence[str | bytes], new: NewColumn) -> Any:
    """Labels as a value of a SET, which has them in the order of its definition. Raises `NotUnderstood`."""
    found = _as_labels(members, new)
    made: list[Any] = [label for label in new.logged.labels or () if label in found]
    if len(made) < len(found):
        raise new.refuse("a label that is there twice")
    if pa.types.is_list(new.field.type):
        return made
    return b",".join(made) if _has_bytes(new) else ",".join(made)


def _date_to_datetime(values: pa.ChunkedArray, old: TableColumn, new: NewColumn) -> pa.ChunkedArray:
    if not pa.types.is_date(values.type):
        raise new.refuse("dates as texts")
    return values.cast(new.field.type)


def _moments(values: pa.ChunkedArray, old: TableColumn, new: NewColumn) -> pa.ChunkedArray:
    """DATETIME and TIMESTAMP with other digits of the second."""
    if new.digits < old.layout.digits or not pa.types.is_timestamp(values.type):
        raise new.refuse("its fractions of seconds are cut or rounded, by the sql_mode")
    return values.cast(new.field.type)


def _text_to_moment(value: str, new: NewColumn) -> dt.date:
    if not pa.types.is_temporal(new.field.type):
        raise new.refuse("texts as dates")
    return moment(value, new)


_CONVERSIONS: Final[dict[tuple[str, str], Callable[..., pa.ChunkedArray]]] = {
    ("int", "int"): _whole_to_whole,
    ("int", "decimal"): _each(_number_to_decimal),
    ("int", "double"): _each(_plain_float),
    ("int", "text"): _whole_to_text,
    ("decimal", "decimal"): _each(_number_to_decimal),
    ("decimal", "int"): _decimal_to_whole,
    ("decimal", "double"): _each(_plain_float),
    ("decimal", "text"): _decimal_to_text,
    ("float", "double"): _floats,
    ("double", "double"): _floats,
    ("float", "float"): _floats,
    ("text", "text"): _text_to_text,
    ("text", "int"): _text_to_whole,
    ("text", "decimal"): _each(_text_to_decimal),
    ("text", "double"): _each(_plain_float),
    ("text", "bytes"): _text_to_bytes,
    ("text", "enum"): _to_enum,
    ("text", "set"): _to_set,
    ("text", "date"): _each(_text_to_moment),
    ("text", "datetime"): _each(_text_to_moment),
    ("enum", "enum"): _to_enum,
    ("enum", "text"): _text_to_text,
    ("enum", "bytes"): _text_to_bytes,
    ("set", "set"): _to_set,
    ("set", "text"): _set_to_text,
    ("bytes", "bytes"): _bytes_to_bytes,
    ("bytes", "text"): _bytes_to_text,
    ("date", "datetime"): _date_to_datetime,
    ("datetime", "datetime"): _moments,
    ("timestamp", "timestamp"): _moments,
}


# --- values of a new column ---


def first_value(new: NewColumn, placed: PlacedDdl) -> Any:
    """The value that a new column has in the rows that are there; None is NULL. Raises `NotUnderstood`."""
    tokens = new.definition.default
    if not tokens:
        if new.definition.nullable is False or new.definition.is_primary:
            new.require_charset()
            return _implicit(new)
        if new.family == "timestamp" and new.definition.nullable is None:
            raise new.refuse("whether a TIMESTAMP is NOT NULL of itself the log does not say")
        return None
    words = [token.text.upper() for token in tokens]
    if words == ["NULL"]:
        return None
    if tokens[0].kind is TokenKind.WORD and words[0] in _NOW:
        return _now(words[1:], new, placed)
    new.require_charset()
    text, is_text = _literal(tokens, new, placed)
    make = _LITERALS.get(new.family)
    if make is None or (new.family in _QUOTED and not is_text):
        raise new.refuse(f"DEFAULT {' '.join(words)[:40]} as {new.type}")
    return make(text, new)


def _literal(tokens: tuple[Token, ...], new: NewColumn, placed: PlacedDdl) -> tuple[str, bool]:
    """The text of a literal, and whether it was a string."""
    if len(tokens) == 1 and tokens[0].kind is TokenKind.STRING:
        escapes = not placed.said.sql_mode & NO_BACKSLASH_ESCAPES
        if new.family == "bytes" and is_wide(placed.said.literal_charset):
            raise new.refuse("bytes of a text of another character set")
        text = unquoted(tokens[0].text, escapes=escapes)
        if not text and placed.said.sql_mode & EMPTY_STRING_IS_NULL:
            raise new.refuse("sql_mode EMPTY_STRING_IS_NULL")
        return text, True
    text = "".join(token.text for token in tokens).upper()
    text = {"TRUE": "1", "FALSE": "0"}.get(text, text)
    if not _EXACT.fullmatch(text):
        raise NotUnderstood(f"DEFAULT {text[:40]}")
    return text, False


def _implicit(new: NewColumn) -> Any:
    """The value of a column that is NOT NULL and has no default."""
    match new.family:
        case "int":
            return Decimal(0) if pa.types.is_decimal(new.field.type) else 0
        case "decimal":
            return _decimal_of(Decimal(0), new)
        case "float" | "double":
            return 0.0
        case "text":
            return ""
        case "bytes" if new.sql_name in _BYTES:
            return _octets("", new)
        case "enum":
            if new.logged.labels:
                return new.logged.labels[0]
        case "set":
            return _as_set([], new)
    raise new.refuse("NOT NULL without a default")


def _whole(text: str, new: NewColumn) -> Any:
    if not _WHOLE.fullmatch(text):
        raise new.refuse(f"DEFAULT {text[:40]}")
    made = _wholes(pa.chunked_array([pa.array([Decimal(text)], pa.decimal128(38, 0))]), new)
    if int(made[0].as_py()) != int(text):
        raise new.refuse(f"DEFAULT {text[:40]} is beyond its range")
    return made[0].as_py()


def _exact(text: str, new: NewColumn) -> Decimal | str:
    if not _EXACT.fullmatch(text):
        raise new.refuse(f"DEFAULT {text[:40]}")
    return _decimal_of(Decimal(text), new)


def _text(text: str, new: NewColumn) -> str:
    if not pa.types.is_string(new.field.type):
        raise new.refuse("texts as bytes")
    return str(_as_text(pa.chunked_array([pa.array([text])]), new)[0].as_py())


def _octets(text: str, new: NewColumn) -> bytes:
    if not text.isascii() or new.sql_name not in _BYTES:
        raise new.refuse(f"DEFAULT {text[:40]!r}")
    made = text.encode()
    if new.sql_name == "binary":
        made = made.ljust(new.type.numbers[0], b"\0")
    return made


def _label(text: str, new: NewColumn) -> str | bytes:
    found: str | bytes = _as_labels([text], new)[0]
    return found


_LITERALS: Final[dict[str, Callable[[str, NewColumn], Any]]] = {
    "int": _whole,
    "decimal": _exact,
    "double": _plain_float,
    "text": _text,
    "bytes": _octets,
    "enum": _label,
    "set": lambda text, new: _as_set(_members(text), new),
    "date": lambda text, new: _shown(moment(text, new), new),
    "datetime": lambda text, new: _shown(moment(text, new), new),
}


def moment(text: str, new: NewColumn) -> dt.date:
    """A DATE or DATETIME of its usual text. Raises `NotUnderstood`."""
    found = _MOMENT.fullmatch(text)
    fraction = found[7] or "" if found else ""
    is_date = new.family == "date"
    if found is None or len(fraction) > new.digits or (is_date and found[4]):
        raise new.refuse(f"{text[:40]!r} as {new.type}")
    year, month, day, hour, minute, second = (int(one or 0) for one in found.groups()[:6])
    try:
        if is_date:
            return dt.date(year, month, day)
        micros = int(fraction.ljust(_MICRO_DIGITS, "0"))
        return dt.datetime(year, month, day, hour, minute, second, micros)
    except ValueError:
        raise new.refuse(f"{text[:40]!r} is no moment") from None


def _now(words: list[str], new: NewColumn, placed: PlacedDdl) -> Any:
    digits = int("".join(words).strip("()") or 0)
    if new.family not in ("datetime", "timestamp") or digits != new.digits:
        raise new.refuse("DEFAULT CURRENT_TIMESTAMP")
    unit = 10 ** (_MICRO_DIGITS - digits)
    micros = placed.said.microseconds // unit * unit
    at = dt.datetime.fromtimestamp(placed.time, dt.UTC).replace(microsecond=micros)
    if new.family == "timestamp":
        return _shown(at, new)
    return _shown((at + _zone(placed.said.time_zone, new)).replace(tzinfo=None), new)


def _zone(name: str, new: NewColumn) -> dt.timedelta:
    """The offset of a time zone that has one alone. Raises `NotUnderstood`."""
    found = _OFFSET.fullmatch(name)
    if name == "UTC":
        return dt.timedelta()
    if found is None:
        raise new.refuse(f"the time in time zone {name or 'unknown'}")
    offset = dt.timedelta(hours=int(found[2]), minutes=int(found[3]))
    return -offset if found[1] == "-" else offset


def _shown(value: dt.date, new: NewColumn) -> Any:
    """As the rows have it."""
    if not pa.types.is_string(new.field.type):
        return value
    if not isinstance(value, dt.datetime):
        return value.isoformat()
    text = value.strftime("%Y-%m-%d %H:%M:%S")
    return f"{text}.{value.microsecond:06d}"[: len(text) + 1 + new.digits] if new.digits else text
