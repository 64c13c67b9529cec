"""Errors of the protocol layer.

Three kinds, by who is at fault and who hears of it:

=================  ==========================================================================
`ProtocolError`    the peer broke the protocol; the connection cannot go on
`ServerError`      what we answer to a client: MariaDB's number, SQLSTATE and text
`RemoteError`      an ERR packet that an upstream sent to us
=================  ==========================================================================

Numbers and texts are MariaDB's, as 10.11 and 11.8 send them. One class per number; the registry
refuses a second class with the same number.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from binlog_protocol.gtid import Gtid

_SQLSTATE_LENGTH = 5


class ServerError(Exception):
    """An error to be sent to a client in an ERR packet.

    `errno` and `sqlstate` are MariaDB's; `fatal` tells that the connection closes after it.
    """

    errno: ClassVar[int]
    sqlstate: ClassVar[str]
    fatal: ClassVar[bool] = False

    registry: ClassVar[dict[int, type[ServerError]]] = {}

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        for name in ("errno", "sqlstate"):
            if name not in cls.__dict__:
                raise TypeError(f"{cls.__name__} does not say its {name}")
        if len(cls.sqlstate) != _SQLSTATE_LENGTH:
            raise TypeError(f"{cls.__name__}: SQLSTATE {cls.sqlstate!r} has not five characters")
        other = ServerError.registry.setdefault(cls.errno, cls)
        if other is not cls:
            raise TypeError(f"{cls.__name__} and {other.__name__} both are error {cls.errno}")

    def __str__(self) -> str:
        return f"{self.errno} ({self.sqlstate}): {self.message}"


class TooManyConnections(ServerError):
    """ER_CON_COUNT_ERROR."""

    errno = 1040
    sqlstate = "08004"
    fatal = True

    def __init__(self) -> None:
        super().__init__("Too many connections")


class BadHandshake(ServerError):
    """ER_HANDSHAKE_ERROR: the login packet makes no sense."""

    errno = 1043
    sqlstate = "08S01"
    fatal = True

    def __init__(self) -> None:
        super().__init__("Bad handshake")


class CannotOpenFile(ServerError):
    """ER_CANT_OPEN_FILE: there is no descriptor left at the moment. A replica that gets it in a dump comes again."""

    errno = 1016
    sqlstate = "HY000"
    fatal = True


class AccessDenied(ServerError):
    """ER_ACCESS_DENIED_ERROR: unknown user or wrong password."""

    errno = 1045
    sqlstate = "28000"
    fatal = True

    def __init__(self, user: str, host: str, *, using_password: bool) -> None:
        answer = "YES" if using_password else "NO"
        super().__init__(f"Access denied for user '{user}'@'{host}' (using password: {answer})")


class NoDatabaseSelected(ServerError):
    """ER_NO_DB_ERROR."""

    errno = 1046
    sqlstate = "3D000"

    def __init__(self) -> None:
        super().__init__("No database selected")


class UnknownCommandError(ServerError):
    """ER_UNKNOWN_COM_ERROR: a command byte that we do not serve."""

    errno = 1047
    sqlstate = "08S01"

    def __init__(self) -> None:
        super().__init__("Unknown command")


class ServerShutdown(ServerError):
    """ER_SERVER_SHUTDOWN."""

    errno = 1053
    sqlstate = "08S01"
    fatal = True

    def __init__(self) -> None:
        super().__init__("Server shutdown in progress")


class SqlSyntaxError(ServerError):
    """ER_PARSE_ERROR: `near` is the text from the first token not understood, `line` its line."""

    errno = 1064
    sqlstate = "42000"

    def __init__(self, near: str, line: int = 1) -> None:
        self.near = near
        self.line = line
        super().__init__(
            "You have an error in your SQL syntax; check the manual that corresponds to your "
            "MariaDB server version for the right syntax to use near "
            f"'{near}' at line {line}"
        )


class UnknownThread(ServerError):
    """ER_NO_SUCH_THREAD."""

    errno = 1094
    sqlstate = "HY000"

    def __init__(self, connection_id: int) -> None:
        super().__init__(f"Unknown thread id: {connection_id}")


class UnknownServerError(ServerError):
    """ER_UNKNOWN_ERROR: what has no number of its own."""

    errno = 1105
    sqlstate = "HY000"


class PacketTooBig(ServerError):
    """ER_NET_PACKET_TOO_LARGE."""

    errno = 1153
    sqlstate = "08S01"
    fatal = True

    def __init__(self) -> None:
        super().__init__("Got a packet bigger than 'max_allowed_packet' bytes")


class PacketsOutOfOrder(ServerError):
    """ER_NET_PACKETS_OUT_OF_ORDER."""

    errno = 1156
    sqlstate = "08S01"
    fatal = True

    def __init__(self) -> None:
        super().__init__("Got packets out of order")


class UnknownSystemVariable(ServerError):
    """ER_UNKNOWN_SYSTEM_VARIABLE."""

    errno = 1193
    sqlstate = "HY000"

    def __init__(self, name: str) -> None:
        super().__init__(f"Unknown system variable '{name}'")


class PrivilegeRequired(ServerError):
    """ER_SPECIFIC_ACCESS_DENIED_ERROR."""

    errno = 1227
    sqlstate = "42000"

    def __init__(self, privilege: str) -> None:
        super().__init__(
            f"Access denied; you need (at least one of) the {privilege} privilege(s) "
            "for this operation"
        )


class WrongVariableValue(ServerError):
    """ER_WRONG_VALUE_FOR_VAR."""

    errno = 1231
    sqlstate = "42000"

    def __init__(self, variable: str, value: str) -> None:
        super().__init__(f"Variable '{variable}' can't be set to the value of '{value}'")


class MasterFatalError(ServerError):
    """ER_MASTER_FATAL_ERROR_READING_BINLOG: the dump cannot go on; a replica stops on it.

    The class methods hold the exact texts that 10.11 and 11.8 send.
    """

    errno = 1236
    sqlstate = "HY000"
    fatal = True

    @classmethod
    def unknown_position(cls, gtid: Gtid) -> MasterFatalError:
        """The replica is ahead of this binlog."""
        return cls(
            f"Error: connecting slave requested to start from GTID {gtid}, "
            "which is not in the master's binlog"
        )

    @classmethod
    def diverged_position(cls, gtid: Gtid) -> MasterFatalError:
        """This binlog has higher numbers in the domain, yet not that GTID."""
        return cls(
            f"{cls.unknown_position(gtid).message}. Since the master's binlog contains GTIDs "
            "with higher sequence numbers, it probably means that the slave has diverged due to "
            "executing extra erroneous transactions"
        )

    @classmethod
    def purged_position(cls) -> MasterFatalError:
        """The position lies before the earliest file."""
        return cls(
            "Could not find GTID state requested by slave in any binlog files. Probably the "
            "slave state is too old and required binlog files have been purged."
        )

    @classmethod
    def hole(cls, gtid: Gtid) -> MasterFatalError:
        """Strict mode: the GTID itself is missing between a lower and a higher one."""
        return cls(
            f"The binlog on the master is missing the GTID {gtid} requested by the slave (even "
            "though both a prior and a subsequent sequence number does exist), and GTID strict "
            "mode is enabled"
        )


class ReadOnlyVariable(ServerError):
    """ER_INCORRECT_GLOBAL_LOCAL_VAR: a variable that only the start of the server sets; or one `kind` of its values,
    GLOBAL or SESSION, is all that it has."""

    errno = 1238
    sqlstate = "HY000"

    def __init__(self, variable: str, kind: str = "read only") -> None:
        super().__init__(f"Variable '{variable}' is a {kind} variable")


class UnknownTargetBinlog(ServerError):
    """ER_UNKNOWN_TARGET_BINLOG."""

    errno = 1373
    sqlstate = "HY000"

    def __init__(self) -> None:
        super().__init__("Target log not found in binlog index")


class MalformedPacket(ServerError):
    """ER_MALFORMED_PACKET: a command whose body is cut short."""

    errno = 1835
    sqlstate = "HY000"

    def __init__(self) -> None:
        super().__init__("Malformed communication packet")


class BadGtidList(ServerError):
    """ER_INCORRECT_GTID_STATE."""

    errno = 1941
    sqlstate = "HY000"

    def __init__(self, why: str = "") -> None:
        super().__init__("Could not parse GTID list" + why)

    @classmethod
    def too_long(cls, size: int, most: int) -> BadGtidList:
        """The error for a text that is too long."""
        return cls(
            f": it has {size} bytes, and {most} are the most. Leave out domains that are not used any more (FLUSH "
            "BINARY LOGS DELETE_DOMAIN_ID there); a new store takes longer ones from binlog-server seed"
        )


class DuplicateGtidDomain(ServerError):
    """ER_DUPLICATE_GTID_DOMAIN: `later` and `earlier` in the order of the text."""

    errno = 1943
    sqlstate = "HY000"

    def __init__(self, later: Gtid, earlier: Gtid) -> None:
        super().__init__(
            f"GTID {later} and {earlier} conflict (duplicate domain id {later.domain_id})"
        )


class DuplicateServerId(ServerError):
    """The older dump with the same server_id hears this when a newer one begins."""

    errno = 4052
    sqlstate = "HY000"
    fatal = True

    def __init__(self) -> None:
        super().__init__("A slave with the same server_id is already connected")


class EngineBinlogNeedsGtid(ServerError):
    """ER_ENGINE_BINLOG_REQUIRES_GTID, with the text that 12.3 sends to a replica."""

    errno = 4246
    sqlstate = "HY000"
    fatal = True

    def __init__(self) -> None:
        super().__init__("Slave must enable GTID mode when master uses --binlog-storage-engine")


class EngineBinlogUnavailable(ServerError):
    """ER_NOT_AVAILABLE_WITH_ENGINE_BINLOG: `feature` has no meaning in an engine binlog."""

    errno = 4247
    sqlstate = "HY000"

    def __init__(self, feature: str) -> None:
        super().__init__(f"{feature} is not available when --binlog-storage-engine is enabled")


class BinlogPageUnreadable(ServerError):
    """ER_READING_BINLOG_FILE."""

    errno = 4252
    sqlstate = "HY000"
    fatal = True

    def __init__(self, page: int, code: int) -> None:
        super().__init__(
            f"Error reading from page number {page} in binlog file (error code: {code})"
        )


class ProtocolError(Exception):
    """The peer broke the protocol; the connection cannot go on.

    `reason` is for our log. `answer` is the error that a MariaDB server would send before it
    closes, or None when it would close in silence.
    """

    def __init__(self, reason: str, answer: ServerError | None = None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.answer = answer


class PacketTooLarge(ProtocolError):
    """The length in a packet header says that the packet exceeds the limit. `next_seq`: the number of its answer."""

    def __init__(self, length: int, limit: int, next_seq: int = 1) -> None:
        super().__init__(f"packet of {length} bytes, limit {limit}", PacketTooBig())
        self.next_seq = next_seq


class RemoteError(Exception):
    """An ERR packet received from an upstream."""

    def __init__(self, errno: int, sqlstate: str, message: str) -> None:
        super().__init__(f"{errno} ({sqlstate}): {message}")
        self.errno = errno
        self.sqlstate = sqlstate
        self.message = message
