"""The server end of one connection: bytes in, events out; answers in, bytes out. No I/O.

Theory of operation. The caller sends `greeting()`, feeds every byte it receives to
`receive_data()` and takes `next_event()` until that is None (more bytes are needed, or the last
event wants its answer first). Every answer is built by a `send_*` method, which knows the sequence
number. `start_dump()` turns the connection into a stream: what the client still writes (pings,
COM_QUIT) is dropped unread, as MariaDB does, and the caller advances `dump_sequence` by the
packets it sends. With `start_semi_sync()` acknowledgements are read: `take_acks()`.

A query of several statements is answered one by one: the caller executes the first and gives the rest to
`put_back()`; behind the first one's answer, if that is no error, it comes as the next event. Results of
prepared statements are sent in the binary protocol, by the `Reply` that the caller sets. COM_CHANGE_USER
leads back to the login.

Before the login the client may send one small packet and nothing else.

A `ServerError` out of `next_event()` is an answer to give with `send_error()`; the connection
goes on unless it is `fatal`. After a `ProtocolError` the machine is closed; its `answer`, if any,
may be sent by `last_words()` before the socket is closed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Final

from binlog_protocol.connection.auth import NATIVE_PASSWORD
from binlog_protocol.connection.commands import Command, Quit, parse_command
from binlog_protocol.connection.handshake import (
    CHARSET_UTF8,
    MARIADB_CAPABILITIES,
    SERVER_CAPABILITIES,
    AuthSwitchRequest,
    Capability,
    Greeting,
    LoginRequest,
    MariadbCapability,
    TlsRequest,
)
from binlog_protocol.connection.machine import Machine
from binlog_protocol.connection.server_states import (
    BEFORE_LOGIN,
    DEAF,
    LISTENING,
    SERVER_TRANSITIONS,
    ServerState,
    ServerStep,
)
from binlog_protocol.dataclass import dataclass
from binlog_protocol.errors import PacketsOutOfOrder, PacketTooLarge, ProtocolError, ServerError
from binlog_protocol.events.column_type import ColumnType
from binlog_protocol.limits import (
    COMMAND_PACKET_BYTES_MAX,
    LOGIN_PACKET_BYTES_MAX,
    PACKET_PAYLOAD_MAX,
)
from binlog_protocol.values import lenenc_bytes, lenenc_int
from binlog_protocol.wire.binary_rows import BinaryRows
from binlog_protocol.wire.event_frames import EventFrames
from binlog_protocol.wire.gathered import Allocate
from binlog_protocol.wire.packets import (
    PACKET_HEADER_SIZE,
    Packet,
    PacketReader,
    frame_packet,
    frame_packets,
)
from binlog_protocol.wire.plain_changes import STATEMENT_AT
from binlog_protocol.wire.results import (
    CLASSIC,
    STATUS_AUTOCOMMIT,
    STATUS_CURSOR_EXISTS,
    STATUS_LAST_ROW_SENT,
    STATUS_MORE_RESULTS,
    UTF8,
    AnswerForm,
    Column,
    Row,
    eof_payload,
    error_payload,
    ok_payload,
    row_payload,
)
from binlog_protocol.wire.semi_sync import ACK_BYTES_MAX, Ack
from binlog_protocol.wire.semi_sync import STATUS as SEMI_SYNC_STATUS

_S = ServerState

_LOGIN_BUFFER_BYTES_MAX: Final = LOGIN_PACKET_BYTES_MAX + PACKET_HEADER_SIZE
_QUIT: Final = Quit().build()
_READY: Final = ServerState.READY
# What `next_event` returns when there is no event: more bytes are needed first.
NEED_DATA: Final = None
_PARAMETER: Final = Column.binary("?", ColumnType.NULL, 0, null=True)
_SEQUENCES: Final = 256
_ROW_SENT_BYTES: Final = 256  # of memory for a row of a cursor, about
_NO_STATE: Final = b""


class RowCursor:
    """The rows of a prepared statement's result that are still to be fetched."""

    def __init__(self, encode: Callable[[Row], bytes], rows: Iterable[Row]) -> None:
        self._encode = encode
        self._rows = list(rows)
        self._rows.reverse()
        self.held = sum(_row_bytes(row) for row in self._rows)
        """About as many bytes of memory."""

    def take(self, count: int) -> list[bytes]:
        """The next rows, `count` of them at most."""
        taken = [self._rows.pop() for _ in range(min(count, len(self._rows)))]
        self.held -= sum(_row_bytes(row) for row in taken)
        return [self._encode(row) for row in taken]


