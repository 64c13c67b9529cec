"""Whatever arrives: a value, "need more", `ProtocolError` or `ServerError`; soon, and bounded.

Input is chance alone, and recorded bytes with a few of them changed, dropped or doubled. Hypothesis
prints what failed and replays it; `--hypothesis-seed` chooses the run.
"""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable
from typing import Final

import pytest
from binlog_protocol.connection.client import ClientConnection, ClientState, GreetingReceived
from binlog_protocol.connection.commands import parse_command
from binlog_protocol.connection.handshake import AuthSwitchRequest, Greeting, LoginRequest
from binlog_protocol.connection.server import LoginReceived, ServerConnection
from binlog_protocol.connection.server_states import ServerState
from binlog_protocol.errors import ProtocolError, ServerError
from binlog_protocol.events.checksum import strip_checksum
from binlog_protocol.events.compressed import uncompressed
from binlog_protocol.events.format_description import FormatDescription
from binlog_protocol.events.gtid import GtidEvent, gtid_of
from binlog_protocol.events.gtid_list import GtidList
from binlog_protocol.events.header import EventHeader, split_events
from binlog_protocol.events.heartbeat import HeartbeatEvent
from binlog_protocol.events.load_data import ExecuteLoadQuery, LoadPiece
from binlog_protocol.events.query import QueryEvent, query_ends_group
from binlog_protocol.events.rotate import RotateEvent
from binlog_protocol.events.rows import RowsEvent
from binlog_protocol.events.statement_context import IntvarEvent, RandEvent, UserVarEvent
from binlog_protocol.events.status_variables import StatusVariables
from binlog_protocol.events.table_map import TableMap
from binlog_protocol.events.xa_prepare import XaPrepareEvent
from binlog_protocol.events.xid import XidEvent
from binlog_protocol.groups.event_group import EventGroupAssembler
from binlog_protocol.gtid import BinlogState, SlavePosition, parse_gtid_list
from binlog_protocol.limits import LOGIN_PACKET_BYTES_MAX
from binlog_protocol.wire.event_frames import event_frames
from binlog_protocol.wire.packets import PacketReader
from binlog_protocol.wire.results import (
    Column,
    parse_column_count,
    parse_eof,
    parse_error,
    parse_ok,
    parse_row,
)
from hypothesis import given, settings
from hypothesis import strategies as st

from .conversation import Conversation, all_streams, capture_names, conversations, packets
from .pair import SALT

UNCOMPRESSED_MAX: Final = 1 << 20


def as_text(data: bytes) -> str:
    """As a statement has it."""
    return data.decode("utf-8", "surrogateescape")


PARSERS: Final[list[Callable[[bytes], object]]] = [
    parse_command,
    Greeting.parse,
    LoginRequest.parse,
    AuthSwitchRequest.parse,
    Column.parse,
    parse_column_count,
    parse_eof,
    parse_error,
    parse_ok,
    lambda data: parse_row(data, 3),
    EventHeader.parse,
    FormatDescription.parse,
    GtidEvent.parse,
    GtidList.parse,
    HeartbeatEvent.parse,
    QueryEvent.parse,
    RotateEvent.parse,
    XaPrepareEvent.parse,
    XidEvent.parse,
    gtid_of,
    query_ends_group,
    lambda data: strip_checksum(data, 1),
    lambda data: list(split_events(data)),
    lambda data: event_frames([data], annotate=False),
    TableMap.parse,
    lambda data: RowsEvent.parse(data, UNCOMPRESSED_MAX),
    lambda data: uncompressed(data, UNCOMPRESSED_MAX),
    StatusVariables.parse,
    IntvarEvent.parse,
    RandEvent.parse,
    UserVarEvent.parse,
    LoadPiece.parse,
    ExecuteLoadQuery.parse,
    lambda data: SlavePosition.parse(as_text(data)),
    lambda data: BinlogState.parse(as_text(data)),
    lambda data: parse_gtid_list(as_text(data)),
]


def corpus() -> list[bytes]:
    """Different payloads and events of the recordings."""
    found = set()
    for name in capture_names():
        for conversation in conversations(name):
            for data in (conversation.from_client, conversation.from_server):
                found |= {packet.payload for packet in packets(data)}
    for _, events in all_streams():
        found |= set(events) | {event[:-4] for event in events}
    return sorted(found)


CORPUS: Final = corpus()
MUTATIONS = st.lists(st.tuples(st.integers(0, 3000), st.integers(0, 255)), max_size=6)


def mutate(data: bytes, mutations: list[tuple[int, int]]) -> bytes:
    changed = bytearray(data)
    for where, value in mutations:
        if not changed:
            break
        at = where % len(changed)
        if value < 16:
            del changed[at : at + value]
        elif value < 32:
            changed[at:at] = changed[at : at + value]
        else:
            changed[at] = value
    return bytes(changed)


