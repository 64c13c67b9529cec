"""The server source without a server: a master that does what a test has planned, and what needs none at all."""

from __future__ import annotations

import asyncio
import pickle
import threading
import time
from collections.abc import Generator
from typing import Any

import numpy as np
import pytest
from binlog_pipeline.errors import DataLost, SourceError
from binlog_pipeline.groups import Groups
from binlog_pipeline.options import SourceOptions
from binlog_pipeline.sources.dump.address import ServerAddress, random_server_id
from binlog_pipeline.sources.dump.file_places import FilePlace, FilePlaces, finds_slowly
from binlog_pipeline.sources.dump.history import ends_of, middle_of
from binlog_pipeline.sources.dump.places import file_number, place_of, placed
from binlog_pipeline.sources.dump.read_ahead import ReadAhead
from binlog_pipeline.sources.dump.reader import DumpReader
from binlog_pipeline.sources.opening import open_source
from binlog_pipeline.sources.server import ServerSlice, ServerSource
from binlog_pipeline.wanted import Wanted
from binlog_protocol.errors import AccessDenied, MasterFatalError, ServerError
from binlog_protocol.events.checksum import append_checksum
from binlog_protocol.events.event_type import EventType
from binlog_protocol.events.gtid_list import GtidList, GtidListFlags
from binlog_protocol.events.header import build_event
from binlog_protocol.events.incident import IncidentEvent
from binlog_protocol.gtid import BinlogState, Gtid, SlavePosition
from binlog_storage.log.ranges import GtidRange

from binlog_server.testing.waiting import until
from tests.binlog_server.lab import transaction
from tests.binlog_server.upstream import (
    OPENING,
    PASSWORD,
    FakeUpstream,
    Visit,
    description,
    group,
    groups,
    rotate,
)
from tests.protocol.sample_events import row_body

UNTIL_REACHED = append_checksum(GtidList.fake([], 1, flags=GtidListFlags.UNTIL_REACHED).build())


def address(upstream: FakeUpstream, timeout: int = 10) -> ServerAddress:
    return ServerAddress("127.0.0.1", upstream.port, "u", PASSWORD, connect_timeout=timeout)


async def numbers(
    upstream: FakeUpstream,
    until: str | None,
    *,
    start: str = "",
    patience: int = 10,
    **options: Any,
) -> list[int]:
    """Of the groups that a reader gives."""
    found: list[int] = []

    def read() -> None:
        reader = DumpReader(
            address(upstream, patience),
            SlavePosition.parse(start),
            None if until is None else SlavePosition.parse(until),
            **options,
        )
        for some in reader.groups():
            found.extend(some.seq.tolist())

    await asyncio.to_thread(read)
    return found


# -- one stream --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("end", ["cut", "eof"])
async def test_goes_on_behind_the_last_whole_group(end: str) -> None:
    visits = [
        Visit(OPENING + groups("0-1-1", "5-1-1") + group(Gtid(0, 1, 2))[:-1], end),
        Visit(OPENING, "cut"),
        Visit(OPENING + groups("0-1-2", "0-1-3") + [UNTIL_REACHED], "eof"),
    ]
    async with FakeUpstream(visits) as upstream:
        assert await numbers(upstream, "0-1-3,5-1-1") == [1, 1, 2, 3]
    assert upstream.positions == ["", "0-1-1,5-1-1", "0-1-1,5-1-1"]
    untils = [sql for sql in upstream.statements if "until" in sql]
    assert (
        untils
        == ["SET @slave_until_gtid='0-1-3,5-1-1'"]
        + [
            "SET @slave_until_gtid='0-1-3'"  # nothing more is wanted of domain 5
        ]
        * 2
    )


async def test_never_less_than_asked_for() -> None:
    """The server ends without having reached the end; time after time."""
    visits = [Visit(OPENING + groups("0-1-1"), "eof")] + [Visit(OPENING, "eof")] * 100
    async with FakeUpstream(visits) as upstream:
        with pytest.raises(
            SourceError,
            match=r"reading behind '0-1-1' up to '0-1-3': .*before the end of the range",
        ):
            await numbers(upstream, "0-1-3", patience=1)


async def test_other_errors_are_told_at_once() -> None:
    for refusal, kind, text in (
        (MasterFatalError("it is gone"), DataLost, "1236.*it is gone"),
        (AccessDenied("u", "h", "YES"), SourceError, "1045.*is the user right, and the password"),
    ):
        assert isinstance(refusal, ServerError)
        async with FakeUpstream([Visit(OPENING + groups("0-1-1"), refusal)]) as upstream:
            with pytest.raises(kind, match=text):
                await numbers(upstream, "0-1-3")
        assert upstream.visits == 1
    async with FakeUpstream([Visit(OPENING, MasterFatalError("it is gone"))]) as upstream:
        with pytest.raises(DataLost, match="reading from the beginning up to '0-1-3': "):
            await numbers(upstream, "0-1-3")


