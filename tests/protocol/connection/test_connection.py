from __future__ import annotations

import itertools

import pytest
from binlog_protocol import errors
from binlog_protocol.connection.auth import (
    certificate_proof,
    native_password_hash,
    native_password_verify,
)
from binlog_protocol.connection.client import (
    CLIENT_TRANSITIONS,
    AuthSwitchReceived,
    ClientConnection,
    ClientState,
    ErrorReceived,
    EventReceived,
    GreetingReceived,
    LoggedIn,
    OkReceived,
    ResultReceived,
    StreamEnded,
)
from binlog_protocol.connection.client_auth import proves_certificate
from binlog_protocol.connection.commands import (
    BinlogDump,
    Ping,
    Query,
    Quit,
    RegisterSlave,
    SetOption,
    StatisticsCommand,
    UnknownCommand,
)
from binlog_protocol.connection.ed25519 import ed25519_public_key
from binlog_protocol.connection.handshake import Capability, Greeting, LoginRequest, TlsRequest
from binlog_protocol.connection.machine import IllegalTransition, Machine
from binlog_protocol.connection.server import AuthSwitchAnswered, LoginReceived, ServerConnection
from binlog_protocol.connection.server_states import SERVER_TRANSITIONS, ServerState, ServerStep
from binlog_protocol.errors import PacketTooLarge, ProtocolError, ServerError
from binlog_protocol.events.xid import XidEvent
from binlog_protocol.limits import LOGIN_PACKET_BYTES_MAX, PACKET_PAYLOAD_MAX
from binlog_protocol.wire.event_frames import event_frames
from binlog_protocol.wire.packets import frame_packet, frame_packets
from binlog_protocol.wire.results import Column, eof_payload, ok_payload, result_set_payloads
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from tests.protocol.pair import SALT, ConnectionPair

CHUNKS = [1, 3, 1 << 20]


@pytest.mark.parametrize("chunk", CHUNKS)
def test_a_whole_life(chunk: int) -> None:
    pair = ConnectionPair(chunk=chunk)
    pair.log_in()
    server, client = pair.server, pair.client

    assert pair.to_server(client.query("SELECT 1")) == Query("SELECT 1")
    columns = [Column.bigint("1"), Column.text("x")]
    (result,) = pair.to_client(server.send_result_set(columns, [(1, None), ("a", "")]))
    assert result == ResultReceived(columns, [["1", None], ["a", ""]])

    assert pair.to_server(client.ping()) == Ping()
    (ok,) = pair.to_client(server.send_ok(affected_rows=3, info=b"hi"))
    assert isinstance(ok, OkReceived)
    assert (ok.ok.affected_rows, ok.ok.info) == (3, b"hi")

    pair.to_server(client.query("nonsense"))
    (error,) = pair.to_client(server.send_error(errors.SqlSyntaxError("nonsense")))
    assert isinstance(error, ErrorReceived)
    assert (error.error.errno, error.error.sqlstate) == (1064, "42000")

    assert pair.to_server(client.register_slave(5, "h", 3306)) == RegisterSlave(5, "h", port=3306)
    pair.to_client(server.send_ok())

    assert pair.to_server(client.binlog_dump(5, 2)) == BinlogDump(5, 2)
    server.start_dump()
    assert server.dump_sequence == 1
    event = XidEvent(1, 1).build()
    assert pair.to_client(server.dump_event(event)) == [EventReceived(event)]
    frames = event_frames([event * 600], annotate=True)
    data = frames.at_sequence(server.dump_sequence)
    server.dump_sequence = (server.dump_sequence + frames.packets) % 256
    assert pair.to_client(data) == [EventReceived(event)] * 600
    assert pair.to_client(server.dump_end_eof()) == [StreamEnded()]
    assert server.is_closed
    assert client.is_closed


def test_quit() -> None:
    pair = ConnectionPair()
    pair.log_in()
    assert pair.to_server(pair.client.quit()) == Quit()
    assert pair.server.is_closed
    assert pair.client.is_closed
    pair.server.receive_data(b"x" * 100)
    assert pair.server.next_event() is None


def test_statistics_and_set_option() -> None:
    pair = ConnectionPair()
    pair.log_in()
    server = pair.server
    server.receive_data(frame_packet(StatisticsCommand().build(), 0)[0])
    assert server.next_event() == StatisticsCommand()
    assert server.send_string("Uptime: 5") == b"\x09\x00\x00\x01Uptime: 5"
    server.receive_data(frame_packet(SetOption(0).build(), 0)[0])
    assert server.next_event() == SetOption(0)
    assert server.send_eof() == b"\x05\x00\x00\x01\xfe\x00\x00\x02\x00"


