"""What CHANGE MASTER may say, where passwords come from, and what an error is called."""

from __future__ import annotations

import errno as os_errors
import socket
from pathlib import Path
from typing import Any

import pytest
from binlog_protocol.connection.replica import UpstreamRefused
from binlog_protocol.errors import ProtocolError, RemoteError, ServerError
from binlog_protocol.events.checksum import EventChecksumError
from binlog_storage.errors import StorageError

from binlog_server.relay.failure import RelayFailure
from binlog_server.relay.gate import GroupRefused
from binlog_server.relay.guard import CandidateBehind
from binlog_server.upstreams.client_tls import TlsFailed
from binlog_server.upstreams.master_info import MasterInfo
from binlog_server.upstreams.password import KeyFile, Password, PasswordUnavailable

INFO = MasterInfo("h", 3306, "u", ignore_domain_ids=(9,))


def ignored(_: ServerError) -> None:
    """Of warnings."""


WRONG: list[tuple[dict[str, Any], int, str]] = [
    ({"host": ""}, 1210, "MASTER_HOST"),
    ({"host": "a\nb"}, 1201, "printable"),
    (
        {"user": "ä" * 129},
        1470,
        rf"String '{'ä' * 33}\.\.\.' is too long for MASTER_USER \(should be no longer than 128\)$",
    ),
    (
        {"host": "h" * 256},
        1470,
        rf"String '{'h' * 67}\.\.\.' is too long for MASTER_HOST .* 255\)$",
    ),
    ({"password": "ö" * 49}, 1470, r"String '\.\.\.' is too long for MASTER_PASSWORD .* 96\)$"),
    ({"port": 0}, 1201, "port 0 is not between"),
    ({"port": 65536}, 1201, "port 65536"),
    ({"do_domain_ids": (1,)}, 1201, "cannot both name domains"),
    ({"ignore_server_ids": (2**32,)}, 1201, "between 0 and 4294967295"),
    ({"candidates": "b, a:b:c"}, 1201, "'a:b:c' is not HOST, HOST:PORT or"),
    ({"candidates": "b:70000"}, 1201, "port 70000 is not between"),
    ({"ssl_key": "/k"}, 1201, "needs MASTER_SSL_CERT"),
    ({"heartbeat_period": 4294968}, 1624, "maximum allowed .4294967 seconds"),
    ({"heartbeat_period": float("inf")}, 1624, "maximum allowed"),
]


@pytest.mark.parametrize(("options", "errno", "text"), WRONG)
def test_refused(options: dict[str, Any], errno: int, text: str) -> None:
    with pytest.raises(ServerError, match=text) as error:
        INFO.changed("x", options, 60, ignored)
    assert error.value.errno == errno


def test_changes_only_what_is_named() -> None:
    changed = INFO.changed(
        "", {"port": 1, "do_domain_ids": (2, 1, 2), "ignore_domain_ids": ()}, 60, ignored
    )
    assert changed == MasterInfo("h", 1, "u", do_domain_ids=(1, 2))
    assert INFO.changed("", {"password": "p"}, 60, ignored).password == Password("p")
    assert INFO.changed("", {"password_file": "/f"}, 60, ignored).password == Password(file="/f")
    assert INFO.changed("", {"password_env": "E"}, 60, ignored).password == Password(env="E")


def test_candidates() -> None:
    changed = INFO.changed("", {"candidates": "b, [::1]:7,h:3306, b:3306"}, 60, ignored)
    assert changed.candidates == ("b:3306", "[::1]:7", "h:3306")
    assert [str(address) for address in changed.addresses] == ["h:3306", "b:3306", "[::1]:7"]
    third = changed.at(changed.addresses[2])
    assert (third.host, third.port, third.user) == ("::1", 7, "u")
    assert changed.changed("", {"candidates": ""}, 60, ignored).candidates == ()


@pytest.mark.parametrize(
    ("period", "kept", "warning", "silence"),
    [
        (5, 5, [], 15),
        (0, 0, [], 60),
        (0.0005, 0, [1703], 60),
        (0.001, 0.001, [], 0.003),
        (30, 30, [], 60),
        (61, 61, [1704], 60),
    ],
)
def test_heartbeats(period: float, kept: float, warning: list[int], silence: float) -> None:
    warnings: list[int] = []
    info = INFO.changed(
        "", {"heartbeat_period": period}, 60, lambda told: warnings.append(told.errno)
    )
    assert (info.heartbeat_s(60), warnings) == (kept, warning)
    assert info.silence_s(60) == pytest.approx(silence)


