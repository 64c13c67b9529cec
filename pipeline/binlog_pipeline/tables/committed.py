"""Tables that a table format of others keeps: what all of them share, whatever the library is.

A batch is one commit of the table. Its metadata has the GTID position (`binlog.position`), which says what is new, so a
batch that comes twice counts once; and what is known of the table (`binlog.complete`, `binlog.facts`: see `facts.py`).
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar, Final, NamedTuple

import pyarrow as pa
from binlog_protocol.gtid import SlavePosition

from binlog_pipeline.errors import BadOption, TargetChanged
from binlog_pipeline.tables.effects import Effects, effects
from binlog_pipeline.tables.facts import Facts, TableOfFacts, kept_by_others, refusal
from binlog_pipeline.tables.fold import fold, last_effects
from binlog_pipeline.tables.folded_parts import FoldedParts
from binlog_pipeline.tables.merging import Uncommitted
from binlog_pipeline.tables.rewriting import Rewriting, new_keys
from binlog_pipeline.tables.watermark import behind

POSITION: Final = "binlog.position"
_TABLE: Final = "binlog.table"
_COMPLETE: Final = "binlog.complete"
_FACTS: Final = "binlog.facts"
_LOGGED_AS: Final = "binlog.logged_as"


class _Group(NamedTuple):
    """One whose last part is still to come: the files of the table, and what its parts have done."""

    change: Uncommitted[Any, Any]
    parts: FoldedParts


class CommittedTable(TableOfFacts, ABC):
    """A target, a `KeptTable`. One writer: a commit behind which another has committed is refused, and changes nothing.

    Args:
        where: for messages.
        table: what the target is called in itself.
        keys: none for those that the target has.
        begin: the GTID position behind which changes come.
    """

    takes_parts: Final = True
    format: ClassVar[str]
    """The name of the table format, for messages."""

    def __init__(self, where: str, table: str, keys: Sequence[str], begin: SlavePosition) -> None:
        self.where: Final = where
        self._shown_name: Final = table
        self.keys = list(keys)
        self.logged_as = table
        self.position = begin
        self._facts = Facts()
        self._has_columns = True
        self._group: _Group | None = None
        self._held: list[pa.Table] = []  # the parts of a group that may not be merged in parts

    @property
    @abstractmethod
    def is_new(self) -> bool:
        """Whether there is no table yet."""

    @property
    @abstractmethod
    def has_rows(self) -> bool:
        """Whether rows are kept."""

    @abstractmethod
    def rows(self) -> pa.Table:
        """All rows."""

    @abstractmethod
    def _columns(self) -> pa.Schema:
        """The columns of the table, which is there."""

    @abstractmethod
    def _take_schema(self, schema: pa.Schema) -> None:
        """Check that the table, which is there, can have these columns, and make it so if need be.

        Raises `SourceError`, before anything is written, for values that are kept and are not the same in a new type.
        """

    @abstractmethod
    def _overwrite(self, rows: pa.Table, position: SlavePosition) -> None:
        """One commit: these rows and columns instead of all there are. The table need not be there."""

    @abstractmethod
    def _merge(self, found: Effects, position: SlavePosition) -> None:
        """One commit: one effect a key, on a table that is there and has taken the columns."""

    @abstractmethod
    def _open(self, schema: pa.Schema) -> Uncommitted[Any, Any] | None:
        """The files of the table, which is there and has the columns; None if they cannot be changed in parts."""

    @abstractmethod
    def _merge_part(self, change: Uncommitted[Any, Any], found: Effects) -> bool:
        """Merge these effects, one a key, into files that no commit names; False if that cannot be."""

    @abstractmethod
    def _commit_part(self, change: Uncommitted[Any, Any], position: SlavePosition) -> None:
        """One commit of all that was merged into these files."""

    @abstractmethod
    def _say(self, position: SlavePosition) -> None:
        """One commit in which no row changes, on a table that is there."""

    @staticmethod
    @abstractmethod
    def _require_type(type_: pa.DataType) -> None:
        """Raises TypeError for a type that the format does not have, other than TIME."""

    @classmethod
    def require_types(cls, table: str, schema: pa.Schema) -> None:
        """Raises `BadOption` for a column that the format has no type for. table: for messages."""
        for column in schema:
            if pa.types.is_duration(column.type):
                raise BadOption(
                    f"column {column.name} of {table} is a TIME, which {cls.format} has no type for: say "
                    "time=micros or time=string"
                )
            try:
                cls._require_type(column.type)
            except TypeError:
                raise BadOption(
                    f"column {column.name} of {table} is {column.type}, which {cls.format} has no type for"
                ) from None

    @property
    def columns(self) -> pa.Schema:
        """The columns that are kept; none as long as no row was there."""
        return pa.schema([]) if self.is_new or not self._has_columns else self._columns()

    def name(self, logged_as: str) -> None:
        """What follows comes under that name."""
        self.logged_as = logged_as

    def begin_anew(self, keys: Sequence[str]) -> None:
        """What follows begins with the statement that makes the table."""
        self.keys = list(keys)
        self._has_columns = False

    def find_by(self, keys: Sequence[str]) -> None:
        """Rows are told apart by these columns from here on."""
        self.keys = list(keys)

    def rewrite(self, made: Rewriting, position: SlavePosition, facts: Facts) -> None:
        """Take the rows behind an ALTER TABLE, which stands in front of the position, in one commit.

        All are in memory. Raises `NotUnderstood`, and then all is as it was.
        """
        keys = new_keys(made, self.keys, has_rows=self.has_rows)
        self.take_over(made.rows(self.rows()), keys, position, facts)

    def doubt_all(self, text: str, facts: Facts, *, goes_on: bool) -> None:
        """What the rows are is not known behind a statement; `goes_on` takes them as they are.

        Raises `NonRowChange`.
        """
        if not goes_on:
            raise refusal(self._shown_name, text, self.position, self._facts)
        self._facts = replace(facts, doubt=facts.doubt or text)

    def forget_columns(self, facts: Facts) -> None:
        """No row is there, and what its columns would be is not known."""
        self._facts = facts
        self._has_columns = False

    def load(self, rows: pa.Table, position: SlavePosition) -> None:
        """A copy of the table as it was at that position, for a new target."""
        self.take_over(rows, self.keys, position, replace(self._facts, is_whole=True))

    def take_over(
        self, rows: pa.Table, keys: Sequence[str], position: SlavePosition, facts: Facts
    ) -> None:
        """Publish these rows in the place of all that is there, in one commit."""
        self.require_types(self._shown_name, rows.schema)
        self.keys, self._facts, self._has_columns = list(keys), facts, True
        self._overwrite(rows, position)
        self.position = position

    def add(self, changes: pa.Table, position: SlavePosition | None) -> None:
        """Changes of the table up to the position, in one commit. Raises `PipelineError`, the library's errors.

        The parts of a group are folded as they come, and merged behind the last one, into files that the commit then
        names. Where that cannot be, they are held until then.
        """
        changes = behind(changes, self.position)
        if position is None:
            if len(changes) and (self._held or not self._takes_part(changes)):
                self._held.append(changes)
            return
        if self._held:
            changes = pa.concat_tables([*self._held, changes])
            self._held = []
        if self._group is not None:
            if len(changes):
                self._takes_part(changes)
            self._merge_parts(self._group, position)
            self._group = None
        elif len(changes):
            self._add_whole(changes, position)
        else:
            return
        self.position = position

    def _add_whole(self, changes: pa.Table, position: SlavePosition) -> None:
        there = self.columns.names
        found = self._found(changes, there)
        is_anew = self.is_new or found.empties or self._lacks_keys()
        if not is_anew:
            self._take_schema(found.rows.schema)
        self._facts = found.facts  # only now: the commit above stands at the position of before
        self._has_columns = bool(there or len(found))
        self._apply(replace(found, empties=is_anew), position)

    def _takes_part(self, changes: pa.Table) -> bool:
        """Fold a part of a group, if it can be; there is no commit but one for what the table had to be before."""
        found = self._found(changes, self.columns.names)
        if self._group is None:
            if not self.is_new and not self._lacks_keys():
                self._take_schema(found.rows.schema)
            elif self.has_rows:  # of another table, until the commit of this group
                return False
            else:
                self._overwrite(found.rows.slice(0, 0), self.position)
            change = self._open(found.rows.schema)
            if change is None:
                return False
            self._group = _Group(change, FoldedParts(self.keys))
        self._group.parts.add(found)
        self._facts, self._has_columns = found.facts, True
        return True

    def _merge_parts(self, group: _Group, position: SlavePosition) -> None:
        """One commit: what the parts have done. Raises as `add`."""
        for number, found in enumerate(group.parts.pieces()):
            if self._merge_part(group.change, found):
                continue
            if number:
                raise TargetChanged(f"{self.where} was changed by somebody else meanwhile")
            self._apply(group.parts.whole(), position)
            return
        self._commit_part(group.change, position)

    def _lacks_keys(self) -> bool:
        """Whether the columns that tell rows apart are still to come: the table was made anew, and has no row yet."""
        if not self._has_columns:
            return True
        return not {*self.keys} <= {*self.columns.names} and not self.has_rows

    def _apply(self, found: Effects, position: SlavePosition) -> None:
        """One commit: effects, of any number a key, on a table that has taken the columns."""
        if found.empties:
            self._overwrite(fold(found.rows.slice(0, 0), found, self.keys), position)
        else:
            self._merge(last_effects(found, self.keys), position)

    def _found(self, changes: pa.Table, there: Sequence[str]) -> Effects:
        found = effects(changes, self.keys, self._facts, there)
        if found.unknown:
            raise refusal(self._shown_name, found.unknown, self.position, self._facts)
        self.require_types(self._shown_name, found.rows.schema)
        return found

    def flush(self, position: SlavePosition) -> None:
        """Say that nothing more has changed up to the position: the log in front of it may be purged.

        Not where the statement that makes the table is still to come: what is kept then is of another one.
        """
        if position == self.position or self.is_new or not self._has_columns:
            return
        self._say(position)
        self.position = position

    def _metadata(self, position: SlavePosition) -> dict[str, str]:
        """What a commit says of the table behind it."""
        return {
            POSITION: str(position),
            _TABLE: json.dumps([self._shown_name, self.keys]),
            _LOGGED_AS: self.logged_as,
            _COMPLETE: str(self.is_complete).lower(),
            _FACTS: json.dumps(self._facts.content()),
        }

    def _take_metadata(self, commit: Mapping[str, str]) -> None:
        """Go on where a commit of ours stands. Raises `BadOption` if it is of another table."""
        name, keys = json.loads(commit.get(_TABLE, "[null, []]"))
        if name != self._shown_name or (self.keys and self.keys != keys):
            raise kept_by_others(self.where, name, keys, self._shown_name, self.keys)
        self.keys = keys
        self.logged_as = commit.get(_LOGGED_AS, name)
        facts = Facts.of(json.loads(commit[_FACTS])) if _FACTS in commit else Facts()
        self._facts = replace(facts, is_whole=commit.get(_COMPLETE) == "true" or facts.is_whole)
        self.position = SlavePosition.parse(commit[POSITION])
