"""XA by SQL: each answer is that of a real 11.8, on two connections; replicas get what was committed."""

from __future__ import annotations

import contextlib
import random
from typing import Any, Final

import pymysql
import pytest
from pymysql.cursors import Cursor

from binlog_server.testing.waiting import until
from tests.kit.backends import VERSIONS_BY_TURNS
from tests.kit.fixtures import MakeBinlogServer, MakeMariaDB
from tests.kit.server import BinlogServer

pytestmark = pytest.mark.any_version

USERS: Final = {"root": {"password": "pw", "grants": ["ALL PRIVILEGES"]}}
REPLAY: Final = {**USERS, "replay": {"password": "pw", "grants": ["BINLOG REPLAY"]}}
SCHEMA: Final = (
    "CREATE DATABASE x",
    "CREATE TABLE x.t (a INT PRIMARY KEY, b VARCHAR(20)) CHARACTER SET utf8mb4 COLLATE utf8mb4_general_ci",
    "INSERT INTO x.t VALUES (1, 'one'), (2, 'two')",
)
SOME: Final = 4
"""Of the scenes one in so many is played in a run, others with another seed; all in the slow suite."""
STATES: Final = {
    "none": (),
    "local": ("BEGIN", "INSERT INTO x.t VALUES (100, 'l')"),
    "begun": ("BEGIN",),
    "active": ("XA START 'q'", "INSERT INTO x.t VALUES (100, 'q')"),
    "idle": ("XA START 'q'", "INSERT INTO x.t VALUES (100, 'q')", "XA END 'q'"),
    "prepared": (
        "XA START 'q'",
        "INSERT INTO x.t VALUES (100, 'q')",
        "XA END 'q'",
        "XA PREPARE 'q'",
    ),
    "empty and prepared": ("XA START 'q'", "XA END 'q'", "XA PREPARE 'q'"),
    "no autocommit": ("SET autocommit=0",),
    "no autocommit, rows": ("SET autocommit=0", "INSERT INTO x.t VALUES (100, 'l')"),
    "autocommit comes": ("SET autocommit=0", "XA START 'q'"),
    "idle, a savepoint": ("XA START 'q'", "SAVEPOINT s", "XA END 'q'"),
}
TRIED: Final = (
    "XA START 'q'",
    "XA START 'r'",
    "XA BEGIN 'q' JOIN",
    "XA START 'q' RESUME",
    "XA START 'r' RESUME",
    "XA END 'q'",
    "XA END 'r'",
    "XA END 'q' SUSPEND",
    "XA END 'q' SUSPEND FOR MIGRATE",
    "XA PREPARE 'q'",
    "XA PREPARE 'r'",
    "XA COMMIT 'q'",
    "XA COMMIT 'r'",
    "XA COMMIT 'q' ONE PHASE",
    "XA COMMIT 'r' ONE PHASE",
    "XA ROLLBACK 'q'",
    "XA ROLLBACK 'r'",
    "XA RECOVER",
    "XA RECOVER FORMAT='SQL'",
    "XA RECOVER FORMAT='RAW'",
    "XA RECOVER FORMAT='other'",
    "BEGIN",
    "START TRANSACTION READ ONLY",
    "START TRANSACTION WITH CONSISTENT SNAPSHOT",
    "COMMIT",
    "ROLLBACK",
    "SAVEPOINT s",
    "ROLLBACK TO s",
    "RELEASE SAVEPOINT s",
    "CREATE DATABASE y",
    "TRUNCATE TABLE x.t",
    "UNLOCK TABLES",
    "INSERT INTO x.t VALUES (101, 'z')",
    "UPDATE x.t SET b='u' WHERE a=1",
    "DELETE FROM x.t WHERE a=77",
    "SELECT a, b FROM x.t WHERE a<3",
    "SELECT COUNT(*) FROM information_schema.schemata WHERE schema_name='x'",
    "SELECT 1",
    "SELECT @@in_transaction",
    "SHOW WARNINGS",
    "SHOW TABLES FROM x",
    "SHOW VARIABLES LIKE 'autocommit'",
    "CHECKSUM TABLE x.t",
    "SET @a=1",
    "SET autocommit=0",
    "SET autocommit=1",
    "SET TRANSACTION READ ONLY",
    "DO 1",
    "USE x",
    "FLUSH STATUS",
    "FLUSH TABLES",
    "FLUSH BINARY LOGS",
    "RESET MASTER",
    "PREPARE p FROM 'SELECT 1'",
    "EXECUTE IMMEDIATE 'XA RECOVER'",
    "CREATE USER other@localhost",
    "INSERT INTO nowhere.t VALUES (1)",
)
NAMES: Final = (
    "XA START ''",
    "XA START 'a','b',3",
    "XA START 'a', X'62', 0x10",
    "XA START x'6162'",
    "XA START 0x6162,0x63,2147483647",
    "XA START 'a','b',2147483648",
    "XA START 'a','b',-1",
    "XA START 'a','','1'",
    "XA START 'a' 'b'",
    "XA START 'it''s'",
    "XA START 'a\\nb'",
    'XA START "a""b"',
    "XA START n'a'",
    "XA START _latin1'a'",
    "XA START @a",
    "XA START",
    "XA START a",
    "XA",
    "XA START '" + "x" * 64 + "','" + "y" * 64 + "'",
    "XA START '" + "x" * 65 + "'",
    "XA START 'a','" + "y" * 65 + "'",
    "XA START 'a' JOIN RESUME",
    "XA START 'a' SUSPEND",
    "XA END 'a' RESUME",
    "XA PREPARE 'a' ONE PHASE",
    "XA ROLLBACK 'a' ONE PHASE",
    "XA RECOVER FORMAT=SQL",
    "XA RECOVER CONVERT XID",
    "XA START /* c */ 'a' -- d",
    "XA START 0x616",
    "XA START 0X61",
    "XA START 'a','b',0X10",
    "XA START X '61'",
    "XA START X'616'",
)
BEHIND: Final = (
    "SELECT @@in_transaction",
    "SELECT a, b FROM x.t ORDER BY a",
    "XA RECOVER FORMAT='SQL'",
)


