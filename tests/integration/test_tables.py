"""Tables that are here, by SQL: real replicas end with equal rows; a kill leaves what the binlog says."""

from __future__ import annotations

import contextlib
import random
import re
import threading
from collections.abc import Iterator, Sequence
from typing import Any, Protocol

import pymysql
import pytest

from binlog_server.settings.engine_limits import INNODB, TRADITIONAL
from binlog_server.testing.mariadb import MariaDB
from binlog_server.testing.waiting import until
from tests.kit.fixtures import MakeBinlogServer, MakeMariaDB
from tests.kit.server import BinlogServer

pytestmark = pytest.mark.each_version

USERS = {"root": {"password": "pw", "grants": ["ALL PRIVILEGES"]}}
REPLICA = ("--character-set-server=latin1", "--gtid-strict-mode=1")
"""A replica whose own defaults are others: what is logged must say its character sets."""
KINDS_OF_COLUMNS = {
    # a column of each other type, and what random statements put there
    "f": ("FLOAT", "1/3", "-1.5e10", "16777217", "1e-40"),
    "f2": ("FLOAT(7,2) UNSIGNED", "0.005", "99999.99", "1/3"),
    "d2": ("DOUBLE(9,3) ZEROFILL", "1.23456", "2/3", "77"),
    "y": ("YEAR NOT NULL", "2024", "0", "'70'", "'1999'"),
    "b1": ("BIT", "1", "0", "b'1'"),
    "b40": ("BIT(40) NOT NULL DEFAULT b'101'", "b40+1", "x'00ff00ff00'", "0", "12345678901"),
    "e": ("ENUM('a','ö','it''s','') NOT NULL", "'A'", "2", "'it''s'", "DEFAULT", "''"),
    "s": (f"SET({','.join(repr(f's{i}') for i in range(20))})", "'s1,s19'", "''", "5", "s+0", "1<<19"),
    "z": ("INT(6) ZEROFILL", "7", "4294967295", "z*2%1000"),
    "j": ("JSON", """'{"a": [1, "ö"]}'""", "CONCAT('[', id, ']')", "JSON_QUOTE(e)"),
    "u": ("UUID", "'123e4567-e89b-12d3-a456-426655440000'", "'00000000000000000000000000000000'", "UUID()",
          "'ffffffff-ffff-7fff-bfff-ffffffffff00'"),
    "i4": ("INET4 NOT NULL DEFAULT '1.0.0.0'", "'255.255.0.0'", "DEFAULT", "'0.0.0.1'"),
    "i6": ("INET6", "'::'", "'fe80::1'", "'1.2.3.4'"),
    "da": ("DATE", "'0000-00-00'", "'2024-00-10'", "20240229"),
    "dt": ("DATETIME(1) DEFAULT 0", "'2024-10-00 01:02:03.4'", "0", "NOW()"),
    "ts": ("TIMESTAMP(2) NULL", "0", "NOW(2)"),
}  # fmt: skip
KINDS_TABLE = (
    "CREATE TABLE shop.kinds (id INT NOT NULL, "
    + ", ".join(f"{name} {said[0]}" for name, said in KINDS_OF_COLUMNS.items())
    + ", PRIMARY KEY (id, y, e, i4), KEY (u))"
)
SCHEMA = (
    "CREATE DATABASE shop",
    "CREATE TABLE shop.items (id INT NOT NULL AUTO_INCREMENT, name VARCHAR(40) NOT NULL DEFAULT '', "
    "price DECIMAL(12,3), made DATETIME(3) DEFAULT '2026-01-01 00:00:00', seen TIMESTAMP(6) NULL DEFAULT NULL, "
    "t TIME(2), d DATE, raw VARBINARY(40), fixed BINARY(4), long_text TEXT, big BIGINT UNSIGNED, tiny TINYINT, "
    "ratio DOUBLE, "
    "code CHAR(7) CHARACTER SET utf8mb3 COLLATE utf8mb3_bin, PRIMARY KEY (id), KEY by_name (name)) COMMENT='größe'",
    "CREATE TABLE shop.pairs (a VARCHAR(10), b BIGINT, note MEDIUMBLOB, PRIMARY KEY (a, b)) COLLATE utf8mb4_bin",
    "CREATE TABLE shop.users (id INT AUTO_INCREMENT PRIMARY KEY, mail VARCHAR(20) UNIQUE, a INT, b TINYINT NOT NULL "
    "DEFAULT 3, note VARCHAR(40), UNIQUE ab (a, b), UNIQUE (note(2), b))",
    KINDS_TABLE,
    "CREATE TABLE shop.altered (id INT PRIMARY KEY, c1 INT, c2 VARCHAR(20) NOT NULL DEFAULT 'x', KEY k (c1))",
    "CREATE TABLE shop.other (id INT PRIMARY KEY, c1 BIGINT)",
)
TABLES = ("shop.items", "shop.pairs", "shop.users", "shop.kinds", "shop.altered", "shop.other")
KINDS = ("10.11", "11.8")


