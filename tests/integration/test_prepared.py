"""Prepared statements sent to our server: real replicas end with what a MariaDB has that executed them itself."""

from __future__ import annotations

import struct

from binlog_protocol.events.column_type import ColumnType
from binlog_protocol.values import lenenc_bytes

from binlog_server.testing.mariadb import MariaDB
from binlog_server.testing.sql_server import Credentials
from tests.integration.prepared_client import PreparedClient, Typed
from tests.kit.fixtures import MakeBinlogServer, MakeMariaDB

UNSIGNED = 0x8000
SCHEMA = (
    "CREATE DATABASE d",
    "USE d",
    "CREATE TABLE t (id INT PRIMARY KEY AUTO_INCREMENT, a TEXT CHARACTER SET utf8mb4, b LONGBLOB, "
    "d DOUBLE, n DECIMAL(30,6), i BIGINT, u BIGINT UNSIGNED, da DATE, dt DATETIME(6), ti TIME(6), "
    "third DOUBLE, j TEXT CHARACTER SET sjis) ENGINE=InnoDB",
)
EVERYTHING = bytes(range(256)) + b"'\\'\\\\"


def text(value: bytes) -> Typed:
    return ColumnType.VAR_STRING, lenenc_bytes(value)


def blob(value: bytes, kind: int = ColumnType.BLOB) -> Typed:
    return kind, lenenc_bytes(value)


def double(value: float) -> Typed:
    return ColumnType.DOUBLE, struct.pack("<d", value)


def long(value: int) -> Typed:
    return ColumnType.LONG, struct.pack("<i", value)


def moment(kind: int, *parts: int) -> Typed:
    packed = struct.pack("<HBB", *parts[:3]) + bytes(parts[3:6])
    return kind, lenenc_bytes(packed + b"".join(struct.pack("<I", p) for p in parts[6:]))


COLUMNS: dict[bytes, list[Typed]] = {
    b"a": [
        text("it's \\ ünï 😀 \0\n\r\x1a\"".encode()),
        text(b""),
        double(100.0),
        (ColumnType.NULL, None),
        (ColumnType.NEWDECIMAL, lenenc_bytes(b"1.50")),
        moment(ColumnType.DATETIME, 2024, 2, 29, 1, 2, 3, 4),
    ],
    b"b": [
        blob(EVERYTHING),
        blob(b"\xe4\xbf", ColumnType.LONG_BLOB),
        text(b"\xff\xfe'"),
        blob(b""),
    ],
    b"d": [
        double(0.1),
        double(-2.25e-20),
        double(1.7976931348623157e308),
        (ColumnType.FLOAT, struct.pack("<f", 1.1)),
        long(-5),
    ],
    b"n": [
        (ColumnType.NEWDECIMAL, lenenc_bytes(b"-000123456789012345678.123456")),
        double(0.1),
        (0, lenenc_bytes(b"1e3")),
    ],
    b"i": [
        (ColumnType.LONGLONG, struct.pack("<q", -(2**63))),
        (ColumnType.TINY, b"\x80"),
        text(b"17"),
    ],
    b"u": [(ColumnType.LONGLONG | UNSIGNED, b"\xff" * 8), (ColumnType.TINY | UNSIGNED, b"\xff")],
    b"da": [moment(ColumnType.DATE, 2024, 2, 29), text(b"2024-02-28")],
    b"dt": [
        moment(ColumnType.DATETIME, 2024, 2, 29, 1, 2, 3, 4),
        moment(ColumnType.DATETIME, 2024, 2, 29, 1, 2, 3),
        moment(ColumnType.DATETIME, 2024, 2, 29),
    ],
    b"ti": [
        (ColumnType.TIME, b"\x0c\1\1\0\0\0\1\2\3\5\0\0\0"),
        (ColumnType.TIME, b"\x08\0\x22\0\0\0\x16\x3b\x3b"),
        (ColumnType.TIME, b"\0"),
    ],
}


def history(client: PreparedClient) -> None:
    """Whatever a program may send."""
    for sql in SCHEMA:
        client.run(sql)
    for mode in ("", "NO_BACKSLASH_ESCAPES", "ANSI_QUOTES"):
        client.run(f"SET sql_mode='{mode}'")
        for column, values in COLUMNS.items():
            for value in values:
                client.execute(b"INSERT INTO t (%b) VALUES (?)" % column, value)
        client.execute(b"INSERT INTO t (a,third) VALUES ('?', ?/3)", double(1.0))
        client.execute(b"INSERT INTO t (a) VALUES (CONCAT(?,?))", text(b"a'"), long(-1))
        client.execute(b"UPDATE t SET i=i-? WHERE id=?", long(-1), long(1))
        client.execute(b"DELETE FROM t WHERE id=? OR id=?", long(3), long(-4))
    client.run("SET sql_mode=''")
    client.run("SET NAMES latin1")
    client.execute(b"INSERT INTO t (a) VALUES (?)", text(b"\xe4'\\"))
    client.run("SET NAMES sjis")
    client.execute(b"INSERT INTO t (j) VALUES (?)", text(b"\x83\x5c'\\"))
    client.execute(b"INSERT INTO t (b) VALUES (?)", blob(b"\x83\x5c'\\\0\xff"))
    client.run("SET NAMES utf8mb4")
    client.run("SET @v = 'it''s', @n = 1.50")
    client.run("PREPARE s FROM 'INSERT INTO t (a, n) VALUES (?, ?)'")
    client.run("EXECUTE s USING @v, @n")
    client.run("EXECUTE IMMEDIATE 'INSERT INTO t (a) VALUES (?)' USING 'x'")
    client.execute_bulk(
        b"INSERT INTO t (i, a) VALUES (?, ?)",
        (ColumnType.LONG, ColumnType.VAR_STRING),
        [b"\0" + struct.pack("<i", 7) + b"\0\1x", b"\1\2", b"\3\0\2it"],
    )


QUESTION = "SELECT id, HEX(a), HEX(b), d, n, i, u, da, dt, ti, third, HEX(j) FROM d.t ORDER BY id"


def rows(server: MariaDB) -> list[object]:
    return [tuple(row.values()) for row in server.q(QUESTION)]


def test_replicas_have_what_was_sent(
    binlog_server: MakeBinlogServer, make_upstream: MakeMariaDB, make_replica: MakeMariaDB
) -> None:
    account = Credentials("dba", "secret")
    server = binlog_server(
        users={"dba": {"password": "secret", "grants": ["ALL PRIVILEGES"]}}, server_id=4711
    )
    oracle = make_upstream()
    for host, port, who in (
        (server.host, server.port, account),
        (oracle.host, oracle.port, Credentials("root", "")),
    ):
        with PreparedClient(host, port, who) as client:
            history(client)
    replica = make_replica().follow(server)
    ((position,),) = (row.values() for row in server.q("SELECT @@gtid_binlog_pos"))
    replica.wait_gtid(position)
    assert rows(replica) == rows(oracle)
    assert len(rows(replica)) > 80
