"""Columns of every type, and values that they hold, by chance: of generated histories.

A `Chance` gives numbers alone, and the lowest one always stands for what is simplest: so the same generator draws from
a seed, and from Hypothesis, which makes what fails as simple as it can.
"""

from __future__ import annotations

import datetime
import ipaddress
import math
import uuid
from collections.abc import Callable, Sequence
from decimal import Decimal
from functools import partial
from typing import Final, NamedTuple, Protocol, TypeVar

from binlog_protocol.errors import BadValue
from binlog_protocol.events.charsets import BINARY_COLLATION
from binlog_protocol.events.numbers import float8_bytes
from binlog_protocol.events.rows import Geometry, Value
from binlog_protocol.tables.definition import StoredColumn
from binlog_protocol.tables.sql_type import SqlType

T = TypeVar("T")

LATIN1: Final = 8
UTF8MB4: Final = 45
UTF8MB4_BIN: Final = 46
_WORDS: Final = ("a", "", "it's", "b\\n", "two words", "é", "ÿ")  # of latin1
_MORE_WORDS: Final = (*_WORDS, "ж", "€", "テ", "😀")
_DIGITS: Final = 6
_WKB_POINT: Final = b"\1\1\0\0\0"  # little endian


class Chance(Protocol):
    """Where all that is left to chance comes from."""

    def number(self, low: int, high: int) -> int:
        """From low to high, both included."""


def pick(chance: Chance, options: Sequence[T]) -> T:
    """One of them; the first is the simplest."""
    return options[chance.number(0, len(options) - 1)]


def one_in(chance: Chance, count: int) -> bool:
    """True one time in so many; False is simpler."""
    return chance.number(0, count - 1) == count - 1


class RandomColumn(NamedTuple):
    """A type of columns: as `information_schema.COLUMNS` prints it, the collation, and a value of it."""

    type: SqlType
    collation: int
    value: Callable[[Chance], Value]
    is_json: bool = False
    has_own_checksum: bool = False
    """Whether CHECKSUM TABLE of MyISAM and Aria is another one than InnoDB's."""

    @property
    def name(self) -> str:
        """Of its type, as `Shape.types` has it."""
        return "json" if self.is_json else self.type.name + " compressed" * self.type.compressed

    def column(self, name: str, *, nullable: bool) -> StoredColumn:
        return StoredColumn(name, self.type, nullable, self.collation)


def _integers() -> list[RandomColumn]:
    widths = (
        ("int", 4, (11, 10)),
        ("tinyint", 1, (4, 3)),
        ("smallint", 2, (6, 5)),
        ("mediumint", 3, (9, 8)),
        ("bigint", 8, (20, 20)),
    )
    kinds = []
    for name, size, (signed, unsigned) in widths:
        half = 1 << 8 * size - 1
        for text, low, high in (
            (f"{name}({signed})", -half, half - 1),
            (f"{name}({unsigned}) unsigned", 0, 2 * half - 1),
        ):
            kinds.append(_kind(text, _whole(low, high)))
    return kinds


def _whole(low: int, high: int) -> Callable[[Chance], int]:
    """With a liking for the ends."""
    return lambda chance: pick(
        chance, (chance.number(0, min(9, high)), low, high, chance.number(low, high))
    )


def _decimal(digits: int, scale: int) -> RandomColumn:
    numbers = _whole(1 - 10**digits, 10**digits - 1)
    return _kind(
        f"decimal({digits},{scale})",
        # From text: the context of decimals rounds to 28 digits.
        lambda chance: Decimal(f"{numbers(chance)}e-{scale}"),
    )


def _single(chance: Chance) -> float:
    return pick(chance, (0.0, 1.5, -0.25, 2.0**100, float(chance.number(-(1 << 23), 1 << 23)) / 64))


def _double(chance: Chance) -> float:
    some = math.ldexp(chance.number(-(1 << 53), 1 << 53), chance.number(-1000, 960))
    return pick(chance, (0.0, 1.5, -1e300, 2.5e-308, some))


def _date(chance: Chance) -> datetime.date:
    first, last = datetime.date(1000, 1, 1).toordinal(), datetime.date.max.toordinal()
    some = datetime.date(2024, 2, 29).toordinal()
    return datetime.date.fromordinal(pick(chance, (some, first, last, chance.number(first, last))))


def _fraction(chance: Chance, digits: int) -> int:
    """Microseconds with so many digits behind the second."""
    return chance.number(0, 10**digits - 1) * int(10 ** (_DIGITS - digits))


def _temporals() -> list[RandomColumn]:
    kinds = [_kind("date", _date), _kind("year(4)", lambda c: pick(c, (2024, 0, 1901, 2155)))]
    for digits in (0, 3, _DIGITS, 1):
        end = f"({digits})" if digits else ""
        kinds += [
            _kind(f"datetime{end}", partial(_datetime, digits)),
            _kind(f"timestamp{end}", partial(_timestamp, digits)),
            _kind(f"time{end}", partial(_time, digits)),
        ]
    return kinds


def _datetime(digits: int, chance: Chance) -> datetime.datetime:
    clock = datetime.timedelta(
        seconds=chance.number(0, 86_399), microseconds=_fraction(chance, digits)
    )
    return datetime.datetime.combine(_date(chance), datetime.time()) + clock


def _timestamp(digits: int, chance: Chance) -> datetime.datetime:
    seconds = pick(chance, (1_700_000_000, 1, 0x7FFF_FFFF, chance.number(1, 0x7FFF_FFFF)))
    moment = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC) + datetime.timedelta(
        seconds=seconds
    )
    return moment.replace(microsecond=_fraction(chance, digits))


