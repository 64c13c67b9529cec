"""SHOW SLAVE STATUS: the values of MariaDB's columns, as they are true of a relay.

There is one task in place of the two threads: what it takes in is "executed" once it is stored. There are no relay
logs; the binlog itself is what the relay keeps. Positions in the upstream's files are told as a replica counts them;
nothing depends on them: GTIDs count.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from binlog_protocol.errors import ErrorOnWrite
from binlog_protocol.wire.results import Value
from binlog_protocol.wire.semi_sync import ReplicaPlace

from binlog_server.relay.incidents import ER_SLAVE_INCIDENT

if TYPE_CHECKING:
    from binlog_server.relay.connection import UpstreamConnection

_APPLYING = "Slave has read all relay log; waiting for more updates"
_USING_GTID = {"slave_pos": "Slave_Pos", "current_pos": "Current_Pos"}

# Of a server without filters, relay logs and threads that apply.
_CONSTANTS: Mapping[str, Value] = {
    "Replicate_Do_DB": "",
    "Replicate_Ignore_DB": "",
    "Replicate_Do_Table": "",
    "Replicate_Ignore_Table": "",
    "Replicate_Wild_Do_Table": "",
    "Replicate_Wild_Ignore_Table": "",
    "Replicate_Rewrite_DB": "",
    "Relay_Log_File": "",
    "Relay_Log_Pos": 0,
    "Relay_Log_Space": 0,
    "Max_relay_log_size": 0,
    "Until_Log_File": "",
    "Until_Log_Pos": 0,
    "Parallel_Mode": "none",
    "SQL_Delay": 0,
    "SQL_Remaining_Delay": None,
    "Slave_DDL_Groups": 0,
    "Slave_Non_Transactional_Groups": 0,
    "Slave_Transactional_Groups": 0,
    "Retried_transactions": 0,
    "Executed_log_entries": 0,
}

# What MariaDB's SQL thread would have met, and not the one that reads.
_OF_APPLYING = frozenset({ErrorOnWrite.errno, ER_SLAVE_INCIDENT})


def slave_row(
    connection: UpstreamConnection, position: str, slave_net_timeout: int
) -> Mapping[str, Value]:
    """A row by column, those of SHOW ALL SLAVES STATUS included. `position`: the store's."""
    info, status = connection.info, connection.status
    runs = connection.runs
    applying = _APPLYING if runs else ""
    failed = status.errno in _OF_APPLYING
    io_errno, io_error = (0, "") if failed else (status.errno, status.error)
    sql_errno, sql_error = (status.errno, status.error) if failed else (0, "")
    return {
        **_CONSTANTS,
        "Connection_name": connection.name,
        "Skip_Counter": connection.incidents.skip_counter,
        "Slave_SQL_State": applying,
        "Slave_IO_State": status.io_state.text,
        "Master_Host": connection.upstream.host,
        "Master_User": info.user,
        "Master_Port": connection.upstream.port,
        "Connect_Retry": info.connect_retry,
        "Master_Log_File": status.read.file,
        "Read_Master_Log_Pos": _position(status.read),
        "Relay_Master_Log_File": status.stored.file,
        "Exec_Master_Log_Pos": _position(status.stored),
        "Slave_IO_Running": status.state.running if runs else "No",
        "Slave_SQL_Running": _yes(runs),
        "Last_Errno": sql_errno,
        "Last_Error": sql_error,
        "Until_Condition": "None" if connection.until is None else "Gtid",
        "Master_SSL_Allowed": _yes(info.ssl),
        "Master_SSL_CA_File": info.ssl_ca,
        "Master_SSL_CA_Path": info.ssl_capath,
        "Master_SSL_Cert": info.ssl_cert,
        "Master_SSL_Cipher": info.ssl_cipher,
        "Master_SSL_Key": info.ssl_key,
        "Master_SSL_Verify_Server_Cert": _yes(bool(info.ssl_verify_server_cert)),
        "Master_SSL_Crl": info.ssl_crl,
        "Master_SSL_Crlpath": info.ssl_crlpath,
        "Seconds_Behind_Master": status.behind_s,
        "Last_IO_Errno": io_errno,
        "Last_IO_Error": io_error,
        "Last_SQL_Errno": sql_errno,
        "Last_SQL_Error": sql_error,
        "Replicate_Ignore_Server_Ids": _listed(info.ignore_server_ids),
        "Replicate_Do_Domain_Ids": _listed(info.do_domain_ids),
        "Replicate_Ignore_Domain_Ids": _listed(info.ignore_domain_ids),
        "Master_Server_Id": status.server_id,
        "Using_Gtid": _USING_GTID[info.use_gtid],
        "Gtid_IO_Pos": position,
        "Gtid_Slave_Pos": position,
        "Slave_SQL_Running_State": applying,
        "Slave_received_heartbeats": status.heartbeats,
        "Slave_heartbeat_period": f"{info.heartbeat_s(slave_net_timeout):.3f}",
        "Master_last_event_time": _time(status.last_timestamp),
        "Slave_last_event_time": _time(status.last_timestamp),
        "Master_Slave_time_diff": 0 if status.last_timestamp else None,
    }


def _position(place: ReplicaPlace) -> int:
    return place.position if place.file else 0


def _yes(value: bool) -> str:
    return "Yes" if value else "No"


def _listed(ids: Iterable[int]) -> str:
    return ", ".join(map(str, ids))


def _time(seconds: int) -> str | None:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(seconds)) if seconds else None
