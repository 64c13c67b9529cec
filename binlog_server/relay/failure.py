"""Why an upstream is not followed, by MariaDB's numbers and texts: Last_IO_Errno and Last_IO_Error."""

from __future__ import annotations

import asyncio
import os
import socket
import traceback
from typing import NamedTuple

from binlog_protocol.connection.replica import ER_SLAVE_FATAL_ERROR, UpstreamRefused
from binlog_protocol.errors import ErrorOnWrite, MasterFatalError, ProtocolError, RemoteError
from binlog_protocol.events.checksum import EventChecksumError
from binlog_storage.errors import BinlogBegunAnew, StorageError

from binlog_server.process.logs import shortened
from binlog_server.relay.gate import GroupRefused
from binlog_server.relay.guard import CandidateBehind, HistoryDiverged
from binlog_server.relay.incidents import ER_SLAVE_INCIDENT
from binlog_server.upstreams.client_tls import TlsFailed
from binlog_server.upstreams.master_info import MasterInfo
from binlog_server.upstreams.password import PasswordUnavailable

ER_SLAVE_RELAY_LOG_WRITE_FAILURE = 1595
ER_BINLOG_READ_EVENT_CHECKSUM_FAILURE = 1743
CR_UNKNOWN_ERROR = 2000
CR_CONN_HOST_ERROR = 2003
CR_UNKNOWN_HOST = 2005
CR_SERVER_LOST = 2013
CR_MALFORMED_PACKET = 2027


class RelayFailure(NamedTuple):
    """`connecting`: it failed before events came, and is tried again. `text` is `shortened`."""

    errno: int
    text: str
    connecting: bool = False

    @classmethod
    def of(cls, error: Exception, info: MasterInfo, *, connecting: bool) -> RelayFailure:
        """The failure for an error that ended a connection, or kept it from being made."""
        failure = cls._of(error, info, connecting=connecting)
        return failure._replace(text=shortened(failure.text))

    @classmethod
    def _of(cls, error: Exception, info: MasterInfo, *, connecting: bool) -> RelayFailure:
        match error:
            case UpstreamRefused() | RemoteError() if error.errno == MasterFatalError.errno:
                return cls(
                    error.errno,
                    f"Got fatal error {error.errno} from master when reading data from binary log: '{_full(error)}'",
                )
            case UpstreamRefused():
                return cls(error.errno, f"Fatal error: {_full(error)}")
            case GroupRefused():
                fatal = "" if error.errno == ER_SLAVE_INCIDENT else "Fatal error: "
                return cls(error.errno, f"{fatal}{error}")
            case BinlogBegunAnew():
                return cls(
                    ER_SLAVE_RELAY_LOG_WRITE_FAILURE,
                    f"Relay log write failure: {error}; it goes on behind the new position",
                )
            case StorageError():
                refusal = ErrorOnWrite(error)
                return cls(refusal.errno, refusal.message)
        errno, message = _told(error, info, connecting=connecting)
        if not connecting:
            return cls(errno, f"error reading from master '{_who(info)}' - message: {message}")
        return cls(
            errno,
            f"error connecting to master '{_who(info)}' - retry-time: {info.connect_retry}  "
            f"maximum-retries: 0  message: {message}",  # 0: as with master_retry_count=0, for ever
            connecting=True,
        )


def told(error: Exception) -> str:
    """The text of an error for logs and /readyz: without what groups say, and `shortened`."""
    return shortened(str(error)) or type(error).__name__


def _full(error: UpstreamRefused | RemoteError) -> str:
    """Last_IO_Error wants a privilege."""
    return error.full_message if isinstance(error, HistoryDiverged) else error.message


def _who(info: MasterInfo) -> str:
    return f"{info.user}@{info.address}"


def _told(error: Exception, info: MasterInfo, *, connecting: bool) -> tuple[int, str]:
    match error:
        case RemoteError():
            return error.errno, error.message
        case TlsFailed() | CandidateBehind():
            return error.errno, str(error)
        case PasswordUnavailable():
            return ER_SLAVE_FATAL_ERROR, str(error)
        case socket.gaierror():
            return CR_UNKNOWN_HOST, f"Unknown server host '{info.host}' ({error.errno})"
        case EventChecksumError():
            return ER_BINLOG_READ_EVENT_CHECKSUM_FAILURE, str(error)
        case ProtocolError():
            return CR_MALFORMED_PACKET, f"Malformed packet: {error}"
    if not isinstance(error, OSError | asyncio.IncompleteReadError):
        shown = "".join(traceback.format_exception_only(error)).strip()
        return CR_UNKNOWN_ERROR, f"Unknown error: {shown}; the server's log has more of it"
    reason = str(error) or "nothing came for slave_net_timeout, or three heartbeats"
    if connecting and isinstance(error, OSError) and error.errno:
        reason = f'{error.errno} "{os.strerror(error.errno)}"'
        return CR_CONN_HOST_ERROR, f"Can't connect to server on '{info.host}' ({reason})"
    if connecting and isinstance(error, TimeoutError):
        return CR_CONN_HOST_ERROR, f"Can't connect to server on '{info.host}' (110 \"timeout\")"
    return CR_SERVER_LOST, f"Lost connection to server: {reason}"
