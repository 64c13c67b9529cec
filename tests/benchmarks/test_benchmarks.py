"""The benchmarks run and print what is promised. Their numbers are no test's business."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
GROUPS = 2000


def benchmarks(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "benchmarks", *arguments],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
    )


def test_lists_them() -> None:
    done = benchmarks()
    assert done.returncode == 0, done.stderr
    assert [line.split()[0] for line in done.stdout.splitlines() if line.startswith("  ")] == [
        "commit",
        "fanout",
        "large-transaction",
        "recovery",
    ]


def test_unknown_name() -> None:
    done = benchmarks("speed", "--json")
    assert done.returncode == 2
    assert done.stdout == ""
    assert "'speed'" in done.stderr
    assert "  fanout " in done.stderr


@pytest.mark.parametrize("clients", ["0", "1,", "many"])
def test_wrong_option(clients: str) -> None:
    done = benchmarks("fanout", "--clients", clients)
    assert done.returncode == 2
    assert "--clients" in done.stderr


@pytest.mark.replica
def test_fanout() -> None:
    done = benchmarks("fanout", "--json", f"--groups={GROUPS}", "--rounds=1")
    assert done.returncode == 0, done.stderr
    result: dict[str, Any] = json.loads(done.stdout)
    for key in ("ours_mb_s", "mariadbd_mb_s", "ratio", "ours_events_s"):
        assert list(result[key]) == ["1", "16"], key
        assert all(value > 0 for value in result[key].values()), key
    assert result["history"]["groups"] == GROUPS
