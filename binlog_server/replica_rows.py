"""Rows of SHOW BINLOG REPLICAS: how far each replica has got. To be walked in a thread: it looks into the store."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence

from binlog_server.connections import Connection
from protocol.wire.results import Value
from storage.binlog.file_names import file_number
from storage.engine import BinlogEngine, Position
from storage.errors import StorageError

_TIMESTAMP_BYTES = 4


class ReplicaRows:
    """For the connections of one moment.

    Columns: connection id, server_id, host, user, sent, durable and acknowledged GTID position, bytes and milliseconds
    behind, state.
    """

    def __init__(self, engine: BinlogEngine, connections: Sequence[Connection]) -> None:
        self._engine = engine
        # Taken now, on the loop: the durable end first, so that nobody is ahead of it.
        self._end = engine.durable_end
        self._replicas = [(c, c.sent, c.state) for c in connections if c.dump_server_id]

    def __iter__(self) -> Iterator[Sequence[Value]]:
        sizes = {file_number(name) or 0: size for name, size in self._engine.files()}
        durable = str(self._engine.binlog_state().position())
        for connection, sent, state in self._replicas:
            behind = sent is not None and sent < self._end
            yield (
                connection.id,
                connection.dump_server_id,
                connection.address,
                connection.user,
                None if sent is None else self._gtid_at(sent) if behind else durable,
                durable,
                None,  # until there is semi-sync
                None if sent is None else self._bytes(sent, sizes) if behind else 0,
                None if sent is None else self._age_ms(sent) if behind else 0,
                state,
            )

    def _gtid_at(self, sent: Position) -> str | None:
        try:
            return str(self._engine.state_at(sent).position())
        except StorageError:
            return None  # purged meanwhile

    def _bytes(self, sent: Position, sizes: dict[int, int]) -> int:
        whole = sum(size for n, size in sizes.items() if sent.file_no <= n < self._end.file_no)
        return max(0, whole + self._end.offset - sent.offset)

    def _age_ms(self, sent: Position) -> int | None:
        """Of the first group that was not sent: since it was written, by its timestamp, in whole seconds."""
        try:
            groups = self._engine.read(sent).groups
        except StorageError:
            return None
        if not groups:
            return 0
        written = int.from_bytes(groups[0][:_TIMESTAMP_BYTES], "little")
        return max(0, round((time.time() - written) * 1000))
