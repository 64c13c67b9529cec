"""Why a dump cannot begin at a position in a file: error 1236, with the texts of MariaDB 10.11 and 11.8."""

from __future__ import annotations

from binlog_protocol.errors import MasterFatalError


def unknown_file() -> MasterFatalError:
    """The file was purged, or never was there."""
    return MasterFatalError("Could not find first log file name in binary log index file")


def impossible_position(file: str, position: int) -> MasterFatalError:
    """No event begins at the position."""
    return MasterFatalError(
        "Client requested master to start replication from impossible position"
        f"{_read(file, position)}"
    )


def inside_overtaken(file: str, position: int) -> MasterFatalError:
    """Inside a group whose events have no positions of their own (`classic_positions`). The text is ours."""
    return MasterFatalError(
        "The connection broke inside a large transaction, whose events have no positions here: let the slave apply "
        "what it has, then CHANGE MASTER TO its Relay_Master_Log_File and Exec_Master_Log_Pos, or use GTID"
        f"{_read(file, position)}"
    )


def _read(file: str, position: int) -> str:
    """The end of MariaDB's texts, which name the last event read: none was."""
    return (
        f"; the first event '{file}' at {position}, the last event read from '{file}' at 4, "
        f"the last byte read from '{file}' at 4."
    )