async def test_numbers_that_go_back() -> None:
    visits = [Visit(OPENING + groups("0-1-4", "0-2-3"))]
    async with FakeUpstream(visits) as upstream:
        with pytest.raises(SourceError, match=r"0-2-3 comes behind 0-1-4: .*gtid_strict_mode"):
            await numbers(upstream, "0-2-3")
    async with FakeUpstream([Visit(OPENING + groups("0-1-4"))]) as upstream:
        with pytest.raises(SourceError, match="0-1-4 comes behind 0-1-4"):
            await numbers(upstream, None, start="0-1-4")


async def test_a_wrong_checksum() -> None:
    events = OPENING + groups("0-1-1", "0-1-2")
    events[-1] = events[-1][:-1] + bytes([events[-1][-1] ^ 1])
    async with FakeUpstream([Visit(events)]) as upstream:
        with pytest.raises(SourceError, match=r"behind '0-1-1'.* cannot be read: .*CRC-32 is"):
            await numbers(upstream, "0-1-2")


async def test_start_markers_end_what_is_not_whole() -> None:
    rows = append_checksum(build_event(EventType.WRITE_ROWS_V1, row_body(6 << 20), server_id=1))
    begun = [group(Gtid(0, 1, 1))[0], rows]
    marker = description(created=1_700_000_000)
    events = [*OPENING, *begun, marker, *groups("0-1-1"), UNTIL_REACHED]
    async with FakeUpstream([Visit(events, "eof")]) as upstream:
        assert await numbers(upstream, "0-1-1") == [1]


def large_group(gtid: Gtid, megabytes: int) -> list[bytes]:
    first, *rest = group(gtid)
    rows = build_event(EventType.WRITE_ROWS_V1, row_body(1 << 20, bytes(range(256))), server_id=1)
    return [first, *[append_checksum(rows)] * megabytes, *rest]


async def test_large_groups_are_kept_on_the_disk() -> None:
    events = [*OPENING, *groups("0-1-1"), *large_group(Gtid(0, 1, 2), 12), *groups("0-1-3")]
    found: list[Groups] = []

    def read(at: ServerAddress) -> None:
        part = ServerSlice(at, SlavePosition(), SlavePosition.parse("0-1-3"), Wanted(GtidRange()))
        found.extend(part.read())

    async with FakeUpstream([Visit([*events, UNTIL_REACHED], "eof")]) as upstream:
        await asyncio.to_thread(read, address(upstream))
    before, whole, behind = found
    assert (before.seq.tolist(), whole.seq.tolist(), behind.seq.tolist()) == ([1], [2], [3])
    assert whole.large is not None
    pieces = list(whole.pieces(0))
    assert max(map(len, pieces)) <= 1 << 20
    assert b"".join(pieces) == b"".join(whole.pieces(0))  # as often as one likes
    assert len(b"".join(pieces)) == sum(map(len, large_group(Gtid(0, 1, 2), 12))) - 4 * (12 + 3)


async def test_a_reader_that_is_closed_ends() -> None:
    async with FakeUpstream([Visit(OPENING + groups("0-1-1"))]) as upstream:
        ahead = ReadAhead(DumpReader(address(upstream), SlavePosition(), follows=True))
        some = await asyncio.to_thread(ahead.take, 5)
        assert some is not None
        await asyncio.to_thread(ahead.close)
        await asyncio.to_thread(ahead._thread.join)
        assert ahead.take(0) is None
        assert not ahead.has_failed


# -- reading ahead -----------------------------------------------------------------------------------------------------


class PlannedReader(DumpReader):
    """Gives what it is told, and counts it."""

    def __init__(self, batches: list[Groups], error: Exception | None = None) -> None:
        self._batches = batches
        self._error = error
        self.given = 0
        self.closed = threading.Event()

    def groups(self) -> Generator[Groups]:
        for batch in self._batches:
            self.given += 1
            yield batch
        if self._error is not None:
            raise self._error

    def close(self) -> None:
        self.closed.set()


def batch(number: int) -> Groups:
    payload = transaction(Gtid(0, 1, number))
    return Groups([payload], np.array([0]), np.array([number]))


