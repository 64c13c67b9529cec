"""The bytes of the redo log, field by field."""

from __future__ import annotations

import google_crc32c
import pytest
from binlog_storage.ibb.chunk import Position
from binlog_storage.ibb.page import PAGE_SIZE
from binlog_storage.redo import format as redo_format
from binlog_storage.redo.format import (
    BLOCK,
    KIND_WRITE,
    WRITE_HEAD,
    Begun,
    Checkpoint,
    Cut,
    Flushed,
    LogHeader,
    MiniTransaction,
    Placed,
    RedoFormatError,
    RedoRecord,
    Tables,
    TablesFrom,
    Unlogged,
    Write,
    build_mtr,
    frame_mtr,
    parse_records,
    placed_record,
    tables_record,
)

HEADER = LogHeader(bytes(range(16)), 0x1122334455667788)
PLACED = Checkpoint(7, 0x01020304, 0x1111111111111111, Position(3, 0x2222222222222222))
EMPTY = Checkpoint(8, 5, 6, None)


def u(value: int, size: int) -> bytes:
    return value.to_bytes(size, "little")


def crc(data: bytes) -> bytes:
    return u(google_crc32c.value(data), 4)


# name: (block, offset, bytes there)
FIELDS = {
    "header magic": (HEADER.build(), 0, b"binlog redo 1\r\n\0"),
    "header uuid": (HEADER.build(), 16, bytes(range(16))),
    "header capacity": (HEADER.build(), 32, u(0x1122334455667788, 8)),
    "header crc": (HEADER.build(), 40, crc(HEADER.build()[:40])),
    "header rest": (HEADER.build(), 44, bytes(BLOCK - 44)),
    "checkpoint magic": (PLACED.build(), 0, b"redo ckp"),
    "checkpoint number": (PLACED.build(), 8, u(7, 8)),
    "checkpoint epoch": (PLACED.build(), 16, u(0x01020304, 4)),
    "checkpoint placed": (PLACED.build(), 20, u(1, 4)),
    "checkpoint lsn": (PLACED.build(), 24, u(0x1111111111111111, 8)),
    "checkpoint file": (PLACED.build(), 32, u(3, 8)),
    "checkpoint offset": (PLACED.build(), 40, u(0x2222222222222222, 8)),
    "checkpoint crc": (PLACED.build(), 48, crc(PLACED.build()[:48])),
    "checkpoint rest": (PLACED.build(), 52, bytes(BLOCK - 52)),
    "checkpoint not placed": (EMPTY.build(), 20, u(0, 4)),
    "mtr magic": (build_mtr(9, 77, b"body"), 0, b"\xb1\x06mt"),
    "mtr epoch": (build_mtr(9, 77, b"body"), 4, u(9, 4)),
    "mtr lsn": (build_mtr(9, 77, b"body"), 8, u(77, 8)),
    "mtr size": (build_mtr(9, 77, b"body"), 16, u(28, 4)),
    "mtr body": (build_mtr(9, 77, b"body"), 20, b"body"),
    "mtr crc": (build_mtr(9, 77, b"body"), 24, crc(build_mtr(9, 77, b"body")[:24])),
}


@pytest.mark.parametrize("name", FIELDS)
def test_fields(name: str) -> None:
    block, at, expected = FIELDS[name]
    assert block[at : at + len(expected)] == expected


def test_sizes() -> None:
    assert len(HEADER.build()) == len(PLACED.build()) == BLOCK == 4096
    assert redo_format.RING_AT == 3 * BLOCK
    assert len(build_mtr(1, 1, b"")) == redo_format.MTR_OVERHEAD == 24
    assert [PLACED.at, EMPTY.at] == [BLOCK, 2 * BLOCK]


def test_round_trips() -> None:
    assert LogHeader.parse(HEADER.build()) == HEADER
    for checkpoint in (PLACED, EMPTY):
        assert Checkpoint.parse(checkpoint.build()) == checkpoint


def test_a_flipped_header() -> None:
    for at in range(44):
        block = bytearray(HEADER.build())
        block[at] ^= 1
        words = "does not begin as a redo log" if at < 16 else "checksum of its header"
        with pytest.raises(RedoFormatError, match=words):
            LogHeader.parse(bytes(block))


def test_a_flipped_checkpoint() -> None:
    for at in range(52):
        block = bytearray(PLACED.build())
        block[at] ^= 0x80
        assert Checkpoint.parse(bytes(block)) is None, at


