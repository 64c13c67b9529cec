"""Replicas that take nothing, vanish, or may only take so much: others go on, memory does not grow, DBAs hear why."""

from __future__ import annotations

import contextlib
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from binlog_server.testing.mariadb import MariaDB
from binlog_server.testing.sql_server import Row
from binlog_server.testing.waiting import until
from tests.kit.fixtures import MakeBinlogServer, MakeMariaDB
from tests.kit.server import BinlogServer

pytestmark = pytest.mark.any_version

MB = 1 << 20
ROOT = {"password": "root-password", "grants": ["ALL PRIVILEGES"]}
USERS = {"repl": "repl-password", "root": ROOT}
LIMITED = "limited", "limited-password"
SMALL_CACHES: dict[str, Any] = {"dump_frame_cache_size": MB, "binlog_page_cache_size": MB}


def admin(server: BinlogServer, *texts: str) -> list[Row]:
    """As who may do everything; the rows of the last one."""
    rows: list[Row] = []
    with server.connect(user="root", password=ROOT["password"]) as connection:
        for text in texts:
            with connection.cursor() as cursor:
                cursor.execute(text)
                rows = list(cursor.fetchall())
    return rows


def make_table(server: BinlogServer) -> None:
    admin(server, "CREATE DATABASE d", "CREATE TABLE d.t (id INT PRIMARY KEY, a LONGTEXT)")


def publish(server: BinlogServer, first: int, count: int, size: int = MB) -> str:
    """Rows of that many bytes, each a transaction. Returns the position behind them."""
    text = "x" * size
    admin(server, *(f"INSERT INTO d.t VALUES ({n}, '{text}')" for n in range(first, first + count)))
    return str(admin(server, "SELECT @@gtid_binlog_pos p")[0]["p"])


def row_count(replica: MariaDB) -> int:
    return int(replica.value("SELECT COUNT(*) FROM d.t WHERE CRC32(a) IS NOT NULL"))


def replicas_of(server: BinlogServer) -> dict[int, Row]:
    """SHOW BINLOG REPLICAS by server_id."""
    return {row["Server_id"]: row for row in admin(server, "SHOW BINLOG REPLICAS")}


def server_id(replica: MariaDB) -> int:
    return int(replica.value("SELECT @@server_id"))


def status(server: BinlogServer, name: str) -> int:
    return int(admin(server, f"SHOW STATUS LIKE '{name}'")[0]["Value"])


def rss_bytes(server: BinlogServer) -> int:
    text = Path(f"/proc/{server.pid}/status").read_text()
    match = re.search(r"VmRSS:\s+(\d+) kB", text)
    assert match is not None
    return int(match[1]) * 1024


@pytest.mark.any_version
def test_a_paused_replica_costs_its_buffer_and_delays_nobody(
    backend: object, make_replica: MakeMariaDB, binlog_server: MakeBinlogServer
) -> None:
    server = binlog_server(users=USERS, own_program=True, net_write_timeout=3, **SMALL_CACHES)
    make_table(server)
    paused, other = (make_replica().follow(server) for _ in range(2))
    other.wait_gtid(publish(server, 0, 10))
    paused.wait_gtid(other.gtid_slave_pos)
    before = rss_bytes(server)
    number = server_id(paused)
    paused.pause()
    try:
        other.wait_gtid(publish(server, 10, 40))
        assert rss_bytes(server) - before < 30 * MB, "40 MB went by"
        until(lambda: number not in replicas_of(server), "the paused one is let go")
    finally:
        paused.resume()
    why = r"took nothing for net_write_timeout|lost connection .* timed out"
    until(lambda: re.search(why, server.log()) is not None, "the log tells why")
    paused.wait_gtid(other.gtid_slave_pos)  # by itself
    assert row_count(paused) == row_count(other) == 50


def test_a_throttled_replica_gets_its_rate(
    make_replica: MakeMariaDB, binlog_server: MakeBinlogServer
) -> None:
    server = binlog_server(users=USERS)
    make_table(server)
    publish(server, 0, 8)
    slow, other = make_replica(), make_replica()
    other.follow(server)
    follow_limited(server, slow, "WITH MAX_BYTES_PER_SECOND 500000")
    other.wait_gtid(publish(server, 8, 1))
    number = server_id(slow)

    def is_shown() -> bool:  # but for the moments in which something is sent
        row = replicas_of(server)[number]
        return str(row["State"]).startswith("Throttled by MAX_BYTES_PER_SECOND 500000")

    until(is_shown, "it is throttled")
    assert replicas_of(server)[number]["Gap_bytes"] > 0

    def is_listed() -> bool:
        processes = admin(server, "SHOW PROCESSLIST")
        return any(p["State"].startswith("Throttled") for p in processes if p["User"] == "limited")

    until(is_listed, "SHOW PROCESSLIST tells it")
    admin(server, "ALTER USER limited WITH MAX_BYTES_PER_SECOND 0")
    slow.wait_gtid(other.gtid_slave_pos)
    assert row_count(slow) == row_count(other) == 9
    assert status(server, "Slaves_throttled_ms") > 0


