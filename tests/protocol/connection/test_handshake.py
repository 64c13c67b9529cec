from __future__ import annotations

import pytest
from binlog_protocol.connection.auth import (
    native_password_hash,
    native_password_scramble,
    native_password_text,
    native_password_verify,
    parse_native_password_text,
)
from binlog_protocol.connection.handshake import (
    SERVER_CAPABILITIES,
    AuthSwitchRequest,
    Capability,
    Greeting,
    LoginRequest,
)
from binlog_protocol.errors import ProtocolError
from hypothesis import given
from hypothesis import strategies as st

from tests.protocol.conversation import capture_names, conversations, packets

SALT = bytes(range(1, 21))
SALTS = st.binary(min_size=20, max_size=20).filter(lambda salt: b"\0" not in salt)
TEXTS = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=30)


def test_password_hash_as_mariadb_prints_it() -> None:
    text = "*2470C0C06DEE42FD1618BB99005ADCA2EC9D1E19"
    assert native_password_text(native_password_hash("password")) == text
    assert parse_native_password_text(text) == native_password_hash("password")


@pytest.mark.parametrize(
    "text", ["", "*", "2470C0C06DEE42FD1618BB99005ADCA2EC9D1E19", "*" + "x" * 40]
)
def test_password_hash_text_refused(text: str) -> None:
    with pytest.raises(ValueError):
        parse_native_password_text(text)


@pytest.mark.long
@given(TEXTS, TEXTS, SALTS)
def test_password_proof(password: str, other: str, salt: bytes) -> None:
    stored = native_password_hash(password) if password else b""
    assert native_password_verify(salt, native_password_scramble(password, salt), stored)
    if other != password:
        assert not native_password_verify(salt, native_password_scramble(other, salt), stored)


@pytest.mark.parametrize("response", [b"", b"x", bytes(19), bytes(20), bytes(21)])
def test_a_proof_of_nothing(response: bytes) -> None:
    assert not native_password_verify(SALT, response, native_password_hash("pw"))


def test_greeting_of_10_11() -> None:
    payload = next(packets(conversations("1011-01-fresh")[0].from_server)).payload
    greeting = Greeting.parse(payload)
    assert greeting.server_version == "5.5.5-10.11.19-MariaDB-0+deb12u1-log"
    assert greeting.connection_id == 7
    assert greeting.capabilities == 0x81FFF7FE
    assert greeting.mariadb_capabilities == 0x1D
    assert greeting.build() == payload


def test_greeting_of_ours() -> None:
    greeting = Greeting("11.8.6-MariaDB-binlog-server", 9, SALT)
    assert Greeting.parse(greeting.build()) == greeting
    assert not greeting.capabilities & (Capability.SSL | Capability.MYSQL)
    assert greeting.capabilities == SERVER_CAPABILITIES == 0x81FFF7FE
    assert greeting.mariadb_capabilities == 0


@pytest.mark.parametrize("salt", [b"", bytes(20), bytes(range(20)), SALT + b"x"])
def test_greeting_needs_a_proper_salt(salt: bytes) -> None:
    with pytest.raises(ValueError):
        Greeting("11.8", 1, salt)


def test_greeting_cut_short() -> None:
    for length in range(len(Greeting("11.8", 1, SALT).build())):
        with pytest.raises(ProtocolError):
            Greeting.parse(Greeting("11.8", 1, SALT).build()[:length])


@pytest.mark.parametrize("name", capture_names())
def test_recorded_logins_round_trip(name: str) -> None:
    for conversation in conversations(name):
        payload = next(packets(conversation.from_client)).payload
        login = LoginRequest.parse(payload)
        assert login.build() == payload
        assert login.user in ("repl", "norepl")


def test_a_login_without_the_plugin_that_it_announces() -> None:
    """Of @powersync/mysql-zongji, which MariaDB takes."""
    announced = Capability.CONNECT_WITH_DB | Capability.SECURE_CONNECTION | Capability.PLUGIN_AUTH
    login = LoginRequest(
        "root", b"x" * 20, "d", None, capabilities=Capability.PROTOCOL_41 | announced
    ).build()
    found = LoginRequest.parse(login.removesuffix(b"\0"))
    assert (found.user, found.database, found.plugin) == ("root", "d", None)


def test_replica_login_as_recorded() -> None:
    payload = next(packets(conversations("118-01-fresh")[0].from_client)).payload
    login = LoginRequest.parse(payload)
    assert login.capabilities & 0x8038A205 == 0x8038A205
    assert login.attributes["_client_name"] == "libmysql"
    assert login.database is None
    assert login.plugin == "mysql_native_password"


@given(
    st.builds(
        LoginRequest,
        TEXTS,
        st.binary(max_size=40).filter(lambda data: b"\0" not in data),
        TEXTS,
        TEXTS,
        st.dictionaries(TEXTS, TEXTS, max_size=4),
        st.sampled_from([0x200, 0x8200, 0x208200, 0x8038A205, 0x8038A20D, 0x18820D]),
    )
)
def test_login_round_trip(login: LoginRequest) -> None:
    again = LoginRequest.parse(login.build())
    assert again.build() == login.build()
    assert again.user == login.user
    assert again.auth_response == login.auth_response


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"x",
        bytes(32),
        bytes(33),
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
        bytes.fromhex("05aa3880") + bytes(28),
        bytes.fromhex("05a23880") + bytes(28) + b"user-without-end",
        bytes.fromhex("05aa3880") + bytes(28) + b"u\0\0p\0\0",
        bytes.fromhex("05a23880") + bytes(28) + b"u\0\xfe\xff\xff\xff\xff\xff\xff\xff\xffx",
    ],
)
def test_login_refused(payload: bytes) -> None:
    with pytest.raises(ProtocolError) as caught:
        LoginRequest.parse(payload)
    assert caught.value.answer is not None
    assert caught.value.answer.errno == 1043


def test_auth_switch_round_trip() -> None:
    request = AuthSwitchRequest("mysql_native_password", SALT)
    assert request.build() == b"\xfemysql_native_password\0" + SALT + b"\0"
    assert AuthSwitchRequest.parse(request.build()) == request
    for broken in (b"\xfe", b"\x00a\0", b"\xfeabc"):
        with pytest.raises(ProtocolError):
            AuthSwitchRequest.parse(broken)