@pytest.fixture
def master(request: pytest.FixtureRequest, binlog_server: MakeBinlogServer) -> BinlogServer:
    """A server that makes databases here; the parameter is binlog_storage_engine."""
    return binlog_server(
        users=USERS,
        local_tables=True,
        innodb_log_file_size=4 << 20,
        binlog_storage_engine=getattr(request, "param", INNODB),
    )


@contextlib.contextmanager
def session(master: BinlogServer, **options: Any) -> Iterator[Any]:
    given = {"autocommit": True, "charset": "utf8mb4", **options}
    with master.connect(**given) as connection, connection.cursor() as cursor:
        yield cursor


def rows(server: MariaDB | BinlogServer, table: str) -> list[dict[str, Any]]:
    order = "id, HEX(y), HEX(e), HEX(i4)" if table == "shop.kinds" else "id"
    order = "HEX(a), b" if table == "shop.pairs" else order
    return server.q(f"SELECT * FROM {table} ORDER BY {order}")


def checksums(server: MariaDB | BinlogServer, tables: Sequence[str] = TABLES) -> dict[str, Any]:
    return {row["Table"]: row["Checksum"] for row in server.q(f"CHECKSUM TABLE {','.join(tables)}")}


def assert_equal(
    master: BinlogServer, replicas: Sequence[MariaDB], tables: Sequence[str] = TABLES
) -> None:
    """Value by value, and by CHECKSUM TABLE."""
    for replica in replicas:
        replica.wait_gtid(master.gtid_binlog_pos, timeout=60)
        for table in tables:
            assert rows(replica, table) == rows(master, table)
        assert checksums(replica, tables) == checksums(master, tables)


ALTERED_TYPES = (
    "INT", "TINYINT NOT NULL DEFAULT 7", "VARCHAR(12)", "VARCHAR(4) NOT NULL DEFAULT 'abc' COLLATE utf8mb4_bin", "TEXT",
    "DECIMAL(6,2)", "FLOAT NOT NULL", "DATE NOT NULL", "DATETIME(2) DEFAULT NOW(2)", "TIMESTAMP NULL", "YEAR",
    "ENUM('7','x','2020') NOT NULL", "SET('0','7','abc')", "BIT(12)", "VARBINARY(30)", "UUID", "INT(9) ZEROFILL",
    "INT NOT NULL AUTO_INCREMENT UNIQUE",
)  # fmt: skip
NOT_AN_ANSWER = (1064, 1105, 1815, 2006, 2013)
"""Errors that no random statement may get: of the syntax, and of a defect."""


