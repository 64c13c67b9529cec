"""Keep a target up to date by Spark: what is there first, then what comes.

Runs until it is stopped, or with --available-now until it has what was there. Each change counts once, however often it
is stopped or killed. What is in doubt is told as soon as it is known; the exit code is 1 if the target may not be
right at the end.
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Final

from binlog_storage.console.arguments import add_json
from binlog_storage.console.running import told_to_stop

from binlog_pipeline.cli.arguments import add_source, source_options, spark_options
from binlog_pipeline.targets import SINKS, checkpoint_path, target_argument

if TYPE_CHECKING:
    from binlog_pipeline.options import SourceOptions
    from binlog_pipeline.spark.streams import StreamTarget


_LOOK_S: Final = 1


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_source(parser, "--from")
    parser.add_argument(
        "--to",
        type=target_argument,
        required=True,
        metavar="TARGET",
        dest="target",
        help="directory, made if need be; s3://BUCKET/x for delta; iceberg://CATALOG/DB/TABLE",
    )
    parser.add_argument("--table", metavar="DB.TABLE", help="one, with typed columns")
    parser.add_argument("--tables", metavar="GLOB,...", help="several as JSON, for --sink changes")
    parser.add_argument("--keys", metavar="COLUMN,...", help="instead of the primary key")
    parser.add_argument(
        "--sink",
        choices=SINKS,
        default="parquet",
        help="the table as Parquet, Delta or Iceberg, or its changes (default parquet)",
    )
    parser.add_argument(
        "--checkpoint", type=checkpoint_path, required=True, metavar="DIR", help="Spark's own notes"
    )
    parser.add_argument("--available-now", action="store_true", help="end when it is up to date")
    parser.add_argument("--trigger", default="1 second", metavar="TIME", help="default: 1 second")
    parser.add_argument(
        "--max-bytes-per-trigger", default="64m", metavar="SIZE", help="default 64m"
    )
    parser.add_argument(
        "--schema-evolution",
        choices=("restart", "fail", "ignore"),
        default="restart",
        help="which ALTER TABLE ends it: one behind which names of columns may be wrong, any, none (default restart)",
    )
    add_json(parser, "one JSON object, when it ends")
    parser.add_argument("--master", default="local[*]", metavar="URL", help="default: this machine")
    parser.set_defaults(makes="target")


def run(arguments: argparse.Namespace) -> int:
    from binlog_pipeline.cli.outcome import told
    from binlog_pipeline.errors import BadOption
    from binlog_pipeline.jobs.state import OPS

    if arguments.table is None and arguments.sink != "changes":
        raise BadOption(f"--sink {arguments.sink} keeps one table: name it by --table")
    options = {
        "view": "changes",
        "maxbytespertrigger": arguments.max_bytes_per_trigger,
        "schemaevolution": arguments.schema_evolution,
        "ops": OPS,
    }
    parsed = source_options(arguments, **options)  # complains before Spark starts
    from binlog_pipeline.spark.failures import in_own_words

    with in_own_words():
        target = _followed(arguments, options, parsed)
    with target.opened() as kept:
        facts: dict[str, object] | None = {} if arguments.json else None
        return told(arguments.target, kept, is_strict=parsed.non_row == "fail", facts=facts)


def _followed(
    arguments: argparse.Namespace, options: dict[str, str], parsed: SourceOptions
) -> StreamTarget:
    """The target, when the query has ended."""
    from pyspark.errors import PySparkException

    from binlog_pipeline.spark.session import deaf_jvm, end, live_session
    from binlog_pipeline.spark.streams import StreamTarget

    with deaf_jvm():
        spark = live_session(arguments.master)
    try:
        # What ends the query is told by this command, in one line: Spark logs it thrice, with its stacks, as ERROR.
        spark.sparkContext.setLogLevel("FATAL")
        changes = (
            spark.readStream.format("binlog").options(**spark_options(arguments, **options)).load()
        )
        target = StreamTarget(
            changes,
            str(arguments.target),
            table=arguments.table or arguments.tables or "",
            keys=arguments.keys.split(",") if arguments.keys else (),
            sink=arguments.sink,
            read=parsed,
        )
        every = {"processingTime": arguments.trigger}
        trigger = {"availableNow": True} if arguments.available_now else every
        query = target.start(changes, str(arguments.checkpoint), trigger)
        # Not by an exception: it would come in the middle of a call to the JVM, and Spark's handler makes another one.
        stopped = told_to_stop()
        try:
            while not stopped() and not query.awaitTermination(_LOOK_S):
                pass
        except PySparkException:
            if not stopped():
                raise  # else its Python workers were told to end, too
        query.stop()
        return target
    finally:
        end(spark)