def answer(connection: Any, sql: str) -> tuple[Any, ...]:
    """Rows, or how many were changed, or the error with its state."""
    cursor = connection.cursor(Cursor)
    try:
        cursor.execute(sql)
    except pymysql.MySQLError as error:
        return ("error", *error.args)
    result = cursor._result
    if result.description:
        return ("rows", cursor.fetchall())
    return ("ok", cursor.rowcount, bool(result.server_status & 1))


def clean(server: Any) -> None:
    """When the sessions before have gone, with what they hold: end all prepared ones, and bring the rows back."""
    with server.connect() as connection:
        cursor = connection.cursor(Cursor)

        def is_alone() -> bool:
            cursor.execute("SELECT COUNT(*) FROM information_schema.PROCESSLIST WHERE USER='root'")
            return bool(cursor.fetchall() == ((1,),))

        until(is_alone, "the end of the sessions of the scene")
        cursor.execute("XA RECOVER FORMAT='SQL'")
        for row in cursor.fetchall():
            with contextlib.suppress(
                pymysql.MySQLError
            ):  # an empty one says that it was rolled back
                cursor.execute(f"XA ROLLBACK {row[3]}")
        for text in (
            "DROP DATABASE IF EXISTS y",
            "DROP USER IF EXISTS other@localhost",
            "DELETE FROM x.t",
            "INSERT INTO x.t VALUES (1, 'one'), (2, 'two')",
        ):
            cursor.execute(text)


def scene(server: Any, before: tuple[str, ...], tried: str) -> list[Any]:
    """What one session, then another, is told; then both behind it."""
    found: list[Any] = []
    with server.connect() as one, server.connect() as other:
        for connection in (one, other):
            connection.cursor().execute(
                "SET SESSION innodb_lock_wait_timeout=0, lock_wait_timeout=0"
            )
        found += [answer(one, text) for text in before]
        found.append(answer(one, tried))
        found += [answer(one, text) for text in BEHIND]
        found += [answer(other, text) for text in BEHIND[1:]]
        found.append(answer(other, "XA COMMIT 'q'"))
        found.append(answer(other, "XA START 'q'"))
        found.append(answer(other, "XA END 'q'"))
    with server.connect() as third:
        found += [answer(third, text) for text in BEHIND]
    clean(server)
    return found


def normal(found: list[Any]) -> list[Any]:
    """Without the texts of 1064, which quote what was near."""
    return [(*one[:2], "") if one[:2] == ("error", 1064) else one for one in found]


def scenes(every: int, turn: int = 0) -> list[tuple[tuple[str, ...], str]]:
    """In states of XA everything is tried, else what is about XA; all names, and of the rest one in `every`."""
    found: list[tuple[tuple[str, ...], str]] = [((), tried) for tried in NAMES]
    for state, before in enumerate(STATES.values()):
        is_xa = any(text.startswith("XA") for text in before)
        found += [
            (before, text)
            for number, text in enumerate(TRIED, state)
            if number % every == turn and (is_xa or text.startswith("XA") or not before)
        ]
    return found


def test_some_scenes_are_of_each_state_and_each_statement() -> None:
    for turn in range(SOME):
        for part in (0, 1):
            some, every = ({scene[part] for scene in scenes(*how)} for how in ((SOME, turn), (1,)))
            assert some == every


