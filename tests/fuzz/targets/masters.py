"""Upstreams from their greeting on: the following of one, or of several candidates, over connections that are here.

`upstream` begins behind the dump command. Here the bytes are all that masters say in a row of connections: greeting and
login, in clear or as if in TLS; what they are asked before the stream (their state, single groups as a proof of their
history, each over a connection of its own), the steps of the dump, and the stream.

What must be true: whatever comes ends a connection as one of the things that are meant to, or the following for good;
no line of the log with a traceback, no task left; what is stored is what was there before, and what came; and `verify`
finds no damage.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any, Final
from unittest import mock

import uvloop
from binlog_protocol.connection.auth import certificate_proof, native_password_hash
from binlog_protocol.connection.commands import BinlogDump, Query, RegisterSlave
from binlog_protocol.connection.handshake import SERVER_CAPABILITIES, Capability
from binlog_protocol.connection.server import LoginReceived, ServerConnection, TlsRequested
from binlog_protocol.events.checksum import append_checksum
from binlog_protocol.events.header import split_events
from binlog_protocol.gtid import Gtid, SlavePosition
from binlog_protocol.wire.gathered import GatheredPayload
from binlog_protocol.wire.packets import frame_packet
from binlog_storage.binlog.store import IbbEngine
from binlog_storage.log.groups import OfflineBinlog
from binlog_storage.testing.memory_disk import MemoryDisk

from binlog_server.commits.publisher import Publisher
from binlog_server.commits.room import AppendRoom
from binlog_server.commits.syncer import Syncer
from binlog_server.relay.byte_stream import AT_ONCE_BYTES_MAX, ByteStream
from binlog_server.relay.follower import Follower
from binlog_server.relay.gate import Domains
from binlog_server.relay.incidents import Incidents
from binlog_server.relay.into import Into
from binlog_server.relay.status import UpstreamStatus
from binlog_server.semi_sync.master import SemiSyncMaster
from binlog_server.settings.config import Config
from binlog_server.upstreams.candidates import Ring
from binlog_server.upstreams.master_info import MasterInfo
from binlog_server.upstreams.password import Password
from tests.binlog_server.lab import fill, gtids, transaction, within
from tests.binlog_server.upstream import OPENING, SALT, VERSION, FakeUpstream, Visit, groups
from tests.fuzz import frames
from tests.fuzz.events import changed_event
from tests.fuzz.log import BadLines
from tests.fuzz.mutation import mutated, mutated_parts
from tests.fuzz.readers import read_by_all, require_sound
from tests.fuzz.target import Wrong
from tests.storage.sizes import small

_PASSWORD: Final = "p"
_OURS: Final = "0-1-1,0-1-2"
_LAST: Final = "0-1-2"
_HEADER: Final = 19
_STATE: Final = "SELECT @@GLOBAL.gtid_binlog_state"
_POSITION: Final = "SELECT @@GLOBAL.gtid_binlog_pos"
_SEMI_SYNC: Final = "SHOW VARIABLES LIKE 'rpl_semi_sync_master_enabled'"

Connection = list[bytes]
"""What is read of one, piece by piece."""


def _info(**more: Any) -> MasterInfo:
    return MasterInfo("one", 3306, "u", Password(_PASSWORD), **{"ssl": False, **more})


# Of the first byte of an input, two bits.
_INFOS: Final = (
    _info(),
    _info(do_domain_ids=(0,), ignore_server_ids=(2,)),
    _info(candidates=("two:3306",)),
    _info(ssl=True),
)
_SEMI, _UNTIL = 4, 8


class _Heard:
    """Stands in for a `ByteStream`: what the master says is here."""

    tls = None
    is_closing = False

    def __init__(self, said: Connection) -> None:
        self.said = said
        self._at = 0
        self._behind = b""  # has come, and nobody has taken it
        self.taker: Callable[[], bool] | None = None

    @property
    def has_unread(self) -> bool:
        return bool(self._behind)

    def write(self, data: bytes) -> None:
        """A master that says what it likes does not listen."""

    async def ready(self, timeout_s: float) -> None:
        self._behind = self._next()
        while self.taker is not None and 0 < len(self._behind) <= AT_ONCE_BYTES_MAX:
            if not self.taker():
                return
            self._behind = self._next()

    def take(self, before: bytes | memoryview = b"") -> memoryview:
        found, self._behind = self._behind, b""
        return memoryview(bytearray(bytes(before) + found))

    async def read_into(self, payload: GatheredPayload, timeout_s: float) -> bool:
        while not payload.is_whole and (found := self._next()):
            self._behind = found[payload.take(found) :]
        return payload.is_whole

    def _next(self) -> bytes:
        """Nothing at the end."""
        found, self._behind = self._behind, b""
        while not found and self._at < len(self.said):
            found = self.said[self._at]
            self._at += 1
        return found

    async def start_tls(self, context: object, server_hostname: str) -> None:
        """What comes next stands for what was decrypted."""

    def close(self) -> None:
        pass


class _Master(FakeUpstream):
    """One that is well: `events` are behind the groups that we have, `shown` is sent until one of them if asked for."""

    def __init__(self, state: str, events: list[bytes], shown: list[bytes]) -> None:
        super().__init__()
        self.rows = {
            _STATE: (state,), _POSITION: (state,), _SEMI_SYNC: ("rpl_semi_sync_master_enabled", "ON"),
        }  # fmt: skip
        self._events, self._shown = events, shown

    def sent(self, *, until: bool) -> list[bytes]:
        """To a dump; what was sent is not sent again."""
        if until:
            return self._shown
        found, self._events = self._events, OPENING
        return found


class _Answering(_Heard):
    """A connection to such a master: what it says is kept in `said`."""

    def __init__(self, master: _Master) -> None:
        self._master = master
        self._semi_sync = self._until = False
        self._machine = ServerConnection(
            connection_id=9, server_version=f"5.5.5-{VERSION}", salt=SALT,
            capabilities=SERVER_CAPABILITIES | Capability.SSL,
        )  # fmt: skip
        super().__init__([bytes(self._machine.greeting())])

    def write(self, data: bytes) -> None:
        self._machine.receive_data(data)
        while (event := self._machine.next_event()) is not None:
            self.said += map(bytes, self._answers(event))

    def _answers(self, event: object) -> list[bytes]:
        machine = self._machine
        match event:
            case TlsRequested():
                machine.tls_started()
            case LoginReceived():
                stored = native_password_hash(_PASSWORD)
                return [machine.accept_login(certificate_proof(stored, SALT, sha256(b"").digest()))]
            case Query(sql):
                self._until |= sql == f"SET @slave_until_gtid='{_LAST}'"
                self._semi_sync |= "@rpl_semi_sync_slave" in sql
                return [self._master.answer(machine, sql, Visit())]
            case RegisterSlave():
                return [machine.send_ok()]
            case BinlogDump():
                machine.start_dump()
                if self._semi_sync:
                    machine.start_semi_sync()
                events = self._master.sent(until=self._until)
                return [*map(machine.dump_event, events), machine.dump_end_eof()]
        return []


class Masters:
    """The first part: whom is followed and how, and the size of pieces. Then what is read; behind an empty part the
    connection ends, and the next one begins.
    """

    name = "masters"
    time_s = 1.0
    per_life = 100

    def __init__(self) -> None:
        self._log = BadLines()
        self._patches = contextlib.ExitStack()
        self._loop: asyncio.AbstractEventLoop
        self._recorded: list[tuple[int, list[Connection]]] = []
        self._said: list[bytes] = []
        self._events: list[bytes] = []

    def open(self) -> None:
        self._loop = uvloop.new_event_loop()
        asyncio.set_event_loop(self._loop)
        self._patches.enter_context(self._log.kept())
        self._patches.enter_context(mock.patch.object(Follower, "_pause", _no_pause))
        self._patches.enter_context(mock.patch.object(logging, "lastResort", None))

    def close(self) -> None:
        self._patches.close()
        self._loop.close()

    def make(self, rng: random.Random) -> bytes:
        if not self._recorded:
            self._recorded = self._loop.run_until_complete(_recorded())
            self._said = sorted({p for _, all_ in self._recorded for one in all_ for p in one})
            self._events = sorted({p[5:] for p in self._said if len(p) > 4 + 1 + _HEADER + 4})
        how, connections = rng.choice(self._recorded)
        parts = []
        for connection in connections:
            some = list(connection)
            for _ in range(rng.choice((0, 1, 1, 2))):
                at = rng.randrange(len(some))
                some[at] = self._changed(some[at], rng)
            if rng.random() < 0.2:
                some = mutated_parts(some, rng, self._said, 2)
            parts += [*some, b""]
        return frames.joined([bytes([how, rng.randrange(4)]), *parts])

    def _changed(self, part: bytes, rng: random.Random) -> bytes:
        """Mostly such that it is a packet still; of an event such that it is one still."""
        kind = rng.randrange(4)
        if kind == 0 or len(part) < 4:
            return mutated(part, rng, self._said, 3)
        payload, number = part[4:], part[3]
        if kind == 1 and payload[:1] == b"\0" and len(payload) > 1 + _HEADER + 4:
            payload = b"\0" + changed_event(payload[1:], rng, self._events)
        else:
            payload = mutated(payload, rng, self._said, 3)
        return frame_packet(payload, number)[0]

    def run(self, data: bytes) -> None:
        how, *parts = frames.split(data) or [b""]
        how = how.ljust(2, b"\0")
        connections: list[Connection] = [[]]
        for part in parts:
            if not part:
                connections.append([])
            step = max((len(part), 1, 50, 4000)[how[1] % 4], len(part) // 200, 1)
            connections[-1] += (part[at : at + step] for at in range(0, len(part), step))
        disk = MemoryDisk()
        with contextlib.closing(IbbEngine(disk, small(8))) as engine:
            fill(engine, gtids(_OURS))
            streams = [_Heard(connection) for connection in connections]
            self._loop.run_until_complete(_follow(engine, how[0], streams))
            engine.sync()
        if self._log.bad:
            raise Wrong(f"in the log: {self._log.take()}")
        _check(disk, [b"".join(connection) for connection in connections])


async def _no_pause(follower: Follower, delay: float) -> None:
    await asyncio.sleep(0)


async def _follow(engine: IbbEngine, how: int, streams: list[_Heard]) -> None:
    """Until the last connection has ended, or the following has."""
    info = _INFOS[how & 3]
    rest = iter(streams)
    all_used = asyncio.Event()

    async def connect(host: str, port: int) -> _Heard:
        found = next(rest, None)
        if found is None:
            all_used.set()
            await asyncio.Event().wait()
        assert found is not None
        return found

    config = Config(Path("/nowhere"), server_id=10, rpl_semi_sync_slave_enabled=bool(how & _SEMI))
    publisher = Publisher(engine, server_version="11.8.6", server_id=10, domain_id=0, follows=True)
    syncer = Syncer(engine)
    into = Into(
        lambda: config, engine, syncer, AppendRoom(engine), Domains(engine, publisher), _heard_version,
        SemiSyncMaster(lambda: config),
    )  # fmt: skip
    follower = Follower(
        info, into, UpstreamStatus(info.address), Ring(info.addresses, "", info.connect_retry),
        Incidents(), SlavePosition([Gtid(0, 1, 4)]) if how & _UNTIL else None,
    )  # fmt: skip
    with mock.patch.object(ByteStream, "connect", connect):
        following = asyncio.ensure_future(follower.run())
        used = asyncio.ensure_future(all_used.wait())
        await within(asyncio.wait([following, used], return_when=asyncio.FIRST_COMPLETED))
        for task in (following, used):
            task.cancel()
        ends = await asyncio.gather(following, used, return_exceptions=True)
    await syncer.close()
    for end in ends:
        if isinstance(end, Exception):
            raise end
    left = asyncio.all_tasks() - {asyncio.current_task()}
    if left:
        raise Wrong(f"following has ended, and something goes on: {left}")


async def _heard_version(version: str) -> None:
    """Nobody else hears of it."""


def _check(disk: MemoryDisk, said: list[bytes]) -> None:
    """What is stored is what there was, and what came; over one connection each group."""
    with contextlib.closing(OfflineBinlog(disk)) as binlog:
        for group in binlog.groups():
            if group.gtid is None or str(group.gtid) in _OURS.split(","):
                continue
            stored = b"".join(group.pieces())
            bodies = [event[_HEADER:] for event in split_events(stored)]
            if not any(all(body in one for body in bodies) for one in said):
                raise Wrong(f"{group.gtid} is stored, but was not sent so")
            read_by_all(stored)
    require_sound(disk)


# --- what is changed ---


async def _recorded() -> list[tuple[int, list[Connection]]]:
    """How, and what masters that are well have said then: some with our history, some with another one."""
    found = []
    same, new = OPENING + groups("0-1-2"), OPENING + groups("0-1-3", "0-1-4", "1-2-1")
    other = OPENING + [
        append_checksum(event)
        for event in split_events(transaction(Gtid.parse("0-1-2"), "DELETE FROM t"))
    ]
    for state, shown in (
        ("0-1-4,1-2-1", same),
        ("0-1-4,1-2-1", other),
        ("0-1-4,1-2-1", OPENING),
        ("0-1-1", same),
        ("0-2-9,1-1-1", other),
        ("1-2-1", same),
    ):
        for how in (0, 1, 2, 3, _SEMI, _UNTIL):
            master = _Master(state, new, shown)
            with contextlib.closing(IbbEngine(MemoryDisk(), small(8))) as engine:
                fill(engine, gtids(_OURS))
                streams = [_Answering(master) for _ in range(4)]
                await _follow(engine, how, list(streams))
            found.append((how, [stream.said for stream in streams if len(stream.said) > 1]))
    return found
