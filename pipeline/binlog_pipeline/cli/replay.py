"""Write an archive back into a store of .ibb files.

The store has the same groups under the same GTIDs, and binlog-server serves it to replicas. Run it again after an
interruption, or when the archive has grown: what the store has is passed over.
"""

from __future__ import annotations

import argparse

from binlog_storage.archive.places import archive_argument
from binlog_storage.console.arguments import add_dry_run, add_json, position_argument, size_of
from binlog_storage.console.output import counted, show_json
from binlog_storage.console.progress import Progress
from binlog_storage.disk.local_path import path_argument

_SIZE_MIN = 64 << 10
_SIZE_MAX = 1 << 30


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "archive", type=archive_argument, metavar="ARCHIVE", help="directory or URL of an archive"
    )
    parser.add_argument(
        "--ibb", type=path_argument, required=True, metavar="DIR", help="the store, made if need be"
    )
    parser.add_argument(
        "--start-position",
        type=position_argument,
        metavar="GTIDS",
        help="begin an empty store with the part of the archive that has this position",
    )
    parser.add_argument(
        "--max-binlog-size",
        type=_size,
        default="1g",
        metavar="BYTES",
        help="of a file, 64k to 1g (default: 1g)",
    )
    add_dry_run(parser)
    add_json(parser)
    parser.set_defaults(makes="ibb")


def run(arguments: argparse.Namespace) -> int:
    from binlog_storage.intake.intake import taken_object

    from binlog_pipeline.jobs.replay import replay

    with Progress("replay") as progress:
        done = replay(
            arguments.archive,
            arguments.ibb,
            start=arguments.start_position,
            max_binlog_size=arguments.max_binlog_size,
            progress=progress.show,
            dry_run=arguments.dry_run,
        )
    seconds = progress.seconds
    taken = done.taken
    if arguments.json:
        told = taken_object(taken, done.position, seconds)
        show_json({"directory": str(arguments.ibb), **told, "dry_run": arguments.dry_run})
        return 0
    if not taken.groups:
        print(f"nothing new: {arguments.ibb} is at '{done.position}'")
        return 0
    mib = taken.size / (1 << 20)
    if arguments.dry_run:
        print(
            f"{counted(taken.groups, 'group')} would be stored, {mib:.1f} MiB; "
            f"{arguments.ibb} would be at '{done.position}'"
        )
        return 0
    print(
        f"{counted(taken.groups, 'group')}, {mib:.1f} MiB, in {seconds:.1f} s, {mib / max(seconds, 1e-3):.0f} MiB/s; "
        f"{arguments.ibb} is at '{done.position}'"
    )
    return 0


def _size(text: str) -> int:
    try:
        size = size_of(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    if not _SIZE_MIN <= size <= _SIZE_MAX:
        raise argparse.ArgumentTypeError(f"{text!r} is not between 64k and 1g")
    return size
