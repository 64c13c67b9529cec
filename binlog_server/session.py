"""One client on one socket: asyncio on this side, the protocol machine on the other."""

from __future__ import annotations

import asyncio
import logging
import socket
from typing import cast

from binlog_server.account import UserAccount, plain_address
from binlog_server.admin.account_sql import AccountSql
from binlog_server.admin.account_statements import IS_ABOUT_ACCOUNTS
from binlog_server.admin.answers import ResultSet, SqlSession
from binlog_server.connections import Connection
from binlog_server.dump import Dump, DumpRequest
from binlog_server.host import Host, new_salt
from binlog_server.idle import IdleTimer
from binlog_server.login import Login
from binlog_server.privileges import REPLICATION_SLAVE
from binlog_server.secrets_in_sql import log_text
from binlog_server.sql_commit.committer import QUICK_WORDS, Committer
from binlog_server.sql_commit.settings import login_variables
from binlog_server.tls import TlsLayer
from protocol.account_errors import EmptyQuery, QueryInterrupted
from protocol.connection.auth import certificate_proof
from protocol.connection.commands import (
    BinlogDump,
    Command,
    InitDatabase,
    Ping,
    Query,
    Quit,
    Refresh,
    RegisterSlave,
    ResetConnection,
    SetOption,
    Statistics,
    UnknownCommand,
)
from protocol.connection.handshake import SERVER_CAPABILITIES, Capability, LoginRequest
from protocol.connection.server import (
    AuthSwitchAnswered,
    LoginReceived,
    ServerConnection,
    TlsRequested,
)
from protocol.connection.server_states import ServerState
from protocol.errors import (
    AccessDenied,
    DuplicateServerId,
    PrivilegeRequired,
    ProtocolError,
    ServerError,
    TooManyConnections,
    UnknownCommandError,
)
from protocol.wire.packets import frame_packet
from protocol.wire.results import ok_payload

log = logging.getLogger(__name__)

WRITE_BUFFER_BYTES = 512 * 1024  # per client; what lies behind it waits in the store
_LINGER_S = 5.0  # how long a closed connection may take to accept its last bytes
_QUICK_OK = frame_packet(ok_payload(affected_rows=1), 1)[0]


