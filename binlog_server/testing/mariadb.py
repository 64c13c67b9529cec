"""One real MariaDB server: the same object whether it is a local process or a container."""

from __future__ import annotations

import shutil
import time
import zlib
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import pymysql

from binlog_server.testing import ports, rundir
from binlog_server.testing.install import LAYOUT
from binlog_server.testing.sql_server import Credentials, Followed, Row, SqlServer
from binlog_server.testing.waiting import POLL

# What makes a start take 0.1 s. Each can be overridden by a flag given later.
QUICK = (
    "--skip-name-resolve",
    "--performance-schema=OFF",
    # 11.4 and later make a key and a certificate at every start otherwise (up to 1 s). It concerns
    # the server side only: as a replica it still speaks TLS to its master.
    "--skip-ssl",
    "--innodb-buffer-pool-load-at-startup=0",
    "--innodb-buffer-pool-dump-at-shutdown=0",
    "--innodb-fast-shutdown=2",
    "--key-buffer-size=1M",
    "--aria-pagecache-buffer-size=1M",
    *LAYOUT,
)

# Everything is written to the operating system at every commit and never synced: the data survive
# kill -9, though not a power cut.
SURVIVES_KILL = (
    "--innodb-flush-log-at-trx-commit=2",
    "--sync-binlog=0",
    "--sync-relay-log=0",
    "--sync-relay-log-info=0",
    "--sync-master-info=0",
)

REPLICA = (
    "--skip-slave-start",
    "--slave-net-timeout=10",  # the default of 60 s is how long a dead connection goes unnoticed
)

UPSTREAM = (
    "--log-bin=upstream-bin",
    "--binlog-format=ROW",
    "--max-allowed-packet=256M",  # rows of any size that a test may want
)


class ReplicationStopped(Exception):
    """A thread of the replica gave up; the text has its errors."""


