"""What a client says once it has logged in, and the answers."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from time import monotonic
from typing import Any, Final, TypeVar

from binlog_protocol.connection.commands import (
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
    StatisticsCommand,
    UnknownCommand,
)
from binlog_protocol.connection.handshake import LoginRequest
from binlog_protocol.connection.server_states import ServerState
from binlog_protocol.errors import AccessDenied, ServerError, SqlSyntaxError, UnknownCommandError
from binlog_protocol.errors.account_errors import ConnectionKilled, EmptyQuery, QueryInterrupted
from binlog_protocol.sql.tokens import first_words
from binlog_protocol.wire.packets import frame_packet
from binlog_protocol.wire.results import ok_payload

from binlog_server.accounts.account import UserAccount
from binlog_server.connections.channel import Channel
from binlog_server.connections.connections import Connection
from binlog_server.connections.tls import tls_status
from binlog_server.dumps.coordinates import coordinates_of
from binlog_server.loop.defects import internal_error
from binlog_server.sessions.dump_session import DumpSession
from binlog_server.sessions.host import Host
from binlog_server.sessions.idle import IdleTimer
from binlog_server.sql.account_sql import AccountSql
from binlog_server.sql.account_statements import (
    AccountStatement,
    is_about_accounts,
    parse_account_statement,
)
from binlog_server.sql.needed_privileges import PRIVILEGES
from binlog_server.sql.parser import parse
from binlog_server.sql.secrets_in_sql import SHOWN_CHARS, shown_error, shown_text
from binlog_server.sql.session_settings import login_variables, result_charset
from binlog_server.sql.sql_session import SqlSession
from binlog_server.sql.statement_kind import HEAD_BYTES_MAX
from binlog_server.sql.statements import Statement
from binlog_server.sql.tokens import LOOP_CHARS_MAX, NEAR_CHARS, STATEMENT_CHARS_MAX
from binlog_server.sql.view import Later, ResultSet, RowStream, Wait, Work
from binlog_server.sql_commit.committer import QUICK_WORDS

log = logging.getLogger(__name__)

T = TypeVar("T")

_WAITS_FOR_REPLICAS: Final = "Waiting for semi-sync ACK from slave"
_WAITS_FOR_GTIDS: Final = "Waiting in MASTER_GTID_WAIT() (primary waiter)"
_SAID_END: Final = 5 + SHOWN_CHARS + 1  # of a packet: behind its head and the command
_QUICK_OK: Final = frame_packet(ok_payload(affected_rows=1), 1)[0]


class Conversation:
    """Of one session, from its login on. The `Client` of its committer and of statements that take longer."""

    def __init__(
        self,
        server: Host,
        channel: Channel,
        connection: Connection,
        account: UserAccount,
        request: LoginRequest,
        address: str,
    ) -> None:
        """Raises `ServerError` for a database that cannot be. `address`: the client's, without the port."""
        self._server = server
        self._channel = channel
        self._machine = channel.machine
        self._connection = connection
        self._user = request.user
        self._address = address
        self._accounts = AccountSql(
            server.users, account, server.failed_logins.clear, server.connections.set_policy
        )
        self.sql = SqlSession(
            server,
            connection.id,
            f"{request.user}@{address}",
            account.name,
            grants=account.grants,
            login=login_variables(request.charset),
            status=tls_status(channel.transport.get_extra_info("ssl_object")),
            coordinates=coordinates_of(account.replica.style),
        )
        self.committer = server.new_committer(self, self._machine, self.sql)
        connection.database = self._database
        connection.running = self._running
        if request.database:
            self.committer.use(_encoded(request.database))
        self._dump: DumpSession | None = None
        self._work: asyncio.Future[Any] | None = None  # a statement that takes longer
        self._computed: asyncio.Future[Any] | None = None  # what a statement begins with
        self._ends_early = False  # it only reads, or may wait for long
        self._said = b""  # the beginning of the last statement
        self._heard = True  # something came since the idle timer has looked
        self._idle = IdleTimer(self._silence_allowed, self._was_heard, self._idle_for_too_long)
        self._idle.start()

    # --- from the session ---

    def quick(self, data: bytes) -> bool:
        """Take what came, if it is one simple statement; False: then nothing has happened."""
        self._heard = True
        try:
            if data[5:12] not in QUICK_WORDS or not self.committer.quick(data):
                return False
            self._said = data[5:_SAID_END]
            self._connection.since = monotonic()
            return True
        except Exception as error:  # noqa: BLE001 - logged there
            self._send_error(internal_error(error, self._channel.peer))
            return True

    def received(self) -> None:
        """More has come. What comes while a statement runs has to wait for its turn. Raises `ProtocolError`."""
        self.take_acks()
        if self._work is not None and not self._work.done():
            self.hold(held=True)

    def take_acks(self) -> None:
        """Of a dump, as many as a turn allows. Raises `ProtocolError`."""
        if self._dump is not None and self._dump.received():
            self._channel.rest()

    def taken_in(self) -> None:
        """What has come was answered. Who has begun a packet must go on with it within net_read_timeout."""
        if self._is_within_a_packet:
            self._idle.start()

    def answer(self, command: Command) -> None:
        """Answer it, or begin to."""
        try:
            self._answer(command)
        except Exception as error:  # noqa: BLE001 - logged there
            if not isinstance(command, Query):
                self.sql.begin()  # only their errors are told
            if isinstance(error, ServerError):
                self._send_error(error)
            elif not self._channel.mute:
                self._send_error(internal_error(error, self._channel.peer))

    def lost(self, reason: Exception | None) -> None:
        """The connection has ended. A reason that is no `ConnectionError`: the peer has vanished.

        One that closes its socket is told as None, as a reset or as a broken pipe: by what was on its way just then.
        """
        said = "the replica has gone"
        if reason is not None and not isinstance(reason, ConnectionError):
            log.warning("lost %s: %s", self._channel.peer, reason)
            said = f"lost: {reason}"
        self._idle.stop()
        self.sql.forget()
        self.cancel(said)

    def cancel(self, reason: str) -> None:
        """What runs is to end. `reason`: for the log."""
        if self._dump is not None:
            self._dump.cancel(reason)
        if self._work is not None:
            self._work.cancel()
        self.committer.close()

    def end(self, error: ServerError | None) -> None:
        """See `connections.connections.Ending`."""
        if self._dump is not None:
            self._dump.end(error)
        elif self._machine.state is ServerState.ANSWERING:
            if self._work is not None:
                self._work.cancel()  # its answer would come behind the last one
            self.write(self._machine.send_error(ConnectionKilled()))
        self._channel.close()

    def interrupt(self) -> None:
        """KILL QUERY: a dump ends, and so does what only waits or reads, with 1317. A deed is done to its end; one that
        waits for room on the disk waits no longer, and says so (1021).

        A commit that is done waits for no replicas any more.
        """
        if self._dump is not None:
            self._dump.shut_down("KILL QUERY")
            self._channel.close()
        elif self._work is None or self._work.done():
            self.committer.interrupt()
        elif self._ends_early:

            def done(work: asyncio.Future[Any]) -> None:
                if work.cancelled():
                    self.refused(QueryInterrupted())

            self._work.add_done_callback(done)
            self._work.cancel()

    def shut_down(self) -> None:
        """The server stops: a dump is ended by EOF, so that the replica reconnects."""
        if self._dump is not None:
            self._dump.shut_down()
        self._channel.close()

    # --- Client of a committer, and of `Runner.answer` ---

    def committed_quickly(self) -> None:
        """See `sql_commit.client.CommitClient`."""
        if not self._channel.mute:
            self._connection.since = monotonic()
            self.write(self._machine.send_quick(_QUICK_OK))
            if self._machine.buffered:
                self._channel.go_on()

    def committed(self, affected_rows: int, *, leaves: bool = False) -> None:
        """See `sql_commit.client.CommitClient`."""
        if not self._channel.mute:
            self._connection.since = monotonic()
            self._machine.warnings = self.sql.warning_count
            self.write(self._machine.send_ok(affected_rows=affected_rows))
            if leaves:
                self._channel.close()
            self._channel.go_on()

    def refused(self, error: ServerError) -> None:
        """See `sql_commit.client.CommitClient`."""
        if not self._channel.mute:
            self._send_error(error)
            self._channel.go_on()

    def _send_error(self, error: ServerError) -> None:
        shown = shown_error(error, self._said.decode("utf-8", "surrogateescape"))
        self.sql.failed(shown)
        self._channel.send_error(shown)

    def hold(self, *, held: bool) -> None:
        """See `sql_commit.client.CommitClient`."""
        self._channel.hold(held=held)

    def write(self, data: bytes | bytearray) -> None:
        """Give bytes to the client; never waits."""
        self._channel.write(data)

    async def drain(self) -> None:
        """Wait until the client takes more; raises `ConnectionError` when it does not for net_write_timeout.

        And when the connection ends: `lost` or whoever closes it says why.
        """
        if self._channel.is_closing:
            raise ConnectionResetError
        if not self._channel.is_full:
            await asyncio.sleep(0)  # others get their turn although this socket takes everything
            return
        self._connection.state = "Writing to net"
        await self._channel.drain(self._net_write_timeout)

    # --- commands ---

    def _answer(self, command: Command) -> None:
        machine, write = self._machine, self.write
        match command:
            case Query():
                self._execute(command)
            case InitDatabase(database):
                self.committer.use(_encoded(database))
                write(machine.send_ok())
            case Ping():
                write(machine.send_ok())
            case Refresh():  # there is nothing to do, as for FLUSH of most things
                self.sql.require_for(command)
                write(machine.send_ok())
            case ResetConnection():
                self.sql.reset()
                self.committer.reset()
                write(machine.send_ok())
            case SetOption():
                write(machine.send_eof())
            case StatisticsCommand():
                write(machine.send_string(self._statistics()))
            case RegisterSlave():
                if not self.sql.may(*PRIVILEGES[RegisterSlave]):
                    raise AccessDenied(self._user, self._address, using_password=True)
                self._connection.registered = command
                write(machine.send_ok())
            case BinlogDump():
                self._dump = DumpSession.start(
                    command,
                    self._server,
                    self._channel,
                    self._connection,
                    self.sql,
                    self,
                    self._net_write_timeout,
                )
            case Quit():
                self._channel.close()
            case UnknownCommand(code):
                log.warning("%s sent the unknown command 0x%02x", self._channel.peer, code)
                raise UnknownCommandError

    def _execute(self, query: Query) -> None:
        self.sql.begin()
        # A statement may be as long as a packet: nothing here looks at more than its head.
        text = query.text
        self._said = text[: SHOWN_CHARS + 1]
        self._connection.since = monotonic()
        head = text[:HEAD_BYTES_MAX]
        if not head.strip(b" \t\r\n;\0") and len(head) == len(text):
            raise EmptyQuery
        words = first_words(head.decode("latin-1"))
        if is_about_accounts(words) and self._accounts.is_for_here(words[0]):
            if len(text) > STATEMENT_CHARS_MAX:
                raise SqlSyntaxError("")  # without the text, which may be a password
            self._query(query.sql, parse_account_statement, self._answer_about_accounts)
        elif not self.committer.execute(text):
            if len(text) > STATEMENT_CHARS_MAX:
                raise SqlSyntaxError(text[:NEAR_CHARS].decode("utf-8", "replace"))
            self._query(query.sql, parse, self._answer_query)

    def _query(
        self, sql: str, parse: Callable[[str], T], answer: Callable[[Callable[[], T]], None]
    ) -> None:
        self._connection.now("Query", "starting", shown_text(sql))
        text = self.committer.for_grammars(sql)
        try:
            self._parse(text, lambda: parse(text), answer)
        finally:
            self._rest_afterwards()

    def _parse(
        self, sql: str, parse: Callable[[], T], answer: Callable[[Callable[[], T]], None]
    ) -> None:
        """Answer what was parsed: at once, or when a thread has done it. `answer` gets what gives it or raises."""
        if len(sql) <= LOOP_CHARS_MAX:
            answer(parse)
        else:
            self._in_thread(parse, answer)

    def _in_thread(self, call: Callable[[], T], go_on: Callable[[Callable[[], T]], None]) -> None:
        """What only computes, and the rest of the statement. `go_on` gets what gives the result or raises."""
        self.hold(held=True)
        self._ends_early = False
        self._work = self._computed = called = self._server.runner.in_thread(
            self._connection.account, call
        )

        def done(_: asyncio.Future[T]) -> None:
            # An exception that nobody asks for is a traceback in the log.
            if called.cancelled() or (called.exception(), self._channel.mute)[1]:
                return
            try:
                go_on(called.result)
            except ServerError as error:
                self.refused(error)
            except Exception as error:  # noqa: BLE001 - logged there
                self.refused(internal_error(error, self._channel.peer))
            finally:
                self._rest_afterwards()
                if self._computed is called:  # and nothing else is
                    self.hold(held=False)

        called.add_done_callback(done)

    def _rest_afterwards(self) -> None:
        if self._work is None or self._work.done():
            self._rests()
        else:
            self._work.add_done_callback(lambda _: self._rests())

    def _rests(self) -> None:
        if self._dump is None and (self._work is None or self._work.done()):
            self._connection.now("Sleep", "")

    def _answer_about_accounts(self, parsed: Callable[[], AccountStatement]) -> None:
        result = self._accounts.run(parsed(), self.sql.diagnostics)
        if result is None:
            self._machine.warnings = self.sql.warning_count
            self.write(self._machine.send_ok())
        else:
            self._give(result)

    def _answer_query(self, parsed: Callable[[], Statement]) -> None:
        statement = parsed()
        texts = self.sql.long_texts(statement)
        if texts is None:
            self._answer_statement(statement)
        else:
            self._in_thread(texts.make, lambda made: self._answer_shown(made, statement))

    def _answer_shown(self, made: Callable[[], object], statement: Statement) -> None:
        made()
        self._answer_statement(statement)

    def _answer_statement(self, statement: Statement) -> None:
        result = self.sql.run(lambda: statement)
        if self._channel.mute:  # it was KILL of this connection
            return
        self._idle.start()  # it may have set wait_timeout
        if result is not None:
            self._give(result)
        elif not self.committer.settle():
            self._machine.warnings = self.sql.warning_count
            self.write(self._machine.send_ok())

    def _give(self, result: ResultSet | Later) -> None:
        machine = self._machine
        machine.result_charset = result_charset(self.sql.variables)
        if isinstance(result, ResultSet):
            machine.warnings = self.sql.warning_count
            self.write(machine.send_result_set(result.columns, result.rows))
        else:
            if isinstance(result, Wait):
                self._connection.state = _WAITS_FOR_GTIDS
            waits = isinstance(result, Wait) or (isinstance(result, Work) and bool(result.line))
            self._ends_early = waits or isinstance(result, RowStream)
            answering = self._server.runner.answer(
                result, self, machine, lambda: self.sql.warning_count
            )
            self._work = asyncio.get_running_loop().create_task(answering)

    def _statistics(self) -> str:
        """The answer to COM_STATISTICS."""
        server = self._server
        return f"Uptime: {server.uptime_s}  Threads: {len(server.connections)}"

    def _running(self) -> tuple[str, str] | None:
        """State and text of a statement that is committed here, while it runs."""
        if self._machine.state is not ServerState.ANSWERING:
            return None
        waits = self.committer.waits_for_replicas
        text = shown_text(self._said.decode("utf-8", "replace"))
        return _WAITS_FOR_REPLICAS if waits else "starting", text

    def _database(self) -> str | None:
        return self.sql.database.decode("utf-8", "replace") or None

    # --- time-outs ---

    def _net_write_timeout(self) -> float:
        value = self.sql.variables.get("net_write_timeout", "")
        return max(1, int(value)) if value.isdecimal() else self._server.config.net_write_timeout

    @property
    def _is_within_a_packet(self) -> bool:
        machine = self._machine
        # Behind an answer that the client does not take, whole commands may wait.
        return (
            machine.state is ServerState.READY
            and machine.buffered > 0
            and not self._channel.is_full
        )

    def _silence_allowed(self) -> float:
        """Seconds that the client may say nothing."""
        variables = self.sql.variables
        if self._is_within_a_packet:
            value = variables.get("net_read_timeout")
            return float(value or self._server.config.net_read_timeout)
        return float(variables.get("wait_timeout") or self._server.config.wait_timeout)

    def _was_heard(self) -> bool:
        heard, self._heard = self._heard, False
        return heard or self._machine.state is not ServerState.READY

    def _idle_for_too_long(self) -> None:
        what = (
            "it did not end a packet within net_read_timeout"
            if self._is_within_a_packet
            else "it said nothing for wait_timeout"
        )
        log.warning("closed %s: %s", self._channel.peer, what)
        self._channel.close()


def _encoded(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")
