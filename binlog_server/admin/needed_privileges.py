"""Which privileges a statement needs."""

from __future__ import annotations

from collections.abc import Mapping

from binlog_server.admin.replication_statements import (
    ChangeMaster,
    ResetSlave,
    StartAllSlaves,
    StartSlave,
    StopAllSlaves,
    StopSlave,
)
from binlog_server.admin.statements import (
    AlterLease,
    CreateLease,
    DropLease,
    ExplainGtid,
    ExplainPurge,
    FlushLogs,
    FlushNothing,
    FlushTables,
    Purge,
    ResetMaster,
    Show,
    ShowBinlogEvents,
    ShowSlaveStatus,
)

_LOOK = ("SUPER", "BINLOG MONITOR", "BINLOG ADMIN")
_LOOK_AT_UPSTREAM = ("SUPER", "SLAVE MONITOR")

# What a statement needs, any of them; by its type, or by itself. Nothing for others.
PRIVILEGES: Mapping[type | Show, tuple[str, ...]] = {
    Show.MASTER_STATUS: _LOOK,
    Show.BINARY_LOGS: _LOOK,
    Show.BINLOG_LEASES: _LOOK,
    Show.BINLOG_REPLICAS: (*_LOOK, "REPLICATION MASTER ADMIN"),
    Show.SLAVE_HOSTS: (*_LOOK, "REPLICATION MASTER ADMIN"),
    Show.ALL_SLAVES_STATUS: _LOOK_AT_UPSTREAM,
    ShowSlaveStatus: _LOOK_AT_UPSTREAM,
    ShowBinlogEvents: _LOOK,
    ExplainPurge: _LOOK,
    ExplainGtid: _LOOK,
    **dict.fromkeys(
        (ChangeMaster, StartSlave, StopSlave, StartAllSlaves, StopAllSlaves),
        ("SUPER", "REPLICATION SLAVE ADMIN"),
    ),
    ResetSlave: ("RELOAD",),
    Purge: ("SUPER", "BINLOG ADMIN"),
    FlushLogs: ("RELOAD",),
    FlushNothing: ("RELOAD",),
    FlushTables: ("RELOAD",),
    ResetMaster: ("RELOAD",),
    AlterLease: ("SUPER", "BINLOG ADMIN"),
    CreateLease: ("SUPER", "BINLOG ADMIN"),
    DropLease: ("SUPER", "BINLOG ADMIN"),
}
