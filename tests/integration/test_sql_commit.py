"""SQL that is sent to our server reaches real replicas: they end with what a MariaDB that ran it itself has."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import pymysql
import pytest
from binlog_protocol.events.collation_names import NUMBERS

from binlog_server.testing.mariadb import MariaDB
from tests.kit import forks
from tests.kit.backends import VERSIONS_BY_TURNS
from tests.kit.fixtures import MakeBinlogServer, MakeMariaDB
from tests.kit.server import BinlogServer

USER, PASSWORD = "tester", "secret"


@pytest.fixture
def master(binlog_server: MakeBinlogServer) -> BinlogServer:
    """Ours, with an account that may commit."""
    server = binlog_server(start=False)
    server.directory.mkdir(parents=True)
    what = ("user", "add", USER, "--grant", "BINLOG REPLAY", "--directory", server.directory)
    forks.run(*what, said=PASSWORD + "\n").check_returncode()
    return server.start()


@contextlib.contextmanager
def session(master: BinlogServer, **options: Any) -> Iterator[Any]:
    given = {"user": USER, "password": PASSWORD, "charset": "utf8mb4", **options}
    with master.connect(**given) as connection, connection.cursor() as cursor:
        yield cursor


def run(master: BinlogServer, *texts: str | bytes, **options: Any) -> None:
    with session(master, **options) as cursor:
        for text in texts:
            cursor.execute(text)


SCHEMA = (
    "CREATE DATABASE d",
    "USE d",
    "CREATE TABLE t (id INT PRIMARY KEY AUTO_INCREMENT, a VARCHAR(200) CHARACTER SET utf8mb4, "
    "b VARBINARY(200), at TIMESTAMP(6) NULL, ts TIMESTAMP) ENGINE=InnoDB",
)

HISTORY: list[str | bytes] = [
    *SCHEMA,
    "INSERT INTO t (a) VALUES ('größe 日本 😀')",
    "REPLACE INTO t (id, a) VALUES (7, 'seven')",
    "BEGIN",
    "INSERT INTO t (a) VALUES ('one'), ('two')",
    "SAVEPOINT s",
    "DELETE FROM t",
    "ROLLBACK TO SAVEPOINT s",
    "UPDATE t SET b=x'00ff' WHERE id=7",
    "COMMIT",
    "BEGIN",
    "DELETE FROM t",
    "ROLLBACK",
    "SET autocommit=0",
    "INSERT INTO t (a) VALUES ('three')",
    "INSERT INTO t (a) VALUES ('four')",
    "COMMIT",
    "SET autocommit=1",
    "SET NAMES latin1",
    b"INSERT INTO t (a, b) VALUES ('gr\xf6\xdfe', '\xe4\x80')",
    "SET NAMES cp1251",
    b"INSERT INTO t (a, b) VALUES ('\xef\xf0\xe8', '\xef')",
    "SET NAMES gbk",
    b"INSERT INTO t (a) VALUES ('\xb5\x5c')",
    "SET NAMES binary",
    b"INSERT INTO t (b) VALUES ('\x00\xff\xfe\\'')",
    "SET NAMES utf8mb4",
    "SET timestamp=1700000000.125",
    "INSERT INTO t (a, at) VALUES (NOW(6), NOW(6))",
    "SET timestamp=DEFAULT",
    "SET lc_time_names='de_DE'",
    "INSERT INTO t (a) VALUES (DATE_FORMAT('2026-03-01', '%M %W'))",
    "SET lc_time_names=DEFAULT, sql_if_exists=ON",
    "DROP TABLE no_such_table",
    "SET sql_if_exists=OFF, collation_server='latin1_bin'",
    "CREATE DATABASE german",
    "CREATE TABLE german.t (a VARCHAR(9))",
    "SET collation_server=DEFAULT",
    "SET time_zone='+03:00'",
    "INSERT INTO t (a, at) VALUES ('zone', '2026-01-01 12:00:00')",
    "SET time_zone='SYSTEM'",
    "SET insert_id=1000",
    "INSERT INTO t (a) VALUES ('a thousand')",
    "SET last_insert_id=77",
    "INSERT INTO t (a) VALUES (LAST_INSERT_ID())",
    "SET rand_seed1=11, rand_seed2=22",
    "INSERT INTO t (a) VALUES (RAND())",
    "SET @x='user variable', @n=-5",
    "INSERT INTO t (a, b) VALUES (@x, @n)",
    "SET auto_increment_increment=10, auto_increment_offset=3",
    "INSERT INTO t (a) VALUES ('i'), ('j'), ('k')",
    "SET auto_increment_increment=1, auto_increment_offset=1",
    "SET sql_mode='NO_BACKSLASH_ESCAPES,PIPES_AS_CONCAT'",
    r"INSERT INTO t (a) VALUES ('a\' || 'b;c');",
    "SET sql_mode='STRICT_TRANS_TABLES'",
    "CREATE TABLE parent (id INT PRIMARY KEY) ENGINE=InnoDB",
    "CREATE TABLE child (id INT, FOREIGN KEY (id) REFERENCES parent (id)) ENGINE=InnoDB",
    "SET foreign_key_checks=0",
    "INSERT INTO child VALUES (5)",
    "SET foreign_key_checks=1",
    "CREATE PROCEDURE p() BEGIN INSERT INTO t (a) VALUES ('p;'); SELECT 1; END",
    "CREATE TRIGGER tr AFTER INSERT ON parent FOR EACH ROW INSERT INTO t (a) VALUES ('trigger')",
    "INSERT INTO parent VALUES (1)",
    "CREATE TABLE copied SELECT id, a, @x AS x FROM t",
    "ALTER TABLE t ADD COLUMN c INT DEFAULT 5, COMMENT='größer'",
    "/*!40000 ALTER TABLE t DISABLE KEYS */;",
    "CREATE VIEW v AS SELECT id FROM t",
    "ANALYZE TABLE t",
    "CREATE USER somebody@localhost IDENTIFIED BY 'x'",
    "GRANT SELECT ON d.* TO somebody@localhost",
    "TRUNCATE TABLE child",
    "CREATE DATABASE `größe`",
    "USE `größe`",
    "CREATE TABLE `t;1` (a INT)",
    "INSERT INTO `t;1` VALUES (1)",
    "DROP DATABASE `größe`",
]


def content(server: MariaDB) -> list[Any]:
    asked = (
        "SELECT id, HEX(a) a, HEX(b) b, at, ts IS NULL n, c FROM d.t ORDER BY id",
        "SELECT * FROM d.parent",
        "SELECT * FROM d.child",
        "SELECT id, HEX(a) a, HEX(x) x FROM d.copied ORDER BY id",
        "SELECT table_schema, table_name, table_type FROM information_schema.tables "
        "WHERE table_schema IN ('d', 'größe') ORDER BY 1, 2",
        "SELECT routine_name, routine_definition FROM information_schema.routines WHERE routine_schema='d'",
        "SELECT trigger_name, action_statement FROM information_schema.triggers WHERE trigger_schema='d'",
        "SELECT user, host FROM mysql.user WHERE user='somebody'",
        "SHOW CREATE TABLE d.t",
    )
    return [server.q(sql) for sql in asked]


@pytest.mark.any_version
def test_history(backend: object, master: BinlogServer, make_replica: MakeMariaDB) -> None:
    """The same statements, run by a MariaDB of the same version itself."""
    replica = make_replica().follow(master)
    run(master, *HISTORY)
    replica.wait_gtid(master.gtid_binlog_pos)
    alone = make_replica("--character-set-server=utf8mb4", "--collation-server=utf8mb4_general_ci")
    with alone.connect(charset="utf8mb4", autocommit=None) as connection:
        cursor = connection.cursor()
        cursor.execute("SET sql_mode='', collation_connection=utf8mb4_general_ci")
        cursor.execute("/*M!110201 SET character_set_collations='' */")
        for text in HISTORY:
            cursor.execute(text)
    found, expected = content(replica), content(alone)
    for mine, theirs in zip(found, expected, strict=True):
        assert mine == theirs


@pytest.mark.any_version
def test_large_transactions(
    backend: object, master: BinlogServer, make_replica: MakeMariaDB
) -> None:
    replica = make_replica("--max-allowed-packet=64M").follow(master)
    run(
        master,
        "CREATE DATABASE d",
        "CREATE TABLE d.t (id INT PRIMARY KEY, a LONGTEXT) ENGINE=InnoDB",
    )
    with session(master) as cursor:
        cursor.execute("BEGIN")
        for number in range(12):
            cursor.execute(f"INSERT INTO d.t VALUES ({number}, '{str(number % 10) * 1_500_000}')")
            if number == 5:
                cursor.execute("SAVEPOINT half")
        cursor.execute("ROLLBACK TO half")
        cursor.execute(f"INSERT INTO d.t VALUES (100, '{'x' * 12_000_000}')")
        cursor.execute("COMMIT")
        cursor.execute(f"INSERT INTO d.t VALUES (101, '{'y' * 12_000_000}')")
    replica.wait_gtid(master.gtid_binlog_pos, timeout=60)
    rows = replica.q("SELECT id, LENGTH(a) n, LEFT(a, 1) c FROM d.t ORDER BY id")
    assert [(row["id"], row["n"], row["c"]) for row in rows] == [
        *((n, 1_500_000, str(n)) for n in range(6)),
        (100, 12_000_000, "x"),
        (101, 12_000_000, "y"),
    ]


@pytest.mark.by_turns(3)
@pytest.mark.parametrize("setting", [0, 1, 2])
def test_a_replica_waits_for_no_flush(
    setting: int, make_replica: MakeMariaDB, master: BinlogServer
) -> None:
    # The flush once a second, for which a commit without a sync would wait, does not come here.
    master.options["innodb_flush_log_at_timeout"] = 2700
    replica = make_replica().follow(master.restart())
    run(master, *SCHEMA, f"SET GLOBAL innodb_flush_log_at_trx_commit={setting}")
    replica.wait_gtid(master.gtid_binlog_pos)
    with session(master) as cursor, replica.connect() as connection:
        applied = connection.cursor()
        for _ in range(10):
            cursor.execute("INSERT INTO d.t (a) VALUES ('x')")
            applied.execute(f"SELECT MASTER_GTID_WAIT('{master.gtid_binlog_pos}', 30) AS came")
            assert applied.fetchall() == [{"came": 0}]


def test_transactions_survive_a_kill(master: BinlogServer, make_replica: MakeMariaDB) -> None:
    """What was answered is there, what was open is not."""
    run(master, *SCHEMA)
    with session(master) as cursor, session(master) as other:
        other.execute("BEGIN")
        other.execute("INSERT INTO d.t (a) VALUES ('open')")
        for number in range(50):
            cursor.execute(f"INSERT INTO d.t (id, a) VALUES ({number + 1}, 'x')")
        master.kill()
    master.start()
    run(master, "INSERT INTO d.t (id, a) VALUES (100, 'after')")
    replica = make_replica().follow(master)
    replica.wait_gtid(master.gtid_binlog_pos)
    assert replica.q("SELECT COUNT(*) n, SUM(a='open') o FROM d.t") == [{"n": 51, "o": 0}]
    assert replica.gtid_slave_pos == f"0-{master.q('SELECT @@server_id s')[0]['s']}-53"


def test_relay_with_a_domain_of_its_own(
    make_upstream: MakeMariaDB, make_replica: MakeMariaDB, binlog_server: MakeBinlogServer
) -> None:
    upstream = make_upstream()
    server = binlog_server(upstream=upstream, server_id=77, start=False)
    server.directory.mkdir(parents=True)
    what = ("user", "add", USER, "--grant", "BINLOG REPLAY", "--directory", server.directory)
    forks.run(*what, said=PASSWORD + "\n").check_returncode()
    server.start()
    replica = make_replica().follow(server)
    upstream.script(*SCHEMA)
    replica.wait_gtid(upstream.gtid_binlog_pos)
    with session(server) as cursor:
        with pytest.raises(pymysql.Error, match=r"1290.*--read-only"):
            cursor.execute("INSERT INTO d.t (a) VALUES ('x')")
        cursor.execute("SET GLOBAL read_only=0")
        with pytest.raises(pymysql.Error, match=r"1290.*gtid_domain_id"):
            cursor.execute("INSERT INTO d.t (a) VALUES ('x')")
        cursor.execute("SET SESSION gtid_domain_id=5")
        cursor.execute("INSERT INTO d.t (a) VALUES ('from the relay')")
    upstream.script("INSERT INTO d.t (id, a) VALUES (50, 'from the upstream')")
    server.restart()
    upstream.script("INSERT INTO d.t (id, a) VALUES (51, 'after a restart')")
    replica.wait_gtid(f"{upstream.gtid_binlog_pos},5-77-1")
    assert replica.q("SELECT COUNT(*) n FROM d.t") == [{"n": 3}]


@pytest.mark.any_version
def test_numbers_of_collations(backend: object, make_replica: MakeMariaDB) -> None:
    rows = make_replica().q(
        "SELECT DISTINCT id, full_collation_name n FROM information_schema.collation_character_set_applicability"
    )
    assert {row["n"]: row["id"] for row in rows if row["n"] in NUMBERS} == NUMBERS


@pytest.mark.parametrize("version", VERSIONS_BY_TURNS)
def test_ddl_without_autocommit(
    master: BinlogServer, make_replica: MakeMariaDB, version: str
) -> None:
    """What follows it is committed on the replica, too: its position moves, and a restart repeats nothing."""
    run(master, *SCHEMA)
    replica = make_replica(version=version).follow(master)
    texts = (
        "USE d",
        "SET autocommit=0",
        "CREATE TABLE other (a INT)",
        "INSERT INTO t (id) VALUES (1)",
    )
    run(master, *texts, "COMMIT", "TRUNCATE other", "INSERT INTO t (id) VALUES (2)", "COMMIT")
    replica.wait_gtid(master.gtid_binlog_pos)
    replica.q("STOP SLAVE")
    replica.q("START SLAVE")
    run(master, "INSERT INTO d.t (id) VALUES (3)")
    replica.wait_gtid(master.gtid_binlog_pos)
    assert [row["id"] for row in replica.q("SELECT id FROM d.t ORDER BY id")] == [1, 2, 3]
