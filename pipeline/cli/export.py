"""Write all tables as typed Parquet files.

OUT gets DATABASE/TABLE/schema=N/part-*.parquet, and _manifest.json, which says what is there and up to which GTID. A
table whose columns change gets a new N. Run it again to add what has come since; a run that was killed is done again.
"""

from __future__ import annotations

import argparse
import time

from pipeline.cli.arguments import add_engine, add_range, add_source, engine, source_options
from storage.local_path import path_argument


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare them."""
    add_source(parser)
    parser.add_argument(
        "target", type=path_argument, metavar="OUT", help="directory, made if need be"
    )
    parser.add_argument(
        "--tables", metavar="GLOB,...", help="only these, such as shop.*,app.users (default: all)"
    )
    parser.add_argument(
        "--layout",
        choices=("struct", "flat"),
        default="struct",
        help="struct: columns before and after (default); flat: the columns themselves",
    )
    add_range(parser)
    add_engine(parser)


def run(arguments: argparse.Namespace) -> int:
    """The command."""
    from pipeline.jobs.export import export

    began = time.monotonic()
    done = export(
        source_options(arguments),
        arguments.target,
        layout=arguments.layout,
        engine=engine(arguments),
    )
    seconds = time.monotonic() - began
    if not done.files:
        print(f"nothing new: {arguments.target} is at '{done.position}'")
        return 0
    print(
        f"{done.rows} rows in {done.files} files, {done.bytes / (1 << 20):.1f} MiB, in {seconds:.1f} s; "
        f"{arguments.target} is at '{done.position}'"
    )
    return 0
