"""What SET GLOBAL changes in the running server. Nothing of it is kept over a restart: the configuration is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from binlog_protocol.errors import BadGtidList, WrongVariableValue
from binlog_protocol.errors.sql_errors import WrongVariableType
from binlog_protocol.limits import GTID_LIST_BYTES_MAX

from binlog_server.engine_limits import AFTER_COMMIT, AFTER_SYNC
from binlog_server.option_limits import LIMITS
from binlog_server.sql.statements import Value
from binlog_server.sql.values import boolean, enum, number
from binlog_server.sql.view import Diagnostic


@dataclass(frozen=True, slots=True)
class GlobalVariable:
    """A number (its limits: `option_limits`) with `decimals` behind the point; or one of `words`; or any `text`; else a
    boolean.

    `also_session`: SET SESSION changes it for the session alone. `privileges`: any of them will do.
    """

    number: bool = False
    also_session: bool = False
    decimals: int = 0
    text: bool = False
    words: tuple[str, ...] = ()
    privileges: tuple[str, ...] = ("SUPER", "BINLOG ADMIN")

    @property
    def boolean(self) -> bool:
        """ON or OFF."""
        return not (self.number or self.decimals or self.text or self.words)


_CONNECTIONS = ("SUPER", "CONNECTION ADMIN")

_SUPER = ("SUPER",)
_MASTER = ("SUPER", "REPLICATION MASTER ADMIN")
_REPLICATION = ("SUPER", "REPLICATION SLAVE ADMIN")

SKIP_COUNTER = "sql_slave_skip_counter"

GLOBALS: Mapping[str, GlobalVariable] = {
    # It stays as it is: scripts may say it, and are warned.
    "binlog_checksum": GlobalVariable(words=("NONE", "CRC32"), privileges=_SUPER),
    "binlog_expire_logs_seconds": GlobalVariable(number=True),
    "connect_timeout": GlobalVariable(number=True, privileges=_CONNECTIONS),
    "expire_logs_days": GlobalVariable(decimals=6),
    "gtid_binlog_state": GlobalVariable(text=True, privileges=_MASTER),
    "gtid_ignore_duplicates": GlobalVariable(privileges=_REPLICATION),
    "gtid_slave_pos": GlobalVariable(text=True, privileges=_REPLICATION),
    "gtid_strict_mode": GlobalVariable(privileges=_REPLICATION),
    "innodb_flush_log_at_trx_commit": GlobalVariable(number=True),
    "max_binlog_size": GlobalVariable(number=True),
    "max_binlog_total_size": GlobalVariable(number=True),
    "max_connections": GlobalVariable(number=True, privileges=_CONNECTIONS),
    "max_user_connections": GlobalVariable(number=True, privileges=_SUPER),
    "net_read_timeout": GlobalVariable(number=True, also_session=True, privileges=_SUPER),
    "net_write_timeout": GlobalVariable(number=True, also_session=True, privileges=_SUPER),
    "read_only": GlobalVariable(privileges=("READ_ONLY ADMIN",)),
    "rpl_semi_sync_master_enabled": GlobalVariable(privileges=_MASTER),
    "rpl_semi_sync_master_timeout": GlobalVariable(number=True, privileges=_MASTER),
    "rpl_semi_sync_master_wait_for_slave_count": GlobalVariable(number=True, privileges=_MASTER),
    "rpl_semi_sync_master_wait_no_slave": GlobalVariable(privileges=_MASTER),
    "rpl_semi_sync_master_wait_point": GlobalVariable(
        words=(AFTER_SYNC, AFTER_COMMIT), privileges=_MASTER
    ),
    "rpl_semi_sync_slave_enabled": GlobalVariable(privileges=_REPLICATION),
    "rpl_semi_sync_slave_wait_for_slave_count": GlobalVariable(
        number=True, privileges=_REPLICATION
    ),
    "slave_compressed_protocol": GlobalVariable(privileges=_REPLICATION),
    "slave_connections_needed_for_purge": GlobalVariable(number=True),
    SKIP_COUNTER: GlobalVariable(number=True, privileges=_SUPER),
    # Without effect with an engine binlog; MariaDB takes it, so scripts may say it.
    "sync_binlog": GlobalVariable(number=True),
    "wait_timeout": GlobalVariable(number=True, also_session=True, privileges=_SUPER),
}


def as_shown(name: str, value: Value, told: list[Diagnostic], low: int | None = None) -> str:
    """The value as SHOW VARIABLES prints it; a number beyond the limits is cut, and a warning in `told` says so.

    `low`: another lower limit than the usual one. Raises `WrongVariableType` (1232), `WrongVariableValue` (1231).
    """
    variable = GLOBALS[name]
    if variable.text:
        if value is None:
            raise WrongVariableValue(name, "NULL")
        if not isinstance(value, str):
            raise WrongVariableType(name)
        if len(value) > GTID_LIST_BYTES_MAX:
            raise BadGtidList.too_long(len(value), GTID_LIST_BYTES_MAX)
        return value
    if variable.words:
        return enum(name, value, variable.words)
    if variable.boolean:
        return boolean(name, value)
    lowest, highest = LIMITS[name]
    return number(name, value, lowest if low is None else low, highest, variable.decimals, told)
