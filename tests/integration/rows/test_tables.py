"""Tables as `binlog_protocol.tables` has them, against real servers.

Types, definitions, rows, checksums and the order of text: what ours says, the server says.
"""

from __future__ import annotations

import base64
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pymysql
import pytest
from binlog_protocol.errors import ServerError
from binlog_protocol.events.charsets import BINARY_COLLATION, encode_text
from binlog_protocol.events.format_description import FormatDescription
from binlog_protocol.events.header import (
    END_POSITION_OFFSET,
    FLAGS_OFFSET,
    EventHeader,
    split_events,
)
from binlog_protocol.events.rows import ROWS_TYPES, ChangeKind, RowsEvent
from binlog_protocol.events.table_map import KeyPart, RowMetadata, TableMap
from binlog_protocol.groups.statement_group import Origin
from binlog_protocol.gtid import Gtid
from binlog_protocol.tables import uca1400
from binlog_protocol.tables.collation import collation_key, is_comparable
from binlog_protocol.tables.definition import (
    PRIMARY,
    KeyKind,
    StoredColumn,
    StoredKey,
    StoredTable,
)
from binlog_protocol.tables.row_format import CHECKSUM_MODULUS, RowFormat
from binlog_protocol.tables.row_group import (
    LoggedTable,
    RowGroup,
    RowImage,
    RowLogging,
    RowStatement,
    TableChange,
)
from binlog_protocol.tables.sql_type import SqlType

from binlog_server.testing.mariadb import MariaDB
from tests.integration.rows.test_values import SESSION, create, insert, raw_connection, tables
from tests.integration.rows.type_cases import cases_of
from tests.integration.rows.upstream_rows import groups_after
from tests.kit.backends import Backend
from tests.kit.fixtures import MakeMariaDB

pytestmark = [pytest.mark.each_version, pytest.mark.by_turns(2)]

COLUMNS = """SELECT c.*, k.ID AS collation_id FROM information_schema.columns c
    LEFT JOIN information_schema.collation_character_set_applicability k
    ON k.full_collation_name = c.collation_name AND k.character_set_name = c.character_set_name
    WHERE c.table_schema = %s AND c.table_name = %s ORDER BY c.ordinal_position"""
WITHOUT_END = slice(END_POSITION_OFFSET, FLAGS_OFFSET)


def definition_of(server: MariaDB, database: str, name: str) -> StoredTable:
    """The definition of a table of a server, its primary key by `id`; generated columns are not taken."""
    columns = []
    for row in server.q(COLUMNS, database, name):
        said = {key.lower(): value for key, value in row.items()}
        type_ = SqlType.parse(said["column_type"])
        collation = said["collation_id"] if type_.is_text else None
        columns.append(
            StoredColumn(
                said["column_name"],
                type_,
                said["is_nullable"] == "YES",
                collation or BINARY_COLLATION,
                said["column_default"],
            )
        )
        assert str(type_) == said["column_type"]
    key = StoredKey(PRIMARY, KeyKind.PRIMARY, (KeyPart(0, 0),))
    return StoredTable(database, name, tuple(columns), (key,))


def cut(event: bytes) -> bytes:
    """An event but for its position."""
    return event[: WITHOUT_END.start] + event[WITHOUT_END.stop :]


def checksum(row_format: RowFormat, rows: Sequence[bytes]) -> int:
    return sum(row_format.checksum(row_format.split(row)) for row in rows) % CHECKSUM_MODULUS


