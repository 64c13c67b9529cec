"""`binlog_format` of a session: what is logged is what a real 11.8 logs, and real replicas end with equal rows."""

from __future__ import annotations

import contextlib
import random
from pathlib import Path
from typing import Any, Final

import pymysql
import pytest
from binlog_protocol.errors import RemoteError
from binlog_protocol.events.event_type import EventType
from binlog_protocol.events.gtid import GtidEvent
from binlog_protocol.events.header import split_events
from binlog_protocol.events.query import QueryEvent
from binlog_protocol.events.statement_context import IntvarEvent, UserVarEvent
from binlog_protocol.events.status_variables import StatusVariables

from binlog_server.testing.mariadb import MariaDB
from tests.binlog_server.lab import ROOT
from tests.binlog_server.tables.scene import lab_with
from tests.integration.test_tables import (
    KINDS,
    REPLICA,
    USERS,
    assert_equal,
    run_together,
    session,
)
from tests.kit.fixtures import MakeBinlogServer, MakeMariaDB
from tests.storage.groups import read_all

SCENES: Final = [
    scene.splitlines()
    for scene in Path(__file__).with_name("statement_format.sql").read_text().split("\n\n")
]
SCHEMA: Final = (
    "CREATE DATABASE shop CHARACTER SET utf8mb4 COLLATE utf8mb4_general_ci",
    "CREATE TABLE shop.t (id INT AUTO_INCREMENT PRIMARY KEY, n INT, v VARCHAR(40), ts TIMESTAMP NULL)",
    "CREATE TABLE shop.u (id INT PRIMARY KEY, n INT UNIQUE)",
    "CREATE TABLE shop.du (id INT PRIMARY KEY, n INT, v VARCHAR(40) DEFAULT uuid())",
    "CREATE TABLE shop.dx (id INT PRIMARY KEY, n INT DEFAULT (id + 1), d DATETIME DEFAULT (now() + interval 1 day))",
    "CREATE TABLE shop.m (id INT AUTO_INCREMENT PRIMARY KEY, n INT UNIQUE) ENGINE=MyISAM",
    "INSERT INTO shop.t (n,v) VALUES (1,'a'),(2,'b'),(3,'c')",
    "INSERT INTO shop.u VALUES (1,1),(2,2)",
)
NAMES: Final = "SET NAMES utf8mb4 COLLATE utf8mb4_general_ci"


def told(event: bytes) -> str:
    """What must be the same in an event, whoever wrote it."""
    flags = int.from_bytes(event[17:19], "little")
    match event[4]:
        case EventType.GTID:
            return f"GTID {GtidEvent.parse(event).flags2:02x}"
        case EventType.QUERY:
            query = QueryEvent.parse(event)
            status = StatusVariables.parse(query.status_variables)
            return (
                f"QUERY {flags:x} {query.error_code} {query.database!r} {query.text!r} {status.flags!r} "
                f"{status.auto_increment} {status.time_zone or b'SYSTEM'!r} {status.sql_mode:x}"
            )
        case EventType.INTVAR:
            return str(IntvarEvent.parse(event))
        case EventType.USER_VAR:
            variable = UserVarEvent.parse(event)
            return f"USER_VAR {variable.name!r} {variable.value!r}"
        case kind:
            return f"{EventType(kind).name} {flags:x}"


def logged(upstream: MariaDB, file: str) -> list[str]:
    """The events of one of its files, but for those that every file has."""
    raw = upstream.copy_of(file).read_bytes()[4:]
    aside = (EventType.FORMAT_DESCRIPTION, EventType.GTID_LIST, EventType.BINLOG_CHECKPOINT)
    found: list[str] = []
    head = ""
    for event in split_events(raw):
        if event[4] in (*aside, EventType.ROTATE, EventType.STOP):
            continue
        found.append(told(event))
        head = found[-1] if event[4] == EventType.GTID else head
        if head == "GTID 0c" and "'COMMIT'" in found[-1]:
            found[-1] = "XID 0"  # of a text that has changed nothing
    return found


