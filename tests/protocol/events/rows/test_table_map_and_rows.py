"""TABLE_MAP and row events from their bytes; compressed events; what must be refused."""

from __future__ import annotations

import random
import time
import tracemalloc
import zlib
from collections.abc import Callable
from dataclasses import replace

import pytest
from binlog_protocol.errors import ProtocolError
from binlog_protocol.events.charsets import UndecodedText
from binlog_protocol.events.column_type import ColumnLayout, ColumnType
from binlog_protocol.events.compressed import compressed, plain_begin, uncompressed
from binlog_protocol.events.event_type import EventType
from binlog_protocol.events.header import HEADER_SIZE, build_event, split_events
from binlog_protocol.events.load_data import ExecuteLoadQuery, LoadPiece
from binlog_protocol.events.query import QueryEvent
from binlog_protocol.events.rows import ABSENT, ROWS_TYPES, ChangeKind, RowsEvent, RowsFlags
from binlog_protocol.events.statement_context import IntvarEvent, RandEvent, UserVarEvent
from binlog_protocol.events.status_variables import StatusVariables
from binlog_protocol.events.table_map import KeyPart, Label, TableMap

from tests.protocol.events.rows import samples

T = ColumnType

# CREATE TABLE x.t (id int unsigned primary key, t tinyint, ..) of 11.8 with binlog_row_metadata=FULL
FULL_MAP = bytes.fromhex(
    "170000000000010001780001740 01d030101040405 0d10f60a13fefe0ffcfcfefefcff8d8cfcfcfefefefe0f"
    "25040408 02010a0303fe28fe0a50000202f701f8010404910102030 1ce20fe10fe04fe100c00feffff0f"
    "0101aa031cfc00093ffc0009fc00093f2e3ffc00093f08fc0009fc00093f3f3f3f070101"
    "044b026964 0174027475 0166026675 0164 0179 0162 026463 026464 02746d 0163 026269 0176 027478 02626c"
    "0165 0173 016a 0167 027663 026263 016d 02746e 02636c 0175 026934 026936 03766563"
    "0a03fc0009 0505020178 0179 0605020161 0162 080100".replace(" ", "")
)


def event(type_: int, body: bytes) -> bytes:
    return build_event(type_, body, server_id=1)


def table_map(body: bytes) -> TableMap:
    return TableMap.parse(event(EventType.TABLE_MAP, body))


def test_table_map_with_full_metadata() -> None:
    table = table_map(FULL_MAP)
    assert (table.table_id, table.flags, table.database, table.table) == (23, 1, "x", "t")
    numbers, others = (
        ["id", "t", "tu", "f", "fu", "d", "y", "b", "dc"],
        ["dd", "tm", "c", "bi", "v", "tx", "bl"],
    )
    names = [
        *numbers,
        *others,
        "e",
        "s",
        "j",
        "g",
        "vc",
        "bc",
        "m",
        "tn",
        "cl",
        "u",
        "i4",
        "i6",
        "vec",
    ]
    assert [c.name for c in table.columns] == names
    by_name = {c.name: c for c in table.columns}
    assert [n for n in names if by_name[n].unsigned] == ["id", "tu", "fu", "y"]
    assert by_name["b"].unsigned is None
    assert by_name["b"].layout == ColumnLayout(T.BIT, 2, 10)
    assert by_name["dc"].layout == ColumnLayout(T.NEWDECIMAL, 0, 10, 3)
    assert by_name["cl"].layout == ColumnLayout(T.STRING, 800)
    assert by_name["cl"].collation == 2304
    assert by_name["m"].collation == 8
    assert by_name["bl"].collation == by_name["u"].collation == 63
    assert by_name["g"].geometry_type == 1
    assert by_name["e"].labels == ("a", "b")
    assert by_name["s"].labels == ("x", "y")
    assert by_name["e"].type == T.ENUM
    assert by_name["vec"].layout == ColumnLayout(T.VARCHAR, 12)
    assert [c.name for c in table.columns if not c.nullable] == ["id", "vec"]
    assert table.primary_key == (KeyPart(0, 0),)


