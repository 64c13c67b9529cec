"""What is asked of TCP, so that peers which have vanished are noticed."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from binlog_server.connections.tcp_options import give_up_after, keep_alive
from binlog_server.settings.config import Config

OPTIONS = "TCP_KEEPIDLE", "TCP_KEEPINTVL", "TCP_KEEPCNT"


@pytest.fixture
def sock() -> Iterator[socket.socket]:
    with socket.socket() as made:
        yield made


def tcp(sock: socket.socket, name: str) -> int:
    return sock.getsockopt(socket.IPPROTO_TCP, getattr(socket, name))


def test_defaults_notice_a_vanished_replica_in_net_write_timeout(sock: socket.socket) -> None:
    config = Config(Path("/x"))
    keep_alive(sock, config)
    assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
    idle, interval, probes = (tcp(sock, name) for name in OPTIONS)
    assert idle + interval * probes == config.net_write_timeout
    assert tcp(sock, "TCP_USER_TIMEOUT") == config.net_write_timeout * 1000


def test_zero_is_what_the_system_has(sock: socket.socket) -> None:
    before = [tcp(sock, name) for name in OPTIONS]
    config = Config(
        Path("/x"), tcp_keepalive_time=0, tcp_keepalive_interval=0, tcp_keepalive_probes=0
    )
    keep_alive(sock, config)
    assert [tcp(sock, name) for name in OPTIONS] == before


def test_the_sessions_own_timeout(sock: socket.socket) -> None:
    give_up_after(sock, 7)
    assert tcp(sock, "TCP_USER_TIMEOUT") == 7000


def test_a_timeout_of_a_year_is_what_the_kernel_can_count(sock: socket.socket) -> None:
    keep_alive(sock, Config(Path("/x"), net_write_timeout=31_536_000))
    assert tcp(sock, "TCP_USER_TIMEOUT") == 2**31 - 1


def test_a_socket_without_them_is_left_alone() -> None:
    for made in socket.socketpair():
        with made:
            keep_alive(made, Config(Path("/x")))
