"""Writes that go on with a page: in C and in Python, and beside what takes one mini-transaction after the other."""

from __future__ import annotations

import random
from typing import Any

import pytest
from binlog_storage.binlog.options import StoreOptions
from binlog_storage.binlog.store import IbbEngine
from binlog_storage.ibb.page import PAGE_SIZE
from binlog_storage.redo.format import (
    CUT,
    FLUSHED,
    KIND_CUT,
    KIND_FLUSHED,
    KIND_WRITE,
    WRITE_HEAD,
    Write,
    build_mtr,
    parse_records,
    tables_record,
)
from binlog_storage.redo.take_writes import TakeWrites, take_writes, take_writes_plainly
from binlog_storage.testing.memory_disk import MemoryDisk
from hypothesis import given
from hypothesis import strategies as st

from tests.storage.groups import append_all, settle, simple

EPOCH = 3
LSN = 4096
PAGE = 5
AT = 100
TWINS: list[Any] = [pytest.param(take_writes_plainly, id="python")]
try:
    from binlog_storage.ibb import _speedups
except ImportError:
    pass
else:
    TWINS.append(pytest.param(_speedups.take_writes, id="C"))


def write(offset: int, data: bytes, *, parity: int = 1, page: int = PAGE) -> bytes:
    return WRITE_HEAD.pack(KIND_WRITE | parity, page, offset, len(data)) + data


def note(lsn: int) -> bytes:
    return FLUSHED.pack(KIND_FLUSHED, lsn)


def log_of(*bodies: bytes, epoch: int = EPOCH, lsn: int = LSN) -> bytes:
    log = b""
    for body in bodies:
        log += build_mtr(epoch, lsn + len(log), body)
    return log


def taken(take: TakeWrites, log: bytes, at: int = AT) -> tuple[int, int, int, bytes]:
    page = bytearray(b"\xee" * PAGE_SIZE)
    found = take(log, 0, len(log), LSN, EPOCH, 1, PAGE, at, page)
    assert take(log, 0, len(log), LSN, EPOCH, 1, PAGE, at, None) == found
    return *found, bytes(page)


FIRST = (
    write(AT, b"abc"),
    write(AT + 3, b"de") + write(AT + 5, b"f"),
    note(LSN + 7),
    write(AT + 6, b"g"),
    note(LSN),
)


@pytest.mark.parametrize("take", TWINS)
def test_all_that_goes_on(take: TakeWrites) -> None:
    log = log_of(*FIRST)
    at, offset, told, page = taken(take, log)
    assert (at, offset, told) == (len(log), AT + 7, LSN + 7)
    assert page == b"\xee" * AT + b"abcdefg" + b"\xee" * (PAGE_SIZE - AT - 7)
    assert taken(take, b"")[:3] == (0, AT, 0)


OTHERS = {
    "another page": write(AT + 7, b"x", page=PAGE + 1),
    "a page anew": write(0, b"x" * 200),
    "a hole": write(AT + 8, b"x"),
    "a part again": write(AT + 6, b"x"),
    "another file": write(AT + 7, b"x", parity=0),
    "nothing": write(AT + 7, b""),
    "behind the page": write(AT + 7, bytes(PAGE_SIZE - AT - 6)),
    "a cut": CUT.pack(KIND_CUT | 1, PAGE + 1),
    "rows": tables_record(b"x"),
    "a write and rows": write(AT + 7, b"x") + tables_record(b"x"),
    "a write and a note": write(AT + 7, b"x") + note(9),
    "two notes": note(9) + note(10),
    "half a record": write(AT + 7, b"xyz")[:-1],
    "half a head": write(AT + 7, b"x") + write(AT + 8, b"x")[:5],
    "a note that is too short": note(9)[:-1],
    "another kind": b"\xf0" * 12,
}


@pytest.mark.parametrize("take", TWINS)
@pytest.mark.parametrize("name", OTHERS)
def test_it_stops_in_front_of_anything_else(take: TakeWrites, name: str) -> None:
    log = log_of(*FIRST)
    later = log_of(OTHERS[name], write(AT + 7, b"x"), lsn=LSN + len(log))
    assert taken(take, log + later)[:3] == (len(log), AT + 7, LSN + 7)


@pytest.mark.parametrize("take", TWINS)
@pytest.mark.parametrize("wrong", ["epoch", "lsn", "crc", "magic", "size"])
def test_it_stops_in_front_of_what_is_not_of_this_log(take: TakeWrites, wrong: str) -> None:
    log, body = log_of(*FIRST), write(AT + 7, b"x" * 50)
    there = LSN + len(log)
    later = bytearray(log_of(body, epoch=EPOCH + (wrong == "epoch"), lsn=there + (wrong == "lsn")))
    at = {"crc": -1, "magic": 0, "size": 18}.get(wrong)
    if at is not None:
        later[at] ^= 1
    assert taken(take, log + later)[:3] == (len(log), AT + 7, LSN + 7)


