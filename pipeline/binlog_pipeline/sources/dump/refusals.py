"""Errors on a connection to a server: whether a new connection may help, and the error for the user."""

from __future__ import annotations

import socket
from typing import Final

from binlog_protocol.connection.replica import UpstreamRefused
from binlog_protocol.errors import (
    MasterFatalError,
    PrivilegeRequired,
    ProtocolError,
    RemoteError,
    SecureTransportRequired,
)
from binlog_storage.console.running import refused, unreachable

from binlog_pipeline.errors import DataLost, PipelineError, SourceError
from binlog_pipeline.sources.dump.address import ServerAddress

_ADVICE: Final = {
    PrivilegeRequired.errno: "GRANT REPLICATION SLAVE ON *.* TO the account",
    SecureTransportRequired.errno: "say tls=required",
}

CAUGHT: Final = (OSError, ProtocolError, RemoteError, UpstreamRefused)
"""Exceptions that a connection raises; `source_error` makes them errors for users."""


class EndedEarly(ConnectionError):
    """The server has ended a stream before what was asked for."""


def may_pass(error: Exception) -> bool:
    """Whether the cause of an error may pass by itself, so that another connection is worth it."""
    if isinstance(error, RemoteError):
        return error.may_pass
    return isinstance(error, OSError) and not isinstance(error, socket.gaierror)


def is_fatal_to_dump(error: Exception) -> bool:
    """Error 1236: what is asked for is not there, or not any more."""
    return isinstance(error, RemoteError) and error.errno == MasterFatalError.errno


def source_error(address: ServerAddress, error: Exception, doing: str) -> PipelineError:
    """The error for the user. `doing`: the action that failed, as 'reading behind 0-1-5'."""
    begin = f"{address.name}: {doing}: "
    match error:
        case PipelineError():
            return error
        case RemoteError() if is_fatal_to_dump(error):
            return DataLost(
                f"{begin}the server refuses (1236): {error.message}; read what was archived, begin at a position that "
                "the server has, or say failOnDataLoss=false to go on behind the gap"
            )
        case RemoteError():
            advice = _ADVICE.get(error.errno)
            return SourceError(f"{begin}{refused(error)}" + (f"; {advice}" if advice else ""))
        case UpstreamRefused():
            return SourceError(f"{begin}{error.message}")
        case EndedEarly():
            return SourceError(f"{begin}{error}")
        case ProtocolError():
            return SourceError(f"{begin}what the server sends cannot be read: {error}")
        case TimeoutError():
            return SourceError(
                f"{begin}the server does not answer; is it up, and is connectTimeout long enough?"
            )
        case OSError():
            return SourceError(f"{begin}{unreachable(error)}")
    return SourceError(f"{begin}{error}")
