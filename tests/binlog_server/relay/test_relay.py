"""Named connections to upstreams: what is kept, what starts, what is refused."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from binlog_protocol.errors import MasterFatalError, ServerError
from binlog_protocol.gtid import SlavePosition
from binlog_protocol.limits import STATE_ENTRIES_MAX
from binlog_storage.disk.state import StateStore
from binlog_storage.testing.memory_disk import MemoryDisk
from binlog_storage.testing.memory_engine import MemoryEngine, MemoryHistory

from binlog_server.commits.publisher import Publisher
from binlog_server.commits.room import AppendRoom
from binlog_server.commits.syncer import Syncer
from binlog_server.relay.gate import Domains
from binlog_server.relay.into import Into
from binlog_server.relay.manager import CONNECTIONS_MAX, Relay
from binlog_server.relay.slave_rows import slave_row
from binlog_server.relay.status import IoState
from binlog_server.semi_sync.master import SemiSyncMaster
from binlog_server.settings.config import Config
from binlog_server.upstreams.master_info import MasterInfo
from binlog_server.upstreams.password import KeyFile, Password
from tests.binlog_server.lab import Lab, until
from tests.binlog_server.upstream import OPENING, PASSWORD, FakeUpstream, Visit, groups


async def _ignored(_: str) -> None:
    """The version of an upstream."""


class Place:
    """Where relays come and go: the store and its state stay."""

    def __init__(self, folder: Path) -> None:
        self.disk = MemoryDisk()
        self.state = StateStore(self.disk)
        self.history = MemoryHistory()
        self.engine = MemoryEngine(self.history)
        self.key = folder / "key"
        self.follows: list[bool] = []
        self.warnings: list[int] = []
        self.relays: list[Relay] = []

    def relay(self, *, skip: bool = False, **configured: MasterInfo) -> Relay:
        """As a server has it from its start on. `_` names the default connection."""
        publisher = Publisher(
            self.engine, server_version="11", server_id=10, domain_id=0, follows=True
        )
        domains = Domains(self.engine, publisher)
        config = Config(Path("/nowhere"), server_id=10)
        into = Into(
            lambda: config,
            self.engine,
            Syncer(self.engine),
            AppendRoom(self.engine),
            domains,
            _ignored,
            SemiSyncMaster(lambda: config),
        )
        named = {name.strip("_"): info for name, info in configured.items()}
        relay = Relay(domains, self.state, KeyFile(self.key), named, self.follows.append)
        self.relays.append(relay)
        relay.open(into)
        relay.start_wanted(skip=skip)
        return relay

    async def change(self, relay: Relay, name: str = "", **options: Any) -> None:
        await relay.change(name, options, lambda told: self.warnings.append(told.errno))

    async def follow(self, upstream: FakeUpstream, **options: Any) -> Relay:
        """A relay, told by SQL to follow it, and started."""
        relay = self.relay()
        await self.change(relay, **address(upstream, **options))
        await relay.start("")
        return relay

    @property
    def position(self) -> str:
        return str(self.engine.binlog_state().position())


@pytest.fixture
async def place(tmp_path: Path) -> AsyncIterator[Place]:
    made = Place(tmp_path)
    yield made
    for relay in made.relays:
        await relay.close()


def address(upstream: FakeUpstream, **options: Any) -> dict[str, Any]:
    """Options of CHANGE MASTER."""
    return {
        "host": "127.0.0.1",
        "port": upstream.port,
        "user": "relay",
        "password": PASSWORD,
        "ssl": False,
        **options,
    }


def info(upstream: FakeUpstream, **options: Any) -> MasterInfo:
    return MasterInfo(**{**address(upstream, **options), "password": Password(PASSWORD)})


def errno(error: pytest.ExceptionInfo[ServerError]) -> int:
    return error.value.errno


async def test_what_runs_runs_again(place: Place) -> None:
    visits = [Visit(OPENING + groups("0-1-1")), Visit(OPENING + groups("0-1-2"))]
    async with FakeUpstream(visits) as upstream:
        first = place.relay()
        await place.change(first, **address(upstream, connect_retry=7, do_domain_ids=()))
        assert upstream.visits == 0
        assert await first.start("")
        await until(lambda: place.position == "0-1-1")
        assert not await first.start("")
        await first.close()

        second = place.relay()
        await until(lambda: place.position == "0-1-2")
        assert second.connections[0].info == info(upstream, connect_retry=7)
        assert await second.stop("")
        assert not await second.stop("")
        third = place.relay()
        assert third.running is None
        assert upstream.visits == 2
    assert place.follows == [False, True, True, True]


async def test_the_password_is_kept_encrypted(
    place: Place, caplog: pytest.LogCaptureFixture
) -> None:
    async with FakeUpstream() as upstream:
        relay = place.relay()
        await place.change(relay, "East", **address(upstream))
        kept = b"".join(place.disk.open(name).pread(1 << 16, 0) for name in place.disk.names())
        assert b"East" in kept
        assert PASSWORD.encode() not in kept
        assert place.key.stat().st_mode & 0o777 == 0o600
        again = place.relay()
        assert again.connections[0].info.password.read() == PASSWORD

        key = place.key.read_bytes()
        place.key.write_bytes(b"A" * 43 + b"=\n")
        other = place.relay()
        assert "encrypted by another key" in caplog.text
        with pytest.raises(ServerError, match="put the right file back") as refused:
            await other.start("east")
        assert errno(refused) == 1201
        with pytest.raises(ServerError, match="put the right file back"):
            await place.change(other, "east", port=1)  # or the password would be lost
        (connection,) = other.connections
        row = slave_row(connection, "", 60)
        assert (row["Slave_IO_Running"], row["Last_IO_Errno"]) == ("No", 1593)
        assert "put the right file back" in str(row["Last_IO_Error"])
        assert "put the right file back" in connection.status.last_error, "for /readyz"
        place.key.write_bytes(key)
        await other.start("east")
        assert slave_row(connection, "", 60)["Last_IO_Errno"] == 0
        await until(lambda: upstream.streaming == 1)
    assert PASSWORD not in caplog.text


async def test_names(place: Place) -> None:
    relay = place.relay()
    await place.change(relay, "East", host="h", user="u")
    await place.change(relay, "eAST", port=3307)
    assert [(c.name, c.info.address) for c in relay.connections] == [("East", "h:3307")]
    assert relay.find("EAST") is relay.connections[0]
    assert relay.find("") is None
    for refused in (relay.start("west"), relay.stop("west"), relay.reset("west", everything=False)):
        with pytest.raises(ServerError, match="There is no master connection 'west'") as error:
            await refused
        assert errno(error) == 1617
    with pytest.raises(ServerError) as error:
        await relay.start("")
    assert errno(error) == 1200
    with pytest.raises(ServerError) as error:
        await place.change(relay, "x" * 192, host="h")
    assert errno(error) == 1210
    with pytest.raises(ServerError, match="MASTER_CONNECTION_NAME"):
        relay.find("é" * 96)
    await place.change(relay, "é" * 95, host="h")
    await relay.reset("É" * 95, everything=True)
    await relay.reset("east", everything=True)
    assert list(relay.connections) == []
    assert place.relay().find("") is None
    assert place.follows[-1] is False


async def test_not_while_it_runs(place: Place) -> None:
    async with FakeUpstream() as upstream:
        relay = place.relay()
        await place.change(relay, "a", **address(upstream))
        await relay.start("a")
        for refused in (
            place.change(relay, "a", port=1),
            relay.reset("a", everything=False),
            relay.reset("a", everything=True),
        ):
            with pytest.raises(ServerError, match="running slave 'a'; run STOP SLAVE 'a'") as error:
                await refused
            assert errno(error) == 1198
        with pytest.raises(ServerError) as error:
            relay.require_stopped()
        assert errno(error) == 1198
        with pytest.raises(ServerError) as error:
            await relay.start("a", SlavePosition.parse("0-1-1"))
        assert errno(error) == 1254
        await relay.stop("a")
        relay.require_stopped()


@pytest.mark.long
async def test_many_names(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """The state is written as a whole: once for all that START or STOP changes. And there is a limit."""
    written: list[int] = []
    update = StateStore.update

    def counted(store: StateStore, changes: Mapping[str, object]) -> None:
        written.append(len(changes))
        update(store, changes)

    async with FakeUpstream() as upstream:
        relay = place.relay()
        for number in range(CONNECTIONS_MAX):
            await place.change(relay, f"c{number}", **address(upstream))
        with pytest.raises(ServerError, match=f"{CONNECTIONS_MAX} are the most") as error:
            await place.change(relay, "more", **address(upstream))
        assert errno(error) == 1201
        await place.change(relay, "C7", **address(upstream))
        monkeypatch.setattr(StateStore, "update", counted)
        assert len(await relay.start_all()) == CONNECTIONS_MAX
        assert len(await relay.stop_all()) == CONNECTIONS_MAX
        assert await relay.stop_all() == []
        assert written == [CONNECTIONS_MAX] * 2
        await relay.reset("c7", everything=True)
        await place.change(relay, "more", **address(upstream))


async def test_all_at_once(place: Place) -> None:
    async with FakeUpstream() as upstream:
        relay = place.relay()
        for name in ("b", "a", ""):
            await place.change(relay, name, **address(upstream))
        await relay.start("a")
        assert await relay.start_all() == ["", "b"]
        assert await relay.stop_all() == ["", "a", "b"]
        assert await relay.stop_all() == []


async def test_the_file_counts(place: Place, caplog: pytest.LogCaptureFixture) -> None:
    async with FakeUpstream() as upstream, FakeUpstream() as other:
        relay = place.relay()
        await place.change(relay, "East", **address(other))
        relay = place.relay(EAST=info(upstream))
        assert "what CHANGE MASTER said of it is not used" in caplog.text
        await until(lambda: upstream.streaming == 1)
        await relay.stop("east")
        for refused in (place.change(relay, "east", port=1), relay.reset("east", everything=True)):
            with pytest.raises(ServerError, match="change it there") as error:
                await refused
            assert errno(error) == 1290
        again = place.relay(EAST=info(upstream))
        assert again.running is None, "it was stopped"
        await again.start("east")
        await until(lambda: upstream.visits == 2)
        await again.close()
        place.relay(EAST=info(upstream))
        await until(lambda: upstream.visits == 3)
        assert other.visits == 0
        assert place.relay(EAST=info(upstream), skip=True).running is None


async def test_what_was_followed_last_comes_first(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("binlog_server.upstreams.candidates.TRIES", 0)
    async with FakeUpstream([Visit(deny=True)]) as first, FakeUpstream() as second:
        relay = place.relay()
        name = f"127.0.0.1:{second.port}"
        await place.change(relay, "a", **address(first, candidates=name))

        def shown(relay: Relay) -> object:
            return slave_row(relay.connections[0], "", 60)["Master_Port"]

        assert shown(relay) == first.port
        await relay.start("a")
        await until(lambda: second.streaming == 1)
        assert (shown(relay), relay.statuses[0].name) == (second.port, name)
        # Kept a moment after the upstream has got the dump command.
        await until(lambda: place.state.get("relay_followed:a", "") == name)
        await relay.close()
        again = place.relay()
        await until(lambda: second.streaming == 2)
        assert first.visits == 1
        await again.stop("a")
        assert shown(again) == second.port
        # What is not about addresses changes nothing of that; RESET SLAVE does, and another address.
        await place.change(again, "A", connect_retry=3)
        assert shown(again) == second.port
        await again.reset("a", everything=False)
        assert shown(again) == shown(place.relay(skip=True)) == first.port
        place.state.set("relay_followed:a", name)
        third = place.relay(skip=True)
        assert shown(third) == second.port
        await place.change(third, "a", candidates=f"{name}, db3")
        assert shown(third) == first.port
        assert third.connections[0].info.candidates == (name, "db3:3306")
        await third.reset("a", everything=True)
        assert place.state.items("relay_") == []


async def test_until(place: Place) -> None:
    async with FakeUpstream([Visit(OPENING + groups("0-1-1", "0-1-2"), "eof")]) as upstream:
        relay = place.relay()
        await place.change(relay, **address(upstream))
        await relay.start("", SlavePosition.parse("0-1-2"))
        await until(lambda: relay.running is None)
        assert "SET @slave_until_gtid='0-1-2'" in upstream.statements
        assert place.position == "0-1-2"
        (connection,) = relay.connections
        row = slave_row(connection, place.position, 60)
        assert (row["Until_Condition"], row["Last_IO_Errno"]) == ("Gtid", 0)
        await relay.start("", SlavePosition.parse("0-1-1"))
        await until(lambda: relay.running is None)
        assert upstream.visits == 1, "it was there already"
        assert place.relay().running is None, "a restart would go beyond"


async def test_states(place: Place) -> None:
    visits = [
        Visit(deny=True),
        Visit(OPENING, MasterFatalError("purged, sorry")),
    ]
    async with FakeUpstream(visits) as upstream:
        relay = place.relay()
        await place.change(relay, **address(upstream, connect_retry=0))
        (connection,) = relay.connections

        def row() -> dict[str, Any]:
            return dict(slave_row(connection, "0-1-1", 60))

        assert (row()["Slave_IO_Running"], row()["Slave_IO_State"]) == ("No", "")
        await relay.start("")
        seen: set[tuple[object, object]] = set()
        while relay.running is not None:
            seen.add((row()["Slave_IO_Running"], row()["Last_IO_Errno"]))
            await asyncio.sleep(0)
        assert ("Connecting", 0) in seen
        assert ("Connecting", 1045) in seen
        assert row()["Last_IO_Errno"] == 1236
        assert row()["Last_IO_Error"] == (
            "Got fatal error 1236 from master when reading data from binary log: 'purged, sorry'"
        )
        assert (row()["Slave_IO_Running"], row()["Slave_SQL_Running"]) == ("No", "No")
        assert row()["Seconds_Behind_Master"] is None
        await relay.reset("", everything=False)
        assert (row()["Last_IO_Errno"], row()["Last_IO_Error"]) == (0, "")
        await relay.start("")
        await until(lambda: connection.status.state is IoState.WAITING)
        assert (row()["Slave_IO_Running"], row()["Seconds_Behind_Master"]) == ("Yes", 0)
        assert row()["Master_Server_Id"] == 1


async def test_domains_that_are_left_out(place: Place) -> None:
    """The upstream is told its own position in them, so that it sends nothing of them and misses none of ours."""
    visits = [Visit(OPENING + groups("0-1-1", "9-1-4", "0-7-2", "0-1-3"))]
    async with FakeUpstream(visits) as upstream:
        upstream.rows["SELECT @@GLOBAL.gtid_binlog_pos"] = ("0-1-1,9-1-3,8-1-8",)
        relay = place.relay()
        await place.change(
            relay, **address(upstream, ignore_domain_ids=[9, 8], ignore_server_ids=[7])
        )
        await relay.start("")
        await until(lambda: place.position == "0-1-3")
        assert str(place.engine.binlog_state()) == "0-1-3"
        assert set(upstream.positions[0].split(",")) == {"9-1-3", "8-1-8"}


async def test_an_upstream_with_many_domains_of_which_one_is_left_out(place: Place) -> None:
    """What it says of them is longer than what a client may say."""
    async with FakeUpstream([Visit(OPENING + groups("0-1-1"))]) as upstream:
        theirs = ",".join(f"{number}-1-1" for number in range(STATE_ENTRIES_MAX))
        upstream.rows["SELECT @@GLOBAL.gtid_binlog_pos"] = (theirs,)
        await place.follow(upstream, ignore_domain_ids=[9])
        await until(lambda: place.position == "0-1-1")
        assert upstream.positions[0] == "9-1-1"


async def test_a_domain_from_two(place: Place) -> None:
    async with (
        FakeUpstream([Visit(OPENING + groups("0-1-1", "5-1-1"))]) as a,
        FakeUpstream([Visit(OPENING)]) as b,
    ):
        relay = place.relay()
        await place.change(relay, "a", **address(a))
        await place.change(relay, "b", **address(b))
        await relay.start_all()
        await until(lambda: place.position == "0-1-1,5-1-1" and b.streaming == 1)
        b.send(groups("7-1-1", "5-2-2"))
        second = relay.connections[1]
        await until(lambda: not second.runs)
        assert place.position == "0-1-1,5-1-1,7-1-1"
        assert second.status.errno == 1593
        assert f"domain 5 comes from upstream 127.0.0.1:{a.port}" in second.status.error
        await relay.stop("a")
        b_again = groups("5-2-2")
        await relay.start("b")
        await until(lambda: b.streaming == 2)
        b.send(b_again)
        await until(lambda: place.position == "0-1-1,5-2-2,7-1-1")


async def test_what_is_left_out_by_its_server_claims_no_domain(place: Place) -> None:
    """Two masters in a circle: each has the other's groups as well, and following the second ended with 1593."""
    async with (
        FakeUpstream([Visit(OPENING + groups("1-1-1", "2-2-1"))]) as a,
        FakeUpstream([Visit(OPENING)]) as b,
    ):
        relay = place.relay()
        await place.change(relay, "a", **address(a, ignore_server_ids=[2]))
        await place.change(relay, "b", **address(b, ignore_server_ids=[1]))
        await relay.start_all()
        await until(lambda: place.position == "1-1-1" and b.streaming == 1)
        b.send(groups("2-2-1", "1-1-1", "2-2-2"))
        a.send(groups("2-2-2", "1-1-2"))
        await until(lambda: place.position == "1-1-2,2-2-2")
        assert all(connection.status.errno == 0 for connection in relay.connections)


