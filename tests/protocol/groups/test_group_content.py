"""What a group says, and whether two servers mean the same: groups as a master and as its replica log them."""

from __future__ import annotations

import re
import tracemalloc
import zlib
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from binlog_protocol.errors import ProtocolError
from binlog_protocol.event_text.info import event_info
from binlog_protocol.events.event_type import EventType
from binlog_protocol.events.gtid import GtidEvent, GtidFlags
from binlog_protocol.events.header import build_event, split_events
from binlog_protocol.events.query import QueryEvent
from binlog_protocol.events.xid import XidEvent
from binlog_protocol.groups.group_comparison import Comparison, Likeness, compare, describe, outline
from binlog_protocol.groups.group_content import PARTS_MAX, TABLES_MAX, GroupContent, shown
from binlog_protocol.gtid import Gtid
from hypothesis import given
from hypothesis import strategies as st

GTID = Gtid(0, 1, 42)
WHEN = 1_700_000_000
INT, VARCHAR = 3, 15
INSERT, UPDATE, DELETE = 23, 24, 25


def event(type_: int, body: bytes, when: int = WHEN) -> bytes:
    return build_event(type_, body, server_id=1, timestamp=when)


def gtid(**more: Any) -> bytes:
    return GtidEvent(GTID, GtidFlags.TRANSACTIONAL, timestamp=WHEN, **more).build()


def xid(number: int = 7) -> bytes:
    return XidEvent(number, 1, timestamp=WHEN).build()


def query(text: bytes, when: int = WHEN, database: bytes = b"d", **more: Any) -> bytes:
    return QueryEvent(text, 1, database, timestamp=when, **more).build()


def table(
    number: int, name: bytes = b"t", types: bytes = bytes([INT]), metadata: bytes = b""
) -> bytes:
    names = b"\1d\0" + bytes([len(name)]) + name + b"\0"
    columns = bytes([len(types)]) + types + bytes([len(metadata)]) + metadata
    return event(19, number.to_bytes(6, "little") + b"\1\0" + names + columns + b"\1")


def rows(
    number: int, data: bytes, kind: int = INSERT, when: int = WHEN, width: int = 1, present: int = 1
) -> bytes:
    bitmaps = bytes([present]) * (2 if kind == UPDATE else 1)
    return event(
        kind, number.to_bytes(6, "little") + b"\1\0" + bytes([width]) + bitmaps + data, when
    )


def compressed(plain: bytes, head: int, type_: int) -> bytes:
    data = plain[head:]
    packed = b"\x82" + len(data).to_bytes(2, "big") + zlib.compress(data)
    return event(type_, plain[19:head] + packed)


def content(*events: bytes) -> GroupContent:
    found = GroupContent()
    for one in events:
        found.add(one)
    found.finish()
    return found


def likeness(ours: Sequence[bytes], theirs: Sequence[bytes]) -> Likeness:
    one, other = content(*ours), content(*theirs)
    found = compare(one, other)
    assert compare(other, one).likeness is found.likeness
    assert bool(found.difference) is (found.likeness is not Likeness.SAME)
    return found.likeness


def row(value: int) -> bytes:
    return b"\xfe" + value.to_bytes(4, "little")


