"""The commands of a client after its login, and the answers to them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from math import inf
from time import monotonic
from typing import TYPE_CHECKING, Any, Final, TypeVar

from binlog_protocol.connection.commands import (
    BinlogDump,
    Command,
    CommandCode,
    Debug,
    FieldList,
    InitDatabase,
    Ping,
    ProcessInfo,
    ProcessKill,
    Query,
    Quit,
    Refresh,
    RefreshFlag,
    RegisterSlave,
    ResetConnection,
    SetOption,
    ShutdownCommand,
    StatisticsCommand,
    StmtBulkExecute,
    StmtClose,
    StmtExecute,
    StmtFetch,
    StmtPrepare,
    StmtReset,
    StmtSendLongData,
    UnknownCommand,
)
from binlog_protocol.connection.handshake import Capability, LoginRequest
from binlog_protocol.connection.server import NextStatement
from binlog_protocol.connection.server_states import ServerState
from binlog_protocol.errors import (
    AccessDenied,
    ConnectionKilled,
    EmptyQuery,
    NoDatabaseSelected,
    NoSuchTable,
    QueryInterrupted,
    ServerError,
    StatementTimeout,
    UnknownCommandError,
    WrongTableName,
)
from binlog_protocol.wire.packets import frame_packet
from binlog_protocol.wire.plain_changes import STATEMENT_AT, WORD_END, is_plain_change
from binlog_protocol.wire.results import Column, ok_payload

from binlog_server.accounts.account import UserAccount
from binlog_server.accounts.replica_policy import StreamStyle
from binlog_server.connections.channel import Channel
from binlog_server.connections.connections import Connection
from binlog_server.connections.tls import tls_status
from binlog_server.dumps.coordinates import coordinates_of
from binlog_server.loop.defects import internal_error
from binlog_server.loop.turn import Turn
from binlog_server.sessions.host import Host
from binlog_server.sessions.idle import IdleTimer
from binlog_server.sessions.prepared import PreparedStatements
from binlog_server.sessions.state_changes import StateChanges
from binlog_server.sql import little_tables
from binlog_server.sql.account_statements import ACCOUNTS, AccountSql
from binlog_server.sql.assignments import SetStatement, SetVariables
from binlog_server.sql.expressions import Given, Literal
from binlog_server.sql.grammars import LOOP_CHARS_MAX, STATEMENT_CHARS_MAX
from binlog_server.sql.kills import Kill
from binlog_server.sql.maintenance import FlushLogs, ShutDown
from binlog_server.sql.parser import chars_max, parse, too_long
from binlog_server.sql.prepared_sql import PreparedSql
from binlog_server.sql.runner import in_parts
from binlog_server.sql.secrets_in_sql import SHOWN_CHARS, shown_error, shown_text
from binlog_server.sql.session_settings import login_variables, result_charset
from binlog_server.sql.shows import ShowProcesslist
from binlog_server.sql.sql_session import NEEDED_FOR_COMMANDS, SqlSession
from binlog_server.sql.statement import Statement
from binlog_server.sql.statement_kind import HEAD_BYTES_MAX, Classified, Kind
from binlog_server.sql.tokens import NEAR_CHARS
from binlog_server.sql.variables import VARIABLES
from binlog_server.sql.view import (
    Computed,
    Later,
    ResultSet,
    RowStream,
    Unfinished,
    Wait,
    Work,
)
from binlog_server.sql_commit.client import ROW_UPDATED
from binlog_server.sql_commit.logged_text import Reading, first_statement, result_of

if TYPE_CHECKING:
    from binlog_server.sessions.dump_session import DumpSession

log = logging.getLogger(__name__)

FLUSH_LOGS: Final = FlushLogs()
_AS_STATEMENTS: Final = {ProcessInfo: ShowProcesslist, ShutdownCommand: ShutDown}
T = TypeVar("T")

_WAITS_FOR_REPLICAS: Final = "Waiting for semi-sync ACK from slave"
_WAITS_FOR_A_DISK: Final = "Waiting for someone to free space"
_WAITS_FOR_GTIDS: Final = "Waiting in MASTER_GTID_WAIT() (primary waiter)"
# What a command counts in SHOW STATUS, if it is not `_ASKED`.
_ASKED: Final = ("Questions", "Queries")
_COUNTED: Final[Mapping[type[Command | NextStatement], tuple[str, ...]]] = {
    Ping: ("Com_admin_commands",),
    StatisticsCommand: ("Com_show_status",),
    StmtPrepare: ("Queries", "Com_stmt_prepare"),
    StmtReset: ("Queries", "Com_stmt_reset"),
    StmtClose: ("Queries", "Com_stmt_close"),
    StmtFetch: (*_ASKED, "Com_stmt_fetch"),
    StmtSendLongData: (*_ASKED, "Com_stmt_send_long_data"),
    InitDatabase: (*_ASKED, "Com_change_db"),
    SetOption: (*_ASKED, "Com_set_option"),
    FieldList: (*_ASKED, "Com_show_fields"),
    **dict.fromkeys((ResetConnection, Debug, BinlogDump), (*_ASKED, "Com_admin_commands")),
}
_SLOW: Final = VARIABLES["long_query_time"].default
_MAY_BE_SLOW: Final = (Query, NextStatement, StmtExecute, StmtBulkExecute)
_DECODED_BYTES: Final = 4096  # of a statement in a character set, on the loop
_SAID_END: Final = STATEMENT_AT + SHOWN_CHARS + 1
_EXECUTE: Final = bytes((CommandCode.STMT_EXECUTE,))
_AT_ONCE_S: Final = 60e-6
_QUICK_OK: Final = frame_packet(ok_payload(affected_rows=1), 1)[0]
_QUICK_UPDATED: Final = frame_packet(ok_payload(affected_rows=1, info=ROW_UPDATED.info), 1)[0]


class Conversation:
    """The conversation of one session, from its login on.

    It is the `CommitClient` of its transaction, and the `Client` of statements that take longer. On the loop only.
    """

    _changed_by_units: int | None = None  # the rows that a bulk has changed which tells of each

    has_answer = False
    """See `sql_commit.client.CommitClient`."""
    has_next_soon = False
    """Whether the client, who is the only one, has its next statement ready when the last is answered."""
    _silent_s = 0.0  # it was, between its last answer and the statement that runs

    def __init__(
        self,
        server: Host,
        channel: Channel,
        connection: Connection,
        account: UserAccount,
        request: LoginRequest,
        address: str,
        holds_more: Callable[[], None],
    ) -> None:
        """Begin after a login. `address` is the client's, without the port; `holds_more` is to be told when `held` has
        changed while nothing came.

        Raises `ServerError` (1102) if the login's database has no valid name.
        """
        self._server = server
        self._channel = channel
        self._machine = channel.machine
        channel.net_write_timeout = self._net_write_timeout
        self._connection = connection
        self._user = request.user
        self._address = address
        self.holds_more = holds_more
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
            status={
                **tls_status(channel.transport.get_extra_info("ssl_object")),
                "Compression": "ON" if request.capabilities & Capability.COMPRESS else "OFF",
            },
            counts=connection.counts,
            traffic=connection.traffic,
            coordinates=coordinates_of(account.replica.style, server.engine),
            version=account.replica.server_version,
            program=request.attributes.get("program_name", ""),
            accounts=self._accounts,
        )
        connection.store_changed = partial(self._store_changed, account.replica.style)
        self.transaction = server.new_transaction(self, self._machine, self.sql)
        self.prepared = PreparedStatements(
            self, self._machine, server.prepared_count, server.config.max_allowed_packet
        )
        # Whether a query may have several statements.
        self._takes_many = bool(self._machine.capabilities & Capability.MULTI_STATEMENTS)
        self._changes = StateChanges(self.sql, lambda: self._machine.status)
        self._machine.take_changes = self._changes.take
        connection.database = self._database
        connection.running = self._running
        if request.database:
            self.transaction.use(_encoded(request.database))
        self._dump: DumpSession | None = None
        self._work: asyncio.Future[Any] | None = None  # the running statement, if it takes longer
        self._computed: asyncio.Future[Any] | None = None  # its first part, computed in a thread
        self._asked: Computed | None = None  # the question that is being answered
        self._ends_early = False  # KILL QUERY may cancel it: it only reads, or may wait for long
        self._said = b""  # the beginning of the last statement
        self._heard = True  # bytes came since the idle timer's last look
        self._began = monotonic()  # the command that is being answered
        self._slow_text, self._slow_s = _SLOW, float(_SLOW)  # long_query_time
        self.has_quit = False
        self._machine.answered = self._answered
        self._idle = IdleTimer(self._silence_allowed, self._was_heard, self._idle_for_too_long)
        self._idle.start()

    # --- from the session ---

    def state_at_login(self, *, again: bool) -> bytes:
        """What the OK of the login tells of the session's state. `again`: of COM_CHANGE_USER."""
        return self._changes.at_login(again=again)

    @property
    def held(self) -> int:
        """Bytes of memory that the session keeps between commands, and those of the statement that is computed."""
        asked = 0 if self._asked is None else self._asked.held()
        kept = self.sql.variable_bytes + self.sql.temporary.held
        return kept + self.prepared.held + self.transaction.held + asked

    def quick(self, data: bytes) -> bool:
        """Commit the received bytes, if they are one simple statement. False: then nothing has happened.

        `has_next_soon` says then whether another one may be there at once.
        """
        self._heard = True
        self.has_next_soon = False
        try:
            is_text = is_plain_change(data)
            if not is_text and data[4:5] != _EXECUTE:
                return False
            began = monotonic()
            self._silent_s = began - self._connection.since
            self._began = self._connection.since = began
            if is_text:
                self._said = data[STATEMENT_AT:_SAID_END]
                if not self.transaction.quick_way.take(data):
                    return False
                word = data[STATEMENT_AT:WORD_END]
            else:
                found = self.prepared.quick(data)
                if found is None:
                    return False
                self._said, word = found
            self._connection.counts.quick[word] += 1
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

    def answer(self, command: Command | NextStatement) -> None:
        """Answer a command, at once or later. Its errors become the answer."""
        self._began = monotonic() if isinstance(command, _MAY_BE_SLOW) else inf
        for name in _COUNTED.get(type(command), _ASKED):
            self._connection.counts.count(name)
        try:
            self._answer(command)
        except Exception as error:  # noqa: BLE001 - logged there
            if not isinstance(command, (Query, NextStatement)):
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
        self.leave(said)

    def leave(self, reason: str) -> None:
        """The session has ended: give back all that it has."""
        self._idle.stop()
        self.sql.forget()
        self.prepared.clear()
        self.cancel(reason)

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

        A dump ends. A statement that only waits or reads ends with 1317, but GET_LOCK() gives NULL; one that waits for
        room on the disk gives up with 1021; one that changes something runs to its end. A commit that waits for
        semi-sync alone is answered OK.
        """
        if self._dump is not None:
            self._dump.shut_down("KILL QUERY")
            self._channel.close()
        elif self._work is None or self._work.done():
            self.transaction.interrupt()
        elif self._ends_early and not self._server.user_locks.interrupt(self.sql.connection_id):

            def done(work: asyncio.Future[Any]) -> None:
                if work.cancelled():
                    self.refused(QueryInterrupted())

            self._work.add_done_callback(done)
            self._work.cancel()

    def _store_changed(self, style: StreamStyle) -> None:
        self.sql.coordinates = coordinates_of(style, self._server.engine)

    def shut_down(self) -> None:
        """The server stops: a dump is ended by EOF, so that the replica reconnects."""
        if self._dump is not None:
            self._dump.shut_down()
        self._channel.close()

    # --- Client of a transaction, and of `Runner.answer` ---

    def answer_at_once(self, *, is_update: bool = False) -> None:
        """See `sql_commit.client.CommitClient`."""
        if not self._channel.mute:
            self.has_answer = True
            self._channel.write_now(_QUICK_UPDATED if is_update else _QUICK_OK)

    def committed_quickly(self, *, is_update: bool = False, now: bool = False) -> None:
        """See `sql_commit.client.CommitClient`."""
        answered, self.has_answer = self.has_answer, False
        if not self._channel.mute:
            frame = _QUICK_UPDATED if is_update else _QUICK_OK
            if answered or now:
                if not answered:
                    self._channel.write_now(frame)
                # Replicas, too, would wait for who is served without a turn of the loop.
                is_alone = len(self._server.connections.by_id) == 1
                self.has_next_soon = is_alone and self._silent_s < _AT_ONCE_S
            else:
                self._channel.write(frame)
            self.sql.changed_rows = 1
            self._machine.sent_quick()
            if self._machine.buffered:
                self._channel.go_on()

    def committed(
        self,
        affected_rows: int,
        *,
        leaves: bool = False,
        insert_id: int = 0,
        info: bytes = b"",
        rows: ResultSet | None = None,
    ) -> None:
        """See `sql_commit.client.CommitClient`."""
        if not self._channel.mute:
            units = self.prepared.unit_results(affected_rows) if rows is None else None
            found = units if rows is None else rows
            self._machine.warnings = self.sql.warning_count
            if found is not None:
                self._changed_by_units = None if units is None else affected_rows
                self._give(found)
                return
            self.sql.changed_rows = affected_rows
            self.write(
                self._machine.send_ok(affected_rows=affected_rows, insert_id=insert_id, info=info)
            )
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
        if error.kind is StatementTimeout:
            self._connection.counts.count("Max_statement_time_exceeded")
        self._channel.send_error(shown)

    def hold(self, *, held: bool) -> None:
        """See `sql_commit.client.CommitClient`."""
        self._channel.hold(held=held)

    def write(self, data: bytes | bytearray) -> None:
        """Give bytes to the client's socket or its buffer; never waits."""
        self._channel.write(data)

    def answered(self, rows: int) -> None:
        """See `sql.view.Client`."""
        self.sql.answered(rows)
        if self._changed_by_units is not None:
            # The rows of the result are those of a bulk that has changed some: ROW_COUNT() is their number.
            self.sql.changed_rows, self._changed_by_units = self._changed_by_units, None

    async def drain(self) -> None:
        """Wait until the client takes more.

        Raises `ConnectionError` if it takes nothing for net_write_timeout, and when the connection ends; the log has
        the reason then.
        """
        if self._channel.is_full:
            self._connection.state = "Writing to net"
        await self._channel.drain()

    # --- commands ---

    def _answer(self, command: Command | NextStatement) -> None:
        machine, write = self._machine, self.write
        match command:
            case Query(text=text):
                self._execute(text, 0)
            case NextStatement(text, start):
                self._execute(text, start)
            case StmtPrepare() | StmtExecute() | StmtBulkExecute():
                self._about_prepared(command)
            case StmtSendLongData():
                self.prepared.take_long_data(command)
            case StmtFetch():
                self.prepared.fetch(command)
            case StmtReset(number):
                self.prepared.reset(number)
            case StmtClose(number):
                self.prepared.close(number)
            case InitDatabase(database):
                self.transaction.use(_encoded(database))
                write(machine.send_ok())
            case Ping():
                write(machine.send_ok())
            case Refresh(flags):
                self.sql.require_for(command)
                if flags & RefreshFlag.LOG:
                    self.answer_query(lambda: FLUSH_LOGS)
                else:  # nothing to do, as for FLUSH of caches that this server does not have
                    self.sql.counts.command("flush")
                    write(machine.send_ok())
            case ProcessInfo() | ShutdownCommand():
                self.answer_query(_AS_STATEMENTS[type(command)])
            case ProcessKill(number):
                self.answer_query(lambda: Kill(Literal(number)))
            case Debug():
                self.sql.require_for(command)
                write(machine.send_eof())
            case FieldList(table, pattern):
                self._list_fields(table, pattern)
            case ResetConnection():
                self.sql.reset()
                self.prepared.clear()
                self.transaction.reset()
            case SetOption(option):
                if option > 1:
                    raise UnknownCommandError()
                self._takes_many = not option
                write(machine.send_eof())
            case StatisticsCommand():
                write(machine.send_string(self._statistics()))
            case RegisterSlave():
                self._server.connections.registered += 1
                if not self.sql.may(*NEEDED_FOR_COMMANDS[RegisterSlave]):
                    raise AccessDenied(self._user, self._address, "YES")
                self._connection.registered = command
                write(machine.send_ok())
            case BinlogDump():
                self._begin_dump(command)
            case Quit():
                self.has_quit = True
                self._channel.close()
            case UnknownCommand(code):
                log.warning("%s sent the unknown command 0x%02x", self._channel.peer, code)
                raise UnknownCommandError()

    def _begin_dump(self, command: BinlogDump) -> None:
        if not self._server.dumps_begin.is_set():
            self._begin_dump_later(command)
            return
        from binlog_server.sessions.dump_session import DumpSession

        self._dump = DumpSession.start(
            command,
            self._server,
            self._channel,
            self._connection,
            self.sql,
        )
        self._idle.stop()  # the connection ends with the dump

    def _begin_dump_later(self, command: BinlogDump) -> None:
        """Behind a change of the store: a replica that is sent away without an event waits for MASTER_CONNECT_RETRY."""
        self.hold(held=True)
        self._ends_early = True
        self._connection.now("Binlog Dump", "Waiting for the binlog to go on in another store")
        self._work = waiting = asyncio.ensure_future(self._server.dumps_begin.wait())

        def done(_: object) -> None:
            self.hold(held=False)
            if not (waiting.cancelled() or self._channel.mute):
                self._answer_later(lambda: self._begin_dump(command))

        waiting.add_done_callback(done)

    def _list_fields(self, table: str, pattern: str) -> None:
        """COM_FIELD_LIST: the columns that a SELECT of all would have, those whose names are LIKE the pattern.

        What the upstream alone has is not here.
        """
        database = self._database()
        if not table:
            raise WrongTableName(table)
        if database is None:
            raise NoDatabaseSelected()
        if not little_tables.is_schema(database):
            raise NoSuchTable(database, table)
        quoted = table.replace("`", "``")

        def listed(_: Statement, columns: Sequence[Column]) -> None:
            self.write(self._machine.send_definitions(little_tables.like(columns, pattern)))

        def parsed(statement: Callable[[], Statement]) -> None:
            self.describe(statement(), listed)

        self.read(Classified(Kind.OTHER, b""), f"SELECT * FROM `{quoted}`", None, parsed)

    def _execute(self, text: bytes, start: int) -> None:
        """Execute the statement that begins at `start`; behind it may be others."""
        self.sql.begin()
        self._connection.since = monotonic()
        # A statement may be as long as a packet: only its head is read here.
        self._said = bytes(text[start : start + SHOWN_CHARS + 1])
        head = text[start : start + HEAD_BYTES_MAX]
        if not head.strip(b" \t\r\n;\0") and start + len(head) == len(text):
            raise EmptyQuery()
        if self._takes_many and text.find(b";", start) >= 0:
            steps = first_statement(text, start, self.transaction.settings_now())

            def cut(end: Callable[[], int | None]) -> None:
                second = end()
                if second is not None:
                    self._machine.put_back(text, second)
                self._execute_one(text[start:second] if start or second else text)

            self.go_through(steps, cut)
        else:
            self._execute_one(text[start:] if start else text)

    def _execute_one(self, text: bytes) -> None:
        found = self.transaction.classified(text)
        if not self.is_for_here(found):
            self.commit(found, None)
        elif len(text) > chars_max(text[:NEAR_CHARS].decode("latin-1")):
            near = b"" if found.grammar is ACCOUNTS else text[:NEAR_CHARS]  # it may be a password
            raise too_long(near.decode("utf-8", "replace"))
        else:
            self._query(text, found)

    def commit(self, statement: Classified, readings: Iterable[Reading] | None) -> None:
        """Run a statement that is committed, or about the transaction; under its SET STATEMENT, if it has one."""
        self._connection.counts.command(statement.counted_as)
        if not statement.setting:
            self.transaction.execute(statement, readings)
            return
        # It is parsed with another statement in the place of this one.
        text = self.transaction.said(statement.setting) + " SELECT 1"
        text = self.transaction.for_grammars(text)

        def go_on(parsed: Callable[[], Statement]) -> None:
            setting = parsed()
            assert isinstance(setting, SetStatement)
            self.transaction.execute(statement, readings, setting)

        if len(text) <= LOOP_CHARS_MAX:
            go_on(lambda: parse(text))
        else:
            self._in_thread(lambda: parse(text), go_on)

    def _query(self, text: bytes, found: Classified) -> None:
        """Parse a statement, at once or in a thread, and answer it."""
        transaction = self.transaction
        is_long = len(text) > _DECODED_BYTES and not transaction.settings_now().is_plain
        is_long |= len(text) > STATEMENT_CHARS_MAX
        sql = text.decode("utf-8", "surrogateescape") if is_long else transaction.said(text)
        self._connection.now("Query", "starting", shown_text(sql))
        try:
            if is_long:
                self._in_thread(
                    lambda: parse(transaction.for_grammars(transaction.said(text)), found.grammar),
                    self.answer_query,
                )
                return
            self.read(found, transaction.for_grammars(sql), None, self.answer_query)
        finally:
            self._rest_afterwards()

    def _about_prepared(self, command: StmtPrepare | StmtExecute | StmtBulkExecute) -> None:
        """A command that may take longer."""
        self.sql.begin()
        self._connection.since = monotonic()
        try:
            match command:
                case StmtPrepare(text):
                    self.runs(text)
                    self.prepared.prepare(text)
                    self.sql.changed_rows = -1
                case StmtExecute():
                    self.prepared.execute(command)
                case StmtBulkExecute():
                    self.prepared.execute_bulk(command)
        finally:
            self._rest_afterwards()

    # --- for its prepared statements, see `prepared.Executor` ---

    def go_through(
        self, steps: Generator[None, None, T], go_on: Callable[[Callable[[], T]], None]
    ) -> None:
        turn = Turn()
        while not turn.is_over:
            try:
                next(steps)
            except StopIteration as end:
                found: T = end.value
                go_on(partial(_same, found))
                return
        self._in_thread(lambda: result_of(steps), go_on)

    def read(
        self,
        statement: Classified,
        text: str,
        values: Sequence[Given] | None,
        go_on: Callable[[Callable[[], Statement]], None],
    ) -> None:
        grammar = statement.grammar
        if len(text) <= LOOP_CHARS_MAX:
            go_on(lambda: parse(text, grammar, values))
        else:
            self._in_thread(lambda: parse(text, grammar, values), go_on)

    def describe(
        self, statement: Statement, go_on: Callable[[Statement, Sequence[Column]], None]
    ) -> None:
        self._machine.result_charset = result_charset(self.sql.variables)

        def described() -> None:
            self._machine.result_charset = result_charset(self.sql.variables)
            result = self.sql.describe(statement)
            if isinstance(result, Unfinished):
                self._finish(result, lambda found: self.describe(found(), go_on))
                return
            if isinstance(result, Computed):
                gives_rows = result.gives_rows
                self._in_thread(
                    result.run,
                    lambda found: go_on(statement, found().columns if gives_rows else ()),
                    result.give_up,
                )
                return
            if isinstance(result, Wait):
                result = result.result(False)
            columns = result.columns if isinstance(result, (ResultSet, RowStream)) else ()
            go_on(statement, columns)

        self._with_texts(statement, described)

    def runs(self, text: bytes) -> None:
        self._said = bytes(text[: SHOWN_CHARS + 1])

    def is_for_here(self, found: Classified) -> bool:
        is_about_accounts = found.grammar is ACCOUNTS
        return found.kind is Kind.OTHER or (
            is_about_accounts and not self._accounts.are_for_replicas
        )

    def done(self) -> None:
        self.write(self._machine.send_ok())

    def _finish(self, left: Unfinished, go_on: Callable[[Callable[[], Statement]], None]) -> None:
        self._in_thread(left.run, go_on, left.give_up)

    def _in_thread(
        self,
        call: Callable[[], T],
        go_on: Callable[[Callable[[], T]], None],
        give_up: Callable[[], None] = lambda: None,
    ) -> None:
        """Compute the first part of a statement in a thread, then go on with the rest.

        Args:
            go_on: called on the loop with a function that gives the result of `call`, or raises its error.
            give_up: called when nobody waits for the result any longer: KILL QUERY may end it, as nothing is changed.
        """
        self.hold(held=True)
        self._ends_early = True
        self._work = self._computed = called = self._server.runner.in_thread(
            self._connection.account, call
        )

        def done(_: asyncio.Future[T]) -> None:
            if called.cancelled():
                give_up()
                self.hold(held=False)
                return
            # asyncio logs a traceback for each exception that is never read: read it first.
            if (called.exception(), self._channel.mute)[1]:
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
            self.holds_more()

    def _rest_afterwards(self) -> None:
        if self._work is None or self._work.done():
            self._rests()
        else:
            self._work.add_done_callback(lambda _: self._rests())

    def _rests(self) -> None:
        if self._dump is None and (self._work is None or self._work.done()):
            self._connection.now("Sleep", "")

    def answer_query(self, parsed: Callable[[], Statement]) -> None:
        """Answer a statement that is given, or the error of parsing it."""
        statement = parsed()
        if isinstance(statement, PreparedSql):
            self._connection.counts.command(statement.com)
            self.prepared.answer(statement)
        else:
            self._with_texts(statement, lambda: self._answer_statement(statement))

    def _with_texts(self, statement: Statement, go_on: Callable[[], None]) -> None:
        """Make the long texts that a statement shows, if any, in a thread; then go on."""
        texts = self.sql.long_texts(statement)
        if texts is None:
            go_on()
        else:

            def made(result: Callable[[], object]) -> None:
                result()
                go_on()

            self._in_thread(texts.make, made)

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
        if statement.is_logged:
            said = statement.told or shown_text(self._said.decode("utf-8", "replace"))
            log.info("%(peer)s: %(statement)s", {"peer": self._channel.peer, "statement": said})
        try:
            result = self.sql.run(lambda: statement)
            if isinstance(result, Unfinished):
                self._finish(result, self.answer_query)
                return
        finally:
            # Done or not, and whatever of it is left. Replicas SET five variables of their own at each login.
            if isinstance(statement, SetVariables) and not statement.leaves_settings:
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
            self.answered(len(result.rows))
            result = in_parts(result)
        if isinstance(result, ResultSet):
            machine.warnings = self.sql.warning_count
            self.write(machine.send_result_set(result.columns, result.rows))
        else:
            if isinstance(result, Wait):
                self._connection.state = _WAITS_FOR_GTIDS
                result = self._counted(result)
            waits = isinstance(result, Wait | Computed) or (
                isinstance(result, Work) and bool(result.line)
            )
            self._ends_early = waits or isinstance(result, RowStream)
            answering = self._server.runner.answer(
                result, self, machine, lambda: self.sql.warning_count
            )
            self._work = asyncio.get_running_loop().create_task(answering)
            if isinstance(result, Computed):
                self._asked = result
                self._work.add_done_callback(lambda _: self._let_go(result))

    def _let_go(self, asked: Computed) -> None:
        if self._asked is asked:
            self._asked = None
            self.holds_more()

    def _counted(self, wait: Wait) -> Wait:
        """A MASTER_GTID_WAIT() that is counted when it ends, with its time in microseconds."""
        counts, began = self._connection.counts, monotonic()

        def result(reached: bool) -> ResultSet:
            counts.count("Master_gtid_wait_count")
            counts.count("Master_gtid_wait_time", round((monotonic() - began) * 1e6))
            counts.count("Master_gtid_wait_timeouts", int(not reached))
            return wait.result(reached)

        return replace(wait, result=result)

    def _statistics(self) -> str:
        """The answer to COM_STATISTICS."""
        server = self._server
        counted, uptime = server.connections.counted(), server.uptime_s
        questions = counted.get("Questions", 0)
        return (
            f"Uptime: {uptime}  Threads: {len(server.connections)}  Questions: {questions}  "
            f"Slow queries: {counted.get('Slow_queries', 0)}  Opens: 0  Open tables: 0  "
            f"Queries per second avg: {questions / max(1, uptime):.3f}"
        )

    def _running(self) -> tuple[str, str] | None:
        """State and text of the running statement, for SHOW PROCESSLIST; None if none runs."""
        if self._machine.state is not ServerState.ANSWERING:
            return None
        if self.transaction.waits_for_replicas:
            state = _WAITS_FOR_REPLICAS
        else:
            state = _WAITS_FOR_A_DISK if self.transaction.waits_for_a_disk else "starting"
        return state, shown_text(self._said.decode("utf-8", "replace"))

    def _database(self) -> str | None:
        return self.sql.database.decode("utf-8", "replace") or None

    def _answered(self) -> None:
        """The command has its answer: the session rests from now on. Count it if it was slow."""
        text = self.sql.variables.get("long_query_time", _SLOW)
        if text is not self._slow_text:
            self._slow_text, self._slow_s = text, float(text)
        now = self._connection.since = monotonic()
        if now - self._began > self._slow_s:
            self._connection.counts.count("Slow_queries")

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
            and machine.is_within_packet
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


def _same(value: T) -> T:
    return value


def _encoded(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")