async def test_duplicates_are_stored_once(place: Place) -> None:
    async with (
        FakeUpstream([Visit(OPENING + groups("0-1-1", "0-1-2"))]) as a,
        FakeUpstream([Visit(OPENING)]) as b,
    ):
        relay = place.relay()
        relay.domains.ignore_duplicates = True
        await place.change(relay, "a", **address(a))
        await place.change(relay, "b", **address(b))
        await relay.start_all()
        await until(lambda: place.position == "0-1-2" and b.streaming == 1)
        assert "SET @slave_gtid_ignore_duplicates=1" in a.statements
        b.send(groups("0-1-1", "0-1-2", "0-1-3", "0-1-4"))
        await until(lambda: place.position == "0-1-4")
        a.send(groups("0-1-3", "0-1-4", "0-1-5"))
        await until(lambda: place.position == "0-1-5")
        await relay.stop("a")
        b.send(groups("0-1-5", "0-1-6"))
        await until(lambda: place.position == "0-1-6")
        assert all(connection.status.errno == 0 for connection in relay.connections)
    place.engine.sync()
    assert [str(gtid) for _, gtid in place.history.groups if gtid] == [
        f"0-1-{number}" for number in range(1, 7)
    ]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, False),
        ({"upstream": {"": MasterInfo("127.0.0.1", 1, "u")}}, True),
        ({"upstream": {"": MasterInfo("127.0.0.1", 1, "u")}, "read_only": False}, False),
        ({"read_only": True}, True),
    ],
)
async def test_read_only_with_an_upstream(options: dict[str, Any], expected: bool) -> None:
    async with Lab(**options) as lab:
        assert lab.server.publisher.read_only is expected


