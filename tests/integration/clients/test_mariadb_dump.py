"""`mariadb-dump`: there is nothing to dump here, but the position is right; and nothing dumped is never silent."""

from __future__ import annotations

import pytest

from tests.integration.clients.programs import Relay
from tests.integration.load import insert
from tests.kit.fixtures import MakeMariaDB

ALL = ("--all-databases",)


def statements(dump: str) -> list[str]:
    """Without comments and settings."""
    lines = [line for line in dump.splitlines() if line and not line.startswith(("--", "/*"))]
    return [line for line in lines if not line.startswith("SET NAMES")]


@pytest.mark.proves(
    "--master-data --gtid",
    "--master-data",
    "--dump-slave --gtid",
    client="mariadb-dump",
    versions=("10.11", "11.8"),
)
def test_position(relay: Relay, version: str, make_replica: MakeMariaDB) -> None:
    """A replica that loads the dump goes on behind it."""
    position = relay.write()[-1]
    for how in ("--single-transaction", "--flush-logs", "--lock-all-tables"):
        dump = relay.programs.run("mariadb-dump", "--master-data", "--gtid", how, *ALL)
        assert statements(dump) == [
            "CHANGE MASTER TO MASTER_USE_GTID=slave_pos;",
            f"SET GLOBAL gtid_slave_pos='{position}';",
        ]
        (status,) = relay.server.q("SHOW MASTER STATUS")
        where = f"MASTER_LOG_FILE='{status['File']}', MASTER_LOG_POS={status['Position']};"
        assert f"-- CHANGE MASTER TO {where}" in dump.splitlines()
    plain = relay.programs.run("mariadb-dump", "--master-data=1", *ALL)
    assert statements(plain) == [f"CHANGE MASTER TO {where}"]
    of_upstream = relay.programs.run("mariadb-dump", "--dump-slave", "--gtid", *ALL)
    assert f"SET GLOBAL gtid_slave_pos='{position}';" in statements(of_upstream)
    replica = make_replica(version=version)
    replica.script("CREATE DATABASE d", "CREATE TABLE d.t (id INT PRIMARY KEY, a VARCHAR(200))")
    replica.script(*statements(dump))
    replica.follow(relay.server)
    insert(relay.upstream, 1)
    replica.wait_gtid(relay.upstream.gtid_binlog_pos)
    assert replica.q("SELECT * FROM d.t") == relay.upstream.q("SELECT * FROM d.t WHERE id > 5")


@pytest.mark.proves(
    "a database is refused", "privileges", client="mariadb-dump", versions=("10.11", "11.8")
)
def test_refusals(relay: Relay) -> None:
    """The upstream has it. A dump without its tables, and no error, would be taken for a backup."""
    relay.write()
    for what in (("d",), ("--databases", "d"), ("--no-data", "d")):
        said = relay.programs.fail("mariadb-dump", *what)
        assert "a binlog server holds no tables; ask the upstream" in said
    relay.server.q("CREATE USER reader IDENTIFIED BY 'x'")
    login = ("--user=reader", "--password=x")
    said = relay.programs.fail("mariadb-dump", *login, "--master-data", *ALL)
    assert "Access denied; you need (at least one of) the RELOAD privilege" in said
