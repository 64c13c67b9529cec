"""The client end of a connection, towards an upstream: requests out, bytes in, events out. No I/O.

Theory of operation. Feed every received byte to `receive_data()` and take `next_event()` until it
is None. First comes `GreetingReceived`; send `login()`, and `LoggedIn` follows (a switch of the
authentication plugin in between yields `AuthSwitchReceived`: send its `answer`). For TLS send
`tls_request()` first, do the handshake, and send the login inside. Then send one request at a time:
each is answered by `OkReceived`, `ErrorReceived` or `ResultReceived`. After `binlog_dump()` the
events of the stream follow, until `StreamEnded` or `ErrorReceived`: the machine is the source of a
`GroupStream` then. `conversation` does all that comes before.

Sequence numbers are checked everywhere. A `ProtocolError` closes the machine.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeVar

from binlog_protocol.connection.auth import NATIVE_PASSWORD, native_password_scramble
from binlog_protocol.connection.client_auth import auth_answer, proves_certificate
from binlog_protocol.connection.client_events import AuthSwitchReceived as AuthSwitchReceived
from binlog_protocol.connection.client_events import ClientEvent as ClientEvent
from binlog_protocol.connection.client_events import ErrorReceived as ErrorReceived
from binlog_protocol.connection.client_events import EventReceived as EventReceived
from binlog_protocol.connection.client_events import GreetingReceived as GreetingReceived
from binlog_protocol.connection.client_events import LoggedIn as LoggedIn
from binlog_protocol.connection.client_events import OkReceived as OkReceived
from binlog_protocol.connection.client_events import ResultReceived as ResultReceived
from binlog_protocol.connection.client_events import RowReceived as RowReceived
from binlog_protocol.connection.client_events import StreamEnded as StreamEnded
from binlog_protocol.connection.client_states import CLIENT_TRANSITIONS as CLIENT_TRANSITIONS
from binlog_protocol.connection.client_states import ClientState as ClientState
from binlog_protocol.connection.client_states import ClientStep
from binlog_protocol.connection.commands import BinlogDump, Ping, Query, Quit, RegisterSlave
from binlog_protocol.connection.handshake import (
    CHARSET_UTF8,
    REPLICA_CAPABILITIES,
    AuthSwitchRequest,
    Capability,
    Greeting,
    LoginRequest,
    TlsRequest,
)
from binlog_protocol.connection.machine import Machine
from binlog_protocol.connection.result_reader import ResultReader
from binlog_protocol.errors import ProtocolError
from binlog_protocol.groups.group_runs import GroupRun, TakenPart, take_part, take_run
from binlog_protocol.limits import (
    LOGIN_PACKET_BYTES_MAX,
    RESULT_BYTES_MAX,
    UPSTREAM_PACKET_BYTES_MAX,
)
from binlog_protocol.wire.gathered import Allocate, GatheredPayload
from binlog_protocol.wire.packets import PACKET_HEADER_SIZE, PacketReader, frame_packet
from binlog_protocol.wire.results import (
    EOF_MARK,
    ERROR_MARK,
    LOCAL_INFILE_MARK,
    OK_MARK,
    is_eof,
    parse_column_count,
    parse_eof,
    parse_error,
    parse_ok,
    parse_row_bytes,
)
from binlog_protocol.wire.semi_sync import SEQUENCE_AFTER_ACK, behind, parse_event

_S = ClientState
_Data = TypeVar("_Data", bound=bytes | bytearray | memoryview)
_BEFORE_LOGIN: Final = (_S.CONNECTED, _S.GREETED, _S.SECURED, _S.LOGGING_IN)


# What `next_event` returns when there is no event: more bytes are needed first.
NEED_DATA: Final = None


class ClientConnection:
    """One connection to an upstream; see the head of this file. Not for several threads."""

    def __init__(
        self,
        user: str,
        password: str,
        *,
        compress: bool = False,
        allocate: Allocate | None = None,
    ) -> None:
        """`compress`: if the server offers it. `allocate`: see `PacketReader`."""
        self._user = user
        self._password = password
        self._machine = Machine(CLIENT_TRANSITIONS, ClientState.CONNECTED)
        # The upstream is not trusted with more memory than its login dialogue needs, either.
        self._reader = PacketReader(LOGIN_PACKET_BYTES_MAX, allocate=allocate)
        self._seq = 0
        self._greeting: Greeting | None = None
        self._plugin = NATIVE_PASSWORD
        self._login_info = b""
        self._compress = compress
        self._capabilities = REPLICA_CAPABILITIES
        self.compressed = False
        """All bytes after the login are in compressed packets, for the caller to wrap: see `wire.compressed`."""
        self._result = ResultReader(0)
        self._row_by_row = False
        self.in_tls = False
        """Whether TLS keeps its bytes from changing on the way."""
        self.semi_sync = False
        """The packets of the stream are as `binlog_protocol.wire.semi_sync` says; to be set before the dump command."""

    @property
    def row_by_row(self) -> bool:
        """Whether rows come as `RowReceived` each, and `ResultReceived` behind the last one has none.

        There may be many, and each may be as large as the server sends any packet: they are not collected here.
        """
        return self._row_by_row

    @row_by_row.setter
    def row_by_row(self, wanted: bool) -> None:
        self._row_by_row = wanted
        self._reader.payload_bytes_max = UPSTREAM_PACKET_BYTES_MAX if wanted else RESULT_BYTES_MAX

    @property
    def state(self) -> ClientState:
        return self._machine.state

    @property
    def is_closed(self) -> bool:
        return self._machine.is_terminal

    @property
    def greeting(self) -> Greeting | None:
        """The greeting of the upstream; None before it came."""
        return self._greeting

    @property
    def unread(self) -> int:
        """Bytes that have come, and that no event has told of."""
        return self._reader.buffered

    @property
    def has_unread(self) -> bool:
        """Whether there are such bytes."""
        return self._reader.buffered > 0

    @property
    def holds_large(self) -> bool:
        """Whether `next_event` has much to do, and whoever calls it on an event loop better calls it in a thread."""
        return self._reader.holds_large

    @property
    def has_proof(self) -> bool:
        """Whether the OK of the login holds what may be a proof of the certificate."""
        return self._login_info[:1] == b"\x01"

    def proves_certificate(self, fingerprint: bytes) -> bool:
        """Whether the OK of the login speaks for the certificate with that SHA256; see `auth.certificate_proof`."""
        assert self._greeting is not None
        return proves_certificate(
            self._login_info, self._plugin, self._password, self._greeting.salt, fingerprint
        )

    # Requests

    def tls_request(self) -> bytes:
        """Ask for TLS; the handshake comes next, then the login. Only if the greeting offers it."""
        self._machine.advance(ClientStep.TLS_REQUESTED)
        self.in_tls = True
        data, self._seq = frame_packet(TlsRequest(self._capabilities).build(), self._seq)
        return data

    def login(self, attributes: dict[str, str] | None = None) -> bytes:
        """The login request, as a replica of 10.11 sends it."""
        self._machine.require(ClientStep.LOGIN_SENT)
        assert self._greeting is not None
        self._machine.advance(ClientStep.LOGIN_SENT)
        # A foreign plugin in the greeting is only the server's default: it will ask to switch.
        request = LoginRequest(
            self._user,
            native_password_scramble(self._password, self._greeting.salt),
            attributes=attributes or {},
            capabilities=self._capabilities | (Capability.SSL if self.in_tls else 0),
            charset=CHARSET_UTF8,
        )
        data, self._seq = frame_packet(request.build(), self._seq)
        return data

    def query(self, sql: str) -> bytes:
        return self._request(Query(sql).build())

    def ping(self) -> bytes:
        return self._request(Ping().build())

    def register_slave(
        self, server_id: int, host: str = "", port: int = 0, user: str = "", password: str = ""
    ) -> bytes:
        return self._request(RegisterSlave(server_id, host, user, password, port).build())

    def quit(self) -> bytes:
        """Closes; no answer comes."""
        self._machine.advance(ClientStep.QUIT_SENT)
        return frame_packet(Quit().build(), 0)[0]

    def binlog_dump(
        self, server_id: int, flags: int = 0, file: str = "", position: int = 4
    ) -> bytes:
        """The stream follows, one `EventReceived` after the other."""
        self._machine.advance(ClientStep.DUMP_SENT)
        self._reader.payload_bytes_max = UPSTREAM_PACKET_BYTES_MAX
        data, self._seq = frame_packet(BinlogDump(server_id, flags, file, position).build(), 0)
        return data

    def _request(self, payload: bytes) -> bytes:
        self._machine.advance(ClientStep.REQUEST_SENT)
        data, self._seq = frame_packet(payload, 0)
        return data

    # Receiving

    def receive_data(self, data: bytes | bytearray | memoryview) -> None:
        """Take bytes from the upstream; raises `ProtocolError` and closes."""
        self._take(self._reader.feed, data)

    @property
    def untaken(self) -> memoryview:
        """The bytes received that are in no event yet. See `lend_data`."""
        return self._reader.untaken

    @property
    def gathering(self) -> GatheredPayload | None:
        """See `PacketReader.gathering`."""
        return self._reader.gathering

    def lend_data(self, data: memoryview) -> None:
        """Take bytes without a copy: `data` begins with the bytes of `untaken`, and stays unchanged until more come."""
        self._take(self._reader.lend, data)

    def _take(self, into: Callable[[_Data], None], data: _Data) -> None:
        if self._machine.is_terminal:
            return
        try:
            into(data)
        except ProtocolError:
            self._fail()
            raise

    def next_event(self) -> ClientEvent | None:
        """The next event, or None (`NEED_DATA`); raises `ProtocolError` and closes."""
        if self.is_closed:
            return NEED_DATA
        try:
            while True:
                packet = self._reader.next_packet()
                if packet is None:
                    return NEED_DATA
                # Inside of compressed packets, which have numbers of their own, these begin anew at any place.
                numbered = not self.compressed or self._machine.state in _BEFORE_LOGIN
                if numbered and packet.seq != self._seq:
                    raise ProtocolError(f"packet has sequence number {packet.seq}, not {self._seq}")
                self._seq = packet.next_seq
                event = self._receive(packet.payload)
                if event is not None:
                    return event
        except ProtocolError:
            self._fail()
            raise

    def take_run(self, checksum_algorithm: int) -> GroupRun | None:
        """The groups that lie whole at the front of what was received of a stream, if that is so plain.

        Not in the middle of a group. None: `next_event` tells what there is.
        """
        window = self._reader.window()
        if window is None or self._machine.state is not _S.STREAMING:
            return None
        buffer, offset = window
        seq = self._seq
        if self.compressed and len(buffer) - offset >= PACKET_HEADER_SIZE:
            seq = buffer[offset + PACKET_HEADER_SIZE - 1]
        taken = take_run(buffer, offset, len(buffer), seq, checksum_algorithm, self.semi_sync)
        if taken is None:
            return None
        at, self._seq, run = taken
        self._reader.take_to(at)
        return run

    def take_part(self, checksum_algorithm: int) -> TakenPart | None:
        """The events at the front of the bytes received, in normal form, inside a group that is not standalone.

        None of them ends the group. None: `next_event` tells what there is.
        """
        window = self._reader.window()
        if window is None or self._machine.state is not _S.STREAMING:
            return None
        buffer, offset = window
        taken = take_part(
            buffer, offset, len(buffer), self._seq, checksum_algorithm, self.semi_sync
        )
        if taken is None:
            return None
        self._reader.take_to(taken.at)
        self._seq = taken.seq
        return taken

    def take_event(self) -> EventReceived | StreamEnded | None:
        """The next event of a stream, None before it is whole. Raises `RemoteError` if the upstream breaks off."""
        found = self.next_event()
        if found is None or isinstance(found, EventReceived):
            return found
        if isinstance(found, StreamEnded):
            return found
        if isinstance(found, ErrorReceived):
            raise found.error
        raise ProtocolError(f"{type(found).__name__} in a dump")

    def _receive(self, payload: bytes) -> ClientEvent | None:
        """One packet by the state; None inside a result set."""
        state = self._machine.state
        if not payload and state is not _S.ROWS:
            raise ProtocolError("empty packet")
        if state is _S.STREAMING:
            return self._stream_packet(payload)
        match state:
            case ClientState.CONNECTED:
                return self._greeting_packet(payload)
            case ClientState.LOGGING_IN:
                return self._login_packet(payload)
            case ClientState.WAITING:
                return self._answer_packet(payload)
            case ClientState.COLUMNS:
                self._column_packet(payload)
                return None
            case ClientState.ROWS:
                return self._row_packet(payload)
            case _:
                raise ProtocolError(f"the server speaks out of turn ({self.state.name})")

    def _greeting_packet(self, payload: bytes) -> ClientEvent:
        if payload[0] == ERROR_MARK:
            return self._final_error(payload)
        self._greeting = Greeting.parse(payload)
        if self._compress and self._greeting.capabilities & Capability.COMPRESS:
            self.compressed = True
            self._reader.numbered = False
            self._capabilities |= Capability.COMPRESS
        self._machine.advance(ClientStep.GREETING_RECEIVED)
        return GreetingReceived(self._greeting)

    def _login_packet(self, payload: bytes) -> ClientEvent:
        mark = payload[0]
        if mark == OK_MARK:
            self._login_info = parse_ok(payload).info
            self._reader.payload_bytes_max = RESULT_BYTES_MAX
            self._machine.advance(ClientStep.LOGIN_ACCEPTED)
            return LoggedIn()
        if mark == ERROR_MARK:
            return self._final_error(payload)
        if mark == EOF_MARK:
            return self._auth_switch(payload)
        raise ProtocolError(f"packet {mark:#04x} in answer to the login")

    def _auth_switch(self, payload: bytes) -> AuthSwitchReceived:
        request = AuthSwitchRequest.parse(payload)
        response = auth_answer(request.plugin, self._password, request.salt)
        self._plugin = request.plugin
        self._machine.advance(ClientStep.SWITCH_ANSWERED)
        data, self._seq = frame_packet(response, self._seq)
        return AuthSwitchReceived(data)

    def _answer_packet(self, payload: bytes) -> ClientEvent | None:
        mark = payload[0]
        if mark == OK_MARK:
            ok = parse_ok(payload)
            self._machine.advance(ClientStep.ANSWER_RECEIVED)
            return OkReceived(ok)
        if mark == ERROR_MARK:
            return self._request_error(payload)
        if mark == LOCAL_INFILE_MARK:
            raise ProtocolError("the upstream asks for a local file")
        self._result = ResultReader(parse_column_count(payload))
        self._machine.advance(ClientStep.RESULT_BEGUN)
        return None

    def _column_packet(self, payload: bytes) -> None:
        if not self._result.take_column(payload):
            self._machine.advance(ClientStep.COLUMNS_ENDED)

    def _row_packet(self, payload: bytes) -> ClientEvent | None:
        if payload[:1] == b"\xff":
            return self._request_error(payload)
        if is_eof(payload):
            parse_eof(payload)
            self._machine.advance(ClientStep.ANSWER_RECEIVED)
            done, self._result = self._result, ResultReader(0)
            return ResultReceived(done.columns, done.rows)
        if self._row_by_row:
            return RowReceived(parse_row_bytes(payload, len(self._result.columns)))
        self._result.take_row(payload)
        return None

    def _stream_packet(self, payload: bytes) -> ClientEvent:
        mark = payload[0]
        if mark == OK_MARK:
            return (
                self._semi_sync_event(payload)
                if self.semi_sync
                else EventReceived(behind(payload, 1))
            )
        if mark == ERROR_MARK:
            return self._final_error(payload)
        if is_eof(payload):
            self._machine.advance(ClientStep.STREAM_ENDED)
            return StreamEnded()
        raise ProtocolError(f"packet {mark:#04x} in the stream")

    def _semi_sync_event(self, payload: bytes) -> EventReceived:
        event, ack_wanted = parse_event(payload)
        if ack_wanted:
            self._seq = SEQUENCE_AFTER_ACK
        return EventReceived(event, ack_wanted)

    def _request_error(self, payload: bytes) -> ErrorReceived:
        error = parse_error(payload)
        self._machine.advance(ClientStep.ANSWER_RECEIVED)
        return ErrorReceived(error)

    def _final_error(self, payload: bytes) -> ErrorReceived:
        error = parse_error(payload)
        self._machine.advance(ClientStep.FAILED)
        return ErrorReceived(error)

    def _fail(self) -> None:
        self._machine.advance(ClientStep.FAILED)
        self._reader.discard()
