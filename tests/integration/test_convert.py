"""The roads between the formats, with real servers at both ends: they apply, read and continue what comes out."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import pytest
from binlog_protocol.gtid import BinlogState

from binlog_server.testing.local import LocalMariaDB
from binlog_server.testing.mariadb import MariaDB
from tests.integration.load import assert_equal, insert, load
from tests.integration.mixed_load import MixedLoad
from tests.integration.test_crash import STRICT
from tests.integration.test_relay_sql import ADMIN
from tests.integration.test_seeding import (
    CHECKSUMS,
    LARGE_COMMIT,
    MAX_BINLOG_SIZE,
    follow_upstream,
    groups_of,
    make_local,
    run,
)
from tests.kit.backends import VERSIONS
from tests.kit.fixtures import MakeBinlogServer, MakeMariaDB

BASE = "upstream-bin"


def binlog_files(directory: Path) -> list[Path]:
    return sorted(directory.glob(f"{BASE}.[0-9]*[0-9]"))


def wait_received(replica: MariaDB, position: str) -> None:
    """Until its relay log has all up to there."""
    replica.wait("SHOW SLAVE STATUS", lambda rows: rows[0]["Gtid_IO_Pos"] == position)


def take_over(server: LocalMariaDB, directory: Path) -> None:
    """Give a stopped server these binlog files in the place of its own."""
    for path in server.datadir.glob(f"{BASE}.*"):
        path.unlink()
    for path in (*binlog_files(directory), directory / f"{BASE}.index"):
        shutil.copy(path, server.datadir)


@pytest.mark.parametrize(
    "version", [VERSIONS[0], pytest.param(VERSIONS[-1], marks=pytest.mark.slow)]
)
def test_there_and_back(
    version: str,
    make_upstream: MakeMariaDB,
    make_replica: MakeMariaDB,
    binlog_server: MakeBinlogServer,
    tmp_path: Path,
    rng: random.Random,
) -> None:
    """A MariaDB's binlog as it lies, to `.ibb` files, to traditional ones; at each end replicas of both versions."""
    flags = (CHECKSUMS[version], LARGE_COMMIT, "--log-bin-compress=1", "--max-binlog-size=200K")
    upstream = make_local(make_upstream, version, *flags)
    mixed = MixedLoad(upstream, rng, pause_s=0.001, large_every=30)
    with mixed.running():
        mixed.wait_more(60)
        with mixed.quiet():
            upstream.restart()
        mixed.wait_more(30)
    upstream.q("FLUSH BINARY LOGS")
    state = BinlogState.parse(upstream.gtid_binlog_state)
    upstream.stop()
    before = {path: path.read_bytes() for path in upstream.datadir.glob(f"{BASE}.*")}

    server = binlog_server(start=False, users=ADMIN, max_binlog_size=MAX_BINLOG_SIZE)
    for _ in range(2):
        run("convert", upstream.datadir, server.directory)
    assert "the same: " in run("convert", "--verify-only", upstream.datadir, server.directory)
    assert {path: path.read_bytes() for path in upstream.datadir.glob(f"{BASE}.*")} == before
    server.start()
    replicas = [make_replica(*STRICT, version=other).follow(server) for other in VERSIONS]
    for replica in replicas:
        replica.wait_gtid(str(state.position()))
    server.stop()

    back = tmp_path / "back"
    run("convert", server.directory, back, "--log-bin", BASE)
    assert "the same: " in run("convert", "--verify-only", server.directory, back)
    files = binlog_files(back)
    assert groups_of(files) == groups_of(binlog_files(upstream.datadir))
    for replica in replicas:  # mariadb-binlog of its version
        for path in files:
            said = replica.run(
                "mariadb-binlog", "--no-defaults", "--verify-binlog-checksum", str(path)
            )
            assert "ERROR" not in said
            assert "unknown" not in said.lower()

    take_over(upstream, back)
    upstream.start()
    assert BinlogState.parse(upstream.gtid_binlog_state) == state
    assert [row["Log_name"] for row in upstream.q("SHOW BINARY LOGS")][:-1] == [
        path.name for path in files
    ]
    insert(upstream, 5, "d.t0")
    for replica in replicas:  # goes on where it is
        replica.script("STOP SLAVE")
        replica.follow(upstream)
    anew = [make_replica(*STRICT, version=other).follow(upstream) for other in VERSIONS]
    assert_equal(upstream, *replicas, *anew)
    assert "[ERROR]" not in upstream.log()


@pytest.mark.parametrize(
    "engine", ["innodb", pytest.param("", marks=pytest.mark.slow, id="traditional")]
)
def test_a_relay_changes_its_engine_as_it_runs(
    engine: str,
    make_upstream: MakeMariaDB,
    make_replica: MakeMariaDB,
    binlog_server: MakeBinlogServer,
) -> None:
    """Under load, and back. Its replicas reconnect once for each change, by themselves; killed, it is where it was."""
    upstream = make_upstream()
    upstream.make_table()
    relay = binlog_server(
        users=ADMIN, max_binlog_size=MAX_BINLOG_SIZE, binlog_storage_engine=engine
    )
    follow_upstream(relay, upstream)
    replicas = [make_replica(*STRICT, version=other).follow(relay) for other in VERSIONS]
    with load(upstream, "d.t") as running:
        for name in ("there", "back"):
            running.wait_more(40)
            # A replica that comes back to a file of another name writes something into its relay log; at rest so that
            # the SQL thread meets it (1594) always.
            for replica in replicas:
                replica.q("STOP SLAVE SQL_THREAD")
            names = "" if name == ("back" if engine else "there") else " LOG_BIN 'm-bin'"
            relay.q(f"ALTER BINLOG CONVERT TO '{relay.dir / name}'{names}")
            running.wait_more(20)
            for replica in replicas:
                replica.q("START SLAVE SQL_THREAD")
        for replica in replicas:
            assert "[ERROR]" not in replica.log()
        relay.kill()
        relay.start()
        running.wait_more(20)
    assert_equal(upstream, *replicas)
    assert relay.q("SELECT @@binlog_directory AS d") == [{"d": str(relay.dir / "back")}]
    assert relay.q("SHOW SLAVE STATUS")[0]["Slave_IO_Running"] == "Yes"
    anew = [make_replica(*STRICT, version=other).follow(relay) for other in VERSIONS]
    assert_equal(upstream, *anew)


