"""Servers that take statements by SQL and log them: ours, and mariadbd.

Where nothing but the binlog is to be measured mariadbd has BLACKHOLE tables, which store nothing and are transactional.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pymysql

from benchmarks.registry import BenchmarkError
from benchmarks.servers import Usage
from binlog_server.testing.install import Install
from binlog_server.testing.local import LocalMariaDB
from binlog_server.testing.sql_server import Credentials, Followed
from tests.kit.server import BinlogServer

WRITER: Final = Credentials("bench", "bench-password")
RIGHT: Final = "BINLOG REPLAY"  # what a user of ours needs to commit by SQL
ROW_RIGHTS: Final = ("SELECT", "INSERT", "UPDATE", "CREATE")  # and one with tables
MAX_BINLOG_SIZE: Final = 1 << 30  # of both: the default
MAX_CONNECTIONS: Final = 300
_PAGE_BYTES: Final = os.sysconf("SC_PAGE_SIZE")
_MIB: Final = 1 << 20


ENGINES: Final = ("ibb", "classic")
"""Of our store, for `--engine`."""


def storage_engine(engine: str) -> str:
    """The option of our server that makes a store of this one of `ENGINES`."""
    return "" if engine == "classic" else "innodb"


@dataclass(frozen=True, slots=True)
class Master:
    """One of the two, running, on a directory of the benchmark's."""

    name: str
    source: Followed
    writer: Credentials
    pid: int
    directory: Path

    def execute(self, *statements: str) -> None:
        """Execute statements as the writer, on one connection. Raises `BenchmarkError`."""
        self._ask(statements)

    def status(self) -> dict[str, int]:
        """The numbers of SHOW GLOBAL STATUS."""
        rows = self._ask(["SHOW GLOBAL STATUS"])
        return {str(name): int(value) for name, value in rows if str(value).isdigit()}

    def _ask(self, statements: Sequence[str]) -> Sequence[Sequence[Any]]:
        rows: Sequence[Sequence[Any]] = ()
        try:
            connection: Any = pymysql.connect(
                host=self.source.host,
                port=self.source.port,
                user=self.writer.user,
                password=self.writer.password,
                autocommit=None,
                ssl_disabled=True,
                connect_timeout=10,
            )
            with contextlib.closing(connection), connection.cursor() as cursor:
                for statement in statements:
                    cursor.execute(statement)
                    rows = cursor.fetchall()
        except pymysql.Error as error:
            raise BenchmarkError(f"{self.name}: {error}") from None
        return rows

    def cpu_s(self) -> float:
        """Processor time since its start."""
        return Usage.of(self.pid).cpu_s

    def dirtied_bytes(self) -> int:
        """Bytes that the server has written since its start, as the kernel counts: whole folios of its page cache.

        A folio has 4 KiB in a file that was written in small pieces and up to megabytes in one that was written in
        large ones, of which only the changed blocks go to the disk.
        """
        text = (Path("/proc") / str(self.pid) / "io").read_text()
        return int(dict(line.split(": ") for line in text.splitlines())["write_bytes"])

    def rss_mib(self) -> float:
        """Resident memory now."""
        pages = (Path("/proc") / str(self.pid) / "statm").read_text().split()[1]
        return int(pages) * _PAGE_BYTES / _MIB


def counter(status: dict[str, int], name: str) -> int:
    """A number of SHOW GLOBAL STATUS. Raises `BenchmarkError` if the server has none of that name."""
    if name not in status:
        raise BenchmarkError(f"the server's SHOW GLOBAL STATUS has no {name}")
    return status[name]


def start_ours(
    stack: contextlib.ExitStack,
    directory: Path,
    *,
    flush_log_at_trx_commit: int,
    local_tables: bool = False,
    engine: str = ENGINES[0],
    **options: Any,
) -> Master:
    """Our server on a new store in `directory`, until `stack` is closed. Raises `BenchmarkError`.

    options: more of the configuration.
    """
    grants = ROW_RIGHTS if local_tables else (RIGHT,)
    repl = Credentials()
    server = BinlogServer(
        directory=directory,
        users={
            repl.user: repl.password,
            WRITER.user: {"password": WRITER.password, "grants": list(grants)},
        },
        max_binlog_size=MAX_BINLOG_SIZE,
        max_connections=MAX_CONNECTIONS,
        innodb_flush_log_at_trx_commit=flush_log_at_trx_commit,
        local_tables=local_tables,
        binlog_storage_engine=storage_engine(engine),
        **options,
    )
    stack.callback(server.discard)
    try:
        server.start()
    except RuntimeError as error:
        raise BenchmarkError(str(error)) from None
    return Master("ours", server, WRITER, server.pid, directory)


class DirectoryMariaDB(LocalMariaDB):
    """A mariadbd with its data where the benchmark wants them."""

    def __init__(
        self, install: Install, directory: Path, server_id: int, flags: Sequence[str]
    ) -> None:
        super().__init__(install, "mariadbd", server_id, flags)
        directory.mkdir()
        self._directory = directory

    @property
    def datadir(self) -> Path:
        return self._directory / "data"


def start_mariadbd(
    stack: contextlib.ExitStack, install: Install, directory: Path, *flags: str
) -> Master:
    """mariadbd with its classic binlog, InnoDB and the BLACKHOLE engine, until `stack` is closed."""
    all_flags = [
        "--log-bin=bench-bin",
        f"--max-binlog-size={MAX_BINLOG_SIZE}",
        f"--max-connections={MAX_CONNECTIONS}",
        f"--tmpdir={directory}",
        "--plugin-load-add=ha_blackhole",
        "--plugin-maturity=unknown",
        *flags,
    ]
    server = DirectoryMariaDB(install, directory, 1, all_flags)
    stack.callback(server.discard)
    try:
        server.start()
    except (RuntimeError, pymysql.Error) as error:
        raise BenchmarkError(
            f"mariadbd {install.full_version} with ha_blackhole (`make setup` installs it): {error}"
        ) from None
    server.create_account()
    return Master("mariadbd", server, Credentials("root", ""), server.pid, directory)


class Memory:
    """Watches the resident memory of a server, 50 times a second, until the block ends.

    `peak_mib`: the most that was seen.
    """

    INTERVAL_S: Final = 0.02

    def __init__(self, master: Master) -> None:
        self._master = master
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self.before_mib = self.peak_mib = master.rss_mib()

    def __enter__(self) -> Memory:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    @property
    def growth_mib(self) -> float:
        """The most that was seen, above what it was at the beginning."""
        return self.peak_mib - self.before_mib

    def _watch(self) -> None:
        while not self._ended.wait(self.INTERVAL_S):
            with contextlib.suppress(OSError):  # it ended
                self.peak_mib = max(self.peak_mib, self._master.rss_mib())
