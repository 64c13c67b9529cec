"""Over real HTTP, with a real upstream and a real replica: the numbers move as they should, and go when they should."""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterator

import pytest

from binlog_server.testing import ports
from binlog_server.testing.waiting import until
from tests.binlog_server.metrics.scrape import Scrape
from tests.integration.load import insert
from tests.kit.fixtures import MakeMariaDB, MakeRelay

LARGE_MB = 24  # more than the buffers of both sockets and of the server take


@pytest.fixture
def metrics_port() -> Iterator[int]:
    port = ports.lease()
    yield port
    ports.release(port)


class Monitoring:
    """Of the server whose metrics are on that port."""

    def __init__(self, port: int) -> None:
        self._port = port

    def get(self, path: str) -> tuple[int, str]:
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=20)
        try:
            connection.request("GET", path)
            answer = connection.getresponse()
            return answer.status, answer.read().decode()
        finally:
            connection.close()

    def scrape(self) -> Scrape:
        status, text = self.get("/metrics")
        assert status == 200
        return Scrape(text)

    def is_ready(self) -> bool:
        return self.get("/readyz") == (200, "ok\n")


@pytest.mark.any_version
def test_numbers_move(
    backend: object, make_relay: MakeRelay, make_replica: MakeMariaDB, metrics_port: int
) -> None:
    upstream, server = make_relay(
        server_id=99, metrics_listen=f"127.0.0.1:{metrics_port}", log_format="json"
    )
    monitoring = Monitoring(metrics_port)
    until(monitoring.is_ready, "ready")
    assert monitoring.get("/healthz") == (200, "ok\n")
    assert monitoring.scrape().labels("replica_lag_bytes") == []

    replica = make_replica().follow(server)
    series = {"server_id": str(replica.server_id), "account": f"{server.account.user}@%"}
    replica.wait_gtid(insert(upstream))
    until(lambda: monitoring.scrape().value("replica_lag_bytes", **series) == 0, "no lag")
    before = monitoring.scrape()
    replica.wait_gtid(insert(upstream, 50, size=200))
    after = monitoring.scrape()
    for name, at_least in (("commits_total", 50), ("binlog_written_bytes_total", 50 * 200)):
        assert after.value(name) - before.value(name) >= at_least
    for name, labels in (
        ("replica_sent_bytes_total", series),
        (
            "upstream_stored_bytes_total",
            {"connection": "", "upstream": f"{upstream.host}:{upstream.port}"},
        ),
    ):
        assert after.value(name, **labels) - before.value(name, **labels) >= 50 * 200
    assert after.value("fsync_seconds_count", file="redo") > before.value(
        "fsync_seconds_count", file="redo"
    )

    # A replica that stands still lags; when it goes on, it catches up.
    upstream.q("CREATE TABLE d.large (a LONGBLOB)")
    replica.wait_gtid(upstream.gtid_binlog_pos)
    replica.pause()
    for _ in range(LARGE_MB):
        upstream.q("INSERT INTO d.large VALUES (REPEAT('x', 1048576))")
    until(lambda: monitoring.scrape().value("replica_lag_bytes", **series) >= 1 << 20, "lag")
    until(lambda: monitoring.scrape().value("replica_unread_seconds", **series) > 0, "unread")
    replica.resume()
    until(lambda: monitoring.scrape().value("replica_lag_bytes", **series) == 0, "caught up")
    assert monitoring.scrape().value("replica_lag_seconds", **series) == 0
    until(lambda: monitoring.scrape().value("replica_unread_seconds", **series) == 0, "it reads")

    # The series go with the replica.
    replica.q("STOP SLAVE")
    until(lambda: monitoring.scrape().labels("replica_lag_bytes") == [], "the replica has gone")
    assert monitoring.scrape().labels("replica_sent_bytes_total") == []

    # Without its upstream the server is not ready; with it again it is.
    upstream.stop()
    until(lambda: not monitoring.is_ready(), "not ready")
    status, text = monitoring.get("/readyz")
    assert status == 503
    assert text.startswith(f"upstream {upstream.host}:{upstream.port}: not connected: ")
    assert monitoring.get("/healthz") == (200, "ok\n")
    assert monitoring.scrape().value("ready") == 0
    upstream.start()
    until(monitoring.is_ready, "ready again", timeout=40)

    server.stop()
    lines = [json.loads(line) for line in server.log().splitlines()]
    (started,) = [line for line in lines if line["message"].startswith("dump starts")]
    assert started["server_id"] == replica.server_id
    assert started["user"] == server.account.user
    assert all(line["ts"].endswith("Z") for line in lines)
    assert upstream.account.password not in server.log()
