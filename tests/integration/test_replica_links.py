"""Links that are not the ordinary one: heartbeats at the ends of their range, parallel appliers, two masters for one
replica, a cut in the middle of a group."""

from __future__ import annotations

import random

import pytest

from binlog_server.testing.mariadb import MariaDB
from binlog_server.testing.waiting import until
from tests.integration.load import assert_equal, insert, load
from tests.integration.test_crash import STRICT
from tests.integration.test_replica_options import HEARTBEATS
from tests.kit.fixtures import MakeBinlogServer, MakeMariaDB, MakeProxy, MakeRelay

pytestmark = pytest.mark.any_version


def heartbeats(replica: MariaDB) -> int:
    return int(replica.q(HEARTBEATS)[0]["Value"])


@pytest.mark.proves("heartbeats", "no heartbeats")
def test_shortest_heartbeat_period_and_none(
    backend: object, make_relay: MakeRelay, make_replica: MakeMariaDB
) -> None:
    upstream, server = make_relay()
    often = make_replica().follow(server, options="MASTER_SSL=0, MASTER_HEARTBEAT_PERIOD=0.1")
    never = make_replica().follow(server, options="MASTER_SSL=0, MASTER_HEARTBEAT_PERIOD=0")
    for replica in (often, never):
        replica.wait_gtid(insert(upstream))
    before = heartbeats(often)
    until(lambda: heartbeats(often) >= before + 10, "ten heartbeats")
    assert heartbeats(never) == 0
    insert(upstream)
    assert_equal(upstream, often, never)
    assert server.log().count("dump starts") == 2


@pytest.mark.by_turns(2)
@pytest.mark.proves("parallel")
def test_parallel_modes(backend: object, make_relay: MakeRelay, make_replica: MakeMariaDB) -> None:
    """Groups that were committed together upstream: their commit ids have to arrive."""
    upstream, server = make_relay(
        "--binlog-commit-wait-count=2", "--binlog-commit-wait-usec=2000", table=""
    )
    tables = ("d.t", "d.t2")
    for table in tables:
        upstream.make_table(table)
    replica = make_replica("--slave-parallel-threads=4", *STRICT).follow(server)
    for mode in ("conservative", "optimistic", "aggressive", "minimal", "none"):
        replica.script("STOP SLAVE", f"SET GLOBAL slave_parallel_mode='{mode}'", "START SLAVE")
        with load(upstream, tables[0]) as one, load(upstream, tables[1]) as other:
            one.wait_more(20)
            other.wait_more(20)
        assert_equal(upstream, replica)
    assert replica.gtid_binlog_state == upstream.gtid_binlog_state
    together = upstream.q("SHOW GLOBAL STATUS LIKE 'Binlog_group_commits'")[0]["Value"]
    commits = upstream.q("SHOW GLOBAL STATUS LIKE 'Binlog_commits'")[0]["Value"]
    assert int(together) < int(commits)


@pytest.mark.by_turns(2)
@pytest.mark.proves("ignore duplicates", "several domains")
def test_the_same_groups_from_two_servers(
    backend: object,
    make_upstream: MakeMariaDB,
    make_replica: MakeMariaDB,
    binlog_server: MakeBinlogServer,
) -> None:
    """With gtid_ignore_duplicates a replica takes each group from whichever of its masters is first."""
    upstream = make_upstream()
    servers = [binlog_server(upstream=upstream, server_id=n) for n in (101, 102)]
    upstream.make_table()
    replica = make_replica("--gtid-ignore-duplicates=1", *STRICT)
    for name, server in zip("ab", servers, strict=True):
        account = server.account
        replica.q(
            f"CHANGE MASTER '{name}' TO MASTER_HOST='{server.host}', MASTER_PORT={server.port}, "
            f"MASTER_USER='{account.user}', MASTER_PASSWORD='{account.password}', "
            "MASTER_USE_GTID=slave_pos, MASTER_CONNECT_RETRY=1, MASTER_SSL=0"
        )
    replica.q("START ALL SLAVES")
    insert(upstream, 20)
    assert_equal(upstream, replica)
    # One of them goes, the other serves what comes then; back again, it has nothing new.
    servers[0].stop()
    upstream.script("SET SESSION gtid_domain_id=5", "INSERT INTO d.t (a) VALUES ('domain 5')")
    insert(upstream, 20)
    assert_equal(upstream, replica)
    servers[0].start()
    replica.wait(
        "SHOW ALL SLAVES STATUS", lambda rows: all(r["Slave_IO_Running"] == "Yes" for r in rows)
    )
    insert(upstream, 20)
    assert_equal(upstream, replica)
    assert replica.gtid_binlog_state == upstream.gtid_binlog_state
    for status in replica.q("SHOW ALL SLAVES STATUS"):
        assert (status["Last_IO_Errno"], status["Last_SQL_Errno"]) == (0, 0)


@pytest.mark.by_turns(2)
@pytest.mark.proves("cut in a group", "reconnect")
def test_cuts_inside_a_group(
    backend: object,
    make_relay: MakeRelay,
    make_replica: MakeMariaDB,
    chaos_proxy: MakeProxy,
    rng: random.Random,
) -> None:
    """The replica skips what it has of the group when it is sent again: nothing is lost, nothing comes twice."""
    upstream, server = make_relay()
    links = [chaos_proxy(server) for _ in range(2)]
    replicas = [
        make_replica(*STRICT, *flags).follow(server, port=link.port)
        for link, flags in zip(links, ((), ("--slave-parallel-threads=2",)), strict=True)
    ]
    assert_equal(upstream, *replicas)
    for _ in range(2):
        for replica, link in zip(replicas, links, strict=True):
            replica.q("STOP SLAVE")
            # Or the rest of it would meet the cut.
            until(lambda link=link: not link.connections, "the old connection has ended")  # type: ignore[misc]
        # All of the stream but its first thousands of bytes is one group.
        upstream.q("INSERT INTO d.t (a) SELECT REPEAT(seq, 30) FROM d.seq_1_to_10000")
        for replica, link in zip(replicas, links, strict=True):
            link.down.cut_after = rng.randrange(20_000, 200_000)
            replica.q("START SLAVE")
        assert_equal(upstream, *replicas)
        assert [link.down.cut_after for link in links] == [None, None]
    for replica in replicas:
        assert replica.gtid_binlog_state == upstream.gtid_binlog_state
        starts = server.log().count(f"server_id {replica.server_id}, position")
        assert starts == 5, "once to begin with, and twice for each group"