@pytest.mark.parametrize("metadata", [RowMetadata.MINIMAL, RowMetadata.FULL])
def test_every_type_is_logged_as_the_server_logs_it(
    backend: Backend, make_upstream: MakeMariaDB, metadata: RowMetadata
) -> None:
    """From the definition and the values: the same table maps, the same row events, the same checksum."""
    upstream = make_upstream(f"--binlog-row-metadata={metadata.value}")
    cases = cases_of(backend.version)
    with raw_connection(upstream) as connection, connection.cursor() as cursor:
        cursor.execute(SESSION)
        cursor.execute("CREATE DATABASE d")
        for name, some in tables(cases):
            cursor.execute(create(name, some))
            insert(cursor, name, some)
    logged: dict[str, tuple[RowFormat, LoggedTable, list[bytes]]] = {}
    for group in groups_after(upstream, ""):
        events = list(split_events(group.payload))
        maps = [TableMap.parse(event) for event in events if event[4] == 19]
        if not maps:
            continue
        table = maps[0]
        if table.table not in logged:
            row_format = RowFormat(definition_of(upstream, "d", table.table))
            logged[table.table] = row_format, LoggedTable(row_format, table.table_id), []
        row_format, mine, rows = logged[table.table]
        map_event = next(event for event in events if event[4] == 19)
        header = EventHeader.parse(map_event)
        made = mine.map.build(header.server_id, metadata, timestamp=header.timestamp)
        assert cut(made) == cut(map_event), row_format.definition
        rows_event = RowsEvent.parse(next(event for event in events if event[4] in ROWS_TYPES))
        (change,) = rows_event.rows(mine.map)
        assert change.after is not None
        row = row_format.row(change.after)  # type: ignore[arg-type]
        assert row == rows_event.body
        assert row_format.values(row) == change.after
        rows.append(row)
    sums = {name: checksum(row_format, rows) for name, (row_format, _, rows) in logged.items()}
    assert len(sums) == len(list(tables(cases)))
    assert sums == {name: upstream.checksum([f"d.{name}"])[f"d.{name}"] for name in sums}


TYPES = (
    "tinyint(4)", "smallint(5) unsigned", "mediumint(9)", "int(11)", "bigint(20) unsigned", "float", "double",
    "decimal(10,3)", "decimal(30,10)", "bit(1)", "bit(13)", "date", "datetime", "datetime(3)", "time(6)",
    "timestamp(2)", "year(4)", "char(5)", "char(100)", "binary(7)", "varchar(20)", "varchar(300)", "varbinary(20)",
    "text", "blob", "longtext", "enum('a','b','c')", "set('a','b','c','d')", "uuid", "inet4", "inet6",
)  # fmt: skip
COLLATIONS = {
    8: "latin1_swedish_ci",
    45: "utf8mb4_general_ci",
    46: "utf8mb4_bin",
    54: "utf16_general_ci",
}


def random_value(rng: random.Random, column: StoredColumn) -> str:
    """A value as a literal."""
    name, numbers = column.type.name, column.type.numbers
    if name.endswith("int"):
        return str(rng.choice((0, 1, rng.randrange(100))))
    if name in ("float", "double"):
        return repr(rng.choice((0.0, -1.5, rng.randrange(100) / 4)))
    if name == "decimal":
        return f"{rng.randrange(-999999, 999999)}.{rng.randrange(999):03}"
    if name == "bit":
        return str(rng.randrange(1 << numbers[0]))
    if name in ("date", "datetime", "timestamp"):
        clock = f" {rng.randrange(24):02}:{rng.randrange(60):02}:00.5" if name != "date" else ""
        return f"'{rng.randrange(1990, 2030)}-{rng.randrange(1, 13):02}-{rng.randrange(1, 29):02}{clock}'"
    if name == "time":
        return f"'{rng.choice(('', '-'))}{rng.randrange(800)}:10:11.25'"
    if name == "year":
        return str(rng.randrange(1901, 2155))
    if name in ("enum", "set"):
        return f"'{rng.choice('abc')}'"
    if name == "uuid":
        version = rng.choice("14")
        return (
            f"'{rng.randrange(1 << 32):08x}-12d3-{version}456-a426-{rng.randrange(1 << 48):012x}'"
        )
    if name == "inet4":
        return f"'{rng.randrange(256)}.0.{rng.randrange(256)}.0'"
    if name == "inet6":
        return f"'2001:db8::{rng.randrange(1 << 16):x}'"
    if column.type.is_text:
        size = min(5, numbers[0] if numbers else 5)
        return "'" + "".join(rng.choices("abAB \u00e9\u00e4", k=rng.randrange(size + 1))) + "'"
    return f"x'{rng.randbytes(rng.randrange(7)).hex()}'"


