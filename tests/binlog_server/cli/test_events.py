"""`events` and `ls` on stores made here; tests/integration/rows has real servers on both ends."""

from __future__ import annotations

import errno
import itertools
import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest
from binlog_protocol.events.incident import IncidentEvent
from binlog_protocol.gtid import Gtid
from binlog_storage.binlog.store import IbbEngine
from binlog_storage.disk.disk import OsDisk
from binlog_storage.ibb.page import PAGE_SIZE

from binlog_server.cli import main
from tests.binlog_server.cli.command import copy_to, run
from tests.kit import every_command
from tests.protocol.events.rows import samples
from tests.protocol.statement_groups import ddl_group, transaction_group
from tests.storage import vectors
from tests.storage.classic import binlog_files
from tests.storage.groups import Group
from tests.storage.intake.test_intake import halved
from tests.storage.sizes import small

NOON = 1_780_000_000
SMALL = small(4)


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """600 groups of two domains in some files, one a second."""
    engine = IbbEngine(OsDisk(tmp_path / "store"), SMALL)
    engine.append(ddl_group(Gtid(0, 1, 1), "CREATE DATABASE d", timestamp=NOON), Gtid(0, 1, 1))
    for n in range(2, 601):
        gtid = Gtid(n % 2, 1 + n % 3, n)
        statement = f"INSERT INTO t VALUES ({n}, '{'x' * 200}')"
        group = transaction_group(
            gtid, [statement], xid=n, database=f"d{n % 2}", timestamp=NOON + n
        )
        engine.append(group, gtid)
    engine.close()
    return tmp_path / "store"


def gtids(*arguments: str | Path) -> list[str]:
    ran = run("events", *arguments, "--json")
    assert ran.code == 0, ran.err
    return [item["gtid"] for item in map(json.loads, ran.lines) if item["type"] == "GTID"]


def numbers(*arguments: str | Path) -> list[int]:
    return [int(gtid.split("-")[2]) for gtid in gtids(*arguments)]


def test_all_of_a_store(store: Path) -> None:
    assert numbers(store) == list(range(1, 601))
    script = run("events", store).out
    assert script.count(b"INSERT INTO t") == 599
    assert script.startswith(b"/*!50530 SET @@SESSION.PSEUDO_SLAVE_MODE=1*/;\n")
    assert script.endswith(b"SET @@SESSION.PSEUDO_SLAVE_MODE=0*/;\n")
    short = run("events", store, "--short-form").out
    assert b"\n#" not in short
    assert short.count(b"INSERT INTO t") == 599


def test_positions(store: Path) -> None:
    files = sorted(store.glob("*.ibb"))
    assert len(files) > 2
    evens, odds = set(range(2, 601, 2)), set(range(1, 601, 2))
    behind = set(numbers(store, "--start-position", "0-2-400"))
    assert behind == {n for n in evens if n > 400} | odds - {1}
    both = set(numbers(store, "--start-position", "0-2-400,1-1-501"))
    assert both == {n for n in evens if n > 400} | {n for n in odds if n > 501}
    first = set(numbers(store, "--stop-position", "0-1-300"))
    assert first == {1} | {n for n in evens if n <= 300}
    until = numbers(store, "--stop-position", "1-1-303")
    assert until == [n for n in sorted(odds - {1}) if n <= 303]
    between = numbers(store, "--start-position", "1-1-303", "--stop-position", "1-1-309")
    assert between == [305, 307, 309]


def test_positions_that_are_not_there(store: Path) -> None:
    ran = run("events", store, "--start-position", "0-1-9999", "--stop-position", "1-1-9999")
    assert ran.code == 0
    assert "--start-position 0-1-9999 is not in these files" in ran.err
    assert "--stop-position 1-1-9999 is not in these files" in ran.err
    (store / "binlog-000000.ibb").unlink()
    purged = run("events", store, "--start-position", "0-1-1")
    assert purged.code == 1
    assert "do not reach back to 0-1-1" in purged.err
    assert run("events", store).code == 0


def test_a_position_in_front_of_half_a_group(tmp_path: Path) -> None:
    """What follows it has a hole: that is no list of what comes behind the position."""
    directory = halved(tmp_path)
    for number in (1, 2):
        ran = run("events", directory, "--start-position", f"0-1-{number}")
        assert ran.code == 1
        assert f"do not reach back to 0-1-{number}" in ran.err
    assert numbers(directory, "--start-position", "0-1-3") == [4, 5]
    assert numbers(directory, "--start-position", "0-1-4") == [5]
    assert numbers(directory) == [2, 4, 5]


