"""Clients: before the login, with commands, with SQL. The whole server on a store in memory, without sockets.

What must be true of any input: no exception, no failed task, no line of the log with a traceback; whoever has no rights
changes nothing; a good client is answered afterwards; and in the end `verify` finds no damage in the store.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import re
import ssl
import threading
from collections.abc import Coroutine
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final
from unittest import mock

import uvloop
from binlog_protocol.connection.auth import native_password_scramble
from binlog_protocol.connection.commands import (
    BinlogDump,
    BinlogDumpGtid,
    DumpFlag,
    Query,
    RegisterSlave,
)
from binlog_protocol.connection.handshake import Capability, Greeting, LoginRequest, TlsRequest
from binlog_protocol.gtid import Gtid
from binlog_protocol.wire.compressed import compressed, framed
from binlog_protocol.wire.packets import Packet, PacketReader, frame_packet

from binlog_server.accounts.users import Account
from binlog_server.relay.byte_stream import ByteStream
from binlog_server.relay.follower import Follower
from binlog_server.sql.account_statements import ACCOUNTS
from binlog_server.sql.parser import MAIN
from binlog_server.sql.replication_sql import REPLICATION
from binlog_server.sql.runner import THREADS
from binlog_server.sql.sql_session import SqlSession
from binlog_server.sql.variables import VARIABLES
from binlog_server.sql.view import text_of
from tests.binlog_server.lab import PASSWORD, USER, Lab
from tests.binlog_server.tls_client import client_context
from tests.binlog_server.transport import Held
from tests.fuzz import frames
from tests.fuzz.log import BadLines
from tests.fuzz.mutation import mutated, mutated_parts
from tests.fuzz.readers import require_sound
from tests.fuzz.sentences import Sentences
from tests.fuzz.target import Wrong
from tests.protocol.conversation import CAPTURES, conversations_in, packets
from tests.protocol.statement_groups import transaction_group

ROOT: Final = Path(__file__).parents[3]
CORPUS: Final = Path(__file__).parents[1] / "corpus"
POOR, KEEPER = "poor", "keeper"  # an account without any grant, and the one of the good client
ALL: Final = frozenset({"ALL PRIVILEGES"})
_SETTLE_S: Final = 10.0
_STAYS_S: Final = 0.003
_THREADS_MAX: Final = 2
_HEARS_S: Final = 0.001
_HEARS_MAX: Final = 30
_QUIET: Final = 3  # so often nothing has come: no more does
# The group for which replicas wait: more than a transport takes at once.
_STATEMENT_BYTES: Final = 20_000
_LARGE_STATEMENTS: Final = 10

# What a client may be told who comes to a server that an input has changed with all rights.
_REFUSALS: Final = {1040, 1045, 1129, 1203, 1290, 3159}


class Sessions:
    """Base of those that talk to a session."""

    name = ""
    time_s = 0.25
    per_life = 500
    told: tuple[str, ...] = ()
    """Statements before anything else; with them it is a server with tables."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop
        self._lab: Lab
        self._bugs: list[dict[str, Any]] = []
        self._log = BadLines()
        self._patches = contextlib.ExitStack()
        self._settled: set[asyncio.Task[Any]] = set()

    # --- see `Target` ---

    def open(self) -> None:
        self._loop = uvloop.new_event_loop()
        # Addresses are limited, and each thread takes many.
        self._loop.set_default_executor(ThreadPoolExecutor(_THREADS_MAX))
        asyncio.set_event_loop(self._loop)
        self._bugs.clear()
        self._loop.set_exception_handler(lambda _, context: self._bugs.append(context))
        self._patches.enter_context(self._log.kept())
        # Nothing that is said here may reach another machine.
        unreachable = mock.AsyncMock(side_effect=ConnectionRefusedError("not in a fuzzer"))
        self._patches.enter_context(mock.patch.object(ByteStream, "connect", unreachable))
        self._run(self._start())

    def make(self, rng: random.Random) -> bytes:
        raise NotImplementedError

    def run(self, data: bytes) -> None:
        self._run(self._one(data))

    def close(self) -> None:
        try:
            self._run(self._end())
        finally:
            self._patches.close()
            self._loop.close()

    # --- on the loop ---

    def _run(self, work: Coroutine[Any, Any, None]) -> None:
        self._loop.run_until_complete(work)

    async def _start(self) -> None:
        users = {USER: Account(PASSWORD, ALL), POOR: PASSWORD, KEEPER: Account(PASSWORD, ALL)}
        self._lab = Lab(users=users, max_connect_errors=10**6, local_tables=bool(self.told))
        await self._lab.server.start()
        if self.told:
            keeper = await self._lab.client(KEEPER, PASSWORD)
            for text in self.told:
                await keeper.query(text)
            keeper.close()
        self._lab.publish("0-1-1,0-1-2")
        large = Gtid(0, 1, 3)
        rows = [f"INSERT INTO t VALUES ('{'x' * _STATEMENT_BYTES}')"] * _LARGE_STATEMENTS
        self._lab.engine.append(
            transaction_group(large, rows, xid=3, timestamp=1_700_000_000), large
        )
        self._lab.engine.large_group_bytes = _STATEMENT_BYTES  # it is one: replicas get it in parts
        self._lab.publish("0-1-4")
        self._settled = asyncio.all_tasks()

    async def _end(self) -> None:
        self._good_client()
        await self._lab.stop()
        self._check_log()
        require_sound(self._lab.directory.disk)

    async def _one(self, data: bytes) -> None:
        held = Held(self._lab.server)
        before = self._facts()
        try:
            has_rights = await self._feed(held, data)
            for _ in range(3):
                await asyncio.sleep(0)
            if len(data) & 1:  # who stays for the answer
                await self._wait(_STAYS_S)
        finally:
            held.transport.protocol.connection_lost(None)
        await self._settle()
        if has_rights:
            await self._statements_end()
        else:
            for had, has in zip(before, self._facts(), strict=True):
                if had != has:
                    raise Wrong(f"an input without rights has changed {had!r} to {has!r}")
        self._check_log()

    async def _feed(self, held: Held, data: bytes) -> bool:
        """Give it to the session; returns whether it may change anything."""
        raise NotImplementedError

    def _facts(self) -> tuple[object, ...]:
        server = self._lab.server
        engine = self._lab.engine
        written = engine.written_end.file_no
        shown = SqlSession(server, 0, "").system_variables(globally=True)
        return (
            str(engine.binlog_state()),
            [
                f.number for f in engine.files() if f.number <= written
            ],  # others are made ahead, any time
            server.config,
            {name: text_of(value) for name, value in shown.items()},
            [account.name for account in server.users.all()],
            [connection.name for connection in server.relay.connections],
        )

    async def _settle(self) -> None:
        """Until what was begun for the session has ended."""
        await asyncio.sleep(0)
        pending = await self._wait(_SETTLE_S)
        if pending:
            raise Wrong(f"a session has gone, and does not end: {pending}")
        self._settled = asyncio.all_tasks()

    async def _wait(self, seconds: float) -> set[asyncio.Task[Any]]:
        """For what was begun for the session, so long at most; returns what goes on."""
        begun = asyncio.all_tasks() - self._settled - {asyncio.current_task()}
        own = {task for task in begun if task is not None and not _follows(task)}
        return (await asyncio.wait(own, timeout=seconds))[1] if own else own

    async def _statements_end(self) -> None:
        """Those in threads, which go on when their session has gone: what they change must not pass for another's."""
        runner = vars(self._lab.server).get("runner")
        if runner is None:
            return
        await runner._writer.call("", lambda: None)
        for threads, count in [
            (runner._threads, THREADS),
            *((t, 1) for t in runner._lines.values()),
        ]:
            barrier = threading.Barrier(count)
            ends = (
                self._loop.run_in_executor(threads, barrier.wait, _SETTLE_S) for _ in range(count)
            )
            await asyncio.gather(*ends)

    def _check_log(self) -> None:
        if self._bugs:
            bug = self._bugs[0]
            error = bug.get("exception")
            self._bugs.clear()
            raise Wrong(f"on the loop: {bug.get('message')}") from (
                error if isinstance(error, BaseException) else None
            )
        if self._log.bad:
            raise Wrong(f"in the log: {self._log.take()}")

    def _good_client(self) -> None:
        held = Held(self._lab.server)
        try:
            log_in(held, KEEPER)
        except Refused as refused:
            if refused.errno not in _REFUSALS:
                raise Wrong(f"a good client is refused: {refused.errno}") from None
            return
        answer = held.ask(Query("SELECT 1").build())
        if len(answer) < 2 or answer[-2] != b"\x011":
            raise Wrong(f"a good client is answered {answer!r}")
        held.end()