def _out_of_order(seq: int, expected: int) -> ProtocolError:
    return ProtocolError(
        f"packet has sequence number {seq % _SEQUENCES}, not {expected}", PacketsOutOfOrder()
    )


def _row_bytes(row: Row) -> int:
    return _ROW_SENT_BYTES + sum(len(v) for v in row if isinstance(v, (str, bytes)))


class Reply:
    """How the results of one prepared statement are sent: in the binary protocol.

    Attributes:
        definitions: the columns that the client was sent last, which need not be sent again.
        wants_cursor: the next result set is to be kept for COM_STMT_FETCH.
        wants_units: the answer to a bulk is a result set with a row for each of its rows.
        cursor: one that was kept so.
    """

    def __init__(self, definitions: bytes = b"") -> None:
        self.definitions = definitions
        self.wants_cursor = False
        self.wants_units = False
        self.cursor: RowCursor | None = None


@dataclass(frozen=True, slots=True)
class TlsRequested:
    """The client wants TLS: what follows is its handshake, of which `handshake` has come already.

    The caller calls `tls_started` when it is done, and feeds what was decrypted from then on.
    """

    handshake: bytes


@dataclass(frozen=True, slots=True)
class LoginReceived:
    """A login: to be answered by `accept_login`, `reject_login` or `request_auth_switch`.

    `needs_switch`: the client used another plugin than the one in the greeting, so its response
    proves nothing; it is to be asked again.
    """

    request: LoginRequest
    needs_switch: bool


@dataclass(frozen=True, slots=True)
class AuthSwitchAnswered:
    """The client's answer to `request_auth_switch`; decided as `LoginReceived`."""

    auth_response: bytes


@dataclass(frozen=True, slots=True)
class NextStatement:
    """The statements of a query from `start` on, behind those that are answered already."""

    text: bytes
    start: int


