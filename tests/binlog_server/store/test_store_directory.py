"""Which directories are taken, and which are left as they are."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from binlog_protocol.gtid import Gtid
from binlog_storage.binlog.store import IbbEngine
from binlog_storage.classic.store import ClassicEngine
from binlog_storage.disk.state import STATE_NAME
from binlog_storage.errors import CorruptBinlog, DiskFull, NotAStore, StorageError, StoreInUse
from binlog_storage.ibb.file_names import LOCK_NAME, file_name, file_number

from binlog_server.settings.engine_limits import INNODB, TRADITIONAL
from binlog_server.store.store_directory import StoreDirectory, WantedStore, open_state
from tests.binlog_server.lab import STORE, fill
from tests.storage import damaged_stores
from tests.storage.damaged_stores import DAMAGES


def picture(path: Path) -> dict[str, bytes]:
    return {str(p.relative_to(path)): p.read_bytes() for p in path.rglob("*") if p.is_file()}


def opened(path: Path) -> StoreDirectory:
    return StoreDirectory(path, STORE)


def test_new_directory(tmp_path: Path) -> None:
    path = tmp_path / "a" / "b"
    directory = opened(path)
    fill(directory.engine, [Gtid(0, 1, 1)])
    directory.close()
    assert {STATE_NAME, "binlog-000000.ibb"} <= {p.name for p in path.iterdir()}
    again = opened(path)
    assert str(again.engine.binlog_state()) == "0-1-1"
    again.close()


FOREIGN = {
    "a file": {"ibdata1": b"x"},
    "a file beside .ibb files": {"binlog-000000.ibb": b"x" * 100, "notes.txt": b"mine"},
    "a directory": {"mysql/db.frm": b"x"},
    "almost our name": {"binlog-000000.ibb.bak": b"x"},
    "hidden": {".profile": b"x"},
}


@pytest.mark.parametrize("what", FOREIGN)
def test_foreign_directory_is_refused_and_untouched(tmp_path: Path, what: str) -> None:
    for name, data in FOREIGN[what].items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(data)
    before = picture(tmp_path)
    names = sorted(p.name for p in tmp_path.iterdir())
    with pytest.raises(NotAStore, match="is not a binlog store: it holds"):
        opened(tmp_path)
    with pytest.raises(NotAStore):
        open_state(tmp_path)
    assert picture(tmp_path) == before
    assert sorted(p.name for p in tmp_path.iterdir()) == names


def test_directory_of_ibb_files_alone_is_taken(tmp_path: Path) -> None:
    made = opened(tmp_path)
    fill(made.engine, [Gtid(0, 1, n) for n in range(1, 10)])
    made.close()
    for name in (STATE_NAME, LOCK_NAME):
        (tmp_path / name).unlink()
    adopted = opened(tmp_path)
    assert str(adopted.engine.binlog_state()) == "0-1-9"
    adopted.close()
    assert (tmp_path / STATE_NAME).exists()


def test_lost_and_found_is_nobodys(tmp_path: Path) -> None:
    (tmp_path / "lost+found").mkdir()
    opened(tmp_path).close()


def test_second_open_is_refused(tmp_path: Path) -> None:
    first = opened(tmp_path)
    assert isinstance(first.engine, IbbEngine)
    # Or they make the next file meanwhile, and publish the end.
    first.engine.keeper.caretaker.stop()
    first.engine._flusher.worker.stop()
    before = picture(tmp_path)
    with pytest.raises(StoreInUse, match="in use by another process"):
        opened(tmp_path)
    with pytest.raises(StoreInUse):
        open_state(tmp_path)
    assert picture(tmp_path) == before
    first.close()
    opened(tmp_path).close()


@pytest.mark.parametrize("below", ["", "store"])
def test_a_link_to_what_is_not_mounted(tmp_path: Path, below: str) -> None:
    """It was `File exists`, and doctor saw nothing wrong."""
    link = tmp_path / "link"
    link.symlink_to(tmp_path / "disk" / "store")
    with pytest.raises(NotAStore, match=r"link is a symbolic link to .*disk/store, which is not"):
        opened(link / below)
    assert list(tmp_path.iterdir()) == [link]


def test_file_in_place_of_a_directory(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"mine")
    with pytest.raises(NotAStore, match="is no directory"):
        opened(path)
    with pytest.raises(StorageError):
        open_state(path)
    assert path.read_bytes() == b"mine"


def test_ours_stays_ours_with_other_files(tmp_path: Path) -> None:
    opened(tmp_path).close()
    (tmp_path / "notes.txt").write_text("mine")
    opened(tmp_path).close()
    assert (tmp_path / "notes.txt").read_text() == "mine"


def test_damaged_state_is_refused_and_lets_go_of_the_lock(tmp_path: Path) -> None:
    opened(tmp_path).close()
    state = (tmp_path / STATE_NAME).read_bytes()
    (tmp_path / STATE_NAME).write_bytes(state.replace(b"store", b"stole"))
    for _ in range(2):
        with pytest.raises(NotAStore, match="damaged or not ours"):
            opened(tmp_path)
        with pytest.raises(NotAStore, match="damaged or not ours"):
            open_state(tmp_path)
    (tmp_path / STATE_NAME).write_bytes(state)
    opened(tmp_path).close()


def test_damaged_page_is_refused_and_lets_go_of_the_lock(tmp_path: Path) -> None:
    made = opened(tmp_path)
    fill(made.engine, [Gtid(0, 1, n) for n in range(1, 1000)])
    made.close()
    path = tmp_path / "binlog-000000.ibb"
    data = bytearray(path.read_bytes())
    data[16384 + 200] ^= 0xFF
    path.write_bytes(data)
    for _ in range(2):
        with pytest.raises(StorageError, match="page 1 in binlog number 0"):
            opened(tmp_path)
    assert path.read_bytes() == bytes(data)


def test_a_directory_of_mariadb_that_is_refused_gets_nothing_of_ours(tmp_path: Path) -> None:
    """What makes it ours is written when it is clear that it can be opened."""
    store = damaged_stores.make(tmp_path / "store", "closed")
    for entry in list(store.iterdir()):
        if file_number(entry.name) is None:
            entry.unlink()
    DAMAGES["middle: missing"](store)
    before = damaged_stores.picture(store)
    with pytest.raises(CorruptBinlog, match="the file is missing"):
        StoreDirectory(store, damaged_stores.OPTIONS)
    assert damaged_stores.picture(store) == before
    for number in range(damaged_stores.MIDDLE):
        (store / file_name(number)).unlink()
    StoreDirectory(store, damaged_stores.OPTIONS).close()
    assert STATE_NAME in damaged_stores.picture(store)


def test_a_lost_state_is_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Leases that held files go with it: nobody should find out by a purge."""
    StoreDirectory(tmp_path, STORE).close()
    StoreDirectory(tmp_path, STORE).close()
    assert "the state was lost" not in caplog.text
    (tmp_path / "binlog-server.state").unlink()
    StoreDirectory(tmp_path, STORE).close()
    assert "users, leases, what CHANGE MASTER has said" in caplog.text


