"""The metrics' listener by HTTPS: with whose certificate, for whom, and what a client that is slow in it costs."""

from __future__ import annotations

import asyncio
import dataclasses
import ssl
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
from binlog_protocol.errors import RemoteError

from binlog_server.app.reload import Reload
from binlog_server.connections.certificate import self_signed
from binlog_server.connections.listening import bound
from binlog_server.connections.tls import TlsServer
from binlog_server.metrics import endpoint
from binlog_server.metrics.http import HttpListener
from tests.binlog_server.lab import ROOT, Lab, until, within

from .scrape import Answer, answer_of, exchange

TOKEN = "0123456789abcdef"


class Files:
    """The pairs of PEM files `server`, `person` and `other`."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        for name in ("server", "person", "other"):
            self.renew(name)

    def renew(self, name: str) -> None:
        for path, text in zip((self.key(name), self.cert(name)), self_signed(), strict=True):
            Path(path).write_bytes(text)

    def cert(self, name: str) -> str:
        return str(self._directory / f"{name}.pem")

    def key(self, name: str) -> str:
        return str(self._directory / f"{name}-key.pem")

    def client(self, shows: str = "") -> ssl.SSLContext:
        """Of one that takes the present certificate of the server, and no other."""
        context = ssl.create_default_context(cafile=self.cert("server"))
        context.check_hostname = False
        if shows:
            context.load_cert_chain(self.cert(shows), self.key(shows))
        return context


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return Files(tmp_path)


@pytest.fixture
async def lab(files: Files, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Lab]:
    monkeypatch.setattr(endpoint, "LIVE_S", 0.0)
    async with Lab(
        users=ROOT,
        metrics_listen="127.0.0.1:0",
        ssl_cert=files.cert("server"),
        ssl_key=files.key("server"),
        metrics_ssl=True,
        metrics_ssl_ca=files.cert("person"),
    ) as running:
        yield running


def request_of(path: str, more: str = "") -> bytes:
    return f"GET {path} HTTP/1.1\r\nHost: relay\r\n{more}\r\n".encode()


async def ask(lab: Lab, path: str, tls: ssl.SSLContext | None, more: str = "") -> Answer:
    return answer_of(await exchange(lab.server.metrics_port, request_of(path, more), tls))


async def test_for_whom(lab: Lab, files: Files) -> None:
    nobody, person = files.client(), files.client("person")
    for path in ("/metrics", "/healthz"):
        assert (await ask(lab, path, nobody)).status == 200
    assert (await ask(lab, "/", nobody)).status == 403
    for path in ("/", "/api/status"):
        answer = await ask(lab, path, person)
        assert answer.status == 200
        assert len(answer.body) == int(answer.headers["content-length"]) > 100
    with pytest.raises((ssl.SSLError, ConnectionError)):
        await ask(lab, "/metrics", files.client("other"))  # whom nobody has signed


async def test_the_token_beside_certificates(lab: Lab, files: Files) -> None:
    lab.server.config = dataclasses.replace(lab.server.config, metrics_token=TOKEN)
    assert (await ask(lab, "/", files.client())).status == 401
    shown = f"Authorization: Bearer {TOKEN}\r\n"
    assert (await ask(lab, "/", files.client(), shown)).status == 200
    assert (await ask(lab, "/", files.client("person"))).status == 200


async def test_without_authorities_no_certificate_is_looked_at(lab: Lab, files: Files) -> None:
    config = lab.server.config
    lab.server.renewed_tls(dataclasses.replace(config, metrics_ssl_ca=""))()
    assert (await ask(lab, "/", files.client("person"))).status == 403


async def test_plain_http_gets_no_answer(lab: Lab, files: Files) -> None:
    data = await exchange(lab.server.metrics_port, request_of("/metrics"))
    assert b"HTTP" not in data
    assert (await ask(lab, "/healthz", files.client())).status == 200


async def test_a_stream_of_events(lab: Lab, files: Files) -> None:
    port = lab.server.metrics_port
    reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=files.client("person"))
    writer.write(request_of("/api/events"))
    for _ in range(3):
        await within(reader.readuntil(b"\n\n"))
    writer.close()
    listener = lab.server._endpoint
    assert listener is not None
    await until(lambda: not listener._listener._open)


@pytest.mark.parametrize("sent", [b"", b"\x16\x03\x01\x02\x00"])
async def test_a_handshake_that_is_not_finished(files: Files, sent: bytes) -> None:
    """It gets as long as a request."""
    made = TlsServer.make(files.cert("server"), files.key("server"))
    listener = HttpListener({}, deadline_s=0.05, tls=lambda: made)
    await listener.start(bound("metrics_listen", "127.0.0.1", 0))
    try:
        assert await exchange(listener.port, sent) == b""
    except ConnectionError:
        pass  # it was aborted
    finally:
        await within(listener.close())


async def test_read_again(lab: Lab, files: Files) -> None:
    """New files are for who connects from now on; what is wrong changes nothing; TLS and the token may come and go."""
    root = await lab.root()
    config = lab.server.config

    async def says(**changes: object) -> None:
        nonlocal config
        config = dataclasses.replace(config, **changes)  # type: ignore[arg-type]
        await root.query("RELOAD CONFIGURATION")
        assert await root.query("SHOW WARNINGS") == []

    lab.server._reload = Reload(lab.server, config, lambda: config)
    old = files.client()
    files.renew("server")
    renewals: list[Callable[[], object]] = [says, lambda: root.query("FLUSH SSL")]
    for renewal in renewals:
        await renewal()  # type: ignore[misc]
        assert (await ask(lab, "/healthz", files.client())).status == 200
        with pytest.raises((ssl.SSLError, ConnectionError)):
            await ask(lab, "/healthz", old)
        old = files.client()
        files.renew("server")
    await says(metrics_ssl_ca=files.cert("other"), metrics_token=TOKEN)
    assert (await ask(lab, "/", files.client("other"))).status == 200
    assert (await ask(lab, "/", files.client())).status == 401
    before = lab.server.metrics_tls
    with pytest.raises(
        RemoteError, match=r"nothing has changed: ssl_cert, ssl_key, metrics_ssl_ca"
    ):
        await says(metrics_ssl_ca=files.cert("nobody"))
    assert lab.server.metrics_tls is before
    await says(metrics_ssl=False, metrics_ssl_ca="", metrics_token="")
    assert (await ask(lab, "/healthz", None)).status == 200
    assert (await ask(lab, "/", None)).status == 403
