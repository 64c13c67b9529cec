"""binlog-server backup and prepare: of a server that runs, over a connection, to a directory or as a tar."""

from __future__ import annotations

import contextlib
import io
import json
import tarfile
import threading
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pymysql
import pytest
from binlog_protocol.errors import ProtocolError
from binlog_protocol.gtid import BinlogState
from binlog_storage.backup.target import BackupTarget
from binlog_storage.disk.disk import OsDisk
from binlog_storage.disk.read_only_disk import ReadOnlyDisk
from binlog_storage.engine.backup import (
    BACKUP_NAME,
    COPYING,
    PREPARED,
    WHOLE,
    Manifest,
    Piece,
    read_manifest,
)
from binlog_storage.errors import NotAStore

from binlog_server.app.app import Server
from binlog_server.app.in_process import running_server
from binlog_server.cli.backup import _Order, _piece, _Progress, _take, _Tar
from tests.binlog_server.cli.command import Ran, run
from tests.binlog_server.lab import ROOT
from tests.kit.commands_page import must_hold
from tests.storage.groups import read_all

SIZES = {"max_binlog_size": 1 << 16, "innodb_log_file_size": 4 << 20}
TRADITIONAL = {"binlog_storage_engine": "", "log_bin": "mariadb-bin"}
BOTH = pytest.mark.parametrize(
    "server", [{}, TRADITIONAL], ids=["ibb", "traditional"], indirect=True
)
T = "shop.t"


@pytest.fixture
def server(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Server]:
    """With rows, and some binlog files."""
    kind = getattr(request, "param", {})
    with running_server(tmp_path / "store", users=ROOT, **SIZES, **kind) as running:
        master = running.master
        master.create_database("shop")
        master.create_table(T, {"id": "INT PRIMARY KEY", "a": "VARCHAR(5000)"})
        for number in range(40):
            insert(running, number, f"{number}" * 2000)
        yield running


def insert(server: Server, number: int, text: str) -> None:
    with server.master.transaction() as t:
        t.insert(T, {"id": number, "a": text})


def say(server: Server, text: str) -> None:
    connection = pymysql.connect(
        host="127.0.0.1", port=server.port, user="root", password="pw", autocommit=True
    )
    with connection, connection.cursor() as cursor:
        cursor.execute(text)


def backup(server: Server, target: Path | str, *more: str | Path) -> Ran:
    url = f"mariadb://root:pw@127.0.0.1:{server.port}"
    return run("backup", "--server", url, "--target", target, *more)


def stage(path: Path) -> str | None:
    manifest = read_manifest(ReadOnlyDisk(path))
    return None if manifest is None else manifest.stage


def held(server: Server) -> tuple[BinlogState, int, list[bytes]]:
    """The state, the rows of the table, and all groups."""
    return *without_groups(server), read_all(server.engine)


def without_groups(server: Server) -> tuple[BinlogState, int]:
    engine = server.engine
    engine.sync()
    with server.master.transaction() as t:
        rows = len(t.scan(T))
    return engine.binlog_state(), rows


@BOTH
def test_to_a_directory_and_on(server: Server, tmp_path: Path) -> None:
    """Incremental ones onto it; then a server goes on from there, with the tables, as the one that was copied does."""
    base, later = tmp_path / "base", tmp_path / "later"
    ran = backup(server, base, "--prepare")
    assert ran.code == 0, ran.err
    assert ran.lines[-1] == f"{base} is a store"
    assert stage(base) == PREPARED
    insert(server, 1000, "later")
    assert backup(server, later, "--incremental-basedir", base).code == 0
    truth = held(server)
    insert(server, 1001, "behind it")
    ran = run("prepare", base, "--incremental-dir", later)
    assert ran.lines == [f"{base} is a store at GTID position '{truth[0].position()}'"], ran.err
    with running_server(base, users={}, **SIZES) as restored:
        assert stage(base) is None
        assert held(restored) == truth
        assert restored.server_uuid == server.server_uuid
        insert(restored, 1001, "another")
        assert held(restored)[1] == truth[1] + 1
    ran = run("prepare", base)
    assert ran.code == 1
    assert "is no backup" in ran.err
    assert (
        "a server has opened it"
        in backup(server, tmp_path / "x", "--incremental-basedir", base).err
    )


