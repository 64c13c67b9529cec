"""Errors of CHANGE MASTER, START SLAVE, STOP SLAVE and RESET SLAVE; and the notes beside their answers.

Numbers and texts are those of MariaDB 10.11 and 11.8. See `binlog_protocol.errors`.
"""

from __future__ import annotations

from typing import Final

from binlog_protocol.errors import ServerError

# Numbers of notes and warnings that are never errors here, and their texts.
ER_SLAVE_WAS_RUNNING: Final = 1254
ER_SLAVE_WAS_NOT_RUNNING: Final = 1255
WARN_OPTION_IGNORED: Final = 1618
ER_SLAVE_HEARTBEAT_VALUE_OUT_OF_RANGE_MIN: Final = 1703
ER_SLAVE_HEARTBEAT_VALUE_OUT_OF_RANGE_MAX: Final = 1704
ER_SLAVE_STARTED: Final = 1937
ER_SLAVE_STOPPED: Final = 1938

HEARTBEAT_TOO_SHORT: Final = (
    "The requested value for the heartbeat period is less than 1 millisecond. The value is reset to 0, meaning that "
    "heartbeating will effectively be disabled"
)
HEARTBEAT_TOO_LONG: Final = (
    "The requested value for the heartbeat period exceeds the value of `slave_net_timeout' seconds. A sensible value "
    "for the period should be less than the timeout"
)
WAS_RUNNING: Final = "Slave is already running"
WAS_NOT_RUNNING: Final = "Slave already has been stopped"


class SlaveMustStop(ServerError):
    """ER_SLAVE_MUST_STOP."""

    errno = 1198
    sqlstate = "HY000"

    def __init__(self, name: str) -> None:
        super().__init__(
            f"This operation cannot be performed as you have a running slave '{name}'; run STOP SLAVE '{name}' first"
        )


class BadSlave(ServerError):
    """ER_BAD_SLAVE: there is nothing to start."""

    errno = 1200
    sqlstate = "HY000"

    def __init__(self) -> None:
        super().__init__(
            "Misconfigured slave: MASTER_HOST was not set; Fix in config file or with CHANGE MASTER TO"
        )


class MasterInfoRefused(ServerError):
    """ER_MASTER_INFO: the options contradict each other or cannot be kept.

    MariaDB says why in its log; here the text does.
    """

    errno = 1201
    sqlstate = "HY000"

    def __init__(self, name: str, reason: str) -> None:
        super().__init__(f"Could not initialize master info structure for '{name}'; {reason}")


class WrongArguments(ServerError):
    """ER_WRONG_ARGUMENTS."""

    errno = 1210
    sqlstate = "HY000"

    def __init__(self, what: str) -> None:
        super().__init__(f"Incorrect arguments to {what}")


class SlaveWasRunning(ServerError):
    """ER_SLAVE_WAS_RUNNING, where it is no note: START SLAVE UNTIL."""

    errno = ER_SLAVE_WAS_RUNNING
    sqlstate = "HY000"

    def __init__(self) -> None:
        super().__init__(WAS_RUNNING)


class BadSlaveUntil(ServerError):
    """ER_BAD_SLAVE_UNTIL_COND."""

    errno = 1277
    sqlstate = "HY000"

    def __init__(self) -> None:
        super().__init__("Incorrect parameter or combination of parameters for START SLAVE UNTIL")


class HeartbeatOutOfRange(ServerError):
    """ER_SLAVE_HEARTBEAT_VALUE_OUT_OF_RANGE. `maximum` in seconds."""

    errno = 1624
    sqlstate = "HY000"

    def __init__(self, maximum: int) -> None:
        super().__init__(
            "The requested value for the heartbeat period is either negative or exceeds the maximum allowed "
            f"({maximum} seconds)"
        )
