"""Change messages in Debezium's form; tests/integration/test_compare.py has those of a real MariaDB."""

from __future__ import annotations

import base64
import datetime
import hashlib
import json
import random
from collections.abc import Iterable, Sequence
from decimal import Decimal

import pytest
from binlog_protocol.errors import ProtocolError
from binlog_protocol.event_text import debezium_form
from binlog_protocol.event_text.choice import Choice
from binlog_protocol.event_text.column_rules import ColumnRules
from binlog_protocol.event_text.debezium_form import DebeziumForm, DebeziumOptions, Message
from binlog_protocol.event_text.debezium_values import (
    UNAVAILABLE,
    DecimalHandling,
    Invalid,
    debezium_value,
)
from binlog_protocol.events.charsets import UndecodedText
from binlog_protocol.events.column_type import ColumnType
from binlog_protocol.events.gtid import GtidEvent, GtidExtraFlags, GtidFlags, XaId
from binlog_protocol.events.query import QueryEvent
from binlog_protocol.events.rows import (
    ABSENT,
    Absent,
    EnumIndex,
    Geometry,
    RowsEvent,
    Value,
    ZeroDate,
    write_value,
)
from binlog_protocol.events.rows.rows_event import ChangeKind, image_bytes
from binlog_protocol.events.table_map import KeyPart, RowMetadata, TableColumn, TableMap
from binlog_protocol.events.xa_prepare import XaPrepareEvent
from binlog_protocol.events.xid import XidEvent
from binlog_protocol.gtid import Gtid
from hypothesis import given
from hypothesis import strategies as st

from tests.protocol.events.rows.test_row_values import column
from tests.protocol.events.rows.test_table_map_and_rows import mutated

T = ColumnType
UTC = datetime.UTC
BINARY, UTF8MB4 = 63, 45
NOW = 1_780_000_000.25
XA = XaId(1, b"x", b"")
TABLE = TableMap(
    9,
    1,
    "shop",
    "orders",
    (
        column(T.LONG, 4, name="id", unsigned=False),
        column(T.VARCHAR, 40, name="email", collation=UTF8MB4),
        column(T.LONG, 4, name="n", unsigned=False),
    ),
    (KeyPart(0, 0),),
)

Row = Sequence[Value | Absent]


def rows(
    kind: ChangeKind,
    *images: Row,
    table: TableMap = TABLE,
    metadata: RowMetadata = RowMetadata.FULL,
) -> list[bytes]:
    """A table map, and a row event; of an UPDATE the images come in pairs."""
    present = [sum(1 << i for i, v in enumerate(image) if v is not ABSENT) for image in images[:2]]
    bitmaps = [present[0], present[-1]]
    body = b""
    for n, image in enumerate(images):
        values = [
            None if value is None or isinstance(value, Absent) else write_value(col, value)
            for value, col in zip(image, table.columns, strict=True)
        ]
        body += image_bytes(values, bitmaps[n % 2 if kind is ChangeKind.UPDATE else 0])
    event = RowsEvent(kind, table.table_id, 1, len(table.columns), bitmaps[0], bitmaps[1], body)
    return [table.build(1, metadata, timestamp=1000), event.build(1, timestamp=1000)]


def gtid(seq_no: int = 7, flags: int = GtidFlags.TRANSACTIONAL, **more: object) -> bytes:
    return GtidEvent(Gtid(0, 1, seq_no), flags, **more).build()  # type: ignore[arg-type]


def text(sql: str, error_code: int = 0) -> bytes:
    return QueryEvent(sql.encode(), 1, b"shop", error_code=error_code, timestamp=1000).build()


def form(choice: Choice | None = None, **options: object) -> DebeziumForm:
    made = DebeziumOptions(**{"prefix": "p", **options})  # type: ignore[arg-type]
    return DebeziumForm(choice or Choice(), made, lambda: NOW, "1.2.3")


def transaction(*events: bytes, seq_no: int = 7) -> list[bytes]:
    return [gtid(seq_no), *events, XidEvent(9, 1).build()]


