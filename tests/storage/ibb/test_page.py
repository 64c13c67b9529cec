"""Pages and their checksum, against an independent CRC-32C."""

from __future__ import annotations

from collections.abc import Callable

import crcmod.predefined
import google_crc32c
import pytest
from binlog_storage.errors import CorruptBinlog
from binlog_storage.ibb import page as module
from binlog_storage.ibb.page import (
    PAGE_END,
    PAGE_SIZE,
    ZERO_PAGE,
    check,
    is_sound,
    seal,
    sound_run_plainly,
)
from hypothesis import given
from hypothesis import strategies as st

crc32c: Callable[[bytes], int] = crcmod.predefined.mkCrcFun("crc-32c")


def test_the_checksum_is_castagnoli() -> None:
    assert crc32c(b"123456789") == 0xE3069283
    assert google_crc32c.value(b"123456789") == 0xE3069283
    assert crc32c(bytes(PAGE_END)) == 0xDD9E4F5A


@given(st.binary(max_size=300))
def test_the_two_checksums_agree(data: bytes) -> None:
    assert google_crc32c.value(data) == crc32c(data)


@given(st.binary(max_size=200), st.integers(0, PAGE_END - 200))
def test_seal(data: bytes, at: int) -> None:
    page = bytearray(PAGE_SIZE)
    page[at : at + len(data)] = data
    sealed = seal(page)
    assert len(sealed) == PAGE_SIZE
    assert sealed[PAGE_END:] == crc32c(sealed[:PAGE_END]).to_bytes(4, "little")
    assert is_sound(sealed)


def test_a_page_that_was_never_written_is_sound() -> None:
    assert is_sound(ZERO_PAGE)
    assert not is_sound(bytes(PAGE_SIZE - 1) + b"\x01")
    assert not is_sound(b"\x01" + bytes(PAGE_SIZE - 1))


def test_an_empty_page_with_its_checksum_is_sound() -> None:
    assert seal(bytearray(PAGE_SIZE))[PAGE_END:] == bytes.fromhex("5a 4f 9e dd")
    assert is_sound(seal(bytearray(PAGE_SIZE)))


@pytest.mark.parametrize(
    "bit", [0, 7, 8 * 5000 + 3, 8 * PAGE_END - 1, 8 * PAGE_END, 8 * PAGE_SIZE - 1]
)
def test_one_flipped_bit(bit: int) -> None:
    page = bytearray(seal(bytearray(b"\x41\x05\x00\x00dddd" + bytes(PAGE_SIZE - 8))))
    check(bytes(page), 3, 4)
    page[bit // 8] ^= 1 << bit % 8
    with pytest.raises(
        CorruptBinlog, match=r"page 4 in binlog number 3 .*binlog-000003\.ibb"
    ) as info:
        check(bytes(page), 3, 4)
    error = info.value
    assert (error.file_no, error.page_no, error.offset) == (3, 4, 4 * PAGE_SIZE)
    assert error.evidence == bytes(page[:16])


SOUND = seal(bytearray(b"\x41\x05\x00\x00dddd" + bytes(PAGE_SIZE - 8)))
EMPTY = seal(bytearray(PAGE_SIZE))
WRONG = SOUND[:-1] + b"?"
RUNS = [
    (b"", 0),
    (SOUND[:-1], 0),
    (SOUND, 1),
    (SOUND + EMPTY + SOUND[:100], 2),
    (SOUND + ZERO_PAGE + SOUND, 1),
    (ZERO_PAGE + SOUND, 0),
    (SOUND * 3 + WRONG + SOUND, 3),
    (WRONG, 0),
    (SOUND * 17, 17),
]


@pytest.mark.parametrize("run", [module.sound_run, sound_run_plainly])
@pytest.mark.parametrize(("data", "count"), RUNS)
def test_a_run_of_sound_pages(run: Callable[[bytes], list[bytes]], data: bytes, count: int) -> None:
    assert run(data) == [data[n * PAGE_SIZE : (n + 1) * PAGE_SIZE] for n in range(count)]


def test_a_run_is_of_bytes() -> None:
    for given_data in (bytearray(SOUND), None):
        with pytest.raises(TypeError):
            module.sound_run(given_data)  # type: ignore[arg-type]
