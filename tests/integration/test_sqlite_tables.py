"""Tables with ENGINE=SQLITE under kill -9: behind each, both engines and a real replica have the same transactions."""

from __future__ import annotations

import contextlib
import threading

import pymysql
import pytest

from binlog_server.testing.waiting import until
from tests.kit.fixtures import MakeBinlogServer, MakeMariaDB
from tests.kit.server import BinlogServer

pytestmark = pytest.mark.any_version

USERS = {"root": {"password": "pw", "grants": ["ALL PRIVILEGES"]}}
SCHEMA = (
    "CREATE DATABASE x",
    "CREATE TABLE x.here (id INT PRIMARY KEY, n INT NOT NULL)",
    "CREATE TABLE x.there (id INT PRIMARY KEY, n INT NOT NULL, UNIQUE KEY (n)) ENGINE=SQLITE",
)
TABLES = "x.here, x.there"


def write(master: BinlogServer, first: int, done: list[int]) -> None:
    """Transactions in both, every third of them by XA, until the server is killed."""
    with contextlib.suppress(pymysql.MySQLError), master.connect() as connection:
        cursor = connection.cursor()
        for number in range(first, first + 1_000_000):
            ends = (f"XA {verb} '{number}'" for verb in ("END", "PREPARE", "COMMIT"))
            is_xa = number % 3 == 0
            for text in (
                f"XA START '{number}'" if is_xa else "BEGIN",
                f"INSERT INTO x.here VALUES ({number}, {number})",
                f"INSERT INTO x.there VALUES ({number}, {number})",
                f"UPDATE x.there SET n = -n WHERE id = {number - 2}",
                f"DELETE FROM x.there WHERE id = {number - 5}",
                f"DELETE FROM x.here WHERE id = {number - 5}",
                *(ends if is_xa else ("COMMIT",)),
            ):
                cursor.execute(text)
            done.append(number)


def test_kills(make_replica: MakeMariaDB, binlog_server: MakeBinlogServer) -> None:
    master = binlog_server(users=USERS, local_tables=True)
    for text in SCHEMA:
        master.q(text)
    replica = make_replica("--gtid-strict-mode=1").follow(master)
    for life in range(3):
        done: list[list[int]] = [[], []]
        writers = [
            threading.Thread(target=write, args=(master, (2 * life + i + 1) * 10_000_000, done[i]))
            for i in range(2)
        ]
        for writer in writers:
            writer.start()
        until(lambda: all(len(one) > 12 for one in done), "some commits")  # noqa: B023
        master.kill()
        for writer in writers:
            writer.join(20)
        master.start()
        for row in master.q("XA RECOVER FORMAT='SQL'"):  # prepared in both, and told to nobody
            master.q(f"XA COMMIT {row['data']}")
        here, there = (
            {row["id"] for row in master.q(f"SELECT id FROM {t}")} for t in TABLES.split(",")
        )
        assert here == there
        assert {one[-1] for one in done} <= here
        replica.wait_gtid(master.gtid_binlog_pos, timeout=60)
        assert replica.q(f"CHECKSUM TABLE {TABLES}") == master.q(f"CHECKSUM TABLE {TABLES}")
