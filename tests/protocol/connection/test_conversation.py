"""Conversations driven by memory: what is sent, what is learnt, what they end with."""

from __future__ import annotations

from hashlib import sha256

import pytest
from binlog_protocol.connection import conversation
from binlog_protocol.connection.auth import certificate_proof, native_password_hash
from binlog_protocol.connection.client import ClientConnection, ClientState
from binlog_protocol.connection.conversation import (
    NO_TLS,
    Exchange,
    Protection,
    ResultT,
    TlsPolicy,
    TlsProblem,
    TlsRefused,
    Verify,
    log_in,
    next_row,
    query,
    start_dump,
    start_file_dump,
    start_rows,
)
from binlog_protocol.connection.handshake import Capability, Greeting, LoginRequest, TlsRequest
from binlog_protocol.connection.replica import ReplicaHandshake
from binlog_protocol.errors import ProtocolError, RemoteError
from binlog_protocol.events.checksum import ChecksumAlgorithm
from binlog_protocol.gtid import SlavePosition
from binlog_protocol.limits import RESULT_BYTES_MAX
from binlog_protocol.wire.packets import frame_packet, frame_packets
from binlog_protocol.wire.results import Column, ok_payload, result_set_payloads

SALT = bytes(range(65, 85))
CERTIFICATE = b"what a server has shown"
PROOF = certificate_proof(native_password_hash("p"), SALT, sha256(CERTIFICATE).digest())
OFFERS = Greeting("11.8", 1, SALT, capabilities=0x81FFFFFE | Capability.SSL)
WITHOUT = Greeting("10.11", 1, SALT, capabilities=0x81FFFFFE & ~Capability.SSL)
DENIED = b"\xff\x15\x04#28000Access denied"


class EndOfScript(ConnectionError):
    """The server says nothing more: a driver's own error."""


def drive(
    machine: ClientConnection, exchange: Exchange[ResultT], script: list[bytes]
) -> tuple[ResultT, list[bytes]]:
    """The result, and what was sent. The server sends the items of `script`, one whenever it is waited for."""
    sent: list[bytes] = []
    chunks = iter(script)

    def receive() -> None:
        chunk = next(chunks, None)
        if chunk is None:
            raise EndOfScript
        machine.receive_data(chunk)

    def secure(request: bytes) -> bytes:
        sent.append(request)
        return CERTIFICATE

    return conversation.drive(exchange, send=sent.append, receive=receive, secure=secure), sent


def framed(*payloads: bytes, seq: int = 1) -> bytes:
    return frame_packets(list(payloads), seq)[0]


def rows(*values: str | None) -> bytes:
    """A result set with these values in one row."""
    columns = [Column(str(number)) for number in range(len(values))]
    return framed(*result_set_payloads(columns, [list(values)]))


OK = framed(ok_payload())


def logged_in() -> ClientConnection:
    machine = ClientConnection("u", "p")
    script = [framed(WITHOUT.build(), seq=0), framed(ok_payload(), seq=2)]
    assert drive(machine, log_in(machine), script)[0] is Protection.NONE
    return machine


# offered, policy, info of the OK -> protection or problem
LOGINS: dict[str, tuple[bool, TlsPolicy, bytes, Protection | TlsProblem]] = {
    "disabled": (True, NO_TLS, b"", Protection.NONE),
    "disabled, required": (False, TlsPolicy(False, True), b"", Protection.NONE),
    "not offered": (False, TlsPolicy(verify=Verify.BY_PROOF), b"", Protection.NONE),
    "required": (False, TlsPolicy(required=True), b"", TlsProblem.NOT_OFFERED),
    "no proof, not wanted": (True, TlsPolicy(required=True), b"", Protection.UNVERIFIED),
    "no proof": (True, TlsPolicy(verify=Verify.BY_PROOF), b"", TlsProblem.NO_PROOF),
    "proof": (True, TlsPolicy(verify=Verify.BY_PROOF), PROOF, Protection.PASSWORD),
    "proof, not wanted": (True, TlsPolicy(), PROOF, Protection.PASSWORD),
    "wrong proof": (True, TlsPolicy(), PROOF[:-1] + b"-", TlsProblem.WRONG_PROOF),
    "wrong proof, wanted": (
        True,
        TlsPolicy(verify=Verify.BY_PROOF),
        PROOF.lower(),
        TlsProblem.WRONG_PROOF,
    ),
    "other info": (True, TlsPolicy(), b"\x02 hello", Protection.UNVERIFIED),
    "not looked at": (True, TlsPolicy(verify=Verify.NOT), PROOF[:-1], Protection.UNVERIFIED),
    "authority": (
        True,
        TlsPolicy(verify=Verify.BY_AUTHORITY),
        PROOF[:-1],
        Protection.AUTHORITY,
    ),
}