def test_a_time_without_a_zone_is_local(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "UTC-2")  # two hours east
    time.tzset()
    try:
        assert numbers(store, "--start-datetime", "2026-05-28 22:29:10") == list(range(150, 601))
        assert numbers(store, "--start-datetime", "2026-05-28T20:29:10Z") == list(range(150, 601))
    finally:
        monkeypatch.undo()
        time.tzset()


def test_a_text_that_is_no_time(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["events", str(store), "--start-datetime", "noon"])
    assert "argument --start-datetime: 'noon' is no time such as" in capsys.readouterr().err


def test_choices(store: Path) -> None:
    assert set(numbers(store, "--domain", "1")) == set(range(3, 601, 2))
    assert set(numbers(store, "--domain", "0", "--server-id", "1")) == {1} | set(range(6, 601, 6))
    assert numbers(store, "--start-datetime", "2026-05-28 20:29:10+00:00") == list(range(150, 601))
    assert numbers(store, "--start-datetime", "2026-05-28T20:29:10Z") == list(range(150, 601))
    assert numbers(store, "--stop-datetime", "2026-05-28 20:29:10Z") == list(range(1, 150))
    assert set(numbers(store, "--database", "d1")) == set(range(3, 601, 2))
    assert numbers(store, "--table", "t") == []


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--start-position", "1-2"], "is no GTID position such as"),
        (["--stop-position", "0-1-1,0-2-2"], "conflict"),
        (["--local-load", "it's"], "without quotes"),
    ],
)
def test_wrong_usage(store: Path, arguments: list[str], words: str) -> None:
    ran = run("events", store, *arguments)
    assert ran.code == 2
    assert words in ran.err


def test_what_is_no_binlog(tmp_path: Path, store: Path) -> None:
    other = tmp_path / "binlog-000009.ibb"
    for data, words in (
        (bytes(PAGE_SIZE), "empty pre-allocated binlog"),
        (b"PNG?" + bytes(PAGE_SIZE), "no binlog file"),
        (b"", "is empty"),
    ):
        other.write_bytes(data)
        ran = run("events", other)
        assert (ran.code, ran.out) == (1, b"")
        assert words in ran.err
    assert "there is no" in run("events", tmp_path / "none").err
    empty = tmp_path / "empty"
    empty.mkdir()
    assert "has neither .ibb files nor" in run("events", empty).err
    classic = samples.FOLDER / "1011-row.bin"
    mixed = run("events", classic, store / "binlog-000000.ibb")
    assert mixed.code == 1
    assert "mixed" in mixed.err


def test_damage_ends_the_output_with_an_error(tmp_path: Path) -> None:
    entry = next(v for v in vectors.corrupt_sets() if v["name"] == "corrupt_flip_data")
    ran = run("events", copy_to(vectors.unpack(entry), tmp_path))
    assert ran.code == 1
    assert "binlog-000000.ibb, offset 32768" in ran.err
    assert ran.out.count(b"gtid_seq_no") > 20
    assert b"DELIMITER ;\n" not in ran.out


def test_torn_tail_is_told(tmp_path: Path) -> None:
    entry = next(v for v in vectors.corrupt_sets() if v["name"] == "corrupt_missing_next")
    ran = run("events", copy_to(vectors.unpack(entry), tmp_path))
    assert ran.code == 0
    assert "the last record is not whole and was left out" in ran.err


@pytest.mark.parametrize("name", samples.NAMES)
def test_classic_files(name: str) -> None:
    path = samples.FOLDER / f"{name}.bin"
    assert gtids(path) == [str(group.gtid) for group in samples.groups(name)]
    ran = run("events", path, "-vv")
    assert ran.code == 0
    assert ran.out.count(b"### SET") == sum(row[1] == "SET" for row in samples.shown_rows(name))


