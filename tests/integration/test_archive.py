"""Archives of real masters: what is archived may be purged, and real replicas apply it, as if from the master."""

from __future__ import annotations

import contextlib
import io
import json
import random
from pathlib import Path
from typing import Any

import pymysql
import pytest
from binlog_pipeline.cli import main
from binlog_protocol.groups.stored_group import group_gtid
from binlog_protocol.gtid import BinlogState
from binlog_storage.archive.archive import Archive
from binlog_storage.classic.offline_groups import classic_groups

from binlog_server.testing.local import LocalMariaDB
from binlog_server.testing.waiting import until
from tests.integration import store_files
from tests.integration.load import assert_equal, insert
from tests.integration.mixed_load import MixedLoad
from tests.integration.test_crash import STRICT
from tests.integration.test_relay_sql import ADMIN
from tests.kit.backends import VERSIONS
from tests.kit.fixtures import MakeBinlogServer, MakeMariaDB
from tests.kit.server import BinlogServer
from tests.pipeline.archives import stored

MAX_BINLOG_SIZE = 4 << 20
PURGE_AT_ONCE = {
    "slave_connections_needed_for_purge": 0,
    "replica_slot_seconds": 0,
    "max_binlog_size": MAX_BINLOG_SIZE,
}


def spark(*arguments: str | Path) -> str:
    """`binlog-spark ARGUMENTS`, in this process; what it prints. It must succeed."""
    out, error = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(error):
        code = main([*map(str, arguments)])
    assert code == 0, out.getvalue() + error.getvalue()
    return out.getvalue()


def archive(source: str | Path, out: Path, *more: str) -> dict[str, Any]:
    """What `binlog-spark archive` says of it."""
    one = ("--engine", "local", "--workers", "1", "--json")
    found: dict[str, Any] = json.loads(spark("archive", source, out, *one, *more))
    return found


def is_at(done: dict[str, Any], position: str) -> bool:
    return set(done["position"].split(",")) == set(position.split(","))


def files(server: BinlogServer) -> list[str]:
    return [str(row["Log_name"]) for row in server.q("SHOW BINARY LOGS")]


def is_purged_to(server: BinlogServer, name: str) -> bool:
    """Whether all files in front of that one are gone, or go now."""
    with contextlib.suppress(pymysql.Error):  # it is not archived yet
        server.q(f"PURGE BINARY LOGS TO '{name}'")
    return files(server)[0] == name


@pytest.mark.any_version
def test_archive_purge_and_serve(
    make_upstream: MakeMariaDB,
    make_replica: MakeMariaDB,
    binlog_server: MakeBinlogServer,
    tmp_path: Path,
    rng: random.Random,
) -> None:
    """Groups of every kind, in two domains, a large one; archived while they come, purged, and served again."""
    upstream = make_upstream()
    out = tmp_path / "archive"
    server = binlog_server(
        upstream=upstream, users=ADMIN, binlog_archive_directory=str(out), **PURGE_AT_ONCE
    )
    mixed = MixedLoad(upstream, rng, pause_s=0.001, large_every=40)
    with mixed.running():
        mixed.wait_more(60)
        archive(server.directory, out, "--include-tail", "--check")
        mixed.wait_more(60)
    upstream.script(
        "CREATE TABLE d.huge (a LONGBLOB)",
        "SET gtid_domain_id = 9",
        "INSERT INTO d.huge SELECT REPEAT('0123456789abcdef', 1310720)",
    )
    server.wait_position(upstream.gtid_binlog_pos)
    server.q("FLUSH BINARY LOGS")
    # What is published beside the files comes a moment later.
    until(lambda: is_at(archive(server.directory, out), server.gtid_binlog_pos), "all is archived")
    assert Archive.open(out).manifest.state == BinlogState.parse(
        server.q("SELECT @@gtid_binlog_state AS s")[0]["s"]
    )

    last = server.q("SHOW MASTER STATUS")[0]["File"]
    server.q(f"PURGE BINARY LOGS TO '{last}'")
    assert files(server)[0] == last
    insert(upstream, 5, "d.t0")
    server.wait_position(upstream.gtid_binlog_pos)
    until(
        lambda: is_at(archive(server.directory, out, "--include-tail"), server.gtid_binlog_pos),
        "all is archived",
    )
    server.stop()

    # Another server, of which the archive is all there is.
    again = binlog_server(
        users=ADMIN, arguments=[f"--archive={out}"], max_binlog_size=MAX_BINLOG_SIZE
    )
    replicas = [make_replica(*STRICT, version=version).follow(again) for version in VERSIONS]
    assert_equal(upstream, *replicas)
    groups = again.log().count("groups taken, the store is at")
    assert groups == 1
    again.restart()
    assert "0 groups taken, the store is at" in again.log()

    # And as a store.
    back = tmp_path / "back"
    spark("replay", out, "--ibb", back, "--max-binlog-size", "4m")
    again.stop()
    everything = stored(back)
    assert everything == stored(again.directory)
    left = stored(server.directory)
    assert left == everything[-len(left) :]
    assert len(left) >= 5


