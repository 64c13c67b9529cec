"""Types of columns as a statement writes them, made into what `information_schema.columns.COLUMN_TYPE` prints.

What was asked of servers, 10.11 and 11.8: INT(0) is int(11), DECIMAL(0) decimal(10,0), YEAR(3) year(4); ZEROFILL is
unsigned; TEXT(n) is the smallest TEXT that has room for n characters, and so is VARCHAR(n) of more than 65,532 bytes,
which strict mode refuses; JSON is longtext of utf8mb4; labels lose spaces at their end, unless they are binary: those
are the bytes that collation_connection has for the text.
"""

from __future__ import annotations

import re
from dataclasses import field, replace
from typing import Final

from binlog_protocol.dataclass import dataclass
from binlog_protocol.errors import BadValue
from binlog_protocol.events.charsets import character_bytes_max, encode_text
from binlog_protocol.events.collation_names import charset_named, default_collation
from binlog_protocol.sql.token_reader import NotUnderstood, TokenReader
from binlog_protocol.sql.tokens import TokenKind
from binlog_protocol.tables.sql_type import GEOMETRIES

REAL_AS_FLOAT: Final = 1  # of sql_mode
BINARY: Final = "binary"
_WIDTHS: Final = {  # signed, unsigned
    "tinyint": (4, 3),
    "smallint": (6, 5),
    "mediumint": (9, 8),
    "int": (11, 10),
    "bigint": (20, 20),
}
_ALIASES: Final = {
    "int1": "tinyint", "int2": "smallint", "int3": "mediumint", "middleint": "mediumint", "int4": "int",
    "integer": "int", "int8": "bigint", "dec": "decimal", "numeric": "decimal", "fixed": "decimal", "float4": "float",
    "float8": "double", "character": "char", "varcharacter": "varchar",
}  # fmt: skip
_SIZES: Final = ("tiny", "", "medium", "long")
_TEXTS: Final = tuple(f"{size}text" for size in _SIZES)
_BLOBS: Final = tuple(f"{size}blob" for size in _SIZES)
_BLOB_OF_TEXT: Final = dict(zip(_TEXTS, _BLOBS, strict=True))
_ROOM: Final = (0xFF, 0xFFFF, 0xFFFFFF, 0xFFFFFFFF)  # bytes
_PLAIN: Final = frozenset(("date", "uuid", "inet4", "inet6", *GEOMETRIES, *_TEXTS, *_BLOBS))
_AS_TEXT: Final = {
    **dict.fromkeys(("char", "binary", "uuid", "inet4", "inet6"), "char"),
    **dict.fromkeys(("varchar", "varbinary", "vector"), "varchar"),
}
_BINARY_OF: Final = {"char": "binary", "varchar": "varbinary", **_BLOB_OF_TEXT}
_CHARACTER: Final = frozenset(("char", "varchar", "enum", "set", *_TEXTS))
_LONGEST: Final = {"char": 255, "varchar": 65_532, "binary": 255, "varbinary": 65_532}
_TEXT_INSTEAD: Final = {
    "varchar": "text",
    "varbinary": "blob",
}  # of one that is too long, without strict mode
_NOT_ASCII: Final = frozenset(("ucs2", "utf16", "utf16le", "utf32"))
_MOST_BYTES: Final = 4  # of a character of any set
_INTEGER_BYTES: Final = {"tinyint": 1, "smallint": 2, "mediumint": 3, "int": 4, "bigint": 8}
_OTHER_KEY_BYTES: Final = 32  # no column that is neither text nor bytes has more
_NATIONAL: Final = "utf8mb3"
COMPRESSED: Final = " /*M!100301 COMPRESSED*/"
_ESCAPES: Final = {quote: re.compile(rf"\\(.)|{quote * 2}", re.DOTALL) for quote in "'\""}
_ESCAPED: Final = {"0": "\0", "n": "\n", "r": "\r", "t": "\t", "b": "\b", "Z": "\x1a"}
_KEPT: Final = "%_"  # behind a backslash they keep it
_PRINTED: Final = str.maketrans({"\\": "\\\\", "'": "''", "\0": "\\0", "\n": "\\n", "\r": "\\r"})


