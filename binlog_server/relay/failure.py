"""Why an upstream is not followed, by MariaDB's numbers and texts: Last_IO_Errno and Last_IO_Error."""

from __future__ import annotations

import os
import socket
from typing import NamedTuple

from binlog_server.relay.client_tls import TlsFailed
from binlog_server.relay.gate import GroupRefused
from binlog_server.relay.guard import CandidateBehind
from binlog_server.relay.master_info import MasterInfo
from binlog_server.relay.password import PasswordUnavailable
from protocol.connection.replica import ER_SLAVE_FATAL_ERROR, UpstreamRefused
from protocol.errors import MasterFatalError, ProtocolError, RemoteError
from protocol.events.checksum import EventChecksumError
from storage.errors import StorageError

ER_ERROR_ON_WRITE = 1026
ER_BINLOG_READ_EVENT_CHECKSUM_FAILURE = 1743
CR_CONN_HOST_ERROR = 2003
CR_UNKNOWN_HOST = 2005
CR_SERVER_LOST = 2013
CR_MALFORMED_PACKET = 2027


class Failure(NamedTuple):
    """`connecting`: it failed before events came, and is tried again."""

    errno: int
    text: str
    connecting: bool = False

    @classmethod
    def of(cls, error: Exception, info: MasterInfo, *, connecting: bool) -> Failure:
        """Of what ended a connection, or kept it from being made."""
        match error:
            case UpstreamRefused() if error.errno != MasterFatalError.errno:
                return cls(error.errno, f"Fatal error: {error.message}")
            case GroupRefused():
                return cls(ER_SLAVE_FATAL_ERROR, f"Fatal error: {error}")
            case StorageError():
                return cls(ER_ERROR_ON_WRITE, f"Error writing file 'binlog': {error}")
            case UpstreamRefused() | RemoteError() if error.errno == MasterFatalError.errno:
                return cls(
                    error.errno,
                    f"Got fatal error {error.errno} from master when reading data from binary log: '{error.message}'",
                )
        errno, message = _told(error, info, connecting=connecting)
        if not connecting:
            return cls(errno, f"error reading from master '{_who(info)}' - message: {message}")
        return cls(
            errno,
            f"error connecting to master '{_who(info)}' - retry-time: {info.connect_retry}  "
            f"maximum-retries: 0  message: {message}",  # 0: as with master_retry_count=0, for ever
            connecting=True,
        )


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
    reason = str(error) or "nothing came for slave_net_timeout, or three heartbeats"
    if connecting and isinstance(error, OSError) and error.errno:
        reason = f'{error.errno} "{os.strerror(error.errno)}"'
        return CR_CONN_HOST_ERROR, f"Can't connect to server on '{info.host}' ({reason})"
    if connecting and isinstance(error, TimeoutError):
        return CR_CONN_HOST_ERROR, f"Can't connect to server on '{info.host}' (110 \"timeout\")"
    return CR_SERVER_LOST, f"Lost connection to server: {reason}"
