"""The types between statements and the server: results of statements, and the server as statements see it."""

from __future__ import annotations

import threading
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import field
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol, TypeVar

from binlog_protocol.dataclass import dataclass
from binlog_protocol.errors import ServerError
from binlog_protocol.gtid import Gtid
from binlog_protocol.wire.results import Column, Value
from binlog_storage.engine import BinlogEngine

from binlog_server.dumps.time_places import TimePlaces
from binlog_server.faults.faults import Faults
from binlog_server.queries.terms import MustWait
from binlog_server.relay.manager import Relay
from binlog_server.sql.state_texts import StateTexts
from binlog_server.store.backups import Backups
from binlog_server.store.leases import Leases

if TYPE_CHECKING:
    from binlog_server.commits.publisher import Publisher
    from binlog_server.commits.syncer import Syncer
    from binlog_server.connections.connections import Connections
    from binlog_server.connections.login import FailedLogins
    from binlog_server.connections.tls import TlsServer
    from binlog_server.connections.tmp_space import TmpSpace
    from binlog_server.dumps.archive_parts import ArchiveParts
    from binlog_server.semi_sync.master import SemiSyncMaster
    from binlog_server.settings.config import Config
    from binlog_server.sql.prepared_sql import PreparedCount
    from binlog_server.sql.statement import Statement
    from binlog_server.sql.user_locks import UserLocks
    from binlog_server.sql_commit.xa import XaBranches
    from binlog_server.store.scrub import Scrub
    from binlog_server.tables.held import HeldTables

Row = Sequence[Value]
Shown = str | Callable[[], str]  # a value, or a function that makes it when it is needed
T = TypeVar("T")

DIAGNOSTICS_MAX: Final = 64  # rows of SHOW WARNINGS; the default of MariaDB's max_error_count


def text_of(shown: Shown) -> str:
    """The value, made now if it is a function."""
    return shown if isinstance(shown, str) else shown()


def text_bytes(row: Row) -> int:
    """Bytes of the texts in a row, about."""
    return sum([len(value) for value in row if isinstance(value, str | bytes)])


class Level:
    """The level of a diagnostic, as SHOW WARNINGS prints it."""

    NOTE = "Note"
    WARNING = "Warning"
    ERROR = "Error"


class Diagnostic(NamedTuple):
    """One row of SHOW WARNINGS."""

    level: str
    code: int
    message: str


class Diagnostics(list[Diagnostic]):
    """What SHOW WARNINGS tells of one statement. Any thread may add to them."""

    def warn(self, told: ServerError) -> None:
        """Add a warning."""
        self._add(Level.WARNING, told)

    def note(self, told: ServerError) -> None:
        """Add a note."""
        self._add(Level.NOTE, told)

    def failed(self, error: ServerError) -> None:
        """The statement has ended with this error."""
        self._add(Level.ERROR, error)
        del self[DIAGNOSTICS_MAX:]

    def _add(self, level: str, told: ServerError) -> None:
        self.append(Diagnostic(level, told.errno, told.message))


@dataclass(slots=True)
class ResultSet:
    """Columns, and rows of text values (None is NULL).

    found: rows without the LIMIT, where SQL_CALC_FOUND_ROWS asks for it.
    """

    columns: list[Column]
    rows: list[Row]
    found: int | None = None


@dataclass(slots=True)
class RowStream:
    """A result set too large for memory. Each step of `batches` reads a disk: it is called in a thread.

    An empty batch is a pause after a long step; more batches follow.
    """

    columns: list[Column]
    batches: Iterator[list[Row]]


@dataclass(slots=True)
class Work:
    """A statement that waits for a disk or for other threads: `run` is called in a thread, and gives the result.

    `done` is called on the loop afterwards, whether it succeeded or not. `run` raises `ServerError`.

    Work with a `line` may wait for room on the disk without end. Of each line one work is run at a time, in a thread of
    its own, so that only the same line waits. `give_up` is called when the client has gone or was killed: `run` then
    ends soon.

    Work with `in_turn_of`, the name of an account, runs alone among such work, because it changes data that the others
    read; accounts take turns.
    """

    run: Callable[[], ResultSet | None]
    done: Callable[[], None] = field(default=lambda: None)
    line: str = ""
    give_up: Callable[[], None] = field(default=lambda: None)
    in_turn_of: str | None = None

    @classmethod
    def patient(
        cls,
        line: str,
        run: Callable[[Callable[[], bool]], None],
        done: Callable[[], None] = lambda: None,
    ) -> Work:
        """Work with a line. `run` gets a function that tells whether the wait was given up."""
        given_up = threading.Event()
        return cls(lambda: run(given_up.is_set), done, line, given_up.set)


@dataclass(slots=True)
class Wait:
    """A result that waits for the binlog to reach `position`, for `timeout_s` seconds at most (None is for ever).

    `result` makes the result set from whether the position was reached.
    """

    position: Sequence[Gtid]
    timeout_s: float | None
    result: Callable[[bool], ResultSet]


@dataclass(slots=True)
class Deed:
    """A statement whose work is a coroutine: `run` is awaited to its end on the loop, also if the client has gone.

    `run` raises `ServerError`.
    """

    run: Callable[[], Awaitable[None]]


