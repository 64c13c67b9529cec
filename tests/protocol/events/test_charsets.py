"""Character sets, as far as no server is needed; tests/integration/rows/test_charsets.py has all of their codes."""

from __future__ import annotations

import pytest
from binlog_protocol.events.charsets import decode_text, encode_text, twice_coded
from binlog_protocol.events.collation_names import default_collation


@pytest.mark.parametrize(
    ("charset", "some"),
    [
        ("sjis", {"\\": ("5c", "815f")}),
        ("ujis", {"\\": ("5c", "a1c0"), "~": ("7e", "8fa2b7")}),
        ("cp932", {"\u222a": ("81be", "879c"), "\uffe2": ("81ca", "eef9", "fa54")}),
        ("eucjpms", {"\u222a": ("a2c0", "adfc")}),
        ("armscii8", {"(": ("28", "a5"), "'": ("27", "ff")}),
    ],
)
def test_characters_with_two_codes(charset: str, some: dict[str, tuple[str, ...]]) -> None:
    collation = default_collation(charset)
    for character, codes in some.items():
        assert {decode_text(bytes.fromhex(code), collation) for code in codes} == {character}
    assert {*some} <= twice_coded(charset)
    assert twice_coded(charset).isdisjoint("aZ0 ")
    assert all(encode_text(one, collation) for one in twice_coded(charset))


@pytest.mark.parametrize(
    "charset", ["utf8mb4", "ucs2", "latin1", "swe7", "gbk", "big5", "euckr", "binary", None]
)
def test_sets_with_one_code_for_each(charset: str | None) -> None:
    assert not twice_coded(charset)