def test_one_command_at_a_time() -> None:
    pair = ConnectionPair()
    pair.log_in()
    ping = frame_packet(Ping().build(), 0)[0]
    pair.server.receive_data(ping * 2)
    assert pair.server.next_event() == Ping()
    assert pair.server.next_event() is None
    pair.server.send_ok()
    assert pair.server.next_event() == Ping()


@pytest.mark.parametrize("password", ["", "pw", "пароль"])
def test_login_is_proven(password: str) -> None:
    pair = ConnectionPair(password=password)
    pair.to_client(pair.server.greeting())
    login = pair.to_server(pair.client.login())
    assert isinstance(login, LoginReceived)
    assert not login.needs_switch
    stored = native_password_hash(password) if password else b""
    assert native_password_verify(SALT, login.request.auth_response, stored)


def test_rejected_login() -> None:
    pair = ConnectionPair()
    pair.to_client(pair.server.greeting())
    pair.to_server(pair.client.login())
    denied = errors.AccessDenied("repl", "h", "YES")
    (error,) = pair.to_client(pair.server.reject_login(denied))
    assert isinstance(error, ErrorReceived)
    assert error.error.message == denied.message
    assert pair.server.is_closed
    assert pair.client.is_closed


def test_error_in_place_of_the_greeting() -> None:
    pair = ConnectionPair()
    (error,) = pair.to_client(pair.server.reject_login(errors.TooManyConnections()))
    assert isinstance(error, ErrorReceived)
    assert error.error.errno == 1040
    assert pair.server.is_closed


def test_foreign_plugin_is_asked_to_switch() -> None:
    server = ConnectionPair().server
    server.greeting()
    login = LoginRequest("u", b"foreign", plugin="caching_sha2_password")
    server.receive_data(frame_packet(login.build(), 1)[0])
    event = server.next_event()
    assert isinstance(event, LoginReceived)
    assert event.needs_switch
    request = server.request_auth_switch()
    assert request[3] == 2
    assert b"mysql_native_password\0" + SALT in request
    server.receive_data(frame_packet(b"answer", 3)[0])
    assert server.next_event() == AuthSwitchAnswered(b"answer")
    assert server.accept_login() == frame_packet(ok_payload(), 4)[0]
    assert server.state is ServerState.READY


def test_client_follows_a_switch() -> None:
    pair = ConnectionPair()
    pair.to_client(pair.server.greeting())
    pair.to_server(pair.client.login())
    (switch,) = pair.to_client(pair.server.request_auth_switch())
    assert isinstance(switch, AuthSwitchReceived)
    answered = pair.to_server(switch.answer)
    assert isinstance(answered, AuthSwitchAnswered)
    assert native_password_verify(SALT, answered.auth_response, native_password_hash("pw"))
    assert pair.to_client(pair.server.accept_login()) == [LoggedIn()]


REFUSED_SWITCHES = {
    "unknown": (b"\xfedialog\0" + bytes(20), "'dialog'"),
    "native, short": (b"\xfemysql_native_password\0" + b"s" * 19 + b"\0", "challenge of 19 bytes"),
    "ed25519, long": (b"\xfeclient_ed25519\0" + bytes(33), "challenge of 33 bytes"),
}


@pytest.mark.parametrize("name", REFUSED_SWITCHES)
def test_client_refuses_another_plugin(name: str) -> None:
    payload, text = REFUSED_SWITCHES[name]
    client = greeted_client()
    client.receive_data(frame_packet(payload, 2)[0])
    with pytest.raises(ProtocolError, match=text):
        client.next_event()
    assert client.is_closed


def test_client_signs_for_ed25519() -> None:
    """With a key that `cryptography` makes of nothing but the signature's public half."""
    challenge = bytes(range(32))
    client = greeted_client()
    client.receive_data(frame_packet(b"\xfeclient_ed25519\0" + challenge, 2)[0])
    switch = client.next_event()
    assert isinstance(switch, AuthSwitchReceived)
    assert switch.answer[:4] == b"\x40\0\0\x03"
    key = Ed25519PublicKey.from_public_bytes(ed25519_public_key("p"))
    key.verify(switch.answer[4:], challenge)
    client.receive_data(frame_packet(b"\0\0\0\x02\0\0\0", 4)[0])
    assert isinstance(client.next_event(), LoggedIn)


