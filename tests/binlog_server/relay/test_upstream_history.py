"""What an upstream's lists prove: when a history that goes on is told from one that has begun anew."""

from __future__ import annotations

import pytest
from binlog_protocol.events.gtid_list import GtidList
from binlog_protocol.groups.event_group import EventGroup
from binlog_protocol.groups.group_runs import GroupRun
from binlog_protocol.gtid import Gtid, parse_gtid_list
from binlog_storage.testing.memory_engine import MemoryEngine

from binlog_server.commits.publisher import Publisher
from binlog_server.relay.gate import Domains, Gate, GroupRefused, UpstreamHistory
from binlog_server.upstreams.master_info import GroupFilter
from tests.binlog_server.lab import transaction


class Stream:
    """From a store that has that, with gates of one server."""

    def __init__(self, position: str, group_filter: GroupFilter | None = None) -> None:
        self.engine = MemoryEngine()
        for gtid in parse_gtid_list(position):
            self.engine.append(transaction(gtid), gtid)
        publisher = Publisher(
            self.engine, server_version="11", server_id=10, domain_id=0, follows=True
        )
        self.domains = Domains(self.engine, publisher)
        self.gate = Gate("upstream", self.domains, group_filter or GroupFilter())
        self.history = UpstreamHistory(self.engine, self.gate)

    def comes(self, text: str, gate: Gate | None = None) -> None:
        """A group."""
        gtid = Gtid.parse(text)
        payload = transaction(gtid)
        assert (gate or self.gate).admits(EventGroup(gtid, payload, 3))
        self.engine.append(payload, gtid)

    def starts_file(self, state: str) -> None:
        self.history.compare(GtidList(tuple(parse_gtid_list(state)), 1, timestamp=1))

    def tells_place(self, state: str) -> None:
        self.history.compare(GtidList.fake(parse_gtid_list(state), 1))


def test_a_history_that_goes_on() -> None:
    stream = Stream("0-1-5,7-1-3")
    stream.starts_file("")
    stream.starts_file("0-1-2")  # older files: what we have is not sent again
    stream.tells_place("0-1-5")
    stream.starts_file("0-1-5")
    stream.starts_file("0-1-5,7-1-2")
    stream.tells_place("0-1-5,7-1-3")
    stream.comes("0-1-6")
    stream.comes("0-2-7")
    stream.starts_file("0-1-6,0-2-7,7-1-3")
    stream.comes("0-1-8")
    stream.starts_file("0-2-7,0-1-8,7-1-3,9-9-9")  # a domain that was left out here before
    stream.starts_file("7-1-3")  # FLUSH BINARY LOGS DELETE_DOMAIN_ID=(0)


@pytest.mark.parametrize(
    ("state", "theirs"),
    [("0-1-2", "0-1-2"), ("0-1-9", "0-1-9"), ("0-1-5,0-2-1", "0-2-1"), ("0-2-5", "0-2-5")],
)
def test_nothing_has_come_and_a_file_begins_elsewhere(state: str, theirs: str) -> None:
    stream = Stream("0-1-5")
    stream.tells_place("0-1-5")
    with pytest.raises(GroupRefused, match=f"begins behind {theirs}, but 0-1-5 is stored already"):
        stream.starts_file(state)


def test_groups_have_come_and_a_file_begins_elsewhere() -> None:
    stream = Stream("0-1-5")
    stream.comes("0-1-6")
    with pytest.raises(GroupRefused, match="begins behind 0-1-9, but 0-1-6 is stored already"):
        stream.starts_file("0-1-9")


def test_the_place_was_the_begin_of_a_file() -> None:
    stream = Stream("0-1-5")
    stream.starts_file("0-1-5")
    with pytest.raises(GroupRefused, match="its binlog has begun anew"):
        stream.starts_file("0-1-9")


def test_nothing_is_known_while_older_groups_are_passed_over() -> None:
    stream = Stream("0-1-5,7-1-3")
    stream.tells_place("0-1-5")
    stream.starts_file("0-1-5,7-1-9")


@pytest.mark.parametrize(
    "group_filter",
    [
        GroupFilter(ignore_domain_ids=frozenset({0})),
        GroupFilter(do_domain_ids=frozenset({7})),
        GroupFilter(ignore_server_ids=frozenset({2})),
    ],
)
def test_what_is_left_out_is_not_missed(group_filter: GroupFilter) -> None:
    stream = Stream("0-1-5", group_filter)
    stream.tells_place("0-1-5")
    stream.starts_file("0-1-5,0-2-9")


def test_of_several_masters_it_is_not_known() -> None:
    stream = Stream("0-1-5")
    stream.tells_place("0-1-5")
    other = Gate("other", stream.domains, GroupFilter())
    stream.comes("0-1-6", other)
    stream.starts_file("0-1-5")
    other.release()
    again = Stream("0-1-5")
    again.domains.ignore_duplicates = True
    again.tells_place("0-1-5")
    again.starts_file("0-1-9")


def test_runs_go_on_where_those_before_ended() -> None:
    stream = Stream("0-1-5,0-2-3")

    def admits(*texts: str) -> bool:
        gtids = [Gtid.parse(text) for text in texts]
        return stream.gate.admits_run(GroupRun.of([b""] * len(gtids), gtids, timestamp=7))

    with pytest.raises(GroupRefused, match="it sends 0-1-5"):
        admits("0-1-5", "0-1-6")
    assert admits("0-1-6", "0-1-7")
    assert admits("0-1-8")
    assert admits("0-2-4")
    for texts in (("0-1-8",), ("0-1-7", "0-1-9"), ("0-2-4", "0-2-5")):
        with pytest.raises(GroupRefused, match=f"it sends {texts[0]}"):
            admits(*texts)
    assert admits("0-1-9", "0-1-20")
    assert stream.gate.last_timestamp == 7
    stream.gate.begin()  # a new connection: what was let in is in the store, or comes again
    assert admits("0-1-6")