@dataclass(frozen=True, slots=True)
class DdlType:
    """`characters` of TEXT(n) and BLOB(n) until the character set is known; `suffix` behind the brackets.

    is_wide: the session that gave the labels writes ASCII, too, in other bytes.
    """

    name: str
    numbers: tuple[int, ...] = ()
    labels: tuple[str, ...] | None = None
    suffix: str = ""
    characters: int = 0
    is_wide: bool = field(default=False, compare=False)

    @property
    def is_character(self) -> bool:
        """Whether it has a character set."""
        return self.name in _CHARACTER

    @property
    def is_long(self) -> bool:
        """Whether it is a TEXT or BLOB of some size."""
        return self.name in _BLOB_OF_TEXT or self.name in _BLOBS

    @property
    def logged_as(self) -> tuple[str, tuple[int, ...]]:
        """The same for two types that a log which tells no more than it must does not tell apart."""
        name = self.name
        if name in GEOMETRIES:
            return "geometry", ()
        if self.is_long:
            return _BLOB_OF_TEXT.get(name, name), ()
        if name in _AS_TEXT:
            return _AS_TEXT[name], ()
        return name, () if name in (*_WIDTHS, "float", "double", "year") else self.numbers

    def of_charset(self, charset: str | None) -> DdlType:
        """The type that MariaDB takes in a character set; None is an unknown one. Raises `NotUnderstood`."""
        made = self
        if self.labels is not None:
            trimmed = tuple(label.rstrip(" ") for label in self.labels)
            if charset is None and trimmed != self.labels:
                raise NotUnderstood("labels that end with a space, of an unknown character set")
            if charset != BINARY:
                _require_characters(trimmed, charset)
                return replace(self, labels=trimmed)
            if self.is_wide or not all(map(str.isascii, self.labels)):
                raise NotUnderstood(
                    f"labels of {self.name.upper()} beyond ASCII, of character set binary: which bytes they are is for "
                    "the session that gave them"
                )
            return self
        if charset == BINARY:
            made = replace(made, name=_BINARY_OF.get(made.name, made.name))
        if not made.is_character:
            charset = BINARY
        if made.name in _TEXT_INSTEAD and made._exceeds(charset):
            if charset is None:
                raise NotUnderstood(
                    f"{made}, which may be too long for that type, of an unknown character set"
                )
            made = DdlType(_TEXT_INSTEAD[made.name], suffix=made.suffix, characters=made.numbers[0])
        if made.characters:
            if charset is None:
                raise NotUnderstood(
                    f"the size of TEXT({made.characters}) of an unknown character set"
                )
            size = made.characters * bytes_a_character(charset)
            rank = next((i for i, room in enumerate(_ROOM) if size <= room), None)
            if rank is None:
                raise NotUnderstood(f"{made.name}({made.characters}), which is too long")
            names = _TEXTS if made.is_character else _BLOBS
            made = replace(made, name=names[rank], characters=0)
        if made._exceeds(charset):
            raise NotUnderstood(f"{made}, which is too long for that type")
        return made

    def _exceeds(self, charset: str | None) -> bool:
        """Whether it is longer than its type may be, or could be of some character set."""
        longest = _LONGEST.get(self.name)
        if longest is None:
            return False
        each = bytes_a_character(charset) if self.name == "varchar" else 1
        return self.numbers[0] * each > longest

    def key_bytes(self, charset: str | None, characters: int | None) -> int:
        """The most that a key has of a column, or of the first `characters` of it."""
        if self.name not in (*_LONGEST, *_TEXTS, *_BLOBS):
            return _INTEGER_BYTES.get(self.name, _OTHER_KEY_BYTES)
        whole = self.numbers[0] if self.numbers else _ROOM[-1]
        length = whole if characters is None else min(whole, characters)
        return length * (bytes_a_character(charset) if self.is_character else 1)

    def converted(self, old: str, new: str) -> DdlType:
        """The type behind ALTER TABLE ... CONVERT TO CHARACTER SET. Raises `NotUnderstood`."""
        if old in (BINARY, new):
            return self  # what is bytes stays bytes
        before, behind = bytes_a_character(old), bytes_a_character(new)
        plain = not {old, new} & _NOT_ASCII and all(map(str.isascii, self.labels or ()))
        if self.labels is not None and not plain:  # servers take their bytes as they are
            raise NotUnderstood("labels converted to another character set")
        if self.name in _TEXTS and behind > before:
            rank = min(_TEXTS.index(self.name) + 1, len(_TEXTS) - 1)
            return replace(self, name=_TEXTS[rank])
        return self.of_charset(new)

    def __str__(self) -> str:
        if self.labels is not None:
            inside = ",".join(f"'{label.translate(_PRINTED)}'" for label in self.labels)
        else:
            inside = ",".join(map(str, self.numbers))
        return f"{self.name}({inside}){self.suffix}" if inside else f"{self.name}{self.suffix}"


