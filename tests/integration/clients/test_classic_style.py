"""Clients that know files and offsets only: an account with the classic style of stream serves them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from pymysqlreplication.event import MariadbGtidEvent, QueryEvent, XidEvent

from binlog_server.testing.waiting import until
from tests.integration.clients.programs import Programs, Relay, install_of, server_version
from tests.integration.clients.test_mariadb_binlog import ROWS, groups, gtids
from tests.integration.clients.test_python_replication import changes, stream
from tests.integration.load import insert
from tests.kit.fixtures import MakeBinlogServer, MakeMariaDB

# python-mysql-replication calls pymysql by names of arguments that pymysql has renamed.
pytestmark = pytest.mark.filterwarnings("ignore:'(db|passwd)' is deprecated:DeprecationWarning")

FIRST, SECOND = "binlog.000001", "binlog.000002"
PLACE = re.compile(r"end_log_pos (\d+) .*\tGTID (\S+)")
EVENT = re.compile(r"^# at (\d+)$", re.MULTILINE)


@pytest.fixture
def relay(
    version: str, make_upstream: MakeMariaDB, binlog_server: MakeBinlogServer, tmp_path: Path
) -> Relay:
    """As for the other tests, but its account has the classic style."""
    upstream = make_upstream("--binlog-row-metadata=FULL", version=version)
    account = {
        "password": "a secret",
        "grants": ["ALL PRIVILEGES"],
        "stream_style": "classic",
    }
    server = binlog_server(
        upstream=upstream, users={"dba": account}, server_version=server_version(version)
    )
    return Relay(upstream, server, Programs(install_of(upstream), server, tmp_path))


def write_two_files(relay: Relay) -> tuple[list[str], list[str]]:
    """GTIDs in the first file, and in the second."""
    first = relay.write()
    relay.server.q("FLUSH BINARY LOGS")
    last = int(first[-1].rpartition("-")[2])
    insert(relay.upstream, 3)
    relay.wait()
    return first, [f"{first[0].rpartition('-')[0]}-{last + more}" for more in (1, 2, 3)]


@pytest.mark.proves("-R FILE", client="mariadb-binlog", versions=("10.11", "11.8"))
def test_one_file(relay: Relay) -> None:
    """Each file by its name, and with checksums that are verified."""
    first, second = write_two_files(relay)
    run = relay.programs.run
    remote = ("--read-from-remote-server", "--verify-binlog-checksum", *ROWS)
    said = run("mariadb-binlog", *remote, FIRST)
    assert gtids(said) == first
    original = relay.programs.read(
        relay.upstream.dir / "data" / "upstream-bin.000001",
        options=(*ROWS, f"--stop-position={first[-1]}"),
    )
    assert groups(said) == groups(original)
    assert gtids(run("mariadb-binlog", *remote, SECOND)) == second
    assert gtids(run("mariadb-binlog", *remote, FIRST, SECOND)) == first + second
    said = relay.programs.fail("mariadb-binlog", *remote, "binlog.000009")
    assert "Could not find first log file name in binary log index file" in said


@pytest.mark.proves(
    "-R --start-position=OFFSET FILE", client="mariadb-binlog", versions=("10.11", "11.8")
)
def test_offsets(relay: Relay) -> None:
    """Where one group begins another has ended; both may be said to a server."""
    relay.write()
    run = relay.programs.run
    said = run("mariadb-binlog", "--read-from-remote-server", FIRST)
    written = gtids(said)
    places = [int(place) for place, _ in PLACE.findall(said)]
    assert places == sorted(set(places))
    ends = [int(end) for end in re.findall(r"end_log_pos (\d+) .*\tXid = ", said)]
    start = ends[0]
    behind = written[written.index(_group_before(said, start)) + 1 :]
    said = run("mariadb-binlog", "--read-from-remote-server", f"--start-position={start}", FIRST)
    assert gtids(said) == behind
    refused = relay.programs.fail(
        "mariadb-binlog", "--read-from-remote-server", f"--start-position={start + 1}", FIRST
    )
    assert "ERROR: Got error reading packet from server" in refused


def _group_before(said: str, end: int) -> str:
    before = said[: said.index(f"end_log_pos {end} ")]
    return gtids(before)[-1]


@pytest.mark.proves(
    "-R --raw --to-last-log FILE", client="mariadb-binlog", versions=("10.11", "11.8")
)
def test_raw_files(relay: Relay) -> None:
    """One for each of ours, from the first to the last, with the upstream's groups."""
    first, second = write_two_files(relay)
    programs = relay.programs
    programs.run(
        "mariadb-binlog",
        "--raw",
        "--to-last-log",
        f"--result-file={programs.directory}/",
        "--read-from-remote-server",
        FIRST,
    )
    copies = [programs.directory / name for name in (FIRST, SECOND)]
    assert [gtids(programs.read(copy)) for copy in copies] == [first, second]
    original = relay.upstream.dir / "data" / "upstream-bin.000001"
    copied = programs.read(*copies, options=(*ROWS, "--verify-binlog-checksum"))
    assert gtids(copied) == first + second
    own = groups(programs.read(copies[1], options=ROWS))
    wanted = programs.read(original, options=(*ROWS, f"--start-position={first[-1]}"))
    assert own == groups(wanted)


