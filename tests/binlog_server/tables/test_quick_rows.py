"""The quick way of a change of one row does to the byte what the long way does, and leaves it all that is not plain."""

from __future__ import annotations

import random
import struct
from collections.abc import Sequence
from typing import Any

import pytest
from binlog_protocol.connection.commands import Query, StmtExecute, StmtPrepare
from binlog_protocol.events.column_type import ColumnType
from binlog_protocol.events.gtid import GtidEvent
from binlog_protocol.events.header import split_events
from binlog_protocol.values import lenenc_bytes
from binlog_protocol.wire.results import parse_ok

from binlog_server.accounts.users import Account
from binlog_server.commits.commit_ids import CommitIds
from binlog_server.sql_commit.quick_way import QuickWay
from tests.binlog_server.lab import ROOT, Client, Lab, until
from tests.storage.groups import read_all

SCHEMA = (
    "CREATE DATABASE shop",
    "CREATE TABLE shop.t (id INT PRIMARY KEY, a VARCHAR(5), n BIGINT UNSIGNED NOT NULL DEFAULT 7,"
    " c CHAR(4) DEFAULT 'x', d DECIMAL(6,2), w DATETIME DEFAULT '2020-02-02', x TEXT CHARACTER SET utf8mb3, s TINYINT)",
    "CREATE TABLE shop.g (id SMALLINT AUTO_INCREMENT PRIMARY KEY, a VARCHAR(20) DEFAULT 'none', KEY (a))",
    "CREATE TABLE shop.two (a INT, b BIGINT, n INT, PRIMARY KEY (b, a))",
    "CREATE TABLE shop.named (name VARCHAR(10) PRIMARY KEY, b BLOB, t TIMESTAMP NULL ON UPDATE CURRENT_TIMESTAMP)",
)
Value = int | str | bytes | float | None
Script = Sequence[tuple[str, tuple[Value, ...]]]
_TYPES: dict[type, int] = {int: ColumnType.LONGLONG, str: ColumnType.VAR_STRING}
_TYPES |= {float: ColumnType.DOUBLE, bytes: ColumnType.BLOB, type(None): ColumnType.NULL}


