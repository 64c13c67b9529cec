"""Events of the client side, `client.py`: everything that an upstream sends."""

from __future__ import annotations

from binlog_protocol.connection.handshake import Greeting
from binlog_protocol.dataclass import dataclass
from binlog_protocol.errors import RemoteError
from binlog_protocol.groups.group_stream import EventReceived as EventReceived
from binlog_protocol.groups.group_stream import StreamEnded as StreamEnded
from binlog_protocol.wire.results import Column, Ok


@dataclass(frozen=True, slots=True)
class GreetingReceived:
    """Now `login()` is to be sent."""

    greeting: Greeting


@dataclass(frozen=True, slots=True)
class AuthSwitchReceived:
    """The upstream wants another plugin, or the same with a new salt: send `answer`."""

    answer: bytes


@dataclass(frozen=True, slots=True)
class LoggedIn:
    """The upstream accepted the login."""


@dataclass(frozen=True, slots=True)
class OkReceived:
    """The request was done."""

    ok: Ok


@dataclass(frozen=True, slots=True)
class ErrorReceived:
    """The request failed; or the login or the stream, and then the machine is closed."""

    error: RemoteError


@dataclass(frozen=True, slots=True)
class ResultReceived:
    """A whole result set; None is NULL."""

    columns: list[Column]
    rows: list[list[str | None]]


@dataclass(frozen=True, slots=True)
class RowReceived:
    """One row of a result set that is taken row by row; None is NULL."""

    values: list[bytes | None]


ClientEvent = (
    GreetingReceived
    | AuthSwitchReceived
    | LoggedIn
    | OkReceived
    | ErrorReceived
    | ResultReceived
    | RowReceived
    | EventReceived
    | StreamEnded
)
