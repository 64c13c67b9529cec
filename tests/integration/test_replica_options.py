"""What replicas can ask for: an end (UNTIL), heartbeats, filtering at the master."""

from __future__ import annotations

import pytest

from binlog_server.testing.mariadb import MariaDB
from binlog_server.testing.waiting import until
from tests.integration.load import assert_equal, insert
from tests.integration.raw_client import RawClient
from tests.integration.test_normal_form import groups
from tests.kit.fixtures import MakeMariaDB, MakeRelay

pytestmark = [pytest.mark.each_version, pytest.mark.by_turns(2)]


HEARTBEATS = "SHOW STATUS LIKE 'Slave_received_heartbeats'"


def wait_until_reached(replica: MariaDB) -> None:
    replica.wait("SHOW SLAVE STATUS", lambda rows: rows[0]["Slave_SQL_Running"] == "No", timeout=20)
    status = replica.replica_status()
    assert (status["Last_SQL_Errno"], status["Last_IO_Errno"]) == (0, 0)


@pytest.mark.proves("UNTIL")
@pytest.mark.proves("SQL_BEFORE_GTIDS", versions=("11.8",))
def test_until(backend: object, make_relay: MakeRelay, make_replica: MakeMariaDB) -> None:
    upstream, server = make_relay()
    first = insert(upstream, 5)
    second = insert(upstream, 5)
    insert(upstream, 5)
    replica = make_replica().follow(server, start=False)
    replica.q(f"START SLAVE UNTIL master_gtid_pos='{first}'")
    wait_until_reached(replica)
    assert replica.gtid_slave_pos == first
    assert replica.value("SELECT COUNT(*) FROM d.t") == 5
    replica.q("STOP SLAVE")

    newest = make_replica(version="11.8").follow(server, start=False)
    newest.q(f"START SLAVE UNTIL SQL_BEFORE_GTIDS='{second}'")
    wait_until_reached(newest)
    domain, server_id, seq_no = second.split("-")
    assert newest.gtid_slave_pos == f"{domain}-{server_id}-{int(seq_no) - 1}"
    assert newest.value("SELECT COUNT(*) FROM d.t") == 9
    newest.q("STOP SLAVE")

    # One that is not written yet: it waits for it.
    future = f"{domain}-{server_id}-{int(seq_no) + 10}"
    replica.q(f"START SLAVE UNTIL master_gtid_pos='{future}'")
    replica.wait_gtid(upstream.gtid_binlog_pos)
    insert(upstream, 10)
    wait_until_reached(replica)
    assert replica.gtid_slave_pos == future
    for stopped in (replica, newest):
        stopped.script("STOP SLAVE", "START SLAVE")
    assert_equal(upstream, replica, newest)


@pytest.mark.by_turns(2)
@pytest.mark.proves("heartbeats")
def test_heartbeats(backend: object, make_relay: MakeRelay, make_replica: MakeMariaDB) -> None:
    upstream, server = make_relay()
    replica = make_replica("--slave-net-timeout=4", "--slave-parallel-threads=2").follow(
        server, options="MASTER_SSL=0, MASTER_HEARTBEAT_PERIOD=0.2"
    )
    replica.wait_gtid(insert(upstream, 50))
    before = int(replica.q(HEARTBEATS)[0]["Value"])
    # 22 periods are 4.4 s: longer than the replica bears silence.
    replica.wait(HEARTBEATS, lambda rows: int(rows[0]["Value"]) >= before + 22)
    assert server.log().count("dump starts") == 1
    # A position in one of them that it takes for wrong would stop the thread.
    for rows in (1, 100):
        insert(upstream, rows)
        assert_equal(upstream, replica)
        before = int(replica.q(HEARTBEATS)[0]["Value"])
        replica.wait(HEARTBEATS, lambda rows: int(rows[0]["Value"]) >= before + 2)  # noqa: B023
    assert replica.replica_status()["Slave_IO_Running"] == "Yes"
    assert server.log().count("dump starts") == 1


@pytest.mark.proves("FILTER_ON_MASTER")
def test_filter_on_master_beside_semi_sync(
    backend: object, make_relay: MakeRelay, make_replica: MakeMariaDB
) -> None:
    upstream, server = make_relay()
    filtered = make_replica("--replicate-events-marked-for-skip=FILTER_ON_MASTER").follow(server)
    semi_sync = make_replica("--rpl-semi-sync-slave-enabled=1").follow(server)
    for skip in (0, 1, 0, 1):
        upstream.script(
            f"SET SESSION skip_replication={skip}",
            f"INSERT INTO d.t (a) VALUES ('skip {skip}')",
            "BEGIN",
            f"INSERT INTO d.t (a) VALUES ('skip {skip}')",
            f"INSERT INTO d.t (a) VALUES ('skip {skip}')",
            "COMMIT",
        )
    insert(upstream, 1)
    assert_equal(upstream, semi_sync)  # it acknowledges, although nobody waits for that
    filtered.wait_gtid(upstream.gtid_binlog_pos)
    assert filtered.value("SELECT COUNT(*) FROM d.t WHERE a = 'skip 0'") == 6
    assert filtered.value("SELECT COUNT(*) FROM d.t WHERE a = 'skip 1'") == 0
    assert "rpl_semi_sync" not in server.log()
    # The replica would leave them out by itself as well; they are not even sent, as by the upstream.
    sent = []
    for source, checksum in ((upstream, True), (server, False)):
        with RawClient(source) as client:
            client.query("SET skip_replication=1")
            sent.append(groups(list(client.dump("")), checksum=checksum))
    assert sent[0] == sent[1]
    assert len(sent[1]) == 2 + 4 + 1
    semi_sync.script("STOP SLAVE", "START SLAVE")
    filtered.script("STOP SLAVE", "START SLAVE")
    insert(upstream, 1)
    assert_equal(upstream, semi_sync)
    filtered.wait_gtid(upstream.gtid_binlog_pos)


@pytest.mark.proves("compressed")
def test_compression_asked_for(
    backend: object, make_relay: MakeRelay, make_replica: MakeMariaDB
) -> None:
    """We do not offer it, so the replica goes without; without ANNOTATE events as well."""
    upstream, server = make_relay()
    replica = make_replica(
        "--slave-compressed-protocol=1", "--replicate-annotate-row-events=0"
    ).follow(server)
    insert(upstream)
    assert_equal(upstream, replica)
    until(lambda: "dump starts" in server.log(), "its dump")