MASTER = [
    gtid(),
    event(160, b"INSERT INTO t VALUES (1), (2)"),
    table(18),
    rows(18, row(1) + row(2)),
    xid(),
]
STATEMENT = query(b"INSERT INTO t VALUES (1), (2)", thread_id=8, execution_seconds=3)


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (MASTER, [gtid(commit_id=9, thread_id=5), table(77), rows(77, row(1) + row(2)), xid(8)]),
        (MASTER, [gtid(), table(1), rows(1, row(1)), rows(1, row(2)), query(b"COMMIT")]),
        (MASTER, [gtid(), table(1), table(2, b"u"), rows(1, row(1) + row(2)), xid()]),
        (MASTER, [gtid(), table(1, b"T"), rows(1, row(1) + row(2)), xid()]),
        (MASTER, [gtid(), table(1), compressed(rows(1, row(1) + row(2)), 29, 166), xid()]),
        ([gtid(), STATEMENT, xid()], [gtid(), query(b"INSERT INTO t VALUES (1), (2)"), xid(9)]),
        ([gtid(), STATEMENT], [gtid(), compressed(query(STATEMENT[34:]), 34, 165)]),
        ([query(b"DROP TABLE `a`")], [query(b"DROP TABLE IF EXISTS `a`")]),
        ([query(b"create table a (b int)")], [query(b"create or replace table a (b int)")]),
        ([query(b"XA END X'78',X'',1")], [query(b"XA END X'78',X'',1", database=b"")]),
        ([event(17, b"\1\0\0\0ab"), event(9, b"\1\0\0\0c")], [event(17, b"\7\0\0\0abc")]),
    ],
)
def test_the_same(ours: list[bytes], theirs: list[bytes]) -> None:
    assert likeness(ours, theirs) is Likeness.SAME


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (MASTER, [gtid(), STATEMENT, xid()]),
        (MASTER, [gtid(), event(5, b"\2" + bytes(8)), STATEMENT, xid()]),
        (
            MASTER,
            [
                gtid(),
                table(1, types=b"\3\3"),
                rows(1, b"\xfc" + bytes(8), width=2, present=3),
                xid(),
            ],
        ),
        (MASTER, [gtid(), table(1, types=b"\x08"), rows(1, b"\xfe" + bytes(8)), xid()]),
        # A statement that changes no row is none on a replica that logs rows.
        (MASTER, [gtid(), STATEMENT, query(b"DELETE FROM none", WHEN + 5), xid()]),
        (
            [query(b"CREATE TABLE a AS SELECT 1 AS one")],
            [query(b"CREATE TABLE `a` (one int)"), table(1), rows(1, row(1)), xid()],
        ),
        ([query(b"CREATE TABLE a AS SELECT 1 LIMIT 0")], [query(b"CREATE TABLE `a` (one int)")]),
    ],
)
def test_another_form(ours: list[bytes], theirs: list[bytes]) -> None:
    assert likeness(ours, theirs) is Likeness.UNLIKE_FORM


@pytest.mark.parametrize(
    ("ours", "theirs", "difference"),
    [
        (
            MASTER,
            [gtid(), table(1), rows(1, row(1) + row(3)), xid()],
            "INSERT d.t (10 bytes), but not with the same",
        ),
        (
            MASTER,
            [gtid(), table(1), rows(1, row(1)), xid()],
            "INSERT d.t (10 bytes) here, INSERT d.t (5 bytes) there",
        ),
        (
            MASTER,
            [gtid(), table(1), rows(1, row(1) + row(2), DELETE), xid()],
            "DELETE d.t (10 bytes) there",
        ),
        (
            MASTER,
            [gtid(), table(1, b"u"), rows(1, row(1) + row(2)), xid()],
            "INSERT d.u (10 bytes) there",
        ),
        (
            MASTER,
            [gtid(), table(1), rows(1, row(1) + row(2), when=WHEN + 1), xid()],
            "of 2023-11-14 22:13:20 UTC here, of 2023-11-14 22:13:21 UTC there",
        ),
        (MASTER, [gtid(), query(b"DELETE FROM t", WHEN + 1), xid()], "written at other times"),
        (MASTER, [gtid(), xid()], "1 part here, 0 parts there: part 1 is missing"),
        ([STATEMENT], [STATEMENT, STATEMENT], "1 part here, 2 parts there: part 2 is missing"),
        ([STATEMENT], [query(b"DELETE FROM t")], "DELETE FROM t there"),
        (
            [STATEMENT],
            [query(b"INSERT INTO t VALUES (1), (2)", database=b"e")],
            "not with the same contents",
        ),
        (
            [event(5, b"\2" + bytes(8)), STATEMENT],
            [event(5, b"\2\1" + bytes(7)), STATEMENT],
            "part 1 is INTVAR",
        ),
        (
            [query(b"DROP TABLE a")],
            [query(b"DROP TABLE IF EXISTS b")],
            "DROP TABLE IF EXISTS b there",
        ),
        (
            [query(b"CREATE TABLE a (b INT)")],
            [query(b"CREATE TABLE b (b INT)", WHEN - 9)],
            "other times",
        ),
        ([event(38, b"x")], [event(38, b"y")], "XA_PREPARE_LOG (1 bytes), but not"),
        ([event(200, b"x")], [event(200, b"xy")], "event of type 200 (1 bytes) here"),
    ],
)
def test_another_group(ours: list[bytes], theirs: list[bytes], difference: str) -> None:
    assert likeness(ours, theirs) is Likeness.OTHER
    assert difference in compare(content(*ours), content(*theirs)).difference