def _follows(task: asyncio.Task[Any]) -> bool:
    """Whether it is a following, which a session has begun and which goes on behind it."""
    return getattr(task.get_coro(), "__qualname__", "") == Follower.run.__qualname__


class Refused(Exception):
    """A login was, with `errno`."""

    def __init__(self, errno: int) -> None:
        super().__init__(errno)
        self.errno = errno


def log_in(held: Held, user: str, *, packed: bool = False, secured: bool = False) -> Secured | None:
    """By password; returns the TLS of the session if it is to have any. Raises `Refused`."""
    (greeting,) = held.packets()
    if greeting.payload[:1] == b"\xff":
        raise Refused(int.from_bytes(greeting.payload[1:3], "little"))
    tls = Secured(held) if secured else None
    capabilities = LoginRequest(user, b"").capabilities
    capabilities |= (Capability.COMPRESS if packed else 0) | (Capability.SSL if secured else 0)
    salt = Greeting.parse(greeting.payload).salt
    login = LoginRequest(
        user, native_password_scramble(PASSWORD, salt), capabilities=capabilities
    ).build()
    if tls is None:
        held.receive(frame_packet(login, 1)[0])
    else:
        held.receive(tls.sealed(frame_packet(login, 2)[0]))
    answers = held.packets() if tls is None else tls.packets()
    if not answers or answers[-1].payload[:1] != b"\0":
        payload = answers[-1].payload if answers else b""
        raise Refused(int.from_bytes(payload[1:3], "little"))
    return tls


