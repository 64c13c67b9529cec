"""How groups are given and changes are taken; which tables are wanted; options; what is refused, and how."""

from __future__ import annotations

import datetime
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from binlog_protocol.errors import ProtocolError
from binlog_protocol.events.charsets import UndecodedText
from binlog_protocol.events.column_type import ColumnLayout, ColumnType
from binlog_protocol.events.event_type import EventType
from binlog_protocol.events.table_map import TableColumn, TableMap
from binlog_protocol.row_columns import (
    ColumnOptions,
    Prepare,
    RowDecoder,
    UnrepresentableValue,
    arrow_schema,
    event_runs,
)

from tests.protocol.events.rows import samples
from tests.protocol.row_columns.any_rows import TABLE_ID, AnyRows
from tests.protocol.row_columns.reference import (
    both_ways,
    column_rows,
    plain_rows,
    rows_event,
    same,
    table_map,
)

T = ColumnType
INT = TableColumn(ColumnLayout(T.LONG, 4), True, name="n")
INSERT, DELETE = EventType.WRITE_ROWS_V1, EventType.DELETE_ROWS_V1


def column(
    type_: ColumnType, size: int = 0, digits: int = 0, scale: int = 0, **more: Any
) -> TableColumn:
    return TableColumn(ColumnLayout(type_, size, digits, scale), True, name="c", **more)


def of(*columns: TableColumn) -> Prepare:
    return lambda table: replace(table, columns=columns)


def inserted(value: bytes, type_: EventType = INSERT) -> bytes:
    """A group that inserts a row of one column."""
    return table_map(TABLE_ID, 1) + rows_event(type_, TABLE_ID, 1, [1], b"\0" + value)


def one_value(col: TableColumn, value: bytes, **options: Any) -> Any:
    decoder = RowDecoder(ColumnOptions(**options), of(col))
    decoder.add([inserted(value)])
    (changes,) = decoder.take()
    assert changes.after is not None
    return changes.after.column(0)[0].as_py()


def test_hidden_columns_are_read_over() -> None:
    """Behind all others; what looks like one elsewhere is a column like any."""
    number = TableColumn(ColumnLayout(T.LONGLONG, 8), True, unsigned=True)
    names = ("DB_ROW_HASH_1", "n", "db_row_hash_2", "DB_ROW_HASH_3", "DB_ROW_HASH_10")
    columns = [replace(number, name=name) for name in names]
    data = b"".join(value.to_bytes(8, "little") for value in range(5))
    event = rows_event(INSERT, TABLE_ID, 5, [0b11111], b"\0" + data)
    decoder = RowDecoder(prepare=of(*columns))
    decoder.add([table_map(TABLE_ID, 5) + event] * 2)
    (changes,) = decoder.take()
    assert changes.table.columns == tuple(columns[:3])
    assert changes.after is not None
    assert changes.after.to_pylist() == [dict(zip(names[:3], range(3), strict=True))] * 2
    assert changes.after_present == (0, 1, 2)
    for other in (
        replace(number, name="DB_ROW_HASH_"),
        replace(number, name="DB_ROW_HASH_1", unsigned=False),
        replace(number, name="DB_ROW_HASH_1", nullable=False),
        replace(INT, name="DB_ROW_HASH_1", unsigned=True),
    ):
        assert TableMap(0, 0, "d", "t", (INT, other)).visible_count == 2
    alone = TableMap(0, 0, "d", "t", (columns[0],))
    assert alone.visible is alone


RECORDED = [group.payload for name in samples.NAMES for group in samples.groups(name)]


@pytest.mark.parametrize("at_once", [1, 2, 7])
def test_groups_given_bit_by_bit(at_once: int) -> None:
    decoder = RowDecoder()
    found = []
    for first in range(0, len(RECORDED), at_once):
        decoder.add(RECORDED[first : first + at_once], first)
        if first % 3 == 0:
            found += decoder.take()
    found += decoder.take()
    assert decoder.gathered_bytes == 0
    assert not decoder.take()
    assert same(column_rows(found), plain_rows(RECORDED))


def test_a_group_that_goes_on_behind_others() -> None:
    """The last of several may go on; its events are counted from its own first."""
    rows = rows_event(INSERT, TABLE_ID, 1, [1], b"\0" + bytes(4))
    decoder = RowDecoder(prepare=of(INT))
    decoder.add([inserted(bytes(4))], 5)
    decoder.add([rows, inserted(bytes(4))], 5)
    decoder.add([rows, b"", rows[:0]], 6)
    (changes,) = decoder.take()
    assert changes.group.tolist() == [5, 5, 6, 6]
    assert changes.event.tolist() == [1, 2, 1, 2]


