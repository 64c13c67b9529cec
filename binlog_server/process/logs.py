"""The log: one line a fact, on standard error, as text for people or as JSON for collectors.

What clients send is quoted in messages, user names before the login, too: nothing of it can look like another line.

A call names its facts, so that JSON has them as fields; text has them in the message only:

    log.info("dump starts: %(peer)s, server_id %(server_id)d", {"peer": peer, "server_id": 7})

A `Peer`, and an error with MariaDB's number, become fields of their own; they may also be plain arguments.
"""

from __future__ import annotations

import json
import logging
import math
from collections import OrderedDict, deque
from collections.abc import Iterator, Mapping
from contextlib import nullcontext
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple

from binlog_protocol.dataclass import dataclass
from binlog_protocol.errors import RemoteError, ServerError

log = logging.getLogger(__name__)

TEXT_CHARS_MAX: Final = 2048
"""The most characters of one fact, wherever it is told: logs, Last_IO_Error, /readyz. An upstream's answer may have
more, and so may a GTID position, which has an entry for each domain."""
_END_CHARS: Final = 512  # of them; in an error it is said there what to do

_SESSIONS = ("binlog_server.connections.", "binlog_server.sessions.")
TEXT, JSON = "text", "json"
FORMATS = (TEXT, JSON)


@dataclass(frozen=True, slots=True)
class Peer:
    """A client, as messages tell of it. `address`: with the port; `user`: as the client gave it, or empty."""

    connection: int
    address: str
    user: str = ""

    def __str__(self) -> str:
        user = f" ({self.user})" if self.user else ""
        return f"connection {self.connection} from {self.address}{user}"

    def log_fields(self) -> Mapping[str, Any]:
        fields = {"connection": self.connection, "address": self.address}
        return {**fields, "user": self.user} if self.user else fields


def shortened(text: str) -> str:
    """The text without its middle, if it has more than `TEXT_CHARS_MAX` characters."""
    if len(text) <= TEXT_CHARS_MAX:
        return text
    mark = f" ... ({len(text)} characters) ... "
    return text[: TEXT_CHARS_MAX - _END_CHARS - len(mark)] + mark + text[-_END_CHARS:]


def set_up_logging(level: str, log_format: str = TEXT) -> None:
    """`log_format`: one of `FORMATS`."""
    handler = logging.StreamHandler()
    handler.setFormatter(JsonFormatter() if log_format == JSON else TextFormatter())
    handler.addFilter(PeerLimit())
    logging.basicConfig(level=level, handlers=[handler])


class PeerLimit(logging.Filter):
    """A limit on log lines that sessions cause: of each kind `LINES` in `WINDOW_S`, from each address.

    That lines are left out is told at once, and how many, with the next one of their kind. Errors are never left out.
    """

    WINDOW_S = 60
    LINES = 100
    _KINDS_MAX = 10_000  # beyond it the oldest are forgotten

    def __init__(self) -> None:
        super().__init__()
        self._counts: OrderedDict[tuple[str, str], tuple[float, int]] = OrderedDict()

    def filter(self, record: logging.LogRecord) -> bool:
        peer = _session_peer(record)
        if peer is None:
            return True
        host = peer.address.rpartition(":")[0]
        kind = host, str(record.msg)
        began, count = self._counts.pop(kind, (record.created, 0))
        if not 0 <= record.created - began < self.WINDOW_S:
            if count > self.LINES:
                facts = {"count": count - self.LINES, "host": host, "kind": kind[1]}
                log.warning("%(count)d lines about %(host)s were left out: '%(kind)s'", facts)
            began, count = record.created, 0
        self._counts[kind] = began, count + 1
        if len(self._counts) > self._KINDS_MAX:
            self._counts.popitem(last=False)
        if count == self.LINES:
            facts = {"host": host, "kind": kind[1], "seconds": self.WINDOW_S}
            log.warning(
                "more lines about %(host)s within %(seconds)d s are left out: '%(kind)s'", facts
            )
        return count < self.LINES


def _session_peer(record: logging.LogRecord) -> Peer | None:
    """Whom a line is about that a client can cause as often as it likes."""
    if record.levelno >= logging.ERROR or not record.name.startswith(_SESSIONS):
        return None
    args = record.args
    values = args.values() if isinstance(args, Mapping) else args or ()
    return next((value for value in values if isinstance(value, Peer)), None)


class LogLine(NamedTuple):
    """A line of the log: when it was written, in seconds since 1970, and its message in one line."""

    at: float
    level: str
    text: str


class RecentLines(logging.Handler):
    """Keeps the last warnings and errors, without their tracebacks. Any thread may ask for them."""

    LINES: Final = 50

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self._lines: deque[LogLine] = deque(maxlen=self.LINES)
        self.addFilter(PeerLimit())

    def emit(self, record: logging.LogRecord) -> None:
        text = shortened(_printable(record.getMessage()))
        self._lines.append(LogLine(record.created, record.levelname, text))

    def newest_first(self) -> list[LogLine]:
        """All that are kept."""
        with self.lock or nullcontext():
            return list(reversed(self._lines))


class TextFormatter(logging.Formatter):
    """Time (UTC, RFC 3339), level, message. The lines of a traceback are indented: no other line begins so."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)s %(message)s")

    def formatTime(self, record: logging.LogRecord, datefmt: str | None = None) -> str:
        return _utc(record.created)

    def formatMessage(self, record: logging.LogRecord) -> str:
        return _printable(super().formatMessage(record))

    def formatException(self, ei: Any) -> str:
        return _indented(super().formatException(ei))

    def formatStack(self, stack_info: str) -> str:
        return _indented(stack_info)


class JsonFormatter(logging.Formatter):
    """An object a line: `ts` (UTC, RFC 3339), `level`, `logger`, `message`, the facts, `exception` (a traceback)."""

    def format(self, record: logging.LogRecord) -> str:
        line = {
            "ts": _utc(record.created),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
        }
        for name, value in _facts(record):
            line.setdefault(name, value)
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps({name: _plain(value) for name, value in line.items()})


def _facts(record: logging.LogRecord) -> Iterator[tuple[str, Any]]:
    args = record.args
    if isinstance(args, Mapping):
        for name, value in args.items():
            if not isinstance(value, Peer):
                yield name, value
            yield from _known(value)
    else:
        for value in args or ():
            yield from _known(value)


def _known(value: object) -> Iterator[tuple[str, Any]]:
    if isinstance(value, Peer):
        yield from value.log_fields().items()
    elif isinstance(value, ServerError | RemoteError):
        yield "errno", value.errno


def _plain(value: object) -> object:
    """A value that JSON has, and text that every parser of it takes."""
    if value is None or isinstance(value, int):
        return value
    if isinstance(value, float) and math.isfinite(value):
        return value
    return str(value).encode("utf-8", "backslashreplace").decode()


def _utc(seconds: float) -> str:
    when = datetime.fromtimestamp(seconds, UTC)
    return when.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _printable(text: str) -> str:
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)


def _indented(text: str) -> str:
    return "\n".join("    " + _printable(line) for line in text.split("\n"))