def _require_characters(labels: tuple[str, ...], charset: str | None) -> None:
    """Raises `NotUnderstood` for a label that the character set has not: servers put others in its place."""
    try:
        for label in labels if charset is not None else ():
            encode_text(label, default_collation(charset or ""))
    except BadValue as error:
        raise NotUnderstood(f"label {error}") from None


def bytes_a_character(charset: str | None) -> int:
    """The most that one takes; of an unknown set the most that any takes."""
    return _MOST_BYTES if charset is None else character_bytes_max(charset)


def charset_of_name(name: str) -> str:
    """The character set of a name, as information_schema calls it. Raises `NotUnderstood`.

    utf8 is utf8mb3, as `old_mode` has it unless it was changed: the log does not tell that, and values read the same.
    """
    found = None if name.isdecimal() else charset_named(name)
    if found is None:
        raise NotUnderstood(f"character set {name}")
    return found


def charset_of_collation(name: str) -> str | None:
    """The character set of a collation; None for one of any character set: uca1400_ai_ci. Raises `NotUnderstood`."""
    lower = name.lower()
    if lower == "default" or lower.startswith("uca1400_"):
        return None
    return charset_of_name(lower.partition("_")[0])


def is_wide(charset: str | None) -> bool:
    """Whether the character set has ASCII in other bytes."""
    return charset in _NOT_ASCII


def parse_type(
    reader: TokenReader, sql_mode: int, *, escapes: bool, wide: bool
) -> tuple[DdlType, str | None]:
    """The type that is next, without its attributes; and the character set that it brings. Raises `NotUnderstood`.

    `wide`: see `DdlType.is_wide`.
    """
    shown = reader.shown()
    if reader.word() == "MARIADB_SCHEMA":
        reader.at += 1
        reader.expect(".")
    word = reader.word().lower()
    if not word:
        raise NotUnderstood(f"no type, but {shown}")
    reader.at += 1
    national = word in ("national", "nchar", "nvarchar")
    if word == "national":
        word = reader.word().lower()
        reader.at += 1
        if word not in ("char", "character", "varchar", "varcharacter"):
            raise NotUnderstood(f"type NATIONAL {word}")
    elif national:
        word = word[1:]
    name = _ALIASES.get(word, word)
    if name == "char" and (reader.accept("VARYING") or (national and reader.accept("VARCHAR"))):
        name = "varchar"
    if name == "long":
        return _long(reader), None
    if name == "json":
        return DdlType("longtext"), "utf8mb4"
    if name in ("enum", "set"):
        return DdlType(name, labels=_labels(reader, escapes=escapes), is_wide=wide), None
    if name == "real":
        name = "float" if sql_mode & REAL_AS_FLOAT else "double"
    if name == "double":
        reader.accept("PRECISION")
    numbers = _numbers(reader)
    return _type(name, numbers), _NATIONAL if national else None