def told(*events: bytes, choice: Choice | None = None, **options: object) -> list[Message]:
    return list(form(choice, **options).group(transaction(*events), "f", 5))


def shapes(messages: Iterable[Message]) -> list[tuple[str, object, object, object]]:
    """Topic and key, and of a change its kind with the row behind it."""
    found: list[tuple[str, object, object, object]] = []
    for topic, key, value, _ in messages:
        op = None if value is None else value.get("op", value.get("status", value.get("ddl")))
        row = None if value is None else value.get("after") or value.get("before")
        found.append((topic, key, op, row))
    return found


VALUES: list[tuple[TableColumn, Value, object]] = [
    (column(T.TINY, 1), -1, -1),
    (column(T.LONGLONG, 8, unsigned=True), 2**64 - 1, 2**64 - 1),
    (column(T.YEAR, 1), 1901, 1901),
    (column(T.FLOAT, 4), 1.5, 1.5),
    (column(T.DOUBLE, 8), 0.1, 0.1),
    (column(T.BIT, 1, 1), 1, True),
    (column(T.BIT, 1, 1), 0, False),
    (column(T.BIT, 2, 10), 0x203, base64.b64encode(b"\x03\x02").decode()),
    (column(T.VARCHAR, 40, collation=UTF8MB4), "é", "é"),
    (column(T.VARCHAR, 40, collation=BINARY), b"plain", base64.b64encode(b"plain").decode()),
    (column(T.BLOB, 2), b"\0\xff", "AP8="),
    (column(T.DATE, 3), datetime.date(1970, 1, 2), 1),
    (column(T.DATE, 3), datetime.date(1, 1, 1), -719162),
    (column(T.DATETIME2), datetime.datetime(1970, 1, 1, 0, 0, 1), 1000),
    (column(T.DATETIME2, 0, 3), datetime.datetime(1969, 12, 31, 23, 59, 59, 999000), -1),
    (column(T.DATETIME2, 0, 4), datetime.datetime(1970, 1, 1, 0, 0, 0, 100), 100),
    (column(T.DATETIME, 8, fraction_digits=6), datetime.datetime(1970, 1, 1, 0, 0, 0, 1), 1),
    (column(T.TIMESTAMP2), datetime.datetime(2024, 2, 3, 4, 5, 6, tzinfo=UTC), "2024-02-03T04:05:06Z"),
    (column(T.TIMESTAMP2, 0, 2), datetime.datetime(2024, 2, 3, 4, 5, 6, 70000, UTC), "2024-02-03T04:05:06.07Z"),
    (column(T.TIME2, 0, 6), datetime.timedelta(hours=-838, microseconds=1), -838 * 3_600_000_000 + 1),
    (column(T.GEOMETRY, 4), Geometry(0, b"\1"), {"wkb": "AQ==", "srid": None}),
    (column(T.GEOMETRY, 4), Geometry(4326, b"\1"), {"wkb": "AQ==", "srid": 4326}),
]  # fmt: skip


@pytest.mark.parametrize(("col", "value", "wanted"), VALUES)
def test_values(col: TableColumn, value: Value, wanted: object) -> None:
    found = debezium_value(value, col, DecimalHandling.STRING, Invalid.FAIL)
    assert found == wanted
    assert type(found) is type(wanted)


@given(
    st.decimals(
        allow_nan=False, allow_infinity=False, places=4, max_value=10**20, min_value=-(10**20)
    )
)
def test_decimals(value: Decimal) -> None:
    col = column(T.NEWDECIMAL, 0, 30, 4)

    def made(mode: DecimalHandling) -> object:
        return debezium_value(value, col, mode, Invalid.FAIL)

    assert Decimal(str(made(DecimalHandling.STRING))) == value
    assert made(DecimalHandling.DOUBLE) == float(value)
    precise = made(DecimalHandling.PRECISE)
    assert isinstance(precise, str)
    raw = base64.b64decode(precise)
    assert Decimal(int.from_bytes(raw, "big", signed=True)).scaleb(-4) == value
    # As short as Java's BigInteger writes it.
    assert len(raw) == 1 or int.from_bytes(raw[1:], "big", signed=True) != int.from_bytes(
        raw, "big", signed=True
    )


