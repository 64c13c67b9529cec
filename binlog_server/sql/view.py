"""What statements see of the server, and what they give."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeVar

from binlog_protocol.connection.server import ServerConnection
from binlog_protocol.errors import ServerError
from binlog_protocol.gtid import Gtid
from binlog_protocol.wire.results import Column, Value
from binlog_storage.engine import BinlogEngine

from binlog_server.leases import Leases
from binlog_server.relay.manager import Relay
from binlog_server.sql.state_texts import StateTexts

if TYPE_CHECKING:
    from binlog_server.commits.publisher import Publisher
    from binlog_server.commits.syncer import Syncer
    from binlog_server.config import Config
    from binlog_server.semi_sync.master import SemiSyncMaster

Row = Sequence[Value]
Shown = str | Callable[[], str]  # a value, or what makes one that is not always needed
T = TypeVar("T")


def text_of(shown: Shown) -> str:
    """The value."""
    return shown if isinstance(shown, str) else shown()


class Level:
    """Of a diagnostic, as SHOW WARNINGS tells it."""

    NOTE = "Note"
    WARNING = "Warning"
    ERROR = "Error"


class Diagnostic(NamedTuple):
    """One row of SHOW WARNINGS."""

    level: str
    code: int
    message: str


@dataclass(slots=True)
class ResultSet:
    """Columns, and rows of text values (None is NULL)."""

    columns: list[Column]
    rows: list[Row]


@dataclass(slots=True)
class RowStream:
    """A result set too large for memory: each step of `batches` reads a disk, so it is done in a thread.

    An empty batch says that a step took long enough, and that there is more.
    """

    columns: list[Column]
    batches: Iterator[list[Row]]


@dataclass(slots=True)
class Work:
    """A statement that waits for a disk or for other threads: `run` is called in a thread, and gives the result.

    `done` is called on the loop afterwards, whether it succeeded or not. `run` raises `ServerError`.
    """

    run: Callable[[], ResultSet | None]
    done: Callable[[], None] = field(default=lambda: None)


@dataclass(slots=True)
class Wait:
    """A result that waits for the binlog to reach `position`, for `timeout_s` seconds at most (None is for ever).

    `result` gets whether it did.
    """

    position: Sequence[Gtid]
    timeout_s: float | None
    result: Callable[[bool], ResultSet]


@dataclass(slots=True)
class Deed:
    """A statement that does something on the loop: `run` is awaited there to its end, also when the client has gone.

    It raises `ServerError`.
    """

    run: Callable[[], Awaitable[None]]


Later = RowStream | Work | Wait | Deed
Result = ResultSet | Later | None


class Client(Protocol):
    """Who gets an answer that takes longer."""

    def hold(self, *, held: bool) -> None:
        """Read nothing more, or go on."""

    def refused(self, error: ServerError) -> None:
        """Answer with an error."""

    def write(self, data: bytes | bytearray) -> None:
        """Send a part of the answer."""

    async def drain(self) -> None:
        """Wait until the peer has taken enough; raises `ConnectionError` when it does not."""


class ServerView(Protocol):
    """What statements may see and do of the server. On the loop, but for `engine` and `leases`.

    `kept_variables` are those that SET GLOBAL has changed and nothing depends on.
    """

    config: Config
    kept_variables: dict[str, str]
    publisher: Publisher
    semi_sync: SemiSyncMaster
    syncer: Syncer
    port: int

    @property
    def server_uuid(self) -> str:
        """Of the store, from when it was made."""

    @property
    def gtid_begin(self) -> str:
        """The position in front of the oldest file."""

    @property
    def engine(self) -> BinlogEngine:
        """The store."""

    @property
    def leases(self) -> Leases:
        """Who holds files back."""

    def refresh_holds(self) -> None:
        """Who needs files no longer lets them go. To be called before each purge, in a thread."""

    @property
    def relay(self) -> Relay:
        """The upstreams."""

    def state_texts(self) -> StateTexts:
        """Of the present state."""

    def slave_rows(self, texts: StateTexts) -> Mapping[str, Mapping[str, Value]]:
        """By connection, then by column: what SHOW SLAVE STATUS tells."""

    def status_variables(self) -> Mapping[str, str]:
        """By name as SHOW STATUS prints it."""

    def slave_hosts(self) -> Iterable[Row]:
        """Rows of SHOW SLAVE HOSTS."""

    def processlist(self, user: str | None) -> Iterable[Row]:
        """Rows of SHOW PROCESSLIST, of one user or of all."""

    def replicas(self) -> Iterable[Row]:
        """Rows of SHOW BINLOG REPLICAS."""

    def owner(self, connection_id: int) -> str:
        """The user of a connection; `UnknownThread` if there is none."""

    def kill(self, connection_id: int) -> None:
        """End a connection; `UnknownThread` if there is none."""

    def interrupt(self, connection_id: int) -> None:
        """End what runs on a connection; `UnknownThread` if there is none."""

    def require_in_order(self, seq_no: int, domain_id: str | None, server_id: str | None) -> None:
        """What SET gtid_seq_no asks for, with the values of the session. Raises `GtidOutOfOrder` (1950)."""

    def look_at_begin(self) -> None:
        """Where the binlog begins may have moved. Reads the store: to be called in a thread."""

    def history_changed(self) -> None:
        """The store was reset: what was remembered of it is wrong. On the loop, behind `look_at_begin`."""

    def in_thread(self, call: Callable[[], T]) -> asyncio.Future[T]:
        """Call what only computes in a thread: see `sql.runner`."""

    def answer_later(
        self,
        what: Later,
        client: Client,
        machine: ServerConnection,
        warnings: Callable[[], int],
    ) -> asyncio.Task[None]:
        """Give the client the answer when it is there; see `sql.runner`."""
