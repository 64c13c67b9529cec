"""TLS on the port of everything else: the upgrade in all shapes, the proof, and that limits hold."""

from __future__ import annotations

import asyncio
import ssl
import time
from concurrent.futures import ThreadPoolExecutor
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from binlog_protocol.connection.auth import certificate_proof, native_password_hash
from binlog_protocol.connection.commands import Ping, Query
from binlog_protocol.connection.handshake import Capability, LoginRequest, TlsRequest
from binlog_protocol.errors import RemoteError
from binlog_protocol.gtid import Gtid
from binlog_protocol.wire.packets import frame_packet
from binlog_protocol.wire.results import parse_error, parse_ok

from binlog_server.app.app import Server
from binlog_server.connections.certificate import self_signed
from binlog_server.connections.channel import WRITE_BUFFER_BYTES
from binlog_server.connections.tls import TlsServer
from binlog_server.settings.config import Config, ConfigError
from tests.binlog_server.lab import (
    PASSWORD,
    ROOT,
    USER,
    Client,
    Lab,
    MemoryDirectory,
    Replica,
    next_turn_over,
    transaction,
    until,
)
from tests.binlog_server.tls_client import TlsClient, client_context


async def connect(lab: Lab) -> TlsClient:
    return await TlsClient.connect(lab.server.port)


async def test_request_and_hello_in_one_segment(lab: Lab) -> None:
    client = await (await connect(lab)).upgrade()
    assert (await client.log_in())[:1] == b"\0"
    assert await client.query("SELECT 1") == [["1"]]
    client.close()


def test_one_self_signed_certificate_whoever_asks_first() -> None:
    server = TlsServer.make()
    with ThreadPoolExecutor(4) as threads:
        found = set(threads.map(lambda _: (server.fingerprint, server.expires), range(4)))
    assert len(found) == 1
    assert server.self_signed
    assert TlsServer.make().fingerprint != server.fingerprint


async def test_status_of_the_session(lab: Lab) -> None:
    client = await (await connect(lab)).upgrade()
    await client.log_in()
    asked = "SHOW STATUS WHERE Variable_name IN ('Ssl_cipher', 'Ssl_version')"
    ((_, cipher), (_, version)) = await client.query(asked)
    assert version in ("TLSv1.2", "TLSv1.3")
    assert cipher
    plain = await lab.connect()
    await plain.log_in()
    assert await plain.query(asked) == [["Ssl_cipher", ""], ["Ssl_version", ""]]
    client.close()


async def test_byte_by_byte(lab: Lab) -> None:
    client = await connect(lab)
    for byte in client.begin():
        client.writer.write(bytes((byte,)))
        await asyncio.sleep(0)
    await client.finish()
    assert (await client.log_in())[:1] == b"\0"
    client.close()


async def test_a_turn_that_ends_at_the_request(lab: Lab) -> None:
    """The session stops reading from the socket then; once TLS stands on it, somebody has to go on."""
    client = await connect(lab)
    request_and_hello = client.begin()
    end = len(frame_packet(TlsRequest().build(), 1)[0])
    with next_turn_over():
        client.writer.write(request_and_hello[:end])
        await until(lambda: lab.server.connections.tls_accepts == 1)
    client.writer.write(request_and_hello[end:])
    await client.finish()
    with next_turn_over():
        assert (await client.log_in())[:1] == b"\0"
    assert await client.query("SELECT 1") == [["1"]]
    client.close()


async def test_the_proof(lab: Lab) -> None:
    client = await (await connect(lab)).upgrade()
    ok = parse_ok(await client.log_in())
    fingerprint = sha256(client.certificate).digest()
    stored = native_password_hash(PASSWORD)
    text = sha256(stored + client.greeting.salt + fingerprint).hexdigest().upper()
    assert ok.info == b"\x01" + text.encode()
    client.close()


async def test_no_proof_of_nothing(lab: Lab) -> None:
    assert certificate_proof(b"", bytes(20), bytes(32)) == b""
    client = await (await connect(lab)).upgrade()
    assert parse_ok(await client.log_in("open", "")).info == b""
    plain = await lab.connect()
    assert parse_ok(await plain.log_in()).info == b"", "without TLS there is nothing to prove"
    client.close()


async def test_each_start_has_its_own_certificate() -> None:
    async with Lab() as first, Lab() as second:
        clients = [await (await connect(lab)).upgrade() for lab in (first, second)]
        assert clients[0].certificate != clients[1].certificate
        for client in clients:
            client.close()


