"""SHOW PRIVILEGES: the privileges that can be granted here, and the use of each."""

from __future__ import annotations

from collections.abc import Mapping

from binlog_protocol.wire.results import Column

from binlog_server.accounts.privileges import SINGLE, USAGE
from binlog_server.sql.view import ResultSet

_MEANINGS: Mapping[str, str] = {
    "RELOAD": "To use FLUSH, RESET MASTER and RESET SLAVE",
    "PROCESS": "To see the connections of others in SHOW PROCESSLIST",
    "SUPER": "To do most of what the others are for, as in MariaDB 10.11",
    "REPLICATION SLAVE": "To replicate from this server",
    "BINLOG MONITOR": "To see the state of the binlog and its files",
    "CREATE USER": "To make, change and drop accounts",
    "BINLOG ADMIN": "To purge binary logs and to set variables of the binlog",
    "BINLOG REPLAY": "To commit SQL under any GTID; and all but CREATE USER and REPLICATION SLAVE",
    "CONNECTION ADMIN": "To kill connections of others and to set how many there may be",
    "READ_ONLY ADMIN": "To set read_only",
    "REPLICATION SLAVE ADMIN": "To use CHANGE MASTER, START SLAVE and STOP SLAVE",
    "REPLICATION MASTER ADMIN": "To see the replicas and to set semi-sync",
    "SLAVE MONITOR": "To use SHOW SLAVE STATUS",
}
assert set(_MEANINGS) == set(SINGLE)


def show() -> ResultSet:
    """The answer to SHOW PRIVILEGES: one row a privilege, in MariaDB's columns."""
    columns = [
        Column.text("Privilege", 10),
        Column.text("Context", 15),
        Column.text("Comment", 64),
    ]
    meanings = {**_MEANINGS, USAGE: "To log in, and nothing else"}
    rows = [(name.capitalize(), "Server Admin", what) for name, what in meanings.items()]
    return ResultSet(columns, list(rows))