class Altering:
    """Random DDL on two tables, and rows for the columns that they have then."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.done = 0

    def one(self, cursor: Any) -> None:
        """One statement; any error but `NOT_AN_ANSWER` will do, as others alter the same tables."""
        rng = self.rng
        table = rng.choice(("shop.altered", "shop.altered", "shop.other"))
        cursor.execute("SET sql_mode=" + rng.choice(("DEFAULT", "DEFAULT", "''", "'NO_ZERO_DATE'")))
        try:
            cursor.execute(f"SHOW COLUMNS FROM {table}")
            columns = [row["Field"] for row in cursor.fetchall() if row["Field"] != "id"]
            if columns:
                cursor.execute(self.statement(table, columns))
            else:
                cursor.execute(f"ALTER TABLE {table} ADD c1 INT")
            self.done += 1
        except pymysql.MySQLError as error:
            if error.args[0] in NOT_AN_ANSWER:
                raise
        finally:
            cursor.execute("SET sql_mode=DEFAULT")

    def statement(self, table: str, columns: list[str]) -> str:
        rng = self.rng
        one, kind = rng.choice(columns), rng.choice(ALTERED_TYPES)
        place = rng.choice(("", "", " FIRST", f" AFTER {rng.choice(columns)}"))
        new = f"c{rng.randrange(9)}"
        action = rng.choice(
            (
                f"ADD COLUMN {new} {kind}{place}",
                f"DROP COLUMN {one}",
                f"MODIFY {one} {kind}{place}",
                f"CHANGE {one} {new} {kind}{place}",
                f"RENAME COLUMN {one} TO {new}",
                f"ALTER {one} SET DEFAULT '7'",
                f"ALTER {one} DROP DEFAULT",
                f"ADD KEY ({one}), COMMENT='{new}'",
                f"ADD UNIQUE ({one})",
                f"DROP KEY {one}",
                f"DROP {one}, ADD {new} {kind}, ADD IF NOT EXISTS c1 INT",
                f"CONVERT TO CHARACTER SET {rng.choice(('utf8mb3', 'utf8mb4'))}",
                "DROP PRIMARY KEY, ADD PRIMARY KEY (id)",
                f"AUTO_INCREMENT={rng.randrange(200)}",
            )
        )
        values = ("7", "'abc'", "'2020-02-02'", "NULL", "DEFAULT", "'ö7'", "130")
        number = rng.randrange(60)
        return rng.choice(
            (
                f"ALTER TABLE {table} {action}",
                f"ALTER TABLE {table} {action}",
                f"INSERT INTO {table} (id, {one}) VALUES ({number}, {rng.choice(values)})",
                f"INSERT INTO {table} (id) VALUES ({number})",
                f"UPDATE {table} SET {one}={rng.choice(values)} WHERE id<{number}",
                f"DELETE FROM {table} WHERE id={number}",
                "RENAME TABLE shop.altered TO shop.o, shop.other TO shop.altered, shop.o TO shop.other",
                f"CREATE INDEX i{rng.randrange(3)} ON {table} ({one})",
                f"DROP INDEX i{rng.randrange(3)} ON {table}",
            )
        )


class Writer:
    """Random statements in transactions of random ends. What was answered by errors is counted."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.errors: dict[int, int] = {}
        self.altering = Altering(rng)
        self.committed = 0

    alters = 0.0
    """How many of the statements are on tables that are altered."""

    def text(self) -> str:
        rng = self.rng
        return "'" + "".join(rng.choice("aAäßé z日😀_%") for _ in range(rng.randrange(9))) + "'"

    def statement(self) -> str:
        rng = self.rng
        some = rng.randrange(1, 40)
        number = rng.choice(("NULL", f"{rng.uniform(-1e6, 1e6):.4f}", str(rng.randrange(-99, 99))))
        day = f"20{rng.randrange(10, 37)}-0{rng.randrange(1, 9)}-1{rng.randrange(9)}"
        moment = f"'{day} 1{rng.randrange(9)}:00:0{rng.random() * 9:.5f}'"
        span = f"'-1{rng.randrange(9)}:2{rng.randrange(9)}:03.45'"
        raw = f"x'{rng.randbytes(rng.randrange(6)).hex()}'"
        items, pairs, text, other = "shop.items", "shop.pairs", self.text(), self.text()
        users, few, small = "shop.users", rng.randrange(1, 9), rng.randrange(1, 4)
        maybe = rng.choice(("NULL", str(few)))
        return rng.choice(
            (
                f"INSERT INTO {users} (mail, a, b, note) VALUES ({text}, {maybe}, {small}, {other})",
                f"INSERT INTO {users} VALUES ({few}, {other}, {small}, {few}, NULL), "
                f"({some}, NULL, {maybe}, 1, {text})",
                f"REPLACE INTO {users} (id, mail, a, b, note) VALUES ({some}, {text}, {maybe}, {small}, {other})",
                f"REPLACE INTO {users} (mail, a, b) VALUES ({text}, {maybe}, {small}), ({other}, {few}, {few})",
                f"INSERT IGNORE INTO {users} (mail, a, b, note) VALUES ({text}, {number}, {few}, {other}), "
                f"({other}, {maybe}, {some}{some}, {raw})",
                f"INSERT INTO {users} (mail, a, b) VALUES ({text}, {few}, {small}), (NULL, {maybe}, {small}) "
                f"ON DUPLICATE KEY UPDATE b=b+1, note=CONCAT('+', VALUES(mail)), id=id+{rng.choice((0, 0, 100))}",
                f"INSERT IGNORE INTO {users} (mail, a, b) SELECT CONCAT(mail, 'x'), a+{few}, b "
                f"FROM {users} WHERE b<{few}",
                f"REPLACE INTO {users} SELECT id+{small}, mail, a, b, note FROM {users} WHERE id<{few}",
                f"UPDATE IGNORE {users} SET a=a+1, note={text} WHERE b={small}",
                f"SELECT * FROM {users} WHERE b>{few} ORDER BY a LIMIT {small} FOR UPDATE",
                f"SELECT id FROM {users} WHERE id<{some} LOCK IN SHARE MODE",
                f"SELECT id FROM {users} WHERE mail={text} FOR UPDATE SKIP LOCKED",
                f"DELETE FROM {users} WHERE b>{few} ORDER BY a LIMIT {small} RETURNING id, mail",
                f"UPDATE {users} SET a={maybe}, b={small} WHERE id<{some} LIMIT {small}",
                f"UPDATE {users} SET id=id+{some}, mail={text} WHERE b={small} ORDER BY id DESC LIMIT 1",
                f"DELETE FROM {users} WHERE a={few} OR id={some}",
                f"INSERT INTO {items} (name, price, seen, raw, big) "
                f"VALUES ({text}, {number}, {moment}, {raw}, {rng.getrandbits(64)})",
                f"INSERT INTO {items} (name, tiny, ratio, t, d) "
                f"VALUES ({text}, {rng.randrange(-128, 128)}, {rng.uniform(-9, 9)!r}, {span}, {moment}), "
                f"({other}, DEFAULT, NULL, NULL, NULL)",
                f"INSERT INTO {items} SET id={some}, code='c {some}  ', long_text=REPEAT({text}, {some}), "
                f"fixed=LEFT({raw}, 4)",
                f"INSERT INTO {pairs} VALUES ({text}, {some}, {raw})",
                f"UPDATE {items} SET price=price*2+{some}, made=NOW(3), name=CONCAT(name, '+') "
                f"WHERE id<{some} AND CHAR_LENGTH(name)<30",
                f"UPDATE {items} SET id=id+{rng.randrange(1, 200)}, tiny=NULL WHERE id={some}",
                f"UPDATE {pairs} SET b=b+{some}, note={raw} WHERE a LIKE CONCAT({text}, '%') LIMIT 3",
                f"UPDATE {pairs} SET note=NULL WHERE b={some} OR a={text}",
                f"DELETE FROM {items} WHERE id={some}",
                f"DELETE FROM {items} WHERE name={text} ORDER BY id DESC LIMIT 2",
                f"DELETE FROM {pairs} WHERE b BETWEEN {some} AND {some + 3}",
                *self.of_kinds(some),
            )
        )

    def of_kinds(self, some: int) -> Iterator[str]:
        """Statements on a table with a column of each type."""
        names = self.rng.sample(list(KINDS_OF_COLUMNS), 6)
        values = [self.rng.choice((*KINDS_OF_COLUMNS[name][1:], "DEFAULT")) for name in names]
        given = dict(zip(names, values, strict=True))
        if "y" in given and given["y"] == "DEFAULT":
            given["y"] = "2025"
        fresh = {n: v for n, v in given.items() if not re.search(r"\b(id|b40|s|z|e)\b(?!')", v)}
        fresh = {"y": "2001", **fresh, "id": str(some)}
        columns, said = ",".join(fresh), ",".join(fresh.values())
        yield f"INSERT INTO shop.kinds ({columns}) VALUES ({said})"
        yield f"UPDATE shop.kinds SET {','.join(f'{n}={v}' for n, v in given.items())} WHERE id={some} OR e='ö' LIMIT 4"
        yield f"DELETE FROM shop.kinds WHERE id>{some} AND s LIKE '%s1%' OR u='123e4567-e89b-12d3-a456-426655440000'"

    def run(self, cursor: Any, statements: int) -> None:
        """So many statements."""
        rng = self.rng
        while statements > 0:
            inside = rng.randrange(1, 6)
            alone = rng.random() < 0.3
            if not alone:
                cursor.execute("BEGIN")
            for _ in range(1 if alone else inside):
                statements -= 1
                if not alone and rng.random() < 0.2:
                    cursor.execute("SAVEPOINT s")
                    self.one(cursor)
                    with contextlib.suppress(
                        pymysql.MySQLError
                    ):  # a deadlock has ended the transaction
                        cursor.execute("ROLLBACK TO s")
                self.one(cursor)
            if not alone:
                cursor.execute(rng.choice(("COMMIT", "COMMIT", "COMMIT", "ROLLBACK")))
            self.committed += 1

    def one(self, cursor: Any) -> None:
        if self.rng.random() < self.alters:
            self.altering.one(cursor)
            return
        try:
            cursor.execute(self.statement())
        except pymysql.MySQLError as error:
            number = error.args[0]
            if number not in (1062, 1205, 1213, 1264):
                raise
            self.errors[number] = self.errors.get(number, 0) + 1


