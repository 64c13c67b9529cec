"""Events as SQL and as JSON: what does not need a server to be told right from wrong."""

from __future__ import annotations

import base64
import datetime
import json
import random
import re
from collections.abc import Iterable
from decimal import Decimal

import pytest
from binlog_protocol.errors import ProtocolError
from binlog_protocol.event_text import sql_form
from binlog_protocol.event_text.choice import Choice
from binlog_protocol.event_text.json_form import JsonForm
from binlog_protocol.event_text.literals import JsonValue, json_value, sql_literal
from binlog_protocol.event_text.sql_form import SqlForm
from binlog_protocol.events.event_type import EventType
from binlog_protocol.events.format_description import FormatDescription
from binlog_protocol.events.gtid import GtidEvent, GtidFlags, XaId
from binlog_protocol.events.header import (
    HEADER_SIZE,
    build_event,
    joined_events,
    split_events,
    split_pieces,
    whole_pieces,
)
from binlog_protocol.events.query import QueryEvent
from binlog_protocol.events.rows import EnumIndex, Geometry, RowsEvent, SetBits, Value, ZeroDate
from binlog_protocol.events.statement_context import UserVarEvent
from binlog_protocol.events.table_map import TableColumn, TableMap
from binlog_protocol.events.xa_prepare import XaPrepareEvent
from binlog_protocol.events.xid import XidEvent
from binlog_protocol.gtid import Gtid
from hypothesis import given
from hypothesis import strategies as st

from tests.protocol.events.rows import samples
from tests.protocol.events.rows.test_row_values import UCS2, T, column
from tests.protocol.events.rows.test_table_map_and_rows import (
    ROW,
    event,
    mutated,
    rows_event,
    small_map,
)

GTID = Gtid(0, 1, 7)
MAP = event(EventType.TABLE_MAP, small_map())
XID = XidEvent(9, 1).build()


def gtid(flags: int = 0, **more: object) -> bytes:
    return GtidEvent(GTID, flags, **more).build()  # type: ignore[arg-type]


def query(text: bytes, database: bytes = b"", status: bytes = b"", **more: int) -> bytes:
    return QueryEvent(text, 1, database, status, **more).build()


def script(events: Iterable[bytes], choice: Choice | None = None, **options: bool | int) -> str:
    form = SqlForm(choice or Choice(), **options)  # type: ignore[arg-type]
    return b"".join(form.group(events, "here")).decode("utf-8", "replace")


# --- pieces ---


def test_events_of_pieces_cut_anywhere(rng: random.Random) -> None:
    payload = b"".join(group.payload for group in samples.groups("1011-row"))
    whole = list(split_events(payload))
    for size in (1, 7, 19, 100, len(payload)):
        pieces = [payload[at : at + size] for at in range(0, len(payload), size)]
        assert list(split_pieces(pieces)) == whole
    cuts = sorted(rng.randrange(len(payload)) for _ in range(50))
    pieces = [payload[a:b] for a, b in zip([0, *cuts], [*cuts, len(payload)], strict=True)]
    assert list(split_pieces(pieces)) == whole


def test_pieces_that_end_early_or_lie_about_a_length() -> None:
    payload = samples.groups("1011-row")[0].payload
    with pytest.raises(ProtocolError, match="ends inside an event: 37 bytes"):
        list(split_pieces([payload[:37]]))
    broken = bytearray(payload)
    broken[9:13] = (18).to_bytes(4, "little")
    with pytest.raises(ProtocolError, match="event length 18 at offset 0"):
        list(split_pieces([bytes(broken)]))


def test_pieces_of_whole_events(rng: random.Random) -> None:
    """As those of events one by one; cut anywhere, at an end too, and damaged."""
    payload = b"".join(group.payload for group in samples.groups("1011-row"))
    for _ in range(300):
        some = bytearray(payload[: rng.choice((0, 30, 300, len(payload)))])
        if some and rng.random() < 0.5:
            some[rng.randrange(len(some))] = rng.randrange(256)
        cuts = sorted(rng.randint(0, len(some)) for _ in range(rng.randrange(20)))
        pieces = [bytes(some[a:b]) for a, b in zip([0, *cuts], [*cuts, len(some)], strict=True)]
        at_least = rng.choice((1, 100, 1000, 1 << 20))

        def told(found: Iterable[bytes]) -> list[bytes | str]:
            taken: list[bytes | str] = []
            try:
                taken += found
            except ProtocolError as error:
                taken.append(str(error))
            return taken

        assert told(whole_pieces(pieces, at_least)) == told(
            joined_events(split_pieces(pieces), at_least)
        )