def follow_limited(server: BinlogServer, replica: MariaDB, limits: str) -> None:
    """As an account of its own, with limits."""
    admin(
        server,
        f"CREATE USER limited IDENTIFIED BY '{LIMITED[1]}' {limits}",
        "GRANT REPLICATION SLAVE ON *.* TO limited",
    )
    replica.replicate_from(server.host, server.port, *LIMITED)
    replica.wait_running()


@pytest.mark.any_version
def test_who_lags_too_far_stops_and_shows_why(
    backend: object, make_replica: MakeMariaDB, binlog_server: MakeBinlogServer
) -> None:
    """Not while it catches up, however far behind it begins."""
    # The replica catches up for 6 s, and each process may stand still for some of them.
    server = binlog_server(users=USERS, replica_lag_grace_seconds=5)
    make_table(server)
    published = 12
    publish(server, 0, published)
    replica = make_replica()
    follow_limited(server, replica, f"WITH MAX_BYTES_PER_SECOND 2000000 MAX_LAG_BYTES {MB}")
    number = server_id(replica)
    seen: set[str] = set()

    def has_caught_up() -> bool:
        row = replicas_of(server).get(number)
        seen.add(str(row and row["State"]))
        return row is not None and str(row["State"]).startswith("Master has sent all")

    until(has_caught_up, "it has caught up")
    assert any("beyond MAX_LAG_BYTES 1048576, dropped in" in state for state in seen)
    assert status(server, "Slaves_dropped") == 0

    server.options["replica_lag_grace_seconds"] = 1
    server.restart()
    admin(server, "ALTER USER limited WITH MAX_BYTES_PER_SECOND 200000")
    while status(server, "Slaves_dropped") == 0:  # faster than its rate, on any machine
        publish(server, published, 2)
        published += 2
    shown = replica.wait_stopped()
    assert shown["Last_IO_Errno"] == 1236
    assert "The slave was dropped" in shown["Last_IO_Error"]
    assert shown["Last_IO_Error"].endswith("START SLAVE; or raise the limit by ALTER USER'")

    def dropped() -> int:
        ends = [line for line in server.log().splitlines() if " dump ends: " in line]
        return sum("The slave was dropped" in line for line in ends)

    until(
        lambda: number not in replicas_of(server), "its dump has ended"
    )  # behind what it was told
    until(lambda: dropped() > 0, "the log tells it")
    assert dropped() == 1

    admin(server, "ALTER USER limited WITH MAX_BYTES_PER_SECOND 0 MAX_LAG_BYTES 0")
    replica.q("START SLAVE")
    replica.wait_gtid(str(admin(server, "SELECT @@gtid_binlog_pos p")[0]["p"]), 40)
    assert row_count(replica) == published


@pytest.mark.by_turns(2)
@pytest.mark.parametrize("busy", [False, True], ids=["idle", "busy"])
def test_a_replica_behind_a_dead_line_is_noticed(
    make_replica: MakeMariaDB, binlog_server: MakeBinlogServer, busy: bool
) -> None:
    """Nothing comes back, not even from its machine: keepalive finds it, or what is not acknowledged."""
    server = binlog_server(
        users=USERS,
        net_write_timeout=3,
        tcp_keepalive_time=1,
        tcp_keepalive_interval=1,
        tcp_keepalive_probes=2,
    )
    make_table(server)
    replica = make_replica("--slave-net-timeout=600").follow(server)
    replica.wait_gtid(publish(server, 0, 1))
    number = server_id(replica)
    port = str(replicas_of(server)[number]["Host"]).rpartition(":")[2]
    with dead_line(server.port, int(port)):
        if busy:
            publish(server, 1, 1)
        until(lambda: number not in replicas_of(server), "the vanished one is noticed")
        until(lambda: "timed out" in server.log(), "the log tells why")
    replica.q("STOP SLAVE")
    replica.q("START SLAVE")
    replica.wait_gtid(publish(server, 2, 1))
    assert row_count(replica) == 2 + busy


@contextlib.contextmanager
def dead_line(server_port: int, client_port: int) -> Iterator[None]:
    """Packets of one connection over the loopback go nowhere, in both directions."""
    if shutil.which("iptables") is None:
        pytest.skip("there is no iptables")
    rules = [
        ["-i", "lo", "-p", "tcp", "--sport", str(a), "--dport", str(b), "-j", "DROP"]
        for a, b in ((server_port, client_port), (client_port, server_port))
    ]
    added: list[list[str]] = []
    try:
        for rule in rules:
            run = iptables("-I", rule)
            if run.returncode:
                pytest.skip(f"iptables: {run.stderr.strip()}")
            added.append(rule)
        yield
    finally:
        for rule in added:
            iptables("-D", rule).check_returncode()


def iptables(action: str, rule: list[str]) -> subprocess.CompletedProcess[str]:
    command: list[Any] = ["iptables", "-w", action, "INPUT", *rule]
    return subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
