"""Tell which tables are hot, how large transactions are, how many there are when, and which GTIDs are missing.

Bytes of a table are those of its row events; all others are of whole transactions as they are in the log. Times are
those at which statements began, in UTC. A GTID gap is no error: filters and other servers make them.
"""

from __future__ import annotations

import argparse
from dataclasses import asdict, astuple
from typing import TYPE_CHECKING, Any, Final

from binlog_storage.console.arguments import add_json, number_argument
from binlog_storage.console.output import bar, show_json, show_table, size_text, time_text
from binlog_storage.disk.local_path import path_argument

from binlog_pipeline.cli.arguments import add_engine, add_range, add_source, engine, source_options
from binlog_pipeline.errors import BadOption

if TYPE_CHECKING:
    from binlog_pipeline.jobs.amounts import Amount
    from binlog_pipeline.jobs.stats import LogStatistics

PERCENTILES: Final = (50, 95, 99)
_PLOTS: Final = (".png", ".html")
_GAPS_SHOWN: Final = 5


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_source(parser)
    parser.add_argument(
        "--top",
        type=number_argument(),
        default=20,
        metavar="N",
        help="tables and transactions (default: 20)",
    )
    add_json(parser, "one object, with all numbers")
    parser.add_argument(
        "--plot",
        type=path_argument,
        metavar="FILE",
        help="a picture beside the text: FILE.png or FILE.html",
    )
    add_range(parser)
    add_engine(parser)
    parser.set_defaults(makes="plot")


def run(arguments: argparse.Namespace) -> int:
    if arguments.plot is not None and arguments.plot.suffix.lower() not in _PLOTS:
        raise BadOption("--plot takes a file that ends in .png or .html")
    from binlog_pipeline.jobs.stats import statistics

    found = statistics(source_options(arguments), engine(arguments))
    if arguments.plot is not None:
        from binlog_pipeline.jobs.stats_plot import write_plot

        write_plot(found, arguments.source, arguments.plot)
    if arguments.json:
        show_json(as_object(found, arguments.top))
        return 0
    _show(found, arguments.top)
    return 0


def as_object(found: LogStatistics, top: int) -> dict[str, Any]:
    """Statistics as a JSON object, for --json."""
    return {
        "transactions": found.groups,
        "events": found.events,
        "rows": found.rows,
        "bytes": found.bytes,
        "ddl": found.ddl,
        "xa": found.xa,
        "operations": found.operations,
        "tables": [{"table": name, **asdict(amount)} for name, amount in _hottest(found, top)],
        "table_count": len(found.tables),
        "writers": [{"server_id": server, **asdict(amount)} for server, amount in _writers(found)],
        "sizes": {
            **{f"p{percent}": found.sizes.percentile(percent) for percent in PERCENTILES},
            "max": found.sizes.largest,
            "histogram": [
                {"from": least, "transactions": count} for least, count in found.sizes.buckets()
            ],
        },
        "rates": {
            "step_s": found.rates.step,
            "peak": {name: _peak(found, *what) for name, what in _PEAKS.items()},
            "minutes": [
                {"time": time_text(begin), **asdict(amount)}
                for begin, amount in sorted(found.rates.by(60).amounts.items())
            ],
        },
        "domains": [
            {
                "domain": domain,
                "first": str(numbers.first),
                "last": str(numbers.last),
                "transactions": numbers.count,
                "missing": numbers.missing,
                "gaps": [
                    {"before": str(gap.before), "behind": str(gap.behind), "missing": gap.missing}
                    for gap in numbers.gaps
                ],
                "gap_count": numbers.gap_count,
            }
            for domain, numbers in sorted(found.domains.items())
        ],
        "largest": [
            {
                "gtid": str(largest.gtid),
                "bytes": largest.bytes,
                "rows": largest.rows,
                "time": time_text(largest.timestamp),
                "tables": list(largest.tables),
            }
            for largest in found.largest[:top]
        ],
    }


_PEAKS: Final = {
    "transactions_s": ("transactions", 1),
    "rows_s": ("rows", 1),
    "bytes_s": ("bytes", 1),
    "transactions_min": ("transactions", 60),
    "rows_min": ("rows", 60),
    "bytes_min": ("bytes", 60),
}


def _show(found: LogStatistics, top: int) -> None:
    if not found.groups:
        print("nothing: no transaction of the source is in that range")
        return
    operations = ", ".join(f"{count:,} {name}" for name, count in found.operations.items())
    times = sorted(found.rates.amounts)
    print(f"{found.groups:,} transactions, {found.events:,} events, {size_text(found.bytes)}")
    print(f"{found.rows:,} rows: {operations}; {found.ddl:,} DDL, {found.xa:,} XA")
    print(f"from {time_text(times[0])} to {time_text(times[-1])}")
    print()
    shown = [(name, *astuple(amount)) for name, amount in _hottest(found, top)]
    show_table(("TABLE", "TRANSACTIONS", "ROWS", "BYTES"), shown)
    if len(found.tables) > top:
        print(f"and {len(found.tables) - top:,} more")
    print()
    _show_sizes(found)
    print()
    peaks = [
        (name, _peak(found, name, 1), _peak(found, name, 60))
        for name in ("transactions", "rows", "bytes")
    ]
    finest = "A SECOND" if found.rates.step == 1 else f"IN {found.rates.step} S"
    show_table(("PEAK", finest, "A MINUTE"), peaks)
    print()
    show_table(
        ("SERVER ID", "TRANSACTIONS", "ROWS", "BYTES"),
        [(str(server), *astuple(amount)) for server, amount in _writers(found)],
    )
    print()
    _show_domains(found)
    print()
    show_table(
        ("LARGEST", "BYTES", "ROWS", "TIME", "TABLES"),
        [
            (str(one.gtid), one.bytes, one.rows, time_text(one.timestamp), ", ".join(one.tables))
            for one in found.largest[:top]
        ],
    )


def _show_sizes(found: LogStatistics) -> None:
    percentiles = [f"p{p} {size_text(found.sizes.percentile(p))}" for p in PERCENTILES]
    print(f"SIZE OF TRANSACTIONS: {', '.join(percentiles)}, max {size_text(found.sizes.largest)}")
    buckets = found.sizes.buckets()
    most = max(count for _, count in buckets)
    rows = [(f"from {size_text(least)}", count, bar(count / most)) for least, count in buckets]
    show_table(("", "", ""), rows)


def _show_domains(found: LogStatistics) -> None:
    rows = []
    for domain, numbers in sorted(found.domains.items()):
        gaps = [f"{gap.before} .. {gap.behind}" for gap in numbers.gaps[:_GAPS_SHOWN]]
        more = ["..."] if numbers.gap_count > _GAPS_SHOWN else []
        ends = (str(numbers.first), str(numbers.last))
        rows.append((str(domain), *ends, numbers.count, numbers.missing, ", ".join(gaps + more)))
    show_table(("DOMAIN", "FIRST", "LAST", "TRANSACTIONS", "MISSING", "GAPS"), rows)


def _hottest(found: LogStatistics, top: int) -> list[tuple[str, Amount]]:
    return sorted(found.tables.items(), key=lambda item: (-item[1].rows, item[0]))[:top]


def _writers(found: LogStatistics) -> list[tuple[int, Amount]]:
    return sorted(found.writers.items(), key=lambda item: (-item[1].transactions, item[0]))


def _peak(found: LogStatistics, name: str, step: int) -> int:
    amounts = found.rates.by(step).amounts.values()
    return max((getattr(amount, name) for amount in amounts), default=0)