def test_what_is_not_archived_stays(binlog_server: MakeBinlogServer, tmp_path: Path) -> None:
    out = tmp_path / "archive"
    server = binlog_server(users=ADMIN, binlog_archive_directory=str(out), **PURGE_AT_ONCE)
    for number in range(3):
        server.q(f"CREATE DATABASE d{number}")
        server.q("FLUSH BINARY LOGS")

    def refused(name: str) -> None:
        with pytest.raises(pymysql.Error) as caught:
            server.q(f"PURGE BINARY LOGS TO '{name}'")
        assert caught.value.args[0] == 1378

    names = files(server)
    refused(names[2])
    fates = server.q(f"EXPLAIN PURGE BINARY LOGS TO '{names[2]}'")
    assert f"held by the archive {out}, which does not let any go" in fates[0]["Held_back_by"]
    assert fates[0]["Purged"] == "NO"
    assert server.q("SHOW VARIABLES LIKE 'binlog_archive_d%'")[0]["Value"] == str(out)

    until(lambda: is_at(archive(server.directory, out), "0-1-3"), "all is archived")
    server.q("CREATE DATABASE d3")
    server.q("FLUSH BINARY LOGS")
    fates = server.q("EXPLAIN PURGE BINARY LOGS TO 'binlog-000004.ibb'")
    assert [row["Purged"] for row in fates[:4]] == ["YES", "YES", "YES", "NO"]
    assert f"held by the archive {out}, which is at '0-1-3'" in fates[3]["Held_back_by"]
    refused("binlog-000004.ibb")
    assert files(server)[0] == "binlog-000003.ibb"

    # It is known at once after a start, whatever the limits say.
    server.options["max_binlog_total_size"] = 1
    server.restart()
    assert files(server)[0] == "binlog-000003.ibb"
    archive(server.directory, out, "--include-tail")
    server.restart()
    until(lambda: files(server)[0] == "binlog-000004.ibb", "the purge of what is archived")


@pytest.mark.any_version
@pytest.mark.parametrize(("style", "form"), [("engine", "PARQUET"), ("classic", "IBB")])
def test_a_replica_whose_position_was_purged(
    style: str,
    form: str,
    binlog_server: MakeBinlogServer,
    make_replica: MakeMariaDB,
    tmp_path: Path,
) -> None:
    """It gets what is gone from the archive, goes on in the live stream."""
    server = binlog_server(
        users={"repl": {**ADMIN["repl"], "stream_style": style}},
        binlog_archive_url=str(tmp_path / "archive"),
        binlog_archive_interval=1,
        binlog_archive_format=form,
        **PURGE_AT_ONCE,
    )
    server.q("CREATE DATABASE d")
    server.q("CREATE TABLE d.t (a INT PRIMARY KEY)")
    for number in range(1, 5):
        server.q(f"INSERT INTO d.t VALUES ({number})")
        server.q("FLUSH BINARY LOGS")
    last = files(server)[-2]
    until(lambda: is_purged_to(server, last), "all is archived")
    assert server.q("EXPLAIN GTID '0-1-3'")[0]["Status"] == "archived"
    replica = make_replica(*STRICT).follow(server)

    def has(count: int) -> bool:
        return [row["a"] for row in replica.q("SELECT a FROM d.t")] == list(range(1, count + 1))

    until(lambda: replica.gtid_slave_pos == server.gtid_binlog_pos, "all has come")
    assert has(4)
    server.q("INSERT INTO d.t VALUES (5)")
    until(lambda: replica.gtid_slave_pos == server.gtid_binlog_pos, "it follows")
    assert has(5)


def test_the_groups_of_a_master_by_its_dump(
    make_upstream: MakeMariaDB,
    tmp_path: Path,
    rng: random.Random,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """No store of ours: what a MariaDB sends is what is in its files."""
    upstream = make_upstream("--max-binlog-size=200K")
    mixed = MixedLoad(upstream, rng, pause_s=0.001, large_every=40)
    account = upstream.account
    source = f"mariadb://{account.user}@{upstream.host}:{upstream.port}"
    out = tmp_path / "archive"
    monkeypatch.setenv("SECRET", account.password)
    with mixed.running():
        mixed.wait_more(40)
        archive(source, out, "--password-env", "SECRET")
        mixed.wait_more(20)
    done = archive(source, out, "--password-env", "SECRET")
    assert is_at(done, upstream.gtid_binlog_pos)
    spark("replay", out, "--ibb", tmp_path / "back", "--max-binlog-size", "4m")
    if isinstance(upstream, LocalMariaDB):
        paths = sorted(upstream.datadir.glob("upstream-bin.??????"))
        found = (b"".join(group.pieces()) for group in classic_groups(paths))
        wanted = [payload for payload in found if group_gtid(payload) is not None]
        assert store_files.payloads(tmp_path / "back") == wanted


def test_an_archive_that_cannot_be_served(binlog_server: MakeBinlogServer, tmp_path: Path) -> None:
    server = binlog_server(users=ADMIN, max_binlog_size=MAX_BINLOG_SIZE)
    server.q("CREATE DATABASE d")
    server.stop()
    archive(server.directory, tmp_path / "archive", "--include-tail")
    # Another history, up to the same GTID.
    other = binlog_server(users=ADMIN, max_binlog_size=MAX_BINLOG_SIZE)
    other.q("CREATE DATABASE other")
    other.stop()
    other.arguments = [f"--archive={tmp_path / 'archive'}"]
    with pytest.raises(RuntimeError, match="the histories differ"):
        other.start()
    assert other.wait_exit() == 1
    # A part that is not whole.
    part = tmp_path / "archive" / "part-00000001.parquet"
    part.write_bytes(part.read_bytes()[:-1])
    third = binlog_server(users=ADMIN, start=False, max_binlog_size=MAX_BINLOG_SIZE)
    third.arguments = [f"--archive={tmp_path / 'archive'}"]
    with pytest.raises(RuntimeError, match=r"part-00000001\.parquet .*it has \d+ bytes"):
        third.start()
    assert third.wait_exit() == 1
