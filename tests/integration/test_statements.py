"""What can be in a binlog: formats, DDL, XA, engines; the replicas end with the same objects."""

from __future__ import annotations

from collections.abc import Sequence

import pymysql
import pytest
from binlog_protocol.events.gtid import GtidEvent, GtidExtraFlags

from binlog_server.testing.mariadb import MariaDB
from binlog_server.testing.waiting import until
from tests.integration.load import assert_equal
from tests.integration.raw_client import all_events
from tests.kit.backends import Backend
from tests.kit.fixtures import MakeMariaDB, MakeRelay

FORMATS = ("ROW", "STATEMENT", "MIXED")
QUERY_COMPRESSED, ROWS_COMPRESSED = 165, {166, 167, 168}
XA_PREPARE, GTID = 38, 162


def ddl(db: str) -> Sequence[str]:
    """Every kind of object; leaves some, drops some."""
    return (
        f"CREATE DATABASE {db}",
        f"USE {db}",
        "CREATE TABLE t (id INT PRIMARY KEY AUTO_INCREMENT, a VARCHAR(100), b INT DEFAULT 7)",
        "ALTER TABLE t ADD COLUMN c TIMESTAMP(6) DEFAULT CURRENT_TIMESTAMP(6), ADD INDEX (a)",
        # No AUTO_INCREMENT, no TIMESTAMP(6): what a trigger fills in there, as a statement, differs
        # on a replica of a real master too.
        "CREATE TABLE t_old (a VARCHAR(100))",
        "RENAME TABLE t_old TO t_log",
        "CREATE TABLE gone (a INT)",
        "DROP TABLE gone",
        "CREATE VIEW v AS SELECT a, b FROM t WHERE b > 1",
        "CREATE TRIGGER tr AFTER INSERT ON t FOR EACH ROW INSERT INTO t_log (a) VALUES (NEW.a)",
        "CREATE PROCEDURE p(IN n INT) BEGIN DECLARE i INT DEFAULT 0; WHILE i < n DO"
        " INSERT INTO t (a, b) VALUES (CONCAT('p', i), i); SET i = i + 1; END WHILE; END",
        "CREATE FUNCTION f(x INT) RETURNS INT DETERMINISTIC RETURN x * 2",
        "CREATE SEQUENCE s START WITH 100 INCREMENT BY 10",
        "CREATE TABLE myisam (id INT PRIMARY KEY AUTO_INCREMENT, a TEXT) ENGINE=MyISAM",
        "CREATE TABLE aria (id INT PRIMARY KEY AUTO_INCREMENT, a TEXT) ENGINE=Aria",
        "CREATE TABLE copied AS SELECT 1 AS one, 'text' AS two",
    )


def dml(db: str, binlog_format: str) -> Sequence[str]:
    return (
        f"USE {db}",
        # Not to be had as a statement.
        *(["SELECT NEXT VALUE FOR s"] if binlog_format != "STATEMENT" else []),
        "INSERT INTO t (a) VALUES ('x'), ('y'), (NULL)",
        "SET @variable = 'from a user variable'",
        "INSERT INTO t (a, b) VALUES (@variable, LAST_INSERT_ID())",
        "INSERT INTO t (a, b) VALUES ('now', UNIX_TIMESTAMP())",
        "CALL p(3)",
        "INSERT INTO t (a, b) VALUES ('f', f(21))",
        "UPDATE t SET b = b + 1 WHERE a IS NOT NULL",
        "DELETE FROM t WHERE a = 'y'",
        # Transactions: savepoints, and engines that know none
        "BEGIN",
        "INSERT INTO t (a) VALUES ('kept')",
        "SAVEPOINT one",
        "INSERT INTO t (a) VALUES ('undone')",
        "ROLLBACK TO SAVEPOINT one",
        "INSERT INTO t (a) VALUES ('kept too')",
        "COMMIT",
        "INSERT INTO myisam (a) VALUES ('1'), ('2')",
        "UPDATE aria SET a = 'none'",
        "INSERT INTO aria (a) SELECT a FROM myisam ORDER BY id",
        "BEGIN",
        "INSERT INTO t (a) VALUES ('mixed')",
        "INSERT INTO myisam (a) VALUES ('stays')",
        "INSERT INTO t (a) VALUES ('mixed 2')",
        "COMMIT",
        "BEGIN",
        "INSERT INTO myisam (a) VALUES ('stays although rolled back')",
        "INSERT INTO t (a) VALUES ('rolled back')",
        "ROLLBACK",
        "TRUNCATE TABLE copied",
        "ANALYZE TABLE t",
    )


def objects(server: MariaDB, db: str) -> dict[str, object]:
    """What CHECKSUM TABLE does not see."""
    shows = {
        kind: list(server.q(f"SHOW CREATE {kind} {db}.{name}")[0].values())[column]
        for kind, name, column in (
            ("VIEW", "v", 1),
            ("TRIGGER", "tr", 2),
            ("PROCEDURE", "p", 2),
            ("FUNCTION", "f", 2),
        )
    }
    return {
        **shows,
        "tables": sorted(server.tables()),
        "sequence": server.value(f"SELECT next_not_cached_value FROM {db}.s"),
    }


