"""Every byte of the recorded conversations goes through our machines."""

from __future__ import annotations

import pytest
from binlog_protocol.connection.client import (
    ClientConnection,
    ClientEvent,
    ClientState,
    ErrorReceived,
    EventReceived,
    GreetingReceived,
    LoggedIn,
    OkReceived,
    ResultReceived,
    StreamEnded,
)
from binlog_protocol.connection.commands import (
    BinlogDump,
    Command,
    Query,
    Quit,
    RegisterSlave,
    UnknownCommand,
    parse_command,
)
from binlog_protocol.connection.handshake import Capability, LoginRequest
from binlog_protocol.connection.server import (
    AuthSwitchAnswered,
    LoginReceived,
    NextStatement,
    ServerConnection,
    TlsRequested,
)
from binlog_protocol.connection.server_states import ServerState
from binlog_protocol.errors import GtidDiverged, GtidMissing, GtidNotInBinlog, GtidPurged
from binlog_protocol.events.header import EventHeader
from binlog_protocol.gtid import Gtid, SlavePosition
from binlog_protocol.wire.packets import frame_packet
from binlog_protocol.wire.results import Column, eof_payload, result_set_payloads

from tests.protocol.conversation import (
    CAPTURES,
    Conversation,
    capture_names,
    conversations,
    packets,
)
from tests.protocol.pair import SALT


def understands_extensions(conversation: Conversation) -> bool:
    """Whether the client took MariaDB's extensions, which we never offer: answers differ then."""
    login = LoginRequest.parse(next(packets(conversation.from_client)).payload)
    return bool(login.mariadb_capabilities) and not login.capabilities & Capability.MYSQL


def as_server(conversation: Conversation, chunk: int) -> list[Command]:
    """The client's bytes through our server machine; each command is answered by OK."""
    server = ServerConnection(connection_id=7, server_version="11.8", salt=SALT)
    server.greeting()
    commands: list[Command] = []
    data = conversation.from_client
    for start in range(0, len(data), chunk):
        server.receive_data(data[start : start + chunk])
        while (event := server.next_event()) is not None:
            if isinstance(event, LoginReceived):
                assert not event.needs_switch
                server.accept_login()
                continue
            assert not isinstance(event, UnknownCommand | AuthSwitchAnswered | TlsRequested)
            assert not isinstance(event, NextStatement)
            commands.append(event)
            if isinstance(event, BinlogDump):
                server.start_dump()
            elif server.state is ServerState.ANSWERING:
                server.send_ok()
    return commands


@pytest.mark.by_turns(3)
@pytest.mark.parametrize("chunk", [1, 7, 1 << 20])
@pytest.mark.parametrize("name", capture_names())
def test_client_bytes_through_the_server(name: str, chunk: int) -> None:
    for conversation in conversations(name):
        sent = [packet.payload for packet in packets(conversation.from_client)]
        dump_at = next((i for i, p in enumerate(sent) if i and p[:1] == b"\x12"), len(sent))
        commands = as_server(conversation, chunk)
        assert len(commands) == len(sent[1 : dump_at + 1])
        for command, payload in zip(commands, sent[1:], strict=False):
            assert not isinstance(command, UnknownCommand)
            if isinstance(command, BinlogDump) and not command.file:
                # python-mysql-replication writes its empty file name as three NULs.
                assert payload.rstrip(b"\0") == command.build().rstrip(b"\0")
            else:
                assert payload == command.build()


def as_client(conversation: Conversation) -> list[ClientEvent]:
    """The server's bytes through our client machine, which asks what the recorded one asked."""
    client = ClientConnection("repl", "pw")
    requests = [packet.payload for packet in packets(conversation.from_client)][1:]
    events: list[ClientEvent] = []
    for side, data in conversation.chunks:
        if side == "S>C":
            client.receive_data(data)
        while (event := client.next_event()) is not None:
            events.append(event)
            if isinstance(event, GreetingReceived):
                client.login()
        while client.state is ClientState.READY and requests:
            ask(client, requests.pop(0))
    return events


