"""Character sets: from the collation number that a table map or a statement carries to text.

===============  ============================================================================
numbers          character set
===============  ============================================================================
1 .. 1023        one by one, table below
1024 .. 2047     the NO PAD variant of number - 1024
2048 .. 3327     UCA 14.0.0, 256 each for utf8mb3, utf8mb4, ucs2, utf16, utf32
===============  ============================================================================

Learnt from information_schema of 10.11 and 11.8. Where MariaDB's mapping differs from that of the Python codec, it is
taken, both ways (each character of each set was asked from both; tests/integration/rows asks again).

Where text is replaced as far as it is none, a bad character goes as a whole: none of its bytes is taken for the
beginning of another one.
"""

from __future__ import annotations

import codecs
import contextlib
import functools
from collections import Counter
from collections.abc import Callable
from typing import Final

from binlog_protocol.dataclass import dataclass
from binlog_protocol.errors import BadValue

BINARY_COLLATION: Final = 63
UTF8_CHARSETS: Final = frozenset(("utf8mb3", "utf8mb4"))
"""Those of which the bytes of a text are UTF-8."""


def _from(first: int, characters: str) -> dict[int, str | None]:
    """Bytes from `first` on."""
    return dict(enumerate(characters, first))


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
    "dec8": (
        "latin-1",
        {
            **dict.fromkeys(
                (0xA4, 0xA6, *range(0xAC, 0xB0), 0xB4, 0xB8, 0xBE, 0xD0, 0xDE, 0xF0, 0xFE, 0xFF)
            ),
            0xA8: "\u00a4",
            0xD7: "\u0152",
            0xDD: "\u0178",
            0xF7: "\u0153",
            0xFD: "\u00ff",
        },
    ),
    "swe7": ("ascii", {**dict(zip(b"@[\\]^`{|}~", "ÉÄÖÅÜéäöåü", strict=True)), 0x7F: None}),
    "armscii8": (
        "latin-1",
        _from(0xA1, "❁§\u0589)(»«—.\u055d,-\u055f…՜՛՞")
        | {0xFE: "\u2019", 0xFF: "'"}
        | {
            0xB2 + 2 * n + is_small: chr((0x561 if is_small else 0x531) + n)
            for n in range(38)
            for is_small in (False, True)
        },
    ),
    "geostd8": (
        "cp1252",
        {
            **dict.fromkeys((0x83, 0x88, 0x8A, 0x8C, 0x8E, 0x98, 0x99, 0x9A, 0x9C, 0x9E, 0x9F)),
            **_from(0xC0, "აბგდევზჱთიკლმნჲოპჟრსტჳუფქღყშჩცძწჭხჴჯჰჵ"),
            **dict.fromkeys(range(0xE6, 0x100)),
            0xFD: "\u2116",
        },
    ),
    "keybcs2": (
        "cp437",
        _from(0x80, "ČüéďäĎŤčěĚĹÍľĺÄÁÉžŽôöÓůÚýÖÜŠĽÝŘťáíóúňŇŮÔšřŕŔ¼"),
    ),
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
_BYTES_A_CHARACTER: Final = {
    "utf8mb3": 3, "utf8mb4": 4, "utf16": 4, "utf16le": 4, "utf32": 4, "ujis": 3, "eucjpms": 3, "ucs2": 2, "big5": 2,
    "sjis": 2, "cp932": 2, "euckr": 2, "gb2312": 2, "gbk": 2,
}  # fmt: skip
_SPACES: Final = {"ucs2": b"\0 ", "utf16": b"\0 ", "utf16le": b" \0", "utf32": b"\0\0\0 "}
# Characters of the Python codec, and MariaDB's.
_FULL_BACKSLASH: Final = str.maketrans("\uff3c", "\\")
_INSTEAD: Final = {
    "eucjpms": str.maketrans(
        "\u301c\u2016\u2212\u00a2\u00a3\u00ac\u00a6", "\uff5e\u2225\uff0d\uffe0\uffe1\uffe2\uffe4"
    ),
    "sjis": _FULL_BACKSLASH,
    "ujis": _FULL_BACKSLASH,
}
# What a set has beyond its Python codec, from a code on.
_MORE: Final[dict[str, dict[bytes, str]]] = {
    "big5": {b"\xf9\xd6": "碁銹裏墻恒粧嫺"},
    "eucjpms": {
        b"\xad\xa1": "①②③④⑤⑥⑦⑧⑨⑩⑪⑫⑬⑭⑮⑯⑰⑱⑲⑳ⅠⅡⅢⅣⅤⅥⅦⅧⅨⅩ",
        b"\xad\xc0": "㍉㌔㌢㍍㌘㌧㌃㌶㍑㍗㌍㌦㌣㌫㍊㌻㎜㎝㎞㎎㎏㏄㎡",
        b"\xad\xdf": "㍻〝〟№㏍℡㊤㊥㊦㊧㊨㈱㈲㈹㍾㍽㍼≒≡∫∮∑√⊥∠∟⊿∵∩\u222a",
        b"\x8f\xf3\xf3": "ⅰⅱⅲⅳⅴⅵⅶⅷⅸⅹⅠⅡ",
        b"\x8f\xf4\xa1": "ⅢⅣⅤⅥⅦⅧⅨⅩ\uff07\uff02㈱№℡炻仼僴凬匇匤\ufa0e咊坙\ufa0f\ufa10增寬峵嵓\ufa11德悅愠敎昻晥\ufa12"
        "\uf929栁\ufa13\ufa14橫櫢淸淲瀨\ufa15\ufa16甁皂皞\ufa17礰\ufa18\ufa19\ufa1a\ufa1b竧"
        "\ufa1c\ufa1d綠緖\ufa1e荢\ufa1f薰\ufa20\ufa21蠇\ufa22譿賴赶\ufa23\ufa24\ufa25郞\ufa26鄕"
        "\ufa27\ufa28閒\uf9dc\ufa29霻靍靑\ufa2a\ufa2b\ufa2c馞髙魲\ufa2d黑",
    },
}  # fmt: skip
# Codes that the Python codec has a character for, and MariaDB has none.
_NONE: Final = {
    "big5": frozenset(map(bytes.fromhex, ("a15a", "a1c3", "a1c5", "a1fe", "a240", "a2cc", "a2ce"))),
    "cp932": frozenset((b"\x80", b"\xa0", b"\xfd", b"\xfe", b"\xff")),
}
_TWICE: Final = frozenset(("armscii8", "cp932", "eucjpms", "sjis", "ujis"))
"""Sets with two codes for some characters."""
_LEAD_MIN: Final = 0x81  # the first byte of a character of two in those
_ONE_BYTE: Final = {
    *range(0xA0, 0xE0),
    0xFD,
    0xFE,
    0xFF,
}  # beyond those in front of `_LEAD_MIN`, in cp932
_IBM_EXTENSIONS: Final = (0xFA, 0xFB, 0xFC)
"""First bytes of characters of cp932 that NEC has at 0xED, too."""
_SECOND: Final = {"cp932": (0xED, 0xEE), "eucjpms": (0x8F,)}
"""First bytes of characters that MariaDB writes with others, where there are any, and Python with these."""
_EUC_USER: Final = (0xE000, 0xE3AC)  # private characters, of two bytes and of three
_EUC_USER_ROWS: Final = range(0xF5, 0xFF)
_EUC_CELLS: Final = range(0xA1, 0xFF)
_EUC_THREE: Final = 0x8F  # begins a character of three bytes
_TRAIL_MIN: Final = 0x40  # of the second byte of a character of two, in any set
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