@pytest.mark.parametrize(
    "choice", [Choice(tables=frozenset({"other"})), Choice(frozenset({"other"}))], ids=str
)
def test_what_is_not_chosen_is_not_uncompressed(choice: Choice) -> None:
    """It may stand for a thousand times as much; here it cannot be uncompressed at all."""
    names = b"\x05other\0" * 2
    other = event(EventType.TABLE_MAP, b"\x09" + small_map()[1:8] + names + small_map()[14:])
    broken = rows_event(23, b"\x81\x09broken")
    rows = event(166, broken[HEADER_SIZE:])
    wanted = rows_event(23, ROW, flags=0, table_id=9)  # the statement goes on
    statement = event(165, query(b"", b"d")[HEADER_SIZE:] + b"\x81\x09broken")
    group = [gtid(), statement, MAP, other, wanted, rows, XID]
    found = [item for item in JsonForm(choice).group(group) if "rows" in item or "error" in item]
    assert [(item["table"], len(item["rows"])) for item in found] == [("other.other", 1)]
    assert script(group, choice).count("BINLOG '") == 2  # the format description, and the rows
    assert [item for item in JsonForm(Choice()).group(group) if "error" in item]
    with pytest.raises(ProtocolError):
        script(group)


# --- literals ---

DECIMAL = column(T.NEWDECIMAL, 0, 5, 2)
EARLY = "0001-01-02 03:04:05.000"
LITERALS: list[tuple[TableColumn, Value, str, JsonValue]] = [
    (column(T.LONG, 4), None, "NULL", None),
    (column(T.LONG, 4), -5, "-5", -5),
    (column(T.BIT, 1, 4), 5, "b'0101'", 5),
    (column(T.FLOAT, 4), 0.10000000149011612, "0.1", 0.1),
    (column(T.FLOAT, 4), 16777217.0, "16777217.0", 16777217.0),
    (column(T.FLOAT, 4), 3.4028234663852886e38, "3.4028235e+38", 3.4028235e38),
    (column(T.DOUBLE, 8), 0.1, "0.1", 0.1),
    (DECIMAL, Decimal("-1.50"), "-1.50", "-1.50"),
    (DECIMAL, Decimal("0E-30"), "0.000000000000000000000000000000", "0.000000000000000000000000000000"),
    (column(T.VARCHAR, 9, collation=8), "it's\n\\ \0", "'it\\'s\\n\\\\ \\0'", "it's\n\\ \0"),
    (column(T.VARCHAR, 9, collation=63), b"ab", "X'6162'", {"base64": "YWI="}),
    (column(T.VARCHAR, 9), b"ab", "'ab'", "ab"),
    (column(T.VARCHAR, 9), b"a\0", "X'6100'", {"base64": "YQA="}),
    (column(T.DATE, 3), datetime.date(2024, 1, 2), "'2024-01-02'", "2024-01-02"),
    (column(T.DATE, 3), ZeroDate(0, 0, 0), "'0000-00-00'", "0000-00-00"),
    (column(T.DATETIME2, 0, 3), datetime.datetime(1, 1, 2, 3, 4, 5, 60), "'0001-01-02 03:04:05.000'", EARLY),
    (column(T.DATETIME2), ZeroDate(2024, 0, 1, 2), "'2024-00-01 02:00:00'", "2024-00-01 02:00:00"),
    (column(T.TIME2, 0, 1), -datetime.timedelta(hours=800, milliseconds=500), "'-800:00:00.5'", "-800:00:00.5"),
    (column(T.ENUM, 1), EnumIndex(2), "2", 2),
    (column(T.SET, 1), SetBits(5), "5", 5),
    (column(T.GEOMETRY, 4), Geometry(3, b"\1"), "ST_GeomFromWKB(X'01', 3)", {"srid": 3, "wkb": "01"}),
    (column(T.GEOMETRY, 4), Geometry(0, b""), "''", {"srid": 0, "wkb": ""}),
]  # fmt: skip


@pytest.mark.parametrize(("col", "value", "sql", "as_json"), LITERALS)
def test_literals(col: TableColumn, value: Value, sql: str, as_json: JsonValue) -> None:
    assert sql_literal(value, col) == sql
    assert json_value(value, col) == as_json
    assert "\n" not in sql
    json.dumps(as_json)


