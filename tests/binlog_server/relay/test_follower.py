"""Following an upstream: what is stored, where it goes on, when it gives up."""

from __future__ import annotations

import asyncio
import functools
import inspect
import logging
import pkgutil
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Protocol

import pytest
from binlog_protocol.errors import GtidPurged, MasterFatalError, UnknownServerError
from binlog_protocol.events.checksum import append_checksum
from binlog_protocol.events.format_description import FormatDescription
from binlog_protocol.events.heartbeat import HeartbeatEvent
from binlog_protocol.groups.stored_group import group_gtid
from binlog_protocol.gtid import Gtid
from binlog_storage.engine import BinlogEngine
from binlog_storage.errors import BinlogBegunAnew, DiskFull
from binlog_storage.testing.memory_engine import MemoryEngine, MemoryHistory

from binlog_server.commits.publisher import Publisher
from binlog_server.commits.room import AppendRoom
from binlog_server.commits.syncer import Syncer
from binlog_server.relay.client_link import ClientLink
from binlog_server.relay.follower import BEGUN_ANEW_S, Follower
from binlog_server.relay.gate import Domains
from binlog_server.relay.incidents import Incidents
from binlog_server.relay.into import Into
from binlog_server.relay.status import IoState, UpstreamStatus
from binlog_server.semi_sync.master import SemiSyncMaster
from binlog_server.settings.config import Config
from binlog_server.upstreams.candidates import Ring
from binlog_server.upstreams.master_info import MasterInfo
from binlog_server.upstreams.password import Password
from tests.binlog_server.engines import FullEngine
from tests.binlog_server.lab import fill, transaction, until, within
from tests.binlog_server.upstream import (
    OPENING,
    PASSWORD,
    VERSION,
    FakeUpstream,
    Visit,
    description,
    group,
    groups,
    rotate,
)

Delays = list[float]


class Listening(Protocol):
    """Whom one can connect to."""

    port: int


@pytest.fixture
def delays(monkeypatch: pytest.MonkeyPatch) -> Delays:
    """The pauses between connections, which take no time."""
    found: Delays = []
    sleep = asyncio.sleep

    async def noted(seconds: float) -> None:
        found.append(seconds)
        await sleep(0)

    class Asyncio:
        """The module, but for `sleep`."""

        def __getattr__(self, name: str) -> Any:
            return noted if name == "sleep" else getattr(asyncio, name)

    monkeypatch.setattr("binlog_server.relay.follower.asyncio", Asyncio())
    return found


@asynccontextmanager
async def following(
    upstream: Listening,
    engine: BinlogEngine,
    *,
    publisher: Publisher | None = None,
    status: UpstreamStatus | None = None,
    info: dict[str, Any] | None = None,
    duplicates: bool = False,
    follows: Callable[[str], Awaitable[None]] | None = None,
    chance: float = 0.0,
    **options: Any,
) -> AsyncIterator[asyncio.Task[None]]:
    master = MasterInfo(
        "127.0.0.1",
        upstream.port,
        "relay",
        Password(PASSWORD),
        **{"ssl": False, **(info or {})},
    )
    config = Config(binlog_directory=Path("/nowhere"), **{"server_id": 10, **options})
    versions: list[str] = []

    async def noted(version: str) -> None:
        versions.append(version)

    publisher = publisher or Publisher(
        engine, server_version="11.8.6", server_id=10, domain_id=0, follows=True
    )
    domains = Domains(engine, publisher, 10)
    domains.ignore_duplicates = duplicates
    into = Into(
        lambda: config,
        engine,
        Syncer(engine),
        AppendRoom(engine),
        domains,
        noted,
        SemiSyncMaster(lambda: config),
    )
    follower = Follower(
        master,
        into,
        status or UpstreamStatus(master.address),
        Ring(master.addresses, "", master.connect_retry),
        Incidents(),
        follows=follows,
        chance=lambda: chance,
    )
    task = asyncio.ensure_future(follower.run())
    try:
        yield task
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        assert set(versions) <= {VERSION}


def durable(history: MemoryHistory) -> str:
    """GTIDs of what is durable; `start` for a start marker."""
    return ",".join(str(gtid or "start") for _, gtid in history.groups)


@pytest.fixture
def history() -> MemoryHistory:
    return MemoryHistory()


@pytest.fixture
def engine(history: MemoryHistory) -> MemoryEngine:
    return MemoryEngine(history)


def shows(history: MemoryHistory, expected: str) -> Callable[[], bool]:
    return lambda: durable(history) == expected


