"""Schema evolution: rows whose table has another layout than the one that a view was opened with."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

import pyarrow as pa
from binlog_protocol.dataclass import dataclass
from binlog_protocol.events.table_map import TableMap
from binlog_protocol.gtid import Gtid
from binlog_protocol.row_columns import ColumnOptions, column_names
from binlog_protocol.sql.statements import TableName
from binlog_storage.ibb.chunk import Position

from binlog_pipeline.errors import IncompatibleSchema, NonRowChange, SchemaChanged
from binlog_pipeline.schemas.columns import (
    described,
    is_named,
    key_names,
    schema_id,
    table_fields,
    table_name,
)
from binlog_pipeline.schemas.conversion import Conversion, Inconvertible
from binlog_pipeline.schemas.search import FoundTable
from binlog_pipeline.table_names import table_text

_NO_NAMES: Final = (
    "the log has no names of columns (binlog_row_metadata is not FULL), so it does not say which column became "
    "which; give the layouts in schemaSeed, or schemaEvolution=ignore to take columns by their numbers"
)

PARTS: Final = "Read the two parts by themselves with endGtid and startGtid"


@dataclass(frozen=True, slots=True)
class TableForm:
    """How the rows of one layout are made into rows of the view."""

    schema_id: int
    columns: Conversion
    key: Conversion


@dataclass(frozen=True, slots=True)
class Evolution:
    """One of three ways: `restart`, `fail`, `ignore`.

    found: the layout that the view was opened with.
    fields, key: the columns that the view gives of it.
    is_picked: whether those are some of its columns, so that others do not matter.
    with_statements: whether DDL is given among the rows, so that a reader sees that a column was renamed.
    """

    mode: str
    found: FoundTable
    options: ColumnOptions
    fields: tuple[pa.Field, ...]
    key: tuple[pa.Field, ...]
    is_picked: bool
    with_statements: bool = False
    keeps_columns: bool = False
    """Whether no DDL in what is read is about the table, so that none of its columns may come or go."""

    def form(self, table: TableMap, place: Position, gtid: Gtid) -> TableForm:
        """How rows with this layout become rows of the view. Raises `SchemaChanged`, `IncompatibleSchema`,
        `NonRowChange`.

        Args:
            place, gtid: of the first of their groups that is behind what was loaded; of the first at all, if none is.
        """
        form_id = schema_id(table)
        is_other = form_id != schema_id(self.found.table)
        if is_other and self.keeps_columns and is_named(table):
            require_logged(
                table_name(table),
                column_names(table),
                column_names(self.found.table),
                f"rows of {gtid}",
            )
        if is_other and self.mode == "fail":
            raise SchemaChanged(
                self._text(table, gtid)
                + "; schemaEvolution=restart or ignore reads on, startGtid and endGtid read one layout"
            )
        if is_other and self.mode == "restart" and not self._looks_the_same(table):
            if place > self.found.place:
                raise SchemaChanged(
                    self._text(table, gtid)
                    + "; load it again and restart the query: it goes on at the same offset with the new columns"
                )
            if not (is_named(table) and is_named(self.found.table)):
                raise IncompatibleSchema(f"{self._text(table, gtid)}; {_NO_NAMES}")
        if is_other and is_named(table) != is_named(self.found.table):
            raise IncompatibleSchema(f"{self._text(table, gtid)}; {_NO_NAMES}")
        try:
            columns = Conversion.make(table, self.options, self.fields)
            key = Conversion.make(table, self.options, self.key)
        except Inconvertible as error:
            raise IncompatibleSchema(
                f"{self._text(table, gtid)}; {error}: values may be lost. {PARTS}, or leave the column out with "
                "the option columns"
            ) from None
        if is_other and not self.believes_names:
            self._refuse_renamed(table, gtid)
        return TableForm(form_id, columns, key)

    @property
    def believes_names(self) -> bool:
        """Whether a column is the one that had its name before: that is asked for, or DDL is given that says more."""
        return self.mode == "ignore" or self.with_statements

    def _refuse_renamed(self, table: TableMap, gtid: Gtid) -> None:
        """Raises `IncompatibleSchema` if values may have to be given under another name: nothing in them says it."""
        own, known = column_names(table), column_names(self.found.table)
        missing = [field.name for field in self.fields if field.name not in own]
        left_out = [name for name in own if name not in known]
        if missing and left_out:
            raise IncompatibleSchema(
                f"{self._text(table, gtid)}; what is now {missing[0]} may have been {left_out[0]} then (RENAME COLUMN, "
                f"CHANGE), and would be null. {PARTS}, leave {missing[0]} out with the option columns, or say "
                "schemaEvolution=ignore if no column was renamed"
            )

    def used(self, table: TableMap) -> set[int]:
        """Numbers of the columns that are given, or in the key."""
        wanted = {field.name for field in (*self.fields, *self.key)}
        return {i for i, name in enumerate(column_names(table)) if name in wanted}

    def is_settled(self, table: TableMap) -> bool:
        """Whether the layout's rows may stand anywhere: what `form` says of it does not depend on the place."""
        return self.mode != "restart" or self._looks_the_same(table)

    def _looks_the_same(self, table: TableMap) -> bool:
        """Whether a view opened with it would have the same columns, in whatever order."""
        own = {field.name: field.type for field in table_fields(table, self.options)}
        if any(own.get(field.name) != field.type for field in self.fields):
            return False
        keys = [field.name for field in self.key]
        return keys == key_names(table) and (self.is_picked or len(own) == len(self.fields))

    def _text(self, table: TableMap, gtid: Gtid) -> str:
        found = self.found
        return (
            f"{table_name(table)} has other columns at {gtid} ({described(table, self.options)}) than at {found.gtid}, "
            f"with which it was loaded ({described(found.table, self.options)})"
        )


def require_logged(
    table: TableName, now: Collection[str], then: Collection[str], where: str
) -> None:
    """Raises `NonRowChange` if columns came or went where the log has no statement that says how.

    What rows have in a column that came is not known then, nor whether one was renamed.

    Args:
        now, then: the names of the columns of the rows in question, and of those before.
        where: what has the columns of now, for the error.
    """
    own, known = ({name.casefold() for name in names} for names in (now, then))
    came = [f"+{name}" for name in now if name.casefold() not in known]
    went = [f"-{name}" for name in then if name.casefold() not in own]
    if came or went:
        raise NonRowChange(
            f"the rows of {table_text(table)} are not known: {where} have other columns ({', '.join(came + went)}), "
            "and the log has no statement that says how (sql_log_bin=0, a filter of the binlog); load it anew "
            "(load --again), or go on by names with nonRow=skip"
        )
