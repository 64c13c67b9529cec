"""What a user calls a path: `scheme://` never becomes a folder here."""

from __future__ import annotations

from pathlib import Path

import pytest
from binlog_storage.disk.disk import OsDisk
from binlog_storage.disk.local_path import NotLocal, free_bytes, local_path, nearest_folder
from binlog_storage.disk.read_only_disk import ReadOnlyDisk

LOCAL = {
    "/srv/x": "/srv/x",
    "x": "x",
    "": ".",
    "a:b": "a:b",
    "./s3://bucket": "s3:/bucket",  # pathlib takes ./ away; as text it was meant
    "/s3://bucket": "/s3:/bucket",
    "c:/x": "c:/x",  # one letter is a drive of elsewhere, no scheme
    "file:///srv/x": "/srv/x",
    "FILE:///srv/with%20space": "/srv/with space",
    "0-1-5": "0-1-5",
}
ELSEWHERE = (
    "s3://bucket/x", "s3a://bucket", "S3://b/x", "gs://b/x", "abfss://c@a.dfs.core.windows.net/x", "hdfs://n:8020/x",
    "https://h/x", "mariadb://u@h:3306", "file://host/x", "file:/x", "s3:/bucket/x", "s3:///x",
)  # fmt: skip


@pytest.mark.parametrize("text", LOCAL)
def test_local(text: str) -> None:
    assert local_path(text) == Path(LOCAL[text])


@pytest.mark.parametrize("text", ELSEWHERE)
def test_elsewhere(text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for path in (text, Path(text)):
        with pytest.raises(NotLocal, match=r"not supported yet|is written as file:///"):
            local_path(path)
    for disk in (OsDisk, ReadOnlyDisk):
        with pytest.raises(NotLocal):
            disk(Path(text))
    assert not list(tmp_path.iterdir())


def test_nearest_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert nearest_folder(tmp_path) == tmp_path
    assert nearest_folder(tmp_path / "a" / "b") == tmp_path
    monkeypatch.chdir(tmp_path)
    assert nearest_folder(Path("a/b")) == tmp_path
    assert free_bytes(tmp_path) > 0