def random_table(rng: random.Random, name: str) -> StoredTable:
    columns = [StoredColumn("id", SqlType.parse("int(11)"), nullable=False)]
    for n in range(rng.randrange(1, 7)):
        type_ = SqlType.parse(rng.choice(TYPES))
        collation = rng.choice(list(COLLATIONS)) if type_.is_text else BINARY_COLLATION
        columns.append(StoredColumn(f"c{n}", type_, rng.random() < 0.6, collation))
    key = StoredKey(PRIMARY, KeyKind.PRIMARY, (KeyPart(0, 0),))
    return StoredTable("d", name, tuple(columns), (key,))


def ddl(table: StoredTable, database: str = "d") -> str:
    columns = []
    for column in table.columns:
        text = f"{column.name} {column.type}"
        if column.type.is_text:
            collation = COLLATIONS[column.collation]
            text += f" CHARACTER SET {collation.partition('_')[0]} COLLATE {collation}"
        columns.append(text + (" NULL" if column.nullable else " NOT NULL"))
    columns.append("PRIMARY KEY (id)")
    return f"CREATE TABLE {database}.{table.name} ({', '.join(columns)})"


def binlog_statement(events: Sequence[bytes]) -> str:
    return f"BINLOG '{' '.join(base64.b64encode(event).decode() for event in events)}'"


def test_random_tables_filled_by_our_events(
    backend: Backend, make_upstream: MakeMariaDB, rng: random.Random
) -> None:
    """INSERT, UPDATE and DELETE events of ours, of every image, give a server the rows that we say it has."""
    server = make_upstream("--binlog-row-metadata=FULL", "--default-time-zone=+00:00")
    server.q("CREATE DATABASE d")
    server.q("CREATE DATABASE e")
    images = [
        image
        for image in RowImage
        if backend.version != "10.11" or image is not RowImage.FULL_NODUP
    ]
    for number in range(24):
        table = random_table(rng, f"t{number}")
        row_format = RowFormat(table)
        logged = LoggedTable(row_format, number + 1)
        with server.connect(charset="utf8mb4") as connection, connection.cursor() as cursor:
            cursor.execute(ddl(table))
            cursor.execute(ddl(table, "e"))
            position = server.gtid_binlog_pos
            for n in range(9):  # in d by SQL: values of the server's own making
                values = [
                    "NULL" if c.nullable and rng.random() < 0.2 else random_value(rng, c)
                    for c in table.columns[1:]
                ]
                cursor.execute(
                    f"INSERT INTO d.{table.name} VALUES ({', '.join((str(n), *values))})"
                )
        rows = [row for row in rows_after(server, position, logged) if row is not None]
        assert len(rows) == 9
        assert checksum(row_format, rows) == server.checksum([f"d.{table.name}"])[f"d.{table.name}"]
        check_order(server, row_format, rows)
        # In e by events of ours: all inserted, the first of them changed into others, some deleted.
        mine = LoggedTable(
            RowFormat(StoredTable("e", table.name, table.columns, table.keys)), number + 1
        )
        changed = [
            row_format.joined((row_format.split(old)[0], *row_format.split(new)[1:]))
            for old, new in zip(rows[:4], rows[4:8], strict=True)
        ]
        every = (
            RowStatement.of([TableChange(mine, None, row) for row in rows]),
            RowStatement.of(
                [
                    TableChange(mine, old, new)
                    for old, new in zip(rows[:4], changed, strict=True)
                    if old != new
                ]
            ),
            RowStatement.of([TableChange(mine, row, None) for row in rows[7:]]),
        )
        statements = [statement for statement in every if statement.changes]
        logging = RowLogging(
            rng.choice(images), rng.choice(list(RowMetadata)), event_size_max=rng.choice((40, 8192))
        )
        apply(server, statements, logging)
        wanted = changed + rows[4:7]
        assert (
            checksum(row_format, wanted) == server.checksum([f"e.{table.name}"])[f"e.{table.name}"]
        ), logging


