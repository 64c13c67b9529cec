"""Character sets: our tables against a server's."""

from __future__ import annotations

import random
from typing import Any

import pytest
from binlog_protocol.errors import BadValue
from binlog_protocol.events.charsets import (
    UndecodedText,
    charset_of,
    decode_text,
    encode_text,
    replaced_text,
)

from tests.integration.rows.test_values import raw_connection
from tests.kit.backends import Backend
from tests.kit.fixtures import MakeMariaDB

pytestmark = [pytest.mark.each_version, pytest.mark.by_turns(2)]


SINGLE_BYTE = {
    "latin1": 8, "latin2": 9, "latin5": 30, "latin7": 41, "greek": 25, "hebrew": 16, "cp1250": 26, "cp1251": 51,
    "cp1256": 57, "cp1257": 59, "cp850": 4, "cp852": 40, "cp866": 36, "koi8r": 7, "koi8u": 22, "macce": 38,
    "macroman": 39, "tis620": 18, "hp8": 6, "ascii": 11, "dec8": 3, "swe7": 10, "armscii8": 32, "geostd8": 92,
    "keybcs2": 37,
}  # fmt: skip
MULTI_BYTE = {
    "utf8mb3": 33, "utf8mb4": 45, "ucs2": 35, "utf16": 54, "utf16le": 56, "utf32": 60, "big5": 1, "ujis": 12,
    "eucjpms": 97, "sjis": 13, "cp932": 95, "euckr": 19, "gb2312": 24, "gbk": 28,
}  # fmt: skip
LEGACY = ("big5", "ujis", "eucjpms", "sjis", "cp932", "euckr", "gb2312", "gbk")
NO_CHARACTER = "\ufffd"
OTHER_THERE = {"cp932": {"\u6661"}}
"""What the server writes as a code that it reads as another character: here the set has none."""
BOTH_WAYS = 0.99
"""Part of the characters that must come back: a few are mapped in one direction only."""


def test_collation_numbers(backend: Backend, make_upstream: MakeMariaDB) -> None:
    rows = make_upstream().q(
        "SELECT ID AS id, CHARACTER_SET_NAME AS name"
        " FROM information_schema.COLLATION_CHARACTER_SET_APPLICABILITY WHERE ID IS NOT NULL"
    )
    assert len(rows) > 300
    for row in rows:
        assert charset_of(row["id"]) == row["name"]


def test_every_byte_of_the_single_byte_sets(backend: Backend, make_upstream: MakeMariaDB) -> None:
    with raw_connection(make_upstream()) as connection, connection.cursor() as cursor:
        for name, collation in SINGLE_BYTE.items():
            converted = [
                f"HEX(CONVERT(CONVERT(x'{byte:02x}' USING {name}) USING utf8mb4))"
                for byte in range(256)
            ]
            cursor.execute(f"SELECT {', '.join(converted)}")
            for byte, text in enumerate(cursor.fetchone()):
                there = None if text is None else bytes.fromhex(_str(text)).decode()
                here = decode_text(bytes((byte,)), collation)
                if there in (None, "\ufffd") or (there == "?" and byte != ord("?")):
                    assert isinstance(here, UndecodedText), (name, hex(byte), there)
                else:
                    assert here == there, (name, hex(byte))


def test_characters_of_the_multi_byte_sets(
    backend: Backend, make_upstream: MakeMariaDB, rng: random.Random
) -> None:
    with raw_connection(make_upstream()) as connection, connection.cursor() as cursor:
        for name, collation in MULTI_BYTE.items():
            check_characters(cursor, name, collation, rng)


def check_characters(cursor: Any, name: str, collation: int, rng: random.Random) -> None:
    """What the server makes of random characters reads here as it reads there."""
    characters = [chr(c) for c in range(0x20, 0x7F)]
    characters += [chr(rng.randrange(0xA0, 0xD800)) for _ in range(400)]
    characters += [chr(rng.randrange(0x4E00, 0xA000)) for _ in range(400)]
    if name in ("utf8mb4", "utf16", "utf16le", "utf32"):
        characters += [chr(rng.randrange(0x10000, 0x110000)) for _ in range(100)]
    stored = [f"HEX(CONVERT(_utf8mb4 x'{c.encode().hex()}' USING {name}))" for c in characters]
    cursor.execute(f"SELECT {', '.join(stored)}")
    raws = [bytes.fromhex(_str(text)) for text in cursor.fetchone()]
    back = [f"HEX(CONVERT(CONVERT(x'{raw.hex()}' USING {name}) USING utf8mb4))" for raw in raws]
    cursor.execute(f"SELECT {', '.join(back)}")
    texts = [bytes.fromhex(_str(text)).decode() for text in cursor.fetchone()]
    equal = sum(decode_text(raw, collation) == text for raw, text in zip(raws, texts, strict=True))
    assert equal >= BOTH_WAYS * len(texts), name
    assert len({text for text in texts if text != "?"}) > 95, name