@BOTH
def test_an_incremental_one_is_told_as_that(server: Server, tmp_path: Path) -> None:
    """Its files begin in the middle of those of the earlier one: readers called them damaged."""
    base, later = tmp_path / "base", tmp_path / "later"
    assert backup(server, base).code == 0
    insert(server, 1000, "later")
    assert backup(server, later, "--incremental-basedir", base).code == 0
    told = f"{later} is an incremental backup: put it onto the one that it goes on from, by binlog-server prepare"
    for command in (
        ("verify", later),
        ("events", later),
        ("ls", later),
        ("find", later, "--gtid", "0-1-1"),
        ("compare", base, later),
        ("convert", later, tmp_path / "new"),
        ("user", "list", "--directory", later),
        ("prepare", later),
        ("doctor", "--directory", later, "--listen", "127.0.0.1:0"),
    ):
        ran = run(*command)
        assert ran.code != 0, command
        assert told in ran.err + ran.out.decode(), (command, ran)
    assert run("events", base).code == 0
    assert run("prepare", base, "--incremental-dir", later).code == 0
    assert run("events", base).code == 0


def _extract(tar: tarfile.TarFile, target: Path) -> None:
    # Before Python 3.11.4 there are no filters.
    tar.extraction_filter = getattr(tarfile, "data_filter", lambda member, _: member)
    tar.extractall(target)


