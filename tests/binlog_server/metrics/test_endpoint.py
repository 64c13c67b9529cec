"""What /metrics, /healthz and /readyz say of a server whose state is known."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import random
import re
import socket
import struct
import threading
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from binlog_protocol.connection.commands import Ping
from binlog_protocol.errors import MasterFatalError
from binlog_storage.binlog.store import IbbEngine
from binlog_storage.disk import disk
from binlog_storage.engine import Position, Stalled
from binlog_storage.engine.purge import PurgeHeld
from binlog_storage.engine.references import Holder
from binlog_storage.errors import DiskError
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from binlog_server.app.app import Server
from binlog_server.commits.room import AppendRoom
from binlog_server.metrics import health
from binlog_server.metrics.observed import Look
from binlog_server.metrics.standstill import KINDS, why_no_room
from binlog_server.relay.status import UpstreamStatus
from binlog_server.semi_sync.commits import Commits
from binlog_server.sql.status_variables import status_variables
from binlog_server.upstreams.master_info import MasterInfo
from binlog_server.upstreams.password import Password

from ..engines import FullEngine
from ..lab import DEADLINE_S, USER, Lab, gtids, until, within
from ..tls_client import TlsClient
from ..upstream import OPENING, FakeUpstream, Visit, groups
from ..upstream import PASSWORD as UPSTREAM_PASSWORD
from .scrape import Scrape, answer_of, exchange, get, metrics

LISTEN = "127.0.0.1:0"
REPLICA = {"server_id": "100", "account": f"{USER}@%"}


@pytest.fixture
async def lab() -> AsyncIterator[Lab]:
    async with Lab(metrics_listen=LISTEN) as running:
        yield running


async def scrape(lab: Lab) -> Scrape:
    return await metrics(lab.server.metrics_port)


async def test_off_by_default() -> None:
    async with Lab() as lab:
        assert lab.server.metrics_port == 0


async def test_commits(lab: Lab) -> None:
    before = await scrape(lab)
    lab.publish("0-1-1,0-1-2,0-1-3")
    after = await scrape(lab)
    assert after.value("commits_total") - before.value("commits_total") == 3
    assert after.value("group_commits_total") - before.value("group_commits_total") == 1
    written = "binlog_written_bytes_total"
    assert after.value(written) - before.value(written) > 300
    assert after.value("durable_gap_bytes") == 0
    syncs = "fsync_seconds_count"
    assert after.value(syncs, file="redo") - before.value(syncs, file="redo") == 1
    assert after.value("fsync_seconds_sum", file="redo") > 0
    for text in gtids("0-1-4,0-1-5"):
        lab.engine.append(b"x" * 100, text)
    assert (await scrape(lab)).value("durable_gap_bytes") > 200
    lab.engine.sync()


async def test_a_replica_comes_and_goes(lab: Lab) -> None:
    lab.publish("0-1-1,0-1-2")
    assert (await scrape(lab)).labels("replica_lag_bytes") == []
    replica = await lab.replica()
    await replica.opening()
    assert await replica.groups(2) == "0-1-1,0-1-2"
    connection = lab.server.connections.dumps_of(100)[0]
    await until(lambda: connection.sent == lab.engine.durable_end)
    found = await scrape(lab)
    assert found.labels("replica_lag_bytes") == [REPLICA]
    assert found.value("replica_lag_bytes", **REPLICA) == 0
    assert found.value("replica_lag_seconds", **REPLICA) == 0
    assert found.value("replica_file_number", **REPLICA) == 0
    assert found.value("replicas") == 1
    sent = found.value("replica_sent_bytes_total", **REPLICA)
    lab.publish("0-1-3")
    await replica.group()
    assert (await scrape(lab)).value("replica_sent_bytes_total", **REPLICA) > sent
    replica.client.close()
    await until(lambda: not lab.server.connections.dumps_of(100))
    gone = await scrape(lab)
    assert gone.labels("replica_lag_bytes") == gone.labels("replica_sent_bytes_total") == []
    assert gone.value("replicas") == 0
    assert gone.value("sent_bytes_total") > sent, "what the server has sent stays"


async def test_a_replica_that_is_behind(lab: Lab) -> None:
    lab.publish("0-1-1")
    middle = lab.engine.durable_end
    lab.publish("0-1-2,0-1-3")
    await (await lab.replica()).opening()
    connection = lab.server.connections.dumps_of(100)[0]
    await until(lambda: connection.sent == lab.engine.durable_end)
    connection.sent = middle  # it waits at the tail: nobody else writes this
    found = await scrape(lab)
    end = lab.engine.durable_end
    assert found.value("replica_lag_bytes", **REPLICA) == end.offset - middle.offset
    assert found.value("replica_lag_seconds", **REPLICA) > 1e6, "the groups are of 2023"
    connection.sent = None  # as while it looks for its start
    found = await scrape(lab)
    assert found.labels("replica_lag_bytes") == []
    assert found.labels("replica_sent_bytes_total") == [REPLICA]
    connection.sent = end


async def test_two_with_one_server_id_are_one_series(lab: Lab) -> None:
    first = await lab.replica()
    await first.opening()
    older = lab.server.connections.dumps_of(100)[0]
    older.ending = type("Stays", (), {"end": lambda *_: None, "shut_down": lambda *_: None})()
    second = await lab.replica()
    await second.opening()
    assert len(lab.server.connections.dumps_of(100)) == 2
    look = Look(lab.server)
    assert len(look.replicas) == 1
    assert look.dumps == 2
    found = await scrape(lab)
    assert found.labels("replica_lag_bytes") == [REPLICA]
    assert found.value("replicas_dropped_total", reason="server_id") == 1


async def test_connections_and_logins() -> None:
    async with Lab(metrics_listen=LISTEN, max_connections=10) as lab:
        client, *_ = [await lab.client() for _ in range(9)]
        await client.ask(Ping().build())
        guest = await lab.connect()
        await guest.log_in(USER, "wrong")
        assert await guest.closed()
        await until(lambda: len(lab.server.connections) == 9)
        silent = await lab.connect()
        assert (await scrape(lab)).value("pending_logins") == 1
        silent.close()
        await until(lambda: len(lab.server.connections) == 9)
        secured = await TlsClient.connect(lab.server.port)
        await secured.upgrade()
        assert (await secured.log_in())[:1] == b"\0"
        third = await lab.connect()
        await third.log_in()
        assert await third.closed()
        await until(lambda: lab.server.connections.aborted_connects == 3)
        found = await scrape(lab)
        values = {
            "connections": 10,
            "connections_max": 10,
            "tls_connections": 1,
            "connections_accepted_total": 13,
            "connections_refused_total": 1,
            "aborted_connects_total": 3,
            "failed_logins_total": 1,
            "tls_handshakes_begun_total": 1,
            "tls_handshakes_total": 1,
        }
        assert {name: found.value(name) for name in values} == values
        assert found.value("received_bytes_total") > 50
        client.close()
        await until(lambda: len(lab.server.connections) == 9)
        assert (await scrape(lab)).value("received_bytes_total") >= found.value(
            "received_bytes_total"
        )
        status = dict(status_variables(lab.server))
        names = ("Aborted_connects", "Access_denied_errors", "Connection_errors_max_connections")
        assert [status[name] for name in names] == ["3", "1", "1"]
        names = ("Max_used_connections", "Ssl_accepts", "Ssl_finished_accepts")
        assert [status[name] for name in names] == ["11", "1", "1"]
        assert int(status["Bytes_received"]) > 50
        assert int(status["Bytes_sent"]) > 100
        assert int(status["Binlog_bytes_written"]) >= 0
        secured.close()


async def test_leases_and_files(lab: Lab) -> None:
    lab.publish("0-1-1")
    lab.engine.flush()
    await asyncio.to_thread(lab.server.leases.create, 'a "name"\\', None, None, None)
    found = await scrape(lab)
    assert found.value("leases") == 1
    assert found.value("lease_held_bytes", lease='a "name"\\') == found.value("files_bytes")
    assert found.value("files") == len(lab.engine.files()) >= 2
    assert found.value("file_number", which="first") == 0
    assert found.value("file_number", which="last") >= 1
    await asyncio.to_thread(lab.server.leases.drop, 'a "name"\\')
    assert (await scrape(lab)).labels("lease_held_bytes") == []


async def test_replicas_do_not_notice_hostile_scrapers(lab: Lab, rng: random.Random) -> None:
    replica = await lab.replica()
    await replica.opening()
    port = lab.server.metrics_port
    idle = [await asyncio.open_connection("127.0.0.1", port) for _ in range(60)]
    for _, writer in idle:
        writer.write(rng.randbytes(rng.choice((0, 10, 20_000))))
    for number in range(1, 20):
        lab.publish(f"0-1-{number}")
        assert await replica.groups(1) == f"0-1-{number}"
    for _, writer in idle:
        writer.close()
    answers: list[bytes] = []
    async with asyncio.timeout(DEADLINE_S):
        while not answers:  # until the places of those that have gone are free
            with contextlib.suppress(ConnectionError):
                request = b"GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n"
                answers += filter(None, [await exchange(port, request)])
    assert answer_of(answers[0]).status == 200


async def test_names_that_are_no_utf8(lab: Lab) -> None:
    await (await lab.replica()).opening()
    (connection,) = lab.server.connections.dumps_of(100)
    connection.account = 'a\udcff"\n\\@%'
    for accept in ("", "application/openmetrics-text; version=1.0.0"):
        answer = await get(lab.server.metrics_port, "/metrics", accept)
        assert b'account="a\\\\udcff\\"\\n\\\\@%"' in answer.body


async def test_formats(lab: Lab) -> None:
    plain = await get(lab.server.metrics_port, "/metrics")
    assert plain.headers["content-type"].startswith("text/plain; version=0.0.4")
    accept = "application/openmetrics-text; version=1.0.0, text/plain;q=0.5"
    found = await get(lab.server.metrics_port, "/metrics", accept)
    assert found.headers["content-type"].startswith("application/openmetrics-text; version=1.0.0")
    assert found.body.endswith(b"# EOF\n")
    parsed = text_string_to_metric_families(found.body.decode())  # type: ignore[no-untyped-call]
    families = {family.name for family in parsed}
    assert {"binlog_server_commits", "process_cpu_seconds", "python_info"} <= families


@pytest.mark.parametrize("kind", ["text/plain", "application/openmetrics-text"])
async def test_formats_of_versions_that_are_none(kind: str, lab: Lab) -> None:
    for version in ("x", "1.a.0", "\xff", "9" * 5000):
        found = await get(lab.server.metrics_port, "/metrics", f"{kind};version={version}")
        assert found.status == 200
        assert found.headers["content-type"].startswith("text/plain; version=0.0.4")


async def test_many_at_once(lab: Lab) -> None:
    port = lab.server.metrics_port
    request = b"GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n"
    answers = await asyncio.gather(*(exchange(port, request) for _ in range(10)))
    assert [answer_of(answer).status for answer in answers] == [200] * 10


async def test_a_store_that_cannot_be_asked(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    def files() -> Any:
        raise DiskError("no such luck")

    monkeypatch.setattr(lab.engine, "files", files)
    lab.server.syncer.fail(DiskError("no such luck"))
    found = await scrape(lab)
    assert (found.value("store_failed"), found.value("ready")) == (1, 0)
    assert found.labels("files") == [], "what nobody knows is no number"
    monkeypatch.undo()
    assert (await scrape(lab)).value("files") >= 1


@pytest.mark.parametrize("client", ["waits", "has gone"])
async def test_stop_while_it_is_scraped(monkeypatch: pytest.MonkeyPatch, client: str) -> None:
    """The thread that reads the store has ended when the store is closed."""
    reading, go_on = threading.Event(), threading.Event()
    async with Lab(metrics_listen=LISTEN) as lab:
        files, listener = lab.engine.files, lab.server._endpoint
        assert listener is not None

        def slow() -> Any:
            reading.set()
            go_on.wait(10)
            return files()

        monkeypatch.setattr(lab.engine, "files", slow)
        answer, asking = await asyncio.open_connection("127.0.0.1", lab.server.metrics_port)
        asking.write(b"GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n")
        await asyncio.to_thread(reading.wait, 10)
        # One that has gone does not wait for the answer, as one does that has closed its side only.
        if client == "has gone":
            reset = struct.pack("ii", 1, 0)
            asking.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, reset)
            asking.transport.abort()
            await until(lambda: not listener._listener._open)
        stopping = asyncio.ensure_future(lab.stop())
        await until(lambda: not listener._listener._open)  # before that an answer comes in time
        assert not stopping.done()
        go_on.set()
        await within(stopping)
        assert await within(answer.read()) == b""
        asking.close()


# --- health ---


async def health_of(lab: Lab) -> dict[str, tuple[int, str]]:
    """Status and body of both, by path."""
    answers = {}
    for path in ("/healthz", "/readyz"):
        answer = await get(lab.server.metrics_port, path)
        answers[path] = answer.status, answer.body.decode()
    return answers


OK = (200, "ok\n")


async def test_well(lab: Lab) -> None:
    assert await health_of(lab) == {"/healthz": OK, "/readyz": OK}
    found = await scrape(lab)
    assert (found.value("ready"), found.value("store_failed")) == (1, 0)


async def test_a_store_that_has_failed(lab: Lab) -> None:
    lab.server.syncer.fail(DiskError("EIO\nno"))
    failed = (503, "store: it accepts nothing more: EIO no\n")
    assert await health_of(lab) == {"/healthz": failed, "/readyz": failed}
    found = await scrape(lab)
    assert (found.value("ready"), found.value("store_failed")) == (0, 1)


async def test_a_disk_that_is_full(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = FullEngine()
    engine.room = False
    monkeypatch.setattr(lab.server, "room", AppendRoom(engine))
    waiting = asyncio.ensure_future(lab.server.room.wait())
    await until(lambda: lab.server.room.waiting_s > 0)
    assert await health_of(lab) == {"/healthz": OK, "/readyz": OK}, "that is back-pressure"
    monkeypatch.setattr(health, "ROOM_WAIT_S", 0.0)
    status, text = (await health_of(lab))["/readyz"]
    assert (status, "the disk is full or slow" in text) == (503, True)
    found = await scrape(lab)
    assert (found.value("room_waits_total"), found.value("ready")) == (1, 0)
    assert found.value("room_wait_seconds") > 0
    engine.room = True
    await within(waiting)
    assert lab.server.room.waiting_s == 0


def hanging(server: Server, since: float) -> None:
    server.syncer._began = since


def failing(server: Server, since: float, what: str = "publication") -> None:
    found = [Stalled(what, time.monotonic() - since, "cannot write x")]
    server.engine.stalled = lambda: found  # type: ignore[method-assign]


def no_answer(server: Server, since: float) -> None:
    disk._under_way[-1] = disk.DiskCall(since, "sync", Path("/data/binlog-server.redo"))


def not_stored(server: Server, since: float) -> None:
    status = UpstreamStatus("up:3306", connected=True, storing=True, storing_since=since)
    server.relay = SimpleNamespace(statuses=[status], close=server.relay.close)  # type: ignore[assignment]


def not_acknowledged(server: Server, since: float) -> None:
    server.config = dataclasses.replace(
        server.config,
        rpl_semi_sync_master_enabled=True,
        rpl_semi_sync_master_timeout=3_600_000,
        rpl_semi_sync_master_wait_for_slave_count=2,
    )
    server.semi_sync.close()
    server.semi_sync._clock = lambda: since
    server.semi_sync.when_acknowledged(Position(9, 9), lambda: None)
    server.semi_sync._clock = time.monotonic


def begins_anew(server: Server, since: float) -> None:
    assert isinstance(server.engine, IbbEngine)
    server.engine.references.age |= 1
    server.engine.references.closed_at = since


def not_looked_at(server: Server, since: float) -> None:
    server.rounds[0].since = since


@pytest.mark.parametrize(
    ("what", "begin", "why"),
    [
        (
            "semi_sync",
            not_acknowledged,
            "commits wait until replicas acknowledge them: 2 must (rpl_semi_sync_master_wait_for_slave_count), "
            "0 with semi-sync are connected. It ends by rpl_semi_sync_master_timeout, 3600000 ms, or SET GLOBAL "
            "rpl_semi_sync_master_enabled=OFF",
        ),
        ("reset", begins_anew, "RESET MASTER is at work: commits and dumps wait for its end"),
        ("leases", not_looked_at, "the look at leases does not come to an end"),
        ("sync", hanging, "commits wait for a sync of the redo log"),
        ("publication", failing, "cannot write x"),
        ("disk", no_answer, "the disk does not answer: sync /data/binlog-server.redo"),
        ("upstream", not_stored, "what up:3306 has sent is not stored"),
    ],
)
async def test_what_stands_still_is_told(
    lab: Lab, what: str, begin: Callable[[Server, float], None], why: str
) -> None:
    """Not for moments, as all day; for net_read_timeout, with the reason."""
    limit_s = lab.server.config.net_read_timeout
    try:
        begin(lab.server, time.monotonic() - limit_s / 2)
        assert (await health_of(lab))["/readyz"] == OK
        begin(lab.server, time.monotonic() - limit_s - 1)
        status, text = (await health_of(lab))["/readyz"]
        told = re.fullmatch(rf"{what}: stands still for (\d+) s: (.*)\n", text)
        assert told is not None, text
        assert (status, told[2]) == (503, why)
        assert limit_s < int(told[1]) < limit_s + 60, "the seconds since it began"
        found = await scrape(lab)
        assert found.value("ready") == 0
        stalled = {kind: found.value("stalled_seconds", what=kind) for kind in KINDS}
        assert stalled.pop(what) >= limit_s
        assert not any(stalled.values())
    finally:
        disk._under_way.pop(-1, None)
        lab.server.syncer._began = 0.0
        assert isinstance(lab.server.engine, IbbEngine)
        lab.server.engine.references.age &= ~1


async def test_changes_of_rows_are_waited_for_as_long_as_commits(lab: Lab) -> None:
    failing(lab.server, time.monotonic() - health.ROOM_WAIT_S / 2, "rows")
    assert (await health_of(lab))["/readyz"] == OK
    failing(lab.server, time.monotonic() - health.ROOM_WAIT_S, "rows")
    assert (await health_of(lab))["/readyz"] == (
        503,
        "rows: stands still for 10 s: cannot write x\n",
    )


async def test_a_commit_that_no_replica_acknowledges(lab: Lab) -> None:
    """From the client's COMMIT to /readyz and back."""
    client = await lab.replica()
    try:
        lab.server.config = dataclasses.replace(
            lab.server.config,
            rpl_semi_sync_master_enabled=True,
            rpl_semi_sync_master_timeout=3_600_000,
        )
        lab.publish("0-1-1")
        commits = Commits(lab.engine, lab.server.syncer, lab.server.semi_sync)
        answered = asyncio.Event()
        commits.on_commit(lambda error: answered.set())
        await until(lambda: lab.server.semi_sync.waiting_s > 0)
        assert (await health_of(lab))["/readyz"] == OK
        limit_s = lab.server.config.net_read_timeout
        lab.server.semi_sync._clock = lambda: time.monotonic() + limit_s
        status, text = (await health_of(lab))["/readyz"]
        assert status == 503
        assert text.startswith(f"semi_sync: stands still for {limit_s} s: commits wait until")
        found = await scrape(lab)
        assert found.value("ready") == 0
        assert found.value("stalled_seconds", what="semi_sync") >= limit_s
        lab.server.config = dataclasses.replace(
            lab.server.config, rpl_semi_sync_master_enabled=False
        )
        lab.server.semi_sync.changed()
        await within(answered.wait())
        assert lab.server.semi_sync.waiting_s == 0
    finally:
        client.client.close()


