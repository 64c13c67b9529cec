"""The disk of the store is full: reading from the upstream pauses, replicas are served, and it goes on by itself."""

from __future__ import annotations

import random
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pymysql
import pytest
from binlog_pipeline.sources.directory import DirectorySource

from binlog_server.testing import ports
from binlog_server.testing.mariadb import MariaDB
from binlog_server.testing.waiting import until
from tests.integration.committers import USERS, Committers, make_table
from tests.integration.load import assert_equal
from tests.integration.test_relay_sql import ADMIN
from tests.kit.bad_disk import SmallDisk
from tests.kit.faults import Faults
from tests.kit.fixtures import MakeBinlogServer, MakeMariaDB, MakeRelay, MakeSmallDisk
from tests.kit.server import BinlogServer
from tests.pipeline.archives import grow, run
from tests.storage.groups import simple

OPTIONS: dict[str, Any] = {"max_binlog_size": 1 << 20, "innodb_log_file_size": 4 << 20}
TRADITIONAL = {"binlog_storage_engine": ""}
LEFT = 3 << 20
WAITS = "Waiting"
"""What the log says of a full disk, in MariaDB's words."""

ROW = 50_000


def insert(upstream: MariaDB, rows: int) -> None:
    upstream.script(*(f"INSERT INTO d.t (a) VALUES (REPEAT('x', {ROW}))" for _ in range(rows)))


@pytest.fixture
def disk(small_disk: MakeSmallDisk) -> SmallDisk:
    return small_disk(size_mb=64)


def fill(server: BinlogServer, disk: SmallDisk, upstream: MariaDB) -> None:
    """Until the server waits for room, with more to come than it could hold in memory on the way."""
    disk.fill(leave=LEFT)
    insert(upstream, 400)
    until(lambda: WAITS in server.log(), "notice of the full disk")


def test_relay(disk: SmallDisk, make_relay: MakeRelay, make_replica: MakeMariaDB) -> None:
    where: dict[str, Any] = {"directory": disk.path / "data", "faults": Faults()}
    upstream, server = make_relay(kind="TEXT", **where, **OPTIONS)
    replica = make_replica(version="10.11").follow(server)
    fill(server, disk, upstream)
    with server.connect(read_timeout=20):
        pass
    # Served on: the one that was there, and one that comes now.
    late = make_replica(version="11.8").follow(server)
    reached = replica.gtid_slave_pos
    late.wait_gtid(reached)
    for one in (replica, late):
        one.wait_running()
    assert server.gtid_binlog_pos != upstream.gtid_binlog_pos, "the disk was not full"
    disk.empty()
    assert_equal(upstream, replica, late)
    assert "stopped following" not in server.log()
    server.stop()


def test_killed_on_a_full_disk(
    disk: SmallDisk, make_relay: MakeRelay, make_replica: MakeMariaDB
) -> None:
    """What the redo log holds may need room in the files: what was durable is served, PURGE can be said, and it goes on
    by itself when there is room.
    """
    where: dict[str, Any] = {"directory": disk.path / "data", "faults": Faults()}
    upstream, server = make_relay(kind="TEXT", users=ADMIN, **where, **OPTIONS)
    replica = make_replica().follow(server)
    fill(server, disk, upstream)
    server.kill()
    disk.fill()
    server.start()
    late = make_replica(version="11.8").follow(server)
    late.wait_gtid(replica.gtid_slave_pos)
    assert server.gtid_binlog_pos != upstream.gtid_binlog_pos
    server.q("PURGE BINARY LOGS BEFORE '2000-01-01 00:00:00'")
    server.stop()
    server.start()
    disk.empty()
    assert_equal(upstream, replica, late)
    server.stop()


def test_inside_a_large_group(
    disk: SmallDisk, make_relay: MakeRelay, make_replica: MakeMariaDB
) -> None:
    """Said in the log and by /readyz. It can be stopped, and killed; a start on the full disk takes PURGE."""
    metrics = ports.lease()
    upstream, server = make_relay(
        kind="LONGTEXT",
        users=ADMIN,
        directory=disk.path / "data",
        faults=Faults(room_wait_s=1),
        max_binlog_size=4 << 20,
        innodb_log_file_size=8 << 20,
        metrics_listen=f"127.0.0.1:{metrics}",
    )
    replica = make_replica().follow(server)
    upstream.script("INSERT INTO d.t (a) VALUES ('first')")
    replica.wait_gtid(upstream.gtid_binlog_pos)
    disk.fill(leave=6 << 20)
    rows = ("INSERT INTO d.t (a) VALUES (REPEAT('x', 6000000))" for _ in range(6))
    upstream.script("BEGIN", *rows, "COMMIT")
    until(lambda: "pauses: the disk is full or slow" in server.log(), "the line in the log")

    def ready() -> str:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{metrics}/readyz") as answer:
                return str(answer.read())
        except urllib.error.HTTPError as error:
            return error.read().decode()

    until(lambda: "s for room: the disk is full or slow" in ready(), "not ready")
    for statement in ("STOP SLAVE", "START SLAVE"):
        server.q(statement)
    until(lambda: server.log().count("pauses: the disk is full or slow") == 2, "once more")
    server.stop()
    assert "has not ended in" not in server.log()
    disk.fill()
    server.start()
    server.q("PURGE BINARY LOGS BEFORE '2000-01-01 00:00:00'")
    make_replica(version="11.8").follow(server).wait_gtid(replica.gtid_slave_pos)
    disk.empty()
    assert_equal(upstream, replica)
    server.stop()