def small_map(optional: bytes = b"") -> bytes:
    """(INT, VARCHAR(10), ENUM), all of which may be NULL."""
    return (
        (7).to_bytes(6, "little") + b"\1\0" + b"\1d\0" + b"\1t\0"
        + b"\3" + bytes((T.LONG, T.VARCHAR, T.STRING)) + b"\4" + b"\x0a\0" + bytes((T.ENUM, 1)) + b"\7" + optional
    )  # fmt: skip


def field(type_: int, value: bytes) -> bytes:
    return bytes((type_, len(value))) + value


def labels_of(collation: int, *labels: bytes) -> tuple[Label, ...] | None:
    said = bytes((len(labels),)) + b"".join(bytes((len(label),)) + label for label in labels)
    optional = field(6, said) + field(10, bytes((collation,)))
    return table_map(small_map(optional)).columns[2].labels


def test_optional_metadata_one_by_one() -> None:
    assert [c.unsigned for c in table_map(small_map(field(1, b"\x80"))).columns] == [
        True,
        None,
        None,
    ]
    assert table_map(small_map(field(2, b"\x08\0\x2d"))).columns[1].collation == 45
    assert table_map(small_map(field(2, b"\x08"))).columns[1].collation == 8
    assert table_map(small_map(field(3, b"\xfc\0\x09"))).columns[1].collation == 2304
    assert table_map(small_map(field(9, b"\1\5\0\0"))).primary_key == (KeyPart(1, 5), KeyPart(0, 0))
    labels = table_map(small_map(field(6, b"\2\1a\1\xe9") + field(10, b"\x08"))).columns[2].labels
    assert labels == ("a", "\u00e9")
    assert labels_of(63, b"a", b"\xe9", b"\xc3\xa9") == (b"a", b"\xe9", b"\xc3\xa9")
    assert labels_of(45, b"a", b"\xe9") == ("a", UndecodedText(b"\xe9", 45))
    assert labels_of(35, b"\0a", b"\xd8\0") == ("a", UndecodedText(b"\xd8\0", 35))
    assert table_map(small_map(field(99, b"anything"))) == table_map(small_map())


@pytest.mark.parametrize(
    "body",
    [
        small_map()[:-1],
        small_map(b"\1"),
        small_map(field(1, b"")),
        small_map(field(1, b"\x80\0")),
        small_map(field(2, b"\x08\5\x08")),  # a fifth character column
        small_map(field(6, b"\xfe" + b"\xff" * 8)),  # 2^64 labels
        small_map(field(8, b"\3")),  # a key on column 3 of 0..2
        small_map().replace(b"\1d\0", b"\1dx"),  # no NUL
        small_map().replace(b"\x0a\0" + bytes((T.ENUM, 1)), b"\x0a\0" + bytes((T.ENUM, 9))),
        small_map().replace(b"\3" + bytes((T.LONG,)), b"\3\xc8"),  # an unknown type
    ],
)
def test_table_maps_refused(body: bytes) -> None:
    with pytest.raises(ProtocolError):
        table_map(body)


def rows_event(
    type_: int, images: bytes, bitmaps: bytes = b"\7", flags: int = 1, table_id: int = 7
) -> bytes:
    body = table_id.to_bytes(6, "little") + flags.to_bytes(2, "little") + b"\3" + bitmaps + images
    return event(type_, body)


ROW = b"\x00" + b"\1\0\0\0" + b"\2ab" + b"\1"
NULLS = b"\x07"


