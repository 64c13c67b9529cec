"""Errors of what a transaction may do. See `binlog_protocol.errors`."""

from __future__ import annotations

from binlog_protocol.errors import ServerError


class ReadOnlyTransaction(ServerError):
    """ER_CANT_EXECUTE_IN_READ_ONLY_TRANSACTION."""

    errno = 1792
    sqlstate = "25006"

    def __init__(self) -> None:
        super().__init__("Cannot execute statement in a READ ONLY transaction")


class LockOrActiveTransaction(ServerError):
    """ER_LOCK_OR_ACTIVE_TRANSACTION: the statement could keep the session's own transaction from its end."""

    errno = 1192
    sqlstate = "HY000"

    def __init__(self) -> None:
        super().__init__(
            "Can't execute the given command because you have active locked tables or an active transaction"
        )


class TransactionInProgress(ServerError):
    """ER_CANT_CHANGE_TX_CHARACTERISTICS: SET TRANSACTION is for the next one."""

    errno = 1568
    sqlstate = "25001"

    def __init__(self) -> None:
        super().__init__(
            "Transaction characteristics can't be changed while a transaction is in progress"
        )
