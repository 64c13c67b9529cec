"""Views events and transactions say what plain Python says of the same groups, however those come."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pytest
from binlog_pipeline.errors import SourceError
from binlog_pipeline.groups import Groups
from binlog_pipeline.views import event_batches, events
from binlog_pipeline.views.events import EventsView
from binlog_pipeline.views.transactions import TransactionsView
from binlog_pipeline.views.view import View
from binlog_protocol.events.event_type import EventType
from binlog_protocol.events.gtid import GtidEvent, GtidExtraFlags, GtidFlags, XaId
from binlog_protocol.events.header import build_event
from binlog_protocol.events.query import QueryEvent
from binlog_protocol.gtid import Gtid

from tests.pipeline.plain_views import (
    Placed,
    Row,
    as_groups,
    as_large,
    event_rows,
    placed,
    recorded,
    transaction_rows,
)
from tests.protocol.row_columns.reference import rows_event, table_map

Plain = Callable[..., list[Row]]
VIEWS = [
    pytest.param(EventsView(), event_rows, id="events"),
    pytest.param(TransactionsView(), transaction_rows, id="transactions"),
]
RECORDED = placed(recorded())


def rows_of(view: View, groups: Iterable[Groups]) -> list[Row]:
    found: list[Row] = []
    for batch in view.batches(groups):
        batch.validate(full=True)
        assert batch.schema.equals(view.schema)
        found += batch.to_pylist()
    return found


@pytest.mark.by_turns(2)
@pytest.mark.parametrize("at_once", [1, 7, 1000])
@pytest.mark.parametrize(("view", "plain"), VIEWS)
def test_recorded_groups(view: View, plain: Plain, at_once: int) -> None:
    assert rows_of(view, as_groups(RECORDED, at_once)) == plain(RECORDED)


@pytest.mark.by_turns(3)
@pytest.mark.parametrize("run_bytes", [1, 300, 4 << 20])
@pytest.mark.parametrize(("view", "plain"), VIEWS)
def test_large_groups(
    view: View, plain: Plain, run_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In pieces of any size they give the same; and what comes behind them."""
    monkeypatch.setattr(event_batches, "_RUN_BYTES", run_bytes)

    def groups() -> Iterator[Groups]:
        yield from as_groups(RECORDED[:5])
        yield from as_large(RECORDED)
        yield from as_groups(RECORDED[:5])

    few = plain(RECORDED[:5])
    assert rows_of(view, groups()) == [*few, *plain(RECORDED, large=True), *few]


def test_the_recorded_have_of_everything() -> None:
    found = transaction_rows(RECORDED)
    assert {row["xa"] for row in found} == {None, "prepared", "commit", "rollback"}
    assert {bool(row["ddl"]) for row in found} == {True, False}
    assert any(row["updates"] and row["xid"] for row in found)
    assert any(row["thread_id"] is None for row in found)
    names = {row["type_name"] for row in event_rows(RECORDED)}
    assert {"WRITE_ROWS_COMPRESSED_V1", "QUERY_COMPRESSED", "XA_PREPARE_LOG"} <= names


def made(*events: bytes, seq_no: int = 1) -> Placed:
    gtid = GtidEvent(Gtid(5, 6, seq_no), timestamp=1_700_000_000).build()
    return placed([gtid + b"".join(events)])[0]


def test_many_rows_come_in_small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events, "BATCH_ROWS", 10)
    batches = list(EventsView().batches(as_groups(RECORDED)))
    assert {batch.num_rows for batch in batches[:-1]} == {10}
    assert sum(batch.num_rows for batch in batches) == len(event_rows(RECORDED))


def test_several_tables_in_one_statement() -> None:
    """Maps first, then row events of any of them; the tables come in the order of their first rows."""

    def rows(table_id: int, count: int) -> bytes:
        return rows_event(EventType.DELETE_ROWS_V1, table_id, 1, [1], b"\0\1" * count)

    def named(table_id: int, name: bytes) -> bytes:
        return table_map(table_id, 1).replace(b"\1t\0", b"\1" + name + b"\0")

    group = made(
        named(9, b"x"),
        named(8, b"y"),
        named(7, b"x"),
        rows(8, 2),
        rows(9, 1),
        rows(8, 3),
        rows(7, 1),
    )
    (found,) = rows_of(TransactionsView(), as_groups([group]))
    assert [(t["table"], t["rows"]) for t in found["tables"]] == [("y", 5), ("x", 2)]
    assert found["deletes"] == 7


@pytest.mark.parametrize("commit_id", [None, 5])
@pytest.mark.parametrize("xa_id", [None, XaId(1, b"global", b"b")])
@pytest.mark.parametrize("engines", [None, 2])
@pytest.mark.parametrize("start_alter", [None, 77])
@pytest.mark.parametrize("thread_id", [None, 4_000_000_000])
def test_gtid_events_with_all_they_may_have(
    commit_id: int | None,
    xa_id: XaId | None,
    engines: int | None,
    start_alter: int | None,
    thread_id: int | None,
) -> None:
    extra = 0 if start_alter is None else GtidExtraFlags.COMMIT_ALTER
    gtid = GtidEvent(
        Gtid(5, 6, 1),
        0 if xa_id is None else GtidFlags.PREPARED_XA,
        commit_id=commit_id,
        xa_id=xa_id,
        flags_extra=extra,
        extra_engines=engines,
        start_alter_seq_no=start_alter,
        thread_id=thread_id,
    )
    group = placed([gtid.build() + QueryEvent(b"SELECT 1", 1, thread_id=9).build()])
    (found,) = rows_of(TransactionsView(), as_groups(group))
    assert found == transaction_rows(group)[0]
    assert found["thread_id"] == (thread_id or 9)


def test_names_that_are_no_utf8() -> None:
    query = QueryEvent(b"SELECT 1", 1, b"\xff\xfe").build()
    table = table_map(7, 1).replace(b"\1d\0", b"\1\xff\0")
    found = rows_of(EventsView(), as_groups([made(query, table)]))
    assert [row["db"] for row in found] == [None, "\ufffd\ufffd", "\ufffd"]


DAMAGED: list[tuple[bytes, str]] = [
    (b"\0" * 25, "group 5-6-1: .*length"),
    (rows_event(EventType.WRITE_ROWS_V1, 7, 1, [1], b"\0\1"), "group 5-6-1: .*without a table map"),
    (table_map(7, 1).replace(b"\1d\0", b"\xf0d\0"), "group 5-6-1: table map .*cut short"),
]


@pytest.mark.parametrize(("event", "says"), DAMAGED)
@pytest.mark.parametrize("view", [EventsView(), TransactionsView()])
@pytest.mark.parametrize("cut", [as_groups, as_large])
def test_damage_names_the_group(view: View, event: bytes, says: str, cut: Any) -> None:
    with pytest.raises(SourceError, match=says):
        rows_of(view, cut([made(event)]))


@pytest.mark.parametrize("cut", [as_groups, as_large])
def test_a_damaged_statement(cut: Any) -> None:
    query = build_event(EventType.QUERY, b"\xff" * 14, server_id=1)
    with pytest.raises(SourceError, match=r"group 5-6-1: query event: .* beyond its end .*event 1"):
        rows_of(EventsView(), cut([made(query)]))