def test_insert_update_delete() -> None:
    table = table_map(small_map())
    first, nulls = (1, b"ab"), (None, None, None)
    inserted = RowsEvent.parse(rows_event(23, ROW + NULLS, flags=0x87))
    assert inserted.kind is ChangeKind.INSERT
    assert inserted.ends_statement
    assert RowsFlags(inserted.flags) & RowsFlags.NO_CHECK_CONSTRAINT_CHECKS
    assert [(r.before, r.after and r.after[:2]) for r in inserted.rows(table)] == [
        (None, first),
        (None, (None, None)),
    ]
    (updated,) = RowsEvent.parse(rows_event(24, ROW + NULLS, b"\7\7")).rows(table)
    assert updated.before is not None
    assert updated.before[:2] == first
    assert updated.after == nulls
    (deleted,) = RowsEvent.parse(rows_event(25, NULLS)).rows(table)
    assert (deleted.before, deleted.after) == (nulls, None)


def test_partial_images() -> None:
    """binlog_row_image=MINIMAL: the bits of NULL count what is present."""
    table = table_map(small_map())
    images = b"\0\1\0\0\0" + b"\1"
    (row,) = RowsEvent.parse(rows_event(24, images, b"\1\2")).rows(table)
    assert row.before == (1, ABSENT, ABSENT)
    assert row.after == (ABSENT, None, ABSENT)
    assert repr(ABSENT) == "ABSENT"
    (empty,) = RowsEvent.parse(rows_event(23, b"", b"\0")).rows(table)
    assert empty.after == (ABSENT, ABSENT, ABSENT)


def compressed_event(plain: bytes, type_: int, head: int) -> bytes:
    data = plain[HEADER_SIZE + head :]
    body = (
        plain[HEADER_SIZE : HEADER_SIZE + head]
        + b"\x82"
        + len(data).to_bytes(2, "big")
        + zlib.compress(data)
    )
    return event(type_, body)


def test_compressed_events_become_plain() -> None:
    insert = rows_event(23, (ROW + NULLS) * 100)
    update = rows_event(24, (ROW + NULLS) * 100, b"\7\7")
    assert uncompressed(compressed_event(insert, 166, 10)) == insert
    assert uncompressed(compressed_event(update, 167, 11)) == update
    query = QueryEvent(b"INSERT " * 100, 1, b"db", b"\0\0\0\0\1").build()
    assert uncompressed(compressed_event(query, 165, 13 + 5 + 3)) == query
    assert uncompressed(query) is query
    assert RowsEvent.parse(compressed_event(insert, 166, 10)) == RowsEvent.parse(insert)


def test_events_become_compressed() -> None:
    insert = rows_event(23, (ROW + NULLS) * 100)
    update = rows_event(24, (ROW + NULLS) * 100, b"\7\7")
    query = QueryEvent(b"INSERT " * 100, 1, b"db", b"\0\0\0\0\1").build()
    for plain, type_ in ((insert, 166), (update, 167), (query, 165)):
        packed = compressed(plain)
        assert packed[4] == type_
        assert len(packed) < len(plain)
        assert uncompressed(packed) == plain
    assert compressed(compressed(query)) == compressed(query)
    assert uncompressed(compressed(QueryEvent(b"", 1).build())) == QueryEvent(b"", 1).build()


def test_files_of_load_data() -> None:
    for is_first, type_ in ((True, 17), (False, 9)):
        piece = LoadPiece(7, b"1\t2\n")
        event_ = piece.build(server_id=3, timestamp=4, is_first=is_first)
        assert event_[4] == type_
        assert LoadPiece.parse(event_) == piece
    query = QueryEvent(b"LOAD DATA INFILE 'x' INTO TABLE t", 3, b"d", b"\1" + bytes(8), timestamp=4)
    load = ExecuteLoadQuery(query, 7, 9, 25, 0)
    assert ExecuteLoadQuery.parse(load.build()) == load


