"""Groups made here: SQL text as a statement-format event group in normal form.

    a transaction   GTID, QUERY for each statement (each with its INTVAR, RAND and USER_VAR before it), XID
    a standalone    GTID with STANDALONE, one QUERY: a statement that commits by itself, such as CREATE TABLE
    a table with    GTID with DDL alone, QUERY that creates the table, row events, XID: CREATE TABLE ... SELECT. Without
    its rows        rows, and of a table without transactions, QUERY `COMMIT` is in the place of XID

The statement's bytes stay what they are; what they mean is in the status variables of its QUERY event.
"""

from __future__ import annotations

import struct
from typing import Final

from binlog_protocol.dataclass import dataclass
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


def own_variables(time_zone: bytes | None = None) -> bytes:
    """Status variables of a statement that this server has written itself, in UTF-8."""
    charset = (_UTF8MB4_GENERAL_CI,) * 3
    return StatusVariables(sql_mode=0, charset=charset, time_zone=time_zone).build()


STATUS_VARIABLES: Final = own_variables()
assert len(STATUS_VARIABLES) == 16

_STANDALONE: Final = int(GtidFlags.STANDALONE | GtidFlags.ALLOW_PARALLEL | GtidFlags.DDL)
_UNTRANSACTIONAL: Final = int(GtidFlags.ALLOW_PARALLEL)
_WITH_ROWS: Final = int(GtidFlags.ALLOW_PARALLEL | GtidFlags.DDL)
NO_ENGINE: Final = 255
"""Engines of a group that goes through no two-phase commit."""
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

    def statement(self, text: bytes, timestamp: int, error_code: int = 0) -> bytes:
        """A QUERY event. `timestamp` in seconds since 1970, here and below; `error_code`: that it has failed with."""
        return self.statement_head(len(text), timestamp, error_code) + text

    def statement_head(self, text_size: int, timestamp: int, error_code: int = 0) -> bytes:
        """The QUERY event in front of its text: large texts are not copied together."""
        head = QueryEvent(
            b"",
            self.server_id,
            self.database,
            self.status_variables,
            thread_id=self.thread_id,
            error_code=error_code,
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

    def begin(self, gtid: Gtid, timestamp: int, commit_id: int | None = None) -> bytes:
        """The GTID event of a transaction on transactional tables."""
        return self._gtid(gtid, _TRANSACTION, timestamp, commit_id)

    def begin_untransactional(self, gtid: Gtid, timestamp: int) -> bytes:
        """The GTID event of a group that a replica cannot roll back: see `tables.row_group`."""
        return self._gtid(gtid, _UNTRANSACTIONAL, timestamp)

    def begin_with_rows(self, gtid: Gtid, timestamp: int, *, is_direct: bool) -> bytes:
        """The GTID event of CREATE TABLE ... SELECT: the table and its rows. `is_direct`: it ends in `direct_end`."""
        engines = NO_ENGINE if is_direct else None
        return self._gtid(gtid, _WITH_ROWS, timestamp, extra_engines=engines)

    def direct_end(self, timestamp: int) -> bytes:
        """The event that ends a group of tables without transactions."""
        return QueryEvent(
            b"COMMIT",
            self.server_id,
            self.database,
            self.status_variables,
            thread_id=self.thread_id,
            timestamp=timestamp,
            header_flags=FLAG_SUPPRESS_USE | self.header_flags,
        ).build()

    def commit(self, xid: int, timestamp: int) -> bytes:
        """The event that ends such a transaction."""
        return XidEvent(
            xid, self.server_id, timestamp=timestamp, header_flags=self.header_flags
        ).build()

    def prepared_end(self, timestamp: int) -> bytes:
        """The event that ends one that is prepared: its number, and so its xid, is not known yet."""
        return self.statement(b"COMMIT", timestamp)

    def _gtid(
        self,
        gtid: Gtid,
        flags: int,
        timestamp: int,
        commit_id: int | None = None,
        *,
        extra_engines: int | None = None,
    ) -> bytes:
        return GtidEvent(
            gtid,
            flags,
            commit_id,
            extra_engines=extra_engines,
            timestamp=timestamp,
            header_flags=FLAG_SUPPRESS_USE | self.header_flags,
        ).build()


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

    def build(self, text: bytes, seq_no: int, timestamp: int) -> bytes:
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