def check_order(server: MariaDB, row_format: RowFormat, rows: Sequence[bytes]) -> None:
    """ORDER BY of each column that may be in a key is the order of our keys; rows are numbered as they come."""
    name = row_format.definition.name
    for number, column in enumerate(row_format.definition.columns):
        if not column.type.is_long:
            key = StoredKey("k", KeyKind.PLAIN, (KeyPart(number, 0), KeyPart(0, 0)))
            keys = [row_format.key(row_format.split(row), key) for row in rows]
            said = [
                row["id"] for row in server.q(f"SELECT id FROM d.{name} ORDER BY {column.name}, id")
            ]
            assert sorted(range(len(rows)), key=keys.__getitem__) == said, (column, keys)


def apply(server: MariaDB, statements: Sequence[RowStatement], logging: RowLogging) -> None:
    group = RowGroup(Origin(1), Gtid(0, 1, 1), statements, logging=logging)
    about = FormatDescription.artificial("11.8.6-MariaDB", 1).build()
    events = [event for event in group.events() if event[4] in ROWS_TYPES or event[4] == 19]
    with server.connect() as connection, connection.cursor() as cursor:
        cursor.execute(binlog_statement([about]))
        batch: list[bytes] = []
        for event in events:
            batch.append(event)
            if event[4] in ROWS_TYPES and RowsEvent.parse(event).ends_statement:
                cursor.execute(binlog_statement(batch))
                batch = []


def rows_after(server: MariaDB, position: str, table: LoggedTable) -> Iterator[bytes]:
    """The rows that were inserted, as the server logged them; the values decoded and made anew are the same bytes."""
    for group in groups_after(server, position):
        for event in split_events(group.payload):
            if event[4] == 19:
                logged = TableMap.parse(event)
                assert [c.layout for c in logged.columns] == [c.layout for c in table.map.columns]
                logged = replace(table.map, table_id=logged.table_id)
            elif event[4] in ROWS_TYPES:
                rows = RowsEvent.parse(event)
                assert rows.kind is ChangeKind.INSERT
                for change in rows.rows(logged):
                    assert change.after is not None
                    made = table.format.row(change.after)  # type: ignore[arg-type]
                    assert made in rows.body
                    yield made


def test_row_events_are_cut_where_the_server_cuts_them(
    backend: Backend, make_upstream: MakeMariaDB
) -> None:
    upstream = make_upstream("--binlog-row-metadata=FULL", "--binlog-row-event-max-size=1024")
    upstream.script(
        "CREATE DATABASE d",
        "CREATE TABLE d.t (id INT PRIMARY KEY, a VARCHAR(2000) CHARACTER SET latin1, b BLOB)",
    )
    position = upstream.gtid_binlog_pos
    upstream.script(
        "USE d",
        "INSERT INTO d.t SELECT seq, REPEAT('x', seq * 7 % 101), NULL FROM d.t RIGHT JOIN"
        " (SELECT seq FROM seq_1_to_200) s ON 0",
        "UPDATE d.t SET a = CONCAT(a, 'y'), b = IF(id % 3, NULL, 'blob')",
        "DELETE FROM d.t WHERE id % 5",
        "INSERT INTO d.t VALUES (1001, REPEAT('z', 1500), ''), (1002, '', ''), (1003, NULL, NULL)",
    )
    table = LoggedTable(RowFormat(definition_of(upstream, "d", "t")), 1)
    logging = RowLogging(event_size_max=1024)
    groups = groups_after(upstream, position)
    assert len(groups) == 4
    for group in groups:
        events = [RowsEvent.parse(e) for e in split_events(group.payload) if e[4] in ROWS_TYPES]
        changes = []
        for event in events:
            logged = TableMap(event.table_id, 1, "d", "t", table.map.columns)
            for change in event.rows(logged):
                before, after = (
                    None if image is None else table.format.row(image)  # type: ignore[arg-type]
                    for image in change
                )
                changes.append(TableChange(table, before, after))
        made = RowStatement.of(changes).events(Origin(1), logging)
        mine = [RowsEvent.parse(event) for event in made if event[4] in ROWS_TYPES]
        assert [(e.kind, e.flags, e.body) for e in mine] == [
            (e.kind, e.flags, e.body) for e in events
        ]


