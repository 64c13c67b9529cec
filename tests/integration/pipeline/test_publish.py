"""`publish` from a real MariaDB; tests/pipeline/jobs/test_publish.py has the rest."""

from __future__ import annotations

import json

import pytest
from binlog_pipeline.cli import main
from confluent_kafka import Producer

from tests.kit.backends import Backend
from tests.kit.fixtures import MakeMariaDB
from tests.pipeline.jobs.test_publish import consumed, mock_brokers


@pytest.mark.any_version
def test_a_mariadb_past_its_restart(
    backend: Backend,
    make_upstream: MakeMariaDB,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each row once; one that was prepared before is published when it is committed."""
    upstream = make_upstream("--binlog-row-metadata=FULL")
    mock = Producer({"bootstrap.servers": "mock:1", "test.mock.num.brokers": 1, "log_level": 0})
    brokers = mock_brokers(mock)

    login = upstream.account
    monkeypatch.setenv("PW", login.password)
    source = f"mariadb://{login.user}@{upstream.host}:{upstream.port}"

    def publish() -> tuple[int, str]:
        arguments = (
            "publish",
            source,
            "--password-env",
            "PW",
            "--tls",
            "disabled",
            "--kafka",
            brokers,
        )
        assert main([*arguments, "--topic-prefix", "p", "--table", "d.t", "--json"]) == 0
        told = json.loads(capsys.readouterr().out)
        return told["messages"], told["position"]

    upstream.script("CREATE DATABASE d", "CREATE TABLE d.t (a INT PRIMARY KEY)")
    upstream.script("INSERT INTO d.t VALUES (1)")
    upstream.script("XA START 'x'", "INSERT INTO d.t VALUES (2)", "XA END 'x'", "XA PREPARE 'x'")
    assert publish() == (3, upstream.gtid_binlog_pos)  # two are CREATE DATABASE and TABLE
    upstream.restart()
    upstream.script("INSERT INTO d.t VALUES (3)", "XA COMMIT 'x'")
    assert publish() == (2, upstream.gtid_binlog_pos)
    assert publish()[0] == 0
    found = {value["after"]["a"]: value for _, value, _ in consumed(brokers, "p.d.t")}
    assert sorted(found) == [1, 2, 3]
    assert found[2]["transaction"]["id"] == upstream.gtid_binlog_pos
