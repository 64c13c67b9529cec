from __future__ import annotations

from collections.abc import Callable

import pytest
from binlog_protocol.errors import ProtocolError
from binlog_protocol.values import Cursor, lenenc_bytes, lenenc_int, nul_terminated
from hypothesis import given
from hypothesis import strategies as st


@pytest.mark.parametrize(
    ("value", "size"),
    [
        (0, 1),
        (250, 1),
        (251, 3),
        (0xFFFF, 3),
        (0x10000, 4),
        (0xFFFFFF, 4),
        (0x1000000, 9),
        (2**64 - 1, 9),
    ],
)
def test_lenenc_int_sizes(value: int, size: int) -> None:
    assert len(lenenc_int(value)) == size
    assert Cursor(lenenc_int(value), "test").lenenc_int() == value


@given(st.integers(0, 2**64 - 1), st.binary(max_size=5))
def test_lenenc_int_round_trip(value: int, tail: bytes) -> None:
    cursor = Cursor(lenenc_int(value) + tail, "test")
    assert cursor.lenenc_int() == value
    assert cursor.rest() == tail


@given(st.binary(max_size=700))
def test_lenenc_bytes_round_trip(value: bytes) -> None:
    cursor = Cursor(lenenc_bytes(value), "test")
    assert cursor.lenenc_bytes() == value
    assert cursor.remaining == 0


@pytest.mark.parametrize(
    "data", [b"", b"\xfb", b"\xff", b"\xfc\x01", b"\xfd\x01\x02", b"\xfe1234567"]
)
def test_lenenc_int_refused(data: bytes) -> None:
    with pytest.raises(ProtocolError):
        Cursor(data, "test").lenenc_int()


def test_reads_that_run_short() -> None:
    reads: list[Callable[[Cursor], object]] = [
        lambda cursor: cursor.take(4),
        lambda cursor: cursor.integer(4),
        lambda cursor: cursor.skip(4),
        lambda cursor: cursor.nul_terminated(),
        lambda cursor: cursor.short_bytes(),
        lambda cursor: cursor.lenenc_bytes(),
    ]
    for read in reads:
        with pytest.raises(ProtocolError):
            read(Cursor(b"\x03ab", "test"))


def test_null_is_told_from_text() -> None:
    cursor = Cursor(b"\xfb\x00\x02hi", "test")
    assert cursor.lenenc_bytes_or_null() is None
    assert cursor.lenenc_bytes_or_null() == b""
    assert cursor.lenenc_bytes_or_null() == b"hi"


def test_nul_terminated() -> None:
    cursor = Cursor(nul_terminated(b"ab") + nul_terminated(b"") + b"c", "test")
    assert (cursor.nul_terminated(), cursor.nul_terminated(), cursor.rest()) == (b"ab", b"", b"c")
    with pytest.raises(ValueError):
        nul_terminated(b"a\0b")