async def test_groups_are_stored_in_normal_form(
    engine: MemoryEngine, history: MemoryHistory, delays: Delays
) -> None:
    async with (
        FakeUpstream([Visit(OPENING + groups("0-1-1", "5-1-1"))]) as upstream,
        following(upstream, engine, report_host="here"),
    ):
        await until(shows(history, "0-1-1,5-1-1"))
        upstream.send(groups("0-1-2"))
        await until(shows(history, "0-1-1,5-1-1,0-1-2"))
    assert [payload for payload, _ in history.groups] == [
        transaction(Gtid.parse(text)) for text in ("0-1-1", "5-1-1", "0-1-2")
    ]
    (dump,) = upstream.dumps
    assert (dump.server_id, dump.flags, dump.file, dump.position) == (10, 2, "", 4)
    (registered,) = upstream.registered
    assert (registered.server_id, registered.host) == (10, "here")
    assert upstream.positions == [""]


async def test_goes_on_from_the_binlog_state(
    engine: MemoryEngine, history: MemoryHistory, delays: Delays
) -> None:
    fill(engine, [Gtid(0, 1, 1), Gtid(5, 2, 7), Gtid(0, 3, 2)])
    async with FakeUpstream() as upstream, following(upstream, engine):
        await until(lambda: upstream.streaming == 1)
    assert set(upstream.positions[0].split(",")) == {"0-3-2", "5-2-7"}


async def test_every_line_of_the_log_names_the_connection(
    engine: MemoryEngine, history: MemoryHistory, delays: Delays, caplog: pytest.LogCaptureFixture
) -> None:
    """Who follows several upstreams must know which of them it is about."""
    caplog.set_level(logging.INFO)
    visits = [
        Visit(OPENING + groups("0-1-1"), "cut"),
        Visit(OPENING, UnknownServerError("oops")),
        Visit(OPENING + groups("0-1-2") + [group(Gtid(0, 1, 3))[0]], "eof"),
        Visit(refuse=MasterFatalError("no")),
    ]
    async with FakeUpstream(visits) as upstream:
        status = UpstreamStatus(f"127.0.0.1:{upstream.port}", connection="east")
        async with following(upstream, engine, status=status) as task:
            await within(asyncio.wait([task]))
    lines = [each.getMessage() for each in caplog.records if "relay" in each.name]
    for said in ("following", "lost", "connecting to", "stopped following"):
        assert any(said in line for line in lines), said
    assert not [line for line in lines if f"{upstream.port} ('east')" not in line]


@pytest.mark.parametrize("end", ["cut", "eof", UnknownServerError("oops")])
async def test_partial_group_is_thrown_away(
    engine: MemoryEngine, history: MemoryHistory, delays: Delays, end: Any
) -> None:
    """And whatever was whole is durable, although nothing comes after it."""
    partial = group(Gtid(0, 1, 2))[:-1]
    visits = [
        Visit(OPENING + groups("0-1-1") + partial, end),
        Visit(OPENING),
    ]
    async with FakeUpstream(visits) as upstream, following(upstream, engine):
        await until(lambda: upstream.streaming == 1)
        await until(shows(history, "0-1-1"))
        upstream.send(groups("0-1-2", "0-1-3"))
        await until(shows(history, "0-1-1,0-1-2,0-1-3"))
    assert upstream.positions == ["", "0-1-1"]
    assert [gtid for gtid in map(group_gtid, (p for p, _ in history.groups)) if gtid] == [
        Gtid(0, 1, n) for n in (1, 2, 3)
    ]


async def test_bad_checksum_stores_nothing_and_reconnects(
    engine: MemoryEngine, history: MemoryHistory, delays: Delays, caplog: pytest.LogCaptureFixture
) -> None:
    bad = groups("0-1-1")
    bad[1] = bad[1][:-1] + bytes((bad[1][-1] ^ 1,))
    visits = [Visit(OPENING + bad, "hold"), Visit(OPENING + groups("0-1-1"))]
    async with FakeUpstream(visits) as upstream, following(upstream, engine):
        await until(lambda: upstream.visits == 2)
        await until(shows(history, "0-1-1"))
    assert upstream.positions == ["", ""]
    assert "CRC-32" in caplog.text