FINGERPRINT = bytes(range(32, 64))
STORED = {
    "mysql_native_password": native_password_hash("p"),
    "client_ed25519": ed25519_public_key("p"),
}


@pytest.mark.parametrize("plugin", STORED)
def test_client_checks_the_proof_of_a_certificate(plugin: str) -> None:
    """As a server makes it: for what it keeps of the password, the salt of the greeting, its certificate."""
    proof = certificate_proof(STORED[plugin], SALT, FINGERPRINT)
    assert proves_certificate(proof, plugin, "p", SALT, FINGERPRINT)
    for wrong in (
        proves_certificate(proof, plugin, "q", SALT, FINGERPRINT),
        proves_certificate(proof, plugin, "", SALT, FINGERPRINT),
        proves_certificate(proof, plugin, "p", SALT[::-1] + b"x", FINGERPRINT),
        proves_certificate(proof, plugin, "p", SALT, bytes(32)),
        proves_certificate(proof.lower(), plugin, "p", SALT, FINGERPRINT),
        proves_certificate(proof[:-1], plugin, "p", SALT, FINGERPRINT),
        proves_certificate(b"", plugin, "p", SALT, FINGERPRINT),
    ):
        assert not wrong


def test_numbers_inside_of_compressed_packets() -> None:
    """They begin anew at any place of the answers; not before, where nothing is compressed yet."""
    offers = Greeting("11.8", 1, SALT, capabilities=0x81FFFFFE)
    client = ClientConnection("u", "p", compress=True)
    client.receive_data(frame_packet(offers.build(), 0)[0])
    client.next_event()
    login = client.login()
    assert LoginRequest.parse(login[4:]).capabilities & Capability.COMPRESS
    client.receive_data(frame_packet(ok_payload(), 2)[0])
    assert isinstance(client.next_event(), LoggedIn)
    client.binlog_dump(7)
    for seq in (1, 7, 7, 0, 200):
        client.receive_data(frame_packet(b"\0an event", seq)[0])
        assert client.next_event() == EventReceived(b"an event")
    event = bytes(2 * PACKET_PAYLOAD_MAX + 5)
    for begin in range(0, len(event), PACKET_PAYLOAD_MAX):  # our dumps begin anew in front of each
        part = event[begin : begin + PACKET_PAYLOAD_MAX]
        client.receive_data(len(part).to_bytes(3, "little") + b"\1")
        client.receive_data(part)
    assert client.next_event() == EventReceived(event[1:])
    without = Greeting("11.8", 1, SALT, capabilities=0x81FFFFFE & ~Capability.COMPRESS)
    for compress, greeting in ((True, without), (False, offers)):
        client = ClientConnection("u", "p", compress=compress)
        client.receive_data(frame_packet(greeting.build(), 0)[0])
        client.next_event()
        client.login()
        assert not client.compressed
        client.receive_data(frame_packet(ok_payload(), 3)[0])
        with pytest.raises(ProtocolError, match="sequence number 3, not 2"):
            client.next_event()


def test_client_asks_for_tls_before_it_logs_in() -> None:
    client = ClientConnection("u", "p")
    client.receive_data(frame_packet(Greeting("11.8", 1, SALT).build(), 0)[0])
    client.next_event()
    asked = client.tls_request()
    assert TlsRequest.is_one(asked[4:])
    assert asked[3] == 1
    login = client.login()
    assert login[3] == 2
    assert LoginRequest.parse(login[4:], secured=True).capabilities & Capability.SSL
    proof = certificate_proof(STORED["mysql_native_password"], SALT, FINGERPRINT)
    client.receive_data(frame_packet(ok_payload(info=proof), 3)[0])
    assert isinstance(client.next_event(), LoggedIn)
    assert client.proves_certificate(FINGERPRINT)
    assert not client.proves_certificate(bytes(32))


def greeted_client() -> ClientConnection:
    client = ClientConnection("u", "p")
    client.receive_data(frame_packet(Greeting("11.8", 1, SALT).build(), 0)[0])
    assert isinstance(client.next_event(), GreetingReceived)
    client.login()
    return client


def ready_client() -> ClientConnection:
    client = greeted_client()
    client.receive_data(frame_packet(ok_payload(), 2)[0])
    assert client.next_event() == LoggedIn()
    return client


# Before the login