@pytest.mark.any_version  # it has replicas of both
def test_altered_tables_are_those_of_real_replicas(
    backend: object, master: BinlogServer, make_replica: MakeMariaDB, rng: random.Random
) -> None:
    with session(master) as cursor:
        for text in SCHEMA:
            cursor.execute(text)
    replicas = [make_replica(*REPLICA, version=version).follow(master) for version in KINDS]
    altering = Altering(rng)
    with session(master) as cursor:
        for _ in range(250):
            altering.one(cursor)
    assert altering.done > 100
    assert_equal(master, replicas)
    for table in ("shop.altered", "shop.other"):
        ours = created(master, table)
        assert all(created(replica, table) == ours for replica in replicas)


def created(server: MariaDB | BinlogServer, table: str) -> str:
    """SHOW CREATE TABLE, but for AUTO_INCREMENT, which replicas count for themselves; defaults of bytes as texts."""
    (row,) = server.q(f"SHOW CREATE TABLE {table}")
    text = re.sub(r" AUTO_INCREMENT=\d+", "", str(row["Create Table"]))
    return re.sub(r"x'([0-9a-f]+)'", lambda found: repr(bytes.fromhex(found[1]).decode()), text)


@pytest.mark.any_version  # it has replicas of both
def test_random_statements_reach_real_replicas(
    backend: object, master: BinlogServer, make_replica: MakeMariaDB, rng: random.Random
) -> None:
    with session(master) as cursor:
        for text in SCHEMA:
            cursor.execute(text)
    replicas = [make_replica(*REPLICA, version=version).follow(master) for version in KINDS]
    writer = Writer(rng)
    with session(master) as cursor:
        writer.run(cursor, 250)
    assert writer.committed > 20
    assert_equal(master, replicas)
    with session(master) as cursor:
        for text in (
            "TRUNCATE shop.pairs",
            "INSERT INTO shop.pairs VALUES ('a', 1, NULL)",
            "CREATE TABLE shop.gone (a INT PRIMARY KEY)",
            "DROP TABLE shop.gone",
        ):
            cursor.execute(text)
        writer.run(cursor, 50)
    assert_equal(master, replicas)
    for replica in replicas:
        ours = {row["Create Table"] for row in master.q("SHOW CREATE TABLE shop.pairs")}
        assert {row["Create Table"] for row in replica.q("SHOW CREATE TABLE shop.pairs")} == ours


