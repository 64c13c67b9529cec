"""docs/examples/cdc-consumer (README.md), as somebody who copies it runs it: the scenario finds the bug."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

from tests.house import ROOT

EXAMPLE = ROOT / "docs/examples/cdc-consumer"


def test_the_scenario_finds_the_bug(tmp_path: Path) -> None:
    copy = shutil.copytree(EXAMPLE, tmp_path / "consumer")
    argv = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-W",
        "ignore",
        "-p",
        "binlog_server.pytest_plugin",
    ]
    ran = subprocess.run(argv, cwd=copy, capture_output=True, text=True, timeout=200)
    assert ran.returncode == 0, ran.stdout
    assert "3 passed, 1 xfailed" in ran.stdout
