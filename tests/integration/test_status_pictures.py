"""The status page of a relay with real replicas, one of them paused: it is red in a browser.

`BINLOG_TEST_WRITE=1` keeps its pictures: docs/status.png, docs/status-phone.png.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from binlog_server.testing.waiting import until
from tests.binlog_server.metrics.test_browser import Browser
from tests.integration.load import load
from tests.integration.test_metrics import metrics_port
from tests.kit.fixtures import MakeMariaDB, MakeRelay

__all__ = ["metrics_port"]  # a fixture

pytestmark = [pytest.mark.slow, pytest.mark.any_version, pytest.mark.timeout(300)]

DOCS = Path(__file__).parents[2] / "docs"
RED = '<span class="bad">has read nothing for '


def test_a_replica_that_is_paused(
    backend: object,
    make_relay: MakeRelay,
    make_replica: MakeMariaDB,
    metrics_port: int,
    tmp_path: Path,
) -> None:
    upstream, server = make_relay(
        server_id=10,
        metrics_listen=f"127.0.0.1:{metrics_port}",
        users={"repl": {"password": "secret", "grants": ["ALL PRIVILEGES"]}},
    )
    replicas = [make_replica().follow(server) for _ in range(2)]
    server.q("CREATE BINLOG LEASE etl FOR 48 HOUR")
    browser = Browser(tmp_path / "browser")
    try:
        with load(upstream) as running:
            running.wait_more(2000)  # the plots have a past
            replicas[0].pause()
            try:
                browser.open(f"http://localhost:{metrics_port}/")
                browser.be_wide()
                until(lambda: RED in browser.dom(), "a red replica", timeout=200)
                assert browser.dom().count(RED) == 1
                browser.picture(tmp_path / "status.png")
                browser.be_a_phone()
                browser.picture(tmp_path / "status-phone.png")
            finally:
                replicas[0].resume()
    finally:
        browser.close()
    if os.environ.get("BINLOG_TEST_WRITE"):
        for name in ("status.png", "status-phone.png"):
            (DOCS / name).write_bytes((tmp_path / name).read_bytes())