@pytest.mark.any_version
@pytest.mark.parametrize("number", range(len(SCENES)))
async def test_the_log_is_that_of_a_real_server(
    backend: object, make_upstream: MakeMariaDB, number: int
) -> None:
    real = make_upstream("--binlog-checksum=NONE", version="11.8")
    real.script(*SCHEMA, "FLUSH BINARY LOGS")
    file = real.q("SHOW MASTER STATUS")[0]["File"]
    async with lab_with(*SCHEMA, users=ROOT) as lab:
        lab.engine.sync()
        before = sum(1 for _ in read_all(lab.engine))
        ours = await lab.root()
        with real.connect(autocommit=True) as connection, connection.cursor() as theirs:
            theirs.execute("SET sql_mode=DEFAULT")
            for text in ("USE shop", NAMES):
                theirs.execute(text)
                await ours.query(text)
            different = []
            for text in SCENES[number]:
                errors: list[object] = [None, None]
                try:
                    theirs.execute(text)
                except pymysql.MySQLError as error:
                    errors[0] = str(error.args[0])
                try:
                    await ours.query(text)
                except RemoteError as error:
                    errors[1] = str(error.errno)
                if not text.startswith(("INSERT", "UPDATE", "DELETE", "REPLACE")):
                    found = mine = []  # what is told of the statement before
                else:
                    theirs.execute("SHOW WARNINGS")
                    told_there = [[str(row["Code"]), row["Message"]] for row in theirs.fetchall()]
                    found = sorted(row for row in told_there if row[0] != "1030")
                    mine = sorted(row[1:] for row in await ours.query("SHOW WARNINGS"))
                if errors[0] != errors[1] or found != mine:
                    different.append((text, errors, found, mine))
        lab.engine.sync()
        found_events = [
            told(event)
            for payload in list(read_all(lab.engine))[before:]
            for event in split_events(payload)
        ]
    real.script("FLUSH BINARY LOGS")
    assert not different
    assert found_events == logged(real, file)


WITH_CONTEXT: Final = (
    "SET binlog_format=STATEMENT",
    "SET STATEMENT binlog_format=STATEMENT FOR INSERT INTO u VALUES (77,77)",
    "SET @a=1.5, @b='x\\'y', @c=NULL",
    "PREPARE p FROM 'INSERT INTO t (n,v) VALUES (?,?),(?,@b)'",
    "EXECUTE p USING @a,@b,@c",
    "SET @big=18446744073709551615, @neg=-5, @f=1e10, @d=1234567890.123, @x=x'00ff'",
    "UPDATE t SET v=LEFT(CONCAT(@big,'/',@neg,'/',@f,'/',@d,'/',HEX(@x)),40) WHERE id=1",
    "SET STATEMENT sql_mode='' FOR INSERT INTO t (n,v) VALUES ('q',REPEAT('long',20))",
    "SET STATEMENT sql_mode='ANSI_QUOTES,NO_BACKSLASH_ESCAPES' FOR INSERT INTO t (n,\"v\") VALUES (1,'a\\')",
    "SET time_zone='+05:00'",
    "INSERT INTO t (n,ts,v) VALUES (1,NOW(),NOW(6))",
    "SET timestamp=1700000000.123456",
    "INSERT INTO t (n,ts,v) VALUES (1,'2024-01-01 00:00:00',NOW(6))",
    "SET timestamp=DEFAULT, time_zone=DEFAULT",
    "UPDATE t SET n=RAND()*100000 WHERE id<3",
    "INSERT INTO t (v) VALUES (CONCAT(CONNECTION_ID(),DATABASE(),@@lc_time_names)), (UPPER('äöü'))",
    "INSERT INTO t (v) SELECT CONCAT(LEFT(v,30),'!') FROM t WHERE id<3 ORDER BY id /* a comment */ ;",
    "INSERT INTO m (n) VALUES (1),(2)",
    "UPDATE m SET n=n+10 WHERE id=1",
    "REPLACE INTO m (id,n) VALUES (1,12),(9,3)",
    "INSERT INTO m (n) VALUES (50),(3),(60)",  # fails behind its first row
    "SET auto_increment_increment=7, auto_increment_offset=3",
    "INSERT INTO t (n) VALUES (1),(2)",
    "INSERT INTO m (n) SELECT n+100 FROM u ORDER BY n",
    "INSERT INTO t (n) VALUES (LAST_INSERT_ID())",
    "INSERT INTO t (n) VALUES (7) RETURNING id",
    "BEGIN",
    "INSERT INTO t (n) VALUES (5)",
    "CREATE OR REPLACE TABLE u LIKE t",
    "INSERT INTO u SELECT * FROM t",
    "CREATE TABLE w LIKE m",
    "INSERT INTO w (n) VALUES (1)",
    "INSERT INTO dx (id) VALUES (1), (2)",
)


@pytest.mark.any_version
def test_what_goes_along_with_a_text(
    backend: object, binlog_server: MakeBinlogServer, make_replica: MakeMariaDB
) -> None:
    master = binlog_server(users=USERS, local_tables=True)
    replicas = [make_replica(*REPLICA, version=version).follow(master) for version in KINDS]
    failed = []
    with session(master) as cursor:
        for text in (*SCHEMA, "USE shop", *WITH_CONTEXT):
            try:
                cursor.execute(text)
            except pymysql.MySQLError as error:
                failed.append(error.args[0])
    assert failed == [1062]
    assert_equal(master, replicas, ("shop.t", "shop.u", "shop.m", "shop.w", "shop.dx"))