ORDERED = (
    "latin1_swedish_ci", "latin1_bin", "ascii_general_ci", "utf8mb3_general_ci", "utf8mb4_general_ci", "utf8mb4_bin",
    "utf16_general_ci", "utf16_bin", "utf32_bin", "utf16le_general_ci", "cp1251_bin", "utf8mb4_general_nopad_ci",
    "utf8mb4_nopad_bin", "latin1_swedish_nopad_ci", "utf8mb3_uca1400_ai_ci", "utf8mb4_uca1400_ai_ci",
)  # fmt: skip
SPECIAL = " \t\x01\x1f!0aAbB~\x7f"


@pytest.mark.by_turns(3)
@pytest.mark.parametrize("collation", ORDERED)
def test_order_of_random_text(backend: Backend, make_upstream: MakeMariaDB, collation: str) -> None:
    """Random pairs: equal, smaller or greater as the server says."""
    rng = random.Random(collation)
    server = make_upstream("--skip-log-bin")
    charset = collation.partition("_")[0]
    number = server.value(
        "SELECT MAX(id) FROM information_schema.collation_character_set_applicability WHERE full_collation_name = %s",
        collation,
    )
    assert is_comparable(number)
    texts = [random_text(rng, number) for _ in range(600)]
    pairs = [(one, other) for one in texts for other in rng.sample(texts, 3)]
    sql = ", ".join(
        f"STRCMP(_{charset} x'{one.hex()}' COLLATE {collation}, _{charset} x'{other.hex()}' COLLATE {collation})"
        for one, other in pairs
    )
    with (
        server.connect(cursorclass=pymysql.cursors.Cursor) as connection,
        connection.cursor() as cursor,
    ):
        cursor.execute(f"SELECT {sql}")
        (said,) = cursor.fetchall()
    for (one, other), sign in zip(pairs, said, strict=True):
        keys = collation_key(one, number), collation_key(other, number)
        assert (keys[0] > keys[1]) - (keys[0] < keys[1]) == sign, (one, other)


def random_text(rng: random.Random, collation: int) -> bytes:
    """Mostly of few characters, so that there are equal ones."""
    alphabet = rng.choice(
        (
            SPECIAL,
            "aA ",
            "a\u00e4\u00c4 \u00dfs",
            "\u0436\u0416\u044f\u0306\u0334",
            "\u00ad\0a \t",
            "\u0cc6\u0cc2\u0cd5\u0fb2\u0f71\u0f80\u09c7\u09be",
            "\u4e00\u3400\uac00\u1100\u1161\ufa0e\ufdfa",
            "\uff21\uff41\u2170\U0001f600\U0001f601",
        )
    )
    try:
        return encode_text("".join(rng.choices(alphabet, k=rng.randrange(5))), collation)
    except ValueError:
        return encode_text("".join(rng.choices(SPECIAL, k=rng.randrange(5))), collation)


