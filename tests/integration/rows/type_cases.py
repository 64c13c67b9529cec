"""Every column type with its extremes, and what SELECT says of them as the value that the decoder should give."""

from __future__ import annotations

import datetime
import ipaddress
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from binlog_protocol.events.rows import EnumIndex, Geometry, SetBits, Value, ZeroDate

NO_LOG, MINIMAL, FULL = "NO_LOG", "MINIMAL", "FULL"


@dataclass(frozen=True)
class TypeCase:
    """`read` turns what `select` gives (text) and the metadata mode into the value expected; `{c}` is the column."""

    definition: str
    literals: tuple[str, ...]
    read: Callable[[str, str], Value]
    select: str = "{c}"
    since: str = "10.11"


def _integer(bits: int, unsigned: bool) -> Callable[[str, str], Value]:
    def read(text: str, mode: str) -> Value:
        value = int(text)
        # Of unknown signedness the decoder takes an integer as signed.
        return value - (1 << bits) if unsigned and mode == NO_LOG and value >> bits - 1 else value

    return read


def _text(text: str, mode: str) -> Value:
    stored, converted = text.split("|")
    return bytes.fromhex(stored) if mode == NO_LOG else bytes.fromhex(converted).decode()


def _binary(size: int) -> Callable[[str, str], Value]:
    """BINARY(size); what the log leaves out is put back only where the column is known to be binary."""

    def read(text: str, mode: str) -> Value:
        raw = bytes.fromhex(text)
        return raw.rstrip(b"\0") if mode == NO_LOG else raw.ljust(size, b"\0")

    return read


def _packed(make: Callable[[str], bytes]) -> Callable[[str, str], Value]:
    def read(text: str, mode: str) -> Value:
        raw = make(text)
        return raw.rstrip(b"\0") if mode == NO_LOG else raw

    return read


def date(text: str, mode: str = "") -> Value:
    parts = [int(part) for part in text.split("-")]
    try:
        return datetime.date(*parts)
    except ValueError:
        return ZeroDate(*parts)


def date_time(text: str, mode: str = "") -> Value:
    day, clock = text.split(" ")
    year, month, day_ = map(int, day.split("-"))
    hms, _, fraction = clock.partition(".")
    hour, minute, second = map(int, hms.split(":"))
    micro = int(fraction.ljust(6, "0")) if fraction else 0
    try:
        return datetime.datetime(year, month, day_, hour, minute, second, micro)
    except ValueError:
        return ZeroDate(year, month, day_, hour, minute, second, micro)


def timestamp(text: str, mode: str = "") -> Value:
    """In a session in UTC."""
    value = date_time(text)
    return value.replace(tzinfo=datetime.UTC) if isinstance(value, datetime.datetime) else value


def time(text: str, mode: str = "") -> Value:
    hms, _, fraction = text.lstrip("-").partition(".")
    hour, minute, second = map(int, hms.split(":"))
    micro = int(fraction.ljust(6, "0")) if fraction else 0
    value = datetime.timedelta(hours=hour, minutes=minute, seconds=second, microseconds=micro)
    return -value if text.startswith("-") else value


def _enum(text: str, mode: str) -> Value:
    number, label = text.split("|")
    return bytes.fromhex(label).decode() if mode == FULL else EnumIndex(int(number))


def _set(text: str, mode: str) -> Value:
    number, labels = text.split("|")
    return bytes.fromhex(labels).decode() if mode == FULL else SetBits(int(number) & (1 << 64) - 1)


def _geometry(text: str, mode: str) -> Value:
    srid, wkb = text.split("|")
    return Geometry(int(srid), bytes.fromhex(wkb))


TEXT = "CONCAT(HEX({c}), '|', HEX(CONVERT({c} USING utf8mb4)))"
LABELS = "CONCAT({c}+0, '|', HEX(CONVERT({c} USING utf8mb4)))"


