"""The kit's MariaDB servers do what tests rely on; on every backend in the slow suite."""

import subprocess
from pathlib import Path

import pymysql
import pytest

from binlog_server.testing.mariadb import ReplicationStopped
from binlog_server.testing.sql_server import Credentials
from tests.kit.backends import Backend
from tests.kit.fixtures import MakeMariaDB, MakeProxy

pytestmark = pytest.mark.each_version

TABLE = ("CREATE DATABASE d", "CREATE TABLE d.t (a INT PRIMARY KEY, b LONGBLOB)")


def test_replica_follows_upstream(
    backend: Backend, make_upstream: MakeMariaDB, make_replica: MakeMariaDB
) -> None:
    upstream = make_upstream(server_id=1)
    assert upstream.gtid_binlog_pos == ""
    replica = make_replica(server_id=2).follow(upstream)
    upstream.script(*TABLE, "INSERT INTO d.t VALUES (1, 'x'), (2, NULL)")
    assert upstream.gtid_binlog_pos == "0-1-3"

    replica.wait_gtid(upstream.gtid_binlog_pos)

    assert replica.gtid_slave_pos == "0-1-3"
    assert list(upstream.checksum()) == ["d.t"]
    assert replica.checksum() == upstream.checksum()
    assert replica.value("SELECT VERSION()").startswith(backend.version + ".")


@pytest.mark.any_version
def test_kill_keeps_what_was_committed(
    backend: Backend, make_upstream: MakeMariaDB, make_replica: MakeMariaDB
) -> None:
    upstream = make_upstream()
    replica = make_replica().follow(upstream)
    upstream.script(*TABLE, "INSERT INTO d.t VALUES (1, 'x')")
    replica.wait_gtid(upstream.gtid_binlog_pos)

    for server in (upstream, replica):
        server.kill()
        assert not server.alive()
        server.restart()
    assert upstream.value("SELECT COUNT(*) FROM d.t") == 1
    upstream.q("INSERT INTO d.t VALUES (2, 'y')")
    replica.q("START SLAVE")
    replica.wait_running()
    replica.wait_gtid(upstream.gtid_binlog_pos)

    upstream.restart()  # in order, and followed again without a word to the replica
    upstream.q("INSERT INTO d.t VALUES (3, 'z')")
    replica.wait_gtid(upstream.gtid_binlog_pos)
    assert replica.checksum() == upstream.checksum()


@pytest.mark.any_version
def test_pause(backend: Backend, make_replica: MakeMariaDB) -> None:
    server = make_replica()
    server.pause()
    with (
        pytest.raises(pymysql.OperationalError, match="timed out"),
        server.connect(connect_timeout=1, read_timeout=1),
    ):
        pass
    server.resume()
    assert server.value("SELECT 1") == 1
    server.pause()
    server.kill()
    assert not server.alive()


def test_a_thread_that_gives_up_is_reported(
    make_upstream: MakeMariaDB, make_replica: MakeMariaDB
) -> None:
    upstream = make_upstream()
    replica = make_replica()
    upstream.account = Credentials("repl", "wrong")
    replica.replicate_from(upstream.host, upstream.port, "repl", "wrong")
    replica.wait("SHOW SLAVE STATUS", lambda rows: rows[0]["Last_IO_Errno"] == 1045)
    with pytest.raises(TimeoutError, match="Access denied"):  # it keeps trying
        replica.wait_running(timeout=1)
    upstream.create_account()
    replica.wait_running()
    upstream.script(*TABLE)
    replica.wait_gtid(upstream.gtid_binlog_pos)
    replica.q("INSERT INTO d.t VALUES (1, 'mine')")
    upstream.q("INSERT INTO d.t VALUES (1, 'theirs')")
    with pytest.raises(ReplicationStopped, match="Duplicate entry"):
        replica.wait_gtid(upstream.gtid_binlog_pos)
    assert replica.wait_stopped()["Last_SQL_Errno"] == 1062