@pytest.mark.proves("-R --stop-never FILE", client="mariadb-binlog", versions=("10.11", "11.8"))
def test_follow_for_ever(relay: Relay) -> None:
    """Through the end of a file into the next."""
    first = relay.write()
    options = ("--read-from-remote-server", "--stop-never", FIRST)
    with relay.programs.running("mariadb-binlog", *options) as output:
        until(lambda: gtids(output.read_text()) == first, "the first file printed")
        relay.server.q("FLUSH BINARY LOGS")
        first.append(insert(relay.upstream, 1))
        until(lambda: gtids(output.read_text()) == first, "the second file printed")


@pytest.mark.proves(
    "-R --start-position=GTID, classic style", client="mariadb-binlog", versions=("10.11", "11.8")
)
def test_gtids_too(relay: Relay) -> None:
    """In one file. Beyond it, mariadb-binlog misses data that it was told to skip: so it does with a real 11.8."""
    first, second = write_two_files(relay)
    run = relay.programs.run
    said = run("mariadb-binlog", "--read-from-remote-server", f"--start-position={first[2]}", FIRST)
    assert gtids(said) == first[3:]
    start = f"--start-position={second[0]}"
    said = run("mariadb-binlog", "--read-from-remote-server", "--to-last-log", start, SECOND)
    assert gtids(said) == second[1:]


@pytest.mark.proves(
    "--master-data, classic style", client="mariadb-dump", versions=("10.11", "11.8")
)
def test_dumped_position(relay: Relay, version: str, make_replica: MakeMariaDB) -> None:
    """A replica without GTID goes on at the file and the offset that a dump says."""
    relay.write()
    dump = relay.programs.run("mariadb-dump", "--master-data", "--all-databases")
    change = re.search(r"^CHANGE MASTER TO (MASTER_LOG_FILE='.*', MASTER_LOG_POS=\d+);", dump, re.M)
    assert change is not None
    replica = make_replica(version=version)
    replica.script("CREATE DATABASE d", "CREATE TABLE d.t (id INT PRIMARY KEY, a VARCHAR(200))")
    replica.follow(relay.server, gtid="no", options=f"{change[1]}, MASTER_SSL=0")
    insert(relay.upstream, 1)
    replica.wait_gtid(relay.upstream.gtid_binlog_pos)
    assert replica.q("SELECT * FROM d.t") == relay.upstream.q("SELECT * FROM d.t WHERE id > 5")


@pytest.mark.proves("file mode", client="python-mysql-replication")
@pytest.mark.parametrize("version", ["11.8"], indirect=True)
def test_rows_by_file(relay: Relay) -> None:
    """From where SHOW MASTER STATUS says that it is, and from the beginning of a file."""
    relay.write()
    with stream(relay.server, log_file=FIRST, log_pos=4, resume_stream=True) as reader:
        events = list(reader)
        end = (reader.log_file, reader.log_pos)
    kinds = [kind for kind, _, _ in changes(events)]
    assert kinds == ["insert"] * 4 + ["update"]
    (status,) = relay.server.q("SHOW MASTER STATUS")
    assert end == (status["File"], status["Position"])


@pytest.mark.proves("file mode, from a position", client="python-mysql-replication")
@pytest.mark.parametrize("version", ["11.8"], indirect=True)
def test_resumes_by_position(relay: Relay) -> None:
    """Group by group on a connection each, as a service that is restarted often: none is missed, none comes twice."""
    first, second = write_two_files(relay)
    seen: list[str] = []
    place: dict[str, Any] = {"log_file": FIRST, "log_pos": 4}
    # One more than there are groups: the one in words is left behind its QUERY event, and gone on with inside it.
    for _ in [*first, *second, "the rest of one"]:
        with stream(relay.server, **place, resume_stream=True) as reader:
            for event in reader:
                if isinstance(event, MariadbGtidEvent):
                    seen.append(event.gtid)
                if isinstance(event, XidEvent | QueryEvent):
                    break
            place = {"log_file": reader.log_file, "log_pos": reader.log_pos}
    assert seen == first + second


@pytest.mark.parametrize("style", ["engine", "classic"])
def test_a_version_for_the_account(
    style: str, make_upstream: MakeMariaDB, binlog_server: MakeBinlogServer, tmp_path: Path
) -> None:
    """mariadb-binlog of 10.11 ends at a server of 11: an account may be told an older one."""
    upstream = make_upstream(version="10.11")
    account = {"password": "a secret", "grants": ["ALL PRIVILEGES"], "stream_style": style}
    old = {**account, "server_version": "10.11.16-MariaDB"}
    server = binlog_server(upstream=upstream, users={"dba": old, "other": account})
    relay = Relay(upstream, server, Programs(install_of(upstream), server, tmp_path))
    written = relay.write()
    remote = ("--read-from-remote-server", *ROWS)
    start, skipped = ((f"--start-position={written[0]}",), 1) if style == "engine" else ((), 0)
    said = relay.programs.run("mariadb-binlog", *remote, *start, FIRST)
    assert gtids(said) == written[skipped:]
    other = ("--user=other", "--password=a secret")
    said = relay.programs.fail("mariadb-binlog", *remote, *other, FIRST)
    assert "unknown" in said.lower() or "version" in said.lower(), said
