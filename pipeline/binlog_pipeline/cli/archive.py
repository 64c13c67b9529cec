"""Copy the binlog into an archive: lossless, compressed, and read by all other commands.

OUT gets part-*.parquet, whose columns are those of view raw, and _archive.json, which says what counts. Run it again to
add what has come since; a run that was killed is gone on with. With binlog_archive_directory = "OUT" in its
configuration, a binlog-server purges no file that is not archived.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from binlog_protocol.gtid import U32_MAX
from binlog_storage.archive.places import archive_argument
from binlog_storage.console.arguments import add_dry_run, add_json, number_argument
from binlog_storage.console.output import counted, show_json
from binlog_storage.console.progress import Progress

from binlog_pipeline.cli.arguments import add_engine, add_source, engine, source_options

if TYPE_CHECKING:
    from binlog_pipeline.jobs.archive import Archived

_MIB = 1 << 20


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_source(parser)
    parser.add_argument(
        "target",
        type=archive_argument,
        metavar="OUT",
        help="directory, made if need be; or s3://, gs://, az://, hdfs://",
    )
    parser.add_argument(
        "--include-tail",
        action="store_true",
        help="also what is in the file that is being written (default: only files that are full)",
    )
    parser.add_argument(
        "--check", action="store_true", help="read each part back before it is published"
    )
    parser.add_argument(
        "--zstd-level",
        type=number_argument(1, 22),
        default=1,
        metavar="1..22",
        help="default: 1",
    )
    parser.add_argument(
        "--encryption-key-id",
        type=number_argument(0, U32_MAX),
        default=0,
        metavar="ID",
        help="encrypt parts with that key of the key file BINLOG_ARCHIVE_KEY_FILE (default: as the archive is)",
    )
    parser.add_argument("--partition-bytes", metavar="BYTES", help="of a part (default: 64m)")
    add_dry_run(parser)
    add_json(parser)
    add_engine(parser)
    parser.set_defaults(makes="target")


def run(arguments: argparse.Namespace) -> int:
    from binlog_pipeline.jobs.archive import ArchiveSettings, archive, what_lacks
    from binlog_pipeline.sources.opening import open_source

    options = source_options(arguments)
    settings = ArchiveSettings(
        tail=arguments.include_tail,
        partition_bytes=options.partition_bytes,
        level=arguments.zstd_level,
        is_checked=arguments.check,
        key_id=arguments.encryption_key_id,
        engine=engine(arguments),
    )
    source = open_source(options)
    if arguments.dry_run:
        would = what_lacks(source, arguments.target, settings)
        if arguments.json:
            show_json(
                {
                    "archive": str(arguments.target),
                    "parts": would.parts,
                    "bytes": would.size,
                    "begin": would.begin,
                    "end": would.end,
                    "dry_run": True,
                }
            )
        elif not would.parts:
            print(f"nothing new: {arguments.target} is at '{would.begin}'")
        else:
            print(
                f"{would.parts} parts would be added to {arguments.target}, behind '{would.begin}'"
            )
        return 0
    with Progress("archive") as progress:
        done = archive(source, arguments.target, settings, progress.show)
    seconds = progress.seconds
    if arguments.json:
        show_json(_facts(arguments.target, done, seconds))
    elif not done.parts:
        print(f"nothing new: {arguments.target} is at '{done.manifest.state.position()}'")
    else:
        mib = done.payload_bytes / _MIB
        print(
            f"{counted(done.groups, 'group')}, {mib:.1f} MiB, in {counted(done.parts, 'part')} of "
            f"{done.size / _MIB:.1f} MiB, in {seconds:.1f} s; {arguments.target} is at "
            f"'{done.manifest.state.position()}'"
        )
    return 0


def _facts(target: str | Path, done: Archived, seconds: float) -> dict[str, Any]:
    manifest = done.manifest
    return {
        "archive": str(target),
        "added": {
            "parts": done.parts,
            "groups": done.groups,
            "bytes": done.payload_bytes,
            "size": done.size,
        },
        "parts": manifest.count,
        "groups": manifest.groups,
        "bytes": manifest.payload_bytes,
        "size": manifest.size,
        "begin": manifest.begin,
        "state": str(manifest.state),
        "position": str(manifest.state.position()),
        "seconds": round(seconds, 3),
        "dry_run": False,
    }
