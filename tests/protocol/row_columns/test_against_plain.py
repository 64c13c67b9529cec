"""Columns hold what the plain decoder reads: of recorded binlogs, of any rows of any table, of damaged rows."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Any

import pytest
from binlog_protocol.errors import BadValue, ProtocolError
from binlog_protocol.events.column_type import ColumnType
from binlog_protocol.events.event_type import EventType
from binlog_protocol.events.rows import read_value, write_value
from binlog_protocol.events.rows.rows_event import image_bytes
from binlog_protocol.row_columns import RowDecoder
from binlog_protocol.values import Cursor
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.protocol.events.rows import samples
from tests.protocol.row_columns.any_rows import AnyRows, Table
from tests.protocol.row_columns.reference import both_ways, column_rows, plain_rows, same

SEEDS = st.integers(0, 2**32)


@pytest.mark.parametrize("name", samples.NAMES)
def test_recorded_binlogs(name: str) -> None:
    groups = [group.payload for group in samples.groups(name)]
    decoder = RowDecoder()
    decoder.add(groups)
    assert same(column_rows(decoder.take()), plain_rows(groups))


def test_recorded_binlogs_have_rows() -> None:
    count = sum(len(plain_rows([g.payload for g in samples.groups(n)])) for n in samples.NAMES)
    assert count > 80


def decoded(table: Table, groups: list[bytes]) -> list[Any]:
    """By the loops in C, and by their twins: they give the same, and refuse the same in the same words."""

    def rows() -> list[Any] | str:
        decoder = RowDecoder(prepare=lambda found: replace(found, columns=table.columns))
        try:
            decoder.add(groups)
            return column_rows(decoder.take())
        except ProtocolError as error:
            return str(error)

    in_c, plain = both_ways(rows)
    if isinstance(in_c, str):
        assert in_c == plain
        raise ProtocolError(in_c)
    assert same(in_c, plain)
    return in_c


def plainly(table: Table, groups: list[bytes]) -> list[Any]:
    return plain_rows(groups, lambda found: replace(found, columns=table.columns))


@given(SEEDS)
@settings(max_examples=100)
def test_any_rows_of_any_table(seed: int) -> None:
    any_rows = AnyRows(seed)
    table = any_rows.table()
    groups = any_rows.groups(table)
    assert same(decoded(table, groups), plainly(table, groups))


@given(SEEDS)
@settings(max_examples=100)
def test_values_made_anew_read_the_same_by_both_readers(seed: int) -> None:
    """Values that no column can be given (NaN, digits beyond its own, bytes that are no value) are left NULL."""
    any_rows = AnyRows(seed)
    table = any_rows.table()
    old: list[bytes | None] = []
    new: list[bytes | None] = []
    for column in table.of:
        raw: bytes | None = column.value()
        assert raw is not None
        made: bytes | None = None
        try:
            made = write_value(column.column, read_value(column.column, Cursor(raw, "value")))
        except (BadValue, ProtocolError):
            raw = None
        if raw is not None and column.column.type == ColumnType.STRING and raw.endswith(b" "):
            raw = made  # no server logs the padding of a CHAR
        old.append(raw)
        new.append(made)
    present = (1 << len(table.of)) - 1
    before, after = (
        [table.group(EventType.WRITE_ROWS_V1, [present], [image_bytes(values, present)])]
        for values in (old, new)
    )
    assert same(plainly(table, after), plainly(table, before))
    assert same(decoded(table, after), plainly(table, before))


@given(SEEDS)
@settings(max_examples=150)
def test_damaged_rows_are_refused_or_read_alike(seed: int) -> None:
    """Some bytes changed, also those of events and table maps: never anything but what the plain decoder says."""
    any_rows = AnyRows(seed)
    table = any_rows.table()
    groups = [any_rows.damage(group) for group in any_rows.groups(table)]
    try:
        expected = plainly(table, groups)
    except ProtocolError:
        expected = None
    try:
        found = decoded(table, groups)
    except ProtocolError as error:
        # A stricter eye: rows without a table map, and lengths that are not in their shortest form.
        stricter = "without a table map" in str(error) or "shortest form" in str(error)
        assert expected is None or stricter
    else:
        assert expected is not None
        assert same(found, expected)


@given(SEEDS)
def test_rows_cut_short(seed: int) -> None:
    any_rows = AnyRows(seed)
    table = any_rows.table()
    everything = (1 << len(table.of)) - 1
    rows = b"".join(any_rows.image(table, everything) for _ in range(3))
    cut = any_rows.rng.randrange(len(rows))
    group = table.group(EventType.WRITE_ROWS_V1, [everything], [rows[:cut]])
    try:
        expected = plainly(table, [group])
    except ProtocolError:
        with pytest.raises(ProtocolError, match=r"group 0, event 1"):
            decoded(table, [group])
    else:
        assert same(decoded(table, [group]), expected)


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("number", range(8))
def test_many_tables_and_damages(number: int, rng: Random) -> None:
    for _ in range(625):
        seed = rng.randrange(1 << 32)
        test_any_rows_of_any_table.hypothesis.inner_test(seed)  # type: ignore[attr-defined]
        test_damaged_rows_are_refused_or_read_alike.hypothesis.inner_test(seed)  # type: ignore[attr-defined]
