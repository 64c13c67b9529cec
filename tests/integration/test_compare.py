"""`compare`, `find` and `events` at the URL of a real MariaDB, and of a relay that follows it."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

from binlog_server.testing.sql_server import url
from tests.integration.pipeline.test_server_source import some_history
from tests.integration.test_relay_sql import ADMIN
from tests.integration.test_seeding import command
from tests.kit.backends import Backend
from tests.kit.fixtures import MakeMariaDB, MakeRelay

NOT_VERIFIED = "--skip-ssl-verify-server-cert"


@pytest.mark.any_version
def test_a_mariadb_and_its_relay(backend: Backend, make_relay: MakeRelay) -> None:
    """Several domains and files, XA, an event larger than a packet, groups in parts; then what one does not have."""
    upstream, relay = make_relay(table="", users=ADMIN)
    some_history(upstream)
    relay.wait_position(upstream.gtid_binlog_pos)
    done = command("compare", url(upstream), relay.url, NOT_VERIFIED, "--json")
    assert done.returncode == 0, done.stdout + done.stderr
    told = {one["domain"]: one for one in json.loads(done.stdout)["domains"]}
    assert set(told) == {0, 7}
    assert not any(one["only_first"] or one["only_second"] for one in told.values())
    assert command("compare", relay.url, relay.directory, NOT_VERIFIED).returncode == 0

    relay.script("STOP SLAVE")
    upstream.script("FLUSH BINARY LOGS", "DROP TABLE d.t")
    done = command("compare", url(upstream), relay.url, NOT_VERIFIED, "--json")
    (domain, _) = json.loads(done.stdout)["domains"]
    assert (done.returncode, domain["only_first"]) == (0, 1)
    done = command("find", url(upstream), NOT_VERIFIED, "--table", "d.t", "--op", "drop", "--json")
    found = json.loads(done.stdout)
    assert found["behind"] == upstream.gtid_binlog_pos
    assert found["statement"].startswith("DROP TABLE")

    upstream.script(f"PURGE BINARY LOGS TO '{found['file']}'")
    done = command("compare", url(upstream), relay.url, NOT_VERIFIED)
    assert (done.returncode, "no group in common" in done.stderr) == (2, True)


@pytest.mark.any_version
def test_a_mariadb_is_followed(backend: Backend, make_upstream: MakeMariaDB) -> None:
    """Past its restart, each row once; who asks for the tables of one database gets no others."""
    upstream = make_upstream()
    upstream.make_table()
    position = upstream.gtid_binlog_pos
    arguments = ("--follow", "--json", "--start-position", position, "--database", "d")
    program = (sys.executable, "-m", "binlog_server", "events", url(upstream), NOT_VERIFIED)
    with subprocess.Popen((*program, *arguments), stdout=subprocess.PIPE, text=True) as following:
        upstream.script("INSERT INTO d.t (a) VALUES ('first')")
        seen = [rows_of(following)]
        upstream.restart()
        upstream.script("CREATE DATABASE other", "CREATE TABLE other.t (a INT)")
        upstream.script("INSERT INTO other.t VALUES (1)", "INSERT INTO d.t (a) VALUES ('second')")
        seen.append(rows_of(following))
        following.terminate()
    assert [[row["after"]["@2"] for row in rows] for rows in seen] == [["first"], ["second"]]


VALUES = {
    "id INT PRIMARY KEY": ("7", 7),
    "tiny TINYINT UNSIGNED": ("255", 255),
    "large BIGINT UNSIGNED": ("18446744073709551615", 2**64 - 1),
    "f FLOAT": ("0.1", 0.1),
    "d DECIMAL(20,3)": ("-12345678901234567.891", "-12345678901234567.891"),
    "one BIT(1)": ("b'1'", True),
    "bits BIT(12)": ("b'100000000011'", "Awg="),
    "c CHAR(5) CHARACTER SET latin1": ("'é'", "é"),
    "bin BINARY(3)": ("'a'", "YQAA"),
    "j JSON": ("'{\"a\": 1}'", '{"a": 1}'),
    "e ENUM('x','ä') CHARACTER SET utf8mb4": ("'ä'", "ä"),
    "s SET('p','q','r')": ("'p,r'", "p,r"),
    "day DATE": ("'2024-02-29'", 19782),
    "at DATETIME": ("'2024-02-29 12:00:00'", 1_709_208_000_000),
    "at6 DATETIME(6)": ("'2024-02-29 12:00:00.000001'", 1_709_208_000_000_001),
    "ts TIMESTAMP(2) NULL": ("'2024-02-29 12:00:00.50'", "2024-02-29T12:00:00.50Z"),
    "t TIME(1)": ("'-01:00:00.5'", -3_600_500_000),
    "y YEAR": ("2024", 2024),
    "u UUID": ("'00000000-0000-0000-0000-000000000001'", "AAAAAAAAAAAAAAAAAAAAAQ=="),
    "i INET6": ("'::1'", "AAAAAAAAAAAAAAAAAAAAAQ=="),
    "g POINT": ("POINT(1,1)", {"wkb": "AQEAAAAAAAAAAADwPwAAAAAAAPA/", "srid": None}),
    "nothing INT": ("NULL", None),
}


@pytest.mark.any_version
def test_change_messages_of_a_mariadb(backend: Backend, make_upstream: MakeMariaDB) -> None:
    upstream = make_upstream("--binlog-row-metadata=FULL")
    upstream.script(
        "SET time_zone='+00:00'",
        "CREATE DATABASE d",
        f"CREATE TABLE d.t ({', '.join(VALUES)})",
        f"INSERT INTO d.t VALUES ({', '.join(sql for sql, _ in VALUES.values())})",
        "UPDATE d.t SET id = 8",
        "XA START 'x'",
        "DELETE FROM d.t",
        "XA END 'x'",
        "XA PREPARE 'x'",
        "XA COMMIT 'x'",
    )
    arguments = ("--debezium", "--topic-prefix", "p", "--table", "d.t")
    done = command("events", url(upstream), NOT_VERIFIED, *arguments)
    assert done.returncode == 0, done.stderr
    _, created, inserted, gone, tombstone, moved, deleted, last = map(
        json.loads, done.stdout.splitlines()
    )
    assert created["value"]["ddl"].startswith("CREATE TABLE d.t")
    want = {declared.split()[0]: value for declared, (_, value) in VALUES.items()}
    assert inserted["key"] == {"id": 7}
    assert inserted["value"]["after"] == want
    assert inserted["value"]["source"]["db"] == "d"
    assert (gone["key"], gone["value"]["op"]) == ({"id": 7}, "d")
    assert (tombstone["key"], tombstone["value"]) == ({"id": 7}, None)
    assert (moved["key"], moved["value"]["after"]) == ({"id": 8}, {**want, "id": 8})
    assert (deleted["key"], deleted["value"]["before"]["id"]) == ({"id": 8}, 8)
    assert (
        deleted["value"]["transaction"]["id"] == last["headers"]["gtid"] == upstream.gtid_binlog_pos
    )


def rows_of(following: subprocess.Popen[str]) -> list[dict[str, Any]]:
    """The rows of the next event that has some."""
    assert following.stdout is not None
    for line in following.stdout:
        if rows := json.loads(line).get("rows"):
            return list(rows)
    raise AssertionError("it has ended")