async def test_commits_that_wait_for_reset_master(lab: Lab) -> None:
    """The disk is not to blame."""
    begins_anew(lab.server, time.monotonic())
    assert isinstance(lab.server.engine, IbbEngine)
    try:
        assert why_no_room(lab.server.engine.stalled()).startswith("RESET MASTER is at work")
    finally:
        lab.server.engine.references.age += 1
    assert why_no_room(lab.server.engine.stalled()) == "the disk is full or slow"


@pytest.mark.parametrize(
    ("what", "why"),
    [
        ((), "the disk is full or slow"),
        (("room",), "the disk is full or slow: of room"),
        (("tables",), "the redo log is full: of tables"),
        (("flusher", "scrub"), "the redo log is full: of flusher"),
        (("tables", "room"), "the disk is full or slow: of room"),
        (("room", "tables", "backup"), "of backup"),
    ],
)
def test_who_is_to_blame_for_room(what: tuple[str, ...], why: str) -> None:
    assert why_no_room([Stalled(one, 1.0, f"of {one}") for one in what]) == why


async def test_room_and_certificate(lab: Lab, tmp_path: Path) -> None:
    lab.server.config = dataclasses.replace(lab.server.config, binlog_directory=tmp_path)
    held = PurgeHeld(5000, time.time() - 100, Holder("it is held", "lease", "x"))
    lab.server.engine.purge_held = lambda: held  # type: ignore[method-assign]
    found = await scrape(lab)
    assert found.value("disk_free_bytes") > 0
    assert found.value("purge_held_bytes", kind="lease", name="x") == 5000
    assert 100 <= found.value("purge_held_age_seconds", kind="lease", name="x") < 200
    assert found.value("tls_certificate_expiry_timestamp_seconds") > time.time() + 86400


