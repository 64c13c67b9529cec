"""On more than one machine: a cluster of processes, with our code as a zip file, and Spark Connect."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from binlog_pipeline.cli.package import make_zip
from binlog_protocol.gtid import Gtid

from tests.pipeline.stores import make_store
from tests.storage.groups import group

JOB = Path(__file__).parents[1] / "jobs" / "submitted.py"
GROUPS = 10_000


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return make_store(tmp_path / "store", (group(Gtid(0, 1, i), 400) for i in range(1, GROUPS + 1)))


def run(argv: list[str], tmp_path: Path, **environment: str) -> dict[str, Any]:
    """What the job prints."""
    known = {"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
    clean = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        argv,
        env=clean | known | environment,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    found: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return found


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.timeout(300)
def test_submitted_to_a_cluster(store: Path, tmp_path: Path) -> None:
    package = tmp_path / "pipeline.zip"
    make_zip(package)
    submit = str(Path(sys.executable).parent / "spark-submit")
    settings = ["--conf", "spark.ui.enabled=false", "--py-files", str(package)]
    found = run(
        [
            submit,
            "--master",
            "local-cluster[2,1,1024]",
            *settings,
            str(JOB),
            str(store),
            str(tmp_path),
        ],
        tmp_path,
        SPARK_WORKER_DIR=str(tmp_path / "work"),
    )
    assert (found["batch"], found["stream"], found["job"]) == (GROUPS, GROUPS, GROUPS)
    assert found["pipeline"].startswith(str(package)), "the installed package was used"


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.timeout(300)
def test_spark_connect(store: Path, tmp_path: Path) -> None:
    found = run(
        [sys.executable, str(JOB), str(store), str(tmp_path)],
        tmp_path,
        SPARK_REMOTE="local[2]",
    )
    assert (found["batch"], found["stream"], found["job"]) == (GROUPS, GROUPS, GROUPS)
    assert found["kind"].startswith("pyspark.sql.connect.")
