"""A conversation with a server, from its greeting to its dump: each exchange is a generator. No I/O.

An exchange yields steps and returns its result; who drives it has a socket, and does each step before going on:

=================  ================================================  =====================
step               what the driver does                              what it sends back
=================  ================================================  =====================
`Send(data)`       writes it                                         None
`RECEIVE`          waits for bytes, and hands them to the machine    None
`Secure(request)`  writes the request, does the TLS handshake        the certificate (DER)
=================  ================================================  =====================

A driver that has bytes which the machine was not handed before the TLS handshake raises `TlsRefused` with `CLEAR`.

`drive` is the driver for callers with blocking sockets; an asynchronous one is the same loop with `await`. Errors come
out of the exchange: `RemoteError` for what the server refuses, `ProtocolError`, `TlsRefused`. What the
driver meets itself (a lost socket, a wait that was too long) ends the exchange with it.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from enum import Enum
from hashlib import sha256
from typing import Final, NamedTuple, TypeVar, cast

from binlog_protocol.connection.client import (
    AuthSwitchReceived,
    ClientConnection,
    ClientEvent,
    ErrorReceived,
    GreetingReceived,
    LoggedIn,
    OkReceived,
    ResultReceived,
    RowReceived,
)
from binlog_protocol.connection.commands import DumpFlag
from binlog_protocol.connection.handshake import Capability
from binlog_protocol.connection.replica import SLAVE_CAPABILITY, ReplicaHandshake
from binlog_protocol.dataclass import dataclass
from binlog_protocol.errors import ProtocolError
from binlog_protocol.events.checksum import ChecksumAlgorithm

ResultT = TypeVar("ResultT")


class Send(NamedTuple):
    """Bytes for the server."""

    data: bytes


class Receive(NamedTuple):
    """The exchange needs more bytes of the server."""


class Secure(NamedTuple):
    """The connection goes on by TLS; `request` is what the server must read first, in clear."""

    request: bytes


RECEIVE: Final = Receive()
Step = Send | Receive | Secure
Exchange = Generator[Step, bytes | None, ResultT]


class Verify(Enum):
    """The ways to verify the server of a TLS connection."""

    NOT = "not at all"
    IF_PROVED = "a proof that it gives by the password must be right"
    BY_PROOF = (
        "it must prove by the password that the certificate is its own (MariaDB from 11.4 on)"
    )
    BY_AUTHORITY = "in the TLS handshake, by the authorities that the driver has given to it"


@dataclass(frozen=True, slots=True)
class TlsPolicy:
    """A client's demands on TLS.

    enabled: it is used, if the server offers it.
    required: a server that does not offer it is refused.
    """

    enabled: bool = True
    required: bool = False
    verify: Verify = Verify.IF_PROVED


NO_TLS: Final = TlsPolicy(enabled=False)


class TlsProblem(Enum):
    """The reasons for which a connection is not protected as wanted."""

    NOT_OFFERED = "the server does not offer TLS"
    CLEAR = "the server has sent something in clear behind its greeting"
    WRONG_PROOF = "the server's proof of its certificate is wrong: somebody is between"
    NO_PROOF = "the server does not prove by the password that its certificate is its own"


class TlsRefused(Exception):
    """TLS cannot be had as the policy wants it. The driver gives the advice: it knows its options."""

    def __init__(self, problem: TlsProblem) -> None:
        super().__init__(problem.value)
        self.problem: Final = problem


class Protection(Enum):
    """The protection of a login. The values are for the log."""

    NONE = "without TLS"
    UNVERIFIED = "TLS, not verified"
    AUTHORITY = "TLS, verified by its CA"
    PASSWORD = "TLS, verified by the password"


def drive(
    exchange: Exchange[ResultT],
    *,
    send: Callable[[bytes], object],
    receive: Callable[[], object],
    secure: Callable[[bytes], bytes] | None = None,
) -> ResultT:
    """Do the steps of an exchange by calls that return when they are done. Returns its result.

    `secure` may be left out where the policy is `NO_TLS`.
    """
    answer: bytes | None = None
    while True:
        try:
            step = exchange.send(answer)
        except StopIteration as end:
            return cast(ResultT, end.value)
        answer = None
        match step:
            case Receive():
                receive()
            case Send(data):
                send(data)
            case Secure(request):
                assert secure is not None
                answer = secure(request)


def next_event(machine: ClientConnection) -> Exchange[ClientEvent]:
    """The next event, of any kind."""
    while (event := machine.next_event()) is None:
        yield RECEIVE
    return event


def log_in(
    machine: ClientConnection,
    tls: TlsPolicy = NO_TLS,
    attributes: dict[str, str] | None = None,
) -> Exchange[Protection]:
    """The login, from the greeting on. `attributes`: what the server is told of this program.

    Raises `RemoteError` when refused, `TlsRefused`.
    """
    certificate: bytes | None = None
    while True:
        match (yield from next_event(machine)):
            case GreetingReceived(greeting):
                if _uses_tls(tls, offered=bool(greeting.capabilities & Capability.SSL)):
                    if machine.has_unread:  # it would pass for what came by TLS
                        raise TlsRefused(TlsProblem.CLEAR)
                    certificate = (yield Secure(machine.tls_request())) or b""
                yield Send(machine.login(attributes))
            case AuthSwitchReceived(answer):
                yield Send(answer)
            case LoggedIn():
                return _protection(machine, tls, certificate)
            case ErrorReceived(error):
                raise error
            case other:
                raise ProtocolError(f"{type(other).__name__} is no answer to a login")


def _uses_tls(tls: TlsPolicy, *, offered: bool) -> bool:
    if tls.enabled and tls.required and not offered:
        raise TlsRefused(TlsProblem.NOT_OFFERED)
    return tls.enabled and offered


def _protection(machine: ClientConnection, tls: TlsPolicy, certificate: bytes | None) -> Protection:
    """After the login; `certificate` is what the server has shown, if there is TLS."""
    if certificate is None:
        return Protection.NONE
    if tls.verify is Verify.NOT:
        return Protection.UNVERIFIED
    if tls.verify is Verify.BY_AUTHORITY:
        return Protection.AUTHORITY
    if machine.proves_certificate(sha256(certificate).digest()):
        return Protection.PASSWORD
    if machine.has_proof:
        raise TlsRefused(TlsProblem.WRONG_PROOF)
    if tls.verify is Verify.BY_PROOF:
        raise TlsRefused(TlsProblem.NO_PROOF)
    return Protection.UNVERIFIED


def query(machine: ClientConnection, sql: str) -> Exchange[list[list[str | None]]]:
    """The rows; none for a statement that gives no result set. Raises `RemoteError`."""
    yield Send(machine.query(sql))
    match (yield from next_event(machine)):
        case ResultReceived(rows=rows):
            return rows
        case OkReceived():
            return []
        case ErrorReceived(error):
            raise error
        case other:
            raise ProtocolError(f"{type(other).__name__} is no answer to a query")


def start_rows(machine: ClientConnection, sql: str) -> Exchange[None]:
    """Ask a question whose rows are taken one by one, by `next_row`: there may be any number of them."""
    machine.row_by_row = True
    yield Send(machine.query(sql))


def next_row(machine: ClientConnection) -> Exchange[list[bytes | None] | None]:
    """The next row of the answer to `start_rows`; None behind the last. Raises `RemoteError`."""
    event = yield from next_event(machine)
    if isinstance(event, RowReceived):
        return event.values
    machine.row_by_row = False
    match event:
        case ResultReceived() | OkReceived():
            return None
        case ErrorReceived(error):
            raise error
    raise ProtocolError(f"{type(event).__name__} is no answer to a query")


def start_dump(machine: ClientConnection, handshake: ReplicaHandshake) -> Exchange[None]:
    """The exchange of a replica before a dump; the stream follows. Raises as `ReplicaHandshake.answer`."""
    while (request := handshake.next_request()) is not None:
        yield Send(request)
        if not handshake.is_streaming:
            handshake.answer((yield from next_event(machine)))


def start_file_dump(
    machine: ClientConnection, server_id: int, file: str = "", offset: int = 4
) -> Exchange[ChecksumAlgorithm]:
    """The stream without GTIDs, from a place in a binlog file (or the first file) to the end of what there is.

    Returns the checksums of the events in front of the first format description.
    """
    yield from query(machine, "SET @master_binlog_checksum= @@global.binlog_checksum")
    rows = yield from query(machine, "SELECT @master_binlog_checksum")
    if not rows or not rows[0]:
        raise ProtocolError("a result set without the expected value")
    algorithm = ChecksumAlgorithm.from_variable(rows[0][0] or "NONE")
    yield from query(machine, f"SET @mariadb_slave_capability={SLAVE_CAPABILITY}")
    flags = DumpFlag.NON_BLOCK | DumpFlag.SEND_ANNOTATE_ROWS
    yield Send(machine.binlog_dump(server_id, flags, file, offset))
    return algorithm
