"""Transactions that go to replicas piece by piece, from a store that is not in memory."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from binlog_server.testing.mariadb import MariaDB
from binlog_server.testing.waiting import until
from tests.integration.load import assert_equal
from tests.kit.fixtures import MakeBinlogServer, MakeMariaDB, MakeProxy, MakeRelay
from tests.kit.server import BinlogServer

MB = 1 << 20
USERS = {
    "old": {"password": "pw", "stream_style": "classic", "grants": ["ALL PRIVILEGES"]},
}
LOG_SIZE = "--innodb-log-file-size=512M"
LONG_EVENT_MB = 17  # more than a packet
SMALL_ROWS_MB = 5
GROWTH_MIB_MAX = 160  # its page cache, and what two dumps hold


def large_transaction(upstream: MariaDB, megabytes: int) -> None:
    """Rows of 1 MiB, one of 17 MiB, and 500 of 10 KB; a small one behind it."""
    rows = megabytes - LONG_EVENT_MB - SMALL_ROWS_MB
    upstream.script(
        "CREATE DATABASE d",
        "CREATE TABLE d.t (id INT PRIMARY KEY AUTO_INCREMENT, a LONGBLOB)",
        "BEGIN",
        *(f"INSERT INTO d.t (a) VALUES (REPEAT('{i % 100:02}', {MB // 2}))" for i in range(rows)),
        f"INSERT INTO d.t (a) VALUES (REPEAT('long', {LONG_EVENT_MB * MB // 4}))",
        "INSERT INTO d.t (a) SELECT REPEAT(seq, 3000) FROM d.seq_1_to_500",
        "COMMIT",
        "INSERT INTO d.t (a) VALUES ('small')",
    )


def rss_mib(server: BinlogServer, name: str) -> float:
    """VmRSS: now; VmHWM: the most since it started."""
    lines = Path(f"/proc/{server.pid}/status").read_text().splitlines()
    (kilobytes,) = [line.split()[1] for line in lines if line.startswith(f"{name}:")]
    return int(kilobytes) / 1024


@pytest.mark.by_turns(2)
@pytest.mark.any_version
@pytest.mark.parametrize("style", ["engine", "classic"])
def test_30_mb_cut_in_the_middle(
    backend: object,
    style: str,
    make_upstream: MakeMariaDB,
    make_replica: MakeMariaDB,
    binlog_server: MakeBinlogServer,
    chaos_proxy: MakeProxy,
    rng: random.Random,
) -> None:
    """Between events and inside the long one: the group comes again, whole, and is applied once."""
    upstream = make_upstream(LOG_SIZE)
    users = {"users": USERS} if style == "classic" else {}
    server = binlog_server(upstream=upstream, **users)
    large_transaction(upstream, 30)
    server.wait_position(upstream.gtid_binlog_pos, 50)
    proxy = chaos_proxy(server)
    proxy.down.cut_after = rng.randrange(MB, 7 * MB)
    options = "MASTER_SSL=0, MASTER_CONNECT_RETRY=1, MASTER_HEARTBEAT_PERIOD=0.1"
    replica = make_replica(LOG_SIZE).follow(server, port=proxy.port, options=options)
    until(lambda: proxy.down.cut_after is None, "a cut between events")
    proxy.down.cut_after = rng.randrange(10 * MB, 20 * MB)
    until(lambda: proxy.down.cut_after is None, "a cut inside the long event")
    assert_equal(upstream, replica)


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_300_mb_in_bounded_memory(
    backend: object, make_relay: MakeRelay, make_replica: MakeMariaDB
) -> None:
    upstream, server = make_relay(LOG_SIZE, table="")
    large_transaction(upstream, 300)
    server.wait_position(upstream.gtid_binlog_pos, 50)
    server.stop()
    server.start()
    before = rss_mib(server, "VmRSS")
    replicas = [make_replica(LOG_SIZE, version=version) for version in ("10.11", "11.8")]
    for replica in replicas:
        replica.follow(server)
    for replica in replicas:
        replica.wait_gtid(upstream.gtid_binlog_pos, timeout=200)
    assert rss_mib(server, "VmHWM") - before < GROWTH_MIB_MAX
    assert_equal(upstream, *replicas)
