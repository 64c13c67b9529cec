"""The store of small facts: atomic whatever happens, and honest about files that are not its own."""

from __future__ import annotations

import random
import threading
from pathlib import Path
from typing import Any

import google_crc32c
import pytest
from binlog_storage.disk.disk import OsDisk
from binlog_storage.disk.state import STATE_NAME, StateStore
from binlog_storage.errors import DiskError, NotAStore, StorageError
from binlog_storage.testing.memory_disk import MemoryDisk

from tests.storage.vectors import file_bytes, write_file


def everything(store: StateStore) -> dict[str, Any]:
    return dict(store.items(""))


def test_values() -> None:
    disk = MemoryDisk()
    store = StateStore(disk)
    assert disk.names() == [], "nothing is written before there is something"
    assert store.get("server_uuid") is None
    assert store.get("server_uuid", "x") == "x"
    store.set("server_uuid", "0a-1b")
    store.update({"user.anna": {"host": "%", "grants": [1, 2]}, "user.ben": True, "n": 2**63})
    store.update({"server_uuid": None, "user.anna": {"host": "é"}})
    for found in (store, StateStore(disk)):
        assert everything(found) == {"n": 2**63, "user.anna": {"host": "é"}, "user.ben": True}
        assert found.items("user.") == [("user.anna", {"host": "é"}), ("user.ben", True)]
        assert found.get("server_uuid") is None


@pytest.mark.parametrize("way", ["kill", "cut", "torn"])
def test_atomic_at_every_operation(way: str, rng: random.Random) -> None:
    """Five updates of two keys that must agree; stopped at each operation in turn."""
    stop = 0
    while True:
        stop += 1
        disk = MemoryDisk()
        disk.fail_at = stop
        done = 0
        try:
            store = StateStore(disk)
            for number in range(1, 6):
                store.update({"a": number, "b": [number] * 50 * number})
                done = number
        except DiskError:
            pass
        finished = done == 5
        disk.kill() if way == "kill" else disk.crash(rng if way == "torn" else None)
        again = StateStore(disk)
        number = again.get("a", 0)
        assert number in (done, done + 1)
        assert again.get("b", []) == [number] * 50 * number
        again.set("c", "goes on")
        assert everything(StateStore(disk)) == everything(again)
        if finished:
            return


def test_a_failed_update_changes_nothing() -> None:
    disk = MemoryDisk()
    store = StateStore(disk)
    store.set("a", 1)
    disk.fail_at = disk.operations + 1
    with pytest.raises(DiskError):
        store.set("a", 2)
    assert store.get("a") == 1
    disk.fail_at = None
    store.set("b", 2)
    assert everything(StateStore(disk)) == {"a": 1, "b": 2}


def damaged_files() -> list[Any]:
    disk = MemoryDisk()
    StateStore(disk).update({"server_uuid": "0a-1b", "user.anna": 1})
    good = file_bytes(disk, STATE_NAME)
    return [
        pytest.param(b"", id="empty"),
        pytest.param(good[:-1], id="cut"),
        pytest.param(good[:30], id="cut in the first line"),
        pytest.param(good + b" ", id="longer"),
        pytest.param(good.replace(b"0a-1b", b"0a-1c"), id="changed"),
        pytest.param(bytes(len(good)), id="zeros"),
        pytest.param(b"\xff\xfe" * 100, id="other"),
        pytest.param(good.replace(b"state 1", b"state 2"), id="of a later version"),
        pytest.param(b"{}", id="no first line"),
    ]


@pytest.mark.parametrize("data", damaged_files())
def test_damaged_files_are_refused_and_left_alone(data: bytes) -> None:
    disk = MemoryDisk()
    write_file(disk, STATE_NAME, data)
    with pytest.raises(NotAStore, match=STATE_NAME):
        StateStore(disk)
    assert disk.names() == [STATE_NAME]
    assert file_bytes(disk, STATE_NAME) == data


def test_every_flipped_bit_is_seen() -> None:
    disk = MemoryDisk()
    StateStore(disk).set("k", "v")
    good = file_bytes(disk, STATE_NAME)
    for bit in range(8 * len(good)):
        data = bytearray(good)
        data[bit // 8] ^= 1 << bit % 8
        other = MemoryDisk()
        write_file(other, STATE_NAME, bytes(data))
        with pytest.raises(NotAStore):
            StateStore(other)


@pytest.mark.parametrize("body", [b"[1]", b"null", b"3", b"not json", b"\xff"])
def test_a_body_that_is_no_object(body: bytes) -> None:
    disk = MemoryDisk()
    head = f"binlog-server state 1 {google_crc32c.value(body):08x}\n".encode()
    write_file(disk, STATE_NAME, head + body)
    with pytest.raises(StorageError, match=STATE_NAME):
        StateStore(disk)


def test_leftovers_of_a_crash_do_no_harm() -> None:
    disk = MemoryDisk()
    write_file(disk, STATE_NAME + ".new", b"half of it")
    store = StateStore(disk)
    store.set("a", 1)
    assert disk.names() == [STATE_NAME]
    assert everything(StateStore(disk)) == {"a": 1}


def test_many_threads(tmp_path: Path) -> None:
    store = StateStore(OsDisk(tmp_path))
    torn: list[object] = []

    def write(name: int) -> None:
        for number in range(15):
            store.update({f"{name}.a": number, f"{name}.b": number})

    def read() -> None:
        for _ in range(300):
            pairs = everything(store)
            torn.extend(n for n in range(3) if pairs.get(f"{n}.a") != pairs.get(f"{n}.b"))

    threads = [threading.Thread(target=write, args=(name,)) for name in range(3)]
    threads += [threading.Thread(target=read) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert not torn
    expected = {f"{name}.{key}": 14 for name in range(3) for key in "ab"}
    assert everything(store) == everything(StateStore(OsDisk(tmp_path))) == expected