def test_weights_of_all_characters(backend: Backend, make_upstream: MakeMariaDB) -> None:
    """Each character of the table of utf8mb4_general_ci, and each byte of latin1_swedish_ci."""
    server = make_upstream("--skip-log-bin")
    server.q("CREATE DATABASE d")
    query = (
        "SELECT HEX(WEIGHT_STRING(CONVERT(CAST(UNHEX(LPAD(HEX(seq), 8, '0')) AS CHAR CHARACTER SET utf32)"
        " USING utf8mb4) COLLATE utf8mb4_general_ci)) FROM seq_0_to_66000"
    )
    with (
        server.connect(database="d", cursorclass=pymysql.cursors.Cursor) as connection,
        connection.cursor() as cursor,
    ):
        cursor.execute(query)
        for code, (weight,) in enumerate(cursor.fetchall()):
            if 0xD800 <= code < 0xE000 or code == ord(" "):
                continue
            wanted = chr(int(weight, 16)).encode() + b" 1"
            assert collation_key(chr(code).encode(), 45) == wanted, hex(code)
        cursor.execute(
            "SELECT HEX(WEIGHT_STRING(CAST(UNHEX(LPAD(HEX(seq), 2, '0')) AS CHAR CHARACTER SET latin1)"
            " COLLATE latin1_swedish_ci)) FROM seq_33_to_255"
        )
        for byte, (weight,) in enumerate(cursor.fetchall(), 33):
            assert collation_key(bytes((byte,)), 8) == bytes.fromhex(weight) + b" 1"


def test_weights_of_uca1400(backend: Backend, make_upstream: MakeMariaDB) -> None:
    """Each contraction, and characters of each kind; `test_all_weights_of_uca1400` asks for all."""
    texts = [line.split()[0] for line in LINES if "_" in line]
    codes = [int(line.split()[0].split("-")[0], 16) for line in LINES[::20] if "_" not in line]
    codes += [0x4E00, 0x9FFF, 0xFA0E, 0xFA2A, 0x3400, 0x2A6DF, 0x2A6E0, 0x3134A, 0x3134B, 0xAC00]
    codes += [0x17000, 0x18AFF, 0x18B00, 0x18D8F, 0x18D90, 0x1B2FF, 0x1B300, 0xFFFF, 0x10FFFF]
    asked = [chr(code) for code in codes]
    asked += ["".join(chr(int(code, 16)) for code in text.split("_")) for text in texts]
    assert len(asked) > 1300
    server = make_upstream("--skip-log-bin")
    assert_weights(server, asked)


@pytest.mark.slow
def test_all_weights_of_uca1400(backend: Backend, make_upstream: MakeMariaDB) -> None:
    codes = [code for code in range(0x110000) if not 0xD800 <= code < 0xE000]
    assert_weights(make_upstream("--skip-log-bin"), list(map(chr, codes)))


LINES = (Path(uca1400.__file__).with_suffix(".txt")).read_text().splitlines()[7:]


def assert_weights(server: MariaDB, asked: list[str]) -> None:
    with (
        server.connect(cursorclass=pymysql.cursors.Cursor, charset="utf8mb4") as connection,
        connection.cursor() as cursor,
    ):
        for at in range(0, len(asked), 2000):
            part = asked[at : at + 2000]
            said = ", ".join(
                f"WEIGHT_STRING(_utf8mb4 x'{text.encode().hex()}' COLLATE utf8mb4_uca1400_ai_ci)"
                for text in part
            )
            cursor.execute(f"SELECT {said}")
            (found,) = cursor.fetchall()
            for text, weight in zip(part, found, strict=True):
                numbers = [
                    int.from_bytes(weight[i : i + 2], "big") for i in range(0, len(weight), 2)
                ]
                wanted = "".join(map(uca1400._character, numbers))
                assert uca1400.weights(text) == wanted, ascii(text)


def c(name: str, type_: str, **more: Any) -> StoredColumn:
    parsed = SqlType.parse(type_)
    return StoredColumn(name, parsed, collation=45 if parsed.is_text else BINARY_COLLATION, **more)


