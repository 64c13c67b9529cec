"""A real replica that goes away, and comes back behind a purge: with its slot, and without one."""

from __future__ import annotations

import pymysql
import pytest

from binlog_server.testing.waiting import until
from tests.kit.fixtures import MakeBinlogServer, MakeMariaDB

pytestmark = pytest.mark.any_version

ROOT = {"root": {"password": "pw", "grants": ["BINLOG REPLAY"]}, "repl": "secret"}


@pytest.mark.any_version
def test_a_replica_that_went_away_finds_its_files_by_its_slot(
    backend: object, make_replica: MakeMariaDB, binlog_server: MakeBinlogServer
) -> None:
    ours = binlog_server(users=ROOT, max_binlog_size=65536, slave_connections_needed_for_purge=0)
    ours.q("CREATE DATABASE d0")
    replica = make_replica().follow(ours)
    replica.wait_gtid("0-1-1")
    replica.q("STOP SLAVE")
    name = f"slot/{replica.server_id}/root@%"

    def slots() -> list[object]:
        return [lease["Name"] for lease in ours.q("SHOW BINLOG LEASES")]

    until(lambda: slots() == [name], "the replica has left its slot")
    for n in range(1, 4):
        ours.q("FLUSH BINARY LOGS")
        ours.q(f"CREATE DATABASE d{n}")
    newest = ours.q("SHOW MASTER STATUS")[0]["File"]
    fates = ours.q(f"EXPLAIN PURGE TO '{newest}'")
    assert f"it is kept for the slot '{name}' until" in fates[0]["Held_back_by"]
    ours.kill()
    ours.start()
    assert slots() == [name]
    with pytest.raises(pymysql.Error, match="1378"):
        ours.q(f"PURGE BINARY LOGS TO '{newest}'")
    replica.q("START SLAVE")
    replica.wait_gtid("0-1-4")
    replica.q("STOP SLAVE")
    until(lambda: not ours.q("SHOW BINLOG REPLICAS"), "its dump has ended")

    for n in range(4, 6):
        ours.q("FLUSH BINARY LOGS")
        ours.q(f"CREATE DATABASE d{n}")
    ours.q("SET GLOBAL replica_slot_seconds=0")
    newest = ours.q("SHOW MASTER STATUS")[0]["File"]
    ours.q(f"PURGE BINARY LOGS TO '{newest}'")
    assert slots() == []
    (begin,) = ours.q("SELECT @@binlog_gtid_begin AS begin")
    assert begin["begin"] == "0-1-5"
    replica.q("START SLAVE")
    status = replica.wait_stopped()
    assert status["Last_IO_Errno"] == 1236
    assert (
        "required binlog files have been purged. The slot of server_id" in status["Last_IO_Error"]
    )
    assert "replica_slot_seconds or replica_slot_bytes is 0" in status["Last_IO_Error"]
    assert f"lease '{name}'" in ours.log()