def test_reads_no_more_than_so_far_ahead() -> None:
    reader = PlannedReader([batch(n) for n in range(1, 101)])
    size = len(batch(1).payloads[0])
    ahead = ReadAhead(reader, bytes_max=5 * size)
    for n in range(1, 101):
        most = min(5, 101 - n)
        until(lambda most=most: ahead.waiting == most, "the reader to be ahead")  # type: ignore[misc]
        assert reader.given <= n + 5
        taken = ahead.take()
        assert taken is not None
        assert taken.seq.tolist() == [n]
    assert ahead.take() is None
    ahead.close()
    assert reader.closed.is_set()


def test_an_error_comes_behind_what_was_read() -> None:
    reader = PlannedReader([batch(1), batch(2)], SourceError("lost"))
    ahead = ReadAhead(reader)
    assert [taken.seq.tolist() for _ in range(2) if (taken := ahead.take())] == [[1], [2]]
    for _ in range(2):
        with pytest.raises(SourceError, match="lost"):
            ahead.take()
    assert ahead.has_failed


def test_waits_for_so_long() -> None:
    class Silent(PlannedReader):
        def groups(self) -> Generator[Groups]:
            self.closed.wait()
            yield from ()

    ahead = ReadAhead(Silent([]))
    began = time.monotonic()
    assert ahead.take(0.05) is None  # the reader has not ended
    assert time.monotonic() - began > 0.04
    ahead.close()


# -- positions ---------------------------------------------------------------------------------------------------------

STATE = BinlogState.parse("0-1-500,0-2-900,3-7-40")


@pytest.mark.parametrize(
    ("start", "stop", "ends"),
    [
        ("", None, "0-2-900,3-7-40"),
        ("0-2-900", None, "3-7-40"),
        ("0-1-100", "0-1-300", "0-1-300"),
        ("0-1-100", "0-1-500,3-7-39", "0-1-500,3-7-39"),
        # Of server 1 there is no 700: the stream would have no end.
        ("0-1-100", "0-1-700", "0-2-900"),
        ("0-1-100", "0-9-300", "0-2-900"),
        ("0-2-900,3-7-40", None, ""),
        ("0-2-900", "0-2-900", ""),
        ("0-2-800", "0-2-700", ""),
    ],
)
def test_ends(start: str, stop: str | None, ends: str) -> None:
    wanted = Wanted(GtidRange(None, None if stop is None else SlavePosition.parse(stop)))
    found = ends_of("s", wanted, SlavePosition.parse(start), STATE)
    assert ",".join(map(str, found)) == ends


def test_ends_of_some_domains() -> None:
    wanted = Wanted(domains=frozenset([3, 99]))
    assert ends_of("s", wanted, SlavePosition(), STATE) == [Gtid(3, 7, 40)]


@pytest.mark.parametrize("stop", ["0-2-901", "0-2-900,9-9-9"])
def test_an_end_that_is_not_there_yet(stop: str) -> None:
    wanted = Wanted(GtidRange(None, SlavePosition.parse(stop)))
    with pytest.raises(SourceError, match="are wanted, but the binlog ends at"):
        ends_of("s", wanted, SlavePosition(), STATE)


def test_where_a_range_is_cut() -> None:
    one, two = BinlogState.parse("0-1-200000"), BinlogState.parse("0-9-1,0-1-200000")
    end = Gtid(0, 1, 200_000)
    assert middle_of([], [end], one) == Gtid(0, 1, 100_000)
    assert middle_of([Gtid(0, 1, 100_000)], [end], one) == Gtid(0, 1, 150_000)
    assert middle_of([Gtid(0, 1, 150_000)], [end], one) is None  # too short
    assert middle_of([], [end], two) is None  # a number says nothing of the other server
    assert middle_of([], [end, Gtid(3, 1, 90_000)], one) is None


# -- places ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "number"),
    [
        ("upstream-bin.000007", 7),
        ("binlog-000012.ibb", 12),
        ("a.b.c-9.1000000", 1_000_000),
        ("names", 0),
        ("", 0),
    ],
)
def test_file_numbers(name: str, number: int) -> None:
    assert file_number(name) == number


def test_places() -> None:
    gtid = Gtid(3, 1, 77)
    assert place_of(gtid, 5, 100, 900, 1000) == (5, 1000)
    assert place_of(gtid, 5, 0, 900, 0) == (3, 77)
    # Positions have 32 bits; a file may grow beyond.
    wrap = 1 << 32
    for size in (wrap - 1000, wrap, 3 * wrap + 5):
        assert place_of(gtid, 5, 100, size, (100 + size) % wrap) == (5, 100 + size)
    # The events of a group need not lie side by side.
    assert place_of(gtid, 5, 100, wrap, 300) == (5, wrap + 300)
    # What has no position of its own, in our classic style.
    assert place_of(gtid, 5, (1 << 31) + 42, 1 << 30, 5000) == (5, 5000)


