"""The configuration read again while the server runs: what changes, what stays, and what is refused."""

from __future__ import annotations

import contextlib
import dataclasses
import logging
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
from binlog_protocol.errors import RemoteError

from binlog_server.accounts.replica_policy import ReplicaPolicy
from binlog_server.accounts.users import Account
from binlog_server.app.reload import Reload
from binlog_server.connections.certificate import self_signed
from binlog_server.settings.config import Config, ConfigError
from tests.binlog_server.lab import ROOT, Client, Lab, Replica, until


class File:
    """In the place of the configuration file: what it says is `config`, or an error."""

    def __init__(self, config: Config) -> None:
        self.config = config
        self.error: Exception | None = None
        self.reads = 0

    def __call__(self) -> Config:
        self.reads += 1
        if self.error is not None:
            raise self.error
        return self.config

    def says(self, **changes: Any) -> None:
        self.config = dataclasses.replace(self.config, **changes)


@contextlib.asynccontextmanager
async def serving(**options: Any) -> AsyncIterator[tuple[Lab, File, Client]]:
    async with Lab(users={**ROOT}, **options) as lab:
        file = File(lab.server.config)
        lab.server._reload = Reload(lab.server, file.config, file)
        yield lab, file, await lab.root()


async def warnings(client: Client) -> list[str]:
    return [str(row[2]) for row in await client.query("SHOW WARNINGS")]


@pytest.fixture
def log_level() -> Iterator[None]:
    before = logging.getLogger().level
    yield
    logging.getLogger().setLevel(before)


async def test_accounts_from_the_next_login_on() -> None:
    policy = ReplicaPolicy().changed({"max_lag_seconds": 600})
    async with serving() as (lab, file, root):
        file.says(users={**ROOT, "new": Account("pw", replica=policy)})
        with pytest.raises(RemoteError, match="Access denied"):
            await lab.client("new", "pw")
        await root.query("RELOAD CONFIGURATION")
        assert await warnings(root) == []
        await lab.client("new", "pw")
        file.says(users={**ROOT, "new": Account("other", replica=ReplicaPolicy())})
        await root.query("RELOAD CONFIGURATION")
        (connection,) = (c for c in lab.server.connections if c.user == "new")
        assert connection.policy == ReplicaPolicy()  # of one that is connected, too
        file.says(users={**ROOT})
        await root.query("RELOAD CONFIGURATION")
        with pytest.raises(RemoteError, match="Access denied"):
            await lab.client("new", "pw")
        assert await root.query("SELECT 1") == [["1"]]  # nobody who was there has gone


@pytest.mark.usefixtures("log_level")
async def test_what_set_global_can_change(caplog: pytest.LogCaptureFixture) -> None:
    async with serving() as (lab, file, root):
        await root.query("SET GLOBAL wait_timeout = 77")
        file.says(
            max_binlog_total_size=5 << 30, expire_logs_days=2.0, read_only=True, log_level="WARNING"
        )
        with caplog.at_level(logging.INFO):
            await root.query("RELOAD CONFIGURATION")
            assert logging.getLogger().level == logging.WARNING
        asked = "SELECT @@max_binlog_total_size, @@binlog_expire_logs_seconds, @@GLOBAL.wait_timeout, @@read_only"
        assert await root.query(asked) == [[str(5 << 30), "172800", "77", "1"]]
        changed = "expire_logs_days, log_level, max_binlog_total_size, read_only"
        assert f"the configuration was read again. Changed: {changed}" in caplog.text
        # In the other unit, and back to the default.
        file.says(expire_logs_days=0.0, binlog_expire_logs_seconds=60, read_only=None)
        await root.query("RELOAD CONFIGURATION")
        assert await root.query(asked) == [[str(5 << 30), "60", "77", "0"]]
        assert lab.server.config.log_level == "WARNING"


async def test_what_needs_a_restart_is_told_until_it_is_taken_back() -> None:
    async with serving() as (lab, file, root):
        before = file.config
        file.says(server_id=77, ssl=False, max_connections=50)
        for _ in range(2):  # the second time nothing else has changed
            await root.query("RELOAD CONFIGURATION")
            assert await warnings(root) == [
                "Variable 'server_id' is a read only variable",
                "Variable 'ssl' is a read only variable",
            ]
        assert lab.server.config.max_connections == 50
        assert (lab.server.config.server_id, lab.server.config.ssl) == (before.server_id, True)
        file.says(server_id=before.server_id, ssl=True)
        await root.query("RELOAD CONFIGURATION")
        assert await warnings(root) == []


