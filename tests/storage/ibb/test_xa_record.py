"""XA records: the examples of the format's description, every way to be too short, and round trips."""

from __future__ import annotations

import pytest
from binlog_storage.ibb import xa
from binlog_storage.ibb.chunk import Position
from binlog_storage.ibb.commit import OobList
from binlog_storage.ibb.xa import XaComplete, XaPrepare, Xid
from hypothesis import given
from hypothesis import strategies as st

A = Xid(1, b"a")
THREE = OobList(3, Position(0, 16389), Position(0, 16413))

PREPARED = [
    (XaPrepare(1, A, THREE), "01 01 00 00 00 01 00 61 18 00 2a 00 02 00 ea 00 02"),
    (XaPrepare(2, Xid(0, b"", b"xy"), None), "02 00 00 00 00 00 02 78 79 00 00 00 00 00"),
]
COMPLETED = [
    (XaComplete(A, rolled_back=False), "00 01 00 00 00 01 00 61"),
    (XaComplete(A, rolled_back=True), "01 01 00 00 00 01 00 61"),
    (XaComplete(Xid(2**32 - 1, b"g", b"b"), rolled_back=True), "01 ff ff ff ff 01 01 67 62"),
]


@pytest.mark.parametrize(("value", "text"), PREPARED)
def test_prepare_examples(value: XaPrepare, text: str) -> None:
    assert xa.encode_prepare(value).hex(" ") == text
    assert xa.decode_prepare(bytes.fromhex(text)) == value


@pytest.mark.parametrize(("value", "text"), COMPLETED)
def test_complete_examples(value: XaComplete, text: str) -> None:
    assert xa.encode_complete(value).hex(" ") == text
    assert xa.decode_complete(bytes.fromhex(text)) == value


def test_an_older_writer_names_no_list() -> None:
    assert xa.decode_prepare(bytes.fromhex("01 01 00 00 00 01 00 61")) == XaPrepare(1, A, None)


def test_too_short_at_every_byte() -> None:
    whole = xa.encode_prepare(PREPARED[0][0])
    for size in range(len(whole)):
        if size == 8:
            continue  # that is the older form
        with pytest.raises(ValueError, match="Short chunk"):
            xa.decode_prepare(whole[:size])
    whole = xa.encode_complete(COMPLETED[2][0])
    for size in range(len(whole)):
        with pytest.raises(ValueError, match="Short chunk"):
            xa.decode_complete(whole[:size])


@pytest.mark.parametrize("sizes", [(65, 0), (0, 65), (255, 255)])
def test_names_that_are_too_long(sizes: tuple[int, int]) -> None:
    data = bytes((1, 0, 0, 0, 0, *sizes)) + bytes(sum(sizes))
    with pytest.raises(ValueError, match="XID with parts of"):
        xa.decode_complete(data)


def test_how_a_name_is_printed() -> None:
    assert str(Xid(7, b"ab", b"\xff")) == "X'6162',X'ff',7"


parts = st.binary(max_size=64)
xids = st.builds(Xid, st.integers(0, 2**32 - 1), parts, parts)
places = st.builds(Position, st.integers(0, 2**64 - 1), st.integers(0, 2**64 - 1))
lists = st.one_of(st.none(), st.builds(OobList, st.integers(1, 2**64 - 1), places, places))


@given(st.integers(0, 255), xids, lists)
def test_prepare_round_trip(engines: int, xid: Xid, oob: OobList | None) -> None:
    prepare = XaPrepare(engines, xid, oob)
    assert xa.decode_prepare(xa.encode_prepare(prepare)) == prepare


@given(xids, st.booleans())
def test_complete_round_trip(xid: Xid, rolled_back: bool) -> None:
    complete = XaComplete(xid, rolled_back)
    assert xa.decode_complete(xa.encode_complete(complete)) == complete
