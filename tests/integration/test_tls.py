"""TLS with real replicas and clients, which are told no more than where the server is.

It listens on 127.0.0.2: clients of 11.4 and newer take any certificate from 127.0.0.1, and only here they verify it.
"""

from __future__ import annotations

import ssl
import subprocess
from pathlib import Path
from typing import Any

import pymysql
import pytest

from binlog_server.connections.certificate import self_signed
from binlog_server.testing.waiting import until
from tests.kit.backends import Backend
from tests.kit.fixtures import MakeBinlogServer, MakeMariaDB
from tests.kit.server import BinlogServer

pytestmark = pytest.mark.replica

# 10.11 wants to be told; 11.8 wants TLS and a certificate that it can verify, unless told otherwise.
REPLICA_OPTIONS = {"10.11": "MASTER_SSL=1", "11.8": ""}
CLIENTS = {
    "10.11": "/usr/bin/mariadb",
    "11.8": "/var/cache/binlog-test/mariadb-11.8/usr/bin/mariadb",
}


def listening(server: BinlogServer) -> BinlogServer:
    server.host = "127.0.0.2"
    return server.start()


@pytest.mark.each_version
@pytest.mark.proves("TLS")
def test_replicas_follow_by_tls(
    backend: Backend,
    make_upstream: MakeMariaDB,
    make_replica: MakeMariaDB,
    binlog_server: MakeBinlogServer,
) -> None:
    upstream = make_upstream()
    server = listening(binlog_server(start=False, upstream=upstream, require_secure_transport=True))
    replica = make_replica()
    replica.follow(server, options=REPLICA_OPTIONS[backend.version])
    upstream.script(
        "CREATE DATABASE d",
        "CREATE TABLE d.t (a INT, b LONGBLOB)",
        "INSERT INTO d.t VALUES (1, REPEAT('x', 20000000)), (2, 'y')",  # more than one packet
        "INSERT INTO d.t SELECT seq, REPEAT(seq, 100) FROM d.seq_1_to_5000",
    )
    replica.wait_gtid(upstream.gtid_binlog_pos)
    assert replica.checksum() == upstream.checksum()
    assert replica.replica_status()["Master_SSL_Allowed"] == "Yes"


def mariadb(version: str, server: BinlogServer, *options: str) -> subprocess.CompletedProcess[str]:
    client = Path(CLIENTS[version])
    if not client.exists():
        pytest.skip(f"{client} is not here")
    argv = [str(client), "--no-defaults", *options]
    if version == "11.8":
        tree = client.parents[2]
        libraries = tree / "usr/lib/x86_64-linux-gnu"
        loader = str(tree / "usr/lib64/ld-linux-x86-64.so.2")
        argv = [loader, "--library-path", str(libraries), *argv]
    account = server.account
    argv += [f"-h{server.host}", f"-P{server.port}", f"-u{account.user}", "-N"]
    argv += [f"-p{account.password}", "-e", "status"]
    return subprocess.run(argv, capture_output=True, text=True, timeout=30, check=False)


@pytest.mark.by_turns(2)
@pytest.mark.parametrize("version", CLIENTS)
@pytest.mark.parametrize("tls_version", ["TLSv1.2", "TLSv1.3"])
@pytest.mark.proves("TLS", client="mariadb", versions=("10.11", "11.8"))
def test_command_line_client(
    version: str, tls_version: str, binlog_server: MakeBinlogServer
) -> None:
    server = listening(binlog_server(start=False, tls_version=tls_version))
    done = mariadb(version, server)
    assert done.returncode == 0, done.stderr
    assert "Cipher in use is " in done.stdout
    assert ("Cipher in use is TLS_" in done.stdout) == (tls_version == "TLSv1.3")


@pytest.mark.parametrize("version", CLIENTS)
def test_secure_transport_required(version: str, binlog_server: MakeBinlogServer) -> None:
    server = listening(binlog_server(start=False, require_secure_transport=True))
    done = mariadb(version, server, "--skip-ssl")
    assert done.returncode == 1
    assert "3159" in done.stderr


@pytest.mark.parametrize("version", CLIENTS)
def test_a_certificate_of_ones_own(
    version: str, binlog_server: MakeBinlogServer, tmp_path: Path
) -> None:
    """Who knows it verifies it, by name and issuer; this one is not for the address that we listen on."""
    key, certificate = self_signed()
    (tmp_path / "key.pem").write_bytes(key)
    (tmp_path / "cert.pem").write_bytes(certificate)
    files = {"ssl_cert": str(tmp_path / "cert.pem"), "ssl_key": str(tmp_path / "key.pem")}
    server = listening(binlog_server(start=False, **files))
    done = mariadb(version, server)
    assert done.returncode == 0, done.stderr
    options = [f"--ssl-ca={files['ssl_cert']}", "--ssl-verify-server-cert"]
    done = mariadb(version, server, *options)
    assert done.returncode == 1, "with a CA the name counts, and no proof stands for it"
    assert "2026" in done.stderr


def test_an_old_tls_version_is_refused(binlog_server: MakeBinlogServer) -> None:
    server = listening(binlog_server(start=False, tls_version="TLSv1.3"))
    done = mariadb("10.11", server, "--ssl", "--tls-version=TLSv1.2")
    assert done.returncode == 1
    assert "2026" in done.stderr
    until(lambda: "TLS:" in server.log(), "the log tells of it")


@pytest.mark.each_version
@pytest.mark.proves("TLS")
def test_ed25519(
    backend: Backend, make_replica: MakeMariaDB, binlog_server: MakeBinlogServer
) -> None:
    """The proof is made of the plugin's own hash: an 11.8 replica takes it, by its defaults."""
    root = {"password": "pw", "grants": ["ALL PRIVILEGES"]}
    server = listening(binlog_server(start=False, users={"root": root}))
    server.q("CREATE USER repl IDENTIFIED VIA ed25519 USING PASSWORD('secret') REQUIRE SSL")
    server.q("GRANT REPLICATION SLAVE ON *.* TO repl")
    replica = make_replica()
    options = REPLICA_OPTIONS[backend.version]
    replica.replicate_from(server.host, server.port, "repl", "secret", options=options)
    replica.wait_running()


@pytest.mark.proves("TLS, client certificate", client="pymysql")
def test_pymysql_and_a_client_certificate(binlog_server: MakeBinlogServer, tmp_path: Path) -> None:
    key, certificate = self_signed()
    (tmp_path / "key.pem").write_bytes(key)
    (tmp_path / "cert.pem").write_bytes(certificate)
    root = {"password": "pw", "grants": ["ALL PRIVILEGES"]}
    server = listening(
        binlog_server(start=False, users={"root": root}, ssl_ca=str(tmp_path / "cert.pem"))
    )
    server.q("CREATE USER a IDENTIFIED BY 'x' REQUIRE X509")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    options: dict[str, Any] = {
        "host": server.host,
        "port": server.port,
        "user": "a",
        "password": "x",
    }
    with pytest.raises(pymysql.err.OperationalError, match="1045"):
        pymysql.connect(ssl=context, **options)
    context.load_cert_chain(tmp_path / "cert.pem", tmp_path / "key.pem")
    with pymysql.connect(ssl=context, **options) as client, client.cursor() as cursor:
        cursor.execute("SELECT 1")
        assert cursor.fetchall() == ((1,),)