@pytest.mark.each_version
def test_formats_and_ddl(backend: object, make_relay: MakeRelay, make_replica: MakeMariaDB) -> None:
    upstream, server = make_relay(table="", max_binlog_size=262144)
    early = make_replica(version="11.8").follow(server)
    for name in FORMATS:
        db = f"d_{name.lower()}"
        upstream.script(f"SET SESSION binlog_format={name}", *ddl(db), *dml(db, name))
    late = make_replica(version="10.11").follow(server)
    assert_equal(upstream, early, late)
    for name in FORMATS:
        db = f"d_{name.lower()}"
        wanted = objects(upstream, db)
        assert objects(early, db) == wanted
        assert objects(late, db) == wanted
        assert upstream.value(f"SELECT COUNT(*) FROM {db}.myisam WHERE a LIKE 'stays%'") == 2
    # All went by the way it was meant to: rows as rows, statements as text.
    rows_as_text = [b"INSERT INTO t (a) VALUES ('kept too')" in e for e in all_events(server)]
    assert any(rows_as_text)
    upstream.script(*(f"DROP DATABASE d_{name.lower()}" for name in FORMATS))
    assert_equal(upstream, early, late)


@pytest.mark.each_version
def test_compressed_events(
    backend: object, make_relay: MakeRelay, make_replica: MakeMariaDB
) -> None:
    upstream, server = make_relay("--log-bin-compress=1", "--log-bin-compress-min-len=10", table="")
    replicas = [make_replica(version=version).follow(server) for version in ("10.11", "11.8")]
    for name in FORMATS:
        db = f"d_{name.lower()}"
        upstream.script(f"SET SESSION binlog_format={name}", *ddl(db), *dml(db, name))
        upstream.q(f"INSERT INTO {db}.t (a) SELECT REPEAT('z', 90) FROM {db}.t")
    assert_equal(upstream, *replicas)
    types = {event[4] for event in all_events(server)}
    assert QUERY_COMPRESSED in types
    assert types >= ROWS_COMPRESSED


@pytest.mark.by_turns(2)
@pytest.mark.each_version
def test_xa(backend: object, make_relay: MakeRelay, make_replica: MakeMariaDB) -> None:
    def prepare(name: str) -> None:
        upstream.script(
            f"XA START '{name}', 'branch', 7",
            f"INSERT INTO d.t (a) VALUES ('{name}')",
            f"XA END '{name}', 'branch', 7",
            f"XA PREPARE '{name}', 'branch', 7",
        )

    def finish(how: str, name: str) -> None:
        """Nobody knows it (1397) before the connection that has prepared it is gone."""

        def finished() -> bool:
            try:
                upstream.q(f"XA {how} '{name}', 'branch', 7")
            except pymysql.OperationalError as error:
                if error.args[0] != 1397:
                    raise
                return False
            return True

        until(finished, f"XA {how}")

    upstream, server = make_relay()
    replicas = [make_replica(version=version).follow(server) for version in ("10.11", "11.8")]
    for name in ("committed", "rolled back", "open"):
        prepare(name)
    finish("COMMIT", "committed")
    finish("ROLLBACK", "rolled back")
    upstream.script(
        "XA START 'one phase'",
        "INSERT INTO d.t (a) VALUES ('one phase')",
        "XA END 'one phase'",
        "XA COMMIT 'one phase' ONE PHASE",
    )
    assert_equal(upstream, *replicas)
    for replica in replicas:
        assert [row["data"] for row in replica.q("XA RECOVER")] == [b"openbranch"]
    # What is prepared stays prepared over a restart in between, and for one that comes later.
    server.restart()
    replicas.append(make_replica().follow(server))
    finish("COMMIT", "open")
    assert_equal(upstream, *replicas)
    for replica in replicas:
        assert replica.q("XA RECOVER") == []
        assert replica.value("SELECT GROUP_CONCAT(a ORDER BY a) FROM d.t") == (
            "committed,one phase,open"
        )
    assert sum(event[4] == XA_PREPARE for event in all_events(server)) == 3


@pytest.mark.each_version
@pytest.mark.proves("two-phase ALTER")
def test_two_phase_alter(
    backend: Backend, make_relay: MakeRelay, make_replica: MakeMariaDB
) -> None:
    """Only to a replica of the upstream's version: 10.11 crashes on that of 11.8."""
    upstream, server = make_relay()
    replica = make_replica("--slave-parallel-threads=2").follow(server)
    upstream.script(
        "SET SESSION binlog_alter_two_phase=1",
        "ALTER TABLE d.t ADD COLUMN b INT DEFAULT 3",
        "INSERT INTO d.t (a) VALUES ('after')",
    )
    with pytest.raises(Exception, match="Duplicate column"):
        upstream.script("SET SESSION binlog_alter_two_phase=1", "ALTER TABLE d.t ADD COLUMN b INT")
    with pytest.raises(Exception, match="Duplicate entry"):  # fails after it has begun: rolled back
        upstream.script(
            "SET SESSION binlog_alter_two_phase=1",
            "INSERT INTO d.t (a) VALUES ('after')",
            "ALTER TABLE d.t ADD UNIQUE (a)",
        )
    assert_equal(upstream, replica)
    assert "`b` int" in replica.q("SHOW CREATE TABLE d.t")[0]["Create Table"]
    extra = [GtidEvent.parse(e).flags_extra for e in all_events(server) if e[4] == GTID]
    assert sum(bool(flags & GtidExtraFlags.START_ALTER) for flags in extra) == 2
    assert sum(bool(flags & GtidExtraFlags.COMMIT_ALTER) for flags in extra) == 1
    assert sum(bool(flags & GtidExtraFlags.ROLLBACK_ALTER) for flags in extra) == 1
