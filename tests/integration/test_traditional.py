"""A server over traditional binlog files: what it sends, beside what the MariaDB sends that wrote the files."""

from __future__ import annotations

import random
import shutil
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pymysql
import pytest
from binlog_protocol.events.event_type import EventType

from binlog_server.testing.local import LocalMariaDB
from binlog_server.testing.mariadb import UPSTREAM, MariaDB
from binlog_server.testing.sql_server import Followed
from binlog_server.testing.waiting import until
from tests.integration.load import assert_equal, insert, load
from tests.integration.raw_client import RawClient
from tests.kit.backends import VERSIONS, Backend, full_matrix
from tests.kit.fixtures import MakeMariaDB, MakeRelay
from tests.kit.server import BinlogServer

BASE = "upstream-bin"
ROOT = {"root": {"password": "pw", "grants": ["ALL PRIVILEGES"]}}


class Pair(NamedTuple):
    """A MariaDB, and our server over a copy of its binlog."""

    real: LocalMariaDB
    ours: BinlogServer


def copied(server: LocalMariaDB, to: Path) -> Path:
    """The binlog files of a server, in a directory of their own."""
    to.mkdir()
    for path in server.datadir.glob(f"{BASE}.*"):
        shutil.copy(path, to)
    return to


def history(server: LocalMariaDB) -> None:
    """Files that ended by FLUSH, by an orderly stop, by kill -9; two domains; DDL, rows, statements, a larger group."""
    server.make_table()
    insert(server, 3)
    server.q("FLUSH BINARY LOGS")
    server.script(
        "SET SESSION gtid_domain_id=3",
        "INSERT INTO d.t (a) VALUES ('x')",
        "SET SESSION gtid_domain_id=0",
        "SET SESSION binlog_format=STATEMENT",
        "INSERT INTO d.t (a) VALUES ('y')",
        "SET SESSION binlog_format=ROW",
        "INSERT INTO d.t (a) SELECT REPEAT('z', 190) FROM d.seq_1_to_300",
        "XA START 'a'",
        "INSERT INTO d.t (a) VALUES ('xa')",
        "XA END 'a'",
        "XA PREPARE 'a'",
        "XA COMMIT 'a'",
        "SET SESSION skip_replication=1",
        "INSERT INTO d.t (a) VALUES ('skipped')",
    )
    server.restart()
    insert(server, 2)
    server.kill()
    server.start()
    insert(server, 4)


@pytest.fixture(scope="module", params=VERSIONS)
def pair(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Pair]:
    backend = Backend("local", request.param)
    backend.require()
    # With an index a dump of 11.8 begins inside its file; without one as that of 10.11, and as ours.
    flags = ["--binlog-gtid-index=OFF"] if request.param != "10.11" else []
    real = backend.new("traditional", [*UPSTREAM, *flags], server_id=1)
    assert isinstance(real, LocalMariaDB)
    real.start()
    real.create_account()
    history(real)
    directory = copied(real, tmp_path_factory.mktemp("traditional") / "copy")
    ours = BinlogServer(directory=directory, users=ROOT)
    # mariadb-binlog of 10.11 refuses servers of version 11 and later.
    ours.options = {"server_id": 1, "server_version": f"{request.param}.1-MariaDB-test"}
    ours.start()
    yield Pair(real, ours)
    ours.discard()
    real.discard()


def dumped(source: Followed, position: str | None, *settings: str, **place: Any) -> list[bytes]:
    with RawClient(source) as client:
        for sql in settings:
            client.query(sql)
        return list(client.dump(position, **place))


def shown(events: list[bytes]) -> list[str]:
    """Lines that can be compared by eye."""
    return [f"{EventType(event[4]).name} {event.hex()}" for event in events]


def domains(position: str | None) -> list[str]:
    """In no order: MariaDB's is that of a hash table."""
    return sorted((position or "NULL").split(","))


@pytest.mark.by_turns(2)
def test_by_gtid(pair: Pair) -> None:
    """From each position that a replica may have."""
    positions = [""]
    for row in pair.real.q("SHOW BINARY LOGS"):
        for event in pair.real.q(f"SHOW BINLOG EVENTS IN '{row['Log_name']}'"):
            at = f"SELECT BINLOG_GTID_POS('{row['Log_name']}', {event['Pos']}) AS p"
            positions.append(pair.real.q(at)[0]["p"])
            assert domains(pair.ours.q(at)[0]["p"]) == domains(positions[-1]), at
    for position in dict.fromkeys(positions):
        assert shown(dumped(pair.ours, position)) == shown(dumped(pair.real, position)), position


