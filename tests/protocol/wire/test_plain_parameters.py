"""Plain parameters are read, and put into the text, in C as in Python; and as the long way reads them."""

from __future__ import annotations

import random
import struct
from collections.abc import Callable, Sequence

import pytest
from binlog_protocol.wire.binary_rows import Parameters
from binlog_protocol.wire.plain_parameters import (
    LENGTH_MAX,
    Taken,
    take_plain_parameters,
    take_plain_parameters_plainly,
)
from hypothesis import given
from hypothesis import strategies as st

LONG, LONGLONG, TEXT, BLOB = b"\x03\0", b"\x08\0", b"\xfd\0", b"\xfc\0"
HEAD = b"head"
Take = Callable[[bytes, int, bytes, Sequence[bytes]], Taken | None]
TWINS = [pytest.param(take_plain_parameters_plainly, id="Python")]
if take_plain_parameters is not take_plain_parameters_plainly:
    TWINS.append(pytest.param(take_plain_parameters, id="C"))
KINDS = (1, 2, 3, 8, 9, 13, 15, 253, 254, 252, 5, 6)
SIZES = {1: 1, 2: 2, 13: 2, 3: 4, 9: 4, 8: 8}


def packet(types: bytes, body: bytes, nulls: int = 0, *, bound: bool = True) -> bytes:
    bitmap = nulls.to_bytes((len(types) // 2 + 7) // 8, "little")
    return HEAD + bitmap + (b"\1" + types if bound else b"\0") + body


@pytest.mark.parametrize("take", TWINS)
def test_values_and_the_text_with_them(take: Take) -> None:
    body = struct.pack("<qi", -(2**63), -1) + b"\x06it's\\\n"
    types = LONGLONG + LONG + TEXT
    pieces = [b"INSERT INTO t VALUES (", b", ", b",", b")"]
    found = take(packet(types, body), len(HEAD), b"", pieces)
    assert found == (
        types,
        [-(2**63), -1, "it's\\\n"],
        b"INSERT INTO t VALUES (-9223372036854775808, -1,'it\\'s\\\\\\n')",
    )
    assert take(packet(types, body, bound=False), len(HEAD), types, pieces) == found
    assert take(packet(types, struct.pack("<i", 0), 0b101), len(HEAD), b"", pieces) == (
        types,
        [None, 0, None],
        b"INSERT INTO t VALUES (NULL, 0,NULL)",
    )
    unsigned = b"\x08\x80\x01\x80\x01\0\x0d\x80"
    found = take(packet(unsigned, b"\xff" * 12), len(HEAD), b"", [b"", b" ", b" ", b" ", b""])
    assert found == (unsigned, [2**64 - 1, 255, -1, 65535], b"18446744073709551615 255 -1 65535")
    escaped = b"\0\n\r\x1a\\'\"%"
    found = take(packet(TEXT, b"\x08" + escaped), len(HEAD), b"", [b"", b""])
    assert found == (TEXT, [escaped.decode()], b"'\\0\\n\\r\\Z\\\\\\'\"%'")
    assert take(b"", 0, b"", [b"SELECT"]) == (b"", [], b"SELECT")


@pytest.mark.parametrize("take", TWINS)
@pytest.mark.parametrize(
    "data",
    [
        b"",
        HEAD,
        HEAD + b"\0",
        packet(LONG, b"\1\2\3"),
        packet(LONG, b"\1\2\3\4\5"),
        packet(LONG, b"\1\2\3\4", bound=False),  # nobody has said of which type
        HEAD + b"\0\1\3",
        packet(TEXT, b""),
        packet(TEXT, b"\5abcd"),
        packet(TEXT, b"\1\xff"),
        packet(TEXT, b"\3\xed\xa0\x80"),
        packet(TEXT, bytes((LENGTH_MAX + 1,)) + bytes(LENGTH_MAX + 1)),
        packet(TEXT, b"\xfc\1\0a"),
        packet(BLOB, b"\1a"),
        packet(b"\5\0", bytes(8)),
    ],
)
def test_what_is_not_plain(take: Take, data: bytes) -> None:
    assert take(data, len(HEAD), b"", [b"", b""]) is None


@pytest.mark.parametrize("take", TWINS[1:])
def test_what_c_refuses(take: Take) -> None:
    for pieces in ([], [b"", "text"], [None]):
        with pytest.raises(TypeError):
            take(packet(LONG, bytes(4)), len(HEAD), b"", pieces)  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        take(packet(LONG, bytes(4)), -1, b"", [b"", b""])


@given(st.randoms(use_true_random=False))
def test_twins_and_the_long_way_agree(rng: random.Random) -> None:
    count = rng.choice((1, 2, 3, 7, 8, 9, 17))
    types = b"".join(bytes((rng.choice(KINDS[:9]), rng.choice((0, 0x80)))) for _ in range(count))
    if rng.random() < 0.1:
        types = types[:-2] + bytes((rng.choice(KINDS), 0))
    nulls = rng.getrandbits(count) & rng.getrandbits(count)
    body = b""
    for number in range(count):
        if nulls >> number & 1:
            continue
        size = SIZES.get(types[2 * number])
        if size is None:
            text = "".join(rng.choice("a'\\\n\0é€😀") for _ in range(rng.randrange(9))).encode()
            body += bytes((len(text),)) + text
        else:
            body += rng.randbytes(size) if rng.random() < 0.8 else b"\xff" * size
    if rng.random() < 0.2:
        body = body[: rng.randrange(len(body) + 1)]
    data = packet(types, body, nulls, bound=(bound := rng.random() < 0.8))
    pieces = [rng.randbytes(rng.randrange(5)) for _ in range(count + 1)]
    known = rng.choice((types, b"", types[2:]))
    found = take_plain_parameters_plainly(data, len(HEAD), known, pieces)
    assert take_plain_parameters(data, len(HEAD), known, pieces) == found
    if found is not None:
        assert found[0] == (types if bound else known)
        read = Parameters(memoryview(data)[len(HEAD) :], count)
        read.read_head(known, {})
        long = [parameter.value for parameter in read.row()]
        assert [bytes(v).decode() if isinstance(v, memoryview) else v for v in long] == found[1]