@pytest.mark.parametrize("take", TWINS)
def test_it_stops_where_it_is_told(take: TakeWrites) -> None:
    log = log_of(*FIRST)
    second = len(log_of(FIRST[0]))
    third = len(log_of(*FIRST[:2]))
    for stop in range(len(log) + 1):
        at, offset, _ = take(log, second, stop, LSN + second, EPOCH, 1, PAGE, AT + 3, None)
        assert (at, offset) == ((second, AT + 3) if stop < third else (at, offset))
        assert at <= max(stop, second)


@pytest.mark.skipif(len(TWINS) < 2, reason="there is no twin in C")
def test_places_outside_are_refused_by_c() -> None:
    for at, stop, offset, page in (
        (-1, 0, 1, None),
        (0, 1, 1, None),
        (0, 0, PAGE_SIZE + 1, None),
        (0, 0, 1, bytearray(9)),
    ):
        with pytest.raises(IndexError):
            _speedups.take_writes(b"", at, stop, LSN, EPOCH, 1, PAGE, offset, page)
    with pytest.raises((TypeError, BufferError)):
        _speedups.take_writes(b"", 0, 0, LSN, EPOCH, 1, PAGE, 1, bytes(PAGE_SIZE))  # type: ignore[arg-type]


records = st.one_of(
    st.builds(
        write, st.sampled_from([0, AT, AT + 1, AT + 2, PAGE_SIZE - 1]), st.binary(max_size=3)
    ),
    st.builds(note, st.integers(0, 2**64 - 1)),
    st.sampled_from(list(OTHERS.values())),
    st.binary(min_size=1, max_size=12),
)


@pytest.mark.skipif(len(TWINS) < 2, reason="there is no twin in C")
@given(
    st.lists(st.lists(records, min_size=1, max_size=3).map(b"".join), max_size=4),
    st.randoms(use_true_random=False),
)
def test_the_twins_are_equal(bodies: list[bytes], rng: random.Random) -> None:
    log = bytearray(log_of(*bodies))
    if log and rng.random() < 0.3:
        log[rng.randrange(len(log))] ^= 1 << rng.randrange(8)
    assert taken(take_writes_plainly, bytes(log)) == taken(_speedups.take_writes, bytes(log))


@given(st.lists(st.binary(min_size=1, max_size=40), max_size=6))
def test_the_page_is_that_of_the_records(pieces: list[bytes]) -> None:
    bodies, at = [], AT
    for piece in pieces:
        bodies.append(write(at, piece))
        at += len(piece)
    expected = bytearray(b"\xee" * PAGE_SIZE)
    for body in bodies:
        for record in parse_records(body):
            assert isinstance(record, Write)
            expected[record.offset : record.offset + len(record.data)] = record.data
    for twin in TWINS:
        assert taken(twin.values[0], log_of(*bodies))[3] == bytes(expected)


def test_a_recovery_is_the_same_without_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pages of many groups, notes of syncs between them, several files; it takes most of the log."""
    options = StoreOptions(8 * PAGE_SIZE, 2 * PAGE_SIZE, innodb_log_file_size=1 << 20)
    disk = MemoryDisk()
    engine = IbbEngine(disk, options)
    append_all(engine, simple(5, size=300))
    engine.checkpoint()
    for first in range(6, 600, 33):
        append_all(engine, simple(33, first=first, size=300))
        engine.sync()
    settle(engine)
    disk.kill()
    killed = disk.contents()
    found = []
    counts = []
    for take in (take_writes, lambda window, at, *rest: (at, rest[5], 0)):
        count = 0

        def counted(window: bytes, at: int, *rest: Any, take: Any = take) -> Any:
            nonlocal count
            behind = take(window, at, *rest)
            count += behind[0] - at
            return behind

        monkeypatch.setattr("binlog_storage.binlog.replay.take_writes", counted)
        again = MemoryDisk(killed)
        opened = IbbEngine(again, options)
        found.append(
            (
                opened.written_end,
                str(opened.binlog_state()),
                {n: d for n, d in again.contents().items() if n.endswith(".ibb")},
            )
        )
        opened.close()
        counts.append(count)
    assert found[0] == found[1]
    assert counts[0] > 100_000
    assert counts[1] == 0
