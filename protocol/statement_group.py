"""Groups made here: SQL text as a statement-format event group in normal form.

Status variables written with each statement (code, then value):

    01  sql_mode, u64                 0: the statement is to mean the same on every replica
    04  character_set_client, collation_connection, collation_server, u16 each
        45 = utf8mb4_general_ci, an id that all versions from 10.6 to 12.3 know
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

from protocol.events.gtid import GtidEvent, GtidFlags
from protocol.events.query import QueryEvent
from protocol.events.xid import XidEvent
from protocol.gtid import Gtid

_UTF8MB4_GENERAL_CI = 45
_STATUS = struct.Struct("<BQBHHH")
_STATUS_VARIABLES = _STATUS.pack(1, 0, 4, *[_UTF8MB4_GENERAL_CI] * 3)

assert _STATUS.size == 16


def ddl_group(gtid: Gtid, statement: str, *, database: str = "", timestamp: int) -> bytes:
    """One statement that commits by itself, such as CREATE TABLE. `timestamp` in seconds since 1970."""
    flags = GtidFlags.STANDALONE | GtidFlags.ALLOW_PARALLEL | GtidFlags.DDL
    return GtidEvent(gtid, int(flags), timestamp=timestamp).build() + _query(
        gtid, statement, database, timestamp
    )


def transaction_events(
    gtid: Gtid, statements: Sequence[str], *, xid: int, database: str = "", timestamp: int
) -> tuple[bytes, list[bytes]]:
    """The GTID event, and the others: statements on transactional tables, ended by a commit with number `xid`."""
    flags = GtidFlags.TRANSACTIONAL | GtidFlags.ALLOW_PARALLEL
    events = [_query(gtid, statement, database, timestamp) for statement in statements]
    events.append(XidEvent(xid, gtid.server_id, timestamp=timestamp).build())
    return GtidEvent(gtid, int(flags), timestamp=timestamp).build(), events


def transaction_group(
    gtid: Gtid, statements: Sequence[str], *, xid: int, database: str = "", timestamp: int
) -> bytes:
    """`transaction_events` in one piece."""
    first, events = transaction_events(
        gtid, statements, xid=xid, database=database, timestamp=timestamp
    )
    return first + b"".join(events)


def _query(gtid: Gtid, statement: str, database: str, timestamp: int) -> bytes:
    return QueryEvent(
        statement.encode(),
        gtid.server_id,
        database.encode(),
        _STATUS_VARIABLES,
        timestamp=timestamp,
    ).build()