@pytest.mark.any_version
def test_by_file_and_position(pair: Pair, rng: random.Random) -> None:
    """From each event on in the slow suite, otherwise from a third of them."""
    every = 1 if full_matrix() else 3
    for row in pair.real.q("SHOW BINARY LOGS"):
        name = row["Log_name"]
        for event in pair.real.q(f"SHOW BINLOG EVENTS IN '{name}'")[rng.randrange(every) :: every]:
            place = {"file": name, "at": event["Pos"]}
            assert shown(dumped(pair.ours, None, **place)) == shown(
                dumped(pair.real, None, **place)
            ), place


def test_shows(pair: Pair) -> None:
    statements = [
        "SHOW BINARY LOGS",
        "SHOW MASTER STATUS",
        "SHOW BINLOG EVENTS",
        "SHOW BINLOG EVENTS LIMIT 2, 5",
        "SELECT @@log_bin_basename REGEXP '/upstream-bin$', @@log_bin_index REGEXP '/upstream-bin.index$'",
        "SELECT @@binlog_checksum, @@log_bin",
        "SHOW VARIABLES LIKE 'binlog_storage_engine'",
        f"SELECT BINLOG_GTID_POS('{BASE}.000001', 100)",
        f"SELECT BINLOG_GTID_POS('{BASE}.000009', 4)",
        f"SELECT BINLOG_GTID_POS('{BASE}.000001', 10000000)",
        "SELECT BINLOG_GTID_POS('', 4)",
        "SHOW BINLOG EVENTS IN 'other.000001'",
    ]
    for row in pair.real.q("SHOW BINARY LOGS"):
        statements.append(f"SHOW BINLOG EVENTS IN '{row['Log_name']}'")
        statements.append(f"SHOW BINLOG EVENTS IN '{row['Log_name']}' FROM 256")
        statements.append(f"SHOW BINLOG EVENTS IN '{row['Log_name']}' FROM 300 LIMIT 1")
    for sql in statements:
        found = [_answer(server, sql) for server in (pair.real, pair.ours)]
        assert found[1] == found[0], sql


def test_places_that_are_none(pair: Pair, rng: random.Random) -> None:
    """Where no event begins, and behind the end: 1220, as of an 11.8. (A 10.11 makes events of what lies there.)"""
    for row in pair.real.q("SHOW BINARY LOGS"):
        name, size = row["Log_name"], row["File_size"]
        begins = {e["Pos"] for e in pair.real.q(f"SHOW BINLOG EVENTS IN '{name}'")}
        places = [n for n in range(5, min(size, 700)) if n not in begins]
        for place in (6, 100, *rng.sample(places, 30)):
            with pytest.raises(pymysql.MySQLError, match=r"1220.*Wrong offset or I/O error"):
                pair.ours.q(f"SHOW BINLOG EVENTS IN '{name}' FROM {place}")
        for place in (size, size + 1, 1 << 40):
            sql = f"SHOW BINLOG EVENTS IN '{name}' FROM {place}"
            told = [_answer(server, sql) for server in (pair.real, pair.ours)]
            assert told[1] == told[0], sql
        for place in range(5):
            sql = f"SELECT BINLOG_GTID_POS('{name}', {place}) AS p"
            assert domains(pair.ours.q(sql)[0]["p"]) == domains(pair.real.q(sql)[0]["p"]), sql


def _answer(server: LocalMariaDB | BinlogServer, sql: str) -> list[Any]:
    try:
        return [[v for k, v in r.items() if k != "Gtid_Binlog_Pos"] for r in server.q(sql)]
    except pymysql.MySQLError as error:
        return list(error.args)


