"""The engine as the caches of one transaction see it, whose group commits together with a transaction of tables."""

from __future__ import annotations

from typing import Protocol

from binlog_protocol.dataclass import dataclass
from binlog_protocol.gtid import Gtid

from binlog_storage.binlog.appender import JoinedTables
from binlog_storage.engine import GroupWriter
from binlog_storage.ibb.chunk import Position


class AppenderWithTables(Protocol):
    """Appends groups, each with the end of a transaction of tables."""

    @property
    def piece_bytes(self) -> int:
        """The largest group in one piece."""

    def append_with(
        self, payload: bytes, gtid: Gtid, tables: JoinedTables, age: int | None = None
    ) -> Position:
        """As `EngineWriter.append`, and the transaction commits with the group."""

    def begin(self, *, bulk: bool = False, tables: JoinedTables | None = None) -> GroupWriter:
        """As `EngineWriter.begin`: the transaction commits, or is prepared, with the group."""


@dataclass(frozen=True, slots=True)
class JoinedWriter:
    """See `binlog_storage.binlog.transaction.GroupSink`."""

    _appender: AppenderWithTables
    _tables: JoinedTables

    @property
    def cache_bytes(self) -> int:
        return self._appender.piece_bytes

    def append(self, payload: bytes, gtid: Gtid | None, age: int | None = None) -> Position:
        if gtid is None:
            raise ValueError("a start marker is no transaction")
        return self._appender.append_with(payload, gtid, self._tables, age)

    def begin(self, *, bulk: bool = False) -> GroupWriter:
        return self._appender.begin(bulk=bulk, tables=self._tables)
