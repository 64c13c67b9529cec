"""SHOW SLAVE STATUS and SHOW ALL SLAVES STATUS: MariaDB's columns; `relay.slave_rows` has their values."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from binlog_protocol.errors.sql_errors import NoMasterConnection
from binlog_protocol.wire.results import (
    TYPE_DATETIME,
    TYPE_FLOAT,
    TYPE_LONG,
    TYPE_LONGLONG,
    TYPE_SHORT,
    Column,
    Value,
)

from binlog_server.relay.slave_rows import slave_row
from binlog_server.sql.statement import Family, Statement
from binlog_server.sql.tokens import unquote
from binlog_server.sql.view import ResultSet

if TYPE_CHECKING:
    from binlog_server.sql.sql_session import SqlSession

_LOOK_AT_UPSTREAM: Final = ("SUPER", "SLAVE MONITOR")

# Columns as MariaDB 11.8 declares them: a text's length in characters, or another type (below 0). `_NULLABLE` names
# those that may be NULL.
_PORT, _ERRNO, _INT, _BIGINT, _FLOAT, _DATETIME = -1, -2, -3, -4, -5, -6
_LONG_TEXT = 21844

_ONE = {
    "Slave_IO_State": 64,
    "Master_Host": 255,
    "Master_User": 384,
    "Master_Port": _PORT,
    "Connect_Retry": _INT,
    "Master_Log_File": 512,
    "Read_Master_Log_Pos": _BIGINT,
    "Relay_Log_File": 512,
    "Relay_Log_Pos": _BIGINT,
    "Relay_Master_Log_File": 512,
    "Slave_IO_Running": 10,
    "Slave_SQL_Running": 3,
    "Replicate_Do_DB": _LONG_TEXT,
    "Replicate_Ignore_DB": _LONG_TEXT,
    "Replicate_Do_Table": _LONG_TEXT,
    "Replicate_Ignore_Table": _LONG_TEXT,
    "Replicate_Wild_Do_Table": _LONG_TEXT,
    "Replicate_Wild_Ignore_Table": _LONG_TEXT,
    "Last_Errno": _ERRNO,
    "Last_Error": 1024,
    "Skip_Counter": _INT,
    "Exec_Master_Log_Pos": _BIGINT,
    "Relay_Log_Space": _BIGINT,
    "Until_Condition": 6,
    "Until_Log_File": 512,
    "Until_Log_Pos": _BIGINT,
    "Master_SSL_Allowed": 7,
    "Master_SSL_CA_File": 512,
    "Master_SSL_CA_Path": 512,
    "Master_SSL_Cert": 512,
    "Master_SSL_Cipher": 512,
    "Master_SSL_Key": 512,
    "Seconds_Behind_Master": _BIGINT,
    "Master_SSL_Verify_Server_Cert": 3,
    "Last_IO_Errno": _ERRNO,
    "Last_IO_Error": 1024,
    "Last_SQL_Errno": _ERRNO,
    "Last_SQL_Error": 1024,
    "Replicate_Ignore_Server_Ids": _LONG_TEXT,
    "Master_Server_Id": _INT,
    "Master_SSL_Crl": 512,
    "Master_SSL_Crlpath": 512,
    "Using_Gtid": 11,
    "Gtid_IO_Pos": _LONG_TEXT,
    "Replicate_Do_Domain_Ids": _LONG_TEXT,
    "Replicate_Ignore_Domain_Ids": _LONG_TEXT,
    "Parallel_Mode": 12,
    "SQL_Delay": _INT,
    "SQL_Remaining_Delay": _INT,
    "Slave_SQL_Running_State": _LONG_TEXT,
    "Slave_DDL_Groups": _BIGINT,
    "Slave_Non_Transactional_Groups": _BIGINT,
    "Slave_Transactional_Groups": _BIGINT,
    "Replicate_Rewrite_DB": _LONG_TEXT,
}
_EVERY = {
    "Connection_name": 64,
    "Slave_SQL_State": 64,
    **_ONE,
    "Retried_transactions": _INT,
    "Max_relay_log_size": _INT,
    "Executed_log_entries": _INT,
    "Slave_received_heartbeats": _INT,
    "Slave_heartbeat_period": _FLOAT,
    "Gtid_Slave_Pos": _LONG_TEXT,
    "Master_last_event_time": _DATETIME,
    "Slave_last_event_time": _DATETIME,
    "Master_Slave_time_diff": _INT,
}
_TYPES = {
    _PORT: (TYPE_SHORT, 5),
    _ERRNO: (TYPE_SHORT, 4),
    _INT: (TYPE_LONG, 10),
    _BIGINT: (TYPE_LONGLONG, 20),
}
_NULLABLE = frozenset(
    {
        "Slave_IO_State",
        "Master_Host",
        "Master_User",
        "Last_Error",
        "Until_Log_File",
        "Master_SSL_Allowed",
        "Master_SSL_CA_File",
        "Master_SSL_CA_Path",
        "Master_SSL_Cert",
        "Master_SSL_Cipher",
        "Master_SSL_Key",
        "Seconds_Behind_Master",
        "Last_IO_Error",
        "Last_SQL_Error",
        "Master_SSL_Crl",
        "Master_SSL_Crlpath",
        "Using_Gtid",
        "SQL_Remaining_Delay",
        "Slave_SQL_Running_State",
        "Slave_SQL_State",
        "Master_Slave_time_diff",
    }
)


@dataclass(frozen=True, slots=True)
class ShowSlaveStatus(Statement):
    """SHOW SLAVE STATUS, of the connection with that name; "" is the session's default, which may be without a name.

    Its answer raises `NoMasterConnection` (1617).
    """

    syntax = """
        "SHOW"i ("SLAVE"i | "REPLICA"i) [STRING] "STATUS"i
        | "SHOW"i ("SLAVE"i | "REPLICA"i) "STATUS"i "FOR"i "CHANNEL"i STRING"""
    needs = _LOOK_AT_UPSTREAM

    connection: str = ""

    @classmethod
    def built(cls, children: list[Any]) -> ShowSlaveStatus:
        return cls("" if children[0] is None else unquote(children[0]))

    @property
    def shows_state(self) -> bool:
        return True

    def answer(self, session: SqlSession) -> ResultSet:
        wanted = self.connection or session.master_connection
        found = [row for name, row in _rows(session) if name.lower() == wanted.lower()]
        if not found and wanted:
            raise NoMasterConnection(wanted)
        return _result(_ONE, found[:1])


@dataclass(frozen=True, slots=True)
class ShowAllSlavesStatus(Statement):
    """SHOW ALL SLAVES STATUS: one row a connection."""

    syntax = '"SHOW"i "ALL"i ("SLAVES"i | "REPLICAS"i) "STATUS"i'
    needs = _LOOK_AT_UPSTREAM

    @property
    def shows_state(self) -> bool:
        return True

    def answer(self, session: SqlSession) -> ResultSet:
        return _result(_EVERY, (row for _, row in _rows(session)))


FAMILY = Family((ShowSlaveStatus, ShowAllSlavesStatus))


def _rows(session: SqlSession) -> Iterator[tuple[str, Mapping[str, Value]]]:
    """Names of all configured upstreams, and the values that both statements show. Changes nothing; on the loop."""
    server, position = session.server, session.state_texts.position
    for c in server.relay.connections:
        if c.info.host:
            yield c.name, slave_row(c, position, server.config.slave_net_timeout)


def _result(columns: Mapping[str, int], rows: Iterable[Mapping[str, Value]]) -> ResultSet:
    return ResultSet(
        [_column(name, kind) for name, kind in columns.items()],
        [tuple(row[name] for name in columns) for row in rows],
    )


def _column(name: str, kind: int) -> Column:
    null = name in _NULLABLE
    if kind > 0:
        return Column.text(name, kind, null=null).of_table()
    if kind == _FLOAT:
        return Column.binary(name, TYPE_FLOAT, 9, 3).of_table()
    if kind == _DATETIME:
        return Column.binary(name, TYPE_DATETIME, 19, null=True).of_table()
    return Column.unsigned(name, *_TYPES[kind], null=null).of_table()
