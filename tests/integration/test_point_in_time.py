"""Points in time with real servers: logins whose history ends there."""

from __future__ import annotations

import pytest

from binlog_server.testing.mariadb import MariaDB
from binlog_server.testing.sql_server import Credentials
from tests.integration.test_relay_sql import ADMIN
from tests.kit.fixtures import MakeBinlogServer, MakeMariaDB

NOON = 1_763_636_400  # 2025-11-20 11:00:00 UTC


@pytest.mark.each_version
def test_time_machine(
    backend: object, binlog_server: MakeBinlogServer, make_replica: MakeMariaDB
) -> None:
    """A replica gets all up to a point, stays or stops there, and goes on with another name."""
    server = binlog_server(users=ADMIN, server_id=9)
    create = ("CREATE DATABASE d", "CREATE TABLE d.t (a INT PRIMARY KEY)")
    server.script(f"SET timestamp={NOON}", *create)
    for n in range(4):
        server.script(f"SET timestamp={NOON + n}", f"INSERT INTO d.t VALUES ({n})")
    replica = make_replica("--gtid-strict-mode=1")

    def follow(suffix: str) -> MariaDB:
        account = Credentials(server.account.user + suffix, server.account.password)
        replica.replicate_from(server.host, server.port, account.user, account.password)
        return replica

    status = follow("+until=0-9-3+stop").wait_stopped()
    assert status["Last_IO_Errno"] == 1236
    assert "The login ends at 0-9-3" in status["Last_IO_Error"]
    replica.wait_gtid("0-9-3")
    follow("+until=2025-11-20T11:00:02Z").wait_gtid("0-9-4")
    replica.wait_running()
    server.q("INSERT INTO d.t VALUES (10)")
    shown = server.q("SHOW PROCESSLIST")
    assert [row["User"] for row in shown if "target of its login" in str(row["State"])] == [
        server.account.user
    ]
    assert replica.gtid_slave_pos == "0-9-4"
    follow("").wait_gtid("0-9-7")
    assert replica.value("SELECT GROUP_CONCAT(a ORDER BY a) FROM d.t") == "0,1,2,3,10"
