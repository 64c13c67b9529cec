"""docs/seeding.md with real masters: their binlog files, dumps and backups; then relaying goes on exactly behind."""

from __future__ import annotations

import contextlib
import functools
import gzip
import random
import shutil
import subprocess
from pathlib import Path

import pytest
from binlog_protocol.groups.stored_group import group_gtid
from binlog_protocol.gtid import BinlogState
from binlog_storage.classic.offline_groups import classic_groups
from binlog_storage.errors import PositionPurged

from binlog_server.testing import rundir
from binlog_server.testing.local import LocalMariaDB
from binlog_server.testing.mariadb import MariaDB
from binlog_server.testing.waiting import until
from tests.integration import store_files
from tests.integration.load import assert_equal, insert, load
from tests.integration.mixed_load import MixedLoad
from tests.integration.test_crash import STRICT
from tests.integration.test_relay_sql import ADMIN, to
from tests.integration.test_upstreams import encryption
from tests.kit import forks
from tests.kit.backends import VERSIONS, VERSIONS_BY_TURNS, Backend
from tests.kit.fixtures import MakeBinlogServer, MakeMariaDB
from tests.kit.server import BinlogServer

MAX_BINLOG_SIZE = 4 << 20
CHECKSUMS = {"10.11": "--binlog-checksum=NONE", "11.8": "--binlog-checksum=CRC32"}
# From 11.7 on a larger transaction becomes a file of its own, with room left at its beginning.
LARGE_COMMIT = "--loose-binlog-large-commit-threshold=10M"


@pytest.fixture(params=VERSIONS_BY_TURNS)
def version(request: pytest.FixtureRequest) -> str:
    """Of the master. Its files are looked at, so it runs on this machine."""
    chosen: str = request.param
    return chosen


def make_local(make: MakeMariaDB, version: str, *flags: str) -> LocalMariaDB:
    server = make(*flags, backend=Backend("local", version))
    assert isinstance(server, LocalMariaDB)
    return server