@pytest.mark.parametrize(
    ("col", "value", "as_text"),
    [
        (column(T.DATE, 3), ZeroDate(0, 0, 0), "0000-00-00"),
        (column(T.DATETIME2, 0, 2), ZeroDate(2024, 0, 31), "2024-00-31 00:00:00.00"),
        (column(T.VARCHAR, 40, collation=UTF8MB4), UndecodedText(b"a\xe9", UTF8MB4), "a\\xe9"),
    ],
)
def test_invalid_values_are_never_replaced_silently(
    col: TableColumn, value: Value, as_text: str
) -> None:
    with pytest.raises(ProtocolError, match="--invalid-values null or text"):
        debezium_value(value, col, DecimalHandling.STRING, Invalid.FAIL)
    assert debezium_value(value, col, DecimalHandling.STRING, Invalid.NULL) is None
    assert debezium_value(value, col, DecimalHandling.STRING, Invalid.TEXT) == as_text


def test_labels_that_were_not_logged() -> None:
    with pytest.raises(ProtocolError, match="binlog_row_metadata=FULL"):
        debezium_value(EnumIndex(1), column(T.ENUM, 1), DecimalHandling.STRING, Invalid.FAIL)


def test_a_message() -> None:
    (message,) = told(*rows(ChangeKind.INSERT, (1, "a@b", None)))
    assert message.topic == "p.shop.orders"
    assert message.key == {"id": 1}
    assert message.headers == {"gtid": "0-1-7"}
    assert message.value == {
        "before": None,
        "after": {"id": 1, "email": "a@b", "n": None},
        "source": {
            "version": "1.2.3",
            "connector": "mariadb",
            "name": "p",
            "ts_ms": 1_000_000,
            "ts_us": 1_000_000_000,
            "ts_ns": 1_000_000_000_000,
            "snapshot": "false",
            "db": "shop",
            "sequence": None,
            "table": "orders",
            "server_id": 1,
            "gtid": "0-1-7",
            "file": "f",
            "pos": 5,
            "row": 0,
            "thread": None,
            "query": None,
        },
        "op": "c",
        "ts_ms": 1_780_000_000_250,
        "ts_us": 1_780_000_000_250_000,
        "ts_ns": 1_780_000_000_250_000_000,
        "transaction": {"id": "0-1-7", "total_order": 1, "data_collection_order": 1},
    }


def test_each_kind_of_change() -> None:
    update = rows(ChangeKind.UPDATE, (1, "a", 1), (1, "a", 2))
    moved = rows(ChangeKind.UPDATE, (1, "a", 2), (5, "a", 2))
    delete = rows(ChangeKind.DELETE, (5, "a", 2), (6, "b", 3))
    topic = "p.shop.orders"
    messages = told(*update, *moved, *delete)
    assert shapes(messages) == [
        (topic, {"id": 1}, "u", {"id": 1, "email": "a", "n": 2}),
        (topic, {"id": 1}, "d", {"id": 1, "email": "a", "n": 2}),
        (topic, {"id": 1}, None, None),
        (topic, {"id": 5}, "c", {"id": 5, "email": "a", "n": 2}),
        (topic, {"id": 5}, "d", {"id": 5, "email": "a", "n": 2}),
        (topic, {"id": 5}, None, None),
        (topic, {"id": 6}, "d", {"id": 6, "email": "b", "n": 3}),
        (topic, {"id": 6}, None, None),
    ]
    assert messages[1].headers["__debezium.newkey"] == '{"id":5}'
    assert messages[3].headers["__debezium.oldkey"] == '{"id":1}'
    assert messages[0].value is not None
    assert messages[0].value["before"] == {"id": 1, "email": "a", "n": 1}
    orders = [m.value["transaction"]["total_order"] for m in messages if m.value]
    assert orders == [1, 2, 3, 4, 5]
    assert None not in [m.value for m in told(*delete, tombstones=False)]


