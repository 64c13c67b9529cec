"""Servers that are forked are what `python -m binlog_server` is."""

from __future__ import annotations

import os
import resource
import select
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping
from pathlib import Path

import pytest

from binlog_server.testing import ports, process
from binlog_server.testing.forks import Forked, Nursery, fork
from binlog_server.testing.waiting import POLL, until
from tests.kit import forks
from tests.kit.fixtures import MakeBinlogServer
from tests.kit.server import READY

ENVIRONMENT = {**os.environ, "PYTHONUNBUFFERED": "1"}


def started(log: Path, *arguments: str, environment: Mapping[str, str] = ENVIRONMENT) -> Forked:
    server = forks.start(arguments, log, environment)
    assert server is not None
    return server


def serve(folder: Path, port: int) -> list[str]:
    return ["serve", f"--directory={folder}", f"--listen=127.0.0.1:{port}"]


def test_its_life(binlog_server: MakeBinlogServer) -> None:
    server = binlog_server()
    assert isinstance(server._process, Forked)
    assert server.q("SELECT 1 AS one") == [{"one": 1}]
    with pytest.raises(subprocess.TimeoutExpired):
        server.wait_exit(POLL)
    first = server.pid
    server.restart()
    until(lambda: server.log().count(READY) == 2, "it is ready again")  # it takes logins before
    server.kill()
    assert not server.alive()
    assert server.wait_exit() == -signal.SIGKILL
    server.start()
    assert server.pid != first
    until(lambda: server.log().count(READY) == 3, "it is ready once more")


def test_options_that_only_a_new_interpreter_reads(binlog_server: MakeBinlogServer) -> None:
    server = binlog_server(environment={"PYTHONHASHSEED": "7"})
    assert isinstance(server._process, subprocess.Popen)


def test_exit_codes(tmp_path: Path) -> None:
    log = tmp_path / "log"
    assert started(log, "--version").wait(20) == 0
    assert started(log, "nonsense").wait(20) == 2
    version, *error = log.read_text().splitlines()
    assert version.startswith("binlog-server ")
    assert "'nonsense'" in error[-1]


def test_from_a_process_with_many_files(binlog_server: MakeBinlogServer) -> None:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (before[1], before[1]))
    files = [os.open(os.devnull, os.O_RDONLY) for _ in range(1100)]
    try:
        binlog_server().stop()
    finally:
        for file in files:
            os.close(file)
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


def test_run(tmp_path: Path) -> None:
    done = forks.run("--version")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("binlog-server ")
    add = ("user", "add", "u", "--directory", tmp_path)
    assert forks.run(*add, said="secret\n").returncode == 0
    wrong = forks.run("nonsense")
    assert (wrong.returncode, wrong.stdout) == (2, "")
    assert "'nonsense'" in wrong.stderr


def test_surroundings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of the test at this moment, not those that the forking process began with."""
    monkeypatch.chdir(tmp_path)
    soft, hard = before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft - 10, hard))
    port = ports.lease()
    try:
        log = tmp_path / "log"
        config = tmp_path / "here.toml"
        config.write_text("max_binlog_size = 4194304\n")
        server = started(log, *serve(Path("data"), port), "--config=here.toml")
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
    try:
        while READY not in process.read_log(log):
            assert server.poll() is None, process.read_log(log)
            threading.Event().wait(POLL)
        assert Path(f"/proc/{server.pid}/cwd").readlink() == tmp_path
        assert os.getsid(server.pid) == server.pid
        for number, path in ((0, Path(os.devnull)), (1, log), (2, log)):
            assert Path(f"/proc/{server.pid}/fd/{number}").readlink() == path
        limits = Path(f"/proc/{server.pid}/limits").read_text()
        # `serve` has raised the soft limit that it was given as far as the hard one lets it.
        assert f"Max open files            {hard:<21}{hard}" in limits
        assert (tmp_path / "data").is_dir()
    finally:
        server.kill()
        server.wait()
        ports.release(port)


def test_the_soft_limit_of_the_test(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Seen while it waits for its standard input: `serve` raises it as far as the hard one lets it."""
    assert started(tmp_path / "log", "--version").wait(20) == 0  # who forks was there before
    said = tmp_path / "said"
    os.mkfifo(said)
    monkeypatch.setattr(os, "devnull", str(said))
    soft, hard = before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft - 10, hard))
    try:
        version = started(tmp_path / "log", "--version")
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
    expected = f"Max open files            {soft - 10:<21}{hard}"
    until(lambda: expected in Path(f"/proc/{version.pid}/limits").read_text(), expected)
    os.close(os.open(said, os.O_WRONLY))  # returns when the other end is open, too
    assert version.wait(20) == 0


def test_not_from_a_thread(tmp_path: Path) -> None:
    found: list[object] = []
    thread = threading.Thread(
        target=lambda: found.append(forks.start(["--version"], tmp_path / "log", ENVIRONMENT))
    )
    thread.start()
    thread.join()
    assert found == [None]


def test_ends_with_the_one_that_has_forked_it(tmp_path: Path) -> None:
    nursery = Nursery(forks.PROGRAM, ENVIRONMENT)
    port = ports.lease()
    pid = nursery.ask(
        {
            "module": forks.MODULE,
            "arguments": serve(tmp_path / "data", port),
            "streams": [os.devnull, str(tmp_path / "log"), str(tmp_path / "log")],
            "environment": ENVIRONMENT,
            "directory": str(tmp_path),
            "open_files": resource.getrlimit(resource.RLIMIT_NOFILE),
        }
    )
    assert nursery.ask({"poll": pid}) is None
    end = os.pidfd_open(pid)
    try:
        nursery.process.kill()
        ended = select.poll()  # select() takes no numbers beyond 1023
        ended.register(end, select.POLLIN)
        assert ended.poll(20_000)
    finally:
        os.close(end)
        ports.release(port)
    nursery.process.wait(20)
    with pytest.raises(RuntimeError, match="nobody forks"):
        nursery.ask({"poll": pid})


def test_the_first_does_not_wait_for_what_the_others_have_ahead(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=os.pathsep)
    go, log = tmp_path / "go", tmp_path / "log"
    (tmp_path / "tell.py").write_text("import sys; print(hasattr(sys, 'loaded'))")
    program = f"""
import os, sys, time
from binlog_server.testing.forks import fork_for_others
def load():
    while not os.path.exists({str(go)!r}):
        time.sleep(0.01)
    sys.loaded = True
fork_for_others(load)
"""
    argv = [sys.executable, "-c", program]

    def told(count: int) -> list[str]:
        streams = Path(os.devnull), log, log
        assert fork(argv, "tell", (), streams, os.environ) is not None
        until(lambda: log.exists() and log.read_text().count("\n") == count, "it has told")
        return log.read_text().split()

    assert told(1) == ["False"]
    go.touch()
    assert told(2) == ["False", "True"]
