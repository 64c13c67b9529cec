"""Errors of what is beyond a limit."""

from __future__ import annotations

from binlog_protocol.errors import ServerError


class OutOfResources(ServerError):
    """ER_OUT_OF_RESOURCES."""

    errno = 1041
    sqlstate = "HY000"
    fatal = True

    def __init__(self, limit: int) -> None:
        super().__init__(
            f"Out of memory; what all sessions hold is more than max_total_session_mem_used={limit} bytes"
        )


class TooLongIdentifier(ServerError):
    """ER_TOO_LONG_IDENT."""

    errno = 1059
    sqlstate = "42000"

    def __init__(self, name: str) -> None:
        super().__init__(f"Identifier name '{name[:100]}' is too long")


class TooManyColumns(ServerError):
    """ER_TOO_MANY_FIELDS."""

    errno = 1117
    sqlstate = "HY000"

    def __init__(self) -> None:
        super().__init__("Too many columns")