def test_images_that_are_not_full() -> None:
    """Of MINIMAL images the key is taken from before, of FULL_NODUP what is not there after has not changed."""
    (minimal,) = told(*rows(ChangeKind.UPDATE, (1, ABSENT, ABSENT), (ABSENT, ABSENT, 2)))
    assert minimal.key == {"id": 1}
    assert minimal.value is not None
    assert minimal.value["before"] == {"id": 1, "email": UNAVAILABLE, "n": UNAVAILABLE}
    assert minimal.value["after"] == {"id": 1, "email": UNAVAILABLE, "n": 2}
    (nodup,) = told(*rows(ChangeKind.UPDATE, (1, "a", 1), (ABSENT, ABSENT, None)))
    assert nodup.value is not None
    assert nodup.value["after"] == {"id": 1, "email": "a", "n": None}


def test_a_table_without_a_key() -> None:
    keyless = TableMap(9, 1, "shop", "log", TABLE.columns)
    messages = told(*rows(ChangeKind.DELETE, (1, "a", 1), table=keyless))
    assert [(m.topic, m.key) for m in messages] == [("p.shop.log", None)]  # and no tombstone


def test_names_that_no_topic_can_have() -> None:
    table = TableMap(9, 1, "shöp", "or ders", TABLE.columns)
    (message,) = told(*rows(ChangeKind.INSERT, (1, "a", 1), table=table))
    assert message.topic == "p.sh_p.or_ders"
    assert message.value is not None
    assert message.value["source"]["table"] == "or ders"


def test_columns_without_names() -> None:
    with pytest.raises(ProtocolError, match=r"0-1-7: .*shop\.orders: SET GLOBAL binlog_row_metad"):
        told(*rows(ChangeKind.INSERT, (1, "a", 1), metadata=RowMetadata.MINIMAL))
    # Nobody needs the names of a table that was not chosen.
    other = Choice(tables=frozenset(("shop.other",)))
    nameless = rows(ChangeKind.INSERT, (1, "a", 1), metadata=RowMetadata.MINIMAL)
    assert told(*nameless, choice=other) == []


def test_what_may_not_leave() -> None:
    rules = ColumnRules(("*.n",), ("shop.orders.E?ail",), ("shop.*.id",), b"salt")
    (message,) = told(*rows(ChangeKind.INSERT, (1, None, 3)), columns=rules)
    assert message.value is not None
    assert message.key == {"id": message.value["after"]["id"]}
    assert message.value["after"]["email"] == "****"
    assert "n" not in message.value["after"]
    assert message.value["after"]["id"] == hashlib.sha256(b"salt1").hexdigest()
    assert not ColumnRules(("a.b.c[d]", "a.b.c+")).leaves_out("a.b.cd")
    assert ColumnRules(("a.b.c[d]",)).leaves_out("A.b.C[d]")
    with pytest.raises(ValueError, match=r"give it as database\.table\.column"):
        ColumnRules(("email",))


def test_transactions() -> None:
    other = TableMap(10, 1, "shop", "lines", TABLE.columns)
    insert = rows(ChangeKind.INSERT, (1, "a", 1), (2, "b", 2))
    more = rows(ChangeKind.INSERT, (3, "c", 3), table=other)
    messages = told(*insert, *more, *insert[1:], transactions=True)
    first, last = messages[0], messages[-1]
    assert first.topic == last.topic == "p.transaction"
    assert first.key == {"id": "0-1-7"}
    assert first.value is not None
    assert (first.value["status"], first.value["event_count"]) == ("BEGIN", None)
    assert last.value is not None
    assert last.value["event_count"] == 5
    assert last.value["data_collections"] == [
        {"data_collection": "shop.orders", "event_count": 4},
        {"data_collection": "shop.lines", "event_count": 1},
    ]
    orders = [
        (m.value["transaction"]["total_order"], m.value["transaction"]["data_collection_order"])
        for m in messages[1:-1]
        if m.value
    ]
    assert orders == [(1, 1), (2, 2), (3, 1), (4, 3), (5, 4)]
    # Of nothing that was chosen there is no beginning, either.
    assert told(*insert, transactions=True, choice=Choice(frozenset(("x",)))) == []