def test_compression_bombs_are_not_unpacked() -> None:
    bomb = event(
        166, b"\7" + bytes(7) + b"\3\7" + b"\x84\x3f\xff\xff\xff" + zlib.compress(bytes(1 << 20))
    )
    began = time.thread_time()
    with pytest.raises(ProtocolError, match="say that they stand for"):
        uncompressed(bomb)
    assert time.thread_time() - began < 0.5
    honest = compressed_event(rows_event(23, NULLS * 5000), 166, 10)
    with pytest.raises(ProtocolError, match="say that they stand for"):
        uncompressed(honest, limit=4999)
    assert len(uncompressed(honest, limit=5000)) == HEADER_SIZE + 10 + 5000


@pytest.mark.long
def test_of_who_wants_the_beginning_no_more_is_unpacked() -> None:
    query = QueryEvent(b"XA COMMIT 'a' " + b" " * (50 << 20), 1, b"db").build()
    head = query[HEADER_SIZE : HEADER_SIZE + 13 + 3]
    data = query[HEADER_SIZE + len(head) :]
    bomb = event(165, head + b"\x84" + len(data).to_bytes(4, "big") + zlib.compress(data, 9))
    tracemalloc.start()
    try:
        begin = plain_begin(bomb)
        assert tracemalloc.get_traced_memory()[1] < 4 << 20
    finally:
        tracemalloc.stop()
    assert QueryEvent.parse(begin).text.startswith(b"XA COMMIT 'a'")
    assert plain_begin(query) is query


@pytest.mark.parametrize("type_", [30, 31, 32, 169, 170, 171])
def test_version_2_is_refused_by_name(type_: int) -> None:
    with pytest.raises(ProtocolError, match="version 2, which MariaDB does not write"):
        RowsEvent.parse(rows_event(type_, ROW))


@pytest.mark.parametrize(
    "make",
    [
        lambda: rows_event(23, ROW[:-1]),
        lambda: rows_event(23, ROW, table_id=8),
        lambda: rows_event(23, ROW + b"\0"),
        lambda: rows_event(24, ROW, b"\7\7"),
        lambda: event(23, b"\7" + bytes(7) + b"\0"),
        lambda: event(23, b"\7" + bytes(7) + b"\xfd\xff\xff\xff"),
        lambda: rows_event(23, b"x" * 50, b"\0"),
        lambda: event(EventType.QUERY, b""),
    ],
)
def test_row_events_refused(make: Callable[[], bytes]) -> None:
    with pytest.raises(ProtocolError):
        list(RowsEvent.parse(make()).rows(table_map(small_map())))


def test_with_columns_keeps_the_layout() -> None:
    table = table_map(small_map())
    labelled = [*table.columns[:2], replace(table.columns[2], labels=("a", "b"))]
    (row,) = RowsEvent.parse(rows_event(23, ROW)).rows(table.with_columns(labelled))
    assert row.after == (1, b"ab", "a")
    with pytest.raises(ValueError, match="differ"):
        table.with_columns(labelled[:2])


# --- whatever the bytes are: an error of ours, soon, or a value ---

READERS: dict[int, Callable[[bytes], object]] = {
    EventType.INTVAR: IntvarEvent.parse,
    EventType.RAND: RandEvent.parse,
    EventType.USER_VAR: UserVarEvent.parse,
    EventType.EXECUTE_LOAD_QUERY: ExecuteLoadQuery.parse,
    EventType.BEGIN_LOAD_QUERY: LoadPiece.parse,
    EventType.TABLE_MAP: TableMap.parse,
    EventType.QUERY: lambda e: StatusVariables.parse(QueryEvent.parse(e).status_variables),
    EventType.QUERY_COMPRESSED: uncompressed,
    **dict.fromkeys(ROWS_TYPES, RowsEvent.parse),
}
LIMIT = 1 << 20