def test_big_packet_before_login() -> None:
    server = ConnectionPair().server
    server.greeting()
    with pytest.raises(PacketTooLarge) as caught:
        server.receive_data(b"\xff\xff\xff\x01")
    assert server.is_closed
    assert caught.value.answer is not None
    answer = server.last_words(caught.value.answer)
    assert answer[4:7] == b"\xff\x81\x04"


def test_flood_before_login() -> None:
    server = ConnectionPair().server
    server.greeting()
    with pytest.raises(ProtocolError):
        server.receive_data(frame_packet(b"x" * 100, 1)[0] * 1000)
    assert server.is_closed


def test_flood_while_the_login_is_decided() -> None:
    pair = ConnectionPair()
    pair.to_client(pair.server.greeting())
    pair.to_server(pair.client.login())
    pair.server.receive_data(bytes(LOGIN_PACKET_BYTES_MAX))
    with pytest.raises(ProtocolError):
        pair.server.receive_data(bytes(100))


@pytest.mark.parametrize(
    "data",
    [
        b"GET / HTTP/1.1\r\nHost: example.org\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(600),
        frame_packet(b"", 1)[0],
        frame_packet(b"\x03SELECT 1", 1)[0],
        frame_packet(LoginRequest("u").build(), 0)[0],
        frame_packet(LoginRequest("u").build(), 2)[0],
    ],
)
def test_garbage_before_login(data: bytes) -> None:
    server = ConnectionPair().server
    server.greeting()
    with pytest.raises(ProtocolError):
        feed_until_error(server, data)
    assert server.is_closed
    assert server.next_event() is None


def feed_until_error(server: ServerConnection, data: bytes) -> None:
    server.receive_data(data)
    while server.next_event() is not None:
        pass


# After the login


def test_command_with_a_wrong_sequence_number() -> None:
    pair = ConnectionPair()
    pair.log_in()
    pair.server.receive_data(frame_packet(Ping().build(), 1)[0])
    with pytest.raises(ProtocolError) as caught:
        pair.server.next_event()
    assert caught.value.answer is not None
    assert caught.value.answer.kind is errors.PacketsOutOfOrder


def test_command_larger_than_max_allowed_packet() -> None:
    pair = ConnectionPair()
    pair.log_in()
    pair.server.receive_data(b"\xff\xff\xff\x00" + b"\x03" + b"x" * 0xFFFFFE)
    pair.server.receive_data(b"\x02\x00\x00\x01")
    with pytest.raises(PacketTooLarge):
        pair.server.next_event()
    assert pair.server.is_closed


def test_unknown_command_is_answered() -> None:
    pair = ConnectionPair()
    pair.log_in()
    pair.server.receive_data(b"\x01\x00\x00\x00\x63")
    assert pair.server.next_event() == UnknownCommand(0x63)
    answer = pair.server.send_error(errors.UnknownCommandError())
    assert answer == b"\x18\x00\x00\x01\xff\x17\x04#08S01Unknown command"
    assert pair.server.state is ServerState.READY


def test_malformed_command_is_answered() -> None:
    pair = ConnectionPair()
    pair.log_in()
    pair.server.receive_data(b"\x01\x00\x00\x00\x12")
    with pytest.raises(ServerError) as caught:
        pair.server.next_event()
    pair.server.send_error(caught.value)
    assert pair.server.state is ServerState.READY


def test_fatal_error_closes() -> None:
    pair = ConnectionPair()
    pair.log_in()
    pair.to_server(pair.client.query("x"))
    pair.server.send_error(errors.ServerShutdown())
    assert pair.server.is_closed


def test_what_a_client_writes_into_its_dump_is_dropped() -> None:
    pair = ConnectionPair()
    pair.log_in()
    pair.to_server(pair.client.binlog_dump(5))
    pair.server.start_dump()
    for _ in range(100):
        pair.server.receive_data(frame_packet(Ping().build(), 0)[0] * 100_000)
        assert pair.server.next_event() is None
    assert pair.server.dump_event(b"x")[3] == 1


def test_error_in_the_dump() -> None:
    pair = ConnectionPair()
    pair.log_in()
    pair.to_server(pair.client.binlog_dump(5))
    pair.server.start_dump()
    data = pair.server.dump_error(errors.DuplicateServerId())
    (error,) = pair.to_client(data)
    assert isinstance(error, ErrorReceived)
    assert error.error.errno == 4052
    assert pair.client.is_closed


# The client against a bad server

