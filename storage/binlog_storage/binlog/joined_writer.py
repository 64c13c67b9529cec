"""The engine as the caches of one transaction see it, whose group commits together with a transaction of tables."""

from __future__ import annotations

from dataclasses import dataclass

from binlog_protocol.gtid import Gtid

from binlog_storage.binlog.appender import Appender, JoinedTables, OpenGroup
from binlog_storage.ibb.chunk import Position


@dataclass(frozen=True, slots=True)
class JoinedWriter:
    """See `binlog_storage.binlog.transaction.GroupSink`."""

    _appender: Appender
    _tables: JoinedTables

    @property
    def cache_bytes(self) -> int:
        return self._appender.piece_bytes

    def append(self, payload: bytes, gtid: Gtid | None, age: int | None = None) -> Position:
        if gtid is None:
            raise ValueError("a start marker is no transaction")
        return self._appender.append_with(payload, gtid, self._tables, age)

    def begin(self, *, bulk: bool = False) -> OpenGroup:
        return self._appender.begin(bulk=bulk, tables=self._tables)
