"""What a group is about, for those who look for one: size, tables and what is done to each, the first statement.

Rows are told by their table maps. A statement is read for names only: where they cannot be told, it may be of any table
(`ALL`), so that nobody who looks for one passes over it. Memory holds names, no events.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import field
from typing import Final

from binlog_protocol.compiled_later import compiled_later
from binlog_protocol.dataclass import dataclass
from binlog_protocol.errors import ProtocolError
from binlog_protocol.events.compressed import COMPRESSED_TYPES, plain_begin
from binlog_protocol.events.event_type import EventType
from binlog_protocol.events.header import HEADER_SIZE, TYPE_OFFSET
from binlog_protocol.events.load_data import ExecuteLoadQuery
from binlog_protocol.events.query import QueryEvent
from binlog_protocol.events.rows.rows_event import RowsHead
from binlog_protocol.events.table_map import TableMapHead
from binlog_protocol.sql.statements import (
    ALL,
    StatementMeaning,
    TableName,
    parse_statement,
    written_tables,
)

OPERATIONS: Final = (
    "insert", "update", "delete", "create", "alter", "drop", "truncate", "rename", "other",
)  # fmt: skip
"""What may be done to a table."""
STATEMENT_CHARS: Final = 200
FACTS_MAX: Final = 4096  # tables and operations of one group; with more it may be of any

_ANY: Final = TableName(ALL, ALL)
_ROWS: Final = frozenset(
    {EventType.WRITE_ROWS_V1, EventType.UPDATE_ROWS_V1, EventType.DELETE_ROWS_V1}
    | (COMPRESSED_TYPES - {EventType.QUERY_COMPRESSED})
)
_PLAIN: Final = compiled_later(r"(?:INSERT|UPDATE|DELETE|REPLACE)\s", re.IGNORECASE)
_SECRET: Final = compiled_later(r"\b(?:identified|password)\b.*", re.IGNORECASE | re.DOTALL)

TableFact = tuple[TableName, str]
"""A table, or `ALL` of a database or of all, and an operation."""


@dataclass(slots=True)
class GroupFacts:
    """Takes the events of a group, one after the other.

    size: bytes of all of them.
    statement: the beginning of the first one, or of that which is quoted beside rows, without passwords.
    tables: the facts of tables; `is_cut`: there are too many, it may be of any.
    """

    size: int = 0
    statement: str = ""
    tables: set[TableFact] = field(default_factory=set)
    is_cut: bool = False
    _maps: dict[int, TableName] = field(default_factory=dict)

    def add(self, event: bytes) -> None:
        """The next event, in normal form. Raises `ProtocolError` if it cannot be read."""
        self.size += len(event)
        type_ = event[TYPE_OFFSET]
        if type_ == EventType.TABLE_MAP:
            head = TableMapHead.parse(event)
            if len(self._maps) < FACTS_MAX:
                self._maps[head.table_id] = TableName(head.database, head.table)
        elif type_ in _ROWS:
            rows = RowsHead.take(event)
            self._note(self._maps.get(rows.table_id, _ANY), rows.kind.value)
        elif type_ in (EventType.QUERY, EventType.QUERY_COMPRESSED):
            self._add_statement(QueryEvent.parse(plain_begin(event)))
        elif type_ == EventType.EXECUTE_LOAD_QUERY:
            self._add_statement(ExecuteLoadQuery.parse(event).query)
        elif type_ == EventType.ANNOTATE_ROWS:
            self._say(event[HEADER_SIZE:])

    def _add_statement(self, event: QueryEvent) -> None:
        if event.ends_group:
            return
        self._say(event.text)
        sql, database = _text(event.text), _text(event.database)
        is_plain = _PLAIN.match(sql) is not None
        meaning = StatementMeaning("dml") if is_plain else parse_statement(sql, database)
        if meaning.kind == "dml":
            operation, names = written_tables(sql, database)
            for name in (_ANY,) if names is None else names:
                self._note(name, operation)
            return
        operation = meaning.kind if meaning.kind in OPERATIONS else "other"
        names = (*meaning.affected, *meaning.views)
        for name in names:
            self._note(name, operation)
        if operation == "create":
            for name in meaning.emptied:  # OR REPLACE: what was there is gone
                self._note(name, "drop")
        if not meaning.is_certain:
            self._note(_ANY, operation)
        elif not names and operation != "other":  # of an account, a routine, ...
            self._note(TableName("", ""), operation)

    def _note(self, name: TableName, operation: str) -> None:
        if len(self.tables) < FACTS_MAX:
            self.tables.add((name, operation))
        else:
            self.is_cut = self.is_cut or (name, operation) not in self.tables

    def _say(self, text: bytes) -> None:
        if not self.statement:
            begin = _SECRET.sub("...", _text(text[: 4 * STATEMENT_CHARS]))
            self.statement = " ".join(begin.split())[:STATEMENT_CHARS]


def is_about(
    tables: Iterable[TableFact], wanted: TableName | None = None, operation: str | None = None
) -> bool:
    """Whether one of these facts is of that table, and of that operation.

    Without a database it is of any; case does not count, as `lower_case_table_names` is an option of each server.
    """
    return any(
        (operation is None or done == operation)
        and (
            wanted is None
            or (_is(name.database, wanted.database) and _is(name.table, wanted.table))
        )
        for name, done in tables
    )


def _is(name: str, wanted: str) -> bool:
    return not wanted or name == ALL or name.casefold() == wanted.casefold()


def _text(data: bytes) -> str:
    return data.decode("utf-8", "replace")


def read_facts(events: Iterable[bytes]) -> GroupFacts:
    """The facts of a group. With events that cannot be read it may be of any table."""
    facts = GroupFacts()
    for event in events:
        try:
            facts.add(event)
        except ProtocolError:
            facts.is_cut = True
    return facts