def xa_groups(end: str) -> tuple[list[bytes], list[bytes]]:
    prepare = [
        gtid(8, GtidFlags.PREPARED_XA | GtidFlags.TRANSACTIONAL, xa_id=XA),
        text(f"XA START {XA.sql}"),
        *rows(ChangeKind.INSERT, (1, "a", 1)),
        text(f"XA END {XA.sql}"),
        XaPrepareEvent(XA, server_id=1).build(),
    ]
    done = [gtid(9, GtidFlags.COMPLETED_XA, xa_id=XA), text(f"XA {end} {XA.sql}")]
    return prepare, done


def test_prepared_transactions_come_when_they_are_committed() -> None:
    made = form(transactions=True)
    prepare, commit = xa_groups("COMMIT")
    assert list(made.group(prepare)) == []
    assert made.has_prepared
    begin, change, end = made.group(commit)
    assert begin.value and change.value and end.value  # noqa: PT018
    assert change.value["source"]["gtid"] == "0-1-8"
    assert change.headers == {"gtid": "0-1-9"}
    assert change.value["transaction"]["id"] == end.value["id"] == "0-1-9"
    assert not made.has_prepared
    prepare, rollback = xa_groups("ROLLBACK")
    assert [*made.group(prepare), *made.group(rollback)] == []
    assert list(made.group(rollback)) == []  # of one that is not known here nothing is lost
    with pytest.raises(ProtocolError, match=r"0-1-9: XA COMMIT .*in front of its XA PREPARE"):
        list(made.group(commit))
    assert list(form(skip_statements=True).group(commit)) == []


def test_prepared_transactions_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(debezium_form, "PREPARED_BYTES_MAX", 100)
    with pytest.raises(ProtocolError, match="commit or roll back some"):
        list(form().group(xa_groups("COMMIT")[0]))


def definition(sql: str, error_code: int = 0) -> list[bytes]:
    return [gtid(7, GtidFlags.STANDALONE | GtidFlags.DDL), text(sql, error_code=error_code)]


@pytest.mark.parametrize(
    ("sql", "tables", "is_told"),
    [
        ("CREATE TABLE orders (id INT)", (), True),
        ("ALTER TABLE orders ADD b INT", ("shop.orders",), True),
        ("ALTER TABLE other ADD b INT", ("shop.orders",), False),
        ("RENAME TABLE other TO orders", ("shop.orders",), True),
        ("DROP DATABASE shop", ("shop.orders",), True),
        ("DROP DATABASE x", ("shop.orders",), False),
        ("DROP DATABASE x", ("orders",), True),
        ("TRUNCATE orders", ("orders",), True),
        ("CREATE VIEW v AS SELECT 1", (), True),
        ("GRANT ALL ON *.* TO u", (), False),
        ("ANALYZE TABLE orders", (), False),
    ],
)
def test_definitions(sql: str, tables: tuple[str, ...], is_told: bool) -> None:
    messages = list(form(Choice(tables=frozenset(tables))).group(definition(sql)))
    if not is_told:
        assert messages == []
        return
    (message,) = messages
    assert message.topic == "p"
    assert message.value is not None
    assert message.value["ddl"] == sql