def test_traditional_files_with_a_gap(tmp_path: Path) -> None:
    """What is missing was left out without a word: whoever gave the rest to a server had lost it."""
    parts = [binlog_files.simple(2, first=n) for n in (1, 3, 5)]
    first, second, third = binlog_files.write_chain(tmp_path, *parts)
    index = tmp_path / "m-bin.index"
    index.write_text(f"./{first.name}\n./{third.name}\n")
    told = f"the file ends behind 0-1-2, but {third} begins behind 0-1-4"
    ran = run("events", tmp_path)
    assert (ran.code, told in ran.err) == (1, True), ran.err
    for command in ("find", "compare"):  # what was looked for may be in the missing one
        more = ("--gtid", "0-1-1") if command == "find" else (tmp_path,)
        ran = run(command, tmp_path, *more)
        assert (ran.code != 0, told in ran.err) == (True, True), ran.err
    ran = run("events", first, third)  # as they were named
    assert (ran.code, told in ran.err) == (0, True), ran.err
    assert gtids(first, second, third) == [f"0-1-{n}" for n in range(1, 7)]
    index.write_text(f"./{second.name}\n./{third.name}\n")
    for files in ([tmp_path], [second], [second, third]):
        ran = run("events", *files, "--start-position", "0-1-1")
        assert ran.code == 1
        assert ran.err == "binlog-server: the files do not reach back to 0-1-1\n"
    ran = run("events", tmp_path, "--start-position", "0-1-2")
    assert (ran.code, ran.err) == (0, "")


def test_incidents_are_shown(tmp_path: Path) -> None:
    path = tmp_path / "m-bin.000001"
    incident = IncidentEvent("error writing to the binary log", 1, timestamp=NOON).build()
    first, second = binlog_files.simple(2)
    offsets = binlog_files.write(path, [first, Group(incident, None), second])
    said = (
        "The incident LOST_EVENTS occurred on the master. Message: error writing to the binary log"
    )
    ran = run("events", path)
    assert ran.code == 0
    assert (
        f"{path}:{offsets[1]}: the server that wrote this has lost changes here: {said}" in ran.err
    )
    # Where it is, as a statement that no server takes.
    before, behind = ran.out.decode(errors="replace").split("RELOAD DATABASE")
    assert f"{path.name}:{offsets[1]}" in before
    assert said in before
    assert "gtid_seq_no=1" in before
    assert "gtid_seq_no=2" in behind
    objects = [json.loads(line) for line in run("events", "--json", path).lines]
    (found,) = [item for item in objects if item["type"] == "INCIDENT"]
    assert found == {
        "file": path.name,
        "offset": offsets[1],
        "type": "INCIDENT",
        "timestamp": NOON,
        "time": "2026-05-28T20:26:40Z",
        "server_id": 1,
        "incident": "LOST_EVENTS",
        "message": "error writing to the binary log",
    }


@pytest.mark.parametrize(
    "command",
    [
        ["ls"],
        ["verify"],
        ["events"],
        ["import", "--directory", "STORE"],
        ["import", "--directory", "STORE", "--index"],
        ["seed", "--directory", "STORE", "--from-dump"],
        ["seed", "--directory", "STORE", "--from-backup"],
    ],
    ids=" ".join,
)
def test_what_is_not_there(tmp_path: Path, command: list[str]) -> None:
    """One line that names it, and nothing is made."""
    command = [str(tmp_path / "store") if word == "STORE" else word for word in command]
    ran = run(*command, tmp_path / "none")
    assert ran.code == 1
    assert ran.err.startswith(f"binlog-server: there is no {tmp_path}/none")
    assert ran.err.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "command", [["ls"], ["verify"], ["prepare"], ["user", "list", "--directory"]], ids=" ".join
)
def test_a_file_in_the_place_of_a_store(tmp_path: Path, command: list[str]) -> None:
    (tmp_path / "file").write_text("mine")
    ran = run(*command, tmp_path / "file")
    assert (ran.code, ran.err) == (1, f"binlog-server: {tmp_path}/file is no directory\n")


