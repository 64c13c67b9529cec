"""Read everything once, and tell what is damaged.

Checksums of pages and of parts of archives, the events of each transaction, and the rows of each event. One line for
each part of the source that cannot be read; exit code 1 if there is one. `binlog-server verify` looks closer at the
files of a store that no server has open.
"""

from __future__ import annotations

import argparse

from binlog_storage.console.arguments import add_json
from binlog_storage.console.output import show_json, show_table, shown, size_text

from binlog_pipeline.cli.arguments import add_engine, add_range, add_source, engine, source_options


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_source(parser)
    add_json(parser, "one object")
    add_range(parser)
    add_engine(parser)


def run(arguments: argparse.Namespace) -> int:
    from binlog_pipeline.jobs.verify import verify

    done = verify(source_options(arguments), engine(arguments))
    found = done.found
    domains = [
        (str(domain), str(numbers.first), str(numbers.last), numbers.count, numbers.missing)
        for domain, numbers in sorted(found.domains.items())
    ]
    if arguments.json:
        totals = {
            "transactions": found.groups,
            "events": found.events,
            "rows": found.rows,
            "bytes": found.bytes,
            "domains": [
                dict(zip(("domain", "first", "last", "transactions", "missing"), one, strict=True))
                for one in domains
            ],
        }
        show_json({"sound": not done.damage, "damage": done.damage, **totals})
        return 1 if done.damage else 0
    show_table(("DOMAIN", "FIRST", "LAST", "TRANSACTIONS", "MISSING"), domains)
    for text in done.damage:
        print(shown(text))
    print(
        f"{'damaged' if done.damage else 'sound'}: {found.groups:,} transactions, {found.events:,} events, "
        f"{found.rows:,} rows, {size_text(found.bytes)}"
    )
    return 1 if done.damage else 0
