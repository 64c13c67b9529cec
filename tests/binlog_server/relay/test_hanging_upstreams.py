"""Files and names of upstreams that do not answer: everything else goes on, and all of it can be stopped."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from binlog_storage.errors import DiskFull
from binlog_storage.tables.facts import FactTables

from binlog_server.upstreams.client_tls import TlsFailed, TlsOptions
from binlog_server.upstreams.master_info import MasterInfo
from binlog_server.upstreams.password import KeyFile, Password, PasswordUnavailable
from tests.binlog_server.lab import Lab, until, within
from tests.binlog_server.upstream import OPENING, FakeUpstream, Visit, groups

CONNECTIONS = 40  # more than `to_thread` has threads


@pytest.fixture
def resolver(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """One that does not answer; the names that it was asked for."""
    asked: list[str] = []
    answers, original = threading.Event(), socket.getaddrinfo

    def hangs(host: str, port: int, *, type: int, flags: int = 0) -> list[Any]:
        if flags & socket.AI_PASSIVE:  # where the server itself listens
            return original(host, port, type=type, flags=flags)
        if not flags:
            asked.append(host)
            answers.wait()
        raise socket.gaierror(socket.EAI_AGAIN, "it does not answer")

    monkeypatch.setattr("binlog_server.relay.byte_stream.socket.getaddrinfo", hangs)
    yield asked
    answers.set()


@pytest.mark.parametrize("what", ["password file", "resolver"])
async def test_everything_else_goes_on(what: str, resolver: list[str], tmp_path: Path) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    host, file = ("127.0.0.1", fifo) if what == "password file" else ("db.example", "/dev/null")
    async with Lab(metrics_listen="127.0.0.1:0", server_id=10) as lab:
        lab.publish("0-1-1")
        relay = lab.server.relay
        for number in range(CONNECTIONS):
            options = {"host": host, "port": 1 + number % 3, "user": "u", "ssl": False}
            if what == "password file":
                options["password_file"] = str(file)
            await relay.change(f"c{number}", options, lambda *_: None)
        await within(relay.start_all())
        if what == "password file":
            statuses = [connection.status for connection in relay.connections]
            await until(lambda: all(status.errno == 1593 for status in statuses))
            assert "it is a FIFO, not a file" in statuses[0].error
            assert all(status.state.running == "Connecting" for status in statuses)
        else:
            await until(lambda: len(resolver) == 3)
        replica = await within(lab.replica())
        await replica.opening()
        assert await within(replica.groups(1)) == "0-1-1"
        assert len(await within(relay.stop_all())) == CONNECTIONS
        await within(relay.start_all())
        await until(lambda: len(relay.statuses) == CONNECTIONS)
        await within(lab.stop())
    assert sorted(set(resolver)) == ([] if what == "password file" else ["db.example"])
    assert len(resolver) in (0, 3), "one thread for a name and port, however often it is asked for"


async def test_facts_that_cannot_be_kept(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The state lies on a full disk: what is only remembered for the next start must not end anything now."""

    def full(*_: object) -> None:
        raise DiskFull("no room")

    async with FakeUpstream([Visit(OPENING + groups("0-1-1"))]) as upstream:
        info = MasterInfo("127.0.0.1", upstream.port, "u", candidates=("db2:3306",), ssl=False)
        made = Lab(upstream={"": info}, server_id=10)
        monkeypatch.setattr(FactTables, "update", full)  # before it starts, and connects
        async with made as lab:
            await until(lambda: upstream.streaming == 1)
            await until(lambda: str(lab.engine.binlog_state()) == "0-1-1")
            (status,) = lab.server.upstreams
            assert (status.connected, status.errno) == (True, 0)
            assert lab.server.syncer.failure is None
    assert "the version of the upstream, 10.11.19-MariaDB-log, is not kept: no room" in caplog.text
    assert f"that 127.0.0.1:{upstream.port} is followed is not kept: no room" in caplog.text


@pytest.mark.parametrize("option", ["ca", "cert", "key", "crl"])
def test_tls_files(option: str, tmp_path: Path) -> None:
    fifo = str(tmp_path / "fifo")
    os.mkfifo(fifo)
    given: dict[str, Any] = {option: fifo}
    with pytest.raises(TlsFailed, match=r"it is a FIFO, not a file: one of .*fifo"):
        replace(TlsOptions(), **given).context()


@pytest.mark.parametrize("cipher", ["NOPE", "TLS_AES_256_GCM_SHA384"])
def test_a_list_without_a_cipher(cipher: str) -> None:
    told = f"no cipher is in it, as OpenSSL names those up to TLS 1.2: MASTER_SSL_CIPHER '{cipher}'"
    with pytest.raises(TlsFailed, match=f": {told}$"):
        replace(TlsOptions(), cipher=cipher).context()
    replace(TlsOptions(), cipher="ECDHE+AESGCM:NOPE").context()


def test_the_key_of_passwords(tmp_path: Path) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    for call in (
        lambda: KeyFile(fifo).seal(Password("x")),
        lambda: KeyFile(fifo).open({"sealed": "x"}),
    ):
        with pytest.raises(PasswordUnavailable, match="it is a FIFO, not a file"):
            call()
