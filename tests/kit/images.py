"""Images of docker/, for tests that run them."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess

import pytest

from binlog_server.testing import containers, rundir
from tests.house import ROOT

DOCKER = ROOT / "docker"


def compose() -> list[str]:
    """`docker compose`, or the older program; empty where there is neither."""
    asked = subprocess.run(["docker", "compose", "version"], capture_output=True, check=False)
    if asked.returncode == 0:
        return ["docker", "compose"]
    return [found] if (found := shutil.which("docker-compose")) else []


def build(*names: str) -> None:
    """Build those that are not there as they are now. Without an engine the test is skipped, in CI it fails."""
    if not compose() or containers.why_no_image("none") not in (None, "no image none"):
        reason = "no docker engine, or no docker-compose (make test sets both up)"
        if os.environ.get("CI") == "true":
            pytest.fail(reason, pytrace=False)
        pytest.skip(reason)
    with (rundir.base() / "images.lock").open(
        "w"
    ) as lock:  # another worker may be at it: it is built once
        fcntl.flock(lock, fcntl.LOCK_EX)
        subprocess.run([str(DOCKER / "make-images.sh"), *names], check=True)