class MariaDB(SqlServer, ABC):
    """A server, and the SQL that tests say to it. Use it through the fixtures, which clean up."""

    def __init__(self, name: str, server_id: int | None, flags: Sequence[str]) -> None:
        self.name = name
        self.port = ports.lease()
        self.server_id = server_id or self.port
        self.flags = list(flags)
        """Of the next start: a test may change them before a `restart`."""
        self.account = Credentials()
        """Its replication account, where it has one (`create_account`)."""
        self.dir = rundir.new_dir("db")
        """A directory that the server sees at the same path, also from inside a container."""
        self.dir.chmod(0o755)

    # -- its life ---------------------------------------------------------------------------------

    def start(self) -> Self:
        """Starts it on the data it has, or on an empty data directory; returns when SQL works."""
        self._start()
        self._wait_ready()
        return self

    def restart(self) -> Self:
        """Starts it again on its data, after an orderly stop if it still runs."""
        if self.alive():
            self.stop()
        return self.start()

    @abstractmethod
    def stop(self) -> None:
        """Orderly (SIGTERM); the data stay."""

    @abstractmethod
    def kill(self) -> None:
        """kill -9, also when paused; the data stay."""

    @abstractmethod
    def pause(self) -> None:
        """The process stands still, its connections stay open."""

    @abstractmethod
    def resume(self) -> None: ...

    @abstractmethod
    def alive(self) -> bool: ...

    @abstractmethod
    def log(self) -> str:
        """Its error log, of all starts."""

    @abstractmethod
    def run(self, program: str, *arguments: str) -> str:
        """What a program of this version says (mariadb-backup, mariadb-binlog, ...), run where the
        server runs. Raises CalledProcessError if it fails."""

    def copy_of(self, name: str) -> Path:
        """A copy of a file of its data directory, made now, where the test can read it."""
        copy = rundir.new_dir("copy") / name
        copy.write_bytes(self._content(f"{self.value('SELECT @@datadir').rstrip('/')}/{name}"))
        return copy

    def discard(self) -> None:
        """Ends it and throws its data away."""
        self._discard()
        shutil.rmtree(self.dir, ignore_errors=True)
        ports.release(self.port)

    @abstractmethod
    def _start(self) -> None: ...

    @abstractmethod
    def _discard(self) -> None: ...

    @abstractmethod
    def _content(self, path: str) -> bytes:
        """Of a file, by its path where the server runs."""

    def _arguments(self) -> list[str]:
        return [
            f"--port={self.port}",
            f"--bind-address={self.host}",
            f"--server-id={self.server_id}",
            *QUICK,
            *SURVIVES_KILL,
            *REPLICA,
            *self.flags,
        ]

    def _wait_ready(self, timeout: float = 45.0) -> None:
        deadline = time.monotonic() + timeout
        while True:
            try:
                self.q("select 1")
            except pymysql.Error:
                if time.monotonic() > deadline or not self.alive():
                    raise RuntimeError(f"{self} did not come up:\n{self.log()[-3000:]}") from None
                time.sleep(POLL)
            else:
                return

    def __repr__(self) -> str:
        return f"<{self.name} on port {self.port}>"

    # -- SQL --------------------------------------------------------------------------------------

    def login(self) -> Mapping[str, Any]:
        """As root, autocommit."""
        return {"user": "root", "password": "", "autocommit": True}

    def make_table(self, name: str = "d.t", kind: str = "VARCHAR(200)") -> None:
        """A table of rows that number themselves, with a column `a` of that kind; its database, too."""
        self.script(
            f"CREATE DATABASE IF NOT EXISTS {name.partition('.')[0]}",
            f"CREATE TABLE {name} (id INT PRIMARY KEY AUTO_INCREMENT, a {kind})",
        )

    # -- replication ------------------------------------------------------------------------------

    def create_account(self, account: Credentials | None = None) -> None:
        """The account that replicas log in with; not written to the binlog."""
        self.account = account or self.account
        user = f"`{self.account.user}`@'%'"
        self.script(
            "SET SESSION sql_log_bin = 0",
            f"CREATE OR REPLACE USER {user} IDENTIFIED BY '{self.account.password}'",
            f"GRANT REPLICATION SLAVE, REPLICATION CLIENT ON *.* TO {user}",
        )

    def replicate_from(
        self,
        host: str,
        port: int,
        user: str,
        password: str,
        *,
        gtid: str = "slave_pos",
        options: str = "MASTER_SSL=0",
        start: bool = True,
    ) -> None:
        """CHANGE MASTER over GTID and START SLAVE. `options` are further clauses; give your own to
        speak TLS: by default an 11.8 replica refuses a master without it."""
        self.q("STOP SLAVE")
        self.q(
            f"CHANGE MASTER TO MASTER_HOST='{host}', MASTER_PORT={port}, MASTER_USER='{user}',"
            f" MASTER_PASSWORD='{password}', MASTER_USE_GTID={gtid}, MASTER_CONNECT_RETRY=1"
            + (f", {options}" if options else "")
        )
        if start:
            self.q("START SLAVE")

    def follow(self, source: Followed, *, port: int | None = None, **options: Any) -> Self:
        """`replicate_from` with the account of `source`, by `port` (a proxy's) if given; returns
        when both threads run."""
        account = source.account
        self.replicate_from(
            source.host, port or source.port, account.user, account.password, **options
        )
        if options.get("start", True):
            self.wait_running()
        return self

    def replica_status(self) -> Row:
        """SHOW SLAVE STATUS; empty if this is no replica."""
        rows = self.q("SHOW SLAVE STATUS")
        return rows[0] if rows else {}

    @property
    def errors(self) -> str:
        """Both threads, whether they run, and the number and text of what has stopped them."""
        return _errors(self.replica_status())

    def wait_running(self, timeout: float = 30.0) -> None:
        """Until both threads run. Raises ReplicationStopped at once if one has given up."""
        deadline = time.monotonic() + timeout
        while True:
            status = self.replica_status()
            if status and status["Slave_IO_Running"] == status["Slave_SQL_Running"] == "Yes":
                return
            self._check_not_stopped(status)
            if time.monotonic() > deadline:
                raise TimeoutError(f"{self} does not replicate: {_errors(status)}")
            time.sleep(POLL)

    def wait_stopped(self, timeout: float = 30.0) -> Row:
        """Until a thread has given up with an error; returns the status."""
        deadline = time.monotonic() + timeout
        while True:
            status = self.replica_status()
            try:
                self._check_not_stopped(status)
            except ReplicationStopped:
                return status
            if time.monotonic() > deadline:
                raise TimeoutError(f"{self} goes on: {_errors(status)}")
            time.sleep(POLL)

    def _check_not_stopped(self, status: Row) -> None:
        for thread in ("IO", "SQL"):
            if (
                status
                and status[f"Slave_{thread}_Running"] == "No"
                and status[f"Last_{thread}_Errno"]
            ):
                raise ReplicationStopped(f"{self}: {_errors(status)}")

    @property
    def gtid_slave_pos(self) -> str:
        return str(self.value("SELECT @@GLOBAL.gtid_slave_pos"))

    @property
    def gtid_binlog_state(self) -> str:
        return str(self.value("SELECT @@GLOBAL.gtid_binlog_state"))

    def wait_gtid(self, position: str, timeout: float = 30.0) -> None:
        """Until this replica has applied everything up to the position."""
        deadline = time.monotonic() + timeout
        while True:
            # In slices: a replica that stopped would otherwise be noticed at the end only.
            slice_ = max(0.0, min(0.5, deadline - time.monotonic()))
            if self.value("SELECT MASTER_GTID_WAIT(%s, %s)", position, slice_) == 0:
                return
            status = self.replica_status()
            self._check_not_stopped(status)
            if time.monotonic() > deadline:
                raise TimeoutError(
                    f"{self} is at {self.gtid_slave_pos!r}, not {position!r}: {_errors(status)}"
                )

    def tables(self) -> list[str]:
        """The base tables of users, as `schema.table`."""
        rows = self.q(
            "SELECT CONCAT(table_schema, '.', table_name) AS t FROM information_schema.tables"
            " WHERE table_type = 'BASE TABLE' AND table_schema NOT IN"
            " ('mysql', 'sys', 'information_schema', 'performance_schema') ORDER BY 1"
        )
        return [row["t"] for row in rows]

    def checksum(self, tables: Iterable[str] | None = None) -> dict[str, int | None]:
        """CHECKSUM TABLE of the given tables (`schema.table`) or of all; None if there is no such.

        11.8.9 has another one than all before for a table with a STORED column: there it is one of all values.
        """
        names = self.tables() if tables is None else list(tables)
        if not names:
            return {}
        quoted = {name: ".".join(map(_quoted, name.split(".", 1))) for name in names}
        rows = self.q(f"CHECKSUM TABLE {', '.join(quoted.values())}")
        found: dict[str, int | None] = {row["Table"]: row["Checksum"] for row in rows}
        stored = self.q(
            "SELECT DISTINCT CONCAT(table_schema, '.', table_name) AS t FROM information_schema.columns"
            " WHERE extra LIKE '%STORED GENERATED%'"
        )
        for name in {row["t"] for row in stored} & found.keys():
            values = sorted(
                repr(list(row.items())) for row in self.q(f"SELECT * FROM {quoted[name]}")
            )
            found[name] = zlib.crc32("\n".join(values).encode())
        return found


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def _errors(status: Row) -> str:
    if not status:
        return "not a replica"
    return ", ".join(
        f"{thread}: {status[f'Slave_{thread}_Running']} {status[f'Last_{thread}_Errno'] or ''}"
        f" {status[f'Last_{thread}_Error']}".rstrip()
        for thread in ("IO", "SQL")
    )