@pytest.mark.parametrize("kind", [{}, TRADITIONAL], ids=["ibb", "traditional"])
def test_clients_wait(
    disk: SmallDisk,
    make_replica: MakeMariaDB,
    binlog_server: MakeBinlogServer,
    rng: random.Random,
    kind: dict[str, Any],
) -> None:
    """Commits are neither refused nor lost: they take until there is room."""
    server = binlog_server(
        users=USERS, directory=disk.path / "data", faults=Faults(), **OPTIONS, **kind
    )
    replica = make_replica().follow(server)
    make_table(server)
    disk.fill(leave=LEFT if not kind else 64 << 10)  # traditional files are not made ahead
    committers = Committers(server, rng)
    committers.start()
    until(lambda: WAITS in server.log(), "notice of the full disk")
    disk.empty()
    committers.wait_more(50)
    committers.end()
    replica.wait_gtid(server.gtid_binlog_pos)
    server.kill()
    server.start()
    server.wait_position(replica.gtid_slave_pos)  # nothing was told that was in memory only
    assert {row["id"] for row in replica.q("SELECT id FROM d.t")} == committers.acknowledged


def test_an_archive_that_does_not_fit(
    disk: SmallDisk, binlog_server: MakeBinlogServer, tmp_path: Path
) -> None:
    """What there is is served, and nothing else comes in; the rest of it comes when there is room."""
    grow(tmp_path / "source", simple(100, size=250_000))
    run(DirectorySource(str(tmp_path / "source")), tmp_path / "archive")
    nobody, metrics = ports.lease(), ports.lease()
    disk.fill(leave=18 << 20)
    server = binlog_server(
        upstream=f"mariadb://repl:secret@127.0.0.1:{nobody}",
        users=ADMIN,
        directory=disk.path / "data",
        arguments=[f"--archive={tmp_path / 'archive'}"],
        metrics_listen=f"127.0.0.1:{metrics}",
        slave_connections_needed_for_purge=0,
        replica_slot_seconds=0,
        **OPTIONS,
    )

    def require_closed() -> None:
        for statement in (
            "SET GLOBAL read_only=0",
            "INSERT INTO d.t VALUES (1)",
            "RESET MASTER",
            "START SLAVE",
            "FLUSH BINARY LOGS DELETE_DOMAIN_ID=(7)",
        ):
            if statement.startswith("SET"):
                server.q(statement)
                continue
            with pytest.raises(pymysql.Error, match="is not all in the store yet") as caught:
                server.q(statement)
            assert caught.value.args[0] == 1290
        assert server.q("SELECT @@read_only AS r") == [{"r": 1}]
        assert server.q("SHOW SLAVE STATUS")[0]["Slave_IO_Running"] == "No"
        with pytest.raises(urllib.error.HTTPError) as unready:
            urllib.request.urlopen(f"http://127.0.0.1:{metrics}/readyz", timeout=30)
        assert "is not all in the store yet" in unready.value.read().decode()

    require_closed()
    assert "and what follows is not" in server.log()
    taken = server.gtid_binlog_pos
    assert taken
    server.stop()
    assert server.wait_exit() == 0
    server.start()
    require_closed()
    assert server.gtid_binlog_pos == taken
    server.q(f"PURGE BINARY LOGS TO '{server.q('SHOW BINARY LOGS')[-2]['Log_name']}'")
    until(lambda: server.gtid_binlog_pos == "0-1-100", "the rest of the archive")
    until(lambda: server.q("SHOW SLAVE STATUS")[0]["Slave_IO_Running"] == "Connecting", "a start")
    server.q("STOP SLAVE")
    server.q("SET GLOBAL read_only=0")
    assert server.q("SELECT @@read_only AS r") == [{"r": 0}]
    with server.connect() as connection, connection.cursor() as cursor:
        cursor.execute("SET gtid_domain_id=7")
        cursor.execute("INSERT INTO d.t VALUES (1)")
    assert server.gtid_binlog_pos == f"0-1-100,7-{server.q('SELECT @@server_id AS s')[0]['s']}-1"
    server.stop()