class Writer:
    """Random statements whose text says what they do, whoever executes it; in each format."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.done = 0

    def statement(self, table: str) -> str:
        rng = self.rng
        some, few = rng.randrange(1, 60), rng.randrange(1, 8)
        given = rng.choice(("NULL", "NULL", "NULL", str(some + 100)))
        # One on tables of both kinds is unsafe inside of a transaction, as note 1592 says.
        other = "m" if table == "m" else rng.choice(("a", "b"))
        lists = ", ".join(
            f"({rng.choice(('NULL', 'NULL', given))}, {rng.randrange(99)})" for _ in range(few)
        )
        return rng.choice(
            (
                f"INSERT INTO {table} (n) VALUES ({some})",
                f"INSERT INTO {table} (n, v) VALUES ({some}, 'a'), ({few}, 'b'), (LAST_INSERT_ID(), 'c')",
                f"INSERT INTO {table} (id, n) VALUES {lists}",
                f"INSERT IGNORE INTO {table} (id, n) VALUES (NULL, {few}), ({some}, {some}), (NULL, {some})",
                f"REPLACE INTO {table} (id, n) VALUES ({some}, {few}), (NULL, {some})",
                f"INSERT INTO {table} (id, n) VALUES (NULL, {few}), ({some}, 1), (NULL, 2) "
                f"ON DUPLICATE KEY UPDATE n=n+{few}",
                f"INSERT INTO {table} (n, v) SELECT n+{few}, v FROM {other} WHERE id<{few * 3} ORDER BY id",
                f"INSERT INTO {table} (id, n) SELECT MAX(id)+1, COUNT(*) FROM {other}",
                f"UPDATE {table} SET n=n+{few}, at=NOW(6) WHERE id>{some}",
                f"UPDATE {table} SET n=(SELECT COUNT(*) FROM {other}) WHERE id<{few}",
                f"UPDATE {table} SET n=n+1, v=CONCAT(CONNECTION_ID()-CONNECTION_ID(), @v) "
                f"WHERE n BETWEEN {few} AND {some}",
                f"UPDATE {table} SET v=@v WHERE id IN (SELECT n FROM {other})",
                f"UPDATE {table} SET n=FLOOR(RAND()*1000) WHERE id={few}",
                f"DELETE FROM {table} WHERE id>{some + 30} ORDER BY id LIMIT {few}",
                f"DELETE FROM {table} WHERE n={few}",
                f"UPDATE {table} SET n=n+{few} ORDER BY id DESC LIMIT {few}",
                f"SET @v=CONCAT('v', {some})",
                f"SET auto_increment_increment={rng.choice((1, 1, 5))}, auto_increment_offset=1",
            )
        )

    def one(self, cursor: Any) -> None:
        try:
            cursor.execute(self.statement(self.rng.choice(("a", "a", "b", "b", "m"))))
            self.done += 1
        except pymysql.MySQLError as error:
            if error.args[0] not in (1062, 1205, 1213, 1048, 167):
                raise

    def run(self, cursor: Any, statements: int) -> None:
        """So many statements, in transactions of some."""
        rng = self.rng
        cursor.execute("USE shop")
        while statements > 0:
            cursor.execute("SET binlog_format=" + rng.choice(("STATEMENT", "MIXED", "ROW")))
            is_alone = rng.random() < 0.4
            if not is_alone:
                cursor.execute("BEGIN")
            for _ in range(1 if is_alone else rng.randrange(1, 5)):
                statements -= 1
                if not is_alone and rng.random() < 0.2:
                    cursor.execute("SAVEPOINT s")
                    self.one(cursor)
                    with contextlib.suppress(pymysql.MySQLError):  # a deadlock has ended it
                        cursor.execute("ROLLBACK TO s")
                self.one(cursor)
            if not is_alone:
                cursor.execute(rng.choice(("COMMIT", "COMMIT", "COMMIT", "ROLLBACK")))


@pytest.mark.any_version
def test_sessions_in_all_formats_leave_replicas_with_equal_rows(
    backend: object, binlog_server: MakeBinlogServer, make_replica: MakeMariaDB, rng: random.Random
) -> None:
    master = binlog_server(users=USERS, local_tables=True)
    with session(master) as cursor:
        cursor.execute("CREATE DATABASE shop")
        cursor.execute("SET GLOBAL innodb_lock_wait_timeout=2")
        for name, engine in (("a", "InnoDB"), ("b", "InnoDB"), ("m", "MyISAM")):
            cursor.execute(
                f"CREATE TABLE shop.{name} (id INT AUTO_INCREMENT PRIMARY KEY, n INT, v VARCHAR(40), "
                f"at TIMESTAMP(6) NULL DEFAULT NULL) ENGINE={engine}"
            )
    replicas = [make_replica(*REPLICA, version=version).follow(master) for version in KINDS]
    writers = [Writer(random.Random(rng.getrandbits(64))) for _ in range(3)]
    run_together(master, writers, 120)
    assert sum(writer.done for writer in writers) > 100
    assert_equal(master, replicas, ("shop.a", "shop.b", "shop.m"))