def t(
    *columns: StoredColumn, key: tuple[int, int] | None = None, kind: KeyKind = KeyKind.UNIQUE
) -> StoredTable:
    name = PRIMARY if kind is KeyKind.PRIMARY else "u"
    keys = () if key is None else (StoredKey(name, kind, (KeyPart(*key),)),)
    return StoredTable("d", "t", columns, keys)


TWICE = StoredKey("u", KeyKind.UNIQUE, (KeyPart(0, 0), KeyPart(0, 0)))
WIDE = tuple(f"c{n}" for n in range(1018))
DDL: list[tuple[str, Callable[[], object]]] = [
    ("(a INT, A INT)", lambda: t(c("a", "int"), c("A", "int"))),
    ("(`a ` INT)", lambda: t(c("a ", "int"))),
    (f"({'a' * 65} INT)", lambda: t(c("a" * 65, "int"))),
    ("(a CHAR(256))", lambda: c("a", "char(256)")),
    ("(a VARBINARY(65533))", lambda: c("a", "varbinary(65533)")),
    ("(a VARCHAR(16384))", lambda: c("a", "varchar(16384)")),
    ("(a DECIMAL(65,39))", lambda: c("a", "decimal(65,39)")),
    ("(a DECIMAL(66,0))", lambda: c("a", "decimal(66,0)")),
    ("(a DECIMAL(2,3))", lambda: c("a", "decimal(2,3)")),
    ("(a TIME(7))", lambda: c("a", "time(7)")),
    ("(a BIT(65))", lambda: c("a", "bit(65)")),
    ("(a ENUM('x','X'))", lambda: c("a", "enum('x','X')")),
    ("(a SET('x','X'))", lambda: c("a", "set('x','X')")),
    (f"(a SET({','.join(repr(str(n)) for n in range(65))}))",
     lambda: c("a", f"set({','.join(repr(str(n)) for n in range(65))})")),
    ("(a VARCHAR(9000), b VARCHAR(8000))", lambda: t(c("a", "varchar(9000)"), c("b", "varchar(8000)"))),
    ("(a INT, UNIQUE u (a(3)))", lambda: t(c("a", "int"), key=(0, 3))),
    ("(a CHAR(3), UNIQUE u (a(4)))", lambda: t(c("a", "char(3)"), key=(0, 4))),
    ("(a TEXT, PRIMARY KEY (a))", lambda: t(c("a", "text", nullable=False), key=(0, 0), kind=KeyKind.PRIMARY)),
    ("(a VARCHAR(769), PRIMARY KEY (a))",
     lambda: t(c("a", "varchar(769)", nullable=False), key=(0, 0), kind=KeyKind.PRIMARY)),
    ("(a INT, UNIQUE u (a, a))", lambda: StoredTable("d", "t", (c("a", "int"),), (TWICE,))),
    ("(a INT AUTO_INCREMENT)", lambda: t(c("a", "int", is_auto_increment=True))),
    (f"({' INT, '.join(WIDE)} INT)", lambda: t(*(c(name, "int") for name in WIDE))),
]  # fmt: skip


def test_definitions_are_refused_as_the_server_refuses_them(
    backend: Backend, make_upstream: MakeMariaDB
) -> None:
    server = make_upstream("--skip-log-bin")
    server.q("CREATE DATABASE d")
    differ = []
    for sql, make in DDL:
        said: tuple[Any, ...] = ()
        try:
            server.q(
                f"CREATE OR REPLACE TABLE d.t {sql} DEFAULT CHARSET utf8mb4 COLLATE utf8mb4_general_ci"
            )
        except pymysql.MySQLError as error:
            said = error.args
        with pytest.raises(ServerError) as refused:
            make()
        if said != (refused.value.errno, refused.value.message):
            differ.append((sql[:60], said, str(refused.value)))
    assert not differ
