"""The compressed protocol with real replicas and clients."""

from __future__ import annotations

import pytest

from tests.integration.load import assert_equal, insert
from tests.integration.test_replica_options import HEARTBEATS
from tests.integration.test_tls import CLIENTS, mariadb
from tests.kit.backends import Backend
from tests.kit.fixtures import MakeBinlogServer, MakeMariaDB, MakeProxy, MakeRelay

LARGE = 20_000_000  # more than one packet; as it is on the wire it would break the proxy's limit
LIMIT = 5_000_000
COMPRESSED = "--slave-compressed-protocol=1"


@pytest.mark.by_turns(2)
@pytest.mark.each_version
@pytest.mark.proves("compressed", "large events")
@pytest.mark.parametrize("ssl", [0, 1], ids=["plain", "tls"])
def test_replica(
    ssl: int,
    backend: Backend,
    make_relay: MakeRelay,
    make_replica: MakeMariaDB,
    chaos_proxy: MakeProxy,
) -> None:
    upstream, server = make_relay(table="", require_secure_transport=bool(ssl))
    proxy = chaos_proxy(server)
    proxy.down.cut_after = LIMIT
    replica = make_replica(COMPRESSED)
    account = server.account
    options = f"MASTER_SSL={ssl}, MASTER_SSL_VERIFY_SERVER_CERT=0, MASTER_HEARTBEAT_PERIOD=0.1"
    replica.replicate_from(proxy.host, proxy.port, account.user, account.password, options=options)
    upstream.make_table()
    upstream.q("CREATE TABLE d.b (a INT PRIMARY KEY, b LONGBLOB)")
    upstream.q(f"INSERT INTO d.b VALUES (1, REPEAT('abc', {LARGE // 3}))")
    insert(upstream, 200, size=100)
    assert_equal(upstream, replica)
    replica.wait(HEARTBEATS, lambda rows: int(rows[0]["Value"]) > 3, timeout=20)
    replica.q("STOP SLAVE")
    insert(upstream, 50)
    replica.q("START SLAVE")
    assert_equal(upstream, replica)
    assert proxy.down.cut_after == LIMIT, "cut: more came than is possible with compression"
    assert replica.replica_status()["Last_IO_Errno"] == 0


@pytest.mark.replica
@pytest.mark.by_turns(2)
@pytest.mark.parametrize("version", CLIENTS)
@pytest.mark.parametrize("ssl", ["--skip-ssl", "--ssl"])
def test_command_line_client(version: str, ssl: str, binlog_server: MakeBinlogServer) -> None:
    done = mariadb(version, binlog_server(), "--compress", ssl, "--ssl-verify-server-cert=0")
    assert done.returncode == 0, done.stderr
    assert "Protocol:\t\tCompressed" in done.stdout
    assert ("Cipher in use is " in done.stdout) == (ssl == "--ssl")