class Runs(Protocol):
    """A writer of random statements."""

    def run(self, cursor: Any, count: int) -> None: ...


def run_together(master: BinlogServer, writers: Sequence[Runs], count: int) -> None:
    """Each in a session and a thread of its own, `count` steps."""
    failed: list[BaseException] = []

    def write(writer: Runs) -> None:
        try:
            with session(master) as cursor:
                writer.run(cursor, count)
        except BaseException as error:  # noqa: BLE001 - told by the test
            failed.append(error)

    threads = [threading.Thread(target=write, args=(writer,)) for writer in writers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed, failed


@pytest.mark.any_version
def test_sessions_beside_each_other(
    backend: object, master: BinlogServer, make_replica: MakeMariaDB, rng: random.Random
) -> None:
    """Their statements meet at the same rows: they wait, time out, and are rolled back for each other."""
    with session(master) as cursor:
        for text in (*SCHEMA, "SET GLOBAL innodb_lock_wait_timeout=2"):
            cursor.execute(text)
    replica = make_replica(*REPLICA).follow(master)
    writers = [Writer(random.Random(rng.getrandbits(64))) for _ in range(4)]
    for writer in writers[:2]:
        writer.alters = 0.2
    run_together(master, writers, 120)
    assert_equal(master, [replica])


@pytest.mark.any_version
@pytest.mark.parametrize(
    "master",
    ["innodb", pytest.param(TRADITIONAL, marks=pytest.mark.slow, id="traditional")],
    indirect=True,
)
def test_a_kill_leaves_tables_that_equal_the_binlog(
    backend: object, master: BinlogServer, make_replica: MakeMariaDB, rng: random.Random
) -> None:
    """Behind each kill: our tables == what a replica has that replays our binlog."""
    with session(master) as cursor:
        for text in SCHEMA:
            cursor.execute(text)
    replicas = [make_replica(*REPLICA, version=version).follow(master) for version in KINDS]
    for _ in range(3):
        writers = [Writer(random.Random(rng.getrandbits(64))) for _ in range(3)]
        writers[0].alters = 0.5
        begun = threading.Barrier(4)

        def write(writer: Writer, begun: threading.Barrier = begun) -> None:
            with contextlib.suppress(pymysql.MySQLError, OSError), session(master) as cursor:
                writer.run(cursor, 20)
                begun.wait()
                writer.run(cursor, 100_000)

        threads = [threading.Thread(target=write, args=(writer,)) for writer in writers]
        for thread in threads:
            thread.start()
        begun.wait()
        before = sum(writer.committed for writer in writers)
        while sum(writer.committed for writer in writers) < before + rng.randrange(5, 60):
            pass
        master.kill()
        for thread in threads:
            thread.join()
        master.start()
        assert_equal(master, replicas)
    late = make_replica(*REPLICA).follow(master)  # all of the binlog on empty tables
    assert_equal(master, [late])


@pytest.mark.any_version
def test_tables_without_transactions(
    backend: object, master: BinlogServer, make_replica: MakeMariaDB, rng: random.Random
) -> None:
    """MyISAM and Aria beside InnoDB, in transactions that are rolled back and statements that fail half-way."""
    with session(master) as cursor:
        cursor.execute("CREATE DATABASE shop")
        for number, engine in enumerate(("InnoDB", "MyISAM", "Aria")):
            cursor.execute(
                f"CREATE TABLE shop.t{number} (id INT AUTO_INCREMENT PRIMARY KEY, n INT, a VARCHAR(20), c CHAR(3), "
                f"d DECIMAL(9,2), e ENUM('a','b'), UNIQUE (n)) ENGINE={engine}"
            )
    serial, parallel = (
        make_replica(*REPLICA, *more, version=version).follow(master)
        for version, more in zip(
            KINDS,
            ((), ("--slave-parallel-threads=4", "--slave-parallel-mode=optimistic")),
            strict=True,
        )
    )
    with session(master) as cursor:
        for _ in range(60):
            cursor.execute("BEGIN")
            for _ in range(rng.randrange(1, 6)):
                table, n = f"shop.t{rng.randrange(3)}", rng.randrange(60)
                statement = rng.choice(
                    (
                        f"INSERT INTO {table} (n, a, c) VALUES ({n}, 'x', 'y'), ({n + 1}, NULL, ''), ({n + 5}, 'z', 1)",
                        f"UPDATE {table} SET n = n + 1, d = {n} / 7 WHERE n > {n} ORDER BY n",
                        f"UPDATE {table} SET a = '{n}', e = 'b' WHERE n = {n}",
                        f"DELETE FROM {table} WHERE n BETWEEN {n} AND {n + 10}",
                        f"REPLACE INTO {table} (n, a) VALUES ({n}, 'r'), ({n + 2}, 'r')",
                        f"INSERT INTO {table} (n) VALUES ({n}) ON DUPLICATE KEY UPDATE a = 'dup'",
                    )
                )
                with contextlib.suppress(pymysql.err.IntegrityError):
                    cursor.execute(statement)
            cursor.execute(rng.choice(("COMMIT", "ROLLBACK")))
    assert_equal(master, [serial, parallel], [f"shop.t{number}" for number in range(3)])
    for number, engine in enumerate(("InnoDB", "MyISAM", "Aria")):
        assert master.q(f"SELECT COUNT(*) n FROM shop.t{number}")[0]["n"]
        for replica in (serial, parallel):
            ((_, text),) = (row.values() for row in replica.q(f"SHOW CREATE TABLE shop.t{number}"))
            assert f"ENGINE={engine}" in text


def test_a_replica_applies_groups_that_share_a_commit_id_in_parallel(
    backend: object, binlog_server: MakeBinlogServer, make_replica: MakeMariaDB
) -> None:
    """With slave_parallel_mode=conservative: while one waits for a lock of a row there, the next one is done, and
    waits for it alone."""
    master = binlog_server(
        users=USERS,
        local_tables=True,
        innodb_flush_log_at_trx_commit=0,
        innodb_flush_log_at_timeout=2700,
        replica_slot_seconds=0,  # to note where a replica stood syncs the log, between two of the groups
    )
    replica = make_replica("--slave-parallel-threads=4", "--slave-parallel-mode=conservative")
    with session(master) as cursor:
        for text in (
            "CREATE DATABASE shop",
            "CREATE TABLE shop.p (id INT PRIMARY KEY, n INT) ENGINE=InnoDB",
            "INSERT INTO shop.p VALUES (1, 0), (2, 0), (3, 0)",
        ):
            cursor.execute(text)
        replica.follow(master)
        rows = "SELECT n FROM shop.p ORDER BY id"
        replica.wait(rows, lambda found: len(found) == 3)
        replica.q("STOP SLAVE")
        # One that waits for groups has each synced.
        until(lambda: not master.q("SHOW SLAVE HOSTS"), "the end of the dump")
        for text in (
            "UPDATE shop.p SET n = 1 WHERE id = 3",
            "UPDATE shop.p SET n = 1 WHERE id = 1",
            "UPDATE shop.p SET n = 1 WHERE id = 2",
        ):
            cursor.execute(text)
        with replica.connect() as other, other.cursor() as holder:
            holder.execute("BEGIN")
            holder.execute("SELECT n FROM shop.p WHERE id = 1 FOR UPDATE")
            replica.q("START SLAVE")
            cursor.execute("INSERT INTO shop.p VALUES (4, 0)")
            states = "SELECT STATE FROM information_schema.PROCESSLIST"
            replica.wait(
                states,
                lambda found: any(
                    row["STATE"] == "Waiting for prior transaction to commit" for row in found
                ),
            )
            holder.execute("ROLLBACK")
        replica.wait(rows, lambda found: [row["n"] for row in found] == [1, 1, 1, 0])
