"""Large groups on their way from an upstream into the store: in pieces, and only if they come whole."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from binlog_protocol.events.checksum import append_checksum
from binlog_protocol.events.event_type import EventType
from binlog_protocol.events.gtid import GtidEvent
from binlog_protocol.events.gtid_list import GtidList
from binlog_protocol.events.header import build_event
from binlog_protocol.events.query import QueryEvent
from binlog_protocol.events.xid import XidEvent
from binlog_protocol.groups.group_check import check_groups
from binlog_protocol.groups.stored_group import group_gtid
from binlog_protocol.gtid import Gtid
from binlog_protocol.wire.gathered import GatheredPayload
from binlog_storage.binlog.store import IbbEngine
from binlog_storage.errors import NoRoom
from binlog_storage.testing.memory_disk import MemoryDisk

from binlog_server.relay.byte_stream import ByteStream
from binlog_server.relay.large_group import IncomingGroup
from binlog_server.relay.status import UpstreamStatus
from binlog_server.relay.stream import UpstreamStream
from tests.binlog_server.lab import until, within
from tests.binlog_server.relay.test_follower import Delays, delays, following
from tests.binlog_server.upstream import OPENING, FakeUpstream, Visit, description, groups, rotate
from tests.protocol.sample_events import row_body
from tests.storage.groups import read_all
from tests.storage.sizes import small

__all__ = ["delays"]

PIECE = 4000


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("binlog_server.relay.ingest.PIECE_BYTES", PIECE)


@pytest.fixture
def engine() -> IbbEngine:
    return IbbEngine(MemoryDisk(), small(6))


def large(gtid: Gtid, sizes: list[int], *, standalone: bool = False) -> list[bytes]:
    """Events in normal form."""
    if standalone:
        text = b"CREATE TABLE t (a INT) COMMENT '" + b"x" * sizes[0] + b"'"
        ddl = QueryEvent(text, gtid.server_id, b"d").build()
        return [GtidEvent(gtid, 0x29).build(), ddl]
    rows = [
        build_event(
            EventType.WRITE_ROWS_V1,
            row_body(size, bytes([n % 251 + 1])),
            server_id=gtid.server_id,
        )
        for n, size in enumerate(sizes)
    ]
    return [GtidEvent(gtid, 0x0C).build(), *rows, XidEvent(7, gtid.server_id).build()]


def sent(events: list[bytes]) -> list[bytes]:
    return [append_checksum(event) for event in events]


LARGE = {
    "many events": [300] * 500,
    "few events, larger than a piece": [9000] * 20,
    "an event larger than a file": [200_000, 10, 200_000],
    "just a piece": [PIECE - 200],
    "an event of several packets": [1 << 24],
    "events that are received where they stay": [1 << 20, 8 << 20, 600_000, 10, 4 << 20, 1 << 20],
}


@pytest.mark.parametrize("name", LARGE)
async def test_stored_whole(
    name: str, engine: IbbEngine, delays: Delays, monkeypatch: pytest.MonkeyPatch
) -> None:
    events = large(Gtid(0, 1, 2), LARGE[name])
    read_into, received = ByteStream.read_into, []

    async def noted(self: ByteStream, payload: GatheredPayload, timeout_s: float) -> bool:
        received.append(payload.length)
        return await read_into(self, payload, timeout_s)

    monkeypatch.setattr(ByteStream, "read_into", noted)
    around = groups("0-1-1"), groups("0-1-3")
    status = UpstreamStatus("it")
    async with (
        FakeUpstream([Visit(OPENING + around[0] + sent(events) + around[1])]) as upstream,
        following(upstream, engine, status=status),
    ):
        await until(lambda: str(engine.binlog_state()) == "0-1-3" and not status.storing)
    engine.sync()
    found = read_all(engine)
    assert len(found) == 3
    assert status.bytes_stored == sum(map(len, found))
    assert found[1] == b"".join(events)
    assert bool(received) == (max(LARGE[name]) > 4_000_000)
    engine.close()


async def test_a_large_standalone_group(engine: IbbEngine, delays: Delays) -> None:
    events = large(Gtid(0, 1, 1), [50_000], standalone=True)
    async with (
        FakeUpstream([Visit(OPENING + sent(events) + groups("0-1-2"))]) as upstream,
        following(upstream, engine),
    ):
        await until(lambda: str(engine.binlog_state()) == "0-1-2")
    engine.sync()
    assert read_all(engine)[0] == b"".join(events)
    engine.close()


@pytest.mark.parametrize("standalone", [False, True])
async def test_more_than_a_record_and_less_than_a_piece(
    standalone: bool, engine: IbbEngine, delays: Delays, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It comes whole, alone or in a run, and its pages are logged: its commit waits for no file."""
    monkeypatch.setattr("binlog_server.relay.ingest.PIECE_BYTES", 1 << 20)
    begin, bulk = IbbEngine.begin, []

    def noted(self: IbbEngine, **how: bool) -> Any:
        bulk.append(how["bulk"])
        return begin(self, **how)

    monkeypatch.setattr(IbbEngine, "begin", noted)
    events = large(Gtid(0, 1, 2), [engine.cache_bytes + 1000], standalone=standalone)
    async with (
        FakeUpstream(
            [Visit(OPENING + groups("0-1-1") + sent(events) + groups("0-1-3"))]
        ) as upstream,
        following(upstream, engine),
    ):
        await until(lambda: str(engine.binlog_state()) == "0-1-3")
    engine.sync()
    assert read_all(engine)[1] == b"".join(events)
    assert bulk == [False]
    engine.close()


