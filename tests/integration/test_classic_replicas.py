"""The classic style of stream with real replicas: by GTID and by file and position, with checksums and without."""

from __future__ import annotations

import random
from typing import Any

import pytest

from binlog_server.testing.mariadb import MariaDB
from binlog_server.testing.waiting import until
from tests.integration.load import assert_equal, insert, load
from tests.integration.test_replica_options import HEARTBEATS
from tests.kit.fixtures import MakeMariaDB, MakeProxy, MakeRelay

pytestmark = pytest.mark.any_version

USERS = {"old": {"password": "pw", "stream_style": "classic", "grants": ["ALL PRIVILEGES"]}}
OPTIONS = "MASTER_SSL=0, MASTER_HEARTBEAT_PERIOD=0.1"


def heartbeats_go_on(replica: MariaDB) -> None:
    """One at a position that the replica takes for wrong would stop its thread."""
    before = int(replica.q(HEARTBEATS)[0]["Value"])
    replica.wait(HEARTBEATS, lambda rows: int(rows[0]["Value"]) > before + 2)
    assert replica.replica_status()["Slave_IO_Running"] == "Yes"


def place(replica: MariaDB) -> tuple[Any, Any]:
    status = replica.replica_status()
    return status["Master_Log_File"], status["Read_Master_Log_Pos"]


@pytest.mark.by_turns(2)
@pytest.mark.proves("classic style", "classic by file", "checksum CRC32", "checksum NONE")
@pytest.mark.parametrize("checksum", ["CRC32", "NONE"])
def test_by_gtid_and_by_file(
    backend: object, checksum: str, make_relay: MakeRelay, make_replica: MakeMariaDB
) -> None:
    upstream, server = make_relay(users=USERS, max_binlog_size=262144, binlog_checksum=checksum)
    by_gtid = make_replica().follow(server, options=OPTIONS)
    by_file = make_replica().follow(server, gtid="no", options=OPTIONS)
    replicas = by_gtid, by_file
    insert(upstream, 50, size=190)
    for replica in replicas:
        replica.wait_gtid(upstream.gtid_binlog_pos)
    assert place(by_gtid) == place(by_file)
    assert place(by_file)[0] == "binlog.000001"
    assert_equal(upstream, *replicas)
    for replica in replicas:
        heartbeats_go_on(replica)
    # From where each has come to; into the next file while they watch, and while one does not.
    for replica in replicas:
        replica.script("STOP SLAVE", "START SLAVE")
    with load(upstream) as running:
        running.wait_more(50)
        server.q("FLUSH BINARY LOGS")
    assert_equal(upstream, *replicas)
    by_file.q("STOP SLAVE")
    insert(upstream, 5)
    server.q("FLUSH BINARY LOGS")
    insert(upstream, 5)
    by_file.q("START SLAVE")
    assert_equal(upstream, *replicas)
    assert place(by_gtid) == place(by_file)
    assert place(by_file)[0] > "binlog.000002"
    for replica in replicas:
        heartbeats_go_on(replica)
        assert replica.replica_status()["Last_IO_Errno"] == 0


@pytest.mark.by_turns(2)
@pytest.mark.proves("cut in a group", "classic by file")
@pytest.mark.parametrize("gtid", ["slave_pos", "no"])
def test_cuts_inside_a_group(
    backend: object,
    gtid: str,
    make_relay: MakeRelay,
    make_replica: MakeMariaDB,
    chaos_proxy: MakeProxy,
    rng: random.Random,
) -> None:
    """By file and position a replica comes back in the middle of the group, and gets the rest of it.

    Between statements: one that comes back in the middle of a statement's rows stops, whoever its master is (1595,
    "did not receive an expected Rows-log end-of-statement"; 10.11.19, 11.8.6).
    """
    upstream, server = make_relay(users=USERS)
    proxy = chaos_proxy(server)
    replica = make_replica().follow(server, port=proxy.port, gtid=gtid, options=OPTIONS)
    assert_equal(upstream, replica)
    one = f"INSERT INTO d.t (a) VALUES ('{'x' * 190}')"
    for _ in range(2):
        replica.q("STOP SLAVE")
        until(lambda: not proxy.connections, "the old connection has ended")
        upstream.script("SET SESSION binlog_format=STATEMENT", "BEGIN", *([one] * 500), "COMMIT")
        proxy.down.cut_after = rng.randrange(20_000, 100_000)
        replica.q("START SLAVE")
        # By file it says of a group that was cut that it is done before its rows are seen, whoever its master is.
        insert(upstream, 1)
        assert_equal(upstream, replica)
        assert proxy.down.cut_after is None
