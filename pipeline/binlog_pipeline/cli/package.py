"""Write the code of the pipeline as one zip file, for spark-submit --py-files.

Workers need numpy, pyarrow, pandas and google-crc32c besides. A job says binlog_pipeline.register(spark).
"""

# The speed-ups in C are not in it: they cannot be loaded from a zip file, and the Python beside them does the same.

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import Final

import binlog_protocol
import binlog_storage
from binlog_storage.console.arguments import add_json
from binlog_storage.console.output import show_json
from binlog_storage.disk.durable_files import removed_on_error
from binlog_storage.disk.local_path import local_path, path_argument

import binlog_pipeline

_PACKAGES: Final = (binlog_pipeline, binlog_storage, binlog_protocol)
_SUFFIXES: Final = (".py", ".pyi", ".typed", ".lark")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "target", type=path_argument, metavar="FILE.zip", help="written over what is there"
    )
    add_json(parser)
    parser.set_defaults(makes="target")


def run(arguments: argparse.Namespace) -> int:
    size = make_zip(arguments.target)
    if arguments.json:
        show_json({"file": str(arguments.target), "bytes": size})
    else:
        print(f"{arguments.target}, {size >> 10} KiB")
    return 0


def make_zip(target: Path) -> int:
    """Write it, over what is there. Returns its size in bytes. Raises OSError."""
    import zipfile

    target = local_path(target)
    staged = target.with_name(f"{target.name}.{os.getpid()}.new")
    with removed_on_error(staged), zipfile.ZipFile(staged, "w", zipfile.ZIP_DEFLATED) as made:
        for package in _PACKAGES:
            (folder,) = map(Path, package.__path__)
            for path in sorted(folder.rglob("*")):
                if path.suffix in _SUFFIXES and path.is_file():
                    made.write(path, path.relative_to(folder.parent))
    staged.replace(target)
    return target.stat().st_size