@pytest.mark.parametrize("version", VERSIONS)
def test_the_end_of_a_file_without_groups(version: str, tmp_path: Path) -> None:
    """A server writes two checkpoints behind the head: who follows by position has read both."""
    backend = Backend("local", version)
    backend.require()
    real = backend.new("empty-end", [*UPSTREAM], server_id=1)
    assert isinstance(real, LocalMariaDB)
    ours: BinlogServer | None = None
    try:
        real.start()
        real.create_account()
        real.make_table()
        real.q("FLUSH BINARY LOGS")
        name, at = f"{BASE}.000002", "SHOW BINLOG EVENTS IN"
        until(lambda: str(real.q(f"{at} '{name}'")).count("'Binlog_checkpoint'") == 2)
        ours = BinlogServer(directory=copied(real, tmp_path / "copy"), users=ROOT)
        ours.options = {"server_id": 1, "server_version": f"{version}.1-MariaDB-test"}
        ours.start()
        for sql in (f"{at} '{name}'", "SHOW MASTER STATUS", "SHOW BINARY LOGS"):
            assert _answer(ours, sql) == _answer(real, sql)
        for event in (
            *real.q(f"{at} '{name}'"),
            {"Pos": real.q("SHOW MASTER STATUS")[0]["Position"]},
        ):
            place = {"file": name, "at": event["Pos"]}
            assert shown(dumped(ours, None, **place)) == shown(dumped(real, None, **place)), place
            position = f"SELECT BINLOG_GTID_POS('{name}', {event['Pos']}) AS p"
            assert ours.q(position) == real.q(position)
    finally:
        if ours is not None:
            ours.discard()
        real.discard()


@pytest.fixture(params=VERSIONS)
def version(request: pytest.FixtureRequest) -> str:
    """Of the servers at both ends."""
    chosen: str = request.param
    return chosen


TRADITIONAL: dict[str, Any] = {
    "binlog_storage_engine": "",
    "log_bin": "relay-bin",
    "max_binlog_size": 65536,
}


@pytest.mark.any_version
def test_a_relay(
    backend: object,
    make_relay: MakeRelay,
    make_replica: MakeMariaDB,
) -> None:
    """Replicas by GTID and by file end equal: over rotations, a restart, kill -9, XA, and a group of 6 MiB."""
    upstream, server = make_relay(**TRADITIONAL, users=ROOT, replica_slot_seconds=0)
    by_gtid = make_replica().follow(server)
    by_file = make_replica().follow(server, gtid="no")
    insert(upstream, 400, size=190)
    assert_equal(upstream, by_gtid, by_file)
    assert place(by_gtid) == place(by_file) == end(server)
    assert place(by_file)[0] > "relay-bin.000001"
    upstream.script(
        "USE d",
        "XA START 'a'",
        "INSERT INTO t (a) VALUES ('xa')",
        "XA END 'a'",
        "XA PREPARE 'a'",
        "XA COMMIT 'a'",
        "INSERT INTO t (a) SELECT REPEAT('z', 190) FROM seq_1_to_30000",
        "CREATE TEMPORARY TABLE e AS SELECT 1 AS a",
    )
    with load(upstream) as running:
        running.wait_more(20)
        server.restart()
        running.wait_more(20)
        server.kill()
        server.start()
        running.wait_more(20)
        by_file.q("STOP SLAVE")
        running.wait_more(20)
        server.q("FLUSH BINARY LOGS")
        by_file.q("START SLAVE")
    assert_equal(upstream, by_gtid, by_file)
    assert place(by_gtid) == place(by_file) == end(server)
    files = [row["Log_name"] for row in server.q("SHOW BINARY LOGS")]
    server.q(f"PURGE BINARY LOGS TO '{files[-1]}'")
    assert server.q("SHOW BINARY LOGS")[0]["Log_name"] == files[-1]
    insert(upstream, 5)
    assert_equal(upstream, by_gtid, by_file)
    for replica in (by_gtid, by_file):
        assert replica.replica_status()["Last_IO_Errno"] == 0


@pytest.mark.any_version
def test_a_start_marker_moves_no_replica(
    backend: object,
    binlog_server: Callable[..., BinlogServer],
    make_replica: MakeMariaDB,
) -> None:
    """It takes the place of the description in a file without groups, of which replicas have read the head."""
    server = binlog_server(**TRADITIONAL, users=ROOT, replica_slot_seconds=0)
    replicas = make_replica().follow(server), make_replica().follow(server, gtid="no")
    for number in range(2):
        server.q("FLUSH BINARY LOGS")
        until(lambda: {place(one) for one in replicas} == {end(server)})
        server.restart()
        for one in replicas:
            one.q("STOP SLAVE")
            one.q("START SLAVE")
            one.wait_running()
        for name in ("a", "b"):
            server.q(f"CREATE DATABASE {name}{number}")
            until(lambda: {place(one) for one in replicas} == {end(server)})
            for one in replicas:
                one.q("STOP SLAVE")
                one.q("START SLAVE")
                one.wait_running()


