"""kill -9 of a replica and of our server, in the middle of a load."""

from __future__ import annotations

import random

import pytest
from binlog_protocol.gtid import BinlogState, SlavePosition

from binlog_server.testing.mariadb import MariaDB
from binlog_server.testing.waiting import until
from tests.integration import store_files
from tests.integration.load import assert_equal, load
from tests.kit.fixtures import MakeMariaDB, MakeProxy, MakeRelay

pytestmark = pytest.mark.any_version

STRICT = ("--log-bin=replica-bin", "--log-slave-updates=1", "--gtid-strict-mode=1")
"""A replica that stops (1950) at a group that comes twice, and shows what it got in its binlog."""

MB = 1_000_000


def contains(state: BinlogState, position: SlavePosition) -> bool:
    return all((state.get(g.domain_id, g.server_id) or 0) >= g.seq_no for g in position)


def received(replica: MariaDB) -> SlavePosition:
    """What the replica has been sent, applied or not."""
    return SlavePosition.parse(str(replica.replica_status()["Gtid_IO_Pos"]))


@pytest.mark.any_version
def test_kill_of_a_replica(
    backend: object, make_relay: MakeRelay, make_replica: MakeMariaDB
) -> None:
    upstream, server = make_relay(max_binlog_size=262144)
    replica = make_replica(*STRICT, "--relay-log-recovery=1").follow(server)
    other = make_replica().follow(server)
    with load(upstream) as running:
        for _ in range(2):
            running.wait_more(30)
            replica.kill()
            running.wait_more(30)
            replica.start()
            replica.q("START SLAVE")
            replica.wait_running()
    assert_equal(upstream, replica, other)
    assert replica.gtid_binlog_state == upstream.gtid_binlog_state


@pytest.mark.any_version
def test_kill_of_our_server(
    backend: object, make_relay: MakeRelay, make_replica: MakeMariaDB, rng: random.Random
) -> None:
    upstream, server = make_relay(max_binlog_size=262144)
    replicas = [make_replica(*STRICT, version=v).follow(server) for v in ("10.11", "11.8")]
    assert_equal(upstream, *replicas)  # each has been sent something
    with load(upstream) as running:
        for _ in range(3):
            running.wait_more(rng.randrange(5, 100))
            replicas[0].wait_running()
            before = [received(replica) for replica in replicas]
            server.kill()
            # What was sent is in the store: no replica may be ahead of it after a crash.
            state = store_files.binlog_state(server.directory)
            for replica, position in zip(replicas, before, strict=True):
                assert len(position) == 1
                assert contains(state, position)
                assert contains(state, received(replica))
            server.start()
    assert_equal(upstream, *replicas)
    for replica in replicas:
        assert replica.gtid_binlog_state == upstream.gtid_binlog_state
        assert replica.replica_status()["Last_SQL_Errno"] == 0
    server.stop()
    assert str(store_files.binlog_state(server.directory)) == upstream.gtid_binlog_state


@pytest.mark.any_version
def test_kill_inside_a_large_group(
    backend: object, make_relay: MakeRelay, make_replica: MakeMariaDB, chaos_proxy: MakeProxy
) -> None:
    """The replica has got half of it: the same group comes again, whole, and is applied once."""
    upstream, server = make_relay(table="")
    upstream.script("CREATE DATABASE d", "CREATE TABLE d.t (id INT PRIMARY KEY, a MEDIUMBLOB)")
    proxy = chaos_proxy(server)
    parallel = ("--slave-parallel-threads=2", "--slave-parallel-mode=optimistic")
    replica = make_replica(*STRICT, *parallel).follow(server, port=proxy.port)
    replica.wait_gtid(upstream.gtid_binlog_pos)
    replica.q("STOP SLAVE")
    until(lambda: not proxy.connections, "the old connection has ended")
    upstream.script(
        "BEGIN",
        *(f"INSERT INTO d.t VALUES ({i}, REPEAT('x', {MB}))" for i in range(12)),
        "COMMIT",
        "INSERT INTO d.t VALUES (12, 'next')",
    )
    server.wait_position(upstream.gtid_binlog_pos)
    proxy.down.then_refuse = True  # or it would get all of it before the server is killed
    proxy.down.cut_after = 5 * MB
    replica.q("START SLAVE")
    for megabytes in (3, 8, 11):
        until(lambda: proxy.down.cut_after is None, "a cut inside the group")
        server.kill()
        proxy.down.cut_after = megabytes * MB
        server.start()
        proxy.refuse = False
    until(lambda: proxy.down.cut_after is None, "the last cut")
    proxy.refuse = False
    assert_equal(upstream, replica)
    assert replica.gtid_binlog_state == upstream.gtid_binlog_state
