"""The position in a directory of mariadb-backup.

    mariadb_backup_binlog_info    as of 11.8: file, offset and GTIDs of the server's own binlog, with tabs between
    xtrabackup_binlog_info        the same, as of 10.11
    mariadb_backup_slave_info     with --slave-info, on a replica: the statements that follow its master
    xtrabackup_slave_info

    SET GLOBAL gtid_slave_pos = '0-1-4711,3-2-15';
    CHANGE MASTER TO master_use_gtid = slave_pos;

Without GTID the latter has CHANGE MASTER TO MASTER_LOG_FILE='...', MASTER_LOG_POS=...;
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from binlog_protocol.compiled_later import compiled_later
from binlog_protocol.gtid import SlavePosition
from binlog_storage.disk.given_files import read_given
from binlog_storage.disk.local_path import no_directory

from binlog_server.cli.seed_position import GTIDS, Found, NoPosition

_PREFIXES: Final = ("mariadb_backup", "xtrabackup")
# With the end of the line: in a cut file the last number may be cut, too.
_BINLOG_INFO: Final = compiled_later(rf"([^\t\n]+)\t([0-9]+)(?:\t({GTIDS})?)?\n")
_INFO_BYTES_MAX: Final = 1 << 20


def backup_position(directory: Path) -> tuple[SlavePosition, str]:
    """The GTID position of a backup, and the file that has it. Raises `NoPosition`, `ServerError`, `OSError`."""
    found = Found()
    names = []
    for what, take in (("slave_info", _take_slave_info), ("binlog_info", _take_binlog_info)):
        path = _existing(directory, what)
        if path is not None:
            names.append(path.name)
            take(read_given(path, _INFO_BYTES_MAX).decode("utf-8", "replace"), found)
    if not directory.is_dir():
        raise NoPosition(no_directory(directory))
    if not names:
        expected = " or ".join(f"{prefix}_binlog_info" for prefix in _PREFIXES)
        raise NoPosition(
            f"{directory} holds no {expected}: it is no directory of mariadb-backup --backup, or the server had no "
            "binlog (for a replica without one: mariadb-backup --slave-info)"
        )
    return found.the_one(str(directory)), f"{directory}: in {' and '.join(names)}"


def _existing(directory: Path, what: str) -> Path | None:
    paths = (directory / f"{prefix}_{what}" for prefix in _PREFIXES)
    return next((path for path in paths if path.is_file()), None)


def _take_slave_info(text: str, found: Found) -> None:
    for line in text.splitlines():
        found.take(line)


def _take_binlog_info(text: str, found: Found) -> None:
    match = _BINLOG_INFO.fullmatch(text)
    if match is None:
        return
    if match[3]:
        found.add(match[3])
    elif found.file_position is None:
        found.file_position = (match[1], match[2])
