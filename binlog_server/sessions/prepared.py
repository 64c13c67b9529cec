"""The prepared statements of a session: by number as clients prepare them, by name as SQL does."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Sequence, Sized
from dataclasses import field, replace
from typing import Final, Protocol, TypeVar

from binlog_protocol.connection.commands import (
    LAST_PREPARED,
    BulkFlag,
    StmtBulkExecute,
    StmtExecute,
    StmtFetch,
    StmtSendLongData,
)
from binlog_protocol.connection.handshake import MariadbCapability
from binlog_protocol.connection.server import Reply, ServerConnection
from binlog_protocol.dataclass import dataclass
from binlog_protocol.errors import (
    EmptyQuery,
    MalformedPacket,
    NoOpenCursor,
    NotPreparable,
    ProtocolError,
    ServerError,
    SqlSyntaxError,
    TooManyPreparedStatements,
    UnknownPreparedStatement,
    UnknownServerError,
    WrongArguments,
)
from binlog_protocol.events.charsets import charset_of
from binlog_protocol.events.column_type import ColumnType
from binlog_protocol.sql.tokens import first_words
from binlog_protocol.wire.binary_rows import (
    BLOBS,
    LongData,
    Parameter,
    Parameters,
    TypesCutOff,
)
from binlog_protocol.wire.plain_parameters import take_plain_parameters
from binlog_protocol.wire.results import Column

from binlog_server.sql.account_statements import ACCOUNTS
from binlog_server.sql.assignments import held_value
from binlog_server.sql.expressions import Expression, Given, HeldValue
from binlog_server.sql.grammars import CODE_CHARS_MAX, STATEMENT_CHARS_MAX
from binlog_server.sql.parser import too_long
from binlog_server.sql.prepared_sql import (
    Deallocate,
    Execute,
    ExecuteImmediate,
    Prepare,
    PreparedCount,
    PreparedSql,
)
from binlog_server.sql.session_settings import client_charset, decoded_statement, is_utf8, kept_text
from binlog_server.sql.sql_session import SqlSession
from binlog_server.sql.statement import Statement
from binlog_server.sql.statement_kind import (
    HEAD_BYTES_MAX,
    Classified,
    Kind,
    is_stored_program,
)
from binlog_server.sql.tokens import NEAR_CHARS
from binlog_server.sql.view import Row, RowStream
from binlog_server.sql_commit.logged_text import Reading, Template, template_of
from binlog_server.sql_commit.quick_way import QuickStatement
from binlog_server.sql_commit.session_transaction import SessionTransaction

T = TypeVar("T")

_STATEMENT_BYTES: Final = 2048  # of memory for a statement, beside its text
_PARSED_BYTES: Final = 100  # of what the grammars make of a character
_PREPARES: Final = frozenset({"PREPARE", "EXECUTE", "DEALLOCATE"})
_UNIT_ROWS: Final = 1000  # of the result of a bulk, in one batch
_GIVEN_BYTES_MAX: Final = 1 << 20  # they are read on the loop: a millisecond
_HEAD_BYTES: Final = 14  # of a packet with COM_STMT_EXECUTE in front of its parameters
_UNITS: Final = [
    Column.binary("Id", ColumnType.LONGLONG, 21),
    Column.binary("Affected_rows", ColumnType.LONGLONG, 21),
]
_EXECUTE, _BULK = "mysqld_stmt_execute", "mysqld_stmt_bulk_execute"


@dataclass(slots=True)
class PreparedStatement:
    """One prepared statement.

    `template` is what is committed. If the statement `is_for_here`, `text` is what a grammar reads, and `parsed` the
    statement itself, with NULL for its parameters. `types` are those of the last EXECUTE. `failed` is an error of
    COM_STMT_SEND_LONG_DATA, told by EXECUTE, up to COM_STMT_RESET.
    """

    found: Classified
    template: Template
    is_for_here: bool
    text: str = ""
    parsed: Statement | None = None
    number: int = 0
    reply: Reply = field(default_factory=Reply)
    types: bytes = b""
    long_data: dict[int, LongData] = field(default_factory=dict)
    failed: ServerError | None = None
    ready: QuickStatement | None = None

    @property
    def count(self) -> int:
        """The number of its parameters."""
        return len(self.template.places)

    @property
    def held(self) -> int:
        """Bytes of memory, but for long data and cursors."""
        parsed = 0 if self.parsed is None else self.parsed.held
        grown = _PARSED_BYTES * min(len(self.text), CODE_CHARS_MAX)
        return (
            _STATEMENT_BYTES + len(self.template.text) + len(self.text) + grown + parsed
        ) + 8 * self.count

    def reset(self) -> None:
        """Forget its cursor and long data."""
        self.reply.cursor = None
        self.long_data = {}
        self.failed = None


class Executor(Protocol):
    """The conversation, as its prepared statements see it."""

    sql: SqlSession
    transaction: SessionTransaction

    def write(self, data: bytes | bytearray) -> None: ...

    def runs(self, text: bytes) -> None:
        """This statement is executed now."""

    def commit(self, statement: Classified, readings: Iterable[Reading] | None) -> None:
        """Run a statement that is not answered here."""

    def is_for_here(self, found: Classified) -> bool:
        """Whether the statement is answered here; else it is committed, or about the transaction."""

    def go_through(
        self,
        steps: Generator[None, None, T],
        go_on: Callable[[Callable[[], T]], None],
    ) -> None:
        """Run steps that only take time, then go on with a function that gives their result or raises their error."""

    def read(
        self,
        statement: Classified,
        text: str,
        values: Sequence[Given] | None,
        go_on: Callable[[Callable[[], Statement]], None],
    ) -> None:
        """Parse a statement, then go on with a function that gives it, or raises the error of parsing it."""

    def describe(
        self, statement: Statement, go_on: Callable[[Statement, Sequence[Column]], None]
    ) -> None:
        """Read what is left to be read of a statement, and find the columns of its result, then go on with both."""

    def answer_query(self, parsed: Callable[[], Statement]) -> None:
        """Answer a statement."""

    def done(self) -> None:
        """Answer OK."""


class PreparedStatements:
    """The prepared statements of one session. On the loop only."""

    def __init__(
        self, executor: Executor, machine: ServerConnection, count: PreparedCount, packet_max: int
    ) -> None:
        """`packet_max`: bytes of a parameter's long data; with more EXECUTE is an error, as in MariaDB."""
        self._executor = executor
        self._counts = executor.sql.counts
        self._machine = machine
        self._count = count
        self._packet_max = packet_max
        self._by_number: dict[int, PreparedStatement] = {}
        self._by_name: dict[str, PreparedStatement] = {}
        self._numbers = 0  # numbers given out; none is given twice
        self._last: PreparedStatement | None = None
        self._with_cursors: dict[int, None] = {}  # an empty set is four times as large
        self._held = 0
        self._units: list[tuple[int, int]] = []  # of the bulk under way: see `Outcome`

    @property
    def held(self) -> int:
        """Bytes of memory."""
        if not self._with_cursors:
            return self._held
        cursors = (self._by_number[number].reply.cursor for number in self._with_cursors)
        return self._held + sum(cursor.held for cursor in cursors if cursor is not None)

    def clear(self) -> None:
        """Forget all of them."""
        self._count.total -= len(self._by_number) + len(self._by_name)
        self._by_number.clear()
        self._by_name.clear()
        self._with_cursors.clear()
        self._last = None
        self._held = 0

    # --- commands ---

    def forget_last(self) -> None:
        """No statement is the one prepared last."""
        self._last = None

    def prepare(self, text: bytes) -> None:
        """COM_STMT_PREPARE."""
        self._last = (
            None  # what follows without waiting for the answer means this statement, or none
        )
        self._require_room()

        def read(statement: PreparedStatement, columns: Sequence[Column]) -> None:
            self._require_room()
            self._numbers += 1
            statement.number = self._numbers
            data, statement.reply = self._machine.send_prepared(
                statement.number, columns, statement.count
            )
            self._by_number[statement.number] = self._last = statement
            self._added(statement)
            self._executor.write(data)

        self._read(text, read)

    def execute(self, command: StmtExecute) -> None:
        """COM_STMT_EXECUTE."""
        statement = self._numbered(command.number, _EXECUTE)
        self._counts.command("stmt_execute")
        if statement.failed is not None:
            raise statement.failed
        parameters = Parameters(command.body, statement.count)
        try:
            parameters.read_head(statement.types, statement.long_data)
        except TypesCutOff:
            raise MalformedPacket() from None
        except ProtocolError:
            raise WrongArguments(_EXECUTE) from None
        statement.types = parameters.types
        self._held -= sum(map(len, statement.long_data.values()))
        statement.long_data = {}
        statement.reply.cursor = None
        statement.reply.wants_units = False
        statement.reply.wants_cursor = bool(command.cursor_flags & 1)
        if statement.reply.wants_cursor:
            self._with_cursors[statement.number] = None
        self._machine.reply = statement.reply
        self._run(statement, _told(parameters.row(), _EXECUTE))

    def quick(self, data: bytes) -> tuple[bytes, bytes] | None:
        """COM_STMT_EXECUTE of a statement that changes one row of a table here, if it is as plain as that.

        Returns its text and the names of its counters; None: then nothing has happened.
        """
        statement = self._by_number.get(int.from_bytes(data[5:9], "little"))
        if (
            statement is None
            or statement.long_data
            or statement.failed is not None
            or statement.reply.cursor is not None
            or data[9:10] != b"\0"  # a cursor is wanted
            or len(data) > self._packet_max // 2
        ):
            return None
        transaction = self._executor.transaction
        ready = statement.ready
        if ready is None or not transaction.quick_way.is_ready(ready):
            found = statement.found
            if statement.is_for_here or found.kind is not Kind.DML or found.setting:
                return None
            ready = statement.ready = transaction.quick_way.ready(found.text, statement.template)
            if ready is None:
                return None
        taken = take_plain_parameters(data, _HEAD_BYTES, statement.types, ready.pieces)
        if taken is None:
            return None
        types, values, text = taken
        if not transaction.quick_way.take_rows(ready.change, values, text, data):
            return None
        statement.types = types
        return ready.shown, ready.counted

    def execute_bulk(self, command: StmtBulkExecute) -> None:
        """COM_STMT_BULK_EXECUTE: the statement for each row of parameters, committed together or not at all."""
        if not self._machine.mariadb_capabilities & MariadbCapability.STMT_BULK_OPERATIONS:
            raise NotPreparable()
        statement = self._numbered(command.number, _EXECUTE)
        self._counts.command("stmt_execute")
        if statement.found.kind is not Kind.DML or not statement.count:
            raise NotPreparable()
        parameters = Parameters(command.body, statement.count)
        try:
            follow = bool(command.flags & BulkFlag.TYPES_FOLLOW)
            parameters.read_bulk_head(statement.types, follow=follow)
        except TypesCutOff:
            raise MalformedPacket() from None
        except ProtocolError:
            raise WrongArguments(_BULK) from None
        if parameters.is_at_end:
            raise WrongArguments(_BULK)
        statement.types = parameters.types
        statement.reply.wants_units = bool(command.flags & BulkFlag.UNIT_RESULTS)
        self._units = []
        self._executor.transaction.next_units = self._units if statement.reply.wants_units else None
        self._machine.reply = statement.reply
        self._executor.runs(statement.found.text)

        def readings(template: Template) -> Iterator[Reading]:
            while not parameters.is_at_end:
                yield template.filled(_told(parameters.row(), _BULK), self._packet_max)

        self._commit(statement, readings)

    def unit_results(self, rows: int) -> RowStream | None:
        """The result of a bulk that is committed, if it is wanted row by row."""
        reply = self._machine.reply
        if reply is None or not reply.wants_units:
            return None
        # A text for tables elsewhere changes one row each time, as far as is known here.
        units = self._units or [(0, 1)] * rows
        batches: Iterator[list[Row]] = (
            list[Row](units[start : start + _UNIT_ROWS])
            for start in range(0, len(units), _UNIT_ROWS)
        )
        return RowStream(_UNITS, batches)

    def take_long_data(self, command: StmtSendLongData) -> None:
        """COM_STMT_SEND_LONG_DATA, which has no answer: errors are told by EXECUTE."""
        self._machine.send_nothing()
        statement = self._find(command.number)
        if statement is None or statement.failed is not None:
            return
        if command.parameter >= statement.count:
            statement.failed = WrongArguments("mysqld_stmt_send_long_data")
            return
        data = statement.long_data.setdefault(command.parameter, LongData())
        if len(data) + len(command.data) > self._packet_max:
            statement.failed = UnknownServerError(
                "Parameter of prepared statement which is set through mysql_send_long_data() is longer than "
                "'max_allowed_packet' bytes"
            )
            return
        data.add(command.data)
        self._held += len(command.data)

    def fetch(self, command: StmtFetch) -> None:
        """COM_STMT_FETCH."""
        statement = self._numbered(command.number, "mysqld_stmt_fetch")
        cursor = statement.reply.cursor
        if cursor is None:
            raise NoOpenCursor(statement.number)
        data, is_end = self._machine.send_fetched(cursor, command.rows)
        if is_end:
            statement.reply.cursor = None
            self._with_cursors.pop(statement.number, None)
        self._executor.write(data)

    def reset(self, number: int) -> None:
        """COM_STMT_RESET."""
        statement = self._numbered(number, "mysqld_stmt_reset")
        self._forget_data(statement)
        self._executor.write(self._machine.send_ok())

    def close(self, number: int) -> None:
        """COM_STMT_CLOSE, which has no answer."""
        self._machine.send_nothing()
        statement = self._find(number)
        if statement is not None:
            self._forget_data(statement)
            del self._by_number[statement.number]
            self._removed(statement)

    # --- SQL ---

    def answer(self, statement: PreparedSql) -> None:
        """Execute a statement about a prepared one."""
        match statement:
            case Prepare(name, source):
                self._counts.command("stmt_prepare")
                if name in self._by_name:
                    self._removed(self._by_name.pop(name))
                self._prepare_named(name, self._source(source))
            case Execute(name, values):
                if name not in self._by_name:
                    raise UnknownPreparedStatement(name, "EXECUTE")
                self._counts.command("stmt_execute")
                self._execute_with(self._by_name[name], values)
            case ExecuteImmediate(source, values):
                for done in ("stmt_prepare", "stmt_execute", "stmt_close"):
                    self._counts.command(done)
                self._read(self._source(source), lambda found, _: self._execute_with(found, values))
            case Deallocate(name):
                if name not in self._by_name:
                    raise UnknownPreparedStatement(name, "DEALLOCATE PREPARE")
                self._counts.command("stmt_close")
                self._removed(self._by_name.pop(name))
                self._executor.done()

    def _prepare_named(self, name: str, text: bytes) -> None:
        self._require_room()

        def read(statement: PreparedStatement, _: Sequence[Column]) -> None:
            self._by_name[name] = statement
            self._added(statement)
            self._executor.write(self._machine.send_ok(info=b"Statement prepared"))

        self._read(text, read)

    def _source(self, source: Expression) -> bytes:
        sql = self._executor.sql
        value = sql.value_of(source)
        if not isinstance(value, str):
            raise SqlSyntaxError("NULL" if value is None else str(value))
        return kept_text(value, sql.variables).encode("utf-8", "surrogateescape")

    def _execute_with(
        self, statement: PreparedStatement, expressions: Sequence[Expression]
    ) -> None:
        if len(expressions) != statement.count:
            raise WrongArguments("EXECUTE")
        values = [held_value(self._executor.sql, expression) for expression in expressions]
        self._run(statement, (_parameter(value) for value in values))

    # --- reading and running ---

    def _read(
        self,
        text: bytes,
        go_on: Callable[[PreparedStatement, Sequence[Column]], None],
    ) -> None:
        """Read a statement to be prepared, then go on with it, and with the columns of its result."""
        executor, sql = self._executor, self._executor.sql
        head = text[:HEAD_BYTES_MAX]
        if not head.strip(b" \t\r\n;\0") and len(head) == len(text):
            raise EmptyQuery()
        found = executor.transaction.classified(text)
        words = first_words(found.text[:NEAR_CHARS].decode("latin-1"), 2)
        if words and (words[0] in _PREPARES or words == ["DROP", "PREPARE"]):
            raise NotPreparable()

        is_for_here = executor.is_for_here(found)
        if is_for_here and len(found.text) > STATEMENT_CHARS_MAX:
            near = b"" if found.grammar is ACCOUNTS else found.text[:NEAR_CHARS]
            raise too_long(bytes(near).decode("utf-8", "replace"))

        def scanned(template: Callable[[], Template]) -> None:
            statement = PreparedStatement(found, template(), is_for_here)
            if not statement.is_for_here:
                executor.transaction.require_for(found)
                go_on(statement, ())
                return
            transaction = executor.transaction
            statement.text = transaction.for_grammars(transaction.said(bytes(found.text)))
            unknown = [Given(None, ColumnType.NULL)] * statement.count

            def described(whole: Statement, columns: Sequence[Column]) -> None:
                statement.parsed = whole
                go_on(statement, columns)

            def parsed(parse: Callable[[], Statement]) -> None:
                found = parse()
                sql.require_for(found)
                executor.describe(found, described)

            executor.read(found, statement.text, unknown, parsed)

        executor.go_through(self._template(found), scanned)

    def _template(self, found: Classified) -> Generator[None, None, Template]:
        return template_of(
            found.text,
            self._executor.transaction.settings_now(),
            is_program=is_stored_program(found.text),
            may_return_rows=self._executor.transaction.changes_here(found),
        )

    def _run(self, statement: PreparedStatement, values: Iterable[Parameter]) -> None:
        """Execute a statement with these values, and answer."""
        executor = self._executor
        executor.runs(statement.found.text)
        if not statement.is_for_here:
            self._commit(
                statement, lambda template: iter((template.filled(values, self._packet_max),))
            )
            return
        given = _given(values, client_charset(executor.sql.variables))
        assert statement.parsed is not None
        found = statement.parsed.given(given) if given else statement.parsed
        if found is None:
            executor.read(statement.found, statement.text, given, executor.answer_query)
        else:
            executor.answer_query(lambda: found)

    def _commit(
        self, statement: PreparedStatement, readings: Callable[[Template], Iterator[Reading]]
    ) -> None:
        executor, template = self._executor, statement.template
        settings = executor.transaction.settings_now()

        def execute(read: Callable[[], Template]) -> None:
            again = read()
            if len(again.places) != len(template.places):
                raise WrongArguments(_EXECUTE)  # in the sql_mode of now it is another statement
            statement.template = again
            executor.commit(statement.found, readings(again))

        if template.fits(settings):
            executor.commit(statement.found, readings(template))
        else:
            executor.go_through(self._template(statement.found), execute)

    # --- the statements themselves ---

    def _find(self, number: int) -> PreparedStatement | None:
        return self._last if number == LAST_PREPARED else self._by_number.get(number)

    def _numbered(self, number: int, who: str) -> PreparedStatement:
        statement = self._find(number)
        if statement is None:
            raise UnknownPreparedStatement(number, who)
        return statement

    def _require_room(self) -> None:
        """Raises `TooManyPreparedStatements` (1461)."""
        limit = int(self._executor.sql.global_value("max_prepared_stmt_count"))
        if self._count.total >= limit:
            raise TooManyPreparedStatements(limit)

    def _added(self, statement: PreparedStatement) -> None:
        self._count.total += 1
        self._held += statement.held

    def _removed(self, statement: PreparedStatement) -> None:
        self._count.total -= 1
        self._held -= statement.held
        if self._last is statement:
            self._last = None

    def _forget_data(self, statement: PreparedStatement) -> None:
        self._held -= sum(map(len, statement.long_data.values()))
        statement.reset()
        self._with_cursors.pop(statement.number, None)


