"""Tell how far an export, an archive, a state table or a stream is behind its source.

MADE is its directory or URL, the directory of a stream's checkpoint, or a GTID position. What is counted are numbers
of GTIDs: transactions, or fewer if there are gaps. With --max N it fails (exit code 1) if a domain is further behind.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import asdict

from binlog_storage.console.arguments import add_json, number_argument
from binlog_storage.console.output import show_json, show_table

from binlog_pipeline.cli.arguments import add_source, source_options


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_source(parser)
    parser.add_argument("made", metavar="MADE", help="a directory, a URL, or a GTID position")
    parser.add_argument(
        "--max", type=number_argument(), metavar="N", help="fail if it is more than that"
    )
    add_json(parser, "one array, an object a domain")


def run(arguments: argparse.Namespace) -> int:
    from binlog_pipeline.jobs.lag import lag, position_of
    from binlog_pipeline.sources.opening import open_source

    at = position_of(arguments.made)
    found = lag(open_source(source_options(arguments)).latest(), at)
    if arguments.json:
        show_json([asdict(one) for one in found])
    else:
        rows = [(str(one.domain), one.at, one.latest, one.behind) for one in found]
        show_table(("DOMAIN", "AT", "SOURCE", "BEHIND"), rows)
    far = max((one.behind for one in found), default=0)
    if arguments.max is not None and far > arguments.max:
        print(f"binlog-spark: {far} behind, {arguments.max} are allowed", file=sys.stderr)
        return 1
    return 0