class ClientSession(asyncio.Protocol):
    """Made for each connection that is accepted."""

    def __init__(self, server: Host) -> None:
        self._server = server
        self._loop = asyncio.get_running_loop()
        self._id = server.connections.next_id()
        self._machine = ServerConnection(
            connection_id=self._id,
            server_version=server.config.server_version,
            salt=new_salt(),
            capabilities=SERVER_CAPABILITIES | (Capability.SSL if server.tls else 0),
            max_allowed_packet=server.config.max_allowed_packet,
        )
        self._transport: asyncio.Transport
        self._connection: Connection
        self._user = ""
        self._address = ""  # without the port
        self._login = Login(server.users, server.failed_logins, server.connections, server.config)
        self._request: LoginRequest
        self._sql: SqlSession
        self._accounts: AccountSql
        self._heard = True  # something came since the idle timer has looked
        self._idle = IdleTimer(self._wait_timeout, self._was_heard, self._idle_for_too_long)
        self._committer: Committer | None = None  # from the login on
        self._pumping = False
        self._held = False
        self._mute = False  # no answer can be given any more
        self._login_timer: asyncio.TimerHandle | None = None
        self._dump: asyncio.Task[None] | None = None
        self._work: asyncio.Task[None] | None = None  # a statement that takes longer
        self._writable: asyncio.Future[None] | None = None  # set while the socket takes nothing
        self._lost = False
        self._tls: TlsLayer | None = None  # once the client has asked for it; the transport, too

    # asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports are not subclasses of asyncio's; they only behave alike.
        self._transport = transport = cast(asyncio.Transport, transport)
        transport.set_write_buffer_limits(high=WRITE_BUFFER_BYTES)
        peer = transport.get_extra_info("peername")
        self._connection = Connection(self._id, f"{peer[0]}:{peer[1]}" if peer else "", self)
        sock = transport.get_extra_info("socket")
        if sock is not None:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        self._address = plain_address(peer[0]) if peer else ""
        config = self._server.config
        refusal = self._login.greets(self._address)
        if len(self._server.connections) >= config.max_connections:
            refusal = TooManyConnections()
        if refusal is not None:
            self._refuse(refusal)
            return
        self._server.connections.add(self._connection)
        self._login_timer = self._loop.call_later(config.connect_timeout, self._login_timed_out)
        transport.write(self._machine.greeting())

    def data_received(self, data: bytes) -> None:
        self._heard = True
        if (
            data[5:12] in QUICK_WORDS
            and self._committer is not None
            and self._committer.quick(data)
        ):
            return
        try:
            self._machine.receive_data(data)
            if self._work is not None and not self._work.done():
                self.hold(held=True)  # it has to wait for its turn
            self._pump()
        except ProtocolError as error:
            self._give_up(error)

    def connection_lost(self, exc: Exception | None) -> None:
        self._lost = self._mute = True
        self._server.connections.remove(self._connection)
        self._idle.stop()
        if self._login_timer is not None:
            self._login_timer.cancel()
        if self._dump is not None:
            self._dump.cancel()
        if self._work is not None:
            self._work.cancel()
        if self._committer is not None:
            self._committer.close()
        self.resume_writing()

    def pause_writing(self) -> None:
        if self._writable is None:
            self._writable = self._loop.create_future()
        if self._machine.state is not ServerState.DUMPING:
            self._transport.pause_reading()  # who does not read answers gets to ask no more

    def resume_writing(self) -> None:
        if self._writable is not None:
            self._writable.set_result(None)
            self._writable = None
        if not self._lost and not self._held:
            self._transport.resume_reading()
            self._go_on()  # with what had come before reading was paused

    # Session of a TlsLayer

    def tls_started(self) -> None:
        """See `tls.Secured`."""
        self._machine.tls_started()

    def tls_failed(self, reason: str) -> None:
        """See `tls.Secured`."""
        log.warning("closed %s: TLS: %s", self._peer, reason)
        self._mute = True

    # Client of a committer

    def committed_quickly(self) -> None:
        """See `sql_commit.committer.Client`."""
        if not self._mute:
            self._transport.write(self._machine.send_quick(_QUICK_OK))
            if self._machine.buffered:
                self._go_on()

    def committed(self, affected_rows: int, *, leaves: bool = False) -> None:
        """See `sql_commit.committer.Client`."""
        if not self._mute:
            self._transport.write(self._machine.send_ok(affected_rows=affected_rows))
            if leaves:
                self._close()
            self._go_on()

    def refused(self, error: ServerError) -> None:
        """See `sql_commit.committer.Client`."""
        if not self._mute:
            self._send_error(error)
            self._go_on()

    def hold(self, *, held: bool) -> None:
        """See `sql_commit.committer.Client`."""
        self._held = held
        if self._lost or self._transport.is_closing():
            return
        if held:
            self._transport.pause_reading()
        elif self._writable is None:
            self._transport.resume_reading()
            self._go_on()

    # Sink of a dump

    def write(self, data: bytes | bytearray) -> None:
        """See `dump.Sink`."""
        self._transport.write(data)

    async def drain(self) -> None:
        """See `dump.Sink`. A replica that takes nothing for net_write_timeout is cut off."""
        if self._lost or self._transport.is_closing():
            raise ConnectionResetError
        writable = self._writable
        if writable is None:
            await asyncio.sleep(0)  # others get their turn although this socket takes everything
            return
        self._connection.state = "Writing to net"
        left = self._transport.get_write_buffer_size()
        while True:
            try:
                async with asyncio.timeout(self._net_write_timeout()):
                    await asyncio.shield(writable)
                return
            except TimeoutError:
                before, left = left, self._transport.get_write_buffer_size()
                if left < before:
                    continue  # slowly, but it takes: one event may have a gigabyte
            log.warning("aborted %s: it took nothing for net_write_timeout", self._peer)
            self._transport.abort()
            raise ConnectionAbortedError

    # Ending of a connection, from outside

    def end(self, error: ServerError | None) -> None:
        """See `connections.Ending`."""
        if self._dump is not None:
            self._dump.cancel()
            if error is not None and not self._machine.is_closed:
                self._transport.write(self._machine.dump_error(error))
        elif self._machine.state is ServerState.ANSWERING:
            if self._work is not None:
                self._work.cancel()  # its answer would come behind the last one
            self._transport.write(self._machine.send_error(QueryInterrupted()))
        self._close()

    def shut_down(self) -> None:
        """The server stops: a dump is ended by EOF, so that the replica reconnects."""
        if self._dump is not None:
            self._dump.cancel()
            if self._machine.state is ServerState.DUMPING:
                self._transport.write(self._machine.dump_end_eof())
        self._close()

    # The conversation

    def _go_on(self) -> None:
        """With commands that came while the last one was being answered."""
        if not self._pumping:
            try:
                self._pump()
            except ProtocolError as error:
                self._give_up(error)

    def _pump(self) -> None:
        self._pumping = True
        try:
            self._answer_all()
        finally:
            self._pumping = False

    def _answer_all(self) -> None:
        # Short commands can have long answers: who does not read them waits with the commands that came together.
        while not self._transport.is_closing() and self._writable is None:
            try:
                event = self._machine.next_event()
            except ServerError as error:
                self._send_error(error)
                continue
            match event:
                case None:
                    return
                case TlsRequested(handshake):
                    assert self._server.tls is not None
                    self._transport = self._tls = TlsLayer(
                        self._transport, self, self._server.tls.context
                    )
                    self._tls.start(handshake)
                case LoginReceived(request, needs_switch):
                    self._begin_login(request, needs_switch=needs_switch)
                case AuthSwitchAnswered(response):
                    self._log_in(response)
                case _:
                    self._answer(event)

    def _give_up(self, error: ProtocolError) -> None:
        log.warning("closed %s: %s", self._peer, error)
        if error.answer is not None:
            self._transport.write(self._machine.last_words(error.answer))
        self._close()

    def _begin_login(self, request: LoginRequest, *, needs_switch: bool) -> None:
        self._user, self._request = request.user, request
        switch = self._login.begin(
            request.user, self._address, self._machine.salt, needs_switch=needs_switch
        )
        if switch is not None:
            self._transport.write(self._machine.request_auth_switch(*switch))
        else:
            self._log_in(request.auth_response)

    def _log_in(self, response: bytes) -> None:
        try:
            account = self._login.finish(
                response,
                self._address,
                secured=self._tls is not None,
                certified=self._tls is not None and self._tls.has_client_certificate,
            )
            self._begin_session(account)
        except ServerError as error:
            self._refuse(error)
            return
        if self._login_timer is not None:
            self._login_timer.cancel()
        self._connection.account = account.name
        self._connection.user = self._user
        self._connection.now("Sleep", "")
        self._idle.start()
        self._transport.write(self._machine.accept_login(self._certificate_proof(account)))

    def _begin_session(self, account: UserAccount) -> None:
        server = self._server
        self._accounts = AccountSql(server.users, account, server.failed_logins.clear)
        self._sql = SqlSession(
            server,
            self._id,
            f"{self._user}@{self._address}",
            grants=account.grants,
            login=login_variables(self._request.charset),
        )
        self._committer = server.new_committer(self, self._machine, self._sql)
        if self._request.database:
            self._committer.use(_encoded(self._request.database))

    def _refuse(self, error: ServerError) -> None:
        log.warning("refused %s: %s", self._peer, error)
        self._transport.write(self._machine.reject_login(error))
        self._close()

    def _certificate_proof(self, account: UserAccount) -> bytes:
        tls = self._server.tls
        if self._tls is None or tls is None:
            return b""
        stored = account.credential.stored_bytes
        return certificate_proof(stored, self._machine.salt, tls.fingerprint)

    def _answer(self, command: Command) -> None:
        machine, write = self._machine, self._transport.write
        committer = self._committer
        assert committer is not None
        try:
            match command:
                case Query():
                    self._execute(command, committer)
                case InitDatabase(database):
                    committer.use(_encoded(database))
                    write(machine.send_ok())
                case Ping() | Refresh():
                    write(machine.send_ok())
                case ResetConnection():
                    self._sql.reset()
                    committer.reset()
                    write(machine.send_ok())
                case SetOption():
                    write(machine.send_eof())
                case Statistics():
                    write(machine.send_string(self._server.statistics()))
                case RegisterSlave():
                    if REPLICATION_SLAVE not in self._sql.grants:
                        raise AccessDenied(self._user, self._address, using_password=True)
                    self._connection.registered = command
                    write(machine.send_ok())
                case BinlogDump():
                    self._start_dump(command)
                case Quit():
                    self._close()
                case UnknownCommand(code):
                    log.warning("%s sent the unknown command 0x%02x", self._peer, code)
                    raise UnknownCommandError
        except ServerError as error:
            self._send_error(error)

    def _execute(self, query: Query, committer: Committer) -> None:
        text = query.text
        if not text.strip(b" \t\r\n;\0"):
            raise EmptyQuery
        if IS_ABOUT_ACCOUNTS.match(text) and self._accounts.is_for_here(text):
            result = self._accounts.execute(query.sql)
            if result is None:
                self._transport.write(self._machine.send_ok())
            else:
                self._transport.write(self._machine.send_result_set(result.columns, result.rows))
        elif not committer.execute(text):
            self._query(query.sql, committer)

    def _query(self, sql: str, committer: Committer) -> None:
        result = self._sql.execute(sql)
        if self._mute:  # it was KILL of this connection
            return
        self._idle.start()  # it may have set wait_timeout
        machine = self._machine
        if result is None:
            if not committer.settle():
                machine.warnings = self._sql.warning_count
                self._transport.write(machine.send_ok())
        elif isinstance(result, ResultSet):
            machine.warnings = self._sql.warning_count
            self._transport.write(machine.send_result_set(result.columns, result.rows))
        else:
            self._work = self._server.answer_later(
                result, self, machine, lambda: self._sql.warning_count
            )

    def _send_error(self, error: ServerError) -> None:
        log.info("%s: %s", self._peer, log_text(error))
        if not self._machine.is_closed:
            self._transport.write(self._machine.send_error(error))
        if self._machine.is_closed:
            self._close()

    def _start_dump(self, command: BinlogDump) -> None:
        skip_marked = self._sql.variables.get("skip_replication") == "ON"
        self._machine.start_dump()
        try:
            if REPLICATION_SLAVE not in self._sql.grants:
                raise PrivilegeRequired(REPLICATION_SLAVE)
            request = DumpRequest.of(command, self._sql.user_variables, skip_marked=skip_marked)
        except ServerError as error:
            log.warning("dump refused: %s: %s", self._peer, error)
            self._transport.write(self._machine.dump_error(error))
            self._close()
            return
        for older in self._server.connections.dumps_of(request.server_id):
            log.warning(
                "connection %d ends: server_id %d has connected again as connection %d",
                older.id,
                request.server_id,
                self._id,
            )
            older.ending.end(DuplicateServerId())
        self._connection.dump_server_id = request.server_id
        self._connection.now("Binlog Dump", "starting")
        log.info(
            "dump starts: %s, server_id %d, position '%s'",
            self._peer,
            request.server_id,
            request.position,
        )
        dump = self._server.new_dump(request, self._machine, self, self._connection)
        self._dump = self._loop.create_task(self._run_dump(dump))

    async def _run_dump(self, dump: Dump) -> None:
        try:
            await dump.run()
        except ConnectionError:
            pass  # said where it was noticed
        except Exception:
            log.exception("a bug ended the dump of %s", self._peer)
            raise
        finally:
            log.info("dump ends: %s", self._peer)
            self._close()

    # Helpers

    @property
    def _peer(self) -> str:
        user = f" ({self._user})" if self._user else ""
        return f"connection {self._id} from {self._connection.address}{user}"

    def _net_write_timeout(self) -> float:
        value = self._sql.variables.get("net_write_timeout", "")
        return max(1, int(value)) if value.isdecimal() else self._server.config.net_write_timeout

    def _wait_timeout(self) -> float:
        value = self._sql.variables.get("wait_timeout")
        return float(value or self._server.global_variables()["wait_timeout"])

    def _was_heard(self) -> bool:
        heard, self._heard = self._heard, False
        return heard or self._machine.state is not ServerState.READY

    def _idle_for_too_long(self) -> None:
        log.warning("closed %s: it said nothing for wait_timeout", self._peer)
        self._close()

    def _login_timed_out(self) -> None:
        log.warning("closed %s: no login within connect_timeout", self._peer)
        self._close()

    def _close(self) -> None:
        """Close when what was written is sent, but do not wait for a peer that does not read."""
        self._mute = True
        if not self._transport.is_closing():
            self._transport.close()
            self._loop.call_later(_LINGER_S, self._transport.abort)


def _encoded(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")
