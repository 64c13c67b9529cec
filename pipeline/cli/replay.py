"""Write an archive back into a store of .ibb files.

The store has the same groups under the same GTIDs, and binlog-server serves it to replicas. Run it again after an
interruption, or when the archive has grown: what the store has is passed over.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare them."""
    parser.add_argument("archive", type=Path, metavar="ARCHIVE", help="directory of an archive")
    parser.add_argument(
        "--ibb", type=Path, required=True, metavar="DIR", help="the store, made if need be"
    )
    parser.add_argument(
        "--start-position",
        metavar="GTIDS",
        help="begin an empty store with the part of the archive that has this position",
    )
    parser.add_argument(
        "--max-binlog-size", default="1g", metavar="BYTES", help="of a file (default: 1g)"
    )


def run(arguments: argparse.Namespace) -> int:
    """The command."""
    from pipeline.jobs.progress import Progress
    from pipeline.jobs.replay import replay
    from pipeline.options import size
    from protocol.gtid import SlavePosition

    start = arguments.start_position
    began = time.monotonic()
    with Progress(0, "replay", "B") as bar:
        done = replay(
            arguments.archive,
            arguments.ibb,
            start=None if start is None else SlavePosition.parse(start),
            max_binlog_size=size(arguments.max_binlog_size),
            progress=bar.set,
        )
    seconds = time.monotonic() - began
    taken = done.taken
    if not taken.groups:
        print(f"nothing new: {arguments.ibb} is at '{done.position}'")
        return 0
    mib = taken.size / (1 << 20)
    print(
        f"{taken.groups} groups, {mib:.1f} MiB, in {seconds:.1f} s, {mib / max(seconds, 1e-3):.0f} MiB/s; "
        f"{arguments.ibb} is at '{done.position}'"
    )
    return 0
