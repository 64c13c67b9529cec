"""The handshake lab: what real replicas said to real masters, said to our server.

Each recorded conversation is replayed command by command, up to and with the dump. Our answers must be of the same kind
as those of the recorded master: OK for OK, the same columns and rows, the same error. Where we mean to differ, the
difference stands in `INTENDED` with its reason.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from binlog_server.app import Server
from protocol.connection.commands import Query
from protocol.event_group import EventGroup, EventGroupAssembler
from protocol.gtid import Gtid
from protocol.wire.packets import frame_packet
from protocol.wire.results import parse_column_count, parse_error, parse_row
from protocol.wire.values import Cursor
from storage.memory_engine import MemoryEngine, MemoryHistory
from tests.protocol import conversation as recorded
from tests.protocol.test_recordings import understands_extensions

from .lab import Lab, transaction, until
from .transport import Held

HERE = Path(__file__).parent / "captures"


@dataclass(frozen=True)
class Answer:
    """A decoded answer. `columns` is empty for OK and errors."""

    kind: str
    columns: tuple[str, ...] = ()
    rows: tuple[tuple[str | None, ...], ...] = ()
    errno: int = 0
    text: str = ""


def decoded(payloads: list[bytes], *, extended: bool = False) -> Answer:
    """`extended`: columns in the form with MariaDB's extra metadata, which we never send."""
    first = payloads[0]
    if first[:1] == b"\0":
        return Answer("ok")
    if first[:1] == b"\xff":
        error = parse_error(first)
        return Answer("error", errno=error.errno, text=error.message)
    if first[:1] == b"\xfe":
        return Answer("eof")
    # Behind the count there is then a flag: the columns follow (or did so before).
    count = parse_column_count(first[:1] if extended else first)
    names = tuple(map(column_name, payloads[1 : count + 1]))
    rows = tuple(tuple(parse_row(p, count)) for p in payloads[count + 2 : -1])
    return Answer("rows", names, rows)


def column_name(payload: bytes) -> str:
    cursor = Cursor(payload, "column definition")
    return [cursor.lenenc_bytes().decode() for _ in range(5)][4]


@dataclass(frozen=True)
class Exchange:
    """One command and what the real master answered."""

    request: bytes
    answer: list[bytes]


def exchanges(conversation: recorded.Conversation) -> list[Exchange]:
    """The login first; the dump, if any, last."""
    found: list[tuple[bytes, bytearray]] = []
    for side, data in conversation.chunks:
        if side == "C>S":
            found += [(packet.payload, bytearray()) for packet in recorded.packets(data)]
        elif found:
            found[-1][1].extend(data)
    made = []
    for number, (request, answer) in enumerate(found):
        made.append(
            Exchange(request, [packet.payload for packet in recorded.packets(bytes(answer))])
        )
        if number and request[:1] == b"\x12":
            break
    return made


def load(path: Path) -> list[recorded.Conversation]:
    here, recorded.CAPTURES = recorded.CAPTURES, path.parent
    try:
        return recorded.conversations(path.stem)
    finally:
        recorded.CAPTURES = here


FILES = sorted([*HERE.glob("*.jsonl"), *recorded.CAPTURES.glob("*.jsonl")], key=lambda p: p.name)
CONVERSATIONS = {c.name: c for path in FILES for c in load(path)}


def number(text: str | None) -> bool:
    return text is not None and text.isdecimal()


Check = Callable[[Answer, Answer], bool]


def own_values(ours: Answer, theirs: Answer) -> bool:
    """As many rows and columns; the values are each server's own."""
    return ours.columns == theirs.columns and len(ours.rows) == len(theirs.rows)


def own_rows(ours: Answer, theirs: Answer) -> bool:
    return ours.columns == theirs.columns


def one_more_column(ours: Answer, theirs: Answer) -> bool:
    return ours.columns == (*theirs.columns, "Gtid_Binlog_Pos")


def error(errno: int) -> Check:
    return lambda ours, _: (ours.kind, ours.errno) == ("error", errno)


def rows(*wanted: tuple[str | None, ...]) -> Check:
    return lambda ours, theirs: ours.columns == theirs.columns and ours.rows == wanted


