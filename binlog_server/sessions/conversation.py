"""The commands of a client after its login, and the answers to them."""

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
from binlog_server.sql.account_statements import ACCOUNTS
from binlog_server.sql.assignments import SetVariables
from binlog_server.sql.grammars import LOOP_CHARS_MAX, STATEMENT_CHARS_MAX, Grammar
from binlog_server.sql.parser import parse
from binlog_server.sql.secrets_in_sql import SHOWN_CHARS, shown_error, shown_text
from binlog_server.sql.session_settings import login_variables, result_charset
from binlog_server.sql.sql_session import NEEDED_FOR_COMMANDS, SqlSession
from binlog_server.sql.statement import Statement
from binlog_server.sql.statement_kind import HEAD_BYTES_MAX, Kind, classify
from binlog_server.sql.tokens import NEAR_CHARS
from binlog_server.sql.view import Later, ResultSet, RowStream, Wait, Work
from binlog_server.sql_commit.session_transaction import QUICK_WORDS

log = logging.getLogger(__name__)

T = TypeVar("T")

_WAITS_FOR_REPLICAS: Final = "Waiting for semi-sync ACK from slave"
_WAITS_FOR_GTIDS: Final = "Waiting in MASTER_GTID_WAIT() (primary waiter)"
_SAID_END: Final = 5 + SHOWN_CHARS + 1  # in a packet: the head and the command are 5 bytes
_QUICK_OK: Final = frame_packet(ok_payload(affected_rows=1), 1)[0]


