"""The versions of clients that docs/compatibility.md names are those that run here, or older."""

from __future__ import annotations

import importlib.metadata
import json
import os
import re
import subprocess

import pytest

from tests.binlog_server.compatibility.features import TRIED, Tried
from tests.integration.clients.test_connectors import of_node


def installed(tried: Tried) -> str:
    """Empty if it is not."""
    if tried.of == "debian":
        argv = ["dpkg-query", "-W", "-f", "${Version}", tried.package]
        done = subprocess.run(argv, capture_output=True, text=True, check=False)
        return done.stdout.rpartition(":")[2]
    if tried.of == "node":
        package = of_node(f"node_modules/{tried.package}/package.json")
        return str(json.loads(package.read_text())["version"])
    try:
        return importlib.metadata.version(tried.package)
    except importlib.metadata.PackageNotFoundError:
        return ""


def numbers(version: str) -> list[int]:
    found = re.match(r"[0-9.]+", version)
    return [int(number) for number in found[0].strip(".").split(".")] if found else []


@pytest.mark.parametrize("tried", [pytest.param(t, id=t.program) for t in TRIED])
def test_version(tried: Tried) -> None:
    version = installed(tried)
    is_of_slow_suite = tried.program.startswith("Go ")
    if not version and (is_of_slow_suite or os.environ.get("CI") != "true"):
        pytest.skip(f"no {tried.package} on this machine: tests/kit/setup.sh installs it")
    assert numbers(version) >= numbers(tried.version), version
