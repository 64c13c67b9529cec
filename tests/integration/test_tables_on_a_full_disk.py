"""Tables on a full disk: statements wait for room, reads and rollbacks do not; with room all goes on, killed or not."""

from __future__ import annotations

import contextlib
import re
import threading
import urllib.request
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import pymysql
import pytest

from binlog_server.testing import ports
from binlog_server.testing.mariadb import MariaDB
from binlog_server.testing.waiting import until
from tests.integration.test_tables import REPLICA, USERS
from tests.kit.bad_disk import SmallDisk
from tests.kit.faults import Faults
from tests.kit.fixtures import MakeBinlogServer, MakeMariaDB, MakeSmallDisk
from tests.kit.server import BinlogServer

pytestmark = pytest.mark.any_version
OPTIONS: dict[str, Any] = {
    "max_binlog_size": 1 << 20,
    "innodb_log_file_size": 4 << 20,
    "users": USERS,
    "local_tables": True,
}
LEFT = 3 << 20
ROW = 50_000
SMALL_ROW = 16_000
SMALL_ROWS = 100
"""More than is left for small groups where large ones wait."""
LARGE = tuple(f"INSERT INTO t VALUES ({n}, '{'y' * 900_000}')" for n in range(1001, 1007))
"""More than the log has room for."""
IN_A_TRANSACTION = (
    *("BEGIN", "UPDATE u SET n = n + 1 WHERE id = 3", "SAVEPOINT s"),
    *("UPDATE u SET n = n + 1 WHERE id = 4", "ROLLBACK TO s", "SELECT * FROM u", "ROLLBACK"),
)


@dataclass
class Session:
    """Statements that are said by a thread, one behind the other. `errors` by their numbers; `done` is how many have an
    answer."""

    server: BinlogServer
    statements: tuple[str, ...]
    errors: list[int] = field(default_factory=list)
    done: int = 0

    def __post_init__(self) -> None:
        self._open = contextlib.ExitStack()
        options = {"autocommit": True, "read_timeout": 120, "database": "shop"}
        self._connection = self._open.enter_context(self.server.connect(**options))
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    @property
    def id(self) -> int:
        return int(self._connection.thread_id())

    def _run(self) -> None:
        with contextlib.suppress(ConnectionError), self._connection.cursor() as cursor:
            for statement in self.statements:
                try:
                    cursor.execute(statement)
                except pymysql.MySQLError as error:
                    self.errors.append(error.args[0])
                self.done += 1

    @property
    def is_over(self) -> bool:
        return self.done == len(self.statements)

    def end(self) -> list[int]:
        """Its errors, when it is over."""
        self._thread.join(60)
        assert not self._thread.is_alive(), self.statements[self.done][:100]
        with contextlib.suppress(pymysql.MySQLError):
            self._open.close()
        return self.errors


@pytest.fixture
def disk(small_disk: MakeSmallDisk) -> SmallDisk:
    return small_disk(size_mb=96)


@pytest.fixture
def server(disk: SmallDisk, binlog_server: MakeBinlogServer) -> BinlogServer:
    """With tables, and its metrics."""
    server = binlog_server(
        directory=disk.path / "data",
        faults=Faults(),
        metrics_listen=f"127.0.0.1:{ports.lease()}",
        **OPTIONS,
    )
    server.q("CREATE DATABASE shop")
    server.q("CREATE TABLE shop.t (id INT PRIMARY KEY, v LONGTEXT)")
    server.q("CREATE TABLE shop.u (id INT PRIMARY KEY, n INT)")
    server.q("CREATE TABLE shop.f (id INT PRIMARY KEY, v LONGTEXT)")
    server.q("CREATE TABLE shop.w (id INT PRIMARY KEY)")
    server.q("INSERT INTO shop.w VALUES (1)")
    server.q("INSERT INTO shop.u VALUES (1, 0), (2, 0), (3, 0), (4, 0), (5, 0)")
    return server


def filled(server: BinlogServer, disk: SmallDisk) -> Session:
    """Who fills a table until there is no room for commits."""
    disk.fill(leave=LEFT)
    rows = (f"INSERT INTO t VALUES ({n}, '{'x' * ROW}')" for n in range(1, 201))
    writer = Session(server, tuple(rows))
    until(lambda: "Waiting" in server.log(), "notice of the full disk")
    disk.fill()
    until(lambda: room_wait_s(server) > 1, "commits that wait")
    return writer


def room_wait_s(server: BinlogServer) -> float:
    with urllib.request.urlopen(f"http://{server.options['metrics_listen']}/metrics") as answer:
        found = re.search(rb"^binlog_server_room_wait_seconds (\S+)", answer.read(), re.MULTILINE)
    assert found is not None
    return float(found[1])


def says(server: BinlogServer, session: Session) -> str | None:
    """The statement that has no answer yet."""
    shown: dict[int, str | None] = {row["Id"]: row["Info"] for row in server.q("SHOW PROCESSLIST")}
    return shown[session.id]


def is_at_its_last(server: BinlogServer, session: Session) -> bool:
    """Whether its last statement is being answered."""
    return says(server, session) == session.statements[-1]