@BOTH
def test_as_a_tar(server: Server, tmp_path: Path) -> None:
    """One that was cut off says that it is not whole, wherever that was."""
    truth = held(server)
    ran = backup(server, "-")
    assert ran.code == 0, ran.err
    with tarfile.open(fileobj=io.BytesIO(ran.out)) as tar:
        _extract(tar, tmp_path / "all")
    assert run("prepare", tmp_path / "all").code == 0
    with running_server(tmp_path / "all", users={}, **SIZES) as restored:
        assert held(restored) == truth
    cut = io.BytesIO(ran.out[: len(ran.out) * 2 // 3])
    with tarfile.open(fileobj=cut) as tar, pytest.raises(tarfile.ReadError, match="end of data"):
        _extract(tar, tmp_path / "cut")
    assert stage(tmp_path / "cut") == COPYING
    ran = run("prepare", tmp_path / "cut")
    assert (ran.code, "is not whole: its copy was interrupted" in ran.err) == (1, True)
    ran = run("user", "list", "--directory", tmp_path / "cut")
    assert (ran.code, "make another one" in ran.err) == (1, True)


@BOTH
def test_dry(server: Server, tmp_path: Path) -> None:
    """The server is asked, so rights and the target are as in earnest; nothing is made, and nothing waits for it."""
    target = tmp_path / "made/backup"
    ran = backup(server, target, "--dry-run", "--json")
    told = json.loads(ran.out)
    must_hold("binlog-server", "backup --dry-run", told)
    assert told["position"] == str(server.engine.binlog_state().position())
    assert not target.parent.exists()
    ran = backup(server, target, "--dry-run")
    assert ran.code == 0, ran.err
    assert ran.lines[-1].startswith("about ")
    say(server, "FLUSH BINARY LOGS")  # which would wait for a backup
    done = json.loads(backup(server, target, "--json").out)
    assert 0 < told["bytes"] <= 2 * done["bytes"]
    assert told["free"] > 0
    again = [backup(server, target, *more).err for more in (["--dry-run"], [])]
    assert again[0] == again[1]
    assert "give an empty directory" in again[0]
    told = json.loads(backup(server, "-", "--dry-run", "--json").out)
    assert told["free"] is None


@BOTH
def test_without_the_binlog(server: Server, tmp_path: Path) -> None:
    """The binlog begins at the GTID position of the backup; the rows are there."""
    state, rows = without_groups(server)
    assert backup(server, tmp_path / "b", "--skip-binlog").code == 0
    assert "with --skip-binlog: give prepare the same" in run("prepare", tmp_path / "b").err
    assert run("prepare", tmp_path / "b", "--skip-binlog").code == 0
    with running_server(tmp_path / "b", users={}, **SIZES) as restored:
        assert without_groups(restored) == (state, rows)
        insert(restored, 1001, "goes on")
        assert (
            next(iter(restored.engine.binlog_state().position())).seq_no
            == next(iter(state.position())).seq_no + 1
        )


def test_an_account_without_the_right_gets_nothing(server: Server, tmp_path: Path) -> None:
    url = f"mariadb://root:wrong@127.0.0.1:{server.port}"
    ran = run("backup", "--server", url, "--target", tmp_path / "b")
    assert (ran.code, "Access denied" in ran.err) == (1, True)
    assert not (tmp_path / "b").exists()


def test_progress_as_json(server: Server, tmp_path: Path) -> None:
    ran = backup(server, tmp_path / "b", "--json", "--throttle", "1000")
    told = [json.loads(line) for line in ran.err.splitlines()]
    assert told[-1]["bytes"] == told[-1]["total"] > 100_000


@pytest.mark.parametrize(
    "said", ["FLUSH BINARY LOGS", "RESET MASTER", "PURGE BINARY LOGS TO 'binlog-000001.ibb'"]
)
def test_what_waits_for_it(server: Server, said: str) -> None:
    """PURGE, FLUSH and RESET MASTER wait, and commits do not; KILL, or a client that leaves, ends the wait."""
    backups = server.backups
    waiting = threading.Event()

    def given_up() -> bool:
        waiting.set()
        return False

    done = threading.Event()

    def change() -> None:
        with backups.changing(given_up):
            done.set()

    with backups.running():
        thread = threading.Thread(target=change)
        thread.start()
        assert waiting.wait(30)
        assert not done.is_set()
        insert(server, 5000, said)
    assert done.wait(30)
    thread.join()


@BOTH
def test_with_a_table_of_sqlite(server: Server, tmp_path: Path) -> None:
    """Its rows are those of the point, too."""
    say(server, "CREATE TABLE shop.s (id INT PRIMARY KEY) ENGINE=SQLITE")
    say(server, "INSERT INTO shop.s VALUES (1), (2)")
    truth = held(server)
    assert backup(server, tmp_path / "b", "--prepare").code == 0
    with running_server(tmp_path / "b", users={}, **SIZES) as restored:
        assert held(restored) == truth
        with restored.master.transaction() as t:
            assert len(t.scan("shop.s")) == 2
            t.insert("shop.s", {"id": 3})


@pytest.mark.parametrize("name", ["../binlog-x", "other.000001", "mariadb-bin.000001/x", ""])
def test_names_that_a_server_makes_up(name: str) -> None:
    """They become names of files: a hostile server gets none but those of a store."""
    with pytest.raises(ProtocolError, match="no row of BACKUP SERVER"):
        _piece([name.encode(), b"1", b"0", b"x"], "mariadb-bin")
    assert _piece([b"mariadb-bin.000001", b"1", b"0", b"x"], "mariadb-bin").size == 1


def _manifest(at: str, **values: Any) -> list[bytes | None]:
    made = Manifest("binlog", "h", "u", "0-1-1", 1, None, skip_binlog=True).at(at)
    body = json.loads(made.build()) | values
    data = json.dumps(body).encode()
    return [BACKUP_NAME.encode(), b"%d" % len(data), b"0", data]


def _row(size: int, offset: int, *, name: str = "binlog-1", data: bytes = b"abc") -> list[Any]:
    return [name.encode(), b"%d" % size, b"%d" % offset, data]


BEGIN, END = _manifest(COPYING), _manifest(WHOLE)
HOSTILE: dict[str, tuple[list[list[Any]], str]] = {
    "NUL": ([BEGIN, _row(3, 0, name="binlog-\0"), END], r"'binlog-\\x00'"),
    "a terminal's": ([BEGIN, _row(3, 0, name="binlog-\x1b[2J"), END], r"'binlog-\\x1b\[2J'"),
    "size": ([BEGIN, _row(-3, 0), END], "bytes 0 to 3 of binlog-1, which has -3"),
    "large size": ([BEGIN, _row(1 << 63, 0), END], "which has 9223372036854775808"),
    "more than was to come": (
        [BEGIN, _row(1 << 62, (1 << 62) - 3), END],
        "4611686018427387904 bytes of binlog-1 it is far more than was to come",
    ),
    "much at once": (
        [_manifest(COPYING, bytes_total=1 << 63), _row(1 << 51, 0), END],
        "it is far more than was to come",
    ),
    "offset": ([BEGIN, _row(3, -1), END], "bytes -1 to 2"),
    "large offset": ([BEGIN, _row(3, 1 << 70), END], "bytes 1180591620717411303424 to"),
    "beyond": ([BEGIN, _row(2, 0), END], "bytes 0 to 3 of binlog-1, which has 2"),
    "back": ([BEGIN, _row(9, 3), _row(9, 2), END], "binlog-1 is not in order"),
    "another size": ([BEGIN, _row(9, 0), _row(8, 3), END], "binlog-1 is not in order"),
    "again": (
        [BEGIN, _row(3, 0), _row(3, 0, name="binlog-2"), _row(3, 0), END],
        "binlog-1 comes again",
    ),
    "no manifest": ([_row(3, 0), END], "binlog-1 outside of a backup"),
    "behind the end": ([BEGIN, END, _row(3, 0)], "binlog-1 outside of a backup"),
    "state": ([_manifest(COPYING, state=7), END], "damaged or not ours: a text is none"),
    "GTIDs": ([BEGIN, _manifest(WHOLE, state="x")], "its state: Could not parse GTID list"),
    "total": ([_manifest(COPYING, bytes_total="x"), END], "a number is none"),
    "base name": ([_manifest(COPYING, log_bin=5), END], "a text is none"),
    "notes": ([BEGIN, _manifest(WHOLE, notes=[{}])], "a text is none"),
    "end": (
        [
            BEGIN,
            _manifest(WHOLE, end={"history": "", "file_no": "x", "offset": 0, "start_lsn": 0}),
        ],
        "a number is none",
    ),
    "no end": ([BEGIN, _manifest(WHOLE, skip_binlog=False)], "a binlog without an end"),
    "begins behind its end": (
        [
            BEGIN,
            _manifest(
                WHOLE,
                first_file=8,
                skip_binlog=False,
                end={"history": "", "file_no": 7, "offset": 0, "start_lsn": 0},
            ),
        ],
        "its binlog begins behind its end",
    ),
    "depth": ([[BACKUP_NAME.encode(), b"99999", b"0", b"[" * 99_999]], "recursion"),
}


@pytest.mark.parametrize("name", HOSTILE)
async def test_what_a_server_makes_up(name: str, tmp_path: Path) -> None:
    """Nothing of it becomes a backup, in neither form; it is an error of ours."""
    rows, told = HOSTILE[name]

    async def sent() -> AsyncIterator[list[bytes | None]]:
        for row in rows:
            yield row

    with (
        contextlib.closing(BackupTarget(OsDisk(tmp_path), str(tmp_path))) as target,
        pytest.raises((ProtocolError, NotAStore), match=told),
    ):
        await _take(sent(), target, _Progress(as_json=False), 0.0)
    assert stage(tmp_path) in (COPYING, None)
    tar = io.BytesIO()
    with pytest.raises((ProtocolError, NotAStore), match=told):
        await _take(sent(), _Tar(tar), _Progress(as_json=False), 0.0)
    assert WHOLE.encode() not in tar.getvalue()


@pytest.mark.parametrize("name", ["../binlog-x", "evil.txt", "mariadb-bin.000001"])
def test_a_manifest_that_names_other_files(name: str, tmp_path: Path) -> None:
    """Of a tar that a stranger has made: `prepare` would put them into the store."""
    body = _manifest(WHOLE, sizes={name: 1})[-1]
    assert body is not None
    (tmp_path / BACKUP_NAME).write_bytes(body)
    ran = run("prepare", str(tmp_path), "--skip-binlog")
    assert (ran.code, f"no backup has a file '{name}'" in ran.err) == (1, True), ran.err


@pytest.mark.parametrize("option", [(), ("--dry-run",)])
@pytest.mark.parametrize("of", ["base", "later"])
def test_a_symbolic_link_in_a_backup(of: str, option: tuple[str, ...], tmp_path: Path) -> None:
    """A file of this machine would become a part of the store."""
    folders = [tmp_path / "base", tmp_path / "later"]
    for folder in folders:
        folder.mkdir()
        body = _manifest(WHOLE)[-1]
        assert body is not None
        (folder / BACKUP_NAME).write_bytes(body)
    (tmp_path / "secret").write_text("secret")
    link = tmp_path / of / "binlog-server.key"
    link.symlink_to(tmp_path / "secret")
    ran = run("prepare", str(folders[0]), "--incremental-dir", str(folders[1]), *option)
    assert (ran.code, f"{link} is a symbolic link" in ran.err) == (1, True), ran.err


def test_all_files_together_are_what_was_to_come() -> None:
    order = _Order()
    order.expect(1 << 30)
    for number in range(3):  # twice that and 1 GiB: a store may have grown
        order.add(Piece(f"binlog-{number}", 1 << 30, 0, b""))
    with pytest.raises(ProtocolError, match="binlog-3 it is far more than was to come"):
        order.add(Piece("binlog-3", 1, 0, b"x"))


WRONG: dict[str, tuple[tuple[str, ...], str]] = {
    "tar and prepare": (("--target", "-", "--prepare"), "--prepare needs a directory"),
    "incremental without binlog": (
        ("--target", "x", "--skip-binlog", "--incremental-since-gtid", "0-1-1"),
        "nothing that could be incremental",
    ),
    "url": (("--target", "x", "--server", "db1"), "--server: write it as mariadb://"),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_usage(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    more, message = WRONG[name]
    ran = run("backup", "--server", "mariadb://a:b@127.0.0.1:1", *more)
    assert (ran.code, message in ran.err) == (2, True)
    assert not list(tmp_path.iterdir())