def place(replica: MariaDB) -> tuple[Any, Any]:
    status = replica.replica_status()
    return status["Master_Log_File"], status["Read_Master_Log_Pos"]


def end(server: BinlogServer) -> tuple[Any, Any]:
    (status,) = server.q("SHOW MASTER STATUS")
    return status["File"], status["Position"]


@pytest.mark.slow
def test_semi_sync_and_a_mariadb_in_its_place(
    version: str,
    make_relay: MakeRelay,
    make_replica: MakeMariaDB,
    make_upstream: MakeMariaDB,
) -> None:
    """Acknowledged by a replica of the relay, to an upstream that waits; then a MariaDB goes on in the directory."""
    upstream, server = make_relay(
        "--rpl-semi-sync-master-enabled=ON",
        version=version,
        **TRADITIONAL,
        users=ROOT,
        rpl_semi_sync_slave_enabled=True,
        rpl_semi_sync_slave_wait_for_slave_count=1,
        rpl_semi_sync_master_enabled=True,
    )
    replica = make_replica("--rpl-semi-sync-slave-enabled=ON", version=version).follow(server)
    upstream.q("SET GLOBAL rpl_semi_sync_master_timeout=20000")
    upstream.wait(
        "SHOW STATUS LIKE 'Rpl_semi_sync_master_clients'", lambda rows: rows[0]["Value"] == "1"
    )

    def waits() -> bool:
        insert(upstream, 1)
        status = upstream.q("SHOW STATUS LIKE 'Rpl_semi_sync_master_status'")
        return bool(status[0]["Value"] == "ON")

    until(waits, "it waits again, which it gave up while there was no replica")
    insert(upstream, 20)
    yes = upstream.q("SHOW STATUS LIKE 'Rpl_semi_sync_master_yes_tx'")
    assert int(yes[0]["Value"]) >= 20
    assert_equal(upstream, replica)
    state = upstream.gtid_binlog_state
    server.stop()
    successor = make_upstream("--log-bin=relay-bin", backend=Backend("local", version), start=False)
    assert isinstance(successor, LocalMariaDB)
    successor.start()
    successor.stop()
    for path in successor.datadir.glob("relay-bin.*"):
        path.unlink()
    for path in server.directory.glob("relay-bin.*"):
        shutil.copy(path, successor.datadir)
    successor.start()
    assert domains(successor.gtid_binlog_state) == domains(state)


