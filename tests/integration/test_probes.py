"""Probes that speak bytes and no SQL: HAProxy's `option mysql-check`, as a MariaDB answers them."""

from __future__ import annotations

import socket
from collections.abc import Callable, Mapping
from typing import Final

import pytest

from binlog_server.testing.mariadb import MariaDB
from tests.kit.fixtures import MakeBinlogServer, MakeMariaDB
from tests.kit.server import BinlogServer

_QUIT: Final = bytes.fromhex("0100000001")
_ZEROS: Final = bytes(23)
# What it sends behind the greeting (src/tcpcheck.c); the user has no password.
LOGINS: Final[Mapping[str, Callable[[bytes], bytes]]] = {
    "": lambda user: b"",
    "post-41": lambda user: bytes.fromhex("008200000080000121") + _ZEROS + user + b"\0\0",
    "post-80": lambda user: (
        bytes.fromhex("008208000080000121") + _ZEROS + user + b"\0\0mysql_native_password\0"
    ),
    "pre-41": lambda user: bytes.fromhex("0080000001") + user + b"\0\0",
}
BURST: Final = 150  # more than max_connect_errors


def check(server: MariaDB | BinlogServer, kind: str, user: bytes) -> list[int]:
    """The first bytes of the packets that come; HAProxy looks for 0xff, an error, in the first two."""
    with socket.create_connection((server.host, server.port), timeout=30) as connection:
        stream = connection.makefile("rb")
        found = [_first_byte(stream.read)]
        login = LOGINS[kind](user)
        if login:
            connection.sendall(len(login).to_bytes(3, "little") + b"\1" + login + _QUIT)
            found.append(_first_byte(stream.read))
    return found


def _first_byte(read: Callable[[int], bytes]) -> int:
    head = read(4)
    payload = read(int.from_bytes(head[:3], "little"))
    return payload[0]


@pytest.fixture
def both(
    make_upstream: MakeMariaDB, binlog_server: MakeBinlogServer
) -> list[MariaDB | BinlogServer]:
    real = make_upstream(version="11.8")
    real.script("CREATE USER haproxy@'%'", "SET GLOBAL max_connect_errors=10")
    return [
        real,
        binlog_server(
            users={"root": {"password": "pw", "grants": ["ALL PRIVILEGES"]}, "haproxy": ""}
        ),
    ]


@pytest.mark.by_turns(2)
@pytest.mark.parametrize("user", [b"haproxy", b"unknown"])
@pytest.mark.parametrize("kind", LOGINS)
def test_haproxy(kind: str, user: bytes, both: list[MariaDB | BinlogServer]) -> None:
    theirs, ours = (check(server, kind, user) for server in both)
    if (
        kind == "pre-41"
    ):  # the protocol of 4.0, which is not spoken here: 1043; post-41 is HAProxy's default
        assert ours == [10, 255]
        return
    assert ours == theirs
    assert ours == ([10] if not kind else [10, 0] if user == b"haproxy" else [10, 255])


# TLS, whose first bytes are taken for a packet with number 2.
_HELLO: Final = bytes.fromhex("160301020001000001fc0303") + bytes(500)
# Short: a MariaDB closes the socket with what it has not read, and then its answer may be lost.
STRANGERS: Final[Mapping[str, bytes]] = {
    "http": b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
    "tls": _HELLO,
    "ssh": b"SSH-2.0-OpenSSH_9.2\r\n",
    "zeros": bytes(64),
    "an empty packet": b"\0\0\0\1",
    "a short login": b"\2\0\0\1\x05\x82",
    "a login with another number": b"\2\0\0\0\x05\x82",
}


def said_to(server: MariaDB | BinlogServer, data: bytes) -> bytes:
    """The packet behind the greeting, when that many bytes come."""
    with socket.create_connection((server.host, server.port), timeout=30) as connection:
        stream = connection.makefile("rb")
        _first_byte(stream.read)
        connection.sendall(data)
        head = stream.read(4)
        return head + stream.read(int.from_bytes(head[:3], "little"))


def test_who_speaks_another_protocol(both: list[MariaDB | BinlogServer]) -> None:
    """1156, as its first bytes are no number of a packet; whoever has that right hears of a bad handshake."""
    for name, data in STRANGERS.items():
        theirs, ours = (said_to(server, data) for server in both)
        assert ours == theirs, name
        assert int.from_bytes(ours[5:7], "little") in (1043, 1156), name


def test_packets_without_a_command(both: list[MariaDB | BinlogServer]) -> None:
    """An empty one is an unknown command; a number that is wrong ends the connection."""
    for data in (b"\0\0\0\0", b"\5\0\0\5\3DO 1"):
        found = []
        for server in both:
            with server.connect() as connection:
                connection._sock.sendall(data)
                found.append(connection._sock.recv(1024))
        assert found[0] == found[1]


def test_checks_without_a_user_block_nobody(binlog_server: MakeBinlogServer) -> None:
    """A MariaDB refuses the proxy's address behind max_connect_errors of them (1129)."""
    ours = binlog_server(users={"root": {"password": "pw", "grants": ["ALL PRIVILEGES"]}})
    for _ in range(BURST):
        assert check(ours, "", b"") == [10]
    (row,) = ours.q("SHOW GLOBAL STATUS LIKE 'Aborted_connects_preauth'")
    assert int(row["Value"]) >= BURST - 1