async def test_a_file_that_is_wrong_changes_nothing(tmp_path: Path) -> None:
    async with serving() as (lab, file, root):
        before = lab.server.config
        file.error = ConfigError("server_id: 'x' is no whole number")
        with pytest.raises(
            RemoteError, match="nothing has changed: server_id: 'x' is no whole number"
        ):
            await root.query("RELOAD CONFIGURATION")
        file.error = None
        # Also one whose certificate is: all is read before anything is put to use.
        file.says(max_connections=51, ssl_cert=str(tmp_path / "no"), ssl_key=str(tmp_path / "no"))
        tls = lab.server.tls
        with pytest.raises(RemoteError, match="nothing has changed: ssl_cert, ssl_key"):
            await root.query("RELOAD CONFIGURATION")
        assert lab.server.config == before
        assert lab.server.tls is tls
        file.says(ssl_cert="", ssl_key="")
        await root.query("RELOAD CONFIGURATION")
        assert lab.server.config.max_connections == 51


async def test_a_renewed_certificate(tmp_path: Path) -> None:
    cert, key = tmp_path / "c.pem", tmp_path / "k.pem"

    def renew() -> None:
        for path, text in zip((key, cert), self_signed(), strict=True):
            path.write_bytes(text)

    renew()
    async with serving(ssl_cert=str(cert), ssl_key=str(key)) as (lab, _, root):
        seen = [lab.server.tls and lab.server.tls.fingerprint]
        renew()  # the file says the same, and its files do not
        await root.query("RELOAD CONFIGURATION")
        seen.append(lab.server.tls and lab.server.tls.fingerprint)
        assert len(set(seen)) == 2


async def test_a_certificate_that_was_made_here_stays() -> None:
    async with serving() as (lab, _, root):
        before = lab.server.tls
        await root.query("RELOAD CONFIGURATION")
        assert lab.server.tls is before


async def test_many_signals_are_two_reads(caplog: pytest.LogCaptureFixture) -> None:
    async with serving() as (lab, file, _):
        file.error = ConfigError("no")
        for _ in range(10):
            lab.server.reload_soon()
        await until(lambda: caplog.text.count("nothing has changed: no") == 2)
        assert file.reads == 2


async def test_shutdown() -> None:
    users = {**ROOT, "replay": Account("pw", frozenset({"BINLOG REPLAY"}))}
    async with Lab(users=users) as lab:
        root, replay = await lab.root(), await lab.client("replay", "pw")
        with pytest.raises(RemoteError, match="SHUTDOWN privilege") as denied:
            await replay.query("SHUTDOWN")
        assert denied.value.errno == 1227
        with pytest.raises(RemoteError, match="a part of a program"):
            await root.query("SHUTDOWN")
        told: list[bool] = []
        lab.server.end_process = told.append
        await root.query("SHUTDOWN")
        assert (await root.ask(b"\x08\0"))[:1] == b"\0"
        assert (await replay.ask(b"\x08\0"))[:1] == b"\xff"
        await root.query("SHUTDOWN WAIT FOR ALL SLAVES")
        await root.query("shutdown wait for all replicas")
        assert told == [False, False, True, True]


async def test_replicas_that_have_not_everything() -> None:
    """Clients leave, dumps stay until they have sent all that is durable, and the system has taken it."""
    async with Lab(users=ROOT) as lab:
        lab.publish("0-1-1,0-1-2")
        client, replica = await lab.root(), Replica(await lab.root())
        await replica.start()
        end = lab.engine.durable_end
        await until(lambda: any(c.sent == end for c in lab.server.connections))
        assert lab.server.replicas_behind() == 0
        (dump,) = (c for c in lab.server.connections if c.end_dump is not None)
        assert dump.sent == end
        dump.unsent = lambda: 1
        assert lab.server.replicas_behind() == 1
        dump.unsent, dump.sent = (lambda: 0), None
        assert lab.server.replicas_behind() == 1
        lab.server.connections.end_clients()
        assert await client.closed()
        assert [c.end_dump is not None for c in lab.server.connections] == [True]
