"""The servers that are measured, and what they cost."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pymysql

from benchmarks.registry import BenchmarkError
from binlog_server.connections.certificate import self_signed
from binlog_server.testing.install import Install, homes
from binlog_server.testing.mariadb import MariaDB
from tests.kit.server import BinlogServer

POLL_S: Final = 0.1  # long, since each look takes time from what is measured
_TICKS_PER_S: Final = os.sysconf("SC_CLK_TCK")
TICK_S: Final = 1 / _TICKS_PER_S
"""The least processor time of a process that can be told."""
_UTIME: Final = 11  # fields of /proc/PID/stat behind the command name, from 0
_STIME: Final = 12


class MissingMariaDB(BenchmarkError):
    """This machine has no mariadbd of the wanted version."""


def mariadb_install(version: str) -> Install:
    """The mariadbd of that version (such as 10.11): the system's, or one that the test kit has set up."""
    trees = (Install.tree(home / f"mariadb-{version}") for home in homes())
    for install in (Install.system(), *trees):
        if install is not None and install.version == version:
            return install
    raise MissingMariaDB(f"no mariadbd {version} here; `make setup` installs it")


def tls_flags(directory: Path) -> tuple[str, ...]:
    """Options with which a mariadbd takes TLS; its key and certificate are made in `directory`."""
    key, certificate = directory / "key.pem", directory / "certificate.pem"
    for path, data in zip((key, certificate), self_signed(), strict=True):
        path.write_bytes(data)
    return ("--ssl", f"--ssl-cert={certificate}", f"--ssl-key={key}")


def wait_relayed(server: BinlogServer, upstream: MariaDB, timeout: float) -> None:
    """Wait until `server` holds all that `upstream` has logged. Raises `BenchmarkError`."""
    wanted = upstream.gtid_binlog_pos
    deadline = time.monotonic() + timeout
    while (there := gtid_binlog_pos(server)) != wanted:
        if not server.alive():
            raise BenchmarkError(f"{server} has ended:\n{server.log()[-3000:]}")
        if time.monotonic() > deadline:
            raise BenchmarkError(
                f"{server} is at {there!r}, not {wanted!r}:\n{server.log()[-3000:]}"
            )
        time.sleep(POLL_S)


def gtid_binlog_pos(server: BinlogServer) -> str:
    """The GTID binlog position of `server`; empty while it is too busy to answer."""
    try:
        return str(next(iter(server.q("SELECT @@GLOBAL.gtid_binlog_pos")[0].values())))
    except pymysql.OperationalError:
        return ""


@dataclass(frozen=True, slots=True)
class Usage:
    """Resources of one process: processor time since its start, memory now and at most."""

    cpu_s: float
    rss_mb: float
    peak_rss_mb: float

    @classmethod
    def of(cls, pid: int) -> Usage:
        process = Path("/proc") / str(pid)
        fields = (process / "stat").read_text().rpartition(")")[2].split()
        kilobytes = dict(
            line.split()[:2]
            for line in (process / "status").read_text().splitlines()
            if line.startswith("Vm")
        )
        return cls(
            cpu_s=(int(fields[_UTIME]) + int(fields[_STIME])) / _TICKS_PER_S,
            rss_mb=int(kilobytes["VmRSS:"]) / 1024,
            peak_rss_mb=int(kilobytes["VmHWM:"]) / 1024,
        )
