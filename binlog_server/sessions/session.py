"""One client on one socket: asyncio on this side, the protocol machine on the other; from the greeting to the login."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import replace
from typing import Final, cast

from binlog_protocol.connection.auth import certificate_proof
from binlog_protocol.connection.commands import ChangeUser
from binlog_protocol.connection.handshake import SERVER_CAPABILITIES, Capability, LoginRequest
from binlog_protocol.connection.server import (
    AuthSwitchAnswered,
    LoginReceived,
    ServerConnection,
    ServerEvent,
    TlsRequested,
)
from binlog_protocol.connection.server_states import ServerState
from binlog_protocol.dump.target import split_name
from binlog_protocol.errors import ProtocolError, ServerError, TooManyConnections
from binlog_protocol.wire.packets import PACKET_HEADER_SIZE

from binlog_server.accounts.account import UserAccount, plain_address
from binlog_server.connections.channel import ANSWER_BUFFER_BYTES, Channel
from binlog_server.connections.compression import CompressionLayer
from binlog_server.connections.connections import Connection
from binlog_server.connections.login import Login
from binlog_server.connections.session_memory import FREE_BYTES
from binlog_server.connections.statement_counts import StatementCounts
from binlog_server.connections.tcp_options import keep_alive
from binlog_server.connections.tls import TlsLayer
from binlog_server.loop.turn import Turn
from binlog_server.process.allocation import untouched
from binlog_server.process.logs import Peer
from binlog_server.sessions.conversation import Conversation
from binlog_server.sessions.host import Host, new_salt

log = logging.getLogger(__name__)

_USER_CHARS_MAX = 128  # as of MariaDB, which cuts what is longer, too

# Statements of one client in a turn of the loop: two milliseconds of those that each wait for a sync.
_IN_A_ROW: Final = 16


class ClientSession(asyncio.Protocol):
    """Made for each connection that is accepted."""

    takes_quickly = True
    """Whether simple statements are committed without a look at the rest of the conversation."""

    def __init__(self, server: Host, *, version: str = "", lacking: int = 0) -> None:
        """`version` and `lacking` are what a greeting claims otherwise: another version, no such capabilities."""
        self._server = server
        self._id = server.connections.next_id()
        self._machine = ServerConnection(
            connection_id=self._id,
            server_version=version or server.config.server_version,
            salt=new_salt(),
            capabilities=(SERVER_CAPABILITIES | (Capability.SSL if server.tls else 0)) & ~lacking,
            max_allowed_packet=server.config.max_allowed_packet,
            allocate=untouched,
        )
        self._channel: Channel
        self._connection: Connection
        self._user = ""
        self._address = ""  # without the port
        self._login = Login(server.users, server.failed_logins, server.connections, server.config)
        self._login_timer: asyncio.TimerHandle | None = None
        self._request: LoginRequest
        self._tls: TlsLayer | None = None  # once the client has asked for it
        self._fingerprint = b""  # of the certificate that it has got
        self._conversation: Conversation | None = None  # from the login on
        self._layer: CompressionLayer | None = None
        self._pumping = False
        self._is_counted = False  # in the memory of all sessions
        self._has_asked = False  # for a login

    # --- asyncio.Protocol ---

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports are not subclasses of asyncio's; they only behave alike.
        transport = cast(asyncio.Transport, transport)
        self._channel = Channel(transport, self._machine, self._describe, self._go_on)
        peer = transport.get_extra_info("peername")
        self._connection = Connection(
            self._id,
            f"{peer[0]}:{peer[1]}" if peer else "",
            self,
            traffic=self._channel.traffic,
            counts=StatementCounts(self._server.connections.asked),
            unsent=lambda: self._channel.untaken,
        )
        sock = transport.get_extra_info("socket")
        if sock is not None:
            keep_alive(sock, self._server.config)
        self._address = plain_address(peer[0]) if peer else ""
        refusal = self._login.greets(self._address)
        if refusal is not None:
            self._refuse(refusal)
            return
        self._make_room()
        self._login_timer = asyncio.get_running_loop().call_later(
            self._server.config.connect_timeout, self._login_timed_out
        )
        self._greet()

    def _greet(self) -> None:
        self._channel.transport.write(self._machine.greeting())

    def _make_room(self) -> None:
        """Count this connection among those before their login; beyond the limit `Crowd` chooses one to close."""
        connections = self._server.connections
        limit = self._server.config.max_connections
        leaves = connections.pending.add(self._connection, self._address, limit)
        connections.add(self._connection)
        if leaves is not None:
            connections.too_many += 1
            leaves.ending.end(TooManyConnections())

    def data_received(self, data: bytes) -> None:
        conversation = self._conversation
        self._channel.traffic.received += len(data)
        if conversation is not None and self.takes_quickly and conversation.quick(data):
            if not conversation.has_next_soon:
                return
            following = self._commit_following(conversation)
            if following is None:
                return
            data = following
        try:
            self._machine.receive_data(data)
            if conversation is not None:
                conversation.received()
            self._pump()
            if self._conversation is not None:  # another one behind COM_CHANGE_USER
                self._conversation.taken_in()
                self.holds_more()
        except ProtocolError as error:
            self._give_up(error)

    def _commit_following(self, conversation: Conversation) -> bytes | None:
        """Commit what the one client that there is sends as soon as it is answered: to ask its socket costs less than
        to sleep until something comes. Returns bytes that are no such statement; None if nothing more has come.
        """
        for _ in range(_IN_A_ROW):
            data = self._channel.read_soon()
            if data is None:
                return None
            if not (self.takes_quickly and conversation.quick(data)):
                return data
            if not conversation.has_next_soon:
                return None
        return None

    def holds_more(self) -> None:
        """Or less: to be told when it may be much. See `session_memory`."""
        if self._conversation is None or self._machine.state is ServerState.DUMPING:
            size = 0
        else:
            size = self._machine.held + (self._channel.untaken if self._channel.is_full else 0)
            if self._layer is not None:
                size += self._layer.held
        if self._conversation is not None:
            size += self._conversation.held
        if size > FREE_BYTES or self._is_counted:
            self._is_counted = size > FREE_BYTES
            self._server.session_memory.holds(self, size)

    @property
    def id(self) -> int:
        """The connection's."""
        return self._id

    @property
    def account(self) -> str:
        """See `connections.session_memory.LargeSession`."""
        return self._connection.account

    def drop(self, error: ServerError) -> None:
        """See `connections.session_memory.LargeSession`."""
        channel = self._channel
        log.warning("closed %s: %s", channel.peer, error)
        self._is_counted = False
        if self._machine.state is ServerState.DUMPING:
            self.end(error)  # it is told behind a whole event
            return
        if self._conversation is not None:
            self._conversation.cancel(str(error))
        if channel.is_full:
            channel.abort()
        else:
            channel.write(self._machine.last_words(error))
            channel.close()
        self._machine.give_up()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._is_counted:
            self._is_counted = False
            self._server.session_memory.holds(self, 0)
        connections = self._server.connections
        connections.remove(self._connection)
        if self._conversation is None:
            connections.aborted_connects += 1
            connections.aborted_early += not self._has_asked
        else:
            connections.aborted_clients += not self._conversation.has_quit
        # TCP may notice it first: see `tcp_options`.
        connections.write_timeouts += self._channel.timed_out or isinstance(exc, TimeoutError)
        if self._login_timer is not None:
            self._login_timer.cancel()
        if self._conversation is not None:
            self._conversation.lost(exc)
        self._channel.lost()
        # Session, machine and layers refer to each other: what they hold would stay until garbage is looked for.
        self._machine.give_up()
        if self._layer is not None:
            self._layer.give_up()

    def pause_writing(self) -> None:
        self._channel.pause_writing()
        # Later: whoever writes now is in the middle of an answer.
        asyncio.get_running_loop().call_soon(self.holds_more)

    def resume_writing(self) -> None:
        self._channel.resume_writing()

    # --- session of a TlsLayer ---

    def tls_started(self) -> None:
        """See `connections.tls.SecuredSession`."""
        self._machine.tls_started()
        self._connection.uses_tls = True
        self._server.connections.tls_finished += 1

    def tls_failed(self, reason: str) -> None:
        """See `connections.tls.SecuredSession`."""
        log.warning("closed %s: TLS: %s", self._channel.peer, reason)
        if self._conversation is not None:
            self._conversation.cancel(f"TLS: {reason}")
        self._channel.mute = True

    # --- session of a CompressionLayer ---

    def compression_failed(self, error: ProtocolError) -> None:
        """See `connections.compression.CompressedSession`."""
        self._give_up(error)

    # --- ending, from outside ---

    def end(self, error: ServerError | None) -> None:
        """See `connections.connections.Ending`."""
        if self._conversation is not None:
            self._conversation.end(error)
            return
        if error is not None and self._machine.state is ServerState.GREETED:
            self._channel.write(self._machine.last_words(error))
        self._channel.close()

    def interrupt(self) -> None:
        """See `connections.connections.Ending`."""
        if self._conversation is not None:
            self._conversation.interrupt()

    def shut_down(self) -> None:
        """See `connections.connections.Ending`."""
        if self._conversation is not None:
            self._conversation.shut_down()
        else:
            self._channel.close()

    # --- what came ---

    def _go_on(self) -> None:
        """With commands that came while the last one was being answered."""
        if not self._pumping and not self._channel.is_resting:
            try:
                if self._conversation is not None:
                    self._conversation.take_acks()
                self._pump()
            except ProtocolError as error:
                self._give_up(error)
        if self._is_counted:
            self.holds_more()

    def _pump(self) -> None:
        self._pumping = True
        try:
            self._answer_all()
        finally:
            self._pumping = False

    def _answer_all(self) -> None:
        # Short commands can have long answers: who does not read them waits with the commands that came together.
        channel = self._channel
        turn = Turn()
        while not channel.transport.is_closing() and not channel.is_full:
            if turn.is_over and self._machine.buffered:
                channel.rest()
                return
            try:
                event = self._machine.next_event()
            except ServerError as error:
                channel.send_error(error)
                continue
            if event is None:
                return
            self._answer(event)

    def _answer(self, event: ServerEvent) -> None:
        channel = self._channel
        match event:
            case TlsRequested(handshake):
                assert self._server.tls is not None
                self._fingerprint = self._server.tls.fingerprint
                self._server.connections.tls_accepts += 1
                channel.transport = self._tls = TlsLayer(
                    channel.transport, self, self._server.tls.context
                )
                self._tls.start(handshake)
            case LoginReceived(request, needs_switch):
                self._begin_login(request, needs_switch=needs_switch)
            case AuthSwitchAnswered(response):
                self._log_in(response)
            case ChangeUser(request):
                self._change_user(request)
            case _:
                assert self._conversation is not None
                self._conversation.answer(event)

    def _give_up(self, error: ProtocolError) -> None:
        log.warning("closed %s: %s", self._channel.peer, error)
        if error.answer is not None:
            self._channel.write(self._machine.last_words(error.answer))
        if self._conversation is not None:
            self._conversation.cancel(str(error))
        self._channel.close()

    # --- login ---

    def _begin_login(self, request: LoginRequest, *, needs_switch: bool) -> None:
        user, target = request.user, None
        if not self._server.users.of(user):
            user, target = split_name(user)
        # No account has a longer name, and what is quoted of it fills no log.
        request = replace(request, user=user[:_USER_CHARS_MAX])
        self._connection.target = target
        self._user, self._request, self._has_asked = request.user, request, True
        switch = self._login.begin(
            request.user, self._address, self._machine.salt, needs_switch=needs_switch
        )
        if switch is not None:
            self._channel.write(self._machine.request_auth_switch(*switch))
        else:
            self._log_in(request.auth_response)

    def _change_user(self, request: LoginRequest) -> None:
        """COM_CHANGE_USER: the session ends, and a login begins; the connection stays."""
        connection, server = self._connection, self._server
        for name in ("Questions", "Queries", "Com_admin_commands"):
            connection.counts.count(name)
        if self._conversation is not None:
            self._conversation.leave("COM_CHANGE_USER")
        self._conversation = None
        connection.forget_login()
        self._machine.change_user()
        self._login = Login(
            server.users, server.failed_logins, server.connections, server.config, again=True
        )
        self._login_timer = asyncio.get_running_loop().call_later(
            server.config.connect_timeout, self._login_timed_out
        )
        request = replace(request, capabilities=self._request.capabilities)
        self._begin_login(request, needs_switch=True)

    def _log_in(self, response: bytes) -> None:
        try:
            account = self._login.finish(
                response,
                self._address,
                secured=self._tls is not None,
                certified=self._tls is not None and self._tls.has_client_certificate,
            )
            self._conversation = conversation = Conversation(
                self._server,
                self._channel,
                self._connection,
                account,
                self._request,
                self._address,
                self.holds_more,
            )
        except ServerError as error:
            self._refuse(error)
            return
        if self._login_timer is not None:
            self._login_timer.cancel()
        self._server.connections.pending.remove(self._connection)
        self._connection.account = account.name
        self._connection.policy = account.replica
        self._connection.user = self._user
        self._connection.now("Sleep", "")
        proof = self._certificate_proof(account)
        state = conversation.state_at_login(again=self._login.again)
        self._channel.write(self._machine.accept_login(proof, state))
        if self._request.capabilities & Capability.COMPRESS and self._layer is None:
            self._compress()

    def _compress(self) -> None:
        channel, machine = self._channel, self._machine
        channel.transport = self._layer = layer = CompressionLayer(
            channel.transport,
            self,
            self._server.compressor,
            lambda: machine.state is ServerState.READY,
            payload_bytes_max=self._server.config.max_allowed_packet + PACKET_HEADER_SIZE,
            write_buffer_bytes=ANSWER_BUFFER_BYTES,
        )
        layer.start(machine.start_compression())

    def _refuse(self, error: ServerError) -> None:
        log.warning("refused %s: %s", self._channel.peer, error)
        self._channel.write(self._machine.reject_login(error))
        self._channel.close()

    def _certificate_proof(self, account: UserAccount) -> bytes:
        if self._tls is None:
            return b""
        stored = account.credential.stored_bytes
        return certificate_proof(stored, self._machine.salt, self._fingerprint)

    def _login_timed_out(self) -> None:
        log.warning("closed %s: no login within connect_timeout", self._channel.peer)
        self._channel.close()

    def _describe(self) -> Peer:
        return Peer(self._id, self._connection.address, self._user)
