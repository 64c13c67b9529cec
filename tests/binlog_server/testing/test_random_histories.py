"""Generated histories, before anybody else reads them: tests/integration/test_random_histories.py has those who do."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from binlog_protocol.errors import BadValue
from binlog_protocol.events.event_type import EventType
from binlog_protocol.events.gtid import GtidEvent, GtidExtraFlags, GtidFlags
from binlog_protocol.events.header import TYPE_OFFSET, split_events
from binlog_protocol.groups.event_group import EventGroup, EventGroupAssembler
from binlog_protocol.groups.vocabulary import ROLES, Role
from hypothesis import HealthCheck, Phase, find, given, settings

from binlog_server.testing import BinlogMaster
from binlog_server.testing.random_columns import TYPE_NAMES
from binlog_server.testing.random_histories import RandomHistory, random_history
from binlog_server.testing.strategies import histories

NOT_MADE = {
    EventType.DELETE_FILE,  # of a LOAD DATA that has failed
    EventType.PARTIAL_ROW_DATA,  # of 12.3, and no replica of 11.8 knows it
    EventType.WRITE_ROWS_COMPRESSED,  # of version 2, which no MariaDB writes
    EventType.UPDATE_ROWS_COMPRESSED,
    EventType.DELETE_ROWS_COMPRESSED,
}
IN_GROUPS = (Role.GTID, Role.PREFIX, Role.QUERY, Role.COMMIT, Role.OTHER)


@pytest.fixture(scope="module")
def mixed() -> list[RandomHistory]:
    return [random_history(seed, groups=100, binlog_format="MIXED") for seed in range(8)]


def test_every_type_of_events_and_of_groups(mixed: list[RandomHistory]) -> None:
    types: Counter[int] = Counter()
    flags2 = extra = 0
    for group in (group for history in mixed for group in history.groups):
        events = list(split_events(group.payload))
        types.update(event[TYPE_OFFSET] for event in events)
        begin = GtidEvent.parse(events[0])
        assert begin.gtid == group.gtid
        flags2, extra = flags2 | begin.flags2, extra | begin.flags_extra
    wanted = {type_ for type_ in EventType if ROLES[type_] in IN_GROUPS} - NOT_MADE
    assert types.keys() == wanted
    assert flags2 == sum(GtidFlags)
    wanted_extra = GtidExtraFlags.START_ALTER | GtidExtraFlags.COMMIT_ALTER
    assert extra == wanted_extra | GtidExtraFlags.MULTI_ENGINE


def test_they_are_groups_as_masters_log_them(mixed: list[RandomHistory]) -> None:
    for history in mixed:
        assembler = EventGroupAssembler()
        read = [
            found
            for group in history.groups
            for event in split_events(group.payload)
            if (found := assembler.feed(event)) is not None
        ]
        assert assembler.unfinished is None
        assert read == [
            EventGroup(one.gtid, one.payload, len(list(split_events(one.payload))))
            for one in history.groups
        ]


def test_every_type_of_columns() -> None:
    texts = "".join(group.says for seed in range(20) for group in random_history(seed).groups)
    for name in TYPE_NAMES - {"json"}:
        assert f"` {name.split(' ')[0]}" in texts
    assert "COMPRESSED" in texts
    assert "json_valid" in texts


def test_a_seed_is_a_history() -> None:
    assert random_history(5).groups == random_history(5).groups
    assert random_history(5).tables == random_history(5).tables
    assert random_history(5).groups != random_history(6).groups


def test_rows_are_what_changes_have_made_of_them() -> None:
    """Where no DDL comes between, `tables` is what a consumer has that applies `changes`."""
    found = 0
    for seed in range(50):
        history = random_history(seed, groups=4, types=("int", "varchar"))
        if any(word in one.says for one in history.groups for word in ("ALTER", "TRUNC", "RENAME")):
            continue
        held: dict[str, dict[Any, Any]] = {name: {} for name in history.tables}
        for change in history.changes:
            rows = held.get(change.table, {})
            if change.before is not None and not change.was_undone:
                assert rows.pop(change.before["id"]) == change.before
            if change.after is not None and not change.was_undone:
                rows[change.after["id"]] = change.after
        ordered = {name: [row for _, row in sorted(rows.items())] for name, rows in held.items()}
        assert ordered == history.tables
        found += 1
    assert found > 5, "histories without DDL"


@pytest.mark.parametrize(
    "shape",
    [
        {"types": ("int", "wings")},
        {"domains": ()},
        {"domains": (0, 0)},
        {"domains": (1 << 32,)},
        {"server_ids": (0,)},
        {"engines": ("CSV",)},
        {"largest": 0},
        {"largest": 1 << 40},
        {"groups": -1},
        {"binlog_format": "STATEMENT"},
        {"binlog_row_image": "HALF"},
        {"binlog_row_metadata": "SOME"},
    ],
    ids=str,
)
def test_a_shape_that_there_is_not(shape: dict[str, Any]) -> None:
    with pytest.raises(BadValue):
        random_history(1, **shape)


def test_a_master_has_it_behind_what_is_there(binlog_master: BinlogMaster, tmp_path: Path) -> None:
    binlog_master.sql("CREATE DATABASE before")
    first = binlog_master.random(3, groups=5)
    again = binlog_master.random(3, groups=5)
    assert first.groups[0].gtid.seq_no == 2
    assert [one.says for one in first.groups] == [one.says for one in again.groups]
    assert first.groups[-1].gtid < again.groups[-1].gtid
    last = {one.gtid.domain_id: str(one.gtid) for one in again.groups}
    assert binlog_master.gtid_binlog_pos.split(",") == [last[0], last[1]]
    assert {one.gtid for one in again.changes} <= {one.gtid for one in again.groups}


def test_the_number_of_an_alter_in_two_phases_moves_along() -> None:
    history = random_history(1, groups=60, binlog_alter_two_phase=True).behind({0: 7000, 1: 7000})
    begun: set[tuple[int, int]] = set()
    ended = 0
    for group in history.groups:
        begin = GtidEvent.parse(group.payload[: int.from_bytes(group.payload[9:13], "little")])
        if begin.flags_extra & GtidExtraFlags.START_ALTER:
            begun.add((group.gtid.domain_id, group.gtid.seq_no))
        if begin.start_alter_seq_no is not None:
            begun.remove((group.gtid.domain_id, begin.start_alter_seq_no))
            # In the status variables of the statement, too.
            assert begin.start_alter_seq_no.to_bytes(8, "little") in group.payload[60:]
            ended += 1
    assert ended > 3
    assert not begun


QUICK = settings(
    max_examples=25,
    deadline=None,
    database=None,
    derandomize=True,
    suppress_health_check=list(HealthCheck),
)


@QUICK
@given(histories(groups=4, types=("int", "varchar")))
def test_hypothesis_draws_them(history: RandomHistory) -> None:
    assert len(history.groups) >= 4
    assert repr(history).count("CREATE OR REPLACE DATABASE") == 2


def test_what_fails_is_printed_in_words() -> None:
    @settings(QUICK, max_examples=5, phases=(Phase.generate,))  # to explain it takes seconds
    @given(histories(groups=0, types=("int",)))
    def fails(history: RandomHistory) -> None:
        raise AssertionError

    with pytest.raises(AssertionError) as error:
        fails()
    told = "\n".join(error.value.__notes__)
    assert "0-1-1 CREATE OR REPLACE DATABASE `random0`" in told
    assert "payload" not in told


def test_what_fails_becomes_short() -> None:
    """The simplest history with a row: a database, a table of one column beside the key, and the row."""
    wanted = settings(QUICK, max_examples=50, phases=(Phase.generate, Phase.shrink))
    history = find(
        histories(groups=3, domains=(0,), types=("int",)),
        lambda one: bool(one.changes),
        settings=wanted,
    )
    assert len(history.groups) == 3
    (change,) = history.changes
    assert change.before is None
    assert change.after == {"id": 1, "c1": 0}