def parse_quietly(parse: Callable[[bytes], object], data: bytes) -> None:
    with contextlib.suppress(ProtocolError, ServerError):
        parse(data)


@given(st.binary(max_size=300))
@settings(max_examples=300)
def test_chance_in_every_parser(data: bytes) -> None:
    for parse in PARSERS:
        parse_quietly(parse, data)


@given(st.sampled_from(CORPUS), MUTATIONS)
@settings(max_examples=600)
def test_changed_recordings_in_every_parser(data: bytes, mutations: list[tuple[int, int]]) -> None:
    changed = mutate(data, mutations)
    for parse in PARSERS:
        parse_quietly(parse, changed)


@given(st.lists(st.binary(max_size=400), max_size=8))
@settings(max_examples=200)
def test_chance_in_the_packet_reader(chunks: list[bytes]) -> None:
    reader = PacketReader(1000)
    with contextlib.suppress(ProtocolError):
        for chunk in chunks:
            reader.feed(chunk)
            while reader.next_packet() is not None:
                pass
    assert reader.buffered <= 1000 + 4 + 400


SESSIONS: Final = [
    conversation
    for name in capture_names()
    for conversation in conversations(name)
    if len(conversation.from_client) > 100
]


def serve(data: bytes, chunk: int) -> ServerConnection:
    """A server that answers everything by OK, until the client has broken the protocol."""
    server = ServerConnection(connection_id=1, server_version="11.8", salt=SALT)
    server.greeting()
    with contextlib.suppress(ProtocolError):
        for start in range(0, len(data), chunk):
            server.receive_data(data[start : start + chunk])
            serve_events(server)
    return server


def serve_events(server: ServerConnection) -> None:
    while True:
        try:
            event = server.next_event()
        except ServerError as error:
            server.send_error(error)
            continue
        if event is None:
            return
        if isinstance(event, LoginReceived):
            server.accept_login()
        elif server.state is ServerState.ANSWERING:
            server.send_ok()


@given(st.sampled_from(SESSIONS), MUTATIONS, st.integers(1, 500))
@settings(max_examples=300)
def test_changed_sessions_in_the_server(
    session: Conversation, mutations: list[tuple[int, int]], chunk: int
) -> None:
    data = session.from_client
    serve(mutate(data, mutations), chunk)


@given(st.binary(max_size=2000), st.integers(1, 500))
@settings(max_examples=200)
def test_chance_in_the_server(data: bytes, chunk: int) -> None:
    server = serve(data, chunk)
    assert server.state in (ServerState.GREETED, ServerState.CLOSED, ServerState.READY)


def follow(data: bytes, chunk: int) -> None:
    """A client that asks again and again, then dumps."""
    client = ClientConnection("u", "p")
    asked = 0
    with contextlib.suppress(ProtocolError):
        for start in range(0, len(data), chunk):
            client.receive_data(data[start : start + chunk])
            while (event := client.next_event()) is not None:
                if isinstance(event, GreetingReceived):
                    client.login()
                if client.state is ClientState.READY:
                    asked += 1
                    if asked > 12:
                        client.binlog_dump(5)
                    else:
                        client.query("SELECT 1")


@given(st.sampled_from(SESSIONS), MUTATIONS, st.integers(1, 500))
@settings(max_examples=300)
def test_changed_sessions_in_the_client(
    session: Conversation, mutations: list[tuple[int, int]], chunk: int
) -> None:
    data = session.from_server
    follow(mutate(data, mutations), chunk)


STREAMS: Final = [events for _, events in all_streams()]


@given(st.sampled_from(STREAMS), st.randoms(use_true_random=False))
@settings(max_examples=200)
def test_changed_streams_in_the_assembler(events: list[bytes], chance: random.Random) -> None:
    assembler = EventGroupAssembler(1)
    events = list(events)
    for _ in range(chance.randrange(4)):
        at = chance.randrange(len(events))
        events[at] = chance.choice([events[at][:-1], events[at - 1], b"", bytes(30)])
    with contextlib.suppress(ProtocolError):
        for event in events:
            assembler.feed(event)


@given(
    st.lists(
        st.sampled_from(
            [
                "0-1-1",
                "-",
                ",",
                " ",
                "1",
                "4294967295",
                "4294967296",
                "18446744073709551616",
                "x",
                "\n",
            ]
        ),
        max_size=12,
    )
)
@settings(max_examples=300)
def test_texts_like_gtid_lists(parts: list[str]) -> None:
    for parse in PARSERS[-3:]:
        parse_quietly(parse, "".join(parts).encode())


@pytest.mark.parametrize("size", [1, 100, LOGIN_PACKET_BYTES_MAX - 32])
def test_long_logins_take_little_time(size: int) -> None:
    for filler in (b"\0", b"\x01", b"\xfb", b"\xff", b"a"):
        for head in ("05a23880", "0502000f", "ffffffff"):
            payload = bytes.fromhex(head) + bytes(28) + filler * size
            parse_quietly(LoginRequest.parse, payload)