async def test_start_marker_is_stored_once(
    engine: MemoryEngine, history: MemoryHistory, delays: Delays
) -> None:
    opening = [rotate(), description(created=1000)]
    again = [rotate(), description(created=2000)]
    visits = [
        Visit(opening, "cut"),
        Visit(opening, "cut"),
        Visit(opening + groups("0-1-1"), "cut"),
        Visit(OPENING + again[1:] + groups("0-1-2")),
    ]
    async with FakeUpstream(visits) as upstream, following(upstream, engine):
        await until(shows(history, "start,0-1-1,start,0-1-2"))
    created = [FormatDescription.parse(p).created for p, gtid in history.groups if gtid is None]
    assert created == [1000, 2000]


async def test_own_restart_stores_no_marker(history: MemoryHistory, delays: Delays) -> None:
    """A replica drops its temporary tables on a marker."""
    first = Visit([rotate(), description(created=1000), *groups("0-1-1")], "hold")
    async with FakeUpstream([first, Visit(OPENING + groups("0-1-2"))]) as upstream:
        async with following(upstream, MemoryEngine(history)):
            await until(shows(history, "start,0-1-1"))
        async with following(upstream, MemoryEngine(history)):
            await until(shows(history, "start,0-1-1,0-1-2"))


async def test_reconnects_at_once_then_ever_slower(engine: MemoryEngine, delays: Delays) -> None:
    visits = [Visit(deny=True)] * 10
    async with FakeUpstream(visits) as upstream, following(upstream, engine):
        await until(lambda: upstream.visits == 11)
    assert delays[:10] == [0, 1, 2, 4, 8, 16, 32, 60, 60, 60]


async def test_what_worked_starts_the_count_anew(engine: MemoryEngine, delays: Delays) -> None:
    visits = [
        Visit(deny=True),
        Visit(deny=True),
        Visit(deny=True),
        Visit(OPENING + groups("0-1-1"), "cut"),
        Visit(deny=True),
    ]
    async with FakeUpstream(visits) as upstream, following(upstream, engine):
        await until(lambda: upstream.streaming == 1)
    assert delays[:5] == [0, 1, 2, 0, 1]


async def test_a_group_in_front_of_garbage_is_no_success(
    engine: MemoryEngine, delays: Delays
) -> None:
    """Or an upstream that garbles is asked as often as it can be, for each time it brings a group."""
    garbage = b"no event at all"
    visits = [Visit([*OPENING, *groups(f"0-1-{n}"), garbage], "cut") for n in range(1, 6)]
    info = {"check_last_group": False}
    async with FakeUpstream(visits) as upstream, following(upstream, engine, info=info):
        upstream.rows["SELECT @@GLOBAL.gtid_binlog_state"] = ("0-1-9",)
        await until(lambda: upstream.streaming == 1)
    assert delays[:5] == [0, 1, 2, 4, 8]
    assert str(engine.binlog_state().position()) == "0-1-5"


async def test_an_opening_alone_is_no_success(engine: MemoryEngine, delays: Delays) -> None:
    """Or an upstream that fails behind its first events is asked without a pause."""
    async with FakeUpstream([Visit(OPENING, "cut")] * 5) as upstream, following(upstream, engine):
        await until(lambda: upstream.streaming == 1)
    assert delays[:5] == [0, 1, 2, 4, 8]


STOPS = {
    "1236 in the stream": (Visit(OPENING, MasterFatalError("purged, sorry")), "1236.*purged"),
    "1236 at once": (Visit([], GtidPurged()), "1236.*Could not find GTID"),
    "our own server_id": (Visit(server_id=10), "equal MariaDB server ids"),
}


@pytest.mark.parametrize("name", STOPS)
async def test_gives_up(
    engine: MemoryEngine, delays: Delays, caplog: pytest.LogCaptureFixture, name: str
) -> None:
    visit, text = STOPS[name]
    async with FakeUpstream([visit]) as upstream, following(upstream, engine) as task:
        await within(asyncio.shield(task))
        assert upstream.visits == 1
    (line,) = [r.getMessage() for r in caplog.records if r.levelno == logging.ERROR]
    assert line.startswith(f"stopped following upstream 127.0.0.1:{upstream.port}")
    assert re.search(text, line)


async def test_other_errors_are_tried_again(engine: MemoryEngine, delays: Delays) -> None:
    visits = [Visit(refuse=UnknownServerError("not now")), Visit(OPENING, UnknownServerError("x"))]
    async with FakeUpstream(visits) as upstream, following(upstream, engine):
        await until(lambda: upstream.streaming == 1)
    assert upstream.visits == 3


