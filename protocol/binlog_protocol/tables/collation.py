# ruff: noqa: RUF001
"""The order of text by collation, as bytes that compare as the text does.

===================================  ==============================================================
collation                            weight of a character
===================================  ==============================================================
binary                               its byte
.._bin of one byte a character       its byte
utf8mb3_bin .. utf32_bin             its code point
latin1_swedish_ci, ascii_general_ci  the first byte of its class below, or itself
utf8mb3_general_ci .. utf32_general_ci   the first character of its class below, or itself; U+FFFD for
                                     all beyond U+FFFF
utf8mb3, utf8mb4 _uca1400_ai_ci      see `uca1400.py`: several, one or none, also of several together
===================================  ==============================================================

The collations that are not called nopad, and are not binary, compare with spaces added to the shorter text (PAD
SPACE). Any other collation is not comparable here. Learnt by asking 10.11 and 11.8 for the weight of each character;
tests/integration/rows/test_tables.py asks again.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from typing import Final

from binlog_protocol.compiled_later import compiled_later
from binlog_protocol.errors import BadValue
from binlog_protocol.events.charsets import (
    BINARY_COLLATION,
    UTF8_CHARSETS,
    UndecodedText,
    character_bytes_max,
    charset_of,
    decode_text,
    encode_text,
)
from binlog_protocol.events.collation_names import NUMBERS
from binlog_protocol.tables import uca1400

_NO_PAD_FIRST: Final = 1024
_UNICODE: Final = frozenset(
    ("utf8mb3", "utf8mb4", "utf16", "utf16le", "utf32")
)  # ucs2 may have halves of pairs
# Classes of characters that sort as the first of them.
_SWEDISH: Final = (
    "AaÀÁÂÃàáâã CcÇç DdÐð EeÈÉÊËèéêë IiÌÍÎÏìíîï NnÑñ OoÒÓÔÕòóôõ UuÙÚÛùúû YyÜÝüý [Åå \\ÄÆäæ ]Öö Øø Þþ Bb Ff Gg Hh Jj Kk "
    "Ll Mm Pp Qq Rr Ss Tt Vv Ww Xx Zz"
)
_GENERAL: Final = (
    "AaÀÁÂÃÄÅàáâãäåĀāĂăĄąǍǎǞǟǠǡǺǻȀȁȂȃȦȧḀḁẠạẢảẤấẦầẨẩẪẫẬậẮắẰằẲẳẴẵẶặ BbḂḃḄḅḆḇ CcÇçĆćĈĉĊċČčḈḉ DdĎďḊḋḌḍḎḏḐḑḒḓ "
    "EeÈÉÊËèéêëĒēĔĕĖėĘęĚěȄȅȆȇȨȩḔḕḖḗḘḙḚḛḜḝẸẹẺẻẼẽẾếỀềỂểỄễỆệ FfḞḟ GgĜĝĞğĠġĢģǦǧǴǵḠḡ HhĤĥȞȟḢḣḤḥḦḧḨḩḪḫẖ "
    "IiÌÍÎÏìíîïĨĩĪīĬĭĮįİıǏǐȈȉȊȋḬḭḮḯỈỉỊị JjĴĵǰ KkĶķǨǩḰḱḲḳḴḵ LlĹĺĻļĽľḶḷḸḹḺḻḼḽ MmḾḿṀṁṂṃ NnÑñŃńŅņŇňǸǹṄṅṆṇṈṉṊṋ "
    "OoÒÓÔÕÖòóôõöŌōŎŏŐőƠơǑǒǪǫǬǭȌȍȎȏȪȫȬȭȮȯȰȱṌṍṎṏṐṑṒṓỌọỎỏỐốỒồỔổỖỗỘộỚớỜờỞởỠỡỢợ PpṔṕṖṗ Qq RrŔŕŖŗŘřȐȑȒȓṘṙṚṛṜṝṞṟ "
    "SsßŚśŜŝŞşŠšſȘșṠṡṢṣṤṥṦṧṨṩẛ TtŢţŤťȚțṪṫṬṭṮṯṰṱẗ UuÙÚÛÜùúûüŨũŪūŬŭŮůŰűŲųƯưǓǔǕǖǗǘǙǚǛǜȔȕȖȗṲṳṴṵṶṷṸṹṺṻỤụỦủỨứỪừỬửỮữỰự "
    "VvṼṽṾṿ WwŴŵẀẁẂẃẄẅẆẇẈẉẘ XxẊẋẌẍ YyÝýÿŶŷŸȲȳẎẏẙỲỳỴỵỶỷỸỹ ZzŹźŻżŽžẐẑẒẓẔẕ ÆæǢǣǼǽ Ðð ØøǾǿ Þþ Đđ Ħħ Ĳĳ Ŀŀ Łł Ŋŋ Œœ Ŧŧ "
    "Ɓɓ Ƃƃ Ƅƅ Ɔɔ Ƈƈ Ɖɖ Ɗɗ Ƌƌ Ǝǝ Əə Ɛɛ Ƒƒ Ɠɠ Ɣɣ Ɩɩ Ɨɨ Ƙƙ Ɯɯ Ɲɲ Ɵɵ Ƣƣ Ƥƥ Ʀʀ Ƨƨ Ʃʃ Ƭƭ Ʈʈ Ʊʊ Ʋʋ Ƴƴ Ƶƶ ƷǮǯʒ Ƹƹ Ƽƽ Ǆǅǆ "
    "Ǉǈǉ Ǌǋǌ Ǥǥ Ǳǲǳ Ƕƕ Ƿƿ Ȝȝ Ȣȣ Ȥȥ ΑΆάαἀἁἂἃἄἅἆἇἈἉἊἋἌἍἎἏὰᾀᾁᾂᾃᾄᾅᾆᾇᾈᾉᾊᾋᾌᾍᾎᾏᾰᾱᾲᾳᾴᾶᾷᾸᾹᾺᾼ Ββϐ Γγ Δδ ΕΈέεἐἑἒἓἔἕἘἙἚἛἜἝὲῈ "
    "Ζζ ΗΉήηἠἡἢἣἤἥἦἧἨἩἪἫἬἭἮἯὴᾐᾑᾒᾓᾔᾕᾖᾗᾘᾙᾚᾛᾜᾝᾞᾟῂῃῄῆῇῊῌ Θθϑ Ι\u0345ΊΐΪίιϊἰἱἲἳἴἵἶἷἸἹἺἻἼἽἾἿὶιῐῑῒῖῗῘῙῚ Κκϰ Λλ Μµμ Νν Ξξ "
    "ΟΌοόὀὁὂὃὄὅὈὉὊὋὌὍὸῸ Ππϖ ΡρϱῤῥῬ Σςσϲ Ττ ΥΎΫΰυϋύὐὑὒὓὔὕὖὗὙὛὝὟὺῠῡῢῦῧῨῩῪ Φφϕ Χχ Ψψ "
    "ΩΏωώὠὡὢὣὤὥὦὧὨὩὪὫὬὭὮὯὼᾠᾡᾢᾣᾤᾥᾦᾧᾨᾩᾪᾫᾬᾭᾮᾯῲῳῴῶῷῺῼ ϒϓϔ Ϛϛ Ϝϝ Ϟϟ Ϡϡ Ϣϣ Ϥϥ Ϧϧ Ϩϩ Ϫϫ Ϭϭ Ϯϯ Ђђ Єє Ѕѕ ІЇії Јј Љљ Њњ Ћћ "
    "Џџ АаӐӑӒӓ Бб Вв ГЃгѓ Дд ЕЀЁеѐёӖӗ ЖжӁӂӜӝ ЗзӞӟ ИЍиѝӢӣӤӥ Йй КЌкќ Лл Мм Нн ОоӦӧ Пп Рр Сс Тт УЎуўӮӯӰӱӲӳ Фф Хх Цц "
    "ЧчӴӵ Шш Щщ Ъъ ЫыӸӹ Ьь ЭэӬӭ Юю Яя Ѡѡ Ѣѣ Ѥѥ Ѧѧ Ѩѩ Ѫѫ Ѭѭ Ѯѯ Ѱѱ Ѳѳ ѴѵѶѷ Ѹѹ Ѻѻ Ѽѽ Ѿѿ Ҁҁ Ҍҍ Ҏҏ Ґґ Ғғ Ҕҕ Җҗ Ҙҙ Ққ Ҝҝ "
    "Ҟҟ Ҡҡ Ңң Ҥҥ Ҧҧ Ҩҩ Ҫҫ Ҭҭ Үү Ұұ Ҳҳ Ҵҵ Ҷҷ Ҹҹ Һһ Ҽҽ Ҿҿ Ӄӄ Ӈӈ Ӌӌ Ӕӕ ӘәӚӛ Ӡӡ ӨөӪӫ Աա Բբ Գգ Դդ Եե Զզ Էէ Ըը Թթ Ժժ Իի "
    "Լլ Խխ Ծծ Կկ Հհ Ձձ Ղղ Ճճ Մմ Յյ Նն Շշ Ոո Չչ Պպ Ջջ Ռռ Սս Վվ Տտ Րր Ցց Ււ Փփ Քք Օօ Ֆֆ Άά Έέ Ήή Ίί Ύύ Όό Ώώ "
    "\u2160\u2170 \u2161\u2171 \u2162\u2172 \u2163\u2173 \u2164\u2174 \u2165\u2175 \u2166\u2176 \u2167\u2177 "
    "\u2168\u2178 \u2169\u2179 \u216a\u217a \u216b\u217b \u216c\u217c \u216d\u217d \u216e\u217e \u216f\u217f "
    "\u24b6\u24d0 \u24b7\u24d1 \u24b8\u24d2 \u24b9\u24d3 \u24ba\u24d4 \u24bb\u24d5 \u24bc\u24d6 \u24bd\u24d7 "
    "\u24be\u24d8 \u24bf\u24d9 \u24c0\u24da \u24c1\u24db \u24c2\u24dc \u24c3\u24dd \u24c4\u24de \u24c5\u24df "
    "\u24c6\u24e0 \u24c7\u24e1 \u24c8\u24e2 \u24c9\u24e3 \u24ca\u24e4 \u24cb\u24e5 \u24cc\u24e6 \u24cd\u24e7 "
    "\u24ce\u24e8 \u24cf\u24e9 Ａａ Ｂｂ Ｃｃ Ｄｄ Ｅｅ Ｆｆ Ｇｇ Ｈｈ Ｉｉ Ｊｊ Ｋｋ Ｌｌ Ｍｍ Ｎｎ Ｏｏ Ｐｐ "
    "Ｑｑ Ｒｒ Ｓｓ Ｔｔ Ｕｕ Ｖｖ Ｗｗ Ｘｘ Ｙｙ Ｚｚ "
)

_UCA1400: Final = frozenset(NUMBERS[f"{charset}_uca1400_ai_ci"] for charset in UTF8_CHARSETS)
_UCA1400_FIRST: Final = (
    2048  # numbers from here on are of these collations: none adds 1024 for NOPAD
)

_Weights = Callable[[bytes], bytes]


def is_comparable(collation: int) -> bool:
    """Whether `collation_key` knows it."""
    return _weights(collation) is not None


def is_by_several(collation: int) -> bool:
    """Whether several characters may have one weight, or one several."""
    return collation in _UCA1400


def collation_key(raw: bytes, collation: int) -> bytes:
    """Bytes that are equal for texts that are equal by the collation, and order as they do.

    No key is the beginning of another one, so keys may be put together. Raises `BadValue` for bytes that are no text,
    and for a collation that is not comparable.
    """
    weights = _weights(collation)
    if weights is None:
        raise BadValue(f"the order of collation {collation} is not known here")
    if collation == BINARY_COLLATION or _NO_PAD_FIRST <= collation < _UCA1400_FIRST:
        return binary_key(weights(raw))
    return _padded(weights(raw))


def binary_key(raw: bytes) -> bytes:
    """The same of bytes: 00 is 00 FF, and 00 00 the end."""
    return raw.replace(b"\0", b"\0\xff") + b"\0\0"


def beginning(raw: bytes, collation: int, characters: int) -> bytes:
    """The first characters of a text; bytes for the binary one."""
    charset = charset_of(collation) or ""
    if character_bytes_max(charset) == 1 or len(raw) <= characters:
        return raw[:characters]
    return encode_text(_text(raw, collation)[:characters], collation)


# --- PAD SPACE ---
#
# A space is its byte and a mark: 1 for all the spaces that are added at the end, 0 in front of what sorts before a
# space, 2 in front of what sorts behind it. So the end sorts as endless spaces do.

_SPACES: Final = compiled_later(rb" +(?=(.))", re.DOTALL)


def _padded(weights: bytes) -> bytes:
    text = weights.rstrip(b" ")
    if b" " in text:
        text = _SPACES.sub(_marked, text)
    return text + b" 1"


def _marked(found: re.Match[bytes]) -> bytes:
    return (b" 0" if found[1] < b" " else b" 2") * len(found[0])


# --- weights, in UTF-8 where they are characters: it keeps their order ---


@functools.cache
def _weights(collation: int) -> _Weights | None:
    if collation in _UCA1400:
        uca1400.weights(
            ""
        )  # reads its table, which takes some time: where tables are made or opened
        return lambda raw: uca1400.weights(_text(raw, collation)).encode()
    base = collation - _NO_PAD_FIRST if _NO_PAD_FIRST <= collation < _UCA1400_FIRST else collation
    if base == BINARY_COLLATION:
        return bytes
    charset = charset_of(base)
    if charset is None:
        return None
    if base == NUMBERS.get(f"{charset}_bin"):
        if charset in UTF8_CHARSETS or character_bytes_max(charset) == 1:
            return bytes
        return (lambda raw: _text(raw, base).encode()) if charset in _UNICODE else None
    if base == NUMBERS.get(f"{charset}_general_ci") and charset in _UNICODE:
        return functools.partial(_general, collation=base)
    if base == NUMBERS["latin1_swedish_ci"]:
        return lambda raw: raw.translate(_swedish_bytes())
    return bytes.upper if base == NUMBERS["ascii_general_ci"] else None


def _general(raw: bytes, collation: int) -> bytes:
    if raw.isascii() and charset_of(collation) in UTF8_CHARSETS:
        return raw.upper()
    return _general_text(_text(raw, collation)).encode()


def _general_text(text: str) -> str:
    text = text.translate(_classes(_GENERAL))
    return _BEYOND.sub("\ufffd", text) if text and max(text) > "\uffff" else text


def folded(text: str, collation: int) -> str:
    """Each character as the one that stands for its class in a Unicode collation: what LIKE compares, one by one."""
    if collation in _UCA1400:
        return uca1400.classes(text)
    return (
        _general_text(text)
        if collation == NUMBERS.get(f"{charset_of(collation)}_general_ci")
        else text
    )


def folded_like(pattern: str, collation: int) -> str:
    """A pattern of LIKE, with a backslash as the escape, for `folded` texts."""
    if collation not in _UCA1400:
        return folded(pattern, collation)
    return _SIGNS.sub(lambda found: uca1400.classes(found[1] or found[2] or "\\"), pattern)


_SIGNS: Final = compiled_later(r"([^\\%_]+)|\\(.)|\\$", re.DOTALL)
_BEYOND: Final = compiled_later("[\U00010000-\U0010ffff]")


@functools.cache
def _classes(words: str) -> dict[int, int]:
    return {ord(character): ord(word[0]) for word in words.split() for character in word[1:]}


@functools.cache
def _swedish_bytes() -> bytes:
    classes = _classes(_SWEDISH)
    return bytes(classes.get(byte, byte) for byte in range(256))


def _text(raw: bytes, collation: int) -> str:
    text = decode_text(raw, collation)
    if isinstance(text, UndecodedText):
        raise BadValue(f"{raw[:32].hex()} is no text in character set {charset_of(collation)}")
    return text