@pytest.mark.parametrize("options", [{"ssl": False}, {"tls_version": "TLSv1.2"}])
async def test_what_is_offered(options: dict[str, Any]) -> None:
    async with Lab(**options) as lab:
        client = await connect(lab)
        offered = bool(client.greeting.capabilities & Capability.SSL)
        assert offered == options.get("ssl", True)
        client.close()


async def test_not_offered_is_refused() -> None:
    async with Lab(ssl=False) as lab:
        client = await connect(lab)
        client.writer.write(client.begin())
        assert (await client.error())[0] == 1043


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
async def test_versions(version: ssl.TLSVersion) -> None:
    name = {ssl.TLSVersion.TLSv1_2: "TLSv1.3", ssl.TLSVersion.TLSv1_3: "TLSv1.2"}[version]
    context = client_context()
    context.minimum_version = context.maximum_version = version
    async with Lab(tls_version=name) as lab:
        client = await connect(lab)
        with pytest.raises((ssl.SSLError, ConnectionError)):
            await client.upgrade(context)
        client.close()
    async with Lab() as lab:
        client = await (await connect(lab)).upgrade(context)
        assert (await client.log_in())[:1] == b"\0"
        client.close()


async def test_what_is_sent_in_clear_behind_the_request_is_no_login(lab: Lab) -> None:
    client = await connect(lab)
    login = LoginRequest(USER, b"x" * 20)
    client.writer.write(
        frame_packet(TlsRequest().build(), 1)[0] + frame_packet(login.build(), 2)[0]
    )
    data = await client.reader.read()
    assert b"Access denied" not in data
    await until(lambda: len(lab.server.connections) == 0)


async def test_a_second_request_inside_is_refused(lab: Lab) -> None:
    client = await (await connect(lab)).upgrade()
    client.send(frame_packet(TlsRequest().build(), 2)[0])
    assert (await client.error())[0] == 1043
    client.close()


async def test_garbage_inside_the_stream_ends_it(
    lab: Lab, caplog: pytest.LogCaptureFixture
) -> None:
    client = await (await connect(lab)).upgrade()
    await client.log_in()
    client.writer.write(b"\x17\x03\x03\x00\x20" + bytes(32))
    await until(lambda: len(lab.server.connections) == 0)
    assert any("TLS:" in message for message in caplog.messages)


async def test_half_a_handshake_ends_by_the_login_timeout() -> None:
    async with Lab(connect_timeout=2) as lab:
        client = await connect(lab)
        client.writer.write(client.begin()[:100])
        assert await client.reader.read() == b""


async def test_require_secure_transport() -> None:
    async with Lab(require_secure_transport=True) as lab:
        plain = await lab.connect()
        error = parse_error(await plain.log_in())
        assert (error.errno, error.sqlstate) == (3159, "08004")
        assert await plain.closed()
        client = await (await connect(lab)).upgrade()
        assert (await client.log_in())[:1] == b"\0"
        client.close()


async def test_commands_in_one_record(lab: Lab) -> None:
    client = await (await connect(lab)).upgrade()
    await client.log_in()
    client.send(frame_packet(Ping().build(), 0)[0] * 50 + frame_packet(Query("x").build(), 0)[0])
    for _ in range(50):
        assert (await client.answer())[:1] == b"\0"
    assert (await client.error())[0] == 1064
    client.close()


async def test_a_dump(lab: Lab) -> None:
    client = await (await connect(lab)).upgrade()
    await client.log_in()
    lab.publish("0-1-1,0-1-2")
    replica = Replica(client)
    await replica.start()
    await replica.opening()
    assert await replica.groups(2) == "0-1-1,0-1-2"
    lab.publish("0-1-3")
    assert await replica.groups(1) == "0-1-3"
    client.close()


async def test_who_does_not_read_costs_no_more_than_without_tls(lab: Lab) -> None:
    big = "INSERT INTO t VALUES ('" + "x" * 100_000 + "')"
    for number in range(1, 201):
        gtid = Gtid(0, 1, number)
        lab.engine.append(transaction(gtid, big), gtid)
    lab.engine.sync()
    client = await (await connect(lab)).upgrade()
    await client.log_in()
    replica = Replica(client)
    await replica.start()
    (connection,) = lab.server.connections
    await until(lambda: connection.state == "Writing to net")
    session: Any = connection.ending
    assert session._channel.transport.get_write_buffer_size() < WRITE_BUFFER_BYTES + (2 << 20)
    await replica.opening()
    assert (await replica.groups(200)).endswith("0-1-200")
    client.close()