async def test_an_upstream_comes_and_goes() -> None:
    visits = [Visit([*OPENING, *groups("0-1-1")]), Visit([*OPENING], end="hold")]
    async with FakeUpstream(visits) as upstream:
        name = f"127.0.0.1:{upstream.port}"
        series = {"connection": "", "upstream": name}
        address = MasterInfo(
            "127.0.0.1", upstream.port, "relay", Password(UPSTREAM_PASSWORD), ssl=False
        )
        async with Lab(metrics_listen=LISTEN, upstream={"": address}, server_id=10) as lab:
            await until(lambda: lab.server.upstreams[0].last_stored > 0)
            assert (await health_of(lab))["/readyz"] == OK
            found = await scrape(lab)
            values = {
                "upstream_connected": 1.0,
                "upstream_stopped": 0.0,
                "upstream_connects_total": 1.0,
                "upstream_losses_total": 0.0,
            }
            assert {n: found.value(n, **series) for n in values} == values
            assert found.value("upstream_stored_bytes_total", **series) > 100
            heard = found.value("upstream_last_heard_timestamp_seconds", **series)
            assert heard >= found.value("upstream_last_stored_timestamp_seconds", **series) > 0
            assert found.labels("upstream_lag_seconds") == [series]
            assert status_variables(lab.server)["Slaves_running"] == "1"