def test_heartbeats_by_default() -> None:
    assert (INFO.heartbeat_s(60), INFO.silence_s(60)) == (20, 60)


# Passwords


def test_passwords_by_reference(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "secret"
    path.write_bytes("pä ss\r\nnext line".encode())
    monkeypatch.setenv("RELAY_SECRET", "from there")
    assert Password(file=str(path)).read() == "pä ss"
    assert Password(env="RELAY_SECRET").read() == "from there"
    assert Password("text").read() == "text"
    assert Password().read() == ""


def test_no_password_there(tmp_path: Path) -> None:
    binary = tmp_path / "binary"
    binary.write_bytes(b"\xff\xfe")
    for password, text in (
        (Password(file=str(tmp_path / "none")), "cannot be read: No such file"),
        (Password(file=str(binary)), "not UTF-8"),
        (Password(env="RELAY_NO_SUCH"), "RELAY_NO_SUCH of the password is not set"),
    ):
        with pytest.raises(PasswordUnavailable, match=text):
            password.read()


@pytest.mark.parametrize(
    "password", [Password("x"), Password(), Password(file="/f"), Password(env="E")]
)
def test_state_keeps_all_of_it(tmp_path: Path, password: Password) -> None:
    keys = KeyFile(tmp_path / "key")
    info = MasterInfo("h", 1, "u", password, heartbeat_period=2.5, ignore_server_ids=(1, 2))
    kept = info.to_state(keys)
    assert MasterInfo.from_state(kept, KeyFile(tmp_path / "key")) == (info, "")
    # What an older or newer version has or has not.
    assert MasterInfo.from_state({"host": "h", "later": 1}, keys)[0] == MasterInfo("h")
    assert (tmp_path / "key").exists() is (password.text != "")


def test_keys_that_are_none(tmp_path: Path) -> None:
    sealed = KeyFile(tmp_path / "key").seal(Password("secret"))
    (tmp_path / "short").write_text("abc")
    for path, text in (
        (tmp_path / "none", "No such file"),
        (tmp_path, "it is a folder, not a file"),
        (tmp_path / "short", "does not hold a key"),
    ):
        with pytest.raises(PasswordUnavailable, match=text):
            KeyFile(path).open(sealed)
    with pytest.raises(PasswordUnavailable, match=r"option master_info_key_file"):
        KeyFile(tmp_path / "no" / "folder").seal(Password("secret"))


# Last_IO_Errno and Last_IO_Error

FAILURES: list[tuple[Exception, bool, int, str]] = [
    (ConnectionRefusedError(os_errors.ECONNREFUSED, "x"), True, 2003, '(111 "Connection refused")'),
    (TimeoutError(), True, 2003, "Can't connect to server on 'h'"),
    (socket.gaierror(-2, "x"), True, 2005, "Unknown server host 'h' (-2)"),
    (RemoteError(1045, "28000", "Access denied"), True, 1045, "message: Access denied"),
    (TlsFailed("no"), True, 2026, "SSL connection error: no"),
    (PasswordUnavailable("gone"), True, 1593, "message: gone"),
    (UpstreamRefused("same id"), True, 1593, "Fatal error: same id"),
    (GroupRefused("it sends"), False, 1593, "Fatal error: it sends"),
    (
        RemoteError(1236, "HY000", "purged"),
        False,
        1236,
        "from master when reading data from binary log: 'purged'",
    ),
    (UpstreamRefused("diverged", 1236), False, 1236, "from binary log: 'diverged'"),
    (CandidateBehind("it is behind"), True, 1236, "message: it is behind"),
    (EventChecksumError("CRC"), False, 1743, "CRC"),
    (ProtocolError("odd"), False, 2027, "Malformed packet: odd"),
    (ConnectionError("it has closed"), False, 2013, "Lost connection to server: it has closed"),
    (TimeoutError(), False, 2013, "nothing came for slave_net_timeout, or three heartbeats"),
    (StorageError("disk"), False, 1026, "Error writing file 'binlog': disk"),
]


@pytest.mark.parametrize(("error", "connecting", "errno", "text"), FAILURES)
def test_failures(error: Exception, connecting: bool, errno: int, text: str) -> None:
    failure = RelayFailure.of(error, INFO, connecting=connecting)
    assert failure.errno == errno
    assert text in failure.text
    if failure.connecting:
        assert failure.text.startswith("error connecting to master 'u@h:3306' - retry-time: 60  ")
