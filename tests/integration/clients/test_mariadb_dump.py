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


@pytest.mark.proves("--master-data --gtid", client="mariadb-dump", versions=("10.11", "11.8"))
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
    replica = make_replica(version=version)
    replica.script("CREATE DATABASE d", "CREATE TABLE d.t (id INT PRIMARY KEY, a VARCHAR(200))")
    replica.script(*statements(dump))
    replica.follow(relay.server)
    insert(relay.upstream, 1)
    replica.wait_gtid(relay.upstream.gtid_binlog_pos)
    assert replica.q("SELECT * FROM d.t") == relay.upstream.q("SELECT * FROM d.t WHERE id > 5")


@pytest.mark.proves("--master-data", client="mariadb-dump", versions=("10.11", "11.8"))
def test_position_in_a_file(relay: Relay) -> None:
    relay.write()
    dump = relay.programs.run("mariadb-dump", "--master-data=1", *ALL)
    (status,) = relay.server.q("SHOW MASTER STATUS")
    file, offset = status["File"], status["Position"]
    assert statements(dump) == [
        f"CHANGE MASTER TO MASTER_LOG_FILE='{file}', MASTER_LOG_POS={offset};"
    ]


@pytest.mark.proves("--dump-slave --gtid", client="mariadb-dump", versions=("10.11", "11.8"))
def test_position_of_the_upstream(relay: Relay) -> None:
    """What this server has of its upstream: as GTIDs, the same as its own position."""
    position = relay.write()[-1]
    dump = relay.programs.run("mariadb-dump", "--dump-slave", "--gtid", *ALL)
    assert f"SET GLOBAL gtid_slave_pos='{position}';" in statements(dump)


@pytest.mark.proves("a database is refused", client="mariadb-dump", versions=("10.11", "11.8"))
def test_a_database_is_not_here(relay: Relay) -> None:
    """The upstream has it. A dump without its tables, and no error, would be taken for a backup."""
    relay.write()
    for what in (("d",), ("--databases", "d"), ("--no-data", "d")):
        said = relay.programs.fail("mariadb-dump", *what)
        assert "a binlog server holds no tables; ask the upstream" in said


@pytest.mark.proves("privileges", client="mariadb-dump", versions=("10.11", "11.8"))
def test_needs_reload(relay: Relay) -> None:
    relay.server.q("CREATE USER reader IDENTIFIED BY 'x'")
    said = relay.programs.fail(
        "mariadb-dump", "--user=reader", "--password=x", "--master-data", *ALL
    )
    assert "Access denied; you need (at least one of) the RELOAD privilege" in said
