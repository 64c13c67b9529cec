"""Fixtures for tests of others: docs/pytest.md. The entry point `pytest11` names this module.

pytest imports it in every run on a machine that has this package: it imports nothing of it until a test asks.
"""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Generator, Iterator
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import pytest

if TYPE_CHECKING:
    from binlog_server.testing import BinlogMaster, MariaDB

LOG_LINES = 60
"""Of each server's log in the report of a failed test."""
LOGS = "BINLOG_TEST_LOGS"
"""The environment variable that names the folder of whole logs of failed tests."""


class Logged(Protocol):
    """A server of a test."""

    @property
    def name(self) -> str: ...
    def log(self) -> str: ...
    def discard(self) -> None: ...


_MADE = pytest.StashKey[list[list[Logged]]]()


def servers_of(test: pytest.Item) -> list[Logged]:
    """A new list for servers that are made for a test: if it fails, their logs are in the report.

    They are the caller's to discard.
    """
    made: list[Logged] = []
    test.stash.setdefault(_MADE, []).append(made)
    return made


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """The logs of a failed test's servers are in its report."""
    report = yield
    if report.failed and call.when != "teardown":
        made: list[list[Logged]] = item.stash.get(_MADE, [])
        for server in chain.from_iterable(made):
            if log := server.log():
                tail = "\n".join(log.splitlines()[-LOG_LINES:])
                path = _keep_log(item.nodeid, server.name, log)
                report.sections.append((f"log of {server.name} (whole: {path})", tail))
    return report


def _keep_log(nodeid: str, name: str, log: str) -> Path:
    default = Path(tempfile.gettempdir()) / f"binlog-test-logs-{os.getuid()}"
    folder = Path(os.environ.get(LOGS, default)) / re.sub(r"[^\w.-]+", "-", nodeid)
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}.log"
    path.write_text(log)
    return path


@pytest.fixture
def _binlog_servers(request: pytest.FixtureRequest) -> Iterator[list[Logged]]:
    """What was made last ends first: replicas before the masters that they follow."""
    made = servers_of(request.node)
    yield made
    for server in reversed(made):
        server.discard()


class MakeBinlogMaster(Protocol):
    def __call__(
        self, *, process: bool = False, directory: Path | str | None = None, **options: Any
    ) -> BinlogMaster:
        """A running master; see `binlog_server.testing.running_master`."""


class MakeMariaDBReplica(Protocol):
    def __call__(
        self,
        *flags: str,
        version: str | None = None,
        server_id: int | None = None,
        start: bool = True,
    ) -> MariaDB:
        """A real MariaDB with these flags; see `binlog_server.testing.running_replica`."""


@pytest.fixture
def make_binlog_master(_binlog_servers: list[Logged]) -> MakeBinlogMaster:
    """make_binlog_master(*, process=False, directory=None, **options) -> BinlogMaster, running until the test ends."""
    from binlog_server.testing import new_master

    def make(
        *, process: bool = False, directory: Path | str | None = None, **options: Any
    ) -> BinlogMaster:
        master = new_master(process=process, directory=directory, **options)
        _binlog_servers.append(master)
        return master.start()

    return make


@pytest.fixture
def binlog_master(make_binlog_master: MakeBinlogMaster) -> BinlogMaster:
    """A master in this process: see `BinlogMaster`."""
    return make_binlog_master()


@pytest.fixture
def make_mariadb_replica(_binlog_servers: list[Logged]) -> MakeMariaDBReplica:
    """make_mariadb_replica(*flags, version=None, server_id=None, start=True) -> MariaDB; the test is skipped where
    there is none of that version."""
    from binlog_server.testing.found import NoMariaDB, new_mariadb

    def make(
        *flags: str,
        version: str | None = None,
        server_id: int | None = None,
        start: bool = True,
    ) -> MariaDB:
        try:
            name = f"replica-{len(_binlog_servers)}"
            replica = new_mariadb(*flags, version=version, server_id=server_id, name=name)
        except NoMariaDB as error:
            pytest.skip(str(error))
        _binlog_servers.append(replica)
        return replica.start() if start else replica

    return make


@pytest.fixture
def mariadb_replica(make_mariadb_replica: MakeMariaDBReplica) -> MariaDB:
    """A real MariaDB, which follows nobody yet: `mariadb_replica.follow(binlog_master)`."""
    return make_mariadb_replica()