@pytest.mark.parametrize("piece", [1, 7, 1000])
def test_groups_in_pieces(piece: int) -> None:
    """As a large group comes: each event by itself, cut anywhere on the way; numbers go on."""
    decoder = RowDecoder()
    for number, group in enumerate(RECORDED):
        pieces = (group[at : at + piece] for at in range(0, len(group), piece))
        for run in event_runs(pieces, at_least=1):
            decoder.add([run], number)
    assert same(column_rows(decoder.take()), plain_rows(RECORDED))


def test_large_and_small_shapes_are_taken_apart() -> None:
    decoder = RowDecoder(prepare=of(INT))
    decoder.add([inserted(bytes(4))] * 10 + [inserted(bytes(4), DELETE)])
    assert decoder.gathered_bytes == 55
    assert [len(changes) for changes in decoder.take(at_least=50)] == [10]
    assert [len(changes) for changes in decoder.take()] == [1]


def test_tables_that_are_not_wanted() -> None:
    asked = []

    def prepare(table: TableMap) -> TableMap | None:
        asked.append(table.table)
        return None

    decoder = RowDecoder(prepare=prepare)
    decoder.add([inserted(b"\1")] * 3)
    assert decoder.take() == []
    assert asked == ["t"]  # once, however often the map is logged


def test_an_empty_insert() -> None:
    """Nothing but defaults under binlog_row_image=MINIMAL: a row without bytes."""
    decoder = RowDecoder(prepare=of(INT))
    group = table_map(TABLE_ID, 1) + rows_event(INSERT, TABLE_ID, 1, [0], b"") * 2
    decoder.add([group, group])
    (changes,) = decoder.take()
    assert changes.after_present == ()
    assert changes.event.tolist() == [1, 2, 1, 2]
    assert changes.after is not None
    assert changes.after.to_pylist() == [{"n": None}] * 4
    decoder.add([table_map(TABLE_ID, 1) + rows_event(INSERT, TABLE_ID, 1, [0], b"\0")])
    with pytest.raises(ProtocolError, match="without bytes"):
        decoder.take()


REFUSED: list[tuple[Callable[[bytes], bytes], str]] = [
    (lambda group: group[:-1], r"event length .* \(group 1\)"),
    (lambda group: group[:9] + b"\x12\0\0\0" + group[13:], r"event length 18 .* \(group 1\)"),
    (lambda group: group[len(table_map(TABLE_ID, 1)) :], r"table 7, without a table map \(group 1, event 0\)"),
    (lambda group: group + rows_event(INSERT, 8, 1, [1], b"\0"), r"table 8, without .* \(group 1, event 2\)"),
    (lambda group: group + rows_event(EventType.WRITE_ROWS, TABLE_ID, 1, [1], b"\0"), r"version 2.* event 2"),
    (lambda group: group + rows_event(INSERT, TABLE_ID, 2, [1], b"\0"), "2 columns, but d.t has 1"),
    (lambda group: group + rows_event(INSERT, TABLE_ID, 1, [1], b"\0\1\2\3"), r"cut short.* \(group 1, event 2\)"),
    (lambda group: group + rows_event(INSERT, TABLE_ID, 1, [1], b"\0\1\2\3\4\0"), r"d.t is cut short.* event 2\)"),
]  # fmt: skip


@pytest.mark.parametrize(("damage", "says"), REFUSED)
def test_refused(damage: Callable[[bytes], bytes], says: str) -> None:
    sound = inserted(bytes(4))
    decoder = RowDecoder(prepare=of(INT))

    def decode() -> None:
        decoder.add([sound, damage(sound)])
        decoder.take()

    with pytest.raises(ProtocolError, match=says):
        decode()


@pytest.mark.parametrize(
    ("col", "value"),
    [
        (column(T.VARCHAR_COMPRESSED, 9), b"\2\x81\1"),
        (column(T.DATETIME, 8), (20240203177344).to_bytes(8, "little")),
    ],
)
def test_a_value_that_none_has_a_place(col: TableColumn, value: bytes) -> None:
    """Of a type that is read value by value, too."""
    decoder = RowDecoder(prepare=of(col))
    decoder.add([inserted(value)], 5)
    with pytest.raises(ProtocolError, match=r"\(group 5, event 1\)$"):
        decoder.take()


