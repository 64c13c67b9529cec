from __future__ import annotations

from dataclasses import dataclass

import pytest
from binlog_protocol.dump.dump_position import DumpFilter, Verdict, check_position
from binlog_protocol.errors import ServerError
from binlog_protocol.gtid import BinlogState, Gtid, SlavePosition

UNKNOWN = (
    "Error: connecting slave requested to start from GTID {}, which is not in the master's binlog"
)
DIVERGED = ". Since the master's binlog contains GTIDs with higher sequence numbers"


def position(text: str) -> SlavePosition:
    return SlavePosition.parse(text)


def state(text: str) -> BinlogState:
    return BinlogState.parse(text)


# binlog state, position, ignore_duplicates, until (None: not given), error: "", "unknown D-S-N" or
# "diverged D-S-N"
CHECKS = [
    ("", "", False, None, ""),
    ("0-1-5", "", False, None, ""),
    ("0-1-5", "0-1-5", False, None, ""),
    ("0-1-5", "0-1-3", False, None, ""),
    ("0-1-5", "0-1-6", False, None, "unknown 0-1-6"),
    ("0-1-5", "0-1-9999", False, None, "unknown 0-1-9999"),
    # Another server of the domain: its own numbers count.
    ("0-1-5,0-2-9", "0-1-5", False, None, ""),
    ("0-1-5,0-2-9", "0-1-6", False, None, "diverged 0-1-6"),
    ("0-1-8", "0-33-5", False, None, "diverged 0-33-5"),
    ("0-1-8", "0-33-8", False, None, "diverged 0-33-8"),
    ("0-1-8", "0-33-9", False, None, "unknown 0-33-9"),
    # A domain that was never seen is let through.
    ("0-1-8", "7-7-77", False, None, ""),
    ("0-1-8", "0-1-8,7-7-77", False, None, ""),
    ("", "0-1-5", False, None, ""),
    # Every domain is checked.
    ("0-1-8,1-1-3", "0-1-8,1-1-4", False, None, "unknown 1-1-4"),
    # gtid_ignore_duplicates: the replica may be ahead, but not beside.
    ("0-1-5", "0-1-6", True, None, ""),
    ("0-1-5", "0-33-6", True, None, ""),
    ("0-1-5", "0-33-5", True, None, "diverged 0-33-5"),
    # UNTIL already in the binlog, or none for the domain: nothing is to be sent of it.
    ("0-1-5", "0-1-6", False, "0-1-5", ""),
    ("0-1-5", "0-1-6", False, "0-1-4", ""),
    ("0-1-5", "0-1-6", False, "", ""),
    ("0-1-5", "0-1-6", False, "1-1-1", ""),
    ("0-1-5", "0-1-6", False, "0-1-7", "unknown 0-1-6"),
    ("0-1-5", "0-1-6", False, "0-2-1", "unknown 0-1-6"),
]


@pytest.mark.parametrize(("binlog", "asked", "ignore", "until", "error"), CHECKS)
def test_check_position(
    binlog: str, asked: str, ignore: bool, until: str | None, error: str
) -> None:
    wanted = None if until is None else position(until)
    if not error:
        check_position(state(binlog), position(asked), ignore_duplicates=ignore, until=wanted)
        return
    kind, gtid = error.split()
    with pytest.raises(ServerError, match=r"^1236 ") as caught:
        check_position(state(binlog), position(asked), ignore_duplicates=ignore, until=wanted)
    assert caught.value.errno == 1236
    assert caught.value.message.startswith(UNKNOWN.format(gtid))
    assert (DIVERGED in caught.value.message) is (kind == "diverged")


@dataclass(frozen=True)
class Dump:
    """One dump: `sent` and `lists` (state text after the group) are what the replica gets."""

    name: str
    asked: str
    groups: str
    sent: str
    start: str = ""
    lists: tuple[str, ...] = ()
    until: str | None = None
    before: bool = False
    strict: bool = False
    binlog: str | None = None
    ends: bool = False
    transparent: bool = False


