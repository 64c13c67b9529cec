"""Compressed integers: each size of the encoding, and round trips."""

from __future__ import annotations

import pytest
from binlog_storage.ibb import compressed_int
from hypothesis import given
from hypothesis import strategies as st

TABLE = [
    (0, "00"),
    (1, "08"),
    (31, "f8"),
    (32, "01 01"),
    (246, "b1 07"),
    (8191, "f9 ff"),
    (8192, "02 00 01"),
    (54090, "52 9a 06"),
    (16384, "02 00 02"),
    (2097151, "fa ff ff"),
    (2097152, "03 00 00 01"),
    (2**29 - 1, "fb ff ff ff"),
    (2**29, "04 00 00 00 01"),
    (2**32 - 1, "fc ff ff ff 07"),
    (2**53 - 1, "fe ff ff ff ff ff ff"),
    (2**53, "07 00 00 00 00 00 00 01 00"),
    (2**64 - 1, "ff ff ff ff ff ff ff ff 07"),
]

# bytes: largest value
LARGEST = [
    (1, 0x1F),
    (2, 0x1FFF),
    (3, 0x1FFFFF),
    (4, 0x1FFFFFFF),
    (5, 0x1FFFFFFFFF),
    (6, 0x1FFFFFFFFFFF),
    (7, 0x1FFFFFFFFFFFFF),
    (9, 0xFFFFFFFFFFFFFFFF),
]


@pytest.mark.parametrize(("value", "text"), TABLE)
def test_table(value: int, text: str) -> None:
    data = bytes.fromhex(text)
    assert compressed_int.encode(value) == data
    assert compressed_int.decode(data, 0) == (value, len(data))


@pytest.mark.parametrize(("length", "largest"), LARGEST)
def test_limits(length: int, largest: int) -> None:
    assert len(compressed_int.encode(largest)) == length
    if length < 9:
        assert len(compressed_int.encode(largest + 1)) == (length + 1 if length < 7 else 9)


@given(value=st.integers(0, 2**64 - 1), before=st.binary(max_size=5), after=st.binary(max_size=5))
def test_round_trip(value: int, before: bytes, after: bytes) -> None:
    data = compressed_int.encode(value)
    found, end = compressed_int.decode(before + data + after, len(before))
    assert (found, end) == (value, len(before) + len(data))


@given(value=st.integers(0, 2**64 - 1))
def test_every_cut_is_short(value: int) -> None:
    data = compressed_int.encode(value)
    for size in range(len(data)):
        with pytest.raises(compressed_int.ShortChunk):
            compressed_int.decode(data[:size], 0)


@given(value=st.integers(0, 2**53 - 1), code=st.sampled_from([1, 2, 3, 4, 5, 6, 7]))
def test_longer_forms_are_read(value: int, code: int) -> None:
    length = 9 if code == 7 else code + 1
    if value < 2 ** (8 * length - 3):
        data = (value << 3 | code).to_bytes(length, "little")
        assert compressed_int.decode(data, 0) == (value, length)


def test_bits_above_64_are_dropped() -> None:
    assert compressed_int.decode(b"\xff" * 9, 0) == (2**64 - 1, 9)