@pytest.mark.parametrize("type_", [T.VARCHAR, T.STRING, T.VAR_STRING])
@pytest.mark.parametrize("size", [5, 300])
def test_a_text_longer_than_its_column(type_: ColumnType, size: int) -> None:
    """By the loops in C, too."""
    col = column(type_, size, collation=45)

    def told(length: int) -> Any:
        value = length.to_bytes(1 if size < 256 else 2, "little") + b"a" * length
        try:
            return one_value(col, value)
        except ProtocolError as error:
            return str(error)

    assert both_ways(lambda: told(size)) == ("a" * size, "a" * size)
    refused = f"row event: {size + 1} bytes in a column of {size} (group 0, event 1)"
    assert both_ways(lambda: told(size + 1)) == (refused, refused)


def test_too_much_at_once_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("binlog_protocol.row_columns.event_walk._BYTES_AT_ONCE_MAX", 50)
    with pytest.raises(ValueError, match="50 are the most"):
        RowDecoder().add([inserted(b"\1")])


def test_a_shape_that_grows_too_large_is_turned_into_columns(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("binlog_protocol.row_columns.decoder._GATHERED_BYTES_MAX", 12)
    decoder = RowDecoder(prepare=of(INT))
    for number in range(5):
        decoder.add([inserted(number.to_bytes(4, "little"))], number)
    taken = decoder.take()
    assert [len(changes) for changes in taken] == [2, 2, 1]
    assert [row.after for row in column_rows(taken)] == [[0], [1], [2], [3], [4]]


def test_more_rows_at_once_than_fit_are_split(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("binlog_protocol.row_columns.decoder._GATHERED_BYTES_MAX", 12)
    rows = [b"\0" + number.to_bytes(4, "little") for number in range(5)]
    decoder = RowDecoder(prepare=of(INT))
    one = table_map(TABLE_ID, 1) + b"".join(
        rows_event(INSERT, TABLE_ID, 1, [1], row) for row in rows
    )
    decoder.add([one])
    taken = decoder.take()
    assert all(len(changes) <= 2 for changes in taken)
    assert [row.after for row in column_rows(taken)] == [[0], [1], [2], [3], [4]]


def test_many_tables(monkeypatch: pytest.MonkeyPatch) -> None:
    """More than are remembered."""
    monkeypatch.setattr("binlog_protocol.row_columns.decoder._KNOWN_MAX", 3)
    any_rows = AnyRows(1)
    decoder = RowDecoder()
    groups = []
    for number in range(10):
        map_ = table_map(TABLE_ID, number + 1)
        everything = (1 << number + 1) - 1
        rows = bytes((number + 8) // 8) + any_rows.rng.randbytes(number + 1)
        groups.append(map_ + rows_event(INSERT, TABLE_ID, number + 1, [everything], rows))
    for number, group in enumerate(groups + groups):
        decoder.add([group], number)
    assert len(decoder._tables) <= 3
    assert same(column_rows(decoder.take()), plain_rows(groups + groups))
    decoder.add(groups, 100)
    assert len(column_rows(decoder.take())) == len(groups)


ZERO_DATE = (column(T.DATE, 3), b"\0\0\0")
BIG = (column(T.LONGLONG, 8, unsigned=True), b"\xff" * 8)
LABELLED = column(T.SET, 1, labels=("x", "y"))
OF_BYTES = (b"a", b"\xe9", b"\xc3\xa9")
NO_TEXT = ("a", UndecodedText(b"\xe9", 45), UndecodedText(b"\xe9\xe9", 45))
ALIKE = ("a", UndecodedText(b"\xe8", 45), UndecodedText(b"\xe9", 45))
BAD_TEXT = (column(T.VARCHAR, 9, collation=45), b"\2a\xff")
OLD_ZERO_DATE = (column(T.DATETIME, 8), bytes(8))

CHOICES = [
    (*ZERO_DATE, {"zero_date": "null"}, None),
    (*ZERO_DATE, {"zero_date": "string"}, "0000-00-00"),
    (*OLD_ZERO_DATE, {"zero_date": "null"}, None),
    (column(T.TIME2, digits=1), b"\x7f\xff\xff\xce", {"time": "interval"}, -datetime.timedelta(milliseconds=500)),
    (column(T.TIME2, digits=1), b"\x7f\xff\xff\xce", {"time": "micros"}, -500_000),
    (column(T.TIME2, digits=1), b"\x7f\xff\xff\xce", {"time": "string"}, "-00:00:00.5"),
    (column(T.TIME, 3), b"\x01\0\0", {"time": "micros"}, 1_000_000),
    (*BIG, {"unsigned_bigint": "decimal"}, 2**64 - 1),
    (*BIG, {"unsigned_bigint": "string"}, str(2**64 - 1)),
    (column(T.LONGLONG, 8, unsigned=True), b"\xff" * 7 + b"\x7f", {"unsigned_bigint": "long"}, 2**63 - 1),
    (column(T.BIT, 1, 1), b"\1", {"bit1": "boolean"}, True),
    (column(T.BIT, 1, 1), b"\1", {"bit1": "long"}, 1),
    (LABELLED, b"\3", {"set_labels": "array"}, ["x", "y"]),
    (LABELLED, b"\3", {"set_labels": "string"}, "x,y"),
    (column(T.ENUM, 1, labels=OF_BYTES), b"\2", {}, b"\xe9"),
    (column(T.ENUM, 1, labels=OF_BYTES), b"\3", {"bad_text": "error"}, b"\xc3\xa9"),
    (column(T.ENUM, 1, labels=OF_BYTES), b"\0", {}, b""),
    (column(T.SET, 1, labels=OF_BYTES), b"\6", {}, b"\xe9,\xc3\xa9"),
    (column(T.SET, 1, labels=OF_BYTES), b"\0", {}, b""),
    (column(T.SET, 1, labels=OF_BYTES), b"\6", {"set_labels": "array"}, [b"\xe9", b"\xc3\xa9"]),
    (column(T.ENUM, 1, labels=NO_TEXT), b"\2", {}, "\ufffd"),
    (column(T.ENUM, 1, labels=NO_TEXT), b"\3", {}, "\ufffd\ufffd"),
    (column(T.ENUM, 1, labels=NO_TEXT), b"\1", {"bad_text": "error"}, "a"),
    (column(T.ENUM, 1, labels=NO_TEXT), b"\1", {"bad_text": "binary"}, 1),
    (column(T.ENUM, 1, labels=ALIKE), b"\3", {}, 3),
    (column(T.SET, 1, labels=NO_TEXT), b"\3", {}, "a,\ufffd"),
    (column(T.SET, 1, labels=ALIKE), b"\6", {}, 6),
    (column(T.SET, 1, labels=ALIKE), b"\1", {"bad_text": "error"}, "a"),
    (*BAD_TEXT, {"bad_text": "replace"}, "a\ufffd"),
    (*BAD_TEXT, {"bad_text": "binary"}, b"a\xff"),
]  # fmt: skip


@pytest.mark.parametrize(("col", "value", "options", "expected"), CHOICES)
def test_options(col: TableColumn, value: bytes, options: dict[str, str], expected: Any) -> None:
    assert one_value(col, value, **options) == expected


@pytest.mark.parametrize(
    ("col", "value", "options"),
    [
        (*ZERO_DATE, {"zero_date": "error"}),
        (*OLD_ZERO_DATE, {"zero_date": "error"}),
        (*BIG, {"unsigned_bigint": "long"}),
        (*BAD_TEXT, {"bad_text": "error"}),
        (column(T.ENUM, 1, labels=NO_TEXT), b"\2", {"bad_text": "error"}),
        (column(T.SET, 1, labels=NO_TEXT), b"\2", {"bad_text": "error"}),
    ],
)
def test_errors_that_were_asked_for(
    col: TableColumn, value: bytes, options: dict[str, str]
) -> None:
    """They name the column, and what to choose instead."""
    (option,) = options
    with pytest.raises(UnrepresentableValue, match=rf"column d\.t\.c holds .*{option}="):
        one_value(col, value, **options)


def test_columns_that_are_not_picked_are_not_looked_at() -> None:
    wide = column(T.LONGLONG, 8, unsigned=True)
    row = b"\0" + b"\xff" * 8 + b"\5\0\0\0" + b"\xff" * 8
    group = table_map(TABLE_ID, 3) + rows_event(INSERT, TABLE_ID, 3, [7], row * 2)
    columns = of(wide, INT, replace(wide, name="d"))
    decoder = RowDecoder(ColumnOptions(unsigned_bigint="long"), columns, lambda table: {1})
    decoder.add([group])
    (changes,) = decoder.take()
    assert changes.after is not None
    assert changes.after.to_pylist() == [{"c": None, "n": 5, "d": None}] * 2
    assert changes.after_present == (0, 1, 2)


def test_names_that_are_no_utf8() -> None:
    """Of the table map they come with surrogates."""
    decoder = RowDecoder(prepare=of(replace(INT, name="n\udcff")))
    decoder.add([inserted(bytes(4))])
    (changes,) = decoder.take()
    assert changes.after is not None
    assert changes.after.schema.names == ["n\ufffd"]


def test_schema_without_rows() -> None:
    table = TableMap(
        1, 0, "d", "t", (INT, replace(INT, name=None), column(T.NEWDECIMAL, 0, 65, 38))
    )
    schema = arrow_schema(table, ColumnOptions())
    assert [(f.name, str(f.type)) for f in schema] == [
        ("n", "int32"),
        ("@2", "int32"),
        ("c", "string"),
    ]
