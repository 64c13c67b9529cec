"""Several replication domains: positions with more than one GTID, filters, parallel appliers."""

from __future__ import annotations

import pytest

from binlog_server.testing.mariadb import MariaDB
from tests.integration.load import assert_equal, insert
from tests.kit.fixtures import MakeBinlogServer, MakeMariaDB, MakeRelay

DOMAINS = (0, 5, 7)


def write(upstream: MariaDB, rows: int) -> None:
    """Rows in three domains in turn, a table for each."""
    for _ in range(rows):
        upstream.script(
            *(
                sql
                for domain in DOMAINS
                for sql in (
                    f"SET SESSION gtid_domain_id={domain}",
                    f"INSERT INTO d.t{domain} (a) VALUES (UUID())",
                )
            )
        )


@pytest.mark.each_version
@pytest.mark.by_turns(2)
@pytest.mark.proves("several domains", "domain filters")
def test_three_domains(backend: object, make_relay: MakeRelay, make_replica: MakeMariaDB) -> None:
    upstream, server = make_relay(table="", max_binlog_size=262144)
    for domain in DOMAINS:
        upstream.make_table(f"d.t{domain}")

    replica = make_replica().follow(server)
    parallel = make_replica(
        "--slave-parallel-threads=4", "--slave-parallel-mode=optimistic"
    ).follow(server)
    without_5 = make_replica().follow(server, options="MASTER_SSL=0, IGNORE_DOMAIN_IDS=(5)")
    only_7 = make_replica().follow(server, options="MASTER_SSL=0, DO_DOMAIN_IDS=(7)", start=False)
    # It sees the tables although they were made in domain 0.
    only_7.script("CREATE DATABASE d", *(upstream_table(upstream, f"d.t{d}") for d in DOMAINS))
    only_7.q("START SLAVE")
    assert_equal(upstream, replica, parallel)  # domains do not wait for each other's tables
    without_5.wait_gtid(upstream.gtid_binlog_pos)

    write(upstream, 5)
    assert_equal(upstream, replica, parallel)
    assert replica.gtid_slave_pos.count(",") == 2
    replica.q("STOP SLAVE")
    write(upstream, 20)
    replica.q("START SLAVE")
    assert_equal(upstream, replica, parallel)

    position = upstream.gtid_binlog_pos
    for filtered, kept in ((without_5, (0, 7)), (only_7, (7,))):
        filtered.wait_gtid(position)  # what is ignored counts as done
        wanted = [25 if domain in kept else 0 for domain in DOMAINS]
        assert [filtered.value(f"SELECT COUNT(*) FROM d.t{domain}") for domain in DOMAINS] == wanted
    assert f"position '{replica_start(server.log())}'" in server.log()


def upstream_table(upstream: MariaDB, name: str) -> str:
    create = upstream.q(f"SHOW CREATE TABLE {name}")[0]["Create Table"]
    database, _, table = name.partition(".")
    return str(create).replace(f"`{table}`", f"`{database}`.`{table}`", 1)


def replica_start(log: str) -> str:
    """A position of three domains that a dump started from."""
    starts = (line.partition("position '")[2].partition("'")[0] for line in log.splitlines())
    return next(start for start in starts if start.count(",") == 2)


@pytest.mark.each_version
@pytest.mark.by_turns(2)
@pytest.mark.proves("several domains", "holes")
def test_one_domain_known_another_from_its_beginning(
    backend: object, make_relay: MakeRelay, make_replica: MakeMariaDB
) -> None:
    """A domain that is not in the replica's position is sent whole, one that is there is not."""
    upstream, server = make_relay(table="")
    for domain in DOMAINS:
        upstream.make_table(f"d.t{domain}")
    write(upstream, 5)
    tables = [upstream_table(upstream, f"d.t{domain}") for domain in DOMAINS]
    by_domain = {gtid.split("-")[0]: gtid for gtid in upstream.gtid_binlog_pos.split(",")}
    replica = make_replica()
    replica.script("CREATE DATABASE d", *tables)
    # 3 is a domain that upstream never had: no error, it may come one day.
    replica.q(f"SET GLOBAL gtid_slave_pos='{by_domain['0']},{by_domain['5']},3-3-3'")
    replica.follow(server)
    replica.wait_gtid(upstream.gtid_binlog_pos)
    assert [replica.value(f"SELECT COUNT(*) FROM d.t{d}") for d in DOMAINS] == [0, 0, 5]


@pytest.mark.any_version
def test_a_circle_with_a_mariadb(
    backend: object,
    make_upstream: MakeMariaDB,
    make_replica: MakeMariaDB,
    binlog_server: MakeBinlogServer,
) -> None:
    """Each follows the other: what was committed here comes back to nobody, behind a kill of each neither."""
    real = make_upstream("--log-slave-updates=1")
    real.make_table("d.t")
    ours = binlog_server(
        users={"repl": {"password": "secret", "grants": ["ALL PRIVILEGES"]}},
        server_id=900,
        gtid_domain_id=9,
        local_tables=True,
        read_only=False,
    )
    ours.q("CREATE DATABASE o")
    ours.q("CREATE TABLE o.t (a INT AUTO_INCREMENT PRIMARY KEY, b INT)")
    account = real.account
    ours.q(
        f"CHANGE MASTER TO MASTER_HOST='{real.host}', MASTER_PORT={real.port}, MASTER_SSL=0, MASTER_CONNECT_RETRY=1, "
        f"MASTER_USER='{account.user}', MASTER_PASSWORD='{account.password}', IGNORE_DOMAIN_IDS=(9)"
    )
    ours.q("START SLAVE")
    real.follow(ours)
    for member in (None, ours, real):
        if member is not None:
            member.kill()
            member.start()
        real.q("START SLAVE")
        for _ in range(5):
            ours.q("INSERT INTO o.t (b) VALUES (1)")
            insert(real, 1)
        real.wait_gtid(ours.gtid_binlog_pos)
        ours.wait_position(real.gtid_binlog_pos)
    replica = make_replica().follow(ours)
    replica.wait_gtid(real.gtid_binlog_pos)
    assert [replica.value(f"SELECT COUNT(*) FROM {name}.t") for name in "do"] == [15, 15]
    assert [row["Slave_IO_Running"] for row in ours.q("SHOW SLAVE STATUS")] == ["Yes"]