class Secured:
    """The client's end of TLS, from its request to the end of the handshake on; behind the greeting."""

    def __init__(self, held: Held) -> None:
        self._held = held
        self._in, self._out = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = client_context().wrap_bio(self._in, self._out)
        self._reader = PacketReader(1 << 24)
        held.transport.protocol.data_received(frame_packet(TlsRequest().build(), 1)[0])
        while True:
            try:
                self._tls.do_handshake()
                break
            except ssl.SSLWantReadError:
                held.transport.protocol.data_received(self._out.read())
                self._in.write(held.take_bytes())
        held.transport.protocol.data_received(self._out.read())

    def sealed(self, data: bytes) -> bytes:
        """As it is to be sent."""
        self._tls.write(data)
        return self._out.read()

    def packets(self) -> list[Packet]:
        """What was answered since the last call."""
        self._in.write(self._held.take_bytes())
        with contextlib.suppress(ssl.SSLWantReadError):
            while data := self._tls.read(1 << 16):
                self._reader.feed(data)
        found = []
        while (packet := self._reader.next_packet()) is not None:
            found.append(packet)
        return found


def receive(held: Held, data: bytes, step: int) -> None:
    """In pieces of that size."""
    for start in range(0, len(data), step):
        if held.transport.closing:
            return
        held.transport.protocol.data_received(data[start : start + step])


# --- before the login ---


