"""Semi-sync with real replicas and upstreams: an OK means that a replica has the row."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from typing import Any

import pymysql
import pytest

from binlog_server.testing.mariadb import MariaDB
from binlog_server.testing.waiting import until
from tests.kit import forks
from tests.kit.fixtures import MakeBinlogServer, MakeMariaDB, MakeRelay
from tests.kit.server import BinlogServer

USER, PASSWORD = "tester", "secret"
REPLICA = "--rpl-semi-sync-slave-enabled=1"
LONG_MS = 50_000  # nothing waits for that long, or the test is over
STATUS = "SHOW STATUS LIKE 'Rpl\\_semi\\_sync\\_%'"


@pytest.fixture
def make_master(binlog_server: MakeBinlogServer) -> Any:
    """Ours, with semi-sync and an account that may commit."""

    def make(*, style: str = "engine", **options: Any) -> BinlogServer:
        users = {"repl": {"password": "pw", "grants": ["ALL PRIVILEGES"], "stream_style": style}}
        options = {"rpl_semi_sync_master_enabled": True, **options}
        server = binlog_server(start=False, users=users, **options)
        server.directory.mkdir(parents=True)
        what = ("user", "add", USER, "--grant", "BINLOG REPLAY", "--directory", server.directory)
        forks.run(*what, said=PASSWORD + "\n").check_returncode()
        return server.start()

    return make


@contextlib.contextmanager
def session(master: BinlogServer) -> Iterator[Any]:
    options: dict[str, Any] = {"user": USER, "password": PASSWORD, "read_timeout": 40}
    with master.connect(**options) as connection, connection.cursor() as cursor:
        yield cursor


def run(master: BinlogServer, *texts: str) -> None:
    with session(master) as cursor:
        for text in texts:
            cursor.execute(text)


def status(server: BinlogServer | MariaDB) -> dict[str, str]:
    prefix = "Rpl_semi_sync_"
    return {
        row["Variable_name"].removeprefix(prefix).removeprefix("master_"): row["Value"]
        for row in server.q(STATUS)
    }


def wait_for_clients(master: BinlogServer, witness: MariaDB, count: int) -> None:
    """`witness` only lends its patience: any server can ask in a loop."""
    for _ in range(400):
        if int(status(master)["clients"]) == count:
            return
        witness.q("SELECT SLEEP(0.05)")
    raise AssertionError(f"{status(master)}")


TABLE = ("CREATE DATABASE d", "CREATE TABLE d.t (a INT PRIMARY KEY) ENGINE=InnoDB")


@pytest.mark.by_turns(2)
@pytest.mark.each_version
@pytest.mark.proves("semi-sync")
@pytest.mark.parametrize("style", ["engine", "classic"])
def test_an_ok_means_that_the_replica_has_it(
    backend: object, make_replica: MakeMariaDB, make_master: Any, style: str
) -> None:
    master = make_master(style=style, rpl_semi_sync_master_timeout=LONG_MS)
    replica = make_replica(REPLICA).follow(master)
    wait_for_clients(master, replica, 1)
    run(master, *TABLE)
    before = status(master)
    run(master, *(f"INSERT INTO d.t VALUES ({n})" for n in range(20)))
    after = status(master)
    assert int(after["yes_tx"]) == int(before["yes_tx"]) + 20
    assert (after["no_tx"], after["no_times"], after["status"]) == ("0", "0", "ON")
    row = master.q("SHOW BINLOG REPLICAS")[0]
    assert row["Acknowledged_gtid"] == master.gtid_binlog_pos

    # It stores, but does not apply; then the master is killed.
    replica.q("STOP SLAVE SQL_THREAD")
    run(master, "INSERT INTO d.t VALUES (100)")
    master.kill()
    replica.q("START SLAVE SQL_THREAD")
    replica.wait("SELECT COUNT(*) n FROM d.t WHERE a = 100", lambda rows: rows[0]["n"] == 1)
    master.start()
    wait_for_clients(master, replica, 1)

    # It ends the dump by KILL from a second connection.
    replica.q("STOP SLAVE")
    wait_for_clients(master, replica, 0)


@pytest.mark.each_version
def test_timeout_to_async_and_back(
    backend: object, make_replica: MakeMariaDB, make_master: Any
) -> None:
    master = make_master(rpl_semi_sync_master_timeout=LONG_MS)
    replica = make_replica(REPLICA).follow(master)
    wait_for_clients(master, replica, 1)
    run(master, *TABLE)
    replica.q("STOP SLAVE IO_THREAD")
    wait_for_clients(master, replica, 0)
    # Not before: a replica on a busy machine may take longer.
    master.q("SET GLOBAL rpl_semi_sync_master_timeout=300")
    run(master, "INSERT INTO d.t VALUES (1)", "INSERT INTO d.t VALUES (2)")
    found = status(master)
    assert (found["no_times"], found["no_tx"], found["status"]) == ("1", "2", "OFF")
    assert master.log().count("semi-sync is OFF") == 1
    replica.q("START SLAVE IO_THREAD")
    wait_for_clients(master, replica, 1)
    replica.wait("SELECT COUNT(*) n FROM d.t", lambda rows: rows[0]["n"] == 2)
    for _ in range(400):
        if status(master)["status"] == "ON":
            break
        replica.q("SELECT SLEEP(0.05)")
    master.q(f"SET GLOBAL rpl_semi_sync_master_timeout={LONG_MS}")
    yes = int(status(master)["yes_tx"])
    run(master, "INSERT INTO d.t VALUES (3)")
    assert int(status(master)["yes_tx"]) == yes + 1


@pytest.mark.each_version
def test_a_commit_waits_for_two(
    backend: object, make_replica: MakeMariaDB, make_master: Any
) -> None:
    master = make_master(
        rpl_semi_sync_master_timeout=LONG_MS, rpl_semi_sync_master_wait_for_slave_count=2
    )
    first = make_replica(REPLICA).follow(master)
    wait_for_clients(master, first, 1)
    committing = threading.Thread(target=run, args=(master, *TABLE[:1]))
    committing.start()
    first.wait("SHOW DATABASES LIKE 'd'", bool)
    until(lambda: status(master)["wait_sessions"] == "1", "the commit waits")
    second = make_replica(REPLICA).follow(master)
    committing.join(40)
    assert not committing.is_alive()
    second.wait("SHOW DATABASES LIKE 'd'", bool)
    assert status(master)["yes_tx"] == "1"


@pytest.mark.each_version
def test_as_a_replica_of_a_real_master(
    backend: object,
    make_upstream: MakeMariaDB,
    make_replica: MakeMariaDB,
    binlog_server: MakeBinlogServer,
) -> None:
    """Its OK means that the row is on our replica."""
    upstream = make_upstream(
        "--rpl-semi-sync-master-enabled=1", f"--rpl-semi-sync-master-timeout={LONG_MS}"
    )
    upstream.q("SET GLOBAL rpl_semi_sync_master_enabled=0")
    upstream.script(*TABLE)
    server = binlog_server(
        upstream=upstream,
        rpl_semi_sync_slave_enabled=True,
        rpl_semi_sync_slave_wait_for_slave_count=1,
    )
    replica = make_replica(REPLICA).follow(server)
    wait_for_clients(server, replica, 1)
    upstream.q("SET GLOBAL rpl_semi_sync_master_enabled=1")
    upstream.wait(
        "SHOW STATUS LIKE 'Rpl_semi_sync_master_clients'", lambda rows: rows[0]["Value"] == "1"
    )
    replica.wait_gtid(upstream.gtid_binlog_pos)
    upstream.script(*(f"INSERT INTO d.t VALUES ({n})" for n in range(20)))
    upstream.script("INSERT INTO d.t VALUES (100)")
    found = status(upstream)
    upstream.kill()
    assert (found["no_tx"], found["status"]) == ("0", "ON")
    assert int(found["yes_tx"]) >= 21
    replica.wait("SELECT COUNT(*) n FROM d.t", lambda rows: rows[0]["n"] == 21)
    assert status(server)["slave_send_ack"] >= "1"


@pytest.mark.each_version
def test_stop_slave_ends_the_dump_there(backend: object, make_relay: MakeRelay) -> None:
    upstream, server = make_relay(
        "--rpl-semi-sync-master-enabled=1", table="", rpl_semi_sync_slave_enabled=True
    )
    clients = "SHOW STATUS LIKE 'Rpl_semi_sync_master_clients'"
    upstream.wait(clients, lambda rows: rows[0]["Value"] == "1")
    assert status(server)["slave_status"] == "ON"
    server.stop()
    upstream.wait(clients, lambda rows: rows[0]["Value"] == "0")


def test_after_sync_is_refused(make_master: Any) -> None:
    master = make_master()
    with pytest.raises(pymysql.MySQLError) as caught:
        master.q("SET GLOBAL rpl_semi_sync_master_wait_point=AFTER_SYNC")
    assert caught.value.args[0] == 4247