async def test_no_password_in_texts(place: Place, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    async with FakeUpstream([Visit(deny=True), Visit(OPENING, MasterFatalError("x"))]) as upstream:
        relay = await place.follow(upstream, connect_retry=0)
        await until(lambda: relay.running is None)
    (connection,) = relay.connections
    texts = [caplog.text, repr(connection), str(slave_row(connection, "", 60))]
    assert not any(PASSWORD in text for text in texts)


@pytest.mark.parametrize("configured", [False, True])
async def test_a_full_disk_lets_everything_be_stopped_and_started(
    configured: bool, place: Place, caplog: pytest.LogCaptureFixture
) -> None:
    warned: list[tuple[int, str]] = []

    def warn(told: ServerError) -> None:
        warned.append((told.errno, told.message))

    async with FakeUpstream() as upstream:

        def begun() -> Relay:
            return place.relay(east=info(upstream)) if configured else place.relay()

        relay = begun()
        if not configured:
            await place.change(relay, "east", **address(upstream))
            await relay.start("east")
        await until(lambda: upstream.streaming == 1)
        place.disk.capacity = 0
        assert await relay.stop("east", warn)
        assert relay.running is None
        ((code, text),) = warned
        assert code == 1021
        assert "a restart starts it again, unless STOP SLAVE is repeated once there is room" in text
        assert text in caplog.text
        assert await relay.start("east", warn=warn)
        assert await relay.stop_all(warn) == ["east"]
        assert [code for code, _ in warned] == [1021] * 3
        place.disk.capacity = 1 << 62
        warned.clear()
        assert await relay.stop_all(warn) == []
        assert warned == []
        assert begun().running is None, "now it is kept"


async def test_a_reset_that_is_refused_has_forgotten_nothing(place: Place) -> None:
    relay = place.relay(skip=True, _=MasterInfo(host="127.0.0.1", user="relay"))
    connection = relay.find("")
    assert connection is not None
    connection.followed = "other"
    incidents = connection.incidents
    with pytest.raises(ServerError) as refused:
        await relay.reset("", everything=True)
    assert errno(refused) == 1290
    assert (connection.followed, connection.incidents) == ("other", incidents)


async def test_started_late_while_it_is_being_reset(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Behind an archive, among statements: what RESET SLAVE ALL is about to forget would be followed for ever."""
    async with FakeUpstream([Visit(OPENING, "hold")]) as upstream:
        relay = place.relay()
        await place.change(relay, "b", **address(upstream))
        await relay.start("b")
        await relay.close()
        relay = place.relay(skip=True)
        connection = relay.find("b")
        assert connection is not None
        update, comes, goes = place.state.update, threading.Event(), threading.Event()

        def slowly(changes: Mapping[str, Any]) -> None:
            comes.set()
            goes.wait(20)
            update(changes)

        monkeypatch.setattr(place.state, "update", slowly)
        resetting = asyncio.create_task(relay.reset("b", everything=True))
        await asyncio.to_thread(comes.wait, 20)
        starting = asyncio.create_task(relay.start_late(skip=False))
        await asyncio.sleep(0)
        goes.set()
        await asyncio.gather(resetting, starting)
        assert relay.connections == []
        assert not connection.runs


async def test_a_change_is_kept_in_one_write(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    relay = place.relay(skip=True)
    writes: list[int] = []
    update = place.state.update

    def counted(changes: Mapping[str, Any]) -> None:
        writes.append(1)
        update(changes)

    monkeypatch.setattr(place.state, "update", counted)
    await place.change(relay, host="127.0.0.1", user="relay")
    assert len(writes) == 1
    await relay.reset("", everything=True)
    assert len(writes) == 2
    assert list(place.state.items("")) == []
