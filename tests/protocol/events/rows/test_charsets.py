"""Text that is none goes as whole characters; tests/integration/rows asks a server about each character."""

from __future__ import annotations

import pytest
from binlog_protocol.events.charsets import UndecodedText, decode_text, replaced_text
from hypothesis import given
from hypothesis import strategies as st

BIG5, SJIS, GBK, EUCKR, EUCJPMS, UJIS = 1, 13, 28, 19, 97, 12
DEC8, SWE7, ARMSCII8, GEOSTD8, KEYBCS2 = 3, 10, 32, 92, 37

TEXTS = [
    ("ada1adb5adea8ff4fb", EUCJPMS, "\u2460\u2160\u3231\u9ad9"),
    ("8fa2b78fa2c37e", EUCJPMS, "\uff5e\uffe4~"),
    ("8fa2b77e", UJIS, "~~"),
    ("f5a1fefe8ff5a18ffefe", EUCJPMS, "\ue000\ue3ab\ue3ac\ue757"),
    ("f9d6f9dc41", BIG5, "\u7881\u5afaA"),
    ("e9a8d7", DEC8, "\u00e9\u00a4\u0152"),
    ("5b40", SWE7, "\u00c4\u00c9"),
    ("b2b3fdfe", ARMSCII8, "\u0531\u0561\u0586\u2019"),
    ("c080", GEOSTD8, "\u10d0\u20ac"),
    ("a087", KEYBCS2, "\u00e1\u010d"),
]


@pytest.mark.parametrize(("raw", "collation", "text"), TEXTS)
def test_text(raw: str, collation: int, text: str) -> None:
    assert decode_text(bytes.fromhex(raw), collation) == text
    assert replaced_text(bytes.fromhex(raw), collation) == text


# Between two characters one that there is not, whose second byte could begin another.
BAD = [
    ("a4a2a9fea4a4", EUCJPMS, "\u3042\ufffd\u3044"),
    ("a4a2a9fea4a4", UJIS, "\u3042\ufffd\u3044"),
    ("a4a28fa1a1a4a4", UJIS, "\u3042\ufffd\u3044"),
    ("a4a2a9", EUCJPMS, "\u3042\ufffd"),
    ("a4a2a941", EUCJPMS, "\u3042\ufffdA"),
    ("a4a28fa2", EUCJPMS, "\u3042\ufffd"),
    ("82a085a282a2", SJIS, "\u3042\ufffd\u3044"),
    ("a440a0a1a440", BIG5, "\u4e00\ufffd\u4e00"),
    ("b0a1aaa1b0a1", GBK, "\u554a\ufffd\u554a"),
    ("b0a1c9a1b0a1", EUCKR, "\uac00\ufffd\uac00"),
    ("61a4", DEC8, "a\ufffd"),
]


@pytest.mark.parametrize(("raw", "collation", "text"), BAD)
def test_a_bad_character_goes_as_a_whole(raw: str, collation: int, text: str) -> None:
    assert replaced_text(bytes.fromhex(raw), collation) == text
    assert decode_text(bytes.fromhex(raw), collation) == UndecodedText(
        bytes.fromhex(raw), collation
    )


@given(
    st.binary(max_size=40), st.sampled_from([BIG5, SJIS, GBK, EUCKR, EUCJPMS, UJIS, 24, 95, DEC8])
)
def test_any_bytes(raw: bytes, collation: int) -> None:
    text = decode_text(raw, collation)
    replaced = replaced_text(raw, collation)
    assert text == replaced if isinstance(text, str) else "\ufffd" in replaced