DUMPS = [
    Dump("fresh replica", "", "0-1-1 0-1-2", "0-1-1 0-1-2", transparent=True),
    Dump(
        "position in the middle",
        "0-1-2",
        "0-1-1 0-1-2 0-1-3",
        "0-1-3",
        lists=("0-1-2",),
        transparent=True,
    ),
    Dump(
        "start exactly at the position",
        "0-1-2",
        "0-1-3 0-1-4",
        "0-1-3 0-1-4",
        start="0-1-2",
        transparent=True,
    ),
    Dump("start before the position", "0-1-2", "0-1-2 0-1-3", "0-1-3", start="0-1-1",
         lists=("0-1-2",), transparent=True),
    Dump("not there yet", "0-1-9", "0-1-1 0-1-2", ""),
    Dump(
        "groups of another server are skipped until the position",
        "0-1-2",
        "0-1-1 0-2-5 0-1-2 0-2-6",
        "0-2-6",
        lists=("0-2-5,0-1-2",),
        transparent=True,
    ),
    Dump(
        "three domains are reached one by one",
        "0-1-2,1-1-1,2-1-1",
        "0-1-1 1-1-1 0-1-2 1-1-2 0-1-3 2-1-1 2-1-2",
        "1-1-2 0-1-3 2-1-2",
        lists=("0-1-1,1-1-1", "0-1-2,1-1-1", "0-1-3,1-1-2,2-1-1"),
        transparent=True,
    ),
    Dump(
        "a domain that is not asked for comes from its beginning",
        "0-1-2",
        "1-1-1 0-1-1 0-1-2 1-1-2",
        "1-1-1 1-1-2",
        lists=("1-1-1,0-1-2",),
        transparent=True,
    ),
    Dump(
        "hole, not strict: starts with what follows",
        "0-1-3",
        "0-1-2 0-1-4 0-1-5",
        "0-1-4 0-1-5",
        lists=("0-1-4",),
        transparent=True,
    ),
    Dump(
        "higher number of another server is no hole",
        "0-1-3",
        "0-2-9 0-1-3 0-1-10",
        "0-1-10",
        lists=("0-2-9,0-1-3",),
        strict=True,
        transparent=True,
    ),
    Dump(
        "strict without a hole",
        "0-1-2",
        "0-1-1 0-1-2 0-1-5",
        "0-1-5",
        lists=("0-1-2",),
        strict=True,
        transparent=True,
    ),
    # UNTIL
    Dump("until inside", "", "0-1-1 0-1-2 0-1-3", "0-1-1 0-1-2", until="0-1-2", ends=True),
    Dump("until before", "", "0-1-1 0-1-2 0-1-3", "0-1-1", until="0-1-2", before=True, ends=True),
    Dump("until is missing", "", "0-1-1 0-1-3", "0-1-1", until="0-1-2", ends=True),
    Dump("until of another server", "", "0-1-1 0-1-9 0-2-2", "0-1-1 0-1-9 0-2-2", until="0-2-2",
         ends=True),
    Dump("until not reached yet", "", "0-1-1 0-1-2", "0-1-1 0-1-2", until="0-1-9"),
    Dump("until of nothing", "", "0-1-1", "", until="", ends=True),
    Dump(
        "domains absent from until are not sent",
        "",
        "0-1-1 1-1-1 0-1-2",
        "0-1-1 0-1-2",
        until="0-1-2",
        ends=True,
    ),
    Dump(
        "all until domains must be done",
        "",
        "0-1-1 1-1-1 0-1-2 1-1-2",
        "0-1-1 1-1-1 1-1-2",
        until="0-1-1,1-1-2",
        ends=True,
    ),
    Dump(
        "position and until",
        "0-1-2",
        "0-1-1 0-1-2 0-1-3 0-1-4",
        "0-1-3",
        until="0-1-3",
        lists=("0-1-2",),
        ends=True,
    ),
    Dump("until is the position", "0-1-2", "0-1-1 0-1-2", "", until="0-1-2", lists=("0-1-2",),
         ends=True),
    Dump("until reached by the start", "0-1-2", "0-1-3", "", start="0-1-2", until="0-1-2",
         ends=True),
    Dump("until long before the start", "0-1-5", "0-1-6", "", start="0-1-5", until="0-1-2",
         ends=True),
    Dump("one until done at the start", "0-1-2", "0-1-3 1-1-1", "1-1-1", start="0-1-2",
         until="0-1-2,1-1-1", ends=True),
    Dump("until in the binlog, position beyond it", "0-1-9", "0-1-1 0-1-2", "", until="0-1-2",
         binlog="0-1-5", ends=True),
    # A domain that was unknown when the replica connected
    Dump("unknown domain turns up at the position", "7-7-1", "7-7-1 7-7-2", "7-7-2",
         lists=("7-7-1",), binlog="", transparent=True),
    Dump("unknown domain turns up at the position, others too", "0-1-1,7-7-1",
         "0-1-2 7-7-1 7-7-2", "0-1-2 7-7-2", start="0-1-1", binlog="0-1-1",
         lists=("0-1-2,7-7-1",), transparent=True),
]  # fmt: skip


