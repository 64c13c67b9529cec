"""Orderly ends: of our server with replicas attached, of the upstream; and one that comes late."""

from __future__ import annotations

import time

import pytest

from binlog_server.testing.waiting import until
from tests.integration.load import assert_equal, insert, load
from tests.integration.raw_client import RawClient, all_events, start_markers
from tests.integration.test_relay_sql import ADMIN
from tests.kit.fixtures import MakeBinlogServer, MakeMariaDB, MakeRelay

pytestmark = pytest.mark.any_version

NO_GTID_INDEX = "--loose-binlog-gtid-index=OFF"
"""11.8 starts a dump by its index behind the format description, and so never says that it began."""


@pytest.mark.proves("reconnect")
def test_clean_shutdown(backend: object, make_relay: MakeRelay, make_replica: MakeMariaDB) -> None:
    upstream, server = make_relay(max_binlog_size=262144)
    replicas = [make_replica().follow(server) for _ in range(2)]
    position = insert(upstream)
    for replica in replicas:
        replica.wait_gtid(position)
    with RawClient(server) as idle, RawClient(server) as client:
        client.start_dump(server_id=7)
        events = client.events()
        next(events)
        with load(upstream) as running:
            running.wait_more(20)
            server.stop()  # and its exit code is 0
            assert list(events)  # ends by EOF, or the client would have raised
            assert idle.socket.recv(100) == b""
    assert "shutdown complete" in server.log()
    server.start()
    # Nobody told the replicas to: they come back by themselves.
    assert_equal(upstream, *replicas)
    for replica in replicas:
        assert replica.replica_status()["Last_IO_Errno"] == 0


def test_upstream_comes_late_and_restarts(
    backend: object,
    make_upstream: MakeMariaDB,
    make_replica: MakeMariaDB,
    binlog_server: MakeBinlogServer,
) -> None:
    upstream = make_upstream(NO_GTID_INDEX)
    upstream.stop()
    server = binlog_server(upstream=upstream)
    replica = make_replica().follow(server)
    until(
        lambda: f"not reached yet: upstream 127.0.0.1:{upstream.port}" in server.log(),
        "a first failure",
    )
    upstream.start()
    upstream.make_table()
    assert_equal(upstream, replica)
    upstream.kill()
    upstream.start()
    insert(upstream)
    assert_equal(upstream, replica)

    def starts() -> int:
        return len(start_markers(all_events(server)))

    assert starts() == 2
    upstream.restart()  # nothing written since the start
    until(lambda: starts() == 3, "following again, and told of the start")
    # Two starts in the same second with nothing between them are told alike, and are one.
    second = int(time.time())
    until(lambda: int(time.time()) > second, "the next second")
    upstream.restart()
    insert(upstream)
    assert_equal(upstream, replica)
    assert starts() == 4
    assert "ERROR" not in server.log()


def test_upstream_that_lost_its_history(
    backend: object, make_relay: MakeRelay, make_replica: MakeMariaDB
) -> None:
    """We stop following with the upstream's own words; what we have is served on."""
    upstream, server = make_relay()
    replica = make_replica().follow(server)
    before = insert(upstream)
    replica.wait_gtid(before)
    server.stop()
    upstream.q("RESET MASTER")
    insert(upstream, 3)
    server.start()
    until(lambda: "stopped following" in server.log(), "giving up")
    (line,) = [line for line in server.log().splitlines() if "stopped following" in line]
    assert "1236" in line
    assert "which is not in the master's binlog" in line
    late = make_replica().follow(server)
    late.wait_gtid(before)
    assert late.gtid_slave_pos == before


def test_what_a_damaged_file_had_is_fetched_again(
    backend: object, make_relay: MakeRelay, make_replica: MakeMariaDB
) -> None:
    """As docs/troubleshooting.md says: without the file and all later ones, once with innodb_force_recovery=6."""
    upstream, server = make_relay(max_binlog_size=65536, users=ADMIN)
    replica = make_replica().follow(server)
    for _ in range(6):
        server.wait_position(insert(upstream, 200))
        server.q("FLUSH BINARY LOGS")
    server.stop()
    files = sorted(server.directory.glob("binlog-*.ibb"))
    away = server.dir / "away"
    away.mkdir()
    for path in files[2:]:
        path.rename(away / path.name)
    server.options["innodb_force_recovery"] = 6
    server.start()
    server.wait_position(upstream.gtid_binlog_pos)
    del server.options["innodb_force_recovery"]
    server.restart()
    assert_equal(upstream, replica, make_replica().follow(server))
