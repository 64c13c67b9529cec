"""Our image by testcontainers: the example of docs/pytest.md, options, and how it ends."""

from __future__ import annotations

from typing import Any

import pytest
from testcontainers.core.container import DockerContainer

from binlog_server.testing import server_container
from binlog_server.testing.server_container import BinlogServerContainer
from binlog_server.testing.waiting import until
from tests.binlog_server.testing.examples import ExampleTests, examples
from tests.kit import backends, images

pytestmark = [pytest.mark.replica, pytest.mark.long, pytest.mark.timeout(400)]
IMAGE = "binlog-test/server:dev"


@pytest.fixture(scope="module", autouse=True)
def _image() -> None:
    images.build("server")


@pytest.mark.parametrize("example", examples("BinlogServerContainer"))
def test_the_example_of_the_page(request: pytest.FixtureRequest, example: str) -> None:
    backends.pick()
    assert ExampleTests(request).run(example.replace('"binlog-server"', f'"{IMAGE}"')) == 1


def test_it_dies_as_ordered_and_comes_again() -> None:
    options = {"gtid_domain_id": 3, "users": {"other": {"password": 'a "b\\', "grants": ["ALL"]}}}
    with BinlogServerContainer(IMAGE, options=options) as server:
        server.sql("CREATE DATABASE shop")
        with server.connect(user="other", password='a "b\\'):
            assert [one.user for one in server.connections] == ["other"]
        assert server.get_connection_url() == server.url
        server.sql("CREATE BINLOG FAULT last DO die STATEMENT='SELECT 7'")
        with pytest.raises(Exception, match="Lost connection"):
            server.sql("SELECT 7")
        container = server.get_wrapped_container()
        assert container.wait(timeout=30)["StatusCode"] == 137
        assert "binlog_faults: " in server.log()
        container.start()
        until(server.accepts_logins)
        assert server.gtid_binlog_pos == "3-1-1"


def test_one_that_cannot_be_reached_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    start = DockerContainer.start

    def start_and_be_ready(server: BinlogServerContainer) -> Any:
        """So that the time limit is that of logins alone, however long a busy machine takes to start it."""
        started = start(server)
        until(lambda: "ready for connections" in server.log(), "a server that is ready", 60)
        return started

    monkeypatch.setattr(DockerContainer, "start", start_and_be_ready)
    monkeypatch.setattr(server_container, "_START_S", 1)
    monkeypatch.setattr(BinlogServerContainer, "port", 1)  # nobody is there
    with (
        pytest.raises(TimeoutError, match=r"Can't connect .*(?s:.*)ready for connections"),
        BinlogServerContainer(IMAGE),
    ):
        pass


def test_one_that_ends_while_it_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """It has no port then: the next look tells of its end."""
    with BinlogServerContainer(IMAGE) as server:
        reload, container = server.reload, server.get_wrapped_container()

        def kill_behind_the_look() -> None:
            reload()
            monkeypatch.undo()
            container.kill()
            container.wait(timeout=30)

        monkeypatch.setattr(server, "reload", kill_behind_the_look)
        assert not server.accepts_logins()
        with pytest.raises(RuntimeError, match="has ended"):
            server.accepts_logins()


def test_one_that_cannot_start_says_why() -> None:
    server = BinlogServerContainer(IMAGE, options={"no_such_option": 1})
    with pytest.raises(RuntimeError, match="no_such_option"):
        server.start()
