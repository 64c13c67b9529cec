"""Semi-sync towards an upstream: it is told what is durable here and, if wanted, what so many of our replicas hold."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final, NamedTuple

from binlog_protocol.wire.semi_sync import Ack, ReplicaPlace
from binlog_storage.engine import OpenBinlog, Position
from binlog_storage.errors import StorageError

from binlog_server.commits.syncer import Syncer

# So many wait to be sent; the last one speaks for those in between.
_DUE_MAX: Final = 1024


class _Due(NamedTuple):
    """An acknowledgement to be sent once everything before `end` is durable, and held by replicas if that is wanted."""

    ack: Ack
    end: Position


class UpstreamAcks:
    """The acknowledgements owed to one upstream. Call `flush` when more may have become durable.

    Args:
        held: what lies before it is held by as many replicas as the options say; None if none need to.
        send: a packet to the upstream.
    """

    def __init__(
        self,
        engine: OpenBinlog,
        syncer: Syncer,
        *,
        held: Callable[[], Position | None],
        send: Callable[[bytes], None],
    ) -> None:
        self._engine = engine
        self._syncer = syncer
        self._held = held
        self._send = send
        self._wanted = False
        self._due: deque[_Due] = deque()

    def asked(self) -> None:
        """An event has come that is to be acknowledged."""
        self._wanted = True

    def stored(self, place: ReplicaPlace) -> None:
        """Note that the stream is in the store up to that place, between two groups."""
        if not self._wanted:
            return
        self._wanted = False
        if len(self._due) >= _DUE_MAX:
            self._due.pop()
        self._due.append(_Due(place.ack, self._engine.written_end))
        self._syncer.on_durable(self._durable)

    def flush(self) -> None:
        """Send the last acknowledgement that is due: it speaks for those before it."""
        held = self._held()
        end = self._engine.durable_end
        if held is not None:
            end = min(end, held)
        ack = None
        while self._due and self._due[0].end <= end:
            ack = self._due.popleft().ack
        if ack is not None:
            self._send(ack.build())

    def _durable(self, error: StorageError | None) -> None:
        if error is None:
            self.flush()