@pytest.mark.parametrize("name", LOGINS)
def test_tls_as_wanted_or_not_at_all(name: str) -> None:
    offered, policy, info, expected = LOGINS[name]
    machine = ClientConnection("u", "p")
    secured = policy.enabled and offered
    greeting = framed((OFFERS if offered else WITHOUT).build(), seq=0)
    script = [greeting, framed(ok_payload(info=info), seq=3 if secured else 2)]
    exchange = log_in(machine, policy, {"program_name": "x"})
    if isinstance(expected, TlsProblem):
        with pytest.raises(TlsRefused) as caught:
            drive(machine, exchange, script)
        assert caught.value.problem is expected
        assert str(caught.value) == expected.value
        return
    protection, sent = drive(machine, exchange, script)
    assert protection is expected
    assert [TlsRequest.is_one(data[4:]) for data in sent] == [True, False][-len(sent) :]
    assert len(sent) == 1 + secured
    login = LoginRequest.parse(sent[-1][4:], secured=secured)
    assert (login.user, login.attributes["program_name"]) == ("u", "x")
    assert bool(login.capabilities & Capability.SSL) is secured
    assert machine.state is ClientState.READY


def test_what_comes_in_clear_behind_the_greeting_is_refused_before_anything_is_sent() -> None:
    machine = ClientConnection("u", "p")
    behind = framed(ok_payload(), seq=3)
    with pytest.raises(TlsRefused, match="in clear behind its greeting"):
        drive(machine, log_in(machine, TlsPolicy()), [framed(OFFERS.build(), seq=0) + behind])
    assert machine.state is ClientState.GREETED


def test_a_login_by_another_plugin_byte_by_byte() -> None:
    machine = ClientConnection("u", "p")
    switch = b"\xfemysql_native_password\0" + SALT + b"\0"
    script = framed(WITHOUT.build(), seq=0) + framed(switch, seq=2) + framed(ok_payload(), seq=4)
    protection, sent = drive(machine, log_in(machine), [bytes((byte,)) for byte in script])
    assert protection is Protection.NONE
    assert [data[3] for data in sent] == [1, 3]
    assert len(sent[1]) == 4 + 20


@pytest.mark.parametrize("behind_greeting", [False, True])
def test_a_login_that_is_refused(behind_greeting: bool) -> None:
    machine = ClientConnection("u", "p")
    script = [framed(WITHOUT.build(), seq=0)] if behind_greeting else []
    script.append(framed(DENIED, seq=2 * behind_greeting))
    with pytest.raises(RemoteError, match="Access denied"):
        drive(machine, log_in(machine), script)
    assert machine.is_closed


def test_queries() -> None:
    machine = logged_in()
    found, sent = drive(machine, query(machine, "SELECT 1"), [rows("1", None)])
    assert found == [["1", None]]
    assert sent == [frame_packet(b"\x03SELECT 1", 0)[0]]
    assert drive(machine, query(machine, "SET @a=1"), [OK])[0] == []
    with pytest.raises(RemoteError, match="Access denied"):
        drive(machine, query(machine, "KILL 1"), [framed(DENIED)])
    assert machine.state is ClientState.READY, "the next request may follow"
    with pytest.raises(EndOfScript):
        drive(machine, query(machine, "SELECT 1"), [])


def test_rows_one_by_one() -> None:
    """A row may be larger than all that is collected of another answer, and what is refused ends it."""
    machine = logged_in()
    long = "x" * (RESULT_BYTES_MAX + 1)
    assert drive(machine, start_rows(machine, "SELECT b"), [])[0] is None
    assert drive(machine, next_row(machine), [rows(long)])[0] == [long.encode()]
    assert drive(machine, next_row(machine), [])[0] is None
    assert drive(machine, start_rows(machine, "SELECT c"), [])[0] is None
    with pytest.raises(RemoteError, match="Access denied"):
        drive(machine, next_row(machine), [framed(DENIED)])
    assert drive(machine, query(machine, "SELECT 1"), [rows("1")])[0] == [["1"]]
    with pytest.raises(ProtocolError):
        drive(machine, query(machine, "SELECT b"), [rows(long)])


def test_a_dump_begins_when_all_was_answered() -> None:
    machine = logged_in()
    handshake = ReplicaHandshake(
        machine, server_id=7, position=SlavePosition(), heartbeat_period_ns=0
    )
    script = [OK, rows("server_id", "1"), OK, rows("CRC32"), rows(None), OK, rows("0")]
    _, sent = drive(machine, start_dump(machine, handshake), [*script, OK, OK, OK, OK])
    assert machine.state is ClientState.STREAMING
    assert handshake.checksum_algorithm is ChecksumAlgorithm.CRC32
    assert [data[4] for data in sent] == [*[0x03] * 10, 0x15, 0x12]


def test_a_dump_by_file() -> None:
    machine = logged_in()
    exchange = start_file_dump(machine, 7, "bin.000003", 400)
    algorithm, sent = drive(machine, exchange, [OK, rows("CRC32"), OK])
    assert algorithm is ChecksumAlgorithm.CRC32
    assert sent[-1][4:] == b"\x12" + (400).to_bytes(4, "little") + b"\3\0\7\0\0\0bin.000003"
    machine = logged_in()
    with pytest.raises(ProtocolError, match="without the expected value"):
        drive(machine, start_file_dump(machine, 7), [OK, OK])
    assert machine.state is ClientState.READY, "no dump was sent"
