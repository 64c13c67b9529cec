"""Logging in to a server, and what a user is told who cannot."""

from __future__ import annotations

import pickle
from datetime import timedelta
from pathlib import Path

import pytest
from binlog_pipeline.errors import SourceError
from binlog_protocol.gtid import SlavePosition

from binlog_server.connections import certificate
from binlog_server.connections.certificate import self_signed
from binlog_server.testing import ports
from binlog_server.testing.sql_server import Credentials
from tests.kit.fixtures import MakeBinlogServer, MakeMariaDB
from tests.kit.server import BinlogServer

from .sources import address_of, source_of

USERS = {"root": {"password": "pw", "grants": ["ALL PRIVILEGES"]}}


def test_wrong_password(make_upstream: MakeMariaDB) -> None:
    upstream = make_upstream()
    source = source_of(upstream, Credentials(upstream.account.user, "not-this-one"))
    with pytest.raises(
        SourceError, match=r"1045 \(28000\): Access denied.*is the user right, and the password"
    ) as told:
        source.latest()
    assert "not-this-one" not in str(told.value)


def test_password_by_file_and_environment(
    make_upstream: MakeMariaDB, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither is read before it is needed; the password does not travel."""
    upstream = make_upstream()
    path = tmp_path / "password"
    by_file = source_of(upstream, Credentials(upstream.account.user, ""), passwordFile=str(path))
    by_name = source_of(upstream, Credentials(upstream.account.user, ""), passwordEnv="BINLOG_PASS")
    with pytest.raises(
        SourceError, match=f"the password's file {path} cannot be read: No such file"
    ):
        by_file.latest()
    with pytest.raises(SourceError, match="passwordEnv BINLOG_PASS is not in the environment"):
        by_name.latest()
    path.write_text(upstream.account.password + "\n")
    monkeypatch.setenv("BINLOG_PASS", upstream.account.password)
    for source in (by_file, by_name):
        assert source.latest() == SlavePosition()
        assert upstream.account.password.encode() not in pickle.dumps(source)
    literal = address_of(upstream)
    assert upstream.account.password not in repr(literal) + str(literal)


def test_ed25519(make_upstream: MakeMariaDB) -> None:
    upstream = make_upstream()
    upstream.script(
        "SET SESSION sql_log_bin = 0",
        "INSTALL SONAME 'auth_ed25519'",
        "CREATE USER e IDENTIFIED VIA ed25519 USING PASSWORD('secret')",
        "GRANT REPLICATION SLAVE ON *.* TO e",
    )
    assert source_of(upstream, Credentials("e", "secret")).latest() == SlavePosition()


def test_no_server() -> None:
    class Nobody:
        host = "127.0.0.1"
        port = ports.lease()
        account = Credentials()

    with pytest.raises(SourceError, match=r"127.0.0.1:\d+: .*refused; is the server up"):
        source_of(Nobody()).latest()
    Nobody.host = "no-such-host.invalid"
    with pytest.raises(SourceError, match=r"is the name of the host right"):
        source_of(Nobody()).latest()
    ports.release(Nobody.port)


def test_tls_is_refused(make_upstream: MakeMariaDB) -> None:
    upstream = make_upstream()  # without TLS
    assert source_of(upstream, tls="preferred").latest() == SlavePosition()
    for mode in ("required", "verify"):
        with pytest.raises(SourceError, match=f"tls={mode}, but the server does not offer TLS"):
            source_of(upstream, tls=mode).latest()


def test_tls(binlog_server: MakeBinlogServer, tmp_path: Path) -> None:
    for name, data in zip(("key.pem", "cert.pem"), self_signed(), strict=True):
        (tmp_path / name).write_bytes(data)
    server = binlog_server(
        users=USERS,
        require_secure_transport=True,
        ssl_cert=str(tmp_path / "cert.pem"),
        ssl_key=str(tmp_path / "key.pem"),
    )
    for mode in ("preferred", "required", "verify"):  # our server proves its certificate
        assert source_of(server, tls=mode).latest() == SlavePosition()
    with pytest.raises(SourceError, match=r"3159 \(08004\): .*tls=required"):
        source_of(server, tls="disabled").latest()
    # It is not for this host.
    with pytest.raises(SourceError, match=r"no TLS as wanted: .*127.0.0.1"):
        source_of(server, tls="verify", tlsCa=str(tmp_path / "cert.pem")).latest()
    with pytest.raises(SourceError, match="tlsCa, tlsCert or tlsKey cannot be used: No such file"):
        source_of(server, tls="required", tlsCert=str(tmp_path / "missing.pem")).latest()


def test_a_certificate_that_has_expired(
    binlog_server: MakeBinlogServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The password's proof says whose it is, not until when."""
    monkeypatch.setattr(certificate, "_LIFETIME", timedelta(hours=-1))
    for name, data in zip(("key.pem", "cert.pem"), self_signed(), strict=True):
        (tmp_path / name).write_bytes(data)
    server = binlog_server(
        users=USERS, ssl_cert=str(tmp_path / "cert.pem"), ssl_key=str(tmp_path / "key.pem")
    )
    for mode in ("preferred", "required"):
        assert source_of(server, tls=mode).latest() == SlavePosition()
    with pytest.raises(SourceError, match=r"certificate has expired; tls=required would take it"):
        source_of(server, tls="verify").latest()


def test_a_stream_by_tls(binlog_server: MakeBinlogServer) -> None:
    server: BinlogServer = binlog_server(users=USERS)
    with server.connect() as connection, connection.cursor() as cursor:
        for n in range(100):
            cursor.execute(f"CREATE DATABASE d{n}")
        connection.commit()
    source = source_of(server, tls="required")
    assert len(source.latest()) == 1
    position = SlavePosition()
    feed = source.feed()
    assert sum(len(groups) for groups in feed.after(position, 0)) == 100
    feed.close()
