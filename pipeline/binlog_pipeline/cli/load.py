"""Load tables as they are, joined with the log without a seam.

The rows of the tables are read from a running MariaDB, in pieces and side by side, without a lock, and joined with what
its binlog has of that time. FOLDER/DB/TABLE is then a target as `state` keeps it, at a GTID position: `state` and
`stream` go on from there. A load that was killed goes on where it was.

A target that is there is left as it is; --again reads its table anew and replaces its rows in one step, while others
keep it up to date: so a target that may not be complete is mended, too. Of several tables those that can be loaded are;
of the others it is said why not.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from binlog_storage.console.arguments import add_dry_run, add_json, number_argument
from binlog_storage.console.output import show_json
from binlog_storage.console.running import EXIT_FAILED, complain
from binlog_storage.disk.local_path import path_argument

from binlog_pipeline.cli.arguments import add_source, source_options
from binlog_pipeline.targets import TABLE_SINKS, target_argument

if TYPE_CHECKING:
    from binlog_pipeline.jobs.load import LoadedTable
    from binlog_pipeline.options import SourceOptions


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_source(parser)
    parser.add_argument(
        "--target",
        type=target_argument,
        required=True,
        metavar="FOLDER",
        help="made if need be; s3://BUCKET/x for delta; iceberg://CATALOG",
    )
    parser.add_argument("--tables", metavar="GLOB,...", help="which tables, such as shop.*")
    parser.add_argument(
        "--again", metavar="GLOB,...", help="these are read anew, though they are there"
    )
    parser.add_argument(
        "--keys", metavar="COLUMN,...", help="of one table: instead of the primary key"
    )
    parser.add_argument(
        "--sink",
        choices=TABLE_SINKS,
        default="parquet",
        help="files of the target (default parquet)",
    )
    parser.add_argument(
        "--staging",
        type=path_argument,
        metavar="DIR",
        help="for rows until all of a table are read (default: in FOLDER, if that is of this machine)",
    )
    parser.add_argument(
        "--workers", type=number_argument(1), default=2, metavar="N", help="connections (default 2)"
    )
    parser.add_argument(
        "--piece-rows",
        type=number_argument(1),
        default=100_000,
        metavar="N",
        help="rows that one statement reads (default 100000)",
    )
    parser.add_argument(
        "--time", choices=("interval", "micros", "string"), help="what TIME becomes"
    )
    parser.add_argument("--schema-seed", metavar="FILE", help="types of columns, JSON")
    add_dry_run(parser)
    add_json(parser, "one array, an object a table")
    parser.set_defaults(makes="target")


def run(arguments: argparse.Namespace) -> int:
    from dataclasses import replace

    from binlog_pipeline.cli.outcome import as_object, told
    from binlog_pipeline.errors import BadOption, PipelineError
    from binlog_pipeline.jobs.load import tables_of
    from binlog_pipeline.jobs.state import OPS

    again = arguments.again.split(",") if arguments.again else []
    first = arguments.tables.split(",") if arguments.tables else []
    if not again and not first:
        raise BadOption("name tables by --tables, or by --again")
    said = {"time": arguments.time, "schemaseed": arguments.schema_seed, "tables": None}
    more = {name: text for name, text in said.items() if text is not None}
    arguments.tables = None  # of the source there is one table at a time
    options = source_options(
        arguments, view="changes", layout="struct", ops=OPS, schemaevolution="ignore", **more
    )
    anew = tables_of(options, again) if again else []
    wanted = dict.fromkeys((*(tables_of(options, first) if first else ()), *anew))
    if arguments.keys and len(wanted) > 1:
        raise BadOption("--keys are those of one table")
    if arguments.dry_run:
        return _dry_run(arguments, wanted, anew)
    worst = 0
    found: list[dict[str, object]] = []
    for table in wanted:
        began = time.monotonic()
        try:
            done = _loaded(arguments, replace(options, table=table), again=table in anew)
        except PipelineError as error:
            if len(wanted) == 1:
                raise
            worst = complain("binlog-spark", f"{table} is not loaded: {error}", EXIT_FAILED)
            tables_of(options, ["*.*"])  # not if the server is gone
            continue
        seconds = time.monotonic() - began
        if arguments.json:
            facts = {"table": table, "rows": done.rows, "loaded": done.is_new}
            found.append(as_object(done.target, done.kept, {**facts, "seconds": round(seconds, 3)}))
            if not done.kept.is_complete and options.non_row == "fail":
                worst = EXIT_FAILED
            continue
        if done.is_new:
            place = f"{done.target} is at '{done.kept.position}'"
            print(f"{table}: {done.rows} rows in {seconds:.1f} s; {place}")
        else:
            print(f"{table}: {done.target} is there, at '{done.kept.position}'; --again reads anew")
        worst = max(worst, told(done.target, done.kept, is_strict=options.non_row == "fail"))
    if arguments.json:
        show_json(found)
    return worst


def _loaded(arguments: argparse.Namespace, options: SourceOptions, *, again: bool) -> LoadedTable:
    """Load the table of the options. Raises `PipelineError`."""
    from binlog_pipeline.jobs.load import load, staging_of, target_of

    staging = arguments.staging
    return load(
        options,
        target_of(arguments.target, options.table),
        keys=arguments.keys.split(",") if arguments.keys else (),
        sink=arguments.sink,
        again=again,
        workers=arguments.workers,
        piece_rows=arguments.piece_rows,
        staging=None if staging is None else staging_of(staging, options.table),
    )


def _dry_run(arguments: argparse.Namespace, wanted: Iterable[str], again: Sequence[str]) -> int:
    """Say which tables would be read."""
    from binlog_pipeline.jobs.load import position_of, target_of

    found: list[dict[str, object]] = []
    for table in wanted:
        place = target_of(arguments.target, table)
        at = position_of(place, table, arguments.sink)
        is_read = at is None or table in again
        facts = {"position": None if at is None else str(at), "loaded": is_read, "dry_run": True}
        found.append({"table": table, "target": str(place), **facts})
        if not arguments.json:
            there = "" if at is None else f" is there, at '{at}'; it"
            print(f"{table}: {place}{there} would {'' if is_read else 'not '}be loaded")
    if arguments.json:
        show_json(found)
    return 0