# --- SQL ---


def test_ends_and_beginnings() -> None:
    text = script([gtid(), query(b"INSERT 1"), XID])
    assert text.index("START TRANSACTION") < text.index("INSERT 1") < text.index("COMMIT/*!*/;")
    assert "gtid_domain_id=0" in text
    assert "server_id=1" in text
    assert "gtid_seq_no=7" in text
    ddl = script([gtid(GtidFlags.STANDALONE), query(b"CREATE TABLE t")])
    assert "START TRANSACTION" not in ddl
    xa_id = XaId(3, b"g", b"b")
    xa = script(
        [
            gtid(GtidFlags.PREPARED_XA, xa_id=xa_id),
            query(b"XA END X'67',X'62',3"),
            XaPrepareEvent(xa_id, 1).build(),
        ]
    )
    begins = [xa.index(f"XA {word} X'67',X'62',3") for word in ("START", "END", "PREPARE")]
    assert begins == sorted(begins)
    one_phase = script([gtid(), XaPrepareEvent(xa_id, 1, one_phase=True).build()])
    assert "XA COMMIT X'67',X'62',3 ONE PHASE" in one_phase


def test_the_session_is_said_once() -> None:
    form = SqlForm(Choice())
    status = (
        b"\1"
        + (5).to_bytes(8, "little")
        + b"\4\x08\0\x08\0\x2d\0"
        + b"\5\6+03:00"
        + b"\x80\x40\xe2\1"
    )
    group = [gtid(GtidFlags.STANDALONE), query(b"ONE", b"d`b", status, timestamp=100)]
    first, second = (b"".join(form.group(group, "here")).decode() for _ in range(2))
    for setting in (
        "use `d``b`", "sql_mode=5", "time_zone='+03:00'", "character_set_client=latin1", "collation_connection=8",
        "collation_server=45", "/*!\\C latin1 */", "gtid_domain_id=0", "server_id=1", "pseudo_thread_id=0",
    ):  # fmt: skip
        assert setting in first
        assert setting not in second
    for text in (first, second):
        assert "SET TIMESTAMP=100.123456/*!*/;" in text
        assert "gtid_seq_no=7" in text


def test_user_variables_keep_type_and_collation() -> None:
    def variable(type_: int, raw: bytes, collation: int = UCS2, flags: bytes = b"\0") -> bytes:
        body = b"\1\0\0\0a\0" + bytes((type_,)) + collation.to_bytes(4, "little")
        return event(EventType.USER_VAR, body + len(raw).to_bytes(4, "little") + raw + flags)

    null = event(EventType.USER_VAR, b"\1\0\0\0a\1")
    for variable_event, sql in (
        (null, "SET @`a`:=NULL/*!*/;"),
        (variable(2, b"\xff" * 8), "SET @`a`:=-1/*!*/;"),
        (variable(2, b"\xff" * 8, flags=b"\1"), "SET @`a`:=18446744073709551615/*!*/;"),
        (variable(1, bytes.fromhex("000000000000f83f")), "SET @`a`:=1.5e0/*!*/;"),
        (variable(4, bytes.fromhex("03027ee6")), "SET @`a`:=-1.25/*!*/;"),
        (
            UserVarEvent(b"a", Decimal("-1E-10")).build(server_id=1),
            "SET @`a`:=-0.0000000001/*!*/;",
        ),
        (
            variable(0, b"\0x"),
            "SET @@session.collation_connection=35/*!*/;\nSET @`a`:=CAST(X'0078' AS CHAR)/*!*/;",
        ),
        (variable(0, b"\0x", 63), "SET @`a`:=X'0078'/*!*/;"),
    ):
        text = script([gtid(), variable_event, query(b"INSERT @a"), XID])
        assert sql in text
        assert text.index(sql) < text.index("INSERT @a")


def blocks(text: str) -> list[list[bytes]]:
    """The events of each BINLOG statement."""
    found = []
    for body in re.findall(r"BINLOG '\n(.*?)\n'", text, re.DOTALL):
        raw = b"".join(base64.b64decode(line) for line in body.split("\n"))
        found.append(list(split_events(raw)))
    return found