@pytest.mark.parametrize(
    ("sql", "tables", "databases"),
    [
        ("CREATE TABLE d.t (id INT)", (), ["d"]),
        ("TRUNCATE `D e`.t", (), ["D e"]),
        ("CREATE DATABASE d", (), ["d"]),
        ("RENAME TABLE d.t TO e.t, orders TO d.o", (), ["d", "e", "shop"]),
        ("RENAME TABLE d.t TO e.t, orders TO d.o", ("e.t",), ["e"]),
        ("DROP TABLE d.a, d.b", ("d.b",), ["d"]),
        ("DROP DATABASE d", ("d.b",), ["d"]),
        ("DROP VIEW e.v", (), ["e"]),
        ("ALTER TABLE orders ADD b INT", (), ["shop"]),
        ("CREATE TRIGGER d.g BEFORE INSERT ON d.t FOR EACH ROW SET @a = 1", (), ["shop"]),
    ],
)
def test_databases_of_definitions(sql: str, tables: tuple[str, ...], databases: list[str]) -> None:
    """Those that are changed, whichever is in use: consumers choose their messages by them."""
    messages = list(form(Choice(tables=frozenset(tables))).group(definition(sql)))
    assert [message.key for message in messages] == [{"databaseName": name} for name in databases]
    for message, name in zip(messages, databases, strict=True):
        assert message.value is not None
        assert (message.value["databaseName"], message.value["source"]["db"]) == (name, name)
        assert message.value["ddl"] == sql


def test_definitions_that_were_not_done() -> None:
    sql = "ALTER TABLE orders ADD b INT"
    assert list(form().group(definition(sql, error_code=1060))) == []
    for flag in (GtidExtraFlags.START_ALTER, GtidExtraFlags.ROLLBACK_ALTER):
        extra = {"flags_extra": int(flag)}
        if flag is GtidExtraFlags.ROLLBACK_ALTER:
            extra["start_alter_seq_no"] = 3
        assert list(form().group([gtid(7, GtidFlags.STANDALONE, **extra), text(sql)])) == []


@pytest.mark.parametrize("sql", ["INSERT INTO orders VALUES (1)", "ROLLBACK TO a", "CALL p()"])
def test_rows_that_were_logged_as_text(sql: str) -> None:
    with pytest.raises(ProtocolError, match=r"0-1-7: a statement changes rows .*binlog_format=ROW"):
        told(text(sql))
    assert told(text(sql), skip_statements=True) == []


def test_text_that_concerns_no_chosen_table() -> None:
    sql = text("INSERT INTO orders VALUES (1)")
    assert told(sql, choice=Choice(tables=frozenset(("shop.other",)))) == []
    with pytest.raises(ProtocolError):
        told(sql, choice=Choice(tables=frozenset(("shop.orders",))))
    with pytest.raises(ProtocolError):  # what it writes is not known
        told(text("CALL p()"), choice=Choice(tables=frozenset(("shop.other",))))


def test_ends_of_groups_are_nothing() -> None:
    events = [gtid(), *rows(ChangeKind.INSERT, (1, "a", 1)), text("COMMIT")]
    assert len(list(form().group(events))) == 1
    assert told(text("SAVEPOINT a"), text("BEGIN")) == []


def test_mutated_groups_raise_nothing_else(rng: random.Random) -> None:
    groups = [
        transaction(*rows(ChangeKind.INSERT, (1, "a", None), (2, "b", 2))),
        transaction(*rows(ChangeKind.UPDATE, (1, ABSENT, ABSENT), (5, ABSENT, 2))),
        transaction(*rows(ChangeKind.DELETE, (1, "a", 1)), text("SAVEPOINT a")),
        *xa_groups("COMMIT"),
        definition("ALTER TABLE orders ADD b INT"),
    ]
    refused = told_of = 0
    for _ in range(1500):
        events = [*rng.choice(groups)]
        at = rng.randrange(len(events))
        events[at] = mutated(rng, events[at])
        try:
            messages = list(form(invalid=Invalid.TEXT).group(events))
        except ProtocolError:
            refused += 1
        else:
            told_of += len(messages)
            json.dumps(messages, allow_nan=False)
    assert refused > 300
    assert told_of > 300