def test_a_new_store_that_has_no_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Said with what it needs, before anything is made; one that is there is served all the same."""
    others = 256 << 10  # marks, state, the lock
    needed = STORE.innodb_log_file_size + STORE.max_binlog_size + others
    room = [needed - 1]

    class Found:
        f_frsize = 1

        @property
        def f_bavail(self) -> int:
            return room[0]

    monkeypatch.setattr(os, "statvfs", lambda path: Found())
    path = tmp_path / "new"
    with pytest.raises(DiskFull, match=f"begins with {needed} bytes .* and {needed - 1} are free"):
        StoreDirectory(path, STORE, patient=True)
    assert [p.name for p in path.iterdir()] == [LOCK_NAME]
    room[0] = needed
    StoreDirectory(path, STORE, patient=True).close()
    room[0] = 0
    StoreDirectory(path, STORE, patient=True).close()


# --- stores of traditional files ---


def test_one_whose_making_was_ended_at_its_first_file(tmp_path: Path) -> None:
    (tmp_path / LOCK_NAME).touch()
    (tmp_path / "binlog.index.new").touch()
    traditional(tmp_path).close()
    assert (tmp_path / "binlog.index").exists()
    assert not (tmp_path / "binlog.index.new").exists()


def test_an_index_of_others_that_waits_for_its_name_is_left(tmp_path: Path) -> None:
    (tmp_path / "theirs.index.new").write_bytes(b"./theirs.000001\n")
    with pytest.raises(NotAStore, match=r"it holds 'theirs\.index\.new'"):
        traditional(tmp_path)


def traditional(
    path: Path, log_bin: str | None = None, engine: str | None = TRADITIONAL
) -> StoreDirectory:
    return StoreDirectory(path, STORE, WantedStore(engine, log_bin))


def test_new_traditional_directory(tmp_path: Path) -> None:
    directory = traditional(tmp_path, "mariadb-bin")
    assert isinstance(directory.engine, ClassicEngine)
    directory.state.set("fact", 1)
    fill(directory.engine, [Gtid(0, 1, 1)])
    directory.close()
    assert {"mariadb-bin.index", "mariadb-bin.000001"} < {p.name for p in tmp_path.iterdir()}
    for again in (opened, traditional, lambda path: traditional(path, "mariadb-bin")):
        directory = again(tmp_path)  # what is there says what it is
        assert str(directory.engine.binlog_state()) == "0-1-1"
        assert directory.state.get("fact") == 1
        directory.close()


def test_files_of_a_mariadb_alone_are_taken(tmp_path: Path) -> None:
    made = traditional(tmp_path)
    fill(made.engine, [Gtid(0, 1, n) for n in range(1, 10)])
    made.close()
    for path in tmp_path.iterdir():
        if path.is_file() and not path.name.startswith("binlog."):
            path.unlink()
    for name in ("binlog.000001.idx", "binlog.state", "binlog.~rec~"):
        (tmp_path / name).touch()
    adopted = opened(tmp_path)
    assert str(adopted.engine.binlog_state()) == "0-1-9"
    adopted.close()


def test_an_option_that_says_something_else(tmp_path: Path) -> None:
    """Nothing is touched."""
    opened(tmp_path / "innodb").close()
    traditional(tmp_path / "files", "one").close()
    both = tmp_path / "both"
    traditional(both).close()
    (both / file_name(0)).touch()
    two = tmp_path / "two"
    traditional(two, "one").close()
    (two / "other.index").touch()
    before = picture(tmp_path)
    for open_it, path, told in (
        (traditional, "innodb", 'is an .ibb store, and binlog_storage_engine="" asks for'),
        (lambda p: traditional(p, engine=INNODB), "files", "holds traditional binlog files"),
        (lambda p: traditional(p, "other"), "files", "log_bin=other is none of them"),
        (opened, "both", "two binlogs"),
        (opened, "two", "holds the binlog of 'one' and 'other': say which is meant"),
    ):
        with pytest.raises(NotAStore, match=told):
            open_it(tmp_path / path)
    assert picture(tmp_path) == before
    traditional(two, "one").close()


def test_what_was_changed_while_no_server_ran(tmp_path: Path) -> None:
    made = traditional(tmp_path)
    made.state.update({"account/a": 1, "account/b": 2})
    made.close()
    for change in ({"account/a": None, "account/c": 3}, {"account/c": 4}):
        facts, disk = open_state(tmp_path)
        assert facts.get("account/b") == 2
        facts.update(change)
        disk.close()
    made = opened(tmp_path)
    assert made.state.items("account/") == [("account/b", 2), ("account/c", 4)]
    made.close()
    facts, disk = open_state(tmp_path)
    assert facts.items("account/") == [("account/b", 2), ("account/c", 4)]
    disk.close()