@pytest.mark.parametrize("dump", DUMPS, ids=lambda dump: dump.name)
def test_dump(dump: Dump) -> None:
    live = None if dump.binlog is None else state(dump.binlog)
    dump_filter = DumpFilter(
        position(dump.asked),
        state_at_start=state(dump.start),
        strict_mode=dump.strict,
        until=None if dump.until is None else position(dump.until),
        until_before_gtids=dump.before,
        binlog_state=live,
    )
    sent, lists = [], []
    for text in dump.groups.split():
        if dump_filter.until_reached:
            break
        gtid = Gtid.parse(text)
        if live is not None:
            live.update(gtid)
        if dump_filter.decide(gtid) is Verdict.SEND:
            sent.append(text)
        due = dump_filter.take_gtid_list()
        if due is not None:
            lists.append(str(due))
        assert dump_filter.take_gtid_list() is None
    assert " ".join(sent) == dump.sent
    assert tuple(lists) == dump.lists
    assert dump_filter.until_reached is dump.ends
    assert dump_filter.transparent is dump.transparent


def test_until_reached_needs_no_group() -> None:
    dump_filter = DumpFilter(
        position("0-1-2"), state_at_start=state("0-1-2"), until=position("0-1-2")
    )
    assert dump_filter.until_reached
    assert str(dump_filter.state) == "0-1-2"


def test_hole_in_strict_mode() -> None:
    dump_filter = DumpFilter(position("0-1-505"), state_at_start=state(""), strict_mode=True)
    assert dump_filter.decide(Gtid(0, 1, 504)) is Verdict.SKIP
    with pytest.raises(ServerError, match=r"^1236 ") as caught:
        dump_filter.decide(Gtid(0, 1, 506))
    assert caught.value.message.startswith(
        "The binlog on the master is missing the GTID 0-1-505 requested by the slave"
    )


@pytest.mark.parametrize(
    ("asked", "first", "ignore", "error"),
    [
        ("7-7-5", "7-7-1", False, "unknown"),
        ("7-7-5", "7-8-1", False, "unknown"),
        ("7-7-5", "7-8-9", False, "diverged"),
        ("7-7-5", "7-7-1", True, ""),
        ("7-7-5", "7-7-5", False, ""),
        ("7-7-5", "7-7-6", False, ""),
    ],
)
def test_first_group_of_a_domain_unknown_before(
    asked: str, first: str, ignore: bool, error: str
) -> None:
    live = state("0-1-1")
    check_position(live, position(asked), ignore_duplicates=ignore)
    dump_filter = DumpFilter(
        position(asked), state_at_start=live, ignore_duplicates=ignore, binlog_state=live
    )
    assert not dump_filter.transparent
    assert dump_filter.decide(Gtid(0, 1, 2)) is Verdict.SEND
    gtid = Gtid.parse(first)
    live.update(gtid)
    if not error:
        dump_filter.decide(gtid)
        return
    with pytest.raises(ServerError, match=r"^1236 ") as caught:
        dump_filter.decide(gtid)
    assert (DIVERGED in caught.value.message) is (error == "diverged")


def test_the_live_state_may_already_hold_the_position() -> None:
    live = state("0-1-1")
    dump_filter = DumpFilter(position("7-7-5"), state_at_start=live, binlog_state=live)
    live.overlay([Gtid(7, 7, 1), Gtid(7, 7, 5)])
    assert dump_filter.decide(Gtid(7, 7, 1)) is Verdict.SKIP
    assert dump_filter.decide(Gtid(7, 7, 5)) is Verdict.SKIP
    assert dump_filter.decide(Gtid(7, 7, 6)) is Verdict.SEND


def test_start_marker_waits_for_the_position() -> None:
    dump_filter = DumpFilter(position("0-1-1,1-1-1"), state_at_start=state(""))
    assert not dump_filter.send_marker()
    dump_filter.decide(Gtid(0, 1, 1))
    assert not dump_filter.send_marker()
    dump_filter.decide(Gtid(1, 1, 1))
    assert dump_filter.send_marker()


def test_start_marker_does_not_wait_for_a_domain_without_history() -> None:
    live = state("0-1-1")
    dump_filter = DumpFilter(
        position("0-1-1,7-7-7"), state_at_start=state("0-1-1"), binlog_state=live
    )
    assert dump_filter.send_marker()
    assert not dump_filter.transparent


def test_start_marker_comes_first_for_a_fresh_replica_and_not_after_until() -> None:
    assert DumpFilter(position(""), state_at_start=state("")).send_marker()
    ended = DumpFilter(position(""), state_at_start=state(""), until=position(""))
    assert not ended.send_marker()


def test_the_given_states_are_left_alone() -> None:
    start = state("0-1-1")
    dump_filter = DumpFilter(position("0-1-2"), state_at_start=start)
    dump_filter.decide(Gtid(0, 1, 2))
    assert start == state("0-1-1")
    assert dump_filter.state == state("0-1-2")
