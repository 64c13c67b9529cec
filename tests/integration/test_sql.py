"""Statements over the replication port: by pymysql, the `mariadb` client, and mariadb-binlog."""

from __future__ import annotations

import subprocess

import pymysql
import pytest

from binlog_server.testing.waiting import until
from tests.integration.load import assert_equal, insert
from tests.kit.backends import Backend
from tests.kit.fixtures import MakeBinlogServer, MakeMariaDB, MakeRelay
from tests.kit.server import BinlogServer

pytestmark = [pytest.mark.each_version, pytest.mark.by_turns(2)]


def login(server: BinlogServer) -> list[str]:
    """Options of the command line clients."""
    account = server.account
    return [
        "--no-defaults",
        f"--host={server.host}",
        f"--port={server.port}",
        f"--user={account.user}",
        f"--password={account.password}",
        "--skip-ssl-verify-server-cert",  # 11.8 insists on TLS otherwise
    ]


@pytest.mark.proves("KILL")
@pytest.mark.proves("monitoring statements", client="pymysql")
def test_show_and_kill(backend: object, make_relay: MakeRelay, make_replica: MakeMariaDB) -> None:
    upstream, server = make_relay(server_id=99, max_binlog_size=262144)
    replica = make_replica("--report-host=replica.example", "--report-port=3399").follow(server)
    replica.wait_gtid(insert(upstream))
    position = upstream.gtid_binlog_pos

    (status,) = server.q("SHOW MASTER STATUS")
    assert status["File"] == "binlog-000000.ibb"
    assert status["Gtid_Binlog_Pos"] == position
    assert 16384 < status["Position"] <= 262144

    def files() -> list[dict[str, object]]:
        paths = sorted(server.directory.glob("binlog-*.ibb"))
        return [{"Log_name": path.name, "File_size": path.stat().st_size} for path in paths]

    until(
        lambda: server.q("SHOW BINARY LOGS") == files(), "the files as they are"
    )  # one is made ahead
    assert server.q("SHOW SLAVE HOSTS") == [
        {
            "Server_id": replica.server_id,
            "Host": "replica.example",
            "Port": 3399,
            "Master_id": 99,
        }
    ]
    (variable,) = server.q("SHOW GLOBAL VARIABLES LIKE 'server\\_id'")
    assert variable == {"Variable_name": "server_id", "Value": "99"}
    assert server.q("SELECT @@server_id AS id, @@gtid_binlog_pos AS pos, VERSION() AS v") == [
        {"id": 99, "pos": position, "v": "11.8.9-MariaDB-binlog-server"}
    ]
    with pytest.raises(pymysql.OperationalError, match="1193"):
        server.q("SELECT @@no_such_variable")
    with pytest.raises(pymysql.OperationalError, match="1046"):
        server.q("SELECT 1 FROM t")
    with pytest.raises(pymysql.OperationalError, match=r"1094.*Unknown thread id: 4294967295"):
        server.q("KILL 4294967295")

    processes = server.q("SHOW PROCESSLIST")
    (dump,) = [row for row in processes if row["Command"] == "Binlog Dump"]
    assert dump["User"] == "repl"
    assert dump["State"].startswith("Master has sent all binlog to slave")
    assert len(processes) == 2
    server.q(f"KILL {dump['Id']}")
    insert(upstream)
    assert_equal(upstream, replica)
    assert server.log().count("dump starts") == 2
    (again,) = [r for r in server.q("SHOW PROCESSLIST") if r["Command"] == "Binlog Dump"]
    assert again["Id"] > dump["Id"]


@pytest.mark.proves("batch", client="mariadb")
@pytest.mark.proves("-R --start-position=GTID", client="mariadb-binlog")
def test_command_line_clients(
    backend: Backend, make_upstream: MakeMariaDB, binlog_server: MakeBinlogServer
) -> None:
    upstream = make_upstream()
    # mariadb-binlog of 10.11 refuses servers of version 11 and later, whoever made them.
    server = binlog_server(upstream=upstream, server_version=f"{backend.version}.1-MariaDB-test")
    upstream.make_table()
    middle = insert(upstream, 3)
    upstream.script("SET SESSION binlog_format=STATEMENT", "INSERT INTO d.t (a) VALUES ('text')")
    wanted = upstream.gtid_binlog_pos
    server.wait_position(wanted)

    batch = ("--batch", "--skip-column-names")
    said = upstream.run(
        "mariadb", *login(server), *batch, "-e", "SHOW MASTER STATUS; SELECT @@gtid_binlog_pos"
    )
    assert said.splitlines()[0].startswith("binlog-000000.ibb\t")
    assert said.splitlines()[1] == wanted
    assert "Uptime" in upstream.run("mariadb", *login(server), "-e", "status")

    remote = ("--read-from-remote-server", "binlog.000001")
    said = upstream.run("mariadb-binlog", *login(server), f"--start-position={middle}", *remote)
    assert "INSERT INTO d.t (a) VALUES ('text')" in said
    assert [
        line.split("\tGTID ")[1].split()[0] for line in said.splitlines() if "\tGTID " in line
    ] == [wanted]
    # Without a GTID it names a file and an offset, which no engine binlog has.
    with pytest.raises(subprocess.CalledProcessError) as refused:
        upstream.run("mariadb-binlog", *login(server), *remote)
    assert "Slave must enable GTID mode" in refused.value.output
