"""Google's store, which tells versions of an object by its generation, and one that lists from the beginning always."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from binlog_pipeline.sources.archive import ArchiveSource
from binlog_pipeline.sources.directory import DirectorySource
from binlog_storage.archive.places import open_objects

from tests.pipeline.archives import grow, rows, run
from tests.storage.archive import test_objects
from tests.storage.archive.s3_server import S3Server, s3_server
from tests.storage.archive.test_objects import grow_by_turns
from tests.storage.groups import simple

if not os.environ.get("CI"):  # the gate has it
    pytest.importorskip("obstore")


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[S3Server]:
    with s3_server() as (made, variables):
        for name, value in variables.items():
            monkeypatch.setenv(name, value)
        account = {"gcs_base_url": variables["AWS_ENDPOINT_URL"], "disable_oauth": True}
        account |= dict.fromkeys(("client_email", "private_key", "private_key_id"), "")
        key = tmp_path / "account.json"
        key.write_text(json.dumps(account))
        monkeypatch.setenv("GOOGLE_SERVICE_ACCOUNT", str(key))
        yield made


def test_what_objects_promise_at_google(server: S3Server, tmp_path: Path) -> None:
    test_objects.test_what_objects_promise(open_objects("gs://bucket/main"), tmp_path)


@pytest.mark.parametrize("url", ["gs://bucket/main", "s3://bucket/main"])
def test_an_archive_that_grows(url: str, server: S3Server, tmp_path: Path) -> None:
    """The manifest is written again, in place of the one that was read."""
    for count in (20, 40, 60):
        grow(tmp_path / "store", simple(count, size=4000)[count - 20 :])
        source = DirectorySource(str(tmp_path / "store"))
        run(source, url, partition_bytes=64 << 10)
        assert rows(ArchiveSource(url)) == rows(source)


def test_a_store_that_lists_all(server: S3Server) -> None:
    """Parts of chunks are not taken for some that were left over."""
    server.lists_all = True
    url = "s3://bucket/main"
    grow_by_turns(url, 7)
