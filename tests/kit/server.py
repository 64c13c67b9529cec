"""Our server as a subprocess, the way a user runs it."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Self

import pymysql

from binlog_server.testing import ports, process, rundir
from binlog_server.testing.forks import Forked
from binlog_server.testing.sql_server import Credentials, Followed, SqlServer, url
from binlog_server.testing.waiting import POLL, until
from tests.kit import forks
from tests.kit.faults import Faults

READY = "ready for connections"
LOGIN_EVERY_S: Final = 0.25
SIZES: Final = {"max_binlog_size": 8 << 20, "innodb_log_file_size": 16 << 20}
REPLICA_AND_WATCHER = ["REPLICATION SLAVE", "BINLOG MONITOR", "SLAVE MONITOR"]


def replica_and_watcher(account: Credentials | None = None) -> dict[str, Any]:
    """Of `[users]`: an account for replicas with which a test may look at the server, too."""
    account = account or Credentials()
    return {account.user: {"password": account.password, "grants": REPLICA_AND_WATCHER}}


class BinlogServer(SqlServer):
    """`binlog-server serve` on a loopback port. Options are lines of its configuration file:

    BinlogServer(upstream=primary, server_id=7, max_binlog_size=65536)
    """

    module = "binlog_server"
    command: Sequence[str] = ()
    """In the place of `python -m MODULE`."""
    forked = False
    """Whether it may be started by `forks`: the same, sooner."""

    def __init__(
        self,
        *,
        upstream: Followed | str | None = None,
        users: Mapping[str, str | Mapping[str, Any]] | None = None,
        directory: Path | None = None,
        environment: Mapping[str, str] | None = None,
        faults: Faults | None = None,
        arguments: Sequence[str] = (),
        own_program: bool = False,
        **options: str | int | float | bool | Sequence[str],
    ) -> None:
        self.port = ports.lease()
        self.dir = rundir.new_dir("binlog-server")
        self.directory = directory or self.dir / "data"
        """Where the store is. Given from outside it outlives this object."""
        self.upstream = upstream if upstream is None or isinstance(upstream, str) else url(upstream)
        self.users: dict[str, Any] = dict(users) if users is not None else replica_and_watcher()
        # Files are allocated whole, one ahead: of the default sizes they would take 2 GiB of memory in /dev/shm, and
        # longer to write than all else at a start.
        self.options: dict[str, Any] = {**SIZES, **options}
        """Of the next start: a test may change them before a `restart`."""
        self.arguments = list(arguments)
        """Of the command line, besides."""
        self.environment = dict(environment or {})
        if faults is not None:
            self.module = faults.module
            self.environment.update(faults.environment)
        self.own_program = own_program
        """Not `forked`: for who measures its memory. How it has its memory is said in front of its first thread."""
        self.name = f"binlog-server-{self.port}"
        self._process: subprocess.Popen[bytes] | Forked | None = None

    @property
    def account(self) -> Credentials:
        """The first user: what a replica logs in with."""
        name, secret = next(iter(self.users.items()))
        return Credentials(name, secret if isinstance(secret, str) else secret["password"])

    @property
    def url(self) -> str:
        """As another server's --upstream."""
        return url(self)

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    # -- its life ---------------------------------------------------------------------------------

    def start(self, timeout: float = 40.0) -> Self:
        """Returns when it accepts logins."""
        assert not self.alive(), f"{self} runs already"
        self.directory.mkdir(parents=True, exist_ok=True)
        config = self.dir / "server.toml"
        config.write_text(toml(self.options, users=self.users))
        config.chmod(0o600)
        argv = [
            "serve",
            f"--directory={self.directory}",
            f"--listen={self.host}:{self.port}",
            f"--config={config}",
        ]
        if self.upstream:
            argv.append(f"--upstream={self.upstream}")
        argv += self.arguments
        seen = len(self.log())
        env = {**os.environ, "PYTHONUNBUFFERED": "1", **self.environment}
        log = self.dir / "server.log"
        self._process = None
        if self.forked and not self.own_program:
            self._process = forks.start(argv, log, env, self.module)
        if self._process is None:
            command = self.command or (sys.executable, "-m", self.module)
            self._process = process.spawn([*command, *argv], log, env)
        self._wait_ready(seen, timeout)
        return self

    def stop(self, timeout: float = 40.0) -> None:
        """SIGTERM; the server must end by itself, with exit code 0."""
        assert self._process is not None
        self._process.send_signal(signal.SIGTERM)
        code = self._process.wait(timeout)
        assert code == 0, f"{self} ended with {code}:\n{self.log()[-3000:]}"

    def wait_exit(self, timeout: float = 40.0) -> int:
        """Until it has ended by itself; its exit code."""
        assert self._process is not None
        return self._process.wait(timeout)

    def kill(self) -> None:
        """kill -9; the data stay."""
        if self._process is not None:
            self._process.kill()
            self._process.wait(30)

    def pause(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)

    def restart(self) -> Self:
        """Starts it again on its data, after a `stop` if it still runs."""
        if self.alive():
            self.stop()
        return self.start()

    def alive(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def log(self) -> str:
        """What it wrote, of all starts."""
        return process.read_log(self.dir / "server.log")

    def discard(self) -> None:
        self.kill()
        shutil.rmtree(self.dir, ignore_errors=True)
        ports.release(self.port)

    def _wait_ready(self, seen: int, timeout: float) -> None:
        deadline = time.monotonic() + timeout
        log_in = time.monotonic()  # now and then: who logs little does not say that it is ready
        while READY not in self.log()[seen:]:
            if time.monotonic() >= log_in:
                if self._accepts_login():
                    return
                log_in = time.monotonic() + LOGIN_EVERY_S
            if time.monotonic() > deadline or not self.alive():
                raise RuntimeError(f"{self} did not come up:\n{self.log()[-3000:]}")
            time.sleep(POLL)

    def _accepts_login(self) -> bool:
        try:
            with self.connect(connect_timeout=1):
                return True
        except pymysql.Error:
            return False

    def __repr__(self) -> str:
        return f"<{self.name}>"

    def wait_position(self, position: str, timeout: float = 30.0) -> None:
        """Until its store ends there; domains may come in any order."""
        wanted = set(position.split(","))
        until(
            lambda: set(self.gtid_binlog_pos.split(",")) == wanted, f"{self} at {position}", timeout
        )

    def login(self) -> Mapping[str, Any]:
        """As the first user; pymysql says nothing of its own after the login."""
        account = self.account
        return {
            "user": account.user,
            "password": account.password,
            "read_timeout": 40,
            "autocommit": None,
        }


def toml(options: Mapping[str, Any], **tables: Mapping[str, Any]) -> str:
    """The few kinds of value that a configuration has."""
    lines = [f"{key} = {_toml_value(value)}" for key, value in options.items()]
    for name, table in tables.items():
        lines += ["", f"[{name}]"]
        lines += [f"{json.dumps(key)} = {_toml_value(value)}" for key, value in table.items()]
    return "\n".join(lines) + "\n"


def _toml_value(value: Any) -> str:
    """JSON writes all but tables the way TOML does."""
    if not isinstance(value, Mapping):
        return json.dumps(value)
    return "{" + ", ".join(f"{json.dumps(k)} = {_toml_value(v)}" for k, v in value.items()) + "}"