def _given(values: Iterable[Parameter], client: str) -> list[Given]:
    """The values of a statement that is answered here. Raises 1105 for more than `_GIVEN_BYTES_MAX` of texts."""
    given, size = [], 0
    for parameter in values:
        size += len(parameter.value) if isinstance(parameter.value, Sized) else 0
        if size > _GIVEN_BYTES_MAX:
            raise UnknownServerError(
                f"A statement that is answered here may have parameters of {_GIVEN_BYTES_MAX} bytes"
            )
        given.append(_said_in(Given.of(parameter), parameter.charset or client))
    return given


def _said_in(given: Given, charset: str) -> Given:
    """A text that came in a character set."""
    value = given.value
    if not isinstance(value, str) or value.isascii() or is_utf8(charset) or given.type in BLOBS:
        return given
    text = decoded_statement(value.encode("utf-8", "surrogateescape"), charset)
    return given if text is None else replace(given, value=text)


def _told(parameters: Iterable[Parameter], who: str) -> Iterator[Parameter]:
    """The parameters; nonsense in the packet is told as MariaDB does."""
    try:
        yield from parameters
    except ProtocolError:
        raise WrongArguments(who) from None


def _parameter(held: HeldValue) -> Parameter:
    """The value of an expression as a parameter."""
    value = held.value
    if value is None:
        return Parameter(ColumnType.NULL, None)
    if isinstance(value, int):
        return Parameter(ColumnType.LONGLONG, value, unsigned=value >= 1 << 63)
    if isinstance(value, str):
        data = value.encode("utf-8", "surrogateescape")
        return Parameter(ColumnType.VAR_STRING, data, charset=charset_of(held.collation) or "")
    return Parameter(ColumnType.NEWDECIMAL, f"{value:f}")
