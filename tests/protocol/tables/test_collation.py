"""Keys of text; tests/integration/rows/test_tables.py asks servers for the order of random text."""

from __future__ import annotations

import pytest
from binlog_protocol.errors import BadValue
from binlog_protocol.tables.collation import beginning, collation_key, is_comparable
from hypothesis import given
from hypothesis import strategies as st

LATIN1, LATIN1_BIN, UTF8MB4, UTF8MB4_BIN, NO_PAD, NO_PAD_BIN, BINARY = 8, 47, 45, 46, 1069, 1070, 63
UTF16, UCS2, UCA1400, UNICODE = 54, 35, 2304, 224

ORDERS = [  # smaller or equal, one behind the other
    (UTF8MB4, ["", "=", "  ", "<", "a", "=", "A ", "=", "\u00e4", "<", "a a", "<", "aB", "=", "\u00e0b"]),
    (UTF8MB4, ["\u00e0b", "<", "\u00df", "=", "s"]),
    (UTF8MB4, ["a\t", "<", "a", "<", "a!", "<", "a0"]),
    (UTF8MB4, ["\U0001f600", "=", "\U0001f601", "=", "\ufffd"]),
    (UTF8MB4_BIN, ["A", "<", "a", "=", "a ", "<", "a\u00e9", "<", "\uffff", "<", "\U0001f600", "<", "\U0001f601"]),
    (LATIN1, ["a", "=", "\u00c3", "<", "b", "<", "z", "<", "\u00e5", "<", "\u00e4", "=", "\u00c6", "<", "\u00f6"]),
    (LATIN1, ["\u00f6", "<", "\u00df"]),
    (LATIN1_BIN, ["Z", "<", "a", "=", "a  ", "<", "a a", "<", "\u00e4"]),
    (NO_PAD, ["", "<", "a", "=", "A", "<", "a\t", "<", "a ", "<", "b"]),
    (NO_PAD_BIN, ["a", "<", "a\0", "<", "a\0\0", "<", "a "]),
    (UTF16, ["a", "=", "A ", "<", "b"]),
    (UCA1400, ["", "=", " ", "=", "\u0301", "<", "-", "<", "%", "=", "\uff05", "<", "0", "<", "a\t"]),
    (UCA1400, ["a\t", "<", "a", "=", "\u00c4 "]),
    (UCA1400, ["a", "<", "\u00df", "=", "sS", "=", "s\u00ads", "<", "z"]),
    (UCA1400, ["\u0418", "<", "\u0418\u0306", "=", "\u0439", "<", "\u041a"]),  # a contraction
    (UCA1400, ["\u4e00", "<", "\u3400", "<", "\ue000", "<", "\U0010ffff"]),  # weights that are computed
]  # fmt: skip


@pytest.mark.parametrize(("collation", "order"), ORDERS)
def test_order(collation: int, order: list[str]) -> None:
    codec = {UTF16: "utf-16-be", LATIN1: "latin-1", LATIN1_BIN: "latin-1"}.get(collation, "utf-8")
    keys = [collation_key(text.encode(codec), collation) for text in order[::2]]
    for sign, one, other in zip(order[1::2], keys, keys[1:], strict=False):
        assert one < other if sign == "<" else one == other, (one, other)


def test_binary_keys() -> None:
    order = [b"", b"\0", b"\0\0", b"\0\1", b"\1", b"a", b"a\0", b"a ", b"\xff"]
    keys = [collation_key(raw, BINARY) for raw in order]
    assert keys == sorted(set(keys))


@given(st.lists(st.text(" !\t0aA\u00e4\x1f\0", max_size=5), min_size=2, max_size=2))
def test_as_with_spaces_added(texts: list[str]) -> None:
    width = max(map(len, texts))
    one, other = ("".join(text).ljust(width).encode() for text in texts)
    keys = [collation_key(text.encode(), UTF8MB4_BIN) for text in texts]
    assert (keys[0] < keys[1], keys[0] == keys[1]) == (one < other, one == other)
    assert not (keys[0] != keys[1] and keys[1].startswith(keys[0]))


def test_what_is_not_known() -> None:
    assert not any(map(is_comparable, (UCA1400 + 1, UNICODE, UCS2, 48, 28, 2000)))
    with pytest.raises(BadValue):
        collation_key(b"a", UNICODE)
    with pytest.raises(BadValue):
        collation_key(b"\xff", UTF8MB4)


def test_beginning() -> None:
    assert beginning("\u00e4bc".encode(), UTF8MB4, 2) == "\u00e4b".encode()
    assert beginning(b"abc", BINARY, 2) == b"ab"
    assert beginning("\u00e4bc".encode("utf-16-be"), UTF16, 2) == "\u00e4b".encode("utf-16-be")
