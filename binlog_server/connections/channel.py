"""The channel to one client: writing with back-pressure, reading in turns, and the end of the connection."""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Callable

from binlog_protocol.connection.server import ServerConnection
from binlog_protocol.connection.server_states import ServerState
from binlog_protocol.dataclass import dataclass
from binlog_protocol.errors import ServerError

from binlog_server.connections.peer_reads import PeerReads, window_of
from binlog_server.connections.tcp_options import give_up_after
from binlog_server.process.logs import Peer

log = logging.getLogger(__name__)

ANSWER_BUFFER_BYTES = 64 * 1024  # per client; beyond it commands wait
WRITE_BUFFER_BYTES = 512 * 1024  # per replica; later groups wait in the store
_UNKNOWN = -1
_SOON_S = 30e-6
_READ_BYTES = 1 << 16
_LINGER_S = 5.0  # how long a closed connection may take to accept its last bytes


@dataclass(slots=True)
class Traffic:
    """Bytes of one connection, counted inside of TLS."""

    received: int = 0
    sent: int = 0


class Channel:
    """The channel of one connection, on the loop. The transport drops bytes that are written after the end.

    Args:
        transport: the socket's; may be replaced by a layer on it.
        describe: gives the peer for log lines.
        go_on: called when the buffered commands may be answered.
    """

    def __init__(
        self,
        transport: asyncio.Transport,
        machine: ServerConnection,
        describe: Callable[[], Peer],
        go_on: Callable[[], None],
    ) -> None:
        self.transport = transport
        self.machine = machine
        self._describe = describe
        self.go_on = go_on
        self._loop = asyncio.get_running_loop()
        self._writable: asyncio.Future[None] | None = None  # set while the socket takes nothing
        self.net_write_timeout: Callable[[], float]
        """The session's, in seconds; from the login on."""
        self._held = False
        self._resting = False  # until the next round of the loop
        self._lost = False
        self._linger: asyncio.TimerHandle | None = None  # from `close` on
        self._fd: int | None = _UNKNOWN  # of a bare socket
        self._reads: PeerReads | None = None  # of a stream
        self.traffic = Traffic()
        self.timed_out = False
        """Whether the peer took nothing for net_write_timeout."""
        self.mute = False
        """Whether no more answers are given: the connection has ended, or is being closed."""
        transport.set_write_buffer_limits(high=ANSWER_BUFFER_BYTES)

    @property
    def is_closing(self) -> bool:
        """Whether the connection has ended or is being closed: no command is answered any more."""
        return self._lost or self.transport.is_closing()

    @property
    def is_full(self) -> bool:
        """Whether the socket takes nothing now, and the write buffer is full."""
        return self._writable is not None

    @property
    def takes_all(self) -> bool:
        """Whether it is neither full nor closing."""
        return not (self._lost or self._writable is not None or self.transport.is_closing())

    @property
    def peer(self) -> Peer:
        return self._describe()

    @property
    def untaken(self) -> int:
        """Bytes in the write buffer, which the socket has not taken yet."""
        return self.transport.get_write_buffer_size()

    def stream(self) -> None:
        """A dump follows: enlarge the write buffer to `WRITE_BUFFER_BYTES`."""
        self.transport.set_write_buffer_limits(high=WRITE_BUFFER_BYTES)
        self._reads = PeerReads()
        self._fd = self._bare_fd()

    def _bare_fd(self) -> int | None:
        if type(self.transport).__name__ != "TCPTransport":  # uvloop's own: no TLS, no compression
            return None
        return int(self.transport.get_extra_info("socket").fileno())

    def unread_s(self) -> float | None:
        """Seconds for which the peer of a stream has read nothing, see `PeerReads`; None where nobody can tell."""
        sock = self.transport.get_extra_info("socket")
        if self._reads is None or sock is None or self.is_closing:
            return None
        window = window_of(sock)
        return None if window is None else self._reads.look(self._loop.time(), window)

    def give_up_after(self, seconds: float) -> None:
        """Break the connection when the peer's machine acknowledges no bytes for this many seconds."""
        sock = self.transport.get_extra_info("socket")
        if sock is not None:
            give_up_after(sock, seconds)

    def write(self, data: bytes | bytearray) -> None:
        """Give bytes to the socket or its buffer; never waits."""
        self.traffic.sent += len(data)
        self.transport.write(data)

    def write_now(self, data: bytes | bytearray) -> bool:
        """As `write`. What the socket takes at once goes there at once: no copy, and nothing is left for the loop.

        From the login on, when the transport stays. Returns whether the socket has taken all; then it `takes_all`.
        """
        if self._lost or self.transport.is_closing():
            return False  # the number of its socket may be another's soon
        fd = self._fd
        if fd == _UNKNOWN:
            fd = self._fd = self._bare_fd()
        if fd is None or self.transport.get_write_buffer_size():
            self.write(data)
            return False
        size = len(data)
        self.traffic.sent += size
        try:
            taken = os.write(fd, data)
        except BlockingIOError:
            taken = 0
        except OSError:
            self.transport.write(data)  # meets it again, and ends the connection
            return False
        if taken == size:
            return True
        self.transport.write(memoryview(data)[taken:])
        return False

    def read_soon(self) -> bytes | None:
        """What the client sends within `_SOON_S`, past the transport; None if nothing comes, or nothing may be read.

        For a client that is all that there is to serve. Its end is left to the transport.
        """
        fd, transport = self._fd, self.transport
        if fd is None or fd == _UNKNOWN or transport.is_closing() or not transport.is_reading():
            return None
        until = time.perf_counter() + _SOON_S
        while time.perf_counter() < until:
            try:
                data = os.read(fd, _READ_BYTES)
            except BlockingIOError:
                continue
            except OSError:
                return None
            self.traffic.received += len(data)
            return data or None
        return None

    def send_error(self, error: ServerError) -> None:
        """Answer with an error. Some errors end the connection, and so does any error outside of an answer."""
        facts = {"peer": self.peer, "errno": error.errno, "error": error}
        log.info("%(peer)s: %(error)s", facts)
        match self.machine.state:
            case ServerState.ANSWERING:
                self.write(self.machine.send_error(error))
                if self.machine.is_closed:
                    self.close()
            case ServerState.DUMPING:
                self.write(self.machine.dump_error(error))
                self.close()
            case _:
                self.close()

    async def drain(self) -> None:
        """Wait until the write buffer has room.

        Raises `ConnectionError` when the connection ends, and with the reason if the socket takes no byte for
        net_write_timeout; the log has the reason then.
        """
        if self.is_closing:
            raise ConnectionResetError
        writable = self._writable
        if writable is None:
            await asyncio.sleep(0)  # serves others, although this socket takes everything
            return
        left = self.transport.get_write_buffer_size()
        while True:
            try:
                async with asyncio.timeout(self.net_write_timeout()):
                    await asyncio.shield(writable)
                return
            except TimeoutError:
                before, left = left, self.transport.get_write_buffer_size()
                if left < before:
                    continue  # a slow peer still takes bytes: one event may have a gigabyte
            reason = "it took nothing for net_write_timeout"
            log.warning("aborted %(peer)s: %(reason)s", {"peer": self.peer, "reason": reason})
            self.timed_out = True
            self.transport.abort()
            raise ConnectionAbortedError(reason)

    def pause_writing(self) -> None:
        """See `asyncio.Protocol`."""
        if self._writable is None:
            self._writable = self._loop.create_future()
        if self.machine.state is not ServerState.DUMPING:
            self.transport.pause_reading()  # a client that reads no answers may send no more

    def resume_writing(self) -> None:
        """See `asyncio.Protocol`."""
        if self._writable is not None:
            self._writable.set_result(None)
            self._writable = None
        if not self._lost:
            self._read_on()

    def hold(self, *, held: bool) -> None:
        """Stop reading from the socket, or go on (`held` False)."""
        self._held = held
        if self.is_closing:
            return
        if held:
            self.transport.pause_reading()
        else:
            self._read_on()

    @property
    def is_resting(self) -> bool:
        """Whether its turn is over: it goes on with the received bytes in the next round of the loop."""
        return self._resting

    def rest(self) -> None:
        """End the turn: stop reading, and go on in the next round of the loop (see `binlog_server.loop.turn`)."""
        if not self._resting:
            self._resting = True
            self.transport.pause_reading()
            self._loop.call_soon(self._rested)

    def _rested(self) -> None:
        self._resting = False
        if not self.is_closing:
            self._read_on()

    def _read_on(self) -> None:
        """Go on reading, if it is not held, resting or full: first with the bytes that came before the pause."""
        if self._may_read:
            self.go_on()
        if self._may_read and not self.is_closing:
            self.transport.resume_reading()

    @property
    def _may_read(self) -> bool:
        waits = self._writable is not None and self.machine.state is not ServerState.DUMPING
        return not (self._held or self._resting or waits)

    def lost(self) -> None:
        """The connection has ended."""
        self._lost = self.mute = True
        if self._linger is not None:
            self._linger.cancel()  # the timer would keep each ended connection in memory
        self.resume_writing()

    def abort(self) -> None:
        """End the connection at once; bytes in the write buffer are lost."""
        self.mute = True
        self.transport.abort()

    def close(self, linger_s: float = _LINGER_S) -> None:
        """Close the connection when the write buffer is sent, after `linger_s` seconds at the latest."""
        self.mute = True
        if not self.transport.is_closing():
            self.transport.close()
            self._linger = self._loop.call_later(linger_s, self.transport.abort)