@pytest.mark.parametrize(
    ("visit", "stopped", "words"),
    [
        (Visit(OPENING, end=MasterFatalError("purged")), 1, "1236 (HY000): purged"),
        (Visit(deny=True), 0, "1045"),
    ],
)
async def test_an_upstream_that_refuses(visit: Visit, stopped: int, words: str) -> None:
    async with FakeUpstream([visit] * 20) as upstream:
        name = f"127.0.0.1:{upstream.port}"
        series = {"connection": "", "upstream": name}
        address = MasterInfo(
            "127.0.0.1", upstream.port, "relay", Password(UPSTREAM_PASSWORD), ssl=False
        )
        async with Lab(metrics_listen=LISTEN, upstream={"": address}, server_id=10) as lab:
            status = lab.server.upstreams[0]
            await until(lambda: status.stopped or status.losses > 0)
            answers = await health_of(lab)
            assert answers["/healthz"] == OK
            code, text = answers["/readyz"]
            assert code == 503
            assert text.startswith(f"upstream {name}: not connected: ")
            assert words in text
            assert UPSTREAM_PASSWORD not in text
            found = await scrape(lab)
            assert found.value("upstream_stopped", **series) == stopped
            assert found.labels("upstream_lag_seconds") == []


async def test_not_ready_while_it_stops(lab: Lab) -> None:
    lab.server.is_listening = False
    assert (await health_of(lab))["/readyz"] == (503, "listener: it does not accept clients\n")
    lab.server.is_listening = True


async def test_where_it_cannot_listen(lab: Lab) -> None:
    other = Lab(metrics_listen=f"127.0.0.1:{lab.server.metrics_port}")
    with pytest.raises(OSError):
        await other.server.start()
    other.directory.close()
