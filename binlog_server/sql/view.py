"""What statements see of the server, and what they give."""

from __future__ import annotations

import threading
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeVar

from binlog_protocol.errors import ServerError
from binlog_protocol.gtid import Gtid
from binlog_protocol.wire.results import Column, Value
from binlog_storage.engine import BinlogEngine

from binlog_server.relay.manager import Relay
from binlog_server.sql.state_texts import StateTexts
from binlog_server.store.leases import Leases

if TYPE_CHECKING:
    from binlog_server.commits.publisher import Publisher
    from binlog_server.commits.syncer import Syncer
    from binlog_server.connections.connections import Connections
    from binlog_server.connections.login import FailedLogins
    from binlog_server.semi_sync.master import SemiSyncMaster
    from binlog_server.settings.config import Config

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

    Work with a `line` may wait for room on the disk without end: one of a line is run at a time, and others than those
    in the line do not wait for it. `give_up` is called when the client has gone, or KILL was said: `run` ends soon.

    With `in_turn_of`, an account, it is one of those that change what the others of them read: they run one after the
    other, and the accounts take turns.
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
        """Work with a line. `run` gets what says whether the wait was given up."""
        given_up = threading.Event()
        return cls(lambda: run(given_up.is_set), done, line, given_up.set)


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
    connections: Connections
    failed_logins: FailedLogins
    kept_variables: dict[str, str]
    publisher: Publisher
    semi_sync: SemiSyncMaster
    syncer: Syncer
    port: int

    @property
    def uptime_s(self) -> int:
        """Seconds since the server was made."""

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

    def look_at_begin(self) -> None:
        """Where the binlog begins may have moved. Reads the store: to be called in a thread."""

    def history_changed(self) -> None:
        """The store was reset: what was remembered of it is wrong. On the loop, behind `look_at_begin`."""