def test_mariadb_binlog_over_the_wire(pair: Pair, tmp_path: Path) -> None:
    """What it prints and what it copies is the same from both, by file, by offset and by GTID."""
    files = [row["Log_name"] for row in pair.real.q("SHOW BINARY LOGS")]
    events = pair.real.q(f"SHOW BINLOG EVENTS IN '{files[1]}'")
    middle = next(e["Pos"] for e in events[len(events) // 2 :] if e["Event_type"] == "Gtid")
    position = pair.real.q(f"SELECT BINLOG_GTID_POS('{files[1]}', 4) AS p")[0]["p"]
    for options in (
        ["--to-last-log", files[0]],
        ["--verify-binlog-checksum", *files],
        [f"--start-position={middle}", files[1]],
        [f"--start-position={middle}", "--to-last-log", files[1]],
        [f"--stop-position={middle}", files[0], files[1]],
        [f"--start-position={position}", "--to-last-log", files[0]],
    ):
        real, ours = (_printed(pair.real, source, *options) for source in pair)
        assert real == ours, options
        assert "GTID" in real
    for options in (["--raw", *files], ["--raw", "--to-last-log", files[0]]):
        copies = []
        for source in pair:
            folder = tmp_path / f"{options[1]}-{type(source).__name__}"
            folder.mkdir()
            _printed(pair.real, source, f"--result-file={folder}/", *options)
            copies.append({path.name: path.read_bytes() for path in folder.iterdir()})
        assert set(copies[0]) == set(files)
        assert copies[0] == copies[1], options


def _printed(real: LocalMariaDB, source: Followed, *options: str) -> str:
    account = source.account
    return real.run(
        "mariadb-binlog",
        "--no-defaults",
        "--read-from-remote-server",
        f"--host={source.host}",
        f"--port={source.port}",
        f"--user={account.user}",
        f"--password={account.password}",
        "--skip-ssl-verify-server-cert",  # 11.8 insists on TLS otherwise
        *options,
    )


# Of the variables that tell of a binlog, those that differ from the MariaDB whose files they are, with the reason.
_OTHER_VARIABLES = {
    "binlog_format": "it says what groups there are here",
    "binlog_row_metadata": "replicas and programs need the names of columns",
    "binlog_gtid_index": "that server was started without, see `pair`",
    "log_bin_basename": "another directory",
    "log_bin_index": "another directory",
    "sync_binlog": "it is safe by default",
}
_BINLOG = (
    "binlog",
    "log_bin",
    "expire",
    "checksum",
    "gtid",
    "slave_connections",
    "rpl_semi_sync_m",
)


def _told(source: LocalMariaDB | BinlogServer, what: str) -> dict[str, Any]:
    rows = (tuple(row.values()) for row in source.q(f"SHOW GLOBAL {what}"))
    return {name: value for name, value in rows if any(part in name.lower() for part in _BINLOG)}


def test_variables_and_statuses_of_a_binlog(pair: Pair) -> None:
    """Each that the MariaDB has is there; a variable has its value but where there is a reason."""
    real, ours = (_told(source, "VARIABLES") for source in pair)
    names = set(real) - set(_OTHER_VARIABLES)
    assert {name: domains(ours.get(name)) for name in names} == {
        name: domains(real[name]) for name in names
    }
    real, ours = (_told(source, "STATUS") for source in pair)
    assert set(real) <= set(ours)


# Statements, and what both must answer. In place of a result: how many files they have begun.
_SETS: tuple[tuple[str, str], ...] = (
    ("SET GLOBAL binlog_checksum = NONE", "@@binlog_checksum"),
    ("SET GLOBAL binlog_checksum = NONE", "@@binlog_checksum"),
    ("SET GLOBAL binlog_checksum = 1", "@@binlog_checksum"),
    ("SET GLOBAL binlog_checksum = 0", "@@binlog_checksum"),
    ("SET GLOBAL binlog_checksum = DEFAULT", "@@binlog_checksum"),
    ("SET GLOBAL binlog_checksum = 'x'", "@@binlog_checksum"),
    ("SET SESSION binlog_checksum = NONE", "@@binlog_checksum"),
    ("SET GLOBAL sync_binlog = 5", "@@sync_binlog"),
    ("SET GLOBAL sync_binlog = -1", "@@sync_binlog"),
    ("SET SESSION sync_binlog = 1", "@@sync_binlog"),
    ("DO 1", "MASTER_POS_WAIT('f', 4)"),
    ("DO 1", "MASTER_POS_WAIT('f', 4, 1)"),
    ("DO 1", "MASTER_POS_WAIT('f', 4, -1)"),
    ("DO 1", "MASTER_POS_WAIT('f', 4, 1, 'nobody')"),
    ("DO 1", "MASTER_POS_WAIT(NULL, 4)"),
    ("DO 1", "MASTER_POS_WAIT('f')"),
)


def test_what_a_master_of_files_may_set(pair: Pair) -> None:
    """Behind all that compares the files: a file begins with each change."""
    for statement, shown_then in _SETS:
        found = []
        for source in pair:
            before = len(source.q("SHOW BINARY LOGS"))
            told: list[Any] = []
            for sql in (statement, f"SELECT {shown_then} AS v"):
                try:
                    told.append(source.q(sql))
                except pymysql.Error as error:
                    told.append(error.args)
            found.append((told, len(source.q("SHOW BINARY LOGS")) - before))
        assert found[0] == found[1], statement
    for source in pair:
        source.q("SET GLOBAL sync_binlog = 1")


@pytest.mark.parametrize("checksum", ["CRC32", "NONE"])
def test_groups_behind_a_change_of_checksums(pair: Pair, checksum: str) -> None:
    """Each group has in a dump what it has in its file, whatever the variable says now."""
    pair.ours.q(f"SET GLOBAL binlog_checksum = {checksum}")
    pair.ours.q("CREATE DATABASE behind")
    pair.ours.q("DROP DATABASE behind")
    groups = [e for e in dumped(pair.ours, "") if e[4] in (EventType.GTID, EventType.QUERY)]
    assert b"DROP DATABASE behind" in groups[-1]
    assert _is_sealed(groups[0])
    assert {_is_sealed(event) for event in groups[-4:]} == {checksum == "CRC32"}


def _is_sealed(event: bytes) -> bool:
    return zlib.crc32(event[:-4]).to_bytes(4, "little") == event[-4:]
