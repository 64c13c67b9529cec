"""Errors of statements: what a client hears of SQL that it sent. See `binlog_protocol.errors`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from binlog_protocol.errors import ServerError

if TYPE_CHECKING:
    from binlog_protocol.gtid import Gtid


class ErrorOnWrite(ServerError):
    """ER_ERROR_ON_WRITE: the store refuses what is committed."""

    errno = 1026
    sqlstate = "HY000"

    def __init__(self, reason: str) -> None:
        super().__init__(f"Error writing file 'binlog': {reason}")


class NoRoomOnDisk(ServerError):
    """ER_DISK_FULL: what the statement has to write finds no room; nothing was done."""

    errno = 1021
    sqlstate = "HY000"

    def __init__(self, reason: str) -> None:
        super().__init__(
            f"Disk full ({reason}); nothing was done: free some space (PURGE BINARY LOGS), and try again"
        )


class WrongDatabaseName(ServerError):
    """ER_WRONG_DB_NAME."""

    errno = 1102
    sqlstate = "42000"

    def __init__(self, name: str) -> None:
        super().__init__(f"Incorrect database name '{name}'")


class UnknownCharacterSet(ServerError):
    """ER_UNKNOWN_CHARACTER_SET."""

    errno = 1115
    sqlstate = "42000"

    def __init__(self, name: str) -> None:
        super().__init__(f"Unknown character set: '{name}'")


class NotSupportedYet(ServerError):
    """ER_NOT_SUPPORTED_YET: a statement that could not be logged so that replicas do the same."""

    errno = 1235
    sqlstate = "42000"

    def __init__(self, what: str) -> None:
        super().__init__(f"This version of MariaDB doesn't yet support '{what}'")


class UnknownXid(ServerError):
    """ER_XAER_NOTA: no transaction is prepared by that name."""

    errno = 1397
    sqlstate = "XAE04"

    def __init__(self) -> None:
        super().__init__("XAER_NOTA: Unknown XID")


class InvalidXaArguments(ServerError):
    """ER_XAER_INVAL: an empty name, or ONE PHASE for what is prepared already."""

    errno = 1398
    sqlstate = "XAE05"

    def __init__(self) -> None:
        super().__init__("XAER_INVAL: Invalid arguments (or unsupported command)")


class OutsideXa(ServerError):
    """ER_XAER_OUTSIDE: the session has a transaction of its own open."""

    errno = 1400
    sqlstate = "XAE09"

    def __init__(self) -> None:
        super().__init__("XAER_OUTSIDE: Some work is done outside global transaction")


class UnknownXaFormat(ServerError):
    """ER_UNKNOWN_EXPLAIN_FORMAT, which XA RECOVER uses, too."""

    errno = 1791
    sqlstate = "HY000"

    def __init__(self, name: str) -> None:
        super().__init__(f"Unknown XA RECOVER format name: '{name}'")


class UnknownSchemaTable(ServerError):
    """ER_UNKNOWN_TABLE: a table of information_schema that there is not."""

    errno = 1109
    sqlstate = "42S02"

    def __init__(self, table: str) -> None:
        super().__init__(f"Unknown table '{table}' in information_schema")


class UnknownCollation(ServerError):
    """ER_UNKNOWN_COLLATION."""

    errno = 1273
    sqlstate = "HY000"

    def __init__(self, name: str) -> None:
        super().__init__(f"Unknown collation: '{name}'")


class OptionPreventsStatement(ServerError):
    """ER_OPTION_PREVENTS_STATEMENT."""

    errno = 1290
    sqlstate = "HY000"

    def __init__(self, option: str, advice: str = "") -> None:
        super().__init__(
            f"The MariaDB server is running with the {option} option so it cannot execute "
            f"this statement{advice}"
        )


class NoSuchSavepoint(ServerError):
    """ER_SP_DOES_NOT_EXIST."""

    errno = 1305
    sqlstate = "42000"

    def __init__(self, name: str) -> None:
        super().__init__(f"SAVEPOINT {name} does not exist")


class GtidInsideTransaction(ServerError):
    """ER_INSIDE_TRANSACTION_PREVENTS_SWITCH_GTID_DOMAIN_ID_SEQ_NO."""

    errno = 1953
    sqlstate = "HY000"

    def __init__(self) -> None:
        super().__init__(
            "Cannot modify @@session.gtid_domain_id or @@session.gtid_seq_no inside a transaction"
        )


class SkippingInsideTransaction(ServerError):
    """ER_INSIDE_TRANSACTION_PREVENTS_SWITCH_SKIP_REPLICATION."""

    errno = 1929
    sqlstate = "HY000"

    def __init__(self) -> None:
        super().__init__("Cannot modify @@session.skip_replication inside a transaction")


class GtidOutOfOrder(ServerError):
    """ER_GTID_STRICT_OUT_OF_ORDER."""

    errno = 1950
    sqlstate = "HY000"

    def __init__(self, gtid: Gtid, existing: Gtid) -> None:
        super().__init__(
            f"An attempt was made to binlog GTID {gtid} which would create an out-of-order "
            f"sequence number with existing GTID {existing}, and gtid strict mode is enabled"
        )


class GlobalVariable(ServerError):
    """ER_GLOBAL_VARIABLE: SET without GLOBAL."""

    errno = 1229
    sqlstate = "HY000"

    def __init__(self, variable: str) -> None:
        super().__init__(
            f"Variable '{variable}' is a GLOBAL variable and should be set with SET GLOBAL"
        )


class UnknownColumn(ServerError):
    """ER_BAD_FIELD_ERROR: `place` is the part of the statement, WHERE or SELECT."""

    errno = 1054
    sqlstate = "42S22"

    def __init__(self, column: str, place: str = "WHERE") -> None:
        super().__init__(f"Unknown column '{column}' in '{place}'")


class CannotDeleteDomain(ServerError):
    """ER_BINLOG_CANT_DELETE_GTID_DOMAIN."""

    errno = 1076
    sqlstate = "HY000"

    @classmethod
    def in_use(cls, domain_id: int) -> CannotDeleteDomain:
        """Existing files hold groups of it."""
        return cls(
            "Could not delete gtid domain. Reason: binlog files may contain gtids from the domain "
            f"('{domain_id}') being deleted. Make sure to first purge those files."
        )

    @classmethod
    def too_large(cls, domain_id: str) -> CannotDeleteDomain:
        """Domains have 32 bits."""
        return cls(
            f"The value of gtid domain being deleted ('{domain_id}') exceeds its maximum size of 32 bit "
            "unsigned integer"
        )

    @staticmethod
    def absent(domain_id: int) -> str:
        """Text of the warning for a domain that is not in the state."""
        return f"The gtid domain being deleted ('{domain_id}') is not in the current binlog state"


class KillDenied(ServerError):
    """ER_KILL_DENIED_ERROR."""

    errno = 1095
    sqlstate = "HY000"

    def __init__(self, connection_id: int) -> None:
        super().__init__(f"You are not owner of thread {connection_id}")


class NotInTransaction(ServerError):
    """ER_CANT_DO_THIS_DURING_AN_TRANSACTION."""

    errno = 1179
    sqlstate = "25000"

    def __init__(self) -> None:
        super().__init__("You are not allowed to execute this command in a transaction")


class CommandFailed(ServerError):
    """ER_ERROR_WHEN_EXECUTING_COMMAND."""

    errno = 1220
    sqlstate = "HY000"

    def __init__(self, command: str, reason: str) -> None:
        super().__init__(f"Error when executing command {command}: {reason}")

    @classmethod
    def behind_the_end(cls, command: str, start: int, size: int) -> CommandFailed:
        """A place that a file does not reach."""
        return cls(
            command,
            f"Invalid pos specified. Requested from pos:{min(start, 2**64 - 1)} is greater than actual file "
            f"size:{size}",
        )


class WrongUsage(ServerError):
    """ER_WRONG_USAGE: two words that exclude each other."""

    errno = 1221
    sqlstate = "HY000"

    def __init__(self, one: str, other: str) -> None:
        super().__init__(f"Incorrect usage of {one} and {other}")


class WrongVariableType(ServerError):
    """ER_WRONG_TYPE_FOR_VAR."""

    errno = 1232
    sqlstate = "42000"

    def __init__(self, variable: str) -> None:
        super().__init__(f"Incorrect argument type to variable '{variable}'")


class BinlogFileInUse(ServerError):
    """ER_LOG_IN_USE: not all that PURGE was to delete could go. Warnings say why."""

    errno = 1378
    sqlstate = "HY000"

    def __init__(self) -> None:
        super().__init__("A purgeable log is in use, will not purge")


class WrongParameterCount(ServerError):
    """ER_WRONG_PARAMCOUNT_TO_NATIVE_FCT."""

    errno = 1582
    sqlstate = "42000"

    def __init__(self, function: str) -> None:
        super().__init__(f"Incorrect parameter count in the call to native function '{function}'")


class BinlogNotEmpty(ServerError):
    """ER_BINLOG_MUST_BE_EMPTY."""

    errno = 1956
    sqlstate = "HY000"

    def __init__(self) -> None:
        super().__init__(
            "This operation is not allowed if any GTID has been logged to the binary log. "
            "Run RESET MASTER first to erase the log"
        )


class BinlogHasReaders(ServerError):
    """ER_BINLOG_IN_USE."""

    errno = 4243
    sqlstate = "HY000"


class BinlogHasTransactions(ServerError):
    """ER_BINLOG_IN_USE_TRX."""

    errno = 4244
    sqlstate = "HY000"


class NoDefault(ServerError):
    """ER_NO_DEFAULT: SET x = DEFAULT of what can only be said."""

    errno = 1230
    sqlstate = "42000"

    def __init__(self, variable: str) -> None:
        super().__init__(f"Variable '{variable}' doesn't have a default value")


class SessionVariable(ServerError):
    """ER_LOCAL_VARIABLE: SET GLOBAL of what only sessions have."""

    errno = 1228
    sqlstate = "HY000"

    def __init__(self, variable: str) -> None:
        super().__init__(
            f"Variable '{variable}' is a SESSION variable and can't be used with SET GLOBAL"
        )


class CollationMismatch(ServerError):
    """ER_COLLATION_CHARSET_MISMATCH."""

    errno = 1253
    sqlstate = "42000"

    def __init__(self, collation: str, charset: str) -> None:
        super().__init__(f"COLLATION '{collation}' is not valid for CHARACTER SET '{charset}'")


class UnknownTimeZone(ServerError):
    """ER_UNKNOWN_TIME_ZONE."""

    errno = 1298
    sqlstate = "HY000"

    def __init__(self, name: str) -> None:
        super().__init__(f"Unknown or incorrect time zone: '{name}'")


class NoMasterConnection(ServerError):
    """WARN_NO_MASTER_INFO: there is no upstream of that name."""

    errno = 1617
    sqlstate = "HY000"

    def __init__(self, name: str) -> None:
        super().__init__(f"There is no master connection '{name}'")


class UnknownQueryId(ServerError):
    """ER_NO_SUCH_QUERY."""

    errno = 1957
    sqlstate = "HY000"

    def __init__(self, query_id: int) -> None:
        super().__init__(f"Unknown query id: {query_id}")


class NotInSetStatement(ServerError):
    """ER_SET_STATEMENT_NOT_SUPPORTED."""

    errno = 1971
    sqlstate = "42000"

    def __init__(self, variable: str) -> None:
        super().__init__(f"The system variable {variable} cannot be set in SET STATEMENT.")


class EngineBinlogNotYet(ServerError):
    """ER_NOT_YET_SUPPORTED_ENGINE_BINLOG."""

    errno = 4248
    sqlstate = "HY000"

    def __init__(self, feature: str) -> None:
        super().__init__(f"{feature} is not yet supported with --binlog-storage-engine")


class BinlogStateUnreadable(ServerError):
    """ER_BINLOG_CANNOT_READ_STATE."""

    errno = 4250
    sqlstate = "HY000"

    def __init__(self) -> None:
        super().__init__("Error reading GTID state from the binlog")