# Beginning of the statement in lower case: how our answer differs, and why it may.
INTENDED: dict[str, tuple[Check, str]] = {
    "select unix_timestamp()": (own_values, "the clock"),
    "show variables like 'server_id'": (own_values, "each server has its own"),
    "select @master_binlog_checksum": (rows(("NONE",)), "engine binlogs have no checksums"),
    "show global variables like 'binlog_checksum'": (
        rows(("binlog_checksum", "NONE")),
        "engine binlogs have no checksums",
    ),
    "show variables like 'rpl_semi_sync_master_enabled'": (
        rows(),
        "no semi-sync: an empty set makes the replica go on without",
    ),
    "show variables like 'binlog_row_metadata'": (
        own_values,
        "a replica need not ask what is not there",
    ),
    "select binlog_gtid_pos": (error(4247), "an offset is no position in an engine binlog"),
    "kill": (error(1094), "the connection it means belongs to the recording"),
    "select version()": (own_values, "our version"),
    "show master status": (one_more_column, "other files; the GTID is the only address"),
    "show binlog status": (one_more_column, "other files; the GTID is the only address"),
    "show binary logs": (own_rows, "other files"),
    "show master logs": (own_rows, "other files"),
    "show slave hosts": (own_rows, "other replicas"),
    "show processlist": (own_rows, "other clients"),
    "show status like 'uptime'": (own_values, "the clock"),
    "show global status like 'binlog%'": (own_rows, "we count no cache"),
    "show session status like 'ssl_version'": (own_rows, "recorded without TLS"),
    "select @@gtid_binlog_pos": (own_values, "other history"),
    "show binlog events in": (error(1220), "files have other names"),
    "show binlog events": (own_rows, "other history"),
    "show slave status": (error(1064), "later, with the administration of relays"),
    "show grants": (lambda ours, _: ours.kind == "rows", "other accounts"),
    "show warnings": (own_rows, "what failed here may not have failed there"),
    "show databases": (own_rows, "there are no databases"),
    "select master_gtid_wait": (own_values, "other history"),
}


def intended(request: bytes) -> Check | None:
    sql = request[1:].decode(errors="replace").lower()
    if request[:1] != b"\3":
        return None
    return next((check for start, (check, _) in INTENDED.items() if sql.startswith(start)), None)


def history(name: str) -> list[Gtid]:
    """The master's, as far as the replica's position asks for it."""
    gtids = [Gtid(0, 1, 1), Gtid(5, 1, 1), Gtid(5, 1, 2), Gtid(7, 77, 1)]
    gtids += [Gtid(0, 1, n) for n in range(2, 31)]
    if any(part in name for part in ("-19e-", "-19f-", "-21-", "-24-")):
        gtids += [Gtid(0, 1, n) for n in range(510, 515)]
    return gtids


def engine(name: str) -> MemoryEngine:
    past = MemoryHistory([(transaction(gtid), gtid) for gtid in history(name)])
    if "-19d" in name:
        past.purge(20)
    return MemoryEngine(past)


BAD_LOGIN = {name for name in CONVERSATIONS if "badpass" in name}


@pytest.mark.parametrize("name", [name for name in CONVERSATIONS if name not in BAD_LOGIN])
async def test_answers(name: str) -> None:
    conversation = CONVERSATIONS[name]
    login, *commands = exchanges(conversation)
    extended = understands_extensions(conversation)
    held = Held(Lab(engine(name), server_id=1).server)
    held.log_in()
    assert login.answer[0][:1] == b"\0"
    for command in commands:
        if command.request[:1] == b"\x12":
            await check_dump(name, held, command)
            break
        if not command.answer:
            assert command.request == b"\1", "only a COM_QUIT has no answer"
            continue
        payloads = held.ask(command.request)
        while not payloads:  # it takes a thread
            await asyncio.sleep(0.001)
            payloads = [packet.payload for packet in held.packets()]
        ours, theirs = decoded(payloads), decoded(command.answer, extended=extended)
        if "-21-" in name and theirs.kind == "error":
            continue  # every account of ours may replicate
        check = intended(command.request)
        assert check(ours, theirs) if check else ours == theirs, (command.request, ours, theirs)
    held.end()


async def check_dump(name: str, held: Held, command: Exchange) -> None:
    server = held.session._server
    assert isinstance(server, Server)
    await server.start()
    held.session.data_received(frame_packet(command.request, 0)[0])
    got: list[bytes] = []

    def more() -> bool:
        got.extend(packet.payload for packet in held.packets())
        return len(got) >= 3 or held.transport.closing

    await until(more)
    first = got[0]
    theirs = command.answer[0] if command.answer else b"\0"
    asked_by_position = "filepos" in name or ("-cl-" in name and "gtid" not in name)
    if asked_by_position:
        assert decoded([first]).errno == 4246, "files have no offsets for replicas here"
    elif any(payload[:1] == b"\xff" for payload in command.answer):
        error_ = next(decoded([p]) for p in command.answer if p[:1] == b"\xff")
        if error_.errno != 1236:  # the replica was killed, or came twice
            assert first[:1] == b"\0"
        else:
            mine = next(decoded([p]) for p in got if p[:1] == b"\xff")
            assert mine == error_
    else:
        assert theirs[:1] == b"\0"
        assert [p[5] for p in got[:2]] == [4, 15], "ROTATE and format description"
    held.session.shut_down()
    held.end()
    await server.stop()


