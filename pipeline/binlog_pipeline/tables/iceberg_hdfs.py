"""Files of Iceberg tables in HDFS by hdfs-native: pyiceberg's own way there needs Java, and Hadoop's library."""

from __future__ import annotations

from typing import Any
from urllib.parse import ParseResult

from binlog_storage.archive.hdfs_objects import HDFS_CONFIG
from binlog_storage.archive.objects import HDFS
from hdfs_native.fsspec import HdfsFileSystem
from pyiceberg.io.fsspec import FsspecFileIO


class HdfsFileIO(FsspecFileIO):
    """pyiceberg's `py-io-impl` for a warehouse at hdfs://."""

    def _get_fs_from_uri(self, uri: ParseResult, location: str = "") -> Any:
        if uri.scheme != HDFS:
            return super()._get_fs_from_uri(uri, location)
        return _WholePaths(uri.netloc, None, **HDFS_CONFIG)


class _WholePaths(HdfsFileSystem):
    """A path is all behind the machine's name: the library takes what is behind `#` and `?` of a table's name away."""

    @classmethod
    def _strip_protocol(cls, path: str) -> str:
        _, is_url, rest = path.partition("://")
        return f"/{rest.partition('/')[2]}" if is_url else path
