"""Rows of SHOW BINLOG REPLICAS: how far each replica has got. To be walked in a thread: it looks into the store."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence

from binlog_protocol.wire.results import Value
from binlog_storage.engine import BinlogFile, EngineReader, Position
from binlog_storage.errors import StorageError

from binlog_server.connections.connections import Connection
from binlog_server.semi_sync.master import NOWHERE

_TIMESTAMP_BYTES = 4


def bytes_between(files: Iterable[BinlogFile], start: Position, end: Position) -> int:
    """Bytes of binlog from one place to another; 0 if it is none."""
    whole = sum(size for number, size in files if start.file_no <= number < end.file_no)
    return max(0, whole + end.offset - start.offset)


def age_ms(engine: EngineReader, sent: Position) -> int | None:
    """The age of the first group that was not sent, by its timestamp, which has whole seconds.

    None if it was purged meanwhile.
    """
    try:
        heads = engine.read(sent).heads
    except StorageError:
        return None
    if not heads:
        return 0
    written = int.from_bytes(heads[0][:_TIMESTAMP_BYTES], "little")
    return max(0, round((time.time() - written) * 1000))


class ReplicaRows:
    """For the connections of one moment.

    Columns: connection id, server_id, host, user, sent, durable and acknowledged GTID position, bytes and milliseconds
    behind, state.
    """

    def __init__(self, engine: EngineReader, connections: Sequence[Connection]) -> None:
        self._engine = engine
        # Taken now, on the loop: the durable end first, so that nobody is ahead of it.
        self._end = engine.durable_end
        self._replicas = [
            (c, c.sent, c.acknowledged, c.shown_state) for c in connections if c.dump_server_id
        ]

    def __iter__(self) -> Iterator[Sequence[Value]]:
        try:
            files = self._engine.files()
        except StorageError:
            files = None  # the directory cannot be looked at: nobody knows how many bytes lie between two places
        # Not `binlog_state`, which may be ahead of it.
        durable = self._gtid_at(self._end)
        for connection, sent, acknowledged, state in self._replicas:
            behind = sent is not None and sent < self._end
            yield (
                connection.id,
                connection.dump_server_id,
                connection.address,
                connection.user,
                None if sent is None else self._gtid_at(sent) if behind else durable,
                durable,
                self._gtid_at(acknowledged) if acknowledged and acknowledged > NOWHERE else None,
                None if sent is None else self._lag(files, sent) if behind else 0,
                None if sent is None else age_ms(self._engine, sent) if behind else 0,
                state,
            )

    def _lag(self, files: Sequence[BinlogFile] | None, sent: Position) -> int | None:
        return None if files is None else bytes_between(files, sent, self._end)

    def _gtid_at(self, sent: Position) -> str | None:
        try:
            return str(self._engine.state_at(sent).position())
        except StorageError:
            return None  # purged meanwhile
