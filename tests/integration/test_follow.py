"""The main job: a real upstream, our server, real replicas of both versions with the same tables."""

from __future__ import annotations

import pytest

from tests.integration import store_files
from tests.integration.load import assert_equal, insert, load
from tests.integration.raw_client import start_markers
from tests.integration.test_crash import STRICT
from tests.integration.test_restart import NO_GTID_INDEX
from tests.kit.fixtures import MakeBinlogServer, MakeMariaDB, MakeRelay


@pytest.mark.each_version
@pytest.mark.proves("fresh", "other version", "engine style", "checksum NONE")
def test_fresh_replicas_and_live_tail(
    backend: object, make_relay: MakeRelay, make_replica: MakeMariaDB
) -> None:
    upstream, server = make_relay(server_id=99, max_binlog_size=262144)
    insert(upstream, 100, size=200)
    replicas = [make_replica(version=version).follow(server) for version in ("10.11", "11.8")]
    assert_equal(upstream, *replicas)
    with load(upstream) as running:
        running.wait_more(200)
    assert_equal(upstream, *replicas)
    for replica in replicas:
        # What each row came with is still there: the upstream's GTID, server_id and thread.
        assert replica.gtid_slave_pos == upstream.gtid_binlog_pos
    server.stop()


@pytest.mark.each_version
@pytest.mark.proves("position")
def test_replica_with_a_position(
    backend: object, make_relay: MakeRelay, make_replica: MakeMariaDB
) -> None:
    upstream, server = make_relay(max_binlog_size=262144)
    replica = make_replica().follow(server)
    for _ in range(3):
        replica.wait_gtid(insert(upstream))
        replica.q("STOP SLAVE")
        insert(upstream, 30, size=200)
        replica.q("START SLAVE")
        assert_equal(upstream, replica)

    # Another one, set up from a copy: its data by hand, its position by SET GLOBAL gtid_slave_pos.
    middle = upstream.gtid_binlog_pos
    copy = make_replica()
    copy.script(
        "CREATE DATABASE d",
        "CREATE TABLE d.t (id INT PRIMARY KEY AUTO_INCREMENT, a VARCHAR(200))",
    )
    with copy.connect() as connection, connection.cursor() as cursor:
        for row in upstream.q("SELECT id, a FROM d.t"):
            cursor.execute("INSERT INTO d.t VALUES (%s, %s)", (row["id"], row["a"]))
    insert(upstream)
    copy.q(f"SET GLOBAL gtid_slave_pos='{middle}'")
    copy.follow(server)
    assert_equal(upstream, copy, replica)
    assert f"position '{middle}'" in server.log()


@pytest.mark.each_version
@pytest.mark.proves("strict mode")
def test_stop_and_start_again_and_again(
    backend: object, make_relay: MakeRelay, make_replica: MakeMariaDB
) -> None:
    upstream, server = make_relay()
    replica = make_replica(*STRICT).follow(server)
    with load(upstream):
        for i in range(12):
            threads = ("IO_THREAD", "SQL_THREAD", "")[i % 3]
            replica.script(f"STOP SLAVE {threads}", f"START SLAVE {threads}")
        replica.wait_running()
    assert_equal(upstream, replica)
    # Strict mode would have stopped it at a group that came twice; its own binlog shows each once.
    assert replica.gtid_binlog_state == upstream.gtid_binlog_state


@pytest.mark.each_version
def test_change_of_master(
    backend: object, make_relay: MakeRelay, make_replica: MakeMariaDB
) -> None:
    """A position of the upstream is one of ours, and the other way round."""
    upstream, server = make_relay()
    replica = make_replica(*STRICT).follow(upstream)
    with load(upstream) as running:
        for source in (server, upstream, server):
            running.wait_more(30)
            replica.follow(source)
            # It says that it runs before it has asked for the binlog.
            replica.wait_gtid(upstream.gtid_binlog_pos)
    assert_equal(upstream, replica)
    assert replica.gtid_binlog_state == upstream.gtid_binlog_state
    assert server.log().count("dump starts") == 2


@pytest.mark.any_version
def test_chain_of_servers(
    backend: object,
    make_upstream: MakeMariaDB,
    make_replica: MakeMariaDB,
    binlog_server: MakeBinlogServer,
) -> None:
    upstream = make_upstream(NO_GTID_INDEX)
    first = binlog_server(upstream=upstream, server_id=101, max_binlog_size=262144)
    second = binlog_server(upstream=first, server_id=102, max_binlog_size=524288)
    upstream.make_table()
    replica = make_replica().follow(second)
    with load(upstream) as running:
        running.wait_more(50)
        first.kill()
        first.start()
        running.wait_more(50)
        second.restart()
        running.wait_more(10)
    assert_equal(upstream, replica)
    upstream.kill()
    upstream.start()
    insert(upstream)
    assert_equal(upstream, replica, timeout=40)
    first.stop()
    second.stop()
    # The same groups and the same two starts of the upstream, in the same order.
    stored = store_files.payloads(first.directory)
    assert store_files.payloads(second.directory) == stored
    assert len(start_markers(stored)) == 2
