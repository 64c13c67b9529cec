"""docs/point-in-time.md with real servers: logins whose history ends there, and a recovery."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from binlog_server.testing.local import LocalMariaDB
from binlog_server.testing.mariadb import MariaDB
from binlog_server.testing.sql_server import Credentials
from tests.integration.load import insert
from tests.integration.test_relay_sql import ADMIN
from tests.kit.backends import VERSIONS, Backend
from tests.kit.fixtures import MakeBinlogServer, MakeMariaDB

NOON = 1_763_636_400  # 2025-11-20 11:00:00 UTC


@pytest.mark.any_version
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


@pytest.mark.slow
@pytest.mark.parametrize("version", VERSIONS)
def test_recover(
    version: str,
    make_upstream: MakeMariaDB,
    make_replica: MakeMariaDB,
    binlog_server: MakeBinlogServer,
    tmp_path: Path,
) -> None:
    """docs/point-in-time.md, its steps: a backup, more rows, a table dropped by mistake, and all before that."""
    upstream = make_upstream(backend=Backend("local", version))
    assert isinstance(upstream, LocalMariaDB)
    upstream.make_table()
    upstream.script("CREATE USER app IDENTIFIED BY 'x'", "CREATE TABLE d.other (a INT)")
    server = binlog_server(upstream=upstream, users=ADMIN)
    insert(upstream, 20)
    backup, datadir = tmp_path / "backup", tmp_path / "recovered"
    socket = f"--socket={upstream.dir / 'socket'}"
    upstream.run(
        "mariadb-backup", "--no-defaults", "--backup", f"--target-dir={backup}", socket, "--user=root", "--skip-ssl"
    )  # fmt: skip
    insert(upstream, 30)
    upstream.script(
        "SET gtid_domain_id = 3",
        "INSERT INTO d.other VALUES (1)",
        "ALTER USER app IDENTIFIED BY 'y'",
    )
    server.wait_position(upstream.gtid_binlog_pos)
    wanted = upstream.checksum()
    upstream.q("DROP TABLE /* by mistake */ d.t")
    server.wait_position(insert_other(upstream))

    server.q("FLUSH BINARY LOGS")
    found = call("find", server.directory, "--table", "d.t", "--op", "drop", "--json")
    (drop,) = map(json.loads, found.stdout.splitlines())
    install = upstream.install
    environment = {
        **os.environ,
        "MARIADB_BACKUP": shlex.join(install.program("mariadb-backup")),
        "MARIADBD": shlex.join(install.program("mariadbd")),
        "MARIADBD_OPTIONS": " ".join(
            option
            for option in install.mariadbd[1:]
            if option.startswith(("--lc-", "--char", "--plugin", "--user"))
        ),
        "MARIADB": f"{shlex.join(install.program('mariadb'))} --no-defaults --user=root",
    }
    password = tmp_path / "password"
    password.write_text(f"{server.account.password}\n")
    arguments = (
        "recover", "--backup", backup, "--datadir", datadir, "--until", drop["before"],
        "--source", f"mariadb://{server.account.user}@{server.host}:{server.port}", "--password-file", password,
    )  # fmt: skip
    printed = call(*arguments, "--print").stdout
    assert server.account.password not in printed.replace(server.account.user, "")
    assert not datadir.exists()
    if os.getuid() == 0:
        own = {**environment, "MARIADBD_OPTIONS": ""}
        assert (
            "as root mariadbd does not start"
            in call(*arguments, environment=own, fails=True).stderr
        )
        assert not datadir.exists()
    done = call(*arguments, environment=environment)
    assert drop["before"].split(",")[0] in done.stdout, done.stderr
    again = call(*arguments, environment=environment, fails=True)
    assert "is not empty" in again.stderr

    recovered = make_replica(start=False, backend=Backend("local", version))
    assert isinstance(recovered, LocalMariaDB)
    shutil.copytree(datadir, recovered.datadir)
    recovered.start()
    assert recovered.checksum() == wanted
    assert set(recovered.gtid_slave_pos.split(",")) == set(drop["before"].split(","))


def insert_other(upstream: MariaDB) -> str:
    upstream.q("INSERT INTO d.other VALUES (2)")
    return upstream.gtid_binlog_pos


def call(
    *arguments: str | Path, environment: dict[str, str] | None = None, fails: bool = False
) -> subprocess.CompletedProcess[str]:
    """`binlog-server ARGUMENTS`."""
    argv = [sys.executable, "-m", "binlog_server", *map(str, arguments)]
    done = subprocess.run(argv, capture_output=True, text=True, env=environment, check=False)
    assert bool(done.returncode) == fails, done.stdout + done.stderr
    return done
