"""Tables of any columns, and rows of them as a server would log them, from a random source."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Any

from binlog_protocol.events.column_type import ColumnLayout, ColumnType
from binlog_protocol.events.compressed import compressed
from binlog_protocol.events.event_type import EventType
from binlog_protocol.events.numbers import decimal_groups
from binlog_protocol.events.rows import value_size
from binlog_protocol.events.table_map import ColumnKind, TableColumn

from tests.protocol.row_columns.reference import rows_event, table_map

T = ColumnType
TABLE_ID = 7
KINDS = (EventType.WRITE_ROWS_V1, EventType.UPDATE_ROWS_V1, EventType.DELETE_ROWS_V1)
LATIN1, UTF8MB4, UTF8MB3, UCS2, SJIS, CP1251, DEC8, BINARY = 8, 45, 33, 35, 13, 51, 3, 63
COLLATIONS = (LATIN1, UTF8MB4, UTF8MB3, UCS2, SJIS, CP1251, DEC8, BINARY, None)
WORDS = ("", "a", "two words ", "\u00e9\u00f1", "\u20ac", "\U0001f600", "\u0436", "\u30c6")


@dataclass(frozen=True)
class AnyColumn:
    """A column, and one more value of it in the bytes of the log."""

    column: TableColumn
    value: Callable[[], bytes]


class AnyRows:
    """Makes columns, tables and groups."""

    def __init__(self, seed: int) -> None:
        self.rng = Random(seed)

    def fixed(self, size: int) -> bytes:
        return self.rng.choice((bytes(size), b"\xff" * size, self.rng.randbytes(size)))

    def number(self, biggest: int) -> int:
        return self.rng.choice((0, biggest, self.rng.randint(0, biggest)))

    def decimal(self, digits: int, scale: int) -> bytes:
        groups = decimal_groups(digits, scale)
        raw = b"".join(self.number(10**n - 1).to_bytes(size, "big") for n, size in groups)
        raw = bytes((raw[0] | 0x80,)) + raw[1:]
        return bytes(byte ^ 0xFF for byte in raw) if self.rng.random() < 0.5 else raw

    def fraction(self, digits: int) -> bytes:
        size = (digits + 1) // 2
        return self.number(100**size - 1).to_bytes(size, "big")

    def clock(self, hours: int) -> int:
        return self.number(hours) << 12 | self.number(59) << 6 | self.number(59)

    def date(self) -> bytes:
        packed = self.number(9999) << 9 | self.rng.randint(0, 15) << 5 | self.rng.randint(0, 31)
        return packed.to_bytes(3, "little")

    def datetime(self, digits: int) -> bytes:
        day = (self.number(9999) * 13 + self.rng.randint(0, 12)) << 22 | self.rng.randint(
            0, 31
        ) << 17
        return ((1 << 39) + (day | self.clock(23))).to_bytes(5, "big") + self.fraction(digits)

    def time(self, digits: int) -> bytes:
        size = (digits + 1) // 2
        number = self.clock(838) << 8 * size | int.from_bytes(self.fraction(digits), "big")
        zero = 0x80 << 8 * (2 + size)
        return (zero + self.rng.choice((number, -number))).to_bytes(3 + size, "big")

    def text(self, collation: int | None) -> bytes:
        codec = {UTF8MB4: "utf-8", UTF8MB3: "utf-8", UCS2: "utf-16-be", SJIS: "shift_jis"}
        word = "".join(self.rng.choices(WORDS, k=self.rng.randint(0, 3)))
        encoded = word.encode(codec.get(collation or 0, "cp1252"), "replace")
        return self.rng.choice((encoded, encoded, encoded, b"abc", b"ab\0", self.rng.randbytes(5)))

    def compressed(self, collation: int | None) -> bytes:
        plain = self.text(collation)
        form = self.rng.randint(0, 2)
        if not plain or not form:
            return b"\0" + plain if plain else b""
        stream = zlib.compressobj(wbits=15 if form == 1 else -15)
        header = bytes((0x81 | (8 if form == 2 else 0), len(plain)))
        return header + stream.compress(plain) + stream.flush()

    def column(self) -> AnyColumn:
        """Of any type."""
        pick = self.rng.choice
        return pick(
            (
                self._integer, self._number, self._decimal, self._bit, self._temporal, self._temporal, self._labelled,
                self._string, self._string, self._blob, self._compressed, self._kind, self._old_temporal,
            )
        )()  # fmt: skip

    def _integer(self) -> AnyColumn:
        types = ((T.TINY, 1), (T.SHORT, 2), (T.INT24, 3), (T.LONG, 4), (T.LONGLONG, 8))
        type_, size = self.rng.choice(types)
        return self._of(type_, size=size, unsigned=self.rng.choice((True, False, None)))

    def _number(self) -> AnyColumn:
        type_, size = self.rng.choice(((T.FLOAT, 4), (T.DOUBLE, 8), (T.YEAR, 1)))
        return self._of(type_, size=size)

    def _decimal(self) -> AnyColumn:
        digits = self.rng.randint(1, 65)
        scale = self.rng.randint(0, min(digits, 38))
        return self._of(
            T.NEWDECIMAL, lambda: self.decimal(digits, scale), digits=digits, scale=scale
        )

    def _bit(self) -> AnyColumn:
        bits = self.rng.choice((1, 7, 8, 9, 63, 64, self.rng.randint(1, 64)))
        size = (bits + 7) // 8
        return self._of(
            T.BIT,
            lambda: self.number((1 << bits) - 1).to_bytes(size, "big"),
            size=size,
            digits=bits,
        )

    def _temporal(self) -> AnyColumn:
        digits = self.rng.randint(0, 6)
        made = {
            T.DATE: self.date,
            T.DATETIME2: lambda: self.datetime(digits),
            T.TIME2: lambda: self.time(digits),
            T.TIMESTAMP2: lambda: self.fixed(4) + self.fraction(digits),
        }
        type_ = self.rng.choice(list(made))
        return self._of(type_, made[type_], digits=digits)

    def _old_temporal(self) -> AnyColumn:
        """Of the format of MariaDB 5.3, which does not say how many digits follow the second."""
        made = {
            T.TIME: lambda: self.rng.choice((0, 5959, 235959, 8385959)).to_bytes(3, "little"),
            T.DATETIME: lambda: self.rng.choice((0, 20240203040506)).to_bytes(8, "little"),
            T.TIMESTAMP: lambda: self.fixed(4),
        }
        type_ = self.rng.choice(list(made))
        if type_ == T.TIMESTAMP and self.rng.random() < 0.5:
            return self._of(type_, lambda: self.fixed(4) + b"\0\1", fraction_digits=4)
        return self._of(type_, made[type_])

    def _labelled(self) -> AnyColumn:
        count, size = self.rng.choice(((1, 1), (3, 1), (64, 8)))
        texts = tuple(f"l{i}\u00e9" for i in range(count))
        raws = tuple(text.encode("latin1") for text in texts)
        labels = self.rng.choice((texts, raws, None))
        if self.rng.random() < 0.5:
            return self._of(
                T.ENUM, lambda: self.number(count).to_bytes(1, "little"), size=1, labels=labels
            )
        return self._of(
            T.SET, lambda: self.number((1 << count) - 1).to_bytes(size, "little"), size=size, labels=labels
        )  # fmt: skip

    def _string(self) -> AnyColumn:
        size = self.rng.choice((5, 255, 256, 700))
        collation = self.rng.choice(COLLATIONS)
        return self._of(
            self.rng.choice((T.VARCHAR, T.STRING, T.VAR_STRING)),
            lambda: _prefixed(self.text(collation)[:size], 1 if size < 256 else 2),
            size=size,
            collation=collation,
        )

    def _blob(self) -> AnyColumn:
        size = self.rng.randint(1, 4)
        collation = self.rng.choice(COLLATIONS)
        if self.rng.random() < 0.3:
            return self._of(T.GEOMETRY, self._geometry, size=4)
        return self._of(
            T.BLOB, lambda: _prefixed(self.text(collation), size), size=size, collation=collation
        )

    def _geometry(self) -> bytes:
        is_empty = self.rng.random() < 0.1
        return _prefixed(b"" if is_empty else self.fixed(4) + self.text(BINARY), 4)

    def _compressed(self) -> AnyColumn:
        type_, size = self.rng.choice(((T.VARCHAR_COMPRESSED, 250), (T.BLOB_COMPRESSED, 1)))
        collation = self.rng.choice(COLLATIONS)
        return self._of(
            type_, lambda: _prefixed(self.compressed(collation), 1), size=size, collation=collation
        )

    def _kind(self) -> AnyColumn:
        kinds = (
            (ColumnKind.UUID, 16),
            (ColumnKind.INET4, 4),
            (ColumnKind.INET6, 16),
            (ColumnKind.VECTOR, 8),
        )
        kind, size = self.rng.choice(kinds)
        if kind == ColumnKind.VECTOR:
            return self._of(
                T.VARCHAR, lambda: _prefixed(self.rng.randbytes(8), 1), size=8, kind=kind
            )
        return self._of(
            T.STRING,
            lambda: _prefixed(self.rng.randbytes(size).rstrip(b"\0"), 1),
            size=size,
            collation=BINARY,
            kind=kind,
        )

    def _of(
        self, type_: ColumnType, value: Callable[[], bytes] | None = None, **more: Any
    ) -> AnyColumn:
        layout = {name: more.pop(name) for name in ("size", "digits", "scale") if name in more}
        column = TableColumn(ColumnLayout(type_, **layout), True, **more)
        size = value_size(column).fixed
        return AnyColumn(column, value or (lambda: self.fixed(size)))

    def table(self) -> Table:
        """Mostly a narrow one; some have more columns than a word has null bits."""
        count = self.rng.randint(1, 8) if self.rng.random() < 0.95 else 70
        return Table(tuple(self.column() for _ in range(count)))

    def image(self, table: Table, present: int) -> bytes:
        """Of the columns in a bitmap."""
        values = [
            None if self.rng.random() < 0.2 else column.value()
            for i, column in enumerate(table.of)
            if present >> i & 1
        ]
        nulls = sum(1 << i for i, value in enumerate(values) if value is None)
        return nulls.to_bytes((len(values) + 7) // 8, "little") + b"".join(v or b"" for v in values)

    def groups(self, table: Table) -> list[bytes]:
        """INSERTs, UPDATEs and DELETEs with full and partial images, in compressed events or not."""
        everything = (1 << len(table.of)) - 1
        found = []
        for _ in range(self.rng.randint(1, 4)):
            type_ = self.rng.choice(KINDS)
            bitmaps = [
                self.rng.choice((everything, self.rng.randint(1, everything)))
                for _ in range(2 if type_ == EventType.UPDATE_ROWS_V1 else 1)
            ]
            events = [
                b"".join(
                    self.image(table, bitmap)
                    for _ in range(self.rng.randint(1, 3))
                    for bitmap in bitmaps
                )
                for _ in range(self.rng.choice((1, 3, 20)))
            ]
            compress = self.rng.random() < 0.3
            found.append(table.group(type_, bitmaps, events, compress=compress))
        return found

    def damage(self, group: bytes) -> bytes:
        """Up to three bytes are others."""
        damaged = bytearray(group)
        for _ in range(self.rng.randint(0, 3)):
            damaged[self.rng.randrange(len(damaged))] = self.rng.randrange(256)
        return bytes(damaged)


@dataclass(frozen=True)
class Table:
    """A table d.t."""

    of: tuple[AnyColumn, ...]

    @property
    def columns(self) -> tuple[TableColumn, ...]:
        return tuple(column.column for column in self.of)

    def group(
        self, type_: EventType, bitmaps: list[int], rows: list[bytes], *, compress: bool = False
    ) -> bytes:
        """The table map, and a row event for each of `rows`."""
        count = len(self.of)
        events = [table_map(TABLE_ID, count)]
        for images in rows:
            event = rows_event(type_, TABLE_ID, count, bitmaps, images)
            events.append(compressed(event) if compress else event)
        return b"".join(events)


def _prefixed(raw: bytes, length_bytes: int) -> bytes:
    return len(raw).to_bytes(length_bytes, "little") + raw
