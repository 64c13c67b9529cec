"""Write all tables as typed Parquet files.

OUT gets DATABASE/TABLE/schema=N/part-*.parquet, and _manifest.json, which says what is there and up to which GTID. A
table whose columns change gets a new N. What changes rows without rows in the log is listed in the manifest, and if the
log does not say what it did, the exit code is 1. Run it again to add what has come since; a run that was killed is done
again.
"""

from __future__ import annotations

import argparse
import sys
import time

from binlog_storage.console.arguments import add_dry_run, add_json
from binlog_storage.console.output import counted, show_json, shown
from binlog_storage.console.running import EXIT_FAILED
from binlog_storage.disk.local_path import path_argument

from binlog_pipeline.cli.arguments import add_engine, add_range, add_source, engine, source_options
from binlog_pipeline.cli.outcome import would


def add_arguments(parser: argparse.ArgumentParser) -> None:
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
    add_dry_run(parser)
    add_json(parser)
    add_range(parser)
    add_engine(parser)
    parser.set_defaults(makes="target")


def run(arguments: argparse.Namespace) -> int:
    from binlog_pipeline.jobs.export import export, would_export

    began = time.monotonic()
    options = source_options(arguments)
    if arguments.dry_run:
        found = would_export(options, arguments.target, layout=arguments.layout)
        return would(arguments.target, found, as_json=arguments.json)
    done = export(
        options,
        arguments.target,
        layout=arguments.layout,
        engine=engine(arguments),
    )
    seconds = time.monotonic() - began
    is_wrong = bool(done.unknown) and options.non_row != "skip"
    if arguments.json:
        show_json(
            {
                "target": str(arguments.target),
                "rows": done.rows,
                "files": done.files,
                "bytes": done.bytes,
                "position": str(done.position),
                "complete": not is_wrong,
                "unknown": [
                    {
                        "table": f"{one.database}.{one.table}",
                        "gtid": str(one.gtid),
                        "statement": one.sql,
                        "why": one.why,
                    }
                    for one in done.unknown
                ],
                "seconds": round(seconds, 3),
            }
        )
        return EXIT_FAILED if is_wrong else 0
    if done.files:
        print(
            f"{counted(done.rows, 'row')} in {counted(done.files, 'file')}, {done.bytes / (1 << 20):.1f} MiB, "
            f"in {seconds:.1f} s; {arguments.target} is at '{done.position}'"
        )
    else:
        print(f"nothing new: {arguments.target} is at '{done.position}'")
    if not is_wrong:
        return 0
    for one in done.unknown:
        print(
            f"{one.database}.{one.table}: {one.gtid}: {shown(one.sql)}: {one.why}", file=sys.stderr
        )
    print(
        f"binlog-spark: {arguments.target} has all rows as they were logged, and behind these {len(done.unknown)} "
        "statements the tables are not what those rows make of them; _manifest.json lists them. --option nonRow=skip "
        "ends with 0",
        file=sys.stderr,
    )
    return EXIT_FAILED