class Handshake(Sessions):
    """The rest is what a client says first, or in TLS, behind the handshake.

    Of the first byte: the size of the pieces, two bits; in TLS; then what comes is not sealed, records of nobody's.
    """

    name = "handshake"

    def __init__(self) -> None:
        super().__init__()
        self._seeds = [*_recorded_logins(), *_made_logins(), _recorded_hello()]

    def make(self, rng: random.Random) -> bytes:
        pieces = rng.choice((0, 1, 1, 2, 2, 3, 3, 3))  # byte by byte takes ten times as long
        tls = rng.choice((0, 0, 0, 0, 0, _IN_TLS, _IN_TLS, _IN_TLS | _BROKEN))
        return bytes([pieces | tls]) + mutated(rng.choice(self._seeds), rng, self._seeds)

    async def _feed(self, held: Held, data: bytes) -> bool:
        how, said = (data[0], data[1:]) if data else (0, b"")
        step = (1, 7, 100, 1 << 20)[how % 4]
        held.packets()
        if how & _IN_TLS and not held.transport.closing:
            tls = Secured(held)
            if not how & _BROKEN:
                step = max(step, len(said) // 50)  # each piece is a record, which costs more
                pieces = [said[at : at + step] for at in range(0, len(said), step)]
                said, step = b"".join(map(tls.sealed, pieces)), 1 << 20
        receive(held, said, step)
        return False


_IN_TLS, _BROKEN = 4, 8


def _recorded_hello() -> bytes:
    """The request for TLS with a ClientHello of OpenSSL 3: made anew it would be another one each time."""
    return (CORPUS / Handshake.name / "tls-client-hello").read_bytes()[1:]


def _recorded_logins() -> list[bytes]:
    found = set()
    for path in sorted(CAPTURES.glob("*.jsonl")):
        for conversation in conversations_in(path):
            sent = list(packets(conversation.from_client))
            if sent:
                found.add(
                    b"".join(frame_packet(p.payload, n + 1)[0] for n, p in enumerate(sent[:2]))
                )
    return sorted(found)


def _made_logins() -> list[bytes]:
    plain = LoginRequest(USER, bytes(20)).build()
    packed = LoginRequest(
        USER, bytes(20), capabilities=LoginRequest(USER, b"").capabilities | Capability.COMPRESS
    ).build()
    return [
        frame_packet(plain, 1)[0],
        frame_packet(packed, 1)[0],
        frame_packet(TlsRequest().build(), 1)[0]
        + b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"
        + bytes(600),
        frame_packet(LoginRequest(USER, b"x", plugin="client_ed25519").build(), 1)[0]
        + frame_packet(bytes(64), 3)[0],
    ]


# --- commands ---


class Commands(Sessions):
    """Packets behind a login. The first part says whose, what lies around the payloads, and the size of pieces.

    Of its first byte: an account without rights; compressed; the parts are the bytes themselves, not payloads; in TLS;
    all answers are waited for and taken before the next part is sent, also of a dump, as long as more comes. Else the
    parts come at once, and into the middle of a dump.
    """

    name = "commands"

    def __init__(self) -> None:
        super().__init__()
        # A conversation sent over again ends where another store would have to be here: some are made for this one.
        self._conversations = [*_recorded_conversations(), *_made_dumps()]
        found = {payload for payloads in self._conversations for payload in payloads}
        # Each command that there is, with nothing and with a little behind it.
        made = {bytes([code]) + rest for code in range(256) for rest in (b"", bytes(4), bytes(24))}
        self._seeds = sorted(found) * 4 + sorted(made)

    def make(self, rng: random.Random) -> bytes:
        kind = rng.randrange(8) | rng.choice((0, 0, 0, 0, _TLS)) | rng.choice((0, 0, 0, _WAITS))
        if rng.random() < 0.4:
            chosen = list(rng.choice(self._conversations))
            if rng.random() < 0.7:
                at = rng.randrange(len(chosen))
                chosen[at] = mutated(chosen[at], rng, self._seeds)
        else:
            chosen = [rng.choice(self._seeds) for _ in range(rng.randrange(1, 6))]
            chosen = mutated_parts(chosen, rng, self._seeds)
        if kind & _RAW:
            sent = [_framed(payload, packed=bool(kind & _PACKED)) for payload in chosen]
            at = rng.randrange(len(sent) or 1)
            sent[at : at + 1] = [mutated(one, rng, self._seeds) for one in sent[at : at + 1]]
            chosen = sent
        return frames.joined([bytes([kind, rng.randrange(4)]), *chosen])

    async def _feed(self, held: Held, data: bytes) -> bool:
        how, *parts = frames.split(data) or [b""]
        how = how.ljust(2, b"\0")
        user = POOR if how[0] & _POOR else USER
        packed = bool(how[0] & _PACKED)
        try:
            tls = log_in(held, user, packed=packed, secured=bool(how[0] & _TLS))
        except Refused:
            return True  # by what an earlier input has set
        step = (1, 100, 5000, 1 << 20)[how[1] % 4]
        for part in parts:
            sent = part if how[0] & _RAW else _framed(part, packed=packed)
            if tls is not None and not held.transport.closing:
                sent = tls.sealed(sent)
            receive(held, sent, max(step, len(sent) // 200))
            held.transport.take()
            if how[0] & _WAITS:
                await _hear(held)
        return user == USER


_POOR, _PACKED, _RAW, _TLS, _WAITS = 1, 2, 4, 8, 16


async def _hear(held: Held) -> None:
    """Take what comes, until nothing does; heartbeats may come for ever."""
    quiet = 0
    for _ in range(_HEARS_MAX):
        if quiet == _QUIET or held.transport.closing:
            return
        await asyncio.sleep(_HEARS_S)
        quiet = 0 if held.transport.held else quiet + 1
        held.transport.take()


def _framed(payload: bytes, *, packed: bool) -> bytes:
    plain = frame_packet(payload, 0)[0]
    return framed(compressed(plain), 0)[0] if packed else plain


def _recorded_conversations() -> list[list[bytes]]:
    found = []
    for path in sorted(CAPTURES.glob("*.jsonl")):
        for conversation in conversations_in(path):
            payloads = [packet.payload for packet in packets(conversation.from_client)][1:]
            if payloads:
                found.append(payloads)
    return found


def _made_dumps() -> list[list[bytes]]:
    """Replicas and tools of all kinds, as they begin on the store that is here."""
    found = []
    for place in ("", "0-1-1", "0-1-2", "0-1-3"):
        for capability in (0, 2, 4):
            for checksum in ("NONE", "@@global.binlog_checksum"):
                prepared = [
                    f"SET @mariadb_slave_capability={capability}",
                    f"SET @master_binlog_checksum={checksum}",
                    "SET @master_heartbeat_period=1000000",
                    "SET @rpl_semi_sync_slave=1",
                ]
                state = [f"SET @slave_connect_state='{place}'"] if capability == 4 else []
                queries = [
                    Query(text).build() for text in (*prepared[: 3 + len(place) // 3], *state)
                ]
                flags = DumpFlag.NON_BLOCK if checksum == "NONE" else DumpFlag.SEND_ANNOTATE_ROWS
                file = "" if state else "binlog-000000.ibb"
                dump = BinlogDump(7, flags, file, 4)
                found.append([*queries, RegisterSlave(7).build(), dump.build()])
        found.append([BinlogDumpGtid(8, DumpFlag.NON_BLOCK, "", 4, place).build()])
    for position, until in (
        ("0-1-2,5-5-5", ""),
        ("0-1-2,0-2-3", "0-1-3"),
        ("0-1-99", "0-1-4"),
        ("1-1-1,2-1-1", "7-7-7"),
    ):
        said = ["SET @mariadb_slave_capability=4", f"SET @slave_connect_state='{position}'"]
        said += [f"SET @slave_until_gtid='{until}'"] if until else []
        # Whoever is in a dump says nothing more, but for acknowledgements.
        acks = [b"\xef" + bytes(8) + b"binlog-000000.ibb"] * 2
        for flags in DumpFlag:
            dump = BinlogDump(7, flags, "binlog-000000.ibb", 16384)
            found.append([*(Query(text).build() for text in said), dump.build(), *acks])
    return found


# --- SQL ---


class Sql(Sessions):
    """Statements, one behind the other. The first part says whose."""

    name = "sql"
    per_life = 300

    def __init__(self) -> None:
        super().__init__()
        self._seeds = statements()
        words = {w for s in self._seeds for w in re.findall(rb"[A-Za-z_@]+|\d+|[^\sA-Za-z_\d]", s)}
        self._words = sorted(words)
        variables = sorted(VARIABLES)
        grammars = (MAIN, ACCOUNTS, REPLICATION)
        self._grammars = [Sentences(grammar.lark, variables) for grammar in grammars]

    def make(self, rng: random.Random) -> bytes:
        texts = []
        for _ in range(rng.randrange(1, 5)):
            if rng.random() < 0.5:
                text = rng.choice(self._grammars).sentence(rng).encode()
                changes = 0.2
            else:
                text = rng.choice(self._seeds)
                changes = 0.5
                if rng.random() < 0.5:
                    text = self._other_words(text, rng)
            if rng.random() < changes:
                text = mutated(text, rng, self._seeds, 3)
            texts.append(text)
        return frames.joined([bytes([rng.randrange(256)]), *texts])

    def _other_words(self, text: bytes, rng: random.Random) -> bytes:
        """A statement of the same kind of words in another order: most of these get past the first look."""
        words = re.findall(rb"'[^']*'|[A-Za-z_@.]+|\d+|\s+|.", text, re.DOTALL)
        for _ in range(rng.randrange(1, 4)):
            at = rng.randrange(len(words) + 1)
            match rng.randrange(4):
                case 0:
                    words[at : at + 1] = [rng.choice(self._words)]
                case 1:
                    words[at:at] = [b" ", rng.choice(self._words), b" "]
                case 2:
                    del words[at : at + rng.randrange(1, 3)]
                case _:
                    words[at:at] = words[rng.randrange(len(words) + 1) :][: rng.randrange(1, 6)]
        return b"".join(words)

    async def _feed(self, held: Held, data: bytes) -> bool:
        how, *texts = frames.split(data) or [b"\0"]
        user = POOR if how[:1] and how[0] & 1 else USER
        try:
            log_in(held, user)
        except Refused:
            return True
        for text in texts:
            if held.transport.closing:
                break
            held.session.data_received(frame_packet(b"\x03" + text, 0)[0])
            held.transport.take()
        return user == USER


def statements() -> list[bytes]:
    """Of the documentation, of recorded clients, and some that are hard."""
    found: set[bytes] = set()
    for page in sorted((ROOT / "docs").glob("*.md")):
        text = page.read_text(encoding="utf-8")
        for code in re.findall(r"`([^`\n]+)`", text) + re.findall(
            r"^    (.+)$", text, re.MULTILINE
        ):
            if re.match(r"[A-Z]{2,}\b", code):
                found.add(code.split("  #")[0].rstrip(";").encode())
    for path in sorted(CAPTURES.glob("*.jsonl")):
        for conversation in conversations_in(path):
            for packet in packets(conversation.from_client):
                if packet.payload[:1] == b"\x03":
                    found.add(packet.payload[1:])
    found |= {
        b"INSERT INTO t VALUES (1,'a')", b"BEGIN", b"COMMIT", b"ROLLBACK", b"SAVEPOINT a", b"XA START 'x'",
        b"CREATE TABLE d.t (a INT)", b"SET gtid_domain_id=3, server_id=4, gtid_seq_no=9", b"USE d",
        b"SET STATEMENT max_statement_time=1 FOR SELECT 1", b"SELECT /*!50000 1 */", b"SET @a='0-1-1,1-2-3'",
        b"CREATE USER a@'%' IDENTIFIED BY 'x'", b"DROP USER a", b"GRANT ALL PRIVILEGES ON *.* TO a@'%'",
        b"SELECT MASTER_GTID_WAIT('0-1-99', 0.01)", b"SHOW BINLOG EVENTS IN 'binlog-000000.ibb' FROM 4 LIMIT 2,3",
        b"BINLOG 'AAAA'", b"SET SESSION binlog_format=ROW", b"XA RECOVER", b"SHOW WARNINGS", b"KILL 99999999",
    }  # fmt: skip
    return sorted(found)