class Conversation:
    """The conversation of one session, from its login on.

    It is the `CommitClient` of its transaction, and the `Client` of statements that take longer. On the loop only.
    """

    def __init__(
        self,
        server: Host,
        channel: Channel,
        connection: Connection,
        account: UserAccount,
        request: LoginRequest,
        address: str,
    ) -> None:
        """Begin after a login. `address` is the client's, without the port.

        Raises `ServerError` (1102) if the login's database has no valid name.
        """
        self._server = server
        self._channel = channel
        self._machine = channel.machine
        channel.net_write_timeout = self._net_write_timeout
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
            accounts=self._accounts,
        )
        self.transaction = server.new_transaction(self, self._machine, self.sql)
        connection.database = self._database
        connection.running = self._running
        if request.database:
            self.transaction.use(_encoded(request.database))
        self._dump: DumpSession | None = None
        self._work: asyncio.Future[Any] | None = None  # the running statement, if it takes longer
        self._computed: asyncio.Future[Any] | None = None  # its first part, computed in a thread
        self._ends_early = False  # KILL QUERY may cancel it: it only reads, or may wait for long
        self._said = b""  # the beginning of the last statement
        self._heard = True  # bytes came since the idle timer's last look
        self._idle = IdleTimer(self._silence_allowed, self._was_heard, self._idle_for_too_long)
        self._idle.start()

    # --- from the session ---

    def quick(self, data: bytes) -> bool:
        """Commit the received bytes, if they are one simple statement. False: then nothing has happened."""
        self._heard = True
        try:
            if data[5:12] not in QUICK_WORDS or not self.transaction.quick(data):
                return False
            self._said = data[5:_SAID_END]
            self._connection.since = monotonic()
            return True
        except Exception as error:  # noqa: BLE001 - logged there
            self._send_error(internal_error(error, self._channel.peer))
            return True

    def received(self) -> None:
        """More bytes have come. While a statement runs, no more are read. Raises `ProtocolError`."""
        self.take_acks()
        if self._work is not None and not self._work.done():
            self.hold(held=True)

    def take_acks(self) -> None:
        """Take a replica's semi-sync acknowledgements, as many as a turn allows. Raises `ProtocolError`."""
        if self._dump is not None and self._dump.received():
            self._channel.rest()

    def taken_in(self) -> None:
        """All whole packets are answered. A client that has begun another must go on with it within
        net_read_timeout."""
        if self._is_within_a_packet:
            self._idle.start()

    def answer(self, command: Command) -> None:
        """Answer a command, at once or later. Its errors become the answer."""
        try:
            self._answer(command)
        except Exception as error:  # noqa: BLE001 - logged there
            if not isinstance(command, Query):
                self.sql.begin()  # other commands leave diagnostics only by their errors
            if isinstance(error, ServerError):
                self._send_error(error)
            elif not self._channel.mute:
                self._send_error(internal_error(error, self._channel.peer))

    def lost(self, reason: Exception | None) -> None:
        """The connection has ended.

        A reason that is no `ConnectionError` means that the peer has vanished. A peer that closes its socket gives
        None, a reset or a broken pipe, depending on the bytes under way.
        """
        said = "the replica has gone"
        if reason is not None and not isinstance(reason, ConnectionError):
            log.warning("lost %s: %s", self._channel.peer, reason)
            said = f"lost: {reason}"
        self._idle.stop()
        self.sql.forget()
        self.cancel(said)

    def cancel(self, reason: str) -> None:
        """Stop the dump or statement that runs, and roll back. `reason` is for the log."""
        if self._dump is not None:
            self._dump.cancel(reason)
        if self._work is not None:
            self._work.cancel()
        self.transaction.close()

    def end(self, error: ServerError | None) -> None:
        """See `connections.connections.Ending`."""
        if self._dump is not None:
            self._dump.end(error)
        elif self._machine.state is ServerState.ANSWERING:
            if self._work is not None:
                self._work.cancel()  # or its answer would follow the error, which is the last packet
            self.write(self._machine.send_error(ConnectionKilled()))
        self._channel.close()

    def interrupt(self) -> None:
        """KILL QUERY.

        A dump ends. A statement that only waits or reads ends with 1317; one that waits for room on the disk gives up
        with 1021; one that changes something runs to its end. A commit that waits for semi-sync alone is answered OK.
        """
        if self._dump is not None:
            self._dump.shut_down("KILL QUERY")
            self._channel.close()
        elif self._work is None or self._work.done():
            self.transaction.interrupt()
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

    # --- Client of a transaction, and of `Runner.answer` ---

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
        """Give bytes to the client's socket or its buffer; never waits."""
        self._channel.write(data)

    async def drain(self) -> None:
        """Wait until the client takes more.

        Raises `ConnectionError` if it takes nothing for net_write_timeout, and when the connection ends; the log has
        the reason then.
        """
        if self._channel.is_full:
            self._connection.state = "Writing to net"
        await self._channel.drain()

    # --- commands ---

    def _answer(self, command: Command) -> None:
        machine, write = self._machine, self.write
        match command:
            case Query():
                self._execute(command)
            case InitDatabase(database):
                self.transaction.use(_encoded(database))
                write(machine.send_ok())
            case Ping():
                write(machine.send_ok())
            case Refresh():  # nothing to do, as for FLUSH of caches that this server does not have
                self.sql.require_for(command)
                write(machine.send_ok())
            case ResetConnection():
                self.sql.reset()
                self.transaction.reset()
                write(machine.send_ok())
            case SetOption():
                write(machine.send_eof())
            case StatisticsCommand():
                write(machine.send_string(self._statistics()))
            case RegisterSlave():
                if not self.sql.may(*NEEDED_FOR_COMMANDS[RegisterSlave]):
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
                )
            case Quit():
                self._channel.close()
            case UnknownCommand(code):
                log.warning("%s sent the unknown command 0x%02x", self._channel.peer, code)
                raise UnknownCommandError

    def _execute(self, query: Query) -> None:
        self.sql.begin()
        # A statement may be as long as a packet: only its head is read here.
        text = query.text
        self._said = text[: SHOWN_CHARS + 1]
        self._connection.since = monotonic()
        head = text[:HEAD_BYTES_MAX]
        if not head.strip(b" \t\r\n;\0") and len(head) == len(text):
            raise EmptyQuery
        found = classify(text)
        is_about_accounts = found.grammar is ACCOUNTS
        is_for_here = is_about_accounts and not self._accounts.are_for_replicas
        if found.kind is not Kind.OTHER and not is_for_here:
            self.transaction.execute(found)
        elif len(text) > STATEMENT_CHARS_MAX:
            near = b"" if is_about_accounts else text[:NEAR_CHARS]  # it may be a password
            raise SqlSyntaxError(near.decode("utf-8", "replace"))
        else:
            self._query(query.sql, found.grammar)

    def _query(self, sql: str, grammar: Grammar) -> None:
        """Parse a statement, at once or in a thread, and answer it."""
        self._connection.now("Query", "starting", shown_text(sql))
        text = self.transaction.for_grammars(sql)
        try:
            if len(text) <= LOOP_CHARS_MAX:
                self._answer_query(lambda: parse(text, grammar))
            else:
                self._in_thread(lambda: parse(text, grammar), self._answer_query)
        finally:
            self._rest_afterwards()

    def _in_thread(self, call: Callable[[], T], go_on: Callable[[Callable[[], T]], None]) -> None:
        """Compute the first part of a statement in a thread, then go on with the rest.

        Args:
            go_on: called on the loop with a function that gives the result of `call`, or raises its error.
        """
        self.hold(held=True)
        self._ends_early = False
        self._work = self._computed = called = self._server.runner.in_thread(
            self._connection.account, call
        )

        def done(_: asyncio.Future[T]) -> None:
            # asyncio logs a traceback for each exception that is never read: read it first.
            if called.cancelled() or (called.exception(), self._channel.mute)[1]:
                return
            self._answer_later(lambda: go_on(called.result))
            if self._computed is called:  # no later part is being computed
                self.hold(held=False)

        called.add_done_callback(done)

    def _answer_later(self, answer: Callable[[], None]) -> None:
        """Answer outside of the call that took the command: an error is the client's answer."""
        try:
            answer()
        except ServerError as error:
            self.refused(error)
        except Exception as error:  # noqa: BLE001 - logged there
            self.refused(internal_error(error, self._channel.peer))
        finally:
            self._rest_afterwards()

    def _rest_afterwards(self) -> None:
        if self._work is None or self._work.done():
            self._rests()
        else:
            self._work.add_done_callback(lambda _: self._rests())

    def _rests(self) -> None:
        if self._dump is None and (self._work is None or self._work.done()):
            self._connection.now("Sleep", "")

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
        if statement.commits and self.transaction.commit_first(
            lambda: self._answer_behind_commit(statement)
        ):
            return
        self._answer_now(statement)

    def _answer_behind_commit(self, statement: Statement) -> None:
        """Answer a statement in front of which a transaction had to be committed. Called when that is done."""
        if not self._channel.mute:
            self._answer_later(lambda: self._answer_now(statement))
            self._channel.go_on()

    def _answer_now(self, statement: Statement) -> None:
        try:
            result = self.sql.run(lambda: statement)
        finally:
            if isinstance(statement, SetVariables):  # done or not, and whatever of it is left
                self.transaction.refresh()
        if self._channel.mute:  # the statement was KILL of this connection
            return
        self._idle.start()  # the statement may have SET wait_timeout
        if result is not None:
            self._give(result)
        elif not self.transaction.settle():
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
        """State and text of the running statement, for SHOW PROCESSLIST; None if none runs."""
        if self._machine.state is not ServerState.ANSWERING:
            return None
        waits = self.transaction.waits_for_replicas
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
        # While the client does not take an answer, the buffered bytes may be whole commands.
        return (
            machine.state is ServerState.READY
            and machine.buffered > 0
            and not self._channel.is_full
        )

    def _silence_allowed(self) -> float:
        """Seconds that the client may be silent now: net_read_timeout within a packet, else wait_timeout."""
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