ServerEvent = TlsRequested | LoginReceived | AuthSwitchAnswered | Command | NextStatement


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
        mariadb_capabilities: int = MARIADB_CAPABILITIES,
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
            server_version, connection_id, salt, capabilities, mariadb_capabilities, charset=charset
        )
        self._offers_tls = bool(capabilities & Capability.SSL)
        self._machine = Machine(SERVER_TRANSITIONS, ServerState.OPENED)
        self._reader = PacketReader(LOGIN_PACKET_BYTES_MAX, allocate=allocate)
        self._is_fed = False  # the reader was given something, which may lie there still
        self._seq = 0
        self._max_allowed_packet = max_allowed_packet
        # SERVER_STATUS flags that answers carry; the session keeps them up to date.
        self.status = STATUS_AUTOCOMMIT
        # In which texts of result sets are sent.
        self.result_charset = UTF8
        # What the next OK or result set tells; to be set before each that has some.
        self.warnings = 0
        # Gives the changes of the session's state that are not told yet, for clients with SESSION_TRACK.
        self.take_changes: Callable[[], bytes] = lambda: _NO_STATE
        # Called when a command that has an answer has all of it.
        self.answered: Callable[[], None] = lambda: None
        # Set for the answer to an EXECUTE.
        self.reply: Reply | None = None
        # The capabilities that both sides have; none before the login.
        self.capabilities = 0
        self.mariadb_capabilities = 0
        self._form = CLASSIC
        self._encode: Callable[[Row], bytes] = row_payload  # of the result set that is being sent
        self._rest: NextStatement | None = None  # behind the one that is being answered
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
        held = self._reader.buffered if self._is_fed else 0
        return held if self._rest is None else held + len(self._rest.text)

    @property
    def is_within_packet(self) -> bool:
        """Whether a packet has come in part, with nothing in front of it that waits."""
        return self._rest is None and self._reader.buffered > 0

    @property
    def held(self) -> int:
        """Bytes that wait, and those of the command that is being answered."""
        return self.buffered + self._command_bytes * (self.state is _S.ANSWERING)

    # Receiving

    def receive_data(self, data: bytes | bytearray | memoryview) -> None:
        """Take bytes from the client; raises `ProtocolError` (`PacketTooLarge`) and closes."""
        if self.state in DEAF and not (self._semi_sync and self.state is _S.DUMPING):
            return
        self._is_fed = True
        try:
            self._reader.feed(data)
            if self.state in BEFORE_LOGIN and self._reader.buffered > _LOGIN_BUFFER_BYTES_MAX:
                raise ProtocolError("the client sends ahead before it has logged in")
        except PacketTooLarge as error:
            # Whatever speaks another protocol is told so: MariaDB looks at the number of a packet before its size.
            if self.state in BEFORE_LOGIN and error.next_seq != (self._seq + 1) % _SEQUENCES:
                self.give_up()
                raise _out_of_order(error.next_seq - 1, self._seq) from None
            self.give_up(error)
            raise
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
        if self._rest is not None:
            rest, self._rest = self._rest, None
            self._machine.advance(ServerStep.COMMAND_RECEIVED)
            return rest
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

    @property
    def counts_found(self) -> bool:
        """Whether the client wants the number of rows that an UPDATE has met, changed or not."""
        return bool(self.capabilities & Capability.FOUND_ROWS)

    def take_plain(self, data: bytes) -> bytes | None:
        """The statement of a packet that `is_plain_change`, if it may come now: the hot path.

        None if it may not; then `receive_data` and `next_event` are to see it. The answer is `sent_quick` or any other.
        """
        size = len(data) - PACKET_HEADER_SIZE
        if not self._may_take(size):
            return None
        self._machine.advance(ServerStep.COMMAND_RECEIVED)
        self._command_bytes = size
        self._seq = 1
        self.reply = None
        return data[STATEMENT_AT:]

    def _may_take(self, size: int) -> bool:
        if self._is_fed:
            self._is_fed = self._reader.buffered > 0
        return (
            self._machine.state is _READY
            and not self._is_fed
            and size < self._max_allowed_packet
            and self._rest is None
        )

    def is_whole(self, data: bytes) -> bool:
        """Whether `data`, of five bytes or more, is exactly one packet with a command that may come now."""
        size = len(data) - PACKET_HEADER_SIZE
        return (
            not data[3]
            and int.from_bytes(data[:3], "little") == size
            and size < PACKET_PAYLOAD_MAX
            and self._may_take(size)
        )

    def take_whole(self, data: bytes) -> None:
        """Take the command that `is_whole`. The answer is `sent_quick` or any other."""
        self._machine.advance(ServerStep.COMMAND_RECEIVED)
        self._command_bytes = len(data) - PACKET_HEADER_SIZE
        self._seq = 1
        self.reply = None

    def _login(self, payload: bytes) -> TlsRequested | LoginReceived:
        if self.state is ServerState.GREETED and self._offers_tls and TlsRequest.is_one(payload):
            self._machine.advance(ServerStep.TLS_REQUESTED)
            return TlsRequested(self._reader.take_rest())
        request = LoginRequest.parse(payload, secured=self.state is ServerState.SECURED)
        self._machine.advance(ServerStep.LOGIN_RECEIVED)
        self._agree(request)
        plugin = request.plugin
        return LoginReceived(request, plugin is not None and plugin != NATIVE_PASSWORD)

    def _agree(self, request: LoginRequest) -> None:
        """Take the capabilities that both sides have."""
        self.capabilities = request.capabilities & self._greeting.capabilities
        if not request.capabilities & Capability.MYSQL:
            self.mariadb_capabilities = (
                request.mariadb_capabilities & self._greeting.mariadb_capabilities
            )
        self._form = AnswerForm(
            bool(self.capabilities & Capability.DEPRECATE_EOF),
            bool(self.capabilities & Capability.SESSION_TRACK),
            bool(self.mariadb_capabilities & MariadbCapability.EXTENDED_METADATA),
            bool(self.mariadb_capabilities & MariadbCapability.CACHE_METADATA),
        )

    def _command(self, payload: bytes) -> Command:
        if payload == _QUIT:
            self._machine.advance(ServerStep.QUIT_RECEIVED)
            return Quit()
        self._machine.advance(ServerStep.COMMAND_RECEIVED)
        self._command_bytes = len(payload)
        self.reply = None
        has_attributes = bool(self.capabilities & Capability.CONNECT_ATTRS)
        return parse_command(payload, has_attributes=has_attributes)

    def _check_sequence(self, packet: Packet) -> None:
        # Inside of compressed packets, which have numbers of their own, MariaDB does not look.
        if self._compressed:
            return
        # A command begins a new conversation; before that one packet follows the other.
        expected = 0 if self.state is ServerState.READY else self._seq
        if packet.seq != expected:
            self._seq = expected  # that of the answer, as in MariaDB
            raise _out_of_order(packet.seq, expected)

    # Login

    def greeting(self) -> bytes:
        self._machine.advance(ServerStep.GREETING_SENT)
        return self._frame(self._greeting.build())

    def tls_started(self) -> None:
        """The handshake is done: the login comes next, decrypted."""
        self._machine.advance(ServerStep.TLS_STARTED)

    def accept_login(self, proof: bytes = b"", state: bytes = b"") -> bytes:
        """The OK that ends the login; commands may now be almost as large as max_allowed_packet.

        `proof`: see `auth.certificate_proof`. `state`: the session's, for clients with SESSION_TRACK.
        """
        self._machine.advance(ServerStep.LOGIN_ACCEPTED)
        self._reader.payload_bytes_max = self._max_allowed_packet - 1
        state = state if self._form.tracks_state else _NO_STATE
        return self._frame(ok_payload(status=self.status, info=proof, state=state))

    def change_user(self) -> None:
        """COM_CHANGE_USER has come: it is decided as a login. The salt stays, as with MariaDB, whose C library counts
        on it."""
        self._machine.advance(ServerStep.USER_CHANGES)

    def start_compression(self) -> bytes:
        """Behind the OK of a login with COMPRESS: the caller compresses all from now on, and feeds what was in packets.

        Returns what has come already, raw.
        """
        self._machine.require(ServerStep.COMMAND_RECEIVED)
        self._compressed = True
        self._reader.numbered = False
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

    def send_ok(self, *, affected_rows: int = 0, insert_id: int = 0, info: bytes = b"") -> bytes:
        warnings, self.warnings = self.warnings, 0
        return self._answer(
            ok_payload(
                affected_rows=affected_rows,
                insert_id=insert_id,
                status=self._status,
                warnings=warnings,
                info=info,
                state=self._changes(),
            )
        )

    def sent_quick(self) -> None:
        """The answer to `take_plain` was a whole packet with sequence number 1, made before."""
        self._machine.advance(ServerStep.ANSWER_SENT)  # as `_finish`
        self.answered()

    def send_error(self, error: ServerError) -> bytes:
        """The connection is closed after a fatal error. Statements behind the failed one are forgotten."""
        self._machine.require(ServerStep.ANSWER_SENT)
        self._rest = None
        data = self._frame(error_payload(error))
        if error.fatal:
            self._machine.advance(ServerStep.FAILED)
        else:
            self._finish()
        return data

    def send_nothing(self) -> None:
        """The command has no answer."""
        self._machine.advance(ServerStep.ANSWER_SENT)

    def send_eof(self) -> bytes:
        """The answer to COM_SET_OPTION and COM_DEBUG."""
        return self._answer(eof_payload(status=self.status))

    def send_string(self, text: str) -> bytes:
        """The answer to COM_STATISTICS."""
        return self._answer(text.encode())

    def put_back(self, text: bytes, start: int) -> None:
        """The statements behind the one that is being answered: they come next, unless that one fails."""
        self._machine.require(ServerStep.ANSWER_SENT)
        self._rest = NextStatement(text, start)

    # Result sets. In parts: `begin_result_set`, `more_rows`, and `end_result_set` or `send_error`

    def send_result_set(self, columns: Sequence[Column], rows: Iterable[Row]) -> bytes:
        """Raises ValueError when a row does not fit the columns."""
        self._machine.require(ServerStep.ANSWER_SENT)
        reply = self.reply
        if reply is not None and reply.wants_cursor:
            reply.cursor = RowCursor(self._encoder(columns), rows)
            reply.definitions = b""  # those of a cursor are always sent
            head = self._head(columns)
            return self._framed([*head, self._end(STATUS_CURSOR_EXISTS)], ends=True)
        count = len(columns)
        encode = self._encoder(columns)
        payloads = []
        for row in rows:
            if len(row) != count:
                raise ValueError(f"row of {len(row)} values for {count} columns")
            payloads.append(encode(row))
        data = self.begin_result_set(columns)
        return data + self._framed([*payloads, self._end()], ends=True)

    def begin_result_set(self, columns: Sequence[Column]) -> bytes:
        """Send the columns of a result set; rows follow."""
        self._machine.require(ServerStep.ANSWER_SENT)
        payloads = self._head(columns)
        if not self._form.deprecates_eof:
            payloads.append(eof_payload(status=self._status))
        self._encode = self._encoder(columns)
        return self._framed(payloads)

    def more_rows(self, rows: Iterable[Row]) -> bytes:
        """Some rows, of as many values as there are columns."""
        self._machine.require(ServerStep.ANSWER_SENT)
        return self._framed([self._encode(row) for row in rows])

    def end_result_set(self) -> bytes:
        """End the result set behind its last row."""
        return self._framed([self._end()], ends=True)

    def send_definitions(self, columns: Sequence[Column]) -> bytes:
        """The answer to COM_FIELD_LIST: definitions, each with the default NULL, without a count."""
        payloads = [definition + b"\xfb" for definition in self._definitions(columns)]
        return self._framed([*payloads, self._end()], ends=True)

    def _encoder(self, columns: Sequence[Column]) -> Callable[[Row], bytes]:
        encode = row_payload if self.reply is None else BinaryRows(columns).payload
        return self.result_charset.rows(columns, encode)

    def _head(self, columns: Sequence[Column]) -> list[bytes]:
        """The column count and the definitions; these are left out if the client has them."""
        definitions = self._definitions(columns)
        count = lenenc_int(len(columns))
        if not self._form.caches_metadata:
            return [count, *definitions]
        known = b"".join(map(lenenc_bytes, definitions))
        if self.reply is not None:
            if self.reply.definitions == known:
                return [count + b"\0"]
            self.reply.definitions = known
        return [count + b"\1", *definitions]

    def _definitions(self, columns: Sequence[Column]) -> list[bytes]:
        extended, charset = self._form.extended_metadata, self.result_charset
        return [column.sent_in(charset).build(charset, extended=extended) for column in columns]

    def _end(self, status: int = 0) -> bytes:
        """What stands behind the last row."""
        warnings, self.warnings = self.warnings, 0
        status |= self._status
        if self._form.deprecates_eof:
            return ok_payload(
                status=status, warnings=warnings, state=self._changes(), ends_rows=True
            )
        return eof_payload(status=status, warnings=warnings)

    # Prepared statements

    def send_prepared(
        self, number: int, columns: Sequence[Column], parameters: int
    ) -> tuple[bytes, Reply]:
        """The answer to COM_STMT_PREPARE, and how results of the statement are to be sent."""
        self._machine.require(ServerStep.ANSWER_SENT)
        warnings, self.warnings = self.warnings, 0
        head = b"".join(
            (
                b"\0",
                number.to_bytes(4, "little"),
                len(columns).to_bytes(2, "little"),
                parameters.to_bytes(2, "little"),
                b"\0",
                warnings.to_bytes(2, "little"),
            )
        )
        parts = [self._frame(head)]
        end = [] if self._form.deprecates_eof else [eof_payload(status=self._status)]
        if parameters:
            parts += [self._parameters(parameters), self._framed(end)]
        definitions = self._definitions(columns)
        if columns:
            parts.append(self._framed([*definitions, *end]))
        self._finish()
        return b"".join(parts), Reply(b"".join(map(lenenc_bytes, definitions)))

    def _parameters(self, count: int) -> bytes:
        """The definitions of so many parameters. They are alike: after 256 the packets are the same again."""
        payload = _PARAMETER.build(extended=self._form.extended_metadata)
        block, _ = frame_packets([payload] * min(count, _SEQUENCES), self._seq)
        self._seq = (self._seq + count) % _SEQUENCES
        size = count * (len(payload) + PACKET_HEADER_SIZE)
        return (block * (count // _SEQUENCES + 1))[:size]

    def send_fetched(self, cursor: RowCursor, count: int) -> tuple[bytes, bool]:
        """The answer to COM_STMT_FETCH, and whether the cursor is at its end."""
        self._machine.require(ServerStep.ANSWER_SENT)
        payloads = cursor.take(count)
        is_end = len(payloads) < count
        status = STATUS_LAST_ROW_SENT if is_end else STATUS_CURSOR_EXISTS
        return self._framed([*payloads, self._end(status)], ends=True), is_end

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

    def dump_frames(self, frames: EventFrames) -> bytearray:
        """Packets of the stream that are shared by many, as this one numbers them; the next ones follow them.

        Not to be changed.
        """
        sequence = self._dump_sequence
        if not self._compressed:
            self._dump_sequence = frames.sequence_after(sequence)
        return frames.at_sequence(sequence)

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
        self._rest = None

    @property
    def _status(self) -> int:
        return self.status if self._rest is None else self.status | STATUS_MORE_RESULTS

    def _changes(self) -> bytes:
        return self.take_changes() if self._form.tracks_state else _NO_STATE

    def _finish(self) -> None:
        """The command is answered."""
        self._machine.advance(ServerStep.ANSWER_SENT)
        self.answered()

    def _answer(self, payload: bytes) -> bytes:
        self._finish()
        return self._frame(payload)

    def _framed(self, payloads: list[bytes], *, ends: bool = False) -> bytes:
        """Frame some payloads of an answer; `ends`: it has no more."""
        if ends:
            self._finish()
        data, self._seq = frame_packets(payloads, self._seq)
        return data

    def _frame(self, payload: bytes) -> bytes:
        data, self._seq = frame_packet(payload, self._seq)
        return data

    def _frame_in_dump(self, payload: bytes) -> bytes:
        data, self.dump_sequence = frame_packet(payload, self.dump_sequence)
        return data
