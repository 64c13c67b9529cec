"""Commit records: the headers of spec 5.1, and malformed ones."""

from __future__ import annotations

import pytest
from binlog_storage.ibb import commit
from binlog_storage.ibb.chunk import Position
from binlog_storage.ibb.commit import CommitRecord, OobList
from hypothesis import given
from hypothesis import strategies as st

ONE = OobList(3, Position(0, 16389), Position(0, 16413))
TWO = (
    OobList(2, Position(0, 16389), Position(0, 16400)),
    OobList(3, Position(0, 20000), Position(1, 16500)),
)
ONE_TEXT = "18 00 2a 00 02 00 ea 00 02 00"
TWO_TEXT = "10 00 2a 00 02 00 82 00 02 18 00 02 71 02 08 a2 03 02"


def test_no_list() -> None:
    assert commit.encode(b"GTID") == b"\0GTID"
    assert commit.decode(b"\0GTID") == CommitRecord((), b"GTID")
    assert commit.decode(b"\0") == CommitRecord((), b"")


def test_one_list() -> None:
    body = bytes.fromhex(ONE_TEXT) + b"<GTID>"
    assert commit.encode(b"<GTID>", ONE) == body
    assert commit.decode(body) == CommitRecord((ONE,), b"<GTID>")


def test_two_lists() -> None:
    assert commit.decode(bytes.fromhex(TWO_TEXT) + b"<GTID>") == CommitRecord(TWO, b"<GTID>")


@pytest.mark.parametrize("text", [ONE_TEXT, TWO_TEXT])
def test_every_cut_is_short(text: str) -> None:
    header = bytes.fromhex(text)
    for size in range(len(header)):
        if text == TWO_TEXT and size == 0:
            continue
        with pytest.raises(ValueError, match="Short chunk"):
            commit.decode(header[:size])


def test_an_empty_record_is_short() -> None:
    with pytest.raises(ValueError, match="Short chunk"):
        commit.decode(b"")


places = st.builds(Position, st.integers(0, 2**21), st.integers(1, 2**32 - 1))
lists = st.builds(OobList, st.integers(1, 2**21), places, places)


@given(st.none() | lists, st.binary(max_size=50))
def test_round_trip(oob: OobList | None, payload: bytes) -> None:
    body = commit.encode(payload, *([] if oob is None else [oob]))
    assert commit.decode(body) == CommitRecord(() if oob is None else (oob,), payload)
    assert len(body) - len(payload) <= commit.HEADER_BYTES_MAX


@given(st.binary(max_size=60))
def test_any_bytes(data: bytes) -> None:
    try:
        record = commit.decode(data)
    except ValueError:
        return
    assert data.endswith(record.payload)
    assert len(record.lists) <= 2