def test_a_long_statement_goes_in_several_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sql_form, "_BLOCK_BYTES", 100)
    parts = [rows_event(23, ROW * 4, flags=0) for _ in range(9)] + [rows_event(23, ROW * 4)]
    text = script([gtid(), MAP, *parts, XID], verbose=1)
    described, *rest = blocks(text)
    assert described[0][4] == EventType.FORMAT_DESCRIPTION
    assert len(rest) == 5
    found = []
    for first, *rows in rest:
        assert first == MAP
        *inner, last = [RowsEvent.parse(e) for e in rows]
        assert last.ends_statement
        assert not any(e.ends_statement for e in inner)
        found += rows
    assert sum(len(list(RowsEvent.parse(e).rows(TableMap.parse(MAP)))) for e in found) == 40
    assert text.count("### INSERT INTO `d`.`t`") == 40


def test_too_long_for_a_packet_goes_in_two_halves(monkeypatch: pytest.MonkeyPatch) -> None:
    from binlog_protocol.event_text import sql_form

    monkeypatch.setattr(sql_form, "_STATEMENT_BYTES", 300)
    text = script([gtid(), MAP, rows_event(23, ROW * 90), XID])
    halves = re.findall(r"SET @binlog_fragment_[01]='(.*?)'", text, re.DOTALL)
    lines = "".join(halves[-2:]).split("\n")
    assert b"".join(map(base64.b64decode, lines)) == MAP + rows_event(23, ROW * 90)
    assert (
        text.count("BINLOG @binlog_fragment_0, @binlog_fragment_1") == 2
    )  # the description is long, too


def test_choice_of_tables_and_databases() -> None:
    group = [
        gtid(),
        query(b"STATEMENT d", b"d"),
        query(b"STATEMENT e", b"e"),
        MAP,
        rows_event(23, ROW),
        XID,
    ]
    by_table = script(group, Choice(tables=frozenset({"d.t"})))
    assert "STATEMENT" not in by_table
    assert len(blocks(by_table)) == 2
    assert "COMMIT" in by_table
    assert script(group, Choice(tables=frozenset({"e.t"}))) == ""
    by_database = script(group, Choice(databases=frozenset({"e"})))
    assert "STATEMENT e" in by_database
    assert "STATEMENT d" not in by_database
    assert blocks(by_database) == []
    assert script(group, Choice(databases=frozenset({"f"}))) == ""


def test_a_group_left_out_does_not_count_as_said() -> None:
    form = SqlForm(Choice(databases=frozenset({"d"})))
    assert b"".join(form.group([gtid(), query(b"NOT", b"e"), XID], "here")) == b""
    shown = b"".join(form.group([gtid(), query(b"THIS", b"d"), XID], "here"))
    assert b"gtid_domain_id=0" in shown


def test_server_start() -> None:
    form = SqlForm(Choice(), comments=False)
    text = b"".join(form.marker(FormatDescription("11.8.6-MariaDB", 1, created=5), "here")).decode()
    assert text.startswith("ROLLBACK/*!*/;\n")
    ((described,),) = blocks(text)
    assert FormatDescription.parse(described).server_version == "11.8.6-MariaDB"
    # It describes the rows behind it as well.
    rows = b"".join(form.group([gtid(), MAP, rows_event(23, ROW), XID], "here")).decode()
    assert len(blocks(rows)) == 1


@pytest.mark.parametrize(
    ("events", "match"),
    [
        ([gtid(), event(200, b"")], "type 200 cannot be written"),
        ([gtid(), event(EventType.BEGIN_LOAD_QUERY, b"\1\0\0\0data")], "--local-load"),
        ([gtid(), MAP, rows_event(23, ROW, flags=0)], "does not end the statement"),
        ([gtid(), MAP, rows_event(30, ROW)], "version 2"),
        ([query(b"INSERT")], "no GTID event"),
    ],
)
def test_what_sql_cannot_say(events: list[bytes], match: str) -> None:
    with pytest.raises(ProtocolError, match=match):
        script(events)


# --- JSON ---


def objects(events: list[bytes], choice: Choice | None = None) -> list[dict[str, object]]:
    return list(JsonForm(choice or Choice()).group(events))


def test_objects() -> None:
    found = objects([gtid(), query(b"SAVEPOINT a", b"d"), MAP, rows_event(23, ROW), XID])
    assert [item["type"] for item in found] == [
        "GTID",
        "QUERY",
        "TABLE_MAP",
        "WRITE_ROWS_V1",
        "XID",
    ]
    assert {item["gtid"] for item in found} == {"0-1-7"}
    assert found[1]["statement"] == "SAVEPOINT a"
    assert found[3]["rows"] == [{"after": {"@1": 1, "@2": "ab", "@3": 1}}]
    json.dumps(found)


