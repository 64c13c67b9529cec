"""Masters of tests in processes of their own, and the examples of the page that need one."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from binlog_protocol.errors import BadValue, ProtocolError, ServerError
from binlog_storage.errors import StorageError

from binlog_server.testing import master_process, running_master
from binlog_server.testing.forks import Forked, fork
from binlog_server.testing.master_process import MasterEnded, MasterProcess
from binlog_server.testing.waiting import until
from tests.binlog_server.testing.examples import ExampleTests, examples
from tests.binlog_server.testing.test_master import group


@pytest.fixture(scope="module")
def master() -> Iterator[MasterProcess]:
    with running_master(process=True) as master:
        assert isinstance(master, MasterProcess)
        yield master


def test_a_further_one_is_forked(master: MasterProcess) -> None:
    """By a process that has imported the server: a start of an interpreter takes ten times as long."""
    first = master._process
    assert isinstance(first, Forked)
    with running_master(process=True, server_id=7) as other:
        assert isinstance(other, MasterProcess)
        second = other._process
        assert isinstance(second, Forked)
        assert second._nursery is first._nursery
        assert other.sql("SELECT @@server_id AS id") == [{"id": 7}]
    for_python = {**os.environ, "PYTHONHASHSEED": "7"}
    assert fork(master_process._ARGV, "binlog_server", (), (), for_python) is None


def test_the_process_that_forks_may_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        master_process, "_ARGV", (*master_process._ARGV[:1], "-Xutf8", *master_process._ARGV[1:])
    )
    with running_master(process=True) as master:
        assert isinstance(master, MasterProcess)
        forked = master._process
        assert isinstance(forked, Forked)
        forked._nursery.process.kill()
        assert forked.wait(20) == -signal.SIGKILL
        master.start()
        assert master.sql("SELECT 1 AS one") == [{"one": 1}]


def test_what_it_is_told(master: MasterProcess, tmp_path: Path) -> None:
    master.sql("CREATE DATABASE shop; CREATE TABLE shop.t (a INT PRIMARY KEY)")
    assert master.rows("shop.t", [{"a": 1}]) == "0-1-3"
    assert master.raw(group("7-9-1")) == "7-9-1"
    refused: list[tuple[Callable[[], str], type[Exception]]] = [
        (lambda: master.rows("shop.t", [{"a": 1}]), ServerError),
        (lambda: master.rows("x.y", [{"a": "x"}], columns={"a": "INT"}), BadValue),
        (lambda: master.raw(group("7-9-2")[:2]), ProtocolError),
        (lambda: master.load(tmp_path), StorageError),
        (lambda: master.raw(tmp_path / "no such file"), FileNotFoundError),
    ]
    for wrong, error in refused:
        with pytest.raises(error):
            wrong()
    assert master.sql("SELECT * FROM shop.t") == [{"a": 1}]
    assert set(master.gtid_binlog_pos.split(",")) == {"0-1-3", "7-9-1"}


def test_it_is_paused_resumed_and_stopped(master: MasterProcess) -> None:
    before = master.gtid_binlog_pos
    master.pause()
    state = Path(f"/proc/{master.pid}/stat")
    until(lambda: state.read_text().split()[2] == "T", "it stands still")
    with pytest.raises(RuntimeError, match=r"is paused, and answers nothing: resume\(\)"):
        master.rows("shop.t", [{"a": 77}])
    master.resume()
    assert master.gtid_binlog_pos == before
    master.pause()
    master.stop()
    assert not master.alive()
    assert master.log().count("shutdown complete") == 1, "in order, whatever stood still"


def test_one_that_does_not_start(tmp_path: Path) -> None:
    (tmp_path / "something else").touch()
    with (
        pytest.raises(StorageError, match="is not a binlog store"),
        running_master(process=True, directory=tmp_path),
    ):
        pass


@pytest.mark.parametrize("example", examples("process=True"))
def test_the_example_of_the_page(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, example: str
) -> None:
    """It is killed, and started again."""
    ended = []
    kill = MasterProcess.kill

    def killed(master: MasterProcess) -> None:
        kill(master)
        with pytest.raises(MasterEnded, match="ready for connections"):
            master.raw(group("8-9-1"))
        ended.append(master)

    monkeypatch.setattr(MasterProcess, "kill", killed)
    assert ExampleTests(request).run(example) == len(ended) == 1