def test_replicas_that_nobody_knows_go_on_in_files_of_another_name(
    make_replica: MakeMariaDB, binlog_server: MakeBinlogServer
) -> None:
    """Without slots, and one in the middle of a group. Each says which file it has read: see `Dump`."""
    server = binlog_server(
        users=ADMIN, binlog_storage_engine="innodb", replica_slot_seconds=0, binlog_faults=True
    )
    for text in ("CREATE DATABASE d", "CREATE TABLE d.t (id INT PRIMARY KEY) ENGINE=InnoDB"):
        server.q(text)
    replicas = [make_replica(*STRICT, version=version).follow(server) for version in VERSIONS]
    within = replicas[0].server_id
    server.q(f"CREATE BINLOG FAULT f DO cut GTID='0-1-4' EVENT=2 SERVER_ID={within} TIMES=0")
    for replica in replicas:
        replica.wait_gtid("0-1-2")
        replica.q("STOP SLAVE SQL_THREAD")
    server.q("INSERT INTO d.t VALUES (1)")
    server.q("INSERT INTO d.t VALUES (2)")
    for replica, has in zip(replicas, ("0-1-3", "0-1-4"), strict=True):
        wait_received(replica, has)
    server.stop()
    target = server.dir / "target"
    run("convert", server.directory, target, "--log-bin", "elsewhere-bin")
    server.directory = target
    del server.options["binlog_storage_engine"]
    server.start()
    server.q("INSERT INTO d.t VALUES (3)")
    for replica in replicas:
        wait_received(replica, "0-1-5")
        replica.q("START SLAVE SQL_THREAD")
        replica.wait_gtid("0-1-5")
        assert [row["id"] for row in replica.q("SELECT id FROM d.t")] == [1, 2, 3]


@pytest.mark.slow
@pytest.mark.each_version
def test_a_mariadb_that_is_begun_again_with_checksums_stops_its_replicas(
    make_upstream: MakeMariaDB, make_replica: MakeMariaDB
) -> None:
    """As docs/convert.md says of one that takes the place of a server with `.ibb` files: 1594."""
    upstream = make_upstream("--binlog-checksum=NONE")
    upstream.make_table()
    replica = make_replica(*STRICT).follow(upstream)
    upstream.q("INSERT INTO d.t (a) VALUES ('x')")
    replica.wait_gtid(upstream.gtid_binlog_pos)
    replica.q("STOP SLAVE SQL_THREAD")
    upstream.stop()
    upstream.flags.append("--binlog-checksum=CRC32")
    upstream.start()
    upstream.q("INSERT INTO d.t (a) VALUES ('y')")
    position = upstream.gtid_binlog_pos
    wait_received(replica, position)
    replica.q("START SLAVE SQL_THREAD")
    assert replica.wait_stopped()["Last_SQL_Errno"] == 1594
    replica.script("STOP SLAVE", "START SLAVE")
    replica.wait_gtid(position)


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["innodb", pytest.param("", id="traditional")])
def test_a_relay_changes_its_engine(
    engine: str,
    make_upstream: MakeMariaDB,
    make_replica: MakeMariaDB,
    binlog_server: MakeBinlogServer,
) -> None:
    """Under load: converted beside it, the rest while it is stopped. Nobody tells replicas or relay anything."""
    upstream = make_upstream()
    upstream.make_table()
    relay = binlog_server(
        users=ADMIN, max_binlog_size=MAX_BINLOG_SIZE, binlog_storage_engine=engine
    )
    follow_upstream(relay, upstream)
    replicas = [make_replica(*STRICT, version=other).follow(relay) for other in VERSIONS]
    target = relay.dir / "target"
    with load(upstream, "d.t") as running:
        running.wait_more(40)
        names = ["--log-bin", "elsewhere-bin"] if engine else []
        run("convert", "--online", relay.directory, target, *names)
        running.wait_more(40)
        relay.stop()
        running.wait_more(10)  # which come behind the border
        run("convert", relay.directory, target)
        for (
            replica
        ) in replicas:  # as above: so that it meets what it has written when it comes back
            replica.q("STOP SLAVE SQL_THREAD")
        assert "the same: " in run("convert", "--verify-only", relay.directory, target)
        relay.directory.rename(relay.dir / "old")
        target.rename(relay.directory)
        del relay.options["binlog_storage_engine"]
        relay.start()
        assert (relay.directory / "elsewhere-bin.index").exists() == (engine == "innodb")
        running.wait_more(10)
        for replica in replicas:
            replica.wait("SHOW SLAVE STATUS", lambda rows: rows[0]["Slave_IO_Running"] == "Yes")
            replica.q("START SLAVE SQL_THREAD")
        running.wait_more(20)
    assert_equal(upstream, *replicas)
    assert relay.q("SHOW SLAVE STATUS")[0]["Slave_IO_Running"] == "Yes"
    anew = [make_replica(*STRICT, version=other).follow(relay) for other in VERSIONS]
    assert_equal(upstream, *anew)
