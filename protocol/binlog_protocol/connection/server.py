"""The server end of one connection: bytes in, events out; answers in, bytes out. No I/O.

Theory of operation. The caller sends `greeting()`, feeds every byte it receives to
`receive_data()` and takes `next_event()` until that is None (more bytes are needed, or the last
event wants its answer first). Every answer is built by a `send_*` method, which knows the sequence
number. `start_dump()` turns the connection into a stream: what the client still writes (pings,
COM_QUIT) is dropped unread, as MariaDB does, and the caller advances `dump_sequence` by the
packets it sends. With `start_semi_sync()` acknowledgements are read: `take_acks()`.

Before the login the client may send one small packet and nothing else.

A `ServerError` out of `next_event()` is an answer to give with `send_error()`; the connection
goes on unless it is `fatal`. After a `ProtocolError` the machine is closed; its `answer`, if any,
may be sent by `last_words()` before the socket is closed.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from binlog_protocol.connection.auth import NATIVE_PASSWORD
from binlog_protocol.connection.commands import Command, CommandCode, Quit, parse_command
from binlog_protocol.connection.handshake import (
    CHARSET_UTF8,
    SERVER_CAPABILITIES,
    AuthSwitchRequest,
    Capability,
    Greeting,
    LoginRequest,
    TlsRequest,
)
from binlog_protocol.connection.machine import Machine
from binlog_protocol.connection.server_events import AuthSwitchAnswered as AuthSwitchAnswered
from binlog_protocol.connection.server_events import LoginReceived as LoginReceived
from binlog_protocol.connection.server_events import ServerEvent as ServerEvent
from binlog_protocol.connection.server_events import TlsRequested as TlsRequested
from binlog_protocol.connection.server_states import (
    BEFORE_LOGIN,
    DEAF,
    LISTENING,
    SERVER_TRANSITIONS,
    ServerState,
    ServerStep,
)
from binlog_protocol.errors import PacketsOutOfOrder, PacketTooLarge, ProtocolError, ServerError
from binlog_protocol.limits import (
    COMMAND_PACKET_BYTES_MAX,
    LOGIN_PACKET_BYTES_MAX,
    PACKET_PAYLOAD_MAX,
)
from binlog_protocol.wire.gathered import Allocate
from binlog_protocol.wire.packets import (
    PACKET_HEADER_SIZE,
    Packet,
    PacketReader,
    frame_packet,
    frame_packets,
)
from binlog_protocol.wire.results import (
    STATUS_AUTOCOMMIT,
    UTF8,
    Column,
    Row,
    column_payloads,
    eof_payload,
    error_payload,
    ok_payload,
    result_set_payloads,
    row_payload,
)
from binlog_protocol.wire.semi_sync import ACK_BYTES_MAX, Ack
from binlog_protocol.wire.semi_sync import STATUS as SEMI_SYNC_STATUS

_S = ServerState

_LOGIN_BUFFER_BYTES_MAX: Final = LOGIN_PACKET_BYTES_MAX + PACKET_HEADER_SIZE
_QUIT: Final = Quit().build()
_READY: Final = ServerState.READY
_QUERY_HEAD: Final = bytes((0, CommandCode.QUERY))  # sequence number 0, then the command
# What `next_event` returns when there is no event: more bytes are needed first.
NEED_DATA: Final = None


class ServerConnection:
    """One client as the server sees it; see the head of this file. Not for several threads."""

    def __init__(
        self,
        *,
        connection_id: int,
        server_version: str,
        salt: bytes,
        charset: int = CHARSET_UTF8,
        capabilities: int = SERVER_CAPABILITIES,
        max_allowed_packet: int = COMMAND_PACKET_BYTES_MAX,
        allocate: Allocate = bytearray,
    ) -> None:
        """`salt`: 20 random bytes, none of them NUL. Raises ValueError otherwise.
        `max_allowed_packet`: bytes; a command has to be smaller, as in MariaDB.
        `allocate`: where large commands are gathered.
        """
        self.salt = salt
        self.connection_id = connection_id
        self._greeting = Greeting(
            server_version, connection_id, salt, capabilities, charset=charset
        )
        self._offers_tls = bool(capabilities & Capability.SSL)
        self._machine = Machine(SERVER_TRANSITIONS, ServerState.OPENED)
        self._reader = PacketReader(LOGIN_PACKET_BYTES_MAX, allocate=allocate)
        self._seq = 0
        self._max_allowed_packet = max_allowed_packet
        # SERVER_STATUS flags that answers carry; the session keeps them up to date.
        self.status = STATUS_AUTOCOMMIT
        # What the client is told of the texts in result sets.
        self.result_charset = UTF8
        # What the next OK or result set tells; to be set before each that has some.
        self.warnings = 0
        self._compressed = False
        self._command_bytes = 0
        self._dump_sequence = 1
        self._semi_sync = False

    @property
    def state(self) -> ServerState:
        return self._machine.state

    @property
    def is_closed(self) -> bool:
        return self._machine.is_terminal

    @property
    def dump_sequence(self) -> int:
        """The sequence number of the next packet of the stream.

        Always 1 in the compressed protocol: nobody looks at it there, MariaDB begins anew with each compressed packet,
        too, and so the same bytes serve all replicas.
        """
        return self._dump_sequence

    @dump_sequence.setter
    def dump_sequence(self, sequence: int) -> None:
        self._dump_sequence = 1 if self._compressed else sequence

    @property
    def buffered(self) -> int:
        """Bytes that wait for `next_event`."""
        return self._reader.buffered

    @property
    def held(self) -> int:
        """Bytes that wait, and those of the command that is being answered."""
        return self._reader.buffered + self._command_bytes * (self.state is _S.ANSWERING)

    # Receiving

    def receive_data(self, data: bytes | bytearray | memoryview) -> None:
        """Take bytes from the client; raises `ProtocolError` (`PacketTooLarge`) and closes."""
        if self.state in DEAF and not (self._semi_sync and self.state is _S.DUMPING):
            return
        try:
            self._reader.feed(data)
            if self.state in BEFORE_LOGIN and self._reader.buffered > _LOGIN_BUFFER_BYTES_MAX:
                raise ProtocolError("the client sends ahead before it has logged in")
        except ProtocolError as error:
            self.give_up(error)
            raise

    def next_event(self) -> ServerEvent | None:
        """The next event, or None (`NEED_DATA`).

        Raises `ServerError` for a command that makes no sense: answer it with `send_error`.
        Raises `ProtocolError` when the client broke the protocol; the machine is then closed.
        """
        if self.state not in LISTENING:
            return NEED_DATA
        try:
            packet = self._reader.next_packet()
            if packet is None:
                return NEED_DATA
            self._check_sequence(packet)
            self._seq = packet.next_seq
            if self.state is ServerState.GREETED or self.state is ServerState.SECURED:
                return self._login(packet.payload)
            if self.state is ServerState.SWITCHING:
                self._machine.advance(ServerStep.SWITCH_ANSWERED)
                return AuthSwitchAnswered(packet.payload)
            return self._command(packet.payload)
        except ProtocolError as error:
            self.give_up(error)
            raise

    def take_query(self, data: bytes) -> bytes | None:
        """The statement, if `data` is exactly one packet with COM_QUERY that may come now: the hot path.

        None if it is anything else; then `receive_data` and `next_event` are to see it. The answer is `send_quick` or
        any other.
        """
        size = len(data) - PACKET_HEADER_SIZE
        if (
            self._machine.state is not _READY
            or data[3:5] != _QUERY_HEAD
            or int.from_bytes(data[:3], "little") != size
            or size >= self._max_allowed_packet
            or size >= PACKET_PAYLOAD_MAX
            or self._reader.buffered
        ):
            return None
        self._machine.advance(ServerStep.COMMAND_RECEIVED)
        self._command_bytes = size
        self._seq = 1
        return data[PACKET_HEADER_SIZE + 1 :]

    def _login(self, payload: bytes) -> TlsRequested | LoginReceived:
        if self.state is ServerState.GREETED and self._offers_tls and TlsRequest.is_one(payload):
            self._machine.advance(ServerStep.TLS_REQUESTED)
            return TlsRequested(self._reader.take_rest())
        request = LoginRequest.parse(payload, secured=self.state is ServerState.SECURED)
        self._machine.advance(ServerStep.LOGIN_RECEIVED)
        plugin = request.plugin
        return LoginReceived(request, plugin is not None and plugin != NATIVE_PASSWORD)

    def _command(self, payload: bytes) -> Command:
        if payload == _QUIT:
            self._machine.advance(ServerStep.QUIT_RECEIVED)
            return Quit()
        self._machine.advance(ServerStep.COMMAND_RECEIVED)
        self._command_bytes = len(payload)
        return parse_command(payload)

    def _check_sequence(self, packet: Packet) -> None:
        # A command begins a new conversation; before that one packet follows the other.
        expected = 0 if self.state is ServerState.READY else self._seq
        if packet.seq != expected:
            self._seq = packet.next_seq
            raise ProtocolError(
                f"packet has sequence number {packet.seq}, not {expected}", PacketsOutOfOrder()
            )

    # Login

    def greeting(self) -> bytes:
        self._machine.advance(ServerStep.GREETING_SENT)
        return self._frame(self._greeting.build())

    def tls_started(self) -> None:
        """The handshake is done: the login comes next, decrypted."""
        self._machine.advance(ServerStep.TLS_STARTED)

    def accept_login(self, proof: bytes = b"") -> bytes:
        """The OK that ends the login; commands may now be almost as large as max_allowed_packet.

        `proof`: see `auth.certificate_proof`.
        """
        self._machine.advance(ServerStep.LOGIN_ACCEPTED)
        self._reader.payload_bytes_max = self._max_allowed_packet - 1
        return self._frame(ok_payload(info=proof))

    def start_compression(self) -> bytes:
        """Behind the OK of a login with COMPRESS: the caller compresses all from now on, and feeds what was in packets.

        Returns what has come already, raw.
        """
        self._machine.require(ServerStep.COMMAND_RECEIVED)
        self._compressed = True
        return self._reader.take_rest()

    def reject_login(self, error: ServerError) -> bytes:
        """The packet that refuses a login; also in place of the greeting (too many connections)."""
        self._machine.advance(ServerStep.LOGIN_REJECTED)
        return self._frame(error_payload(error))

    def request_auth_switch(
        self, plugin: str = NATIVE_PASSWORD, challenge: bytes | None = None
    ) -> bytes:
        """Ask for another plugin; `challenge` is what it answers to, or None for the salt of the greeting."""
        self._machine.advance(ServerStep.SWITCH_SENT)
        return self._frame(AuthSwitchRequest(plugin, challenge or self.salt).build())

    # Answers to a command

    def send_ok(self, *, affected_rows: int = 0, info: bytes = b"") -> bytes:
        warnings, self.warnings = self.warnings, 0
        return self._answer(
            ok_payload(
                affected_rows=affected_rows, status=self.status, warnings=warnings, info=info
            )
        )

    def send_quick(self, frame: bytes) -> bytes:
        """A whole packet with sequence number 1, made before, as the answer to `take_query`."""
        self._machine.advance(ServerStep.ANSWER_SENT)
        return frame

    def send_error(self, error: ServerError) -> bytes:
        """The connection is closed after a fatal error."""
        self._machine.require(ServerStep.ANSWER_SENT)
        data = self._frame(error_payload(error))
        self._machine.advance(ServerStep.FAILED if error.fatal else ServerStep.ANSWER_SENT)
        return data

    def send_eof(self) -> bytes:
        """The answer to COM_SET_OPTION."""
        return self._answer(eof_payload(status=self.status))

    def send_string(self, text: str) -> bytes:
        """The answer to COM_STATISTICS."""
        return self._answer(text.encode())

    def send_result_set(self, columns: Sequence[Column], rows: Iterable[Row]) -> bytes:
        """Raises ValueError when a row does not fit the columns."""
        self._machine.require(ServerStep.ANSWER_SENT)
        warnings, self.warnings = self.warnings, 0
        payloads = result_set_payloads(
            columns, rows, status=self.status, warnings=warnings, charset=self.result_charset
        )
        self._machine.advance(ServerStep.ANSWER_SENT)
        data, self._seq = frame_packets(payloads, self._seq)
        return data

    # A result set in parts: `begin_result_set`, `more_rows`, and `end_result_set` or `send_error`

    def begin_result_set(self, columns: Sequence[Column]) -> bytes:
        """Send the columns of a result set; rows follow."""
        self._machine.require(ServerStep.ANSWER_SENT)
        payloads = column_payloads(columns, status=self.status, charset=self.result_charset)
        data, self._seq = frame_packets(payloads, self._seq)
        return data

    def more_rows(self, rows: Iterable[Row]) -> bytes:
        """Some rows, of as many values as there are columns."""
        self._machine.require(ServerStep.ANSWER_SENT)
        data, self._seq = frame_packets([row_payload(row) for row in rows], self._seq)
        return data

    def end_result_set(self) -> bytes:
        """End the result set behind its last row."""
        return self._answer(eof_payload(status=self.status))

    # Dump

    def start_dump(self) -> None:
        """The answer to a dump command is a stream: nothing is sent by this call itself."""
        self._machine.advance(ServerStep.DUMP_STARTED)
        self._reader.discard()
        self.dump_sequence = self._seq

    def start_semi_sync(self) -> None:
        """Begin semi-sync, in a dump before its first event: packets as in `binlog_protocol.wire.semi_sync`."""
        self._machine.require(ServerStep.DUMP_ENDED)
        self._semi_sync = True
        self._reader.payload_bytes_max = ACK_BYTES_MAX

    def take_acks(self, packets_max: int) -> tuple[list[Ack], bool]:
        """Acknowledgements of a dump with semi-sync; and whether `packets_max` packets came, so there may be more.

        Raises `ProtocolError` and closes.
        """
        acks: list[Ack] = []
        try:
            for _ in range(packets_max):
                packet = self._reader.next_packet() if self.state is _S.DUMPING else None
                if packet is None:
                    return acks, False
                ack = Ack.parse(packet.payload)
                if ack is not None:
                    acks.append(ack)
        except ProtocolError:
            self.give_up()
            raise
        return acks, True

    def dump_event(self, event: bytes) -> bytes:
        """One event with its status byte; for groups see `binlog_protocol.wire.event_frames`."""
        self._machine.require(ServerStep.DUMP_ENDED)
        return self._frame_in_dump((SEMI_SYNC_STATUS if self._semi_sync else b"\0") + event)

    def dump_end_eof(self) -> bytes:
        """The EOF of a shutdown, a reached UNTIL or a non-blocking dump; closes."""
        self._machine.advance(ServerStep.DUMP_ENDED)
        return self._frame_in_dump(eof_payload())

    def dump_error(self, error: ServerError) -> bytes:
        """An error inside the stream; closes."""
        self._machine.advance(ServerStep.DUMP_ENDED)
        return self._frame_in_dump(error_payload(error))

    # Ending

    def last_words(self, error: ServerError) -> bytes:
        """An ERR packet after a `ProtocolError` closed the machine, or instead of the answer to what comes next."""
        self._seq = 1 if self.state is _S.READY else self._seq
        return self._frame(error_payload(error))

    def give_up(self, error: ProtocolError | None = None) -> None:
        """Close, and forget the bytes that have come. The last words answer the packet that was too large."""
        self._seq = error.next_seq if isinstance(error, PacketTooLarge) else self._seq
        if not self.is_closed:
            self._machine.advance(ServerStep.FAILED)
        self._reader.discard()

    def _answer(self, payload: bytes) -> bytes:
        self._machine.advance(ServerStep.ANSWER_SENT)
        return self._frame(payload)

    def _frame(self, payload: bytes) -> bytes:
        data, self._seq = frame_packet(payload, self._seq)
        return data

    def _frame_in_dump(self, payload: bytes) -> bytes:
        data, self.dump_sequence = frame_packet(payload, self.dump_sequence)
        return data
