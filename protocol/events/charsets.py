"""Character sets: from the collation number that a table map or a statement carries to text.

===============  ============================================================================
numbers          character set
===============  ============================================================================
1 .. 1023        one by one, table below
1024 .. 2047     the NO PAD variant of number - 1024
2048 .. 3327     UCA 14.0.0, 256 each for utf8mb3, utf8mb4, ucs2, utf16, utf32
===============  ============================================================================

Learnt from information_schema of 10.11 and 11.8. Where MariaDB's mapping of a byte differs from that of the Python
codec, MariaDB's is taken (asked from 11.8 byte by byte; tests/integration/rows asks again). The private-use
area of ujis and eucjpms is left undecoded. No Python codec knows dec8, swe7, armscii8, geostd8 and keybcs2.
"""

from __future__ import annotations

import codecs
import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

BINARY_COLLATION: Final = 63

_NO_PAD_FIRST: Final = 1024
_UCA14_FIRST: Final = 2048
_UCA14_BLOCK: Final = 256
_UCA14_SETS: Final = ("utf8mb3", "utf8mb4", "ucs2", "utf16", "utf32")

_COLLATIONS: Final[dict[str, tuple[int | tuple[int, int], ...]]] = {
    "big5": (1, 84),
    "latin2": (2, 9, 21, 27, 77),
    "dec8": (3, 69),
    "cp850": (4, 80),
    "latin1": (5, 8, 15, 31, (47, 49), 94),
    "hp8": (6, 72),
    "koi8r": (7, 74),
    "swe7": (10, 82),
    "ascii": (11, 65),
    "ujis": (12, 91),
    "sjis": (13, 88),
    "cp1251": (14, 23, (50, 52)),
    "hebrew": (16, 71),
    "tis620": (18, 89),
    "euckr": (19, 85),
    "latin7": (20, 41, 42, 79),
    "koi8u": (22, 75),
    "gb2312": (24, 86),
    "greek": (25, 70),
    "cp1250": (26, 34, 44, 66, 99),
    "gbk": (28, 87),
    "cp1257": (29, 58, 59),
    "latin5": (30, 78),
    "armscii8": (32, 64),
    "utf8mb3": (33, 83, (192, 215), 223, (576, 579)),
    "ucs2": (35, 90, (128, 151), 159, (640, 642)),
    "cp866": (36, 68),
    "keybcs2": (37, 73),
    "macce": (38, 43),
    "macroman": (39, 53),
    "cp852": (40, 81),
    "utf8mb4": (45, 46, (224, 247), (255, 271), (273, 275), (277, 294), (296, 298), 300, 305, 309, (608, 611)),
    "utf16": (54, 55, (101, 124), (672, 674)),
    "utf16le": (56, 62),
    "cp1256": (57, 67),
    "utf32": (60, 61, (160, 183), (736, 738)),
    "binary": (63,),
    "geostd8": (92, 93),
    "cp932": (95, 96),
    "eucjpms": (97, 98),
}  # fmt: skip

