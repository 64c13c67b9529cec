"""What SET GLOBAL changes in the running server. Nothing of it is kept over a restart: the configuration is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from binlog_server.admin.values import boolean, enum, number
from binlog_server.admin.view import Diagnostic
from binlog_server.engine_limits import AFTER_COMMIT, AFTER_SYNC
from protocol.sql_errors import WrongVariableType
from storage.binlog.options import FILE_BYTES_MAX, PAGES_MIN
from storage.ibb.page import PAGE_SIZE

_U32_MAX = 2**32 - 1


@dataclass(frozen=True, slots=True)
class GlobalVariable:
    """A number from `low` to `high`, `decimals` behind the point; or one of `words`; or any `text`; else a boolean.

    `also_session`: SET SESSION changes it for the session alone. `privileges`: any of them will do.
    """

    low: int = 0
    high: int = 0
    also_session: bool = False
    decimals: int = 0
    text: bool = False
    words: tuple[str, ...] = ()
    privileges: tuple[str, ...] = ("SUPER", "BINLOG ADMIN")

    @property
    def boolean(self) -> bool:
        """ON or OFF."""
        return not (self.high or self.text or self.words)


_CONNECTIONS = ("SUPER", "CONNECTION ADMIN")

_SUPER = ("SUPER",)
_MASTER = ("SUPER", "REPLICATION MASTER ADMIN")
_REPLICATION = ("SUPER", "REPLICATION SLAVE ADMIN")

GLOBALS: Mapping[str, GlobalVariable] = {
    "binlog_expire_logs_seconds": GlobalVariable(0, 8_553_600),
    "connect_timeout": GlobalVariable(1, 3600, privileges=_CONNECTIONS),
    "expire_logs_days": GlobalVariable(0, 99, decimals=6),
    "gtid_binlog_state": GlobalVariable(text=True, privileges=_MASTER),
    "gtid_ignore_duplicates": GlobalVariable(privileges=_REPLICATION),
    "gtid_slave_pos": GlobalVariable(text=True, privileges=_REPLICATION),
    "gtid_strict_mode": GlobalVariable(privileges=_REPLICATION),
    "innodb_flush_log_at_trx_commit": GlobalVariable(0, 3),
    "max_binlog_size": GlobalVariable(PAGES_MIN * PAGE_SIZE, FILE_BYTES_MAX),
    "max_binlog_total_size": GlobalVariable(0, 2**62),
    "max_connections": GlobalVariable(10, 100_000, privileges=_CONNECTIONS),
    "max_user_connections": GlobalVariable(0, 100_000, privileges=_SUPER),
    "net_read_timeout": GlobalVariable(1, 31_536_000, also_session=True, privileges=_SUPER),
    "net_write_timeout": GlobalVariable(1, 31_536_000, also_session=True, privileges=_SUPER),
    "read_only": GlobalVariable(privileges=("READ_ONLY ADMIN",)),
    "rpl_semi_sync_master_enabled": GlobalVariable(privileges=_MASTER),
    "rpl_semi_sync_master_timeout": GlobalVariable(0, _U32_MAX, privileges=_MASTER),
    "rpl_semi_sync_master_wait_for_slave_count": GlobalVariable(1, 65535, privileges=_MASTER),
    "rpl_semi_sync_master_wait_no_slave": GlobalVariable(privileges=_MASTER),
    "rpl_semi_sync_master_wait_point": GlobalVariable(
        words=(AFTER_SYNC, AFTER_COMMIT), privileges=_MASTER
    ),
    "rpl_semi_sync_slave_enabled": GlobalVariable(privileges=_REPLICATION),
    "rpl_semi_sync_slave_wait_for_slave_count": GlobalVariable(0, 65535, privileges=_REPLICATION),
    "slave_compressed_protocol": GlobalVariable(privileges=_REPLICATION),
    "slave_connections_needed_for_purge": GlobalVariable(0, _U32_MAX),
    # Without effect with an engine binlog; MariaDB takes it, so scripts may say it.
    "sync_binlog": GlobalVariable(0, _U32_MAX),
    "wait_timeout": GlobalVariable(1, 31_536_000, also_session=True, privileges=_SUPER),
}


def as_shown(
    name: str, value: str | int | None, told: list[Diagnostic], low: int | None = None
) -> str:
    """The value as SHOW VARIABLES prints it; a number beyond the limits is cut, and a warning in `told` says so.

    `low`: another lower limit than that of the table. Raises `WrongVariableType` (1232), `WrongVariableValue` (1231).
    """
    variable = GLOBALS[name]
    if variable.text:
        if not isinstance(value, str):
            raise WrongVariableType(name)
        return value
    if variable.words:
        return enum(name, value, variable.words)
    if variable.boolean:
        return boolean(name, value)
    lowest = variable.low if low is None else low
    return number(name, value, lowest, variable.high, variable.decimals, told)