@pytest.mark.parametrize("end", ["cut", "eof"])
@pytest.mark.parametrize("kept", [2, 50, 499, 500])
async def test_cut_off_it_never_was(kept: int, end: str, engine: IbbEngine, delays: Delays) -> None:
    """It comes again, whole, and once."""
    events = large(Gtid(0, 1, 2), [300] * 500)
    first = Visit(OPENING + groups("0-1-1") + sent(events)[:kept], end=end)
    async with (
        FakeUpstream([first, Visit(OPENING + sent(events) + groups("0-1-3"))]) as upstream,
        following(upstream, engine),
    ):
        await until(lambda: str(engine.binlog_state()) == "0-1-3")
    assert upstream.positions == ["", "0-1-1"]
    engine.sync()
    found = read_all(engine)
    assert len(found) == 3
    assert found[1] == b"".join(events)
    engine.close()


async def test_a_start_of_the_upstream_ends_what_had_begun(
    engine: IbbEngine, delays: Delays
) -> None:
    """It was killed inside a large group: what has come of that is no part of the large group that comes next."""
    begun = large(Gtid(0, 1, 2), [300] * 500)[:-1]
    next_group = large(Gtid(0, 1, 2), [1 << 24])  # more than comes at once: no run has it
    events = OPENING + groups("0-1-1") + sent(begun) + [description(1)] + sent(next_group)
    async with (
        FakeUpstream([Visit(events + groups("0-1-3"))]) as upstream,
        following(upstream, engine),
    ):
        await until(lambda: str(engine.binlog_state()) == "0-1-3")
    engine.sync()
    found = [payload for payload in read_all(engine) if payload[4] != EventType.FORMAT_DESCRIPTION]
    assert len(found) == 3
    assert found[1] == b"".join(next_group)
    engine.close()


async def test_the_limit_is_kept(
    engine: IbbEngine, delays: Delays, caplog: pytest.LogCaptureFixture
) -> None:
    """Also of what lies in the store already."""
    events = large(Gtid(0, 1, 2), [3000] * 500)
    async with (
        FakeUpstream([Visit(OPENING + groups("0-1-1") + sent(events))]) as upstream,
        following(upstream, engine, max_event_group_size=1 << 20),
    ):
        await until(lambda: upstream.visits == 2)
    assert "group 0-1-2 has more than 1048576 bytes; raise max_event_group_size" in caplog.text
    assert str(engine.binlog_state()) == "0-1-1"
    engine.close()


async def test_refused_at_its_end(
    engine: IbbEngine, delays: Delays, caplog: pytest.LogCaptureFixture
) -> None:
    """Its pieces are in the store by then: what was written for it is rolled back."""
    events = large(Gtid(0, 1, 2), [300] * 500)
    async with (
        FakeUpstream([Visit(OPENING + groups("0-1-3") + sent(events))]) as upstream,
        following(upstream, engine) as task,
    ):
        await within(task)
    assert "it sends 0-1-2, but 0-1-3 is stored already" in caplog.text
    assert str(engine.binlog_state()) == "0-1-3"
    engine.reset()  # which is refused while a group is open
    engine.close()


