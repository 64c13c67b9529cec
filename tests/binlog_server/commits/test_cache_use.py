"""Binlog_cache_use and its siblings: each case was tried on MariaDB 10.11 and 11.8, row format."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pymysql
import pytest

from binlog_server.accounts.users import Account
from binlog_server.app.in_process import running_server

ROOT = {"root": Account("p", frozenset({"ALL PRIVILEGES"}))}
LARGE = "REPEAT('x', 100000)"
# Statements, and by how much they count: cache, disk, cache of tables without transactions, disk.
CASES: list[tuple[tuple[int, int, int, int], tuple[str, ...]]] = [
    ((0, 0, 0, 0), ("CREATE TABLE d.a (a INT PRIMARY KEY, b LONGTEXT)",)),
    ((0, 0, 0, 0), ("CREATE TABLE d.m (a INT PRIMARY KEY, b LONGTEXT) ENGINE=MyISAM",)),
    ((1, 0, 0, 0), ("INSERT INTO d.a VALUES (1, 'x')",)),
    ((1, 1, 0, 0), (f"INSERT INTO d.a VALUES (2, {LARGE})",)),
    ((1, 0, 0, 0), ("BEGIN", "INSERT INTO d.a VALUES (3, 'x'), (4, 'x')", "COMMIT")),
    ((1, 1, 0, 0), ("BEGIN", f"INSERT INTO d.a VALUES (5, {LARGE})", "COMMIT")),
    ((1, 0, 0, 0), ("BEGIN", "INSERT INTO d.a VALUES (6, 'x')", "ROLLBACK")),
    ((1, 1, 0, 0), ("BEGIN", f"INSERT INTO d.a VALUES (6, {LARGE})", "ROLLBACK")),
    ((0, 0, 0, 0), ("BEGIN", "SELECT 1", "COMMIT")),
    ((0, 0, 0, 0), ("UPDATE d.a SET b = 'q' WHERE a = 999",)),
    ((0, 0, 1, 0), ("INSERT INTO d.m VALUES (1, 'x')",)),
    ((0, 0, 1, 1), (f"INSERT INTO d.m VALUES (2, {LARGE})",)),
    (
        (1, 0, 1, 0),
        ("BEGIN", "INSERT INTO d.m VALUES (3, 'x')", "INSERT INTO d.a VALUES (7, 'x')", "COMMIT"),
    ),
    (
        (1, 0, 0, 0),
        (
            "XA START 'x'",
            "INSERT INTO d.a VALUES (8, 'x')",
            "XA END 'x'",
            "XA COMMIT 'x' ONE PHASE",
        ),
    ),
    (
        (1, 0, 0, 0),
        (
            "XA START 'x'",
            "INSERT INTO d.a VALUES (9, 'x')",
            "XA END 'x'",
            "XA PREPARE 'x'",
            "XA ROLLBACK 'x'",
        ),
    ),
    ((1, 0, 0, 0), ("CREATE TABLE d.c (a INT PRIMARY KEY) AS SELECT 1 AS a",)),
    ((0, 0, 0, 0), ("TRUNCATE d.c",)),
    ((1, 0, 0, 0), ("INSERT IGNORE INTO d.a VALUES (20, 'x'), (20, 'y')",)),
]


@pytest.fixture(scope="module", params=["innodb", ""])
def client(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Any]:
    path: Path = tmp_path_factory.mktemp("cache-use")
    options = {
        "server_id": 1,
        "users": ROOT,
        "local_tables": True,
        "binlog_storage_engine": request.param,
    }
    with (
        running_server(
            path / "a", innodb_log_file_size=4 << 20, max_binlog_size=1 << 20, **options
        ) as server,
        contextlib.closing(
            pymysql.connect(
                host="127.0.0.1", port=server.port, user="root", password="p", autocommit=True
            )
        ) as made,
        made.cursor() as cursor,
    ):
        cursor.execute("CREATE DATABASE d")
        yield cursor


def counted(client: Any, scope: str = "GLOBAL") -> list[int]:
    client.execute(f"SHOW {scope} STATUS LIKE 'Binlog%cache%'")
    found = dict(client.fetchall())
    names = ("cache_use", "cache_disk_use", "stmt_cache_use", "stmt_cache_disk_use")
    return [int(found[f"Binlog_{name}"]) for name in names]


@pytest.mark.long
def test_as_a_mariadb_counts(client: Any) -> None:
    differences = []
    for expected, statements in CASES:
        before = counted(client)
        for statement in statements:
            client.execute(statement)
        found = tuple(now - then for now, then in zip(counted(client), before, strict=True))
        if found != expected:
            differences.append((statements, found, expected))
    assert not differences
    with pytest.raises(pymysql.err.IntegrityError):
        client.execute("INSERT INTO d.a VALUES (21, 'x'), (21, 'y')")
    assert counted(client) == counted(client, "SESSION") == [11, 3, 3, 1]
    client.execute("FLUSH STATUS")
    assert counted(client)[0] == 11
    client.execute("FLUSH GLOBAL STATUS")
    assert counted(client) == [0, 0, 0, 0]