def command(name: str, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """`binlog-server NAME ARGUMENTS`, for files that are small: they take their space at once."""
    config = rundir.new_dir("config") / "server.toml"
    config.write_text(f"max_binlog_size = {MAX_BINLOG_SIZE}\ninnodb_log_file_size = 8388608\n")
    return forks.run(name, f"--config={config}", *arguments)


def run(name: str, *arguments: str | Path) -> str:
    """It must succeed; what it prints."""
    done = command(name, *arguments)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def copy_of_binlog(upstream: LocalMariaDB, directory: Path) -> list[Path]:
    """While it runs."""
    directory.mkdir(parents=True, exist_ok=True)
    for path in sorted(upstream.datadir.glob("upstream-bin*")):
        shutil.copy(path, directory)
    return sorted(directory.glob("upstream-bin.??????"))


def groups_of(files: list[Path]) -> list[bytes]:
    found = (b"".join(g.pieces()) for g in classic_groups([f for f in files if f.suffix != ".idx"]))
    return [group for group in found if group_gtid(group) is not None]


def groups_stored(server: BinlogServer) -> list[bytes]:
    found: list[bytes] = []
    with store_files.opened(server.directory) as engine:
        for file in engine.files():
            with contextlib.suppress(PositionPurged):  # made ahead
                found += [b"".join(pieces) for pieces in engine.groups_of_file(file.number)]
    return [group for group in found if group_gtid(group) is not None]


def follow_upstream(server: BinlogServer, upstream: MariaDB) -> None:
    server.q(f"CHANGE MASTER TO {to(upstream)}")
    server.q("START SLAVE")


@pytest.mark.by_turns(2)
def test_import_serve_and_follow(
    version: str,
    make_upstream: MakeMariaDB,
    make_replica: MakeMariaDB,
    binlog_server: MakeBinlogServer,
    tmp_path: Path,
    rng: random.Random,
) -> None:
    """The files of a running master, of every kind of group; then the master itself."""
    flags = (CHECKSUMS[version], LARGE_COMMIT, "--log-bin-compress=1", "--max-binlog-size=200K")
    upstream = make_local(make_upstream, version, *flags)
    mixed = MixedLoad(upstream, rng, pause_s=0.001, large_every=40)
    with mixed.running():
        mixed.wait_more(80)
        with mixed.quiet():
            upstream.restart()
        mixed.wait_more(80)
        upstream.q("FLUSH BINARY LOGS")
        files = copy_of_binlog(upstream, tmp_path / "running")
    server = binlog_server(start=False, users=ADMIN, max_binlog_size=MAX_BINLOG_SIZE)
    said = command("import", "--directory", server.directory, *files)
    assert said.returncode == 0, said.stderr
    imported = groups_stored(server)
    assert len(imported) > 150
    assert imported == groups_of(files)

    # What has come since, by another copy: it goes on in the middle of a file.
    upstream.script(
        "CREATE TABLE d.huge (a BLOB)",
        "INSERT INTO d.huge SELECT RANDOM_BYTES(1024) FROM d.seq_1_to_12000",
    )
    index = copy_of_binlog(upstream, tmp_path / "more")[0].with_name("upstream-bin.index")
    run("import", "--directory", server.directory, "--index", index)
    server.start()
    replicas = [make_replica(*STRICT, version=other).follow(server) for other in VERSIONS]
    assert_equal(upstream, *replicas)

    follow_upstream(server, upstream)
    with load(upstream, "d.t0") as running:
        running.wait_more(60)
    assert_equal(upstream, *replicas)
    server.stop()
    upstream.stop()
    files = copy_of_binlog(upstream, tmp_path / "end")
    # Byte for byte the same, whichever way they came; none is missing, none came twice.
    assert groups_stored(server) == groups_of(files)
    assert (
        store_files.binlog_state(server.directory).position()
        == BinlogState.parse(replicas[0].gtid_binlog_state).position()
    )
    assert "nothing to do" in run("import", "--directory", server.directory, *files)


def test_encrypted_files(
    version: str, make_upstream: MakeMariaDB, binlog_server: MakeBinlogServer, tmp_path: Path
) -> None:
    """Their server decrypts them for mariadb-binlog."""
    upstream = make_local(make_upstream, version, *encryption(tmp_path))
    upstream.make_table()
    insert(upstream, 20)
    upstream.q("FLUSH BINARY LOGS")
    position = insert(upstream, 20)
    files = copy_of_binlog(upstream, tmp_path / "encrypted")
    store = tmp_path / "store"
    refused = command("import", "--directory", store, *files)
    assert refused.returncode == 1
    assert f"{files[0]} is encrypted" in refused.stderr
    assert "--read-from-remote-server --raw" in refused.stderr
    assert not store.exists()
    raw = tmp_path / "raw"
    raw.mkdir()
    upstream.run(
        "mariadb-binlog",
        "--no-defaults",
        "--read-from-remote-server",
        "--raw",
        "--skip-ssl",
        f"--host={upstream.host}",
        f"--port={upstream.port}",
        "--user=root",
        f"--result-file={raw}/",
        "--to-last-log",
        files[0].name,
    )
    fetched = sorted(raw.iterdir())
    assert [path.name for path in fetched] == [path.name for path in files if path.suffix != ".idx"]
    assert position in run("import", "--directory", store, *fetched)


def dump(upstream: LocalMariaDB, path: Path, *options: str) -> Path:
    upstream.run(
        "mariadb-dump",
        "--no-defaults",
        f"--socket={upstream.dir / 'socket'}",
        "--user=root",
        "--skip-ssl",
        f"--result-file={path}",
        "--single-transaction",
        *options,
        "--databases",
        "d",
    )
    return path


@pytest.mark.by_turns(2)
def test_seed_from_a_dump(
    version: str,
    make_upstream: MakeMariaDB,
    make_replica: MakeMariaDB,
    binlog_server: MakeBinlogServer,
    tmp_path: Path,
) -> None:
    """Several domains; the replica gets the dump, too. Both go on behind it; what was before has gone at the master."""
    upstream = make_local(make_upstream, version)
    upstream.make_table()
    insert(upstream, 20)
    upstream.script("SET SESSION gtid_domain_id = 3", "INSERT INTO d.t (a) VALUES ('other')")
    options = ("--master-data", "--gtid", "--routines", "--events")
    script = dump(upstream, tmp_path / "dump.sql", *options)
    packed = tmp_path / "dump.sql.gz"
    packed.write_bytes(gzip.compress(script.read_bytes()))
    position = upstream.gtid_binlog_pos
    upstream.q("FLUSH BINARY LOGS")
    upstream.q("PURGE BINARY LOGS TO 'upstream-bin.000002'")
    insert(upstream, 20)

    server = binlog_server(upstream=upstream, start=False)
    for source in (script, packed, dump(upstream, tmp_path / "later.sql", "--master-data")):
        store = server.directory if source is script else tmp_path / f"store of {source.name}"
        said = run("seed", "--directory", store, "--from-dump", source)
        assert "begins at gtid_slave_pos" in said
    assert (
        store_files.binlog_state(server.directory).position()
        == BinlogState.parse(position).position()
    )

    replica = make_replica(*STRICT)
    program = upstream.install.program("mariadb")
    login = [f"--host={replica.host}", f"--port={replica.port}", "--user=root", "--skip-ssl"]
    with script.open("rb") as file:
        subprocess.run([*program, "--no-defaults", *login], stdin=file, check=True, timeout=30)
    server.start()
    # The dump has said CHANGE MASTER and gtid_slave_pos.
    replica.follow(server)
    insert(upstream, 5)
    assert_equal(upstream, replica)
    # A replica that has nothing is told that it is too late.
    late = make_replica()
    late.follow(server, start=False)
    late.q("START SLAVE")
    assert late.wait_stopped()["Last_IO_Errno"] == 1236


@pytest.mark.by_turns(2)
def test_seed_from_a_backup(
    version: str,
    make_upstream: MakeMariaDB,
    make_replica: MakeMariaDB,
    binlog_server: MakeBinlogServer,
    tmp_path: Path,
) -> None:
    """Of a master, and of its replica with --slave-info."""
    upstream = make_local(make_upstream, version)
    upstream.make_table()
    upstream.script("SET SESSION gtid_domain_id = 3", "INSERT INTO d.t (a) VALUES ('other')")
    replica = make_local(make_replica, version).follow(upstream)
    assert isinstance(replica, LocalMariaDB)
    replica.wait_gtid(insert(upstream, 5))
    for number, (server, options) in enumerate(((upstream, ()), (replica, ("--slave-info",)))):
        backup = tmp_path / f"backup{number}"
        server.run(
            "mariadb-backup",
            "--no-defaults",
            "--backup",
            f"--target-dir={backup}",
            f"--socket={server.dir / 'socket'}",
            "--user=root",
            "--skip-ssl",
            *options,
        )
        relay = binlog_server(upstream=upstream, server_id=100 + number, start=False)
        said = run("seed", "--directory", relay.directory, "--from-backup", backup)
        assert f"in {'mariadb_backup' if version == '11.8' else 'xtrabackup'}_" in said
        position = upstream.gtid_binlog_pos
        assert (
            store_files.binlog_state(relay.directory).position()
            == BinlogState.parse(position).position()
        )
        relay.start()
        behind = insert(upstream, 3)
        relay.wait_position(behind)
        durable = functools.partial(groups_stored, relay)
        until(lambda durable=durable: len(durable()) == 3)  # type: ignore[misc]


def test_a_state_by_sql(
    version: str,
    make_upstream: MakeMariaDB,
    make_replica: MakeMariaDB,
    binlog_server: MakeBinlogServer,
) -> None:
    """SET GLOBAL gtid_binlog_state: two servers in one domain, and replicas that were last at either."""
    upstream = make_local(make_upstream, version, "--gtid-strict-mode=OFF")
    upstream.make_table()
    replicas = [make_replica().follow(upstream) for _ in range(2)]
    replicas[0].wait_gtid(insert(upstream, 2))
    replicas[0].q("STOP SLAVE")
    with upstream.connect() as connection, connection.cursor() as cursor:
        cursor.execute("SET SESSION server_id = 77")
        cursor.execute("INSERT INTO d.t (a) VALUES ('of another')")
    replicas[1].wait_gtid(upstream.gtid_binlog_pos)
    replicas[1].q("STOP SLAVE")
    state = upstream.gtid_binlog_state
    assert state.count(",") == 1
    server = binlog_server(users=ADMIN)
    server.q(f"SET GLOBAL gtid_binlog_state = '{state}'")
    follow_upstream(server, upstream)
    server.wait_position(insert(upstream, 3))
    replicas[1].follow(server)
    assert_equal(upstream, replicas[1])
    replicas[0].follow(server, start=False)
    replicas[0].q("START SLAVE")
    assert replicas[0].wait_stopped()["Last_IO_Errno"] == 1236  # what it lacks is not here
    assert server.q("SELECT @@gtid_binlog_state AS s")[0]["s"] == upstream.gtid_binlog_state


def test_not_beside_a_server(binlog_server: MakeBinlogServer, tmp_path: Path) -> None:
    server = binlog_server()
    refused = command("seed", "--directory", server.directory, "--gtid-slave-pos", "0-1-5")
    assert refused.returncode == 1
    assert "in use by another process" in refused.stderr