def files(path: Path, name: str) -> tuple[str, str]:
    key, certificate = self_signed()
    (path / f"{name}.key").write_bytes(key)
    (path / f"{name}.pem").write_bytes(certificate)
    return str(path / f"{name}.pem"), str(path / f"{name}.key")


def spoil(certificate: str) -> None:
    Path(certificate).write_text("no certificate")


async def test_a_certificate_from_a_file(tmp_path: Path) -> None:
    cert, key = files(tmp_path, "server")
    async with Lab(ssl_cert=cert, ssl_key=key) as lab:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = False
        context.load_verify_locations(cert)
        client = await (await connect(lab)).upgrade(context)
        ok = parse_ok(await client.log_in())
        assert ok.info == certificate_proof(
            native_password_hash(PASSWORD),
            client.greeting.salt,
            sha256(client.certificate).digest(),
        )
        client.close()


async def test_another_certificate_without_a_restart(tmp_path: Path) -> None:
    """Connections that have begun TLS keep theirs, and its proof; files that are no good change nothing."""
    cert, key = files(tmp_path, "server")
    async with Lab(users=ROOT, ssl_cert=cert, ssl_key=key) as lab:
        root = await lab.root()
        early = await (await connect(lab)).upgrade()
        seen = [early.certificate]
        files(tmp_path, "server")
        for is_spoilt in (False, True):
            if is_spoilt:
                spoil(cert)
                with pytest.raises(RemoteError, match="Failed to refresh SSL"):
                    await root.query("FLUSH SSL")
            else:
                await root.query("FLUSH SSL")
            late = await (await connect(lab)).upgrade()
            assert (await late.log_in("root", "pw"))[:1] == b"\0"
            seen.append(late.certificate)
        assert seen[0] != seen[1] == seen[2]
        ok = parse_ok(await early.log_in("root", "pw"))
        proof = sha256(early.certificate).digest()
        assert ok.info == certificate_proof(native_password_hash("pw"), early.greeting.salt, proof)


async def test_an_unknown_client_certificate_is_refused(tmp_path: Path) -> None:
    ca, ca_key = files(tmp_path, "ca")
    other, other_key = files(tmp_path, "other")
    async with Lab(ssl_ca=ca) as lab:
        for cert, key, good in ((ca, ca_key, True), (other, other_key, False)):
            context = client_context()
            context.maximum_version = ssl.TLSVersion.TLSv1_2  # tells within the handshake
            context.load_cert_chain(cert, key)
            client = await connect(lab)
            if good:
                await client.upgrade(context)
                assert (await client.log_in())[:1] == b"\0"
            else:
                with pytest.raises((ssl.SSLError, ConnectionError)):
                    await client.upgrade(context)
            client.close()


@pytest.mark.parametrize("text", [None, "no certificate", "-----BEGIN CERTIFICATE-----"])
def test_files_that_are_no_good(tmp_path: Path, text: str | None) -> None:
    path = tmp_path / "c.pem"
    if text is not None:
        path.write_text(text)
    config = Config(Path("/d"), ssl_cert=str(path), ssl_key=str(path))
    with pytest.raises(ConfigError, match="ssl_cert, ssl_key, ssl_ca: ") as found:
        Server(config, MemoryDirectory())
    assert str(path) in str(found.value)
    assert "Errno" not in str(found.value)


async def test_plain_clients_are_served_as_before(lab: Lab) -> None:
    client: Client = await lab.client()
    assert await client.query("SELECT 1") == [["1"]]


@pytest.mark.parametrize(
    ("now", "said"), [(0, ""), (-40, "is not valid yet"), (4000, "has expired")]
)
async def test_dates_of_a_certificate_are_told(
    now: int,
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """At the start, and by FLUSH SSL."""
    cert, key = files(tmp_path, "server")
    real = time.time
    monkeypatch.setattr("binlog_server.connections.tls.time.time", lambda: real() + now * 86400)

    def told() -> list[str]:
        return [one.message for one in caplog.records if "Clients that verify" in one.message]

    async with Lab(ssl_cert=cert, ssl_key=key) as lab:
        assert len(told()) == bool(said)
        lab.server.renewed_tls()()
        assert len(told()) == 2 * bool(said)
    assert all(said in one for one in told())