@dataclass(slots=True)
class Computed:
    """A question whose answer is computed from what was taken on the loop: `run` is called in a thread, which accounts
    take turns for.

    `run` raises `ServerError`, and `MustWait` for a lock: then `wait` is awaited, and `run` called again. The
    answer, which is OK alone without `gives_rows`, with how many rows are `stored` in variables, waits for
    `sleeps_s` seconds; all of it for `timeout_s` at most (1969; None is for ever). `give_up` is called when nobody
    waits for it any longer: `run` then ends soon. `done` is called on the loop before the answer. `held` gives the
    bytes of memory that the question, and then its rows, take.
    """

    account: str
    run: Callable[[], ResultSet]
    give_up: Callable[[], None]
    sleeps_s: Callable[[], float]
    done: Callable[[], None]
    held: Callable[[], int]
    timeout_s: float | None
    wait: Callable[[MustWait], Awaitable[None]]
    gives_rows: bool = True
    stored: Callable[[], int] = lambda: 0


@dataclass(slots=True)
class Unfinished:
    """A statement of which something has to be read or computed before it can be answered: `run` is called in a thread
    that never waits for a disk, and gives the statement that is answered in its place; which may be unfinished, too.

    `run` raises `ServerError`. `give_up` is called when nobody waits for it any longer: `run` then ends soon.
    """

    run: Callable[[], Statement]
    give_up: Callable[[], None] = field(default=lambda: None)


Later = RowStream | Work | Wait | Deed | Computed
Answer = ResultSet | Later | None
Result = Answer | Unfinished


class Client(Protocol):
    """The connection of a client, for an answer that takes longer."""

    def answered(self, rows: int) -> None:
        """The answer is a result of so many rows. Called in front of its end."""

    def hold(self, *, held: bool) -> None:
        """Stop reading from the client's socket, or go on (`held` False)."""

    def holds_more(self) -> None:
        """Or less: the memory that a `Computed` takes has changed."""

    def refused(self, error: ServerError) -> None:
        """Answer with an error."""

    def write(self, data: bytes | bytearray) -> None:
        """Send a part of the answer."""

    async def drain(self) -> None:
        """Wait until the peer has taken enough; raises `ConnectionError` when it does not."""


class ServerView(Protocol):
    """The server as statements see it. Used on the loop only, except `engine` and `leases`, which any thread may use.

    `kept_variables` are values of SET GLOBAL for variables that are no options and have no effect.
    """

    config: Config
    connections: Connections
    failed_logins: FailedLogins
    kept_variables: dict[str, str]
    publisher: Publisher
    semi_sync: SemiSyncMaster
    syncer: Syncer
    prepared_count: PreparedCount
    user_locks: UserLocks
    tmp_space: TmpSpace
    backups: Backups
    time_places: TimePlaces
    tables: HeldTables
    xa: XaBranches
    port: int
    end_process: Callable[[bool], object] | None
    """Ends the process in order, once replicas have everything if that is asked for; None where it is not the server's
    own."""

    @property
    def scrub(self) -> Scrub: ...
    @property
    def tls(self) -> TlsServer | None:
        """The TLS context; None if TLS is not offered."""

    @property
    def uptime_s(self) -> int:
        """Seconds since the server was made."""

    @property
    def server_uuid(self) -> str:
        """The UUID of the store, made with it."""

    @property
    def gtid_begin(self) -> str:
        """The GTID position in front of the oldest file."""

    @property
    def engine(self) -> BinlogEngine:
        """The store."""

    @property
    def faults(self) -> Faults:
        """Those that were ordered, where the option binlog_faults allows it."""

    @property
    def leases(self) -> Leases:
        """The leases, which hold files from being purged."""

    archive_parts: ArchiveParts | None
    """Parts of the archive that has what was purged here."""

    def refresh_holds(self) -> None:
        """Release the holds on files that nobody needs any longer. To be called before each purge, in a thread."""

    def renewed_tls(self) -> Callable[[], None]:
        """Read the certificate again, in a thread; the result puts it to use, on the loop. Raises ValueError."""

    async def reload_configuration(self) -> list[ServerError]:
        """Read the configuration again, and put to use what can be changed while the server runs.

        Returns an error for each option that has changed and stays as it was. Raises `UnknownServerError` where the
        configuration is wrong: nothing has changed then.
        """

    @property
    def relay(self) -> Relay:
        """The upstreams."""

    def state_texts(self) -> StateTexts:
        """The texts of the present binlog state."""

    def look_at_begin(self) -> None:
        """The binlog's beginning may have moved: read it again. Reads the store: to be called in a thread."""

    def convert(self, target: Path, log_bin: str | None, given_up: Callable[[], bool]) -> None:
        """Go on in a new store of the other format, in that directory. In a thread.

        Raises `ServerError`, `StorageError`: then the server has stayed where it was.

        Args:
            log_bin: base name of traditional files; None for the default.
            given_up: whether the statement's client has gone or was killed: it ends soon then.
        """

    def history_changed(self) -> None:
        """The store was reset: forget all that was remembered of it. On the loop, after `look_at_begin`."""
