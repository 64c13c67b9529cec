"""What SET GLOBAL changes in the running server. Nothing of it is kept over a restart: the configuration is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from binlog_server.admin.view import Diagnostic, Level
from protocol.errors import WrongVariableValue
from protocol.sql_errors import WrongVariableType
from storage.binlog.options import FILE_BYTES_MAX, PAGES_MIN
from storage.ibb.page import PAGE_SIZE

_TRUNCATED = 1292
_U32_MAX = 2**32 - 1
_WORDS = {"0": "OFF", "1": "ON", "OFF": "OFF", "ON": "ON", "FALSE": "OFF", "TRUE": "ON"}
_DIGITS_MAX = 20


@dataclass(frozen=True, slots=True)
class GlobalVariable:
    """A number from `low` to `high`; a boolean without them; `decimals` behind the point.

    `also_session`: SET SESSION changes it for the session alone. `privileges`: any of them will do.
    """

    low: int = 0
    high: int = 0
    also_session: bool = False
    decimals: int = 0
    text: bool = False
    privileges: tuple[str, ...] = ("SUPER", "BINLOG ADMIN")

    @property
    def boolean(self) -> bool:
        """ON or OFF."""
        return not self.high and not self.text


_CONNECTIONS = ("SUPER", "CONNECTION ADMIN")

GLOBALS: Mapping[str, GlobalVariable] = {
    "binlog_expire_logs_seconds": GlobalVariable(0, 8_553_600),
    "expire_logs_days": GlobalVariable(0, 99, decimals=6),
    "gtid_binlog_state": GlobalVariable(text=True),
    "gtid_strict_mode": GlobalVariable(),
    "innodb_flush_log_at_trx_commit": GlobalVariable(0, 3),
    "max_binlog_size": GlobalVariable(PAGES_MIN * PAGE_SIZE, FILE_BYTES_MAX),
    "max_binlog_total_size": GlobalVariable(0, 2**62),
    "max_connections": GlobalVariable(10, 100_000, privileges=_CONNECTIONS),
    "net_write_timeout": GlobalVariable(1, 31_536_000, also_session=True, privileges=_CONNECTIONS),
    "read_only": GlobalVariable(privileges=("SUPER", "READ_ONLY ADMIN")),
    "slave_connections_needed_for_purge": GlobalVariable(0, _U32_MAX),
    # Without effect with an engine binlog; MariaDB takes it, so scripts may say it.
    "sync_binlog": GlobalVariable(0, _U32_MAX),
    "wait_timeout": GlobalVariable(1, 31_536_000, also_session=True, privileges=_CONNECTIONS),
}


def as_shown(
    name: str, value: str | int | None, diagnostics: list[Diagnostic], low: int | None = None
) -> str:
    """The value as SHOW VARIABLES prints it; a number beyond the limits is cut, and a warning says so.

    `low`: another lower limit than that of the table. Raises `WrongVariableType` (1232), `WrongVariableValue` (1231).
    """
    variable = GLOBALS[name]
    if variable.text:
        if not isinstance(value, str):
            raise WrongVariableType(name)
        return value
    if variable.boolean:
        word = str(value).upper()
        if word not in _WORDS:
            raise WrongVariableValue(name, "NULL" if value is None else str(value))
        return _WORDS[word]
    number = _number(name, value, variable.decimals)
    cut = min(max(variable.low if low is None else low, number), variable.high)
    if cut != number:
        text = f"Truncated incorrect {_shortened(name)} value: '{value}'"
        diagnostics.append(Diagnostic(Level.WARNING, _TRUNCATED, text))
    return f"{cut:.{variable.decimals}f}" if variable.decimals else str(int(cut))


def _number(name: str, value: str | int | None, decimals: int) -> float | int:
    if isinstance(value, int):
        return value
    # A number with a point comes as text from the grammar, and so does a text in quotes.
    text = "" if value is None else value
    whole, point, fraction = text.removeprefix("-").partition(".")
    digits = whole + fraction
    if (
        not (digits.isascii() and digits.isdecimal() and len(digits) <= _DIGITS_MAX)
        or not whole
        or (point and not decimals)
    ):
        raise WrongVariableType(name)
    return float(text) if decimals else int(text)


def _shortened(name: str) -> str:
    return name if len(name) <= _SHORT_CHARS else name[:_SHORT_CHARS_KEPT] + "..."


# MariaDB 11.8 prints slave_connections_needed_for_purge so.
_SHORT_CHARS, _SHORT_CHARS_KEPT = 32, 29
