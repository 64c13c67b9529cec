"""Changes of tables here that are logged as text: `binlog_format` STATEMENT and MIXED.

A replica executes the text in the order of commits, one group behind the other. It ends with the same rows if the
statement sees nothing here that is not in front of it in the log, and if nobody changes what it has seen before its
commit. InnoDB has next-key locks for that; here the tables that it names are locked, exclusively, up to the commit: who
has changed rows of them has committed then, in front of it, and who comes behind waits.

What a replica cannot know goes along: LAST_INSERT_ID(), the first number of AUTO_INCREMENT, the seeds of RAND(), user
variables, the time to the microsecond, and what all statements of a session carry (sql_mode, character sets, ...).

=====================  =============================  ========================================================
the statement          STATEMENT                      MIXED
=====================  =============================  ========================================================
is safe                text                           text
is unsafe              text, and note 1592            rows
assigns @variables,    text                           rows
reads INFORMATION_
SCHEMA
is not replayed        rows                           rows
(`NotReplayed`: a text
is too long here), or
reads a @variable that
is a DECIMAL, or with
settings by which this
server does not compute
(`_is_computed_alike`)
in an XA transaction   rows                           rows: locks of tables would not be there behind a restart
READ COMMITTED         1665                           rows: others may change what it has not locked
=====================  =============================  ========================================================

The last row is about tables with transactions. A statement on one without is a group of its own, as in row format (and
as with binlog_direct_non_transactional_updates=ON in MariaDB). Inside of a transaction it does not lock tables with
transactions, nor these one without: the session would wait for itself. So a statement on both kinds is unsafe there.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from enum import Enum
from typing import TYPE_CHECKING, Final

from binlog_protocol.dataclass import dataclass
from binlog_protocol.errors import RowsOnlyTable, ServerError, UnsafeStatement
from binlog_protocol.events.header import FLAG_THREAD_SPECIFIC
from binlog_protocol.events.statement_context import (
    IntvarEvent,
    IntvarKind,
    RandEvent,
    UserVarEvent,
)
from binlog_protocol.events.status_variables import StatusVariables
from binlog_protocol.groups.statement_group import Origin
from binlog_protocol.tables.definition import KeyKind

from binlog_server.queries.functions import rand_seeds
from binlog_server.queries.terms import Asker
from binlog_server.tables.generated import CHANGING, default_functions
from binlog_server.tables.held import HeldTable

if TYPE_CHECKING:
    from binlog_server.queries.parsing import Question

ROW: Final = "ROW"
STATEMENT: Final = "STATEMENT"
_READS_COMMITTED: Final = frozenset(("READ-COMMITTED", "READ-UNCOMMITTED"))
_OF_THE_SERVER: Final = frozenset(
    {
        *("CURRENT_USER", "SESSION_USER", "SYSTEM_USER", "USER", "CURRENT_ROLE", "VERSION"),
        *("UUID", "UUID_SHORT", "UUID_V4", "UUID_V7", "SYS_GUID", "RAND", "RANDOM_BYTES"),
        *("SYSDATE", "FOUND_ROWS", "ROW_COUNT", "SLEEP", "LOAD_FILE", "GET_LOCK"),
        *("RELEASE_LOCK", "RELEASE_ALL_LOCKS", "IS_FREE_LOCK", "IS_USED_LOCK"),
        *("MASTER_POS_WAIT", "MASTER_GTID_WAIT", "BINLOG_GTID_POS"),
    }
)
_LOGGED_VARIABLES: Final = frozenset(
    {
        *("timestamp", "last_insert_id", "identity", "auto_increment_increment"),
        *("auto_increment_offset", "character_set_client", "character_set_connection"),
        *("collation_connection", "character_set_server", "collation_server"),
        *("character_set_database", "collation_database", "foreign_key_checks"),
        *("unique_checks", "check_constraint_checks", "sql_auto_is_null", "time_zone"),
        *("lc_time_names", "pseudo_thread_id", "rand_seed1", "rand_seed2"),
    }
)
_SYSTEM_ZONE: Final = (
    b"SYSTEM"  # said as such: a replica may have another one for what does not say it
)
_LAST_INSERT_ID: Final = frozenset({"last_insert_id", "identity"})


class Unsafe(Enum):
    """Why a replica may do something else, as note 1592 says it; in the order in which MariaDB does."""

    LIMIT = (
        "The statement is unsafe because it uses a LIMIT clause. This is unsafe because the set of rows included "
        "cannot be predicted"
    )
    SYSTEM_VARIABLE = (
        "Statement is unsafe because it uses a system variable "
        "that may have a different value on the slave"
    )
    SYSTEM_FUNCTION = (
        "Statement is unsafe because it uses a system function "
        "that may return a different value on the slave"
    )
    BOTH_KINDS = (
        "Statement is unsafe because it accesses a non-transactional table after accessing a transactional table "
        "within the same transaction"
    )
    INSERT_IGNORE_SELECT = (
        "INSERT IGNORE... SELECT is unsafe because the order in which rows are retrieved by the SELECT determines "
        "which (if any) rows are ignored. This order cannot be predicted and may differ on master and the slave"
    )
    INSERT_SELECT_UPDATE = (
        "INSERT... SELECT... ON DUPLICATE KEY UPDATE is unsafe because the order in which rows are retrieved by the "
        "SELECT determines which (if any) rows are updated. This order cannot be predicted and may differ on master "
        "and the slave"
    )
    REPLACE_SELECT = (
        "REPLACE... SELECT is unsafe because the order in which rows are retrieved by the SELECT determines which "
        "(if any) rows are replaced. This order cannot be predicted and may differ on master and the slave"
    )
    NUMBERS_OF_SELECT = (
        "Statements writing to a table with an auto-increment column after selecting from another table are unsafe "
        "because the order in which rows are retrieved determines what (if any) rows will be written. This order "
        "cannot be predicted and may differ on master and the slave"
    )
    UPDATE_IGNORE = (
        "UPDATE IGNORE is unsafe because the order in which rows are updated determines which (if any) rows are "
        "ignored. This order cannot be predicted and may differ on master and the slave"
    )
    TWO_KEYS = (
        "INSERT... ON DUPLICATE KEY UPDATE  on a table with more than one UNIQUE KEY is unsafe"
    )

    @property
    def note(self) -> ServerError:
        """1592."""
        return UnsafeStatement(self.value)


def unsafe_parts(
    question: Question, table: HeldTable, others: Collection[HeldTable], *, mixes: bool
) -> list[Unsafe]:
    """Why the text of a change of a table may do something else on a replica.

    Args:
        others: the other tables that it reads.
        mixes: these, or the table, are not locked.
    """
    is_ignoring = "IGNORE" in question.modifiers
    is_replacing, of_query = "REPLACE" in question.modifiers, question.is_of_query
    updates = question.tree.args.get("conflict") is not None
    keys = sum(key.kind is not KeyKind.PLAIN for key in table.definition.keys)
    read = {name for _, name in question.system_variables}
    has_numbers = table.definition.auto_increment is not None
    found = {
        Unsafe.LIMIT: question.limits,
        Unsafe.SYSTEM_VARIABLE: not read <= _LOGGED_VARIABLES,
        Unsafe.SYSTEM_FUNCTION: not question.functions.isdisjoint(_OF_THE_SERVER)
        or not default_functions(table.definition).isdisjoint(CHANGING),
        Unsafe.BOTH_KINDS: mixes,
        Unsafe.INSERT_IGNORE_SELECT: is_ignoring and of_query,
        Unsafe.INSERT_SELECT_UPDATE: updates and of_query,
        Unsafe.REPLACE_SELECT: is_replacing and of_query,
        Unsafe.NUMBERS_OF_SELECT: has_numbers and (bool(others) or question.reads_changed),
        Unsafe.UPDATE_IGNORE: is_ignoring and question.tree.key == "update",
        Unsafe.TWO_KEYS: updates and not of_query and keys > 1,
    }
    return [reason for reason, holds in found.items() if holds]


def whole_microseconds(asker: Asker) -> Asker:
    """The same with a time that a QUERY event can tell: a whole number of microseconds."""
    seconds = int(asker.now)
    return replace(asker, now=seconds + int((asker.now - seconds) * 1_000_000) / 1_000_000)


@dataclass(frozen=True, slots=True)
class TextForm:
    """What is logged of a statement in the place of its rows.

    locked: the tables that are to be locked up to the commit, in the order of their numbers.
    unsafe: what note 1592 says of it.
    seeds: of RAND().
    """

    origin: Origin
    locked: Sequence[HeldTable]
    unsafe: Sequence[Unsafe]
    variables: Sequence[UserVarEvent]
    last_insert_id: int | None
    seeds: tuple[int, int] | None

    def events(
        self, text: bytes, timestamp: int, first_number: int | None, error_code: int = 0
    ) -> Iterator[bytes]:
        """INTVAR, RAND, USER_VAR and QUERY. `first_number`: that AUTO_INCREMENT gave; `error_code`: that it failed
        with, half-way."""
        events: list[IntvarEvent | RandEvent | UserVarEvent] = []
        if self.last_insert_id is not None:
            events.append(IntvarEvent(IntvarKind.LAST_INSERT_ID, self.last_insert_id))
        if first_number is not None:
            events.append(IntvarEvent(IntvarKind.INSERT_ID, first_number))
        if self.seeds is not None:
            events.append(RandEvent(*self.seeds))
        origin = self.origin
        for event in (*events, *self.variables):
            yield event.build(
                server_id=origin.server_id,
                timestamp=timestamp,
                flags=origin.header_flags & ~FLAG_THREAD_SPECIFIC,
            )
        yield origin.statement(text, timestamp, error_code)


def _is_computed_alike(of_session: Mapping[str, str]) -> bool:
    """Whether this server computes as replicas do: these know some settings, which it does not heed, and not others,
    which it does.
    """
    collation = of_session.get("collation_connection", "")
    return (
        not collation.endswith("_bin")  # texts of the statement are compared without case here
        and collation != "binary"
        and "TIME_ROUND_FRACTIONAL" not in of_session.get("sql_mode", "").upper().split(",")
        and int(of_session.get("default_week_format", 0)) == 0
    )


def text_form(
    question: Question,
    table: HeldTable,
    others: Collection[HeldTable],
    asker: Asker,
    origin: Origin,
    variables: Sequence[UserVarEvent],
    of_session: Mapping[str, str],
    *,
    isolation: str,
    in_transaction: bool,
    reads_schema: bool,
) -> TextForm | None:
    """How a change is logged as text; None for rows. Raises `RowsOnlyTable` (1665).

    Args:
        others: the other tables here that it reads.
        asker: see `whole_microseconds`.
        of_session: its variables.
        isolation: that of the transaction.
        in_transaction: others than this statement are in its transaction.
        reads_schema: it reads tables that are not here.
    """
    said = of_session.get("binlog_format", ROW)
    if said == ROW:
        return None
    if table.is_transactional and isolation in _READS_COMMITTED:
        if said == STATEMENT:
            raise RowsOnlyTable()
        return None
    if question.tree.key == "select" or not _is_computed_alike(of_session):
        return None
    alike = [one for one in others if one.is_transactional is table.is_transactional]
    mixes = in_transaction and len(alike) < len(others)
    unsafe = unsafe_parts(question, table, others, mixes=mixes)
    if said != STATEMENT and (unsafe or question.assigns or reads_schema):
        return None
    locked = {table.number: table} | {one.number: one for one in (alike if mixes else others)}
    status = StatusVariables.parse(origin.status_variables)
    status = replace(
        status,
        microseconds=round((asker.now - int(asker.now)) * 1_000_000),
        time_zone=status.time_zone or _SYSTEM_ZONE,
    )
    functions = question.functions | default_functions(table.definition)
    is_threads_own = "CONNECTION_ID" in functions
    reads_id = "LAST_INSERT_ID" in question.functions or any(
        name in _LAST_INSERT_ID for _, name in question.system_variables
    )
    return TextForm(
        replace(
            origin,
            status_variables=status.build(),
            header_flags=origin.header_flags | (FLAG_THREAD_SPECIFIC if is_threads_own else 0),
        ),
        [locked[number] for number in sorted(locked)],
        unsafe,
        variables,
        asker.last_insert_id if reads_id else None,
        rand_seeds() if "RAND" in functions else None,
    )
