"""Names of collations and their numbers: what SET NAMES and SET collation_connection say, and QUERY events log.

Per character set its default collation first, then the usual others; each name begins with that of the set. As 10.11
has them (asked from it; tests/integration/test_sql_commit.py asks again). The default of utf8mb4 is general_ci, as
before 11.x: uca1400 is not known to replicas in front of 10.10.
"""

from __future__ import annotations

from typing import Final

from binlog_protocol.events.charsets import charset_of

_SUFFIXES: Final[dict[str, dict[str, int]]] = {
    "big5": {"chinese_ci": 1, "bin": 84},
    "latin2": {"general_ci": 9, "bin": 77},
    "dec8": {"swedish_ci": 3, "bin": 69},
    "cp850": {"general_ci": 4, "bin": 80},
    "latin1": {"swedish_ci": 8, "bin": 47, "general_ci": 48},
    "hp8": {"english_ci": 6, "bin": 72},
    "koi8r": {"general_ci": 7, "bin": 74},
    "swe7": {"swedish_ci": 10, "bin": 82},
    "ascii": {"general_ci": 11, "bin": 65},
    "ujis": {"japanese_ci": 12, "bin": 91},
    "sjis": {"japanese_ci": 13, "bin": 88},
    "cp1251": {"general_ci": 51, "bin": 50},
    "hebrew": {"general_ci": 16, "bin": 71},
    "tis620": {"thai_ci": 18, "bin": 89},
    "euckr": {"korean_ci": 19, "bin": 85},
    "latin7": {"general_ci": 41, "bin": 79},
    "koi8u": {"general_ci": 22, "bin": 75},
    "gb2312": {"chinese_ci": 24, "bin": 86},
    "greek": {"general_ci": 25, "bin": 70},
    "cp1250": {"general_ci": 26, "bin": 66},
    "gbk": {"chinese_ci": 28, "bin": 87},
    "cp1257": {"general_ci": 59, "bin": 58},
    "latin5": {"turkish_ci": 30, "bin": 78},
    "armscii8": {"general_ci": 32, "bin": 64},
    "utf8mb3": {"general_ci": 33, "bin": 83, "unicode_ci": 192, "unicode_520_ci": 214, "uca1400_ai_ci": 2048},
    "ucs2": {"general_ci": 35, "bin": 90, "unicode_ci": 128, "unicode_520_ci": 150},
    "cp866": {"general_ci": 36, "bin": 68},
    "keybcs2": {"general_ci": 37, "bin": 73},
    "macce": {"general_ci": 38, "bin": 43},
    "macroman": {"general_ci": 39, "bin": 53},
    "cp852": {"general_ci": 40, "bin": 81},
    "utf8mb4": {"general_ci": 45, "bin": 46, "unicode_ci": 224, "unicode_520_ci": 246, "uca1400_ai_ci": 2304},
    "utf16": {"general_ci": 54, "bin": 55, "unicode_ci": 101, "unicode_520_ci": 123},
    "utf16le": {"general_ci": 56, "bin": 62},
    "cp1256": {"general_ci": 57, "bin": 67},
    "utf32": {"general_ci": 60, "bin": 61, "unicode_ci": 160, "unicode_520_ci": 182},
    "binary": {"": 63},
    "geostd8": {"general_ci": 92, "bin": 93},
    "cp932": {"japanese_ci": 95, "bin": 96},
    "eucjpms": {"japanese_ci": 97, "bin": 98},
}  # fmt: skip
_ALIASES: Final = {"utf8": "utf8mb3"}
# ASCII has more than one byte in them: no server takes statements in them.
_NOT_FOR_CLIENTS: Final = frozenset({"ucs2", "utf16", "utf16le", "utf32"})

NUMBERS: Final[dict[str, int]] = {
    f"{charset}_{suffix}" if suffix else charset: number
    for charset, suffixes in _SUFFIXES.items()
    for suffix, number in suffixes.items()
}
# What MySQL 8 clients ask for, and the nearest that every replica knows.
_NEAREST: Final = {"utf8mb4_0900_ai_ci": 246}
_NAMES: Final = {number: name for name, number in NUMBERS.items()}


def charset_named(name: str) -> str | None:
    """The character set of that name, in any case; also by the number of one of its collations."""
    if name.isdecimal() and len(name) < 6:
        return charset_of(int(name))
    lower = name.lower()
    lower = _ALIASES.get(lower, lower)
    return lower if lower in _SUFFIXES else None


def default_collation(charset: str) -> int:
    """The number of the collation that a character set has unless told otherwise. KeyError for no character set."""
    return next(iter(_SUFFIXES[charset].values()))


def collation_numbered(name: str) -> int | None:
    """The number of a collation given by name, in any case, or by number; None for one that is not known here."""
    if name.isdecimal() and len(name) < 6:
        return int(name) if charset_of(int(name)) else None
    lower = name.lower()
    for alias, charset in _ALIASES.items():
        if lower.startswith(alias + "_"):
            lower = charset + lower.removeprefix(alias)
    return NUMBERS.get(lower) or _NEAREST.get(lower)


def collation_name(number: int) -> str:
    """The name of a collation, or its number if it is unknown here."""
    return _NAMES.get(number, str(number))


def is_client_charset(charset: str) -> bool:
    """Whether a client may send statements in it."""
    return charset not in _NOT_FOR_CLIENTS