def _integers() -> list[TypeCase]:
    cases = []
    for name, bits in (
        ("TINYINT", 8),
        ("SMALLINT", 16),
        ("MEDIUMINT", 24),
        ("INT", 32),
        ("BIGINT", 64),
    ):
        top = 1 << bits
        cases.append(
            TypeCase(name, ("0", "-1", str(-top // 2), str(top // 2 - 1)), _integer(bits, False))
        )
        cases.append(
            TypeCase(
                f"{name} UNSIGNED", ("0", "1", str(top // 2), str(top - 1)), _integer(bits, True)
            )
        )
    return cases


def _decimals() -> list[TypeCase]:
    cases = []
    for digits, scale in ((1, 0), (9, 0), (10, 2), (18, 9), (19, 19), (38, 10), (65, 0), (65, 38)):
        biggest = "9" * (digits - scale) + ("." + "9" * scale if scale else "")
        biggest = biggest if digits > scale else "0" + biggest
        least = "0." + "0" * (scale - 1) + "1" if scale else "1"
        literals = ("0", biggest, f"-{biggest}", least, f"-{least}")
        cases.append(
            TypeCase(f"DECIMAL({digits},{scale})", literals, lambda text, mode: Decimal(text))
        )
    return cases


def _temporals() -> list[TypeCase]:
    cases = [
        TypeCase(
            "DATE",
            (
                "'2024-02-29'",
                "'0000-00-00'",
                "'9999-12-31'",
                "'2024-00-31'",
                "'2023-02-31'",
                "'0001-01-01'",
            ),
            date,
        ),
        TypeCase("YEAR", ("0", "1901", "2155", "2024"), lambda text, mode: int(text)),
    ]
    for digits in range(7):
        fraction = f".{'9876543'[:digits]}" if digits else ""
        nines = f".{'9' * digits}" if digits else ""
        cases += [
            TypeCase(
                f"TIME({digits})",
                (
                    f"'838:59:59{nines}'",
                    f"'-838:59:59{nines}'",
                    f"'-00:00:00{fraction}'",
                    "'0:0:0'",
                    f"'10:11:12{fraction}'",
                    f"'-1:00:00{nines}'",
                ),
                time,
            ),
            TypeCase(
                f"DATETIME({digits})",
                (
                    f"'2024-02-29 13:14:15{fraction}'",
                    "'0000-00-00 00:00:00'",
                    f"'9999-12-31 23:59:59{nines}'",
                    f"'2024-00-01 01:02:03{fraction}'",
                    "'0001-01-01 00:00:00'",
                ),
                date_time,
            ),
            TypeCase(
                f"TIMESTAMP({digits}) NULL",
                (
                    f"'2024-02-29 13:14:15{fraction}'",
                    "'0000-00-00 00:00:00'",
                    f"'2038-01-19 03:14:07{nines}'",
                    "'1970-01-01 00:00:01'",
                ),
                timestamp,
            ),
        ]
    cases.append(
        TypeCase("TIMESTAMP(6) NULL", ("'2106-02-07 06:28:15.999999'",), timestamp, since="11.8")
    )
    return cases


def _strings() -> list[TypeCase]:
    ascii_ = ("''", "'a'", "'two words  '", "'it''s \\\\ here'")
    cases = []
    for charset, extra in (
        ("latin1", "x'e9f180fc9d'"),
        ("latin2", "x'b1e6ea'"),
        ("cp1251", "x'cff0e8e2e5f2'"),
        ("koi8r", "x'f0d2c9d7c5d4'"),
        ("greek", "x'e1e2e3a1'"),
        ("utf8mb3", "x'c3a9e282ac'"),
        ("utf8mb4", "x'c3a9e282acf09f9880'"),
        ("ucs2", "x'00e920ac'"),
        ("utf16", "x'00e9d83dde00'"),
        ("utf16le", "x'e9003dd800de'"),
        ("utf32", "x'000000e90001f600'"),
        ("sjis", "x'83658358b1'"),
        ("cp932", "x'83658358'"),
        ("ujis", "x'a5c6a5b9'"),
        ("big5", "x'a4a4a4e5'"),
        ("gbk", "x'd6d0cec4'"),
        ("euckr", "x'c7d1b1db'"),
        ("ascii", "x'41'"),
    ):  # fmt: skip
        for type_ in ("CHAR(20)", "VARCHAR(50)", "TINYTEXT"):
            cases.append(
                TypeCase(f"{type_} CHARACTER SET {charset}", (*ascii_, extra), _text, TEXT)
            )
    cases += [
        TypeCase("CHAR(255) CHARACTER SET utf8mb4", (*ascii_, "REPEAT('\U0001f600', 255)"), _text, TEXT),
        TypeCase("VARCHAR(255) CHARACTER SET latin1", (*ascii_, "REPEAT('x', 255)"), _text, TEXT),
        TypeCase("VARCHAR(256) CHARACTER SET latin1", (*ascii_, "REPEAT('x', 256)"), _text, TEXT),
        TypeCase("TEXT", (*ascii_, "REPEAT('x', 3000)"), _text, TEXT),
        TypeCase("MEDIUMTEXT", (*ascii_, "REPEAT('x', 70000)"), _text, TEXT),
        TypeCase("LONGTEXT", (*ascii_, "REPEAT('x', 70000)"), _text, TEXT),
        TypeCase("JSON", ("'{\"a\": [1, null]}'", "'[]'"), _text, TEXT),
        TypeCase("VARCHAR(100) COMPRESSED", (*ascii_, "REPEAT('xy', 50)"), _text, TEXT),
        TypeCase("VARCHAR(2000) COMPRESSED", (*ascii_, "REPEAT('xy', 1000)"), _text, TEXT),
        TypeCase("TEXT COMPRESSED CHARACTER SET cp1251", (*ascii_, "REPEAT(x'cff0', 3000)"), _text, TEXT),
    ]  # fmt: skip
    return cases


def _bytes() -> list[TypeCase]:
    samples = ("''", "x'00'", "x'00ff00'", "'abc'")
    plain = _packed_free()
    return [
        TypeCase("BINARY(5)", samples, _binary(5), "HEX({c})"),
        TypeCase("BINARY(255)", samples, _binary(255), "HEX({c})"),
        TypeCase("VARBINARY(5)", samples, plain, "HEX({c})"),
        TypeCase("VARBINARY(300)", (*samples, "REPEAT('x', 300)"), plain, "HEX({c})"),
        TypeCase("TINYBLOB", samples, plain, "HEX({c})"),
        TypeCase("BLOB", (*samples, "REPEAT('x', 300)"), plain, "HEX({c})"),
        TypeCase("MEDIUMBLOB", (*samples, "REPEAT('x', 70000)"), plain, "HEX({c})"),
        TypeCase("LONGBLOB", (*samples, "REPEAT('x', 70000)"), plain, "HEX({c})"),
        TypeCase("BLOB COMPRESSED", (*samples, "REPEAT('x', 5000)"), plain, "HEX({c})"),
        TypeCase("VARBINARY(500) COMPRESSED", (*samples, "REPEAT('x', 500)"), plain, "HEX({c})"),
    ]


def _packed_free() -> Callable[[str, str], Value]:
    return lambda text, mode: bytes.fromhex(text)


def _others() -> list[TypeCase]:
    many = ",".join(f"'l{n}'" for n in range(300))
    wide = ",".join(f"'s{n}'" for n in range(64))
    return [
        TypeCase(
            "FLOAT",
            ("0", "1.5", "-3.4028234e38", "1.1754944e-38", "0.1"),
            lambda t, mode: float(t),
            "CAST({c} AS DOUBLE)",
        ),
        TypeCase(
            "DOUBLE",
            ("0", "0.1", "-1.7976931348623157e308", "2.2250738585072014e-308"),
            lambda t, mode: float(t),
        ),
        *(
            TypeCase(
                f"BIT({n})", ("b'0'", "b'1'", f"b'{'1' * n}'"), lambda t, mode: int(t), "{c}+0"
            )
            for n in (1, 7, 8, 9, 63, 64)
        ),
        TypeCase(
            "ENUM('a','\u00e9','x y') CHARACTER SET utf8mb4",
            ("'a'", "'\u00e9'", "'x y'", "'no such'"),
            _enum,
            LABELS,
        ),
        TypeCase(f"ENUM({many})", ("'l0'", "'l254'", "'l255'", "'l299'"), _enum, LABELS),
        TypeCase(
            "SET('a','\u00e9','c') CHARACTER SET latin1", ("''", "'a,c'", "'\u00e9'"), _set, LABELS
        ),
        TypeCase("SET('a','b','c','d','e','f','g','h','i')", ("'a,i'",), _set, LABELS),
        TypeCase(
            f"SET({wide})", ("''", "'s0,s63'", f"'{wide.replace(chr(39), '')}'"), _set, LABELS
        ),
        *(
            TypeCase(name, literals, _geometry, "CONCAT(ST_SRID({c}), '|', HEX(ST_AsWKB({c})))")
            for name, literals in (
                ("POINT", ("POINT(1, -2)",)),
                ("GEOMETRY", ("POINT(1, 2)", "ST_GeomFromText('LINESTRING(0 0,1 1)', 4326)")),
                ("POLYGON", ("ST_GeomFromText('POLYGON((0 0,1 0,1 1,0 0))')",)),
            )
        ),
        TypeCase(
            "UUID",
            ("'123e4567-e89b-12d3-a456-426655440000'", "'00000000-0000-0000-0000-000000000000'"),
            _packed(lambda t: uuid.UUID(t).bytes),
        ),
        TypeCase(
            "INET6",
            ("'::'", "'2001:db8::ff00'", "'::1.2.3.4'"),
            _packed(lambda t: ipaddress.IPv6Address(t).packed),
        ),
        TypeCase(
            "INET4",
            ("'0.0.0.0'", "'192.168.1.0'", "'255.255.255.255'"),
            _packed(lambda t: ipaddress.IPv4Address(t).packed),
        ),
        TypeCase(
            "VECTOR(3)", ("VEC_FromText('[1,-2.5,0]')",), _packed_free(), "HEX({c})", since="11.8"
        ),
    ]


CASES = [*_integers(), *_decimals(), *_temporals(), *_strings(), *_bytes(), *_others()]


def cases_of(version: str) -> list[TypeCase]:
    """Those that a server of this version has."""
    wanted: Any = tuple(map(int, version.split(".")))
    return [case for case in CASES if tuple(map(int, case.since.split("."))) <= wanted]