def encode_text(text: str, collation: int) -> bytes:
    """The bytes that `decode_text` takes for `text`. Raises `BadValue` for what the character set does not have."""
    charset = charset_of(collation)
    encode = _encoder(charset)
    if encode is None:
        raise BadValue(f"text in character set {charset or collation}, which is not known here")
    try:
        return encode(text)
    except UnicodeEncodeError as error:
        raise BadValue(f"{text[error.start : error.end]!r} is no character of {charset}") from None


@functools.cache
def twice_coded(charset: str | None) -> frozenset[str]:
    """Characters that the set has two codes for, or more: which one a text was of is not to be seen in it."""
    if charset not in _TWICE:
        return frozenset()
    codes = [bytes((one,)) for one in range(256)]
    if charset in _MULTI_BYTE:
        codes += [bytes((a, b)) for a in range(_LEAD_MIN, 256) for b in range(_TRAIL_MIN, 256)]
    if charset in ("ujis", "eucjpms"):
        codes += [bytes((_EUC_THREE, a, b)) for a in _EUC_CELLS for b in _EUC_CELLS]
    decode = _decoder(charset)
    assert decode is not None
    found: Counter[str] = Counter()
    for code in codes:
        with contextlib.suppress(UnicodeDecodeError):
            found[decode(code)] += 1
    return frozenset(text for text, count in found.items() if count > 1 and len(text) == 1)


