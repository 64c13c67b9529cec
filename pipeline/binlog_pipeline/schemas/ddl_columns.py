"""Definitions of columns and keys in CREATE TABLE and ALTER TABLE.

Whatever is not known here ends the reading of the statement: nothing is guessed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from typing import Final

from binlog_protocol.dataclass import dataclass
from binlog_protocol.sql.token_reader import NotUnderstood, TokenReader
from binlog_protocol.sql.tokens import Token, TokenKind
from binlog_protocol.tables.ddl_types import (
    BINARY,
    COMPRESSED,
    DdlType,
    charset_of_collation,
    charset_of_name,
    is_wide,
    parse_type,
    with_signs,
)

from binlog_pipeline.schemas.logged_statements import NO_BACKSLASH_ESCAPES

INDEX: Final = ("INDEX", "KEY")
OF_ALL_PARTITIONS: Final = ("PARTITION", "REMOVE")
"""PARTITION BY and REMOVE PARTITIONING stand behind the last clause of an ALTER TABLE, without a comma."""
_CHARSETS: Final = {"ASCII": "latin1", "UNICODE": "ucs2", "BYTE": BINARY}
_PLAIN: Final = frozenset((
    "AUTO_INCREMENT", "INVISIBLE", "VIRTUAL", "PERSISTENT", "STORED", "SIGNED",
))  # fmt: skip
_TIMES: Final = frozenset(("CURRENT_TIMESTAMP", "NOW", "LOCALTIME", "LOCALTIMESTAMP"))
_TEXT_PREFIXES: Final = frozenset(("X", "B", "N", "DATE", "TIME", "TIMESTAMP"))
_OF_KEYS: Final = frozenset((
    "CONSTRAINT", "PRIMARY", "UNIQUE", "KEY", "INDEX", "FULLTEXT", "SPATIAL", "FOREIGN", "CHECK",
))  # fmt: skip
_HIDDEN: Final = (
    "a UNIQUE key over TEXT or BLOB without a length, of more bytes than a key of its engine may have, or USING HASH: "
    "it has a hidden column"
)
_MYISAM: Final = "myisam"
_KEY_BYTES_MAX: Final = {_MYISAM: 1000}
_KEY_BYTES_MAX_ELSE: Final = (
    3072  # of InnoDB with pages of 16 KiB; Aria refuses what is longer than its own
)


@dataclass(frozen=True, slots=True)
class DdlColumn:
    """A column of a table; `charset` is None where it has none, or where it is not known."""

    name: str
    type: DdlType
    charset: str | None = None


@dataclass(frozen=True, slots=True)
class Definition:
    """A column as a statement defines it: until the character set of the table is known.

    charset: that of the column; None is that of the table.
    system: START or END of a column that is a period's of system versioning.
    is_versioned: whether it makes the table versioned.
    nullable: what NULL or NOT NULL say; None without either.
    default: the tokens behind DEFAULT.
    """

    name: str
    type: DdlType
    charset: str | None = None
    is_primary: bool = False
    is_unique: bool = False
    system: str = ""
    is_versioned: bool = False
    nullable: bool | None = None
    default: tuple[Token, ...] = ()

    @property
    def takes_charset(self) -> bool:
        """Whether its character set is that of the table."""
        return self.type.is_character and self.charset is None

    def column(self, default: str | None) -> DdlColumn:
        """The column in a table of that character set, None for an unknown one. Raises `NotUnderstood`."""
        has_charset = self.type.is_character
        charset = (self.charset or default) if has_charset else None
        type_ = self.type.of_charset(charset)
        return DdlColumn(self.name, type_, charset if type_.is_character else None)


@dataclass(frozen=True, slots=True)
class Key:
    """PRIMARY KEY or UNIQUE.

    parts: names, and the length that each has, in characters.
    overlaps: the period that is WITHOUT OVERLAPS, in small letters.
    """

    parts: tuple[tuple[str, int | None], ...]
    is_primary: bool
    overlaps: str = ""
    uses_hash: bool = False

    def check(self, columns: Sequence[DdlColumn], engine: str) -> None:
        """Raises `NotUnderstood` for one that has a hidden column. `engine`: in small letters, if it is known."""
        by_name = {lower(column.name): column for column in columns}
        size = 0
        for name, length in self.parts:
            column = by_name.get(lower(name))
            if column is not None:
                size += column.type.key_bytes(column.charset, length)
        most = _KEY_BYTES_MAX.get(engine, _KEY_BYTES_MAX_ELSE)
        if not self.is_primary and (self.uses_hash or size > most):
            raise NotUnderstood(_HIDDEN)

    def behind(self, names: Mapping[str, str]) -> Key | None:
        """When columns have other names, or have gone: `names` has the new ones by the old in small letters."""
        parts = [
            (names[lower(name)], length) for name, length in self.parts if lower(name) in names
        ]
        return replace(self, parts=tuple(parts)) if parts else None


@dataclass(slots=True)
class Elements:
    """Columns, keys and periods in the brackets of a CREATE TABLE."""

    columns: list[Definition] = field(default_factory=list)
    keys: list[Key] = field(default_factory=list)
    periods: dict[str, tuple[str, str]] = field(default_factory=dict)


def lower(name: str) -> str:
    """The name of a column in small letters: servers compare those in any case."""
    return name.lower()


class ColumnReader(TokenReader):
    """Reads definitions of columns and keys."""

    def __init__(
        self,
        found: Sequence[Token],
        database: str,
        sql_mode: int,
        literal_charset: str | None = None,
    ) -> None:
        super().__init__(found, database)
        self._sql_mode: Final = sql_mode
        self._is_wide: Final = is_wide(literal_charset)

    def elements(self, into: Elements) -> None:
        """Columns, keys and all, behind the bracket that begins them up to the one that ends them."""
        while True:
            self.element(into)
            if not self.sign(","):
                self.expect(")")
                return

    def element(self, into: Elements) -> None:
        """A column or a key or a period or a constraint."""
        if self.is_key():
            key = self.key()
            if key is not None:
                into.keys.append(key)
        elif self.is_period():
            self.at += 2
            name = lower(self.identifier())
            self.expect("(")
            begin = self.identifier()
            self.expect(",")
            into.periods[name] = (begin, self.identifier())
            self.expect(")")
        else:
            into.columns.append(self.definition(self.identifier()))

    def is_key(self) -> bool:
        """Whether a key or a constraint is next. All these words are reserved, besides VECTOR."""
        if self.word() in _OF_KEYS:
            return True
        return self.word() == "VECTOR" and self.text_behind() in INDEX

    def is_period(self) -> bool:
        """Whether PERIOD FOR is next."""
        return self.word() == "PERIOD" and self.text_behind() == "FOR"

    def text_behind(self) -> str:
        """The token behind the next one, in capitals; empty for none."""
        behind = self.tokens[self.at + 1 : self.at + 2]
        return behind[0].text.upper() if behind else ""

    def key(self) -> Key | None:
        """Read a key or constraint; None for one that does not matter."""
        if self.accept("CONSTRAINT"):
            self.accept("IF", "NOT", "EXISTS")
            if self.word() not in _OF_KEYS:
                self.identifier()
        is_primary = self.accept("PRIMARY", "KEY")
        if not is_primary and not self.accept("UNIQUE"):
            if not self.is_key():
                raise NotUnderstood(f"constraint {self.shown()}")
            self.skip_element()
            return None
        uses_hash = False
        while not self.sign("("):  # KEY, IF NOT EXISTS, its name, USING
            if self.is_at_end():
                raise NotUnderstood("a key without columns")
            uses_hash = uses_hash or self.word() == "HASH"
            self.at += 1
        parts: list[tuple[str, int | None]] = []
        overlaps = ""
        while True:
            name = self.identifier()
            if self.accept("WITHOUT", "OVERLAPS"):
                overlaps = lower(name)
            else:
                parts.append((name, self._length()))
            self.accept("ASC")
            self.accept("DESC")
            if not self.sign(","):
                self.expect(")")
                break
        begin = self.at
        self.skip_element()
        uses_hash = uses_hash or any(
            token.text.upper() == "HASH" for token in self.tokens[begin : self.at]
        )
        return Key(tuple(parts), is_primary, overlaps, uses_hash)

    def _length(self) -> int | None:
        """The length of a part of a key, in brackets; None without one."""
        if not self.sign("("):
            return None
        word = self.word()
        if not (word.isascii() and word.isdecimal()):
            raise NotUnderstood(f"no length of a key, but {self.shown()}")
        self.at += 1
        self.expect(")")
        return int(word)

    def definition(self, name: str) -> Definition:
        """The definition of a column, read from behind its name."""
        type_, charset = parse_type(
            self,
            self._sql_mode,
            escapes=not self._sql_mode & NO_BACKSLASH_ESCAPES,
            wide=self._is_wide,
        )
        made = Definition(name, type_, charset)
        is_serial = self.tokens[self.at - 1].text.upper() == "SERIAL"
        made = replace(made, is_unique=is_serial)
        signs: set[str] = set()
        collation: str | None = None
        while not (self.is_at_end() or self.is_sign(",") or self.is_sign(")")):
            if self.word() in ("FIRST", "AFTER", *OF_ALL_PARTITIONS):
                break
            if self.word() in ("UNSIGNED", "ZEROFILL"):
                signs.add(self.word())
                self.at += 1
            elif self.accept("COLLATE"):
                collation = charset_of_collation(self.text()) or collation
            else:
                made = self._attribute(made)
        type_ = with_signs(made.type, unsigned="UNSIGNED" in signs, zerofill="ZEROFILL" in signs)
        return replace(made, type=type_, charset=made.charset or collation)

    def text(self) -> str:
        """A name that may stand in quotes."""
        token = self.token()
        if token is None or token.kind is TokenKind.SIGN:
            raise NotUnderstood(f"no name, but {self.shown()}")
        self.at += 1
        return token.text[1:-1] if token.kind is TokenKind.STRING else token.text

    def accept_charset(self) -> bool:
        """Step over CHARACTER SET or CHARSET, if it stands here; whether it did."""
        return (
            self.accept("CHARACTER", "SET") or self.accept("CHAR", "SET") or self.accept("CHARSET")
        )

    def _attribute(self, made: Definition) -> Definition:
        """The definition with the next attribute. Raises `NotUnderstood`."""
        word = self.word()
        if made.type.is_character:
            if self.accept_charset():
                return replace(made, charset=charset_of_name(self.text()))
            if word in _CHARSETS:
                self.at += 1
                return replace(made, charset=_CHARSETS[word])
            if self.accept("BINARY"):  # the collation
                return made
        if self.accept("COMPRESSED"):
            if self.sign("="):
                self.text()
            return replace(made, type=replace(made.type, suffix=COMPRESSED))
        if self.accept("PRIMARY", "KEY") or self.accept("PRIMARY") or self.accept("KEY"):
            return replace(made, is_primary=True)
        if self.accept("UNIQUE"):
            self.accept("KEY")
            return replace(made, is_unique=True)
        if self.accept("SERIAL", "DEFAULT", "VALUE"):
            return replace(made, is_unique=True)
        if self.accept("WITH", "SYSTEM", "VERSIONING"):
            return replace(made, is_versioned=True)
        if self.accept("GENERATED", "ALWAYS", "AS", "ROW"):
            system = self.word()
            if system not in ("START", "END"):
                raise NotUnderstood(f"ROW {self.shown()}")
            self.at += 1
            return replace(made, system=system)
        if self.accept("NOT", "NULL"):
            return replace(made, nullable=False)
        if self.accept("NULL"):
            return replace(made, nullable=True)
        if self.accept("DEFAULT"):
            begin = self.at
            self._expression()
            return replace(made, default=tuple(self.tokens[begin : self.at]))
        self._other_attribute(word)
        return made

    def _other_attribute(self, word: str) -> None:
        """Step over an attribute that does not matter. Raises `NotUnderstood`."""
        if word in _PLAIN:
            self.at += 1
        elif self.accept("WITHOUT", "SYSTEM", "VERSIONING"):
            pass
        elif self.accept("COMMENT"):
            self.text()
        elif self.accept("GENERATED", "ALWAYS", "AS") or self.accept("AS") or self.accept("CHECK"):
            self._brackets()
        elif self.accept("REF_SYSTEM_ID"):
            self.expect("=")
            self.text()
        elif self.accept("REFERENCES"):
            self.name()
            if self.is_sign("("):
                self.skip_one()
            if self.accept("MATCH"):
                self.at += 1
        elif self.accept("ON", "DELETE") or self.accept("ON", "UPDATE"):
            self._action()
        else:
            shown = self.shown()
            self.identifier()
            if not self.sign("="):  # an option of the engine has it
                raise NotUnderstood(f"{shown} of a column")
            self.text()

    def _brackets(self) -> None:
        if not self.is_sign("("):
            raise NotUnderstood(f"no (, but {self.shown()}")
        self.skip_one()

    def _action(self) -> None:
        """Step over the action behind ON UPDATE or ON DELETE."""
        word = self.word()
        self.at += 1
        if word in _TIMES:
            if self.is_sign("("):
                self.skip_one()
        elif word in ("SET", "NO"):  # NULL, DEFAULT, ACTION
            self.at += 1
        elif word not in ("CASCADE", "RESTRICT"):
            raise NotUnderstood(f"ON UPDATE {word}")

    def _expression(self) -> None:
        """Step over the expression of DEFAULT: a value, a function, or anything in brackets. Raises `NotUnderstood`."""
        while self.sign("-") or self.sign("+"):
            pass
        if self.is_sign("("):
            self.skip_one()
            return
        if self.accept("NEXT", "VALUE", "FOR"):
            self.name()
            return
        token = self.token()
        if token is None or (token.kind is TokenKind.SIGN and token.text != "."):
            raise NotUnderstood(f"DEFAULT {self.shown()}")
        if token.kind is TokenKind.STRING:
            self._texts()
        elif token.text[:1].isdigit() or token.text == ".":
            self._number()
        else:
            self.at += 1
            if self._is_text() and (token.text.upper() in _TEXT_PREFIXES or token.text[0] == "_"):
                self._texts()
            while self.sign("."):
                self.identifier()
            if self.is_sign("("):
                self.skip_one()

    def _number(self) -> None:
        """12, 1.5, .5, 1e5, 1.5e-5"""
        last = ""
        while not self.is_at_end():
            word = self.tokens[self.at].text
            if (
                word[:1].isdigit()
                or (word == "." and last != ".")
                or (word in "+-" and last[:1].isdigit() and last[-1] in "eE")
            ):
                pass
            elif last == "." and word[:1] in ("e", "E") and (word[1:].isdigit() or len(word) == 1):
                word = "0" + word
            else:
                return
            last = word
            self.at += 1

    def _texts(self) -> None:
        while self._is_text():
            self.at += 1

    def _is_text(self) -> bool:
        token = self.token()
        return token is not None and token.kind is TokenKind.STRING