@pytest.mark.parametrize("name", sorted(BAD_LOGIN))
async def test_bad_password(name: str) -> None:
    (login, *_) = exchanges(CONVERSATIONS[name])
    held = Held(Lab().server)
    held.packets()
    held.session.data_received(frame_packet(login.request, 1)[0])
    assert [packet.payload for packet in held.packets()] == login.answer
    assert held.transport.closing


def until_of(name: str) -> tuple[str, dict[str, Any]]:
    """Position and variables that the replica set."""
    position, variables = "", {}
    for exchange in exchanges(CONVERSATIONS[name]):
        sql = exchange.request[1:].decode(errors="replace")
        key, _, value = sql.removeprefix("SET @").partition("=")
        if key == "slave_connect_state":
            position = value.strip("'")
        elif key.startswith("slave_"):
            variables[key] = value.strip("'")
    return position, variables


@pytest.mark.parametrize("name", [n for n in CONVERSATIONS if "-12" in n and "until" in n])
async def test_until_ends_where_the_master_ended(name: str) -> None:
    sent = [event for event in recorded.stream_events(CONVERSATIONS[name]) if event[4] == 162]
    expected = [int.from_bytes(event[19:27], "little") for event in sent]
    async with Lab() as lab:
        lab.publish(history(name))
        position, variables = until_of(name)
        assert "slave_until_gtid" in variables
        replica = await lab.replica(position, **variables)
        await replica.opening()
        got = []
        while (payload := await replica.client.answer())[:1] == b"\0":
            if payload[5] == 162:
                got.append(int.from_bytes(payload[20:28], "little"))
        assert len(payload) == 5, "EOF"
        assert got == expected


def groups_of(conversation: recorded.Conversation) -> list[EventGroup]:
    events = recorded.stream_events(conversation)
    if not events or "semisync" in conversation.name:
        return []
    described = next(i for i, event in enumerate(events) if event[4] == 15)
    assembler = EventGroupAssembler()
    found = map(assembler.feed, events[described:])
    return [group for group in found if isinstance(group, EventGroup)]


STREAMS = {name: groups for name, c in CONVERSATIONS.items() if (groups := groups_of(c))}


@pytest.mark.parametrize("name", STREAMS)
async def test_recorded_groups_come_out_as_they_went_in(name: str) -> None:
    async with Lab() as lab:
        for group in STREAMS[name]:
            lab.engine.append(group.payload, group.gtid)
        lab.engine.sync()
        replica = await lab.replica(flags=3)
        await replica.opening()
        received = bytearray()
        while (payload := await replica.client.answer())[:1] == b"\0":
            received += payload[1:]
    assert received == b"".join(group.payload for group in STREAMS[name])


# By the source of 12.3 (spec 2.3): what 10.11 and 11.8 send, and a question for the engine.
REPLICA_OF_12_3 = [
    ("SET NAMES utf8mb4", Answer("ok")),
    ("SELECT UNIX_TIMESTAMP()", None),
    (
        "SHOW VARIABLES LIKE 'SERVER_ID'",
        Answer("rows", ("Variable_name", "Value"), (("server_id", "1"),)),
    ),
    ("SET @master_heartbeat_period= 30000001024", Answer("ok")),
    ("SET @master_binlog_checksum= @@global.binlog_checksum", Answer("ok")),
    ("SELECT @master_binlog_checksum", Answer("rows", ("@master_binlog_checksum",), (("NONE",),))),
    ("SET skip_replication=1", Answer("ok")),
    (
        "SELECT @@GLOBAL.binlog_storage_engine",
        Answer("rows", ("@@GLOBAL.binlog_storage_engine",), (("innodb",),)),
    ),
    ("SET @mariadb_slave_capability=4", Answer("ok")),
    ("SELECT @@GLOBAL.gtid_domain_id", Answer("rows", ("@@GLOBAL.gtid_domain_id",), (("0",),))),
    ("SET @slave_connect_state=''", Answer("ok")),
    ("SET @slave_gtid_strict_mode=1", Answer("ok")),
    ("SET @slave_gtid_ignore_duplicates=0", Answer("ok")),
    ("SET @slave_until_gtid='0-1-5'", Answer("ok")),
    ("SET @slave_gtid_until_before_gtids=0", Answer("ok")),
]


async def test_replica_of_12_3() -> None:
    held = Held(Lab().server)
    held.log_in()
    for sql, expected in REPLICA_OF_12_3:
        answer = decoded(held.ask(Query(sql).build()))
        if expected is None:
            ((seconds,),) = answer.rows
            assert number(seconds)
        else:
            assert answer == expected, sql
    held.end()


def test_recordings_are_there() -> None:
    assert len(CONVERSATIONS) > 70
    assert len(STREAMS) > 15