def parameters(values: Sequence[Value]) -> bytes:
    """The body of an execution."""
    if not values:
        return b""
    nulls = sum((value is None) << i for i, value in enumerate(values))
    body = nulls.to_bytes((len(values) + 7) // 8, "little") + b"\1"
    body += b"".join(bytes((_TYPES[type(value)], 0)) for value in values)
    for value in values:
        if isinstance(value, int):
            body += struct.pack("<q", value)
        elif isinstance(value, float):
            body += struct.pack("<d", value)
        elif value is not None:
            body += lenenc_bytes(value.encode() if isinstance(value, str) else value)
    return body


class Session:
    """A client that prepares each statement once; one without parameters it sends as text."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self._numbers: dict[str, int] = {}

    async def run(self, sql: str, values: Sequence[Value]) -> bytes:
        if not values and "?" not in sql:
            return await self.client.ask(Query(sql).build())
        if sql not in self._numbers:
            answer = await self.client.ask(StmtPrepare(sql.encode()).build())
            if answer[:1] == b"\xff":
                return answer
            number, columns, count = struct.unpack_from("<IHH", answer, 1)
            assert not columns
            for _ in range(count and count + 1):
                await self.client.answer()
            self._numbers[sql] = number
        return await self.client.ask(StmtExecute(self._numbers[sql], 0, parameters(values)).build())


async def played(script: Script) -> tuple[list[bytes], list[bytes], list[Any]]:
    """The answers, the events, each without its time, and what there is then."""
    async with Lab(users=ROOT, local_tables=True) as lab:
        client = await lab.root()
        for text in SCHEMA:
            await client.query(text)
        await client.query("SET NAMES utf8mb4")
        await client.query("USE shop")
        await client.query("INSERT INTO named VALUES ('first', '', NULL)")
        await client.query("FLUSH STATUS")
        session = Session(client)
        answers = [await session.run(sql, values) for sql, values in script]
        lab.engine.sync()
        events = [
            event[4:]
            for payload in read_all(lab.engine)
            if payload[4] == 162
            for event in split_events(payload)
        ]
        found = [
            await client.query(
                "SHOW SESSION STATUS WHERE Variable_name IN ('Questions','Queries')"
            ),
            await client.query("SHOW SESSION STATUS LIKE 'Com_%'"),
            await client.query("SELECT LAST_INSERT_ID()"),
            *[
                await client.query(f"CHECKSUM TABLE shop.{name}")
                for name in ("t", "g", "two", "named")
            ],
        ]
    return answers, events, found


async def both(monkeypatch: pytest.MonkeyPatch, script: Script) -> tuple[list[bytes], list[bytes]]:
    """The answers of the quick way, which are those of the long one; and the statements for which it was taken."""
    taken: list[bytes] = []
    take_rows = QuickWay.take_rows

    def counted(self: QuickWay, change: Any, given: Any, text: bytes, data: bytes) -> bool:
        found = take_rows(self, change, given, text, data)
        if found:
            taken.append(text)
        return found

    # What shares an id depends on when the log is synced.
    monkeypatch.setattr(CommitIds, "next", lambda *_: None)
    with monkeypatch.context() as patch:
        patch.setattr(QuickWay, "take_rows", counted)
        quick = await played(script)
    with monkeypatch.context() as patch:
        patch.setattr(QuickWay, "take_rows", lambda *_: False)
        assert await played(script) == quick
    return quick[0], taken[1:]  # behind the one that `played` has executed


INSERT = "INSERT INTO t (id, a, n) VALUES (?, ?, ?)"
UPDATE = "UPDATE t SET a = ?, s = ? WHERE id = ?"
DELETE = "DELETE FROM t WHERE id = ?"
QUICK: Script = (
    (INSERT, (1, "one", 2)),
    (INSERT, (2, None, 0)),
    (INSERT, (-3, "ü€🐘", 1 << 40)),
    (INSERT, (4, "i's\\\n", 5)),
    (
        "INSERT INTO t VALUES (?,?,?,?,?,?,?,?)",
        (5, "", 1, "pad  ", "1.25", "2024-02-29 1:2:3", "€", -128),
    ),
    ("INSERT INTO shop.t (n,ID) VALUES(-0,?)", (6,)),
    ("insert into `shop`.`t` (id, a) values (7, 'it''s')", ()),
    ("INSERT t VALUES (8, DEFAULT, DEFAULT, NULL, 5, '2024-01-01', 'x', 127)", ()),
    (UPDATE, ("two", 1, 2)),
    (UPDATE, ("two", 1, 2)),  # changes nothing
    (UPDATE, (None, None, 2)),
    (UPDATE, ("none", 1, 99)),  # finds nothing
    ("UPDATE t SET n = 18446744073709551615, w = '2030-01-01' WHERE id = 1", ()),
    ("UPDATE t SET d = ?, c = DEFAULT WHERE id = ?", (12, 5)),
    (DELETE, (1,)),
    (DELETE, (1,)),
    ("DELETE FROM shop.t WHERE id=2", ()),
    ("INSERT INTO g (a) VALUES (?)", ("a",)),
    ("INSERT INTO g VALUES (NULL, ?)", ("b",)),
    ("INSERT INTO g VALUES (0, 'c')", ()),
    ("INSERT INTO g VALUES (?, 'd')", (50,)),
    ("INSERT INTO g VALUES (?, 'e')", (-9,)),
    ("INSERT INTO g (a) VALUES ('f')", ()),
    ("INSERT INTO two VALUES (?, ?, 1)", (1, 2)),
    ("UPDATE two SET n = 2 WHERE a = ? AND b = ?", (1, 2)),
    ("DELETE FROM two WHERE b = 2 AND a = 1", ()),
    ("INSERT INTO named (name) VALUES (?)", ("Straße",)),
)
NOT_QUICK: Script = (
    (INSERT, (-3, "three", 1)),  # 1062
    (INSERT, (20, "too long", 1)),
    (INSERT, (20, "x", -1)),
    (INSERT, (20, 5, "6")),
    (INSERT, (20, 1.5, 1.0)),
    (INSERT, (20, b"x", None)),
    (INSERT, (None, "x", 1)),
    (INSERT, ("21", "x", 1)),
    (INSERT, (1 << 31, "x", 1)),
    ("INSERT INTO t (id, d) VALUES (?, ?)", (22, "12345.6")),
    ("INSERT INTO t (id, w) VALUES (?, ?)", (22, "yesterday")),
    ("INSERT INTO t (id, x) VALUES (?, ?)", (22, "🐘")),
    ("INSERT INTO t (id, c) VALUES (?, ?)", (22, "abcd     e")),
    ("INSERT INTO t (id, id) VALUES (1, 1)", ()),
    ("INSERT INTO t (id, nothing) VALUES (1, 1)", ()),
    ("INSERT INTO t VALUES (1)", ()),
    ("INSERT INTO t (id) VALUES (30), (31)", ()),
    ("INSERT INTO t (id) VALUES (1+31)", ()),
    ("INSERT INTO t (id, a) VALUES (33, 'a' 'b')", ()),
    ('INSERT INTO t (id, a) VALUES (34, "x")', ()),
    ("INSERT INTO t (id, a) VALUES (35, '\\'')", ()),
    ("INSERT INTO t (id, d) VALUES (36, 1.5)", ()),
    ("INSERT INTO t (id, d) VALUES (37, 1e1)", ()),
    ("INSERT INTO t SET id = 38", ()),
    ("INSERT INTO g VALUES (70000, 'x')", ()),
    ("UPDATE t SET id = 40 WHERE id = 4", ()),
    ("UPDATE t SET n = n + 1 WHERE id = 4", ()),
    ("UPDATE t SET n = 1, n = 2 WHERE id = 4", ()),
    ("UPDATE t SET n = 1 WHERE id = 4 AND a = 'x'", ()),
    ("UPDATE t SET n = 1 WHERE id = 4 OR id = 5", ()),
    ("UPDATE t SET n = 3 WHERE id = 4 LIMIT 1", ()),
    ("UPDATE t SET n = 4 WHERE id = '4'", ()),
    ("UPDATE t SET n = 5 WHERE id = NULL", ()),
    ("UPDATE t SET n = 6 WHERE 4 = id", ()),
    ("UPDATE t x SET n = 6 WHERE id = 4", ()),
    ("UPDATE named SET b = 'x', t = NULL WHERE name = 'first'", ()),
    ("DELETE FROM t WHERE id = ?", ("5",)),
    ("DELETE FROM t WHERE n = 5", ()),
    ("DELETE FROM two WHERE a = 1", ()),
    ("INSERT INTO nothing VALUES (1)", ()),
    ("INSERT INTO g VALUES ()", ()),
)


async def test_what_is_quick(monkeypatch: pytest.MonkeyPatch) -> None:
    answers, taken = await both(monkeypatch, QUICK)
    assert len(taken) == len(QUICK)
    assert [answer[:1] for answer in answers] == [b"\0"] * len(QUICK)
    assert parse_ok(answers[8]).info == b"Rows matched: 1  Changed: 1  Warnings: 0"


async def test_what_is_left_to_the_long_way(monkeypatch: pytest.MonkeyPatch) -> None:
    before = [(INSERT, (number, "x", 1)) for number in (-3, 4, 5)]
    answers, taken = await both(monkeypatch, [*before, *NOT_QUICK])
    assert len(taken) == len(before)
    errors = {int.from_bytes(a[1:3], "little") for a in answers if a[:1] == b"\xff"}
    assert errors >= {1048, 1054, 1062, 1110, 1136, 1146, 1264, 1292, 1366, 1406}


@pytest.mark.parametrize(
    "setting",
    [
        "BEGIN",
        "SET autocommit = 0",
        "SET SESSION TRANSACTION READ ONLY",
        "SET timestamp = 1700000000",
        "SET gtid_seq_no = 500",
        "SET sql_mode = 'ANSI_QUOTES'",
        "SET sql_mode = 'NO_BACKSLASH_ESCAPES'",
        "SET NAMES latin1",
        "SET sql_log_bin = 0",
    ],
)
async def test_a_session_that_is_not_plain(monkeypatch: pytest.MonkeyPatch, setting: str) -> None:
    script = [
        (INSERT, (1, "x", 1)),
        (setting, ()),
        (INSERT, (2, "x", 1)),
        ("UPDATE t SET n = 3 WHERE id = 1", ()),
    ]
    _, taken = await both(monkeypatch, script)
    assert len(taken) == 1 + ("seq_no" in setting)  # which is for one group alone


@pytest.mark.parametrize(
    "setting",
    [
        "SET foreign_key_checks = 0",
        "SET auto_increment_increment = 10, auto_increment_offset = 3",
        "SET sql_mode = 'NO_AUTO_VALUE_ON_ZERO'",
        "SET time_zone = '+05:00'",
        "USE information_schema",
        "SET last_insert_id = 5",
    ],
)
async def test_what_a_session_says_is_heeded(monkeypatch: pytest.MonkeyPatch, setting: str) -> None:
    insert, zero = "INSERT INTO shop.g (a) VALUES (?)", "INSERT INTO shop.g VALUES (0, ?)"
    stamped = "INSERT INTO shop.named VALUES ('x', '', '2024-01-01 00:00:00')"
    script = [(insert, ("a",)), (setting, ()), (insert, ("b",)), (zero, ("c",)), (stamped, ())]
    _, taken = await both(monkeypatch, script)
    assert len(taken) == 4


async def test_ddl_in_between() -> None:
    """A statement that was prepared before its table was made anew changes the new one."""
    async with Lab(users=ROOT, local_tables=True) as lab:
        client = await lab.root()
        for text in (*SCHEMA, "SET NAMES utf8mb4"):
            await client.query(text)
        await client.query("INSERT INTO shop.two VALUES (0, 0, 0)")
        session = Session(client)
        sql = "INSERT INTO shop.two VALUES (?, ?, ?)"
        assert (await session.run(sql, (1, 1, 1)))[:1] == b"\0"
        await client.query("DROP TABLE shop.two")
        assert (await session.run(sql, (1, 1, 1)))[1:3] == (1146).to_bytes(2, "little")
        await client.query("CREATE TABLE shop.two (x INT, a INT PRIMARY KEY, y VARCHAR(9))")
        assert (await session.run(sql, (1, 2, "three")))[:1] == b"\0"
        assert await client.query("SELECT * FROM shop.two") == [["1", "2", "three"]]
        await client.query("TRUNCATE shop.two")
        assert (await session.run(sql, (1, 2, "three")))[:1] == b"\0"


async def test_rights_are_asked_for_each_time() -> None:
    async with Lab(users=ROOT, local_tables=True) as lab:
        root = await lab.root()
        for text in (
            *SCHEMA,
            "CREATE USER u IDENTIFIED BY 'pw'",
            "GRANT INSERT, SELECT ON *.* TO u",
        ):
            await root.query(text)
        await root.query("INSERT INTO shop.two VALUES (0, 0, 0)")
        session = Session(await lab.client("u", "pw"))
        await session.client.query("SET NAMES utf8mb4")
        assert (await session.run("INSERT INTO shop.two VALUES (?, 1, 1)", (1,)))[:1] == b"\0"
        update = "UPDATE shop.two SET n = 5 WHERE a = 1 AND b = 1"
        assert (await session.run(update, ()))[1:3] == (1142).to_bytes(2, "little")


async def test_a_row_that_somebody_changes_is_waited_for() -> None:
    async with Lab(users=ROOT, local_tables=True) as lab:
        root, other = await lab.root(), await lab.root()
        for text in (*SCHEMA, "SET NAMES utf8mb4"):
            await root.query(text)
        await other.query("SET NAMES utf8mb4")
        await root.query("INSERT INTO shop.two VALUES (1, 1, 1)")
        for n, held in enumerate(("UPDATE shop.two SET n = 9", "DELETE FROM shop.two"), 2):
            await root.query("BEGIN")
            await root.query(held)
            other.command(Query(f"UPDATE shop.two SET n = {n} WHERE a = 1 AND b = 1").build())
            await until(lambda: lab.engine.tables.locks.waiting == 1)  # type: ignore[attr-defined]
            await root.query("ROLLBACK")
            assert (await other.answer())[:1] == b"\0"
        assert await root.query("SELECT * FROM shop.two") == [["1", "1", "3"]]


@pytest.mark.parametrize("seed", range(3))
async def test_random_statements(monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    rng = random.Random(seed)
    texts: list[Value] = [
        None,
        "",
        "a",
        "it's",
        "\\",
        "äöü",
        "five5",
        "longer than five",
        "1",
        " x ",
    ]
    numbers: list[Value] = [None, 0, 1, 2, 3, -1, 200, 1 << 33, -(1 << 63)]
    made: list[tuple[str, tuple[Value, ...]]] = []
    for _ in range(60):
        text, number, key = rng.choice(texts), rng.choice(numbers), rng.randrange(6)
        made.append(
            rng.choice(
                (
                    (INSERT, (key, text, number)),
                    (UPDATE, (text, number, key)),
                    (DELETE, (key,)),
                    ("INSERT INTO g VALUES (?, ?)", (number, text)),
                    ("UPDATE g SET a = ? WHERE id = ?", (text, key)),
                    ("INSERT INTO t (id, d, c) VALUES (?, ?, ?)", (key, text, number)),
                )
            )
        )
    _, taken = await both(monkeypatch, made)
    assert len(taken) > 10


async def test_commit_ids() -> None:
    """Groups of rows that share a sync share an id, unless they change the same row; text and DDL have none."""
    users = {**ROOT, "replay": Account("pw", frozenset({"BINLOG REPLAY"}))}
    options: dict[str, Any] = {
        "innodb_flush_log_at_trx_commit": 0,
        "innodb_flush_log_at_timeout": 2700,
    }
    async with Lab(users=users, local_tables=True, **options) as lab:
        client, replay = await lab.root(), await lab.client("replay", "pw")
        for text in (*SCHEMA, "SET NAMES utf8mb4"):
            await client.query(text)
        for text in (
            "INSERT INTO shop.two VALUES (1, 1, 1)",  # the first: none
            "INSERT INTO shop.two VALUES (2, 2, 2)",
            "INSERT INTO shop.two VALUES (3, 3, 3), (4, 4, 4)",  # not the quick way
            "UPDATE shop.two SET n = 5 WHERE a = 1 AND b = 1",
            "UPDATE shop.two SET n = 6 WHERE a = 4 AND b = 4",  # a row of this id: another one
            "DELETE FROM shop.two WHERE n < 3",
            "INSERT INTO elsewhere.t VALUES (1)",
            "INSERT INTO shop.two VALUES (7, 7, 7)",
            "INSERT INTO shop.two VALUES (8, 8, 8)",
            "TRUNCATE shop.two",
            "INSERT INTO shop.two VALUES (8, 8, 8)",
        ):
            await (replay if "elsewhere" in text else client).query(text)
        lab.engine.sync()
        found = [
            GtidEvent.parse(next(iter(split_events(payload)))).commit_id
            for payload in read_all(lab.engine)
            if payload[4] == 162
        ][len(SCHEMA) :]
        first, second, third = (len(SCHEMA) + n for n in (2, 5, 9))
        assert found == [None, first, first, first, second, second, None, None, third, None, None]
