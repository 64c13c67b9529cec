"""The limits of an account, held against one dump: it gets bytes at their rate, and is dropped when it lags too far."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

from binlog_protocol.errors import MasterFatalError
from binlog_storage.engine import EngineReader
from binlog_storage.errors import StorageError

from binlog_server.accounts.replica_policy import ReplicaPolicy
from binlog_server.connections.connections import Connection, Connections
from binlog_server.dumps.lag_watch import Lag, LagWatch
from binlog_server.dumps.replica_rows import bytes_between
from binlog_server.dumps.stream_writer import StreamSink
from binlog_server.dumps.throttle import Throttle

LOOK_S = 1.0  # between two looks at how far behind a replica is
_LARGE_BYTES = 4 << 20  # larger than any batch of several groups


class ReplicaLimits:
    """A sink in front of that of a connection: without limits it only passes on, and no timer runs.

    Args:
        untaken: bytes that the connection holds because the socket does not take them.
        grace_s: see `LagWatch`.
        drop: to be called once, with the error for the replica, when it is too far behind.
    """

    def __init__(
        self,
        sink: StreamSink,
        connection: Connection,
        connections: Connections,
        engine: EngineReader,
        *,
        untaken: Callable[[], int],
        grace_s: Callable[[], float],
        drop: Callable[[MasterFatalError], None],
    ) -> None:
        self._sink = sink
        self._connection = connection
        self._connections = connections
        self._engine = engine
        self._untaken = untaken
        self._grace_s = grace_s
        self._drop = drop
        self._loop = asyncio.get_running_loop()
        self._waiting: deque[memoryview] = deque()  # for the throttle; no more than a batch
        self._place = connection.sent
        self._bytes_here = 0  # written since that place
        self._taken = 0  # of them, at the last look
        self._throttle: Throttle | None = None
        self._watch: LagWatch | None = None
        self._timer: asyncio.TimerHandle | None = None
        self.change(connection.policy)

    def change(self, policy: ReplicaPolicy) -> None:
        """Replace the limits while the dump runs."""
        rate = policy.max_bytes_per_second
        if self._throttle is None or self._throttle.rate != rate:
            self._throttle = Throttle(rate, self._loop.time()) if rate else None
        if not policy.limits_lag:
            self._stop_watching()
        elif self._watch is not None:
            self._watch.policy = policy
        else:
            self._watch = LagWatch(policy)
            self._timer = self._loop.call_later(LOOK_S, self._look)

    def close(self) -> None:
        """The dump has ended."""
        self._stop_watching()
        self._connection.limits = None

    def _stop_watching(self) -> None:
        self._watch = None
        self._connection.lag_state = ""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    # --- Sink ---

    def write(self, data: bytes | bytearray) -> None:
        """See `StreamSink`."""
        if self._connection.sent != self._place:
            self._place = self._connection.sent
            self._bytes_here = 0
        self._bytes_here += len(data)
        if self._throttle is None and not self._waiting:
            self._sink.write(data)
        else:
            self._waiting.append(memoryview(data))

    async def drain(self) -> None:
        """See `StreamSink`; beside that, wait as the rate demands."""
        while self._waiting:
            await self._send_piece()
        await self._sink.drain()

    async def _send_piece(self) -> None:
        throttle = self._throttle
        if throttle is None:  # lifted meanwhile
            self.flush()
            return
        data = self._waiting[0]
        piece = data[: throttle.piece_bytes]
        started = self._loop.time()
        pause = throttle.pause(len(piece), started)
        if pause:
            self._connection.state = f"Throttled by MAX_BYTES_PER_SECOND {throttle.rate}"
            await asyncio.sleep(pause)
            self._connections.throttled_ms += (self._loop.time() - started) * 1000
            return
        if len(piece) == len(data):
            self._waiting.popleft()
        else:
            self._waiting[0] = data[len(piece) :]
        self._sink.write(bytes(piece))
        await self._sink.drain()

    def flush(self) -> None:
        """Hand over what waits for the throttle: something must be sent behind it that cannot wait."""
        while self._waiting:
            self._sink.write(bytes(self._waiting.popleft()))

    # --- lag ---

    def _look(self) -> None:
        self._timer = self._loop.call_later(LOOK_S, self._look)
        lag = self._lag()
        if lag is None:
            return
        if lag.is_over:
            self._stop_watching()
            self._connections.replicas_dropped += 1
            self._drop(_dropped(lag, self._grace_s()))
        elif lag.beyond:
            self._connection.lag_state = (
                f"beyond {lag.beyond}, dropped in {lag.drops_in_s:.0f} s unless it comes nearer"
            )
        else:
            self._connection.lag_state = ""

    def _lag(self) -> Lag | None:
        sent, end = self._connection.sent, self._engine.durable_end
        if self._watch is None or sent is None:
            return None  # it is still looking for its position
        try:
            # Most are near the end: no list of all files each second for each of them.
            files = self._engine.files() if sent.file_no < end.file_no else []
            behind = bytes_between(files, sent, end)
        except StorageError:
            return None  # the dump itself meets it
        return self._watch.look(
            self._loop.time(),
            sent,
            end,
            behind,
            self._grace_s(),
            excused=self._takes_what_it_gets(),
        )

    def _takes_what_it_gets(self) -> bool:
        """Whether the replica reads all that it is sent, or makes progress within one large group.

        Within a group its place does not move, so bytes are counted instead.
        """
        waiting = self._untaken() + sum(map(len, self._waiting))
        before, self._taken = self._taken, self._bytes_here - waiting
        return not waiting or (self._bytes_here > _LARGE_BYTES and self._taken > before)


def _dropped(lag: Lag, grace_s: float) -> MasterFatalError:
    # A replica stops on 1236. On anything else it would come again at once, only to be dropped again; nobody would see
    # why. It shows 320 bytes of the text at most, 70 of them its own.
    return MasterFatalError(
        f"The slave was dropped: {lag.behind_bytes} bytes and {lag.behind_s:.0f} seconds behind, beyond "
        f"{lag.beyond} of its account, it came no nearer for {grace_s:.0f} seconds. Find out what slows it down, then "
        "START SLAVE; or raise the limit by ALTER USER"
    )
