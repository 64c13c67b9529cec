"""Write the code of the pipeline as one zip file, for spark-submit --py-files.

Workers need numpy, pyarrow, pandas and google-crc32c besides. A job says binlog_pipeline.register(spark).
"""

from __future__ import annotations

import argparse

from binlog_storage.disk.local_path import path_argument


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of `binlog-spark package`."""
    parser.add_argument("target", type=path_argument, metavar="FILE.zip")


def run(arguments: argparse.Namespace) -> int:
    """Run `binlog-spark package`. Returns the exit code."""
    from binlog_pipeline.packaging import make_zip

    size = make_zip(arguments.target)
    print(f"{arguments.target}, {size >> 10} KiB")
    return 0