def character_bytes_max(charset: str) -> int:
    """The most bytes that a character of the set takes."""
    return _BYTES_A_CHARACTER.get(charset, 1)


def without_spaces(raw: bytes, collation: int) -> bytes:
    """Text without the spaces at its end."""
    space = space_of(collation)
    while raw.endswith(space):
        raw = raw[: -len(space)]
    return raw


def space_of(collation: int) -> bytes:
    """A space in the character set of a collation."""
    return _SPACES.get(charset_of(collation) or "", b" ")


def is_storable(text: str) -> bool:
    """Whether UTF-8 has it: not with half a surrogate pair in it, as a ucs2 column may have."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def replaced_text(raw: bytes, collation: int) -> str:
    """`raw` as text, with U+FFFD for what is none; without a codec for every byte that is not ASCII."""
    decode = _decoder(charset_of(collation), "replace")
    return raw.decode("ascii", "replace") if decode is None else decode(raw)


def _decoded(raw: bytes, charset: str, errors: str, decode: Callable[[bytes], str]) -> str:
    """Text without the codes of `_NONE`."""
    none = _NONE[charset]
    if not any(code in raw for code in none):
        return decode(raw)
    found: list[str] = []
    at = 0
    while at < len(raw):
        is_one = raw[at] < _LEAD_MIN or (charset == "cp932" and raw[at] in _ONE_BYTE)
        one = raw[at : at + (1 if is_one else 2)]
        if one in none and errors == "strict":
            raise UnicodeDecodeError(charset, raw, at, at + len(one), "no character")
        found.append("\ufffd" if one in none else decode(one))
        at += len(one)
    return "".join(found)


@functools.cache
def _decoder(charset: str | None, errors: str = "strict") -> Callable[[bytes], str] | None:
    if charset in _SINGLE_BYTE:
        table = _single_byte_table(*_SINGLE_BYTE[charset])
        return lambda raw: codecs.charmap_decode(raw, errors, table)[0]
    codec = _MULTI_BYTE.get(charset or "")
    if charset is None or codec is None:
        return None
    if not codec.startswith("utf"):
        handler = _handler(charset, errors)
        instead = _INSTEAD.get(charset, {})
        if charset == "eucjpms":  # the tilde of JIS X 0212, which Python takes for that of ASCII
            return lambda raw: (
                raw.replace(b"\x8f\xa2\xb7", b"\xa1\xc1").decode(codec, handler).translate(instead)
            )
        none = _NONE.get(charset)
        if none:
            return lambda raw: _decoded(
                raw, charset, errors, lambda some: some.decode(codec, handler)
            )
        return lambda raw: raw.decode(codec, handler).translate(instead)
    # A ucs2 column may hold the halves of surrogate pairs, alone too.
    handler = "surrogatepass" if charset == "ucs2" and errors == "strict" else errors
    return lambda raw: raw.decode(codec, handler)


@functools.cache
def result_encoder(charset: str) -> Callable[[str], bytes] | None:
    """Makes text of a result in a character set: `?` for what it does not have; surrogate escapes are bytes of it.

    None for a set that is not known here, and for those in which ASCII has other bytes.
    """
    encode = _encoder(charset)
    if encode is None or charset in _SPACES:
        return None
    if charset in _SINGLE_BYTE:
        by_character = _by_character(charset)
        return lambda text: codecs.charmap_encode(text, _AS_SENT, by_character)[0]
    codec = _MULTI_BYTE[charset]

    def encoded(text: str) -> bytes:
        try:
            return encode(text)
        except UnicodeEncodeError:
            return text.encode(codec, _AS_SENT)

    return encoded


def _as_sent(error: UnicodeError) -> tuple[bytes, int]:
    assert isinstance(error, UnicodeEncodeError)
    found = map(ord, error.object[error.start : error.end])
    sent = bytes(one - 0xDC00 if 0xDC80 <= one <= 0xDCFF else ord("?") for one in found)
    return sent, error.end


_AS_SENT: Final = "mariadb-result"
codecs.register_error(_AS_SENT, _as_sent)


def _by_character(charset: str) -> dict[int, int]:
    table = _single_byte_table(*_SINGLE_BYTE[charset])
    return {ord(table[byte]): byte for byte in reversed(range(256)) if table[byte] != _UNDEFINED}


@functools.cache
def _encoder(charset: str | None) -> Callable[[str], bytes] | None:
    if charset in _SINGLE_BYTE:
        by_character = _by_character(charset)
        return lambda text: codecs.charmap_encode(text, "strict", by_character)[0]
    codec = _MULTI_BYTE.get(charset or "")
    if charset is None or codec is None:
        return None
    if charset in ("utf8mb3", "ucs2"):
        name = charset
        handler = "surrogatepass" if name == "ucs2" else "strict"
        return lambda text: _in_plane_0(text, name).encode(codec, handler)
    if codec.startswith("utf"):
        return lambda text: text.encode(codec)
    decode = _decoder(charset)
    assert decode is not None
    more = {character: raw for raw, character in reversed(_more(charset).items())}
    if charset == "cp932":
        more = _ibm_extensions(codec)
    instead = {new: old for old, new in _INSTEAD.get(charset, {}).items()}

    @functools.cache
    def one(character: str) -> bytes:
        # A backslash of ASCII is what the wide one becomes, too: MariaDB writes the wide one in sjis alone.
        ways = (character, character.translate(instead))
        for way in reversed(ways) if charset == "sjis" else ways:
            raw = way.encode(codec, "ignore")
            if not raw or raw[0] in _SECOND.get(charset, ()):
                raw = more.get(character, raw)
            with contextlib.suppress(UnicodeDecodeError):
                if raw and decode(raw) == character:
                    return raw
        raise UnicodeEncodeError(charset, character, 0, 1, "another character there")

    return lambda text: b"".join(map(one, text))


def _ibm_extensions(codec: str) -> dict[str, bytes]:
    """The characters at `_IBM_EXTENSIONS`, and their bytes; of two for one character the first."""
    found: dict[str, bytes] = {}
    for lead in _IBM_EXTENSIONS:
        for trail in range(_TRAIL_MIN, 0xFD):
            with contextlib.suppress(UnicodeDecodeError):
                raw = bytes((lead, trail))
                found.setdefault(raw.decode(codec), raw)
    return found


def _in_plane_0(text: str, charset: str) -> str:
    if text and max(text) > "\uffff":
        at = next(i for i, c in enumerate(text) if c > "\uffff")
        raise UnicodeEncodeError(charset, text, at, at + 1, "four bytes")
    return text


def _handler(charset: str, errors: str) -> str:
    """The name of what is done where the Python codec finds no character: those of `_MORE`, then as `errors` says."""
    more = _more(charset)
    is_euc = charset in ("ujis", "eucjpms")

    def handle(error: UnicodeError) -> tuple[str, int]:
        assert isinstance(error, UnicodeDecodeError)
        raw = error.object
        size = 1
        if is_euc:
            wanted = 3 if raw[error.start] == _EUC_THREE else 2
            while size < wanted and raw[error.start + size : error.start + size + 1] >= b"\xa1":
                size += 1
        elif raw[error.start + 1 : error.start + 2] >= bytes((_TRAIL_MIN,)):
            size = 2
        end = error.start + size
        found = more.get(raw[error.start : end])
        if found is None and errors == "strict":
            raise error
        return found or "\ufffd", end

    name = f"mariadb-{charset}-{errors}"
    codecs.register_error(name, handle)
    return name


def _more(charset: str) -> dict[bytes, str]:
    found: dict[bytes, str] = {}
    for first, characters in _MORE.get(charset, {}).items():
        number = int.from_bytes(first, "big")
        for n, character in enumerate(characters):
            found[(number + n).to_bytes(len(first), "big")] = character
    if charset in ("ujis", "eucjpms"):
        for prefix, user in zip((b"", bytes((_EUC_THREE,))), _EUC_USER, strict=True):
            for row in _EUC_USER_ROWS:
                for cell in _EUC_CELLS:
                    code = user + (row - _EUC_USER_ROWS[0]) * len(_EUC_CELLS) + cell - _EUC_CELLS[0]
                    found[prefix + bytes((row, cell))] = chr(code)
    return found


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