def test_objects_by_choice() -> None:
    group = [gtid(), query(b"STATEMENT", b"e"), MAP, rows_event(23, ROW), query(b"COMMIT", b"e")]
    by_table = objects(group, Choice(tables=frozenset({"t"})))
    assert [item["type"] for item in by_table] == ["GTID", "TABLE_MAP", "WRITE_ROWS_V1", "QUERY"]
    assert objects(group, Choice(tables=frozenset({"u"}))) == []
    by_database = objects(group, Choice(databases=frozenset({"e"})))
    assert [item["type"] for item in by_database] == ["GTID", "QUERY", "QUERY"]


@pytest.mark.parametrize("name", samples.NAMES)
def test_every_sample_is_json(name: str) -> None:
    for group in samples.groups(name):
        events = list(split_events(group.payload))
        found = objects(events)
        assert len(found) == len(events)
        assert json.loads(json.dumps(found))[0]["gtid"] == str(group.gtid)


def test_unknown_events_are_told_by_number() -> None:
    strange = build_event(200, b"abc", server_id=1)
    assert objects([gtid(), strange])[1]["type"] == "200"
    assert objects([gtid(), strange])[1]["length"] == HEADER_SIZE + 3


def test_rows_that_cannot_be_decoded_are_still_applied() -> None:
    """As of a TIME(3) in the format of MariaDB 5.3, whose precision no log tells."""
    body = (
        (7).to_bytes(6, "little")
        + b"\1\0"
        + b"\1d\0"
        + b"\1t\0"
        + b"\1"
        + bytes((T.TIME,))
        + b"\0\1"
    )
    old = event(EventType.TABLE_MAP, body)
    row = event(
        23, (7).to_bytes(6, "little") + b"\1\0" + b"\1\1" + b"\0" + bytes.fromhex("00b63738d9")
    )
    text = script([gtid(), old, row, XID], verbose=1)
    assert len(blocks(text)) == 2
    assert "### cannot be decoded: row event" in text
    found = objects([gtid(), old, row, XID])
    assert found[2]["rows"] is None
    assert "row event" in str(found[2]["error"])
    assert found[3]["type"] == "XID"


def as_script(events: list[bytes]) -> str:
    return script(events, verbose=2)


@pytest.mark.long
def test_mutated_groups_raise_nothing_else(rng: random.Random) -> None:
    """Whatever stands in a group: an error of ours, or output that is JSON, and SQL in bytes."""
    groups = [
        group
        for name in samples.NAMES
        for group in samples.groups(name)
        if len(group.payload) < 6000
    ]
    refused = 0
    for _ in range(1500):
        events = list(split_events(rng.choice(groups).payload))
        for _ in range(rng.randrange(1, 3)):
            at = rng.randrange(len(events))
            events[at] = mutated(rng, events[at])
        for read in (as_script, objects):
            try:
                found = read(events)
            except ProtocolError:
                refused += 1
            else:
                json.dumps(found, allow_nan=False)
    assert refused > 300


def test_a_table_map_with_another_body_is_another() -> None:
    """Tables may be changed between statements and keep their number."""
    other = event(EventType.TABLE_MAP, small_map().replace(b"\1t\0", b"\1u\0"))
    found = objects(
        [
            gtid(),
            MAP,
            rows_event(23, ROW),
            other,
            rows_event(23, ROW),
            MAP,
            rows_event(23, ROW),
            XID,
        ]
    )
    assert [item["table"] for item in found if "rows" in item] == ["d.t", "d.u", "d.t"]


@given(
    digits=st.text("0123456789", min_size=1, max_size=65),
    scale=st.integers(0, 38),
    minus=st.booleans(),
)
def test_a_decimal_variable_is_read_as_it_was_written(
    digits: str, scale: int, *, minus: bool
) -> None:
    number = tuple(map(int, digits))
    value = Decimal((int(minus and any(number)), number, -scale))
    event = UserVarEvent(b"v", value).build(server_id=1)
    assert UserVarEvent.parse(event).value == value


@pytest.mark.parametrize("value", [2**64, -(2**63) - 1, 1.5])
def test_what_a_variable_cannot_hold_is_not_written(value: float) -> None:
    with pytest.raises(ValueError, match="is not written"):
        UserVarEvent(b"v", value).build(server_id=1)