# One byte, one character: the Python codec, then what MariaDB has instead (None: no character).
_SINGLE_BYTE: Final[dict[str, tuple[str, dict[int, str | None]]]] = {
    "latin1": ("cp1252", {b: chr(b) for b in (0x81, 0x8D, 0x8F, 0x90, 0x9D)}),
    "latin2": ("iso8859-2", {}),
    "latin5": ("iso8859-9", {}),
    "latin7": ("iso8859-13", {}),
    "greek": ("iso8859-7", {0xA1: "\u02bd", 0xA2: "\u02bc", 0xA4: None, 0xA5: None, 0xAA: None}),
    "hebrew": ("iso8859-8", {0xAF: "\u203e"}),
    "cp1250": ("cp1250", {}),
    "cp1251": ("cp1251", {}),
    "cp1256": ("cp1256", dict.fromkeys((0x8A, 0x8F, 0x98, 0x9A, 0x9F, 0xAA, 0xC0, 0xFF))),
    "cp1257": ("cp1257", {}),
    "cp850": ("cp850", {}),
    "cp852": ("cp852", {}),
    "cp866": ("cp866", {0xFC: "\u207f", 0xFD: "\u00b2"}),
    "koi8r": ("koi8-r", {}),
    "koi8u": ("koi8-u", {0x95: "\u2022"}),
    "macce": ("mac-latin2", {}),
    "macroman": ("mac-roman", {}),
    "tis620": ("tis-620", {}),
    "hp8": ("hp-roman8", {}),
    "ascii": ("ascii", {}),
}
_MULTI_BYTE: Final = {
    "utf8mb3": "utf-8",
    "utf8mb4": "utf-8",
    "ucs2": "utf-16-be",
    "utf16": "utf-16-be",
    "utf16le": "utf-16-le",
    "utf32": "utf-32-be",
    "big5": "big5",
    "ujis": "euc_jp",
    "eucjpms": "euc_jp",
    "sjis": "shift_jis",
    "cp932": "cp932",
    "euckr": "cp949",
    "gb2312": "gb2312",
    "gbk": "gbk",
}
# Characters of the Python codec, and MariaDB's.
_FULL_BACKSLASH: Final = str.maketrans("\uff3c", "\\")
_INSTEAD: Final = {
    "eucjpms": str.maketrans(
        "\u301c\u2016\u2212\u00a2\u00a3\u00ac", "\uff5e\u2225\uff0d\uffe0\uffe1\uffe2"
    ),
    "sjis": _FULL_BACKSLASH,
    "ujis": _FULL_BACKSLASH,
}
_UNDEFINED: Final = "\ufffe"  # what `codecs.charmap_decode` takes for "no character"


def _by_id() -> dict[int, str]:
    found: dict[int, str] = {}
    for name, entries in _COLLATIONS.items():
        for entry in entries:
            first, last = entry if isinstance(entry, tuple) else (entry, entry)
            found.update(dict.fromkeys(range(first, last + 1), name))
    return found


_CHARSETS: Final = _by_id()
assert max(_CHARSETS) < _NO_PAD_FIRST


@dataclass(frozen=True, slots=True)
class UndecodedText:
    """Text as the bytes it is logged as: no codec here for its character set, or the bytes are not valid in it."""

    raw: bytes
    collation: int


def charset_of(collation: int) -> str | None:
    """The name of the character set of a collation number; None for one that is not known here."""
    if collation < _NO_PAD_FIRST:
        return _CHARSETS.get(collation)
    if collation < _UCA14_FIRST:
        return _CHARSETS.get(collation - _NO_PAD_FIRST)
    block = (collation - _UCA14_FIRST) // _UCA14_BLOCK
    return _UCA14_SETS[block] if block < len(_UCA14_SETS) else None


def decode_text(raw: bytes, collation: int) -> str | UndecodedText:
    """`raw` as text of a collation that is not binary."""
    decode = _decoder(charset_of(collation))
    if decode is not None:
        try:
            return decode(raw)
        except UnicodeDecodeError:
            pass
    return UndecodedText(raw, collation)


def replaced_text(raw: bytes, collation: int) -> str:
    """`raw` as text, with U+FFFD for what is none; without a codec for every byte that is not ASCII."""
    decode = _decoder(charset_of(collation), "replace")
    return raw.decode("ascii", "replace") if decode is None else decode(raw)


@functools.cache
def _decoder(charset: str | None, errors: str = "strict") -> Callable[[bytes], str] | None:
    if charset in _SINGLE_BYTE:
        table = _single_byte_table(*_SINGLE_BYTE[charset])
        return lambda raw: codecs.charmap_decode(raw, errors, table)[0]
    codec = _MULTI_BYTE.get(charset or "")
    if codec is None:
        return None
    instead = _INSTEAD.get(charset or "")
    if instead is not None:
        return lambda raw: raw.decode(codec, errors).translate(instead)
    # A ucs2 column may hold the halves of surrogate pairs, alone too.
    handler = "surrogatepass" if charset == "ucs2" and errors == "strict" else errors
    return lambda raw: raw.decode(codec, handler)


def _single_byte_table(codec: str, instead: dict[int, str | None]) -> str:
    characters = []
    for byte in range(256):
        character: str | None
        if byte in instead:
            character = instead[byte]
        else:
            try:
                character = bytes((byte,)).decode(codec)
            except UnicodeDecodeError:
                character = None
        characters.append(character or _UNDEFINED)
    return "".join(characters)
