"""The upstream sends more than the disk or a replica takes: who waits for whom, and that nothing is lost."""

from __future__ import annotations

from typing import Any

import pytest

from binlog_server.testing.mariadb import MariaDB
from binlog_server.testing.waiting import until
from tests.integration.load import assert_equal
from tests.integration.test_full_disk import LEFT, OPTIONS, WAITS
from tests.integration.test_relay_sql import ADMIN, status
from tests.integration.test_slow_replicas import SMALL_CACHES, rss_bytes
from tests.kit.bad_disk import SmallDisk
from tests.kit.faults import Faults
from tests.kit.fixtures import MakeMariaDB, MakeRelay, MakeSmallDisk

pytestmark = pytest.mark.replica

ROWS = 80
ROW_BYTES = 1_000_000
GROWTH_MAX = 40_000_000
"""Of the server's memory, while twice as much waits: pages, what is read and not stored yet, caches."""
SENDING = "Writing to net"
GAVE_UP = "Got an error writing communication packets"
BIG_LOG = "--innodb-log-file-size=256M"


@pytest.fixture
def disk(small_disk: MakeSmallDisk) -> SmallDisk:
    return small_disk(size_mb=256)


def insert(upstream: MariaDB, *, one_group: bool = False) -> None:
    """Rows of a megabyte each."""
    rows = [f"INSERT INTO d.t (a) VALUES (REPEAT('x', {ROW_BYTES}))"] * ROWS
    upstream.script(*(["BEGIN", *rows, "COMMIT"] if one_group else rows))


def is_held_back(upstream: MariaDB) -> bool:
    """Whether all threads that send a binlog wait for who receives it."""
    rows = upstream.q("SHOW PROCESSLIST")
    return {row["State"] for row in rows if row["Command"] == "Binlog Dump"} == {SENDING}


@pytest.mark.by_turns(3)
@pytest.mark.parametrize(
    ("version", "one_group", "patience_s"),
    [("10.11", False, 60), ("11.8", True, 60), ("11.8", False, 1)],
    ids=["small groups", "one group", "upstream gives up"],
)
def test_a_full_disk_holds_the_upstream_back(
    version: str,
    one_group: bool,
    patience_s: int,
    disk: SmallDisk,
    make_relay: MakeRelay,
    make_replica: MakeMariaDB,
) -> None:
    upstream, server = make_relay(
        BIG_LOG,
        f"--net-write-timeout={patience_s}",
        version=version,
        kind="LONGBLOB",
        users=ADMIN,
        directory=disk.path / "data",
        faults=Faults(),
        **OPTIONS,
        own_program=True,
        **SMALL_CACHES,
    )
    replica = make_replica(BIG_LOG).follow(server)
    assert_equal(upstream, replica)
    disk.fill(leave=LEFT)
    before = rss_bytes(server)
    insert(upstream, one_group=one_group)
    until(lambda: WAITS in server.log(), "notice of the full disk")
    if patience_s == 1:
        until(lambda: GAVE_UP in upstream.log(), "the upstream gives up")
    else:
        until(lambda: is_held_back(upstream), "the upstream waits")
    assert rss_bytes(server) - before < GROWTH_MAX
    assert server.gtid_binlog_pos != upstream.gtid_binlog_pos, "the disk was not full"
    row = status(server)
    assert (row["Slave_IO_Running"], row["Last_IO_Errno"]) == ("Yes", 0)
    until(lambda: status(server)["Seconds_Behind_Master"] > 1, "the lag is seen")
    replica.wait_gtid(server.gtid_binlog_pos)  # what is stored is served
    disk.empty()
    assert_equal(upstream, replica)
    if patience_s != 1:
        assert server.log().count("INFO following") == 1, "the connection was lost"
        assert GAVE_UP not in upstream.log()
    server.stop()


def test_a_slow_replica_holds_nobody_back(make_relay: MakeRelay, make_replica: MakeMariaDB) -> None:
    """What it has not taken lies in the files, and neither in memory nor at the upstream."""
    options: dict[str, Any] = {"users": ADMIN, "own_program": True, **SMALL_CACHES}
    upstream, server = make_relay(kind="LONGBLOB", **options)
    slow, other = (make_replica().follow(server) for _ in range(2))
    assert_equal(upstream, slow, other)
    before = rss_bytes(server)
    slow.pause()
    try:
        insert(upstream)
        assert_equal(upstream, other)
        assert rss_bytes(server) - before < GROWTH_MAX
        assert status(server)["Gtid_IO_Pos"] == upstream.gtid_binlog_pos
        assert not is_held_back(upstream)
    finally:
        slow.resume()
    assert_equal(upstream, slow)
    assert server.log().count("INFO following") == 1
