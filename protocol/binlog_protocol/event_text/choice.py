"""Which statements and which rows of a group are wanted."""

from __future__ import annotations

from collections.abc import Container

from binlog_protocol.dataclass import dataclass
from binlog_protocol.event_text.table_maps import UnreadableMap
from binlog_protocol.events.compressed import COMPRESSED_TYPES
from binlog_protocol.events.event_type import EventType
from binlog_protocol.events.header import HEADER_SIZE, TYPE_OFFSET
from binlog_protocol.events.query import QueryHead
from binlog_protocol.events.rows import RowsHead
from binlog_protocol.events.table_map import TableMap
from binlog_protocol.sql.token_reader import ALL, TableName
from binlog_protocol.values import Cursor


@dataclass(frozen=True, slots=True)
class Choice:
    """Chosen databases and tables, by name; empty sets choose everything.

    databases: rows of tables in these, and statements that ran with one of them as default database.
    tables: rows of these tables, `table` or `database.table`; statements are then left out, since nothing but the
    server can tell which tables they touch.
    """

    databases: frozenset[str] = frozenset()
    tables: frozenset[str] = frozenset()

    @property
    def is_all(self) -> bool:
        return not self.databases and not self.tables

    def has_statement(self, database: bytes) -> bool:
        """`database`: the default database of the statement."""
        if self.tables:
            return False
        return not self.databases or database.decode("utf-8", "surrogateescape") in self.databases

    def has_table(self, table: TableMap | UnreadableMap | TableName) -> bool:
        """`ALL` tables of a database are chosen if one of them may be."""
        if self.databases and table.database not in self.databases:
            return False
        if table.table == ALL:
            return not self.tables or any(
                "." not in name or name.startswith(f"{table.database}.") for name in self.tables
            )
        return not self.tables or bool(
            self.tables & {table.table, f"{table.database}.{table.table}"}
        )

    def leaves_out(self, event: bytes, chosen_tables: Container[int]) -> bool:
        """Whether a compressed event is of nothing that is wanted: it may stand for a thousand times as much, and need
        not be uncompressed. `chosen_tables`: table ids of its group. Raises `ProtocolError`.
        """
        if event[TYPE_OFFSET] == EventType.QUERY_COMPRESSED:
            head = QueryHead.take(Cursor(event, "QUERY event", HEADER_SIZE))
            return not self.has_statement(head.database)
        if event[TYPE_OFFSET] in COMPRESSED_TYPES:
            return RowsHead.take(event).table_id not in chosen_tables
        return False