def mutated(rng: random.Random, data: bytes) -> bytes:
    body = bytearray(data[HEADER_SIZE:])
    for _ in range(rng.choice((1, 1, 2, 8))):
        kind = rng.random()
        at = rng.randrange(len(body) + 1)
        if kind < 0.6 and body:
            body[at % len(body)] = rng.choice(
                (0, 1, 0x7F, 0x80, 0xFB, 0xFC, 0xFE, 0xFF, rng.randrange(256))
            )
        elif kind < 0.8:
            del body[at : at + rng.randrange(1, 9)]
        else:
            body[at:at] = rng.randbytes(rng.randrange(1, 9))
    return event(data[4], bytes(body))


def material() -> list[tuple[bytes, bytes]]:
    """Row events with the table map they belong to, and other events with an empty one."""
    found = []
    for name in samples.NAMES:
        current = b""
        for group in samples.groups(name):
            for each in split_events(group.payload):
                if each[4] == EventType.TABLE_MAP:
                    current = each
                if each[4] in READERS and len(each) < 4000:
                    found.append((current, each))
    return [*found, (b"", event(EventType.TABLE_MAP, FULL_MAP))]


@pytest.mark.long
def test_mutated_events_raise_nothing_else(rng: random.Random) -> None:
    events = material()
    refused = 0
    for _ in range(6000):
        table_bytes, whole = rng.choice(events)
        broken = mutated(rng, whole)
        try:
            if broken[4] in ROWS_TYPES:
                if rng.random() < 0.3:
                    table_bytes = mutated(rng, table_bytes)
                rows = RowsEvent.parse(broken, LIMIT)
                for _row in rows.rows(TableMap.parse(table_bytes)):
                    pass
            else:
                READERS[broken[4]](broken)
        except ProtocolError:
            refused += 1
    assert refused > 1000


def test_random_bodies_raise_nothing_else(rng: random.Random) -> None:
    for _ in range(4000):
        type_ = rng.choice(list(READERS))
        with_size = rng.randbytes(rng.randrange(120))
        try:
            READERS[type_](event(type_, with_size))
        except ProtocolError:
            continue


# CREATE TABLE d.v (id INT, c CHAR(20), l CHAR(255) CHARACTER SET utf8mb4, n CHAR(3), x BINARY(9), e ENUM('a','b')) of
# MyISAM with ROW_FORMAT=DYNAMIC, in a .frm file of the version before true VARCHAR; logged by 10.11. CHAR of four and
# more became `varchar(20)/*old*/`, which mariadb-binlog cannot show.
OLD_MAP = bytes.fromhex(
    "12000000000001000164000176000603fdfdfefdfe0afd14cdfcfe03fd09f7013f"
    "0101000304082d083f040d0269640163016c016e017801650a010806050201610162"
)
OLD_ROWS = bytes.fromhex(
    "1200000000000100063f"
    "c001000000036162630600c3a4c3b6c3bc0378797a0362696e02"
    "c202000000c800" + b"z".hex() * 200 + "000001"
)


def test_columns_from_before_true_varchar() -> None:
    table = table_map(OLD_MAP)
    assert [column.layout for column in table.columns] == [
        ColumnLayout(T.LONG, 4),
        ColumnLayout(T.VAR_STRING, 20),
        ColumnLayout(T.VAR_STRING, 1020),
        ColumnLayout(T.STRING, 3),
        ColumnLayout(T.VAR_STRING, 9),
        ColumnLayout(T.ENUM, 1),
    ]
    found = RowsEvent.parse(event(EventType.WRITE_ROWS_V1, OLD_ROWS)).rows(table)
    assert [change.after for change in found] == [
        (1, "abc", "äöü", "xyz", b"bin", "b"),
        (2, None, "z" * 200, "", b"", "a"),
    ]


@pytest.mark.parametrize("metadata", [b"\xfe\x14", b"\x0f\x14", b"\x14\x00"])
def test_old_strings_with_metadata_of_something_else(metadata: bytes) -> None:
    with pytest.raises(ProtocolError, match="of a column of type 253"):
        table_map(bytes(8) + b"\1d\0\1t\0" + b"\1\xfd" + b"\2" + metadata + b"\1")