@pytest.mark.parametrize("command", ["ls", "verify", "events", "import"])
@pytest.mark.parametrize(
    ("kind", "says"),
    [
        ("empty folder", "has neither .ibb files nor the index of a traditional binlog"),
        ("text", "is no directory|is no binlog file"),
        ("forbidden", "Permission denied: run this as the user whose files they are"),
    ],
)
def test_what_is_no_store(
    tmp_path: Path, command: str, kind: str, says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "given"
    if kind == "text":
        path.write_text("INSERT INTO t VALUES (1)")
    else:
        path.mkdir()
    if kind == "forbidden":  # root may look into anything
        is_file = Path.is_file

        def looked_at(one: Path) -> bool:
            if one.parent == path:
                raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(one))
            return is_file(one)

        monkeypatch.setattr(Path, "is_file", looked_at)

        def listdir(_: Path) -> list[str]:
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))

        monkeypatch.setattr(os, "listdir", listdir)
    arguments = ["--directory", str(tmp_path / "store")] if command == "import" else []
    ran = run(command, *arguments, path)
    assert ran.code == 1
    (line,) = ran.err.splitlines()
    assert line.startswith("binlog-server: ")
    assert str(path) in line
    assert re.search(says, line)
    assert not (tmp_path / "store").exists()


def test_a_reader_that_goes_away_is_told_nothing(store: Path) -> None:
    """And the exit code is that of all commands: not all was said."""
    command = f"{sys.executable} -m binlog_server events {store} | head -n 3"
    argv = ["bash", "-c", f"set -o pipefail; {command}"]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (1, "")
    assert len(done.stdout.splitlines()) == 3


@pytest.mark.parametrize("command", ["events", "find"])
def test_a_table_that_is_none(command: str, store: Path) -> None:
    """It was a filter that nothing passed, and all seemed well."""
    line = f"binlog-server {command} {store} --table"
    ran = every_command.run(f"{line} a.b.c", store, store)
    assert ran.code == 2
    assert "'a.b.c' is no table such as orders or shop.orders" in ran.err
    ran = every_command.run(f"{line} `a.b`.c", store, store)
    assert ran.code == (0 if command == "events" else 1)


def test_ls(store: Path) -> None:
    before = {path.name: path.read_bytes() for path in store.iterdir()}
    ran = run("ls", store)
    assert ran.code == 0
    head, *rows = ran.lines
    assert head.split()[:3] == ["FILE", "SIZE", "STATE"]
    assert len({line.index("closed") for line in rows[:-1]}) == 1  # aligned
    assert rows[0].split()[:5] == ["binlog-000000.ibb", "65536", "closed", "0-1-1", "2026-05-28"]
    assert rows[-1].split()[-3] == "0-1-600"
    found = json.loads(run("ls", store, "--json").out)
    assert [file["file"] for file in found] == [path.name for path in sorted(store.glob("*.ibb"))]
    assert [file["state"] for file in found] == ["closed"] * (len(found) - 1) + ["last"]
    for file, following in itertools.pairwise(found):
        last, first = (
            int(gtid.split("-")[2]) for gtid in (file["last_gtid"], following["first_gtid"])
        )
        assert first == last + 1
        assert file["last_gtid"] in following["base_state"].split(",")
    assert found[0]["first_time"] == "2026-05-28T20:26:40Z"
    assert {path.name: path.read_bytes() for path in store.iterdir()} == before


@pytest.mark.parametrize("vector", [pytest.param(v, id=v["name"]) for v in vectors.sets()])
def test_ls_of_every_set(vector: dict[str, object], tmp_path: Path) -> None:
    """First and last GTID are those of the groups whose commit record begins in the file."""
    directory = copy_to(vectors.unpack(vector), tmp_path)
    ran = run("ls", directory, "--json")
    assert ran.code == 0
    for file in json.loads(ran.out):
        number = int(file["file"][7:-4])
        here = [g.gtid for g in vectors.groups_of(vector) if g.file_no == number and g.gtid]
        assert (file["first_gtid"], file["last_gtid"]) == (
            (here[0], here[-1]) if here else (None, None)
        )
        preallocated = vector["preallocated"]
        assert isinstance(preallocated, list)
        assert (file["state"] == "empty") == (file["file"] in preallocated)


def test_ls_names_damage(tmp_path: Path) -> None:
    entry = next(v for v in vectors.corrupt_sets() if v["name"] == "corrupt_header_magic")
    ran = run("ls", copy_to(vectors.unpack(entry), tmp_path))
    assert ran.code == 1
    assert "damaged: no binlog file: wrong magic number" in ran.lines[1]


def test_help_has_examples() -> None:
    with pytest.raises(SystemExit) as caught:
        run("events", "--help")
    assert caught.value.code == 0
