"""What counts as a change that needs no parser, in Python and in C."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from binlog_protocol.limits import PACKET_PAYLOAD_MAX
from binlog_protocol.wire.plain_changes import is_plain_change, is_plain_change_plainly
from hypothesis import given
from hypothesis import strategies as st

by_twins = pytest.mark.parametrize("is_plain", [is_plain_change_plainly, is_plain_change])


def query(text: bytes, *, seq: int = 0, command: int = 3, size: int | None = None) -> bytes:
    size = 1 + len(text) if size is None else size
    return size.to_bytes(3, "little") + bytes((seq, command)) + text


INSERT = b"INSERT INTO t VALUES (1)"
TAIL = 16 * 1024


@by_twins
@pytest.mark.parametrize(
    "text",
    [
        INSERT,
        b"insert into t values (1)",
        b"UPDATE t SET a = 'returned'",
        b"DELETE FROM t",
        b"delete from t where a=1",
        b"INSERT t VALUES ('\xff\x80\0')",
        b"INSERT ,",
        b"INSERT INTO t SELECT 'RETURNING' -- " + b"-" * TAIL,  # too far from the end
    ],
    ids=lambda text: text[:30].decode("latin-1"),
)
def test_plain(is_plain: Callable[[bytes], bool], text: bytes) -> None:
    assert is_plain(query(text))
    assert is_plain(bytearray(query(text)))  # type: ignore[arg-type]


@by_twins
@pytest.mark.parametrize(
    "data",
    [
        b"",
        *(query(INSERT)[:n] for n in range(len(query(INSERT)))),  # byte by byte
        query(INSERT) + b"x",
        query(INSERT, seq=1),
        query(INSERT, command=0x16),
        query(INSERT, size=len(INSERT)),
        query(b"Insert INTO t VALUES (1)"),
        query(b"INSERT\tINTO t VALUES (1)"),
        query(b" INSERT INTO t VALUES (1)"),
        query(b"REPLACE INTO t VALUES (1)"),
        query(INSERT + b" "),
        query(INSERT + b"\n"),
        query(INSERT + b"\0"),
        query(b"INSERT "),
        query(INSERT + b"; SELECT 1"),
        query(b"INSERT INTO t VALUES (@a)"),
        query(b"INSERT INTO t VALUES (1 /* a */)"),
        query(INSERT + b" RETURNING id"),
        query(INSERT + b" rEtUrNiNg id"),
        query(b"DELETE FROM `returning` WHERE a = 1"),
        query(INSERT + b" RETURNING" + b"-" * (TAIL - 9)),
    ],
)
def test_not_plain(is_plain: Callable[[bytes], bool], data: bytes) -> None:
    assert not is_plain(data)


@by_twins
@pytest.mark.parametrize("extra", [0, -1])
def test_a_packet_that_goes_on_is_not_whole(is_plain: Callable[[bytes], bool], extra: int) -> None:
    text = INSERT.ljust(PACKET_PAYLOAD_MAX - 1 + extra, b"x")
    assert is_plain(query(text)) is (extra < 0)


_WORDS = st.sampled_from(
    [b"INSERT ", b"update ", b"DELETE ", b"RETURNING", b"returnin", b"x", b" "]
)
_TEXTS = st.lists(_WORDS | st.binary(max_size=3), max_size=8).map(b"".join)


@given(_TEXTS, st.integers(0, 1), st.sampled_from([3, 3, 3, 0x17]), st.sampled_from([0, 0, 1, -1]))
def test_the_twins_are_equal(text: bytes, seq: int, command: int, off: int) -> None:
    data = query(text, seq=seq, command=command, size=max(0, 1 + len(text) + off))
    for given_data in (data, text, data[3:]):
        assert is_plain_change(given_data) == is_plain_change_plainly(given_data)
