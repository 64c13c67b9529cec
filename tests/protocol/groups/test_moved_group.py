"""A group under a later number is the same group."""

from __future__ import annotations

from dataclasses import replace

import pytest
from binlog_protocol.errors import ProtocolError
from binlog_protocol.events.compressed import compressed, uncompressed
from binlog_protocol.events.gtid import GtidEvent, GtidExtraFlags
from binlog_protocol.events.header import EventHeader, split_events
from binlog_protocol.events.query import QueryEvent
from binlog_protocol.events.status_variables import StatusVariables
from binlog_protocol.groups.moved_group import moved_group, seconds_of
from binlog_protocol.gtid import U64_MAX, Gtid

from tests.protocol.statement_groups import transaction_group

GROUP = transaction_group(
    Gtid(3, 9, 7), ["INSERT INTO t VALUES (1)"], xid=7, database="d", timestamp=1_700_000_000
)


def test_only_number_and_time_are_others() -> None:
    moved = moved_group(GROUP, 5, 1_800_000_000)
    first, *rest = split_events(moved)
    assert GtidEvent.parse(first).gtid == Gtid(3, 9, 12)
    assert {EventHeader.parse(event).timestamp for event in (first, *rest)} == {1_800_000_000}
    assert seconds_of(moved) == 1_800_000_000
    assert moved_group(moved, -5, 1_700_000_000) == GROUP
    assert moved_group(GROUP, 0) == GROUP


def test_the_number_that_it_refers_to_moves_along() -> None:
    ends_alter = GtidEvent(
        Gtid(0, 1, 9), flags_extra=int(GtidExtraFlags.COMMIT_ALTER), start_alter_seq_no=4
    )
    moved = GtidEvent.parse(moved_group(ends_alter.build(), 10))
    assert (moved.gtid.seq_no, moved.start_alter_seq_no) == (19, 14)


def test_the_alter_that_is_ended_has_that_number_too() -> None:
    variables = StatusVariables(
        sql_mode=0, alter_flags=int(GtidExtraFlags.COMMIT_ALTER), start_alter_seq_no=4
    )
    begin = GtidEvent(
        Gtid(0, 1, 9), flags_extra=int(GtidExtraFlags.COMMIT_ALTER), start_alter_seq_no=4
    ).build()
    query = QueryEvent(b"ALTER TABLE t FORCE", 1, b"d", variables.build())
    for statement in (query.build(), compressed(query.build())):
        _, moved = split_events(moved_group(begin + statement, 10))
        found = QueryEvent.parse(uncompressed(moved))
        assert StatusVariables.parse(found.status_variables).start_alter_seq_no == 14
        assert found == replace(query, status_variables=found.status_variables)
        assert moved_group(begin + statement, 0) == begin + statement


@pytest.mark.parametrize("by", [-7, U64_MAX])
def test_numbers_that_there_are_not(by: int) -> None:
    with pytest.raises(ProtocolError):
        moved_group(GROUP, by)
