"""Upstreams by SQL, with real masters and replicas: CHANGE MASTER and its kin, several masters, TLS, ed25519."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pymysql
import pytest

from binlog_server.connections.certificate import self_signed
from binlog_server.testing.mariadb import MariaDB
from binlog_server.testing.sql_server import Followed, Row
from binlog_server.testing.waiting import until
from tests.integration.load import assert_equal, insert
from tests.kit.backends import Backend
from tests.kit.fixtures import MakeBinlogServer, MakeMariaDB
from tests.kit.server import BinlogServer

pytestmark = pytest.mark.any_version

ADMIN = {"repl": {"password": "repl-password", "grants": ["ALL PRIVILEGES"]}}
OTHER_HOST = "127.0.0.2"  # not one of those that need not be verified


def to(source: Followed, options: str = "MASTER_SSL=0", host: str = "127.0.0.1") -> str:
    """The clauses of CHANGE MASTER."""
    return (
        f"MASTER_HOST='{host}', MASTER_PORT={source.port}, MASTER_USER='{source.account.user}', "
        f"MASTER_PASSWORD='{source.account.password}', MASTER_CONNECT_RETRY=1, {options}"
    )


def statuses(server: BinlogServer | MariaDB) -> dict[str, Row]:
    return {row["Connection_name"]: row for row in server.q("SHOW ALL SLAVES STATUS")}


def status(server: BinlogServer | MariaDB, name: str = "") -> Row:
    return statuses(server).get(name, {})


def wait_status(server: BinlogServer, name: str = "", **wanted: Any) -> Row:
    """The row that has it: the next one may be another."""
    row: Row = {}

    def is_so() -> bool:
        nonlocal row
        row = status(server, name)
        return all(row.get(key) == value for key, value in wanted.items())

    until(is_so, f"{wanted} in {name!r}")
    return row


def refused(server: BinlogServer | MariaDB, sql: str) -> tuple[int, str]:
    with pytest.raises(pymysql.Error) as caught:
        server.q(sql)
    number, text = caught.value.args
    return number, text


def warned(server: BinlogServer | MariaDB, sql: str) -> list[tuple[str, int, str]]:
    """What SHOW WARNINGS says behind it."""
    with server.connect() as connection, connection.cursor() as cursor:
        cursor.execute(sql)
        cursor.execute("SHOW WARNINGS")
        return [(row["Level"], row["Code"], row["Message"]) for row in cursor.fetchall()]


def test_a_life_over_restarts(
    make_upstream: MakeMariaDB,
    make_replica: MakeMariaDB,
    binlog_server: MakeBinlogServer,
) -> None:
    upstream = make_upstream()
    server = binlog_server(users=ADMIN, server_id=77)
    upstream.make_table()
    server.q(f"CHANGE MASTER TO {to(upstream)}, MASTER_USE_GTID=slave_pos")
    assert status(server)["Slave_IO_Running"] == "No"
    server.q("START SLAVE")
    row = wait_status(server, Slave_IO_Running="Yes", Slave_SQL_Running="Yes")
    assert row["Slave_IO_State"] == "Waiting for master to send event"
    assert (row["Master_Server_Id"], row["Using_Gtid"]) == (upstream.server_id, "Slave_Pos")
    replica = make_replica().follow(server)
    insert(upstream)
    assert_equal(upstream, replica)
    wait_status(server, Gtid_IO_Pos=upstream.gtid_binlog_pos, Seconds_Behind_Master=0)

    server.restart()
    wait_status(server, Slave_IO_Running="Yes")
    assert server.q("SELECT @@read_only AS r") == [{"r": 1}]
    insert(upstream)
    assert_equal(upstream, replica)

    server.q("STOP SLAVE")
    insert(upstream)
    server.restart()
    assert status(server)["Slave_IO_Running"] == "No"
    assert status(server)["Gtid_IO_Pos"] != upstream.gtid_binlog_pos
    server.q("START SLAVE")
    assert_equal(upstream, replica)

    server.q("STOP SLAVE")
    server.q("RESET SLAVE ALL")
    assert server.q("SHOW SLAVE STATUS") == []
    server.restart()
    assert server.q("SHOW SLAVE STATUS") == []
    assert refused(server, "START SLAVE")[0] == 1200
    kept = b"".join(file.read_bytes() for file in server.directory.glob("binlog-server.*"))
    assert upstream.account.password.encode() not in kept
    assert upstream.account.password not in server.log()


STATEMENTS = [
    "START SLAVE",
    "START SLAVE 'x'",
    "STOP SLAVE",
    "STOP SLAVE 'x'",
    "RESET SLAVE",
    "RESET SLAVE 'x' ALL",
    "SHOW SLAVE 'x' STATUS",
    "SHOW REPLICA STATUS",
    "START ALL REPLICAS",
    "CHANGE MASTER TO MASTER_HOST=''",
    "CHANGE MASTER TO MASTER_HOST='h', MASTER_HEARTBEAT_PERIOD=99999999",
    "CHANGE MASTER TO MASTER_HOST='127.0.0.1', MASTER_PORT=1, MASTER_USER='u', MASTER_HEARTBEAT_PERIOD=0.0001",
    "CHANGE MASTER TO MASTER_HEARTBEAT_PERIOD=1000",
    "CHANGE MASTER TO MASTER_CONNECT_RETRY=0, IGNORE_SERVER_IDS=(7, 0, 7), DO_DOMAIN_IDS=()",
    "CHANGE MASTER TO MASTER_USE_GTID=foo",
    "CHANGE MASTER TO MASTER_PORT=-1",
    "CHANGE MASTER TO",
    "CHANGE MASTER x TO MASTER_PORT=1",
    "CHANGE MASTER 'x' TO MASTER_HOST='a' FOR CHANNEL 'y'",
    "CHANGE MASTER TO MASTER_HOST='127.0.0.1', MASTER_SSL=0 FOR CHANNEL 'c'",
    "SHOW SLAVE STATUS FOR CHANNEL 'd'",
    "START SLAVE",
    "START SLAVE",
    "START SLAVE UNTIL MASTER_GTID_POS='0-1-1'",
    "CHANGE MASTER TO MASTER_PORT=1",
    "RESET SLAVE",
    "RESET SLAVE ALL",
    "SET GLOBAL gtid_slave_pos='0-1-1'",
    "SET GLOBAL gtid_ignore_duplicates=1",
    "STOP SLAVE",
    "STOP SLAVE",
    "START SLAVE IO_THREAD UNTIL MASTER_GTID_POS='0-1-1'",
    "START SLAVE UNTIL MASTER_GTID_POS='0-1-1,0-1-2'",
    "START SLAVE UNTIL MASTER_GTID_POS='x'",
    "RESET REPLICA ALL",
    "RESET SLAVE 'c' ALL",
    "SET default_master_connection='q'",
]


def outcome(server: BinlogServer | MariaDB, sql: str) -> object:
    try:
        found = warned(server, sql)
    except pymysql.Error as error:
        return error.args
    # A note of a statement that gives none is that of an earlier one on MariaDB.
    return [warning for warning in found if warning[0] != "Error"]


def test_statements_beside_a_real_server(
    backend: Backend, make_replica: MakeMariaDB, binlog_server: MakeBinlogServer
) -> None:
    """The same errors, notes and warnings, one statement after the other."""
    real = make_replica()
    server = binlog_server(users=ADMIN, slave_net_timeout=10)
    differ = {sql: (outcome(server, sql), outcome(real, sql)) for sql in STATEMENTS}
    assert {sql: both for sql, both in differ.items() if both[0] != both[1]} == {}
    theirs = [name for name in status(real) if name]
    ours = list(status(server))
    assert ours[: len(theirs)] == theirs


def test_two_masters_into_one_replica(
    make_upstream: MakeMariaDB,
    make_replica: MakeMariaDB,
    binlog_server: MakeBinlogServer,
) -> None:
    first, second = make_upstream(), make_upstream("--gtid-domain-id=5")
    first.make_table("a.t")
    second.make_table("b.t")
    server = binlog_server(users=ADMIN)
    server.q(f"CHANGE MASTER 'first' TO {to(first)}")
    server.q(f"CHANGE MASTER 'Second' TO {to(second)}")
    assert [code for _, code, _ in warned(server, "START ALL SLAVES")] == [1937, 1937]
    replica = make_replica().follow(server)
    for _ in range(3):
        insert(first, table="a.t")
        insert(second, table="b.t")
        server.q("STOP SLAVE 'second'")
        insert(first, table="a.t")
        insert(second, table="b.t")
        server.q("START SLAVE 'second'")
    replica.wait_gtid(f"{first.gtid_binlog_pos},{second.gtid_binlog_pos}")
    assert replica.checksum() == {**first.checksum(), **second.checksum()}
    assert {name: row["Slave_IO_Running"] for name, row in statuses(server).items()} == {
        "first": "Yes",
        "Second": "Yes",
    }
    server.restart()
    insert(second, table="b.t")
    replica.wait_gtid(second.gtid_binlog_pos)
    assert replica.checksum() == {**first.checksum(), **second.checksum()}


def test_one_domain_from_two_masters(
    make_upstream: MakeMariaDB,
    make_replica: MakeMariaDB,
    binlog_server: MakeBinlogServer,
) -> None:
    """The second one stops and says both names; with gtid_ignore_duplicates each group is stored once."""
    first = make_upstream()
    second = make_upstream("--log-slave-updates")
    second.follow(first)
    first.make_table()
    server = binlog_server(users=ADMIN)
    server.q(f"CHANGE MASTER 'a' TO {to(first)}")
    server.q(f"CHANGE MASTER 'b' TO {to(second)}")
    server.q("START SLAVE 'a'")
    wait_status(server, "a", Gtid_IO_Pos=first.gtid_binlog_pos)
    second.wait_gtid(first.gtid_binlog_pos)
    server.q("START SLAVE 'b'")
    wait_status(server, "b", Slave_IO_Running="Yes")
    insert(first)
    row = wait_status(server, "b", Slave_IO_Running="No", Last_IO_Errno=1593)
    assert f"domain 0 comes from upstream 127.0.0.1:{first.port}" in row["Last_IO_Error"]
    assert status(server, "a")["Slave_IO_Running"] == "Yes"

    server.q("STOP ALL SLAVES")
    server.q("SET GLOBAL gtid_ignore_duplicates=1")
    server.q("START ALL SLAVES")
    for name in "ab":
        wait_status(server, name, Slave_IO_Running="Yes")
    replica = make_replica("--gtid-strict-mode").follow(server)
    insert(first, 50)
    assert_equal(first, replica)
    server.q("STOP SLAVE 'a'")
    insert(first, 50)
    assert_equal(first, replica)


def test_start_position_until_and_filters(
    make_upstream: MakeMariaDB,
    binlog_server: MakeBinlogServer,
) -> None:
    upstream = make_upstream()
    upstream.make_table()
    begin = insert(upstream)
    upstream.q("FLUSH BINARY LOGS")
    upstream.script("SET SESSION gtid_domain_id=9", "CREATE DATABASE left_out")
    middle = insert(upstream)
    upstream.q("FLUSH BINARY LOGS")

    def purged() -> bool:  # not while a crash would need the files
        upstream.q("PURGE BINARY LOGS TO 'upstream-bin.000003'")
        return len(upstream.q("SHOW BINARY LOGS")) == 1

    until(purged, "the first files are purged")
    end = insert(upstream)

    server = binlog_server(users=ADMIN)
    server.q(f"CHANGE MASTER TO {to(upstream)}, DO_DOMAIN_IDS=(0)")
    server.q("START SLAVE")
    row = wait_status(server, Slave_IO_Running="No", Last_IO_Errno=1236)
    assert "purged" in row["Last_IO_Error"]
    only_0 = ",".join(part for part in middle.split(",") if part.startswith("0-"))
    server.q(f"SET GLOBAL gtid_slave_pos='{only_0}'")
    until_ = only_0.rpartition("-")[0] + "-" + str(int(only_0.rpartition("-")[2]) + 4)
    server.q(f"START SLAVE UNTIL MASTER_GTID_POS='{until_}'")
    row = wait_status(server, Slave_IO_Running="No", Gtid_IO_Pos=until_)
    assert (row["Until_Condition"], row["Last_IO_Errno"]) == ("Gtid", 0)
    server.q("START SLAVE")
    last = next(part for part in end.split(",") if part.startswith("0-"))
    wait_status(server, Gtid_IO_Pos=last)
    assert refused(server, f"CHANGE MASTER TO {to(upstream)}")[0] == 1198
    server.q("STOP SLAVE")
    assert refused(server, f"SET GLOBAL gtid_slave_pos='{begin}'")[0] == 1956
    number, text = refused(server, "CHANGE MASTER TO MASTER_LOG_FILE='m.000001', MASTER_LOG_POS=4")
    assert number == 1201
    assert "BINLOG_GTID_POS('m.000001', 4)" in text


def test_wrong_password_and_nobody_there(
    make_upstream: MakeMariaDB, binlog_server: MakeBinlogServer
) -> None:
    upstream = make_upstream()
    upstream.make_table()
    server = binlog_server(users=ADMIN)
    server.q(f"CHANGE MASTER TO {to(upstream)}, MASTER_PASSWORD='wrong'")
    server.q("START SLAVE")
    row = wait_status(server, Slave_IO_Running="Connecting", Last_IO_Errno=1045)
    assert row["Last_IO_Error"].startswith(
        f"error connecting to master 'repl@127.0.0.1:{upstream.port}' - retry-time: 1  "
    )
    assert "Access denied" in row["Last_IO_Error"]
    assert row["Seconds_Behind_Master"] is None
    server.q("STOP SLAVE")
    server.q("CHANGE MASTER TO MASTER_PASSWORD='repl-password', MASTER_HOST='no-such-host.invalid'")
    server.q("START SLAVE")
    row = wait_status(server, Last_IO_Errno=2005)
    assert "Unknown server host 'no-such-host.invalid'" in row["Last_IO_Error"]
    server.q("STOP SLAVE")
    server.q("CHANGE MASTER TO MASTER_HOST='127.0.0.1'")
    upstream.stop()
    server.q("START SLAVE")
    row = wait_status(server, Last_IO_Errno=2003)
    assert (
        "Can't connect to server on '127.0.0.1' (111 \"Connection refused\")"
        in row["Last_IO_Error"]
    )
    upstream.start()
    wait_status(server, Slave_IO_Running="Yes", Last_IO_Errno=0, Last_IO_Error="")
    wait_status(server, Gtid_IO_Pos=upstream.gtid_binlog_pos)


def test_the_file_defines_and_sql_starts(
    make_upstream: MakeMariaDB, binlog_server: MakeBinlogServer
) -> None:
    upstream = make_upstream()
    upstream.make_table()
    server = binlog_server(users=ADMIN, start=False, upstream=None)
    secret = server.dir / "secret"
    secret.write_text(upstream.account.password + "\n")
    server.options["upstream"] = {
        "east": {
            "host": "127.0.0.1",
            "port": upstream.port,
            "user": upstream.account.user,
            "password_file": str(secret),
            "ssl": False,
        }
    }
    server.start()
    wait_status(server, "east", Gtid_IO_Pos=upstream.gtid_binlog_pos)
    server.q("STOP SLAVE 'east'")
    assert (
        "is defined in the configuration file"
        in refused(server, "CHANGE MASTER 'East' TO MASTER_PORT=1")[1]
    )
    assert refused(server, "RESET SLAVE 'east' ALL")[0] == 1290
    server.restart()
    assert status(server, "east")["Slave_IO_Running"] == "No"
    secret.unlink()
    server.q("START SLAVE 'east'")
    row = wait_status(server, "east", Last_IO_Errno=1593)
    assert f"the password's file {secret} cannot be read" in row["Last_IO_Error"]


def tls_upstream(make_upstream: MakeMariaDB) -> tuple[MariaDB, Path]:
    """A master that offers TLS, on every address; and its certificate."""
    upstream = make_upstream(start=False)
    key, cert = (upstream.dir / name for name in ("key.pem", "cert.pem"))
    for path, data in zip((key, cert), self_signed(), strict=True):
        path.write_bytes(data)
        path.chmod(0o644)
    upstream.flags += ["--ssl", f"--ssl-cert={cert}", f"--ssl-key={key}", "--bind-address=0.0.0.0"]
    upstream.start()
    upstream.create_account()
    return upstream, cert


def test_tls(backend: Backend, make_upstream: MakeMariaDB, binlog_server: MakeBinlogServer) -> None:
    """By default: an 11.8 proves its certificate by the password; a 10.11 cannot, and needs to be known by it."""
    upstream, cert = tls_upstream(make_upstream)
    upstream.make_table()
    server = binlog_server(users=ADMIN)
    server.q(f"CHANGE MASTER TO {to(upstream, 'MASTER_USE_GTID=slave_pos', OTHER_HOST)}")
    server.q("START SLAVE")
    if backend.version == "10.11":
        row = wait_status(server, Last_IO_Errno=2026)
        assert "without MASTER_SSL_CA the server must prove" in row["Last_IO_Error"]
    else:
        wait_status(server, Slave_IO_Running="Yes", Gtid_IO_Pos=upstream.gtid_binlog_pos)
        assert "TLS, verified by the password" in server.log()
    server.q("STOP SLAVE")
    # The certificate is for another name.
    server.q(f"CHANGE MASTER TO MASTER_SSL_CA='{cert}'")
    server.q("START SLAVE")
    row = wait_status(server, Last_IO_Errno=2026)
    assert "IP address mismatch" in row["Last_IO_Error"]
    server.q("STOP SLAVE")
    server.q("CHANGE MASTER TO MASTER_SSL_CA='', MASTER_SSL_VERIFY_SERVER_CERT=0")
    server.q("START SLAVE")
    wait_status(server, Slave_IO_Running="Yes", Gtid_IO_Pos=upstream.gtid_binlog_pos)
    assert "TLS, not verified" in server.log()


def test_compressed(
    backend: Backend,
    make_upstream: MakeMariaDB,
    make_replica: MakeMariaDB,
    binlog_server: MakeBinlogServer,
) -> None:
    upstream, _ = tls_upstream(make_upstream)
    server = binlog_server(users=ADMIN, slave_net_timeout=10)
    server.q("SET GLOBAL slave_compressed_protocol=1")
    server.q(
        # Silent for three of them it would be lost: a busy machine may be that for seconds.
        f"CHANGE MASTER TO {to(upstream)}, MASTER_HEARTBEAT_PERIOD=3, "
        f"MASTER_SSL=1, MASTER_SSL_VERIFY_SERVER_CERT=0"
    )
    server.q("START SLAVE")
    wait_status(server, Slave_IO_Running="Yes")
    assert "TLS, not verified, compressed" in server.log()
    upstream.make_table()
    replica = make_replica().follow(server)
    insert(upstream, 200, size=200)
    upstream.script(
        "CREATE TABLE d.big (a INT, b LONGBLOB)",
        "INSERT INTO d.big VALUES (1, REPEAT('x', 20000000)), (2, RANDOM_BYTES(1024))",
        "INSERT INTO d.big SELECT seq, RANDOM_BYTES(1000) FROM d.seq_1_to_3000",
    )
    assert_equal(upstream, replica)
    assert "lost upstream" not in server.log()


def test_tls_is_wanted_and_not_there(
    make_upstream: MakeMariaDB, binlog_server: MakeBinlogServer
) -> None:
    upstream = make_upstream()
    server = binlog_server(users=ADMIN)
    server.q(f"CHANGE MASTER TO {to(upstream, 'MASTER_SSL=1')}")
    server.q("START SLAVE")
    row = wait_status(server, Last_IO_Errno=2026)
    assert "SSL is required, but the server does not support it" in row["Last_IO_Error"]


def test_ed25519(
    backend: Backend, make_upstream: MakeMariaDB, binlog_server: MakeBinlogServer
) -> None:
    upstream, _ = tls_upstream(make_upstream)
    upstream.script(
        "SET SESSION sql_log_bin = 0",
        "INSTALL SONAME 'auth_ed25519'",
        "CREATE USER signer@'%' IDENTIFIED VIA ed25519 USING PASSWORD('a secret')",
        "GRANT REPLICATION SLAVE ON *.* TO signer@'%'",
    )
    upstream.make_table()
    server = binlog_server(users=ADMIN)
    login = "MASTER_USER='signer', MASTER_PASSWORD='a secret'"
    verify = int(backend.version != "10.11")
    server.q(
        f"CHANGE MASTER TO {to(upstream, login, OTHER_HOST)}, MASTER_SSL_VERIFY_SERVER_CERT={verify}"
    )
    server.q("START SLAVE")
    wait_status(server, Slave_IO_Running="Yes", Gtid_IO_Pos=upstream.gtid_binlog_pos)
    if verify:
        assert "TLS, verified by the password" in server.log()