def ask(client: ClientConnection, payload: bytes) -> None:
    """Build the same request as the recorded client; it must come out the same."""
    match parse_command(payload):
        case Query(sql):
            request = client.query(sql)
        case RegisterSlave(server_id, host, user, password, port):
            request = client.register_slave(server_id, host, port, user, password)
        case BinlogDump(server_id, flags, file, position):
            request = client.binlog_dump(server_id, flags, file, position)
            # python-mysql-replication writes its empty file name as three NULs.
            payload = payload[:11] if not file else payload
        case Quit():
            request = client.quit()
        case other:
            raise AssertionError(other)
    assert request == frame_packet(payload, 0)[0]


@pytest.mark.parametrize("name", capture_names())
def test_server_bytes_through_the_client(name: str) -> None:
    for conversation in conversations(name):
        if understands_extensions(conversation):
            continue
        events = as_client(conversation)
        assert isinstance(events[0], GreetingReceived)
        if len(events) == 1:
            continue
        assert isinstance(events[1], LoggedIn | ErrorReceived)
        received = [event.event for event in events if isinstance(event, EventReceived)]
        for event in received:
            assert EventHeader.parse(event).length == len(event)
        total = len(list(packets(conversation.from_server)))
        assert sum(map(packet_count, events)) == total


def packet_count(event: ClientEvent) -> int:
    if isinstance(event, ResultReceived):
        return 3 + len(event.columns) + len(event.rows)
    return 1


def first_session(name: str) -> list[ClientEvent]:
    return as_client(conversations(name)[0])


@pytest.mark.parametrize("version", ["1011", "118"])
def test_bad_password(version: str) -> None:
    events = first_session(f"{version}-20-err-badpass")
    assert isinstance(events[-1], ErrorReceived)
    assert events[-1].error.errno == 1045
    assert events[-1].error.message == (
        "Access denied for user 'repl'@'127.0.0.1' (using password: YES)"
    )


def errors_of(name: str) -> set[tuple[int, str]]:
    return {
        (event.error.errno, event.error.message)
        for conversation in conversations(name)
        for event in as_client(conversation)
        if isinstance(event, ErrorReceived)
    }


@pytest.mark.parametrize("version", ["1011", "118"])
def test_texts_of_1236_are_those_of_the_masters(version: str) -> None:
    for name, make in (
        ("19-err-future", GtidNotInBinlog),
        ("19b-err-diverged", GtidDiverged),
        ("19e-err-hole-strict", GtidMissing),
    ):
        ((errno, text),) = errors_of(f"{version}-{name}")
        assert errno == 1236
        gtid = next(word for word in text.split("GTID ")[1:]).split(" ")[0].rstrip(",")
        assert text == make(Gtid.parse(gtid)).message
    for name in ("19d-err-purged", "19d2-err-purged-empty"):
        ((errno, text),) = errors_of(f"{version}-{name}")
        assert (errno, text) == (1236, GtidPurged().message)


def test_shutdown_ends_the_stream() -> None:
    for version in ("1011", "118"):
        sessions = [as_client(c) for c in conversations(f"{version}-24-master-restart")]
        assert any(isinstance(events[-1], StreamEnded) for events in sessions if events)


def test_result_set_is_rebuilt() -> None:
    """What we build for SHOW VARIABLES is what 10.11 sent."""
    conversation = conversations("1011-01-fresh")[0]
    payloads = [packet.payload for packet in packets(conversation.from_server)]
    start = next(i for i, payload in enumerate(payloads) if payload == b"\x02")
    recorded = payloads[start : start + 6]
    columns = [Column.parse(payload) for payload in recorded[1:3]]
    rebuilt = result_set_payloads(columns, [("server_id", "1")], status=0x0022)
    assert rebuilt == [*recorded[:3], eof_payload(status=0x0022), *recorded[4:]]


def test_positions_of_the_replicas_are_read() -> None:
    found = set()
    for name in capture_names():
        for conversation in conversations(name):
            for command in as_server(conversation, 1 << 20):
                if isinstance(command, Query) and "slave_connect_state" in command.sql:
                    text = command.sql.split("'")[1]
                    assert str(SlavePosition.parse(text)) == text
                    found.add(text)
    assert "" in found
    assert any("," in text for text in found)


def test_captures_are_there() -> None:
    assert CAPTURES.is_dir()
    assert len(capture_names()) > 30


def test_most_answers_are_ok() -> None:
    kinds = {type(event) for event in first_session("118-01-fresh")}
    assert kinds == {GreetingReceived, LoggedIn, OkReceived, ResultReceived, EventReceived}
