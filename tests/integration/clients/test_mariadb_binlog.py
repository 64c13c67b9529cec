"""`mariadb-binlog --read-from-remote-server`, from GTID positions.

It wants the name of a file, but the position alone says where to begin.
"""

from __future__ import annotations

import re

import pytest

from binlog_server.testing.waiting import until
from tests.integration.clients.programs import Relay
from tests.integration.load import insert

ANY_FILE = "binlog.000001"
REMOTE = ("--read-from-remote-server", ANY_FILE)
ROWS = ("--base64-output=DECODE-ROWS", "--verbose")
GTID = re.compile(r"\tGTID (\d+-\d+-\d+)")


def gtids(text: str) -> list[str]:
    return GTID.findall(text)


def groups(text: str) -> list[str]:
    """From the first group to the end of the last, without what differs from file to file: places and checksums."""
    lines = text.splitlines()
    begin = next(at for at, line in enumerate(lines) if GTID.search(line))
    end = max(at for at, line in enumerate(lines) if line.startswith("COMMIT"))
    kept = [line for line in lines[begin : end + 1] if not line.startswith("# at ")]
    return [re.sub(r"end_log_pos \d+ (CRC32 0x\w+ )?", "", line) for line in kept]


@pytest.mark.proves(
    "-R --start-position=GTID --stop-position=GTID",
    "-R --verify-binlog-checksum",
    client="mariadb-binlog",
    versions=("10.11", "11.8"),
)
def test_between_gtids(relay: Relay) -> None:
    written = relay.write()
    run = relay.programs.run
    for start, stop in ((1, 3), (2, len(written)), (len(written) - 1, len(written))):
        positions = (
            f"--start-position={written[start - 1]}",
            f"--stop-position={written[stop - 1]}",
        )
        said = run("mariadb-binlog", *positions, *REMOTE)
        assert gtids(said) == written[start:stop]
    options = ("--verify-binlog-checksum", f"--start-position={written[-2]}")
    said = run("mariadb-binlog", *options, *REMOTE)
    assert gtids(said) == written[-1:]
    assert "INSERT INTO d.t (a) VALUES ('in words')" in said


def test_any_name_of_a_file_will_do(relay: Relay) -> None:
    """The position tells where to begin: a name that SHOW BINARY LOGS has, or one of an earlier master."""
    written = relay.write()
    start = f"--start-position={written[0]}"
    for name in ("binlog-000000.ibb", "m-bin.004711"):
        said = relay.programs.run("mariadb-binlog", start, "--read-from-remote-server", name)
        assert gtids(said) == written[1:]


@pytest.mark.proves("-R --to-last-log", client="mariadb-binlog", versions=("10.11", "11.8"))
def test_to_the_last_file(relay: Relay) -> None:
    """Over the borders of our files, in whichever of them it begins."""
    written = relay.write()
    relay.server.q("FLUSH BINARY LOGS")
    insert(relay.upstream, 2)
    relay.wait()
    more = [f"{written[0].rpartition('-')[0]}-{len(written) + n}" for n in (1, 2)]
    options = (f"--start-position={written[0]}", "--to-last-log")
    assert gtids(relay.programs.run("mariadb-binlog", *options, *REMOTE)) == written[1:] + more


@pytest.mark.proves("-R --raw", client="mariadb-binlog", versions=("10.11", "11.8"))
def test_raw_file(relay: Relay) -> None:
    """A file as a server writes it, with the same groups as in the upstream's."""
    written = relay.write()
    upstream, programs = relay.upstream, relay.programs
    start = f"--start-position={written[0]}"
    # It counts GTIDs only where it prints them, so at the end it always finds that it has seen none, whoever sent them.
    said = programs.fail(
        "mariadb-binlog", "--raw", f"--result-file={programs.directory / 'copy-'}", start, *REMOTE
    )
    assert said == f"ERROR: Binary logs never reached expected GTID state of {written[0]}\n"
    copied = programs.read(programs.directory / f"copy-{ANY_FILE}", options=ROWS)
    original = upstream.dir / "data" / "upstream-bin.000001"
    assert gtids(copied) == written[1:]
    assert groups(copied) == groups(programs.read(original, options=(*ROWS, start)))


@pytest.mark.proves("-R --stop-never", client="mariadb-binlog", versions=("10.11", "11.8"))
def test_follow_for_ever(relay: Relay) -> None:
    written = relay.write()
    options = ("--stop-never", f"--start-position={written[-1]}")
    with relay.programs.running("mariadb-binlog", *options, *REMOTE) as output:
        more = [insert(relay.upstream, 1) for _ in range(3)]
        until(lambda: gtids(output.read_text()) == more, f"{more} printed")


@pytest.mark.proves("-R --raw --stop-never", client="mariadb-binlog", versions=("10.11", "11.8"))
def test_copy_for_ever(relay: Relay) -> None:
    """As binlogs are archived: the file grows with what is committed, also when the upstream starts again."""
    written = relay.write()
    copy = relay.programs.directory / f"copy-{ANY_FILE}"
    options = (
        "--raw",
        f"--result-file={relay.programs.directory / 'copy-'}",
        "--stop-never",
        f"--start-position={written[0]}",
    )
    with relay.programs.running("mariadb-binlog", *options, *REMOTE):
        until(
            lambda: written[-1] in gtids(relay.programs.read_growing(copy)),
            f"{written[-1]} copied",
        )
        relay.upstream.restart()
        last = insert(relay.upstream, 3)
        until(lambda: last in gtids(relay.programs.read_growing(copy)), f"{last} copied")
    number = int(last.rpartition("-")[2])
    everything = [f"{last.rpartition('-')[0]}-{n}" for n in range(2, number + 1)]
    assert gtids(relay.programs.read(copy)) == everything


@pytest.mark.proves(
    "-R without a GTID is refused", client="mariadb-binlog", versions=("10.11", "11.8")
)
def test_offsets_are_refused(relay: Relay) -> None:
    written = relay.write()
    said = relay.programs.fail("mariadb-binlog", "--start-position=4", *REMOTE)
    assert "Slave must enable GTID mode when master uses --binlog-storage-engine" in said
    unknown = written[-1].rpartition("-")[0] + "-4711"
    said = relay.programs.fail("mariadb-binlog", f"--start-position={unknown}", *REMOTE)
    assert f"requested to start from GTID {unknown}, which is not in the master's binlog" in said