@pytest.mark.timeout(600)
@pytest.mark.parametrize("every", [SOME, pytest.param(1, marks=pytest.mark.slow)])
def test_answers_are_those_of_a_real_server(
    make_upstream: MakeMariaDB, binlog_server: MakeBinlogServer, rng: random.Random, every: int
) -> None:
    real = make_upstream(version="11.8")
    real.script(*SCHEMA)
    real.script("SET GLOBAL lock_wait_timeout=1")
    ours = binlog_server(users=USERS, local_tables=True, innodb_flush_log_at_trx_commit=2)
    for text in SCHEMA:
        ours.q(text)
    different = {}
    for before, tried in scenes(every, rng.randrange(every)):
        there, here = (normal(scene(server, before, tried)) for server in (real, ours))
        if there != here:
            different[before, tried] = there, here
    assert different == {}


class Coordinator:
    """Prepares, then commits or rolls back, by sessions that come and go; knows what it has decided."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.number = 0
        self.undecided: dict[str, bool] = {}
        """Names, and whether they are to be committed."""

    def prepare(self, cursor: Any) -> None:
        self.number += 1
        name = f"'n{self.number}','b',{self.rng.randrange(3)}"
        first = 1000 * self.number
        cursor.execute(f"XA START {name}")
        for i in range(self.rng.randrange(1, 4)):
            cursor.execute(f"INSERT INTO x.t VALUES ({first + i}, 'row')")
            if self.rng.random() < 0.3:
                cursor.execute(f"UPDATE x.t SET b = 'new' WHERE a = {first + i}")
            if self.rng.random() < 0.3:
                cursor.execute(f"INSERT INTO other.t VALUES ({first + i})")
        if self.rng.random() < 0.2:
            cursor.execute("UPDATE x.t SET b = REPEAT('long', 5) WHERE a >= %s", (first,))
        cursor.execute(f"XA END {name}")
        cursor.execute(f"XA PREPARE {name}")
        self.undecided[name] = self.rng.random() < 0.7

    def decide(self, server: BinlogServer, names: list[str]) -> None:
        """By a session that is none of theirs."""
        with server.connect() as connection, connection.cursor() as cursor:
            for name in names:
                word = "COMMIT" if self.undecided.pop(name) else "ROLLBACK"
                cursor.execute(f"XA {word} {name}")


@pytest.mark.parametrize("version", VERSIONS_BY_TURNS)
def test_replicas_and_restarts(
    version: str, make_replica: MakeMariaDB, binlog_server: MakeBinlogServer, rng: random.Random
) -> None:
    """Rows and text, prepared in one life of the server and ended in another: a replica has what was committed."""
    master = binlog_server(users=REPLAY, local_tables=True)
    for text in SCHEMA:
        master.q(text)
    with master.connect(user="replay") as connection, connection.cursor() as cursor:
        cursor.execute("CREATE DATABASE other")
        cursor.execute("CREATE TABLE other.t (a INT PRIMARY KEY)")
    replica = make_replica("--gtid-strict-mode=1", version=version).follow(master)
    coordinator = Coordinator(rng)
    for end in (master.kill, master.stop, master.kill):
        for _ in range(8):
            with master.connect(user="replay") as connection:
                coordinator.prepare(connection.cursor())
        coordinator.decide(master, rng.sample(sorted(coordinator.undecided), 4))
        end()
        master.start()
        waiting = {row["data"] for row in master.q("XA RECOVER FORMAT='SQL'")}
        assert waiting == {name.removesuffix(",1") for name in coordinator.undecided}
        assert f"Found {len(waiting)} prepared XA transaction(s)" in master.log()
        with master.connect() as connection, connection.cursor() as cursor:
            cursor.execute("SET innodb_lock_wait_timeout=0")
            for name in coordinator.undecided:
                number = int(name.partition(",")[0].strip("'n"))
                with pytest.raises(pymysql.MySQLError) as error:
                    cursor.execute(f"INSERT INTO x.t VALUES ({1000 * number}, 'in the way')")
                assert error.value.args[0] == 1205
    coordinator.decide(master, sorted(coordinator.undecided))
    assert master.q("XA RECOVER") == []
    replica.wait_gtid(master.gtid_binlog_pos, timeout=60)
    assert replica.q("SELECT * FROM x.t ORDER BY a") == master.q("SELECT * FROM x.t ORDER BY a")
    assert replica.q("CHECKSUM TABLE x.t") == master.q("CHECKSUM TABLE x.t")
    assert replica.q("XA RECOVER") == []
    numbers = {row["a"] for row in replica.q("SELECT a FROM other.t")}
    assert numbers, "the text is there, too"
    assert numbers <= {row["a"] for row in replica.q("SELECT a FROM x.t")}