async def test_its_commit_finds_no_room(
    engine: IbbEngine, delays: Delays, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing holds files for what was spilled; with the next connection it comes again."""
    commit, held = IncomingGroup.commit, []

    def no_room(group: IncomingGroup, gtid: Gtid, age: int) -> int:
        held.append(len(engine.references.holds()))
        monkeypatch.setattr(IncomingGroup, "commit", commit)
        raise NoRoom("no room (injected)")

    monkeypatch.setattr(IncomingGroup, "commit", no_room)
    visit = OPENING + groups("0-1-1") + sent(large(Gtid(0, 1, 2), [300] * 500))
    again = OPENING + sent(large(Gtid(0, 1, 2), [300] * 500))
    async with (
        FakeUpstream([Visit(visit), Visit(again)]) as upstream,
        following(upstream, engine),
    ):
        await until(lambda: str(engine.binlog_state()) == "0-1-2")
    assert held == [1]
    assert engine.references.holds() == []
    engine.reset()  # which is refused while a group is open
    engine.close()


BEHIND: dict[str, Callable[[], list[bytes]]] = {
    "a run": lambda: groups("0-1-2", "0-1-3"),
    "a large group": lambda: sent(large(Gtid(0, 1, 2), [300] * 500)),
    "a large statement": lambda: sent(large(Gtid(0, 1, 2), [50_000], standalone=True)),
    "a start": lambda: [description(created=5), *groups("0-1-2")],
}


@pytest.mark.parametrize("name", BEHIND)
async def test_a_reset_behind_the_question_where_to_go_on(
    name: str, engine: IbbEngine, delays: Delays, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What comes belongs behind the end of a binlog that is no more: the new one would begin with a hole."""
    note_begin, began = UpstreamStream._note_begin, []

    def noted(stream: UpstreamStream, handshake: Any, position: str) -> None:
        note_begin(stream, handshake, position)
        began.append(position)
        if position == "0-1-1":
            engine.reset()

    monkeypatch.setattr(UpstreamStream, "_note_begin", noted)
    visits = [
        (groups("0-1-1"), "cut"),
        (BEHIND[name](), "hold"),
        (groups("0-1-1", "0-1-2"), "hold"),
    ]
    async with (
        FakeUpstream([Visit(OPENING + visit, end) for visit, end in visits]) as upstream,
        following(upstream, engine),
    ):
        await until(lambda: str(engine.binlog_state()) == "0-1-2" and len(began) > 2)
    assert began[:3] == ["", "0-1-1", ""]
    engine.sync()
    assert [gtid for gtid in map(group_gtid, read_all(engine)) if gtid] == [
        Gtid(0, 1, 1),
        Gtid(0, 1, 2),
    ]
    assert engine.references.holds() == []
    engine.close()


async def test_following_ends_in_the_middle(engine: IbbEngine, delays: Delays) -> None:
    events = large(Gtid(0, 1, 2), [300] * 500)
    async with (
        FakeUpstream([Visit(OPENING + groups("0-1-1") + sent(events)[:-1])]) as upstream,
        following(upstream, engine),
    ):
        before = engine.written_end
        await until(
            lambda: (
                engine.written_end.offset > before.offset + PIECE * 10
                or engine.written_end.file_no > 0
            )
        )
    engine.close()  # nothing is open any more
    assert str(engine.binlog_state()) == "0-1-1"


async def test_starts_in_the_same_second_are_two_if_a_group_lies_between(
    engine: IbbEngine, delays: Delays
) -> None:
    start = description(created=7)
    events = [rotate(), start, start, *groups("0-1-1"), rotate(), start, *groups("0-1-2")]
    async with FakeUpstream([Visit(events)]) as upstream, following(upstream, engine):
        await until(lambda: str(engine.binlog_state()) == "0-1-2")
    engine.sync()
    found = [payload[4] for payload in read_all(engine)]
    assert found == [15, 162, 15, 162]
    engine.close()


def _gtid_event_cut() -> list[bytes]:
    """GROUP_COMMIT_ID, and six bytes where eight are announced."""
    first, *rest = large(Gtid(0, 1, 2), [300])
    body = first[19:31] + b"\x02" + bytes(6)
    return [build_event(EventType.GTID, body, server_id=1), *rest]


def _row_event_cut() -> list[bytes]:
    """When much of the group is in the store already."""
    events = large(Gtid(0, 1, 2), [300] * 500)
    events[400] = build_event(EventType.WRITE_ROWS_V1, bytes(8) + b"\xfb", server_id=1)
    return events


@pytest.mark.parametrize("damaged", [_gtid_event_cut, _row_event_cut])
async def test_what_nobody_could_read_is_never_stored(
    damaged: Callable[[], list[bytes]],
    engine: IbbEngine,
    delays: Delays,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A master that is wrong once: what it sends then is what counts."""
    first = Visit(OPENING + groups("0-1-1") + sent(damaged()) + groups("0-1-3"))
    second = Visit(OPENING + groups("0-1-2", "0-1-3"))
    async with FakeUpstream([first, second]) as upstream, following(upstream, engine):
        await until(lambda: str(engine.binlog_state()) == "0-1-3")
    assert upstream.positions == ["", "0-1-1"]
    assert "lost upstream" in caplog.text
    engine.sync()
    found = read_all(engine)
    assert len(found) == 3
    for group in found:
        check_groups(group, [len(group)])
    engine.close()


@pytest.mark.parametrize(("count", "taken"), [(2000, True), (32_768, True), (33_000, False)])
async def test_long_lists_of_gtids(
    count: int, taken: bool, engine: IbbEngine, delays: Delays, caplog: pytest.LogCaptureFixture
) -> None:
    """A state has an entry for each domain and server there ever was; one that has no end is refused."""
    found = GtidList(tuple(Gtid(n, 1, 1) for n in range(1, count + 1)), 1, timestamp=1)
    events = [*OPENING, append_checksum(found.build()), *groups("0-1-1")]
    async with (
        FakeUpstream([Visit(events)]) as upstream,
        following(upstream, engine),
    ):
        if taken:
            await until(lambda: str(engine.binlog_state()) == "0-1-1")
        else:
            await until(lambda: upstream.visits == 2)
            assert "DELETE_DOMAIN_ID" in caplog.text
    engine.close()