def test_every_character_of_the_legacy_sets(backend: Backend, make_upstream: MakeMariaDB) -> None:
    """Of one byte, two and three: what the server takes for one reads here as it reads there."""
    ones = [bytes((a,)) for a in range(0x80, 0x100)]
    pairs = [bytes((a, b)) for a in range(0x80, 0x100) for b in range(0x40, 0x100)]
    threes = [bytes((0x8F, a, b)) for a in range(0xA1, 0xFF) for b in range(0xA1, 0xFF)]
    with raw_connection(make_upstream()) as connection, connection.cursor() as cursor:
        cursor.execute("CREATE DATABASE d")
        cursor.execute("CREATE TABLE d.t (raw VARBINARY(4) PRIMARY KEY)")
        codes = [*ones, *pairs, *threes]
        for begin in range(0, len(codes), 8000):
            values = ",".join(f"(x'{code.hex()}')" for code in codes[begin : begin + 8000])
            cursor.execute(f"INSERT INTO d.t VALUES {values}")
        for name in LEGACY:
            cursor.execute(
                f"SELECT HEX(raw), HEX(CONVERT(CONVERT(raw USING {name}) USING utf8mb4)) FROM d.t"
                f" WHERE HEX(CONVERT(raw USING {name})) = HEX(raw)"
            )
            others = {}
            for code, text in cursor.fetchall():
                raw = bytes.fromhex(_str(code))
                there = bytes.fromhex(_str(text)).decode()
                here = decode_text(raw, MULTI_BYTE[name])
                if NO_CHARACTER in there or ("?" in there and b"?" not in raw):
                    is_same = isinstance(here, UndecodedText)
                    assert "\ufffd" in replaced_text(raw, MULTI_BYTE[name]) or not is_same
                else:
                    is_same = here == there
                if not is_same:
                    others[_str(code)] = (there, here)
            assert not others, (name, others)


@pytest.mark.slow
def test_every_character_is_written_as_the_server_writes_it(
    backend: Backend, make_upstream: MakeMariaDB
) -> None:
    """Of plane 0, and two beyond; in each set."""
    codes = [c for c in range(0x21, 0x10000) if not 0xD800 <= c < 0xE000 and c != ord(NO_CHARACTER)]
    characters = [*map(chr, codes), "\U0001f600", "\U00020000"]
    with raw_connection(make_upstream()) as connection, connection.cursor() as cursor:
        cursor.execute("CREATE DATABASE d")
        cursor.execute("CREATE TABLE d.c (n INT PRIMARY KEY, c CHAR(1) CHARACTER SET utf8mb4)")
        for begin in range(0, len(characters), 8000):
            some = enumerate(characters[begin : begin + 8000], begin)
            values = ",".join(f"({n}, _utf8mb4 x'{c.encode().hex()}')" for n, c in some)
            cursor.execute(f"INSERT INTO d.c VALUES {values}")
        for name, collation in {**SINGLE_BYTE, **MULTI_BYTE}.items():
            cursor.execute(f"SELECT n, HEX(CONVERT(c USING {name})) FROM d.c ORDER BY n")
            none = encode_text("?", collation)
            others = {}
            for number, text in cursor.fetchall():
                character, there = characters[int(number)], bytes.fromhex(_str(text))
                here = written(character, collation)
                if here != (None if there == none and character != "?" else there):
                    others[character] = (there, here)
            assert others.keys() == OTHER_THERE.get(name, set()), (name, others)


def written(character: str, collation: int) -> bytes | None:
    """None for a character that the set does not have."""
    try:
        return encode_text(character, collation)
    except BadValue:
        return None


def _str(raw: bytes | str) -> str:
    return raw if isinstance(raw, str) else raw.decode()
