"""Moto's S3 server as a process: a store of others, with conditions."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from binlog_server.testing.waiting import until


@contextmanager
def moto_s3(folder: Path) -> Iterator[int]:
    """Its port, with a bucket `bucket`. Skips the test where moto is not installed, unless it is CI."""
    if not os.environ.get("CI"):
        pytest.importorskip("moto")
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    with (folder / "moto.log").open("wb") as log:
        moto = subprocess.Popen(
            [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)],
            stdout=log,
            stderr=log,
        )
    try:
        bucket = urllib.request.Request(f"http://127.0.0.1:{port}/bucket", method="PUT")

        def is_made() -> bool:
            try:
                with urllib.request.urlopen(bucket, timeout=5):
                    return True
            except (urllib.error.URLError, OSError):
                return False

        until(is_made, "moto's server answers", 40)
        yield port
    finally:
        moto.kill()
        moto.wait()


def variables(port: int) -> dict[str, str]:
    """The environment by which clients of S3 find a server of this machine."""
    return {
        "AWS_ACCESS_KEY_ID": "key",
        "AWS_SECRET_ACCESS_KEY": "secret",
        "AWS_REGION": "us-east-1",
        "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}",
        "AWS_ALLOW_HTTP": "true",
    }