async def test_chance_shortens_the_pauses(engine: MemoryEngine, delays: Delays) -> None:
    """So that not all relays of an upstream come back at the same moment."""
    visits = [Visit(refuse=UnknownServerError("no"))] * 4
    async with FakeUpstream(visits) as upstream, following(upstream, engine, chance=1.0):
        await until(lambda: upstream.visits == 4)
    assert [delay for delay in delays if delay] == [0.75, 1.5]


class Fails:
    """In place of a function: fails some times."""

    def __init__(self, works: Callable[..., Any], error: BaseException, times: int = 3) -> None:
        self._works = works
        self._error = error
        self.left = times

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if self.left:
            self.left -= 1
            raise type(self._error)(*self._error.args)
        return self._works(*args, **kwargs)


# Wherever something unforeseen happens. Some of it is in the middle of what has come.
PLACES = {
    "password": "binlog_server.upstreams.password.Password.read",
    "resolver": "binlog_server.relay.byte_stream.socket.getaddrinfo",
    "login": "binlog_protocol.connection.client.ClientConnection.login",
    "handshake": "binlog_server.relay.stream.ReplicaHandshake",
    "ingest": "binlog_server.relay.stream.Ingest",
    "event": "binlog_protocol.groups.event_group.EventGroupAssembler.feed",
    "run": "binlog_storage.testing.memory_engine.MemoryEngine.append_run",
    "group": "binlog_storage.testing.memory_engine.MemoryEngine.append",
    "follower": "binlog_server.relay.follower.Follower._stream",
    "failure": "binlog_server.relay.follower.RelayFailure.of",
    "ring": "binlog_server.upstreams.candidates.Ring.lost",
}
ERRORS = (RuntimeError("oops"), AttributeError("oops"), MemoryError("oops"), KeyError("oops"))


