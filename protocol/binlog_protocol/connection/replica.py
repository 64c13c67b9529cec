"""A replica's requests to its master between the login and the stream. No I/O.

The statements and their order are those of MariaDB 10.11 and 11.8; the question for the storage
engine is 12.3's. Which answers are tolerated follows from what each one is needed for.

An engine binlog has no checksums of events. A server of ours makes them for who asks, which matters
where no TLS looks at the bytes. A MariaDB is not asked: it has none to send.

Each step is a request and a check of its answer; a check raises `UpstreamRefused` when there is no
point in going on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from binlog_protocol.connection.client import (
    ClientConnection,
    ClientEvent,
    ErrorReceived,
    OkReceived,
    ResultReceived,
)
from binlog_protocol.connection.commands import DumpFlag
from binlog_protocol.dataclass import dataclass
from binlog_protocol.errors import ProtocolError, UnknownSystemVariable
from binlog_protocol.events.checksum import ChecksumAlgorithm
from binlog_protocol.gtid import U32_MAX, SlavePosition

_ONLY_OURS: Final = "@@GLOBAL.binlog_gtid_begin"  # its version may be set to any

# The capability of a replica that knows GTID events; the highest one in any MariaDB.
SLAVE_CAPABILITY: Final = 4

READER_IDS: Final = range(1 << 31, U32_MAX + 1)
"""Of which who only reads takes one at random: a server ends the dump of a replica when another one comes with the same
id."""

# The number that a MariaDB replica stops with when its set-up does not suit the master's.
ER_SLAVE_FATAL_ERROR: Final = 1593


class UpstreamRefused(Exception):
    """This upstream cannot be followed as things are; trying again will not help."""

    def __init__(self, message: str, errno: int = ER_SLAVE_FATAL_ERROR) -> None:
        super().__init__(f"{errno}: {message}")
        self.errno = errno
        self.message = message


@dataclass(frozen=True, slots=True)
class _Step:
    request: Callable[[], bytes]
    check: Callable[[ClientEvent], None]


class ReplicaHandshake:
    """Takes a logged-in `ClientConnection` to its stream.

    Send what `next_request()` returns and hand the answer to `answer()`, until `next_request()`
    returns None. The last request is the dump, which `answer()` does not hear of: when
    `is_streaming`, the events that follow belong to the stream.
    """

    def __init__(
        self,
        connection: ClientConnection,
        *,
        server_id: int,
        position: SlavePosition | str,
        heartbeat_period_ns: int,
        strict_mode: bool = True,
        ignore_duplicates: bool = False,
        until: SlavePosition | None = None,
        report_host: str = "",
        report_port: int = 0,
        non_block: bool = False,
        dump_flags: int = DumpFlag.SEND_ANNOTATE_ROWS,
        semi_sync: bool = False,
        comes_back: bool = True,
    ) -> None:
        """`heartbeat_period_ns` 0 asks for no heartbeats. `server_id` must be unique there.

        `comes_back`: under the same `server_id`, as a replica does. Who does not stays unregistered: a server, ours for
        one, may keep files for who has registered.

        `semi_sync`: asked for; `connection.semi_sync` tells whether the upstream has it.

        `position`: or its text, made elsewhere: of thousands of domains it takes milliseconds.

        `until`: groups beyond it, and those of domains that are not in it, are not sent.
        """
        if not 0 < server_id <= U32_MAX:
            raise ValueError(f"server_id {server_id} is not between 1 and {U32_MAX}")
        self._connection = connection
        self._server_id = server_id
        self._position = position
        self._heartbeat_period_ns = heartbeat_period_ns
        self._strict_mode = strict_mode
        self._ignore_duplicates = ignore_duplicates
        self._until = until
        self._report_host = report_host
        self._report_port = report_port
        self._dump_flags = int(dump_flags) | (DumpFlag.NON_BLOCK if non_block else 0)
        self._semi_sync = semi_sync
        self._comes_back = comes_back
        self._steps = self._plan()
        self._pending: _Step | None = None

        # What was learnt; complete when `is_streaming`.
        self.upstream_server_id = 0
        self.checksum = ChecksumAlgorithm.NONE.name
        self.engine_binlog = False
        self._is_ours = False
        self.is_streaming = False

    @property
    def checksum_algorithm(self) -> ChecksumAlgorithm:
        """The negotiated algorithm: that of the events before the first format description."""
        return ChecksumAlgorithm[self.checksum]

    def next_request(self) -> bytes | None:
        """The bytes to send next, or None when the stream has begun."""
        if self._pending is not None:
            raise RuntimeError("the answer to the last request has not come yet")
        if self.is_streaming:
            return None
        self._pending = next(self._steps, None)
        if self._pending is not None:
            return self._pending.request()
        self.is_streaming = True
        return self._connection.binlog_dump(self._server_id, self._dump_flags)

    def answer(self, event: ClientEvent) -> None:
        """The answer to the last request.

        Raises `UpstreamRefused`, `RemoteError` for an error that may pass, `ProtocolError` for an
        answer of the wrong kind.
        """
        step, self._pending = self._pending, None
        if step is None:
            raise RuntimeError("no request was made")
        step.check(event)

    def _plan(self) -> Iterator[_Step]:
        """The steps; a later one may depend on what an earlier one learnt."""
        yield self._query("SELECT UNIX_TIMESTAMP()", _anything)
        yield self._query("SHOW VARIABLES LIKE 'SERVER_ID'", self._check_server_id)
        if self._heartbeat_period_ns:
            yield self._query(f"SET @master_heartbeat_period= {self._heartbeat_period_ns}", _ok)
        yield self._query(
            "SET @master_binlog_checksum= @@global.binlog_checksum", _ok_or_unknown_variable
        )
        yield self._query("SELECT @master_binlog_checksum", self._check_checksum)
        yield self._query("SELECT @@GLOBAL.binlog_storage_engine", self._check_engine)
        if self.engine_binlog and not (self._connection.in_tls or self.checksum_algorithm):
            yield self._query(f"SELECT {_ONLY_OURS}", self._check_ours)
            if self._is_ours:
                yield self._query("SET @master_binlog_checksum= 'CRC32'", _ok)
                yield self._query("SELECT @master_binlog_checksum", self._check_checksum)
        yield self._query(f"SET @mariadb_slave_capability={SLAVE_CAPABILITY}", _ok)
        yield self._query("SELECT @@GLOBAL.gtid_domain_id", self._check_gtid)
        yield self._query(f"SET @slave_connect_state='{self._position}'", _ok)
        yield self._query(f"SET @slave_gtid_strict_mode={int(self._strict_mode)}", _ok)
        yield self._query(f"SET @slave_gtid_ignore_duplicates={int(self._ignore_duplicates)}", _ok)
        if self._until is not None:
            yield self._query(f"SET @slave_until_gtid='{self._until}'", _ok)
        if self._comes_back:
            yield _Step(
                lambda: self._connection.register_slave(
                    self._server_id, self._report_host, self._report_port
                ),
                _ok,
            )
        if self._semi_sync:
            yield self._query(
                "SHOW VARIABLES LIKE 'rpl_semi_sync_master_enabled'", self._check_semi_sync
            )
            # Whatever the value is: from then on the packets are those of semi-sync.
            if self._connection.semi_sync:
                yield self._query("SET @rpl_semi_sync_slave= 1", _ok)

    def _query(self, sql: str, check: Callable[[ClientEvent], None]) -> _Step:
        return _Step(lambda: self._connection.query(sql), check)

    def _check_server_id(self, event: ClientEvent) -> None:
        text = _value(event, 1)
        self.upstream_server_id = number("server_id", text, U32_MAX)
        if self.upstream_server_id == self._server_id:
            raise UpstreamRefused(
                "master and slave have equal MariaDB server ids; these ids must be different "
                "for replication to work"
            )

    def _check_semi_sync(self, event: ClientEvent) -> None:
        if isinstance(event, ErrorReceived):
            raise event.error
        self._connection.semi_sync = isinstance(event, ResultReceived) and bool(event.rows)

    def _check_checksum(self, event: ClientEvent) -> None:
        text = _value(event, 0)
        # NULL: the variable was unknown, so the upstream knows no checksums.
        self.checksum = ChecksumAlgorithm.from_variable(text or "NONE").name

    def _check_engine(self, event: ClientEvent) -> None:
        if _is_unknown_variable(event):
            return
        self.engine_binlog = _value(event, 0) is not None

    def _check_ours(self, event: ClientEvent) -> None:
        if not _is_unknown_variable(event):
            _value(event, 0)
            self._is_ours = True

    def _check_gtid(self, event: ClientEvent) -> None:
        if _is_unknown_variable(event):
            raise UpstreamRefused("the upstream has no GTIDs; MariaDB 10.0 or later is needed")
        _value(event, 0)


def number(name: str, text: str | None, highest: int) -> int:
    """A number that a server has sent as text, from 0 to `highest`. Raises `ProtocolError`."""
    # Python refuses to read thousands of digits, and a float does not take hundreds.
    if text is None or not (text.isascii() and text.isdecimal() and len(text) <= len(str(highest))):
        raise ProtocolError(f"the upstream says that its {name} is {text!r}")
    if (found := int(text)) > highest:
        raise ProtocolError(f"the upstream says that its {name} is {text}")
    return found


def _anything(event: ClientEvent) -> None:
    """The clock only serves to show a lag."""


def _ok(event: ClientEvent) -> None:
    if isinstance(event, ErrorReceived):
        raise event.error
    if not isinstance(event, OkReceived):
        raise ProtocolError(f"{type(event).__name__} where OK was expected")


def _ok_or_unknown_variable(event: ClientEvent) -> None:
    if not _is_unknown_variable(event):
        _ok(event)


def _is_unknown_variable(event: ClientEvent) -> bool:
    return isinstance(event, ErrorReceived) and event.error.errno == UnknownSystemVariable.errno


def _value(event: ClientEvent, column: int) -> str | None:
    """One value of the first row."""
    if isinstance(event, ErrorReceived):
        raise event.error
    if not isinstance(event, ResultReceived):
        raise ProtocolError(f"{type(event).__name__} where a row was expected")
    if not event.rows or len(event.rows[0]) <= column:
        raise ProtocolError("a result set without the expected value")
    return event.rows[0][column]
