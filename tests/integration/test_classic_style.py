"""The classic style with real replicas where it is hard: large transactions over file borders, parallel appliers, a
server that starts anew in the middle; and positions that a DBA compares."""

from __future__ import annotations

from typing import Any

import pytest

from binlog_server.testing.mariadb import MariaDB
from binlog_server.testing.waiting import until
from tests.integration.load import assert_equal, insert, load
from tests.kit.fixtures import MakeBinlogServer, MakeMariaDB

pytestmark = pytest.mark.any_version

USERS = {"old": {"password": "pw", "stream_style": "classic", "grants": ["ALL PRIVILEGES"]}}
OPTIONS = "MASTER_SSL=0, MASTER_HEARTBEAT_PERIOD=0.1, MASTER_CONNECT_RETRY=1"
PARALLEL = (
    "SET GLOBAL slave_parallel_threads=4",
    "SET GLOBAL slave_parallel_mode='optimistic'",
)
OVERTAKEN = 1 << 31


def large(upstream: MariaDB, table: str, rows: int) -> None:
    """One transaction, longer than the files of the store."""
    upstream.q(f"INSERT INTO {table} (a) SELECT REPEAT('x', 190) FROM d.seq_1_to_{rows}")


def places(replica: MariaDB) -> tuple[Any, ...]:
    """What was read and what was applied."""
    status = replica.replica_status()
    names = (
        "Master_Log_File",
        "Read_Master_Log_Pos",
        "Relay_Master_Log_File",
        "Exec_Master_Log_Pos",
    )
    return tuple(status[name] for name in names)


@pytest.mark.proves("classic style", "classic by file", "parallel")
def test_large_transactions_and_a_restart(
    backend: object,
    make_upstream: MakeMariaDB,
    make_replica: MakeMariaDB,
    binlog_server: MakeBinlogServer,
) -> None:
    upstream = make_upstream()
    # Large groups are written out of band, over several files: their own lengths overtake their places.
    server = binlog_server(upstream=upstream, users=USERS, max_binlog_size=65536)
    upstream.make_table()
    upstream.make_table("d.u")
    by_file, by_gtid = make_replica(), make_replica()
    for replica in (by_file, by_gtid):
        replica.script(*PARALLEL)
    by_file.follow(server, gtid="no", options=OPTIONS)
    by_gtid.follow(server, options=OPTIONS)
    with load(upstream) as running:
        for rows in (300, 2000):
            large(upstream, "d.u", rows)
            running.wait_more(10)
        server.restart()
        large(upstream, "d.u", 1000)
        running.wait_more(20)
    assert_equal(upstream, by_file, by_gtid)

    def is_where_the_master_is(replica: MariaDB) -> bool:
        status = server.q("SHOW MASTER STATUS")[0]
        return places(replica) == (status["File"], status["Position"]) * 2

    for replica in (by_file, by_gtid):
        until(lambda r=replica: is_where_the_master_is(r), "the positions are the master's")  # type: ignore[misc]
        assert places(replica)[1] < OVERTAKEN
    # And from that position a replica goes on, which was told it by a DBA.
    file, position = places(by_file)[:2]
    by_gtid.script(
        "STOP SLAVE",
        f"CHANGE MASTER TO MASTER_USE_GTID=no, MASTER_LOG_FILE='{file}', MASTER_LOG_POS={position}",
        "START SLAVE",
    )
    insert(upstream, 5)
    assert_equal(upstream, by_file, by_gtid)
    for replica in (by_file, by_gtid):
        assert replica.replica_status()["Last_IO_Errno"] == 0
