"""`ls` and `verify` of a store of traditional files: the answers have the shape that those of `.ibb` stores have."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from binlog_protocol.events.checksum import append_checksum
from binlog_protocol.gtid import Gtid
from binlog_storage.classic.options import ClassicOptions
from binlog_storage.classic.store import ClassicEngine
from binlog_storage.disk.disk import OsDisk
from binlog_storage.disk.state import StateStore
from binlog_storage.ibb.xa import Xid

from tests.binlog_server.cli.command import run
from tests.storage.classic.binlog_files import CREATED, group, simple
from tests.storage.groups import append_all

LARGE = 300_000
"""More than is read at once."""
XA_FILE = "binlog-server.xa.000000000001"


def _open(directory: Path) -> ClassicEngine:
    disk = OsDisk(directory)
    options = ClassicOptions(binlog_gtid_index_span_min=4096)
    return ClassicEngine(disk, options, facts=StateStore(disk))


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """Three files: of many groups, of one large group behind another, of one; and a transaction that waits."""
    directory = tmp_path / "store"
    directory.mkdir()
    engine = _open(directory)
    append_all(engine, simple(200))
    engine.flush()
    append_all(engine, [group(Gtid(0, 1, 201)), group(Gtid(3, 2, 1), LARGE)])
    engine.flush()
    append_all(engine, [group(Gtid(0, 1, 202))])
    writer = engine.begin()
    writer.spill(group(Gtid(0, 1, 203)).payload)
    writer.prepare(Xid(1, b"waits", b""))
    engine.sync()
    engine.close()
    return directory


def _files(directory: Path) -> list[Path]:
    return sorted(path for path in directory.glob("binlog.0*") if path.suffix != ".idx")


def test_a_sound_store(store: Path) -> None:
    before = {path: path.read_bytes() for path in store.iterdir() if path.is_file()}
    for given in (store, store / "binlog.index"):
        ran = run("verify", given)
        assert (ran.code, ran.lines) == (0, ["sound: 3 files, 203 groups, 0 errors, 0 warnings"])
        ran = run("ls", given)
        assert ran.code == 0
        rows = [line.split() for line in ran.lines[1:]]
        assert [(row[0], row[2], row[3], row[-3]) for row in rows] == [
            ("binlog.000001", "closed", "0-1-1", "0-1-200"),
            ("binlog.000002", "closed", "0-1-201", "3-2-1"),
            ("binlog.000003", "last", "0-1-202", "0-1-202"),
        ]
    assert before == {path: path.read_bytes() for path in store.iterdir() if path.is_file()}


def test_as_json(store: Path) -> None:
    files = json.loads(run("ls", store, "--json").out)
    assert [file["base_state"] for file in files] == ["", "0-1-200", "0-1-201,3-2-1"]
    assert [file["size"] for file in files] == [path.stat().st_size for path in _files(store)]
    assert {file["first_time"] for file in files} == {"2023-11-14T22:13:20Z"}, CREATED
    found = json.loads(run("verify", store, "--json").out)
    assert found == {
        "sound": True,
        "files": 3,
        "groups": 203,
        "errors": 0,
        "warnings": 0,
        "findings": [],
    }


def _write(at: int, data: bytes) -> Callable[[Path], object]:
    def damage(path: Path) -> None:
        with path.open("r+b") as file:
            file.seek(at, 0 if at >= 0 else 2)
            file.write(data)

    return damage


def _cut(by: int) -> Callable[[Path], object]:
    return lambda path: path.write_bytes(path.read_bytes()[:-by])


@pytest.mark.parametrize(
    ("name", "damage", "finding", "listed"),
    [
        ("binlog.000001", _write(400, b"rot"), "binlog.000001 offset .*CRC-32", "damaged: .*CRC-32"),
        ("binlog.000001", _write(0, b"rot"), "is no binlog file", "damaged: is no binlog file"),
        ("binlog.000001", _write(40, b"rot"), "CRC-32", "damaged: .*CRC-32"),
        ("binlog.000001", Path.unlink, "is missing, but binlog.index names it", "damaged: the file is"),
        ("binlog.000001", _cut(200), "behind 0-1-199, but .*begins behind 0-1-200", "closed"),
        ("binlog.000003", _cut(60), "in front of its durable end", "last"),
        ("binlog.000003", lambda path: path.write_bytes(b""), "it is empty", "damaged: .*empty"),
        ("binlog-server.redo", Path.unlink, "redo is missing: the server does not open", "last"),
        ("binlog-server.redo", _write(20, b"rot"), "binlog-server.redo offset 0: ", "last"),
        (XA_FILE, _write(-40, b"rot"), f"{XA_FILE} offset 0: the CRC-32 of the prepared", "last"),
        (XA_FILE, _write(9, b"rot"), f"{XA_FILE} offset 0: is damaged: it held", "last"),
    ],
)  # fmt: skip
def test_damage(
    store: Path, name: str, damage: Callable[[Path], object], finding: str, listed: str
) -> None:
    damage(store / name)
    ran = run("verify", store)
    assert ran.code == 1
    assert any(re.search(finding, line) for line in ran.lines), ran.lines
    assert ran.lines[-1].startswith("damaged: 3 files, ")
    (one, *_) = json.loads(run("verify", store, "--json").out)["findings"]
    assert (one["severity"], one["page"]) == ("error", None)
    ran = run("ls", store)
    assert ran.code == ("damaged" in listed)
    assert any(re.search(listed, line) for line in ran.lines), ran.lines


def test_a_torn_end_is_a_warning(store: Path) -> None:
    """As a crash leaves it where nothing says how far it was durable: a start cuts it off."""
    (store / "binlog-server.durable").unlink()
    _cut(60)(store / "binlog.000003")
    ran = run("verify", store)
    assert ran.code == 0
    (warning, verdict) = ran.lines
    assert "warning: the file ends inside" in warning
    assert verdict == "sound: 3 files, 202 groups, 0 errors, 1 warning"


@pytest.mark.parametrize("state", ["missing", "damaged", "of another file"])
def test_a_gtid_index_is_never_needed(store: Path, state: str) -> None:
    listed = run("ls", store, "--json").out
    path = store / "binlog.000001.idx"
    if state == "missing":
        path.unlink()
    elif state == "damaged":
        _write(100, b"rot")(path)
    else:
        path.write_bytes((store / "binlog.000002.idx").read_bytes())
    (store / "binlog.000003.idx").write_bytes(b"")  # as a MariaDB that runs has it
    assert run("ls", store, "--json").out == listed
    ran = run("verify", store)
    assert (ran.code, len(ran.lines)) == (0, 1 + (state == "damaged"))
    if state == "damaged":
        assert ran.lines[0].startswith("binlog.000001.idx offset 0: warning: the CRC-32 of page 1")


def test_encrypted_files_want_their_key(tmp_path: Path) -> None:
    directory, keys, config = (tmp_path / name for name in ("store", "keys", "server.toml"))
    directory.mkdir()
    keys.write_text("1;" + "ab" * 16)
    config.write_text(f'file_key_management_filename = "{keys}"\n')
    options = ClassicOptions(encrypt_binlog=True, file_key_management_filename=str(keys))
    engine = ClassicEngine(OsDisk(directory), options)
    append_all(engine, simple(20))
    engine.sync()
    engine.close()
    for command in ("ls", "verify"):
        ran = run(command, directory)
        assert (ran.code, ran.out) == (1, b""), "not damaged"
        assert "binlog.000001 is encrypted: it is read with the key file" in ran.err
        assert run(command, directory, "--config", config).code == 0
    assert "0-1-20" in run("ls", directory, "--config", config).lines[1]


def test_which_binlog_of_a_directory(store: Path) -> None:
    """A MariaDB that is a replica has the index of a relay log beside that of its binlog."""
    (store / "relay-bin.index").write_text("./relay-bin.000001\n")
    relay_log = bytearray(_files(store)[0].read_bytes())
    relay_log[4 + 17] |= 0x40
    relay_log[4 + 17] &= ~1
    description = bytes(relay_log[4 : 4 + int.from_bytes(relay_log[13:17], "little")])
    relay_log[4 : 4 + len(description)] = append_checksum(description[:-4])
    (store / "relay-bin.000001").write_bytes(relay_log)
    assert run("verify", store).code == 0
    assert run("ls", store).lines[1].startswith("binlog.000001")
