"""Errors of statements: what a client hears of SQL that it sent. See `protocol.errors`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from protocol.errors import ServerError

if TYPE_CHECKING:
    from protocol.gtid import Gtid


class ErrorOnWrite(ServerError):
    """ER_ERROR_ON_WRITE: the store refuses what is committed."""

    errno = 1026
    sqlstate = "HY000"

    def __init__(self, reason: str) -> None:
        super().__init__(f"Error writing file 'binlog': {reason}")


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


class ReadOnlyTransaction(ServerError):
    """ER_CANT_EXECUTE_IN_READ_ONLY_TRANSACTION."""

    errno = 1792
    sqlstate = "25006"

    def __init__(self) -> None:
        super().__init__("Cannot execute statement in a READ ONLY transaction")


class GtidInsideTransaction(ServerError):
    """ER_INSIDE_TRANSACTION_PREVENTS_SWITCH_GTID_DOMAIN_ID_SEQ_NO."""

    errno = 1949
    sqlstate = "HY000"

    def __init__(self) -> None:
        super().__init__(
            "Cannot modify @@session.gtid_domain_id or @@session.gtid_seq_no inside a transaction"
        )


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
