"""The enumeration itself: on traces so short that all states can be written down."""

from __future__ import annotations

import random

import pytest
from binlog_storage.testing.memory_disk import SECTOR_BYTES, MemoryDisk

from tests.storage.crash.recorder import RecordingDisk
from tests.storage.crash.states import crash_points, crash_states
from tests.storage.crash.variants import Limits

S = SECTOR_BYTES
ALL = Limits(per_file=1 << 20, per_other=1 << 10, per_point=1 << 20)


def left(disk: RecordingDisk, limits: Limits = ALL) -> set[tuple[tuple[str, bytes], ...]]:
    rng = random.Random(1)
    return {tuple(sorted(s.files.items())) for s in crash_states(disk, limits, rng)}


def with_file(data: bytes) -> RecordingDisk:
    return RecordingDisk(MemoryDisk({"a": data}))


def contents_left(disk: RecordingDisk, limits: Limits = ALL) -> set[bytes]:
    return {dict(files)["a"] for files in left(disk, limits)}


def test_a_write_is_there_in_any_sectors() -> None:
    disk = with_file(b"0" * 3 * S)
    disk.open("a").pwrite(b"1" * 3 * S, 0)
    wanted = {
        b"".join((b"1" if bits >> n & 1 else b"0") * S for n in range(3)) for bits in range(8)
    }
    assert contents_left(disk) == wanted


def test_sectors_are_those_of_the_disk() -> None:
    disk = with_file(b"0" * 2 * S)
    disk.open("a").pwrite(b"1" * S, 100)
    whole = b"0" * 100 + b"1" * S + b"0" * (S - 100)
    first = b"0" * 100 + b"1" * (S - 100) + b"0" * S
    second = b"0" * S + b"1" * 100 + b"0" * (S - 100)
    assert contents_left(disk) == {b"0" * 2 * S, whole, first, second}


def test_length_and_data_are_independent() -> None:
    disk = with_file(b"")
    disk.open("a").pwrite(b"1" * 2 * S, 0)
    half, none = b"1" * S, b"0" * S
    zeros = bytes(S)
    assert contents_left(disk) == {
        b"",
        half,
        2 * half,
        half + zeros,
        zeros + half,
        2 * zeros,
    }
    assert none not in contents_left(disk)


def test_any_of_two_writes() -> None:
    disk = with_file(b"....")
    file = disk.open("a")
    file.pwrite(b"A", 0)
    file.pwrite(b"B", 2)
    assert contents_left(disk) == {b"....", b"A...", b"..B.", b"A.B."}
    assert contents_left(disk, Limits(reorder=False)) == {b"....", b"A...", b"A.B."}


def test_what_was_synced_stays() -> None:
    disk = with_file(b"....")
    file = disk.open("a")
    file.pwrite(b"A", 0)
    file.fdatasync()
    file.pwrite(b"B", 2)
    last = list(crash_points(disk, ALL, random.Random(1)))[-1]
    assert {state.files["a"] for state in last} == {b"A...", b"A.B."}
    assert contents_left(disk) == {b"....", b"A...", b"A.B."}


def test_a_length_that_was_set_may_be_forgotten() -> None:
    disk = with_file(b"abcd")
    disk.open("a").truncate(2)
    assert contents_left(disk) == {b"abcd", b"ab"}


def test_names_in_order_or_in_any_order() -> None:
    disk = RecordingDisk(MemoryDisk({"old": b"1"}))
    disk.open("new", create=True)
    disk.unlink("old")
    names = {tuple(name for name, _ in files) for files in left(disk)}
    assert names == {("old",), ("new", "old"), ("new",)}
    names = {tuple(name for name, _ in files) for files in left(disk, Limits(any_names=True))}
    assert names == {("old",), ("new", "old"), ("new",), ()}


def test_a_name_without_its_data() -> None:
    """What a rename without an fdatasync before it risks."""
    disk = RecordingDisk(MemoryDisk({"a": b"old"}))
    disk.open("a.new", create=True).pwrite(b"new", 0)
    disk.rename("a.new", "a")
    disk.fsync_dir()
    last = list(crash_points(disk, ALL, random.Random(1)))[-1]
    assert {tuple(state.files.items()) for state in last} == {
        (("a", b"new"),),
        (("a", b""),),
        (("a", bytes(3)),),
    }


@pytest.mark.long
def test_many_writes_stay_within_the_limits() -> None:
    disk = with_file(bytes(100 * S))
    file = disk.open("a")
    for number in range(100):
        file.pwrite(b"x" * S, number * S)
    limits = Limits()
    for states in crash_points(disk, limits, random.Random(1)):
        assert len(states) <= limits.per_file
    last = [s.files["a"] for s in states]
    assert last[0] == b"x" * 100 * S
    assert len({data.count(b"x") for data in last}) > 10
