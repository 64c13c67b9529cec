"""What monitors see of replicas that come and go, and of an upstream, as a MariaDB shows them."""

from __future__ import annotations

from functools import partial

import pytest

from binlog_server.testing.mariadb import MariaDB
from binlog_server.testing.waiting import until
from tests.integration.load import insert
from tests.kit.fixtures import MakeBinlogServer, MakeMariaDB, MakeRelay
from tests.kit.server import BinlogServer

pytestmark = pytest.mark.any_version
DBA = {"dba": {"password": "pw", "grants": ["ALL PRIVILEGES"]}}


def status(server: BinlogServer, name: str) -> str:
    (row,) = server.q(f"SHOW GLOBAL STATUS LIKE '{name}'")
    return str(row["Value"])


def dumps(server: BinlogServer) -> int:
    rows = server.q(
        "SELECT COUNT(*) AS n FROM information_schema.PROCESSLIST WHERE COMMAND = 'Binlog Dump'"
    )
    return int(rows[0]["n"])


@pytest.mark.any_version
def test_replicas_that_come_and_go(
    backend: object, make_replica: MakeMariaDB, binlog_server: MakeBinlogServer
) -> None:
    ours = binlog_server(server_id=99)
    replicas = [
        make_replica(
            f"--report-host=replica{n}.example",
            f"--report-port={3400 + n}",
            # Who comes again because all stood still for some seconds would be counted as one more.
            "--slave-net-timeout=600",
        )
        for n in range(2)
    ]

    def hosts() -> list[object]:
        rows = sorted(ours.q("SHOW SLAVE HOSTS"), key=lambda row: row["Port"])
        assert rows == sorted(ours.q("SHOW REPLICA HOSTS"), key=lambda row: row["Port"])
        assert {row["Master_id"] for row in rows} <= {99}
        return [(row["Server_id"], row["Host"], row["Port"]) for row in rows]

    known = [(r.server_id, f"replica{n}.example", 3400 + n) for n, r in enumerate(replicas)]
    assert (hosts(), status(ours, "Slaves_connected")) == ([], "0")
    for count, replica in enumerate(replicas, 1):
        replica.follow(ours)
        replica.wait_running()
        until(lambda count=count: dumps(ours) == count, "its dump runs")  # type: ignore[misc]
        assert hosts() == known[:count]
        assert status(ours, "Slaves_connected") == str(count)
        assert status(ours, "Slave_connections") == str(count)
    replicas[0].q("STOP SLAVE")
    until(lambda: status(ours, "Slaves_connected") == "1", "the first one has gone")
    assert (hosts(), dumps(ours)) == (known[1:], 1)
    replicas[1].kill()
    until(lambda: status(ours, "Slaves_connected") == "0", "the other one is dead")
    assert (hosts(), dumps(ours)) == ([], 0)
    replicas[0].q("START SLAVE")
    until(lambda: dumps(ours) == 1, "the first one is back")
    assert hosts() == known[:1]
    assert status(ours, "Slave_connections") == "3"


def same_as_shown(relay: BinlogServer, replica: MariaDB) -> bool:
    """Whether the relay shows of its connection, which is there, what the replica shows of its own."""
    (theirs,), (ours,) = (server.q("SHOW ALL SLAVES STATUS") for server in (replica, relay))
    assert list(ours)[: len(theirs)] == list(theirs)
    columns = ("Slave_IO_State", "Slave_IO_Running", "Slave_SQL_Running", "Master_Server_Id")
    (thread,) = [r for r in replica.q("SHOW PROCESSLIST") if r["Command"] == "Slave_IO"]
    (shown,) = [r for r in relay.q("SHOW PROCESSLIST") if r["User"] == "system user"]
    (listed,) = relay.q(
        "SELECT ID, COMMAND, STATE FROM information_schema.PROCESSLIST WHERE USER = 'system user'"
    )
    same = ("User", "Host", "db", "Command", "State", "Info", "Progress")
    return (
        all(ours[name] == theirs[name] for name in columns)
        and all(shown[name] == thread[name] for name in same)
        and list(listed.values()) == [shown["Id"], shown["Command"], shown["State"]]
        and (status(relay, "Slave_running"), status(relay, "Slaves_running")) == ("ON", "1")
    )


@pytest.mark.any_version
def test_an_upstream(backend: object, make_relay: MakeRelay, make_replica: MakeMariaDB) -> None:
    """Beside a replica of the same upstream: the same columns, and what MaxScale takes for a sign of life."""
    upstream, relay = make_relay(users=DBA, slave_net_timeout=1)
    replica = make_replica().follow(upstream)
    position = insert(upstream)
    replica.wait_gtid(position)
    relay.wait_position(position)
    # A busy upstream is silent for slave_net_timeout, and lost for a moment.
    until(partial(same_as_shown, relay, replica), "the same of both")

    def beats() -> int:
        (row,) = relay.q("SHOW ALL SLAVES STATUS")
        heartbeats = int(row["Slave_received_heartbeats"])
        assert heartbeats <= int(status(relay, "Slave_received_heartbeats"))
        return heartbeats

    until(lambda: beats() > 2, "the upstream is idle, and says that it is there")
    relay.q("STOP SLAVE")
    assert (status(relay, "Slave_running"), status(relay, "Slaves_running")) == ("OFF", "0")
    assert [r for r in relay.q("SHOW PROCESSLIST") if r["User"] == "system user"] == []
