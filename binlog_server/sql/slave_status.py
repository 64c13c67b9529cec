"""SHOW SLAVE STATUS and SHOW ALL SLAVES STATUS: MariaDB's columns; `relay.slave_rows` has their values."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

from binlog_protocol.dataclass import dataclass
from binlog_protocol.wire.results import Value

from binlog_server.queries.catalog import INFORMATION_SCHEMA, tables
from binlog_server.relay.manager import no_connection
from binlog_server.relay.slave_rows import slave_row
from binlog_server.sql.statement import LOOK_AT_UPSTREAMS, Family, Statement
from binlog_server.sql.tokens import unquote
from binlog_server.sql.view import ResultSet

if TYPE_CHECKING:
    from binlog_server.sql.sql_session import SqlSession

# Columns of information_schema.SLAVE_STATUS that only SHOW ALL SLAVES STATUS shows.
_OF_ALL: Final = frozenset(
    {
        *("Connection_name", "Slave_SQL_State", "Retried_transactions", "Max_relay_log_size"),
        *("Executed_log_entries", "Slave_received_heartbeats", "Slave_heartbeat_period"),
        *("Gtid_Slave_Pos", "Master_last_event_time", "Slave_last_event_time"),
        "Master_Slave_time_diff",
    }
)


@dataclass(frozen=True, slots=True)
class ShowSlaveStatus(Statement):
    """SHOW SLAVE STATUS, of the connection with that name; "" is the session's default, which may be without a name.

    Its answer raises `NoMasterConnection` (1617), or 1210 for a name that is too long.
    """

    syntax = """
        "SHOW"i ("SLAVE"i | "REPLICA"i) [STRING] "STATUS"i
        | "SHOW"i ("SLAVE"i | "REPLICA"i) "STATUS"i "FOR"i "CHANNEL"i STRING"""
    needs = LOOK_AT_UPSTREAMS
    com = "show_slave_status"
    only_looks = True
    uses_tables = True

    connection: str = ""

    @classmethod
    def built(cls, children: list[Any]) -> ShowSlaveStatus:
        return cls("" if children[0] is None else unquote(children[0]))

    @property
    def shows_state(self) -> bool:
        return True

    def answer(self, session: SqlSession) -> ResultSet:
        wanted = self.connection or session.master_connection
        found = [row for name, row in upstream_rows(session) if name.lower() == wanted.lower()]
        if not found and wanted:
            raise no_connection(wanted)
        return _result(found[:1], without=_OF_ALL)


@dataclass(frozen=True, slots=True)
class ShowAllSlavesStatus(Statement):
    """SHOW ALL SLAVES STATUS: one row a connection."""

    syntax = '"SHOW"i "ALL"i ("SLAVES"i | "REPLICAS"i) "STATUS"i'
    needs = LOOK_AT_UPSTREAMS
    com = "show_slave_status"
    only_looks = True
    uses_tables = True

    @property
    def shows_state(self) -> bool:
        return True

    def answer(self, session: SqlSession) -> ResultSet:
        return _result(row for _, row in upstream_rows(session))


FAMILY = Family((ShowSlaveStatus, ShowAllSlavesStatus))


def upstream_rows(session: SqlSession) -> Iterator[tuple[str, Mapping[str, Value]]]:
    """Names of all configured upstreams, and the values that both statements show. Changes nothing; on the loop."""
    server, position = session.server, session.state_texts.position
    for c in server.relay.connections:
        if c.info.host:
            yield c.name, slave_row(c, position, server.config.slave_net_timeout)


def _result(
    rows: Iterable[Mapping[str, Value]], *, without: frozenset[str] = frozenset()
) -> ResultSet:
    table = tables(INFORMATION_SCHEMA)["slave_status"]
    columns = [
        column.wire(INFORMATION_SCHEMA, table.name)
        for column in table.definitions
        if column.name not in without
    ]
    return ResultSet(columns, [tuple(row[column.name] for column in columns) for row in rows])