def test_groups_without_positions() -> None:
    payloads = [transaction(Gtid(d, 1, n)) for d, n in ((0, 5), (3, 7), (0, 6))]
    found = placed(Groups(payloads, np.array([4, 4, 4]), np.array([0, 0, 99])))
    assert [tuple(found.place(i)) for i in range(3)] == [(0, 5), (3, 7), (4, 99)]


@pytest.mark.parametrize(
    ("version", "is_slow"),
    [
        ("5.5.5-10.11.19-MariaDB-log", True),
        ("11.3.2-MariaDB", True),
        ("11.4.1-MariaDB", False),
        ("12.3.0-MariaDB", False),
        ("something", False),
    ],
)
def test_who_finds_a_gtid_slowly(version: str, is_slow: bool) -> None:
    assert finds_slowly(version) is is_slow


def test_places_of_positions_are_forgotten() -> None:
    places = FilePlaces()
    positions = [SlavePosition([Gtid(0, 1, n)]) for n in range(1, 21)]
    for n, position in enumerate(positions):
        places.put(position, FilePlace("f.1", 4 + n, Gtid(0, 1, n + 1)))
    assert [places.get(position) is not None for position in positions] == [False] * 12 + [True] * 8
    places.put(positions[0], FilePlace("f.1", 1 << 32, Gtid(0, 1, 1)))
    assert places.get(positions[0]) is None


# -- secrets -----------------------------------------------------------------------------------------------------------


def test_a_password_is_not_shown() -> None:
    given = {"host": "h", "user": "u"}
    source = open_source(SourceOptions.parse({**given, "password": "top-secret"}))
    assert isinstance(source, ServerSource)
    part = ServerSlice(source.address, SlavePosition(), SlavePosition(), Wanted())
    for shown in (source, part, part.address):
        assert "top-secret" not in repr(shown) + str(shown)
    assert pickle.loads(pickle.dumps(part)) == part
    assert part.address.read_password() == "top-secret"
    by_file = open_source(SourceOptions.parse({**given, "passwordFile": "/nowhere/p"}))
    with pytest.raises(SourceError, match="h:3306: the password's file /nowhere/p cannot be read"):
        by_file.latest()


def test_server_ids() -> None:
    ids = {random_server_id() for _ in range(100)}
    assert len(ids) > 90
    assert all(1 << 31 <= one < 1 << 32 for one in ids)


async def test_the_opening_of_a_stream_names_the_file() -> None:
    events = [rotate(), description(), *groups("0-1-1")]
    # A position of its own for the last event.
    last = events[-1][:-4]
    events[-1] = append_checksum(last[:13] + (4711).to_bytes(4, "little") + last[17:])
    places: list[tuple[int, int]] = []

    def read(at: ServerAddress) -> None:
        for some in DumpReader(at, SlavePosition(), SlavePosition.parse("0-1-1")).groups():
            places.extend(some.place(i) for i in range(len(some)))

    async with FakeUpstream([Visit([*events, UNTIL_REACHED], "eof")]) as upstream:
        await asyncio.to_thread(read, address(upstream))
    assert places == [(1, 4711)]


async def test_incidents_are_data_loss_unless_that_is_allowed() -> None:
    """What comes in front of it is given first; behind it only where somebody has said so, with a warning."""
    incident = append_checksum(IncidentEvent("error writing", 1).build())
    events = [*OPENING, *groups("0-1-1"), incident, *groups("0-1-2"), UNTIL_REACHED]
    found: list[int] = []

    def read(at: ServerAddress) -> None:
        reader = DumpReader(at, SlavePosition(), SlavePosition.parse("0-1-2"))
        for groups_ in reader.groups():
            found.extend(groups_.gtid(i).seq_no for i in range(len(groups_)))

    async with FakeUpstream([Visit(events, "eof")] * 2) as upstream:
        with pytest.raises(
            DataLost, match=r"behind '0-1-1' .*LOST_EVENTS.* say failOnDataLoss=false"
        ):
            await asyncio.to_thread(read, address(upstream))
        assert found == [1]
        with pytest.warns(UserWarning, match="behind '0-1-1' changes are missing"):
            assert await numbers(upstream, "0-1-2", passes_incidents=True) == [1, 2]
