"""Sockets to listen at, before there is a server."""

from __future__ import annotations

import errno
import socket
from pathlib import Path

import pytest

from binlog_server.connections.listening import Bound, bound
from binlog_server.settings.config import Config


@pytest.mark.parametrize(
    ("host", "addresses"),
    [
        ("127.0.0.1", {"127.0.0.1"}),
        ("::1", {"::1"}),
        ("", {"0.0.0.0", "::"}),
    ],
)
def test_the_addresses_of_a_host(host: str, addresses: set[str]) -> None:
    sockets = bound("listen", host, 0)
    found = {one.getsockname()[0] for one in sockets}
    for one in sockets:
        if one.family == socket.AF_INET6:
            assert one.getsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY) == 1
        one.close()
    assert found == addresses


@pytest.mark.parametrize(
    ("host", "number", "said"),
    [
        ("192.0.2.1", errno.EADDRNOTAVAIL, "give an address that this machine has"),
        ("a..b", socket.EAI_NONAME, "'a..b': no name of a host"),
        ("x" * 64, socket.EAI_NONAME, "no name of a host"),
    ],
)
def test_one_at_which_nobody_can_listen(host: str, number: int, said: str) -> None:
    with pytest.raises(OSError, match=r"listen: ") as caught:
        bound("listen", host, 0)
    assert caught.value.errno == number
    assert said in str(caught.value)


def test_a_kernel_without_ipv6(monkeypatch: pytest.MonkeyPatch) -> None:
    def only_v4(family: int, *rest: int) -> socket.socket:
        if family == socket.AF_INET6:
            raise OSError(errno.EAFNOSUPPORT, "Address family not supported by protocol")
        return real(family, *rest)

    real = socket.socket
    monkeypatch.setattr(socket, "socket", only_v4)
    (one,) = bound("listen", "", 0)
    one.close()
    with pytest.raises(OSError, match=r"^listen: ::1:0: Address family not supported"):
        bound("listen", "::1", 0)


def test_one_option_in_the_way_of_the_other_leaves_nothing_open(tmp_path: Path) -> None:
    (taken,) = bound("listen", "127.0.0.1", 0)
    taken.listen()
    with taken:
        port = taken.getsockname()[1]
        config = Config(
            binlog_directory=tmp_path, listen_port=0, metrics_listen=f"127.0.0.1:{port}"
        )
        with pytest.raises(OSError, match=r"metrics_listen: .* in use: end the program"):
            Bound.of(config)
        with pytest.raises(OSError, match=r"^listen: .* in use: end the program"):
            bound("listen", "127.0.0.1", port)


def test_given_ones_are_taken(tmp_path: Path) -> None:
    given = bound("listen", "127.0.0.1", 0)
    places = Bound.of(Config(binlog_directory=tmp_path, metrics_listen="127.0.0.1:0"), given)
    assert places.clients is given
    assert len(places.metrics) == 1
    places.close()
    assert [one.fileno() for one in given] == [-1]
