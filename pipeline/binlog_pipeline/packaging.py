"""The pipeline as one zip file, for `spark-submit --py-files`: executors need nothing else of ours.

Executors need numpy, pyarrow, pandas and google-crc32c in their Python; those are not in it, as they are not plain
Python. Nor are the speed-ups in C: they cannot be loaded from a zip file, and the Python beside them does the same.
"""

from __future__ import annotations

import os
import zipfile
from pathlib import Path
from typing import Final

import binlog_protocol
import binlog_storage
from binlog_storage.disk.local_path import local_path

import binlog_pipeline

_PACKAGES: Final = (binlog_pipeline, binlog_storage, binlog_protocol)
_SUFFIXES: Final = (".py", ".pyi", ".typed", ".lark")


def make_zip(target: Path) -> int:
    """Write it, over what is there. Returns its size in bytes. Raises OSError."""
    target = local_path(target)
    staged = target.with_name(f"{target.name}.{os.getpid()}.new")
    with zipfile.ZipFile(staged, "w", zipfile.ZIP_DEFLATED) as made:
        for package in _PACKAGES:
            (folder,) = map(Path, package.__path__)
            for path in sorted(folder.rglob("*")):
                if path.suffix in _SUFFIXES and path.is_file():
                    made.write(path, path.relative_to(folder.parent))
    staged.replace(target)
    return target.stat().st_size