STREAM = [
    (frame_packet(b"\x00event", 2)[0], "sequence number 2, not 1"),
    (frame_packet(b"\x01event", 1)[0], "in the stream"),
    (frame_packet(b"", 1)[0], "empty packet"),
    (frame_packet(b"\xfe" + bytes(20), 1)[0], "in the stream"),
    (frame_packet(b"\xff\x01", 1)[0], "cut short"),
]


@pytest.mark.parametrize(("data", "message"), STREAM)
def test_bad_stream(data: bytes, message: str) -> None:
    client = ready_client()
    client.binlog_dump(5)
    client.receive_data(data)
    with pytest.raises(ProtocolError, match=message):
        client.next_event()
    assert client.is_closed
    client.receive_data(data)
    assert client.next_event() is None


ANSWERS = [
    [b""],
    [b"\xfb/etc/passwd"],
    [b"\x00\x00"],
    [b"\x01\x01"],
    [b"\x01", b"not a column"],
    [b"\x01", Column.text("a").build(), b"\x00\x00\x00\x02\x00\x00\x00"],
    [b"\x01", Column.text("a").build(), eof_payload(), b"\x05ab"],
    [b"\x01", Column.text("a").build(), eof_payload(), b""],
]


@pytest.mark.parametrize("payloads", ANSWERS)
def test_bad_answer(payloads: list[bytes]) -> None:
    client = ready_client()
    client.query("SELECT 1")
    client.receive_data(frame_packets(payloads, 1)[0])
    with pytest.raises(ProtocolError):
        client.next_event()
    assert client.is_closed


def test_result_without_end_is_stopped() -> None:
    client = ready_client()
    client.query("SELECT 1")
    payloads = result_set_payloads([Column.text("a")], [("x" * 100_000,)])
    data, seq = frame_packets(payloads[:-1], 1)
    client.receive_data(data)
    assert client.next_event() is None
    with pytest.raises(ProtocolError, match="result set of more than"):
        endless_rows(client, payloads[3], seq)


def endless_rows(client: ClientConnection, row: bytes, seq: int) -> None:
    for _ in range(1000):
        data, seq = frame_packet(row, seq)
        client.receive_data(data)
        client.next_event()


def test_server_that_speaks_out_of_turn() -> None:
    client = ready_client()
    client.receive_data(frame_packet(ok_payload(), 3)[0])
    with pytest.raises(ProtocolError, match="out of turn"):
        client.next_event()


def test_error_instead_of_rows() -> None:
    client = ready_client()
    client.query("SELECT 1")
    head = [b"\x01", Column.text("a").build(), eof_payload()]
    client.receive_data(frame_packets([*head, b"\xff\x29\x05#70100stop"], 1)[0])
    event = client.next_event()
    assert isinstance(event, ErrorReceived)
    assert event.error.errno == 1321
    assert client.state is ClientState.READY


# The machines


def test_terminal_states_are_empty_and_all_are_reachable() -> None:
    for table, first in (
        (SERVER_TRANSITIONS, ServerState.OPENED),
        (CLIENT_TRANSITIONS, ClientState.CONNECTED),
    ):
        terminal = [state for state, steps in table.items() if not steps]
        assert [state.name for state in terminal] == ["CLOSED"]
        reached = {first}
        for _ in table:
            reached |= {after for state in reached for after in table[state].values()}  # type: ignore[index]
        assert reached == set(table)


def test_illegal_step_changes_nothing() -> None:
    for state, step in itertools.product(ServerState, ServerStep):
        machine = Machine(SERVER_TRANSITIONS, state)
        if step in SERVER_TRANSITIONS[state]:
            machine.advance(step)
            assert machine.state is SERVER_TRANSITIONS[state][step]
        else:
            with pytest.raises(IllegalTransition):
                machine.advance(step)
            assert machine.state is state


def test_calls_out_of_turn() -> None:
    pair = ConnectionPair()
    for call in (
        pair.server.accept_login,
        pair.server.send_ok,
        pair.server.start_dump,
        pair.server.dump_end_eof,
        pair.client.login,
        pair.client.ping,
        pair.client.quit,
    ):
        with pytest.raises(IllegalTransition):
            call()
    assert pair.server.state is ServerState.OPENED
    assert pair.client.state is ClientState.CONNECTED
    pair.log_in()
    with pytest.raises(IllegalTransition):
        pair.server.send_result_set([Column.text("a")], [("x",)])
    with pytest.raises(IllegalTransition):
        pair.server.dump_event(b"x")