def test_far_behind() -> None:
    many = [query(b"INSERT %d" % n) for n in range(PARTS_MAX + 10)]
    assert len(content(*many).parts) == PARTS_MAX
    found = compare(content(*many), content(*many[:-1], STATEMENT))
    behind = f"the first difference is behind part {PARTS_MAX}"
    assert found == Comparison(Likeness.OTHER, behind, behind)


@given(st.lists(st.integers(0, 99), max_size=30), st.data())
def test_however_rows_are_cut(values: list[int], data: st.DataObject) -> None:
    def cut() -> list[bytes]:
        events, left = [table(5)], list(values)
        while left:
            size = data.draw(st.integers(1, len(left)))
            events.append(rows(5, b"".join(map(row, left[:size]))))
            del left[:size]
        return events

    assert likeness(cut(), cut()) is Likeness.SAME


def test_what_is_told() -> None:
    assert describe(GTID, None) == "0-1-42"
    assert (
        describe(GTID, content(*MASTER))
        == f"0-1-42 of 2023-11-14 22:13:20 UTC, 5 events, {sum(map(len, MASTER))} bytes: "
        "INSERT INTO t VALUES (1), (2); INSERT d.t (10 bytes)"
    )
    assert describe(GTID, content(gtid(), xid())).endswith("2 events, 65 bytes: nothing")
    three = describe(GTID, content(*[query(b"DELETE FROM t")] * 3))
    assert three.endswith("DELETE FROM t; DELETE FROM t; 3 parts in all")


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        (b"DELETE FROM t WHERE x = 'secret'", "DELETE"),
        (b"/*secret*/ DELETE FROM t", "statement"),
        (b"secret_function()", "statement"),
        (b"averylongwordthatisnokeyword x", "statement"),
    ],
)
def test_an_outline_has_no_secrets(text: bytes, kind: str) -> None:
    told = outline(GTID, content(query(text)))
    assert re.search(rf"bytes: {kind} \(\d+ bytes\), digest ", told)
    assert "secret" not in told


def test_an_outline_of_rows() -> None:
    told = outline(GTID, content(*MASTER))
    assert re.search(r": INSERT \(10 bytes\), digest [0-9a-f]{16}$", told)
    assert outline(GTID, None) == "0-1-42"


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        ([query(b"DELETE FROM secret")], [query(b"DROP TABLE secret")]),
        ([query(b"DELETE FROM secret")], [query(b"DELETE FROM secret2")]),
        ([query(b"DELETE FROM secret", 5)], [query(b"DELETE FROM secret", 6)]),
        ([query(b"DELETE FROM secret", 5)], [query(b"DELETE FROM secret", 5), query(b"x secret")]),
    ],
)
def test_an_outline_of_differences(ours: list[bytes], theirs: list[bytes]) -> None:
    found = compare(content(*ours), content(*theirs))
    assert found.outline
    assert "secret" not in found.outline


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (b"INSERT\n  INTO t", "INSERT INTO t"),
        (b"x" * 61, "x" * 60 + "..."),
        (b"caf\xe9", "caf\ufffd"),
        (b"CREATE USER a IDENTIFIED BY 'secret'", "CREATE USER a ..."),
        (b"SET PASSWORD FOR a = 'secret'", "SET ..."),
    ],
)
def test_statements_are_shown_short_and_without_passwords(text: bytes, expected: str) -> None:
    assert shown(text) == expected