def _type(name: str, numbers: tuple[int, ...]) -> DdlType:
    count = len(numbers)
    first = numbers[0] if numbers else 0
    if name in ("bool", "boolean") and not count:
        return DdlType("tinyint", (1,))
    if name == "serial" and not count:
        return DdlType("bigint", suffix=" unsigned")
    if name in _WIDTHS and count < 2:
        return DdlType(name, (first,) if first else ())
    if name == "decimal" and count < 3:
        return DdlType(name, (first or 10, numbers[1] if count == 2 else 0))
    if name in ("float", "double"):
        if count == 2:
            return DdlType(name, numbers)
        if count == 0 or (name == "float" and first <= 53):
            return DdlType("float" if name == "float" and first <= 24 else "double")
    if name in ("time", "datetime", "timestamp") and count < 2:
        return DdlType(name, (first,) if first else ())
    if name == "bit" and count < 2:
        return DdlType(name, (first or 1,))
    if name == "year" and count < 2:
        return DdlType(name, (2 if first == 2 else 4,))
    if name in ("char", "binary") and count < 2:
        return DdlType(name, numbers or (1,))
    if name in ("varchar", "varbinary", "vector") and count == 1:
        return DdlType(name, numbers)
    if name in ("text", "blob") and count == 1:
        return DdlType(name, characters=first)
    if name in _PLAIN and not count:
        return DdlType(name)
    raise NotUnderstood(f"type {DdlType(name, numbers)}")


def _long(reader: TokenReader) -> DdlType:
    """LONG, LONG VARCHAR, LONG CHAR VARYING, LONG VARBINARY"""
    if reader.accept("VARBINARY"):
        return DdlType("mediumblob")
    if reader.word() in ("CHAR", "CHARACTER"):
        at = reader.at
        reader.at += 1
        if not reader.accept("VARYING"):
            reader.at = at  # CHARACTER SET
    elif reader.word() in ("VARCHAR", "VARCHARACTER"):
        reader.at += 1
    return DdlType("mediumtext")


def with_signs(type_: DdlType, *, unsigned: bool, zerofill: bool) -> DdlType:
    """The type with UNSIGNED and ZEROFILL, and the width that an integer has of itself."""
    unsigned = unsigned or zerofill or "unsigned" in type_.suffix
    if type_.name in _WIDTHS and not type_.numbers:
        type_ = replace(type_, numbers=(_WIDTHS[type_.name][unsigned],))
    suffix = " unsigned" * unsigned + " zerofill" * zerofill
    return replace(type_, suffix=suffix) if suffix else type_


def _numbers(reader: TokenReader) -> tuple[int, ...]:
    """(1), (10,2), or nothing."""
    if not reader.sign("("):
        return ()
    found: list[int] = []
    while True:
        word = reader.word()
        if not (word.isascii() and word.isdecimal() and len(word) <= 10):
            raise NotUnderstood(f"no number, but {reader.shown()}")
        found.append(int(word))
        reader.at += 1
        if not reader.sign(","):
            reader.expect(")")
            return tuple(found)


def _labels(reader: TokenReader, *, escapes: bool) -> tuple[str, ...]:
    reader.expect("(")
    found: list[str] = []
    while True:
        token = reader.token()
        if token is None or token.kind is not TokenKind.STRING:
            raise NotUnderstood(
                f"label {reader.shown()}"
            )  # 0x61 is one, too, of unknown characters
        found.append(unquoted(token.text, escapes=escapes))
        reader.at += 1
        if not reader.sign(","):
            reader.expect(")")
            return tuple(found)


def unquoted(raw: str, *, escapes: bool) -> str:
    """The value of a string literal, without its quotes and escapes."""
    quote, inside = raw[0], raw[1:-1]
    if not escapes:
        return inside.replace(quote * 2, quote)
    return _ESCAPES[quote].sub(lambda found: _value(found[1]) if found[1] else quote, inside)


def _value(escaped: str) -> str:
    return "\\" + escaped if escaped in _KEPT else _ESCAPED.get(escaped, escaped)
