"""Daemons of Python workers, with a session that goes while they make one, or have made one."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from binlog_pipeline.spark.session import end_planners
from binlog_pipeline.spark.worker_daemon import Traces

from binlog_server.testing.waiting import until
from tests.pipeline.stores import make_store
from tests.storage.groups import simple

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

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


@pytest.mark.spark
def test_planners_are_ended(spark: SparkSession, tmp_path: Path) -> None:
    """Workers of Spark's own daemons; the next read has others."""

    assert spark._jvm is not None
    own = spark._jvm.java.lang.ProcessHandle.current()

    def planners() -> int:
        lines = [
            worker.info().commandLine().orElse("")
            for daemon in own.children().toArray()
            for worker in daemon.children().toArray()
        ]
        # One without a command line has ended, and its daemon has not heard of it yet: nor has Spark.
        return sum("pyspark.sql.worker" in line or not line for line in lines)

    store = make_store(tmp_path / "store", simple(3))
    for _ in range(2):
        assert spark.read.format("binlog").load(str(store)).count() > 0
        assert planners() > 0
        end_planners(spark)
        until(lambda: not planners(), "no planner is left")


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
