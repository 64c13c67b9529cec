"""The loops in C and their twins: the same of sound bytes, of damaged ones, and of such as were cut short."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from binlog_protocol.errors import ProtocolError
from binlog_protocol.events.column_type import ColumnLayout, ColumnType
from binlog_protocol.events.event_type import EventType
from binlog_protocol.events.rows.value import value_size
from binlog_protocol.events.table_map import TableColumn
from binlog_protocol.row_columns import numbers, repeats, temporal, walk_groups
from binlog_protocol.row_columns.arrays import joined_ranges, ranges
from binlog_protocol.row_columns.image import RowLayout
from binlog_protocol.row_columns.loops import HAS_C, Reader
from binlog_protocol.row_columns.row_bytes import Damaged, Field, RowBytes
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.protocol.row_columns.any_rows import AnyRows, Table
from tests.protocol.row_columns.reference import both_ways, rows_event, table_map
from tests.protocol.row_columns.test_repeats import any_group, damaged

SEEDS = st.integers(0, 2**32)
T = EventType
needs_c = pytest.mark.skipif(not HAS_C, reason="the loops in C were not built")


def outcome(work: Callable[[], Any]) -> Any:
    """What it gives, in lists; or that the bytes are damaged."""
    try:
        return work()
    except Damaged:
        return Damaged
    except ProtocolError as error:
        return str(error)


def compared(work: Callable[..., Any], *given: Any) -> Any:
    in_c, plain = both_ways(lambda: outcome(lambda: work(*given)))
    assert in_c == plain
    return in_c


# --- events of groups ---


@given(SEEDS, st.integers(1, 30), st.booleans())
def test_events_of_groups(seed: int, count: int, is_damaged: bool) -> None:
    rng = Random(seed)
    groups = [any_group(rng) for _ in range(count)]
    if is_damaged:
        groups[rng.randrange(count)] = rng.choice(
            (damaged(rng, groups[0]), groups[0][:-1], b"\0", b"")
        )
    compared(lambda: [column.tolist() for column in walk_groups(groups)[1]])


@pytest.mark.parametrize("length", [0, 18, 20, 0x7FFFFFFF, 0xFFFFFFFF])
def test_events_of_wrong_lengths(length: int) -> None:
    event = bytearray(table_map(3, 1))
    event[9:13] = length.to_bytes(4, "little")
    found = compared(lambda: walk_groups([table_map(3, 1), bytes(event), table_map(3, 1)]))
    assert "(group 1)" in found


# --- which events are alike ---


@needs_c
@given(SEEDS, st.integers(1, 60))
@settings(max_examples=60)
def test_what_is_said_to_be_alike_is(seed: int, count: int) -> None:
    rng = Random(seed)
    kinds = [any_group(rng) for _ in range(rng.randrange(1, 6))]
    groups = [
        damaged(rng, rng.choice(kinds)) if rng.random() < 0.2 else rng.choice(kinds)
        for _ in range(count)
    ]
    try:
        data, events = walk_groups(groups)
    except ProtocolError:
        return
    wanted = events.some(
        np.flatnonzero((events.type == T.TABLE_MAP) | (repeats._BITMAPS[events.type] > 0))
    )
    looked_at, like = repeats.likes(data, wanted)
    for i, first in enumerate(like.tolist()):
        assert looked_at[i] or first < i or wanted.type[i] == T.TABLE_MAP
        assert like[first] == first
        assert wanted.type[first] == wanted.type[i]
        if wanted.type[i] != T.TABLE_MAP:
            assert looked_at[first]
            continue
        bodies = [data.raw[wanted.begin[j] + 19 : wanted.end[j]] for j in (i, first)]
        assert bodies[0] == bodies[1]


@needs_c
def test_nearly_all_of_many_tables_are_alike() -> None:
    """Several maps in a group, and several row events, go the same way."""
    group = b"".join(table_map(i, i) for i in range(1, 9))
    group += b"".join(rows_event(T.WRITE_ROWS_V1, i, i, [1], b"\0\1") for i in range(1, 9))
    data, events = walk_groups([group] * 100)
    looked_at, _ = repeats.likes(data, events)
    # All of the first group, and the maps of the last one, which may go on.
    assert np.flatnonzero(looked_at).tolist() == [*range(16), *range(99 * 16, 99 * 16 + 8)]


def test_more_tables_than_are_remembered() -> None:
    count = 70
    group = b"".join(table_map(i, 1) for i in range(1, count + 1))
    group += b"".join(rows_event(T.WRITE_ROWS_V1, i, 1, [1], b"\0\1") for i in range(1, count + 1))
    data, events = walk_groups([group] * 3)
    looked_at, like = repeats.likes(data, events)
    for i in np.flatnonzero(looked_at).tolist():
        assert like[i] == i or events.type[i] == T.TABLE_MAP


def test_a_map_whose_row_event_alone_is_new() -> None:
    """The map in front of it is looked at, too, though it is like an earlier one: another came between."""
    one, two = table_map(3, 1), table_map(3, 1).replace(b"\1t\0", b"\1u\0")
    insert, delete = (
        rows_event(kind, 3, 1, [1], b"\0\1") for kind in (T.WRITE_ROWS_V1, T.DELETE_ROWS_V1)
    )
    data, events = walk_groups([one + insert, two + insert + one + delete, one])
    looked_at, _ = repeats.likes(data, events)
    assert looked_at.tolist()[:6] == [True] * 6


# --- rows and their values ---


def layouts(any_rows: AnyRows, table: Table, count: int) -> tuple[RowLayout, list[int]]:
    everything = (1 << len(table.of)) - 1
    bitmaps = [
        any_rows.rng.choice((everything, any_rows.rng.randint(1, everything))) for _ in range(count)
    ]
    images = [[c for i, c in enumerate(table.columns) if bitmap >> i & 1] for bitmap in bitmaps]
    return RowLayout(images), bitmaps


def plain_fields(fields: list[list[Field]]) -> Any:
    """Of what is NULL nothing but that."""
    found = []
    for field in (field for image in fields for field in image):
        nulls = np.zeros(len(field), np.bool_) if field.nulls is None else field.nulls
        at = np.where(nulls, 0, field.at).tolist()
        found.append(
            (at, None if field.lengths is None else field.lengths.tolist(), nulls.tolist())
        )
    return found


@given(SEEDS, st.integers(1, 2), st.sampled_from(["sound", "cut", "damaged", "an end moved"]))
@settings(max_examples=150)
def test_fields_of_rows(seed: int, images: int, form: str) -> None:
    any_rows = AnyRows(seed)
    rng = any_rows.rng
    table = any_rows.table()
    layout, bitmaps = layouts(any_rows, table, images)
    rows = [
        b"".join(
            any_rows.image(table, bitmap) for _ in range(rng.randint(0, 4)) for bitmap in bitmaps
        )
        for _ in range(rng.choice((1, 3, 20)))
    ]
    ends = np.cumsum(np.fromiter(map(len, rows), np.int64, len(rows)))
    raw = bytearray(b"".join(rows))
    if form == "cut" and raw:
        del raw[rng.randrange(len(raw)) :]
        ends = np.minimum(ends, len(raw))
    if form == "damaged" and raw:
        raw[rng.randrange(len(raw))] = rng.randrange(256)
    if form == "an end moved":
        ends[rng.randrange(len(ends))] = rng.randint(0, len(raw))
        ends.sort()
    data = RowBytes(bytes(raw))

    def fields() -> Any:
        found, counts = layout.fields(data, ends)
        assert counts.tolist() == layout.counts(data, ends).tolist()
        return plain_fields(found), counts.tolist()

    found = compared(fields)
    if form == "sound":
        assert found is not Damaged
        assert sum(found[1]) == sum(1 for row in rows if row) or any(len(row) for row in rows)


def test_columns_that_the_loops_do_not_know() -> None:
    """No server logs an ENUM of 200 bytes; what a table map says is not refused here."""
    column = TableColumn(ColumnLayout(ColumnType.ENUM, 200), True)
    assert value_size(column).fixed == 200
    layout = RowLayout([[column]])
    rows = b"\0" + bytes(200) + b"\1"
    found, counts = layout.fields(RowBytes(rows), np.array([len(rows)]))
    assert counts.tolist() == [2]
    assert found[0][0].at[0] == 1


# --- values ---


def field_of(rng: Random, size: int, count: int) -> Field:
    """Values with any bytes, or with plain ones, anywhere in the data; some are NULL, and those may lie anywhere."""
    raw = b"".join(
        rng.choice((rng.randbytes(size), bytes(size), b"\xff" * size, b"\x80" + bytes(size - 1)))
        for _ in range(count)
    )
    at = np.arange(count) * size
    nulls = None
    if rng.random() < 0.5:
        nulls = np.array([rng.random() < 0.3 for _ in range(count)], np.bool_)
        at[nulls] = rng.choice((0, len(raw), len(raw) - 1, len(raw) + 7))
    return Field(RowBytes(raw), at, None, nulls)


def shown(array: pa.Array) -> list[Any]:
    array.validate(full=True)
    return list(map(str, array.to_pylist()))


def same_values(times: temporal.Times, field: Field) -> Any:
    """Of what is NULL or no time nothing but that."""
    none = np.zeros(len(field), np.bool_) if times.none is None else times.none.copy()
    if field.nulls is not None:
        none |= field.nulls
    return np.where(none, 0, times.values).tolist(), none.tolist()


def dates(field: Field, _digits: int) -> Any:
    return same_values(temporal.dates(field), field)


def datetimes(field: Field, digits: int) -> Any:
    return same_values(temporal.datetimes(field, digits), field)


def timestamps(field: Field, digits: int) -> Any:
    return same_values(temporal.timestamps(field, digits), field)


def times(field: Field, digits: int) -> Any:
    return same_values(temporal.Times(temporal.times(field, digits), None), field)


def integers(field: Field, size: int, type_: pa.DataType, is_unsigned: bool) -> Any:
    return shown(numbers.integers(field, size, type_, unsigned=is_unsigned))


def floats(field: Field, size: int) -> Any:
    return shown(numbers.floats(field, size))


def decimals(field: Field, digits: int, scale: int) -> Any:
    return list(map(str, numbers.decimals(field, digits, scale).to_pylist()))


def words(field: Field) -> Any:
    found = numbers.unsigned_words(field)
    return (found if field.nulls is None else np.where(field.nulls, 0, found)).tolist()


INTEGERS = (
    (1, pa.int8(), False), (1, pa.int16(), True), (2, pa.int16(), False), (2, pa.int32(), True), (3, pa.int32(), False),
    (3, pa.int32(), True), (4, pa.int32(), False), (4, pa.int64(), True), (8, pa.int64(), False),
)  # fmt: skip


@given(SEEDS, st.integers(0, 6), st.integers(0, 30))
@settings(max_examples=200)
def test_values_of_any_bytes(seed: int, digits: int, count: int) -> None:
    rng = Random(seed)
    fraction = (digits + 1) // 2
    compared(dates, field_of(rng, 3, count), digits)
    compared(datetimes, field_of(rng, 5 + fraction, count), digits)
    compared(timestamps, field_of(rng, 4 + fraction, count), digits)
    compared(times, field_of(rng, 3 + fraction, count), digits)
    for size, type_, is_unsigned in INTEGERS:
        compared(integers, field_of(rng, size, count), size, type_, is_unsigned)
    for size in (4, 8):
        compared(floats, field_of(rng, size, count), size)
    compared(words, field_of(rng, 8, count))


@given(SEEDS)
def test_sound_times(seed: int) -> None:
    any_rows = AnyRows(seed)
    digits = any_rows.rng.randint(0, 6)
    fraction = (digits + 1) // 2
    for read, size, raws in (
        (datetimes, 5 + fraction, [any_rows.datetime(digits) for _ in range(20)]),
        (times, 3 + fraction, [any_rows.time(digits) for _ in range(20)]),
        (dates, 3, [any_rows.date() for _ in range(20)]),
    ):
        field = Field(RowBytes(b"".join(raws)), np.arange(20) * size, None, None)
        assert compared(read, field, digits) is not Damaged


def test_every_day_there_is() -> None:
    years = (0, 1, 4, 100, 400, 1900, 1970, 2000, 2024, 9999, 10000, 32767)
    days = [y << 9 | month << 5 | day for y in years for month in range(16) for day in range(32)]
    raw = b"".join(day.to_bytes(3, "little") for day in days)
    compared(dates, Field(RowBytes(raw), np.arange(len(days)) * 3, None, None), 0)


@pytest.mark.parametrize("digits", range(1, 39))
def test_decimals(digits: int) -> None:
    any_rows = AnyRows(digits)
    for scale in range(digits + 1):
        raws = [any_rows.decimal(digits, scale) for _ in range(8)]
        size = len(raws[0])
        field = Field(RowBytes(b"".join(raws)), np.arange(8) * size, None, None)
        assert compared(decimals, field, digits, scale) is not Damaged
        compared(decimals, field_of(any_rows.rng, size, 5), digits, scale)


# --- bytes of many places ---


@given(SEEDS, st.integers(0, 40))
def test_ranges(seed: int, count: int) -> None:
    rng = Random(seed)
    data = RowBytes(rng.randbytes(rng.choice((0, 1, 15, 16, 17, 100, 1000))))
    edges = sorted(rng.randint(0, data.size + rng.choice((0, 5))) for _ in range(2 * count))
    begins, ends = np.array(edges[0::2], np.int64), np.array(edges[1::2], np.int64)
    plain = [data.raw[begin:end] for begin, end in zip(begins, ends, strict=True)]
    assert compared(lambda: ranges(data, begins, ends).to_pylist()) == plain
    assert compared(lambda: joined_ranges(data, begins, ends)) == b"".join(plain)
    order = np.array(rng.sample(range(count), count), np.int64)
    assert compared(lambda: joined_ranges(data, begins[order], ends[order])) == b"".join(
        plain[i] for i in order
    )


# --- what is no use of them ---


@needs_c
def test_arrays_that_do_not_fit_are_refused() -> None:
    from binlog_protocol.row_columns import _speedups as c

    one, two = np.zeros(1, np.int64), np.zeros(2, np.int64)
    byte, bytes_, no = np.zeros(1, np.uint8), np.zeros(2, np.uint8), np.zeros(0, np.int64)
    for wrong in (
        lambda: c.fill_events(b"", no, byte, one, one, two, one),
        lambda: c.find_likes(b"", byte, one, two, one, bytes(256), byte, one),
        lambda: c.find_likes(b"", byte, one, one, one, bytes(255), byte, one),
        lambda: c.count_rows(b"", one, b"\x85", None, one, one),
        lambda: c.count_rows(b"", one, b"\x80", None, one, one),
        lambda: c.count_rows(b"", one, b"\1", None, two, one),
        lambda: c.count_rows(b"", one, b"\1", None, one, two),
        lambda: c.count_rows(b"", one, b"", None, one, no),
        lambda: c.read_rows(b"", one, b"\1", None, (), byte, byte),
        lambda: c.read_rows(b"", one, b"\1", None, ((0, 1, 1, byte, byte),), byte, byte[:0]),
        lambda: c.read_rows(b"", one, b"\1\1", None, ((0, 1, 1, byte, byte),) * 2, byte, bytes_),
        lambda: c.read_rows(b"", one, b"\1", None, ((-4, 0, 0, one, one),), byte, byte),
        lambda: c.read_rows(b"", one, b"\1", None, ((6, 0, 0, one, one),), byte, byte),
        lambda: c.read_rows(b"", one, b"\1", None, ((-2, 0, 0, one, two),), byte, byte),
        lambda: c.read_rows(b"", one, b"\1", None, ((-2, 0, 0, two, two),), byte, byte),
        lambda: c.read_rows(b"", one, b"\1", None, ((-1, 0, 0, one[:0], byte),), byte, byte),
        lambda: c.read_rows(b"", one, b"\1", None, ((0, 9, 1, byte, byte),), byte, byte),
        lambda: c.read_rows(b"", one, b"\1", None, ((1, 5, 6, two, byte),), byte, byte),
        lambda: c.copy_ranges(b"", one, two, np.zeros(3, np.int32)),
        lambda: c.copy_ranges(b"", one, one, np.zeros(1, np.int32)),
        lambda: c.read_column(9, b"", one, None, one),
        lambda: c.read_column(-1, b"", one, None, one),
        lambda: c.read_column(Reader.INTEGERS, b"", one, None, one, 9, 0),
        lambda: c.read_column(Reader.INTEGERS, b"", one, None, one, 0, 0),
        lambda: c.read_column(Reader.INTEGERS, b"", one, byte[:0], one, 1, 0),
        lambda: c.read_column(Reader.INTEGERS, b"", one, None, np.zeros(3, np.uint8), 1, 0),
        lambda: c.read_column(Reader.INTEGERS, b"", one, None, np.zeros(2, np.uint64), 1, 0),
        lambda: c.read_column(Reader.DECIMALS, b"", one, None, two, 39, 0),
        lambda: c.read_column(Reader.DECIMALS, b"", one, None, two, 5, 6),
        lambda: c.read_column(Reader.DECIMALS, b"", one, None, two, 5, -1),
        lambda: c.read_column(Reader.DATETIMES, b"", one, None, one, 7),
    ):  # fmt: skip
        with pytest.raises((ValueError, BufferError)):
            wrong()
    assert c.count_events(b"", np.array([5, 3])) == -1
    assert c.count_rows(b"abc", np.array([4]), b"\1", None, one, one) == -1
    assert c.count_rows(b"abc", np.array([-4]), b"\1", None, one, one) == -1
    for wrong_plan in ((0, 1), (0, 1, 1, byte, None), None):
        with pytest.raises((TypeError, SystemError, BufferError)):
            c.read_rows(b"", one, b"\1", None, (wrong_plan,), byte, byte)  # type: ignore[arg-type]


READERS = (
    (Reader.INTEGERS, 4), (Reader.INTEGERS, 1), (Reader.DECIMALS, 16), (Reader.DATES, 4), (Reader.DATETIMES, 8),
    (Reader.TIMESTAMPS, 8), (Reader.TIMES, 8),
)  # fmt: skip


def any_plan(rng: Random, rows: int) -> tuple[int, int, int, Any, Any]:
    """With arrays that fit; of bytes there may come more than there is room for."""
    nothing = np.empty(0, np.uint8)
    kind = rng.randrange(4)
    if kind == 0:
        return Reader.UNWANTED, 0, 0, nothing, nothing
    if kind == 1:
        return Reader.PLACES, 0, 0, np.empty(rows, np.int64), np.empty(rows, np.int64)
    if kind == 2:
        most = rng.choice((0, 5, 2**31 - 1))
        return (
            Reader.BYTES,
            most,
            0,
            np.empty(rows + 1, np.int32),
            np.empty(rng.randrange(40), np.uint8),
        )
    reader, width = rng.choice(READERS)
    one = {Reader.INTEGERS: rng.randint(1, 8), Reader.DECIMALS: 38, Reader.DATES: 0}.get(
        reader, rng.randint(0, 6)
    )
    return reader, one, rng.randint(0, 1), np.empty((rows, width), np.uint8), nothing


@needs_c
@given(SEEDS)
@settings(max_examples=200)
def test_any_numbers_do_no_harm(seed: int) -> None:
    """Places, ends and types that no walk gives: nothing is read or written but what is there."""
    from binlog_protocol.row_columns import _speedups as c

    rng = Random(seed)
    data = rng.randbytes(rng.choice((0, 1, 7, 8, 60, 500)))
    count = rng.randint(0, 20)

    def any_numbers() -> Any:
        choices = (
            0,
            1,
            -1,
            len(data),
            len(data) + 1,
            2**62,
            -(2**63),
            2**63 - 1,
            rng.randint(0, len(data) + 2),
        )
        return np.array([rng.choice(choices) for _ in range(count)], np.int64)

    types = np.array([rng.choice((19, 23, 24, 25, 0)) for _ in range(count)], np.uint8)
    c.find_likes(
        data,
        types,
        any_numbers(),
        any_numbers(),
        any_numbers(),
        repeats.KINDS,
        types.copy(),
        any_numbers(),
    )
    c.count_events(data, any_numbers())
    c.fill_events(data, any_numbers(), types.copy(), *(any_numbers() for _ in range(4)))
    codes = bytes(rng.choice((0, 1, 8, 0x7F, 0x81, 0x82, 0x84)) for _ in range(rng.randint(1, 9)))
    second = rng.choice((None, codes))
    columns = len(codes) * (1 if second is None else 2)
    c.count_rows(data, any_numbers(), codes, second, any_numbers(), np.empty(columns, np.int64))
    plans = tuple(any_plan(rng, count) for _ in range(columns))
    nulls, flags = np.empty((columns, count), np.uint8), np.empty(columns, np.uint8)
    c.read_rows(data, any_numbers(), codes, second, plans, nulls, flags)
    some_null = rng.choice((None, types))
    for reader, width, one, other in (
        (Reader.INTEGERS, 4, rng.randint(1, 8), rng.randint(0, 1)), (Reader.DECIMALS, 16, 38, rng.randint(0, 38)),
        (Reader.DATES, 4, 0, 0), (Reader.DATETIMES, 8, 6, 0), (Reader.TIMESTAMPS, 8, 5, 0), (Reader.TIMES, 8, 3, 0),
    ):  # fmt: skip
        c.read_column(
            reader, data, any_numbers(), some_null, np.empty((count, width), np.uint8), one, other
        )
    c.copy_ranges(data, any_numbers(), any_numbers(), np.empty(count + 1, np.int32))
