"""Groups of rows as 11.8 logs them: recorded bytes, images, cuts. tests/integration/rows compares whole scripts."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from binlog_protocol.errors import BadValue
from binlog_protocol.events.event_type import EventType
from binlog_protocol.events.gtid import GtidEvent, GtidFlags
from binlog_protocol.events.header import split_events
from binlog_protocol.events.query import QueryEvent
from binlog_protocol.events.rows import ROWS_TYPES, ChangeKind, RowsEvent, RowsFlags
from binlog_protocol.events.table_map import RowMetadata, TableMap
from binlog_protocol.groups.event_group import EventGroup, EventGroupAssembler
from binlog_protocol.groups.group_check import check_groups
from binlog_protocol.groups.statement_group import Origin
from binlog_protocol.gtid import Gtid
from binlog_protocol.tables.row_format import RowFormat
from binlog_protocol.tables.row_group import (
    GroupKind,
    LoggedTable,
    Part,
    QuickRows,
    RowGroup,
    RowImage,
    RowLogging,
    RowStatement,
    TableChange,
)

from tests.protocol.tables.shop import col, key, table

ORIGIN = Origin(server_id=31118, database=b"test")
GTID = Gtid(0, 31118, 1724)
FORMAT = RowFormat(
    table(
        col("a", "int(11)", nullable=False),
        col("b", "varchar(20)"),
        col("c", "blob"),
        keys=(key(0),),
    )
)
T = LoggedTable(FORMAT, 7)
MYISAM = LoggedTable(FORMAT, 8, is_transactional=False)
OLD, NEW = FORMAT.row((1, "x", b"old")), FORMAT.row((1, "y", b"old"))
A, M, W, U, D, X, Q, G = 160, 19, 23, 24, 25, 16, 2, 162


def types(payload: bytes) -> list[int]:
    return [event[4] for event in split_events(payload)]


def rows_of(payload: bytes) -> list[RowsEvent]:
    return [RowsEvent.parse(event) for event in split_events(payload) if event[4] in ROWS_TYPES]


def group(*changes: TableChange, **more: object) -> RowGroup:
    return RowGroup(ORIGIN, GTID, (RowStatement.of(changes, b"text"),), **more)  # type: ignore[arg-type]


def test_a_group_as_it_was_recorded() -> None:
    """insert into y1 values(50,'z'): without checksums and positions."""
    definition = table(col("a", "int(11)", nullable=False), col("b", "varchar(20)", 2304))
    rows = RowFormat(type(definition)("test", "y1", definition.columns))
    logged = LoggedTable(rows, 0x45)
    when = 0x6B02B767
    change = TableChange(logged, None, rows.row((50, "z")))
    statement = RowStatement.of((change,), b"insert into y1 values(50,'z')", when)
    logging = RowLogging(metadata=RowMetadata.NO_LOG)
    made = RowGroup(ORIGIN, GTID, (statement,), xid=397, timestamp=when, logging=logging)
    heads = ["a28e79000026000000000000000800", "a08e79000030000000000000000000"]
    assert made.build().hex() == "".join(
        (
            "67b7026b" + heads[0] + "bc06000000000000000000000c" + "00" * 6,
            "67b7026b" + heads[1] + b"insert into y1 values(50,'z')".hex(),
            "67b7026b138e7900002c000000000000000000",
            "45000000000001000474657374000279310002030f02500002",
            "67b7026b178e79000024000000000000000000",
            "45000000000001000203fc32000000017a",
            "67b7026b108e7900001b0000000000000000008d01000000000000",
        )
    )


def test_statements_and_their_ends() -> None:
    insert, update = TableChange(T, None, OLD), TableChange(T, OLD, NEW)
    made = group(insert, insert, update, TableChange(T, NEW, None)).build()
    assert types(made) == [G, A, M, W, U, D, X]
    assert [rows.flags for rows in rows_of(made)] == [0, 0, 1]
    two = RowGroup(
        ORIGIN, GTID, [RowStatement.of([insert]), RowStatement.of([update])], commit_id=9
    )
    assert types(two.build()) == [G, M, W, M, U, X]
    assert [rows.flags for rows in rows_of(two.build())] == [1, 1]
    gtid = GtidEvent.parse(next(split_events(two.build())))
    assert (gtid.flags2, gtid.commit_id) == (0x0E, 9)


def test_tables_without_transactions() -> None:
    """Which groups there are, and their flags."""
    both = [TableChange(T, None, OLD), TableChange(MYISAM, None, OLD)]
    alone = group(*both).build()
    assert types(alone) == [G, A, M, W, M, W, X]
    assert [(rows.table_id, rows.flags) for rows in rows_of(alone)] == [(8, 1), (7, 1)]
    direct = group(*both, kind=GroupKind.DIRECT, part=Part.DIRECT).build()
    assert types(direct) == [G, A, M, W, Q]
    assert [rows.table_id for rows in rows_of(direct)] == [8]
    commit = QueryEvent.parse(list(split_events(direct))[-1])
    assert (commit.text, commit.header_flags, commit.database) == (b"COMMIT", 0x08, b"test")
    rest = group(*both, kind=GroupKind.AFTER_DIRECT, part=Part.TRANSACTIONAL).build()
    assert types(rest) == [G, A, M, W, X]
    flags = [GtidEvent.parse(next(split_events(raw))).flags2 for raw in (alone, direct, rest)]
    assert flags == [0x0C, 0x08, 0x08]
    waited = group(*both, flags=GtidFlags.WAITED, is_parallel=False).build()
    assert GtidEvent.parse(next(split_events(waited))).flags2 == 0x14


def test_create_select() -> None:
    made = b"".join(group(TableChange(T, None, OLD)).create_select(b"CREATE", is_empty=False))
    assert types(made) == [G, Q, A, M, W, X]
    empty = b"".join(group().create_select(b"CREATE", is_empty=True))
    assert types(empty) == [G, Q, Q]
    first = [GtidEvent.parse(next(split_events(raw))) for raw in (made, empty)]
    assert [(g.flags2, g.extra_engines) for g in first] == [(0x28, None), (0x28, 255)]


@pytest.mark.parametrize("kind", list(GroupKind))
def test_the_store_takes_them(kind: GroupKind) -> None:
    table_ = MYISAM if kind is GroupKind.DIRECT else T
    payload = group(
        TableChange(table_, None, OLD), TableChange(table_, OLD, NEW), kind=kind
    ).build()
    check_groups(payload, [len(payload)])
    assembler = EventGroupAssembler()
    found = [assembler.feed(event) for event in split_events(payload)]
    assert isinstance(found[-1], EventGroup)
    assert found[-1].payload == payload


IMAGES: list[tuple[RowImage, int, int, int, int, int]] = [
    # INSERT of (a, b); UPDATE of b before, after; UPDATE of c after; DELETE
    (RowImage.FULL, 0b111, 0b111, 0b111, 0b111, 0b111),
    (RowImage.MINIMAL, 0b011, 0b001, 0b010, 0b100, 0b001),
    (RowImage.NOBLOB, 0b011, 0b011, 0b011, 0b111, 0b011),
    (RowImage.FULL_NODUP, 0b111, 0b111, 0b010, 0b100, 0b111),
]


@pytest.mark.parametrize(("image", "insert", "before", "after", "blob", "delete"), IMAGES)
def test_images(
    image: RowImage, insert: int, before: int, after: int, blob: int, delete: int
) -> None:
    blob_row = FORMAT.row((1, "x", b"new"))
    changes = (
        TableChange(T, None, OLD, 0b011),
        TableChange(T, OLD, NEW),
        TableChange(T, OLD, blob_row),
        TableChange(T, OLD, None),
    )
    payload = group(*changes, logging=RowLogging(image)).build()
    found = [(rows.present, rows.present_after) for rows in rows_of(payload)]
    updates = [(before, after), (before, blob)]
    if after == blob:  # one event of both rows
        updates = updates[:1]
    assert found == [(insert, insert), *updates, (delete, delete)]
    logged = next(TableMap.parse(e) for e in split_events(payload) if e[4] == EventType.TABLE_MAP)
    assert sum(len(list(rows.rows(logged))) for rows in rows_of(payload)) == 4


def test_without_a_key_the_row_is_logged_whole() -> None:
    rows = RowFormat(table(col("a", "int(11)"), col("c", "blob")))
    logged = LoggedTable(rows, 1)
    change = TableChange(logged, rows.row((1, b"x")), rows.row((2, b"x")))
    for image in (RowImage.MINIMAL, RowImage.NOBLOB):
        payload = group(change, logging=RowLogging(image)).build()
        assert [rows.present for rows in rows_of(payload)] == [0b11]


def sizes(changes: Sequence[TableChange], limit: int) -> list[int]:
    payload = group(*changes, logging=RowLogging(event_size_max=limit)).build()
    return [len(rows.body) for rows in rows_of(payload)]


def test_rows_are_cut_at_the_limit() -> None:
    """Head of 8 bytes, the number of columns and a bitmap; rows of 20 bytes."""
    row = FORMAT.row((1, "x" * 11, b""))
    assert len(row) == 19
    changes = [TableChange(T, None, row)] * 5
    assert sizes(changes, 10 + 2 * 19) == [38, 38, 19]
    assert sizes(changes, 10 + 2 * 19 - 1) == [19] * 5
    assert sizes(changes, 1) == [19] * 5


def test_nothing_changed_is_not_logged() -> None:
    with pytest.raises(BadValue):
        RowGroup(ORIGIN, GTID, ()).build()
    with pytest.raises(BadValue):
        RowGroup(ORIGIN, GTID, [RowStatement((), (T,))]).build()


@pytest.mark.parametrize("commit_id", [None, 0, 9_000_000_000])
@pytest.mark.parametrize("kind", list(ChangeKind))
def test_one_row_quickly(kind: ChangeKind, commit_id: int | None) -> None:
    """Byte by byte what the long way makes."""
    before = None if kind is ChangeKind.INSERT else OLD
    after = None if kind is ChangeKind.DELETE else NEW
    logging = RowLogging(conditions=RowsFlags.NO_FOREIGN_KEY_CHECKS)
    quick = QuickRows(3, ORIGIN, logging, T, kind)
    for number, text in ((1, b""), (1 << 40, b"UPDATE y1 SET b = 'y'")):
        statement = RowStatement(
            (TableChange(T, before, after),), (T,), text or b"?", 1_800_000_000
        )
        made = RowGroup(
            ORIGIN,
            Gtid(3, ORIGIN.server_id, number),
            (statement,),
            xid=number,
            commit_id=commit_id,
            timestamp=1_800_000_000,
            logging=logging,
        )
        images = (before or b"") + (after or b"")
        assert quick.build(number, 1_800_000_000, text or b"?", images, commit_id) == made.build()