@pytest.mark.parametrize(
    "broken",
    [b"", b"x", event(EventType.QUERY, b"x"), event(19, b"x"), event(23, b"x")],
)
def test_what_cannot_be_read(broken: bytes) -> None:
    with pytest.raises(ProtocolError):
        content(broken)


def test_what_no_door_looks_into_is_taken_as_it_is() -> None:
    """Compressed data that are none, and rows whose table map is not there: the groups can be compared all the same."""
    head = bytes(6) + b"\0\0\x01\x01"
    makers: list[Callable[[bytes], bytes]] = [
        lambda fill: event(166, head + b"\x81\x05" + fill),
        lambda fill: rows(1, fill),
    ]
    for make in makers:
        once, again, other = content(make(b"a")), content(make(b"a")), content(make(b"b"))
        assert once.digest == again.digest != other.digest
        assert once.part_count == 1


@given(st.binary(max_size=60), st.sampled_from([2, 9, 17, 18, 19, 23, 24, 165, 166]))
def test_any_bytes_are_read_or_refused(body: bytes, type_: int) -> None:
    try:
        content(table(1), event(type_, body))
    except ProtocolError:
        return


def test_all_events_of_a_payload() -> None:
    assert content(*split_events(b"".join(MASTER))).events == len(MASTER)


def bomb(text: bytes, plain_bytes: int) -> bytes:
    """A compressed query that stands for a thousand times as much."""
    plain = text + b"x" * (plain_bytes - len(text))
    head = query(b"")[19:]
    packed = b"\x84" + plain_bytes.to_bytes(4, "big") + zlib.compress(plain, 9)
    return event(165, head + packed)


def test_a_compressed_event_never_lies_in_memory() -> None:
    plain_bytes = 64 << 20
    small, other = bomb(b"INSERT INTO t VALUES (1)", plain_bytes), bomb(b"DELETE", plain_bytes)
    tracemalloc.start()
    try:
        found, different = content(small), content(other)
        assert event_info(small).startswith("use `d`; INSERT INTO t VALUES (1)xxx")
        assert tracemalloc.get_traced_memory()[1] < 4 << 20
    finally:
        tracemalloc.stop()
    assert compare(found, content(small)).likeness is Likeness.SAME
    assert compare(found, different).likeness is Likeness.OTHER
    assert found.parts[0].size == plain_bytes + 2
    assert found.plain_size >= plain_bytes
    ours = content(query(b"INSERT INTO t VALUES (1)" + b"x" * (plain_bytes - 24)))
    assert compare(ours, found).likeness is Likeness.SAME


def test_no_more_is_uncompressed_than_is_allowed() -> None:
    ours = content(query(b"INSERT INTO t VALUES (1)"))
    theirs = GroupContent(inflate_max=ours.plain_size)
    theirs.add(bomb(b"INSERT INTO t VALUES (1)", 1 << 20))
    theirs.finish()
    assert theirs.is_cut
    assert theirs.parts[0].subject.startswith("INSERT INTO t VALUES (1)x")
    assert compare(ours, theirs).likeness is Likeness.OTHER
    # Here there was more than we look at: then the time tells.
    assert compare(theirs, ours).likeness is Likeness.UNLIKE_FORM


def test_tables_of_a_group_have_a_limit() -> None:
    found = GroupContent()
    for number in range(TABLES_MAX):
        found.add(table(number))
    found.add(table(0))
    with pytest.raises(ProtocolError, match="tables"):
        found.add(table(TABLES_MAX))
