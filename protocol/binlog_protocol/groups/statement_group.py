"""Groups made here: SQL text as a statement-format event group in normal form.

    a transaction   GTID, QUERY for each statement (each with its INTVAR, RAND and USER_VAR before it), XID
    a standalone    GTID with STANDALONE, one QUERY: a statement that commits by itself, such as CREATE TABLE

The statement's bytes stay what they are; what they mean is in the status variables of its QUERY event.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from binlog_protocol.events.event_type import EventType
from binlog_protocol.events.gtid import BODY_SIZE_MIN, GtidEvent, GtidFlags
from binlog_protocol.events.header import (
    END_POSITION_OFFSET,
    FLAG_SUPPRESS_USE,
    HEADER_SIZE,
    LENGTH_OFFSET,
)
from binlog_protocol.events.query import QueryEvent
from binlog_protocol.events.status_variables import StatusVariables
from binlog_protocol.events.xid import XidEvent
from binlog_protocol.gtid import Gtid

_UTF8MB4_GENERAL_CI: Final = 45  # an id that all versions from 10.6 to 12.3 know
# sql_mode 0: the statement is to mean the same on every replica.
STATUS_VARIABLES: Final = StatusVariables(sql_mode=0, charset=(_UTF8MB4_GENERAL_CI,) * 3).build()
assert len(STATUS_VARIABLES) == 16

_STANDALONE: Final = int(GtidFlags.STANDALONE | GtidFlags.ALLOW_PARALLEL | GtidFlags.DDL)
_TRANSACTION: Final = int(GtidFlags.TRANSACTIONAL | GtidFlags.ALLOW_PARALLEL)


@dataclass(frozen=True, slots=True)
class Origin:
    """The origin of statements: the fields that all events of one session have in common.

    `header_flags` go into every event (FLAG_SKIP_REPLICATION); `thread_id` is that of the session.
    """

    server_id: int
    database: bytes = b""
    status_variables: bytes = STATUS_VARIABLES
    thread_id: int = 0
    header_flags: int = 0

    def statement(self, text: bytes, timestamp: int) -> bytes:
        """A QUERY event. `timestamp` in seconds since 1970, here and below."""
        return self.statement_head(len(text), timestamp) + text

    def statement_head(self, text_size: int, timestamp: int) -> bytes:
        """The QUERY event in front of its text: large texts are not copied together."""
        head = QueryEvent(
            b"",
            self.server_id,
            self.database,
            self.status_variables,
            thread_id=self.thread_id,
            timestamp=timestamp,
            header_flags=self.header_flags,
        ).build()
        size = (len(head) + text_size).to_bytes(4, "little")
        return head[:LENGTH_OFFSET] + size + head[END_POSITION_OFFSET:]

    def standalone_head(self, gtid: Gtid, timestamp: int) -> bytes:
        """The GTID event of a statement that commits by itself."""
        return self._gtid(gtid, _STANDALONE, timestamp)

    def standalone(self, gtid: Gtid, text: bytes, timestamp: int) -> bytes:
        """A group of one statement that commits by itself."""
        return self.standalone_head(gtid, timestamp) + self.statement(text, timestamp)

    def begin(self, gtid: Gtid, timestamp: int) -> bytes:
        """The GTID event of a transaction on transactional tables."""
        return self._gtid(gtid, _TRANSACTION, timestamp)

    def commit(self, xid: int, timestamp: int) -> bytes:
        """The event that ends such a transaction."""
        return XidEvent(
            xid, self.server_id, timestamp=timestamp, header_flags=self.header_flags
        ).build()

    def _gtid(self, gtid: Gtid, flags: int, timestamp: int) -> bytes:
        header_flags = FLAG_SUPPRESS_USE | self.header_flags
        return GtidEvent(gtid, flags, timestamp=timestamp, header_flags=header_flags).build()


class QuickGroup:
    """Builds transactions of one statement: the hot path.

    `build` gives the bytes of `begin`, `statement` and `commit` in a row, with the sequence number as xid. What does
    not change is put together once; only timestamps, numbers and lengths are filled in.
    """

    __slots__ = ("_fixed", "_head", "_middle", "_query", "_tail")

    # After each timestamp: the rest of the GTID event but its number, of the QUERY event but its length, of the XID.
    _TAIL: Final = struct.Struct("<I15sQ")

    def __init__(self, domain_id: int, origin: Origin) -> None:
        gtid_event = origin.begin(Gtid(domain_id, origin.server_id, 0), 0)
        query_event = origin.statement(b"", 0)
        assert len(gtid_event) == HEADER_SIZE + BODY_SIZE_MIN
        assert query_event[4] == EventType.QUERY
        self._fixed = len(query_event)
        # GTID: timestamp | 15 bytes | seq_no | 11 bytes; QUERY: timestamp | 5 bytes | length | the rest
        self._head = struct.Struct(f"<I15sQ11sI5sI{self._fixed - 13}s")
        self._middle = gtid_event[4:19], gtid_event[27:]
        self._query = query_event[4:9], query_event[13:]
        self._tail = origin.commit(0, 0)[4:19]

    def build(self, seq_no: int, timestamp: int, text: bytes) -> bytes:
        """Build the group."""
        gtid, gtid_rest = self._middle
        query, query_rest = self._query
        return (
            self._head.pack(
                timestamp,
                gtid,
                seq_no,
                gtid_rest,
                timestamp,
                query,
                self._fixed + len(text),
                query_rest,
            )
            + text
            + self._TAIL.pack(timestamp, self._tail, seq_no)
        )


def ddl_group(gtid: Gtid, statement: str, *, database: str = "", timestamp: int) -> bytes:
    """One statement that commits by itself, such as CREATE TABLE."""
    origin = Origin(gtid.server_id, database.encode())
    return origin.standalone(gtid, statement.encode(), timestamp)


def transaction_events(
    gtid: Gtid, statements: Sequence[str], *, xid: int, database: str = "", timestamp: int
) -> tuple[bytes, list[bytes]]:
    """The GTID event, and the others: statements on transactional tables, ended by a commit with number `xid`."""
    origin = Origin(gtid.server_id, database.encode())
    events = [origin.statement(statement.encode(), timestamp) for statement in statements]
    events.append(origin.commit(xid, timestamp))
    return origin.begin(gtid, timestamp), events


def transaction_group(
    gtid: Gtid, statements: Sequence[str], *, xid: int, database: str = "", timestamp: int
) -> bytes:
    """`transaction_events` in one piece."""
    first, events = transaction_events(
        gtid, statements, xid=xid, database=database, timestamp=timestamp
    )
    return first + b"".join(events)
