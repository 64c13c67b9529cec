"""SHOW SLAVE STATUS and SHOW ALL SLAVES STATUS: MariaDB's columns; `relay.slave_rows` has their values."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from binlog_protocol.errors.sql_errors import NoMasterConnection
from binlog_protocol.wire.results import CHARSET_BINARY, FLAG_BINARY, Column, Value

from binlog_server.relay.slave_rows import slave_row
from binlog_server.sql.state_texts import StateTexts
from binlog_server.sql.view import ResultSet, ServerView

SlaveRows = Mapping[str, Mapping[str, Value]]  # by connection, then by column

# As 11.8 sends them. Numbers by their width; all others are text of so many bytes.
_SMALLINT, _INT, _BIGINT, _FLOAT, _DATETIME = -2, -3, -8, -4, -12
_LONG_TEXT = 87376

_ONE = {
    "Slave_IO_State": 256,
    "Master_Host": 1020,
    "Master_User": 1536,
    "Master_Port": _SMALLINT,
    "Connect_Retry": _INT,
    "Master_Log_File": 2048,
    "Read_Master_Log_Pos": _BIGINT,
    "Relay_Log_File": 2048,
    "Relay_Log_Pos": _BIGINT,
    "Relay_Master_Log_File": 2048,
    "Slave_IO_Running": 40,
    "Slave_SQL_Running": 12,
    "Replicate_Do_DB": _LONG_TEXT,
    "Replicate_Ignore_DB": _LONG_TEXT,
    "Replicate_Do_Table": _LONG_TEXT,
    "Replicate_Ignore_Table": _LONG_TEXT,
    "Replicate_Wild_Do_Table": _LONG_TEXT,
    "Replicate_Wild_Ignore_Table": _LONG_TEXT,
    "Last_Errno": _SMALLINT,
    "Last_Error": 4096,
    "Skip_Counter": _INT,
    "Exec_Master_Log_Pos": _BIGINT,
    "Relay_Log_Space": _BIGINT,
    "Until_Condition": 24,
    "Until_Log_File": 2048,
    "Until_Log_Pos": _BIGINT,
    "Master_SSL_Allowed": 28,
    "Master_SSL_CA_File": 2048,
    "Master_SSL_CA_Path": 2048,
    "Master_SSL_Cert": 2048,
    "Master_SSL_Cipher": 2048,
    "Master_SSL_Key": 2048,
    "Seconds_Behind_Master": _BIGINT,
    "Master_SSL_Verify_Server_Cert": 12,
    "Last_IO_Errno": _SMALLINT,
    "Last_IO_Error": 4096,
    "Last_SQL_Errno": _SMALLINT,
    "Last_SQL_Error": 4096,
    "Replicate_Ignore_Server_Ids": _LONG_TEXT,
    "Master_Server_Id": _INT,
    "Master_SSL_Crl": 2048,
    "Master_SSL_Crlpath": 2048,
    "Using_Gtid": 44,
    "Gtid_IO_Pos": _LONG_TEXT,
    "Replicate_Do_Domain_Ids": _LONG_TEXT,
    "Replicate_Ignore_Domain_Ids": _LONG_TEXT,
    "Parallel_Mode": 48,
    "SQL_Delay": _INT,
    "SQL_Remaining_Delay": _INT,
    "Slave_SQL_Running_State": _LONG_TEXT,
    "Slave_DDL_Groups": _BIGINT,
    "Slave_Non_Transactional_Groups": _BIGINT,
    "Slave_Transactional_Groups": _BIGINT,
    "Replicate_Rewrite_DB": _LONG_TEXT,
}
_EVERY = {
    "Connection_name": 256,
    "Slave_SQL_State": 256,
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
_LENGTHS = {_SMALLINT: 5, _INT: 10, _BIGINT: 20, _FLOAT: 9, _DATETIME: 19}
_FLOAT_DECIMALS = 3


def slave_rows(view: ServerView, texts: StateTexts) -> SlaveRows:
    """Of the upstreams that are known: what both statements tell."""
    timeout = view.config.slave_net_timeout
    return {
        c.name: slave_row(c, texts.position, timeout) for c in view.relay.connections if c.info.host
    }


def one(connection: str, rows: SlaveRows) -> ResultSet:
    """SHOW SLAVE STATUS, of a connection with a name or, with "", without one. Raises `NoMasterConnection` (1617)."""
    found = next((row for name, row in rows.items() if name.lower() == connection.lower()), None)
    if found is None and connection:
        raise NoMasterConnection(connection)
    return _result(_ONE, [] if found is None else [found])


def every(rows: SlaveRows) -> ResultSet:
    """SHOW ALL SLAVES STATUS."""
    return _result(_EVERY, rows.values())


def _result(columns: Mapping[str, int], rows: Iterable[Mapping[str, Value]]) -> ResultSet:
    return ResultSet(
        [_column(name, kind) for name, kind in columns.items()],
        [tuple(row[name] for name in columns) for row in rows],
    )


def _column(name: str, kind: int) -> Column:
    if kind > 0:
        return Column.text(name, kind)
    decimals = _FLOAT_DECIMALS if kind == _FLOAT else 0
    return Column(name, -kind, CHARSET_BINARY, _LENGTHS[kind], FLAG_BINARY, decimals)
