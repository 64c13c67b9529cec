"""Keep a table as it is now, or as it was.

TARGET gets the rows of the table, as Parquet files, a Delta or an Iceberg table, and knows up to which GTID. Run it
again to bring it up to date. With --at-gtid or --at-time it stops there. Rows that the log does not have, as they were
inserted before it begins, are not in it, unless a copy of the table is given with the position at which it was made.

The table is followed through RENAME TABLE and ALTER TABLE. Where a statement changes rows and nothing says what they
are then, such as DROP PARTITION or a new column that is computed, it ends with an error, and TARGET stays as it was.
The exit code is 1, too, if rows of TARGET may be wrong or missing; --option nonRow=skip takes it so.
"""

from __future__ import annotations

import argparse
import time

from binlog_storage.console.arguments import add_dry_run, add_json, position_argument, time_argument
from binlog_storage.disk.local_path import path_argument

from binlog_pipeline.cli.arguments import add_source, source_options
from binlog_pipeline.targets import SINKS, target_argument


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_source(parser)
    parser.add_argument(
        "target",
        type=target_argument,
        metavar="TARGET",
        help="directory, made if need be; s3://BUCKET/x for delta; iceberg://CATALOG/DB/TABLE",
    )
    parser.add_argument("--table", required=True, metavar="DB.TABLE", help="which table")
    parser.add_argument("--keys", metavar="COLUMN,...", help="instead of the primary key")
    parser.add_argument(
        "--sink",
        choices=SINKS,
        default="parquet",
        help="changes: what happened, not what is",
    )
    end = parser.add_mutually_exclusive_group()
    end.add_argument(
        "--at-gtid",
        type=position_argument,
        metavar="GTIDS",
        help="the table as it was at this position",
    )
    end.add_argument(
        "--at-time",
        type=time_argument,
        metavar="TIME",
        help="as it was then, such as '2026-11-20 10:00:00': local, with Z UTC",
    )
    parser.add_argument("--start-gtid", metavar="GTIDS", help="where a new target begins")
    parser.add_argument(
        "--copy", type=path_argument, metavar="PARQUET", help="the rows at --start-gtid"
    )
    parser.add_argument(
        "--time", choices=("interval", "micros", "string"), help="what TIME becomes"
    )
    parser.add_argument("--schema-seed", metavar="FILE", help="names and types of columns, JSON")
    add_dry_run(parser)
    add_json(parser)
    parser.set_defaults(makes="target")


def run(arguments: argparse.Namespace) -> int:
    from binlog_pipeline.cli.outcome import told, would
    from binlog_pipeline.jobs.state import OPS, keep_state, position_at, would_keep
    from binlog_pipeline.sources.opening import open_source

    began = time.monotonic()
    said = {"time": arguments.time, "schemaseed": arguments.schema_seed}
    more = {name: text for name, text in said.items() if text is not None}
    options = source_options(
        arguments, view="changes", layout="struct", ops=OPS, schemaevolution="ignore", **more
    )
    until = arguments.at_gtid
    if arguments.at_time is not None:
        source = open_source(options)
        start = options.start_gtid if options.start_gtid is not None else source.earliest()
        until = position_at(source, start, int(arguments.at_time))
    keys = arguments.keys.split(",") if arguments.keys else ()
    how = {"sink": arguments.sink, "until": until, "copy": arguments.copy}
    if arguments.dry_run:
        found = would_keep(options, arguments.target, **how)
        return would(arguments.target, found, as_json=arguments.json)
    done = keep_state(options, arguments.target, keys=keys, **how)
    seconds = time.monotonic() - began
    facts = None
    if arguments.json:
        facts = {"changes": done.changes, "seconds": round(seconds, 3)}
    else:
        print(
            f"{done.changes} changes in {seconds:.1f} s; {arguments.target} is at '{done.position}'"
        )
    return told(arguments.target, done, is_strict=options.non_row == "fail", facts=facts)