@pytest.mark.parametrize("size", [0, 7, 16, 43])
def test_short_blocks(size: int) -> None:
    with pytest.raises(RedoFormatError):
        LogHeader.parse(HEADER.build()[:size])
    assert Checkpoint.parse(PLACED.build()[:size]) is None


RECORDS: dict[str, tuple[str, RedoRecord]] = {
    "write": ("10 04030201 0605 0300 616263", Write(0, 0x01020304, 0x0506, b"abc")),
    "write, odd": ("11 01000000 0000 0100 7a", Write(1, 1, 0, b"z")),
    "cut": ("20 05000000", Cut(0, 5)),
    "cut, odd": ("21 05000000", Cut(1, 5)),
    "flushed": ("30 0807060504030201", Flushed(0x0102030405060708)),
    "unlogged": (
        "40 04030201 08070605 03 83 0c0b0a09",
        Unlogged(0, 0x01020304, 0x05060708, 0x03, 0x83, 0x090A0B0C),
    ),
    "unlogged, odd": ("41 02000000 01000000 83 83 00000000", Unlogged(1, 2, 1, 0x83, 0x83, 0)),
}


@pytest.mark.parametrize("name", RECORDS)
def test_records(name: str) -> None:
    text, expected = RECORDS[name]
    data = bytes.fromhex(text)
    assert list(parse_records(data)) == [expected]
    assert list(parse_records(data * 3)) == [expected] * 3
    for size in range(1, len(data)):
        with pytest.raises(RedoFormatError):
            list(parse_records(data[:size]))


def test_no_records() -> None:
    assert list(parse_records(b"")) == []


WRONG = {
    "kind 0": "00",
    "an unknown kind": "70 00000000",
    "no unlogged page": "40 02000000 00000000 03 83 00000000",
    "an empty write": "10 01000000 0000 0000",
    "a write behind the page": f"10 01000000 {u(PAGE_SIZE - 1, 2).hex()} 0200 6162",
    "a second record that is cut": "20 05000000 10 0100",
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_records(name: str) -> None:
    with pytest.raises(RedoFormatError):
        list(parse_records(bytes.fromhex(WRONG[name])))


def test_a_write_to_the_end_of_the_page() -> None:
    data = bytes.fromhex(f"10 01000000 {u(PAGE_SIZE - 2, 2).hex()} 0200 6162")
    assert list(parse_records(data)) == [Write(0, 1, PAGE_SIZE - 2, b"ab")]


def test_a_mini_transaction_in_pieces() -> None:
    records = (b"one", b"", bytes(70_000), b"last")
    assert b"".join(frame_mtr(9, 77, records)) == build_mtr(9, 77, b"".join(records))


def test_a_checkpoint_with_tables() -> None:
    plain = Checkpoint(3, 2, 5000, Position(1, 16384))
    tables = Checkpoint(3, 2, 5000, Position(1, 16384), TablesFrom(4711, 1, 9))
    assert plain.build()[:8] == b"redo ckp"
    assert tables.build()[:8] == b"redo ck2"
    assert tables.build()[8:48] == plain.build()[8:48]
    assert Checkpoint.parse(tables.build()) == tables
    assert (plain.begin, tables.begin) == ((5000, 2), (4711, 1))
    for at in range(64):
        torn = bytearray(tables.build())
        torn[at] ^= 1
        assert Checkpoint.parse(bytes(torn)) is None


def test_records_of_tables() -> None:
    record = tables_record(b"any bytes")
    write = WRITE_HEAD.pack(KIND_WRITE, 1, 0, 2) + b"ab"
    assert list(parse_records(write + record)) == [Write(0, 1, 0, b"ab"), Tables(b"any bytes")]
    assert list(parse_records(bytes.fromhex("60 07000000"))) == [Begun(7)]
    for wrong in (record + b"x", record[:-1], record[:3]):
        with pytest.raises(RedoFormatError):
            list(parse_records(wrong))


def test_what_is_behind_a_place_of_a_traditional_binlog() -> None:
    place = Position(3, 1 << 40)
    mtr = MiniTransaction(0, 0, placed_record(place) + tables_record(b"rows"))
    assert mtr.place == place
    assert list(mtr.records()) == [Placed(place), Tables(b"rows")]
    assert MiniTransaction(0, 0, tables_record(b"rows")).place is None
