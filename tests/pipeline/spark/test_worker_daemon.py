"""The daemon of Python workers, with a session that goes while it makes one."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tempfile

import pytest
from binlog_pipeline.spark.worker_daemon import Traces

MODULES = {"binlog_pipeline.spark.worker_daemon": False, "pyspark.daemon": True}


@pytest.mark.spark
@pytest.mark.parametrize(("module", "prints"), MODULES.items())
def test_a_worker_that_finds_nobody(module: str, prints: bool) -> None:
    """It says nothing, where that of Spark itself prints a stack."""
    with tempfile.TemporaryDirectory() as folder:  # a path that is short enough for a socket
        _make_some(module, folder, prints=prints)


def _make_some(module: str, folder: str, *, prints: bool) -> None:
    environment = {
        **os.environ,
        "PYTHON_UNIX_DOMAIN_ENABLED": "true",
        "PYTHON_WORKER_FACTORY_SOCK_DIR": folder,
    }
    with subprocess.Popen(
        [sys.executable, "-m", module, "pyspark.worker"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment,
    ) as daemon:
        assert daemon.stdin is not None
        assert daemon.stdout is not None
        assert daemon.stderr is not None
        size = int.from_bytes(daemon.stdout.read(4), "big")
        path = daemon.stdout.read(size).decode()
        for _ in range(3):
            with socket.socket(socket.AF_UNIX) as session:
                session.connect(path)
        said = daemon.stderr.readline() if prints else b""
        daemon.stdin.close()
        said += daemon.stderr.read()
        assert (b"BrokenPipeError" in said) is prints
        assert bool(said) is prints, said


def test_what_else_is_wrong_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    try:
        raise ValueError("of a worker")
    except ValueError:
        Traces.print_exc()
    assert "ValueError: of a worker" in capsys.readouterr().err


@pytest.mark.parametrize("error", [BrokenPipeError, ConnectionResetError, EOFError])
def test_that_nobody_is_there_is_not(
    error: type[Exception], capsys: pytest.CaptureFixture[str]
) -> None:
    try:
        raise error
    except error:
        Traces.print_exc()
    assert capsys.readouterr().err == ""