def test_versions_can_be_mixed(make_upstream: MakeMariaDB, make_replica: MakeMariaDB) -> None:
    upstream = make_upstream(version="10.11")
    replica = make_replica(version="11.8").follow(upstream)
    assert upstream.value("SELECT VERSION()").startswith("10.11.")
    assert replica.value("SELECT VERSION()").startswith("11.8.")


# -- what later tests need a server to have -------------------------------------------------------


def test_blackhole(backend: Backend, make_replica: MakeMariaDB) -> None:
    server = make_replica()
    server.script(
        "INSTALL SONAME 'ha_blackhole'",
        "CREATE DATABASE d",
        "CREATE TABLE d.nothing (a INT) ENGINE=BLACKHOLE",
        "INSERT INTO d.nothing VALUES (1)",
    )
    assert server.q("SELECT * FROM d.nothing") == []


def test_ed25519(backend: Backend, make_upstream: MakeMariaDB, make_replica: MakeMariaDB) -> None:
    upstream = make_upstream()
    upstream.script(
        "SET SESSION sql_log_bin = 0",
        "INSTALL SONAME 'auth_ed25519'",
        "CREATE USER ed@'%' IDENTIFIED VIA ed25519 USING PASSWORD('secret')",
        "GRANT REPLICATION SLAVE ON *.* TO ed@'%'",
    )
    replica = make_replica()  # which needs the client half of the plugin
    replica.replicate_from(upstream.host, upstream.port, "ed", "secret")
    replica.wait_running()


def test_file_key_management(backend: Backend, make_upstream: MakeMariaDB) -> None:
    server = make_upstream(start=False)
    keys: Path = server.dir / "keys"
    keys.write_text(f"1;{'0123456789abcdef' * 4}\n")
    keys.chmod(0o644)
    server.flags += [
        "--plugin-load-add=file_key_management",
        f"--file-key-management-filename={keys}",
        "--encrypt-binlog",
    ]
    server.start()
    server.script(*TABLE, "INSERT INTO d.t VALUES (1, 'x')")
    assert server.value("SELECT @@GLOBAL.encrypt_binlog") == 1
    assert server.q("SHOW BINLOG EVENTS")[1]["Event_type"] == "Start_encryption"


def test_programs(backend: Backend, make_upstream: MakeMariaDB) -> None:
    server = make_upstream()
    for program in ("mariadb-backup", "mariadb-binlog", "mariadb-dump", "mariadb"):
        text = server.run(program, "--no-defaults", "--version")
        assert backend.version in text or program == "mariadb-binlog"
    with pytest.raises(subprocess.CalledProcessError, match="non-zero"):
        server.run("mariadb-backup", "--no-such-option")


def test_big_rows(make_upstream: MakeMariaDB, make_replica: MakeMariaDB) -> None:
    upstream = make_upstream()
    replica = make_replica().follow(upstream)
    upstream.script(*TABLE, "INSERT INTO d.t VALUES (1, REPEAT('x', 20000000))")
    replica.wait_gtid(upstream.gtid_binlog_pos)
    assert replica.checksum() == upstream.checksum()


# -- the network between them ---------------------------------------------------------------------


def test_replica_recovers_from_a_cut_connection(
    backend: Backend,
    make_upstream: MakeMariaDB,
    make_replica: MakeMariaDB,
    chaos_proxy: MakeProxy,
) -> None:
    upstream = make_upstream()
    proxy = chaos_proxy(upstream)
    replica = make_replica().follow(upstream, port=proxy.port)
    upstream.script(*TABLE)
    before = proxy.accepted
    proxy.down.cut_after = 5000
    for i in range(20):
        upstream.q("INSERT INTO d.t VALUES (%s, %s)", i, "x" * 1000)

    replica.wait_gtid(upstream.gtid_binlog_pos)

    assert proxy.accepted > before
    assert proxy.down.cut_after is None
    assert replica.checksum() == upstream.checksum()
