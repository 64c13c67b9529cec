"""By the library, over HTTP: a store that answers 500, 503, by half or not at all; and all readers of one archive."""

from __future__ import annotations

import contextlib
import io
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from binlog_pipeline.sources.archive import ArchiveSource
from binlog_pipeline.sources.directory import DirectorySource
from binlog_storage.archive import objects
from binlog_storage.archive.archive import Archive
from binlog_storage.archive.errors import ArchiveUnreachable, NotAnArchive
from binlog_storage.archive.manifest import MANIFEST_NAME
from binlog_storage.archive.places import open_objects

from binlog_server.testing.waiting import until
from tests.pipeline.archives import grow, log_of, replayed, rows, run, stored
from tests.storage.archive.s3_server import S3Server, s3_server
from tests.storage.groups import simple

URL = "s3://bucket/main"
MANIFEST = f"/bucket/main/{MANIFEST_NAME}"
FAULTS = ["500", "503", "lost", "half"]

if not os.environ.get("CI"):  # the gate has it
    pytest.importorskip("obstore")


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[S3Server]:
    monkeypatch.setattr(objects, "_RETRIES", 1)
    with s3_server() as (made, variables):
        for name, value in variables.items():
            monkeypatch.setenv(name, value)
        yield made


@pytest.fixture
def source(tmp_path: Path) -> DirectorySource:
    grow(tmp_path / "store", simple(40, size=4000))
    return DirectorySource(str(tmp_path / "store"))


def test_there_and_back(server: S3Server, source: DirectorySource, tmp_path: Path) -> None:
    run(source, URL, partition_bytes=64 << 10)
    assert rows(ArchiveSource(URL)) == rows(source)
    replayed(URL, tmp_path / "back")
    assert stored(tmp_path / "back") == log_of(source)
    assert all(path.startswith("/bucket/main/") for path in server.objects)


@pytest.mark.by_turns(2)
@pytest.mark.parametrize("kind", FAULTS)
def test_one_fault_at_any_request(kind: str, server: S3Server, source: DirectorySource) -> None:
    """A request is repeated, or the run ends with an error that names the object; the next one goes on."""
    run(source, URL)
    whole, requests = dict(server.objects), server.requests
    for at in range(1, requests + 1):
        server.objects.clear()
        server.requests = 0
        server.fault = lambda method, path, number, at=at: kind if number == at else ""  # type: ignore[misc]
        with contextlib.suppress(ArchiveUnreachable):
            run(source, URL)
        run(source, URL)
        assert server.objects == whole, at


@pytest.mark.by_turns(2)
@pytest.mark.parametrize("kind", FAULTS)
def test_one_that_stays(kind: str, server: S3Server, source: DirectorySource) -> None:
    """An error, for who writes and who reads, and never a history that is shorter."""
    run(source, URL)
    server.fault = lambda method, path, number: kind if method == "GET" else ""
    with pytest.raises(ArchiveUnreachable, match=MANIFEST_NAME):
        Archive.open(URL)
    with pytest.raises(ArchiveUnreachable):
        run(source, URL)
    server.fault = lambda method, path, number: kind if path != MANIFEST else ""
    with pytest.raises(ArchiveUnreachable, match=r"part-00000001"):
        rows(ArchiveSource(URL))


@pytest.mark.parametrize("kind", ["hang", "stall"])
@pytest.mark.parametrize("which", ["manifest", "part"])
def test_one_that_says_nothing(
    which: str,
    kind: str,
    server: S3Server,
    source: DirectorySource,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A connection that stays, and has no bytes: an error after a while, and the next call goes on."""
    run(source, URL)
    server.fault = lambda method, path, number: (
        kind if (path == MANIFEST) is (which == "manifest") else ""
    )
    with monkeypatch.context() as patch:
        impatient(patch, timedelta(milliseconds=100))
        with pytest.raises(ArchiveUnreachable, match="s3://bucket/main/"):
            rows(ArchiveSource(URL))
    server.fault = lambda method, path, number: ""
    assert rows(ArchiveSource(URL)) == rows(source)


def test_a_manifest_that_is_not_answered_for(
    server: S3Server, source: DirectorySource, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.fault = lambda method, path, number: (
        "hang" if method == "PUT" and path == MANIFEST else ""
    )
    with monkeypatch.context() as patch:
        impatient(patch, timedelta(seconds=2))  # enough for all that is answered, on a busy machine
        run(source, URL)  # it was written: it is read, and is ours
    assert rows(ArchiveSource(URL)) == rows(source)


def impatient(patch: pytest.MonkeyPatch, silence: timedelta) -> None:
    patch.setattr(objects, "_SILENCE", silence)
    patch.setattr(objects, "_RETRY", timedelta(milliseconds=1))


MAIN = """
import sys
from binlog_pipeline.cli import main
from binlog_storage.console.running import end_by
sys.exit(end_by(main()))
"""


@pytest.mark.long
@pytest.mark.parametrize("method", ["GET", "PUT"])
def test_a_command_is_told_to_end_while_nothing_is_answered(
    method: str, server: S3Server, tmp_path: Path
) -> None:
    """It would be heard behind the call: half a minute later, and of a part that is sent five."""
    grow(tmp_path / "store", simple(40, size=4000))
    asked: list[str] = []

    def fault(its_method: str, path: str, _: int) -> str:
        if its_method != method:
            return ""
        asked.append(path)
        return "hang"

    server.fault = fault
    words = ("archive", str(tmp_path / "store"), URL)
    with subprocess.Popen(
        (sys.executable, "-c", MAIN, *words), stderr=subprocess.PIPE, text=True
    ) as running:
        until(lambda: asked, "a request")
        running.terminate()
        try:
            _, said = running.communicate(timeout=15)
        finally:
            running.kill()
    assert running.returncode == -signal.SIGTERM
    assert said == "binlog-spark: interrupted by SIGTERM\n"


def test_one_that_sends_elsewhere(server: S3Server, source: DirectorySource) -> None:
    """No signature goes there, and nothing is written there; what is read there is believed by the manifest alone."""
    run(source, URL)
    with s3_server() as (other, variables):
        elsewhere = variables["AWS_ENDPOINT_URL"]
        other.objects.update({**server.objects, MANIFEST: b"{}"})
        server.fault = lambda method, path, number: elsewhere
        with pytest.raises(NotAnArchive, match="no manifest of an archive"):
            Archive.open(URL)
        other.objects[MANIFEST] = server.objects[MANIFEST]
        assert rows(ArchiveSource(URL)) == rows(source)
        before = dict(other.objects)
        for data in (b"{}", io.BytesIO(b"{}")):
            with pytest.raises(ArchiveUnreachable, match="307"):
                open_objects(URL).put("part-00000002.parquet", data, None)
        assert other.objects == before
        assert {method for method, _ in other.headers} == {"GET"}
        assert not any("authorization" in sent for _, sent in other.headers)
    assert all("authorization" in sent for _, sent in server.headers)


def test_keys_are_not_told(server: S3Server) -> None:
    server.fault = lambda method, path, number: "500"
    with pytest.raises(ArchiveUnreachable) as error:
        Archive.open(URL)
    assert "secret" not in str(error.value)
