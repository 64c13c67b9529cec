"""What MariaDB wants for each statement of docs/rights.md. `BINLOG_TEST_WRITE=1` keeps what it says, for the page."""

from __future__ import annotations

import json
import os

import pymysql
import pytest

from binlog_server.testing.mariadb import MariaDB
from tests.binlog_server.rights.examples import EXAMPLES, VICTIM, Example
from tests.binlog_server.rights.mariadb import (
    FILE,
    HIDDEN,
    NOBODY,
    NOTHING,
    UNKNOWN,
    needed,
    recorded,
)
from tests.binlog_server.rights.page import SAME
from tests.kit.backends import Backend
from tests.kit.fixtures import MakeMariaDB


@pytest.mark.each_version
def test_what_mariadb_needs(backend: Backend, make_upstream: MakeMariaDB) -> None:
    upstream = make_upstream()
    for name in (NOBODY, VICTIM):
        upstream.q(f"CREATE USER {name} IDENTIFIED BY 'x'")
    answers = {example.shown: asked(upstream, example) for example in EXAMPLES}
    if os.environ.get("BINLOG_TEST_WRITE"):
        FILE.write_text(json.dumps({**recorded(), backend.version: answers}, indent=1) + "\n")
    assert answers == recorded()[backend.version]


def asked(upstream: MariaDB, example: Example) -> str:
    """As an account without privileges, on connections of their own."""
    if example.only_here:
        return UNKNOWN
    with (
        upstream.connect(user=VICTIM, password="x") as other,
        upstream.connect(user=NOBODY, password="x") as connection,
    ):
        try:
            if isinstance(example.said, bytes):
                connection._execute_command(example.said[0], example.said[1:])
                connection._read_packet()
            else:
                with connection.cursor() as cursor:
                    cursor.execute(example.said.replace("{victim}", str(other.thread_id())))
                    if "PROCESSLIST" in example.said:
                        seen = {row["Id"] for row in cursor.fetchall()}
                        return NOTHING if other.thread_id() in seen else HIDDEN
            if example.said == f"KILL USER {VICTIM}":
                other.ping(reconnect=False)
                return HIDDEN  # it was done to nobody
        except pymysql.Error as error:
            return needed(int(error.args[0]), str(error.args[1]))
        return NOTHING


@pytest.mark.each_version
def test_privileges_that_mariadb_does_not_name(
    backend: Backend, make_upstream: MakeMariaDB
) -> None:
    upstream = make_upstream()
    for name in (NOBODY, VICTIM):
        upstream.q(f"CREATE USER {name} IDENTIFIED BY 'x'")
    for example in EXAMPLES:
        if example.shown in SAME:
            upstream.q(f"GRANT {example.needed[-1]} ON *.* TO {NOBODY}")
            assert asked(upstream, example) == NOTHING, example
            upstream.q(f"REVOKE ALL PRIVILEGES, GRANT OPTION FROM {NOBODY}")
