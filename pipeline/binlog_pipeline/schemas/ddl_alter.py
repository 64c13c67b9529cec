"""The reader of ALTER TABLE: its changes of columns and keys, from its tokens."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final, NamedTuple

from binlog_protocol.sql.token_reader import NotUnderstood
from binlog_protocol.tables.ddl_types import charset_of_collation, charset_of_name

from binlog_pipeline.schemas.ddl_columns import INDEX, OF_ALL_PARTITIONS, Elements
from binlog_pipeline.schemas.ddl_options import OptionsReader
from binlog_pipeline.schemas.ddl_tables import FIRST, Alteration, Change
from binlog_pipeline.schemas.logged_statements import LoggedStatement

COLUMN_COMES, COLUMN_GOES = "+column", "-column"
HIDDEN_COMES, HIDDEN_GOES = "+hidden", "-hidden"
MOVED: Final = frozenset((COLUMN_COMES, COLUMN_GOES, HIDDEN_COMES, HIDDEN_GOES))
_MAY_RENAME: Final = frozenset(("ADD", "CHANGE", "RENAME"))
_OF_PARTITIONS: Final = frozenset((
    "COALESCE", "REORGANIZE", "ANALYZE", "CHECK", "OPTIMIZE", "REBUILD", "REPAIR", "TRUNCATE",
))  # fmt: skip
_MAY_LOSE: Final = frozenset(("REPAIR", "TRUNCATE"))


class NamesAnew(NamedTuple):
    """Names of columns, in small letters, that an ALTER TABLE gives to columns that had not them.

    given: without those of `unless_there`, which it gives only if no column has them (IF NOT EXISTS, IF EXISTS).
    gone: that a column has lost, or may have.
    lost: those of them that it has, whatever there was.
    reused: those that another column had in front of it.
    """

    given: frozenset[str]
    unless_there: frozenset[str]
    gone: frozenset[str]
    lost: frozenset[str]
    reused: frozenset[str]


def names_anew(said: LoggedStatement) -> NamesAnew:
    """The names in ADD, CHANGE, RENAME COLUMN; all words of a statement that is not understood. Never raises."""
    try:
        found = alteration_of(said)
    except NotUnderstood:
        words = frozenset(token.text.casefold() for token in said.tokens())
        some = words if not _MAY_RENAME.isdisjoint(word.upper() for word in words) else frozenset()
        return NamesAnew(some, frozenset(), some, frozenset(), some)
    given: set[str] = set()
    unless_there: set[str] = set()
    gone = {name.casefold() for name in found.dropped}
    lost = {name.casefold() for name, is_checked in found.dropped.items() if not is_checked}
    changed = [(one.old, one.definition.name, one.if_exists) for one in found.changes]
    for old, new, is_checked in [*changed, *found.renamed]:
        if old is None or old.casefold() != new.casefold():
            (unless_there if is_checked else given).add(new.casefold())
            olds = set() if old is None else {old.casefold()}
            gone |= olds
            lost |= set() if is_checked else olds
    reused = (given | unless_there) & gone
    return NamesAnew(*map(frozenset, (given, unless_there, gone, lost, reused)))


def moves(said: LoggedStatement) -> frozenset[str]:
    """The ways in which a statement may renumber columns, for a log that has no names of columns. Never raises.

    A hidden column is that of a key which is a hash. `MOVED`: a column may have got the number of another.
    """
    try:
        reader = _behind_table(said)
        if said.meaning.kind != "alter":  # CREATE INDEX, DROP INDEX
            return frozenset((HIDDEN_COMES, HIDDEN_GOES))
        found = reader.alteration()
    except NotUnderstood:
        return MOVED
    comes = {HIDDEN_COMES} if found.elements.keys or found.changes else set()
    goes = {HIDDEN_GOES} if found.drops_index else set()
    if found.converts or found.options.engine or any(c.old is not None for c in found.changes):
        comes, goes = {HIDDEN_COMES}, {HIDDEN_GOES}  # the same key may be a hash, or be none
    if any(c.old is not None and c.place is not None for c in found.changes):
        return MOVED
    if any(c.old is None for c in found.changes) or found.versioning:
        comes.add(COLUMN_COMES)
    if found.dropped or found.versioning is False:
        goes.update((COLUMN_GOES, HIDDEN_GOES))
    return frozenset(comes | goes)


def may_shift(moved: Collection[str]) -> bool:
    """Whether there may be as many columns behind all that as before, and a column under the number of another.

    A hidden one under the number of a hidden one is none.
    """
    comes, goes = {COLUMN_COMES, HIDDEN_COMES} & {*moved}, {COLUMN_GOES, HIDDEN_GOES} & {*moved}
    return bool(comes and goes and {COLUMN_COMES, COLUMN_GOES} & (comes | goes))


def alteration_of(said: LoggedStatement) -> Alteration:
    """The changes of an ALTER TABLE. Raises `NotUnderstood`."""
    return _behind_table(said).alteration()


def _behind_table(said: LoggedStatement) -> AlterReader:
    """A reader behind the name of the table of an ALTER TABLE. Raises `NotUnderstood`."""
    reader = AlterReader(said.tokens(), said.database, said.sql_mode)
    if reader.accept("SET", "STATEMENT"):
        reader.skip_to("FOR")
    if said.meaning.kind == "alter":
        reader.skip_to("TABLE")
        reader.accept("IF", "EXISTS")
        reader.name()
    return reader


class AlterReader(OptionsReader):
    """Reads the clauses of an ALTER TABLE, which stand behind the name of the table."""

    def alteration(self) -> Alteration:
        """All clauses up to the end of the statement. Raises `NotUnderstood`."""
        made = Alteration()
        if self.accept("WAIT"):
            self.text()
        else:
            self.accept("NOWAIT")
        while not self.is_at_end():
            before = self.at
            if not self._part(made):
                self._options(made)
            if self.is_at_end():
                return made
            if self.at == before or not (self.sign(",") or self.word() in OF_ALL_PARTITIONS):
                raise NotUnderstood(f"{self.shown()} in ALTER TABLE")
        return made

    def _options(self, made: Alteration) -> None:
        charset = made.options.charset
        while not (self.is_at_end() or self.is_sign(",") or self.word() in OF_ALL_PARTITIONS):
            self.option(made.options)
        if made.converts and made.options.charset != charset:
            raise NotUnderstood("CONVERT TO CHARACTER SET beside another character set")

    def _part(self, made: Alteration) -> bool:
        """Read one clause; False for options of the table."""
        word = self.word()
        if self.accept("ADD"):
            self._add(made)
        elif self.accept("DROP"):
            self._drop(made)
        elif self.accept("MODIFY"):
            self._change(made, is_renamed=False)
        elif self.accept("CHANGE"):
            self._change(made, is_renamed=True)
        elif self.accept("RENAME"):
            self._rename(made)
        elif self.accept("ALTER"):
            self._alter()
        elif self.accept("CONVERT", "TO"):
            self._convert(made)
        elif self.accept("PARTITION", "BY") or (
            word in _OF_PARTITIONS and self.text_behind() == "PARTITION"
        ):
            if word in _MAY_LOSE:
                made.of_storage = f"{word} PARTITION"
            self.at = len(self.tokens)
        elif self.accept("ORDER", "BY"):
            self._order()
        elif word in ("ALGORITHM", "LOCK"):
            self.at += 1
            self.sign("=")
            self.text()
        elif word in ("ENABLE", "DISABLE"):
            self.at += 1
            if not self.accept("KEYS"):
                raise NotUnderstood(f"{word} {self.shown()}")
        elif self.accept("DISCARD", "TABLESPACE") or self.accept("IMPORT", "TABLESPACE"):
            made.of_storage = f"{word} TABLESPACE"
        elif not (self.accept("FORCE") or self.accept("REMOVE", "PARTITIONING")):
            return self.is_at_end() and word == ""
        return True

    def _add(self, made: Alteration) -> None:
        if self.accept("PARTITION"):
            self.at = len(self.tokens)
        elif self.accept("SYSTEM", "VERSIONING"):
            made.versioning = True
        elif self.is_key() or self.is_period():
            self.element(made.elements)
        else:
            self.accept("COLUMN")
            if_exists = self.accept("IF", "NOT", "EXISTS")
            if self.sign("("):
                found = Elements()
                self.elements(found)
                made.changes += [Change(None, one, None, if_exists) for one in found.columns]
                made.elements.keys += found.keys
                made.elements.periods.update(found.periods)
                return
            definition = self.definition(self.identifier())
            made.changes.append(Change(None, definition, self._place(), if_exists))

    def _drop(self, made: Alteration) -> None:
        if self.accept("PARTITION"):
            made.of_storage = "DROP PARTITION"
            self.at = len(self.tokens)
        elif self.accept("SYSTEM", "VERSIONING"):
            made.versioning = False
        elif self.accept("PRIMARY", "KEY"):
            made.drops_key = True
        elif self.accept("FOREIGN", "KEY") or self.accept("CONSTRAINT") or self.accept("CHECK"):
            self.accept("IF", "EXISTS")
            self._named_index(made)
        elif self.word() in INDEX:
            self.at += 1
            self.accept("IF", "EXISTS")
            self._named_index(made)
        elif self.accept("PERIOD", "FOR"):
            self.accept("IF", "EXISTS")
            if self.identifier().upper() == "SYSTEM_TIME":
                raise NotUnderstood("DROP PERIOD FOR SYSTEM_TIME")
        else:
            self.accept("COLUMN")
            if_exists = self.accept("IF", "EXISTS")
            made.dropped[self.identifier()] = if_exists
            self.accept("RESTRICT")
            self.accept("CASCADE")

    def _named_index(self, made: Alteration) -> None:
        made.drops_index = True
        if self.identifier().upper() == "PRIMARY":
            made.drops_key = True

    def _change(self, made: Alteration, *, is_renamed: bool) -> None:
        self.accept("COLUMN")
        if_exists = self.accept("IF", "EXISTS")
        old = self.identifier()
        definition = self.definition(self.identifier() if is_renamed else old)
        made.changes.append(Change(old, definition, self._place(), if_exists))

    def _place(self) -> str | None:
        if self.accept("FIRST"):
            return FIRST
        return self.identifier() if self.accept("AFTER") else None

    def _rename(self, made: Alteration) -> None:
        if self.accept("COLUMN"):
            if_exists = self.accept("IF", "EXISTS")
            old = self.identifier()
            self._expect_word("TO")
            made.renamed.append((old, self.identifier(), if_exists))
        elif self.word() in INDEX:
            self.at += 1
            self.accept("IF", "EXISTS")
            self.identifier()
            self._expect_word("TO")
            self.identifier()
        else:
            if not (self.accept("TO") or self.accept("AS")):
                self.sign("=")
            made.new_name = self.name()

    def _alter(self) -> None:
        """A default, or whether an index or a constraint is used: columns stay what they are."""
        if self.word() in (*INDEX, "CONSTRAINT", "CHECK"):
            self.at += 1
        else:
            self.accept("COLUMN")
        self.accept("IF", "EXISTS")
        self.identifier()
        self.skip_element()

    def _convert(self, made: Alteration) -> None:
        if not self.accept_charset():
            raise NotUnderstood(f"CONVERT TO {self.shown()}")
        options = made.options
        if options.says_charset:
            raise NotUnderstood("CONVERT TO CHARACTER SET beside another character set")
        made.converts = True
        if self.accept("DEFAULT"):
            options.is_reset = True
        else:
            options.charset = charset_of_name(self.text())
        if self.accept("COLLATE"):
            options.collation_charset = charset_of_collation(self.text())

    def _order(self) -> None:
        """Columns, with commas between; what is not one of them is the next part."""
        while True:
            self.identifier()
            while self.sign("."):
                self.identifier()
            self.accept("ASC")
            self.accept("DESC")
            behind = self.tokens[self.at + 2 : self.at + 3]
            if not self.is_sign(",") or (
                behind and behind[0].text.upper() not in (",", ".", "ASC", "DESC")
            ):
                return
            self.at += 1

    def _expect_word(self, word: str) -> None:
        if not self.accept(word):
            raise NotUnderstood(f"no {word}, but {self.shown()}")