@pytest.mark.parametrize("duplicates", [False, True], ids=["", "gtid_ignore_duplicates"])
@pytest.mark.parametrize("place", PLACES)
async def test_what_nobody_has_thought_of_is_tried_again(
    place: str,
    duplicates: bool,
    engine: MemoryEngine,
    history: MemoryHistory,
    delays: Delays,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """And nothing is lost or doubled by it."""
    if duplicates and place == "run":
        pytest.skip("there are no runs then")
    sent = groups("0-1-1", "0-1-2", "5-1-1")
    lost = [Visit(deny=True)] * 3 if place in ("failure", "ring") else []
    visits = [*lost, *[Visit(OPENING + sent)] * 9]
    stored = "0-1-1,0-1-2,5-1-1"
    works = pkgutil.resolve_name(PLACES[place])
    fails = Fails(works, ERRORS[len(place) % len(ERRORS)])
    if inspect.isfunction(works) and "." in works.__qualname__:  # a method: with its object
        monkeypatch.setattr(PLACES[place], functools.partialmethod(fails))
    else:
        monkeypatch.setattr(PLACES[place], fails)
    status = UpstreamStatus("x")
    async with (
        FakeUpstream(visits) as upstream,
        following(upstream, engine, status=status, duplicates=duplicates) as task,
    ):
        await until(lambda: fails.left == 1)
        assert status.state.running != "No"
        assert not status.stopped
        assert status.state is not IoState.WAITING
        assert status.errno == 2000
        assert "oops" in status.error
        await until(lambda: durable(history) == stored or task.done())
        assert not task.done()
    assert fails.left == 0
    assert delays[:3] in ([0, 1, 2], [0, 1, 0], [60, 60, 60], [0, 0, 0])
    traced = [record for record in caplog.records if record.exc_info]
    assert len(traced) == (3 if place in ("follower", "failure", "ring") else 1)


async def test_reset_master_here_is_no_error_of_the_disk(
    engine: MemoryEngine, history: MemoryHistory, delays: Delays, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who follows begins again at once, and not after connect_retry: the upstream is well."""
    begun_anew = BinlogBegunAnew("RESET MASTER was executed meanwhile")
    for name in ("append", "append_run"):
        monkeypatch.setattr(engine, name, Fails(getattr(engine, name), begun_anew, times=1))
    status = UpstreamStatus("x")
    visits = [Visit(OPENING + groups("0-1-1"))] * 3
    async with (
        FakeUpstream(visits) as upstream,
        following(upstream, engine, status=status) as task,
    ):
        await until(lambda: bool(status.errno))
        assert (status.errno, status.error) == (
            1595,
            "Relay log write failure: RESET MASTER was executed meanwhile; it goes on behind the new position",
        )
        await until(lambda: durable(history) == "0-1-1" or task.done())
        assert not task.done()
    assert delays[:1] == [BEGUN_ANEW_S]


async def test_a_cancellation_that_is_not_ours(
    engine: MemoryEngine, history: MemoryHistory, delays: Delays, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody cancels what we wait for: nobody has said STOP SLAVE."""
    fails = Fails(ClientLink.receive, asyncio.CancelledError())
    monkeypatch.setattr(ClientLink, "receive", functools.partialmethod(fails))
    async with FakeUpstream() as upstream, following(upstream, engine) as task:
        await until(lambda: upstream.streaming == 1 or task.done())
        assert not task.done()


async def test_a_store_that_may_recover_is_tried_again(
    engine: MemoryEngine, history: MemoryHistory, delays: Delays, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it refuses once, it may take later: it has not said that it takes nothing more."""
    fails = Fails(MemoryEngine.append_run, DiskFull("no room"))
    monkeypatch.setattr(MemoryEngine, "append_run", functools.partialmethod(fails))
    status = UpstreamStatus("x")
    async with (
        FakeUpstream([Visit(OPENING + groups("0-1-1"))] * 9) as upstream,
        following(upstream, engine, status=status) as task,
    ):
        await until(lambda: fails.left == 1)
        assert status.errno == 1026
        await until(lambda: durable(history) == "0-1-1" or task.done())
        assert not task.done()


async def test_failed_store_ends_the_following(
    engine: MemoryEngine, history: MemoryHistory, delays: Delays, caplog: pytest.LogCaptureFixture
) -> None:
    history.fails = True
    async with (
        FakeUpstream([Visit(OPENING + groups("0-1-1"))]) as upstream,
        following(upstream, engine) as task,
    ):
        await until(lambda: engine.binlog_state().last(0) is not None)
        for number in range(2, 1000):
            upstream.send(groups(f"0-1-{number}"))
            await asyncio.sleep(0)
            if task.done():
                break
        await within(asyncio.shield(task))
    assert "stopped following" in caplog.text


@asynccontextmanager
async def without_room() -> AsyncIterator[tuple[FullEngine, FakeUpstream]]:
    """One that follows at the tail, and waits for room for the second and third group."""
    engine = FullEngine()
    async with (
        FakeUpstream([Visit(OPENING + groups("0-1-1"))]) as upstream,
        following(upstream, engine),
    ):
        await until(lambda: str(engine.binlog_state()) == "0-1-1")
        engine.room = False
        upstream.send(groups("0-1-2", "0-1-3"))
        await until(lambda: engine.asked > 0)
        yield engine, upstream


async def test_reading_pauses_without_room(
    delays: Delays, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("binlog_server.relay.ingest.SLOW_S", 0)
    caplog.set_level("INFO")
    async with without_room() as (engine, upstream):
        assert str(engine.binlog_state()) == "0-1-1"
        engine.room = True
        await until(lambda: str(engine.binlog_state()) == "0-1-3")
    assert caplog.text.count("pauses: the disk is full or slow") == 1
    assert "goes on after" in caplog.text
    assert len(upstream.positions) == 1, "the connection was kept"


@pytest.mark.parametrize(
    ("sent", "said"),
    [
        ("5-1-1", "SQL that was sent to this server is committed in domain 5"),
        ("5-10-1", "it follows this server, too. CHANGE MASTER TO IGNORE_DOMAIN_IDS = (5)"),
    ],
)
async def test_a_domain_of_our_own_ends_the_following(
    engine: MemoryEngine, delays: Delays, caplog: pytest.LogCaptureFixture, sent: str, said: str
) -> None:
    async with FakeUpstream([Visit(OPENING + groups(sent))]) as upstream:
        publisher = Publisher(engine, server_version="11", server_id=10, domain_id=5, follows=True)
        publisher.require_open(5)
        async with following(upstream, engine, publisher=publisher) as task:
            await within(task)
    assert said in caplog.text
    assert str(engine.binlog_state()) == ""


@pytest.mark.parametrize(
    ("sent", "stored"),
    [
        ("0-1-1,0-1-2,0-1-1", "0-1-2"),
        ("0-1-5,0-1-5", "0-1-5"),
        ("0-1-7,3-1-9,0-2-8,0-1-4,0-1-9", "0-1-7,0-2-8,3-1-9"),
    ],
)
async def test_a_history_that_begins_anew_ends_the_following(
    sent: str,
    stored: str,
    engine: MemoryEngine,
    delays: Delays,
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with (
        FakeUpstream([Visit(OPENING + groups(*sent.split(",")))]) as upstream,
        following(upstream, engine) as task,
    ):
        await within(task)
    assert "its binlog has begun anew" in caplog.text
    assert str(engine.binlog_state()) == stored


@pytest.mark.parametrize("duplicates", [False, True], ids=["", "gtid_ignore_duplicates"])
async def test_more_domains_and_servers_than_a_store_may_have_end_the_following(
    duplicates: bool, engine: MemoryEngine, delays: Delays, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("binlog_server.relay.gate.STATE_ENTRIES_MAX", 3)
    status = UpstreamStatus("")
    sent = groups("0-1-1", "5-1-1", "5-2-2", "0-1-2", "5-1-3", "5-3-4")
    async with (
        FakeUpstream([Visit(OPENING + sent)]) as upstream,
        following(upstream, engine, status=status, duplicates=duplicates) as task,
    ):
        await within(task)
    assert status.stopped
    assert "it sends 5-3-4, but the store has 3 pairs of domain and server already" in status.error
    assert str(engine.binlog_state()) == "0-1-2,5-2-2,5-1-3"


async def test_a_lower_number_of_another_server(engine: MemoryEngine, delays: Delays) -> None:
    """As after a failover without strict mode: the number is not the place in the domain."""
    async with (
        FakeUpstream([Visit(OPENING + groups("0-1-7", "0-2-3", "0-1-8"))]) as upstream,
        following(upstream, engine),
    ):
        await until(lambda: str(engine.binlog_state()) == "0-2-3,0-1-8")


async def test_a_known_group_after_a_reconnect(
    engine: MemoryEngine, delays: Delays, caplog: pytest.LogCaptureFixture
) -> None:
    visits = [
        Visit(OPENING + groups("0-1-1", "0-1-2"), "cut"),
        Visit(OPENING + groups("0-1-2", "0-1-3")),
    ]
    async with FakeUpstream(visits) as upstream, following(upstream, engine) as task:
        await within(task)
    assert "it sends 0-1-2, but 0-1-2 is stored already" in caplog.text
    assert str(engine.binlog_state()) == "0-1-2"


async def test_silence_means_reconnect(
    engine: MemoryEngine, history: MemoryHistory, delays: Delays, caplog: pytest.LogCaptureFixture
) -> None:
    async with FakeUpstream() as upstream, following(upstream, engine, slave_net_timeout=1):
        await until(lambda: upstream.visits >= 2 and "lost upstream" in caplog.text)
        await until(lambda: "SET @master_heartbeat_period= 333333333" in upstream.statements)


async def test_semi_sync_from_the_dump_command_on(engine: MemoryEngine, delays: Delays) -> None:
    """The upstream counts us at once, and waits for us: if we are stopped then, it is told, as at any later time."""
    begun, status = asyncio.Event(), UpstreamStatus("x")

    async def slowly(_: str) -> None:
        begun.set()
        await asyncio.Event().wait()

    options: dict[str, Any] = {"rpl_semi_sync_slave_enabled": True, "status": status}
    async with FakeUpstream([Visit()]) as upstream:
        upstream.rows["SHOW VARIABLES LIKE 'rpl_semi_sync_master_enabled'"] = "name", "ON"
        async with following(upstream, engine, follows=slowly, **options):
            await within(begun.wait())
            assert status.semi_sync
        assert "KILL 9" in upstream.statements
    assert not status.semi_sync


async def test_heartbeats_are_not_stored(
    engine: MemoryEngine, history: MemoryHistory, delays: Delays
) -> None:
    beat = append_checksum(HeartbeatEvent("m-bin.000001", 400, 1).build())
    async with (
        FakeUpstream([Visit([*OPENING, beat, beat, *groups("0-1-1"), beat])]) as upstream,
        following(upstream, engine, status=(status := UpstreamStatus(""))),
    ):
        await until(shows(history, "0-1-1"))
        await until(lambda: status.heartbeats == 3)


async def test_no_password_anywhere(
    engine: MemoryEngine, delays: Delays, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    visits = [Visit(deny=True), Visit(OPENING, "cut"), Visit(OPENING, MasterFatalError("end"))]
    async with FakeUpstream(visits) as upstream, following(upstream, engine) as task:
        await within(asyncio.shield(task))
    info = MasterInfo("h", 1, "u", Password(PASSWORD))
    config = Config(Path("/d"), upstream={"": info}, users={"u": PASSWORD})
    texts = [caplog.text, repr(info), repr(info.password), repr(config), str(config)]
    assert len(caplog.records) >= 3
    assert not any(PASSWORD in text for text in texts)