def fills_what_is_left(server: BinlogServer) -> Session:
    """Who fills the room that is left for small commits where a large one waits already, until it waits, too."""
    rows = (f"INSERT INTO f VALUES ({n}, '{'z' * SMALL_ROW}')" for n in range(1, SMALL_ROWS + 1))
    small = Session(server, tuple(rows))
    until(lambda: waits_for_room(server, small), "a small commit that waits")
    return small


def waits_for_room(server: BinlogServer, session: Session) -> bool:
    """Whether a statement of it has waited for seconds."""
    shown = {row["Id"]: row for row in server.q("SHOW PROCESSLIST")}[session.id]
    return bool(shown["State"] == "Waiting for someone to free space" and shown["Time"] >= 3)


def require_equal(server: BinlogServer, replica: MariaDB) -> None:
    replica.wait_gtid(server.gtid_binlog_pos)
    names = [f"shop.{next(iter(row.values()))}" for row in server.q("SHOW TABLES FROM shop")]
    listed = f"CHECKSUM TABLE {', '.join(names)}"
    assert server.q(listed) == replica.q(listed)


def test_statements_wait_for_room(
    disk: SmallDisk, server: BinlogServer, make_replica: MakeMariaDB
) -> None:
    """DML, DDL, XA PREPARE, a transaction that is larger than the log; KILL QUERY ends the wait, with all undone."""
    replica = make_replica(*REPLICA).follow(server)
    writer = filled(server, disk)
    reader = Session(server, IN_A_TRANSACTION)
    until(lambda: reader.is_over, "reads and rollbacks")
    assert reader.end() == []
    small = fills_what_is_left(server)
    waiting = {
        "update": Session(server, ("UPDATE u SET n = n + 1 WHERE id = 1",)),
        "select": Session(server, ("CREATE TABLE c (PRIMARY KEY (id)) SELECT id, n FROM u",)),
        "alter": Session(server, ("ALTER TABLE w ADD m INT DEFAULT 5",)),
        "xa": Session(server, (*_xa("x", 2), "XA COMMIT 'x'")),
        "large": Session(server, ("BEGIN", *LARGE, "COMMIT")),
    }
    killed = {
        "update": Session(server, ("UPDATE u SET n = 7 WHERE id = 3",)),
        "create": Session(server, ("CREATE TABLE d (id INT PRIMARY KEY)",)),
        "select": Session(server, ("CREATE TABLE e (PRIMARY KEY (id)) SELECT id, n FROM u",)),
        "truncate": Session(server, ("TRUNCATE t",)),
        "xa": Session(server, _xa("y", 4)),
    }
    for one in killed.values():
        until(partial(is_at_its_last, server, one), "the last statement")
        while not one.errors:
            server.q(f"KILL QUERY {one.id}")
    assert not [one for one in waiting.values() if one.is_over]
    disk.empty()
    assert [one.end() for one in waiting.values()] == [[]] * len(waiting)
    assert [one.end() for one in killed.values()] == [[1317]] * len(killed)
    assert [one.end() for one in (writer, small)] == [[]] * 2
    assert server.q("SELECT n FROM shop.u ORDER BY id") == [{"n": n} for n in (1, 1, 0, 0, 0)]
    assert server.q("SELECT COUNT(*) AS c FROM shop.t") == [{"c": 200 + len(LARGE)}]
    assert server.q("SELECT * FROM shop.w") == [{"id": 1, "m": 5}]
    assert {next(iter(row.values())) for row in server.q("SHOW TABLES FROM shop")} == {*"tuwcf"}
    require_equal(server, replica)


def test_killed_on_a_full_disk(
    disk: SmallDisk, server: BinlogServer, make_replica: MakeMariaDB
) -> None:
    """What was told is there, and what was open is undone when there is room; its rows are locked until then."""
    prepared = Session(server, _xa("x", 2))
    assert prepared.end() == []
    opened = Session(server, ("BEGIN", "UPDATE u SET n = 9 WHERE id = 1"))
    until(lambda: opened.is_over, "an open transaction")
    server.q("INSERT INTO shop.u VALUES (6, 0)")  # the open change is durable with it
    writer = filled(server, disk)
    large = Session(server, ("BEGIN", *LARGE))
    told = writer.done
    server.kill()
    for one in (opened, writer, large):
        one.end()
    disk.fill()
    server.start()
    rows = server.q("SELECT n FROM shop.u ORDER BY id")
    assert rows == [{"n": 0}] * 6
    there = server.q("SELECT COUNT(*) AS c, MAX(id) AS m FROM shop.t")[0]
    assert there["c"] == there["m"]
    assert told <= there["c"] <= told + 1 + writer.done
    assert [row["data"] for row in server.q("XA RECOVER")] == [b"x"]
    disk.empty()
    replica = make_replica(*REPLICA).follow(server)
    for statement in ("UPDATE u SET n = n + 1 WHERE id = 1", "XA COMMIT 'x'", *LARGE):
        assert Session(server, (statement,)).end() == []
    assert server.q("SELECT n FROM shop.u ORDER BY id") == [{"n": n} for n in (1, 1, 0, 0, 0, 0)]
    require_equal(server, replica)


def _xa(name: str, key: int) -> tuple[str, ...]:
    change = f"UPDATE u SET n = n + 1 WHERE id = {key}"
    return f"XA START '{name}'", change, f"XA END '{name}'", f"XA PREPARE '{name}'"
