"""An open temporary table on the upstream, in statement format: the replica has it too.

A format description with a creation time makes a replica drop its temporary tables. We send one
where our upstream restarted, and nowhere else: our own restart means nothing to the tables.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import pytest

from binlog_server.testing.mariadb import MariaDB
from binlog_server.testing.waiting import until
from tests.integration import store_files
from tests.integration.load import assert_equal
from tests.integration.raw_client import all_events, start_markers
from tests.integration.test_restart import NO_GTID_INDEX
from tests.kit.fixtures import MakeMariaDB, MakeProxiedRelay, MakeRelay

pytestmark = [pytest.mark.each_version, pytest.mark.by_turns(2)]


TEMPORARY = (
    "SET SESSION binlog_format=STATEMENT",
    "CREATE TEMPORARY TABLE d.temporary (a VARCHAR(200))",
    "INSERT INTO d.temporary VALUES ('one'), ('two')",
)


def open_tables(replica: MariaDB) -> int:
    return int(replica.q("SHOW STATUS LIKE 'Slave_open_temp_tables'")[0]["Value"])


@contextlib.contextmanager
def temporary_table(upstream: MariaDB, replica: MariaDB) -> Iterator[Any]:
    """A session of the upstream with one; the replica has it, too."""
    with upstream.connect() as connection, connection.cursor() as cursor:
        for sql in TEMPORARY:
            cursor.execute(sql)
        replica.wait_gtid(upstream.gtid_binlog_pos)
        assert open_tables(replica) == 1
        yield cursor


@pytest.mark.any_version
def test_survive_our_restarts(
    backend: object, make_proxied_relay: MakeProxiedRelay, make_replica: MakeMariaDB
) -> None:
    upstream, proxy, server = make_proxied_relay("--binlog-format=STATEMENT", NO_GTID_INDEX)
    replica = make_replica().follow(server)
    with temporary_table(upstream, replica) as cursor:
        for disturb in (server.restart, server.kill, proxy.cut, server.restart):
            disturb()
            if not server.alive():
                server.start()
            cursor.execute("INSERT INTO d.t (a) SELECT a FROM d.temporary")
            assert_equal(upstream, replica)
            assert open_tables(replica) == 1
        assert replica.value("SELECT COUNT(*) FROM d.t") == 8
        assert len(start_markers(all_events(server))) == 1
        # One that comes from the beginning makes it at its place.
        late = make_replica().follow(server)
        assert_equal(upstream, late)
        assert open_tables(late) == 1
        last = upstream.gtid_binlog_pos
    until(lambda: upstream.gtid_binlog_pos != last, "it is dropped")
    assert_equal(upstream, replica, late)
    assert open_tables(replica) == open_tables(late) == 0


@pytest.mark.any_version
def test_end_where_the_upstream_restarts(
    backend: object, make_proxied_relay: MakeProxiedRelay, make_replica: MakeMariaDB
) -> None:
    upstream, proxy, server = make_proxied_relay("--binlog-format=STATEMENT", NO_GTID_INDEX)
    replica = make_replica().follow(server)
    with temporary_table(upstream, replica):
        upstream.kill()  # nobody logs a DROP
    upstream.start()
    until(lambda: open_tables(replica) == 0, "the replica has dropped its table")

    def following() -> int:
        return server.log().count("INFO following")

    # However often we come back before anything else happens, it is one start.
    for disturb in (proxy.cut, server.restart, proxy.cut, server.kill, proxy.cut):
        seen = following()
        disturb()
        if not server.alive():
            server.start()
        until(lambda seen=seen: following() > seen, "following again")  # type: ignore[misc]
    upstream.q("INSERT INTO d.t (a) VALUES ('after')")
    assert_equal(upstream, replica)
    proxy.cut()
    upstream.q("INSERT INTO d.t (a) VALUES ('after a cut')")
    assert_equal(upstream, replica)
    assert len(start_markers(all_events(server))) == 2
    server.stop()
    assert len(start_markers(store_files.payloads(server.directory))) == 2


def test_end_as_with_a_real_master(
    backend: object, make_relay: MakeRelay, make_replica: MakeMariaDB
) -> None:
    """11.8 with its GTID index does not say that it started anew; then we do not know either."""
    upstream, server = make_relay("--binlog-format=STATEMENT")
    replicas = [make_replica().follow(upstream), make_replica().follow(server)]
    with upstream.connect() as connection, connection.cursor() as cursor:
        for sql in TEMPORARY:
            cursor.execute(sql)
        for replica in replicas:
            replica.wait_gtid(upstream.gtid_binlog_pos)
        upstream.kill()
    upstream.start()
    upstream.q("INSERT INTO d.t (a) VALUES ('after')")
    assert_equal(upstream, *replicas)
    assert open_tables(replicas[1]) == open_tables(replicas[0])
