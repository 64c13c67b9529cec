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


def rows_of(following: subprocess.Popen[str]) -> list[dict[str, Any]]:
    """The rows of the next event that has some."""
    assert following.stdout is not None
    for line in following.stdout:
        if rows := json.loads(line).get("rows"):
            return list(rows)
    raise AssertionError("it has ended")
