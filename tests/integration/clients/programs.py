"""MariaDB's client programs of one version, as processes of this machine, and a relay for them to talk to."""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from binlog_server.testing import process
from binlog_server.testing.install import Install
from binlog_server.testing.local import LocalMariaDB
from binlog_server.testing.mariadb import MariaDB
from tests.integration.load import insert
from tests.kit.server import BinlogServer

TIMEOUT_S = 30


def server_version(version: str) -> str:
    """What our server must call itself: mariadb-binlog of 10.11 refuses all of version 11 and later."""
    return f"{version}.1-MariaDB-binlog-server"


def install_of(server: MariaDB) -> Install:
    """Where a server's programs are. Skips the test if it is a container."""
    if not isinstance(server, LocalMariaDB):
        pytest.skip("needs the programs of that version on this machine")
    return server.install


@dataclass(frozen=True)
class Programs:
    """They log in to `server`; `directory` is where they may write."""

    install: Install
    server: BinlogServer
    directory: Path

    def argv(self, program: str, *options: str) -> list[str]:
        account = self.server.account
        return [
            *self.install.program(program),
            "--no-defaults",
            f"--host={self.server.host}",
            f"--port={self.server.port}",
            f"--user={account.user}",
            f"--password={account.password}",
            *options,
        ]

    def run(self, program: str, *options: str, given: str = "") -> str:
        """What it prints. It must succeed."""
        done = self._done(program, *options, given=given)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def fail(self, program: str, *options: str, given: str = "") -> str:
        """What it prints and says. It must fail."""
        done = self._done(program, *options, given=given)
        assert done.returncode != 0, done.stdout
        return done.stdout + done.stderr

    def read(self, *files: Path, options: tuple[str, ...] = ()) -> str:
        """mariadb-binlog of files."""
        argv = [*self.install.program("mariadb-binlog"), "--no-defaults", *options]
        return subprocess.run(
            [*argv, *map(str, files)], capture_output=True, text=True, timeout=TIMEOUT_S, check=True
        ).stdout

    def read_growing(self, file: Path) -> str:
        """As `read`, of a file that another program writes; empty while it is not there, or ends inside an event."""
        try:
            return self.read(file) if file.exists() else ""
        except subprocess.CalledProcessError:
            return ""

    @contextlib.contextmanager
    def running(self, program: str, *options: str) -> Iterator[Path]:
        """While it runs: the file with what it prints and says."""
        output = self.directory / f"{program}.log"
        child = process.spawn(self.argv(program, *options), output)
        try:
            yield output
            assert child.poll() is None, f"{program} has ended:\n{process.read_log(output)}"
        finally:
            child.kill()
            child.wait(TIMEOUT_S)

    def _done(self, program: str, *options: str, given: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            self.argv(program, *options),
            input=given,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=TIMEOUT_S,
            check=False,
        )


@dataclass(frozen=True)
class Relay:
    """Our server behind a real upstream, and programs of the upstream's version."""

    upstream: MariaDB
    server: BinlogServer
    programs: Programs

    def write(self, rows: int = 4) -> list[str]:
        """A table, rows, an update, a statement; the GTIDs. Returns when our server has them."""
        upstream = self.upstream
        upstream.make_table()
        insert(upstream, rows)
        upstream.script(
            "UPDATE d.t SET a = 'changed' WHERE id = 1",
            "SET SESSION binlog_format = STATEMENT",
            "INSERT INTO d.t (a) VALUES ('in words')",
        )
        self.wait()
        domain, server, last = upstream.gtid_binlog_pos.split("-")
        return [f"{domain}-{server}-{number}" for number in range(1, int(last) + 1)]

    def wait(self) -> None:
        """Until our server has what the upstream has."""
        self.server.wait_position(self.upstream.gtid_binlog_pos)