def _time(digits: int, chance: Chance) -> datetime.timedelta:
    most = 838 * 3600 + 59 * 60 + 59
    seconds = pick(chance, (0, most, chance.number(0, most)))
    found = datetime.timedelta(seconds=seconds, microseconds=_fraction(chance, digits))
    return -found if one_in(chance, 3) else found


def _text(words: Sequence[str], most: int) -> Callable[[Chance], str]:
    def value(chance: Chance) -> str:
        count = chance.number(1, 4)
        return "".join(pick(chance, words) for _ in range(count))[:most]

    return value


def _bytes(most: int, *, exact: bool = False) -> Callable[[Chance], bytes]:
    def value(chance: Chance) -> bytes:
        size = chance.number(0, min(most, 12))
        raw = chance.number(0, (1 << 8 * size) - 1).to_bytes(size, "big")
        return raw.ljust(most, b"\0") if exact else raw

    return value


def _strings() -> list[RandomColumn]:
    kinds = []
    for name in (
        "varchar(20)",
        "char(10)",
        "tinytext",
        "text",
        "mediumtext",
        "longtext",
        "varchar(300)",
    ):
        for collation, words in ((UTF8MB4, _MORE_WORDS), (LATIN1, _WORDS)):
            kinds.append(_kind(name, _text(words, 10), collation))
    kinds += [_kind(name, _bytes(200)) for name in ("tinyblob", "blob", "mediumblob", "longblob")]
    compressed = " /*M!100301 COMPRESSED*/"

    def long_text(chance: Chance) -> str:
        return _text(_MORE_WORDS, 20)(chance) * chance.number(0, 3)

    return [
        *kinds,
        _kind("varbinary(20)", _bytes(20)),
        _kind("binary(8)", _bytes(8, exact=True)),
        _kind(f"varchar(60){compressed}", lambda c: long_text(c)[:60], UTF8MB4),
        _kind(f"text{compressed}", long_text, UTF8MB4),
        _kind(f"blob{compressed}", _bytes(200)),
    ]


def _others() -> list[RandomColumn]:
    labels = ("a", "b c", "it's")
    listed = ",".join("'" + label.replace("'", "''") + "'" for label in labels)
    many = tuple(f"label{number}" for number in range(300))
    many_listed = ",".join(f"'{label}'" for label in many)

    def chosen(chance: Chance) -> str:
        bits = chance.number(0, (1 << len(labels)) - 1)
        return ",".join(label for i, label in enumerate(labels) if bits >> i & 1)

    def point(chance: Chance) -> Geometry:
        x, y = (float8_bytes(float(chance.number(-1000, 1000))) for _ in range(2))
        return Geometry(pick(chance, (0, 4326)), _WKB_POINT + x + y)

    json = ('{"a": 1}', "[]", "null", '{"ä": [1, 2.5, "x"]}')
    return [
        _kind(f"enum({listed})", lambda c: pick(c, labels), UTF8MB4),
        _kind(f"enum({many_listed})", lambda c: pick(c, many), LATIN1),
        _kind(f"set({listed})", chosen, UTF8MB4),
        _kind("bit(1)", lambda c: c.number(0, 1), has_own_checksum=True),
        _kind("bit(17)", lambda c: c.number(0, (1 << 17) - 1), has_own_checksum=True),
        _kind("uuid", _uuid),
        _kind("inet4", lambda c: ipaddress.IPv4Address(c.number(0, (1 << 32) - 1))),
        _kind("inet6", lambda c: ipaddress.IPv6Address(c.number(0, (1 << 128) - 1))),
        _kind("longtext", lambda c: pick(c, json), UTF8MB4_BIN, is_json=True),
        _kind("point", point),
        _kind("geometry", point),
    ]


def _uuid(chance: Chance) -> uuid.UUID:
    """Of a version with its own order of storage, or without; MariaDB refuses what it could not tell apart."""
    raw = chance.number(0, (1 << 128) - 1)
    made = uuid.UUID(int=raw, version=pick(chance, (4, 1)))
    is_version_7 = one_in(chance, 3)
    return uuid.UUID(int=made.int & ~(0xF << 76) | 7 << 76) if is_version_7 else made


def _kind(
    text: str, value: Callable[[Chance], Value], collation: int = BINARY_COLLATION, **more: bool
) -> RandomColumn:
    return RandomColumn(SqlType.parse(text), collation, value, **more)


COLUMN_KINDS: Final[tuple[RandomColumn, ...]] = (
    *_integers(),
    *_strings(),
    _decimal(10, 2),
    _decimal(65, 38),
    _decimal(5, 0),
    _decimal(18, 18),
    _kind("double", _double),
    _kind("float", _single),
    *_temporals(),
    *_others(),
)
"""The simplest one first."""
TYPE_NAMES: Final = frozenset(kind.name for kind in COLUMN_KINDS)
"""Names of types that a history may be limited to."""


def kinds_named(names: Sequence[str]) -> tuple[RandomColumn, ...]:
    """Those of these types; without names all. A JSON column is no LONGTEXT, a compressed one not its plain type.

    Raises `BadValue`.
    """
    wanted = {name.lower() for name in names}
    if unknown := wanted - TYPE_NAMES:
        there = ", ".join(sorted(TYPE_NAMES))
        raise BadValue(f"types: no {', '.join(sorted(unknown))}; there are {there}")
    if not wanted:
        return COLUMN_KINDS
    return tuple(kind for kind in COLUMN_KINDS if kind.name in wanted)
