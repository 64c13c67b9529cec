"""Groups of our own: what makes this server a master without an upstream."""

from __future__ import annotations

import time
from collections.abc import Sequence

from protocol.event_group import StartMarker
from protocol.events.format_description import FormatDescription
from protocol.gtid import Gtid
from protocol.statement_group import ddl_group, transaction_events
from storage.binlog.transaction import BINLOG_CACHE_SIZE, Transaction
from storage.engine import BinlogEngine


class Publisher:
    """Commits SQL text into the store. One owner; `sync` makes it durable and visible.

    With its first group it stores a start marker: this server is then the master, and it has just started.
    """

    def __init__(
        self,
        engine: BinlogEngine,
        *,
        server_version: str,
        server_id: int,
        domain_id: int,
        binlog_cache_size: int = BINLOG_CACHE_SIZE,
        binlog_stmt_cache_size: int = BINLOG_CACHE_SIZE,
    ) -> None:
        self._engine = engine
        self._server_version = server_version
        self._server_id = server_id
        self._domain_id = domain_id
        self._cache_sizes = binlog_cache_size, binlog_stmt_cache_size
        self._announced = False
        last = engine.binlog_state().last(domain_id)
        self._seq_no = last.seq_no if last is not None else 0

    def ddl(self, statement: str, database: str = "") -> Gtid:
        """Commit one statement that commits by itself."""
        gtid, now = self._next()
        self._engine.append(ddl_group(gtid, statement, database=database, timestamp=now), gtid)
        return gtid

    def transaction(self, statements: Sequence[str], database: str = "") -> Gtid:
        """Commit statements as one transaction."""
        gtid, now = self._next()
        first, events = transaction_events(
            gtid, statements, xid=gtid.seq_no, database=database, timestamp=now
        )
        cache, stmt_cache = self._cache_sizes
        transaction = Transaction(
            self._engine, binlog_cache_size=cache, binlog_stmt_cache_size=stmt_cache
        )
        for event in events:
            transaction.write(event)
        transaction.commit(first, gtid)
        return gtid

    def _next(self) -> tuple[Gtid, int]:
        now = int(time.time())
        if not self._announced:
            self._announced = True
            started = FormatDescription(
                self._server_version, self._server_id, created=now, timestamp=now
            )
            self._engine.append(StartMarker(started).payload, None)
        self._seq_no += 1
        return Gtid(self._domain_id, self._server_id, self._seq_no), now
